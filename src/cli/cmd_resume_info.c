/*
 * resume_info: what a training can go on from: its checkpoints, each compared with its checksums,
 * and steps that outlived their process on the drives that its configuration names.
 */
#include "aio/steps.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/folder.h"
#include "train/checkpoints.h"
#include "train/train.h"

#include <stdlib.h>
#include <unistd.h>

struct found {
    uint64_t whole, steps; /* checkpoints that are; folders with committed steps */
    const uint8_t *run;    /* the output folder's; NULL: it has none */
};

static void see_checkpoint(void *arg, const struct zinf_checkpoint_info *info)
{
    struct found *found = arg;
    char size[16];
    if (info->problem) {
        printf("%s: not usable: %s\n", info->folder, info->problem);
        return;
    }
    printf("%s: whole, step %llu, %s%s\n", info->folder, (unsigned long long)info->step,
           zinf_size_format(size, sizeof size, info->bytes), info->latest ? ", the latest" : "");
    found->whole++;
}

static void see_steps(void *arg, const struct zinf_steps_info *info)
{
    struct found *found = arg;
    char size[16];
    uint64_t step;
    uint32_t rank, world;
    if (info->problem && !info->committed) {
        printf("%s: not usable as it is: %s\n", info->folder, info->problem);
        return;
    }
    printf("%s: path %d of %d, %s", info->folder, info->path + 1, info->n_paths,
           zinf_size_format(size, sizeof size, info->store_bytes));
    if (found->run && info->named && zinf_run_id_rank(found->run, info->run, &rank, &world) &&
        world > 1)
        printf(", rank %u of %u", rank, world);
    if (info->alive)
        printf(", in use by a run");
    if (info->path == 0 && !info->committed)
        printf(", no step was committed");
    if (info->committed) {
        printf(", %llu commits", (unsigned long long)info->commits);
        if (zinf_checkpoint_step_of(info->payload, info->payload_bytes, &step))
            printf(", the last is step %llu", (unsigned long long)step);
        if (info->problem)
            printf("; %s: zinf verify looks into it", info->problem);
        if (!info->same_boot && !info->flushed)
            printf("; not flushed, and the machine was restarted since: it may be incomplete");
        found->steps++;
    }
    putchar('\n');
}

/* A drive that is not there now is no reason to hide the rest. */
static void look_at(const char *path, struct found *found)
{
    if (zinf_steps_list(path, see_steps, found))
        printf("%s: %s\n", path, zinf_error());
}

static void look_at_paths(const cJSON *config, const char *section, struct found *found)
{
    const char *paths[ZINF_CONFIG_MAX_PATHS];
    const int n = cli_drive_paths(config, section, paths, ZINF_CONFIG_MAX_PATHS);
    for (int i = 0; i < n; i++)
        look_at(paths[i], found);
}

static int look(const char *folder, struct found *found)
{
    cJSON *config = NULL;
    uint8_t id[16];
    char *path = zinf_path_join(folder, "config.resolved.json");
    int code = path ? zinf_checkpoint_list(folder, see_checkpoint, found) : -ENOMEM;
    found->run = !code && !zinf_run_id(folder, id) ? id : NULL;
    if (!code && access(folder, R_OK | X_OK))
        code = zinf_fail(-errno, "cannot look into %s: %s", folder, strerror(errno));
    if (!code)
        look_at(folder, found); /* it may be an nvme_path itself */
    if (!code && !access(path, F_OK))
        code = zinf_json_read_file(path, 1u << 20, ZINF_JSON_STRICT, &config);
    if (!code && config) {
        struct found other = {.run = found->run};
        look_at_paths(config, "offload_optimizer", found);
        if (!found->steps) /* usually the same */
            look_at_paths(config, "offload_param", &other);
        found->steps += other.steps;
    }
    cJSON_Delete(config);
    free(path);
    return code;
}

static const char usage[] =
    "usage: zinf resume-info DIR\n"
    "\n"
    "Says what a training can continue from: the checkpoints of its output folder, each\n"
    "compared with its checksums, and steps that outlived their process on its\n"
    "drives. DIR may also be an nvme_path.\n";

static int check(struct cli_call *call)
{
    return call->words.n == 1
               ? 0
               : zinf_fail(-EINVAL, "one DIR is needed: the output folder of a training");
}

static int work(struct cli_call *call)
{
    const char *folder = call->words.items[0];
    struct found found = {0};
    int code = look(folder, &found);
    if (!code && !found.whole && !found.steps)
        code = zinf_fail(-ENOENT,
                         "%s has nothing to continue from: zinf train makes checkpoints with "
                         "--save-every N, and keeps steps where the optimizer state is on a drive",
                         folder);
    return code;
}

const struct cli_command cli_resume_info = {
    .name = "resume-info",
    .summary = "say what a training can continue from",
    .usage = usage,
    .takes_words = true,
    .check = check,
    .work = work,
};
