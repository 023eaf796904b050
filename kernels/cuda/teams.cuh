/*
 * teams: threads that keep a row of a norm in registers together, so that it is read once. Where
 * rows are short several teams share a warp: what a row takes once, such as adding up over lanes,
 * is then done for all of them at the same time. A team of a wide row is a whole block.
 */
#ifndef ZINF_CUDA_TEAMS_CUH
#define ZINF_CUDA_TEAMS_CUH

#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/workspace.h"

enum { TEAM_THREADS = 256 }; /* of a block of several teams */
enum { TEAM_BLOCK = NORM_GRADIENT_COLUMNS / (2 * EACH) }; /* of a block that is a team, at most */

/* Does something with LANES, the threads of a team inside a warp, or TEAM_BLOCK where the block is
 * one, and PIECES, how many times a thread has 8 columns. */
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
            enum { LANES = TEAM_BLOCK, PIECES = 2 };                                                        \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* Threads of a block that is a team. */
static inline int team_block(int64_t cols)
{
    return (int)blocks_for((uint64_t)cols, 2 * EACH * 32) * 32;
}

/* Whether teams serve rows like these; of what x is to the norm each thread takes 16 bytes. */
static inline bool teams_serve(const struct zinf_norm *z)
{
    return z->rows && z->cols <= NORM_GRADIENT_COLUMNS && z->cols % EACH == 0 &&
           norm_ld(z) % EACH == 0 && aligned16(z->x) && aligned16(z->w) && aligned16(z->b);
}

/* How many teams a block of so many threads is. */
#define TEAMS_OF(threads) (LANES <= 32 ? (threads) / LANES : 1)

/* This thread's team in its block. */
template <int LANES> DEVICE int team_number()
{
    return LANES <= 32 ? (int)threadIdx.x / LANES : 0;
}

/* The first of this thread's columns of a piece, of a team of so many threads. */
template <int LANES> DEVICE int team_column(int piece, int threads)
{
    const int width = LANES <= 32 ? LANES : threads;
    return (piece * width + (int)threadIdx.x % width) * EACH;
}

/* Sums over this thread's LANES lanes. Of two, even lanes add up the first and odd ones the second.
 */
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

/* Where the warps of a block that is a team add up. Two places take turns: a thread may still read
 * one sum's place while others write the next one's. No thread writes the first again before all
 * have passed the barrier of the second, and so have read it. */
struct team_places {
    words2 at[2][TEAM_BLOCK / 32];
};

DEVICE void sum_warps(float &a, float &b, words2 *place, int warps)
{
    float both[2] = {a, b};
    if (threadIdx.x % 32 == 0)
        memcpy(&place[threadIdx.x / 32], both, sizeof both);
    sync_block();
    a = b = 0.0f;
    for (int warp = 0; warp < warps; warp++) {
        load_pair(both, (const float *)(const void *)&place[warp]);
        a += both[0];
        b += both[1];
    }
}

/* A team's sums, the same in each of its threads. turn: 0 at first. */
template <int LANES>
DEVICE void team_sums(float &a, float &b, team_places &places, int &turn, int threads)
{
    sum_lanes<LANES <= 32 ? LANES : 32>(a, b);
    if (LANES > 32)
        sum_warps(a, b, places.at[turn], threads / 32);
    turn ^= 1;
}
template <int LANES>
DEVICE float team_sum(float x, team_places &places, int &turn, int threads)
{
    float none = 0.0f;
    x = sum_lanes<LANES <= 32 ? LANES : 32>(x);
    if (LANES > 32)
        sum_warps(x, none, places.at[turn], threads / 32);
    turn ^= 1;
    return x;
}

/* 8 elements, or zeros if these are not this thread's. */
template <class T> DEVICE void load_own(float (&to)[EACH], const T *from, bool own)
{
    words4 raw = {};
    if (own)
        raw = *(const words4 *)(const void *)from;
    unpack<T>(to, raw);
}
DEVICE void load_own(float (&to)[EACH], const float *from, bool own)
{
    UNROLL for (int k = 0; k < EACH; k++) to[k] = 0.0f;
    if (own)
        load_vector(to, from);
}

/* w_add + w of this thread's columns; w NULL: w_add. Threads without columns get others'. */
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
