/*
 * net_nccl_load: finds NCCL. It is no part of CUDA's toolkit and comes by a package of its own or
 * with Python's, so what the linker does not find is looked for where those put it.
 */
#include "base/library.h"
#include "net/nccl_calls.h"
#include "net/net.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define LIBRARY "libnccl.so.2"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct nccl_calls calls; /* set once, with why_not empty */
static char why_not[1024];
static char library_found[1100]; /* name and file */

static void *open_library(void)
{
    /* For a library that is not installed, or for tests. */
    const char *path = secure_getenv("ZINF_NCCL_LIBRARY");
    bool named = path && *path;
    void *library = dlopen(named ? path : LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library)
        return library;
    const char *said = dlerror();
    snprintf(why_not, sizeof why_not, "%s",
             said ? said : LIBRARY " does not load"); /* before another call of dlopen */
    return named ? NULL : zinf_library_find(LIBRARY);
}

/* Whether it has all that is called. */
static bool find_calls(void *library)
{
    static const struct {
        const char *name;
        size_t offset;
    } names[] = {
#define NCCL_NAME(result, name, parameters) {"nccl" #name, offsetof(struct nccl_calls, name)},
        NCCL_CALLS(NCCL_NAME)
#undef NCCL_NAME
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *found = dlsym(library, names[i].name);
        memcpy((char *)&calls + names[i].offset, &found, sizeof found);
        if (!found) {
            snprintf(why_not, sizeof why_not, "it has no %s: it is older than NCCL 2.14",
                     names[i].name);
            return false;
        }
    }
    return true;
}

static void name_library(void)
{
    Dl_info where = {0};
    int v = calls.version;
    snprintf(calls.name, sizeof calls.name, "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    dladdr((void *)(uintptr_t)calls.GetVersion, &where);
    snprintf(library_found, sizeof library_found, "%s (%s)", calls.name,
             where.dli_fname ? where.dli_fname : LIBRARY);
}

static void look(void)
{
    char reason[sizeof why_not - 200];
    void *library = open_library();
    if (library) {
        why_not[0] = 0;
        if (find_calls(library) && calls.GetVersion(&calls.version) != NCCL_SUCCESS)
            snprintf(why_not, sizeof why_not, "it does not say its version");
        else if (!why_not[0] && calls.version < NCCL_OLDEST)
            snprintf(why_not, sizeof why_not, "its version is %d: 2.14 or newer is needed",
                     calls.version);
    }
    if (!why_not[0]) {
        name_library();
        return;
    }
    snprintf(reason, sizeof reason, "%s", why_not);
    snprintf(why_not, sizeof why_not,
             "no NCCL that can be used (%s); install NVIDIA's package libnccl2, or pip install "
             "nvidia-nccl-cu13, or name the library in ZINF_NCCL_LIBRARY",
             reason);
}

const char *zinf_link_why_not(void)
{
    pthread_once(&once, look);
    return why_not[0] ? why_not : NULL;
}

const char *zinf_link_found(void)
{
    return zinf_link_why_not() ? NULL : library_found;
}

const struct nccl_calls *nccl_load(void)
{
    return zinf_link_why_not() ? NULL : &calls;
}
