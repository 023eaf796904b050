/*
 * plan: what is where, decided before anything is taken. A plan is a function of a setup and a
 * variant and of nothing else: a training, an estimate and the search for the best variant all make
 * theirs by plan_make, and from the same facts it makes the same bytes. It is *amounts* (how far
 * to look ahead, which blocks keep their activations, ...), the *lines* of memory that follow from
 * it, with their places in the device's and the host's arena, and the programs of a step
 * (step/step.h builds them).
 *
 * A plan owns what it points to, but for its setup and the setup's store. Until a trainer has taken
 * the arenas and says where they are (plan_place), addresses are numbers that nobody may follow.
 * Made, changed and ended by one thread; others may read it meanwhile.
 */
#ifndef ZINF_TRAIN_PLAN_H
#define ZINF_TRAIN_PLAN_H

#include "train/op.h"
#include "train/plan/itinerary.h"
#include "train/plan/way.h"
#include "train/setup.h"

#define MAX_LOOK_AHEAD 16
#define MOST_AHEAD 64 /* of variants, and */
#define SLOT_SIZES 4  /* sizes of their parameter slots, at most */
#define MAX_STATE_SLOTS 16
#define GRAD_STAGINGS 3   /* gradients on their way to or from their sum, on the host */
#define X_SLOTS 4         /* values on the device that live elsewhere, at least */
#define X_STAGINGS 3      /* and on their way between it and the drive */
#define FILE_STAGINGS 2   /* units as files have them, on their way from these */
#define PACKED_STAGINGS 4 /* sub-groups as a drive has them, on their way */
#define CODE_STAGINGS 2   /* units whose matrices are codes, on their way, on either side */
#define CACHE_SLOTS 2     /* caches of stages on the device that live elsewhere */
#define CARRIED_SLOTS 3   /* groups of chunks on the device of what a stage carries */
#define EXCHANGED 2       /* chunks of all ranks in RAM, on their way between drives */

/* How much of each thing the budgets take. */
struct amounts {
    int look_ahead; /* parameter slots on the device less one, of each size */
    /* 0: slots are as large as the largest unit. Else there are several sizes, with as many bytes
     * together as so many of the largest units have, at least. */
    int ahead;
    int grad_slots;  /* gradients on the device */
    int state_slots; /* sub-groups under way */
    int n_kept;      /* recomputing stages, from the last, that keep their activations instead */
    int n_own;       /* units that have a device slot of their own, in walk's own_order */
    bool numbers; /* what one unit has quantised stays as numbers while its calls follow another */
    bool whole;   /* the last sweep's units all on the device: its visits are one call */
    int n_host_params;   /* units whose parameters the host budget takes, from unit 0 */
    int n_host_states;   /* units whose optimizer state it takes */
    int n_host_grads;    /* layers whose kept gradients it takes */
    int n_host_pairs;    /* layers whose state in RAM has two generations, */
    bool all_pairs;      /* and whether that of all other units has */
    int n_device_states; /* units whose state the device takes, from unit 0 */
    int n_device_grads; /* layers whose gradients stay on the device: the first, where they are sums
                         * of several micro-batches', else the last */
    bool host_tables;   /* gradients of units that are no layers are in RAM */
    bool host_cache;    /* of continued sequences: in RAM, a stage's at a time on the device */
};

/* What a search varies; what a plan starts from. */
struct variant {
    bool micro_major; /* where the order of micro-batches is free */
    bool by_link;     /* ranks' GPUs gather units and add gradients among themselves */
    bool device_adds; /* sums of gradients that are kept in RAM are added to on the device */
    bool x_on_host;   /* values between stages are in RAM even if the device has room for them */
    /* Parameters in RAM whose state is on the drive exist once, with a copy on the drive: fewer
     * bytes of RAM for more that are written. */
    bool overwrites;
    bool packs_ram;      /* what of the drive is packed is so in RAM: optimizer state, */
    bool packs_fronts;   /* parameters */
    bool packs_frozen;   /* and those of a model that is frozen, on the drive too; */
    bool device_unpacks; /* packed parameters are unpacked by a device that is not the CPU */
    bool codes; /* parameters go to the device with matrices as codes, where these are used so; */
    bool updates_codes;  /* where trained ones are on the drive, updates write them so, too */
    enum packing packs;  /* what of the drive is packed */
    int ahead;           /* amounts.ahead, at most */
    int host_grads_part; /* at first, the host budget takes one in so many layers' gradients */
    int device_grads;    /* and the device budget so many quarters of their sums, */
    int device_states;   /* and so many quarters of the units' optimizer state */
    int host_quarters;   /* steps of a quarter of an octave by which the host budget is lowered */
    int host_states; /* the host budget so many quarters, at most, of the states it has room for */
};

/* A sort of home, by all that ways go by, and what these may touch: plan_places.c. */
struct way_sort {
    uint32_t sort, waypoints;
};
#define WAY_SORTS 32 /* that are kept; a plan has few */
/* What is known of a unit's ways before any is made. */
struct way {
    bool fetched; /* its parameters come to the device before use */
    bool eager;   /* its update may be made before the norm is known: it can be taken back, or need
                   * not be */
    uint32_t waypoints; /* that its ways may touch, as bits */
};

/* Offsets in the device ("d_") and host ("h_") arenas, filled from the lines. */
struct places {
    uint64_t d_packed, d_damage, h_damage; /* of parameters that the device unpacks */
    uint64_t d_codes, h_codes, h_images, h_updated;
    uint64_t d_slots, d_own, d_grad_slots, d_beside_slots, d_inputs, d_losses, d_x, d_staying,
        d_kept, d_kept_always, d_working, d_scratch, d_row, d_workspace, d_gradients, d_whole_grads,
        d_squares, d_lists, d_rows, d_cache, d_reference, d_reference_kept, d_link, d_carried,
        d_carried_gradient, d_handed, d_numbers;
    uint64_t h_carried, h_carried_gradient, h_exchanged;
    uint64_t h_rows, h_cache;
    uint64_t h_unpacked, h_update, h_inputs, h_losses, h_scalars, h_row, h_x, h_x_staging,
        h_param_staging, h_files, h_packed, h_packed_grads, h_grad_staging, h_tiles, h_transfer,
        h_background, h_squares, h_lists, h_choice, h_shared, h_border;
};

/* Slots of parameters for units of up to that size. */
struct slot_size {
    uint64_t bytes;
    uint64_t staging;   /* the same in host memory, or of the slice that is lent of a unit */
    uint32_t least;     /* that one stage has at hand at once */
    uint32_t n_units;   /* of that size, */
    uint64_t all_bytes; /* and what they have together */
};
struct trainer_sizes {
    uint64_t grad_slot;             /* of the largest unit that is trained */
    uint64_t beside_slot;           /* of the largest that is trained and stands beside others */
    uint64_t grad_staging;          /* of the largest gradient that goes by the host */
    uint64_t tile;                  /* a sub-group under way: parameters, state, gradient */
    uint64_t tile_state, tile_grad; /* offsets in it */
    uint64_t tile_most;             /* its size where it has a gradient */
    uint64_t link;                  /* others' parts of a gradient, where GPUs are linked */
    uint64_t border;                /* of the largest value that goes to another rank */
    uint64_t transfer;              /* what loading and saving need on the host */
};

/* What is where, and the programs that follow from it. */
struct plan {
    const struct setup *setup; /* borrowed */
    struct variant variant;
    enum zinf_tier x_tier;
    struct itinerary itinerary; /* of a step */
    bool one_by_one; /* of its programs at most one is at hand while a schedule is chosen */
    /* Units that rows choose among are fetched only where they are chosen */
    bool chosen_forward, chosen_backward;
    /* [n_leaving][itinerary.live], x_tier DRIVE; behind them [n_places] where gradients leave */
    zinf_extent *x_extents;
    /* What a stage carries from chunk to chunk is on the device in groups of so many chunks, all of
     * them where that has room; else it lives in x_tier, each home in an extent: [carried_homes],
     * then those of gradients. */
    int64_t carried_span;
    bool carried_near;
    zinf_extent *carried_extents;
    zinf_extent *files;      /* [n_units]: of what is read from the model's folder; NULL: none */
    struct zinf_home *homes; /* [n_units] */
    struct slot_size slots[SLOT_SIZES]; /* the largest first, [n_slot_sizes] */
    uint32_t n_slot_sizes;
    uint8_t *slot_size;               /* [n_units]: a unit's, among those */
    struct travel travel;             /* what the ways of all units have in common */
    struct way_sort sorts[WAY_SORTS]; /* that were asked for, [n_sorts] */
    uint32_t n_sorts;
    struct way *ways;   /* [n_units]: what follows of homes and that */
    uint32_t waypoints; /* that any unit's ways may touch, as bits */
    struct zinf_tiers *tiers;
    struct zinf_store *store;   /* the setup's, or counted; NULL: nothing is on a drive */
    struct zinf_store *counted; /* extents alone */
    struct zinf_ledger *ledger;
    struct amounts amounts;
    bool filling; /* while amounts are sought: fitting is to leave the system its part of RAM */
    struct places at;
    struct trainer_sizes sizes;
    char *device_base, *host_base;
    uint64_t host_bytes;

    double *norm_parts; /* [n_groups] sums of squares, in the host's arena */

    /* gradients: all kept. drain: updates of all units that are pending. wait: drain, then
     * gradients. speculate: drain of the deferred units, then gradients with the others' updates,
     * which in place are for good. */
    struct zinf_program gradients, drain, wait, speculate, forward, logits;
    struct zinf_program sweep; /* of embeddings: forward of all micro-batches, before gradients */
    /* Parameters that stay into slots of their own, once before all others. Without a backward: new
     * rows of sequences that are continued, and with sources that come with them. */
    struct zinf_program fill, decode, decode_sources;
    enum schedule schedule; /* in use, from the second step on */
    uint8_t *deferred;      /* [n_units]: updated in the next step when speculating */
    struct zinf_rates rates;
    double planned_seconds;   /* when the schedule was chosen, what it was to take */
    double predicted_seconds; /* of a step; 0: not known */
    double predicted_rest;    /* of one in which speculation rests */
};

/* search.c: the variant whose simulated step is shortest by the speeds that the options name. plan
 * (may be NULL) becomes its plan, with programs by these speeds, if one was made: its setup is set
 * then, and it is to be ended. */
void plan_search(const struct setup *setup, struct variant *best, struct plan *plan);
/* What a search begins with, and what stays where nothing else is shorter. */
struct variant plan_usual(const struct setup *setup);
/* plan_operations.c: all of a plan but its programs. Adds extents to the setup's store, if it has
 * one: once. -ENOMEM where it does not fit: the message is the table and names the keys to change.
 * After a failure there is nothing to end. */
int plan_make(struct plan *out, const struct setup *setup, const struct variant *variant);
void plan_fini(struct plan *p);
/* Of the first step, which runs one operation at a time. */
static inline enum schedule plan_first_schedule(const struct setup *setup)
{
    return setup->in_place ? SCHEDULE_UPDATE_IN_PLACE : SCHEDULE_SERIAL;
}
/* Whether micro-batches go through the layers together, if there is room. */
bool plan_is_layer_major(const struct setup *setup, const struct variant *variant);
/* Chunks of a group of what stages carry; groups; how many are on the device at once. */
static inline int64_t carried_span(const struct plan *p)
{
    return p->carried_span ? p->carried_span : p->setup->n_chunks;
}
static inline uint32_t carried_groups(const struct plan *p)
{
    return (uint32_t)((p->setup->n_chunks + carried_span(p) - 1) / carried_span(p));
}
static inline uint32_t carried_slots(const struct plan *p)
{
    return carried_groups(p) > CARRIED_SLOTS ? CARRIED_SLOTS : carried_groups(p);
}
/* Where it lives if the device has groups of it: with the values that leave, or nearer. */
static inline enum zinf_tier carried_tier(const struct plan *p)
{
    return p->carried_near ? ZINF_TIER_HOST : p->x_tier;
}
/* Whether ranks bring together what does not live on the device. */
static inline bool plan_shares_homes(const struct plan *p)
{
    return in_parts(p->setup) && carried_groups(p) > 1;
}
/* Whether GPUs bring together by themselves what lives on them. */
static inline bool plan_links_keys(const struct plan *p)
{
    return p->variant.by_link && context_axis(p->setup)->world > 1 && !plan_shares_homes(p);
}
/* Where groups leave the device, a group has one home, its chunks one behind the other. What ranks
 * bring together has homes of single chunks, by their places, and for its gradient as many again
 * for each part that this rank has. */
static inline uint64_t carried_homes(const struct plan *p, bool gradient)
{
    const uint64_t n = in_parts(p->setup) ? (uint64_t)p->setup->n_chunks : carried_groups(p);
    return n * (gradient ? (uint64_t)setup_own_parts(p->setup) : 1);
}
static inline uint64_t carried_home_bytes(const struct plan *p, bool gradient)
{
    const int64_t chunks = in_parts(p->setup) ? 1 : carried_span(p);
    return (uint64_t)chunks * p->setup->walk.carried[gradient];
}
/* A chunk of each rank, or its gradient; or two of this rank's that are added. 0: nothing of ranks
 * is on drives. */
static inline uint64_t plan_exchanged_bytes(const struct plan *p)
{
    const uint64_t ranks = context_axis(p->setup)->world, *carried = p->setup->walk.carried;
    const bool goes =
        plan_shares_homes(p) && has_backward(p->setup) && carried_tier(p) == ZINF_TIER_DRIVE;
    const uint64_t most = carried[0] > carried[1] ? carried[0] : carried[1];
    return goes ? (ranks > 2 ? ranks : 2) * most : 0;
}
/* What it is, in words. */
static inline const char *plan_carried_name(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    return !w->hands_over  ? "keys and values of chunks"
           : w->carried[1] ? "keys, values and states of chunks"
                           : "states of chunks";
}
/* Of a group, or of its gradient. */
static inline uint64_t carried_group_bytes(const struct plan *p, bool gradient)
{
    return (uint64_t)carried_span(p) * p->setup->walk.carried[gradient];
}
/* Of all that a slot has: of gradients that stay, one for each part that this rank has. */
static inline uint64_t carried_slot_bytes(const struct plan *p, bool gradient)
{
    const int64_t parts = gradient && carried_groups(p) == 1 ? setup_own_parts(p->setup) : 1;
    return (uint64_t)parts * carried_group_bytes(p, gradient);
}
/* How many chunks before its own a chunk of the stage looks at; the groups that it looks at are
 * [first, own]. */
static inline int64_t carried_back(const struct plan *p, uint32_t stage)
{
    const int64_t reach = p->setup->walk.stages[stage].carried_reach, step = p->setup->chunk_seq;
    return reach ? (reach - 1 + step - 1) / step : p->setup->n_chunks;
}
static inline uint32_t carried_first(const struct plan *p, uint32_t stage, int64_t chunk)
{
    const int64_t back = carried_back(p, stage);
    return (uint32_t)(chunk > back ? (chunk - back) / carried_span(p) : 0);
}
/* The first group that computing what a chunk carries looks at. */
static inline uint32_t carried_needs(const struct plan *p, uint32_t stage, int64_t chunk)
{
    const int64_t back = p->setup->walk.stages[stage].hands_over && chunk;
    return (uint32_t)((chunk - back) / carried_span(p));
}
/* The last chunk that looks at a group, with which backward comes to it first. */
static inline int64_t carried_last(const struct plan *p, uint32_t stage, uint32_t group)
{
    const int64_t end = (group + 1) * carried_span(p) - 1 + carried_back(p, stage);
    return end < p->setup->n_chunks ? end : p->setup->n_chunks - 1;
}
/* Whether gradients of values live where values do that leave. */
static inline bool plan_gradients_leave(const struct plan *p)
{
    return has_backward(p->setup) && p->setup->n_chunks > 1 && p->x_tier != ZINF_TIER_DEVICE;
}
/* Things that leave the device between forward and backward: values, then places of gradients. The
 * bytes of those before, of one micro-batch; of the largest. */
static inline uint32_t plan_n_leaving(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    return w->n_leaving + (plan_gradients_leave(p) ? w->n_places : 0);
}
static inline uint64_t plan_leaving_bytes(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    return plan_gradients_leave(p) && w->place_bytes > w->leaving_bytes ? w->place_bytes
                                                                        : w->leaving_bytes;
}
/* And of what goes the same way, by the same staging. */
static inline uint64_t plan_value_staging_bytes(const struct plan *p)
{
    const uint64_t most = plan_leaving_bytes(p);
    const uint64_t *carried = p->setup->walk.carried;
    const uint64_t chunk = carried[0] > carried[1] ? carried[0] : carried[1];
    return carried_groups(p) > 1 && chunk > most ? chunk : most;
}
static inline uint64_t plan_all_leaving_bytes(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    return w->all_leaving_bytes + (plan_gradients_leave(p) ? w->end_bytes + w->turn_bytes : 0);
}
/* Whether they do; and whether all do at once, one micro-batch that is alone too. */
/* Of what the plan's quantised weights are as numbers, a unit at a time. */
uint64_t plan_numbers_bytes(const struct plan *p);
static inline bool goes_together(const struct plan *p)
{
    return p->itinerary.together > 1;
}
static inline bool goes_once(const struct plan *p)
{
    return p->itinerary.together == p->setup->n_micro;
}
/* Contributions that a step makes to a unit's gradient, each a sum over all turns. */
static inline uint32_t plan_grad_turns(const struct plan *p, uint32_t unit)
{
    const struct walk_unit *u = &p->setup->walk.units[unit];
    const uint32_t turns = setup_turns(p->setup) > 1 ? u->uses : u->turns;
    return turns ? turns : 1;
}
/* Memory that unpacking a sub-group's state, parameters or gradient needs. */
static inline uint64_t plan_packed_bytes(const struct plan *p, enum zinf_packable what)
{
    return p->variant.packs >= packing_of(what) ? setup_packed_bytes(p->setup, what) : 0;
}
/* Of the largest sub-group of parameters that a fetch unpacks, if any does; also where a run goes
 * on that has packed less. */
static inline uint64_t plan_packed_fetch_bytes(const struct plan *p)
{
    return p->variant.packs_frozen ? setup_packed_param_bytes(p->setup)
                                   : setup_packed_bytes(p->setup, ZINF_PACKABLE_PARAM);
}
/* A mark for each sub-group, whether the device has found it damaged; 0: it unpacks none. */
static inline uint64_t plan_damage_bytes(const struct plan *p)
{
    return p->waypoints >> PACKED_SLOT & 1
               ? zinf_align_up(p->setup->layout.n_groups * sizeof(uint32_t), ZINF_MEMORY_ALIGN)
               : 0;
}
/* Of the largest image with codes that goes to the device; 0: none does. on_host: of those that
 * have no place of their own in RAM. */
uint64_t plan_code_bytes(const struct plan *p, bool on_host);
/* Of the largest unit whose update makes an image; 0: none does. */
uint64_t plan_updated_bytes(const struct plan *p);
/* Whether a unit's image has one, where it is kept from its first fetch in a step to the unit's
 * update; and the bytes of those before it, of n_units: of all. */
static inline bool plan_keeps_image(const struct plan *p, uint32_t unit)
{
    const struct zinf_home *home = &p->homes[unit];
    return home->coded && home->param == ZINF_TIER_HOST && !home->param_headed &&
           !p->travel.sliced && p->setup->walk.units[unit].chooser == WALK_NONE;
}
uint64_t plan_image_offset(const struct plan *p, uint32_t unit);
/* What of a unit's parameters one generation takes at its home. */
uint64_t plan_param_bytes(const struct plan *p, uint32_t unit);
/* Offset at which that part is unpacked for an update; the three follow each other.
 * ZINF_PACKABLES: the size of all three. */
static inline uint64_t plan_unpacked_at(const struct plan *p, enum zinf_packable what)
{
    uint64_t offset = 0;
    for (int before = 0; before < (int)what; before++)
        offset += plan_packed_bytes(p, (enum zinf_packable)before);
    return offset;
}
/* Before any plan is made: whether steps outlive the process where the configuration leaves it
 * open. They do where RAM takes none of the state that would have to be on the drive. */
void plan_settle_durability(struct setup *setup);
/* Says, where steps do not outlive the process since RAM has state, what would change that. */
const char *plan_lost_text(const struct plan *p, char text[static 256]);
/* Says, where anything is, what is in RAM that the configuration lets go to the drive. */
const char *plan_filled_text(const struct plan *p, char text[static 256]);
/* What points into the arenas, from device_base and host_base. */
void plan_place(struct plan *p);
/* Bytes of an update that take as long as a byte to be unpacked and packed: with AVX2 and
 * AVX-512 about 0.2 ns on a core (BENCHMARKS.md) that updates 6 GB/s. */
#define PLAN_PACK_WORK 1.3
/* Numbers of the sum that an operation adds to which products are expected to have added, or that
 * products of the operation are to add. */
uint64_t plan_added_numbers(const struct plan *p, const struct zinf_op *op);
/* What an operation has to do, in the flops or bytes that its kind's rate counts. */
double plan_work(const struct plan *p, const struct zinf_op *op);
/* The ledger by tier with budgets, and one line on each amount. */
int plan_print(const struct plan *p, FILE *out);

/* plan_slots.c. Whether any unit but those with the first n own slots is copied to the device
 * before use. Device slots of their own: bytes of the first n units in that order; a unit's, and
 * its offset. */
bool plan_fetches_beyond(const struct plan *p, int n);
uint64_t plan_own_bytes(const struct plan *p, int n);
bool unit_has_own(const struct plan *p, uint32_t unit);
/* It does, and no step changes it: once there, it stays. */
bool unit_stays(const struct plan *p, uint32_t unit);
uint64_t unit_own_offset(const struct plan *p, uint32_t unit);
/* Slots of the pools on the device: what was chosen, and at least what one stage needs. */
uint32_t param_slot_size(const struct plan *p, uint32_t unit); /* a unit's, among its sizes */
uint32_t param_slot_sizes(const struct plan *p, const struct amounts *c);
uint64_t param_slots(const struct plan *p, const struct amounts *c, uint32_t size);
/* On their way there, in host memory. */
uint64_t param_stagings(const struct plan *p, const struct amounts *c, uint32_t size);
/* Bytes of those of all sizes before that one. */
uint64_t param_slots_bytes(const struct plan *p, const struct amounts *c, uint32_t size);
uint64_t param_stagings_bytes(const struct plan *p, const struct amounts *c, uint32_t size);
uint64_t grad_slots(const struct plan *p, const struct amounts *c);
uint64_t beside_slots(const struct plan *p); /* of units that stand beside others (walk.h) */
/* Whether a sweep that runs whole has a gradient slot for each of its units, in which micro-batches
 * that go through the layers together are added up. */
bool plan_sums_whole(const struct plan *p);
uint32_t x_slots(const struct plan *p);

/* Whether the unit's gradient is kept there. */
static inline bool sums_on(const struct plan *p, uint32_t unit, enum zinf_tier tier)
{
    return p->homes[unit].keeps_grad && p->homes[unit].grad == tier;
}

static inline char *device_at(const struct plan *p, uint64_t offset)
{
    return p->device_base + offset;
}

static inline char *host_at(const struct plan *p, uint64_t offset)
{
    return p->host_base + offset;
}

/* Whether a stage that recomputes keeps its activations instead. */
static inline bool stage_is_kept(const struct plan *p, uint32_t stage)
{
    const struct walk *w = &p->setup->walk;
    return w->stages[stage].ordinal + (uint32_t)p->amounts.n_kept >= w->n_recompute;
}

/* The gradient of a value, on the device; NULL: none flows. */
void *gradient_at(const struct plan *p, uint32_t value, int64_t micro);

/* The list of a stage whose rows choose their visits, for a micro-batch: from d_lists or h_lists.
 */
static inline uint64_t list_offset(const struct plan *p, uint32_t stage, int64_t micro)
{
    const struct walk_stage *info = &p->setup->walk.stages[stage];
    uint64_t n = (uint64_t)p->itinerary.live;
    return n * info->lists_before + (uint64_t)micro % n * info->list_bytes;
}

/* Whether of so many layers the from_end-th, of which the 1st is the last, is one of n that wait
 * for the next forward. */
bool plan_is_spread(uint32_t from_end, uint32_t n, uint32_t of);

/* The share of the units that a stage's rows choose among which nobody chooses, of those rows that
 * a fetch serves, if all were equally likely: what is expected of a router that is balanced. */
double plan_unchosen(const struct plan *p, uint32_t stage);
/* Whether the unit's gradient is one contribution that is kept on the drive only where a row of the
 * step has chosen the unit. */
bool plan_keeps_chosen(const struct plan *p, uint32_t unit);

/* Rows of logits that a program makes at most: one of each sample that is classified. */
static inline uint64_t logits_rows(const struct plan *p)
{
    const struct zinf_graph *g = p->setup->graph;
    const struct zinf_decoding *d = p->setup->compute.decoding;
    const bool of_samples = g->values[g->loss].rows_of == ZINF_ROWS_OF_SAMPLE;
    return d ? (uint64_t)d->n_sequences : of_samples ? (uint64_t)p->setup->batch : 1;
}

/* Logits of all visits in host memory; of ranks that share tensors each has a part of them, and all
 * parts are in the order of the ranks. */
static inline uint64_t logits_bytes(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    const uint64_t visits = w->row == WALK_NONE ? 0 : zinf_stage_visits(&w->graph->stages[w->row]);
    return visits * logits_rows(p) * (uint64_t)w->graph->row_cols * sizeof(float);
}
static inline uint64_t logits_at(const struct plan *p)
{
    return p->at.h_row + tensor_axis(p->setup)->rank * logits_bytes(p);
}

/* What a decoding call is told of its rows, one list behind the other: of each row its sequence,
 * its position and its source; the lengths of sources; of each new token of one whose it is, and
 * which. */
static inline uint64_t rows_length(const struct zinf_decoding *d)
{
    return (uint64_t)(3 * d->most_rows + d->n_sources + 2 * d->most_source_rows);
}
/* Points the lists of d into that memory. */
static inline void rows_place(struct zinf_decoding *d, const int32_t *at)
{
    d->sequences = at;
    d->positions = d->sequences + d->most_rows;
    d->sources = d->positions + d->most_rows;
    d->source_lengths = d->sources + d->most_rows;
    d->source_numbers = d->source_lengths + d->n_sources;
    d->source_slots = d->source_numbers + d->most_source_rows;
}

/* Of a unit's OP_SQUARES, among those of all units. */
static inline uint64_t first_square(const struct plan *p, uint32_t unit)
{
    uint64_t elems = 0;
    for (uint32_t u = 0; u < unit; u++)
        elems += p->setup->layout.units[u].slice_elems;
    return elems / ZINF_SUM_BLOCK;
}

/* cost.c: op->seconds and op->cpu */
void plan_cost(const struct plan *p, struct zinf_op *op);
/* Bytes that an operation of a stage brings together with ranks that share its tensors, and of
 * these those that this rank sends; and how long that takes, where these ranks are only thought of:
 * rates that are measured have it in them. */
struct crossed {
    double bytes, sent;
};
struct crossed plan_crossed(const struct plan *p, const struct zinf_op *op);
double plan_crossed_seconds(const struct plan *p, const struct zinf_op *op);
/* The same for operations that are scheduled already. */
void plan_cost_again(const struct plan *p, struct zinf_program *program);
/* Known speeds, and what is assumed for the others. */
void plan_speeds_of(const struct plan *p, const struct zinf_speeds *known,
                    struct zinf_speeds *used);
void plan_rates_of(const struct plan *p, const struct zinf_speeds *speeds,
                   struct zinf_rates *rates);
struct zinf_machine plan_machine(const struct plan *p);
/* The work alone of two programs, one after the other, the second of which may be NULL; INFINITY:
 * there is none. */
double plan_least_seconds(const struct plan *p, const struct zinf_program *first,
                          const struct zinf_program *second);

#endif
