/*
 * teams: a team is a group of threads that together keep one row of a norm in registers, so that
 * the row is read once. Where rows are short, several teams share a warp: the work that each row
 * needs once, such as the sum over lanes, is then done for all of them by the same instructions.
 * The team of a wide row is a whole block.
 */
#ifndef ZINF_CUDA_TEAMS_CUH
#define ZINF_CUDA_TEAMS_CUH

#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/workspace.h"

enum { TEAM_THREADS = 256 }; /* the threads of a block of several teams */
/* The most threads of a block that is one team. */
enum { TEAM_BLOCK = NORM_GRADIENT_COLUMNS / (2 * EACH) };

/* Runs a statement with two constants. LANES is the number of threads of a team inside a warp, or
 * TEAM_BLOCK where the block is the team. PIECES says how many times a thread has 8 columns. */
#define BY_TEAM(cols, ...)                                                                         \
    do {                                                                                           \
        if ((cols) <= 64) {                                                                        \
            enum { LANES = 4, PIECES = 2 };                                                        \
            __VA_ARGS__;                                                                           \
        } else if ((cols) <= 128) {                                                                \
            enum { LANES = 8, PIECES = 2 };                                                        \
            __VA_ARGS__;                                                                           \
        } else if ((cols) <= 256) {                                                                \
            enum { LANES = 16, PIECES = 2 };                                                       \
            __VA_ARGS__;                                                                           \
        } else if ((cols) <= 384) {                                                                \
            enum { LANES = 16, PIECES = 3 };                                                       \
            __VA_ARGS__;                                                                           \
        } else if ((cols) <= 512) {                                                                \
            enum { LANES = 32, PIECES = 2 };                                                       \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            enum { LANES = TEAM_BLOCK, PIECES = 2 };                                               \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* Threads of a block that is a team. */
static inline int team_block(int64_t cols)
{
    return (int)blocks_for((uint64_t)cols, 2 * EACH * 32) * 32;
}

/* Whether teams serve rows like these: each thread loads 16 bytes of x, w and b at a time. */
static inline bool teams_serve(const struct zinf_norm *z)
{
    return z->rows && z->cols <= NORM_GRADIENT_COLUMNS && z->cols % EACH == 0 &&
           norm_ld(z) % EACH == 0 && aligned16(z->x) && aligned16(z->w) && aligned16(z->b);
}

/* How many teams a block of so many threads is. */
#define TEAMS_OF(threads) (LANES <= 32 ? (threads) / LANES : 1)

/* How many of a warp's lanes a team has. */
#define LANES_OF_WARP (LANES <= 32 ? LANES : 32)

/* This thread's team in its block. */
template <int LANES> DEVICE int team_number()
{
    return LANES <= 32 ? (int)threadIdx.x / LANES : 0;
}

/* The first of this thread's columns of a piece, in a team of so many threads. */
template <int LANES> DEVICE int team_column(int piece, int threads)
{
    if (LANES > 32)
        return (piece * threads + (int)threadIdx.x) * EACH;
    return (piece * LANES + (int)threadIdx.x % LANES) * EACH;
}

/* Whether a row has these columns. BY_TEAM takes such teams that only the last piece may lie
 * behind the row's end, except for rows of a few columns, which have the smallest team. */
template <int LANES, int PIECES> DEVICE bool team_owns(int piece, int threads, int cols)
{
    return (LANES > 4 && piece + 1 < PIECES) || team_column<LANES>(piece, threads) < cols;
}

/* Sums over the LANES lanes of this thread's team. Of two numbers, even lanes add up the first and
 * odd lanes the second. */
template <int LANES> DEVICE float sum_lanes(float x)
{
    UNROLL for (int mask = LANES / 2; mask; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}
template <int LANES> DEVICE void sum_lanes(float &a, float &b)
{
    const bool odd = threadIdx.x % 2;
    float mine = odd ? b : a;
    mine += shuffle_xor(odd ? a : b, 1);
    UNROLL for (int mask = LANES / 2; mask > 1; mask /= 2) mine += shuffle_xor(mine, mask);
    const float other = shuffle_xor(mine, 1);
    a = odd ? other : mine;
    b = odd ? mine : other;
}

/* Where the warps of a block that is a team leave their sums for each other: two sums of each warp.
 * There are two such places, which take turns: a thread may still read one while others write the
 * next. No thread writes the first again before all have passed the barrier of the second, and so
 * have read the first. Numbers are read four at a time, so those behind the last warp's are zeros.
 */
enum { TEAM_WARPS = TEAM_BLOCK / 32 };
struct alignas(16) team_places {
    float at[4 * TEAM_WARPS]; /* [turn][sum][warp] */
};

/* Every thread calls this before the block's first sum, whose barrier makes the zeros seen. */
template <int LANES> DEVICE void start_places(team_places &places, int threads)
{
    const int warp = (int)threadIdx.x;
    if (LANES > 32 && warp < TEAM_WARPS && warp >= threads / 32)
        UNROLL for (int k = 0; k < 4; k++) places.at[k * TEAM_WARPS + warp] = 0.0f;
}

DEVICE void load_four(float (&to)[4], const float *from)
{
    const words4 raw = *(const words4 *)(const void *)from;
    memcpy(to, &raw, sizeof raw);
}

/* Leaves a warp's sums at its place and adds up those of all warps, in the order of their numbers.
 * b is left alone where only one number is wanted. */
template <bool BOTH>
DEVICE void sum_warps(float &a, float &b, team_places &places, int turn, int threads)
{
    int place = turn * 2 * TEAM_WARPS;
    if (threadIdx.x % 32 == 0) {
        places.at[place + threadIdx.x / 32] = a;
        if (BOTH)
            places.at[place + TEAM_WARPS + threadIdx.x / 32] = b;
    }
    sync_block();
    const int end = place + threads / 32;
    a = 0.0f;
    if (BOTH)
        b = 0.0f;
    NO_UNROLL for (; place < end; place += 4)
    {
        float four[4];
        load_four(four, &places.at[place]);
        UNROLL for (int k = 0; k < 4; k++) a += four[k];
        if (!BOTH)
            continue;
        load_four(four, &places.at[place + TEAM_WARPS]);
        UNROLL for (int k = 0; k < 4; k++) b += four[k];
    }
}

/* A team's sums, the same in each of its threads. turn is 0 at first. */
template <int LANES>
DEVICE void team_sums(float &a, float &b, team_places &places, int &turn, int threads)
{
    sum_lanes<LANES_OF_WARP>(a, b);
    if (LANES > 32)
        sum_warps<true>(a, b, places, turn, threads);
    turn ^= 1;
}
template <int LANES> DEVICE float team_sum(float x, team_places &places, int &turn, int threads)
{
    float none;
    x = sum_lanes<LANES_OF_WARP>(x);
    if (LANES > 32)
        sum_warps<false>(x, none, places, turn, threads);
    turn ^= 1;
    return x;
}

/* w_add + w of this thread's columns, or w_add alone where w is NULL. A thread without columns gets
 * the first columns' weights, which it does not use. */
template <class T, int LANES, int PIECES>
DEVICE void team_weights(const T *w, float w_add, int cols, int threads, float (&to)[PIECES][EACH])
{
    UNROLL for (int i = 0; i < PIECES; i++)
    {
        const int c = team_column<LANES>(i, threads);
        if (w)
            load_vector(to[i], w + (c < cols ? c : 0));
        else
            UNROLL for (int k = 0; k < EACH; k++) to[i][k] = 0.0f;
        if (w_add != 0.0f)
            UNROLL for (int k = 0; k < EACH; k++) to[i][k] += w_add;
    }
}

#endif
