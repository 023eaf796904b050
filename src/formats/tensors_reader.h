/*
 * tensors_reader: what tensors_open.c opens and tensors_reader.c reads. Internal to formats.
 */
#ifndef ZINF_TENSORS_READER_H
#define ZINF_TENSORS_READER_H

#include "formats/safetensors.h"
#include "formats/torch_file.h"

/* One of the two has the names, and what hangs on the tensors; these move to the common list. */
struct tensors_file {
    char *path;
    int fd;
    bool pickled;
    struct zinf_safetensors header;
    struct zinf_torch_file torch;
};

struct zinf_tensors {
    struct tensors_file *files;
    uint32_t n_files;
    struct zinf_tensor_info *list; /* by file, then by place in it */
    uint64_t count;
    const struct zinf_tensor_info **by_name;
};

/* Of pointers to zinf_tensor_info, for qsort and bsearch. */
int tensors_compare_names(const void *a, const void *b);

#endif
