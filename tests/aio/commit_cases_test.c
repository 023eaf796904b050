/*
 * commit, one case after another: a flush that fails, recovery that only reads, stores of other
 * runs, and bytes that are damaged.
 */
#include "commit_disk.h"

static void start(struct disk *d)
{
    memset(d, 0, sizeof *d);
    d->random = 1;
    d->boot = 1;
    d->fuel = -1;
}

static void test_failed_flush_poisons(void)
{
    static struct disk disk;
    struct zinf_commit *c = NULL;
    int bank;
    start(&disk);
    struct zinf_commit_options options = options_of(&disk, true);
    CHECK(!zinf_commit_create(&c, &options) && !zinf_commit_any(c));
    CHECK(!make_step(&disk, c) && !make_step(&disk, c) && zinf_commit_epoch(c) == 1);
    disk.fail_flush = true;
    CHECK(make_step(&disk, c) == -EIO && zinf_commit_epoch(c) == 1);
    CHECK(zinf_commit_begin(c, &bank) == -EIO && strstr(zinf_error(), "the flush failed"));
    CHECK(zinf_commit_end(c, NULL, 0) == -EIO);
    zinf_commit_destroy(c);
    CHECK(!zinf_commit_recover(&c, &options) && zinf_commit_epoch(c) == 1);
    CHECK(zinf_commit_attempt(c) == 1 && pieces_are_of(&disk, c));
    CHECK(zinf_commit_end(c, NULL, 0) == -EINVAL); /* no begin */
    zinf_commit_destroy(c);
}

static void test_recovery_writes_nothing(void)
{
    static struct disk disk, before;
    struct zinf_commit *c = NULL;
    start(&disk);
    struct zinf_commit_options options = options_of(&disk, true);
    CHECK(!zinf_commit_create(&c, &options));
    CHECK(!make_step(&disk, c) && !make_step(&disk, c) && !make_step(&disk, c));
    zinf_commit_destroy(c);
    before = disk;
    for (int i = 0; i < 2; i++) {
        CHECK(!zinf_commit_recover(&c, &options) && zinf_commit_epoch(c) == 2);
        zinf_commit_destroy(c);
        CHECK(disk.n_pending == 0 && !memcmp(disk.media, before.media, sizeof disk.media));
    }
}

static void test_strangers_are_refused(void)
{
    static struct disk disk;
    struct zinf_commit *c = NULL;
    start(&disk);
    struct zinf_commit_options options = options_of(&disk, true), other = options;
    CHECK(!zinf_commit_create(&c, &options));
    zinf_commit_destroy(c);
    c = NULL;
    CHECK(zinf_commit_recover(&c, &options) == -ENOENT);
    CHECK(!zinf_commit_create(&c, &options) && !make_step(&disk, c));
    zinf_commit_destroy(c);
    other.uuid[0] = 'b';
    CHECK(zinf_commit_recover(&c, &other) == -EINVAL && strstr(zinf_error(), "another run"));
    other = options;
    other.layout++;
    CHECK(zinf_commit_recover(&c, &other) == -EINVAL &&
          strstr(zinf_error(), "another plan (model, number type, optimizer"));
    /* A new store in the same place has nothing of the old one. */
    CHECK(!zinf_commit_create(&c, &options));
    zinf_commit_destroy(c);
    CHECK(zinf_commit_recover(&c, &options) == -ENOENT);
}

static void test_damage_is_loud(void)
{
    static struct disk disk;
    struct zinf_commit *c = NULL;
    start(&disk);
    struct zinf_commit_options options = options_of(&disk, true);
    CHECK(!zinf_commit_create(&c, &options));
    CHECK(!make_step(&disk, c) && !make_step(&disk, c));
    zinf_commit_destroy(c);
    uint8_t *piece = disk.media[block_at(&disk, piece_address(1, 2))];
    piece[100] ^= 1;
    CHECK(zinf_commit_recover(&c, &options) == -EBADMSG && strstr(zinf_error(), "piece 2"));
    piece[100] ^= 1;
    for (int i = 0; i < 2; i++) { /* payload, checksums */
        uint8_t *manifest = disk.media[block_at(&disk, 3 * 65536 + (2 + i) * BLOCK)];
        manifest[5] ^= 1;
        CHECK(zinf_commit_recover(&c, &options) == -EBADMSG && strstr(zinf_error(), "manifest"));
        manifest[5] ^= 1;
    }
    /* One of two copies of a record, or of the header, is nobody's loss. */
    for (uint64_t at = 0; at <= 2 * 65536; at += 65536) {
        disk.media[block_at(&disk, at)][40] ^= 1;
        CHECK(!zinf_commit_recover(&c, &options) && zinf_commit_epoch(c) == 1);
        zinf_commit_destroy(c);
        disk.media[block_at(&disk, at)][40] ^= 1;
    }
}

static void spoil(struct disk *d, uint64_t at)
{
    for (int i = 0; i < 2; i++)
        d->media[block_at(d, at + (uint64_t)i * BLOCK)][40] ^= 1;
}

/* A record that cannot be read may have been the newest: the other counts only if all of it is
 * there, and a header that cannot be read is no store without steps. */
static void test_lost_records(void)
{
    static struct disk disk;
    struct zinf_commit *c = NULL;
    start(&disk);
    struct zinf_commit_options options = options_of(&disk, true);
    CHECK(!zinf_commit_create(&c, &options));
    CHECK(!make_step(&disk, c) && !make_step(&disk, c));
    spoil(&disk, 2 * 65536);
    zinf_commit_destroy(c);
    CHECK(!zinf_commit_recover(&c, &options) && zinf_commit_epoch(c) == 0);
    zinf_commit_destroy(c);
    disk.media[block_at(&disk, piece_address(0, 1))][7] ^= 1; /* the step after it had begun */
    CHECK(zinf_commit_recover(&c, &options) == -EBADMSG);
    spoil(&disk, 65536);
    CHECK(zinf_commit_recover(&c, &options) == -EBADMSG && strstr(zinf_error(), "records"));
    spoil(&disk, 65536);
    spoil(&disk, 2 * 65536);
    spoil(&disk, 0);
    CHECK(zinf_commit_recover(&c, &options) == -EBADMSG && strstr(zinf_error(), "header"));
    memset(disk.media[block_at(&disk, 0)], 0, BLOCK);
    memset(disk.media[block_at(&disk, BLOCK)], 0, BLOCK);
    CHECK(zinf_commit_recover(&c, &options) == -EBADMSG && strstr(zinf_error(), "header"));
}

/* A step that is damaged is given up only when that is asked for, and stays so. */
static void test_giving_up(void)
{
    static struct disk disk;
    struct zinf_commit *c = NULL;
    start(&disk);
    struct zinf_commit_options options = options_of(&disk, true);
    CHECK(!zinf_commit_create(&c, &options));
    CHECK(!make_step(&disk, c) && !make_step(&disk, c));
    zinf_commit_destroy(c);
    disk.media[block_at(&disk, piece_address(1, 0))][9] ^= 1;
    CHECK(zinf_commit_recover(&c, &options) == -EBADMSG);
    CHECK(!zinf_commit_give_up(&c, &options) && zinf_commit_epoch(c) == 0);
    zinf_commit_destroy(c);
    CHECK(!zinf_commit_recover(&c, &options) && zinf_commit_epoch(c) == 0);
    CHECK(pieces_are_of(&disk, c) && !make_step(&disk, c));
    zinf_commit_destroy(c);
    CHECK(!zinf_commit_recover(&c, &options) && zinf_commit_epoch(c) == 1);
    zinf_commit_destroy(c);
}

/* A piece whose write failed, or never was, has no checksum: the step cannot become true. */
static void test_unknown_pieces_are_not_committed(void)
{
    static struct disk disk;
    struct zinf_commit *c = NULL;
    int bank;
    start(&disk);
    struct zinf_commit_options options = options_of(&disk, true);
    CHECK(!zinf_commit_create(&c, &options) && !make_step(&disk, c));
    CHECK(!zinf_commit_begin(c, &bank));
    memset(disk.sums[bank], 1, N_PIECES * sizeof(uint32_t));
    disk.sums[bank][1] = 0;
    CHECK(zinf_commit_end(c, NULL, 0) == -EBADMSG && strstr(zinf_error(), "never written whole"));
    zinf_commit_destroy(c);
    CHECK(!zinf_commit_recover(&c, &options) && zinf_commit_epoch(c) == 0);
    zinf_commit_destroy(c);
}

int main(void)
{
    zinf_log_set_level(ZINF_LOG_ERROR);
    TAP_RUN(test_failed_flush_poisons);
    TAP_RUN(test_recovery_writes_nothing);
    TAP_RUN(test_strangers_are_refused);
    TAP_RUN(test_damage_is_loud);
    TAP_RUN(test_lost_records);
    TAP_RUN(test_giving_up);
    TAP_RUN(test_unknown_pieces_are_not_committed);
    return tap_done();
}
