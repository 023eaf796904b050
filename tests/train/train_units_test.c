/*
 * The small parts of training, each against values worked out by hand: learning-rate schedules and
 * the loss-scale algorithm from DeepSpeed's formulas, sampling, and dropout, whose masks may not
 * depend on how a batch is cut.
 */
#include "train_support.h"
#include "train/generate.h"
#include "train/step/scales.h"
#include "set.h"

/* ---- learning rate ---- */

struct expectation {
    uint64_t n_applied;
    double lr;
};

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (1 + fabs(b));
}

#define CHECK_LR(scheduler, base, ...)                                                             \
    do {                                                                                           \
        const struct expectation list[] = {__VA_ARGS__};                                           \
        for (size_t i_ = 0; i_ < sizeof list / sizeof *list; i_++) {                               \
            double lr_ = zinf_lr_at(&(scheduler), base, list[i_].n_applied).lr;                    \
            CHECKF(near(lr_, list[i_].lr), "after %llu updates: %.12g, not %.12g",                 \
                   (unsigned long long)list[i_].n_applied, lr_, list[i_].lr);                      \
        }                                                                                          \
    } while (0)

static void test_constant_lr(void)
{
    struct zinf_config_scheduler s = {.kind = ZINF_SCHEDULER_NONE};
    CHECK_LR(s, 0.25, {0, 0.25}, {1000000, 0.25});
    CHECK(zinf_lr_at(&s, 0.25, 3).beta1 < 0 && zinf_lr_at(&s, 0.25, 3).beta2 < 0);
}

static void test_warmup_lr(void)
{
    struct zinf_config_scheduler s = {.kind = ZINF_SCHEDULER_WARMUP_LR,
                                      .warmup_min_lr = 0.1,
                                      .warmup_max_lr = 1.1,
                                      .warmup_num_steps = 4};
    CHECK_LR(s, 9, {0, 0.1}, {1, 0.1}, {2, 0.35}, {3, 0.6}, {4, 0.85}, {5, 1.1}, {99, 1.1});
    s.warmup_log = true; /* ln(t + 1) / ln 4: a half at t = 1, one at t = 3 */
    CHECK_LR(s, 9, {0, 0.1}, {1, 0.1}, {2, 0.6}, {3, 0.1 + log(3) / log(4)}, {4, 1.1}, {5, 1.1});
    s.warmup_log = false;
    s.warmup_num_steps = 1; /* at least 2 are taken */
    CHECK_LR(s, 9, {1, 0.1}, {2, 0.6}, {3, 1.1});
}

static void test_warmup_decay_lr(void)
{
    struct zinf_config_scheduler s = {.kind = ZINF_SCHEDULER_WARMUP_DECAY_LR,
                                      .warmup_max_lr = 1,
                                      .warmup_num_steps = 2,
                                      .total_num_steps = 10};
    CHECK_LR(s, 9, {0, 0}, {1, 0}, {2, 0.5}, {3, 1}, {7, 0.5}, {10, 0.125}, {11, 0}, {99, 0});
    s.warmup_min_lr = 0.2; /* the decay ends there */
    CHECK_LR(s, 9, {0, 0.2}, {2, 0.6}, {3, 1}, {7, 0.6}, {11, 0.2}, {99, 0.2});
}

static void test_warmup_cosine_lr(void)
{
    struct zinf_config_scheduler s = {.kind = ZINF_SCHEDULER_WARMUP_COSINE_LR,
                                      .cos_min_ratio = 0.1,
                                      .warmup_num_steps = 2,
                                      .total_num_steps = 6};
    CHECK_LR(s, 2, {0, 0}, {1, 0}, {2, 1}, {3, 0.2 + 0.9 * (1 + sqrt(0.5))}, {4, 1.1}, {6, 0.2},
             {7, 0.2}, {99, 0.2});
    s.warmup_min_ratio = 0.5; /* not before the first update: then it is 0 */
    CHECK_LR(s, 2, {0, 0}, {1, 1}, {2, 1.5});
}

static void test_lr_range_test(void)
{
    struct zinf_config_scheduler s = {.kind = ZINF_SCHEDULER_LR_RANGE_TEST,
                                      .range_min_lr = 0.01,
                                      .range_step_rate = 1,
                                      .range_step_size = 4};
    CHECK_LR(s, 9, {0, 0.01}, {1, 0.0125}, {2, 0.015}, {4, 0.02}, {8, 0.03});
    s.range_staircase = true;
    CHECK_LR(s, 9, {0, 0.01}, {1, 0.01}, {3, 0.01}, {4, 0.02}, {7, 0.02}, {8, 0.03});
}

static void test_one_cycle(void)
{
    struct zinf_config_scheduler s = {.kind = ZINF_SCHEDULER_ONE_CYCLE,
                                      .cycle_min_lr = 0.1,
                                      .cycle_max_lr = 1.1,
                                      .cycle_first_step_size = 4,
                                      .cycle_second_step_size = 4};
    CHECK_LR(s, 9, {0, 0.1}, {1, 0.35}, {2, 0.6}, {4, 1.1}, {6, 0.6}, {8, 0.1}, {9, 0.1},
             {99, 0.1});
    CHECK(zinf_lr_at(&s, 9, 1).beta1 < 0); /* cycle_momentum is off */
    s.decay_lr_rate = 1;
    s.decay_step_size = 2;
    CHECK_LR(s, 9, {8, 0.1}, {9, 0.1 / 1.5}, {10, 0.05}, {12, 0.1 / 3});
    s.cycle_first_stair_count = s.cycle_second_stair_count = 2;
    CHECK_LR(s, 9, {1, 0.1}, {2, 0.6}, {3, 0.6}, {4, 1.1}, {5, 0.6}, {6, 0.6}, {7, 0.1});
    s.cycle_first_stair_count = s.cycle_second_stair_count = 0;
    s.cycle_second_step_size = 12;
    CHECK_LR(s, 9, {2, 0.6}, {4, 1.1}, {10, 0.6}, {16, 0.1});
}

static void test_one_cycle_momentum(void)
{
    struct zinf_config_scheduler s = {.kind = ZINF_SCHEDULER_ONE_CYCLE,
                                      .cycle_min_lr = 0.1,
                                      .cycle_max_lr = 1.1,
                                      .cycle_first_step_size = 4,
                                      .cycle_second_step_size = 4,
                                      .cycle_momentum = true,
                                      .cycle_min_mom = 0.8,
                                      .cycle_max_mom = 0.9,
                                      .decay_mom_rate = 0.1,
                                      .decay_step_size = 2};
    static const double want[][2] = {{1, 0.875}, {4, 0.8}, {6, 0.85}, {8, 0.9}, {9, 0.945}};
    for (int i = 0; i < 5; i++) {
        struct zinf_lr at = zinf_lr_at(&s, 9, (uint64_t)want[i][0]);
        CHECKF(near(at.beta1, want[i][1]) && near(at.beta2, 0.99), "after %g: %g, %g", want[i][0],
               at.beta1, at.beta2);
    }
}

/* ---- loss scale ---- */

/* events: 'o' overflow, '.' a good step; after each the scale must be the next of want. */
static void play(struct zinf_loss_scale *s, const char *events, const double *want)
{
    for (int i = 0; events[i]; i++) {
        CHECKF(!zinf_loss_scale_update(s, events[i] == 'o'), "%s", zinf_error());
        CHECKF(s->scale == want[i], "%s, event %d: scale %g, not %g", events, i, s->scale, want[i]);
    }
}

static struct zinf_loss_scale dynamic_scale(int64_t hysteresis, bool consecutive, int64_t smallest)
{
    struct zinf_config_fp16 fp16 = {.enabled = true,
                                    .initial_scale_power = 3,
                                    .loss_scale_window = 2,
                                    .hysteresis = hysteresis,
                                    .min_loss_scale = smallest,
                                    .consecutive_hysteresis = consecutive};
    struct zinf_loss_scale s;
    zinf_loss_scale_init(&s, &fp16);
    CHECK(s.scale == 8 && s.dynamic);
    return s;
}

static void test_loss_scale_hysteresis_and_window(void)
{
    struct zinf_loss_scale s = dynamic_scale(2, false, 1);
    /* The first overflow is forgiven, then each halves until a growth refills the allowance. */
    play(&s, "oo.....oo", (double[]){8, 4, 4, 4, 8, 8, 16, 16, 8});
    play(&s, "o.o", (double[]){4, 4, 2}); /* a good step alone refills nothing */
    s = dynamic_scale(2, false, 1);
    play(&s, ".....", (double[]){8, 8, 16, 16, 32}); /* grows first at iteration = window */
    s = dynamic_scale(1, false, 1);
    play(&s, "o...o", (double[]){4, 4, 4, 8, 4});
}

static void test_loss_scale_consecutive(void)
{
    struct zinf_loss_scale s = dynamic_scale(2, true, 1);
    play(&s, "o.o.o.", (double[]){8, 8, 8, 8, 8, 8});
    play(&s, "ooo", (double[]){8, 4, 2});
}

static void test_loss_scale_stops_at_the_smallest(void)
{
    struct zinf_loss_scale s = dynamic_scale(1, false, 3);
    play(&s, "oo", (double[]){4, 3});
    CHECK(zinf_loss_scale_update(&s, true) == -ERANGE);
    CHECKF(strstr(zinf_error(), "min_loss_scale") != NULL, "%s", zinf_error());
    CHECK(s.scale == 3);
}

static void test_loss_scale_static_and_off(void)
{
    struct zinf_config_fp16 fp16 = {.enabled = true, .loss_scale = 128};
    struct zinf_loss_scale s;
    zinf_loss_scale_init(&s, &fp16);
    play(&s, "o..o", (double[]){128, 128, 128, 128});
    fp16.enabled = false;
    zinf_loss_scale_init(&s, &fp16);
    play(&s, "..", (double[]){1, 1});
}

/* ---- sampling ---- */

enum { VOCAB = 5, DRAWS = 20000 };
static const float logits[VOCAB] = {0.0f, 2.0f, 1.0f, -1.0f, 2.5f};

static void count_draws(const struct zinf_sampler *s, int counts[VOCAB])
{
    char scratch[8 * VOCAB];
    memset(counts, 0, VOCAB * sizeof *counts);
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        int32_t id = zinf_sample(s, logits, VOCAB, draw, scratch);
        CHECK(id >= 0 && id < VOCAB);
        CHECK(id == zinf_sample(s, logits, VOCAB, draw, scratch));
        counts[id >= 0 && id < VOCAB ? id : 0]++;
    }
}

/* Counts within five standard deviations of softmax(logits / temperature) over the ids kept. */
static void check_distribution(const struct zinf_sampler *s, const bool kept[VOCAB])
{
    int counts[VOCAB];
    double sum = 0;
    count_draws(s, counts);
    for (int i = 0; i < VOCAB; i++)
        sum += kept[i] ? exp((double)logits[i] / s->temperature) : 0;
    for (int i = 0; i < VOCAB; i++) {
        double p = kept[i] ? exp((double)logits[i] / s->temperature) / sum : 0;
        CHECKF(fabs(counts[i] - p * DRAWS) <= 5 * sqrt(p * (1 - p) * DRAWS), "id %d: %d of %g", i,
               counts[i], p * DRAWS);
    }
}

static void test_sampler_takes_the_most_likely(void)
{
    struct zinf_sampler s = {.temperature = 0, .top_p = 1};
    int counts[VOCAB];
    count_draws(&s, counts);
    CHECK(counts[4] == DRAWS);
    s.temperature = 1;
    s.top_k = 1;
    count_draws(&s, counts);
    CHECK(counts[4] == DRAWS);
}

static void test_sampler_distribution(void)
{
    struct zinf_sampler s = {.temperature = 1, .top_p = 1, .seed = 7};
    check_distribution(&s, (const bool[VOCAB]){true, true, true, true, true});
    s.temperature = 2.5;
    check_distribution(&s, (const bool[VOCAB]){true, true, true, true, true});
    s.top_k = 3;
    check_distribution(&s, (const bool[VOCAB]){false, true, true, false, true});
    /* Probabilities 0.50, 0.31, 0.11, ...: two make up 0.75, three are needed for 0.85. */
    s = (struct zinf_sampler){.temperature = 1, .top_p = 0.75, .seed = 7};
    check_distribution(&s, (const bool[VOCAB]){false, true, false, false, true});
    s.top_p = 0.85;
    check_distribution(&s, (const bool[VOCAB]){false, true, true, false, true});
}

static void test_sampler_seed(void)
{
    struct zinf_sampler a = {.temperature = 1, .top_p = 1, .seed = 1}, b = a;
    char scratch[8 * VOCAB];
    int differ = 0;
    b.seed = 2;
    for (uint64_t draw = 0; draw < 100; draw++)
        differ += zinf_sample(&a, logits, VOCAB, draw, scratch) !=
                  zinf_sample(&b, logits, VOCAB, draw, scratch);
    CHECKF(differ > 20, "%d of 100 draws differ", differ);
}

/* ---- dropout ---- */

static void test_dropout_keeps_the_expected_value(void)
{
    enum { N = 1 << 16 };
    static float ones[N], out[N];
    struct zinf_device *device = NULL;
    struct zinf_queue *queue = NULL;
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = 1};
    struct zinf_residual args = {.dtype = ZINF_DTYPE_F32, .n = N, .r = ones, .y = out};
    double sum = 0;
    int kept = 0;
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    args.dropout = (struct zinf_dropout){.p = 0.25f, .seed = 9, .step = 4, .site = 2};
    CHECK(!zinf_device_create(&device, &options));
    CHECK(!device->ops->queue_create(device, ZINF_QUEUE_COMPUTE, &queue));
    CHECKF(!device->ops->dropout(queue, &args), "%s", zinf_error());
    for (int i = 0; i < N; i++) {
        kept += out[i] != 0;
        sum += (double)out[i];
        CHECK(out[i] == 0 || near((double)(out[i] * 0.75f), 1));
    }
    CHECKF(fabs(kept - 0.75 * N) < 5 * sqrt(0.1875 * N), "%d of %d are kept", kept, N);
    CHECKF(fabs(sum / N - 1) < 5 / 0.75 * sqrt(0.1875 / N), "the mean is %g", sum / N);
    device->ops->queue_destroy(queue);
    zinf_device_destroy(device);
}

/* Losses of two steps on four sequences, cut into micro-batches. */
static void train_cut(int micro_batch, double dropout, double losses[2])
{
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    struct zinf_trainer *t = NULL;
    char folder[600];
    static const char text[] = "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}},"
                               " \"zinf\": {\"threads\": 1}}";
    int32_t ids[4 * 16], targets[4 * 16];
    set_number(&context, "train_micro_batch_size_per_gpu", micro_batch);
    set_number(&context, "gradient_accumulation_steps", 4 / micro_batch);
    set_number(&context, "zinf.dropout", dropout);
    snprintf(folder, sizeof folder, "%s/model", work);
    CHECKF(!zinf_config_parse(&config, text, strlen(text), "test", &context), "%s", zinf_error());
    struct zinf_trainer_options options = {.mode = ZINF_TRAINER_TRAIN,
                                           .model_path = folder,
                                           .seed = 5,
                                           .config = config,
                                           .seq_len = 16,
                                           .device = ZINF_DEVICE_HOST};
    CHECKF(config && !zinf_trainer_create(&t, &options), "%s", zinf_error());
    for (int i = 0; i < 4 * 16; i++) {
        ids[i] = i * 37 % 211;
        targets[i] = i * 53 % 211;
    }
    for (int step = 0; t && step < 2; step++) {
        struct zinf_step_result r = {0};
        CHECKF(!zinf_trainer_step(t, TOKENS(ids, targets), &r), "%s", zinf_error());
        losses[step] = r.loss;
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_dropout_masks_do_not_depend_on_the_cut(void)
{
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 2, .hidden = 48, .heads = 4, .vocab = 211, .context = 16};
    char folder[600];
    double whole[2] = {0}, halves[2] = {0}, single[2] = {0}, without[2] = {0};
    make_model(folder, "model", &shape, 1);
    train_cut(4, 0.3, whole);
    train_cut(2, 0.3, halves);
    train_cut(1, 0.3, single);
    train_cut(4, 0, without);
    for (int step = 0; step < 2; step++) {
        CHECKF(fabs(whole[step] - halves[step]) <= 1e-6 * whole[step], "step %d: %.9g and %.9g",
               step, whole[step], halves[step]);
        CHECKF(fabs(whole[step] - single[step]) <= 1e-6 * whole[step], "step %d: %.9g and %.9g",
               step, whole[step], single[step]);
        CHECKF(fabs(whole[step] - without[step]) > 1e-4, "step %d: dropout changes nothing", step);
    }
}

int main(void)
{
    make_work("units");
    zinf_log_set_level(ZINF_LOG_ERROR);
    TAP_RUN(test_constant_lr);
    TAP_RUN(test_warmup_lr);
    TAP_RUN(test_warmup_decay_lr);
    TAP_RUN(test_warmup_cosine_lr);
    TAP_RUN(test_lr_range_test);
    TAP_RUN(test_one_cycle);
    TAP_RUN(test_one_cycle_momentum);
    TAP_RUN(test_loss_scale_hysteresis_and_window);
    TAP_RUN(test_loss_scale_consecutive);
    TAP_RUN(test_loss_scale_stops_at_the_smallest);
    TAP_RUN(test_loss_scale_static_and_off);
    TAP_RUN(test_sampler_takes_the_most_likely);
    TAP_RUN(test_sampler_distribution);
    TAP_RUN(test_sampler_seed);
    TAP_RUN(test_dropout_keeps_the_expected_value);
    TAP_RUN(test_dropout_masks_do_not_depend_on_the_cut);
    remove_work();
    return tap_done();
}
