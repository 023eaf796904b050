/* train: the main job. The session opens everything and runs; here its events are shown. */
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/train_place.h"
#include "cli/train_show.h"
#include "train/checkpoints.h"

#include <signal.h>
#include <stdlib.h>

static volatile sig_atomic_t save_asked;

static void ask_save(int signal_number)
{
    (void)signal_number;
    save_asked = 1;
}

struct options {
    const char *tensorboard;
    enum cli_progress_mode progress;
    bool plan, json;
};
struct training {
    struct train_show show;
    struct train_place place;
    struct zinf_speeds speeds;
    struct speed_sources sources;
    bool is_open;
};

static int64_t plain_every(const struct zinf_config *config, int64_t steps)
{
    if (config->steps_per_print)
        return config->steps_per_print;
    return steps > 40 ? steps / 20 : 1;
}

static int opened(void *arg)
{
    struct training *t = arg;
    struct zinf_session *s = t->show.session;
    const bool first = job_ranks_is_first(s->net);
    speeds_cached(&t->speeds, &t->sources, s->config, s->device);
    s->run.trainer.speeds = &t->speeds;
    int code = train_place_session(&t->place, s);
    if (code)
        return code;
    t->is_open = true;
    t->show.every = plain_every(s->config, s->job.steps);
    s->run.stop = &cli_stop;
    s->run.save = &save_asked;
    s->run.stuck = cli_signals_stuck;
    if (first) {
        train_summary_predict(&t->show);
        s->run.events = train_show_events(&t->show);
    }
    cli_signals_listen(first ? "stopping after this step" : NULL, false);
    return 0;
}

static const char usage[] =
    "usage: zinf train --model DIR --data FILE... [options]\n"
    "\n"
    "Trains a model. Options win over the configuration file; conflicts are reported.\n"
    "All GPUs that are visible train together; mpirun -np 4 zinf train ... has four\n"
    "processes that do.\n";

#define AT(field) .offset = offsetof(struct options, field)
/* clang-format off */
static const struct option own_tensorboard[] = {
    OPTION("--tensorboard", TEXT, AT(tensorboard), "DIR", "event files for TensorBoard"),
    CLI_NO_ROW
};
static const struct option own_progress[] = {
    OPTION("--progress", WORD, AT(progress), "MODE", "bar, plain or none",
     .words = cli_progress_words, .otherwise = "bar on a terminal"),
    OPTION("--plan", FLAG, AT(plan), NULL, "print what lies where, line by line"),
    OPTION("--json", FLAG, AT(json), NULL, "end with a line of JSON at a terminal too"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    {.rows = job_model, .door = true, .title = "Model and data"},
    CLI_DOOR(job_begin),
    CLI_DOOR(job_rows),
    CLI_DOOR(job_task),
    CLI_DOOR(job_embedding),
    CLI_DOOR(job_head),
    CLI_DOOR(job_eval),
    CLI_DOOR(job_seq),
    CLI_DOOR(job_source),
    CLI_DOOR(job_shuffle),
    CLI_DOOR(job_group),
    CLI_DOOR(job_pad),
    CLI_DOOR(job_seed),
    {.rows = job_output, .door = true, .title = "Output"},
    {.rows = own_tensorboard},
    CLI_DOOR(job_metrics),
    CLI_DOOR(generate_least),
    CLI_DOOR(job_saves),
    {.rows = own_progress},
    {.rows = job_epochs, .door = true, .title = "The step"},
    CLI_DOOR(job_step),
    CLI_DOOR(job_pairs),
    CLI_DOOR(job_dtype),
    CLI_DOOR(job_best),
    {.rows = job_device, .door = true, .title = "Where and how"},
    CLI_DOOR(job_seats),
    CLI_DOOR(job_tensor),
    CLI_DOOR(job_context),
    CLI_DOOR(job_pipeline),
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    struct zinf_session *s = call->session;
    int code = session_take_file(s);
    if (!code)
        code = job_train_check(&s->job);
    if (!code)
        code = job_scores_check(s);
    return code || s->job.resume ? code : session_need_model(s);
}

static int work(struct cli_call *call)
{
    const struct options *o = call->options;
    struct zinf_session *s = call->session;
    struct training t = {.show = {.mode = o->progress,
                                  .session = s,
                                  .sources = &t.sources,
                                  .chart = o->progress == CLI_PROGRESS_AUTO,
                                  .shows_plan = o->plan,
                                  .json = o->json,
                                  .tensorboard = o->tensorboard}};
    signal(SIGUSR1, ask_save); /* it may come early; the default would end the run */
    s->opened = opened;
    s->opened_arg = &t;
    int code = train_place_begin(&t.place, &s->job);
    if (code < 0 && s->job.resume && s->job.output)
        code = zinf_run_inputs_explain(s->job.output, code);
    if (!code)
        code = zinf_session_train(s, NULL);
    const int stopped = cli_stop;
    if (t.is_open && job_ranks_is_first(s->net))
        train_show_end(&t.show, code, stopped);
    train_place_end(&t.place, &s->job);
    free(t.show.losses);
    return code ? code : stopped ? cli_signals_status(stopped) : CLI_OK;
}

const struct cli_command cli_train = {
    .name = "train",
    .summary = "train a model",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct options),
    .check = check,
    .work = work,
};
