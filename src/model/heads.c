/* heads: reads and writes the ends of architectures' names as transformers does. */
#include "model/heads.h"

#include <stdio.h>

/* Ends of architectures' names. The first two are of heads that predict the next token. */
static const char *const ends[] = {"LMHeadModel", "ForCausalLM", "ForSequenceClassification",
                                   "ForMaskedLM", "Model"};
#define N_ENDS (sizeof ends / sizeof *ends)

bool heads_ends(const char *text, const char *end)
{
    size_t n = strlen(text), tail = strlen(end);
    return n >= tail && !strcmp(text + n - tail, end);
}

/* The number of the name's end, or N_ENDS. */
static size_t end_of(const char *architecture)
{
    size_t i = 0;
    while (i < N_ENDS && !heads_ends(architecture, ends[i]))
        i++;
    return i;
}

enum zinf_model_head heads_in(const cJSON *config, const struct zinf_family *family)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(config, "architectures");
    const char *first = cJSON_IsArray(list) ? cJSON_GetStringValue(list->child) : NULL;
    const size_t end = first ? end_of(first) : N_ENDS;
    if (end == N_ENDS || !strcmp(first, family->architecture))
        return ZINF_HEAD_USUAL;
    return !strcmp(ends[end], "ForMaskedLM") ? ZINF_HEAD_MASKED
           : !strcmp(ends[end], "Model")     ? ZINF_HEAD_NONE
                                             : ZINF_HEAD_USUAL;
}

int heads_write(cJSON *config, const struct zinf_family *family, const char *end, bool *decodes)
{
    char name[96];
    const size_t own = end_of(family->architecture);
    const size_t tail = own < N_ENDS && end ? strlen(ends[own]) : 0;
    snprintf(name, sizeof name, "%.*s%s", (int)(strlen(family->architecture) - tail),
             family->architecture, end ? end : "");
    if (decodes)
        *decodes = own < 2;
    cJSON_DeleteItemFromObjectCaseSensitive(config, "architectures");
    cJSON *list = cJSON_AddArrayToObject(config, "architectures");
    return list && cJSON_AddItemToArray(list, cJSON_CreateString(name))
               ? 0
               : zinf_fail(-ENOMEM, "no memory for a model's configuration");
}
