/*
 * aio_sums: when pages are summed and compared. Block by block, each while others move: what was
 * just read is still in a cache, and neither the drive nor whoever waits for a request stands still
 * for the sums of all of it. A write's pages are summed when the engine has them, a read's compared
 * when it gave them back and the drive has new work; a request ends after the last of its pages.
 */
#include "aio/aio_queue.h"

#include <inttypes.h>

bool zinf_aio_sum_later(struct zinf_aio_queue *queue, const struct zinf_aio_block *block)
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

void zinf_aio_sum_due(struct zinf_aio_queue *queue)
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
        zinf_aio_part_end(queue, s->request);
    }
    queue->n_summing = 0;
}

bool zinf_aio_request_judge(struct zinf_aio_queue *queue, struct zinf_aio_request *request)
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
        zinf_aio_block_fail(queue, &block, others ? -ESTALE : -EBADMSG);
        return true;
    }
    zinf_log(ZINF_LOG_WARN,
             "aio: checksum mismatch at offset %" PRIu64 " of %s: reads it once more", block.offset,
             block.file->path);
    request->issued_bytes = request->done_bytes = 0;
    request->bad_offset = UINT64_MAX;
    return false;
}
