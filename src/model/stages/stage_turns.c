/*
 * stage_turns: a block of a model that is cut, whose shards are stages of their own, so that only
 * one of them need be at hand (decoder_turns.c). For attention, and once more for the feed-forward
 * part:
 *   enter  rows = norm(x)
 *   turn   one group of shards' part of the sum behind the products, as a rank makes it that has
 *          these shards; and backward that of the gradient at the rows
 *   leave  y = x + branch(sum)
 *
 * Sums are the tree over all shards: a turn adds its part to the sums that wait for it. Backward,
 * from the last turn to the first, does the same with gradients at the rows. These are of values
 * that have no numbers themselves. The gradient behind the sum is passed from turn to turn.
 */
#include "model/shards.h"

/* What a turn makes. Behind what its part takes it has the gradient at the rows, that behind the
 * sum unless it is the first, and sums that wait. */
enum { OUT_SUM_GRADIENT, OUT_SUM, OUT_WAITING };

/* The graph as a rank sees it that has the turn's shards. */
static struct zinf_graph graph_of(const struct zinf_frame *f, const struct turn_spec *t)
{
    struct zinf_graph graph = *f->graph;
    graph.shards = t->shards;
    return graph;
}

static uint64_t elems_of(const struct zinf_frame *f)
{
    return (uint64_t)(frame_rows(f) * f->graph->values[f->stage->out.at[0]].cols);
}

/* sum += each of what waits for it, the smallest part of the tree first. */
static int add_waiting(struct zinf_frame *f, float *sum, const void *const *waiting, uint32_t n)
{
    int code = 0;
    for (uint32_t i = 0; !code && i < n; i++) {
        const struct zinf_residual args = {.dtype = ZINF_DTYPE_F32,
                                           .n = (int64_t)elems_of(f),
                                           .x = sum,
                                           .r = waiting[i],
                                           .y = sum};
        code = frame_residual(f, &args);
    }
    return code;
}

static int make_sum(struct zinf_frame *f, const struct turn_spec *t, const struct shard_sum *sum)
{
    const uint32_t at = t->rows_gradient + 1 + t->is_passed;
    float *out = f->out[OUT_SUM];
    int code = shard_sum_some(f, sum, 0, t->shards.n, out);
    return code ? code : add_waiting(f, out, f->in + at, t->n_sums);
}

/* That at the rows; and on to the turn before that behind the sum. */
static int make_gradients(struct zinf_frame *f, const struct turn_spec *t,
                          const struct shard_sum *sum)
{
    float *out = f->d_in[t->rows_gradient];
    void *passed = t->is_passed ? f->d_in[t->rows_gradient + 1] : NULL;
    const void *const *waiting = (const void *const *)f->d_out + OUT_WAITING;
    const uint64_t bytes = elems_of(f) * frame_width(f);
    int code = shard_sum_some(f, sum, 0, t->shards.n, out);
    if (!code)
        code = add_waiting(f, out, waiting, t->n_gradients);
    if (!code && passed && passed != f->d_out[OUT_SUM_GRADIENT])
        code = frame_copy(f, passed, f->d_out[OUT_SUM_GRADIENT], bytes);
    return code;
}

/* ---- attention ---- */

struct attention_call {
    const struct attention_shards *kept;
    const struct shard_gradients *gradients;
};

static int attention_part(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct attention_call *c = call;
    return c->gradients ? attention_shards_enter(f, c->kept, c->gradients, shard, out)
                        : attention_shards_project(f, c->kept, shard, out);
}

static int attention_forward_turn(struct zinf_frame *f)
{
    const struct attention_turn *s = f->stage->spec;
    struct attention_shards kept;
    const struct attention_call call = {.kept = &kept};
    const struct shard_sum sum = {attention_part, &call, elems_of(f)};
    attention_shards_keep(f, &s->part, &kept);
    int code = attention_shards_attend(f, &kept, f->in[0]);
    return code || f->pass == ZINF_PASS_RECOMPUTE ? code : make_sum(f, &s->turn, &sum);
}

static int attention_backward_turn(struct zinf_frame *f)
{
    const struct attention_turn *s = f->stage->spec;
    struct attention_shards kept;
    struct shard_gradients gradients;
    const struct attention_call call = {&kept, &gradients};
    const struct shard_sum sum = {attention_part, &call, elems_of(f)};
    attention_shards_keep(f, &s->part, &kept);
    int code = frame_zero_gaps(f, 0);
    if (!code)
        code = attention_shards_leave(f, &kept, f->in[0], f->d_out[OUT_SUM_GRADIENT], &gradients);
    return code ? code : make_gradients(f, &s->turn, &sum);
}

static int attention_carry_turn(struct zinf_frame *f)
{
    const struct attention_turn *s = f->stage->spec;
    struct attention_shards kept;
    attention_shards_keep(f, &s->part, &kept);
    return attention_shards_carry(f, &kept);
}

/* ---- feed-forward ---- */

struct mlp_call {
    const struct mlp_shards *kept;
    const struct shard_gradients *gradients;
};

static int mlp_part(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct mlp_call *c = call;
    return c->gradients ? mlp_shards_enter(f, c->kept, c->gradients, shard, out, 0)
                        : mlp_shards_project(f, c->kept, shard, out);
}

static int mlp_forward_turn(struct zinf_frame *f)
{
    const struct mlp_turn *s = f->stage->spec;
    struct mlp_shards kept;
    const struct mlp_call call = {.kept = &kept};
    const struct shard_sum sum = {mlp_part, &call, elems_of(f)};
    mlp_shards_keep(f, &s->part, &kept);
    int code = mlp_shards_multiply(f, &kept, f->in[0]);
    return code || f->pass == ZINF_PASS_RECOMPUTE ? code : make_sum(f, &s->turn, &sum);
}

static int mlp_backward_turn(struct zinf_frame *f)
{
    const struct mlp_turn *s = f->stage->spec;
    struct mlp_shards kept;
    struct shard_gradients gradients;
    const struct mlp_call call = {&kept, &gradients};
    const struct shard_sum sum = {mlp_part, &call, elems_of(f)};
    mlp_shards_keep(f, &s->part, &kept);
    int code = frame_zero_gaps(f, 0);
    if (!code)
        code = mlp_shards_leave(f, &kept, f->in[0], f->d_out[OUT_SUM_GRADIENT], &gradients);
    return code ? code : make_gradients(f, &s->turn, &sum);
}

/* ---- both, with their shards alone ---- */

static int with_shards(struct zinf_frame *f, int (*act)(struct zinf_frame *f))
{
    const struct turn_spec *t = f->stage->spec; /* first in either spec */
    const struct zinf_graph *all = f->graph, own = graph_of(f, t);
    f->graph = &own;
    int code = act(f);
    f->graph = all;
    return code;
}

static int attention_forward_own(struct zinf_frame *f)
{
    return with_shards(f, attention_forward_turn);
}

static int attention_backward_own(struct zinf_frame *f)
{
    return with_shards(f, attention_backward_turn);
}

static int attention_carry_own(struct zinf_frame *f)
{
    return with_shards(f, attention_carry_turn);
}

static int mlp_forward_own(struct zinf_frame *f)
{
    return with_shards(f, mlp_forward_turn);
}

static int mlp_backward_own(struct zinf_frame *f)
{
    return with_shards(f, mlp_backward_turn);
}

/* ---- in front of them, and behind ---- */

static struct part_entry entry_of(struct zinf_frame *f, const struct enter_spec *s)
{
    return (struct part_entry){
        .norm = &s->norm, .kept = part_norm_keep(f, &s->norm, 1), .hidden = s->hidden};
}

static int enter_forward(struct zinf_frame *f)
{
    const struct enter_spec *s = f->stage->spec;
    const struct part_entry e = entry_of(f, s);
    const void *rows;
    if (f->pass == ZINF_PASS_RECOMPUTE)
        return part_rows(f, &e, f->in[0], &rows);
    struct zinf_norm args = part_norm(f, &s->norm, s->hidden, f->in[0], e.kept);
    args.y = f->out[0];
    return frame_norm(f, &args);
}

/* The gradient at the rows is rounded once. Where none is wanted at x it may be in that place. */
static int enter_backward(struct zinf_frame *f)
{
    const struct enter_spec *s = f->stage->spec;
    const struct part_entry e = entry_of(f, s);
    void *d_rows;
    int code = frame_zero_gaps(f, 0);
    if (!code)
        code = shard_narrow(f, f->d_out[1], elems_of(f), &d_rows);
    if (!code)
        code = part_rows_backward(f, &e, f->in[0], d_rows, f->d_in[0] ? f->d_in[0] : d_rows);
    return code;
}

static const struct norm_spec no_norm = {.w = -1, .b = -1};

static struct part_exit exit_of(const struct leave_spec *s)
{
    return (struct part_exit){.norm = &no_norm,
                              .hidden = s->hidden,
                              .scale = s->scale,
                              .dropout = s->dropout,
                              .site = s->site};
}

static int leave_forward(struct zinf_frame *f)
{
    const struct leave_spec *s = f->stage->spec;
    const struct part_exit e = exit_of(s);
    void *branch;
    int code = shard_narrow(f, f->in[1], elems_of(f), &branch);
    return code ? code : part_add_branch(f, &e, branch, f->in[0], f->out[0], false);
}

static int leave_backward(struct zinf_frame *f)
{
    const struct leave_spec *s = f->stage->spec;
    const struct part_exit e = exit_of(s);
    const void *d_branch;
    int code = part_leave_backward(f, &e, f->d_out[0], &d_branch);
    if (!code)
        code = frame_copy(f, f->d_in[2], d_branch, elems_of(f) * frame_width(f));
    return code ? code : part_pass_gradient(f, s->hidden);
}

const struct zinf_stage_ops zinf_stage_enter = {
    .name = "enter",
    .recomputes = true,
    .forward = enter_forward,
    .backward = enter_backward,
};
const struct zinf_stage_ops zinf_stage_attention_turn = {
    .name = "attention_turn",
    .recomputes = true,
    .passes = true,
    .forward = attention_forward_own,
    .backward = attention_backward_own,
    .carry = attention_carry_own,
};
const struct zinf_stage_ops zinf_stage_mlp_turn = {
    .name = "mlp_turn",
    .recomputes = true,
    .passes = true,
    .forward = mlp_forward_own,
    .backward = mlp_backward_own,
};
const struct zinf_stage_ops zinf_stage_leave = {
    .name = "leave",
    .passes = true,
    .backward_without_inputs = true,
    .forward = leave_forward,
    .backward = leave_backward,
};
