/*
 * predict: the time that programs take whose lanes have a fixed order. Each lane starts its next
 * operation as soon as what it waits for has ended, a drive lane also a later one meanwhile, as the
 * executor does (drive_lane.c), and lanes slow each other down (simulate.c).
 * Programs of several ranks share one clock and wait for each other at meetings.
 */
#include "offload/builder.h"

#include <math.h>
#include <stdlib.h>

/* A program in progress. */
struct fixed {
    const struct zinf_program *program;
    const struct zinf_predict_options *options;
    struct zinf_prediction *out;
    struct simulation s;
    uint8_t *done;
    uint32_t *by_lane; /* [n_ops] operations, lane by lane in the program's order */
    /* range of by_lane that the lane still has to run */
    uint32_t next[ZINF_LANES], end[ZINF_LANES];
    uint32_t active[ZINF_LANES];                 /* the lane's operation in progress, or NONE */
    double begun[ZINF_LANES], ended[ZINF_LANES]; /* when the last operation of the lane did */
    double step,
        /* remaining time until the next operation ends, and its time; INFINITY: none is in progress
         */
        due;
    uint64_t place; /* number of the meeting at which it waits */
    bool waits;
    bool may_go; /* all others have come to the meeting, but it has not gone on */
};

/* All programs of a prediction. */
struct joint {
    struct fixed *programs;
    uint32_t n;
};

static void note_work(struct zinf_prediction *out, const struct zinf_op *op, double share)
{
    out->work_seconds[op->lane] += share * op->seconds;
    out->bytes[op->lane] += (uint64_t)((1 - op->left_out) * (double)op->bytes);
}

static void sort_by_lane(struct fixed *f)
{
    const struct zinf_program *p = f->program;
    uint32_t n = 0;
    memset(f->end, 0, sizeof f->end);
    for (uint32_t i = 0; i < p->n_ops; i++)
        f->end[p->ops[i].lane]++;
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        uint32_t of_lane = f->end[lane];
        f->active[lane] = NONE;
        f->next[lane] = f->end[lane] = n; /* end grows while by_lane is filled */
        n += of_lane;
    }
    for (uint32_t i = 0; i < p->n_ops; i++)
        f->by_lane[f->end[p->ops[i].lane]++] = i;
}

static bool is_ready(const struct fixed *f, const struct zinf_op *op)
{
    for (uint32_t i = 0; i < op->n_waits; i++)
        if (!f->done[f->program->waits[op->first_wait + i]])
            return false;
    return true;
}

/* Whether a ready operation is no meeting with other ranks, or all of them have come to it. The
 * last to come lets the others go on. */
static bool may_begin(struct joint *j, struct fixed *f, const struct zinf_op *op)
{
    const struct zinf_predict_options *o = f->options;
    if (op->lane != ZINF_LANE_NET || !o->meeting || f->may_go)
        return true;
    if (f->waits)
        return false;
    const struct zinf_meeting m = o->meeting(o->context, op);
    uint32_t come = 1;
    if (m.programs < 2)
        return true;
    for (uint32_t i = 0; i < j->n; i++)
        come += j->programs[i].waits && j->programs[i].place == m.number;
    f->waits = come < m.programs;
    f->place = m.number;
    for (uint32_t i = 0; !f->waits && i < j->n; i++) {
        struct fixed *other = &j->programs[i];
        other->may_go |= other->waits && other->place == m.number;
        other->waits &= !other->may_go;
    }
    return !f->waits;
}

/* The lane's next operation, which becomes the first of those that it still has to run; NONE: it
 * cannot begin yet. */
static uint32_t next_ready(struct joint *j, struct fixed *f, int lane)
{
    uint32_t *list = f->by_lane + f->next[lane], left = f->end[lane] - f->next[lane];
    const struct zinf_op *ops = f->program->ops;
    if (lane_in_order((enum zinf_lane)lane))
        return left && is_ready(f, &ops[list[0]]) && may_begin(j, f, &ops[list[0]]) ? list[0]
                                                                                    : NONE;
    for (uint32_t i = 0; i < left && i < ZINF_DRIVE_WINDOW; i++) {
        const uint32_t op = list[i];
        if (!is_ready(f, &ops[op]))
            continue;
        memmove(list + 1, list, i * sizeof *list);
        list[0] = op;
        return op;
    }
    return NONE;
}

/* A lane that has just ended an operation is awake. */
static double waking(const struct fixed *f, int lane)
{
    const bool awake = f->ended[lane] == f->s.now && f->s.now > 0;
    return f->options->machine && !awake ? f->options->machine->waking_seconds[lane] : 0;
}

/* Starts operations that are ready. One that is left out ends at once and may make others ready. */
static void start_ready(struct joint *j, struct fixed *f)
{
    const struct zinf_predict_options *o = f->options;
    bool again = true;
    while (again) {
        again = false;
        for (int lane = 0; lane < ZINF_LANES; lane++) {
            const struct zinf_program *p = f->program;
            const uint32_t i = f->active[lane] == NONE ? next_ready(j, f, lane) : NONE;
            if (i == NONE)
                continue;
            f->next[lane]++;
            f->may_go &= lane != ZINF_LANE_NET;
            if (o->skip && o->skip(o->context, &p->ops[i])) {
                f->done[i] = 1;
                again = true;
                continue;
            }
            const double share = o->share ? o->share(o->context, &p->ops[i]) : 1;
            f->active[lane] = i;
            f->begun[lane] = f->s.now;
            simulation_start(&f->s, &p->ops[i]);
            f->s.left[lane] = f->s.left[lane] * share + waking(f, lane);
            note_work(f->out, &p->ops[i], share);
        }
    }
}

static void end_lanes(struct fixed *f, unsigned ended)
{
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        uint32_t op = f->active[lane];
        if (!(ended >> lane & 1))
            continue;
        f->done[op] = 1;
        f->active[lane] = NONE;
        f->ended[lane] = f->s.now;
        if (f->options->op_begin)
            f->options->op_begin[op] = f->begun[lane];
        if (f->options->op_seconds)
            f->options->op_seconds[op] = f->s.now - f->begun[lane];
    }
}

/* Lets time pass, starts operations that are ready then, and finds when the next one ends. */
static void go_on(struct joint *j, struct fixed *f, double seconds)
{
    const unsigned ended = simulation_advance(&f->s, seconds, f->out);
    end_lanes(f, ended);
    f->out->seconds = ended ? f->s.now : f->out->seconds;
    start_ready(j, f);
    f->step = simulation_step(&f->s);
    f->due = f->step < 0 ? INFINITY : f->s.now + f->step;
}

/* Lets programs go on whose meetings are complete, which may complete further meetings. */
static void let_go(struct joint *j, double now)
{
    bool again = true;
    while (again) {
        again = false;
        for (uint32_t i = 0; i < j->n; i++) {
            struct fixed *f = &j->programs[i];
            if (!f->may_go)
                continue;
            go_on(j, f, now - f->s.now);
            again = true;
        }
    }
}

static void run_all(struct joint *j)
{
    for (uint32_t i = 0; i < j->n; i++)
        go_on(j, &j->programs[i], 0);
    let_go(j, 0);
    for (;;) {
        struct fixed *first = &j->programs[0];
        for (uint32_t i = 1; i < j->n; i++)
            first = j->programs[i].due < first->due ? &j->programs[i] : first;
        if (first->due == INFINITY)
            return;
        go_on(j, first, first->step);
        let_go(j, first->s.now);
    }
}

static int begin(struct fixed *f)
{
    const uint32_t n = f->program->n_ops;
    memset(f->out, 0, sizeof *f->out);
    f->s.machine = f->options->machine;
    f->by_lane = malloc((n + 1) * sizeof *f->by_lane + n);
    if (!f->by_lane)
        return zinf_fail(-ENOMEM, "no memory to predict %u operations", n);
    f->done = memset(f->by_lane + n + 1, 0, n);
    if (f->options->op_seconds && n)
        memset(f->options->op_seconds, 0, n * sizeof *f->options->op_seconds);
    sort_by_lane(f);
    return 0;
}

/* -EINVAL if a program has not ended: it waits for a meeting that cannot take place. */
static int check_ends(const struct joint *j)
{
    for (uint32_t i = 0; i < j->n; i++)
        if (j->programs[i].waits)
            return zinf_fail(-EINVAL,
                             "program %s: number %u of %u that run at once waits for others that "
                             "never come to what it exchanges with them",
                             j->programs[i].program->name, i, j->n);
    return 0;
}

int zinf_programs_predict(const struct zinf_program *const programs[],
                          const struct zinf_predict_options *options, uint32_t n,
                          struct zinf_prediction *out)
{
    struct joint j = {.programs = calloc(n, sizeof *j.programs), .n = n};
    int code = j.programs ? 0 : zinf_fail(-ENOMEM, "no memory to predict %u programs", n);
    for (uint32_t i = 0; !code && i < n; i++) {
        j.programs[i].program = programs[i];
        j.programs[i].options = &options[i];
        j.programs[i].out = &out[i];
        code = begin(&j.programs[i]);
    }
    if (!code) {
        run_all(&j);
        code = check_ends(&j);
    }
    for (uint32_t i = 0; j.programs && i < n; i++)
        free(j.programs[i].by_lane);
    free(j.programs);
    return code;
}

int zinf_program_predict(const struct zinf_program *program,
                         const struct zinf_predict_options *options, struct zinf_prediction *out)
{
    return zinf_programs_predict(&program, options, 1, out);
}
