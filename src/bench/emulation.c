/* emulation: a plan's step on an emulator, so often, and its figures. */
#include "bench/emulation.h"
#include "base/median.h"
#include "bench/emulate.h"
#include "train/plan/estimated.h"

#include <math.h>
#include <pthread.h>
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
    if (!zinf_program_n_ops(&p->gradients))
        return own;
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

static void add_times(struct zinf_emulation *out, const struct zinf_lane_times *times, int steps)
{
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        out->busy_seconds[lane] += times->busy_seconds[lane] / steps;
        for (int other = 0; other < ZINF_LANES; other++)
            out->stall_seconds[lane][other] += times->stall_seconds[lane][other] / steps;
    }
}

/* A program, piece by piece if it is in pieces, on an emulator. */
struct run {
    struct zinf_emulator *emulator;
    struct zinf_emulation *out; /* NULL: times do not count */
    double seconds;
    int steps;
};

static int run_piece(void *context, const struct zinf_program *piece)
{
    struct run *r = context;
    struct zinf_lane_times times;
    double taken = 0;
    const int code = zinf_emulator_run(r->emulator, piece, &taken, &times);
    r->seconds += taken;
    if (!code && r->out)
        add_times(r->out, &times, r->steps);
    return code;
}

/* The first finds threads that have not run yet. */
static int run_steps(struct zinf_emulation *out, struct zinf_emulator *emulator,
                     const struct plan *plan, int steps)
{
    const struct zinf_program *programs[2];
    const int n = plan_step_programs(plan, programs);
    double *seconds = calloc((size_t)steps + 1, sizeof *seconds);
    int code = seconds ? 0 : zinf_fail(-ENOMEM, "no memory for %d steps", steps);
    for (int step = 0; !code && step <= steps; step++)
        for (int i = 0; !code && i < n; i++) {
            struct run r = {emulator, step ? out : NULL, 0, steps};
            code = plan_each_piece(plan, programs[i], run_piece, &r);
            seconds[step] += r.seconds;
        }
    if (!code) {
        out->step_seconds = zinf_median(seconds + 1, steps);
        out->fastest_seconds = seconds[1];
        out->slowest_seconds = seconds[steps];
    }
    free(seconds);
    return code;
}

/* ---- ranks in a pipeline ---- */

/* How often each of two neighbours has come to their border. */
struct border {
    pthread_mutex_t lock; /* guards both */
    pthread_cond_t changed;
    uint64_t came[2];
    bool over; /* one of them has failed: nobody waits */
};

struct rank {
    struct estimated estimated;
    const struct zinf_emulation_options *options;
    struct zinf_emulation out;
    struct border *borders[2]; /* with the rank before, and the next one */
    pthread_t thread;
    uint32_t number;
    double predicted; /* seconds of the step of all, which go by one clock */
    int code;
    char sentence[512];
};

static void leave(struct border *b)
{
    pthread_mutex_lock(&b->lock);
    b->over = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static void meet(void *context, const struct zinf_op *op)
{
    const struct rank *r = context; /* its first member is what other calls have */
    struct border *b = r->borders[op->visit];
    if (op->kind != OP_GIVE && op->kind != OP_TAKE && op->kind != OP_TRADE)
        return;
    pthread_mutex_lock(&b->lock);
    const uint64_t own = ++b->came[!op->visit];
    pthread_cond_broadcast(&b->changed);
    while (b->came[op->visit] < own && !b->over)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

/* What it computes of all micro-batches; the other ranks do not wait for what it adds up. */
static double stage_seconds(const struct rank *r)
{
    const struct zinf_program *programs[2];
    const int n = plan_step_programs(&r->estimated.plan, programs);
    double seconds = 0;
    for (int i = 0; i < n; i++)
        for (uint32_t k = 0; k < programs[i]->n_ops; k++)
            seconds += programs[i]->ops[k].kind >= OP_STAGES ? programs[i]->ops[k].seconds : 0;
    return seconds;
}

/* ---- a rank's steps ---- */

static int emulate(struct rank *r)
{
    const struct zinf_emulation_options *options = r->options;
    struct estimated *e = &r->estimated;
    struct zinf_emulation *out = &r->out;
    const struct zinf_program *programs[2];
    struct zinf_emulator_options wanted = emulator_of(e);
    struct zinf_emulator *emulator;
    struct zinf_prediction step;
    int n = plan_step_programs(&e->plan, programs);
    int code = plan_predict(&e->plan, programs, n, &step);
    if (code)
        return code;
    *out = (struct zinf_emulation){
        .tokens = setup_step_rows(&e->setup) * setup_sharers(&e->setup),
        .floor_seconds = floor_of(&e->plan, programs, n),
        .predicted_seconds = r->predicted,
        .n_ops = zinf_program_n_ops(programs[0]) + (n > 1 ? zinf_program_n_ops(programs[1]) : 0),
        .pipe_ranks = pipe_axis(&e->setup)->world,
    };
    snprintf(out->schedule, sizeof out->schedule, "%s", schedule_name(e->plan.schedule));
    memcpy(out->work_seconds, step.work_seconds, sizeof step.work_seconds);
    if (options->clock_seconds > 0 && r->predicted > 0)
        wanted.stretch = options->clock_seconds / r->predicted;
    wanted.trace_path = r->number ? NULL : options->trace;
    wanted.meet = is_piped(&e->setup) ? meet : NULL;
    code = zinf_emulator_create(&emulator, &wanted);
    if (!code)
        code = run_steps(out, emulator, &e->plan, options->steps);
    zinf_emulator_destroy(emulator);
    return code;
}

static void *run_rank(void *context)
{
    struct rank *r = context;
    r->code = emulate(r);
    snprintf(r->sentence, sizeof r->sentence, "%s", r->code ? zinf_error() : "");
    for (int i = 0; i < 2; i++)
        if (r->borders[i])
            leave(r->borders[i]);
    return NULL;
}

/* All at once, each in a thread of its own. */
static int run_ranks(struct rank *ranks, uint32_t n)
{
    uint32_t started = 0;
    int code = 0;
    for (; !code && started < n; started += !code)
        if (pthread_create(&ranks[started].thread, NULL, run_rank, &ranks[started]))
            code = zinf_fail(-EAGAIN, "no thread for rank %u of a pipeline", started);
    for (uint32_t r = 0; code && r < started; r++)
        for (int i = 0; i < 2; i++)
            if (ranks[r].borders[i])
                leave(ranks[r].borders[i]);
    for (uint32_t r = 0; r < started; r++)
        pthread_join(ranks[r].thread, NULL);
    for (uint32_t r = 0; !code && r < n; r++)
        if (ranks[r].code)
            code = zinf_fail(ranks[r].code, "%s", ranks[r].sentence);
    return code;
}

static int open_ranks(struct rank *ranks, uint32_t n, struct border *borders,
                      const struct zinf_emulation_options *options, uint32_t *opened)
{
    struct estimated_step *steps = calloc(n, sizeof *steps);
    double predicted = 0;
    int code = steps ? 0 : zinf_fail(-ENOMEM, "no memory for %u ranks", n);
    for (uint32_t r = 0; !code && r < n; r++) {
        struct zinf_estimate_options estimate = *options->estimate;
        estimate.trainer.pipe_rank = r;
        ranks[r].options = options;
        ranks[r].number = r;
        /* with several ranges a rank, the first is behind the last one, too */
        code = estimated_open(&ranks[r].estimated, &estimate, true);
        const bool ring = !code && n > 1 && ranks[r].estimated.setup.graph->n_ranges > 1;
        ranks[r].borders[0] = r || ring ? &borders[(r + n - 1) % n] : NULL;
        ranks[r].borders[1] = r + 1 < n || ring ? &borders[r] : NULL;
        *opened = r + 1;
        if (!code)
            estimated_see_step(&ranks[r].estimated, &steps[r]);
    }
    if (!code)
        code = estimated_predict(steps, n, &predicted);
    free(steps);
    for (uint32_t r = 0; r < n; r++)
        ranks[r].predicted = predicted;
    return code;
}

/* n_micro: of a step. Before a rank begins, and behind its last backward, one micro-batch goes
 * through a range of each rank before it. */
static void add_ranks(struct zinf_emulation *out, const struct rank *ranks, uint32_t n,
                      double n_micro)
{
    double before = 0;
    out->pipe_busy_seconds = out->pipe_floor_seconds = 0;
    for (uint32_t r = 0; r < n; r++) {
        const double busy = ranks[r].out.work_seconds[ZINF_LANE_DEVICE];
        const double n_pieces = n_micro * ranks[r].estimated.setup.graph->n_ranges;
        out->pipe_busy_seconds = fmax(out->pipe_busy_seconds, busy);
        out->pipe_floor_seconds = fmax(out->pipe_floor_seconds, busy + before);
        before += n_pieces > 0 ? stage_seconds(&ranks[r]) / n_pieces : 0;
    }
}

int zinf_emulate(struct zinf_emulation *out, const struct zinf_emulation_options *options)
{
    const struct zinf_config *config = options->estimate->trainer.config;
    const uint32_t n = options->estimate->ranks > 1 ? (uint32_t)config->mesh[ZINF_PIPE] : 1;
    uint32_t opened = 0;
    if (options->steps < 1)
        return zinf_fail(-EINVAL, "%d steps to emulate: 1 or more are needed", options->steps);
    struct rank *ranks = calloc(n, sizeof *ranks);
    struct border *borders = calloc(n, sizeof *borders);
    int code = ranks && borders ? 0 : zinf_fail(-ENOMEM, "no memory for %u ranks", n);
    for (uint32_t r = 0; !code && r < n; r++) {
        pthread_mutex_init(&borders[r].lock, NULL);
        pthread_cond_init(&borders[r].changed, NULL);
    }
    if (!code)
        code = open_ranks(ranks, n, borders, options, &opened);
    if (!code)
        code = run_ranks(ranks, n);
    if (!code)
        *out = ranks[0].out;
    if (!code)
        add_ranks(out, ranks, n, (double)config->accumulation);
    for (uint32_t r = 0; r < opened; r++)
        estimated_close(&ranks[r].estimated);
    free(borders);
    free(ranks);
    return code;
}
