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

/* The places where legs begin and end. A home is the place where a thing lives by the plan. */
enum waypoint {
    PARAM_HOME,
    PARAM_SLOT,     /* on the device, where stages read them */
    PARAM_STAGING,  /* in host memory, on the way there or to other ranks */
    FILE_STAGING,   /* as the model's folder has them */
    PACKED_STAGING, /* as the drive has them packed, one sub-group at a time */
    PACKED_SLOT,    /* the same on the device */
    CODE_STAGING,   /* an image with matrices as codes of 8 bits, in host memory */
    CODE_SLOT,      /* the same on the device */
    IMAGE_HOME,     /* that image on the drive, beside the parameters */
    /* a whole unit's updated parameters in host memory, of which the image is made */
    PARAM_UPDATED,
    PARAM_TAIL,    /* on the drive: the rest of packed parameters that RAM has no room for */
    PARAM_BACKING, /* a copy on the drive, which is read only if a step is taken back */
    PARAM_TILE,    /* host memory of a sub-group's update, in three parts */
    COPY_TILE,     /* in a tile, a copy of parameters while it is packed */
    STATE_HOME,
    STATE_TAIL, /* on the drive: the rest of packed state that RAM has no room for */
    STATE_TILE,
    GRAD_HOME,
    GRAD_SLOT,    /* on the device, where a stage computes it */
    GRAD_SLOT_2,  /* a second one on the device */
    GRAD_PACKED,  /* in host memory, packed, one sub-group at a time */
    GRAD_STAGING, /* in host memory */
    SUM_STAGING,  /* in host memory: the sum that a gradient is added to */
    GRAD_TILE,
    SQUARES,         /* parts of the sum of a gradient's squares, on the device */
    SQUARES_STAGING, /* the same in host memory */
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
    uint16_t kind;            /* enum op_kind */
    enum zinf_axis_kind axis; /* for NET: the axis whose ranks take part */
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
    struct end end;    /* where the thing is after the last leg; without legs, where it was */
    struct end by_cpu; /* for a fetch: the last place on it that the CPU can read; or NOWHERE */
};

/* The facts that all ways of a plan have in common. */
struct travel {
    bool reach[ACTORS][MEMORIES];
    bool backward, updates; /* whether there are such passes */
    bool several;           /* data parallelism: other ranks add to gradients */
    bool cut;               /* each rank keeps only a slice of the sum of gradients */
    bool for_all;        /* every rank keeps all of a sum, since its update needs whole tensors */
    bool sliced;         /* a rank has only its slice of parameters */
    bool own_kernels;    /* the device updates, adds and takes norms by kernels of its own */
    bool reads_params;   /* updates read parameters, which are the master weights or half of them */
    bool device_adds;    /* sums that are kept in RAM are added to on the device */
    bool device_unpacks; /* parameters come to the device packed, and its own kernel unpacks them */
};
struct travel travel_of(const struct setup *setup, bool by_link, bool device_adds,
                        bool device_unpacks);

/* The position of a contribution among those that a unit's gradient has in a step. */
struct turn {
    bool first, last;
    bool eager;   /* the unit is updated as soon as the last contribution is there */
    bool goes_on; /* the sum is added to another one at once */
    bool apart;   /* first of a sum that is not the unit's first: never computed in its place */
};

/* way_fetch: without legs the device reads parameters where they are. way_contribution: a gradient
 * to its sum, which it begins or is added to. */
struct legs way_fetch(const struct travel *t, const struct zinf_home *home);
struct legs way_contribution(const struct travel *t, const struct zinf_home *home,
                             struct turn turn);
/* way_fold adds a sum of contributions to another sum; it expects the former at way_fold_from. */
struct legs way_fold(const struct travel *t, const struct zinf_home *home, struct turn turn);
enum waypoint way_fold_from(const struct zinf_home *home);
/* The leg that adds one part of a contribution to another part, on the device. */
struct leg way_join(const struct travel *t);
/* grad: where the sum of gradients is; for a late update that is its home. at_hand: parameters need
 * not be read. */
struct legs way_update(const struct travel *t, const struct zinf_home *home, struct end grad,
                       bool at_hand);
/* For a trained unit with an 8-bit image on the drive: makes and writes the image, after all of its
 * sub-groups are updated. */
struct legs way_image(void);
/* Brings updated slices to all ranks. Without legs no other rank needs them. */
struct legs way_spread(const struct travel *t, const struct zinf_home *home);
/* Brings a value from the device to its home on another tier, and back. */
struct legs way_value_out(const struct travel *t, enum zinf_tier home);
struct legs way_value_back(const struct travel *t, enum zinf_tier home);

/* Whether the first contribution is computed where the sum is kept. */
bool way_sums_in_place(const struct travel *t, const struct zinf_home *home);
/* The places that a unit's ways may touch in any step, one bit for each waypoint. several: it has
 * more than one contribution in a step; eager: its update may be eager. */
uint32_t way_waypoints(const struct travel *t, const struct zinf_home *home, bool trained,
                       bool several, bool eager);
/* legs_meet: whether the legs have a collective operation, which all ranks must run or none.
 * legs_waypoints: the places that the legs touch, as bits. */
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
/* Whether PARAM_STAGING has only the rank's slice of a unit. */
bool way_stages_slices(const struct travel *t);

#endif
