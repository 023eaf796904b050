/*
 * merge: a model folder from a base and adapters of it: W + scale B A, its rows scaled where they
 * have magnitudes, and copies in the place of what they are of. The base's tensors are streamed in
 * the order of its file, a block of whole rows at a time, so memory does not depend on the model: a
 * block, A and B of one module, and of a quantised base the image of one matrix. The sum is made in
 * fp32 and rounded once.
 */
#include "base/apart.h"
#include "model/graph.h"
#include "text/samples/task.h"
#include "train/save/checkpoint.h"
#include "train/save/merge.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* n elements of it that are one matrix, or all. */
static int copy_matrix(struct merging *m, const struct replacement *r, uint64_t n)
{
    const struct zinf_tensor_info *info = r->base;
    uint64_t row = info->rank == 2 ? info->shape[1] : 1, step = m->block_elems / row * row;
    int code = r->of ? merge_read_module(m, r->of, info, step) : 0;
    m->n_merged += r->of != NULL;
    for (uint64_t at = 0; !code && at < n; at += step)
        code = copy_block(m, r, at, n - at < step ? n - at : step);
    merge_free_module(m);
    return code;
}

/* Slabs, one behind the other, each of which is a module's weight. */
static int copy_slabs(struct merging *m, const struct zinf_tensor_info *info)
{
    const uint64_t n = info->shape[1] * info->shape[2];
    struct zinf_tensor_info slab = *info;
    int code = 0;
    m->slabs = info;
    slab.rank = 2;
    slab.shape[0] = info->shape[1];
    slab.shape[1] = info->shape[2];
    for (uint64_t i = 0; !code && i < info->shape[0]; i++) {
        const struct replacement r = {&slab, NULL, merge_find_adapted(m, info->name, i)};
        m->slab_at = i * n;
        code = copy_matrix(m, &r, n);
    }
    m->slabs = NULL;
    m->slab_at = 0;
    return code;
}

static int copy_tensor(struct merging *m, const struct zinf_tensor_info *info)
{
    const struct replacement r = {info, merge_find_copy(m, info->name),
                                  merge_find_adapted(m, info->name, 0)};
    if (r.of && info->rank == 3)
        return copy_slabs(m, info);
    if (r.copy && !same_shape(info, r.copy))
        return other_base(m, r.copy->name);
    m->n_copied += r.copy != NULL;
    return copy_matrix(m, &r, info->n_elems);
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
    uint32_t wanted = merge_count_adapted(zinf_model_graph(m->model)), copies = 0;
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
    if (named && ((code = zinf_model_as_folder(named, base)) || *base))
        return code;
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

/* The classes that the adapter was trained for, by their names, where the base has a head for as
 * many. */
static int name_classes(struct merging *m)
{
    struct zinf_labels labels;
    int code = zinf_adapter_labels(m->folder, &labels);
    const struct zinf_model_classes classes = {.names = (const char *const *)labels.names,
                                               .n = labels.n};
    if (!code && labels.n && zinf_model_classifies(m->model) &&
        zinf_model_graph(m->model)->vocab == labels.n)
        code = zinf_model_set_classes(m->model, &classes);
    zinf_labels_free(&labels);
    return code;
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
        code = name_classes(m);
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
        if (info->rank > 1 && info->shape[info->rank - 1] > m->block_elems)
            m->block_elems = info->shape[info->rank - 1];
    }
    for (uint32_t i = 0; !code && i < m->files->n_tensors; i++) {
        const struct zinf_tensor *t = m->files->tensors[i].parts[0].tensor;
        if (t->form != ZINF_FORM_PLAIN && t->cols > m->block_elems)
            m->block_elems = t->cols;
    }
    for (uint32_t i = 0; !code && i < g->n_adapted; i++) {
        const struct zinf_adapted *of = &g->adapted[i];
        uint64_t in = g->units[of->adapter].tensors[of->a].cols, out = of->rows;
        uint64_t row = merge_piece_of(g, of)->transposed ? out : in;
        int64_t rows = (int64_t)(m->block_elems / row), rank = of->rank;
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
    for (int i = 0; i < 2; i++)
        free(m->stacks[i].values);
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
    if (!code)
        code = zinf_folder_copy_companions(m->base, o->output, ZINF_COMPANIONS_ALL);
    return code ? code : checkpoint_copy_template(m->folder, o->output);
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
