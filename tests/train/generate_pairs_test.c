/*
 * generate_pairs: texts of encoder-decoders with keys and values remembered, those of sources once.
 * Logits are those of everything computed at once, for sources of several lengths that come
 * together or later and are read by several sequences; wherever parameters and caches live the bits
 * are the same; texts come out alike alone and in company, one token after the other and by beams.
 */
#include "train/generate.h"
#include "train/trainer.h"
#include "generate_support.h"

static const char *const folders[] = {"t5_a", "t5_b", "bart_a", "bart_b", "blenderbot_a"};
enum { N_FOLDERS = sizeof folders / sizeof *folders };

enum { VOCAB = 61, MOST_SOURCE = 23, LENGTH = 9 };

static int32_t token_at(int64_t number, int64_t position)
{
    return (int32_t)(2 + (position * position * 7 + position * 3 + number * 31 + 5) % (VOCAB - 2));
}

/* ---- calls ---- */

enum { MOST_ROWS = 32, MOST_SOURCE_ROWS = 64, SEQUENCES = 4, SOURCES = 3 };

/* What is fed: sequence s is tokens of s and reads a source, whose tokens are those of its salt. */
struct feed {
    struct zinf_trainer *t;
    int64_t reads[SEQUENCES], length[SEQUENCES];
    int64_t salts[SOURCES], source_length[SOURCES];
    int32_t ids[MOST_ROWS], sequences[MOST_ROWS], positions[MOST_ROWS], sources[MOST_ROWS];
    int32_t source_ids[MOST_SOURCE_ROWS], source_numbers[MOST_SOURCE_ROWS];
    struct zinf_decode_rows rows;
};

static void begin_call(struct feed *f)
{
    f->rows = (struct zinf_decode_rows){.ids = f->ids,
                                        .sequences = f->sequences,
                                        .positions = f->positions,
                                        .sources = f->sources,
                                        .source_ids = f->source_ids,
                                        .source_numbers = f->source_numbers};
}

static void add_source(struct feed *f, int64_t number, int64_t salt, int64_t length)
{
    f->salts[number] = salt;
    f->source_length[number] = length;
    for (int64_t i = 0; i < length; i++, f->rows.n_source++) {
        f->source_ids[f->rows.n_source] = token_at(salt, i);
        f->source_numbers[f->rows.n_source] = (int32_t)number;
    }
}

/* n tokens more of a sequence, which begins anew where it reads another source. */
static void add_rows(struct feed *f, int64_t sequence, int64_t source, int64_t n)
{
    for (int64_t i = 0; i < n; i++, f->rows.n++) {
        f->ids[f->rows.n] = token_at(sequence, f->length[sequence]);
        f->sequences[f->rows.n] = (int32_t)sequence;
        f->positions[f->rows.n] = (int32_t)f->length[sequence]++;
        f->sources[f->rows.n] = (int32_t)source;
    }
    f->reads[sequence] = source;
}

/* Of a sequence as it is now, computed whole. */
static void compute_whole(const struct feed *f, struct zinf_trainer *whole, int64_t sequence,
                          float *logits)
{
    const int64_t source = f->reads[sequence], n = f->length[sequence];
    int32_t ids[LENGTH], source_ids[MOST_SOURCE] = {0}, segments[MOST_SOURCE] = {0};
    for (int64_t i = 0; i < n; i++)
        ids[i] = token_at(sequence, i);
    for (int64_t i = 0; i < f->source_length[source]; i++) {
        source_ids[i] = token_at(f->salts[source], i);
        segments[i] = 1;
    }
    const struct zinf_batch batch = {.inputs = {[ZINF_INPUT_IDS] = ids,
                                                [ZINF_INPUT_SOURCE_IDS] = source_ids,
                                                [ZINF_INPUT_SOURCE_SEGMENTS] = segments}};
    CHECKF(!zinf_trainer_sample_logits(whole, &batch, n, logits), "%s", zinf_error());
}

/* The call, whose last n rows are one each of n sequences; their logits against whole ones. */
static double end_call(struct feed *f, struct zinf_trainer *whole, int64_t n, float *out)
{
    float logits[SEQUENCES * VOCAB], wanted[VOCAB];
    double worst = 0;
    f->rows.n_logits = n;
    CHECKF(!zinf_trainer_decode(f->t, &f->rows, logits), "%s", zinf_error());
    if (out)
        memcpy(out, logits, (size_t)(n * VOCAB) * sizeof *out);
    for (int64_t i = 0; whole && i < n; i++) {
        compute_whole(f, whole, f->sequences[f->rows.n - n + i], wanted);
        double d = distance(logits + i * VOCAB, wanted, VOCAB);
        worst = d > worst || isnan(d) ? d : worst;
    }
    return worst;
}

/* Two sources come with three sequences, one of them in a chunk; then a third source; then another
 * one in the place of the first. out: logits of all calls. */
enum { CALLS = 7, CALL_LOGITS = SEQUENCES * VOCAB };
static double feed_all(struct feed *f, struct zinf_trainer *whole, float *out)
{
    double worst = 0, d;
    for (int call = 0; call < CALLS; call++) {
        begin_call(f);
        if (call == 0) {
            add_source(f, 0, 100, 5);
            add_source(f, 1, 101, 17);
            add_rows(f, 1, 1, 2);
        }
        if (call == 2)
            add_source(f, 2, 102, 11);
        if (call == 5) {
            add_source(f, 0, 103, 8);
            f->length[0] = 0;
        }
        for (int64_t s = 0; s < (call < 2 ? 3 : SEQUENCES); s++)
            add_rows(f, s, s < 2 ? s : s - 1, 1);
        d = end_call(f, whole, call < 2 ? 3 : SEQUENCES, out ? out + call * CALL_LOGITS : NULL);
        worst = d > worst || isnan(d) ? d : worst;
    }
    return worst;
}

static const struct zinf_decode_shape shape = {.sequences = SEQUENCES,
                                               .capacity = LENGTH,
                                               .rows = 8,
                                               .sources = SOURCES,
                                               .source_capacity = 17,
                                               .source_rows = 22};

static void check_logits(const char *name, const struct setting *s, double bound)
{
    char folder[600];
    struct zinf_trainer *whole;
    struct zinf_config *config, *other;
    struct feed f = {0};
    struct setting with_source = *s;
    with_source.source_len = MOST_SOURCE;
    fixture_folder(folder, name);
    CHECKF(!open_trainer(&whole, &other, folder, &with_source, NULL, LENGTH), "%s", zinf_error());
    CHECKF(!open_trainer(&f.t, &config, folder, s, &shape, 0), "%s", zinf_error());
    double worst = feed_all(&f, whole, NULL);
    CHECKF(worst <= bound, "%s: logits are off by %g", name, worst);
    close_trainer(f.t, config);
    close_trainer(whole, other);
}

static void test_logits_are_those_of_the_whole_pair(void)
{
    for (int i = 0; i < N_FOLDERS; i++) {
        check_logits(folders[i], &(struct setting){.threads = 2}, 1e-5);
        check_logits(folders[i], &(struct setting){.precision = "\"bf16\": {\"enabled\": true},"},
                     3e-2);
    }
}

/* ---- places ---- */

static void run_placed(const char *folder, const struct setting *s, float *logits, bool *host_cache)
{
    struct zinf_config *config;
    struct feed f = {0};
    CHECKF(!open_trainer(&f.t, &config, folder, s, &shape, 0), "%s", zinf_error());
    if (f.t)
        feed_all(&f, NULL, logits);
    *host_cache = f.t && f.t->plan.amounts.host_cache;
    close_trainer(f.t, config);
}

/* The least device memory that still works has the caches in host memory, fetched by layers. */
static uint64_t least_memory(const char *folder, const char *param)
{
    uint64_t least = 0;
    for (uint64_t step = 1 << 24; step >= 1 << 12; step /= 2) {
        struct setting s = {.param = param, .device_memory = least + step};
        struct zinf_trainer *t;
        struct zinf_config *config;
        if (open_trainer(&t, &config, folder, &s, &shape, 0))
            least += step;
        close_trainer(t, config);
    }
    return least + (1 << 12);
}

/* Of more layers than have their caches at hand. */
static void check_places(const char *arch)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    static float wanted[CALLS * CALL_LOGITS], logits[CALLS * CALL_LOGITS];
    const struct zinf_model_shape model = {
        .arch = arch, .layers = 5, .hidden = 24, .heads = 3, .vocab = VOCAB};
    char folder[600];
    bool host_cache;
    make_model(folder, arch, &model, 3);
    run_placed(folder, &(struct setting){0}, wanted, &host_cache);
    CHECK(!host_cache);
    for (int i = 0; i < 3; i++) {
        struct setting s = {.param = places[i]};
        run_placed(folder, &s, logits, &host_cache);
        CHECKF(!memcmp(logits, wanted, sizeof logits), "%s, %s", arch, places[i]);
        s.device_memory = least_memory(folder, places[i]);
        run_placed(folder, &s, logits, &host_cache);
        CHECKF(host_cache, "%s, %s: %llu bytes hold the caches", arch, places[i],
               (unsigned long long)s.device_memory);
        CHECKF(!memcmp(logits, wanted, sizeof logits), "%s, %s, little memory", arch, places[i]);
    }
}

static void test_places_change_no_bit(void)
{
    check_places("t5");
    check_places("bart");
}

/* ---- texts ---- */

enum { TEXTS = 7 };

static void generate_texts(const char *folder, const struct zinf_decode_shape *decode,
                           const struct zinf_generate_options *o, struct zinf_text texts[TEXTS])
{
    static int32_t sources[TEXTS][MOST_SOURCE];
    const struct setting s = {.source_len = MOST_SOURCE};
    struct zinf_trainer *t;
    struct zinf_config *config;
    struct zinf_generate_speed speed;
    int64_t n_prompt = 0;
    CHECKF(!open_trainer(&t, &config, folder, &s, decode, 20), "%s", zinf_error());
    for (int64_t i = 0; i < TEXTS; i++) {
        texts[i] = (struct zinf_text){.ids = calloc(2, sizeof(int32_t)),
                                      .n_prompt = 1 + i % 2,
                                      .source = sources[i],
                                      .n_source = 3 + i * 7 % 20};
        texts[i].ids[1] = token_at(i, 0);
        for (int64_t k = 0; k < texts[i].n_source; k++)
            sources[i][k] = token_at(200 + i, k);
        n_prompt += texts[i].n_prompt + texts[i].n_source;
    }
    CHECKF(t && !zinf_generate(t, o, texts, TEXTS, &speed), "%s", zinf_error());
    CHECK(speed.prompt_tokens == n_prompt);
    close_trainer(t, config);
}

/* Everything computed again against caches: a place alone, fewer places than texts, sources that
 * wait for room in a call, all at once. */
static void check_company(const char *name, const struct zinf_generate_options *o)
{
    const int64_t beams = o->beams.n > 1 ? o->beams.n : 1;
    const struct zinf_decode_shape shapes[] = {
        {beams, 20, beams, 1, MOST_SOURCE, MOST_SOURCE},
        {3 * beams, 20, 3 * beams, 3, MOST_SOURCE, 30},
        {4 * beams, 20, 40, 2, MOST_SOURCE, 60},
        {7 * beams, 20, 40, 7, MOST_SOURCE, 200},
    };
    struct zinf_text wanted[TEXTS], texts[TEXTS];
    char folder[600];
    fixture_folder(folder, name);
    generate_texts(folder, NULL, o, wanted);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        generate_texts(folder, &shapes[i], o, texts);
        for (int j = 0; j < TEXTS; j++)
            CHECKF(same_text(&texts[j], &wanted[j]), "%s, shape %zu, text %d", name, i, j);
        free_texts(texts, TEXTS);
    }
    free_texts(wanted, TEXTS);
}

static void test_company_changes_no_text(void)
{
    static const int32_t ends[] = {7, 23, 40};
    const struct zinf_generate_options plain = {.max_new_tokens = 12};
    const struct zinf_generate_options drawn = {.sampler = {.temperature = 0.8,
                                                            .top_p = 0.9,
                                                            .top_k = 20,
                                                            .seed = 4,
                                                            .repetition_penalty = 1.2},
                                                .max_new_tokens = 12,
                                                .ends = ends,
                                                .n_ends = 3};
    const struct zinf_generate_options beams = {
        .beams = {.n = 3, .length_penalty = 1}, .max_new_tokens = 12, .ends = ends, .n_ends = 3};
    for (int i = 0; i < N_FOLDERS; i++) {
        check_company(folders[i], &plain);
        check_company(folders[i], &drawn);
        check_company(folders[i], &beams);
    }
}

/* All sources of an entry at once. */
static void check_entry(const cJSON *entry, const char *key, int64_t beams)
{
    const cJSON *sources = cJSON_GetObjectItem(entry, "sources");
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "folder"));
    const int n = cJSON_GetArraySize(sources);
    const struct zinf_decode_shape decode = {3 * beams, 20, 3 * beams, 3, MOST_SOURCE, 40};
    const struct zinf_generate_options o = {.beams = {.n = beams, .length_penalty = 1},
                                            .max_new_tokens = 20};
    int32_t ids[TEXTS][MOST_SOURCE], wanted[MOST_SOURCE];
    struct zinf_text texts[TEXTS];
    struct zinf_generate_speed speed;
    struct zinf_config *config;
    struct zinf_trainer *t;
    char folder[600];
    fixture_folder(folder, name);
    CHECKF(!open_trainer(&t, &config, folder, &(struct setting){0}, &decode, 0), "%s",
           zinf_error());
    for (int i = 0; i < n; i++) {
        texts[i] = (struct zinf_text){.ids = calloc(1, sizeof(int32_t)), .n_prompt = 1};
        texts[i].ids[0] = cJSON_GetObjectItem(entry, "start")->valueint;
        texts[i].n_source = read_ids(cJSON_GetArrayItem(sources, i), ids[i]);
        texts[i].source = ids[i];
    }
    CHECKF(t && !zinf_generate(t, &o, texts, n, &speed), "%s", zinf_error());
    for (int i = 0; i < n; i++) {
        const cJSON *list = cJSON_GetArrayItem(cJSON_GetObjectItem(entry, key), i);
        const int64_t length = read_ids(list, wanted);
        CHECKF(length == 20 && texts[i].n_new == length &&
                   !memcmp(texts[i].ids + 1, wanted, (size_t)length * sizeof *wanted),
               "%s, source %d, %s", name, i, key);
        free(texts[i].ids);
    }
    close_trainer(t, config);
}

static void test_tokens_of_transformers(void)
{
    char path[600];
    cJSON *all = NULL;
    const cJSON *entry;
    fixture_folder(path, "generate_pairs.json");
    CHECKF(!zinf_json_read_file(path, 1 << 20, ZINF_JSON_STRICT, &all), "%s", zinf_error());
    CHECK(cJSON_GetArraySize(all) == N_FOLDERS);
    cJSON_ArrayForEach(entry, all)
    {
        check_entry(entry, "greedy", 1);
        check_entry(entry, "beams", 3);
    }
    cJSON_Delete(all);
}

/* ---- refusals ---- */

static void refuse(int code, const char *word)
{
    CHECKF(code == -EINVAL, "%d", code);
    CHECKF(strstr(zinf_error(), word) != NULL, "%s", zinf_error());
}

static int call_of(struct feed *f, int64_t number, int64_t length, int64_t read)
{
    begin_call(f);
    for (int64_t i = 0; i < length; i++, f->rows.n_source++) {
        f->source_ids[i] = token_at(7, i);
        f->source_numbers[i] = (int32_t)number;
    }
    f->length[0] = 0;
    add_rows(f, 0, read, 1);
    return zinf_trainer_decode(f->t, &f->rows, NULL);
}

static void test_refusals(void)
{
    char folder[600];
    struct zinf_config *config, *other;
    struct zinf_trainer *t;
    struct feed f = {0};
    struct zinf_decode_shape none = {.sequences = 2, .capacity = 20, .rows = 4};
    fixture_folder(folder, "t5_a");
    refuse(open_trainer(&t, &other, folder, &(struct setting){0}, &none, 0), "reads a source");
    zinf_config_destroy(other);
    none = shape;
    none.source_rows = 16;
    refuse(open_trainer(&t, &other, folder, &(struct setting){0}, &none, 0), "by 16 rows");
    zinf_config_destroy(other);
    CHECKF(!open_trainer(&f.t, &config, folder, &(struct setting){0}, &shape, 0), "%s",
           zinf_error());
    refuse(call_of(&f, 0, 0, 0), "source 0 is read and has not come");
    refuse(call_of(&f, 3, 2, 0), "source 3 is none; there are 3 sources of 17 tokens");
    refuse(call_of(&f, 1, 18, 1), "source 1 is longer than there is room for");
    refuse(call_of(&f, 1, 23, 1), "23 tokens of sources: at most 22");
    CHECKF(!call_of(&f, 2, 17, 2), "%s", zinf_error());
    begin_call(&f);
    add_source(&f, 0, 1, 2);
    add_source(&f, 1, 1, 2);
    add_source(&f, 0, 1, 2);
    add_rows(&f, 0, 0, 1);
    refuse(zinf_trainer_decode(f.t, &f.rows, NULL), "source 0 comes in pieces");
    const struct zinf_generate_options o = {.max_new_tokens = 2};
    struct zinf_generate_speed speed;
    struct zinf_text text = {.ids = calloc(1, sizeof *text.ids), .n_prompt = 1};
    refuse(zinf_generate(f.t, &o, &text, 1, &speed), "a source of 0 tokens; there must be from 1");
    free(text.ids);
    close_trainer(f.t, config);
}

int main(void)
{
    make_work("generate-pairs");
    zinf_log_set_level(ZINF_LOG_ERROR);
    zinf_make_dirs(in_work(drive, "drive"));
    TAP_RUN(test_logits_are_those_of_the_whole_pair);
    TAP_RUN(test_places_change_no_bit);
    TAP_RUN(test_company_changes_no_text);
    TAP_RUN(test_tokens_of_transformers);
    TAP_RUN(test_refusals);
    remove_work();
    return tap_done();
}
