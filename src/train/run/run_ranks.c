/*
 * run_ranks: a run's side of other ranks. Rank 0 has the output folder, the log and the events; the
 * others train along. What would make them train something else is found before the first step and
 * named; signals that one of them gets are everybody's.
 */
#include "build-config.h"

#include "train/run/run.h"
#include "train/save/checkpoint.h"
#include "train/seats.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

bool run_is_first(const struct run *run)
{
    return !run->net || zinf_net_place(run->net).rank == 0;
}

int64_t run_ranks(const struct run *run)
{
    return run->net ? zinf_net_place(run->net).world : 1;
}

/* ---- are we the same? ---- */

static uint64_t text_sum(const char *text)
{
    return text ? XXH3_64bits(text, strlen(text)) : 0;
}

static uint64_t config_sum(const struct zinf_config *config)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    uint64_t sum = 0;
    if (out) {
        zinf_config_print(config, out);
        fclose(out);
        sum = XXH3_64bits(text, bytes);
    }
    free(text);
    return sum;
}

static uint64_t model_sum(const char *path)
{
    struct zinf_model *model = NULL;
    uint64_t sum = 0;
    if (zinf_model_open(&model, path))
        return 0; /* the run will report the error when it opens it */
    char *text = zinf_json_print(zinf_model_config(model));
    sum = text_sum(text) + zinf_model_n_params(model);
    cJSON_free(text);
    zinf_model_close(model);
    return sum;
}

/* Of the weights: where several add up, each process has the sum in a folder of its own. */
static uint64_t adapter_sum(const char *folder)
{
    char *path = folder ? zinf_path_join(folder, ZINF_ADAPTER_WEIGHTS) : NULL;
    uint64_t bytes = 0, sum = 0;
    if (path && checkpoint_sum_file(path, &bytes, &sum))
        sum = 0; /* the same */
    free(path);
    return sum;
}

static uint64_t options_sum(const struct zinf_run_options *o)
{
    const uint64_t numbers[] = {o->steps,
                                o->eval_every,
                                o->save_every,
                                o->save_last,
                                o->trainer.seed,
                                o->trainer.init,
                                (uint64_t)o->trainer.seq_len,
                                (uint64_t)o->trainer.device,
                                o->eval_data != NULL,
                                text_sum(o->resume)};
    return XXH3_64bits(numbers, sizeof numbers);
}

/* Of the first, the middle and the last window too: another order is other data. */
static uint64_t data_sum(struct zinf_dataset *data)
{
    uint64_t windows = data ? zinf_dataset_n_windows(data) : 0;
    uint64_t sums[] = {windows, data ? zinf_dataset_n_tokens(data) : 0,
                       data ? zinf_dataset_order(data) : 0};
    return XXH3_64bits(sums, sizeof sums);
}

int run_compare_ranks(struct run *run)
{
    const struct zinf_run_options *o = run->options;
    if (!run->net)
        return 0;
    zinf_net_set_timeout(run->net, run->config->timeout);
    const struct zinf_net_fact facts[] = {
        {"version of zinf", text_sum(PACKAGE_VERSION)},
        {"configuration (--config, options)", config_sum(run->config)},
        {"number of steps, seed, --resume or other option", options_sum(o)},
        {"model (--model)", model_sum(o->trainer.model_path)},
        {"adapter (--adapter)", adapter_sum(o->trainer.adapter)},
        {"data (--data)", data_sum(o->data)},
        {"data to evaluate (--eval-data)", data_sum(o->eval_data)},
    };
    return zinf_net_compare(run->net, facts, sizeof facts / sizeof *facts);
}

int run_compare_data(struct run *run)
{
    const struct zinf_net_fact facts[] = {
        {"data or order of it (--data, --seed)", run->data.fingerprint},
        {"checkpoint (--resume)", run->from.step}};
    return run->net ? zinf_net_compare(run->net, facts, 2) : 0;
}

static int compare(const struct zinf_trainer_options *options, struct zinf_net_fact more)
{
    if (!options->net)
        return 0;
    const uint64_t numbers[] = {(uint64_t)options->seq_len, (uint64_t)options->source_len,
                                (uint64_t)options->device, options->packed};
    const struct zinf_net_fact facts[] = {
        {"version of zinf", text_sum(PACKAGE_VERSION)},
        {"configuration (--config, options)", config_sum(options->config)},
        {"--seq-len or other option", XXH3_64bits(numbers, sizeof numbers)},
        {"model (--model)", model_sum(options->model_path)},
        {"adapter (--adapter)", adapter_sum(options->adapter)},
        more,
    };
    return zinf_net_compare(options->net, facts, sizeof facts / sizeof *facts);
}

int zinf_run_compare(const struct zinf_trainer_options *options, struct zinf_dataset *data)
{
    return compare(options, (struct zinf_net_fact){"data (--data)", data_sum(data)});
}

int zinf_run_compare_texts(const struct zinf_trainer_options *options, uint64_t sum)
{
    return compare(options,
                   (struct zinf_net_fact){"prompts (--prompt), or how texts are made", sum});
}

/* ---- in a run ---- */

int run_meet(struct run *run)
{
    return run->net ? zinf_net_barrier(run->net) : 0;
}

int run_look_at_signals(struct run *run)
{
    const struct zinf_run_options *o = run->options;
    int64_t asked[2] = {o->stop ? *o->stop : 0, o->save && *o->save};
    int code = run->net ? zinf_net_max(run->net, asked, 2) : 0;
    run->stops = (int)asked[0];
    run->saves = asked[1];
    return code;
}

int run_look_at_rows(struct run *run, int *there, uint64_t sum)
{
    const struct zinf_run_options *o = run->options;
    enum { STOP, WAITS, ENDED, THERE, SUM, NOT_SUM, N };
    int64_t seen[N] = {[STOP] = o->stop ? *o->stop : 0,
                       [WAITS] = *there == -EAGAIN,
                       [ENDED] = *there == 0,
                       [THERE] = *there > 0,
                       [SUM] = (int64_t)sum,
                       [NOT_SUM] = ~(int64_t)sum};
    int code = run->net ? zinf_net_max(run->net, seen, N) : 0;
    if (code)
        return code;
    run->stops = (int)seen[STOP];
    *there = seen[WAITS] ? -EAGAIN : !seen[ENDED];
    const bool same = seen[ENDED] ? !seen[THERE] : seen[SUM] == ~seen[NOT_SUM];
    return seen[WAITS] || same
               ? 0
               : zinf_fail(-EINVAL, "--streaming: the ranks have different rows: each needs all of "
                                    "them, in the same order; which samples it computes is found "
                                    "here");
}

void run_tell_ranks(struct run *run, int code)
{
    if (code && run->net)
        zinf_net_tell(run->net, zinf_error());
}

/* ---- evaluation ---- */

struct part {
    struct zinf_evaluation sums;
    uint64_t there;
};

static void add_part(struct zinf_evaluation *out, const struct zinf_evaluation *part)
{
    out->loss += part->loss;
    out->cross_entropy += part->cross_entropy;
    out->tokens += part->tokens;
    struct zinf_rewards *to = &out->rewards;
    const struct zinf_rewards *r = &part->rewards;
    to->n += r->n;
    to->n_chosen += r->n_chosen;
    to->n_rejected += r->n_rejected;
    to->chosen += r->chosen;
    to->rejected += r->rejected;
    to->accuracy += r->accuracy;
    to->has_kl = to->has_kl || r->has_kl;
    to->kl += r->kl;
}

/* Batches are dealt to ranks in turn, and their sums added in the order of the windows: as one rank
 * does; ranks that share sequences have the same one. Who has none left computes with the others,
 * for they need its slices. */
int run_share_loss(struct zinf_trainer *t, struct zinf_dataset *data, struct run_batch *arrays,
                   uint64_t *first, struct zinf_evaluation *out)
{
    struct zinf_net *net = data_axis(&t->setup)->net;
    const uint64_t sharing = context_axis(&t->setup)->world, ranks = setup_sharers(&t->setup);
    const uint64_t rank = setup_sharer(&t->setup, data_axis(&t->setup)->rank);
    uint64_t batch = (uint64_t)t->setup.windows, windows = zinf_dataset_n_windows(data);
    uint64_t own = *first + rank * batch;
    struct part mine = {.there = own < windows}, *all = calloc(ranks * sharing, sizeof *all);
    uint64_t left = mine.there ? windows - own : 1;
    int64_t n = (int64_t)(left < batch ? left : batch);
    int code = all ? 0 : zinf_fail(-ENOMEM, "no memory for an evaluation");
    run_batch_fit(arrays, data, mine.there ? own : 0, (uint64_t)n);
    struct zinf_batch given = run_batch_given(arrays);
    for (int64_t i = 0; !code && i < n; i++)
        code = run_batch_take(arrays, data, mine.there ? own + (uint64_t)i : 0, i);
    if (!code)
        code = zinf_trainer_loss(t, &given, n, &mine.sums.loss, &mine.sums.tokens);
    mine.sums.cross_entropy = zinf_trainer_cross_entropy(t);
    if (!code)
        code = trainer_sum_rewards(t, n, &mine.sums.rewards);
    if (!code && net)
        code = zinf_net_gather(net, &mine, all, sizeof mine);
    else if (!code)
        all[0] = mine;
    for (uint64_t r = 0; !code && r < ranks * sharing; r += sharing)
        if (all[r].there)
            add_part(out, &all[r].sums);
    *first += ranks * batch;
    free(all);
    return code;
}

int run_share_flag(const struct run *run, bool *flag)
{
    int64_t number = *flag;
    int code = run->net ? zinf_net_max(run->net, &number, 1) : 0;
    *flag = number;
    return code;
}

/* ---- what a step took on each of the process's seats ---- */

/* Seat 0 logs it; the bytes of drives, which each seat reads and writes for itself, and what was
 * copied without page-locked memory are of all. */
int run_share_times(struct run *run, struct zinf_step_result *result)
{
    struct run_seat_times mine;
    if (!run->net)
        return 0;
    struct zinf_net_place at = zinf_net_place(run->net);
    if (!run->times)
        run->times = calloc(at.world, sizeof *run->times);
    if (!run->times)
        return zinf_fail(-ENOMEM, "no memory for the times of %u ranks", at.world);
    memcpy(mine.lane_seconds, result->lane_seconds, sizeof mine.lane_seconds);
    memcpy(mine.lane_bytes, result->lane_bytes, sizeof mine.lane_bytes);
    mine.pageable_copies = result->pageable_copies;
    int code = zinf_net_gather(run->net, &mine, run->times, sizeof mine);
    uint32_t first = at.rank - at.seat;
    for (uint32_t s = 0; !code && s < at.seats; s++) {
        const struct run_seat_times *times = &run->times[first + s];
        for (int lane = 0; s != at.seat && lane < RUN_DRIVE_LANES; lane++)
            result->lane_bytes[lane] += times->lane_bytes[lane];
        if (s != at.seat && times->pageable_copies > 0)
            result->pageable_copies += times->pageable_copies;
    }
    return code;
}

struct run_seats run_seats_of(const struct run *run)
{
    if (!run->times)
        return (struct run_seats){0};
    struct zinf_net_place at = zinf_net_place(run->net);
    return (struct run_seats){.times = run->times + (at.rank - at.seat),
                              .n = at.seats > 1 ? at.seats : 0};
}
