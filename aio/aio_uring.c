/*
 * aio_uring: the io_uring engine; the only file that knows liburing.
 *
 * A ring has one submitter, and with DEFER_TASKRUN its completions make progress only while that
 * thread is inside io_uring_enter, so collect enters the kernel even if it is not to wait. The ring
 * is created disabled and enabled at the first flush: then its submitter is the thread that uses
 * the queue, not the one that created it. Memory and files are registered with the ring if the
 * kernel allows it; transfers work without, at some CPU cost.
 */
#include "build-config.h"

#include "aio/aio_engine.h"

#include <liburing.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_SLABS 1024          /* pieces of registered memory */
#define SLAB_BYTES (1ull << 30) /* the kernel's limit for one */
#define MAX_FILES 64            /* registered files; stores have one per path */

struct slab {
    char *base;
    uint64_t bytes;
    uint32_t slot;
};

struct uring_engine {
    struct zinf_aio_backend base;
    struct io_uring ring;
    bool enabled;
    bool has_slabs, has_files; /* the kernel gave us the tables */
    uint32_t n_slabs, n_files, last_file;
    struct slab slabs[MAX_SLABS]; /* [n_slabs], by address */
    uint64_t files[MAX_FILES];    /* [n_files] id of the file in each slot */
};

/* ---- ring ---- */

/* Older kernels count a ring as locked memory and return that of a closed ring a little later, so
 * this tries again for a while. */
static int init_ring_with(struct io_uring *ring, uint32_t entries, unsigned flags)
{
    int code = -ENOMEM;
    for (int tries = 0; tries < 20 && code == -ENOMEM; tries++) {
        struct io_uring_params params = {.flags = flags, .sq_thread_idle = 50};
        if (tries)
            usleep(2000);
        code = io_uring_queue_init_params(entries, ring, &params);
    }
    return code;
}

/* Tries the best flags first. A kernel that does not know one of them returns EINVAL. */
static int init_ring(struct io_uring *ring, uint32_t entries, bool sqpoll)
{
    static const unsigned plain[] = {
        IORING_SETUP_SUBMIT_ALL | IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER |
            IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG, /* 6.1 */
        IORING_SETUP_SUBMIT_ALL | IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN |
            IORING_SETUP_TASKRUN_FLAG, /* 5.19 */
        IORING_SETUP_R_DISABLED,       /* 5.10 */
    };
    static const unsigned polled[] = {
        IORING_SETUP_SUBMIT_ALL | IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER |
            IORING_SETUP_SQPOLL,
        IORING_SETUP_R_DISABLED | IORING_SETUP_SQPOLL,
        IORING_SETUP_R_DISABLED | IORING_SETUP_SQPOLL,
    };
    /* The polling thread frees the entries of a batch after it has issued the whole batch. Some of
     * its transfers may be finished and followed by new ones by then. */
    if (sqpoll)
        entries *= 2;
    int code = -EINVAL;
    for (int i = 0; i < 3 && code == -EINVAL; i++)
        code = init_ring_with(ring, entries, sqpoll ? polled[i] : plain[i]);
    return code;
}

/* liburing before 2.4 declares io_uring_enable_rings but does not export it. */
static int enable_ring(struct io_uring *ring)
{
    long code =
        syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
    return code < 0 ? -errno : 0;
}

/* Runs one operation on a ring, since a security filter may allow io_uring_setup and refuse the
 * other calls. */
static int try_ring(void)
{
    struct io_uring ring;
    struct io_uring_cqe *cqe;
    int code = init_ring(&ring, 4, false);
    if (code)
        return code;
    struct io_uring_probe *probe = io_uring_get_probe_ring(&ring);
    if (!probe || !io_uring_opcode_supported(probe, IORING_OP_WRITE))
        code = -ENOSYS;
    io_uring_free_probe(probe);
    if (!code)
        code = enable_ring(&ring);
    if (!code) {
        io_uring_prep_nop(io_uring_get_sqe(&ring));
        int submitted = io_uring_submit(&ring);
        code = submitted == 1 ? io_uring_wait_cqe(&ring, &cqe) : submitted < 0 ? submitted : -EIO;
    }
    io_uring_queue_exit(&ring);
    return code;
}

static const char *refusal(int code)
{
    char *text;
    size_t bytes;
    int disabled = 0;
    if (code == -EPERM &&
        !zinf_file_read("/proc/sys/kernel/io_uring_disabled", 64, &text, &bytes)) {
        disabled = atoi(text);
        free(text);
    }
    if (disabled)
        return "the setting kernel.io_uring_disabled forbids it; as root: "
               "sysctl -w kernel.io_uring_disabled=0";
    switch (code) {
    case -EPERM:
    case -EACCES:
        return "a security filter refuses it, as containers do by default; allow it with "
               "docker run --security-opt seccomp=unconfined";
    case -ENOSYS:
        return "the kernel has no io_uring (5.10 is needed), or a container's filter hides it: "
               "docker run --security-opt seccomp=unconfined";
    case -ENOMEM:
        return "the limit of locked memory is too low for a ring: ulimit -l unlimited "
               "(docker run --ulimit memlock=-1)";
    case -EMFILE:
        return "this process has too many open files: raise ulimit -n";
    default:
        return "the kernel refuses a ring of ours (5.10 is needed)";
    }
}

int zinf_aio_uring_probe(const char **why)
{
    int code = try_ring();
    if (why)
        *why = code ? refusal(code) : "";
    return code;
}

static int uring_create(struct zinf_aio_backend **out, const struct zinf_aio_queue_options *options)
{
    const char *why;
    int code = zinf_aio_uring_probe(&why);
    if (code)
        return zinf_fail(code, "io_uring cannot be used (%s): %s", strerror(-code), why);
    struct uring_engine *uring = calloc(1, sizeof *uring);
    if (!uring)
        return zinf_fail(-ENOMEM, "no memory for the io_uring engine");
    uring->base.ops = &zinf_aio_uring_ops;
    code = init_ring(&uring->ring, options->queue_depth, options->sqpoll);
    if (code) {
        free(uring);
        return zinf_fail(code, "no ring of %u entries (%s): lower aio.queue_depth%s",
                         options->queue_depth, strerror(-code),
                         options->sqpoll ? " or leave sqpoll off" : "");
    }
    uring->has_files = io_uring_register_files_sparse(&uring->ring, MAX_FILES) == 0;
    *out = &uring->base;
    return 0;
}

static void uring_destroy(struct zinf_aio_backend *engine)
{
    struct uring_engine *uring = (struct uring_engine *)engine;
    io_uring_queue_exit(&uring->ring);
    free(uring);
}

/* ---- registered memory and files ---- */

static void insert_slab(struct uring_engine *uring, struct slab slab)
{
    uint32_t at = uring->n_slabs++;
    for (; at && uring->slabs[at - 1].base > slab.base; at--)
        uring->slabs[at] = uring->slabs[at - 1];
    uring->slabs[at] = slab;
}

static int register_slab(struct uring_engine *uring, char *base, uint64_t bytes)
{
    struct iovec vector = {.iov_base = base, .iov_len = bytes};
    __u64 tag = 0;
    uint32_t slot = uring->n_slabs;
    if (slot == MAX_SLABS)
        return -ENOSPC;
    if (!uring->has_slabs) {
        int code = io_uring_register_buffers_sparse(&uring->ring, MAX_SLABS);
        if (code)
            return code;
        uring->has_slabs = true;
    }
    int code = io_uring_register_buffers_update_tag(&uring->ring, slot, &vector, &tag, 1);
    if (code < 0)
        return code;
    insert_slab(uring, (struct slab){base, bytes, slot});
    return 0;
}

static int uring_register(struct zinf_aio_backend *engine, void *base, uint64_t bytes)
{
    struct uring_engine *uring = (struct uring_engine *)engine;
    for (uint64_t at = 0; at < bytes; at += SLAB_BYTES) {
        uint64_t length = bytes - at < SLAB_BYTES ? bytes - at : SLAB_BYTES;
        int code = register_slab(uring, (char *)base + at, length);
        if (!code)
            continue;
        char size[16], limit_text[16];
        struct rlimit limit = {0};
        getrlimit(RLIMIT_MEMLOCK, &limit);
        zinf_log_once(ZINF_LOG_WARN, "aio registered buffers",
                      "aio: %s of buffers cannot be registered (%s; limit of locked memory %s): "
                      "goes on without, at some CPU cost; ulimit -l unlimited "
                      "(docker run --ulimit memlock=-1) allows it",
                      zinf_size_format(size, sizeof size, bytes), strerror(-code),
                      zinf_size_format(limit_text, sizeof limit_text, limit.rlim_cur));
        break;
    }
    return 0;
}

/* The slot of the registered memory that holds all of the block, or -1. */
static int find_slab(const struct uring_engine *uring, const struct zinf_aio_block *block)
{
    uint32_t low = 0, high = uring->n_slabs;
    while (low < high) { /* finds the first slab that begins above the block */
        uint32_t middle = low + (high - low) / 2;
        if (uring->slabs[middle].base > block->memory)
            high = middle;
        else
            low = middle + 1;
    }
    if (!low)
        return -1;
    const struct slab *slab = &uring->slabs[low - 1];
    bool inside = block->memory + block->bytes <= slab->base + slab->bytes;
    return inside ? (int)slab->slot : -1;
}

/* The slot of a lasting file, which is registered when it is first seen, or -1. Other files are not
 * registered, because the ring would keep them open after their owner has closed them. */
static int find_file(struct uring_engine *uring, const struct zinf_aio_file *file)
{
    if (!uring->has_files || !file->lasting)
        return -1;
    if (uring->n_files && uring->files[uring->last_file] == file->id)
        return (int)uring->last_file;
    for (uint32_t i = 0; i < uring->n_files; i++) {
        if (uring->files[i] == file->id) {
            uring->last_file = i;
            return (int)i;
        }
    }
    if (uring->n_files == MAX_FILES ||
        io_uring_register_files_update(&uring->ring, uring->n_files, &file->fd, 1) != 1)
        return -1;
    uring->files[uring->n_files] = file->id;
    return (int)uring->n_files++;
}

/* ---- transfers ---- */

static void uring_stage(struct zinf_aio_backend *engine, struct zinf_aio_block *block)
{
    struct uring_engine *uring = (struct uring_engine *)engine;
    /* There is always an entry: see init_ring. */
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    int slab = find_slab(uring, block);
    int slot = find_file(uring, block->file);
    int fd = slot >= 0 ? slot : block->file->fd;
    if (block->op == ZINF_AIO_OP_READ) {
        if (slab >= 0)
            io_uring_prep_read_fixed(sqe, fd, block->memory, block->bytes, block->offset, slab);
        else
            io_uring_prep_read(sqe, fd, block->memory, block->bytes, block->offset);
    } else {
        if (slab >= 0)
            io_uring_prep_write_fixed(sqe, fd, block->memory, block->bytes, block->offset, slab);
        else
            io_uring_prep_write(sqe, fd, block->memory, block->bytes, block->offset);
    }
    if (slot >= 0)
        sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(sqe, block);
}

/* Whether io_uring_enter can be called again: the entries are still in the ring. */
static bool passing(int code)
{
    return code == -EAGAIN || code == -EBUSY || code == -EINTR || code == -ETIME;
}

static int broken(int code)
{
    return zinf_fail(code, "io_uring_enter: %s%s", strerror(-code),
                     code == -EEXIST ? " (a queue belongs to the thread that first submits)" : "");
}

static int enable(struct uring_engine *uring)
{
    if (uring->enabled)
        return 0;
    int code = enable_ring(&uring->ring);
    if (code)
        return zinf_fail(code, "cannot enable the ring: %s", strerror(-code));
    uring->enabled = true;
    return 0;
}

static int uring_flush(struct zinf_aio_backend *engine)
{
    struct uring_engine *uring = (struct uring_engine *)engine;
    if (!io_uring_sq_ready(&uring->ring))
        return 0;
    int code = enable(uring);
    if (!code)
        code = io_uring_submit(&uring->ring);
    return code >= 0 || passing(code) ? 0 : broken(code);
}

static struct zinf_aio_block *take_completions(struct io_uring *ring)
{
    struct zinf_aio_block *done = NULL;
    struct io_uring_cqe *cqe;
    unsigned head, n = 0;
    io_uring_for_each_cqe(ring, head, cqe)
    {
        struct zinf_aio_block *block = io_uring_cqe_get_data(cqe);
        n++;
        if (!block) /* a timeout, which liburing submits on older kernels */
            continue;
        block->result = cqe->res;
        block->next = done;
        done = block;
    }
    io_uring_cq_advance(ring, n);
    return done;
}

static int enter(struct uring_engine *uring, uint64_t timeout_ns)
{
    struct io_uring *ring = &uring->ring;
    struct io_uring_cqe *cqe;
    if (timeout_ns && !io_uring_cq_ready(ring)) {
        struct __kernel_timespec time = {.tv_sec = (int64_t)(timeout_ns / 1000000000u),
                                         .tv_nsec = (long long)(timeout_ns % 1000000000u)};
        return io_uring_submit_and_wait_timeout(ring, &cqe, 1, &time, NULL);
    }
    /* The flags say that completions wait until this thread enters the kernel. */
    unsigned flags = IO_URING_READ_ONCE(*ring->sq.kflags);
    if (io_uring_sq_ready(ring) || (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)))
        return io_uring_submit_and_get_events(ring);
    return 0;
}

static int uring_collect(struct zinf_aio_backend *engine, uint64_t timeout_ns,
                         struct zinf_aio_block **done)
{
    struct uring_engine *uring = (struct uring_engine *)engine;
    *done = NULL;
    int code = enable(uring);
    if (!code)
        code = enter(uring, timeout_ns);
    if (code < 0 && !passing(code))
        return broken(code);
    *done = take_completions(&uring->ring);
    return 0;
}

const struct zinf_aio_engine_ops zinf_aio_uring_ops = {
    .engine = ZINF_AIO_ENGINE_URING,
    .create = uring_create,
    .destroy = uring_destroy,
    .register_memory = uring_register,
    .stage = uring_stage,
    .flush = uring_flush,
    .collect = uring_collect,
};
