/*
 * state_access: a unit's master weights and moments as plain fp32 arrays, wherever they live.
 * Checkpoints stand on these three calls alone, so they know nothing of sub-groups, of how a master
 * is cut in two, or of updates that are still to be done.
 */
#include "train/transfer.h"

int trainer_settle(struct zinf_trainer *t)
{
    (void)t; /* a step has made its update when it returns */
    return 0;
}

int trainer_state_read(struct zinf_trainer *t, uint32_t unit, int which, float *flat)
{
    const struct zinf_layout_unit *u = &t->layout.units[unit];
    int code = 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++) {
        const struct zinf_layout_group *group = &t->layout.groups[g];
        struct zinf_location where = zinf_tiers_group_state(t->tiers, g);
        uint64_t bytes = group->n * sizeof(float);
        code = zinf_location_read(t->tiers, t->device, t->queues[ZINF_LANE_D2H], &where,
                                  (uint64_t)which * bytes, flat + group->first, bytes);
    }
    return code;
}

/* The rank's slice of the unit's parameters, rounded from the master. */
static int write_param(struct zinf_trainer *t, uint32_t unit, const float *flat)
{
    const struct zinf_layout_unit *u = &t->layout.units[unit];
    struct zinf_location where = zinf_tiers_param(t->tiers, unit);
    uint64_t width = zinf_dtype_bytes(t->dtype);
    const void *packed = flat;
    if (t->dtype != ZINF_DTYPE_F32) {
        packed = trainer_region(t).packed;
        zinf_convert((void *)packed, t->dtype, flat, ZINF_DTYPE_F32, u->slice_elems);
    }
    return zinf_location_write(t->tiers, t->device, t->queues[ZINF_LANE_H2D], &where,
                               u->slice_first * width, packed, u->slice_elems * width);
}

int trainer_state_write(struct zinf_trainer *t, uint32_t unit, int which, const float *flat)
{
    const struct zinf_layout_unit *u = &t->layout.units[unit];
    int code = 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++) {
        const struct zinf_layout_group *group = &t->layout.groups[g];
        struct zinf_location where = zinf_tiers_group_state(t->tiers, g);
        uint64_t bytes = group->n * sizeof(float);
        code = zinf_location_write(t->tiers, t->device, t->queues[ZINF_LANE_H2D], &where,
                                   (uint64_t)which * bytes, flat + group->first, bytes);
    }
    return code || which ? code : write_param(t, unit, flat);
}
