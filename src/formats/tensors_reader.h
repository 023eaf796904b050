/*
 * tensors_reader: what tensors_open.c opens and tensors_reader.c reads. Internal to formats.
 */
#ifndef ZINF_TENSORS_READER_H
#define ZINF_TENSORS_READER_H

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"

enum tensors_kind { TENSORS_SAFE, TENSORS_TORCH, TENSORS_GGUF };

/* One of the three has the names, and what hangs on the tensors; these move to the common list. */
struct tensors_file {
    char *path;
    int fd;
    enum tensors_kind kind;
    struct zinf_safetensors header;
    struct zinf_torch_file torch;
    struct zinf_gguf_file gguf;
};
struct zinf_deepspeed_table;

struct zinf_tensors {
    struct tensors_file *files;
    uint32_t n_files;
    struct zinf_tensor_info *list; /* by file, then by place in it */
    uint64_t count;
    const struct zinf_tensor_info **by_name;
    char **names; /* [n_names]: those that an index gives to tensors of several files */
    uint64_t n_names;
    struct zinf_deepspeed_table *deepspeed; /* what the tensors of such a checkpoint stand on */
    struct tensors_sum *sums;               /* [count]; NULL: what is read is not summed */
};

/* tensors_sum.c: elements [first, first + n) were read; and what that takes. */
void tensors_sum_note(const struct zinf_tensors *tensors, const struct zinf_tensor_info *info,
                      uint64_t first, uint64_t n, const void *data);
bool tensors_sum_of(const struct zinf_tensors *tensors, uint64_t index, uint64_t *sum);
void tensors_sum_free(struct zinf_tensors *tensors);

/* Of pointers to zinf_tensor_info, for qsort and bsearch. */
int tensors_compare_names(const void *a, const void *b);

#endif
