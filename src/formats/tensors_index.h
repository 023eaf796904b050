/*
 * tensors_index: reads and checks the index of a sharded folder (model.safetensors.index.json).
 * Internal to formats. Entries and files are sorted; file names have no folder.
 */
#ifndef ZINF_TENSORS_INDEX_H
#define ZINF_TENSORS_INDEX_H

#include "base/json.h"

#define ZINF_TENSORS_SINGLE "model.safetensors"
#define ZINF_TENSORS_INDEX "model.safetensors.index.json"
#define ZINF_TENSORS_TORCH "pytorch_model.bin"
#define ZINF_TENSORS_TORCH_INDEX "pytorch_model.bin.index.json"
/* The names model-0000i-of-0000n allow more, but a reader keeps every file open. */
#define ZINF_TENSORS_MAX_FILES 10000

struct zinf_tensors_index {
    cJSON *root; /* owns all names below */
    /* string: the tensor's name, valuestring: its file; by file, then by name */
    const cJSON **entries;
    uint32_t *file_of; /* [n_entries]: index into files */
    uint64_t n_entries;
    const char **files; /* by name */
    uint32_t n_files;
};

int zinf_tensors_index_read(struct zinf_tensors_index *out, const char *path);
void zinf_tensors_index_fini(struct zinf_tensors_index *index);

#endif
