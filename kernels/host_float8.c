/*
 * host_float8: products of 8-bit floats (kernels/float8.h) on a CPU. Operands are rounded to
 * numbers that an 8-bit float has, and kept in bf16, which can represent all of these. So a product
 * differs from one of 8-bit floats only by the order in which it is added. Also images of
 * parameters whose matrices are 8-bit codes.
 */
#include "kernels/host.h"

#include <math.h>

/* The largest magnitude of a matrix, as bits of bf16 without the sign. Such bits are ordered as the
 * numbers are, with infinity and then NaN above all. */
static uint32_t largest(const struct host_device *device, const uint16_t *x, int64_t ld,
                        int64_t rows, int64_t cols)
{
    int n_slices = host_slices(device, (uint64_t)(rows * cols));
    uint32_t most = 0;
#pragma omp parallel for num_threads(n_slices) schedule(static) reduction(max : most)
    for (int64_t i = 0; i < rows; i++) {
        const uint32_t of_row = device->simd->float8_most(x + i * ld, (size_t)cols);
        most = of_row > most ? of_row : most;
    }
    return most;
}

/* The power of two by which the largest number comes as close to the type's greatest as it can
 * without going beyond. */
static int shift_of(struct zinf_float8_type type, uint32_t most)
{
    const int exponent = (int)(most >> 7), fraction = (int)(most & 127);
    if (most == 0 || exponent == 255)
        return 0;
    const int above = fraction > 96; /* the type's greatest is 1.75 times a power of two */
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

/* The number of the type that is nearest to x. Adding a large number, whose last place has the
 * value of the type's last place here, makes the processor round x to that. */
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

/* to: [rows][cols]. */
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

/* ---- images ---- */

enum { PIECE = 1 << 16 }; /* elements that a thread takes at a time */

static uint64_t pieces_of(uint64_t n)
{
    return (n + PIECE - 1) / PIECE;
}

static uint64_t piece_at(uint64_t n, uint64_t piece)
{
    return n - piece * PIECE < PIECE ? n - piece * PIECE : PIECE;
}

static uint32_t most_of(const struct host_simd *simd, const uint16_t *x, uint64_t n, int n_threads)
{
    uint32_t most = 0;
#pragma omp parallel for num_threads(n_threads) schedule(static) reduction(max : most)
    for (uint64_t p = 0; p < pieces_of(n); p++) {
        const uint32_t of_piece = simd->float8_most(x + p * PIECE, piece_at(n, p));
        most = of_piece > most ? of_piece : most;
    }
    return most;
}

void zinf_float8_encode(const struct zinf_float8_image *image, const void *params, void *to,
                        int n_threads)
{
    const struct host_simd *simd = host_simd_of(zinf_isa());
    for (uint32_t r = 0; r < image->n_runs; r++) {
        struct zinf_float8_run run = image->runs[r];
        const uint16_t *x = (const uint16_t *)params + run.to;
        char *at = (char *)to + run.from;
        int shift = 0;
        if (run.coded)
            shift =
                shift_of(zinf_float8_type(ZINF_FLOAT8_E4M3), most_of(simd, x, run.n, n_threads));
        run.scale = ldexpf(1.0f, -shift);
        memcpy((char *)to + r * sizeof run, &run, sizeof run);
        const float up = ldexpf(1.0f, shift);
#pragma omp parallel for num_threads(n_threads) schedule(static)
        for (uint64_t p = 0; p < pieces_of(run.n); p++) {
            const uint64_t n = piece_at(run.n, p);
            if (run.coded)
                simd->float8_codes((uint8_t *)at + p * PIECE, x + p * PIECE, up, n);
            else
                memcpy(at + p * PIECE * sizeof *x, x + p * PIECE, n * sizeof *x);
        }
    }
}

/* The bf16 number of each of the 256 codes; bf16 can represent all of them. */
static void widened(uint16_t table[256], float scale)
{
    for (uint32_t code = 0; code < 256; code++) {
        const float x = from_bits((code & 0x80u) << 24 | (code & 0x7fu) << 20) * 0x1p120f * scale;
        table[code] = (code & 0x7fu) == 0x7fu ? 0x7fc0u : (uint16_t)(bits_of(x) >> 16);
    }
}

int host_widen(struct zinf_queue *q, const struct zinf_widen *args)
{
    int code = check_widen(args);
    for (uint32_t r = 0; !code && r < args->n_runs; r++) {
        struct zinf_float8_run run;
        uint16_t table[256];
        memcpy(&run, (const char *)args->image + r * sizeof run, sizeof run);
        const uint8_t *from = (const uint8_t *)args->image + run.from;
        uint16_t *to = (uint16_t *)args->params + run.to;
        if (!run.coded) {
            memcpy(to, from, run.n * sizeof *to);
            continue;
        }
        widened(table, run.scale);
        int n_slices = host_slices(q->device, run.n);
#pragma omp parallel for num_threads(n_slices) schedule(static)
        for (uint64_t i = 0; i < run.n; i++)
            to[i] = table[from[i]];
    }
    return code;
}
