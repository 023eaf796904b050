/* steps_list: what run folders say about themselves, read without a lock, a flush or a write: it
 * may be asked while the run goes on. */
#include "build-config.h"

#include "aio/steps.h"

#include "aio/aio_store.h"
#include "aio/commit_record.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_AREA_BYTES (1ull << 30)

/* A lock that can be taken is nobody's; it is given back at once. */
static bool is_alive(const char *folder)
{
    char *path = zinf_path_join(folder, "lock");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    bool alive = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    free(path);
    return alive;
}

static bool is_this_boot(const uint8_t boot[16])
{
    uint8_t now[16];
    zinf_boot_name(now);
    return !memcmp(boot, now, sizeof now);
}

/* The newest record whose manifest is whole. */
static void read_commits(struct zinf_steps_info *info, const char *area, size_t bytes,
                         const struct zinf_steps_plan *plan)
{
    struct commit_header header;
    struct commit_record record;
    struct zinf_commit_options options = {0};
    if (bytes < 3 * COMMIT_SPACING)
        return;
    memcpy(&header, area, sizeof header);
    options.layout = header.layout;
    options.n_pieces = header.n_pieces;
    options.payload_bytes = header.payload_bytes;
    memcpy(options.uuid, plan->store, sizeof options.uuid);
    if (commit_header_check(area, &options))
        return;
    for (uint64_t slot = 0; slot < 2; slot++) {
        uint64_t sum;
        if (commit_record_decode(area + commit_slot_offset(slot), &options, &record, &sum) ||
            (info->committed && record.epoch + 1 < info->commits))
            continue;
        uint64_t at = commit_manifest_offset(record.epoch, record.manifest_bytes);
        if (record.manifest_bytes > bytes || at > bytes - record.manifest_bytes ||
            commit_manifest_sum(area + at, record.manifest_bytes, record.epoch, record.attempt) !=
                record.manifest_sum)
            continue;
        info->committed = true;
        info->commits = record.epoch + 1;
        info->flushed = record.flushed;
        info->same_boot = is_this_boot(record.boot);
        memcpy(&info->payload_bytes, area + at, sizeof info->payload_bytes);
        info->payload = area + at + (1 + header.n_pieces) * sizeof(uint64_t);
    }
}

static void see_folder(const char *folder, void (*see)(void *, const struct zinf_steps_info *),
                       void *arg)
{
    struct zinf_steps_plan plan;
    struct zinf_steps_info info = {.folder = folder};
    char *path = zinf_path_join(folder, ZINF_COMMIT_FILE), *area = NULL;
    size_t bytes = 0;
    if (!path || zinf_steps_plan_read(&plan, folder))
        goto out;
    memcpy(info.run, plan.run, sizeof info.run);
    info.path = plan.path;
    info.n_paths = plan.n_paths;
    info.store_bytes = plan.file_bytes;
    info.alive = is_alive(folder);
    /* One that is not ready is about to be removed: nobody goes on from it. */
    if (!plan.path && plan.ready && !zinf_file_read(path, MAX_AREA_BYTES, &area, &bytes))
        read_commits(&info, area, bytes, &plan);
    see(arg, &info);
out:
    free(area);
    free(path);
}

int zinf_steps_list(const char *path, void (*see)(void *arg, const struct zinf_steps_info *info),
                    void *arg)
{
    DIR *dir = opendir(path);
    if (!dir)
        return zinf_fail(-errno, "cannot look into %s: %s", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *folder =
            zinf_run_folder_is(entry->d_name) ? zinf_path_join(path, entry->d_name) : NULL;
        if (folder)
            see_folder(folder, see, arg);
        free(folder);
    }
    closedir(dir);
    return 0;
}
