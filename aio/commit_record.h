/* commit_record: the blocks of a commit area. For files of aio/ only. */
#ifndef ZINF_COMMIT_RECORD_H
#define ZINF_COMMIT_RECORD_H

#include "aio/commit.h"

#pragma GCC visibility push(hidden)

#define COMMIT_BLOCK 4096
/* Slots lie apart: a drive that rewrites more than a block at a time must not touch both. */
#define COMMIT_SPACING (64u << 10)
#define COMMIT_VERSION 1

/* The first block: whose area this is. Then the slots of two records, then two manifests. */
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
    uint64_t manifest_bytes, manifest_sum;
    uint64_t previous; /* checksum of the record before, 0: none */
};

/* content, zeros and the checksum of both, which is returned, into a block of COMMIT_BLOCK bytes.
 */
uint64_t commit_seal(void *block, const void *content, size_t bytes);
bool commit_is_sealed(const void *block, const char magic[8], uint64_t *sum);
/* Sealed blocks. */
uint64_t commit_header_encode(void *block, const struct zinf_commit_options *options);
uint64_t commit_record_encode(void *block, const struct commit_record *record);
/* 0; -ENOENT: no header; -EINVAL: of another store; -ENOTSUP: of a newer version. */
int commit_header_check(const void *block, const struct zinf_commit_options *options);
/* 0, -ENOENT: no whole record of this store; -ENOTSUP. *sum is the block's checksum. */
int commit_record_decode(const void *block, const struct zinf_commit_options *options,
                         struct commit_record *record, uint64_t *sum);
/* Of a manifest: another epoch's or attempt's with the same bytes has another. */
uint64_t commit_manifest_sum(const void *manifest, uint64_t bytes, uint64_t epoch,
                             uint64_t attempt);

#pragma GCC visibility pop
#endif
