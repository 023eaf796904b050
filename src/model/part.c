/* part: what attention and feed-forward parts of a block share: residual, dropout, norm. */
#include "model/stages.h"

static struct zinf_residual branch_args(const struct zinf_frame *f, float p, uint32_t site,
                                        int64_t hidden)
{
    uint64_t per_sample = (uint64_t)f->compute->seq * (uint64_t)hidden;
    return (struct zinf_residual){
        .dtype = f->compute->dtype,
        .n = frame_rows(f) * hidden,
        .dropout = frame_dropout_at(f, p, site, per_sample),
    };
}

int part_residual(struct zinf_frame *f, float p, uint32_t site, int64_t hidden, const void *x,
                  const void *branch, void *y)
{
    struct zinf_residual args = branch_args(f, p, site, hidden);
    args.x = x;
    args.r = branch;
    args.y = y;
    return frame_residual(f, &args);
}

int part_branch_gradient(struct zinf_frame *f, float p, uint32_t site, int64_t hidden,
                         const void *d_x, const void **out)
{
    struct zinf_residual args = branch_args(f, p, site, hidden);
    *out = d_x;
    if (!(args.dropout.p > 0))
        return 0;
    args.r = d_x;
    *out = args.y = frame_scratch(f, (uint64_t)args.n * frame_width(f));
    return frame_dropout(f, &args);
}

int part_start_gradient(struct zinf_frame *f, int64_t hidden, void **d_x)
{
    uint64_t bytes = (uint64_t)(frame_rows(f) * hidden) * frame_width(f);
    *d_x = f->d_out[0];
    if (!f->d_in[0] || f->d_in[0] == f->d_out[0] || f->d_in_adds[0])
        return 0;
    *d_x = f->d_in[0];
    return frame_copy(f, *d_x, f->d_out[0], bytes);
}

int part_finish_gradient(struct zinf_frame *f, int64_t hidden, const void *d_x)
{
    struct zinf_residual args = {
        .dtype = f->compute->dtype,
        .n = frame_rows(f) * hidden,
        .x = f->d_in[0],
        .r = d_x,
        .y = f->d_in[0],
    };
    return f->d_in[0] && f->d_in[0] != d_x ? frame_residual(f, &args) : 0;
}

struct zinf_norm part_norm(const struct zinf_frame *f, const struct norm_spec *s, int64_t hidden,
                           const void *x, float *mean, float *rstd)
{
    return (struct zinf_norm){
        .kind = s->kind,
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .cols = hidden,
        .eps = s->eps,
        .x = x,
        .w = frame_weight(f, 0, s->w),
        .b = frame_weight(f, 0, s->b),
        .mean = mean,
        .rstd = rstd,
    };
}

int part_norm_backward(struct zinf_frame *f, const struct norm_spec *s, struct zinf_norm args,
                       const void *dy, void *d_x)
{
    args.y = NULL;
    args.dy = dy;
    args.dx = d_x;
    args.beta_dx = 1;
    args.dw = frame_grad(f, 0, s->w);
    args.db = frame_grad(f, 0, s->b);
    return frame_norm_backward(f, &args);
}
