/* route: from a home to the way there. */
#include "train/plan/route.h"

static enum fetch fetch_of(const struct setup *s, const struct zinf_home *home)
{
    if (home->param == ZINF_TIER_DRIVE)
        return FETCH_FROM_DRIVE;
    if (s->sliced)
        return FETCH_FROM_HOST;
    return home->param == ZINF_TIER_HOST && !s->direct ? FETCH_FROM_HOST : FETCH_STAYS;
}

static enum gradient_way gradient_of(const struct zinf_home *home)
{
    static const enum gradient_way ways[] = {
        [ZINF_TIER_DEVICE] = GRADIENT_SUM_ON_DEVICE,
        [ZINF_TIER_HOST] = GRADIENT_SUM_ON_HOST,
        [ZINF_TIER_DRIVE] = GRADIENT_SUM_ON_DRIVE,
    };
    return home->keeps_grad ? ways[home->grad] : GRADIENT_NONE;
}

/* The state decides who makes the update; what else that needs and is not at hand comes through a
 * slot. */
static void set_update(struct route *r, const struct setup *s, const struct zinf_home *home)
{
    bool by_cpu = home->state != ZINF_TIER_DEVICE, reaches = s->direct || !by_cpu;
    r->update_lane = by_cpu ? ZINF_LANE_HOST : ZINF_LANE_DEVICE;
    r->param_out_of_reach = home->param == ZINF_TIER_DEVICE && !reaches;
    r->grad_out_of_reach = r->gradient == GRADIENT_SUM_ON_DEVICE && !reaches;
    bool on_drive = home->param == ZINF_TIER_DRIVE || home->state == ZINF_TIER_DRIVE ||
                    r->gradient == GRADIENT_SUM_ON_DRIVE;
    r->update = on_drive || r->param_out_of_reach || r->grad_out_of_reach ? UPDATE_THROUGH_SLOT
                                                                          : UPDATE_IN_PLACE;
}

/* A GPU's own update reads the gradient where it was kept. */
static bool is_eager(const struct setup *s, const struct zinf_home *home)
{
    if (s->in_place)
        return home->param != ZINF_TIER_DEVICE || !device_is_far(s);
    return home->generations == 2 && home->param != ZINF_TIER_DEVICE;
}

struct route route_of(const struct setup *s, uint32_t unit, const struct zinf_home *home)
{
    struct route r = {.fetch = fetch_of(s, home),
                      .in_files = home->in_files,
                      .gathered = s->sliced,
                      .gradient = gradient_of(home)};
    bool on_device = r.gradient == GRADIENT_SUM_ON_DEVICE;
    r.norm = on_device && device_is_far(s) ? NORM_BY_DEVICE : NORM_BY_CPU;
    /* the whole unit's gradient is computed, and a rank keeps its slice of it */
    r.grad_in_place = on_device && data_axis(s)->world == 1;
    r.eager = is_eager(s, home);
    r.spread = data_axis(s)->net && !s->sliced && !whole_state(s) && unit_trains(s, unit);
    if (trains(s) && unit_trains(s, unit))
        set_update(&r, s, home);
    return r;
}
