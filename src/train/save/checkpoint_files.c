/*
 * checkpoint_files: the list of a checkpoint's files with length and checksum, and its comparison
 * with the drive. Files are read in blocks of a few MiB with O_DIRECT, so that what is compared is
 * the drive's copy, and nobody's page cache is pushed out.
 */
#include "base/pulse.h"
#include "train/save/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define BLOCK_BYTES (4u << 20)

/* ---- one file ---- */

static int open_direct(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0 && errno == EINVAL) /* a file system without it */
        fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? zinf_fail(-errno, "cannot open %s: %s", path, strerror(errno)) : fd;
}

/* A block at a multiple of its size; the last one is short. */
static ssize_t read_block(int fd, const char *path, void *block, uint64_t offset)
{
    ssize_t n;
    do
        n = pread(fd, block, BLOCK_BYTES, (off_t)offset);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return zinf_fail(-errno, "cannot read %s at byte %" PRIu64 ": %s", path, offset,
                         strerror(errno));
    return n;
}

static int sum_blocks(int fd, const char *path, void *block, XXH3_state_t *hash, uint64_t *bytes)
{
    ssize_t n = BLOCK_BYTES;
    *bytes = 0;
    XXH3_64bits_reset(hash);
    while (n == BLOCK_BYTES) {
        int code = zinf_pulse_beat();
        n = code ? code : read_block(fd, path, block, *bytes);
        if (n < 0)
            return (int)n;
        XXH3_64bits_update(hash, block, (size_t)n);
        *bytes += (uint64_t)n;
        posix_fadvise(fd, 0, (off_t)*bytes, POSIX_FADV_DONTNEED);
    }
    return 0;
}

int checkpoint_sum_file(const char *path, uint64_t *bytes, uint64_t *xxh3)
{
    void *block = NULL;
    XXH3_state_t *hash = XXH3_createState();
    int fd = open_direct(path), code = fd < 0 ? fd : 0;
    if (!code && (!hash || posix_memalign(&block, ZINF_MEMORY_ALIGN, BLOCK_BYTES)))
        code = zinf_fail(-ENOMEM, "no memory to read %s", path);
    if (!code)
        code = sum_blocks(fd, path, block, hash, bytes);
    if (!code)
        *xxh3 = XXH3_64bits_digest(hash);
    if (fd >= 0)
        close(fd);
    free(block);
    XXH3_freeState(hash);
    return code;
}

static int add_sum(cJSON *object, const char *name, uint64_t sum)
{
    return zinf_json_add_hex(object, name, sum) ? 0 : zinf_fail(-ENOMEM, "no memory for checksums");
}

int checkpoint_add_sum(void *object, const char *path, const char *name)
{
    uint64_t bytes, sum;
    int code = checkpoint_sum_file(path, &bytes, &sum);
    return code ? code : add_sum(object, name, sum);
}

int checkpoint_add_weights(cJSON *object, struct zinf_tensors *weights, uint64_t *all)
{
    int code = 0;
    *all = 0;
    for (uint32_t i = 0; !code && i < zinf_tensors_file_count(weights); i++) {
        uint64_t sum;
        code = zinf_tensors_sum(weights, i, &sum);
        if (!code)
            code = add_sum(object, zinf_tensors_file_name(weights, i), sum);
        *all += code ? 0 : sum;
    }
    return code;
}

/* ---- the list ---- */

bool checkpoint_lists(const struct checkpoint *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_files; i++)
        if (!strcmp(c->files[i].name, name))
            return true;
    return false;
}

int checkpoint_add_file(struct checkpoint *c, const char *part, const char *name, uint64_t bytes,
                        uint64_t xxh3)
{
    void *grown = realloc(c->files, (c->n_files + 1) * sizeof *c->files);
    c->files = grown ? grown : c->files;
    char *copy = *part ? zinf_path_join(part, name) : strdup(name);
    if (!grown || !copy) {
        free(copy);
        return zinf_fail(-ENOMEM, "no memory for a list of files");
    }
    c->files[c->n_files++] = (struct checkpoint_file){copy, bytes, xxh3};
    return 0;
}

int checkpoint_add_written(struct checkpoint *c, const char *part,
                           const struct zinf_tensors_writer *writer)
{
    struct zinf_written_file file;
    int code = 0;
    for (uint32_t i = 0; !code && zinf_tensors_writer_file(writer, i, &file); i++)
        code = checkpoint_add_file(c, part, file.name, file.bytes, file.xxh3);
    return code;
}

uint64_t checkpoint_adapter_sum(const struct checkpoint *c)
{
    uint32_t i = 0;
    while (i < c->n_files && strcmp(c->files[i].name, ZINF_ADAPTER_WEIGHTS) != 0)
        i++;
    return i < c->n_files ? c->files[i].xxh3 : 0;
}

static int add_other(struct checkpoint *c, const char *folder, const char *part, const char *name)
{
    struct stat info;
    uint64_t bytes, xxh3;
    char *path = zinf_path_join(folder, name);
    char *listed = *part ? zinf_path_join(part, name) : strdup(name);
    int code = path && listed ? 0 : -ENOMEM;
    if (code || checkpoint_lists(c, listed) || stat(path, &info) || !S_ISREG(info.st_mode))
        goto out;
    code = checkpoint_sum_file(path, &bytes, &xxh3);
    if (!code)
        code = checkpoint_add_file(c, part, name, bytes, xxh3);
out:
    free(listed);
    free(path);
    return code;
}

int checkpoint_add_others(struct checkpoint *c, const char *folder, const char *part)
{
    char *path = zinf_path_join(folder, part);
    DIR *dir = path ? opendir(path) : NULL;
    int code = 0;
    if (!dir)
        code = zinf_fail(-errno, "cannot list %s: %s", folder, strerror(errno));
    for (struct dirent *entry; !code && (entry = readdir(dir));)
        code = add_other(c, path, part, entry->d_name);
    if (dir)
        closedir(dir);
    free(path);
    return code;
}

static int verify_file(const struct checkpoint_file *file, const char *folder)
{
    uint64_t bytes = 0, xxh3 = 0;
    struct stat info;
    char *path = zinf_path_join(folder, file->name);
    int code = path ? 0 : -ENOMEM;
    if (!code && stat(path, &info))
        code = zinf_fail(-EBADMSG, "%s is missing or cannot be read: %s", path, strerror(errno));
    else if (!code && (uint64_t)info.st_size != file->bytes)
        code = zinf_fail(-EBADMSG, "%s is damaged: it has %" PRIu64 " of %" PRIu64 " bytes", path,
                         (uint64_t)info.st_size, file->bytes);
    if (!code)
        code = checkpoint_sum_file(path, &bytes, &xxh3);
    if (!code && (bytes != file->bytes || xxh3 != file->xxh3))
        code = zinf_fail(-EBADMSG, "%s is damaged: its checksum is wrong", path);
    free(path);
    return code;
}

int checkpoint_verify_from(const struct checkpoint *c, const char *folder, uint32_t first)
{
    int code = 0;
    for (uint32_t i = first; !code && i < c->n_files; i++)
        code = verify_file(&c->files[i], folder);
    return code;
}

int checkpoint_verify(const struct checkpoint *c, const char *folder)
{
    return checkpoint_verify_from(c, folder, 0);
}

/* ---- of several ranks ---- */

#define MOST_FILES 16 /* of a rank other than the first: an array each */

struct list {
    uint32_t n;
    struct {
        char name[64];
        uint64_t bytes, xxh3;
    } files[MOST_FILES];
};

int collect_files(const struct source *s, struct checkpoint *c)
{
    struct list own = {0}, *all = calloc(s->setup->savers.world, sizeof *all);
    bool first = collect_is_first(s);
    own.n = first || c->n_files > MOST_FILES ? 0 : c->n_files;
    for (uint32_t i = 0; i < own.n; i++) {
        snprintf(own.files[i].name, sizeof own.files[i].name, "%s", c->files[i].name);
        own.files[i].bytes = c->files[i].bytes;
        own.files[i].xxh3 = c->files[i].xxh3;
    }
    if (!all)
        zinf_net_tell(s->net, "no memory for lists of files");
    int code = all ? zinf_net_gather(s->net, &own, all, sizeof own)
                   : zinf_fail(-ENOMEM, "no memory for lists of files");
    for (uint32_t r = 1; !code && first && r < s->setup->savers.world; r++)
        for (uint32_t i = 0; !code && i < all[r].n; i++)
            code = checkpoint_add_file(c, "", all[r].files[i].name, all[r].files[i].bytes,
                                       all[r].files[i].xxh3);
    c->n_compared = c->n_files;
    free(all);
    return code;
}

int checkpoint_first_part(const struct checkpoint *c)
{
    return c->adapted || c->dtype == ZINF_DTYPE_F32 ? PART_MASTER + 1 : PART_MASTER;
}

void checkpoint_part_name(const struct checkpoint *c, int part, char name[64])
{
    if (part == PART_MASTER && c->adapted)
        snprintf(name, 64, ZINF_ADAPTER_WEIGHTS);
    else if (part == PART_MASTER && c->dtype == ZINF_DTYPE_F32)
        snprintf(name, 64, "model.safetensors"); /* or its index, which the folder finds */
    else if (part == PART_MASTER)
        snprintf(name, 64, CHECKPOINT_OPTIMIZER "/master.safetensors");
    else
        snprintf(name, 64, CHECKPOINT_OPTIMIZER "/moment%d.safetensors", part);
}
