/* stack_classify: an encoder whose samples are classified, to values, units and stages. */
#include "model/stack_parts.h"

#include <stdio.h>

/* An input of one number a sample. */
static uint32_t add_input(struct zinf_graph *graph, const char *name, enum zinf_input input,
                          int64_t limit)
{
    struct zinf_value value = {
        .kind = ZINF_VALUE_INPUT,
        .input = input,
        .limit = limit,
        .axis = ZINF_AXIS_SAMPLE,
        .cols = 1,
        .element = limit ? ZINF_ELEMENT_ID : ZINF_ELEMENT_F32,
    };
    snprintf(value.name, sizeof value.name, "%s", name);
    return zinf_graph_add_value(graph, &value);
}

static struct decoder_values add_inputs(struct zinf_graph *graph, const struct decoder *d,
                                        const struct class_count *count)
{
    struct decoder_values v = {0};
    v.ids = decoder_add_input(graph, d, "ids", ZINF_INPUT_IDS, d->vocab);
    if (d->positions)
        v.positions = decoder_add_input(graph, d, "positions", ZINF_INPUT_POSITIONS, d->context);
    if (d->types)
        v.types = decoder_add_input(graph, d, "types", ZINF_INPUT_TOKEN_TYPES, d->n_types);
    v.segments = decoder_add_input(graph, d, "segments", ZINF_INPUT_SEGMENTS, 0);
    v.targets = add_input(graph, "labels", ZINF_INPUT_LABELS, count->number ? 0 : count->n);
    graph->targets = v.targets;
    graph->vocab = graph->row_cols = count->n;
    return v;
}

/* A matrix (cols 0: a vector) of the head; its number. */
static int add_tensor(struct zinf_graph *graph, uint32_t unit, const struct zinf_tensor *tensor,
                      const char *name, bool plain)
{
    struct zinf_piece piece = {.rank = tensor->rank,
                               .shape = {tensor->rows, tensor->cols},
                               .rows = {.rows = tensor->rows, .count = 1},
                               .plain_name = plain};
    snprintf(piece.name, sizeof piece.name, "%s", name);
    int number = (int)zinf_graph_add_tensor(graph, unit, tensor);
    zinf_graph_add_piece(graph, unit, &piece);
    return number;
}

static struct classify_spec add_tensors(struct zinf_graph *graph, uint32_t unit,
                                        const struct decoder *d, const struct stack_classes *c)
{
    const uint64_t h = (uint64_t)d->hidden, n = (uint64_t)c->count.n;
    const struct zinf_tensor dense = {.rank = 2,
                                      .rows = h,
                                      .cols = h,
                                      .decay = true,
                                      .init = ZINF_INIT_NORMAL,
                                      .init_std = d->init_std,
                                      .may_be_fresh = true};
    struct zinf_tensor out = dense;
    const struct zinf_tensor dense_b = {
        .rank = 1, .rows = h, .cols = 1, .init = ZINF_INIT_ZERO, .may_be_fresh = true};
    struct zinf_tensor out_b = dense_b;
    out.rows = out_b.rows = n;
    out.of_classes = out_b.of_classes = true;
    return (struct classify_spec){
        .n_classes = c->count.n,
        .number = c->count.number,
        .activation = c->activation,
        .dense_w = add_tensor(graph, unit, &dense, c->dense_w, c->plain_dense),
        .dense_b = add_tensor(graph, unit, &dense_b, c->dense_b, c->plain_dense),
        .out_w = add_tensor(graph, unit, &out, c->out_w, true),
        .out_b = add_tensor(graph, unit, &out_b, c->out_b, true),
        .drops_first = c->drops_first,
        .dropout = c->dropout,
    };
}

static void add_classes(struct zinf_graph *graph, const struct stack *k, uint32_t x,
                        const struct stack_classes *classes)
{
    const struct zinf_value loss = {
        .name = "loss",
        .kind = ZINF_VALUE_LOSS,
        .axis = ZINF_AXIS_SAMPLE,
        .cols = 1,
        .element = ZINF_ELEMENT_F32,
    };
    const bool number = classes->count.number;
    const uint32_t weights =
        number ? 0 : add_input(graph, "label weights", ZINF_INPUT_LABEL_WEIGHTS, 0);
    uint32_t unit = zinf_graph_add_unit(graph, true, "classify.0");
    struct classify_spec spec = add_tensors(graph, unit, &k->d, classes);
    spec.site = STACK_LAYER_SITES * (uint32_t)k->d.n_layers + STACK_SITES;
    graph->loss = zinf_graph_add_value(graph, &loss);
    uint32_t stage =
        zinf_graph_add_stage(graph, &zinf_stage_classify, &spec, sizeof spec, "classify");
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, x);
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, graph->targets);
    if (!number)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, weights);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, graph->loss);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
}

int stack_build_classifier(struct zinf_graph *graph, struct stack *stack,
                           const struct stack_classes *classes)
{
    const struct decoder *d = &stack->d;
    int code = decoder_check_numbers(d);
    if (code)
        return code;
    struct decoder_values v = add_inputs(graph, d, &classes->count);
    uint32_t tiles = decoder_add_tiles(graph, d, "table", d->table);
    stack_add_entry(graph, stack, &v, tiles, graph->n_units - tiles);
    struct stack_shared shared = {.x = v.x, .segments = v.segments};
    for (int64_t layer = 0; layer < d->n_layers; layer++)
        stack_add_layer(graph, stack, &shared, layer);
    add_classes(graph, stack, shared.x, classes);
    return 0;
}
