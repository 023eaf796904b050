/* session: model, tokenizer and configuration, in the order in which errors are most useful. */
#include "api/choices.h"

#include "base/folder.h"
#include "train/checkpoints.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of a micro batch that is only evaluated: pairs, and choices, which a question has four of. */
#define USUAL_PAIRS 2
#define USUAL_CHOICES 4

int session_need(const char *option, const void *value)
{
    return value ? 0 : zinf_fail(-EINVAL, "%s is missing", option);
}

int session_need_model(const struct zinf_session *s)
{
    return session_need("--model DIR", s->job.model);
}

/* What is often named instead of a model's folder, and what to name. 0: nothing of that. */
static int check_model_path(const char *path)
{
    struct stat info;
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    int folder = slash ? (int)(slash - path) : 1;
    if (stat(path, &info)) {
        const bool hub = slash ? slash == strchr(path, '/') && slash != path && slash[1] : true;
        if (errno == ENOENT && hub && *path && path[0] != '.')
            return zinf_fail(
                -ENOENT,
                "--model %s: no such folder; if it is a model of the Hugging Face hub, "
                "fetch it first: hf download %s --local-dir %s",
                path, path, slash ? slash + 1 : path);
        return 0;
    }
    if (!S_ISDIR(info.st_mode) && dot && (!strcmp(dot, ".safetensors") || !strcmp(dot, ".bin")))
        return zinf_fail(-ENOTDIR, "--model %s is a file of weights: name its folder, --model %.*s",
                         path, folder, slash ? path : ".");
    if (!S_ISDIR(info.st_mode) || zinf_folder_has(path, "config.json"))
        return 0;
    if (zinf_folder_has(path, "model/config.json"))
        return zinf_fail(-ENOENT,
                         "--model %s is the output of a training: its model is --model %s/model",
                         path, path);
    if (zinf_folder_has(path, "adapter_config.json"))
        return zinf_fail(-ENOTSUP,
                         "--model %s holds an adapter, not a model: --model is its base, and this "
                         "folder is --adapter",
                         path);
    return 0;
}

/* Opens the model's config.json; resolves options seq-len and device. */
static int open_model(struct zinf_session *s)
{
    const struct zinf_job *c = &s->job;
    int code = s->model ? 0 : session_need_model(s);
    if (code || s->model)
        return code;
    s->device = c->device;
    code = zinf_model_as_folder(c->model, &s->snapshot);
    if (!code && !s->snapshot && access(c->model, F_OK))
        s->snapshot = job_hub_find(c->model);
    if (s->snapshot) {
        zinf_log(ZINF_LOG_INFO, "--model %s: %s", c->model, s->snapshot);
        s->named = c->model;
        s->job.model = s->snapshot;
    }
    if (!code)
        code = check_model_path(c->model);
    if (!code)
        code = zinf_model_open(&s->model, c->model);
    if (code)
        return code;
    const struct zinf_model_facts *facts = zinf_model_facts(s->model);
    s->seq_len = c->seq_len ? c->seq_len : facts->context < 1024 ? facts->context : 1024;
    if (s->seq_len > facts->context)
        return zinf_fail(-EINVAL, "--seq-len %lld: the model's context is %lld by %s/config.json",
                         (long long)s->seq_len, (long long)facts->context, c->model);
    code = job_task_tell(s);
    if (!code)
        code = job_task_check_packed(s);
    if (!code)
        job_task_note_idle(s);
    return code;
}

int session_begin(struct zinf_session *s)
{
    const struct zinf_job *c = &s->job;
    int code = open_model(s);
    if (code || s->tokenizer)
        return code;
    code = zinf_origins_add(&s->origins, "--model", c->model);
    if (!code)
        code = zinf_origins_add(&s->origins, "--adapter", c->adapter);
    if (!code && !zinf_config_is_text(c->config))
        code = zinf_origins_add(&s->origins, "--config", c->config);
    return code ? code : zinf_tokenizer_open(&s->tokenizer, c->model);
}

/* ---- configuration ---- */

struct zinf_config_context session_context(const struct zinf_session *s)
{
    const struct zinf_job *c = &s->job;
    const bool trains = s->use == JOB_TRAINS;
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    context.settings = c->settings;
    context.world_size = c->world;
    context.seats = c->seats;
    context.seats_there = c->seats_there;
    context.steps = c->steps < 0 && !trains ? 1 : c->steps; /* schedules may ask */
    context.lenient = c->lenient;
    context.no_training = !trains;
    context.no_steps = s->use == JOB_EVALUATES || s->use == JOB_GENERATES;
    context.finds_micro_batch = trains || s->use == JOB_LOOKS;
    return context;
}

static int add_number(struct zinf_config_settings *settings, const char *key, double number)
{
    const struct zinf_config_setting setting = {.key = key, .number = number};
    return zinf_config_settings_find(settings, key) ? 0
                                                    : zinf_config_settings_add(settings, &setting);
}

/* What a use says where no option does. */
static int add_usual(const struct zinf_session *s, struct zinf_config_settings *settings)
{
    static const char micro[] = "train_micro_batch_size_per_gpu";
    static const struct zinf_config_setting reward = {.key = "zinf.preference", .text = "reward"};
    int code = 0;
    if (s->use == JOB_TEXTS || s->use == JOB_GENERATES)
        code = add_number(settings, micro, 1);
    const bool several = job_has_pairs(s->task) || s->task == ZINF_TASK_CHOICE;
    if (s->use == JOB_EVALUATES && several && !s->job.config)
        code =
            add_number(settings, micro, s->task == ZINF_TASK_CHOICE ? USUAL_CHOICES : USUAL_PAIRS);
    if (!code && s->task == ZINF_TASK_REWARD) /* the one loss that it has */
        code = zinf_config_settings_add(settings, &reward);
    return code;
}

int session_load_config(struct zinf_session *s, const struct zinf_config_context *context,
                        struct zinf_config **out)
{
    const char *path = s->job.config;
    if (!path || zinf_config_is_text(path))
        return zinf_config_load(out, path, context);
    int code = s->config_text ? 0
                              : zinf_file_read(path, ZINF_CONFIG_MOST_BYTES, &s->config_text,
                                               &s->config_bytes);
    if (code)
        return zinf_fail_in(code, "configuration");
    return zinf_config_parse(out, s->config_text, s->config_bytes, path, context);
}

int session_config(struct zinf_session *s, bool quiet)
{
    const struct zinf_config_setting *preference =
        zinf_config_settings_find(&s->job.settings, "zinf.preference");
    struct zinf_config_context context = session_context(s);
    if (s->task == ZINF_TASK_REWARD && preference)
        return zinf_fail(-EINVAL,
                         "--preference %s is of --task preference; --task reward has one loss",
                         preference->text);
    context.hidden_size = zinf_model_facts(s->model)->hidden;
    context.dtype = zinf_dtype_name(zinf_model_facts(s->model)->file_dtype);
    context.quiet = quiet;
    session_drop_trainers(s);
    zinf_config_destroy(s->config);
    s->config = NULL;
    int code = add_usual(s, &context.settings);
    return code ? code : session_load_config(s, &context, &s->config);
}

static int get_ready(struct zinf_session *s)
{
    const bool together = s->use == JOB_EVALUATES || s->use == JOB_GENERATES;
    int code = together || s->use == JOB_TRAINS ? job_ranks_find(s) : 0;
    if (!code && together) /* a training finds seats when it begins */
        code = job_seats_find(s);
    if (!code)
        code = s->use == JOB_LOOKS ? open_model(s) : session_begin(s);
    if (!code)
        code = session_config(s, false);
    if (!code && together && job_seats_leave_one(s))
        code = session_config(s, false);
    return code;
}

int session_ready(struct zinf_session *s, enum job_use use)
{
    if (s->is_broken)
        session_end(s);
    if (s->config && (use == s->use || s->use == JOB_TRAINS))
        return 0;
    s->use = use;
    return session_tell(s, get_ready(s));
}

int session_tell(struct zinf_session *s, int code)
{
    s->is_broken = code != 0;
    if (code && s->net)
        zinf_net_tell(s->net, zinf_error());
    return code;
}

/* ---- trainers ---- */

struct zinf_trainer_options session_trainer_options(const struct zinf_session *s,
                                                    enum zinf_trainer_mode mode)
{
    const struct zinf_job *c = &s->job;
    const bool trains = mode == ZINF_TRAINER_TRAIN;
    return (struct zinf_trainer_options){
        .mode = mode,
        .model_path = c->model,
        .init = trains && c->task.fresh,
        .adapter = c->adapter,
        .seed = trains ? (uint64_t)c->seed : 0,
        .config = s->config,
        .seq_len = s->seq_len,
        .source_len = s->source_len ? s->source_len : c->source_len,
        .packed = c->pack,
        .makes_texts =
            c->sample_prompts.n || c->texts.metrics.n || (trains && job_is_labelled(s->task)),
        .pairs = job_has_pairs(s->task),
        .references = s->config && job_gives_references(s) &&
                      (mode != ZINF_TRAINER_FORWARD || job_is_adapted(s)),
        .classes = s->asks_classes ? &s->classes : NULL,
        .head = s->head,
        .pooling = s->embedding.pooling,
        .together = s->together,
        .new_head = c->task.new_head,
        .class_weights = s->class_weights,
        .device = s->device,
        .net = s->net,
    };
}

int session_need_trainer(struct zinf_session *s, bool trains)
{
    int code = session_ready(s, trains ? JOB_TRAINS : s->config ? s->use : JOB_TEXTS);
    if (code || (s->trainer && (s->trains || !trains)))
        return code;
    if (trains && s->config->seats > 1)
        return zinf_fail(-ENOTSUP,
                         "--seats %lld: steps of the caller's own are of one device in "
                         "each process: --seats 1, or several processes",
                         (long long)s->config->seats);
    struct zinf_trainer_options options =
        session_trainer_options(s, trains ? ZINF_TRAINER_TRAIN : ZINF_TRAINER_FORWARD);
    session_drop_trainers(s);
    code = session_tell(s, zinf_trainer_create(&s->trainer, &options));
    s->trains = !code && trains;
    return code;
}

/* A struct of the caller, who may know fewer of its fields. */
void session_give(void *to, const void *from, size_t bytes)
{
    const size_t known = *(const size_t *)to, common = known < bytes ? known : bytes;
    if (common > sizeof known)
        memcpy((char *)to + sizeof known, (const char *)from + sizeof known, common - sizeof known);
}

struct zinf_measure session_measure_of(const struct zinf_evaluation *found)
{
    const struct zinf_rewards *r = &found->rewards;
    return (struct zinf_measure){.size = sizeof(struct zinf_measure),
                                 .loss = found->loss,
                                 .cross_entropy = found->cross_entropy,
                                 .tokens = found->tokens,
                                 .pairs = r->n,
                                 .chosen = r->chosen,
                                 .rejected = r->rejected,
                                 .accuracy = r->accuracy,
                                 .kl = r->has_kl ? r->kl : NAN,
                                 .set = found->set};
}

void session_drop_trainers(struct zinf_session *s)
{
    zinf_trainer_destroy(s->trainer);
    zinf_trainer_destroy(s->generator);
    s->trainer = s->generator = NULL;
    s->trains = false;
}

void session_end(struct zinf_session *s)
{
    session_drop_trainers(s);
    zinf_dataset_close(s->data);
    job_flow_close(s->flow);
    zinf_dataset_close(s->eval_data);
    job_choices_close(s);
    free(s->measures);
    job_sets_free(&s->data_sets);
    job_sets_free(&s->eval_sets);
    zinf_config_destroy(s->config);
    free(s->config_text);
    zinf_tokenizer_close(s->tokenizer);
    zinf_model_close(s->model);
    zinf_net_close(s->net);
    zinf_labels_free(&s->labels);
    free(s->class_weights);
    free(s->checkpoint);
    zinf_origins_free(&s->origins);
    if (s->snapshot)
        s->job.model = s->named;
    free(s->snapshot);
    if (s->asked.is_kept) { /* another training finds its own again */
        s->job.model = s->asked.model;
        s->job.steps = s->asked.steps;
        s->job.settings = s->asked.settings;
    }
    const size_t kept = offsetof(struct zinf_session, model);
    memset((char *)s + kept, 0, sizeof *s - kept);
}
