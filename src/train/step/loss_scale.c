/*
 * loss_scale: DeepSpeed's dynamic loss scale. Hysteresis is not refilled by a drop, only by growth
 * (or by every good step when consecutive); the first growth is after exactly window good steps.
 */
#include "train/step/scales.h"

#include <math.h>

void zinf_loss_scale_init(struct zinf_loss_scale *s, const struct zinf_config_fp16 *fp16)
{
    *s = (struct zinf_loss_scale){.scale = 1, .last_overflow = -1};
    if (!fp16->enabled)
        return;
    s->dynamic = fp16->loss_scale <= 0;
    s->scale = s->dynamic ? ldexp(1, (int)fp16->initial_scale_power) : fp16->loss_scale;
    s->consecutive = fp16->consecutive_hysteresis;
    s->window = fp16->loss_scale_window;
    s->hysteresis = fp16->hysteresis;
    s->hysteresis_left = fp16->hysteresis;
    s->min_scale = fp16->min_loss_scale;
}

static int drop(struct zinf_loss_scale *s)
{
    if (s->hysteresis != 1 && s->hysteresis_left != 1) {
        s->hysteresis_left--;
        return 0;
    }
    if (s->scale <= s->min_scale)
        return zinf_fail(-ERANGE,
                         "the gradients overflow at the smallest loss scale (%g): lower lr, use "
                         "bf16, or lower fp16.min_loss_scale",
                         s->min_scale);
    s->scale = fmax(s->scale / 2, s->min_scale);
    return 0;
}

int zinf_loss_scale_update(struct zinf_loss_scale *s, bool overflow)
{
    int code = 0;
    if (!s->dynamic)
        return 0;
    if (overflow) {
        code = drop(s);
        s->last_overflow = s->iteration;
    } else {
        if (s->consecutive)
            s->hysteresis_left = s->hysteresis;
        int64_t stable = s->iteration - s->last_overflow - 1;
        if (stable > 0 && stable % s->window == 0) {
            if (!s->consecutive)
                s->hysteresis_left = s->hysteresis;
            s->scale *= 2;
        }
    }
    s->iteration++;
    return code;
}
