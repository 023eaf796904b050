/*
 * generate_text: tokens as characters. Tokens need not end where characters do, and decoding may
 * depend on what is before, so the whole text is decoded after each token. A stream holds back what
 * may still change: an unfinished character, and what may be the beginning of a stop string.
 */
#include "base/json.h"
#include "cli/generate.h"

#include <stdlib.h>

/* What an unfinished character is decoded to. */
static const char unfinished[] = "\xef\xbf\xbd";

static int decode(struct generate_output *o, int64_t number, const struct zinf_text *text)
{
    struct generate_text *t = &o->texts[number];
    free(t->all);
    t->all = NULL;
    int code = zinf_tokenizer_decode(o->tokenizer, text->ids + t->first,
                                     (size_t)(text->n_prompt + text->n_new) - t->first, &t->all,
                                     &t->bytes);
    t->end = t->bytes;
    return code;
}

int generate_text_begin(struct generate_output *o, int64_t number, const struct zinf_text *text)
{
    int code = decode(o, number, text);
    o->texts[number].prompt_bytes = o->texts[number].bytes;
    return code;
}

/* Where the first stop string in the new text begins; its end if there is none. */
static size_t find_stop(const struct generate_output *o, const struct generate_text *t)
{
    size_t first = t->prompt_bytes < t->bytes ? t->prompt_bytes : t->bytes, end = t->bytes;
    for (int i = 0; i < o->stops->n; i++) {
        const char *stop = o->stops->items[i];
        const char *at = memmem(t->all + first, t->bytes - first, stop, strlen(stop));
        if (at && (size_t)(at - t->all) < end)
            end = (size_t)(at - t->all);
    }
    return end;
}

/* Up to where the text will stay as it is. */
static size_t settled(const struct generate_output *o, const struct generate_text *t)
{
    const size_t width = sizeof unfinished - 1;
    size_t end = t->end;
    while (end >= t->prompt_bytes + width && !memcmp(t->all + end - width, unfinished, width))
        end -= width;
    size_t least = end;
    for (int i = 0; i < o->stops->n; i++)
        for (size_t n = strlen(o->stops->items[i]); n > 0; n--)
            if (n <= end && end - n >= t->prompt_bytes && end - n < least &&
                !memcmp(t->all + end - n, o->stops->items[i], n))
                least = end - n;
    return least;
}

static void print_to(struct generate_text *t, size_t end)
{
    if (end > t->printed) {
        fwrite(t->all + t->printed, 1, end - t->printed, stdout);
        t->printed = end;
    }
}

int generate_text_made(struct generate_output *o, int64_t number, const struct zinf_text *text)
{
    struct generate_text *t = &o->texts[number];
    int code = decode(o, number, text);
    if (code)
        return code;
    t->end = find_stop(o, t);
    if (o->streams) {
        print_to(t, settled(o, t));
        fflush(stdout);
    }
    return t->end < t->bytes;
}

void generate_text_print(struct generate_output *o, int64_t number)
{
    print_to(&o->texts[number], o->texts[number].end);
    putchar('\n');
}

/* A part of the text as a string of its own; NULL: no memory. */
static cJSON *part(const struct generate_text *t, size_t first, size_t end)
{
    char *copy = strndup(t->all + first, end - first);
    cJSON *string = copy ? cJSON_CreateString(copy) : NULL;
    free(copy);
    return string;
}

int generate_text_print_json(const struct generate_output *o, int64_t number,
                             const struct zinf_text *text)
{
    const struct generate_text *t = &o->texts[number];
    cJSON *object = cJSON_CreateObject();
    cJSON *ids = cJSON_CreateIntArray(text->ids + text->n_prompt, (int)text->n_new);
    size_t begin = t->prompt_bytes < t->end ? t->prompt_bytes : t->end;
    if (o->sources)
        cJSON_AddStringToObject(object, "prompt", o->sources[number]);
    else
        cJSON_AddItemToObject(object, "prompt", part(t, 0, begin));
    cJSON_AddItemToObject(object, "text", part(t, begin, t->end));
    cJSON_AddStringToObject(object, "finish", zinf_finish_name(text->finish));
    cJSON_AddNumberToObject(object, "prompt_tokens",
                            (double)(text->source ? text->n_source : text->n_prompt));
    cJSON_AddNumberToObject(object, "new_tokens", (double)text->n_new);
    cJSON_AddItemToObject(object, "ids", ids);
    return cli_print_json_line(object);
}
