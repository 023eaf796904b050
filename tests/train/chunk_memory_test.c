/*
 * Memory by length: a sequence of 64 K tokens, whose values are on a drive, is planned with as
 * little device memory as one of 4 K tokens, and with as much RAM; so it is evaluated, in RAM too.
 * Not counted in RAM are the operations of a step, of which each chunk has some, checksums, 1/1024
 * of what is on the drive, and which rows have chosen which expert.
 */
#include "least_memory.h"

/* Bytes that a line of the plan says, such as "12.00 KiB"; 0: it is none of RAM that counts. */
static double bytes_of(const char *line)
{
    static const char *const others[] = {"host   total", "host   this program",
                                         "host   operations of a step",
                                         "host   checksums of the drive", "host   rows by expert"};
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{" KiB", 1024}, {" MiB", 1 << 20}, {" GiB", 1 << 30}};
    bool counts = !strncmp(line, "  host ", 7);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        counts &= strncmp(line + 2, others[i], strlen(others[i])) != 0;
    for (size_t i = 0; counts && i < sizeof units / sizeof *units; i++) {
        const char *unit = strstr(line, units[i].name), *number = unit;
        while (unit && number > line && number[-1] != ' ')
            number--;
        if (unit)
            return strtod(number, NULL) * units[i].bytes;
    }
    return 0;
}

static double host_bytes(const struct zinf_trainer *t)
{
    char *text = plan_text(t), *rest = text;
    double sum = 0;
    for (char *line; rest && (line = strsep(&rest, "\n"));)
        sum += bytes_of(line);
    free(text);
    return sum;
}

struct memory {
    uint64_t device;
    double host;
};

static bool plan_with(const struct setting *s, int tokens, struct memory *out)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = NULL;
    trainings.seq = tokens;
    struct zinf_trainer_options options = trainer_options(s, config);
    const int code = zinf_trainer_create(&t, &options);
    if (!code) {
        out->device = zinf_trainer_planned_bytes(t, ZINF_MEMORY_DEVICE);
        out->host = host_bytes(t);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return !code;
}

static void check_lengths(const char *what)
{
    struct setting s = {.param = "nvme",
                        .state = "nvme",
                        .look_ahead = "0",
                        .schedule = "serial",
                        .precision = bf16,
                        .extra = ", \"sequence_chunk\": 1024, \"activation_device\": \"nvme\", "
                                 "\"activation_checkpointing\": \"always\""};
    struct memory few, many;
    bool streams = false;
    trainings.seq = 4096;
    s.device_memory = least_memory(s, 64 << 20, &streams);
    CHECKF(streams, "%s: %llu bytes", what, (unsigned long long)s.device_memory);
    CHECKF(plan_with(&s, 4096, &few), "%s: %s", what, zinf_error());
    printf("# %s: %llu bytes of the device, %.0f of RAM\n", what, (unsigned long long)few.device,
           few.host);
    for (int tokens = 16384; tokens <= 65536; tokens *= 4) {
        if (!plan_with(&s, tokens, &many)) {
            CHECKF(false, "%s, %d tokens: %s", what, tokens, zinf_error());
            continue;
        }
        CHECKF(fabs((double)many.device / (double)few.device - 1) < 0.01,
               "%s, %d tokens: %llu bytes of the device, not %llu", what, tokens,
               (unsigned long long)many.device, (unsigned long long)few.device);
        CHECKF(fabs(many.host / few.host - 1) < 0.01, "%s, %d tokens: %.0f bytes of RAM, not %.0f",
               what, tokens, many.host, few.host);
    }
}

static void test_memory_by_length(void)
{
    check_lengths("attention to all tokens");
}

static void test_memory_of_windows(void)
{
    make_windowed(256);
    check_lengths("windows");
}

/* What a router says of each token, and the rows of each expert. */
static void test_memory_of_experts(void)
{
    struct zinf_model_shape shape = trainings.shape;
    shape.arch = "mixtral";
    make_model(model, "experts", &shape, 11);
    check_lengths("experts");
    in_work(model, "model");
}

/* ---- evaluation alone ---- */

struct evaluator {
    struct zinf_config *config;
    struct zinf_trainer *trainer; /* NULL: it cannot be planned */
};

static struct evaluator evaluator_of(const struct setting *s, int tokens)
{
    struct evaluator e = {configure(s), NULL};
    trainings.seq = tokens;
    struct zinf_trainer_options options = trainer_options(s, e.config);
    options.mode = ZINF_TRAINER_FORWARD;
    if (zinf_trainer_create(&e.trainer, &options))
        e.trainer = NULL;
    return e;
}

static void end_evaluator(struct evaluator *e)
{
    zinf_trainer_destroy(e->trainer);
    zinf_config_destroy(e->config);
}

/* As little device memory as an evaluation can be planned for, about. */
static uint64_t least_to_evaluate(struct setting s, int tokens)
{
    uint64_t few = 0, enough = 64 << 20;
    while (enough - few > enough / 64) {
        s.device_memory = few + (enough - few) / 2;
        struct evaluator e = evaluator_of(&s, tokens);
        *(e.trainer ? &enough : &few) = s.device_memory;
        end_evaluator(&e);
    }
    return enough;
}

/* Chunks go where a training's go, so that the device has no more of a long sequence. */
static void test_evaluation_by_length(void)
{
    static const char *const places[] = {"cpu", "nvme"};
    for (int i = 0; i < 2; i++) {
        char extra[120];
        snprintf(extra, sizeof extra, ", \"sequence_chunk\": 1024, \"activation_device\": \"%s\"",
                 places[i]);
        struct setting s = {.param = "nvme", .look_ahead = "0", .precision = bf16, .extra = extra};
        double first = 0;
        s.device_memory = least_to_evaluate(s, 4096);
        for (int tokens = 4096; tokens <= 65536; tokens *= 4) {
            struct evaluator e = evaluator_of(&s, tokens);
            CHECKF(e.trainer, "%s, %d tokens: %s", places[i], tokens, zinf_error());
            const double device =
                e.trainer ? (double)zinf_trainer_planned_bytes(e.trainer, ZINF_MEMORY_DEVICE) : 0;
            first = tokens == 4096 ? device : first;
            printf("# %s, %d tokens: %.0f bytes of the device\n", places[i], tokens, device);
            CHECKF(fabs(device / first - 1) < 0.01, "%s, %d tokens: %.0f bytes, not %.0f",
                   places[i], tokens, device, first);
            end_evaluator(&e);
        }
    }
}

/* One window, of the loss of which no bit depends on where its chunks are. */
static double loss_of(const struct setting *s, int tokens, bool streams)
{
    static int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    struct evaluator e = evaluator_of(s, tokens);
    double loss = 0;
    uint64_t count = 0;
    draw_tokens(s, 0, ids, targets);
    CHECKF(e.trainer && !zinf_trainer_loss(e.trainer, TOKENS(ids, targets), 1, &loss, &count), "%s",
           zinf_error());
    CHECKF(e.trainer && plan_says(e.trainer, "of chunks in groups of ") == streams, "%d", streams);
    CHECKF(count == (uint64_t)tokens && loss > 0, "%llu tokens", (unsigned long long)count);
    end_evaluator(&e);
    return loss;
}

static void test_evaluation_has_its_bits(void)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    double loss[3][2];
    for (int i = 0; i < 3; i++)
        for (int copies = 0; copies < 2; copies++) {
            char extra[120];
            snprintf(extra, sizeof extra, ", \"sequence_chunk\": 64, \"activation_device\": \"%s\"",
                     places[i]);
            struct setting s = {
                .param = "nvme", .precision = bf16, .copies = copies, .extra = extra};
            trainings.seq = 1000;
            s.device_memory = i ? least_to_evaluate(s, 1000) : 0;
            loss[i][copies] = loss_of(&s, 1000, i > 0);
            CHECKF(loss[i][copies] == loss[0][0], "%s, copies %d: %.17g, %.17g", places[i], copies,
                   loss[i][copies], loss[0][0]);
        }
}

/* ---- rows that no array has ---- */

static int read_rows(void *arg, int64_t sample, int64_t first, int64_t n, int32_t *ids,
                     int32_t *targets)
{
    const struct zinf_batch *batch = arg;
    const int64_t at = sample * trainings.seq + first;
    const size_t bytes = (size_t)n * sizeof *ids;
    if (sample < 0 || first < 0 || first + n > trainings.seq)
        return zinf_fail(-EINVAL, "rows %d to %d of a sample", (int)first, (int)(first + n));
    if (ids)
        memcpy(ids, batch->inputs[ZINF_INPUT_IDS] + at, bytes);
    if (targets)
        memcpy(targets, batch->inputs[ZINF_INPUT_TARGETS] + at, bytes);
    return 0;
}

static int fail_to_read(void *arg, int64_t sample, int64_t first, int64_t n, int32_t *ids,
                        int32_t *targets)
{
    (void)arg, (void)sample, (void)n, (void)ids, (void)targets;
    return zinf_fail(-EIO, "no rows from %d on", (int)first);
}

/* A step and an evaluation of arrays, then of the same rows as they are read. */
static void test_rows_of_a_batch(void)
{
    static int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    const struct setting s = {.accumulation = 2, .extra = ", \"sequence_chunk\": 7"};
    struct zinf_batch arrays = *TOKENS(ids, targets);
    const struct zinf_batch rows = {.rows = {read_rows, &arrays}},
                            none = {.rows = {.read = fail_to_read}};
    const struct zinf_batch *of[] = {&arrays, &rows};
    double loss[2][2] = {{0}};
    trainings.seq = 40;
    for (int k = 0; k < 2; k++) {
        struct zinf_config *config = configure(&s);
        struct zinf_trainer_options options = trainer_options(&s, config);
        struct zinf_trainer *t = NULL;
        struct zinf_step_result r = {0};
        uint64_t count = 0;
        draw_tokens(&s, 0, ids, targets);
        CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
        CHECKF(t && !zinf_trainer_step(t, of[k], &r), "%s", zinf_error());
        CHECKF(t && !zinf_trainer_loss(t, of[k], 1, &loss[k][1], &count), "%s", zinf_error());
        loss[k][0] = r.loss;
        CHECK(count == 40 && r.loss > 0);
        CHECK(t && zinf_trainer_step(t, &none, &r) == -EIO);
        CHECKF(strstr(zinf_error(), "no rows from 0 on"), "%s", zinf_error());
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
    }
    for (int i = 0; i < 2; i++)
        CHECKF(loss[0][i] == loss[1][i], "%.17g, %.17g", loss[0][i], loss[1][i]);
}

int main(void)
{
    begin_trainings("chunk-memory", &(struct trainings){.shape = {.arch = "llama",
                                                                  .layers = 2,
                                                                  .hidden = 32,
                                                                  .heads = 2,
                                                                  .vocab = 300,
                                                                  .context = 65536},
                                                        .steps = 1,
                                                        .seq = 4096,
                                                        .batch = 1,
                                                        .sub_group = 100000});
    TAP_RUN(test_rows_of_a_batch);
    TAP_RUN(test_memory_by_length);
    TAP_RUN(test_memory_of_experts);
    TAP_RUN(test_evaluation_by_length);
    TAP_RUN(test_evaluation_has_its_bits);
    TAP_RUN(test_memory_of_windows);
    remove_work();
    return tap_done();
}
