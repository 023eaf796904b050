/*
 * commit: which of two banks of state is the valid one, however the process ends. A bank is one
 * generation of every extent that a step rewrites. Epoch e, the e-th committed state, is in bank e
 * & 1. A step reads the valid bank and writes the other, which becomes valid by writing one small
 * record.
 *
 * begin: says which bank may be written; it is never that of the newest committed epoch.
 *
 * end: writes the manifest (a checksum of every piece, and the caller's scalars), flushes, writes
 * the record, flushes.
 *
 * recover: waits until no other process can write, flushes, finds the newest committed epoch, and
 * compares every piece of it with its checksum.
 *
 * A record is written only after a flush of everything that it names. Two slots take turns, so the
 * newest durable record is never overwritten, and each holds its record twice. After a failed
 * flush the content of the drive is unknown, and every later call returns that error.
 *
 * Without flushes (flush false) a step survives kill -9, since the kernel keeps what it was given.
 * After a power cut, recovery takes the newest step that is whole, or refuses. Only after a power
 * cut may it take an older step than the newest. Where the newest one is damaged otherwise,
 * recovery refuses; zinf_commit_give_up then gives it up.
 *
 * It does no I/O except by the callbacks of struct zinf_commit_io. One thread at a time.
 */
#ifndef ZINF_COMMIT_H
#define ZINF_COMMIT_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Callbacks for the file of zinf_commit_area_bytes() that holds manifests and records. Each blocks
 * and returns 0 or -errno. Offsets, lengths and memory are multiples of 4096. */
struct zinf_commit_io {
    /* Returns once no other process can write to any file of the store, now or later. */
    int (*fence)(void *arg);
    int (*read)(void *arg, uint64_t offset, void *memory, uint64_t bytes);
    int (*write)(void *arg, uint64_t offset, const void *memory, uint64_t bytes);
    /* Makes all writes to the store's files that completed before the call durable. */
    int (*flush)(void *arg);
    /* Compares every piece of a bank with sums[bank]. -EBADMSG: a piece differs. */
    int (*check)(void *arg, int bank);
    void *arg;
};

struct zinf_commit_options {
    struct zinf_commit_io io;
    uint8_t uuid[16];  /* of the store */
    uint64_t layout;   /* a number that changes whenever the meaning of the pieces changes */
    uint64_t n_pieces; /* pieces of a bank */
    /* [2][ZINF_COMMIT_SUMS(n_pieces)] checksums of each bank's pieces, aligned to 4096; 0: not
     * known. The memory is the caller's; end writes it to the area and recover fills it. */
    uint32_t *sums[2];
    uint64_t payload_bytes; /* most bytes of the caller's scalars of an epoch */
    uint8_t boot[16];       /* the machine's boot id, which tells a kill from a power cut */
    bool flush;
};
/* n checksums, rounded up to whole blocks. */
#define ZINF_COMMIT_SUMS(n) (((uint64_t)(n) + 1023) / 1024 * 1024)
uint64_t zinf_commit_area_bytes(const struct zinf_commit_options *options);

struct zinf_commit;
/* Creates an empty area. The first epoch will be 0. */
int zinf_commit_create(struct zinf_commit **out, const struct zinf_commit_options *options);
/* Finds the newest committed epoch. Writes nothing, so it may be interrupted. -ENOENT: nothing was
 * ever committed; -EINVAL: the area is of another store; -ENOTSUP: it is of a newer version;
 * -EBADMSG: what was committed is damaged. */
int zinf_commit_recover(struct zinf_commit **out, const struct zinf_commit_options *options);
/* Finds what zinf_commit_give_up would keep. Writes nothing. */
int zinf_commit_survey(struct zinf_commit **out, const struct zinf_commit_options *options);
/* Recovers the newest of the two last epochs that is whole, whatever damaged the other one. Empties
 * the record of a damaged newer epoch, so that later recoveries find the same. */
int zinf_commit_give_up(struct zinf_commit **out, const struct zinf_commit_options *options);
/* Makes the epoch before the newest the newest again, with its payload: for one of several stores
 * that belong together, if another one lacks the newest epoch. Compares every piece. -EBADMSG: that
 * epoch is damaged, overwritten, or does not exist; no further step can be committed then. */
int zinf_commit_go_back(struct zinf_commit *commit);
void zinf_commit_destroy(struct zinf_commit *commit); /* NULL is allowed */

/* Gives the bank to write for the next epoch. Call it again after a step that was given up. */
int zinf_commit_begin(struct zinf_commit *commit, int *bank);
/* Commits the next epoch. Call it after every write to the bank has completed without error. If it
 * returns 0, recovery finds this step and begin may give out the other bank. If it fails, recovery
 * finds this epoch or the one before, and every later call fails. -EBADMSG: a piece of the bank has
 * no checksum; nothing was written. */
int zinf_commit_end(struct zinf_commit *commit, const void *payload, uint64_t payload_bytes);

/* ---- the newest committed epoch ---- */

bool zinf_commit_any(const struct zinf_commit *commit); /* false: nothing is committed yet */
uint64_t zinf_commit_epoch(const struct zinf_commit *commit);
int zinf_commit_bank(const struct zinf_commit *commit);
/* Number of recoveries that were followed by a commit, counted from the store's first use. */
uint64_t zinf_commit_attempt(const struct zinf_commit *commit);
/* The scalars of the newest epoch; valid until the next zinf_commit_end. */
const void *zinf_commit_payload(const struct zinf_commit *commit, uint64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
