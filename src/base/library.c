/* library: the usual folders of what NVIDIA's libraries are installed by, looked through in order.
 */
#include "base/library.h"
#include "base/base.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

/* One of the files that a pattern of folders has under this name. */
static void *load_from(const char *folders, const char *name)
{
    char pattern[1024];
    glob_t found;
    void *loaded = NULL;
    if (snprintf(pattern, sizeof pattern, "%s/%s", folders, name) >= (int)sizeof pattern ||
        glob(pattern, GLOB_TILDE, NULL, &found))
        return NULL;
    for (size_t i = 0; i < found.gl_pathc && !loaded; i++)
        loaded = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    if (loaded)
        zinf_log(ZINF_LOG_DEBUG, "%s found in %s", name, folders);
    globfree(&found);
    return loaded;
}

/* The folder that a variable of the environment names, and one below it. */
static void *load_from_variable(const char *variable, const char *below, const char *name)
{
    char folder[1024];
    const char *value = getenv(variable);
    if (!value || !*value ||
        snprintf(folder, sizeof folder, "%s%s", value, below) >= (int)sizeof folder)
        return NULL;
    return load_from(folder, name);
}

void *zinf_library_find(const char *name)
{
    static const struct {
        const char *variable, *below;
    } named[] = {
        {"ZINF_CUDA_LIBRARIES", ""},
        {"CUDA_HOME", "/lib64"},
        {"CUDA_PATH", "/lib64"},
        {"CONDA_PREFIX", "/lib"},
        {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib"},
        {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/lib"},
    };
    static const char *const usual[] = {
        "/usr/local/cuda/lib64",
        "/usr/local/cuda-*/lib64",
        "/usr/local/cuda*/targets/x86_64-linux/lib",
        "/opt/cuda/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "~/.local/lib/python3*/site-packages/nvidia/*/lib",
        "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
        "/usr/lib/python3*/*-packages/nvidia/*/lib",
        "/opt/*/lib/python3*/site-packages/nvidia/*/lib",
        "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib",
        "/opt/*/*/lib/python3*/site-packages/nvidia/*/lib",
    };
    void *loaded = NULL;
    for (size_t i = 0; i < sizeof named / sizeof *named && !loaded; i++)
        loaded = load_from_variable(named[i].variable, named[i].below, name);
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !loaded; i++)
        loaded = load_from(usual[i], name);
    return loaded;
}
