/*
 * simulate: lanes that slow each other down, for scheduling and prediction. Drive lanes get the
 * CPU time that they need first; the others share the rest in proportion to what they would use
 * alone. Reads and writes at the same time run at the drive's speed for a mix.
 */
#include "offload/builder.h"

#include <stdlib.h>

#define MIN_RATE 0.02      /* least speed of an operation */
#define NOTHING_LEFT 1e-12 /* seconds that count as none, after rounding */

static double drive_rate(const struct zinf_machine *machine, int lane)
{
    double rate = lane == ZINF_LANE_READ ? machine->read_beside_write : machine->write_beside_read;
    return rate > 0 && rate < 1 ? rate : 1;
}

/* Of a drive while the lanes in order want so much of the CPUs. */
static double beside_cpus(const struct zinf_machine *machine, double wanted)
{
    const double least = machine->drive_beside_cpus;
    return least > 0 && least < 1 ? 1 - (1 - least) * (wanted < 1 ? wanted : 1) : 1;
}

static void find_rates(const struct simulation *s, double rate[ZINF_LANES])
{
    bool both = s->op[ZINF_LANE_READ] && s->op[ZINF_LANE_WRITE];
    double taken = 0, wanted = 0;
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        const bool in_order = lane_in_order((enum zinf_lane)lane);
        rate[lane] = s->op[lane] ? 1 : 0;
        wanted += s->op[lane] && in_order ? (double)s->op[lane]->cpu : 0;
    }
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        if (!s->op[lane] || lane_in_order((enum zinf_lane)lane))
            continue;
        rate[lane] = (both ? drive_rate(s->machine, lane) : 1) *
                     (s->machine ? beside_cpus(s->machine, wanted) : 1);
        taken += (double)s->op[lane]->cpu * rate[lane];
    }
    double share = taken < 1 ? 1 - taken : MIN_RATE;
    if (wanted <= share)
        return;
    for (int lane = 0; lane < ZINF_LANES; lane++)
        if (s->op[lane] && lane_in_order((enum zinf_lane)lane) && s->op[lane]->cpu > 0) {
            rate[lane] = share / wanted;
            if (rate[lane] < MIN_RATE)
                rate[lane] = MIN_RATE;
        }
}

void simulation_start(struct simulation *s, const struct zinf_op *op)
{
    s->op[op->lane] = op;
    s->left[op->lane] = op->seconds > 0 ? op->seconds : 0;
}

static void account(const struct simulation *s, double seconds, struct zinf_prediction *out)
{
    bool drive = s->op[ZINF_LANE_READ] || s->op[ZINF_LANE_WRITE];
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        if (!s->op[lane])
            continue;
        out->busy_seconds[lane] += seconds;
        out->cpu_seconds += seconds * s->rate[lane] * (double)s->op[lane]->cpu;
    }
    if (drive)
        out->drive_seconds += seconds;
}

double simulation_step(struct simulation *s)
{
    double step = -1;
    find_rates(s, s->rate);
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        if (!s->op[lane])
            continue;
        double seconds = s->left[lane] / s->rate[lane];
        if (step < 0 || seconds < step)
            step = seconds;
    }
    return step;
}

unsigned simulation_advance(struct simulation *s, double step, struct zinf_prediction *out)
{
    unsigned ended = 0;
    if (out)
        account(s, step, out);
    s->now += step;
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        if (!s->op[lane])
            continue;
        s->left[lane] -= step * s->rate[lane];
        if (s->left[lane] > NOTHING_LEFT)
            continue;
        s->op[lane] = NULL;
        ended |= 1u << lane;
    }
    return ended;
}

/* ---- without an order ---- */

static void add_work(struct zinf_work *sum, const struct zinf_work *more)
{
    sum->n_ops += more->n_ops;
    sum->cpu_seconds += more->cpu_seconds;
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        sum->lane_seconds[lane] += more->lane_seconds[lane];
        if (more->most_cpu[lane] > sum->most_cpu[lane])
            sum->most_cpu[lane] = more->most_cpu[lane];
    }
}

void zinf_work_add(struct zinf_work *sum, const struct zinf_program *program)
{
    if (program->pieces)
        add_work(sum, &program->pieces->work);
    else
        zinf_work_add_now(sum, program);
}

void zinf_work_add_now(struct zinf_work *sum, const struct zinf_program *program)
{
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const struct zinf_op *op = &program->ops[i];
        double cpu = (double)op->cpu;
        if (!(op->seconds > 0))
            continue;
        sum->lane_seconds[op->lane] += op->seconds;
        sum->cpu_seconds += op->seconds * cpu;
        if (cpu > sum->most_cpu[op->lane])
            sum->most_cpu[op->lane] = cpu;
    }
    sum->n_ops += program->n_ops;
}

/* Least time for the reads and writes: both at once as long as there are both, if the mix is faster
 * than one after the other. */
static double least_drive_seconds(const struct zinf_work *w, const struct zinf_machine *machine)
{
    double read = w->lane_seconds[ZINF_LANE_READ], write = w->lane_seconds[ZINF_LANE_WRITE];
    double read_rate = drive_rate(machine, ZINF_LANE_READ);
    double write_rate = drive_rate(machine, ZINF_LANE_WRITE), gain = read_rate + write_rate - 1;
    double both = read / read_rate < write / write_rate ? read / read_rate : write / write_rate;
    return read + write - (gain > 0 ? gain * both : 0);
}

/* Least time for the CPU work. The simulation exceeds the CPUs only where MIN_RATE makes it. */
static double least_cpu_seconds(const struct zinf_work *w)
{
    double taken = w->most_cpu[ZINF_LANE_READ] + w->most_cpu[ZINF_LANE_WRITE], wanted = 0;
    for (int lane = 0; lane < ZINF_LANES; lane++)
        if (lane_in_order((enum zinf_lane)lane))
            wanted += w->most_cpu[lane];
    return 1 - taken > MIN_RATE * wanted ? w->cpu_seconds : 0;
}

double zinf_work_least_seconds(const struct zinf_work *w, const struct zinf_machine *machine)
{
    double least = least_drive_seconds(w, machine), cpu = least_cpu_seconds(w);
    least = cpu > least ? cpu : least;
    for (int lane = 0; lane < ZINF_LANES; lane++)
        least = w->lane_seconds[lane] > least ? w->lane_seconds[lane] : least;
    /* allows for rounding of the sums and of each operation */
    least = least * (1 - 1e-9) - (double)w->n_ops * NOTHING_LEFT;
    return least > 0 ? least : 0;
}
