/*
 * Seats: the samples of a step dealt to seats of one process, to seats of several, and to ranks of
 * one each, give the bits of one rank; over ZeRO's stages, places, number types and two families,
 * with clipping and dropout. What leaves the drive does so once, however many seats there are.
 */
#include "trained_ranks.h"

enum { MICROS = 8, STEPS = 2 };

/* processes, seats, and what that leaves of accumulation is MICROS / both. */
static const struct split {
    uint32_t processes, seats;
} splits[] = {{1, 2}, {1, 4}, {1, 8}, {2, 1}, {2, 2}, {4, 2}};

enum { N_SPLITS = sizeof splits / sizeof *splits };

static const char tree[] = ", \"gradient_sum\": \"tree\", \"dropout\": 0.1";

static void check_splits(struct setting s, const char *what)
{
    struct outcome one, some;
    char name[80];
    s.clip = 0.7;
    s.order = "layer-major";
    s.extra = tree;
    s.accumulation = MICROS;
    snprintf(name, sizeof name, "%s-1x1x%d", what, MICROS);
    run(&s, name, &one);
    for (int i = 0; i < N_SPLITS; i++) {
        const struct split *split = &splits[i];
        if (getenv("ZINF_SANITIZER") && split->processes * split->seats != 4)
            continue; /* it takes minutes then */
        s.accumulation = MICROS / (int)(split->processes * split->seats);
        snprintf(name, sizeof name, "%s-%ux%ux%d", what, split->processes, split->seats,
                 s.accumulation);
        run_seats(&s, split->processes, split->seats, name, &some);
        check_same(&one, &some, name);
    }
}

/* Of parameters the drive is stage 3's alone. */
static void check_family(const char *arch)
{
    static const struct {
        int stage;
        const char *param, *state;
    } kinds[] = {{1, "none", "cpu"},  {1, "none", "nvme"}, {2, "none", "cpu"},
                 {2, "none", "nvme"}, {3, "cpu", "cpu"},   {3, "nvme", "nvme"}};
    char what[60];
    trainings.shape.arch = arch;
    make_model(model, arch, &trainings.shape, 11);
    for (int i = 0; i < 12; i++) {
        struct setting s = {.param = kinds[i / 2].param,
                            .state = kinds[i / 2].state,
                            .copies = (i + i / 2) % 2,
                            .stage = kinds[i / 2].stage,
                            .precision = i % 2 ? NULL : bf16};
        snprintf(what, sizeof what, "%s-stage%d-%s-%s", arch, s.stage, s.state,
                 i % 2 ? "fp32" : "bf16");
        check_splits(s, what);
    }
}

static void test_gpt2(void)
{
    check_family("gpt2");
}

static void test_llama(void)
{
    check_family("llama");
}

/* ---- traffic ---- */

/* Of all parameters in bf16, as so many ranks cut them. */
static uint64_t cut_bytes(uint32_t world)
{
    struct zinf_model *opened = NULL;
    uint64_t bytes = 0;
    CHECKF(!zinf_model_open(&opened, model), "%s", zinf_error());
    const struct zinf_graph *g = zinf_model_graph(opened);
    for (uint32_t u = 0; u < g->n_units; u++)
        bytes += 2 * zinf_align_up(g->units[u].elems, (uint64_t)ZINF_LAYOUT_ALIGN * world);
    zinf_model_close(opened);
    return bytes;
}

/* All seats together read as often as one does, for fetches and for updates: each its slices. */
static void test_drives_are_read_once(void)
{
    struct setting s = {.param = "nvme", .state = "cpu", .precision = bf16, .schedule = "prefetch"};
    struct outcome one, some;
    trainings.shape.arch = "gpt2";
    make_model(model, "traffic", &trainings.shape, 11);
    s.order = "layer-major";
    s.extra = tree;
    for (uint32_t seats = 1; seats <= 4; seats *= 2) {
        char name[40];
        s.accumulation = 4 / (int)seats;
        snprintf(name, sizeof name, "traffic-%u", seats);
        run_seats(&s, 1, seats, name, &some);
        one = seats == 1 ? some : one;
        CHECKF(some.read[1] * cut_bytes(1) == one.read[1] * cut_bytes(seats) && one.read[1] > 0,
               "%llu bytes leave the drive for %u seats, %llu for one",
               (unsigned long long)some.read[1], seats, (unsigned long long)one.read[1]);
    }
}

/* Where copies go to the device, the net between seats makes none but of a few numbers: slices and
 * gradients are used where they are. Host memory has no place for whole units then. */
static void test_seats_lend(void)
{
    static const char *const places[] = {"cpu", "nvme"};
    struct outcome out;
    trainings.shape.arch = "llama";
    make_model(model, "lending", &trainings.shape, 11);
    for (int i = 0; i < 2; i++) {
        struct setting s = {.param = places[i],
                            .state = "cpu",
                            .precision = bf16,
                            .copies = true,
                            .accumulation = 2,
                            .order = "layer-major",
                            .extra = tree};
        run_seats(&s, 1, 4, "lending", &out);
        CHECKF(out.lent > 100000 && out.sent - out.lent < 40000,
               "%s: of %llu bytes for other seats %llu are lent", places[i],
               (unsigned long long)out.sent, (unsigned long long)out.lent);
    }
}

#define TREE ", \"gradient_sum\": \"tree\", \"dropout\": 0.1"
#define ADAPTERS ", \"adapter\": {\"r\": 4}"
#define PARTS TREE ", \"context_parts\": 2"

/* Slices in RAM that are packed there: each rank unpacks its own before all gather them. */
static void test_slices_packed_in_ram(void)
{
    struct outcome one, some;
    trainings.shape.arch = "gpt2";
    make_model(model, "packed", &trainings.shape, 11);
    for (int i = 0; i < 4; i++) {
        const bool shares = i == 2; /* each sequence */
        const bool adapts = i == 3; /* a frozen model */
        struct setting s = {.param = "cpu",
                            .state = "nvme",
                            .precision = i ? NULL : bf16,
                            .order = "layer-major",
                            .accumulation = 4,
                            .clip = 0.7,
                            .extra = shares   ? PARTS
                                     : adapts ? TREE ADAPTERS
                                              : tree};
        run(&s, "packed-1", &one);
        s.accumulation = shares ? 4 : 2;
        s.copies = i;
        s.sharing = shares ? 2 : 0;
        s.schedule = "update-in-forward"; /* in one generation, wherever their state is */
        s.asks_fronts = true;
        s.extra = shares   ? PARTS ", \"pack\": \"all\", \"mesh\": {\"context\": 2}"
                  : adapts ? TREE ADAPTERS ", \"pack\": \"all\""
                           : TREE ", \"pack\": \"all\"";
        s.host_memory = RESIDENT + ((uint64_t)64 << 20);
        for (uint32_t processes = 1; processes <= 2; processes++) {
            run_seats(&s, processes, 2 / processes, "packed-2", &some);
            check_same(&one, &some, "packed in RAM");
            CHECKF(some.packs_fronts, "%u processes", processes);
        }
    }
}

/* Products of floats of 8 bits over ranks that have slices: the bits of one rank that has all of it
 * on the device. Where slices meet in RAM the CPU rounds what they make on its way to the device;
 * where devices copy slices from each other's RAM they come as they are. No drive has images. */
static void test_floats_of_8_bits(void)
{
    static const struct {
        const char *arch, *param, *extra;
    } cases[] = {{"gpt2", "nvme", ""},
                 {"llama", "cpu", ADAPTERS}, /* most of it is frozen */
                 {"llama", "nvme", ADAPTERS},
                 {"gpt2", "nvme", ", \"pack\": \"all\""},
                 {"mixtral", "nvme", ""}}; /* experts that train */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char extra[200];
        struct outcome one, some;
        snprintf(extra, sizeof extra, TREE ", \"matmul_type\": \"fp8\"%s", cases[i].extra);
        trainings.shape.arch = cases[i].arch;
        make_model(model, "float8", &trainings.shape, 11);
        struct setting s = {.param = "none",
                            .state = "none",
                            .precision = bf16,
                            .order = "layer-major",
                            .accumulation = 4,
                            .clip = 0.7,
                            .extra = extra};
        run(&s, "float8-1", &one);
        s.param = s.state = cases[i].param;
        s.copies = s.asks_codes = true;
        s.accumulation = 2;
        for (uint32_t processes = 1; processes <= 2; processes++) {
            run_seats(&s, processes, 2 / processes, "float8-2", &some);
            check_same(&one, &some, extra);
            CHECKF(some.codes == (processes > 1) && !some.images,
                   "case %d, %u processes: 8 bits to the device: %d, on the drive: %d", (int)i,
                   processes, some.codes, some.images);
        }
    }
}

int main(void)
{
    begin_rank_trainings("seats", STEPS);
    TAP_RUN(test_gpt2);
    TAP_RUN(test_llama);
    TAP_RUN(test_drives_are_read_once);
    TAP_RUN(test_seats_lend);
    TAP_RUN(test_slices_packed_in_ram);
    TAP_RUN(test_floats_of_8_bits);
    remove_work();
    return tap_done();
}
