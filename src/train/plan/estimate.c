/*
 * estimate: a plan that nobody takes the memory of, and what its step will take. Rates come from
 * the caller, or from a few steps of the same shape with two blocks.
 */
#include "base/random.h"
#include "offload/trace.h"
#include "train/plan/estimated.h"
#include "train/rules/rules.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MEASURED_LAYERS 2
/* Two that run one operation at a time, the first of which writes its extents for the first time
 * and warms the BLAS up; one that fills the pipeline; and those that correct the rates, after two
 * of which the schedule is chosen for good. */
#define MEASURED_STEPS 8
#define FIRST_ALIKE 5 /* from 0 */

/* Forward is 1, backward 2, or 1 where weights are frozen: what is computed twice to spare memory
 * is not counted. */
static double model_flops(const struct plan *p)
{
    double passes = is_adapted(p->setup) ? 2 : 3;
    return passes * (double)p->setup->n_micro * p->setup->walk.flops;
}

/* Of the stage that makes most products. */
static double matrix_flops(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    uint32_t most = 0;
    for (uint32_t s = 0; s < w->graph->n_stages; s++)
        if (w->stages[s].size[ZINF_PASS_FORWARD].flops >
            w->stages[most].size[ZINF_PASS_FORWARD].flops)
            most = s;
    return 1 / p->rates.seconds[stage_kind(w->stages[most].kind, ZINF_PASS_FORWARD)];
}

static double update_flops(const struct setup *s)
{
    double flops = 0;
    for (uint32_t g = 0; g < s->layout.n_groups; g++)
        flops += s->group_work[g].flops;
    return flops;
}

/* A step's operations, added up piece by piece. */
struct seen {
    const struct plan *p;
    struct zinf_estimate *out;
    struct zinf_prediction step;
    double bytes[ZINF_RATE_KINDS];  /* by kind */
    double packed_away[ZINF_LANES]; /* what packing spares a lane, about */
};

static void see_packed(struct seen *s, const struct zinf_op *op)
{
    if (op->kind == OP_READ || op->kind == OP_WRITE || op->kind == OP_PACKED_IN)
        s->packed_away[op->lane] += (double)op->bytes - plan_work(s->p, op);
}

/* What ranks that share tensors add up in a step, and what ranks hand over that share sequences:
 * what one takes another gives. */
static void see_crossed(struct seen *s, const struct zinf_op *op)
{
    const struct crossed of = plan_crossed(s->p, op);
    s->out->tensor_bytes += of.bytes;
    s->out->tensor_sent_bytes += of.sent;
    s->out->tensor_seconds += plan_crossed_seconds(s->p, op);
    if (op->kind == OP_HAND && op->visit) {
        s->out->context_bytes += (double)op->bytes;
        s->out->context_seconds += op->seconds;
    }
}

/* By whom a step's gradients are added to sums on the device. */
static void see_addition(struct seen *s, const struct zinf_op *op)
{
    const double added = (double)plan_added_numbers(s->p, op);
    if (op->kind != OP_DEVICE_ADD)
        return;
    s->out->sums_by_products += added;
    s->out->sums_by_kernels += (double)(op->bytes / sizeof(float)) - added;
}

static int see_piece(void *context, const struct zinf_program *piece)
{
    struct seen *s = context;
    for (uint32_t k = 0; k < piece->n_ops; k++) {
        const struct zinf_op *op = &piece->ops[k];
        s->bytes[op->kind] += (double)op->bytes;
        see_packed(s, op);
        see_crossed(s, op);
        see_addition(s, op);
    }
    return 0;
}

/* Of a kind of operation, alone on the machine. */
static double seconds_of(const struct seen *s, int kind)
{
    return s->bytes[kind] * s->p->rates.seconds[kind];
}

/* What ranks bring together that share sequences. */
static void add_keys(struct zinf_estimate *out, const struct seen *s)
{
    static const int kinds[] = {OP_GATHER_KEYS, OP_SUM_KEYS, OP_LINK_GATHER_KEYS, OP_LINK_SUM_KEYS};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        out->context_bytes += s->bytes[kinds[i]];
        out->context_seconds += seconds_of(s, kinds[i]);
    }
}

static void add_step(struct zinf_estimate *out, const struct seen *s)
{
    const struct zinf_prediction *step = &s->step;
    out->step_seconds = step->seconds;
    out->drive_seconds = step->drive_seconds;
    out->tensor_ranks = tensor_axis(s->p->setup)->world;
    out->context_ranks = context_axis(s->p->setup)->world;
    out->pull_seconds = seconds_of(s, OP_PULL);
    out->link_seconds = seconds_of(s, OP_LINK_GATHER);
    add_keys(out, s);
    out->bottleneck = ZINF_LANE_DEVICE;
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        out->lane_seconds[lane] = step->busy_seconds[lane];
        out->lane_bytes_most[lane] = step->bytes[lane];
        out->lane_bytes[lane] = step->bytes[lane] - (uint64_t)s->packed_away[lane];
        if (step->busy_seconds[lane] > step->busy_seconds[out->bottleneck])
            out->bottleneck = lane;
    }
}

/* What run_speculating (step/step.c) does of a step that clips, and run_waiting where many do. */
static int add_clipped(struct zinf_estimate *out, const struct plan *p)
{
    const struct zinf_program *again[] = {&p->gradients, &p->drain};
    struct zinf_prediction sum;
    if (p->schedule != SCHEDULE_UPDATE_IN_BACKWARD || !(p->setup->config->gradient_clipping > 0))
        return 0;
    const int code = plan_predict(p, again, 2, &sum);
    out->clipped_seconds = out->step_seconds + sum.seconds;
    out->all_clipped_seconds = fmax(p->predicted_rest, out->step_seconds);
    return code;
}

static int fill(struct zinf_estimate *out, const struct plan *p)
{
    const struct zinf_program *programs[2];
    struct seen seen = {.p = p, .out = out};
    const int n = plan_step_programs(p, programs);
    int code = plan_predict(p, programs, n, &seen.step);
    *out = (struct zinf_estimate){
        .params = (uint64_t)zinf_model_n_params(p->setup->model),
        .tokens = setup_step_rows(p->setup) * setup_sharers(p->setup),
        .pinned = p->host_bytes - p->at.h_transfer,
        .ram_is_shared = p->setup->device->kind == ZINF_DEVICE_HOST,
        .model_flops = model_flops(p),
        .matrix_flops = matrix_flops(p),
        .packs = p->variant.packs > PACK_OFF,
        .update_flops = update_flops(p->setup),
    };
    for (int i = 0; !code && i < n; i++)
        code = plan_look_at(p, programs[i], see_piece, &seen);
    if (code)
        return code;
    add_step(out, &seen);
    for (int tier = 0; tier < ZINF_MEMORY_TIERS; tier++) {
        out->bytes[tier] = zinf_ledger_total_bytes(p->ledger, (enum zinf_memory_tier)tier);
        out->budget[tier] = p->setup->budget[tier];
    }
    out->host_limit = p->setup->fills ? p->setup->fill_bytes : out->budget[ZINF_MEMORY_HOST];
    snprintf(out->schedule, sizeof out->schedule, "%s", schedule_name(p->schedule));
    snprintf(out->device, sizeof out->device, "%s", p->setup->device->name);
    return add_clipped(out, p);
}

/* Of what an operation waits for, what ends last. */
static uint32_t last_wait(const struct zinf_program *program, uint32_t number, const double *begin,
                          const double *seconds)
{
    const struct zinf_op *op = &program->ops[number];
    uint32_t last = ZINF_TRACE_NO_CAUSE;
    for (uint32_t i = 0; i < op->n_waits; i++) {
        uint32_t other = program->waits[op->first_wait + i];
        if (last == ZINF_TRACE_NO_CAUSE ||
            begin[other] + seconds[other] > begin[last] + seconds[last])
            last = other;
    }
    return last;
}

/* A step that is predicted, on its way into a trace. */
struct traced {
    struct zinf_trace *trace;
    const struct plan *plan;
    const struct estimated_step *ranks; /* [n_ranks]: the first of them is traced */
    uint32_t n_ranks;
    int part;      /* the program's number */
    uint64_t from; /* when what comes next begins, in ns */
};

static void trace_ops(const struct traced *t, const struct zinf_program *program,
                      const double *begin, const double *seconds)
{
    char buffer[64];
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const struct zinf_op *op = &program->ops[i];
        struct zinf_trace_op record = {
            .name = plan_op_name(t->plan->setup, op, buffer),
            .lane = op->lane,
            .micro = op->micro,
            .number = i,
            .cause = last_wait(program, i, begin, seconds),
            .begin_ns = t->from + (uint64_t)(begin[i] * 1e9),
            .end_ns = t->from + (uint64_t)((begin[i] + seconds[i]) * 1e9),
            .bytes = op->bytes,
        };
        zinf_trace_op(t->trace, &record);
    }
}

/* A program of the step, or a piece of it: only programs that are whole wait for other ranks. */
static int trace_piece(void *context, const struct zinf_program *program)
{
    struct traced *t = context;
    const bool piece = t->ranks[0].programs[t->part].pieces;
    const struct zinf_machine machine = plan_machine(t->plan);
    struct zinf_prediction *step = calloc(t->n_ranks, sizeof *step);
    uint64_t n = program->n_ops;
    double *begin = calloc(2 * n + 1, sizeof *begin), *seconds = begin + n, most = 0;
    const struct zinf_predict_options options = {
        .machine = &machine, .op_begin = begin, .op_seconds = seconds};
    int code = begin && step ? 0 : zinf_fail(-ENOMEM, "no memory for the trace");
    if (!code)
        code = piece ? zinf_program_predict(program, &options, step)
                     : estimated_predict_part(t->ranks, t->n_ranks, t->part, begin, seconds, step);
    for (uint32_t r = 0; !code && r < t->n_ranks; r++)
        most = step[r].seconds > most ? step[r].seconds : most;
    if (!code) {
        const uint64_t end = t->from + (uint64_t)(most * 1e9);
        trace_ops(t, program, begin, seconds);
        zinf_trace_program(t->trace, program->name, t->from, end);
        t->from = end;
    }
    free(begin);
    free(step);
    return code;
}

/* The step that is predicted, as the executor would write the one that was run. */
static int write_trace(const struct estimated *first, const struct estimated_step ranks[],
                       uint32_t n_ranks, const char *path)
{
    struct traced t = {.plan = &first->plan, .ranks = ranks, .n_ranks = n_ranks};
    int code = zinf_trace_create(&t.trace, path);
    for (; !code && t.part < ranks[0].n; t.part++)
        code = plan_each_piece(t.plan, &ranks[0].programs[t.part], trace_piece, &t);
    if (!code)
        zinf_trace_mark(t.trace, "step, as predicted", 0, t.from);
    int closed = zinf_trace_close(t.trace);
    return code ? code : closed;
}

/* The number of a described rank among all: those with the same stages are behind each other. */
static uint32_t rank_of(const struct setup *s)
{
    const struct zinf_axis *pipe = pipe_axis(s);
    return zinf_net_place(s->mesh.all).world / pipe->world * pipe->rank;
}

/* What ranks agree on, as those of a training do (step/agree.h). schedule: AUTO until all have one.
 */
struct agreed {
    bool durable;
    enum schedule schedule;
};

/* Of a rank by itself. Opens *e, which is to be closed after a failure, too. */
static int estimate_one(struct zinf_estimate *out, const struct zinf_estimate_options *options,
                        const struct agreed *agreed, struct estimated *e)
{
    _Static_assert(sizeof e->variant <= sizeof out->found, "a variant has room");
    int code = estimated_open(e, options, agreed->durable);
    if (!code && agreed->schedule != SCHEDULE_AUTO)
        code = estimated_lower(e, agreed->schedule);
    if (!code)
        plan_say_schedule(&e->plan, e->setup.mesh.all ? rank_of(&e->setup) : 0);
    if (!code && options->plan)
        plan_print(&e->plan, options->plan);
    if (!code)
        code = fill(out, &e->plan);
    if (!code) {
        plan_speeds_of(&e->plan, &options->speeds, &out->speeds);
        memcpy(out->found, &e->variant, sizeof e->variant);
    }
    return code;
}

/* ---- ranks in a pipeline ---- */

/* The ranks with the same stages need the same memory, since they agree on sizes; `first` is the
 * number of the first of `each`. one_process: all ranks are seats of it. */
static void add_planned(struct zinf_planned *all, uint32_t first, uint32_t each, bool one_process,
                        const uint64_t bytes[3])
{
    plan_add_rank(all, first, bytes);
    for (int tier = 0; one_process && tier < ZINF_MEMORY_TIERS; tier++)
        all->process[tier] += each * bytes[tier];
}

/* One more rank: what is said is of the one that takes longest by itself, memory the most of any.
 */
static void add_rank(struct zinf_estimate *out, const struct zinf_estimate *rank)
{
    const double flops = out->model_flops + rank->model_flops;
    const struct zinf_planned planned = out->planned;
    const bool more = rank->bytes[ZINF_MEMORY_HOST] == planned.most[ZINF_MEMORY_HOST] &&
                      rank->bytes[ZINF_MEMORY_HOST] > planned.least[ZINF_MEMORY_HOST];
    const uint64_t pinned = more ? rank->pinned : out->pinned;
    if (rank->step_seconds > out->step_seconds)
        *out = *rank;
    out->planned = planned;
    memcpy(out->bytes, planned.most, sizeof out->bytes);
    out->pinned = pinned;
    out->model_flops = flops;
}

static void note_rank(struct zinf_pipe_rank *out, const struct estimated *e,
                      const struct zinf_estimate *alone)
{
    *out = (struct zinf_pipe_rank){.layers = e->setup.own_layers,
                                   .alone_seconds = alone->step_seconds,
                                   .bottleneck = alone->bottleneck};
    memcpy(out->lane_seconds, alone->lane_seconds, sizeof out->lane_seconds);
    memcpy(out->bytes, alone->bytes, sizeof out->bytes);
}

/* A step is as long as all ranks take that wait for each other; what one waits is what it takes
 * longer than by itself. */
static int add_bubbles(struct zinf_estimate *out, struct zinf_pipe_rank *pipe,
                       const struct estimated_step ranks[], uint32_t n)
{
    double step;
    const int code = estimated_predict(ranks, n, &step);
    if (code)
        return code;
    out->pipe_ranks = n;
    out->model_flops /= n;
    out->bubble_seconds = fmax(step - out->step_seconds, 0);
    /* gradients that are made again wait for other ranks as those of any step do */
    out->clipped_seconds *= step / out->step_seconds;
    out->all_clipped_seconds *= step / out->step_seconds;
    out->step_seconds = step;
    for (uint32_t r = 0; pipe && r < n; r++)
        pipe[r].bubble_seconds = fmax(step - pipe[r].alone_seconds, 0);
    return 0;
}

/* Plans of one rank after the other, of which only the steps are kept. They choose as `like`. */
static int plan_others(struct zinf_estimate *out, const struct zinf_estimate_options *options,
                       const struct zinf_estimate *like, const struct agreed *agreed,
                       struct estimated_step *steps, uint32_t n)
{
    const uint32_t each = options->ranks / n;
    int code = 0;
    for (uint32_t r = 1; !code && r < n; r++) {
        struct zinf_estimate_options of_rank = *options;
        struct zinf_estimate rank;
        struct estimated e;
        of_rank.trainer.pipe_rank = r;
        of_rank.like = like;
        if (options->plan)
            fprintf(options->plan, "plan: the lines below are those of rank %u of the pipeline\n",
                    r);
        code = estimate_one(&rank, &of_rank, agreed, &e);
        if (!code) {
            estimated_take_step(&e, &steps[r]);
            add_planned(&out->planned, r * each, each, options->seats == options->ranks,
                        rank.bytes);
            add_rank(out, &rank);
        }
        if (!code && options->pipe)
            note_rank(&options->pipe[r], &e, &rank);
        estimated_close(&e);
    }
    return code;
}

/* The ranks of a pipeline, of which the first stays open. */
struct piped {
    struct estimated first;
    struct estimated_step *steps; /* [n]; of the first its n is 0 until that fits */
    uint32_t n;
};

static void end_ranks(struct piped *p)
{
    for (uint32_t r = 1; r < p->n; r++)
        estimated_end_step(&p->steps[r]);
    memset(p->steps, 0, p->n * sizeof *p->steps);
    estimated_close(&p->first);
}

/* Rank 0 chooses for all. */
static int plan_ranks(struct zinf_estimate *out, const struct zinf_estimate_options *options,
                      const struct agreed *agreed, struct piped *p)
{
    int code = estimate_one(out, options, agreed, &p->first);
    if (code)
        return code;
    const struct zinf_estimate own = *out;
    estimated_see_step(&p->first, &p->steps[0]);
    if (options->pipe)
        note_rank(&options->pipe[0], &p->first, out);
    add_planned(&out->planned, 0, options->ranks > 1 ? options->ranks / p->n : 1,
                options->ranks < 2 || options->seats == options->ranks, out->bytes);
    return plan_others(out, options, &own, agreed, p->steps, p->n);
}

/* Steps of a pipeline outlive the process if those of all ranks do. One that has room for state in
 * RAM gives that up for all, and others then have one generation less on their drives. */
static int agree_lasting(const struct zinf_estimate_options *options, uint32_t n, bool *durable)
{
    int code = 0;
    *durable = true;
    for (uint32_t r = 0; n > 1 && !code && *durable && r < n; r++) {
        struct zinf_estimate_options of_rank = *options;
        struct estimated e;
        of_rank.trainer.pipe_rank = r;
        code = estimated_begin(&e, &of_rank);
        *durable = e.setup.durable;
        estimated_close(&e);
    }
    return code;
}

/* Where one has no room for what rank 0 has found, all take the usual choice; and all take the
 * lowest schedule of any. */
static int agree_ranks(struct zinf_estimate *out, const struct zinf_estimate_options *options,
                       struct piped *p)
{
    struct zinf_estimate_options again = *options;
    struct zinf_estimate like = {0};
    struct agreed agreed = {.schedule = SCHEDULE_AUTO};
    enum schedule least = SCHEDULES, most = SCHEDULE_AUTO;
    int code = agree_lasting(options, p->n, &agreed.durable);
    if (!code)
        code = plan_ranks(out, options, &agreed, p);
    if (code == -ENOMEM && p->n > 1 && p->steps[0].n && !options->like) {
        const struct variant usual = plan_usual(&p->first.setup);
        memcpy(like.found, &usual, sizeof usual);
        again.like = &like;
        end_ranks(p);
        code = plan_ranks(out, &again, &agreed, p);
    }
    for (uint32_t r = 0; r < p->n; r++) {
        least = p->steps[r].schedule < least ? p->steps[r].schedule : least;
        most = p->steps[r].schedule > most ? p->steps[r].schedule : most;
    }
    if (code || least == most)
        return code;
    like = *out;
    memcpy(like.found, &p->first.variant, sizeof p->first.variant);
    again.like = &like;
    again.plan = NULL; /* is printed */
    end_ranks(p);
    agreed.schedule = least;
    return plan_ranks(out, &again, &agreed, p);
}

int zinf_estimate(struct zinf_estimate *out, const struct zinf_estimate_options *options)
{
    const struct zinf_config *config = options->trainer.config;
    struct piped p = {.n = options->ranks > 1 ? (uint32_t)config->mesh[ZINF_PIPE] : 1};
    p.steps = calloc(p.n, sizeof *p.steps);
    if (!p.steps)
        return zinf_fail(-ENOMEM, "no memory for %u ranks", p.n);
    int code = agree_ranks(out, options, &p);
    if (!code && p.n > 1)
        code = add_bubbles(out, options->pipe, p.steps, p.n);
    if (!code && options->trace)
        code = write_trace(&p.first, p.steps, p.n, options->trace);
    end_ranks(&p);
    free(p.steps);
    return code;
}

/* The next step is again one that runs one operation at a time. */
static int begin_anew(struct zinf_trainer *t)
{
    int code = trainer_settle(t);
    t->planned = false;
    t->plan.schedule = plan_first_schedule(&t->setup);
    return code ? code : plan_first_programs(&t->plan);
}

/* *apart: the slowest over the fastest of the steps that are all alike. */
static int run_steps(struct zinf_trainer *t, double *apart)
{
    uint64_t n = setup_step_rows(&t->setup);
    struct zinf_step_result result;
    double least = 0, most = 0;
    int32_t *ids = malloc(2 * n * sizeof *ids);
    struct zinf_batch batch = {.inputs = {[ZINF_INPUT_IDS] = ids, [ZINF_INPUT_TARGETS] = ids + n}};
    int code = ids ? 0 : zinf_fail(-ENOMEM, "no memory for %llu tokens", (unsigned long long)n);
    for (int step = 0; !code && step < MEASURED_STEPS; step++) {
        for (uint64_t i = 0; i < 2 * n; i++) {
            uint32_t counter[4] = {(uint32_t)i, (uint32_t)step}, bits[4];
            zinf_philox(counter, t->setup.options.seed, bits);
            ids[i] = (int32_t)(bits[0] % (uint64_t)t->setup.graph->vocab);
        }
        if (step == 1)
            code = begin_anew(t);
        if (!code)
            code = zinf_trainer_step(t, &batch, &result);
        if (code || step < FIRST_ALIKE)
            continue;
        least = least > 0 && least < result.seconds ? least : result.seconds;
        most = most > result.seconds ? most : result.seconds;
    }
    *apart = least > 0 ? most / least : 0;
    free(ids);
    return code;
}

int zinf_rates_measure(struct zinf_rates *out, const struct zinf_trainer_options *options)
{
    struct zinf_trainer_options two = *options;
    two.net = NULL;
    struct zinf_config config = *options->config;
    struct zinf_trainer *t;
    config.placement = (char *)"exact"; /* so that every tier that is named is used */
    config.host_memory = 0;
    config.gradient_clipping = 0; /* no step is redone */
    config.trace = NULL;
    config.pipeline_ranges = 1; /* two blocks of one rank */
    config.pipeline_range_layers = 0;
    two.config = &config;
    two.mode = ZINF_TRAINER_TRAIN;
    two.init = true;
    two.n_layers = MEASURED_LAYERS;
    int code = zinf_trainer_create(&t, &two);
    if (code)
        return zinf_fail_in(code, "--measure");
    code = run_steps(t, &t->plan.rates.steps_apart);
    *out = t->plan.rates;
    zinf_trainer_destroy(t);
    return code ? zinf_fail_in(code, "--measure") : 0;
}

bool zinf_updates_matrices(const struct zinf_config *config)
{
    const struct update_rule *rule = rule_find(config->optimizer.type, config->bf16_moments);
    return rule && rule->grain == GRAIN_MATRICES;
}
