/*
 * train_summary: a training in a few lines, before it starts and at its end, in the terms that
 * people know from other trainers; and the line of JSON for programs. Lines are cut at words to the
 * width of the terminal.
 */
#include "base/memory.h"
#include "cli/data_show.h"
#include "cli/train_show.h"

#include "base/json.h"
#include "train/estimate.h"
#include <malloc.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#define LABEL_COLS 12

static void line(const char *label, const char *format, ...) ZINF_PRINTF(2, 3);
static void line(const char *label, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_print_field(stderr, label, LABEL_COLS, text);
}

/* ---- before ---- */

static double windows_a_step(const struct train_show *s)
{
    return (double)job_windows(s->session, s->session->config->train_batch_size);
}

double train_summary_epochs(const struct train_show *s, uint64_t steps)
{
    struct zinf_dataset *data = s->session->data;
    return zinf_dataset_flows(data) /* whose end is not known */
               ? 0
               : (double)steps * windows_a_step(s) / (double)zinf_dataset_n_windows(data);
}

/* "1 step", "200 steps" */
static const char *steps_text(char out[48], uint64_t n)
{
    char count[32];
    snprintf(out, 48, "%s step%s", cli_count(count, n), n == 1 ? "" : "s");
    return out;
}

static const char *order_of(const struct zinf_session *session)
{
    return !session->shuffled                 ? "in their order"
           : session->config->group_by_length ? "shuffled by length each epoch"
                                              : "shuffled each epoch";
}

static void say_files(const struct train_show *s, const char *label, struct zinf_dataset *data)
{
    char tokens[32], windows[32], cut[32];
    uint64_t n = zinf_dataset_n_windows(data), T = (uint64_t)s->session->seq_len;
    if (zinf_dataset_flows(data)) {
        line(label, "rows as they are needed, in windows of %llu, %s", (unsigned long long)T,
             s->session->shuffled ? "shuffled in groups" : "in their order");
    } else if (zinf_dataset_samples(data)) {
        char text[512], of[64];
        snprintf(of, sizeof of, " of %llu, %s", (unsigned long long)T, order_of(s->session));
        data_show_rows(text, zinf_dataset_samples(data), of);
        line(label, "%s", text);
    } else {
        uint64_t rest = zinf_dataset_n_tokens(data) - 1 - n * zinf_dataset_window_tokens(data);
        line(label, "%s tokens in %s windows of %llu, %s; %s token%s at the end %s cut",
             cli_count(tokens, zinf_dataset_n_tokens(data)), cli_count(windows, n),
             (unsigned long long)T, order_of(s->session), cli_count(cut, rest),
             rest == 1 ? "" : "s", rest == 1 ? "is" : "are");
    }
}

/* Each set of a mixture: how often a training comes to it, and how often it sees all of it. */
static void say_mixture(const struct train_show *s, struct zinf_dataset *data)
{
    const double all = (double)s->session->run.steps * windows_a_step(s);
    for (uint32_t i = 0; i < zinf_dataset_n_parts(data); i++) {
        struct zinf_dataset *part = zinf_dataset_part(data, i);
        const double share = zinf_dataset_part_share(data, i);
        const glob_t *files = &s->session->data_sets.of[i].files;
        line(i ? "" : "data", "%.4g %% of the windows are of %s%s: %.3g passes over them",
             100 * share, files->gl_pathv[0], files->gl_pathc > 1 ? " and others" : "",
             share * all / (double)zinf_dataset_n_windows(part));
        say_files(s, "", part);
    }
}

static void say_data(const struct train_show *s)
{
    char tokens[32], windows[32], every[48], sets[48] = "";
    const struct zinf_config *c = s->session->config;
    struct zinf_dataset *data = s->session->data, *eval = s->session->eval_data;
    if (zinf_dataset_n_parts(data) > 1)
        say_mixture(s, data);
    else
        say_files(s, "data", data);
    if (eval && zinf_dataset_n_parts(eval) > 1)
        snprintf(sets, sizeof sets, " of %u sets", zinf_dataset_n_parts(eval));
    if (eval)
        line("evaluation", "%s tokens in %s windows%s, %s%s",
             cli_count(tokens, zinf_dataset_n_tokens(eval)),
             cli_count(windows, zinf_dataset_n_windows(eval)), sets,
             s->session->run.eval_every ? "every " : "after the last step",
             s->session->run.eval_every ? steps_text(every, s->session->run.eval_every) : "");
    if (c->early_stopping)
        line("", "ends early after %lld in a row that are no better", (long long)c->early_stopping);
    if (c->load_best_at_end)
        line("", "the model that is left is that of the best one");
}

/* In so many windows of a mixture, without padding. */
static uint64_t tokens_of(struct zinf_dataset *data, double windows)
{
    double tokens = 0;
    for (uint32_t i = 0; i < zinf_dataset_n_parts(data); i++) {
        struct zinf_dataset *part = zinf_dataset_part(data, i);
        tokens += zinf_dataset_part_share(data, i) * windows /
                  (double)zinf_dataset_n_windows(part) * (double)zinf_dataset_n_tokens(part);
    }
    return (uint64_t)(tokens + 0.5);
}

static void say_length(const struct train_show *s)
{
    char steps[48], tokens[32], each[32], ranks[128] = "";
    const struct zinf_config *c = s->session->config;
    struct zinf_dataset *data = s->session->data;
    const bool samples = zinf_dataset_has_samples(data); /* and padding */
    uint64_t batch = (uint64_t)windows_a_step(s) * (uint64_t)s->session->seq_len;
    int64_t processes = c->world_size / (c->seats > 1 ? c->seats : 1);
    if (processes > 1)
        snprintf(ranks, sizeof ranks, " x %lld %s", (long long)processes,
                 c->seats > 1 ? "processes" : "ranks");
    if (c->seats > 1)
        snprintf(ranks + strlen(ranks), sizeof ranks - strlen(ranks), " x %lld seats",
                 (long long)c->seats);
    if (c->mesh[1] > 1) /* those have the same samples */
        snprintf(ranks + strlen(ranks), sizeof ranks - strlen(ranks), " / %lld that share tensors",
                 (long long)c->mesh[1]);
    if (c->mesh[3] > 1)
        snprintf(ranks + strlen(ranks), sizeof ranks - strlen(ranks),
                 " / %lld that share sequences", (long long)c->mesh[3]);
    if (c->mesh[2] > 1)
        snprintf(ranks + strlen(ranks), sizeof ranks - strlen(ranks), " / %lld in a pipeline",
                 (long long)c->mesh[2]);
    line("batch", "%lld %s%s a step (%lld at once x %lld%s): %s%s tokens",
         (long long)c->train_batch_size,
         job_has_pairs(s->session->task) ? "pair"
         : s->session->together > 1      ? "row"
                                         : "window",
         c->train_batch_size == 1 ? "" : "s", (long long)c->micro_batch, (long long)c->accumulation,
         ranks, samples ? "up to " : "", cli_count(each, batch));
    if (zinf_dataset_flows(data)) {
        line("length", "%s, up to %s tokens", steps_text(steps, s->session->run.steps),
             cli_count(tokens, batch * s->session->run.steps));
        return;
    }
    const double epochs = train_summary_epochs(s, s->session->run.steps);
    const uint64_t all = samples ? tokens_of(data, epochs * (double)zinf_dataset_n_windows(data))
                                 : batch * s->session->run.steps;
    line("length", "%s: %.3g epochs, %s tokens", steps_text(steps, s->session->run.steps), epochs,
         cli_count(tokens, all));
}

static void describe_schedule(const struct zinf_config *c, char *out, size_t bytes)
{
    static const char *const names[] = {"constant",       "WarmupLR",    "WarmupDecayLR",
                                        "WarmupCosineLR", "LRRangeTest", "OneCycle",
                                        "linear to 0",    "cosine to 0", "constant"};
    const struct zinf_config_scheduler *s = &c->scheduler;
    bool warms = s->kind && s->kind != ZINF_SCHEDULER_LR_RANGE_TEST &&
                 s->kind != ZINF_SCHEDULER_ONE_CYCLE && s->warmup_num_steps > 0;
    int n = snprintf(out, bytes, "%s", names[s->kind]);
    if (warms && n > 0 && (size_t)n < bytes)
        snprintf(out + n, bytes - (size_t)n, ", warm-up of %lld step%s",
                 (long long)s->warmup_num_steps, s->warmup_num_steps == 1 ? "" : "s");
    else if (s->kind >= ZINF_SCHEDULER_LINEAR && n > 0 && (size_t)n < bytes)
        snprintf(out + n, bytes - (size_t)n, ", no warm-up");
}

/* Schedules of DeepSpeed's name their own highest rate. */
static double peak_lr(const struct zinf_config *c)
{
    switch (c->scheduler.kind) {
    case ZINF_SCHEDULER_WARMUP_LR:
    case ZINF_SCHEDULER_WARMUP_DECAY_LR:
        return c->scheduler.warmup_max_lr;
    case ZINF_SCHEDULER_ONE_CYCLE:
        return c->scheduler.cycle_max_lr;
    case ZINF_SCHEDULER_LR_RANGE_TEST:
        return c->scheduler.range_min_lr;
    default:
        return c->optimizer.lr;
    }
}

static void say_optimizer(const struct train_show *s)
{
    const struct zinf_config *c = s->session->config;
    const struct zinf_config_optimizer *o = &c->optimizer;
    char schedule[96], betas[64] = "", clip[48] = "gradients are not clipped";
    describe_schedule(c, schedule, sizeof schedule);
    if (!strncmp(o->type, "Adam", 4) || !strcmp(o->type, "Lion"))
        snprintf(betas, sizeof betas, ", betas %g %g", o->beta1, o->beta2);
    if (c->gradient_clipping > 0)
        snprintf(clip, sizeof clip, "gradients clipped at norm %g", c->gradient_clipping);
    line("optimizer", "%s, lr %g (%s)%s, weight decay %g; %s", o->type, peak_lr(c), schedule, betas,
         o->weight_decay, clip);
    line("precision", "%s; master weights, moments and sums in fp32%s", zinf_dtype_name(c->dtype),
         c->dtype == ZINF_DTYPE_F16 ? "; loss scaled" : "");
}

static void say_places(const struct train_show *s)
{
    const struct zinf_config *c = s->session->config;
    static const char *const places[] = {"device", "RAM", "drive"};
    char device[16], host[16], drive[16], more[24] = "", most[256];
    if (s->session->run.seats > 1)
        snprintf(more, sizeof more, " and %u more", (unsigned)s->session->run.seats - 1);
    if (s->gpu)
        line("device", "%s%s", s->gpu, more);
    line(
        "placement",
        "parameters: %s; gradients: %s; optimizer: %s (as configured; --plan prints what is where)",
        places[c->offload_param.device], places[c->grad_device],
        places[c->offload_optimizer.device]);
    if (s->is_filled)
        line("", "%s", s->filled);
    line("memory", "device %s, RAM %s, drive %s",
         zinf_size_format(device, sizeof device, s->planned[0]),
         zinf_size_format(host, sizeof host, s->planned[1]),
         zinf_size_format(drive, sizeof drive, s->planned[2]));
    estimate_most_text(most, sizeof most, &s->all);
    if (*most)
        line("", "%s", most);
}

void train_summary_predict(struct train_show *s)
{
    struct zinf_estimate_options options = {.trainer = s->session->run.trainer};
    struct zinf_estimate estimate;
    if (s->session->run.trainer.speeds)
        options.speeds = *s->session->run.trainer.speeds;
    options.trainer.init = true;
    if (!s->session->run.steps || options.trainer.net || s->session->run.seats > 1 ||
        zinf_estimate(&estimate, &options))
        return;
    s->predicted_seconds = estimate.step_seconds;
    estimate_range(&options, &estimate, s->predicted_range);
    malloc_trim(0); /* else the plan counts what is free as the program's, beside what it takes */
}

/* From shapes and speeds alone; the first step will tell. */
static void say_prediction(const struct train_show *s)
{
    char step[32], all[32], clock[32] = "", range[112] = "", sources[512];
    bool drives = s->planned[2] > 0;
    estimate_sources_line(s->sources, drives, sources, sizeof sources);
    if (!(s->predicted_seconds > 0))
        return;
    double seconds = s->predicted_seconds * (double)s->session->run.steps;
    time_t end = time(NULL) + (time_t)fmin(seconds, 1e10);
    struct tm local;
    if (localtime_r(&end, &local))
        strftime(clock, sizeof clock, seconds < 43200 ? "%H:%M" : "%a %d %b %H:%M", &local);
    const bool varies = zinf_dataset_has_samples(s->session->data) &&
                        !s->session->run.trainer.packed &&
                        !strcmp(s->session->config->pad_to, "longest");
    cli_duration(step, s->predicted_range[0]);
    if (s->predicted_range[1] > 0 && strcmp(step, cli_duration(all, s->predicted_range[1])))
        snprintf(range, sizeof range, " (%s to %s, as the drive was measured)", step, all);
    line("predicted", "%s a step%s%s, %s for all of them, until %s; %s",
         cli_duration(step, s->predicted_seconds), varies ? " of the longest samples" : "", range,
         cli_duration(all, seconds), clock, sources);
}

/* Whichever option asked for them: one alone is enough. */
static void say_adapters(const struct train_show *s, const struct zinf_model *model)
{
    cJSON *config = NULL;
    char count[32];
    if ((!s->session->config->adapter && !s->session->job.adapter) ||
        zinf_model_adapter_config(model, "", &config))
        return;
    line("adapters", "%s of rank %g, alpha %g: %s parameters are trained, the model's are frozen",
         cJSON_IsTrue(cJSON_GetObjectItem(config, "use_dora")) ? "DoRA" : "LoRA",
         cJSON_GetNumberValue(cJSON_GetObjectItem(config, "r")),
         cJSON_GetNumberValue(cJSON_GetObjectItem(config, "lora_alpha")),
         cli_count(count, zinf_model_n_trained(model)));
    cJSON_Delete(config);
}

void train_summary_begin(const struct train_show *s, const struct zinf_trainer *trainer)
{
    char count[32];
    line("model", "%s, %s parameters", zinf_model_facts(s->session->model)->family,
         cli_count(count, zinf_model_n_params(s->session->model)));
    say_adapters(s, zinf_trainer_model(trainer));
    say_data(s);
    say_length(s);
    say_optimizer(s);
    say_places(s);
    say_prediction(s);
    line("output", "%s", s->session->job.output);
}

/* ---- after ---- */

/* Mean over the last tenth of the steps, 1 to 100 of them: one step's loss is noise. *n of them. */
static double late_loss(const struct train_show *s, size_t *n)
{
    double sum = 0;
    *n = s->n_losses / 10;
    *n = *n < 1 ? s->n_losses > 0 : *n > 100 ? 100 : *n;
    for (size_t i = 0; i < *n; i++)
        sum += s->losses[s->n_losses - 1 - i];
    return *n ? sum / (double)*n : s->last_loss;
}

static double wall_seconds(const struct train_show *s)
{
    return s->begin_ns ? (double)(zinf_now_ns() - s->begin_ns) * 1e-9 : 0;
}

/* What was saved is a model, or adapters of the one that was trained. */
static void say_next(const struct train_show *s)
{
    const enum zinf_task task = s->session->task;
    const bool scores = !job_makes_texts(task);
    const bool adapted = s->session->config->adapter || s->session->job.adapter;
    const char *chat = s->session->chats ? " --chat" : "";
    const char *name = scores && !job_is_labelled(task) ? zinf_task_name(task) : "";
    if (adapted && *name)
        line("next", "zinf eval --task %s --model %s --adapter %s/model --data FILE; zinf plot %s",
             name, s->session->job.model, s->session->job.output, s->session->job.output);
    else if (adapted)
        line("next",
             "zinf generate --model %s --adapter %s/model%s --prompt TEXT; "
             "zinf export --merge --checkpoint %s/model --output DIR; zinf plot %s",
             s->session->job.model, s->session->job.output, chat, s->session->job.output,
             s->session->job.output);
    else
        line("next", "zinf %s%s%s --model %s/model%s %s; zinf plot %s",
             scores ? "eval" : "generate", *name ? " --task " : "", name, s->session->job.output,
             scores ? "" : chat, scores ? "--data FILE" : "--prompt TEXT", s->session->job.output);
}

/* What this process did, and where the training stands, which others may have begun. */
static void say_trained(const struct train_show *s)
{
    char steps[48], all[80] = "", wall[32], tokens[32], rate[32];
    double seconds = wall_seconds(s);
    if (!s->n_steps) {
        line("trained",
             "nothing: step %llu, the last, was made before; more --steps continue from it",
             (unsigned long long)s->last_step);
        return;
    }
    if (s->last_step > s->n_steps)
        snprintf(all, sizeof all, "; with earlier ones %s", steps_text(steps, s->last_step));
    size_t used = strlen(all);
    if (!zinf_dataset_flows(s->session->data))
        snprintf(all + used, sizeof all - used, "%s%.3g epochs", used ? ", " : "; ",
                 train_summary_epochs(s, s->last_step));
    line("trained", "%s in %s: %s tokens, %s a second%s%s", steps_text(steps, s->n_steps),
         cli_duration(wall, seconds), cli_count(tokens, s->tokens),
         cli_count(rate, (uint64_t)(seconds > 0 ? (double)s->tokens / seconds : 0)), all,
         s->n_skipped ? "; some steps were skipped for overflow" : "");
}

static void describe_evaluation(char *out, size_t bytes, const struct train_show *s,
                                const struct zinf_evaluation *found)
{
    *out = 0;
    if (found->tokens && found->rewards.n)
        snprintf(out, bytes, "evaluation %.4f, %.1f %% of pairs right", found->loss,
                 100 * found->rewards.accuracy);
    else if (found->tokens && job_is_of_samples(s->session->task))
        snprintf(out, bytes, "evaluation %.4f", found->loss);
    else if (found->tokens)
        snprintf(out, bytes, "evaluation %.4f, perplexity %.4g", found->loss,
                 exp(found->cross_entropy));
}

void train_summary_end(const struct train_show *s, bool stopped)
{
    char read[32], written[32], resident[16], eval[96] = "";
    size_t n;
    double loss = late_loss(s, &n);
    say_trained(s);
    if (s->n_evaluations == 1)
        describe_evaluation(eval, sizeof eval, s, s->evaluations);
    if (s->n_steps)
        line("loss", "%.4f at first, %.4f over the last %zu%s%s", s->first_loss, loss, n,
             *eval ? "; " : "", eval);
    for (uint32_t i = 0; s->n_evaluations > 1 && i < s->n_evaluations; i++) {
        describe_evaluation(eval, sizeof eval, s, &s->evaluations[i]);
        line("", "%s: %s", s->evaluations[i].set, eval);
    }
    if (s->best.stopped_early)
        line("stopped", "early: %lld evaluations in a row were no better than that of step %llu",
             (long long)s->session->config->early_stopping, (unsigned long long)s->best.step);
    if (s->best.step && s->session->run.eval_every)
        line("best", "evaluation %.4f after step %llu%s", s->best.loss,
             (unsigned long long)s->best.step,
             s->best.is_model ? ", whose weights are the model" : "");
    if (s->drive_read + s->drive_written)
        line("drive", "%s read, %s written", zinf_size_format(read, sizeof read, s->drive_read),
             zinf_size_format(written, sizeof written, s->drive_written));
    line("memory", "%s of RAM at most",
         zinf_size_format(resident, sizeof resident, zinf_memory_peak_resident()));
    line("model", "%s/model", s->session->job.output);
    if (s->checkpoint)
        line("checkpoint", "%s%s", s->checkpoint,
             stopped ? "" : ": more --steps with --resume continue from it");
    say_next(s);
}

/* {"a": 1, "b": 2}: a line that people read too. */
static void print_spaced(const char *json)
{
    bool in_string = false;
    for (; *json; json++) {
        putchar(*json);
        if (*json == '\\' && json[1])
            putchar(*++json);
        else if (*json == '"')
            in_string = !in_string;
        else if (!in_string && (*json == ':' || *json == ','))
            putchar(' ');
    }
    putchar('\n');
}

static void add_figure(cJSON *root, const struct zinf_evaluation *found, const char *name,
                       double value)
{
    char key[ZINF_MOST_SET_NAME + 64];
    snprintf(key, sizeof key, "eval_%s%s%s", found->set ? found->set : "", found->set ? "_" : "",
             name);
    cJSON_AddNumberToObject(root, key, value);
}

static void add_evaluation(cJSON *root, const struct zinf_evaluation *found, bool samples)
{
    if (!found->tokens)
        return;
    add_figure(root, found, "loss", found->loss);
    if (!samples)
        add_figure(root, found, "perplexity", exp(found->cross_entropy));
    add_figure(root, found, samples ? "samples" : "tokens", (double)found->tokens);
    if (!found->rewards.n)
        return;
    add_figure(root, found, "rewards/chosen", found->rewards.chosen);
    add_figure(root, found, "rewards/rejected", found->rewards.rejected);
    add_figure(root, found, "rewards/margins", found->rewards.chosen - found->rewards.rejected);
    add_figure(root, found, "rewards/accuracies", found->rewards.accuracy);
}

void train_summary_json(const struct train_show *s)
{
    size_t n;
    double seconds = wall_seconds(s), loss = late_loss(s, &n);
    cJSON *root = cJSON_CreateObject();
    char *model = zinf_path_join(s->session->job.output, "model");
    cJSON_AddNumberToObject(root, "steps", (double)s->n_steps);
    cJSON_AddNumberToObject(root, "last_step", (double)s->last_step);
    cJSON_AddNumberToObject(root, "epochs", train_summary_epochs(s, s->last_step));
    cJSON_AddNumberToObject(root, "tokens", (double)s->tokens);
    if (s->n_steps) {
        cJSON_AddNumberToObject(root, "first_loss", s->first_loss);
        cJSON_AddNumberToObject(root, "final_loss", s->last_loss);
        cJSON_AddNumberToObject(root, "mean_loss", loss);
        cJSON_AddNumberToObject(root, "mean_loss_steps", (double)n);
    }
    for (uint32_t i = 0; i < s->n_evaluations; i++)
        add_evaluation(root, &s->evaluations[i], job_is_of_samples(s->session->task));
    if (s->best.step) {
        cJSON_AddNumberToObject(root, "best_step", (double)s->best.step);
        cJSON_AddNumberToObject(root, "best_eval_loss", s->best.loss);
        cJSON_AddBoolToObject(root, "best_is_model", s->best.is_model);
        cJSON_AddBoolToObject(root, "stopped_early", s->best.stopped_early);
    }
    cJSON_AddNumberToObject(root, "skipped_steps", (double)s->n_skipped);
    cJSON_AddNumberToObject(root, "wall_seconds", seconds);
    cJSON_AddNumberToObject(root, "tokens_per_second",
                            seconds > 0 ? (double)s->tokens / seconds : 0);
    cJSON_AddNumberToObject(root, "drive_bytes_read", (double)s->drive_read);
    cJSON_AddNumberToObject(root, "drive_bytes_written", (double)s->drive_written);
    cJSON_AddStringToObject(root, "model", model ? model : "");
    if (s->checkpoint)
        cJSON_AddStringToObject(root, "checkpoint", s->checkpoint);
    cJSON_AddNumberToObject(root, "planned_bytes", (double)(s->planned[0] + s->planned[1]));
    if (s->session->config->world_size > 1)
        estimate_add_most(root, &s->all);
    cJSON_AddNumberToObject(root, "peak_resident_bytes", (double)zinf_memory_peak_resident());
    char *text = cJSON_PrintUnformatted(root);
    if (text)
        print_spaced(text);
    else
        zinf_log(ZINF_LOG_ERROR, "no memory for the result");
    cJSON_free(text);
    cJSON_Delete(root);
    free(model);
}
