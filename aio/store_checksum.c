/*
 * store_checksum: 32 bits of XXH3 for each page of a store, kept in RAM and so apart from the data:
 * a lost or misplaced write is found too, not only a damaged one. A page is the unit of every
 * transfer, so however reads and writes are cut, every byte that was written has its sum and every
 * byte that is read is compared. Pages are relaxed atomics because queues of several threads share
 * a store; two requests on the same page at the same time are the callers' mistake, and then only
 * its checksum may be wrong.
 */
#include "build-config.h"

#include "aio/aio_store.h"

#include <stdlib.h>
#include <xxhash.h>

#define PAGE ZINF_AIO_ALIGN
#define SUMS_PER_PAGE (PAGE / sizeof(uint32_t))

static uint64_t page_hash(const void *page)
{
#ifdef ZINF_HAVE_AVX2
    if (zinf_isa() != ZINF_ISA_SCALAR)
        return zinf_page_hash_avx2(page);
#endif
    return XXH3_64bits(page, PAGE);
}

uint32_t zinf_page_sum(const void *page)
{
    uint32_t sum = (uint32_t)page_hash(page);
    return sum ? sum : 1; /* 0 means unknown */
}

/* The checksum of the request's first page; those of its other pages follow. */
static _Atomic uint32_t *sums_of(const struct zinf_aio_request *request)
{
    const struct zinf_store *store = request->store;
    const struct zinf_store_extent *extent = &store->extents[request->extent];
    return store->sums + extent->first_sum + request->generation * store->bank_sums +
           request->offset / PAGE;
}

/* Decides where the checksums of each extent are, and how many there are in all. */
static void place_sums(struct zinf_store *store)
{
    store->bank_sums = zinf_align_up(store->bank_bytes / PAGE, SUMS_PER_PAGE);
    store->n_sums = 2 * store->bank_sums + (store->planned_bytes - 2 * store->bank_bytes) / PAGE;
    uint64_t next = store->n_sums;
    for (uint32_t i = 0; i < store->n_extents; i++) {
        struct zinf_store_extent *extent = &store->extents[i];
        bool paired = extent->n_generations == 2;
        if (extent->spans) {
            extent->first_sum = next;
            next += extent->bytes / PAGE;
            continue;
        }
        extent->first_sum =
            paired ? extent->start / PAGE
                   : 2 * store->bank_sums + (extent->start - 2 * store->bank_bytes) / PAGE;
    }
}

/* Checksums of the two banks and of the extents with one generation each begin on a page of their
 * own, so that each of the three may take a page more. */
uint64_t zinf_store_sums_bytes(uint64_t bytes)
{
    return zinf_align_up(bytes / PAGE * sizeof(uint32_t), PAGE) + 3 * (uint64_t)PAGE;
}

/* The checksums of a new store are those of zeros. If a dead process has left the store, they are
 * unknown until its steps are recovered. */
int zinf_store_sums_init(struct zinf_store *store)
{
    place_sums(store);
    uint64_t bytes =
        zinf_align_up((store->n_sums + store->files_bytes / PAGE + 1) * sizeof *store->sums, PAGE);
    if (posix_memalign((void **)&store->sums, PAGE, bytes)) {
        store->sums = NULL;
        return zinf_fail(-ENOMEM, "no memory for the checksums of a store");
    }
    memset((void *)store->sums, 0, bytes);
    if (!store->adopted)
        zinf_store_sums_zero(store);
    return 0;
}

void zinf_store_sums_zero(struct zinf_store *store)
{
    static const char zeros[PAGE];
    uint32_t sum = zinf_page_sum(zeros);
    for (uint64_t i = 0; i < store->n_sums; i++)
        atomic_store_explicit(&store->sums[i], sum, memory_order_relaxed);
}

void zinf_store_sums_forget(const struct zinf_aio_request *request)
{
    _Atomic uint32_t *sums = sums_of(request);
    for (uint64_t i = 0; i < request->bytes / PAGE; i++)
        atomic_store_explicit(&sums[i], 0, memory_order_relaxed);
}

void zinf_store_sums_record(const struct zinf_aio_request *request, uint64_t from, uint64_t bytes)
{
    _Atomic uint32_t *sums = sums_of(request);
    const char *memory = request->memory;
    for (uint64_t i = from / PAGE; i < (from + bytes) / PAGE; i++)
        atomic_store_explicit(&sums[i], zinf_page_sum(memory + i * PAGE), memory_order_relaxed);
}

bool zinf_store_sums_verify(const struct zinf_aio_request *request, uint64_t from, uint64_t bytes,
                            uint64_t *bad)
{
    _Atomic uint32_t *sums = sums_of(request);
    const char *memory = request->memory;
    bool others = request->store->extents[request->extent].spans;
    if (others)
        zinf_store_clear_ends(request, from, bytes);
    for (uint64_t i = from / PAGE; i < (from + bytes) / PAGE; i++) {
        uint32_t sum = zinf_page_sum(memory + i * PAGE);
        uint32_t known = atomic_load_explicit(&sums[i], memory_order_relaxed);
        if (others && !known)
            atomic_store_explicit(&sums[i], known = sum, memory_order_relaxed);
        if (sum == known)
            continue;
        *bad = request->offset + i * PAGE;
        return false;
    }
    return true;
}
