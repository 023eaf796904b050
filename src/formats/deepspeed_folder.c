/* deepspeed_folder: which files of a folder are a checkpoint of DeepSpeed's, and of which rank. */
#include "formats/deepspeed.h"

#include "base/folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_TAG 200
#define MAX_RANKS 8192
#define MAX_SHARDS 64 /* ranks that share a matrix */

/* ---- the folder of the tag ---- */

/* The folder that the file beside it names; -ENODATA: there is no such file. */
static int follow(const char *folder, const char *file, char **out)
{
    char *path = zinf_path_join(folder, file), *text = NULL;
    size_t bytes = 0;
    int code = path ? 0 : -ENOMEM;
    if (!code && access(path, F_OK))
        code = -ENODATA;
    if (!code)
        code = zinf_file_read(path, MAX_TAG, &text, &bytes);
    while (!code && bytes && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
        text[--bytes] = 0;
    if (!code && (!bytes || strlen(text) != bytes || strchr(text, '/') || *text == '.'))
        code = zinf_fail(-EINVAL, "%s does not name a folder beside it", path);
    if (!code && !(*out = zinf_path_join(folder, text)))
        code = -ENOMEM;
    free(text);
    free(path);
    return code;
}

/* ---- the names of its files ---- */

/* "..._mp_rank_00_KIND.pt" with zero_pp_rank_R in front, or without; 1: it is one. */
static int match(const char *name, const char *kind, int64_t *rank, int64_t *model_rank)
{
    static const char *const prefixes[] = {"", "bf16_", "fp16_"};
    char tail[64];
    int used = 0;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i]);
        long long r = -1, m = -1;
        if (strncmp(name, prefixes[i], n) != 0)
            continue;
        snprintf(tail, sizeof tail, "_%s.pt", kind);
        used = 0;
        if (sscanf(name + n, "zero_pp_rank_%5lld_mp_rank_%5lld%n", &r, &m, &used) != 2) {
            r = -1;
            used = 0;
            if (sscanf(name + n, "mp_rank_%5lld%n", &m, &used) != 1)
                continue;
        }
        if (!used || strcmp(name + n + used, tail) != 0)
            continue;
        *rank = r;
        *model_rank = m;
        return 1;
    }
    return 0;
}

static int keep(char **slot, const char *folder, const char *name)
{
    if (*slot)
        return zinf_fail(-EINVAL, "%s has both %s and %s, of one rank: remove the stale one",
                         folder, strrchr(*slot, '/') + 1, name);
    *slot = zinf_path_join(folder, name);
    return *slot ? 0 : -ENOMEM;
}

static int fail_cut(const char *folder, const char *name)
{
    return zinf_fail(
        -ENOTSUP,
        "%s has %s, a part of a model that is cut by stages or experts, or by tensors at "
        "stage 3: make "
        "a universal checkpoint of it with python3 -m "
        "deepspeed.checkpoint.ds_to_universal --input_folder %s --output_folder "
        "%s_universal",
        folder, name, folder, folder);
}

static void free_paths(char **paths, size_t n)
{
    for (size_t i = 0; paths && i < n; i++)
        free(paths[i]);
    free(paths);
}

struct listing {
    struct zinf_deepspeed_files *to;
    char **optimizers; /* [MAX_SHARDS][MAX_RANKS] */
    char **models;     /* [MAX_RANKS] */
    char **shards;     /* [MAX_SHARDS] */
};

static int see(struct listing *l, const char *name)
{
    struct zinf_deepspeed_files *to = l->to;
    int64_t rank = -1, model_rank = -1;
    bool optimizer = match(name, "optim_states", &rank, &model_rank);
    if (!optimizer && !match(name, "model_states", &rank, &model_rank))
        return !strncmp(name, "layer_", 6) && strstr(name, "_states.pt")
                   ? fail_cut(to->folder, name)
                   : 0;
    if (model_rank != 0 && to->universal)
        return 0;
    if (rank >= MAX_RANKS || model_rank >= MAX_SHARDS || (optimizer && rank < 0))
        return zinf_fail(-EINVAL, "%s: %s has a rank that is out of range: rename the file",
                         to->folder, name);
    if (optimizer)
        return keep(&l->optimizers[model_rank * MAX_RANKS + rank], to->folder, name);
    if (rank < 0)
        return keep(&l->shards[model_rank], to->folder, name);
    return model_rank ? fail_cut(to->folder, name) : keep(&l->models[rank], to->folder, name);
}

/* Ranks from 0 on without a gap. */
static int count_ranks(const char *folder, char *const *paths, uint32_t most, const char *kind,
                       uint32_t *n)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < most; i++)
        if (paths[i])
            last = i + 1;
    for (uint32_t i = 0; i < last; i++)
        if (!paths[i])
            return zinf_fail(-EINVAL,
                             "%s has %s of rank %u, but none of rank %u: copy the files of all "
                             "ranks there",
                             folder, kind, last - 1, i);
    *n = last;
    return 0;
}

/* The optimizers of all that share tensors, one behind the other. */
static int settle_optimizers(struct listing *l)
{
    struct zinf_deepspeed_files *to = l->to;
    for (uint32_t s = to->tensor; s < MAX_SHARDS; s++)
        if (l->optimizers[(size_t)s * MAX_RANKS])
            return zinf_fail(-EINVAL,
                             "%s has optimizer states of mp_rank_%02u, but no "
                             "mp_rank_%02u_model_states.pt: copy it there",
                             to->folder, s, s);
    if (!l->optimizers[0])
        return 0;
    to->optimizers = calloc((size_t)to->tensor * to->world, sizeof *to->optimizers);
    if (!to->optimizers)
        return zinf_fail(-ENOMEM, "no memory to list %s", to->folder);
    for (uint32_t s = 0; s < to->tensor; s++) {
        char **own = &l->optimizers[(size_t)s * MAX_RANKS];
        uint32_t n = 0;
        int code = count_ranks(to->folder, own, MAX_RANKS, "optimizer states", &n);
        if (!code && n != to->world)
            code = zinf_fail(-EINVAL,
                             "%s has optimizer states of %u ranks of mp_rank_00, but of %u of "
                             "mp_rank_%02u: copy the files of all ranks there",
                             to->folder, to->world, n, s);
        if (code)
            return code;
        memcpy(&to->optimizers[s * to->world], own, to->world * sizeof *own);
        memset(own, 0, to->world * sizeof *own);
    }
    return 0;
}

/* Of one that shares with nobody the file is called model alone. */
static int settle_shards(struct listing *l)
{
    struct zinf_deepspeed_files *to = l->to;
    int code =
        count_ranks(to->folder, l->shards, MAX_SHARDS, "tensor-parallel model states", &to->tensor);
    to->tensor = to->tensor ? to->tensor : 1;
    if (code || !l->shards[0])
        return code;
    to->model = strdup(l->shards[0]);
    if (to->tensor > 1) {
        to->shards = l->shards;
        l->shards = NULL;
    }
    return to->model ? 0 : -ENOMEM;
}

static int settle(struct listing *l)
{
    struct zinf_deepspeed_files *to = l->to;
    uint32_t n_models = 0;
    int code = count_ranks(to->folder, l->optimizers, MAX_RANKS, "optimizer states", &to->world);
    if (!code)
        code = count_ranks(to->folder, l->models, MAX_RANKS, "model states", &n_models);
    if (!code)
        code = settle_shards(l);
    if (!code)
        code = settle_optimizers(l);
    if (code)
        return code;
    if (n_models) {
        to->models = l->models;
        l->models = NULL;
        to->world = to->world ? to->world : n_models;
        if (n_models < to->world && !to->universal)
            return zinf_fail(-EINVAL,
                             "%s has model states of %u ranks, but %u of optimizers: copy "
                             "the files of all ranks there",
                             to->folder, n_models, to->world);
        if (!to->model && !(to->model = strdup(to->models[0])))
            return -ENOMEM;
    }
    if (!to->model && !to->universal && !to->optimizers)
        return -ENODATA;
    return to->model
               ? 0
               : zinf_fail(-EINVAL,
                           "%s has no mp_rank_00_model_states.pt, which names the parameters: "
                           "copy it there",
                           to->folder);
}

static int list_files(struct zinf_deepspeed_files *to)
{
    struct listing l = {.to = to};
    DIR *folder = opendir(to->folder);
    if (!folder)
        return errno == ENOENT || errno == ENOTDIR
                   ? -ENODATA
                   : zinf_fail(-errno, "cannot list %s: %s", to->folder, strerror(errno));
    l.optimizers = calloc((size_t)MAX_SHARDS * MAX_RANKS, sizeof *l.optimizers);
    l.models = calloc(MAX_RANKS, sizeof *l.models);
    l.shards = calloc(MAX_SHARDS, sizeof *l.shards);
    int code = l.optimizers && l.models && l.shards
                   ? 0
                   : zinf_fail(-ENOMEM, "no memory to list %s", to->folder);
    to->universal = zinf_folder_has(to->folder, "zero");
    for (const struct dirent *entry; !code && (entry = readdir(folder));)
        code = see(&l, entry->d_name);
    closedir(folder);
    if (!code)
        code = settle(&l);
    free_paths(l.optimizers, (size_t)MAX_SHARDS * MAX_RANKS);
    free_paths(l.models, MAX_RANKS);
    free_paths(l.shards, MAX_SHARDS);
    return code;
}

int zinf_deepspeed_find(struct zinf_deepspeed_files *out, const char *folder)
{
    *out = (struct zinf_deepspeed_files){0};
    int code = follow(folder, "latest_universal", &out->folder);
    if (code == -ENODATA)
        code = follow(folder, "latest", &out->folder);
    if (code == -ENODATA)
        code = (out->folder = strdup(folder)) ? 0 : -ENOMEM;
    if (!code)
        code = list_files(out);
    if (code)
        zinf_deepspeed_files_fini(out);
    return code;
}

void zinf_deepspeed_files_fini(struct zinf_deepspeed_files *files)
{
    free_paths(files->models, MAX_RANKS);
    free_paths(files->shards, MAX_SHARDS);
    free_paths(files->optimizers, (size_t)files->tensor * files->world);
    free(files->model);
    free(files->folder);
    *files = (struct zinf_deepspeed_files){0};
}
