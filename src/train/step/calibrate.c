/*
 * calibrate: corrects the rates by which operations are predicted, from measured times. The first
 * step runs one operation at a time, and its times are the rates. Later steps correct them: by how
 * much longer a kind of operation took than a simulation of the same program says, how reads and
 * writes slow each other, and how much time passes between operations while lanes wake each other.
 * The schedule is chosen again once lanes have overlapped, and when the predicted time of a step
 * has changed by more than the drive varies from step to step, so that a drive of varying speed
 * does not change the order each time.
 */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define LEAST_SECONDS 0.02 /* of a kind's operations, to know how much of the CPUs they use */
#define LEAST_WORK 1048576 /* bytes or flops: a smaller operation is latency and gives no rate */
#define WEIGHT 0.4         /* of a step's correction, after the second one */
#define SECOND_LOOK 2      /* corrections after which the schedule is chosen again */
#define DRIFT 1.2          /* change of the predicted time at which a new schedule is chosen */
#define STEPS_BETWEEN 16   /* least steps between choices, and between log lines on a slow drive */
#define SLOW 1.25 /* a log line is due if the drive takes so many times as long as expected */
#define SLOW_SECONDS 0.5 /* and so much longer */

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void trainer_measure_begin(struct zinf_trainer *t)
{
    t->cpu_seconds = cpu_seconds();
    memset(t->measured_cpu, 0, sizeof t->measured_cpu);
    memset(t->measured_seconds, 0, sizeof t->measured_seconds);
    memset(t->measured_work, 0, sizeof t->measured_work);
}

void trainer_measured(void *context, const struct zinf_op *op, double seconds)
{
    struct zinf_trainer *t = context;
    const double cpu = cpu_seconds();
    t->measured_seconds[op->kind] += seconds;
    t->measured_cpu[op->kind] += cpu - t->cpu_seconds;
    t->cpu_seconds = cpu;
    const bool moves = op->kind == OP_READ || op->kind == OP_WRITE;
    t->measured_work[op->kind] +=
        moves ? (double)trainer_moved(t, op) : trainer_share(t, op) * plan_work(&t->plan, op);
}

/* Fills in rates for passes that the plan does not have from those of the same kind of stage: which
 * of its passes are used is the plan's choice. */
static void fill_whole(const struct walk *w, struct zinf_rates *rates, const double *work)
{
    static const enum zinf_pass passes[] = {ZINF_PASS_FORWARD, ZINF_PASS_BACKWARD, ZINF_PASS_WHOLE};
    if (w->whole == WALK_NONE)
        return;
    uint32_t sort = w->stages[w->whole].kind;
    for (int i = 0; i < 3; i++)
        for (int k = 0; !(work[stage_kind(sort, passes[i])] > 0) && k < 3; k++)
            if (work[stage_kind(sort, passes[k])] > 0)
                rates->seconds[stage_kind(sort, passes[i])] =
                    rates->seconds[stage_kind(sort, passes[k])];
}

/* How much of its threads an operation uses that runs alone: one that makes a part of its work with
 * one thread, or waits for memory, leaves the rest to others beside it. Ranks that are processes
 * have a clock each; seats of one process have one clock, which does not tell them apart. */
static void find_cpu(struct zinf_trainer *t)
{
    const double threads = t->setup.device->n_threads > 0 ? t->setup.device->n_threads : 1;
    double *cpu = t->plan.rates.cpu;
    for (int kind = 0; kind < ZINF_RATE_KINDS && setup_seats(&t->setup) == 1; kind++) {
        const double all = threads * t->measured_seconds[kind];
        if (t->measured_seconds[kind] > LEAST_SECONDS)
            cpu[kind] = fmin(t->measured_cpu[kind] / all, 1);
    }
}

/* An operation that is alone does not keep a drive busy: nothing else is in flight at its beginning
 * and its end, and the first step also writes where nothing was written before. So a drive is
 * expected to be as fast as a bench with a full queue has found it, if that is faster, and so are
 * reads and writes at once. Later steps correct it. */
static void take_known_drive(struct zinf_trainer *t)
{
    const struct zinf_speeds *s = t->setup.options.speeds;
    const struct zinf_net *all = t->setup.mesh.all;
    const struct zinf_net_place at =
        all ? zinf_net_place(all) : (struct zinf_net_place){.world = 1, .local_world = 1};
    /* on one host rates are those of a rank among all; else it shares its own host's drives */
    const double sharers = at.local_world == at.world ? 1 : at.local_world;
    struct zinf_rates *r = &t->plan.rates, known;
    if (!s || !(s->drive_read_bytes > 0) || !(s->drive_write_bytes > 0))
        return;
    plan_rates_of(&t->plan, s, &known);
    for (int kind = OP_READ; kind <= OP_WRITE; kind++)
        r->seconds[kind] = fmin(r->seconds[kind], sharers * known.seconds[kind]);
    if (s->drive_mixed_bytes > 0) {
        r->read_beside_write = known.read_beside_write;
        r->write_beside_read = known.write_beside_read;
    }
}

void trainer_measure_end(struct zinf_trainer *t)
{
    for (int kind = 0; kind < ZINF_RATE_KINDS; kind++)
        if (t->measured_work[kind] > LEAST_WORK)
            t->plan.rates.seconds[kind] = t->measured_seconds[kind] / t->measured_work[kind];
    find_cpu(t);
    take_known_drive(t);
    fill_whole(&t->setup.walk, &t->plan.rates, t->measured_work);
}

/* The part of its own speed that a drive lane had while the other lane was busy, too. */
static double beside(double bytes, double seconds_a_byte, double busy, double both, double now)
{
    double share = (bytes * seconds_a_byte - (busy - both)) / both;
    return both < 0.1 * busy ? now : share < 0.2 ? 0.2 : share > 1 ? 1 : share;
}

static void correct_mix(struct zinf_trainer *t, const struct zinf_lane_times *times)
{
    struct zinf_rates *r = &t->plan.rates;
    double both = times->both_drive_seconds;
    r->read_beside_write = beside((double)times->bytes[ZINF_LANE_READ], r->seconds[OP_READ],
                                  times->busy_seconds[ZINF_LANE_READ], both, r->read_beside_write);
    r->write_beside_read = beside((double)times->bytes[ZINF_LANE_WRITE], r->seconds[OP_WRITE],
                                  times->busy_seconds[ZINF_LANE_WRITE], both, r->write_beside_read);
}

/* Predicts programs one after the other, for the lengths of the present step. */
static int predict_now(struct zinf_trainer *t, const struct zinf_program *const *programs, int n,
                       double *seconds)
{
    const struct zinf_machine machine = plan_machine(&t->plan);
    const struct zinf_predict_options options = {
        .machine = &machine, .share = trainer_share_as_chosen, .context = t};
    struct zinf_prediction sum = {0};
    int code = 0;
    for (int i = 0; !code && i < n; i++)
        code = plan_predict_by(&t->plan, programs[i], &options, 1, &sum);
    *seconds = sum.seconds;
    return code;
}

/* The step that ran, simulated: seconds of each kind, and of all. */
struct simulated {
    struct zinf_trainer *trainer;
    double *seconds, all;
};

static int simulate_piece(void *context, const struct zinf_program *piece)
{
    struct simulated *s = context;
    const struct zinf_machine machine = plan_machine(&s->trainer->plan);
    double *op_seconds = malloc((piece->n_ops + 1) * sizeof *op_seconds);
    const struct zinf_predict_options options = {.machine = &machine,
                                                 .share = trainer_share_as_chosen,
                                                 .context = s->trainer,
                                                 .op_seconds = op_seconds};
    struct zinf_prediction p = {0};
    int code = op_seconds ? zinf_program_predict(piece, &options, &p)
                          : zinf_fail(-ENOMEM, "no memory to predict %u operations", piece->n_ops);
    for (uint32_t k = 0; !code && k < piece->n_ops; k++)
        s->seconds[piece->ops[k].kind] += op_seconds[k];
    s->all += p.seconds;
    free(op_seconds);
    return code;
}

/* all: seconds of the whole step. */
static int simulate(struct zinf_trainer *t, double seconds[ZINF_RATE_KINDS], double *all)
{
    struct simulated s = {t, seconds, 0};
    int code = 0;
    memset(seconds, 0, ZINF_RATE_KINDS * sizeof *seconds);
    for (int i = 0; !code && i < t->n_ran; i++)
        code = plan_each_piece(&t->plan, t->ran[i], simulate_piece, &s);
    *all = s.all;
    return code;
}

static void correct_rates(struct zinf_trainer *t, const double simulated[ZINF_RATE_KINDS],
                          const struct zinf_lane_times *times)
{
    double weight = t->n_calibrated < 2 ? 1.0 / (t->n_calibrated + 1) : WEIGHT;
    t->measured_seconds[OP_READ] = times->busy_seconds[ZINF_LANE_READ];
    t->measured_seconds[OP_WRITE] = times->busy_seconds[ZINF_LANE_WRITE];
    for (int kind = 0; kind < ZINF_RATE_KINDS; kind++) {
        if (!(t->measured_work[kind] > LEAST_WORK) || !(simulated[kind] > 0))
            continue;
        double ratio = t->measured_seconds[kind] / simulated[kind];
        ratio = ratio < 0.25 ? 0.25 : ratio > 4 ? 4 : ratio;
        t->plan.rates.seconds[kind] *= pow(ratio, weight);
    }
}

/* ---- a drive that changes its mind ---- */

static double of_drive(const double seconds[ZINF_RATE_KINDS])
{
    return seconds[OP_READ] + seconds[OP_WRITE];
}

static double drive_busy(const struct zinf_lane_times *times)
{
    return times->busy_seconds[ZINF_LANE_READ] + times->busy_seconds[ZINF_LANE_WRITE];
}

/* Logs if the drive, and not the plan, made a step longer. */
static void say_slow_drive(struct zinf_trainer *t, const double simulated[ZINF_RATE_KINDS],
                           const struct zinf_lane_times *times, double expected)
{
    const double busy = drive_busy(times), more = times->wall_seconds - expected;
    const double bytes = (double)(times->bytes[ZINF_LANE_READ] + times->bytes[ZINF_LANE_WRITE]);
    bool slow = times->wall_seconds > SLOW * expected && more > SLOW_SECONDS &&
                busy > SLOW * of_drive(simulated) && busy - of_drive(simulated) > more / 2;
    if (!slow || (t->slow_drive_said && t->step < t->slow_drive_said + STEPS_BETWEEN))
        return;
    t->slow_drive_said = t->step;
    zinf_log(ZINF_LOG_INFO,
             "step %llu took %.2f s instead of %.2f s because the drive was slow: it took %.1f "
             "times as long for its %.2f GB as in the steps before",
             (unsigned long long)t->step, times->wall_seconds, expected, busy / of_drive(simulated),
             bytes * 1e-9);
}

/* By the present rates, which the steps have changed. Before any step has shown it, as a bench has
 * seen it. */
static void find_spread(struct zinf_trainer *t)
{
    const struct zinf_speeds *s = t->setup.options.speeds;
    struct zinf_rates *r = &t->plan.rates;
    const double now = of_drive(r->seconds);
    r->drive_least = r->drive_most = 0;
    if (!t->n_drive_seen && t->setup.store && s && s->drive_least > 0) {
        r->drive_least = 1 / s->drive_most;
        r->drive_most = 1 / s->drive_least;
    }
    for (uint32_t i = 0; now > 0 && i < t->n_drive_seen && i < DRIVE_SEEN; i++) {
        double share = t->drive_seen[i] / now;
        r->drive_least = i && r->drive_least < share ? r->drive_least : share;
        r->drive_most = r->drive_most > share ? r->drive_most : share;
    }
}

struct with_drive {
    const struct zinf_trainer *trainer;
    double share;
};

static double share_with_drive(void *context, const struct zinf_op *op)
{
    const struct with_drive *with = context;
    const bool moves = op->lane == ZINF_LANE_READ || op->lane == ZINF_LANE_WRITE;
    return trainer_share_as_chosen((void *)(uintptr_t)with->trainer, op) *
           (moves ? with->share : 1);
}

/* What is predicted of a program by the present rates: with all choices equally likely, and as rows
 * chose, with the drive's usual speed and those of the fastest and the slowest recent step. */
enum { USUAL, FASTEST, SLOWEST, SPEEDS };
struct foreseen {
    const struct zinf_program *program;
    struct zinf_prediction plain, chosen[SPEEDS];
};
/* Programs that calibrating asks about. Several questions are about the same ones, whose pieces are
 * made anew for each look. */
struct foresight {
    struct foreseen of[5]; /* of a usual step, of the one that ran, and the one that waits */
    uint32_t n;
};

static const struct foreseen *seen_of(const struct foresight *f, const struct zinf_program *program)
{
    const struct foreseen *of = f->of;
    while (of->program != program)
        of++;
    return of;
}

static bool has_seen(const struct foresight *f, const struct zinf_program *program)
{
    bool has = false;
    for (uint32_t i = 0; i < f->n; i++)
        has |= f->of[i].program == program;
    return has;
}

/* n: how many speeds of the drive are asked about. */
static int foresee(struct zinf_trainer *t, struct foresight *f, const struct zinf_program *program,
                   uint32_t n)
{
    const struct zinf_rates *r = &t->plan.rates;
    const struct zinf_machine machine = plan_machine(&t->plan);
    const double shares[SPEEDS] = {
        [USUAL] = 1, [FASTEST] = r->drive_least, [SLOWEST] = r->drive_most};
    struct zinf_predict_options options[SPEEDS];
    struct with_drive with[SPEEDS];
    if (has_seen(f, program))
        return 0;
    for (int i = 0; i < SPEEDS; i++) {
        with[i] = (struct with_drive){t, shares[i]};
        options[i] = (struct zinf_predict_options){
            .machine = &machine, .share = share_with_drive, .context = &with[i]};
    }
    struct foreseen *of = &f->of[f->n++];
    *of = (struct foreseen){.program = program};
    return plan_predict_also(&t->plan, program, &of->plain, options, n, of->chosen);
}

static int foresee_all(struct zinf_trainer *t, struct foresight *f)
{
    const uint32_t speeds = t->plan.rates.drive_least > 0 ? SPEEDS : 1;
    const struct zinf_program *programs[2];
    const int n = plan_step_programs(&t->plan, programs);
    int code = 0;
    for (int i = 0; !code && i < n; i++)
        code = foresee(t, f, programs[i], speeds);
    for (int i = 0; !code && i < t->n_ran; i++)
        code = foresee(t, f, t->ran[i], 1);
    return code ? code : foresee(t, f, &t->plan.wait, 0);
}

/* 0: only the usual speed is known. */
static void set_range(struct zinf_trainer *t, const struct foresight *f)
{
    const struct zinf_program *programs[2];
    const int n = plan_step_programs(&t->plan, programs);
    double seconds[SPEEDS] = {0};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < SPEEDS; k++)
            seconds[k] += seen_of(f, programs[i])->chosen[k].seconds;
    t->range[0] = seconds[USUAL] > 0 ? seconds[FASTEST] / seconds[USUAL] : 0;
    t->range[1] = seconds[USUAL] > 0 ? seconds[SLOWEST] / seconds[USUAL] : 0;
}

int trainer_foresee(struct zinf_trainer *t)
{
    struct foresight f = {.n = 0};
    find_spread(t);
    t->n_ran = 0;
    const int code = t->plan.rates.drive_least > 0 ? foresee_all(t, &f) : 0;
    if (!code && f.n)
        set_range(t, &f);
    return code;
}

/* Corrects the time that a step takes beyond its operations, with rates that the step has corrected
 * already. A simulated operation starts when the last one that it waits for ends, but lanes are
 * threads that have to wake. */
static void correct_between(struct zinf_trainer *t, const struct foresight *f,
                            const struct zinf_lane_times *times)
{
    const double weight = t->n_calibrated < 3 ? 1.0 / t->n_calibrated : WEIGHT;
    double seconds = 0;
    for (int i = 0; i < t->n_ran; i++)
        seconds += seen_of(f, t->ran[i])->chosen[USUAL].seconds;
    const double most = seconds / 2; /* more has another cause */
    const double more = fmin(times->wall_seconds - seconds, most);
    t->between_seconds += weight * (fmax(more, -most) - t->between_seconds);
}

static void set_predicted(struct zinf_trainer *t, const struct foresight *f)
{
    const struct zinf_program *programs[2];
    const int n = plan_step_programs(&t->plan, programs);
    t->plan.predicted_seconds = 0;
    for (int i = 0; i < n; i++)
        t->plan.predicted_seconds += seen_of(f, programs[i])->plain.seconds;
    t->plan.predicted_rest = programs[0] == &t->plan.wait
                                 ? t->plan.predicted_seconds
                                 : seen_of(f, &t->plan.wait)->plain.seconds;
}

/* By the present rates. */
static int predict_again(struct zinf_trainer *t, const struct zinf_lane_times *times)
{
    struct zinf_program *all[] = {&t->plan.gradients, &t->plan.drain, &t->plan.wait,
                                  &t->plan.speculate};
    struct foresight f = {.n = 0};
    for (int i = 0; i < 4; i++)
        plan_cost_again(&t->plan, all[i]);
    const int code = foresee_all(t, &f);
    if (code)
        return code;
    set_predicted(t, &f);
    correct_between(t, &f, times);
    set_range(t, &f);
    return 0;
}

/* Of ranks of a pipeline one may have nothing to update in a step in which others still have. */
static int agree_steady(const struct zinf_trainer *t, bool *steady)
{
    bool rests = !t->n_ran;
    const int code = is_piped(&t->setup) ? agree_flag(t, &rests) : 0;
    *steady = !rests;
    return code;
}

int trainer_calibrate(struct zinf_trainer *t, const struct zinf_lane_times *times)
{
    double simulated[ZINF_RATE_KINDS], expected;
    bool steady;
    int code = agree_steady(t, &steady);
    if (code || !steady)
        return code;
    if (!t->n_calibrated && times->both_drive_seconds > 0)
        correct_mix(t, times);
    code = simulate(t, simulated, &expected);
    if (code)
        return code;
    if (t->n_calibrated >= SECOND_LOOK && of_drive(simulated) > 0) {
        say_slow_drive(t, simulated, times, expected);
        t->drive_seen[t->n_drive_seen++ % DRIVE_SEEN] =
            drive_busy(times) / of_drive(simulated) * of_drive(t->plan.rates.seconds);
    }
    correct_rates(t, simulated, times);
    find_spread(t);
    t->n_calibrated++;
    code = agree_rates(t);
    if (!code)
        code = predict_again(t, times);
    double drift = t->plan.predicted_seconds / t->plan.planned_seconds;
    bool known = t->range[0] > 0;
    double least = known ? t->range[0] : 1, most = known ? t->range[1] : 1;
    bool alike = drift * least < DRIFT && drift * most > 1 / DRIFT;
    bool stays = alike || t->step < t->planned_step + STEPS_BETWEEN;
    bool again = !stays || t->n_calibrated == SECOND_LOOK;
    code = code ? code : agree_flag(t, &again);
    if (code || !again)
        return code;
    t->planned_step = t->step;
    return agree_plan(t);
}

/* ---- before a step ---- */

/* Whether all updates of the step's program are due. */
static bool is_steady(const struct zinf_trainer *t, bool rests)
{
    bool all = rests || t->plan.schedule == SCHEDULE_UPDATE_IN_FORWARD;
    for (uint32_t u = 0; u < t->setup.n_units; u++)
        if (unit_trains(&t->setup, u) && !t->pending[u] && (all || t->plan.deferred[u]))
            return false;
    return true;
}

/* Operations may also have taken less time than their rates say, such as those of the drive. */
static double between_operations(const struct zinf_trainer *t)
{
    return fmax(t->between_seconds, 0);
}

double trainer_expected_seconds(struct zinf_trainer *t, bool rests)
{
    const struct zinf_program *programs[2] = {&t->plan.wait};
    int n = rests ? 1 : plan_step_programs(&t->plan, programs);
    struct zinf_machine machine = plan_machine(&t->plan);
    struct zinf_predict_options options = {.machine = &machine,
                                           .skip = trainer_skip_not_due,
                                           .share = trainer_share_as_chosen,
                                           .context = t};
    const bool differs = trainer_is_shorter(t) || t->setup.walk.n_choices;
    struct zinf_prediction p = {0};
    if (!(t->plan.predicted_seconds > 0))
        return 0;
    if (n == 2 || is_steady(t, rests)) {
        double seconds = rests ? t->plan.predicted_rest : t->plan.predicted_seconds;
        return differs && predict_now(t, programs, n, &seconds) ? 0
                                                                : seconds + between_operations(t);
    }
    return plan_predict_by(&t->plan, programs[0], &options, 1, &p)
               ? 0
               : p.seconds + between_operations(t);
}
