/*
 * plan_blas: memory that OpenBLAS takes by itself, outside of every arena. A thread's product packs
 * PIECE of k at a time: PIECE columns of one operand, and of the other all rows of C. The pages
 * stay, so a run ends with those of its largest product. (Goto and van de Geijn, "Anatomy of
 * High-Performance Matrix Multiplication"; the size of a piece is that of the AVX-512 kernels.)
 */
#include "train/plan/lines.h"

#define PIECE 448

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* For C[m][n] += A[m][k] B[k][n]; the host device cuts a product along its longer side. */
static void widen(uint64_t *most, uint64_t m, uint64_t n, uint64_t k, uint64_t n_threads)
{
    uint64_t rows = m > n ? (m + n_threads - 1) / n_threads : m;
    uint64_t elems = (rows + least(n, PIECE)) * least(k, PIECE);
    *most = elems > *most ? elems : *most;
}

uint64_t plan_blas_bytes(const struct plan *p)
{
    uint64_t n_threads = (uint64_t)p->setup->device->n_threads, most = 0;
    uint64_t hidden = (uint64_t)p->setup->spec->hidden, tile = (uint64_t)p->setup->spec->tile_rows;
    uint64_t head_rows = (uint64_t)p->setup->head_rows;
    const struct zinf_unit_spec *block =
        zinf_model_unit(p->setup->model, zinf_model_first_block(p->setup->model));
    if (p->setup->device->kind != ZINF_DEVICE_HOST)
        return 0;
    for (int i = 0; i < block->n_tensors; i++) {
        const struct zinf_tensor_spec *tensor = &block->tensors[i];
        if (tensor->rank != 2)
            continue;
        uint64_t out = tensor->shape[tensor->transposed], in = tensor->shape[!tensor->transposed];
        widen(&most, p->setup->rows, out, in, n_threads);
        widen(&most, p->setup->rows, in, out, n_threads);
        if (p->setup->options.mode != ZINF_TRAINER_FORWARD)
            widen(&most, out, in, p->setup->rows, n_threads);
    }
    widen(&most, head_rows, tile, hidden, n_threads);
    widen(&most, head_rows, hidden, tile, n_threads);
    if (p->setup->options.mode != ZINF_TRAINER_FORWARD)
        widen(&most, tile, hidden, head_rows, n_threads);
    return n_threads * most * sizeof(float);
}
