/* commit_record: the blocks of a commit area. For files of aio/ only. */
#ifndef ZINF_COMMIT_RECORD_H
#define ZINF_COMMIT_RECORD_H

#include "aio/commit.h"

#pragma GCC visibility push(hidden)

#define COMMIT_BLOCK 4096
/* Distance of slots. A drive that rewrites more than one block at a time must not touch two slots.
 */
#define COMMIT_SPACING (64u << 10)
#define COMMIT_VERSION 2

/* The area begins with a header, which says whose area it is. Then come the slots of two records,
 * then two manifests. Header and record are stored twice in a row by one write, so damage to one
 * block loses nothing. A manifest is the payload's length, the payload, and whole blocks of
 * checksums. */
#define COMMIT_COPIES 2
static inline uint64_t commit_slot_offset(uint64_t epoch)
{
    return COMMIT_SPACING * (1 + (epoch & 1));
}
static inline uint64_t commit_manifest_offset(uint64_t epoch, uint64_t manifest_bytes)
{
    return COMMIT_SPACING * 3 + (epoch & 1) * manifest_bytes;
}

/* The layout on the drive, little endian. The last 8 bytes of a block are its own checksum. */
struct commit_header {
    char magic[8];
    uint32_t version, reserved;
    uint8_t uuid[16];
    uint64_t layout, n_pieces, payload_bytes;
};
struct commit_record {
    char magic[8];
    uint32_t version;
    uint32_t flushed; /* 1: written after a flush of everything that it names, and flushed itself */
    uint8_t uuid[16];
    uint8_t boot[16];
    uint64_t epoch, attempt, layout;
    uint64_t manifest_bytes, manifest_sum; /* of payload and checksums */
    uint64_t previous;                     /* checksum of the previous record; 0: there is none */
};

/* Fills each of COMMIT_COPIES blocks with content, zeros and the checksum of both, which it
 * returns. */
uint64_t commit_seal(void *blocks, const void *content, size_t bytes);
/* The first of COMMIT_COPIES blocks whose checksum is right, or NULL. */
const void *commit_sealed(const void *blocks, const char magic[8], uint64_t *sum);
/* The content of a slot that never had a record. It is not zeros, since a file may lose its
 * content. */
void commit_empty_encode(void *blocks, const struct zinf_commit_options *options);
bool commit_is_empty(const void *blocks, const struct zinf_commit_options *options);
uint64_t commit_header_encode(void *blocks, const struct zinf_commit_options *options);
uint64_t commit_record_encode(void *blocks, const struct commit_record *record);
/* Checks the header. 0; -EBADMSG: it is damaged; -EINVAL: it is of another store; -ENOTSUP: of
 * another version. */
const void *commit_header(const void *blocks); /* NULL: both copies are damaged */
int commit_header_check(const void *blocks, const struct zinf_commit_options *options);
/* Reads the record of a slot. 0; -ENOENT: the slot is empty; -EBADMSG: it holds anything but a
 * record of this store that belongs there; -ENOTSUP: it is of another version. *sum is the block's
 * checksum. */
int commit_record_decode(const void *blocks, uint64_t slot,
                         const struct zinf_commit_options *options, struct commit_record *record,
                         uint64_t *sum);
/* Checksum of a manifest. It depends on the record's epoch and attempt, too. */
uint64_t commit_manifest_sum(const struct commit_record *record, const void *payload,
                             uint64_t payload_bytes, const uint32_t *sums, uint64_t n_sums);
/* Bytes of a manifest before its checksums, of a whole manifest, and of the area. */
uint64_t commit_payload_bytes(const struct zinf_commit_options *options);
uint64_t commit_manifest_bytes(const struct zinf_commit_options *options);

/* ---- shared by commit.c and commit_recover.c ---- */

struct zinf_commit {
    struct zinf_commit_options options;
    /* length and bytes of the newest epoch's payload, or of the one that is being written */
    uint64_t *payload;
    void *blocks; /* memory for COMMIT_COPIES blocks */
    bool any;     /* an epoch is committed */
    bool writing; /* zinf_commit_begin has given out a bank */
    uint64_t epoch, attempt;
    uint64_t last_sum; /* checksum of the newest record */
    int poison;
    char message[256];
};

int commit_make(struct zinf_commit **out, const struct zinf_commit_options *options);
/* Writes c->blocks to an offset of the area. */
int commit_write_blocks(const struct zinf_commit *c, uint64_t offset);
/* -EBADMSG: one of the checksums is 0, that is, not known. */
int commit_check_known(const struct zinf_commit *c, const uint32_t *sums);
/* Checksum of the manifest that consists of c->payload and the bank's checksums in memory. */
uint64_t commit_sum(const struct zinf_commit *c, const struct commit_record *record);

#pragma GCC visibility pop
#endif
