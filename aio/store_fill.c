/*
 * store_fill: takes the space of a store. It checks all paths, then reserves space on all of them,
 * and only then writes, so that a drive that is too small is reported at once.
 */
#include "build-config.h"

#include "aio/aio_store.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"

#define FILL_BYTES (4u << 20)      /* of one request that writes zeros */
#define FILL_REQUESTS 16           /* such requests in flight, on all paths together */
#define RESERVE_BYTES (1ull << 30) /* of one call of fallocate; signals are seen in between */

#ifndef FALLOC_FL_WRITE_ZEROES
#define FALLOC_FL_WRITE_ZEROES 0x80 /* since Linux 6.17: the drive zeroes its blocks itself */
#endif

/* Paths on one file system share what is free there. */
static int check_space(const struct zinf_store *store)
{
    for (int i = 0; i < store->n_paths; i++) {
        uint64_t needed = 0, free_bytes = zinf_aio_free_bytes(store->paths[i].folder.path);
        char needed_text[16], free_text[16];
        for (int j = 0; j < store->n_paths; j++)
            if (store->paths[j].device == store->paths[i].device)
                needed += store->paths[j].bytes;
        if (needed > free_bytes)
            return zinf_fail(-ENOSPC,
                             "%s needs %s (%" PRIu64
                             " bytes) and has %s free: free space there, or set "
                             "nvme_path to a larger drive, or to several",
                             store->paths[i].folder.parent,
                             zinf_size_format(needed_text, sizeof needed_text, needed), needed,
                             zinf_size_format(free_text, sizeof free_text, free_bytes));
    }
    return 0;
}

static int in_chunks(int fd, int mode, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        uint64_t length = bytes - at < RESERVE_BYTES ? bytes - at : RESERVE_BYTES;
        if (!fallocate(fd, mode, (off_t)at, (off_t)length))
            at += length;
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}

int zinf_store_reserve(const struct zinf_store_path *path)
{
    char size[16], free_text[16];
    int code = in_chunks(path->file->fd, 0, path->bytes);
    if (code == -EOPNOTSUPP) /* the space is taken when zeros are written */
        code = ftruncate(path->file->fd, (off_t)path->bytes) ? -errno : 0;
    if (!code)
        return 0;
    return zinf_fail(
        code,
        "cannot reserve %s for %s: %s (%s free): free space there, or set nvme_path "
        "to a larger drive",
        zinf_size_format(size, sizeof size, path->bytes), path->file->path, strerror(-code),
        zinf_size_format(free_text, sizeof free_text, zinf_aio_free_bytes(path->folder.path)));
}

static int make_file(struct zinf_store_path *path)
{
    char *name = zinf_path_join(path->folder.path, ZINF_STORE_FILE);
    int code =
        name ? zinf_aio_open(&path->file, name, ZINF_AIO_READ | ZINF_AIO_WRITE | ZINF_AIO_CREATE)
             : -ENOMEM;
    free(name);
    if (code)
        return code;
    path->file->lasting = true;
    return zinf_store_reserve(path);
}

/* How far each path has been filled. One that the drive has zeroed itself starts at its end. */
struct fill {
    struct zinf_store *store;
    struct zinf_aio_queue *queue;
    char *zeros;
    uint64_t *written; /* [n_paths] */
    struct zinf_aio_request requests[FILL_REQUESTS];
};

static bool next_fill(struct fill *fill, int *turn, struct zinf_aio_request *request)
{
    struct zinf_store *store = fill->store;
    for (int i = 0; i < store->n_paths; i++) {
        int path = *turn = (*turn + 1) % store->n_paths;
        uint64_t left = store->paths[path].bytes - fill->written[path];
        if (!left)
            continue;
        *request = (struct zinf_aio_request){.op = ZINF_AIO_OP_WRITE,
                                             .file = store->paths[path].file,
                                             .offset = fill->written[path],
                                             .bytes = left < FILL_BYTES ? left : FILL_BYTES,
                                             .memory = fill->zeros};
        fill->written[path] += request->bytes;
        return true;
    }
    return false;
}

static int write_zeros(struct fill *fill)
{
    int turn = 0, code = 0;
    const char *message;
    for (int i = 0; i < FILL_REQUESTS && next_fill(fill, &turn, &fill->requests[i]); i++)
        if ((code = zinf_aio_submit(fill->queue, &fill->requests[i])))
            return code;
    for (struct zinf_aio_request *request; (request = zinf_aio_reap(fill->queue, UINT64_MAX));) {
        if (request->result < 0)
            break;
        if (next_fill(fill, &turn, request) && (code = zinf_aio_submit(fill->queue, request)))
            return code;
    }
    code = zinf_aio_queue_error(fill->queue, &message);
    return code ? zinf_fail(code, "%s", message) : 0;
}

static int fill_paths(struct zinf_store *store)
{
    struct zinf_arena zeros = {0};
    struct fill *fill = calloc(1, sizeof *fill);
    int code = zinf_arena_init(&zeros, FILL_BYTES, "zeros for a new store");
    if (code || !fill || !(fill->written = calloc((size_t)store->n_paths, sizeof(uint64_t)))) {
        code = code ? code : zinf_fail(-ENOMEM, "no memory to fill a store");
        goto out;
    }
    fill->store = store;
    fill->zeros = zeros.base;
    for (int i = 0; i < store->n_paths; i++)
        if (!in_chunks(store->paths[i].file->fd, FALLOC_FL_WRITE_ZEROES, store->paths[i].bytes))
            fill->written[i] = store->paths[i].bytes;
    code = zinf_aio_queue_create(&fill->queue, &(struct zinf_aio_queue_options){0});
    if (!code)
        code = write_zeros(fill);
    zinf_aio_queue_destroy(fill->queue);
out:
    if (fill)
        free(fill->written);
    free(fill);
    zinf_arena_fini(&zeros);
    return code;
}

int zinf_store_zero(struct zinf_store *store)
{
    int code = fill_paths(store);
    if (!code)
        zinf_store_sums_zero(store);
    return code;
}

static int sync_path(const struct zinf_store_path *path)
{
    int code = fdatasync(path->file->fd) ? -errno : 0;
    int folder_fd = code ? -1 : open(path->folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!code && (folder_fd < 0 || fsync(folder_fd)))
        code = -errno;
    if (folder_fd >= 0)
        close(folder_fd);
    return code ? zinf_fail(code, "cannot flush %s: %s; see dmesg", path->file->path,
                            strerror(-code))
                : 0;
}

int zinf_store_fill(struct zinf_store *store)
{
    int code = check_space(store);
    for (int i = 0; !code && i < store->n_paths; i++)
        code = make_file(&store->paths[i]);
    if (!code)
        code = fill_paths(store);
    for (int i = 0; !code && i < store->n_paths; i++)
        code = sync_path(&store->paths[i]);
    return code;
}
