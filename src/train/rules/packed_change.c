/*
 * packed_change: the update of a sub-group whose state lies packed, or is to, by a rule over
 * elements. Piece by piece, moments are unpacked, updated and packed in a core's cache. The first
 * one's new image is written where it belongs, which may be over the old one. Where the second
 * belongs is known when the first is done, so it is written beside the slot and moves there. The
 * lower halves of split masters, which are not packed, are updated where they are.
 */
#include "cpu_optim/pack.h"
#include "train/rules/rules.h"
#include "train/setup.h"

enum { MOMENTS = 2 };

/* Images in the order of the slot, then the parameters. */
struct work {
    struct rule_change *c;
    struct rule_thing state, param;
    struct zinf_pack_changing arrays[MOMENTS + 1];
    uint32_t n_moments;
    uint64_t n;
    uint16_t *remainder, *old_remainder; /* NULL: the parameters are the masters */
};

static enum zinf_dtype moment_dtype(const struct update_rule *rule)
{
    return rule->half ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32;
}

static bool goes_by_pieces(const struct rule_change *c)
{
    const struct setup *s = c->step.setup;
    const struct update_rule *rule = c->step.segment.of->rule;
    return rule->step == rule_step_elements && rule->n_moments && !rule->block &&
           s->form != ZINF_STATE_WHOLE && c->step.segment.n == s->layout.groups[c->step.group].n;
}

/* ---- where everything is ---- */

static char *moment_in(const struct work *w, char *plain, uint32_t i)
{
    return plain + rule_moment_at(&w->c->step.segment, (int)i + 1);
}

/* The lower halves at `from`; new ones go to the end of another slot. */
static void find_remainder(struct work *w, char *from)
{
    const struct rule_change *c = w->c;
    const uint64_t bytes = zinf_align_up(w->n * sizeof(uint16_t), PACKED_HEAD_BYTES);
    if (c->step.setup->form != ZINF_STATE_SPLIT)
        return;
    w->old_remainder = (uint16_t *)(void *)from;
    w->remainder = w->old_remainder;
    if (c->from != c->slot)
        w->remainder = (uint16_t *)(void *)((char *)c->slot + rule_plain_bytes(&w->state) - bytes);
}

/* State that is not packed yet, as a training begins with it, or that packing did not make shorter.
 */
static void find_plain(struct work *w)
{
    char *slot = (char *)(uintptr_t)w->c->from; /* the caller's slot is written */
    for (uint32_t i = 0; i < w->n_moments; i++)
        w->arrays[i].array.x = moment_in(w, slot, i);
    find_remainder(w, slot);
}

static int find_packed(struct work *w)
{
    const struct rule_change *c = w->c;
    const char *slot = c->from;
    uint64_t at = PACKED_HEAD_BYTES, said;
    int code = rule_packed_bytes(&w->state, slot, &said);
    if (!code && said != c->from_bytes)
        code = rule_damaged(&w->state);
    for (uint32_t i = 0; !code && i < w->n_moments; i++) {
        struct zinf_pack_changing *a = &w->arrays[i];
        const int64_t bytes = at < said ? zinf_pack_check(&a->array, slot + at, said - at) : -1;
        a->in = slot + at;
        a->in_bytes = said - at;
        at += rule_packed_lines((uint64_t)bytes);
        code = bytes < 0 ? rule_damaged(&w->state) : 0;
    }
    if (code || c->step.setup->form != ZINF_STATE_SPLIT)
        return code;
    if (at + w->n * sizeof(uint16_t) > said)
        return rule_damaged(&w->state);
    find_remainder(w, (char *)(uintptr_t)(slot + at)); /* the caller's slot is written */
    return 0;
}

static int find_old(struct work *w)
{
    if (w->c->from_bytes)
        return find_packed(w);
    find_plain(w);
    return 0;
}

/* False: the room is too small. */
static bool find_new(struct work *w, struct zinf_pack_change *change)
{
    struct rule_change *c = w->c;
    uint64_t at = 0;
    for (uint32_t i = 0; i < w->n_moments; i++) {
        w->arrays[i].out = (char *)c->room + at;
        at += rule_packed_lines(zinf_pack_bound(w->arrays[i].array.dtype, w->n));
    }
    change->room = (char *)c->room + at;
    return at + zinf_pack_change_room(change) <= rule_slot_bytes(&w->state);
}

/* The first image is followed by the old second one or by what is not packed. */
static void place_first(struct work *w)
{
    const struct rule_change *c = w->c;
    char *slot = c->slot, *end = slot + rule_plain_bytes(&w->state);
    if (c->from == c->slot && !c->from_bytes)
        return;
    if (c->from == c->slot && w->n_moments > 1)
        end = (char *)(uintptr_t)w->arrays[1].in; /* the caller's slot is written */
    else if (w->remainder)
        end = (char *)w->remainder;
    w->arrays[0].place = slot + PACKED_HEAD_BYTES;
    w->arrays[0].place_bytes = (uint64_t)(end - slot) - PACKED_HEAD_BYTES;
}

/* Images are placed at once where the room suffices, if need be with fewer pieces that wait, and
 * for three quarters of the threads. */
static void find_places(struct work *w, struct zinf_pack_change *change)
{
    struct zinf_pack_changing *param = &w->arrays[w->n_moments];
    const uint64_t room =
        rule_slot_bytes(&w->state) - (uint64_t)((char *)change->room - (char *)w->c->room);
    const int n_threads = change->n_threads;
    place_first(w);
    if (param->out) {
        param->place = param->out;
        param->place_bytes = zinf_pack_bound(param->array.dtype, w->n);
    }
    while (zinf_pack_change_room(change) > room && change->ahead > 1)
        change->ahead--;
    while (zinf_pack_change_room(change) > room && change->n_threads > (3 * n_threads + 3) / 4)
        change->n_threads--;
    if (zinf_pack_change_room(change) <= room)
        return;
    change->n_threads = n_threads;
    w->arrays[0].place = param->place = NULL;
}

static void describe(struct work *w, struct rule_change *c)
{
    const struct setup *s = c->step.setup;
    const struct update_rule *rule = c->step.segment.of->rule;
    const uint64_t n = c->step.segment.n;
    *w = (struct work){.c = c,
                       .state = {s, ZINF_PACKABLE_STATE, c->step.group, c->summed_elsewhere},
                       .param = {s, ZINF_PACKABLE_PARAM, c->step.group, c->summed_elsewhere},
                       .n_moments = rule->n_moments,
                       .n = n};
    for (uint32_t i = 0; i < w->n_moments; i++)
        w->arrays[i].array =
            (struct zinf_pack_array){NULL, moment_dtype(rule), n, rule_packs_unsummed(&w->state)};
    w->arrays[w->n_moments] = (struct zinf_pack_changing){
        .array = {c->param, s->dtype, n, rule_packs_unsummed(&w->param)},
        .in_place = c->in_place,
        .out = c->param_slot ? (char *)c->param_slot + PACKED_HEAD_BYTES : NULL};
}

/* ---- the update ---- */

static int change_piece(void *context, uint64_t first, uint64_t n, void *const x[])
{
    const struct work *w = context;
    const struct setup *s = w->c->step.setup;
    struct rule_places places = {.own = {.param = x[w->n_moments]}};
    for (uint32_t i = 0; i < w->n_moments; i++)
        places.moments[i] = x[i];
    if (s->form == ZINF_STATE_BARE)
        places.own = (struct rule_masters){.master = x[w->n_moments]};
    else
        places.own.remainder = w->remainder + first;
    if (w->remainder != w->old_remainder)
        memcpy(w->remainder + first, w->old_remainder + first, n * sizeof *w->remainder);
    return rule_step_some(&w->c->step, &places, first, n);
}

/* ---- new slots ---- */

static uint64_t remainder_bytes(const struct work *w)
{
    return w->remainder ? w->n * sizeof *w->remainder : 0;
}

/* What packing does not make shorter is stored as it is. */
static int store_plain(const struct work *w)
{
    const int n_threads = w->c->step.setup->device->n_threads;
    const uint64_t most = rule_plain_bytes(&w->state);
    char *slot = w->c->slot, *end = slot + remainder_bytes(w);
    int64_t code = 0;
    for (uint32_t i = 0; i < w->n_moments; i++)
        zinf_pack_collect(&w->arrays[i], w->arrays[i].out, 1);
    memmove(slot, w->remainder, remainder_bytes(w));
    for (uint32_t i = 0; code >= 0 && i < w->n_moments; i++) {
        const struct zinf_pack_changing *a = &w->arrays[i];
        struct zinf_pack_array array = a->array;
        array.x = moment_in(w, slot, i);
        memset(end, 0, (size_t)((char *)array.x - end));
        end = (char *)array.x + w->n * zinf_dtype_bytes(array.dtype);
        code = zinf_unpack(&array, a->out, (uint64_t)a->bytes, n_threads);
    }
    memset(end, 0, (size_t)(slot + most - end));
    return code < 0 ? (int)code : 0;
}

/* What is not packed lies behind the images and need not move if these leave it where it is, or
 * nearly: the last image is made longer, by next to nothing. Else it moves on so far that it may
 * stay the next time. */
#define NEARLY 2048 /* a part of the slot */

static uint64_t place_remainder(struct work *w, uint64_t least)
{
    struct zinf_pack_changing *last = &w->arrays[w->n_moments - 1];
    const uint64_t most = rule_plain_bytes(&w->state) / NEARLY;
    uint64_t place = least;
    if (!w->remainder || !last->array.unsummed)
        return least;
    const uint64_t at = (uint64_t)((char *)w->remainder - (char *)w->c->slot);
    if (w->c->from != w->c->slot || at < least || at - least > most)
        place += zinf_align_up(most / 4, PACKED_HEAD_BYTES);
    else
        place = at;
    if (place > least)
        zinf_pack_pad(last, place - least + rule_packed_lines((uint64_t)last->bytes) -
                                (uint64_t)last->bytes);
    return place;
}

/* Images one behind the other, what is not packed behind them. */
static int store_state(struct work *w)
{
    const int n_threads = w->c->step.setup->device->n_threads;
    const uint64_t most = rule_plain_bytes(&w->state);
    uint64_t at[MOMENTS + 1] = {PACKED_HEAD_BYTES};
    char *slot = w->c->slot;
    bool fits = true;
    for (uint32_t i = 0; i < w->n_moments; i++) {
        const struct zinf_pack_changing *a = &w->arrays[i];
        fits = fits && zinf_pack_bound(a->array.dtype, w->n) <= most - at[i];
        at[i + 1] = at[i] + rule_packed_lines((uint64_t)a->bytes);
    }
    const uint64_t images_end = at[w->n_moments - 1] + (uint64_t)w->arrays[w->n_moments - 1].bytes;
    const uint64_t plain_at = at[w->n_moments] = place_remainder(w, at[w->n_moments]);
    const uint64_t used = plain_at + rule_packed_lines(remainder_bytes(w));
    if (!fits || zinf_align_up(used, ZINF_AIO_ALIGN) >= most)
        return store_plain(w);
    if (slot + plain_at != (char *)w->remainder)
        memmove(slot + plain_at, w->remainder, remainder_bytes(w));
    memset(slot + plain_at + remainder_bytes(w), 0, used - plain_at - remainder_bytes(w));
    for (uint32_t i = 0; i < w->n_moments; i++) {
        zinf_pack_collect(&w->arrays[i], slot + at[i], n_threads);
        const uint64_t end =
            i + 1 < w->n_moments ? at[i] + (uint64_t)w->arrays[i].bytes : images_end;
        memset(slot + end, 0, at[i + 1] - end);
    }
    w->c->bytes = rule_packed_seal(&w->state, slot, used);
    return 0;
}

/* The image was made where it belongs. As they are, new parameters are at hand if they were changed
 * in place, and else only in the image. */
static int store_param(struct work *w)
{
    struct rule_change *c = w->c;
    struct zinf_pack_changing *a = &w->arrays[w->n_moments];
    const uint64_t most = rule_plain_bytes(&w->param);
    const uint64_t end = PACKED_HEAD_BYTES + (uint64_t)a->bytes;
    const uint64_t used = PACKED_HEAD_BYTES + rule_packed_lines((uint64_t)a->bytes);
    struct zinf_pack_array plain = a->array;
    if (!c->param_slot)
        return 0;
    zinf_pack_collect(a, a->out, 1);
    if (zinf_align_up(used, ZINF_AIO_ALIGN) < most) {
        memset((char *)c->param_slot + end, 0, used - end);
        c->param_bytes = rule_packed_seal(&w->param, c->param_slot, used);
        return 0;
    }
    if (!c->in_place) {
        plain.x = c->room;
        int64_t code = zinf_unpack(&plain, a->out, (uint64_t)a->bytes, 1);
        if (code < 0)
            return (int)code;
    }
    memcpy(c->param_slot, plain.x, most);
    return 0;
}

static struct zinf_pack_change change_of(struct work *w)
{
    return (struct zinf_pack_change){.arrays = w->arrays,
                                     .n_arrays = w->n_moments + 1,
                                     .change = change_piece,
                                     .context = w,
                                     .n_threads = w->c->step.setup->device->n_threads,
                                     .ahead = ZINF_PACK_AHEAD};
}

bool rule_changes_packed(struct rule_change *c)
{
    struct work w;
    if (!goes_by_pieces(c))
        return false;
    describe(&w, c);
    struct zinf_pack_change change = change_of(&w);
    return find_new(&w, &change);
}

int rule_change_packed(struct rule_change *c)
{
    struct work w;
    describe(&w, c);
    struct zinf_pack_change change = change_of(&w);
    c->bytes = c->param_bytes = 0;
    find_new(&w, &change);
    int code = find_old(&w);
    if (!code)
        find_places(&w, &change);
    if (!code)
        code = zinf_pack_change(&change);
    if (code == -EBADMSG)
        code = rule_damaged(&w.state);
    if (!code)
        code = store_state(&w);
    if (!code)
        code = store_param(&w);
    return code;
}
