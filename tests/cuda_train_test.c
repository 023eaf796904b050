/*
 * Whole trainings on the CUDA device: every schedule and placement gives the bits of the run that
 * does one thing after another, whatever the order in which the GPU's queues happen to run, and
 * the losses of the host device within rounding. With CUDA_STANDIN the GPU is tests/cuda_standin,
 * loaded as the module that it is for the program: nothing runs before something waits for it, and
 * then in random order; a wait that is left out shows. Under the thread sanitizer everything runs
 * at once instead, and a wait that is left out is a race. Without the stand-in it is the machine's
 * own GPU.
 */
#include "train_support.h"

#include "base/random.h"

#include <dlfcn.h>

#ifdef CUDA_STANDIN
#include "standin.h"
#endif

enum { STEPS = 4, SEQ = 8, BATCH = 2, MAX_ACCUMULATION = 2, VOCAB = 160 };
enum { ROWS = MAX_ACCUMULATION * BATCH * SEQ };

struct setting {
    const char *schedule, *param, *optimizer, *precision, *extra;
    int accumulation;
    double clip;    /* 0: off */
    bool sparse;    /* odd steps have one target a sequence: their gradient is large */
    uint64_t seed;  /* of the order in which the GPU's queues run */
    int skip_waits; /* so many waits of a queue for an event are forgotten, from the 40th on */
    uint64_t device_memory;
    double on_device; /* share of the state that is not on the CPU: 1 - ratio */
};
struct outcome {
    double loss[STEPS], norm[STEPS];
    char folder[600], schedule[32];
    uint64_t n_redone;
    unsigned n_far; /* units that the device updates */
    bool failed;
};

static char model[600], drive[600];

/* ---- the GPU ---- */

#ifdef CUDA_STANDIN
static volatile int n_races; /* that the thread sanitizer reported */
#ifdef __SANITIZE_THREAD__
#define RACES true
void __tsan_on_report(void *report);
void __tsan_on_report(void *report)
{
    (void)report;
    n_races++;
}

/* They are counted: some are asked for. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "exitcode=0";
}
#else
#define RACES false
#endif

static struct {
    void (*start)(const struct standin_options *options);
    void (*skip_waits)(int first, int count);
    int (*waits)(void);
    int (*faults)(void);
    int (*live)(void);
    void (*fail)(int launch, int wait);
} gpu;

static void *find(void *module, const char *name)
{
    void *found = dlsym(module, name);
    if (!found)
        printf("Bail out! the stand-in has no %s\n", name);
    return found;
}

static const char *open_gpu(void)
{
    char path[700];
    const char *build = getenv("BUILDDIR");
    snprintf(path, sizeof path, "%s/tests/.libs/zinf-cuda-standin.so", build ? build : ".");
    setenv("ZINF_CUDA_MODULE", path, 1);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        printf("Bail out! %s\n", dlerror());
        exit(1);
    }
    *(void **)&gpu.start = find(module, "standin_start");
    *(void **)&gpu.skip_waits = find(module, "standin_skip_waits");
    *(void **)&gpu.waits = find(module, "standin_waits");
    *(void **)&gpu.faults = find(module, "standin_faults");
    *(void **)&gpu.live = find(module, "standin_live");
    *(void **)&gpu.fail = find(module, "standin_fail");
    return NULL;
}

static void begin_gpu(const struct setting *s)
{
    struct standin_options options = {.seed = s->seed,
                                      .dawdle_us = s->seed ? 300 : 0,
                                      .memory_bytes = 1u << 30,
                                      .at_once = RACES};
    n_races = 0;
    gpu.start(&options);
    gpu.skip_waits(40, s->skip_waits);
}

static void end_gpu(const struct setting *s)
{
    CHECKF(!gpu.faults(), "%d faults of the stand-in", gpu.faults());
    CHECKF(!gpu.live(), "%d objects left", gpu.live());
    CHECKF(!n_races || s->skip_waits, "%d races", n_races);
    CHECKF(gpu.waits() > 40 || !s->seed, "%d waits", gpu.waits());
}
#else
static const char *open_gpu(void)
{
    return zinf_device_cuda_why_not();
}

static void begin_gpu(const struct setting *s)
{
    (void)s;
}

static void end_gpu(const struct setting *s)
{
    (void)s;
}
#endif

/* ---- one training ---- */

static struct zinf_config *configure(const struct setting *s)
{
    char text[2048];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    context.device_memory = s->device_memory;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_accumulation_steps\": %d,"
             "\"gradient_clipping\": %g, %s"
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, "
             "\"weight_decay\": 0.1}},"
             "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 9000,"
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"},"
             "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\", \"ratio\": %g}},"
             "\"zinf\": {\"threads\": 1, \"schedule\": \"%s\"%s}}",
             BATCH, s->accumulation ? s->accumulation : 1, s->clip,
             s->precision ? s->precision : "", s->param ? s->param : "cpu", drive,
             s->optimizer ? s->optimizer : "cpu", drive, 1 - s->on_device,
             s->schedule ? s->schedule : "serial", s->extra ? s->extra : "");
    CHECKF(!zinf_config_parse(&config, text, strlen(text), "test", &context), "%s", zinf_error());
    return config;
}

static void draw_tokens(int step, bool sparse, int32_t *ids, int32_t *targets)
{
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t counter[4] = {i, (uint32_t)step, 0, 0}, bits[4];
        zinf_philox(counter, 3, bits);
        ids[i] = (int32_t)(bits[0] % VOCAB);
        targets[i] = sparse && step % 2 && i % SEQ ? -1 : (int32_t)(bits[1] % VOCAB);
    }
}

static void run_steps(struct zinf_trainer *t, const struct setting *s, struct outcome *out)
{
    static int32_t ids[ROWS], targets[ROWS];
    for (int step = 0; step < STEPS && !out->failed; step++) {
        struct zinf_step_result r = {0};
        draw_tokens(step, s->sparse, ids, targets);
        out->failed = zinf_trainer_step(t, ids, targets, &r) != 0;
        out->loss[step] = r.loss;
        out->norm[step] = r.grad_norm;
        out->n_redone = r.n_redone;
        snprintf(out->schedule, sizeof out->schedule, "%s", r.schedule ? r.schedule : "");
    }
}

/* By what the plan says. */
static unsigned count_far_units(const struct zinf_trainer *t)
{
    char *text = NULL;
    size_t bytes;
    unsigned n = 0;
    FILE *out = open_memstream(&text, &bytes);
    CHECK(!zinf_trainer_print_plan(t, out));
    fclose(out);
    const char *said = strstr(text, "the device updates ");
    if (said)
        CHECK(sscanf(said, "the device updates %u", &n) == 1);
    free(text);
    return n;
}

static void run_on(enum zinf_device_kind device, const struct setting *s, const char *name,
                   struct outcome *out)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = {.mode = ZINF_TRAINER_TRAIN,
                                           .model_path = model,
                                           .seed = 5,
                                           .config = config,
                                           .seq_len = SEQ,
                                           .device = device};
    memset(out, 0, sizeof *out);
    if (!config)
        return;
    if (device == ZINF_DEVICE_CUDA)
        begin_gpu(s);
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    if (t) {
        out->n_far = count_far_units(t);
        run_steps(t, s, out);
        CHECKF(!out->failed || s->skip_waits, "%s", zinf_error());
        snprintf(out->folder, sizeof out->folder, "%s/out-%s", work, name);
        CHECKF(out->failed || !zinf_trainer_save(t, out->folder), "%s", zinf_error());
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    if (device == ZINF_DEVICE_CUDA)
        end_gpu(s);
}

static void check_same(const struct outcome *a, const struct outcome *b, const char *what)
{
    for (int i = 0; i < STEPS; i++) {
        CHECKF(a->loss[i] == b->loss[i], "%s: loss %d: %.17g, %.17g", what, i, a->loss[i],
               b->loss[i]);
        CHECKF(a->norm[i] == b->norm[i], "%s: norm %d: %.17g, %.17g", what, i, a->norm[i],
               b->norm[i]);
    }
    CHECKF(same_weights(a->folder, b->folder), "%s: weights differ", what);
}

/* Relative distance of the losses, step by step. */
static void check_near(const struct outcome *a, const struct outcome *b, double bound)
{
    for (int i = 0; i < STEPS; i++)
        CHECKF(fabs(a->loss[i] - b->loss[i]) <= bound * fabs(b->loss[i]), "loss %d: %.9g, %.9g", i,
               a->loss[i], b->loss[i]);
}

/* ---- cases ---- */

/* What differs in what waits for what. */
static const struct {
    const char *param, *optimizer, *schedule;
} ways[] = {
    {"none", "none", "prefetch"},
    {"none", "none", "update-in-forward"},
    {"none", "cpu", "prefetch"},
    {"none", "cpu", "update-in-forward"},
    {"cpu", "cpu", "prefetch"},
    {"cpu", "nvme", "update-in-backward"},
    {"nvme", "nvme", "serial"},
    {"nvme", "nvme", "prefetch"},
    {"nvme", "nvme", "update-in-forward"},
    {"nvme", "nvme", "update-in-backward"},
};

/* Kernels on fibers take minutes under the thread sanitizer: it gets the fewest that have all
 * lanes.
 */
static bool is_slow(void)
{
    const char *sanitizer = getenv("ZINF_SANITIZER");
    return sanitizer && strstr(sanitizer, "thread");
}

/* Each way against one thing after another from RAM, and that against the host. */
static void check_ways(struct setting s, double bound)
{
    struct outcome host, reference, other;
    run_on(ZINF_DEVICE_HOST, &s, "host", &host);
    run_on(ZINF_DEVICE_CUDA, &s, "reference", &reference);
    check_near(&reference, &host, bound);
    for (size_t i = is_slow(); i < sizeof ways / sizeof *ways; i += is_slow() ? 8 : 1) {
        char what[200];
        s.param = ways[i].param;
        s.optimizer = ways[i].optimizer;
        s.schedule = ways[i].schedule;
        s.seed = 1 + i;
        snprintf(what, sizeof what, "param %s, optimizer %s, %s", s.param, s.optimizer, s.schedule);
        run_on(ZINF_DEVICE_CUDA, &s, "other", &other);
        check_same(&reference, &other, what);
        CHECKF(!strcmp(other.schedule, s.schedule), "%s: ran %s", what, other.schedule);
        if (s.clip > 0 && !strcmp(s.schedule, "update-in-backward"))
            CHECKF(other.n_redone > 0, "%s: no step was redone", what);
    }
}

static void test_fp32(void)
{
    struct setting s = {.accumulation = 1};
    check_ways(s, 2e-6);
}

static void test_bf16_clipping(void)
{
    if (is_slow())
        SKIP("slow under this sanitizer");
    struct setting s = {.accumulation = MAX_ACCUMULATION,
                        .clip = 4,
                        .sparse = true,
                        .precision = "\"bf16\": {\"enabled\": true},"};
    check_ways(s, 4e-3);
}

static void test_activations_elsewhere(void)
{
    if (is_slow())
        SKIP("slow under this sanitizer");
    static const char *const devices[] = {"cpu", "nvme"};
    struct setting s = {.accumulation = MAX_ACCUMULATION, .param = "nvme", .optimizer = "nvme"};
    struct outcome reference, other;
    run_on(ZINF_DEVICE_CUDA, &s, "reference", &reference);
    for (uint64_t i = 0; i < 2; i++) {
        char extra[100];
        snprintf(extra, sizeof extra,
                 ", \"activation_device\": \"%s\", \"activation_checkpointing\": \"always\"",
                 devices[i]);
        s.extra = extra;
        s.schedule = i % 2 ? "update-in-forward" : "prefetch";
        s.seed = 20 + i;
        run_on(ZINF_DEVICE_CUDA, &s, "other", &other);
        check_same(&reference, &other, extra);
    }
}

static bool has_room(const struct setting *s)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = {.mode = ZINF_TRAINER_TRAIN,
                                           .model_path = model,
                                           .config = config,
                                           .seq_len = SEQ,
                                           .device = ZINF_DEVICE_CUDA};
    begin_gpu(s);
    bool good = !zinf_trainer_create(&t, &options);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return good;
}

/* No more than without which there is no plan. */
static void take_least_memory(struct setting *s)
{
    s->device_memory = (uint64_t)64 << 20;
    for (uint64_t step = s->device_memory / 2; step >= 8192; step /= 2) {
        s->device_memory -= step;
        if (!has_room(s))
            s->device_memory += step;
    }
}

/* So little memory that fetches take turns in few slots: a slot's next tenant waits for the last.
 */
static void test_few_slots(void)
{
    if (is_slow())
        SKIP("slow under this sanitizer");
    struct setting s = {.accumulation = 1, .extra = ", \"look_ahead\": 1"};
    struct outcome reference, other;
    run_on(ZINF_DEVICE_CUDA, &s, "reference", &reference);
    take_least_memory(&s);
    for (s.seed = 1; s.seed <= 3; s.seed++) {
        s.param = s.seed == 3 ? "nvme" : "cpu";
        s.schedule = s.seed == 2 ? "update-in-forward" : "prefetch";
        run_on(ZINF_DEVICE_CUDA, &s, "other", &other);
        check_same(&reference, &other, "few slots");
    }
}

/* A share of the optimizer's state on the GPU, which updates it: on request, or where there is room
 * for it. The units of the rest speculate as ever. */
static void test_shares_of_the_optimizer(void)
{
    static const char *const schedules[] = {"serial", "prefetch", "update-in-forward",
                                            "update-in-backward"};
    static const char *const precisions[] = {"", "\"bf16\": {\"enabled\": true},",
                                             "\"fp16\": {\"enabled\": true},"};
    if (is_slow())
        SKIP("slow under this sanitizer");
    for (uint64_t p = 0; p < 3; p++) {
        struct setting s = {.accumulation = p == 1 ? MAX_ACCUMULATION : 1,
                            .clip = 4,
                            .sparse = true,
                            .precision = precisions[p]};
        struct outcome reference, host, other;
        run_on(ZINF_DEVICE_CUDA, &s, "reference", &reference);
        CHECK(reference.n_far == 0);
        s.on_device = 0.5;
        run_on(ZINF_DEVICE_HOST, &s, "host", &host);
        check_near(&reference, &host, p ? 4e-3 : 2e-6);
        for (uint64_t i = 0; i < 4; i++) {
            s.seed = 30 + i + p;
            s.schedule = schedules[i];
            s.param = i % 2 ? "nvme" : "cpu";
            s.optimizer = i % 2 ? "nvme" : "cpu";
            s.on_device = i == 2 && p == 2 ? 1 : 0.5;
            run_on(ZINF_DEVICE_CUDA, &s, "other", &other);
            check_same(&reference, &other, s.schedule);
            CHECKF(s.on_device == 1 ? other.n_far == 5 : other.n_far > 0 && other.n_far < 5,
                   "%u units on the device", other.n_far);
        }
    }
}

/* zinf.optimizer_device auto: no more state on the GPU than it has room for, and all where it has.
 */
static void test_what_there_is_room_for(void)
{
    if (is_slow())
        SKIP("slow under this sanitizer");
    struct setting s = {.clip = 4, .optimizer = "nvme"};
    struct outcome reference, other;
    unsigned before = 0, some = 0;
    run_on(ZINF_DEVICE_CUDA, &s, "reference", &reference);
    s.extra = ", \"optimizer_device\": \"auto\"";
    s.schedule = "update-in-forward";
    take_least_memory(&s);
    for (s.seed = 1; s.seed <= 4; s.seed++, s.device_memory += s.seed < 4 ? 300000 : 4 << 20) {
        run_on(ZINF_DEVICE_CUDA, &s, "other", &other);
        check_same(&reference, &other, "as much as there is room for");
        CHECKF(other.n_far >= before, "%u units, %u with less room", other.n_far, before);
        CHECKF(s.seed > 1 || !other.n_far, "%u units in the least room", other.n_far);
        before = other.n_far;
        some += before && before < 5;
    }
    CHECKF(before == 5 && some, "%u units where there is room for all", before);
}

/* A loss and a row of logits; the sum of losses is in loss[0]. */
static void look_forward(enum zinf_device_kind device, const struct setting *s, double *loss,
                         float *logits)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = NULL;
    static int32_t ids[ROWS], targets[ROWS];
    uint64_t count = 0;
    struct zinf_trainer_options options = {.mode = ZINF_TRAINER_FORWARD,
                                           .model_path = model,
                                           .config = config,
                                           .seq_len = SEQ,
                                           .device = device};
    draw_tokens(0, false, ids, targets);
    if (device == ZINF_DEVICE_CUDA)
        begin_gpu(s);
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    if (!t)
        return;
    CHECKF(!zinf_trainer_loss(t, ids, targets, BATCH, loss, &count), "%s", zinf_error());
    CHECKF(!zinf_trainer_logits(t, ids, SEQ - 2, logits), "%s", zinf_error());
    CHECK(count == BATCH * SEQ);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_forward_alone(void)
{
    struct setting s = {.param = "nvme", .seed = 9};
    double host_loss = 0, loss = 0, worst = 0;
    float host_logits[VOCAB], logits[VOCAB];
    look_forward(ZINF_DEVICE_HOST, &s, &host_loss, host_logits);
    look_forward(ZINF_DEVICE_CUDA, &s, &loss, logits);
    CHECKF(fabs(loss - host_loss) <= 2e-6 * host_loss, "loss %.9g, %.9g", loss, host_loss);
    for (int i = 0; i < VOCAB; i++)
        worst = fmax(worst, (double)fabsf(logits[i] - host_logits[i]));
    CHECKF(worst < 2e-5, "logits differ by %g", worst);
}

#ifdef CUDA_STANDIN
static bool is_same(const struct outcome *a, const struct outcome *b)
{
    return !a->failed && !b->failed && !memcmp(a->loss, b->loss, sizeof a->loss) &&
           !memcmp(a->norm, b->norm, sizeof a->norm) && same_weights(a->folder, b->folder);
}

/* The test can fail: without the waits of queues for events, some order of running shows it. */
static void test_waits_left_out_show(void)
{
    struct setting s = {.accumulation = 1, .param = "none", .optimizer = "cpu"};
    struct outcome reference, other;
    int shown = 0;
    run_on(ZINF_DEVICE_CUDA, &s, "reference", &reference);
    s.param = "nvme";
    s.schedule = "prefetch";
    s.skip_waits = 1000000;
    for (s.seed = 1; s.seed <= 4 && !shown; s.seed++) {
        run_on(ZINF_DEVICE_CUDA, &s, "other", &other);
        shown += RACES ? n_races > 0 : !is_same(&reference, &other);
    }
    CHECKF(shown > 0, "no run without waits went wrong");
}

/* A GPU that breaks in the middle of a step: the step ends, with a sentence that names what failed
 * and where, whether CUDA says so at once or only later. */
static void test_a_gpu_that_breaks(void)
{
    for (int late = 0; late < 2; late++) {
        struct setting s = {.param = "cpu", .optimizer = "cpu", .schedule = "prefetch", .seed = 5};
        struct zinf_config *config = configure(&s);
        struct zinf_trainer *t = NULL;
        struct zinf_step_result r;
        static int32_t ids[ROWS], targets[ROWS];
        struct zinf_trainer_options options = {.mode = ZINF_TRAINER_TRAIN,
                                               .model_path = model,
                                               .config = config,
                                               .seq_len = SEQ,
                                               .device = ZINF_DEVICE_CUDA};
        draw_tokens(0, false, ids, targets);
        begin_gpu(&s);
        CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
        if (!t)
            return;
        CHECKF(!zinf_trainer_step(t, ids, targets, &r), "%s", zinf_error());
        gpu.fail(late ? 0 : 40, late ? 10 : 0);
        CHECK(zinf_trainer_step(t, ids, targets, &r) == -EIO);
        /* the operation and its unit, the call, what CUDA says, what is free */
        CHECKF(strstr(zinf_error(), late ? "waiting for an event: CUDA error" : " block.") &&
                   strstr(zinf_error(), "free on the GPU"),
               "%s", zinf_error());
        CHECK(zinf_trainer_step(t, ids, targets, &r) == -EIO);
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
    }
}
#endif

int main(void)
{
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 2, .hidden = 32, .heads = 2, .vocab = VOCAB, .context = 16};
    cJSON *config = NULL;
    const char *missing = open_gpu();
    if (missing) {
        printf("1..0 # SKIP %s\n", missing);
        return 0;
    }
    make_work("cuda-train");
    zinf_log_set_level(ZINF_LOG_ERROR);
    snprintf(drive, sizeof drive, "%s/drive", work);
    snprintf(model, sizeof model, "%s/model", work);
    zinf_make_dirs(drive);
    CHECKF(!zinf_model_make_config(&shape, ZINF_DTYPE_F32, &config), "%s", zinf_error());
    CHECKF(!zinf_model_write_new(config, ZINF_DTYPE_F32, 11, model), "%s", zinf_error());
    cJSON_Delete(config);
    TAP_RUN(test_fp32);
    TAP_RUN(test_bf16_clipping);
    TAP_RUN(test_activations_elsewhere);
    TAP_RUN(test_few_slots);
    TAP_RUN(test_shares_of_the_optimizer);
    TAP_RUN(test_what_there_is_room_for);
    TAP_RUN(test_forward_alone);
#ifdef CUDA_STANDIN
    TAP_RUN(test_waits_left_out_show);
    TAP_RUN(test_a_gpu_that_breaks);
#endif
    remove_work();
    return tap_done();
}
