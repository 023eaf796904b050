/*
 * frame_matrix: the weights of a linear layer as a product takes them. Each call that needs a
 * quantised matrix converts it in scratch, and it is gone with the call's scratch. So of a unit
 * that is stored in 4 bits only one matrix at a time is there as numbers. Where the plan has room
 * for a whole unit as numbers, these are made once and stay for all further calls of the unit.
 */
#include "model/frame.h"

enum { NUMBERS_ALIGN = 256 }; /* as for all memory of a frame */

/* Converts the rows of a tensor that one piece has. */
static int dequantize_piece(struct zinf_frame *f, uint32_t unit, const struct zinf_tensor *tensor,
                            const struct zinf_piece *piece, void *w)
{
    const struct zinf_row_map *map = &piece->rows;
    struct zinf_dequantize args = {
        .quantized = zinf_piece_quantized(tensor, piece),
        .image = f->queue ? (const char *)f->weights[unit] + piece->image_at : NULL,
        .from_first = (int64_t)map->file_first,
        .from_stride = (int64_t)map->file_stride,
        .to_first = (int64_t)map->flat_first,
        .to_stride = (int64_t)map->flat_stride,
        .rows = (int64_t)map->rows,
        .count = (int64_t)map->count,
        .dtype = f->compute->dtype,
        .w = w,
    };
    return frame_dequantize(f, &args);
}

uint64_t zinf_numbers_at(const struct zinf_unit *unit, uint32_t tensor, uint64_t width)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < tensor; i++)
        if (unit->tensors[i].form != ZINF_FORM_PLAIN)
            at += zinf_align_up(unit->tensors[i].elems * width, NUMBERS_ALIGN);
    return at;
}

/* The place where a matrix stays, or NULL. Pointers to it are valid until the call ends, since
 * another unit of the call uses scratch. */
static void *lasting(struct zinf_frame *f, uint32_t unit, uint32_t tensor, bool *made)
{
    const struct zinf_unit *u = frame_unit(f, unit);
    struct zinf_numbers *n = f->numbers;
    if (!n || !n->memory || !f->queue || tensor >= 64)
        return NULL;
    f->numbers_of = f->numbers_of ? f->numbers_of : u;
    const uint64_t at = zinf_numbers_at(u, tensor, frame_width(f));
    if (f->numbers_of != u || at + u->tensors[tensor].elems * frame_width(f) > n->bytes)
        return NULL;
    if (n->unit != u) {
        n->unit = u;
        n->made = 0;
    }
    *made = n->made >> tensor & 1;
    n->made |= (uint64_t)1 << tensor;
    return n->memory + at;
}

int frame_matrix(struct zinf_frame *f, uint32_t unit, int tensor, const void **out)
{
    const struct zinf_tensor *t = &frame_unit(f, unit)->tensors[tensor];
    int code = 0;
    if (t->form == ZINF_FORM_PLAIN) {
        *out = frame_weight(f, unit, tensor);
        return 0;
    }
    bool made = false;
    void *w = lasting(f, unit, (uint32_t)tensor, &made);
    w = w ? w : frame_scratch(f, t->elems * frame_width(f));
    for (uint32_t p = 0; !made && !code && p < t->n_pieces; p++)
        code = dequantize_piece(f, unit, t, &t->pieces[p], w);
    *out = w;
    return code;
}
