/*
 * tensors_reader: what tensors_open.c and tensors_reader.c share. Internal to formats.
 */
#ifndef ZINF_TENSORS_READER_H
#define ZINF_TENSORS_READER_H

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"

enum tensors_kind { TENSORS_SAFE, TENSORS_TORCH, TENSORS_GGUF };

/* An open file. Of its three kinds the one in use owns names and further data of its tensors, which
 * are moved to the common list. */
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
    struct zinf_tensor_info *list; /* by file, then by place */
    uint64_t count;
    const struct zinf_tensor_info **by_name;
    char **names; /* [n_names] names that an index gives to tensors */
    uint64_t n_names;
    struct zinf_deepspeed_table *deepspeed; /* pieces of the tensors of a DeepSpeed checkpoint */
    struct tensors_sum *sums; /* [count] state of zinf_tensors_sum; NULL: not in use */
};

/* tensors_sum.c: notes that elements [first, first + n) were read; and gives a tensor's sum, false
 * if it was not read in order. */
void tensors_sum_note(const struct zinf_tensors *tensors, const struct zinf_tensor_info *info,
                      uint64_t first, uint64_t n, const void *data);
bool tensors_sum_of(const struct zinf_tensors *tensors, uint64_t index, uint64_t *sum);
void tensors_sum_free(struct zinf_tensors *tensors);

/* Compares pointers to zinf_tensor_info by name, for qsort and bsearch. */
int tensors_compare_names(const void *a, const void *b);

#endif
