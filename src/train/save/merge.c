/*
 * merge: a model folder from a base and adapters of it: W + scale B A. The base's tensors are
 * streamed in the order of its file, a block of whole rows at a time, so memory does not depend on
 * the model: a block, and A and B of one module. The sum is made in fp32 and rounded once.
 */
#include "train/save/checkpoint.h"
#include "train/checkpoints.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_ELEMS ((uint64_t)1 << 20) /* or a row */

struct merging {
    const struct zinf_merge_options *options;
    const char *folder; /* of the adapter */
    char *base;
    struct zinf_model *model; /* the base's, adapted */
    struct zinf_tensors *weights, *adapter;
    struct zinf_tensors_writer *to;
    struct zinf_device *device;
    struct zinf_queue *queue;
    void *workspace;
    float *block, *a, *b;
    void *packed;
    uint64_t block_elems;
    uint32_t n_merged;
};

/* ---- one module ---- */

static const struct zinf_piece *piece_of(const struct zinf_graph *g, const struct zinf_adapted *of)
{
    const struct zinf_tensor *t = &g->units[of->unit].tensors[of->tensor];
    for (uint32_t p = 0; p < t->n_pieces; p++)
        if (t->pieces[p].rows.flat_first >= of->first_row &&
            t->pieces[p].rows.flat_first < of->first_row + of->rows)
            return &t->pieces[p];
    return NULL;
}

/* The module whose weight a tensor of the base's file is, or NULL. */
static const struct zinf_adapted *find_adapted(const struct merging *m, const char *name)
{
    const struct zinf_graph *g = zinf_model_graph(m->model);
    const char *bare = zinf_family_bare_name(zinf_model_family(m->model), name);
    for (uint32_t i = 0; i < g->n_adapted; i++) {
        const struct zinf_piece *piece = piece_of(g, &g->adapted[i]);
        if (piece && !strcmp(piece->plain_name ? name : bare, piece->name))
            return &g->adapted[i];
    }
    return NULL;
}

/* A or B of a module, on the heap. */
static int read_factor(const struct merging *m, const struct zinf_tensor *tensor, float **out)
{
    const char *name = tensor->pieces[0].name;
    const struct zinf_tensor_info *info = zinf_tensors_find(m->adapter, name);
    *out = NULL;
    if (!info)
        return zinf_fail(-ENOENT, "%s: tensor %s is missing", m->folder, name);
    if (info->rank != 2 || info->shape[0] != tensor->rows || info->shape[1] != tensor->cols)
        return zinf_fail(-EINVAL, "%s: tensor %s does not have the shape [%llu, %llu]", m->folder,
                         name, (unsigned long long)tensor->rows, (unsigned long long)tensor->cols);
    *out = malloc(tensor->elems * sizeof **out);
    if (!*out)
        return zinf_fail(-ENOMEM, "no memory for %s", name);
    return zinf_tensors_read_f32(m->adapter, info, 0, tensor->elems, *out);
}

static int read_factors(struct merging *m, const struct zinf_adapted *of)
{
    const struct zinf_unit *unit = &zinf_model_graph(m->model)->units[of->adapter];
    int code = read_factor(m, &unit->tensors[of->a], &m->a);
    return code ? code : read_factor(m, &unit->tensors[of->b], &m->b);
}

static void free_factors(struct merging *m)
{
    free(m->a);
    free(m->b);
    m->a = m->b = NULL;
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
    if (piece_of(g, of)->transposed) {
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
        enum zinf_file_dtype dtype = zinf_file_dtype_from_dtype(dtype_of(m, info));
        code = zinf_tensors_writer_declare(m->to, info->name, dtype, info->rank, info->shape);
    }
    return code ? code : zinf_tensors_writer_begin(m->to);
}

static int copy_block(const struct merging *m, const struct zinf_tensor_info *info,
                      const struct zinf_adapted *of, uint64_t at, uint64_t n)
{
    enum zinf_dtype dtype = dtype_of(m, info);
    int code = zinf_tensors_read_f32(m->weights, info, at, n, m->block);
    if (!code && of)
        code = add_product(m, of, info, at / info->shape[1], n / info->shape[1]);
    if (!code)
        zinf_convert(m->packed, dtype, m->block, ZINF_DTYPE_F32, n);
    return code ? code : zinf_tensors_writer_append(m->to, m->packed, n * zinf_dtype_bytes(dtype));
}

static int copy_tensor(struct merging *m, const struct zinf_tensor_info *info)
{
    const struct zinf_adapted *of = find_adapted(m, info->name);
    uint64_t row = info->rank == 2 ? info->shape[1] : 1, step = m->block_elems / row * row;
    int code = of ? read_factors(m, of) : 0;
    m->n_merged += of != NULL;
    for (uint64_t at = 0; !code && at < info->n_elems; at += step) {
        uint64_t left = info->n_elems - at;
        code = copy_block(m, info, of, at, left < step ? left : step);
    }
    free_factors(m);
    return code;
}

static int copy_all(struct merging *m)
{
    int code = declare(m);
    for (uint64_t i = 0; !code && i < zinf_tensors_count(m->weights); i++)
        code = copy_tensor(m, zinf_tensors_at(m->weights, i));
    uint32_t wanted = zinf_model_graph(m->model)->n_adapted;
    if (!code && m->n_merged != wanted)
        code = zinf_fail(-EINVAL, "%s: %u of %u adapted modules are not in the weights of %s",
                         m->folder, wanted - m->n_merged, wanted, m->base);
    return code ? code : zinf_tensors_writer_finish(m->to);
}

/* ---- opening ---- */

static int find_base(struct merging *m, const cJSON *config)
{
    const char *named = m->options->base;
    struct stat info;
    int code = 0;
    if (!named)
        code = zinf_json_string(config, m->folder, "base_model_name_or_path", &named);
    if (code)
        return code;
    if (!named || stat(named, &info) || !S_ISDIR(info.st_mode))
        return zinf_fail(-ENOENT, "%s: its base %s is no folder here: name it with --model DIR",
                         m->folder, named ? named : "is not named and");
    m->base = strdup(named);
    return m->base ? 0 : zinf_fail(-ENOMEM, "no memory for a path");
}

static int open_model(struct merging *m)
{
    cJSON *config = NULL;
    int code = zinf_adapter_read_config(m->folder, &config);
    if (!code)
        code = find_base(m, config);
    if (!code)
        code = zinf_model_open(&m->model, m->base);
    if (!code)
        code = zinf_model_adapt(m->model, config, m->folder);
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
    for (uint32_t i = 0; !code && i < g->n_adapted; i++) {
        const struct zinf_unit *unit = &g->units[g->adapted[i].adapter];
        uint64_t in = unit->tensors[g->adapted[i].a].cols,
                 out = unit->tensors[g->adapted[i].b].rows;
        uint64_t row = piece_of(g, &g->adapted[i])->transposed ? out : in;
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
    free_factors(m);
    zinf_tensors_writer_destroy(m->to);
    zinf_tensors_close(m->adapter);
    zinf_tensors_close(m->weights);
    if (m->queue)
        m->device->ops->queue_destroy(m->queue);
    zinf_device_destroy(m->device);
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
    int code = transfer_write_config(zinf_model_config(m->model), dtype, o->output);
    return code ? code : zinf_folder_copy_companions(m->base, o->output, ZINF_COMPANIONS_ALL);
}

static int merge(const struct zinf_merge_options *options, const char *folder)
{
    struct merging m = {.options = options, .folder = folder};
    int code = open_model(&m);
    if (!code)
        code = open_tensors(&m);
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

int zinf_adapter_merge(const struct zinf_merge_options *options)
{
    char *config = zinf_path_join(options->adapter, "adapter_config.json"), *folder = NULL;
    int code = config ? 0 : -ENOMEM;
    if (!code && !access(config, F_OK))
        code = (folder = strdup(options->adapter)) ? 0 : zinf_fail(-ENOMEM, "no memory for a path");
    else if (!code)
        code = zinf_checkpoint_find(options->adapter, &folder);
    if (!code)
        code = verify(folder);
    if (!code)
        code = merge(options, folder);
    free(folder);
    free(config);
    return code;
}
