#include "cli/folder.h"

#include "base/base.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cli_folder_make(char path[CLI_FOLDER_BYTES], const char *name)
{
    const char *base = getenv("TMPDIR");
    int length =
        snprintf(path, CLI_FOLDER_BYTES, "%s/zinf-%s-XXXXXX", base && *base ? base : "/tmp", name);
    if (length < CLI_FOLDER_BYTES && mkdtemp(path))
        return 0;
    int code = zinf_fail(length < CLI_FOLDER_BYTES ? -errno : -ENAMETOOLONG,
                         "cannot make %s: %s; set TMPDIR to a folder that can be written", path,
                         strerror(length < CLI_FOLDER_BYTES ? errno : ENAMETOOLONG));
    path[0] = 0;
    return code;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

void cli_folder_remove(const char *path)
{
    if (path[0])
        nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

int cli_drive_paths(const cJSON *config, const char *section, const char **paths, int most)
{
    const cJSON *zero = cJSON_GetObjectItemCaseSensitive(config, "zero_optimization");
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(zero, section), "nvme_path");
    const cJSON *item = cJSON_IsArray(value) ? value->child : value;
    int n = 0;
    for (; item && n < most; item = cJSON_IsArray(value) ? item->next : NULL)
        if (cJSON_IsString(item))
            paths[n++] = item->valuestring;
    return n;
}
