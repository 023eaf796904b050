/*
 * Optimizers of whole matrices where ranks share these: each matrix is updated once, by one rank,
 * with the bits of one rank that has all parts, at all stages of ZeRO, wherever state is, under
 * every schedule, also when steps clip or overflow. The plan deals matrices evenly, and knows the
 * products and the bytes of these updates.
 */
#include "trained_ranks.h"

#include "train/setup_rates.h"

enum { STEPS = 5, MICROS = 4, PARTS = 4 };

#define OPTIMIZER(type, params)                                                                    \
    "{\"type\": \"" type "\", \"params\": {\"weight_decay\": 0.1" params "}}"

static const char *const optimizers[] = {
    OPTIMIZER("Muon", ", \"muon_lr\": 0.02, \"adam_lr\": 0.002"),
    OPTIMIZER("NorMuon", ", \"lr\": 0.02, \"adam_lr\": 0.002, \"adjust_lr_fn\": \"original\""),
    OPTIMIZER("GaLoreAdamW", ", \"rank\": 5, \"update_proj_gap\": 2"),
    OPTIMIZER("NorMuon", ", \"lr\": 0.002"),
    OPTIMIZER("APOLLO", ", \"rank\": 5, \"update_proj_gap\": 2, \"proj_type\": \"reverse_std\""),
    OPTIMIZER("APOLLO-Mini", ", \"update_proj_gap\": 3"),
};
enum { N_OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

static const char fp16[] = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 20, "
                           "\"hysteresis\": 1, \"loss_scale_window\": 2},";
static const char *const precisions[] = {NULL, bf16, fp16};

static const char *cut_among(uint32_t tensor, const char *more)
{
    static char extra[300];
    snprintf(extra, sizeof extra,
             ", \"gradient_sum\": \"tree\", \"dropout\": 0.1, \"tensor_parts\": %d, "
             "\"mesh\": {\"tensor\": %u}%s",
             PARTS, tensor, more);
    return extra;
}

/* ---- the same bits ---- */

static const struct split {
    uint32_t processes, seats, tensor;
} splits[] = {{1, 2, 2}, {2, 2, 4}, {1, 4, 2}, {2, 1, 2}};

static void check_splits(int number, const char *arch)
{
    static const char *const places[] = {"cpu", "nvme", "none"};
    struct outcome one, some;
    char name[120];
    trainings.shape.arch = arch;
    make_model(model, arch, &trainings.shape, 11);
    struct setting s = {.optimizer = optimizers[number],
                        .precision = precisions[number % 3],
                        .param = "none",
                        .state = "none",
                        .order = "layer-major",
                        .extra = cut_among(1, ""),
                        .accumulation = MICROS,
                        .sparse = true,
                        .clip = 0.7};
    snprintf(name, sizeof name, "%d-1", number);
    run(&s, name, &one);
    if (s.precision == fp16)
        CHECKF(one.n_skipped > 0 && one.n_skipped < STEPS, "%d overflow", one.n_skipped);
    for (int i = 0; i < (int)(sizeof splits / sizeof *splits); i++) {
        const struct split *split = &splits[i];
        const uint32_t ranks = split->processes * split->seats;
        s.sharing = (int)split->tensor;
        s.in_blocks = true;
        s.accumulation = MICROS * (int)split->tensor / (int)ranks;
        s.stage = 1 + (number + i) % 3;
        s.state = places[(number + i) % 3];
        s.schedule = schedules[(number / 2 + i) % 4];
        s.extra = cut_among(split->tensor, i == 2 ? ", \"pack\": \"state\"" : "");
        snprintf(name, sizeof name, "%d-%ux%u-%u", number, split->processes, split->seats,
                 split->tensor);
        run_seats(&s, split->processes, split->seats, name, &some);
        check_same(&one, &some, name);
    }
}

static void test_same_bits(void)
{
    for (int i = 0; i < N_OPTIMIZERS; i++)
        check_splits(i, i % 2 ? "gpt2" : "llama");
}

/* Odd steps have norms above the clip value, even ones have not: updates are made early, and some
 * are taken back, which one rank may know before another. */
static void test_taken_back(void)
{
    struct outcome one, some;
    uint64_t n_redone = 0;
    trainings.steps = 2 * STEPS;
    trainings.shape.arch = "gpt2";
    make_model(model, "back", &trainings.shape, 11);
    for (int number = 0; number < 3; number++) {
        struct setting s = {.optimizer = optimizers[number],
                            .precision = precisions[number],
                            .order = "layer-major",
                            .extra = cut_among(1, ""),
                            .accumulation = MICROS,
                            .sparse = true,
                            .in_blocks = true,
                            .clip = 5};
        run(&s, "back", &one);
        s.schedule = "update-in-backward";
        for (uint32_t ranks = 2; ranks <= 4; ranks *= 2) {
            char name[80];
            s.sharing = 2;
            s.accumulation = MICROS * 2 / (int)ranks;
            s.extra = cut_among(2, "");
            s.delay_us = 2000;
            snprintf(name, sizeof name, "back-%d-%u", number, ranks);
            run_seats(&s, 1, ranks, name, &some);
            check_same(&one, &some, name);
            n_redone += some.n_redone;
        }
    }
    trainings.steps = STEPS;
    CHECKF(n_redone > 0, "%llu steps were taken back", (unsigned long long)n_redone);
}

/* ---- who updates what ---- */

/* Parts of every rank have the same shapes, so what one deals is what all do. */
static void check_dealing(const struct setup *s, const char *what)
{
    const uint32_t ranks = tensor_axis(s)->world;
    double made[MOST_RANKS] = {0}, all = 0, most = 0, planned = 0;
    for (uint32_t u = 0; u < s->n_units; u++) {
        const struct zinf_unit *unit = &s->graph->units[u];
        for (uint32_t i = 0; i < unit->n_tensors; i++) {
            const struct optimizer *of = setup_optimizer_of(s, u, i);
            for (uint32_t k = 0; of->rule->matrix_work && k < unit->tensors[i].n_pieces; k++) {
                const uint32_t updater = setup_matrix_updater(s, u, i, k);
                if (!rule_leads(unit, i, k))
                    continue;
                CHECKF(updater < ranks && setup_unit_meets(s, u), "%s: nobody updates %s", what,
                       unit->tensors[i].pieces[k].name);
                const struct matrix_shape shape =
                    rule_matrix_shape(&unit->tensors[i], &unit->tensors[i].pieces[k]);
                made[updater % MOST_RANKS] += of->rule->matrix_work(of, &shape).flops;
            }
        }
    }
    for (uint32_t r = 0; r < ranks; r++) {
        all += made[r];
        most = made[r] > most ? made[r] : most;
    }
    for (uint32_t g = 0; g < s->layout.n_groups; g++)
        planned += s->group_work[g].flops * data_axis(s)->world;
    CHECKF(most <= 1.2 * all / ranks, "%s: %g operations of %g", what, most, all);
    CHECKF(planned >= most && planned < (data_axis(s)->world > 1 ? 1.75 : 1.4) * all / ranks,
           "%s: %g operations planned of %g", what, planned, all);
}

static void test_dealing(void)
{
    static const char *const archs[] = {"gpt2", "llama"};
    const struct zinf_model_shape shape = trainings.shape;
    trainings.shape.hidden = 128;
    trainings.shape.layers = 15;
    for (int i = 0; i < 4; i++) {
        const uint32_t tensor = i < 2 ? 2 : 4, world = tensor * (1 + (uint32_t)i % 2);
        struct zinf_net *net = NULL;
        struct setup s;
        char what[60];
        trainings.shape.arch = archs[i % 2];
        make_model(model, "dealing", &trainings.shape, 11);
        snprintf(what, sizeof what, "%s, %u ranks, %u share", archs[i % 2], world, tensor);
        struct setting with = {.optimizer = optimizers[0],
                               .param = "cpu",
                               .state = "cpu",
                               .order = "layer-major",
                               .extra = cut_among(tensor, "")};
        struct zinf_config *config = configure_of(&with, world);
        struct zinf_trainer_options options = trainer_options(&with, config);
        CHECKF(!zinf_net_describe(&net, world, world, 1), "%s", zinf_error());
        options.net = net;
        int code = setup_init(&s, &options, true);
        CHECKF(!code, "%s: %s", what, zinf_error());
        if (!code)
            check_dealing(&s, what);
        setup_fini(&s);
        zinf_net_close(net);
        zinf_config_destroy(config);
    }
    trainings.shape = shape;
}

/* ---- products ---- */

enum { TWO = 2 };
static const struct zinf_device_ops *real;
static double made[TWO]; /* flops of fp32 products by rank, which only updates make here */

static double flops_of(const struct zinf_matmul *m)
{
    const bool counts = m->a_dtype == ZINF_DTYPE_F32 && m->b_dtype == ZINF_DTYPE_F32;
    return counts ? (m->symmetric ? 1.0 : 2.0) * (double)m->m * (double)m->n * (double)m->k : 0;
}

static int count_first(struct zinf_queue *q, const struct zinf_matmul *m)
{
    made[0] += flops_of(m);
    return real->matmul(q, m);
}

static int count_second(struct zinf_queue *q, const struct zinf_matmul *m)
{
    made[1] += flops_of(m);
    return real->matmul(q, m);
}

struct counted {
    pthread_t thread;
    struct zinf_net *net;
    const struct setting *setting;
    struct zinf_config *config;
    struct zinf_trainer *trainer;
    struct zinf_device_ops counting;
    int number, code;
    char said[400];
};

/* Creates a trainer, and after the barrier makes a step of which products are counted. */
static void *count_products(void *argument)
{
    struct counted *c = argument;
    struct zinf_trainer_options options = trainer_options(c->setting, c->config);
    struct zinf_step_result result = {0};
    options.net = c->net;
    c->code = zinf_trainer_create(&c->trainer, &options);
    if (!c->code) {
        struct zinf_device *cpu = c->trainer->setup.cpu;
        c->counting = *real;
        c->counting.matmul = c->number ? count_second : count_first;
        cpu->ops = &c->counting;
        c->code = share_step(c->setting, c->net, c->trainer, 0, &result);
        cpu->ops = real;
    }
    if (c->code) {
        snprintf(c->said, sizeof c->said, "%s", zinf_error());
        zinf_net_tell(c->net, c->said);
    }
    zinf_trainer_destroy(c->trainer);
    zinf_net_close(c->net);
    return NULL;
}

/* Of GPT-2 with width h: 13 h^3 for each matrix of the feed-forward part, 10 for queries, keys and
 * values, 4 for the projection, five times. In each of two blocks a rank has 23 and another 17, not
 * the same one in both. */
static void test_products(void)
{
    static struct counted ranks[TWO];
    const double cube = pow(trainings.shape.hidden, 3);
    struct zinf_net *nets[TWO];
    struct zinf_estimate estimate = {0};
    struct zinf_device *host = NULL;
    const struct zinf_device_options any = {.kind = ZINF_DEVICE_HOST, .n_threads = 1};
    trainings.shape.arch = "gpt2";
    make_model(model, "products", &trainings.shape, 11);
    struct setting s = {.optimizer = optimizers[0],
                        .precision = bf16,
                        .param = "cpu",
                        .state = "cpu",
                        .order = "layer-major",
                        .schedule = "prefetch",
                        .extra = cut_among(TWO, ""),
                        .sharing = TWO};
    CHECK(!zinf_device_create(&host, &any) && !zinf_net_threads_create(nets, TWO));
    real = host->ops;
    for (int r = 0; r < TWO; r++) {
        ranks[r] = (struct counted){.net = nets[r], .setting = &s, .number = r};
        ranks[r].config = configure_of(&s, TWO);
        made[r] = 0;
    }
    struct zinf_estimate_options options = {
        .trainer = trainer_options(&s, ranks[0].config), .ranks = TWO, .local_ranks = TWO};
    CHECKF(!zinf_estimate(&estimate, &options), "%s", zinf_error());
    for (int r = 0; r < TWO; r++)
        pthread_create(&ranks[r].thread, NULL, count_products, &ranks[r]);
    for (int r = 0; r < TWO; r++) {
        pthread_join(ranks[r].thread, NULL);
        CHECKF(!ranks[r].code, "rank %d: %s", r, ranks[r].said);
        zinf_config_destroy(ranks[r].config);
    }
    for (int r = 0; r < TWO; r++)
        CHECKF(fabs(made[r] - 5 * 40 * cube) < 1e-9 * cube, "rank %d: %g h^3", r, made[r] / cube);
    CHECKF(fabs(estimate.update_flops - 2 * 5 * 23 * cube) < 1e-6 * cube, "%g h^3 planned",
           estimate.update_flops / cube);
    zinf_device_destroy(host);
}

/* ---- bytes ---- */

static void count_bytes(const char *optimizer, uint32_t tensor, double *planned, double *sent)
{
    struct zinf_estimate estimate = {0};
    struct outcome out;
    char name[40];
    struct setting s = {.optimizer = optimizer,
                        .param = "cpu",
                        .state = "cpu",
                        .order = "layer-major",
                        .schedule = "prefetch",
                        .extra = cut_among(tensor, ""),
                        .sharing = (int)tensor,
                        .accumulation = 1};
    struct zinf_config *config = configure_of(&s, tensor);
    struct zinf_estimate_options options = {
        .trainer = trainer_options(&s, config), .ranks = tensor, .local_ranks = tensor};
    snprintf(name, sizeof name, "bytes-%u", tensor);
    run_seats(&s, 1, tensor, name, &out);
    CHECKF(!zinf_estimate(&estimate, &options), "%s", zinf_error());
    *planned = estimate.tensor_sent_bytes;
    *sent = (double)tensor_bytes;
    zinf_config_destroy(config);
}

/* A rank of two gives the other its parts of what that updates, and gives back as many of what it
 * updates itself: as much as all of its parts. Those of GPT-2 are six a shard and block, with 64
 * bytes each that say where they are; and in a number of each block both say that they can. */
static void test_bytes(void)
{
    const double numbers = 12.0 * pow(trainings.shape.hidden, 2) / TWO;
    const double wanted = 2 * (numbers * sizeof(float) + 6 * 64 * PARTS / TWO + 8);
    trainings.shape.arch = "gpt2";
    make_model(model, "bytes", &trainings.shape, 11);
    for (uint32_t tensor = TWO; tensor <= PARTS; tensor *= 2) {
        double planned[TWO], sent[TWO];
        count_bytes("{\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}}", tensor, &planned[0],
                    &sent[0]);
        count_bytes(optimizers[0], tensor, &planned[1], &sent[1]);
        const double more = planned[1] - planned[0];
        CHECKF(tensor > TWO || more == wanted, "%.0f bytes planned, not %.0f", more, wanted);
        CHECKF(more > 0 && sent[1] - sent[0] == more, "%u ranks: %.0f bytes sent, %.0f planned",
               tensor, sent[1] - sent[0], more);
    }
}

int main(void)
{
    begin_trainings("tensor-updates", &(struct trainings){.shape = {.arch = "gpt2",
                                                                    .layers = 2,
                                                                    .hidden = 64,
                                                                    .heads = 4,
                                                                    .vocab = 500,
                                                                    .context = 16},
                                                          .steps = STEPS,
                                                          .seq = 8,
                                                          .batch = 1,
                                                          .sub_group = 8192});
    TAP_RUN(test_dealing);
    TAP_RUN(test_same_bits);
    TAP_RUN(test_taken_back);
    TAP_RUN(test_products);
    TAP_RUN(test_bytes);
    remove_work();
    return tap_done();
}
