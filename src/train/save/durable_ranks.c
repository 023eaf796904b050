/*
 * durable_ranks: steps of several ranks that outlive their processes. Each rank's store holds its
 * slices in two generations with records of its own (aio/commit.h); a step is the training's once
 * every rank has its record, and after any death all go on from the newest step of which that is
 * so. Two generations and two phases suffice:
 *
 *   Phase 1. A rank writes its record of step e when all that step e writes is written. Phase 2. It
 *   waits until all ranks have theirs (durable_meet), before anything of step e + 1 is written.
 *
 * Let e be the least of the ranks' newest records when all is over. A rank whose record is of e + 2
 * began to write step e + 2 after all had met at e + 1, so none would be at e: newest records are
 * of e or of e + 1. Whoever is at e has it whole, by aio/commit.h. Whoever is at e + 1 has its
 * generation of e whole too, for only writes of e + 2 go there, and they come after the meeting at
 * e + 1, which the ranks at e have not come to. So all have e, and those ahead go back to it. No
 * coordinator decides, and none is needed: every rank's slices are needed to go on at all.
 *
 * Who goes back spoils its record of e + 1 and waits for all others (below), before anybody can
 * write another one of e + 1: an old record never stands beside a new one of the same number.
 *
 * Where ranks have parameters whole (stages below 3), each drive has a copy of the rank's slice,
 * behind the state that it updates: after a restart they come together again.
 *
 * Records of different pasts, where a run began anew and was killed before each rank had, differ in
 * origin: a random number that is drawn when the first of them is made.
 */
#include "aio/steps.h"
#include "train/save/checkpoint.h"
#include "train/save/transfer.h"

#include <inttypes.h>
#include <stdlib.h>

int durable_meet(struct zinf_trainer *t)
{
    t->durable.unmet = false;
    return t->setup.mesh.all ? zinf_net_barrier(t->setup.mesh.all) : 0;
}

/* What a rank's store has: records so far, 0: none, and of which past. */
struct newest {
    uint64_t commits, origin;
};

static int read_newest(struct zinf_trainer *t, struct newest *out)
{
    struct checkpoint c;
    const void *scalars;
    uint64_t bytes;
    int generation;
    *out = (struct newest){0};
    if (!zinf_steps_recovered(t->durable.steps, &generation, &scalars, &bytes))
        return 0;
    int code = checkpoint_parse(&c, "the last step's scalars", scalars, bytes);
    if (code)
        return code;
    *out = (struct newest){zinf_steps_count(t->durable.steps), c.origin};
    checkpoint_fini(&c);
    return 0;
}

/* Whether the ranks' steps are of one past and no further apart than a crash leaves them. */
static int check_newest(const struct newest *all, uint32_t world, uint64_t *least)
{
    uint32_t last = 0;
    *least = all[0].commits;
    for (uint32_t r = 1; r < world; r++) {
        last = all[r].commits > all[last].commits ? r : last;
        *least = all[r].commits < *least ? all[r].commits : *least;
    }
    for (uint32_t r = 0; r < world; r++) {
        if (all[last].commits && !all[r].commits)
            return zinf_fail(-ENODATA,
                             "rank %u has no step on its drive, where rank %u has %" PRIu64
                             ": mount that drive, or continue from a checkpoint with --resume=DIR",
                             r, last, all[last].commits);
        if (all[r].commits + 1 < all[last].commits || all[r].origin != all[last].origin)
            return zinf_fail(
                -EBADMSG,
                "rank %u has other steps on its drive than rank %u (the last is "
                "number %" PRIu64 " there and %" PRIu64
                " here): one of them is an older copy; put it back, or continue from a "
                "checkpoint with --resume=DIR",
                r, last, all[r].commits, all[last].commits);
    }
    return 0;
}

int durable_agree(struct zinf_trainer *t)
{
    struct zinf_net *net = t->setup.mesh.all;
    struct newest own, *all;
    uint64_t least = 0;
    if (!net)
        return 0;
    int code = read_newest(t, &own);
    if (code)
        return code;
    uint32_t world = zinf_net_place(net).world;
    all = calloc(world, sizeof *all);
    code = all ? zinf_net_gather(net, &own, all, sizeof own)
               : zinf_fail(-ENOMEM, "no memory for what ranks have");
    if (!code)
        code = check_newest(all, world, &least);
    if (!code && own.commits > least)
        code = zinf_steps_go_back(t->durable.steps);
    free(all);
    return code ? code : zinf_net_barrier(net);
}

static int gather_unit(struct zinf_trainer *t, uint32_t unit)
{
    const struct zinf_layout_unit *u = &t->setup.layout.units[unit];
    uint64_t width = zinf_dtype_bytes(t->setup.dtype), bytes = u->slice_elems * width;
    struct source s = trainer_source(t);
    struct zinf_location where = zinf_tiers_param(t->plan.tiers, unit, 0);
    char *whole = (char *)source_region(&s).unit, *own = whole + u->slice_first * width;
    int code = source_read(&s, &where, u->front_bytes + u->slice_first * width, own, bytes);
    if (!code)
        code = zinf_net_gather(data_axis(&t->setup)->net, own, whole, bytes);
    return code ? code
                : source_write(&s, &where, u->front_bytes, whole,
                               bytes * data_axis(&t->setup)->world);
}

int durable_gather(struct zinf_trainer *t)
{
    bool whole = data_axis(&t->setup)->net && !t->setup.sliced && !whole_state(&t->setup);
    int code = 0;
    for (uint32_t u = 0; !code && whole && u < t->setup.n_units; u++)
        if (unit_trains(&t->setup, u))
            code = gather_unit(t, u);
    return code;
}
