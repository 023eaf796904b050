/*
 * Several ranks, as threads: the samples of a step dealt to one, two or four of them, in as many
 * micro-batches as that leaves, give the same losses, norms and weights to the last bit, wherever
 * things live, with clipping and dropout; also after going on from a checkpoint of other ranks. And
 * what one rank cannot do ends the others.
 */
#include "trainings.h"

#include "train/trainer.h"

#include <pthread.h>

enum { MOST_RANKS = 4, MICROS = 4, STEPS = 4 };

struct rank {
    pthread_t thread;
    const struct setting *setting; /* of one rank */
    struct zinf_config *config;
    struct zinf_net *net;
    const char *folder; /* of the saved model */
    struct outcome out;
    int code;
    uint64_t step_bytes; /* sent in the last step */
    char said[600];
};

/* This rank's share of a step's samples. */
static int share_step(const struct rank *rank, struct zinf_trainer *t, uint64_t step,
                      struct zinf_step_result *result)
{
    int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    struct setting whole = *rank->setting;
    struct zinf_net_place at = zinf_net_place(rank->net);
    whole.accumulation *= (int)at.world;
    draw_tokens(&whole, step, ids, targets);
    int64_t rows = (int64_t)rank->setting->accumulation * trainings.batch * trainings.seq;
    struct zinf_batch batch = {
        {[ZINF_INPUT_IDS] = ids + at.rank * rows, [ZINF_INPUT_TARGETS] = targets + at.rank * rows}};
    return zinf_trainer_step(t, &batch, result);
}

/* No CHECK in here: threads would share its counts. */
static void *train_rank(void *argument)
{
    struct rank *rank = argument;
    struct zinf_trainer_options options = trainer_options(rank->setting, rank->config);
    struct zinf_trainer *t = NULL;
    options.net = rank->net;
    rank->code = zinf_trainer_create(&t, &options);
    for (int step = 0; !rank->code && step < STEPS; step++) {
        struct zinf_step_result result = {0};
        uint64_t before = zinf_net_sent_bytes(rank->net);
        rank->code = share_step(rank, t, (uint64_t)step, &result);
        rank->step_bytes = zinf_net_sent_bytes(rank->net) - before;
        note_step(&rank->out, step, &result);
    }
    if (!rank->code)
        rank->code = zinf_trainer_save(t, rank->folder);
    if (rank->code)
        snprintf(rank->said, sizeof rank->said, "%s", zinf_error());
    if (rank->code)
        zinf_net_tell(rank->net, rank->said);
    zinf_trainer_destroy(t);
    zinf_net_close(rank->net);
    return NULL;
}

/* out: of rank 0. */
static void run_ranks(const struct setting *s, uint32_t world, const char *name,
                      struct outcome *out)
{
    static struct rank ranks[MOST_RANKS];
    struct zinf_net *nets[MOST_RANKS];
    char folder[600];
    snprintf(folder, sizeof folder, "%s/out-%s", work, name);
    memset(ranks, 0, sizeof ranks);
    CHECKF(!zinf_net_threads_create(nets, world), "%s", zinf_error());
    for (uint32_t r = 0; r < world; r++) {
        zinf_net_set_timeout(nets[r], 60);
        ranks[r].setting = s;
        ranks[r].config = configure_of(s, world);
        ranks[r].net = nets[r];
        ranks[r].folder = folder;
    }
    for (uint32_t r = 0; r < world; r++)
        pthread_create(&ranks[r].thread, NULL, train_rank, &ranks[r]);
    for (uint32_t r = 0; r < world; r++)
        pthread_join(ranks[r].thread, NULL);
    for (uint32_t r = 0; r < world; r++) {
        CHECKF(!ranks[r].code, "%s: rank %u: %s", name, r, ranks[r].said);
        for (int i = 0; i < STEPS; i++)
            CHECKF(ranks[r].out.loss[i] == ranks[0].out.loss[i] &&
                       ranks[r].out.norm[i] == ranks[0].out.norm[i],
                   "%s: rank %u sees another step %d", name, r, i);
        zinf_config_destroy(ranks[r].config);
    }
    *out = ranks[0].out;
    snprintf(out->folder, sizeof out->folder, "%s", folder);
}

/* ---- the same bits ---- */

static const char tree[] = ", \"gradient_sum\": \"tree\", \"dropout\": 0.1";

/* What is added in another order differs by roundings alone. */
static void check_close(struct setting s, const struct outcome *one, const char *what)
{
    struct outcome in_order;
    s.extra = ", \"dropout\": 0.1";
    run(&s, "in-order", &in_order);
    for (int i = 0; i < STEPS; i++) {
        double loss = fabs(one->loss[i] / in_order.loss[i] - 1);
        double norm = fabs(one->norm[i] / in_order.norm[i] - 1), bound = s.precision ? 2e-2 : 1e-4;
        CHECKF(loss < bound && norm < bound, "%s: step %d: loss off by %g, norm by %g", what, i,
               loss, norm);
    }
}

static void check_splits(struct setting s, const char *what)
{
    struct outcome one, some;
    char name[80];
    s.clip = 0.7;
    s.order = "layer-major";
    s.extra = tree;
    s.accumulation = MICROS;
    snprintf(name, sizeof name, "%s-1x4", what);
    run(&s, name, &one);
    check_close(s, &one, what);
    for (uint32_t world = 2; world <= MOST_RANKS; world *= 2) {
        s.accumulation = MICROS / (int)world;
        snprintf(name, sizeof name, "%s-%ux%d", what, world, s.accumulation);
        run_ranks(&s, world, name, &some);
        check_same(&one, &some, name);
    }
}

static void check_family(const char *arch, const char *const *kinds)
{
    static const char *const places[] = {"cpu", "nvme", "none"};
    char what[60];
    trainings.shape.arch = arch;
    make_model(model, arch, &trainings.shape, 11);
    for (int i = 0; i < 5; i++) {
        struct setting s = {.param = places[i % 3],
                            .state = places[i % 3],
                            .copies = i % 3 < 2 && i < 4 && i != 1,
                            .precision = i % 2 ? bf16 : NULL,
                            .schedule = kinds[i]};
        snprintf(what, sizeof what, "%s-%s-%s%s-%s", arch, s.param, s.copies ? "copies-" : "",
                 s.precision ? "bf16" : "fp32", word(s.schedule, "auto"));
        check_splits(s, what);
    }
}

static void test_gpt2(void)
{
    static const char *const kinds[] = {NULL, "update-in-backward", NULL, "update-in-forward",
                                        NULL};
    check_family("gpt2", kinds);
}

static void test_llama(void)
{
    static const char *const kinds[] = {"prefetch", NULL, "serial", NULL, "update-in-backward"};
    check_family("llama", kinds);
}

int main(void)
{
    begin_trainings("net", &(struct trainings){.shape = {.arch = "gpt2",
                                                         .layers = 2,
                                                         .hidden = 64,
                                                         .heads = 4,
                                                         .vocab = 500,
                                                         .context = 16},
                                               .steps = STEPS,
                                               .seq = 8,
                                               .batch = 2,
                                               .sub_group = 8192});
    TAP_RUN(test_gpt2);
    TAP_RUN(test_llama);
    remove_work();
    return tap_done();
}
