/* rewards: figures of a step's preference pairs, summed without rounding over all ranks; and those
 * of an evaluation, window by window. */
#include "train/trainer.h"

/* The sums that they are made of, as one message. */
struct numbers {
    struct exact_sum chosen, rejected, divergence;
    int64_t n_right, n_chosen, n_rejected, n;
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

/* rewards and labels of a pair. With single sequences (KTO) the second reward is what the first is
 * compared with. */
static void take_pair(struct numbers *n, const float *rewards, const int32_t *labels, bool single)
{
    if (labels[0] < 0)
        return;
    const bool desirable = !single || labels[0] > 0;
    n->n++;
    n->n_right += desirable ? rewards[0] > rewards[1] : rewards[0] < rewards[1];
    if (desirable) {
        exact_add(&n->chosen, (double)rewards[0]);
        n->n_chosen++;
    }
    if (!desirable || !single) {
        exact_add(&n->rejected, (double)rewards[!single]);
        n->n_rejected++;
    }
    if (single)
        exact_add(&n->divergence, (double)rewards[1]);
}

/* Adds the pairs of the first samples of this rank's step; false: the model has no pairs. */
static bool take_pairs(const struct zinf_trainer *t, int64_t samples, struct numbers *n)
{
    const struct zinf_graph *g = t->setup.graph;
    const uint32_t value = find_rewards(g);
    const struct zinf_model_preference *preference = zinf_model_preference(t->setup.model);
    uint64_t count;
    *n = (struct numbers){.n = 0};
    if (value == g->n_values || !preference)
        return false;
    if (g->values[value].away)
        return true;
    const float *rewards = t->pairs ? trainer_pairs_rewards(t, &samples)
                                    : trainer_losses_of(t, value, 0, samples, &count);
    const int32_t *labels = t->pairs ? trainer_pairs_labels(t) : labels_of(t);
    for (int64_t i = 0; i + 1 < samples; i += 2)
        take_pair(n, rewards + i, labels + i, preference->kind == ZINF_PREFERENCE_KTO);
    return true;
}

/* The sums, except that of the divergence, which is in units of beta. */
static struct zinf_rewards sums_of(const struct zinf_trainer *t, const struct numbers *n)
{
    const struct zinf_model_preference *preference = zinf_model_preference(t->setup.model);
    return (struct zinf_rewards){
        .n = (uint64_t)n->n,
        .n_chosen = (uint64_t)n->n_chosen,
        .n_rejected = (uint64_t)n->n_rejected,
        .chosen = exact_value(&n->chosen),
        .rejected = exact_value(&n->rejected),
        .accuracy = (double)n->n_right,
        .has_kl = preference->kind == ZINF_PREFERENCE_KTO,
        .kl = exact_value(&n->divergence) / (double)preference->beta,
    };
}

static int add_over(const struct zinf_axis *axis, struct numbers *n)
{
    return axis->net ? zinf_net_add(axis->net, (int64_t *)(void *)n, sizeof *n / sizeof(int64_t))
                     : 0;
}

int trainer_sum_rewards(const struct zinf_trainer *t, int64_t samples, struct zinf_rewards *sums)
{
    struct numbers n;
    *sums = (struct zinf_rewards){0};
    if (!take_pairs(t, samples, &n))
        return 0;
    int code = add_over(pipe_axis(&t->setup), &n);
    *sums = sums_of(t, &n);
    return code;
}

void rewards_to_means(struct zinf_rewards *r)
{
    const double all = r->n ? (double)r->n : 1;
    r->chosen /= (double)r->n_chosen; /* NaN without any */
    r->rejected /= (double)r->n_rejected;
    r->accuracy /= all;
    r->kl /= all;
}

int agree_rewards(struct zinf_trainer *t)
{
    struct numbers n;
    if (!take_pairs(t, setup_samples(&t->setup), &n))
        return 0;
    if (t->pairs && !trainer_pairs_count(t))
        n = (struct numbers){.n = 0};
    int code = add_over(data_axis(&t->setup), &n);
    if (!code) /* only the last stage has rewards */
        code = add_over(pipe_axis(&t->setup), &n);
    t->sums.rewards = sums_of(t, &n);
    rewards_to_means(&t->sums.rewards);
    return code;
}
