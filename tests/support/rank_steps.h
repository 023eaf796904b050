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

/* Of so many groups of ranks each takes a sample in turn. */
static inline void deal_rows(int32_t *rows, int samples, uint32_t group, uint32_t groups)
{
    int32_t all[MOST_ROWS];
    memcpy(all, rows, sizeof all);
    for (int i = 0; i < samples; i++)
        memcpy(rows + i * trainings.seq, all + ((uint32_t)i * groups + group) * trainings.seq,
               (size_t)trainings.seq * sizeof *rows);
}

/* setting: of one rank. step: whose tokens are drawn, from 0. */
static inline int share_step(const struct setting *setting, const struct zinf_net *net,
                             struct zinf_trainer *t, uint64_t step, struct zinf_step_result *result)
{
    int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    struct setting whole = *setting;
    const struct zinf_net_place at = zinf_net_place(net);
    const uint32_t sharing = setting->sharing ? (uint32_t)setting->sharing : 1;
    const int samples = setting->accumulation * trainings.batch;
    int64_t first = (int64_t)at.rank * samples * trainings.seq;
    whole.accumulation *= (int)(at.world / sharing);
    draw_tokens(&whole, step, ids, targets);
    if (setting->in_blocks) {
        first = (int64_t)(at.rank / sharing) * samples * trainings.seq;
    } else if (setting->sharing) { /* of parts of sequences samples are dealt one by one */
        deal_rows(ids, samples, at.rank / sharing, at.world / sharing);
        deal_rows(targets, samples, at.rank / sharing, at.world / sharing);
        first = 0;
    }
    if (setting->rows)
        shorten(setting, ids + first, targets + first);
    struct zinf_batch batch = {
        .inputs = {[ZINF_INPUT_IDS] = ids + first, [ZINF_INPUT_TARGETS] = targets + first}};
    say_lengths(setting, &batch);
    return zinf_trainer_step(t, &batch, result);
}

#endif
