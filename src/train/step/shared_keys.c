/*
 * shared_keys: what ranks that share a sequence exchange of keys, values and their gradients, by
 * the host. A rank has pieces of the sequence, whose chunks lie in order. Of each piece only those
 * chunks move in which the sample has tokens: those behind them are left out of forward and of
 * backward alike, so nobody reads what they would have (visited.c). All ranks have the sample's
 * length, and so agree on what moves.
 */
#include "train/trainer.h"

#include <string.h>

enum { MOST_SHARERS = 64 }; /* as zinf.mesh.context allows */

/* Bytes that all ranks carry, from `at` on. */
struct run {
    uint64_t at, bytes;
};

/* Bytes of one rank; bytes received are those of all other ranks. */
static uint64_t share_of(const struct zinf_trainer *t, const struct zinf_op *op)
{
    return op->bytes / (context_axis(&t->setup)->world - 1);
}

/* Into how many runs the share of a rank falls: 1 if all of it moves, or one chunk of each rank. */
static int64_t runs_of(const struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct setup *s = &t->setup;
    const bool all = trainer_visited(t, setup_sample(s, op->micro)) >= s->n_chunks;
    return all || op->arg == KEYS_OF_ONE_CHUNK ? 1 : 2 * setup_own_parts(s);
}

/* What moves of a rank's k-th piece. */
static struct run run_of(const struct zinf_trainer *t, const struct zinf_op *op, uint64_t rank,
                         int64_t k)
{
    const struct setup *s = &t->setup;
    const uint64_t share = share_of(t, op), chunk = share / (uint64_t)s->own_chunks;
    const int64_t each = s->n_chunks / (2 * s->n_parts);
    const int64_t place = (int64_t)rank * s->own_chunks + k * each;
    if (runs_of(t, op) == 1)
        return (struct run){rank * share, share};
    const int64_t left = trainer_visited(t, setup_sample(s, op->micro)) -
                         zinf_chunk_at(place, s->n_chunks, s->n_parts);
    const int64_t n = left < 0 ? 0 : left < each ? left : each;
    return (struct run){(uint64_t)place * chunk, (uint64_t)n * chunk};
}

static uint64_t bytes_of_rank(const struct zinf_trainer *t, const struct zinf_op *op, uint64_t rank)
{
    uint64_t bytes = 0;
    for (int64_t k = 0; k < runs_of(t, op); k++)
        bytes += run_of(t, op, rank, k).bytes;
    return bytes;
}

/* Slices of a sum are as long as what the rank with most has. */
static uint64_t bytes_of_slice(const struct zinf_trainer *t, const struct zinf_op *op)
{
    uint64_t most = 0;
    for (uint64_t r = 0; r < context_axis(&t->setup)->world; r++) {
        const uint64_t bytes = bytes_of_rank(t, op, r);
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t trainer_shared_bytes(const struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_axis *axis = context_axis(&t->setup);
    uint64_t bytes = 0;
    if (op->kind == OP_SUM_KEYS)
        return (axis->world - 1) * bytes_of_slice(t, op);
    for (uint64_t r = 0; r < axis->world; r++)
        bytes += r == axis->rank ? 0 : bytes_of_rank(t, op, r);
    return bytes;
}

/* ---- where it is ---- */

/* Memory that the net can reach, for what all ranks carry; and what the device has of it. */
struct place {
    char *host, *device;
    bool far; /* they are not one */
};
static struct place place_of(const struct zinf_trainer *t, const struct zinf_op *op)
{
    char *at = zinf_address(&op->at[0]);
    const bool far = op->arg == KEYS_ON_DEVICE && device_is_far(&t->setup);
    return (struct place){far ? host_at(&t->plan, t->plan.at.h_border) : at, at, far};
}

static int take(struct zinf_trainer *t, const struct place *p, char *host, struct run from)
{
    if (p->far && from.bytes)
        return t->setup.device->ops->copy_to_host(t->pull, host, p->device + from.at, from.bytes);
    if (host != p->device + from.at)
        memmove(host, p->device + from.at, from.bytes);
    return 0;
}

static int give(struct zinf_trainer *t, const struct place *p, struct run to, const char *host)
{
    if (p->far && to.bytes)
        return t->setup.device->ops->copy_to_device(t->pull, p->device + to.at, host, to.bytes);
    if (host != p->device + to.at)
        memmove(p->device + to.at, host, to.bytes);
    return 0;
}

static int wait(struct zinf_trainer *t, const struct place *p)
{
    return p->far ? t->setup.device->ops->queue_synchronize(t->pull) : 0;
}

/* ---- keys and values: each rank's to all ---- */

static int pass_runs(struct zinf_trainer *t, const struct zinf_op *op, char *host, int64_t k)
{
    const struct zinf_axis *axis = context_axis(&t->setup);
    const struct run own = run_of(t, op, axis->rank, k);
    void *out[MOST_SHARERS], *in[MOST_SHARERS];
    uint64_t out_bytes[MOST_SHARERS], in_bytes[MOST_SHARERS], all = 0;
    if (runs_of(t, op) == 1)
        return zinf_net_gather(axis->net, host + own.at, host, own.bytes);
    for (uint64_t r = 0; r < axis->world; r++) {
        const struct run other = run_of(t, op, r, k);
        out[r] = host + own.at;
        in[r] = host + other.at;
        out_bytes[r] = own.bytes;
        in_bytes[r] = other.bytes;
        all += other.bytes;
    }
    const struct zinf_net_trade trade = {out, in, out_bytes, in_bytes};
    return all ? zinf_net_trade(axis->net, &trade) : 0;
}

int trainer_gather_keys(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_axis *axis = context_axis(&t->setup);
    const struct place p = place_of(t, op);
    const int64_t n = runs_of(t, op);
    int code = 0;
    for (int64_t k = 0; !code && k < n; k++) {
        const struct run own = run_of(t, op, axis->rank, k);
        code = take(t, &p, p.host + own.at, own);
    }
    code = code ? code : wait(t, &p);
    for (int64_t k = 0; !code && k < n; k++)
        code = pass_runs(t, op, p.host, k);
    for (uint64_t r = 0; r < axis->world; r++)
        for (int64_t k = 0; !code && r != axis->rank && k < n; k++) {
            const struct run other = run_of(t, op, r, k);
            code = give(t, &p, other, p.host + other.at);
        }
    return code ? code : wait(t, &p);
}

/* ---- their gradients: to each rank the sum of its own ---- */

/* What moves lies slice by slice then, each in front of where it was. */
int trainer_sum_keys(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_axis *axis = context_axis(&t->setup);
    const struct place p = place_of(t, op);
    const int64_t n = runs_of(t, op);
    const uint64_t slice = bytes_of_slice(t, op);
    int code = 0;
    for (uint64_t r = 0; r < axis->world; r++) {
        char *to = p.host + r * slice;
        for (int64_t k = 0; !code && k < n; k++) {
            const struct run run = run_of(t, op, r, k);
            code = take(t, &p, to, run);
            to += run.bytes;
        }
    }
    code = code ? code : wait(t, &p);
    char *sum = p.host + axis->rank * slice;
    if (!code)
        code = zinf_net_scatter_sum(axis->net, (float *)(void *)p.host, (float *)(void *)sum,
                                    slice / sizeof(float));
    sum += bytes_of_rank(t, op, axis->rank);
    for (int64_t k = n; !code && k-- > 0;) { /* back to behind where they are, the last one first */
        const struct run run = run_of(t, op, axis->rank, k);
        sum -= run.bytes;
        code = give(t, &p, run, sum);
    }
    return code ? code : wait(t, &p);
}
