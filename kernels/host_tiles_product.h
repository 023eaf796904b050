/*
 * host_tiles_product: a small matrix times a packed panel, by one register tile in the compiler's
 * vector types. Part of host_tiles.h.
 */

typedef float vec __attribute__((vector_size(4 * HOST_LANES)));
typedef float vec_memory __attribute__((vector_size(4 * HOST_LANES), aligned(4), may_alias));

/* Size of the register tile: rows of C, and vectors of a row; half as wide with 16 registers
 * (without AVX-512). */
enum { REGISTER_ROWS = 4, REGISTER_VECTORS = HOST_LANES == 16 ? 4 : 2 };

/* C[rows][lanes n_vectors] (+)= A B, where element (i, k) of A is a[i row_stride + k depth_stride].
 * goes_on: sums begin with what is in C, instead of being added to it. */
struct product {
    float *c;
    const float *a, *b;
    int64_t c_stride, row_stride, depth_stride, b_stride;
    int64_t depth;
    bool add, goes_on;
};

static inline __attribute__((always_inline)) void
register_tile(const struct product *p, int64_t row, int64_t column, const int n_vectors)
{
    const float *a = p->a + row * p->row_stride, *b = p->b + column;
    float *c = p->c + row * p->c_stride + column;
    const int64_t row_stride = p->row_stride, depth_stride = p->depth_stride;
    vec sum[REGISTER_ROWS][REGISTER_VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < REGISTER_ROWS; i++)
#pragma GCC unroll 8
        for (int v = 0; v < n_vectors; v++)
            sum[i][v] = (vec){0};
    if (p->goes_on)
#pragma GCC unroll 8
        for (int i = 0; i < REGISTER_ROWS; i++)
#pragma GCC unroll 8
            for (int v = 0; v < n_vectors; v++)
                sum[i][v] = *(const vec_memory *)(c + i * p->c_stride + v * HOST_LANES);
    for (int64_t k = 0; k < p->depth; k++, a += depth_stride, b += p->b_stride) {
#pragma GCC unroll 8
        for (int i = 0; i < REGISTER_ROWS; i++)
#pragma GCC unroll 8
            for (int v = 0; v < n_vectors; v++)
                sum[i][v] += a[i * row_stride] * *(const vec_memory *)(b + v * HOST_LANES);
    }
#pragma GCC unroll 8
    for (int i = 0; i < REGISTER_ROWS; i++)
#pragma GCC unroll 8
        for (int v = 0; v < n_vectors; v++) {
            vec_memory *to = (vec_memory *)(c + i * p->c_stride + v * HOST_LANES);
            if (p->add)
                sum[i][v] += *to;
            *to = sum[i][v];
        }
}

/* One column of register tiles. The tile's width must be a constant, so that sums stay in
 * registers. */
static void multiply_columns(const struct product *p, int64_t rows, int64_t column, int n_vectors)
{
    switch (n_vectors) {
    case 1:
        for (int64_t row = 0; row < rows; row += REGISTER_ROWS)
            register_tile(p, row, column, 1);
        break;
    case 2:
        for (int64_t row = 0; row < rows; row += REGISTER_ROWS)
            register_tile(p, row, column, 2);
        break;
    case 3:
        for (int64_t row = 0; row < rows; row += REGISTER_ROWS)
            register_tile(p, row, column, REGISTER_VECTORS > 2 ? 3 : 1);
        break;
    default:
        for (int64_t row = 0; row < rows; row += REGISTER_ROWS)
            register_tile(p, row, column, REGISTER_VECTORS);
    }
}

/* rows is rounded up to REGISTER_ROWS; buffers have room for whole tiles. */
static void multiply_tiles(const struct product *p, int64_t rows, int64_t columns)
{
    for (int64_t column = 0; column < columns; column += REGISTER_VECTORS * HOST_LANES) {
        int64_t left = (columns - column) / HOST_LANES;
        multiply_columns(p, rows, column, left < REGISTER_VECTORS ? (int)left : REGISTER_VECTORS);
    }
}
