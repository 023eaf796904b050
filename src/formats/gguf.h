/*
 * gguf: reads files of llama.cpp. A header has keys with values and a table of tensors. It is
 * untrusted: every length and count is compared with the rest of the file before memory is
 * allocated, and keys are limited in number and bytes. Numbers stay in the file and are unpacked
 * when they are read.
 */
#ifndef ZINF_FORMATS_GGUF_H
#define ZINF_FORMATS_GGUF_H

#include "base/json.h"
#include "formats/tensors_view.h"

/* gguf_pack_k.c: packs 256 numbers into 144 and 210 bytes. */
void gguf_pack_q4_k(const float *x, uint8_t *out);
void gguf_pack_q6_k(const float *x, uint8_t *out);

/* The order of stored elements, compared with the model's tensor. */
enum zinf_gguf_order {
    ZINF_GGUF_PLAIN,
    ZINF_GGUF_PAIRS,  /* rows i and i + head_rows / 2 of a head are neighbours */
    ZINF_GGUF_TURNED, /* a matrix, transposed */
    ZINF_GGUF_DEEP,   /* a matrix that is [out][1][in] in the model */
};
struct zinf_gguf_tensor {
    char name[128];   /* the name in the file */
    char *model_name; /* by an index; NULL: none */
    enum zinf_gguf_form form;
    enum zinf_gguf_order order;
    float add; /* added to each number */
    uint64_t head_rows;
    int rank;
    uint64_t shape[ZINF_TENSOR_MAX_RANK]; /* as stored; the last dimension is that of a row */
    uint64_t n_elems, file_offset;
    struct zinf_tensor_view view; /* marks the tensor as packed */
};
struct zinf_gguf_file {
    cJSON *keys; /* each key's value is a number, a bool, a text, or an array of these */
    struct zinf_gguf_tensor *packed; /* [n_tensors] */
    struct zinf_tensor_info *tensors;
    uint64_t n_tensors;
};

/* Reads the header. Call zinf_gguf_file_fini on *out even after a failure. -ENOTSUP: the type of a
 * tensor is not known; the message names it. */
int zinf_gguf_file_init(struct zinf_gguf_file *out, const char *path, int fd, uint64_t file_bytes);
void zinf_gguf_file_fini(struct zinf_gguf_file *file);
/* Gives the tensors the names and orders of an index, and sets *count to the number of tensors that
 * it names. */
int zinf_gguf_apply_index(const struct zinf_gguf_file *file, const cJSON *index, const char *path,
                          struct zinf_tensor_info *list, uint64_t *count);
/* Reads elements [first, first + n) of the model's tensor. */
int zinf_gguf_tensor_read(int fd, const char *path, const struct zinf_gguf_tensor *tensor,
                          uint64_t first, uint64_t n, float *out);

#endif
