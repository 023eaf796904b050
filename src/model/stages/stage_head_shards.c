/*
 * stage_head_shards: a head whose vocabulary is cut. Each shard has its rows of every tile, and
 * statistics of its own over these; when the last tile is through, a row has a log-sum-exp of each
 * shard, and these are the logits of one more tile: its maximum and sum are those of all. So the
 * order of sums is that of the shards, whoever has them.
 */
#include "model/stages/stage_head.h"

void head_take_shards(struct zinf_frame *f, struct head *h,
                      void *(*take)(struct zinf_frame *, uint64_t))
{
    const uint64_t bytes = (uint64_t)frame_rows(f) * f->graph->shards.n * sizeof(float);
    h->own.max = take(f, bytes);
    h->own.sum = take(f, bytes);
    h->own.target_logit = take(f, bytes);
    if (h->objective.smoothing > 0)
        h->own.logit_sum = take(f, bytes);
}

struct chunk head_shard_chunk(const struct head *h, const struct chunk *k, uint32_t shard)
{
    struct chunk part = *k;
    part.shard = shard;
    part.logits = head_at(k->logits, shard * h->chunk_rows * h->ld);
    return part;
}

static float *own_at(const struct zinf_frame *f, float *array, const struct chunk *k)
{
    return head_at(array, k->shard * frame_rows(f) + k->first);
}

void head_use_own(const struct zinf_frame *f, const struct head *h, const struct chunk *k,
                  struct zinf_cross_entropy *args)
{
    args->max = own_at(f, h->own.max, k);
    args->sum = own_at(f, h->own.sum, k);
    args->target_logit = own_at(f, h->own.target_logit, k);
    args->logit_sum = own_at(f, h->own.logit_sum, k);
}

/* A target's logit is 0 in the shards that do not have it, so that their sum is that of the one
 * that does. */
int head_start_shards(struct zinf_frame *f, const struct head *h)
{
    struct chunk all = {.count = frame_rows(f), .unit = f->stage->units.n};
    struct zinf_cross_entropy args = head_loss_args(f, h, &all);
    int code = 0;
    for (; !code && all.shard < f->graph->shards.n; all.shard++) {
        head_use_own(f, h, &all, &args);
        code = frame_loss(f, FRAME_LOSS_START, &args);
    }
    return code ? code
                : frame_zero(f, h->own.target_logit,
                             (uint64_t)frame_rows(f) * f->graph->shards.n * sizeof(float));
}

/* What shards have found of a chunk's rows: log-sum-exps, targets' logits and, where labels are
 * smoothed, sums of logits: [kinds][count] of each shard. */
enum { LOG_SUM, TARGET_LOGIT, LOGIT_SUM };
static uint64_t n_kinds(const struct head *h)
{
    return h->objective.smoothing > 0 ? 3 : 2;
}

/* of_all [count][all shards] of one kind. */
static int put_columns(struct zinf_frame *f, const struct head *h, const struct chunk *k,
                       const float *found, uint64_t kind, float *of_all)
{
    const uint32_t of = f->graph->shards.of;
    int code = 0;
    for (uint32_t shard = 0; !code && shard < of; shard++) {
        const struct zinf_heads args = {
            .dtype = ZINF_DTYPE_F32,
            .rows = k->count,
            .n_heads = 1,
            .cols = 1,
            .x = shard_at(f, found, (shard * n_kinds(h) + kind) * (uint64_t)k->count * 4),
            .x_ld = 1,
            .y = head_at(of_all, f->queue ? shard : 0),
            .y_ld = of,
        };
        code = frame_heads(f, &args);
    }
    return code;
}

/* to[i] = the sum over shards of a row of of_all, in their order. */
static int add_columns(struct zinf_frame *f, const struct chunk *k, const float *of_all, float *to)
{
    const struct zinf_heads args = {
        .dtype = ZINF_DTYPE_F32,
        .rows = k->count,
        .n_heads = f->graph->shards.of,
        .cols = 1,
        .x = of_all,
        .x_ld = f->graph->shards.of,
        .x_step = 1,
        .y = to,
        .y_ld = 1,
    };
    return frame_heads(f, &args);
}

/* What one shard has. */
static int find_own(struct zinf_frame *f, const struct head *h, const struct chunk *k, float *found)
{
    const uint64_t mark = frame_mark(f), bytes = (uint64_t)k->count * sizeof(float);
    const uint64_t at = (f->graph->shards.first + k->shard) * n_kinds(h);
    float *none = frame_scratch(f, bytes);
    const struct zinf_cross_entropy args = {
        .rows = k->count,
        .cols = 1,
        .ld = 1,
        .targets = (const int32_t *)f->in[1] + (f->queue ? k->first : 0),
        .max = own_at(f, h->own.max, k),
        .sum = own_at(f, h->own.sum, k),
        .target_logit = none,
        .loss = shard_at(f, found, (at + LOG_SUM) * bytes),
    };
    int code = frame_zero(f, none, bytes);
    if (!code)
        code = frame_loss(f, FRAME_LOSS_FINISH, &args);
    if (!code)
        code = frame_copy(f, shard_at(f, found, (at + TARGET_LOGIT) * bytes),
                          own_at(f, h->own.target_logit, k), bytes);
    if (!code && n_kinds(h) > LOGIT_SUM)
        code = frame_copy(f, shard_at(f, found, (at + LOGIT_SUM) * bytes),
                          own_at(f, h->own.logit_sum, k), bytes);
    frame_release(f, mark);
    return code;
}

/* Maximum and sum of all: log-sum-exps as the logits of one tile, in which no target is. */
static int join_sums(struct zinf_frame *f, const struct head *h, const struct chunk *k,
                     float *log_sums)
{
    const struct zinf_cross_entropy args = {
        .rows = k->count,
        .cols = f->graph->shards.of,
        .ld = f->graph->shards.of,
        .first = f->graph->vocab,
        .targets = (const int32_t *)f->in[1] + (f->queue ? k->first : 0),
        .logits = log_sums,
        .max = head_at(h->max, k->first),
        .sum = head_at(h->sum, k->first),
        .target_logit = head_at(h->target_logit, k->first),
    };
    int code = frame_loss(f, FRAME_LOSS_START, &args);
    return code ? code : frame_loss(f, FRAME_LOSS_UPDATE, &args);
}

int head_join_shards(struct zinf_frame *f, const struct head *h, const struct chunk *k)
{
    const struct zinf_shards *cut = &f->graph->shards;
    const uint64_t mark = frame_mark(f), bytes = (uint64_t)k->count * sizeof(float);
    float *found = frame_scratch(f, cut->of * n_kinds(h) * bytes);
    float *of_all = frame_scratch(f, cut->of * bytes);
    struct chunk part = *k;
    int code = 0;
    for (part.shard = 0; !code && part.shard < cut->n; part.shard++)
        code = find_own(f, h, &part, found);
    if (!code)
        code = shard_gather(f, found, cut->n * n_kinds(h) * bytes);
    if (!code)
        code = put_columns(f, h, k, found, LOG_SUM, of_all);
    if (!code)
        code = join_sums(f, h, k, of_all);
    if (!code)
        code = put_columns(f, h, k, found, TARGET_LOGIT, of_all);
    if (!code)
        code = add_columns(f, k, of_all, head_at(h->target_logit, k->first));
    if (!code && n_kinds(h) > LOGIT_SUM)
        code = put_columns(f, h, k, found, LOGIT_SUM, of_all);
    if (!code && n_kinds(h) > LOGIT_SUM)
        code = add_columns(f, k, of_all, head_at(h->logit_sum, k->first));
    frame_release(f, mark);
    return code;
}

/* ---- backward ---- */

struct input_call {
    const struct head *h;
    const struct chunk *k;
};

static int make_input(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct input_call *c = call;
    const struct chunk part = head_shard_chunk(c->h, c->k, shard);
    return head_input_product(f, c->h, &part, out, 0);
}

int head_sum_input(struct zinf_frame *f, const struct head *h, const struct chunk *k, float *out,
                   float beta)
{
    const struct input_call call = {h, k};
    const struct shard_sum sum = {make_input, &call, (uint64_t)(k->count * h->hidden)};
    const uint64_t mark = frame_mark(f);
    if (beta == 0)
        return shard_sum(f, &sum, out);
    float *total = frame_scratch(f, sum.elems * sizeof *total);
    const struct zinf_residual add = {
        .dtype = ZINF_DTYPE_F32, .n = (int64_t)sum.elems, .x = out, .r = total, .y = out};
    int code = shard_sum(f, &sum, total);
    if (!code)
        code = frame_residual(f, &add);
    frame_release(f, mark);
    return code;
}
