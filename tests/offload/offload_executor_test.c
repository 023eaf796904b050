/*
 * offload: the executor gives what one thread in program order gives, also with a drive that is
 * slow, short and out of order, and with buffers that share few slots; failures arrive with their
 * message.
 */
#include "aio_faults.h"
#include "offload_support.h"

#include <sched.h>
#include <stdatomic.h>

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

/* at, where: its operands and its extent, which the operation points to. */
static struct zinf_op op_of(const struct touch *t, int number, const zinf_extent *extents,
                            struct zinf_operand at[2], struct zinf_location *where)
{
    struct zinf_op op = {.unit = number, .arg = t->keeps, .bytes = BYTES};
    bool read = t->lane == ZINF_LANE_READ, write = t->lane == ZINF_LANE_WRITE;
    op.where = read || write ? where : NULL;
    if (read || write)
        *where = (struct zinf_location){.tier = ZINF_TIER_DRIVE,
                                        .extent = extents[(read ? t->from : t->to) - BUFFERS],
                                        .bytes = BYTES};
    at[0] = zinf_at(buffers[write ? t->from : t->to]);
    op.at = at;
    op.n_at = read || write ? 1 : 2;
    if (!read && !write)
        at[1] = zinf_at(buffers[t->from]);
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
        struct zinf_operand at[2];
        struct zinf_location where;
        struct zinf_op op = op_of(&t, i, extents, at, &where);
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
    options.read_queue = options.write_queue =
        (struct zinf_aio_queue_options){.around = {AIO_FAULTS(faults)}};
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
        struct zinf_operand at[2];
        struct zinf_op op = op_of(&t, i, NULL, at, NULL);
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
    struct zinf_executor_options options = {.run = run_op,
                                            .op_name = op_name,
                                            .store = store,
                                            .read_queue = {.around = {AIO_FAULTS(&faults)}}};
    struct zinf_executor *e = NULL;
    struct zinf_program p;
    CHECKF(!zinf_executor_create(&e, &options), "%s", zinf_error());
    make_resources(&p);
    struct touch touches[] = {{ZINF_LANE_WRITE, 0, BUFFERS, false},
                              {ZINF_LANE_READ, BUFFERS, 1, false},
                              {ZINF_LANE_HOST, 1, 1, true}};
    for (int i = 0; i < 3; i++) {
        struct zinf_operand at[2];
        struct zinf_location where;
        struct zinf_op op = op_of(&touches[i], i, extents, at, &where);
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

/* A transfer has one place in memory; of another number nothing is read or written. */
static void test_a_transfer_between_more_places_is_refused(void)
{
    for (uint32_t n_at = 0; n_at < 3; n_at++) {
        zinf_extent extents[EXTENTS] = {0};
        struct zinf_store *store = make_store(extents);
        struct zinf_executor_options options = {.run = run_op, .op_name = op_name, .store = store};
        struct zinf_executor *e = NULL;
        struct zinf_program p;
        struct touch write = {ZINF_LANE_WRITE, 0, BUFFERS, false};
        struct zinf_operand at[2];
        struct zinf_location where;
        CHECKF(!zinf_executor_create(&e, &options), "%s", zinf_error());
        make_resources(&p);
        struct zinf_op op = op_of(&write, 0, extents, at, &where);
        at[1] = at[0];
        op.n_at = n_at;
        add_touch(&p, &op, &write);
        CHECK(!zinf_program_schedule(&p, ZINF_ORDER_ADDED, NULL));
        CHECK(zinf_executor_run(e, &p) == (n_at == 1 ? 0 : -EINVAL));
        CHECKF(n_at == 1 || strstr(zinf_error(), "operation 0 moves between a drive and"), "%s",
               zinf_error());
        zinf_executor_destroy(e);
        zinf_program_fini(&p);
        zinf_store_destroy(store);
    }
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
            struct zinf_operand at[2] = {last ? zinf_at(buffers[sum]) : zinf_in(buffer, 0),
                                         first ? zinf_at(buffers[sum]) : zinf_in(buffer, 0)};
            op.at = at;
            op.n_at = 2;
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
        zinf_pool pool = 0;
        zinf_buffer a = 0, b = 0;
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

/* ---- threads near the device ---- */

static int n_cpus[ZINF_LANES]; /* that a lane's thread may use */

static int see_cpus(void *context, const struct zinf_op *op)
{
    cpu_set_t set;
    (void)context;
    CHECK(!sched_getaffinity(0, sizeof set, &set));
    n_cpus[op->lane] = CPU_COUNT(&set);
    return 0;
}

/* node3 has a CPU of this process and one that no machine has; node4 only that one. */
static void make_sysfs(int cpu, bool make)
{
    char path[700];
    const char *const folders[] = {"devices", "devices/system", "devices/system/node",
                                   "devices/system/node/node3", "devices/system/node/node4"};
    for (int i = 0; make && i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", work, folders[i]);
        CHECK(!zinf_make_dirs(path));
    }
    for (int node = 3; node < 5; node++) {
        snprintf(path, sizeof path, "%s/%s/cpulist", work, folders[node]);
        FILE *file = make ? fopen(path, "w") : NULL;
        if (file) {
            fprintf(file, node == 3 ? "%d,1020-1022\n" : "1020-1022\n", cpu);
            fclose(file);
        } else {
            CHECK(!make && !unlink(path));
        }
    }
    for (int i = 4; !make && i >= 0; i--) {
        snprintf(path, sizeof path, "%s/%s", work, folders[i]);
        CHECK(!rmdir(path));
    }
}

static void run_near(int node)
{
    static const enum zinf_lane lanes[] = {ZINF_LANE_DEVICE, ZINF_LANE_HOST};
    struct zinf_device_options host = {.kind = ZINF_DEVICE_HOST, .n_threads = 1};
    struct zinf_executor_options options = {.run = see_cpus, .op_name = op_name, .sysfs = work};
    struct zinf_executor *e = NULL;
    struct zinf_program p;
    CHECK(!zinf_device_create(&options.device, &host));
    options.device->node = node;
    CHECK(!options.device->ops->queue_create(options.device, ZINF_QUEUE_COMPUTE,
                                             &options.queues[ZINF_LANE_DEVICE]));
    CHECKF(!zinf_executor_create(&e, &options), "%s", zinf_error());
    make_resources(&p);
    for (int i = 0; i < 2; i++) {
        struct zinf_operand at[2] = {zinf_at(buffers[0]), zinf_at(buffers[1])};
        struct touch t = {.lane = lanes[i], .to = 0, .from = 1};
        struct zinf_op op = {.lane = lanes[i], .at = at, .n_at = 2};
        add_touch(&p, &op, &t);
    }
    CHECK(!zinf_program_schedule(&p, (enum zinf_order)0, NULL));
    CHECKF(!zinf_executor_run(e, &p), "%s", zinf_error());
    zinf_program_fini(&p);
    zinf_executor_destroy(e);
    options.device->ops->queue_destroy(options.queues[ZINF_LANE_DEVICE]);
    zinf_device_destroy(options.device);
}

static void test_lanes_run_near_their_device(void)
{
    cpu_set_t own;
    CHECK(!sched_getaffinity(0, sizeof own, &own));
    int first = 0;
    while (!CPU_ISSET(first, &own))
        first++;
    if (CPU_COUNT(&own) < 2)
        SKIP("one CPU has no other that is far");
    make_sysfs(first, true);
    for (int node = -1; node < 6; node++) {
        run_near(node);
        CHECKF(n_cpus[ZINF_LANE_DEVICE] == (node == 3 ? 1 : CPU_COUNT(&own)), "node %d: %d", node,
               n_cpus[ZINF_LANE_DEVICE]);
        CHECK(n_cpus[ZINF_LANE_HOST] == CPU_COUNT(&own));
    }
    make_sysfs(first, false);
}

int main(void)
{
    begin_offload("executor");
    TAP_RUN(test_random_programs);
    TAP_RUN(test_random_programs_with_a_drive);
    TAP_RUN(test_short_late_and_reordered_transfers_are_invisible);
    TAP_RUN(test_a_failing_operation_stops_the_run);
    TAP_RUN(test_a_failing_drive_says_path_and_error);
    TAP_RUN(test_a_transfer_between_more_places_is_refused);
    TAP_RUN(test_buffers_share_slots);
    TAP_RUN(test_lanes_run_near_their_device);
    TAP_RUN(test_too_few_slots_are_refused_by_name);
    return end_offload();
}
