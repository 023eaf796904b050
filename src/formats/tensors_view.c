/*
 * tensors_view: a view is read run by run of its innermost dimension, a transposed matrix column by
 * column. Elements that lie close together come with one read of a page.
 */
#include "formats/tensors_view.h"
#include "formats/file_span.h"

#define PAGE_BYTES 4096

void zinf_tensor_view_init(struct zinf_tensor_view *out, int rank, const uint64_t *shape,
                           const uint64_t *stride)
{
    struct zinf_tensor_view view = {.rank = 0};
    for (int i = 0; i < rank; i++) {
        int last = view.rank - 1;
        uint64_t joined;
        if (shape[i] == 1)
            continue;
        if (last >= 0 && !__builtin_mul_overflow(shape[i], stride[i], &joined) &&
            view.stride[last] == joined) {
            view.shape[last] *= shape[i];
            view.stride[last] = stride[i];
            continue;
        }
        view.shape[view.rank] = shape[i];
        view.stride[view.rank++] = stride[i];
    }
    *out = view;
}

bool zinf_tensor_view_is_contiguous(const struct zinf_tensor_view *view)
{
    return !view->rank || (view->rank == 1 && view->stride[0] == 1);
}

bool zinf_tensor_view_reach(const struct zinf_tensor_view *view, uint64_t *elems)
{
    uint64_t last = 0, more;
    for (int i = 0; i < view->rank; i++)
        if (__builtin_mul_overflow(view->shape[i] - 1, view->stride[i], &more) ||
            __builtin_add_overflow(last, more, &last))
            return false;
    return !__builtin_add_overflow(last, 1, elems);
}

/* ---- reading ---- */

/* Where a tensor is read. */
struct from {
    int fd;
    const char *path; /* for messages */
    const struct zinf_tensor_info *info;
};

/* n elements, step bytes from one to the next. */
static int read_apart(const struct from *from, uint64_t offset, uint64_t step, uint64_t n,
                      uint8_t *out)
{
    const uint64_t elem_bytes = zinf_file_dtype_bytes(from->info->dtype);
    uint8_t page[PAGE_BYTES];
    uint64_t most = step ? (PAGE_BYTES - elem_bytes) / step + 1 : n;
    int code = 0;
    for (uint64_t done = 0, count; !code && done < n; done += count) {
        count = n - done < most ? n - done : most;
        code = zinf_file_span_read(from->fd, from->path, page, (count - 1) * step + elem_bytes,
                                   offset + done * step);
        for (uint64_t i = 0; !code && i < count; i++)
            memcpy(out + (done + i) * elem_bytes, page + i * step, elem_bytes);
    }
    return code;
}

/* Of a transposed matrix, whole rows: each column's elements lie together, so columns are read and
 * spread over the rows. One read serves as many rows as a page has elements. */
static int read_turned(const struct from *from, uint64_t row, uint64_t n_rows, uint8_t *out)
{
    const struct zinf_tensor_view *v = from->info->view;
    uint64_t elem_bytes = zinf_file_dtype_bytes(from->info->dtype), cols = v->shape[1];
    uint8_t column[PAGE_BYTES];
    uint64_t most = PAGE_BYTES / elem_bytes;
    int code = 0;
    for (uint64_t done = 0, count; !code && done < n_rows; done += count) {
        count = n_rows - done < most ? n_rows - done : most;
        for (uint64_t c = 0; !code && c < cols; c++) {
            uint64_t place = (row + done) * v->stride[0] + c * v->stride[1];
            code = read_apart(from, from->info->file_offset + place * elem_bytes,
                              v->stride[0] * elem_bytes, count, column);
            for (uint64_t r = 0; !code && r < count; r++)
                memcpy(out + ((done + r) * cols + c) * elem_bytes, column + r * elem_bytes,
                       elem_bytes);
        }
    }
    return code;
}

/* As much as one run of the innermost dimension has from element first on, or all whole rows of a
 * transposed matrix; *count elements. */
static int read_some(const struct from *from, uint64_t first, uint64_t n, uint8_t *out,
                     uint64_t *count)
{
    const struct zinf_tensor_view *v = from->info->view;
    uint64_t elem_bytes = zinf_file_dtype_bytes(from->info->dtype), left = first, place = 0;
    uint64_t inner = v->shape[v->rank - 1], step = v->stride[v->rank - 1] * elem_bytes;
    uint64_t column = first % inner;
    if (v->rank == 2 && v->stride[0] < v->stride[1] && !column && n >= 2 * inner) {
        *count = n / inner * inner;
        return read_turned(from, first / inner, n / inner, out);
    }
    for (int i = v->rank - 1; i >= 0; i--) {
        place += left % v->shape[i] * v->stride[i];
        left /= v->shape[i];
    }
    *count = inner - column < n ? inner - column : n;
    uint64_t offset = from->info->file_offset + place * elem_bytes;
    return step == elem_bytes
               ? zinf_file_span_read(from->fd, from->path, out, *count * elem_bytes, offset)
               : read_apart(from, offset, step, *count, out);
}

int zinf_tensor_view_read(int fd, const char *path, const struct zinf_tensor_info *info,
                          uint64_t first, uint64_t n, void *out)
{
    const struct from from = {fd, path, info};
    uint64_t elem_bytes = zinf_file_dtype_bytes(info->dtype), count = 0;
    uint8_t *to = out;
    int code = 0;
    for (uint64_t done = 0; !code && done < n; done += count)
        code = read_some(&from, first + done, n - done, to + done * elem_bytes, &count);
    return code;
}
