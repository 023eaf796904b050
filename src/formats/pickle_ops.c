/*
 * pickle_ops: the opcodes (Python's pickletools describes them). A table has a function for each
 * that torch.save writes with protocol 2; all others are refused.
 */
#include "formats/pickle_machine.h"

/* ---- the bytes ---- */

static int take(struct machine *m, uint64_t n, const uint8_t **out)
{
    if (n > m->bytes - m->at)
        return machine_fail(m, "an operation is cut off");
    *out = m->data + m->at;
    m->at += n;
    return 0;
}

/* A little-endian integer of up to 8 bytes. */
static int take_integer(struct machine *m, unsigned n, uint64_t *out)
{
    const uint8_t *from = NULL;
    int code = take(m, n, &from);
    *out = 0;
    for (unsigned i = n; !code && i-- > 0;)
        *out = *out << 8 | from[i];
    return code;
}

static int take_line(struct machine *m, struct zinf_pickled_text *out)
{
    const uint8_t *from = m->data + m->at, *end = memchr(from, '\n', m->bytes - m->at);
    if (!end)
        return machine_fail(m, "a name is cut off");
    *out = (struct zinf_pickled_text){(const char *)from, (uint32_t)(end - from)};
    m->at += (uint64_t)(end - from) + 1;
    return 0;
}

/* ---- constants ---- */

static int op_protocol(struct machine *m, unsigned wanted)
{
    uint64_t version;
    int code = take_integer(m, 1, &version);
    if (code || version == wanted)
        return code;
    return zinf_fail(-ENOTSUP,
                     "%s: its pickle has protocol %llu; save it again with torch.save's own, %u",
                     m->what, (unsigned long long)version, wanted);
}

/* Without bytes of its own: None, an empty list, an empty dictionary. */
static int op_plain(struct machine *m, unsigned kind)
{
    return machine_push(m, (struct value){.kind = (enum value_kind)kind});
}

static int op_bool(struct machine *m, unsigned value)
{
    return machine_push(m, (struct value){.kind = VALUE_BOOL, .integer = value});
}

static int op_integer(struct machine *m, unsigned bytes)
{
    uint64_t value;
    int code = take_integer(m, bytes, &value);
    if (!code && bytes == 4) /* the only one with a sign */
        value = (uint64_t)(int64_t)(int32_t)(uint32_t)value;
    return code ? code
                : machine_push(m, (struct value){.kind = VALUE_INT, .integer = (int64_t)value});
}

/* Two's complement, as many bytes as it takes. */
static int op_long(struct machine *m, unsigned most)
{
    uint64_t n, value;
    int code = take_integer(m, 1, &n);
    if (!code && n > most)
        code = machine_fail(m, "there is a number of more than 64 bits");
    if (!code)
        code = take_integer(m, (unsigned)n, &value);
    if (code)
        return code;
    if (n && n < 8 && value >> (8 * n - 1))
        value |= UINT64_MAX << (8 * n);
    return machine_push(m, (struct value){.kind = VALUE_INT, .integer = (int64_t)value});
}

static int op_float(struct machine *m, unsigned bytes)
{
    uint64_t bits;
    int code = take_integer(m, bytes, &bits);
    struct value value = {.kind = VALUE_FLOAT};
    bits = __builtin_bswap64(bits); /* the only one that begins with its highest byte */
    memcpy(&value.number, &bits, sizeof bits);
    return code ? code : machine_push(m, value);
}

static int op_text(struct machine *m, unsigned bytes)
{
    uint64_t n;
    const uint8_t *from = NULL;
    int code = take_integer(m, bytes, &n);
    if (!code)
        code = take(m, n, &from);
    if (code)
        return code;
    return machine_push(
        m, (struct value){.kind = VALUE_TEXT, .text = {(uint32_t)(from - m->data), (uint32_t)n}});
}

/* ---- what has parts ---- */

/* The n topmost values become one. */
static int op_tuple(struct machine *m, unsigned n)
{
    struct value tuple = {.kind = VALUE_TUPLE, .tuple = {m->items.n, n}};
    int code = machine_need(m, n);
    for (uint32_t i = n; !code && i-- > 0;)
        code = machine_add_number(m, &m->items, machine_top(m, i));
    if (code)
        return code;
    m->stack.n -= n;
    return machine_push(m, tuple);
}

static int op_mark(struct machine *m, unsigned unused)
{
    (void)unused;
    return machine_add_number(m, &m->marks, m->stack.n);
}

static int add_pair(struct machine *m, struct value *dict, uint32_t key, uint32_t value)
{
    int code = 0;
    struct pair *pairs, *pair;
    if (!m->pairs.n && !machine_add(m, &m->pairs, sizeof *pair, &code)) /* number 0 is none */
        return code;
    pair = machine_add(m, &m->pairs, sizeof *pair, &code);
    if (!pair)
        return code;
    *pair = (struct pair){key, value, 0};
    pairs = m->pairs.items;
    if (dict->dict.first)
        pairs[dict->dict.last].next = m->pairs.n - 1;
    else
        dict->dict.first = m->pairs.n - 1;
    dict->dict.last = m->pairs.n - 1;
    return 0;
}

/* The n topmost values go to the end of the list below them. */
static int op_append(struct machine *m, unsigned n)
{
    int code = machine_need(m, n + 1);
    struct value *list = code ? NULL : machine_value(m, machine_top(m, n));
    if (!code && list->kind != VALUE_LIST)
        code = machine_fail(m, "something that is no list is appended to");
    for (uint32_t i = n; !code && i-- > 0;)
        code = add_pair(m, list, 0, machine_top(m, i));
    if (!code)
        m->stack.n -= n;
    return code;
}

/* The n topmost values are keys and values of the dictionary below them. */
static int op_set_items(struct machine *m, unsigned n)
{
    int code = machine_need(m, n + 1);
    struct value *dict = code ? NULL : machine_value(m, machine_top(m, n));
    if (!code && (n % 2 || dict->kind != VALUE_DICT))
        code = machine_fail(m, "something that is no dictionary is given items");
    for (uint32_t i = n; !code && i > 0; i -= 2)
        code = add_pair(m, dict, machine_top(m, i - 1), machine_top(m, i - 2));
    if (!code)
        m->stack.n -= n;
    return code;
}

/* The same three for all that is above the last mark. */
enum { MARKED_TUPLE, MARKED_APPEND, MARKED_SET_ITEMS };

static int op_marked(struct machine *m, unsigned which)
{
    static int (*const runs[])(struct machine * m, unsigned n) = {op_tuple, op_append,
                                                                  op_set_items};
    uint32_t n = 0;
    int code = machine_pop_mark(m, &n);
    return code ? code : runs[which](m, n);
}

/* ---- the memo ---- */

/* A pickler counts; a number that it did not reach would only be there to take memory. */
static int op_put(struct machine *m, unsigned bytes)
{
    uint64_t number;
    int code = take_integer(m, bytes, &number);
    if (!code)
        code = machine_need(m, 1);
    if (!code && number > m->memo.n)
        code = machine_fail(m, "the memo has a gap");
    if (code)
        return code;
    if (number == m->memo.n)
        return machine_add_number(m, &m->memo, machine_top(m, 0));
    ((uint32_t *)m->memo.items)[number] = machine_top(m, 0);
    return 0;
}

static int op_get(struct machine *m, unsigned bytes)
{
    uint64_t number;
    int code = take_integer(m, bytes, &number);
    if (!code && number >= m->memo.n)
        code = machine_fail(m, "the memo has no such entry");
    return code ? code
                : machine_add_number(m, &m->stack, ((const uint32_t *)m->memo.items)[number]);
}

/* ---- names ---- */

static int op_global(struct machine *m, unsigned unused)
{
    struct zinf_pickled_text module, name;
    (void)unused;
    int code = take_line(m, &module);
    if (!code)
        code = take_line(m, &name);
    int row = code ? code : machine_find_name(m, &module, &name);
    if (row < 0)
        return row;
    return machine_push(m, (struct value){.kind = VALUE_NAME, .index = (uint32_t)row});
}

static int op_call(struct machine *m, unsigned n)
{
    int code = machine_need(m, n);
    if (code)
        return code;
    struct value name = *machine_value(m, machine_top(m, 1));
    struct value arguments = *machine_value(m, machine_top(m, 0));
    if (name.kind != VALUE_NAME || arguments.kind != VALUE_TUPLE)
        return machine_fail(m, "something is called that is no function");
    m->stack.n -= n;
    return machine_call(m, name.index, &arguments);
}

static int op_storage(struct machine *m, unsigned n)
{
    int code = machine_need(m, n);
    if (code)
        return code;
    struct value id = *machine_value(m, machine_top(m, 0));
    m->stack.n -= n;
    return machine_take_storage(m, &id);
}

/* What torch attaches to a dictionary of tensors, "_metadata", says nothing of them. */
static int op_build(struct machine *m, unsigned n)
{
    int code = machine_need(m, n);
    if (code)
        return code;
    struct value *object = machine_value(m, machine_top(m, 1));
    const struct value *state = machine_value(m, machine_top(m, 0));
    if ((object->kind != VALUE_DICT && object->kind != VALUE_OBJECT) || state->kind != VALUE_DICT)
        return machine_fail(m, "something that is no dictionary is given attributes");
    if (object->kind == VALUE_OBJECT)
        object->dict = state->dict;
    m->stack.n--;
    return 0;
}

static int op_stop(struct machine *m, unsigned n)
{
    int code = machine_need(m, n);
    if (!code && (m->stack.n != n || m->marks.n))
        code = machine_fail(m, "the stack holds more than the result");
    if (!code)
        m->root = machine_top(m, 0);
    m->stopped = true;
    return code;
}

const struct operation machine_operations[256] = {
    [0x80] = {op_protocol, 2},
    ['N'] = {op_plain, VALUE_NONE},
    [']'] = {op_plain, VALUE_LIST},
    ['}'] = {op_plain, VALUE_DICT},
    [0x88] = {op_bool, true},
    [0x89] = {op_bool, false},
    ['K'] = {op_integer, 1},
    ['M'] = {op_integer, 2},
    ['J'] = {op_integer, 4},
    [0x8a] = {op_long, 8},
    ['G'] = {op_float, 8},
    ['X'] = {op_text, 4},
    [')'] = {op_tuple, 0},
    [0x85] = {op_tuple, 1},
    [0x86] = {op_tuple, 2},
    [0x87] = {op_tuple, 3},
    ['a'] = {op_append, 1},
    ['s'] = {op_set_items, 2},
    ['('] = {op_mark, 0},
    ['t'] = {op_marked, MARKED_TUPLE},
    ['e'] = {op_marked, MARKED_APPEND},
    ['u'] = {op_marked, MARKED_SET_ITEMS},
    ['q'] = {op_put, 1},
    ['r'] = {op_put, 4},
    ['h'] = {op_get, 1},
    ['j'] = {op_get, 4},
    ['c'] = {op_global, 0},
    ['R'] = {op_call, 2},
    [0x81] = {op_call, 2},
    ['Q'] = {op_storage, 1},
    ['b'] = {op_build, 2},
    ['.'] = {op_stop, 1},
};
