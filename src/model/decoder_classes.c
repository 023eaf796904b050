/*
 * decoder_classes: samples that are told apart by a label, of encoders (stack_classify.c) and of
 * decoders. A decoder's sample is known by the row of its last token, which has seen all others:
 * that of the final norm, times `score`, as transformers does it.
 */
#include "model/decoder_parts.h"

#include <stdio.h>

uint32_t decoder_add_sample_input(struct zinf_graph *graph, const char *name, enum zinf_input input,
                                  int64_t limit)
{
    struct zinf_value value = {
        .kind = ZINF_VALUE_INPUT,
        .input = input,
        .limit = limit,
        .rows_of = ZINF_ROWS_OF_SAMPLE,
        .cols = 1,
        .element = limit || input == ZINF_INPUT_LAST_ROWS ? ZINF_ELEMENT_ID : ZINF_ELEMENT_F32,
    };
    snprintf(value.name, sizeof value.name, "%s", name);
    return zinf_graph_add_value(graph, &value);
}

void decoder_add_labels(struct zinf_graph *graph, const struct class_count *count,
                        struct decoder_values *v)
{
    v->targets =
        decoder_add_sample_input(graph, "labels", ZINF_INPUT_LABELS, count->number ? 0 : count->n);
    graph->targets = v->targets;
    graph->vocab = graph->row_cols = count->n;
}

/* Marks the head's tensors: they may be initialised where the folder lacks them, and the output's
 * weight and bias have a row for each class. */
static void mark_fresh(struct zinf_graph *graph, uint32_t unit, const struct classify_spec *spec)
{
    const struct zinf_unit *u = graph->n_units ? &graph->units[unit] : NULL;
    for (int i = 0; u && i < (int)u->n_tensors; i++) {
        u->tensors[i].may_be_fresh = true;
        u->tensors[i].of_classes = i == spec->out_w || i == spec->out_b;
    }
}

void decoder_add_classifier(struct zinf_graph *graph, const struct decoder_classifier *c)
{
    const struct zinf_value loss = {
        .name = "loss",
        .kind = ZINF_VALUE_LOSS,
        .rows_of = ZINF_ROWS_OF_SAMPLE,
        .cols = 1,
        .element = ZINF_ELEMENT_F32,
    };
    struct classify_spec spec = c->spec;
    uint32_t in[4] = {c->x, graph->targets};
    int n = 2;
    if (!spec.number)
        in[n++] = decoder_add_sample_input(graph, "label weights", ZINF_INPUT_LABEL_WEIGHTS, 0);
    if (c->by_last) {
        spec.last = n;
        in[n++] = decoder_add_sample_input(graph, "last rows", ZINF_INPUT_LAST_ROWS, 0);
    }
    mark_fresh(graph, c->unit, &spec);
    graph->loss = zinf_graph_add_value(graph, &loss);
    uint32_t stage =
        zinf_graph_add_stage(graph, &zinf_stage_classify, &spec, sizeof spec, "classify");
    for (int i = 0; i < n; i++)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, in[i]);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, graph->loss);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, c->unit);
}

void decoder_add_classes(struct zinf_graph *graph, const struct decoder *d, uint32_t normed)
{
    const struct zinf_tensor tensor = {
        .rank = 2,
        .rows = (uint64_t)d->classes.n,
        .cols = (uint64_t)d->hidden,
        .decay = true,
        .init = ZINF_INIT_NORMAL,
        .init_std = d->init_std,
    };
    const struct zinf_piece piece = {
        .name = "score.weight",
        .plain_name = true,
        .rank = 2,
        .shape = {tensor.rows, tensor.cols},
        .rows = {.rows = tensor.rows, .count = 1},
    };
    struct decoder_classifier c = {
        .spec = {.n_classes = d->classes.n,
                 .number = d->classes.number,
                 .dense_w = -1,
                 .dense_b = -1,
                 .out_b = -1},
        .unit = zinf_graph_add_unit(graph, true, "classify.0"),
        .x = normed,
        .by_last = true,
    };
    c.spec.out_w = (int)zinf_graph_add_tensor(graph, c.unit, &tensor);
    zinf_graph_add_piece(graph, c.unit, &piece);
    graph->padding = d->class_padding;
    decoder_add_classifier(graph, &c);
}
