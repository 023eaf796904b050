/*
 * checkpoints: what trainings leave in their output folder: OUTPUT/checkpoint-N, each
 * self-contained, and OUTPUT/latest, which names one. Finding them, looking at them, and making
 * Hugging Face model folders of them or of adapters.
 *
 * Threads: no state is shared between calls. Errors: -errno and a sentence.
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

/* folder: a checkpoint, or an output folder, whose latest it is. *path on the heap. -ENOENT: an
 * output folder, or none at all, without a checkpoint. */
int zinf_checkpoint_find(const char *folder, char **path);
/* Every checkpoint of an output folder, ascending, each compared with its checksums. */
struct zinf_checkpoint_info {
    const char *folder;
    uint64_t step, bytes;
    bool latest;
    const char *problem; /* NULL: it is whole */
};
int zinf_checkpoint_list(const char *output,
                         void (*see)(void *arg, const struct zinf_checkpoint_info *info),
                         void *arg);
/* The same for one checkpoint. */
int zinf_checkpoint_look(const char *folder,
                         void (*see)(void *arg, const struct zinf_checkpoint_info *info),
                         void *arg);
/* Of an adapter's folder: whether its weights are those that were saved. 1: they are; 0: it has no
 * sum of them, as PEFT's folders and those of versions before; -EBADMSG: the message names the file
 * that is damaged. */
int zinf_adapter_verify(const char *folder);
/* { not installed */
/* Each file and folder that the output folder's last run read: problem NULL where nothing in it has
 * changed that decides results, ZINF_INPUT_GONE where it is not there any more, else what has
 * changed. Runs of earlier versions have no record of them: see is not called. */
#define ZINF_INPUT_GONE "it is not there any more: not compared"
typedef void zinf_inputs_see(void *arg, const char *path, const char *problem);
int zinf_run_inputs_verify(const char *output, zinf_inputs_see *see, void *arg);
/* By which the runs of an output folder know their steps on the drives. -ENOENT: it has no name. */
int zinf_run_id(const char *output, uint8_t id[16]);
/* Where its newest run has left finished steps, on the heap; NULL: it has none, or is done. */
int zinf_run_steps(const char *output, char **path);
/* Whether a run folder's name is of that run: which of how many ranks it belongs to; 0 of 1 where
 * the run had one alone. */
bool zinf_run_id_rank(const uint8_t id[16], const uint8_t found[16], uint32_t *rank,
                      uint32_t *world);
/* The step that scalars of a committed step belong to; false: they are not a training's. */
bool zinf_checkpoint_step_of(const void *scalars, uint64_t bytes, uint64_t *step);
/* } not installed */
/* A Hugging Face model folder from a checkpoint's fp32 master weights; bounded memory. */
struct zinf_export_options {
    const char *checkpoint, *output;
    enum zinf_dtype dtype;
    bool as_saved;            /* dtype is that of the checkpoint's parameters */
    uint64_t max_shard_bytes; /* 0: 5e9 */
};
int zinf_checkpoint_export(const struct zinf_export_options *options);
/* { not installed */
/* A GGUF file from a checkpoint's masters, or from a model folder; bounded memory.
 * -ENOTSUP: of such a family, or with such a tokenizer, none can be made. */
struct zinf_gguf_options {
    const char *checkpoint, *output; /* output: the file */
    enum zinf_gguf_form form;        /* of matrices; the rest keeps more */
};
int zinf_gguf_export(const struct zinf_gguf_options *options);
/* } not installed */
/* The model folder of a base with adapters added to its weights, W + scale B A in fp32; bounded
 * memory. */
struct zinf_merge_options {
    const char *adapter; /* PEFT's folder, a checkpoint, or an output folder: its latest */
    const char *base;    /* NULL: the folder that adapter_config.json names */
    const char *output;
    enum zinf_dtype dtype;
    bool as_base;             /* dtype is that of each of the base's tensors */
    uint64_t max_shard_bytes; /* 0: 5e9 */
};
int zinf_adapter_merge(const struct zinf_merge_options *options);

/* Adapters of one base as a single one that does what their weighted sum does; PEFT's folder. Each
 * module's rank is the sum of theirs. -ENOTSUP: use_dora, bias, modules_to_save. -EINVAL: they are
 * of different bases. One module at a time is in memory. */
#define ZINF_MAX_JOINED 16
struct zinf_joined_adapter {
    const char *folder; /* PEFT's, a checkpoint, or an output folder: its latest */
    double weight;
};
int zinf_adapter_join(const struct zinf_joined_adapter *adapters, int n, const char *output);

/* { not installed */
/* ---- a folder beside its config.json ---- */

struct zinf_model;
struct zinf_tensor;
struct zinf_tensors;
/* What of a folder's tensors is not as the model's config.json asks, one by one. */
enum zinf_weights_kind {
    ZINF_WEIGHTS_MISSING,
    ZINF_WEIGHTS_SHAPE,
    ZINF_WEIGHTS_DTYPE,
    ZINF_WEIGHTS_UNEXPECTED, /* nothing asks for it; no fault by itself */
    ZINF_WEIGHTS_KINDS,
};
struct zinf_weights_finding {
    enum zinf_weights_kind kind;
    const struct zinf_tensor *tensor; /* the model's; NULL: it has none of that name */
    const char *name;                 /* of the tensor */
    const char *detail; /* "has shape [2]; config.json asks for [3]": what follows the name */
};
int zinf_weights_compare(const struct zinf_model *model, const struct zinf_tensors *file,
                         void (*see)(void *arg, const struct zinf_weights_finding *finding),
                         void *arg);
/* } not installed */

#ifdef __cplusplus
}
#endif
#endif
