/* text: one text, from its prompt to tokens, and from tokens to characters. */
#include "api/texts.h"

#include <stdlib.h>

/* New tokens of a call. */
#define USUAL_ROWS 512
#define FETCHING_ROWS 2048

/* ---- characters ---- */

/* What an unfinished character is decoded to. */
static const char unfinished[] = "\xef\xbf\xbd";

static int decode(const struct text_setup *o, struct text *t)
{
    const struct zinf_text *text = &t->made;
    free(t->all);
    t->all = NULL;
    int code = zinf_tokenizer_decode(o->s->tokenizer, text->ids + t->first,
                                     (size_t)(text->n_prompt + text->n_new) - t->first, &t->all,
                                     &t->bytes);
    t->end = t->bytes;
    return code;
}

/* Where the first stop string in the new text begins; its end if there is none. */
static size_t find_stop(const struct text_setup *o, const struct text *t)
{
    size_t first = t->prompt_bytes < t->bytes ? t->prompt_bytes : t->bytes, end = t->bytes;
    for (int i = 0; i < o->stops.n; i++) {
        const char *stop = o->stops.items[i];
        const char *at = memmem(t->all + first, t->bytes - first, stop, strlen(stop));
        if (at && (size_t)(at - t->all) < end)
            end = (size_t)(at - t->all);
    }
    return end;
}

/* Without the first bytes of a UTF-8 character whose others have not come. */
static size_t whole_characters(const char *text, size_t first, size_t end)
{
    for (size_t n = 1; n <= 3 && end - first >= n; n++) {
        const unsigned char c = (unsigned char)text[end - n];
        if (c < 0x80)
            break;
        if (c >= 0xc0)
            return n < (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) ? end - n : end;
    }
    return end;
}

size_t text_settled(const struct text_setup *o, const struct text *t)
{
    const size_t width = sizeof unfinished - 1;
    size_t end = t->end;
    while (end >= t->prompt_bytes + width && !memcmp(t->all + end - width, unfinished, width))
        end -= width;
    end = end > t->prompt_bytes ? whole_characters(t->all, t->prompt_bytes, end) : end;
    size_t least = end;
    for (int i = 0; i < o->stops.n; i++)
        for (size_t n = strlen(o->stops.items[i]); n > 0; n--)
            if (n <= end && end - n >= t->prompt_bytes && end - n < least &&
                !memcmp(t->all + end - n, o->stops.items[i], n))
                least = end - n;
    return least;
}

/* ---- prompts ---- */

/* An adapter's folder may say the template that it was trained by; the tokens are the model's. */
int text_open_chat(const struct zinf_session *s, struct zinf_chat **out)
{
    struct zinf_chat *adapted = NULL;
    const char *name = s->job.chat_template;
    if (!name && s->job.adapter && !zinf_chat_open(&adapted, s->job.adapter, NULL, s->tokenizer))
        name = zinf_chat_name(adapted);
    int code = zinf_chat_open(out, s->job.model, name, s->tokenizer);
    zinf_chat_close(adapted);
    return code;
}

/* Where the template's stop is no single token, its text ends an answer. */
static void end_turns(struct text_setup *o)
{
    int32_t id;
    const char *stop = zinf_chat_stop(o->chat, &id);
    if (id >= 0 && o->settings.n_ends < GENERATE_MAX_ENDS)
        o->settings.ends[o->settings.n_ends++] = id;
    else if (*stop && o->stops.n < ZINF_MOST_WORDS)
        o->stops.items[o->stops.n++] = stop;
}

int text_setup_fill(struct text_setup *o)
{
    int code = generate_read_config(&o->settings, o->s->job.model, o->s->model);
    if (!code && o->chat)
        end_turns(o);
    return code;
}

/* Tokens in front of those of the text itself. */
static size_t find_first(const struct zinf_tokens *framed, const struct zinf_tokens *ids)
{
    size_t first = 0;
    while (first + ids->count < framed->count &&
           memcmp(framed->ids + first, ids->ids, ids->count * sizeof *ids->ids))
        first++;
    return first;
}

/* A prompt's tokens with the special ones that the tokenizer puts around a text, as transformers
 * takes them; *first: how many of these come before it. */
static int encode_plain(const struct text_setup *o, const char *prompt, struct zinf_tokens *out,
                        size_t *first)
{
    struct zinf_tokens ids = {0};
    int code = zinf_tokenizer_encode(o->s->tokenizer, prompt, strlen(prompt), &ids);
    if (!code && !ids.count)
        code = zinf_fail(-EINVAL, "the prompt is empty: give at least one character");
    if (!code)
        code = zinf_tokenizer_frame(o->s->tokenizer, &ids, NULL, out, NULL);
    *first = code ? 0 : find_first(out, &ids);
    zinf_tokens_free(&ids);
    return code;
}

/* What an encoder reads, ended as in training: ids become its source's, which text borrows. The
 * text begins with the token that the decoder is fed first, which nobody wants to see. */
static int make_source(const struct zinf_session *s, struct zinf_tokens *ids,
                       struct zinf_text *text)
{
    int32_t start, end, *first = NULL, *all = NULL;
    int code = job_task_token(s, "decoder_start_token_id", &start);
    if (!code)
        code = job_task_token(s, "eos_token_id", &end);
    if (code)
        return code;
    bool ends = ids->ids[ids->count - 1] == end;
    first = malloc(sizeof *first);
    all = realloc(ids->ids, (ids->count + 1) * sizeof *all);
    if (all)
        ids->ids = all;
    if (!all || !first) {
        free(first);
        return zinf_fail(-ENOMEM, "no memory for a prompt of %zu tokens", ids->count);
    }
    if (!ends)
        ids->ids[ids->count++] = end;
    *first = start;
    *text = (struct zinf_text){
        .ids = first, .n_prompt = 1, .source = ids->ids, .n_source = (int64_t)ids->count};
    return 0;
}

static int check_ids(const struct text_setup *o, int64_t number, const struct zinf_tokens *ids)
{
    const struct zinf_model_facts *facts = zinf_model_facts(o->s->model);
    for (size_t i = 0; i < ids->count; i++)
        if (ids->ids[i] >= facts->vocab)
            return zinf_fail(-EINVAL,
                             "the prompt's token id %d is outside of the model's "
                             "vocabulary of %lld: the tokenizer does not belong to this model",
                             ids->ids[i], (long long)facts->vocab);
    if ((int64_t)ids->count > facts->context)
        return zinf_fail(-EINVAL, "prompt %lld has %zu tokens; the model's context is %lld",
                         (long long)number + 1, ids->count, (long long)facts->context);
    return 0;
}

/* ids become the text's. */
static int begin(const struct text_setup *o, struct text *t, struct zinf_tokens *ids)
{
    int code = check_ids(o, t->number, ids);
    t->made = (struct zinf_text){.ids = ids->ids, .n_prompt = (int64_t)ids->count};
    if (!code && o->s->task == ZINF_TASK_SEQ2SEQ) {
        code = make_source(o->s, ids, &t->made);
        t->source = *ids;
        t->made.ids = code ? NULL : t->made.ids;
        t->first = 1; /* the decoder's start */
    }
    if (!code)
        code = decode(o, t);
    t->prompt_bytes = t->bytes;
    t->from = t->told = o->chat ? t->bytes : 0; /* of a chat the answer alone */
    return code;
}

int text_begin(const struct text_setup *o, struct text *t, const char *prompt)
{
    struct zinf_tokens ids = {0};
    int code = encode_plain(o, prompt, &ids, &t->first);
    if (!code)
        return begin(o, t, &ids);
    zinf_tokens_free(&ids);
    return code;
}

int text_begin_chat(const struct text_setup *o, struct text *t,
                    const struct zinf_chat_message *messages, size_t n)
{
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    struct zinf_tokens ids = {0};
    int code = zinf_chat_encode(o->chat, messages, n, true, &sample);
    if (!code) { /* its ids become the text's */
        ids = sample.ids;
        sample.ids = (struct zinf_tokens){0};
    }
    zinf_sample_free(&sample);
    return code ? code : begin(o, t, &ids);
}

void text_free(struct text *t)
{
    free(t->made.ids);
    free(t->all);
    zinf_tokens_free(&t->source);
    *t = (struct text){0};
}

int text_decode(const struct text_setup *o, struct text *t)
{
    int code = decode(o, t);
    if (code)
        return code;
    t->end = find_stop(o, t);
    return t->end < t->bytes;
}

/* ---- the trainer ---- */

int64_t text_rows(const struct zinf_session *s)
{
    return s->config->offload_param.device != ZINF_PLACE_NONE ? FETCHING_ROWS : USUAL_ROWS;
}

static bool covers(const struct zinf_decode_shape *has, const struct zinf_decode_shape *wants)
{
    return has->sequences >= wants->sequences && has->capacity >= wants->capacity &&
           has->sources >= wants->sources && has->source_capacity >= wants->source_capacity;
}

int text_make_trainer(const struct zinf_session *s, const struct text_trainer *wanted,
                      struct zinf_trainer **out)
{
    const struct zinf_decode_shape *shape = wanted->shape;
    struct zinf_trainer_options options = {
        .mode = ZINF_TRAINER_FORWARD,
        .model_path = s->job.model,
        .head = s->head,
        .adapter = s->job.adapter,
        .config = s->config,
        .device = s->device,
        .decode = *shape,
        .net = wanted->net,
        .gpu = wanted->gpu,
    };
    int code = zinf_trainer_create(out, &options);
    if (code != -ENOTSUP)
        return code;
    zinf_log(ZINF_LOG_WARN, "every token computes its whole text again: %s", zinf_error());
    options.decode = (struct zinf_decode_shape){0};
    options.seq_len = s->seq_len < shape->capacity ? s->seq_len : shape->capacity;
    options.source_len = shape->source_capacity;
    return zinf_trainer_create(out, &options);
}

/* Weights that steps have changed are those of the trainer that made them. */
int text_need_trainer(struct zinf_session *s, const struct zinf_decode_shape *shape,
                      struct zinf_trainer **out)
{
    *out = s->trains ? s->trainer : s->generator;
    if (s->trains || (s->generator && covers(zinf_trainer_decode_shape(s->generator), shape)))
        return 0;
    session_drop_trainers(s);
    int code = text_make_trainer(s, &(struct text_trainer){.shape = shape}, &s->generator);
    *out = s->generator;
    return code;
}
