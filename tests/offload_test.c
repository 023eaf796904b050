/*
 * offload: the layout covers every element once; a program's waits order every conflict, by a
 * brute-force happens-before relation; the executor gives what one thread in program order gives,
 * also with a drive that is slow, short and out of order; failures arrive with their message.
 */
#include "base/memory.h"
#include "base/random.h"
#include "offload/offload.h"
#include "tap.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static uint32_t dice_step;

/* The next of one fixed stream: every run of the test is the same. */
static uint32_t dice(uint32_t sides)
{
    uint32_t counter[4] = {dice_step++, 0, 0, 1}, bits[4];
    zinf_philox(counter, 2024, bits);
    return bits[0] % sides;
}

/* ---- layout ---- */

/* Every rank's groups, in order, tile its slice, and the slices tile the padded unit. */
static void check_layout(const uint64_t *elems, uint32_t n_units, uint64_t group, uint32_t world)
{
    uint64_t end[8] = {0};
    for (uint32_t rank = 0; rank < world; rank++) {
        struct zinf_layout layout;
        CHECK(!zinf_layout_init(&layout, elems, n_units, group, rank, world));
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
    CHECK(zinf_layout_init(&layout, &elems, 1, 10, 2, 2) == -EINVAL);
    CHECK(zinf_layout_init(&layout, &elems, 1, 10, 0, 0) == -EINVAL);
}

/* ---- random programs ---- */

enum { BUFFERS = 6, EXTENTS = 4, RESOURCES = BUFFERS + EXTENTS, OPS = 80, BYTES = 4096 };

/* An operation changes buffer `to` from `from` and its own number; READ and WRITE copy. */
struct touch {
    enum zinf_lane lane;
    uint32_t from, to; /* resources */
    bool keeps;        /* the old content of `to` goes into the new: it is read too */
};

static struct touch draw_touch(bool drive)
{
    static const enum zinf_lane lanes[] = {ZINF_LANE_READ, ZINF_LANE_WRITE,  ZINF_LANE_H2D,
                                           ZINF_LANE_D2H,  ZINF_LANE_DEVICE, ZINF_LANE_HOST};
    struct touch t = {lanes[drive ? dice(6) : 2 + dice(4)], dice(BUFFERS), dice(BUFFERS),
                      dice(2) == 0};
    if (t.lane == ZINF_LANE_READ)
        t.from = BUFFERS + dice(EXTENTS);
    if (t.lane == ZINF_LANE_WRITE)
        t.to = BUFFERS + dice(EXTENTS);
    if (t.lane <= ZINF_LANE_WRITE)
        t.keeps = false;
    return t;
}

static void add_touch(struct zinf_program *p, struct zinf_op *op, const struct touch *t)
{
    zinf_resource reads[2] = {t->from, t->to};
    struct zinf_uses uses = {reads, &t->to, t->keeps ? 2 : 1, 1};
    op->lane = t->lane;
    CHECK(!zinf_program_add(p, op, &uses));
}

static void make_resources(struct zinf_program *p)
{
    CHECK(!zinf_program_init(p, "random"));
    for (zinf_resource i = 0, r; i < RESOURCES; i++)
        CHECK(!zinf_program_resource(p, &r) && r == i);
}

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

/* ---- executor ---- */

static char work[512];
static _Alignas(4096) char buffers[BUFFERS][BYTES];
static char expected[RESOURCES][BYTES];
static uint64_t delays[OPS];
static atomic_int n_run;

static void mix(char *to, const char *from, int32_t number, bool keeps)
{
    for (int i = 0; i < BYTES; i++)
        to[i] = (char)((keeps ? 5 * to[i] : 0) + 3 * from[i] + number);
}

static int run_op(void *context, const struct zinf_op *op)
{
    (void)context;
    atomic_fetch_add(&n_run, 1);
    if (delays[op->unit])
        usleep((useconds_t)delays[op->unit]);
    if (op->kind == 1)
        return zinf_fail(-EPERM, "operation %d refuses", op->unit);
    mix(zinf_address(&op->at[0]), zinf_address(&op->at[1]), op->unit, op->arg);
    return 0;
}

static const char *op_name(void *context, const struct zinf_op *op, char buffer[64])
{
    (void)context;
    snprintf(buffer, 64, "op %d", op->unit);
    return buffer;
}

static struct zinf_store *make_store(zinf_extent extents[EXTENTS])
{
    struct zinf_store *store = NULL;
    const char *path = work;
    struct zinf_store_options options = {
        .paths = &path, .n_paths = 1, .label = "test", .checksums = true, .allow_memory_fs = true};
    CHECKF(!zinf_store_create(&store, &options), "%s", zinf_error());
    for (int i = 0; store && i < EXTENTS; i++)
        CHECK(!zinf_store_add_extent(store, BYTES, &extents[i]));
    CHECKF(store && !zinf_store_allocate(store), "%s", zinf_error());
    return store;
}

static struct zinf_op op_of(const struct touch *t, int number, const zinf_extent *extents)
{
    struct zinf_op op = {.unit = number, .arg = t->keeps, .bytes = BYTES};
    bool read = t->lane == ZINF_LANE_READ, write = t->lane == ZINF_LANE_WRITE;
    if (read || write)
        op.where = (struct zinf_location){.tier = ZINF_TIER_DRIVE,
                                          .extent = extents[(read ? t->from : t->to) - BUFFERS],
                                          .bytes = BYTES};
    op.at[0] = zinf_at(buffers[write ? t->from : t->to]);
    if (!read && !write)
        op.at[1] = zinf_at(buffers[t->from]);
    op.seconds = dice(10);
    op.deadline = dice(50);
    return op;
}

/* Adds a random program to p and applies it to `expected`, one operation after another. */
static void draw_program(struct zinf_program *p, bool drive, const zinf_extent *extents)
{
    make_resources(p);
    for (int i = 0; i < OPS; i++) {
        struct touch t = draw_touch(drive);
        struct zinf_op op = op_of(&t, i, extents);
        add_touch(p, &op, &t);
        if (t.lane <= ZINF_LANE_WRITE)
            memcpy(expected[t.to], expected[t.from], BYTES);
        else
            mix(expected[t.to], expected[t.from], i, t.keeps);
        delays[i] = dice(3) ? 0 : dice(300);
    }
    CHECK(!zinf_program_schedule(p, (enum zinf_order)dice(3), NULL));
}

static void run_random(bool drive, const struct zinf_aio_faults *faults)
{
    zinf_extent extents[EXTENTS] = {0};
    struct zinf_store *store = drive ? make_store(extents) : NULL;
    struct zinf_executor_options options = {.run = run_op, .op_name = op_name, .store = store};
    struct zinf_executor *e = NULL;
    options.read_queue = options.write_queue = (struct zinf_aio_queue_options){.faults = faults};
    CHECKF(!zinf_executor_create(&e, &options), "%s", zinf_error());
    memset(expected, 0, sizeof expected);
    memset(buffers, 0, sizeof buffers);
    for (int round = 0; e && round < 12; round++) {
        struct zinf_program p;
        draw_program(&p, drive, extents);
        CHECKF(!zinf_executor_run(e, &p), "%s", zinf_error());
        for (int i = 0; i < BUFFERS; i++)
            CHECKF(!memcmp(buffers[i], expected[i], BYTES), "round %d: buffer %d", round, i);
        zinf_program_fini(&p);
    }
    zinf_executor_destroy(e);
    static _Alignas(4096) char back[BYTES];
    for (int i = 0; store && i < EXTENTS; i++) {
        CHECKF(!zinf_store_read(store, extents[i], 0, back, BYTES), "%s", zinf_error());
        CHECKF(!memcmp(back, expected[BUFFERS + i], BYTES), "extent %d", i);
    }
    zinf_store_destroy(store);
}

static void test_random_programs(void)
{
    run_random(false, NULL);
}

static void test_random_programs_with_a_drive(void)
{
    run_random(true, NULL);
}

static void test_short_late_and_reordered_transfers_are_invisible(void)
{
    struct zinf_aio_faults faults = {
        .seed = 3, .short_ppm = 300000, .delay_ppm = 300000, .delay_us = 500, .reorder = true};
    run_random(true, &faults);
}

static void test_a_failing_operation_stops_the_run(void)
{
    struct zinf_executor_options options = {.run = run_op, .op_name = op_name};
    struct zinf_executor *e = NULL;
    struct zinf_program p;
    CHECKF(!zinf_executor_create(&e, &options), "%s", zinf_error());
    make_resources(&p);
    memset(delays, 0, sizeof delays);
    /* A chain through all lanes: what comes after the refusal must not run. */
    for (int i = 0; i < 20; i++) {
        struct touch t = {(enum zinf_lane)(ZINF_LANE_H2D + i % 4), 0, 0, true};
        struct zinf_op op = op_of(&t, i, NULL);
        op.kind = i == 9;
        add_touch(&p, &op, &t);
    }
    CHECK(!zinf_program_schedule(&p, ZINF_ORDER_ADDED, NULL));
    atomic_store(&n_run, 0);
    CHECK(zinf_executor_run(e, &p) == -EPERM);
    CHECKF(!strcmp(zinf_error(), "operation 9 refuses"), "%s", zinf_error());
    CHECKF(atomic_load(&n_run) == 10, "%d operations ran", atomic_load(&n_run));
    zinf_fail(0, "something else");
    CHECK(zinf_executor_run(e, &p) == -EPERM);
    CHECKF(!strcmp(zinf_error(), "operation 9 refuses"), "%s", zinf_error());
    CHECK(atomic_load(&n_run) == 10);
    zinf_executor_destroy(e);
    zinf_program_fini(&p);
}

static void test_a_failing_drive_says_path_and_error(void)
{
    zinf_extent extents[EXTENTS] = {0};
    struct zinf_store *store = make_store(extents);
    struct zinf_aio_faults faults = {.seed = 1, .eio_ppm = 1000000};
    struct zinf_executor_options options = {
        .run = run_op, .op_name = op_name, .store = store, .read_queue = {.faults = &faults}};
    struct zinf_executor *e = NULL;
    struct zinf_program p;
    CHECKF(!zinf_executor_create(&e, &options), "%s", zinf_error());
    make_resources(&p);
    struct touch touches[] = {{ZINF_LANE_WRITE, 0, BUFFERS, false},
                              {ZINF_LANE_READ, BUFFERS, 1, false},
                              {ZINF_LANE_HOST, 1, 1, true}};
    for (int i = 0; i < 3; i++) {
        struct zinf_op op = op_of(&touches[i], i, extents);
        add_touch(&p, &op, &touches[i]);
    }
    CHECK(!zinf_program_schedule(&p, ZINF_ORDER_ADDED, NULL));
    atomic_store(&n_run, 0);
    for (int time = 0; time < 2; time++) {
        CHECK(zinf_executor_run(e, &p) == -EIO);
        CHECKF(strstr(zinf_error(), work) && strstr(zinf_error(), strerror(EIO)), "%s",
               zinf_error());
    }
    CHECK(atomic_load(&n_run) == 0);
    zinf_executor_destroy(e);
    zinf_program_fini(&p);
    zinf_store_destroy(store);
}

/* ---- pools ---- */

enum { CHAINS = 40, POOL_SLOTS = 3 };
static _Alignas(4096) char slots[POOL_SLOTS][BYTES];

/* Each chain takes a buffer, works on it in several lanes, and adds what it made to a sum: with
 * few slots and any order, the sums are those of one thread. */
static void draw_chains(struct zinf_program *p, bool in_order, zinf_resource sums[BUFFERS])
{
    zinf_pool pool;
    struct zinf_pool_options options = {"slots", slots[0], BYTES, POOL_SLOTS, in_order};
    CHECK(!zinf_program_init(p, "chains") && !zinf_program_pool(p, &options, &pool));
    for (int i = 0; i < BUFFERS; i++)
        CHECK(!zinf_program_resource(p, &sums[i]));
    for (int chain = 0; chain < CHAINS; chain++) {
        static char made[BYTES];
        uint32_t n = 2 + dice(3), sum = dice(BUFFERS);
        zinf_buffer buffer;
        CHECK(!zinf_program_buffer(p, pool, &buffer));
        for (uint32_t k = 0; k <= n; k++) {
            bool first = k == 0, last = k == n;
            struct zinf_op op = {.lane = (enum zinf_lane)(ZINF_LANE_H2D + dice(4)),
                                 .unit = chain % OPS,
                                 .arg = !first,
                                 .seconds = dice(10),
                                 .deadline = dice(50)};
            op.at[0] = last ? zinf_at(buffers[sum]) : zinf_in(buffer, 0);
            op.at[1] = first ? zinf_at(buffers[sum]) : zinf_in(buffer, 0);
            zinf_resource reads[2] = {first ? sums[sum] : buffer, last ? sums[sum] : buffer};
            zinf_resource write = last ? sums[sum] : buffer;
            struct zinf_uses uses = {reads, &write, first ? 1 : 2, 1};
            CHECK(!zinf_program_add(p, &op, &uses));
            mix(last ? expected[sum] : made, first ? expected[sum] : made, chain % OPS, !first);
        }
    }
}

static void test_buffers_share_slots(void)
{
    struct zinf_executor_options options = {.run = run_op, .op_name = op_name};
    struct zinf_executor *e = NULL;
    zinf_resource sums[BUFFERS];
    CHECKF(!zinf_executor_create(&e, &options), "%s", zinf_error());
    memset(expected, 0, sizeof expected);
    memset(buffers, 0, sizeof buffers);
    for (int round = 0; e && round < 30; round++) {
        struct zinf_program p;
        for (int i = 0; i < OPS; i++)
            delays[i] = dice(4) ? 0 : dice(100);
        draw_chains(&p, round % 2, sums);
        CHECKF(!zinf_program_schedule(&p, (enum zinf_order)(round % 3), NULL), "%s", zinf_error());
        CHECKF(!zinf_executor_run(e, &p), "%s", zinf_error());
        for (int i = 0; i < BUFFERS; i++)
            CHECKF(!memcmp(buffers[i], expected[i], BYTES), "round %d: sum %d", round, i);
        zinf_program_fini(&p);
    }
    zinf_executor_destroy(e);
}

static void test_too_few_slots_are_refused_by_name(void)
{
    for (int order = 0; order < 3; order++) {
        struct zinf_program p;
        zinf_pool pool;
        zinf_buffer a, b;
        struct zinf_pool_options options = {"narrow", slots[0], BYTES, 1, false};
        CHECK(!zinf_program_init(&p, "p") && !zinf_program_pool(&p, &options, &pool));
        CHECK(!zinf_program_buffer(&p, pool, &a) && !zinf_program_buffer(&p, pool, &b));
        zinf_resource both[2] = {a, b};
        struct zinf_uses uses = {NULL, both, 0, 2};
        struct zinf_op op = {.lane = ZINF_LANE_HOST};
        CHECK(!zinf_program_add(&p, &op, &uses));
        CHECK(zinf_program_schedule(&p, (enum zinf_order)order, NULL) == -EINVAL);
        CHECKF(strstr(zinf_error(), "narrow") != NULL, "%s", zinf_error());
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
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        CHECKF(is[i].value > is[i].expected - 1e-6 && is[i].value < is[i].expected + 1e-6,
               "case %zu: %g s, not %g", i, is[i].value, is[i].expected);
}

/* ---- tiers ---- */

static void fill(char *memory, uint64_t bytes, uint32_t seed)
{
    for (uint64_t i = 0; i < bytes; i++)
        memory[i] = (char)(i * 7 + i / 4096 + seed * 31);
}

struct machine {
    struct zinf_device *device;
    struct zinf_queue *queue;
    struct zinf_tiers *tiers;
    char *memory, *back;
    uint64_t capacity;
    uint8_t generations;
};

static void move_location(const struct machine *m, struct zinf_location where, uint32_t seed,
                          bool write)
{
    CHECK(where.bytes > 0 && where.bytes <= m->capacity);
    fill(m->memory, where.bytes, seed);
    if (write) {
        CHECKF(
            !zinf_location_write(m->tiers, m->device, m->queue, &where, 0, m->memory, where.bytes),
            "%s", zinf_error());
        return;
    }
    CHECKF(!zinf_location_read(m->tiers, m->device, m->queue, &where, 0, m->back, where.bytes),
           "%s", zinf_error());
    CHECKF(!memcmp(m->memory, m->back, where.bytes), "location %u has other bytes", seed);
}

/* Writes all, then reads all: places that overlap would show. */
static void move_all(const struct machine *m, const struct zinf_layout *layout)
{
    for (int write = 1; write >= 0; write--) {
        uint32_t seed = 0;
        for (uint32_t u = 0; u < layout->n_units; u++) {
            for (uint8_t generation = 0; generation < m->generations; generation++)
                move_location(m, zinf_tiers_param(m->tiers, u, generation), seed++, write);
            move_location(m, zinf_tiers_unit_grad(m->tiers, u), seed++, write);
        }
        for (uint32_t g = 0; g < layout->n_groups; g++)
            for (uint8_t generation = 0; generation < m->generations; generation++)
                move_location(m, zinf_tiers_group_state(m->tiers, g, generation), seed++, write);
    }
    /* What is live is the generation that was last made so. */
    for (uint32_t u = 0; u < layout->n_units; u++) {
        *zinf_tiers_live(m->tiers, u) = 1;
        struct zinf_location now = zinf_tiers_param(m->tiers, u, 0);
        CHECK(zinf_location_generation(&now) == (now.stride ? 1 : 0));
    }
    /* The groups' parameters and gradients are parts of their units'. */
    for (uint32_t g = 0; g < layout->n_groups; g++) {
        move_location(m, zinf_tiers_group_param(m->tiers, g, 0), 1000 + g, true);
        move_location(m, zinf_tiers_group_grad(m->tiers, g), 2000 + g, true);
    }
    for (uint32_t g = 0; g < layout->n_groups; g++) {
        move_location(m, zinf_tiers_group_param(m->tiers, g, 0), 1000 + g, false);
        move_location(m, zinf_tiers_group_grad(m->tiers, g), 2000 + g, false);
    }
}

static void try_tiers(enum zinf_tier param, enum zinf_tier state, enum zinf_tier grad,
                      uint8_t generations)
{
    const uint64_t elems[] = {5000, 40000, 12289};
    struct zinf_layout layout;
    struct zinf_ledger *ledger = NULL;
    struct zinf_store *store = NULL;
    struct zinf_arena host = {0}, scratch = {0};
    struct machine m = {.capacity = 1 << 20, .generations = generations};
    struct zinf_home homes[3];
    for (int u = 0; u < 3; u++)
        homes[u] = (struct zinf_home){param, state, grad, true, generations};
    const char *path = work;
    struct zinf_store_options store_options = {
        .paths = &path, .n_paths = 1, .label = "tiers", .allow_memory_fs = true};
    struct zinf_device_options device_options = {.kind = ZINF_DEVICE_HOST, .n_threads = 1};
    CHECK(!zinf_layout_init(&layout, elems, 3, 10000, 0, 1));
    CHECK(!zinf_ledger_create(&ledger) && !zinf_store_create(&store, &store_options));
    struct zinf_tiers_options options = {.layout = &layout,
                                         .dtype = ZINF_DTYPE_BF16,
                                         .form = ZINF_STATE_SPLIT,
                                         .n_moments = 2,
                                         .places = homes,
                                         .store = store};
    CHECKF(!zinf_tiers_plan(&m.tiers, &options, ledger), "%s", zinf_error());
    CHECK(!zinf_device_create(&m.device, &device_options));
    CHECK(!zinf_device_take_memory(m.device, zinf_ledger_arena_bytes(ledger, ZINF_MEMORY_DEVICE)));
    CHECK(!m.device->ops->queue_create(m.device, ZINF_QUEUE_TO_DEVICE, &m.queue));
    CHECK(!zinf_arena_init(&host, zinf_ledger_arena_bytes(ledger, ZINF_MEMORY_HOST), "host"));
    CHECK(!zinf_arena_init(&scratch, 2 * m.capacity, "scratch"));
    if (zinf_store_planned_bytes(store))
        CHECKF(!zinf_store_allocate(store), "%s", zinf_error());
    m.memory = scratch.base;
    m.back = scratch.base + m.capacity;
    zinf_tiers_place(m.tiers, m.device->memory, host.base);
    move_all(&m, &layout);
    zinf_tiers_destroy(m.tiers);
    zinf_store_destroy(store);
    m.device->ops->queue_destroy(m.queue);
    zinf_device_destroy(m.device);
    zinf_arena_fini(&scratch);
    zinf_arena_fini(&host);
    zinf_ledger_destroy(ledger);
    zinf_layout_fini(&layout);
}

static void test_every_location_of_every_tier(void)
{
    for (enum zinf_tier param = ZINF_TIER_DEVICE; param <= ZINF_TIER_DRIVE; param++)
        for (enum zinf_tier state = ZINF_TIER_DEVICE; state <= ZINF_TIER_DRIVE; state++)
            try_tiers(param, state, state, 1);
    try_tiers(ZINF_TIER_DRIVE, ZINF_TIER_DRIVE, ZINF_TIER_HOST, 2);
    try_tiers(ZINF_TIER_HOST, ZINF_TIER_DRIVE, ZINF_TIER_HOST, 2);
}

int main(void)
{
    const char *build = getenv("BUILDDIR");
    snprintf(work, sizeof work, "%s/tests/work-offload-%ld", build ? build : ".", (long)getpid());
    if (zinf_make_dirs(work))
        printf("Bail out! %s\n", zinf_error());
    zinf_log_set_level(ZINF_LOG_ERROR);
    TAP_RUN(test_layout_covers_every_element_once);
    TAP_RUN(test_layout_beyond_32_bits);
    TAP_RUN(test_layout_refuses_a_rank_beyond_the_world);
    TAP_RUN(test_waits_order_every_conflict);
    TAP_RUN(test_random_programs);
    TAP_RUN(test_random_programs_with_a_drive);
    TAP_RUN(test_short_late_and_reordered_transfers_are_invisible);
    TAP_RUN(test_a_failing_operation_stops_the_run);
    TAP_RUN(test_a_failing_drive_says_path_and_error);
    TAP_RUN(test_buffers_share_slots);
    TAP_RUN(test_too_few_slots_are_refused_by_name);
    TAP_RUN(test_prediction);
    TAP_RUN(test_every_location_of_every_tier);
    if (rmdir(work))
        printf("# files are left in %s\n", work);
    return tap_done();
}
