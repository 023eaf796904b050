/*
 * cudart: the runtime's calls that concern kernels, as nvcc makes host code call them: registration
 * before main(), the configuration of a launch, the launch. What else a module calls is the
 * stand-in's, compiled with CUDA's own headers. Together they are a library that takes the place of
 * libcudart and libcublasLt for a compiled module, which runs unchanged.
 */
#include "code.h"
#include "fatbin.h"
#include "shadow.h"

#include "tests/cuda_standin/standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a fat binary has for one generation. */
struct program {
    int capability;
    char *text;
    struct ptx_module *module;
    struct program *next;
};

struct binary {
    const void *wrapper;
    struct program *programs;
    struct binary *next;
};

struct function {
    const void *host;
    char *name;
    struct binary *binary;
    size_t dynamic_most; /* that was asked for */
    struct function *next;
};

static struct binary *binaries;
static struct function *functions;
static const size_t SHARED_USUAL = 48 << 10;

/* ---- registration ---- */

void **__cudaRegisterFatBinary(void *wrapper);
void **__cudaRegisterFatBinary(void *wrapper)
{
    struct binary *b = calloc(1, sizeof *b);
    shadow_watch();
    b->wrapper = wrapper;
    b->next = binaries;
    binaries = b;
    return (void **)b;
}

void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle);
void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle; /* the process ends */
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int limit, void *tid, void *bid, void *block, void *grid, int *warp);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int limit, void *tid, void *bid, void *block, void *grid, int *warp)
{
    struct function *f = calloc(1, sizeof *f);
    (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    f->host = host;
    f->name = strdup(name);
    f->binary = (struct binary *)handle;
    f->next = functions;
    functions = f;
}

static struct function *find_function(const void *host)
{
    for (struct function *f = functions; f; f = f->next)
        if (f->host == host)
            return f;
    return NULL;
}

static struct ptx_kernel *kernel_of(const struct function *f)
{
    const int capability = standin_capability();
    struct program *p = f->binary->programs;
    while (p && p->capability != capability)
        p = p->next;
    if (!p) {
        size_t n = 0;
        p = calloc(1, sizeof *p);
        p->capability = capability;
        p->text = fatbin_ptx(f->binary->wrapper, capability, &n);
        p->module = p->text ? ptx_module_create(p->text, n) : NULL;
        p->next = f->binary->programs;
        f->binary->programs = p;
    }
    return p->module ? ptx_find(p->module, f->name) : NULL;
}

void ptx_counts(const char *word, struct ptx_counts *counts);
void ptx_add_counts(const struct ptx_module *module, const char *word, struct ptx_counts *counts);
void ptx_counts(const char *word, struct ptx_counts *counts)
{
    memset(counts, 0, sizeof *counts);
    for (struct binary *b = binaries; b; b = b->next)
        for (struct program *p = b->programs; p; p = p->next)
            if (p->module)
                ptx_add_counts(p->module, word, counts);
}

bool ptx_use(int n, struct ptx_use *use)
{
    const struct function *f = functions;
    while (f && n--)
        f = f->next;
    if (!f)
        return false;
    *use = (struct ptx_use){.name = f->name};
    for (const struct program *p = f->binary->programs; p; p = p->next) {
        const struct ptx_kernel *k = p->module ? ptx_find(p->module, f->name) : NULL;
        if (!k)
            continue;
        use->launches += k->counts.launches;
        ptx_add_counts(p->module, f->name, &use->counts);
        use->geometries += k->n_geometries;
        use->mutants += k->mutants;
    }
    return true;
}

static void record_line(FILE *file, const char *name, int geometries, const struct ptx_counts *c)
{
    const uint64_t all[] = {c->instructions, c->branches,   c->products,
                            c->barriers,     c->read_bytes, c->written_bytes};
    fprintf(file, "%s %llu %d", name, (unsigned long long)c->launches, geometries);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fprintf(file, " %llu", (unsigned long long)all[i]);
    fputc('\n', file);
}

__attribute__((destructor)) static void record(void)
{
    const char *path = getenv("ZINF_PTX_RECORD");
    FILE *file = path ? fopen(path, "a") : NULL;
    struct ptx_use use;
    for (int n = 0; file && ptx_use(n, &use); n++)
        record_line(file, use.name, use.geometries, &use.counts);
    struct standin_products made;
    standin_products(&made);
    const struct ptx_counts products = {.launches = made.launches,
                                        .read_bytes = made.read_bytes,
                                        .written_bytes = made.written_bytes};
    if (file)
        record_line(file, "cublasLtMatmul", 0, &products);
    if (file)
        fclose(file);
}

/* ---- launches ---- */

static _Thread_local struct {
    struct dim3 grid, block;
    size_t dynamic_bytes;
    void *stream;
} pending;

unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t dynamic_bytes,
                                     void *stream);
unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t dynamic_bytes,
                                     void *stream)
{
    pending.grid = grid;
    pending.block = block;
    pending.dynamic_bytes = dynamic_bytes;
    pending.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *dynamic_bytes,
                                       void *stream);
cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *dynamic_bytes,
                                       void *stream)
{
    *grid = pending.grid;
    *block = pending.block;
    *dynamic_bytes = pending.dynamic_bytes;
    *(void **)stream = pending.stream;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    STANDIN_CALL;
    struct function *f = find_function(function);
    struct ptx_kernel *kernel = f ? kernel_of(f) : NULL;
    struct ptx_shape shape;
    if (!kernel || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        !ptx_shape(kernel, &shape))
        return standin_set_error(cudaErrorInvalidValue);
    if ((size_t)value + shape.shared_bytes > standin_shared_limit())
        return standin_set_error(cudaErrorInvalidValue);
    f->dynamic_most = (size_t)value;
    return cudaSuccess;
}

struct launch {
    struct ptx_kernel *kernel;
    struct ptx_grid grid;
    char params[4096];
};

static void note_geometry(struct ptx_kernel *kernel, const struct ptx_grid *grid)
{
    const unsigned words[] = {grid->grid[0],  grid->grid[1],  grid->grid[2],      grid->block[0],
                              grid->block[1], grid->block[2], grid->dynamic_bytes};
    uint64_t hash = 1469598103934665603u; /* FNV-1a */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 1099511628211u;
    for (int k = 0; k < kernel->n_geometries; k++)
        if (kernel->geometries[k] == hash)
            return;
    if (kernel->n_geometries < PTX_MOST_GEOMETRIES)
        kernel->geometries[kernel->n_geometries++] = hash;
}

static void run_launch(void *payload)
{
    struct launch *l = payload;
    l->grid.params = l->params;
    note_geometry(l->kernel, &l->grid);
    if (!standin_is_broken())
        ptx_run(l->kernel, &l->grid);
    standin_blocks_ran(1);
}

static bool geometry_is_valid(const struct launch *l, const struct function *f,
                              const struct ptx_shape *shape)
{
    const unsigned *g = l->grid.grid, *b = l->grid.block;
    const size_t shared = l->grid.dynamic_bytes + shape->shared_bytes;
    return g[0] && g[0] <= INT32_MAX && g[1] && g[1] <= 65535 && g[2] && g[2] <= 65535 && b[0] &&
           b[1] && b[2] && b[2] <= 64 && (uint64_t)b[0] * b[1] * b[2] <= shape->most_threads &&
           (shared <= SHARED_USUAL ||
            (l->grid.dynamic_bytes <= f->dynamic_most && shared <= standin_shared_limit()));
}

cudaError_t cudaLaunchKernel(const void *function, struct dim3 grid, struct dim3 block, void **args,
                             size_t dynamic_bytes, cudaStream_t stream)
{
    STANDIN_CALL;
    struct function *f = find_function(function);
    struct ptx_kernel *kernel = f ? kernel_of(f) : NULL;
    struct ptx_shape shape;
    static struct launch l; /* under the lock */
    if (standin_launch_fails())
        return standin_set_error(cudaErrorIllegalAddress);
    if (!kernel)
        return standin_fault(cudaErrorInvalidDeviceFunction, "no code of %s for sm_%d",
                             f ? f->name : "a function", standin_capability());
    if (standin_check_loaded(function, f->name) != cudaSuccess)
        return cudaErrorInvalidDeviceFunction;
    if (!ptx_shape(kernel, &shape) || shape.param_bytes > sizeof l.params)
        return standin_set_error(cudaErrorInvalidValue);
    l.kernel = kernel;
    l.grid = (struct ptx_grid){
        {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, (unsigned)dynamic_bytes, NULL};
    memset(l.params, 0, sizeof l.params);
    for (int k = 0; k < shape.n_params; k++)
        memcpy(l.params + shape.param_offsets[k], args[k], shape.param_sizes[k]);
    if (!geometry_is_valid(&l, f, &shape))
        return standin_fault(cudaErrorInvalidConfiguration,
                             "%s: %u x %u x %u blocks of %u x %u x %u threads, %zu + %u bytes of "
                             "shared memory",
                             f->name, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                             dynamic_bytes, shape.shared_bytes);
    return standin_enqueue(stream, run_launch, &l, sizeof l);
}

cudaError_t __cudaGetKernel(void **kernel, const void *function);
cudaError_t __cudaGetKernel(void **kernel, const void *function)
{
    *kernel = (void *)(uintptr_t)function;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(const void *kernel, struct dim3 grid, struct dim3 block, void **args,
                               size_t dynamic_bytes, cudaStream_t stream);
cudaError_t __cudaLaunchKernel(const void *kernel, struct dim3 grid, struct dim3 block, void **args,
                               size_t dynamic_bytes, cudaStream_t stream)
{
    return cudaLaunchKernel(kernel, grid, block, args, dynamic_bytes, stream);
}
