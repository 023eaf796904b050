/*
 * commit: the order of writes and flushes. Each numbered comment is a rule that the test breaks,
 * one at a time, to see that a crash then loses or falsifies a step.
 */
#include "aio/commit_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- life ---- */

uint64_t zinf_commit_area_bytes(const struct zinf_commit_options *options)
{
    return commit_manifest_offset(0, 0) + 2 * commit_manifest_bytes(options);
}

static void *aligned_zeros(uint64_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, COMMIT_BLOCK, bytes))
        return NULL;
    return memset(memory, 0, bytes);
}

int commit_make(struct zinf_commit **out, const struct zinf_commit_options *options)
{
    struct zinf_commit *c = calloc(1, sizeof *c);
    if (!c)
        return zinf_fail(-ENOMEM, "no memory for the commits of a store");
    c->options = *options;
    c->payload = aligned_zeros(commit_payload_bytes(options));
    c->blocks = aligned_zeros(COMMIT_COPIES * COMMIT_BLOCK);
    if (c->payload && c->blocks) {
        *out = c;
        return 0;
    }
    zinf_commit_destroy(c);
    return zinf_fail(-ENOMEM, "no memory for the commits of a store");
}

void zinf_commit_destroy(struct zinf_commit *c)
{
    if (!c)
        return;
    free(c->blocks);
    free(c->payload);
    free(c);
}

int commit_write_blocks(const struct zinf_commit *c, uint64_t offset)
{
    return c->options.io.write(c->options.io.arg, offset, c->blocks, COMMIT_COPIES * COMMIT_BLOCK);
}

int zinf_commit_create(struct zinf_commit **out, const struct zinf_commit_options *options)
{
    const struct zinf_commit_io *io = &options->io;
    struct zinf_commit *c;
    int code = commit_make(&c, options);
    if (code)
        return code;
    code = io->fence(io->arg);
    commit_empty_encode(c->blocks, options);
    /* Slots first, so that no record of an earlier store is left behind the new header. */
    for (uint64_t slot = 0; !code && slot < 2; slot++)
        code = commit_write_blocks(c, commit_slot_offset(slot));
    if (!code)
        code = io->flush(io->arg);
    commit_header_encode(c->blocks, options);
    if (!code)
        code = commit_write_blocks(c, 0);
    if (!code)
        code = io->flush(io->arg);
    if (code)
        zinf_commit_destroy(c);
    else
        *out = c;
    return code;
}

/* ---- a step ---- */

static int poison(struct zinf_commit *c, int code)
{
    c->poison = code;
    snprintf(c->message, sizeof c->message, "%s", zinf_error());
    return code;
}

static int check_poison(const struct zinf_commit *c)
{
    if (!c->poison)
        return 0;
    return zinf_fail(c->poison,
                     "the store took no more commits after an error, since nobody knows what is on "
                     "the drive (%s): end the run and resume it",
                     c->message);
}

static uint64_t next_epoch(const struct zinf_commit *c)
{
    return c->any ? c->epoch + 1 : 0;
}

int zinf_commit_begin(struct zinf_commit *c, int *bank)
{
    int code = check_poison(c);
    if (code)
        return code;
    /* P1: the bank of the newest committed epoch is never handed out. Since begin comes after end,
     * and end after its flush, the other bank's epoch is durably replaced. */
    *bank = (int)(next_epoch(c) & 1);
    c->writing = true;
    return 0;
}

static int flush(const struct zinf_commit *c)
{
    return c->options.flush ? c->options.io.flush(c->options.io.arg) : 0;
}

/* P8: every piece of what is committed has a checksum. */
int commit_check_known(const struct zinf_commit *c, const uint32_t *sums)
{
    for (uint64_t i = 0; i < c->options.n_pieces; i++)
        if (!sums[i])
            return zinf_fail(
                -EBADMSG,
                "a step cannot be committed: piece %" PRIu64 " of it was never written whole", i);
    return 0;
}

static void build_payload(struct zinf_commit *c, const void *payload, uint64_t bytes)
{
    memset(c->payload, 0, commit_payload_bytes(&c->options));
    c->payload[0] = bytes;
    if (bytes)
        memcpy(c->payload + 1, payload, bytes);
}

uint64_t commit_sum(const struct zinf_commit *c, const struct commit_record *record)
{
    return commit_manifest_sum(record, c->payload, commit_payload_bytes(&c->options),
                               c->options.sums[record->epoch & 1],
                               ZINF_COMMIT_SUMS(c->options.n_pieces));
}

static struct commit_record make_record(const struct zinf_commit *c)
{
    struct commit_record record = {.flushed = c->options.flush,
                                   .epoch = next_epoch(c),
                                   .attempt = c->attempt,
                                   .layout = c->options.layout,
                                   .manifest_bytes = commit_manifest_bytes(&c->options),
                                   .previous = c->last_sum};
    memcpy(record.uuid, c->options.uuid, sizeof record.uuid);
    memcpy(record.boot, c->options.boot, sizeof record.boot);
    record.manifest_sum = commit_sum(c, &record);
    return record;
}

static int write_manifest(const struct zinf_commit *c, const struct commit_record *record)
{
    const struct zinf_commit_io *io = &c->options.io;
    uint64_t head = commit_payload_bytes(&c->options);
    uint64_t at = commit_manifest_offset(record->epoch, record->manifest_bytes);
    int code = io->write(io->arg, at, c->payload, head);
    if (!code && record->manifest_bytes > head)
        code = io->write(io->arg, at + head, c->options.sums[record->epoch & 1],
                         record->manifest_bytes - head);
    return code;
}

int zinf_commit_end(struct zinf_commit *c, const void *payload, uint64_t payload_bytes)
{
    int code = check_poison(c);
    if (code)
        return code;
    if (!c->writing || payload_bytes > c->options.payload_bytes)
        return zinf_fail(-EINVAL, "a commit of %" PRIu64 " bytes without a step, or of too many",
                         payload_bytes);
    code = commit_check_known(c, c->options.sums[next_epoch(c) & 1]);
    if (code)
        return poison(c, code);
    build_payload(c, payload, payload_bytes);
    struct commit_record record = make_record(c);
    code = write_manifest(c, &record);
    /* P2: pieces and manifest are durable before the record that names them is written. A failed
     * flush is never repeated (P7). */
    if (!code)
        code = flush(c);
    uint64_t sum = commit_record_encode(c->blocks, &record);
    /* P3: slots alternate, so the newest durable record is not the one that is overwritten. */
    if (!code)
        code = commit_write_blocks(c, commit_slot_offset(record.epoch));
    /* P6: what is reported as committed is durable; only then may the older bank be written. */
    if (!code)
        code = flush(c);
    if (code)
        return poison(c, code);
    c->epoch = record.epoch; /* P5: epochs grow by one */
    c->last_sum = sum;
    c->any = true;
    c->writing = false;
    return 0;
}

/* ---- what is committed ---- */

bool zinf_commit_any(const struct zinf_commit *c)
{
    return c->any;
}

uint64_t zinf_commit_epoch(const struct zinf_commit *c)
{
    return c->epoch;
}

int zinf_commit_bank(const struct zinf_commit *c)
{
    return (int)(c->epoch & 1);
}

uint64_t zinf_commit_attempt(const struct zinf_commit *c)
{
    return c->attempt;
}

const void *zinf_commit_payload(const struct zinf_commit *c, uint64_t *bytes)
{
    *bytes = c->payload[0];
    return c->payload + 1;
}
