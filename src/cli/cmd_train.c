/* train: the main job. Opens everything, then hands over to the run and shows its events. */
#include "api/training.h"
#include "cli/cli.h"
#include "cli/estimate/estimate.h"
#include "cli/scores.h"
#include "cli/signals.h"
#include "cli/train_show.h"
#include "train/estimate.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t save_asked;

static void ask_save(int signal_number)
{
    (void)signal_number;
    save_asked = 1;
}

struct train_options {
    struct zinf_job common;
    struct cli_scores scores;
    const char *tensorboard;
    char *checkpoint; /* that --resume found, or NULL */
    enum cli_progress_mode progress;
    struct zinf_net *net; /* between processes; NULL: there are no others */
    struct job_seats seats;
};

static int64_t plain_every(const struct zinf_config *config, int64_t steps)
{
    if (config->steps_per_print)
        return config->steps_per_print;
    return steps > 40 ? steps / 20 : 1;
}

/* ---- ranks ---- */

static bool is_first(const struct train_options *o)
{
    return job_ranks_is_first(o->net);
}

static int open_all(struct zinf_session *s, struct train_options *o)
{
    int code = job_train_open(s, &o->common);
    return code ? code : cli_scores_prepare(&o->scores, s, &o->common, s->eval_data);
}

/* Rank 0 is the first to look at the data: what it writes to the cache the others find there. */
static int open_in_turn(struct zinf_session *s, struct train_options *o)
{
    int code = is_first(o) ? open_all(s, o) : 0;
    if (!code && o->net)
        code = zinf_net_barrier(o->net);
    return code || is_first(o) ? code : open_all(s, o);
}

/* The exit status. */
static int train(struct train_options *o)
{
    struct zinf_session session = {0};
    struct train_show show = {.mode = o->progress,
                              .session = &session,
                              .common = &o->common,
                              .output = o->common.output,
                              .chart = o->progress == CLI_PROGRESS_AUTO,
                              .tensorboard = o->tensorboard};
    struct zinf_speeds speeds;
    struct estimate_sources sources;
    int status = CLI_FAILED;
    signal(SIGUSR1, ask_save); /* it may come early; the default would end the run */
    int code = job_ranks_find(&o->net, &o->common);
    if (!code)
        code = job_seats_find(&o->seats, &o->common, o->net);
    if (!code)
        code = open_in_turn(&session, o);
    if (code && o->net) /* from here on the run tells */
        zinf_net_tell(o->net, zinf_error());
    if (code)
        goto out;
    estimate_cached_speeds(&speeds, &sources, session.config, session.device);
    show.sources = &sources;
    show.every = plain_every(session.config, o->common.steps);
    show.run = job_run_options(&session, &o->common, o->net, &o->seats, o->checkpoint);
    show.run.trainer.speeds = &speeds;
    show.run.scores = o->scores.run.n ? &o->scores.run : NULL;
    show.run.stop = &cli_stop;
    show.run.save = &save_asked;
    show.run.stuck = cli_signals_stuck;
    if (is_first(o))
        show.run.events = train_show_events(&show);
    cli_signals_listen(is_first(o) ? "stopping after this step" : NULL, false);
    code = zinf_run_train(&show.run);
    int stopped = cli_stop;
    if (!code && is_first(o))
        job_train_keep_template(&session, &o->common);
    if (is_first(o))
        train_show_end(&show, code, stopped);
    status = stopped ? cli_signals_status(stopped) : CLI_OK;
out:
    if (code) /* before a launcher sees another rank end, and ends this one */
        status = cli_error(&cli_train, CLI_FAILED);
    zinf_net_close(o->net);
    zinf_session_end(&session);
    free(show.losses);
    return status;
}

static const char usage[] =
    "usage: zinf train --model DIR --data FILE... [options]\n"
    "\n"
    "Trains a model. Options win over the configuration file; a conflict is said.\n"
    "All GPUs that are visible train together; mpirun -np 4 zinf train ... has four\n"
    "processes that do.\n";

#define AT(field) .offset = offsetof(struct train_options, field)
#define IN(field) .at = offsetof(struct train_options, field)
/* clang-format off */
static const struct option own_tensorboard[] = {
    OPTION("--tensorboard", TEXT, AT(tensorboard), "DIR", "event files for TensorBoard"),
    CLI_NO_ROW
};
static const struct option own_progress[] = {
    OPTION("--progress", WORD, AT(progress), "MODE", "bar, plain or none",
     .words = cli_progress_words, .otherwise = "bar on a terminal"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    {.rows = job_model, IN(common), .title = "Model and data"},
    {.rows = job_begin, IN(common)},
    {.rows = job_rows, IN(common)},
    {.rows = job_task, IN(common)},
    {.rows = job_head, IN(common)},
    {.rows = job_eval, IN(common)},
    {.rows = job_seq, IN(common)},
    {.rows = job_source, IN(common)},
    {.rows = job_shuffle, IN(common)},
    {.rows = job_group, IN(common)},
    {.rows = job_pad, IN(common)},
    {.rows = job_seed, IN(common)},
    {.rows = job_output, IN(common), .title = "Output"},
    {.rows = own_tensorboard},
    {.rows = cli_score_rows, IN(scores)},
    {.rows = job_saves, IN(common)},
    {.rows = own_progress},
    {.rows = job_epochs, IN(common), .title = "The step"},
    {.rows = job_step, IN(common)},
    {.rows = job_pairs, IN(common)},
    {.rows = job_dtype, IN(common)},
    {.rows = job_best, IN(common)},
    {.rows = job_device, IN(common), .title = "Where and how"},
    {.rows = job_seats, IN(common)},
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    struct train_options *o = call->options;
    int code = job_train_check(&o->common);
    if (!code)
        code = cli_scores_check(&o->scores);
    if (!code && o->scores.run.n && !o->common.eval_data.n)
        code = zinf_fail(-EINVAL, "--metric is of evaluations: pass --eval-data");
    return code;
}

static int work(struct cli_call *call)
{
    struct train_options *o = call->options;
    int code = job_train_find(&o->common, &o->checkpoint);
    if (code)
        return code;
    int status = zinf_job_check(&o->common) ? cli_error(call->command, CLI_USAGE) : train(o);
    free(o->checkpoint);
    return status;
}

const struct cli_command cli_train = {
    .name = "train",
    .summary = "train a model",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct train_options),
    .usual =
        &(const struct train_options){.common = ZINF_JOB_DEFAULT, .scores = CLI_SCORES_DEFAULT},
    .check = check,
    .work = work,
};
