/*
 * commit_record: encoding and checking the blocks of a commit area. A block is believed only if its
 * checksum, its magic and the store's uuid agree; what was torn or never written does not exist.
 */
#include "aio/commit_record.h"

#include <xxhash.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "blocks are little endian and written as they lie in memory"
#endif

#define SUM_AT (COMMIT_BLOCK - sizeof(uint64_t))

static const char header_magic[8] = {'Z', 'I', 'N', 'F', 'S', 'T', 'O', 'R'};
static const char record_magic[8] = {'Z', 'I', 'N', 'F', 'S', 'T', 'E', 'P'};

uint64_t commit_seal(void *block, const void *content, size_t bytes)
{
    memset(block, 0, COMMIT_BLOCK);
    memcpy(block, content, bytes);
    uint64_t sum = XXH3_64bits(block, SUM_AT);
    memcpy((char *)block + SUM_AT, &sum, sizeof sum);
    return sum;
}

bool commit_is_sealed(const void *block, const char magic[8], uint64_t *sum)
{
    memcpy(sum, (const char *)block + SUM_AT, sizeof *sum);
    return !memcmp(block, magic, 8) && XXH3_64bits(block, SUM_AT) == *sum;
}

uint64_t commit_header_encode(void *block, const struct zinf_commit_options *options)
{
    struct commit_header header = {.version = COMMIT_VERSION,
                                   .layout = options->layout,
                                   .n_pieces = options->n_pieces,
                                   .payload_bytes = options->payload_bytes};
    memcpy(header.magic, header_magic, sizeof header.magic);
    memcpy(header.uuid, options->uuid, sizeof header.uuid);
    return commit_seal(block, &header, sizeof header);
}

uint64_t commit_record_encode(void *block, const struct commit_record *record)
{
    struct commit_record sealed = *record;
    memcpy(sealed.magic, record_magic, sizeof sealed.magic);
    sealed.version = COMMIT_VERSION;
    return commit_seal(block, &sealed, sizeof sealed);
}

int commit_header_check(const void *block, const struct zinf_commit_options *options)
{
    struct commit_header header;
    uint64_t sum;
    memcpy(&header, block, sizeof header);
    if (!commit_is_sealed(block, header_magic, &sum))
        return zinf_fail(-ENOENT, "the store's commit area has no header");
    if (header.version > COMMIT_VERSION)
        return zinf_fail(-ENOTSUP,
                         "the store was written by a newer zinf (version %u, this one "
                         "knows %d): take that one",
                         header.version, COMMIT_VERSION);
    if (memcmp(header.uuid, options->uuid, sizeof header.uuid))
        return zinf_fail(-EINVAL, "the store belongs to another run");
    if (header.layout != options->layout || header.n_pieces != options->n_pieces ||
        header.payload_bytes != options->payload_bytes)
        return zinf_fail(-EINVAL, "the store holds another model or another plan of it");
    return 0;
}

int commit_record_decode(const void *block, const struct zinf_commit_options *options,
                         struct commit_record *record, uint64_t *sum)
{
    memcpy(record, block, sizeof *record);
    if (!commit_is_sealed(block, record_magic, sum) ||
        memcmp(record->uuid, options->uuid, sizeof record->uuid))
        return -ENOENT;
    if (record->version > COMMIT_VERSION)
        return zinf_fail(-ENOTSUP,
                         "a step was committed by a newer zinf (version %u, this one "
                         "knows %d): take that one",
                         record->version, COMMIT_VERSION);
    return record->layout == options->layout ? 0 : -ENOENT;
}

uint64_t commit_manifest_sum(const void *manifest, uint64_t bytes, uint64_t epoch, uint64_t attempt)
{
    return XXH3_64bits_withSeed(manifest, bytes, epoch * 0x9e3779b97f4a7c15u + attempt);
}
