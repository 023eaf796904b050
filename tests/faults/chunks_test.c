/*
 * Sequences in chunks, also in parts that ranks share, whose keys, values, states and gradients of
 * these live on a drive, while parameters and optimizer state do not: so every transfer of a step
 * is one of theirs. Transfers go wrong one by one, those of each kind of value, the drive is full
 * from one of them on, the process is killed at one. Either the training ends with the bits of one
 * that nobody harmed, or it stops and names what is wrong; then --resume ends with those bits. Two
 * processes of a model with a recurrent mixer, and two that share sequences, are killed in the
 * middle of their steps, too.
 */
#include "killed.h"
#include "shimmed.h"

#include "aio/aio_store.h"
#include "train/trainer.h"

#define STEPS "3"
#define ROW_BYTES 128     /* keys and values of a token: 2 heads of 8 numbers in fp32 each */
#define SLICES (48 << 10) /* bytes of the device that several ranks need more, for whole units */

static char keys[300];
static uint64_t memory;         /* of the device, with which keys and values come and go */
static const char *parts = "";  /* keys of sequences in parts */
static uint64_t n_transfers[2]; /* of a training that nobody harms: writes, reads */

/* Where the values of a kind lie in the file of the drive, and a byte of each to be changed. */
static struct place {
    uint64_t from, end, byte;
} places[8];
static int n_places;
static bool thorough; /* ZINF_TEST_ALL: all kinds of damage to all kinds of values */

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
             ", \"threads\": 1, \"sequence_chunk\": 2, \"activation_device\": \"nvme\", "
             "\"device_memory\": %llu%s",
             (unsigned long long)bytes, parts);
}

/* From this extent on, which lie behind each other. */
static void add_place(const struct plan *p, const zinf_extent *extents, uint64_t n, uint64_t byte)
{
    struct place place = {.byte = byte};
    for (uint64_t i = 0; i < n; i++) {
        const struct zinf_aio_request request = {.store = p->store, .extent = extents[i]};
        struct zinf_aio_file *file;
        uint64_t at, bytes = zinf_store_extent_bytes(p->store, extents[i]);
        CHECK(zinf_store_locate(&request, 0, bytes, &file, &at) == bytes);
        CHECK(!i || at == place.end);
        place.from = i ? place.from : at;
        place.end = at + bytes;
    }
    if (n)
        places[n_places++] = place;
}

/* In this order: block inputs, their gradients, keys, values, states of mixers, gradients of keys,
 * of values, what the head and the norm before it keep for their backward. A row of what is carried
 * has a token's keys, then its values; a state lies behind all rows. */
static void see_places(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    const uint64_t live = (uint64_t)p->itinerary.live, inputs = w->n_leaving * live;
    const uint64_t homes = carried_homes(p, false), gradients = carried_homes(p, true);
    n_places = 0;
    add_place(p, p->x_extents, inputs, 5);
    add_place(p, p->x_extents + inputs, w->n_places * live, 5);
    add_place(p, p->carried_extents, homes, 3);
    add_place(p, p->carried_extents, homes, ROW_BYTES / 2 + 3);
    add_place(p, p->carried_extents, w->hands_over ? homes : 0, 2 * ROW_BYTES + 3);
    add_place(p, p->carried_extents + homes, gradients, 3);
    add_place(p, p->carried_extents + homes, gradients, ROW_BYTES / 2 + 3);
    add_place(p, p->x_extents + inputs + w->n_places * live, w->n_keepers * live, 1);
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
    if (!code && *in_groups)
        see_places(&t->plan);
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
    memory = enough;
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

/* One of n transfers behind the first ones. What is written over, or not read again, may go wrong
 * unnoticed. A read that fails once is made again: to be noticed all must from there on. */
static void check_kind(const struct fault_setting *s, const char *kind, bool from_there_on,
                       const char *named, uint64_t first, uint64_t n)
{
    char number[32];
    bool noticed = false;
    for (int tries = 0; tries < 8 && !noticed; tries++) {
        snprintf(number, sizeof number, "%llu%s", (unsigned long long)(first + faults_draw(n)),
                 from_there_on ? "+" : "");
        noticed = one(s, kind, number, named);
    }
    CHECKF(noticed, "%s %s is never noticed", kind, shim_place());
}

/* Kept as "whole", and its transfers are counted. */
static void train_whole(const struct fault_setting *s)
{
    for (int reads = 0; reads < 2; reads++) {
        faults_clear();
        CHECK(!harmed(s, reads ? "read-eio" : "eio", "0"));
        n_transfers[reads] = shim_counted();
        CHECKF(n_transfers[reads] > 100, "%llu transfers", (unsigned long long)n_transfers[reads]);
    }
    faults_keep("whole");
}

/* Some transfer in the middle, of whatever value. */
static void check_any(const struct fault_setting *s, const char *kind, bool from_there_on,
                      const char *named)
{
    const uint64_t n = n_transfers[!strncmp(kind, "read", 4)];
    check_kind(s, kind, from_there_on, named, n / 3, n / 2);
}

/* Values of these kinds are damaged where they are read, or not written where they are made: in one
 * of the first steps, which have more than 100 transfers of each. */
static void check_places(const struct fault_setting *s, int first, int end)
{
    for (int i = thorough ? 0 : first; i < (thorough ? n_places : end); i++) {
        shim_at(places[i].from, places[i].end, places[i].byte);
        check_kind(s, "read-flip", true, "checksum", 1, 80);
        if (thorough || i % 2 == 0)
            check_kind(s, "lost", false, "checksum", 1, 80);
    }
    shim_anywhere();
}

static void check_drive(const struct fault_setting *s)
{
    check_any(s, "enospc", true, "/drive/");
    check_any(s, "signal9", false, NULL);
}

static struct fault_setting prepare(enum fault_model model, const char *of_parts, int n_kinds)
{
    struct fault_setting s = chunked(model);
    parts = of_parts;
    use_little_memory(&s);
    CHECKF(n_places == n_kinds, "%d kinds of values", n_places);
    train_whole(&s);
    return s;
}

static void test_values_on_a_drive(void)
{
    struct fault_setting s = prepare(FAULT_DENSE, "", 7);
    check_any(&s, "torn", false, "checksum");
    check_any(&s, "misplaced", false, "checksum");
    check_any(&s, "read-eio", true, "/drive/");
    check_places(&s, 0, 2);
    check_places(&s, 6, 7);
    check_drive(&s);
}

static void test_states_of_mixers(void)
{
    struct fault_setting s = prepare(FAULT_MIXED, "", 8);
    check_places(&s, 4, 5);
    check_drive(&s);
}

/* One that has both parts; then two that have one each and end with the same bits: what one of them
 * is refused ends the other, too. */
static void test_values_of_parts(void)
{
    struct fault_setting s = prepare(FAULT_DENSE, ", \"context_parts\": 2", 7);
    check_places(&s, 2, 6);
    check_drive(&s);
    parts = ", \"mesh\": {\"context\": 2}";
    s.seats = 2;
    set_memory(memory += SLICES);
    faults_write_config(&s);
    faults_clear();
    check_end("two seats", harmed(&s, "eio", "0"));
    check_any(&s, "read-flip", true, "checksum");
    check_drive(&s);
}

static void check_killed(enum fault_model model, const char *extra)
{
    struct fault_setting s = chunked(model);
    s.param = s.optimizer = "nvme";
    s.extra = extra;
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

static void test_two_processes_are_killed(void)
{
    check_killed(FAULT_MIXED, NULL);
    parts = ", \"mesh\": {\"context\": 2}";
    set_memory(memory);
    check_killed(FAULT_DENSE, keys);
}

int main(void)
{
    faults_begin("chunks-faults");
    thorough = getenv("ZINF_TEST_ALL");
    const char *why = shim_find();
    if (why)
        printf("# left out: %s\n", why);
    else {
        TAP_RUN(test_values_on_a_drive);
        TAP_RUN(test_states_of_mixers);
        TAP_RUN(test_values_of_parts);
    }
    TAP_RUN(test_two_processes_are_killed);
    remove_work();
    return tap_done();
}
