/*
 * pickle: reads the data.pkl of a file of torch.save as data. Internal to formats.
 *
 * A pickle is a program for a stack machine that may name and call any function of Python. Here
 * nothing is called. The machine knows the opcodes of protocol 2 that torch.save writes, and the
 * names that make up tensors, storages, dictionaries and what DeepSpeed saves beside them
 * (pickle_torch.c). Every other name is refused, even if it is not called.
 *
 * Memory is bounded by the pickle's length, and the work is one pass. Values are never walked
 * recursively, so neither nesting nor values that are shared many times cost anything.
 */
#ifndef ZINF_PICKLE_H
#define ZINF_PICKLE_H

#include "formats/formats.h"

#define ZINF_PICKLE_MAX_BYTES (64u << 20) /* a tensor takes about 200 bytes */

/* A text in the pickle. It need not end with NUL, nor be UTF-8 or printable. */
struct zinf_pickled_text {
    const char *at;
    uint32_t bytes;
};
/* A tensor as the pickle describes it: elements first + sum of index * stride of a storage of
 * storage_elems elements. These numbers are not checked. */
struct zinf_pickled_tensor {
    struct zinf_pickled_text name, key; /* key: the storage's name in the archive */
    enum zinf_file_dtype dtype;
    uint64_t storage_bytes; /* from the storage's number and type of elements */
    uint64_t first;
    int rank;
    uint64_t shape[ZINF_TENSOR_MAX_RANK], stride[ZINF_TENSOR_MAX_RANK];
};
struct zinf_pickle;
/* Reads a pickle. Texts point into data, which must stay; what names it in messages. -EINVAL: the
 * pickle is damaged; -ENOTSUP: it has a name that is not known. */
int zinf_pickle_create(struct zinf_pickle **out, const char *what, const void *data,
                       uint64_t bytes);
void zinf_pickle_destroy(struct zinf_pickle *pickle); /* NULL is allowed */
/* Lists the tensors of a dictionary from names to tensors, in its order; the caller frees the list.
 * -EINVAL: the pickle is something else. */
int zinf_pickle_list_tensors(const struct zinf_pickle *pickle, struct zinf_pickled_tensor **tensors,
                             uint64_t *n);

/* ---- values of the pickle, by number; 0: none ---- */

typedef uint32_t zinf_pickled;
zinf_pickled zinf_pickle_root(const struct zinf_pickle *pickle);
/* The value of a key in a dictionary or of an attribute of an object, or 0. Takes time proportional
 * to its size. */
zinf_pickled zinf_pickle_get(const struct zinf_pickle *pickle, zinf_pickled of, const char *key);
/* The same for keys that are numbers. */
zinf_pickled zinf_pickle_get_number(const struct zinf_pickle *pickle, zinf_pickled of, int64_t key);
/* Visits the parts of a dictionary, list or object. Begin with {0}. */
struct zinf_pickled_part {
    zinf_pickled key, value;
    uint32_t next; /* position of the visit */
    bool begun;
};
bool zinf_pickle_walk(const struct zinf_pickle *pickle, zinf_pickled of,
                      struct zinf_pickled_part *at);
/* False: the value is of another kind. A shape is a tuple of sizes; zinf_pickle_shape returns its
 * rank, or -1. */
bool zinf_pickle_integer(const struct zinf_pickle *pickle, zinf_pickled value, int64_t *out);
bool zinf_pickle_text(const struct zinf_pickle *pickle, zinf_pickled value,
                      struct zinf_pickled_text *out);
int zinf_pickle_shape(const struct zinf_pickle *pickle, zinf_pickled value,
                      uint64_t shape[ZINF_TENSOR_MAX_RANK]);
const struct zinf_pickled_tensor *zinf_pickle_tensor(const struct zinf_pickle *pickle,
                                                     /* NULL: it is no tensor */
                                                     zinf_pickled value);

#endif
