/*
 * attention_plain: what the kernels on CUDA cores share: tiles of rows in shared memory, products
 * of them, and the probabilities and their gradients for one pair of tiles.
 */
#ifndef ZINF_CUDA_ATTENTION_PLAIN_CUH
#define ZINF_CUDA_ATTENTION_PLAIN_CUH

#include "kernels/cuda/attention.cuh"

enum { PLAIN_THREADS = 256, SUMS = 8 };

/* A tile in shared memory: [TILE][pitch] fp32; a pitch of head_dim + 1 spreads rows over banks. */
struct shared_tile {
    float *at;
    int pitch;
};

DEVICE float load_float(const void *base, enum zinf_dtype dtype, int64_t i)
{
    if (dtype == ZINF_DTYPE_F32)
        return ((const float *)base)[i];
    return dtype == ZINF_DTYPE_BF16 ? to_float(((const bf16 *)base)[i])
                                    : to_float(((const f16 *)base)[i]);
}

DEVICE void store_float(void *base, enum zinf_dtype dtype, int64_t i, float x)
{
    if (dtype == ZINF_DTYPE_F32)
        ((float *)base)[i] = x;
    else if (dtype == ZINF_DTYPE_BF16)
        from_float(((bf16 *)base)[i], x);
    else
        from_float(((f16 *)base)[i], x);
}

/* Element offset of a head's first row, the distance of rows, as head_rows has them, and how many
 * there are. */
struct head_place {
    int64_t offset, stride, rows;
};

/* Of a sample's rows of so many heads. */
DEVICE head_place place_of(const struct zinf_attention &z, int64_t b, int64_t rows,
                           int64_t row_heads, int64_t head)
{
    int64_t stride = row_heads * z.head_dim;
    head_place place = {b * rows * stride + head * z.head_dim, stride, rows};
    return place;
}

DEVICE head_place query_place(const struct zinf_attention &z, int64_t b, int64_t head)
{
    return place_of(z, b, z.seq, z.n_heads + (z.key_seq ? 0 : 2 * z.n_kv_heads), head);
}

/* In keys_and_values. */
DEVICE head_place key_place(const struct zinf_attention &z, int64_t b, int64_t kv)
{
    const int64_t before = z.key_seq ? 0 : z.n_heads;
    return place_of(z, b, keys_of(z), before + 2 * z.n_kv_heads, before + kv);
}
DEVICE head_place value_place(const struct zinf_attention &z, int64_t b, int64_t kv)
{
    return key_place(z, b, z.n_kv_heads + kv);
}
DEVICE const void *keys_and_values(const struct zinf_attention &z)
{
    return z.key_seq ? z.kv : z.qkv;
}
DEVICE void *d_keys_and_values(const struct zinf_attention &z)
{
    return z.key_seq ? z.d_kv : z.d_qkv;
}

DEVICE head_place out_place(const struct zinf_attention &z, int64_t b, int64_t head)
{
    return place_of(z, b, z.seq, z.n_heads, head);
}

/* Rows first .. first + TILE - 1 of a head; zeros outside of the sequence. */
template <int TILE>
DEVICE void load_tile(const struct zinf_attention &z, shared_tile tile, const void *base,
                      head_place place, int64_t first)
{
    int d = (int)z.head_dim;
    for (int e = threadIdx.x; e < TILE * d; e += PLAIN_THREADS) {
        int64_t row = first + e / d;
        tile.at[e / d * tile.pitch + e % d] =
            row >= 0 && row < place.rows
                ? load_float(base, z.dtype, place.offset + row * place.stride + e % d)
                : 0.0f;
    }
}

/* Sum number k of this thread belongs to element threadIdx.x + k * PLAIN_THREADS of a result
 * [TILE][head_dim]. Where a row of the result has its first factor on the left, and its column on
 * the right; those beyond the result have the last element's. The walk over TILE is outside, the
 * sums inside: unrolled by both it would take the compiler minutes. */
struct sum_place {
    int row[SUMS], col[SUMS];
};
template <int TILE> DEVICE void place_sums(sum_place &place, int d)
{
    UNROLL for (int k = 0; k < SUMS; k++)
    {
        const int e = threadIdx.x + k * PLAIN_THREADS, last = TILE * d - 1;
        place.row[k] = (e < last ? e : last) / d;
        place.col[k] = (e < last ? e : last) % d;
    }
}

/* sums += left right over TILE, left [TILE][TILE] by rows or columns. */
template <int TILE>
DEVICE void add_product(const struct zinf_attention &z, float (&sums)[SUMS], const float *left,
                        bool by_columns, shared_tile right)
{
    const int d = (int)z.head_dim, down = by_columns ? 1 : TILE + 1, along = TILE + 2 - down;
    sum_place place;
    place_sums<TILE>(place, d);
    UNROLL_4 for (int j = 0; j < TILE; j++)
        UNROLL for (int k = 0; k < SUMS; k++)
            if (k * PLAIN_THREADS < TILE * d)
                sums[k] += left[place.row[k] * down + j * along] *
                           right.at[j * right.pitch + place.col[k]];
}

template <int TILE>
DEVICE void store_sums(const struct zinf_attention &z, const float (&sums)[SUMS], float factor,
                       void *base, head_place place, int64_t first)
{
    int d = (int)z.head_dim;
    UNROLL for (int k = 0; k < SUMS; k++)
    {
        int e = threadIdx.x + k * PLAIN_THREADS;
        int64_t row = first + e / d;
        if (e < TILE * d && row < place.rows)
            store_float(base, z.dtype, place.offset + row * place.stride + e % d, sums[k] * factor);
    }
}

/* The same added to fp32 sums. */
template <int TILE>
DEVICE void add_sums(const struct zinf_attention &z, const float (&sums)[SUMS], float factor,
                     head_place place, int64_t first)
{
    int d = (int)z.head_dim;
    UNROLL for (int k = 0; k < SUMS; k++)
    {
        int e = threadIdx.x + k * PLAIN_THREADS;
        int64_t row = first + e / d;
        if (e < TILE * d && row < place.rows)
            z.d_kv_sums[place.offset + row * place.stride + e % d] += sums[k] * factor;
    }
}

DEVICE float dot(const struct zinf_attention &z, shared_tile a, int i, shared_tile b, int j)
{
    float sum = 0.0f;
    for (int c = 0; c < (int)z.head_dim; c++)
        sum += a.at[i * a.pitch + c] * b.at[j * b.pitch + c];
    return sum;
}

/* ---- what is added to the scores of a pair of tiles ---- */

/* Queries i + r and keys j + c of a head. With relative positions, rows is where those of a table
 * lie, for every distance in the tiles: number r - c + TILE - 1 of them. */
struct tile_pair {
    int64_t head, i, j;
    shared_tile query, key, rows; /* rows: 2 TILE of them */
    float *scores;                /* [TILE][TILE + 1] */
    bool queries_last;            /* rows are left with those of `queries`, else of `keys` */
};

/* Waits for the tiles that the block has begun to load; then all may read them. */
template <int TILE> DEVICE void begin_scores(const attention_args &, const tile_pair &)
{
    sync_block();
}
template <int TILE>
DEVICE float beside_of(const attention_args &a, const tile_pair &pair, int r, int c)
{
    return distance_bias_of(a.z, pair.head, pair.i + r, pair.j + c);
}

/* Zeros where the call has no such queries and keys, and where there is no table. */
template <int TILE, class BASE>
DEVICE void load_rows(const relative_of<BASE> &a, const tile_pair &pair, const void *table)
{
    const int d = (int)a.z.head_dim;
    for (int e = threadIdx.x; e < 2 * TILE * d; e += PLAIN_THREADS) {
        const int64_t apart = pair.i - pair.j + e / d - (TILE - 1);
        float x = 0.0f;
        if (table && apart > -n_keys(a) && apart < a.z.seq) {
            const int64_t row = a.at[apart + n_keys(a) - 1];
            x = load_float(table, a.z.dtype, row * a.r.ld + pair.head * d + e % d);
        }
        pair.rows.at[e / d * pair.rows.pitch + e % d] = x;
    }
}

/* And makes queries times rows of `keys` plus keys times rows of `queries` in pair.scores, one
 * table after the other: shared memory has room for the rows of one. A thread makes the scores
 * that it will read. */
template <int TILE, class BASE>
DEVICE void begin_scores(const relative_of<BASE> &a, const tile_pair &pair)
{
    NO_UNROLL for (int term = 0; term < 2; term++)
    {
        const bool of_queries = pair.queries_last == (term == 1);
        const shared_tile one = of_queries ? pair.key : pair.query;
        if (term)
            sync_block();
        load_rows<TILE>(a, pair, of_queries ? a.r.queries : a.r.keys);
        sync_block();
        for (int e = threadIdx.x; e < TILE * TILE; e += PLAIN_THREADS) {
            const int r = e / TILE, c = e % TILE;
            float *score = pair.scores + r * (TILE + 1) + c;
            const float sum = dot(a.z, one, of_queries ? c : r, pair.rows, r - c + TILE - 1);
            *score = term ? *score + sum : sum;
        }
    }
}
template <int TILE, class BASE>
DEVICE float beside_of(const relative_of<BASE> &a, const tile_pair &pair, int r, int c)
{
    return a.z.scale * pair.scores[r * (TILE + 1) + c];
}

/* What queries (by_columns: keys) get of the gradient ds of such scores, as add_product; rows are
 * those that they were multiplied by. */
template <int TILE>
DEVICE void add_rows(const attention_args &, const tile_pair &, float (&)[SUMS], const float *,
                     bool)
{
}
template <int TILE, class BASE>
DEVICE void add_rows(const relative_of<BASE> &a, const tile_pair &pair, float (&sums)[SUMS],
                     const float *ds, bool by_columns)
{
    const int d = (int)a.z.head_dim, pitch = pair.rows.pitch;
    sum_place place;
    place_sums<TILE>(place, d);
    UNROLL_4 for (int other = 0; other < TILE; other++)
        UNROLL for (int k = 0; k < SUMS; k++)
        {
            const int r = by_columns ? other : place.row[k], c = by_columns ? place.row[k] : other;
            if (k * PLAIN_THREADS < TILE * d)
                sums[k] += ds[r * (TILE + 1) + c] *
                           pair.rows.at[(r - c + TILE - 1) * pitch + place.col[k]];
        }
}

/* ---- backward ---- */

/* The four tiles of a backward block, its two [TILE][TILE] results, and the rows of a table where
 * there is one. */
struct backward_tiles {
    shared_tile query, key, value, d_out, rows;
    float *p, *ds;
};

template <int TILE> DEVICE backward_tiles place_tiles(unsigned char *memory, int pitch)
{
    backward_tiles t;
    t.query.at = (float *)memory;
    t.key.at = t.query.at + TILE * pitch;
    t.value.at = t.key.at + TILE * pitch;
    t.d_out.at = t.value.at + TILE * pitch;
    t.query.pitch = t.key.pitch = t.value.pitch = t.d_out.pitch = t.rows.pitch = pitch;
    t.p = t.d_out.at + TILE * pitch;
    t.ds = t.p + TILE * (TILE + 1);
    t.rows.at = t.ds + TILE * (TILE + 1);
    return t;
}

DEVICE tile_pair pair_of(const backward_tiles &t, int64_t head, int64_t i, int64_t j,
                         bool queries_last)
{
    tile_pair pair = {head, i, j, t.query, t.key, t.rows, t.p, queries_last};
    return pair;
}

/* p = dropped probability and ds = p (dp - delta), [query][key], for one pair of tiles, which
 * may be on their way. */
template <int TILE, class ARGS>
DEVICE void gradient_tile(const ARGS &a, const backward_tiles &t, int64_t b, const tile_pair &pair)
{
    const struct zinf_attention &z = a.z;
    const int64_t head = pair.head, i = pair.i, j = pair.j;
    const tile_bias bias = bias_of(a, head, i, j);
    begin_scores<TILE>(a, pair);
    for (int e = threadIdx.x; e < TILE * TILE; e += PLAIN_THREADS) {
        int r = e / TILE, c = e % TILE;
        float p = 0.0f, ds = 0.0f, factor[1] = {1.0f}, slope;
        if (sees(a, b, i + r, j + c)) {
            int64_t row = row_index(z, b, head, i + r);
            p = z.scale * dot(z, t.query, r, t.key, c);
            p = score_of(a, bias, c - r, p, slope) + beside_of<TILE>(a, pair, r, c);
            p = exp_of(p - z.lse[row]);
            if (a.drops)
                probability_factors(a, b, head, i + r, j + c, factor);
            ds = p * (dot(z, t.d_out, r, t.value, c) * factor[0] - a.delta[row]) * slope;
        }
        t.p[r * (TILE + 1) + c] = p * factor[0];
        t.ds[r * (TILE + 1) + c] = ds;
    }
}

/* ---- launches ---- */

/* SUMS * PLAIN_THREADS elements of a result: 32 rows of 64, 16 of 128, 8 of 256, 4 of 512. */
enum { PLAIN_SIZES = 4 };
static int plain_size(const struct zinf_attention &z)
{
    return z.head_dim <= 64 ? 0 : z.head_dim <= 128 ? 1 : z.head_dim <= 256 ? 2 : 3;
}

/* tiles [tile][head_dim] and squares [tile][tile] in shared memory; heads by tiles of rows
 * by samples. */
struct plain_shape {
    int tiles, squares;
    int64_t heads, rows, samples;
};
template <class ARGS>
static cudaError_t launch_plain(cudaStream_t stream, const kernel_of<ARGS> (&kernels)[PLAIN_SIZES],
                                const plain_shape &shape, const ARGS &args)
{
    const int size = plain_size(args.z), tile = 32 >> size;
    const int tiles = (shape.tiles + ARGS::tiles_of_rows) * tile;
    const size_t floats = (size_t)tiles * (size_t)(args.z.head_dim + 1) +
                          (size_t)(shape.squares * tile * (tile + 1));
    dim3 grid(blocks_for((uint64_t)shape.rows, (uint64_t)tile), (unsigned)shape.heads,
              (unsigned)shape.samples);
    return launch(kernels[size], grid, dim3(PLAIN_THREADS), floats * sizeof(float), stream, args);
}

#endif
