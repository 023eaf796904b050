/*
 * visited: which chunks of its samples a step goes through: those in which a sample has tokens. Its
 * program is for the longest sample there may be; operations that serve other chunks are left out.
 * Chunks behind a sample have padding alone, of which all that is made is zero: no row of the
 * sample sees it, and no loss counts it. So results have the bits that visiting them gives.
 */
#include "train/trainer.h"

#include <stdlib.h>

int trainer_take_visited(struct zinf_trainer *t)
{
    const uint64_t n = (uint64_t)setup_samples(&t->setup);
    t->visited_of = calloc(n + 1, sizeof *t->visited_of);
    if (!t->visited_of)
        return zinf_fail(-ENOMEM, "no memory for the chunks of samples");
    for (uint64_t i = 0; i < n; i++)
        t->visited_of[i] = t->visited;
    return 0;
}

void trainer_release_visited(struct zinf_trainer *t)
{
    free(t->visited_of);
    t->visited_of = NULL;
}

int64_t trainer_visited(const struct zinf_trainer *t, int64_t sample)
{
    return t->visited_of ? t->visited_of[sample] : t->visited;
}

bool trainer_is_beyond(const struct zinf_trainer *t, const struct zinf_op *op)
{
    return op->chunk && op->chunk >= trainer_visited(t, setup_sample(&t->setup, op->micro));
}

/* ---- a batch ---- */

/* Whether there is a loss that balances experts. It counts rows of padding in its batch; and where
 * a sequence is in parts it adds up what chunks hand over, of all of them. */
static bool is_balanced(const struct zinf_trainer *t)
{
    const struct zinf_graph *g = t->setup.walk.graph;
    bool is = false;
    for (uint32_t v = 0; v < g->n_values; v++)
        is |= g->values[v].kind == ZINF_VALUE_LOSS && v != g->loss;
    return is;
}

/* Whether padding in front of the end of the batch's longest sample changes nothing. Where rows see
 * later ones, segments must tell them what is padding. */
static bool padding_is_nothing(const struct zinf_trainer *t, const struct zinf_batch *batch)
{
    const struct zinf_graph *g = t->setup.walk.graph;
    bool masked = true;
    for (uint32_t v = 0; v < g->n_values; v++) {
        const struct zinf_value *value = &g->values[v];
        const bool segments =
            value->input == ZINF_INPUT_SEGMENTS || value->input == ZINF_INPUT_SOURCE_SEGMENTS;
        if (value->kind == ZINF_VALUE_INPUT && segments)
            masked &= batch->inputs[value->input] != NULL;
    }
    return masked || !t->setup.walk.keys_first;
}

/* Ranks that share a sequence meet when it has been gone through, whoever has told something of it:
 * so each goes through one chunk at least, and all through those in front of it. */
static int64_t least_of_ranks(const struct setup *s)
{
    const int64_t last_rank = (int64_t)context_axis(s)->world - 1;
    return in_parts(s) ? zinf_chunk_at(last_rank * s->own_chunks, s->n_chunks, s->n_parts) + 1 : 1;
}

void trainer_visit(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t samples)
{
    const int32_t *lengths = batch->lengths, *sources = batch->source_lengths;
    const bool balanced = is_balanced(t), all = balanced && in_parts(&t->setup);
    const bool knows = lengths && !balanced && padding_is_nothing(t, batch);
    const int64_t most = all ? t->setup.n_chunks : t->visited, least = least_of_ranks(&t->setup);
    for (int64_t i = 0; i < setup_samples(&t->setup); i++) {
        const int64_t source = knows && i < samples && sources ? sources[i] : 0;
        const int64_t own =
            knows && i < samples ? setup_chunks_with(&t->setup, lengths[i], source) : most;
        const int64_t visited = own < most ? own : most;
        t->visited_of[i] = visited > least ? visited : least;
    }
}
