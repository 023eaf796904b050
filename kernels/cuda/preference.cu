/* preference: the loss of pairs of sequences, a block a pair; formulas as in host_preference.c. */
#include "kernels/cuda/block.cuh"

enum { PAIR_THREADS = 256, PAIR_WARPS = PAIR_THREADS / 32 };

struct preference_args {
    struct zinf_preference z;
};

struct pair_side {
    float gain, count, slope;
};

DEVICE bool is_mean(const preference_args &a)
{
    return a.z.kind != ZINF_PREFERENCE_DPO && a.z.kind != ZINF_PREFERENCE_REWARD &&
           a.z.kind != ZINF_PREFERENCE_KTO;
}

DEVICE pair_side sum_side(const preference_args &a, int64_t first, float *shared)
{
    if (a.z.kind == ZINF_PREFERENCE_REWARD) {
        const pair_side score = {a.z.losses[first], 1.0f, 0.0f};
        return score;
    }
    float gain = 0.0f, count = 0.0f;
    for (int64_t i = first + threadIdx.x; i < first + a.z.seq; i += PAIR_THREADS)
        if (a.z.targets[i] >= 0) {
            gain += (a.z.reference ? a.z.reference[i] : 0.0f) - a.z.losses[i];
            count += 1.0f;
        }
    gain = block_reduce<PAIR_WARPS>(gain, true, shared);
    count = is_mean(a) ? block_reduce<PAIR_WARPS>(count, true, shared) : 1.0f;
    const pair_side side = {count > 0.0f ? gain / count : gain, count > 0.0f ? count : 1.0f, 0.0f};
    return side;
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
            sum += sum_side(a, (2 * pair + 1) * a.z.seq, shared).gain;
            n += 1.0f;
        }
    return n > 0.0f && sum > 0.0f ? sum / n : 0.0f;
}

DEVICE float pair_loss(const preference_args &a, int64_t pair, pair_side &c, pair_side &r)
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
        c.slope = beta * slope / rest_c - 1.0f;
        r.slope = -beta * slope / rest_r;
        return loss - c.gain;
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
    const float slope = (scores ? a.z.scale : -a.z.scale) * s.slope / s.count;
    for (int64_t i = first + threadIdx.x; i < first + a.z.seq; i += PAIR_THREADS)
        a.z.d_losses[i] = !scores && a.z.targets[i] < 0 ? 0.0f : slope;
}

KERNEL(PAIR_THREADS) preference_kernel(preference_args a)
{
    __shared__ float shared[PAIR_WARPS];
    const int64_t pair = blockIdx.x, first = 2 * pair * a.z.seq;
    const bool ignored = a.z.labels[2 * pair] < 0;
    pair_side c = sum_side(a, first, shared), r = {0.0f, 1.0f, 0.0f};
    if (a.z.kind == ZINF_PREFERENCE_KTO) /* which compares with what all pairs have in common */
        r.gain = divergence(a, shared);
    else
        r = sum_side(a, first + a.z.seq, shared);
    const float loss = pair_loss(a, pair, c, r);
    if (ignored)
        c.slope = r.slope = 0.0f;
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
    return launch(preference_kernel, dim3((unsigned)z->pairs), dim3(PAIR_THREADS), 0, stream, args);
}
