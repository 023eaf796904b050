/* module: a module's text cut into entries, and their parameters; the rest waits for a launch. */
#include "code.h"
#include "shadow.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *find_text(const char *from, const char *end, const char *what)
{
    return from && from < end ? memmem(from, (size_t)(end - from), what, strlen(what)) : NULL;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static char *copy_name(const char *at)
{
    size_t n = 0;
    while (is_name(at[n]))
        n++;
    return strndup(at, n);
}

static const char *skip_blanks(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

/* ".param .align 8 .b8 NAME[88]" or ".param .u64 NAME", up to a ',' or the end. */
static bool add_param(struct ptx_kernel *k, const char *at, const char *end)
{
    unsigned align = 1, bytes = 0;
    const char *name = NULL, *align_at = find_text(at, end, ".align");
    const char *bracket = memchr(at, '[', (size_t)(end - at));
    if (align_at)
        align = (unsigned)strtoul(align_at + 6, NULL, 10);
    for (const char *word = at; word < end;) {
        word = skip_blanks(word);
        if (word >= end)
            break;
        size_t n = strcspn(word, " \t\n,[");
        enum ptx_type type = *word == '.' ? ptx_type_of(word + 1, n - 1) : PTX_NO_TYPE;
        if (type)
            bytes = ptx_type_bytes(type);
        else if (is_name(*word) && !isdigit((unsigned char)*word))
            name = word;
        word += n ? n : 1;
    }
    if (!align_at)
        align = bytes;
    if (bracket)
        bytes = (unsigned)strtoul(bracket + 1, NULL, 10) * bytes;
    size_t n = (size_t)k->n_params + 1;
    k->param_names = realloc(k->param_names, n * sizeof *k->param_names);
    k->param_offsets = realloc(k->param_offsets, n * sizeof *k->param_offsets);
    k->param_sizes = realloc(k->param_sizes, n * sizeof *k->param_sizes);
    if (!name || !bytes || !align)
        return false;
    k->param_bytes = (k->param_bytes + align - 1) / align * align;
    k->param_names[k->n_params] = copy_name(name);
    k->param_offsets[k->n_params] = k->param_bytes;
    k->param_sizes[k->n_params++] = bytes;
    k->param_bytes += bytes;
    return true;
}

static void add_params(struct ptx_kernel *k, const char *open, const char *close)
{
    for (const char *at = open; at < close;) {
        const char *comma = memchr(at, ',', (size_t)(close - at));
        const char *end = comma ? comma : close;
        if (find_text(at, end, ".param"))
            k->good = add_param(k, find_text(at, end, ".param") + 6, end) && k->good;
        at = end + 1;
    }
}

/* The '}' that closes the body. */
static const char *end_of_body(const char *body, const char *end)
{
    int depth = 1;
    for (const char *at = body; at < end; at++) {
        depth += *at == '{';
        depth -= *at == '}';
        if (!depth)
            return at;
    }
    return NULL;
}

static const char *add_kernel(struct ptx_module *m, const char *at, const char *end)
{
    struct ptx_kernel *k = calloc(1, sizeof *k);
    const char *limit;
    at = skip_blanks(at);
    if (!k)
        return NULL;
    k->module = m;
    k->name = copy_name(at);
    k->good = true;
    const char *open = memchr(at, '(', (size_t)(end - at));
    const char *brace = memchr(at, '{', (size_t)(end - at));
    k->body = brace ? brace + 1 : end;
    k->header = at;
    k->end = brace ? end_of_body(k->body, end) : NULL;
    const char *close = open ? memchr(open, ')', (size_t)(end - open)) : NULL;
    if (open && close && close < k->body)
        add_params(k, open + 1, close);
    k->most_threads = PTX_MOST_THREADS;
    limit = find_text(at, k->body, ".maxntid");
    if (limit) {
        unsigned x = 1, y = 1, z = 1;
        sscanf(limit, ".maxntid %u, %u, %u", &x, &y, &z);
        k->most_threads = x * y * z;
    }
    k->next = m->kernels;
    m->kernels = k;
    return k->end;
}

struct ptx_module *ptx_module_create(const char *text, size_t n)
{
    struct ptx_module *m = calloc(1, sizeof *m);
    const char *end = text + n, *at;
    if (!m)
        return NULL;
    m->text = text;
    m->n = n;
    at = find_text(text, end, ".extern .shared");
    if (at && (at = find_text(at, end, ".b8 ")))
        m->dynamic = copy_name(skip_blanks(at + 4));
    for (at = find_text(text, end, ".entry "); at; at = find_text(at, end, ".entry "))
        if (!(at = add_kernel(m, at + strlen(".entry "), end)))
            break;
    return m;
}

void ptx_module_destroy(struct ptx_module *module)
{
    while (module && module->kernels) {
        struct ptx_kernel *k = module->kernels;
        module->kernels = k->next;
        for (int i = 0; i < k->n_params; i++)
            free(k->param_names[i]);
        free(k->param_names);
        free(k->param_offsets);
        free(k->param_sizes);
        free(k->name);
        free(k->code);
        free(k->constants);
        free(k);
    }
    if (module)
        free(module->dynamic);
    free(module);
}

/* The numbers between braces, which nvcc writes as bytes. */
static struct ptx_constant_array *read_array(const char *name, size_t length, const char *at)
{
    const size_t n = strtoul(at, NULL, 10);
    const char *brace = strchr(at, '{');
    struct ptx_constant_array *array = brace ? calloc(1, sizeof *array + n) : NULL;
    char *end;
    if (!array)
        return NULL;
    array->name = strndup(name, length);
    at = brace;
    for (size_t i = 0; i < n && (*at == '{' || *at == ','); i++, at = end)
        array->bytes[i] = (unsigned char)strtoul(at + 1, &end, 10);
    shadow_add(array->bytes, n);
    return array;
}

uint64_t ptx_constant_address(struct ptx_module *module, const char *name, size_t n)
{
    const char *end = module->text + module->n;
    struct ptx_constant_array *array = module->arrays;
    while (array && (strlen(array->name) != n || memcmp(array->name, name, n)))
        array = array->next;
    for (const char *at = find_text(module->text, end, "\n.global "); at && !array;
         at = find_text(at + 1, end, "\n.global ")) {
        const char *bracket = at + strcspn(at, "[;");
        if (*bracket == '[' && (size_t)(bracket - at) > n && !memcmp(bracket - n, name, n) &&
            bracket[-(ptrdiff_t)n - 1] == ' ')
            array = read_array(name, n, bracket + 1);
        if (array) {
            array->next = module->arrays;
            module->arrays = array;
        }
    }
    return array ? (uint64_t)(uintptr_t)array->bytes : 0;
}

struct ptx_kernel *ptx_find(struct ptx_module *module, const char *name)
{
    for (struct ptx_kernel *k = module->kernels; k; k = k->next)
        if (!strcmp(k->name, name))
            return k;
    return NULL;
}

/* Of the kernels of a module whose names contain a word. */
void ptx_add_counts(const struct ptx_module *module, const char *word, struct ptx_counts *counts);
void ptx_add_counts(const struct ptx_module *module, const char *word, struct ptx_counts *counts)
{
    for (const struct ptx_kernel *k = module->kernels; k; k = k->next)
        if (strstr(k->name, word)) {
            counts->instructions += k->counts.instructions;
            counts->branches += k->counts.branches;
            counts->products += k->counts.products;
            counts->barriers += k->counts.barriers;
            counts->launches += k->counts.launches;
            counts->read_bytes += k->counts.read_bytes;
            counts->written_bytes += k->counts.written_bytes;
        }
}

/* ---- types ---- */

static const struct {
    const char *name;
    uint8_t type, bytes;
} types[] = {
    {"pred", PTX_PRED, 1}, {"b8", PTX_U8, 1},     {"u8", PTX_U8, 1},      {"s8", PTX_S8, 1},
    {"b16", PTX_U16, 2},   {"u16", PTX_U16, 2},   {"s16", PTX_S16, 2},    {"f16", PTX_F16, 2},
    {"bf16", PTX_BF16, 2}, {"b32", PTX_U32, 4},   {"u32", PTX_U32, 4},    {"s32", PTX_S32, 4},
    {"f32", PTX_F32, 4},   {"b64", PTX_U64, 8},   {"u64", PTX_U64, 8},    {"s64", PTX_S64, 8},
    {"f64", PTX_F64, 8},   {"f16x2", PTX_U32, 4}, {"bf16x2", PTX_U32, 4},
};

enum ptx_type ptx_type_of(const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == n && !memcmp(types[i].name, word, n))
            return types[i].type;
    return PTX_NO_TYPE;
}

unsigned ptx_type_bytes(enum ptx_type type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type)
            return types[i].bytes;
    return 0;
}
