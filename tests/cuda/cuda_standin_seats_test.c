/*
 * Seats on GPUs that gather units and add gradients among themselves, on the stand-ins for CUDA and
 * NCCL: the bits of one seat, over ZeRO's stages, places, number types and two families, with
 * clipping and dropout, whatever the order in which GPUs and transfers run. Then pipelines, whose
 * GPUs have layers of their own, in one range or several, and GPUs that share the matrices of an
 * optimizer over these; when that way is taken, and how a step ends whose transfer does not.
 */
#include "cuda_module.h"
#include "trained_ranks.h"

enum { MICROS = 8, STEPS = 2 };

static uint64_t seed;  /* of the order in which the GPUs run */
static int capability; /* 0: the usual one */

static void begin_gpus(uint32_t n)
{
    struct standin_options options = {.seed = seed,
                                      .gpus = (int)n,
                                      .dawdle_us = STANDIN_RACES ? 0 : 100,
                                      .memory_bytes = 1u << 30,
                                      .capability = capability,
                                      .at_once = STANDIN_RACES};
    standin.start(&options);
}

static void end_gpus(void)
{
    CHECKF(!standin.faults(), "%s", standin.first_fault());
    CHECKF(!standin.live(), "%d objects left", standin.live());
}

static void run_on_gpus(const struct setting *s, uint32_t n, const char *name, struct outcome *out)
{
    begin_gpus(n);
    run_seats(s, 1, n, name, out);
    end_gpus();
    CHECKF(!out->pageable, "%s: %lld copies from or to memory that is not page-locked", name,
           (long long)out->pageable);
}

/* ---- bits ---- */

static const char by_device[] = ", \"gradient_sum\": \"tree\", \"dropout\": 0.1, "
                                "\"gather\": \"device\"";
static const char by_host[] = ", \"gradient_sum\": \"tree\", \"dropout\": 0.1, "
                              "\"gather\": \"host\"";

/* What a step's transfers between GPUs send is what its operations say. */
static void check_traffic(const char *name)
{
    CHECKF(linked_bytes > 0 && linked_bytes == net_bytes, "%s: %llu bytes between GPUs, %llu said",
           name, (unsigned long long)linked_bytes, (unsigned long long)net_bytes);
}

static void check_splits(struct setting s, const char *what)
{
    struct outcome one, some;
    char name[80];
    s.clip = 0.7;
    s.order = "layer-major";
    s.extra = by_device;
    s.accumulation = MICROS;
    s.on_gpu = true;
    snprintf(name, sizeof name, "%s-1x1x%d", what, MICROS);
    run_on_gpus(&s, 1, name, &one);
    for (uint32_t n = 2; n <= 8; n *= 2) {
        if (getenv("ZINF_SANITIZER") && n != 4)
            continue; /* it takes minutes then */
        seed++;
        s.accumulation = MICROS / (int)n;
        snprintf(name, sizeof name, "%s-%ux1x%d", what, n, s.accumulation);
        run_on_gpus(&s, n, name, &some);
        check_same(&one, &some, name);
        check_traffic(name);
    }
}

static bool is_slow(void)
{
    const char *sanitizer = getenv("ZINF_SANITIZER");
    return sanitizer && strstr(sanitizer, "thread");
}

/* Of parameters the drive is stage 3's alone. */
static void check_family(const char *arch, int first, int last)
{
    static const struct {
        int stage;
        const char *param, *state;
    } kinds[] = {{1, "none", "cpu"},  {2, "none", "none"}, {3, "cpu", "cpu"},
                 {3, "nvme", "nvme"}, {3, "none", "cpu"},  {2, "none", "nvme"}};
    char what[60];
    trainings.shape.arch = arch;
    make_model(model, arch, &trainings.shape, 11);
    for (int i = first; i <= last; i++) {
        bool rounds = (i + (*arch == 'g')) % 2;
        struct setting s = {.param = kinds[i].param,
                            .state = kinds[i].state,
                            .stage = kinds[i].stage,
                            .precision = rounds ? bf16 : NULL};
        snprintf(what, sizeof what, "%s-stage%d-%s-%s", arch, s.stage, s.param,
                 rounds ? "bf16" : "fp32");
        if (!is_slow() || i % 3 < 2)
            check_splits(s, what);
    }
}

static void test_gpt2(void)
{
    check_family("gpt2", 0, 5);
}

static void test_llama(void)
{
    if (is_slow())
        SKIP("slow under this sanitizer");
    check_family("llama", 1, 3);
}

/* Every schedule, under other seeds. */
static void test_schedules(void)
{
    struct setting s = {.param = "nvme",
                        .state = "nvme",
                        .precision = bf16,
                        .accumulation = 2,
                        .order = "layer-major",
                        .on_gpu = true};
    struct outcome reference, other;
    if (is_slow())
        SKIP("slow under this sanitizer");
    s.schedule = "serial";
    s.extra = by_host;
    run_on_gpus(&s, 4, "reference", &reference);
    CHECK(linked_bytes == 0);
    s.extra = by_device;
    for (int i = 0; i < 4; i++) {
        seed = 100 + (uint64_t)i;
        s.schedule = schedules[i];
        s.clip = 0;
        run_on_gpus(&s, 4, "other", &other);
        check_same(&reference, &other, s.schedule);
        CHECK(linked_bytes > 0);
    }
}

/* ---- parts of sequences ---- */

/* What a rank sends of a chunk's keys and values, of so many bytes a number. */
static uint64_t chunk_bytes(uint32_t parts, uint64_t width)
{
    const uint64_t rows = (uint64_t)trainings.seq / (2 * parts);
    return zinf_align_up(rows * 2 * (uint64_t)trainings.shape.hidden * width, ZINF_MEMORY_ALIGN);
}

/* A rank sends its keys and values of each sample and block to all others before the forward and
 * again before the backward, unless they are still there, as are the last block's of a sample
 * alone; and to each others' gradients in fp32. */
static uint64_t expected_keys(const struct setting *s, uint32_t parts, uint32_t context)
{
    const uint64_t samples = (uint64_t)s->accumulation * (uint64_t)trainings.batch;
    const uint64_t chunks = 2 * parts / context * (context - 1); /* to all others */
    const uint64_t once = samples * (uint64_t)trainings.shape.layers;
    return chunks * ((2 * once - (samples == 1)) * chunk_bytes(parts, s->precision ? 2 : 4) +
                     once * chunk_bytes(parts, 4));
}

/* Keys, values and their gradients go from GPU to GPU as units do, or all by the host. */
static void check_keys(const struct setting *one_gpu, const struct outcome *one, uint32_t gpus,
                       uint32_t parts, uint32_t context, bool linked)
{
    struct setting s = *one_gpu;
    struct outcome some;
    char extra[200], name[80];
    snprintf(extra, sizeof extra, "%s, \"context_parts\": %u, \"mesh\": {\"context\": %u}",
             linked ? by_device : by_host, parts, context);
    snprintf(name, sizeof name, "keys-%s-%ux%u-%d", trainings.shape.arch, gpus, context, linked);
    s.extra = extra;
    s.accumulation = s.accumulation * (int)context / (int)gpus;
    s.sharing = (int)context;
    seed++;
    run_on_gpus(&s, gpus, name, &some);
    check_same(one, &some, name);
    CHECKF(key_bytes == (linked ? expected_keys(&s, parts, context) : 0),
           "%s: %llu bytes of keys and values, not %llu", name, (unsigned long long)key_bytes,
           (unsigned long long)expected_keys(&s, parts, context));
    CHECK((linked_bytes > 0) == linked);
    if (linked)
        check_traffic(name);
}

static struct setting keys_setting(const char *arch, int samples, const char *extra)
{
    const bool llama = !strcmp(arch, "llama");
    trainings.shape.arch = arch;
    make_model(model, arch, &trainings.shape, 11);
    return (struct setting){.param = "cpu",
                            .state = "cpu",
                            .stage = llama ? 3 : 1,
                            .precision = llama ? bf16 : NULL,
                            .accumulation = samples,
                            .clip = 0.7,
                            .extra = extra,
                            .on_gpu = true};
}

/* With two samples for each rank along DATA, or one. */
static void test_parts_of_sequences(void)
{
    char extra[200];
    snprintf(extra, sizeof extra, "%s, \"context_parts\": 4", by_host);
    for (int llama = 0; llama < (is_slow() ? 1 : 2); llama++) {
        struct setting s = keys_setting(llama ? "llama" : "gpt2", llama ? 2 : 4, extra);
        struct outcome one;
        run_on_gpus(&s, 1, trainings.shape.arch, &one);
        check_keys(&s, &one, 4, 4, llama ? 4 : 2, true);
        check_keys(&s, &one, 2, 4, 2, llama);
    }
}

/* By the host, runs of chunks go to its memory and back: all samples but the first are short. */
static void test_short_sequences(void)
{
    char extra[200];
    snprintf(extra, sizeof extra, "%s, \"context_parts\": 4", by_host);
    struct setting s = keys_setting("gpt2", 4, extra);
    struct outcome one;
    s.rows = 3;
    s.padded = s.lengths = true;
    run_on_gpus(&s, 1, "short", &one);
    check_keys(&s, &one, 2, 4, 2, false);
    check_keys(&s, &one, 4, 4, 4, false);
}

/* Chunks of more than a page, so that each row counts. */
static void test_bytes_of_keys(void)
{
    const int context = trainings.shape.context, seq = trainings.seq;
    char extra[200];
    if (is_slow())
        SKIP("slow under this sanitizer");
    snprintf(extra, sizeof extra, "%s, \"context_parts\": 2", by_host);
    trainings.shape.context = trainings.seq = 96;
    for (int llama = 0; llama < 2; llama++) {
        struct setting s = keys_setting(llama ? "llama" : "gpt2", 1, extra);
        struct outcome one;
        run_on_gpus(&s, 1, "long", &one);
        check_keys(&s, &one, 2, 2, 2, true);
    }
    trainings.shape.context = context;
    trainings.seq = seq;
    make_model(model, trainings.shape.arch, &trainings.shape, 11);
}

/* ---- layers of GPUs of their own ---- */

/* What crosses between neighbours goes by the host, so there is no link. */
static void check_pipeline(const struct setting *one_gpu, const struct outcome *one, uint32_t gpus,
                           int ranges)
{
    struct setting s = *one_gpu;
    struct outcome some;
    char extra[160], name[80];
    snprintf(extra, sizeof extra, "%s, \"mesh\": {\"pipe\": %u}, \"pipeline_ranges\": %d", by_host,
             gpus, ranges);
    snprintf(name, sizeof name, "pipe-%s-%ux%d", s.state, gpus, ranges);
    s.extra = extra;
    s.sharing = (int)gpus;
    seed++;
    run_on_gpus(&s, gpus, name, &some);
    check_same(one, &some, name);
    CHECK(linked_bytes == 0);
}

static void test_pipelines(void)
{
    static const char *const states[] = {"cpu", "nvme"};
    struct outcome one;
    if (is_slow())
        SKIP("slow under this sanitizer");
    trainings.shape.arch = "llama";
    trainings.shape.layers = 6;
    make_model(model, "llama", &trainings.shape, 11);
    for (int i = 0; i < 2; i++) {
        struct setting s = {.param = states[i],
                            .state = states[i],
                            .precision = i ? NULL : bf16,
                            .accumulation = MICROS / 2,
                            .clip = 0.7,
                            .extra = by_host,
                            .on_gpu = true};
        run_on_gpus(&s, 1, states[i], &one);
        check_pipeline(&s, &one, 2, 2 + i);
        check_pipeline(&s, &one, 4, 2 - i);
    }
    trainings.shape.layers = 2;
    make_model(model, "llama", &trainings.shape, 11);
}

/* ---- matrices that GPUs share ---- */

/* CPUs update them, with what copies from and to the GPUs bring and take. */
static void test_shared_matrices(void)
{
    static const char normuon[] = "{\"type\": \"NorMuon\", \"params\": {\"lr\": 0.02}}";
    static const char *const states[] = {"cpu", "nvme", "cpu"};
    static const char *const ways[] = {"update-in-backward", "update-in-forward", "prefetch"};
    if (is_slow())
        SKIP("slow under this sanitizer");
    trainings.shape.arch = "llama";
    make_model(model, "llama", &trainings.shape, 11);
    for (int i = 0; i < 3; i++) {
        struct setting s = {.param = i < 2 ? states[i] : "none",
                            .state = states[i],
                            .precision = i ? bf16 : NULL,
                            .optimizer = normuon,
                            .order = "layer-major",
                            .accumulation = MICROS / 2,
                            .clip = 0.7,
                            .stage = i < 2 ? 3 : 1,
                            .on_gpu = true,
                            .in_blocks = true};
        struct outcome one, some;
        char extra[200], name[80];
        snprintf(extra, sizeof extra, "%s, \"tensor_parts\": 2", by_host);
        s.extra = extra;
        run_on_gpus(&s, 1, "whole", &one);
        snprintf(extra, sizeof extra, "%s, \"tensor_parts\": 2, \"mesh\": {\"tensor\": 2}",
                 by_host);
        s.schedule = ways[i];
        s.sharing = 2;
        for (uint32_t gpus = 2; gpus <= 4; gpus *= 2) {
            s.accumulation = MICROS / (int)gpus;
            snprintf(name, sizeof name, "shared-%s-%u", ways[i], gpus);
            seed++;
            run_on_gpus(&s, gpus, name, &some);
            check_same(&one, &some, name);
        }
    }
}

/* Each GPU unpacks its rank's slice, from the drive and from RAM, before all gather them. */
static void test_slices_unpacked_by_gpus(void)
{
    static const struct zinf_speeds slow_link = {.device_flops = 1e12,
                                                 .device_bytes = 1e11,
                                                 .link_bytes = 3e5,
                                                 .peer_bytes = 1e9,
                                                 .optimizer_bytes = 1e11,
                                                 .drive_read_bytes = 1e8,
                                                 .drive_write_bytes = 1e8};
    if (is_slow())
        SKIP("slow under this sanitizer");
    trainings.shape.arch = "gpt2";
    trainings.shape.hidden = 64; /* small slices do not get smaller */
    trainings.sub_group = 1 << 20;
    make_model(model, "packed", &trainings.shape, 11);
    for (int i = 0; i < 3; i++) {
        struct outcome plain, packed;
        char extra[2][200];
        for (int all = 0; all < 2; all++)
            snprintf(extra[all], sizeof extra[all], "%s, \"pack\": \"%s\"", by_device,
                     all ? "all" : "off");
        struct setting s = {.param = i ? "cpu" : "nvme",
                            .precision = i < 2 ? bf16 : NULL,
                            .accumulation = 2,
                            .order = "layer-major",
                            .clip = 0.7,
                            .extra = extra[0],
                            .schedule = i ? "update-in-forward" : NULL,
                            .speeds = &slow_link,
                            .on_gpu = true};
        seed = 200 + (uint64_t)i;
        run_on_gpus(&s, 2, "plain", &plain);
        s.extra = extra[1];
        s.asks_fronts = i;
        s.host_memory = i ? RESIDENT + ((uint64_t)64 << 20) : 0;
        run_on_gpus(&s, 2, "packed", &packed);
        check_same(&plain, &packed, "slices");
        CHECKF(packed.unpacks_there && packed.packs_fronts == (i > 0), "case %d", i);
        CHECKF(packed.fetched < plain.fetched, "case %d: %llu bytes to the device, unpacked %llu",
               i, (unsigned long long)packed.fetched, (unsigned long long)plain.fetched);
    }
}

/* Slices of GPUs of two processes meet in RAM, from where matrices go on in 8 bits: trained ones,
 * and those under adapters. */
static void test_floats_of_8_bits(void)
{
    static const char *const adapters[] = {"", ", \"adapter\": {\"r\": 4}"};
    if (is_slow())
        SKIP("slow under this sanitizer");
    trainings.shape.arch = "gpt2";
    make_model(model, "float8", &trainings.shape, 11);
    capability = 89;
    for (int i = 0; i < 2; i++) {
        struct outcome one, some;
        char extra[250];
        snprintf(extra, sizeof extra, "%s, \"pack\": \"off\", \"matmul_type\": \"fp8\"%s", by_host,
                 adapters[i]);
        struct setting s = {.param = "none",
                            .state = "none",
                            .precision = bf16,
                            .accumulation = 2,
                            .order = "layer-major",
                            .clip = 0.7,
                            .extra = extra,
                            .on_gpu = true};
        run_on_gpus(&s, 1, "float8-1", &one);
        s.param = s.state = i ? "cpu" : "nvme";
        s.accumulation = 1;
        s.asks_codes = true;
        begin_gpus(2);
        run_seats(&s, 2, 1, "float8-2", &some);
        end_gpus();
        check_same(&one, &some, extra);
        CHECKF(some.codes && !some.images && !some.pageable, "8 bits: %d, %d on the drive",
               some.codes, some.images);
    }
    capability = 0;
}

/* ---- when it is done ---- */

static void test_auto(void)
{
    static const struct zinf_speeds fast = {.peer_bytes = 1e12, .link_bytes = 1e9},
                                    slow = {.peer_bytes = 1e6, .link_bytes = 1e12},
                                    unknown = {.link_bytes = 1e9};
    struct setting s = {.param = "cpu", .state = "cpu", .accumulation = 1, .on_gpu = true};
    struct outcome out;
    if (is_slow())
        SKIP("slow under this sanitizer");
    s.speeds = &fast;
    run_on_gpus(&s, 2, "fast", &out);
    CHECK(linked_bytes > 0);
    s.speeds = &slow;
    run_on_gpus(&s, 2, "slow", &out);
    CHECK(linked_bytes == 0);
    s.speeds = &unknown;
    run_on_gpus(&s, 2, "unknown", &out);
    CHECK(linked_bytes == 0);
    s.speeds = &fast;
    s.extra = ", \"gather\": \"host\"";
    run_on_gpus(&s, 2, "host", &out);
    CHECK(linked_bytes == 0);
}

static void test_host_devices_have_no_link(void)
{
    struct setting s = {.param = "cpu", .state = "cpu", .accumulation = 1, .may_fail = true};
    struct outcome out;
    s.extra = by_device;
    run_seats(&s, 1, 2, "refused", &out);
    CHECKF(out.failed && strstr(said, "zinf.gather \"device\""), "%s", said);
}

/* ---- a transfer that does not end ---- */

static void test_a_transfer_that_hangs(void)
{
    struct setting s = {
        .param = "cpu", .state = "cpu", .accumulation = 1, .on_gpu = true, .may_fail = true};
    struct outcome out;
    if (is_slow())
        SKIP("slow under this sanitizer");
    s.extra = by_device;
    for (int launch = 1; launch <= 9; launch += 4) {
        begin_gpus(2);
        standin.nccl_fail(1, launch, STANDIN_NCCL_HANGS);
        net_timeout = 3; /* in which each seat comes to it */
        run_seats(&s, 1, 2, "hangs", &out);
        net_timeout = 0;
        CHECKF(out.failed && (strstr(said, "between GPUs") || strstr(said, "seat 1")),
               "launch %d: %s", launch, said);
        CHECKF(!standin.faults(), "%s", standin.first_fault());
    }
}

int main(void)
{
    standin_open();
    begin_trainings("cuda_seats", &(struct trainings){.shape = {.arch = "gpt2",
                                                                .layers = 2,
                                                                .hidden = 32,
                                                                .heads = 2,
                                                                .vocab = 160,
                                                                .context = 8},
                                                      .steps = STEPS,
                                                      .seq = 8,
                                                      .batch = 1,
                                                      .sub_group = 8192});
    TAP_RUN(test_gpt2);
    TAP_RUN(test_llama);
    TAP_RUN(test_schedules);
    TAP_RUN(test_parts_of_sequences);
    TAP_RUN(test_short_sequences);
    TAP_RUN(test_bytes_of_keys);
    TAP_RUN(test_pipelines);
    TAP_RUN(test_shared_matrices);
    TAP_RUN(test_floats_of_8_bits);
    TAP_RUN(test_auto);
    TAP_RUN(test_slices_unpacked_by_gpus);
    TAP_RUN(test_host_devices_have_no_link);
    TAP_RUN(test_a_transfer_that_hangs);
    remove_work();
    return tap_done();
}
