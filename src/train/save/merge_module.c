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

/* The p-th piece of the module's tensor, if it is of the module and no earlier one is of the same
 * tensor of the file. */
static const struct zinf_piece *begins_tensor(const struct zinf_tensor *t,
                                              const struct zinf_adapted *of, uint32_t p)
{
    const struct zinf_piece *piece = &t->pieces[p];
    bool begins = piece->rows.flat_first >= of->first_row &&
                  piece->rows.flat_first < of->first_row + of->rows;
    for (uint32_t i = 0; begins && i < p; i++)
        begins = strcmp(t->pieces[i].name, piece->name) != 0;
    return begins ? piece : NULL;
}

static const struct zinf_piece *find_piece(const struct merging *m, const struct zinf_adapted *of,
                                           const char *name)
{
    const struct zinf_graph *g = zinf_model_graph(m->model);
    const struct zinf_tensor *t = &g->units[of->unit].tensors[of->tensor];
    const char *bare = zinf_family_bare_name(zinf_model_family(m->model), name);
    for (uint32_t p = 0; p < t->n_pieces; p++) {
        const struct zinf_piece *piece = begins_tensor(t, of, p);
        if (piece && !strcmp(piece->plain_name ? name : bare, piece->name))
            return piece;
    }
    return NULL;
}

const struct zinf_adapted *merge_find_adapted(const struct merging *m, const char *name,
                                              uint64_t slab)
{
    const struct zinf_graph *g = zinf_model_graph(m->model);
    for (uint32_t i = 0; i < g->n_adapted; i++) {
        const struct zinf_piece *piece = find_piece(m, &g->adapted[i], name);
        if (piece && piece->slab == slab)
            return &g->adapted[i];
    }
    return NULL;
}

uint32_t merge_count_adapted(const struct zinf_graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_adapted; i++) {
        const struct zinf_adapted *of = &g->adapted[i];
        const struct zinf_tensor *t = &g->units[of->unit].tensors[of->tensor];
        for (uint32_t p = 0; p < t->n_pieces; p++)
            n += begins_tensor(t, of, p) != NULL;
    }
    return n;
}

/* The adapter's tensor that ours is, if it has its shape. */
static int find_factor(const struct merging *m, const struct zinf_tensor *tensor,
                       const struct zinf_tensor_info **out)
{
    const struct zinf_piece *piece = &tensor->pieces[0];
    const struct zinf_tensor_info *info = *out = zinf_tensors_find(m->adapter, piece->name);
    if (!info)
        return zinf_fail(-ENOENT, "%s: tensor %s is missing", m->folder, piece->name);
    if (info->rank != piece->rank || info->shape[0] != piece->shape[0] ||
        (info->rank == 2 && info->shape[1] != piece->shape[1]))
        return zinf_fail(-EINVAL, "%s: tensor %s does not have the shape [%llu, %llu]", m->folder,
                         piece->name, (unsigned long long)piece->shape[0],
                         (unsigned long long)(piece->rank == 2 ? piece->shape[1] : 1));
    return 0;
}

/* n elements of A, B or the magnitudes of a module from `first` on, on the heap. */
static int read_factor(const struct merging *m, const struct zinf_tensor *tensor, uint64_t first,
                       uint64_t n, float **out)
{
    const struct zinf_tensor_info *info;
    int code = find_factor(m, tensor, &info);
    *out = code ? NULL : malloc(n * sizeof **out);
    if (!code && !*out)
        code = zinf_fail(-ENOMEM, "no memory for %s", info->name);
    return code ? code : zinf_tensors_read_f32(m->adapter, info, first, n, *out);
}

/* ---- stacks ---- */

static int read_stack(struct merging *m, const struct zinf_tensor *tensor, const float **out)
{
    const struct zinf_tensor_info *info;
    int code = find_factor(m, tensor, &info);
    if (code)
        return code;
    const bool second = m->stacks[1].info == info;
    if (!second && m->stacks[0].info != info) {
        free(m->stacks[1].values);
        m->stacks[1] = m->stacks[0];
        m->stacks[0].info = NULL;
        code = read_factor(m, tensor, 0, info->n_elems, &m->stacks[0].values);
        m->stacks[0].info = code ? NULL : info;
    }
    *out = m->stacks[second].values;
    return code;
}

/* Of one expert [rows of the base's tensor][rank], from columns that experts take turns in. */
static int read_share_of_b(struct merging *m, const struct zinf_adapted *of,
                           const struct zinf_tensor_info *info)
{
    const struct zinf_graph *g = zinf_model_graph(m->model);
    const struct zinf_tensor *t = &g->units[of->adapter].tensors[of->b];
    const struct zinf_piece *piece = find_piece(m, of, info->name);
    const uint64_t all = t->rows, n_visits = all / of->rank, visit = of->first_rank / of->rank;
    const uint64_t rows = piece->n_slabs      ? of->rows
                          : piece->transposed ? info->shape[1]
                                              : info->shape[0];
    const uint64_t first = piece->n_slabs ? 0 : piece->rows.flat_first - of->first_row;
    const float *stack = NULL;
    int code = read_stack(m, t, &stack);
    m->b = code ? NULL : malloc(rows * of->rank * sizeof *m->b);
    if (!code && !m->b)
        code = zinf_fail(-ENOMEM, "no memory for %s", info->name);
    for (uint64_t row = 0; !code && row < rows; row++)
        for (uint64_t j = 0; j < of->rank; j++)
            m->b[row * of->rank + j] = stack[(first + row) * all + j * n_visits + visit];
    return code;
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
    int64_t rank = of->rank;
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
    int code = squares ? read_factor(m, &unit->tensors[of->magnitude], 0, of->rows, &m->gain)
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
    const struct zinf_tensor *a = &unit->tensors[of->a], *b = &unit->tensors[of->b];
    int code = read_factor(m, a, of->first_rank * a->cols, of->rank * a->cols, &m->a);
    if (!code)
        code = of->stacked ? read_share_of_b(m, of, info) : read_factor(m, b, 0, b->elems, &m->b);
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
