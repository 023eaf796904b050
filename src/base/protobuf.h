/*
 * protobuf: the fields of a protocol buffer, one after another. Numbers and types alone: what a
 * field means, and whether its bytes are a message themselves, the reader knows.
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
    bool is_nested;           /* its bytes have a length: a text or a message */
    struct zinf_message body; /* its bytes; none of a number of variable length */
    uint64_t value;           /* of such a number */
};
/* 1, 0 at the end, or -1 where the message is malformed. */
int zinf_message_next(struct zinf_message *m, struct zinf_field *out);

#endif
