/*
 * tensors_reader: the tensors of one file or of all shards of a folder as one list. Data is read
 * with pread straight into the caller's memory, or through a block that stays in the cache when it
 * has to be converted.
 */
#include "formats/tensors_reader.h"
#include "formats/file_span.h"
#include "formats/tensors_view.h"

#include <fcntl.h>
#include <stdlib.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the formats are little endian, and data goes to the caller as it is stored"
#endif

#define BLOCK_BYTES (1u << 20) /* fits the second-level cache */
/* A read of this size or more asks the kernel for all of it, and for this much behind it, at once:
 * the kernel's own read-ahead of 128 KiB leaves a drive idle for most of the time. */
#define AHEAD_BYTES (1u << 20)

/* ---- looking up ---- */

int tensors_compare_names(const void *a, const void *b)
{
    const struct zinf_tensor_info *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

uint64_t zinf_tensors_count(const struct zinf_tensors *tensors)
{
    return tensors->count;
}

const struct zinf_tensor_info *zinf_tensors_at(const struct zinf_tensors *tensors, uint64_t index)
{
    return index < tensors->count ? &tensors->list[index] : NULL;
}

const struct zinf_tensor_info *zinf_tensors_find(const struct zinf_tensors *tensors,
                                                 const char *name)
{
    struct zinf_tensor_info wanted = {.name = name};
    const struct zinf_tensor_info *key = &wanted, **found;
    found = bsearch(&key, tensors->by_name, tensors->count, sizeof key, tensors_compare_names);
    return found ? *found : NULL;
}

const char *zinf_tensor_stored(const struct zinf_tensor_info *info, uint64_t *bytes)
{
    const struct zinf_gguf_tensor *packed = info->view ? info->view->packed : NULL;
    *bytes = packed ? zinf_gguf_bytes(packed->form, packed->n_elems) : info->bytes;
    return packed ? zinf_gguf_form_name(packed->form) : zinf_file_dtype_name(info->dtype);
}

const char *zinf_tensors_file_name(const struct zinf_tensors *tensors, uint32_t file)
{
    if (file >= tensors->n_files)
        return NULL;
    const char *slash = strrchr(tensors->files[file].path, '/');
    return slash ? slash + 1 : tensors->files[file].path;
}

uint32_t zinf_tensors_file_count(const struct zinf_tensors *tensors)
{
    return tensors->n_files;
}

const char *zinf_tensors_file_kind(const struct zinf_tensors *tensors)
{
    static const char *const names[] = {"safetensors", "PyTorch", "GGUF"};
    return tensors->deepspeed ? "DeepSpeed" : names[tensors->files[0].kind];
}

const char *zinf_tensors_metadata(const struct zinf_tensors *tensors, const char *key)
{
    return cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(tensors->files[0].header.metadata, key));
}

/* ---- reading ---- */

static int check_range(const struct zinf_tensor_info *info, uint64_t first, uint64_t n)
{
    if (first <= info->n_elems && n <= info->n_elems - first)
        return 0;
    return zinf_fail(-EINVAL,
                     "tensor '%s' has %llu elements; %llu from element %llu on were asked for",
                     info->name, (unsigned long long)info->n_elems, (unsigned long long)n,
                     (unsigned long long)first);
}

static int read_span(const struct tensors_file *file, uint64_t bytes, uint64_t offset, void *out)
{
    if (bytes >= AHEAD_BYTES)
        posix_fadvise(file->fd, (off_t)offset, (off_t)(bytes + AHEAD_BYTES), POSIX_FADV_WILLNEED);
    return zinf_file_span_read(file->fd, file->path, out, bytes, offset);
}

/* Of a tensor whose elements lie in several files. */
static int read_pieces(const struct zinf_tensors *tensors, const struct zinf_tensor_info *info,
                       uint64_t first, uint64_t n, uint8_t *out)
{
    uint64_t elem_bytes = zinf_file_dtype_bytes(info->dtype);
    const struct zinf_tensor_piece *piece = info->view->pieces;
    int code = 0;
    for (; !code && n; first = first > piece->n_elems ? first - piece->n_elems : 0, piece++) {
        if (first >= piece->n_elems)
            continue;
        uint64_t left = piece->n_elems - first, count = n < left ? n : left;
        code = read_span(&tensors->files[piece->file], count * elem_bytes,
                         piece->file_offset + first * elem_bytes, out);
        out += count * elem_bytes;
        n -= count;
        first = piece->n_elems;
    }
    return code;
}

int zinf_tensors_read(const struct zinf_tensors *tensors, const struct zinf_tensor_info *info,
                      uint64_t first, uint64_t n, void *out)
{
    const struct tensors_file *file = &tensors->files[info->file];
    uint64_t elem_bytes = zinf_file_dtype_bytes(info->dtype);
    uint64_t offset = info->file_offset + first * elem_bytes;
    int code = check_range(info, first, n);
    if (!code && info->view && info->view->pieces)
        code = read_pieces(tensors, info, first, n, out);
    else if (!code && info->view && info->view->packed)
        code = zinf_gguf_tensor_read(file->fd, file->path, info->view->packed, first, n, out);
    else if (!code && info->view)
        code = zinf_tensor_view_read(file->fd, file->path, info, first, n, out);
    else if (!code)
        code = read_span(file, n * elem_bytes, offset, out);
    if (!code && tensors->sums)
        tensors_sum_note(tensors, info, first, n, out);
    return code ? zinf_fail_in(code, "tensor '%s'", info->name) : 0;
}

static void convert_block(float *out, const void *block, enum zinf_file_dtype dtype, size_t n)
{
    const double *wide = block;
    enum zinf_dtype half = ZINF_DTYPE_F32;
    if (dtype != ZINF_FILE_F64) {
        zinf_file_dtype_to_dtype(dtype, &half);
        zinf_convert(out, ZINF_DTYPE_F32, block, half, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = (float)wide[i];
}

int zinf_tensors_read_f32(const struct zinf_tensors *tensors, const struct zinf_tensor_info *info,
                          uint64_t first, uint64_t n, float *out)
{
    if (info->dtype == ZINF_FILE_F32)
        return zinf_tensors_read(tensors, info, first, n, out);
    if (info->dtype != ZINF_FILE_F64 && info->dtype != ZINF_FILE_BF16 &&
        info->dtype != ZINF_FILE_F16)
        return zinf_fail(-ENOTSUP, "tensor '%s' of type %s cannot be read as numbers of fp32",
                         info->name, zinf_file_dtype_name(info->dtype));
    int code = check_range(info, first, n);
    if (code || !n)
        return code;
    uint64_t elem_bytes = zinf_file_dtype_bytes(info->dtype);
    uint64_t block_elems = BLOCK_BYTES / elem_bytes;
    if (block_elems > n)
        block_elems = n;
    void *block = malloc(block_elems * elem_bytes);
    if (!block)
        return zinf_fail(-ENOMEM, "no memory for a block of %u bytes", BLOCK_BYTES);
    for (uint64_t done = 0; done < n && !code; done += block_elems) {
        uint64_t count = n - done < block_elems ? n - done : block_elems;
        code = zinf_tensors_read(tensors, info, first + done, count, block);
        if (!code)
            convert_block(out + done, block, info->dtype, count);
    }
    free(block);
    return code;
}

/* ---- sums ---- */

/* Of a tensor that was not read, or not in order. */
static int read_all(struct zinf_tensors *tensors, const struct zinf_tensor_info *info, void *block)
{
    uint64_t step = BLOCK_BYTES / zinf_file_dtype_bytes(info->dtype), at = 0;
    int code = 0;
    do {
        uint64_t left = info->n_elems - at;
        code = zinf_tensors_read(tensors, info, at, left < step ? left : step, block);
        at += step;
    } while (!code && at < info->n_elems);
    return code;
}

int zinf_tensors_sum(struct zinf_tensors *tensors, uint32_t file, uint64_t *out)
{
    void *block = malloc(BLOCK_BYTES);
    int code = block ? zinf_tensors_sum_begin(tensors) : zinf_fail(-ENOMEM, "no memory for a sum");
    *out = 0;
    for (uint64_t i = 0; !code && i < tensors->count; i++) {
        const struct zinf_tensor_info *info = &tensors->list[i];
        uint64_t sum = 0;
        if (info->file != file)
            continue;
        if (!tensors_sum_of(tensors, i, &sum))
            code = read_all(tensors, info, block);
        if (!code && !tensors_sum_of(tensors, i, &sum))
            code = zinf_fail(-ENOMEM, "no memory for the sum of tensor '%s'", info->name);
        *out += sum;
    }
    free(block);
    return code;
}
