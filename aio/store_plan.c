/*
 * store_plan: the sealed block that each run folder of a store with steps has: whose it is, and how
 * the bytes lie. Only what is this user's alone is believed.
 */
#include "build-config.h"

#include "aio/aio_store.h"
#include "aio/commit_record.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define PLAN_VERSION 3
#define COPIES_BYTES (COMMIT_COPIES * COMMIT_BLOCK)
static const char plan_magic[8] = {'Z', 'I', 'N', 'F', 'P', 'L', 'A', 'N'};

int zinf_steps_plan_write(const struct zinf_steps_plan *plan, const char *folder)
{
    struct zinf_steps_plan sealed = *plan;
    char blocks[COPIES_BYTES];
    char *path = zinf_path_join(folder, ZINF_STEPS_FILE);
    memcpy(sealed.magic, plan_magic, sizeof sealed.magic);
    sealed.version = PLAN_VERSION;
    commit_seal(blocks, &sealed, sizeof sealed);
    int code = path ? zinf_file_write_atomic(path, blocks, sizeof blocks) : -ENOMEM;
    free(path);
    return code ? code : zinf_folder_sync(folder);
}

int zinf_check_owner(const char *path)
{
    struct stat info;
    if (lstat(path, &info))
        return zinf_fail(-errno, "cannot stat %s: %s", path, strerror(errno));
    if (info.st_uid == geteuid() && !(info.st_mode & (S_IWGRP | S_IWOTH)) && !S_ISLNK(info.st_mode))
        return 0;
    return zinf_fail(-EPERM, "%s is not this user's alone, so what it holds is not believed", path);
}

/* A file with only one copy of the block is of the first version. */
static int decode_plan(struct zinf_steps_plan *plan, const char *path, const char *text,
                       size_t bytes)
{
    char blocks[COPIES_BYTES] = {0};
    uint64_t sum;
    memcpy(blocks, text, bytes < sizeof blocks ? bytes : sizeof blocks);
    const void *block = commit_sealed(blocks, plan_magic, &sum);
    if (!block)
        return zinf_fail(-EBADMSG, "%s is damaged", path);
    memcpy(plan, block, sizeof *plan);
    if (plan->version == PLAN_VERSION)
        return 0;
    return zinf_fail(-ENOTSUP, "%s is of %s zinf (version %u, this one knows %d): take that one",
                     path, plan->version > PLAN_VERSION ? "a newer" : "an older", plan->version,
                     PLAN_VERSION);
}

int zinf_steps_plan_read(struct zinf_steps_plan *plan, const char *folder)
{
    char *path = zinf_path_join(folder, ZINF_STEPS_FILE), *text = NULL;
    size_t bytes;
    int code = path ? zinf_check_owner(path) : -ENOMEM;
    if (!code)
        code = zinf_file_read(path, 1u << 20, &text, &bytes);
    if (code == -EFBIG)
        code = zinf_fail(-EBADMSG, "%s is damaged", path);
    if (!code)
        code = decode_plan(plan, path, text, bytes);
    free(text);
    free(path);
    return code;
}

void zinf_boot_name(uint8_t name[16])
{
    char text[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text);
    XXH128_hash_t hash = XXH3_128bits(text, n > 0 ? (size_t)n : 0);
    memcpy(name, &hash, sizeof hash);
    if (fd >= 0)
        close(fd);
}
