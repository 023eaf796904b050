/*
 * store_extents: the extents of a store, added one by one before it has space. The bytes of some
 * are those of files that others own, such as the weights of a model's folder: they are read and
 * never written, and nothing is reserved for them. Pages that a read covers are the files' own:
 * what lies behind a file's end is zero. Their checksums are taken when a page is first read, since
 * nobody here has written it; from then on a page that reads otherwise says that the file was
 * changed.
 */
#include "aio/aio_store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int add_extent(struct zinf_store *store, uint64_t bytes, uint8_t n_generations,
                      zinf_extent *out)
{
    if (store->allocated)
        return zinf_fail(-EINVAL, "the store is allocated: no extent can be added any more");
    uint64_t room = (INT64_MAX / 2 - store->planned_bytes) / n_generations;
    if (!bytes || bytes > room || zinf_align_up(bytes, ZINF_AIO_ALIGN) > room)
        return zinf_fail(-EINVAL, "an extent of %" PRIu64 " bytes cannot be planned", bytes);
    if (store->n_extents == store->extents_capacity) {
        uint32_t capacity = store->extents_capacity ? 2 * store->extents_capacity : 64;
        void *grown = realloc(store->extents, capacity * sizeof *store->extents);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for %u extents", capacity);
        store->extents = grown;
        store->extents_capacity = capacity;
    }
    struct zinf_store_extent *extent = &store->extents[store->n_extents];
    *extent = (struct zinf_store_extent){.bytes = zinf_align_up(bytes, ZINF_AIO_ALIGN),
                                         .n_generations = n_generations};
    store->planned_bytes += n_generations * extent->bytes;
    *out = store->n_extents++;
    return 0;
}

int zinf_store_add_extent(struct zinf_store *store, uint64_t bytes, zinf_extent *out)
{
    return add_extent(store, bytes, 1, out);
}

int zinf_store_add_extent_pair(struct zinf_store *store, uint64_t bytes, zinf_extent *out)
{
    return add_extent(store, bytes, 2, out);
}

uint64_t zinf_store_planned_bytes(const struct zinf_store *store)
{
    return store->planned_bytes;
}

uint64_t zinf_store_extent_bytes(const struct zinf_store *store, zinf_extent extent)
{
    return extent < store->n_extents ? store->extents[extent].bytes : 0;
}

uint8_t zinf_store_generations(const struct zinf_store *store, zinf_extent extent)
{
    return extent < store->n_extents ? store->extents[extent].n_generations : 0;
}

/* ---- in files of others ---- */

int zinf_store_open_file(struct zinf_store *store, const char *path, uint32_t *out)
{
    struct zinf_aio_file **files =
        realloc(store->files, (store->n_files + 1) * sizeof *store->files);
    if (!files)
        return zinf_fail(-ENOMEM, "no memory to read %s in place", path);
    store->files = files;
    int code = zinf_aio_open(&files[store->n_files], path, ZINF_AIO_READ);
    if (!code)
        *out = store->n_files++;
    return code;
}

void zinf_store_close_files(struct zinf_store *store)
{
    for (uint32_t i = 0; i < store->n_files; i++)
        zinf_aio_close(store->files[i]);
    free(store->files);
    for (uint32_t i = 0; i < store->n_extents; i++)
        free(store->extents[i].spans);
}

static int check_span(const struct zinf_store *store, const struct zinf_store_span *span)
{
    bool whole = span->bytes && span->bytes % ZINF_AIO_ALIGN == 0 &&
                 span->offset % ZINF_AIO_ALIGN == 0 && span->offset <= INT64_MAX / 2 &&
                 span->bytes <= INT64_MAX / 2;
    if (whole && (store->plan_only || span->file < store->n_files))
        return 0;
    return zinf_fail(-EINVAL, "a span of %" PRIu64 " bytes at offset %" PRIu64 " of file %u",
                     span->bytes, span->offset, span->file);
}

int zinf_store_add_files_extent(struct zinf_store *store, const struct zinf_store_span *spans,
                                uint32_t n, zinf_extent *out)
{
    uint64_t bytes = 0, planned = store->planned_bytes;
    int code = 0;
    for (uint32_t i = 0; !code && i < n; i++) {
        code = check_span(store, &spans[i]);
        bytes += spans[i].bytes;
    }
    if (!code)
        code = zinf_store_add_extent(store, bytes, out);
    if (code)
        return code;
    struct zinf_store_extent *extent = &store->extents[*out];
    store->planned_bytes = planned;
    extent->spans = malloc(n * sizeof *spans);
    if (!extent->spans)
        return zinf_fail(-ENOMEM, "no memory for an extent of %u spans", n);
    memcpy(extent->spans, spans, n * sizeof *spans);
    extent->n_spans = n;
    store->files_bytes += bytes;
    return 0;
}

uint64_t zinf_store_locate_file(const struct zinf_aio_request *request, uint64_t offset,
                                uint64_t bytes, struct zinf_aio_file **file, uint64_t *file_offset)
{
    const struct zinf_store_extent *extent = &request->store->extents[request->extent];
    const struct zinf_store_span *span = extent->spans;
    for (; offset >= span->bytes; span++)
        offset -= span->bytes;
    *file = request->store->files[span->file];
    *file_offset = span->offset + offset;
    return bytes < span->bytes - offset ? bytes : span->bytes - offset;
}

void zinf_store_clear_ends(const struct zinf_aio_request *request, uint64_t from, uint64_t bytes)
{
    const struct zinf_store_extent *extent = &request->store->extents[request->extent];
    uint64_t at = 0, low = request->offset + from, high = low + bytes;
    for (uint32_t i = 0; i < extent->n_spans; at += extent->spans[i++].bytes) {
        const struct zinf_store_span *span = &extent->spans[i];
        uint64_t file_bytes = zinf_aio_file_bytes(request->store->files[span->file]);
        uint64_t there = file_bytes > span->offset ? file_bytes - span->offset : 0;
        uint64_t first = at + (there < span->bytes ? there : span->bytes), end = at + span->bytes;
        first = first > low ? first : low;
        end = end < high ? end : high;
        if (first < end)
            memset((char *)request->memory + (first - request->offset), 0, end - first);
    }
}
