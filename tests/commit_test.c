/*
 * commit: random schedules of steps, kills and power cuts on a recording disk. After every crash
 * recovery must find the last acknowledged step or the one that was being committed, with exactly
 * its bytes; a power cut leaves any legal image: of every sector that was written and not flushed
 * since, the old bytes, those of any such write, or garbage. Then the same with one obligation of
 * the protocol taken away at a time: a test that does not catch each of these would prove nothing.
 */
#include "aio/commit.h"
#include "tap.h"

#include <stdlib.h>
#include <xxhash.h>

#define BLOCK 4096
#define SECTOR 512
#define SECTORS (BLOCK / SECTOR)
#define N_PIECES 3
#define MAX_BLOCKS 16
#define MAX_PENDING 64
#define BANKS_AT (1u << 30) /* the pieces' blocks; the commit area is below */
#define LIVES 5
#define STEPS 4

enum mutant {
    FAITHFUL,
    NO_BARRIER,      /* the record may overtake what it names */
    NO_RECORD_FLUSH, /* a step is acknowledged that the drive may forget */
    NO_OPEN_FLUSH,   /* recovery believes the drive's cache */
    NO_FENCE,        /* the dead process's writes land in the new one's time */
    ONE_SLOT,        /* the newest record is overwritten in place */
    EARLY_OVERWRITE, /* the true bank is written before another is committed */
    LYING_DRIVE,     /* no flush does anything: cannot be survived, must be found */
    MUTANTS,
};
static const char *const mutant_names[] = {"faithful",         "no barrier", "record without flush",
                                           "no flush at open", "no fencing", "one record slot",
                                           "early overwrite",  "lying drive"};

/* ---- the recording disk ---- */

struct write {
    int block;
    bool done, stale; /* stale: of a process that is dead */
    uint8_t data[BLOCK];
};
struct disk {
    uint64_t random;
    enum mutant mutant;
    uint64_t address[MAX_BLOCKS];
    uint8_t media[MAX_BLOCKS][BLOCK];
    int n_blocks;
    struct write pending[MAX_PENDING]; /* in the order in which a reader sees them */
    int n_pending;
    int fuel;  /* events until the crash; -1: none */
    bool dead; /* the process is: nothing that it does has an effect any more */
    bool opening, fail_flush;
    int flushes; /* of this commit */
    uint64_t boot;
};

static uint64_t draw(struct disk *d, uint64_t n)
{
    d->random += 0x9e3779b97f4a7c15u;
    uint64_t z = d->random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

static int block_at(struct disk *d, uint64_t address)
{
    for (int i = 0; i < d->n_blocks; i++)
        if (d->address[i] == address)
            return i;
    if (d->n_blocks == MAX_BLOCKS) {
        printf("Bail out! too many blocks\n");
        exit(99);
    }
    d->address[d->n_blocks] = address;
    return d->n_blocks++;
}

static void drop_pending(struct disk *d, int i)
{
    d->n_pending--;
    memmove(&d->pending[i], &d->pending[i + 1], (size_t)(d->n_pending - i) * sizeof d->pending[0]);
}

/* One late write of a dead process reaches the drive, over all that is there. */
static void land_stale(struct disk *d)
{
    for (int i = 0; i < d->n_pending; i++) {
        if (!d->pending[i].stale || d->pending[i].done)
            continue;
        struct write late = d->pending[i];
        drop_pending(d, i);
        late.done = true;
        d->pending[d->n_pending++] = late;
        return;
    }
}

/* An event; false when the process dies before it. */
static bool tick(struct disk *d)
{
    if (d->fuel > 0)
        d->fuel--;
    else if (d->fuel == 0)
        d->dead = true;
    if (!d->dead && !draw(d, 3))
        land_stale(d);
    return !d->dead;
}

/* A drive may write back its cache whenever it likes; with room for few writes here it must. */
static void write_back(struct disk *d, int i)
{
    struct write *w = &d->pending[i];
    memcpy(d->media[w->block], w->data, BLOCK);
    for (int k = i - 1; k >= 0; k--)
        if (d->pending[k].block == d->pending[i].block && d->pending[k].done) {
            drop_pending(d, k);
            i--;
        }
    drop_pending(d, i);
}

static int issue(struct disk *d, uint64_t address, const void *data)
{
    if (d->n_pending == MAX_PENDING)
        for (int i = 0; i < d->n_pending; i++)
            if (d->pending[i].done) {
                write_back(d, i);
                break;
            }
    struct write *w = &d->pending[d->n_pending];
    *w = (struct write){.block = block_at(d, address)};
    memcpy(w->data, data, BLOCK);
    return d->n_pending++;
}

static const uint8_t *view(struct disk *d, uint64_t address)
{
    int block = block_at(d, address);
    for (int i = d->n_pending; i-- > 0;)
        if (d->pending[i].block == block && !(d->pending[i].stale && !d->pending[i].done))
            return d->pending[i].data;
    return d->media[block];
}

static uint64_t slot_address(const struct disk *d, uint64_t offset)
{
    bool second_slot = offset == 2 * 65536;
    return d->mutant == ONE_SLOT && second_slot ? 65536 : offset;
}

/* ---- the calls of the commit ---- */

static int disk_read(void *arg, uint64_t offset, void *memory, uint64_t bytes)
{
    struct disk *d = arg;
    if (!tick(d))
        return zinf_fail(-EIO, "dead");
    for (uint64_t at = 0; at < bytes; at += BLOCK)
        memcpy((char *)memory + at, view(d, slot_address(d, offset + at)), BLOCK);
    return 0;
}

static int disk_write(void *arg, uint64_t offset, const void *memory, uint64_t bytes)
{
    struct disk *d = arg;
    for (uint64_t at = 0; at < bytes; at += BLOCK) {
        if (!tick(d))
            return zinf_fail(-EIO, "dead");
        int i = issue(d, slot_address(d, offset + at), (const char *)memory + at);
        if (!tick(d))
            return zinf_fail(-EIO, "dead");
        /* A stale write may have moved it. */
        for (i = d->n_pending; i-- > 0;)
            if (!d->pending[i].stale)
                d->pending[i].done = true;
    }
    return tick(d) ? 0 : zinf_fail(-EIO, "dead");
}

static int disk_flush(void *arg)
{
    struct disk *d = arg;
    bool skipped = d->mutant == LYING_DRIVE || (d->opening && d->mutant == NO_OPEN_FLUSH) ||
                   (!d->opening && d->mutant == NO_BARRIER && d->flushes == 0) ||
                   (!d->opening && d->mutant == NO_RECORD_FLUSH && d->flushes == 1);
    d->flushes++;
    if (!tick(d))
        return zinf_fail(-EIO, "dead");
    if (d->fail_flush) {
        d->fail_flush = false;
        return zinf_fail(-EIO, "the flush failed");
    }
    for (int i = 0; !skipped && i < d->n_pending;) {
        if (d->pending[i].done) {
            memcpy(d->media[d->pending[i].block], d->pending[i].data, BLOCK);
            drop_pending(d, i);
        } else {
            i++;
        }
    }
    return tick(d) ? 0 : zinf_fail(-EIO, "dead");
}

/* The lock of the files comes free when the last write of the dead process is through. */
static int disk_fence(void *arg)
{
    struct disk *d = arg;
    if (!tick(d))
        return zinf_fail(-EIO, "dead");
    for (int i = 0; d->mutant != NO_FENCE && i < MAX_PENDING; i++)
        land_stale(d);
    return 0;
}

static uint64_t piece_address(int bank, uint64_t piece)
{
    return BANKS_AT + ((uint64_t)bank * N_PIECES + piece) * BLOCK;
}

static int disk_check(void *arg, int bank, uint64_t piece, uint64_t sum)
{
    struct disk *d = arg;
    if (!tick(d))
        return zinf_fail(-EIO, "dead");
    return XXH3_64bits(view(d, piece_address(bank, piece)), BLOCK) == sum
               ? 0
               : zinf_fail(-EBADMSG, "piece %d", (int)piece);
}

/* ---- crashes ---- */

static void power_cut(struct disk *d)
{
    for (int block = 0; block < d->n_blocks; block++) {
        for (int sector = 0; sector < SECTORS; sector++) {
            int choices[MAX_PENDING], n = 0;
            for (int i = 0; i < d->n_pending; i++)
                if (d->pending[i].block == block)
                    choices[n++] = i;
            uint64_t choice = n ? draw(d, (uint64_t)n + 1) : 0;
            uint8_t *target = d->media[block] + sector * SECTOR;
            if (choice)
                memcpy(target, d->pending[choices[choice - 1]].data + sector * SECTOR, SECTOR);
            if (choice && !draw(d, 16))
                memset(target, (int)draw(d, 256), SECTOR);
        }
    }
    d->n_pending = 0;
    d->boot++;
}

/* What was completed stays in the caches; what was under way lands later, or never. */
static void kill_9(struct disk *d)
{
    for (int i = 0; i < d->n_pending;) {
        d->pending[i].stale = true;
        if (!d->pending[i].done && draw(d, 2))
            drop_pending(d, i);
        else
            i++;
    }
}

/* ---- a process: recovers, makes steps, dies ---- */

struct scalars {
    uint64_t epoch, attempt;
};

/* Every attempt at an epoch has bytes of its own, so that a mixture shows. */
static void fill(uint8_t data[BLOCK], uint64_t epoch, uint64_t attempt, uint64_t piece)
{
    uint64_t words[BLOCK / 8];
    for (int i = 0; i < BLOCK / 8; i++)
        words[i] = epoch * 1000003 + attempt * 7919 + piece * 131 + (uint64_t)i / 64;
    memcpy(data, words, BLOCK);
}

static struct zinf_commit_options options_of(struct disk *d, bool flush, bool verify)
{
    struct zinf_commit_options o = {
        .io = {disk_fence, disk_read, disk_write, disk_flush, disk_check, d},
        .uuid = "a store's number",
        .layout = 42,
        .n_pieces = N_PIECES,
        .payload_bytes = sizeof(struct scalars),
        .flush = flush,
        .verify = verify,
    };
    memcpy(o.boot, &d->boot, sizeof d->boot);
    return o;
}

/* The pieces of the other bank, completed in any order. */
static void write_bank(struct disk *d, int bank, uint64_t epoch, uint64_t attempt, uint64_t *sums)
{
    uint8_t data[BLOCK];
    for (uint64_t i = 0; i < N_PIECES; i++) {
        fill(data, epoch, attempt, i);
        sums[i] = XXH3_64bits(data, BLOCK);
        if (tick(d))
            issue(d, piece_address(bank, i), data);
    }
    for (uint64_t left = N_PIECES; left && tick(d);) {
        int i = (int)draw(d, (uint64_t)d->n_pending);
        if (!d->pending[i].done && !d->pending[i].stale) {
            d->pending[i].done = true;
            left--;
        }
        d->fuel += d->fuel >= 0; /* looking for one is no event */
        d->fuel -= d->fuel > 0 && d->pending[i].done;
    }
}

static int make_step(struct disk *d, struct zinf_commit *c)
{
    uint64_t sums[N_PIECES];
    struct scalars scalars = {zinf_commit_any(c) ? zinf_commit_epoch(c) + 1 : 0,
                              zinf_commit_attempt(c)};
    int bank;
    int code = zinf_commit_begin(c, &bank);
    if (code)
        return code;
    write_bank(d, bank, scalars.epoch, scalars.attempt, sums);
    if (d->mutant == EARLY_OVERWRITE && !d->dead) {
        uint8_t data[BLOCK];
        fill(data, scalars.epoch + 1, scalars.attempt, 0);
        d->pending[issue(d, piece_address(!bank, 0), data)].done = true;
    }
    d->flushes = 0;
    return d->dead ? -EIO : zinf_commit_end(c, sums, &scalars, sizeof scalars);
}

static bool pieces_are_of(struct disk *d, const struct zinf_commit *c)
{
    struct scalars scalars;
    uint64_t bytes;
    uint8_t data[BLOCK];
    const void *payload = zinf_commit_payload(c, &bytes);
    if (bytes != sizeof scalars)
        return false;
    memcpy(&scalars, payload, sizeof scalars);
    for (uint64_t i = 0; i < N_PIECES; i++) {
        fill(data, scalars.epoch, scalars.attempt, i);
        if (memcmp(view(d, piece_address(zinf_commit_bank(c), i)), data, BLOCK) ||
            zinf_commit_sums(c)[i] != XXH3_64bits(data, BLOCK))
            return false;
    }
    return scalars.epoch == zinf_commit_epoch(c);
}

enum outcome {
    GOOD,
    REFUSED, /* recovery says that it cannot */
    WRONG,
};

struct schedule {
    bool flush, verify, power_cuts, kills;
    enum mutant mutant;
};

/* One disk through several lives; *acked is the last epoch that was acknowledged. */
static enum outcome live(struct disk *d, const struct schedule *s, int64_t *acked)
{
    struct zinf_commit *c = NULL;
    struct zinf_commit_options options = options_of(d, s->flush, s->verify);
    d->dead = false;
    d->opening = true;
    int code = *acked < 0 ? zinf_commit_create(&c, &options) : zinf_commit_recover(&c, &options);
    d->opening = false;
    if (code)
        return d->dead ? GOOD : REFUSED;
    enum outcome outcome = GOOD;
    if (*acked >= 0) {
        int64_t epoch = (int64_t)zinf_commit_epoch(c);
        bool in_time = epoch == *acked || epoch == *acked + 1;
        if (!s->flush && s->power_cuts) /* an older one that is whole may be all there is */
            in_time = epoch <= *acked + 1;
        outcome = in_time && pieces_are_of(d, c) ? GOOD : WRONG;
        *acked = epoch;
    }
    for (int i = 0; outcome == GOOD && i < STEPS && !make_step(d, c); i++)
        *acked = (int64_t)zinf_commit_epoch(c);
    zinf_commit_destroy(c);
    return outcome;
}

static enum outcome run(const struct schedule *s, uint64_t seed)
{
    static struct disk disk;
    struct disk *d = &disk;
    int64_t acked = -1;
    enum outcome outcome = GOOD;
    d->n_blocks = d->n_pending = 0;
    memset(d->media, 0, sizeof d->media);
    d->random = seed;
    d->mutant = s->mutant;
    d->boot = 1;
    d->fail_flush = false;
    for (int life = 0; outcome == GOOD && life < LIVES; life++) {
        d->fuel = life == 0 ? 60 + (int)draw(d, 60) : (int)draw(d, 90);
        if (life == LIVES - 1)
            d->fuel = -1;
        outcome = live(d, s, &acked);
        if (s->power_cuts && (!s->kills || draw(d, 2)))
            power_cut(d);
        else
            kill_9(d);
    }
    return outcome;
}

/* Runs n schedules; returns how many of them went wrong, and in *refused how many were refused. */
static int campaign(const struct schedule *s, int n, int *refused)
{
    int wrong = 0;
    *refused = 0;
    for (int seed = 1; seed <= n; seed++) {
        enum outcome outcome = run(s, (uint64_t)seed * 7919);
        *refused += outcome == REFUSED;
        if (outcome == WRONG && !wrong++ && s->mutant == FAITHFUL)
            printf("# seed %d goes wrong\n", seed);
    }
    printf("# %s, %s, %s%s: %d schedules, %d wrong, %d refused\n", mutant_names[s->mutant],
           s->flush ? "flushed" : "not flushed", s->power_cuts ? "power cuts" : "",
           s->kills ? " kills" : "", n, wrong, *refused);
    return wrong;
}

static void test_faithful(void)
{
    int refused;
    struct schedule s = {.flush = true, .power_cuts = true, .kills = true};
    CHECK(campaign(&s, 12000, &refused) == 0 && refused == 0);
    s.kills = false;
    CHECK(campaign(&s, 3000, &refused) == 0 && refused == 0);
    s.verify = true;
    CHECK(campaign(&s, 3000, &refused) == 0 && refused == 0);
}

static void test_kills_need_no_flush(void)
{
    int refused;
    struct schedule s = {.kills = true};
    CHECK(campaign(&s, 6000, &refused) == 0 && refused == 0);
}

/* Not flushed, the last steps may be lost, or all; but nothing false is ever taken for true. */
static void test_power_cuts_without_flush(void)
{
    int refused;
    struct schedule s = {.power_cuts = true, .kills = true};
    CHECK(campaign(&s, 6000, &refused) == 0 && refused > 0 && refused < 6000);
}

static void check_mutant(enum mutant mutant)
{
    int refused;
    struct schedule s = {.flush = true, .power_cuts = true, .kills = true, .mutant = mutant};
    int wrong = campaign(&s, 3000, &refused);
    CHECKF(wrong + refused > 0, "%s is not caught", mutant_names[mutant]);
}

static void test_no_barrier_is_caught(void)
{
    check_mutant(NO_BARRIER);
}

static void test_record_without_flush_is_caught(void)
{
    check_mutant(NO_RECORD_FLUSH);
}

static void test_no_flush_at_open_is_caught(void)
{
    check_mutant(NO_OPEN_FLUSH);
}

static void test_no_fencing_is_caught(void)
{
    check_mutant(NO_FENCE);
}

static void test_one_slot_is_caught(void)
{
    check_mutant(ONE_SLOT);
}

static void test_early_overwrite_is_caught(void)
{
    check_mutant(EARLY_OVERWRITE);
}

static void test_lying_drive_is_found(void)
{
    int refused;
    struct schedule s = {.flush = true, .verify = true, .power_cuts = true, .mutant = LYING_DRIVE};
    /* Old states that are whole may come back: that nobody can see. Mixtures may not. */
    campaign(&s, 3000, &refused);
    CHECK(refused > 0);
}

/* ---- one by one ---- */

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
    TAP_RUN(test_faithful);
    TAP_RUN(test_kills_need_no_flush);
    TAP_RUN(test_power_cuts_without_flush);
    TAP_RUN(test_no_barrier_is_caught);
    TAP_RUN(test_record_without_flush_is_caught);
    TAP_RUN(test_no_flush_at_open_is_caught);
    TAP_RUN(test_no_fencing_is_caught);
    TAP_RUN(test_one_slot_is_caught);
    TAP_RUN(test_early_overwrite_is_caught);
    TAP_RUN(test_lying_drive_is_found);
    TAP_RUN(test_failed_flush_poisons);
    TAP_RUN(test_recovery_writes_nothing);
    TAP_RUN(test_strangers_are_refused);
    TAP_RUN(test_damage_is_loud);
    return tap_done();
}
