/*
 * Rates from what operations took, on a program made by hand: one product and one update side by
 * side, each of a second alone, which share the CPUs and take two. What a step takes beyond them is
 * expected of the next one, too. And a drive that is fast in one step and slow in the next, or that
 * a bench has known before.
 */
#include "net/net.h"
#include "tap.h"
#include "train/trainer.h"

#include <math.h>
#include <pthread.h>

#define FLOPS 1e9
#define BYTES 100000000

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

static void make_program(struct zinf_program *program)
{
    struct zinf_op product = {.lane = ZINF_LANE_DEVICE, .kind = OP_STAGES, .flops = FLOPS};
    struct zinf_op update = {.lane = ZINF_LANE_HOST, .kind = OP_UPDATE, .bytes = BYTES};
    struct zinf_uses none = {0};
    CHECK(!zinf_program_init(program, "both"));
    CHECK(!zinf_program_add(program, &product, &none));
    CHECK(!zinf_program_add(program, &update, &none));
    CHECK(!zinf_program_schedule(program, ZINF_ORDER_ADDED, &(struct zinf_machine){0}));
}

/* A step in which the two took so long. */
static void step(struct zinf_trainer *t, double product, double update)
{
    struct zinf_lane_times times = {0};
    trainer_measure_begin(t);
    trainer_measured(t, &t->plan.gradients.ops[0], product);
    trainer_measured(t, &t->plan.gradients.ops[1], update);
    t->ran[0] = &t->plan.gradients;
    t->n_ran = 1;
    t->step++;
    CHECKF(!trainer_calibrate(t, &times), "%s", zinf_error());
}

/* As a trainer is that has chosen its schedule for good. */
static void begin(struct zinf_trainer *t, struct zinf_device *device)
{
    memset(t, 0, sizeof *t);
    *device = (struct zinf_device){.host_addressable = true, .n_threads = 2};
    static struct zinf_home home;
    static struct rule_work no_products;
    t->plan.setup = &t->setup;
    t->plan.homes = &home;
    t->setup.group_work = &no_products;
    t->setup.device = device;
    t->plan.schedule = SCHEDULE_PREFETCH;
    t->n_calibrated = 2;
    make_program(&t->plan.gradients);
    t->plan.rates.seconds[OP_STAGES] = 1 / FLOPS;
    t->plan.rates.seconds[OP_UPDATE] = 1.0 / BYTES;
    plan_cost_again(&t->plan, &t->plan.gradients);
}

static void check_rates(const struct zinf_trainer *t, double product, double update)
{
    const double *seconds = t->plan.rates.seconds;
    CHECKF(near(seconds[OP_STAGES] * FLOPS, product), "product: %g", seconds[OP_STAGES] * FLOPS);
    CHECKF(near(seconds[OP_UPDATE] * BYTES, update), "update: %g", seconds[OP_UPDATE] * BYTES);
}

static void test_a_step_as_simulated_changes_nothing(void)
{
    struct zinf_trainer t;
    struct zinf_device device;
    begin(&t, &device);
    step(&t, 2, 2);
    check_rates(&t, 1, 1);
    CHECKF(near(t.plan.predicted_seconds, 2), "predicted %g", t.plan.predicted_seconds);
    zinf_program_fini(&t.plan.gradients);
}

/* The first step counts whole; each of the later ones moves the logarithm by 0.4 of what it says,
 * and says no more than a factor of 4. */
static void test_what_a_step_weighs(void)
{
    struct zinf_trainer t;
    struct zinf_device device;
    begin(&t, &device);
    t.n_calibrated = 0;
    step(&t, 4, 4);
    check_rates(&t, 2, 2);
    t.n_calibrated = 2;
    step(&t, 8, 8);
    check_rates(&t, 2 * pow(2, 0.4), 2 * pow(2, 0.4));
    step(&t, 1000, 1000);
    check_rates(&t, 2 * pow(8, 0.4), 2 * pow(8, 0.4));
    zinf_program_fini(&t.plan.gradients);
}

/* What updates of matrices take for their work says nothing of the others, and the reverse. */
static void test_matrices_have_a_rate_of_their_own(void)
{
    const struct zinf_op update = {.kind = OP_MATRIX_UPDATE, .bytes = BYTES};
    struct zinf_trainer t;
    struct zinf_device device;
    struct rule_work work = {.flops = 4e8, .bytes = 5e7, .loops = 1e8};
    begin(&t, &device);
    t.setup.group_work = &work;
    t.setup.bytes_a_flop = 0.1;
    t.setup.walk.whole = WALK_NONE;
    CHECK(near(plan_work(&t.plan, &update), 2.0 * BYTES));
    CHECK(near(plan_work(&t.plan, &t.plan.gradients.ops[1]), BYTES));
    trainer_measure_begin(&t);
    trainer_measured(&t, &t.plan.gradients.ops[0], 1);
    trainer_measured(&t, &t.plan.gradients.ops[1], 2);
    trainer_measured(&t, &update, 3);
    trainer_measure_end(&t);
    check_rates(&t, 1, 2);
    CHECK(near(t.plan.rates.seconds[OP_MATRIX_UPDATE] * 2 * BYTES, 3));
    zinf_program_fini(&t.plan.gradients);
}

/* Operations of two seconds in steps of 2.5: these are expected, and rates stay what they are. */
static void test_what_passes_between_operations(void)
{
    struct zinf_lane_times times = {.wall_seconds = 2.5};
    struct zinf_trainer t;
    struct zinf_device device;
    begin(&t, &device);
    t.plan.planned_seconds = 2;
    for (int i = 0; i < 40; i++) {
        trainer_measure_begin(&t);
        trainer_measured(&t, &t.plan.gradients.ops[0], 2);
        trainer_measured(&t, &t.plan.gradients.ops[1], 2);
        t.ran[0] = &t.plan.gradients;
        t.n_ran = 1;
        t.step++;
        CHECKF(!trainer_calibrate(&t, &times), "%s", zinf_error());
    }
    check_rates(&t, 1, 1);
    CHECKF(near(trainer_expected_seconds(&t, false), 2.5), "%g",
           trainer_expected_seconds(&t, false));
    zinf_program_fini(&t.plan.gradients);
}

/* ---- a drive that changes its mind ---- */

static void make_drive_program(struct zinf_program *program)
{
    struct zinf_op read = {.lane = ZINF_LANE_READ, .kind = OP_READ, .bytes = BYTES};
    struct zinf_uses none = {0};
    CHECK(!zinf_program_init(program, "drive"));
    CHECK(!zinf_program_add(program, &read, &none));
    CHECK(!zinf_program_schedule(program, ZINF_ORDER_ADDED, &(struct zinf_machine){0}));
}

static char last_line[400];

static void keep_line(enum zinf_log_level level, const char *line, void *arg)
{
    (void)level;
    (void)arg;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void drive_step(struct zinf_trainer *t, double seconds)
{
    struct zinf_lane_times times = {.wall_seconds = seconds};
    times.busy_seconds[ZINF_LANE_READ] = seconds;
    times.bytes[ZINF_LANE_READ] = BYTES;
    trainer_measure_begin(t);
    trainer_measured(t, &t->plan.gradients.ops[0], seconds);
    t->ran[0] = &t->plan.gradients;
    t->n_ran = 1;
    t->step++;
    CHECKF(!trainer_calibrate(t, &times), "%s", zinf_error());
}

/* Predictions become a range that has both, and nothing is planned anew for it. */
static void test_a_drive_that_varies(void)
{
    struct zinf_trainer t;
    struct zinf_device device;
    begin(&t, &device);
    zinf_program_fini(&t.plan.gradients);
    make_drive_program(&t.plan.gradients);
    t.plan.rates.seconds[OP_READ] = 1.0 / BYTES;
    plan_cost_again(&t.plan, &t.plan.gradients);
    t.plan.planned_seconds = 1;
    last_line[0] = 0;
    zinf_log_set_sink(keep_line, NULL);
    for (int i = 0; i < 40; i++)
        drive_step(&t, i % 2 ? 2 : 1);
    zinf_log_set_sink(NULL, NULL);
    double least = t.range[0] * t.plan.predicted_seconds;
    double most = t.range[1] * t.plan.predicted_seconds;
    CHECKF(near(least, 1) && near(most, 2), "%g to %g", least, most);
    CHECKF(t.plan.predicted_seconds > 1.2 && !t.planned_step, "%g", t.plan.predicted_seconds);
    CHECKF(strstr(last_line, "because the drive was slow"), "%s", last_line);
    CHECKF(t.slow_drive_said > 20, "%llu", (unsigned long long)t.slow_drive_said);
    zinf_program_fini(&t.plan.gradients);
}

/* The first step reads one thing at a time, and more slowly than a bench with a full queue, whose
 * rates are then those of the next step, and whose spread is its range. */
static void test_a_drive_that_a_bench_knows(void)
{
    const struct zinf_speeds speeds = {.drive_read_bytes = 2.0 * BYTES,
                                       .drive_write_bytes = 4.0 * BYTES,
                                       .drive_mixed_bytes = 2.4 * BYTES,
                                       .drive_least = 0.8,
                                       .drive_most = 1.25};
    struct zinf_trainer t;
    struct zinf_device device;
    begin(&t, &device);
    zinf_program_fini(&t.plan.gradients);
    make_drive_program(&t.plan.gradients);
    t.setup.walk.whole = WALK_NONE;
    t.setup.options.speeds = &speeds;
    t.setup.store = (struct zinf_store *)&t; /* there is one */
    for (int k = 0; k < 2; k++) {
        trainer_measure_begin(&t);
        trainer_measured(&t, &t.plan.gradients.ops[0], k ? 0.25 : 1);
        trainer_measure_end(&t);
        const struct zinf_rates *r = &t.plan.rates;
        CHECKF(near(r->seconds[OP_READ] * BYTES, k ? 0.25 : 0.5), "%g",
               r->seconds[OP_READ] * BYTES);
        CHECKF(near(r->read_beside_write, 0.6) && near(r->write_beside_read, 0.3), "%g, %g",
               r->read_beside_write, r->write_beside_read);
    }
    plan_cost_again(&t.plan, &t.plan.gradients);
    CHECK(!trainer_foresee(&t));
    CHECKF(near(t.range[0], 0.8) && near(t.range[1], 1.25), "%g to %g", t.range[0], t.range[1]);
    zinf_program_fini(&t.plan.gradients);
}

/* What the first step's updates leave of the CPUs, products have beside them. */
static void test_what_an_operation_uses_of_the_cpus(void)
{
    struct zinf_trainer t;
    struct zinf_device device;
    struct timespec now;
    begin(&t, &device);
    t.setup.walk.whole = WALK_NONE;
    trainer_measure_begin(&t);
    const double end = t.cpu_seconds + 0.25;
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    while ((double)now.tv_sec + (double)now.tv_nsec * 1e-9 < end);
    trainer_measured(&t, &t.plan.gradients.ops[1], 0.25); /* of one of two CPUs */
    trainer_measured(&t, &t.plan.gradients.ops[0], 0.01); /* too short to tell */
    trainer_measure_end(&t);
    plan_cost_again(&t.plan, &t.plan.gradients);
    const float *of[] = {&t.plan.gradients.ops[0].cpu, &t.plan.gradients.ops[1].cpu};
    CHECKF(*of[0] == 1 && fabsf(*of[1] - 0.5F) < 0.01F, "%g, %g", (double)*of[0], (double)*of[1]);
    device.host_addressable = false; /* a GPU is not slower beside updates, whoever waits for it */
    t.plan.rates.cpu[OP_STAGES] = 0.25;
    plan_cost_again(&t.plan, &t.plan.gradients);
    CHECKF(*of[0] == 0 && fabsf(*of[1] - 0.5F) < 0.01F, "%g, %g", (double)*of[0], (double)*of[1]);
    zinf_program_fini(&t.plan.gradients);
}

/* ---- ranks ---- */

struct asking {
    struct zinf_trainer trainer;
    bool flag;
    int code;
};

static void *ask(void *arg)
{
    struct asking *a = arg;
    a->code = agree_flag(&a->trainer, &a->flag);
    zinf_net_close(a->trainer.setup.mesh.all); /* who closes waits for the others */
    return NULL;
}

/* Of ranks that have the same stages one finds by its rows that a step takes long: all plan anew.
 */
static void test_one_rank_is_enough(void)
{
    static struct asking of[2];
    struct zinf_net *nets[2];
    pthread_t threads[2];
    CHECKF(!zinf_net_threads_create(nets, 2), "%s", zinf_error());
    for (int r = 0; r < 2; r++) {
        zinf_net_set_timeout(nets[r], 60);
        of[r].trainer.setup.mesh.all = nets[r];
        of[r].flag = r == 1;
        CHECK(!pthread_create(&threads[r], NULL, ask, &of[r]));
    }
    for (int r = 0; r < 2; r++) {
        pthread_join(threads[r], NULL);
        CHECKF(!of[r].code && of[r].flag, "rank %d: %d", r, of[r].code);
    }
}

int main(void)
{
    TAP_RUN(test_a_step_as_simulated_changes_nothing);
    TAP_RUN(test_what_a_step_weighs);
    TAP_RUN(test_matrices_have_a_rate_of_their_own);
    TAP_RUN(test_what_passes_between_operations);
    TAP_RUN(test_a_drive_that_varies);
    TAP_RUN(test_a_drive_that_a_bench_knows);
    TAP_RUN(test_what_an_operation_uses_of_the_cpus);
    TAP_RUN(test_one_rank_is_enough);
    return tap_done();
}
