/*
 * Sequences in chunks whose keys, values, states and gradients of these live on a drive, while
 * parameters and optimizer state do not: so every transfer of a step is one of theirs. Transfers go
 * wrong one by one, the drive is full from one of them on, the process is killed at one. Either the
 * training ends with the bits of one that nobody harmed, or it stops and names what is wrong; then
 * --resume ends with those bits. Two processes of a model with a recurrent mixer are killed in the
 * middle of their steps, too.
 */
#include "killed.h"
#include "shimmed.h"

#define STEPS "3"

static char keys[300];

static struct fault_setting chunked(enum fault_model model)
{
    struct fault_setting s = fault_setting_of(0);
    s.model = model;
    s.param = s.optimizer = "cpu";
    s.schedule = "serial";
    s.number = "fp32";
    s.pack = "off";
    s.saves = true;
    s.extra = keys;
    return s;
}

static void set_memory(uint64_t bytes)
{
    snprintf(keys, sizeof keys,
             ", \"sequence_chunk\": 2, \"activation_device\": \"nvme\", \"device_memory\": %llu",
             (unsigned long long)bytes);
}

/* Whether so little memory of the device is enough; in_groups: whether groups of chunks come and
 * go then. */
static bool can_be_planned(const struct fault_setting *s, uint64_t bytes, bool *in_groups)
{
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    struct zinf_trainer *t = NULL;
    set_memory(bytes);
    faults_write_config(s);
    CHECKF(!zinf_config_load(&config, faults_config, &context), "%s", zinf_error());
    struct zinf_trainer_options options = {.mode = ZINF_TRAINER_TRAIN,
                                           .model_path = faults_models[s->model],
                                           .config = config,
                                           .seq_len = 16,
                                           .device = ZINF_DEVICE_HOST};
    const int code = zinf_trainer_create(&t, &options);
    if (!code)
        *in_groups = plan_says(t, "of chunks in groups of ");
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return !code;
}

/* As little as a plan can be made for, about. */
static void use_little_memory(const struct fault_setting *s)
{
    bool in_groups = false;
    uint64_t few = 0, enough = 8 << 20;
    while (enough - few > enough / 64) {
        const uint64_t between = few + (enough - few) / 2;
        if (can_be_planned(s, between, &in_groups))
            enough = between;
        else
            few = between;
    }
    CHECKF(in_groups, "with %llu bytes all chunks are on the device", (unsigned long long)enough);
    set_memory(enough);
    faults_write_config(s);
}

static int harmed(const struct fault_setting *s, const char *kind, const char *number)
{
    char text[128];
    snprintf(text, sizeof text, "%s %s /drive/", kind, number);
    return shim_train(s, text, STEPS);
}

/* Ends with the same bits. */
static void check_end(const char *what, int status)
{
    char *said = faults_what_was_said();
    const char *line = strstr(said, "zinf train: ");
    CHECKF(!status && faults_same_end("whole", STEPS), "%s: status %d: %s", what, status,
           line ? line : "other bits");
    free(said);
}

/* The n-th transfer of this kind, or all from it on. False: the training did not notice. */
static bool one(const struct fault_setting *s, const char *kind, const char *number,
                const char *named)
{
    char what[100];
    faults_clear();
    const int status = harmed(s, kind, number);
    snprintf(what, sizeof what, "%s %s", kind, number);
    if (!status) {
        check_end(what, status);
        return false;
    }
    char *said = faults_what_was_said();
    const char *line = strstr(said, "zinf train: ");
    CHECKF(!named || (line && strstr(line, named)), "%s: status %d: %s", what, status,
           line ? line : "no message");
    free(said);
    snprintf(what, sizeof what, "%s %s, then --resume", kind, number);
    check_end(what, faults_wait(faults_train(s, STEPS)));
    return true;
}

/* Some transfer of the steps. What is written over, or not read again, may go wrong unnoticed. A
 * read that fails once is made again: to be noticed all must from there on. */
static void check_kind(const struct fault_setting *s, const char *kind, bool from_there_on,
                       const char *named)
{
    char number[32];
    bool noticed = false;
    faults_clear();
    CHECK(!harmed(s, kind, "0"));
    const uint64_t n = shim_counted();
    CHECKF(n > 100, "%llu transfers of kind %s", (unsigned long long)n, kind);
    for (int tries = 0; tries < 8 && !noticed; tries++) {
        snprintf(number, sizeof number, "%llu%s", (unsigned long long)(n / 3 + faults_draw(n / 2)),
                 from_there_on ? "+" : "");
        noticed = one(s, kind, number, named);
    }
    CHECKF(noticed, "%s is never noticed", kind);
}

static void check_values(enum fault_model model)
{
    struct fault_setting s = chunked(model);
    use_little_memory(&s);
    faults_clear();
    CHECK(!faults_wait(faults_train(&s, STEPS)));
    faults_keep("whole");
    check_kind(&s, "read-flip", true, "checksum");
    if (model == FAULT_DENSE) {
        check_kind(&s, "lost", false, "checksum");
        check_kind(&s, "torn", false, "checksum");
        check_kind(&s, "misplaced", false, "checksum");
        check_kind(&s, "read-eio", true, "/drive/");
    }
    check_kind(&s, "enospc", true, "/drive/");
    check_kind(&s, "signal9", false, NULL);
}

static void test_values_on_a_drive(void)
{
    const char *why = shim_find();
    if (why)
        printf("# left out: %s\n", why);
    else {
        check_values(FAULT_DENSE);
        check_values(FAULT_MIXED);
    }
}

static void test_two_processes_are_killed(void)
{
    struct fault_setting s = chunked(FAULT_MIXED);
    s.param = s.optimizer = "nvme";
    s.extra = NULL;
    faults_ranks = 2;
    if (!make_setting(&s)) {
        printf("# left out: they end before they can be killed\n");
        return;
    }
    faults_put_back("killed");
    const int status = faults_wait(faults_train(&s, FAULT_STEPS));
    char *said = faults_what_was_said();
    CHECKF(!status && strstr(said, "going on after step "), "status %d: %s", status, said);
    CHECK(faults_same_end("whole", FAULT_STEPS));
    free(said);
    faults_ranks = 1;
}

int main(void)
{
    faults_begin("chunks-faults");
    TAP_RUN(test_values_on_a_drive);
    TAP_RUN(test_two_processes_are_killed);
    remove_work();
    return tap_done();
}
