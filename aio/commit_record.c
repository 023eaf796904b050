/*
 * commit_record: encoding and checking the blocks of a commit area. A block is believed only if its
 * checksum, its magic, its store and its place agree. What was never written is told from what is
 * damaged: the first says that there is no step, the second says nothing.
 */
#include "aio/commit_record.h"

#include <xxhash.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "blocks are little endian and written as they lie in memory"
#endif

#define SUM_AT (COMMIT_BLOCK - sizeof(uint64_t))

static const char header_magic[8] = {'Z', 'I', 'N', 'F', 'S', 'T', 'O', 'R'};
static const char record_magic[8] = {'Z', 'I', 'N', 'F', 'S', 'T', 'E', 'P'};
static const char empty_magic[8] = {'Z', 'I', 'N', 'F', 'N', 'O', 'N', 'E'};

uint64_t commit_seal(void *blocks, const void *content, size_t bytes)
{
    char *block = blocks;
    memset(block, 0, COMMIT_BLOCK);
    memcpy(block, content, bytes);
    uint64_t sum = XXH3_64bits(block, SUM_AT);
    memcpy(block + SUM_AT, &sum, sizeof sum);
    for (int i = 1; i < COMMIT_COPIES; i++)
        memcpy(block + i * COMMIT_BLOCK, block, COMMIT_BLOCK);
    return sum;
}

static const char *copy_at(const void *blocks, int i, const char magic[8], uint64_t *sum)
{
    const char *block = (const char *)blocks + i * COMMIT_BLOCK;
    memcpy(sum, block + SUM_AT, sizeof *sum);
    return !memcmp(block, magic, 8) && XXH3_64bits(block, SUM_AT) == *sum ? block : NULL;
}

const void *commit_sealed(const void *blocks, const char magic[8], uint64_t *sum)
{
    const char *block = NULL;
    for (int i = 0; !block && i < COMMIT_COPIES; i++)
        block = copy_at(blocks, i, magic, sum);
    return block;
}

void commit_empty_encode(void *blocks, const struct zinf_commit_options *options)
{
    struct commit_record none = {.version = COMMIT_VERSION};
    memcpy(none.magic, empty_magic, sizeof none.magic);
    memcpy(none.uuid, options->uuid, sizeof none.uuid);
    commit_seal(blocks, &none, sizeof none);
}

bool commit_is_empty(const void *blocks, const struct zinf_commit_options *options)
{
    struct commit_record none;
    uint64_t sum;
    const void *block = commit_sealed(blocks, empty_magic, &sum);
    if (!block)
        return false;
    memcpy(&none, block, sizeof none);
    return !memcmp(none.uuid, options->uuid, sizeof none.uuid);
}

uint64_t commit_header_encode(void *blocks, const struct zinf_commit_options *options)
{
    struct commit_header header = {.version = COMMIT_VERSION,
                                   .layout = options->layout,
                                   .n_pieces = options->n_pieces,
                                   .payload_bytes = options->payload_bytes};
    memcpy(header.magic, header_magic, sizeof header.magic);
    memcpy(header.uuid, options->uuid, sizeof header.uuid);
    return commit_seal(blocks, &header, sizeof header);
}

uint64_t commit_record_encode(void *blocks, const struct commit_record *record)
{
    struct commit_record sealed = *record;
    memcpy(sealed.magic, record_magic, sizeof sealed.magic);
    sealed.version = COMMIT_VERSION;
    return commit_seal(blocks, &sealed, sizeof sealed);
}

static int check_version(uint32_t version, const char *what)
{
    if (version == COMMIT_VERSION)
        return 0;
    return zinf_fail(
        -ENOTSUP, "%s was written by %s zinf (version %u, this one knows %d): take that one", what,
        version > COMMIT_VERSION ? "a newer" : "an older", version, COMMIT_VERSION);
}

const void *commit_header(const void *blocks)
{
    uint64_t sum;
    return commit_sealed(blocks, header_magic, &sum);
}

int commit_header_check(const void *blocks, const struct zinf_commit_options *options)
{
    struct commit_header header;
    const void *block = commit_header(blocks);
    if (!block)
        return zinf_fail(-EBADMSG, "the header of the store's commit area is damaged");
    memcpy(&header, block, sizeof header);
    int code = check_version(header.version, "the store");
    if (code)
        return code;
    if (memcmp(header.uuid, options->uuid, sizeof header.uuid))
        return zinf_fail(-EINVAL, "the store belongs to another run");
    if (header.layout != options->layout || header.n_pieces != options->n_pieces ||
        header.payload_bytes != options->payload_bytes)
        return zinf_fail(-EINVAL,
                         "the store holds the run's steps under another plan (model, number type, "
                         "optimizer, offloading, how layers are dealt to ranks): go back to that "
                         "configuration, or remove the folder to continue from a checkpoint");
    return 0;
}

int commit_record_decode(const void *blocks, uint64_t slot,
                         const struct zinf_commit_options *options, struct commit_record *record,
                         uint64_t *sum)
{
    struct commit_record copy;
    uint64_t copy_sum;
    bool found = false;
    for (int i = 0; i < COMMIT_COPIES; i++) {
        const char *block = copy_at(blocks, i, record_magic, &copy_sum);
        if (!block)
            continue;
        memcpy(&copy, block, sizeof copy);
        /* After a power cut one copy may be that of the epoch before: what the newer one names was
         * flushed before either was issued. */
        if (found && copy.epoch <= record->epoch)
            continue;
        *record = copy;
        *sum = copy_sum;
        found = true;
    }
    if (!found)
        return commit_is_empty(blocks, options) ? -ENOENT : -EBADMSG;
    int code = check_version(record->version, "a step");
    if (code)
        return code;
    bool belongs = !memcmp(record->uuid, options->uuid, sizeof record->uuid) &&
                   record->layout == options->layout && (record->epoch & 1) == slot &&
                   record->manifest_bytes == commit_manifest_bytes(options);
    return belongs ? 0 : -EBADMSG;
}

uint64_t commit_manifest_sum(const struct commit_record *record, const void *payload,
                             uint64_t payload_bytes, const uint32_t *sums, uint64_t n_sums)
{
    uint64_t seed = record->epoch * 0x9e3779b97f4a7c15u + record->attempt;
    seed = XXH3_64bits_withSeed(payload, payload_bytes, seed);
    return XXH3_64bits_withSeed(sums, n_sums * sizeof *sums, seed);
}

uint64_t commit_payload_bytes(const struct zinf_commit_options *options)
{
    return zinf_align_up(sizeof(uint64_t) + options->payload_bytes, COMMIT_BLOCK);
}

uint64_t commit_manifest_bytes(const struct zinf_commit_options *options)
{
    return commit_payload_bytes(options) + ZINF_COMMIT_SUMS(options->n_pieces) * sizeof(uint32_t);
}
