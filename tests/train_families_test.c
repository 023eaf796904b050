/*
 * Families whose files hold a unit's tensors in several parts (q, k, v; gate and up), trained from
 * the fixtures: wherever things live the bits are the same, by every optimizer; a checkpoint holds
 * all of the state, whatever its form, and nothing of what is not trained; a model of fresh weights
 * is the same whether a trainer or a folder begins with them; ranks load and save their slices.
 */
#include "train/save/checkpoint.h"
#include "train/save/output.h"
#include "trainings.h"

static const char *const families[] = {"llama_b", "mistral_a", "qwen2_a", "qwen3_a"};
static const char *const places[] = {"none", "cpu", "nvme"};

static const char adamw_8bit[] = "{\"type\": \"AdamW8bit\", \"params\": {\"lr\": 1e-3, "
                                 "\"weight_decay\": 0.1}}";
static const char adafactor[] = "{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-2, "
                                "\"weight_decay\": 0.1}}";
static const char *const optimizers[] = {NULL, adamw_8bit, adafactor};

static void take_fixture(const char *name)
{
    snprintf(model, sizeof model, "%s/tests/fixtures/%s", getenv("SRCDIR"), name);
}

/* ---- placements ---- */

static struct setting setting_of(const char *optimizer, const char *precision)
{
    return (struct setting){.optimizer = optimizer,
                            .precision = precision,
                            .param = "none",
                            .state = "none",
                            .accumulation = 2,
                            .clip = 0.5};
}

static void check_places(const char *family, const char *optimizer, const char *precision, int step)
{
    struct setting s = setting_of(optimizer, precision);
    struct outcome reference, other;
    char what[256];
    run(&s, "reference", &reference);
    for (int i = 0; i < 9; i += step) {
        s.param = places[i / 3];
        s.state = places[i % 3];
        snprintf(what, sizeof what, "%s, %s %s: parameters %s, state %s", family,
                 word(optimizer, "AdamW"), word(precision, ""), s.param, s.state);
        run(&s, "other", &other);
        check_same(&reference, &other, what);
    }
}

static void test_placements(void)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        take_fixture(families[i]);
        check_places(families[i], NULL, NULL, 1);
        check_places(families[i], NULL, bf16, 1);
        check_places(families[i], adamw_8bit, i % 2 ? bf16 : NULL, 4);
        check_places(families[i], adafactor, i % 2 ? NULL : bf16, 4);
    }
}

/* ---- checkpoints ---- */

static struct zinf_trainer *open_trainer(const struct setting *s, const struct zinf_config *config,
                                         const char *path)
{
    struct zinf_trainer_options options = trainer_options(s, config);
    struct zinf_trainer *t = NULL;
    options.model_path = path;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
}

static void save_checkpoint(struct zinf_trainer *t, const char *name, char folder[700])
{
    struct checkpoint c = {.seed = 5};
    char output[600];
    zinf_make_dirs(in_work(output, name));
    CHECKF(!checkpoint_save(t, &c, output, 0), "%s", zinf_error());
    snprintf(folder, 700, "%s/checkpoint-%llu", output, (unsigned long long)t->step);
    checkpoint_fini(&c);
}

static void load_checkpoint(struct zinf_trainer *t, const char *folder)
{
    struct checkpoint c;
    int code = checkpoint_open(&c, folder);
    if (!code)
        code = checkpoint_load(&c, folder, t);
    CHECKF(!code, "%s", zinf_error());
    checkpoint_fini(&c);
}

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
}

/* ---- frozen units ---- */

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

/* ---- ranks ---- */

enum { MOST_RANKS = 3, MOST_ELEMS = 4096 };

struct path {
    char at[800];
};

/* Every number of the file is that of one rank's; the others have zero there. */
static void check_slices(const char *whole, const struct path *ranks, int world)
{
    static float wanted[MOST_ELEMS], sum[MOST_ELEMS], part[MOST_ELEMS];
    struct zinf_tensors *all = NULL, *one = NULL;
    int n_shared = 0;
    CHECKF(!zinf_tensors_open(&all, whole), "%s", zinf_error());
    for (uint64_t i = 0; all && i < zinf_tensors_count(all); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(all, i);
        uint64_t n = info->n_elems, wrong = 0, doubled = 0, n_holders = 0;
        CHECK(n <= MOST_ELEMS && !zinf_tensors_read_f32(all, info, 0, n, wanted));
        memset(sum, 0, sizeof sum);
        for (int r = 0; r < world; r++) {
            CHECKF(!zinf_tensors_open(&one, ranks[r].at), "%s", zinf_error());
            CHECK(!zinf_tensors_read_f32(one, zinf_tensors_find(one, info->name), 0, n, part));
            uint64_t held = 0;
            for (uint64_t e = 0; e < n; e++) {
                doubled += sum[e] != 0 && part[e] != 0;
                held += part[e] != 0;
                sum[e] += part[e];
            }
            n_holders += held > 0;
            zinf_tensors_close(one);
        }
        for (uint64_t e = 0; e < n; e++)
            wrong += sum[e] != wanted[e];
        n_shared += n_holders > 1;
        CHECKF(!wrong && !doubled, "%s: %s is not that of %d ranks", whole, info->name, world);
    }
    CHECKF(n_shared > 0, "%s: no tensor has parts of several of %d ranks", whole, world);
    zinf_tensors_close(all);
}

static struct zinf_trainer *open_rank(const struct setting *s, const struct zinf_config *config,
                                      enum zinf_trainer_mode mode, const char *path, int rank,
                                      int world)
{
    struct zinf_trainer_options options = trainer_options(s, config);
    struct zinf_trainer *t = NULL;
    options.mode = mode;
    options.model_path = path;
    options.rank = (uint32_t)rank;
    options.world = (uint32_t)world;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
}

/* Each loads the checkpoint of one that had it all, and saves its own. */
static void check_ranks_save(const struct setting *s, const char *whole, int world)
{
    static const char *const files[] = {"optimizer/master.safetensors",
                                        "optimizer/moment1.safetensors",
                                        "optimizer/moment2.safetensors"};
    struct zinf_config *config = configure(s);
    struct path folders[MOST_RANKS], paths[MOST_RANKS];
    char path[800], name[32];
    for (int r = 0; config && r < world; r++) {
        struct zinf_trainer *t = open_rank(s, config, ZINF_TRAINER_TRAIN, whole, r, world);
        if (!t)
            return;
        load_checkpoint(t, whole);
        snprintf(name, sizeof name, "rank%d", r);
        save_checkpoint(t, name, folders[r].at);
        CHECKF(same_weights(whole, folders[r].at), "rank %d of %d has other parameters", r, world);
        zinf_trainer_destroy(t);
    }
    for (int f = s->precision == NULL; f < 3; f++) {
        for (int r = 0; r < world; r++)
            snprintf(paths[r].at, sizeof paths[r].at, "%.700s/%s", folders[r].at, files[f]);
        snprintf(path, sizeof path, "%.700s/%s", whole, files[f]);
        check_slices(path, paths, world);
    }
    zinf_config_destroy(config);
}

static void save_whole(const struct setting *s, char folder[700])
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = open_trainer(s, config, model);
    struct zinf_step_result r;
    for (uint64_t step = 0; t && step < 2; step++)
        CHECK(!next_step(t, s, step, &r));
    if (t)
        save_checkpoint(t, "whole", folder);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_ranks_save_their_slices(void)
{
    take_fixture("llama_b");
    for (int i = 0; i < 4; i++) {
        char folder[700] = "";
        struct setting s = setting_of(optimizers[i / 2], i % 2 ? bf16 : NULL);
        save_whole(&s, folder);
        for (int world = 2; world <= MOST_RANKS; world++) {
            s.param = places[(i + world) % 3];
            s.state = places[(i + 2 * world) % 3];
            check_ranks_save(&s, folder, world);
        }
    }
}

static void save_gradients(const struct setting *s, int rank, int world, struct path *path)
{
    static int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = open_rank(s, config, ZINF_TRAINER_GRADIENTS, model, rank, world);
    double loss, norm;
    snprintf(path->at, sizeof path->at, "%s/gradients-%d-%d.safetensors", work, rank, world);
    draw_tokens(s, 0, ids, targets);
    CHECKF(!zinf_trainer_gradients(t, TOKENS(ids, targets), &loss, &norm), "%s", zinf_error());
    CHECKF(!zinf_trainer_save_gradients(t, path->at), "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_gradients_of_ranks(void)
{
    struct setting s = setting_of(NULL, NULL);
    struct path whole, paths[MOST_RANKS];
    s.accumulation = 1;
    take_fixture("qwen3_a");
    save_gradients(&s, 0, 1, &whole);
    for (int world = 2; world <= MOST_RANKS; world++) {
        for (int r = 0; r < world; r++)
            save_gradients(&s, r, world, &paths[r]);
        check_slices(whole.at, paths, world);
    }
}

int main(void)
{
    begin_trainings("families", &(struct trainings){.shape = {.arch = "llama",
                                                              .layers = 1,
                                                              .hidden = 16,
                                                              .heads = 2,
                                                              .vocab = 61,
                                                              .context = 32},
                                                    .steps = 3,
                                                    .seq = 16,
                                                    .batch = 2,
                                                    .sub_group = 4096});
    TAP_RUN(test_placements);
    TAP_RUN(test_checkpoints_go_on);
    TAP_RUN(test_frozen_units_are_parameters);
    TAP_RUN(test_fresh_weights_do_not_depend_on_units);
    TAP_RUN(test_ranks_save_their_slices);
    TAP_RUN(test_gradients_of_ranks);
    remove_work();
    return tap_done();
}
