/*
 * Optimizers by tensor: each tensor's step is that of a training whose one optimizer is the
 * tensor's, and all of it has the same bits on the device, in RAM and on the drive, under every
 * schedule, also when steps clip or overflow. The plan knows the bytes of each.
 */
#include "trainings.h"

#include "formats/formats.h"

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
    TAP_RUN(test_matrices_on_both);
    TAP_RUN(test_plan_knows_the_bytes);
    TAP_RUN(test_refusals);
    remove_work();
    return tap_done();
}
