/*
 * Training what PEFT has beside plain low-rank adapters: magnitudes (DoRA), biases, whole modules.
 * Wherever things live the bits are the same; a fresh adapter changes nothing; a checkpoint goes
 * on; quantised bases are adapted so, too.
 */
#include "saved.h"
#include "train/checkpoints.h"

#define ADAPTER(members) ", \"adapter\": {" members "}"
static const char magnitudes[] = ADAPTER("\"r\": 3, \"lora_alpha\": 7, \"use_dora\": true");
static const char all_forms[] =
    ADAPTER("\"r\": 3, \"use_dora\": true, \"bias\": \"all\", \"target_modules\": [\"c_attn\"], "
            "\"modules_to_save\": [\"ln_1\", \"wpe\", \"mlp.c_proj\"]");
static const char own_head[] =
    ADAPTER("\"r\": 2, \"target_modules\": [\"q_proj\", \"v_proj\"], \"use_dora\": true, "
            "\"modules_to_save\": [\"embed_tokens\", \"lm_head\"]");
static const char dropped[] =
    ADAPTER("\"r\": 3, \"lora_alpha\": 7, \"use_dora\": true, \"lora_dropout\": 0.25");
static const char dropped_rows[] =
    ADAPTER("\"r\": 2, \"target_modules\": [\"q_proj\", \"v_proj\"], \"use_dora\": true, "
            "\"lora_dropout\": 0.05") ", \"quantize\": \"nf4\"";
static const char quantised[] = ADAPTER("\"r\": 2, \"use_dora\": true") ", \"quantize\": \"nf4\"";

static const struct {
    const char *family, *extra;
} forms[] = {{"llama_b", magnitudes}, {"gpt2_a", all_forms}, {"llama_a", own_head},
             {"phi3_a", quantised},   {"llama_b", dropped},  {"llama_a", dropped_rows}};

static void test_placements(void)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        take_fixture(forms[i].family);
        check_all_places(setting_with(NULL, forms[i].extra), forms[i].family, 4, true);
        check_all_places(setting_with(bf16, forms[i].extra), forms[i].family, 4, true);
    }
}

/* B is zero, magnitudes are norms, copies are the base's: the first loss is the base's. */
static void test_fresh_adapters_change_nothing(void)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct setting s = setting_with(NULL, forms[i].extra);
        struct outcome with, base;
        take_fixture(forms[i].family);
        run(&s, "with", &with);
        s.extra = strstr(forms[i].extra, "quantize") ? ADAPTER("\"r\": 2") ", \"quantize\": \"nf4\""
                                                     : NULL;
        run(&s, "base", &base);
        CHECKF(fabs(with.loss[0] - base.loss[0]) <= 1e-6 * base.loss[0], "%s: %.9g, not %.9g",
               forms[i].family, with.loss[0], base.loss[0]);
        CHECK(with.loss[2] != base.loss[2]);
    }
}

/* Two steps, a checkpoint, two more; and the last two from the checkpoint, with all elsewhere. */
static void test_checkpoints_go_on(void)
{
    struct setting s = setting_with(bf16, all_forms), later = s;
    later.param = "cpu";
    later.state = "nvme";
    later.extra = NULL; /* the checkpoint knows */
    struct zinf_config *config = configure(&s), *later_config = configure(&later);
    struct zinf_trainer_options options = trainer_options(&later, later_config);
    struct zinf_step_result a, b;
    char folder[700];
    take_fixture("gpt2_a");
    struct zinf_trainer *t = open_trainer(&s, config, model), *u = NULL;
    for (uint64_t step = 0; t && step < 2; step++)
        CHECK(!next_step(t, &s, step, &a));
    if (!t)
        return;
    save_checkpoint(t, "half", folder);
    options.adapter = folder;
    CHECKF(!zinf_trainer_create(&u, &options), "%s", zinf_error());
    if (u)
        load_checkpoint(u, folder);
    for (uint64_t step = 2; u && step < 4; step++) {
        CHECK(!next_step(t, &s, step, &a) && !next_step(u, &later, step, &b));
        CHECKF(a.loss == b.loss && a.grad_norm == b.grad_norm, "loss %.17g, not %.17g", b.loss,
               a.loss);
    }
    zinf_trainer_destroy(t);
    zinf_trainer_destroy(u);
    zinf_config_destroy(config);
    zinf_config_destroy(later_config);
}

int main(void)
{
    begin_fixtures("forms");
    TAP_RUN(test_placements);
    TAP_RUN(test_fresh_adapters_change_nothing);
    TAP_RUN(test_checkpoints_go_on);
    remove_work();
    return tap_done();
}
