/*
 * mutants: what faults are planted into: operations of the device in small shapes, between arrays
 * of random numbers and one that all results go to. For mutations_test.c.
 */
#ifndef PTX_MUTANTS_H
#define PTX_MUTANTS_H

#include "tests/cuda_standin/standin.h"
#include "cpu_optim/pack.h"
#include "cuda_twin.h"

#include "ptx.h"

#include <dlfcn.h>

static struct {
    void (*start)(const void *options);
    void (*mutate)(const char *word, enum ptx_mutation mutation, int nth);
    int (*mutated)(void), (*places)(void);
    int (*faults)(void);
    void (*counts)(const char *word, struct ptx_counts *counts);
    bool (*use)(int n, struct ptx_use *use);
} gpu;

static bool find_gpu(void)
{
    void *library = dlopen("libcudart.so." CUDA_MAJOR_TEXT, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return false;
    *(void **)&gpu.start = dlsym(library, "standin_start");
    *(void **)&gpu.mutate = dlsym(library, "ptx_mutate");
    *(void **)&gpu.mutated = dlsym(library, "ptx_mutated");
    *(void **)&gpu.places = dlsym(library, "ptx_mutation_places");
    *(void **)&gpu.faults = dlsym(library, "standin_faults");
    *(void **)&gpu.counts = dlsym(library, "ptx_counts");
    *(void **)&gpu.use = dlsym(library, "ptx_use");
    return gpu.start && gpu.mutate && gpu.mutated && gpu.places && gpu.faults && gpu.counts &&
           gpu.use;
}

/* ---- a GPU with some arrays ---- */

enum { ARENA = 4 << 20, WORKSPACE = 10 << 20, IN = 64 << 10, N_IN = 12, OUT = 256 << 10 };

struct setup {
    struct zinf_device *device;
    const struct zinf_device_ops *ops;
    struct zinf_queue *q;
    char *in[N_IN]; /* normal numbers; [10] ids, [11] squares */
    char *out;      /* begins as zeros */
    char *free;     /* of out */
    enum zinf_dtype dtype;
};

/* What array k begins with, the same in every case; made once, since there are thousands. */
static const void *beginning(int k, enum zinf_dtype dtype)
{
    static struct tensor made[N_IN][3];
    const int type = dtype == ZINF_DTYPE_F32 ? 0 : dtype == ZINF_DTYPE_BF16 ? 1 : 2;
    struct tensor *t = &made[k][type];
    const size_t n = IN / zinf_dtype_bytes(dtype);
    if (t->data)
        return t->data;
    *t = tensor_random(dtype, n, (uint64_t)k + 1, 1.0f);
    for (size_t i = 0; k == 10 && i < n; i++)
        ((int32_t *)t->data)[i] = (int32_t)(i * 7 % 20) - 1;
    for (size_t i = 0; k == 11 && i < n; i++)
        ((float *)t->data)[i] *= ((float *)t->data)[i];
    return t->data;
}

static void fill(struct setup *s)
{
    for (int k = 0; k < N_IN; k++) {
        s->in[k] = (char *)s->device->memory + k * IN;
        s->ops->copy_to_device(s->q, s->in[k], beginning(k, k < 6 ? s->dtype : ZINF_DTYPE_F32), IN);
    }
    s->out = s->free = (char *)s->device->memory + N_IN * IN;
    s->ops->fill_zero(s->q, s->out, OUT);
}

static void open_setup(struct setup *s, enum zinf_dtype dtype)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA};
    /* the first capability that multiplies floats of 8 bits */
    static const struct standin_options ada = {.capability = 89};
    memset(s, 0, sizeof *s);
    gpu.start(&ada);
    s->dtype = dtype;
    CHECKF(!zinf_device_create(&s->device, &options), "%s", zinf_error());
    s->ops = s->device->ops;
    CHECKF(!zinf_device_take_memory(s->device, ARENA + WORKSPACE), "%s", zinf_error());
    CHECK(!s->ops->queue_create(s->device, ZINF_QUEUE_COMPUTE, &s->q));
    s->ops->queue_set_workspace(s->q, (char *)s->device->memory + ARENA, WORKSPACE);
    fill(s);
}

static void close_setup(struct setup *s)
{
    s->ops->queue_destroy(s->q);
    zinf_device_destroy(s->device);
}

/* A part of out, for so many elements. */
static void *take(struct setup *s, size_t n, enum zinf_dtype dtype)
{
    char *part = s->free;
    s->free += zinf_align_up(n * zinf_dtype_bytes(dtype), 16) + 16;
    return part;
}

/* Numbers of the CPU's on the GPU. */
static const int32_t *take_numbers(struct setup *s, const int32_t *numbers, size_t n)
{
    void *to = take(s, n, ZINF_DTYPE_F32); /* 4 bytes each */
    CHECKF(!s->ops->copy_to_device(s->q, to, numbers, n * sizeof *numbers), "%s", zinf_error());
    return to;
}

/* A case: operations whose results, all of them in out, are compared. */
typedef int run_case(struct setup *s);
struct mutant_case {
    const char *kernel;
    run_case *run;
    enum zinf_dtype dtype;
    /* It guards shared memory that is used a second time: there is nothing to guard at first. */
    bool first_barrier_is_spare;
};

#endif
