/*
 * store_outlives: a store that its process leaves behind. Each run folder says in one sealed block
 * whose it is and how the bytes lie; the next process of the same run takes all of them or none.
 * The files themselves are locked too: what a dying process has in flight keeps its files open, so
 * who holds the locks knows that nothing of it lands any more.
 */
#include "build-config.h"

#include "aio/aio_store.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- a new store ---- */

/* A hash of the extents with two generations, which hold the steps. Those with one generation lie
 * behind them; each process writes them anew, and may have more or fewer of them. */
static uint64_t number_of_extents(const struct zinf_store *store)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < store->n_extents; i++) {
        uint64_t extent[2] = {sum, store->extents[i].bytes};
        if (store->extents[i].n_generations == 2)
            sum = XXH3_64bits(extent, sizeof extent);
    }
    return sum;
}

static int mark_path(const struct zinf_store *store, int path, enum zinf_steps_state state)
{
    struct zinf_steps_plan plan = {.path = (uint16_t)path,
                                   .n_paths = (uint16_t)store->n_paths,
                                   .extents = number_of_extents(store),
                                   .file_bytes = store->paths[path].bytes,
                                   .stripe_bytes = store->stripe_bytes,
                                   .pattern_length = store->pattern_length,
                                   .bank_bytes = store->bank_bytes,
                                   .state = state};
    memcpy(plan.run, store->run, sizeof plan.run);
    memcpy(plan.store, store->id, sizeof plan.store);
    memcpy(plan.pattern, store->pattern, sizeof plan.pattern);
    return zinf_steps_plan_write(&plan, store->paths[path].folder.path);
}

int zinf_store_mark_begun(struct zinf_store *store)
{
    int code = 0;
    if (getrandom(store->id, sizeof store->id, 0) != (ssize_t)sizeof store->id)
        return zinf_fail(-EIO, "no random numbers to name a store");
    for (int i = 0; !code && i < store->n_paths; i++)
        code = mark_path(store, i, ZINF_STEPS_GOING);
    return code;
}

int zinf_store_mark(struct zinf_store *store)
{
    int code = 0;
    for (int i = 0; !code && i < store->n_paths; i++)
        code = zinf_lock_wait(store->paths[i].file->fd, store->paths[i].file->path);
    for (int i = store->n_paths; !code && i-- > 0;)
        code = mark_path(store, i, i ? ZINF_STEPS_KEPT : ZINF_STEPS_FILLED);
    store->outlives = !code;
    return code;
}

int zinf_store_mark_again(struct zinf_store *store)
{
    struct zinf_steps_plan plan;
    int code = 0;
    for (int i = 0; !code && i < store->n_paths; i++) {
        code = zinf_steps_plan_read(&plan, store->paths[i].folder.path);
        if (!code)
            code = zinf_steps_plan_write(&plan, store->paths[i].folder.path);
    }
    return code;
}

int zinf_store_mark_kept(struct zinf_store *store)
{
    return mark_path(store, 0, ZINF_STEPS_KEPT);
}

void zinf_store_unmark(struct zinf_store *store)
{
    if (!store->outlives)
        return;
    store->outlives = false;
    for (int i = 0; i < store->n_paths; i++) /* the first path decides, so it is marked first */
        if (mark_path(store, i, ZINF_STEPS_GOING))
            zinf_log(ZINF_LOG_WARN, "aio: %s", zinf_error());
}

/* ---- adopting ---- */

static int fail_incomplete(const struct zinf_store_options *options, int missing)
{
    return zinf_fail(-ENOENT,
                     "the run's state lies on %d paths, but %s has none of it: mount that drive, "
                     "or continue from a checkpoint with --resume=DIR and remove the folders "
                     "zinf-%s.steps-* of the "
                     "other paths",
                     options->n_paths, options->paths[missing], options->label);
}

static int check_plan(struct zinf_store *store, const struct zinf_steps_plan *plan, int path)
{
    if (path == 0)
        memcpy(store->id, plan->store, sizeof store->id);
    if (plan->path == path && plan->n_paths == store->n_paths &&
        !memcmp(store->id, plan->store, sizeof store->id))
        return 0;
    return zinf_fail(-EINVAL,
                     "%s is path %u of %u of the run's state: give nvme_path the same folders in "
                     "the same order",
                     store->paths[path].folder.path, plan->path, plan->n_paths);
}

/* Removes a store that was never ready, or whose removal had begun. */
static void drop_garbage(struct zinf_store *store)
{
    for (int i = store->n_paths; i-- > 0;)
        zinf_run_folder_drop(&store->paths[i].folder);
}

/* Adds two extents by a description, which says how many bytes there are and not what they hold:
 * one for all bytes with two generations and one for the rest. */
static int add_found(struct zinf_store *store, const struct zinf_steps_plan *plan, uint64_t bytes)
{
    zinf_extent extent;
    int code = 0;
    store->stripe_bytes = plan->stripe_bytes;
    if (plan->bank_bytes)
        code = zinf_store_add_extent_pair(store, plan->bank_bytes, &extent);
    if (!code && bytes > 2 * plan->bank_bytes)
        code = zinf_store_add_extent(store, bytes - 2 * plan->bank_bytes, &extent);
    return code;
}

/* Removes folders of dead processes, as taking a new folder does; for a store that takes an old
 * one. */
static void reclaim_others(const struct zinf_store *store, const char *parent)
{
    int fd = store->as_found ? -1 : open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    zinf_run_folders_reclaim(fd, parent);
    close(fd);
}

int zinf_store_adopt(struct zinf_store *store, const struct zinf_store_options *options)
{
    struct zinf_steps_plan plan, first = {0};
    uint64_t bytes = 0;
    int taken = 0, missing = -1;
    memcpy(store->run, options->run, sizeof store->run);
    store->named = true;
    store->as_found = options->as_found;
    for (int i = 0; i < store->n_paths; i++) {
        int code =
            zinf_run_folder_adopt(&store->paths[i].folder, options->paths[i], store->run, &plan);
        if (code < 0)
            return code;
        store->outlives = store->outlives || code; /* after a failure it stays on the drive */
        taken += code;
        missing = code ? missing : i;
        bytes += code ? plan.file_bytes : 0;
        first = i ? first : plan;
        if (code)
            reclaim_others(store, options->paths[i]);
        code = code ? check_plan(store, &plan, i) : 0;
        if (code)
            return code;
    }
    bool garbage = taken && store->paths[0].folder.path && first.state != ZINF_STEPS_KEPT;
    if (garbage && !store->as_found)
        drop_garbage(store);
    store->adopted = taken > 0 && !garbage;
    store->outlives = store->adopted || store->as_found;
    if (store->adopted && missing >= 0)
        return fail_incomplete(options, missing);
    if (!store->as_found)
        return 0;
    return store->adopted ? add_found(store, &first, bytes)
                          : zinf_fail(-ENOENT, "no step was committed in this store");
}

/* Makes the file long enough for what this process has behind the steps, and then says so in its
 * description. A process that dies in between leaves a file that is longer than is said of it,
 * which is no damage. */
static int fit_file(const struct zinf_store_path *path, struct zinf_steps_plan *plan)
{
    if (path->bytes <= plan->file_bytes)
        return 0;
    int code = zinf_store_reserve(path);
    plan->file_bytes = path->bytes;
    return code ? code : zinf_steps_plan_write(plan, path->folder.path);
}

static int open_path(struct zinf_store *store, int i)
{
    struct zinf_store_path *path = &store->paths[i];
    struct zinf_steps_plan plan;
    int code = zinf_steps_plan_read(&plan, path->folder.path);
    if (code)
        return code;
    if ((plan.extents != number_of_extents(store) && !store->as_found) ||
        plan.stripe_bytes != store->stripe_bytes || plan.bank_bytes != store->bank_bytes)
        return zinf_fail(-EEXIST,
                         "%s holds the run's steps under another plan (model, number type, "
                         "optimizer, sub_group_size, offloading): go back to that configuration, "
                         "or remove the folder to continue from a checkpoint",
                         path->folder.path);
    if (i == 0)
        zinf_store_map_restore(store, plan.pattern, plan.pattern_length);
    char *name = zinf_path_join(path->folder.path, ZINF_STORE_FILE);
    code = name ? zinf_aio_open(&path->file, name, ZINF_AIO_READ | ZINF_AIO_WRITE) : -ENOMEM;
    free(name);
    if (code)
        return code;
    path->file->lasting = true;
    if (zinf_aio_file_bytes(path->file) < plan.file_bytes)
        return zinf_fail(-EBADMSG, "%s has %" PRIu64 " of %" PRIu64 " bytes: it is damaged",
                         path->file->path, zinf_aio_file_bytes(path->file), plan.file_bytes);
    code = zinf_lock_wait(path->file->fd, path->file->path);
    return code ? code : fit_file(path, &plan);
}

int zinf_store_open_adopted(struct zinf_store *store)
{
    int code = 0;
    for (int i = 0; !code && i < store->n_paths; i++)
        code = open_path(store, i);
    return code;
}
