/* stack_classify: an encoder whose samples are classified, to values, units and stages. */
#include "model/stack_parts.h"

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
    decoder_add_labels(graph, count, &v);
    return v;
}

static struct classify_spec add_tensors(struct zinf_graph *graph, uint32_t unit,
                                        const struct decoder *d, const struct stack_classes *c)
{
    const uint64_t h = (uint64_t)d->hidden, n = (uint64_t)c->count.n;
    const struct stack_tensor dense_w = {c->dense_w, h, h, 0, ZINF_INIT_NORMAL, c->plain_dense};
    const struct stack_tensor dense_b = {c->dense_b, h, 0, 0, ZINF_INIT_ZERO, c->plain_dense};
    const struct stack_tensor out_w = {c->out_w, n, h, 0, ZINF_INIT_NORMAL, true};
    const struct stack_tensor out_b = {c->out_b, n, 0, 0, ZINF_INIT_ZERO, true};
    return (struct classify_spec){
        .n_classes = c->count.n,
        .number = c->count.number,
        .activation = c->activation,
        .dense_w = stack_add_tensor(graph, unit, &dense_w, d->init_std),
        .dense_b = stack_add_tensor(graph, unit, &dense_b, 0),
        .out_w = stack_add_tensor(graph, unit, &out_w, d->init_std),
        .out_b = stack_add_tensor(graph, unit, &out_b, 0),
        .first_dropout = c->first_dropout,
        .dropout = c->dropout,
    };
}

static void add_classes(struct zinf_graph *graph, const struct stack *k, uint32_t x,
                        const struct stack_classes *classes)
{
    struct decoder_classifier c = {.x = x};
    c.unit = zinf_graph_add_unit(graph, true, "classify.0");
    c.spec = add_tensors(graph, c.unit, &k->d, classes);
    c.spec.site = STACK_LAYER_SITES * (uint32_t)k->d.n_layers + STACK_SITES;
    decoder_add_classifier(graph, &c);
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
    for (int64_t layer = 0; layer < d->n_layers; layer++) {
        stack_add_layer(graph, stack, &shared, layer);
        if (!layer && stack->convolution.width)
            stack_add_convolution(graph, stack, &shared, v.x);
    }
    add_classes(graph, stack, shared.x, classes);
    return 0;
}
