/*
 * store_checksum: XXH3-64 of each stripe-sized piece of each extent, kept in RAM and so apart
 * from the data: a lost or misplaced write is found too, not only a damaged one. The pieces are
 * relaxed atomics because queues of several threads share a store; two requests on the same piece
 * at the same time are the callers' mistake, and then only a checksum may be unknown or wrong.
 */
#include "aio/aio_store.h"

#include <stdlib.h>
#include <xxhash.h>

struct pieces {
    uint64_t first, end; /* of those that touch the range */
    uint64_t offset, range_end, extent_bytes;
};

static struct pieces pieces_of(const struct zinf_store *store, zinf_extent extent, uint64_t offset,
                               uint64_t bytes)
{
    uint64_t size = store->stripe_bytes;
    return (struct pieces){
        .first = offset / size,
        .end = (offset + bytes + size - 1) / size,
        .offset = offset,
        .range_end = offset + bytes,
        .extent_bytes = store->extents[extent].bytes,
    };
}

/* Length of a piece that lies whole in the range, or 0. The last piece of an extent is short. */
static uint64_t whole_piece(const struct zinf_store *store, const struct pieces *pieces,
                            uint64_t piece)
{
    uint64_t begin = piece * store->stripe_bytes;
    uint64_t end = begin + store->stripe_bytes;
    if (end > pieces->extent_bytes)
        end = pieces->extent_bytes;
    return begin >= pieces->offset && end <= pieces->range_end ? end - begin : 0;
}

static uint64_t hash(const void *memory, uint64_t bytes)
{
    uint64_t sum = XXH3_64bits(memory, bytes);
    return sum ? sum : 1; /* 0 means unknown */
}

static _Atomic uint64_t *sum_of(struct zinf_store *store, zinf_extent extent, uint64_t piece)
{
    return &store->sums[store->extents[extent].first_sum + piece];
}

int zinf_store_sums_init(struct zinf_store *store)
{
    store->n_sums = 0;
    for (uint32_t i = 0; i < store->n_extents; i++) {
        store->extents[i].first_sum = store->n_sums;
        store->n_sums += (store->extents[i].bytes + store->stripe_bytes - 1) / store->stripe_bytes;
    }
    store->sums = calloc(store->n_sums ? store->n_sums : 1, sizeof *store->sums);
    return store->sums ? 0 : zinf_fail(-ENOMEM, "no memory for the checksums of a store");
}

void zinf_store_sums_forget(struct zinf_store *store, zinf_extent extent, uint64_t offset,
                            uint64_t bytes)
{
    struct pieces pieces = pieces_of(store, extent, offset, bytes);
    for (uint64_t i = pieces.first; i < pieces.end; i++)
        atomic_store_explicit(sum_of(store, extent, i), 0, memory_order_relaxed);
}

void zinf_store_sums_record(struct zinf_store *store, zinf_extent extent, uint64_t offset,
                            uint64_t bytes, const void *memory)
{
    struct pieces pieces = pieces_of(store, extent, offset, bytes);
    for (uint64_t i = pieces.first; i < pieces.end; i++) {
        uint64_t length = whole_piece(store, &pieces, i);
        if (length)
            atomic_store_explicit(
                sum_of(store, extent, i),
                hash((const char *)memory + (i * store->stripe_bytes - offset), length),
                memory_order_relaxed);
    }
}

bool zinf_store_sums_verify(struct zinf_store *store, zinf_extent extent, uint64_t offset,
                            uint64_t bytes, const void *memory, uint64_t *bad)
{
    struct pieces pieces = pieces_of(store, extent, offset, bytes);
    for (uint64_t i = pieces.first; i < pieces.end; i++) {
        uint64_t expected = atomic_load_explicit(sum_of(store, extent, i), memory_order_relaxed);
        uint64_t length = expected ? whole_piece(store, &pieces, i) : 0;
        uint64_t begin = i * store->stripe_bytes;
        if (!length || hash((const char *)memory + (begin - offset), length) == expected)
            continue;
        *bad = begin;
        return false;
    }
    return true;
}
