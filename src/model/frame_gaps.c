/* frame_gaps: sets gradients of the gaps between tensors to zero, and of whole units. */
#include "model/frame.h"

static int fill_zero(struct zinf_frame *f, float *grads, uint64_t first, uint64_t end)
{
    uint64_t bytes = (end - first) * sizeof(float);
    return bytes ? frame_zero(f, f->queue ? grads + first : grads, bytes) : 0;
}

int frame_zero_gap(struct zinf_frame *f, uint32_t unit, uint32_t tensor)
{
    const struct zinf_unit *u = frame_unit(f, unit);
    float *grads = f->grads ? f->grads[unit] : NULL;
    uint64_t end = u->tensors[tensor].offset + u->tensors[tensor].elems;
    return grads ? fill_zero(f, grads, end, frame_gap_end(u, tensor)) : 0;
}

int frame_zero_gaps(struct zinf_frame *f, uint32_t unit)
{
    const struct zinf_unit *u = frame_unit(f, unit);
    float *grads = f->grads ? f->grads[unit] : NULL;
    uint64_t first = u->elems;
    int code = frame_each_moved(f, unit, frame_zero_gap);
    if (code || !grads)
        return code;
    for (uint32_t i = 0; !code && i < u->n_tensors; i++) {
        if (!u->tensors[i].elems)
            continue;
        first = u->tensors[i].offset < first ? u->tensors[i].offset : first;
        code = frame_zero_gap(f, unit, i);
    }
    return code ? code : fill_zero(f, grads, 0, first);
}

/* Sets a tensor's gradient and the gap behind it to zero. */
static int zero_tensor(struct zinf_frame *f, uint32_t unit, uint32_t tensor)
{
    const struct zinf_unit *u = frame_unit(f, unit);
    float *grads = f->grads ? f->grads[unit] : NULL;
    return grads ? fill_zero(f, grads, u->tensors[tensor].offset, frame_gap_end(u, tensor)) : 0;
}

int frame_zero_grads(struct zinf_frame *f, uint32_t unit)
{
    float *grads = f->grads ? f->grads[unit] : NULL;
    int code = frame_each_moved(f, unit, zero_tensor);
    return code || !grads ? code : fill_zero(f, grads, 0, frame_unit(f, unit)->elems);
}

int frame_zero_adapters(struct zinf_frame *f, uint32_t unit)
{
    const struct zinf_unit *u = frame_unit(f, unit);
    int code = 0;
    for (uint32_t i = 0; !code && i < u->n_adapted; i++) {
        const struct zinf_adapted *of = &f->graph->adapted[u->first_adapted + i];
        uint32_t at = 0;
        while (f->stage->units.at[at] != of->adapter)
            at++;
        float *grads = f->grads ? f->grads[at] : NULL;
        for (int b = 0; !code && grads && b < 2; b++) {
            const struct zinf_span span = zinf_adapted_span(f->graph, of, b);
            code = fill_zero(f, grads, span.first, span.first + span.n);
            if (!code)
                code = frame_zero_gap(f, at, b ? of->b : of->a);
        }
    }
    return code;
}
