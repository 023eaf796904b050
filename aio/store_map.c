/*
 * store_map: where the bytes of an extent lie. The one place that knows how stripes are shared
 * out to paths; see aio_store.h for the rule.
 */
#include "aio/aio_store.h"

#include <inttypes.h>
#include <math.h>

#define SLACK 1.04 /* how much longer than the ideal a distribution may take */

static uint64_t stripes_of_path(const struct zinf_store *store, int path, uint64_t stripes)
{
    uint64_t count = stripes / store->pattern_length * store->per_path[path];
    for (uint32_t i = 0; i < stripes % store->pattern_length; i++)
        count += store->pattern[i] == path;
    return count;
}

/* Gives each stripe to the path that would finish it first, which no other distribution of `length`
 * stripes beats. Returns the time until all are finished. */
static double share_out(struct zinf_store *store, uint32_t length)
{
    const double *rates = store->rates;
    double longest = 0;
    memset(store->per_path, 0, sizeof store->per_path);
    for (uint32_t i = 0; i < length; i++) {
        uint16_t best = 0;
        for (uint16_t p = 1; p < store->n_paths; p++)
            if ((store->per_path[p] + 1) / rates[p] < (store->per_path[best] + 1) / rates[best])
                best = p;
        store->pattern[i] = best;
        store->rank[i] = store->per_path[best]++;
        longest = fmax(longest, store->per_path[best] / rates[best]);
    }
    store->pattern_length = length;
    return longest;
}

/* Chooses the shortest pattern that is as good as the best one, or within SLACK of the ideal: rates
 * are not measured more exactly than that. Equal drives, whose rates differ by a few per cent, get
 * one stripe each. */
static void choose_pattern(struct zinf_store *store)
{
    double sum = 0;
    for (int i = 0; i < store->n_paths; i++)
        sum += store->rates[i];
    double best = INFINITY;
    for (uint32_t n = 1; n <= ZINF_STORE_PATTERN_MAX; n++)
        best = fmin(best, share_out(store, n) / n);
    for (uint32_t n = 1; n <= ZINF_STORE_PATTERN_MAX; n++)
        if (share_out(store, n) / n <= fmax(best, SLACK / sum))
            return;
}

static void set_lengths(struct zinf_store *store)
{
    uint64_t stripes = (store->planned_bytes + store->stripe_bytes - 1) / store->stripe_bytes;
    for (int i = 0; i < store->n_paths; i++)
        store->paths[i].bytes = stripes_of_path(store, i, stripes) * store->stripe_bytes;
    /* The last stripe has only what is left of the bytes. */
    if (stripes)
        store->paths[store->pattern[(stripes - 1) % store->pattern_length]].bytes -=
            stripes * store->stripe_bytes - store->planned_bytes;
}

void zinf_store_map_extents(struct zinf_store *store)
{
    /* [n_generations] next free place of extents with one generation, or with two */
    uint64_t next[3] = {0};
    store->bank_bytes = 0;
    for (uint32_t i = 0; i < store->n_extents; i++)
        store->bank_bytes += store->extents[i].n_generations == 2 ? store->extents[i].bytes : 0;
    next[1] = 2 * store->bank_bytes;
    for (uint32_t i = 0; i < store->n_extents; i++) {
        struct zinf_store_extent *extent = &store->extents[i];
        if (extent->spans)
            continue;
        extent->start = next[extent->n_generations];
        next[extent->n_generations] += extent->bytes;
    }
}

void zinf_store_map_init(struct zinf_store *store)
{
    choose_pattern(store);
    set_lengths(store);
}

void zinf_store_map_restore(struct zinf_store *store, const uint16_t *pattern, uint32_t n)
{
    memset(store->per_path, 0, sizeof store->per_path);
    for (uint32_t i = 0; i < n; i++) {
        store->pattern[i] = pattern[i];
        store->rank[i] = store->per_path[pattern[i]]++;
    }
    store->pattern_length = n;
    set_lengths(store);
}

int zinf_store_check_range(const struct zinf_aio_request *request, bool moves)
{
    const struct zinf_store *store = request->store;
    if (!store->allocated && (moves || !store->plan_only))
        return zinf_fail(-EINVAL, "the store has no space yet: zinf_store_allocate comes first");
    if (request->extent >= store->n_extents)
        return zinf_fail(-EINVAL, "extent %u: the store has %u", request->extent, store->n_extents);
    int code = zinf_store_failure(store);
    if (code)
        return code;
    const struct zinf_store_extent *extent = &store->extents[request->extent];
    if (extent->spans && request->op == ZINF_AIO_OP_WRITE)
        return zinf_fail(-EROFS, "extent %u is of files that are only read", request->extent);
    if (request->generation >= extent->n_generations)
        return zinf_fail(-EINVAL, "generation %u of extent %u: it has %u", request->generation,
                         request->extent, extent->n_generations);
    if (request->offset > extent->bytes || request->bytes > extent->bytes - request->offset)
        return zinf_fail(
            -EINVAL, "%" PRIu64 " bytes at offset %" PRIu64 " leave extent %u of %" PRIu64 " bytes",
            request->bytes, request->offset, request->extent, extent->bytes);
    return 0;
}

uint64_t zinf_store_locate(const struct zinf_aio_request *request, uint64_t offset, uint64_t bytes,
                           struct zinf_aio_file **file, uint64_t *file_offset)
{
    const struct zinf_store *store = request->store;
    const struct zinf_store_extent *extent = &store->extents[request->extent];
    if (extent->spans && !store->plan_only)
        return zinf_store_locate_file(request, offset, bytes, file, file_offset);
    uint64_t place = extent->start + request->generation * store->bank_bytes + offset;
    if (store->n_paths <= 1) {
        *file = store->paths[0].file;
        *file_offset = place;
        return bytes;
    }
    uint64_t stripe = place / store->stripe_bytes, within = place % store->stripe_bytes;
    uint32_t slot = (uint32_t)(stripe % store->pattern_length);
    uint16_t path = store->pattern[slot];
    uint64_t local = stripe / store->pattern_length * store->per_path[path] + store->rank[slot];
    uint64_t left = store->stripe_bytes - within;
    *file = store->paths[path].file;
    *file_offset = local * store->stripe_bytes + within;
    return bytes < left ? bytes : left;
}
