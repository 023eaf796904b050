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

bool zinf_cuts_sequences(const struct zinf_config *config, int64_t seq_len)
{
    return chunk_of(config, seq_len) < seq_len || config->context_parts > 1;
}

int64_t setup_sequence(const struct setup *s)
{
    const int64_t context = zinf_model_facts(s->model)->context;
    return s->options.seq_len ? s->options.seq_len : context < 1024 ? context : 1024;
}

bool setup_is_cut(const struct setup *s)
{
    return !s->options.decode.sequences && zinf_cuts_sequences(s->config, setup_sequence(s));
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
    s->windows = s->batch;
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
    s->windows = compares_samples(s) || s->graph->embeddings ? s->batch : 1;
    s->n_micro *= s->own_chunks * (has_backward(s) ? s->batch : s->windows);
    s->batch = 1;
    s->rows = (uint64_t)s->chunk_seq;
    s->exact = true;
}

static int64_t divisor_of(int64_t a, int64_t b)
{
    return b ? divisor_of(b, a % b) : a;
}

int64_t setup_samples_together(const struct setup *s)
{
    const struct zinf_model_preference *of = zinf_model_preference(s->model);
    if (!of || s->n_chunks == 1)
        return 1;
    const int64_t compared = zinf_preference_has_common(of->kind) ? s->windows : 2;
    return compared / divisor_of(compared, setup_sharers(s));
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

/* What is not of one sequence's tokens alone. Stages refuse by themselves what they cannot hand
 * over from chunk to chunk (model/stages/part_chunk.c). */
static int check_graph(const struct setup *s)
{
    const struct zinf_graph *g = s->graph;
    for (uint32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == ZINF_VALUE_REFERENCE)
            return refuse(s, "losses that compare with a reference model in the same step",
                          "set the key to 0");
    return 0;
}

int setup_check_chunks(const struct setup *s)
{
    if (s->n_chunks == 1)
        return 0;
    if (s->n_chunks > MOST_CHUNKS || s->n_micro > MOST_MICROS)
        return zinf_fail(
            -EINVAL,
            "%s: a sequence has %lld chunks and a step has %lld; at most %d and %d are "
            "possible: make chunks longer, or lower gradient_accumulation_steps",
            key, (long long)s->n_chunks, (long long)s->n_micro, MOST_CHUNKS, MOST_MICROS);
    if (s->order == ORDER_MICRO_MAJOR)
        return refuse(s, "a step that goes micro-batch by micro-batch",
                      "set zinf.accumulation_order to auto");
    return check_graph(s);
}
