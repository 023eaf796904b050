/*
 * run_batch: the arrays of a batch, one for each input that the model asks for, and a data set's
 * windows in them. Windows of samples may be as long as the longest that is computed with them.
 */
#include "train/trainer.h"
#include "train/run/run_batch.h"

#include <stdlib.h>
#include <xxhash.h>

static uint64_t per_sample(const struct run_batch *b, enum zinf_rows_of rows_of)
{
    const int64_t rows[] = {[ZINF_ROWS_OF_SAMPLE] = 1,
                            [ZINF_ROWS_OF_TARGET] = b->seq,
                            [ZINF_ROWS_OF_SOURCE] = b->source_seq};
    return (uint64_t)rows[rows_of];
}

/* Positions and segments of a stream are what the trainer takes where they are not given, and so
 * are positions of a source always; last rows it makes itself. */
static bool is_wanted(enum zinf_input input, bool of_samples)
{
    bool said = input == ZINF_INPUT_POSITIONS || input == ZINF_INPUT_SEGMENTS;
    bool made = input == ZINF_INPUT_SOURCE_POSITIONS || input == ZINF_INPUT_LAST_ROWS ||
                input == ZINF_INPUT_POOLED || input == ZINF_INPUT_PIECES ||
                input == ZINF_INPUT_PULLS || input == ZINF_INPUT_SAMPLE_LOSSES;
    return input != ZINF_INPUT_NONE && !made && (of_samples || !said);
}

static bool has_references(struct zinf_dataset *data)
{
    bool all = true;
    for (uint32_t k = 0; all && k < zinf_dataset_n_parts(data); k++) {
        const struct zinf_samples *store = zinf_dataset_samples(zinf_dataset_part(data, k));
        all = store && zinf_samples_has_references(store);
    }
    return all;
}

/* Whether the model asks for ids and targets alone, of data that can be read row by row, in chunks.
 */
static bool goes_by_rows(const struct zinf_trainer *t, const struct zinf_dataset *data)
{
    const struct zinf_graph *g = t->setup.walk.graph;
    bool goes = t->setup.n_chunks > 1 && zinf_dataset_reads_rows(data);
    for (uint32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == ZINF_VALUE_INPUT && is_wanted(g->values[v].input, false))
            goes &=
                g->values[v].input == ZINF_INPUT_IDS || g->values[v].input == ZINF_INPUT_TARGETS;
    return goes;
}

static int read_rows(void *arg, int64_t sample, int64_t first, int64_t n, int32_t *ids,
                     int32_t *targets)
{
    const struct run_batch *b = arg;
    return zinf_dataset_rows(b->by_rows, b->positions[sample], (uint64_t)first, (uint64_t)n, ids,
                             targets);
}

int run_batch_init(struct run_batch *b, const struct zinf_trainer *t, struct zinf_dataset *data,
                   int64_t samples)
{
    const struct setup *s = &t->setup;
    const struct zinf_graph *g = s->walk.graph;
    *b = (struct run_batch){.most_seq = s->seq,
                            .most_source = s->source_seq,
                            .seq = s->seq,
                            .source_seq = s->source_seq,
                            .varies = !s->options.packed && !strcmp(s->config->pad_to, "longest")};
    if (goes_by_rows(t, data)) {
        b->by_rows = data;
        b->positions = calloc((uint64_t)samples, sizeof *b->positions);
        return b->positions ? 0 : zinf_fail(-ENOMEM, "no memory for a batch");
    }
    b->lengths = calloc((uint64_t)samples, sizeof *b->lengths);
    b->source_lengths = calloc((uint64_t)samples, sizeof *b->source_lengths);
    if (!b->lengths || !b->source_lengths)
        return zinf_fail(-ENOMEM, "no memory for a batch");
    for (uint32_t v = 0; v < g->n_values; v++) {
        const struct zinf_value *value = &g->values[v];
        if (value->kind != ZINF_VALUE_INPUT ||
            !is_wanted(value->input, zinf_dataset_has_samples(data)) || b->arrays[value->input])
            continue;
        if (value->input == ZINF_INPUT_REFERENCES && !has_references(data))
            return zinf_fail(-EINVAL, "pairs without what their reference says of them");
        b->rows_of[value->input] = value->rows_of;
        b->arrays[value->input] =
            calloc((uint64_t)samples * per_sample(b, value->rows_of), sizeof(int32_t));
        if (!b->arrays[value->input])
            return zinf_fail(-ENOMEM, "no memory for a batch");
    }
    return 0;
}

void run_batch_fini(struct run_batch *b)
{
    for (int i = 0; i < ZINF_INPUTS; i++)
        free(b->arrays[i]);
    free(b->positions);
    free(b->lengths);
    free(b->source_lengths);
    *b = (struct run_batch){0};
}

static int64_t fitted(uint32_t longest, int64_t most)
{
    const int64_t rows = (int64_t)zinf_align_up(longest ? longest : 1, ZINF_ROWS_MULTIPLE);
    return rows < most ? rows : most;
}

void run_batch_fit(struct run_batch *b, struct zinf_dataset *data, uint64_t first, uint64_t windows)
{
    const bool samples = zinf_dataset_has_samples(data);
    struct zinf_window_rows longest = {0, 0};
    b->tokens = 0;
    for (uint64_t i = 0; samples && i < windows; i++) {
        const struct zinf_window_rows rows = zinf_dataset_window_rows(data, first + i);
        longest.ids = rows.ids > longest.ids ? rows.ids : longest.ids;
        longest.source = rows.source > longest.source ? rows.source : longest.source;
        b->tokens += rows.ids;
    }
    b->seq = samples && b->varies ? fitted(longest.ids, b->most_seq) : b->most_seq;
    b->source_seq = samples && b->varies ? fitted(longest.source, b->most_source) : b->most_source;
}

static int32_t *at(const struct run_batch *b, enum zinf_input input, int64_t sample)
{
    const uint64_t each = per_sample(b, b->rows_of[input]);
    return b->arrays[input] ? b->arrays[input] + (uint64_t)sample * each : NULL;
}

int run_batch_take(struct run_batch *b, struct zinf_dataset *data, uint64_t position,
                   int64_t sample)
{
    const struct zinf_window window = {
        .ids = at(b, ZINF_INPUT_IDS, sample),
        .targets = at(b, ZINF_INPUT_TARGETS, sample),
        .positions = at(b, ZINF_INPUT_POSITIONS, sample),
        .segments = at(b, ZINF_INPUT_SEGMENTS, sample),
        .token_types = at(b, ZINF_INPUT_TOKEN_TYPES, sample),
        .source_ids = at(b, ZINF_INPUT_SOURCE_IDS, sample),
        .source_segments = at(b, ZINF_INPUT_SOURCE_SEGMENTS, sample),
        .label = at(b, ZINF_INPUT_LABELS, sample),
        .reference = (float *)(void *)at(b, ZINF_INPUT_REFERENCES, sample),
        .length = (uint32_t)b->seq,
        .source_length = (uint32_t)b->source_seq,
    };
    if (b->by_rows) {
        b->positions[sample] = position;
        return 0;
    }
    const struct zinf_window_rows rows = zinf_dataset_window_rows(data, position);
    b->lengths[sample] = (int32_t)rows.ids;
    b->source_lengths[sample] = (int32_t)rows.source;
    return zinf_dataset_fill(data, position, &window);
}

static int add_to_sum(void *context, const int32_t *some, uint64_t n)
{
    XXH3_64bits_update(context, some, n * sizeof *some);
    return 0;
}

int run_batch_sum_ids(struct run_batch *b, uint64_t *sum)
{
    if (!b->by_rows) {
        *sum = XXH3_64bits(b->arrays[ZINF_INPUT_IDS], (size_t)b->most_seq * sizeof(int32_t));
        return 0;
    }
    const struct zinf_batch batch = run_batch_given(b);
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return zinf_fail(-ENOMEM, "no memory for a checksum");
    XXH3_64bits_reset(state);
    const int code = trainer_each_rows(&batch, ZINF_INPUT_IDS, 0, b->most_seq, add_to_sum, state);
    *sum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return code;
}

struct zinf_batch run_batch_given(struct run_batch *b)
{
    struct zinf_batch given = {.seq_len = b->seq,
                               .source_len = b->source_seq,
                               .lengths = b->lengths,
                               .source_lengths = b->source_lengths,
                               .tokens = b->tokens};
    for (int i = 0; i < ZINF_INPUTS; i++)
        given.inputs[i] = b->arrays[i];
    if (b->by_rows)
        given.rows = (struct zinf_batch_rows){read_rows, b};
    return given;
}
