/*
 * stage_lookup: rows of the token table, and of the tables of positions and of tokens' types where
 * there are such, tile by tile: rows whose id lies in another tile are left as they are, so the
 * order of tiles does not matter to the result. The last visit adds the noise, if there is any, and
 * applies the dropout; in backward the first one does that, and noise has no part in it.
 */
#include "model/shards.h"

#include <math.h>

/* Which table of tokens' numbers it is: 0 is the token table, 1 the first one behind it. */
static uint32_t table_number(const struct zinf_frame *f)
{
    const struct lookup_spec *s = f->stage->spec;
    return f->visit < s->n_tiles ? 0 : f->visit - s->n_tiles + 1;
}

/* As the number type of the parameters has it: 55.4256 is 55.5 in bf16, and so was trained. */
static float rounded(const struct zinf_frame *f, float scale)
{
    if (f->compute->dtype == ZINF_DTYPE_BF16)
        return zinf_bf16_to_f32(zinf_bf16_from_f32(scale));
    return f->compute->dtype == ZINF_DTYPE_F16 ? zinf_f16_to_f32(zinf_f16_from_f32(scale)) : scale;
}

/* Tensors of the visit's unit that are rows of the table: its shards. */
static uint32_t parts_of(const struct zinf_frame *f)
{
    const struct zinf_shards *c = &f->graph->shards;
    return table_number(f) || !c->of ? 1 : c->n;
}

static struct zinf_embedding lookup_args(const struct zinf_frame *f, uint32_t tensor)
{
    const struct lookup_spec *s = f->stage->spec;
    const struct zinf_tensor *rows = &frame_unit(f, 0)->tensors[tensor];
    const uint32_t table = table_number(f);
    return (struct zinf_embedding){
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .cols = (int64_t)rows->cols,
        .ids = f->in[table],
        .first = (int64_t)rows->pieces[0].rows.file_first,
        .count = (int64_t)rows->rows - (table == 1 ? s->first_position : 0),
        .accumulate = table > 0,
        .scale = table ? 1 : rounded(f, s->scale),
    };
}

/* Elements of the unit's table in front of the row that the first id has. */
static uint64_t skipped(const struct zinf_frame *f, const struct zinf_embedding *args)
{
    const struct lookup_spec *s = f->stage->spec;
    return table_number(f) == 1 && f->queue ? (uint64_t)(s->first_position * args->cols) : 0;
}

/* In place: x or its gradient times the dropout's mask. */
static int mask(struct zinf_frame *f, void *x)
{
    const struct lookup_spec *s = f->stage->spec;
    const int64_t cols = f->graph->values[f->stage->out.at[0]].cols;
    return frame_mask(f, x, s->dropout, s->site, frame_length(f) * cols);
}

/* Sites of noise: beyond those of dropout, which each lookup has one of. */
#define NOISE_SITE ((uint32_t)1 << 25)

static int add_noise(struct zinf_frame *f)
{
    const struct lookup_spec *s = f->stage->spec;
    const int64_t cols = f->graph->values[f->stage->out.at[0]].cols;
    const uint64_t per_sample = (uint64_t)(frame_length(f) * cols);
    const int64_t whole = frame_whole_length(f) * cols;
    const struct zinf_noise args = {
        .dtype = f->compute->dtype,
        .n = frame_rows(f) * cols,
        .x = f->out[0],
        .magnitude = f->compute->objective.noise_alpha / sqrtf((float)whole),
        .random = frame_dropout_at(f, 0, NOISE_SITE + s->site, per_sample),
    };
    return f->compute->train && args.magnitude > 0 && !s->quiet ? frame_noise(f, &args) : 0;
}

/* Of a table of tokens that is cut, rows that other ranks have are zero, and theirs are added: a
 * row has one that is not zero. */
static int look_up_shards(struct zinf_frame *f)
{
    const struct lookup_spec *s = f->stage->spec;
    const uint64_t elems = (uint64_t)(frame_rows(f) * f->graph->values[f->stage->out.at[0]].cols);
    const uint64_t mark = frame_mark(f);
    const enum zinf_dtype dtype = f->compute->dtype;
    float *sum = frame_scratch(f, dtype == ZINF_DTYPE_F32 ? 0 : elems * sizeof *sum);
    if (f->graph->shards.n == f->graph->shards.of || f->visit + 1 != s->n_tiles)
        return 0;
    if (dtype == ZINF_DTYPE_F32)
        return shard_sum_ranks(f, f->out[0], elems);
    int code = frame_convert(f, sum, ZINF_DTYPE_F32, f->out[0], dtype, elems);
    if (!code)
        code = shard_sum_ranks(f, sum, elems);
    if (!code)
        code = frame_convert(f, f->out[0], dtype, sum, ZINF_DTYPE_F32, elems);
    frame_release(f, mark);
    return code;
}

static int look_up(struct zinf_frame *f)
{
    const uint64_t elems = (uint64_t)(frame_rows(f) * f->graph->values[f->stage->out.at[0]].cols);
    const struct zinf_shards *c = &f->graph->shards;
    int code = c->n < c->of && !f->visit ? frame_zero(f, f->out[0], elems * frame_width(f)) : 0;
    for (uint32_t i = 0; !code && i < parts_of(f); i++) {
        struct zinf_embedding args = lookup_args(f, i);
        args.table = (const char *)frame_weight(f, 0, (int)i) + skipped(f, &args) * frame_width(f);
        args.x = f->out[0];
        code = frame_embedding(f, &args);
    }
    return code || !c->of ? code : look_up_shards(f);
}

static int forward(struct zinf_frame *f)
{
    int code = look_up(f);
    if (code || f->visit + 1 < f->n_visits)
        return code;
    code = add_noise(f);
    return code ? code : mask(f, f->out[0]);
}

/* Of rows [first, first + count) of the table that the arguments are of. */
static int add_rows(struct zinf_frame *f, const struct zinf_embedding *args, int64_t first,
                    int64_t count)
{
    struct zinf_embedding part = *args;
    part.d_table += f->queue ? (first - args->first) * args->cols : 0;
    part.first = first;
    part.count = count;
    return count > 0 ? frame_embedding_backward(f, &part) : 0;
}

/* All rows but that of padding: those in front of it, then those behind. */
static int add_gradients(struct zinf_frame *f, const struct zinf_embedding *args)
{
    const struct lookup_spec *s = f->stage->spec;
    const int64_t end = args->first + args->count, skip = s->padding;
    if (table_number(f) || !s->has_padding || skip < args->first || skip >= end)
        return frame_embedding_backward(f, args);
    int code = add_rows(f, args, args->first, skip - args->first);
    return code ? code : add_rows(f, args, skip + 1, end - skip - 1);
}

static int backward(struct zinf_frame *f)
{
    int code = f->visit ? 0 : mask(f, f->d_out[0]);
    if (code || !frame_grad(f, 0, 0))
        return code;
    code = f->grads_add ? 0 : frame_zero_grads(f, 0);
    for (uint32_t i = 0; !code && i < parts_of(f); i++) {
        struct zinf_embedding args = lookup_args(f, i);
        args.dx = f->d_out[0];
        args.d_table = frame_grad(f, 0, (int)i) + skipped(f, &args);
        code = add_gradients(f, &args);
    }
    return code;
}

const struct zinf_stage_ops zinf_stage_lookup = {
    .name = "lookup",
    .adds = true,
    .backward_without_weights = true,
    .forward = forward,
    .backward = backward,
};
