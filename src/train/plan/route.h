/*
 * route: how a unit travels through a step, decided once by the plan from the unit's home. What
 * builds programs, and what counts the memory they need, asks the route and never the tiers
 * themselves: a new way for parameters or gradients is a value here.
 */
#ifndef ZINF_TRAIN_ROUTE_H
#define ZINF_TRAIN_ROUTE_H

#include "train/setup.h"

/* From where a stage's parameters are copied to the device before use. */
enum fetch {
    FETCH_STAYS, /* the device reads them where they are */
    FETCH_FROM_HOST,
    FETCH_FROM_DRIVE,
};
/* Where ranks have slices, what is fetched is the rank's own, and the others' are gathered to it.
 */
/* Where the contributions of a unit's gradient are added up, and their sum is kept. A gradient of
 * one contribution that is updated by at once is nowhere kept. */
enum gradient_way {
    GRADIENT_NONE,
    GRADIENT_SUM_ON_DEVICE,
    GRADIENT_SUM_ON_HOST,
    GRADIENT_SUM_ON_DRIVE,
};
enum update_way {
    UPDATE_NONE,
    UPDATE_IN_PLACE,
    UPDATE_THROUGH_SLOT, /* of host memory, where a part of it is on the drive or out of reach */
};
enum norm_way {
    NORM_BY_CPU,
    NORM_BY_DEVICE, /* parts of the sum of squares there, their sum on the CPU */
};

struct route {
    enum fetch fetch;
    bool in_files; /* FROM_DRIVE: as the model's folder has it, and put together in host memory */
    bool gathered; /* slices of all ranks make the unit */
    bool spread;   /* ranks have it whole, and each its slice of the update: that goes to all */
    enum gradient_way gradient;
    enum norm_way norm; /* of a sum on the device */
    enum update_way update;
    enum zinf_lane update_lane; /* HOST, or DEVICE where it has the state */
    /* What comes and goes through the update's slot beside state on the drive. The CPU cannot
     * reach it where it is: */
    bool param_out_of_reach, grad_out_of_reach;
    bool grad_in_place; /* the first contribution is computed where the sum is */
    bool
        eager; /* may be updated before the norm is known: that can be taken back, or need not be */
};

/* Of the unit with this home. */
struct route route_of(const struct setup *setup, uint32_t unit, const struct zinf_home *home);

#endif
