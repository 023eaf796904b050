/*
 * run_batch: the arrays of a batch, one for each input that the model asks for, and a data set's
 * windows in them.
 */
#include "train/trainer.h"
#include "train/run/run_batch.h"

#include <stdlib.h>

static uint64_t per_sample(const struct zinf_trainer *t, const struct zinf_value *value)
{
    const int64_t rows[] = {[ZINF_AXIS_SAMPLE] = 1,
                            [ZINF_AXIS_TARGET] = t->setup.seq,
                            [ZINF_AXIS_SOURCE] = t->setup.source_seq};
    return (uint64_t)rows[value->axis];
}

/* Positions and segments of a stream are what the trainer takes where they are not given, and so
 * are positions of a source always; last rows it makes itself. */
static bool is_wanted(enum zinf_input input, bool of_samples)
{
    bool said = input == ZINF_INPUT_POSITIONS || input == ZINF_INPUT_SEGMENTS;
    bool made = input == ZINF_INPUT_SOURCE_POSITIONS || input == ZINF_INPUT_LAST_ROWS;
    return input != ZINF_INPUT_NONE && !made && (of_samples || !said);
}

int run_batch_init(struct run_batch *b, const struct zinf_trainer *t,
                   const struct zinf_dataset *data, int64_t samples)
{
    const struct zinf_graph *g = t->setup.walk.graph;
    *b = (struct run_batch){.seq = zinf_trainer_seq_len(t)};
    for (uint32_t v = 0; v < g->n_values; v++) {
        const struct zinf_value *value = &g->values[v];
        if (value->kind != ZINF_VALUE_INPUT ||
            !is_wanted(value->input, zinf_dataset_samples(data)) || b->arrays[value->input])
            continue;
        b->each[value->input] = per_sample(t, value);
        b->arrays[value->input] =
            calloc((uint64_t)samples * b->each[value->input], sizeof(int32_t));
        if (!b->arrays[value->input])
            return zinf_fail(-ENOMEM, "no memory for a batch");
    }
    return 0;
}

void run_batch_fini(struct run_batch *b)
{
    for (int i = 0; i < ZINF_INPUTS; i++)
        free(b->arrays[i]);
    *b = (struct run_batch){0};
}

static int32_t *at(const struct run_batch *b, enum zinf_input input, int64_t sample)
{
    return b->arrays[input] ? b->arrays[input] + (uint64_t)sample * b->each[input] : NULL;
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
    };
    return zinf_dataset_fill(data, position, &window);
}

struct zinf_batch run_batch_given(const struct run_batch *b)
{
    struct zinf_batch given = {{0}};
    for (int i = 0; i < ZINF_INPUTS; i++)
        given.inputs[i] = b->arrays[i];
    return given;
}
