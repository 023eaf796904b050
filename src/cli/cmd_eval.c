/* eval: mean loss and perplexity of a model over text, and how good the texts are that it makes.
 * Ranks and seats share the data, and each has what all have measured: the first one prints it. */
#include "cli/adapters.h"
#include "cli/cli.h"
#include "cli/signals.h"

#include <math.h>
#include <stdlib.h>

/* A figure's name behind that of its set. */
static void print_key(FILE *out, const struct zinf_measure *found, const char *name)
{
    fprintf(out, "\"%s%s%s\": ", found->set ? found->set : "", found->set ? "_" : "", name);
}

/* JSON has no NaN or Inf. */
static void print_figure(FILE *out, const struct zinf_measure *found, const char *name,
                         double value)
{
    fputs(", ", out);
    print_key(out, found, name);
    if (isfinite(value))
        fprintf(out, "%.9g", value);
    else
        fputs("null", out);
}

static void print_loss(FILE *out, const struct zinf_session *s, const struct zinf_measure *found)
{
    const double loss = found->loss;
    print_key(out, found, "loss");
    if (!isfinite(loss)) {
        zinf_log(ZINF_LOG_WARN, "the loss is not finite: %s",
                 s->config->dtype == ZINF_DTYPE_F16
                     ? "activations are beyond the largest number of fp16, 65504: --dtype bf16, "
                       "or fp32"
                     : "the model's weights or activations are not");
        fputs("null", out);
        return;
    }
    fprintf(out, "%.9g", loss);
    if (!job_is_of_samples(s->task) && s->task != ZINF_TASK_CHOICE)
        print_figure(out, found, "perplexity", exp(found->cross_entropy));
}

/* Rewards under TRL's names. */
static void print_set(FILE *out, const struct zinf_session *s, const struct zinf_measure *found)
{
    print_loss(out, s, found);
    fputs(", ", out);
    print_key(out, found,
              s->task == ZINF_TASK_CHOICE  ? "questions"
              : job_is_of_samples(s->task) ? "samples"
                                           : "tokens");
    fprintf(out, "%llu", (unsigned long long)found->tokens);
    if (found->pairs) {
        print_figure(out, found, "rewards/chosen", found->chosen);
        print_figure(out, found, "rewards/rejected", found->rejected);
        print_figure(out, found, "rewards/margins", found->chosen - found->rejected);
        print_figure(out, found, "rewards/accuracies", found->accuracy);
    }
    if (found->pairs && !strcmp(s->config->preference, "kto"))
        print_figure(out, found, "kl", found->kl);
    for (uint32_t i = 0; i < found->n_scores; i++)
        print_figure(out, found, found->scores[i].name, found->scores[i].value);
}

static void print(FILE *out, const struct zinf_session *s, const struct zinf_measure *found)
{
    fputc('{', out);
    for (; found; found = found->next) {
        print_set(out, s, found);
        if (found->next)
            fputs(", ", out);
    }
    fputs("}\n", out);
}

/* The same, or of questions all that is known of subjects and groups. */
static int write_results(const struct zinf_session *s, const struct zinf_measure *found,
                         const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    int code = zinf_apart_check("--output", path, ZINF_WRITTEN_FILE, &s->origins);
    if (code)
        return code;
    if (s->task == ZINF_TASK_CHOICE) {
        cJSON *json = job_choices_json(s);
        text = cJSON_Print(json);
        cJSON_Delete(json);
    } else {
        FILE *out = open_memstream(&text, &bytes);
        if (out) {
            print(out, s, found);
            fclose(out);
        }
    }
    if (!text)
        return zinf_fail(-ENOMEM, "no memory for --output");
    code = zinf_file_write_atomic(path, text, strlen(text));
    free(text);
    return code ? zinf_fail_in(code, "--output") : 0;
}

static const char usage[] =
    "usage: zinf eval --model DIR --data FILE... [options]\n"
    "\n"
    "Measures a model on data and prints {\"loss\", \"perplexity\", \"tokens\"} and the\n"
    "metrics that it is asked for.\n";

struct evaluating {
    struct cli_adapters adapters;
    const char *output;
};

/* clang-format off */
static const struct option own_rows[] = {
    OPTION("--adapter", TEXTS, .offset = offsetof(struct evaluating, adapters.words), "DIR...",
     "and adapters of it, as PEFT writes them; several add up, DIR=0.5 by half"),
    OPTION("--output", TEXT, .offset = offsetof(struct evaluating, output), "FILE",
     "write the results as JSON, of questions also by subject and group", .aliases = "output_path"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    CLI_DOOR(job_model),
    {.rows = own_rows},
    CLI_DOOR(job_rows),
    CLI_DOOR(job_task),
    CLI_DOOR(job_embedding),
    CLI_DOOR(job_seq),
    CLI_DOOR(job_source),
    CLI_DOOR(job_pad),
    CLI_DOOR(job_micro),
    CLI_DOOR(job_dtype),
    CLI_DOOR(job_metrics),
    CLI_DOOR(generate_least),
    CLI_DOOR(job_predictions),
    CLI_DOOR(job_choices),
    CLI_DOOR(job_pairs),
    CLI_DOOR(job_device),
    CLI_DOOR(job_seats),
    CLI_DOOR(job_tensor),
    CLI_DOOR(job_context),
    CLI_DOOR(job_pipeline),
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    int code = cli_need_data(call->session);
    return code ? code : job_scores_check(call->session);
}

static int work(struct cli_call *call)
{
    struct zinf_measure found = ZINF_SIZED(struct zinf_measure);
    struct evaluating *e = call->options;
    struct zinf_session *s = call->session;
    int code = cli_adapters_open(&e->adapters, &s->job.adapter);
    s->run.stuck = cli_signals_stuck;
    if (!code)
        code = zinf_session_evaluate(s, &found);
    if (!code && job_ranks_is_first(s->net))
        print(stdout, s, &found);
    if (!code && e->output && job_ranks_is_first(s->net))
        code = write_results(s, &found, e->output);
    cli_adapters_close(&e->adapters);
    return code;
}

const struct cli_command cli_eval = {
    .name = "eval",
    .summary = "loss of a model over text, and metrics of what it writes",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct evaluating),
    .check = check,
    .work = work,
};
