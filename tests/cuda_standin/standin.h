/*
 * standin: a GPU for tests, on the CPU. It serves the calls of kernels/cuda/runtime.h and tries to
 * break its user: nothing that is enqueued runs until something waits; then work that may run does
 * so in a seeded random order. Device memory begins as NaN, cannot be touched by the host, and has
 * a hard cap. A copy that would be asynchronous must lie in registered host memory. Kernels run
 * as fibers (simt.h), products as loops (product.c). Under the thread sanitizer it has a second
 * way, which finds what is missing even where the order happens to be right (at_once).
 *
 * Threads: any, one at a time: every call takes the one lock. A thread that waits for an event may
 * be made to dawdle before, so that other threads enqueue more and there is more to choose from.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { STANDIN_MOST_GPUS = 8, STANDIN_OLDEST = 75 }; /* capability that kernels have code for */

struct standin_options {
    uint64_t seed;
    size_t memory_bytes;      /* that a GPU has; 0: 256 MiB */
    size_t context_bytes;     /* of them, what the driver has taken before anybody asks */
    int capability;           /* 80 = 8.0; 0: 80 */
    int gpus;                 /* 0: 1 */
    bool no_peers;            /* none sees another's memory; else copies do, once that is opened */
    bool old_driver;          /* the first call says so */
    bool no_pinning;          /* cudaHostRegister is refused */
    size_t pin_call, pin_all; /* most bytes that it takes at once, and together; 0: any */
    bool no_epilogues;        /* cuBLASLt finds no algorithm for a product with a bias */
    bool no_algorithms;       /* nor for any other */
    bool adds_first;          /* a product with beta begins its sum with C */
    int algorithms;           /* that it has for a product, each with bits of its own; 0: 1 */
    uint64_t speeds;          /* seed of how fast each of them is, on each GPU */
    uint64_t blas_version;    /* 0: 130000 */
    unsigned dawdle_us;       /* before a wait for an event, and where there are several processes
                               * before a step of a collective, at most */
    bool at_once;      /* under the thread sanitizer: nothing runs late, and what no event orders
                        * is reported as a race (order.h) */
    int nccl_version;  /* 0: 22800 */
    bool processes;    /* ranks of a communicator may be in several: GPUs' memory is shared */
    const char *skips; /* "a,b": kernels whose names have one of the words do nothing; or NULL */
    const char *traps; /* likewise: kernels that end all work on the GPU, as at a wrong address */
    unsigned patience_ms; /* for other threads, where a wait needs their part of a collective; 0:
                           * 10000 */
};
/* Begins anew: what was left is dropped, counters are zero. */
void standin_start(const struct standin_options *options);
/* The so-manieth cudaStreamWaitEvent from now on (from 1) is forgotten; 0: none. */
void standin_skip_wait(int number);
void standin_skip_waits(int first, int count); /* the same for count of them from the first-th on */
/* The so-manieth launch of a kernel, or wait for an event, from now on fails and, as on a GPU, all
 * that come after it; 0: none. */
void standin_fail(int launch, int wait);
void standin_forgive(void); /* forgets faults that a test provoked */
int standin_waits(void);    /* cudaStreamWaitEvent calls so far */
int standin_faults(void);   /* misuse seen so far; the first is printed as a TAP comment */
const char *standin_first_fault(void); /* "": none */
int standin_live(void);         /* objects not destroyed: streams, events, memory, descriptors */
uint64_t standin_kernels(void); /* kernels run so far */
int standin_loaded(int gpu);    /* kernels whose code is on the GPU */
/* Products that cublasLtMatmul has been asked for so far: each operand once, C twice where it is
 * added to. */
struct standin_products {
    uint64_t launches, read_bytes, written_bytes;
    uint64_t questions;  /* for algorithms */
    double milliseconds; /* that those which have run took, by the speeds of their algorithms */
    uint64_t odd; /* of 1 GFLOP and more on 16 bits, whose rows are no multiple of 16 bytes */
};
void standin_products(struct standin_products *out);

/* The so-manieth launch of collectives by the rank from now on (from 1; of any rank here: -1) never
 * comes to its end, or is an asynchronous error of the communicator, of this GPU's own or since
 * another is gone, or kills the process or stops it. At the beginning of a communicator, whatever
 * the launch: the rank is refused, or never comes to the others; at its end: an abort does not
 * return. 0: none. */
enum standin_nccl_trouble {
    STANDIN_NCCL_HANGS,
    STANDIN_NCCL_FAILS,
    STANDIN_NCCL_LOSES,
    STANDIN_NCCL_DIES,
    STANDIN_NCCL_STOPS,
    STANDIN_NCCL_REFUSES,
    STANDIN_NCCL_NEVER_COMES,
    STANDIN_NCCL_STICKS,
};
void standin_nccl_fail(int rank, int launch, enum standin_nccl_trouble trouble);

/* ---- between the files ---- */

/* First in every call of the user's: the lock until the end of the block; a call may be in a call.
 */
#define STANDIN_CALL                                                                               \
    int standin_call_ __attribute__((cleanup(standin_unlock), unused)) = standin_lock()
int standin_lock(void);
void standin_unlock(const int *unused);

/* Reports misuse; returns error, which becomes the last one. */
cudaError_t standin_fault(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
cudaError_t standin_set_error(cudaError_t error);
/* The same for what a GPU does not get over: all that comes after it fails too. */
cudaError_t standin_break(const char *format, ...) __attribute__((format(printf, 1, 2)));
const struct standin_options *standin_options(void);
int standin_gpu(void); /* the calling thread's */
int standin_capability(void);
/* Appends work to a stream; payload is copied. */
typedef void standin_work(void *payload);
cudaError_t standin_enqueue(cudaStream_t stream, standin_work *run, const void *payload,
                            size_t bytes);
/* Work that is done in steps, which other streams' steps may have to precede: a rank's part of a
 * collective. subject is the caller's until the last step. */
struct order_stream;
struct standin_steps {
    bool (*can)(void *subject);                              /* a step can be made now */
    bool (*step)(void *subject, struct order_stream *order); /* true: it was the last */
};
cudaError_t standin_enqueue_steps(cudaStream_t stream, const struct standin_steps *steps,
                                  void *subject);
/* The lock is open for a moment, if this thread holds it once; false: nothing came of it for so
 * long that nothing will. Begins with *since 0. */
bool standin_await_others(uint64_t *since);
/* Nothing can run: whether parts of collectives wait for each other; else whether one waits for a
 * part that is still to come. */
bool standin_nccl_is_deadlock(void);
bool standin_nccl_waits(void);
/* A copy that is run: must not touch what a collective is at. */
void standin_nccl_check(const void *to, const void *from, size_t bytes);
void standin_nccl_reset(void);
/* NCCL from 2.28 on destroys a communicator that does not block after the call has returned: until
 * somebody waits for the GPU, what goes of it is a fault. */
void standin_nccl_waited(int gpu);
void standin_nccl_check_ended(int gpu, const char *what);
void standin_run_all(void);
/* A kernel's code that is not on the GPU yet is loaded at its first launch, which on a GPU waits
 * for what runs there: a fault here. */
cudaError_t standin_check_loaded(const void *kernel, const char *name);
bool standin_skips(const char *kernel);
/* Whether the kernel is one that ends all work, which the next wait then says. */
bool standin_traps(const char *kernel);
uint32_t standin_random(uint32_t below);
void standin_count_live(int change);
void standin_count_question(void);
/* So many milliseconds of a product have passed; what an event's time is counted in. */
void standin_pass(double milliseconds);
double standin_now(void);
void standin_count_product(uint64_t read_bytes, uint64_t written_bytes, bool odd);
size_t standin_shared_limit(void); /* bytes of shared memory a block may have */
/* Where another process finds device memory of this one, and how far into it; false: it is none
 * that others see. */
struct shared_place;
bool standin_place_of(const void *base, size_t bytes, struct shared_place *place, size_t *offset);
/* Whether all of it is device memory, or registered host memory. */
bool standin_on_device(const void *base, size_t bytes);
bool standin_on_gpu(int gpu, const void *base, size_t bytes);
void standin_peers_reset(void); /* nobody has opened any */
bool standin_registered(const void *base, size_t bytes);
/* What happens to device memory, for who keeps a record of it (tests/ptx). */
struct standin_watch {
    void (*allocated)(void *base, size_t bytes);
    void (*freed)(void *base);
    void (*written)(const void *base, size_t bytes);
    void (*copied)(const void *to, const void *from, size_t bytes);
    bool (*known)(const void *base, size_t bytes); /* whether all of it was written */
};
extern const struct standin_watch *standin_watch; /* NULL: nobody */
/* Device memory can be touched only between these. */
void standin_memory_open(void);
void standin_memory_close(void);
void standin_queues_reset(void);
void standin_memory_reset(const struct standin_options *options);
void standin_blocks_ran(uint64_t kernels);
bool standin_launch_fails(void);
bool standin_wait_fails(void);
bool standin_is_broken(void); /* nothing runs any more */

#ifdef __cplusplus
}
#endif
#endif
