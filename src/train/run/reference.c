/*
 * reference: what a model says of the samples of its own training before the first step. It is what
 * losses of pairs compare with, and one forward pass over the data is all that it costs: no second
 * model is ever in memory.
 */
#include "train/run/reference.h"

#include "train/run/run_batch.h"
#include "train/trainer.h"

#include <stdlib.h>

/* Sums of -log p over the targets of n windows from a position on. */
static int take(struct zinf_trainer *t, struct zinf_dataset *data, struct run_batch *arrays,
                uint64_t first, int64_t n, float *out)
{
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
    if (t->setup.n_chunks > 1) { /* one sample */
        code = trainer_sum_targets(t, &sum);
        out[0] = (float)sum;
        return code;
    }
    const float *losses = trainer_losses_of(t, t->setup.graph->loss, 0, n, &n_losses);
    for (int64_t i = 0; i < n; i++) {
        double own = 0;
        for (int64_t k = 0; k < t->compute.seq; k++)
            own += (double)losses[i * t->compute.seq + k];
        out[i] = (float)own;
    }
    return 0;
}

/* A batch of each rank that has data of its own, dealt as those of an evaluation: who has none left
 * computes with the others, for they need its slices. Ranks that share sequences have the same one.
 * all: [ranks][batch], mine is a part of it. */
static int take_round(struct zinf_trainer *t, struct zinf_dataset *data, struct run_batch *arrays,
                      uint64_t first, float *all, float *references)
{
    const struct zinf_axis *at = data_axis(&t->setup);
    const uint64_t n = zinf_dataset_n_windows(data), batch = (uint64_t)t->setup.batch;
    const uint64_t sharing = context_axis(&t->setup)->world, sharers = setup_sharers(&t->setup);
    const uint64_t own = first + setup_sharer(&t->setup, at->rank) * batch;
    const uint64_t from = own < n ? own : 0;
    const uint64_t left = own < n ? n - own : 1;
    float *mine = all + at->rank * batch;
    int code = take(t, data, arrays, from, (int64_t)(left < batch ? left : batch), mine);
    if (!code && at->net)
        code = zinf_net_gather(at->net, mine, all, batch * sizeof *all);
    for (uint64_t i = 0; !code && i < sharers * batch && first + i < n; i++)
        references[zinf_samples_number(zinf_dataset_samples(data), first + i)] =
            all[i / batch * sharing * batch + i % batch];
    return code;
}

/* The store is of all seats of a process: one of them gives it what all have, and the others wait.
 */
static int keep(struct zinf_net *net, struct zinf_dataset *data, float *references)
{
    if (net && zinf_net_place(net).seat > 0)
        free(references);
    else
        zinf_samples_set_references(zinf_dataset_samples(data), references);
    return net ? zinf_net_barrier(net) : 0;
}

static int measure(struct zinf_trainer *t, struct zinf_dataset *data)
{
    struct zinf_net *net = t->setup.options.net;
    const uint64_t n = zinf_dataset_n_windows(data);
    const uint64_t ranks = data_axis(&t->setup)->world, batch = (uint64_t)t->setup.batch;
    const uint64_t round = setup_sharers(&t->setup) * batch;
    float *references = calloc(n, sizeof *references), *all = calloc(ranks * batch, sizeof *all);
    struct run_batch arrays;
    int code = run_batch_init(&arrays, t, data, t->setup.batch);
    if (!code && (!references || !all))
        code =
            zinf_fail(-ENOMEM, "no memory for references of %llu samples", (unsigned long long)n);
    for (uint64_t first = 0; !code && first < n; first += round)
        code = take_round(t, data, &arrays, first, all, references);
    run_batch_fini(&arrays);
    free(all);
    if (!code)
        return keep(net, data, references);
    free(references);
    return code;
}

static int measure_parts(struct zinf_trainer *t, struct zinf_dataset *data)
{
    int code = 0;
    for (uint32_t k = 0; data && !code && k < zinf_dataset_n_parts(data); k++)
        code = measure(t, zinf_dataset_part(data, k));
    return code;
}

/* Of both sets, or of the one that is not NULL, by one trainer. */
static int measure_sets(const struct zinf_trainer_options *of, struct zinf_dataset *data,
                        struct zinf_dataset *other)
{
    struct zinf_trainer_options options = *of;
    struct zinf_config config = *of->config;
    struct zinf_trainer *t = NULL;
    const uint64_t begin = zinf_now_ns();
    if (!of->references)
        return 0;
    options.mode = ZINF_TRAINER_FORWARD;
    options.pairs = options.references = false;
    options.adapter = config.adapter = NULL; /* the model without them */
    options.config = &config;
    options.class_weights = NULL;
    options.run = NULL;
    options.trace = NULL;
    int code = zinf_trainer_create(&t, &options);
    if (!code)
        code = measure_parts(t, data);
    if (!code)
        code = measure_parts(t, other);
    zinf_trainer_destroy(t);
    if (!code && (!of->net || zinf_net_place(of->net).rank == 0))
        zinf_log(ZINF_LOG_INFO,
                 "reference: the model's own log-probabilities of %llu samples, %.1f s",
                 (unsigned long long)zinf_dataset_n_windows(data),
                 (double)(zinf_now_ns() - begin) / 1e9);
    return code;
}

int run_make_references(const struct zinf_run_options *o)
{
    return measure_sets(&o->trainer, o->data, o->eval_data);
}

int zinf_run_refer(const struct zinf_trainer_options *options, struct zinf_dataset *data)
{
    return measure_sets(options, data, NULL);
}
