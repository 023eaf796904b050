/*
 * pickle: the data.pkl of a file of torch.save, read as data. Internal to formats.
 *
 * A pickle is a program for a stack machine that may name any function of Python and call it. Here
 * nothing is ever called: the machine knows the opcodes of protocol 2 that torch.save writes, and
 * of names those that make up tensors, storages, dictionaries and what DeepSpeed saves beside them
 * (pickle_torch.c). Whatever else is named is refused by its name, whether or not it would be
 * called.
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
struct zinf_pickle;
/* Texts borrow from data, and what, which names it in messages, from the caller. -EINVAL: the
 * pickle is damaged; -ENOTSUP: it names what nothing here needs. */
int zinf_pickle_create(struct zinf_pickle **out, const char *what, const void *data,
                       uint64_t bytes);
void zinf_pickle_destroy(struct zinf_pickle *pickle); /* NULL is allowed */
/* Of a dictionary from names to tensors: these in its order, on the heap. -EINVAL: it is something
 * else. */
int zinf_pickle_list_tensors(const struct zinf_pickle *pickle, struct zinf_pickled_tensor **tensors,
                             uint64_t *n);

/* ---- its values, each a number; 0: there is none ---- */

typedef uint32_t zinf_pickled;
zinf_pickled zinf_pickle_root(const struct zinf_pickle *pickle);
/* Of a dictionary or of an object's attributes; 0, too, if the value is neither. One pass. */
zinf_pickled zinf_pickle_get(const struct zinf_pickle *pickle, zinf_pickled of, const char *key);
/* The same where the keys are numbers. */
zinf_pickled zinf_pickle_get_number(const struct zinf_pickle *pickle, zinf_pickled of, int64_t key);
/* The parts of a dictionary, a list or an object, one by one: at begins as {0}. */
struct zinf_pickled_part {
    zinf_pickled key, value;
    uint32_t next; /* of the walk */
    bool begun;
};
bool zinf_pickle_walk(const struct zinf_pickle *pickle, zinf_pickled of,
                      struct zinf_pickled_part *at);
/* Each false if the value is of another kind. A shape is a tuple of sizes; its rank or -1. */
bool zinf_pickle_integer(const struct zinf_pickle *pickle, zinf_pickled value, int64_t *out);
bool zinf_pickle_text(const struct zinf_pickle *pickle, zinf_pickled value,
                      struct zinf_pickled_text *out);
int zinf_pickle_shape(const struct zinf_pickle *pickle, zinf_pickled value,
                      uint64_t shape[ZINF_TENSOR_MAX_RANK]);
const struct zinf_pickled_tensor *zinf_pickle_tensor(const struct zinf_pickle *pickle,
                                                     zinf_pickled value); /* NULL: none */

#endif
