/*
 * packed: a sub-group's state as it lies on a drive: moments, and masters that are whole, as images
 * of cpu_optim/pack.h, all else as it is, one behind the other. A head on the first bytes says what
 * it is and how long, so that a restart needs to know nothing else: the store's checksums cover
 * that page as they do every other.
 *
 *   head     64 bytes: "zinfslot"; u32 version, 1; u32 the sub-group; u64 bytes, whole pages; u64
 *            checksum of the head (this field 0); zeros
 *   arrays   of the state, each on a multiple of 64: images, then the others, both in its order. A
 *            longest image needs more room than its array, which those behind it leave
 *
 * State that packing does not make shorter is stored as it is, and so has no head.
 */
#include "cpu_optim/pack.h"
#include "train/rules/rules.h"
#include "train/setup.h"

#include <inttypes.h>
#include <xxhash.h>

#define HEAD_BYTES 64
#define HEAD_VERSION 1
/* Bytes of 32 and of 16 bits that are left of moments after a thousand steps (BENCHMARKS.md), for
 * plans: what is moved is counted. */
#define SHARE_FP32 0.835
#define SHARE_BF16 0.67

struct head {
    char magic[8];
    uint32_t version, group;
    uint64_t bytes, sum;
};
static const char head_magic[8] = {'z', 'i', 'n', 'f', 's', 'l', 'o', 't'};

/* One of the state's arrays, with what lies between it and the next. */
struct array {
    uint64_t at, bytes;
    uint64_t n; /* numbers of this type, to be packed; 0: it is stored as it is */
    enum zinf_dtype dtype;
};

struct walk_state {
    const struct setup *setup;
    uint32_t group;
    struct rule_segment segment;
    uint32_t which; /* the segment's last array, its scales behind its moments */
    bool begun;     /* masters are done */
    bool plain;     /* the second walk, over what is stored as it is */
};

/* Of a segment. */
static struct array array_of(const struct walk_state *w)
{
    const struct rule_segment *g = &w->segment;
    const struct update_rule *r = g->of->rule;
    const uint64_t at = r->unit_bytes ? g->at : rule_moment_at(g, (int)w->which);
    const uint64_t end =
        rule_segment_end(g, &w->setup->graph->units[w->setup->layout.groups[w->group].unit]);
    struct array a = {.at = at, .bytes = end - at};
    if (r->unit_bytes || w->which > r->n_moments)
        return a;
    a.bytes = rule_moment_at(g, (int)w->which + 1) - at;
    a.dtype = r->half ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32;
    if (!r->block && r->moment_bytes == zinf_dtype_bytes(a.dtype))
        a.n = g->n;
    return a;
}

static bool next_in_state(struct walk_state *w, struct array *a)
{
    const uint64_t n = w->setup->layout.groups[w->group].n;
    if (!w->begun) {
        *a = (struct array){0, zinf_state_bytes(w->setup->form, 0, n),
                            w->setup->form == ZINF_STATE_WHOLE ? n : 0, ZINF_DTYPE_F32};
        w->begun = true;
        return true;
    }
    const struct update_rule *r = w->segment.of ? w->segment.of->rule : NULL;
    if (!r || w->which == (r->unit_bytes ? 1 : r->n_moments + 1)) {
        if (!rule_next_segment(w->setup, w->group, &w->segment))
            return false;
        w->which = 0;
    }
    w->which++;
    *a = array_of(w);
    return true;
}

/* In the order of the slot; those without bytes are left out. False: that was the last. */
static bool next_array(struct walk_state *w, struct array *a)
{
    for (;;) {
        while (next_in_state(w, a))
            if (a->bytes && !a->n == w->plain)
                return true;
        if (w->plain)
            return false;
        *w = (struct walk_state){.setup = w->setup, .group = w->group, .plain = true};
    }
}

bool rule_packs(const struct setup *s, uint32_t group)
{
    return rule_packed_share(s, group) < 1;
}

/* Factored moments have readers of their own (save/transfer_factors.c), so they stay as they are.
 */
double rule_packed_share(const struct setup *s, uint32_t group)
{
    struct walk_state w = {.setup = s, .group = group};
    struct array a;
    double all = 0, left = 0;
    if (!s->may_pack)
        return 1;
    while (next_array(&w, &a)) {
        if (w.segment.of && w.segment.of->rule->unit_bytes)
            return 1;
        all += (double)a.bytes;
        left += (double)a.bytes * (!a.n ? 1 : a.dtype == ZINF_DTYPE_F32 ? SHARE_FP32 : SHARE_BF16);
    }
    return all > 0 ? left / all : 1;
}

static uint64_t head_sum(struct head head)
{
    char bytes[HEAD_BYTES] = {0};
    head.sum = 0;
    memcpy(bytes, &head, sizeof head);
    return XXH3_64bits(bytes, sizeof bytes);
}

static uint64_t lines(uint64_t bytes)
{
    return zinf_align_up(bytes, HEAD_BYTES);
}

/* Bytes that the array takes at `to`; 0: it does not fit there. */
static int64_t put_array(const struct setup *s, const struct array *a, char *to, uint64_t room,
                         const char *plain)
{
    if (!a->n) {
        if (a->bytes > room)
            return 0;
        memcpy(to, plain + a->at, a->bytes);
        return (int64_t)a->bytes;
    }
    struct zinf_pack_array array = {(char *)(uintptr_t)(plain + a->at), a->dtype, a->n};
    if (zinf_pack_bound(a->dtype, a->n) > room)
        return 0;
    return zinf_pack(to, room, &array, s->device->n_threads);
}

int rule_pack_state(const struct setup *s, uint32_t group, void *slot, const void *plain,
                    uint64_t *bytes)
{
    const uint64_t room = s->state_bytes[group];
    struct walk_state w = {.setup = s, .group = group};
    struct array a;
    uint64_t used = HEAD_BYTES;
    bool fits = room > HEAD_BYTES;
    *bytes = 0;
    while (fits && next_array(&w, &a)) {
        int64_t took = put_array(s, &a, (char *)slot + used, room - used, plain);
        if (took < 0)
            return (int)took;
        fits = took && used + lines((uint64_t)took) <= room;
        memset((char *)slot + used + took, 0, fits ? lines((uint64_t)took) - (uint64_t)took : 0);
        used += lines((uint64_t)took);
    }
    const uint64_t whole = zinf_align_up(used, ZINF_AIO_ALIGN);
    if (!fits || whole >= room) {
        memcpy(slot, plain, room);
        return 0;
    }
    struct head head = {.version = HEAD_VERSION, .group = group, .bytes = whole};
    memcpy(head.magic, head_magic, sizeof head.magic);
    head.sum = head_sum(head);
    memset(slot, 0, HEAD_BYTES);
    memcpy(slot, &head, sizeof head);
    memset((char *)slot + used, 0, whole - used);
    *bytes = whole;
    return 0;
}

static int damaged(uint32_t group)
{
    return zinf_fail(-EBADMSG, "the packed state of sub-group %u is damaged", group);
}

int rule_packed_bytes(const struct setup *s, uint32_t group, const void *page, uint64_t *bytes)
{
    struct head head;
    memcpy(&head, page, sizeof head);
    *bytes = 0;
    if (memcmp(head.magic, head_magic, sizeof head.magic))
        return 0;
    if (head.sum != head_sum(head) || head.group != group || !head.bytes ||
        head.bytes % ZINF_AIO_ALIGN || head.bytes >= s->state_bytes[group])
        return damaged(group);
    if (head.version != HEAD_VERSION)
        return zinf_fail(-ENOTSUP,
                         "the packed state of sub-group %u was written by another zinf (version "
                         "%u, this one knows %d): take that one",
                         group, head.version, HEAD_VERSION);
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
    struct zinf_pack_array array = {to, a->dtype, a->n};
    memset(to + bytes, 0, a->bytes - bytes);
    return zinf_unpack(&array, from, left, s->device->n_threads);
}

int rule_unpack_state(const struct setup *s, uint32_t group, void *plain, const void *slot,
                      uint64_t bytes)
{
    struct walk_state w = {.setup = s, .group = group};
    struct array a;
    uint64_t used = HEAD_BYTES, said = 0;
    int code = bytes < ZINF_AIO_ALIGN ? 0 : rule_packed_bytes(s, group, slot, &said);
    if (code)
        return code;
    if (!said || said != bytes)
        return damaged(group);
    while (next_array(&w, &a)) {
        int64_t took = used > bytes
                           ? -EBADMSG
                           : take_array(s, &a, plain, (const char *)slot + used, bytes - used);
        if (took < 0)
            return took == -EBADMSG ? damaged(group) : (int)took;
        used += lines((uint64_t)took);
    }
    return 0;
}
