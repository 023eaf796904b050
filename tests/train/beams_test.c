/*
 * beams: beam search alone, by a table of logits and golden scores; then texts of the fixtures'
 * models as transformers makes them, with and without remembered keys and values, wherever these
 * live, alone and in company; and repeated rows of tokens.
 */
#include "train/decode.h"
#include "train/run/beams.h"
#include "train/trainer.h"
#include "train_support.h"
#include "set.h"

#include <math.h>

enum { MOST_TOKENS = 64 };

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* ---- the search alone ---- */

enum { WORDS = 6 };

/* Logits of what follows the last token of each beam, by a formula. */
static void search_table(struct beam_search *s, const struct zinf_generate_options *o)
{
    int32_t first = 1;
    float rows[3][WORDS];
    const float *logits[3] = {rows[0], rows[1], rows[2]};
    struct zinf_text prompt = {.ids = &first, .n_prompt = 1};
    CHECK(!beam_search_begin(s, o, &prompt, o->max_new_tokens, WORDS));
    while (!s->done) {
        for (int b = 0; b < s->n; b++)
            for (int j = 0; j < WORDS; j++) {
                int i = beam_ids(s, b)[s->n_new];
                rows[b][j] = (float)((7 * i + 13 * j + 5 * i * j) % 31) / 8;
            }
        beam_search_step(s, logits);
    }
}

struct golden {
    double score;
    int n;
    int32_t ids[6];
};

static void check_table(struct zinf_beams beams, const struct golden *wanted)
{
    int32_t end = 0;
    struct beam_search s;
    struct zinf_generate_options o = {
        .beams = beams, .max_new_tokens = 5, .ends = &end, .n_ends = 1};
    search_table(&s, &o);
    CHECK(s.n_finished == beams.n);
    for (int64_t i = 0; i < s.n_finished; i++) {
        const struct beam_finished *f = &s.finished[i];
        CHECKF(fabs((double)f->score - wanted[i].score) < 1e-5, "%g, not %g", (double)f->score,
               wanted[i].score);
        CHECK(f->n_new == wanted[i].n - 1);
        CHECK(!memcmp(s.done_ids + f->slot * 6, wanted[i].ids, (size_t)wanted[i].n * sizeof(int)));
        CHECK(f->by_end == !wanted[i].ids[wanted[i].n - 1]);
    }
    beam_search_end(&s);
}

static void test_golden_scores(void)
{
    static const struct golden guess[] = {{-.832143, 6, {1, 3, 2, 2, 2, 2}},
                                          {-.855025, 3, {1, 3, 0}},
                                          {-.948775, 5, {1, 3, 1, 3, 0}}};
    static const struct golden first[] = {
        {-.855025, 3, {1, 3, 0}}, {-.948775, 5, {1, 3, 1, 3, 0}}, {-.998, 4, {1, 1, 3, 0}}};
    static const struct golden sums[] = {{-1.710049, 3, {1, 3, 0}}, {-2.994, 4, {1, 1, 3, 0}}};
    check_table((struct zinf_beams){3, 1, ZINF_EARLY_GUESS}, guess);
    check_table((struct zinf_beams){3, 1, ZINF_EARLY_FIRST}, first);
    check_table((struct zinf_beams){2, 0, ZINF_EARLY_GUESS}, sums);
}

static void test_repeated_rows(void)
{
    const int32_t ids[] = {1, 2, 3, 1};
    float logits[4] = {0};
    zinf_sample_ban_repeats(2, ids, 4, logits);
    CHECK(isinf(logits[2]) && logits[0] == 0 && logits[1] == 0 && logits[3] == 0);
    memset(logits, 0, sizeof logits);
    zinf_sample_ban_repeats(1, ids, 4, logits);
    CHECK(logits[0] == 0 && isinf(logits[1]) && isinf(logits[2]) && isinf(logits[3]));
    memset(logits, 0, sizeof logits);
    zinf_sample_ban_repeats(0, ids, 4, logits);
    zinf_sample_ban_repeats(4, ids, 4, logits);
    zinf_sample_ban_repeats(6, ids, 4, logits);
    CHECK(!logits[0] && !logits[1] && !logits[2] && !logits[3]);
}

/* ---- models ---- */

/* The fixture's folder with the entry's changes to config.json. */
static void copy_model(const cJSON *entry, char folder[600])
{
    char from[700], to[700], *bytes = NULL;
    cJSON *config = NULL;
    const cJSON *change;
    size_t n;
    const char *name = cJSON_GetStringValue(get(entry, "folder"));
    zinf_make_dirs(in_work(folder, "model"));
    snprintf(from, sizeof from, "%s/tests/fixtures/%s/config.json", getenv("SRCDIR"), name);
    snprintf(to, sizeof to, "%s/config.json", folder);
    CHECKF(!zinf_json_read_file(from, 1 << 20, ZINF_JSON_STRICT, &config), "%s", zinf_error());
    cJSON_ArrayForEach(change, get(entry, "config"))
    {
        cJSON_DeleteItemFromObject(config, change->string);
        cJSON_AddItemToObject(config, change->string, cJSON_Duplicate(change, true));
    }
    char *text = cJSON_Print(config);
    CHECK(!zinf_file_write_atomic(to, text, strlen(text)));
    snprintf(from, sizeof from, "%s/tests/fixtures/%s/model.safetensors", getenv("SRCDIR"), name);
    snprintf(to, sizeof to, "%s/model.safetensors", folder);
    CHECK(!zinf_file_read(from, 1 << 24, &bytes, &n) && !zinf_file_write_atomic(to, bytes, n));
    cJSON_Delete(config);
    free(text);
    free(bytes);
}

static int open_trainer(struct zinf_trainer **t, struct zinf_config **config, const char *folder,
                        uint64_t device_memory, const struct zinf_decode_shape *shape)
{
    char text[512];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    set_memory(&context, "zinf.device_memory", device_memory);
    context.no_training = true;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 3, "
             "\"offload_param\": {\"device\": \"cpu\"}}, \"zinf\": {\"threads\": 1}}");
    *t = NULL;
    CHECKF(!zinf_config_parse(config, text, strlen(text), "test", &context), "%s", zinf_error());
    struct zinf_trainer_options options = {.mode = ZINF_TRAINER_FORWARD,
                                           .model_path = folder,
                                           .config = *config,
                                           .seq_len = shape ? 0 : MOST_TOKENS,
                                           .device = ZINF_DEVICE_HOST};
    if (shape)
        options.decode = *shape;
    return zinf_trainer_create(t, &options);
}

static struct zinf_generate_options read_options(const cJSON *search, int32_t ends[MOST_TOKENS])
{
    const cJSON *early = get(search, "early_stopping");
    struct zinf_generate_options o = {
        .max_new_tokens = get(search, "max_new_tokens")->valueint,
        .beams = {.n = get(search, "num_beams")->valueint,
                  .length_penalty = get(search, "length_penalty")->valuedouble,
                  .early = cJSON_IsTrue(early)     ? ZINF_EARLY_FIRST
                           : cJSON_IsString(early) ? ZINF_EARLY_NEVER
                                                   : ZINF_EARLY_GUESS},
        .sampler = {.repetition_penalty = get(search, "repetition_penalty")->valuedouble,
                    .no_repeat_ngram = get(search, "no_repeat_ngram_size")->valueint},
        .ends = ends,
    };
    o.n_ends = (int)read_ids(get(search, "eos_token_id"), ends);
    return o;
}

static void begin_text(struct zinf_text *text, const cJSON *search)
{
    int32_t ids[MOST_TOKENS];
    *text = (struct zinf_text){.n_prompt = read_ids(get(search, "prompt"), ids)};
    text->ids = malloc((size_t)text->n_prompt * sizeof *ids);
    memcpy(text->ids, ids, (size_t)text->n_prompt * sizeof *ids);
}

/* The text of a search; copies: so many more of it, of which all must be alike. */
static void check_search(const cJSON *entry, const cJSON *search, struct zinf_trainer *t,
                         int copies)
{
    int32_t ends[MOST_TOKENS], wanted[MOST_TOKENS];
    struct zinf_generate_options o = read_options(search, ends);
    struct zinf_generate_speed speed;
    struct zinf_text texts[4];
    int64_t n = read_ids(get(search, "ids"), wanted);
    for (int i = 0; i <= copies; i++)
        begin_text(&texts[i], search);
    CHECKF(!zinf_generate(t, &o, texts, copies + 1, &speed), "%s", zinf_error());
    for (int i = 0; i <= copies; i++) {
        char *options = cJSON_PrintUnformatted(search);
        CHECKF(texts[i].n_new == n &&
                   !memcmp(texts[i].ids + texts[i].n_prompt, wanted, (size_t)n * sizeof *wanted),
               "%s: %s", cJSON_GetStringValue(get(entry, "folder")), options);
        CHECK(texts[i].finish == (n < o.max_new_tokens ? ZINF_FINISH_END : ZINF_FINISH_LENGTH) ||
              (n + 1 == o.max_new_tokens && texts[i].finish == ZINF_FINISH_END));
        free(options);
        free(texts[i].ids);
    }
    CHECK(speed.new_tokens == n * (copies + 1));
}

static cJSON *entries;

static void check_entries(const struct zinf_decode_shape *shape, int copies)
{
    const cJSON *entry, *search;
    int n = 0;
    cJSON_ArrayForEach(entry, entries)
    {
        char folder[600];
        struct zinf_trainer *t;
        struct zinf_config *config;
        copy_model(entry, folder);
        CHECKF(!open_trainer(&t, &config, folder, 0, shape), "%s", zinf_error());
        cJSON_ArrayForEach(search, get(entry, "searches"))
        {
            if (t)
                check_search(entry, search, t, copies);
            n++;
        }
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
    }
    CHECKF(n >= 50, "%d searches", n);
}

/* Two texts at once, of three; calls of few rows: prompts in pieces, and beams that wait. */
static void test_tokens_of_transformers(void)
{
    static const struct zinf_decode_shape shape = {.sequences = 10, .capacity = 48, .rows = 11};
    check_entries(&shape, 2);
}

/* The whole text of each beam for each token. */
static void test_nothing_remembered(void)
{
    check_entries(NULL, 0);
}

static const cJSON *find_entry(const char *folder)
{
    const cJSON *entry;
    cJSON_ArrayForEach(
        entry, entries) if (!strcmp(get(entry, "folder")->valuestring, folder)) return entry;
    return NULL;
}

/* As little device memory as there may be: what is remembered lies in host memory, but for that of
 * two of the three layers at a time. */
static void test_remembered_in_host_memory(void)
{
    static const struct zinf_decode_shape shape = {.sequences = 5, .capacity = 48, .rows = 9};
    const cJSON *entry = find_entry("qwen2_a"), *search;
    struct zinf_trainer *t;
    struct zinf_config *config;
    char folder[600];
    uint64_t least = 0;
    copy_model(entry, folder);
    for (uint64_t step = 1 << 24; step >= 1 << 12; step /= 2) {
        if (open_trainer(&t, &config, folder, least + step, &shape))
            least += step;
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
    }
    CHECKF(!open_trainer(&t, &config, folder, least + (1 << 12), &shape), "%s", zinf_error());
    CHECK(t && t->plan.amounts.host_cache);
    cJSON_ArrayForEach(search, get(entry, "searches")) check_search(entry, search, t, 1);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* ---- ends and refusals ---- */

static int stop(void *arg, int64_t number, const struct zinf_text *text)
{
    int *asked = arg;
    CHECK(number == 0 && text->n_new > 0);
    return ++*asked;
}

static void test_ends_and_refusals(void)
{
    static const struct zinf_decode_shape shape = {.sequences = 3, .capacity = 24, .rows = 4};
    const cJSON *entry = cJSON_GetArrayItem(entries, 0);
    struct zinf_trainer *t;
    struct zinf_config *config;
    struct zinf_generate_speed speed;
    struct zinf_text text;
    char folder[600];
    int asked = 0;
    struct zinf_generate_options o = {
        .beams = {.n = 3, .length_penalty = 1}, .max_new_tokens = 100, .made = stop, .arg = &asked};
    copy_model(entry, folder);
    CHECKF(!open_trainer(&t, &config, folder, 0, &shape), "%s", zinf_error());
    begin_text(&text, cJSON_GetArrayItem(get(entry, "searches"), 0));
    CHECKF(!zinf_generate(t, &o, &text, 1, &speed), "%s", zinf_error());
    CHECK(asked == 1 && text.finish == ZINF_FINISH_STOP && text.n_new == 25 - text.n_prompt);
    o.made = NULL;
    CHECK(!zinf_generate(t, &o, &text, 1, &speed) && text.finish == ZINF_FINISH_CONTEXT);
    o.beams.n = 4;
    CHECK(zinf_generate(t, &o, &text, 1, &speed) == -EINVAL);
    CHECKF(strstr(zinf_error(), "4 beams") != NULL, "%s", zinf_error());
    CHECK(zinf_trainer_copy_sequence(t, 3, 0) == -EINVAL);
    CHECK(strstr(zinf_error(), "3 sequences"));
    free(text.ids);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

int main(void)
{
    char path[600];
    make_work("beams");
    zinf_log_set_level(ZINF_LOG_ERROR);
    snprintf(path, sizeof path, "%s/tests/fixtures/beams.json", getenv("SRCDIR"));
    if (zinf_json_read_file(path, 1 << 22, ZINF_JSON_STRICT, &entries)) {
        printf("Bail out! %s\n", zinf_error());
        return 1;
    }
    TAP_RUN(test_golden_scores);
    TAP_RUN(test_repeated_rows);
    TAP_RUN(test_tokens_of_transformers);
    TAP_RUN(test_nothing_remembered);
    TAP_RUN(test_remembered_in_host_memory);
    TAP_RUN(test_ends_and_refusals);
    cJSON_Delete(entries);
    remove_work();
    return tap_done();
}
