/*
 * apart: keeps a command from writing where it reads. A command lists its inputs and checks each
 * output against them before it writes. Files and folders are compared by device and inode, so
 * symbolic links, hard links and bind mounts of an input are recognised.
 *
 * Threads: no shared state. Errors: -EINVAL, with a sentence that names both paths and a remedy.
 */
#ifndef ZINF_APART_H
#define ZINF_APART_H

#include "base/base.h"

struct zinf_origin {
    const char *option; /* the option that named it, such as "--model" */
    const char *path;   /* a file or folder; ignored if it is NULL or does not exist */
};
/* A growing list of inputs. The strings are borrowed. */
struct zinf_origins {
    struct zinf_origin *items;
    int n;
};
int zinf_origins_add(struct zinf_origins *origins, const char *option, const char *path);
void zinf_origins_free(struct zinf_origins *origins);
enum zinf_written {
    ZINF_WRITTEN_FILE,   /* the path itself is overwritten in place */
    ZINF_WRITTEN_FOLDER, /* files in the folder are written, and others in it stay */
    ZINF_WRITTEN_WHOLE,  /* the folder is replaced or removed with everything in it */
};
/* Checks an output, which need not exist yet, against all inputs and the files of input folders. */
int zinf_apart_check(const char *option, const char *path, enum zinf_written how,
                     const struct zinf_origins *origins);
/* -ELOOP: path is a symbolic link, which this program does not make. */
int zinf_apart_no_link(const char *path);

#endif
