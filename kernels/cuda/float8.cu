/*
 * float8: a matrix of bf16 as codes of 8 bits and one scale (kernels/float8.h): the largest number
 * by blocks, then codes, each block of which finds the scale out of those by itself. Whichever way
 * the matrix is cut, its largest number and so the codes are the same. Products on most GPUs want
 * both operands along k, so a matrix that has k down its columns is turned: a tile of 64 x 64 goes
 * through shared memory. And parameters of an image whose matrices are codes, as bf16 again.
 */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/workspace.h"

enum { FLOAT8_THREADS = 256, FLOAT8_PLACES = 4, CODES = 16, TILE = 64, TILE_PITCH = TILE + 16 };

struct float8_args {
    const bf16 *x;
    int64_t ld;
    uint8_t *codes;
    float *largest;
    uint32_t rows, per_row, n_units; /* of 16 elements: in a row, in all */
    int n_parts;
    int fraction, least, top;
    bool vector;
};

DEVICE uint32_t bits_from(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
DEVICE float float_from(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* A bf16 without its sign, as bits: ordered as the numbers are, infinity and NaN above all. */
DEVICE uint32_t size_of(float x)
{
    return (bits_from(x) & 0x7fffffffu) >> 16;
}

DEVICE const bf16 *unit_at(const float8_args &a, uint32_t unit)
{
    const uint32_t row = a.rows == 1 ? 0 : unit / a.per_row;
    return a.x + row * a.ld + (int64_t)(unit - row * a.per_row) * CODES;
}

KERNEL(FLOAT8_THREADS) float8_largest_kernel(float8_args a)
{
    __shared__ float shared[FLOAT8_THREADS / 32];
    uint32_t most = 0;
    float x[EACH];
    const uint32_t step = gridDim.x * FLOAT8_THREADS;
    NO_UNROLL for (uint32_t unit = blockIdx.x * FLOAT8_THREADS + threadIdx.x; unit < a.n_units;
                   unit += step)
    {
        const bf16 *from = unit_at(a, unit);
        UNROLL for (int half = 0; half < CODES / EACH; half++)
        {
            load_each(x, from + half * EACH, EACH, a.vector);
            UNROLL for (int k = 0; k < EACH; k++)
            {
                const uint32_t size = size_of(x[k]);
                most = size > most ? size : most;
            }
        }
    }
    const float of_block = block_reduce<FLOAT8_THREADS / 32>((float)most, false, shared);
    if (threadIdx.x == 0)
        a.largest[blockIdx.x] = of_block;
}

/* The shift by which all numbers are scaled, the same in every thread. */
DEVICE int find_shift(const float8_args &a, float *shared)
{
    const float mine = (int)threadIdx.x < a.n_parts ? a.largest[threadIdx.x] : 0.0f;
    const int most = (int)block_reduce<FLOAT8_THREADS / 32>(mine, false, shared);
    const int exponent = most >> 7, above = (most & 127) > 96; /* of 1.75 */
    int shift = a.top - (exponent ? exponent - 127 : -126) - above;
    if (shift > ZINF_FLOAT8_MOST_SHIFT)
        shift = ZINF_FLOAT8_MOST_SHIFT;
    if (shift < -ZINF_FLOAT8_MOST_SHIFT)
        shift = -ZINF_FLOAT8_MOST_SHIFT;
    shift = most == 0 || exponent == 255 ? 0 : shift;
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0)
        a.largest[FLOAT8_PARTS] = float_from((uint32_t)(127 - shift) << 23);
    return shift;
}

/* The nearest code: added to a number whose last place is the type's there, x is rounded by the
 * addition, and the bits count the type's numbers in its octave. */
DEVICE uint32_t code_of(const float8_args &a, float x, float up)
{
    const uint32_t sign = bits_from(x) >> 24 & 0x80u, least = (uint32_t)(a.least + 127);
    const float greatest = float_from((uint32_t)(a.top + 127) << 23 | 0x600000u);
    float size = product(float_from(bits_from(x) & 0x7fffffffu), up);
    size = size > greatest ? greatest : size;
    const uint32_t exponent = bits_from(size) >> 23, place = exponent > least ? exponent : least;
    const uint32_t magic = (place + 23 - (uint32_t)a.fraction) << 23;
    const uint32_t count = bits_from(size + float_from(magic)) - magic;
    const uint32_t code = ((place - least) << a.fraction) + count;
    return sign | (size_of(x) >= 0x7f80u ? 0x7fu : code);
}

DEVICE float scale_up(int shift)
{
    return float_from((uint32_t)(127 + shift) << 23);
}

KERNEL(FLOAT8_THREADS) float8_kernel(float8_args a)
{
    __shared__ float shared[FLOAT8_THREADS / 32];
    const float up = scale_up(find_shift(a, shared));
    const uint32_t first = blockIdx.x * (FLOAT8_THREADS * FLOAT8_PLACES) + threadIdx.x;
    float x[EACH];
    NO_UNROLL for (int p = 0; p < FLOAT8_PLACES; p++)
    {
        const uint32_t unit = first + p * FLOAT8_THREADS;
        words4 codes;
        if (unit >= a.n_units)
            return;
        const bf16 *from = unit_at(a, unit);
        UNROLL for (int half = 0; half < CODES / EACH; half++)
        {
            load_each(x, from + half * EACH, EACH, a.vector);
            UNROLL for (int w = 0; w < EACH / 4; w++)
            {
                uint32_t word = 0;
                UNROLL for (int k = 0; k < 4; k++) word |= code_of(a, x[4 * w + k], up) << 8 * k;
                codes.at[half * (EACH / 4) + w] = word;
            }
        }
        ((words4 *)(void *)a.codes)[unit] = codes;
    }
}

/* codes [cols][rows] */
KERNEL(FLOAT8_THREADS) float8_turned_kernel(float8_args a)
{
    __shared__ float shared[FLOAT8_THREADS / 32];
    __shared__ words4 tile[TILE * TILE_PITCH / CODES];
    uint8_t *const bytes = (uint8_t *)(void *)tile;
    const float up = scale_up(find_shift(a, shared));
    const uint32_t cols = a.per_row * CODES;
    const uint32_t row = blockIdx.y * TILE, col = blockIdx.x * TILE;
    float x[EACH];
    UNROLL for (uint32_t i = 0; i < TILE * TILE / EACH / FLOAT8_THREADS; i++)
    { /* neighbours read 32 bytes of a row, and write bytes of one word */
        const uint32_t unit = threadIdx.x + i * FLOAT8_THREADS;
        const uint32_t r = unit / 2 % TILE, c = (unit % 2 + unit / (2 * TILE) * 2) * EACH;
        if (row + r >= a.rows || col + c >= cols)
            continue;
        load_each(x, a.x + (row + r) * a.ld + col + c, EACH, a.vector);
        UNROLL for (int k = 0; k < EACH; k++)
        {
            bytes[(c + k) * TILE_PITCH + r] = (uint8_t)code_of(a, x[k], up);
        }
    }
    sync_block();
    const uint32_t c = threadIdx.x / (TILE / CODES), r = threadIdx.x % (TILE / CODES) * CODES;
    if (col + c < cols && row + r < a.rows)
        *(words4 *)(void *)(a.codes + (int64_t)(col + c) * a.rows + row + r) =
            *(const words4 *)(const void *)(bytes + c * TILE_PITCH + r);
}

cudaError_t launch_float8(cudaStream_t stream, const struct float8_matrix *m)
{
    const struct zinf_float8_type type = zinf_float8_type(m->type);
    const bool packed = m->ld == m->cols && !m->turned;
    float8_args args = {};
    args.x = (const bf16 *)m->x, args.ld = m->ld;
    args.codes = m->codes, args.largest = m->largest;
    args.rows = packed ? 1 : (uint32_t)m->rows;
    args.per_row = (uint32_t)((packed ? m->rows * m->cols : m->cols) / CODES);
    args.n_units = (uint32_t)(m->rows * m->cols / CODES);
    args.fraction = type.fraction, args.least = type.least, args.top = type.top;
    args.vector = aligned16(m->x) && m->ld % EACH == 0;
    const unsigned wanted = blocks_for(args.n_units, FLOAT8_THREADS * FLOAT8_PLACES);
    args.n_parts = wanted < FLOAT8_PARTS ? (int)wanted : FLOAT8_PARTS;
    cudaError_t error = launch(known<float8_largest_kernel>(), dim3((unsigned)args.n_parts),
                               dim3(FLOAT8_THREADS), 0, stream, args);
    if (error != cudaSuccess)
        return error;
    if (!m->turned)
        return launch(known<float8_kernel>(), dim3(wanted), dim3(FLOAT8_THREADS), 0, stream, args);
    return launch(known<float8_turned_kernel>(),
                  dim3(blocks_for((uint64_t)m->cols, TILE), blocks_for((uint64_t)m->rows, TILE)),
                  dim3(FLOAT8_THREADS), 0, stream, args);
}

/* ---- parameters from an image ---- */

struct widen_args {
    const unsigned char *image;
    bf16 *params;
};

/* Two codes of a word, the first in its low byte, as two numbers of bf16, which has all of their
 * bits. Exponent and fraction are put where fp32 has them, whose exponents are 120 greater. */
DEVICE uint32_t widen_pair(uint32_t pair, float scale)
{
    uint32_t halves = 0;
    UNROLL for (int k = 0; k < 2; k++)
    {
        const uint32_t code = pair >> 8 * k & 0xffu;
        const float x = float_from((code & 0x80u) << 24 | (code & 0x7fu) << 20);
        const uint32_t bits = bits_from(product(product(x, 0x1p120f), scale)) >> 16;
        halves |= ((code & 0x7fu) == 0x7fu ? 0x7fc0u : bits) << 16 * k;
    }
    return halves;
}

/* A run for each row of blocks; a thread takes 16 elements at a time. */
KERNEL(FLOAT8_THREADS) widen_kernel(widen_args a)
{
    zinf_float8_run run;
    UNROLL for (uint32_t half = 0; half < sizeof run / sizeof(words4); half++)
    {
        const words4 raw = ((const words4 *)(const void *)a.image)[2 * blockIdx.y + half];
        memcpy((char *)&run + half * sizeof raw, &raw, sizeof raw);
    }
    const words4 *from = (const words4 *)(const void *)(a.image + run.from);
    words4 *to = (words4 *)(void *)(a.params + run.to);
    const uint64_t n = run.n / CODES, first = (uint64_t)blockIdx.x * FLOAT8_THREADS * FLOAT8_PLACES;
    NO_UNROLL for (int p = 0; p < FLOAT8_PLACES; p++)
    {
        const uint64_t unit = first + p * FLOAT8_THREADS + threadIdx.x;
        if (unit >= n)
            return;
        words4 made[2];
        if (run.coded) {
            const words4 codes = from[unit];
            UNROLL for (int w = 0; w < 8; w++)
            {
                made[w / 4].at[w % 4] = widen_pair(codes.at[w / 2] >> 16 * (w % 2), run.scale);
            }
        } else {
            made[0] = from[2 * unit], made[1] = from[2 * unit + 1];
        }
        to[2 * unit] = made[0], to[2 * unit + 1] = made[1];
    }
}

cudaError_t launch_widen(cudaStream_t stream, const struct zinf_widen *z)
{
    widen_args args = {};
    args.image = (const unsigned char *)z->image, args.params = (bf16 *)z->params;
    const dim3 grid(blocks_for(z->most / CODES, FLOAT8_THREADS * FLOAT8_PLACES), z->n_runs);
    return launch(known<widen_kernel>(), grid, dim3(FLOAT8_THREADS), 0, stream, args);
}
