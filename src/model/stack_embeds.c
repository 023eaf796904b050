/* stack_embeds: an encoder without a head, whose rows make embeddings. */
#include "model/stack_parts.h"

int stack_build_embedder(struct zinf_graph *graph, struct stack *stack)
{
    const struct decoder *d = &stack->d;
    int code = decoder_check_numbers(d);
    if (!code)
        code = stack_cut(graph, stack);
    if (code)
        return code;
    struct decoder_values v = stack_add_inputs(graph, d);
    decoder_add_pulls(graph, d, &v);
    stack_add_encoder(graph, stack, &v);
    decoder_add_pool(graph, &v, v.x);
    return 0;
}
