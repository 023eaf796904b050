/*
 * commit_disk: a recording disk for the tests of commit, and a process that makes steps on it. Each
 * call is an event at which the process may die. Of a power cut every legal image may be left: of
 * every sector that was written and not flushed since, the old bytes, those of any such write, or
 * garbage. A mutant takes one obligation of the protocol away.
 */
#ifndef ZINF_COMMIT_DISK_H
#define ZINF_COMMIT_DISK_H

#include "aio/commit.h"
#include "tap.h"

#include <stdlib.h>
#include <xxhash.h>

#define BLOCK 4096
#define SECTOR 512
#define SECTORS (BLOCK / SECTOR)
#define N_PIECES 3
#define MAX_BLOCKS 20
#define MAX_PENDING 64
#define BANKS_AT (1u << 30) /* the pieces' blocks; the commit area is below */

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
    bool trusting; /* recovery compares nothing */
    int flushes;   /* of this commit */
    uint64_t boot;
    uint32_t *sums[2]; /* of the process that lives: [1024] each */
};

static inline uint64_t draw(struct disk *d, uint64_t n)
{
    d->random += 0x9e3779b97f4a7c15u;
    uint64_t z = d->random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

static inline int block_at(struct disk *d, uint64_t address)
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

static inline void drop_pending(struct disk *d, int i)
{
    d->n_pending--;
    memmove(&d->pending[i], &d->pending[i + 1], (size_t)(d->n_pending - i) * sizeof d->pending[0]);
}

/* One late write of a dead process reaches the drive, over all that is there. */
static inline void land_stale(struct disk *d)
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
static inline bool tick(struct disk *d)
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
static inline void write_back(struct disk *d, int i)
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

static inline int issue(struct disk *d, uint64_t address, const void *data)
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

static inline const uint8_t *view(struct disk *d, uint64_t address)
{
    int block = block_at(d, address);
    for (int i = d->n_pending; i-- > 0;)
        if (d->pending[i].block == block && !(d->pending[i].stale && !d->pending[i].done))
            return d->pending[i].data;
    return d->media[block];
}

static inline uint64_t slot_address(const struct disk *d, uint64_t offset)
{
    bool second_slot = offset / 65536 == 2;
    return d->mutant == ONE_SLOT && second_slot ? offset - 65536 : offset;
}

/* ---- the calls of the commit ---- */

static inline int disk_read(void *arg, uint64_t offset, void *memory, uint64_t bytes)
{
    struct disk *d = arg;
    if (!tick(d))
        return zinf_fail(-EIO, "dead");
    for (uint64_t at = 0; at < bytes; at += BLOCK)
        memcpy((char *)memory + at, view(d, slot_address(d, offset + at)), BLOCK);
    return 0;
}

static inline int disk_write(void *arg, uint64_t offset, const void *memory, uint64_t bytes)
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

static inline int disk_flush(void *arg)
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
static inline int disk_fence(void *arg)
{
    struct disk *d = arg;
    if (!tick(d))
        return zinf_fail(-EIO, "dead");
    for (int i = 0; d->mutant != NO_FENCE && i < MAX_PENDING; i++)
        land_stale(d);
    return 0;
}

static inline uint64_t piece_address(int bank, uint64_t piece)
{
    return BANKS_AT + ((uint64_t)bank * N_PIECES + piece) * BLOCK;
}

static inline uint32_t sum_of(const uint8_t *block)
{
    return (uint32_t)XXH3_64bits(block, BLOCK) | 1;
}

static inline int disk_check(void *arg, int bank)
{
    struct disk *d = arg;
    if (!tick(d))
        return zinf_fail(-EIO, "dead");
    for (uint64_t i = 0; !d->trusting && i < N_PIECES; i++)
        if (sum_of(view(d, piece_address(bank, i))) != d->sums[bank][i])
            return zinf_fail(-EBADMSG, "piece %d", (int)i);
    return 0;
}

/* ---- crashes ---- */

static inline void power_cut(struct disk *d)
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
static inline void kill_9(struct disk *d)
{
    for (int i = 0; i < d->n_pending;) {
        d->pending[i].stale = true;
        if (!d->pending[i].done && draw(d, 2))
            drop_pending(d, i);
        else
            i++;
    }
}

/* ---- a process ---- */

struct scalars {
    uint64_t epoch, attempt;
};

/* Every attempt at an epoch has bytes of its own, so that a mixture shows. */
static inline void fill(uint8_t data[BLOCK], uint64_t epoch, uint64_t attempt, uint64_t piece)
{
    uint64_t words[BLOCK / 8];
    for (int i = 0; i < BLOCK / 8; i++)
        words[i] = epoch * 1000003 + attempt * 7919 + piece * 131 + (uint64_t)i / 64;
    memcpy(data, words, BLOCK);
}

static inline void free_sums(struct disk *d)
{
    free(d->sums[0]);
    free(d->sums[1]);
    d->sums[0] = d->sums[1] = NULL;
}

/* For a process of its own: nothing is known. */
static inline struct zinf_commit_options options_of(struct disk *d, bool flush)
{
    struct zinf_commit_options o = {
        .io = {disk_fence, disk_read, disk_write, disk_flush, disk_check, d},
        .uuid = "a store's number",
        .layout = 42,
        .n_pieces = N_PIECES,
        .payload_bytes = sizeof(struct scalars),
        .flush = flush,
    };
    free_sums(d);
    for (int i = 0; i < 2; i++) {
        if (posix_memalign((void **)&d->sums[i], BLOCK, BLOCK))
            exit(99);
        memset(d->sums[i], 0, BLOCK);
        o.sums[i] = d->sums[i];
    }
    memcpy(o.boot, &d->boot, sizeof d->boot);
    return o;
}

/* The pieces of the other bank, completed in any order. */
static inline void write_bank(struct disk *d, int bank, uint64_t epoch, uint64_t attempt)
{
    uint8_t data[BLOCK];
    for (uint64_t i = 0; i < N_PIECES; i++) {
        fill(data, epoch, attempt, i);
        d->sums[bank][i] = sum_of(data);
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

static inline int make_step(struct disk *d, struct zinf_commit *c)
{
    struct scalars scalars = {zinf_commit_any(c) ? zinf_commit_epoch(c) + 1 : 0,
                              zinf_commit_attempt(c)};
    int bank;
    int code = zinf_commit_begin(c, &bank);
    if (code)
        return code;
    write_bank(d, bank, scalars.epoch, scalars.attempt);
    if (d->mutant == EARLY_OVERWRITE && !d->dead) {
        uint8_t data[BLOCK];
        fill(data, scalars.epoch + 1, scalars.attempt, 0);
        d->pending[issue(d, piece_address(!bank, 0), data)].done = true;
    }
    d->flushes = 0;
    return d->dead ? -EIO : zinf_commit_end(c, &scalars, sizeof scalars);
}

static inline bool pieces_are_of(struct disk *d, const struct zinf_commit *c)
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
            d->sums[zinf_commit_bank(c)][i] != sum_of(data))
            return false;
    }
    return scalars.epoch == zinf_commit_epoch(c);
}

#endif
