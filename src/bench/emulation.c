/* emulation: a plan's step on an emulator, so often, and its figures. */
#include "bench/emulation.h"
#include "bench/emulate.h"
#include "train/plan/estimated.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *op_name(void *context, const struct zinf_op *op, char buffer[64])
{
    const struct estimated *e = context;
    return plan_op_name(&e->setup, op, buffer);
}

/* Packed state by what the plan takes its share to be. */
static uint64_t moved(void *context, const struct zinf_op *op)
{
    const struct estimated *e = context;
    if (op->kind != OP_READ && op->kind != OP_WRITE)
        return op->bytes;
    return zinf_align_up((uint64_t)plan_work(&e->plan, op), ZINF_AIO_ALIGN);
}

/* Updates that wait may add transfers to the program that was chosen: the floor is without them. */
static double floor_of(const struct plan *p, const struct zinf_program *const programs[2], int n)
{
    double own = plan_least_seconds(p, programs[0], n > 1 ? programs[1] : NULL);
    return fmin(own, plan_least_seconds(p, &p->gradients, &p->drain));
}

static struct zinf_emulator_options emulator_of(struct estimated *e)
{
    const struct plan *p = &e->plan;
    return (struct zinf_emulator_options){
        .store = p->store,
        .drive = {.read_bytes = 1 / p->rates.seconds[OP_READ],
                  .write_bytes = 1 / p->rates.seconds[OP_WRITE],
                  .read_beside_write = p->rates.read_beside_write,
                  .write_beside_read = p->rates.write_beside_read},
        .queues = device_is_far(p->setup),
        .net = p->setup->mesh.all,
        .op_name = op_name,
        .moved = moved,
        .context = e,
    };
}

static int compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void add_times(struct zinf_emulation *out, const struct zinf_lane_times *times, int steps)
{
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        out->busy_seconds[lane] += times->busy_seconds[lane] / steps;
        for (int other = 0; other < ZINF_LANES; other++)
            out->stall_seconds[lane][other] += times->stall_seconds[lane][other] / steps;
    }
}

/* The first finds threads that have not run yet. */
static int run_steps(struct zinf_emulation *out, struct zinf_emulator *emulator,
                     const struct zinf_program *const programs[2], int n, int steps)
{
    double *seconds = calloc((size_t)steps + 1, sizeof *seconds);
    int code = seconds ? 0 : zinf_fail(-ENOMEM, "no memory for %d steps", steps);
    for (int step = 0; !code && step <= steps; step++)
        for (int i = 0; !code && i < n; i++) {
            struct zinf_lane_times times;
            double taken = 0;
            code = zinf_emulator_run(emulator, programs[i], &taken, &times);
            seconds[step] += taken;
            if (step)
                add_times(out, &times, steps);
        }
    if (!code) {
        qsort(seconds + 1, (size_t)steps, sizeof *seconds, compare_seconds);
        out->fastest_seconds = seconds[1];
        out->step_seconds = (seconds[1 + (steps - 1) / 2] + seconds[1 + steps / 2]) / 2;
        out->slowest_seconds = seconds[steps];
    }
    free(seconds);
    return code;
}

static int emulate(struct zinf_emulation *out, struct estimated *e,
                   const struct zinf_emulation_options *options)
{
    const struct zinf_program *programs[2];
    struct zinf_emulator_options wanted = emulator_of(e);
    struct zinf_emulator *emulator;
    struct zinf_prediction step;
    int n = plan_step_programs(&e->plan, programs);
    int code = plan_predict(&e->plan, programs, n, NULL, &step);
    if (code)
        return code;
    *out = (struct zinf_emulation){
        .tokens = setup_step_rows(&e->setup) * data_axis(&e->setup)->world,
        .floor_seconds = floor_of(&e->plan, programs, n),
        .predicted_seconds = step.seconds,
        .n_ops = programs[0]->n_ops + (n > 1 ? programs[1]->n_ops : 0),
    };
    snprintf(out->schedule, sizeof out->schedule, "%s", schedule_name(e->plan.schedule));
    memcpy(out->work_seconds, step.work_seconds, sizeof step.work_seconds);
    if (options->clock_seconds > 0 && step.seconds > 0)
        wanted.stretch = options->clock_seconds / step.seconds;
    wanted.trace_path = options->trace;
    code = zinf_emulator_create(&emulator, &wanted);
    if (!code)
        code = run_steps(out, emulator, programs, n, options->steps);
    zinf_emulator_destroy(emulator);
    return code;
}

int zinf_emulate(struct zinf_emulation *out, const struct zinf_emulation_options *options)
{
    struct estimated e;
    if (options->steps < 1)
        return zinf_fail(-EINVAL, "%d steps to emulate: 1 or more are needed", options->steps);
    int code = estimated_open(&e, options->estimate);
    if (!code)
        code = emulate(out, &e, options);
    estimated_close(&e);
    return code;
}
