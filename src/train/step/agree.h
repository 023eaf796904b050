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

/* The sums that a step's program computes. */
struct step_sums {
    /* [lane]: of the gradient's squares, a sum for each lane, which runs in its own thread */
    struct exact_sum squares[ZINF_LANES];
    double norm_squares, loss, other_losses; /* of all ranks; losses are sums over rows */
    struct zinf_rewards rewards;
};

/* *count: this rank's targets of a step; becomes the number of all ranks. -EINVAL: the ranks'
 * samples differ in length. */
int agree_count(const struct zinf_trainer *t, uint64_t *count);
/* Call after a program with gradients. Fills t->sums with the sums of all ranks, and sets
 * t->give_up if any rank has given up speculation. */
int agree_step(struct zinf_trainer *t);
/* Fills t->sums.rewards from the step's preference pairs of all ranks. */
int agree_rewards(struct zinf_trainer *t);
/* With pipeline parallelism, clears s->durable (steps survive the end of the process) unless it is
 * set on all ranks. */
int agree_durability(struct setup *s);
/* Makes rank 0's variant that of all ranks, since each may know other speeds. If another rank, in
 * this process or elsewhere, has no room for it, all take the usual variant. *variant: what this
 * rank's search has found. */
int agree_variant(const struct setup *s, struct variant *variant);
/* Makes rank 0's rates those of all ranks, so that simulations give the same result; with pipeline
 * parallelism only among ranks that have the same stages. */
int agree_rates(struct zinf_trainer *t);
/* Chooses the schedule by the rates (plan_schedules). Ranks with different stages or different
 * groups of chunks may find different schedules best: all take the least of these, which every rank
 * can run. */
int agree_schedule(struct zinf_trainer *t);
/* Fills t->all with what the plans of all ranks need of memory. */
int agree_planned(struct zinf_trainer *t);
/* Sets *flag on all ranks if any rank has set it. */
int agree_flag(const struct zinf_trainer *t, bool *flag);
/* Compares the ranks' programs. Fails if they would not run the same collectives in the same order.
 */
int agree_programs(struct zinf_trainer *t);
/* Chooses the schedule anew and compares the programs. Ranks may have other shares of a sub-group,
 * such as whole matrices, so that the same rates put their exchanges in other orders: then all keep
 * to the rates by which the programs were put in order before, and to their order. */
int agree_plan(struct zinf_trainer *t);
#endif
