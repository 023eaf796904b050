/*
 * Whole trainings on the CUDA device: every schedule and placement gives the bits of the run that
 * does one thing after another, whatever the order in which the GPU's queues happen to run, and
 * the losses of the host device within rounding. With CUDA_STANDIN the GPU is tests/cuda_standin,
 * loaded as the module that it is for the program: nothing runs before something waits for it, and
 * then in random order; a wait that is left out shows. Under the thread sanitizer everything runs
 * at once instead, and a wait that is left out is a race. Without the stand-in it is the machine's
 * own GPU.
 */
#include "train/trainer.h"
#include "trainings.h"

#include <dlfcn.h>

#ifdef CUDA_STANDIN
#include "standin.h"
#endif

enum { STEPS = 4, SEQ = 8, BATCH = 2, MAX_ACCUMULATION = 2, VOCAB = 160 };
enum { ROWS = MAX_ACCUMULATION * BATCH * SEQ };

static uint64_t seed;  /* of the order in which the GPU's queues run */
static size_t pin_all; /* most host memory that is page-locked together */
static int skip_waits; /* so many waits of a queue for an event are forgotten, from the 40th on */
static int capability; /* of the GPU; 0: the usual one */

/* ---- the GPU ---- */

#ifdef CUDA_STANDIN
static size_t pin_call;      /* most host memory that is page-locked at once */
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

static void begin_gpu(void)
{
    struct standin_options options = {.seed = seed,
                                      .dawdle_us = seed ? 300 : 0,
                                      .memory_bytes = 1u << 30,
                                      .capability = capability,
                                      .pin_call = pin_call,
                                      .pin_all = pin_all,
                                      .at_once = RACES};
    n_races = 0;
    gpu.start(&options);
    gpu.skip_waits(40, skip_waits);
}

static void end_gpu(void)
{
    CHECKF(!gpu.faults(), "%d faults of the stand-in", gpu.faults());
    CHECKF(!gpu.live(), "%d objects left", gpu.live());
    CHECKF(!n_races || skip_waits, "%d races", n_races);
    CHECKF(gpu.waits() > 40 || !seed, "%d waits", gpu.waits());
}
#else
static const char *open_gpu(void)
{
    return zinf_device_cuda_why_not();
}

static void begin_gpu(void)
{
}

static void end_gpu(void)
{
}
#endif

/* ---- one training ---- */

static void run_here(const struct setting *s, const char *name, struct outcome *out)
{
    if (s->on_gpu)
        begin_gpu();
    run(s, name, out);
    if (s->on_gpu)
        end_gpu();
    CHECKF(pin_all || out->pageable == (s->on_gpu ? 0 : -STEPS) || out->failed,
           "%lld copies from or to memory that is not page-locked", (long long)out->pageable);
}

/* On the GPU, one thing after another, from RAM. */
static struct setting plain_setting(void)
{
    seed = 0;
    skip_waits = 0;
    return (struct setting){.param = "cpu", .state = "cpu", .schedule = "serial", .on_gpu = true};
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
    const char *param, *state, *schedule;
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
    s.on_gpu = false;
    run_here(&s, "host", &host);
    s.on_gpu = true;
    run_here(&s, "reference", &reference);
    check_near(&reference, &host, bound);
    for (size_t i = is_slow(); i < sizeof ways / sizeof *ways; i += is_slow() ? 8 : 1) {
        char what[200];
        s.param = ways[i].param;
        s.state = ways[i].state;
        s.schedule = ways[i].schedule;
        seed = 1 + i;
        snprintf(what, sizeof what, "param %s, optimizer %s, %s", s.param, s.state, s.schedule);
        run_here(&s, "other", &other);
        check_same(&reference, &other, what);
        CHECKF(!strcmp(other.schedule, s.schedule), "%s: ran %s", what, other.schedule);
        if (s.clip > 0 && !strcmp(s.schedule, "update-in-backward"))
            CHECKF(other.n_redone > 0, "%s: no step was redone", what);
    }
}

static void test_fp32(void)
{
    check_ways(plain_setting(), 2e-6);
}

static void check_magnitudes(const char *adapter)
{
    struct setting s = plain_setting();
    struct outcome host, reference, other;
    s.extra = adapter;
    run_here(&s, "reference", &reference);
    s.on_gpu = false;
    run_here(&s, "host", &host);
    check_near(&reference, &host, 2e-6);
    s.on_gpu = true;
    s.param = s.state = "nvme";
    s.schedule = "prefetch";
    seed = 60;
    run_here(&s, "other", &other);
    check_same(&reference, &other, "magnitudes");
}

/* Adapters with magnitudes of their own, and these behind dropout. */
static void test_magnitudes(void)
{
    check_magnitudes(", \"adapter\": {\"r\": 3, \"lora_alpha\": 7, \"use_dora\": true}");
    check_magnitudes(", \"adapter\": {\"r\": 3, \"lora_alpha\": 7, \"use_dora\": true, "
                     "\"lora_dropout\": 0.25}");
}

/* Optimizers that the CPU alone makes, by tensor; Muon's products are the host's. */
static void test_optimizers_by_tensor(void)
{
    static const char *const extras[] = {
        ", \"learning_rates\": [{\"pattern\": \"*.weight\", \"optimizer\": \"Lion\", "
        "\"scale\": 0.1}]",
        ", \"learning_rates\": [{\"pattern\": \"*.c_*.weight\", \"optimizer\": \"Muon\"}]"};
    for (int i = 0; i < 2; i++) {
        struct setting s = plain_setting();
        struct outcome host, reference, other;
        s.extra = extras[i];
        run_here(&s, "reference", &reference);
        s.on_gpu = false;
        run_here(&s, "host", &host);
        check_near(&reference, &host, 2e-5);
        s.on_gpu = true;
        s.param = s.state = "nvme";
        s.schedule = "update-in-forward";
        seed = 70 + (uint64_t)i;
        run_here(&s, "other", &other);
        check_same(&reference, &other, s.extra);
        s.param = s.state = "none";
        s.may_fail = true;
        run(&s, "refused", &other);
        CHECKF(other.failed && strstr(zinf_error(), "updates only Adam"), "%s", zinf_error());
    }
}

/* Matrices that come to the GPU as the codes that products make of them anyway. */
static void check_codes(struct setting s)
{
    static const size_t some[] = {4, 5, 7, 9};
    struct outcome reference, other;
    run_here(&s, "reference", &reference);
    s.asks_codes = true;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        s.param = ways[some[i]].param;
        s.state = ways[some[i]].state;
        s.schedule = ways[some[i]].schedule;
        seed = 90 + i;
        run_here(&s, "other", &other);
        check_same(&reference, &other, s.schedule);
        CHECKF(other.codes, "%s from %s: no codes", s.schedule, s.param);
        if (!i) /* tables, which go as they are, are most of this model */
            CHECKF(other.fetched < 0.9 * (double)reference.fetched, "%llu bytes, %llu without",
                   (unsigned long long)other.fetched, (unsigned long long)reference.fetched);
    }
}

/* Products of floats of 8 bits: the host's numbers, in every placement the same bits. */
static void test_float8(void)
{
    if (is_slow())
        SKIP("slow under this sanitizer");
#ifndef CUDA_STANDIN
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA};
    struct zinf_device *device = NULL;
    bool has = !zinf_device_create(&device, &options) && device->has_float8;
    zinf_device_destroy(device);
    if (!has)
        SKIP("this GPU has no units for floats of 8 bits");
#endif
    struct setting s = plain_setting();
    s.precision = bf16;
    s.extra = ", \"matmul_type\": \"fp8\"";
    capability = 89;
    check_ways(s, 2e-3);
    check_codes(s);
    capability = 0;
}

static void test_bf16_clipping(void)
{
    if (is_slow())
        SKIP("slow under this sanitizer");
    struct setting s = plain_setting();
    s.accumulation = MAX_ACCUMULATION;
    s.clip = 4;
    s.sparse = true;
    s.precision = bf16;
    check_ways(s, 4e-3);
}

/* chunk: a key of sequences in chunks, or nothing. */
static void check_activations(const char *chunk)
{
    static const char *const devices[] = {"cpu", "nvme"};
    struct setting s = plain_setting();
    struct outcome reference, other;
    s.accumulation = MAX_ACCUMULATION;
    s.param = s.state = "nvme";
    s.extra = chunk;
    run_here(&s, "reference", &reference);
    for (uint64_t i = 0; i < 2; i++) {
        char extra[200];
        snprintf(extra, sizeof extra,
                 "%s, \"activation_device\": \"%s\", \"activation_checkpointing\": \"always\"",
                 chunk, devices[i]);
        s.extra = extra;
        s.schedule = i % 2 ? "update-in-forward" : "prefetch";
        seed = 20 + i;
        run_here(&s, "other", &other);
        check_same(&reference, &other, extra);
    }
}

static void test_activations_elsewhere(void)
{
    if (is_slow())
        SKIP("slow under this sanitizer");
    check_activations("");
    check_activations(", \"sequence_chunk\": 2"); /* more chunks than buffers for their rows */
}

/* Rows of chunks go to the GPU with each expert that they have chosen. */
static void test_experts_in_chunks(void)
{
    struct zinf_model_shape shape = trainings.shape;
    if (is_slow())
        SKIP("slow under this sanitizer");
    shape.arch = "mixtral";
    make_model(model, "experts", &shape, 11);
    check_activations(", \"sequence_chunk\": 2");
    in_work(model, "model");
}

/* A training on pairs. */
static void run_pairs(const struct setting *s, const char *name, struct outcome *out)
{
    static int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    static const int32_t labels[] = {3, -1, 1, -1};
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = trainer_options(s, config);
    const struct zinf_batch batch = {
        .inputs = {
            [ZINF_INPUT_IDS] = ids, [ZINF_INPUT_TARGETS] = targets, [ZINF_INPUT_LABELS] = labels}};
    memset(out, 0, sizeof *out);
    config->micro_batch = BATCH / 2;
    options.pairs = true;
    if (s->on_gpu)
        begin_gpu();
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    for (int step = 0; t && step < STEPS; step++) {
        struct zinf_step_result r = {0};
        draw_tokens(s, (uint64_t)step, ids, targets);
        CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
        CHECK(r.rewards.n == 2);
        note_step(out, step, &r);
    }
    snprintf(out->folder, sizeof out->folder, "%s/out-%s", work, name);
    CHECKF(t && !zinf_trainer_save(t, out->folder), "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    if (s->on_gpu)
        end_gpu();
}

/* Their losses are made on the host of what many chunks have told, and gradients go back. */
static void test_pairs_in_chunks(void)
{
    static const size_t some[] = {5, 8};
    struct setting s = plain_setting();
    struct outcome host, reference, other;
    if (is_slow())
        SKIP("slow under this sanitizer");
    s.accumulation = MAX_ACCUMULATION;
    s.extra = ", \"sequence_chunk\": 2, \"preference\": \"orpo\"";
    run_pairs(&s, "reference", &reference);
    s.on_gpu = false;
    run_pairs(&s, "host", &host);
    check_near(&reference, &host, 2e-6);
    s.on_gpu = true;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        s.param = ways[some[i]].param;
        s.state = ways[some[i]].state;
        s.schedule = ways[some[i]].schedule;
        seed = 30 + i;
        run_pairs(&s, "other", &other);
        check_same(&reference, &other, "pairs in chunks");
    }
}

#ifdef CUDA_STANDIN
/* Where host memory is page-locked in pieces, copies go over their edges and none waits; where only
 * a part of it is, those of the rest wait and are counted. The bits are the same. */
static void test_pinning_has_limits(void)
{
    struct setting s = plain_setting();
    struct outcome reference, pieces, part;
    s.accumulation = MAX_ACCUMULATION;
    run_here(&s, "reference", &reference);
    s.state = "nvme";
    s.schedule = "update-in-forward";
    seed = 90;
    pin_call = 256 << 10;
    run_here(&s, "pieces", &pieces);
    check_same(&reference, &pieces, "page-locked in pieces");
    pin_call = 0;
    pin_all = 256 << 10;
    run_here(&s, "part", &part);
    check_same(&reference, &part, "page-locked in part");
    CHECKF(part.pageable > STEPS, "%lld copies waited", (long long)part.pageable);
    pin_all = 0;
}
#endif

static bool has_room(const struct setting *s)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = trainer_options(s, config);
    begin_gpu();
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
    struct setting s = plain_setting();
    struct outcome reference, other;
    s.look_ahead = "1";
    run_here(&s, "reference", &reference);
    take_least_memory(&s);
    for (seed = 1; seed <= 3; seed++) {
        s.param = seed == 3 ? "nvme" : "cpu";
        s.schedule = seed == 2 ? "update-in-forward" : "prefetch";
        run_here(&s, "other", &other);
        check_same(&reference, &other, "few slots");
    }
}

/* A share of the optimizer's state on the GPU, which updates it: on request, or where there is room
 * for it. The units of the rest speculate as ever. */
static void test_shares_of_the_optimizer(void)
{
    static const char *const precisions[] = {"", bf16, "\"fp16\": {\"enabled\": true},"};
    if (is_slow())
        SKIP("slow under this sanitizer");
    for (uint64_t p = 0; p < 3; p++) {
        struct setting s = plain_setting();
        struct outcome reference, host, other;
        s.accumulation = p == 1 ? MAX_ACCUMULATION : 1;
        s.clip = 4;
        s.sparse = true;
        s.precision = precisions[p];
        run_here(&s, "reference", &reference);
        CHECK(reference.n_far == 0);
        s.on_device = 0.5;
        s.on_gpu = false;
        run_here(&s, "host", &host);
        check_near(&reference, &host, p ? 4e-3 : 2e-6);
        s.on_gpu = true;
        for (uint64_t i = 0; i < 4; i++) {
            seed = 30 + i + p;
            s.schedule = schedules[i];
            s.param = s.state = i % 2 ? "nvme" : "cpu";
            s.on_device = i == 2 && p == 2 ? 1 : 0.5;
            run_here(&s, "other", &other);
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
    struct setting s = plain_setting();
    struct outcome reference, other;
    unsigned before = 0, some = 0;
    s.clip = 4;
    s.state = "nvme";
    run_here(&s, "reference", &reference);
    s.extra = ", \"optimizer_device\": \"auto\"";
    s.schedule = "update-in-forward";
    take_least_memory(&s);
    for (seed = 1; seed <= 4; seed++, s.device_memory += seed < 4 ? 300000 : 4 << 20) {
        run_here(&s, "other", &other);
        check_same(&reference, &other, "as much as there is room for");
        CHECKF(other.n_far >= before, "%u units, %u with less room", other.n_far, before);
        CHECKF(seed > 1 || !other.n_far, "%u units in the least room", other.n_far);
        before = other.n_far;
        some += before && before < 5;
    }
    CHECKF(before == 5 && some, "%u units where there is room for all", before);
}

/* Sums of micro-batches' gradients stay on the GPU where the way to RAM is long: they come once. */
static void test_sums_of_gradients(void)
{
    static const struct zinf_speeds slow = {.link_bytes = 1e6, .optimizer_bytes = 1e12};
    static const struct zinf_speeds fast = {.link_bytes = 1e15, .optimizer_bytes = 1e15};
    static const char *const places[] = {"cpu", "nvme"};
    if (is_slow())
        SKIP("slow under this sanitizer");
    struct setting s = plain_setting();
    struct outcome reference, other;
    s.accumulation = MAX_ACCUMULATION;
    s.clip = 4;
    s.sparse = true;
    s.precision = bf16;
    s.order = "micro-major";
    s.speeds = &fast;
    run_here(&s, "reference", &reference);
    s.speeds = &slow;
    for (uint64_t i = 0; i < 6; i++) {
        char what[64];
        s.state = places[i % 2];
        s.param = places[i % 4 > 1];
        s.schedule = schedules[1 + i / 2];
        seed = 40 + i;
        snprintf(what, sizeof what, "sums on the GPU, state on %s, %s", s.state, s.schedule);
        run_here(&s, "other", &other);
        check_same(&reference, &other, what);
        CHECKF(i || other.returned < reference.returned * 4 / 5,
               "%s: %llu bytes returned, not %llu", what, (unsigned long long)other.returned,
               (unsigned long long)reference.returned);
    }
}

/* Where the CPU is slow and the GPU has no room for sums, these come to it and go back. */
static void test_sums_come_to_the_device(void)
{
    static const struct zinf_speeds fast = {
        .link_bytes = 1e15, .device_flops = 1e15, .device_bytes = 1e15, .optimizer_bytes = 1e6};
    static const struct zinf_speeds slow_link = {.link_bytes = 1e6, .optimizer_bytes = 1e12};
    if (is_slow())
        SKIP("slow under this sanitizer");
    struct setting s = plain_setting();
    struct outcome reference, other;
    unsigned some = 0;
    s.accumulation = MAX_ACCUMULATION;
    s.clip = 4;
    s.sparse = true;
    s.precision = bf16;
    s.state = s.param = s.grad = "cpu";
    s.order = "micro-major";
    s.speeds = &slow_link; /* on which they would go both ways */
    run_here(&s, "reference", &reference);
    CHECK(!reference.adds_there);
    s.speeds = &fast;
    take_least_memory(&s);
    for (uint64_t i = 0; i < 4; i++) {
        s.schedule = schedules[i];
        s.device_memory += 60000;
        seed = 80 + i;
        run_here(&s, "other", &other);
        check_same(&reference, &other, s.schedule);
        some += other.adds_there;
    }
    CHECKF(some, "no sum came to the device");
}

/* Where it is that way that limits a step, gradients of some layers wait for the next forward. */
static void test_gradients_that_wait(void)
{
    static const struct zinf_speeds slow = {
        .link_bytes = 1e6, .device_flops = 1e15, .device_bytes = 1e15, .optimizer_bytes = 1e12};
    if (is_slow())
        SKIP("slow under this sanitizer");
    struct setting s = plain_setting();
    struct outcome reference, other;
    unsigned some = 0;
    s.clip = 4;
    s.sparse = true;
    s.precision = bf16;
    s.state = s.param = s.grad = "cpu";
    run_here(&s, "reference", &reference);
    CHECK(!reference.grads_there);
    s.speeds = &slow;
    for (uint64_t i = 1; i < 4; i++) {
        s.schedule = schedules[i];
        seed = 60 + i;
        run_here(&s, "other", &other);
        check_same(&reference, &other, s.schedule);
        some += other.grads_there;
    }
    CHECKF(some, "no gradient waited on the device");
}

/* A loss and a row of logits; the sum of losses is in loss[0]. */
static void look_forward(const struct setting *s, double *loss, float *logits)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = NULL;
    static int32_t ids[ROWS], targets[ROWS];
    uint64_t count = 0;
    struct zinf_trainer_options options = trainer_options(s, config);
    options.mode = ZINF_TRAINER_FORWARD;
    draw_tokens(s, 0, ids, targets);
    if (s->on_gpu)
        begin_gpu();
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    if (!t)
        return;
    CHECKF(!zinf_trainer_loss(t, TOKENS(ids, targets), BATCH, loss, &count), "%s", zinf_error());
    CHECKF(!zinf_trainer_logits(t, ids, SEQ - 2, logits), "%s", zinf_error());
    CHECK(count == BATCH * SEQ);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* The link is slow enough that whatever spares it is worth it; the drive does not limit steps. */
static const struct zinf_speeds slow_link = {.device_flops = 1e12,
                                             .device_bytes = 1e11,
                                             .link_bytes = 3e5,
                                             .optimizer_bytes = 1e11,
                                             .drive_read_bytes = 1e8,
                                             .drive_write_bytes = 1e8};

/* Parameters that the device unpacks: from the drive, from RAM, and from both where RAM has half
 * the room that they need. */
static void test_packed_parameters(void)
{
    static const char *const precisions[] = {bf16, "", "\"fp16\": {\"enabled\": true},"};
    int n_there = 0, n_fronts = 0;
    if (is_slow())
        SKIP("slow under this sanitizer");
    for (uint64_t p = 0; p < 3; p++) {
        struct setting s = plain_setting();
        struct outcome reference, other;
        s.clip = 4;
        s.sparse = true;
        s.precision = precisions[p];
        run_here(&s, "reference", &reference);
        s.speeds = &slow_link;
        s.extra = ", \"pack\": \"all\"";
        s.state = "nvme";
        s.asks_fronts = true;
        for (uint64_t i = 0; i < 4; i++) {
            char what[100];
            seed = 50 + 4 * p + i;
            s.param = i % 2 ? "cpu" : "nvme";
            s.schedule = i < 2 ? "update-in-backward" : "update-in-forward";
            s.head_margin = i == 3 ? 0.5 : 0;
            s.host_memory = i % 2 ? RESIDENT + ((uint64_t)10 << 20) : 0;
            snprintf(what, sizeof what, "packed parameters, %d, %d", (int)p, (int)i);
            run_here(&s, "other", &other);
            check_same(&reference, &other, what);
            n_there += other.unpacks_there;
            n_fronts += other.unpacks_there && other.packs_fronts;
        }
        s.param = "nvme";
        s.schedule = "prefetch";
        s.host_memory = 0;
        s.clip = 0;
        seed = 70 + p;
        run_here(&s, "other", &other);
        s.extra = ", \"pack\": \"state\"";
        run_here(&s, "reference", &reference);
        check_same(&reference, &other, "fewer bytes");
        CHECKF(other.fetched < reference.fetched && other.unpacks_there,
               "%llu bytes to the device, unpacked %llu", (unsigned long long)other.fetched,
               (unsigned long long)reference.fetched);
    }
    CHECKF(n_there > 8 && n_fronts > 2, "%d plans unpack on the device, %d from RAM", n_there,
           n_fronts);
}

/* It is refused, by the name of the sub-group. */
static void refuses_damage(int code, const char *what)
{
    CHECKF(code == -EBADMSG &&
               strstr(zinf_error(), "packed parameters of sub-group 0 is damaged") != NULL,
           "%s: %d, %s", what, code, zinf_error());
}

/* A bit that falls over in RAM, in what has no checksum on a drive: whoever unpacks it, neither a
 * loss nor logits nor a step count. */
static void check_damage(bool on_gpu)
{
    static int32_t ids[ROWS], targets[ROWS];
    static float logits[VOCAB];
    double loss, norm;
    uint64_t count;
    struct setting s = plain_setting();
    s.on_gpu = on_gpu;
    s.precision = bf16;
    s.speeds = &slow_link;
    s.extra = ", \"pack\": \"all\"";
    s.state = "nvme";
    s.host_memory = RESIDENT + ((uint64_t)16 << 20);
    s.asks_fronts = true;
    if (on_gpu)
        begin_gpu();
    struct zinf_config *config = configure(&s);
    struct zinf_trainer_options options = trainer_options(&s, config);
    struct zinf_trainer *t = NULL;
    struct zinf_step_result r;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    if (t) {
        CHECK(plan_says(t, "parameters in RAM are packed"));
        CHECK(!on_gpu || plan_says(t, "device as they are, which unpacks them"));
        for (uint64_t step = 0; step < 2; step++)
            CHECKF(!next_step(t, &s, step, &r), "%s", zinf_error());
        CHECK(!trainer_settle(t));
        const struct zinf_location where = zinf_tiers_group_param(t->plan.tiers, 0, 0);
        const struct zinf_packed *packed = zinf_tiers_packed(t->plan.tiers, ZINF_PACKABLE_PARAM, 0,
                                                             zinf_location_generation(&where));
        CHECK(where.head && packed->read_pages && packed->read_pages * 4096ull <= where.head);
        where.memory[packed->read_pages * 2048ull] ^= 16; /* in the middle: a number */
        draw_tokens(&s, 2, ids, targets);
        refuses_damage(zinf_trainer_loss(t, TOKENS(ids, targets), BATCH, &loss, &count), "loss");
        refuses_damage(zinf_trainer_logits(t, ids, SEQ - 2, logits), "logits");
        refuses_damage(zinf_trainer_gradients(t, TOKENS(ids, targets), &loss, &norm), "gradients");
        refuses_damage(next_step(t, &s, 2, &r), "step");
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    if (on_gpu)
        end_gpu();
}

static void test_damage_in_ram(void)
{
    for (int on_gpu = 0; on_gpu < 2; on_gpu++)
        check_damage(on_gpu);
}

static void test_forward_alone(void)
{
    struct setting s = plain_setting();
    double host_loss = 0, loss = 0, worst = 0;
    float host_logits[VOCAB], logits[VOCAB];
    s.param = "nvme";
    s.on_gpu = false;
    look_forward(&s, &host_loss, host_logits);
    seed = 9;
    s.on_gpu = true;
    look_forward(&s, &loss, logits);
    CHECKF(fabs(loss - host_loss) <= 2e-6 * host_loss, "loss %.9g, %.9g", loss, host_loss);
    for (int i = 0; i < VOCAB; i++)
        worst = fmax(worst, (double)fabsf(logits[i] - host_logits[i]));
    CHECKF(worst < 2e-5, "logits differ by %g", worst);
}

#ifdef CUDA_STANDIN
static bool is_same(const struct outcome *a, const struct outcome *b)
{
    return !a->failed && !b->failed && !memcmp(a->loss, b->loss, STEPS * sizeof *a->loss) &&
           !memcmp(a->norm, b->norm, STEPS * sizeof *a->norm) && same_weights(a->folder, b->folder);
}

/* The test can fail: without the waits of queues for events, some order of running shows it. */
static void test_waits_left_out_show(void)
{
    struct setting s = plain_setting();
    struct outcome reference, other;
    int shown = 0;
    s.param = "none";
    run_here(&s, "reference", &reference);
    s.param = "nvme";
    s.schedule = "prefetch";
    s.may_fail = true;
    skip_waits = 1000000;
    for (seed = 1; seed <= 4 && !shown; seed++) {
        run_here(&s, "other", &other);
        shown += RACES ? n_races > 0 : !is_same(&reference, &other);
    }
    CHECKF(shown > 0, "no run without waits went wrong");
}

/* A GPU that breaks in the middle of a step: the step ends, with a sentence that names what failed
 * and where, whether CUDA says so at once or only later. */
static void test_a_gpu_that_breaks(void)
{
    for (int late = 0; late < 2; late++) {
        struct setting s = plain_setting();
        s.schedule = "prefetch";
        seed = 5;
        struct zinf_config *config = configure(&s);
        struct zinf_trainer *t = NULL;
        struct zinf_step_result r;
        struct zinf_trainer_options options = trainer_options(&s, config);
        begin_gpu();
        CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
        if (!t)
            return;
        CHECKF(!next_step(t, &s, 0, &r), "%s", zinf_error());
        gpu.fail(late ? 0 : 40, late ? 10 : 0);
        CHECK(next_step(t, &s, 0, &r) == -EIO);
        /* the operation and what it is of, the call, what CUDA says, what is free. Which call is
         * the one that fails depends on how the lanes' threads run. */
        const char *said = zinf_error();
        bool named = strstr(said, " block.") || strstr(said, "fetch ");
        CHECKF((late ? strstr(said, "waiting for an event: CUDA error") != NULL : named) &&
                   strstr(said, "free on the GPU"),
               "%s", said);
        CHECK(next_step(t, &s, 0, &r) == -EIO);
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
    }
}
#endif

int main(void)
{
    const char *missing = open_gpu();
    if (missing) {
        printf("1..0 # SKIP %s\n", missing);
        return 0;
    }
    begin_trainings("cuda-train", &(struct trainings){.shape = {.arch = "gpt2",
                                                                .layers = 2,
                                                                .hidden = 32,
                                                                .heads = 2,
                                                                .vocab = VOCAB,
                                                                .context = 16},
                                                      .steps = STEPS,
                                                      .seq = SEQ,
                                                      .batch = BATCH,
                                                      .sub_group = 9000});
    TAP_RUN(test_fp32);
    TAP_RUN(test_magnitudes);
    TAP_RUN(test_optimizers_by_tensor);
    TAP_RUN(test_bf16_clipping);
    TAP_RUN(test_float8);
    TAP_RUN(test_activations_elsewhere);
    TAP_RUN(test_experts_in_chunks);
    TAP_RUN(test_pairs_in_chunks);
    TAP_RUN(test_few_slots);
    TAP_RUN(test_shares_of_the_optimizer);
    TAP_RUN(test_what_there_is_room_for);
    TAP_RUN(test_sums_of_gradients);
    TAP_RUN(test_sums_come_to_the_device);
    TAP_RUN(test_gradients_that_wait);
    TAP_RUN(test_packed_parameters);
    TAP_RUN(test_damage_in_ram);
    TAP_RUN(test_forward_alone);
#ifdef CUDA_STANDIN
    TAP_RUN(test_pinning_has_limits);
    TAP_RUN(test_waits_left_out_show);
    TAP_RUN(test_a_gpu_that_breaks);
#endif
    remove_work();
    return tap_done();
}
