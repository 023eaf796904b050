/* output: every change is one rename and one flush of the folder, so that a run may end anywhere.
 * A checkpoint that is to go loses its name first: what has the name is always whole. */
#include "train/save/output.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECKPOINT "checkpoint-"
#define UNFINISHED "tmp-"
#define LATEST "latest"

/* ---- folders ---- */

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info;
    (void)type;
    (void)at;
    remove(path);
    return 0;
}

void output_remove(const char *path)
{
    if (nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
        zinf_log(ZINF_LOG_WARN, "cannot remove %s: %s", path, strerror(errno));
}

int output_publish(const char *output, const char *fresh, const char *name)
{
    int code = zinf_folder_sync(fresh);
    bool replaces = !access(name, F_OK);
    if (!code && (replaces ? renameat2(AT_FDCWD, fresh, AT_FDCWD, name, RENAME_EXCHANGE)
                           : rename(fresh, name)))
        code = zinf_fail(-errno, "cannot rename %s to %s: %s", fresh, name, strerror(errno));
    if (!code)
        code = zinf_folder_sync(output);
    if (!code && replaces) /* under the name of what is not finished */
        output_remove(fresh);
    return code;
}

/* A folder can be locked itself where the file system has locks. */
static int lock(const char *output, int *fd)
{
    *fd = open(output, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return zinf_fail(-errno, "cannot open %s: %s", output, strerror(errno));
    if (!flock(*fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK)
        return 0;
    close(*fd);
    *fd = -1;
    return zinf_fail(-EBUSY, "%s is in use by another run: choose another --output", output);
}

int output_forget(const char *folder, const char *name)
{
    char *path = zinf_path_join(folder, name);
    int code = path ? 0 : -ENOMEM;
    if (path && unlink(path) && errno != ENOENT)
        code = zinf_fail(-errno, "cannot remove %s: %s", path, strerror(errno));
    free(path);
    return code;
}

/* Also the other half of a small file that was being replaced. */
static bool is_unfinished(const char *name)
{
    static const char *const starts[] = {
        UNFINISHED CHECKPOINT,       UNFINISHED "best", LATEST ".tmp.",     "ledger.txt.tmp.",
        "config.resolved.json.tmp.", "run-id.tmp.",     "inputs.json.tmp.", "placement.json.tmp."};
    bool found = false;
    for (size_t i = 0; !found && i < sizeof starts / sizeof *starts; i++)
        found = !strncmp(name, starts[i], strlen(starts[i]));
    return found;
}

static void remove_unfinished(const char *output, int fd)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir && copy >= 0)
        close(copy);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char *path = is_unfinished(entry->d_name) ? zinf_path_join(output, entry->d_name) : NULL;
        if (path)
            output_remove(path);
        free(path);
    }
    if (dir)
        closedir(dir);
}

int output_open(const char *output, int *fd)
{
    *fd = -1;
    int code = zinf_make_dirs(output);
    if (code)
        return code;
    if (access(output, W_OK))
        return zinf_fail(-errno, "--output %s cannot be written: %s", output, strerror(errno));
    code = lock(output, fd);
    if (!code)
        remove_unfinished(output, *fd);
    return code;
}

/* ---- checkpoints ---- */

char *output_checkpoint_path(const char *output, const char *prefix, uint64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "%s" CHECKPOINT "%" PRIu64, prefix, step);
    return zinf_path_join(output, name);
}

/* checkpoint-N in the one way of writing N. */
static bool is_checkpoint(const char *name, uint64_t *step)
{
    char again[64];
    if (strncmp(name, CHECKPOINT, strlen(CHECKPOINT)))
        return false;
    *step = strtoull(name + strlen(CHECKPOINT), NULL, 10);
    snprintf(again, sizeof again, CHECKPOINT "%" PRIu64, *step);
    return !strcmp(name, again);
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int output_checkpoints(const char *output, uint64_t **steps, uint32_t *n)
{
    uint64_t *list = NULL, step;
    DIR *dir = opendir(output);
    *n = 0;
    *steps = NULL;
    if (!dir)
        return errno == ENOENT ? 0
                               : zinf_fail(-errno, "cannot list %s: %s", output, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!is_checkpoint(entry->d_name, &step))
            continue;
        uint64_t *grown = realloc(list, (*n + 1) * sizeof *list);
        if (!grown) {
            free(list);
            closedir(dir);
            return zinf_fail(-ENOMEM, "no memory for the checkpoints of %s", output);
        }
        list = grown;
        list[(*n)++] = step;
    }
    closedir(dir);
    if (*n)
        qsort(list, *n, sizeof *list, ascending);
    *steps = list;
    return 0;
}

int output_newest(const char *output, uint64_t *step)
{
    uint64_t *steps;
    uint32_t n;
    int code = output_checkpoints(output, &steps, &n);
    if (!code && !n)
        code = zinf_fail(-ENOENT,
                         "%s has no checkpoint: name the --output folder of a training, or one of "
                         "the checkpoint-N in it",
                         output);
    if (!code)
        *step = steps[n - 1];
    free(steps);
    return code;
}

int output_latest(const char *output, uint64_t *step)
{
    char *path = zinf_path_join(output, LATEST), *text = NULL;
    size_t bytes;
    int code = path ? zinf_file_read(path, 256, &text, &bytes) : -ENOMEM;
    if (code == -ENOENT) {
        code = output_newest(output, step);
    } else if (!code) {
        text[strcspn(text, "\n")] = 0;
        if (!is_checkpoint(text, step))
            code = zinf_fail(-EINVAL, "%s does not name a checkpoint: name one with --resume=DIR",
                             path);
    }
    free(text);
    free(path);
    return code;
}

int output_set_latest(const char *output, uint64_t step)
{
    char text[64];
    char *path = zinf_path_join(output, LATEST);
    int n = snprintf(text, sizeof text, CHECKPOINT "%" PRIu64 "\n", step);
    int code = path ? zinf_file_write_atomic(path, text, (size_t)n) : -ENOMEM;
    free(path);
    return code ? code : zinf_folder_sync(output);
}

static int drop(const char *output, uint64_t step)
{
    char *name = output_checkpoint_path(output, "", step);
    char *gone = output_checkpoint_path(output, UNFINISHED, step);
    int code = name && gone ? 0 : -ENOMEM;
    if (!code && rename(name, gone))
        code = zinf_fail(-errno, "cannot rename %s: %s", name, strerror(errno));
    if (!code)
        code = zinf_folder_sync(output);
    if (!code)
        output_remove(gone);
    free(name);
    free(gone);
    return code;
}

int output_rotate(const char *output, uint64_t keep, uint64_t limit, bool went_back)
{
    uint64_t *steps;
    uint32_t n;
    int code = output_checkpoints(output, &steps, &n);
    while (!went_back && n && steps[n - 1] > keep) /* as if they were not there */
        n--;
    uint64_t excess = limit && n > limit ? n - limit : 0;
    for (uint32_t i = n; !code && excess && i-- > 0 && steps[i] > keep; excess--)
        code = drop(output, steps[i]);
    for (uint32_t i = 0; !code && excess && i < n && steps[i] < keep; excess--, i++)
        code = drop(output, steps[i]);
    free(steps);
    return code;
}
