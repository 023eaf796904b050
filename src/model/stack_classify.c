/* stack_classify: an encoder whose samples are classified, to values, units and stages. */
#include "model/stack_parts.h"

static struct classify_spec add_tensors(struct zinf_graph *graph, uint32_t unit,
                                        const struct decoder *d, const struct stack_classes *c)
{
    const uint64_t h = (uint64_t)d->hidden, n = (uint64_t)c->count.n;
    const struct stack_tensor dense_w = {c->dense_w,     h,    h, 0, ZINF_INIT_NORMAL,
                                         c->plain_dense, false};
    const struct stack_tensor dense_b = {c->dense_b,     h,    0, 0, ZINF_INIT_ZERO,
                                         c->plain_dense, false};
    const struct stack_tensor out_w = {c->out_w, n, h, 0, ZINF_INIT_NORMAL, true, false};
    const struct stack_tensor out_b = {c->out_b, n, 0, 0, ZINF_INIT_ZERO, true, false};
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
    if (!code)
        code = stack_cut(graph, stack);
    if (code)
        return code;
    struct decoder_values v = stack_add_inputs(graph, d);
    decoder_add_labels(graph, &classes->count, &v);
    stack_add_encoder(graph, stack, &v);
    add_classes(graph, stack, v.x, classes);
    return 0;
}
