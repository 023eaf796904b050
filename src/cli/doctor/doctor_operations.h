/*
 * doctor_operations: the operations of a device's table on small shapes, for doctor_kernels.c,
 * which runs each on two devices. An operation reads in[], takes memory for what it writes by
 * doctor_result(), and so says what is to be compared.
 */
#ifndef ZINF_CLI_DOCTOR_OPERATIONS_H
#define ZINF_CLI_DOCTOR_OPERATIONS_H

#include "kernels/kernels.h"

/* Inputs: normal numbers, 0 to 3 in dtype, 4 and 5 in fp32; ids below 20. */
enum { DOCTOR_INPUTS = 7, DOCTOR_IDS = 6, DOCTOR_MOST_RESULTS = 16 };
#define DOCTOR_INPUT_BYTES ((uint64_t)64 << 10)
#define DOCTOR_OUTPUT_BYTES ((uint64_t)256 << 10)

/* What an operation wrote: the same on both devices. */
struct doctor_results {
    struct {
        uint64_t at, n; /* bytes from out */
        enum zinf_dtype dtype;
    } list[DOCTOR_MOST_RESULTS];
    int n;
};

/* One of the two devices. */
struct doctor_side {
    struct zinf_device *device;
    const struct zinf_device_ops *ops;
    struct zinf_queue *q;
    char *in[DOCTOR_INPUTS];
    char *out;                      /* zeros before an operation */
    uint64_t used;                  /* of out */
    struct doctor_results *results; /* to be listed in; NULL: not from this side */
    enum zinf_dtype dtype;
};

struct doctor_operation {
    const char *name;
    int (*run)(struct doctor_side *s); /* 0 or -errno with a message */
};
extern const struct doctor_operation doctor_operations[];
extern const int doctor_n_operations;

#endif
