/*
 * attention_mma: what the tensor-core attention kernels share. Tiles of rows lie in shared memory
 * in their 16-bit type, [rows][D + 8]: 16 bytes more than a power of two, so that the 8 rows of a
 * matrix fall on different banks. D is the head size rounded up to 32, 64, 128 or 256; what is
 * beyond the head size, and beyond the sequence, is zero and so adds nothing.
 *
 * Tiles that a loop walks have two places where shared memory has room: the next one's copies are
 * on their way while the tensor cores have this one. A step of such a loop waits for its own
 * copies, meets the block's other threads, who then are also done with the tile before, and begins
 * the next one's copies into that tile's place.
 */
#ifndef ZINF_CUDA_ATTENTION_MMA_CUH
#define ZINF_CUDA_ATTENTION_MMA_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

#define LOG2_E 1.44269504f
#define LN_2 0.693147181f

template <class T, int D> struct tile_of {
    static const int pitch = D + 8;
    static const int bytes_per_row = pitch * (int)sizeof(T);
    static const int places = D <= 128 ? 2 : 1; /* of a tile that a loop walks */
    static const int blocks = D <= 64 ? 3 : 1;  /* beside each other */
};

/* Begins a step of such a loop: with one place, its tile is only fetched now. fetch(n) begins the
 * copies of step n; n_steps of them. */
template <int PLACES, class Step, class Fetch>
DEVICE void begin_step(Step n, Step n_steps, const Fetch &fetch)
{
    if (PLACES == 1) {
        sync_block();
        fetch(n);
    }
    wait_copies();
    sync_block();
    if (PLACES == 2 && n + 1 < n_steps)
        fetch(n + 1);
}

/* Begins to copy ROWS rows of a head from first on, 16 bytes a thread. */
template <class T, int D, int ROWS, int THREADS_>
DEVICE void fetch_head(const struct zinf_attention &z, T *tile, head_rows<const T> from,
                       int64_t first)
{
    const T *base = from.base + first * from.stride;
    const int rows = z.seq - first < ROWS ? (int)(z.seq - first) : ROWS;
    UNROLL for (int k = 0; k < ROWS * (D / 8); k += THREADS_)
    {
        int e = k + threadIdx.x, row = e / (D / 8), col = e % (D / 8) * 8;
        bool wanted = row < rows && col < z.head_dim;
        copy_async<16>(tile + row * tile_of<T, D>::pitch + col,
                       wanted ? base + row * from.stride + col : base, wanted);
    }
}

template <class T, int D, int ROWS, int THREADS_>
DEVICE void store_head(const struct zinf_attention &z, const T *tile, head_rows<T> to,
                       int64_t first)
{
    for (int e = threadIdx.x; e < ROWS * (D / 8); e += THREADS_) {
        int row = e / (D / 8), col = e % (D / 8) * 8;
        if (first + row < z.seq && col < z.head_dim)
            *(words4 *)(void *)(to.base + (first + row) * to.stride + col) =
                *(const words4 *)(const void *)(tile + row * tile_of<T, D>::pitch + col);
    }
}

/* A warp's 16 x 8 N result, times a factor for each of its two rows, into a tile. */
template <int N, class T>
DEVICE void put_results(T *tile, int pitch, const float (&c)[N][4], float factor0, float factor1)
{
    int g = lane_id() / 4, t = lane_id() % 4;
    UNROLL for (int n = 0; n < N; n++)
    {
        uint32_t above = pack<T>(c[n][0] * factor0, c[n][1] * factor0);
        uint32_t below = pack<T>(c[n][2] * factor1, c[n][3] * factor1);
        memcpy(tile + g * pitch + n * 8 + 2 * t, &above, 4);
        memcpy(tile + (g + 8) * pitch + n * 8 + 2 * t, &below, 4);
    }
}

template <int N> DEVICE void clear(float (&c)[N][4])
{
    UNROLL for (int n = 0; n < N; n++)
        UNROLL for (int e = 0; e < 4; e++)
            c[n][e] = 0.0f;
}

/* Scores that a row may not see become -infinity: row and j are a lane's first. */
template <int N>
DEVICE void mask_scores(const struct zinf_attention &z, float (&s)[N][4], int64_t row, int64_t j)
{
    const int64_t left = z.seq - j;
    const int first = 2 * (lane_id() % 4), keys = left < 8 * N ? (int)left : 8 * N;
    UNROLL for (int r = 0; r < 2; r++)
    {
        const int64_t up_to = row + 8 * r - j + 1;
        const int seen = z.causal && up_to < keys ? (int)up_to : keys;
        const int from = up_to > z.window ? (int)(up_to - z.window) : 0;
        UNROLL for (int n = 0; n < N; n++)
            UNROLL for (int e = 0; e < 2; e++)
            {
                const int k = n * 8 + first + e;
                s[n][2 * r + e] = k >= from && k < seen ? s[n][2 * r + e] : -INFINITY;
            }
    }
}

/* Whether samples may be several documents: asked beside the edges of tiles, as a branch of its own
 * would cost every tile. Capped scores have no branch to spare: attention_mma_serves leaves their
 * documents to the plain kernels. */
DEVICE bool has_documents(const attention_args &)
{
    return false;
}
DEVICE bool has_documents(const sloped_args &a)
{
    return a.z.segments;
}
DEVICE bool has_documents(const capped_args &)
{
    return false;
}

/* So do those of two tokens that are not of one document: one is a lane's first row, other the first
 * of its columns; queries and keys are the same tokens, so either may be the rows. */
template <int N>
DEVICE void mask_documents(const attention_args &, float (&)[N][4], int64_t, int64_t, int64_t)
{
}
template <int N>
DEVICE void mask_documents(const capped_args &, float (&)[N][4], int64_t, int64_t, int64_t)
{
}
template <int N>
DEVICE void mask_documents(const sloped_args &a, float (&s)[N][4], int64_t b, int64_t one,
                           int64_t other)
{
    const struct zinf_attention &z = a.z;
    const int first = 2 * (lane_id() % 4);
    if (!z.segments)
        return;
    UNROLL for (int r = 0; r < 2; r++)
        UNROLL for (int n = 0; n < N; n++)
            UNROLL for (int e = 0; e < 2; e++)
            {
                const int64_t row = one + 8 * r, column = other + n * 8 + first + e;
                const bool within = row < z.seq && column < z.seq;
                if (!within || !same_document(z, b, row, column))
                    s[n][2 * r + e] = -INFINITY;
            }
}

/* What shape_scores leaves is multiplied by this to be a score in base 2. */
DEVICE float scale_left(const attention_args &a)
{
    return a.z.scale * LOG2_E;
}
DEVICE float scale_left(const sloped_args &)
{
    return LOG2_E;
}

/* q.k of a lane's rows (the first is row) and keys from j on becomes scores where that is more than
 * a scale. */
template <int N>
DEVICE void shape_scores(const attention_args &, float (&)[N][4], int64_t, int64_t, int64_t)
{
}
template <int N, class ARGS>
DEVICE void shape_scores(const ARGS &a, float (&s)[N][4], int64_t head, int64_t row, int64_t j)
{
    const tile_bias bias = bias_of(a, head, row, j + 2 * (lane_id() % 4));
    float slope;
    UNROLL for (int n = 0; n < N; n++)
        UNROLL for (int e = 0; e < 4; e++)
            s[n][e] = score_of(a, bias, n * 8 + e % 2 - e / 2 * 8, s[n][e] * a.z.scale, slope);
}

/* Which probabilities of rows i.. and keys j.. are kept, a bit each: [ROWS][words_of(KEYS)]. One
 * look at the random numbers for four of them, where a lane's own would take one for each. */
DEVICE constexpr int words_of(int keys)
{
    return (keys + 31) / 32;
}
template <int ROWS_, int KEYS, int THREADS_>
DEVICE void make_mask(const attention_args &a, uint32_t *mask, int64_t b, int64_t head, int64_t i,
                      int64_t j)
{
    const int words = words_of(KEYS);
    for (int e = threadIdx.x; e < ROWS_ * words; e += THREADS_) {
        int64_t row = row_index(a.z, b, head, i + e / words);
        mask[e] = dropout_word(a.rule, (uint64_t)(row * a.z.seq + j + e % words * 32));
    }
}
template <int KEYS>
DEVICE float mask_factor(const attention_args &a, const uint32_t *mask, int row, int key)
{
    return mask[row * words_of(KEYS) + key / 32] >> key % 32 & 1 ? a.rule.keep : 0.0f;
}

/* ---- for launchers ---- */

/* Does something with the type T and the constant D that a call stands for. */
#define BY_HEAD(z, ...)                                                                            \
    do {                                                                                           \
        if ((z)->dtype == ZINF_DTYPE_BF16) {                                                       \
            typedef bf16 T;                                                                        \
            BY_HEAD_SIZE(z, __VA_ARGS__);                                                          \
        } else {                                                                                   \
            typedef f16 T;                                                                         \
            BY_HEAD_SIZE(z, __VA_ARGS__);                                                          \
        }                                                                                          \
    } while (0)
#define BY_HEAD_SIZE(z, ...)                                                                       \
    if ((z)->head_dim <= 32) {                                                                     \
        const int D = 32;                                                                          \
        __VA_ARGS__;                                                                               \
    } else if ((z)->head_dim <= 64) {                                                              \
        const int D = 64;                                                                          \
        __VA_ARGS__;                                                                               \
    } else if ((z)->head_dim <= 128) {                                                             \
        const int D = 128;                                                                         \
        __VA_ARGS__;                                                                               \
    } else {                                                                                       \
        const int D = 256;                                                                         \
        __VA_ARGS__;                                                                               \
    }

/* One block for each tile of rows, head and sample. */
static inline dim3 head_grid(const struct zinf_attention *z, int64_t heads, int rows)
{
    return dim3(blocks_for((uint64_t)z->seq, (uint64_t)rows), (unsigned)heads, (unsigned)z->batch);
}

#endif
