/*
 * host_preference: the loss of pairs of sequences, from what each token's loss is. A pair is a few
 * thousand numbers: sums are in double, in order.
 */
#include "kernels/host.h"

#include <math.h>

/* One sequence of a pair. */
struct side {
    struct zinf_preference_sums of;
    double gain;  /* with the reference's sum; where the kind asks for it, the mean */
    double slope; /* of the loss by gain */
    double every; /* of ORPO: the slope by each target's loss */
};

static bool is_mean(const struct zinf_preference *a)
{
    return a->kind != ZINF_PREFERENCE_DPO && a->kind != ZINF_PREFERENCE_REWARD &&
           a->kind != ZINF_PREFERENCE_KTO;
}

void zinf_preference_add(struct zinf_preference_sums *s, const int32_t *targets,
                         const float *losses, const float *reference, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (targets[i] < 0)
            continue;
        s->all += (double)losses[i];
        s->targets++;
        if (i < first)
            continue;
        s->gain += (reference ? (double)reference[i] : 0.0) - (double)losses[i];
        s->count++;
    }
}

/* Tokens of a sequence that do not count, whatever their targets. */
static int64_t tokens_before(const struct zinf_preference *a, int64_t pair, int side)
{
    return a->kind == ZINF_PREFERENCE_ORPO && !side ? a->labels[2 * pair] : 0;
}

/* side: 0 or 1 of the pair. */
static struct side close_side(const struct zinf_preference *a, int64_t pair, int side,
                              const struct zinf_preference_sums *of)
{
    struct side s = {.of = *of, .gain = of->gain};
    if (a->sums)
        s.gain += (double)a->sums[2 * pair + side];
    if (is_mean(a) && of->count > 0)
        s.gain /= of->count;
    return s;
}

static struct side sum_side(const struct zinf_preference *a, int64_t pair, int side)
{
    const int64_t first = (2 * pair + side) * a->seq;
    struct zinf_preference_sums of = {0};
    if (a->kind == ZINF_PREFERENCE_REWARD)
        of = (struct zinf_preference_sums){.gain = (double)a->losses[first], .count = 1};
    else
        zinf_preference_add(&of, a->targets + first, a->losses + first,
                            a->reference ? a->reference + first : NULL,
                            tokens_before(a, pair, side), a->seq);
    return close_side(a, pair, side, &of);
}

/* log(1 + exp(-x)) and its slope */
static double soft(double x, double *slope)
{
    *slope = -1.0 / (1.0 + exp(x));
    return (x < 0 ? -x : 0.0) + log1p(exp(-fabs(x)));
}

/* The loss of x, which is beta times the difference of the gains minus the margin, with label
 * smoothing. */
static double smoothed(const struct zinf_preference *a, double x, double *slope)
{
    const double e = (double)a->smoothing;
    double right, wrong, loss = (1 - e) * soft(x, &right) + e * soft(-x, &wrong);
    *slope = (1 - e) * right - e * wrong;
    return loss;
}

/* 1 - exp(a), the probability of everything else; at least 1e-7. */
static double rest_of(double a)
{
    return fmax(-expm1(a), 1e-7);
}

/* The loss of a pair's scores. */
static double reward_loss(const struct zinf_preference *a, int64_t pair, struct side *c,
                          struct side *r)
{
    const double given = (double)a->margins[2 * pair + 1], center = (double)a->center;
    const double sum = c->gain + r->gain;
    double slope, loss = soft(c->gain - r->gain + (given < 0 ? given : 0), &slope);
    c->slope = slope + 2 * center * sum;
    r->slope = -slope + 2 * center * sum;
    return loss + center * sum * sum;
}

/* KTO's loss of sequence c. r->gain is z, and r gets no slope. */
static double single_loss(const struct zinf_preference *a, int64_t pair, struct side *c,
                          struct side *r)
{
    const bool desirable = a->labels[2 * pair] > 0;
    const double weight = (double)(desirable ? a->desirable : a->undesirable);
    const double sign = desirable ? 1 : -1;
    const double lost = 1 / (1 + exp(sign * (double)a->beta * (c->gain - r->gain)));
    c->slope = -sign * weight * (double)a->beta * lost * (1 - lost);
    r->slope = 0;
    return weight * lost;
}

/* Returns the pair's loss and sets the slopes of both sides. common: z for KTO, share_of_target()
 * for ORPO. */
static double pair_loss(const struct zinf_preference *a, int64_t pair, double common,
                        struct side *c, struct side *r)
{
    const double beta = (double)a->beta, away = c->gain - r->gain - 0.5 / beta;
    double loss, slope;
    if (a->kind == ZINF_PREFERENCE_REWARD)
        return reward_loss(a, pair, c, r);
    if (a->kind == ZINF_PREFERENCE_KTO)
        return single_loss(a, pair, c, r);
    if (a->kind == ZINF_PREFERENCE_IPO) {
        c->slope = 2 * away;
        r->slope = -2 * away;
        return away * away;
    }
    if (a->kind == ZINF_PREFERENCE_ORPO) {
        const double rest_c = rest_of(c->gain), rest_r = rest_of(r->gain);
        loss = beta * soft(c->gain - log(rest_c) - r->gain + log(rest_r), &slope);
        c->slope = beta * slope / rest_c;
        c->every = common;
        r->slope = -beta * slope / rest_r;
        return loss + common * c->of.all;
    }
    const double margin = a->kind == ZINF_PREFERENCE_SIMPO ? (double)a->margin : 0;
    loss = smoothed(a, beta * (c->gain - r->gain) - margin, &slope);
    c->slope = beta * slope;
    r->slope = -beta * slope;
    return loss;
}

static struct zinf_preference_slopes slopes_of(const struct zinf_preference *a,
                                               const struct side *s)
{
    /* a loss is -log p, a score is itself */
    const double sign = a->kind == ZINF_PREFERENCE_REWARD ? 1 : -1;
    const double count = is_mean(a) && s->of.count > 0 ? s->of.count : 1;
    return (struct zinf_preference_slopes){
        .counted = (float)((double)a->scale * (sign * s->slope / count + s->every)),
        .before = (float)((double)a->scale * s->every)};
}

void zinf_preference_spread(const struct zinf_preference_slopes *slopes, const int32_t *targets,
                            int64_t first, int64_t n, float *d_losses)
{
    for (int64_t i = 0; i < n; i++)
        d_losses[i] = targets[i] < 0 ? 0.0f : i < first ? slopes->before : slopes->counted;
}

static void spread(const struct zinf_preference *a, int64_t pair, int side, const struct side *s)
{
    const int64_t first = (2 * pair + side) * a->seq;
    const struct zinf_preference_slopes slopes = slopes_of(a, s);
    if (a->kind == ZINF_PREFERENCE_REWARD)
        a->d_losses[first] = slopes.counted;
    else
        zinf_preference_spread(&slopes, a->targets + first, tokens_before(a, pair, side), a->seq,
                               a->d_losses + first);
}

/* What all pairs have in common: of KTO how far the model is from the reference, by answers to
 * other prompts, as an estimate of their KL divergence; of ORPO pairs a target of theirs, so that
 * the mean over pairs is one over targets. */
struct common {
    double sum, pairs;
};

static void add_common(struct common *m, const struct zinf_preference *a, int64_t pair,
                       const struct side *c, const struct side *r)
{
    if (a->labels[2 * pair] < 0)
        return;
    m->sum += a->kind == ZINF_PREFERENCE_KTO ? r->gain : c->of.targets;
    m->pairs++;
}

static double common_of(const struct zinf_preference *a, const struct common *m)
{
    if (!zinf_preference_has_common(a->kind) || !(m->sum > 0))
        return 0;
    return a->kind == ZINF_PREFERENCE_KTO ? m->sum / m->pairs : m->pairs / m->sum;
}

/* Both sides get their slopes. */
static void do_pair(const struct zinf_preference *a, int64_t pair, double common, struct side *c,
                    struct side *r)
{
    const bool ignored = a->labels[2 * pair] < 0;
    if (a->kind == ZINF_PREFERENCE_KTO)
        r->gain = common;
    const double loss = pair_loss(a, pair, common, c, r);
    if (ignored)
        c->slope = r->slope = c->every = 0;
    if (a->loss) {
        a->loss[2 * pair] = ignored ? 0.0f : (float)loss;
        a->loss[2 * pair + 1] = 0.0f;
        a->rewards[2 * pair] = ignored ? 0.0f : (float)((double)a->beta * c->gain);
        a->rewards[2 * pair + 1] = ignored ? 0.0f : (float)((double)a->beta * r->gain);
    }
}

void zinf_preference_of_sums(const struct zinf_preference *a,
                             const struct zinf_preference_sums *sums,
                             struct zinf_preference_slopes *slopes)
{
    struct common common = {0};
    for (int64_t pair = 0; pair < a->pairs; pair++) {
        const struct side c = close_side(a, pair, 0, &sums[2 * pair]);
        const struct side r = close_side(a, pair, 1, &sums[2 * pair + 1]);
        add_common(&common, a, pair, &c, &r);
    }
    for (int64_t pair = 0; pair < a->pairs; pair++) {
        struct side c = close_side(a, pair, 0, &sums[2 * pair]);
        struct side r = close_side(a, pair, 1, &sums[2 * pair + 1]);
        do_pair(a, pair, common_of(a, &common), &c, &r);
        slopes[2 * pair] = slopes_of(a, &c);
        slopes[2 * pair + 1] = slopes_of(a, &r);
    }
}

int host_preference(struct zinf_queue *q, const struct zinf_preference *args)
{
    int code = check_preference(args);
    struct common common = {0};
    (void)q;
    for (int64_t pair = 0; !code && zinf_preference_has_common(args->kind) && pair < args->pairs;
         pair++) {
        const struct side c = sum_side(args, pair, 0), r = sum_side(args, pair, 1);
        add_common(&common, args, pair, &c, &r);
    }
    for (int64_t pair = 0; !code && pair < args->pairs; pair++) {
        struct side c = sum_side(args, pair, 0), r = sum_side(args, pair, 1);
        do_pair(args, pair, common_of(args, &common), &c, &r);
        if (args->d_losses) {
            spread(args, pair, 0, &c);
            spread(args, pair, 1, &r);
        }
    }
    return code;
}
