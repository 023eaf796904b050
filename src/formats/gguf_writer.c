/* gguf_writer: header, keys and declarations are put together in memory, numbers are streamed. */
#include "formats/formats.h"
#include "formats/stream_file.h"

#include <stdlib.h>

#define VERSION 3
#define ALIGNMENT 32
#define PACK_ELEMS ((uint64_t)1 << 18) /* at once */

/* Of values. */
enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_TEXT = 8, TYPE_ARRAY = 9 };

struct bytes {
    uint8_t *at;
    uint64_t n, capacity;
};
struct declared {
    enum zinf_gguf_form form;
    uint64_t n_elems, offset; /* offset: behind the header */
};
struct zinf_gguf_writer {
    char *path;
    struct bytes keys, tensors;
    uint64_t n_keys, n_tensors;
    struct declared *declared; /* [n_tensors] */
    bool failed;               /* no memory for one of these */
    struct zinf_stream_file file;
    bool open;
    uint64_t header_bytes, data_bytes;
    uint64_t next, n_given; /* the tensor that is written, and its numbers that are */
    uint8_t *packed;        /* [PACK_ELEMS] as stored */
};

int zinf_gguf_writer_create(struct zinf_gguf_writer **out, const char *path)
{
    struct zinf_gguf_writer *w = calloc(1, sizeof *w);
    if (w) {
        w->path = strdup(path);
        w->packed = malloc(PACK_ELEMS * sizeof(float));
    }
    if (!w || !w->path || !w->packed) {
        zinf_gguf_writer_destroy(w);
        return zinf_fail(-ENOMEM, "no memory to write %s", path);
    }
    *out = w;
    return 0;
}

void zinf_gguf_writer_destroy(struct zinf_gguf_writer *w)
{
    if (!w)
        return;
    if (w->open)
        zinf_stream_file_discard(&w->file);
    free(w->keys.at);
    free(w->tensors.at);
    free(w->declared);
    free(w->packed);
    free(w->path);
    free(w);
}

/* ---- the header ---- */

static void put(struct zinf_gguf_writer *w, struct bytes *to, const void *data, uint64_t n)
{
    if (to->capacity - to->n < n && !w->failed) {
        uint64_t capacity = 2 * to->capacity + n + 4096;
        uint8_t *at = realloc(to->at, capacity);
        w->failed = !at;
        if (at) {
            to->at = at;
            to->capacity = capacity;
        }
    }
    if (w->failed || !n)
        return;
    memcpy(to->at + to->n, data, n);
    to->n += n;
}

static void put_u32(struct zinf_gguf_writer *w, struct bytes *to, uint32_t value)
{
    put(w, to, &value, sizeof value);
}

static void put_u64(struct zinf_gguf_writer *w, struct bytes *to, uint64_t value)
{
    put(w, to, &value, sizeof value);
}

static void put_text(struct zinf_gguf_writer *w, struct bytes *to, const char *text)
{
    put_u64(w, to, strlen(text));
    put(w, to, text, strlen(text));
}

static void put_key(struct zinf_gguf_writer *w, const char *key, uint32_t type)
{
    put_text(w, &w->keys, key);
    put_u32(w, &w->keys, type);
    w->n_keys++;
}

void zinf_gguf_text(struct zinf_gguf_writer *w, const char *key, const char *text)
{
    put_key(w, key, TYPE_TEXT);
    put_text(w, &w->keys, text);
}

void zinf_gguf_u32(struct zinf_gguf_writer *w, const char *key, uint32_t value)
{
    put_key(w, key, TYPE_U32);
    put_u32(w, &w->keys, value);
}

void zinf_gguf_f32(struct zinf_gguf_writer *w, const char *key, double value)
{
    float rounded = (float)value;
    put_key(w, key, TYPE_F32);
    put(w, &w->keys, &rounded, sizeof rounded);
}

void zinf_gguf_bool(struct zinf_gguf_writer *w, const char *key, bool value)
{
    uint8_t byte = value;
    put_key(w, key, TYPE_BOOL);
    put(w, &w->keys, &byte, sizeof byte);
}

static void put_array(struct zinf_gguf_writer *w, const char *key, uint32_t type, uint64_t n)
{
    put_key(w, key, TYPE_ARRAY);
    put_u32(w, &w->keys, type);
    put_u64(w, &w->keys, n);
}

void zinf_gguf_texts(struct zinf_gguf_writer *w, const char *key, char *const *texts, uint64_t n)
{
    put_array(w, key, TYPE_TEXT, n);
    for (uint64_t i = 0; i < n; i++)
        put_text(w, &w->keys, texts[i]);
}

void zinf_gguf_f32s(struct zinf_gguf_writer *w, const char *key, const float *values, uint64_t n)
{
    put_array(w, key, TYPE_F32, n);
    put(w, &w->keys, values, n * sizeof *values);
}

void zinf_gguf_i32s(struct zinf_gguf_writer *w, const char *key, const int32_t *values, uint64_t n)
{
    put_array(w, key, TYPE_I32, n);
    put(w, &w->keys, values, n * sizeof *values);
}

int zinf_gguf_declare(struct zinf_gguf_writer *w, const char *name, enum zinf_gguf_form form,
                      int rank, const uint64_t *shape)
{
    struct declared *grown = realloc(w->declared, (w->n_tensors + 1) * sizeof *grown);
    uint64_t n = 1;
    if (!grown)
        return zinf_fail(-ENOMEM, "no memory to write %s", w->path);
    w->declared = grown;
    for (int i = 0; i < rank; i++)
        n *= shape[i];
    if (rank < 1 || shape[rank - 1] % zinf_gguf_block_elems(form))
        return zinf_fail(-EINVAL, "%s: rows of %s are not whole blocks", w->path, name);
    w->declared[w->n_tensors++] = (struct declared){form, n, w->data_bytes};
    put_text(w, &w->tensors, name);
    put_u32(w, &w->tensors, (uint32_t)rank);
    for (int i = rank; i-- > 0;)
        put_u64(w, &w->tensors, shape[i]);
    put_u32(w, &w->tensors, (uint32_t)form);
    put_u64(w, &w->tensors, w->data_bytes);
    w->data_bytes += zinf_align_up(zinf_gguf_bytes(form, n), ALIGNMENT);
    return 0;
}

/* ---- the file ---- */

static int write_zeros(struct zinf_gguf_writer *w, uint64_t from, uint64_t to)
{
    static const char zeros[ALIGNMENT];
    return from < to ? zinf_stream_file_write(&w->file, zeros, to - from, from) : 0;
}

int zinf_gguf_begin(struct zinf_gguf_writer *w)
{
    struct bytes head = {0};
    put(w, &head, "GGUF", 4);
    put_u32(w, &head, VERSION);
    put_u64(w, &head, w->n_tensors);
    put_u64(w, &head, w->n_keys);
    put(w, &head, w->keys.at, w->keys.n);
    put(w, &head, w->tensors.at, w->tensors.n);
    w->header_bytes = zinf_align_up(head.n, ALIGNMENT);
    int code = w->failed ? zinf_fail(-ENOMEM, "no memory for the keys of %s", w->path) : 0;
    if (!code)
        code = zinf_stream_file_init(&w->file, w->path, w->header_bytes + w->data_bytes);
    w->open = !code;
    if (!code)
        code = zinf_stream_file_write(&w->file, head.at, head.n, 0);
    if (!code)
        code = write_zeros(w, head.n, w->header_bytes);
    free(head.at);
    return code;
}

/* The present tensor has all its numbers. */
static int end_tensor(struct zinf_gguf_writer *w)
{
    const struct declared *d = &w->declared[w->next++];
    uint64_t end = w->header_bytes + d->offset + zinf_gguf_bytes(d->form, d->n_elems);
    w->n_given = 0;
    return write_zeros(w, end, zinf_align_up(end, ALIGNMENT));
}

int zinf_gguf_append(struct zinf_gguf_writer *w, const float *values, uint64_t n)
{
    const struct declared *d = &w->declared[w->next];
    int code = 0;
    if (w->next == w->n_tensors || n > d->n_elems - w->n_given ||
        n % zinf_gguf_block_elems(d->form))
        return zinf_fail(-EINVAL, "%s: numbers of no tensor are written", w->path);
    for (uint64_t at = 0; !code && at < n; at += PACK_ELEMS) {
        uint64_t left = n - at, count = left < PACK_ELEMS ? left : PACK_ELEMS;
        zinf_gguf_pack(d->form, values + at, count, w->packed);
        code = zinf_stream_file_write(&w->file, w->packed, zinf_gguf_bytes(d->form, count),
                                      w->header_bytes + d->offset +
                                          zinf_gguf_bytes(d->form, w->n_given));
        w->n_given += count;
    }
    return code || w->n_given < d->n_elems ? code : end_tensor(w);
}

int zinf_gguf_finish(struct zinf_gguf_writer *w)
{
    uint64_t sum;
    if (w->next != w->n_tensors)
        return zinf_fail(-EINVAL, "%s: not all numbers were given", w->path);
    int code = zinf_stream_file_sync(&w->file, &sum);
    if (!code)
        code = zinf_stream_file_publish(&w->file);
    w->open = code != 0;
    return code;
}
