/*
 * generate: tokens one after the other with keys and values remembered, from the fixtures. Logits
 * are those of the whole text computed at once; wherever parameters and cache live the bits are the
 * same; texts come out alike alone and in company, and as transformers makes them.
 */
#include "train/generate.h"
#include "train/trainer.h"
#include "generate_support.h"

/* All but those whose frequencies change with the length. */
static const char *const folders[] = {
    "baichuan_a",
    "baichuan_b",
    "baichuan_c",
    "bloom_a",
    "bloom_b",
    "chatglm_a",
    "chatglm_b",
    "falcon_a",
    "falcon_b",
    "falcon_c",
    "falcon_d",
    "falcon_e",
    "gemma2_a",
    "gemma2_b",
    "gemma3_text_a",
    "gemma3_text_b",
    "gemma_a",
    "gpt2_a",
    "gpt2_b",
    "gpt2_c",
    "gpt2_d",
    "gpt2_g",
    "gpt_neox_a",
    "gpt_neox_b",
    "llama_a",
    "llama_b",
    "llama_c",
    "llama_e",
    "mistral_a",
    "mixtral_a",
    "mixtral_b",
    "mixtral_c",
    "olmo2_a",
    "olmo2_b",
    "opt_a",
    "opt_b",
    "phi3_a",
    "phi3_b",
    "qwen2_a",
    "qwen2_moe_a",
    "qwen2_moe_b",
    "qwen3_a",
    "olmo3_a",
    "smollm3_b",
    "granite_a",
    "seed_oss_a",
    "exaone4_a",
    "hunyuan_v1_dense_a",
    "glm_a",
    "glm4_a",
    "cohere_a",
    "cohere2_a",
    "ernie4_5_a",
    "qwen3_b",
    "qwen3_moe_a",
    "qwen3_moe_b",
    "qwen3_moe_c",
    "starcoder2_a",
    "starcoder2_b",
    "stablelm_a",
    "gpt_bigcode_a",
    "gpt_bigcode_b",
    "stablelm_b",
    "nemotron_a",
    "olmoe_a",
    "olmoe_b",
    "gpt_oss_a",
    "gpt_oss_b",
    "glm4_moe_a",
    "glm4_moe_b",
    "glm4_moe_lite_a",
    "deepseek_v2_a",
    "deepseek_v2_b",
    "deepseek_v3_a",
    "deepseek_v3_b",
    "granitemoe_a",
    "granitemoehybrid_c",
    "nemotron_h_c",
    "falcon_h1_a",
    "gemma4_text_a",
    "gemma4_text_b",
    "gemma4_text_c",
    "llama4_text_a",
    "llama4_text_c",
    "gemma4_text_e",
    "gemma4_text_f",
    "apertus_a",
    "ministral3_c",
};
#define N_FOLDERS (sizeof folders / sizeof *folders)

/* ---- logits ---- */

enum { MOST_TOKENS = 160, MOST_VOCAB = 300 };

static int32_t token_at(int64_t sequence, int64_t position, int64_t vocab)
{
    return (int32_t)((position * position * 7 + position * 3 + sequence * 31 + 5) % vocab);
}

/* New tokens of a sequence, [first, first + n), with the logits of the last. */
static int feed(struct zinf_trainer *t, int64_t sequence, int64_t first, int64_t n, float *logits)
{
    int32_t ids[MOST_TOKENS], sequences[MOST_TOKENS], positions[MOST_TOKENS];
    int64_t vocab = zinf_model_facts(zinf_trainer_model(t))->vocab;
    for (int64_t i = 0; i < n; i++) {
        ids[i] = token_at(sequence, first + i, vocab);
        sequences[i] = (int32_t)sequence;
        positions[i] = (int32_t)(first + i);
    }
    struct zinf_decode_rows rows = {
        .ids = ids, .sequences = sequences, .positions = positions, .n = n, .n_logits = 1};
    return zinf_trainer_decode(t, &rows, logits);
}

/* Against the whole text at once: a prompt in two chunks, then single tokens, by turns for two
 * sequences of which the second is a chunk behind. */
static double compare_logits(struct zinf_trainer *t, struct zinf_trainer *whole, int64_t length)
{
    int64_t vocab = zinf_model_facts(zinf_trainer_model(t))->vocab;
    float logits[MOST_VOCAB], wanted[MOST_VOCAB];
    int32_t ids[MOST_TOKENS];
    double worst = 0;
    for (int64_t s = 0; s < 2; s++)
        CHECKF(!feed(t, s, 0, 3 - s, logits), "%s", zinf_error());
    CHECKF(!feed(t, 0, 3, 2, logits), "%s", zinf_error());
    for (int64_t s = 1; s >= 0; s--)
        for (int64_t p = s ? 2 : 5; p < length; p++) {
            for (int64_t i = 0; i <= p; i++)
                ids[i] = token_at(s, i, vocab);
            CHECKF(!feed(t, s, p, 1, logits), "%s", zinf_error());
            CHECKF(!zinf_trainer_logits(whole, ids, p + 1, wanted), "%s", zinf_error());
            double d = distance(logits, wanted, (uint64_t)vocab);
            worst = d > worst || isnan(d) ? d : worst;
        }
    return worst;
}

static void check_logits(const char *name, const struct setting *s, double bound)
{
    char folder[600];
    struct zinf_trainer *t, *whole;
    struct zinf_config *config, *other;
    fixture_folder(folder, name);
    CHECKF(!open_trainer(&whole, &other, folder, s, NULL, 0), "%s", zinf_error());
    int64_t context = zinf_model_facts(zinf_trainer_model(whole))->context;
    int64_t length = context < 30 ? context : 30;
    struct zinf_decode_shape shape = {.sequences = 2, .capacity = length, .rows = 4};
    CHECKF(!open_trainer(&t, &config, folder, s, &shape, 0), "%s", zinf_error());
    double worst = compare_logits(t, whole, length);
    CHECKF(worst <= bound, "%s: logits are off by %g", name, worst);
    close_trainer(t, config);
    close_trainer(whole, other);
}

static void test_logits_are_those_of_the_whole_text(void)
{
    for (size_t i = 0; i < N_FOLDERS; i++)
        check_logits(folders[i], &(struct setting){.threads = 2}, 1e-5);
}

static void test_logits_in_bf16(void)
{
    for (size_t i = 0; i < N_FOLDERS; i++)
        check_logits(folders[i], &(struct setting){.precision = "\"bf16\": {\"enabled\": true},"},
                     3e-2);
}

/* What each part remembers is a piece of one cache. */
static void test_logits_in_parts_of_tensors(void)
{
    static const char *const cut[] = {"llama_a",       "olmo2_a",       "gpt_oss_a",
                                      "deepseek_v3_a", "apertus_a",     "gptj_a",
                                      "baichuan_b",    "mixtral_a",     "gemma4_text_a",
                                      "gemma4_text_c", "gemma4_text_d", "gemma4_text_f"};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        check_logits(cut[i], &(struct setting){.parts = 2}, 1e-5);
    check_logits("gemma4_text_d", &(struct setting){.parts = 4}, 1e-5);
}

/* A window that is shorter than the texts has a cache that is shorter too. */
static void test_window_needs_fewer_slots(void)
{
    char folder[600];
    struct zinf_trainer *t;
    struct zinf_config *config;
    struct zinf_decode_shape shape = {.sequences = 2, .capacity = 30, .rows = 4};
    uint64_t slots = 0;
    fixture_folder(folder, "mistral_a"); /* a window of 7 */
    CHECKF(!open_trainer(&t, &config, folder, &(struct setting){0}, &shape, 0), "%s", zinf_error());
    for (uint32_t s = 0; s < t->setup.graph->n_stages; s++)
        if (t->setup.walk.stages[s].cache_bytes)
            slots = t->setup.walk.stages[s].cache[ZINF_CACHE_SEQUENCES].slots;
    CHECKF(slots == 11, "%llu slots", (unsigned long long)slots);
    close_trainer(t, config);
}

/* ---- places ---- */

static void run_placed(const char *folder, const struct setting *s, float *logits, bool *host_cache)
{
    struct zinf_trainer *t;
    struct zinf_config *config;
    struct zinf_decode_shape shape = {.sequences = 3, .capacity = 30, .rows = 6};
    int64_t vocab = 61;
    CHECKF(!open_trainer(&t, &config, folder, s, &shape, 0), "%s", zinf_error());
    for (int64_t i = 0; t && i < 3; i++)
        CHECKF(!feed(t, i, 0, 6, logits), "%s", zinf_error());
    for (int64_t p = 6; t && p < 30; p++)
        for (int64_t i = 0; i < 3; i++)
            CHECKF(!feed(t, i, p, 1, logits + ((p - 6) * 3 + i) * vocab), "%s", zinf_error());
    *host_cache = t && t->plan.amounts.host_cache;
    close_trainer(t, config);
}

/* The least device memory that still works has the cache in host memory, fetched by layers. */
static uint64_t least_memory(const char *folder, const char *param)
{
    uint64_t least = 0;
    for (uint64_t step = 1 << 24; step >= 1 << 12; step /= 2) {
        struct setting s = {.param = param, .device_memory = least + step};
        struct zinf_trainer *t;
        struct zinf_config *config;
        struct zinf_decode_shape shape = {.sequences = 3, .capacity = 30, .rows = 6};
        if (open_trainer(&t, &config, folder, &s, &shape, 0))
            least += step;
        close_trainer(t, config);
    }
    return least + (1 << 12);
}

static void check_places(const char *name)
{
    enum { VALUES = 24 * 3 * 61 };
    static const char *const places[] = {"none", "cpu", "nvme"};
    float *wanted = malloc(VALUES * sizeof *wanted), *logits = malloc(VALUES * sizeof *logits);
    char folder[600];
    bool host_cache;
    fixture_folder(folder, name);
    run_placed(folder, &(struct setting){0}, wanted, &host_cache);
    CHECK(!host_cache);
    for (int i = 0; i < 3; i++) {
        struct setting s = {.param = places[i]};
        run_placed(folder, &s, logits, &host_cache);
        CHECKF(!memcmp(logits, wanted, VALUES * sizeof *logits), "%s, %s", name, places[i]);
        s.device_memory = least_memory(folder, places[i]);
        run_placed(folder, &s, logits, &host_cache);
        CHECKF(host_cache, "%s, %s: %llu bytes hold the cache", name, places[i],
               (unsigned long long)s.device_memory);
        CHECKF(!memcmp(logits, wanted, VALUES * sizeof *logits), "%s, %s, little memory", name,
               places[i]);
    }
    free(wanted);
    free(logits);
}

/* Of three layers, the last one with a window; of four, one of them with experts. */
static void test_places_change_no_bit(void)
{
    check_places("qwen2_a");
    check_places("qwen3_moe_b");
    check_places("falcon_h1_a"); /* keys and values, and a state beside them */
}

/* ---- texts ---- */

static void begin_text(struct zinf_text *text, int64_t number, int64_t n)
{
    *text = (struct zinf_text){.ids = calloc((size_t)n, sizeof *text->ids), .n_prompt = n};
    for (int64_t i = 0; i < n; i++)
        text->ids[i] = token_at(number, i, 61);
}

enum { TEXTS = 7 };

static void generate_texts(const char *folder, const struct zinf_decode_shape *shape,
                           const struct zinf_generate_options *o, struct zinf_text texts[TEXTS])
{
    struct zinf_trainer *t;
    struct zinf_config *config;
    struct zinf_generate_speed speed;
    int64_t n_new = 0, n_prompt = 0;
    CHECKF(!open_trainer(&t, &config, folder, &(struct setting){0}, shape, 30), "%s", zinf_error());
    for (int64_t i = 0; i < TEXTS; i++)
        begin_text(&texts[i], i, 1 + i * 5 % 11);
    CHECKF(t && !zinf_generate(t, o, texts, TEXTS, &speed), "%s", zinf_error());
    for (int64_t i = 0; i < TEXTS; i++) {
        n_new += texts[i].n_new;
        n_prompt += texts[i].n_prompt;
    }
    CHECK(speed.new_tokens == n_new && speed.prompt_tokens == n_prompt);
    close_trainer(t, config);
}

/* In company, with fewer places than texts, with prompts in pieces, and without a cache. */
static void test_company_changes_no_text(void)
{
    static const struct zinf_decode_shape shapes[] = {
        {.sequences = 1, .capacity = 30, .rows = 11},
        {.sequences = 3, .capacity = 30, .rows = 3},
        {.sequences = 7, .capacity = 30, .rows = 40},
    };
    struct zinf_generate_options drawn = {.sampler = {.temperature = 0.8,
                                                      .top_p = 0.9,
                                                      .top_k = 20,
                                                      .seed = 4,
                                                      .repetition_penalty = 1.2},
                                          .max_new_tokens = 15};
    struct zinf_text wanted[TEXTS], texts[TEXTS];
    char folder[600];
    fixture_folder(folder, "mistral_a");
    generate_texts(folder, NULL, &drawn, wanted);
    CHECK(wanted[1].finish == ZINF_FINISH_LENGTH && wanted[1].n_new == 15);
    CHECK(memcmp(wanted[1].ids + wanted[1].n_prompt, wanted[2].ids + wanted[2].n_prompt, 60));
    for (int i = 0; i < 3; i++) {
        generate_texts(folder, &shapes[i], &drawn, texts);
        for (int j = 0; j < TEXTS; j++)
            CHECKF(same_text(&texts[j], &wanted[j]), "shape %d, text %d", i, j);
        free_texts(texts, TEXTS);
    }
    free_texts(wanted, TEXTS);
}

/* Texts that come one by one while others grow, with options of their own, are those that they are
 * alone; one that is dropped leaves its place. */
static void test_texts_come_and_go(void)
{
    static const struct zinf_decode_shape shape = {.sequences = 3, .capacity = 30, .rows = 4};
    struct zinf_generate_options drawn = {.sampler = {.temperature = 0.8, .seed = 4},
                                          .max_new_tokens = 15};
    struct zinf_generate_options options[TEXTS];
    struct zinf_text wanted[TEXTS], texts[TEXTS], dropped;
    struct zinf_generator *g;
    struct zinf_trainer *t;
    struct zinf_config *config;
    char folder[600];
    fixture_folder(folder, "mistral_a");
    generate_texts(folder, NULL, &drawn, wanted);
    CHECKF(!open_trainer(&t, &config, folder, &(struct setting){0}, &shape, 30), "%s",
           zinf_error());
    CHECK(!zinf_generator_create(&g, t) && zinf_generator_room(g) == 3);
    begin_text(&dropped, 0, 5);
    CHECK(!zinf_generator_add(g, &drawn, 0, &dropped) && zinf_generator_call(g) == 1);
    int64_t under_way = 1;
    for (int64_t i = 0; i < TEXTS; i++) {
        begin_text(&texts[i], i, 1 + i * 5 % 11);
        options[i] = drawn;
        options[i].max_new_tokens = 15 - i;
        while (under_way > 0 && !zinf_generator_room(g))
            under_way = zinf_generator_call(g);
        CHECKF(!zinf_generator_add(g, &options[i], i, &texts[i]), "%s", zinf_error());
        if (i == 1)
            zinf_generator_drop(g, &dropped);
        under_way = zinf_generator_call(g);
    }
    while (under_way > 0)
        under_way = zinf_generator_call(g);
    CHECK(under_way == 0 && dropped.finish == ZINF_FINISH_NONE);
    for (int64_t i = 0; i < TEXTS; i++) {
        CHECK(texts[i].n_new == options[i].max_new_tokens);
        CHECKF(!memcmp(texts[i].ids, wanted[i].ids,
                       (size_t)(texts[i].n_prompt + texts[i].n_new) * sizeof(int32_t)),
               "text %d", (int)i);
    }
    options[0].beams.n = 2;
    CHECK(zinf_generator_add(g, &options[0], 0, &texts[0]) == -EINVAL);
    zinf_generator_destroy(g);
    close_trainer(t, config);
    free(dropped.ids);
    free_texts(wanted, TEXTS);
    free_texts(texts, TEXTS);
}

static int stop_at_five(void *arg, int64_t number, const struct zinf_text *text)
{
    int64_t *asked = arg;
    asked[number]++;
    return text->n_new == 5 && number % 2;
}

static void test_texts_end(void)
{
    static const struct zinf_decode_shape shape = {.sequences = 2, .capacity = 14, .rows = 8};
    int64_t asked[TEXTS] = {0};
    struct zinf_generate_options o = {.max_new_tokens = 100, .made = stop_at_five, .arg = asked};
    struct zinf_text texts[TEXTS], again[TEXTS];
    char folder[600];
    fixture_folder(folder, "llama_a");
    generate_texts(folder, &shape, &o, texts);
    for (int i = 0; i < TEXTS; i++) {
        bool stops = i % 2;
        CHECK(texts[i].finish == (stops ? ZINF_FINISH_STOP : ZINF_FINISH_CONTEXT));
        CHECK(texts[i].n_new == (stops ? 5 : 15 - texts[i].n_prompt));
        CHECK(asked[i] == texts[i].n_new);
    }
    int32_t end = texts[0].ids[texts[0].n_prompt + 2];
    o = (struct zinf_generate_options){.max_new_tokens = 4, .ends = &end, .n_ends = 1};
    generate_texts(folder, &shape, &o, again);
    CHECK(again[0].finish == ZINF_FINISH_END && again[0].n_new <= 2);
    free_texts(texts, TEXTS);
    free_texts(again, TEXTS);
}

/* ---- refusals ---- */

static void refuse(int code, int wanted, const char *word)
{
    CHECKF(code == wanted, "%d", code);
    CHECKF(strstr(zinf_error(), word) != NULL, "%s", zinf_error());
}

static void test_refusals(void)
{
    struct zinf_trainer *t;
    struct zinf_config *config;
    struct zinf_decode_shape shape = {.sequences = 2, .capacity = 20, .rows = 4};
    char folder[600];
    float logits[MOST_VOCAB];
    int32_t ids[20] = {0};
    double sum;
    uint64_t count;
    fixture_folder(folder, "llama_a");
    CHECK(!open_trainer(&t, &config, folder, &(struct setting){0}, &shape, 0));
    refuse(feed(t, 0, 3, 1, logits), -EINVAL, "position 3 of sequence 0, which has 0");
    refuse(feed(t, 2, 0, 1, logits), -EINVAL, "2 sequences");
    refuse(feed(t, 0, 0, 5, logits), -EINVAL, "at most 4");
    CHECK(!feed(t, 0, 0, 4, logits) && !feed(t, 0, 4, 1, logits) && !feed(t, 0, 0, 1, logits));
    refuse(feed(t, 0, 5, 1, logits), -EINVAL, "which has 1");
    refuse(zinf_trainer_logits(t, ids, 3, logits), -EINVAL, "continues sequences");
    refuse(zinf_trainer_loss(t, TOKENS(ids, ids), 1, &sum, &count), -EINVAL, "continues");
    close_trainer(t, config);
    shape.capacity = 1000;
    refuse(open_trainer(&t, &config, folder, &(struct setting){0}, &shape, 0), -EINVAL, "context");
    zinf_config_destroy(config);
    fixture_folder(folder, "llama_d"); /* dynamic, 16 positions */
    shape.capacity = 17;
    refuse(open_trainer(&t, &config, folder, &(struct setting){0}, &shape, 0), -ENOTSUP, "dynamic");
    zinf_config_destroy(config);
    shape.capacity = 16;
    CHECKF(!open_trainer(&t, &config, folder, &(struct setting){0}, &shape, 0), "%s", zinf_error());
    close_trainer(t, config);
    fixture_folder(folder, "phi3_c"); /* longrope, from 8 positions on */
    refuse(open_trainer(&t, &config, folder, &(struct setting){0}, &shape, 0), -ENOTSUP,
           "longrope");
    zinf_config_destroy(config);
}

/* ---- transformers ---- */

/* The fixture's folder with the entry's changes to config.json. */
static void copy_model(const cJSON *entry, char folder[600])
{
    char from[700], to[700], source[600], *bytes = NULL;
    cJSON *config = NULL;
    const cJSON *change;
    size_t n;
    fixture_folder(source, cJSON_GetStringValue(cJSON_GetObjectItem(entry, "folder")));
    zinf_make_dirs(in_work(folder, "model"));
    snprintf(from, sizeof from, "%s/config.json", source);
    snprintf(to, sizeof to, "%s/config.json", folder);
    CHECKF(!zinf_json_read_file(from, 1 << 20, ZINF_JSON_STRICT, &config), "%s", zinf_error());
    cJSON_ArrayForEach(change, cJSON_GetObjectItem(entry, "config"))
    {
        cJSON_DeleteItemFromObject(config, change->string);
        cJSON_AddItemToObject(config, change->string, cJSON_Duplicate(change, true));
    }
    char *text = cJSON_Print(config);
    CHECK(!zinf_file_write_atomic(to, text, strlen(text)));
    snprintf(from, sizeof from, "%s/model.safetensors", source);
    snprintf(to, sizeof to, "%s/model.safetensors", folder);
    CHECK(!zinf_file_read(from, 1 << 24, &bytes, &n) && !zinf_file_write_atomic(to, bytes, n));
    cJSON_Delete(config);
    free(text);
    free(bytes);
}

/* All prompts of an entry at once; where the model cannot remember, without a cache. */
static void check_entry(const cJSON *entry)
{
    const cJSON *prompts = cJSON_GetObjectItem(entry, "prompts");
    const cJSON *wanted = cJSON_GetObjectItem(entry, "ids");
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "folder"));
    const bool cached = cJSON_IsTrue(cJSON_GetObjectItem(entry, "use_cache"));
    int32_t ids[MOST_TOKENS];
    char folder[600];
    struct zinf_trainer *t;
    struct zinf_config *config;
    struct zinf_text texts[TEXTS];
    struct zinf_generate_speed speed;
    int n = cJSON_GetArraySize(prompts);
    const int64_t whole = (int64_t)cJSON_GetNumberValue(cJSON_GetObjectItem(entry, "length"));
    struct zinf_decode_shape shape = {
        .sequences = n, .capacity = whole > 96 ? whole : 96, .rows = 13};
    struct zinf_generate_options o = {.max_new_tokens =
                                          cJSON_GetArraySize(cJSON_GetArrayItem(wanted, 0))};
    copy_model(entry, folder);
    CHECKF(!open_trainer(&t, &config, folder, &(struct setting){0}, cached ? &shape : NULL,
                         cached ? 0 : whole),
           "%s", zinf_error());
    CHECK(n > 1 && n <= TEXTS && o.max_new_tokens >= 24);
    for (int i = 0; i < n; i++) {
        int64_t length = read_ids(cJSON_GetArrayItem(prompts, i), ids);
        begin_text(&texts[i], i, length);
        memcpy(texts[i].ids, ids, (size_t)length * sizeof *ids);
    }
    CHECKF(t && !zinf_generate(t, &o, texts, n, &speed), "%s", zinf_error());
    for (int i = 0; i < n; i++) {
        int64_t length = read_ids(cJSON_GetArrayItem(wanted, i), ids), same = 0;
        const int32_t *made = texts[i].ids + texts[i].n_prompt;
        while (same < length && same < texts[i].n_new && made[same] == ids[same])
            same++;
        CHECKF(same == length && texts[i].n_new == length,
               "%s, prompt %d: the first %lld of %lld tokens are those of transformers", name, i,
               (long long)same, (long long)length);
        free(texts[i].ids);
    }
    close_trainer(t, config);
}

static void test_tokens_of_transformers(void)
{
    char path[600];
    cJSON *all = NULL;
    const cJSON *entry;
    fixture_folder(path, "generate.json");
    CHECKF(!zinf_json_read_file(path, 1 << 22, ZINF_JSON_STRICT, &all), "%s", zinf_error());
    CHECK(cJSON_GetArraySize(all) >= 6);
    cJSON_ArrayForEach(entry, all) check_entry(entry);
    cJSON_Delete(all);
}

int main(void)
{
    make_work("generate");
    zinf_log_set_level(ZINF_LOG_ERROR);
    zinf_make_dirs(in_work(drive, "drive"));
    TAP_RUN(test_logits_are_those_of_the_whole_text);
    TAP_RUN(test_logits_in_bf16);
    TAP_RUN(test_logits_in_parts_of_tensors);
    TAP_RUN(test_window_needs_fewer_slots);
    TAP_RUN(test_places_change_no_bit);
    TAP_RUN(test_company_changes_no_text);
    TAP_RUN(test_texts_come_and_go);
    TAP_RUN(test_texts_end);
    TAP_RUN(test_refusals);
    TAP_RUN(test_tokens_of_transformers);
    remove_work();
    return tap_done();
}
