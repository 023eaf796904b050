/*
 * stage_rows: rows that no norm ends, for a head: a copy, because the head adds to their gradient
 * tile by tile in fp32. Backward rounds it once.
 */
#include "model/stages/stages.h"

static uint64_t count(const struct zinf_frame *f)
{
    return (uint64_t)(frame_rows(f) * f->graph->values[f->stage->out.at[0]].cols);
}

static int forward(struct zinf_frame *f)
{
    return frame_copy(f, f->out[0], f->in[0], count(f) * frame_width(f));
}

static int backward(struct zinf_frame *f)
{
    const bool adds = f->d_in[0] && f->d_in_adds[0];
    struct zinf_residual sum = {.dtype = f->compute->dtype,
                                .n = (int64_t)count(f),
                                .x = f->d_in[0],
                                .r = f->out[0], /* which is no longer needed */
                                .y = f->d_in[0]};
    void *to = adds ? f->out[0] : f->d_in[0];
    if (!f->d_in[0])
        return 0;
    int code = frame_convert(f, to, f->compute->dtype, f->d_out[0], ZINF_DTYPE_F32, count(f));
    return code || !adds ? code : frame_residual(f, &sum);
}

const struct zinf_stage_ops zinf_stage_rows = {
    .name = "rows",
    .forward = forward,
    .backward = backward,
};
