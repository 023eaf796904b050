/*
 * folder: what lies beside the weights of a Hugging Face model and must follow them when the model
 * is written anew. config.json is not among it: the writer of the model knows what changed in it.
 * Nor is README.md, which tells of the weights that were there before.
 */
#include "formats/formats.h"
#include "formats/tensors_index.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The largest known tokenizer.json has 35 MB; files are copied through memory. */
#define MAX_COMPANION_BYTES (256u << 20)

/* Ends of both lists: NULL. */
static const char *const tokenizer_files[] = {
    "tokenizer*.json",   "special_tokens_map.json",
    "added_tokens.json", "vocab.json",
    "vocab.txt",         "vocab.bpe",
    "merges.txt",        "encoder.json",
    "*.model",           "*.tiktoken",
    "chat_template*.*",  NULL,
};
static const char *const other_files[] = {
    "generation_config.json",
    "*.py",
    "*processor_config.json",
    "LICENSE*",
    "LICENCE*",
    "NOTICE*",
    "COPYING*",
    "USE_POLICY*",
    NULL,
};

static bool matches(const char *name, const char *const *patterns)
{
    while (*patterns && fnmatch(*patterns, name, FNM_PERIOD) != 0)
        patterns++;
    return *patterns;
}

/* ---- one file ---- */

/* "FOLDER/" on the heap, or NULL. */
static char *with_slash(const char *folder)
{
    char *path = NULL;
    return asprintf(&path, "%s/", folder) < 0 ? NULL : path;
}

/* The hub's cache has snapshots of links to blobs: MODEL/snapshots/REVISION/NAME leads to
 * MODEL/blobs/HASH. Those are the model's own. */
static char *blobs_of(const char *folder)
{
    char *revision = strrchr(folder, '/'), *path = NULL;
    static const char snapshots[] = "/snapshots";
    size_t length = revision ? (size_t)(revision - folder) : 0, tail = sizeof snapshots - 1;
    if (length <= tail || memcmp(folder + length - tail, snapshots, tail) != 0)
        return NULL;
    return asprintf(&path, "%.*s/blobs/", (int)(length - tail), folder) < 0 ? NULL : path;
}

/* A link may lead to another file of the folder, and nowhere else: what a downloaded folder points
 * to is nobody's to publish. */
static bool stays_inside(const char *folder, const char *path)
{
    char *root = realpath(folder, NULL), *real = realpath(path, NULL);
    char *inside = root ? with_slash(root) : NULL, *blobs = root ? blobs_of(root) : NULL;
    bool stays = inside && real && !strncmp(real, inside, strlen(inside));
    if (!stays && blobs && real)
        stays = !strncmp(real, blobs, strlen(blobs));
    free(root);
    free(real);
    free(inside);
    free(blobs);
    return stays;
}

static int copy_companion(const char *folder, const char *from, const char *to)
{
    struct stat source, target;
    char *data;
    size_t bytes;
    if (stat(from, &source))
        return errno == ENOENT ? 0 : zinf_fail(-errno, "cannot open %s: %s", from, strerror(errno));
    if (!S_ISREG(source.st_mode))
        return 0;
    if (!stat(to, &target) && source.st_dev == target.st_dev && source.st_ino == target.st_ino)
        return 0;
    if (!stays_inside(folder, from)) {
        zinf_log(ZINF_LOG_WARN, "%s leads out of its folder and is not carried over", from);
        return 0;
    }
    if ((uint64_t)source.st_size > MAX_COMPANION_BYTES) {
        zinf_log(ZINF_LOG_WARN, "%s has more than 256 MiB and is not carried over", from);
        return 0;
    }
    int code = zinf_file_read(from, MAX_COMPANION_BYTES, &data, &bytes);
    if (code)
        return code;
    code = zinf_file_write_atomic(to, data, bytes);
    free(data);
    return code;
}

/* ---- the folder ---- */

int zinf_folder_copy_companions(const char *from, const char *to, enum zinf_companions which)
{
    struct dirent **names = NULL;
    int n = scandir(from, &names, NULL, alphasort);
    int code = n < 0 ? zinf_fail(-errno, "cannot open the folder %s: %s", from, strerror(errno))
                     : zinf_make_dirs(to);
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        bool wanted = matches(name, tokenizer_files) ||
                      (which == ZINF_COMPANIONS_ALL && matches(name, other_files));
        char *source = wanted && !code ? zinf_path_join(from, name) : NULL;
        char *target = wanted && !code ? zinf_path_join(to, name) : NULL;
        if (wanted && !code)
            code = source && target ? copy_companion(from, source, target) : -ENOMEM;
        free(source);
        free(target);
        free(names[i]);
    }
    free(names);
    return code;
}

int zinf_folder_companions(const char *folder, enum zinf_companions which,
                           int (*see)(void *arg, const char *path, const char *name), void *arg)
{
    struct dirent **names = NULL;
    struct stat info;
    int n = scandir(folder, &names, NULL, alphasort), code = 0;
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        bool wanted = matches(name, tokenizer_files) ||
                      (which == ZINF_COMPANIONS_ALL && matches(name, other_files));
        char *path = wanted && !code ? zinf_path_join(folder, name) : NULL;
        if (path && !stat(path, &info) && S_ISREG(info.st_mode))
            code = see(arg, path, name);
        free(path);
        free(names[i]);
    }
    free(names);
    return code;
}

int zinf_folder_check_new(const char *option, const char *folder)
{
    static const struct {
        const char *name, *what;
    } marks[] = {{"run-id", "a training"},
                 {"config.resolved.json", "a training"},
                 {"trainer_state.json", "a checkpoint"},
                 {"adapter_config.json", "an adapter"},
                 {"adapter_model.safetensors", "an adapter"},
                 {"config.json", "a model"},
                 {ZINF_TENSORS_SINGLE, "a model"},
                 {ZINF_TENSORS_INDEX, "a model"},
                 {ZINF_TENSORS_TORCH, "a model"},
                 {ZINF_TENSORS_TORCH_INDEX, "a model"}};
    struct stat info;
    int code = 0;
    for (size_t i = 0; !code && i < sizeof marks / sizeof *marks; i++) {
        char *path = zinf_path_join(folder, marks[i].name);
        if (!path)
            code = -ENOMEM;
        else if (!lstat(path, &info))
            code = zinf_fail(-EEXIST,
                             "%s %s already holds %s (%s), which would be replaced: name a new "
                             "folder, or remove this one first",
                             option, folder, marks[i].what, marks[i].name);
        free(path);
    }
    return code;
}
