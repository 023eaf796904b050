/*
 * commit: which of two banks of state is the true one, whatever ends the process. A bank is one
 * generation of every extent that a step rewrites; epoch e, the e-th committed state, is in bank
 * e & 1. A step reads the true bank, writes the other, and becomes true by one small record.
 *
 *   begin     says which bank may be written; it never is the one of the newest committed epoch
 *   end       manifest (a checksum of every piece, and the caller's scalars), flush, record, flush
 *   recover   fence, flush, then a pure function of what is there: the newest committed epoch,
 *             every piece of it compared with its checksum
 *
 * The record is issued only after a flush that covers all it names; two slots in blocks of their
 * own alternate, so that the newest durable record is never overwritten, and each holds its record
 * twice. After a failed flush nobody knows what is on the drive: the object is poisoned and every
 * later call returns that error.
 *
 * Without flushes (flush false) a step survives kill -9, since what the kernel took stays; after a
 * power cut recovery takes the newest step that is whole, or refuses. Nothing but a power cut may
 * make it take an older step than the newest: where it is damaged, recovery refuses, and to give it
 * up is a decision of its own (zinf_commit_give_up).
 *
 * It does no I/O but through the calls that it is given. One thread at a time.
 */
#ifndef ZINF_COMMIT_H
#define ZINF_COMMIT_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The place of manifests and records: a file of zinf_commit_area_bytes(). Every call blocks and
 * returns 0 or -errno; offsets, lengths and memory are multiples of 4096. */
struct zinf_commit_io {
    /* Returns when no process but this can write to any file of the store, now or later. */
    int (*fence)(void *arg);
    int (*read)(void *arg, uint64_t offset, void *memory, uint64_t bytes);
    int (*write)(void *arg, uint64_t offset, const void *memory, uint64_t bytes);
    /* All writes that completed before the call, on every file of the store, are durable. */
    int (*flush)(void *arg);
    /* Compares every piece of bank with sums[bank]; -EBADMSG: they differ. */
    int (*check)(void *arg, int bank);
    void *arg;
};

struct zinf_commit_options {
    struct zinf_commit_io io;
    uint8_t uuid[16];  /* of the store */
    uint64_t layout;   /* a number that changes whenever pieces mean something else */
    uint64_t n_pieces; /* of a bank */
    /* The checksums of each bank's pieces, 0 for one that is not known: the caller's memory,
     * ZINF_COMMIT_SUMS of them, aligned to 4096, which end writes out and recover reads in. */
    uint32_t *sums[2];
    uint64_t payload_bytes; /* at most; the caller's scalars that belong to an epoch */
    uint8_t boot[16];       /* of this boot of the machine: tells a kill from a power cut */
    bool flush;
};
/* n pieces' checksums in whole blocks. */
#define ZINF_COMMIT_SUMS(n) (((uint64_t)(n) + 1023) / 1024 * 1024)
uint64_t zinf_commit_area_bytes(const struct zinf_commit_options *options);

struct zinf_commit;
/* A fresh area: nothing is committed, the first epoch will be 0. */
int zinf_commit_create(struct zinf_commit **out, const struct zinf_commit_options *options);
/* -ENOENT: nothing was ever committed; -EINVAL: the area is of another store; -ENOTSUP: of a newer
 * version; -EBADMSG: what was committed is damaged. Writes nothing, so it may be interrupted. */
int zinf_commit_recover(struct zinf_commit **out, const struct zinf_commit_options *options);
/* What giving up would leave; writes nothing. */
int zinf_commit_survey(struct zinf_commit **out, const struct zinf_commit_options *options);
/* The same, but of two committed epochs the newest that is whole, whatever damaged the other; and
 * a record of one that is not is emptied, so that the next recovery finds what this one did. */
int zinf_commit_give_up(struct zinf_commit **out, const struct zinf_commit_options *options);
/* The epoch before the newest is the newest again, with its payload: for one of several stores that
 * go together, of which another has not come so far. Compares every piece of it. -EBADMSG: it is
 * damaged, or was written over, or there is none; no further step can be committed then. */
int zinf_commit_go_back(struct zinf_commit *commit);
void zinf_commit_destroy(struct zinf_commit *commit); /* NULL is allowed */

/* The bank to write for the next epoch. Again after a step that was given up. */
int zinf_commit_begin(struct zinf_commit *commit, int *bank);
/* After every write to that bank completed without an error: commits the next epoch. When it
 * returns 0 the step is what a recovery finds, and begin may hand out the other bank. On failure
 * the epoch before is the true one, or this one; the object is poisoned. -EBADMSG: a piece of the
 * bank has no checksum; nothing was written. */
int zinf_commit_end(struct zinf_commit *commit, const void *payload, uint64_t payload_bytes);

/* ---- the newest committed epoch ---- */

bool zinf_commit_any(const struct zinf_commit *commit); /* false: nothing is committed yet */
uint64_t zinf_commit_epoch(const struct zinf_commit *commit);
int zinf_commit_bank(const struct zinf_commit *commit);
/* How often the store was opened: grows with every recovery that was followed by a commit. */
uint64_t zinf_commit_attempt(const struct zinf_commit *commit);
/* Valid until the next end. */
const void *zinf_commit_payload(const struct zinf_commit *commit, uint64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
