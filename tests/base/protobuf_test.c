/* protobuf: each kind of field, and messages that end too early or are none. */
#include "base/protobuf.h"

#include "tap.h"

static struct zinf_message of(const uint8_t *bytes, size_t n)
{
    return (struct zinf_message){bytes, bytes + n};
}

static void test_kinds(void)
{
    static const uint8_t bytes[] = {0x08, 0xac, 0x02,                     /* 1: 300 */
                                    0x12, 2,    'a',  'b',                /* 2: a text */
                                    0x1d, 1,    2,    3,   4,             /* 3: four bytes */
                                    0x21, 1,    2,    3,   4, 5, 6, 7, 8, /* 4: eight */
                                    0x82, 0x01, 0};                       /* 16: an empty text */
    struct zinf_message m = of(bytes, sizeof bytes);
    struct zinf_field f;
    CHECK(zinf_message_next(&m, &f) == 1 && f.number == 1 && f.value == 300 && !f.is_nested);
    CHECK(f.body.at == f.body.end);
    CHECK(zinf_message_next(&m, &f) == 1 && f.number == 2 && f.is_nested);
    CHECK(f.body.end - f.body.at == 2 && f.body.at[1] == 'b');
    CHECK(zinf_message_next(&m, &f) == 1 && f.number == 3 && f.body.end - f.body.at == 4);
    CHECK(!f.is_nested);
    CHECK(zinf_message_next(&m, &f) == 1 && f.number == 4 && f.body.end - f.body.at == 8);
    CHECK(zinf_message_next(&m, &f) == 1 && f.number == 16 && f.body.at == f.body.end);
    CHECK(f.is_nested && zinf_message_next(&m, &f) == 0);
}

static void test_malformed(void)
{
    static const struct {
        uint8_t bytes[12];
        size_t n;
    } cases[] = {
        {{0x08}, 1},              /* no number */
        {{0x08, 0x80}, 2},        /* half of one */
        {{0x12, 3, 'a', 'b'}, 4}, /* a text that is longer than the message */
        {{0x1d, 1, 2, 3}, 4},     /* three of four bytes */
        {{0x00, 1}, 2},           /* field 0 */
        {{0x0b}, 1},              /* a group */
        {{0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zinf_message m = of(cases[i].bytes, cases[i].n);
        struct zinf_field f;
        CHECKF(zinf_message_next(&m, &f) == -1, "case %zu", i);
    }
}

int main(void)
{
    TAP_RUN(test_kinds);
    TAP_RUN(test_malformed);
    return tap_done();
}
