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
    const struct zinf_predict_options *plain; /* as plan_predict; NULL: that is known */
    struct zinf_prediction *plain_sum;
};

static int predict_into(const struct zinf_program *piece,
                        const struct zinf_predict_options *options, struct zinf_prediction *sum)
{
    struct zinf_prediction one;
    const int code = zinf_program_predict(piece, options, &one);
    if (!code)
        prediction_add(sum, &one);
    return code;
}

static int predict_piece(void *context, const struct zinf_program *piece)
{
    const struct predicted *of = context;
    int code = of->plain ? predict_into(piece, of->plain, of->plain_sum) : 0;
    for (uint32_t i = 0; !code && i < of->n; i++)
        code = predict_into(piece, &of->options[i], &of->sums[i]);
    return code;
}

int plan_predict_by(const struct plan *p, const struct zinf_program *program,
                    const struct zinf_predict_options *options, uint32_t n,
                    struct zinf_prediction *sums)
{
    struct predicted of = {.options = options, .sums = sums, .n = n};
    return plan_each_piece(p, program, predict_piece, &of);
}

/* What was predicted of a program in pieces by the same seconds is known. */
int plan_predict_also(const struct plan *p, const struct zinf_program *program,
                      struct zinf_prediction *sum, const struct zinf_predict_options *options,
                      uint32_t n, struct zinf_prediction *sums)
{
    const struct zinf_machine machine = plan_machine(p);
    const struct zinf_predict_options plain = {.machine = &machine};
    struct zinf_pieces *pieces = program->pieces;
    const bool known = pieces && pieces->predicted;
    struct zinf_prediction one = {0};
    struct predicted of = {options, sums, n, known ? NULL : &plain, &one};
    if (known)
        one = pieces->prediction;
    const int code = known && !n ? 0 : plan_each_piece(p, program, predict_piece, &of);
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
        code = plan_predict_also(p, programs[i], sum, NULL, 0, NULL);
    return code;
}
