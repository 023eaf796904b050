/*
 * train: use of the library: plan a training, train on rows that the program makes, evaluate,
 * generate a text, and take single steps.
 *
 *     cc train.c -o train $(pkg-config --cflags --libs zinf)
 *     zinf init --arch gpt2 --size small --layers 2 --hidden 64 --heads 2 \
 *         --tokenizer bytes --context 64 --output model
 *     ./train model output
 */
#include <zinf/api.h>
#include <zinf/base.h>

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 200, STEPS = 20 };

/* A row is a JSON object, as on one line of a .jsonl file. */
static int next_row(void *arg, const char **row)
{
    static char text[96];
    int *n = arg;
    if (*n == ROWS)
        return 0;
    snprintf(text, sizeof text, "{\"text\": \"%d and %d are %d, says the book of sums.\"}", *n % 10,
             *n % 7, *n % 10 + *n % 7);
    ++*n;
    *row = text;
    return 1;
}

static void stepped(void *arg, const struct zinf_step *step)
{
    (void)arg;
    if (step->step % 5 == 0)
        printf("step %llu of %llu: loss %.4f\n", (unsigned long long)step->step,
               (unsigned long long)step->steps, step->loss);
}

/* What the library says beside its errors. */
static void say(enum zinf_log_level level, const char *line, void *arg)
{
    (void)arg;
    if (level <= ZINF_LOG_WARN)
        fprintf(stderr, "%s\n", line);
}

static int train(const char *model, const char *output)
{
    const struct zinf_setting options[] = {
        {"model", model},     {"output", output}, {"overwrite", "true"}, {"seq-len", "32"},
        {"micro-batch", "4"}, {"steps", "20"},    {"lr", "1e-3"},        {"device", "host"},
        {"format", "text"},   {"dtype", "fp32"},
    };
    const struct zinf_events events = {.size = sizeof events, .stepped = stepped};
    struct zinf_plan plan = ZINF_SIZED(struct zinf_plan);
    struct zinf_session *session;
    int n = 0;
    const struct zinf_row_source rows = {.size = sizeof rows, .next = next_row, .arg = &n};
    int code = zinf_session_open(&session, options, sizeof options / sizeof *options);
    if (!code)
        code = zinf_session_plan(session, &plan);
    if (!code)
        printf("%llu parameters, %llu bytes of RAM\n", (unsigned long long)plan.params,
               (unsigned long long)(plan.host_bytes + plan.device_bytes));
    if (!code)
        code = zinf_session_rows(session, ZINF_ROWS_OF_TRAINING, &rows);
    if (!code)
        code = zinf_session_train(session, &events);
    zinf_session_close(session);
    return code;
}

/* Of the model that the training left: its loss, a text, and one more step on ids of our own. */
static int use(const char *model, const char *output)
{
    const struct zinf_setting options[] = {
        {"model", model},     {"output", output},       {"device", "host"},   {"seq-len", "32"},
        {"micro-batch", "1"}, {"max-new-tokens", "16"}, {"temperature", "0"}, {"format", "text"},
    };
    struct zinf_measure found = ZINF_SIZED(struct zinf_measure);
    struct zinf_step step = ZINF_SIZED(struct zinf_step);
    struct zinf_session *session;
    int64_t samples, tokens;
    int32_t ids[32], targets[32];
    char *text = NULL;
    int n = 0;
    const struct zinf_row_source rows = {.size = sizeof rows, .next = next_row, .arg = &n};
    int code = zinf_session_open(&session, options, sizeof options / sizeof *options);
    if (!code)
        code = zinf_session_rows(session, ZINF_ROWS_OF_EVALUATION, &rows);
    if (!code)
        code = zinf_session_evaluate(session, &found);
    if (!code)
        printf("loss %.4f of %llu tokens\n", found.loss, (unsigned long long)found.tokens);
    if (!code)
        code = zinf_session_generate(session, "3 and 3 are", &text);
    if (!code)
        printf("3 and 3 are%s\n", text);
    free(text);
    if (!code)
        code = zinf_session_batch(session, &samples, &tokens);
    for (int i = 0; i < 32; i++) {
        ids[i] = 'a' + i % 3;
        targets[i] = 'a' + (i + 1) % 3;
    }
    if (!code && samples * tokens == 32)
        code = zinf_session_step(session, ids, targets, &step);
    if (!code)
        printf("a step of our own: loss %.4f\n", step.loss);
    if (!code)
        code = zinf_session_save(session, output);
    zinf_session_close(session);
    return code;
}

int main(int argc, char **argv)
{
    char model[512], again[512];
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL OUTPUT\n", argv[0]);
        return 2;
    }
    zinf_log_set_sink(say, NULL);
    snprintf(model, sizeof model, "%s/model", argv[2]);
    snprintf(again, sizeof again, "%s/again", argv[2]);
    int code = train(argv[1], argv[2]);
    if (!code)
        code = use(model, again);
    if (code)
        fprintf(stderr, "train: %s\n", zinf_error());
    return code ? EXIT_FAILURE : EXIT_SUCCESS;
}
