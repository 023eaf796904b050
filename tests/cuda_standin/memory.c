/* memory: the stand-in's device memory, each allocation a mapping of its own that is closed while
 * nothing runs on the device, and the list of registered host ranges. A GPU's memory is its own:
 * only a copy that says so reaches a peer's. */
#include "shared.h"
#include "standin.h"

#include <string.h>
#include <sys/mman.h>

enum { MAX_RANGES = 512 };

struct range {
    char *base;
    size_t bytes;
    int gpu;
    struct shared_place place; /* for other processes; pid 0: it is not for them */
};
static struct range allocations[MAX_RANGES], registered[MAX_RANGES];
static size_t cap, taken[STANDIN_MOST_GPUS], pinned;

/* All ones are a NaN in every float type: what is read before it is written shows. Beyond so much
 * it would take long, and be memory that nobody may have. */
enum { POISON = 0xff };
static const size_t MOST_POISON = (size_t)1 << 30;

/* NULL: it is in none. */
static const struct range *range_of(const struct range *ranges, int gpu, const void *base,
                                    size_t bytes)
{
    uintptr_t from = (uintptr_t)base;
    for (int i = 0; i < MAX_RANGES; i++) {
        uintptr_t start = (uintptr_t)ranges[i].base;
        if (start && ranges[i].gpu == gpu && from >= start && bytes <= ranges[i].bytes &&
            from - start <= ranges[i].bytes - bytes)
            return &ranges[i];
    }
    return NULL;
}

static bool inside(const struct range *ranges, int gpu, const void *base, size_t bytes)
{
    return range_of(ranges, gpu, base, bytes) != NULL;
}

bool standin_place_of(const void *base, size_t bytes, struct shared_place *place, size_t *offset)
{
    const struct range *range = range_of(allocations, standin_gpu(), base, bytes);
    if (!range || !range->place.pid)
        return false;
    *place = range->place;
    *offset = (size_t)((const char *)base - range->base);
    return true;
}

bool standin_on_device(const void *base, size_t bytes)
{
    return inside(allocations, standin_gpu(), base, bytes);
}

bool standin_on_gpu(int gpu, const void *base, size_t bytes)
{
    return inside(allocations, gpu, base, bytes);
}

bool standin_registered(const void *base, size_t bytes)
{
    return inside(registered, 0, base, bytes);
}

const struct standin_watch *standin_watch;

static void protect_all(int protection)
{
    for (int i = 0; i < MAX_RANGES; i++)
        if (allocations[i].base)
            mprotect(allocations[i].base, allocations[i].bytes, protection);
}

void standin_memory_open(void)
{
    protect_all(PROT_READ | PROT_WRITE);
}

/* Memory for other processes has small pages, and closing those takes most of the time: so it is
 * often left open. */
void standin_memory_close(void)
{
    enum { OFTEN = 16 };
    if (!standin_options()->processes || !standin_random(OFTEN))
        protect_all(PROT_NONE);
}

static struct range *find(struct range *ranges, const void *base)
{
    for (int i = 0; i < MAX_RANGES; i++)
        if (ranges[i].base == base)
            return &ranges[i];
    return NULL;
}

static void give_memory(const struct range *range)
{
    if (range->place.pid)
        shared_free(range->base, &range->place);
    else
        munmap(range->base, range->bytes);
}

static bool take_memory(struct range *range, size_t bytes)
{
    void *base = standin_options()->processes
                     ? shared_create(&range->place, bytes)
                     : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    range->base = base == MAP_FAILED ? NULL : base;
    range->bytes = bytes;
    return range->base;
}

void standin_memory_reset(const struct standin_options *options)
{
    for (int i = 0; i < MAX_RANGES; i++)
        if (allocations[i].base) {
            if (standin_watch)
                standin_watch->freed(allocations[i].base);
            give_memory(&allocations[i]);
        }
    memset(allocations, 0, sizeof allocations);
    memset(registered, 0, sizeof registered);
    cap = options->memory_bytes ? options->memory_bytes : (size_t)256 << 20;
    cap -= options->context_bytes < cap ? options->context_bytes : cap;
    memset(taken, 0, sizeof taken);
    pinned = 0;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    STANDIN_CALL;
    struct range *slot = find(allocations, NULL);
    *out = NULL;
    if (!bytes || !slot)
        return standin_fault(cudaErrorInvalidValue, "cudaMalloc of %zu bytes", bytes);
    if (bytes > cap - taken[standin_gpu()])
        return standin_set_error(cudaErrorMemoryAllocation);
    struct range range = {.gpu = standin_gpu()};
    if (!take_memory(&range, bytes))
        return standin_set_error(cudaErrorMemoryAllocation);
    char *base = range.base;
    madvise(base, bytes, MADV_HUGEPAGE); /* few pages open and close faster */
    memset(base, POISON, bytes < MOST_POISON ? bytes : MOST_POISON);
    mprotect(base, bytes, PROT_NONE);
    *slot = range;
    taken[standin_gpu()] += bytes;
    standin_count_live(1);
    if (standin_watch)
        standin_watch->allocated(base, bytes);
    *out = base;
    return cudaSuccess;
}

/* As the real one, it waits for all that runs; what is enqueued later and still uses the memory
 * faults. */
cudaError_t cudaFree(void *memory)
{
    STANDIN_CALL;
    if (!memory)
        return cudaSuccess;
    struct range *slot = find(allocations, memory);
    if (!slot)
        return standin_fault(cudaErrorInvalidValue, "cudaFree of %p, which is no allocation",
                             memory);
    standin_nccl_check_ended(slot->gpu, "memory");
    standin_run_all();
    if (standin_watch)
        standin_watch->freed(slot->base);
    give_memory(slot);
    taken[slot->gpu] -= slot->bytes;
    *slot = (struct range){0};
    standin_count_live(-1);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *bytes_free, size_t *bytes_total)
{
    STANDIN_CALL;
    *bytes_free = cap - taken[standin_gpu()];
    *bytes_total = cap + standin_options()->context_bytes;
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *base, size_t bytes, unsigned flags)
{
    STANDIN_CALL;
    struct range *slot = find(registered, NULL);
    (void)flags;
    if (standin_options()->no_pinning)
        return standin_set_error(cudaErrorNotSupported);
    const struct standin_options *o = standin_options();
    if ((o->pin_call && bytes > o->pin_call) || (o->pin_all && bytes > o->pin_all - pinned))
        return standin_set_error(cudaErrorMemoryAllocation);
    if (!base || !bytes || !slot)
        return standin_set_error(cudaErrorInvalidValue);
    if (standin_registered(base, 1))
        return standin_set_error(cudaErrorHostMemoryAlreadyRegistered);
    *slot = (struct range){.base = base, .bytes = bytes};
    pinned += bytes;
    standin_count_live(1);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *base)
{
    STANDIN_CALL;
    struct range *slot = base ? find(registered, base) : NULL;
    if (!slot)
        return standin_fault(cudaErrorHostMemoryNotRegistered, "unregistering %p", base);
    pinned -= slot->bytes;
    *slot = (struct range){0};
    standin_count_live(-1);
    return cudaSuccess;
}
