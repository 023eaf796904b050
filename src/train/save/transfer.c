/*
 * transfer: weights between Hugging Face folders and tiers, unit by unit, in a fixed region of
 * memory. Files have the family's names and orientation; tiers have flat buffers, [out][in].
 */
#include "train/save/transfer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void largest(const struct zinf_model *model, uint64_t world, uint64_t *unit,
                    uint64_t *tensor)
{
    *unit = *tensor = 0;
    for (int u = 0; u < zinf_model_n_units(model); u++) {
        const struct zinf_unit_spec *spec = zinf_model_unit(model, u);
        uint64_t padded = zinf_align_up(spec->elems, ZINF_LAYOUT_ALIGN * world);
        *unit = padded > *unit ? padded : *unit;
        for (int i = 0; i < spec->n_tensors; i++)
            *tensor = spec->tensors[i].elems > *tensor ? spec->tensors[i].elems : *tensor;
    }
    *tensor = zinf_align_up(*tensor, ZINF_LAYOUT_ALIGN);
}

uint64_t trainer_transfer_bytes(const struct zinf_model *model, uint32_t world,
                                enum zinf_dtype dtype)
{
    uint64_t unit, tensor;
    largest(model, world, &unit, &tensor);
    uint64_t packed = dtype == ZINF_DTYPE_F32 ? 0 : unit * zinf_dtype_bytes(dtype);
    return (unit + tensor) * sizeof(float) + packed;
}

struct region trainer_region(const struct zinf_trainer *t)
{
    struct region r = {0};
    largest(t->setup.model, t->setup.layout.world, &r.unit_elems, &r.tensor_elems);
    r.unit = (float *)host_at(&t->plan, t->plan.at.h_transfer);
    r.tensor = r.unit + r.unit_elems;
    r.packed = (char *)(r.tensor + r.tensor_elems);
    return r;
}

/* dst[j][i] = src[i][j] in squares that stay in cache; rows, cols of src. */
static void transpose(float *dst, const float *src, uint64_t rows, uint64_t cols)
{
    const uint64_t side = 32;
    for (uint64_t i0 = 0; i0 < rows; i0 += side)
        for (uint64_t j0 = 0; j0 < cols; j0 += side)
            for (uint64_t i = i0; i < rows && i < i0 + side; i++)
                for (uint64_t j = j0; j < cols && j < j0 + side; j++)
                    dst[j * rows + i] = src[i * cols + j];
}

/* ---- loading ---- */

static uint64_t row_elems(const struct zinf_tensor_spec *tensor)
{
    return tensor->rank == 2 ? tensor->shape[1] : 1;
}

static const struct zinf_tensor_info *find(const char *prefix, const struct zinf_tensors *file,
                                           const char *name)
{
    char prefixed[128];
    snprintf(prefixed, sizeof prefixed, "%s%s", prefix, name);
    return zinf_tensors_find(file, prefixed);
}

/* The first files of a family had no prefix; what was read is what is written. */
static const char *prefix_of(const struct zinf_trainer *t, const struct zinf_tensors *file)
{
    const char *prefix = zinf_model_family(t->setup.model)->prefix;
    const char *name = zinf_model_unit(t->setup.model, 0)->tensors[0].name;
    return file && !find(prefix, file, name) && find("", file, name) ? "" : prefix;
}

static int check_shape(const struct zinf_trainer *t, const struct zinf_tensor_info *info,
                       const struct zinf_tensor_spec *tensor)
{
    bool same = info->rank == tensor->rank;
    for (int i = 0; same && i < tensor->rank; i++)
        same = info->shape[i] == tensor->shape[i];
    if (same)
        return 0;
    char found[128] = "";
    for (int i = 0, at = 0; i < info->rank && at < 100; i++)
        at += snprintf(found + at, sizeof found - (size_t)at, "%s%llu", i ? ", " : "",
                       (unsigned long long)info->shape[i]);
    char asked[64];
    int used = snprintf(asked, sizeof asked, "%llu", (unsigned long long)tensor->shape[0]);
    if (tensor->rank == 2)
        snprintf(asked + used, sizeof asked - (size_t)used, ", %llu",
                 (unsigned long long)tensor->shape[1]);
    return zinf_fail(-EINVAL,
                     "%s: tensor %s has shape [%s], but config.json asks for [%s]: the two are not "
                     "of one model; take the config.json that belongs to these weights",
                     t->setup.options.model_path, info->name, found, asked);
}

static int check_finite(const struct zinf_trainer *t, const struct zinf_tensor_spec *tensor,
                        const float *values)
{
    uint64_t at = zinf_optim_find_nonfinite(values, ZINF_DTYPE_F32, tensor->elems,
                                            t->setup.device->n_threads);
    if (at == UINT64_MAX)
        return 0;
    return zinf_fail(-EINVAL, "%s: tensor %s holds %s at element %llu: the weights are damaged",
                     t->setup.options.model_path, tensor->name, isnan(values[at]) ? "NaN" : "Inf",
                     (unsigned long long)(tensor->first_row * row_elems(tensor) + at));
}

static int read_tensor(const struct zinf_trainer *t, const struct zinf_tensors *file,
                       const struct zinf_tensor_spec *tensor, float *out)
{
    uint64_t first = tensor->first_row * row_elems(tensor);
    if (!file) {
        zinf_model_init_fill(t->setup.model, tensor, t->setup.options.seed, first, tensor->elems,
                             out);
        return 0;
    }
    const struct zinf_tensor_info *info = find(t->prefix, file, tensor->name);
    if (!info)
        return zinf_fail(-ENOENT, "%s: tensor %s%s is missing from the safetensors files",
                         t->setup.options.model_path, zinf_model_family(t->setup.model)->prefix,
                         tensor->name);
    int code = check_shape(t, info, tensor);
    if (!code)
        code = zinf_tensors_read_f32(file, info, first, tensor->elems, out);
    return code ? code : check_finite(t, tensor, out);
}

int trainer_gather_unit(const struct zinf_trainer *t, const struct zinf_tensors *file,
                        const struct zinf_unit_spec *unit, const struct region *r)
{
    memset(r->unit, 0, r->unit_elems * sizeof(float));
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct zinf_tensor_spec *tensor = &unit->tensors[i];
        float *target = r->unit + tensor->offset;
        int code = read_tensor(t, file, tensor, tensor->transposed ? r->tensor : target);
        if (code)
            return code;
        if (tensor->transposed)
            transpose(target, r->tensor, tensor->shape[0], tensor->shape[1]);
    }
    return 0;
}

static int write_location(const struct zinf_trainer *t, const struct zinf_location *where,
                          uint64_t offset, const void *memory, uint64_t bytes)
{
    return zinf_location_write(t->plan.tiers, t->setup.device, t->queues[ZINF_LANE_H2D], where,
                               offset, memory, bytes);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The part of the masters that the parameters do not hold: of `n` elements of the group from
 * `at` on, made in the region's tensor. */
static int place_masters(const struct zinf_trainer *t, const struct zinf_location *state,
                         uint64_t at, const float *values, uint64_t n, const struct region *r)
{
    if (t->setup.form == ZINF_STATE_WHOLE)
        return write_location(t, state, at * sizeof(float), values, n * sizeof(float));
    uint16_t *remainder = (uint16_t *)r->tensor, *param = remainder + r->tensor_elems;
    zinf_optim_split(param, remainder, values, n, t->setup.device->n_threads);
    return write_location(t, state, at * sizeof *remainder, remainder, n * sizeof *remainder);
}

/* Moments start at zero: extents and host memory are zero, a device may not be. */
static int place_state(const struct zinf_trainer *t, uint32_t unit, const struct region *r)
{
    const struct zinf_layout_unit *u = &t->setup.layout.units[unit];
    int code = 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++) {
        const struct zinf_layout_group *group = &t->setup.layout.groups[g];
        const float *values = r->unit + u->slice_first + group->first;
        struct zinf_location where = zinf_tiers_group_state(t->plan.tiers, g, 0);
        if (where.tier == ZINF_TIER_DEVICE)
            code = t->setup.device->ops->fill_zero(t->queues[ZINF_LANE_H2D], where.memory,
                                                   where.bytes);
        if (t->setup.form == ZINF_STATE_BARE)
            continue;
        for (uint64_t at = 0; !code && at < group->n; at += r->tensor_elems)
            code =
                place_masters(t, &where, at, values + at, least(r->tensor_elems, group->n - at), r);
    }
    return code;
}

/* A split master's upper half is rounded as the optimizer rounds it. */
static void pack_unit(const struct zinf_trainer *t, uint32_t unit, const struct region *r)
{
    uint64_t n = t->setup.layout.units[unit].padded_elems;
    if (t->setup.dtype == ZINF_DTYPE_F32)
        return;
    if (t->setup.form != ZINF_STATE_SPLIT || !trains(&t->setup)) {
        zinf_convert(r->packed, t->setup.dtype, r->unit, ZINF_DTYPE_F32, n);
        return;
    }
    uint16_t *remainder = (uint16_t *)r->tensor, *param = (uint16_t *)(void *)r->packed;
    for (uint64_t at = 0; at < n; at += r->tensor_elems)
        zinf_optim_split(param + at, remainder, r->unit + at, least(r->tensor_elems, n - at),
                         t->setup.device->n_threads);
}

static int place_unit(const struct zinf_trainer *t, uint32_t unit, const struct region *r)
{
    struct zinf_location where = zinf_tiers_param(t->plan.tiers, unit, 0);
    pack_unit(t, unit, r);
    const void *packed = t->setup.dtype == ZINF_DTYPE_F32 ? (const void *)r->unit : r->packed;
    int code = write_location(t, &where, 0, packed, where.bytes);
    if (!code && trains(&t->setup))
        code = place_state(t, unit, r);
    return code;
}

/* Tensors of the file that no unit wants are said once, unless the family ignores them. */
static void report_unused(const struct zinf_trainer *t, const struct zinf_tensors *file)
{
    const struct zinf_family *family = zinf_model_family(t->setup.model);
    const char *first = NULL;
    uint64_t unused = 0;
    for (uint64_t i = 0; i < zinf_tensors_count(file); i++) {
        const char *name = zinf_tensors_at(file, i)->name;
        size_t prefix = strlen(family->prefix);
        if (!strncmp(name, family->prefix, prefix))
            name += prefix;
        bool wanted = family->ignores(name);
        for (uint32_t u = 0; !wanted && u < t->setup.n_units; u++) {
            const struct zinf_unit_spec *unit = zinf_model_unit(t->setup.model, (int)u);
            for (int k = 0; !wanted && k < unit->n_tensors; k++)
                wanted = !strcmp(unit->tensors[k].name, name);
        }
        if (!wanted && !unused++)
            first = name;
    }
    if (unused)
        zinf_log(ZINF_LOG_WARN,
                 "%s: %llu tensors are not part of the model and are not used "
                 "(first: %s)",
                 t->setup.options.model_path, (unsigned long long)unused, first);
}

int trainer_load(struct zinf_trainer *t)
{
    struct zinf_tensors *file = NULL;
    struct region r = trainer_region(t);
    int code = t->setup.options.init ? 0 : zinf_tensors_open(&file, t->setup.options.model_path);
    if (code == -ENOENT && t->setup.options.mode == ZINF_TRAINER_TRAIN)
        return zinf_fail(code, "%s; or train from fresh weights with --init", zinf_error());
    if (code)
        return code;
    t->prefix = prefix_of(t, file);
    if (file)
        report_unused(t, file);
    for (uint32_t u = 0; !code && !t->durable.recovered && u < t->setup.n_units; u++) {
        code = trainer_gather_unit(t, file, zinf_model_unit(t->setup.model, (int)u), &r);
        if (!code)
            code = place_unit(t, u, &r);
    }
    zinf_tensors_close(file);
    /* what was only filled, too, is there before another queue looks */
    return code ? code : t->setup.device->ops->queue_synchronize(t->queues[ZINF_LANE_H2D]);
}

/* ---- saving ---- */

/* A whole tensor of the file is declared at the first unit that holds a part of it. */
static int declare_all(const struct zinf_model *model, const char *prefix,
                       struct zinf_tensors_writer *writer, enum zinf_dtype dtype)
{
    int code = 0;
    for (int u = 0; u < zinf_model_n_units(model); u++) {
        const struct zinf_unit_spec *unit = zinf_model_unit(model, u);
        for (int i = 0; !code && i < unit->n_tensors; i++) {
            const struct zinf_tensor_spec *tensor = &unit->tensors[i];
            char name[128];
            snprintf(name, sizeof name, "%s%s", prefix, tensor->name);
            if (tensor->first_row == 0)
                code = zinf_tensors_writer_declare(writer, name, zinf_file_dtype_from_dtype(dtype),
                                                   tensor->rank, tensor->shape);
        }
    }
    return code ? code : zinf_tensors_writer_begin(writer);
}

/* r->unit (flat, fp32) to the file, tensor by tensor, in dtype. */
static int append_unit(struct zinf_tensors_writer *writer, const struct zinf_unit_spec *unit,
                       const struct region *r, enum zinf_dtype dtype)
{
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct zinf_tensor_spec *tensor = &unit->tensors[i];
        const float *values = r->unit + tensor->offset;
        const void *data = values;
        if (tensor->transposed) {
            transpose(r->tensor, values, tensor->shape[1], tensor->shape[0]);
            data = values = r->tensor;
        }
        if (dtype != ZINF_DTYPE_F32) {
            zinf_convert(r->packed, dtype, values, ZINF_DTYPE_F32, tensor->elems);
            data = r->packed;
        }
        int code =
            zinf_tensors_writer_append(writer, data, tensor->elems * zinf_dtype_bytes(dtype));
        if (code)
            return code;
    }
    return 0;
}

static int read_param(const struct zinf_trainer *t, uint32_t unit, const struct region *r)
{
    struct zinf_location where = zinf_tiers_param(t->plan.tiers, unit, 0);
    void *target = t->setup.dtype == ZINF_DTYPE_F32 ? (void *)r->unit : r->packed;
    int code = zinf_location_read(t->plan.tiers, t->setup.device, t->queues[ZINF_LANE_D2H], &where,
                                  0, target, where.bytes);
    if (!code && t->setup.dtype != ZINF_DTYPE_F32)
        zinf_convert(r->unit, ZINF_DTYPE_F32, r->packed, t->setup.dtype,
                     t->setup.layout.units[unit].padded_elems);
    return code;
}

static int read_grad(const struct zinf_trainer *t, uint32_t unit, const struct region *r)
{
    struct zinf_location where = zinf_tiers_unit_grad(t->plan.tiers, unit);
    return zinf_location_read(t->plan.tiers, t->setup.device, t->queues[ZINF_LANE_D2H], &where, 0,
                              r->unit, where.bytes);
}

/* One array of a unit as fp32 into the region. */
static int read_part(struct zinf_trainer *t, uint32_t unit, int part, const struct region *r)
{
    if (part == PART_PARAM)
        return read_param(t, unit, r);
    return part == PART_GRAD ? read_grad(t, unit, r) : trainer_state_read(t, unit, part, r->unit);
}

int trainer_stream(struct zinf_trainer *t, int part, enum zinf_dtype dtype,
                   struct zinf_tensors_writer *writer)
{
    struct region r = trainer_region(t);
    int code = declare_all(t->setup.model, t->prefix, writer, dtype);
    for (uint32_t u = 0; !code && u < t->setup.n_units; u++) {
        code = read_part(t, u, part, &r);
        if (!code)
            code = append_unit(writer, zinf_model_unit(t->setup.model, (int)u), &r, dtype);
    }
    return code ? code : zinf_tensors_writer_finish(writer);
}

static int save(struct zinf_trainer *t, const struct zinf_tensors_writer_options *options, int part,
                enum zinf_dtype dtype)
{
    struct zinf_tensors_writer *writer = NULL;
    int code = zinf_tensors_writer_create(&writer, options);
    if (!code)
        code = trainer_stream(t, part, dtype, writer);
    zinf_tensors_writer_destroy(writer);
    return code;
}

int trainer_write_config(const cJSON *config, enum zinf_dtype dtype, const char *folder)
{
    static const char *const names[] = {"float32", "bfloat16", "float16"};
    cJSON *copy = cJSON_Duplicate(config, true);
    char *text = NULL, *path = zinf_path_join(folder, "config.json");
    int code = -ENOMEM;
    if (!copy || !path)
        goto out;
    const char *key = cJSON_GetObjectItemCaseSensitive(copy, "dtype") ? "dtype" : "torch_dtype";
    cJSON_DeleteItemFromObjectCaseSensitive(copy, key);
    cJSON_AddStringToObject(copy, key, names[dtype]);
    text = cJSON_Print(copy);
    if (text)
        code = zinf_file_write_atomic(path, text, strlen(text));
out:
    cJSON_Delete(copy);
    cJSON_free(text);
    free(path);
    return code == -ENOMEM ? zinf_fail(code, "no memory to write %s/config.json", folder) : code;
}

int zinf_trainer_save(struct zinf_trainer *t, const char *folder)
{
    struct zinf_tensors_writer_options options = {.path = folder};
    int code = trainer_settle(t);
    if (!code)
        code = zinf_make_dirs(folder);
    if (!code)
        code = trainer_settle(t);
    if (!code)
        code = save(t, &options, PART_PARAM, t->setup.dtype);
    if (!code)
        code = trainer_write_config(zinf_model_config(t->setup.model), t->setup.dtype, folder);
    return code ? code : zinf_folder_copy_companions(t->setup.options.model_path, folder);
}

int zinf_trainer_save_gradients(struct zinf_trainer *t, const char *path)
{
    struct zinf_tensors_writer_options options = {.path = path, .single_file = true};
    return save(t, &options, PART_GRAD, ZINF_DTYPE_F32);
}

/* ---- new folders ---- */

/* Streams in the file's own order: no flat buffers, no transposition, a few MiB of memory. */
static int append_new(struct zinf_tensors_writer *writer, const struct zinf_model *model,
                      enum zinf_dtype dtype, uint64_t seed, float *block, void *packed,
                      uint64_t block_elems)
{
    for (int u = 0; u < zinf_model_n_units(model); u++) {
        const struct zinf_unit_spec *unit = zinf_model_unit(model, u);
        for (int i = 0; i < unit->n_tensors; i++) {
            const struct zinf_tensor_spec *tensor = &unit->tensors[i];
            uint64_t first = tensor->first_row * row_elems(tensor);
            for (uint64_t at = 0; at < tensor->elems; at += block_elems) {
                uint64_t left = tensor->elems - at, n = left < block_elems ? left : block_elems;
                zinf_model_init_fill(model, tensor, seed, first + at, n, block);
                zinf_convert(packed, dtype, block, ZINF_DTYPE_F32, n);
                int code = zinf_tensors_writer_append(writer, packed, n * zinf_dtype_bytes(dtype));
                if (code)
                    return code;
            }
        }
    }
    return 0;
}

int zinf_model_write_new(const cJSON *config, enum zinf_dtype dtype, uint64_t seed,
                         const char *folder)
{
    const uint64_t block_elems = (uint64_t)1 << 20;
    struct zinf_tensors_writer_options options = {.path = folder};
    struct zinf_tensors_writer *writer = NULL;
    struct zinf_model *model = NULL;
    float *block = malloc(2 * block_elems * sizeof *block);
    int code = block ? zinf_model_from_json(&model, config, "the new model")
                     : zinf_fail(-ENOMEM, "no memory for a block of weights");
    if (!code)
        code = zinf_make_dirs(folder);
    if (!code)
        code = zinf_tensors_writer_create(&writer, &options);
    if (!code)
        code = declare_all(model, zinf_model_family(model)->prefix, writer, dtype);
    if (!code)
        code = append_new(writer, model, dtype, seed, block, block + block_elems, block_elems);
    if (!code)
        code = zinf_tensors_writer_finish(writer);
    if (!code)
        code = trainer_write_config(zinf_model_config(model), dtype, folder);
    zinf_tensors_writer_destroy(writer);
    zinf_model_close(model);
    free(block);
    return code;
}
