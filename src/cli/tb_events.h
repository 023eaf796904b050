/*
 * tb_events: event files as TensorBoard reads them: records of a length, its checksum, a message
 * and that one's checksum; a message is a protobuf Event. Only what curves need is written: the
 * version, and scalars as Summary.Value.simple_value.
 *
 * Format: TensorFlow, core/lib/io/record_writer.cc and util/event.proto. One thread a writer.
 */
#ifndef ZINF_CLI_TB_EVENTS_H
#define ZINF_CLI_TB_EVENTS_H

#include "base/base.h"

/* Records on their own, for tests: return the bytes written to out. */
#define TB_RECORD_BYTES 256
size_t tb_record_version(unsigned char out[TB_RECORD_BYTES], double wall_seconds);
/* A tag of at most 128 bytes. */
size_t tb_record_scalar(unsigned char out[TB_RECORD_BYTES], double wall_seconds, int64_t step,
                        const char *tag, float value);
uint32_t tb_crc32c(const void *data, size_t bytes);

struct tb_writer;
/* A new file events.out.tfevents.* in folder, which is made. wall_seconds: since 1970. */
int tb_writer_open(struct tb_writer **out, const char *folder, double wall_seconds);
/* Values that are not finite are left out: TensorBoard draws none. Flushed. */
int tb_writer_scalar(struct tb_writer *writer, double wall_seconds, int64_t step, const char *tag,
                     double value);
int tb_writer_close(struct tb_writer *writer); /* NULL is allowed */
double tb_wall_seconds(void);

#endif
