/*
 * host_gemm: products by packed panels and threads. A product goes step by step over blocks of rows
 * and of k. In each step all threads together pack A into the queue's workspace. Then each takes
 * units of columns, packs that part of B for itself, and multiplies. Packed A has two places, which
 * take turns, so that one barrier a step is enough. Threads take work when they are free; which
 * thread does what does not change a bit.
 */
#include "kernels/host_gemm.h"
#include "kernels/host.h"

#include <omp.h>

#include "build-config.h"

/* A_BYTES: what packed A may take, about 1000 rows of a block of k, so that it stays in the third
 * cache. SUM_ROWS, SUM_FLOATS: the largest block of a C in 16 bits whose sums over several blocks
 * of k are kept in fp32. */
enum { A_BYTES = 4 << 20, SUM_ROWS = 1024, SUM_FLOATS = SUM_ROWS * 768 };
/* UNIT_PANELS: panels of B in a unit, so that they stay in the second cache. A unit gets fewer
 * panels, and then fewer rows, where threads would have less than UNITS_PER_THREAD units each. */
enum { UNIT_PANELS = 4, UNIT_ROW_PANELS = 8, UNITS_PER_THREAD = 4 };
/* PACK_PANELS: panels of A that are packed together. PACK_DEPTH: how much of k is packed at a time
 * where k goes down the rows, unless the kernel wants more. Neighbouring panels share cache lines
 * and pages, and the processor fetches what follows a line in its row. */
enum { PACK_PANELS = 4, PACK_DEPTH = 8 };
/* A product of fewer multiplications runs in one thread. Without AVX-512, larger ones than
 * SMALL_MOST are left to OpenBLAS, which is up to a fifth faster with AVX2. */
enum { PARALLEL_MIN = 1 << 18, SMALL_MOST = 1 << 21 };
/* Rows and columns of a symmetric C that are copied at a time: the lines on both sides of the
 * diagonal fit into the first cache. */
enum { MIRROR_TILE = 32 };

const struct host_gemm_kernel *host_gemm_small(enum zinf_isa isa)
{
#ifdef ZINF_HAVE_AVX2
    if (isa >= ZINF_ISA_AVX2)
        return &host_gemm_avx2;
#endif
    (void)isa;
    return &host_gemm_scalar;
}

const struct host_gemm_kernel *host_gemm_kernel(enum zinf_isa isa, const struct zinf_matmul *args)
{
    /* With alpha, A in 16 bits would be rounded once more. */
    const bool bf16 = args->a_dtype == ZINF_DTYPE_BF16 && args->b_dtype == ZINF_DTYPE_BF16 &&
                      zinf_matmul_alpha(args) == 1.0f;
#ifdef ZINF_HAVE_AMX_BF16
    if (isa >= ZINF_ISA_AMX_BF16 && bf16)
        return &host_gemm_amx_bf16;
#endif
#ifdef ZINF_HAVE_AVX512_BF16
    if (isa >= ZINF_ISA_AVX512_BF16 && bf16)
        return &host_gemm_avx512_bf16;
#endif
#ifdef ZINF_HAVE_AVX512
    if (isa >= ZINF_ISA_AVX512)
        return &host_gemm_avx512;
#endif
    (void)bf16;
    return args->m * args->n <= SMALL_MOST / args->k ? host_gemm_small(isa) : NULL;
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

/* The lengths of blocks, and what they take of the workspace. */
struct block_plan {
    int64_t rows, columns, depth;
    uint64_t a_bytes, b_bytes; /* of one place of packed A; of one thread's packed B */
    uint64_t sum_floats, bias_floats;
    int n_threads, a_places;
};

static int64_t panel_bytes(const struct host_gemm_kernel *kernel, int width, int64_t depth)
{
    return width * divide_up(depth, kernel->depth_align) * kernel->depth_align *
           kernel->element_bytes;
}

/* Length of equal pieces of n, each at most limit, in multiples of align. */
static int64_t piece_length(int64_t n, int64_t limit, int64_t align)
{
    return divide_up(divide_up(n, divide_up(n, limit)), align) * align;
}

static struct block_plan make_plan(const struct host_gemm_kernel *kernel, int n_threads,
                                   const struct zinf_matmul *m)
{
    const bool sums = m->c_dtype != ZINF_DTYPE_F32 && m->k > kernel->block_depth;
    const int64_t tile_rows = kernel->tile_rows, tile_columns = kernel->tile_columns;
    struct block_plan plan = {.depth =
                                  piece_length(m->k, kernel->block_depth, kernel->depth_align)};
    const int64_t rows_limit =
        A_BYTES / panel_bytes(kernel, kernel->a_width, plan.depth) * tile_rows;
    plan.rows = piece_length(m->m, sums ? least(rows_limit, SUM_ROWS) : rows_limit, 1);
    const int64_t columns_limit = SUM_FLOATS / plan.rows / tile_columns * tile_columns;
    plan.columns = sums ? piece_length(m->n, columns_limit, tile_columns) : m->n;
    plan.n_threads = m->m * m->n < PARALLEL_MIN / m->k ? 1 : n_threads;
    /* Sizes follow from the limits and not from the product's own pieces, so that a smaller product
     * never needs more. */
    const int64_t depth = least(m->k, kernel->block_depth);
    const int64_t a = divide_up(m->m, tile_rows) * panel_bytes(kernel, kernel->a_width, depth);
    const int64_t b_panels = least(divide_up(m->n, tile_columns), UNIT_PANELS);
    const int64_t columns = divide_up(m->n, tile_columns) * tile_columns;
    plan.a_places = a > A_BYTES || m->k > kernel->block_depth ? 2 : 1;
    plan.a_bytes = (uint64_t)least(a, A_BYTES);
    plan.b_bytes = (uint64_t)(b_panels * panel_bytes(kernel, kernel->b_width, depth));
    plan.sum_floats = sums ? (uint64_t)least(m->m * columns, SUM_FLOATS) : 0;
    plan.bias_floats =
        m->bias && m->b_dtype != ZINF_DTYPE_F32 ? zinf_align_up((uint64_t)m->n, 16) : 0;
    return plan;
}

/* Panels begin at cache lines. */
enum { LINE_BYTES = 64 };

uint64_t host_gemm_workspace(const struct host_gemm_kernel *kernel, int n_threads,
                             const struct zinf_matmul *args)
{
    const struct block_plan plan = make_plan(kernel, n_threads, args);
    return plan.a_bytes * (uint64_t)plan.a_places + plan.b_bytes * (uint64_t)plan.n_threads +
           (plan.sum_floats + plan.bias_floats) * sizeof(float) + LINE_BYTES;
}

/* ---- one block ---- */

struct block {
    const struct host_gemm_kernel *kernel;
    const struct host_simd *simd;
    const struct zinf_matmul *m;
    char *a;           /* packed */
    char *b;           /* packed, of this thread */
    float *sums;       /* of a C in 16 bits over more than one block of k, or NULL */
    const float *bias; /* [n] or NULL */
    int64_t row, column, k, rows, columns, depth;
    int64_t a_panels, b_panels;
    int64_t a_panel_bytes, b_panel_bytes;
    int64_t height, width; /* panels of A and of B in a unit */
    int64_t n_across, n_units;
    struct host_gemm_rows next; /* rows of B that are probably packed next, not prefetched yet */
    int64_t next_rows;          /* how many of them to prefetch with each tile */
};

/* The first row of panel i in the block. Heights of panels differ by one at most. */
static int64_t panel_row(const struct block *b, int64_t i)
{
    const int64_t each = b->rows / b->a_panels, more = b->rows % b->a_panels;
    return i * each + least(i, more);
}

/* Multiplies packed A by alpha, where A is packed in fp32. */
static void scale(float *packed, int64_t n, float alpha)
{
    for (int64_t i = 0; i < n; i++)
        packed[i] *= alpha;
}

/* Packs k to k + depth of a panel of A. */
static void pack_a(const struct block *b, int64_t panel, int64_t k, int64_t depth)
{
    const struct zinf_matmul *m = b->m;
    const int64_t first = panel_row(b, panel), row = b->row + first;
    const int64_t element = m->trans_a ? (b->k + k) * m->lda + row : row * m->lda + b->k + k;
    const struct host_gemm_strip strip = {
        .src = host_at(m->a, m->a_dtype, (uint64_t)element),
        .dtype = m->a_dtype,
        .across = m->trans_a,
        .ld = m->lda,
        .width = panel_row(b, panel + 1) - first,
        .depth = depth,
    };
    char *packed =
        b->a + panel * b->a_panel_bytes + k * b->kernel->a_width * b->kernel->element_bytes;
    b->kernel->pack_a(packed, &strip);
    if (zinf_matmul_alpha(m) != 1.0f)
        scale((float *)(void *)packed, depth * b->kernel->a_width, zinf_matmul_alpha(m));
}

/* How much of k is packed at a time. across: k goes down the rows. */
static int64_t pack_step(const struct block *b, bool across)
{
    const int64_t align = b->kernel->depth_align;
    return !across ? b->depth : align > PACK_DEPTH ? align : PACK_DEPTH;
}

static void pack_a_panels(const struct block *b, int64_t first, int64_t end)
{
    const int64_t step = pack_step(b, b->m->trans_a);
    for (int64_t k = 0; k < b->depth; k += step)
        for (int64_t panel = first; panel < end; panel++)
            pack_a(b, panel, k, least(step, b->depth - k));
}

/* Packs k to k + depth of a panel of B, which is number `slot` of its unit. */
static void pack_b(const struct block *b, int64_t panel, int64_t slot, int64_t k, int64_t depth)
{
    const struct zinf_matmul *m = b->m;
    const int64_t width = b->kernel->tile_columns;
    const int64_t first = panel * width, column = b->column + first;
    const int64_t element = m->trans_b ? column * m->ldb + b->k + k : (b->k + k) * m->ldb + column;
    const struct host_gemm_strip strip = {
        .src = host_at(m->b, m->b_dtype, (uint64_t)element),
        .dtype = m->b_dtype,
        .across = !m->trans_b,
        .ld = m->ldb,
        .width = least(width, b->columns - first),
        .depth = depth,
    };
    b->kernel->pack_b(
        b->b + slot * b->b_panel_bytes + k * b->kernel->b_width * b->kernel->element_bytes, &strip);
}

static void pack_b_panels(const struct block *b, int64_t first, int64_t end)
{
    const int64_t step = pack_step(b, !b->m->trans_b);
    for (int64_t k = 0; k < b->depth; k += step)
        for (int64_t panel = first; panel < end; panel++)
            pack_b(b, panel, panel - first, k, least(step, b->depth - k));
}

/* Converts a part of a C in 16 bits to fp32; write_part converts it back. */
static void read_part(const struct block *b, float *part, int64_t ld, const char *c, int64_t rows,
                      int64_t columns)
{
    const uint64_t row_bytes = (uint64_t)b->m->ldc * zinf_dtype_bytes(b->m->c_dtype);
    for (int64_t i = 0; i < rows; i++)
        b->simd->to_f32(part + i * ld, c + (uint64_t)i * row_bytes, b->m->c_dtype, (size_t)columns);
}

static void write_part(const struct block *b, char *c, const float *part, int64_t ld, int64_t rows,
                       int64_t columns)
{
    const uint64_t row_bytes = (uint64_t)b->m->ldc * zinf_dtype_bytes(b->m->c_dtype);
    for (int64_t i = 0; i < rows; i++)
        b->simd->from_f32(c + (uint64_t)i * row_bytes, b->m->c_dtype, part + i * ld,
                          (size_t)columns);
}

/* Takes at most count rows from the beginning of `from`. */
static struct host_gemm_rows take_rows(struct host_gemm_rows *from, int64_t count)
{
    struct host_gemm_rows part = *from;
    part.count = least(count, from->count);
    from->first += part.count * from->ld;
    from->count -= part.count;
    return part;
}

/* Multiplies panel i of A by panel j of B, which is number `slot` of its unit. In the first block
 * of k the product is added to C or to the bias, in later ones to the sum so far. The result goes
 * to C; of a C in 16 bits it goes to fp32 sums up to the last block of k. part: C in fp32,
 * part_columns wide, if a C in 16 bits is read or written now. */
static void multiply_panels(struct block *b, int64_t i, int64_t j, int64_t slot, float *part)
{
    const struct zinf_matmul *m = b->m;
    const int64_t width = b->kernel->tile_columns;
    const int64_t row = panel_row(b, i), column = j * width;
    const bool wide = m->c_dtype == ZINF_DTYPE_F32, last = b->k + b->depth == m->k;
    float *sums = b->sums + row * b->columns + column;
    float *c = wide ? (float *)m->c + (b->row + row) * m->ldc + b->column + column : NULL;
    struct host_gemm_tile tile = {
        .rows = panel_row(b, i + 1) - row,
        .columns = least(width, b->columns - column),
        .depth = b->depth,
        .a = b->a + i * b->a_panel_bytes,
        .b = b->b + slot * b->b_panel_bytes,
        .c = wide   ? c
             : last ? part
                    : sums,
        .ldc = wide   ? m->ldc
               : last ? UNIT_PANELS * width
                      : b->columns,
    };
    if (b->k > 0) {
        tile.d = wide ? c : sums;
        tile.ldd = wide ? m->ldc : b->columns;
    } else if (m->beta != 0.0f) {
        tile.d = wide ? c : part;
        tile.ldd = wide ? m->ldc : UNIT_PANELS * width;
    } else if (b->bias) {
        tile.d = b->bias + b->column + column;
    }
    tile.next = take_rows(&b->next, b->next_rows);
    b->kernel->multiply(&tile);
}

/* Whether rows from `row` on, up to this column, are below the diagonal of a symmetric C: they are
 * copied from above it. */
static bool is_mirrored(const struct block *b, int64_t row, int64_t end_column)
{
    return b->m->symmetric && b->column + least(end_column, b->columns) <= b->row + row;
}

/* Multiplies panel i of A by panels [j, j_end) of B, which are of one unit. A C in 16 bits is
 * converted to fp32 and back once for all of them. */
static void multiply_row(struct block *b, int64_t i, int64_t j, int64_t j_end)
{
    float part[UNIT_PANELS * HOST_GEMM_TILE_FLOATS] __attribute__((aligned(LINE_BYTES)));
    const struct zinf_matmul *m = b->m;
    const int64_t width = b->kernel->tile_columns, ld = UNIT_PANELS * width;
    const int64_t row = panel_row(b, i), rows = panel_row(b, i + 1) - row;
    const int64_t column = j * width, columns = least(j_end * width, b->columns) - column;
    const bool wide = m->c_dtype == ZINF_DTYPE_F32;
    char *c = (char *)(uintptr_t)host_at(m->c, m->c_dtype,
                                         (uint64_t)((b->row + row) * m->ldc + b->column + column));
    if (!wide && b->k == 0 && m->beta != 0.0f)
        read_part(b, part, ld, c, rows, columns);
    for (int64_t slot = 0; j + slot < j_end; slot++)
        if (!is_mirrored(b, row, (j + slot + 1) * width))
            multiply_panels(b, i, j + slot, slot, part + slot * width);
    if (!wide && b->k + b->depth == m->k)
        write_part(b, c, part, ld, rows, columns);
}

/* The rows of B that the unit packs where k goes down the rows. Each row has only a few lines of
 * it, too few for the processor to prefetch them by itself. */
static struct host_gemm_rows unit_rows(const struct block *b, int64_t unit)
{
    const struct zinf_matmul *m = b->m;
    if (m->trans_b || unit >= b->n_units)
        return (struct host_gemm_rows){0};
    const int64_t element_bytes = (int64_t)zinf_dtype_bytes(m->b_dtype);
    const int64_t columns = b->width * b->kernel->tile_columns;
    const int64_t from = unit % b->n_across * columns;
    return (struct host_gemm_rows){
        .first = host_at(m->b, m->b_dtype, (uint64_t)(b->k * m->ldb + b->column + from)),
        .count = b->depth,
        .bytes = least(columns, b->columns - from) * element_bytes,
        .ld = m->ldb * element_bytes,
    };
}

static void multiply_unit(struct block *b, int64_t unit)
{
    const int64_t i0 = unit / b->n_across * b->height, i_end = least(i0 + b->height, b->a_panels);
    const int64_t j0 = unit % b->n_across * b->width, j_end = least(j0 + b->width, b->b_panels);
    if (is_mirrored(b, panel_row(b, i0), j_end * b->kernel->tile_columns))
        return;
    pack_b_panels(b, j0, j_end);
    b->next = unit_rows(b, unit + omp_get_num_threads());
    b->next_rows = divide_up(b->next.count, (i_end - i0) * (j_end - j0));
    for (int64_t i = i0; i < i_end; i++)
        multiply_row(b, i, j0, j_end);
}

/* Run by every thread of a team, or by one thread outside of any. */
static void multiply_block(struct block *b)
{
#pragma omp for schedule(dynamic)
    for (int64_t panel = 0; panel < b->a_panels; panel += PACK_PANELS)
        pack_a_panels(b, panel, least(panel + PACK_PANELS, b->a_panels));
#pragma omp for schedule(dynamic) nowait
    for (int64_t unit = 0; unit < b->n_units; unit++)
        multiply_unit(b, unit);
}

/* ---- all blocks ---- */

static void choose_unit(struct block *b, int n_threads)
{
    const int64_t wanted = n_threads > 1 ? n_threads * UNITS_PER_THREAD : 1;
    b->width = least(UNIT_PANELS, b->b_panels);
    b->height = b->a_panels;
    while (b->width > 1 && divide_up(b->b_panels, b->width) < wanted)
        b->width--;
    while (b->height > UNIT_ROW_PANELS &&
           divide_up(b->b_panels, b->width) * divide_up(b->a_panels, b->height) < wanted)
        b->height = (b->height + 1) / 2;
    b->n_across = divide_up(b->b_panels, b->width);
    b->n_units = divide_up(b->a_panels, b->height) * b->n_across;
}

/* b: what all blocks have in common. A thread packs A into the same place two steps later. It has
 * passed a barrier by then, which all threads reached after they had left the step in between. */
static void multiply_blocks(struct block b, const struct block_plan *plan)
{
    const struct zinf_matmul *m = b.m;
    char *const places[2] = {b.a, b.a + (uint64_t)(plan->a_places - 1) * plan->a_bytes};
    int step = 0;
    b.b += (uint64_t)omp_get_thread_num() * plan->b_bytes;
    if (b.kernel->start)
        b.kernel->start();
    for (b.row = 0; b.row < m->m; b.row += plan->rows)
        for (b.column = 0; b.column < m->n; b.column += plan->columns)
            for (b.k = 0; b.k < m->k; b.k += plan->depth) {
                b.a = places[step++ % 2];
                b.rows = least(plan->rows, m->m - b.row);
                b.columns = least(plan->columns, m->n - b.column);
                b.depth = least(plan->depth, m->k - b.k);
                b.a_panels = divide_up(b.rows, b.kernel->tile_rows);
                b.b_panels = divide_up(b.columns, b.kernel->tile_columns);
                choose_unit(&b, plan->n_threads);
                b.a_panel_bytes = panel_bytes(b.kernel, b.kernel->a_width, b.depth);
                b.b_panel_bytes = panel_bytes(b.kernel, b.kernel->b_width, b.depth);
                multiply_block(&b);
            }
    if (b.kernel->stop)
        b.kernel->stop();
}

void host_mirror(const struct zinf_matmul *m, int n_threads)
{
    float *c = m->c;
    const int64_t ld = m->ldc;
#pragma omp parallel for num_threads(n_threads) schedule(dynamic)
    for (int64_t row = 0; row < m->m; row += MIRROR_TILE)
        for (int64_t column = 0; column <= row; column += MIRROR_TILE)
            for (int64_t i = row; i < least(row + MIRROR_TILE, m->m); i++)
                for (int64_t j = column; j < least(column + MIRROR_TILE, i); j++)
                    c[i * ld + j] = c[j * ld + i];
}

void host_gemm(struct zinf_queue *q, const struct host_gemm_kernel *kernel,
               const struct zinf_matmul *args)
{
    const struct block_plan plan = make_plan(kernel, q->device->device.n_threads, args);
    char *workspace = (char *)(uintptr_t)zinf_align_up((uintptr_t)q->workspace, LINE_BYTES);
    struct block block = {.kernel = kernel, .simd = q->device->simd, .m = args, .a = workspace};
    block.b = block.a + plan.a_bytes * (uint64_t)plan.a_places;
    block.sums = (float *)(void *)(block.b + plan.b_bytes * (uint64_t)plan.n_threads);
    float *bias = block.sums + plan.sum_floats;
    if (plan.bias_floats)
        block.simd->to_f32(bias, args->bias, args->b_dtype, (size_t)args->n);
    block.bias = plan.bias_floats ? bias : args->bias;
#pragma omp parallel num_threads(plan.n_threads) if (plan.n_threads > 1)
    multiply_blocks(block, &plan);
    if (args->symmetric)
        host_mirror(args, plan.n_threads);
}
