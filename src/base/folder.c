/* folder: see the header. */
#include "base/folder.h"

#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool zinf_folder_has(const char *folder, const char *name)
{
    char *path = zinf_path_join(folder, name);
    bool yes = path && !access(path, F_OK);
    free(path);
    return yes;
}

int zinf_folder_json(const char *folder, const char *name, size_t max_bytes, cJSON **out)
{
    char *path = zinf_path_join(folder, name);
    int code = path ? 0 : -ENOMEM;
    *out = NULL;
    if (!code && !access(path, F_OK))
        code = zinf_json_read_file(path, max_bytes, ZINF_JSON_STRICT, out);
    free(path);
    return code;
}

int zinf_cache_folder(char **out, const char *kind, const char *name, uint64_t sum)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool own = cache && *cache;
    *out = NULL;
    if (!own && !(home && *home))
        return zinf_fail(-ENOENT,
                         "%s: its configuration is kept in a cache: set XDG_CACHE_HOME to a folder "
                         "that can be written",
                         name);
    if (asprintf(out, "%s%s/zinf/%s/%.80s-%016llx", own ? cache : home, own ? "" : "/.cache", kind,
                 name, (unsigned long long)sum) < 0) {
        *out = NULL;
        return zinf_fail(-ENOMEM, "no memory to open %s", name);
    }
    return zinf_make_dirs(*out);
}
