/* rewards: what a step's pairs are told of, summed without rounding over all ranks; and those of an
 * evaluation's, window by window. */
#include "train/trainer.h"

/* What they are made of, as one message. */
struct numbers {
    struct exact_sum chosen, rejected;
    int64_t n_right, n;
};
_Static_assert(sizeof(struct numbers) / sizeof(int64_t) <= ZINF_NET_MOST_NUMBERS,
               "rewards are one message");

static uint32_t find_rewards(const struct zinf_graph *g)
{
    uint32_t v = 0;
    while (v < g->n_values && g->values[v].kind != ZINF_VALUE_REPORT)
        v++;
    return v;
}

/* Labels are where the step's batch has been put. */
static const int32_t *labels_of(const struct zinf_trainer *t)
{
    uint64_t offset =
        (uint64_t)t->setup.n_micro * t->setup.walk.values[t->setup.graph->targets].bytes_before;
    return (const int32_t *)(const void *)host_at(&t->plan, t->plan.at.h_inputs + offset);
}

void trainer_sum_rewards(const struct zinf_trainer *t, int64_t samples, struct zinf_rewards *sums)
{
    const uint32_t value = find_rewards(t->setup.graph);
    uint64_t count = 0;
    *sums = (struct zinf_rewards){0};
    const float *rewards =
        value < t->setup.graph->n_values ? trainer_losses_of(t, value, 0, samples, &count) : NULL;
    const int32_t *labels = rewards ? labels_of(t) : NULL;
    for (uint64_t i = 0; i + 1 < count; i += 2) {
        if (labels[i] < 0)
            continue;
        sums->chosen += (double)rewards[i];
        sums->rejected += (double)rewards[i + 1];
        sums->accuracy += rewards[i] > rewards[i + 1];
        sums->n++;
    }
}

int agree_rewards(struct zinf_trainer *t)
{
    const uint32_t value = find_rewards(t->setup.graph);
    struct numbers n = {.n = 0};
    uint64_t count;
    if (value == t->setup.graph->n_values)
        return 0;
    const float *rewards =
        trainer_losses_of(t, value, 0, t->setup.n_micro * t->setup.batch, &count);
    const int32_t *labels = labels_of(t);
    for (uint64_t i = 0; i + 1 < count; i += 2) { /* one a sample, so micro-batches adjoin */
        if (labels[i] < 0)
            continue;
        exact_add(&n.chosen, (double)rewards[i]);
        exact_add(&n.rejected, (double)rewards[i + 1]);
        n.n_right += rewards[i] > rewards[i + 1];
        n.n++;
    }
    int code = t->setup.net
                   ? zinf_net_add(t->setup.net, (int64_t *)(void *)&n, sizeof n / sizeof(int64_t))
                   : 0;
    const double pairs = n.n ? (double)n.n : 1;
    t->sums.rewards = (struct zinf_rewards){.n = (uint64_t)n.n,
                                            .chosen = exact_value(&n.chosen) / pairs,
                                            .rejected = exact_value(&n.rejected) / pairs,
                                            .accuracy = (double)n.n_right / pairs};
    return code;
}
