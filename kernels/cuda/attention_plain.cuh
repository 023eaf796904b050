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
 * [TILE][head_dim]. sums += left^T right over TILE, left [TILE][TILE] by columns or rows. */
template <int TILE>
DEVICE void add_product(const struct zinf_attention &z, float (&sums)[SUMS], const float *left,
                        bool by_columns, shared_tile right)
{
    int d = (int)z.head_dim;
    UNROLL for (int k = 0; k < SUMS; k++)
    {
        int e = threadIdx.x + k * PLAIN_THREADS;
        if (e >= TILE * d)
            continue;
        int row = e / d, col = e % d;
        for (int j = 0; j < TILE; j++)
            sums[k] += left[by_columns ? j * (TILE + 1) + row : row * (TILE + 1) + j] *
                       right.at[j * right.pitch + col];
    }
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

DEVICE float dot(const struct zinf_attention &z, shared_tile a, int i, shared_tile b, int j)
{
    float sum = 0.0f;
    for (int c = 0; c < (int)z.head_dim; c++)
        sum += a.at[i * a.pitch + c] * b.at[j * b.pitch + c];
    return sum;
}

/* ---- what is added to a score of queries i + r and keys j + c ---- */

struct pair_place {
    int64_t head, i, j;
};

DEVICE float beside_of(const attention_args &a, pair_place at, shared_tile, int r, shared_tile,
                       int c)
{
    return distance_bias_of(a.z, at.head, at.i + r, at.j + c);
}

/* The row of the table that a pair has; -1: one of them is outside of the sequence. */
DEVICE int64_t table_row(const relative_args &a, int64_t query, int64_t key)
{
    const int64_t seq = a.z.seq;
    return query < seq && key >= 0 && key < seq ? a.at[query - key + seq - 1] : -1;
}

/* A row in shared memory times one of the table, of the head. */
DEVICE float table_dot(const relative_args &a, const float *x, const void *table, int64_t row,
                       int64_t head)
{
    const int64_t d = a.z.head_dim, first = row * a.r.ld + head * d;
    float sum = 0.0f;
    for (int64_t c = 0; c < d; c++)
        sum += x[c] * load_float(table, a.z.dtype, first + c);
    return sum;
}

DEVICE float beside_of(const relative_args &a, pair_place at, shared_tile query, int r,
                       shared_tile key, int c)
{
    const int64_t row = table_row(a, at.i + r, at.j + c);
    float sum = 0.0f;
    if (row >= 0 && a.r.keys)
        sum += table_dot(a, query.at + r * query.pitch, a.r.keys, row, at.head);
    if (row >= 0 && a.r.queries)
        sum += table_dot(a, key.at + c * key.pitch, a.r.queries, row, at.head);
    return a.z.scale * sum;
}

/* What queries (by_columns: keys) get of the gradient ds of such scores, as add_product. */
template <int TILE>
DEVICE void add_beside(const attention_args &, pair_place, float (&)[SUMS], const float *, bool)
{
}
template <int TILE>
DEVICE void add_beside(const relative_args &a, pair_place at, float (&sums)[SUMS], const float *ds,
                       bool by_columns)
{
    const int d = (int)a.z.head_dim;
    const void *table = by_columns ? a.r.queries : a.r.keys;
    if (!table)
        return;
    UNROLL for (int k = 0; k < SUMS; k++)
    {
        const int e = threadIdx.x + k * PLAIN_THREADS, own = e / d, col = e % d;
        if (e >= TILE * d)
            continue;
        for (int other = 0; other < TILE; other++) {
            const int r = by_columns ? other : own, c = by_columns ? own : other;
            const int64_t row = table_row(a, at.i + r, at.j + c);
            if (row >= 0)
                sums[k] += ds[r * (TILE + 1) + c] *
                           load_float(table, a.z.dtype, row * a.r.ld + at.head * d + col);
        }
    }
}

/* ---- backward ---- */

/* The four tiles of a backward block and its two [TILE][TILE] results. */
struct backward_tiles {
    shared_tile query, key, value, d_out;
    float *p, *ds;
};

template <int TILE> DEVICE backward_tiles place_tiles(unsigned char *memory, int pitch)
{
    backward_tiles t;
    t.query.at = (float *)memory;
    t.key.at = t.query.at + TILE * pitch;
    t.value.at = t.key.at + TILE * pitch;
    t.d_out.at = t.value.at + TILE * pitch;
    t.query.pitch = t.key.pitch = t.value.pitch = t.d_out.pitch = pitch;
    t.p = t.d_out.at + TILE * pitch;
    t.ds = t.p + TILE * (TILE + 1);
    return t;
}

/* p = dropped probability and ds = p (dp - delta), [query][key], for one pair of tiles. */
template <int TILE, class ARGS>
DEVICE void gradient_tile(const ARGS &a, const backward_tiles &t, int64_t b, int64_t head,
                          int64_t i, int64_t j)
{
    const struct zinf_attention &z = a.z;
    const tile_bias bias = bias_of(a, head, i, j);
    const pair_place place = {head, i, j};
    for (int e = threadIdx.x; e < TILE * TILE; e += PLAIN_THREADS) {
        int r = e / TILE, c = e % TILE;
        float p = 0.0f, ds = 0.0f, factor[1] = {1.0f}, slope;
        if (sees(z, b, i + r, j + c)) {
            int64_t row = row_index(z, b, head, i + r);
            p = z.scale * dot(z, t.query, r, t.key, c);
            p = score_of(a, bias, c - r, p, slope) + beside_of(a, place, t.query, r, t.key, c);
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

template <class ARGS> using plain_kernel = void(ARGS args);

/* SUMS * PLAIN_THREADS elements of a result: 32 rows of 64, 16 of 128, 8 of 256. */
static int plain_tile(const struct zinf_attention &z)
{
    return z.head_dim <= 64 ? 32 : z.head_dim <= 128 ? 16 : 8;
}

/* tiles [tile][head_dim] and squares [tile][tile] in shared memory; heads by tiles of rows. */
struct plain_shape {
    int tiles, squares;
    int64_t heads, rows;
};
template <class ARGS>
static cudaError_t launch_plain(cudaStream_t stream, plain_kernel<ARGS> *const kernels[3],
                                const plain_shape &shape, const ARGS &args)
{
    const int tile = plain_tile(args.z);
    size_t floats = (size_t)(shape.tiles * tile) * (size_t)(args.z.head_dim + 1) +
                    (size_t)(shape.squares * tile * (tile + 1));
    dim3 grid(blocks_for((uint64_t)shape.rows, (uint64_t)tile), (unsigned)shape.heads,
              (unsigned)args.z.batch);
    return launch(kernels[tile == 32   ? 0
                          : tile == 16 ? 1
                                       : 2],
                  grid, dim3(PLAIN_THREADS), floats * sizeof(float), stream, args);
}

#endif
