/*
 * tensors_layout: distributes declared tensors over files: their places, the bytes of each header,
 * the text of the index. Internal to formats; no I/O.
 */
#ifndef ZINF_TENSORS_LAYOUT_H
#define ZINF_TENSORS_LAYOUT_H

#include "formats/safetensors.h"

struct zinf_tensors_shard {
    char name[48];
    uint64_t first, end; /* range of the declarations */
    char *header;        /* the file's beginning: length, JSON, padding */
    uint64_t header_bytes;
    uint64_t file_bytes;
};

struct zinf_tensors_layout {
    struct zinf_tensors_shard *shards;
    uint32_t n_shards;    /* at least 1 */
    uint64_t total_bytes; /* of all tensors */
};

/* Sets file and file_offset of every tensor. A file takes tensors in the order of declaration until
 * the next would exceed max_shard_bytes. Within a file wider elements come first, so that each
 * tensor is aligned to its elements. -EINVAL: a name is declared twice or is not UTF-8. */
int zinf_tensors_layout_init(struct zinf_tensors_layout *out, struct zinf_tensor_info *list,
                             uint64_t count, uint64_t max_shard_bytes);
void zinf_tensors_layout_fini(struct zinf_tensors_layout *layout);
/* The text of model.safetensors.index.json; the caller frees it. */
int zinf_tensors_layout_index(const struct zinf_tensors_layout *layout,
                              const struct zinf_tensor_info *list, uint64_t count, char **text,
                              size_t *bytes);

#endif
