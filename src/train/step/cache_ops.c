/*
 * cache_ops: transfers of what stages remember of sequences that are continued. Which rows a call
 * has decides what is transferred, so that one program serves all calls.
 */
#include "train/trainer.h"

/* Slots [first, first + n) of every plane of a sequence. */
static int copy_slots(struct zinf_trainer *t, const struct zinf_op *op, int64_t sequence,
                      uint64_t first, uint64_t n)
{
    const struct zinf_cache *c = &t->setup.walk.stages[op->stage].cache;
    const struct zinf_device_ops *ops = t->setup.device->ops;
    char *to = zinf_address(&op->at[0]), *from = zinf_address(&op->at[1]);
    int code = 0;
    for (uint64_t plane = 0; !code && n && plane < c->planes; plane++) {
        uint64_t slot = ((uint64_t)sequence * c->planes + plane) * c->slots + first;
        uint64_t offset = slot * c->row_bytes, bytes = n * c->row_bytes;
        code =
            op->kind == OP_CACHE_IN
                ? ops->copy_to_device(t->queues[ZINF_LANE_H2D], to + offset, from + offset, bytes)
                : ops->copy_to_host(t->queues[ZINF_LANE_D2H], to + offset, from + offset, bytes);
    }
    return code;
}

/* What sequences with new rows had before. */
int trainer_cache_in(struct zinf_trainer *t, const struct zinf_op *op)
{
    uint64_t slots = t->setup.walk.stages[op->stage].cache.slots;
    int code = 0;
    for (int64_t s = 0; !code && s < t->decoding.n_sequences; s++) {
        uint64_t before = (uint64_t)t->first_new[s];
        if (t->n_cached[s] > t->first_new[s])
            code = copy_slots(t, op, s, 0, before < slots ? before : slots);
    }
    return code;
}

/* Their new rows: two runs where these go beyond the last slot. */
int trainer_cache_out(struct zinf_trainer *t, const struct zinf_op *op)
{
    uint64_t slots = t->setup.walk.stages[op->stage].cache.slots;
    int code = 0;
    for (int64_t s = 0; !code && s < t->decoding.n_sequences; s++) {
        uint64_t first = (uint64_t)t->first_new[s] % slots;
        uint64_t n = (uint64_t)(t->n_cached[s] - t->first_new[s]);
        uint64_t end = first + n < slots ? first + n : slots;
        code = copy_slots(t, op, s, first, end - first);
        if (!code)
            code = copy_slots(t, op, s, 0, n - (end - first));
    }
    return code;
}
