/* file_span: reads or writes exactly n bytes at a place of a file, which pread and pwrite do not
 * promise. Internal to formats. Any thread. */
#ifndef ZINF_FILE_SPAN_H
#define ZINF_FILE_SPAN_H

#include "base/base.h"

/* Opens a regular file for reading and sets *bytes to its size. path is for messages. */
int zinf_file_span_open(const char *path, uint64_t *bytes);
/* -EIO: the file has become shorter. */
int zinf_file_span_read(int fd, const char *path, void *out, uint64_t bytes, uint64_t offset);
/* If the drive is full, the message says how much space there is. */
int zinf_file_span_write(int fd, const char *path, const void *data, uint64_t bytes,
                         uint64_t offset);

#endif
