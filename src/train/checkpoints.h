/*
 * checkpoints: the files that trainings leave in their output folder: checkpoints,
 * OUTPUT/checkpoint-N, each self-contained, and OUTPUT/latest, which names one of them. These calls
 * find and check them, and convert them or adapters to Hugging Face model folders.
 *
 * Threads: calls share no state. Errors: -errno and a sentence.
 */
#ifndef ZINF_CHECKPOINTS_H
#define ZINF_CHECKPOINTS_H

#include "base/base.h"
/* { not installed */
#include "formats/formats.h"
/* } not installed */

#ifdef __cplusplus
extern "C" {
#endif

/* Finds the checkpoint of a folder: folder is a checkpoint itself, or an output folder, whose
 * latest checkpoint is taken. The caller frees *path. -ENOENT: no such folder, or it has no
 * checkpoint. */
int zinf_checkpoint_find(const char *folder, char **path);
/* Calls see for every checkpoint of an output folder, in ascending order, after verifying its
 * checksums. */
struct zinf_checkpoint_info {
    const char *folder;
    uint64_t step, bytes;
    bool latest;
    const char *problem; /* NULL: it is complete and undamaged */
};
int zinf_checkpoint_list(const char *output,
                         void (*see)(void *arg, const struct zinf_checkpoint_info *info),
                         void *arg);
/* The same for one checkpoint. */
int zinf_checkpoint_look(const char *folder,
                         void (*see)(void *arg, const struct zinf_checkpoint_info *info),
                         void *arg);
/* Verifies the weights in an adapter's folder. Returns 1: they are as they were saved; 0: the
 * folder has no checksum, as PEFT's folders and those of earlier versions; -EBADMSG: the message
 * names the damaged file. */
int zinf_adapter_verify(const char *folder);
/* The same for a model's folder and all files that were saved into it. Also 0 if the folder has no
 * list of them, as folders from the hub. */
#define ZINF_MODEL_CHECKSUMS "zinf_checksums.json"
int zinf_model_verify(const char *folder);
/* { not installed */
/* Calls see for each file and folder that the output folder's last run read. problem is NULL where
 * nothing in it has changed that decides results, ZINF_INPUT_GONE where it no longer exists, else a
 * sentence on what has changed. Runs of earlier versions have no record: see is not called. */
#define ZINF_INPUT_GONE "it is not there any more: not compared"
typedef void zinf_inputs_see(void *arg, const char *path, const char *problem);
int zinf_run_inputs_verify(const char *output, zinf_inputs_see *see, void *arg);
/* After a refusal to go on (code, zinf_error()): adds to its sentence the first configuration or
 * tokenizer that has changed since the run began, if it does not name it. Returns code. */
int zinf_run_inputs_explain(const char *output, int code);
/* What the configuration said of train_micro_batch_size_per_gpu in the run that saved a checkpoint,
 * or in the last run of an output folder; 0: it is not known. */
int64_t zinf_checkpoint_micro_batch(const char *folder);
int64_t zinf_run_micro_batch(const char *output);
/* The id by which the runs of an output folder recognise their steps on the drives. -ENOENT: there
 * is none. */
int zinf_run_id(const char *output, uint8_t id[16]);
/* The path where its newest run has left finished steps; the caller frees it. NULL: there are none,
 * or the run is complete. */
int zinf_run_steps(const char *output, char **path);
/* Whether found is the id of a rank of run id, and if so, which rank of how many; 0 of 1 if the run
 * had one rank. */
bool zinf_run_id_rank(const uint8_t id[16], const uint8_t found[16], uint32_t *rank,
                      uint32_t *world);
/* The number of the step whose saved scalars these are; false: they are not a training's. */
bool zinf_checkpoint_step_of(const void *scalars, uint64_t bytes, uint64_t *step);
/* } not installed */
/* Writes a Hugging Face model folder from a checkpoint's fp32 master weights, in bounded memory. */
struct zinf_export_options {
    const char *checkpoint, *output;
    enum zinf_dtype dtype;
    bool as_saved;            /* ignore dtype, use that of the checkpoint's parameters */
    uint64_t max_shard_bytes; /* 0: 5e9 */
};
int zinf_checkpoint_export(const struct zinf_export_options *options);
/* { not installed */
/* Writes a GGUF file from a checkpoint's masters or from a model folder, in bounded memory; or,
 * where that holds adapters, a file of these alone. -ENOTSUP: GGUF does not support the family, the
 * tokenizer or the kind of adapter. */
struct zinf_gguf_options {
    const char *checkpoint, *output; /* output: the file */
    const char *base;                /* of adapters; NULL: as adapter_config.json names it */
    enum zinf_gguf_form form;        /* number format of matrices; other tensors keep a more
                                      * precise one */
};
int zinf_gguf_export(const struct zinf_gguf_options *options);
/* A model folder for a folder with the layers of a pipeline: DeepSpeed's layer_NN-model_states.pt,
 * as gdGPT has them, beside config.json and the tokenizer. The weights are read where they are, by
 * ranges, under the names that transformers has for the model. *folder is on the heap. */
int zinf_layers_as_folder(const char *path, char **folder);
/* Whether a folder has such layers, and no weights in another form. */
bool zinf_is_layers(const char *path);
/* A model folder for a path that is none itself: a GGUF file, or such layers; *folder NULL: it is
 * neither. Of a GGUF file it is in the user's cache (XDG_CACHE_HOME or ~/.cache, below zinf/gguf):
 * configuration, tokenizer and an index of tensors, whose weights are read where they are. The same
 * file gets the same folder. */
int zinf_model_as_folder(const char *path, char **folder);
/* } not installed */
/* Writes a model folder with the adapter added to the base's weights, W + scale B A in fp32, in
 * bounded memory. */
struct zinf_merge_options {
    const char *adapter; /* PEFT's folder, a checkpoint, or an output folder: its latest */
    const char *base;    /* NULL: the folder that adapter_config.json names */
    const char *output;
    enum zinf_dtype dtype;
    bool as_base;             /* ignore dtype, each tensor keeps the base's dtype */
    uint64_t max_shard_bytes; /* 0: 5e9 */
};
int zinf_adapter_merge(const struct zinf_merge_options *options);
/* { not installed */
struct zinf_labels; /* text/samples/task.h */
/* The classes whose head an adapter's folder has, by the names that the training knew them by; none
 * where it says none, as PEFT's folders do. */
int zinf_adapter_labels(const char *folder, struct zinf_labels *labels);
/* } not installed */

/* Joins adapters of one base into one adapter, which computes their weighted sum, as a PEFT folder.
 * The rank of each module is the sum of theirs. -ENOTSUP: use_dora, bias, modules_to_save. -EINVAL:
 * their bases differ. One module at a time is in memory. */
#define ZINF_MAX_JOINED 16
struct zinf_joined_adapter {
    const char *folder; /* PEFT's, a checkpoint, or an output folder: its latest */
    double weight;
};
int zinf_adapter_join(const struct zinf_joined_adapter *adapters, int n, const char *output);

/* { not installed */
/* ---- comparing a folder's tensors with its config.json ---- */

struct zinf_model;
struct zinf_tensor;
struct zinf_tensors;
/* How a tensor of a folder differs from what the model's config.json requires. */
enum zinf_weights_kind {
    ZINF_WEIGHTS_MISSING,
    ZINF_WEIGHTS_SHAPE,
    ZINF_WEIGHTS_DTYPE,
    ZINF_WEIGHTS_UNEXPECTED, /* the model does not need it; not an error */
    ZINF_WEIGHTS_KINDS,
};
struct zinf_weights_finding {
    enum zinf_weights_kind kind;
    const struct zinf_tensor *tensor; /* the model's; NULL: the model has none of that name */
    const char *name;                 /* of the tensor */
    const char *detail; /* the sentence after the name: "has shape [2]; config.json asks for [3]" */
};
int zinf_weights_compare(const struct zinf_model *model, const struct zinf_tensors *file,
                         void (*see)(void *arg, const struct zinf_weights_finding *finding),
                         void *arg);
/* } not installed */

#ifdef __cplusplus
}
#endif
#endif
