/*
 * run_steps_ranks: steps on the drives of several ranks. Each finds its own part, by a name of its
 * own made of the run's; whether there is something to go on from is decided by what all of them
 * have found, so that all decide alike. With another number of ranks the parts mean nothing: the
 * run goes on from a checkpoint then, which any number can read.
 */
#include "aio/steps.h"
#include "train/checkpoints.h"
#include "train/run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

/* ---- the name ---- */

struct shared_name {
    uint8_t id[16];
    uint64_t origin;
    uint32_t ranks;
    bool found, copied;
    char steps[4096]; /* "": NULL */
};

int run_share_name(struct run *run)
{
    struct run_name *name = &run->name;
    struct zinf_net_place place = {.world = 1};
    struct shared_name shared = {
        .ranks = name->ranks, .found = name->found, .copied = name->copied};
    int code = 0;
    memcpy(shared.id, name->id, sizeof shared.id);
    snprintf(shared.steps, sizeof shared.steps, "%s", name->steps ? name->steps : "");
    if (run->net) {
        place = zinf_net_place(run->net);
        if (!place.rank && getrandom(&shared.origin, sizeof shared.origin, 0) < 0)
            return zinf_fail(-EIO, "no random numbers to tell the run's steps by");
        code = zinf_net_broadcast(run->net, 0, &shared, sizeof shared);
    }
    run->origin = shared.origin;
    if (!code && place.rank) {
        memcpy(name->id, shared.id, sizeof name->id);
        name->ranks = shared.ranks;
        name->found = shared.found;
        name->copied = shared.copied;
        name->steps = shared.steps[0] ? strdup(shared.steps) : NULL;
    }
    run_name_of_rank(name->id, place.rank, place.world, run->own_id);
    return code;
}

/* ---- the steps ---- */

struct found {
    uint64_t step;
    bool there, incomplete, problem;
};

/* Some ranks have steps and some have none. If the run-id says that there must be, one is lost. */
static int settle_partial(struct run *run, const struct found *all, uint32_t world)
{
    char text[256];
    uint32_t without = 0;
    while (without < world && all[without].there)
        without++;
    free(run->left.folder);
    run->left.folder = NULL;
    if (!run->name.steps) /* they died before all had their first */
        return 0;
    snprintf(text, sizeof text, "rank %u has %s", without,
             all[without].problem ? "a damaged one" : "none");
    if (without != zinf_net_place(run->net).rank || !run->left.problem) {
        free(run->left.problem);
        run->left.problem = strdup(text);
    }
    return run->left.problem ? 0 : zinf_fail(-ENOMEM, "no memory for a sentence");
}

int run_share_steps(struct run *run)
{
    struct left_steps *left = &run->left;
    struct found own = {left->step, left->folder, left->incomplete, left->problem}, *all;
    if (!run->net)
        return 0;
    uint32_t world = zinf_net_place(run->net).world, n = 0;
    all = calloc(world, sizeof *all);
    int code = all ? zinf_net_gather(run->net, &own, all, sizeof own)
                   : zinf_fail(-ENOMEM, "no memory for what ranks have found");
    for (uint32_t r = 0; !code && r < world; r++) {
        n += all[r].there;
        left->incomplete |= all[r].incomplete;
        left->step = all[r].there && all[r].step < left->step ? all[r].step : left->step;
    }
    if (!code && n < world)
        code = settle_partial(run, all, world);
    free(all);
    return code;
}

/* ---- of another number of ranks ---- */

bool run_has_other_ranks(const struct run *run)
{
    return run->name.steps && run->name.ranks != (uint32_t)run_ranks(run);
}

int run_leave_other_ranks(struct run *run)
{
    const struct zinf_run_options *o = run->options;
    uint32_t then = run->name.ranks;
    bool asked_for_another = (o->resume && !o->resume_steps) || o->overwrite;
    if (asked_for_another)
        return 0;
    if (!o->resume)
        return zinf_fail(o->resume_steps ? -ENODATA : -EEXIST,
                         "the finished steps of this run are on the drives of %u rank%s (%s), and "
                         "no checkpoint is there that %" PRId64
                         " could continue from: start %u with "
                         "--resume, or choose another --output",
                         then, then == 1 ? "" : "s", run->name.steps, run_ranks(run), then);
    zinf_log(
        ZINF_LOG_WARN,
        "the last finished step is on the drives of %u rank%s (%s), and there %s %" PRId64
        " now: this run continues from the checkpoint %s, and what came after it is made again; "
        "stop it, and start %u with --resume, to continue from the step",
        then, then == 1 ? "" : "s", run->name.steps, run_ranks(run) == 1 ? "is" : "are",
        run_ranks(run), o->resume, then);
    return 0;
}

/* Whose run, on which drives. */
struct others {
    const struct run *run;
    const struct zinf_config_offload *drives;
};

static void drop(void *arg, const struct zinf_steps_info *info)
{
    const struct others *others = arg;
    struct zinf_store *store = NULL;
    uint32_t rank, world;
    if (!info->named || info->alive || info->path ||
        !zinf_run_id_rank(others->run->name.id, info->run, &rank, &world) ||
        world == (uint32_t)run_ranks(others->run))
        return;
    struct zinf_store_options options = {
        .paths = (const char *const *)others->drives->nvme_path,
        .n_paths = others->drives->n_nvme_paths,
        .label = "train",
        .checksums = true,
        .run = info->run,
    };
    if (zinf_store_create(&store, &options)) {
        zinf_log(ZINF_LOG_WARN, "%s stays: %s", info->folder, zinf_error());
        return;
    }
    zinf_steps_forget(store);
    zinf_store_destroy(store);
}

void run_drop_other_ranks(const struct run *run)
{
    struct others others = {run, setup_drives(run->config)};
    bool first = !run->net || !zinf_net_place(run->net).local_rank; /* on its host */
    if (first && run->named && zinf_steps_list(others.drives->nvme_path[0], drop, &others))
        zinf_log(ZINF_LOG_WARN, "%s", zinf_error());
}
