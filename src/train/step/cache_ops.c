/*
 * cache_ops: transfers of the cached data (keys, values, states) of sequences that are continued.
 * The rows of a call decide what is transferred, so one program serves all calls.
 */
#include "train/trainer.h"

/* Copies slots [first, first + n) of every plane of a sequence, or of a source. */
static int copy_slots(struct zinf_trainer *t, const struct zinf_op *op, enum zinf_caches which,
                      int64_t number, const uint64_t slots[2])
{
    const struct walk_stage *info = &t->setup.walk.stages[op->stage];
    const struct zinf_cache *c = &info->cache[which];
    const struct zinf_device_ops *ops = t->setup.device->ops;
    char *to = zinf_address(&op->at[0]), *from = zinf_address(&op->at[1]);
    const uint64_t first = slots[0], n = slots[1];
    int code = 0;
    for (uint64_t plane = 0; !code && n && plane < c->planes; plane++) {
        uint64_t slot = ((uint64_t)number * c->planes + plane) * c->slots + first;
        uint64_t offset = info->cache_at[which] + slot * c->row_bytes, bytes = n * c->row_bytes;
        code =
            op->kind == OP_CACHE_IN
                ? ops->copy_to_device(t->queues[ZINF_LANE_H2D], to + offset, from + offset, bytes)
                : ops->copy_to_host(t->queues[ZINF_LANE_D2H], to + offset, from + offset, bytes);
    }
    return code;
}

/* Copies the sources that are read and were cached before, or those that are new. */
static int copy_sources(struct zinf_trainer *t, const struct zinf_op *op, bool come)
{
    int code = 0;
    for (int64_t s = 0; !code && s < t->decoding.n_sources; s++) {
        const struct source_memory *source = &t->sources[s];
        const uint64_t all[2] = {0, (uint64_t)source->length};
        if (source->comes == come && (come || source->is_read))
            code = copy_slots(t, op, ZINF_CACHE_SOURCES, s, all);
    }
    return code;
}

/* Copies what sequences with new rows had before. */
static int copy_used(struct zinf_trainer *t, const struct zinf_op *op, enum zinf_caches which)
{
    const uint64_t slots = t->setup.walk.stages[op->stage].cache[which].slots;
    int code = 0;
    for (int64_t s = 0; slots && !code && s < t->decoding.n_sequences; s++) {
        uint64_t before = (uint64_t)t->first_new[s];
        const uint64_t used[2] = {0, before < slots ? before : slots};
        if (t->n_cached[s] > t->first_new[s])
            code = copy_slots(t, op, which, s, used);
    }
    return code;
}

/* Brings caches in: of sequences and of the sources that they read. */
int trainer_cache_in(struct zinf_trainer *t, const struct zinf_op *op)
{
    int code = copy_used(t, op, ZINF_CACHE_SEQUENCES);
    if (!code)
        code = copy_used(t, op, ZINF_CACHE_STATES);
    return code ? code : copy_sources(t, op, false);
}

/* Copies the new rows of sequences, or all slots if there are fewer; in two runs where the rows
 * wrap around. */
static int copy_new(struct zinf_trainer *t, const struct zinf_op *op, enum zinf_caches which)
{
    const uint64_t slots = t->setup.walk.stages[op->stage].cache[which].slots;
    int code = 0;
    for (int64_t s = 0; slots && !code && s < t->decoding.n_sequences; s++) {
        uint64_t first = (uint64_t)t->first_new[s] % slots;
        uint64_t rows = (uint64_t)(t->n_cached[s] - t->first_new[s]),
                 n = rows < slots ? rows : slots;
        uint64_t end = first + n < slots ? first + n : slots;
        const uint64_t runs[2][2] = {{first, end - first}, {0, n - (end - first)}};
        for (int i = 0; !code && i < 2; i++)
            code = copy_slots(t, op, which, s, runs[i]);
    }
    return code;
}

/* Takes caches out: of sequences and of new sources. */
int trainer_cache_out(struct zinf_trainer *t, const struct zinf_op *op)
{
    int code = copy_new(t, op, ZINF_CACHE_SEQUENCES);
    if (!code)
        code = copy_new(t, op, ZINF_CACHE_STATES);
    return code ? code : copy_sources(t, op, true);
}
