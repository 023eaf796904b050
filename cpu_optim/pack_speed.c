/*
 * pack_speed: how long updates of packed state take, beside the same updates of arrays that are not
 * packed. What is timed is what a training does to a sub-group on a drive: an image of each moment
 * is checked, pieces are unpacked, updated and packed, the first image into the slot, the second
 * beside it, from where it moves, and parameters become an image, too. Sub-groups come one after
 * the other, so that each is as cold as one that a drive has just brought.
 */
#include "base/median.h"
#include "base/random.h"
#include "cpu_optim/optim.h"
#include "cpu_optim/optim_bench.h"
#include "cpu_optim/pack.h"

#include <stdlib.h>
#include <sys/mman.h>

#define GROUP_ELEMS ((uint64_t)4 << 20) /* of a sub-group on a drive (train/setup_ranks.c) */
#define HUGE_PAGE ((uint64_t)2 << 20)
#define LINE 64
enum { MOMENTS = 2, ARRAYS = MOMENTS + 1 };

/* A sub-group in split form. The slot has lower halves and moments one behind the other, or images
 * of the moments and lower halves behind them. */
struct group {
    uint64_t n;
    float *grad;
    uint16_t *param;
    char *slot, *param_slot;
    uint64_t image_bytes[ARRAYS];
    uint64_t remainder_at;
};

struct packed_stage {
    const struct zinf_pack_bench *bench;
    struct group *groups;
    uint64_t n_groups;
    struct zinf_optim_hyper hyper;
    char *base, *room;
    bool packed, packs_param; /* what slots hold; whether parameters become images */
};

static uint64_t lines(uint64_t bytes)
{
    return zinf_align_up(bytes, LINE);
}

static uint64_t slot_bytes(uint64_t n)
{
    return LINE + MOMENTS * lines(zinf_pack_bound(ZINF_DTYPE_F32, n)) + lines(n / 64) +
           lines(n * sizeof(uint16_t));
}

static uint64_t room_bytes(const struct zinf_pack_bench *b)
{
    const uint64_t pieces = (ARRAYS * (ZINF_PACK_AHEAD + 1) + 1) * ZINF_PACK_PIECE * sizeof(float);
    return MOMENTS * lines(zinf_pack_bound(ZINF_DTYPE_F32, GROUP_ELEMS)) +
           ((uint64_t)b->n_threads + 1) * pieces; /* for each thread, and for a table */
}

/* ---- one sub-group ---- */

/* A group whose arrays are worked on. */
struct turn {
    struct packed_stage *stage;
    struct group *group;
    struct zinf_pack_changing arrays[ARRAYS];
};

static float *plain_moment(const struct group *g, int i)
{
    return (float *)(void *)(g->slot + lines(g->n * sizeof(uint16_t)) +
                             (uint64_t)i * lines(g->n * sizeof(float)));
}

static uint16_t *remainder_of(const struct turn *t)
{
    return (uint16_t *)(void *)(t->group->slot + t->group->remainder_at);
}

static int step(const struct turn *t, uint64_t first, uint64_t n, void *const x[ARRAYS],
                int n_threads)
{
    const struct zinf_optim_array array = {.n = n,
                                           .remainder = remainder_of(t) + first,
                                           .moment1 = x[0],
                                           .moment2 = x[1],
                                           .grad = t->group->grad + first,
                                           .grad_dtype = ZINF_DTYPE_F32,
                                           .grad_scale = 1,
                                           .param = x[MOMENTS],
                                           .param_dtype = ZINF_DTYPE_BF16};
    return zinf_optim_step(&t->stage->hyper, &array, n_threads);
}

static int step_plain(struct turn *t)
{
    void *const x[] = {plain_moment(t->group, 0), plain_moment(t->group, 1), t->group->param};
    return step(t, 0, t->group->n, x, t->stage->bench->n_threads);
}

static int step_piece(void *context, uint64_t first, uint64_t n, void *const x[])
{
    return step(context, first, n, x, 1);
}

/* Where the group's arrays are, and their new images will be. */
static int find(struct turn *t)
{
    const struct packed_stage *s = t->stage;
    const uint64_t n = t->group->n;
    uint64_t from = LINE, to = 0;
    int64_t code = 0;
    for (int i = 0; i < MOMENTS && code >= 0; i++) {
        struct zinf_pack_changing *a = &t->arrays[i];
        *a = (struct zinf_pack_changing){.array = {NULL, ZINF_DTYPE_F32, n, true},
                                         .out = s->room + to};
        to += lines(zinf_pack_bound(ZINF_DTYPE_F32, n));
        if (!s->packed) {
            a->array.x = plain_moment(t->group, i);
            continue;
        }
        a->in = t->group->slot + from;
        a->in_bytes = t->group->image_bytes[i];
        if (i == 0) {
            a->place = t->group->slot + from;
            a->place_bytes = lines(a->in_bytes);
        }
        code = zinf_pack_check(&a->array, a->in, a->in_bytes);
        from += lines(a->in_bytes);
    }
    char *image = s->packs_param ? t->group->param_slot : NULL;
    t->arrays[MOMENTS] =
        (struct zinf_pack_changing){.array = {t->group->param, ZINF_DTYPE_BF16, n, false},
                                    .in_place = !s->packs_param,
                                    .out = image,
                                    .place = image,
                                    .place_bytes = zinf_pack_bound(ZINF_DTYPE_BF16, n)};
    return code < 0 ? (int)code : 0;
}

/* Lower halves stay where they are once they are behind images that grow by next to nothing. */
static void move(struct turn *t)
{
    struct group *g = t->group;
    uint64_t at = LINE, end = LINE;
    for (int i = 0; i < MOMENTS; i++)
        end += lines((uint64_t)t->arrays[i].bytes);
    if (!t->stage->packed || g->remainder_at < end) {
        end += lines(g->n / 64);
        memmove(g->slot + end, remainder_of(t), g->n * sizeof(uint16_t));
        g->remainder_at = end;
    }
    for (int i = 0; i < MOMENTS; i++) {
        zinf_pack_collect(&t->arrays[i], g->slot + at, t->stage->bench->n_threads);
        g->image_bytes[i] = (uint64_t)t->arrays[i].bytes;
        at += lines(g->image_bytes[i]);
    }
}

static int step_packed(struct turn *t)
{
    struct packed_stage *s = t->stage;
    struct zinf_pack_change change = {.arrays = t->arrays,
                                      .n_arrays = ARRAYS,
                                      .change = step_piece,
                                      .context = t,
                                      .room = s->room + room_bytes(s->bench),
                                      .n_threads = s->bench->n_threads,
                                      .ahead = ZINF_PACK_AHEAD};
    int code = find(t);
    change.room = (char *)change.room - zinf_pack_change_room(&change);
    if (!code)
        code = zinf_pack_change(&change);
    if (code)
        return code;
    move(t);
    if (s->packs_param) {
        zinf_pack_collect(&t->arrays[MOMENTS], t->group->param_slot, 1);
        t->group->image_bytes[MOMENTS] = (uint64_t)t->arrays[MOMENTS].bytes;
    }
    return 0;
}

static int unpack_param(struct turn *t)
{
    const struct zinf_pack_array array = {t->group->param, ZINF_DTYPE_BF16, t->group->n, false};
    const int64_t code = zinf_unpack(&array, t->group->param_slot, t->group->image_bytes[MOMENTS],
                                     t->stage->bench->n_threads);
    return code < 0 ? (int)code : 0;
}

/* ---- all of them ---- */

/* One round over all groups. */
static int pass(struct packed_stage *s, int (*work)(struct turn *t))
{
    int code = 0;
    for (uint64_t g = 0; g < s->n_groups && !code; g++) {
        struct turn turn = {.stage = s, .group = &s->groups[g]};
        code = work(&turn);
    }
    s->hyper.step++;
    return code;
}

/* The median of rounds. One more before them warms caches, page tables and threads, and packs what
 * was not packed. */
static int time_passes(struct packed_stage *s, int (*work)(struct turn *t), double *seconds)
{
    const int repeats = s->bench->repeats;
    double *rounds = malloc((size_t)repeats * sizeof *rounds);
    int code = rounds ? pass(s, work)
                      : zinf_fail(-ENOMEM, "bench optim: no memory for %d rounds", repeats);
    s->packed = work != step_plain;
    for (int round = 0; round < repeats && !code; round++) {
        const uint64_t start = zinf_now_ns();
        code = pass(s, work);
        rounds[round] = (double)(zinf_now_ns() - start) * 1e-9;
    }
    if (!code)
        *seconds = zinf_median(rounds, repeats);
    free(rounds);
    return code;
}

/* Normal numbers as gradients and as parameters; moments become what updates make of them. */
static void fill(struct packed_stage *s)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < s->n_groups; i++) {
        struct group *g = &s->groups[i];
        const uint64_t left = s->bench->n - i * GROUP_ELEMS;
        g->n = left < GROUP_ELEMS ? left : GROUP_ELEMS;
        g->grad = (float *)(void *)(s->base + at);
        at += lines(g->n * sizeof(float));
        g->param = (uint16_t *)(void *)(s->base + at);
        at += lines(g->n * sizeof(uint16_t));
        g->slot = s->base + at;
        at += slot_bytes(g->n);
        g->param_slot = s->base + at;
        at += lines(zinf_pack_bound(ZINF_DTYPE_BF16, g->n));
        zinf_normal_fill(g->grad, i * GROUP_ELEMS, g->n, 1, 2, 0, 0.02f);
        zinf_convert(g->param, ZINF_DTYPE_BF16, g->grad, ZINF_DTYPE_F32, g->n);
        memset(g->slot, 0, slot_bytes(g->n));
    }
    s->room = s->base + at;
}

static int open_stage(struct packed_stage *s)
{
    const uint64_t all = s->n_groups * GROUP_ELEMS;
    uint64_t bytes = all * (sizeof(float) + sizeof(uint16_t)) +
                     s->n_groups * (slot_bytes(GROUP_ELEMS) +
                                    lines(zinf_pack_bound(ZINF_DTYPE_BF16, GROUP_ELEMS))) +
                     room_bytes(s->bench);
    bytes = zinf_align_up(bytes, HUGE_PAGE);
    s->groups = calloc(s->n_groups, sizeof *s->groups);
    s->base = s->groups ? aligned_alloc(HUGE_PAGE, bytes) : NULL;
    if (!s->base)
        return zinf_fail(-ENOMEM, "bench optim: no memory to pack %llu elements: give fewer",
                         (unsigned long long)s->bench->n);
    madvise(s->base, bytes, MADV_HUGEPAGE); /* as a training's memory */
    fill(s);
    return 0;
}

int zinf_pack_bench(struct zinf_pack_bench *b)
{
    struct packed_stage s = {.bench = b,
                             .hyper = {.kind = ZINF_OPTIM_ADAMW,
                                       .lr = 1e-5f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.999f,
                                       .eps = 1e-8f,
                                       .weight_decay = 0.1f,
                                       .bias_correction = true,
                                       .step = 1}};
    if (!b->n || b->n > (uint64_t)1 << 40 || b->n_threads < 1 || b->repeats < 1)
        return zinf_fail(-EINVAL, "bench optim: nothing to pack");
    s.n_groups = (b->n + GROUP_ELEMS - 1) / GROUP_ELEMS;
    int code = open_stage(&s);
    if (!code)
        code = time_passes(&s, step_plain, &b->plain_seconds);
    if (!code)
        code = time_passes(&s, step_packed, &b->state_seconds);
    s.packs_param = true;
    if (!code)
        code = time_passes(&s, step_packed, &b->all_seconds);
    if (!code)
        code = time_passes(&s, unpack_param, &b->unpack_seconds);
    b->state_bytes = MOMENTS * b->n * sizeof(float);
    b->param_bytes = b->n * sizeof(uint16_t);
    free(s.base);
    free(s.groups);
    return code;
}
