/*
 * agree: what ranks must decide alike, and find out from numbers that each has a part of: how many
 * targets a step has, its loss, its norm, whether speculation failed, and by which rates the lanes
 * are ordered. With setup.exact such sums are made without rounding, on one rank too, so that they
 * do not depend on how samples and elements are dealt to ranks. In the trainer's thread, between
 * programs.
 */
#ifndef ZINF_TRAIN_AGREE_H
#define ZINF_TRAIN_AGREE_H

#include "train/step/exact_sum.h"
#include "train/setup.h"

struct variant;
struct zinf_trainer;

/* What a step's program leaves. */
struct step_sums {
    /* [lane] of the gradient's blocks: lanes do not share */
    struct exact_sum squares[ZINF_LANES];
    double norm_squares, loss, other_losses; /* agreed; losses are sums */
    struct zinf_rewards rewards;
};

/* Of all ranks, which must have taken samples of one length: -EINVAL. */
int agree_count(const struct zinf_trainer *t, uint64_t *count);
/* After a program with gradients: fills t->sums, and t->give_up where any rank has given up. */
int agree_step(struct zinf_trainer *t);
/* Of the step's pairs, of all ranks: fills t->sums.rewards. */
int agree_rewards(struct zinf_trainer *t);
/* Whether steps outlive the process: of all ranks or of none, where these have other stages. */
int agree_durability(struct setup *s);
/* Rank 0's choice becomes everybody's, from whatever speeds each knows; the usual one does where
 * another process has no room for that. */
int agree_variant(const struct setup *s, struct variant *variant);
/* Rank 0's rates become everybody's: what is simulated by them comes out alike. */
int agree_rates(struct zinf_trainer *t);
/* Chooses the schedule by the rates (plan_schedules). Ranks that have other stages, or look at
 * other groups of chunks, may each find another one best: all take the least of them, which every
 * rank can have. */
int agree_schedule(struct zinf_trainer *t);
/* *flag: whether any rank says so. What a rank expects of a step depends on what its own rows
 * choose. */
int agree_flag(const struct zinf_trainer *t, bool *flag);
/* -EINVAL where the ranks' programs would not meet in the same collectives. */
int agree_programs(struct zinf_trainer *t);
#endif
