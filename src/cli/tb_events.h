/*
 * tb_events: writes event files for TensorBoard. A record is a length, its checksum, a message (a
 * protobuf Event) and the message's checksum. Only the version and scalars
 * (Summary.Value.simple_value) are written.
 *
 * Format: TensorFlow, core/lib/io/record_writer.cc and util/event.proto. A writer belongs to one
 * thread.
 */
#ifndef ZINF_CLI_TB_EVENTS_H
#define ZINF_CLI_TB_EVENTS_H

#include "base/base.h"

/* Encode a record into out and return its bytes; for tests. */
#define TB_RECORD_BYTES 256
size_t tb_record_version(unsigned char out[TB_RECORD_BYTES], double wall_seconds);
/* A tag of at most 128 bytes. */
size_t tb_record_scalar(unsigned char out[TB_RECORD_BYTES], double wall_seconds, int64_t step,
                        const char *tag, float value);
uint32_t tb_crc32c(const void *data, size_t bytes);

struct tb_writer;
/* Creates events.out.tfevents.* in a folder, which is made if needed. wall_seconds: since 1970. */
int tb_writer_open(struct tb_writer **out, const char *folder, double wall_seconds);
/* Writes and flushes a value. Values that are not finite are left out, since TensorBoard does not
 * draw them. */
int tb_writer_scalar(struct tb_writer *writer, double wall_seconds, int64_t step, const char *tag,
                     double value);
int tb_writer_close(struct tb_writer *writer); /* NULL is allowed */
double tb_wall_seconds(void);

#endif
