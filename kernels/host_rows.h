/*
 * host_rows: dot products of rows where they are in memory. Included once by each per-ISA file,
 * behind host_tiles.h. A product of few rows with a matrix is limited by reading the matrix, so it
 * is neither packed nor read twice: a few rows at a time, converted to fp32 in the first-level
 * cache, are multiplied by all rows of the other matrix.
 */

/* Rows of a and of b whose sums are in registers at the same time. */
enum { DOT_ROWS = HOST_LANES == 16 ? 4 : 2, DOT_COLUMNS = 4 };

/* c[i c_row + j] (+)= sum over k of a[i a_stride + k] b[j b_stride + k] */
struct dots {
    const float *a, *b;
    float *c;
    int64_t a_stride, b_stride, c_row;
    int64_t depth;
    bool add;
};

/* Adds the lanes in pairs, then pairs of pairs, so that the order depends on the instruction set
 * alone. */
static inline float sum_lanes(vec v)
{
    float lanes[HOST_LANES];
    memcpy(lanes, &v, sizeof lanes);
#pragma GCC unroll 4
    for (int width = HOST_LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lanes[i] += lanes[i + width];
    return lanes[0];
}

/* n_a and n_b must be constants, so that sums stay in registers. */
static inline __attribute__((always_inline)) void dot_tile(const struct dots *d, int64_t i,
                                                           int64_t j, const int n_a, const int n_b)
{
    const float *a = d->a + i * d->a_stride, *b = d->b + j * d->b_stride;
    const int64_t whole = d->depth / HOST_LANES * HOST_LANES;
    vec sum[DOT_ROWS][DOT_COLUMNS];
#pragma GCC unroll 4
    for (int x = 0; x < n_a; x++)
#pragma GCC unroll 4
        for (int y = 0; y < n_b; y++)
            sum[x][y] = (vec){0};
    for (int64_t k = 0; k < whole; k += HOST_LANES) {
#pragma GCC unroll 4
        for (int x = 0; x < n_a; x++)
#pragma GCC unroll 4
            for (int y = 0; y < n_b; y++)
                sum[x][y] += *(const vec_memory *)(a + x * d->a_stride + k) *
                             *(const vec_memory *)(b + y * d->b_stride + k);
    }
#pragma GCC unroll 4
    for (int x = 0; x < n_a; x++)
#pragma GCC unroll 4
        for (int y = 0; y < n_b; y++) {
            float total = sum_lanes(sum[x][y]), *c = d->c + (i + x) * d->c_row + j + y;
            for (int64_t k = whole; k < d->depth; k++)
                total += a[x * d->a_stride + k] * b[y * d->b_stride + k];
            *c = d->add ? *c + total : total;
        }
}

/* All rows of a with n_b rows of b, from j on. */
static inline __attribute__((always_inline)) void dot_columns(const struct dots *d, int64_t n_a,
                                                              int64_t j, const int n_b)
{
    int64_t i = 0;
    for (; i + DOT_ROWS <= n_a; i += DOT_ROWS)
        dot_tile(d, i, j, DOT_ROWS, n_b);
    for (; i < n_a; i++)
        dot_tile(d, i, j, 1, n_b);
}

/* n_a rows of a with n_b rows of b. */
static void multiply_dots(const struct dots *d, int64_t n_a, int64_t n_b)
{
    int64_t j = 0;
    for (; j + DOT_COLUMNS <= n_b; j += DOT_COLUMNS)
        dot_columns(d, n_a, j, DOT_COLUMNS);
    for (; j < n_b; j++)
        dot_columns(d, n_a, j, 1);
}

/* ---- products of few rows ---- */

/* Columns of C that are made before they are stored, and elements of a row of B that are converted
 * at once; both fit into the first-level cache. */
enum { FEW_COLUMNS = 64, FEW_DEPTH = 1024 };

/* Computes columns j to j + n of the product in fp32 to c[m][FEW_COLUMNS]. */
static void few_columns(const struct zinf_matmul *m, const float *a, int64_t j, int64_t n, float *c)
{
    float wide[DOT_COLUMNS * FEW_DEPTH];
    struct dots d = {.a = a, .a_stride = m->k, .c = c, .c_row = FEW_COLUMNS, .depth = m->k};
    if (m->b_dtype == ZINF_DTYPE_F32) {
        d.b = (const float *)m->b + j * m->ldb;
        d.b_stride = m->ldb;
        multiply_dots(&d, m->m, n);
        return;
    }
    for (int64_t column = 0; column < n; column += DOT_COLUMNS) {
        const int64_t count = min_i64(DOT_COLUMNS, n - column);
        for (int64_t k = 0; k < m->k; k += FEW_DEPTH) {
            d.depth = min_i64(FEW_DEPTH, m->k - k);
            for (int64_t y = 0; y < count; y++)
                loop_to_f32(wide + y * FEW_DEPTH,
                            (const uint16_t *)m->b + (j + column + y) * m->ldb + k, m->b_dtype,
                            (size_t)d.depth);
            d.a = a + k;
            d.b = wide;
            d.b_stride = FEW_DEPTH;
            d.c = c + column;
            d.add = k > 0;
            multiply_dots(&d, m->m, count);
        }
    }
}

static void rows_multiply(const struct zinf_matmul *m, const float *a, int64_t first, int64_t count)
{
    float c[HOST_FEW_ROWS * FEW_COLUMNS], bias[FEW_COLUMNS];
    const size_t width = zinf_dtype_bytes(m->c_dtype);
    for (int64_t j = first; j < first + count; j += FEW_COLUMNS) {
        const int64_t n = min_i64(FEW_COLUMNS, first + count - j);
        few_columns(m, a, j, n, c);
        if (m->bias)
            loop_to_f32(bias, (const char *)m->bias + (size_t)j * zinf_dtype_bytes(m->b_dtype),
                        m->b_dtype, (size_t)n);
        for (int64_t i = 0; i < m->m; i++) {
            if (m->bias)
                loop_add(c + i * FEW_COLUMNS, bias, (size_t)n);
            loop_from_f32((char *)m->c + (size_t)(i * m->ldc + j) * width, m->c_dtype,
                          c + i * FEW_COLUMNS, (size_t)n);
        }
    }
}
