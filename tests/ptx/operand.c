/* operand: what names stand for: registers by their rows, numbers, addresses, lists, labels. */
#include "builder.h"

#include "tests/cuda_standin/standin.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void builder_refuse(struct ptx_builder *b, const char *why)
{
    size_t n = b->statement ? strcspn(b->statement, ";\n") : 0;
    if (!b->failed)
        standin_break("kernel %s: %s: %.*s", b->kernel->name, why, (int)n,
                      b->statement ? b->statement : "");
    b->failed = true;
}

/* ---- rows ---- */

unsigned row_bytes(unsigned bytes)
{
    return bytes == 1 ? 64 : bytes * PTX_LANES;
}

void *builder_row(struct ptx_builder *b, unsigned bytes, int32_t *at)
{
    unsigned row = row_bytes(bytes);
    if (b->image_bytes + row > b->image_room) {
        b->image_room = 2 * b->image_room + 65536;
        b->image = realloc(b->image, b->image_room);
    }
    *at = (int32_t)b->image_bytes;
    b->image_bytes += row;
    return memset(b->image + *at, 0, row);
}

int32_t ptx_constant(struct ptx_builder *b, uint64_t bits, unsigned bytes)
{
    unsigned hash = (unsigned)((bits * 0x9e3779b97f4a7c15u >> 50) + bytes) % CONSTANTS;
    while (b->constants[hash].bytes &&
           (b->constants[hash].bits != bits || b->constants[hash].bytes != bytes))
        hash = (hash + 1) % CONSTANTS;
    if (!b->constants[hash].bytes) {
        void *row = builder_row(b, bytes, &b->constants[hash].at);
        b->constants[hash].bits = bits;
        b->constants[hash].bytes = bytes;
        if (bytes == 1)
            *(uint32_t *)row = bits ? ~0u : 0;
        for (int l = 0; bytes > 1 && l < PTX_LANES; l++)
            memcpy((char *)row + (unsigned)l * bytes, &bits, bytes);
    }
    return b->constants[hash].at;
}

int32_t ptx_source(struct ptx_builder *b, const struct ptx_operand *o, unsigned bytes)
{
    if (o->what == PTX_NUMBER || o->what == PTX_ADDRESS)
        return ptx_constant(b, (uint64_t)o->number & (~0ull >> (64 - 8 * bytes)), bytes);
    if (o->what != PTX_REGISTER || (o->bytes != bytes && bytes))
        return -1;
    return o->at;
}

/* ---- declarations ---- */

static void declare_one(struct ptx_builder *b, const char *name, unsigned bytes)
{
    struct registers *r = &b->registers[b->n_registers];
    const char *angle = strchr(name, '<');
    size_t n = angle ? (size_t)(angle - name) : strlen(name);
    if (b->n_registers == MOST_REGISTERS || n >= sizeof r->name) {
        builder_refuse(b, "too many or too long names of registers");
        return;
    }
    snprintf(r->name, sizeof r->name, "%.*s", (int)n, name);
    r->many = angle != NULL;
    r->n = angle ? (unsigned)strtoul(angle + 1, NULL, 10) : 1;
    r->bytes = (uint8_t)bytes;
    r->first = (int32_t)b->file_bytes;
    b->file_bytes += r->n * row_bytes(bytes);
    b->n_registers++;
}

static void declare_registers(struct ptx_builder *b, char *text)
{
    char *rest, *word = strtok_r(text, " \t\n,", &rest);
    enum ptx_type type = word ? ptx_type_of(word + 1, strlen(word + 1)) : PTX_NO_TYPE;
    if (!type)
        builder_refuse(b, "registers of an unknown type");
    while (!b->failed && (word = strtok_r(NULL, " \t\n,", &rest)))
        declare_one(b, word, ptx_type_bytes(type));
}

static void add_named(struct named **list, int *n, const char *name, size_t length, int64_t value)
{
    if (!(*n & (*n - 1)))
        *list = realloc(*list, (size_t)(*n ? 2 * *n : 1) * sizeof **list);
    (*list)[(*n)++] = (struct named){strndup(name, length), value};
}

/* ".shared .align 4 .b8 NAME[32]", or .local; offsets in the block's or the thread's memory. */
static void declare_array(struct ptx_builder *b, const char *text, unsigned *used)
{
    unsigned align = 1, n = 0;
    char type[8], name[400];
    if (sscanf(text, "%*s .align %u .%7[a-z0-9] %399[^[ ][%u]", &align, type, name, &n) != 4 ||
        !align) {
        builder_refuse(b, "an array of a form that is not known");
        return;
    }
    unsigned at = (*used + align - 1) / align * align;
    add_named(&b->symbols, &b->n_symbols, name, strlen(name), at);
    *used = at + n * ptx_type_bytes(ptx_type_of(type, strlen(type)));
}

/* ---- operands ---- */

bool builder_register(struct ptx_builder *b, const char *name, size_t n, struct ptx_operand *to)
{
    size_t stem = n;
    while (stem && isdigit((unsigned char)name[stem - 1]))
        stem--;
    for (int i = b->n_registers - 1; i >= 0; i--) {
        const struct registers *r = &b->registers[i];
        size_t length = strlen(r->name);
        unsigned number = r->many ? (unsigned)strtoul(name + stem, NULL, 10) : 0;
        if (length != (r->many ? stem : n) || memcmp(r->name, name, length) || number >= r->n)
            continue;
        to->what = PTX_REGISTER;
        to->bytes = r->bytes;
        to->at = IS_REGISTER | (int32_t)((unsigned)r->first + number * row_bytes(r->bytes));
        return true;
    }
    return false;
}

static bool find_special(const char *name, size_t n, struct ptx_operand *to)
{
    static const struct {
        const char *name;
        int at;
    } specials[] = {
        {"%tid.", PTX_TID}, {"%ntid.", PTX_NTID}, {"%ctaid.", PTX_CTAID}, {"%nctaid.", PTX_NCTAID}};
    to->what = PTX_REGISTER;
    to->bytes = 4;
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        if (n == strlen(specials[i].name) + 1 && !memcmp(name, specials[i].name, n - 1)) {
            to->at = (specials[i].at + (name[n - 1] - 'x')) * PTX_ROW;
            return true;
        }
    to->at = PTX_LANEID * PTX_ROW;
    return n == 7 && !memcmp(name, "%laneid", 7);
}

static bool find_symbol(struct ptx_builder *b, const char *name, size_t n, int64_t *value)
{
    const struct ptx_kernel *k = b->kernel;
    for (int i = 0; i < b->n_symbols; i++)
        if (strlen(b->symbols[i].name) == n && !memcmp(b->symbols[i].name, name, n)) {
            *value = b->symbols[i].value;
            return true;
        }
    for (int i = 0; i < k->n_params; i++)
        if (strlen(k->param_names[i]) == n && !memcmp(k->param_names[i], name, n)) {
            *value = k->param_offsets[i];
            return true;
        }
    /* Behind the static part, aligned for whatever it holds. */
    if (k->module->dynamic && strlen(k->module->dynamic) == n &&
        !memcmp(k->module->dynamic, name, n)) {
        *value = (k->shared_bytes + 15) / 16 * 16;
        return true;
    }
    *value = (int64_t)ptx_constant_address(k->module, name, n);
    return *value != 0;
}

static bool read_number(const char *at, size_t n, int64_t *to)
{
    char text[40], *end;
    if (n >= sizeof text)
        return false;
    memcpy(text, at, n);
    text[n] = 0;
    if (n > 2 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F' || text[1] == 'd'))
        *to = (int64_t)strtoull(text + 2, &end, 16);
    else if (text[0] == '-')
        *to = strtoll(text, &end, 0);
    else
        *to = (int64_t)strtoull(text, &end, 0);
    if (*end == 'U')
        end++;
    return n && !*end;
}

void builder_trim(const char **at, size_t *n)
{
    while (*n && isspace((unsigned char)**at))
        ++*at, --*n;
    while (*n && isspace((unsigned char)(*at)[*n - 1]))
        --*n;
}

static bool read_simple(struct ptx_builder *b, const char *at, size_t n, struct ptx_operand *to)
{
    builder_trim(&at, &n);
    to->second = -1;
    if (n && *at == '!') {
        to->negated = true;
        at++, n--;
    }
    if (n == 1 && *at == '_') {
        to->what = PTX_NOTHING;
        return true;
    }
    const char *bar = memchr(at, '|', n);
    if (bar) {
        struct ptx_operand second;
        if (!builder_register(b, bar + 1, n - (size_t)(bar + 1 - at), &second))
            return false;
        n = (size_t)(bar - at);
        if (!builder_register(b, at, n, to))
            return false;
        to->second = second.at;
        return true;
    }
    if (builder_register(b, at, n, to) || (n && *at == '%' && find_special(at, n, to)))
        return true;
    to->what = PTX_NUMBER;
    return read_number(at, n, &to->number) || find_symbol(b, at, n, &to->number);
}

/* [%rd1+8], [symbol+4], [%r1] */
static bool read_address(struct ptx_builder *b, const char *at, size_t n, struct ptx_operand *to)
{
    const char *plus = memchr(at, '+', n);
    size_t base = plus ? (size_t)(plus - at) : n;
    struct ptx_operand of;
    memset(&of, 0, sizeof of);
    int64_t more = 0;
    if (plus) {
        const char *number = plus + 1;
        size_t length = n - base - 1;
        builder_trim(&number, &length);
        if (!read_number(number, length, &more))
            return false;
    }
    if (!read_simple(b, at, base, &of))
        return false;
    to->what = PTX_ADDRESS;
    to->at = of.what == PTX_REGISTER ? of.at : -1;
    to->bytes = of.bytes;
    to->number = more + (of.what == PTX_NUMBER ? of.number : 0);
    return true;
}

static bool read_list(struct ptx_builder *b, const char *at, size_t n, struct ptx_operand *to)
{
    to->what = PTX_LIST;
    while (n && to->n < 8) {
        const char *comma = memchr(at, ',', n);
        size_t length = comma ? (size_t)(comma - at) : n;
        struct ptx_operand one;
        memset(&one, 0, sizeof one);
        if (!read_simple(b, at, length, &one))
            return false;
        if (one.what == PTX_REGISTER)
            to->list_bytes = one.bytes;
        /* A number among registers has their width, which the others give. */
        to->list[to->n++] =
            one.what == PTX_REGISTER ? one.at
            : one.what == PTX_NUMBER
                ? ptx_constant(b, (uint64_t)one.number, to->list_bytes ? to->list_bytes : 4)
                : -1;
        n -= length + (comma ? 1 : 0);
        at += length + (comma ? 1 : 0);
    }
    return true;
}

bool builder_operand(struct ptx_builder *b, const char *at, size_t n, struct ptx_operand *to)
{
    memset(to, 0, sizeof *to);
    to->second = -1;
    builder_trim(&at, &n);
    if (n >= 2 && *at == '{')
        return read_list(b, at + 1, n - 2, to);
    if (n >= 2 && *at == '[')
        return read_address(b, at + 1, n - 2, to);
    if (n && *at == '$') {
        to->what = PTX_LABEL;
        for (int i = 0; i < b->n_labels; i++)
            if (strlen(b->labels[i].name) == n && !memcmp(b->labels[i].name, at, n)) {
                to->number = b->labels[i].value;
                return true;
            }
        return false;
    }
    return read_simple(b, at, n, to);
}

void builder_add_label(struct ptx_builder *b, const char *name, size_t n, int64_t place)
{
    add_named(&b->labels, &b->n_labels, name, n, place);
}

void builder_declare(struct ptx_builder *b, char *text)
{
    if (!strncmp(text, ".reg", 4))
        declare_registers(b, text + 4);
    else if (!strncmp(text, ".shared", 7))
        declare_array(b, text, &b->kernel->shared_bytes);
    else if (!strncmp(text, ".local", 6))
        declare_array(b, text, &b->kernel->local_bytes);
    else if (strncmp(text, ".pragma", 7) && strncmp(text, ".loc", 4))
        builder_refuse(b, "a directive that is not known");
}

void builder_free(struct ptx_builder *b)
{
    for (int i = 0; i < b->n_labels; i++)
        free(b->labels[i].name);
    for (int i = 0; i < b->n_symbols; i++)
        free(b->symbols[i].name);
    free(b->labels);
    free(b->symbols);
    free(b);
}
