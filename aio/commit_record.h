/* commit_record: the blocks of a commit area. For files of aio/ only. */
#ifndef ZINF_COMMIT_RECORD_H
#define ZINF_COMMIT_RECORD_H

#include "aio/commit.h"

#pragma GCC visibility push(hidden)

#define COMMIT_BLOCK 4096
/* Slots lie apart: a drive that rewrites more than a block at a time must not touch both. */
#define COMMIT_SPACING (64u << 10)
#define COMMIT_VERSION 2

/* The first blocks: whose area this is. Then the slots of two records, then two manifests. Header
 * and record are there twice, one behind the other, written by one call: a block that is damaged
 * later costs no step. A manifest is the payload's length and the payload, then whole blocks of
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

/* As on the drive, little endian; the block's own checksum is its last 8 bytes. */
struct commit_header {
    char magic[8];
    uint32_t version, reserved;
    uint8_t uuid[16];
    uint64_t layout, n_pieces, payload_bytes;
};
struct commit_record {
    char magic[8];
    uint32_t version;
    uint32_t flushed; /* was written after a flush of all it names, and flushed itself */
    uint8_t uuid[16];
    uint8_t boot[16];
    uint64_t epoch, attempt, layout;
    uint64_t manifest_bytes, manifest_sum; /* of payload and checksums */
    uint64_t previous;                     /* checksum of the record before, 0: none */
};

/* content, zeros and the checksum of both, which is returned, into each of COMMIT_COPIES blocks. */
uint64_t commit_seal(void *blocks, const void *content, size_t bytes);
/* The first of COMMIT_COPIES blocks that is sealed, or NULL. */
const void *commit_sealed(const void *blocks, const char magic[8], uint64_t *sum);
/* What a slot holds before its first record. Zeros are not that: a file may lose its content. */
void commit_empty_encode(void *blocks, const struct zinf_commit_options *options);
bool commit_is_empty(const void *blocks, const struct zinf_commit_options *options);
uint64_t commit_header_encode(void *blocks, const struct zinf_commit_options *options);
uint64_t commit_record_encode(void *blocks, const struct commit_record *record);
/* 0; -EBADMSG: damaged; -EINVAL: of another store; -ENOTSUP: of another version. */
const void *commit_header(const void *blocks); /* NULL: none that is whole */
int commit_header_check(const void *blocks, const struct zinf_commit_options *options);
/* 0; -ENOENT: empty; -EBADMSG: it holds something else than a record of this store that belongs
 * there; -ENOTSUP: of another version. *sum is the block's checksum. */
int commit_record_decode(const void *blocks, uint64_t slot,
                         const struct zinf_commit_options *options, struct commit_record *record,
                         uint64_t *sum);
/* Of a manifest: another epoch's or attempt's with the same bytes has another. */
uint64_t commit_manifest_sum(const struct commit_record *record, const void *payload,
                             uint64_t payload_bytes, const uint32_t *sums, uint64_t n_sums);
/* Bytes of a manifest's part before the checksums, of the whole, and of the area. */
uint64_t commit_payload_bytes(const struct zinf_commit_options *options);
uint64_t commit_manifest_bytes(const struct zinf_commit_options *options);

/* ---- shared by commit.c and commit_recover.c ---- */

struct zinf_commit {
    struct zinf_commit_options options;
    uint64_t *payload; /* its length, and the payload; of the newest epoch, or being built */
    void *blocks;      /* COMMIT_COPIES of a header or a record */
    bool any;          /* an epoch is committed */
    bool writing;      /* begin handed out a bank */
    uint64_t epoch, attempt;
    uint64_t last_sum; /* of the newest record */
    int poison;
    char message[256];
};

int commit_make(struct zinf_commit **out, const struct zinf_commit_options *options);
/* c->blocks to a place of the area. */
int commit_write_blocks(const struct zinf_commit *c, uint64_t offset);
/* -EBADMSG: a piece of these has no checksum. */
int commit_check_known(const struct zinf_commit *c, const uint32_t *sums);
/* Of the payload and the checksums in memory, as record's manifest. */
uint64_t commit_sum(const struct zinf_commit *c, const struct commit_record *record);

#pragma GCC visibility pop
#endif
