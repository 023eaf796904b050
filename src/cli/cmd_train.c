/* train: the main job. Opens everything, then hands over to the run and shows its events. */
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/data.h"
#include "cli/estimate.h"
#include "cli/usage.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t stop_asked, save_asked;

static void ask_stop(int signal_number)
{
    /* A second signal ends the process at once; the next run reclaims its files. */
    signal(signal_number, SIG_DFL);
    stop_asked = 1;
}

static void ask_save(int signal_number)
{
    (void)signal_number;
    save_asked = 1;
}

struct shown {
    struct cli_progress progress;
    enum cli_progress_mode mode;
    int64_t every; /* plain lines: every so many steps */
    double *losses;
    size_t n_losses, capacity;
    uint64_t n_steps, last_step; /* of this process; of the training */
    double first_loss, last_loss;
    bool breakdown;
    uint64_t planned_bytes; /* device and host; on the host device both are RAM */
};

static void on_planned(void *arg, const struct zinf_trainer *trainer)
{
    struct shown *s = arg;
    s->planned_bytes = zinf_trainer_planned_bytes(trainer, ZINF_MEMORY_DEVICE) +
                       zinf_trainer_planned_bytes(trainer, ZINF_MEMORY_HOST);
    zinf_trainer_print_plan(trainer, stderr);
}

static void keep_loss(struct shown *s, double loss)
{
    if (s->n_losses == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 256;
        double *losses = realloc(s->losses, capacity * sizeof *losses);
        if (!losses)
            return; /* the chart is shorter: no reason to stop training */
        s->losses = losses;
        s->capacity = capacity;
    }
    s->losses[s->n_losses++] = loss;
}

static void show_breakdown(const struct zinf_step_result *r)
{
    static const char *const lanes[] = {"read", "write", "h2d", "d2h", "device", "host"};
    char line[256];
    int at = 0;
    for (int i = 0; i < 6; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, " %s %.1f", lanes[i],
                       r->lane_seconds[i] * 1e3);
    zinf_log(ZINF_LOG_INFO, "step %llu: %.1f ms; busy ms:%s; bottleneck %s",
             (unsigned long long)r->step, r->seconds * 1e3, line, r->bottleneck);
}

static void on_stepped(void *arg, const struct zinf_step_result *r, uint64_t steps)
{
    struct shown *s = arg;
    char text[160], scale[32] = "";
    bool first = !s->n_steps++;
    if (first) {
        cli_progress_begin(&s->progress, s->mode, "step", steps);
        s->progress.first = r->step; /* the clock of the ETA starts here */
        s->first_loss = r->loss;
    }
    s->last_loss = r->loss;
    s->last_step = r->step;
    if (!r->skipped)
        keep_loss(s, r->loss);
    if (r->loss_scale != 1)
        snprintf(scale, sizeof scale, "  scale %g", r->loss_scale);
    snprintf(text, sizeof text, "loss %.4f  norm %.3f  lr %.3g  %.0f tok/s  [%s]%s%s", r->loss,
             r->grad_norm, r->lr, (double)r->tokens / r->seconds, r->bottleneck, scale,
             r->skipped ? "  SKIPPED (overflow)" : "");
    bool print =
        first || r->step == steps || r->skipped || (s->every && r->step % (uint64_t)s->every == 0);
    cli_progress_update(&s->progress, r->step, text, print);
    if (s->breakdown)
        show_breakdown(r);
}

static void on_evaluated(void *arg, uint64_t step, double loss, uint64_t tokens)
{
    (void)arg;
    zinf_log(ZINF_LOG_INFO, "step %llu: eval loss %.4f, perplexity %.2f over %llu tokens",
             (unsigned long long)step, loss, exp(loss), (unsigned long long)tokens);
}

static void on_saved(void *arg, uint64_t step, const char *folder)
{
    (void)arg;
    zinf_log(ZINF_LOG_INFO, "step %llu: saved %s", (unsigned long long)step, folder);
}

/* Without --steps the configuration is read as for one, to learn the batch. */
static int read_config(struct cli_session *s, const struct cli_common *c)
{
    struct cli_common known = *c;
    known.steps = c->steps < 0 ? 1 : c->steps;
    return cli_session_config(s, &known);
}

/* --steps not given: one pass over the data. A schedule may need the number. */
static int resolve_steps(struct cli_session *s, struct cli_common *c)
{
    if (c->steps >= 0)
        return 0;
    uint64_t batch = (uint64_t)(s->config->micro_batch * s->config->accumulation);
    uint64_t steps = zinf_dataset_n_windows(s->data) / batch;
    c->steps = steps ? (int64_t)steps : 1;
    return cli_session_config(s, c);
}

struct train_options {
    struct cli_common common;
    struct cli_strings data, eval_data;
    const char *output, *log, *progress, *resume;
    char *checkpoint; /* that --resume found, or NULL */
    enum cli_progress_mode progress_mode;
    int64_t eval_every, save_every, save_total_limit;
    bool init, no_shuffle;
};

static int64_t plain_every(const struct zinf_config *config, int64_t steps)
{
    if (config->steps_per_print)
        return config->steps_per_print;
    return steps > 40 ? steps / 20 : 1;
}

/* What is checked in no time comes first: a text may take minutes. */
static int open_all(struct cli_session *s, struct train_options *o)
{
    char *cache = zinf_path_join(o->output, "cache");
    int code = cache ? cli_session_open(s, &o->common) : -ENOMEM;
    if (!code)
        code = read_config(s, &o->common);
    if (code)
        goto out;
    code = zinf_make_dirs(o->output);
    if (code)
        zinf_fail_in(code, "--output");
    if (!code)
        code = cli_session_data(s, &o->data, cache, !o->no_shuffle, (uint64_t)o->common.seed,
                                &s->data);
    if (!code && o->eval_data.n)
        code = cli_session_data(s, &o->eval_data, cache, false, 0, &s->eval_data);
    if (!code)
        code = resolve_steps(s, &o->common);
out:
    free(cache);
    return code;
}

static void print_result(const struct train_options *o, const struct shown *s)
{
    if (s->n_losses > 1 && o->progress == NULL)
        cli_chart(stderr, "loss", s->losses, s->n_losses, 10, 64);
    printf("{\"steps\": %zu, \"first_loss\": %.6g, \"final_loss\": %.6g, \"model\": \"%s/model\", "
           "\"planned_bytes\": %llu, \"peak_resident_bytes\": %llu}\n",
           s->n_losses, s->first_loss, s->last_loss, o->output,
           (unsigned long long)s->planned_bytes, (unsigned long long)zinf_memory_peak_resident());
}

static int train(struct train_options *o)
{
    struct cli_session session = {0};
    struct shown shown = {.mode = o->progress_mode};
    signal(SIGUSR1, ask_save); /* it may come early; the default would end the run */
    int code = open_all(&session, o);
    if (code)
        goto out;
    shown.every = plain_every(session.config, o->common.steps);
    shown.breakdown = session.config->wall_clock_breakdown;
    struct zinf_speeds speeds;
    const char *source;
    estimate_cached_speeds(&speeds, session.config, &source);
    struct zinf_run_options run = {
        .trainer =
            {
                .mode = ZINF_TRAINER_TRAIN,
                .model_path = o->common.model,
                .init = o->init,
                .seed = (uint64_t)o->common.seed,
                .config = session.config,
                .seq_len = session.seq_len,
                .device = session.device,
                .speeds = &speeds,
            },
        .output = o->output,
        .log_path = o->log,
        .data = session.data,
        .eval_data = session.eval_data,
        .steps = (uint64_t)o->common.steps,
        .eval_every = (uint64_t)o->eval_every,
        .save_every = (uint64_t)o->save_every,
        .save_total_limit = (uint64_t)o->save_total_limit,
        .resume = o->checkpoint,
        .resume_steps = o->resume && !*o->resume,
        .stop = &stop_asked,
        .save = &save_asked,
        .events = {on_planned, on_stepped, on_evaluated, on_saved, &shown},
    };
    signal(SIGINT, ask_stop);
    signal(SIGTERM, ask_stop);
    if (signal(SIGHUP, ask_stop) == SIG_IGN) /* nohup */
        signal(SIGHUP, SIG_IGN);
    code = zinf_run_train(&run);
    cli_progress_end(&shown.progress);
    if (!code)
        print_result(o, &shown);
    if (!code && shown.last_step < run.steps && stop_asked)
        zinf_log(ZINF_LOG_INFO,
                 "stopped after step %llu of %llu: to go on, repeat the command with --resume",
                 (unsigned long long)shown.last_step, (unsigned long long)run.steps);
out:
    cli_session_close(&session);
    free(shown.losses);
    return code;
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
    struct train_options o = {.common = CLI_COMMON_DEFAULT};
    struct cli_common *c = &o.common;
    const struct cli_option options[] = {
        {"--model", CLI_STRING, &c->model, 0, 0},
        {"--init", CLI_FLAG, &o.init, 0, 0},
        {"--data", CLI_STRINGS, &o.data, 0, 0},
        CLI_DEVICE_OPTIONS(c),
        {"--output", CLI_STRING, &o.output, 0, 0},
        {"--steps", CLI_INT, &c->steps, 0, 1e12},
        {"--seq-len", CLI_INT, &c->seq_len, 1, 1 << 24},
        {"--micro-batch", CLI_INT, &c->micro_batch, 1, 1 << 20},
        {"--accumulate", CLI_INT, &c->accumulation, 1, 1 << 14},
        {"--lr", CLI_DOUBLE, &c->lr, 0, 1e6},
        {"--dropout", CLI_DOUBLE, &c->dropout, 0, 0.999},
        {"--seed", CLI_INT, &c->seed, 0, 9e15},
        {"--no-shuffle", CLI_FLAG, &o.no_shuffle, 0, 0},
        {"--eval-data", CLI_STRINGS, &o.eval_data, 0, 0},
        {"--eval-every", CLI_INT, &o.eval_every, 1, 1e12},
        {"--save-every", CLI_INT, &o.save_every, 1, 1e12},
        {"--save-total-limit", CLI_INT, &o.save_total_limit, 1, 1e9},
        {"--resume", CLI_MAYBE, &o.resume, 0, 0},
        {"--log", CLI_STRING, &o.log, 0, 0},
        {"--progress", CLI_STRING, &o.progress, 0, 0},
    };
    int code = cli_parse(&cli_train, options, sizeof options / sizeof *options, NULL, argc, argv);
    if (code == 1)
        return CLI_OK;
    if (!o.output)
        o.output = "zinf-output";
    if (!code && !o.data.n)
        code = zinf_fail(-EINVAL, "--data FILE is missing");
    if (!code && o.progress)
        code = cli_progress_parse(o.progress, &o.progress_mode);
    int found = code ? 0 : find_checkpoint(&o);
    if (!code && !found)
        code = cli_check_common(c);
    if (code)
        return cli_error(&cli_train, CLI_USAGE);
    int status = found || train(&o) ? cli_error(&cli_train, CLI_FAILED) : CLI_OK;
    free(o.checkpoint);
    return status;
}

const struct cli_command cli_train = {
    .name = "train",
    .summary = "train a model",
    .usage = USAGE_TRAIN,
    .run = run,
};
