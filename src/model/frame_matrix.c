/*
 * frame_matrix: the weights of a linear layer as a product takes them. What is quantised becomes
 * numbers in scratch by each call that needs it, and is gone with the call's scratch: of all that a
 * unit has in 4 bits no more than one matrix is numbers at a time.
 */
#include "model/frame.h"

/* All rows that a piece gives a tensor, which is made in scratch. */
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

int frame_matrix(struct zinf_frame *f, uint32_t unit, int tensor, const void **out)
{
    const struct zinf_tensor *t = &frame_unit(f, unit)->tensors[tensor];
    int code = 0;
    if (t->form == ZINF_FORM_PLAIN) {
        *out = frame_weight(f, unit, tensor);
        return 0;
    }
    void *w = frame_scratch(f, t->elems * frame_width(f));
    for (uint32_t p = 0; !code && p < t->n_pieces; p++)
        code = dequantize_piece(f, unit, t, &t->pieces[p], w);
    *out = w;
    return code;
}
