/*
 * choices_row: a row of a benchmark as the text of a question, its choices and the number of the
 * right one. The columns tell which benchmark a row is of; the words around a question are those
 * that published figures were made with.
 */
#include "text/samples/choices_row.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const question_names[] = {"question", "query",  "context",       "ctx",
                                             "sentence", "prompt", "goal",          "input",
                                             "premise",  "text",   "question_stem", NULL};
static const char *const choices_names[] = {"choices", "endings", "options", "answers", NULL};
static const char *const answer_names[] = {"answer", "answerKey",  "label",   "gold",
                                           "target", "answer_idx", "correct", NULL};
static const char *const letter_columns[] = {"A", "B", "C", "D", "E", "F", "G", "H"};
#define MOST_LETTERS (int)(sizeof letter_columns / sizeof *letter_columns)

/* ---- columns ---- */

static const cJSON *find(const cJSON *row, const char *asked, const char *const *names,
                         const char **found)
{
    for (int i = 0; asked ? i < 1 : names[i] != NULL; i++) {
        const char *name = asked ? asked : names[i];
        const cJSON *field = cJSON_GetObjectItemCaseSensitive(row, name);
        if (field && !cJSON_IsNull(field)) {
            *found = name;
            return field;
        }
    }
    return NULL;
}

static int fail_missing(const cJSON *row, const char *what, const char *asked, const char *option)
{
    char present[300] = "";
    size_t used = 0;
    for (const cJSON *item = cJSON_IsObject(row) ? row->child : NULL; item; item = item->next)
        if (item->string && used < sizeof present - 1)
            used += (size_t)snprintf(present + used, sizeof present - used, "%s%s",
                                     used ? ", " : "", item->string);
    return zinf_fail(-EINVAL, "no column has the %s%s%s (columns: %s): name it with %s", what,
                     asked ? " under the name " : "", asked ? asked : "", present, option);
}

/* ---- texts ---- */

char *choices_join(const char *const *parts, size_t n)
{
    size_t bytes = 1;
    for (size_t i = 0; i < n; i++)
        bytes += strlen(parts[i]);
    char *text = malloc(bytes), *at = text;
    for (size_t i = 0; text && i < n; i++)
        at = stpcpy(at, parts[i]);
    if (text)
        *at = 0;
    return text;
}

static void strip(char *text)
{
    size_t n = strlen(text), front = 0;
    while (n && isspace((unsigned char)text[n - 1]))
        text[--n] = 0;
    while (isspace((unsigned char)text[front]))
        front++;
    memmove(text, text + front, n - front + 1);
}

/* Replaces every `old` by `new_text`, which is not longer. */
static void replace(char *text, const char *old, const char *new_text)
{
    const size_t n_old = strlen(old), n_new = strlen(new_text);
    char *to = text;
    for (const char *from = text; *from;) {
        if (strncmp(from, old, n_old) != 0) {
            *to++ = *from++;
            continue;
        }
        memcpy(to, new_text, n_new);
        to += n_new;
        from += n_old;
    }
    *to = 0;
}

/* HellaSwag's texts are from WikiHow, whose marks in brackets are no text: a title's ends a
 * sentence, others go, up to the first closing bracket in their line. */
static void clean(char *text)
{
    strip(text);
    replace(text, " [title]", ". ");
    char *to = text;
    for (const char *from = text; *from;) {
        const char *end = *from == '[' ? from + strcspn(from, "]\n") : from;
        if (end != from && *end == ']')
            from = end + 1;
        else
            *to++ = *from++;
    }
    *to = 0;
    replace(text, "  ", " ");
}

/* The first letter large, the others small; bytes beyond ASCII stay. */
static void capitalize(char *text)
{
    for (char *at = text; *at; at++)
        *at = (char)(at == text ? toupper((unsigned char)*at) : tolower((unsigned char)*at));
}

/* ---- choices ---- */

static int add_choice(struct choices_row *q, const char *text)
{
    if (!text)
        return zinf_fail(-EINVAL, "choice %d is no text", q->n_choices + 1);
    if (q->n_choices == CHOICES_MOST)
        return zinf_fail(-EINVAL, "a question has more than %d choices", CHOICES_MOST);
    q->choices[q->n_choices] = strdup(text);
    return q->choices[q->n_choices++] ? 0 : zinf_fail(-ENOMEM, "no memory for a choice");
}

/* A list, ARC's object of texts with labels, a list in a table's text, or a column each. */
static int take_choices(struct choices_row *q, const cJSON *row, const char *asked, cJSON **parsed,
                        const cJSON **labels)
{
    const char *name;
    const cJSON *field = find(row, asked, choices_names, &name);
    if (cJSON_IsString(field)) {
        const char *text = field->valuestring;
        field = *parsed = cJSON_Parse(text);
    }
    q->endings = field && !asked && !strcmp(name, "endings");
    q->labelled = cJSON_IsObject(field);
    if (q->labelled) {
        *labels = cJSON_GetObjectItemCaseSensitive(field, "label");
        field = cJSON_GetObjectItemCaseSensitive(field, "text");
    }
    int code = 0;
    if (cJSON_IsArray(field)) {
        for (const cJSON *item = field->child; !code && item; item = item->next)
            code = add_choice(q, cJSON_GetStringValue(item));
    } else {
        for (int i = 0; !code && !asked && i < MOST_LETTERS; i++) {
            const cJSON *one = cJSON_GetObjectItemCaseSensitive(row, letter_columns[i]);
            if (!cJSON_IsString(one))
                break;
            code = add_choice(q, one->valuestring);
        }
    }
    if (!code && q->n_choices < 2)
        return q->n_choices ? zinf_fail(-EINVAL, "a question has one choice alone")
                            : fail_missing(row, "list of choices", asked, "--target-column");
    return code;
}

/* A number from 0 on, a letter, one of the choices' own labels, or the choice itself. */
static int take_answer(struct choices_row *q, const cJSON *row, const char *asked,
                       const cJSON *labels)
{
    const char *name, *text = NULL;
    const cJSON *field = find(row, asked, answer_names, &name);
    double number = cJSON_IsNumber(field) ? field->valuedouble : -1;
    if (!field)
        return fail_missing(row, "right choice", asked, "--label-column");
    text = cJSON_GetStringValue(field);
    int k = 0;
    for (const cJSON *label = labels ? labels->child : NULL; text && label; label = label->next)
        if (cJSON_IsString(label) && !strcmp(label->valuestring, text) && number < 0)
            number = k;
        else
            k++;
    for (int i = 0; text && number < 0 && i < q->n_choices; i++)
        if (!strcmp(q->choices[i], text))
            number = i;
    if (text && number < 0 && isdigit((unsigned char)*text)) {
        char *end;
        long value = strtol(text, &end, 10);
        number = *end ? -1 : (double)value;
    }
    if (text && number < 0 && text[0] && !text[1])
        number = toupper((unsigned char)text[0]) - 'A';
    if (number != (int)number || number < 0 || number >= q->n_choices)
        return zinf_fail(-EINVAL, "\"%s\" names none of the %d choices", name, q->n_choices);
    q->answer = (uint32_t)number;
    return 0;
}

/* ---- questions ---- */

/* "activity: context", of which HellaSwag's rows have two halves. */
static int take_story(struct choices_row *q, const char *activity, const char *a, const char *b)
{
    char *second = strdup(b);
    if (second)
        capitalize(second);
    q->question = second ? choices_join((const char *[]){activity, ": ", a, " ", second}, 5) : NULL;
    free(second);
    if (!q->question)
        return zinf_fail(-ENOMEM, "no memory for a question");
    clean(q->question);
    for (int i = 0; i < q->n_choices; i++)
        clean(q->choices[i]);
    return 0;
}

static int take_question(struct choices_row *q, const cJSON *row, const char *asked)
{
    const char *const *usual = question_names;
    const char *activity =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "activity_label"));
    const char *a = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "ctx_a"));
    const char *b = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "ctx_b"));
    const char *name = NULL;
    if (!asked && q->endings && activity && a && b)
        return take_story(q, activity, a, b);
    const char *text = cJSON_GetStringValue(find(row, asked, usual, &name));
    if (!text)
        return fail_missing(row, "question", asked, "--source-column");
    q->is_question = !asked && !strcmp(name, "question");
    q->question = strdup(text);
    return q->question ? 0 : zinf_fail(-ENOMEM, "no memory for a question");
}

/* ---- what the model reads ---- */

/* The question, its choices with letters, and "Answer:"; the letters become the choices. */
static int letter(struct choices_row *q)
{
    const char *parts[1 + 4 * CHOICES_MOST + 1];
    char letters[CHOICES_MOST][2];
    size_t n = 0;
    strip(q->question);
    parts[n++] = q->question;
    for (int i = 0; i < q->n_choices; i++) {
        letters[i][0] = (char)('A' + i);
        letters[i][1] = 0;
        parts[n++] = "\n";
        parts[n++] = letters[i];
        parts[n++] = ". ";
        parts[n++] = q->choices[i];
    }
    parts[n++] = "\nAnswer:";
    char *text = choices_join(parts, n);
    free(q->question);
    q->question = text;
    for (int i = 0; i < q->n_choices; i++) {
        free(q->choices[i]);
        q->choices[i] = strdup(letters[i]);
        text = q->choices[i] ? text : NULL;
    }
    return text ? 0 : zinf_fail(-ENOMEM, "no memory for a question");
}

/* Of a question, not of a text that is gone on with. */
static int ask(struct choices_row *q)
{
    char *text = choices_join((const char *[]){"Question: ", q->question, "\nAnswer:"}, 3);
    free(q->question);
    q->question = text;
    return text ? 0 : zinf_fail(-ENOMEM, "no memory for a question");
}

int choices_row_take(struct choices_row *q, const cJSON *row, const struct zinf_choices_options *o)
{
    const cJSON *labels = NULL;
    cJSON *parsed = NULL;
    *q = (struct choices_row){0};
    int code = take_choices(q, row, o->choices_column, &parsed, &labels);
    if (!code)
        code = take_answer(q, row, o->answer_column, labels);
    if (!code)
        code = take_question(q, row, o->question_column);
    cJSON_Delete(parsed);
    q->subject = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "subject"));
    q->group = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "group"));
    if (code)
        return code;
    q->letters = o->style == ZINF_CHOICES_LETTERS ||
                 (o->style == ZINF_CHOICES_AS_USUAL && q->is_question && !q->labelled);
    if (q->letters)
        return letter(q);
    return q->is_question ? ask(q) : 0;
}

void choices_row_free(struct choices_row *q)
{
    free(q->question);
    for (int i = 0; i < q->n_choices; i++)
        free(q->choices[i]);
    *q = (struct choices_row){0};
}
