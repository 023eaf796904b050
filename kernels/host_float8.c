/*
 * host_float8: a CPU's operands of a product of 8-bit floats (kernels/float8.h), as the bf16
 * numbers that the floats stand for: bf16 has all of their bits, so the product is the same, but
 * for the order in which it is added.
 */
#include "kernels/host.h"

#include <math.h>

/* The largest of a matrix's numbers as bits of bf16, without signs: they are ordered as the numbers
 * are, with infinity and NaN above all. */
static uint32_t largest(const struct host_device *device, const uint16_t *x, int64_t ld,
                        int64_t rows, int64_t cols)
{
    int n_slices = host_slices(device, (uint64_t)(rows * cols));
    uint32_t most = 0;
#pragma omp parallel for num_threads(n_slices) schedule(static) reduction(max : most)
    for (int64_t i = 0; i < rows; i++) {
        const uint16_t *row = x + i * ld;
        uint16_t of_row = 0;
#pragma omp simd reduction(max : of_row)
        for (int64_t j = 0; j < cols; j++) {
            const uint16_t bits = row[j] & 0x7fffu;
            of_row = bits > of_row ? bits : of_row;
        }
        most = of_row > most ? of_row : most;
    }
    return most;
}

/* The power of two that brings the largest number just below the type's greatest. */
static int shift_of(struct zinf_float8_type type, uint32_t most)
{
    const int exponent = (int)(most >> 7), fraction = (int)(most & 127);
    if (most == 0 || exponent == 255)
        return 0;
    const int above = fraction > 96; /* 1.75 */
    const int shift = type.top - (exponent ? exponent - 127 : -126) - above;
    return shift > ZINF_FLOAT8_MOST_SHIFT    ? ZINF_FLOAT8_MOST_SHIFT
           : shift < -ZINF_FLOAT8_MOST_SHIFT ? -ZINF_FLOAT8_MOST_SHIFT
                                             : shift;
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The nearest number of the type: added to a number whose last place is the type's there, it is
 * rounded by the addition. */
static float nearest(struct zinf_float8_type type, float x, float greatest)
{
    const uint32_t sign = bits_of(x) & 0x80000000u, bits = bits_of(x) & 0x7fffffffu;
    const float size = from_bits(bits) > greatest ? greatest : from_bits(bits);
    const uint32_t exponent = bits_of(size) >> 23, least = (uint32_t)(type.least + 127);
    const uint32_t place = exponent > least ? exponent : least;
    const float magic = from_bits((place + 23 - (uint32_t)type.fraction) << 23);
    const float rounded = (size + magic) - magic;
    return bits >= 0x7f800000u ? NAN : from_bits(bits_of(rounded) | sign);
}

/* to [rows][cols], packed */
static void round_matrix(const struct host_device *device, enum zinf_float8 wanted, uint16_t *to,
                         const uint16_t *x, int64_t ld, int64_t rows, int64_t cols)
{
    const struct zinf_float8_type type = zinf_float8_type(wanted);
    const int shift = shift_of(type, largest(device, x, ld, rows, cols));
    const float up = ldexpf(1.0f, shift), down = ldexpf(1.0f, -shift);
    const float greatest = ldexpf(1.75f, type.top);
    int n_slices = host_slices(device, (uint64_t)(rows * cols));
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            const float scaled = from_bits((uint32_t)x[i * ld + j] << 16) * up;
            to[i * cols + j] = (uint16_t)(bits_of(nearest(type, scaled, greatest) * down) >> 16);
        }
}

static uint64_t matrix_bytes(int64_t rows, int64_t cols)
{
    return zinf_align_up((uint64_t)(rows * cols) * sizeof(uint16_t), 256);
}

uint64_t host_float8_workspace(const struct zinf_matmul *args)
{
    return args->float8 ? matrix_bytes(args->m, args->k) + matrix_bytes(args->n, args->k) : 0;
}

struct zinf_matmul host_float8(struct zinf_queue *q, const struct zinf_matmul *args)
{
    const int64_t b_rows = args->trans_b ? args->n : args->k;
    const int64_t b_cols = args->trans_b ? args->k : args->n;
    uint16_t *a = q->workspace, *b = a + matrix_bytes(args->m, args->k) / sizeof *a;
    struct zinf_matmul rounded = *args;
    round_matrix(q->device, args->float8, a, args->a, args->lda, args->m, args->k);
    round_matrix(q->device, ZINF_FLOAT8_E4M3, b, args->b, args->ldb, b_rows, b_cols);
    rounded.float8 = ZINF_FLOAT8_NONE;
    rounded.a = a, rounded.lda = args->k;
    rounded.b = b, rounded.ldb = b_cols;
    q->workspace = (char *)q->workspace + host_float8_workspace(args);
    q->workspace_bytes -= host_float8_workspace(args);
    return rounded;
}
