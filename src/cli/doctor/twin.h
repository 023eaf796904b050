/*
 * twin: the host device and the CUDA device side by side. A *pair* is one array on both: an
 * operation is given the host's pointers, then the GPU's, and what both have written is compared.
 * A *case* (cases.h) is an operation with one shape: it begins with twin_case, makes its pairs, and
 * its pairs are gone when the next case begins. `zinf doctor` runs some shapes of each case, tests
 * run many.
 *
 * Errors and differences go to fail() with a sentence that names operation, shape and array; a case
 * goes on after them. One thread.
 */
#ifndef ZINF_CLI_TWIN_H
#define ZINF_CLI_TWIN_H

#include "cli/doctor/tensor.h"
#include "kernels/kernels.h"

enum { SIDE_HOST, SIDE_CUDA, SIDES };

struct twin {
    struct zinf_device *host, *cuda;
    struct zinf_queue *host_q, *q;
    /* As large as the GPU's arena, whose offsets it has. Where that has the GPU's workspace, here
     * is what was downloaded. */
    char *host_memory;
    void *workspace; /* the host's */
    uint64_t workspace_bytes, used, downloaded;
    char *staging; /* page-locked */
    uint64_t staging_bytes;
    int n_transfers;
    char what[160]; /* operation, type and shape of the case */
    double worst;   /* the largest share of its bound that an element took; for the user to reset */
    bool refused;   /* an operation of the case failed, and nothing is compared */
    /* A kernel has ended all work on the GPU, which CUDA says of everything from then on: only the
     * first failure is reported, and cases compare nothing. */
    bool ended;
    int n_cases;
    void (*fail)(struct twin *t, const char *text);
    void *context; /* of fail */
};

/* For a twin of zeros. Takes an arena of the device, a multiple of 4096 bytes; the device is the
 * twin's from here on. -errno with a message. */
int twin_open(struct twin *t, struct zinf_device *cuda, uint64_t arena_bytes);
/* Also after a failure of twin_open. */
void twin_close(struct twin *t);

/* Begins a case: gives it a name, and all memory back. */
void twin_case(struct twin *t, const char *operation, const char *shape, ...) ZINF_PRINTF(3, 4);
/* Reports a failure of the case: of an operation on a side, or of what else it looks at. */
void twin_refused(struct twin *t, int side);
void twin_fail(struct twin *t, const char *format, ...) ZINF_PRINTF(2, 3);
#define TWIN_CHECK(t, condition)                                                                   \
    do {                                                                                           \
        if (!(condition))                                                                          \
            twin_fail(t, "%s", #condition);                                                        \
    } while (0)

/* ---- pairs ---- */

struct pair {
    struct tensor host;
    void *device;
};

/* Zeros, or random normal numbers, on both sides; shift elements off alignment on the GPU. */
struct pair pair_new(struct twin *t, enum zinf_dtype dtype, size_t n, size_t shift);
struct pair pair_random(struct twin *t, enum zinf_dtype dtype, size_t n, uint64_t seed, float std);
struct pair pair_shifted(struct twin *t, size_t shift, enum zinf_dtype dtype, size_t n,
                         uint64_t seed, float std);
/* 4-byte integers. */
struct pair pair_numbers(struct twin *t, const int32_t *numbers, size_t n);
/* Gives the GPU what the host's side has now. */
void pair_upload(struct twin *t, const struct pair *p);
/* What the GPU has now; in memory of the case. */
struct tensor pair_download(struct twin *t, const struct pair *p);

/* Both ways in turn: through page-locked memory, or from where the data lies. */
void twin_transfer(struct twin *t, void *device, void *host, uint64_t bytes, bool to_device);

static inline void *at(const struct pair *p, int side)
{
    return side == SIDE_HOST ? p->host.data : p->device;
}

/* Every element of the GPU's is the host's within absolute + relative * |that|. Equal values are
 * right, infinities and NaN too. */
void pair_check(struct twin *t, const char *name, const struct pair *p, double absolute,
                double relative);
#define PAIR_CHECK(t, p, absolute, relative) pair_check(t, #p, p, absolute, relative)

/* Both devices' entries with the same arguments but for their pointers: expression uses ops, q and
 * side. */
#define ON_BOTH(t, expression)                                                                     \
    for (int side = 0; side < SIDES; side++) {                                                     \
        __attribute__((unused)) const struct zinf_device_ops *ops =                                \
            side ? (t)->cuda->ops : (t)->host->ops;                                                \
        __attribute__((unused)) struct zinf_queue *q = side ? (t)->q : (t)->host_q;                \
        if (expression)                                                                            \
            twin_refused(t, side);                                                                 \
    }

#endif
