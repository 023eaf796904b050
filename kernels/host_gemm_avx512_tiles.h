/*
 * host_gemm_avx512_tiles: the tiles of the AVX-512 product kernels. Included behind
 * host_gemm_avx512_pack.h. A tile is 14 x 32: 28 accumulators, two vectors of B and one broadcast
 * word of A fill the 32 registers, and 16 loads serve 28 multiplications. Each height from 1 to 14
 * has a loop of its own, so that rows can be divided into equal panels.
 */

enum { TILE_ROWS = 14, TILE_COLUMNS = 2 * LANES };
/* How many steps of k ahead panels are fetched from the second-level cache. Hardware prefetching
 * alone leaves a quarter of the speed unused. */
enum { AHEAD = 16 };
/* Steps of k between prefetches of rows of C, and then of lines that are packed next: prefetches
 * from memory must leave room for the lines of panels. */
enum { FETCH_STEPS = 4 };

/* Defined by the including file: adds to sum[i] the products of the elements of a[i] and b[i]. */
ALWAYS_INLINE __m512 dot(__m512 sum, __m512 a, __m512 b);

/* Prefetches a line of rows into the second-level cache, at `byte` of the row; then moves on. */
ALWAYS_INLINE void fetch_line(struct host_gemm_rows *rows, int64_t *byte)
{
    _mm_prefetch(rows->first + *byte, _MM_HINT_T1);
    *byte += LINE_BYTES;
    if (*byte < rows->bytes)
        return;
    *byte = 0;
    rows->first += rows->ld;
    rows->count--;
}

ALWAYS_INLINE void multiply_rows(const struct host_gemm_tile *t, const int rows)
{
    const __mmask16 left = first_lanes(t->columns), right = first_lanes(t->columns - LANES);
    const int64_t steps = (t->depth + GROUP - 1) / GROUP;
    const float *a = t->a, *b = t->b;
    struct host_gemm_rows next = t->next;
    int64_t next_byte = 0;
    __m512 sum[TILE_ROWS][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    for (int64_t k = 0, row = 0; k < steps; row++) {
        const int64_t end = k + FETCH_STEPS < steps ? k + FETCH_STEPS : steps;
        if (row < rows) {
            _mm_prefetch((const char *)(t->c + row * t->ldc), _MM_HINT_T0);
            _mm_prefetch((const char *)(t->c + row * t->ldc + LANES), _MM_HINT_T0);
        } else if (next.count > 0) {
            fetch_line(&next, &next_byte);
        }
        for (; k < end; k++, a += LANES, b += TILE_COLUMNS) {
            _mm_prefetch((const char *)(a + AHEAD * LANES), _MM_HINT_T0);
            _mm_prefetch((const char *)(b + AHEAD * TILE_COLUMNS), _MM_HINT_T0);
            _mm_prefetch((const char *)(b + AHEAD * TILE_COLUMNS + LANES), _MM_HINT_T0);
            const __m512 b0 = _mm512_load_ps(b), b1 = _mm512_load_ps(b + LANES);
#pragma GCC unroll 14
            for (int i = 0; i < rows; i++) {
                const __m512 ai = _mm512_set1_ps(a[i]);
                sum[i][0] = dot(sum[i][0], ai, b0);
                sum[i][1] = dot(sum[i][1], ai, b1);
            }
        }
    }
    if (t->d) {
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            const float *d = t->d + i * t->ldd;
            sum[i][0] = _mm512_add_ps(sum[i][0], _mm512_maskz_loadu_ps(left, d));
            sum[i][1] = _mm512_add_ps(sum[i][1], _mm512_maskz_loadu_ps(right, d + LANES));
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        _mm512_mask_storeu_ps(t->c + i * t->ldc, left, sum[i][0]);
        _mm512_mask_storeu_ps(t->c + i * t->ldc + LANES, right, sum[i][1]);
    }
}

#define MULTIPLY(rows)                                                                             \
    static void multiply_##rows(const struct host_gemm_tile *t)                                    \
    {                                                                                              \
        multiply_rows(t, rows);                                                                    \
    }
MULTIPLY(1)
MULTIPLY(2)
MULTIPLY(3)
MULTIPLY(4)
MULTIPLY(5)
MULTIPLY(6)
MULTIPLY(7)
MULTIPLY(8)
MULTIPLY(9)
MULTIPLY(10)
MULTIPLY(11)
MULTIPLY(12)
MULTIPLY(13)
MULTIPLY(14)

static void multiply_tile(const struct host_gemm_tile *tile)
{
    static void (*const by_rows[])(const struct host_gemm_tile *) = {
        NULL,        multiply_1,  multiply_2,  multiply_3,  multiply_4,
        multiply_5,  multiply_6,  multiply_7,  multiply_8,  multiply_9,
        multiply_10, multiply_11, multiply_12, multiply_13, multiply_14};
    by_rows[tile->rows](tile);
}
