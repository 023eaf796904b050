/*
 * host_gemm: blocks, panels and threads. For each block of C and of k, all threads first pack both
 * operands into the queue's workspace, panel by panel, then multiply units of a few panels each.
 * Panels and units are handed out as threads come for them: which thread does one changes no bit.
 */
#include "kernels/host_gemm.h"
#include "kernels/host.h"

#include "build-config.h"

/* A block of C is at most BLOCK_ROWS x BLOCK_COLUMNS, with BLOCK_DEPTH of k at a time: a panel of B
 * stays in the first cache, a unit's panels of A in the second, all of packed A and B, below
 * 7 MiB, in the third. Sums over more than BLOCK_DEPTH for a C in 16 bits are kept in fp32, in
 * blocks of SUM_COLUMNS. */
enum { BLOCK_ROWS = 1024, BLOCK_COLUMNS = 1536, BLOCK_DEPTH = 768, SUM_COLUMNS = 768 };
/* Panels of a unit; fewer where threads would have less than UNITS_PER_THREAD each. */
enum { UNIT_A_PANELS = 10, UNIT_B_PANELS = 4, UNITS_PER_THREAD = 4 };
/* Multiplications below which threads cost more than they bring. */
enum { PARALLEL_MIN = 1 << 18 };

const struct host_gemm_kernel *host_gemm_kernel(enum zinf_isa isa)
{
#ifdef ZINF_HAVE_AVX512
    if (isa == ZINF_ISA_AVX512)
        return &host_gemm_avx512;
#endif
    (void)isa;
    return NULL;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- plan ---- */

/* Lengths of blocks, and what they take of the workspace in floats. */
struct plan {
    int64_t rows, columns, depth;
    uint64_t a_floats, b_floats, sum_floats, bias_floats;
};

/* Length of equal pieces of n, each at most limit, in multiples of align. */
static int64_t piece_length(int64_t n, int64_t limit, int64_t align)
{
    return divide_up(divide_up(n, divide_up(n, limit)), align) * align;
}

static struct plan make_plan(const struct host_gemm_kernel *kernel, const struct zinf_matmul *m)
{
    const bool sums = m->c_dtype != ZINF_DTYPE_F32 && m->k > BLOCK_DEPTH;
    const int64_t columns_limit = sums ? SUM_COLUMNS : BLOCK_COLUMNS;
    struct plan plan = {
        .rows = piece_length(m->m, BLOCK_ROWS, 1),
        .columns = piece_length(m->n, columns_limit, kernel->tile_columns),
        .depth = piece_length(m->k, BLOCK_DEPTH, 1),
    };
    /* By the limits, not by the pieces, so that a smaller product never needs more. */
    const int64_t rows = least(m->m, BLOCK_ROWS), depth = least(m->k, BLOCK_DEPTH);
    const int64_t columns =
        divide_up(least(m->n, columns_limit), kernel->tile_columns) * kernel->tile_columns;
    plan.a_floats = (uint64_t)(divide_up(rows, kernel->tile_rows) * kernel->a_stride * depth);
    plan.b_floats = (uint64_t)(columns * depth);
    plan.sum_floats = sums ? (uint64_t)(rows * columns) : 0;
    plan.bias_floats =
        m->bias && m->b_dtype != ZINF_DTYPE_F32 ? zinf_align_up((uint64_t)m->n, 16) : 0;
    return plan;
}

/* Panels begin at cache lines. */
enum { LINE_BYTES = 64 };

uint64_t host_gemm_workspace(const struct host_gemm_kernel *kernel, const struct zinf_matmul *args)
{
    struct plan plan = make_plan(kernel, args);
    return (plan.a_floats + plan.b_floats + plan.sum_floats + plan.bias_floats) * sizeof(float) +
           LINE_BYTES;
}

/* ---- one block ---- */

struct block {
    const struct host_gemm_kernel *kernel;
    const struct host_simd *simd;
    const struct zinf_matmul *m;
    float *a, *b;      /* packed */
    float *sums;       /* of a C in 16 bits over more than one block of k, or NULL */
    const float *bias; /* [n] or NULL */
    int64_t row, column, k, rows, columns, depth;
    int64_t a_panels, b_panels;
    bool pack_a, pack_b;
};

/* First row of panel i in the block; the heights of panels differ by one at most. */
static int64_t panel_row(const struct block *b, int64_t i)
{
    const int64_t each = b->rows / b->a_panels, more = b->rows % b->a_panels;
    return i * each + least(i, more);
}

static void pack_a_panel(const struct block *b, int64_t panel)
{
    const struct zinf_matmul *m = b->m;
    const int64_t first = panel_row(b, panel), row = b->row + first;
    const int64_t element = m->trans_a ? b->k * m->lda + row : row * m->lda + b->k;
    const struct host_gemm_strip strip = {
        .src = host_at(m->a, m->a_dtype, (uint64_t)element),
        .dtype = m->a_dtype,
        .across = m->trans_a,
        .ld = m->lda,
        .width = panel_row(b, panel + 1) - first,
        .depth = b->depth,
    };
    const int stride = b->kernel->a_stride;
    b->kernel->pack(b->a + panel * stride * b->depth, stride, &strip);
}

static void pack_b_panel(const struct block *b, int64_t panel)
{
    const struct zinf_matmul *m = b->m;
    const int stride = b->kernel->tile_columns;
    const int64_t first = panel * stride, column = b->column + first;
    const int64_t element = m->trans_b ? column * m->ldb + b->k : b->k * m->ldb + column;
    const struct host_gemm_strip strip = {
        .src = host_at(m->b, m->b_dtype, (uint64_t)element),
        .dtype = m->b_dtype,
        .across = !m->trans_b,
        .ld = m->ldb,
        .width = least(stride, b->columns - first),
        .depth = b->depth,
    };
    b->kernel->pack(b->b + first * b->depth, stride, &strip);
}

/* A tile of a C in 16 bits, from or into fp32. */
static void read_tile(const struct block *b, float *tile, int64_t ld, const char *c, int64_t rows,
                      int64_t columns)
{
    const uint64_t row_bytes = (uint64_t)b->m->ldc * zinf_dtype_bytes(b->m->c_dtype);
    for (int64_t i = 0; i < rows; i++)
        b->simd->to_f32(tile + i * ld, c + (uint64_t)i * row_bytes, b->m->c_dtype, (size_t)columns);
}

static void write_tile(const struct block *b, char *c, const float *tile, int64_t ld, int64_t rows,
                       int64_t columns)
{
    const uint64_t row_bytes = (uint64_t)b->m->ldc * zinf_dtype_bytes(b->m->c_dtype);
    for (int64_t i = 0; i < rows; i++)
        b->simd->from_f32(c + (uint64_t)i * row_bytes, b->m->c_dtype, tile + i * ld,
                          (size_t)columns);
}

/* The tile of panels (i, j). What is added to it is C or the bias in the first block of k, later
 * the sum so far; it goes to C, or to the sums as long as C in 16 bits would round them. */
static void multiply_panels(const struct block *b, int64_t i, int64_t j)
{
    float buffer[HOST_GEMM_TILE_FLOATS] __attribute__((aligned(LINE_BYTES)));
    const struct zinf_matmul *m = b->m;
    const int64_t width = b->kernel->tile_columns;
    const int64_t row = panel_row(b, i), column = j * width;
    char *c = (char *)(uintptr_t)host_at(
        m->c, m->c_dtype, (uint64_t)((b->row + row) * m->ldc + b->column + column));
    struct host_gemm_tile tile = {
        .rows = panel_row(b, i + 1) - row,
        .columns = least(width, b->columns - column),
        .depth = b->depth,
        .a = b->a + i * b->kernel->a_stride * b->depth,
        .b = b->b + column * b->depth,
    };
    const bool wide = m->c_dtype == ZINF_DTYPE_F32, last = b->k + b->depth == m->k;
    float *sums = b->sums + row * b->columns + column;
    tile.c = wide ? (float *)(void *)c : last ? buffer : sums;
    tile.ldc = wide ? m->ldc : last ? width : b->columns;
    if (b->k > 0) {
        tile.d = wide ? tile.c : sums;
        tile.ldd = wide ? m->ldc : b->columns;
    } else if (m->beta != 0.0f) {
        tile.d = wide ? tile.c : buffer;
        tile.ldd = wide ? m->ldc : width;
        if (!wide)
            read_tile(b, buffer, width, c, tile.rows, tile.columns);
    } else if (b->bias) {
        tile.d = b->bias + b->column + column;
    }
    b->kernel->multiply(&tile);
    if (!wide && last)
        write_tile(b, c, buffer, width, tile.rows, tile.columns);
}

static void multiply_unit(const struct block *b, int64_t i0, int64_t j0, int64_t i_count,
                          int64_t j_count)
{
    const int64_t i_end = least(i0 + i_count, b->a_panels);
    const int64_t j_end = least(j0 + j_count, b->b_panels);
    for (int64_t j = j0; j < j_end; j++)
        for (int64_t i = i0; i < i_end; i++)
            multiply_panels(b, i, j);
}

/* Run by every thread of a team, or by one thread outside of any. */
static void multiply_block(const struct block *b, int n_threads)
{
    const int64_t packed_a = b->pack_a ? b->a_panels : 0, packed_b = b->pack_b ? b->b_panels : 0;
#pragma omp for schedule(dynamic)
    for (int64_t panel = 0; panel < packed_a + packed_b; panel++) {
        if (panel < packed_a)
            pack_a_panel(b, panel);
        else
            pack_b_panel(b, panel - packed_a);
    }
    int64_t height = piece_length(b->a_panels, UNIT_A_PANELS, 1);
    int64_t width = piece_length(b->b_panels, UNIT_B_PANELS, 1);
    while (width > 1 && divide_up(b->a_panels, height) * divide_up(b->b_panels, width) <
                            n_threads * UNITS_PER_THREAD)
        width = (width + 1) / 2;
    const int64_t unit_columns = divide_up(b->b_panels, width);
    const int64_t units = divide_up(b->a_panels, height) * unit_columns;
#pragma omp for schedule(dynamic)
    for (int64_t unit = 0; unit < units; unit++)
        multiply_unit(b, unit / unit_columns * height, unit % unit_columns * width, height, width);
}

/* ---- all blocks ---- */

static void multiply_blocks(const struct block *common, const struct plan *plan, int n_threads)
{
    const struct zinf_matmul *m = common->m;
    const bool one_depth = plan->depth >= m->k, one_column = plan->columns >= m->n;
    struct block b = *common;
    for (b.row = 0; b.row < m->m; b.row += plan->rows)
        for (b.column = 0; b.column < m->n; b.column += plan->columns)
            for (b.k = 0; b.k < m->k; b.k += plan->depth) {
                b.rows = least(plan->rows, m->m - b.row);
                b.columns = least(plan->columns, m->n - b.column);
                b.depth = least(plan->depth, m->k - b.k);
                b.a_panels = divide_up(b.rows, b.kernel->tile_rows);
                b.b_panels = divide_up(b.columns, b.kernel->tile_columns);
                b.pack_a = !one_depth || b.column == 0;
                b.pack_b = !one_depth || !one_column || b.row == 0;
                multiply_block(&b, n_threads);
            }
}

void host_gemm(struct zinf_queue *q, const struct host_gemm_kernel *kernel,
               const struct zinf_matmul *args)
{
    const struct plan plan = make_plan(kernel, args);
    const int n_threads =
        args->m * args->n < PARALLEL_MIN / args->k ? 1 : q->device->device.n_threads;
    float *workspace = (float *)(uintptr_t)zinf_align_up((uintptr_t)q->workspace, LINE_BYTES);
    struct block block = {.kernel = kernel, .simd = q->device->simd, .m = args, .a = workspace};
    block.b = block.a + plan.a_floats;
    block.sums = block.b + plan.b_floats;
    float *bias = block.sums + plan.sum_floats;
    if (plan.bias_floats)
        block.simd->to_f32(bias, args->bias, args->b_dtype, (size_t)args->n);
    block.bias = plan.bias_floats ? bias : args->bias;
    if (n_threads == 1) {
        multiply_blocks(&block, &plan, 1);
    } else {
#pragma omp parallel num_threads(n_threads)
        multiply_blocks(&block, &plan, n_threads);
    }
}
