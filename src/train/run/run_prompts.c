/* run_prompts: texts that a training makes on its way, to be read by who waits for it. The
 * likeliest token is taken each time, so that two looks differ by what was learned between them. */
#include "train/run/run.h"
#include "train/run/shared_texts.h"

#include <stdlib.h>

static int copy_prompts(const struct zinf_run_prompts *p, struct zinf_text *texts)
{
    for (int i = 0; i < p->n; i++) {
        const size_t bytes = (size_t)p->texts[i].n_prompt * sizeof *texts[i].ids;
        texts[i] = p->texts[i];
        texts[i].ids = malloc(bytes);
        if (!texts[i].ids)
            return zinf_fail(-ENOMEM, "no memory for a prompt");
        memcpy(texts[i].ids, p->texts[i].ids, bytes);
    }
    return 0;
}

/* Adds the new part of a text to pair. After a prompt it is decoded together with the prompt, whose
 * tokens may decide how it is written. Where an encoder has read the prompt, the text's own first
 * token only starts the decoder, and is left out: a tokenizer may write it as any character. */
static int add_new(const struct zinf_run_prompts *p, const struct zinf_text *text, cJSON *pair)
{
    const size_t n_prompt = text->source ? 0 : (size_t)text->n_prompt;
    const int32_t *ids = text->source ? text->ids + text->n_prompt : text->ids;
    char *prompt = NULL, *all = NULL;
    size_t prompt_bytes = 0, bytes = 0;
    int code = zinf_tokenizer_decode(p->tokenizer, ids, n_prompt, &prompt, &prompt_bytes);
    if (!code)
        code =
            zinf_tokenizer_decode(p->tokenizer, ids, n_prompt + (size_t)text->n_new, &all, &bytes);
    const size_t begin = prompt_bytes < bytes ? prompt_bytes : bytes;
    if (!code)
        zinf_json_add_text(pair, "text", all + begin, bytes - begin);
    free(prompt);
    free(all);
    return code;
}

/* As JSON has them: a text may have several lines. */
static int tell_one(const char *prompt, const cJSON *text, uint64_t step)
{
    cJSON *asked = cJSON_CreateString(prompt);
    char *said = cJSON_PrintUnformatted(asked), *shown = cJSON_PrintUnformatted(text);
    if (said && shown)
        zinf_log(ZINF_LOG_INFO, "step %llu: %s goes on: %s", (unsigned long long)step, said, shown);
    const int code = said && shown ? 0 : zinf_fail(-ENOMEM, "no memory to tell a text");
    cJSON_free(said);
    cJSON_free(shown);
    cJSON_Delete(asked);
    return code;
}

static int tell(const struct zinf_run_prompts *p, uint64_t step, const struct zinf_text *texts,
                cJSON *list)
{
    int code = 0;
    for (int i = 0; !code && i < p->n; i++) {
        cJSON *pair = cJSON_CreateObject();
        cJSON_AddStringToObject(pair, "prompt", p->prompts[i]);
        code = add_new(p, &texts[i], pair);
        if (!code)
            code = tell_one(p->prompts[i], cJSON_GetObjectItemCaseSensitive(pair, "text"), step);
        cJSON_AddItemToArray(list, pair);
    }
    return code;
}

int run_answer_prompts(struct run *run, uint64_t step, char **out)
{
    const struct zinf_run_prompts *p = run->options->prompts;
    struct zinf_text *texts = calloc((size_t)p->n, sizeof *texts);
    cJSON *list = cJSON_CreateArray();
    int code = texts && list ? copy_prompts(p, texts) : zinf_fail(-ENOMEM, "no memory for texts");
    *out = NULL;
    if (!code)
        code = make_shared_texts(run->trainer, &p->generate, texts, p->n);
    if (!code && run->log) /* of ranks the first tells */
        code = tell(p, step, texts, list);
    if (!code && run->log && !(*out = cJSON_PrintUnformatted(list)))
        code = zinf_fail(-ENOMEM, "no memory for texts of the log");
    for (int i = 0; texts && i < p->n; i++)
        free(texts[i].ids);
    free(texts);
    cJSON_Delete(list);
    return code;
}
