/*
 * Steps of shorter sequences: a batch that says how many rows its samples have gives what the same
 * samples give with padding up to the trainer's length, whatever the model, but for the order of
 * sums; a step needs no more memory than the longest; and steps of several lengths give the same
 * bits wherever things live, in whichever order operations run.
 */
#include "cut_fixtures.h"
#include "net/net.h"
#include "train/trainer.h"

#include <pthread.h>

/* ---- against padding ---- */

static void check_parity(const char *name)
{
    struct fixture f;
    char files[2][600];
    double loss[2] = {0}, norm[2] = {0};
    open_any(&f, name);
    struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_GRADIENTS);
    const struct lengths cut = {f.seq - 4, f.source ? f.source - 9 : 0};
    for (int padded = 0; t && padded < 2; padded++) {
        struct zinf_batch batch = cut_batch(&f, 0, cut, padded);
        CHECKF(!zinf_trainer_gradients(t, &batch, &loss[padded], &norm[padded]), "%s: %s", name,
               zinf_error());
        CHECKF(!zinf_trainer_save_gradients(t, in_work(files[padded], padded ? "padded" : "short")),
               "%s", zinf_error());
    }
    CHECKF(near(loss[0], loss[1], 1e-5) && near(norm[0], norm[1], 1e-4),
           "%s: loss %.9g, padded %.9g; norm %.9g, padded %.9g", name, loss[0], loss[1], norm[0],
           norm[1]);
    double worst = compare_files(files[0], files[1]);
    CHECKF(worst <= 1e-4, "%s: worst gradient %g", name, worst);
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static void test_parity(void)
{
    each_model(check_parity);
}

/* Steps of several micro-batches, each with a place of its own. */
static void check_steps(const char *name)
{
    struct zinf_step_result r[2][2] = {{{0}}};
    struct fixture f;
    open_any(&f, name);
    const struct lengths cut = {f.seq - 3, f.source ? f.source - 6 : 0};
    for (int padded = 0; padded < 2; padded++) {
        struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_TRAIN);
        for (int step = 0; t && step < 2; step++) {
            struct zinf_batch batch = cut_batch(&f, 0, cut, padded);
            CHECKF(!zinf_trainer_step(t, &batch, &r[padded][step]), "%s", zinf_error());
        }
        zinf_trainer_destroy(t);
    }
    for (int step = 0; step < 2; step++)
        CHECKF(near(r[0][step].loss, r[1][step].loss, 1e-5) &&
                   near(r[0][step].grad_norm, r[1][step].grad_norm, 1e-4),
               "%s step %d: loss %.9g, padded %.9g; norm %.9g, padded %.9g", name, step,
               r[0][step].loss, r[1][step].loss, r[0][step].grad_norm, r[1][step].grad_norm);
    close_fixture(&f);
}

static void test_steps(void)
{
    each_model(check_steps);
}

/* Loss and logits of samples, without a backward. */
static void check_forward(const char *name)
{
    struct fixture f;
    double loss[2] = {0};
    uint64_t n[2] = {0};
    open_any(&f, name);
    struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_FORWARD);
    const struct lengths cut = {f.seq - 5, f.source ? f.source - 8 : 0};
    for (int padded = 0; t && padded < 2; padded++) {
        struct zinf_batch batch = cut_batch(&f, 1, cut, padded);
        CHECKF(!zinf_trainer_loss(t, &batch, f.batch, &loss[padded], &n[padded]), "%s: %s", name,
               zinf_error());
    }
    CHECKF(near(loss[0], loss[1], 1e-5) && n[0] == n[1] && n[0] > 0, "%s: loss %.9g, padded %.9g",
           name, loss[0], loss[1]);
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static void test_forward(void)
{
    each_model(check_forward);
}

/* ---- memory ---- */

static void check_stage(const struct zinf_compute *whole, const struct setup *s, uint32_t stage,
                        enum zinf_pass pass, const char *name)
{
    struct zinf_stage_size most, size;
    CHECK(!zinf_stage_measure(&most, whole, s->graph, stage, pass));
    for (int64_t i = 1; i <= s->seq; i++) {
        struct zinf_compute c = *whole;
        c.seq = i;
        c.source_seq = 1 + (i * 7) % s->source_seq;
        CHECK(!zinf_stage_measure(&size, &c, s->graph, stage, pass));
        CHECKF(size.kept <= most.kept && size.scratch <= most.scratch &&
                   size.workspace <= most.workspace && size.flops <= most.flops,
               "%s: stage %s of %lld rows a sample takes more than of %lld", name,
               s->graph->stages[stage].name, (long long)i, (long long)s->seq);
    }
}

/* A plan has room for the longest samples alone. */
static void check_sizes(const char *name)
{
    struct fixture f;
    open_any(&f, name);
    struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_GRADIENTS);
    for (uint32_t i = 0; t && i < t->setup.graph->n_stages; i++)
        for (int pass = 0; pass <= ZINF_PASS_BACKWARD; pass++)
            if (pass == ZINF_PASS_FORWARD || t->setup.walk.stages[i].differentiates)
                check_stage(&t->setup.compute, &t->setup, i, (enum zinf_pass)pass, name);
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static void test_sizes(void)
{
    each_model(check_sizes);
}

/* ---- bits ---- */

/* Steps of several lengths, the longest in the middle: what a long one leaves in memory no shorter
 * one may look at. */
static void run_lengths(const struct fixture *f, const struct setting *s, const char *name,
                        struct outcome *out)
{
    const struct lengths of_step[] = {{f->seq - 4, f->source ? 7 : 0}, {0, 0}, {f->seq - 6, 0}};
    struct zinf_config *config = configure(s);
    config->dropout = 0.2;
    memset(out, 0, sizeof *out);
    struct zinf_trainer *t = open_pair(f, config, ZINF_TRAINER_TRAIN);
    for (int step = 0; t && step < trainings.steps; step++) {
        struct zinf_batch batch = cut_batch(f, 0, of_step[step % 3], false);
        struct zinf_step_result r = {0};
        CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
        note_step(out, step, &r);
    }
    snprintf(out->folder, sizeof out->folder, "%s/out-%s", work, name);
    CHECKF(t && !zinf_trainer_save(t, out->folder), "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void check_places(const char *name, const char *precision)
{
    static const char *const activations[] = {
        NULL, ", \"activation_device\": \"cpu\"",
        ", \"activation_device\": \"nvme\", \"activation_checkpointing\": \"always\""};
    struct setting s = setting_of(NULL, precision);
    struct outcome reference, other;
    struct fixture f;
    char what[256];
    open_any(&f, name);
    f.accumulation = s.accumulation;
    trainings.batch = (int)f.batch;
    run_lengths(&f, &s, "reference", &reference);
    for (int i = 0; i < 9; i++) {
        s.param = places[i / 3];
        s.state = places[i % 3];
        s.extra = activations[i % 3];
        s.schedule = schedules[(i + i / 3) % 4];
        s.copies = i % 2;
        snprintf(what, sizeof what, "%s %s: parameters %s, state %s, %s%s", name,
                 word(precision, ""), s.param, s.state, s.schedule, word(s.extra, ""));
        run_lengths(&f, &s, "other", &other);
        check_same(&reference, &other, what);
    }
    close_fixture(&f);
}

static void test_placements(void)
{
    static const char *const names[] = {"llama_b", "gpt2_a", "mixtral_a", "t5_a", "bert_b"};
    for (size_t i = 0; i < COUNT(names); i++)
        check_places(names[i], i % 2 ? bf16 : NULL);
}

/* ---- what is moved, and how long that should take ---- */

enum { WIDE_ROWS = 64, WIDE_BATCH = 4 };

/* A model whose activations are larger than the least that a drive moves. */
static struct zinf_trainer *open_wide(struct zinf_config *config)
{
    struct zinf_model_shape shape = trainings.shape;
    shape.layers = 7; /* more than slots on the device */
    shape.hidden = 128;
    shape.context = WIDE_ROWS;
    char folder[600];
    struct zinf_trainer *t = NULL;
    make_model(folder, "wide", &shape, 3);
    const struct zinf_trainer_options options = {
        .model_path = folder, .config = config, .seq_len = WIDE_ROWS, .device = ZINF_DEVICE_HOST};
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
}

static double expected(struct zinf_trainer *t, int64_t rows)
{
    const struct zinf_batch batch = {.seq_len = rows};
    CHECK(t && !trainer_set_lengths(t, &batch));
    return t ? trainer_expected_seconds(t, false) : 0;
}

static void test_transfers_are_shorter(void)
{
    static int32_t ids[WIDE_ROWS * WIDE_BATCH];
    struct setting s = setting_of(NULL, NULL);
    struct zinf_step_result r[4] = {{0}};
    s.accumulation = 1;
    s.extra = ", \"activation_device\": \"nvme\", \"activation_checkpointing\": \"always\"";
    trainings.batch = WIDE_BATCH;
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_wide(config);
    struct zinf_batch batch = *TOKENS(ids, ids);
    for (int step = 0; t && step < 4; step++) {
        batch.seq_len = step == 2 ? WIDE_ROWS / 4 : 0;
        CHECKF(!zinf_trainer_step(t, &batch, &r[step]), "%s", zinf_error());
    }
    for (int lane = ZINF_LANE_READ; lane <= ZINF_LANE_WRITE; lane++)
        CHECKF(r[1].lane_bytes[lane] > 0 && 4 * r[2].lane_bytes[lane] == r[1].lane_bytes[lane] &&
                   r[3].lane_bytes[lane] == r[1].lane_bytes[lane],
               "lane %d: %llu bytes, of a quarter of the rows %llu", lane,
               (unsigned long long)r[1].lane_bytes[lane],
               (unsigned long long)r[2].lane_bytes[lane]);
    const double whole = expected(t, 0), quarter = expected(t, WIDE_ROWS / 4);
    CHECKF(quarter > 0 && quarter < 0.9 * whole, "%g s expected, of a quarter of the rows %g",
           whole, quarter);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* ---- refusals, reports ---- */

static void test_refusals(void)
{
    struct fixture f;
    struct zinf_step_result r;
    open_any(&f, "llama_b");
    struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_TRAIN);
    struct zinf_batch batch = cut_batch(&f, 0, (struct lengths){8, 0}, false);
    CHECKF(t && !zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
    CHECK(r.seq_len == 8 && r.tokens == (uint64_t)(8 * f.batch * f.accumulation));
    batch.tokens = 5;
    CHECKF(t && !zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
    CHECK(r.tokens == 5);
    batch.seq_len = f.seq + 1;
    CHECK(t && zinf_trainer_step(t, &batch, &r) == -EINVAL && strstr(zinf_error(), "17 tokens"));
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

/* Two ranks, as threads, each with samples of its own length. */
struct rank {
    pthread_t thread;
    const struct fixture *fixture;
    struct zinf_net *net;
    struct zinf_batch batch;
    int code;
    char said[200];
};

static void *step_rank(void *argument)
{
    struct rank *r = argument;
    struct zinf_step_result result;
    struct zinf_trainer *t = NULL;
    const struct zinf_trainer_options options = {.model_path = r->fixture->model,
                                                 .config = r->fixture->config,
                                                 .seq_len = r->fixture->seq,
                                                 .device = ZINF_DEVICE_HOST,
                                                 .net = r->net};
    r->code = zinf_trainer_create(&t, &options);
    if (!r->code)
        r->code = zinf_trainer_step(t, &r->batch, &result);
    if (r->code)
        snprintf(r->said, sizeof r->said, "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_net_close(r->net);
    return NULL;
}

static void check_ranks(int64_t first, int64_t second, bool good)
{
    struct setting s = setting_of(NULL, NULL);
    struct zinf_net *nets[2];
    struct rank ranks[2];
    struct fixture f;
    open_any(&f, "llama_b");
    zinf_config_destroy(f.config);
    f.config = configure_of(&s, 2);
    CHECKF(!zinf_net_seats_create(nets, 2, NULL), "%s", zinf_error());
    for (int i = 0; i < 2; i++) {
        zinf_net_set_timeout(nets[i], 60);
        ranks[i] = (struct rank){.fixture = &f, .net = nets[i]};
        ranks[i].batch = cut_batch(&f, 0, (struct lengths){0, 0}, false);
        ranks[i].batch.seq_len = i ? second : first;
        pthread_create(&ranks[i].thread, NULL, step_rank, &ranks[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < 2; i++)
        CHECKF(good ? !ranks[i].code : ranks[i].code == -EINVAL && strstr(ranks[i].said, "length"),
               "rank %d: %d %s", i, ranks[i].code, ranks[i].said);
    close_fixture(&f);
}

static void test_ranks_have_one_length(void)
{
    check_ranks(8, 8, true);
    check_ranks(8, 12, false);
}

int main(void)
{
    begin_fixtures("lengths");
    TAP_RUN(test_parity);
    TAP_RUN(test_steps);
    TAP_RUN(test_forward);
    TAP_RUN(test_sizes);
    TAP_RUN(test_placements);
    TAP_RUN(test_transfers_are_shorter);
    TAP_RUN(test_refusals);
    TAP_RUN(test_ranks_have_one_length);
    remove_work();
    return tap_done();
}
