/*
 * way: how what a step needs gets to where it is needed. A *way* is a list of *legs*, each of which
 * is one operation that brings something from one place to another. Four ways belong to a unit: its
 * parameters to the device (fetch), a gradient to the sum that is kept (contribution), its state
 * and parameters through an update, and updated slices to all ranks (spread). A value that lives
 * elsewhere between forward and backward has one out and one back.
 *
 * Ways are made here alone, by pure functions of a home and of what all ways of a plan have in
 * common. Who builds programs emits legs and asks nothing else; who counts memory looks at the
 * places that the same legs touch. A new way is a few legs here, and one entry of `reach`.
 *
 * Weights in 4 bits become numbers on no leg: a stage unpacks a matrix at a time just before it
 * multiplies with it; as a leg this would take a unit's plain size in every slot. Where the device
 * has room for that size once, matrices stay there while calls of one unit follow each other.
 */
#ifndef ZINF_TRAIN_WAY_H
#define ZINF_TRAIN_WAY_H

#include "train/op.h"
#include "train/setup.h"

/* Where a leg begins or ends. Homes are where a thing lives, by the plan. */
enum waypoint {
    PARAM_HOME,
    PARAM_SLOT,     /* on the device, where stages read them */
    PARAM_STAGING,  /* in host memory, on the way there or to other ranks */
    FILE_STAGING,   /* as the model's folder has them */
    PACKED_STAGING, /* as the drive has them packed, a sub-group at a time, */
    PACKED_SLOT,    /* and on the device */
    CODE_STAGING,   /* an image with matrices as codes of 8 bits, in host memory, */
    CODE_SLOT,      /* and on the device */
    IMAGE_HOME,     /* that image on the drive, beside the parameters */
    PARAM_UPDATED,  /* a whole unit's parameters after its update, in host memory, to make it of */
    PARAM_TAIL,     /* what RAM has no room for of parameters that are packed there, on the drive */
    PARAM_BACKING,  /* a copy on the drive, which no step reads unless it is taken back */
    PARAM_TILE,     /* host memory of a sub-group's update, in three parts */
    COPY_TILE,      /* there, a copy of parameters as it is packed */
    STATE_HOME,
    STATE_TAIL, /* what RAM has no room for of state that is packed there, on the drive */
    STATE_TILE,
    GRAD_HOME,
    GRAD_SLOT,    /* on the device, where a stage makes it */
    GRAD_SLOT_2,  /* and one more there */
    GRAD_PACKED,  /* in host memory, packed, a sub-group at a time */
    GRAD_STAGING, /* in host memory */
    SUM_STAGING,  /* and the sum that it is added to */
    GRAD_TILE,
    SQUARES,         /* parts of the sum of a gradient's squares, on the device */
    SQUARES_STAGING, /* and in host memory */
    VALUE_HOME,
    VALUE_SLOT,
    VALUE_STAGING,
    WAYPOINTS,
    NOWHERE = WAYPOINTS,
};
/* How much of the unit is there. */
enum portion {
    WHOLE,
    SLICE, /* this rank's, where it is in the whole */
    ALONE, /* this rank's, and nothing else */
};
struct end {
    enum waypoint place;
    enum portion portion;
};
struct leg {
    enum zinf_lane lane;
    uint16_t kind;            /* of op.h */
    enum zinf_axis_kind axis; /* of NET: whose ranks meet on it */
    struct end from, to;
};
/* The longest is the contribution that is the last one to a sum on a GPU and is used at once: out,
 * summed with other ranks', in, added, its squares taken, these out and folded, and the sum out
 * again. Ways of seven are an update of which everything is on the drive (three reads, the step,
 * three writes). None is put together of shorter ones: each leg is an operation of its own lane. */
#define MAX_LEGS 8
struct legs {
    struct leg leg[MAX_LEGS];
    int n;
    struct end end;    /* where the thing is at last; without legs, where it was */
    struct end by_cpu; /* of a fetch: the last place on it that the CPU reads; or NOWHERE */
};

/* What all ways of a plan have in common. */
struct travel {
    bool reach[ACTORS][MEMORIES];
    bool backward, updates; /* there are such */
    bool several;           /* other ranks add to gradients, */
    bool cut;               /* of which each rank keeps a slice, */
    bool for_all;           /* or all of the sum, since its update is of whole tensors */
    bool sliced;            /* a rank has its slice of parameters alone */
    bool own_kernels;       /* the device updates, adds and takes norms by kernels of its own */
    bool reads_params;      /* updates do: they are the masters, or half of them */
    bool device_adds;       /* sums that are kept in RAM are added to on the device */
    bool device_unpacks;    /* parameters come to it packed; by a kernel of its own */
};
struct travel travel_of(const struct setup *setup, bool by_link, bool device_adds,
                        bool device_unpacks);

/* Which of its contributions a gradient is, in a step. */
struct turn {
    bool first, last;
    bool eager;   /* the unit is updated as soon as the last is there */
    bool goes_on; /* the sum is added to another one at once */
    bool apart;   /* first of a sum that is not the unit's first: never computed in its place */
};

/* No legs: the device reads them where they are. */
struct legs way_fetch(const struct travel *t, const struct zinf_home *home);
struct legs way_contribution(const struct travel *t, const struct zinf_home *home,
                             struct turn turn);
/* A sum of contributions to another one; way_fold_from: the waypoint where it is said to be. */
struct legs way_fold(const struct travel *t, const struct zinf_home *home, struct turn turn);
enum waypoint way_fold_from(const struct zinf_home *home);
/* Two parts of a contribution, on the device: of what ranks add up, or of the rank's slice. */
struct leg way_join(const struct travel *t);
/* grad: where the sum is, its home for an update that comes late. at_hand: parameters need not be
 * read. */
struct legs way_update(const struct travel *t, const struct zinf_home *home, struct end grad,
                       bool at_hand);
/* Of a unit that is imaged and trained: its image, once all of its sub-groups are updated. */
struct legs way_image(void);
/* No legs: there is nothing to tell other ranks. */
struct legs way_spread(const struct travel *t, const struct zinf_home *home);
/* From the device to a home that is elsewhere, and back. */
struct legs way_value_out(const struct travel *t, enum zinf_tier home);
struct legs way_value_back(const struct travel *t, enum zinf_tier home);

/* Whether the first contribution is computed where the sum is kept. */
bool way_sums_in_place(const struct travel *t, const struct zinf_home *home);
/* The places that a unit's ways may touch in any step, as bits. several: contributions; eager: its
 * update may be. */
uint32_t way_waypoints(const struct travel *t, const struct zinf_home *home, bool trained,
                       bool several, bool eager);
/* Whether ranks meet on the way: then all of them go, or none. */
bool legs_meet(struct legs legs);
uint32_t legs_waypoints(struct legs legs);
static inline bool has_waypoint(uint32_t touched, enum waypoint place)
{
    return touched >> place & 1;
}
static inline bool way_has_tile(uint32_t touched)
{
    return has_waypoint(touched, PARAM_TILE) || has_waypoint(touched, STATE_TILE) ||
           has_waypoint(touched, GRAD_TILE);
}
/* What of a unit is in PARAM_STAGING is the rank's slice alone. */
bool way_stages_slices(const struct travel *t);

#endif
