/* protobuf: see the header. Groups, which nobody writes, are malformed. */
#include "base/protobuf.h"

#define MOST_NUMBER (1u << 29)

enum { NUMBER, EIGHT_BYTES, NESTED, FOUR_BYTES = 5 };

static bool read_varint(struct zinf_message *m, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        uint8_t byte = *m->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

int zinf_message_next(struct zinf_message *m, struct zinf_field *out)
{
    uint64_t tag, n = 0;
    if (m->at == m->end)
        return 0;
    if (!read_varint(m, &tag) || !(tag >> 3) || tag >> 3 > MOST_NUMBER)
        return -1;
    const unsigned kind = tag & 7;
    *out = (struct zinf_field){.number = (int)(tag >> 3), .is_nested = kind == NESTED};
    if (kind == NUMBER || kind == NESTED) {
        if (!read_varint(m, kind == NESTED ? &n : &out->value))
            return -1;
    } else if (kind == EIGHT_BYTES || kind == FOUR_BYTES) {
        n = kind == EIGHT_BYTES ? 8 : 4;
    } else {
        return -1;
    }
    if (n > (uint64_t)(m->end - m->at))
        return -1;
    out->body = (struct zinf_message){m->at, m->at + n};
    m->at += n;
    return 1;
}
