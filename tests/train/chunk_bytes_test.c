/*
 * What keys and values of chunks move to and from a drive, where the device has groups of them: a
 * step counts exactly the bytes that an estimate predicts, and the drive has the space that it
 * says; with one part and with two, with attention to all tokens and with windows, which leave
 * chunks out. The memory of a step's operations is planned, too.
 */
#include "least_memory.h"

#include "train/estimate.h"
#include "train/trainer.h"

/* An evaluation has no backward, which would read what stages keep beside values. */
static void check_forward(const struct zinf_program *forward)
{
    const struct zinf_op *op = forward->ops;
    uint32_t n_values = 0, n_others = 0;
    CHECK(!forward->pieces);
    for (uint32_t i = 0; i < forward->n_ops; i++, op++)
        if (op->lane == ZINF_LANE_WRITE)
            (*(op->flags & (OP_VALUE | OP_CARRIED) ? &n_values : &n_others))++;
    CHECKF(n_values && !n_others, "%u writes of values, %u others", n_values, n_others);
}

/* Of a step in the steady state: read and written. */
static void step_bytes(const struct setting *s, uint64_t bytes[2], uint64_t *planned)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer_options options = trainer_options(s, config);
    struct zinf_trainer *t = NULL;
    struct zinf_step_result r = {0};
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    for (int step = 0; t && step < trainings.steps; step++)
        CHECKF(!next_step(t, s, (uint64_t)step, &r), "%s", zinf_error());
    CHECK(t && plan_says(t, "operations of a step"));
    if (t)
        check_forward(&t->plan.forward);
    memcpy(bytes, r.lane_bytes, 2 * sizeof *bytes);
    *planned = t ? zinf_trainer_planned_bytes(t, ZINF_MEMORY_DRIVE) : 0;
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* Parameters and state are in RAM: all is block inputs, keys, values and their gradients. */
static void check_bytes(const char *parts, uint64_t bytes[2])
{
    static const char *const lanes[] = {"read", "written"};
    char text[200];
    bool streams = false;
    snprintf(text, sizeof text, ", \"sequence_chunk\": 2, \"activation_device\": \"nvme\"%s",
             parts);
    struct setting s = {
        .param = "cpu", .state = "cpu", .accumulation = 2, .schedule = "prefetch", .extra = text};
    s.device_memory = least_memory(s, 8 << 20, &streams);
    CHECKF(streams, "%s: %llu bytes", text, (unsigned long long)s.device_memory);
    struct zinf_estimate e = {0};
    struct zinf_config *config = configure(&s);
    struct zinf_estimate_options options = {.trainer = trainer_options(&s, config)};
    uint64_t planned;
    CHECKF(!zinf_estimate(&e, &options), "%s", zinf_error());
    zinf_config_destroy(config);
    step_bytes(&s, bytes, &planned);
    CHECKF(planned == e.bytes[2], "%s: %llu bytes on the drive, %llu estimated", text,
           (unsigned long long)planned, (unsigned long long)e.bytes[2]);
    for (int lane = 0; lane < 2; lane++)
        CHECKF(bytes[lane] && bytes[lane] == e.lane_bytes[lane],
               "%s: %llu bytes %s, %llu estimated", text, (unsigned long long)bytes[lane],
               lanes[lane], (unsigned long long)e.lane_bytes[lane]);
}

static void test_bytes_of_chunks(void)
{
    static const char *const parts[] = {"", ", \"context_parts\": 2"};
    uint64_t full[2], windowed[2];
    for (int i = 0; i < 2; i++) {
        make_model(model, "full", &trainings.shape, 11);
        check_bytes(parts[i], full);
        snprintf(model, sizeof model, "%s/windowed", work);
        check_bytes(parts[i], windowed);
        CHECKF(windowed[0] < full[0], "%s: windows read %llu bytes, all tokens %llu", parts[i],
               (unsigned long long)windowed[0], (unsigned long long)full[0]);
    }
}

int main(void)
{
    begin_trainings("chunk-bytes", &(struct trainings){.shape = {.arch = "llama",
                                                                 .layers = 2,
                                                                 .hidden = 32,
                                                                 .heads = 4,
                                                                 .vocab = 61,
                                                                 .context = 32},
                                                       .steps = 3,
                                                       .seq = 32,
                                                       .batch = 1,
                                                       .sub_group = 5000});
    make_windowed(3);
    TAP_RUN(test_bytes_of_chunks);
    remove_work();
    return tap_done();
}
