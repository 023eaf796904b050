/*
 * host_matmul: products by our own loops (host_gemm.h), and without AVX-512 all that are not small
 * by OpenBLAS. Its threads are off: C is cut into one slice a thread here, so that several queues
 * can work at once with any build of OpenBLAS and the cut (hence the rounding) depends on the shape
 * and n_threads alone. 16-bit operands are converted to fp32 panel by panel in the queue's
 * workspace.
 *
 * OpenBLAS is loaded when the first device is made. Its constructor takes memory for every thread
 * and, where there is no room for that, asks again for ever: no reason for `zinf help` to hang.
 */
#include "kernels/host.h"
#include "kernels/host_gemm.h"

#include "build-config.h"

#include <cblas.h>
#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

/* A panel of C is at most PANEL_ROWS x PANEL_COLUMNS, with PANEL_DEPTH of k at a time: a converted
 * element serves a thousand multiplications, and three fp32 panels stay below 20 MiB. */
enum { PANEL_ROWS = 2048, PANEL_COLUMNS = 1024, PANEL_DEPTH = 1024 };
/* Of a symmetric C, whose panels below the diagonal are copied. */
enum { SYMMETRIC_ROWS = 256 };
/* A product of fewer multiplications runs in one thread. Threads get multiples of 16 rows or
 * columns. */
enum { PARALLEL_MIN = 1 << 18, SLICE_ALIGN = 16 };

/* ---- OpenBLAS ---- */

#define BLAS_BYTES_PER_THREAD                                                                      \
    ((uint64_t)64 << 20) /* of address space, that it maps when loaded                             \
                          */

static struct {
    __typeof__(cblas_sgemm) *sgemm;
    int code;
    char message[320];
} blas;

static bool has_address_space(uint64_t bytes)
{
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return false;
    munmap(room, bytes);
    return true;
}

static int blas_open(void)
{
    const uint64_t room = (uint64_t)(zinf_cpu_count() + 3) * BLAS_BYTES_PER_THREAD;
    char size[16];
    if (!has_address_space(room))
        return zinf_fail(-ENOMEM,
                         "OpenBLAS needs %s of address space: raise the limit (ulimit -v), or give "
                         "the process fewer CPUs (taskset)",
                         zinf_size_format(size, sizeof size, room));
    void *library = dlopen(ZINF_BLAS_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return zinf_fail(-ENOENT, "OpenBLAS cannot be loaded: %s", dlerror());
    __typeof__(openblas_set_num_threads) *set_threads =
        (__typeof__(openblas_set_num_threads) *)(uintptr_t)dlsym(library,
                                                                 "openblas_set_num_threads");
    blas.sgemm = (__typeof__(cblas_sgemm) *)(uintptr_t)dlsym(library, "cblas_sgemm");
    if (!set_threads || !blas.sgemm)
        return zinf_fail(-ENOSYS, "%s is no OpenBLAS with cblas_sgemm", ZINF_BLAS_LIBRARY);
    set_threads(1);
    return 0;
}

static void blas_open_once(void)
{
    blas.code = blas_open();
    if (blas.code)
        snprintf(blas.message, sizeof blas.message, "%s", zinf_error());
}

int host_matmul_setup(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, blas_open_once);
    return blas.code ? zinf_fail(blas.code, "%s", blas.message) : 0;
}

const char *zinf_host_blas(void)
{
    char *(*config)(void) = NULL;
    if (!host_matmul_setup())
        config = (char *(*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "openblas_get_config");
    return config ? config() : blas.message;
}

/* ---- fp32 ---- */

struct product {
    int64_t m, n, k;
    const float *a, *b;
    float *c;
    bool trans_a, trans_b;
    int64_t lda, ldb, ldc;
    float alpha, beta;
};

static void multiply_slice(const struct product *p, int slice, int n_slices)
{
    struct host_range rows = {0, (uint64_t)p->m}, columns = {0, (uint64_t)p->n};
    if (p->m > p->n)
        rows = host_slice((uint64_t)p->m, SLICE_ALIGN, slice, n_slices);
    else
        columns = host_slice((uint64_t)p->n, SLICE_ALIGN, slice, n_slices);
    if (!rows.count || !columns.count)
        return;
    int64_t i = (int64_t)rows.first, j = (int64_t)columns.first;
    blas.sgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans,
               p->trans_b ? CblasTrans : CblasNoTrans, (blasint)rows.count, (blasint)columns.count,
               (blasint)p->k, p->alpha, p->a + (p->trans_a ? i : i * p->lda), (blasint)p->lda,
               p->b + (p->trans_b ? j * p->ldb : j), (blasint)p->ldb, p->beta,
               p->c + i * p->ldc + j, (blasint)p->ldc);
}

static int slices_of(const struct zinf_device *device, int64_t m, int64_t n, int64_t k)
{
    return m * n < PARALLEL_MIN / k ? 1 : device->n_threads;
}

static void multiply(const struct host_device *device, const struct product *p)
{
    int n_slices = slices_of(&device->device, p->m, p->n, p->k);
    /* An OpenBLAS that was built for OpenMP takes this thread's OpenMP setting when it is called
     * outside of a team, and not what openblas_set_num_threads was told in another thread. */
    if (n_slices == 1)
        omp_set_num_threads(1);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++)
        multiply_slice(p, slice, n_slices);
}

/* ---- panels ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Length of equal pieces of n that are at most limit, in multiples of SLICE_ALIGN. */
static int64_t piece_length(int64_t n, int64_t limit)
{
    int64_t count = (n + limit - 1) / limit;
    return (int64_t)zinf_align_up((uint64_t)((n + count - 1) / count), SLICE_ALIGN);
}

/* The longest piece of n or of any smaller number. Memory is planned by it, so that a smaller
 * product never needs more. */
static uint64_t most_length(int64_t n, int64_t limit)
{
    return zinf_align_up((uint64_t)least(n, limit), SLICE_ALIGN);
}

/* Which operands are converted, and how large the panels are. An operand in fp32 is used where it
 * is. */
struct panel_plan {
    int64_t rows, columns, depth;
    uint64_t a_floats, b_floats, c_floats;
};

static struct panel_plan plan_panels(const struct zinf_matmul *m)
{
    bool a = m->a_dtype != ZINF_DTYPE_F32, b = m->b_dtype != ZINF_DTYPE_F32;
    bool c = m->c_dtype != ZINF_DTYPE_F32;
    struct panel_plan plan = {m->m, m->n, m->k, 0, 0, 0};
    if (a || c)
        plan.rows = piece_length(m->m, PANEL_ROWS);
    if (b || c)
        plan.columns = piece_length(m->n, PANEL_COLUMNS);
    if (a || b)
        plan.depth = piece_length(m->k, PANEL_DEPTH);
    const uint64_t rows = most_length(m->m, PANEL_ROWS), depth = most_length(m->k, PANEL_DEPTH);
    const uint64_t columns = most_length(m->n, PANEL_COLUMNS);
    plan.a_floats = a ? rows * depth : 0;
    plan.b_floats = b ? columns * depth : 0;
    plan.c_floats = c ? rows * columns : 0;
    return plan;
}

static const struct host_gemm_kernel *choose_kernel(const struct zinf_device *device,
                                                    const struct zinf_matmul *args)
{
    return host_gemm_kernel(((const struct host_device *)device)->isa, args);
}

static uint64_t blocks_workspace(struct zinf_device *device, const struct zinf_matmul *args)
{
    if (args->m < 1 || args->n < 1 || args->k < 1)
        return 0;
    const struct host_gemm_kernel *kernel = choose_kernel(device, args);
    if (kernel)
        return host_gemm_workspace(kernel, device->n_threads, args);
    /* A smaller product, which may have a kernel, never needs more. */
    const struct host_gemm_kernel *own = host_gemm_small(((const struct host_device *)device)->isa);
    const uint64_t small = host_gemm_workspace(own, device->n_threads, args);
    struct panel_plan plan = plan_panels(args);
    const uint64_t panels = (plan.a_floats + plan.b_floats + plan.c_floats) * sizeof(float);
    return panels > small ? panels : small;
}

uint64_t host_matmul_workspace(struct zinf_device *device, const struct zinf_matmul *args)
{
    if (args->m < 1 || args->n < 1 || args->k < 1)
        return 0;
    uint64_t few = host_few_rows_workspace(args);
    uint64_t blocks = host_few_rows_take(args) ? 0 : blocks_workspace(device, args);
    return host_float8_workspace(args) + (few > blocks ? few : blocks);
}

/* A thread's product packs BLAS_PIECE of k at a time: as many columns of one operand, and of the
 * other all rows of its slice of C. The pages stay, so a run ends with those of its largest
 * product. (Goto and van de Geijn, TOMS 2008; the size is that of OpenBLAS's AVX-512 kernels.) */
enum { BLAS_PIECE = 448 };

uint64_t zinf_matmul_outside_bytes(const struct zinf_device *device, const struct zinf_matmul *args)
{
    if (device->kind != ZINF_DEVICE_HOST || args->m < 1 || args->n < 1 || args->k < 1 ||
        host_few_rows_take(args) || choose_kernel(device, args))
        return 0;
    struct panel_plan plan = plan_panels(args);
    int64_t m = least(plan.rows, args->m), n = least(plan.columns, args->n);
    int64_t k = least(plan.depth, args->k);
    int64_t n_slices = slices_of(device, m, n, k);
    int64_t rows = m > n ? (m + n_slices - 1) / n_slices : m;
    int64_t floats = (rows + least(n, BLAS_PIECE)) * least(k, BLAS_PIECE);
    return (uint64_t)(n_slices * floats) * sizeof(float);
}

/* A block of a matrix in memory: rows x columns from (row, column) on, ld apart. */
struct block {
    const void *base;
    enum zinf_dtype dtype;
    int64_t row, column, rows, columns, ld;
};

/* The block in fp32: where it is, or converted to panel. *ld: the distance of its rows. */
static const float *block_as_f32(const struct host_device *device, const struct block *block,
                                 float *panel, int64_t *ld)
{
    uint64_t first = (uint64_t)(block->row * block->ld + block->column);
    if (block->dtype == ZINF_DTYPE_F32) {
        *ld = block->ld;
        return (const float *)block->base + first;
    }
    *ld = block->columns;
    int n_slices = host_slices(device, (uint64_t)(block->rows * block->columns));
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice((uint64_t)block->rows, 1, slice, n_slices);
        for (uint64_t i = range.first; i < range.first + range.count; i++)
            device->simd->to_f32(
                panel + i * (uint64_t)block->columns,
                host_at(block->base, block->dtype, first + i * (uint64_t)block->ld), block->dtype,
                (size_t)block->columns);
    }
    return panel;
}

/* Writes a C panel back in C's type. */
static void store_panel(const struct host_device *device, const struct block *block,
                        const float *panel)
{
    uint64_t first = (uint64_t)(block->row * block->ld + block->column);
    int n_slices = host_slices(device, (uint64_t)(block->rows * block->columns));
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice((uint64_t)block->rows, 1, slice, n_slices);
        for (uint64_t i = range.first; i < range.first + range.count; i++)
            device->simd->from_f32((char *)(uintptr_t)host_at(block->base, block->dtype,
                                                              first + i * (uint64_t)block->ld),
                                   block->dtype, panel + i * (uint64_t)block->columns,
                                   (size_t)block->columns);
    }
}

/* Sets every row of C to the bias, to which OpenBLAS then adds. It reads and writes C only once
 * either way. */
static void fill_bias(const struct host_device *device, const struct zinf_matmul *m,
                      const struct block *block, float *c, int64_t ldc)
{
    int n_slices = host_slices(device, (uint64_t)(block->rows * block->columns));
    const char *bias = host_at(m->bias, m->b_dtype, (uint64_t)block->column);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice((uint64_t)block->rows, 1, slice, n_slices);
        for (uint64_t i = range.first; i < range.first + range.count; i++)
            device->simd->to_f32(c + i * (uint64_t)ldc, bias, m->b_dtype, (size_t)block->columns);
    }
}

/* One panel of C over all of k. */
static void multiply_panel(struct zinf_queue *q, const struct zinf_matmul *m,
                           const struct panel_plan *plan, const struct block *c_block)
{
    const bool keep_a = c_block->column > 0 && plan->depth >= m->k;
    const struct host_device *device = q->device;
    float *a_panel = q->workspace, *b_panel = a_panel + plan->a_floats;
    float *c_panel = b_panel + plan->b_floats, *c = c_panel;
    struct product p = {.m = c_block->rows,
                        .n = c_block->columns,
                        .trans_a = m->trans_a,
                        .trans_b = m->trans_b,
                        .alpha = zinf_matmul_alpha(m),
                        .beta = m->beta,
                        .ldc = c_block->columns};
    if (m->c_dtype == ZINF_DTYPE_F32 || m->beta != 0.0f)
        c = (float *)(uintptr_t)block_as_f32(device, c_block, c_panel, &p.ldc);
    if (m->bias) {
        fill_bias(device, m, c_block, c, p.ldc);
        p.beta = 1.0f;
    }
    p.c = c;
    for (int64_t k = 0; k < m->k; k += plan->depth, p.beta = 1.0f) {
        p.k = least(plan->depth, m->k - k);
        struct block a = {m->a, m->a_dtype, c_block->row, k, p.m, p.k, m->lda};
        struct block b = {m->b, m->b_dtype, k, c_block->column, p.k, p.n, m->ldb};
        if (m->trans_a)
            a = (struct block){m->a, m->a_dtype, k, c_block->row, p.k, p.m, m->lda};
        if (m->trans_b)
            b = (struct block){m->b, m->b_dtype, c_block->column, k, p.n, p.k, m->ldb};
        if (keep_a && m->a_dtype != ZINF_DTYPE_F32) { /* converted for the panel to the left */
            p.a = a_panel;
            p.lda = a.columns;
        } else {
            p.a = block_as_f32(device, &a, a_panel, &p.lda);
        }
        p.b = block_as_f32(device, &b, b_panel, &p.ldb);
        multiply(device, &p);
    }
    if (m->c_dtype != ZINF_DTYPE_F32)
        store_panel(device, c_block, c_panel);
}

static int multiply_whole(struct zinf_queue *q, const struct zinf_matmul *args)
{
    if (host_few_rows_take(args)) {
        host_few_rows(q, args);
        return 0;
    }
    const struct host_gemm_kernel *kernel = choose_kernel(&q->device->device, args);
    if (kernel) {
        host_gemm(q, kernel, args);
        return 0;
    }
    struct panel_plan plan = plan_panels(args);
    if (args->symmetric)
        plan.rows = plan.columns = piece_length(args->m, SYMMETRIC_ROWS);
    for (int64_t i = 0; i < args->m; i += plan.rows)
        for (int64_t j = args->symmetric ? i : 0; j < args->n; j += plan.columns) {
            struct block c = {args->c,
                              args->c_dtype,
                              i,
                              j,
                              least(plan.rows, args->m - i),
                              least(plan.columns, args->n - j),
                              args->ldc};
            multiply_panel(q, args, &plan, &c);
        }
    if (args->symmetric)
        host_mirror(args, slices_of(&q->device->device, args->m, args->n, args->k));
    return 0;
}

int host_matmul(struct zinf_queue *q, const struct zinf_matmul *args)
{
    int code = check_matmul(args);
    if (code || !args->m || !args->n)
        return code;
    code = check_workspace(q->workspace_bytes, host_matmul_workspace(&q->device->device, args),
                           "matmul");
    if (code)
        return code;
    if (args->float8 == ZINF_FLOAT8_NONE)
        return multiply_whole(q, args);
    const struct zinf_queue whole = *q;
    const struct zinf_matmul rounded = host_float8(q, args);
    code = multiply_whole(q, &rounded);
    q->workspace = whole.workspace;
    q->workspace_bytes = whole.workspace_bytes;
    return code;
}
