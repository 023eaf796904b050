/*
 * State, parameters and kept gradients that a drive has in fewer bytes (zinf.pack): every
 * optimizer, number type and schedule gives the losses and weights of a run without it, and reads
 * fewer bytes; what is damaged, cut off or another sub-group's is refused. What a run is killed in
 * is durable_test's and the harness's.
 */
#include "train/rules/rules.h"
#include "train/trainer.h"
#include "trainings.h"

#define DAMAGES 3000
#define PACKED ", \"pack\": \"state\""
#define ALL ", \"pack\": \"all\""
#define FROZEN ", \"adapter\": {\"r\": 4, \"lora_dropout\": 0.2}"

static const char fp16[] =
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 10, \"hysteresis\": 1},";
static const char half[] = "\"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true, "
                           "\"bf16_master_weights_and_grads\": true},";
static const char mixed[] = ", \"learning_rates\": [{\"pattern\": \"*.c_*.weight\", "
                            "\"optimizer\": \"Muon\"}]";

enum bytes { FEWER, EQUAL, ANY };

/* What of the last step's bytes is read. */
static void compare_bytes(const struct outcome *less, const struct outcome *more, const char *what,
                          enum bytes bytes)
{
    const unsigned long long a = less->read[trainings.steps - 1];
    const unsigned long long b = more->read[trainings.steps - 1];
    bool holds = bytes == FEWER ? a < b : bytes == EQUAL ? a == b : true;
    CHECKF(holds, "%s: %llu bytes are read, with less packed %llu", what, a, b);
}

/* The same training with `extra`, plain, with packed state, with packed parameters too. */
static void compare(struct setting s, const char *extra, const char *what, enum bytes state,
                    enum bytes all)
{
    struct outcome plain, packed, more;
    char keys[400], name[160];
    snprintf(keys, sizeof keys, "%s, \"pack\": \"off\"", extra);
    s.extra = keys;
    run(&s, "plain", &plain);
    snprintf(keys, sizeof keys, "%s" PACKED, extra);
    run(&s, "packed", &packed);
    check_same(&plain, &packed, what);
    compare_bytes(&packed, &plain, what, state);
    snprintf(keys, sizeof keys, "%s" ALL, extra);
    run(&s, "all", &more);
    snprintf(name, sizeof name, "%s, all", what);
    check_same(&plain, &more, name);
    compare_bytes(&more, &packed, name, all);
}

static void test_optimizers(void)
{
    static const struct {
        const char *optimizer, *precision, *extra;
        enum bytes bytes;
    } cases[] = {
        {NULL, NULL, "", FEWER},
        {NULL, bf16, "", FEWER},
        {NULL, fp16, "", FEWER},
        {NULL, half, "", FEWER},
        {"{\"type\": \"Lion\", \"params\": {\"lr\": 1e-3}}", bf16, "", FEWER},
        {"{\"type\": \"Adagrad\", \"params\": {\"lr\": 1e-3}}", bf16, "", FEWER},
        {"{\"type\": \"SGD\", \"params\": {\"lr\": 1e-3, \"momentum\": 0.9}}", bf16, "", FEWER},
        {"{\"type\": \"AdamW8bit\", \"params\": {\"lr\": 1e-3}}", bf16, "", EQUAL},
        {"{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-3}}", bf16, "", EQUAL},
        {"{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-3}}", fp16, "", EQUAL},
        {NULL, bf16, mixed, FEWER},
        {"{\"type\": \"NorMuon\", \"params\": {\"lr\": 1e-3}}", bf16, "", FEWER},
        {"{\"type\": \"GaLoreAdamW\", \"params\": {\"rank\": 4}}", bf16, "", FEWER},
        {"{\"type\": \"APOLLO\", \"params\": {\"rank\": 4}}", NULL, "", FEWER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setting s = {.optimizer = cases[i].optimizer,
                            .precision = cases[i].precision,
                            .schedule = "prefetch",
                            .accumulation = 2,
                            .clip = 0.5};
        char what[100];
        snprintf(what, sizeof what, "case %zu", i);
        compare(s, cases[i].extra, what, cases[i].bytes, FEWER);
    }
}

/* With parameters and gradients elsewhere, with copies, and with steps that are taken back. */
static void test_schedules_and_places(void)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    for (int schedule = 0; schedule < 5; schedule++)
        for (int place = 0; place < 3; place++)
            for (int copies = 0; copies < 2; copies++) {
                struct setting s = {.precision = bf16,
                                    .param = places[place],
                                    .grad = place == 1 ? "cpu" : NULL,
                                    .schedule = schedules[schedule],
                                    .copies = copies,
                                    .clip = schedule == 4 ? 0 : 7,
                                    .sparse = true};
                char what[100];
                snprintf(what, sizeof what, "%s, parameters %s, copies %d", schedules[schedule],
                         places[place], copies);
                /* Which updates are late, and what is made again, depends on measured rates. */
                compare(s, "", what, schedule < 2 ? FEWER : ANY,
                        schedule > 1 ? ANY
                        : place == 1 ? EQUAL
                                     : FEWER);
            }
}

/* Of a model that is frozen, in RAM and on the drive, where its file is of another type: packed
 * once, when it is loaded. */
static void test_frozen(void)
{
    static const char *const places[] = {"cpu", "nvme", "nvme", "cpu"};
    for (int i = 0; i < 4; i++) {
        struct outcome plain, packed;
        struct setting s = {.precision = bf16,
                            .param = places[i],
                            .schedule = schedules[i],
                            .copies = i % 2,
                            .accumulation = 2,
                            .clip = 0.5,
                            .extra = FROZEN ", \"pack\": \"off\""};
        run(&s, "plain", &plain);
        s.extra = FROZEN ALL;
        s.asks_fronts = true;
        s.head_margin = i == 3 ? 0.5 : 0;
        s.host_memory = i == 1 ? 0 : RESIDENT + ((uint64_t)64 << 20);
        run(&s, "packed", &packed);
        check_same(&plain, &packed, places[i]);
        CHECKF(packed.packs_frozen && packed.packs_fronts == (i != 1), "case %d", i);
        compare_bytes(&packed, &plain, "frozen", i == 1 ? FEWER : ANY);
    }
}

/* ---- what a plan expects ---- */

/* A step moves about what is planned, whose padding is zeros, and never more than the most. */
static void check_planned(const struct setting *s, const char *what)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer_options options = trainer_options(s, config);
    const struct zinf_estimate_options planned = {.trainer = options};
    struct zinf_estimate e = {0};
    struct zinf_step_result r = {0};
    struct zinf_trainer *t = NULL;
    CHECKF(!zinf_estimate(&e, &planned), "%s", zinf_error());
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    for (int step = 0; t && step < trainings.steps; step++)
        CHECKF(!next_step(t, s, (uint64_t)step, &r), "%s", zinf_error());
    for (int lane = 0; lane < 2; lane++) {
        const double ratio = (double)e.lane_bytes[lane] / (double)r.lane_bytes[lane];
        printf("# %s, lane %d: %.3f of what is moved\n", what, lane, ratio);
        CHECKF(ratio > 0.97 && ratio < 1.03, "%s, lane %d: %llu bytes, %llu planned", what, lane,
               (unsigned long long)r.lane_bytes[lane], (unsigned long long)e.lane_bytes[lane]);
        CHECKF(r.lane_bytes[lane] <= e.lane_bytes_most[lane] &&
                   e.lane_bytes[lane] < e.lane_bytes_most[lane],
               "%s, lane %d: %llu bytes at most", what, lane,
               (unsigned long long)e.lane_bytes_most[lane]);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_planned_bytes(void)
{
    static const char *const precisions[] = {NULL, bf16, half, fp16};
    for (int i = 0; i < 8; i++) {
        char what[60];
        const struct setting s = {.precision = precisions[i % 4],
                                  .grad = i / 4 ? "cpu" : NULL,
                                  .schedule = "prefetch",
                                  .extra = ALL};
        snprintf(what, sizeof what, "precision %d, gradients %s", i % 4, i / 4 ? "in RAM" : "too");
        check_planned(&s, what);
    }
}

/* ---- damage ---- */

struct packed_group {
    struct rule_thing thing;
    uint64_t room, plain_bytes, bytes;
    char *plain, *slot, *again;
};

static struct packed_group new_group(const struct setup *s, enum zinf_packable what)
{
    struct packed_group g = {.thing = {s, what, 0, false}};
    g.room = rule_slot_bytes(&g.thing);
    g.plain_bytes = rule_plain_bytes(&g.thing);
    g.plain = aligned_alloc(ZINF_AIO_ALIGN, g.room);
    g.slot = aligned_alloc(ZINF_AIO_ALIGN, g.room);
    g.again = aligned_alloc(ZINF_AIO_ALIGN, g.room);
    return g;
}

static void free_group(struct packed_group *g)
{
    free(g->plain);
    free(g->slot);
    free(g->again);
}

/* Numbers such as a training has, in both moments of fp32 masters that are the parameters, and in
 * these. */
static struct packed_group make_group(const struct setup *s, enum zinf_packable what)
{
    struct packed_group g = new_group(s, what);
    float *x = (float *)(void *)g.plain;
    for (uint64_t i = 0; i < g.plain_bytes / sizeof *x; i++) {
        uint32_t counter[4] = {(uint32_t)i, 0, 0, 9}, bits[4];
        zinf_philox(counter, 3, bits);
        x[i] = ((float)bits[0] - 0x1p31f) * 1e-14f;
    }
    CHECKF(!rule_pack(&g.thing, g.slot, g.plain, &g.bytes), "%s", zinf_error());
    CHECKF(g.bytes && g.bytes < g.plain_bytes, "%llu bytes become %llu",
           (unsigned long long)g.plain_bytes, (unsigned long long)g.bytes);
    return g;
}

/* The slot as it is now is refused by name, or gives the same bits; true: refused. */
static bool judge(const struct packed_group *g, uint64_t bytes, const char *what)
{
    memset(g->again, 0x5a, g->room);
    int code = rule_unpack(&g->thing, g->again, g->slot, bytes);
    if (code)
        CHECKF(code == -EBADMSG && strstr(zinf_error(), "sub-group"), "%s: %d, %s", what, code,
               zinf_error());
    else
        CHECKF(!memcmp(g->again, g->plain, g->plain_bytes), "%s: other bits", what);
    return code;
}

/* The same of parameters where a device unpacks them: refused by the CPU before, or marked. */
static bool judge_device(const struct packed_group *g, uint64_t bytes, const char *what)
{
    uint32_t mark = 0;
    int code = rule_check_packed(&g->thing, g->slot, bytes);
    memset(g->again, 0x5a, g->room);
    if (code)
        CHECKF(code == -EBADMSG && strstr(zinf_error(), "sub-group"), "%s: %d, %s", what, code,
               zinf_error());
    else
        CHECK(!rule_device_unpack(&g->thing, NULL, g->again, g->slot, &mark));
    if (!code && !mark)
        CHECKF(!memcmp(g->again, g->plain, g->plain_bytes), "%s: other bits", what);
    return code || mark;
}

static void damage_group(const struct setup *s, enum zinf_packable what)
{
    struct packed_group g = make_group(s, what);
    const bool param = what == ZINF_PACKABLE_PARAM;
    int refused = 0;
    CHECK(!judge(&g, g.bytes, "untouched"));
    CHECK(!param || !judge_device(&g, g.bytes, "untouched"));
    for (uint64_t i = 0; i < DAMAGES; i++) {
        uint32_t counter[4] = {(uint32_t)i, 1, 0, 9}, bits[4];
        zinf_philox(counter, 3, bits);
        /* Heads and tables are a small part of it: every bit of the first of them. */
        uint64_t bit = i < 2048 ? i : ((uint64_t)bits[0] << 8 | bits[1] % 256) % (8 * g.bytes);
        g.slot[bit / 8] ^= (char)(1 << bit % 8);
        char name[60];
        snprintf(name, sizeof name, "bit %llu", (unsigned long long)bit);
        const bool is_refused = judge(&g, g.bytes, name);
        refused += is_refused;
        if (param)
            CHECKF(judge_device(&g, g.bytes, name) == is_refused, "%s: the device", name);
        g.slot[bit / 8] ^= (char)(1 << bit % 8);
    }
    CHECKF(refused > DAMAGES * 3 / 4, "%d of %d are refused", refused, DAMAGES);
    for (uint64_t bytes = ZINF_AIO_ALIGN; bytes <= g.room; bytes += ZINF_AIO_ALIGN)
        CHECK(judge(&g, bytes, "length") == (bytes != g.bytes));
    uint64_t said;
    CHECK(!rule_packed_bytes(&g.thing, g.slot, &said) && said == g.bytes);
    CHECK(!rule_packed_bytes(&g.thing, g.plain, &said) && !said);
    struct packed_group other = g;
    other.thing.group++;
    CHECK(judge(&other, g.bytes, "another sub-group's"));
    other = g;
    other.thing.what = !what;
    CHECK(judge(&other, g.bytes, "parameters for state, or state for them"));
    free_group(&g);
}

/* Numbers whose exponents have nothing in common stay as they are. */
static void check_random(const struct setup *s, enum zinf_packable what)
{
    struct packed_group g = new_group(s, what);
    g.bytes = 1;
    for (uint64_t i = 0; i < g.plain_bytes; i += sizeof(uint32_t)) {
        uint32_t counter[4] = {(uint32_t)i, 2, 0, 9}, bits[4];
        zinf_philox(counter, 3, bits);
        memcpy(g.plain + i, bits, sizeof(uint32_t));
    }
    CHECK(!rule_pack(&g.thing, g.slot, g.plain, &g.bytes));
    CHECK(!g.bytes && !memcmp(g.slot, g.plain, g.plain_bytes));
    CHECK(!judge(&g, 0, "as it is"));
    free_group(&g);
}

static void test_damage(void)
{
    struct setting s = {.extra = ALL};
    struct zinf_config *config = configure(&s);
    struct zinf_trainer_options options = trainer_options(&s, config);
    struct zinf_trainer *t = NULL;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    if (t) {
        for (int what = 0; what < ZINF_PACKABLES; what++) {
            damage_group(&t->setup, (enum zinf_packable)what);
            check_random(&t->setup, (enum zinf_packable)what);
        }
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* ---- updates piece by piece ---- */

/* Parameters that are to be changed elsewhere come there from where they are, and stay there, too.
 * The image and the state are those of the next update of all at once. */
static void change_elsewhere(struct rule_change *c, const struct rule_thing *state, char *expected)
{
    const uint64_t n = state->setup->layout.groups[state->group].n;
    uint64_t bytes = 0;
    void *old = memcpy(malloc(2 * n), c->param, 2 * n);
    void *before = memcpy(malloc(2 * n), c->param, 2 * n);
    memset(c->param, 0x5a, 2 * n);
    c->old_param = old;
    CHECKF(!rule_change_packed(c), "%s", zinf_error());
    CHECK(!rule_step_elements(&c->step) && !rule_pack(state, expected, c->step.state, &bytes));
    CHECK(c->bytes == bytes && !memcmp(c->slot, expected, bytes));
    CHECK(!memcmp(c->param, c->step.param, 2 * n) && !memcmp(old, before, 2 * n));
    CHECK(memcmp(c->param, before, 2 * n));
    free(old);
    free(before);
}

/* An update of damaged state is refused by name; of state that is sound, where the images have
 * checksums of their own, it gives the slots of an update of all at once. */
static void change_damaged(const struct setup *s, uint32_t group)
{
    const struct rule_thing state = {s, ZINF_PACKABLE_STATE, group, false};
    const uint64_t n = s->layout.groups[group].n, room = rule_slot_bytes(&state);
    struct rule_change c = {.step = {.setup = s, .group = group, .grad_scale = 1},
                            .in_place = true};
    char *plain = calloc(1, room), *slot = aligned_alloc(ZINF_AIO_ALIGN, room);
    char *expected = aligned_alloc(ZINF_AIO_ALIGN, room), *param = calloc(2, n);
    float *grad = malloc(n * sizeof *grad);
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < n; i++)
        grad[i] = (float)((i * 2654435761u & 0xffff) + 1) * 1e-6f;
    c.step.grad = grad;
    c.step.state = plain;
    c.step.param = param;
    CHECK(rule_next_segment(s, group, &c.step.segment) && rule_changes_packed(&c));
    c.step.hyper = c.step.segment.of->hyper;
    c.step.hyper.lr = 1e-3f;
    c.step.hyper.step = 1;
    CHECK(!rule_step_elements(&c.step) && !rule_pack(&state, slot, plain, &bytes) && bytes);
    c.from = c.slot = slot;
    c.from_bytes = bytes;
    c.room = aligned_alloc(ZINF_AIO_ALIGN, room);
    c.param = memcpy(malloc(2 * n), param, 2 * n);
    for (uint64_t at = 0; bytes && at + 2 * n + ZINF_AIO_ALIGN < bytes; at += bytes / 9) {
        slot[at] ^= 16;
        CHECKF(rule_change_packed(&c) == -EBADMSG && strstr(zinf_error(), "sub-group"), "byte %llu",
               (unsigned long long)at);
        CHECK(!rule_pack(&state, slot, plain, &bytes));
    }
    memcpy(c.param, param, 2 * n);
    CHECKF(!rule_change_packed(&c), "%s", zinf_error());
    CHECK(!rule_step_elements(&c.step) && !rule_pack(&state, expected, plain, &bytes));
    CHECK(c.bytes == bytes && !memcmp(slot, expected, bytes) && !memcmp(c.param, param, 2 * n));
    c.from_bytes = c.bytes;
    change_elsewhere(&c, &state, expected);
    free(c.room);
    free(c.param);
    free(plain);
    free(slot);
    free(expected);
    free(param);
    free(grad);
}

static bool is_by_pieces(const struct setting *s)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer_options options = trainer_options(s, config);
    struct zinf_trainer *t = NULL;
    bool is = false;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    for (uint32_t g = 0; t && g < t->setup.layout.n_groups; g++) {
        struct rule_change c = {.step = {.setup = &t->setup, .group = g}};
        if (!rule_next_segment(&t->setup, g, &c.step.segment) || !rule_changes_packed(&c))
            continue;
        if (!is)
            change_damaged(&t->setup, g);
        is = true;
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return is;
}

/* A table of so many elements that they are a few pieces for each of two threads. */
static void test_pieces(void)
{
    static const char *const optimizers[] = {NULL,
                                             "{\"type\": \"Lion\", \"params\": {\"lr\": 1e-3}}",
                                             "{\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}}"};
    static const char *const places[] = {"nvme", "cpu"};
    for (int i = 0; i < 6; i++) {
        struct setting s = {.precision = i % 3 == 2 ? half : bf16,
                            .optimizer = optimizers[i % 3],
                            .param = places[i / 3],
                            .schedule = schedules[i % 2 ? 0 : 3],
                            .threads = 1 + i % 2,
                            .clip = i % 2 ? 0.5 : 0};
        char what[60];
        CHECK(i || is_by_pieces(&(struct setting){.precision = bf16, .extra = ALL}));
        snprintf(what, sizeof what, "by pieces %d", i);
        compare(s, i % 2 ? "" : ", \"checksums\": false", what, ANY, ANY);
    }
}

int main(void)
{
    begin_trainings("packed", &(struct trainings){.shape = {.arch = "gpt2",
                                                            .layers = 2,
                                                            .hidden = 64,
                                                            .heads = 4,
                                                            .vocab = 500,
                                                            .context = 32},
                                                  .steps = 4,
                                                  .seq = 16,
                                                  .batch = 1,
                                                  .sub_group = 9000});
    TAP_RUN(test_optimizers);
    TAP_RUN(test_schedules_and_places);
    TAP_RUN(test_frozen);
    TAP_RUN(test_planned_bytes);
    TAP_RUN(test_damage);
    remove_work();
    begin_trainings("pieces", &(struct trainings){.shape = {.arch = "gpt2",
                                                            .layers = 1,
                                                            .hidden = 128,
                                                            .heads = 4,
                                                            .vocab = 4200,
                                                            .context = 32},
                                                  .steps = 3,
                                                  .seq = 16,
                                                  .batch = 1,
                                                  .sub_group = 1 << 20});
    TAP_RUN(test_pieces);
    remove_work();
    return tap_done();
}
