/*
 * protobuf: reads the fields of a protocol buffer one after another, as numbers and types. The
 * reader knows what they mean, and which fields are messages themselves.
 */
#ifndef ZINF_BASE_PROTOBUF_H
#define ZINF_BASE_PROTOBUF_H

#include <stdbool.h>
#include <stdint.h>

struct zinf_message {
    const uint8_t *at, *end;
};
struct zinf_field {
    int number;
    bool is_nested;           /* the field has a length: it is bytes, a text or a message */
    struct zinf_message body; /* the bytes of the field; empty for a number of variable length */
    uint64_t value;           /* the number of variable length */
};
/* Reads the next field. 1: there was one; 0: the message has ended; -1: it is malformed. */
int zinf_message_next(struct zinf_message *m, struct zinf_field *out);

#endif
