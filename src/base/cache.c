/* cache: where the user's cache is. */
#include "base/cache.h"

#include "base/base.h"

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
