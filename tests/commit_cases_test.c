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
    uint64_t sums[N_PIECES] = {0};
    start(&disk);
    struct zinf_commit_options options = options_of(&disk, true, false);
    CHECK(!zinf_commit_create(&c, &options) && !zinf_commit_any(c));
    CHECK(!make_step(&disk, c) && !make_step(&disk, c) && zinf_commit_epoch(c) == 1);
    disk.fail_flush = true;
    CHECK(make_step(&disk, c) == -EIO && zinf_commit_epoch(c) == 1);
    CHECK(zinf_commit_begin(c, &bank) == -EIO && strstr(zinf_error(), "the flush failed"));
    CHECK(zinf_commit_end(c, sums, NULL, 0) == -EIO);
    zinf_commit_destroy(c);
    CHECK(!zinf_commit_recover(&c, &options) && zinf_commit_epoch(c) == 1);
    CHECK(zinf_commit_attempt(c) == 1 && pieces_are_of(&disk, c));
    CHECK(zinf_commit_end(c, sums, NULL, 0) == -EINVAL); /* no begin */
    zinf_commit_destroy(c);
}

static void test_recovery_writes_nothing(void)
{
    static struct disk disk, before;
    struct zinf_commit *c = NULL;
    start(&disk);
    struct zinf_commit_options options = options_of(&disk, true, true);
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
    struct zinf_commit_options options = options_of(&disk, true, true), other = options;
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
    CHECK(zinf_commit_recover(&c, &other) == -EINVAL && strstr(zinf_error(), "another model"));
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
    struct zinf_commit_options options = options_of(&disk, true, true);
    CHECK(!zinf_commit_create(&c, &options));
    CHECK(!make_step(&disk, c) && !make_step(&disk, c));
    zinf_commit_destroy(c);
    uint8_t *piece = disk.media[block_at(&disk, piece_address(1, 2))];
    piece[100] ^= 1;
    CHECK(zinf_commit_recover(&c, &options) == -EBADMSG && strstr(zinf_error(), "checkpoint"));
    piece[100] ^= 1;
    uint8_t *manifest = disk.media[block_at(&disk, 3 * 65536 + BLOCK)];
    manifest[20] ^= 1;
    CHECK(zinf_commit_recover(&c, &options) == -EBADMSG && strstr(zinf_error(), "manifest"));
    manifest[20] ^= 1;
    /* A torn record does not exist: the other slot has the epoch before. */
    disk.media[block_at(&disk, 2 * 65536)][40] ^= 1;
    CHECK(!zinf_commit_recover(&c, &options) && zinf_commit_epoch(c) == 0);
    zinf_commit_destroy(c);
}

int main(void)
{
    TAP_RUN(test_failed_flush_poisons);
    TAP_RUN(test_recovery_writes_nothing);
    TAP_RUN(test_strangers_are_refused);
    TAP_RUN(test_damage_is_loud);
    return tap_done();
}
