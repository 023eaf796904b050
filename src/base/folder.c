/* folder: see the header. */
#include "base/folder.h"

#include "base/base.h"

#include <errno.h>
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
