/*
 * aio_block: what becomes of a transfer. Short ones are continued, EINTR and EAGAIN repeated for
 * a bounded time, a failed read or a wrong checksum is read once more; anything else fails the
 * request and, for good, the queue.
 */
#include "aio/aio_queue.h"

#include <inttypes.h>

#define REPEAT_NS 30000000000ull /* how long transfers that move nothing are repeated */

void zinf_aio_block_fail(struct zinf_aio_queue *queue, const struct zinf_aio_block *block, int code)
{
    block->request->result = code;
    if (queue->error)
        return;
    queue->error = code;
    zinf_aio_describe_failure(queue->message, sizeof queue->message, block, code);
}

/* The rest of a block goes out at once, before new blocks; not if its work is in vain. */
static void resubmit(struct zinf_aio_queue *queue, struct zinf_aio_block *block)
{
    if (queue->error) {
        block->request->result = queue->error;
        zinf_aio_block_end(queue, block);
        return;
    }
    queue->engine->ops->stage(queue->engine, block);
}

/* Without this bound a drive that answers EAGAIN for ever would hang the run. */
static void repeat(struct zinf_aio_queue *queue, struct zinf_aio_block *block, int code)
{
    uint64_t now = zinf_now_ns();
    if (!block->repeats++)
        block->repeats_since = now;
    if (now - block->repeats_since > REPEAT_NS) {
        zinf_aio_block_fail(queue, block, code);
        zinf_aio_block_end(queue, block);
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

/* A plain file may end within a read; the files of a store never do. */
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
        zinf_aio_block_end(queue, block);
        return;
    }
    /* What follows must begin aligned, so a broken 4 KiB is moved again. */
    if (moved < block->bytes)
        moved -= moved % ZINF_AIO_ALIGN;
    move_on(block, moved);
    if (!block->bytes)
        zinf_aio_block_end(queue, block);
    else if (moved)
        resubmit(queue, block);
    else
        repeat(queue, block, -EIO);
}

void zinf_aio_block_done(struct zinf_aio_queue *queue, struct zinf_aio_block *block)
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
        zinf_aio_block_fail(queue, block, code ? code : -EIO);
    zinf_aio_block_end(queue, block);
}
