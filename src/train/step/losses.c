/* losses: the sums of the losses that a program has made: of arrays that have all of them, or, of
 * chunks in a training, as they were added up while it ran (chunk_rows.c). */
#include "train/trainer.h"

const float *trainer_losses_of(const struct zinf_trainer *t, uint32_t value, int64_t micro,
                               int64_t samples, uint64_t *n)
{
    const struct walk_value *v = &t->setup.walk.values[value];
    uint64_t offset = (uint64_t)t->setup.n_micro * v->bytes_before + (uint64_t)micro * v->bytes;
    const struct zinf_value *of = &t->setup.graph->values[value];
    struct zinf_compute one = t->compute;
    one.batch = samples;
    *n = zinf_rows_count(&one, of->rows_of) * (uint64_t)of->cols;
    return (const float *)(void *)host_at(&t->plan, t->plan.at.h_losses + offset);
}

/* The samples of a micro-batch, of the first samples of a step. */
static int64_t samples_of(const struct zinf_trainer *t, int64_t samples, int64_t micro)
{
    const int64_t left = samples - setup_sample(&t->setup, micro) * t->setup.batch;
    return left < 0 ? 0 : left < t->setup.batch ? left : t->setup.batch;
}

double trainer_sum_loss(const struct zinf_trainer *t, uint32_t value, int64_t samples)
{
    double sum = 0;
    if (!plan_keeps_losses(&t->plan))
        return trainer_chunk_sum(t, value)->in_order;
    for (int64_t m = 0; m < t->setup.n_micro; m++) {
        uint64_t n;
        const float *losses = trainer_losses_of(t, value, m, samples_of(t, samples, m), &n);
        for (uint64_t i = 0; i < n; i++)
            sum += (double)losses[i];
    }
    return sum;
}

void trainer_add_loss(const struct zinf_trainer *t, uint32_t value, int64_t samples,
                      struct exact_sum *sum)
{
    if (!plan_keeps_losses(&t->plan)) {
        exact_add_sum(sum, &trainer_chunk_sum(t, value)->exact);
        return;
    }
    for (int64_t m = 0; m < t->setup.n_micro; m++) {
        uint64_t n;
        const float *losses = trainer_losses_of(t, value, m, samples_of(t, samples, m), &n);
        for (uint64_t i = 0; i < n; i++)
            exact_add(sum, (double)losses[i]);
    }
}

double trainer_other_losses(const struct zinf_trainer *t, int64_t samples)
{
    const struct zinf_graph *g = t->setup.graph;
    double sum = 0;
    for (uint32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == ZINF_VALUE_LOSS && v != g->loss && !g->values[v].away)
            sum += trainer_sum_loss(t, v, samples);
    return sum;
}
