/*
 * gguf: reading files of llama.cpp's. A header has keys with values and a table of tensors; it is
 * untrusted: every length and count is checked against what the file still has before memory is
 * taken for it, and keys are bounded in number and bytes. Numbers stay in the file and are unpacked
 * as they are read.
 */
#ifndef ZINF_FORMATS_GGUF_H
#define ZINF_FORMATS_GGUF_H

#include "base/json.h"
#include "formats/tensors_view.h"

/* gguf_pack_k.c: 256 numbers into 144 and 210 bytes. */
void gguf_pack_q4_k(const float *x, uint8_t *out);
void gguf_pack_q6_k(const float *x, uint8_t *out);

/* How the stored elements lie, as the model's tensor sees them. */
enum zinf_gguf_order {
    ZINF_GGUF_PLAIN,
    ZINF_GGUF_PAIRS,  /* row i and row i + head_rows / 2 of a head follow each other */
    ZINF_GGUF_TURNED, /* a matrix, transposed */
    ZINF_GGUF_DEEP,   /* a matrix, [out][1][in] to the model */
};
struct zinf_gguf_tensor {
    char name[128];   /* theirs */
    char *model_name; /* from the index, or NULL */
    enum zinf_gguf_form form;
    enum zinf_gguf_order order;
    float add; /* to each number */
    uint64_t head_rows;
    int rank;
    uint64_t shape[ZINF_TENSOR_MAX_RANK]; /* as stored; the last is that of a row */
    uint64_t n_elems, file_offset;
    struct zinf_tensor_view view; /* says that it is packed */
};
struct zinf_gguf_file {
    cJSON *keys;                     /* a number, bool, text, or an array of these per key */
    struct zinf_gguf_tensor *packed; /* [n_tensors] */
    struct zinf_tensor_info *tensors;
    uint64_t n_tensors;
};

/* out is for zinf_gguf_file_fini, also after a failure. Types of tensors that are not known are
 * -ENOTSUP, by name. */
int zinf_gguf_file_init(struct zinf_gguf_file *out, const char *path, int fd, uint64_t file_bytes);
void zinf_gguf_file_fini(struct zinf_gguf_file *file);
/* Gives the list, whose tensors are those of packed, the names and orders of an index; *count
 * becomes the number of those that it names. */
int zinf_gguf_apply_index(const struct zinf_gguf_file *file, const cJSON *index, const char *path,
                          struct zinf_tensor_info *list, uint64_t *count);
/* Elements [first, first + n) of the model's tensor. */
int zinf_gguf_tensor_read(int fd, const char *path, const struct zinf_gguf_tensor *tensor,
                          uint64_t first, uint64_t n, float *out);

#endif
