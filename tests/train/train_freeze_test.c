/*
 * Training parts of a model: what is frozen by patterns keeps its bits, has no gradient and no
 * state, and gradients of the rest are those of the whole model; tensors with rates of their own;
 * all of it with the same bits wherever things live. What cannot be meant is refused by name.
 */
#include "saved.h"
#include "train/setup_rates.h"

#define FREEZE(list) ", \"freeze\": [" list "]"
#define RATES(list) ", \"learning_rates\": [" list "]"
/* A block frozen, a block in parts, tables and norms. */
static const char parts[] = FREEZE("\"*.wpe.*\", \"*.h.0.*\", \"!*.h.0.ln_1.*\", \"*.mlp.c_fc.*\", "
                                   "\"*.h.1.attn.c_attn.bias\"");

static const char rates[] =
    RATES("{\"pattern\": \"*.bias\", \"scale\": 3, \"weight_decay\": 0.2}, "
          "{\"pattern\": \"*.ln_?.weight\", \"lr\": 5e-4}") ", \"layer_decay\": 0.7";

static void test_placements(void)
{
    take_fixture("gpt2_a");
    check_all_places(setting_with(NULL, parts), parts, 2, true);
    check_all_places(setting_with(bf16, parts), parts, 2, true);
    check_all_places(setting_with(bf16, rates), rates, 2, true);
}

/* ---- what is frozen ---- */

static bool is_frozen(const char *name)
{
    bool in_block = strstr(name, "h.0.") && !strstr(name, "h.0.ln_1.");
    return in_block || strstr(name, "wpe.") || strstr(name, "mlp.c_fc.") ||
           strstr(name, "h.1.attn.c_attn.bias");
}

static bool same_tensor(const struct zinf_tensors *a, const struct zinf_tensors *b,
                        const struct zinf_tensor_info *info)
{
    const struct zinf_tensor_info *other = zinf_tensors_find(b, info->name);
    float *x = malloc(info->n_elems * sizeof *x), *y = malloc(info->n_elems * sizeof *y);
    CHECK(other && !zinf_tensors_read_f32(a, info, 0, info->n_elems, x));
    CHECK(other && !zinf_tensors_read_f32(b, other, 0, info->n_elems, y));
    bool same = !memcmp(x, y, info->n_elems * sizeof *x);
    free(x);
    free(y);
    return same;
}

static void test_frozen_tensors_keep_their_bits(void)
{
    struct setting s = setting_with(NULL, parts);
    struct zinf_tensors *before = NULL, *after = NULL;
    struct outcome out;
    uint64_t n = 0;
    take_fixture("gpt2_a");
    run(&s, "parts", &out);
    CHECKF(!zinf_tensors_open(&before, model), "%s", zinf_error());
    CHECKF(!zinf_tensors_open(&after, out.folder), "%s", zinf_error());
    for (uint64_t i = 0; before && after && i < zinf_tensors_count(before); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(before, i);
        CHECKF(same_tensor(before, after, info) == is_frozen(info->name), "%s", info->name);
        n += is_frozen(info->name);
    }
    CHECK(n > 10);
    zinf_tensors_close(before);
    zinf_tensors_close(after);
}

static void test_frozen_units_have_no_state(void)
{
    struct setting s = setting_with(bf16, parts);
    s.param = s.state = "nvme";
    take_fixture("gpt2_a");
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, model);
    uint32_t frozen = 0, companions = 0;
    for (uint32_t u = 0; t && u < t->setup.n_units; u++) {
        bool is_trained = unit_trains(&t->setup, u);
        frozen += !is_trained;
        companions += !strncmp(t->setup.graph->units[u].name, "trained.", 8);
        CHECK((setup_unit_state_bytes(&t->setup, u) > 0) == is_trained);
        CHECK(is_trained || t->plan.homes[u].param == ZINF_TIER_DRIVE);
    }
    CHECK(frozen >= 3 && companions >= 2);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static bool is_of_layer_0(const char *name)
{
    return strstr(name, ".0.");
}

/* Of the tensors that are trained, those of the whole model. */
static void check_gradients(const char *fixture, const char *extra, bool (*frozen)(const char *))
{
    struct setting s = setting_with(NULL, extra);
    char paths[2][600];
    int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    struct zinf_tensors *files[2] = {NULL};
    take_fixture(fixture);
    draw_tokens(&s, 7, ids, targets);
    for (int whole = 0; whole < 2; whole++) {
        double loss, norm;
        s.extra = whole ? NULL : extra;
        struct zinf_config *config = configure(&s);
        struct zinf_trainer_options options = trainer_options(&s, config);
        struct zinf_trainer *t = NULL;
        options.mode = ZINF_TRAINER_GRADIENTS;
        CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
        CHECK(t && !zinf_trainer_gradients(t, TOKENS(ids, targets), &loss, &norm));
        in_work(paths[whole], whole ? "whole.safetensors" : "parts.safetensors");
        CHECK(t && !zinf_trainer_save_gradients(t, paths[whole]));
        CHECK(!zinf_tensors_open(&files[whole], paths[whole]));
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
    }
    for (uint64_t i = 0; files[0] && files[1] && i < zinf_tensors_count(files[1]); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(files[1], i);
        bool has = zinf_tensors_find(files[0], info->name);
        CHECKF(has == !frozen(info->name), "%s: %s", fixture, info->name);
        CHECKF(!has || same_tensor(files[1], files[0], info), "%s: %s differs", fixture,
               info->name);
    }
    /* Nor has what a model never trains: what experts' scores are biased by, a block's scale. */
    for (uint64_t i = 0; files[0] && files[1] && i < zinf_tensors_count(files[0]); i++) {
        const char *name = zinf_tensors_at(files[0], i)->name;
        CHECKF(zinf_tensors_find(files[1], name), "%s: %s is trained beside frozen tensors alone",
               fixture, name);
    }
    zinf_tensors_close(files[0]);
    zinf_tensors_close(files[1]);
}

static void test_gradients(void)
{
    static const char *const constants[] = {"kimi_k2_a", "glm4_moe_a", "nemotron_h_c",
                                            "gemma4_text_a", "apertus_a"};
    check_gradients("gpt2_a", parts, is_frozen);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        check_gradients(constants[i], FREEZE("\"*.0.*\""), is_of_layer_0);
}

/* ---- rates ---- */

/* All rates times two are the rate of the configuration times two, and so is that of all as lr. */
static void check_rates_of_all(const char *type)
{
    static const char *const extras[] = {NULL, RATES("{\"pattern\": \"*\", \"scale\": 2}"),
                                         RATES("{\"pattern\": \"*\", \"lr\": 2e-3}")};
    struct outcome out[3];
    take_fixture("llama_b");
    for (int i = 0; i < 3; i++) {
        char optimizer[160];
        snprintf(optimizer, sizeof optimizer,
                 "{\"type\": \"%s\", \"params\": {\"lr\": %s, \"weight_decay\": 0.1}}", type,
                 i ? "1e-3" : "2e-3");
        struct setting s = setting_of(optimizer, NULL);
        s.extra = extras[i];
        run(&s, i ? "scaled" : "plain", &out[i]);
        if (i)
            check_same(&out[0], &out[i], extras[i]);
    }
}

static void test_rates_of_all(void)
{
    check_rates_of_all("AdamW");
    check_rates_of_all("AdamW8bit");
}

static double rate_of(const struct zinf_trainer *t, const char *name)
{
    const struct zinf_graph *g = t->setup.graph;
    for (uint32_t u = 0; u < g->n_units; u++)
        for (uint32_t i = 0; i < g->units[u].n_tensors; i++)
            if (!strcmp(g->units[u].tensors[i].pieces[0].name, name))
                return t->setup.rates[u][i].scale;
    return -1;
}

static void test_layer_decay(void)
{
    struct setting s = setting_with(
        NULL, ", \"layer_decay\": 0.5" RATES("{\"pattern\": \"*.h.0.ln_1.bias\", \"scale\": 3}"));
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 3, .hidden = 16, .heads = 2, .vocab = 61, .context = 32};
    make_model(model, "three", &shape, 11);
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, model);
    if (t) {
        CHECK(rate_of(t, "wte.weight") == 0.0625 && rate_of(t, "wpe.weight") == 0.0625);
        CHECK(rate_of(t, "h.0.ln_1.weight") == 0.125 && rate_of(t, "h.0.ln_1.bias") == 0.375);
        CHECK(rate_of(t, "h.2.ln_1.weight") == 0.5 && rate_of(t, "ln_f.weight") == 1);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* ---- checkpoints, refusals ---- */

static void test_checkpoints_go_on(void)
{
    struct setting s = setting_with(bf16, parts), later = s;
    char folder[700];
    struct zinf_step_result a, b;
    later.param = "cpu";
    later.state = "nvme";
    take_fixture("gpt2_a");
    struct zinf_config *config = configure(&s), *later_config = configure(&later);
    struct zinf_trainer *t = open_trainer(&s, config, model), *u = NULL;
    for (uint64_t step = 0; t && step < 2; step++)
        CHECK(!next_step(t, &s, step, &a));
    if (t)
        save_checkpoint(t, "half", folder);
    /* whose folder has what is frozen, too */
    u = open_trainer(&later, later_config, folder);
    if (u)
        load_checkpoint(u, folder);
    for (uint64_t step = 2; t && u && step < 4; step++) {
        CHECK(!next_step(t, &s, step, &a) && !next_step(u, &later, step, &b));
        CHECKF(a.loss == b.loss && a.grad_norm == b.grad_norm, "loss %.17g, not %.17g", b.loss,
               a.loss);
    }
    zinf_trainer_destroy(t);
    zinf_trainer_destroy(u);
    zinf_config_destroy(config);
    zinf_config_destroy(later_config);
}

static void check_refused(const char *optimizer, const char *extra, const char *words)
{
    struct setting s = setting_of(optimizer, NULL);
    s.extra = extra;
    struct zinf_config *config = configure(&s);
    struct zinf_trainer_options options = trainer_options(&s, config);
    struct zinf_trainer *t = NULL;
    int code = zinf_trainer_create(&t, &options);
    CHECKF(code == -EINVAL || code == -ENOTSUP, "%s: %d", extra, code);
    CHECKF(strstr(zinf_error(), words), "%s: %s", extra, zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_refused_by_name(void)
{
    take_fixture("llama_b");
    check_refused(NULL, FREEZE("\"*.nothing\""), "\"*.nothing\" matches the name of no tensor");
    check_refused(NULL, FREEZE("\"*\""), "leaves nothing to train");
    check_refused(NULL, FREEZE("3"), "a list of patterns");
    check_refused(NULL, FREEZE("\"*.q_proj.*\""), "one tensor with it here");
    check_refused(NULL, FREEZE("\"*norm*\"") ", \"adapter\": {\"r\": 2}", "leave out one");
    check_refused(NULL, RATES("{\"pattern\": \"*.nothing\", \"scale\": 2}"), "no tensor that is");
    check_refused(NULL, RATES("{\"pattern\": \"*\"}"), "must be {\"pattern\"");
    check_refused(NULL, RATES("{\"pattern\": \"*\", \"lr\": 1, \"scale\": 2}"), "must be");
    check_refused(NULL, RATES("{\"pattern\": \"*\", \"rate\": 1}"), "must be");
    check_refused(NULL, RATES("[{\"pattern\": \"*\", \"scale\": 2}]"), "must be");
    check_refused(NULL, RATES("\"*\""), "must be");
    check_refused(NULL, RATES("{\"pattern\": \"*.q_proj.*\", \"scale\": 2}"), "have one rate");
    check_refused(adamw_8bit, RATES("{\"pattern\": \"*layernorm*\", \"scale\": 2}"),
                  "share a block of 8-bit moments");
}

int main(void)
{
    begin_fixtures("freeze");
    TAP_RUN(test_placements);
    TAP_RUN(test_frozen_tensors_keep_their_bits);
    TAP_RUN(test_frozen_units_have_no_state);
    TAP_RUN(test_gradients);
    TAP_RUN(test_rates_of_all);
    TAP_RUN(test_layer_decay);
    TAP_RUN(test_checkpoints_go_on);
    TAP_RUN(test_refused_by_name);
    remove_work();
    return tap_done();
}
