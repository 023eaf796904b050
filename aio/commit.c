/*
 * commit: the order of writes and flushes. Each numbered comment is an obligation that the test
 * removes, one at a time, to see that a crash then goes wrong.
 */
#include "aio/commit_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct zinf_commit {
    struct zinf_commit_options options;
    uint64_t manifest_bytes;
    uint64_t *manifest; /* payload length, [n_pieces] sums, payload; of the newest epoch */
    uint64_t *next;     /* the same, being built */
    void *block;
    bool any;     /* an epoch is committed */
    bool writing; /* begin handed out a bank */
    uint64_t epoch, attempt;
    uint64_t last_sum; /* of the newest record */
    int poison;
    char message[256];
};

/* ---- life ---- */

static uint64_t manifest_bytes(const struct zinf_commit_options *options)
{
    return zinf_align_up((1 + options->n_pieces) * sizeof(uint64_t) + options->payload_bytes,
                         COMMIT_BLOCK);
}

uint64_t zinf_commit_area_bytes(const struct zinf_commit_options *options)
{
    return commit_manifest_offset(0, 0) + 2 * manifest_bytes(options);
}

static void *aligned_zeros(uint64_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, COMMIT_BLOCK, bytes))
        return NULL;
    return memset(memory, 0, bytes);
}

static int make(struct zinf_commit **out, const struct zinf_commit_options *options)
{
    struct zinf_commit *c = calloc(1, sizeof *c);
    if (!c)
        return zinf_fail(-ENOMEM, "no memory for the commits of a store");
    c->options = *options;
    c->manifest_bytes = manifest_bytes(options);
    c->manifest = aligned_zeros(c->manifest_bytes);
    c->next = aligned_zeros(c->manifest_bytes);
    c->block = aligned_zeros(COMMIT_BLOCK);
    if (c->manifest && c->next && c->block) {
        *out = c;
        return 0;
    }
    zinf_commit_destroy(c);
    return zinf_fail(-ENOMEM, "no memory for the checksums of a store");
}

void zinf_commit_destroy(struct zinf_commit *c)
{
    if (!c)
        return;
    free(c->block);
    free(c->next);
    free(c->manifest);
    free(c);
}

int zinf_commit_create(struct zinf_commit **out, const struct zinf_commit_options *options)
{
    const struct zinf_commit_io *io = &options->io;
    struct zinf_commit *c;
    int code = make(&c, options);
    if (code)
        return code;
    code = io->fence(io->arg);
    /* Slots first: a record that an earlier store left there must not outlive the new header. */
    for (uint64_t slot = 0; !code && slot < 2; slot++)
        code = io->write(io->arg, commit_slot_offset(slot), c->block, COMMIT_BLOCK);
    if (!code)
        code = io->flush(io->arg);
    commit_header_encode(c->block, options);
    if (!code)
        code = io->write(io->arg, 0, c->block, COMMIT_BLOCK);
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

static void build_manifest(struct zinf_commit *c, const uint64_t *sums, const void *payload,
                           uint64_t payload_bytes)
{
    uint64_t n = c->options.n_pieces;
    memset(c->next, 0, c->manifest_bytes);
    c->next[0] = payload_bytes;
    memcpy(c->next + 1, sums, n * sizeof *sums);
    if (payload_bytes)
        memcpy(c->next + 1 + n, payload, payload_bytes);
}

static struct commit_record make_record(const struct zinf_commit *c)
{
    struct commit_record record = {.flushed = c->options.flush,
                                   .epoch = next_epoch(c),
                                   .attempt = c->attempt,
                                   .layout = c->options.layout,
                                   .manifest_bytes = c->manifest_bytes,
                                   .previous = c->last_sum};
    memcpy(record.uuid, c->options.uuid, sizeof record.uuid);
    memcpy(record.boot, c->options.boot, sizeof record.boot);
    record.manifest_sum =
        commit_manifest_sum(c->next, c->manifest_bytes, record.epoch, record.attempt);
    return record;
}

int zinf_commit_end(struct zinf_commit *c, const uint64_t *sums, const void *payload,
                    uint64_t payload_bytes)
{
    const struct zinf_commit_io *io = &c->options.io;
    int code = check_poison(c);
    if (code)
        return code;
    if (!c->writing || payload_bytes > c->options.payload_bytes)
        return zinf_fail(-EINVAL, "a commit of %" PRIu64 " bytes without a step, or of too many",
                         payload_bytes);
    build_manifest(c, sums, payload, payload_bytes);
    struct commit_record record = make_record(c);
    code = io->write(io->arg, commit_manifest_offset(record.epoch, c->manifest_bytes), c->next,
                     c->manifest_bytes);
    /* P2: the barrier. Pieces and manifest are durable before the record that names them is
     * issued; a failed flush is never repeated (P7). */
    if (!code)
        code = flush(c);
    uint64_t sum = commit_record_encode(c->block, &record);
    /* P3: slots alternate, so the newest durable record is not the one that is overwritten. */
    if (!code)
        code = io->write(io->arg, commit_slot_offset(record.epoch), c->block, COMMIT_BLOCK);
    /* P6: what is acknowledged is durable, and only then the older bank may be written. */
    if (!code)
        code = flush(c);
    if (code)
        return poison(c, code);
    uint64_t *old = c->manifest;
    c->manifest = c->next;
    c->next = old;
    c->epoch = record.epoch; /* P5: epochs grow by one */
    c->last_sum = sum;
    c->any = true;
    c->writing = false;
    return 0;
}

/* ---- recovery ---- */

struct candidate {
    struct commit_record record;
    uint64_t sum;
    bool valid;
};

static int read_records(struct zinf_commit *c, struct candidate found[2])
{
    const struct zinf_commit_io *io = &c->options.io;
    for (uint64_t slot = 0; slot < 2; slot++) {
        struct candidate *f = &found[slot];
        int code = io->read(io->arg, commit_slot_offset(slot), c->block, COMMIT_BLOCK);
        if (!code)
            code = commit_record_decode(c->block, &c->options, &f->record, &f->sum);
        if (code && code != -ENOENT)
            return code;
        f->valid = !code && (f->record.epoch & 1) == slot;
    }
    return 0;
}

static int fail_epoch(const struct commit_record *record, const char *what)
{
    return zinf_fail(-EBADMSG,
                     "%s of the committed step (commit %" PRIu64
                     ") is damaged: go on from a checkpoint, and look after the drive",
                     what, record->epoch);
}

static int read_manifest(struct zinf_commit *c, const struct commit_record *record)
{
    const struct zinf_commit_io *io = &c->options.io;
    if (record->manifest_bytes != c->manifest_bytes)
        return fail_epoch(record, "the manifest's length");
    int code = io->read(io->arg, commit_manifest_offset(record->epoch, c->manifest_bytes),
                        c->manifest, c->manifest_bytes);
    if (!code && (commit_manifest_sum(c->manifest, c->manifest_bytes, record->epoch,
                                      record->attempt) != record->manifest_sum ||
                  c->manifest[0] > c->options.payload_bytes))
        code = fail_epoch(record, "the manifest");
    return code;
}

static int check_pieces(const struct zinf_commit *c, const struct commit_record *record)
{
    const struct zinf_commit_io *io = &c->options.io;
    bool same_boot = !memcmp(record->boot, c->options.boot, sizeof record->boot);
    int code = 0;
    if (!io->check || (same_boot && !c->options.verify))
        return 0;
    for (uint64_t i = 0; !code && i < c->options.n_pieces; i++) {
        if (!c->manifest[1 + i]) /* not known: behind a flush it is there, else nobody can tell */
            code = record->flushed || same_boot ? 0 : -EBADMSG;
        else
            code = io->check(io->arg, (int)(record->epoch & 1), i, c->manifest[1 + i]);
    }
    return code == -EBADMSG ? fail_epoch(record, "a piece") : code;
}

/* The newest first. What was flushed must be there: if it is damaged, falling back to an older step
 * in silence would hide a failing drive. What was not flushed may be gone after a power cut. */
static int choose(struct zinf_commit *c, struct candidate found[2])
{
    int code = zinf_fail(-ENOENT, "no step was committed in this store");
    int newest =
        found[1].valid && (!found[0].valid || found[1].record.epoch > found[0].record.epoch);
    for (int turn = 0; turn < 2; turn++) {
        const struct candidate *f = &found[turn ? !newest : newest];
        if (!f->valid)
            continue;
        code = read_manifest(c, &f->record);
        if (!code)
            code = check_pieces(c, &f->record);
        if (!code) {
            c->any = true;
            c->epoch = f->record.epoch;
            c->last_sum = f->sum;
            return 0;
        }
        if (f->record.flushed || code != -EBADMSG)
            return code;
    }
    return code;
}

int zinf_commit_recover(struct zinf_commit **out, const struct zinf_commit_options *options)
{
    const struct zinf_commit_io *io = &options->io;
    struct candidate found[2] = {0};
    struct zinf_commit *c;
    int code = make(&c, options);
    if (code)
        return code;
    /* P4: nobody else's writes land from here on, and what is read is durable before it is
     * believed: the drive's cache may hold a record that a power cut would take back. */
    code = io->fence(io->arg);
    if (!code)
        code = io->flush(io->arg);
    if (!code)
        code = io->read(io->arg, 0, c->block, COMMIT_BLOCK);
    int headed = code ? code : commit_header_check(c->block, options);
    if (headed && headed != -ENOENT)
        code = headed;
    if (!code)
        code = read_records(c, found);
    /* Slots are emptied before the header is written: a record without one is damage. */
    if (!code && headed && (found[0].valid || found[1].valid))
        code = zinf_fail(-EINVAL, "the store's commit area has lost its header: it is damaged");
    if (!code)
        code = choose(c, found);
    for (int i = 0; i < 2; i++)
        if (found[i].valid && found[i].record.attempt >= c->attempt)
            c->attempt = found[i].record.attempt + 1;
    if (code)
        zinf_commit_destroy(c);
    else
        *out = c;
    return code;
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

const uint64_t *zinf_commit_sums(const struct zinf_commit *c)
{
    return c->manifest + 1;
}

const void *zinf_commit_payload(const struct zinf_commit *c, uint64_t *bytes)
{
    *bytes = c->manifest[0];
    return c->manifest + 1 + c->options.n_pieces;
}
