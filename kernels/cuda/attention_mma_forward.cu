/*
 * attention_mma_forward: attention on tensor cores. A block has 64 query rows of a head, 16 a
 * warp, or twice as many, and walks tiles of keys with a running sum a row. What is taken off a
 * row's scores before their exponentials (base 2: log2 e is folded into the scale) is the largest
 * of its first tile, and moves only when later ones are far above it. That is seen by the sum of
 * exponentials, so that no step looks for a maximum: one whose sum is too large is done again.
 * Probabilities go from one product's result to the next one's operand in registers. Causal: tiles
 * above the diagonal are not visited, and long rows begin first.
 */
#include "kernels/cuda/attention_mma.cuh"

#include <float.h>

/* A head of 256 has too many sums for one warp: two warps share 16 rows, half the columns each. Of
 * one of 512 shared memory has room for 32 rows, and 16 keys and values. More than 32 keys beside
 * 32 rows of 64 would spill. */
template <int D, class ARGS> struct forward_tile {
    static const int halves = warp_halves<D, ARGS>::n, row_warps = D <= 256 ? 4 : 2;
    static const int keys = halves > 1 && D > 32 ? 32 : D <= 128 ? 64 : D <= 256 ? 32 : 16;
    static const int split = D <= 128 ? 1 : 2;
    static const int rows = 16 * halves * row_warps, threads = 32 * row_warps * split;
    static const int blocks = D <= 64 ? (halves == 1 ? 3 : 2) : 1; /* beside each other */
    /* Queries that are held in registers leave their tile to the second place of keys. */
    static const bool held = D <= 128;
    static const int begins = held && rows < 2 * keys ? 2 * keys : rows; /* the first place */
    static const int shared_rows = begins + 2 * keys;
    /* Wide heads, whose steps have more products, look for far scores in each: doing a step again
     * would take registers that they have not. So do heads of 128 whose scores are more than
     * scaled, which would spill. */
    static const bool looks = D > 128 || (D == 128 && sizeof(ARGS) > sizeof(attention_args));
    static const int places = D <= 128 ? 2 : 1;
};

/* Where the nth step's keys and values lie. The first one's are not where the queries are, which
 * other warps may still read then. */
template <class T, int D, class ARGS> DEVICE int step_place(int n)
{
    typedef forward_tile<D, ARGS> tile;
    const bool second = tile::held && n % 2;
    return (second ? 0 : tile::begins) * tile_of<T, D>::pitch; /* elements */
}

/* How far in base 2 a score may be above its row's base: exponentials up to 2^14 are numbers of all
 * types, as exact as those up to 1. */
#define FAR_ABOVE 14.0f
#define TOO_LARGE 16384.0f /* 2^FAR_ABOVE */

/* What a lane keeps of its two rows: their bases, below all scores while there are none, and the
 * sums of what this lane saw. */
struct running {
    float base[2] = {-FLT_MAX, -FLT_MAX}, sum[2] = {0.0f, 0.0f};
};

/* Moves the base of a row that has a score far above it there; sum and out follow. A row's base
 * depends on its own scores alone. */
template <int N, int M>
DEVICE void move_bases(const float (&s)[N][4], float (&out)[M][4], running &rows, float scale)
{
    UNROLL for (int r = 0; r < 2; r++)
    {
        float top = s[0][2 * r];
        UNROLL for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        top = fmaxf(top, shuffle_xor(top, 1));
        top = fmaxf(top, shuffle_xor(top, 2)) * scale;
        const bool moves = top > rows.base[r] + FAR_ABOVE;
        const float shrink = moves ? exp2_near(rows.base[r] - top) : 1.0f;
        rows.base[r] = moves ? top : rows.base[r];
        rows.sum[r] *= shrink;
        UNROLL for (int m = 0; m < M; m++)
        {
            out[m][2 * r] *= shrink;
            out[m][2 * r + 1] *= shrink;
        }
    }
}

/* Scores become exp2(score scale - base), whose sums are sum. */
template <int N>
DEVICE void make_exponentials(float (&s)[N][4], const running &rows, float (&sum)[2], float scale)
{
    UNROLL for (int r = 0; r < 2; r++)
    {
        sum[r] = 0.0f;
        UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 2 * r; e < 2 * r + 2; e++)
        {
            s[n][e] = exp2_near(fused(s[n][e], scale, -rows.base[r]));
            sum[r] += s[n][e];
        }
    }
}

/* Adds up what the lanes of a row saw; writes lse of row i and of the 8th behind it. */
DEVICE void finish_rows(const struct zinf_attention &z, running &rows, int64_t b, int64_t head,
                        int64_t i, bool writes)
{
    UNROLL for (int r = 0; r < 2; r++)
    {
        rows.sum[r] += shuffle_xor(rows.sum[r], 1);
        rows.sum[r] += shuffle_xor(rows.sum[r], 2);
        if (writes && i + 8 * r < z.seq)
            z.lse[row_index(z, b, head, i + 8 * r)] = log_sum_of(rows.base[r] * LN_2, rows.sum[r]);
    }
}

/* What a lane has of row i and of the 8th behind it: the sums of values from column on, and the sum
 * of what it saw. It takes what calls before have left, or leaves it to the next one. */
template <int N>
DEVICE void move_rows(const running_rows &calls, const struct zinf_attention &z, float (&out)[N][4],
                      running &rows, int64_t b, int64_t head, int64_t i, int column, bool takes)
{
    const int first = lane_id() % 4;
    UNROLL for (int r = 0; r < 2; r++)
    {
        if (i + 8 * r >= z.seq)
            continue;
        float *numbers = numbers_of(calls, z, b, head, i + 8 * r);
        float *at = sums_of(calls, z, b, head, i + 8 * r) + column + 2 * first;
        if (takes) {
            rows.base[r] = numbers[0];
            rows.sum[r] = numbers[1 + first];
        } else if (column == 0) {
            if (first == 0)
                numbers[0] = rows.base[r]; /* which is that of all four lanes */
            numbers[1 + first] = rows.sum[r];
        }
        move_sums(at, out, r, (int)z.head_dim - column, takes);
    }
}

/* All rows of a lane, from row i on. */
template <int H, int N>
DEVICE void take_rows(const running_rows &calls, const struct zinf_attention &z,
                      float (&out)[H][N][4], running (&rows)[H], int64_t b, int64_t head, int64_t i,
                      int column)
{
    UNROLL for (int h = 0; h < H; h++) if (calls.resumes)
        move_rows(calls, z, out[h], rows[h], b, head, i + 16 * h, column, true);
}
template <int H, int N>
DEVICE bool leave_rows(const running_rows &calls, const struct zinf_attention &z,
                       float (&out)[H][N][4], running (&rows)[H], int64_t b, int64_t head,
                       int64_t i, int column)
{
    UNROLL for (int h = 0; h < H; h++) if (calls.leaves)
        move_rows(calls, z, out[h], rows[h], b, head, i + 16 * h, column, false);
    return calls.leaves;
}

/* q.k of a warp's rows, from mine on in the tile, becomes scores, -infinity where a key is not
 * seen. */
template <int ROWS_, int H, int N, class ARGS, class BESIDE>
DEVICE void finish_scores(const ARGS &a, float (&s)[H][N][4], const BESIDE &beside,
                          const int32_t *own, int mine, int64_t i, int64_t j, bool unseen)
{
    const int row = mine + lane_id() / 4;
    UNROLL for (int h = 0; h < H; h++)
        shape_scores(a, s[h], beside.bias + 2 * (lane_id() % 4) - (row + 16 * h) + ROWS_ - 1);
    mask_keys(a, s, own, beside.documents, mine, i, j, unseen);
}

/* Where any are dropped; row is the warp's row of this lane in the tile. The factor of those that
 * are kept comes at the end: 2^14 times a large one is no fp16. */
template <int KEYS>
DEVICE void drop_probabilities(const attention_args &a, float (&p)[KEYS / 8][4],
                               const uint32_t *mask, int row)
{
    if (!a.drops)
        return;
    UNROLL for (int n = 0; n < KEYS / 8; n++) UNROLL for (int e = 0; e < 4; e++)
    {
        const int key = n * 8 + 2 * (lane_id() % 4) + e % 2;
        p[n][e] = is_kept<KEYS>(mask, row + e / 2 * 8, key) ? p[n][e] : 0.0f;
    }
}

/* Scores of a warp's rows become exponentials, where `moves` by new bases, and sums and out follow.
 * True where a row may have had a score far above its base: then scores are to be made again. */
template <int H, int N, int M, class ARGS>
DEVICE bool add_exponentials(const ARGS &a, float (&s)[H][N][4], float (&out)[H][M][4],
                             running (&rows)[H], bool moves)
{
    float sum[H][2], largest = 0.0f;
    if (moves)
        UNROLL for (int h = 0; h < H; h++) move_bases(s[h], out[h], rows[h], scale_left(a));
    UNROLL for (int h = 0; h < H; h++)
    {
        make_exponentials(s[h], rows[h], sum[h], scale_left(a));
        largest += sum[h][0] + sum[h][1];
    }
    if (!moves && vote_warp(!(largest <= TOO_LARGE))) /* NaN, too */
        return true;
    UNROLL for (int h = 0; h < H; h++) UNROLL for (int r = 0; r < 2; r++) rows[h].sum[r] +=
        sum[h][r];
    return false;
}

/* A warp's rows, from i + mine on, and columns from column on go into the tile; the first of the
 * warps that share rows writes their lse. */
template <int H, int N, class T>
DEVICE void put_rows(const attention_args &a, T *tile, int pitch, float (&out)[H][N][4],
                     running (&rows)[H], int64_t b, int64_t head, int64_t i, int mine, int column)
{
    const float keep = a.drops ? a.rule.keep : 1.0f;
    UNROLL for (int h = 0; h < H; h++)
    {
        const int row = mine + 16 * h;
        finish_rows(a.z, rows[h], b, head, i + row + lane_id() / 4,
                    column == 0 && lane_id() % 4 == 0);
        put_results(tile + row * pitch + column, pitch, out[h], quotient_of(keep, rows[h].sum[0]),
                    quotient_of(keep, rows[h].sum[1]));
    }
}

/* Those of all warps, by way of the tile. */
template <int D, int ROWS_, int THREADS_, int H, int N, class T>
DEVICE void write_rows(const attention_args &a, T *tile, float (&out)[H][N][4], running (&rows)[H],
                       int64_t b, int64_t head, int64_t i, int mine, int column)
{
    sync_block(); /* every warp is done with the tiles */
    put_rows(a, tile, tile_of<T, D>::pitch, out, rows, b, head, i, mine, column);
    sync_block();
    store_head<T, D, ROWS_, THREADS_>(a.z, tile, out_rows<T>(a.z, a.z.out, b, head), i);
}

template <class T, int D, class ARGS>
KERNEL_BESIDE((forward_tile<D, ARGS>::threads), (forward_tile<D, ARGS>::blocks))
attention_mma_forward_kernel(ARGS a)
{
    if (!compiles<T>(D))
        return;
    SHARED_MEMORY(memory);
    typedef forward_tile<D, ARGS> tile;
    const int KEYS = tile::keys, THREADS_ = tile::threads, ROWS_ = tile::rows, H = tile::halves;
    const int COLUMNS = D / tile::split, pitch = tile_of<T, D>::pitch, PLACES = tile::places;
    __shared__ uint32_t mask[ROWS_ * words_of(KEYS)];
    __shared__ beside_tile<ARGS, ROWS_, KEYS, THREADS_> beside[2];
    __shared__ int32_t own[THREADS_];
    const struct zinf_attention &z = a.z;
    T *query = (T *)memory;
    const int64_t i = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * (int64_t)ROWS_;
    const int64_t head = blockIdx.y, b = blockIdx.z, kv = kv_head_of(z, head);
    const block_steps all = steps_of_block(a, i, ROWS_, KEYS);
    const auto tiles = key_tiles_of<T, D, KEYS, THREADS_>(a, b, kv);
    const int warp = threadIdx.x / 32, column = warp / tile::row_warps * COLUMNS;
    const int mine = warp % tile::row_warps * 16 * H, row = mine + lane_id() / 4;
    const warp_steps steps = steps_of(a, i + mine, 16 * H, KEYS);
    const lane_rows first = lane_rows_of<true>(query, pitch, column); /* if keys began there */
    bool moves = true;                                                /* in the warp's first step */
    running rows[H];
    left_rows<D, tile::held> left[H];
    float out[H][COLUMNS / 8][4] = {};
    auto fetch = [&](int n) {
        fetch_step(z, query + step_place<T, D, ARGS>(n - all.begin), tiles, n * KEYS);
        fetch_beside(a, beside[n % 2], keys_from(a, b, n * KEYS), head, i, n * KEYS);
    };
    fetch_head<T, D, ROWS_, THREADS_>(z, query, query_rows<const T>(a, z.qkv, b, head), i);
    fetch_documents(a, own, queries_from(z, b, i));
    take_rows(running_of(a), z, out, rows, b, head, i + row, column);
    wait_copies();
    sync_block();
    hold(left, query + mine * pitch, pitch);
    begin_loop<PLACES>(all.begin, all.end, fetch);
    for (int n = all.begin; n < all.end; n++) {
        const int64_t j = (int64_t)n * KEYS;
        const int place = bytes_of<T>(step_place<T, D, ARGS>(n - all.begin));
        const bool unseen = has_unseen(steps, n) | has_documents(a);
        float s[H][KEYS / 8][4];
        begin_step<PLACES>(n, all.end, fetch);
        if (a.drops)
            make_mask<ROWS_, KEYS, THREADS_>(a, mask, b, head, i, j);
        sync_where(a.drops);
        if (n >= steps.end) /* ahead of all rows of the warp */
            continue;
        do {
            clear(s);
            multiply_rows<T>(s, left, first.by_key + place, pitch);
            finish_scores<ROWS_>(a, s, beside[n % 2], own, mine, i, j, unseen);
            moves = add_exponentials(a, s, out, rows, tile::looks || moves);
        } while (moves);
        UNROLL for (int h = 0; h < H; h++) drop_probabilities<KEYS>(a, s[h], mask, row + 16 * h);
        multiply_results<T>(out, s, first.by_row + bytes_of<T>(KEYS * pitch) + place, pitch);
    }
    if (!leave_rows(running_of(a), z, out, rows, b, head, i + row, column))
        write_rows<D, ROWS_, THREADS_>(a, query, out, rows, b, head, i, mine, column);
}

template <class T, int D, class ARGS>
static cudaError_t forward_of(cudaStream_t stream, const ARGS &args)
{
    typedef forward_tile<D, ARGS> tile;
    const size_t bytes = (size_t)tile::shared_rows * tile_of<T, D>::bytes_per_row;
    return launch(known<attention_mma_forward_kernel<T, D, ARGS>>(),
                  head_grid(&args.z, args.z.n_heads, args.z.seq, tile::rows), dim3(tile::threads),
                  bytes, stream, args);
}

cudaError_t launch_attention_mma_forward(cudaStream_t stream, const struct zinf_attention *z)
{
    BY_SHAPE(z, NULL, BY_HEAD(z, return (forward_of<T, D>(stream, args))));
}

/* sm_75 has fp16 alone, and too little shared memory and too few registers for wide heads; no
 * generation has enough for biases of heads of more than 256. Rows are read 16 bytes at a time. The
 * largest score is the largest scaled one. */
bool attention_mma_serves(const struct zinf_attention *z, int capability)
{
    if (z->dtype == ZINF_DTYPE_F32 || z->head_dim % 8 || (z->bias && z->head_dim > 256) ||
        !(z->scale > 0.0f) || !aligned16(z->qkv) || !aligned16(z->kv) || !aligned16(z->out) ||
        !aligned16(z->d_out) || !aligned16(z->d_qkv) || !aligned16(z->d_kv))
        return false;
    return capability >= 80 ||
           (capability >= 75 && z->dtype == ZINF_DTYPE_F16 && z->head_dim <= 64);
}
