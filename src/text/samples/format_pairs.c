/*
 * format_pairs: a prompt with two answers, of which the first is preferred, in the forms that TRL
 * takes. A row without a prompt has two texts or conversations: what they begin with alike is it.
 */
#include "text/samples/format.h"

#include <math.h>
#include <stdlib.h>

/* In front of the first byte that differs, and of the space before it, which is the answers'. */
static size_t common_text(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    while (n && ((unsigned char)a[n] & 0xc0) == 0x80) /* within a character */
        n--;
    return n && a[n - 1] == ' ' ? n - 1 : n;
}

static size_t common_messages(const cJSON *a, const cJSON *b)
{
    const cJSON *x = a->child, *y = b->child;
    size_t n = 0;
    for (; x && y && cJSON_Compare(x, y, true); x = x->next, y = y->next)
        n++;
    return n;
}

/* As the bits of what it is below 0: the label of whatever was rejected is negative. */
static int take_margin(const cJSON *row, int32_t *label)
{
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(row, "margin");
    if (!field || cJSON_IsNull(field))
        return 0;
    const char *text = cJSON_GetStringValue(field); /* of a table */
    char *end = NULL;
    double value = cJSON_IsNumber(field) ? field->valuedouble
                   : text && *text       ? strtod(text, &end)
                                         : NAN;
    const float below = -(float)value;
    if (!(value >= 0) || !isfinite(below) || (end && *end))
        return zinf_fail(-EINVAL, "\"margin\" is no number from 0 on");
    if (below < 0) /* of 0 the usual one does */
        memcpy(label, &below, sizeof below);
    return 0;
}

/* Without "prompt" only the answers are read. A row of texts that asks in a field of another name
 * would be learned without its question. */
static int check_question(const cJSON *row)
{
    static const char *const names[] = {"question", "instruction", "query", "input", "problem"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, names[i]));
        if (text && *text)
            return zinf_fail(-EINVAL,
                             "there is no \"prompt\", and \"%s\" would not be read: call it "
                             "\"prompt\", or leave it out of the rows",
                             names[i]);
    }
    return 0;
}

/* The answer in a field, whose prompt is the row's, or what both answers begin with. Where the
 * prompt is a text and the answers are conversations these have it, too, or follow it. */
static int find_answer(const cJSON *row, const char *field, const char *other_field,
                       struct format_answer *out)
{
    const cJSON *other = cJSON_GetObjectItemCaseSensitive(row, other_field);
    struct format_answer a = {
        .prompt = cJSON_GetObjectItemCaseSensitive(row, "prompt"),
        .answer = cJSON_GetObjectItemCaseSensitive(row, field),
        .field = field,
    };
    if (!a.answer || !other)
        return zinf_fail(-EINVAL, "there is no \"%s\"", a.answer ? other_field : field);
    if (cJSON_IsNull(a.prompt))
        a.prompt = NULL;
    bool texts = cJSON_IsString(a.answer) && cJSON_IsString(other);
    if (!texts && !(cJSON_IsArray(a.answer) && cJSON_IsArray(other)))
        return zinf_fail(-EINVAL, "\"chosen\" and \"rejected\" are not two texts, and not two "
                                  "lists of messages");
    if (cJSON_Compare(a.answer, other, true))
        return zinf_fail(-EINVAL, "\"chosen\" and \"rejected\" are the same");
    int code = format_check_system(row);
    if (!code && texts && !a.prompt)
        code = check_question(row);
    if (code)
        return code;
    if (!a.prompt || (!texts && cJSON_IsString(a.prompt)))
        a.shared = texts ? common_text(a.answer->valuestring, other->valuestring)
                         : common_messages(a.answer, other);
    if (!texts && a.shared)
        a.prompt = cJSON_IsString(a.prompt) ? NULL : a.prompt;
    *out = a;
    return 0;
}

/* Both answers of a row. What they answer ends where the earlier of the two begins: where one
 * answer's first token reaches into the prompt it does so for both. */
static int take_pair(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *chosen)
{
    struct zinf_sample *const samples[2] = {chosen, &r->rejected};
    struct format_answer answers[2];
    size_t first[2] = {0, 0};
    int code = find_answer(row, "chosen", "rejected", &answers[0]);
    if (!code)
        code = find_answer(row, "rejected", "chosen", &answers[1]);
    zinf_sample_clear(&r->rejected);
    for (int i = 0; !code && i < 2; i++)
        code = format_take_answer(r, &answers[i], samples[i], &first[i]);
    for (int i = 0; !code && i < 2; i++)
        format_count_from(samples[i],
                          r->options.bare || first[i] < first[1 - i] ? first[i] : first[1 - i]);
    return code;
}

int format_take_chosen(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample)
{
    sample->label = 0;
    return take_pair(r, row, sample);
}

int format_take_rejected(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample)
{
    struct zinf_sample taken = r->rejected;
    r->rejected = *sample;
    *sample = taken;
    sample->label = -1;
    return r->options.margins ? take_margin(row, &sample->label) : 0;
}

/* ---- a prompt with one answer, which is wanted or not ---- */

/* A boolean, or as tables and other programs write it. */
static int read_label(const cJSON *row, int32_t *out)
{
    static const char *const words[2][3] = {{"false", "False", "0"}, {"true", "True", "1"}};
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(row, "label");
    const char *text = cJSON_GetStringValue(field);
    *out = cJSON_IsBool(field) ? cJSON_IsTrue(field) : -1;
    for (int i = 0; *out < 0 && i < 2; i++) {
        for (int k = 0; text && k < 3; k++)
            *out = strcmp(text, words[i][k]) ? *out : i;
        if (cJSON_IsNumber(field) && field->valuedouble == i)
            *out = i;
    }
    return *out >= 0 ? 0
                     : zinf_fail(-EINVAL, "%s: true or false says whether the completion is wanted",
                                 field ? "\"label\" is neither" : "there is no \"label\"");
}

int format_take_single(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample)
{
    int code = read_label(row, &sample->label);
    return code ? code : format_take_prompt(r, row, sample);
}
