/*
 * cgroup: what the control groups of this process leave of the RAM, of both versions: the smallest
 * over the group and all above it. A container sees its own group as the root of the mount, so a
 * path that is not there counts as the root.
 */
#include "base/cgroup.h"

#include <stdio.h>
#include <stdlib.h>

struct hierarchy {
    const char *controller; /* as in /proc/self/cgroup; "" is the unified one */
    const char *mount, *limit, *used, *cache;
};

static FILE *open_in(const char *folder, const char *name)
{
    char *path = zinf_path_join(folder, name);
    FILE *file = path ? fopen(path, "re") : NULL;
    free(path);
    return file;
}

static bool read_number(const char *folder, const char *name, uint64_t *number)
{
    unsigned long long value;
    FILE *file = open_in(folder, name);
    bool found = file && fscanf(file, "%llu", &value) == 1; /* "max": no limit */
    if (file)
        fclose(file);
    if (found)
        *number = value;
    return found;
}

/* Of memory.stat: pages of files, which the kernel takes back before the limit is felt. */
static uint64_t read_cache(const char *folder, const char *name)
{
    char key[64];
    unsigned long long value, found = 0;
    FILE *file = open_in(folder, "memory.stat");
    while (file && fscanf(file, "%63s %llu", key, &value) == 2)
        found = !strcmp(key, name) ? value : found;
    if (file)
        fclose(file);
    return found;
}

static uint64_t left_in(const char *folder, const struct hierarchy *h)
{
    uint64_t limit, used = 0;
    if (!read_number(folder, h->limit, &limit) || limit >= (uint64_t)1 << 62) /* v1's "none" */
        return UINT64_MAX;
    read_number(folder, h->used, &used);
    uint64_t cache = read_cache(folder, h->cache);
    used -= cache < used ? cache : used;
    return used < limit ? limit - used : 0;
}

static bool has_controller(const char *list, const char *controller)
{
    size_t n = strlen(controller);
    if (!n)
        return !*list;
    for (const char *at = list; (at = strstr(at, controller)); at += n)
        if ((at == list || at[-1] == ',') && (!at[n] || at[n] == ','))
            return true;
    return false;
}

/* The group's path under a hierarchy, on the heap; "" is its root, and stands for whatever cannot
 * be read. */
static char *find_group(const char *root, const char *controller)
{
    char *line = NULL, *group = NULL;
    size_t room = 0;
    FILE *file = open_in(root, "proc/self/cgroup");
    while (file && !group && getline(&line, &room, file) > 0) {
        char *list = strchr(line, ':'), *name = list ? strchr(list + 1, ':') : NULL;
        if (!name)
            continue;
        *name++ = 0;
        name[strcspn(name, "\n")] = 0;
        if (has_controller(list + 1, controller))
            group = strdup(name);
    }
    if (file)
        fclose(file);
    free(line);
    return group ? group : strdup("");
}

uint64_t zinf_cgroup_memory_left(const char *root)
{
    static const struct hierarchy hierarchies[] = {
        {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
        {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
         "total_inactive_file"},
    };
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++) {
        const struct hierarchy *h = &hierarchies[i];
        char *group = find_group(root, h->controller), *slash = group;
        while (slash) {
            char *folder;
            if (asprintf(&folder, "%s%s%s", root, h->mount, group) < 0)
                break;
            uint64_t left = left_in(folder, h);
            least = left < least ? left : least;
            free(folder);
            slash = strrchr(group, '/');
            if (slash)
                *slash = 0;
        }
        free(group);
    }
    return least;
}
