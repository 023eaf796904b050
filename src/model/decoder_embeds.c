/*
 * decoder_embeds: models whose rows are made into embeddings: encoders (stack_embeds.c) and
 * decoders. They have no head and no targets. The loss of a step is that of all its embeddings
 * together, so it is computed when all of them are known, and the gradient of each embedding comes
 * in as an input.
 */
#include "model/decoder_parts.h"

#include <stdio.h>

static uint32_t add_numbers(struct zinf_graph *graph, const char *name, enum zinf_input input,
                            enum zinf_rows_of rows_of, int64_t cols)
{
    struct zinf_value value = {.kind = ZINF_VALUE_INPUT,
                               .input = input,
                               .rows_of = rows_of,
                               .cols = cols,
                               .element = ZINF_ELEMENT_F32};
    snprintf(value.name, sizeof value.name, "%s", name);
    return zinf_graph_add_value(graph, &value);
}

void decoder_add_pulls(struct zinf_graph *graph, const struct decoder *d, struct decoder_values *v)
{
    v->targets = decoder_add_sample_input(graph, "labels", ZINF_INPUT_LABELS, 1);
    v->pooled = add_numbers(graph, "pooled", ZINF_INPUT_POOLED, ZINF_ROWS_OF_TARGET, 1);
    v->pulls = add_numbers(graph, "pulls", ZINF_INPUT_PULLS, ZINF_ROWS_OF_SAMPLE, d->hidden);
    v->losses =
        add_numbers(graph, "sample losses", ZINF_INPUT_SAMPLE_LOSSES, ZINF_ROWS_OF_SAMPLE, 1);
    graph->targets = v->targets;
    graph->vocab = graph->row_cols = 1; /* the model makes no logits */
}

void decoder_add_pool(struct zinf_graph *graph, const struct decoder_values *v, uint32_t x)
{
    const struct zinf_value loss = {.name = "loss",
                                    .kind = ZINF_VALUE_LOSS,
                                    .rows_of = ZINF_ROWS_OF_SAMPLE,
                                    .cols = 1,
                                    .element = ZINF_ELEMENT_F32};
    const struct zinf_value sums = {
        .name = "embeddings",
        .kind = ZINF_VALUE_REPORT,
        .rows_of = ZINF_ROWS_OF_SAMPLE,
        .cols = graph->n_values ? graph->values[x].cols : 0,
        .element = ZINF_ELEMENT_F32,
    };
    const uint32_t in[] = {x, v->pooled, v->pulls, v->losses};
    graph->loss = zinf_graph_add_value(graph, &loss);
    graph->embeddings = zinf_graph_add_value(graph, &sums);
    const uint32_t stage = zinf_graph_add_stage(graph, &zinf_stage_pool, NULL, 0, "pool");
    for (int i = 0; i < 4; i++)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, in[i]);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, graph->loss);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, graph->embeddings);
}
