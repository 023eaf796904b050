/* frame_shard_sums: sums over shards, of this rank and of others. */
#include "model/shards.h"

/* dst += src */
static int add(struct zinf_frame *f, float *dst, const float *src, uint64_t elems)
{
    const struct zinf_residual args = {
        .dtype = ZINF_DTYPE_F32, .n = (int64_t)elems, .x = dst, .r = src, .y = dst};
    return frame_residual(f, &args);
}

int shard_sum_some(struct zinf_frame *f, const struct shard_sum *sum, uint32_t first, uint32_t n,
                   float *out)
{
    const uint64_t mark = frame_mark(f);
    const uint32_t half = n / 2;
    if (n == 1)
        return sum->make(f, sum->call, first, out);
    int code = shard_sum_some(f, sum, first, half, out);
    float *other = frame_scratch(f, sum->elems * sizeof *other);
    if (!code)
        code = shard_sum_some(f, sum, first + half, n - half, other);
    if (!code)
        code = add(f, out, other, sum->elems);
    frame_release(f, mark);
    return code;
}

int shard_sum(struct zinf_frame *f, const struct shard_sum *sum, float *out)
{
    int code = shard_sum_some(f, sum, 0, f->graph->shards.n, out);
    return code ? code : shard_sum_ranks(f, out, sum->elems);
}

/* ---- ranks ---- */

static uint32_t count_ranks(const struct zinf_frame *f)
{
    return f->graph->shards.of / f->graph->shards.n;
}

/* Counts, while measuring, what so many ranks exchange, and how much of it one rank sends. For a
 * sum each rank sends a slice to every other rank, and later the sum of its own slice. */
static void count(struct zinf_frame *f, uint64_t bytes, uint32_t ranks, int times)
{
    if (f->queue || ranks < 2)
        return;
    f->shared = bytes > f->shared ? bytes : f->shared;
    f->crossed += (double)bytes;
    f->sent += times * (double)bytes * (ranks - 1) / ranks;
}

static void count_sum(struct zinf_frame *f, uint64_t elems, uint32_t ranks)
{
    count(f, elems * sizeof(float), ranks, 2);
}

int shard_sum_ranks(struct zinf_frame *f, float *x, uint64_t elems)
{
    const struct zinf_shard_ranks *ranks = f->compute->ranks;
    count_sum(f, elems, count_ranks(f));
    return ranks && f->queue ? ranks->sum(ranks->context, x, elems, 0) : 0;
}

/* For a sum of arrays that exist already. */
struct found {
    const float *found;
    uint64_t elems;
};

static int take_found(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct found *c = call;
    const uint64_t bytes = c->elems * sizeof *out;
    return frame_copy(f, out, shard_at(f, c->found, shard * bytes), bytes);
}

int shard_sum_found(struct zinf_frame *f, const float *found, uint64_t elems, float *out)
{
    const struct found call = {found, elems};
    return shard_sum(f, &(struct shard_sum){take_found, &call, elems}, out);
}

int shard_sum_shared(struct zinf_frame *f, const struct shard_sum *sum, uint32_t first, uint32_t n,
                     uint32_t shards, float *out)
{
    const struct zinf_shard_ranks *ranks = f->compute->ranks;
    const uint32_t sharing = shards / f->graph->shards.n;
    int code = shard_sum_some(f, sum, first, n, out);
    if (code || sharing < 2)
        return code;
    count_sum(f, sum->elems, sharing);
    return ranks && f->queue ? ranks->sum(ranks->context, out, sum->elems, sharing) : 0;
}

int shard_gather(struct zinf_frame *f, void *whole, uint64_t bytes)
{
    const struct zinf_shard_ranks *ranks = f->compute->ranks;
    count(f, bytes * count_ranks(f), count_ranks(f), 1);
    return ranks && f->queue ? ranks->gather(ranks->context, whole, bytes) : 0;
}

int shard_copy_rows(struct zinf_frame *f, int64_t cols, struct shard_rows x, struct shard_rows y)
{
    const struct zinf_heads args = {.dtype = f->compute->dtype,
                                    .rows = frame_rows(f),
                                    .n_heads = 1,
                                    .cols = cols,
                                    .x = x.at,
                                    .x_ld = x.ld,
                                    .y = y.at,
                                    .y_ld = y.ld};
    return frame_heads(f, &args);
}

int shard_gather_rows(struct zinf_frame *f, const struct shard_rows *own, int64_t cols, void *all)
{
    const struct zinf_shards *c = &f->graph->shards;
    const uint64_t bytes = frame_rows_bytes(f, cols);
    int code = 0;
    for (uint32_t i = 0; !code && i < c->n; i++)
        code = shard_copy_rows(f, cols, own[i],
                               (struct shard_rows){shard_at(f, all, (c->first + i) * bytes), cols});
    return code ? code : shard_gather(f, all, c->n * bytes);
}

int shard_narrow(struct zinf_frame *f, const float *in, uint64_t elems, void **out)
{
    const enum zinf_dtype dtype = f->compute->dtype;
    *out = (void *)(uintptr_t)in;
    if (dtype == ZINF_DTYPE_F32)
        return 0;
    *out = frame_scratch(f, elems * frame_width(f));
    return frame_convert(f, *out, dtype, in, ZINF_DTYPE_F32, elems);
}

int shard_sum_narrow(struct zinf_frame *f, const struct shard_sum *sum, void **out)
{
    float *total = frame_scratch(f, sum->elems * sizeof *total);
    const int code = shard_sum(f, sum, total);
    return code ? code : shard_narrow(f, total, sum->elems, out);
}

/* ---- around parts ---- */

int shard_add_branch(struct zinf_frame *f, const struct part_exit *leave,
                     const struct shard_sum *sum, const void *x, void *y, bool again)
{
    const uint64_t mark = frame_mark(f);
    const bool has_norm = leave->norm->w >= 0;
    void *branch;
    if (again && !has_norm)
        return 0;
    int code = shard_sum_narrow(f, sum, &branch);
    if (!code && has_norm)
        code = frame_copy(f, leave->product, branch, sum->elems * frame_width(f));
    if (!code)
        code = part_add_branch(f, leave, branch, x, y, again);
    frame_release(f, mark);
    return code;
}

int shard_enter_backward(struct zinf_frame *f, const struct part_entry *e,
                         const struct shard_sum *sum, const void *x, void *d_x)
{
    const uint64_t mark = frame_mark(f);
    void *d_rows;
    int code = shard_sum_narrow(f, sum, &d_rows);
    if (!code)
        code = part_rows_backward(f, e, x, d_rows, d_x);
    frame_release(f, mark);
    return code;
}

int shard_bias_gradient(struct zinf_frame *f, int bias, int64_t hidden, const void *dy)
{
    float *db = frame_grad(f, 0, bias);
    return db ? frame_column_sum(f, db, dy, f->compute->dtype, frame_rows(f), hidden) : 0;
}
