/*
 * Where things live never changes a bit: every placement of parameters and optimizer state, with
 * and without look-ahead and accumulation, dropout on, gives the losses and final weights of the
 * run that keeps everything on the device; so does a device memory cap and a kept activation.
 */
#include "train/trainer.h"

#include "trainings.h"

#define MAX_ACCUMULATION 4

static const char *const places[] = {"none", "cpu", "nvme"};

/* Parameters and state there; look_ahead as in the configuration. */
static struct setting setting_in(const char *place, int accumulation, const char *look_ahead)
{
    return (struct setting){.param = place,
                            .state = place,
                            .accumulation = accumulation,
                            .look_ahead = look_ahead,
                            .clip = 0.5};
}

static void check_matrix(const char *precision, const char *extra)
{
    for (int accumulation = 1; accumulation <= MAX_ACCUMULATION; accumulation += 3) {
        struct setting s = setting_in("none", accumulation, "0");
        s.precision = precision;
        s.extra = extra;
        struct outcome reference, other;
        run(&s, "reference", &reference);
        for (int param = 0; param < 3; param++) {
            for (int optimizer = 0; optimizer < 3; optimizer++) {
                for (int ahead = 0; ahead < 2; ahead++) {
                    char what[100];
                    s.param = places[param];
                    s.state = places[optimizer];
                    s.look_ahead = ahead ? "2" : "0";
                    snprintf(what, sizeof what, "param %s, optimizer %s, x%d, look-ahead %s",
                             s.param, s.state, accumulation, s.look_ahead);
                    run(&s, "other", &other);
                    check_same(&reference, &other, what);
                }
            }
        }
    }
}

static void test_nine_placements_fp32(void)
{
    check_matrix(NULL, NULL);
}

static void test_nine_placements_bf16(void)
{
    check_matrix(bf16, NULL);
}

static void test_nine_placements_fp8(void)
{
    struct setting s = setting_in("none", 1, "0");
    struct outcome narrow, wide;
    s.precision = bf16;
    run(&s, "wide", &wide);
    s.extra = ", \"matmul_type\": \"fp8\"";
    run(&s, "narrow", &narrow);
    CHECK(narrow.loss[0] != wide.loss[0] && fabs(narrow.loss[0] - wide.loss[0]) < 0.01);
    check_matrix(bf16, s.extra);
}

/* A run whose matrices go in 8 bits to a device with memory of its own, against one that has all of
 * it there: the same bits, for fewer bytes than without. */
static void check_codes(struct setting s, const struct outcome *reference, double share)
{
    struct outcome plain, coded;
    char what[200];
    s.copies = true;
    s.look_ahead = "2";
    snprintf(what, sizeof what, "param %s, optimizer %s%s", s.param, s.state, s.extra);
    run(&s, "plain", &plain);
    s.asks_codes = true;
    run(&s, "coded", &coded);
    check_same(reference, &coded, what);
    CHECKF(coded.codes && !plain.codes && coded.fetched < share * (double)plain.fetched,
           "%s: %llu bytes to the device, %llu else", what, (unsigned long long)coded.fetched,
           (unsigned long long)plain.fetched);
    const bool packs = strstr(s.extra, "\"pack\": \"all\"") != NULL;
    const bool frozen = strstr(s.extra, "adapter") != NULL;
    CHECKF(coded.images == (!strcmp(s.param, "nvme") && (frozen || !packs)) &&
               coded.updates_images == (coded.images && !frozen),
           "%s: images on the drive %d, by updates %d", what, coded.images, coded.updates_images);
}

static void test_fp8_on_its_way(void)
{
    static const char *const extras[] = {
        ", \"matmul_type\": \"fp8\", \"pack\": \"off\"",
        ", \"matmul_type\": \"fp8\", \"pack\": \"all\"",
        ", \"matmul_type\": \"fp8\", \"adapter\": {\"r\": 4, \"lora_alpha\": 8}"};
    struct setting s = setting_in("none", MAX_ACCUMULATION, "0");
    struct outcome reference;
    s.precision = bf16;
    for (int i = 0; i < 3; i++) {
        s.param = s.state = "none";
        s.extra = extras[i];
        run(&s, "reference", &reference);
        for (int k = 0; k < 4; k++) {
            s.param = places[1 + k / 2];
            s.state = places[1 + k % 2];
            check_codes(s, &reference, i < 2 ? 0.8 : 1.001); /* frozen units may stay */
        }
    }
}

/* Of a step: bytes that the drive reads and writes; what images on it spare of the first, and add
 * to the second, by the operations that fetch. */
struct traffic {
    uint64_t read, written;
    int64_t spared, added;
};

static int64_t count_images(const struct zinf_trainer *t, const struct zinf_program *program,
                            enum zinf_lane lane)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const struct zinf_op *op = &program->ops[i];
        if (op->lane != lane || op->unit < 0 || !t->plan.homes[op->unit].imaged)
            continue;
        const struct zinf_location image =
            zinf_tiers_image(t->plan.tiers, (uint32_t)op->unit, lane == ZINF_LANE_WRITE);
        const struct zinf_layout *layout = &t->setup.layout;
        const uint64_t whole = zinf_layout_unit_bytes(layout, (uint32_t)op->unit, t->setup.dtype);
        if (op->where->extent == image.extent)
            bytes += lane == ZINF_LANE_READ ? (int64_t)(whole - image.bytes) : (int64_t)image.bytes;
    }
    return bytes;
}

static struct traffic count_traffic(const struct setting *s)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer_options options = trainer_options(s, config);
    struct zinf_trainer *t = NULL;
    struct zinf_step_result r = {0};
    struct traffic traffic = {0};
    uint64_t planned[2] = {0};
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    for (uint64_t i = 0; t && i < 2; i++)
        CHECKF(!next_step(t, s, i, &r), "%s", zinf_error());
    const struct zinf_program *programs[] = {&t->plan.gradients, &t->plan.drain};
    for (int p = 0; t && p < 2; p++) {
        for (uint32_t i = 0; i < programs[p]->n_ops; i++)
            if (programs[p]->ops[i].lane <= ZINF_LANE_WRITE)
                planned[programs[p]->ops[i].lane] += programs[p]->ops[i].bytes;
        traffic.spared += count_images(t, programs[p], ZINF_LANE_READ);
        traffic.added += count_images(t, programs[p], ZINF_LANE_WRITE);
    }
    traffic.read = r.lane_bytes[ZINF_LANE_READ];
    traffic.written = r.lane_bytes[ZINF_LANE_WRITE];
    CHECKF(traffic.read == planned[0] && traffic.written == planned[1],
           "read %llu, planned %llu; written %llu, planned %llu", (unsigned long long)traffic.read,
           (unsigned long long)planned[0], (unsigned long long)traffic.written,
           (unsigned long long)planned[1]);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return traffic;
}

/* From a drive a fetch reads the image alone; an update writes it beside the parameters. Both are
 * what the plan counts, and the rest of a step's traffic is what it was. */
static void test_fp8_images_on_the_drive(void)
{
    static const char *const extras[] = {", \"matmul_type\": \"fp8\", \"pack\": \"off\"",
                                         ", \"matmul_type\": \"fp8\", \"pack\": \"off\", "
                                         "\"adapter\": {\"r\": 4, \"lora_alpha\": 8}"};
    struct zinf_model_shape wide = trainings.shape; /* whose matrices are most of it */
    wide.hidden = 128, wide.heads = 4;
    make_model(model, "wide", &wide, 11);
    for (int i = 0; i < 2; i++) {
        struct setting s = setting_in("nvme", 2, "0");
        s.schedule = "serial";
        s.precision = bf16;
        s.extra = extras[i];
        s.copies = true;
        s.device_memory = i ? 3000000 : 0; /* frozen blocks are not to stay there */
        s.asks_codes = true;
        const struct traffic coded = count_traffic(&s);
        CHECKF(coded.spared > 0 && (coded.added > 0) == !i, "images: %lld bytes less, %lld more",
               (long long)coded.spared, (long long)coded.added);
        CHECKF(!i || (double)coded.read < 0.6 * (double)(coded.read + (uint64_t)coded.spared),
               "%llu bytes, less by %lld", (unsigned long long)coded.read, (long long)coded.spared);
        if (i) /* the plan without images has other blocks on the device */
            continue;
        s.asks_codes = false;
        const struct traffic plain = count_traffic(&s);
        CHECKF(plain.read - coded.read == (uint64_t)coded.spared &&
                   coded.written - plain.written == (uint64_t)coded.added,
               "%lld bytes less are read, by images %lld; %lld more written, of images %lld",
               (long long)(plain.read - coded.read), (long long)coded.spared,
               (long long)(coded.written - plain.written), (long long)coded.added);
    }
    in_work(model, "model");
}

/* Images that are made once are still there after a save. */
static void test_fp8_saved_between_steps(void)
{
    struct setting s = setting_in("none", 1, "0");
    struct outcome reference, coded;
    s.precision = bf16;
    s.extra = ", \"matmul_type\": \"fp8\", \"adapter\": {\"r\": 4, \"lora_alpha\": 8}";
    run(&s, "reference", &reference);
    s.param = s.state = "cpu";
    s.look_ahead = "1";
    s.copies = s.asks_codes = s.saves = true;
    s.device_memory = 900000; /* for some of the frozen blocks */
    run(&s, "saved", &coded);
    check_same(&reference, &coded, "saved after each step");
    CHECK(coded.codes && coded.fetched > 100000);
}

/* Sums of a batch's losses, without dropout, before, between and after steps. */
static void evaluate(const struct setting *s, double (*sums)[3])
{
    static int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    struct zinf_config *config = configure(s);
    struct zinf_trainer_options options = trainer_options(s, config);
    struct zinf_trainer *t = NULL;
    struct zinf_step_result r;
    uint64_t count;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    CHECK(t && plan_says(t, "go to the device in 8 bits") == s->asks_codes);
    for (int i = 0; t && i < 3; i++) {
        CHECKF(!i || !next_step(t, s, (uint64_t)i, &r), "%s", zinf_error());
        draw_tokens(s, 9, ids, targets);
        CHECKF(!zinf_trainer_loss(t, TOKENS(ids, targets), 1, &(*sums)[i], &count), "%s",
               zinf_error());
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* No evaluation takes an image that is older than the last update. */
static void test_fp8_evaluated(void)
{
    struct setting s = setting_in("none", 1, "0");
    double wanted[3], sums[3];
    s.precision = bf16;
    s.extra = ", \"matmul_type\": \"fp8\"";
    evaluate(&s, &wanted);
    s.copies = s.asks_codes = true;
    for (int k = 1; k < 3; k++) {
        s.param = s.state = places[k];
        evaluate(&s, &sums);
        for (int i = 0; i < 3; i++)
            CHECKF(sums[i] == wanted[i] && sums[i] > 0.0, "%s, %d: %.17g, not %.17g", places[k], i,
                   sums[i], wanted[i]);
    }
}

/* Experts that rows choose, whose images are made by each fetch. */
static void test_fp8_experts_on_their_way(void)
{
    struct setting s = setting_in("none", MAX_ACCUMULATION, "0");
    struct outcome reference;
    struct zinf_model_shape shape = trainings.shape;
    shape.arch = "mixtral", shape.layers = 2;
    make_model(model, "experts", &shape, 11);
    s.precision = bf16;
    s.extra = ", \"matmul_type\": \"fp8\"";
    run(&s, "reference", &reference);
    for (int k = 0; k < 2; k++) {
        s.param = s.state = places[1 + k];
        check_codes(s, &reference, 0.8);
    }
    in_work(model, "model");
}

static void test_two_threads(void)
{
    struct setting s = setting_in("none", 2, "0");
    struct outcome a, b;
    s.threads = 2;
    run(&s, "a", &a);
    s.param = s.state = "nvme";
    s.look_ahead = "2";
    run(&s, "b", &b);
    check_same(&a, &b, "two threads");
}

static void test_gradients_in_ram_state_on_drive(void)
{
    struct setting s = setting_in("nvme", 4, "1");
    struct outcome a, b;
    run(&s, "a", &a);
    s.grad = "cpu";
    run(&s, "b", &b);
    check_same(&a, &b, "gradients in RAM");
}

static void test_device_cap_changes_nothing(void)
{
    struct setting s = setting_in("nvme", 2, "-1");
    struct outcome free_run, capped;
    run(&s, "free", &free_run);
    /* The working set alone: as little as this plan can be given. */
    s.look_ahead = "0";
    s.extra = ", \"activation_checkpointing\": \"always\"";
    for (s.device_memory = free_run.device_bytes; s.device_memory > 4096;
         s.device_memory -= s.device_memory / 16) {
        struct zinf_config *config = configure(&s);
        struct zinf_trainer_options options = trainer_options(&s, config);
        struct zinf_trainer *t = NULL;
        int code = zinf_trainer_create(&t, &options);
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
        if (code)
            break;
    }
    CHECK(strstr(zinf_error(), "device_memory") != NULL);
    s.device_memory += s.device_memory / 8;
    run(&s, "capped", &capped);
    CHECK(capped.device_bytes <= s.device_memory);
    CHECKF(capped.device_bytes < free_run.device_bytes / 2, "capped %llu of %llu",
           (unsigned long long)capped.device_bytes, (unsigned long long)free_run.device_bytes);
    check_same(&free_run, &capped, "capped");
}

static void test_quarter_of_the_parameters(void)
{
    struct setting s = setting_in("nvme", 2, "-1");
    struct outcome free_run, capped;
    struct zinf_model_shape deep = trainings.shape;
    deep.layers = 24;
    make_model(model, "deep", &deep, 11);
    run(&s, "free", &free_run);
    s.device_memory = 24 * 12 * 64 * 64 * sizeof(float) / 4; /* of the blocks' matrices alone */
    run(&s, "quarter", &capped);
    CHECK(capped.device_bytes <= s.device_memory);
    check_same(&free_run, &capped, "a quarter of the parameters' bytes");
    in_work(model, "model");
}

static void test_recompute_equals_kept(void)
{
    struct setting s = setting_in("none", 1, "0");
    struct outcome kept, recomputed;
    s.extra = ", \"activation_checkpointing\": \"never\"";
    run(&s, "kept", &kept);
    s.extra = ", \"activation_checkpointing\": \"always\"";
    run(&s, "recomputed", &recomputed);
    CHECK(recomputed.device_bytes < kept.device_bytes);
    check_same(&kept, &recomputed, "recomputed");
}

static void test_fp16_overflow_skips(void)
{
    struct setting s = setting_in("nvme", 1, "1");
    struct outcome out;
    s.precision = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 40, \"hysteresis\": 1},";
    run(&s, "fp16", &out);
    CHECK(!isfinite(out.norm[0]) && !isfinite(out.norm[1]));
    /* Nothing was updated: the weights are the initial ones, rounded to fp16. */
    CHECK(out.loss[0] > 6 && out.loss[0] < 8);
}

static void test_no_files_stay(void)
{
    CHECKF(count_entries(drive) == 0, "files are left in %s", drive);
}

int main(void)
{
    begin_trainings("placement", &(struct trainings){.shape = {.arch = "gpt2",
                                                               .layers = 3,
                                                               .hidden = 64,
                                                               .heads = 4,
                                                               .vocab = 1000,
                                                               .context = 32},
                                                     .steps = 3,
                                                     .seq = 16,
                                                     .batch = 2,
                                                     .sub_group = 20000});
    TAP_RUN(test_nine_placements_fp32);
    TAP_RUN(test_nine_placements_bf16);
    TAP_RUN(test_nine_placements_fp8);
    TAP_RUN(test_fp8_on_its_way);
    TAP_RUN(test_fp8_images_on_the_drive);
    TAP_RUN(test_fp8_saved_between_steps);
    TAP_RUN(test_fp8_evaluated);
    TAP_RUN(test_fp8_experts_on_their_way);
    TAP_RUN(test_two_threads);
    TAP_RUN(test_gradients_in_ram_state_on_drive);
    TAP_RUN(test_device_cap_changes_nothing);
    TAP_RUN(test_quarter_of_the_parameters);
    TAP_RUN(test_recompute_equals_kept);
    TAP_RUN(test_fp16_overflow_skips);
    TAP_RUN(test_no_files_stay);
    remove_work();
    return tap_done();
}
