/* cache: where the user's cache is. */
#include "base/cache.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

char *zinf_cache_path(const char *name, bool make_folder)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *root = NULL, *folder = NULL, *path = NULL;
    if (base && *base)
        root = strdup(base);
    else if (home && *home)
        root = zinf_path_join(home, ".cache");
    if (root)
        folder = zinf_path_join(root, "zinf");
    if (folder && (!make_folder || !zinf_make_dirs(folder)))
        path = zinf_path_join(folder, name);
    free(folder);
    free(root);
    return path;
}

int zinf_cache_folder(char **out, const char *kind, const char *name, uint64_t sum)
{
    char *root = zinf_cache_path(kind, false);
    int n = root ? asprintf(out, "%s/%.80s-%016llx", root, name, (unsigned long long)sum) : -1;
    const bool known = root;
    free(root);
    if (n >= 0)
        return zinf_make_dirs(*out);
    *out = NULL;
    return known ? zinf_fail(-ENOMEM, "no memory to open %s", name)
                 : zinf_fail(-ENOENT,
                             "%s: its configuration is kept in a cache: set XDG_CACHE_HOME to a "
                             "folder that can be written",
                             name);
}
