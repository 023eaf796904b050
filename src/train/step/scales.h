/*
 * scales: what decides how far a step goes: the learning rate by the schedule of the configuration,
 * and the factor on the loss that keeps fp16's gradients within range. Pure functions of what they
 * are given; a checkpoint holds the loss scale.
 */
#ifndef ZINF_TRAIN_SCALES_H
#define ZINF_TRAIN_SCALES_H

#include "config/config.h"

/* ---- learning rate: deepspeed-style schedules, stepped once per applied update ---- */

/* lr (and, for OneCycle with cycle_momentum, beta1 and beta2) for the update after n_applied
 * updates; base_lr is the optimizer's lr. Formulas: DeepSpeed's lr_schedules. */
struct zinf_lr {
    double lr;
    double beta1, beta2; /* < 0: the optimizer's own */
};
struct zinf_lr zinf_lr_at(const struct zinf_config_scheduler *scheduler, double base_lr,
                          uint64_t n_applied);

/* ---- loss scaling: DeepSpeed's dynamic algorithm, exactly ---- */

struct zinf_loss_scale {
    double scale;
    bool dynamic, consecutive;
    int64_t window, hysteresis, hysteresis_left;
    double min_scale;
    int64_t iteration, last_overflow;
};
void zinf_loss_scale_init(struct zinf_loss_scale *s, const struct zinf_config_fp16 *fp16);
/* Call after each attempt at a step. -ERANGE: overflow at the smallest scale; the run should stop.
 */
int zinf_loss_scale_update(struct zinf_loss_scale *s, bool overflow);

#endif
