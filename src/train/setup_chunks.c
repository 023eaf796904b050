/*
 * setup_chunks: sequences that are visited in chunks (zinf.sequence_chunk). To all sums a chunk is
 * a micro-batch of one sample, so that how long it is belongs to the training: gradients of a
 * sample's chunks are added in the order of backward, which needs no more memory than one of them,
 * those of samples in a tree, and the norm and the loss without rounding.
 */
#include "train/setup.h"

/* Where the configuration leaves it open: what is longer is cut, into so many tokens. */
#define LONGEST_WHOLE 16384
#define CHUNK_TOKENS 4096
#define MOST_CHUNKS 4096

static const char key[] = "zinf.sequence_chunk";

/* Tokens of a chunk of a sequence of so many; the sequence's own: it is not cut. */
static int64_t chunk_of(const struct zinf_config *config, int64_t seq)
{
    const int64_t given = config->sequence_chunk;
    const int64_t wanted = given >= 0 ? given : seq > LONGEST_WHOLE ? CHUNK_TOKENS : 0;
    return wanted && wanted < seq ? wanted : seq;
}

static int64_t divided(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Whether an encoder reads a sequence of its own. */
static bool has_source(const struct setup *s)
{
    bool has = false;
    for (uint32_t v = 0; v < s->graph->n_values; v++)
        has |= s->graph->values[v].rows_of == ZINF_ROWS_OF_SOURCE;
    return has;
}

void setup_cut_sequences(struct setup *s)
{
    const bool source = has_source(s);
    const int64_t longest = source && s->source_seq > s->seq ? s->source_seq : s->seq;
    const int64_t wanted = chunk_of(s->config, longest);
    s->n_parts = s->decoding.n_sequences ? 1 : s->config->context_parts;
    s->n_chunks = s->own_chunks = 1;
    s->chunk_seq = s->seq;
    s->chunk_source = s->source_seq;
    if ((wanted == longest && !in_parts(s)) || s->decoding.n_sequences)
        return;
    const int64_t pieces = in_parts(s) ? 2 * s->n_parts : 1, piece = divided(longest, pieces);
    s->chunk_seq = wanted < piece ? wanted : piece;
    s->n_chunks = divided(divided(longest, s->chunk_seq), pieces) * pieces;
    if (source) { /* of both, the longer one has chunks of the length that is asked for */
        const int64_t length = s->chunk_seq;
        s->chunk_seq = s->seq < longest ? divided(s->seq, s->n_chunks) : length;
        s->chunk_source = s->source_seq < longest ? divided(s->source_seq, s->n_chunks) : length;
    }
    s->own_chunks = s->n_chunks / context_axis(s)->world;
    s->n_micro *= s->own_chunks * (has_backward(s) ? s->batch : 1);
    s->batch = 1;
    s->rows = (uint64_t)s->chunk_seq;
    s->exact = true;
}

static int refuse(const struct setup *s, const char *what, const char *remedy)
{
    return in_parts(s)
               ? zinf_fail(-ENOTSUP,
                           "zinf.context_parts %lld: %s cannot be computed in parts of a sequence "
                           "yet: set zinf.mesh.context and zinf.context_parts to 1",
                           (long long)s->n_parts, what)
               : zinf_fail(-ENOTSUP, "%s: %s cannot be computed in chunks yet: %s", key, what,
                           remedy);
}

/* What is not of one decoder's tokens alone. Stages refuse by themselves what they cannot hand over
 * from chunk to chunk (model/stages/part_chunk.c). */
static int check_graph(const struct setup *s)
{
    static const char none[] = "set the key to 0";
    const struct zinf_graph *g = s->graph;
    const bool classes = g->values[g->targets].input == ZINF_INPUT_LABELS && !g->embeddings;
    if (classes && !s->options.pairs) /* a chunk has the row that a class is told by */
        return 0;
    for (uint32_t v = 0; v < g->n_values; v++) {
        const struct zinf_value *value = &g->values[v];
        if (value->kind == ZINF_VALUE_REFERENCE)
            return refuse(s, "losses that compare with a reference model", none);
        if (value->rows_of == ZINF_ROWS_OF_SAMPLE &&
            (v == g->loss || value->kind == ZINF_VALUE_INPUT))
            return refuse(s, "losses of whole samples", none);
    }
    return 0;
}

int setup_check_chunks(const struct setup *s)
{
    if (s->n_chunks == 1)
        return 0;
    if (s->n_chunks > MOST_CHUNKS || s->n_micro > INT16_MAX)
        return zinf_fail(
            -EINVAL,
            "%s: a sequence has %lld chunks and a step has %lld; at most %d and %d are "
            "possible: make chunks longer, or lower gradient_accumulation_steps",
            key, (long long)s->n_chunks, (long long)s->n_micro, MOST_CHUNKS, INT16_MAX);
    if (s->order == ORDER_MICRO_MAJOR)
        return refuse(s, "a step that goes micro-batch by micro-batch",
                      "set zinf.accumulation_order to auto");
    return check_graph(s);
}
