/*
 * task: a row's columns into a sample. Texts are framed as the tokenizer frames them for a model
 * (an end-of-text token behind, [CLS] and [SEP] around), since that is what the models were trained
 * on before.
 */
#include "text/samples/task.h"

#include "text/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

struct zinf_task_recipe {
    struct zinf_recipe recipe;
    struct zinf_task_options options;
    /* Of the source; without the second it is one text. Of EMBEDDING a text each. */
    char *columns[ZINF_SAMPLES_OF_ROW];
    uint32_t n_columns;
    const char *target, *label;
    char *prefixed;                  /* the last source with its prefix or in its template */
    size_t head, tail;               /* bytes of the template around "{source}" */
    struct zinf_tokens texts[2];     /* of a row, without their frame */
    uint32_t n_head, n_tail;         /* ids of the first that are the template's */
    struct zinf_tokens types, sides; /* of each id: its token type, and the text it is of */
};

static const char *const names[ZINF_TASKS] = {"causal-lm",  "seq2seq",    "classification",
                                              "regression", "preference", "reward",
                                              "masked-lm",  "embedding",  "multiple-choice"};

const char *zinf_task_name(enum zinf_task task)
{
    return names[task];
}

int zinf_task_parse(const char *name, enum zinf_task *out)
{
    for (int i = 0; i < ZINF_TASKS; i++)
        if (!strcmp(name, names[i])) {
            *out = (enum zinf_task)i;
            return 0;
        }
    return zinf_fail(
        -EINVAL,
        "%s is not a task: use causal-lm, preference, reward, seq2seq, classification, "
        "regression, masked-lm, embedding or, for zinf eval, multiple-choice",
        name);
}

/* ---- fields ---- */

/* A column that is missing is most often one that is called otherwise: the message has those that
 * are there. */
static int find_field(const cJSON *row, const char *column, const char *option, const cJSON **out)
{
    char present[300] = "";
    size_t used = 0;
    *out = cJSON_GetObjectItemCaseSensitive(row, column);
    if (*out && !cJSON_IsNull(*out))
        return 0;
    for (const cJSON *item = cJSON_IsObject(row) ? row->child : NULL; item; item = item->next)
        if (item->string && used < sizeof present - 1)
            used += (size_t)snprintf(present + used, sizeof present - used, "%s%s",
                                     used ? ", " : "", item->string);
    return zinf_fail(-EINVAL, "there is no \"%s\" among its columns (%s): name one with %s", column,
                     present, option);
}

static int find_text(const cJSON *row, const char *column, const char *option, const char **out)
{
    const cJSON *field;
    int code = find_field(row, column, option, &field);
    if (code)
        return code;
    *out = cJSON_GetStringValue(field);
    return *out ? 0 : zinf_fail(-EINVAL, "\"%s\" is no text", column);
}

#define HOLE "{source}"

/* The text with what goes around it; valid until the next one. */
static int dress(struct zinf_task_recipe *r, const char **text)
{
    const char *prefix = r->options.prefix, *around = r->options.around;
    char *joined = NULL;
    int length = 0;
    if (around)
        length = asprintf(&joined, "%.*s%s%s", (int)r->head, around, *text,
                          around + r->head + strlen(HOLE));
    else if (prefix && *prefix)
        length = asprintf(&joined, "%s%s", prefix, *text);
    else
        return 0;
    if (length < 0)
        return zinf_fail(-ENOMEM, "no memory for a text of %zu bytes", strlen(*text));
    free(r->prefixed);
    r->prefixed = joined;
    *text = joined;
    return 0;
}

/* How many ids the first bytes of a text and the whole of it begin with alike. */
static int common_ids(struct zinf_task_recipe *r, const char *text, size_t bytes, size_t *out)
{
    const struct zinf_tokens *whole = &r->texts[0];
    struct zinf_tokens *begin = &r->texts[1];
    begin->count = *out = 0;
    int code = zinf_tokenizer_encode(r->options.tokenizer, text, bytes, begin);
    while (!code && *out < begin->count && *out < whole->count &&
           begin->ids[*out] == whole->ids[*out])
        ++*out;
    return code;
}

/* The text is encoded as a whole, as it is where nothing is cut. Which of its ids are the
 * template's is found by encoding its beginnings; an id that has a joint in it is the source's in
 * front, and the template's behind. */
static int find_template(struct zinf_task_recipe *r, const char *text)
{
    size_t head = 0, rest = 0;
    int code = common_ids(r, text, r->head, &head);
    if (!code)
        code = common_ids(r, text, strlen(text) - r->tail, &rest);
    r->n_head = (uint32_t)head;
    r->n_tail = r->tail ? (uint32_t)(r->texts[0].count - (rest > head ? rest : head)) : 0;
    return code;
}

/* Ids that the tokenizer puts in front of the text. */
static size_t front_of(const struct zinf_task_recipe *r)
{
    size_t front = 0;
    while (front < r->sides.count && r->sides.ids[front] < 0)
        front++;
    return front;
}

/* Whether a framed id is the tokenizer's or the template's. */
static bool is_around(const struct zinf_task_recipe *r, size_t i, size_t front)
{
    const size_t at = i - front;
    return r->sides.ids[i] < 0 ||
           (r->options.around && (at < r->n_head || at + r->n_tail >= r->texts[0].count));
}

/* The row's source, one text or two from column `first` on, framed. */
static int frame_columns(struct zinf_task_recipe *r, const cJSON *row, uint32_t first, int n,
                         struct zinf_tokens *out)
{
    const struct zinf_tokenizer *tokenizer = r->options.tokenizer;
    int code = 0;
    r->types.count = r->sides.count = 0;
    for (int i = 0; !code && i < n; i++) {
        const char *text = NULL;
        r->texts[i].count = 0;
        code = find_text(row, r->columns[first + (uint32_t)i], "--source-column", &text);
        if (!code && !i)
            code = dress(r, &text);
        if (!code)
            code = zinf_tokenizer_encode(tokenizer, text, strlen(text), &r->texts[i]);
        if (!code && !i && r->options.around)
            code = find_template(r, text);
    }
    return code ? code
                : zinf_tokenizer_frame_told(tokenizer, &r->texts[0], n == 2 ? &r->texts[1] : NULL,
                                            out, &r->types, &r->sides);
}

static int frame_source(struct zinf_task_recipe *r, const cJSON *row, struct zinf_tokens *out)
{
    return frame_columns(r, row, 0, r->n_columns > 1 ? 2 : 1, out);
}

/* What an encoder-decoder reads and writes ends with the same token, also by tokenizers without a
 * frame. */
static int end_tokens(const struct zinf_task_recipe *r, struct zinf_tokens *tokens)
{
    int32_t end = r->options.end;
    bool ends = tokens->count && tokens->ids[tokens->count - 1] == end;
    return end < 0 || ends ? 0 : text_tokens_push(tokens, end);
}

/* ---- samples ---- */

static int take_pair(struct zinf_task_recipe *r, const cJSON *row, struct zinf_sample *sample)
{
    const char *target = NULL;
    struct zinf_tokens *framed = &r->types;
    int code = frame_source(r, row, &sample->source);
    if (!code)
        code = end_tokens(r, &sample->source);
    if (!code && r->options.around) {
        sample->source_head = (uint32_t)front_of(r) + r->n_head;
        sample->source_tail =
            (uint32_t)(sample->source.count - front_of(r) - r->texts[0].count) + r->n_tail;
    }
    if (!code)
        code = find_text(row, r->target, "--target-column", &target);
    r->texts[0].count = framed->count = 0;
    if (!code)
        code = zinf_tokenizer_encode(r->options.tokenizer, target, strlen(target), &r->texts[0]);
    if (!code)
        code = zinf_tokenizer_frame(r->options.tokenizer, &r->texts[0], NULL, framed, NULL);
    if (!code)
        code = end_tokens(r, framed);
    if (!code)
        code = zinf_sample_add_ids(sample, &r->options.start, 1, 0);
    if (!code)
        code = zinf_sample_add_ids(sample, framed->ids, framed->count, ZINF_MARK_COUNTS);
    sample->keeps_last = sample->source_keeps_last = true;
    return code;
}

static int take_number(const cJSON *field, const char *column, int32_t *bits)
{
    double value = NAN;
    const char *text = cJSON_GetStringValue(field);
    char *end = NULL;
    if (cJSON_IsNumber(field))
        value = field->valuedouble;
    else if (text && *text)
        value = strtod(text, &end);
    float number = (float)value;
    if (!isfinite(number) || (end && *end))
        return zinf_fail(-EINVAL, "\"%s\" is no number", column);
    memcpy(bits, &number, sizeof number);
    return 0;
}

/* n of the row's texts from column `first` on, framed; marks: of those tokens that are no frame. */
static int take_framed(struct zinf_task_recipe *r, const cJSON *row, uint32_t first, int n,
                       unsigned marks, struct zinf_sample *sample)
{
    struct zinf_tokens framed = {0};
    int code = frame_columns(r, row, first, n, &framed);
    const size_t front = front_of(r);
    for (size_t i = 0; !code && i < framed.count; i++) {
        const unsigned of = is_around(r, i, front)
                                ? ZINF_MARK_FRAME
                                : marks | (r->sides.ids[i] ? ZINF_MARK_OTHER : 0);
        code = zinf_sample_add_ids(sample, &framed.ids[i], 1,
                                   of | (r->types.ids[i] ? ZINF_MARK_SECOND : 0u));
    }
    zinf_tokens_free(&framed);
    sample->keeps_frame = true;
    return code;
}

static int take_labelled(struct zinf_task_recipe *r, const cJSON *row, struct zinf_sample *sample)
{
    const cJSON *field = NULL;
    int code = take_framed(r, row, 0, r->n_columns > 1 ? 2 : 1, 0, sample);
    if (!code)
        code = find_field(row, r->label, "--label-column", &field);
    if (!code)
        code = r->options.task == ZINF_TASK_REGRESSION
                   ? take_number(field, r->label, &sample->label)
                   : zinf_labels_parse(r->options.labels, field, &sample->label);
    return code;
}

static int take(void *arg, const cJSON *row, struct zinf_sample *sample)
{
    struct zinf_task_recipe *r = arg;
    if (r->options.task == ZINF_TASK_MASKED)
        return take_framed(r, row, 0, r->n_columns > 1 ? 2 : 1, ZINF_MARK_COUNTS, sample);
    if (r->options.task == ZINF_TASK_EMBEDDING) {
        sample->label = 0;
        return take_framed(r, row, 0, 1, 0, sample);
    }
    return r->options.task == ZINF_TASK_SEQ2SEQ ? take_pair(r, row, sample)
                                                : take_labelled(r, row, sample);
}

static int take_other(void *arg, const cJSON *row, uint32_t index, struct zinf_sample *sample)
{
    sample->label = -1;
    return take_framed(arg, row, index, 1, 0, sample);
}

/* ---- recipes ---- */

#define SEEN (-ECANCELED) /* ends the reading */

struct found_columns {
    char *columns;
    size_t bytes;
};

static int see_columns(void *handle, const cJSON *row, long line)
{
    static const char *const usual[] = {"anchor",     "positive",   "negative",   "negative_1",
                                        "negative_2", "negative_3", "negative_4", "negative_5"};
    const struct found_columns *f = handle;
    size_t used = 0;
    (void)line;
    for (size_t i = 0; i < sizeof usual / sizeof *usual && used < f->bytes; i++)
        if (cJSON_HasObjectItem(row, usual[i]))
            used += (size_t)snprintf(f->columns + used, f->bytes - used, "%s%s", used ? "," : "",
                                     usual[i]);
    return SEEN;
}

int zinf_task_find_columns(const char *file, char *columns, size_t bytes)
{
    struct found_columns found = {columns, bytes};
    struct text_sink sink = {.row = see_columns, .handle = &found};
    *columns = 0;
    int code = text_rows_read(file, &sink);
    if (code && code != SEEN)
        return code;
    return strncmp(columns, "anchor,positive", strlen("anchor,positive"))
               ? zinf_fail(
                     -EINVAL,
                     "%s: its rows have no \"anchor\" and \"positive\": name the columns with "
                     "--source-column, the anchor's first, then the positive's",
                     file)
               : 0;
}

static uint64_t mix(uint64_t key, const char *text)
{
    return XXH3_64bits_withSeed(text ? text : "", text ? strlen(text) + 1 : 0, key);
}

static uint64_t key_of(const struct zinf_task_recipe *r)
{
    const struct zinf_task_options *o = &r->options;
    const int32_t numbers[] = {(int32_t)o->task, o->start, o->end, o->labels ? o->labels->n : 0};
    uint64_t key = XXH3_64bits(numbers, sizeof numbers);
    for (uint32_t i = 0; i < (r->n_columns > 2 ? r->n_columns : 2); i++)
        key = mix(key, r->columns[i]);
    key = mix(mix(mix(key, r->target), r->label), o->prefix);
    if (o->around)
        key = mix(key, o->around);
    for (int32_t i = 0; o->labels && o->labels->names && i < o->labels->n; i++)
        key = mix(key, o->labels->names[i]);
    return key;
}

/* "a" or "a,b", of EMBEDDING more of them */
static int split_columns(struct zinf_task_recipe *r, const char *columns)
{
    const uint32_t most = r->options.task == ZINF_TASK_EMBEDDING ? ZINF_SAMPLES_OF_ROW : 2;
    for (const char *at = columns;; at++) {
        const size_t n = strcspn(at, ",");
        if (!n || r->n_columns == most)
            return zinf_fail(-EINVAL,
                             "--source-column %s: name a column, or %s with a comma between",
                             columns, most > 2 ? "several" : "two");
        if (!(r->columns[r->n_columns++] = strndup(at, n)))
            return zinf_fail(-ENOMEM, "no memory");
        at += n;
        if (!*at)
            return 0;
    }
}

static int read_template(struct zinf_task_recipe *r)
{
    const char *around = r->options.around;
    const char *hole = around ? strstr(around, HOLE) : NULL;
    if (!around)
        return 0;
    if (!hole || strstr(hole + 1, HOLE))
        return zinf_fail(-EINVAL, "--template %s: write " HOLE " once, where the source goes",
                         around);
    if (r->columns[1])
        return zinf_fail(
            -EINVAL, "--template has one source, but --source-column names two: name one column");
    if (r->options.prefix && *r->options.prefix)
        return zinf_fail(-EINVAL, "--prefix says the same as the text before " HOLE
                                  " in --template: give one of them");
    r->head = (size_t)(hole - around);
    r->tail = strlen(hole) - strlen(HOLE);
    return 0;
}

int zinf_task_open(struct zinf_task_recipe **out, const struct zinf_task_options *options)
{
    bool pairs = options->task == ZINF_TASK_SEQ2SEQ;
    struct zinf_task_recipe *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return zinf_fail(-ENOMEM, "no memory for a recipe");
    r->options = *options;
    r->target = options->target_column ? options->target_column : "target";
    r->label = options->label_column ? options->label_column : "label";
    const char *usual = pairs ? "source" : "text";
    int code = split_columns(r, options->source_column ? options->source_column : usual);
    if (!code)
        code = read_template(r);
    if (code) {
        zinf_task_close(r);
        return code;
    }
    r->recipe = (struct zinf_recipe){
        .name = names[options->task], .key = key_of(r), .take = take, .arg = r};
    r->recipe.lines = options->task == ZINF_TASK_MASKED || options->task == ZINF_TASK_EMBEDDING;
    if (options->task == ZINF_TASK_EMBEDDING) {
        r->recipe.n_samples = r->n_columns;
        r->recipe.take_other = take_other;
    }
    *out = r;
    return 0;
}

const struct zinf_recipe *zinf_task_recipe(const struct zinf_task_recipe *recipe)
{
    return &recipe->recipe;
}

void zinf_task_close(struct zinf_task_recipe *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < r->n_columns; i++)
        free(r->columns[i]);
    for (int i = 0; i < 2; i++)
        zinf_tokens_free(&r->texts[i]);
    zinf_tokens_free(&r->types);
    zinf_tokens_free(&r->sides);
    free(r->prefixed);
    free(r);
}
