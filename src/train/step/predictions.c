/*
 * predictions: what programs take, whole or in pieces. A program in pieces is made anew for a look
 * at it, so whoever wants several things of one asks for them together.
 */
#include "train/step/step.h"

struct look {
    const struct plan *plan;
    int (*see)(void *context, const struct zinf_program *piece);
    void *context;
};

static int take(void *context, struct zinf_program *piece)
{
    const struct look *l = context;
    plan_cost_again(l->plan, piece); /* by the present rates, whatever it was put in order by */
    return l->see(l->context, piece);
}

static int each_piece(const struct plan *p, const struct zinf_program *program, bool looks,
                      int (*see)(void *context, const struct zinf_program *piece), void *context)
{
    if (!program->pieces)
        return see(context, program);
    struct look look = {p, see, context};
    const struct zinf_taker taker = {.take = take, .context = &look, .looks = looks};
    return program_pieces(p, program, &taker);
}

int plan_each_piece(const struct plan *p, const struct zinf_program *program,
                    int (*see)(void *context, const struct zinf_program *piece), void *context)
{
    return each_piece(p, program, false, see, context);
}

int plan_look_at(const struct plan *p, const struct zinf_program *program,
                 int (*see)(void *context, const struct zinf_program *piece), void *context)
{
    return each_piece(p, program, true, see, context);
}

void prediction_add(struct zinf_prediction *sum, const struct zinf_prediction *one)
{
    sum->seconds += one->seconds;
    sum->cpu_seconds += one->cpu_seconds;
    sum->drive_seconds += one->drive_seconds;
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        sum->busy_seconds[lane] += one->busy_seconds[lane];
        sum->work_seconds[lane] += one->work_seconds[lane];
        sum->bytes[lane] += one->bytes[lane];
    }
}

struct predicted {
    const struct zinf_predict_options *options;
    struct zinf_prediction *sums;
    uint32_t n;
};

static int predict_piece(void *context, const struct zinf_program *piece)
{
    const struct predicted *of = context;
    int code = 0;
    for (uint32_t i = 0; !code && i < of->n; i++) {
        struct zinf_prediction one;
        code = zinf_program_predict(piece, &of->options[i], &one);
        if (!code)
            prediction_add(&of->sums[i], &one);
    }
    return code;
}

int plan_predict_by(const struct plan *p, const struct zinf_program *program,
                    const struct zinf_predict_options *options, uint32_t n,
                    struct zinf_prediction *sums)
{
    struct predicted of = {options, sums, n};
    return plan_each_piece(p, program, predict_piece, &of);
}

/* What was predicted of a program in pieces by the same seconds is known. */
static int predict_one(const struct plan *p, const struct zinf_program *program,
                       struct zinf_prediction *sum)
{
    const struct zinf_machine machine = plan_machine(p);
    const struct zinf_predict_options options = {.machine = &machine};
    struct zinf_pieces *pieces = program->pieces;
    struct zinf_prediction one = {0};
    int code = 0;
    if (pieces && pieces->predicted)
        one = pieces->prediction;
    else
        code = plan_predict_by(p, program, &options, 1, &one);
    if (pieces && !code) {
        pieces->predicted = true;
        pieces->prediction = one;
    }
    if (!code)
        prediction_add(sum, &one);
    return code;
}

int plan_predict(const struct plan *p, const struct zinf_program *const *programs, int n,
                 struct zinf_prediction *sum)
{
    int code = 0;
    *sum = (struct zinf_prediction){0};
    for (int i = 0; !code && i < n; i++)
        code = predict_one(p, programs[i], sum);
    return code;
}
