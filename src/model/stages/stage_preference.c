/*
 * stage_preference: pairs of samples from their tokens' losses. What is small is done by one
 * operation each way. Where sequences come in chunks, a call sees one chunk of one sample: it tells
 * the losses, and takes the gradients that follow once all chunks have told theirs.
 */
#include "model/model.h"
#include "model/stages/stages.h"

static struct zinf_preference args_of(const struct zinf_frame *f)
{
    const struct zinf_model_preference *s = f->stage->spec;
    const bool scores = s->kind == ZINF_PREFERENCE_REWARD;
    const float *reference = f->stage->in.n > 3 ? f->in[3] : NULL;
    return (struct zinf_preference){
        .kind = s->kind,
        .beta = s->beta,
        .margin = s->margin,
        .smoothing = s->smoothing,
        .center = s->center,
        .desirable = s->desirable,
        .undesirable = s->undesirable,
        .pairs = f->compute->batch / 2,
        .seq = scores ? 1 : f->compute->seq,
        .losses = f->in[0],
        .targets = scores ? NULL : f->in[1],
        .margins = scores ? f->in[1] : NULL,
        .labels = f->in[2],
        .reference = s->given ? NULL : reference,
        .sums = s->given ? reference : NULL,
    };
}

static int forward(struct zinf_frame *f)
{
    struct zinf_preference args = args_of(f);
    args.loss = f->out[0];
    args.rewards = f->out[1];
    return frame_preference(f, &args);
}

static int backward(struct zinf_frame *f)
{
    struct zinf_preference args = args_of(f);
    args.d_losses = f->d_in[0];
    args.scale = f->loss_scale;
    return args.d_losses ? frame_preference(f, &args) : 0;
}

const struct zinf_stage_ops zinf_stage_preference = {
    .name = "preference",
    .forward = forward,
    .backward = backward,
};

/* ---- sequences in chunks ---- */

enum { IN_MADE, IN_PULLS };
enum { OUT_LOSS, OUT_REWARDS, OUT_TOLD };

static uint64_t made_bytes(const struct zinf_frame *f)
{
    return zinf_value_bytes(f->compute, &f->graph->values[f->stage->in.at[IN_MADE]]);
}

static int tell(struct zinf_frame *f)
{
    return frame_copy(f, f->out[OUT_TOLD], f->in[IN_MADE], made_bytes(f));
}

static int pull(struct zinf_frame *f)
{
    return f->d_in[IN_MADE] ? frame_copy(f, f->d_in[IN_MADE], f->in[IN_PULLS], made_bytes(f)) : 0;
}

const struct zinf_stage_ops zinf_stage_told_pairs = {
    .name = "told pairs",
    .forward = tell,
    .backward = pull,
    .backward_without_inputs = true,
};
