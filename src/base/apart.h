/*
 * apart: what a command reads is never where it writes. A writer of files says, before it begins,
 * what it reads and where it is going to write; files and folders are compared by device and inode,
 * so that symbolic links, hard links and bind mounts of what is read are it.
 *
 * Threads: no state. Errors: -EINVAL and a sentence that names both and the way on.
 */
#ifndef ZINF_APART_H
#define ZINF_APART_H

#include "base/base.h"

struct zinf_origin {
    const char *option; /* by which it was named: "--model" */
    const char *path;   /* a file or a folder; NULL, or not there: nothing */
};
/* A list that grows; both words are borrowed. */
struct zinf_origins {
    struct zinf_origin *items;
    int n;
};
int zinf_origins_add(struct zinf_origins *origins, const char *option, const char *path);
void zinf_origins_free(struct zinf_origins *origins);
enum zinf_written {
    ZINF_WRITTEN_FILE,   /* the path itself, in place */
    ZINF_WRITTEN_FOLDER, /* files of the folder, beside what else is in it */
    ZINF_WRITTEN_WHOLE,  /* the folder is replaced or removed with all that is in it */
};
/* The path need not be there yet. An input is the files of its folder, too. */
int zinf_apart_check(const char *option, const char *path, enum zinf_written how,
                     const struct zinf_origins *origins);
/* -ELOOP: path is a symbolic link, which leads to something else than this program made there. */
int zinf_apart_no_link(const char *path);

#endif
