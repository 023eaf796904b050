/* aio_describe: a paragraph about the drive and file system behind a folder, for reports. */
#include "build-config.h"

#include "aio/aio_engine.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

static const char *fs_name(long type)
{
    static const struct {
        long type;
        const char *name;
    } names[] = {
        {EXT4_SUPER_MAGIC, "ext4"},
        {XFS_SUPER_MAGIC, "XFS"},
        {BTRFS_SUPER_MAGIC, "btrfs"},
        {TMPFS_MAGIC, "tmpfs (memory)"},
        {RAMFS_MAGIC, "ramfs (memory)"},
        {OVERLAYFS_SUPER_MAGIC, "overlayfs (a container's layer)"},
        {NFS_SUPER_MAGIC, "NFS"},
        {F2FS_SUPER_MAGIC, "f2fs"},
        {0x2fc12fc1, "ZFS"},
        {0x0bd00bd0, "Lustre"},
        {FUSE_SUPER_MAGIC, "FUSE"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].type == type)
            return names[i].name;
    return "unknown";
}

/* Tries it with a file without a name, so nothing is left behind. */
static const char *direct_io(const char *path)
{
    int fd = open(path, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        close(fd);
        return "yes";
    }
    return errno == EINVAL ? "no" : "not tried (no write permission or no O_TMPFILE)";
}

/* Finds /sys/.../queue of a device, or of the disk that a partition is on. */
static bool queue_folder(dev_t device, char out[PATH_MAX], char name[64])
{
    char link[64], real[PATH_MAX];
    snprintf(link, sizeof link, "/sys/dev/block/%u:%u", major(device), minor(device));
    if (!realpath(link, real))
        return false;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(real, '/');
        if (!slash)
            break;
        snprintf(name, 64, "%.63s", slash + 1);
        if (snprintf(out, PATH_MAX, "%s/queue", real) < PATH_MAX && !access(out, R_OK))
            return true;
        *slash = 0;
    }
    return false;
}

/* The first word of a small file in sysfs; "?" if it does not exist. */
static const char *setting(const char *folder, const char *name, char *out, size_t out_bytes)
{
    char path[PATH_MAX];
    snprintf(out, out_bytes, "?");
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return out;
    FILE *file = fopen(path, "re");
    if (!file)
        return out;
    if (fgets(out, (int)out_bytes, file))
        out[strcspn(out, "\n")] = 0;
    fclose(file);
    return out;
}

static void append(char **at, size_t *left, const char *text)
{
    int n = snprintf(*at, *left, "%s", text);
    size_t used = (size_t)n < *left ? (size_t)n : *left ? *left - 1 : 0;
    *at += used;
    *left -= used;
}

static void append_device(char **at, size_t *left, dev_t device)
{
    static const char *const settings[] = {
        "rotational",        "scheduler",    "max_sectors_kb",
        "max_hw_sectors_kb", "max_segments", "nr_requests",
        "write_cache",       "fua",          "logical_block_size",
    };
    char folder[PATH_MAX], name[64], value[64], text[192];
    if (!queue_folder(device, folder, name)) {
        append(at, left, "; no block device of its own");
        return;
    }
    snprintf(text, sizeof text, "; device %s (%u:%u)", name, major(device), minor(device));
    append(at, left, text);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        snprintf(text, sizeof text, ", %s %s", settings[i],
                 setting(folder, settings[i], value, sizeof value));
        append(at, left, text);
    }
}

int zinf_aio_describe_path(const char *path, char *buffer, size_t buffer_bytes)
{
    struct statfs fs;
    struct stat info;
    char size[16], total[16], text[512];
    if (statfs(path, &fs) || stat(path, &info))
        return zinf_fail(-errno, "cannot look at %s: %s", path, strerror(errno));
    append(&buffer, &buffer_bytes, path);
    snprintf(text, sizeof text, ": file system %s, %s free of %s, direct I/O: %s",
             fs_name((long)fs.f_type),
             zinf_size_format(size, sizeof size, zinf_aio_free_bytes(path)),
             zinf_size_format(total, sizeof total, (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize),
             direct_io(path));
    append(&buffer, &buffer_bytes, text);
    append_device(&buffer, &buffer_bytes, info.st_dev);
    return 0;
}
