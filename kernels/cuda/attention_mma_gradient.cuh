/*
 * attention_mma_gradient: what the kernels of attention's backward on tensor cores share: a
 * probability from a score, its gradient, and those of a tile whose rows are queries.
 */
#ifndef ZINF_CUDA_ATTENTION_MMA_GRADIENT_CUH
#define ZINF_CUDA_ATTENTION_MMA_GRADIENT_CUH

#include "kernels/cuda/attention_mma.cuh"

/* log2 of the probability of s = q.k, which is -infinity where it is not seen, with so much beside
 * it; lse in base 2. slope: the score's derivative by scale s. */
DEVICE float log_probability(const attention_args &a, float, float s, float lse, float &slope)
{
    slope = 1.0f;
    return fused(s, a.z.scale * LOG2_E, -lse);
}
DEVICE float log_probability(const shaped_args &a, float beside, float s, float lse, float &slope)
{
    return fused(shape_score(a, s, beside, slope), LOG2_E, -lse);
}
DEVICE float log_probability(const capped_args &a, float beside, float s, float lse, float &slope)
{
    const float score = shape_score(a, s, beside, slope);
    return fused(s == -INFINITY ? s : score, LOG2_E, -lse); /* the cap would bring it back */
}

/* A row's lse in base 2, its delta, 0 where dp began at -delta, and the factor of dropout. */
struct score_row {
    float lse, delta, factor;
};

/* One score s = q.k and dp = dO.v become p (dropped) and ds = p (dp - delta). What is not seen has
 * p = 0, and no NaN of dp may come through; unseen: whether there may be such. */
template <class ARGS>
DEVICE void gradient(const ARGS &a, float beside, const score_row &row, bool unseen, float &s,
                     float &dp)
{
    float bend, p = exp2_near(log_probability(a, beside, s, row.lse, bend));
    float slope = p * (dp * row.factor - row.delta) * bend;
    s = p * row.factor;
    dp = unseen && p == 0.0f ? 0.0f : slope;
}

/* What is not seen where no probability is dropped: p = 0. */
template <int N> DEVICE void clear_unseen(const float (&p)[N][4], float (&ds)[N][4])
{
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++) ds[n][e] =
        p[n][e] == 0.0f ? 0.0f : ds[n][e];
}

/* A warp's part of a tile: which probabilities are kept, its first key (dK, dV) or row (dQ) of the
 * block's, and what is beside the scores of a lane's first key and row. */
struct warp_part {
    const uint32_t *mask;
    int first;
    const float *bias;
};
DEVICE float bias_beside(const attention_args &, const float *, int)
{
    return 0.0f;
}
DEVICE float bias_beside(const shaped_args &, const float *bias, int further)
{
    return bias[further];
}
/* Of a tile with QUERIES queries: key and row are the lane's first in it. */
template <int QUERIES, class BESIDE>
DEVICE const float *bias_at(const BESIDE &beside, int key, int row)
{
    return beside.bias + key - row + QUERIES - 1;
}

/* Whether probabilities are dropped: known when a kernel is compiled, but for scores that are more
 * than scaled, whose kernels are fewer. */
template <bool DROPS> DEVICE bool drops(const attention_args &)
{
    return DROPS;
}
template <bool DROPS, class ARGS> DEVICE bool drops(const ARGS &a)
{
    return DROPS && a.drops;
}

/* ---- tiles whose rows are queries ---- */

/* A lane's two rows: lse in base 2, and delta. */
struct row_stats {
    float lse[2], delta[2];
};
DEVICE row_stats load_stats(const attention_args &a, int64_t b, int64_t head, int64_t i)
{
    row_stats stats;
    UNROLL for (int r = 0; r < 2; r++)
    {
        const bool wanted = i + 8 * r < a.z.seq;
        const int64_t at = row_index(a.z, b, head, wanted ? i + 8 * r : 0);
        stats.lse[r] = wanted ? a.z.lse[at] * LOG2_E : 0.0f;
        stats.delta[r] = wanted ? a.delta[at] : 0.0f;
    }
    return stats;
}

/* Of a warp's rows from i on. */
template <int H>
DEVICE void load_stats(const attention_args &a, int64_t b, int64_t head, int64_t i,
                       row_stats (&stats)[H])
{
    UNROLL for (int h = 0; h < H; h++) stats[h] =
        load_stats(a, b, head, i + 16 * h + lane_id() / 4);
}

template <int H, int N, class T>
DEVICE void put_scaled(T *tile, int pitch, const float (&c)[H][N][4], float scale)
{
    UNROLL for (int h = 0; h < H; h++)
        put_results(tile + 16 * h * pitch, pitch, c[h], scale, scale);
}

/* Sums of dO.v begin at -delta where that is all that they need. */
template <bool DROPS, int H, int N, class ARGS>
DEVICE void begin_sums(const ARGS &a, const row_stats (&stats)[H], float (&dp)[H][N][4])
{
    UNROLL for (int h = 0; h < H; h++) UNROLL for (int n = 0; n < N; n++)
        UNROLL for (int e = 0; e < 4; e++) dp[h][n][e] =
            drops<DROPS>(a) ? 0.0f : -stats[h].delta[e / 2];
}

/* What a warp's scores and dp become. */
template <bool DROPS, int N, class ARGS>
DEVICE void dq_gradients_of(const ARGS &a, const row_stats &stats, const warp_part &part,
                            float (&s)[N][4], float (&dp)[N][4])
{
    const int t = lane_id() % 4, row = part.first + lane_id() / 4;
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++)
    {
        int r = e / 2, k = n * 8 + 2 * t + e % 2;
        float factor = DROPS ? mask_factor<8 * N>(a, part.mask, row + 8 * r, k) : 1.0f;
        score_row at = {stats.lse[r], DROPS ? stats.delta[r] : 0.0f, factor};
        const float beside = bias_beside(a, part.bias, n * 8 + e % 2 - 8 * r);
        gradient(a, beside, at, DROPS, s[n][e], dp[n][e]);
    }
}
template <bool DROPS, int N, class ARGS>
DEVICE void dq_gradients(const ARGS &a, const row_stats &stats, const warp_part &part, bool unseen,
                         float (&s)[N][4], float (&dp)[N][4])
{
    if (drops<DROPS>(a)) {
        dq_gradients_of<true>(a, stats, part, s, dp);
        return;
    }
    dq_gradients_of<false>(a, stats, part, s, dp);
    if (unseen)
        clear_unseen(s, dp);
}

/* Of all rows of a warp, from mine on in a tile of ROWS_. */
template <bool DROPS, int ROWS_, int H, int N, class ARGS, class BESIDE>
DEVICE void warp_gradients(const ARGS &a, const row_stats (&stats)[H], const uint32_t *mask,
                           int mine, const BESIDE &beside, bool unseen, float (&s)[H][N][4],
                           float (&dp)[H][N][4])
{
    UNROLL for (int h = 0; h < H; h++)
    {
        const int first = mine + 16 * h;
        const float *bias = bias_at<ROWS_>(beside, 2 * (lane_id() % 4), first + lane_id() / 4);
        dq_gradients<DROPS>(a, stats[h], {mask, first, bias}, unseen, s[h], dp[h]);
    }
}

template <bool DROPS, int ROWS_, int KEYS, int THREADS_, class ARGS>
DEVICE void begin_mask(const ARGS &a, uint32_t *mask, int64_t b, int64_t head, int64_t i, int64_t j)
{
    if (drops<DROPS>(a)) {
        make_mask<ROWS_, KEYS, THREADS_>(a, mask, b, head, i, j);
        sync_block();
    }
}

#endif
