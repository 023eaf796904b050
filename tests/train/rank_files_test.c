/*
 * What ranks load and save: each its slice of state and gradients, in its place in the tensors of
 * the files, which together are those of the one that has it all.
 */
#include "saved.h"

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
    char path[800], folder[700], name[32];
    for (int r = 0; config && r < world; r++) {
        struct zinf_trainer *t = open_rank(s, config, ZINF_TRAINER_TRAIN, whole, r, world);
        if (!t)
            return;
        load_checkpoint(t, whole);
        snprintf(name, sizeof name, "rank%d", r);
        save_checkpoint(t, name, folder);
        snprintf(folders[r].at, sizeof folders[r].at, "%s", folder);
        CHECKF(same_weights(whole, folder), "rank %d of %d has other parameters", r, world);
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
    begin_fixtures("rank-files");
    TAP_RUN(test_ranks_save_their_slices);
    TAP_RUN(test_gradients_of_ranks);
    remove_work();
    return tap_done();
}
