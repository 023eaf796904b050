/*
 * gguf_values: the numbers of a GGUF file as those of a model's tensors, by ranges: stored blocks
 * are unpacked as they are read, and what lies in another order is put back.
 */
#include "formats/gguf.h"
#include "formats/file_span.h"

#include <math.h>
#include <stdlib.h>

#define CHUNK_ELEMS ((uint64_t)1 << 18) /* unpacked at once; whole blocks of every form */

/* ---- the index ---- */

static int bad_entry(const char *path, const char *name)
{
    return zinf_fail(-EINVAL, "%s: the entry of tensor '%.200s' does not fit its GGUF file", path,
                     name);
}

static int read_order(const cJSON *entry, struct zinf_gguf_tensor *t)
{
    const cJSON *heads = cJSON_GetObjectItemCaseSensitive(entry, "head_rows");
    const cJSON *add = cJSON_GetObjectItemCaseSensitive(entry, "add");
    const char *order = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "order"));
    double rows = cJSON_IsNumber(heads) ? heads->valuedouble : 0;
    t->add = cJSON_IsNumber(add) ? (float)add->valuedouble : 0;
    if (order && !strcmp(order, "pairs")) {
        if (!(rows >= 2 && rows <= (double)t->shape[0]) || fmod(rows, 2) != 0 ||
            t->shape[0] % (uint64_t)rows || t->rank > 2 ||
            (t->rank == 1 && zinf_gguf_block_elems(t->form) != 1))
            return -EINVAL;
        t->head_rows = (uint64_t)rows;
        t->order = ZINF_GGUF_PAIRS;
    } else if (order && !strcmp(order, "turned")) {
        t->order = ZINF_GGUF_TURNED;
        return t->rank == 2 ? 0 : -EINVAL;
    } else if (order && !strcmp(order, "deep")) {
        t->order = ZINF_GGUF_DEEP;
        return t->rank == 2 ? 0 : -EINVAL;
    } else if (order) {
        return -EINVAL;
    }
    return 0;
}

static int apply_entry(const struct zinf_gguf_file *file, const cJSON *entry, const char *path,
                       struct zinf_tensor_info *out)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "tensor"));
    struct zinf_gguf_tensor *t = NULL;
    for (uint64_t i = 0; name && !t && i < file->n_tensors; i++)
        if (!strcmp(file->packed[i].name, name))
            t = &file->packed[i];
    if (!t || t->model_name || read_order(entry, t))
        return bad_entry(path, entry->string);
    t->model_name = strdup(entry->string);
    if (!t->model_name)
        return zinf_fail(-ENOMEM, "no memory for the names of %s", path);
    *out = file->tensors[t - file->packed];
    out->name = t->model_name;
    if (t->order == ZINF_GGUF_TURNED) {
        out->shape[0] = t->shape[1];
        out->shape[1] = t->shape[0];
    } else if (t->order == ZINF_GGUF_DEEP) {
        out->rank = 3;
        out->shape[1] = 1;
        out->shape[2] = t->shape[1];
    }
    return 0;
}

int zinf_gguf_apply_index(const struct zinf_gguf_file *file, const cJSON *index, const char *path,
                          struct zinf_tensor_info *list, uint64_t *count)
{
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map"), *entry;
    int code = cJSON_IsObject(map) ? 0 : zinf_fail(-EINVAL, "%s has no weight_map", path);
    uint64_t n = 0;
    cJSON_ArrayForEach(entry, map)
    {
        if (!code && n == file->n_tensors)
            code = bad_entry(path, entry->string);
        if (!code)
            code = apply_entry(file, entry, path, &list[n]);
        n += !code;
    }
    *count = n;
    return code;
}

/* ---- numbers ---- */

struct reading {
    int fd;
    const char *path;
    const struct zinf_gguf_tensor *t;
    uint8_t *stored; /* of CHUNK_ELEMS */
    float *unpacked; /* the same */
};

/* Elements in the order of the file. */
static int read_plain(const struct reading *r, uint64_t first, uint64_t n, float *out)
{
    const uint64_t block = zinf_gguf_block_elems(r->t->form);
    int code = 0;
    while (n && !code) {
        uint64_t begin = first - first % block, skipped = first - begin;
        uint64_t wanted = (skipped + n + block - 1) / block * block;
        uint64_t elems = wanted < CHUNK_ELEMS ? wanted : CHUNK_ELEMS;
        uint64_t here = elems - skipped < n ? elems - skipped : n;
        code = zinf_file_span_read(r->fd, r->path, r->stored, zinf_gguf_bytes(r->t->form, elems),
                                   r->t->file_offset + zinf_gguf_bytes(r->t->form, begin));
        if (code)
            break;
        zinf_gguf_unpack(r->t->form, r->stored, elems, r->unpacked);
        memcpy(out, r->unpacked + skipped, here * sizeof *out);
        first += here;
        out += here;
        n -= here;
    }
    return code;
}

static int read_pairs(const struct reading *r, uint64_t first, uint64_t n, float *out)
{
    const uint64_t width = r->t->n_elems / r->t->shape[0], head = r->t->head_rows;
    int code = 0;
    while (n && !code) {
        uint64_t row = first / width, column = first % width, in_head = row % head;
        uint64_t place =
            row - in_head + (in_head < head / 2 ? 2 * in_head : 2 * (in_head - head / 2) + 1);
        uint64_t here = width - column < n ? width - column : n;
        code = read_plain(r, place * width + column, here, out);
        first += here;
        out += here;
        n -= here;
    }
    return code;
}

/* Rows of the model's matrix are columns of the stored one: of each stored row, the blocks that
 * hold these are unpacked. */
static int read_turned(const struct reading *r, uint64_t first, uint64_t n, float *out)
{
    const struct zinf_gguf_tensor *t = r->t;
    const uint64_t columns = t->shape[0], width = t->shape[1];
    const uint64_t top = first / columns, bottom = (first + n - 1) / columns + 1;
    float *part = malloc((bottom - top) * sizeof *part);
    int code = part ? 0 : zinf_fail(-ENOMEM, "no memory to read %s", r->path);
    for (uint64_t c = 0; c < columns && !code; c++) {
        code = read_plain(r, c * width + top, bottom - top, part);
        for (uint64_t row = top; row < bottom && !code; row++) {
            uint64_t at = row * columns + c;
            if (at >= first && at - first < n)
                out[at - first] = part[row - top];
        }
    }
    free(part);
    return code;
}

int zinf_gguf_tensor_read(int fd, const char *path, const struct zinf_gguf_tensor *t,
                          uint64_t first, uint64_t n, float *out)
{
    struct reading r = {.fd = fd, .path = path, .t = t};
    int code;
    if (!n)
        return 0;
    r.stored = malloc(CHUNK_ELEMS * sizeof(float));
    r.unpacked = malloc(CHUNK_ELEMS * sizeof(float));
    if (!r.stored || !r.unpacked)
        code = zinf_fail(-ENOMEM, "no memory to read %s", path);
    else if (t->order == ZINF_GGUF_PAIRS)
        code = read_pairs(&r, first, n, out);
    else if (t->order == ZINF_GGUF_TURNED)
        code = read_turned(&r, first, n, out);
    else
        code = read_plain(&r, first, n, out);
    for (uint64_t i = 0; !code && t->add != 0 && i < n; i++)
        out[i] += t->add;
    free(r.stored);
    free(r.unpacked);
    return code;
}
