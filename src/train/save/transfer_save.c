/*
 * transfer_save: weights, gradients and state from tiers to files, tensor by tensor in the file's
 * order; a unit is read once for all of its tensors that follow each other.
 */
#include "train/save/checkpoint.h"
#include "train/save/output.h"
#include "train/checkpoints.h"

#include <stdlib.h>

/* ---- one array of a unit ---- */

static int read_param(const struct source *s, uint32_t unit, const struct region *r)
{
    enum zinf_dtype dtype = s->setup->dtype;
    void *target = dtype == ZINF_DTYPE_F32 ? (void *)r->unit : r->packed;
    int code = s->setup->sliced || is_piped(s->setup)
                   ? collect_part(s, unit, PART_PARAM)
                   : source_read_unit(s, unit, ZINF_PACKABLE_PARAM, target);
    if (!code && dtype != ZINF_DTYPE_F32)
        zinf_convert(r->unit, ZINF_DTYPE_F32, r->packed, dtype,
                     all_units(s->setup)->units[unit].padded_elems);
    return code;
}

/* The rank's slice, in its place, and zero elsewhere; or of all ranks. */
static int read_slice(const struct source *s, uint32_t unit, int part, const struct region *r)
{
    const struct zinf_layout_unit *u = &s->setup->layout.units[unit];
    float *slice = r->unit + u->slice_first;
    if (is_piped(s->setup) || (data_axis(s->setup)->net && !whole_state(s->setup)))
        return collect_part(s, unit, part);
    if (u->slice_elems < u->padded_elems)
        memset(r->unit, 0, u->padded_elems * sizeof *r->unit);
    if (part >= PART_MASTER)
        return state_read(s, unit, part, slice);
    return source_read_unit(s, unit, ZINF_PACKABLE_GRAD, slice);
}

/* One array of a unit as fp32 into the region. */
static int read_part(const struct source *s, uint32_t unit, int part, const struct region *r)
{
    bool trained = unit_trains_anywhere(s->setup, unit);
    if (part == PART_PARAM || (part == PART_MASTER && !trained))
        return read_param(s, unit, r);
    if (trained)
        return read_slice(s, unit, part, r);
    memset(r->unit, 0, all_units(s->setup)->units[unit].padded_elems * sizeof *r->unit);
    return 0;
}

/* ---- streams ---- */

struct stream {
    const struct source *source;
    struct region region;
    int part;
    enum zinf_dtype dtype; /* of the file */
    struct zinf_tensors_writer *writer;
    int64_t unit; /* that the region holds; -1: none */
};

static int give_unit(void *context, uint32_t unit, const float **flat)
{
    struct stream *s = context;
    int code = 0;
    if (s->unit != (int64_t)unit)
        code = read_part(s->source, unit, s->part, &s->region);
    const bool shared = tensor_axis(s->source->setup)->net;
    if (!code && shared && s->unit != (int64_t)unit)
        code = whole_unit(s->source, unit, s->region.unit, s->region.whole);
    s->unit = code ? -1 : (int64_t)unit;
    *flat = shared ? s->region.whole : s->region.unit;
    return code;
}

static int write_values(void *context, const float *values, uint64_t n)
{
    const struct stream *s = context;
    uint64_t width = zinf_dtype_bytes(s->dtype), most = s->region.unit_elems;
    int code = 0;
    if (!s->writer)
        return 0;
    if (s->dtype == ZINF_DTYPE_F32)
        return zinf_tensors_writer_append(s->writer, values, n * width);
    for (uint64_t at = 0; !code && at < n; at += most) {
        uint64_t now = n - at < most ? n - at : most;
        zinf_convert(s->region.packed, s->dtype, values + at, ZINF_DTYPE_F32, now);
        code = zinf_tensors_writer_append(s->writer, s->region.packed, now * width);
    }
    return code;
}

int transfer_stream(const struct source *s, int part, enum zinf_dtype dtype,
                    struct zinf_tensors_writer *writer)
{
    struct stream context = {s, source_region(s), part, dtype, writer, -1};
    struct zinf_stream stream = {
        .flat = give_unit,
        .write = write_values,
        .context = &context,
        .scratch = {context.region.scratch, context.region.scratch_elems},
    };
    if (context.region.band_elems)
        stream.scratch = (struct zinf_scratch){context.region.band, context.region.band_elems};
    const struct zinf_file_map *files = s->setup->files;
    struct zinf_tensors *carried = NULL;
    int code = writer ? transfer_carried_open(s, part, &carried) : 0;
    if (!code)
        code = transfer_carry(s, carried, true, true, writer);
    for (uint32_t i = 0; !code && writer && i < 2 * files->n_tensors; i++) {
        const struct zinf_file_tensor *t = transfer_ordered(files, i);
        if (t && transfer_has(s->setup, t, part))
            code = transfer_declare(writer, t, s->prefix, dtype);
    }
    if (!code)
        code = transfer_carry(s, carried, false, true, writer);
    if (!code && writer)
        code = zinf_tensors_writer_begin(writer);
    if (!code)
        code = transfer_carry(s, carried, true, false, writer);
    for (uint32_t i = 0; !code && i < 2 * files->n_tensors; i++) {
        const struct zinf_file_tensor *t = transfer_ordered(files, i);
        context.dtype = t ? transfer_file_dtype(t, dtype) : dtype;
        if (t && transfer_has(s->setup, t, part))
            code = zinf_file_tensor_stream(t, &stream);
    }
    if (!code)
        code = transfer_carry(s, carried, false, false, writer);
    if (!code && writer)
        code = zinf_tensors_writer_finish(writer);
    zinf_tensors_close(carried);
    if (code && tensor_axis(s->setup)->net) /* the others wait for its part of the next tensor */
        zinf_net_tell(s->setup->mesh.all, zinf_error());
    return code;
}

/* ---- a trainer's ---- */

/* written: gets the files, where there are any; or NULL. */
static int save(const struct zinf_trainer *t, const struct zinf_tensors_writer_options *options,
                int part, enum zinf_dtype dtype, struct checkpoint *written)
{
    struct source source = trainer_source(t);
    struct zinf_tensors_writer *writer = NULL;
    struct collect collect;
    bool first = collect_is_first(&source);
    int code = collect_begin(&source, &collect);
    if (!code && first)
        code = zinf_tensors_writer_create(&writer, options);
    if (!code && collect_streams(&source))
        code = transfer_stream(&source, part, dtype, writer);
    if (!code && first && written)
        code = checkpoint_add_written(written, "", writer);
    zinf_tensors_writer_destroy(writer);
    code = collect_end(&source, code);
    return code;
}

/* Its weights are the fp32 masters in any number type. */
static int save_adapter(const struct zinf_trainer *t, const char *folder,
                        struct checkpoint *written)
{
    char *path = zinf_path_join(folder, ZINF_ADAPTER_WEIGHTS);
    struct zinf_tensors_writer_options options = {.path = path, .single_file = true};
    int code = path ? save(t, &options, PART_MASTER, ZINF_DTYPE_F32, written) : -ENOMEM;
    free(path);
    return code;
}

static int prepare(const char *folder, bool adapted)
{
    int code = zinf_make_dirs(folder);
    return code ? code : output_forget(folder, adapted ? IDENTITY_FILE : ZINF_MODEL_CHECKSUMS);
}

/* What is beside the weights, and the sums: an adapter's are with what it stands on. */
static int save_rest(const struct source *s, const char *folder, struct checkpoint *written)
{
    bool adapted = is_adapted(s->setup);
    int code = transfer_write_rest(s, folder, checkpoint_adapter_sum(written));
    if (!code && !adapted)
        code = checkpoint_add_others(written, folder, "");
    return code || adapted ? code : checkpoint_write_list(written, folder);
}

int zinf_trainer_save(struct zinf_trainer *t, const char *folder)
{
    struct zinf_tensors_writer_options options = {.path = folder};
    struct source source = trainer_source(t);
    bool adapted = is_adapted(&t->setup), first = collect_is_first(&source);
    struct checkpoint written = {0};
    int code = trainer_settle(t);
    if (!code)
        code = collect_agree(&source, first ? prepare(folder, adapted) : 0);
    if (!code)
        code = adapted ? save_adapter(t, folder, &written)
                       : save(t, &options, PART_PARAM, t->setup.dtype, &written);
    if (!code && first)
        code = save_rest(&source, folder, &written);
    checkpoint_fini(&written);
    return code;
}

int zinf_trainer_save_gradients(struct zinf_trainer *t, const char *path)
{
    struct zinf_tensors_writer_options options = {.path = path, .single_file = true};
    return save(t, &options, PART_GRAD, ZINF_DTYPE_F32, NULL);
}

/* ---- beside weights: the configuration, and files that only follow ---- */

/* base: written as an absolute path where there is one, since the adapter may be loaded from any
 * folder. */
static int write_adapter_config(const struct zinf_model *model, const char *base,
                                const char *folder)
{
    char *found = realpath(base, NULL), *path = zinf_path_join(folder, ZINF_ADAPTER_CONFIG);
    cJSON *config = NULL;
    int code = path ? zinf_model_adapter_config(model, found ? found : base, &config) : -ENOMEM;
    char *text = code ? NULL : cJSON_Print(config);
    if (text)
        code = zinf_file_write_atomic(path, text, strlen(text));
    else if (!code)
        code = zinf_fail(-ENOMEM, "no memory to write %s", path);
    cJSON_free(text);
    cJSON_Delete(config);
    free(path);
    free(found);
    return code;
}

int transfer_write_rest(const struct source *s, const char *folder, uint64_t own)
{
    const struct setup *setup = s->setup;
    int code = is_adapted(setup)
                   ? write_adapter_config(setup->model, setup->options.model_path, folder)
                   : transfer_write_config(zinf_model_config(setup->model), setup->dtype, folder);
    if (!code && is_adapted(setup))
        code = identity_write(s->identity, own, folder);
    enum zinf_companions which =
        is_adapted(setup) ? ZINF_COMPANIONS_TOKENIZER : ZINF_COMPANIONS_ALL;
    return code ? code : zinf_folder_copy_companions(s->folder, folder, which);
}
