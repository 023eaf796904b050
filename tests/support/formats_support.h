/* formats_support: a folder of the test's own, its files, and the fixtures. */
#ifndef ZINF_FORMATS_SUPPORT_H
#define ZINF_FORMATS_SUPPORT_H

#include "files.h"
#include "formats/formats.h"
#include "tap.h"

#include <stdlib.h>
#include <unistd.h>

static char scratch[4096]; /* a folder of our own, removed at the end */

static inline const char *in_scratch(const char *name)
{
    static char path[4][4400];
    static int turn;
    char *text = path[turn++ % 4];
    snprintf(text, sizeof path[0], "%s/%s", scratch, name);
    return text;
}

static inline const char *fixture(const char *name)
{
    static char path[4200];
    const char *source = getenv("SRCDIR");
    snprintf(path, sizeof path, "%s/tests/fixtures/formats/%s", source ? source : ".", name);
    return path;
}

static inline void make_file(const char *path, const void *data, size_t bytes)
{
    CHECKF(!zinf_file_write_atomic(path, data, bytes), "%s", zinf_error());
}

static inline bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static inline void begin_formats(void)
{
    const char *folder = getenv("BUILDDIR");
    snprintf(scratch, sizeof scratch, "%s/formats_test.XXXXXX", folder ? folder : ".");
    if (!mkdtemp(scratch)) {
        printf("Bail out! cannot make %s\n", scratch);
        exit(99);
    }
    zinf_log_set_level(ZINF_LOG_ERROR);
}

static inline int end_formats(void)
{
    char command[4200];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    if (system(command))
        printf("# cannot remove %s\n", scratch);
    return tap_done();
}

#endif
