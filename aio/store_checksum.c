/*
 * store_checksum: XXH3-64 of each stripe-sized piece of each extent, kept in RAM and so apart
 * from the data: a lost or misplaced write is found too, not only a damaged one. The pieces are
 * relaxed atomics because queues of several threads share a store; two requests on the same piece
 * at the same time are the callers' mistake, and then only a checksum may be unknown or wrong.
 */
#include "aio/aio_store.h"

#include <stdlib.h>
#include <xxhash.h>

/* The checksums of the generation that a request names, and its pieces that the range touches. */
struct pieces {
    _Atomic uint64_t *sums; /* of the generation's first piece */
    uint64_t first, end;
    uint64_t piece_bytes;
    uint64_t offset, range_end, extent_bytes;
};

static uint64_t pieces_in(const struct zinf_store *store, uint64_t bytes)
{
    return (bytes + store->stripe_bytes - 1) / store->stripe_bytes;
}

static struct pieces pieces_of(const struct zinf_aio_request *request)
{
    const struct zinf_store *store = request->store;
    const struct zinf_store_extent *extent = &store->extents[request->extent];
    uint64_t range_end = request->offset + request->bytes;
    return (struct pieces){
        .sums =
            store->sums + extent->first_sum + request->generation * pieces_in(store, extent->bytes),
        .first = request->offset / store->stripe_bytes,
        .end = pieces_in(store, range_end),
        .piece_bytes = store->stripe_bytes,
        .offset = request->offset,
        .range_end = range_end,
        .extent_bytes = extent->bytes,
    };
}

/* Length of a piece that lies whole in the range, or 0. The last piece of an extent is short. */
static uint64_t whole_piece(const struct pieces *pieces, uint64_t piece)
{
    uint64_t begin = piece * pieces->piece_bytes;
    uint64_t end = begin + pieces->piece_bytes;
    if (end > pieces->extent_bytes)
        end = pieces->extent_bytes;
    return begin >= pieces->offset && end <= pieces->range_end ? end - begin : 0;
}

static uint64_t hash(const struct zinf_aio_request *request, uint64_t begin, uint64_t bytes)
{
    uint64_t sum = XXH3_64bits((const char *)request->memory + (begin - request->offset), bytes);
    return sum ? sum : 1; /* 0 means unknown */
}

int zinf_store_sums_init(struct zinf_store *store)
{
    store->n_sums = 0;
    for (uint32_t i = 0; i < store->n_extents; i++) {
        struct zinf_store_extent *extent = &store->extents[i];
        extent->first_sum = store->n_sums;
        store->n_sums += extent->n_generations * pieces_in(store, extent->bytes);
    }
    store->sums = calloc(store->n_sums ? store->n_sums : 1, sizeof *store->sums);
    return store->sums ? 0 : zinf_fail(-ENOMEM, "no memory for the checksums of a store");
}

void zinf_store_sums_forget(const struct zinf_aio_request *request)
{
    struct pieces pieces = pieces_of(request);
    for (uint64_t i = pieces.first; i < pieces.end; i++)
        atomic_store_explicit(&pieces.sums[i], 0, memory_order_relaxed);
}

void zinf_store_sums_record(const struct zinf_aio_request *request)
{
    struct pieces pieces = pieces_of(request);
    for (uint64_t i = pieces.first; i < pieces.end; i++) {
        uint64_t length = whole_piece(&pieces, i);
        if (length)
            atomic_store_explicit(&pieces.sums[i], hash(request, i * pieces.piece_bytes, length),
                                  memory_order_relaxed);
    }
}

bool zinf_store_sums_verify(const struct zinf_aio_request *request, uint64_t *bad)
{
    struct pieces pieces = pieces_of(request);
    for (uint64_t i = pieces.first; i < pieces.end; i++) {
        uint64_t expected = atomic_load_explicit(&pieces.sums[i], memory_order_relaxed);
        uint64_t length = expected ? whole_piece(&pieces, i) : 0;
        if (!length || hash(request, i * pieces.piece_bytes, length) == expected)
            continue;
        *bad = i * pieces.piece_bytes;
        return false;
    }
    return true;
}
