/*
 * rank_steps: trainings of trainings.h whose samples are dealt to ranks: the model that they share,
 * and a rank's share of a step.
 */
#ifndef ZINF_RANK_STEPS_H
#define ZINF_RANK_STEPS_H

#include "trainings.h"

/* Small enough that eight ranks train it in a second. */
static inline void begin_rank_trainings(const char *name, int steps)
{
    begin_trainings(name, &(struct trainings){.shape = {.arch = "gpt2",
                                                        .layers = 2,
                                                        .hidden = 64,
                                                        .heads = 4,
                                                        .vocab = 500,
                                                        .context = 16},
                                              .steps = steps,
                                              .seq = 8,
                                              .batch = 2,
                                              .sub_group = 8192});
}

/* setting: of one rank. step: whose tokens are drawn, from 0. */
static inline int share_step(const struct setting *setting, const struct zinf_net *net,
                             struct zinf_trainer *t, uint64_t step, struct zinf_step_result *result)
{
    int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    struct setting whole = *setting;
    struct zinf_net_place at = zinf_net_place(net);
    whole.accumulation *= (int)at.world;
    draw_tokens(&whole, step, ids, targets);
    int64_t rows = (int64_t)setting->accumulation * trainings.batch * trainings.seq;
    struct zinf_batch batch = {.inputs = {[ZINF_INPUT_IDS] = ids + at.rank * rows,
                                          [ZINF_INPUT_TARGETS] = targets + at.rank * rows}};
    return zinf_trainer_step(t, &batch, result);
}

#endif
