/*
 * merge: a model folder from a base and adapters of it: W + scale B A, its rows scaled where they
 * have magnitudes, and copies in the place of what they are of. The base's tensors are streamed in
 * the order of its file, a block of whole rows at a time, so memory does not depend on the model: a
 * block, A and B of one module, and of a quantised base the image of one matrix. The sum is made in
 * fp32 and rounded once.
 */
#include "base/apart.h"
#include "train/save/checkpoint.h"
#include "train/save/merge.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- one module ---- */

/* The piece of the base's weight that the module is of. */
static const struct zinf_piece *merge_piece_of(const struct zinf_graph *g,
                                               const struct zinf_adapted *of)
{
    const struct zinf_tensor *t = &g->units[of->unit].tensors[of->tensor];
    for (uint32_t p = 0; p < t->n_pieces; p++)
        if (t->pieces[p].rows.flat_first >= of->first_row &&
            t->pieces[p].rows.flat_first < of->first_row + of->rows)
            return &t->pieces[p];
    return NULL;
}

/* The module whose weight a tensor of the base's file is, or NULL. */
static const struct zinf_adapted *merge_find_adapted(const struct merging *m, const char *name)
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

static void merge_free_module(struct merging *m)
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

/* A, B and, with blocks of step elements of the base's tensor, gains of rows that have magnitudes,
 * into merging. */
static int merge_read_module(struct merging *m, const struct zinf_adapted *of,
                             const struct zinf_tensor_info *info, uint64_t step)
{
    const struct zinf_unit *unit = &zinf_model_graph(m->model)->units[of->adapter];
    int code = read_factor(m, &unit->tensors[of->a], &m->a);
    if (!code)
        code = read_factor(m, &unit->tensors[of->b], &m->b);
    return code || !of->has_magnitude ? code : make_gain(m, of, info, step);
}

/* Elements [at, at + n), which are whole rows of the file's tensor, of W + scale B A, scaled, into
 * the block; with magnitudes m, m / |row| times that, whose norms take a pass of their own. */
static int merge_read_block(const struct merging *m, const struct zinf_adapted *of,
                            const struct zinf_tensor_info *info, uint64_t at, uint64_t n)
{
    int code = read_sum(m, of, info, at, n);
    if (!code)
        scale_block(m, of, info, at, n);
    return code;
}

#define BLOCK_ELEMS ((uint64_t)1 << 20) /* or a row */

/* ---- streaming ---- */

static enum zinf_dtype dtype_of(const struct merging *m, const struct zinf_tensor_info *info)
{
    enum zinf_dtype dtype = m->options->dtype;
    if (m->options->as_base && zinf_file_dtype_to_dtype(info->dtype, &dtype))
        dtype = ZINF_DTYPE_F32;
    return dtype;
}

static int declare(const struct merging *m)
{
    int code = 0;
    for (uint64_t i = 0; !code && i < zinf_tensors_count(m->weights); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(m->weights, i);
        struct zinf_tensor_info plain;
        const enum merge_fate fate = merge_fate_of(m, info, &plain);
        if (fate == MERGE_DROPPED)
            continue;
        code = fate == MERGE_REFUSED
                   ? -ENOTSUP
                   : zinf_tensors_writer_declare(
                         m->to, plain.name,
                         fate == MERGE_KEPT ? plain.dtype
                                            : zinf_file_dtype_from_dtype(dtype_of(m, &plain)),
                         plain.rank, plain.shape);
    }
    return code ? code : zinf_tensors_writer_begin(m->to);
}

/* What takes the place of a tensor of the base's file: itself, a sum, or a copy. */
struct replacement {
    const struct zinf_tensor_info *base, *copy;
    const struct zinf_adapted *of;
};

static int copy_block(const struct merging *m, const struct replacement *r, uint64_t at, uint64_t n)
{
    enum zinf_dtype dtype = dtype_of(m, r->base);
    int code = r->of     ? merge_read_block(m, r->of, r->base, at, n)
               : r->copy ? zinf_tensors_read_f32(m->adapter, r->copy, at, n, m->block)
                         : merge_read_base(m, r->base, at, n);
    if (code)
        return code;
    zinf_convert(m->packed, dtype, m->block, ZINF_DTYPE_F32, n);
    return zinf_tensors_writer_append(m->to, m->packed, n * zinf_dtype_bytes(dtype));
}

static int other_base(const struct merging *m, const char *name)
{
    return zinf_fail(-EINVAL,
                     "%s: tensor %s has no place in the weights of %s: the adapter is of another "
                     "base, or of a kind that is not supported",
                     m->folder, name, m->base);
}

static bool same_shape(const struct zinf_tensor_info *a, const struct zinf_tensor_info *b)
{
    return a->rank == b->rank && !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape);
}

static int copy_bytes(const struct merging *m, const struct zinf_tensor_info *info)
{
    const uint64_t size = zinf_file_dtype_bytes(info->dtype);
    const uint64_t step = m->block_elems * sizeof(float) / size;
    int code = 0;
    for (uint64_t at = 0; !code && at < info->n_elems; at += step) {
        const uint64_t left = info->n_elems - at, n = left < step ? left : step;
        code = zinf_tensors_read(m->weights, info, at, n, m->packed);
        if (!code)
            code = zinf_tensors_writer_append(m->to, m->packed, n * size);
    }
    return code;
}

static int copy_tensor(struct merging *m, const struct zinf_tensor_info *info)
{
    struct replacement r = {info, merge_find_copy(m, info->name),
                            merge_find_adapted(m, info->name)};
    uint64_t row = info->rank == 2 ? info->shape[1] : 1, step = m->block_elems / row * row;
    int code = r.of ? merge_read_module(m, r.of, info, step) : 0;
    if (r.copy && !same_shape(info, r.copy))
        code = other_base(m, r.copy->name);
    m->n_merged += r.of != NULL;
    m->n_copied += r.copy != NULL;
    for (uint64_t at = 0; !code && at < info->n_elems; at += step) {
        uint64_t left = info->n_elems - at;
        code = copy_block(m, &r, at, left < step ? left : step);
    }
    merge_free_module(m);
    return code;
}

static int copy_one(struct merging *m, const struct zinf_tensor_info *info)
{
    struct zinf_tensor_info plain;
    const enum merge_fate fate = merge_fate_of(m, info, &plain);
    if (fate == MERGE_DROPPED)
        return 0;
    if (fate == MERGE_KEPT)
        return copy_bytes(m, info);
    if (fate == MERGE_NUMBERS)
        return copy_tensor(m, info);
    int code = merge_open_weight(m, &plain);
    if (!code)
        code = copy_tensor(m, &plain);
    merge_close_weight(m);
    return code;
}

/* What has no place would be lost without a word. */
static int check_names(const struct merging *m)
{
    for (uint64_t i = 0; i < zinf_tensors_count(m->adapter); i++) {
        const char *name = zinf_tensors_at(m->adapter, i)->name;
        if (!zinf_file_map_find(m->files, name))
            return other_base(m, name);
    }
    return 0;
}

/* Its bytes were summed while they were copied; nothing has its name yet. */
static int check_base(const struct merging *m)
{
    cJSON *identity = NULL;
    int code = identity_of_model(&identity, m->model, m->base);
    if (!code)
        code = identity_add_base(identity, m->weights);
    if (!code)
        code = identity_check_adapter(identity, m->folder, m->base);
    cJSON_Delete(identity);
    return code;
}

static int copy_all(struct merging *m)
{
    int code = check_names(m);
    if (!code)
        code = declare(m);
    for (uint64_t i = 0; !code && i < zinf_tensors_count(m->weights); i++)
        code = copy_one(m, zinf_tensors_at(m->weights, i));
    uint32_t wanted = zinf_model_graph(m->model)->n_adapted, copies = 0;
    for (uint32_t i = 0; i < m->files->n_tensors; i++)
        copies += m->files->tensors[i].parts[0].piece->of_base;
    if (!code && m->n_merged != wanted)
        code = zinf_fail(-EINVAL, "%s: %u of %u adapted modules are not in the weights of %s",
                         m->folder, wanted - m->n_merged, wanted, m->base);
    if (!code && m->n_copied != copies)
        code = zinf_fail(-EINVAL, "%s: %u of %u tensors of modules_to_save and bias are not in %s",
                         m->folder, copies - m->n_copied, copies, m->base);
    if (!code)
        code = check_base(m);
    return code ? code : zinf_tensors_writer_finish(m->to);
}

/* ---- opening ---- */

int merge_find_base(const char *folder, const cJSON *config, const char *named, char **base)
{
    struct stat info;
    int code = 0;
    if (!named)
        code = zinf_json_string(config, folder, "base_model_name_or_path", &named);
    if (code)
        return code;
    if (named && zinf_is_gguf(named))
        return zinf_gguf_as_folder(named, base);
    if (!named || stat(named, &info) || !S_ISDIR(info.st_mode))
        return zinf_fail(-ENOENT, "%s: its base %s is no folder here: name it with --model DIR",
                         folder, named ? named : "is not named and");
    *base = strdup(named);
    return *base ? 0 : zinf_fail(-ENOMEM, "no memory for a path");
}

static int check_output(const struct merging *m)
{
    struct zinf_origin read[] = {{"--model", m->base}, {"--checkpoint", m->folder}};
    const struct zinf_origins origins = {read, 2};
    const char *output = m->options->output;
    int code = zinf_apart_check("--output", output, ZINF_WRITTEN_FOLDER, &origins);
    return code ? code : zinf_folder_check_new("--output", output);
}

static int open_model(struct merging *m)
{
    cJSON *config = NULL;
    int code = zinf_adapter_read_config(m->folder, &config);
    if (!code)
        code = merge_find_base(m->folder, config, m->options->base, &m->base);
    if (!code)
        code = zinf_model_open(&m->model, m->base);
    if (!code)
        code = check_output(m);
    if (!code)
        code = zinf_model_adapt(m->model, config, m->folder);
    if (!code)
        code = zinf_file_map_create(&m->files, zinf_model_graph(m->model));
    cJSON_Delete(config);
    return code;
}

static int open_tensors(struct merging *m)
{
    struct zinf_tensors_writer_options writer = {.path = m->options->output,
                                                 .max_shard_bytes = m->options->max_shard_bytes};
    char *path = zinf_path_join(m->folder, ZINF_ADAPTER_WEIGHTS);
    int code = path ? zinf_tensors_open(&m->weights, m->base) : -ENOMEM;
    if (!code)
        code = identity_check_own(m->folder);
    if (code >= 0)
        code = zinf_tensors_open(&m->adapter, path);
    if (!code)
        code = zinf_make_dirs(m->options->output);
    if (!code)
        code = zinf_tensors_writer_create(&m->to, &writer);
    free(path);
    return code;
}

/* The block has whole rows of every tensor; the workspace serves its largest product. */
static int take_memory(struct merging *m)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST};
    const struct zinf_graph *g = zinf_model_graph(m->model);
    uint64_t most = 0;
    int code = zinf_device_create(&m->device, &options);
    if (!code)
        code = m->device->ops->queue_create(m->device, ZINF_QUEUE_COMPUTE, &m->queue);
    m->block_elems = BLOCK_ELEMS;
    for (uint64_t i = 0; !code && i < zinf_tensors_count(m->weights); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(m->weights, i);
        if (info->rank == 2 && info->shape[1] > m->block_elems)
            m->block_elems = info->shape[1];
    }
    for (uint32_t i = 0; !code && i < m->files->n_tensors; i++) {
        const struct zinf_tensor *t = m->files->tensors[i].parts[0].tensor;
        if (t->form != ZINF_FORM_PLAIN && t->cols > m->block_elems)
            m->block_elems = t->cols;
    }
    for (uint32_t i = 0; !code && i < g->n_adapted; i++) {
        const struct zinf_unit *unit = &g->units[g->adapted[i].adapter];
        uint64_t in = unit->tensors[g->adapted[i].a].cols,
                 out = unit->tensors[g->adapted[i].b].rows;
        uint64_t row = merge_piece_of(g, &g->adapted[i])->transposed ? out : in;
        int64_t rows = (int64_t)(m->block_elems / row),
                rank = (int64_t)unit->tensors[g->adapted[i].a].rows;
        struct zinf_matmul args = {.m = rows, .n = (int64_t)row, .k = rank, .ldc = (int64_t)row};
        uint64_t bytes = m->device->ops->matmul_workspace(m->device, &args);
        most = bytes > most ? bytes : most;
    }
    m->block = malloc(m->block_elems * sizeof *m->block);
    m->packed = malloc(m->block_elems * sizeof(float));
    m->workspace = malloc(most + 1);
    if (!code && (!m->block || !m->packed || !m->workspace))
        code = zinf_fail(-ENOMEM, "no memory to merge %s", m->folder);
    return code;
}

static void close_all(struct merging *m)
{
    merge_free_module(m);
    merge_close_weight(m);
    cJSON_Delete(m->opened);
    zinf_tensors_writer_destroy(m->to);
    zinf_tensors_close(m->adapter);
    zinf_tensors_close(m->weights);
    if (m->queue)
        m->device->ops->queue_destroy(m->queue);
    zinf_device_destroy(m->device);
    zinf_file_map_destroy(m->files);
    zinf_model_close(m->model);
    free(m->workspace);
    free(m->packed);
    free(m->block);
    free(m->base);
}

/* config.json with its own number type, or the one that was asked for. */
static int write_rest(const struct merging *m)
{
    const struct zinf_merge_options *o = m->options;
    enum zinf_dtype dtype = o->as_base ? zinf_model_facts(m->model)->file_dtype : o->dtype;
    cJSON *config = merge_config(m);
    int code = config ? transfer_write_config(config, dtype, o->output)
                      : zinf_fail(-ENOMEM, "no memory for config.json");
    cJSON_Delete(config);
    return code ? code : zinf_folder_copy_companions(m->base, o->output, ZINF_COMPANIONS_ALL);
}

static int merge(const struct zinf_merge_options *options, const char *folder)
{
    struct merging m = {.options = options, .folder = folder};
    int code = open_model(&m);
    if (!code)
        code = open_tensors(&m);
    if (!code)
        code = zinf_tensors_sum_begin(m.weights);
    if (!code)
        code = take_memory(&m);
    if (!code)
        code = copy_all(&m);
    if (!code)
        code = write_rest(&m);
    close_all(&m);
    return code;
}

/* A checkpoint's checksums are compared before anything is believed. */
static int verify(const char *folder)
{
    struct checkpoint c;
    char *state = zinf_path_join(folder, CHECKPOINT_STATE);
    int code = state ? 0 : -ENOMEM;
    if (!code && !access(state, F_OK) && !(code = checkpoint_open(&c, folder)))
        checkpoint_fini(&c);
    free(state);
    return code;
}

int merge_find_folder(const char *named, char **folder)
{
    char *config = zinf_path_join(named, ZINF_ADAPTER_CONFIG);
    int code = config ? 0 : -ENOMEM;
    *folder = NULL;
    if (!code && !access(config, F_OK))
        code = (*folder = strdup(named)) ? 0 : zinf_fail(-ENOMEM, "no memory for a path");
    else if (!code)
        code = zinf_checkpoint_find(named, folder);
    free(config);
    return code ? code : verify(*folder);
}

int zinf_adapter_merge(const struct zinf_merge_options *options)
{
    char *folder;
    int code = merge_find_folder(options->adapter, &folder);
    if (!code)
        code = merge(options, folder);
    free(folder);
    return code;
}
