/*
 * transfer_magnitude: what fresh magnitudes begin as: the norms of the base's rows, as they are
 * multiplied with: rounded to the parameters' number type, or quantised. They are taken while the
 * base's unit is at hand, which is before that of its adapters.
 */
#include "train/save/transfer.h"

#include <math.h>
#include <stdlib.h>

static float norm_of(const float *row, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)row[i] * (double)row[i];
    return (float)sqrt(sum);
}

/* n rows of ours from `first` on, in dtype, of the adapter's weight. */
static void note_rows(const struct source *s, const struct zinf_adapted *a, const void *rows,
                      uint64_t first, uint64_t n, float *buffer)
{
    const struct zinf_graph *g = s->setup->graph;
    uint64_t cols = g->units[a->unit].tensors[a->tensor].cols;
    enum zinf_dtype dtype = s->setup->dtype;
    for (uint64_t i = 0; i < n; i++) {
        const char *row = (const char *)rows + i * cols * zinf_dtype_bytes(dtype);
        uint64_t at = first + i - a->first_row;
        if (first + i < a->first_row || at >= a->rows)
            continue;
        zinf_convert(buffer, ZINF_DTYPE_F32, row, dtype, cols);
        s->norms[a - g->adapted][at] = norm_of(buffer, cols);
    }
}

static const struct zinf_adapted *adapted_of(const struct source *s, uint32_t unit, uint32_t i)
{
    const struct zinf_graph *g = s->setup->graph;
    const struct zinf_adapted *a = &g->adapted[g->units[unit].first_adapted + i];
    return a->has_magnitude && s->norms ? a : NULL;
}

/* Room for the norms, once. */
static int take(const struct source *s, const struct zinf_adapted *a)
{
    float **norms = &s->norms[a - s->setup->graph->adapted];
    if (!*norms)
        *norms = calloc(a->rows, sizeof **norms);
    return *norms ? 0 : zinf_fail(-ENOMEM, "no memory for the magnitudes of adapters");
}

int transfer_note_norms(const struct source *s, uint32_t unit)
{
    const struct zinf_graph *g = s->setup->graph;
    const struct zinf_unit *u = &g->units[unit];
    struct region r = source_region(s);
    for (uint32_t i = 0; i < u->n_adapted; i++) {
        const struct zinf_adapted *a = adapted_of(s, unit, i);
        const struct zinf_tensor *w = a ? &u->tensors[a->tensor] : NULL;
        if (!a)
            continue;
        int code = take(s, a);
        if (code)
            return code;
        for (uint64_t row = 0; row < a->rows && w->form == ZINF_FORM_PLAIN; row++) {
            const float *from = r.unit + w->offset + (a->first_row + row) * w->cols;
            zinf_convert(r.scratch, s->setup->dtype, from, ZINF_DTYPE_F32, w->cols);
            note_rows(s, a, r.scratch, a->first_row + row, 1, r.scratch + w->cols);
        }
    }
    return 0;
}

/* The image's rows that are a run of the piece's, through scratch: a row as it is multiplied with,
 * then that in fp32. */
static int note_image(const struct source *s, const struct zinf_adapted *a,
                      const struct zinf_tensor *w, const struct zinf_piece *piece)
{
    const struct zinf_row_map *map = &piece->rows;
    struct region r = source_region(s);
    int code = 0;
    struct zinf_dequantize args = {.quantized = zinf_piece_quantized(w, piece),
                                   .image = r.image,
                                   .rows = 1,
                                   .count = 1,
                                   .dtype = s->setup->dtype,
                                   .w = r.scratch};
    for (uint64_t i = 0; !code && i < map->rows * map->count; i++) {
        uint64_t run = i / map->rows, row = i % map->rows;
        args.from_first = (int64_t)(map->file_first + run * map->file_stride + row);
        code = s->device->ops->dequantize(s->to_device, &args);
        if (!code)
            note_rows(s, a, r.scratch, map->flat_first + run * map->flat_stride + row, 1,
                      r.scratch + w->cols);
    }
    return code;
}

int transfer_note_image(const struct source *s, uint32_t unit, const char *name)
{
    const struct zinf_unit *u = &s->setup->graph->units[unit];
    int code = 0;
    for (uint32_t i = 0; i < u->n_adapted; i++) {
        const struct zinf_adapted *a = adapted_of(s, unit, i);
        const struct zinf_tensor *w = a ? &u->tensors[a->tensor] : NULL;
        for (uint32_t p = 0; !code && a && p < w->n_pieces; p++)
            if (!strcmp(w->pieces[p].name, name) && !(code = take(s, a)))
                code = note_image(s, a, w, &w->pieces[p]);
    }
    return code;
}

void transfer_put_norms(const struct source *s, uint32_t unit)
{
    const struct zinf_graph *g = s->setup->graph;
    const bool here = g->units[unit].n_tensors; /* and not on another rank of a pipeline */
    struct region r = source_region(s);
    for (uint32_t i = 0; here && s->norms && i < g->n_adapted; i++) {
        const struct zinf_adapted *a = &g->adapted[i];
        if (a->adapter != unit || !a->has_magnitude)
            continue;
        float *to = r.unit + g->units[unit].tensors[a->magnitude].offset;
        memcpy(to, s->norms[i], a->rows * sizeof *to);
        free(s->norms[i]);
        s->norms[i] = NULL;
    }
}
