/*
 * pickle_machine: what pickle.c, the opcodes, and pickle_torch.c, what torch's names make of their
 * arguments, share. Values live in one array until the end and are spoken of by their number;
 * whatever has parts has them in arrays of all such parts.
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
    VALUE_NAME, /* a name of Python that is known */
    VALUE_STORAGE,
    VALUE_TENSOR,
    VALUE_OBJECT, /* of a class that is known and means nothing here but by its attributes */
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
            uint32_t first, n; /* of items[] */
        } tuple;
        struct {
            uint32_t first, last; /* of pairs[]; 0: none */
        } dict;                   /* DICT; LIST, whose pairs have no keys; OBJECT: its attributes */
        uint32_t index;           /* NAME: of its table; STORAGE, TENSOR: of their arrays */
    };
};
struct pair {
    uint32_t key, value, next; /* next: of pairs[]; 0: none */
};
struct storage {
    struct zinf_pickled_text key;
    enum zinf_file_dtype dtype;
    uint64_t n_elems;
    bool untyped; /* elements are bytes; what they make up is said with the tensor */
};
/* Grows by doubling; items is realloc'ed. */
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
    struct array pairs;              /* struct pair; [0] is none */
    struct array stack, memo, marks; /* uint32_t */
    struct array storages;           /* struct storage */
    struct array tensors;            /* struct zinf_pickled_tensor */
    bool stopped;
    uint32_t root; /* once it has stopped */
};

/* Room for one more item of this size, zeroed; NULL and *code: there may be no more. */
void *machine_add(struct machine *m, struct array *array, size_t size, int *code);
int machine_add_number(struct machine *m, struct array *array, uint32_t number);
/* Makes a value and puts it on the stack. */
int machine_push(struct machine *m, struct value value);
struct value *machine_value(const struct machine *m, uint32_t number);
/* Part i of a tuple. */
const struct value *machine_part(const struct machine *m, const struct value *tuple, uint32_t i);
int machine_fail(const struct machine *m, const char *how);
/* The value so far below the top; needs that many and one more. */
uint32_t machine_top(const struct machine *m, uint32_t below);
/* -EINVAL: fewer than n values are above the last mark. What lies below belongs to whoever set it.
 */
int machine_need(const struct machine *m, uint32_t n);
/* How many values are above the last mark, which goes. */
int machine_pop_mark(struct machine *m, uint32_t *n);

/* ---- pickle_ops.c ---- */

/* By opcode; run NULL: it is refused. argument: what tells opcodes of one function apart. */
struct operation {
    int (*run)(struct machine *m, unsigned argument);
    unsigned argument;
};
extern const struct operation machine_operations[256];

/* ---- pickle_torch.c ---- */

/* "module" and "name" of a GLOBAL: the row of the table that has it, or -ENOTSUP. */
int machine_find_name(const struct machine *m, const struct zinf_pickled_text *module,
                      const struct zinf_pickled_text *name);
/* What calling the name would give, put on the stack. */
int machine_call(struct machine *m, uint32_t name, const struct value *arguments);
/* ('storage', type, key, location, elements): the storage, put on the stack. */
int machine_take_storage(struct machine *m, const struct value *id);
/* Text of the file for a message: cut, and nothing in it that steers a terminal. */
const char *machine_printable(const struct zinf_pickled_text *text, char *buffer, size_t bytes);

#endif
