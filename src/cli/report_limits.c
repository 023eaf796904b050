/*
 * report_limits: what the kernel lets this process take: control groups, locked memory, huge pages,
 * io_uring. A limit of a parent group holds for its children, so the smallest on the way up counts.
 * The group's own name is not shown: it can hold a user's name.
 */
#include "cli/report.h"

#include "aio/aio.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/resource.h>

/* This process's group under a controller: "" is the unified hierarchy (cgroup v2). */
static bool find_group(const char *controller, char *group, size_t bytes)
{
    char line[PATH_MAX];
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return false;
    while (!found && fgets(line, sizeof line, file)) {
        char *name = strchr(line, ':');
        char *path = name ? strchr(name + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        found = !strcmp(name + 1, controller);
        if (found)
            snprintf(group, bytes, "%s", path);
    }
    fclose(file);
    return found;
}

/* Smallest number in FILE of the group and of the groups above it; UINT64_MAX: no limit. */
static uint64_t smallest_limit(const char *mount, const char *controller, const char *file)
{
    char group[PATH_MAX], path[2 * PATH_MAX], text[64];
    uint64_t smallest = UINT64_MAX;
    if (!find_group(controller, group, sizeof group))
        return smallest;
    for (;;) {
        char *slash = strrchr(group, '/');
        snprintf(path, sizeof path, "%s%s/%s", mount, group, file);
        if (report_read_line(path, text, sizeof text) && text[0] >= '0' && text[0] <= '9') {
            uint64_t limit = strtoull(text, NULL, 10);
            smallest = limit < smallest ? limit : smallest;
        }
        if (!slash)
            return smallest;
        *slash = 0; /* "" at last is the root, which inside a container is the container */
    }
}

static const char *format_limit(char *buffer, size_t bytes, uint64_t limit)
{
    /* cgroup v1 says "none" as the largest multiple of a page */
    if (limit >= (uint64_t)1 << 62)
        snprintf(buffer, bytes, "none");
    else
        zinf_size_format(buffer, bytes, limit);
    return buffer;
}

static void add_cgroup(cJSON *facts)
{
    char size[16], quota[64];
    uint64_t v2 = smallest_limit("/sys/fs/cgroup", "", "memory.max");
    uint64_t v1 = smallest_limit("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes");
    report_add(facts, "cgroup_memory_limit", "%s",
               format_limit(size, sizeof size, v2 < v1 ? v2 : v1));
    if (!report_read_line("/sys/fs/cgroup/cpu.max", quota, sizeof quota))
        snprintf(quota, sizeof quota, "none seen");
    report_add(facts, "cgroup_cpu_quota", "%s", quota);
}

static void add_memlock(cJSON *facts)
{
    struct rlimit limit;
    char soft[16], hard[16];
    if (getrlimit(RLIMIT_MEMLOCK, &limit)) {
        report_add(facts, "memlock", "unknown: %s", strerror(errno));
        return;
    }
    report_add(facts, "memlock", "soft %s, hard %s",
               limit.rlim_cur == RLIM_INFINITY
                   ? "unlimited"
                   : zinf_size_format(soft, sizeof soft, (uint64_t)limit.rlim_cur),
               limit.rlim_max == RLIM_INFINITY
                   ? "unlimited"
                   : zinf_size_format(hard, sizeof hard, (uint64_t)limit.rlim_max));
}

static void add_huge_pages(cJSON *facts)
{
    char transparent[64], total[32], free_pages[32], size[32];
    if (!report_read_line("/sys/kernel/mm/transparent_hugepage/enabled", transparent,
                          sizeof transparent))
        snprintf(transparent, sizeof transparent, "not available");
    if (!report_read_field("/proc/meminfo", "HugePages_Total", ':', total, sizeof total) ||
        !report_read_field("/proc/meminfo", "HugePages_Free", ':', free_pages, sizeof free_pages) ||
        !report_read_field("/proc/meminfo", "Hugepagesize", ':', size, sizeof size))
        report_add(facts, "huge_pages", "transparent: %s", transparent);
    else
        report_add(facts, "huge_pages", "transparent: %s; reserved: %s of %s, %s free", transparent,
                   total, size, free_pages);
}

static void add_uring(cJSON *facts)
{
    char disabled[32];
    const char *why = NULL;
    int code = zinf_aio_uring_probe(&why);
    if (!report_read_line("/proc/sys/kernel/io_uring_disabled", disabled, sizeof disabled))
        snprintf(disabled, sizeof disabled, "not there");
    if (code)
        report_add(facts, "io_uring", "refused: %s (%s); kernel.io_uring_disabled: %s",
                   why ? why : "no reason known", strerror(-code), disabled);
    else
        report_add(facts, "io_uring", "works; kernel.io_uring_disabled: %s", disabled);
}

void report_limits(cJSON *facts)
{
    add_cgroup(facts);
    add_memlock(facts);
    add_huge_pages(facts);
    add_uring(facts);
}
