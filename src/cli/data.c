/* data: opening what a command works on, in the order in which errors are most useful. */
#include "cli/data.h"

#include "formats/formats.h"

#include <stdlib.h>

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

int data_parse_device(const char *text, enum zinf_device_kind *out)
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

int cli_need(const char *option, const void *value)
{
    return value ? 0 : zinf_fail(-EINVAL, "%s is missing", option);
}

int cli_check_common(const struct cli_common *c)
{
    enum zinf_device_kind device;
    int code = cli_need("--model DIR", c->model);
    return code ? code : data_parse_device(c->device, &device);
}

int cli_session_shape(struct cli_session *s, const struct cli_common *c)
{
    memset(s, 0, sizeof *s);
    int code = data_parse_device(c->device, &s->device);
    if (!code)
        code = zinf_model_open(&s->model, c->model);
    if (code)
        return code;
    const struct zinf_model_facts *facts = zinf_model_facts(s->model);
    s->seq_len = c->seq_len ? c->seq_len : facts->context < 1024 ? facts->context : 1024;
    if (s->seq_len > facts->context)
        return zinf_fail(-EINVAL, "--seq-len %lld: the model's context is %lld by %s/config.json",
                         (long long)s->seq_len, (long long)facts->context, c->model);
    return 0;
}

int cli_session_open(struct cli_session *s, const struct cli_common *c)
{
    int code = cli_session_shape(s, c);
    return code ? code : zinf_tokenizer_open(&s->tokenizer, c->model);
}

int cli_session_data(struct cli_session *s, const struct cli_strings *files,
                     const char *cache_folder, bool shuffle, uint64_t seed,
                     struct zinf_dataset **out)
{
    struct zinf_dataset_options options = {
        .files = files->items,
        .n_files = files->n,
        .tokenizer = s->tokenizer,
        .open_token_file = open_token_file,
        .cache_folder = cache_folder,
        .seq_len = (uint32_t)s->seq_len,
        .vocab = (uint32_t)zinf_model_facts(s->model)->vocab,
        .shuffle = shuffle,
        .seed = seed,
    };
    return zinf_dataset_open(out, &options);
}

int cli_session_config(struct cli_session *s, const struct cli_common *c)
{
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    context.hidden_size = zinf_model_facts(s->model)->hidden;
    context.micro_batch = c->micro_batch;
    context.accumulation = c->accumulation;
    context.lr = c->lr;
    context.dropout = c->dropout;
    context.steps = c->steps;
    context.threads = c->threads;
    context.device_memory = c->device_memory;
    context.host_memory = c->host_memory;
    context.dtype = c->dtype ? c->dtype : zinf_dtype_name(zinf_model_facts(s->model)->file_dtype);
    context.lenient = c->lenient;
    zinf_config_destroy(s->config);
    s->config = NULL;
    int code = zinf_config_load(&s->config, c->config, &context);
    if (!code && c->dtype) /* eval, generate: the number type is the command line's choice */
        code = zinf_dtype_parse(c->dtype, &s->config->dtype);
    return code;
}

int cli_session_trainer(struct cli_session *s, const struct cli_common *c,
                        enum zinf_trainer_mode mode, int64_t seq_len, struct zinf_trainer **out)
{
    struct zinf_trainer_options options = {
        .mode = mode,
        .model_path = c->model,
        .config = s->config,
        .seq_len = seq_len ? seq_len : s->seq_len,
        .device = s->device,
    };
    return zinf_trainer_create(out, &options);
}

void cli_session_close(struct cli_session *s)
{
    zinf_dataset_close(s->data);
    zinf_dataset_close(s->eval_data);
    zinf_config_destroy(s->config);
    zinf_tokenizer_close(s->tokenizer);
    zinf_model_close(s->model);
    memset(s, 0, sizeof *s);
}
