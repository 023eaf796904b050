/* embedding: how a model's folder makes embeddings, read and written in the files of
 * sentence-transformers. */
#include "api/embedding.h"

#include "base/folder.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_BYTES ((size_t)1 << 20)

/* ---- the folder ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), tail = strlen(end);
    return n >= tail && !strcmp(text + n - tail, end);
}

/* Older files have a flag for each way, newer ones its name. */
static int read_pooling(struct job_embedding *e, const char *folder, const char *path)
{
    static const char *const flags[] = {"pooling_mode_mean_tokens", "pooling_mode_cls_token",
                                        "pooling_mode_lasttoken"};
    static const char *const names[] = {"mean", "cls", "lasttoken"};
    char file[128];
    cJSON *config = NULL;
    int found = -1;
    snprintf(file, sizeof file, "%s/config.json", path);
    int code = zinf_folder_json(folder, file, MOST_BYTES, &config);
    const char *name =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "pooling_mode"));
    for (int i = 0; i < 3; i++)
        if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(config, flags[i])) ||
            (name && !strcmp(name, names[i])))
            found = i;
    cJSON_Delete(config);
    if (!code && found < 0)
        return zinf_fail(
            -ENOTSUP,
            "%s/%s: the pooling of this file is not supported, only mean, cls and lasttoken",
            folder, file);
    e->pooling = found < 0 ? ZINF_POOL_MEAN : (enum zinf_pooling)found;
    return code;
}

static int read_module(struct job_embedding *e, const char *folder, const cJSON *module)
{
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(module, "type"));
    const char *path = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(module, "path"));
    if (!type || !path)
        return zinf_fail(-EINVAL, "%s/modules.json: a module has no type or no path", folder);
    if (ends_with(type, ".Pooling"))
        return read_pooling(e, folder, path);
    if (ends_with(type, ".Normalize")) {
        e->normalizes = true;
        return 0;
    }
    if (ends_with(type, ".Transformer") && !*path)
        return 0;
    return zinf_fail(
        -ENOTSUP,
        "%s/modules.json: the module %s%s%s is not supported: Transformer in the folder "
        "itself, Pooling and Normalize are",
        folder, type, *path ? " in " : "", path);
}

/* Without the files: the mean of all tokens, as sentence-transformers has it for other folders. */
static int read_modules(struct job_embedding *e, const char *folder)
{
    cJSON *modules = NULL;
    const cJSON *module;
    int code = zinf_folder_json(folder, "modules.json", MOST_BYTES, &modules);
    e->has_modules = modules != NULL;
    cJSON_ArrayForEach(module, modules)
    {
        if (!code)
            code = read_module(e, folder, module);
    }
    cJSON_Delete(modules);
    return code;
}

/* Tokens that a text may have. */
static int read_length(struct job_embedding *e, const char *folder)
{
    cJSON *config = NULL;
    int code = zinf_folder_json(folder, "sentence_bert_config.json", MOST_BYTES, &config);
    const cJSON *length = cJSON_GetObjectItemCaseSensitive(config, "max_seq_length");
    if (cJSON_IsNumber(length) && length->valuedouble >= 1)
        e->most_tokens = (int64_t)length->valuedouble;
    cJSON_Delete(config);
    return code;
}

int job_embedding_read(struct zinf_session *s)
{
    struct job_embedding *e = &s->embedding;
    const struct zinf_job_embedding *asked = &s->job.embedding;
    *e = (struct job_embedding){.pooling = ZINF_POOL_MEAN};
    int code = read_modules(e, s->job.model);
    if (!code)
        code = read_length(e, s->job.model);
    if (asked->pooling)
        e->pooling = (enum zinf_pooling)(asked->pooling - 1);
    if (asked->normalize)
        e->normalizes = true;
    if (asked->plain)
        e->normalizes = false;
    if (!code && !s->job.seq_len && e->most_tokens && e->most_tokens < s->seq_len)
        s->seq_len = e->most_tokens;
    return code;
}

int job_embedding_prompt(const struct zinf_session *s, char **out)
{
    const char *folder = s->job.model, *asked = s->job.embedding.prompt_name;
    char known[256] = "";
    size_t used = 0;
    cJSON *config = NULL;
    int code = zinf_folder_json(folder, "config_sentence_transformers.json", MOST_BYTES, &config);
    const cJSON *prompts = cJSON_GetObjectItemCaseSensitive(config, "prompts"), *one;
    const char *name =
        asked
            ? asked
            : cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "default_prompt_name"));
    const char *prompt =
        name ? cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(prompts, name)) : NULL;
    cJSON_ArrayForEach(one, prompts)
    {
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     one->string);
    }
    *out = NULL;
    if (!code && asked && !prompt)
        code = zinf_fail(-EINVAL, "--prompt-name %s: %s/config_sentence_transformers.json has %s",
                         asked, folder, used ? known : "no prompts");
    if (!code && prompt && !(*out = strdup(prompt)))
        code = zinf_fail(-ENOMEM, "no memory for a prompt");
    cJSON_Delete(config);
    return code;
}

/* ---- writing ---- */

static int write_text(const char *folder, const char *name, const char *text)
{
    char *path = zinf_path_join(folder, name);
    int code = path ? zinf_file_write_atomic(path, text, strlen(text)) : -ENOMEM;
    free(path);
    return code;
}

static int write_pooling(const struct zinf_session *s, const char *folder)
{
    static const char *const names[] = {"mean", "cls", "lasttoken"};
    char text[512];
    const enum zinf_pooling pooling = s->embedding.pooling;
    char *path = zinf_path_join(folder, "1_Pooling");
    int code = path ? zinf_make_dirs(path) : -ENOMEM;
    free(path);
    snprintf(text, sizeof text,
             "{\n  \"word_embedding_dimension\": %lld,\n  \"pooling_mode_%s\": true%s,\n"
             "  \"include_prompt\": true\n}\n",
             (long long)zinf_model_facts(s->model)->hidden,
             pooling == ZINF_POOL_MEAN    ? "mean_tokens"
             : pooling == ZINF_POOL_FIRST ? "cls_token"
                                          : names[pooling],
             pooling == ZINF_POOL_MEAN ? "" : ",\n  \"pooling_mode_mean_tokens\": false");
    return code ? code : write_text(folder, "1_Pooling/config.json", text);
}

int job_embedding_keep(const struct zinf_session *s, const char *folder)
{
    static const char transformer[] = "[\n  {\"idx\": 0, \"name\": \"0\", \"path\": \"\", "
                                      "\"type\": \"sentence_transformers.models.Transformer\"},\n"
                                      "  {\"idx\": 1, \"name\": \"1\", \"path\": \"1_Pooling\", "
                                      "\"type\": \"sentence_transformers.models.Pooling\"}";
    static const char normalize[] = ",\n  {\"idx\": 2, \"name\": \"2\", \"path\": \"2_Normalize\", "
                                    "\"type\": \"sentence_transformers.models.Normalize\"}";
    char text[768];
    if (s->task != ZINF_TASK_EMBEDDING)
        return 0;
    snprintf(text, sizeof text, "%s%s\n]\n", transformer, s->embedding.normalizes ? normalize : "");
    int code = write_text(folder, "modules.json", text);
    if (!code)
        code = write_pooling(s, folder);
    snprintf(text, sizeof text, "{\n  \"max_seq_length\": %lld,\n  \"do_lower_case\": false\n}\n",
             (long long)s->seq_len);
    return code ? code : write_text(folder, "sentence_bert_config.json", text);
}
