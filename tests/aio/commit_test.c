/*
 * commit: random schedules of steps, kills and power cuts on a recording disk. After every crash
 * recovery must find the last acknowledged step or the one that was being committed, with exactly
 * its bytes. Then the same with one obligation of the protocol taken away at a time: a test that
 * does not catch each of these would prove nothing.
 */
#include "commit_disk.h"

#define LIVES 5
#define STEPS 4

enum outcome {
    GOOD,
    REFUSED, /* recovery says that it cannot */
    WRONG,
};

struct schedule {
    bool flush, power_cuts, kills;
    bool trusting; /* the order of writes alone must do; comparing would hide a mutant */
    enum mutant mutant;
};

/* One disk through several lives; *acked is the last epoch that was acknowledged. */
static enum outcome live(struct disk *d, const struct schedule *s, int64_t *acked)
{
    struct zinf_commit *c = NULL;
    struct zinf_commit_options options = options_of(d, s->flush);
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
    d->trusting = s->trusting;
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
    struct schedule s = {.flush = true, .power_cuts = true, .kills = true, .trusting = true};
    CHECK(campaign(&s, 12000, &refused) == 0 && refused == 0);
    s.kills = false;
    CHECK(campaign(&s, 3000, &refused) == 0 && refused == 0);
    s.trusting = false;
    CHECK(campaign(&s, 3000, &refused) == 0 && refused == 0);
}

static void test_kills_need_no_flush(void)
{
    int refused;
    struct schedule s = {.kills = true, .trusting = true};
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
    struct schedule s = {
        .flush = true, .power_cuts = true, .kills = true, .trusting = true, .mutant = mutant};
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
    struct schedule s = {.flush = true, .power_cuts = true, .mutant = LYING_DRIVE};
    /* Old states that are whole may come back: that nobody can see. Mixtures may not. */
    campaign(&s, 3000, &refused);
    CHECK(refused > 0);
}

int main(void)
{
    zinf_log_set_level(ZINF_LOG_ERROR); /* falling back is said every time */
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
    return tap_done();
}
