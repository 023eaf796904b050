/*
 * Training adapters above weights in 4 or 8 bits: wherever these live the bits are the same, they
 * take the bytes of their form, and none of them is written; folders that are quantised already
 * give what quantising while loading gives; what cannot be read, or would not be trained, is
 * refused by name. tests/train/train_fixtures_test.c has PEFT's losses and gradients above such
 * weights.
 */
#include "saved.h"

#define ADAPTER(members) ", \"adapter\": {" members "}"
static const char nf4[] =
    ADAPTER("\"r\": 3, \"lora_alpha\": 7, \"lora_dropout\": 0.25") ", \"quantize\": \"nf4\"";
static const char int8[] = ADAPTER("\"r\": 3, \"lora_alpha\": 7") ", \"quantize\": \"int8\"";
static const char as_it_is[] = ADAPTER("\"r\": 3, \"lora_alpha\": 7, \"lora_dropout\": 0.25");

/* ---- the same bits ---- */

static void check_places(const char *family, const char *precision, const char *extra, int step)
{
    struct setting s = setting_with(precision, extra);
    struct outcome reference, other;
    char what[256];
    run(&s, "reference", &reference);
    for (int i = 0; i < 9; i += step)
        for (int copies = 0; copies < 2; copies++) {
            s.param = places[i / 3];
            s.state = places[i % 3];
            s.copies = copies;
            snprintf(what, sizeof what, "%s, %s: parameters %s, state %s", family,
                     word(precision, ""), s.param, s.state);
            run(&s, "other", &other);
            check_same(&reference, &other, what);
        }
}

static void test_placements(void)
{
    static const char *const families[] = {"gpt2_a", "llama_b", "mixtral_a"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        take_fixture(families[i]);
        check_places(families[i], NULL, nf4, 4);
        check_places(families[i], bf16, nf4, 1);
        check_places(families[i], bf16, int8, 4);
    }
}

static void test_schedules_and_orders(void)
{
    take_fixture("llama_b");
    check_all_schedules(setting_with(bf16, nf4));
}

/* The form counts: other numbers than the plain model's, and near them. */
static void test_forms_differ(void)
{
    struct setting s = setting_with(NULL, as_it_is);
    struct outcome plain, four, eight;
    take_fixture("llama_b");
    run(&s, "plain", &plain);
    s.extra = nf4;
    run(&s, "four", &four);
    s.extra = int8;
    run(&s, "eight", &eight);
    double off4 = fabs(four.loss[0] - plain.loss[0]), off8 = fabs(eight.loss[0] - plain.loss[0]);
    CHECKF(off8 > 0 && off8 < off4 && off4 < 0.3, "off by %g in 4 bits, %g in 8", off4, off8);
}

/* ---- bytes ---- */

static void test_bytes_are_those_of_the_form(void)
{
    struct setting s = setting_with(bf16, ADAPTER("\"r\": 1") ", \"quantize\": \"nf4\"");
    struct zinf_model_shape shape = {
        .arch = "llama", .layers = 3, .hidden = 256, .heads = 4, .vocab = 61, .context = 32};
    uint64_t quantized_bytes = 0, plain_bytes = 0, state = 0;
    s.param = s.state = "nvme";
    make_model(model, "wide", &shape, 11);
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, model);
    for (uint32_t u = 0; t && u < t->setup.n_units; u++) {
        const struct zinf_unit *unit = &t->setup.graph->units[u];
        struct zinf_location where = zinf_tiers_param(t->plan.tiers, u, 0);
        uint64_t flat = 2 * t->setup.layout.units[u].padded_elems;
        CHECK(where.bytes == flat + unit->image_bytes);
        CHECK(!unit->image_bytes || (!unit->trained && where.tier == ZINF_TIER_DRIVE));
        state += unit->trained ? 2 * flat + setup_unit_state_bytes(&t->setup, u) : 0;
        for (uint32_t i = 0; i < unit->n_tensors && !unit->trained; i++) {
            plain_bytes += unit->image_bytes ? 2 * unit->tensors[i].elems : 0;
            quantized_bytes += i ? 0 : unit->image_bytes ? where.bytes : 0;
        }
    }
    CHECKF(quantized_bytes * 3 < plain_bytes, "%llu bytes in 4 bits, %llu in 16",
           (unsigned long long)quantized_bytes, (unsigned long long)plain_bytes);
    for (uint64_t step = 0; t && step < 3; step++) {
        struct zinf_step_result r = {0};
        CHECKF(!next_step(t, &s, step, &r), "%s", zinf_error());
        CHECKF(r.lane_bytes[ZINF_LANE_WRITE] <= 2 * state, "step %llu wrote %llu bytes",
               (unsigned long long)step, (unsigned long long)r.lane_bytes[ZINF_LANE_WRITE]);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* ---- numbers that stay ---- */

static struct zinf_device_ops counting;
static int (*dequantize)(struct zinf_queue *q, const struct zinf_dequantize *args);
static uint64_t n_dequantized;

static int count_dequantize(struct zinf_queue *q, const struct zinf_dequantize *args)
{
    n_dequantized++;
    return dequantize(q, args);
}

/* Images that became numbers in a step of so many micro-batches, layer by layer; stay: the plan has
 * room for those of a layer. */
static uint64_t count_numbers(struct setting s, int64_t micros, bool stay, double *loss)
{
    s.accumulation = micros;
    s.order = "layer-major";
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, model);
    struct zinf_step_result r = {0};
    if (!t)
        return 0;
    CHECKF(t->plan.amounts.numbers, "no room for %llu bytes",
           (unsigned long long)plan_numbers_bytes(&t->plan));
    if (!stay)
        t->numbers.memory = NULL;
    counting = *t->setup.device->ops;
    dequantize = counting.dequantize;
    counting.dequantize = count_dequantize;
    t->setup.device->ops = &counting;
    n_dequantized = 0;
    for (uint64_t step = 0; step < 2; step++)
        CHECKF(!next_step(t, &s, step, &r), "%s", zinf_error());
    *loss = r.loss;
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return n_dequantized;
}

/* However many micro-batches a layer serves, it becomes numbers once a pass. */
static void test_numbers_are_made_once_a_pass(void)
{
    static const char *const extras[] = {
        ADAPTER("\"r\": 3") ", \"quantize\": \"nf4\", \"activation_checkpointing\": \"never\"",
        ADAPTER("\"r\": 3") ", \"quantize\": \"nf4\", \"activation_checkpointing\": \"always\""};
    double kept, made;
    take_fixture("llama_b");
    for (int i = 0; i < 2; i++) {
        struct setting s = setting_with(bf16, extras[i]);
        uint64_t two = count_numbers(s, 2, true, &kept);
        uint64_t four = count_numbers(s, 4, true, &kept);
        uint64_t again = count_numbers(s, 4, false, &made);
        CHECKF(two && four == two, "%llu for four micro-batches, %llu for two",
               (unsigned long long)four, (unsigned long long)two);
        CHECKF(again >= 4 * four, "%llu, and %llu where they stay", (unsigned long long)again,
               (unsigned long long)four);
        CHECKF(kept == made, "losses %.17g, %.17g", kept, made);
    }
}

/* ---- folders ---- */

/* What a folder of quantised weights computes is what its 16-bit original computes, quantised here.
 */
static void check_folder(const char *folder, const char *original, const char *extra)
{
    struct setting s = setting_with(NULL, as_it_is);
    struct outcome as_read, as_quantized;
    take_fixture(folder);
    s.param = "nvme";
    run(&s, "read", &as_read);
    take_fixture(original);
    s.extra = extra;
    run(&s, "quantized", &as_quantized);
    check_same(&as_quantized, &as_read, folder);
}

static void test_folders_of_bitsandbytes(void)
{
    static const char eight[] =
        ADAPTER("\"r\": 3, \"lora_alpha\": 7, \"lora_dropout\": 0.25") ", \"quantize\": \"int8\"";
    check_folder("llama_nf4", "llama_b", nf4);
    check_folder("llama_int8", "llama_b", eight);
}

/* The numbers that transformers makes of a quantised folder, in a folder of their own, train the
 * same, wherever they live. */
static void check_numbers(const char *folder, const char *numbers)
{
    static const char *const precisions[] = {NULL, bf16};
    for (int i = 0; i < 2; i++) {
        struct setting s = setting_with(precisions[i], as_it_is);
        struct outcome as_read, as_numbers;
        take_fixture(folder);
        check_places(folder, precisions[i], as_it_is, i ? 1 : 4);
        run(&s, "read", &as_read);
        take_fixture(numbers);
        run(&s, "numbers", &as_numbers);
        check_same(&as_numbers, &as_read, folder);
    }
}

static void test_folder_of_exponents(void)
{
    check_numbers("gpt_oss_mxfp4", "gpt_oss_c");
}

static void test_folder_of_floats_of_8_bits(void)
{
    check_numbers("fp8/qwen3", "fp8/numbers");
}

/* Without double quantisation, which is not offered while loading, it is another model. */
static void test_folder_without_double_quantisation(void)
{
    struct setting s = setting_with(NULL, as_it_is);
    struct outcome single, both;
    take_fixture("qwen3_nf4");
    run(&s, "single", &single);
    take_fixture("qwen3_a");
    s.extra = nf4;
    run(&s, "both", &both);
    double off = fabs(single.loss[0] - both.loss[0]);
    CHECKF(off > 0 && off < 0.01, "losses %.9g, %.9g", single.loss[0], both.loss[0]);
}

/* ---- checkpoints ---- */

static void test_checkpoints_know_the_form(void)
{
    struct setting s = setting_with(bf16, nf4),
                   later = setting_with(bf16, ", \"quantize\": \"nf4\"");
    struct zinf_config *config = NULL, *later_config = NULL;
    struct zinf_step_result a, b;
    struct zinf_trainer *u = NULL;
    struct checkpoint c;
    char folder[700];
    take_fixture("llama_b");
    later.param = "cpu";
    config = configure(&s);
    later_config = configure(&later);
    struct zinf_trainer_options options = trainer_options(&later, later_config);
    struct zinf_trainer *t = open_trainer(&s, config, model);
    if (!t)
        return;
    for (uint64_t step = 0; step < 2; step++)
        CHECK(!next_step(t, &s, step, &a));
    save_checkpoint(t, "first", folder);
    options.adapter = folder;
    CHECKF(!zinf_trainer_create(&u, &options), "%s", zinf_error());
    load_checkpoint(u, folder);
    CHECK(!next_step(t, &s, 2, &a) && !next_step(u, &later, 2, &b));
    CHECKF(a.loss == b.loss && a.grad_norm == b.grad_norm, "loss %.17g, %.17g", a.loss, b.loss);
    zinf_trainer_destroy(t);
    zinf_trainer_destroy(u);
    zinf_config_destroy(later_config);
    later.extra = NULL; /* above the weights as the file has them */
    later_config = configure(&later);
    options = trainer_options(&later, later_config);
    options.adapter = folder;
    u = NULL;
    CHECK(!zinf_trainer_create(&u, &options) && !checkpoint_open(&c, folder));
    CHECK(u && checkpoint_load(&c, folder, u) == -EINVAL && strstr(zinf_error(), "other weights"));
    checkpoint_fini(&c);
    zinf_trainer_destroy(u);
    zinf_config_destroy(config);
    zinf_config_destroy(later_config);
}

/* ---- what is refused ---- */

static void check_refused(const char *extra, const char *words)
{
    struct setting s = setting_with(NULL, extra);
    struct zinf_config *config = configure(&s);
    struct zinf_trainer_options options = trainer_options(&s, config);
    struct zinf_trainer *t = NULL;
    int code = zinf_trainer_create(&t, &options);
    CHECKF(code == -EINVAL || code == -ENOTSUP || code == -ENOENT, "%s: %d", words, code);
    CHECKF(strstr(zinf_error(), words), "not \"%s\": %s", words, zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* A copy of the folder whose config.json has another quantization_config. */
static void take_changed(const char *folder, const char *quantization)
{
    char path[700];
    take_fixture(folder);
    snprintf(path, sizeof path, "%s/config.json", model);
    cJSON *document = NULL;
    CHECK(!zinf_json_read_file(path, 1 << 20, ZINF_JSON_STRICT, &document));
    cJSON_DeleteItemFromObjectCaseSensitive(document, "quantization_config");
    if (quantization)
        cJSON_AddItemToObject(document, "quantization_config", cJSON_Parse(quantization));
    char *text = zinf_json_print(document), command[2000], copy[600];
    snprintf(command, sizeof command, "cp -r '%s' '%s'", model, in_work(copy, "changed"));
    CHECK(!system("true") && !system(command));
    snprintf(path, sizeof path, "%s/config.json", copy);
    CHECK(!zinf_file_write_atomic(path, text, strlen(text)));
    snprintf(model, sizeof model, "%s", copy);
    cJSON_free(text);
    cJSON_Delete(document);
}

static void check_changed(const char *folder, const char *quantization, const char *words)
{
    char command[700], copy[600];
    take_changed(folder, quantization);
    check_refused(as_it_is, words);
    snprintf(command, sizeof command, "rm -rf '%s'", in_work(copy, "changed"));
    CHECK(!system(command));
}

static void test_refused_by_name(void)
{
    take_fixture("llama_b");
    check_refused(", \"quantize\": \"nf4\"", "train adapters above them");
    take_fixture("llama_nf4");
    check_refused("", "train adapters above them");
    check_refused(int8, "is int8, but the weights of");
    check_changed("llama_b", "{\"quant_method\": \"gptq\", \"bits\": 4}",
                  "quant_method \"gptq\" is not supported");
    check_changed("llama_b", "{\"quant_method\": \"awq\"}", "--quantize");
    check_changed("llama_b", "{\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"fp4\"}",
                  "\"fp4\" is not supported, only \"nf4\"");
    check_changed("llama_b", "{\"load_in_4bit\": true}", "\"fp4\" is not supported");
    check_changed("llama_b", "{}", "neither load_in_4bit nor load_in_8bit");
    check_changed("llama_b", "3", "is no object");
    check_changed("llama_b", "{\"quant_method\": \"fp8\", \"weight_block_size\": [1, 128]}",
                  "weight_block_size is not [128, 128]");
    check_changed("llama_b", "{\"quant_method\": \"fp8\"}", "quantised in another way");
    check_changed("gpt2_a", "{\"quant_method\": \"fp8\"}", "is not one matrix [out][in]");
    check_changed("fp8/qwen3", NULL, "no number type that is read");
    check_changed("fp8/qwen3", "{\"quant_method\": \"fp8\"}", "quantised in another way");
    check_changed("llama_b", "{\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\"}",
                  "quantised in another way");
    check_changed("llama_nf4", NULL, "no number type that is read");
    check_changed("llama_nf4", "{\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\"}",
                  "quantised in another way");
    check_changed("llama_nf4", "{\"load_in_8bit\": true}", "quantised in another way");
    check_changed("llama_b", "{\"load_in_8bit\": true, \"llm_int8_skip_modules\": [\"q_proj\"]}",
                  "they are one matrix here");
}

/* Modules that are named to be skipped stay as they are. */
static void test_skipped_modules(void)
{
    char command[700], copy[600];
    take_changed("llama_b", "{\"load_in_8bit\": true, \"llm_int8_skip_modules\": [\"self_attn\", "
                            "\"mlp\"]}");
    struct setting s = setting_with(NULL, as_it_is);
    struct outcome skipped, plain;
    run(&s, "skipped", &skipped);
    take_fixture("llama_b");
    run(&s, "plain", &plain);
    check_same(&plain, &skipped, "all modules skipped");
    snprintf(command, sizeof command, "rm -rf '%s'", in_work(copy, "changed"));
    CHECK(!system(command));
}

int main(void)
{
    begin_fixtures("quantized");
    TAP_RUN(test_placements);
    TAP_RUN(test_schedules_and_orders);
    TAP_RUN(test_numbers_are_made_once_a_pass);
    TAP_RUN(test_forms_differ);
    TAP_RUN(test_bytes_are_those_of_the_form);
    TAP_RUN(test_folders_of_bitsandbytes);
    TAP_RUN(test_folder_of_exponents);
    TAP_RUN(test_folder_of_floats_of_8_bits);
    TAP_RUN(test_folder_without_double_quantisation);
    TAP_RUN(test_checkpoints_know_the_form);
    TAP_RUN(test_refused_by_name);
    TAP_RUN(test_skipped_modules);
    remove_work();
    return tap_done();
}
