/*
 * verify: everything that a training left, read and compared with its checksums: checkpoints, token
 * caches, and steps on the drives; and the files that it read, compared with what they were. It
 * ends with what can be gone on from; --repair makes the newest step that is whole the one that
 * --resume finds.
 */
#include "aio/steps.h"
#include "base/folder.h"
#include "cli/cli.h"
#include "cli/folder.h"
#include "text/text.h"
#include "train/checkpoints.h"
#include "train/train.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_PATHS 64

struct verify {
    const char *paths[MAX_PATHS]; /* of the stores, in order */
    int n_paths;
    const uint8_t *run; /* only this one's; NULL: every run's */
    struct {
        uint32_t world, here; /* of a run of several; here: with a whole step */
        uint64_t step;        /* that all of these have */
    } ranks;
    bool repair;
    uint64_t problems, looked_at;
    uint64_t stores; /* of the output's run, or not known whose */
    uint64_t step;   /* the last that can be gone on from */
    char from[4096];
};

static void say_problem(struct verify *v, const char *what, const char *problem)
{
    printf("%s: %s\n", what, problem);
    v->problems++;
}

static void can_go_on(struct verify *v, uint64_t step, const char *from)
{
    if (v->from[0] && step < v->step)
        return;
    v->step = step;
    snprintf(v->from, sizeof v->from, "%s", from);
}

/* ---- checkpoints and tokens ---- */

static void see_checkpoint(void *arg, const struct zinf_checkpoint_info *info)
{
    struct verify *v = arg;
    char size[16];
    v->looked_at++;
    if (info->problem) {
        say_problem(v, info->folder, info->problem);
        return;
    }
    printf("%s: whole, step %llu, %s\n", info->folder, (unsigned long long)info->step,
           zinf_size_format(size, sizeof size, info->bytes));
    can_go_on(v, info->step, info->folder);
}

/* What --model or --adapter takes: the result of a training, or a folder of somebody else's. */
static void look_at_model(struct verify *v, const char *folder)
{
    const bool adapter = zinf_folder_has(folder, ZINF_ADAPTER_CONFIG);
    const int code = adapter ? zinf_adapter_verify(folder) : zinf_model_verify(folder);
    v->looked_at++;
    if (code < 0)
        say_problem(v, folder, zinf_error());
    else
        printf("%s: %s\n", folder,
               !code     ? "an adapter that has no checksum"
               : adapter ? "whole, an adapter"
                         : "whole, a model");
}

/* Of a whole model there is nothing to say without its sums. */
static bool is_model(const char *folder)
{
    return zinf_folder_has(folder, ZINF_ADAPTER_CONFIG) ||
           zinf_folder_has(folder, ZINF_MODEL_CHECKSUMS);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

static void look_at_tokens(struct verify *v, const char *output)
{
    char *folder = zinf_path_join(output, "cache");
    DIR *dir = folder ? opendir(folder) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char *path =
            ends_with(entry->d_name, ".tokens") ? zinf_path_join(folder, entry->d_name) : NULL;
        if (!path)
            continue;
        v->looked_at++;
        if (zinf_token_cache_verify(path))
            say_problem(v, "tokens", zinf_error());
        else
            printf("%s: whole\n", path);
        free(path);
    }
    if (dir)
        closedir(dir);
    free(folder);
}

/* ---- steps on the drives ---- */

/* A step of several ranks is whole where each of them has it. */
static void can_go_on_after(struct verify *v, const struct zinf_steps_info *info, uint64_t step)
{
    uint32_t rank, world = 1;
    if (!v->run || !zinf_run_id_rank(v->run, info->run, &rank, &world) || world == 1) {
        can_go_on(v, step, info->folder);
        return;
    }
    if (!v->ranks.here++ || step < v->ranks.step)
        v->ranks.step = step;
    v->ranks.world = world;
}

static void say_ranks(struct verify *v)
{
    char text[64];
    if (!v->ranks.here)
        return;
    snprintf(text, sizeof text, "the drives of %u ranks", v->ranks.world);
    if (v->ranks.here == v->ranks.world)
        can_go_on(v, v->ranks.step, text);
    else
        printf("of %u ranks %u have a whole step here, the last common one is %llu: look at the "
               "others' drives too\n",
               v->ranks.world, v->ranks.here, (unsigned long long)v->ranks.step);
    v->ranks.here = 0;
}

static void say_verdict(struct verify *v, const struct zinf_steps_info *info,
                        const struct zinf_steps_verdict *verdict)
{
    char size[16];
    uint64_t step = 0;
    zinf_size_format(size, sizeof size, verdict->bytes);
    if (verdict->none) {
        printf("%s: no step was committed\n", info->folder);
        return;
    }
    if (verdict->newest)
        say_problem(v, info->folder, verdict->problem);
    if (verdict->kept) {
        printf("%s: no step of it can be continued from\n", info->folder);
        return;
    }
    zinf_checkpoint_step_of(verdict->payload, verdict->payload_bytes, &step);
    if (!verdict->newest) {
        printf("%s: whole, step %llu, %s\n", info->folder, (unsigned long long)step, size);
    } else if (v->repair) {
        printf("%s: goes on after step %llu now, which is whole\n", info->folder,
               (unsigned long long)step);
        v->problems--;
    } else {
        printf("%s: step %llu before it is whole: zinf verify --repair makes --resume go on "
               "there\n",
               info->folder, (unsigned long long)step);
    }
    if (!verdict->newest || v->repair)
        can_go_on_after(v, info, step);
}

static void see_steps(void *arg, const struct zinf_steps_info *info)
{
    struct verify *v = arg;
    struct zinf_steps_verdict *verdict;
    uint32_t rank, world;
    if (v->run && info->named && !zinf_run_id_rank(v->run, info->run, &rank, &world))
        return;
    v->looked_at++;
    v->stores++;
    if (info->alive) {
        printf("%s: in use by a run: not looked into\n", info->folder);
    } else if (!info->named) {
        say_problem(v, info->folder, info->problem ? info->problem : "nobody can tell whose it is");
    } else if (info->path == 0 && info->n_paths != v->n_paths) {
        say_problem(v, info->folder, "it lies on other paths too: name all of them, in order");
    } else if (info->path == 0 && (verdict = malloc(sizeof *verdict))) {
        if (zinf_steps_verify(verdict, v->paths, v->n_paths, info->run, v->repair))
            say_problem(v, info->folder, zinf_error());
        else
            say_verdict(v, info, verdict);
        free(verdict);
    }
}

/* A drive that is not there now is no reason to hide the rest. */
static void look_at_steps(struct verify *v)
{
    for (int i = 0; i < v->n_paths; i++)
        if (zinf_steps_list(v->paths[i], see_steps, v))
            say_problem(v, v->paths[i], zinf_error());
    say_ranks(v);
}

/* The run says where it has left steps; that nothing is found there is a loss. */
static void look_for_lost(struct verify *v, const char *output)
{
    char *steps = NULL;
    if (!zinf_run_steps(output, &steps) && steps && !v->stores) {
        v->looked_at++;
        say_problem(v, steps,
                    "finished steps of this run were left here, and are not there, or cannot be "
                    "told from others': the file steps of their folder is missing");
    }
    free(steps);
}

/* ---- what the run reads ---- */

static void see_input(void *arg, const char *path, const char *problem)
{
    struct verify *v = arg;
    v->looked_at++;
    if (problem && strcmp(problem, ZINF_INPUT_GONE) != 0)
        say_problem(v, path, problem);
    else
        printf("%s: %s\n", path, problem ? problem : "as it was when the run began");
}

/* ---- folders ---- */

static int look_at_output(struct verify *v, const char *output)
{
    cJSON *config = NULL;
    uint8_t id[16];
    char *path = zinf_path_join(output, "config.resolved.json");
    char *model = zinf_path_join(output, "model");
    int code = path ? zinf_checkpoint_list(output, see_checkpoint, v) : -ENOMEM;
    if (!code)
        look_at_tokens(v, output);
    if (!code && model && is_model(model))
        look_at_model(v, model);
    if (!code && zinf_run_inputs_verify(output, see_input, v))
        say_problem(v, output, zinf_error());
    int named = code ? code : zinf_run_id(output, id);
    if (named == -EBADMSG)
        say_problem(v, output, zinf_error());
    if (!code && zinf_json_read_file(path, 1u << 20, ZINF_JSON_STRICT, &config))
        say_problem(v, path, zinf_error());
    v->n_paths = 0;
    v->run = named ? NULL : id;
    if (!code) {
        v->n_paths = cli_drive_paths(config, "offload_optimizer", v->paths, MAX_PATHS);
        if (!v->n_paths)
            v->n_paths = cli_drive_paths(config, "offload_param", v->paths, MAX_PATHS);
        v->stores = 0;
        if (named != -ENOENT)
            look_at_steps(v);
        look_for_lost(v, output);
    }
    cJSON_Delete(config);
    free(model);
    free(path);
    return code;
}

static int look(struct verify *v, const struct zinf_words *folders)
{
    int code = 0;
    for (int i = 0; !code && i < folders->n; i++) {
        const char *folder = folders->items[i];
        if (access(folder, R_OK | X_OK))
            code = zinf_fail(-errno, "cannot look into %s: %s", folder, strerror(errno));
        else if (zinf_folder_has(folder, "trainer_state.json"))
            code = zinf_checkpoint_look(folder, see_checkpoint, v);
        else if (zinf_folder_has(folder, "config.resolved.json") ||
                 zinf_folder_has(folder, "run-id"))
            code = look_at_output(v, folder);
        else if (is_model(folder))
            look_at_model(v, folder);
        else if (!i) { /* all that follow are further paths */
            for (; i < folders->n && i < MAX_PATHS; i++)
                v->paths[v->n_paths++] = folders->items[i];
            look_at_steps(v);
        }
    }
    return code;
}

static const char usage[] =
    "usage: zinf verify [options] DIR...\n"
    "\n"
    "Reads all that a training left and compares every checksum. DIR is its output\n"
    "folder, a checkpoint, a model, an adapter, or an nvme_path (all of them, in\n"
    "order, where there are several). Of an output folder it also compares the base,\n"
    "the data and the configuration with what they were when the run began. Says\n"
    "what can be continued from.\n";

#define AT(field) .offset = offsetof(struct verify, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--repair", FLAG, AT(repair), NULL,
     "where the last step on the drives is damaged and the one before it is whole, continue from that "
     "one next"),
    CLI_NO_ROW
};
/* clang-format on */

static int check(struct cli_call *call)
{
    return call->words.n ? 0
                         : zinf_fail(-EINVAL, "a DIR is needed: an output folder, a checkpoint or "
                                              "an nvme_path");
}

static int work(struct cli_call *call)
{
    struct verify *v = call->options;
    int code = look(v, &call->words);
    if (!code && !v->looked_at)
        code = zinf_fail(-ENOENT, "%s has nothing that a training left", call->words.items[0]);
    if (!code && v->from[0])
        printf("can be continued from: step %llu, %s\n", (unsigned long long)v->step, v->from);
    if (!code && v->problems)
        code = zinf_fail(-EBADMSG, "%llu of %llu things are damaged, changed or cannot be read",
                         (unsigned long long)v->problems, (unsigned long long)v->looked_at);
    return code;
}

const struct cli_command cli_verify = {
    .name = "verify",
    .summary = "compare all that a training left with its checksums",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = own}),
    .bytes = sizeof(struct verify),
    .takes_words = true,
    .check = check,
    .work = work,
};
