/* shimmed: trainings with the shim preloaded, for which a transfer goes wrong (shim.c). */
#ifndef ZINF_TESTS_FAULTS_SHIMMED_H
#define ZINF_TESTS_FAULTS_SHIMMED_H

#include "faults.h"

static char shim[700], count_path[700];

/* Behind faults_begin. NULL, or why there can be no shim. */
static inline const char *shim_find(void)
{
    const char *build = getenv("BUILDDIR"), *named = getenv("ZINF_TEST_SHIM");
    snprintf(count_path, sizeof count_path, "%s/count", work);
    snprintf(shim, sizeof shim, "%s/tests/faults/.libs/shim.so", build ? build : ".");
    if (named)
        snprintf(shim, sizeof shim, "%s", named);
    return access(shim, R_OK)         ? "no shared library to preload"
           : getenv("ZINF_SANITIZER") ? "a sanitizer's runtime must be loaded before the shim"
                                      : NULL;
}

/* What goes wrong: "KIND N PART", the N-th transfer of the kind of files with PART in their paths;
 * N+: all from there on; 0: none. Returns the training's status. */
static inline int shim_train(const struct fault_setting *s, const char *what, const char *steps)
{
    setenv("ZINF_SHIM", what, 1);
    setenv("ZINF_SHIM_COUNT", count_path, 1);
    faults_preload = shim;
    pid_t child = faults_train(s, steps);
    faults_preload = NULL;
    return faults_wait(child);
}

/* Only transfers of the next trainings that begin there in a file are counted and harmed, and this
 * byte of a read is the one that changes. */
static inline void shim_at(uint64_t from, uint64_t end, uint64_t byte)
{
    char text[100];
    snprintf(text, sizeof text, "%llu %llu %llu", (unsigned long long)from, (unsigned long long)end,
             (unsigned long long)byte);
    setenv("ZINF_SHIM_PLACE", text, 1);
}

static inline void shim_anywhere(void)
{
    unsetenv("ZINF_SHIM_PLACE");
}

static inline const char *shim_place(void)
{
    const char *place = getenv("ZINF_SHIM_PLACE");
    return place ? place : "anywhere";
}

/* Transfers of that kind in the last training. */
static inline uint64_t shim_counted(void)
{
    char *text = NULL;
    size_t bytes;
    if (zinf_file_read(count_path, 100, &text, &bytes))
        return 0;
    uint64_t n = strtoull(text, NULL, 10);
    free(text);
    return n;
}

#endif
