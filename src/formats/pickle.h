/*
 * pickle: the data.pkl of a file of torch.save, read as data. Internal to formats.
 *
 * A pickle is a program for a stack machine that may name any function of Python and call it. Here
 * nothing is ever called: the machine knows the opcodes of protocol 2 that torch.save writes, and
 * of names those that make up tensors, storages and dictionaries (pickle_torch.c). Whatever else is
 * named is refused by its name, whether or not it would be called.
 *
 * Memory is bounded by the pickle's length, and its work is one pass: values are never walked
 * recursively, so neither nesting nor values that are shared a million times cost anything.
 */
#ifndef ZINF_PICKLE_H
#define ZINF_PICKLE_H

#include "formats/formats.h"

#define ZINF_PICKLE_MAX_BYTES (64u << 20) /* a tensor takes about 200 */

/* Text of the pickle: not ended by NUL, neither UTF-8 nor printable for certain. */
struct zinf_pickled_text {
    const char *at;
    uint32_t bytes;
};
/* A tensor as the pickle describes it: elements first + sum of index * stride of a storage of
 * storage_elems. None of these numbers has been checked against another or against a file. */
struct zinf_pickled_tensor {
    struct zinf_pickled_text name, key; /* key: the storage's name in the archive */
    enum zinf_file_dtype dtype;
    uint64_t storage_bytes; /* by the number and type of elements that the pickle gives it */
    uint64_t first;
    int rank;
    uint64_t shape[ZINF_TENSOR_MAX_RANK], stride[ZINF_TENSOR_MAX_RANK];
};
struct zinf_pickle {
    struct zinf_pickled_tensor *tensors; /* in the order of the dictionary */
    uint64_t n_tensors;
};
/* The tensors of a dictionary from names to tensors. Texts borrow from data; what names it in
 * messages. out is for zinf_pickle_fini after success only. -EINVAL: the pickle is damaged or holds
 * something else; -ENOTSUP: it names what no tensor needs. */
int zinf_pickle_read(struct zinf_pickle *out, const char *what, const void *data, uint64_t bytes);
void zinf_pickle_fini(struct zinf_pickle *pickle);

#endif
