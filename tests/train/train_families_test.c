/*
 * Families whose files hold a unit's tensors in several parts or orders (q, k, v; gate and up; by
 * head), and whose blocks have every shape (parallel, with norms behind the parts), trained from
 * the fixtures: wherever things live the bits are the same, by every optimizer; a checkpoint holds
 * all of the state, whatever its form, and nothing of what is not trained; a model of fresh weights
 * is the same whether a trainer or a folder begins with them.
 */
#include "saved.h"
#include "train/checkpoints.h"

static const char *const families[] = {"llama_b",        "mistral_a",
                                       "qwen2_a",        "qwen3_a",
                                       "phi3_a",         "gpt_neox_a",
                                       "starcoder2_a",   "olmo2_a",
                                       "opt_a",          "falcon_a",
                                       "falcon_b",       "falcon_d",
                                       "chatglm_a",      "bloom_a",
                                       "baichuan_a",     "baichuan_b",
                                       "gemma_a",        "gemma2_a",
                                       "gemma3_text_a",  "qwen3_moe_a",
                                       "mixtral_b",      "mixtral_c",
                                       "olmo3_a",        "smollm3_b",
                                       "granite_a",      "hunyuan_v1_dense_a",
                                       "glm4_a",         "cohere2_a",
                                       "gpt_bigcode_a",  "gpt_bigcode_b",
                                       "stablelm_a",     "nemotron_a",
                                       "olmoe_a",        "gpt_oss_a",
                                       "glm4_moe_a",     "granitemoe_a",
                                       "deepseek_v2_b",  "deepseek_v3_a",
                                       "qwen3_next_a",   "qwen3_next_b",
                                       "qwen3_5_text_a", "granitemoehybrid_c",
                                       "nemotron_h_a",   "nemotron_h_c",
                                       "gemma4_text_a",  "gemma4_text_b",
                                       "falcon_h1_a",    "granitemoehybrid_e",
                                       "olmo_hybrid_a",  "lfm2_a",
                                       "gemma4_text_c",  "gemma4_text_d",
                                       "llama4_text_a",  "llama4_text_c",
                                       "gemma4_text_e",  "apertus_a"};

static void test_placements(void)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        take_fixture(families[i]);
        check_all_places(setting_of(NULL, NULL), families[i], 1, false);
        check_all_places(setting_of(NULL, bf16), families[i], 1, false);
        check_all_places(setting_of(adamw_8bit, i % 2 ? bf16 : NULL), families[i], 4, false);
        check_all_places(setting_of(adafactor, i % 2 ? NULL : bf16), families[i], 4, false);
    }
}

/* ---- checkpoints ---- */

static bool same_checkpoints(const char *a, const char *b, enum zinf_dtype dtype, int n_moments)
{
    bool same = same_weights(a, b);
    char name[64] = "optimizer/master.safetensors";
    for (int part = dtype == ZINF_DTYPE_F32; same && part <= n_moments; part++) {
        if (part)
            snprintf(name, sizeof name, "optimizer/moment%d.safetensors", part);
        same = same_file(a, b, name);
    }
    return same;
}

/* Two steps, a checkpoint, two more; and the last two from the checkpoint, with all elsewhere. */
static void check_checkpoint(const char *optimizer, const char *precision)
{
    struct setting s = setting_of(optimizer, precision), later = s;
    char folder[700], again[700];
    later.param = "cpu";
    later.state = "nvme";
    struct zinf_config *config = configure(&s), *later_config = configure(&later);
    struct zinf_trainer *t = open_trainer(&s, config, model);
    struct zinf_step_result a, b;
    for (uint64_t step = 0; t && step < 2; step++)
        CHECK(!next_step(t, &s, step, &a));
    if (!t)
        return;
    save_checkpoint(t, "first", folder);
    struct zinf_trainer *u = open_trainer(&later, later_config, folder);
    if (!u)
        return;
    load_checkpoint(u, folder);
    save_checkpoint(u, "second", again);
    CHECKF(same_checkpoints(folder, again, t->setup.dtype, setup_n_moments(&t->setup)),
           "%s %s: a checkpoint of a checkpoint is another", word(optimizer, "AdamW"),
           word(precision, ""));
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
    static const char *const precisions[] = {NULL, bf16};
    take_fixture("llama_b");
    for (int o = 0; o < 3; o++)
        for (int p = 0; p < 2; p++)
            check_checkpoint(optimizers[o], precisions[p]);
    take_fixture("qwen3_a");
    for (int o = 0; o < 3; o++)
        check_checkpoint(optimizers[o], bf16);
    take_fixture("mixtral_a");
    check_checkpoint(NULL, bf16);
}

/* ---- frozen units ---- */

static void read_bias(const char *folder, float bias[8])
{
    struct zinf_tensors *file = NULL;
    CHECKF(!zinf_tensors_open(&file, folder), "%s", zinf_error());
    const struct zinf_tensor_info *info =
        file ? zinf_tensors_find(file, "model.layers.1.mlp.gate.e_score_correction_bias") : NULL;
    CHECK(info && info->dtype == ZINF_FILE_F32 && info->n_elems == 8);
    CHECK(info && !zinf_tensors_read(file, info, 0, 8, bias));
    zinf_tensors_close(file);
}

/* What a choice of experts is biased by stays as the file has it, in a training of 16 bits too. */
static void test_a_frozen_bias_keeps_its_bits(void)
{
    struct setting s = setting_of(NULL, bf16);
    struct zinf_step_result r;
    float before[8], after[8];
    char folder[700];
    take_fixture("glm4_moe_a");
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, model);
    if (!t)
        return;
    CHECK(!next_step(t, &s, 0, &r));
    save_checkpoint(t, "biased", folder);
    read_bias(model, before);
    read_bias(folder, after);
    CHECK(!memcmp(before, after, sizeof before));
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* The block's tensors: how many the file has, of how many. */
static uint64_t count_named(const char *path, const char *part, uint64_t *all)
{
    struct zinf_tensors *file = NULL;
    uint64_t n = 0;
    CHECKF(!zinf_tensors_open(&file, path), "%s", zinf_error());
    *all = zinf_tensors_count(file);
    for (uint64_t i = 0; i < *all; i++)
        n += strstr(zinf_tensors_at(file, i)->name, part) != NULL;
    zinf_tensors_close(file);
    return n;
}

/* As a model would have it whose first block is frozen; graphs are read-only to all others. */
static void freeze(struct zinf_trainer *t, const char *name)
{
    for (uint32_t u = 0; u < t->setup.n_units; u++)
        if (!strcmp(t->setup.graph->units[u].name, name))
            ((struct zinf_unit *)(uintptr_t)&t->setup.graph->units[u])->trained = false;
}

static void test_frozen_units_are_parameters(void)
{
    static const char *const parts[] = {"master", "moment1", "moment2"};
    static const char block[] = "layers.0.";
    struct setting s = setting_of(NULL, bf16);
    struct zinf_config *config = configure(&s);
    char folder[700], path[800], exported[600];
    uint64_t in_model, all, n;
    take_fixture("llama_b");
    struct zinf_trainer *t = open_trainer(&s, config, model);
    struct zinf_step_result r;
    CHECK(!next_step(t, &s, 0, &r));
    freeze(t, "block.0");
    save_checkpoint(t, "frozen", folder);
    in_model = count_named(folder, block, &all);
    CHECK(in_model > 8 && all > 2 * in_model);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/optimizer/%s.safetensors", folder, parts[i]);
        CHECKF(!count_named(path, block, &n) && n == all - in_model, "%s has %llu of %llu",
               parts[i], (unsigned long long)n, (unsigned long long)all);
    }
    load_checkpoint(t, folder);
    struct zinf_export_options options = {
        .checkpoint = folder, .output = in_work(exported, "exported"), .dtype = ZINF_DTYPE_F32};
    CHECKF(!zinf_checkpoint_export(&options), "%s", zinf_error());
    CHECK(count_named(exported, block, &n) == in_model && n == all);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* ---- fresh weights ---- */

/* A folder of fresh weights and a trainer's own, cut into units as that needs. */
static void check_fresh(const char *optimizer)
{
    struct setting s = setting_of(optimizer, NULL);
    struct zinf_config *config = configure(&s);
    struct zinf_trainer_options options = trainer_options(&s, config);
    struct zinf_trainer *t = NULL;
    struct zinf_model *shape = NULL;
    char written[600], begun[600];
    CHECK(!zinf_model_open(&shape, model));
    CHECKF(!zinf_model_write_new(zinf_model_config(shape), ZINF_DTYPE_F32, 7,
                                 in_work(written, "written")),
           "%s", zinf_error());
    options.init = true;
    options.seed = 7;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    CHECKF(t && !zinf_trainer_save(t, in_work(begun, "begun")), "%s", zinf_error());
    CHECK(same_weights(written, begun));
    zinf_trainer_destroy(t);
    zinf_model_close(shape);
    zinf_config_destroy(config);
}

static void test_fresh_weights_do_not_depend_on_units(void)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        take_fixture(families[i]);
        check_fresh(NULL);
        check_fresh(adafactor);
    }
}

int main(void)
{
    begin_fixtures("families");
    TAP_RUN(test_a_frozen_bias_keeps_its_bits);
    TAP_RUN(test_placements);
    TAP_RUN(test_checkpoints_go_on);
    TAP_RUN(test_frozen_units_are_parameters);
    TAP_RUN(test_fresh_weights_do_not_depend_on_units);
    remove_work();
    return tap_done();
}
