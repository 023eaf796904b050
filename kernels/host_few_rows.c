/* host_few_rows: products of a few rows with a large matrix, as in making one token at a time. The
 * matrix is read once, without packing it. */
#include "kernels/host.h"

/* A product of fewer multiplications runs in one thread. Threads get multiples of 16 columns. */
enum { PARALLEL_MIN = 1 << 16, SLICE_ALIGN = 16 };

bool host_few_rows_take(const struct zinf_matmul *m)
{
    return m->few_rows && m->m <= HOST_FEW_ROWS && m->trans_b && !m->trans_a && m->beta == 0.0f &&
           zinf_matmul_alpha(m) == 1.0f;
}

/* The rows of A, converted to fp32. */
uint64_t host_few_rows_workspace(const struct zinf_matmul *m)
{
    const int64_t rows = m->m < HOST_FEW_ROWS ? m->m : HOST_FEW_ROWS;
    return m->few_rows ? (uint64_t)(rows * m->k) * sizeof(float) : 0;
}

void host_few_rows(struct zinf_queue *q, const struct zinf_matmul *m)
{
    const struct host_device *device = q->device;
    const int n_slices = m->m * m->n < PARALLEL_MIN / m->k ? 1 : device->device.n_threads;
    float *a = q->workspace;
    for (int64_t i = 0; i < m->m; i++)
        device->simd->to_f32(a + i * m->k, host_at(m->a, m->a_dtype, (uint64_t)(i * m->lda)),
                             m->a_dtype, (size_t)m->k);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range columns = host_slice((uint64_t)m->n, SLICE_ALIGN, slice, n_slices);
        device->simd->few_rows(m, a, (int64_t)columns.first, (int64_t)columns.count);
    }
}
