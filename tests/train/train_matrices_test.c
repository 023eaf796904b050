/*
 * Optimizers of whole matrices, as optimizer.type: losses, norms and weights have the same bits
 * wherever state and parameters are, for any number of threads, under every schedule, also when
 * steps clip or overflow, and over ranks and seats. What PyTorch computes is train_fixtures_test's,
 * going on from checkpoints checkpoint_test's.
 */
#include "trained_ranks.h"

#include "train/setup_rates.h"

enum { STEPS = 5, MICROS = 4 };

#define OPTIMIZER(type, params)                                                                    \
    "{\"type\": \"" type "\", \"params\": {\"weight_decay\": 0.1" params "}}"

static const char *const optimizers[] = {
    OPTIMIZER("Muon", ", \"muon_lr\": 0.02, \"adam_lr\": 0.002"),
    OPTIMIZER("Muon", ", \"lr\": 0.002, \"adjust_lr_fn\": \"match_rms_adamw\""),
    OPTIMIZER("NorMuon", ", \"lr\": 0.002"),
    OPTIMIZER("NorMuon", ", \"lr\": 0.02, \"adam_lr\": 0.002, \"nesterov\": true, "
                         "\"adjust_lr_fn\": \"original\""),
    OPTIMIZER("GaLoreAdamW", ", \"rank\": 5, \"update_proj_gap\": 2"),
    OPTIMIZER("GaLoreAdamW", ", \"rank\": 64, \"update_proj_gap\": 3, \"proj_type\": \"left\""),
    OPTIMIZER("APOLLO", ", \"rank\": 5, \"update_proj_gap\": 2, \"proj_type\": \"reverse_std\""),
    OPTIMIZER("APOLLO-Mini", ", \"update_proj_gap\": 3"),
};
enum { N_OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

static const char fp16[] = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 20, "
                           "\"hysteresis\": 1, \"loss_scale_window\": 2},";
static const char *const precisions[] = {NULL, bf16, fp16};

static void check_places(int number, const char *arch)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    struct setting s = {.optimizer = optimizers[number],
                        .precision = precisions[number % 3],
                        .param = "none",
                        .state = "none",
                        .accumulation = 2,
                        .clip = 1,
                        .sparse = true};
    struct outcome reference, other;
    char what[400];
    trainings.shape.arch = arch;
    make_model(model, arch, &trainings.shape, 11);
    run(&s, "reference", &reference);
    CHECK(reference.loss[0] > 6 && reference.loss[STEPS - 1] != reference.loss[0]);
    for (int i = 1; i < 9; i++) {
        s.param = places[i / 3];
        s.state = places[i % 3];
        s.copies = i == 3 || i == 4;
        s.threads = 1 + i % 3;
        s.schedule = schedules[i % 4];
        s.extra = i == 8 ? ", \"pack\": \"state\"" : NULL;
        snprintf(what, sizeof what, "%s: parameters %s, state %s, %d threads", s.optimizer, s.param,
                 s.state, s.threads);
        run(&s, "other", &other);
        check_same(&reference, &other, what);
    }
    if (s.precision == fp16)
        CHECKF(other.n_skipped > 0 && other.n_skipped < STEPS, "%d overflow", other.n_skipped);
}

static void test_places(void)
{
    for (int i = 0; i < N_OPTIMIZERS; i++)
        check_places(i, i % 2 ? "llama" : "gpt2");
}

/* Each says other numbers: no row is another's by mistake. */
static void test_optimizers_differ(void)
{
    struct outcome all[N_OPTIMIZERS];
    trainings.shape.arch = "gpt2";
    make_model(model, "differ", &trainings.shape, 11);
    for (int i = 0; i < N_OPTIMIZERS; i++) {
        struct setting s = {.optimizer = optimizers[i], .param = "none", .state = "none"};
        run(&s, "one", &all[i]);
        for (int k = 0; k < i; k++)
            CHECKF(all[i].loss[STEPS - 1] != all[k].loss[STEPS - 1], "%d is %d", i, k);
    }
}

static const struct split {
    uint32_t processes, seats;
} splits[] = {{1, 2}, {2, 1}, {1, 4}, {2, 2}, {4, 1}};

static void check_splits(int number, const char *arch)
{
    static const char *const states[] = {"cpu", "nvme"};
    struct outcome one, some;
    char name[80];
    trainings.shape.arch = arch;
    trainings.shape.hidden = number % 4 ? 40 : 128; /* of which tensors are cut in two */
    make_model(model, arch, &trainings.shape, 11);
    struct setting s = {.optimizer = optimizers[number],
                        .precision = precisions[number % 2],
                        .param = "none",
                        .state = states[number % 2],
                        .stage = 1 + (number / 2 + number) % 3,
                        .order = "layer-major",
                        .extra = ", \"gradient_sum\": \"tree\", \"dropout\": 0.1",
                        .accumulation = MICROS,
                        .clip = 0.7};
    snprintf(name, sizeof name, "%d-1x1", number);
    run(&s, name, &one);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        const struct split *split = &splits[i];
        s.accumulation = MICROS / (int)(split->processes * split->seats);
        snprintf(name, sizeof name, "%d-%ux%u", number, split->processes, split->seats);
        run_seats(&s, split->processes, split->seats, name, &some);
        check_same(&one, &some, name);
    }
}

static void test_ranks_and_seats(void)
{
    for (int i = 0; i < N_OPTIMIZERS; i++)
        check_splits(i, i % 2 ? "gpt2" : "llama");
}

/* ---- owners ---- */

static int n_cut; /* tensors that have matrices of two ranks */

static void check_owners(const struct setup *s, uint32_t world, const char *what)
{
    double flops[MOST_RANKS] = {0}, all = 0, most = 0;
    for (uint32_t u = 0; u < s->n_units; u++)
        for (uint32_t i = 0; i < s->graph->units[u].n_tensors; i++) {
            const struct zinf_tensor *t = &s->graph->units[u].tensors[i];
            const struct optimizer *of = setup_optimizer_of(s, u, i);
            for (uint32_t k = 0; of->rule->matrix_work && k < t->n_pieces; k++) {
                const uint32_t owner = setup_matrix_owner(s, u, i, k);
                const uint64_t slice = s->layout.units[u].slice_elems;
                const uint64_t first = t->offset + t->pieces[k].rows.flat_first * t->cols;
                const uint64_t end = first + rule_matrix_rows(&t->pieces[k]) * t->cols;
                CHECKF(owner < world && first >= owner * slice && end <= (owner + 1) * slice,
                       "%s: %s is cut", what, t->pieces[k].name);
                n_cut += owner != setup_matrix_owner(s, u, i, 0);
                if (!rule_leads(&s->graph->units[u], i, k))
                    continue;
                const struct matrix_shape shape = rule_matrix_shape(t, &t->pieces[k]);
                flops[owner % MOST_RANKS] += of->rule->matrix_work(of, &shape).flops;
                struct matrix_part part = {0};
                while (rule_next_part(&s->graph->units[u], i, k, &part))
                    CHECKF(setup_matrix_owner(s, u, part.tensor, part.piece) == owner,
                           "%s: parts of %s have several owners", what, t->pieces[k].name);
            }
        }
    for (uint32_t r = 0; r < world; r++) {
        all += flops[r];
        most = flops[r] > most ? flops[r] : most;
    }
    CHECKF(most <= 1.25 * all / world, "%s: %g operations of %g", what, most, all);
}

/* Over 15 layers no rank has more than a quarter beyond its share of products; also where each
 * matrix is four parts, which are one rank's. */
static void find_owners(const char *extra)
{
    static const char *const archs[] = {"gpt2", "llama"};
    const struct zinf_model_shape shape = trainings.shape;
    trainings.shape.hidden = 128;
    trainings.shape.layers = 15;
    for (int i = 0; i < 2; i++) {
        trainings.shape.arch = archs[i];
        make_model(model, "owners", &trainings.shape, 11);
        for (uint32_t world = 2; world <= 5; world++) {
            struct zinf_net *net = NULL;
            struct setup s;
            char what[60];
            snprintf(what, sizeof what, "%s%s, %u ranks", archs[i], extra, world);
            struct setting with = {.optimizer = optimizers[0],
                                   .param = "cpu",
                                   .state = "cpu",
                                   .stage = 3,
                                   .order = "layer-major",
                                   .extra = extra,
                                   .accumulation = 2};
            struct zinf_config *config = configure_of(&with, world);
            struct zinf_trainer_options options = trainer_options(&with, config);
            CHECKF(!zinf_net_describe(&net, world, world, 1), "%s", zinf_error());
            options.net = net;
            int code = setup_init(&s, &options, true);
            CHECKF(!code, "%s: %s", what, zinf_error());
            if (!code)
                check_owners(&s, world, what);
            setup_fini(&s);
            zinf_net_close(net);
            zinf_config_destroy(config);
        }
    }
    trainings.shape = shape;
}

static void test_owners(void)
{
    n_cut = 0;
    find_owners("");
    CHECK(n_cut > 0);
    n_cut = 0;
    find_owners(", \"tensor_parts\": 4");
    CHECKF(n_cut == 0, "%d matrices that share a tensor have other owners", n_cut);
}

/* Sequences in chunks have the bits of any number of ranks without a key that asks for them: one
 * rank has its tensors at the blocks of squares where several have them. */
static void test_places_of_chunks(void)
{
    struct setting with = {.optimizer = optimizers[0],
                           .param = "cpu",
                           .state = "cpu",
                           .extra = ", \"sequence_chunk\": 4",
                           .accumulation = 2};
    struct setup s;
    trainings.shape.arch = "gpt2";
    make_model(model, "chunks", &trainings.shape, 11);
    struct zinf_config *config = configure(&with);
    struct zinf_trainer_options options = trainer_options(&with, config);
    int code = setup_init(&s, &options, true);
    CHECKF(!code && s.exact, "%s", zinf_error());
    for (uint32_t u = 0; !code && u < s.n_units; u++)
        for (uint32_t i = 0; i < s.graph->units[u].n_tensors; i++) {
            const struct zinf_tensor *t = &s.graph->units[u].tensors[i];
            if (setup_optimizer_of(&s, u, i)->rule->grain == GRAIN_MATRICES)
                CHECKF(t->offset % ZINF_SUM_BLOCK == 0, "%s begins at %llu", t->pieces[0].name,
                       (unsigned long long)t->offset);
        }
    setup_fini(&s);
    zinf_config_destroy(config);
}

int main(void)
{
    begin_trainings("matrices", &(struct trainings){.shape = {.arch = "gpt2",
                                                              .layers = 2,
                                                              .hidden = 40,
                                                              .heads = 4,
                                                              .vocab = 1000,
                                                              .context = 32},
                                                    .steps = STEPS,
                                                    .seq = 16,
                                                    .batch = 1,
                                                    .sub_group = 8192});
    TAP_RUN(test_owners);
    TAP_RUN(test_places_of_chunks);
    TAP_RUN(test_places);
    TAP_RUN(test_optimizers_differ);
    TAP_RUN(test_ranks_and_seats);
    remove_work();
    return tap_done();
}
