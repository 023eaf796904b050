/*
 * merge_module: W + scale B A of one module, a block of whole rows of the file's tensor at a time;
 * where it has magnitudes m, m / |row| times that, whose norms take a pass of their own.
 */
#include "train/save/merge.h"

#include <math.h>
#include <stdlib.h>

const struct zinf_piece *merge_piece_of(const struct zinf_graph *g, const struct zinf_adapted *of)
{
    const struct zinf_tensor *t = &g->units[of->unit].tensors[of->tensor];
    for (uint32_t p = 0; p < t->n_pieces; p++)
        if (t->pieces[p].rows.flat_first >= of->first_row &&
            t->pieces[p].rows.flat_first < of->first_row + of->rows)
            return &t->pieces[p];
    return NULL;
}

const struct zinf_adapted *merge_find_adapted(const struct merging *m, const char *name)
{
    const struct zinf_graph *g = zinf_model_graph(m->model);
    const char *bare = zinf_family_bare_name(zinf_model_family(m->model), name);
    for (uint32_t i = 0; i < g->n_adapted; i++) {
        const struct zinf_piece *piece = merge_piece_of(g, &g->adapted[i]);
        if (piece && !strcmp(piece->plain_name ? name : bare, piece->name))
            return &g->adapted[i];
    }
    return NULL;
}

/* A, B or the magnitudes of a module, on the heap. */
static int read_factor(const struct merging *m, const struct zinf_tensor *tensor, float **out)
{
    const char *name = tensor->pieces[0].name;
    const struct zinf_tensor_info *info = zinf_tensors_find(m->adapter, name);
    *out = NULL;
    if (!info)
        return zinf_fail(-ENOENT, "%s: tensor %s is missing", m->folder, name);
    if (info->rank != tensor->rank || info->shape[0] != tensor->rows ||
        (info->rank == 2 && info->shape[1] != tensor->cols))
        return zinf_fail(-EINVAL, "%s: tensor %s does not have the shape [%llu, %llu]", m->folder,
                         name, (unsigned long long)tensor->rows, (unsigned long long)tensor->cols);
    *out = malloc(tensor->elems * sizeof **out);
    if (!*out)
        return zinf_fail(-ENOMEM, "no memory for %s", name);
    return zinf_tensors_read_f32(m->adapter, info, 0, tensor->elems, *out);
}

void merge_free_module(struct merging *m)
{
    free(m->a);
    free(m->b);
    free(m->gain);
    m->a = m->b = m->gain = NULL;
}

/* Rows [first, first + n) of the file's tensor, which has W or its transpose, += scale B A. The
 * adapter's file has B in the order of the base's file. */
static int add_product(const struct merging *m, const struct zinf_adapted *of,
                       const struct zinf_tensor_info *info, uint64_t first, uint64_t n)
{
    const struct zinf_graph *g = zinf_model_graph(m->model);
    int64_t rank = (int64_t)g->units[of->adapter].tensors[of->a].rows;
    struct zinf_matmul args = {
        .m = (int64_t)n,
        .n = (int64_t)info->shape[1],
        .k = rank,
        .a = m->b + first * (uint64_t)rank,
        .b = m->a,
        .c = m->block,
        .lda = rank,
        .ldb = (int64_t)info->shape[1],
        .ldc = (int64_t)info->shape[1],
        .alpha = of->scale,
        .beta = 1,
    };
    if (merge_piece_of(g, of)->transposed) {
        args.a = m->a + first;
        args.b = m->b;
        args.trans_a = args.trans_b = true;
        args.lda = (int64_t)info->shape[0];
        args.ldb = rank;
    }
    m->device->ops->queue_set_workspace(m->queue, m->workspace,
                                        m->device->ops->matmul_workspace(m->device, &args));
    return m->device->ops->matmul(m->queue, &args);
}

/* ---- magnitudes ---- */

/* The place of the weight's row, as [out][in], that the block's element is of. */
static uint64_t row_of(const struct zinf_tensor_info *info, bool transposed, uint64_t element)
{
    return transposed ? element % info->shape[1] : element / info->shape[1];
}

/* W + scale B A from element `at` on into the block. */
static int read_sum(const struct merging *m, const struct zinf_adapted *of,
                    const struct zinf_tensor_info *info, uint64_t at, uint64_t n)
{
    int code = merge_read_base(m, info, at, n);
    return code ? code : add_product(m, of, info, at / info->shape[1], n / info->shape[1]);
}

/* One pass over the sums for the norms of their rows, which are columns of what is transposed. */
static int make_gain(struct merging *m, const struct zinf_adapted *of,
                     const struct zinf_tensor_info *info, uint64_t step)
{
    const struct zinf_unit *unit = &zinf_model_graph(m->model)->units[of->adapter];
    bool transposed = merge_piece_of(zinf_model_graph(m->model), of)->transposed;
    double *squares = calloc(of->rows, sizeof *squares);
    int code = squares ? read_factor(m, &unit->tensors[of->magnitude], &m->gain)
                       : zinf_fail(-ENOMEM, "no memory for %s", info->name);
    for (uint64_t at = 0; !code && at < info->n_elems; at += step) {
        uint64_t n = info->n_elems - at < step ? info->n_elems - at : step;
        code = read_sum(m, of, info, at, n);
        for (uint64_t i = 0; !code && i < n; i++)
            squares[row_of(info, transposed, at + i)] += (double)m->block[i] * (double)m->block[i];
    }
    for (uint64_t i = 0; !code && i < of->rows; i++)
        m->gain[i] = squares[i] > 0 ? (float)((double)m->gain[i] / sqrt(squares[i])) : 0;
    free(squares);
    return code;
}

static void scale_block(const struct merging *m, const struct zinf_adapted *of,
                        const struct zinf_tensor_info *info, uint64_t at, uint64_t n)
{
    bool transposed = merge_piece_of(zinf_model_graph(m->model), of)->transposed;
    for (uint64_t i = 0; m->gain && i < n; i++)
        m->block[i] *= m->gain[row_of(info, transposed, at + i)];
}

/* ---- for who streams ---- */

int merge_read_module(struct merging *m, const struct zinf_adapted *of,
                      const struct zinf_tensor_info *info, uint64_t step)
{
    const struct zinf_unit *unit = &zinf_model_graph(m->model)->units[of->adapter];
    int code = read_factor(m, &unit->tensors[of->a], &m->a);
    if (!code)
        code = read_factor(m, &unit->tensors[of->b], &m->b);
    return code || !of->has_magnitude ? code : make_gain(m, of, info, step);
}

int merge_read_block(const struct merging *m, const struct zinf_adapted *of,
                     const struct zinf_tensor_info *info, uint64_t at, uint64_t n)
{
    int code = read_sum(m, of, info, at, n);
    if (!code)
        scale_block(m, of, info, at, n);
    return code;
}
