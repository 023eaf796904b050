/*
 * reference: what a model says of the samples of its own training before the first step. It is what
 * losses of pairs compare with, and one forward pass over the data is all that it costs: no second
 * model is ever in memory.
 */
#include "train/run/reference.h"

#include "train/run/run_batch.h"
#include "train/trainer.h"

#include <stdlib.h>

/* Sums of -log p over the targets of n windows from a position on, to where their numbers say. */
static int take(struct zinf_trainer *t, struct zinf_dataset *data, struct run_batch *arrays,
                uint64_t first, int64_t n, float *out)
{
    struct zinf_samples *samples = zinf_dataset_samples(data);
    double sum;
    uint64_t count, n_losses;
    int code = 0;
    run_batch_fit(arrays, data, first, (uint64_t)n);
    const struct zinf_batch given = run_batch_given(arrays);
    for (int64_t i = 0; !code && i < n; i++)
        code = run_batch_take(arrays, data, first + (uint64_t)i, i);
    if (!code)
        code = zinf_trainer_loss(t, &given, n, &sum, &count);
    if (code)
        return code;
    const float *losses = trainer_losses_of(t, t->setup.graph->loss, 0, n, &n_losses);
    for (int64_t i = 0; i < n; i++) {
        double own = 0;
        for (int64_t k = 0; k < t->compute.seq; k++)
            own += (double)losses[i * t->compute.seq + k];
        out[zinf_samples_number(samples, first + (uint64_t)i)] = (float)own;
    }
    return 0;
}

static int measure(struct zinf_trainer *t, struct zinf_dataset *data)
{
    const uint64_t n = zinf_dataset_n_windows(data), batch = (uint64_t)t->setup.batch;
    float *references = calloc(n, sizeof *references);
    struct run_batch arrays;
    int code = run_batch_init(&arrays, t, data, t->setup.batch);
    if (!code && !references)
        code =
            zinf_fail(-ENOMEM, "no memory for references of %llu samples", (unsigned long long)n);
    for (uint64_t first = 0; !code && first < n; first += batch)
        code = take(t, data, &arrays, first, (int64_t)(n - first < batch ? n - first : batch),
                    references);
    run_batch_fini(&arrays);
    if (code)
        free(references);
    else
        zinf_samples_set_references(zinf_dataset_samples(data), references);
    return code;
}

int run_make_references(const struct zinf_run_options *o)
{
    struct zinf_trainer_options options = o->trainer;
    struct zinf_trainer *t = NULL;
    const uint64_t begin = zinf_now_ns();
    if (!o->trainer.references)
        return 0;
    if (o->seats > 1 || o->trainer.net)
        return zinf_fail(-ENOTSUP,
                         "the reference of a whole model is made by one rank with one seat: train "
                         "adapters (--lora-rank), or with one");
    options.mode = ZINF_TRAINER_FORWARD;
    options.pairs = options.references = false;
    options.class_weights = NULL;
    options.run = NULL;
    int code = zinf_trainer_create(&t, &options);
    if (!code)
        code = measure(t, o->data);
    if (!code && o->eval_data)
        code = measure(t, o->eval_data);
    zinf_trainer_destroy(t);
    if (!code)
        zinf_log(ZINF_LOG_INFO,
                 "reference: the model's own log-probabilities of %llu samples, %.1f s",
                 (unsigned long long)zinf_dataset_n_windows(o->data),
                 (double)(zinf_now_ns() - begin) / 1e9);
    return code;
}
