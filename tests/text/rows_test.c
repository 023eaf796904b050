/*
 * rows: rows of data against what TRL's trainers feed a model of them: begin and end of texts,
 * where an answer begins, what is cut and what is dropped, whose answer a prompt of KTO is turned
 * to. tests/fixtures/make_rows.py writes rows.json.
 */
#include "text_files.h"
#include "text/chat/chat.h"
#include "text/samples/task.h"

#include <stdio.h>

#define VOCAB 4096
#define MOST 128

static void write_json(const char *name, const cJSON *json)
{
    char *text = zinf_json_print(json);
    CHECKF(!zinf_file_write_atomic(path_of(name), text, strlen(text)), "%s", zinf_error());
    cJSON_free(text);
}

static const char *text_of(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(get(object, key));
}

/* A kind of tokenizer_kinds with tokens and post-processor of the fixture's own. */
static struct zinf_tokenizer *open_tokenizer(const cJSON *fixture)
{
    char name[128];
    struct zinf_tokenizer *tokenizer = NULL;
    snprintf(name, sizeof name, "tokenizer_kinds/%s.json", text_of(fixture, "kind"));
    cJSON *json = read_fixture(name);
    static const char *const own[] = {"added_tokens", "post_processor"};
    for (int i = 0; i < 2; i++)
        cJSON_ReplaceItemInObjectCaseSensitive(json, own[i],
                                               cJSON_Duplicate(get(fixture, own[i]), true));
    write_json("tokenizer.json", json);
    write_json("tokenizer_config.json", get(fixture, "config"));
    CHECKF(!zinf_tokenizer_open(&tokenizer, folder), "%s", zinf_error());
    cJSON_Delete(json);
    return tokenizer;
}

/* ---- a case ---- */

struct rows_case {
    const cJSON *json;
    const char *name;
    struct zinf_samples *samples;
    uint32_t length;
    bool scores, likelihood;
};

static void open_case(struct rows_case *c, const cJSON *fixture,
                      const struct zinf_tokenizer *tokenizer)
{
    static const char *const cuts[] = {"end", "beginning", "drop"};
    const char *trainer = text_of(c->json, "trainer"), *template = text_of(fixture, "template");
    const char *const file = strdup(path_of("rows.json"));
    struct zinf_chat *chat = NULL;
    struct zinf_format_recipe *recipe = NULL;
    FILE *rows = fopen(file, "w");
    const cJSON *row;
    enum zinf_cut cut = ZINF_CUT_END;
    cJSON_ArrayForEach(row, get(c->json, "rows"))
    {
        char *line = cJSON_PrintUnformatted(row);
        fprintf(rows, "%s\n", line);
        cJSON_free(line);
    }
    fclose(rows);
    for (int i = 0; i < 3; i++)
        cut = strcmp(text_of(c->json, "cut"), cuts[i]) ? cut : (enum zinf_cut)i;
    c->scores = !strcmp(trainer, "reward");
    c->likelihood = !strcmp(trainer, "orpo");
    c->length = (uint32_t)get(c->json, "length")->valueint;
    struct zinf_format_options form = {
        .tokenizer = tokenizer, .folder = folder, .bare = c->likelihood};
    CHECK(!zinf_format_parse(text_of(c->json, "format"), &form.format));
    CHECK(!template || !zinf_chat_open(&chat, folder, template, tokenizer));
    form.chat = chat;
    CHECKF(!zinf_format_open(&recipe, &form), "%s", zinf_error());
    const struct zinf_samples_options options = {
        .files = &file,
        .n_files = 1,
        .recipe = zinf_format_recipe(recipe),
        .tokenizer = tokenizer,
        .vocab = VOCAB,
        .seq_len = c->length,
        .cut = cut,
        .unlabelled = c->scores,
        .likelihood = c->likelihood,
        .rotate = (uint32_t)get(fixture, "batch")->valueint,
    };
    CHECKF(!zinf_samples_open(&c->samples, &options), "%s: %s", c->name, zinf_error());
    zinf_format_close(recipe);
    zinf_chat_close(chat);
    unlink(file);
    free((void *)file);
}

/* Targets of one window against the ids and marks that are expected. */
static bool same_window(const struct rows_case *c, uint64_t position, const cJSON *expected)
{
    int32_t ids[MOST], targets[MOST], segments[MOST], label;
    const struct zinf_window window = {
        .ids = ids, .targets = targets, .segments = segments, .label = &label};
    const cJSON *id = cJSON_GetArrayItem(expected, 0)->child;
    const cJSON *marks = cJSON_GetArrayItem(expected, 1),
                *mark = cJSON_IsArray(marks) ? marks->child : NULL;
    CHECKF(!zinf_samples_window(c->samples, position, &window), "%s", zinf_error());
    const bool all = c->likelihood && position % 2 == 0;
    int32_t first = -1;
    for (uint32_t i = 0; id; i++, id = id->next) {
        const bool counts = mark && mark->valueint;
        if (i >= c->length || !segments[i] || ids[i] != id->valueint)
            return false;
        if (counts && first < 0 && i)
            first = (int32_t)i - 1;
        if (i && mark && targets[i - 1] != (counts || all ? id->valueint : -1))
            return false;
        mark = mark ? mark->next : NULL;
        if (!id->next && i + 1 < c->length && segments[i + 1])
            return false;
        if (!id->next && zinf_samples_window_rows(c->samples, position).ids != i + 1)
            return false;
    }
    return !all || label == first;
}

static int check_case(const struct rows_case *c)
{
    const cJSON *expected = get(c->json, "expected"), *one;
    const uint64_t n = zinf_samples_n_windows(c->samples);
    uint64_t position = 0;
    CHECKF(n == (uint64_t)cJSON_GetArraySize(expected), "%s: %llu windows, not %d", c->name,
           (unsigned long long)n, cJSON_GetArraySize(expected));
    cJSON_ArrayForEach(one, expected)
    {
        CHECKF(position < n && same_window(c, position, one), "%s: window %llu", c->name,
               (unsigned long long)position);
        position++;
    }
    return (int)position;
}

static void test_rows_are_what_trl_feeds_its_model(void)
{
    cJSON *all = read_fixture("rows.json");
    const cJSON *fixture, *one;
    int n = 0, n_cases = 0;
    cJSON_ArrayForEach(fixture, all)
    {
        struct zinf_tokenizer *tokenizer = open_tokenizer(fixture);
        cJSON_ArrayForEach(one, get(fixture, "cases"))
        {
            char name[128];
            snprintf(name, sizeof name, "%s, case %d (%s, %s, %d, %s)", fixture->string, n_cases,
                     text_of(one, "trainer"), text_of(one, "format"), get(one, "length")->valueint,
                     text_of(one, "cut"));
            struct rows_case c = {.json = one, .name = name};
            open_case(&c, fixture, tokenizer);
            n += check_case(&c);
            n_cases++;
            zinf_samples_close(c.samples);
        }
        zinf_tokenizer_close(tokenizer);
    }
    cJSON_Delete(all);
    unlink(path_of("tokenizer.json"));
    unlink(path_of("tokenizer_config.json"));
    CHECKF(n_cases == 108 && n > 1500, "%d windows of %d cases", n, n_cases);
}

/* ---- cuts of labelled texts ---- */

static bool same_cut(const struct zinf_tokenizer *tokenizer, const cJSON *row, enum zinf_cut cut)
{
    const char *file = path_of("cut.json");
    const bool pair = get(row, "pair") != NULL;
    struct zinf_labels labels = {NULL, 2};
    const struct zinf_task_options task = {.task = ZINF_TASK_CLASSIFICATION,
                                           .tokenizer = tokenizer,
                                           .source_column = pair ? "text,pair" : "text",
                                           .label_column = "length",
                                           .labels = &labels};
    struct zinf_task_recipe *recipe = NULL;
    struct zinf_samples *samples = NULL;
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    labels.n = 100;
    write_json("cut.json", row);
    file = path_of("cut.json");
    CHECKF(!zinf_task_open(&recipe, &task), "%s", zinf_error());
    const struct zinf_samples_options options = {
        .files = &file,
        .n_files = 1,
        .recipe = zinf_task_recipe(recipe),
        .tokenizer = tokenizer,
        .vocab = VOCAB,
        .seq_len = (uint32_t)get(row, "length")->valueint,
        .cut = cut,
        .unlabelled = true,
    };
    CHECKF(!zinf_samples_open(&samples, &options), "%s", zinf_error());
    CHECKF(!zinf_samples_read(samples, 0, &sample), "%s", zinf_error());
    const cJSON *id = get(row, "ids")->child, *type = get(row, "types")->child;
    bool same = (int)sample.ids.count == cJSON_GetArraySize(get(row, "ids"));
    for (size_t i = 0; same && id; i++, id = id->next, type = type->next)
        same = sample.ids.ids[i] == id->valueint &&
               !(sample.marks[i] & ZINF_MARK_SECOND) == !type->valueint;
    zinf_sample_free(&sample);
    zinf_samples_close(samples);
    zinf_task_close(recipe);
    return same;
}

static void test_texts_are_cut_as_transformers_cuts_them(void)
{
    cJSON *all = read_fixture("cuts.json");
    const cJSON *fixture, *row;
    int n = 0;
    cJSON_ArrayForEach(fixture, all)
    {
        char path[1024];
        struct zinf_tokenizer *tokenizer = NULL;
        char *json;
        size_t bytes;
        snprintf(path, sizeof path, "%s/tests/fixtures/tokenizer_kinds/%s.json", getenv("SRCDIR"),
                 text_of(fixture, "kind"));
        CHECK(!zinf_file_read(path, 1 << 26, &json, &bytes));
        CHECKF(!zinf_tokenizer_from_json(&tokenizer, json, bytes, path), "%s", zinf_error());
        const bool left = !strcmp(text_of(fixture, "side"), "left");
        cJSON_ArrayForEach(row, get(fixture, "rows"))
        {
            CHECKF(same_cut(tokenizer, row, left ? ZINF_CUT_BEGINNING : ZINF_CUT_END),
                   "%s, cut at the %s, row %d", text_of(fixture, "kind"), text_of(fixture, "side"),
                   n);
            n++;
        }
        zinf_tokenizer_close(tokenizer);
        free(json);
    }
    unlink(path_of("cut.json"));
    cJSON_Delete(all);
    CHECKF(n == 768, "%d rows", n);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    TAP_RUN(test_rows_are_what_trl_feeds_its_model);
    TAP_RUN(test_texts_are_cut_as_transformers_cuts_them);
    rmdir(folder);
    return tap_done();
}
