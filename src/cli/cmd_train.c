/* train: the main job. Opens everything, then hands over to the run and shows its events. */
#include "cli/cli.h"
#include "cli/data.h"
#include "cli/estimate/estimate.h"
#include "cli/scores.h"
#include "cli/seats.h"
#include "cli/signals.h"
#include "cli/train_show.h"
#include "cli/usage.h"
#include "train/estimate.h"
#include "train/checkpoints.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t save_asked;

static void ask_save(int signal_number)
{
    (void)signal_number;
    save_asked = 1;
}

/* Without --steps the configuration is read as for one, to learn the batch; what is to be said of
 * it is said when the steps are known. */
static int read_config(struct zinf_session *s, struct zinf_job *c)
{
    struct zinf_job known = *c;
    known.steps = c->steps < 0 ? 1 : c->steps;
    known.quiet = c->steps < 0;
    int code = zinf_session_config(s, &known);
    if (code || !cli_seats_leave_one(c, s->config))
        return code;
    known.seats_there = c->seats_there;
    return zinf_session_config(s, &known);
}

/* --steps not given: --epochs, or one pass over the data. A schedule may need the number. */
static int resolve_steps(struct zinf_session *s, struct zinf_job *c, double epochs)
{
    if (c->steps >= 0)
        return 0;
    double batch = (double)job_windows(s->task, s->config->train_batch_size);
    double steps = floor(epochs * (double)zinf_dataset_n_windows(s->data) / batch);
    c->steps = steps > 1 ? (int64_t)steps : 1;
    return zinf_session_config(s, c);
}

struct train_options {
    struct zinf_job common;
    struct zinf_words data, eval_data;
    struct cli_scores scores;
    const char *output, *log, *progress, *resume, *tensorboard;
    char *checkpoint; /* that --resume found, or NULL */
    enum cli_progress_mode progress_mode;
    int64_t eval_every, save_every, save_total_limit;
    double epochs;
    bool no_shuffle, overwrite, no_final_checkpoint;
    struct zinf_net *net; /* between processes; NULL: there are no others */
    struct cli_seats seats;
};

static int64_t plain_every(const struct zinf_config *config, int64_t steps)
{
    if (config->steps_per_print)
        return config->steps_per_print;
    return steps > 40 ? steps / 20 : 1;
}

/* Who stops by evaluations, or chooses the best, needs several. */
static int check_evaluations(const struct zinf_config *config, const struct train_options *o)
{
    const char *what = config->early_stopping     ? "zinf.early_stopping (--early-stopping)"
                       : config->load_best_at_end ? "zinf.load_best_at_end (--load-best-at-end)"
                                                  : NULL;
    if (!what || (o->eval_data.n && o->eval_every))
        return 0;
    return zinf_fail(-EINVAL,
                     "%s goes by evaluations on the way: pass --eval-data and --eval-every", what);
}

/* What is checked in no time comes first: a text may take minutes. */
static int open_all(struct zinf_session *s, struct train_options *o)
{
    char *cache = zinf_path_join(o->output, "cache");
    int code = cache ? zinf_session_open(s, &o->common) : -ENOMEM;
    if (!code)
        code = read_config(s, &o->common);
    if (code)
        goto out;
    code = check_evaluations(s->config, o);
    if (!code && o->no_shuffle && s->config->group_by_length)
        code = zinf_fail(-EINVAL, "zinf.group_by_length (--group-by-length) shuffles samples by "
                                  "their lengths, and --no-shuffle keeps their order: give one of "
                                  "them");
    if (!code) /* itself; the run looks at what it replaces there */
        code = zinf_apart_check("--output", o->output, ZINF_WRITTEN_FILE, &s->origins);
    if (!code && (code = zinf_make_dirs(o->output)))
        zinf_fail_in(code, "--output");
    if (!code)
        code = zinf_session_data(s, &o->common, &o->data, cache, !o->no_shuffle, &s->data);
    s->shuffled = !o->no_shuffle;
    if (!code && o->eval_data.n)
        code = zinf_session_data(s, &o->common, &o->eval_data, cache, false, &s->eval_data);
    if (!code)
        code = resolve_steps(s, &o->common, o->epochs > 0 ? o->epochs : 1);
    if (!code)
        code = cli_scores_prepare(&o->scores, s, &o->common, s->eval_data);
out:
    free(cache);
    return code;
}

/* ---- ranks ---- */

static bool is_first(const struct train_options *o)
{
    return cli_ranks_is_first(o->net);
}

/* Rank 0 is the first to look at the data: what it writes to the cache the others find there. */
static int open_in_turn(struct zinf_session *s, struct train_options *o)
{
    int code = is_first(o) ? open_all(s, o) : 0;
    if (!code && o->net)
        code = zinf_net_barrier(o->net);
    return code || is_first(o) ? code : open_all(s, o);
}

/* Without events. */
static struct zinf_run_options options_of(const struct train_options *o,
                                          const struct zinf_session *session,
                                          const struct zinf_speeds *speeds)
{
    return (struct zinf_run_options){
        .trainer =
            {
                .mode = ZINF_TRAINER_TRAIN,
                .model_path = o->common.model,
                .init = o->common.task.fresh,
                .adapter = o->common.adapter,
                .seed = (uint64_t)o->common.seed,
                .config = session->config,
                .seq_len = session->seq_len,
                .packed = o->common.pack,
                .pairs = job_has_pairs(session->task),
                .references = job_gives_references(session, &o->common),
                .source_len = session->source_len,
                .classes = session->asks_classes ? &session->classes : NULL,
                .new_head = o->common.task.new_head,
                .class_weights = session->class_weights,
                .device = session->device,
                .speeds = speeds,
                .net = o->net,
            },
        .seats = (uint32_t)session->config->seats,
        .gpus = cli_seats_gpus(&o->seats),
        .output = o->output,
        .log_path = o->log,
        .origins = &session->origins,
        .data = session->data,
        .eval_data = session->eval_data,
        .scores = o->scores.run.n ? &o->scores.run : NULL,
        .steps = (uint64_t)o->common.steps,
        .eval_every = (uint64_t)o->eval_every,
        .save_every = (uint64_t)o->save_every,
        .save_total_limit = (uint64_t)o->save_total_limit,
        .save_last = !o->no_final_checkpoint,
        .overwrite = o->overwrite,
        .resume = o->checkpoint,
        .resume_steps = o->resume && !*o->resume,
        .stop = &cli_stop,
        .save = &save_asked,
        .stuck = cli_seats_stuck,
    };
}

/* So that answers need no --chat-template. The model is there without it. */
static void keep_template(const struct zinf_session *s, const struct train_options *o)
{
    char *folder = zinf_path_join(o->output, "model");
    if (!folder || job_samples_keep_template(&o->common, s->tokenizer, folder))
        zinf_log(ZINF_LOG_WARN, "no chat_template.jinja: %s", zinf_error());
    free(folder);
}

/* The exit status. */
static int train(struct train_options *o)
{
    struct zinf_session session = {0};
    struct train_show show = {.mode = o->progress_mode,
                              .session = &session,
                              .common = &o->common,
                              .output = o->output,
                              .chart = !o->progress,
                              .tensorboard = o->tensorboard};
    struct zinf_speeds speeds;
    struct estimate_sources sources;
    int status = CLI_FAILED;
    signal(SIGUSR1, ask_save); /* it may come early; the default would end the run */
    int code = cli_ranks_find(&o->net, &o->common);
    if (!code)
        code = cli_seats_find(&o->seats, &o->common, o->net);
    if (!code)
        code = open_in_turn(&session, o);
    if (code && o->net) /* from here on the run tells */
        zinf_net_tell(o->net, zinf_error());
    if (code)
        goto out;
    estimate_cached_speeds(&speeds, &sources, session.config, session.device);
    show.sources = &sources;
    show.every = plain_every(session.config, o->common.steps);
    show.run = options_of(o, &session, &speeds);
    if (is_first(o))
        show.run.events = train_show_events(&show);
    cli_signals_listen(is_first(o) ? "stopping after this step" : NULL, false);
    code = zinf_run_train(&show.run);
    int stopped = cli_stop;
    if (!code && is_first(o))
        keep_template(&session, o);
    if (is_first(o))
        train_show_end(&show, code, stopped);
    status = stopped ? cli_signals_status(stopped) : CLI_OK;
out:
    if (code) /* before a launcher sees another rank end, and ends this one */
        status = cli_error(&cli_train, CLI_FAILED);
    zinf_net_close(o->net);
    zinf_session_close(&session);
    free(show.losses);
    return status;
}

/* --resume: the checkpoint, whose config.json and tokenizer stand in for a --model that is not
 * given. Without one yet, a plain --resume goes on from steps on the drives or begins the training:
 * what restarts it need not know. */
static int find_checkpoint(struct train_options *o)
{
    if (!o->resume)
        return 0;
    bool named = *o->resume;
    int code = zinf_checkpoint_find(named ? o->resume : o->output, &o->checkpoint);
    if (code == -ENOENT && !named && o->common.model)
        code = 0;
    if (o->checkpoint && !o->common.model)
        o->common.model = o->checkpoint;
    return code ? zinf_fail_in(code, "--resume") : 0;
}

static int run(int argc, char **argv)
{
    struct train_options o = {.common = ZINF_JOB_DEFAULT, .scores = CLI_SCORES_DEFAULT};
    struct zinf_job *c = &o.common;
    const struct cli_option options[] = {
        {"--model", CLI_STRING, &c->model, 0, 0},
        {"--init", CLI_FLAG, &c->task.fresh, 0, 0},
        {"--adapter", CLI_STRING, &c->adapter, 0, 0},
        {"--data", CLI_STRINGS, &o.data, 0, 0},
        CLI_DEVICE_OPTIONS(c),
        CLI_SEAT_OPTIONS(c),
        {"--output", CLI_STRING, &o.output, 0, 0},
        CLI_STEP_OPTIONS(c),
        CLI_LENGTH_OPTIONS(c),
        {"--seed", CLI_INT, &c->seed, 0, 9e15},
        {"--no-shuffle", CLI_FLAG, &o.no_shuffle, 0, 0},
        {"--eval-data", CLI_STRINGS, &o.eval_data, 0, 0},
        CLI_SAMPLE_OPTIONS(c),
        CLI_GROUP_OPTION(c),
        CLI_TASK_OPTIONS(c),
        CLI_HEAD_OPTIONS(c),
        {"--eval-every", CLI_INT, &o.eval_every, 1, 1e12},
        CLI_SCORE_OPTIONS(&o.scores),
        {"--save-every", CLI_INT, &o.save_every, 1, 1e12},
        {"--save-total-limit", CLI_INT, &o.save_total_limit, 1, 1e9},
        {"--no-final-checkpoint", CLI_FLAG, &o.no_final_checkpoint, 0, 0},
        {"--overwrite", CLI_FLAG, &o.overwrite, 0, 0},
        CLI_BEST_OPTIONS(c),
        {"--epochs", CLI_DOUBLE, &o.epochs, 1e-9, 1e9},
        {"--resume", CLI_MAYBE, &o.resume, 0, 0},
        {"--log", CLI_STRING, &o.log, 0, 0},
        {"--tensorboard", CLI_STRING, &o.tensorboard, 0, 0},
        {"--progress", CLI_STRING, &o.progress, 0, 0},
    };
    int code = cli_parse(&cli_train, options, sizeof options / sizeof *options, NULL, argc, argv);
    if (code == 1)
        return CLI_OK;
    if (!o.output)
        o.output = "zinf-output";
    if (!code && !o.data.n)
        code = zinf_fail(-EINVAL, "--data FILE is missing");
    if (!code && o.epochs > 0 && c->steps >= 0)
        code = zinf_fail(-EINVAL, "--epochs and --steps both say how long: give one of them");
    if (!code)
        code = cli_scores_check(&o.scores);
    if (!code && o.scores.run.n && !o.eval_data.n)
        code = zinf_fail(-EINVAL, "--metric is of evaluations: pass --eval-data");
    if (!code && o.overwrite && o.resume)
        code = zinf_fail(-EINVAL, "--overwrite begins anew and --resume goes on: give one of them");
    if (!code && o.progress)
        code = cli_progress_parse(o.progress, &o.progress_mode);
    int found = code ? 0 : find_checkpoint(&o);
    if (!code && !found)
        code = zinf_job_check(c);
    if (code)
        return cli_error(&cli_train, CLI_USAGE);
    int status = found ? cli_error(&cli_train, CLI_FAILED) : train(&o);
    free(o.checkpoint);
    return status;
}

const struct cli_command cli_train = {
    .name = "train",
    .summary = "train a model",
    .usage = USAGE_TRAIN,
    .run = run,
};
