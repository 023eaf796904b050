/*
 * pickle_machine: what pickle.c (the opcodes) and pickle_torch.c (torch's names) share. All values
 * are kept in one array until the end and are referred to by index. Parts of values are in arrays
 * that all values share.
 */
#ifndef ZINF_PICKLE_MACHINE_H
#define ZINF_PICKLE_MACHINE_H

#include "formats/pickle.h"

enum value_kind {
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_TEXT,
    VALUE_TUPLE,
    VALUE_LIST,
    VALUE_DICT,
    VALUE_NAME, /* a known name of Python */
    VALUE_STORAGE,
    VALUE_TENSOR,
    VALUE_OBJECT, /* of a known class, of which only the attributes matter */
};
struct value {
    enum value_kind kind;
    union {
        int64_t integer; /* BOOL, INT */
        double number;   /* FLOAT */
        struct {
            uint32_t at, bytes;
        } text;
        struct {
            uint32_t first, n; /* range of items[] */
        } tuple;
        struct {
            uint32_t first, last; /* first and last index of pairs[]; 0: none */
        } dict;         /* DICT; LIST, whose pairs have no keys; OBJECT, for its attributes */
        uint32_t index; /* NAME: row of the names' table; STORAGE, TENSOR: index in their arrays */
    };
};
struct pair {
    uint32_t key, value, next; /* next: index in pairs[]; 0: none */
};
struct storage {
    struct zinf_pickled_text key;
    enum zinf_file_dtype dtype;
    uint64_t n_elems;
    bool untyped; /* elements are bytes; the tensor gives their type */
};
/* Grows by doubling. */
struct array {
    void *items;
    uint32_t n, capacity;
};

struct machine {
    const char *what;
    const uint8_t *data;
    uint64_t bytes, at;
    struct array values;             /* struct value */
    struct array items;              /* uint32_t: parts of tuples */
    struct array pairs;              /* struct pair; [0] is unused */
    struct array stack, memo, marks; /* uint32_t */
    struct array storages;           /* struct storage */
    struct array tensors;            /* struct zinf_pickled_tensor */
    bool stopped;
    uint32_t root; /* valid once the pickle has ended */
};

/* Appends a zeroed item of this size. NULL and *code: there is no room for more. */
void *machine_add(struct machine *m, struct array *array, size_t size, int *code);
int machine_add_number(struct machine *m, struct array *array, uint32_t number);
/* Adds a value and pushes it on the stack. */
int machine_push(struct machine *m, struct value value);
struct value *machine_value(const struct machine *m, uint32_t number);
/* Part i of a tuple. */
const struct value *machine_part(const struct machine *m, const struct value *tuple, uint32_t i);
int machine_fail(const struct machine *m, const char *how);
/* The value `below` places under the top of the stack, which must have that many and one more. */
uint32_t machine_top(const struct machine *m, uint32_t below);
/* -EINVAL: fewer than n values lie above the last mark. */
int machine_need(const struct machine *m, uint32_t n);
/* Removes the last mark and counts the values above it. */
int machine_pop_mark(struct machine *m, uint32_t *n);

/* ---- pickle_ops.c ---- */

/* Indexed by opcode; run NULL: refused. argument distinguishes opcodes that share a function. */
struct operation {
    int (*run)(struct machine *m, unsigned argument);
    unsigned argument;
};
extern const struct operation machine_operations[256];

/* ---- pickle_torch.c ---- */

/* The row of the table for "module" and "name" of a GLOBAL, or -ENOTSUP. */
int machine_find_name(const struct machine *m, const struct zinf_pickled_text *module,
                      const struct zinf_pickled_text *name);
/* Pushes the result that calling the name would have. */
int machine_call(struct machine *m, uint32_t name, const struct value *arguments);
/* Pushes the storage for ('storage', type, key, location, elements). */
int machine_take_storage(struct machine *m, const struct value *id);
/* A text of the file made fit for a message: cut, without control characters. */
const char *machine_printable(const struct zinf_pickled_text *text, char *buffer, size_t bytes);

#endif
