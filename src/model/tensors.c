/*
 * tensors: copies rows between files and units by row maps. Rows of a file that is not transposed
 * are copied run by run. Of a transposed file, bands of rows go through scratch and are transposed
 * in squares that stay in the cache.
 */
#include "model/tensors.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- runs ---- */

/* Consecutive rows of both the file and the unit. */
struct row_run {
    uint64_t file, flat, rows;
};

/* Run i of the map. If all runs follow each other on both sides, they are one run. */
static struct row_run run_at(const struct zinf_row_map *map, uint64_t i)
{
    return (struct row_run){map->file_first + i * map->file_stride,
                            map->flat_first + i * map->flat_stride, map->rows};
}

static struct zinf_row_map joined(const struct zinf_row_map *map)
{
    struct zinf_row_map one = *map;
    if (map->count > 1 && map->file_stride == map->rows && map->flat_stride == map->rows) {
        one.rows = map->rows * map->count;
        one.count = 1;
    }
    return one;
}

/* Elements of a row of the file's tensor. */
static uint64_t file_row_elems(const struct zinf_piece *piece)
{
    return piece->rank == 2 ? piece->shape[1] : 1;
}

/* Elements of the file's tensor in front of the piece's slab. */
static uint64_t slab_at(const struct zinf_piece *piece)
{
    return piece->slab * piece->shape[0] * file_row_elems(piece);
}

/* ---- transposition ---- */

enum { SQUARE = 32 };

/* The part of a band of a transposed file that is one run of the unit's tensor. */
struct rectangle {
    float *band; /* [n_cols][band_ld]: the file's rows, which are columns of the unit's tensor */
    uint64_t band_ld;
    float *flat; /* [n_rows][flat_ld] */
    uint64_t flat_ld, n_rows, n_cols;
};

static void transpose_square(const struct rectangle *r, uint64_t row, uint64_t col, bool to_flat)
{
    uint64_t rows_end = least(row + SQUARE, r->n_rows), cols_end = least(col + SQUARE, r->n_cols);
    for (uint64_t i = row; i < rows_end; i++)
        for (uint64_t j = col; j < cols_end; j++) {
            float *band = r->band + j * r->band_ld + i, *flat = r->flat + i * r->flat_ld + j;
            if (to_flat)
                *flat = *band;
            else
                *band = *flat;
        }
}

static void transpose(const struct rectangle *r, bool to_flat)
{
    for (uint64_t i = 0; i < r->n_rows; i += SQUARE)
        for (uint64_t j = 0; j < r->n_cols; j += SQUARE)
            transpose_square(r, i, j, to_flat);
}

/* Rows of the file that are consecutive columns of the unit's tensor: all of them, or the even or
 * the odd ones. */
struct band {
    float *at;           /* the first row */
    uint64_t ld, col, n; /* elements from row to row; the first one's column; number of rows */
};

static void transpose_rows(const struct zinf_piece *piece, uint64_t cols, const struct band *band,
                           float *rows, bool to_flat)
{
    struct zinf_row_map map = joined(&piece->rows);
    for (uint64_t i = 0; i < map.count; i++) {
        struct row_run run = run_at(&map, i);
        struct rectangle r = {
            .band = band->at + run.file,
            .band_ld = band->ld,
            .flat = rows + run.flat * cols + band->col,
            .flat_ld = cols,
            .n_rows = run.rows,
            .n_cols = band->n,
        };
        transpose(&r, to_flat);
    }
}

/* Copies the piece's part of a band, rows [first, first + n) of the file, to the unit's tensor or
 * back. rows: the tensor, which has cols columns. */
static void transpose_band(const struct zinf_piece *piece, uint64_t cols, uint64_t first,
                           uint64_t n, float *band, float *rows, bool to_flat)
{
    const uint64_t ld = piece->shape[1], step = piece->turns ? 2 : 1;
    for (uint64_t row = first; row < first + n && row < first + step; row++) {
        const struct band part = {
            .at = band + (row - first) * ld,
            .ld = step * ld,
            .col = row / step + (row % step) * ((cols + 1) / 2),
            .n = (n - (row - first) + step - 1) / step,
        };
        transpose_rows(piece, cols, &part, rows, to_flat);
    }
}

/* ---- gathering ---- */

static int gather_rows(const struct zinf_tensor *tensor, const struct zinf_piece *piece,
                       const struct zinf_gather *g, float *rows)
{
    struct zinf_row_map map = joined(&piece->rows);
    int code = 0;
    for (uint64_t i = 0; !code && i < map.count; i++) {
        struct row_run run = run_at(&map, i);
        code = g->read(g->context, tensor, piece, slab_at(piece) + run.file * tensor->cols,
                       run.rows * tensor->cols, rows + run.flat * tensor->cols);
    }
    return code;
}

/* For n_pieces of one tensor of the file, which is read once for all of them. */
static int gather_transposed(const struct zinf_tensor *tensor, const struct zinf_piece *piece,
                             uint32_t n_pieces, const struct zinf_gather *g, float *rows)
{
    uint64_t row = file_row_elems(piece), most = g->scratch.elems / row;
    int code = 0;
    for (uint64_t first = 0; !code && first < piece->shape[0]; first += most) {
        uint64_t n = least(most, piece->shape[0] - first);
        code = g->read(g->context, tensor, piece, slab_at(piece) + first * row, n * row,
                       g->scratch.base);
        for (uint32_t p = 0; !code && p < n_pieces; p++)
            transpose_band(&piece[p], tensor->cols, first, n, g->scratch.base, rows, true);
    }
    return code;
}

static int check_scratch(const struct zinf_piece *piece, const struct zinf_scratch *scratch)
{
    if (!piece->transposed || scratch->elems >= file_row_elems(piece))
        return 0;
    return zinf_fail(-EINVAL, "tensor %s needs scratch of %llu elements, %llu are given",
                     piece->name, (unsigned long long)file_row_elems(piece),
                     (unsigned long long)scratch->elems);
}

static int gather_pieces(const struct zinf_tensor *tensor, const struct zinf_piece *piece,
                         uint32_t n, const struct zinf_gather *g, float *rows)
{
    int code = check_scratch(piece, &g->scratch);
    if (!code && piece->transposed)
        return gather_transposed(tensor, piece, n, g, rows);
    for (uint32_t p = 0; !code && p < n; p++)
        code = gather_rows(tensor, &piece[p], g, rows);
    return code;
}

int zinf_piece_gather(const struct zinf_tensor *tensor, const struct zinf_piece *piece,
                      const struct zinf_gather *g, float *rows)
{
    return gather_pieces(tensor, piece, 1, g, rows);
}

/* How many pieces from p on are of the same tensor and slab of the file. */
static uint32_t same_file_tensor(const struct zinf_tensor *t, uint32_t p)
{
    uint32_t n = 1;
    while (p + n < t->n_pieces && t->pieces[p + n].slab == t->pieces[p].slab &&
           !strcmp(t->pieces[p + n].name, t->pieces[p].name))
        n++;
    return n;
}

/* Splits each number into its 8 leading bits, the 8 leading bits of the rest, and what is left. The
 * sum of the three has all 24 bits. */
static void split_exact(float *rows, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint16_t bits;
        float first, second;
        zinf_convert(&bits, ZINF_DTYPE_BF16, &rows[i], ZINF_DTYPE_F32, 1);
        zinf_convert(&first, ZINF_DTYPE_F32, &bits, ZINF_DTYPE_BF16, 1);
        rows[n + i] = rows[i] - first;
        zinf_convert(&bits, ZINF_DTYPE_BF16, &rows[n + i], ZINF_DTYPE_F32, 1);
        zinf_convert(&second, ZINF_DTYPE_F32, &bits, ZINF_DTYPE_BF16, 1);
        rows[2 * n + i] = rows[n + i] - second;
        rows[n + i] = second;
        rows[i] = first;
    }
}

int zinf_unit_gather(const struct zinf_unit *unit, const struct zinf_gather *g, float *flat)
{
    int code = 0;
    memset(flat, 0, unit->elems * sizeof *flat);
    for (uint32_t i = 0; i < unit->n_tensors; i++) {
        const struct zinf_tensor *tensor = &unit->tensors[i];
        const uint32_t n_pieces = tensor->form == ZINF_FORM_PLAIN ? tensor->n_pieces : 0;
        for (uint32_t p = 0, n; !code && p < n_pieces; p += n) {
            n = same_file_tensor(tensor, p);
            code = gather_pieces(tensor, &tensor->pieces[p], n, g, flat + tensor->offset);
        }
        if (!code && tensor->exact)
            split_exact(flat + tensor->offset, zinf_tensor_file_rows(tensor));
    }
    return code;
}

/* ---- streaming ---- */

/* Finds the part that has a run beginning at this row of the file. *run: the run. */
static const struct zinf_file_part *part_at(const struct zinf_file_tensor *t, uint64_t row,
                                            struct row_run *run)
{
    for (uint32_t p = 0; p < t->n_parts; p++) {
        struct zinf_row_map map = joined(&t->parts[p].piece->rows);
        if (row < map.file_first)
            continue;
        uint64_t behind = row - map.file_first, i = map.count > 1 ? behind / map.file_stride : 0;
        *run = run_at(&map, i);
        if (i < map.count && run->file == row)
            return &t->parts[p];
    }
    return NULL;
}

static int stream_exact(const struct zinf_tensor *tensor, const float *rows,
                        const struct zinf_stream *s)
{
    const uint64_t n = zinf_tensor_file_rows(tensor);
    int code = 0;
    for (uint64_t i = 0; !code && i < n; i++) {
        const float value = (rows[i] + rows[n + i]) + rows[2 * n + i];
        code = s->write(s->context, &value, 1);
    }
    return code;
}

/* Writes the runs in the file's order. */
static int stream_rows(const struct zinf_file_tensor *t, const struct zinf_stream *s)
{
    const struct zinf_file_part *part, *before = NULL;
    const float *flat = NULL;
    struct row_run run;
    int code = 0;
    for (uint64_t row = 0; !code && (part = part_at(t, row, &run)); row += run.rows) {
        const struct zinf_tensor *tensor = part->tensor;
        if (!before || part->unit != before->unit)
            code = s->flat(s->context, part->unit, &flat);
        before = part;
        if (code || tensor->exact)
            return code ? code : stream_exact(tensor, flat + tensor->offset, s);
        code = s->write(s->context, flat + tensor->offset + run.flat * tensor->cols,
                        run.rows * tensor->cols);
    }
    return code;
}

/* A row of the file has elements of all parts, whose units are read one after the other. */
static int stream_transposed(const struct zinf_file_tensor *t, const struct zinf_stream *s)
{
    uint64_t most = s->scratch.elems / t->shape[1];
    int code = 0;
    for (uint64_t first = 0; !code && first < t->shape[0]; first += most) {
        uint64_t n = least(most, t->shape[0] - first);
        const float *flat = NULL;
        for (uint32_t p = 0; !code && p < t->n_parts; p++) {
            const struct zinf_tensor *tensor = t->parts[p].tensor;
            code = s->flat(s->context, t->parts[p].unit, &flat);
            if (code)
                return code;
            /* only read; transpose_band copies both ways */
            float *rows = (float *)(uintptr_t)(flat + tensor->offset);
            transpose_band(t->parts[p].piece, tensor->cols, first, n, s->scratch.base, rows, false);
        }
        code = s->write(s->context, s->scratch.base, n * t->shape[1]);
    }
    return code;
}

int zinf_file_tensor_stream(const struct zinf_file_tensor *t, const struct zinf_stream *s)
{
    int code = check_scratch(t->parts[0].piece, &s->scratch);
    if (t->parts[0].tensor->form != ZINF_FORM_PLAIN)
        code = zinf_fail(-ENOTSUP, "tensor %s is packed, and not written as numbers", t->name);
    for (uint32_t p = 0, n; !code && p < t->n_parts; p += n) {
        struct zinf_file_tensor slab = *t;
        slab.parts += p;
        slab.n_parts = n = zinf_file_slab_parts(t, p);
        code = (t->transposed ? stream_transposed : stream_rows)(&slab, s);
    }
    return code;
}

/* ---- one number a row ---- */

void zinf_piece_rows_to_file(const struct zinf_piece *piece, const float *unit, float *file)
{
    for (uint64_t i = 0; i < piece->rows.count; i++) {
        struct row_run run = run_at(&piece->rows, i);
        memcpy(file + run.file, unit + run.flat, run.rows * sizeof *file);
    }
}

void zinf_piece_rows_to_unit(const struct zinf_piece *piece, const float *file, float *unit)
{
    for (uint64_t i = 0; i < piece->rows.count; i++) {
        struct row_run run = run_at(&piece->rows, i);
        memcpy(unit + run.flat, file + run.file, run.rows * sizeof *unit);
    }
}
