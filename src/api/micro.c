/*
 * micro: --micro-batch auto, the largest micro-batch with which a training fits. The samples of a
 * step stay what they are: candidates are the numbers that divide a rank's. A run that goes on
 * takes the number that it had, whatever has room now, so that its sums have the same bits.
 */
#include "api/session.h"

#include "train/checkpoints.h"

#define MICRO "train_micro_batch_size_per_gpu"
#define AUTOMATIC "--micro-batch auto"
#define PIPE 2 /* in a configuration's mesh */

/* 1: it fits; 0: it does not. */
static int fits(const struct zinf_session *s, struct zinf_estimate_options *options, int64_t micro)
{
    struct zinf_config config = *s->config;
    struct zinf_estimate unused;
    int code = zinf_config_set_micro_batch(&config, micro);
    options->trainer.config = &config;
    if (!code)
        code = zinf_estimate(&unused, options);
    options->trainer.config = s->config;
    return code && code != -ENOMEM ? code : !code;
}

#define MOST_DIVISORS 2048 /* numbers below 2^31 have at most 1536 */
static int divisors_of(int64_t n, int64_t out[MOST_DIVISORS])
{
    int found = 0;
    for (int64_t d = 1; d <= n && d <= 1 << 20 && found < MOST_DIVISORS; d++)
        if (n % d == 0)
            out[found++] = d;
    return found;
}

/* *next: the smallest that does not fit; 0: all do. Where not even 1 fits it is 1, and who makes
 * the plan says what is missing. */
static int search(const struct zinf_session *s, struct zinf_estimate_options *options,
                  int64_t *micro, int64_t *next)
{
    int64_t divisors[MOST_DIVISORS];
    const int64_t samples = s->config->micro_batch * s->config->accumulation;
    int n = divisors_of(samples, divisors);
    while (n > 1 && samples / divisors[n - 1] < s->config->mesh[PIPE])
        n--;               /* each rank of a pipeline is to have a micro-batch at once */
    int low = 0, high = n; /* low is the least, or fits; high is beyond the last, or does not */
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        const int good = fits(s, options, divisors[middle]);
        if (good < 0)
            return good;
        if (good)
            low = middle;
        else
            high = middle;
    }
    *micro = divisors[low];
    *next = high < n ? divisors[high] : 0;
    return 0;
}

/* Of the run that is gone on from; 0: there is none, or it had another batch. */
static int64_t recorded(const struct zinf_session *s)
{
    const int64_t samples = s->config->micro_batch * s->config->accumulation;
    int64_t micro = 0;
    if (s->job.resume && !*s->job.resume)
        micro = zinf_run_micro_batch(s->job.output);
    if (!micro && s->checkpoint)
        micro = zinf_checkpoint_micro_batch(s->checkpoint);
    return micro > 0 && samples % micro == 0 ? micro : 0;
}

/* A configuration that is read anew says the same. */
static int keep(struct zinf_session *s)
{
    const struct zinf_config_setting micro = {
        .key = MICRO, .number = (double)s->config->micro_batch, .name = AUTOMATIC};
    const struct zinf_config_setting accumulation = {.key = "gradient_accumulation_steps",
                                                     .number = (double)s->config->accumulation,
                                                     .name = AUTOMATIC};
    int code = zinf_config_settings_add(&s->job.settings, &micro);
    return code ? code : zinf_config_settings_add(&s->job.settings, &accumulation);
}

static void say(const struct zinf_session *s, int64_t next, bool was_recorded)
{
    char why[96] = "the whole batch of a step fits";
    if (was_recorded)
        snprintf(why, sizeof why, "as in the run that is resumed");
    else if (next)
        snprintf(why, sizeof why, "the largest that fits; %lld do not fit", (long long)next);
    else if (s->config->accumulation > 1)
        snprintf(why, sizeof why, "larger ones would leave pipeline stages without work");
    if (job_ranks_is_first(s->net))
        zinf_log(ZINF_LOG_INFO,
                 MICRO " is \"auto\": %lld sequences at once, %lld micro-batch%s in a step: %s",
                 (long long)s->config->micro_batch, (long long)s->config->accumulation,
                 s->config->accumulation == 1 ? "" : "es", why);
}

int job_micro_find(struct zinf_session *s, struct zinf_estimate_options *options)
{
    if (!s->config->finds_micro_batch)
        return 0;
    if (!strcmp(s->config->preference, "kto"))
        return zinf_fail(-EINVAL,
                         MICRO " is \"auto\", but kto pairs the answers of a micro-batch, "
                               "so that its size decides the result: give " MICRO " a number");
    if (s->task == ZINF_TASK_EMBEDDING && s->job.eval_data.n)
        return zinf_fail(-EINVAL,
                         MICRO " is \"auto\", but evaluations of embeddings compare the rows of a "
                               "micro-batch, so that its size decides their loss: give " MICRO
                               " a number, or leave --eval-data out");
    int64_t micro = recorded(s), next = 0;
    const bool was_recorded = micro > 0;
    int code = was_recorded ? 0 : search(s, options, &micro, &next);
    int64_t least[2] = {-micro, -(next ? next : INT64_MAX)}; /* that any rank has room for */
    if (!code && s->net)
        code = zinf_net_max(s->net, least, 2);
    if (!code)
        code = zinf_config_set_micro_batch(s->config, -least[0]);
    if (!code)
        code = keep(s);
    if (!code)
        say(s, least[1] == -INT64_MAX ? 0 : -least[1], was_recorded);
    return code;
}

int job_micro_settle(struct zinf_session *s)
{
    const struct zinf_net_place at =
        s->net ? zinf_net_place(s->net) : (struct zinf_net_place){.world = 1, .local_world = 1};
    const uint32_t seats = s->config->seats > 1 ? (uint32_t)s->config->seats : 1;
    struct zinf_estimate_options options = {.trainer =
                                                session_trainer_options(s, ZINF_TRAINER_TRAIN),
                                            .ranks = at.world * seats,
                                            .local_ranks = at.local_world * seats,
                                            .seats = seats};
    return job_micro_find(s, &options);
}
