/* preference: the loss of pairs of sequences, a block a pair; formulas as in host_preference.c. */
#include "kernels/cuda/block.cuh"

enum { PAIR_THREADS = 256, PAIR_WARPS = PAIR_THREADS / 32 };

struct preference_args {
    struct zinf_preference z;
};

struct pair_side {
    float gain, count, slope;
    int64_t first;    /* tokens before it do not count */
    float all, every; /* of ORPO */
};

DEVICE bool is_mean(const preference_args &a)
{
    return a.z.kind != ZINF_PREFERENCE_DPO && a.z.kind != ZINF_PREFERENCE_REWARD &&
           a.z.kind != ZINF_PREFERENCE_KTO;
}

DEVICE pair_side sum_side(const preference_args &a, int64_t pair, int64_t side, float *shared)
{
    const int64_t begin = (2 * pair + side) * a.z.seq;
    const bool orpo = a.z.kind == ZINF_PREFERENCE_ORPO && side == 0;
    if (a.z.kind == ZINF_PREFERENCE_REWARD) {
        const pair_side score = {a.z.losses[begin], 1.0f, 0.0f, 0, 0.0f, 0.0f};
        return score;
    }
    const int64_t first = orpo ? a.z.labels[2 * pair] : 0;
    float gain = 0.0f, count = 0.0f, all = 0.0f;
    for (int64_t i = threadIdx.x; i < a.z.seq; i += PAIR_THREADS)
        if (a.z.targets[begin + i] >= 0) {
            all += a.z.losses[begin + i];
            if (i >= first) {
                gain += (a.z.reference ? a.z.reference[begin + i] : 0.0f) - a.z.losses[begin + i];
                count += 1.0f;
            }
        }
    gain = block_reduce<PAIR_WARPS>(gain, true, shared);
    count = is_mean(a) ? block_reduce<PAIR_WARPS>(count, true, shared) : 1.0f;
    all = orpo ? block_reduce<PAIR_WARPS>(all, true, shared) : 0.0f;
    if (a.z.sums)
        gain += a.z.sums[2 * pair + side];
    const pair_side sums = {count > 0.0f ? gain / count : gain, count > 0.0f ? count : 1.0f, 0.0f,
                            first, all, 0.0f};
    return sums;
}

/* log(1 + exp(-x)) and its slope */
DEVICE float soft(float x, float &slope)
{
    slope = -1.0f / (1.0f + expf(x));
    return (x < 0.0f ? -x : 0.0f) + logf(1.0f + expf(-fabsf(x)));
}

/* 1 - exp(a), never 0; near 0 by its series, where the difference would cancel. */
DEVICE float rest_of(float a)
{
    const float series = -a * (1.0f + a * (0.5f + a * (1.0f / 6.0f + a * (1.0f / 24.0f))));
    const float rest = a > -0.1f ? series : 1.0f - expf(a);
    return rest > 1e-7f ? rest : 1e-7f;
}

/* Of scores. */
DEVICE float reward_loss(const preference_args &a, int64_t pair, pair_side &c, pair_side &r)
{
    const float given = a.z.margins[2 * pair + 1], sum = c.gain + r.gain;
    float slope;
    const float loss = soft(c.gain - r.gain + (given < 0.0f ? given : 0.0f), slope);
    c.slope = slope + 2.0f * a.z.center * sum;
    r.slope = -slope + 2.0f * a.z.center * sum;
    return loss + a.z.center * sum * sum;
}

/* Of one sequence, c; r has z in the place of its gain. */
DEVICE float single_loss(const preference_args &a, int64_t pair, pair_side &c, pair_side &r)
{
    const bool desirable = a.z.labels[2 * pair] > 0;
    const float weight = desirable ? a.z.desirable : a.z.undesirable;
    const float sign = desirable ? 1.0f : -1.0f;
    const float lost = 1.0f / (1.0f + expf(sign * a.z.beta * (c.gain - r.gain)));
    c.slope = -sign * weight * a.z.beta * lost * (1.0f - lost);
    r.slope = 0.0f;
    return weight * lost;
}

/* Each block makes it by itself, all in the same order: there are few pairs. */
DEVICE float divergence(const preference_args &a, float *shared)
{
    float sum = 0.0f, n = 0.0f;
    for (int64_t pair = 0; pair < a.z.pairs; pair++)
        if (a.z.labels[2 * pair] >= 0) {
            sum += sum_side(a, pair, 1, shared).gain;
            n += 1.0f;
        }
    return n > 0.0f && sum > 0.0f ? sum / n : 0.0f;
}

/* Of ORPO: pairs a target of theirs, so that the mean over pairs is one over targets. */
DEVICE float share_of_target(const preference_args &a, float *shared)
{
    float targets = 0.0f, pairs = 0.0f;
    for (int64_t pair = 0; pair < a.z.pairs; pair++)
        if (a.z.labels[2 * pair] >= 0) {
            for (int64_t i = threadIdx.x; i < a.z.seq; i += PAIR_THREADS)
                targets += a.z.targets[2 * pair * a.z.seq + i] >= 0 ? 1.0f : 0.0f;
            pairs += 1.0f;
        }
    targets = block_reduce<PAIR_WARPS>(targets, true, shared);
    return targets > 0.0f ? pairs / targets : 0.0f;
}

DEVICE float pair_loss(const preference_args &a, int64_t pair, float share, pair_side &c,
                       pair_side &r)
{
    const float beta = a.z.beta, e = a.z.smoothing, away = c.gain - r.gain - 0.5f / beta;
    float slope, wrong;
    if (a.z.kind == ZINF_PREFERENCE_REWARD)
        return reward_loss(a, pair, c, r);
    if (a.z.kind == ZINF_PREFERENCE_KTO)
        return single_loss(a, pair, c, r);
    if (a.z.kind == ZINF_PREFERENCE_IPO) {
        c.slope = 2.0f * away;
        r.slope = -2.0f * away;
        return away * away;
    }
    if (a.z.kind == ZINF_PREFERENCE_ORPO) {
        const float rest_c = rest_of(c.gain), rest_r = rest_of(r.gain);
        const float loss = beta * soft(c.gain - logf(rest_c) - r.gain + logf(rest_r), slope);
        c.slope = beta * slope / rest_c;
        c.every = share;
        r.slope = -beta * slope / rest_r;
        return loss + share * c.all;
    }
    const float margin = a.z.kind == ZINF_PREFERENCE_SIMPO ? a.z.margin : 0.0f;
    const float x = beta * (c.gain - r.gain) - margin;
    float loss = (1.0f - e) * soft(x, slope);
    loss += e * soft(-x, wrong);
    c.slope = beta * ((1.0f - e) * slope - e * wrong);
    r.slope = -c.slope;
    return loss;
}

DEVICE void spread(const preference_args &a, const pair_side &s, int64_t first)
{
    const bool scores = a.z.kind == ZINF_PREFERENCE_REWARD;
    const float every = a.z.scale * s.every;
    const float slope = (scores ? a.z.scale : -a.z.scale) * s.slope / s.count + every;
    for (int64_t i = threadIdx.x; i < a.z.seq; i += PAIR_THREADS)
        a.z.d_losses[first + i] = !scores && a.z.targets[first + i] < 0 ? 0.0f
                                  : i < s.first                         ? every
                                                                        : slope;
}

KERNEL(PAIR_THREADS) preference_kernel(preference_args a)
{
    __shared__ float shared[PAIR_WARPS];
    const int64_t pair = blockIdx.x, first = 2 * pair * a.z.seq;
    const bool ignored = a.z.labels[2 * pair] < 0;
    const float share = a.z.kind == ZINF_PREFERENCE_ORPO ? share_of_target(a, shared) : 0.0f;
    pair_side c = sum_side(a, pair, 0, shared), r = {0.0f, 1.0f, 0.0f, 0, 0.0f, 0.0f};
    if (a.z.kind == ZINF_PREFERENCE_KTO) /* which compares with what all pairs have in common */
        r.gain = divergence(a, shared);
    else
        r = sum_side(a, pair, 1, shared);
    const float loss = pair_loss(a, pair, share, c, r);
    if (ignored)
        c.slope = r.slope = c.every = 0.0f;
    if (a.z.loss && threadIdx.x == 0) {
        a.z.loss[2 * pair] = ignored ? 0.0f : loss;
        a.z.loss[2 * pair + 1] = 0.0f;
        a.z.rewards[2 * pair] = ignored ? 0.0f : a.z.beta * c.gain;
        a.z.rewards[2 * pair + 1] = ignored ? 0.0f : a.z.beta * r.gain;
    }
    if (a.z.d_losses) {
        spread(a, c, first);
        spread(a, r, first + a.z.seq);
    }
}

cudaError_t launch_preference(cudaStream_t stream, const struct zinf_preference *z)
{
    preference_args args = {*z};
    return launch(known<preference_kernel>(), grid_of_rows(z->pairs), dim3(PAIR_THREADS), 0, stream,
                  args);
}
