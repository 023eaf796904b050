/*
 * aio_queue: takes requests and returns them when they are finished, with any engine. Requests
 * wait in a heap by priority and age. Whenever a block is free, the first request gives its next
 * piece to the engine. So the queue depth is used up across requests and files as long as anything
 * waits, and a new request of higher priority gets the next free block. All memory is allocated at
 * creation. Short transfers are continued; EINTR and EAGAIN are repeated for a limited time; a
 * failed read, or one with a wrong checksum, is repeated once. Any other error fails the request
 * and, from then on, the queue.
 */
#include "build-config.h"

#include "aio/aio_queue.h"

#include "base/pulse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_DEPTH 4096u
#define MAX_BLOCK_BYTES (1u << 30) /* the kernel moves at most just under 2 GiB at once */
#define REPEAT_NS 30000000000ull   /* how long transfers that move nothing are repeated */
#define SLOW_NS 30000000000ull     /* after this time without progress a message is logged */

const char *zinf_aio_engine_name(enum zinf_aio_engine engine)
{
    switch (engine) {
    case ZINF_AIO_ENGINE_URING:
        return "io_uring";
    case ZINF_AIO_ENGINE_THREADS:
        return "threads";
    case ZINF_AIO_ENGINE_NULL:
        return "null";
    default:
        return "auto";
    }
}

/* ---- requests that wait: a heap, the most urgent first, then the oldest ---- */

static bool goes_before(const struct waiting *a, const struct waiting *b)
{
    if (a->request->priority != b->request->priority)
        return a->request->priority > b->request->priority;
    return a->age < b->age;
}

static void heap_push(struct zinf_aio_queue *queue, struct zinf_aio_request *request)
{
    struct waiting item = {request, queue->next_age++};
    uint32_t at = queue->n_waiting++;
    for (; at; at = (at - 1) / 2) {
        struct waiting *parent = &queue->waiting[(at - 1) / 2];
        if (!goes_before(&item, parent))
            break;
        queue->waiting[at] = *parent;
    }
    queue->waiting[at] = item;
}

static void heap_pop(struct zinf_aio_queue *queue)
{
    struct waiting item = queue->waiting[--queue->n_waiting];
    uint32_t at = 0, n = queue->n_waiting;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && goes_before(&queue->waiting[child + 1], &queue->waiting[child]))
            child++;
        if (!goes_before(&queue->waiting[child], &item))
            break;
        queue->waiting[at] = queue->waiting[child];
        at = child;
    }
    queue->waiting[at] = item;
}

/* ---- requests and blocks that end ---- */

/* Moves a request without outstanding blocks to the finished ones. */
static void finish_request(struct zinf_aio_queue *queue, struct zinf_aio_request *request)
{
    request->next = NULL;
    if (queue->finished_last)
        queue->finished_last->next = request;
    else
        queue->finished = request;
    queue->finished_last = request;
}

/* Ends a part of the request that was with the engine, or waited for its checksums. */
static void part_end(struct zinf_aio_queue *queue, struct zinf_aio_request *request)
{
    request->blocks_in_flight--;
    /* A failed request that still waits in the heap is finished by dispatch. */
    if (!request->blocks_in_flight && request->issued_bytes == request->bytes)
        finish_request(queue, request);
}

static void block_fail(struct zinf_aio_queue *queue, const struct zinf_aio_block *block, int code)
{
    block->request->result = code;
    if (queue->error)
        return;
    queue->error = code;
    zinf_aio_describe_failure(queue->message, sizeof queue->message, block, code);
}

/* ---- checksums ----
 * Pages are summed and compared block by block, each while others move: what was just read is still
 * in a cache, and neither the drive nor whoever waits for a request stands still for the sums of
 * all of it. A write's pages are summed when the engine has them, a read's compared when it gave
 * them back and the drive has new work; a request ends after the last of its pages. */

/* Puts off the checksums of a block's pages, of a write that begins or a read that has succeeded;
 * false: the block needs none. The part of a read ends when they have been compared. */
static bool sum_later(struct zinf_aio_queue *queue, const struct zinf_aio_block *block)
{
    const struct zinf_aio_request *request = block->request;
    bool reads = request->op == ZINF_AIO_OP_READ;
    if (!request->store || !request->store->checksums ||
        (reads && (request->result < 0 || queue->options.engine == ZINF_AIO_ENGINE_NULL)))
        return false;
    queue->summing[queue->n_summing++] =
        (struct summing){block->request, block->from, block->whole_bytes};
    return true;
}

/* Computes the checksums that were put off. All blocks were given to the engine before, so
 * transfers go on meanwhile. */
static void sum_due(struct zinf_aio_queue *queue)
{
    for (uint32_t i = 0; i < queue->n_summing; i++) {
        const struct summing *s = &queue->summing[i];
        uint64_t bad;
        if (s->request->op == ZINF_AIO_OP_WRITE) {
            zinf_store_sums_record(s->request, s->from, s->bytes);
            continue;
        }
        if (!zinf_store_sums_verify(s->request, s->from, s->bytes, &bad) &&
            bad < s->request->bad_offset)
            s->request->bad_offset = bad;
        part_end(queue, s->request);
    }
    queue->n_summing = 0;
}

/* Acts on a mismatch. False: the request is prepared to be read once more; a second mismatch fails
 * it. */
static bool request_judge(struct zinf_aio_queue *queue, struct zinf_aio_request *request)
{
    bool sums = request->store && request->store->checksums;
    if (sums && request->op == ZINF_AIO_OP_WRITE && request->result < 0)
        zinf_store_sums_forget(request);
    if (request->result < 0 || request->bad_offset == UINT64_MAX)
        return true;
    struct zinf_aio_block block = {.request = request, .op = ZINF_AIO_OP_READ};
    block.bytes = (uint32_t)zinf_store_locate(request, request->bad_offset, ZINF_AIO_ALIGN,
                                              &block.file, &block.offset);
    if (request->attempts++) {
        bool others = request->store->extents[request->extent].spans;
        block_fail(queue, &block, others ? -ESTALE : -EBADMSG);
        return true;
    }
    zinf_log(ZINF_LOG_WARN,
             "aio: checksum mismatch at offset %" PRIu64 " of %s: reads it once more", block.offset,
             block.file->path);
    request->issued_bytes = request->done_bytes = 0;
    request->bad_offset = UINT64_MAX;
    return false;
}

/* Frees the block; finishes its request if that was the last one. */
static void block_end(struct zinf_aio_queue *queue, struct zinf_aio_block *block)
{
    struct zinf_aio_request *request = block->request;
    zinf_pulse_beat(); /* its result counts where requests are submitted */
    block->busy = false;
    block->next = queue->free_blocks;
    queue->free_blocks = block;
    queue->blocks_in_flight--;
    if (block->op == ZINF_AIO_OP_WRITE || !sum_later(queue, block))
        part_end(queue, request);
}

/* ---- what becomes of a transfer ---- */

/* Submits the rest of a block at once, before new blocks, unless its request has failed. */
static void resubmit(struct zinf_aio_queue *queue, struct zinf_aio_block *block)
{
    if (queue->error) {
        block->request->result = queue->error;
        block_end(queue, block);
        return;
    }
    queue->engine->ops->stage(queue->engine, block);
}

/* Repeats a block for a limited time, so that a drive that always answers EAGAIN cannot hang the
 * run. */
static void repeat(struct zinf_aio_queue *queue, struct zinf_aio_block *block, int code)
{
    uint64_t now = zinf_now_ns();
    if (!block->repeats++)
        block->repeats_since = now;
    if (now - block->repeats_since > REPEAT_NS) {
        block_fail(queue, block, code);
        block_end(queue, block);
        return;
    }
    resubmit(queue, block);
}

static void move_on(struct zinf_aio_block *block, uint32_t moved)
{
    block->memory += moved;
    block->offset += moved;
    block->bytes -= moved;
    block->request->done_bytes += moved;
    if (moved)
        block->repeats = 0;
}

/* A plain file may end within a read; files of a store cannot. */
static bool ends_file(const struct zinf_aio_block *block, uint64_t moved)
{
    return block->op == ZINF_AIO_OP_READ && !block->file->lasting &&
           block->offset + moved >= zinf_aio_file_bytes(block->file);
}

static void moved_some(struct zinf_aio_queue *queue, struct zinf_aio_block *block)
{
    uint32_t moved = (uint32_t)block->result;
    if (moved < block->bytes && ends_file(block, moved)) {
        move_on(block, moved);
        block_end(queue, block);
        return;
    }
    /* The rest must begin on a page, so a page that was moved in part is moved again. */
    if (moved < block->bytes)
        moved -= moved % ZINF_AIO_ALIGN;
    move_on(block, moved);
    if (!block->bytes)
        block_end(queue, block);
    else if (moved)
        resubmit(queue, block);
    else
        repeat(queue, block, -EIO);
}

static void block_done(struct zinf_aio_queue *queue, struct zinf_aio_block *block)
{
    int code = block->result < 0 ? (int)block->result : 0;
    if (block->result > 0) {
        moved_some(queue, block);
        return;
    }
    if (code == -EAGAIN || code == -EINTR) {
        repeat(queue, block, code);
        return;
    }
    if ((code == -EIO || code == -ENODATA) && block->op == ZINF_AIO_OP_READ && !block->read_again) {
        block->read_again = true;
        resubmit(queue, block);
        return;
    }
    if (code || !ends_file(block, 0))
        block_fail(queue, block, code ? code : -EIO);
    block_end(queue, block);
}

/* ---- from requests to blocks ---- */

static void carve(struct zinf_aio_queue *queue, struct zinf_aio_request *request)
{
    struct zinf_aio_block *block = queue->free_blocks;
    uint64_t left = request->bytes - request->issued_bytes;
    uint64_t run = left < queue->options.block_bytes ? left : queue->options.block_bytes;
    uint64_t offset = request->offset + request->issued_bytes;
    queue->free_blocks = block->next;
    *block = (struct zinf_aio_block){
        .request = request,
        .file = request->file,
        .memory = (char *)request->memory + request->issued_bytes,
        .offset = offset,
        .from = request->issued_bytes,
        .op = request->op,
        .busy = true,
    };
    if (request->store)
        run = zinf_store_locate(request, offset, run, &block->file, &block->offset);
    block->bytes = (uint32_t)run;
    block->whole_bytes = run;
    if (block->op == ZINF_AIO_OP_WRITE)
        sum_later(queue, block);
    request->issued_bytes += run;
    request->blocks_in_flight++;
    queue->blocks_in_flight++;
    queue->engine->ops->stage(queue->engine, block);
}

/* The engine cannot be used any more: all blocks fail, since none will come back. */
static void break_queue(struct zinf_aio_queue *queue, int code)
{
    queue->broken = true;
    if (!queue->error) {
        queue->error = code;
        snprintf(queue->message, sizeof queue->message, "%s", zinf_error());
    }
    for (uint32_t i = 0; i < queue->options.queue_depth; i++) {
        struct zinf_aio_block *block = &queue->blocks[i];
        if (!block->busy)
            continue;
        block->request->result = code;
        block_end(queue, block);
    }
}

static void flush(struct zinf_aio_queue *queue)
{
    int code = queue->broken ? 0 : queue->engine->ops->flush(queue->engine);
    if (code)
        break_queue(queue, code);
}

/* Gives blocks to the engine up to the depth. In a failed queue it finishes the waiting requests.
 */
static void dispatch(struct zinf_aio_queue *queue)
{
    while (queue->n_waiting) {
        struct zinf_aio_request *request = queue->waiting[0].request;
        if (queue->error && !request->result)
            request->result = queue->error;
        if (request->result < 0) {
            heap_pop(queue);
            request->issued_bytes = request->bytes;
            if (!request->blocks_in_flight)
                finish_request(queue, request);
            continue;
        }
        if (!queue->free_blocks)
            break;
        carve(queue, request);
        if (request->issued_bytes == request->bytes)
            heap_pop(queue);
        if (queue->options.single_submit)
            flush(queue);
    }
}

/* Takes finished blocks from the engine and gives it new ones; waits up to timeout_ns for one. */
static void progress(struct zinf_aio_queue *queue, uint64_t timeout_ns)
{
    struct zinf_aio_block *done = NULL, *next;
    dispatch(queue);
    if (queue->n_summing) {
        flush(queue);
        sum_due(queue);
    }
    if (queue->blocks_in_flight && !queue->broken) {
        int code = queue->engine->ops->collect(queue->engine, timeout_ns, &done);
        if (done)
            queue->quiet_since = zinf_now_ns();
        for (; done; done = next) {
            next = done->next;
            block_done(queue, done);
        }
        if (code)
            break_queue(queue, code);
    }
    dispatch(queue);
    flush(queue);
    sum_due(queue);
}

/* ---- creation ---- */

static int resolve_options(struct zinf_aio_queue_options *options)
{
    if (!options->block_bytes)
        options->block_bytes = 1u << 20;
    if (!options->queue_depth)
        options->queue_depth = 32;
    if (!options->max_requests)
        options->max_requests = 256;
    if (!options->n_threads)
        options->n_threads = options->queue_depth < 8 ? options->queue_depth : 8;
    if (options->block_bytes % ZINF_AIO_ALIGN || options->block_bytes > MAX_BLOCK_BYTES)
        return zinf_fail(-EINVAL, "aio.block_size is %u: it must be a multiple of %d, at most %u",
                         options->block_bytes, ZINF_AIO_ALIGN, MAX_BLOCK_BYTES);
    if (options->queue_depth > MAX_DEPTH)
        return zinf_fail(-EINVAL, "aio.queue_depth is %u: it must be at most %u",
                         options->queue_depth, MAX_DEPTH);
    return 0;
}

static const struct zinf_aio_engine_ops *ops_of(enum zinf_aio_engine engine)
{
    switch (engine) {
    case ZINF_AIO_ENGINE_THREADS:
        return &zinf_aio_threads_ops;
    case ZINF_AIO_ENGINE_NULL:
        return &zinf_aio_null_ops;
    default:
        return &zinf_aio_uring_ops;
    }
}

static int create_engine(struct zinf_aio_queue *queue)
{
    struct zinf_aio_queue_options *options = &queue->options;
    int code = ops_of(options->engine)->create(&queue->engine, options);
    if (code && options->engine == ZINF_AIO_ENGINE_AUTO) {
        zinf_log_once(ZINF_LOG_WARN, "aio engine", "aio: uses I/O threads: %s", zinf_error());
        code = zinf_aio_threads_ops.create(&queue->engine, options);
    }
    if (code)
        return code;
    options->engine = queue->engine->ops->engine;
    for (int i = 0; !code && i < 2; i++)
        if (options->around[i].wrap)
            code = options->around[i].wrap(&queue->engine, options, options->around[i].context);
    return code;
}

int zinf_aio_queue_create(struct zinf_aio_queue **out, const struct zinf_aio_queue_options *options)
{
    struct zinf_aio_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return zinf_fail(-ENOMEM, "no memory for an I/O queue");
    queue->options = *options;
    int code = resolve_options(&queue->options);
    if (code)
        goto fail;
    queue->blocks = calloc(queue->options.queue_depth, sizeof *queue->blocks);
    queue->summing = calloc(2 * (size_t)queue->options.queue_depth, sizeof *queue->summing);
    queue->waiting = calloc(queue->options.max_requests, sizeof *queue->waiting);
    if (!queue->blocks || !queue->waiting || !queue->summing) {
        code = zinf_fail(-ENOMEM, "no memory for an I/O queue of depth %u",
                         queue->options.queue_depth);
        goto fail;
    }
    for (uint32_t i = queue->options.queue_depth; i--;) {
        queue->blocks[i].next = queue->free_blocks;
        queue->free_blocks = &queue->blocks[i];
    }
    code = create_engine(queue);
    if (code)
        goto fail;
    *out = queue;
    return 0;
fail:
    zinf_aio_queue_destroy(queue);
    return code;
}

void zinf_aio_queue_destroy(struct zinf_aio_queue *queue)
{
    if (!queue)
        return;
    while (queue->blocks_in_flight || queue->n_waiting)
        progress(queue, SLOW_NS);
    if (queue->engine)
        queue->engine->ops->destroy(queue->engine);
    free(queue->waiting);
    free(queue->summing);
    free(queue->blocks);
    free(queue);
}

int zinf_aio_queue_register(struct zinf_aio_queue *queue, void *base, uint64_t bytes)
{
    if ((uintptr_t)base % ZINF_AIO_ALIGN || bytes % ZINF_AIO_ALIGN || !bytes)
        return zinf_fail(-EINVAL, "memory to register must be aligned to %d", ZINF_AIO_ALIGN);
    return queue->engine->ops->register_memory(queue->engine, base, bytes);
}

/* ---- use ---- */

static int check_request(const struct zinf_aio_queue *queue, const struct zinf_aio_request *request)
{
    if (!request->file == !request->store)
        return zinf_fail(-EINVAL, "an I/O request needs a file or a store, and not both");
    if (request->offset % ZINF_AIO_ALIGN || request->bytes % ZINF_AIO_ALIGN ||
        (uintptr_t)request->memory % ZINF_AIO_ALIGN || !request->bytes)
        return zinf_fail(-EINVAL,
                         "an I/O request of %" PRIu64 " bytes at offset %" PRIu64
                         " with memory at %p: each must be a multiple of %d",
                         request->bytes, request->offset, request->memory, ZINF_AIO_ALIGN);
    if (request->offset > INT64_MAX || request->bytes > INT64_MAX - request->offset)
        return zinf_fail(-EINVAL, "an I/O request ends beyond 2^63");
    bool moves = queue->options.engine != ZINF_AIO_ENGINE_NULL;
    return request->store ? zinf_store_check_range(request, moves) : 0;
}

int zinf_aio_submit(struct zinf_aio_queue *queue, struct zinf_aio_request *request)
{
    if (queue->error)
        return zinf_fail(queue->error, "%s", queue->message);
    if (queue->n_requests == queue->options.max_requests)
        return zinf_fail(-EAGAIN, "%u I/O requests are in flight: reap first", queue->n_requests);
    int code = check_request(queue, request);
    if (code)
        return code;
    request->result = 0;
    request->issued_bytes = request->done_bytes = 0;
    request->blocks_in_flight = request->attempts = 0;
    request->bad_offset = UINT64_MAX;
    request->begin_ns = zinf_now_ns();
    request->end_ns = 0;
    request->next = NULL;
    if (!queue->n_requests++)
        queue->quiet_since = request->begin_ns;
    if (request->store && request->store->checksums && request->op == ZINF_AIO_OP_WRITE)
        zinf_store_sums_forget(request);
    heap_push(queue, request);
    progress(queue, 0);
    return 0;
}

/* Takes the first finished request, or NULL. A request with a checksum mismatch is submitted again.
 */
static struct zinf_aio_request *take_finished(struct zinf_aio_queue *queue)
{
    struct zinf_aio_request *request;
    while ((request = queue->finished)) {
        queue->finished = request->next;
        if (!queue->finished)
            queue->finished_last = NULL;
        if (!request_judge(queue, request)) {
            heap_push(queue, request);
            progress(queue, 0);
            continue;
        }
        if (!request->result)
            request->result = (int64_t)request->done_bytes;
        request->end_ns = zinf_now_ns();
        queue->n_requests--;
        return request;
    }
    return NULL;
}

/* Logs a wait of many seconds, so that a drive that hangs does not look like a slow program. */
static void watch_slow(struct zinf_aio_queue *queue, uint64_t now)
{
    if (now - queue->quiet_since < SLOW_NS)
        return;
    for (uint32_t i = 0; i < queue->options.queue_depth; i++) {
        const struct zinf_aio_block *block = &queue->blocks[i];
        if (!block->busy)
            continue;
        zinf_log(ZINF_LOG_WARN,
                 "aio: nothing finished for 30 s; waits for %s at offset %" PRIu64
                 " (%u transfers in flight): see dmesg",
                 block->file->path, block->offset, queue->blocks_in_flight);
        break;
    }
    queue->quiet_since = now;
}

struct zinf_aio_request *zinf_aio_reap(struct zinf_aio_queue *queue, uint64_t timeout_ns)
{
    uint64_t now = timeout_ns ? zinf_now_ns() : 0;
    uint64_t deadline = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    uint64_t wait = 0;
    for (;;) {
        progress(queue, queue->finished ? 0 : wait);
        struct zinf_aio_request *request = take_finished(queue);
        if (request || !queue->n_requests || !timeout_ns)
            return request;
        now = zinf_now_ns();
        if (now >= deadline)
            return NULL;
        watch_slow(queue, now);
        wait = deadline - now < SLOW_NS ? deadline - now : SLOW_NS;
    }
}

uint32_t zinf_aio_in_flight(const struct zinf_aio_queue *queue)
{
    return queue->n_requests;
}

int zinf_aio_queue_error(const struct zinf_aio_queue *queue, const char **message)
{
    if (message)
        *message = queue->message;
    return queue->error;
}

enum zinf_aio_engine zinf_aio_queue_engine(const struct zinf_aio_queue *queue)
{
    return queue->options.engine;
}
