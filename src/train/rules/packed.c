/*
 * packed: a sub-group's state, parameters or kept gradient as they lie on a drive: moments, masters
 * that are whole, parameters and gradients as images of cpu_optim/pack.h, all else as it is, one
 * behind the other. A head on the first bytes says what it is and how long, so that a restart needs
 * to know nothing else: the store's checksums cover that page as they do every other.
 *
 *   head     64 bytes: "zinfslot", "zinfpara" or "zinfgrad"; u32 version, 1; u32 the sub-group; u64
 *            bytes, whole pages; u64 checksum of the head (this field 0); zeros
 *   arrays   each on a multiple of 64: images, then the others, both in their order. A longest
 *            image needs more room than its array, which those behind it leave, or else the slot
 *
 * What packing does not make shorter is stored as it is, and so has no head.
 */
#include "cpu_optim/pack.h"
#include "train/rules/rules.h"
#include "train/setup.h"

#include <inttypes.h>
#include <xxhash.h>

#define HEAD_VERSION 1
#define IMAGE_HEAD_BYTES 64 /* and the block of an image, by cpu_optim/pack.h */
#define BLOCK_ELEMS 512
/* What is left of moments in 32 and 16 bits, and of parameters, after a thousand steps
 * (BENCHMARKS.md), for plans: what is moved is counted. */
#define SHARE_FP32 0.835
#define SHARE_BF16 0.67
#define SHARE_GRAD 0.87
static const double param_shares[] = {
    [ZINF_DTYPE_F32] = 0.857, [ZINF_DTYPE_BF16] = 0.714, [ZINF_DTYPE_F16] = 0.86};

struct head {
    char magic[8];
    uint32_t version, group;
    uint64_t bytes, sum;
};
static const char magics[ZINF_PACKABLES][8] = {{'z', 'i', 'n', 'f', 's', 'l', 'o', 't'},
                                               {'z', 'i', 'n', 'f', 'p', 'a', 'r', 'a'},
                                               {'z', 'i', 'n', 'f', 'g', 'r', 'a', 'd'}};
static const char *const names[ZINF_PACKABLES] = {"state", "parameters", "gradient"};

/* The number type of parameters or a gradient, which are one array each. */
static enum zinf_dtype dtype_of(const struct rule_thing *t)
{
    return t->what == ZINF_PACKABLE_GRAD ? ZINF_DTYPE_F32 : t->setup->dtype;
}

/* One of the arrays, with what lies between it and the next. */
struct array {
    uint64_t at, bytes;
    uint64_t n; /* numbers of this type, to be packed; 0: it is stored as it is */
    enum zinf_dtype dtype;
};

struct arrays {
    const struct rule_thing *thing;
    struct rule_segment segment;
    uint32_t which; /* the segment's last array, its scales behind its moments */
    bool begun;     /* masters or parameters are done */
    bool plain;     /* the second walk, over what is stored as it is */
    bool of_first;  /* what the first rank has, by which all ranks plan */
};

/* The current array of the segment: a moment, the scales of moments, or all that the rule keeps of
 * the unit. */
static struct array array_of(const struct arrays *w)
{
    const struct rule_segment *g = &w->segment;
    const struct update_rule *r = g->of->rule;
    const uint64_t at = r->unit_bytes ? g->at : rule_moment_at(g, (int)w->which);
    const struct setup *s = w->thing->setup;
    const uint64_t end =
        rule_segment_end(g, &s->graph->units[s->layout.groups[w->thing->group].unit]);
    struct array a = {.at = at, .bytes = end - at};
    if (r->unit_bytes || w->which > r->n_moments)
        return a;
    a.bytes = rule_moment_at(g, (int)w->which + 1) - at;
    a.dtype = r->half ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32;
    if (!r->block && r->moment_bytes == zinf_dtype_bytes(a.dtype))
        a.n = g->n;
    return a;
}

static bool next_segment(struct arrays *w)
{
    const struct setup *s = w->thing->setup;
    const uint32_t group = w->thing->group;
    return w->of_first
               ? rule_next_segment_of(s, group, s->layout.groups[group].first, 0, &w->segment)
               : rule_next_segment(s, group, &w->segment);
}

static bool next_in_thing(struct arrays *w, struct array *a)
{
    const struct setup *s = w->thing->setup;
    const bool state = w->thing->what == ZINF_PACKABLE_STATE;
    const uint64_t n = s->layout.groups[w->thing->group].n;
    if (!w->begun) {
        *a = (struct array){0, zinf_state_bytes(s->form, 0, n), s->form == ZINF_STATE_WHOLE ? n : 0,
                            ZINF_DTYPE_F32};
        if (!state)
            *a = (struct array){0, rule_plain_bytes(w->thing), n, dtype_of(w->thing)};
        w->begun = true;
        return true;
    }
    if (!state)
        return false;
    const struct update_rule *r = w->segment.of ? w->segment.of->rule : NULL;
    if (!r || w->which == (r->unit_bytes ? 1 : r->n_moments + 1)) {
        if (!next_segment(w))
            return false;
        w->which = 0;
    }
    w->which++;
    *a = array_of(w);
    return true;
}

/* In the order of the slot; those without bytes are left out. False: that was the last. */
static bool next_array(struct arrays *w, struct array *a)
{
    for (;;) {
        while (next_in_thing(w, a))
            if (a->bytes && !a->n == w->plain)
                return true;
        if (w->plain)
            return false;
        *w = (struct arrays){.thing = w->thing, .plain = true, .of_first = w->of_first};
    }
}

uint64_t rule_plain_bytes(const struct rule_thing *t)
{
    const struct setup *s = t->setup;
    return t->what == ZINF_PACKABLE_STATE
               ? s->state_bytes[t->group]
               : s->layout.groups[t->group].n * zinf_dtype_bytes(dtype_of(t));
}

uint64_t rule_slot_bytes(const struct rule_thing *t)
{
    const uint64_t plain = rule_plain_bytes(t);
    if (t->what == ZINF_PACKABLE_STATE)
        return plain;
    return zinf_align_up(PACKED_HEAD_BYTES +
                             zinf_pack_bound(dtype_of(t), t->setup->layout.groups[t->group].n),
                         ZINF_AIO_ALIGN);
}

/* A device that unpacks parameters goes by the sums of their images. */
bool rule_packs_unsummed(const struct rule_thing *t)
{
    return t->summed_elsewhere && t->what != ZINF_PACKABLE_PARAM;
}

bool rule_packs(const struct rule_thing *t)
{
    return rule_packed_share(t) < 1;
}

double rule_packed_share(const struct rule_thing *t)
{
    if (t->setup->may_pack < packing_of(t->what))
        return 1;
    if (t->what == ZINF_PACKABLE_GRAD)
        return SHARE_GRAD;
    return t->what == ZINF_PACKABLE_PARAM ? rule_param_share(t->setup)
                                          : t->setup->state_shares[t->group];
}

double rule_param_share(const struct setup *s)
{
    return param_shares[s->dtype];
}

/* Factored moments have readers of their own (save/transfer_factors.c), so they stay as they are.
 */
double rule_state_share(const struct setup *s, uint32_t group)
{
    const struct rule_thing thing = {s, ZINF_PACKABLE_STATE, group, false};
    struct arrays w = {.thing = &thing, .of_first = true};
    struct array a;
    double all = 0, left = 0;
    while (next_array(&w, &a)) {
        if (w.segment.of && w.segment.of->rule->unit_bytes)
            return 1;
        all += (double)a.bytes;
        left += (double)a.bytes * (!a.n ? 1 : a.dtype == ZINF_DTYPE_F32 ? SHARE_FP32 : SHARE_BF16);
    }
    return all > 0 ? left / all : 1;
}

struct rule_numbers rule_state_numbers(const struct setup *s, uint32_t group)
{
    const struct rule_thing thing = {s, ZINF_PACKABLE_STATE, group, false};
    struct arrays w = {.thing = &thing, .of_first = true};
    struct rule_numbers numbers = {0, 0};
    struct array a;
    while (next_array(&w, &a)) {
        if (w.segment.of && w.segment.of->rule->unit_bytes)
            return (struct rule_numbers){0, 0};
        *(a.dtype == ZINF_DTYPE_F32 ? &numbers.wide : &numbers.half) += a.n ? a.bytes : 0;
    }
    return numbers;
}

/* Elements of the first rank's sub-group that are the unit's; those behind them are padding. By
 * these all ranks plan, so that they have one order of transfers. */
static uint64_t own_elems(const struct rule_thing *t)
{
    const struct zinf_layout_group *g = &t->setup->layout.groups[t->group];
    const struct zinf_layout_unit *u = &t->setup->layout.units[g->unit];
    const uint64_t left = u->elems > g->first ? u->elems - g->first : 0;
    return left < g->n ? left : g->n;
}

static double share_of(const struct rule_thing *t, const struct array *a)
{
    return t->what == ZINF_PACKABLE_GRAD    ? SHARE_GRAD
           : t->what == ZINF_PACKABLE_PARAM ? rule_param_share(t->setup)
           : a->dtype == ZINF_DTYPE_F32     ? SHARE_FP32
                                            : SHARE_BF16;
}

/* Of the image of an array: of its blocks of padding, which are zeros, the table alone is stored.
 */
static uint64_t image_bytes(const struct rule_thing *t, const struct arrays *w,
                            const struct array *a)
{
    const uint64_t first = w->segment.of ? w->segment.first : 0, all = own_elems(t);
    const uint64_t left = all > first ? all - first : 0, own = left < a->n ? left : a->n;
    const double bytes = share_of(t, a) * (double)own * (double)zinf_dtype_bytes(a->dtype);
    return IMAGE_HEAD_BYTES + (uint64_t)bytes + (a->n - own) / BLOCK_ELEMS * sizeof(uint32_t);
}

static uint64_t expected(const struct rule_thing *t)
{
    const uint64_t plain = rule_plain_bytes(t);
    struct arrays w = {.thing = t, .of_first = true};
    struct array a;
    uint64_t used = PACKED_HEAD_BYTES;
    while (next_array(&w, &a)) {
        if (w.segment.of && w.segment.of->rule->unit_bytes)
            return plain;
        used += rule_packed_lines(a.n ? image_bytes(t, &w, &a) : a.bytes);
    }
    used = zinf_align_up(used, ZINF_AIO_ALIGN);
    return used < plain ? used : plain;
}

uint64_t rule_expected_state(const struct setup *s, uint32_t group)
{
    return expected(&(struct rule_thing){s, ZINF_PACKABLE_STATE, group, false});
}

uint64_t rule_packed_expected(const struct rule_thing *t)
{
    if (!rule_packs(t))
        return rule_plain_bytes(t);
    return t->what == ZINF_PACKABLE_STATE ? t->setup->state_expected[t->group] : expected(t);
}

static uint64_t head_sum(struct head head)
{
    char bytes[PACKED_HEAD_BYTES] = {0};
    head.sum = 0;
    memcpy(bytes, &head, sizeof head);
    return XXH3_64bits(bytes, sizeof bytes);
}

uint64_t rule_packed_lines(uint64_t bytes)
{
    return zinf_align_up(bytes, PACKED_HEAD_BYTES);
}

uint64_t rule_packed_seal(const struct rule_thing *t, void *slot, uint64_t used)
{
    const uint64_t whole = zinf_align_up(used, ZINF_AIO_ALIGN);
    struct head head = {.version = HEAD_VERSION, .group = t->group, .bytes = whole};
    memcpy(head.magic, magics[t->what], sizeof head.magic);
    head.sum = head_sum(head);
    memset(slot, 0, PACKED_HEAD_BYTES);
    memcpy(slot, &head, sizeof head);
    memset((char *)slot + used, 0, whole - used);
    return whole;
}

/* Bytes that the array takes at `to`; 0: it does not fit there. */
static int64_t put_array(const struct rule_thing *t, const struct array *a, char *to, uint64_t room,
                         const char *plain)
{
    if (!a->n) {
        if (a->bytes > room)
            return 0;
        memcpy(to, plain + a->at, a->bytes);
        return (int64_t)a->bytes;
    }
    struct zinf_pack_array array = {(char *)(uintptr_t)(plain + a->at), a->dtype, a->n,
                                    rule_packs_unsummed(t)};
    if (zinf_pack_bound(a->dtype, a->n) > room)
        return 0;
    return zinf_pack(to, room, &array, t->setup->device->n_threads);
}

int rule_pack(const struct rule_thing *t, void *slot, const void *plain, uint64_t *bytes)
{
    const uint64_t room = rule_slot_bytes(t), most = rule_plain_bytes(t);
    struct arrays w = {.thing = t};
    struct array a;
    uint64_t used = PACKED_HEAD_BYTES;
    bool fits = room > PACKED_HEAD_BYTES;
    *bytes = 0;
    while (fits && next_array(&w, &a)) {
        int64_t took = put_array(t, &a, (char *)slot + used, room - used, plain);
        if (took < 0)
            return (int)took;
        fits = took && used + rule_packed_lines((uint64_t)took) <= room;
        memset((char *)slot + used + took, 0,
               fits ? rule_packed_lines((uint64_t)took) - (uint64_t)took : 0);
        used += rule_packed_lines((uint64_t)took);
    }
    const uint64_t whole = zinf_align_up(used, ZINF_AIO_ALIGN);
    if (!fits || whole >= most) {
        memcpy(slot, plain, most);
        return 0;
    }
    rule_packed_seal(t, slot, used);
    *bytes = whole;
    return 0;
}

int rule_damaged(const struct rule_thing *t)
{
    return zinf_fail(-EBADMSG, "the packed %s of sub-group %u is damaged", names[t->what],
                     t->group);
}

int rule_packed_bytes(const struct rule_thing *t, const void *page, uint64_t *bytes)
{
    struct head head;
    memcpy(&head, page, sizeof head);
    *bytes = 0;
    if (memcmp(head.magic, magics[t->what], sizeof head.magic))
        return 0;
    if (head.sum != head_sum(head) || head.group != t->group || !head.bytes ||
        head.bytes % ZINF_AIO_ALIGN || head.bytes >= rule_plain_bytes(t))
        return rule_damaged(t);
    if (head.version != HEAD_VERSION)
        return zinf_fail(-ENOTSUP,
                         "the packed %s of sub-group %u was written by another zinf (version %u, "
                         "this one knows %d): take that one",
                         names[t->what], t->group, head.version, HEAD_VERSION);
    *bytes = head.bytes;
    return 0;
}

/* Bytes that it took at `from`. */
static int64_t take_array(const struct setup *s, const struct array *a, char *plain,
                          const char *from, uint64_t left)
{
    char *to = plain + a->at;
    if (!a->n) {
        if (a->bytes > left)
            return -EBADMSG;
        memcpy(to, from, a->bytes);
        return (int64_t)a->bytes;
    }
    const uint64_t bytes = a->n * zinf_dtype_bytes(a->dtype);
    struct zinf_pack_array array = {to, a->dtype, a->n, false};
    memset(to + bytes, 0, a->bytes - bytes);
    return zinf_unpack(&array, from, left, s->device->n_threads);
}

int rule_check_packed(const struct rule_thing *t, const void *slot, uint64_t bytes)
{
    const struct zinf_pack_array array = {NULL, dtype_of(t), t->setup->layout.groups[t->group].n,
                                          false};
    uint64_t said = 0;
    int code = bytes < ZINF_AIO_ALIGN ? 0 : rule_packed_bytes(t, slot, &said);
    if (code)
        return code;
    if (!said || said != bytes ||
        zinf_pack_check(&array, (const char *)slot + PACKED_HEAD_BYTES, bytes - PACKED_HEAD_BYTES) <
            0)
        return rule_damaged(t);
    return 0;
}

int rule_device_unpack(const struct rule_thing *t, struct zinf_queue *queue, void *plain,
                       const void *slot, uint32_t *damaged)
{
    const struct zinf_packed_array array = {plain, dtype_of(t), t->setup->layout.groups[t->group].n,
                                            (const char *)slot + PACKED_HEAD_BYTES, damaged};
    return t->setup->device->ops->unpack(queue, &array);
}

int rule_unpack(const struct rule_thing *t, void *plain, const void *slot, uint64_t bytes)
{
    struct arrays w = {.thing = t};
    struct array a;
    uint64_t used = PACKED_HEAD_BYTES, said = 0;
    if (!bytes) {
        memcpy(plain, slot, rule_plain_bytes(t));
        return 0;
    }
    int code = bytes < ZINF_AIO_ALIGN ? 0 : rule_packed_bytes(t, slot, &said);
    if (code)
        return code;
    if (!said || said != bytes)
        return rule_damaged(t);
    while (next_array(&w, &a)) {
        int64_t took =
            used > bytes ? -EBADMSG
                         : take_array(t->setup, &a, plain, (const char *)slot + used, bytes - used);
        if (took < 0)
            return took == -EBADMSG ? rule_damaged(t) : (int)took;
        used += rule_packed_lines((uint64_t)took);
    }
    return 0;
}
