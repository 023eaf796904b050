/*
 * Training adapters of frozen models: wherever things live, in whatever order, the bits are the
 * same, with dropout in front of the adapters; what is frozen has no gradient and no state and is
 * not written; a checkpoint holds the adapters and their state, and goes on above the same weights
 * alone; what would be another adapter is refused by name.
 */
#include "saved.h"
#include "train/checkpoints.h"

static const char *const families[] = {"gpt2_a", "llama_b", "qwen3_a"};

#define ADAPTER(members) ", \"adapter\": {" members "}"
static const char everywhere[] =
    ADAPTER("\"r\": 3, \"lora_alpha\": 7, \"lora_dropout\": 0.25, \"use_rslora\": true");

static struct setting adapting(const char *optimizer, const char *precision, const char *extra)
{
    struct setting s = setting_of(optimizer, precision);
    s.extra = extra;
    return s;
}

static void test_placements(void)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        take_fixture(families[i]);
        check_all_places(adapting(NULL, NULL, everywhere), families[i], 1, false);
        check_all_places(adapting(NULL, bf16, everywhere), families[i], 1, false);
        check_all_places(adapting(adamw_8bit, bf16, everywhere), families[i], 4, false);
        check_all_places(adapting(adafactor, NULL, everywhere), families[i], 4, false);
    }
}

static void test_schedules_and_orders(void)
{
    struct setting s = adapting(NULL, bf16, everywhere);
    take_fixture("llama_b");
    s.steps = trainings.steps;
    check_all_schedules(s);
}

static void test_recompute_equals_kept(void)
{
    static const char never[] =
        ADAPTER("\"r\": 2, \"lora_dropout\": 0.5") ", \"activation_checkpointing\": \"never\"";
    static const char always[] =
        ADAPTER("\"r\": 2, \"lora_dropout\": 0.5") ", \"activation_checkpointing\": \"always\"";
    struct setting s = adapting(NULL, NULL, never);
    struct outcome kept, recomputed;
    take_fixture("qwen3_a");
    run(&s, "kept", &kept);
    s.extra = always;
    run(&s, "recomputed", &recomputed);
    CHECK(recomputed.device_bytes < kept.device_bytes);
    check_same(&kept, &recomputed, "recomputed");
}

/* With as little device memory as the plan can do with, slots turn over within a block. */
static void test_device_cap_changes_nothing(void)
{
    struct setting s = adapting(NULL, bf16, ADAPTER("\"r\": 4, \"lora_dropout\": 0.1"));
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 6, .hidden = 64, .heads = 4, .vocab = 61, .context = 32};
    struct outcome free_run, capped;
    make_model(model, "deep", &shape, 11);
    s.param = s.state = "nvme";
    run(&s, "free", &free_run);
    for (s.device_memory = free_run.device_bytes; s.device_memory > 4096;
         s.device_memory -= s.device_memory / 16) {
        struct zinf_config *config = configure(&s);
        struct zinf_trainer_options options = trainer_options(&s, config);
        struct zinf_trainer *t = NULL;
        int code = zinf_trainer_create(&t, &options);
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
        if (code)
            break;
    }
    s.device_memory += s.device_memory / 8;
    run(&s, "capped", &capped);
    CHECKF(capped.device_bytes < free_run.device_bytes * 2 / 3, "capped %llu of %llu",
           (unsigned long long)capped.device_bytes, (unsigned long long)free_run.device_bytes);
    check_same(&free_run, &capped, "capped");
}

/* Dropout in front of adapters does something, and nothing where B is zero. */
static void test_dropout_of_adapters(void)
{
    struct setting s = adapting(NULL, NULL, ADAPTER("\"r\": 4"));
    struct outcome without, with, base;
    take_fixture("llama_b");
    run(&s, "without", &without);
    s.extra = ADAPTER("\"r\": 4, \"lora_dropout\": 0.5");
    run(&s, "with", &with);
    s.extra = NULL;
    run(&s, "base", &base);
    CHECKF(with.loss[0] == base.loss[0] && without.loss[0] == base.loss[0],
           "a fresh adapter changes the loss: %.17g, %.17g, %.17g", base.loss[0], without.loss[0],
           with.loss[0]);
    CHECK(with.norm[0] != without.norm[0] && with.loss[2] != without.loss[2]);
}

/* ---- what is frozen ---- */

static void test_frozen_bytes_are_not_written(void)
{
    struct setting s = adapting(NULL, bf16, ADAPTER("\"r\": 1"));
    uint64_t state = 0, frozen = 0;
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 3, .hidden = 64, .heads = 4, .vocab = 61, .context = 32};
    s.param = s.state = "nvme";
    make_model(model, "wide", &shape, 11);
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, model);
    for (uint32_t u = 0; t && u < t->setup.n_units; u++) {
        uint64_t elems = t->setup.layout.units[u].padded_elems;
        bool trained = unit_trains(&t->setup, u);
        CHECK(trained == !strncmp(t->setup.graph->units[u].name, "adapter.", 8));
        CHECK(trained || !setup_unit_state_bytes(&t->setup, u));
        CHECK(trained || !t->plan.homes[u].keeps_grad);
        CHECK(trained ||
              (t->plan.homes[u].generations == 1 && t->plan.homes[u].param == ZINF_TIER_DRIVE));
        if (trained) /* parameters, state, and the sum of two contributions written once */
            state += 2 * elems + setup_unit_state_bytes(&t->setup, u) + 4 * elems;
        else
            frozen += 2 * elems;
    }
    CHECK(frozen > state);
    for (uint64_t step = 0; t && step < 4; step++) {
        struct zinf_step_result r = {0};
        CHECKF(!next_step(t, &s, step, &r), "%s", zinf_error());
        uint64_t written = r.lane_bytes[ZINF_LANE_WRITE];
        CHECKF(written <= state, "step %llu wrote %llu bytes; adapters have %llu",
               (unsigned long long)step, (unsigned long long)written, (unsigned long long)state);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* ---- checkpoints ---- */

/* Two steps, a checkpoint, two more; and the last two from the checkpoint, with all elsewhere. */
static void check_checkpoint(const char *optimizer, const char *precision)
{
    struct setting s = adapting(optimizer, precision, everywhere), later = s;
    char folder[700];
    later.param = "cpu";
    later.state = "nvme";
    later.extra = NULL; /* the checkpoint knows */
    struct zinf_config *config = configure(&s), *later_config = configure(&later);
    struct zinf_trainer_options options = trainer_options(&later, later_config);
    struct zinf_trainer *t = open_trainer(&s, config, model), *u = NULL;
    struct zinf_step_result a, b;
    for (uint64_t step = 0; t && step < 2; step++)
        CHECK(!next_step(t, &s, step, &a));
    if (!t)
        return;
    save_checkpoint(t, "first", folder);
    options.adapter = folder;
    CHECKF(!zinf_trainer_create(&u, &options), "%s", zinf_error());
    if (!u)
        return;
    load_checkpoint(u, folder);
    for (uint64_t step = 2; step < 4; step++) {
        CHECK(!next_step(t, &s, step, &a) && !next_step(u, &later, step, &b));
        CHECKF(a.loss == b.loss && a.grad_norm == b.grad_norm, "%s %s: loss %.17g, %.17g",
               word(optimizer, "AdamW"), word(precision, ""), a.loss, b.loss);
    }
    zinf_trainer_destroy(t);
    zinf_trainer_destroy(u);
    zinf_config_destroy(config);
    zinf_config_destroy(later_config);
}

static void test_checkpoints_go_on(void)
{
    take_fixture("llama_b");
    for (int o = 0; o < 3; o++)
        for (int p = 0; p < 2; p++)
            check_checkpoint(optimizers[o], p ? bf16 : NULL);
}

static void test_checkpoint_of_other_weights(void)
{
    struct setting s = adapting(NULL, NULL, everywhere);
    struct zinf_config *config = configure(&s);
    char folder[700], other[600];
    struct checkpoint c;
    take_fixture("gpt2_a");
    struct zinf_trainer *t = open_trainer(&s, config, model);
    CHECK(t != NULL);
    if (!t)
        return;
    save_checkpoint(t, "mine", folder);
    zinf_trainer_destroy(t);
    /* the same shapes with other numbers */
    struct zinf_model *shape = NULL;
    CHECK(!zinf_model_open(&shape, model));
    CHECK(!zinf_model_write_new(zinf_model_config(shape), ZINF_DTYPE_F32, 7,
                                in_work(other, "other")));
    zinf_model_close(shape);
    t = open_trainer(&s, config, other);
    CHECK(!checkpoint_open(&c, folder));
    CHECK(t && checkpoint_load(&c, folder, t) == -EINVAL);
    CHECKF(strstr(zinf_error(), "other weights"), "%s", zinf_error());
    checkpoint_fini(&c);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* ---- merging ---- */

/* Against PEFT's, whose names may have a prefix that the base's file has not. */
static double compare_merged(const char *folder, const char *expected)
{
    static const char prefix[] = "transformer.";
    struct zinf_tensors *a = NULL, *b = NULL;
    double worst = 0;
    CHECKF(!zinf_tensors_open(&a, folder), "%s", zinf_error());
    CHECKF(!zinf_tensors_open(&b, expected), "%s", zinf_error());
    for (uint64_t i = 0; a && b && i < zinf_tensors_count(b); i++) {
        const struct zinf_tensor_info *want = zinf_tensors_at(b, i);
        const struct zinf_tensor_info *have = zinf_tensors_find(a, want->name);
        if (!have && !strncmp(want->name, prefix, strlen(prefix)))
            have = zinf_tensors_find(a, want->name + strlen(prefix));
        CHECKF(have && have->n_elems == want->n_elems, "%s is missing", want->name);
        if (!have || have->n_elems != want->n_elems)
            continue;
        float *x = malloc(want->n_elems * sizeof *x), *y = malloc(want->n_elems * sizeof *y);
        CHECK(!zinf_tensors_read_f32(a, have, 0, want->n_elems, x));
        CHECK(!zinf_tensors_read_f32(b, want, 0, want->n_elems, y));
        worst = fmax(worst, distance(x, y, want->n_elems));
        free(x);
        free(y);
    }
    zinf_tensors_close(a);
    zinf_tensors_close(b);
    return worst;
}

static void test_merge_is_that_of_peft(void)
{
    static const char *const list[][2] = {{"peft_a", "gpt2_a"},
                                          {"peft_b", "llama_b"},
                                          {"peft_c", "llama_b"},
                                          {"peft_d", "gpt2_d"},
                                          {"peft_f", "bloom_a"},
                                          {"peft_g", "phi3_a"},
                                          {"peft_h", "gpt_neox_a"},
                                          {"peft_m", "gpt2_a"},
                                          {"peft_n", "llama_b"},
                                          {"peft_o", "bloom_a"},
                                          {"peft_p", "gpt2_d"},
                                          {"peft_q", "llama_a"},
                                          {"peft_w", "gpt_oss_a"},
                                          {"peft_x", "qwen3_moe_a"},
                                          {"peft_y", "granitemoe_a"},
                                          {"peft_z", "mixtral_a"},
                                          {"peft_ma", "granitemoehybrid_c"},
                                          {"peft_mb", "qwen3_next_a"},
                                          {"peft_mc", "falcon_h1_a"},
                                          {"peft_md", "lfm2_b"},
                                          {"peft_e", "qwen3_a"}};
    char adapter[600], base[600], output[600], expected[700];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(adapter, sizeof adapter, "%s/tests/fixtures/%s", getenv("SRCDIR"), list[i][0]);
        snprintf(base, sizeof base, "%s/tests/fixtures/%s", getenv("SRCDIR"), list[i][1]);
        snprintf(expected, sizeof expected, "%s/merged.safetensors", adapter);
        struct zinf_merge_options options = {.adapter = adapter,
                                             .base = base,
                                             .output = in_work(output, list[i][0]),
                                             .as_base = true};
        CHECKF(!zinf_adapter_merge(&options), "%s", zinf_error());
        double worst = compare_merged(output, expected);
        CHECKF(worst <= 1e-6, "%s: merged weights off by %g", list[i][0], worst);
    }
    struct zinf_merge_options other = {.adapter = adapter, .base = work, .output = output};
    CHECK(zinf_adapter_merge(&other) == -ENOENT);
    other.base = NULL; /* "qwen3_a", which is no folder here */
    CHECK(zinf_adapter_merge(&other) == -ENOENT);
    CHECKF(strstr(zinf_error(), "--model DIR"), "%s", zinf_error());
}

/* What was trained, merged from its checkpoint, is the model that was trained. */
static void test_merged_checkpoint_computes_alike(void)
{
    struct setting s = adapting(NULL, NULL, ADAPTER("\"r\": 4, \"lora_alpha\": 32"));
    struct zinf_config *config = configure(&s);
    struct zinf_step_result r;
    char folder[700], merged[600];
    int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    double sums[2] = {0};
    uint64_t count;
    take_fixture("qwen3_a");
    struct zinf_trainer *t = open_trainer(&s, config, model), *u = NULL;
    if (!t)
        return;
    for (uint64_t step = 0; step < 5; step++)
        CHECK(!next_step(t, &s, step, &r));
    save_checkpoint(t, "trained", folder);
    struct zinf_merge_options merge = {
        .adapter = folder, .output = in_work(merged, "merged"), .as_base = true};
    CHECKF(!zinf_adapter_merge(&merge), "%s", zinf_error()); /* the base is where it was */
    struct zinf_export_options export = {.checkpoint = folder, .output = merged};
    CHECK(zinf_checkpoint_export(&export) == -EINVAL && strstr(zinf_error(), "--merge"));
    s.extra = NULL;
    struct zinf_config *plain = configure(&s);
    u = open_trainer(&s, plain, merged);
    draw_tokens(&s, 99, ids, targets);
    for (int i = 0; u && i < 2; i++)
        CHECK(
            !zinf_trainer_loss(i ? u : t, TOKENS(ids, targets), trainings.batch, &sums[i], &count));
    CHECKF(fabs(sums[0] - sums[1]) <= 1e-6 * fabs(sums[0]), "losses %.9g, %.9g", sums[0], sums[1]);
    zinf_trainer_destroy(t);
    zinf_trainer_destroy(u);
    zinf_config_destroy(config);
    zinf_config_destroy(plain);
}

/* ---- what is refused ---- */

static void check_refused(const char *extra, const char *adapter, const char *words)
{
    struct setting s = adapting(NULL, NULL, extra);
    struct zinf_config *config = configure(&s);
    struct zinf_trainer_options options = trainer_options(&s, config);
    struct zinf_trainer *t = NULL;
    options.adapter = adapter;
    int code = zinf_trainer_create(&t, &options);
    CHECKF(code == -EINVAL || code == -ENOTSUP || code == -ENOENT, "%s: %d", word(extra, adapter),
           code);
    CHECKF(strstr(zinf_error(), words), "%s: %s", word(extra, adapter), zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_refused_by_name(void)
{
    static const struct {
        const char *extra, *words;
    } list[] = {
        {ADAPTER("\"target_modules\": [\"q_prj\"]"), "no module q_prj; it has q_proj, k_proj"},
        {ADAPTER("\"target_modules\": [\"q_proj\", \"embed_tokens\"]"),
         "embed_tokens is no linear"},
        {ADAPTER("\"target_modules\": \".*nothing\""), "chooses no linear layer"},
        {ADAPTER("\"target_modules\": \"(\""), "no regular expression"},
        {ADAPTER("\"target_modules\": 3"), "a list of names"},
        {ADAPTER("\"r\": 13"), "rank 13 is above the smaller side"},
        {ADAPTER("\"r\": 0"), "r is 0"},
        {ADAPTER("\"lora_alpha\": 0"), "lora_alpha is 0"},
        {ADAPTER("\"lora_dropout\": 1"), "lora_dropout is 1"},
        {ADAPTER("\"use_bdlora\": true"), "use_bdlora is true"},
        {ADAPTER("\"bias\": \"some\""), "bias \"some\""},
        {ADAPTER("\"modules_to_save\": [\"lm_head\"]"), "modules_to_save"},
        {ADAPTER("\"init_lora_weights\": \"pissa\""), "\"pissa\""},
        {ADAPTER("\"task_type\": \"SEQ_CLS\""), "SEQ_CLS"},
        {ADAPTER("\"rank\": 4"), "rank is 4"},
        {ADAPTER("\"rank_pattern\": {\"q_proj\": 2.5}"), "the rank 2.5"},
        {ADAPTER("\"rank_pattern\": {\"q_proj\": \"2\"}"), "a number above 0"},
    };
    take_fixture("llama_b");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_refused(list[i].extra, NULL, list[i].words);
}

static void test_adapter_of_another_base(void)
{
    char folder[600];
    const char *fixtures = getenv("SRCDIR");
    snprintf(folder, sizeof folder, "%s/tests/fixtures/peft_b", fixtures);
    take_fixture("llama_a"); /* as many layers, other keys */
    check_refused(NULL, folder, "has shape");
    take_fixture("gpt2_a");
    check_refused(NULL, folder, "the model has no module");
    take_fixture("llama_b");
    check_refused(ADAPTER("\"r\": 4, \"lora_alpha\": 5"), folder, "has rank 3");
    check_refused(ADAPTER("\"r\": 3, \"lora_alpha\": 6"), folder, "scales");
    check_refused(ADAPTER("\"r\": 3, \"lora_alpha\": 5, \"target_modules\": [\"q_proj\"]"), folder,
                  "other target_modules");
    check_refused(NULL, model, "no adapter_config.json");
}

int main(void)
{
    begin_fixtures("adapter");
    TAP_RUN(test_placements);
    TAP_RUN(test_schedules_and_orders);
    TAP_RUN(test_recompute_equals_kept);
    TAP_RUN(test_device_cap_changes_nothing);
    TAP_RUN(test_dropout_of_adapters);
    TAP_RUN(test_frozen_bytes_are_not_written);
    TAP_RUN(test_checkpoints_go_on);
    TAP_RUN(test_checkpoint_of_other_weights);
    TAP_RUN(test_merge_is_that_of_peft);
    TAP_RUN(test_merged_checkpoint_computes_alike);
    TAP_RUN(test_refused_by_name);
    TAP_RUN(test_adapter_of_another_base);
    remove_work();
    return tap_done();
}
