/* data: opening what a command works on, in the order in which errors are most useful. */
#include "api/session.h"

#include "formats/formats.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_source(void *handle, uint64_t first, uint64_t n, int32_t *out)
{
    return zinf_token_file_read(handle, first, n, out);
}

static void close_source(void *handle)
{
    zinf_token_file_close(handle);
}

static int open_token_file(const char *path, struct zinf_token_source *out)
{
    struct zinf_token_file *file;
    int code = zinf_token_file_open(&file, path);
    if (code)
        return code;
    *out = (struct zinf_token_source){
        .count = zinf_token_file_count(file),
        .read = read_source,
        .close = close_source,
        .handle = file,
    };
    return 0;
}

int zinf_job_device(const char *text, enum zinf_device_kind *out)
{
    static const char *const names[] = {"auto", "host", "cuda"};
    *out = ZINF_DEVICE_AUTO;
    for (int i = 0; text && i < 3; i++)
        if (!strcmp(text, names[i])) {
            *out = (enum zinf_device_kind)i;
            return 0;
        }
    return text ? zinf_fail(-EINVAL, "--device %s: use auto, host or cuda", text) : 0;
}

int zinf_job_need(const char *option, const void *value)
{
    return value ? 0 : zinf_fail(-EINVAL, "%s is missing", option);
}

int zinf_job_check(const struct zinf_job *c)
{
    enum zinf_device_kind device;
    int code = zinf_job_need("--model DIR", c->model);
    return code ? code : zinf_job_device(c->device, &device);
}

static bool has_file(const char *folder, const char *name)
{
    char *path = zinf_path_join(folder, name);
    bool yes = path && !access(path, F_OK);
    free(path);
    return yes;
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
                "fetch it first: huggingface-cli download %s --local-dir %s",
                path, path, slash ? slash + 1 : path);
        return 0;
    }
    if (!S_ISDIR(info.st_mode) && dot && (!strcmp(dot, ".safetensors") || !strcmp(dot, ".bin")))
        return zinf_fail(-ENOTDIR, "--model %s is a file of weights: name its folder, --model %.*s",
                         path, folder, slash ? path : ".");
    if (!S_ISDIR(info.st_mode) || has_file(path, "config.json"))
        return 0;
    if (has_file(path, "model/config.json"))
        return zinf_fail(-ENOENT,
                         "--model %s is the output of a training: its model is --model %s/model",
                         path, path);
    if (has_file(path, "adapter_config.json"))
        return zinf_fail(-ENOTSUP,
                         "--model %s holds an adapter, not a model: --model is its base, and this "
                         "folder is --adapter",
                         path);
    return 0;
}

int zinf_session_shape(struct zinf_session *s, const struct zinf_job *c)
{
    memset(s, 0, sizeof *s);
    int code = zinf_job_device(c->device, &s->device);
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
    return job_task_tell(s, c);
}

static int note_origins(struct zinf_session *s, const struct zinf_job *c)
{
    int code = zinf_origins_add(&s->origins, "--model", c->model);
    if (!code)
        code = zinf_origins_add(&s->origins, "--adapter", c->adapter);
    return code ? code : zinf_origins_add(&s->origins, "--config", c->config);
}

int zinf_session_open(struct zinf_session *s, const struct zinf_job *c)
{
    int code = zinf_session_shape(s, c);
    if (!code)
        code = note_origins(s, c);
    return code ? code : zinf_tokenizer_open(&s->tokenizer, c->model);
}

/* Bytes alone, or with the end-of-text token. */
static bool has_bytes_vocabulary(const struct zinf_session *s)
{
    int64_t vocab = zinf_model_facts(s->model)->vocab;
    return vocab == 256 || vocab == 257;
}

static const char no_tokenizer[] =
    "the model's folder has no tokenizer.json, and no vocab.json with merges.txt, and its "
    "vocabulary is not the 257 of bytes: copy the tokenizer's files there";

int zinf_session_need_tokenizer(const struct zinf_session *s, const struct zinf_job *c)
{
    if (strcmp(zinf_tokenizer_kind(s->tokenizer), "bytes") || has_bytes_vocabulary(s))
        return 0;
    return zinf_fail(-EINVAL, "--model %s: %s", c->model, no_tokenizer);
}

/* The files that name means: itself if there is one of that name, or no wild card in it. */
static int expand_name(glob_t *all, const char *name, int flags)
{
    static const char wild[] = "*?[\\";
    struct stat info;
    char literal[2 * PATH_MAX];
    size_t used = 0;
    bool exists = !stat(name, &info);
    if (!exists && strpbrk(name, "*?["))
        return glob(name, flags, NULL, all);
    for (const char *at = name; *at && used + 2 < sizeof literal; at++) {
        if (exists && strchr(wild, *at))
            literal[used++] = '\\';
        literal[used++] = *at;
    }
    literal[used] = 0;
    return glob(literal, flags | GLOB_NOCHECK | (exists ? 0 : GLOB_NOESCAPE), NULL, all);
}

/* A quoted pattern is one that no shell has expanded. Its files come in the order of their names.
 */
static int expand(struct zinf_session *s, const struct zinf_words *files, const glob_t **out)
{
    glob_t *all = &s->globs[s->n_globs++];
    for (int i = 0; i < files->n; i++) {
        int result = expand_name(all, files->items[i], i ? GLOB_APPEND : 0);
        if (result == GLOB_NOMATCH)
            return zinf_fail(-ENOENT, "no file matches %s", files->items[i]);
        if (result)
            return zinf_fail(-EIO, "cannot look for %s: %s", files->items[i], strerror(errno));
    }
    for (size_t i = 0; i < all->gl_pathc; i++) {
        int code = zinf_origins_add(&s->origins, s->n_globs > 1 ? "--eval-data" : "--data",
                                    all->gl_pathv[i]);
        if (code)
            return code;
    }
    *out = all;
    return 0;
}

/* Windows of a step, where their order goes by length; else 0. */
static uint64_t group_of(const struct zinf_session *s, bool shuffle)
{
    return shuffle && s->config && s->config->group_by_length
               ? (uint64_t)job_windows(s->task, s->config->train_batch_size)
               : 0;
}

static int check_group(const struct zinf_job *c, enum zinf_format format, bool texts,
                       const char *file)
{
    if (c->pack)
        return zinf_fail(-EINVAL, "zinf.group_by_length (--group-by-length) and --pack: packed "
                                  "windows all have one length; give one of them");
    return texts && format == ZINF_FORMAT_STREAM
               ? zinf_fail(
                     -EINVAL,
                     "zinf.group_by_length (--group-by-length): %s is a stream of text, whose "
                     "windows all have one length: --format text makes a sample of each row",
                     file)
               : 0;
}

int zinf_session_data(struct zinf_session *s, const struct zinf_job *c,
                      const struct zinf_words *files, const char *cache_folder, bool shuffle,
                      struct zinf_dataset **out)
{
    const uint64_t group = group_of(s, shuffle);
    const glob_t *paths = NULL;
    bool foreign = !strcmp(zinf_tokenizer_kind(s->tokenizer), "bytes") && !has_bytes_vocabulary(s);
    enum zinf_format format = ZINF_FORMAT_TEXT;
    int code = expand(s, files, &paths);
    bool texts = s->task == ZINF_TASK_CAUSAL || job_has_pairs(s->task);
    if (!code && texts)
        code = job_samples_tell(c, (const char *const *)paths->gl_pathv, (int)paths->gl_pathc,
                                &format);
    if (!code && s->task == ZINF_TASK_PREFERENCE && format == ZINF_FORMAT_PROMPT && !c->format)
        format = ZINF_FORMAT_UNPAIRED; /* of which each has a label */
    if (!code && texts)
        code = job_samples_check(s, c, paths->gl_pathv[0], format);
    if (!code && group)
        code = check_group(c, format, texts, paths->gl_pathv[0]);
    if (code)
        return code;
    const struct zinf_samples_options samples = {
        .files = (const char *const *)paths->gl_pathv,
        .n_files = (int)paths->gl_pathc,
        .tokenizer = foreign ? NULL : s->tokenizer,
        .cache_folder = cache_folder,
        .shuffle = shuffle,
        .group = group,
    };
    if (s->task == ZINF_TASK_SEQ2SEQ)
        return job_task_open(s, c, &samples, out);
    if (job_is_labelled(s->task))
        return job_classes_open(s, c, &samples, out);
    if (format != ZINF_FORMAT_STREAM)
        return job_samples_open(s, c, &samples, format, out);
    if (c->pack)
        return zinf_fail(-EINVAL,
                         "--pack: %s is a stream of text, whose windows are full already: --format "
                         "text makes a sample of each row",
                         paths->gl_pathv[0]);
    struct zinf_dataset_options options = {
        .files = (const char *const *)paths->gl_pathv,
        .n_files = (int)paths->gl_pathc,
        .text_column = c->text_column,
        .skip_bad_rows = c->skip_bad_rows,
        .tokenizer = foreign ? NULL : s->tokenizer,
        .why_no_tokenizer = no_tokenizer,
        .open_token_file = open_token_file,
        .cache_folder = cache_folder,
        .seq_len = (uint32_t)s->seq_len,
        .vocab = (uint32_t)zinf_model_facts(s->model)->vocab,
        .shuffle = shuffle,
        .seed = (uint64_t)c->seed,
    };
    return zinf_dataset_open(out, &options);
}

struct zinf_config_context zinf_job_context(const struct zinf_job *c)
{
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    context.world_size = c->world;
    context.seats = c->seats;
    context.seats_there = c->seats_there;
    context.micro_batch = c->micro_batch;
    context.accumulation = c->accumulation;
    context.optimizer = c->optimizer;
    context.lr = c->lr;
    context.lr_scheduler = c->lr_scheduler;
    context.warmup_steps = c->warmup_steps;
    context.weight_decay = c->weight_decay;
    context.dropout = c->dropout;
    context.lora_rank = c->lora_rank;
    context.lora_alpha = c->lora_alpha;
    context.lora_dropout = c->lora_dropout;
    context.lora_targets = c->lora_targets;
    context.quantize = c->quantize;
    context.steps = c->steps < 0 && c->no_training ? 1 : c->steps; /* schedules may ask */
    context.threads = c->threads;
    context.early_stopping = c->early_stopping;
    context.label_smoothing = c->label_smoothing;
    context.z_loss = c->z_loss;
    context.neftune_alpha = c->neftune_alpha;
    context.preference = c->preference;
    context.preference_beta = c->preference_beta;
    context.load_best_at_end = c->load_best_at_end;
    context.pad_to = c->pad_to;
    context.group_by_length = c->group_by_length;
    context.device_memory = c->device_memory;
    context.host_memory = c->host_memory;
    context.lenient = c->lenient;
    context.no_training = c->no_training;
    context.no_steps = c->no_steps;
    context.quiet = c->quiet;
    return context;
}

int zinf_session_config(struct zinf_session *s, const struct zinf_job *c)
{
    struct zinf_config_context context = zinf_job_context(c);
    if (s->task == ZINF_TASK_REWARD) { /* the one loss that it has */
        if (c->preference)
            return zinf_fail(-EINVAL,
                             "--preference %s is of --task preference; --task reward has one loss",
                             c->preference);
        context.preference = "reward";
    }
    context.hidden_size = zinf_model_facts(s->model)->hidden;
    context.dtype = c->dtype ? c->dtype : zinf_dtype_name(zinf_model_facts(s->model)->file_dtype);
    zinf_config_destroy(s->config);
    s->config = NULL;
    int code = zinf_config_load(&s->config, c->config, &context);
    if (!code && c->dtype) /* eval, generate: the number type is the command line's choice */
        code = zinf_dtype_parse(c->dtype, &s->config->dtype);
    return code;
}

struct zinf_trainer_options zinf_session_options(const struct zinf_session *s,
                                                 const struct zinf_job *c,
                                                 enum zinf_trainer_mode mode, int64_t seq_len)
{
    return (struct zinf_trainer_options){
        .mode = mode,
        .model_path = c->model,
        .adapter = c->adapter,
        .config = s->config,
        .seq_len = seq_len ? seq_len : s->seq_len,
        .source_len = s->source_len ? s->source_len : c->source_len,
        .packed = c->pack,
        .pairs = job_has_pairs(s->task),
        .references = mode == ZINF_TRAINER_TRAIN && job_gives_references(s, c),
        .classes = s->asks_classes ? &s->classes : NULL,
        .device = s->device,
    };
}

int zinf_session_trainer(struct zinf_session *s, const struct zinf_job *c,
                         enum zinf_trainer_mode mode, int64_t seq_len, struct zinf_trainer **out)
{
    struct zinf_trainer_options options = zinf_session_options(s, c, mode, seq_len);
    return zinf_trainer_create(out, &options);
}

void zinf_session_close(struct zinf_session *s)
{
    zinf_dataset_close(s->data);
    zinf_dataset_close(s->eval_data);
    for (int i = 0; i < s->n_globs; i++)
        globfree(&s->globs[i]);
    zinf_config_destroy(s->config);
    zinf_tokenizer_close(s->tokenizer);
    zinf_model_close(s->model);
    zinf_labels_free(&s->labels);
    free(s->class_weights);
    zinf_origins_free(&s->origins);
    memset(s, 0, sizeof *s);
}
