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

struct chunk head_shard_chunk(const struct zinf_frame *f, const struct chunk *k, uint32_t shard)
{
    const struct head_spec *s = f->stage->spec;
    const struct zinf_shards *cut = &f->graph->shards;
    const int64_t number = k->unit - f->stage->units.n;
    const int64_t tile = f->pass == ZINF_PASS_WHOLE ? number : f->visit;
    const int64_t left = f->graph->vocab - tile * s->tile_rows;
    const uint64_t rows = (uint64_t)(left < s->tile_rows ? left : s->tile_rows);
    const uint64_t first = zinf_shard_row(cut, rows, cut->first + shard);
    struct chunk part = *k;
    part.shard = shard;
    part.skip = (int64_t)(first - zinf_shards_begin(cut, rows));
    part.cols = (int64_t)(zinf_shard_row(cut, rows, cut->first + shard + 1) - first);
    part.logits = head_at(k->logits, part.skip);
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
    struct chunk all = {.count = frame_rows(f), .unit = f->stage->units.n, .cols = 1};
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

/* Column `shard` of of_all [count][all shards] from an array of count numbers. */
static int put_column(struct zinf_frame *f, const struct chunk *k, const float *from, float *of_all)
{
    const struct zinf_shards *cut = &f->graph->shards;
    const struct zinf_heads args = {
        .dtype = ZINF_DTYPE_F32,
        .rows = k->count,
        .n_heads = 1,
        .cols = 1,
        .x = from,
        .x_ld = 1,
        .y = head_at(of_all, cut->first + k->shard),
        .y_ld = cut->of,
    };
    return frame_heads(f, &args);
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

/* What a row's shards have found: [count][all shards] each. */
struct found {
    float *log_sum, *target_logit, *logit_sum;
};

/* The columns of one shard. */
static int find_own(struct zinf_frame *f, const struct head *h, const struct chunk *k,
                    const struct found *found)
{
    const uint64_t mark = frame_mark(f), bytes = (uint64_t)k->count * sizeof(float);
    float *none = frame_scratch(f, bytes), *log_sum = frame_scratch(f, bytes);
    const struct zinf_cross_entropy args = {
        .rows = k->count,
        .cols = 1,
        .ld = 1,
        .targets = (const int32_t *)f->in[1] + (f->queue ? k->first : 0),
        .max = own_at(f, h->own.max, k),
        .sum = own_at(f, h->own.sum, k),
        .target_logit = none,
        .loss = log_sum,
    };
    int code = frame_zero(f, none, bytes);
    if (!code)
        code = frame_loss(f, FRAME_LOSS_FINISH, &args);
    if (!code)
        code = put_column(f, k, log_sum, found->log_sum);
    if (!code)
        code = put_column(f, k, own_at(f, h->own.target_logit, k), found->target_logit);
    if (!code && h->objective.smoothing > 0)
        code = put_column(f, k, own_at(f, h->own.logit_sum, k), found->logit_sum);
    frame_release(f, mark);
    return code;
}

/* Maximum and sum of all: log-sum-exps as the logits of one tile, in which no target is. */
static int join_sums(struct zinf_frame *f, const struct head *h, const struct chunk *k,
                     const struct found *found)
{
    const struct zinf_cross_entropy args = {
        .rows = k->count,
        .cols = f->graph->shards.of,
        .ld = f->graph->shards.of,
        .first = f->graph->vocab,
        .targets = (const int32_t *)f->in[1] + (f->queue ? k->first : 0),
        .logits = found->log_sum,
        .max = head_at(h->max, k->first),
        .sum = head_at(h->sum, k->first),
        .target_logit = head_at(h->target_logit, k->first),
    };
    int code = frame_loss(f, FRAME_LOSS_START, &args);
    return code ? code : frame_loss(f, FRAME_LOSS_UPDATE, &args);
}

int head_join_shards(struct zinf_frame *f, const struct head *h, const struct chunk *k)
{
    const uint64_t mark = frame_mark(f);
    const uint64_t bytes = (uint64_t)k->count * f->graph->shards.of * sizeof(float);
    const bool smooth = h->objective.smoothing > 0;
    const struct found found = {.log_sum = frame_scratch(f, bytes),
                                .target_logit = frame_scratch(f, bytes),
                                .logit_sum = smooth ? frame_scratch(f, bytes) : NULL};
    struct chunk part = *k;
    int code = 0;
    for (part.shard = 0; !code && part.shard < f->graph->shards.n; part.shard++)
        code = find_own(f, h, &part, &found);
    if (!code)
        code = join_sums(f, h, k, &found);
    if (!code)
        code = add_columns(f, k, found.target_logit, head_at(h->target_logit, k->first));
    if (!code && smooth)
        code = add_columns(f, k, found.logit_sum, head_at(h->logit_sum, k->first));
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
    const struct chunk part = head_shard_chunk(f, c->k, shard);
    if (!part.cols)
        return frame_zero(f, out, (uint64_t)(part.count * c->h->hidden) * sizeof *out);
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
