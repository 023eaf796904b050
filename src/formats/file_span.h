/* file_span: exactly n bytes from or to a place in a file, as pread and pwrite do not promise.
 * Internal to formats. Any thread. */
#ifndef ZINF_FILE_SPAN_H
#define ZINF_FILE_SPAN_H

#include "base/base.h"

/* A regular file opened for reading; *bytes is its size now. path names it in messages. */
int zinf_file_span_open(const char *path, uint64_t *bytes);
/* A short read is -EIO: the size was checked when the file was opened. */
int zinf_file_span_read(int fd, const char *path, void *out, uint64_t bytes, uint64_t offset);
/* On a full disk the message says how much room there is. */
int zinf_file_span_write(int fd, const char *path, const void *data, uint64_t bytes,
                         uint64_t offset);

#endif
