/*
 * steps: the commit protocol over a store's own files. The commit area is a file of its own beside
 * the extents of the first path; the checksums that the store keeps of every piece are its
 * manifest.
 */
#include "build-config.h"

#include "aio/steps.h"

#include "aio/aio_store.h"
#include "aio/commit_record.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct zinf_steps {
    struct zinf_store *store;
    struct zinf_commit *commit;
    struct zinf_aio_file *area;
    uint64_t *sums; /* [n_pieces] of a bank */
    uint64_t n_pieces;
    char *block;       /* a piece, for comparing */
    uint32_t at;       /* the extent of the piece compared last */
    uint64_t at_piece; /* its first piece */
    bool recovered;
};

/* ---- pieces: those of the extents with two generations, one after the other ---- */

static uint64_t pieces_of(const struct zinf_store *store, const struct zinf_store_extent *extent)
{
    return (extent->bytes + store->stripe_bytes - 1) / store->stripe_bytes;
}

static uint64_t count_pieces(const struct zinf_store *store)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < store->n_extents; i++)
        n += store->extents[i].n_generations == 2 ? pieces_of(store, &store->extents[i]) : 0;
    return n;
}

/* Between the store's table and a bank's list. */
static void move_sums(struct zinf_store *store, int bank, uint64_t *list, bool into_store)
{
    for (uint32_t i = 0; i < store->n_extents; i++) {
        const struct zinf_store_extent *extent = &store->extents[i];
        uint64_t n = pieces_of(store, extent);
        _Atomic uint64_t *sums = store->sums + extent->first_sum + (uint64_t)bank * n;
        for (uint64_t k = 0; extent->n_generations == 2 && k < n; k++, list++)
            if (into_store)
                atomic_store_explicit(&sums[k], *list, memory_order_relaxed);
            else
                *list = atomic_load_explicit(&sums[k], memory_order_relaxed);
    }
}

/* ---- the calls of the commit ---- */

/* The store's files are locked since it was allocated. */
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
        if (!n) /* beyond the end: never written */
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

static int check(void *arg, int bank, uint64_t piece, uint64_t sum)
{
    struct zinf_steps *s = arg;
    const struct zinf_store *store = s->store;
    if (piece < s->at_piece)
        s->at_piece = s->at = 0;
    for (;; s->at++) {
        const struct zinf_store_extent *extent = &store->extents[s->at];
        uint64_t n = extent->n_generations == 2 ? pieces_of(store, extent) : 0;
        if (piece < s->at_piece + n)
            break;
        s->at_piece += n;
    }
    uint64_t offset = (piece - s->at_piece) * store->stripe_bytes;
    uint64_t left = store->extents[s->at].bytes - offset;
    uint64_t bytes = left < store->stripe_bytes ? left : store->stripe_bytes;
    int code = zinf_store_read_generation(s->store, s->at, (uint8_t)bank, offset, s->block, bytes);
    uint64_t found = code ? 0 : XXH3_64bits(s->block, bytes);
    return code || (found ? found : 1) == sum ? code : -EBADMSG;
}

/* ---- life ---- */

static int open_area(struct zinf_steps *s, bool anew)
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
    int code = open_area(s, true);
    if (!code && fallocate(s->area->fd, 0, 0, (off_t)zinf_commit_area_bytes(options)) &&
        errno == ENOSPC)
        code = zinf_fail(-ENOSPC, "no space for %s", s->area->path);
    if (!code)
        code = zinf_commit_create(&s->commit, options);
    return code ? code : zinf_folder_sync(s->store->paths[0].folder.path);
}

static int recover(struct zinf_steps *s, const struct zinf_commit_options *options)
{
    int code = open_area(s, false);
    if (!code)
        code = zinf_commit_recover(&s->commit, options);
    if (code == -ENOENT) { /* it died before its first step */
        zinf_aio_close(s->area);
        s->area = NULL;
        return make_area(s, options);
    }
    if (code)
        return code;
    s->recovered = true;
    memcpy(s->sums, zinf_commit_sums(s->commit), s->n_pieces * sizeof *s->sums);
    move_sums(s->store, zinf_commit_bank(s->commit), s->sums, true);
    return 0;
}

int zinf_steps_open(struct zinf_steps **out, struct zinf_store *store,
                    const struct zinf_steps_options *options)
{
    if (!store->allocated || !store->named || !store->checksums)
        return zinf_fail(-EINVAL, "steps outlive the process only in an allocated store with a run "
                                  "and checksums (zinf.checksums)");
    struct zinf_steps *s = calloc(1, sizeof *s);
    struct zinf_commit_options commit = {
        .io = {fence, area_read, area_write, flush, check, s},
        .layout = options->layout,
        .n_pieces = count_pieces(store),
        .payload_bytes = options->payload_bytes,
        .flush = options->flush,
        .verify = options->verify,
    };
    memcpy(commit.uuid, store->id, sizeof commit.uuid);
    zinf_boot_name(commit.boot);
    int code = s ? 0 : zinf_fail(-ENOMEM, "no memory for the steps of a store");
    if (code)
        return code;
    s->store = store;
    s->n_pieces = commit.n_pieces;
    s->sums = calloc(commit.n_pieces + 1, sizeof *s->sums);
    if (!s->sums || posix_memalign((void **)&s->block, ZINF_AIO_ALIGN, store->stripe_bytes))
        code = zinf_fail(-ENOMEM, "no memory for the steps of a store");
    if (!code)
        code = store->adopted ? recover(s, &commit) : make_area(s, &commit);
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
    free(s->block);
    free(s->sums);
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

int zinf_steps_begin(struct zinf_steps *s, int *generation)
{
    return zinf_commit_begin(s->commit, generation);
}

int zinf_steps_end(struct zinf_steps *s, const void *payload, uint64_t bytes)
{
    int bank = zinf_commit_any(s->commit) ? !zinf_commit_bank(s->commit) : 0;
    move_sums(s->store, bank, s->sums, false);
    return zinf_commit_end(s->commit, s->sums, payload, bytes);
}

uint64_t zinf_steps_count(const struct zinf_steps *s)
{
    return zinf_commit_any(s->commit) ? zinf_commit_epoch(s->commit) + 1 : 0;
}

void zinf_steps_forget(struct zinf_store *store)
{
    zinf_store_unmark(store);
}
