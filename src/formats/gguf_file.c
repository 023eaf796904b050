/* gguf_file: the header of a GGUF file, read through a small window, into keys and a table. */
#include "formats/gguf.h"
#include "formats/file_span.h"

#include <stdlib.h>
#include <unistd.h>

#define WINDOW_BYTES 65536
#define MOST_TEXT_BYTES ((uint64_t)64 << 20) /* of all keys and values together */
#define MOST_VALUES ((uint64_t)4 << 20)      /* so that a hostile header takes 400 MB at most */
#define MOST_TENSORS ((uint64_t)1 << 20)
#define MOST_DIMENSIONS 4 /* of llama.cpp's */

enum { TYPE_BOOL = 7, TYPE_TEXT = 8, TYPE_ARRAY = 9, TYPES = 13 };
static const uint8_t type_bytes[TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct cursor {
    const char *path;
    int fd, code; /* code: of the first failure, which all later calls leave alone */
    uint64_t file_bytes, at;
    uint8_t *window; /* [WINDOW_BYTES] of the file from start on */
    uint64_t start, n;
    uint64_t text_bytes, n_values; /* taken so far */
};

/* ---- the bytes ---- */

static void fail(struct cursor *c, const char *what)
{
    if (!c->code)
        c->code = zinf_fail(-EINVAL, "%s is damaged: %s at byte %llu; fetch the file again",
                            c->path, what, (unsigned long long)c->at);
}

/* Whether the file still has n bytes. */
static bool has(struct cursor *c, uint64_t n)
{
    if (!c->code && n > c->file_bytes - c->at)
        fail(c, "more is announced than the file has");
    return !c->code;
}

static void take(struct cursor *c, void *out, uint64_t n)
{
    memset(out, 0, n);
    if (!has(c, n))
        return;
    if (n > WINDOW_BYTES) {
        c->code = zinf_file_span_read(c->fd, c->path, out, n, c->at);
    } else if (c->at < c->start || c->at + n > c->start + c->n) {
        uint64_t left = c->file_bytes - c->at;
        c->start = c->at;
        c->n = left < WINDOW_BYTES ? left : WINDOW_BYTES;
        c->code = zinf_file_span_read(c->fd, c->path, c->window, c->n, c->start);
    }
    if (!c->code && n <= WINDOW_BYTES)
        memcpy(out, c->window + (c->at - c->start), n);
    c->at += n;
}

static uint64_t take_number(struct cursor *c, unsigned bytes)
{
    uint64_t value = 0;
    take(c, &value, bytes);
    return value;
}

/* On the heap; NULL after a failure. */
static char *take_text(struct cursor *c)
{
    uint64_t n = take_number(c, 8);
    if (!has(c, n))
        return NULL;
    c->text_bytes += n;
    if (c->text_bytes > MOST_TEXT_BYTES) {
        fail(c, "its keys have more than 64 MiB");
        return NULL;
    }
    char *text = malloc(n + 1);
    if (!text) {
        c->code = zinf_fail(-ENOMEM, "%s: no memory for its keys", c->path);
        return NULL;
    }
    take(c, text, n);
    text[n] = 0;
    if (!c->code && memchr(text, 0, n))
        fail(c, "a text has a zero in it");
    if (!c->code)
        return text;
    free(text);
    return NULL;
}

/* ---- keys ---- */

static double number_of(uint32_t type, uint64_t bits)
{
    float narrow;
    double wide;
    switch (type) {
    case 1:
        return (int8_t)bits;
    case 3:
        return (int16_t)bits;
    case 5:
        return (int32_t)bits;
    case 6:
        memcpy(&narrow, &bits, sizeof narrow);
        return (double)narrow;
    case 11:
        return (double)(int64_t)bits;
    case 12:
        memcpy(&wide, &bits, sizeof wide);
        return wide;
    default:
        return (double)bits;
    }
}

/* NULL after a failure. */
static cJSON *take_value(struct cursor *c, uint32_t type)
{
    cJSON *value = NULL;
    if (type >= TYPES || type == TYPE_ARRAY) {
        fail(c, "a value is of no known type");
        return NULL;
    }
    if (++c->n_values > MOST_VALUES) {
        fail(c, "it has more than 4 million values");
        return NULL;
    }
    if (type == TYPE_TEXT) {
        char *text = take_text(c);
        value = text ? cJSON_CreateString(text) : NULL;
        free(text);
    } else {
        uint64_t bits = take_number(c, type_bytes[type]);
        value = c->code             ? NULL
                : type == TYPE_BOOL ? cJSON_CreateBool(bits != 0)
                                    : cJSON_CreateNumber(number_of(type, bits));
    }
    if (!value && !c->code)
        c->code = zinf_fail(-ENOMEM, "%s: no memory for its keys", c->path);
    return value;
}

static cJSON *take_array(struct cursor *c)
{
    uint32_t type = (uint32_t)take_number(c, 4);
    uint64_t n = take_number(c, 8);
    cJSON *list = cJSON_CreateArray();
    if (!list && !c->code)
        c->code = zinf_fail(-ENOMEM, "%s: no memory for its keys", c->path);
    for (uint64_t i = 0; i < n && !c->code; i++) {
        cJSON *value = take_value(c, type);
        if (value)
            cJSON_AddItemToArray(list, value);
    }
    return list;
}

static void take_keys(struct cursor *c, uint64_t n, cJSON *keys)
{
    for (uint64_t i = 0; i < n && !c->code; i++) {
        char *key = take_text(c);
        uint32_t type = (uint32_t)take_number(c, 4);
        cJSON *value = c->code ? NULL : type == TYPE_ARRAY ? take_array(c) : take_value(c, type);
        if (value && (c->code || !cJSON_AddItemToObject(keys, key, value)))
            cJSON_Delete(value);
        free(key);
    }
}

/* ---- tensors ---- */

/* ggml's names of the types that are not read here, by their numbers. */
static const char *unknown_form(uint32_t form)
{
    static const char *const names[] = {
        [3] = "Q4_1",     [6] = "Q5_0",   [7] = "Q5_1",    [9] = "Q8_1",     [10] = "Q2_K",
        [11] = "Q3_K",    [13] = "Q5_K",  [15] = "Q8_K",   [16] = "IQ2_XXS", [17] = "IQ2_XS",
        [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",   [22] = "IQ2_S",
        [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",    [26] = "I32",     [27] = "I64",
        [28] = "F64",     [29] = "IQ1_M", [34] = "TQ1_0",  [35] = "TQ2_0",   [39] = "MXFP4",
    };
    const char *name = form < sizeof names / sizeof *names ? names[form] : NULL;
    return name ? name : "no known name";
}

static void take_shape(struct cursor *c, struct zinf_gguf_tensor *t)
{
    uint32_t rank = (uint32_t)take_number(c, 4);
    t->n_elems = 1;
    if (!c->code && (rank < 1 || rank > MOST_DIMENSIONS))
        fail(c, "a tensor has no shape");
    t->rank = c->code ? 0 : (int)rank;
    for (int i = t->rank - 1; i >= 0; i--) {
        uint64_t n = t->shape[i] = take_number(c, 8);
        if (!c->code && (!n || n > (UINT64_C(1) << 48) / t->n_elems))
            fail(c, "a tensor's shape is out of bounds");
        t->n_elems = c->code ? 1 : t->n_elems * n;
    }
}

static void take_tensor(struct cursor *c, struct zinf_gguf_tensor *t)
{
    char *name = take_text(c);
    size_t n = name ? strlen(name) : 0;
    if (name && (!n || n >= sizeof t->name))
        fail(c, "a tensor's name is out of bounds");
    else if (name)
        memcpy(t->name, name, n + 1);
    free(name);
    take_shape(c, t);
    uint32_t form = (uint32_t)take_number(c, 4);
    t->file_offset = take_number(c, 8);
    if (c->code)
        return;
    if (!zinf_gguf_form_known(form)) {
        c->code = zinf_fail(-ENOTSUP,
                            "%s: tensor %s is of type %s (%u), which is not read: use a file in "
                            "f32, f16, bf16, q8_0, q4_0 or q4_k_m",
                            c->path, t->name, unknown_form(form), form);
        return;
    }
    t->form = (enum zinf_gguf_form)form;
    if (t->shape[t->rank - 1] % zinf_gguf_block_elems(t->form))
        fail(c, "a tensor's rows are no whole blocks");
}

/* From offsets behind the header to places in the file. */
static void place(struct cursor *c, struct zinf_gguf_file *file, uint64_t alignment)
{
    uint64_t start = c->at + (alignment - c->at % alignment) % alignment;
    for (uint64_t i = 0; i < file->n_tensors && !c->code; i++) {
        struct zinf_gguf_tensor *t = &file->packed[i];
        uint64_t bytes = zinf_gguf_bytes(t->form, t->n_elems);
        if (start > c->file_bytes || t->file_offset > c->file_bytes - start ||
            bytes > c->file_bytes - start - t->file_offset)
            c->code = zinf_fail(-EINVAL, "%s: tensor %s lies outside of the file: fetch it again",
                                c->path, t->name);
        t->file_offset += start;
        t->view.packed = t;
        file->tensors[i] = (struct zinf_tensor_info){.name = t->name,
                                                     .dtype = ZINF_FILE_F32,
                                                     .rank = t->rank,
                                                     .n_elems = t->n_elems,
                                                     .bytes = t->n_elems * sizeof(float),
                                                     .file_offset = t->file_offset,
                                                     .view = &t->view};
        memcpy(file->tensors[i].shape, t->shape, sizeof t->shape);
    }
}

/* ---- the whole ---- */

bool zinf_gguf_is(const uint8_t first[8])
{
    return !memcmp(first, "GGUF", 4);
}

static void take_file(struct cursor *c, struct zinf_gguf_file *file)
{
    uint32_t version, magic = (uint32_t)take_number(c, 4);
    uint64_t n_tensors, n_keys;
    (void)magic; /* the caller has looked at it */
    version = (uint32_t)take_number(c, 4);
    n_tensors = take_number(c, 8);
    n_keys = take_number(c, 8);
    if (!c->code && version != 2 && version != 3) {
        c->code = zinf_fail(-ENOTSUP,
                            "%s is GGUF of version %u: only 2 and 3 in little endian "
                            "are read; convert the model again with llama.cpp",
                            c->path, version);
        return;
    }
    file->keys = cJSON_CreateObject();
    if (!file->keys && !c->code)
        c->code = zinf_fail(-ENOMEM, "%s: no memory for its keys", c->path);
    take_keys(c, n_keys, file->keys);
    /* A tensor takes 32 bytes of the table at least. */
    if (!c->code && (n_tensors > MOST_TENSORS || n_tensors > (c->file_bytes - c->at) / 32))
        fail(c, "more tensors are announced than the file has");
    if (c->code)
        return;
    file->packed = calloc(n_tensors + 1, sizeof *file->packed);
    file->tensors = calloc(n_tensors + 1, sizeof *file->tensors);
    if (!file->packed || !file->tensors)
        c->code = zinf_fail(-ENOMEM, "%s: no memory for %llu tensors", c->path,
                            (unsigned long long)n_tensors);
    for (; file->n_tensors < n_tensors && !c->code; file->n_tensors++)
        take_tensor(c, &file->packed[file->n_tensors]);
    const cJSON *said = cJSON_GetObjectItemCaseSensitive(file->keys, "general.alignment");
    double alignment = cJSON_IsNumber(said) ? said->valuedouble : 32;
    if (!c->code && !(alignment >= 1 && alignment <= 1 << 20))
        fail(c, "its alignment is out of bounds");
    if (!c->code)
        place(c, file, (uint64_t)alignment);
}

int zinf_gguf_file_init(struct zinf_gguf_file *out, const char *path, int fd, uint64_t file_bytes)
{
    struct cursor c = {.path = path, .fd = fd, .file_bytes = file_bytes};
    memset(out, 0, sizeof *out);
    c.window = malloc(WINDOW_BYTES);
    if (!c.window)
        return zinf_fail(-ENOMEM, "no memory to open %s", path);
    take_file(&c, out);
    free(c.window);
    return c.code;
}

void zinf_gguf_file_fini(struct zinf_gguf_file *file)
{
    cJSON_Delete(file->keys);
    for (uint64_t i = 0; file->packed && i < file->n_tensors; i++)
        free(file->packed[i].model_name);
    free(file->packed);
    free(file->tensors);
}

int zinf_gguf_read_keys(cJSON **out, const char *path)
{
    struct zinf_gguf_file file = {0};
    uint8_t first[8] = {0};
    uint64_t file_bytes;
    int fd = zinf_file_span_open(path, &file_bytes), code = fd < 0 ? fd : 0;
    if (!code && file_bytes >= sizeof first)
        code = zinf_file_span_read(fd, path, first, sizeof first, 0);
    if (!code && !zinf_gguf_is(first))
        code = zinf_fail(-EINVAL, "%s is no GGUF file: its first bytes say so", path);
    if (!code)
        code = zinf_gguf_file_init(&file, path, fd, file_bytes);
    if (!code) {
        *out = file.keys;
        file.keys = NULL;
    }
    zinf_gguf_file_fini(&file);
    if (fd >= 0)
        close(fd);
    return code;
}
