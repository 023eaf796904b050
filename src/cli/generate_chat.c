/*
 * generate_chat: prompts as what a user says, written by the template of the model's folder, and
 * answers that end where an assistant's turn does.
 */
#include "cli/generate.h"

/* An adapter's folder may say the template that it was trained by; the tokens are the model's. */
static int open_chat(struct zinf_chat **out, const struct zinf_job *c,
                     const struct zinf_tokenizer *tokenizer)
{
    struct zinf_chat *adapted = NULL;
    const char *name = c->chat_template;
    if (!name && c->adapter && !zinf_chat_open(&adapted, c->adapter, NULL, tokenizer))
        name = zinf_chat_name(adapted);
    int code = zinf_chat_open(out, c->model, name, tokenizer);
    zinf_chat_close(adapted);
    return code;
}

/* Where the template's stop is no single token, its text ends an answer. */
int generate_chat_open(struct zinf_chat **out, const struct zinf_job *c,
                       const struct zinf_tokenizer *tokenizer, struct generate_settings *settings,
                       struct zinf_words *stops)
{
    int32_t id;
    int code = open_chat(out, c, tokenizer);
    if (code)
        return code;
    const char *stop = zinf_chat_stop(*out, &id);
    if (id >= 0 && settings->n_ends < GENERATE_MAX_ENDS)
        settings->ends[settings->n_ends++] = id;
    else if (*stop && stops->n < ZINF_MOST_WORDS)
        stops->items[stops->n++] = stop;
    return 0;
}

int generate_chat_encode(const struct zinf_chat *chat, const char *system, const char *prompt,
                         struct zinf_tokens *ids)
{
    const struct zinf_chat_message messages[] = {{"system", system, false},
                                                 {"user", prompt, false}};
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    int code = zinf_chat_encode(chat, messages + !system, system ? 2 : 1, true, &sample);
    if (!code) { /* its ids become the caller's */
        *ids = sample.ids;
        sample.ids = (struct zinf_tokens){0};
    }
    zinf_sample_free(&sample);
    return code;
}
