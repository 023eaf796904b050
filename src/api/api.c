/*
 * api: sessions over what the files beside this one open. A trainer is made by the first call that
 * needs one and stays; one that only computes gives way to one that trains.
 */
#include "api/api.h"

#include "api/generate.h"
#include "api/rows.h"
#include "api/training.h"
#include "train/estimate.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ROWS 512 /* new tokens of a call, where texts are made */

struct opened {
    struct zinf_session session; /* the first: what a caller holds is this */
    struct zinf_job job;
    struct generate_settings settings, asked; /* asked: by options, the other with the folder's */
    struct zinf_trainer *trainer, *generator;
    bool trains;
    uint64_t n_steps;
    char **texts; /* of options, copied */
    size_t n_texts;
    char *rows[2];              /* files of zinf_session_rows */
    volatile sig_atomic_t stop; /* asked for by zinf_session_cancel */
    const struct zinf_events *events;
    uint64_t steps; /* of the run */
};

#define AT(field) .at = offsetof(struct opened, field)
static const struct option_group groups[] = {
    {.rows = job_model, AT(job)},
    {.rows = job_begin, AT(job)},
    {.rows = job_rows, AT(job)},
    {.rows = job_task, AT(job)},
    {.rows = job_head, AT(job)},
    {.rows = job_eval, AT(job)},
    {.rows = job_seq, AT(job)},
    {.rows = job_source, AT(job)},
    {.rows = job_shuffle, AT(job)},
    {.rows = job_group, AT(job)},
    {.rows = job_pad, AT(job)},
    {.rows = job_seed, AT(job)},
    {.rows = job_output, AT(job)},
    {.rows = job_saves, AT(job)},
    {.rows = job_epochs, AT(job)},
    {.rows = job_step, AT(job)},
    {.rows = job_pairs, AT(job)},
    {.rows = job_dtype, AT(job)},
    {.rows = job_device, AT(job)},
    {.rows = job_seats, AT(job)},
    {.rows = job_best, AT(job)},
    {.rows = generate_rows, AT(asked)},
    {.rows = NULL},
};

static struct opened *of(struct zinf_session *session)
{
    return (struct opened *)session;
}

/* ---- options ---- */

static const char *keep(struct opened *o, const char *text)
{
    char *copy = strdup(text);
    if (copy)
        o->texts[o->n_texts++] = copy;
    return copy;
}

static int take(struct opened *o, const struct zinf_setting *setting)
{
    const struct option_group *group;
    const char *fixed;
    const struct option *option =
        option_find(groups, setting->name, strlen(setting->name), &group, &fixed);
    if (!option)
        return option_fail_unknown(groups, "unknown option", setting->name);
    const char *text = setting->text ? setting->text : "";
    if (fixed && !strcmp(text, "false"))
        return 0;
    text = keep(o, fixed ? fixed : text);
    if (!text)
        return zinf_fail(-ENOMEM, "no memory for options");
    return option_read(option, group, text, option->flag + strlen("--"), o);
}

int zinf_session_open(struct zinf_session **out, const struct zinf_setting *options, size_t n)
{
    struct opened *o = calloc(1, sizeof *o);
    *out = NULL;
    if (!o || !(o->texts = calloc(n + 2, sizeof *o->texts))) {
        free(o);
        return zinf_fail(-ENOMEM, "no memory for a session");
    }
    o->job = (struct zinf_job)ZINF_JOB_DEFAULT;
    o->asked = (struct generate_settings)GENERATE_SETTINGS_UNSAID;
    int code = option_read_usual(groups, o);
    for (size_t i = 0; !code && i < n; i++)
        code = take(o, &options[i]);
    if (!code)
        code = zinf_job_need("option model", o->job.model || o->job.resume ? o : NULL);
    if (code)
        zinf_session_close(&o->session);
    else
        *out = &o->session;
    return code;
}

void zinf_session_close(struct zinf_session *session)
{
    struct opened *o = of(session);
    if (!o)
        return;
    zinf_trainer_destroy(o->trainer);
    zinf_trainer_destroy(o->generator);
    zinf_session_end(session);
    for (size_t i = 0; i < o->n_texts; i++)
        free(o->texts[i]);
    for (int i = 0; i < 2; i++)
        if (o->rows[i]) {
            unlink(o->rows[i]);
            free(o->rows[i]);
        }
    free(o->texts);
    free(o);
}

/* A struct of the caller, who may know fewer of its fields. */
static void give(void *to, const void *from, size_t bytes)
{
    size_t known = *(const size_t *)to;
    if (known > sizeof known)
        memcpy((char *)to + sizeof known, (const char *)from + sizeof known,
               (known < bytes ? known : bytes) - sizeof known);
}

/* ---- rows ---- */

static int drain(FILE *file, int (*next)(void *arg, const char **row), void *arg)
{
    const char *row;
    int more;
    while ((more = next(arg, &row)) > 0)
        if (strpbrk(row, "\r\n"))
            return zinf_fail(-EINVAL,
                             "a row has an end of a line in it: give a JSON object in one");
        else if (fprintf(file, "%s\n", row) < 0)
            return zinf_fail(-EIO, "cannot write rows: %s", strerror(errno));
    return more < 0 ? zinf_fail(more, "the caller's rows ended early") : 0;
}

int zinf_session_rows(struct zinf_session *session, enum zinf_row_kind which,
                      int (*next)(void *arg, const char **row), void *arg)
{
    struct opened *o = of(session);
    char name[64];
    if (o->rows[which])
        return zinf_fail(-EEXIST, "rows were given already");
    int code = zinf_make_dirs(o->job.output);
    snprintf(name, sizeof name, ".%s-rows.jsonl", which ? "eval" : "train");
    char *path = code ? NULL : zinf_path_join(o->job.output, name);
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!code && !file)
        code = zinf_fail(-EIO, "cannot write rows to %s: %s", o->job.output, strerror(errno));
    if (!code)
        code = drain(file, next, arg);
    if (file && fclose(file) && !code)
        code = zinf_fail(-EIO, "cannot write rows to %s: %s", o->job.output, strerror(errno));
    struct zinf_words *words = which ? &o->job.eval_data : &o->job.data;
    if (!code && words->n == ZINF_MOST_WORDS)
        code = zinf_fail(-EINVAL, "there are more than %d files", ZINF_MOST_WORDS);
    if (code) {
        if (path)
            unlink(path);
        free(path);
        return code;
    }
    o->rows[which] = path;
    words->items[words->n++] = path;
    return 0;
}

/* ---- opening ---- */

static int ready(struct opened *o)
{
    struct zinf_session *s = &o->session;
    if (s->config)
        return 0;
    int code = zinf_session_begin(s, &o->job);
    if (!code)
        code = zinf_session_config(s, &o->job);
    if (code)
        zinf_session_end(s);
    return code;
}

static int need_trainer(struct opened *o, bool trains)
{
    int code = ready(o);
    if (code || (o->trainer && (o->trains || !trains)))
        return code;
    struct zinf_trainer_options options = job_trainer_options(&o->session, &o->job, NULL);
    options.mode = trains ? ZINF_TRAINER_TRAIN : ZINF_TRAINER_FORWARD;
    zinf_trainer_destroy(o->trainer);
    o->trainer = NULL;
    o->trains = trains;
    return zinf_trainer_create(&o->trainer, &options);
}

/* ---- a whole training ---- */

static void stepped(void *arg, const struct zinf_step_result *r, uint64_t steps)
{
    const struct opened *o = arg;
    const struct zinf_step step = {.size = sizeof step,
                                   .step = r->step,
                                   .steps = steps,
                                   .loss = r->loss,
                                   .grad_norm = r->grad_norm,
                                   .lr = r->lr,
                                   .seconds = r->seconds,
                                   .tokens = r->tokens,
                                   .skipped = r->skipped};
    o->events->stepped(o->events->arg, &step);
}

static void evaluated(void *arg, uint64_t step, const struct zinf_evaluation *found)
{
    const struct opened *o = arg;
    const struct zinf_measure measure = {
        .size = sizeof measure, .loss = found->loss, .tokens = found->tokens};
    o->events->evaluated(o->events->arg, step, &measure);
}

static void saved(void *arg, uint64_t step, const char *folder)
{
    const struct opened *o = arg;
    o->events->saved(o->events->arg, step, folder);
}

static struct zinf_run_events events_of(struct opened *o)
{
    struct zinf_run_events events = {.arg = o};
    if (o->events && o->events->stepped)
        events.stepped = stepped;
    if (o->events && o->events->evaluated)
        events.evaluated = evaluated;
    if (o->events && o->events->saved)
        events.saved = saved;
    return events;
}

static int train(struct opened *o, struct zinf_net *net)
{
    struct zinf_session *s = &o->session;
    struct job_seats seats;
    char *checkpoint = NULL;
    int code = job_train_find(&o->job, &checkpoint);
    if (!code)
        code = job_seats_find(&seats, &o->job, net);
    if (!code)
        code = job_train_open(s, &o->job);
    if (code && net)
        zinf_net_tell(net, zinf_error());
    if (!code) {
        struct zinf_run_options run = job_run_options(s, &o->job, net, &seats, checkpoint);
        run.stop = &o->stop;
        if (job_ranks_is_first(net))
            run.events = events_of(o);
        code = zinf_run_train(&run);
        if (!code && job_ranks_is_first(net))
            job_train_keep_template(s, &o->job);
    }
    free(checkpoint);
    return code;
}

int zinf_session_train(struct zinf_session *session, const struct zinf_events *events)
{
    struct opened *o = of(session);
    struct zinf_net *net = NULL;
    const int64_t steps = o->job.steps;
    int code = job_train_check(&o->job);
    if (code)
        return code;
    zinf_trainer_destroy(o->trainer);
    o->trainer = NULL;
    zinf_session_end(session);
    o->events = events;
    o->stop = 0;
    code = job_ranks_find(&net, &o->job);
    if (!code)
        code = train(o, net);
    zinf_net_close(net);
    zinf_session_end(session);
    o->job.steps = steps; /* another training finds its own number again */
    o->events = NULL;
    return code;
}

void zinf_session_cancel(struct zinf_session *session)
{
    of(session)->stop = 1;
}

/* ---- steps of the caller's own ---- */

int zinf_session_batch(struct zinf_session *session, int64_t *samples, int64_t *tokens)
{
    int code = ready(of(session));
    *samples = code ? 0 : session->config->micro_batch * session->config->accumulation;
    *tokens = code ? 0 : session->seq_len;
    return code;
}

int zinf_session_step(struct zinf_session *session, const int32_t *ids, const int32_t *targets,
                      struct zinf_step *result)
{
    struct opened *o = of(session);
    struct zinf_step_result r = {0};
    const struct zinf_batch batch = {
        .inputs = {[ZINF_INPUT_IDS] = ids, [ZINF_INPUT_TARGETS] = targets}};
    int code = need_trainer(o, true);
    if (!code)
        code = zinf_trainer_step(o->trainer, &batch, &r);
    if (code || !result)
        return code;
    const struct zinf_step step = {.step = r.step,
                                   .steps = o->job.steps > 0 ? (uint64_t)o->job.steps : 0,
                                   .loss = r.loss,
                                   .grad_norm = r.grad_norm,
                                   .lr = r.lr,
                                   .seconds = r.seconds,
                                   .tokens = r.tokens,
                                   .skipped = r.skipped};
    give(result, &step, sizeof step);
    return 0;
}

int zinf_session_evaluate(struct zinf_session *session, struct zinf_measure *result)
{
    struct opened *o = of(session);
    const struct zinf_words *files = o->job.eval_data.n ? &o->job.eval_data : &o->job.data;
    struct zinf_evaluation found;
    int code = zinf_job_need("option eval-data", files->n ? files : NULL);
    if (!code)
        code = ready(o);
    if (!code && !session->eval_data) /* lengths of samples may follow from them */
        code = zinf_session_data(session, &o->job, files, NULL, false, &session->eval_data);
    if (!code)
        code = need_trainer(o, false);
    if (!code)
        code = zinf_run_evaluate(o->trainer, session->config, session->eval_data, &found);
    if (!code) {
        const struct zinf_measure measure = {.loss = found.loss, .tokens = found.tokens};
        give(result, &measure, sizeof measure);
    }
    return code;
}

int64_t zinf_session_vocabulary(struct zinf_session *session)
{
    int code = ready(of(session));
    return code ? code : zinf_model_facts(session->model)->vocab;
}

int zinf_session_logits(struct zinf_session *session, const int32_t *ids, int64_t n, float *logits)
{
    int code = need_trainer(of(session), false);
    return code ? code : zinf_trainer_logits(of(session)->trainer, ids, n, logits);
}

int zinf_session_save(struct zinf_session *session, const char *folder)
{
    int code = need_trainer(of(session), false);
    return code ? code : zinf_trainer_save(of(session)->trainer, folder);
}

/* ---- texts ---- */

static int encode(struct opened *o, struct zinf_chat *chat, const char *prompt,
                  struct zinf_tokens *ids)
{
    const struct zinf_tokenizer *tokenizer = o->session.tokenizer;
    struct zinf_tokens plain = {0};
    if (chat)
        return generate_chat_encode(chat, NULL, prompt, ids);
    int code = zinf_tokenizer_encode(tokenizer, prompt, strlen(prompt), &plain);
    if (!code && !plain.count)
        code = zinf_fail(-EINVAL, "the prompt is empty: give at least one character");
    if (!code)
        code = zinf_tokenizer_frame(tokenizer, &plain, NULL, ids, NULL);
    zinf_tokens_free(&plain);
    return code;
}

/* As many tokens as the model takes, but not so many that their keys and values fill the memory. */
static int need_generator(struct opened *o, const struct zinf_text *text)
{
    const int64_t context = zinf_model_facts(o->session.model)->context;
    int64_t tokens = text->n_prompt + o->settings.max_new_tokens;
    const struct zinf_decode_shape *shape =
        o->generator ? zinf_trainer_decode_shape(o->generator) : NULL;
    tokens = tokens < context ? tokens : context;
    if (shape && shape->capacity >= tokens && shape->source_capacity >= text->n_source)
        return 0;
    struct zinf_trainer_options options = job_trainer_options(&o->session, &o->job, NULL);
    options.mode = ZINF_TRAINER_FORWARD;
    options.decode = (struct zinf_decode_shape){
        .sequences = o->settings.num_beams > 1 ? o->settings.num_beams : 1,
        .capacity = tokens,
        .rows = tokens < ROWS ? tokens : ROWS,
        .sources = text->n_source ? 1 : 0,
        .source_capacity = text->n_source,
        .source_rows = text->n_source,
    };
    zinf_trainer_destroy(o->generator);
    o->generator = NULL;
    int code = zinf_trainer_create(&o->generator, &options);
    if (code != -ENOTSUP)
        return code;
    options.decode = (struct zinf_decode_shape){0};
    options.seq_len = tokens;
    options.source_len = text->n_source;
    return zinf_trainer_create(&o->generator, &options);
}

static int decode(const struct opened *o, const struct zinf_text *text, char **out)
{
    char *before = NULL, *all = NULL;
    size_t n_before = 0, n_all = 0;
    int code = zinf_tokenizer_decode(o->session.tokenizer, text->ids, (size_t)text->n_prompt,
                                     &before, &n_before);
    if (!code)
        code = zinf_tokenizer_decode(o->session.tokenizer, text->ids,
                                     (size_t)(text->n_prompt + text->n_new), &all, &n_all);
    if (!code && n_all >= n_before) {
        memmove(all, all + n_before, n_all - n_before);
        all[n_all - n_before] = 0;
    }
    free(before);
    if (code)
        free(all);
    else
        *out = all;
    return code;
}

static int generate(struct opened *o, struct zinf_chat *chat, const char *prompt, char **out)
{
    struct zinf_generate_speed speed;
    struct zinf_tokens ids = {0};
    struct zinf_text text = {0};
    const bool answers = o->session.task == ZINF_TASK_SEQ2SEQ;
    int code = encode(o, chat, prompt, &ids);
    if (!code && answers)
        code = generate_source(&o->session, &o->job, &ids, &text);
    else if (!code)
        text = (struct zinf_text){.ids = ids.ids, .n_prompt = (int64_t)ids.count};
    if (!code)
        code = need_generator(o, &text);
    if (!code) {
        const struct zinf_generate_options options =
            generate_options(&o->settings, (uint64_t)o->job.seed);
        code = zinf_generate(o->generator, &options, &text, 1, &speed);
    }
    if (!code)
        code = decode(o, &text, out);
    if (answers || !text.ids)
        zinf_tokens_free(&ids);
    free(text.ids);
    return code;
}

int zinf_session_generate(struct zinf_session *session, const char *prompt, char **out)
{
    struct opened *o = of(session);
    struct zinf_words stops = {.n = 0};
    struct zinf_chat *chat = NULL;
    *out = NULL;
    o->settings = o->asked;
    int code = ready(o);
    if (!code)
        code = job_task_need_texts(session, &o->job);
    if (!code)
        code = zinf_session_need_tokenizer(session, &o->job);
    if (!code)
        code = generate_read_config(&o->settings, o->job.model, session->model);
    if (!code && o->job.chat_template)
        code = generate_chat_open(&chat, &o->job, session->tokenizer, &o->settings, &stops);
    if (!code)
        code = generate(o, chat, prompt, out);
    zinf_chat_close(chat);
    return code;
}

/* ---- the plan ---- */

int zinf_session_plan(struct zinf_session *session, struct zinf_plan *out)
{
    static const char *const lanes[] = {"read", "write", "h2d", "d2h", "device", "host", "net"};
    struct opened *o = of(session);
    struct zinf_estimate e;
    int code = ready(o);
    if (code)
        return code;
    const struct zinf_estimate_options options = {.trainer =
                                                      job_trainer_options(session, &o->job, NULL)};
    code = zinf_estimate(&e, &options);
    if (code)
        return code;
    struct zinf_plan plan = {.params = e.params,
                             .tokens = e.tokens,
                             .device_bytes = e.bytes[0],
                             .host_bytes = e.bytes[1],
                             .drive_bytes = e.bytes[2],
                             .device_budget = e.budget[0],
                             .host_budget = e.budget[1],
                             .step_seconds = e.step_seconds,
                             .flops = e.model_flops};
    snprintf(plan.bottleneck, sizeof plan.bottleneck, "%s", lanes[e.bottleneck]);
    snprintf(plan.schedule, sizeof plan.schedule, "%s", e.schedule);
    snprintf(plan.device, sizeof plan.device, "%s", e.device);
    give(out, &plan, sizeof plan);
    return 0;
}
