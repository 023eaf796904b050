/*
 * host_preference: the loss of pairs of sequences, from what each token's loss is. A pair is a few
 * thousand numbers: sums are in double, in order.
 */
#include "kernels/host.h"

#include <math.h>

/* One sequence of a pair. */
struct side {
    const int32_t *targets; /* NULL: the sequence has a score in place of tokens */
    int64_t first;          /* the first token that counts */
    double gain;            /* sum of log p minus the reference's; for some kinds their mean */
    double count;           /* number of tokens that count */
    double slope;           /* of the loss by gain */
    /* ORPO: the sum of -log p over all targets, and the loss's slope by each of these. */
    double all, every;
};

static bool is_mean(const struct zinf_preference *a)
{
    return a->kind != ZINF_PREFERENCE_DPO && a->kind != ZINF_PREFERENCE_REWARD &&
           a->kind != ZINF_PREFERENCE_KTO;
}

/* side: 0 for the first sequence of the pair, 1 for the second. */
static void sum_side(struct side *s, const struct zinf_preference *a, int64_t pair, int side)
{
    const int64_t first = (2 * pair + side) * a->seq;
    const bool orpo = a->kind == ZINF_PREFERENCE_ORPO && !side;
    if (a->kind == ZINF_PREFERENCE_REWARD) {
        *s = (struct side){.gain = (double)a->losses[first], .count = 1};
        return;
    }
    *s = (struct side){.targets = a->targets + first, .first = orpo ? a->labels[2 * pair] : 0};
    for (int64_t i = 0; i < a->seq; i++) {
        if (s->targets[i] < 0)
            continue;
        s->all += (double)a->losses[first + i];
        if (i < s->first)
            continue;
        s->gain +=
            (a->reference ? (double)a->reference[first + i] : 0.0) - (double)a->losses[first + i];
        s->count++;
    }
    if (a->sums)
        s->gain += (double)a->sums[2 * pair + side];
    if (is_mean(a) && s->count > 0)
        s->gain /= s->count;
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
        return loss + common * c->all;
    }
    const double margin = a->kind == ZINF_PREFERENCE_SIMPO ? (double)a->margin : 0;
    loss = smoothed(a, beta * (c->gain - r->gain) - margin, &slope);
    c->slope = beta * slope;
    r->slope = -beta * slope;
    return loss;
}

static void spread(const struct zinf_preference *a, const struct side *s, int64_t first)
{
    const double sign = s->targets ? -1 : 1; /* a token's loss is -log p */
    const double count = is_mean(a) && s->count > 0 ? s->count : 1;
    const float every = (float)((double)a->scale * s->every);
    const float slope = (float)((double)a->scale * (sign * s->slope / count + s->every));
    for (int64_t i = 0; i < a->seq; i++)
        a->d_losses[first + i] = s->targets && s->targets[i] < 0 ? 0.0f
                                 : i < s->first                  ? every
                                                                 : slope;
}

/* KTO's z: an estimate of the KL divergence between the model and the reference, from answers to
 * other prompts. */
static double divergence(const struct zinf_preference *a)
{
    double sum = 0, n = 0;
    for (int64_t pair = 0; pair < a->pairs; pair++) {
        struct side s;
        if (a->labels[2 * pair] < 0)
            continue;
        sum_side(&s, a, pair, 1);
        sum += s.gain;
        n++;
    }
    return n > 0 && sum > 0 ? sum / n : 0;
}

/* ORPO: pairs divided by targets, so that the mean over pairs becomes one over targets. */
static double share_of_target(const struct zinf_preference *a)
{
    double pairs = 0, targets = 0;
    for (int64_t pair = 0; pair < a->pairs; pair++) {
        if (a->labels[2 * pair] < 0)
            continue;
        for (int64_t i = 0; i < a->seq; i++)
            targets += a->targets[2 * pair * a->seq + i] >= 0;
        pairs++;
    }
    return targets > 0 ? pairs / targets : 0;
}

/* common: as for pair_loss. */
static void do_pair(const struct zinf_preference *a, int64_t pair, double common)
{
    const int64_t first = 2 * pair * a->seq;
    const bool ignored = a->labels[2 * pair] < 0;
    struct side c, r;
    sum_side(&c, a, pair, 0);
    sum_side(&r, a, pair, 1);
    if (a->kind == ZINF_PREFERENCE_KTO)
        r.gain = common;
    const double loss = pair_loss(a, pair, common, &c, &r);
    if (ignored)
        c.slope = r.slope = c.every = 0;
    if (a->loss) {
        a->loss[2 * pair] = ignored ? 0.0f : (float)loss;
        a->loss[2 * pair + 1] = 0.0f;
        a->rewards[2 * pair] = ignored ? 0.0f : (float)((double)a->beta * c.gain);
        a->rewards[2 * pair + 1] = ignored ? 0.0f : (float)((double)a->beta * r.gain);
    }
    if (a->d_losses) {
        spread(a, &c, first);
        spread(a, &r, first + a->seq);
    }
}

int host_preference(struct zinf_queue *q, const struct zinf_preference *args)
{
    int code = check_preference(args);
    (void)q;
    double common = 0;
    if (!code && args->kind == ZINF_PREFERENCE_KTO)
        common = divergence(args);
    if (!code && args->kind == ZINF_PREFERENCE_ORPO)
        common = share_of_target(args);
    for (int64_t pair = 0; !code && pair < args->pairs; pair++)
        do_pair(args, pair, common);
    return code;
}
