/*
 * checkpoint_export: a model folder from a checkpoint, in any number type, without a trainer. The
 * tensors are streamed in the order of the file in blocks of a few MiB: memory does not depend on
 * the model.
 */
#include "base/apart.h"
#include "model/composite.h"
#include "train/save/checkpoint.h"
#include "train/save/output.h"
#include "train/checkpoints.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCK_ELEMS ((uint64_t)1 << 20)
#define MAX_TEMPLATE_BYTES ((size_t)4 << 20)

/* Warns of a checkpoint that is newer than the one that "latest" names. That is as it should be
 * after somebody went back to an earlier step, and a mistake otherwise. */
static void say_newer(const char *folder, uint64_t step)
{
    uint64_t newest = step;
    struct checkpoint c;
    char *path = output_newest(folder, &newest) || newest <= step
                     ? NULL
                     : output_checkpoint_path(folder, "", newest);
    if (path && !checkpoint_open_one(&c, path)) {
        zinf_log(ZINF_LOG_WARN,
                 "%s/latest names step %" PRIu64 ", though %s is newer: takes what it names; "
                 "--resume=%s continues from that one",
                 folder, step, path, path);
        checkpoint_fini(&c);
    }
    free(path);
}

int zinf_checkpoint_find(const char *folder, char **path)
{
    char *state = zinf_path_join(folder, CHECKPOINT_STATE);
    uint64_t step;
    struct zinf_training_state foreign;
    int code = state ? zinf_training_state_read(&foreign, folder) : -ENOMEM;
    bool none = code == -ENODATA;
    code = none ? 0 : code;
    *path = NULL;
    if (!code && none && access(state, F_OK)) {
        code = output_latest(folder, &step);
        if (!code)
            say_newer(folder, step);
        if (!code)
            *path = output_checkpoint_path(folder, "", step);
    } else if (!code) {
        *path = strdup(folder);
    }
    free(state);
    return code || *path ? code : zinf_fail(-ENOMEM, "no memory for a path in %s", folder);
}

struct export
{
    struct zinf_tensors *model;   /* all tensors, in the order of the file */
    struct zinf_tensors *masters; /* those that are trained, in fp32; may be the same as model */
    struct zinf_tensors_writer *to;
    enum zinf_dtype dtype;
    float *block; /* [BLOCK_ELEMS] */
    void *packed; /* [BLOCK_ELEMS] in dtype */
    const struct zinf_family *family;
    const char *folder;
};

/* Tensors beside the text model, which are copied as they are. */
static bool is_carried(const struct export *e, const struct zinf_tensor_info *info)
{
    return zinf_composite_carries(e->family, info->name);
}

static int declare(const struct export *e)
{
    int code = 0;
    for (uint64_t i = 0; !code && i < zinf_tensors_count(e->model); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(e->model, i);
        code = zinf_tensors_writer_declare(
            e->to, info->name,
            is_carried(e, info) ? info->dtype : zinf_file_dtype_from_dtype(e->dtype), info->rank,
            info->shape);
    }
    return code ? code : zinf_tensors_writer_begin(e->to);
}

/* info: of the model's. What is not trained has no master. */
static int copy_tensor(const struct export *e, const struct zinf_tensor_info *info)
{
    if (is_carried(e, info))
        return transfer_copy_tensor(e->model, info, e->to, e->block,
                                    BLOCK_ELEMS * sizeof *e->block);
    const struct zinf_tensor_info *master = zinf_tensors_find(e->masters, info->name);
    const struct zinf_tensors *from = master ? e->masters : e->model;
    info = master ? master : info;
    for (uint64_t at = 0; at < info->n_elems; at += BLOCK_ELEMS) {
        uint64_t left = info->n_elems - at, n = left < BLOCK_ELEMS ? left : BLOCK_ELEMS;
        int code = zinf_tensors_read_f32(from, info, at, n, e->block);
        if (!code)
            zinf_convert(e->packed, e->dtype, e->block, ZINF_DTYPE_F32, n);
        if (!code)
            code = zinf_tensors_writer_append(e->to, e->packed, n * zinf_dtype_bytes(e->dtype));
        if (code)
            return code;
    }
    return 0;
}

static int copy_all(const struct export *e)
{
    int code = declare(e);
    for (uint64_t i = 0; !code && i < zinf_tensors_count(e->model); i++)
        code = copy_tensor(e, zinf_tensors_at(e->model, i));
    return code ? code : zinf_tensors_writer_finish(e->to);
}

int checkpoint_copy_template(const char *folder, const char *output)
{
    char *run = zinf_path_join(folder, "../config.resolved.json"), *text = NULL;
    char *beside = zinf_path_join(folder, "../model/chat_template.jinja");
    char *own = zinf_path_join(folder, "chat_template.jinja");
    char *target = zinf_path_join(output, "chat_template.jinja");
    size_t bytes = 0;
    int code = run && beside && own && target ? 0 : zinf_fail(-ENOMEM, "no memory for a path");
    const char *from = !code && !access(run, F_OK) && !access(beside, F_OK) ? beside : own;
    if (!code && !access(from, F_OK))
        code = zinf_file_read(from, MAX_TEMPLATE_BYTES, &text, &bytes);
    if (!code && text)
        code = zinf_file_write_atomic(target, text, bytes);
    free(text);
    free(target);
    free(own);
    free(beside);
    free(run);
    return code;
}

static int write_rest(const struct export *e, const struct zinf_model *model, const char *output)
{
    int code = transfer_write_config(zinf_model_config(model), e->dtype, output);
    if (!code)
        code = zinf_folder_copy_companions(e->folder, output, ZINF_COMPANIONS_ALL);
    return code ? code : checkpoint_copy_template(e->folder, output);
}

/* masters: their file; NULL: the model's own, which may lie in several. Its list of tensors is read
 * twice then. */
static int export_from(const struct checkpoint *c, const char *folder, const char *masters,
                       const struct zinf_export_options *options)
{
    struct export e = {.folder = folder, .dtype = options->as_saved ? c->dtype : options->dtype};
    struct zinf_tensors_writer_options writer = {.path = options->output,
                                                 .max_shard_bytes = options->max_shard_bytes};
    struct zinf_model *model = NULL;
    char *path = masters ? zinf_path_join(folder, masters) : strdup(folder);
    bool foreign = c->foreign;
    e.block = malloc(BLOCK_ELEMS * sizeof *e.block);
    e.packed = malloc(BLOCK_ELEMS * sizeof(float));
    int code =
        path && e.block && e.packed ? 0 : zinf_fail(-ENOMEM, "no memory to export %s", folder);
    if (!code)
        code = zinf_model_open(&model, folder);
    if (!code)
        e.family = zinf_model_family(model);
    if (!code)
        code = foreign ? checkpoint_open_foreign_part(folder, PART_MASTER, &e.model)
                       : zinf_tensors_open(&e.model, folder);
    if (!code)
        code = foreign ? checkpoint_open_foreign_part(folder, PART_MASTER, &e.masters)
                       : zinf_tensors_open(&e.masters, path);
    if (!code)
        code = zinf_tensors_writer_create(&e.to, &writer);
    if (!code)
        code = copy_all(&e);
    if (!code)
        code = write_rest(&e, model, options->output);
    zinf_tensors_writer_destroy(e.to);
    zinf_tensors_close(e.masters);
    zinf_tensors_close(e.model);
    zinf_model_close(model);
    free(e.packed);
    free(e.block);
    free(path);
    return code;
}

static int check_output(const char *folder, const struct zinf_export_options *options)
{
    struct zinf_origin read = {"--checkpoint", folder};
    const struct zinf_origins origins = {&read, 1};
    int code = zinf_apart_check("--output", options->output, ZINF_WRITTEN_FOLDER, &origins);
    return code ? code : zinf_folder_check_new("--output", options->output);
}

/* Layers of a pipeline are a model and no more. */
static int export_layers(const struct zinf_export_options *options)
{
    struct checkpoint c = {.dtype = ZINF_DTYPE_F32};
    struct zinf_model *model = NULL;
    char *folder = NULL;
    int code = zinf_layers_as_folder(options->checkpoint, &folder);
    if (!code)
        code = zinf_model_open(&model, folder);
    if (!code) {
        c.dtype = zinf_model_facts(model)->file_dtype;
        code = check_output(options->checkpoint, options);
    }
    if (!code)
        code = export_from(&c, folder, NULL, options);
    zinf_model_close(model);
    free(folder);
    return code;
}

int zinf_checkpoint_export(const struct zinf_export_options *options)
{
    struct checkpoint c;
    char *folder, masters[64];
    if (zinf_is_layers(options->checkpoint))
        return export_layers(options);
    int code = zinf_checkpoint_find(options->checkpoint, &folder);
    if (code)
        return code;
    code = checkpoint_open(&c, folder);
    if (!code && c.adapted) {
        code = zinf_fail(-EINVAL,
                         "%s holds adapters, not a model: --merge adds them to their base; PEFT "
                         "reads the folder as it is",
                         folder);
        checkpoint_fini(&c);
    } else if (!code) {
        checkpoint_part_name(&c, PART_MASTER, masters);
        code = check_output(folder, options);
        if (!code)
            code = export_from(&c, folder, c.dtype == ZINF_DTYPE_F32 ? NULL : masters, options);
        checkpoint_fini(&c);
    }
    free(folder);
    return code;
}
