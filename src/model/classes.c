/*
 * classes: the head of a sequence classifier in config.json, read and written as transformers does
 * it, so that a folder that was trained here loads there with its labels' names.
 */
#include "model/classes.h"

#include "model/heads.h"

#include <stdio.h>

#define MOST_CLASSES (1 << 16)

static const char suffix[] = "ForSequenceClassification";

bool classes_are_in(const cJSON *config)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(config, "architectures");
    const char *first = cJSON_IsArray(list) ? cJSON_GetStringValue(list->child) : NULL;
    return first && heads_ends(first, suffix);
}

const char *classes_name(const cJSON *config, int64_t number)
{
    char key[24], usual[32];
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(config, "id2label");
    snprintf(key, sizeof key, "%lld", (long long)number);
    snprintf(usual, sizeof usual, "LABEL_%lld", (long long)number);
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(names, key));
    return name && strcmp(name, usual) ? name : NULL;
}

/* ---- reading ---- */

static int read_problem(const cJSON *config, const char *what, struct class_count *out)
{
    const char *problem = NULL;
    int code = zinf_json_string(config, what, "problem_type", &problem);
    if (code)
        return code;
    out->number = problem ? !strcmp(problem, "regression") : out->n == 1;
    if (problem && !strcmp(problem, "multi_label_classification"))
        return zinf_fail(-ENOTSUP,
                         "%s: problem_type \"multi_label_classification\": a sample has one label "
                         "here; single_label_classification and regression are learned",
                         what);
    if (problem && !out->number && strcmp(problem, "single_label_classification"))
        return zinf_fail(-EINVAL,
                         "%s: problem_type \"%s\" is not known: use single_label_classification or "
                         "regression",
                         what, problem);
    return 0;
}

int classes_read(const cJSON *config, const char *what, struct class_count *out)
{
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(config, "id2label");
    *out = (struct class_count){.n = 2};
    int code = zinf_json_int(config, what, "num_labels", &out->n);
    if (!code && cJSON_IsObject(names))
        out->n = cJSON_GetArraySize(names);
    if (!code)
        code = read_problem(config, what, out);
    if (code || (out->number ? out->n == 1 : out->n >= 2 && out->n <= MOST_CLASSES))
        return code;
    return out->number ? zinf_fail(-ENOTSUP,
                                   "%s: %lld numbers a sample (id2label, num_labels): one is "
                                   "learned",
                                   what, (long long)out->n)
                       : zinf_fail(-ENOTSUP,
                                   "%s: %lld classes (id2label, num_labels): a classifier has "
                                   "between 2 and %d",
                                   what, (long long)out->n, MOST_CLASSES);
}

/* ---- writing ---- */

/* transformers finds the last token of a decoder's sample by the padding's id. Where the
 * configuration has none, this writes the id of the token that ends texts. */
static bool write_padding(cJSON *config)
{
    static const char key[] = "pad_token_id";
    const cJSON *end = cJSON_GetObjectItemCaseSensitive(config, "eos_token_id");
    end = cJSON_IsArray(end) ? end->child : end;
    if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(config, key)) || !cJSON_IsNumber(end))
        return true;
    double id = end->valuedouble;
    cJSON_DeleteItemFromObjectCaseSensitive(config, key);
    return cJSON_AddNumberToObject(config, key, id);
}

static const char *name_of(const struct zinf_model_classes *classes, int64_t i, char buffer[32])
{
    if (classes->names)
        return classes->names[i];
    snprintf(buffer, 32, "LABEL_%lld", (long long)i);
    return buffer;
}

static bool write_names(cJSON *config, const struct zinf_model_classes *classes)
{
    cJSON *names = cJSON_AddObjectToObject(config, "id2label");
    cJSON *numbers = cJSON_AddObjectToObject(config, "label2id");
    bool fine = names && numbers;
    for (int64_t i = 0; fine && i < classes->n; i++) {
        char key[24], usual[32];
        const char *name = name_of(classes, i, usual);
        snprintf(key, sizeof key, "%lld", (long long)i);
        fine = cJSON_AddStringToObject(names, key, name) &&
               cJSON_AddNumberToObject(numbers, name, (double)i);
    }
    return fine;
}

int classes_write(cJSON *config, const struct zinf_family *family,
                  const struct zinf_model_classes *classes)
{
    static const char *const keys[] = {"id2label", "label2id", "num_labels", "_num_labels",
                                       "problem_type"};
    bool decodes;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(config, keys[i]);
    int code = heads_write(config, family, suffix, &decodes);
    if (code)
        return code;
    bool fine =
        cJSON_AddStringToObject(config, "problem_type",
                                classes->number ? "regression" : "single_label_classification") &&
        write_names(config, classes) && (!decodes || write_padding(config));
    return fine ? 0 : zinf_fail(-ENOMEM, "no memory for a model's configuration");
}
