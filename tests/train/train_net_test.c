/*
 * Several ranks, as threads: the samples of a step dealt to one, two or four of them, in as many
 * micro-batches as that leaves, give the same losses, norms and weights to the last bit, wherever
 * things live, with clipping and dropout; also after going on from a checkpoint of other ranks. And
 * what one rank cannot do ends the others.
 */
#include "trained_ranks.h"

enum { MOST_SPLIT = 4, MICROS = 4, STEPS = 4 };

static void run_ranks(const struct setting *s, uint32_t world, const char *name,
                      struct outcome *out)
{
    run_seats(s, 1, world, name, out);
}

/* ---- the same bits ---- */

static const char tree[] = ", \"gradient_sum\": \"tree\", \"dropout\": 0.1";

/* What is added in another order differs by roundings alone. */
static void check_close(struct setting s, const struct outcome *one, const char *what)
{
    struct outcome in_order;
    s.extra = ", \"dropout\": 0.1";
    s.clip = 0.7;
    s.accumulation = MICROS;
    run(&s, "in-order", &in_order);
    for (int i = 0; i < STEPS; i++) {
        double loss = fabs(one->loss[i] / in_order.loss[i] - 1);
        double norm = fabs(one->norm[i] / in_order.norm[i] - 1), bound = s.precision ? 2e-2 : 1e-4;
        CHECKF(loss < bound && norm < bound, "%s: step %d: loss off by %g, norm by %g", what, i,
               loss, norm);
    }
}

/* one: of one rank. */
static void check_splits(struct setting s, const char *what, struct outcome *one)
{
    struct outcome some;
    char name[80], extra[300];
    snprintf(extra, sizeof extra, "%s%s", tree, word(s.extra, ""));
    s.clip = s.clip > 0 ? s.clip : 0.7;
    s.order = "layer-major";
    s.extra = extra;
    s.accumulation = MICROS;
    snprintf(name, sizeof name, "%s-1x4", what);
    run(&s, name, one);
    snprintf(extra + strlen(extra), sizeof extra - strlen(extra), ", \"pack\": \"all\"");
    for (uint32_t world = 2; world <= MOST_SPLIT; world *= 2) {
        s.accumulation = MICROS / (int)world;
        snprintf(name, sizeof name, "%s-%ux%d", what, world, s.accumulation);
        run_ranks(&s, world, name, &some);
        check_same(one, &some, name);
    }
}

static void check_family(const char *arch, const char *const *kinds)
{
    static const char *const places[] = {"cpu", "nvme", "none"};
    struct outcome one;
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
        check_splits(s, what, &one);
        check_close(s, &one, what);
    }
}

static void test_gpt2(void)
{
    static const char *const kinds[] = {NULL, "update-in-backward", NULL, "update-in-forward",
                                        NULL};
    check_family("gpt2", kinds);
}

/* Whole parameters at every rank: on the device, as DeepSpeed has them below stage 3. */
static void test_stages(void)
{
    static const char *const kinds[] = {NULL, "serial", "prefetch", "update-in-forward", "auto"};
    struct outcome one;
    char what[60];
    trainings.shape.arch = "gpt2";
    make_model(model, "stages", &trainings.shape, 11);
    static const char *const states[] = {"cpu",  "cpu",  "none", "cpu",  "none",
                                         "nvme", "nvme", "nvme", "nvme", "nvme"};
    for (int i = 0; i < 10; i++) {
        struct setting s = {.param = "none",
                            .state = states[i],
                            .copies = i % 2,
                            .stage = 1 + (i + i / 5) % 2,
                            .precision = i % 5 < 3 ? bf16 : NULL,
                            .schedule = kinds[i % 5]};
        snprintf(what, sizeof what, "stage%d-%s-%s%s", s.stage, s.state, s.copies ? "copies-" : "",
                 word(s.schedule, "auto"));
        check_splits(s, what, &one);
    }
}

/* Adafactor's tensors are not cut: every rank has all of its state, and of the gradient's sum. */
static void test_whole_state(void)
{
    static const char *const kinds[] = {NULL, "serial", "prefetch", "update-in-forward", "auto"};
    static const char *const states[] = {"cpu", "none", "nvme", "cpu", "nvme"};
    struct outcome one;
    char what[60];
    trainings.shape.arch = "llama";
    make_model(model, "whole-state", &trainings.shape, 11);
    for (int i = 0; i < 5; i++) {
        struct setting s = {.param = "none",
                            .state = states[i],
                            .copies = i % 2,
                            .stage = i % 3,
                            .precision = i % 2 ? NULL : bf16,
                            .optimizer = "{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-3}}",
                            .schedule = kinds[i]};
        s.stage = s.stage ? s.stage : 2;
        snprintf(what, sizeof what, "adafactor-%s-%s%s", s.state, s.copies ? "copies-" : "",
                 word(s.schedule, "auto"));
        check_splits(s, what, &one);
    }
}

/* Whoever has an element rounds its moments alike. */
static void test_bf16_moments(void)
{
    static const char half[] = "\"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true, "
                               "\"bf16_master_weights_and_grads\": true},";
    struct outcome one;
    trainings.shape.arch = "gpt2";
    make_model(model, "half", &trainings.shape, 11);
    struct setting s = {.param = "nvme", .state = "nvme", .copies = true, .precision = half};
    check_splits(s, "half-3", &one);
    s = (struct setting){.param = "none", .state = "cpu", .stage = 1, .precision = half};
    check_splits(s, "half-1", &one);
}

/* Slices cut tensors of two optimizers anywhere. */
static void test_two_rules(void)
{
    struct outcome one;
    trainings.shape.arch = "gpt2";
    make_model(model, "rules", &trainings.shape, 11);
    for (int i = 0; i < 4; i++) {
        struct setting s = {.param = i % 2 ? "none" : "nvme",
                            .state = i ? "nvme" : "cpu",
                            .copies = i % 2,
                            .stage = i % 2 ? 2 : 3,
                            .precision = i / 2 ? NULL : bf16,
                            .extra = ", \"learning_rates\": [{\"pattern\": \"*.c_*.weight\", "
                                     "\"optimizer\": \"Lion\", \"scale\": 0.1}]"};
        check_splits(s, i % 2 ? "rules-2" : "rules-3", &one);
        s.stage = 1 + i % 2;
        s.param = "none";
        s.extra = ", \"learning_rates\": [{\"pattern\": \"*.c_*.weight\", "
                  "\"optimizer\": \"Muon\", \"scale\": 20}]";
        check_splits(s, "muon", &one);
    }
}

/* Slices that no power of two cuts: three ranks have a micro-batch each. */
static void test_three_ranks(void)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    struct outcome one, three;
    trainings.shape.arch = "gpt2";
    make_model(model, "three", &trainings.shape, 11);
    for (int i = 0; i < 12; i++) {
        struct setting s = {.param = i % 2 ? places[i % 3] : "none",
                            .state = places[i % 3],
                            .copies = i / 3 % 2,
                            .stage = i % 2 ? 3 : 2,
                            .precision = i % 4 / 2 ? bf16 : NULL,
                            .order = "layer-major",
                            .schedule = schedules[i % 4],
                            .extra = tree,
                            .accumulation = 3};
        char name[80];
        snprintf(name, sizeof name, "three-%d-%s-%s", i, s.state, s.schedule);
        if (i % 2 && !strcmp(s.param, "none"))
            s.param = "cpu";
        run(&s, "three-1x3", &one);
        s.accumulation = 1;
        run_ranks(&s, 3, name, &three);
        check_same(&one, &three, name);
    }
}

/* A skipped step is skipped by all; adapters leave the rest frozen, which is gathered too; experts
 * are fetched whoever chose them, and balanced over all micro-batches. */
static void test_kinds(void)
{
    struct outcome one;
    struct setting s = {.precision = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 22,"
                                     "\"hysteresis\": 1, \"loss_scale_window\": 2},",
                        .param = "cpu",
                        .clip = 1000};
    trainings.shape.arch = "gpt2";
    make_model(model, "kinds", &trainings.shape, 11);
    check_splits(s, "fp16", &one);
    CHECKF(one.n_skipped > 0 && one.n_skipped < STEPS, "%d steps overflow", one.n_skipped);
    s = (struct setting){.param = "nvme",
                         .state = "cpu",
                         .precision = bf16,
                         .extra = ", \"adapter\": {\"r\": 3, \"lora_dropout\": 0.25}"};
    check_splits(s, "adapter", &one);
    snprintf(model, sizeof model, "%s/tests/fixtures/qwen3_moe_a", getenv("SRCDIR"));
    trainings.shape.vocab = 61;
    s = (struct setting){.param = "nvme", .state = "nvme"};
    check_splits(s, "experts", &one);
    trainings.shape.vocab = 500;
}

/* Layer by layer, what goes between ranks does not grow with the number of micro-batches: by the
 * sizes of parameters and gradients alone. */
static void test_traffic(void)
{
    struct outcome out;
    struct setting s = {.param = "cpu", .state = "cpu", .look_ahead = "8"};
    uint64_t bytes[2];
    trainings.shape.arch = "gpt2";
    make_model(model, "traffic", &trainings.shape, 11);
    for (int i = 0; i < 2; i++) {
        s.accumulation = 1 + 3 * i;
        run_ranks(&s, 2, i ? "traffic-4" : "traffic-1", &out);
        bytes[i] = out.sent;
    }
    CHECKF(bytes[0] == bytes[1] && bytes[0] > 0, "%llu bytes for 1, %llu for 4 micro-batches",
           (unsigned long long)bytes[0], (unsigned long long)bytes[1]);
}

/* What goes out of a rank in a step: at stage 3, layer by layer, (n - 1) / n of all parameters
 * twice, for forward and backward, less what is still at hand in between, and of their gradients in
 * fp32 once. The simulated step counts the same bytes, and a real one sends no more than a few
 * numbers beside them. */
static void check_traffic(struct setting s, uint32_t world, const char *name)
{
    struct zinf_estimate estimate = {0};
    struct zinf_config *config = configure_of(&s, world);
    struct zinf_estimate_options options = {
        .trainer = trainer_options(&s, config), .ranks = world, .local_ranks = world};
    struct outcome out;
    run_ranks(&s, world, name, &out);
    CHECKF(!zinf_estimate(&estimate, &options), "%s", zinf_error());
    uint64_t width = s.precision ? 2 : 4, share = padded_elems / world * (world - 1);
    uint64_t most = share * (2 * width + 4), least = share * (width + 4);
    CHECKF(net_bytes == estimate.lane_bytes[ZINF_LANE_NET], "%s: %llu bytes, %llu estimated", name,
           (unsigned long long)net_bytes, (unsigned long long)estimate.lane_bytes[ZINF_LANE_NET]);
    CHECKF(net_bytes <= most && net_bytes > least, "%s: %llu bytes, not from %llu to %llu", name,
           (unsigned long long)net_bytes, (unsigned long long)least, (unsigned long long)most);
    CHECKF(out.sent >= net_bytes && out.sent < net_bytes + 32768 * (world - 1),
           "%s: %llu bytes sent, %llu by the lane", name, (unsigned long long)out.sent,
           (unsigned long long)net_bytes);
    zinf_config_destroy(config);
}

static void test_formulas(void)
{
    struct setting s = {.param = "cpu", .state = "cpu", .look_ahead = "1", .accumulation = 2};
    trainings.shape.arch = "gpt2";
    make_model(model, "formulas", &trainings.shape, 11);
    check_traffic(s, 2, "fp32, 2 ranks");
    s.precision = bf16;
    check_traffic(s, 4, "bf16, 4 ranks");
    s.param = s.state = "nvme";
    s.copies = true;
    check_traffic(s, 3, "bf16, drive, 3 ranks");
}

/* All samples but the first have three tokens of eight: the first rank has two of their chunks, and
 * brings the third from the other one. Sums are of two chunks a rank. */
static void check_short(struct setting s, uint64_t padded_bytes, uint64_t bytes)
{
    struct outcome padded, told;
    s.rows = 3;
    s.padded = true;
    run_ranks(&s, 4, "padded", &padded);
    CHECKF(net_bytes == padded_bytes, "%llu bytes with padding, not %llu",
           (unsigned long long)net_bytes, (unsigned long long)padded_bytes);
    s.lengths = true;
    run_ranks(&s, 4, "told", &told);
    check_same(&padded, &told, "samples that say how long they are");
    CHECKF(net_bytes == bytes, "%llu bytes of short samples, not %llu",
           (unsigned long long)net_bytes, (unsigned long long)bytes);
}

/* Ranks that share sequences bring together keys and values of 2 x 64 numbers a token and layer, in
 * forward and in backward, and in backward their gradients in fp32: beside what goes between ranks
 * with samples of their own. Each chunk, here of one token, fills pages. */
static void check_shared(uint64_t width, const char *precision)
{
    struct setting s = {.param = "cpu",
                        .state = "cpu",
                        .look_ahead = "8",
                        .accumulation = 1,
                        .sharing = 1,
                        .precision = precision,
                        .extra = ", \"context_parts\": 4"};
    const uint64_t samples = 4, chunks = 8, numbers = 2 * 64, layers = 2;
    struct zinf_estimate estimate = {0};
    struct outcome apart, shared;
    run_ranks(&s, 4, "apart", &apart);
    s.accumulation = 2; /* of as many samples a rank as the ranks that share have */
    run_ranks(&s, 4, "more", &shared);
    const uint64_t bytes = net_bytes;
    s.sharing = 2;
    s.extra = ", \"context_parts\": 4, \"mesh\": {\"context\": 2}";
    struct zinf_config *config = configure_of(&s, 4);
    struct zinf_estimate_options options = {
        .trainer = trainer_options(&s, config), .ranks = 4, .local_ranks = 4};
    run_ranks(&s, 4, "shared", &shared);
    check_same(&apart, &shared, "ranks that share sequences");
    CHECKF(!zinf_estimate(&estimate, &options), "%s", zinf_error());
    CHECKF(net_bytes == estimate.lane_bytes[ZINF_LANE_NET], "%llu bytes, %llu estimated",
           (unsigned long long)net_bytes, (unsigned long long)estimate.lane_bytes[ZINF_LANE_NET]);
    const uint64_t own = zinf_align_up(numbers * width, ZINF_MEMORY_ALIGN) * chunks / 2;
    const uint64_t sums = zinf_align_up(numbers * sizeof(float), ZINF_MEMORY_ALIGN) * chunks / 2;
    const uint64_t keys = samples * layers * (2 * own + sums);
    CHECKF(net_bytes == bytes + keys, "%llu bytes, %llu without keys, not %llu more",
           (unsigned long long)net_bytes, (unsigned long long)bytes, (unsigned long long)keys);
    zinf_config_destroy(config);
    check_short(s, bytes + keys,
                bytes + layers * (2 * own + sums) + 3 * layers * (own / 2 + sums / 2));
}

static void test_shared_sequences(void)
{
    trainings.shape.arch = "gpt2";
    make_model(model, "shared", &trainings.shape, 11);
    check_shared(4, NULL);
    check_shared(2, bf16);
}

/* ---- failures ---- */

static void test_refusals(void)
{
    struct setting s = {.optimizer = "{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-3}}",
                        .may_fail = true};
    struct outcome out;
    s.accumulation = 1;
    run_ranks(&s, 2, "adafactor", &out);
    CHECKF(out.failed && strstr(said, "set stage to 2"), "%s", said);
    s = (struct setting){.accumulation = 4,
                         .order = "micro-major",
                         .extra = ", \"gradient_sum\": \"tree\"",
                         .may_fail = true};
    run(&s, "micro-major", &out);
    CHECKF(out.failed && strstr(zinf_error(), "gradient_sum"), "%s", zinf_error());
}

/* The key names all axes. */
static void test_mesh(void)
{
    static const char *const refused[][2] = {
        {", \"context_parts\": 3", "use a power of two"},
        {", \"mesh\": {\"data\": 3}", "set zinf.mesh.data to 0"}};
    struct setting s = {.param = "cpu", .state = "cpu"};
    struct outcome plain, named;
    trainings.shape.arch = "gpt2";
    make_model(model, "mesh", &trainings.shape, 11);
    run(&s, "plain", &plain);
    s.extra = ", \"mesh\": {\"data\": 1, \"tensor\": 1, \"pipe\": 1, \"context\": 1}";
    run(&s, "named", &named);
    check_same(&plain, &named, s.extra);
    s.may_fail = true;
    for (int i = 0; i < 2; i++) {
        s.extra = refused[i][0];
        run(&s, "refused", &named);
        CHECKF(named.failed && strstr(zinf_error(), refused[i][1]), "%s", zinf_error());
    }
}

static void test_llama(void)
{
    static const char *const kinds[] = {"prefetch", NULL, "serial", NULL, "update-in-backward"};
    check_family("llama", kinds);
}

int main(void)
{
    begin_rank_trainings("net", STEPS);
    TAP_RUN(test_gpt2);
    TAP_RUN(test_llama);
    TAP_RUN(test_stages);
    TAP_RUN(test_whole_state);
    TAP_RUN(test_three_ranks);
    TAP_RUN(test_bf16_moments);
    TAP_RUN(test_two_rules);
    TAP_RUN(test_kinds);
    TAP_RUN(test_traffic);
    TAP_RUN(test_formulas);
    TAP_RUN(test_shared_sequences);
    TAP_RUN(test_refusals);
    TAP_RUN(test_mesh);
    remove_work();
    return tap_done();
}
