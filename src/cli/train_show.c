/* train_show: the events of a run, as progress and as what the summaries need. */
#include "cli/train_show.h"
#include "base/apart.h"
#include "cli/plot/plot.h"
#include "cli/tb_events.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* Event files are a copy for others: where they cannot be written, training goes on without. */
static void lose_events(struct train_show *s)
{
    zinf_log(ZINF_LOG_WARN, "no more event files for TensorBoard: %s", zinf_error());
    tb_writer_close(s->events);
    s->events = NULL;
}

static void open_events(struct train_show *s)
{
    const struct zinf_config *c = s->session->config;
    char *folder = s->tensorboard ? strdup(s->tensorboard) : NULL;
    if (!folder && c->tensorboard_enabled)
        folder = *c->tensorboard_output_path
                     ? zinf_path_join(c->tensorboard_output_path, c->tensorboard_job_name)
                     : strdup(c->tensorboard_job_name);
    if (folder && tb_writer_open(&s->events, folder, tb_wall_seconds()))
        lose_events(s);
    free(folder);
}

#define MOST_TAG (ZINF_MOST_SET_NAME + 64)
struct tb_figure {
    const char *tag;
    double value;
};

static void write_figures(struct train_show *s, uint64_t step, const struct tb_figure *figures,
                          size_t n)
{
    double wall = tb_wall_seconds();
    for (size_t i = 0; s->events && i < n; i++)
        if (tb_writer_scalar(s->events, wall, (int64_t)step, figures[i].tag, figures[i].value))
            lose_events(s);
}

/* what: "train/", "eval/" or, of a set, "eval/NAME_". */
static void write_rewards(struct train_show *s, uint64_t step, const char *what,
                          const struct zinf_rewards *r)
{
    const struct tb_figure figures[] = {{"chosen", r->chosen},
                                        {"rejected", r->rejected},
                                        {"margins", r->chosen - r->rejected},
                                        {"accuracies", r->accuracy}};
    for (size_t i = 0; r->n && i < sizeof figures / sizeof *figures; i++) {
        char tag[MOST_TAG];
        if (!isfinite(figures[i].value))
            continue;
        snprintf(tag, sizeof tag, "%srewards/%s", what, figures[i].tag);
        write_figures(s, step, &(struct tb_figure){tag, figures[i].value}, 1);
    }
}

/* Tags as Hugging Face's Trainer has them, against the step. */
static void write_events(struct train_show *s, const struct zinf_step_result *r)
{
    const struct tb_figure values[] = {{"train/loss", r->loss},
                                       {"train/grad_norm", r->grad_norm},
                                       {"train/learning_rate", r->lr},
                                       {"train/epoch", train_summary_epochs(s, r->step)},
                                       {"train/tokens_per_second", (double)r->tokens / r->seconds}};
    write_figures(s, r->step, values, sizeof values / sizeof *values);
    write_rewards(s, r->step, "train/", &r->rewards);
}

static void print_plan(const struct train_show *s, const struct zinf_trainer *trainer)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return;
    if (memcmp(s->all.most, s->all.least, sizeof s->all.most))
        fprintf(out, "plan: the lines below are those of rank 0\n");
    zinf_trainer_print_plan(trainer, out);
    if (!fclose(out))
        cli_print_lines(stderr, text);
    free(text);
}

static void on_planned(void *arg, const struct zinf_trainer *trainer)
{
    struct train_show *s = arg;
    s->all = zinf_trainer_planned(trainer);
    memcpy(s->planned, s->all.process, sizeof s->planned);
    s->gpu = zinf_trainer_gpu(trainer);
    if (s->shows_plan)
        print_plan(s, trainer);
    s->is_filled = zinf_trainer_filled(trainer, s->filled);
    train_summary_begin(s, trainer);
    open_events(s);
    s->begin_ns = zinf_now_ns();
}

static void keep_loss(struct train_show *s, double loss)
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

/* A run that learns nothing more goes on to its end without a complaint of its own: its loss has
 * grown tenfold, or no gradient is left although there is a loss. */
static void look_for_collapse(struct train_show *s, const struct zinf_step_result *r)
{
    const bool grown = s->least_loss > 0 && r->loss > 10 * s->least_loss &&
                       r->loss > s->first_loss && r->loss - s->least_loss > 1;
    const bool still = r->grad_norm == 0 && r->loss > 1 && r->lr > 0;
    if (r->skipped || s->collapsed || !(grown || still))
        return;
    s->collapsed = true;
    zinf_log(ZINF_LOG_WARN,
             "step %llu: the training has collapsed: the loss is %.4g after %.4g, and the norm of "
             "the gradient %.3g; a smaller --lr, or gradient_clipping, keeps it from that",
             (unsigned long long)r->step, r->loss, s->least_loss, r->grad_norm);
}

static void count(struct train_show *s, const struct zinf_step_result *r)
{
    if (!s->n_steps++)
        s->first_loss = s->least_loss = r->loss;
    look_for_collapse(s, r);
    if (r->loss < s->least_loss)
        s->least_loss = r->loss;
    s->last_loss = r->loss;
    s->last_step = r->step;
    s->tokens += r->tokens;
    s->drive_read += r->lane_bytes[0];
    s->drive_written += r->lane_bytes[1];
    s->n_skipped += r->skipped;
    if (!r->skipped)
        keep_loss(s, r->loss);
}

static void on_stepped(void *arg, const struct zinf_step_result *r, uint64_t steps)
{
    struct train_show *s = arg;
    char text[200], scale[32] = "", norm[32], rewards[48] = "";
    bool first = !s->n_steps;
    if (first) {
        cli_progress_begin(&s->progress, s->mode, "step", steps);
        s->progress.first = r->step; /* the clock of the ETA starts here */
    }
    count(s, r);
    write_events(s, r);
    if (r->loss_scale != 1)
        snprintf(scale, sizeof scale, "  scale %g", r->loss_scale);
    snprintf(norm, sizeof norm, r->grad_norm < 1e5 ? "%.3f" : "%.3g", r->grad_norm);
    if (r->rewards.n)
        snprintf(rewards, sizeof rewards, "  margin %.3f  right %.0f %%",
                 r->rewards.chosen - r->rewards.rejected, 100 * r->rewards.accuracy);
    snprintf(text, sizeof text, "loss %.4f%s  norm %s  lr %.3g  %.0f tok/s  [%s]%s%s", r->loss,
             rewards, norm, r->lr, (double)r->tokens / r->seconds, r->bottleneck, scale,
             r->skipped ? "  SKIPPED (overflow)" : "");
    bool print =
        first || r->step == steps || r->skipped || (s->every && r->step % (uint64_t)s->every == 0);
    cli_progress_update(&s->progress, r->step, text, print);
    if (s->session->config->wall_clock_breakdown)
        show_breakdown(r);
}

/* As Trainer's callback has it: "eval/NAME_loss". */
static const char *set_tag(char out[MOST_TAG], const char *set, const char *figure)
{
    snprintf(out, MOST_TAG, "eval/%s%s%s", set ? set : "", set ? "_" : "", figure);
    return out;
}

static const char *set_word(char out[ZINF_MOST_SET_NAME + 8], const char *set)
{
    snprintf(out, ZINF_MOST_SET_NAME + 8, "%s%s", set ? set : "", set ? " " : "");
    return out;
}

static void keep_evaluation(struct train_show *s, const struct zinf_evaluation *found)
{
    const struct zinf_dataset *data = s->session->eval_data;
    const uint32_t n = zinf_dataset_n_parts(data);
    if (!s->evaluations)
        s->evaluations = calloc(n, sizeof *s->evaluations);
    s->n_evaluations = s->evaluations ? n : 0; /* without memory it is not told again at the end */
    for (uint32_t i = 0; i < s->n_evaluations; i++)
        if (zinf_dataset_part_name(data, i) == found->set)
            s->evaluations[i] = *found;
}

static void on_evaluated(void *arg, uint64_t step, const struct zinf_evaluation *found)
{
    struct train_show *s = arg;
    char rewards[80] = "", tag[MOST_TAG], name[ZINF_MOST_SET_NAME + 8];
    keep_evaluation(s, found);
    const struct tb_figure loss = {set_tag(tag, found->set, "loss"), found->loss};
    write_figures(s, step, &loss, 1);
    write_rewards(s, step, set_tag(tag, found->set, ""), &found->rewards);
    if (found->rewards.n)
        snprintf(rewards, sizeof rewards, ", margin %.3f, right %.1f %%",
                 found->rewards.chosen - found->rewards.rejected, 100 * found->rewards.accuracy);
    if (job_is_of_samples(s->session->task))
        zinf_log(ZINF_LOG_INFO, "step %llu: eval %sloss %.4f%s over %llu %s",
                 (unsigned long long)step, set_word(name, found->set), found->loss, rewards,
                 (unsigned long long)found->tokens, found->rewards.n ? "pairs" : "samples");
    else
        zinf_log(ZINF_LOG_INFO, "step %llu: eval %sloss %.4f, perplexity %.2f over %llu tokens",
                 (unsigned long long)step, set_word(name, found->set), found->loss,
                 exp(found->cross_entropy), (unsigned long long)found->tokens);
}

static void on_scored(void *arg, uint64_t step, const char *set, const char *metric, double value)
{
    struct train_show *s = arg;
    char tag[MOST_TAG], name[ZINF_MOST_SET_NAME + 8];
    set_tag(tag, set, metric);
    if (s->events && tb_writer_scalar(s->events, tb_wall_seconds(), (int64_t)step, tag, value))
        lose_events(s);
    zinf_log(ZINF_LOG_INFO, "step %llu: eval %s%s %.4f", (unsigned long long)step,
             set_word(name, set), metric, value);
}

static void on_saved(void *arg, uint64_t step, const char *folder)
{
    struct train_show *s = arg;
    if (strstr(folder, "checkpoint-")) {
        free(s->checkpoint);
        s->checkpoint = strdup(folder);
    }
    zinf_log(ZINF_LOG_INFO, "step %llu: saved %s", (unsigned long long)step, folder);
}

static void on_ended(void *arg, const struct zinf_run_best *best)
{
    struct train_show *s = arg;
    s->best = *best;
    s->last_step = best->last_step; /* also where none was made here */
}

struct zinf_run_events train_show_events(struct train_show *show)
{
    return (struct zinf_run_events){on_planned, on_stepped, on_evaluated, on_scored,
                                    on_saved,   on_ended,   show};
}

/* Made of the log, which has the steps of earlier processes too. In a folder of its own: beside
 * checkpoints a file of that name would be taken for one's. */
static void write_trainer_state(const struct train_show *s)
{
    struct plot_run run;
    char *log = s->session->run.log_path ? strdup(s->session->run.log_path)
                                         : zinf_path_join(s->session->job.output, "log.jsonl");
    char *folder = zinf_path_join(s->session->job.output, "history"), *path = NULL;
    int code = folder ? zinf_apart_no_link(folder) : -ENOMEM;
    if (!code)
        code = zinf_make_dirs(folder);
    if (!code)
        path = zinf_path_join(folder, "trainer_state.json");
    if (!code)
        code = log && path ? plot_run_read(&run, log) : -ENOMEM;
    if (!code) {
        const struct zinf_config *c = s->session->config;
        run.batch = (double)c->train_batch_size;
        run.micro_batch = (double)c->micro_batch;
        run.steps = (double)s->session->run.steps;
        run.windows =
            (double)zinf_dataset_n_windows(s->session->data) / (double)job_windows(s->session, 1);
        code = plot_trainer_state_write(&run, path);
        plot_run_fini(&run);
    }
    if (code)
        zinf_log(ZINF_LOG_WARN, "no trainer_state.json: %s", zinf_error());
    free(folder);
    free(path);
    free(log);
}

void train_show_end(struct train_show *s, int code, bool stopped)
{
    cli_progress_end(&s->progress);
    tb_writer_close(s->events);
    s->events = NULL;
    if (!code && s->n_steps)
        write_trainer_state(s);
    if (!code) {
        if (s->n_losses > 1 && s->chart)
            cli_chart(stderr, "loss", s->losses, s->n_losses, 10, 64);
        train_summary_end(s, stopped);
        if (s->json || !isatty(STDOUT_FILENO))
            train_summary_json(s);
    }
    if (!code && s->last_step < s->session->run.steps && stopped)
        zinf_log(ZINF_LOG_INFO,
                 "stopped after step %llu of %llu: to go on, repeat the command with --resume",
                 (unsigned long long)s->last_step, (unsigned long long)s->session->run.steps);
    free(s->checkpoint);
    s->checkpoint = NULL;
    free(s->evaluations);
    s->evaluations = NULL;
    s->n_evaluations = 0;
}
