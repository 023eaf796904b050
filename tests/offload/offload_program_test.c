/*
 * offload: the layout covers every element once; a program's waits order every conflict, by a
 * brute-force happens-before relation; the prediction of small programs is what is worked out by
 * hand, and never less than their work alone asks for.
 */
#include "offload_support.h"

#include <math.h>

/* ---- layout ---- */

/* Every rank's groups, in order, tile its slice, and the slices tile the padded unit. */
static void check_layout(const uint64_t *elems, uint32_t n_units, uint64_t group, uint32_t world)
{
    uint64_t end[8] = {0};
    for (uint32_t rank = 0; rank < world; rank++) {
        struct zinf_layout layout;
        CHECK(!lay_out(&layout, elems, n_units, group, rank, world));
        uint32_t g = 0;
        uint64_t total = 0, largest = 0;
        for (uint32_t u = 0; u < n_units; u++) {
            const struct zinf_layout_unit *unit = &layout.units[u];
            uint64_t at = 0;
            CHECK(unit->elems == elems[u] && unit->padded_elems >= elems[u]);
            CHECK(unit->padded_elems - elems[u] < (uint64_t)ZINF_LAYOUT_ALIGN * world);
            CHECK(unit->slice_first == end[u] && unit->first_group == g);
            for (; g < unit->first_group + unit->n_groups; g++) {
                const struct zinf_layout_group *part = &layout.groups[g];
                CHECK(part->unit == u && part->first == at && part->n > 0);
                CHECK(part->n % ZINF_LAYOUT_ALIGN == 0);
                CHECK(part->n <= zinf_align_up(group ? group : 1, ZINF_LAYOUT_ALIGN));
                at += part->n;
                largest = part->n > largest ? part->n : largest;
            }
            CHECK(at == unit->slice_elems);
            end[u] += unit->slice_elems;
            total += unit->slice_elems;
            if (rank == world - 1)
                CHECK(end[u] == unit->padded_elems);
        }
        CHECK(g == layout.n_groups && total == layout.total_elems);
        CHECK(largest == layout.max_group_elems);
        zinf_layout_fini(&layout);
    }
}

static void test_layout_covers_every_element_once(void)
{
    for (int round = 0; round < 60; round++) {
        uint64_t elems[8];
        uint32_t n = 1 + dice(8);
        for (uint32_t u = 0; u < n; u++)
            elems[u] = 1 + dice(1u << (4 + dice(20)));
        check_layout(elems, n, dice(1u << (1 + dice(20))), 1 + (uint32_t)round % 8);
    }
}

static void test_layout_beyond_32_bits(void)
{
    const uint64_t elems[] = {((uint64_t)1 << 31) + 1, ((uint64_t)1 << 32) + 5, 7,
                              ((uint64_t)1 << 40) - 3};
    for (uint32_t world = 1; world <= 8; world++)
        check_layout(elems, 4, (uint64_t)3 << 31, world);
    check_layout(elems, 3, (uint64_t)4 << 20, 3);
}

static void test_layout_refuses_a_rank_beyond_the_world(void)
{
    struct zinf_layout layout;
    const uint64_t elems = 10;
    CHECK(lay_out(&layout, &elems, 1, 10, 2, 2) == -EINVAL);
    CHECK(lay_out(&layout, &elems, 1, 10, 0, 0) == -EINVAL);
}

/* Every axis is taken and looked at; along two of them nothing is cut yet, and units along
 * TENSOR are the rank's own. */
static void test_layout_of_four_axes(void)
{
    static const char *const names[] = {"data", "tensor", "pipe", "context"};
    const uint64_t elems[] = {10, 20000};
    const bool whole[] = {false, true};
    struct zinf_layout layout;
    struct zinf_layout_options options = {
        .unit_elems = elems, .whole = whole, .n_units = 2, .group_elems = 4096};
    for (int a = 0; a < ZINF_AXES; a++)
        options.at[a].world = 1;
    CHECK(!zinf_layout_init(&layout, &options));
    CHECK(layout.units[0].n_groups == 1 && layout.units[1].n_groups == 1);
    zinf_layout_fini(&layout);
    for (int a = 0; a < ZINF_AXES; a++) {
        options.at[a].world = 2;
        int code = zinf_layout_init(&layout, &options);
        CHECKF(a != ZINF_CONTEXT ? !code : code == -ENOTSUP && strstr(zinf_error(), names[a]), "%s",
               zinf_error());
        if (!code)
            zinf_layout_fini(&layout);
        options.at[a].rank = 2;
        CHECK(zinf_layout_init(&layout, &options) == -EINVAL && strstr(zinf_error(), names[a]));
        options.at[a] = (struct zinf_axis){.world = 1};
    }
}

/* ---- waits ---- */

/* before[i][j]: i has ended when j begins, by waits, by the order of a lane that ends its
 * operations in order, and by their combinations. */
static void happens_before(const struct zinf_program *p, bool before[OPS][OPS])
{
    memset(before, 0, sizeof(bool[OPS][OPS]));
    for (uint32_t j = 0; j < p->n_ops; j++) {
        const struct zinf_op *op = &p->ops[j];
        for (uint32_t i = 0; i < j; i++)
            before[i][j] = p->ops[i].lane == op->lane && op->lane > ZINF_LANE_WRITE;
        for (uint32_t w = 0; w < op->n_waits; w++) {
            uint32_t i = p->waits[op->first_wait + w];
            CHECKF(i < j, "operation %u waits for %u", j, i);
            before[i][j] = true;
        }
        for (uint32_t i = j; i-- > 0;)
            for (uint32_t k = 0; before[i][j] && k < i; k++)
                before[k][j] |= before[k][i];
    }
}

/* Of two operations that touch the same thing, the one that was added first comes first. */
static void check_conflicts(const struct zinf_program *p, const struct touch touches[OPS],
                            bool before[OPS][OPS])
{
    uint32_t position[OPS];
    for (uint32_t i = 0; i < p->n_ops; i++)
        position[p->ops[i].unit] = i;
    for (int j = 0; j < OPS; j++)
        for (int i = 0; i < j; i++) {
            const struct touch *a = &touches[i], *b = &touches[j];
            bool conflict = a->to == b->to || a->to == b->from || a->from == b->to;
            CHECKF(!conflict || before[position[i]][position[j]], "%d is not before %d", i, j);
        }
}

static void test_waits_order_every_conflict(void)
{
    static bool before[OPS][OPS];
    for (int round = 0; round < 100; round++) {
        struct zinf_program p;
        struct touch touches[OPS];
        make_resources(&p);
        for (int i = 0; i < OPS; i++) {
            struct zinf_op op = {.unit = i, .seconds = dice(10), .deadline = dice(50)};
            touches[i] = draw_touch(true);
            add_touch(&p, &op, &touches[i]);
        }
        CHECK(!zinf_program_schedule(&p, (enum zinf_order)(round % 3), NULL));
        happens_before(&p, before);
        check_conflicts(&p, touches, before);
        zinf_program_fini(&p);
    }
}

/* ---- prediction ---- */

static void add_timed(struct zinf_program *p, enum zinf_lane lane, double seconds, float cpu,
                      uint32_t deadline, zinf_resource reads, zinf_resource writes)
{
    struct zinf_op op = {.lane = lane, .seconds = seconds, .cpu = cpu, .deadline = deadline};
    struct zinf_uses uses = {&reads, &writes, 1, 1};
    CHECK(!zinf_program_add(p, &op, &uses));
}

static double predicted(enum zinf_order order, const struct zinf_machine *machine,
                        void (*build)(struct zinf_program *p, const zinf_resource *r))
{
    struct zinf_program p;
    struct zinf_prediction out = {0};
    zinf_resource r[8];
    CHECK(!zinf_program_init(&p, "timed"));
    for (int i = 0; i < 8; i++)
        CHECK(!zinf_program_resource(&p, &r[i]));
    build(&p, r);
    CHECK(!zinf_program_schedule(&p, order, machine));
    struct zinf_predict_options options = {.machine = machine};
    CHECK(!zinf_program_predict(&p, &options, &out));
    zinf_program_fini(&p);
    return out.seconds;
}

/* Three fetches of a second and three computations of two. */
static void build_pipeline(struct zinf_program *p, const zinf_resource *r)
{
    for (int i = 0; i < 3; i++) {
        add_timed(p, ZINF_LANE_READ, 1, 0, UINT32_MAX, r[7], r[i]);
        add_timed(p, ZINF_LANE_DEVICE, 2, 1, (uint32_t)i, r[i], r[6]);
    }
}

static void build_shared(struct zinf_program *p, const zinf_resource *r)
{
    add_timed(p, ZINF_LANE_DEVICE, 2, 1, 0, r[0], r[1]);
    add_timed(p, ZINF_LANE_HOST, 1, 1, 0, r[2], r[3]);
    add_timed(p, ZINF_LANE_READ, 3, 0, 0, r[4], r[5]);
    add_timed(p, ZINF_LANE_WRITE, 1, 0, 0, r[6], r[7]);
}

/* A bulk read was added before the one that is needed at once. */
static void build_urgent(struct zinf_program *p, const zinf_resource *r)
{
    add_timed(p, ZINF_LANE_READ, 10, 0, 100, r[0], r[1]);
    add_timed(p, ZINF_LANE_READ, 1, 0, UINT32_MAX, r[0], r[2]);
    add_timed(p, ZINF_LANE_DEVICE, 10, 1, 0, r[2], r[3]);
}

/* A read that waits for a computation does not delay the one behind it. */
static void build_blocked(struct zinf_program *p, const zinf_resource *r)
{
    add_timed(p, ZINF_LANE_DEVICE, 4, 1, 0, r[6], r[0]);
    add_timed(p, ZINF_LANE_READ, 2, 0, UINT32_MAX, r[0], r[1]);
    add_timed(p, ZINF_LANE_READ, 3, 0, UINT32_MAX, r[2], r[3]);
    add_timed(p, ZINF_LANE_DEVICE, 3, 1, 1, r[3], r[4]);
}

/* Adds an operation on bytes from `first` on of a buffer of 4096. */
static int add_in_buffer(enum zinf_lane lane, uint64_t first, uint64_t bytes)
{
    const struct zinf_pool_options options = {"slots", NULL, 4096, 2, false};
    struct zinf_program p;
    zinf_pool pool;
    zinf_buffer buffer = 0;
    CHECK(!zinf_program_init(&p, "room") && !zinf_program_pool(&p, &options, &pool) &&
          !zinf_program_buffer(&p, pool, &buffer));
    const struct zinf_operand at = zinf_in(buffer, first);
    const struct zinf_op op = {.lane = lane, .at = &at, .n_at = 1, .bytes = bytes};
    const struct zinf_uses uses = {.writes = &buffer, .n_writes = 1};
    int code = zinf_program_add(&p, &op, &uses);
    zinf_program_fini(&p);
    return code;
}

static void test_nothing_is_moved_beyond_a_buffer(void)
{
    static const enum zinf_lane lanes[] = {ZINF_LANE_READ, ZINF_LANE_WRITE, ZINF_LANE_H2D,
                                           ZINF_LANE_D2H};
    for (int i = 0; i < 4; i++) {
        CHECK(add_in_buffer(lanes[i], 0, 4096) == 0 && add_in_buffer(lanes[i], 64, 4032) == 0);
        CHECK(add_in_buffer(lanes[i], 0, 4097) == -EINVAL);
        CHECK(add_in_buffer(lanes[i], 64, 4096) == -EINVAL);
        CHECK(strstr(zinf_error(), "\"slots\", which has 4096"));
        CHECK(add_in_buffer(lanes[i], 8192, UINT64_MAX) == -EINVAL);
    }
    /* what is computed has other figures than its operands' lengths */
    CHECK(add_in_buffer(ZINF_LANE_DEVICE, 0, 1 << 20) == 0);
}

static void add_located(struct zinf_program *p, struct zinf_operand at, struct zinf_location where)
{
    const struct zinf_op op = {
        .lane = ZINF_LANE_HOST, .unit = 1, .at = &at, .n_at = 1, .where = &where};
    CHECK(!zinf_program_add(p, &op, &(struct zinf_uses){0}));
}

/* Operations that have a place or operands alike have them in common; none of it is lost. */
static void test_places_are_kept_once(void)
{
    static char memory[16];
    static const uint8_t live = 1;
    const struct zinf_location full = {ZINF_TIER_DRIVE, memory, 3, true, 4, 5, 6, 7, &live, 1};
    struct zinf_operand at = {memory, 0, 8, &live, 0}, out;
    struct zinf_program p;
    CHECK(!zinf_program_init(&p, "places"));
    add_located(&p, at, full);
    add_located(&p, at, full);
    add_located(&p, zinf_at(memory), (struct zinf_location){0});
    CHECK(p.ops[0].where == p.ops[1].where && p.ops[0].at == p.ops[1].at);
    CHECK(p.ops[0].where != p.ops[2].where && p.ops[0].at != p.ops[2].at);
    const struct zinf_location *w = p.ops[0].where;
    CHECK(w->tier == full.tier && w->memory == memory && w->stride == 3 && w->beside);
    CHECK(w->extent == 4 && w->offset == 5 && w->bytes == 6 && w->head == 7);
    CHECK(w->live == &live && w->relative == 1);
    CHECK(!zinf_program_schedule(&p, ZINF_ORDER_ADDED, NULL));
    zinf_program_operands(&p, &p.ops[0], &out);
    CHECK(zinf_address(&out) == memory + 8 && out.stride == 8 && !out.tenant);
    zinf_program_fini(&p);
}

static void test_prediction(void)
{
    struct zinf_machine half = {.read_beside_write = 0.5, .write_beside_read = 0.5};
    struct {
        double value, expected;
    } is[] = {
        {predicted(ZINF_ORDER_SERIAL, &half, build_pipeline), 9},
        {predicted(ZINF_ORDER_ADDED, &half, build_pipeline), 7},
        {predicted(ZINF_ORDER_DEADLINE, &half, build_pipeline), 7},
        /* two CPU lanes at half speed for 2 s, then 1 s alone; the drive 2 s at half, 2 alone */
        {predicted(ZINF_ORDER_ADDED, &half, build_shared), 4},
        {predicted(ZINF_ORDER_ADDED, &half, build_urgent), 21},
        {predicted(ZINF_ORDER_DEADLINE, &half, build_urgent), 11},
        {predicted(ZINF_ORDER_ADDED, &half, build_blocked), 7},
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        CHECKF(is[i].value > is[i].expected - 1e-6 && is[i].value < is[i].expected + 1e-6,
               "case %zu: %g s, not %g", i, is[i].value, is[i].expected);
}

/* The device works on without a pause; the drive and the CPU wait for it and for each other. */
static void build_handed_on(struct zinf_program *p, const zinf_resource *r)
{
    add_timed(p, ZINF_LANE_DEVICE, 2, 1, 0, r[0], r[1]);
    add_timed(p, ZINF_LANE_DEVICE, 1, 1, 0, r[2], r[3]);
    add_timed(p, ZINF_LANE_HOST, 1, 1, 0, r[3], r[4]);
    add_timed(p, ZINF_LANE_WRITE, 1, 0, 0, r[4], r[5]);
    add_timed(p, ZINF_LANE_DEVICE, 1, 1, 0, r[5], r[6]);
}

/* A lane that has waited wakes first; one that goes on with what was ready does not. */
static void test_lanes_wake(void)
{
    struct zinf_machine none = {0}, wakes = {0}, answers = {0};
    for (int lane = 0; lane < ZINF_LANES; lane++)
        wakes.waking_seconds[lane] = 0.25;
    answers.waking_seconds[ZINF_LANE_WRITE] = 0.5;
    const double plain = predicted(ZINF_ORDER_ADDED, &none, build_handed_on);
    const double woken = predicted(ZINF_ORDER_ADDED, &wakes, build_handed_on);
    const double answered = predicted(ZINF_ORDER_ADDED, &answers, build_handed_on);
    CHECKF(fabs(plain - 6) < 1e-6, "%g s, not 6", plain);
    CHECKF(fabs(woken - 7) < 1e-6, "%g s, not 7: four times", woken);
    CHECKF(fabs(answered - 6.5) < 1e-6, "%g s, not 6.5: of the drive alone", answered);
}

static void build_beside(struct zinf_program *p, const zinf_resource *r)
{
    add_timed(p, ZINF_LANE_DEVICE, 4, 1, 0, r[0], r[1]);
    add_timed(p, ZINF_LANE_READ, 3, 0, 0, r[2], r[3]);
}

static void build_beside_half(struct zinf_program *p, const zinf_resource *r)
{
    add_timed(p, ZINF_LANE_H2D, 4, 0.5, 0, r[0], r[1]);
    add_timed(p, ZINF_LANE_READ, 3.75, 0, 0, r[2], r[3]);
}

/* Beside busy CPUs a drive is slower, by as much as they are busy. */
static void test_a_drive_beside_busy_cpus(void)
{
    struct zinf_machine plain = {0}, slower = {.drive_beside_cpus = 0.5};
    const double without = predicted(ZINF_ORDER_ADDED, &plain, build_beside);
    const double all = predicted(ZINF_ORDER_ADDED, &slower, build_beside);
    const double half = predicted(ZINF_ORDER_ADDED, &slower, build_beside_half);
    CHECKF(fabs(without - 4) < 1e-6, "%g s, not 4", without);
    CHECKF(fabs(all - 5) < 1e-6, "%g s, not 5: 4 at half the rate, 1 alone", all);
    CHECKF(fabs(half - 4.75) < 1e-6, "%g s, not 4.75: 4 at three quarters of the rate", half);
}

/* ---- programs that meet ---- */

/* Ranks of a pipeline, "one forward, one backward": a forward takes a rank 1 s, or more, and a
 * backward twice as long; what crosses takes no time, or some. arg of an operation of NET: the
 * border. */
#define PIPE_RANKS 4
#define PIPE_MICROS 8
struct pipe_rank {
    struct zinf_program program;
    zinf_resource device, net, of[2][PIPE_MICROS][2]; /* forward, backward: what it reads; makes */
};

static void add_crossing(struct pipe_rank *r, int border, double seconds, zinf_resource gives,
                         zinf_resource takes)
{
    const struct zinf_op op = {.lane = ZINF_LANE_NET, .arg = border, .seconds = seconds};
    const zinf_resource writes[] = {takes, r->net};
    const struct zinf_uses uses = {&gives, writes, 1, 2};
    CHECK(!zinf_program_add(&r->program, &op, &uses));
}

static void add_visit(struct pipe_rank *r, int backward, int micro, double seconds)
{
    const struct zinf_op op = {.lane = ZINF_LANE_DEVICE, .seconds = seconds};
    const zinf_resource writes[] = {r->of[backward][micro][1], r->device};
    const zinf_resource reads[] = {r->of[backward][micro][0], r->of[0][micro][1]};
    const struct zinf_uses uses = {reads, writes, 1 + (uint32_t)backward, 2};
    CHECK(!zinf_program_add(&r->program, &op, &uses));
}

static void begin_rank(struct pipe_rank *r)
{
    zinf_resource *all = &r->of[0][0][0];
    CHECK(!zinf_program_init(&r->program, "rank") &&
          !zinf_program_resource(&r->program, &r->device) &&
          !zinf_program_resource(&r->program, &r->net));
    for (size_t i = 0; i < sizeof r->of / sizeof *all; i++)
        CHECK(!zinf_program_resource(&r->program, &all[i]));
}

/* With the exchanges of both of its borders, as src/train/plan/itinerary.c orders them. */
static void build_rank(struct pipe_rank *r, int rank, double forward, double crossing)
{
    const int warm = PIPE_RANKS - 1 - rank;
    begin_rank(r);
    for (int g = 0; g < PIPE_MICROS + warm; g++) {
        const int back = g - warm;
        if (g < PIPE_MICROS && rank)
            add_crossing(r, rank - 1, crossing, r->net, r->of[0][g][0]);
        if (g < PIPE_MICROS)
            add_visit(r, 0, g, forward);
        if (g < PIPE_MICROS && warm)
            add_crossing(r, rank, crossing, r->of[0][g][1], r->net);
        if (back >= 0 && warm)
            add_crossing(r, rank, crossing, r->net, r->of[1][back][0]);
        if (back >= 0)
            add_visit(r, 1, back, 2 * forward);
        if (back >= 0 && rank)
            add_crossing(r, rank - 1, crossing, r->of[1][back][1], r->net);
    }
    CHECK(!zinf_program_schedule(&r->program, ZINF_ORDER_ADDED, NULL));
}

static struct zinf_meeting at_border(void *context, const struct zinf_op *op)
{
    (void)context;
    return (struct zinf_meeting){(uint64_t)op->arg, 2};
}

/* Seconds of a step whose ranks take so long for a forward. */
static double pipeline_seconds(const double forward[PIPE_RANKS], double crossing)
{
    static struct pipe_rank ranks[PIPE_RANKS];
    const struct zinf_machine machine = {0};
    const struct zinf_program *programs[PIPE_RANKS];
    struct zinf_predict_options options[PIPE_RANKS];
    struct zinf_prediction out[PIPE_RANKS];
    double most = 0;
    for (int r = 0; r < PIPE_RANKS; r++) {
        build_rank(&ranks[r], r, forward[r], crossing);
        programs[r] = &ranks[r].program;
        options[r] = (struct zinf_predict_options){.machine = &machine, .meeting = at_border};
    }
    CHECKF(!zinf_programs_predict(programs, options, PIPE_RANKS, out), "%s", zinf_error());
    for (int r = 0; r < PIPE_RANKS; r++) {
        most = fmax(most, out[r].seconds);
        CHECK(fabs(out[r].work_seconds[ZINF_LANE_DEVICE] - 3 * PIPE_MICROS * forward[r]) < 1e-9);
        zinf_program_fini(&ranks[r].program);
    }
    return most;
}

static void test_pipeline_of_equal_ranks_has_the_bubble_of_the_formula(void)
{
    const double even[PIPE_RANKS] = {1, 1, 1, 1};
    const double wanted = 3 * (PIPE_MICROS + PIPE_RANKS - 1);
    const double seconds = pipeline_seconds(even, 0), crossing = pipeline_seconds(even, 0.01);
    CHECKF(fabs(seconds - wanted) < 1e-9, "%g s, not %g", seconds, wanted);
    CHECKF(crossing > wanted + 0.05 && crossing < 1.03 * wanted, "%g s with crossings", crossing);
}

/* The third takes twice as long. It begins after two forwards of the ranks before it, at 2; its
 * first two forwards end at 6, but the gradient of the first comes at 4 + 1 + 2: it waits once for
 * 1 s, then never again, and behind it come two backwards of the ranks before it. */
static void test_pipeline_of_a_slow_rank(void)
{
    const double slow[PIPE_RANKS] = {1, 1, 2, 1}, wanted = 2 + 6 * PIPE_MICROS + 1 + 4;
    const double seconds = pipeline_seconds(slow, 0);
    CHECKF(fabs(seconds - wanted) < 1e-9, "%g s, not %g", seconds, wanted);
}

/* Of two programs that come to their meetings in another order each waits for the other one. */
static void test_programs_that_never_meet(void)
{
    struct pipe_rank ranks[2];
    const struct zinf_machine machine = {0};
    const struct zinf_predict_options options[2] = {{.machine = &machine, .meeting = at_border},
                                                    {.machine = &machine, .meeting = at_border}};
    const struct zinf_program *programs[2] = {&ranks[0].program, &ranks[1].program};
    struct zinf_prediction out[2];
    for (int r = 0; r < 2; r++) {
        begin_rank(&ranks[r]);
        for (int i = 0; i < 2; i++)
            add_crossing(&ranks[r], i == r, 1, ranks[r].device, ranks[r].net);
        CHECK(!zinf_program_schedule(&ranks[r].program, ZINF_ORDER_ADDED, NULL));
    }
    CHECK(zinf_programs_predict(programs, options, 2, out) == -EINVAL);
    CHECK(strstr(zinf_error(), "waits for others that never come"));
    for (int r = 0; r < 2; r++)
        zinf_program_fini(&ranks[r].program);
}

/* ---- work ---- */

/* Twenty operations a round on lanes that share drive and CPUs; what it takes at least, and how
 * much of the simulated time that is. */
static double least_share(int round)
{
    static const float cpus[ZINF_LANES] = {0.07f, 0.07f, 0.3f, 0.3f, 1, 1, 0};
    struct zinf_machine machine = {.read_beside_write = 0.3 + dice(7) / 10.0,
                                   .write_beside_read = 0.3 + dice(7) / 10.0};
    struct zinf_predict_options options = {.machine = &machine};
    struct zinf_prediction out = {0};
    struct zinf_work before = {0}, after = {0};
    struct zinf_program p;
    make_resources(&p);
    for (int i = 0; i < 20; i++) {
        struct touch touch = draw_touch(true);
        struct zinf_op op = {.seconds = dice(round % 2 ? 100 : 3), .cpu = cpus[touch.lane]};
        add_touch(&p, &op, &touch);
    }
    zinf_work_add(&before, &p);
    CHECK(!zinf_program_schedule(&p, (enum zinf_order)(round % 3), &machine));
    CHECK(!zinf_program_predict(&p, &options, &out));
    zinf_work_add(&after, &p);
    double least = zinf_work_least_seconds(&after, &machine);
    CHECK(fabs(least - zinf_work_least_seconds(&before, &machine)) <= 1e-9 * least);
    CHECKF(least <= out.seconds, "round %d: %.12g s, at least %.12g", round, out.seconds, least);
    zinf_program_fini(&p);
    return out.seconds > 0 ? least / out.seconds : 1;
}

static void test_work_bounds_the_time(void)
{
    double most = 0;
    for (int round = 0; round < 600; round++) {
        double share = least_share(round);
        most = share > most ? share : most;
    }
    CHECKF(most > 0.99, "no bound is near: %g", most);
}

/* Nobody waits: the bound is the time. */
static void test_work_is_the_time_of_a_mix(void)
{
    struct zinf_machine mix = {.read_beside_write = 0.7, .write_beside_read = 0.6};
    struct zinf_work sum = {0};
    zinf_resource r[8];
    struct zinf_program p;
    CHECK(!zinf_program_init(&p, "mix"));
    for (int i = 0; i < 8; i++)
        CHECK(!zinf_program_resource(&p, &r[i]));
    build_shared(&p, r);
    zinf_work_add(&sum, &p);
    /* the write's 1 s at 0.6 of its speed, beside which 7/6 s of the read's 3 are done */
    double least = zinf_work_least_seconds(&sum, &mix), expected = 1 / 0.6 + 3 - 0.7 / 0.6;
    CHECKF(fabs(least - expected) < 1e-6, "%g s, not %g", least, expected);
    zinf_program_fini(&p);
}

int main(void)
{
    TAP_RUN(test_layout_covers_every_element_once);
    TAP_RUN(test_layout_beyond_32_bits);
    TAP_RUN(test_layout_refuses_a_rank_beyond_the_world);
    TAP_RUN(test_layout_of_four_axes);
    TAP_RUN(test_waits_order_every_conflict);
    TAP_RUN(test_nothing_is_moved_beyond_a_buffer);
    TAP_RUN(test_places_are_kept_once);
    TAP_RUN(test_prediction);
    TAP_RUN(test_lanes_wake);
    TAP_RUN(test_a_drive_beside_busy_cpus);
    TAP_RUN(test_pipeline_of_equal_ranks_has_the_bubble_of_the_formula);
    TAP_RUN(test_pipeline_of_a_slow_rank);
    TAP_RUN(test_programs_that_never_meet);
    TAP_RUN(test_work_bounds_the_time);
    TAP_RUN(test_work_is_the_time_of_a_mix);
    return tap_done();
}
