/*
 * attention_mma_backward: the gradients of attention on tensor cores, in two kernels that both
 * make the scores again. One has a block for 64 keys and walks query tiles with everything
 * transposed (keys are the rows), so that P^T and dS^T are operands of dV and dK as they come; the
 * other has a block for 64 queries and walks key tiles for dQ. 7 products where one kernel would
 * need 5, but no two blocks ever add to the same place: the bits repeat.
 *
 * No branch depends on a single score: scores that a row does not see are set to -infinity before,
 * in tiles where there are any, and kernels with and without dropout are compiled apart; those of
 * capped and shaped scores choose by the tile. Without dropout dQ's sums dO.v begin at -delta.
 */
#include "kernels/cuda/attention_mma_gradient.cuh"

enum { DQ_THREADS = 128 };

/* A head of 256 has too many sums for one warp: two warps share 16 keys, half the columns each. Of
 * one of 512 it is four, and shared memory has room for 16 keys. */
template <int D> struct dkv_tile {
    static const int split = D <= 128 ? 1 : D <= 256 ? 2 : 4, rows = D <= 128 ? 32 : 16;
    static const int key_warps = D <= 256 ? 4 : 1, keys = 16 * key_warps;
    static const int threads = 32 * key_warps * split, places = D <= 128 ? 2 : 1;
    /* Keys and values that are held in registers leave their tiles to the steps' queries. */
    static const bool held = D <= 64;
    static const int walked = held ? 0 : 2 * keys; /* where steps begin, in rows */
};

/* Blocks beside each other: scores that are more than scaled take more registers. */
template <class T, int D, class ARGS> struct dkv_blocks {
    static const int n = D <= 64 ? 2 : 1;
};
template <class T, int D> struct dkv_blocks<T, D, attention_args> {
    static const int n = tile_of<T, D>::blocks;
};

/* Tiles of 32 keys of 256 would leave sm_86 no shared memory for the mask, and those of 64 would
 * leave sm_75 and sm_120 no registers beside 32 rows a warp. */
template <int D, class ARGS> struct dq_tile {
    static const int halves = warp_halves<D, ARGS>::n;
    static const int keys = D > 128 || (D == 64 && halves == 2) ? 16 : 32;
    static const int row_warps = D <= 256 ? 4 : 1, split = 4 / row_warps;
    static const int rows = 16 * halves * row_warps, places = D <= 128 ? 2 : 1;
    static const int blocks = D <= 64 ? (halves == 1 ? 3 : 2) : 1; /* beside each other */
    /* Rows that are held in registers leave their tiles to keys. */
    static const bool held = D <= 64;
    static const int walked = held ? 0 : 2 * rows; /* where keys begin, in rows */
    static const int ends = walked + 2 * places * keys;
    static const int shared_rows = ends > 2 * rows ? ends : 2 * rows;
};

/* ---- dK and dV ---- */

/* What a step of the loop over queries has in shared memory. */
template <class T, int D> struct dkv_step {
    static const int rows = dkv_tile<D>::rows, elems = rows * tile_of<T, D>::pitch;
    T query[elems], d_out[elems];
    float stats[2 * rows]; /* lse, delta */
};

/* Rows of a head that begin at i: where the steps of a block are. */
template <class T, int D> struct row_tiles {
    whole_tiles<T, D, dkv_tile<D>::threads> queries, d_outs; /* of the block's first head */
    const float *stats; /* where a thread finds its row's lse or delta, of row 0 */
};
template <class T, int D, class ARGS>
DEVICE row_tiles<T, D> row_tiles_of(const ARGS &a, int64_t b, int64_t head)
{
    const int ROWS_ = dkv_tile<D>::rows, THREADS_ = dkv_tile<D>::threads;
    const struct zinf_attention &z = a.z;
    const float *stats = (int)threadIdx.x < ROWS_ ? z.lse : a.delta;
    row_tiles<T, D> some;
    some.queries = whole_tiles_of<T, D, THREADS_>(z, query_rows<const T>(a, z.qkv, b, head));
    some.d_outs = whole_tiles_of<T, D, THREADS_>(z, out_rows<const T>(z, z.d_out, b, head));
    some.d_outs.place = some.queries.place;
    stats += row_index(z, b, head, 0) + threadIdx.x % ROWS_;
    some.stats = stats;
    return some;
}

template <class T, int D, class ARGS>
DEVICE void fetch_queries(const ARGS &a, dkv_step<T, D> *step, const row_tiles<T, D> &from,
                          int64_t b, int first_head, int heads, int i)
{
    const int ROWS_ = dkv_tile<D>::rows, THREADS_ = dkv_tile<D>::threads, e = threadIdx.x % ROWS_;
    const struct zinf_attention &z = a.z;
    const float *stats = from.stats + ((int64_t)heads * (int)z.seq + i);
    const bool wanted = i + e < z.seq;
    if (i + ROWS_ <= from.queries.end) {
        const int64_t apart = (int64_t)heads * (D * (int)sizeof(T));
        fetch_whole<ROWS_>(from.queries, step->query, i, apart);
        fetch_whole<ROWS_>(from.d_outs, step->d_out, i, apart);
        if (threadIdx.x < 2 * ROWS_)
            copy_async<4>(step->stats + threadIdx.x, stats, true);
    } else {
        const int64_t head = first_head + heads;
        const head_rows<const T> queries = query_rows<const T>(a, z.qkv, b, head);
        fetch_head<T, D, ROWS_, THREADS_>(z, step->query, queries, i);
        fetch_head<T, D, ROWS_, THREADS_>(z, step->d_out, out_rows<const T>(z, z.d_out, b, head),
                                          i);
        if (threadIdx.x < 2 * ROWS_)
            copy_async<4>(step->stats + threadIdx.x, wanted ? stats : z.lse, wanted);
    }
}

/* Of a lane's rows of a step, two of each 8. */
template <int N> DEVICE void load_rows(float (&to)[N][2], const float *stats)
{
    UNROLL for (int n = 0; n < N; n++) load_pair(to[n], stats + n * 8 + 2 * (lane_id() % 4));
}

/* From row i on, the first and the last at which a tile's rows see all of a warp's keys, from j on.
 */
struct whole_rows {
    int first, last;
};
DEVICE bool has_unseen(const whole_rows &rows, int i)
{
    return (i < rows.first) | (i > rows.last);
}
template <class ARGS> DEVICE whole_rows rows_that_see(const ARGS &a, int64_t j, int keys, int rows)
{
    const struct zinf_attention &z = a.z;
    const int64_t diagonal = j - ahead_of(a), nearest = diagonal + keys - 1;
    const int64_t end = end_of_rows(a, j) - rows; /* of the window and of the sequence */
    whole_rows whole;
    whole.first = kept(z.causal ? (int)at_least(nearest, 0) : 0);
    whole.last = kept(j + keys > n_keys(a) ? -1 : (int)at_least(end, -1));
    return whole;
}

/* Scores of keys (a lane's first is key) that rows from i on may not see become -infinity. */
template <int N, class ARGS>
DEVICE void mask_rows(const ARGS &a, float (&s)[N][4], int64_t i, int64_t key)
{
    const struct zinf_attention &z = a.z;
    const int first = 2 * (lane_id() % 4);
    UNROLL for (int r = 0; r < 2; r++)
    {
        const int64_t k = key + 8 * r, row = k - ahead_of(a);
        const int64_t since = z.causal && row > i ? row - i : 0, end = end_of_rows(a, k) - i;
        const int from = k < n_keys(a) && since < 8 * N ? (int)since : 8 * N;
        const int to = end < 8 * N ? (int)end : 8 * N;
        UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 2; e++)
        {
            const int row = n * 8 + first + e;
            s[n][2 * r + e] = row >= from && row < to ? s[n][2 * r + e] : -INFINITY;
        }
    }
}

/* All that the tile's rows do not see of a warp's keys, where there are such: key is the lane's
 * first in the block. */
template <int N, class ARGS>
DEVICE void mask_queries(const ARGS &a, float (&s)[N][4], const int32_t *own,
                         const int32_t *documents, int key, int64_t i, int64_t j, bool unseen)
{
    if (unseen) {
        mask_rows(a, s, i, j + key);
        mask_documents(a, s, own + key, documents);
    }
}

/* What a warp's scores and dp become. */
template <bool DROPS, int KEYS, int N, class ARGS>
DEVICE void dkv_gradients_of(const ARGS &a, const float *stats, const warp_part &part,
                             float (&s)[N][4], float (&dp)[N][4])
{
    const int g = lane_id() / 4, t = lane_id() % 4;
    float lse[N][2], delta[N][2];
    load_rows(lse, stats);
    load_rows(delta, stats + 8 * N);
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++)
    {
        int row = n * 8 + 2 * t + e % 2, k = part.first + g + e / 2 * 8;
        float factor = DROPS ? mask_factor<KEYS>(a, part.mask, row, k) : 1.0f;
        score_row at = {lse[n][e % 2] * LOG2_E, delta[n][e % 2], factor};
        const float beside = bias_beside(a, part.bias, e / 2 * 8 - n * 8 - e % 2);
        gradient(a, beside, at, DROPS, s[n][e], dp[n][e]);
    }
}
template <bool DROPS, int KEYS, int N, class ARGS>
DEVICE void dkv_gradients(const ARGS &a, const float *stats, const warp_part &part, bool unseen,
                          float (&s)[N][4], float (&dp)[N][4])
{
    if (drops<DROPS>(a)) {
        dkv_gradients_of<true, KEYS>(a, stats, part, s, dp);
        return;
    }
    dkv_gradients_of<false, KEYS>(a, stats, part, s, dp);
    if (unseen)
        clear_unseen(s, dp);
}

/* Whether gradients are added to fp32 sums, and a head's rows there. */
DEVICE bool adds_sums(const attention_args &)
{
    return false;
}
DEVICE bool adds_sums(const shaped_args &a)
{
    return a.z.d_kv_sums != NULL;
}
template <class ARGS> DEVICE head_rows<float> sum_rows(const ARGS &a, int64_t b, int64_t kv)
{
    return key_rows<float>(a, a.z.d_kv_sums, b, kv);
}

/* A warp's 16 x 8 N result times a factor, added to rows from first and columns from column on. */
template <int N>
DEVICE void add_results(const struct zinf_attention &z, const float (&c)[N][4], float factor,
                        head_rows<float> to, int64_t first, int column)
{
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++)
    {
        const int64_t row = first + lane_id() / 4 + e / 2 * 8;
        const int col = column + n * 8 + 2 * (lane_id() % 4) + e % 2;
        if (row < to.rows && col < z.head_dim)
            to.base[row * to.stride + col] += c[n][e] * factor;
    }
}

/* The head of a sample whose keys a block has, and its first key. */
struct keys_place {
    int64_t b, kv, j;
};

/* Gradients of a block's keys and values, of which a warp has rows from mine and columns from
 * column on, go where they are wanted, by way of the tiles. */
template <class T, int D, int N, class ARGS>
DEVICE void finish_keys(const ARGS &a, T *key, const float (&d_key)[N][4],
                        const float (&d_value)[N][4], const keys_place &block, int mine, int column)
{
    /* worked out anew: nothing for it takes registers from the loop before */
    const keys_place at = {kept(block.b), kept(block.kv), kept(block.j)};
    const int KEYS = dkv_tile<D>::keys, THREADS_ = dkv_tile<D>::threads;
    const int pitch = tile_of<T, D>::pitch;
    const struct zinf_attention &z = a.z;
    const int64_t kv_value = at.kv + z.n_kv_heads;
    T *value = key + KEYS * pitch;
    if (adds_sums(a)) {
        add_results(z, d_key, z.scale, sum_rows(a, at.b, at.kv), at.j + mine, column);
        add_results(z, d_value, 1.0f, sum_rows(a, at.b, kv_value), at.j + mine, column);
        return;
    }
    sync_block(); /* every warp is done with the tiles */
    put_results(key + mine * pitch + column, pitch, d_key, z.scale, z.scale);
    put_results(value + mine * pitch + column, pitch, d_value, 1.0f, 1.0f);
    sync_block();
    store_head<T, D, KEYS, THREADS_>(z, key, key_rows<T>(a, d_keys_in(a), at.b, at.kv), at.j);
    store_head<T, D, KEYS, THREADS_>(z, value, key_rows<T>(a, d_keys_in(a), at.b, kv_value), at.j);
}

/* A step of the walk over queries: how many heads behind the first, and the tile's first row. */
struct query_step {
    int heads, i;
};
/* To the next rows of a head, or to the first ones of the next head; returns where it was. */
DEVICE query_step go_on(query_step &step, int rows, int first, int end)
{
    const query_step before = step;
    step.i += rows;
    if (step.i >= end) {
        step.i = first;
        step.heads++;
    }
    return before;
}
/* Begins step n and returns where it is: what was fetched last, of two places before the next one
 * is.
 */
template <int PLACES, class Fetch>
DEVICE query_step begin_queries(int n, int n_steps, const query_step &fetched, const Fetch &fetch)
{
    const query_step before = fetched;
    begin_step<PLACES>(n, n_steps, fetch);
    return PLACES == 2 ? before : fetched;
}

template <class T, int D, bool DROPS, class ARGS>
KERNEL_BESIDE(dkv_tile<D>::threads, (dkv_blocks<T, D, ARGS>::n))
attention_mma_dkv_kernel(ARGS a)
{
    if (!compiles<T>(D))
        return;
    SHARED_MEMORY(memory);
    typedef dkv_tile<D> tile;
    const int ROWS_ = tile::rows, N = ROWS_ / 8, COLUMNS = D / tile::split, KEYS = tile::keys;
    const int THREADS_ = tile::threads, pitch = tile_of<T, D>::pitch, PLACES = tile::places;
    __shared__ uint32_t mask[DROPS ? ROWS_ * words_of(KEYS) : 1];
    __shared__ beside_tile<ARGS, ROWS_, KEYS, THREADS_> beside[2];
    __shared__ int32_t own[THREADS_];
    const struct zinf_attention &z = a.z;
    T *key = (T *)memory, *value = key + KEYS * pitch;
    dkv_step<T, D> *steps = (dkv_step<T, D> *)(key + tile::walked * pitch);
    const int64_t j = (int64_t)blockIdx.x * KEYS, kv = blockIdx.y, b = blockIdx.z;
    const int group = (int)(z.n_heads / z.n_kv_heads), first_head = (int)kv * group;
    const int first = (int)first_row(a, j), end = (int)end_of_rows(a, j + KEYS - 1);
    const int n_steps = group * ((end - first + ROWS_ - 1) / ROWS_);
    const int warp = threadIdx.x / 32, column = warp / tile::key_warps * COLUMNS;
    const int mine = warp % tile::key_warps * 16;
    float d_key[1][COLUMNS / 8][4] = {}, d_value[1][COLUMNS / 8][4] = {};
    left_rows<D, tile::held> keys[1], values[1];
    query_step next = {0, first}, fetched = next;
    const row_tiles<T, D> tiles = row_tiles_of<T, D>(a, b, first_head);
    const whole_rows whole = rows_that_see(a, j + mine, 16, ROWS_);
    const lane_rows lane = lane_rows_of<tile::held>(steps->query, pitch, column); /* of step 0 */
    const int to_d_out = bytes_of<T>(dkv_step<T, D>::elems);
    auto fetch = [&](int n) {
        fetch_queries<T, D>(a, steps + n % PLACES, tiles, b, first_head, next.heads, next.i);
        const int head = first_head + next.heads;
        fetch_beside(a, beside[n % 2], queries_from(z, b, next.i), head, next.i, j);
        fetched = go_on(next, ROWS_, first, end);
    };
    fetch_pair<T, D, KEYS, THREADS_>(z, key, key_rows<const T>(a, keys_in(a), b, kv),
                                     key_rows<const T>(a, keys_in(a), b, kv + z.n_kv_heads), j);
    fetch_documents(a, own, keys_from(a, b, j));
    wait_copies();
    sync_block();
    hold(keys[0], key + mine * pitch, pitch);
    hold(values[0], value + mine * pitch, pitch);
    sync_where(tile::held); /* by every warp: their tiles are the steps' */
    begin_loop<PLACES>(0, n_steps, fetch);
    for (int n = 0; n < n_steps; n++) {
        const int place = n % PLACES * (int)sizeof *steps;
        float s[1][N][4] = {}, dp[1][N][4] = {};
        const query_step now = begin_queries<PLACES>(n, n_steps, fetched, fetch);
        const bool unseen = has_unseen(whole, now.i) | has_documents(a);
        begin_mask<DROPS, ROWS_, KEYS, THREADS_>(a, mask, b, first_head + now.heads, now.i, j);
        multiply_rows<T>(s, keys, lane.by_key + place, pitch);
        multiply_rows<T>(dp, values, lane.by_key + to_d_out + place, pitch);
        const int lane_key = mine + lane_id() / 4;
        mask_queries(a, s[0], own, beside[n % 2].documents, lane_key, now.i, j, unseen);
        const float *bias = bias_at<ROWS_>(beside[n % 2], lane_key, 2 * (lane_id() % 4));
        const float *stats = steps[n % PLACES].stats;
        dkv_gradients<DROPS, KEYS>(a, stats, {mask, mine, bias}, unseen, s[0], dp[0]);
        multiply_results<T>(d_value, s, lane.by_row + to_d_out + place, pitch);
        multiply_results<T>(d_key, dp, lane.by_row + place, pitch);
    }
    finish_keys<T, D>(a, key, d_key[0], d_value[0], {b, kv, j}, mine, column);
}

/* ---- dQ ---- */

/* A lane's sums in row i and in the rows of its other parts, from column on: takes what calls over
 * other keys have left, or leaves them to the next one. */
template <int H, int N>
DEVICE void move_queries(const running_rows &calls, const struct zinf_attention &z,
                         float (&d_query)[H][N][4], int64_t b, int64_t head, int64_t i, int column,
                         bool takes)
{
    UNROLL for (int h = 0; h < H; h++) UNROLL for (int r = 0; r < 2; r++)
    {
        const int64_t row = i + 16 * h + 8 * r;
        float *at = sums_of(calls, z, b, head, row) + column + 2 * (lane_id() % 4);
        if (row < z.seq)
            move_sums(at, d_query[h], r, (int)z.head_dim - column, takes);
    }
}

struct queries_place {
    int64_t b, head, i;
};

/* Stores a block's gradients by way of the tile `query`, or leaves a warp's sums, from row `mine`
 * of the block and from column on, to the call over the keys that follow. */
template <class T, int D, int ROWS_, int H, int N, class ARGS>
DEVICE void finish_queries(const ARGS &a, T *query, float (&d_query)[H][N][4],
                           const queries_place &block, int mine, int column)
{
    const struct zinf_attention &z = a.z;
    const int pitch = tile_of<T, D>::pitch;
    if (running_of(a).leaves) {
        const int64_t row = block.i + mine + lane_id() / 4;
        move_queries(running_of(a), z, d_query, block.b, block.head, row, column, false);
        return;
    }
    sync_block();
    put_scaled(query + mine * pitch + column, pitch, d_query, z.scale);
    sync_block();
    store_head<T, D, ROWS_, DQ_THREADS>(z, query, query_rows<T>(a, z.d_qkv, block.b, block.head),
                                        block.i);
}

template <class T, int D, bool DROPS, class ARGS>
KERNEL_BESIDE(DQ_THREADS, (dq_tile<D, ARGS>::blocks))
attention_mma_dq_kernel(ARGS a)
{
    if (!compiles<T>(D))
        return;
    SHARED_MEMORY(memory);
    typedef dq_tile<D, ARGS> tile;
    const int KEYS = tile::keys, N = KEYS / 8, pitch = tile_of<T, D>::pitch;
    const int PLACES = tile::places, ROWS_ = tile::rows, H = tile::halves;
    __shared__ uint32_t mask[DROPS ? ROWS_ * words_of(KEYS) : 1];
    __shared__ beside_tile<ARGS, ROWS_, KEYS, DQ_THREADS> beside[2];
    __shared__ int32_t own[DQ_THREADS];
    const struct zinf_attention &z = a.z;
    T *query = (T *)memory, *d_out = query + ROWS_ * pitch, *tiles = query + tile::walked * pitch;
    const int64_t i = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * (int64_t)ROWS_;
    const int64_t head = blockIdx.y, b = blockIdx.z, kv = kv_head_of(z, head);
    const block_steps all = steps_of_block(a, i, ROWS_, KEYS);
    const auto from = key_tiles_of<T, D, KEYS, DQ_THREADS>(a, b, kv);
    const int warp = threadIdx.x / 32, column = warp / tile::row_warps * (D / tile::split);
    const int mine = warp % tile::row_warps * 16 * H;
    float d_query[H][D / tile::split / 8][4] = {};
    left_rows<D, tile::held> queries[H], d_outs[H];
    row_stats stats[H];
    const warp_steps mine_of = steps_of(a, i + mine, 16 * H, KEYS);
    const lane_rows step = lane_rows_of<true>(tiles, pitch, column); /* the first one's */
    auto fetch = [&](int n) {
        fetch_step(z, tiles + n % PLACES * 2 * KEYS * pitch, from, n * KEYS);
        fetch_beside(a, beside[n % 2], keys_from(a, b, n * KEYS), head, i, n * KEYS);
    };
    fetch_head<T, D, ROWS_, DQ_THREADS>(z, query, query_rows<const T>(a, z.qkv, b, head), i);
    fetch_head<T, D, ROWS_, DQ_THREADS>(z, d_out, out_rows<const T>(z, z.d_out, b, head), i);
    fetch_documents(a, own, queries_from(z, b, i));
    wait_copies();
    sync_block();
    hold(queries, query + mine * pitch, pitch);
    hold(d_outs, d_out + mine * pitch, pitch);
    load_stats(a, b, head, i + mine, stats);
    if (running_of(a).resumes)
        move_queries(running_of(a), z, d_query, b, head, i + mine + lane_id() / 4, column, true);
    sync_where(tile::held); /* by every warp: their tiles are the keys' */
    begin_loop<PLACES>(all.begin, all.end, fetch);
    for (int n = all.begin; n < all.end; n++) {
        const int64_t j = (int64_t)n * KEYS;
        const int place = n % PLACES * bytes_of<T>(2 * KEYS * pitch);
        const bool unseen = has_unseen(mine_of, n) | has_documents(a);
        float s[H][N][4] = {}, dp[H][N][4];
        begin_step<PLACES>(n, all.end, fetch);
        begin_mask<DROPS, ROWS_, KEYS, DQ_THREADS>(a, mask, b, head, i, j);
        if (n >= mine_of.end) /* ahead of all rows of the warp */
            continue;
        begin_sums<DROPS>(a, stats, dp);
        multiply_rows<T>(s, queries, step.by_key + place, pitch);
        multiply_rows<T>(dp, d_outs, step.by_key + bytes_of<T>(KEYS * pitch) + place, pitch);
        mask_keys(a, s, own, beside[n % 2].documents, mine, i, j, unseen);
        warp_gradients<DROPS, ROWS_>(a, stats, mask, mine, beside[n % 2], unseen, s, dp);
        multiply_results<T>(d_query, dp, step.by_row + place, pitch);
    }
    finish_queries<T, D, ROWS_>(a, query, d_query, {b, head, i}, mine, column);
}

/* ---- launches ---- */

template <class T, int D, bool DROPS, class ARGS>
static cudaError_t backward_of(cudaStream_t stream, const ARGS &args)
{
    typedef dq_tile<D, ARGS> tile;
    const size_t row_bytes = tile_of<T, D>::bytes_per_row, keys = 2 * dkv_tile<D>::keys * row_bytes;
    const size_t walked =
        dkv_tile<D>::walked * row_bytes + dkv_tile<D>::places * sizeof(dkv_step<T, D>);
    const struct zinf_attention *z = &args.z;
    const dim3 blocks = head_grid(z, z->n_kv_heads, zinf_attention_keys(z), dkv_tile<D>::keys);
    cudaError_t error =
        launch(known<attention_mma_dkv_kernel<T, D, DROPS, ARGS>>(), blocks,
               dim3(dkv_tile<D>::threads), walked > keys ? walked : keys, stream, args);
    if (error != cudaSuccess)
        return error;
    return launch(known<attention_mma_dq_kernel<T, D, DROPS, ARGS>>(),
                  head_grid(z, z->n_heads, z->seq, tile::rows), dim3(DQ_THREADS),
                  (size_t)tile::shared_rows * row_bytes, stream, args);
}

static cudaError_t backward_by_dropout(cudaStream_t stream, const attention_args &args)
{
    if (args.drops)
        BY_HEAD(&args.z, return (backward_of<T, D, true>(stream, args)));
    BY_HEAD(&args.z, return (backward_of<T, D, false>(stream, args)));
}
template <class ARGS> static cudaError_t backward_by_dropout(cudaStream_t stream, const ARGS &args)
{
    BY_HEAD(&args.z, return (backward_of<T, D, true>(stream, args)));
}

cudaError_t launch_attention_mma_backward(cudaStream_t stream, const float *delta,
                                          const struct zinf_attention *z)
{
    BY_SHAPE(z, delta, return backward_by_dropout(stream, args));
}
