/*
 * stack_masked: an encoder that foretells the tokens that are masked, to values, units and stages:
 * act(dense) of every token's row, a norm, and the table of tokens as the head, with a bias.
 */
#include "model/stack_parts.h"

/* act(dense(x)), with as many columns as the table. */
static uint32_t add_dense(struct zinf_graph *graph, const struct decoder *d,
                          const struct stack_masked *m, uint32_t x)
{
    const int64_t columns = d->embedding ? d->embedding : d->hidden;
    const uint64_t n = (uint64_t)columns, h = (uint64_t)d->hidden;
    const struct stack_tensor w = {m->dense_w, n, h, 0, ZINF_INIT_NORMAL, true, true};
    const struct stack_tensor b = {m->dense_b, n, 0, 0, ZINF_INIT_ZERO, true, true};
    const uint32_t unit = zinf_graph_add_unit(graph, true, "transform.0");
    struct project_spec spec = {.activates = true, .activation = m->activation};
    spec.w = stack_add_tensor(graph, unit, &w, d->init_std);
    spec.b = stack_add_tensor(graph, unit, &b, 0);
    const uint32_t out = decoder_add_columns(graph, d, "transformed", columns);
    const uint32_t stage =
        zinf_graph_add_stage(graph, &zinf_stage_project, &spec, sizeof spec, "transform");
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, x);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
    return out;
}

/* The gradient of the output is fp32, since the head adds to it tile by tile. */
static uint32_t add_norm(struct zinf_graph *graph, const struct decoder *d,
                         const struct stack_masked *m, uint32_t x)
{
    const int64_t columns = d->embedding ? d->embedding : d->hidden;
    const uint64_t n = (uint64_t)columns;
    const struct stack_tensor w = {m->norm_w, n, 0, 0, ZINF_INIT_ONE, true, true};
    const struct stack_tensor b = {m->norm_b, n, 0, 0, ZINF_INIT_ZERO, true, true};
    const struct zinf_value normed = {
        .name = "normed",
        .kind = ZINF_VALUE_ACTIVATION,
        .rows_of = ZINF_ROWS_OF_TARGET,
        .cols = columns,
        .element = ZINF_ELEMENT_PARAM,
        .gradient = ZINF_ELEMENT_F32,
    };
    const uint32_t unit = zinf_graph_add_unit(graph, true, "transform_norm.0");
    struct norm_stage_spec spec = {.norm = d->attention.norm};
    spec.norm.w = stack_add_tensor(graph, unit, &w, 0);
    spec.norm.b = stack_add_tensor(graph, unit, &b, 0);
    const uint32_t out = zinf_graph_add_value(graph, &normed);
    const uint32_t stage =
        zinf_graph_add_stage(graph, &zinf_stage_norm, &spec, sizeof spec, "norm");
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, x);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
    return out;
}

int stack_build_masked(struct zinf_graph *graph, struct stack *stack,
                       const struct stack_masked *masked)
{
    struct decoder *d = &stack->d;
    int code = decoder_check_numbers(d);
    if (!code)
        code = stack_cut(graph, stack);
    if (code)
        return code;
    d->tile_bias = masked->bias;
    struct decoder_values v = stack_add_inputs(graph, d);
    v.targets = decoder_add_input(graph, d, "targets", ZINF_INPUT_TARGETS, d->vocab);
    graph->targets = v.targets;
    graph->vocab = d->vocab;
    const uint32_t tiles = stack_add_encoder(graph, stack, &v);
    const uint32_t rows = add_dense(graph, d, masked, v.x);
    decoder_add_head(graph, d, &v, add_norm(graph, d, masked, rows), tiles);
    return 0;
}
