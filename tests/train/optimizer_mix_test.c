/*
 * Optimizers by tensor: each tensor's step is that of a training whose one optimizer is the
 * tensor's, and all of it has the same bits on the device, in RAM and on the drive, under every
 * schedule, also when steps clip or overflow. The plan knows the bytes of each.
 */
#include "trainings.h"

#include "formats/formats.h"
#include "train/trainer.h"

#define STEPS 5
#define BY_NAME(list) ", \"learning_rates\": [" list "]"
#define LION "{\"pattern\": \"*.c_*.weight\", \"optimizer\": \"Lion\"}"
/* Neighbours of three kinds, cut inside of sub-groups and at no page of theirs. */
static const char three[] =
    BY_NAME("{\"pattern\": \"*.mlp.c_*.weight\", \"optimizer\": \"Lion\", \"scale\": 0.1}, "
            "{\"pattern\": \"*.ln_?.bias\", \"optimizer\": \"SGD\", \"weight_decay\": 0.2}, "
            "{\"pattern\": \"*.wpe.*\", \"optimizer\": \"Adagrad\"}");
static const char lion[] = BY_NAME(LION);
/* Whole matrices, beside vectors and tables. */
static const char muon[] =
    BY_NAME("{\"pattern\": \"*.c_*.weight\", \"optimizer\": \"Muon\", \"scale\": 20}");

static const char fp16[] = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 20, "
                           "\"hysteresis\": 1, \"loss_scale_window\": 2},";
static const char half[] = "\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true, "
                           "\"bf16_optimizer_states\": true},";

static struct setting setting_of(const char *type, const char *precision, const char *extra)
{
    static char optimizer[200];
    snprintf(optimizer, sizeof optimizer,
             "{\"type\": \"%s\", \"params\": {\"lr\": 1e-3, \"weight_decay\": 0.1}}", type);
    return (struct setting){.optimizer = optimizer,
                            .precision = precision,
                            .param = "none",
                            .state = "none",
                            .accumulation = 2,
                            .clip = 1,
                            .sparse = true,
                            .extra = extra};
}

/* ---- each tensor by its own ---- */

static uint64_t differing(const struct zinf_tensors *a, const struct zinf_tensors *b,
                          const struct zinf_tensor_info *info)
{
    static float x[1 << 16], y[1 << 16];
    const struct zinf_tensor_info *other = zinf_tensors_find(b, info->name);
    uint64_t n = 0;
    CHECK(other && info->n_elems <= 1 << 16 && info->n_elems == other->n_elems);
    CHECK(!zinf_tensors_read_f32(a, info, 0, info->n_elems, x));
    CHECK(!zinf_tensors_read_f32(b, other, 0, info->n_elems, y));
    for (uint64_t i = 0; i < info->n_elems; i++)
        n += x[i] != y[i];
    return n;
}

/* After one step, whose gradients are the same. */
static void test_first_step(void)
{
    struct setting s = setting_of("AdamW", NULL, lion);
    struct outcome both, alone[2];
    struct zinf_tensors *mixed = NULL, *files[2] = {NULL, NULL};
    s.clip = 0;
    s.steps = 1;
    run(&s, "both", &both);
    s.extra = NULL;
    run(&s, "adamw", &alone[0]);
    s = setting_of("Lion", NULL, NULL);
    s.clip = 0;
    s.steps = 1;
    run(&s, "lion", &alone[1]);
    CHECKF(!zinf_tensors_open(&mixed, both.folder), "%s", zinf_error());
    for (int i = 0; i < 2; i++)
        CHECKF(!zinf_tensors_open(&files[i], alone[i].folder), "%s", zinf_error());
    int n_lion = 0;
    for (uint64_t i = 0; mixed && files[1] && i < zinf_tensors_count(mixed); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(mixed, i);
        const size_t length = strlen(info->name);
        bool by_lion = strstr(info->name, ".c_") && !strcmp(info->name + length - 7, ".weight");
        uint64_t own = differing(mixed, files[by_lion], info);
        uint64_t other = differing(mixed, files[!by_lion], info);
        n_lion += by_lion;
        CHECKF(!own && other, "%s: %llu of %llu are not its optimizer's, %llu not the other's",
               info->name, (unsigned long long)own, (unsigned long long)info->n_elems,
               (unsigned long long)other);
    }
    CHECK(n_lion == 4 * trainings.shape.layers);
    zinf_tensors_close(mixed);
    for (int i = 0; i < 2; i++)
        zinf_tensors_close(files[i]);
}

/* optimizer.type Muon is what patterns would say: AdamW for what is in no block or no matrix. */
static void test_muon_by_type(void)
{
    struct setting s = setting_of("AdamW", bf16, NULL);
    struct outcome by_type, by_name;
    s.optimizer = "{\"type\": \"Muon\", \"params\": {\"muon_lr\": 0.015625, "
                  "\"adam_lr\": 0.0009765625, \"weight_decay\": 0.1}}";
    run(&s, "by-type", &by_type);
    s.optimizer = "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.0009765625, "
                  "\"weight_decay\": 0.1}}";
    s.extra = BY_NAME("{\"pattern\": \"*.c_*.weight\", \"optimizer\": \"Muon\", \"scale\": 16}");
    run(&s, "by-name", &by_name);
    check_same(&by_name, &by_type, "Muon");
}

/* ---- the same bits ---- */

static void check_places(const char *type, const char *precision, const char *extra, int first)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    struct setting s = setting_of(type, precision, extra);
    struct outcome reference, other;
    char what[256];
    run(&s, "reference", &reference);
    CHECK(reference.loss[0] > 6 && reference.loss[STEPS - 1] != reference.loss[0]);
    for (int i = first; i < 9; i += 2) {
        s.param = places[i / 3];
        s.state = places[i % 3];
        s.copies = i == 3 || i == 4;
        snprintf(what, sizeof what, "%s %s%s: parameters %s, state %s", type, word(precision, ""),
                 extra, s.param, s.state);
        run(&s, "other", &other);
        check_same(&reference, &other, what);
    }
}

static void test_placements(void)
{
    check_places("AdamW", NULL, three, 0);
    check_places("AdamW", bf16, three, 1);
    check_places("AdamW", half, lion, 0);
    check_places("AdamW", NULL, muon, 1);
    check_places("AdamW", bf16, muon, 0);
    check_places("Lion", fp16, muon, 1);
    check_places("Lion", fp16, BY_NAME("{\"pattern\": \"*.w?e.*\", \"optimizer\": \"AdamW8bit\"}"),
                 1);
}

static void check_schedules(const char *precision, double clip, const char *extra)
{
    struct setting s = setting_of("AdamW", precision, extra);
    struct outcome reference, other;
    s.clip = clip;
    s.schedule = schedules[0];
    run(&s, "reference", &reference);
    s.param = s.state = "nvme";
    for (int i = 0; i < 4; i++) {
        s.schedule = schedules[i];
        s.copies = i % 2;
        run(&s, "other", &other);
        check_same(&reference, &other, schedules[i]);
    }
    if (precision == fp16)
        CHECKF(other.n_skipped > 0 && other.n_skipped < STEPS, "%d overflow", other.n_skipped);
}

static void test_schedules(void)
{
    check_schedules(bf16, 4, three);
    check_schedules(fp16, 1, three);
    check_schedules(bf16, 4, muon);
    check_schedules(fp16, 1, muon);
}

/* ---- lanes ---- */

/* Whether an operation waits for an earlier one, itself or by what it waits for or comes behind in
 * its lane. */
static bool comes_after(const struct zinf_program *p, uint32_t op, uint32_t earlier)
{
    bool *needed = calloc(p->n_ops, sizeof *needed);
    needed[op] = true;
    for (uint32_t i = op; i > earlier; i--) {
        const struct zinf_op *o = &p->ops[i];
        uint32_t before = i;
        for (uint32_t w = 0; needed[i] && w < o->n_waits; w++)
            needed[p->waits[o->first_wait + w]] = true;
        while (needed[i] && before-- > earlier)
            if (p->ops[before].lane == o->lane) {
                needed[before] = true;
                break;
            }
    }
    const bool found = needed[earlier];
    free(needed);
    return found;
}

static bool waits_for(const struct zinf_program *p, uint32_t op, uint32_t earlier)
{
    bool waits = false;
    for (uint32_t w = 0; w < p->ops[op].n_waits; w++)
        waits |= p->waits[p->ops[op].first_wait + w] == earlier;
    return waits;
}

static bool is_update(const struct zinf_op *op)
{
    return op->kind == OP_UPDATE || op->kind == OP_MATRIX_UPDATE;
}

/* Updates and the last ones before them in the other lane: where both work in the same memory, how
 * many take turns, and do not; where they do not, how many wait for it, and do not. */
struct pairs {
    int turns, missed, held, free;
};

static void add_pairs(const struct zinf_program *p, bool (*works)(const struct zinf_op *op),
                      struct pairs *pairs)
{
    uint32_t last[ZINF_LANES];
    memset(last, 0xff, sizeof last);
    for (uint32_t k = 0; k < p->n_ops; k++) {
        const struct zinf_op *op = &p->ops[k];
        if (!is_update(op))
            continue;
        const uint32_t other = last[op->lane == ZINF_LANE_HOST ? ZINF_LANE_DEVICE : ZINF_LANE_HOST];
        last[op->lane] = k;
        if (other == UINT32_MAX)
            continue;
        const bool both = works(op) && works(&p->ops[other]);
        const bool after = both ? comes_after(p, k, other) : waits_for(p, k, other);
        pairs->turns += both && after;
        pairs->missed += both && !after;
        pairs->held += !both && after;
        pairs->free += !both && !after;
    }
}

static struct pairs pairs_of(const struct setting *s, bool (*works)(const struct zinf_op *op))
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer_options options = trainer_options(s, config);
    struct zinf_trainer *t = NULL;
    struct pairs pairs = {0};
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    const struct zinf_program *programs[] = {&t->plan.gradients, &t->plan.wait, &t->plan.speculate,
                                             &t->plan.drain};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        add_pairs(programs[i], works, &pairs);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return pairs;
}

static bool has_matrices(const struct zinf_op *op)
{
    return op->kind == OP_MATRIX_UPDATE;
}

static bool is_packed(const struct zinf_op *op)
{
    return op->flags & OP_ANY_PACKED;
}

/* Some of the state is updated in one lane, some in the other. What works in the same memory takes
 * turns: updates of matrices, and of what is packed. Nothing else waits for an update. */
static void test_lanes_take_turns(void)
{
    struct setting s = setting_of("AdamW", bf16, muon);
    s.state = s.param = "cpu";
    s.on_device = 0.75;
    const struct pairs matrices = pairs_of(&s, has_matrices);
    CHECKF(matrices.turns > 0 && !matrices.missed, "%d turns, %d missed", matrices.turns,
           matrices.missed);
    s.on_device = 0.5; /* the table's alone, which has no matrices */
    const struct pairs beside = pairs_of(&s, has_matrices);
    CHECKF(beside.free > 0 && !beside.held, "%d do not wait, %d do", beside.free, beside.held);
    s.extra = NULL;
    const struct pairs plain = pairs_of(&s, has_matrices);
    CHECKF(plain.free > 0 && !plain.held, "%d do not wait, %d do", plain.free, plain.held);
    s.extra = ", \"pack\": \"all\"";
    s.param = s.state = "nvme";
    const struct pairs packed = pairs_of(&s, is_packed);
    CHECKF(!packed.missed, "%d turns, %d missed", packed.turns, packed.missed);
}

/* State of some layers in RAM, of others on the device: the lanes that update matrices take turns
 * in the memory that they work in. */
static void test_matrices_on_both(void)
{
    struct setting s = setting_of("AdamW", bf16, muon);
    struct outcome reference, other;
    s.param = s.state = "cpu";
    s.schedule = "serial";
    run(&s, "reference", &reference);
    s.on_device = 0.8;
    for (int i = 0; i < 4; i++) {
        s.schedule = schedules[i];
        run(&s, "other", &other);
        check_same(&reference, &other, schedules[i]);
    }
}

/* On the drive Lion's matrices have one moment: four bytes less of each element, but for the pages
 * that arrays begin at. */
static void test_plan_knows_the_bytes(void)
{
    struct setting s = setting_of("AdamW", bf16, NULL);
    struct outcome one, both, all;
    s.param = s.state = "nvme";
    s.schedule = "serial";
    run(&s, "bytes", &one);
    s.extra = lion;
    run(&s, "bytes", &both);
    s = setting_of("Lion", bf16, NULL);
    s.param = s.state = "nvme";
    s.schedule = "serial";
    run(&s, "bytes", &all);
    double h = trainings.shape.hidden, most = (double)one.drive_bytes - (double)all.drive_bytes;
    double less = (double)one.drive_bytes - (double)both.drive_bytes;
    double matrices = 4 * 12 * h * h * trainings.shape.layers;
    CHECKF(less > 0.8 * matrices && less < matrices && less < most, "%g bytes less, of %g", less,
           matrices);
}

static void check_refused(const char *type, const char *extra, const char *said)
{
    struct setting s = setting_of(type, NULL, extra);
    struct outcome out;
    s.may_fail = true;
    run(&s, "refused", &out);
    CHECKF(out.failed && strstr(zinf_error(), said), "%s", zinf_error());
}

static void test_refusals(void)
{
    check_refused("AdamW", BY_NAME("{\"pattern\": \"*\", \"optimizer\": 5}"), "must be");
    check_refused("AdamW", BY_NAME("{\"pattern\": \"*\", \"optimizer\": \"Lyon\"}"), "\"Lyon\" is");
    check_refused("AdamW", BY_NAME("{\"pattern\": \"*.wpe.*\", \"optimizer\": \"Adafactor\"}"),
                  "all tensors or of none");
    check_refused("AdamW", BY_NAME("{\"pattern\": \"*.ln_1.*\", \"optimizer\": \"AdamW8bit\"}"),
                  "share a block");
    check_refused("AdamW", BY_NAME("{\"pattern\": \"*.ln_1.*\", \"optimizer\": \"Muon\"}"),
                  "ln_1.weight is none here");
    check_refused("AdamW", BY_NAME("{\"pattern\": \"*.wte.*\", \"optimizer\": \"Muon\"}"),
                  "wte.weight is none here");
    check_refused("AdamW", BY_NAME("{\"pattern\": \"*.c_*.weight\", \"optimizer\": \"NorMuon\"}"),
                  "make it optimizer.type");
}

int main(void)
{
    begin_trainings("mix", &(struct trainings){.shape = {.arch = "gpt2",
                                                         .layers = 3,
                                                         .hidden = 36,
                                                         .heads = 4,
                                                         .vocab = 1000,
                                                         .context = 32},
                                               .steps = STEPS,
                                               .seq = 16,
                                               .batch = 1,
                                               .sub_group = 8192});
    TAP_RUN(test_first_step);
    TAP_RUN(test_muon_by_type);
    TAP_RUN(test_placements);
    TAP_RUN(test_schedules);
    TAP_RUN(test_lanes_take_turns);
    TAP_RUN(test_matrices_on_both);
    TAP_RUN(test_plan_knows_the_bytes);
    TAP_RUN(test_refusals);
    remove_work();
    return tap_done();
}
