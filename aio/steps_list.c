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

#define MAX_AREA_BYTES (1ull << 36)

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

/* A record and its manifest, of what is in the file. */
static int read_slot(struct zinf_steps_info *info, const char *area, size_t bytes, uint64_t slot,
                     const struct zinf_commit_options *options)
{
    struct commit_record record;
    uint64_t sum, whole = commit_manifest_bytes(options), head = commit_payload_bytes(options);
    uint64_t at = commit_manifest_offset(slot, whole);
    int code = commit_record_decode(area + commit_slot_offset(slot), slot, options, &record, &sum);
    if (code)
        return code;
    if (info->committed && record.epoch + 1 < info->commits)
        return 0;
    const char *payload = area + at;
    if (whole > bytes || at > bytes - whole ||
        commit_manifest_sum(&record, payload, head,
                            (const uint32_t *)(const void *)(payload + head),
                            (whole - head) / sizeof(uint32_t)) != record.manifest_sum)
        return -EBADMSG;
    info->committed = true;
    info->commits = record.epoch + 1;
    info->flushed = record.flushed;
    info->same_boot = is_this_boot(record.boot);
    memcpy(&info->payload_bytes, payload, sizeof info->payload_bytes);
    info->payload = payload + sizeof info->payload_bytes;
    return 0;
}

/* The newest record whose manifest is whole. */
static int read_commits(struct zinf_steps_info *info, const char *path, const char *area,
                        size_t bytes, const struct zinf_steps_plan *plan)
{
    struct commit_header header;
    struct zinf_commit_options options = {.n_pieces = plan->bank_bytes / ZINF_AIO_ALIGN};
    if (bytes < 3 * COMMIT_SPACING)
        return zinf_fail(-EBADMSG, "%s is cut off: it is damaged", path);
    /* Whose area it is, is in every record too; here it only gives the sizes. */
    const void *first = area;
    memcpy(&header, first, sizeof header);
    memcpy(options.uuid, plan->store, sizeof options.uuid);
    options.layout = header.layout;
    options.payload_bytes = header.payload_bytes;
    int code = commit_header_check(area, &options);
    bool unwritten = commit_is_empty(area + commit_slot_offset(1), &options);
    if (code == -EBADMSG && unwritten && commit_is_empty(area + commit_slot_offset(0), &options))
        return 0;
    for (uint64_t slot = 0; !code && slot < 2; slot++) {
        int found = read_slot(info, area, bytes, slot, &options);
        if (found == -ENOTSUP)
            return found;
        if (found == -EBADMSG && !unwritten)
            code = zinf_fail(found, "a record of %s is damaged", path);
    }
    return code;
}

static int look_into(struct zinf_steps_info *info, const char *folder, char **area)
{
    struct zinf_steps_plan plan;
    size_t bytes = 0;
    int code = zinf_check_owner(folder);
    if (!code)
        code = zinf_steps_plan_read(&plan, folder);
    info->named = !code || code == -ENOTSUP;
    if (info->named)
        memcpy(info->run, plan.run, sizeof info->run);
    if (code)
        return code;
    info->path = plan.path;
    info->n_paths = plan.n_paths;
    info->store_bytes = plan.file_bytes;
    info->alive = is_alive(folder);
    if (plan.path || plan.state != ZINF_STEPS_KEPT) /* nobody goes on from it, or not from here */
        return 0;
    char *path = zinf_path_join(folder, ZINF_COMMIT_FILE);
    code = path ? zinf_file_read(path, MAX_AREA_BYTES, area, &bytes) : -ENOMEM;
    if (!code)
        code = read_commits(info, path, *area, bytes, &plan);
    free(path);
    return code;
}

static void see_folder(const char *folder, void (*see)(void *, const struct zinf_steps_info *),
                       void *arg)
{
    struct zinf_steps_info info = {.folder = folder};
    char *area = NULL, *problem = NULL;
    int code = look_into(&info, folder, &area);
    if (code)
        info.problem = problem = strdup(zinf_error());
    if (code != -ENOENT || info.named) /* without a description: its space is being taken */
        see(arg, &info);
    free(problem);
    free(area);
}

int zinf_steps_list(const char *path, void (*see)(void *arg, const struct zinf_steps_info *info),
                    void *arg)
{
    DIR *dir = opendir(path);
    if (!dir)
        return zinf_fail(-errno, "cannot look into %s: %s", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *folder =
            zinf_run_folder_lasts(entry->d_name) ? zinf_path_join(path, entry->d_name) : NULL;
        if (folder)
            see_folder(folder, see, arg);
        free(folder);
    }
    closedir(dir);
    return 0;
}
