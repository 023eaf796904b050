/*
 * steps: the commit protocol over a store's own files. The commit area is a file of its own beside
 * the extents of the first path; the checksums that the store keeps of every page are its
 * manifest.
 */
#include "build-config.h"

#include "aio/steps.h"

#include "aio/steps_private.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define CHECK_BYTES (4u << 20) /* bytes of a request that reads pages to compare them */
#define CHECKS 8               /* such requests in flight */

/* ---- the calls of the commit ---- */

/* Nothing of an earlier process is being written any more: the store's files were locked when it
 * was allocated. */
static int fence(void *arg)
{
    const struct zinf_steps *s = arg;
    return s->store->allocated ? 0 : zinf_fail(-EINVAL, "the store has no space yet");
}

static int area_read(void *arg, uint64_t offset, void *memory, uint64_t bytes)
{
    const struct zinf_steps *s = arg;
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(s->area->fd, (char *)memory + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return zinf_fail(-errno, "cannot read %s: %s", s->area->path, strerror(errno));
        if (!n) /* what is behind the file's end was never written */
            memset((char *)memory + done, 0, bytes - done);
        done = n ? done + (uint64_t)n : bytes;
    }
    return 0;
}

static int area_write(void *arg, uint64_t offset, const void *memory, uint64_t bytes)
{
    const struct zinf_steps *s = arg;
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n =
            pwrite(s->area->fd, (const char *)memory + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return zinf_fail(-errno, "cannot write %s: %s", s->area->path, strerror(errno));
        done += (uint64_t)n;
    }
    return 0;
}

static int flush(void *arg)
{
    const struct zinf_steps *s = arg;
    int code = zinf_store_flush(s->store);
    return code ? code : zinf_aio_file_flush(s->area);
}

/* ---- comparing ---- */

/* Reads a bank extent by extent. extent, offset: where the next request begins. */
struct scan {
    struct zinf_store *store;
    struct zinf_aio_queue *queue;
    char *memory; /* [CHECKS][CHECK_BYTES] */
    struct zinf_aio_request requests[CHECKS];
    uint8_t bank;
    zinf_extent extent;
    uint64_t offset;
};

static bool next_range(struct scan *scan, struct zinf_aio_request *request)
{
    const struct zinf_store *store = scan->store;
    while (scan->extent < store->n_extents &&
           (store->extents[scan->extent].n_generations != 2 ||
            scan->offset == store->extents[scan->extent].bytes)) {
        scan->extent++;
        scan->offset = 0;
    }
    if (scan->extent == store->n_extents)
        return false;
    uint64_t left = store->extents[scan->extent].bytes - scan->offset;
    *request = (struct zinf_aio_request){.op = ZINF_AIO_OP_READ,
                                         .store = scan->store,
                                         .extent = scan->extent,
                                         .generation = scan->bank,
                                         .offset = scan->offset,
                                         .bytes = left < CHECK_BYTES ? left : CHECK_BYTES,
                                         .memory = request->memory};
    scan->offset += request->bytes;
    return true;
}

/* Reads all of a bank. The queue compares what it reads with the checksums. */
static int scan_bank(struct scan *scan)
{
    const char *message;
    int code = 0;
    for (int i = 0; i < CHECKS && !code; i++) {
        scan->requests[i].memory = scan->memory + (uint64_t)i * CHECK_BYTES;
        if (!next_range(scan, &scan->requests[i]))
            break;
        code = zinf_aio_submit(scan->queue, &scan->requests[i]);
    }
    for (struct zinf_aio_request *done;
         !code && (done = zinf_aio_reap(scan->queue, UINT64_MAX)) && done->result >= 0;)
        if (next_range(scan, done))
            code = zinf_aio_submit(scan->queue, done);
    int failed = zinf_aio_queue_error(scan->queue, &message);
    return failed ? zinf_fail(failed, "%s", message) : code;
}

static int check(void *arg, int bank)
{
    const struct zinf_steps *s = arg;
    struct scan scan = {.store = s->store, .bank = (uint8_t)bank};
    if (posix_memalign((void **)&scan.memory, ZINF_AIO_ALIGN, (uint64_t)CHECKS * CHECK_BYTES))
        return zinf_fail(-ENOMEM, "no memory to compare a step with its checksums");
    int code = zinf_aio_queue_create(&scan.queue, &(struct zinf_aio_queue_options){0});
    if (!code)
        code = scan_bank(&scan);
    zinf_aio_queue_destroy(scan.queue);
    free(scan.memory);
    return code;
}

/* ---- life ---- */

int steps_open_area(struct zinf_steps *s, bool anew)
{
    unsigned flags = ZINF_AIO_READ | ZINF_AIO_WRITE | (anew ? ZINF_AIO_CREATE : 0);
    char *path = zinf_path_join(s->store->paths[0].folder.path, ZINF_COMMIT_FILE);
    if (path && anew)
        unlink(path);
    int code = path ? zinf_aio_open(&s->area, path, flags) : -ENOMEM;
    if (!code)
        code = zinf_lock_wait(s->area->fd, path);
    free(path);
    return code;
}

static int make_area(struct zinf_steps *s, const struct zinf_commit_options *options)
{
    int code = steps_open_area(s, true);
    if (!code && fallocate(s->area->fd, 0, 0, (off_t)zinf_commit_area_bytes(options)) &&
        errno == ENOSPC)
        code = zinf_fail(-ENOSPC, "no space for %s", s->area->path);
    if (!code && ftruncate(s->area->fd, (off_t)zinf_commit_area_bytes(options)))
        code = zinf_fail(-errno, "cannot set the length of %s: %s", s->area->path, strerror(errno));
    if (!code)
        code = zinf_commit_create(&s->commit, options);
    if (!code)
        code = zinf_folder_sync(s->store->paths[0].folder.path);
    /* From here on a store without its commit area has lost its steps. */
    return code ? code : zinf_store_mark_kept(s->store);
}

static int recover(struct zinf_steps *s, const struct zinf_commit_options *options)
{
    int code = steps_open_area(s, false);
    if (!code && zinf_aio_file_bytes(s->area) != zinf_commit_area_bytes(options))
        code =
            zinf_fail(-EBADMSG, "%s has %" PRIu64 " of %" PRIu64 " bytes: it is damaged",
                      s->area->path, zinf_aio_file_bytes(s->area), zinf_commit_area_bytes(options));
    if (!code)
        code = zinf_commit_recover(&s->commit, options);
    if (code == -ENOENT && s->area) { /* the earlier process ended before its first step */
        code = zinf_store_zero(s->store);
        return code ? code : zinf_commit_create(&s->commit, options);
    }
    s->recovered = !code;
    /* Several ranks may have steps, so the message names the folder, which tells the rank. */
    const char *folder = s->store->paths[0].folder.path;
    if (code && !strstr(zinf_error(), folder))
        zinf_fail_in(code, "%s", folder);
    return code == -ENOENT ? zinf_fail_in(-EBADMSG, "the steps of this run are damaged") : code;
}

struct zinf_commit_options steps_commit_options(struct zinf_steps *s)
{
    struct zinf_store *store = s->store;
    struct zinf_commit_options options = {
        .io = {fence, area_read, area_write, flush, check, s},
        .n_pieces = store->bank_bytes / ZINF_AIO_ALIGN,
        /* Checksums are read as plain numbers: no transfer changes them during a commit or a
         * recovery. */
        .sums = {(uint32_t *)store->sums, (uint32_t *)store->sums + store->bank_sums},
    };
    memcpy(options.uuid, store->id, sizeof options.uuid);
    zinf_boot_name(options.boot);
    return options;
}

int zinf_steps_open(struct zinf_steps **out, struct zinf_store *store,
                    const struct zinf_steps_options *options)
{
    if (!store->allocated || !store->named || !store->checksums)
        return zinf_fail(-EINVAL, "steps outlive the process only in an allocated store with a run "
                                  "and checksums (zinf.checksums)");
    struct zinf_steps *s = calloc(1, sizeof *s);
    if (!s)
        return zinf_fail(-ENOMEM, "no memory for the steps of a store");
    s->store = store;
    struct zinf_commit_options commit = steps_commit_options(s);
    commit.layout = options->layout;
    commit.payload_bytes = options->payload_bytes;
    commit.flush = options->flush;
    int code = store->adopted ? recover(s, &commit) : make_area(s, &commit);
    if (code)
        zinf_steps_close(s);
    else
        *out = s;
    return code;
}

void zinf_steps_close(struct zinf_steps *s)
{
    if (!s)
        return;
    zinf_commit_destroy(s->commit);
    zinf_aio_close(s->area);
    free(s);
}

/* ---- use ---- */

bool zinf_steps_recovered(const struct zinf_steps *s, int *generation, const void **payload,
                          uint64_t *bytes)
{
    if (!s->recovered)
        return false;
    *generation = zinf_commit_bank(s->commit);
    *payload = zinf_commit_payload(s->commit, bytes);
    return true;
}

int zinf_steps_go_back(struct zinf_steps *s)
{
    return zinf_commit_go_back(s->commit);
}

int zinf_steps_begin(struct zinf_steps *s, int *generation)
{
    return zinf_commit_begin(s->commit, generation);
}

int zinf_steps_end(struct zinf_steps *s, const void *payload, uint64_t bytes)
{
    return zinf_commit_end(s->commit, payload, bytes);
}

uint64_t zinf_steps_count(const struct zinf_steps *s)
{
    return zinf_commit_any(s->commit) ? zinf_commit_epoch(s->commit) + 1 : 0;
}

void zinf_steps_forget(struct zinf_store *store)
{
    zinf_store_unmark(store);
}
