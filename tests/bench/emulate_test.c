/*
 * offload: programs on emulated lanes. What ran is counted and in order; a step takes no less than
 * the work of its lanes, which share CPUs and drive as in a prediction. How much more it takes is
 * for a bench.
 */
#include "bench/emulate.h"
#include "offload_support.h"

enum { LAYERS = 6, TIMES = 3, LAYER_BYTES = 1 << 20 };
static const double SECONDS = 2e-3; /* of most operations */
#define LITTLE 1e-6                 /* seconds, by which rounding may be off */

/* A plan's store: extents alone. */
static struct zinf_store *make_store(zinf_extent extents[LAYERS])
{
    struct zinf_store *store = NULL;
    struct zinf_store_options options = {.label = "plan", .plan_only = true};
    CHECKF(!zinf_store_create(&store, &options), "%s", zinf_error());
    for (int i = 0; i < LAYERS; i++)
        CHECK(!zinf_store_add_extent(store, LAYER_BYTES, &extents[i]));
    return store;
}

static void add(struct zinf_program *p, enum zinf_lane lane, int number, const zinf_extent *extents,
                const struct zinf_uses *uses)
{
    bool moves = lane == ZINF_LANE_READ || lane == ZINF_LANE_WRITE;
    struct zinf_operand at = zinf_at((void *)((uintptr_t)1 << 40)); /* nobody follows it */
    struct zinf_op op = {.lane = lane,
                         .unit = number,
                         .bytes = LAYER_BYTES,
                         .seconds = SECONDS,
                         .cpu = lane == ZINF_LANE_HOST || lane == ZINF_LANE_DEVICE ? 1 : 0,
                         .at = &at,
                         .n_at = 1,
                         .deadline = (uint32_t)number};
    const struct zinf_location where = {
        .tier = ZINF_TIER_DRIVE, .extent = moves ? extents[number] : 0, .bytes = LAYER_BYTES};
    op.where = moves ? &where : NULL;
    CHECKF(!zinf_program_add(p, &op, uses), "%s", zinf_error());
}

/* Each layer is read, copied, computed, copied back, updated and written, in a slot of its own. */
static void build(struct zinf_program *p, const zinf_extent *extents, enum zinf_order order)
{
    static const enum zinf_lane lanes[] = {ZINF_LANE_READ, ZINF_LANE_H2D,  ZINF_LANE_DEVICE,
                                           ZINF_LANE_D2H,  ZINF_LANE_HOST, ZINF_LANE_WRITE};
    CHECK(!zinf_program_init(p, "layers"));
    for (int layer = 0; layer < LAYERS; layer++) {
        zinf_resource r;
        CHECK(!zinf_program_resource(p, &r));
        struct zinf_uses uses = {.writes = &r, .n_writes = 1};
        for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
            add(p, lanes[i], layer, extents, &uses);
    }
    CHECKF(!zinf_program_schedule(p, order, NULL), "%s", zinf_error());
}

static struct zinf_emulator *make_emulator(struct zinf_store *store, bool queues)
{
    struct zinf_emulator *e = NULL;
    struct zinf_emulator_options options = {
        .store = store,
        .drive = {.read_bytes = LAYER_BYTES / SECONDS, .write_bytes = LAYER_BYTES / SECONDS},
        .queues = queues,
        .stretch = 2};
    CHECKF(!zinf_emulator_create(&e, &options), "%s", zinf_error());
    return e;
}

static void run_layers(enum zinf_order order, bool queues)
{
    zinf_extent extents[LAYERS];
    struct zinf_store *store = make_store(extents);
    struct zinf_emulator *e = make_emulator(store, queues);
    struct zinf_program p;
    struct zinf_prediction predicted;
    struct zinf_predict_options options = {.machine = &(struct zinf_machine){0}};
    build(&p, extents, order);
    CHECK(!zinf_program_predict(&p, &options, &predicted));
    for (int time = 0; e && time < TIMES; time++) {
        struct zinf_lane_times times;
        double seconds = 0;
        CHECKF(!zinf_emulator_run(e, &p, &seconds, &times), "%s", zinf_error());
        CHECKF(seconds > LAYERS * SECONDS - LITTLE, "%g s", seconds);
        if (order == ZINF_ORDER_SERIAL)
            CHECKF(seconds > 6 * LAYERS * SECONDS - LITTLE, "%g s one by one", seconds);
        for (int lane = 0; lane < ZINF_LANE_NET; lane++) {
            CHECKF(times.n_ops[lane] == LAYERS, "%llu operations of lane %s",
                   (unsigned long long)times.n_ops[lane], zinf_lane_name((enum zinf_lane)lane));
            CHECK(times.bytes[lane] == LAYERS * LAYER_BYTES);
        }
    }
    zinf_emulator_destroy(e);
    zinf_program_fini(&p);
    zinf_store_destroy(store);
}

static void test_all_operations_run_once_a_time(void)
{
    for (int queues = 0; queues < 2; queues++) {
        run_layers(ZINF_ORDER_SERIAL, queues);
        run_layers(ZINF_ORDER_ADDED, queues);
        run_layers(ZINF_ORDER_DEADLINE, queues);
    }
}

/* Operations without waits, on two lanes that want all CPUs. */
static double run_two_lanes(bool queues)
{
    static const enum zinf_lane lanes[] = {ZINF_LANE_DEVICE, ZINF_LANE_HOST};
    struct zinf_emulator *e = make_emulator(NULL, queues);
    struct zinf_lane_times times;
    struct zinf_program p;
    struct zinf_uses uses = {.n_reads = 0};
    double seconds = 0;
    CHECK(!zinf_program_init(&p, "two lanes"));
    for (int i = 0; i < 2 * LAYERS; i++)
        add(&p, lanes[i % 2], i, NULL, &uses);
    CHECK(!zinf_program_schedule(&p, ZINF_ORDER_ADDED, NULL));
    CHECKF(e && !zinf_emulator_run(e, &p, &seconds, &times), "%s", zinf_error());
    zinf_emulator_destroy(e);
    zinf_program_fini(&p);
    return seconds;
}

/* A GPU computes beside them. */
static void test_lanes_of_the_cpu_share_it(void)
{
    double shared = run_two_lanes(false), apart = run_two_lanes(true);
    CHECKF(shared > 2 * LAYERS * SECONDS - LITTLE, "%g s with shared CPUs", shared);
    CHECKF(apart > LAYERS * SECONDS - LITTLE, "%g s with a GPU", apart);
}

static void test_rates_are_checked(void)
{
    zinf_extent extents[LAYERS];
    struct zinf_store *store = make_store(extents);
    struct zinf_emulator_options options = {.store = store};
    struct zinf_emulator *e;
    CHECK(zinf_emulator_create(&e, &options) == -EINVAL && !e);
    CHECKF(strstr(zinf_error(), "rates must be above 0"), "%s", zinf_error());
    zinf_store_destroy(store);
}

int main(void)
{
    begin_offload("emulate");
    TAP_RUN(test_all_operations_run_once_a_time);
    TAP_RUN(test_lanes_of_the_cpu_share_it);
    TAP_RUN(test_rates_are_checked);
    return end_offload();
}
