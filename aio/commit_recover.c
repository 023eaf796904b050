/*
 * commit_recover: finds the newest step from the content of the drive alone. Anything that is not
 * understood is refused and never taken for an empty slot. A step is used only after every piece
 * was compared with its checksum.
 */
#include "aio/commit_record.h"

#include <inttypes.h>

struct candidate {
    struct commit_record record;
    uint64_t sum;
    int code; /* 0: a record; -ENOENT: never written; else what is wrong with it */
};

static int read_records(struct zinf_commit *c, struct candidate found[2])
{
    const struct zinf_commit_io *io = &c->options.io;
    for (uint64_t slot = 0; slot < 2; slot++) {
        struct candidate *f = &found[slot];
        int code =
            io->read(io->arg, commit_slot_offset(slot), c->blocks, COMMIT_COPIES * COMMIT_BLOCK);
        if (code)
            return code;
        f->code = commit_record_decode(c->blocks, slot, &c->options, &f->record, &f->sum);
        if (f->code == -ENOTSUP)
            return f->code;
    }
    return 0;
}

static int fail_epoch(const struct commit_record *record, const char *what)
{
    return zinf_fail(-EBADMSG, "%s of the committed step (commit %" PRIu64 ") is damaged", what,
                     record->epoch);
}

static int read_manifest(struct zinf_commit *c, const struct commit_record *record)
{
    const struct zinf_commit_io *io = &c->options.io;
    uint64_t head = commit_payload_bytes(&c->options);
    uint64_t at = commit_manifest_offset(record->epoch, record->manifest_bytes);
    int code = io->read(io->arg, at, c->payload, head);
    if (!code && record->manifest_bytes > head)
        code = io->read(io->arg, at + head, c->options.sums[record->epoch & 1],
                        record->manifest_bytes - head);
    if (!code &&
        (commit_sum(c, record) != record->manifest_sum || c->payload[0] > c->options.payload_bytes))
        code = fail_epoch(record, "the manifest");
    return code ? code : commit_check_known(c, c->options.sums[record->epoch & 1]);
}

/* 0 if every piece of the step is as it was written. */
static int prove(struct zinf_commit *c, const struct candidate *f)
{
    const struct zinf_commit_io *io = &c->options.io;
    int bank = (int)(f->record.epoch & 1);
    int code = read_manifest(c, &f->record);
    if (!code)
        code = io->check(io->arg, bank);
    if (code == -EBADMSG) /* nothing of it may be used from here on */
        memset(c->options.sums[bank], 0, ZINF_COMMIT_SUMS(c->options.n_pieces) * sizeof(uint32_t));
    if (code)
        return code;
    c->any = true;
    c->epoch = f->record.epoch;
    c->last_sum = f->sum;
    return 0;
}

/* Whether a record is damaged, or missing although there must be one. It was of the step before the
 * other record's, or of one after it. */
static bool is_broken(const struct candidate *f, const struct candidate *other)
{
    return f->code == -EBADMSG || (f->code == -ENOENT && !other->code && other->record.epoch);
}

/* After a power cut, unflushed data may be gone. Otherwise damage is the drive's fault; to use an
 * older step silently would hide it, and lose a step that a checkpoint may rely on. */
static bool may_fall_back(const struct zinf_commit *c, const struct candidate *f, bool give_up)
{
    bool same_boot = !memcmp(f->record.boot, c->options.boot, sizeof f->record.boot);
    return give_up || (!f->record.flushed && !same_boot);
}

/* The newest first. */
static int choose(struct zinf_commit *c, struct candidate found[2], bool give_up)
{
    int newest = !found[1].code && (found[0].code || found[1].record.epoch > found[0].record.epoch);
    const struct candidate *first = &found[newest], *second = &found[!newest];
    /* If the second slot was never written, at most the first epoch was being committed. */
    if (first->code)
        return found[1].code == -ENOENT
                   ? zinf_fail(-ENOENT, "no step was committed in this store")
                   : zinf_fail(-EBADMSG, "the records of the store's steps are damaged");
    int code = prove(c, first);
    if (!code && is_broken(second, first))
        zinf_log(ZINF_LOG_WARN,
                 "aio: a record of the store's steps is damaged; commit %" PRIu64
                 " is whole, and if there was a later one it is made again",
                 first->record.epoch);
    bool damaged = code == -EBADMSG || (give_up && code == -EIO);
    if (!damaged || second->code || !may_fall_back(c, first, give_up))
        return code;
    zinf_log(ZINF_LOG_WARN, "aio: %s; compares the one before", zinf_error());
    code = prove(c, second);
    if (!code)
        zinf_log(ZINF_LOG_WARN, "aio: commit %" PRIu64 " is whole and goes for the newest",
                 second->record.epoch);
    return code;
}

/* Makes records unreadable that do not lead to a whole step; an empty slot would mean that there
 * was none. */
static int spoil_others(struct zinf_commit *c, const struct candidate found[2])
{
    const struct zinf_commit_io *io = &c->options.io;
    int code = 0;
    memset(c->blocks, 0xff, COMMIT_COPIES * COMMIT_BLOCK);
    for (uint64_t slot = 0; !code && slot < 2; slot++)
        if (found[slot].code ? found[slot].code != -ENOENT : found[slot].record.epoch > c->epoch)
            code = commit_write_blocks(c, commit_slot_offset(slot));
    return code ? code : io->flush(io->arg);
}

static int look(struct zinf_commit *c, struct candidate found[2], bool give_up)
{
    const struct zinf_commit_io *io = &c->options.io;
    /* P4: nobody else's writes land from here on, and what is read is durable before it is
     * believed: the drive's cache may hold a record that a power cut would take back. */
    int code = io->fence(io->arg);
    if (!code)
        code = io->flush(io->arg);
    if (!code)
        code = io->read(io->arg, 0, c->blocks, COMMIT_COPIES * COMMIT_BLOCK);
    int headed = code ? code : commit_header_check(c->blocks, &c->options);
    if (headed && headed != -EBADMSG)
        return headed;
    if (!code)
        code = read_records(c, found);
    /* Slots are emptied before the header is written: a record without one is damage. */
    if (!code && headed && (found[0].code != -ENOENT || found[1].code != -ENOENT))
        code = zinf_fail(-EBADMSG, "the store's commit area has lost its header: it is damaged");
    return code ? code : choose(c, found, give_up);
}

static int recover(struct zinf_commit **out, const struct zinf_commit_options *options,
                   bool give_up, bool write)
{
    struct candidate found[2] = {0};
    struct zinf_commit *c;
    int code = commit_make(&c, options);
    if (code)
        return code;
    code = look(c, found, give_up);
    if (!code && write)
        code = spoil_others(c, found);
    for (int i = 0; i < 2; i++)
        if (!found[i].code && found[i].record.attempt >= c->attempt)
            c->attempt = found[i].record.attempt + 1;
    if (code)
        zinf_commit_destroy(c);
    else
        *out = c;
    return code;
}

/* Marks the checksums of banks without an epoch as not known. */
static void forget_bank(struct zinf_commit *c, uint64_t epoch)
{
    memset(c->options.sums[epoch & 1], 0, ZINF_COMMIT_SUMS(c->options.n_pieces) * sizeof(uint32_t));
}

int zinf_commit_go_back(struct zinf_commit *c)
{
    struct candidate found[2] = {0};
    uint64_t newest = c->epoch;
    int code = c->any && newest ? read_records(c, found)
                                : zinf_fail(-EBADMSG, "there is no step before the first one");
    const struct candidate *before = &found[!(newest & 1)];
    if (!code && (before->code || before->record.epoch + 1 != newest))
        code = zinf_fail(-EBADMSG, "the record of commit %" PRIu64 " is not there any more",
                         newest - 1);
    if (!code)
        code = prove(c, before);
    if (!code)
        forget_bank(c, newest);
    /* Removes the record of the newer epoch before anything continues from this one. */
    if (!code)
        code = spoil_others(c, found);
    c->poison = code;
    return code;
}

int zinf_commit_recover(struct zinf_commit **out, const struct zinf_commit_options *options)
{
    return recover(out, options, false, false);
}

int zinf_commit_survey(struct zinf_commit **out, const struct zinf_commit_options *options)
{
    return recover(out, options, true, false);
}

int zinf_commit_give_up(struct zinf_commit **out, const struct zinf_commit_options *options)
{
    return recover(out, options, true, true);
}
