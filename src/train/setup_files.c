/*
 * setup_files: a frozen model that stays where it is. What a unit is made of lies in the model's
 * safetensors files, in pages of which it needs a few stretches; a fetch reads these whole pages,
 * as direct I/O wants it, and the CPU puts the unit together of them. So there is no second copy of
 * the model, and nothing of it is written.
 */
#include "formats/formats.h"
#include "model/tensors.h"
#include "train/setup.h"

#include <stdlib.h>

/* ---- what a unit needs ---- */

/* Bytes of a file, from the first row on that a piece has. */
struct range {
    uint32_t file;
    uint64_t first, end;
    uint64_t first_row;
};

static int range_of(const struct setup *s, const struct zinf_tensors *file, const char *prefix,
                    const struct zinf_tensor *t, const struct zinf_piece *piece, struct range *out)
{
    char name[160];
    const struct zinf_row_map *m = &piece->rows;
    zinf_piece_name(piece, prefix, name, sizeof name);
    const struct zinf_tensor_info *info = zinf_tensors_find(file, name);
    enum zinf_dtype dtype;
    if (t->exact)
        return -ENOTSUP;
    const uint64_t elems = piece->shape[0] * (piece->rank == 2 ? piece->shape[1] : 1);
    if (!info || info->view || zinf_file_dtype_to_dtype(info->dtype, &dtype) || dtype != s->dtype ||
        info->n_elems != (piece->n_slabs ? piece->n_slabs : 1) * elems)
        return -ENOTSUP;
    const uint64_t row = t->cols * zinf_dtype_bytes(dtype), bytes = elems * zinf_dtype_bytes(dtype);
    const uint64_t slab = info->file_offset + piece->slab * bytes;
    *out = (struct range){info->file, slab, slab + bytes, 0};
    if (!piece->transposed) {
        out->first_row = m->file_first;
        out->first = slab + m->file_first * row;
        out->end = out->first + ((m->count - 1) * m->file_stride + m->rows) * row;
    }
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* Whole pages of sorted ranges; those that share pages, or follow each other, are one span. */
static void join_spans(struct file_unit *unit, const struct range *sorted)
{
    for (uint32_t i = 0; i < unit->n_parts; i++) {
        uint64_t first = sorted[i].first / ZINF_AIO_ALIGN * ZINF_AIO_ALIGN;
        uint64_t end = zinf_align_up(sorted[i].end, ZINF_AIO_ALIGN);
        struct zinf_store_span *last = unit->n_spans ? &unit->spans[unit->n_spans - 1] : NULL;
        if (last && last->file == sorted[i].file && first <= last->offset + last->bytes) {
            if (end > last->offset + last->bytes)
                last->bytes = end - last->offset;
            continue;
        }
        unit->spans[unit->n_spans++] = (struct zinf_store_span){sorted[i].file, first, end - first};
    }
    for (uint32_t i = 0; i < unit->n_spans; i++)
        unit->bytes += unit->spans[i].bytes;
}

static uint64_t place_of(const struct file_unit *unit, const struct range *range)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < unit->n_spans; at += unit->spans[i++].bytes) {
        const struct zinf_store_span *span = &unit->spans[i];
        if (span->file == range->file && range->first >= span->offset &&
            range->end <= span->offset + span->bytes)
            return at + (range->first - span->offset);
    }
    return 0; /* not met: every range is in a span */
}

static uint32_t count_pieces(const struct zinf_unit *unit)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < unit->n_tensors; i++)
        n += unit->tensors[i].n_pieces;
    return n;
}

static int find_unit(const struct setup *s, const struct zinf_tensors *file, const char *prefix,
                     uint32_t number, struct file_unit *out)
{
    const struct zinf_unit *unit = &s->graph->units[number];
    uint32_t n = count_pieces(unit), k = 0;
    struct range *ranges = calloc(n, sizeof *ranges), *sorted = calloc(n, sizeof *sorted);
    out->spans = calloc(n, sizeof *out->spans);
    out->parts = calloc(n, sizeof *out->parts);
    bool there = ranges && sorted && out->spans && out->parts;
    int code = there ? 0 : zinf_fail(-ENOMEM, "no memory to find %u tensors", n);
    for (uint32_t i = 0; !code && i < unit->n_tensors; i++)
        for (uint32_t p = 0; !code && p < unit->tensors[i].n_pieces; p++, k++) {
            const struct zinf_tensor *t = &unit->tensors[i];
            code = range_of(s, file, prefix, t, &t->pieces[p], &ranges[k]);
            out->parts[k] = (struct file_part){t, &t->pieces[p], 0, ranges[k].first_row};
        }
    if (!code) {
        out->n_parts = n;
        memcpy(sorted, ranges, n * sizeof *ranges);
        qsort(sorted, n, sizeof *sorted, by_place);
        join_spans(out, sorted);
        for (k = 0; k < n; k++)
            out->parts[k].at = place_of(out, &ranges[k]);
    }
    free(ranges);
    free(sorted);
    return code;
}

/* ---- the folder ---- */

/* Names with the family's prefix, or all without: the first files of a family had none. */
static const char *prefix_of(const struct setup *s, const struct zinf_tensors *file)
{
    const char *prefix = zinf_model_family(s->model)->prefix;
    char name[160];
    for (uint32_t i = 0; i < s->files->n_tensors; i++) {
        const struct zinf_file_tensor *t = &s->files->tensors[i];
        if (t->plain_name)
            continue;
        bool prefixed =
            zinf_tensors_find(file, zinf_file_tensor_name(t, prefix, name, sizeof name));
        return prefixed ? prefix : "";
    }
    return prefix;
}

static int find_all(const struct setup *s, const struct zinf_tensors *file, struct weight_files *w)
{
    const char *prefix = prefix_of(s, file);
    int code = 0;
    w->n_paths = zinf_tensors_file_count(file);
    w->paths = calloc(w->n_paths, sizeof *w->paths);
    w->units = calloc(s->n_units, sizeof *w->units);
    w->n_units = s->n_units;
    if (!w->paths || !w->units)
        return zinf_fail(-ENOMEM, "no memory to find the weights of %s", s->options.model_path);
    for (uint32_t i = 0; !code && i < w->n_paths; i++) {
        w->paths[i] = zinf_path_join(s->options.model_path, zinf_tensors_file_name(file, i));
        code = w->paths[i] ? 0 : -ENOMEM;
    }
    for (uint32_t u = 0; !code && u < s->n_units; u++) {
        if (is_adapted(s) && unit_trains(s, u))
            continue;
        code = find_unit(s, file, prefix, u, &w->units[u]);
        if (w->units[u].bytes > w->most_bytes)
            w->most_bytes = w->units[u].bytes;
    }
    return code;
}

int setup_find_files(struct setup *s)
{
    struct zinf_tensors *file = NULL;
    bool frozen = is_adapted(s) || !has_backward(s), plain = true;
    for (uint32_t u = 0; u < s->n_units; u++)
        plain &= !s->graph->units[u].image_bytes;
    if (!frozen || !plain || s->mesh.all || s->options.init || s->param_tier != ZINF_TIER_DRIVE ||
        !s->config->weights_in_place)
        return 0;
    if (zinf_tensors_open(&file, s->options.model_path))
        return 0; /* loading them will report the error */
    s->weights = calloc(1, sizeof *s->weights);
    int code = s->weights ? 0 : zinf_fail(-ENOMEM, "no memory for a setup");
    if (!code && strcmp(zinf_tensors_file_kind(file), "safetensors"))
        code = -ENOTSUP;
    if (!code)
        code = find_all(s, file, s->weights);
    zinf_tensors_close(file);
    if (code != -ENOTSUP)
        return code;
    setup_free_files(s);
    zinf_log_once(ZINF_LOG_INFO, "copied weights",
                  "the weights of %s are no safetensors in %s: they are copied to the drive first",
                  s->options.model_path, zinf_dtype_name(s->dtype));
    return 0;
}

void setup_free_files(struct setup *s)
{
    struct weight_files *w = s->weights;
    if (!w)
        return;
    for (uint32_t i = 0; w->paths && i < w->n_paths; i++)
        free(w->paths[i]);
    for (uint32_t u = 0; w->units && u < w->n_units; u++) {
        free(w->units[u].spans);
        free(w->units[u].parts);
    }
    free(w->paths);
    free(w->units);
    free(w);
    s->weights = NULL;
}

/* ---- assembling ---- */

/* Rows of ours are columns of the file's tensor: 32 by 32 stay in cache. */
static void turn(char *to, const char *from, const struct file_part *part, size_t width)
{
    const struct zinf_row_map *m = &part->piece->rows;
    uint64_t cols = part->tensor->cols, ld = part->piece->shape[1];
    for (uint64_t run = 0; run < m->count; run++)
        for (uint64_t at = 0; at < m->rows * cols; at += 32 * cols)
            for (uint64_t c = 0; c < cols; c++)
                for (uint64_t r = at / cols; r < at / cols + 32 && r < m->rows; r++) {
                    uint64_t file = m->file_first + run * m->file_stride + r;
                    uint64_t flat = m->flat_first + run * m->flat_stride + r;
                    memcpy(to + (flat * cols + c) * width, from + (c * ld + file) * width, width);
                }
}

static void copy_rows(char *to, const char *from, const struct file_part *part, size_t width)
{
    const struct zinf_row_map *m = &part->piece->rows;
    uint64_t row = part->tensor->cols * width;
    for (uint64_t run = 0; run < m->count; run++) {
        uint64_t file = m->file_first + run * m->file_stride - part->first_row;
        memcpy(to + (m->flat_first + run * m->flat_stride) * row, from + file * row, m->rows * row);
    }
}

/* Behind a tensor, up to the next one or to the unit's end. */
static void zero_gap(const struct zinf_unit *unit, const struct zinf_tensor *t, uint64_t padded,
                     char *flat, size_t width)
{
    uint64_t end = t->offset + t->elems, next = padded;
    for (uint32_t i = 0; i < unit->n_tensors; i++)
        if (unit->tensors[i].offset >= end && unit->tensors[i].offset < next)
            next = unit->tensors[i].offset;
    memset(flat + end * width, 0, (next - end) * width);
}

void file_unit_assemble(const struct setup *s, uint32_t unit, void *flat, const void *read)
{
    const struct file_unit *files = &s->weights->units[unit];
    const struct zinf_unit *u = &s->graph->units[unit];
    size_t width = zinf_dtype_bytes(s->dtype);
    for (uint32_t i = 0; i < files->n_parts; i++) {
        const struct file_part *part = &files->parts[i];
        char *to = (char *)flat + part->tensor->offset * width;
        (part->piece->transposed ? turn : copy_rows)(to, (const char *)read + part->at, part,
                                                     width);
    }
    for (uint32_t i = 0; i < u->n_tensors; i++)
        zero_gap(u, &u->tensors[i], s->layout.units[unit].padded_elems, flat, width);
}
