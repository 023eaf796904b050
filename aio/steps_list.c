/* steps_list: reads what run folders say about themselves without a lock, a flush or a write, so
 * that it may be called while the run goes on. */
#include "build-config.h"

#include "aio/steps.h"

#include "aio/aio_store.h"
#include "aio/commit_record.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define MAX_AREA_BYTES (1ull << 36)

/* Whether a process holds the folder's lock. One that can be taken here is given back at once. */
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

/* A commit area, read past the page cache, as its owner writes it. */
struct area {
    const char *path;
    char *memory;
    uint64_t bytes;
};

static int read_area(struct area *area)
{
    struct zinf_aio_file *file = NULL;
    int code = zinf_aio_open(&file, area->path, ZINF_AIO_READ);
    area->bytes = code ? 0 : zinf_align_up(zinf_aio_file_bytes(file), ZINF_AIO_ALIGN);
    if (!code && (area->bytes < 3 * COMMIT_SPACING || area->bytes > MAX_AREA_BYTES))
        code = zinf_fail(-EBADMSG, "%s has %" PRIu64 " bytes: it is damaged", area->path,
                         zinf_aio_file_bytes(file));
    if (!code && posix_memalign((void **)&area->memory, ZINF_AIO_ALIGN, area->bytes))
        code = zinf_fail(-ENOMEM, "no memory to read %s", area->path);
    for (uint64_t done = 0; !code && done < area->bytes;) {
        ssize_t n = pread(file->fd, area->memory + done, area->bytes - done, (off_t)done);
        if (n < 0 && errno != EINTR)
            code = zinf_fail(-errno, "cannot read %s: %s", area->path, strerror(errno));
        if (!n) /* the last block is cut off */
            memset(area->memory + done, 0, area->bytes - done);
        done = n ? done + (uint64_t)(n > 0 ? n : 0) : area->bytes;
    }
    zinf_aio_close(file);
    return code;
}

/* Fills in what a record says, if its manifest is whole; else false. */
static bool see_record(struct zinf_steps_info *info, const struct area *area,
                       const struct commit_record *record,
                       const struct zinf_commit_options *options)
{
    uint64_t whole = commit_manifest_bytes(options), head = commit_payload_bytes(options);
    uint64_t at = commit_manifest_offset(record->epoch, whole);
    const char *payload = area->memory + at;
    if (whole > area->bytes || at > area->bytes - whole ||
        commit_manifest_sum(record, payload, head, (const uint32_t *)(const void *)(payload + head),
                            (whole - head) / sizeof(uint32_t)) != record->manifest_sum)
        return false;
    info->committed = true;
    info->commits = record->epoch + 1;
    info->flushed = record->flushed;
    info->same_boot = is_this_boot(record->boot);
    memcpy(&info->payload_bytes, payload, sizeof info->payload_bytes);
    info->payload = payload + sizeof info->payload_bytes;
    return true;
}

/* Sees the newest record whose manifest is whole. The manifest of an older record may have been
 * overwritten already by a step that was never committed. */
static int see_records(struct zinf_steps_info *info, const struct area *area,
                       const struct zinf_commit_options *options)
{
    struct commit_record records[2];
    uint64_t sum;
    int codes[2];
    for (uint64_t slot = 0; slot < 2; slot++)
        codes[slot] = commit_record_decode(area->memory + commit_slot_offset(slot), slot, options,
                                           &records[slot], &sum);
    if (codes[0] == -ENOTSUP || codes[1] == -ENOTSUP)
        return -ENOTSUP;
    int newest = !codes[1] && (codes[0] || records[1].epoch > records[0].epoch);
    bool whole = !codes[newest] && see_record(info, area, &records[newest], options);
    if (!whole && !codes[!newest])
        see_record(info, area, &records[!newest], options);
    if (!whole && codes[1] == -ENOENT && codes[0]) /* the first step has not been committed */
        return 0;
    if (whole && codes[!newest] != -EBADMSG)
        return 0;
    return zinf_fail(-EBADMSG, "a record of %s is damaged", area->path);
}

static int see_area(struct zinf_steps_info *info, const struct area *area,
                    const struct zinf_steps_plan *plan)
{
    struct commit_header header;
    struct zinf_commit_options options = {.n_pieces = plan->bank_bytes / ZINF_AIO_ALIGN};
    memcpy(options.uuid, plan->store, sizeof options.uuid);
    const void *block = commit_header(area->memory);
    if (block) { /* only sizes are taken from it; the description says whose it is */
        memcpy(&header, block, sizeof header);
        options.layout = header.layout;
        options.payload_bytes = header.payload_bytes;
    }
    int code = commit_header_check(area->memory, &options);
    if (code == -EBADMSG && commit_is_empty(area->memory + commit_slot_offset(0), &options) &&
        commit_is_empty(area->memory + commit_slot_offset(1), &options))
        return 0;
    return code ? code : see_records(info, area, &options);
}

static int look_into(struct zinf_steps_info *info, const char *folder, char **memory)
{
    struct zinf_steps_plan plan;
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
    if (plan.path || plan.state != ZINF_STEPS_KEPT) /* it has ended, or this is a further path */
        return 0;
    char *path = zinf_path_join(folder, ZINF_COMMIT_FILE);
    struct area area = {.path = path};
    code = path ? read_area(&area) : -ENOMEM;
    if (!code)
        code = see_area(info, &area, &plan);
    *memory = area.memory;
    free(path);
    return code;
}

static void see_folder(const char *folder, void (*see)(void *, const struct zinf_steps_info *),
                       void *arg)
{
    struct zinf_steps_info info = {.folder = folder};
    char *memory = NULL, *problem = NULL;
    int code = look_into(&info, folder, &memory);
    if (code)
        info.problem = problem = strdup(zinf_error());
    /* The owner of a folder without a description may still be taking space. */
    if (code != -ENOENT || info.named)
        see(arg, &info);
    free(problem);
    free(memory);
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
