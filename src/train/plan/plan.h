/*
 * plan: decides where everything lives before any memory is allocated. A plan depends on a setup
 * and a variant only: a training, an estimate and the search for the best variant all call
 * plan_make, and the same input gives the same plan. It consists of *amounts* (how far to look
 * ahead, which blocks keep their activations, ...), the *lines* of memory that follow from them,
 * with their places in the arenas of device and host, and the programs of a step (step/step.h
 * builds them). A plan owns what it points to, except for its setup and the setup's store. Until a
 * trainer has allocated the arenas and calls plan_place, addresses in it must not be used. One
 * thread makes, changes and ends a plan; others may read it meanwhile.
 */
#ifndef ZINF_TRAIN_PLAN_H
#define ZINF_TRAIN_PLAN_H

#include "train/op.h"
#include "train/plan/itinerary.h"
#include "train/plan/way.h"
#include "train/setup.h"

#define MAX_LOOK_AHEAD 16
#define MOST_AHEAD 64 /* the largest `ahead` of a variant */
#define SLOT_SIZES 4  /* how many sizes of parameter slots there are at most */
#define MAX_STATE_SLOTS 16
#define GRAD_STAGINGS 3   /* host buffers for gradients on their way to or from their sum */
#define X_SLOTS 4         /* least device buffers for values that live elsewhere */
#define X_STAGINGS 3      /* host buffers for values between device and drive */
#define FILE_STAGINGS 2   /* host buffers for units that are read from the model's files */
#define PACKED_STAGINGS 4 /* host buffers for packed sub-groups */
#define CODE_STAGINGS 2   /* buffers for units with 8-bit images, on either side */
#define CACHE_SLOTS 2     /* device buffers for key and value caches that live elsewhere */
#define KEPT_SLOTS 2      /* device buffers for what stages keep of a chunk for backward */
#define CHUNK_STAGINGS 4  /* host buffers for a chunk's inputs, and for its losses */
#define CARRIED_SLOTS 3   /* device buffers for groups of chunks of keys and values */
#define EXCHANGED 2       /* host buffers for chunks of all ranks that go between drives */

/* The same where chunks' gradients of keys and values come and go: with three, a read that could
 * begin waits for a buffer that is being written. */
#define MORE_X_STAGINGS 5

/* How much of each kind the memory budgets have room for. */
struct amounts {
    int look_ahead; /* of each size, parameter slots on the device less one */
    /* 0: all slots are as large as the largest unit. Else slots have several sizes, and together at
     * least the bytes of this many of the largest units. */
    int ahead;
    int grad_slots;  /* gradients on the device */
    int state_slots; /* sub-groups under way */
    int x_stagings;  /* values on their way between device and drive */
    /* stages, counted from the last, that keep their activations instead of recomputing them */
    int n_kept;
    int n_own; /* units with a device slot of their own, in the order of walk's own_order */
    /* quantised weights of one unit stay dequantised while calls with it follow each other */
    bool numbers;
    bool whole; /* all units of the last sweep are on the device, and its visits are one call */
    int n_host_params;   /* units, from unit 0, whose parameters are in RAM */
    int n_host_states;   /* units whose optimizer state is in RAM */
    int n_host_grads;    /* layers whose kept gradients are in RAM */
    int n_host_pairs;    /* layers whose state in RAM has two generations */
    bool all_pairs;      /* the state of all other units has, too */
    int n_device_states; /* units, from unit 0, whose state is on the device */
    /* layers whose gradients stay on the device: the first layers if gradients are sums over
     * micro-batches, else the last */
    int n_device_grads;
    bool host_tables; /* gradients of units that are not layers, such as tables, are in RAM */
    /* decoding: key and value caches are in RAM, and one stage's at a time is on the device */
    bool host_cache;
};

/* The choices that a search varies and a plan starts from. */
struct variant {
    /* each micro-batch goes through all layers before the next one, if the order is free */
    bool micro_major;
    bool by_link;     /* GPUs of different ranks gather units and reduce gradients directly */
    bool device_adds; /* the device adds to gradient sums that are kept in RAM */
    bool x_on_host;   /* values between stages are in RAM even if the device has room */
    /* Parameters in RAM whose state is on the drive have only one generation in RAM, and a copy on
     * the drive: this takes less RAM and writes more. */
    bool overwrites;
    bool packs_ram;      /* optimizer state that is packed on the drive is packed in RAM as well */
    bool packs_fronts;   /* so are parameters */
    bool packs_frozen;   /* parameters of frozen units are packed, in RAM and on the drive */
    bool device_unpacks; /* the device unpacks packed parameters, not the CPU */
    bool codes;          /* matrices that are used as 8-bit codes go to the device as such */
    bool updates_codes;  /* updates write 8-bit images of trained units on the drive */
    enum packing packs;  /* what is packed on the drive */
    int ahead;           /* the largest amounts.ahead */
    bool more_staging;   /* RAM first takes MORE_X_STAGINGS buffers for values on their way */
    int host_grads_part; /* the host budget first takes the gradients of one layer in this many */
    int device_grads;    /* quarters of the gradient sums that the device budget takes */
    int device_states;   /* quarters of the optimizer state that the device budget takes */
    int host_quarters;   /* how many times the host budget is divided by 2^(1/4) */
    int host_states;     /* most quarters of the optimizer state that fits in RAM to keep there */
};

/* A kind of home, by everything that decides a unit's ways, and which waypoints those may touch
 * (plan_places.c). */
struct way_sort {
    uint32_t sort, waypoints;
};
#define WAY_SORTS 32 /* most kinds that are kept; a plan has few */
/* What is known of a unit's ways before operations are emitted. */
struct way {
    bool fetched; /* its parameters are copied to the device before use */
    /* its update may be made before the gradient norm is known, since it can be taken back or never
     * has to be */
    bool eager;
    uint32_t waypoints; /* bit set of the waypoints that its ways may touch */
};

/* Offsets in the device ("d_") and host ("h_") arenas, filled from the lines. */
struct places {
    uint64_t d_packed, d_damage, h_damage; /* for parameters that the device unpacks */
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

/* Parameter slots for units of up to `bytes`. */
struct slot_size {
    uint64_t bytes;
    uint64_t staging;   /* size of their host buffers; of a slice if units are sliced */
    uint32_t least;     /* how many one stage needs at once */
    uint32_t n_units;   /* units of that size */
    uint64_t all_bytes; /* bytes of these units together */
};
struct trainer_sizes {
    uint64_t grad_slot;    /* bytes of the largest trained unit's gradient */
    uint64_t beside_slot;  /* the same among units that are used beside others (walk.h) */
    uint64_t grad_staging; /* bytes of the largest gradient that passes through the host */
    uint64_t tile;         /* bytes of a sub-group being updated: parameters, state, gradient */
    uint64_t tile_state, tile_grad; /* offsets in the tile */
    uint64_t tile_most;             /* size of a tile with a gradient */
    uint64_t link;                  /* for parts of a gradient that come from other GPUs */
    uint64_t border;   /* bytes of the largest value that goes to another pipeline rank */
    uint64_t transfer; /* host memory that loading and saving need */
};

/* A plan: where everything lives, and the programs that follow from it. */
struct plan {
    const struct setup *setup; /* borrowed */
    struct variant variant;
    enum zinf_tier x_tier;
    struct itinerary itinerary; /* of a step */
    bool one_by_one;            /* while a schedule is chosen, only one program is kept at a time */
    /* Fetch experts only if rows have chosen them, in forward and backward. */
    bool chosen_forward, chosen_backward;
    /* If x_tier is DRIVE: [n_leaving][itinerary.live] extents of values; behind them [n_places] of
     * gradients and [n_keepers] of what stages keep, if these leave the device. */
    zinf_extent *x_extents;
    /* What a stage carries from chunk to chunk (keys, values, states) is on the device in groups of
     * carried_span chunks; 0: all chunks are one group, which stays there. Otherwise it lives in
     * x_tier, or in RAM if carried_near. carried_extents: if that is the drive, one extent for each
     * home, [carried_homes], then those of gradients. */
    int64_t carried_span;
    bool carried_near;
    zinf_extent *carried_extents;
    /* [n_units] extents of units that are read from the model's folder; NULL: none */
    zinf_extent *files;
    struct zinf_home *homes;            /* [n_units] */
    struct slot_size slots[SLOT_SIZES]; /* [n_slot_sizes], the largest first */
    uint32_t n_slot_sizes;
    uint8_t *slot_size;               /* [n_units]: index of the unit's slot size */
    struct travel travel;             /* what the ways of all units have in common */
    struct way_sort sorts[WAY_SORTS]; /* [n_sorts]: kinds asked for so far */
    uint32_t n_sorts;
    struct way *ways;   /* [n_units]: follows from homes and travel */
    uint32_t waypoints; /* bit set of the waypoints that any unit's ways may touch */
    struct zinf_tiers *tiers;
    struct zinf_store *store;   /* the setup's store, or `counted`; NULL: nothing is on a drive */
    struct zinf_store *counted; /* a store without files, which only counts extents */
    struct zinf_ledger *ledger;
    struct amounts amounts;
    /* set while amounts are chosen: what fits must leave the operating system its part of RAM */
    bool filling;
    struct places at;
    struct trainer_sizes sizes;
    char *device_base, *host_base;
    uint64_t host_bytes;

    double *norm_parts; /* [n_groups] sums of squares, in the host's arena */

    /* gradients: makes gradients and keeps all of them. drain: makes all pending updates. wait:
     * drain, then gradients. speculate: makes the deferred units' updates, then gradients together
     * with the other units' updates; updates in place cannot be taken back. */
    struct zinf_program gradients, drain, wait, speculate, forward, logits;
    /* for embeddings: the forward pass of all micro-batches, before gradients */
    struct zinf_program sweep;
    /* fill: copies parameters that stay on the device to their slots, once, before any other
     * program. decode: computes new rows of continued sequences; decode_sources: with new sources
     * as well. */
    struct zinf_program fill, decode, decode_sources;
    enum schedule schedule; /* used from the second step on */
    uint8_t *deferred;      /* [n_units]: updated in the next step if the program is speculate */
    struct zinf_rates rates;
    /* The rates when the schedule was chosen. Programs in pieces are put in order by these each
     * time they are made, so that the order is the one that ranks have compared. */
    struct zinf_rates order_rates;
    double planned_seconds;   /* predicted seconds of a step when the schedule was chosen */
    double predicted_seconds; /* of a step; 0: not known */
    double predicted_rest;    /* of a step without speculative updates */
};

/* search.c: finds the variant whose simulated step is shortest, by the speeds in the options. plan
 * (may be NULL): receives its plan with programs, if one was made: then plan->setup is set, and the
 * caller ends it. */
void plan_search(const struct setup *setup, struct variant *best, struct plan *plan);
/* The variant that a search begins with, and keeps if no other is faster. */
struct variant plan_usual(const struct setup *setup);
/* plan_operations.c: makes a plan without its programs. Adds extents to the setup's store, if there
 * is one; so it is called once for each store. -ENOMEM: it does not fit; the message is the memory
 * table and names the keys to change. After a failure there is nothing to end. */
int plan_make(struct plan *out, const struct setup *setup, const struct variant *variant);
void plan_fini(struct plan *p);
/* The schedule of the first step, which runs one operation at a time. */
static inline enum schedule plan_first_schedule(const struct setup *setup)
{
    return setup->in_place ? SCHEDULE_UPDATE_IN_PLACE : SCHEDULE_SERIAL;
}
/* Whether all micro-batches go through a layer before the next layer, if there is room. */
bool plan_is_layer_major(const struct setup *setup, const struct variant *variant);
/* What stages carry from chunk to chunk: the chunks of a group; the number of groups; how many
 * groups are on the device at once. */
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
/* The tier where it lives if only some groups are on the device: RAM, or the tier of values. */
static inline enum zinf_tier carried_tier(const struct plan *p)
{
    return p->carried_near ? ZINF_TIER_HOST : p->x_tier;
}
/* Whether groups pass through host buffers between device and drive. */
static inline bool plan_streams_carried(const struct plan *p)
{
    return carried_groups(p) > 1 && carried_tier(p) == ZINF_TIER_DRIVE && device_is_far(p->setup);
}
/* Whether ranks of a sequence exchange keys and values that do not live on the device. */
static inline bool plan_shares_homes(const struct plan *p)
{
    return in_parts(p->setup) && carried_groups(p) > 1;
}
/* Whether GPUs exchange keys and values directly, since these live on them. */
static inline bool plan_links_keys(const struct plan *p)
{
    return p->variant.by_link && context_axis(p->setup)->world > 1 && !plan_shares_homes(p);
}
/* How many homes there are, and the bytes of one. Usually a group of chunks has one home, its
 * chunks one behind the other. With context parallelism every chunk has its own, and its gradient
 * one for each part that this rank has. */
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
/* Host memory for exchanging carried data between drives: a chunk of each rank, or two gradients
 * that are added. 0: none is on drives. */
static inline uint64_t plan_exchanged_bytes(const struct plan *p)
{
    const uint64_t ranks = context_axis(p->setup)->world, *carried = p->setup->walk.carried;
    const bool goes =
        plan_shares_homes(p) && has_backward(p->setup) && carried_tier(p) == ZINF_TIER_DRIVE;
    const uint64_t most = carried[0] > carried[1] ? carried[0] : carried[1];
    return goes ? (ranks > 2 ? ranks : 2) * most : 0;
}
/* What stages carry, in words. */
static inline const char *plan_carried_name(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    return !w->hands_over  ? "keys and values of chunks"
           : w->carried[1] ? "keys, values and states of chunks"
                           : "states of chunks";
}
/* Bytes of a group, or of its gradient. */
static inline uint64_t carried_group_bytes(const struct plan *p, bool gradient)
{
    return (uint64_t)carried_span(p) * p->setup->walk.carried[gradient];
}
/* Bytes of a device slot for a group. Gradients that stay on the device have one for each part of
 * this rank. */
static inline uint64_t carried_slot_bytes(const struct plan *p, bool gradient)
{
    const int64_t parts = gradient && carried_groups(p) == 1 ? setup_own_parts(p->setup) : 1;
    return (uint64_t)parts * carried_group_bytes(p, gradient);
}
/* How many earlier chunks a chunk of the stage reads. It reads the groups from carried_first to its
 * own. */
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
/* The first group that is read while a chunk's carried data is computed. */
static inline uint32_t carried_needs(const struct plan *p, uint32_t stage, int64_t chunk)
{
    const int64_t back = p->setup->walk.stages[stage].handed && chunk;
    return (uint32_t)((chunk - back) / carried_span(p));
}
/* The last chunk that reads a group; the backward pass reads the group first with this chunk. */
static inline int64_t carried_last(const struct plan *p, uint32_t stage, uint32_t group)
{
    const int64_t end = (group + 1) * carried_span(p) - 1 + carried_back(p, stage);
    return end < p->setup->n_chunks ? end : p->setup->n_chunks - 1;
}
/* Whether values between stages may leave the device. Without backward only chunks of a sequence
 * do, since all of them go through a stage before the next one. Ranks that share a sequence or a
 * pipeline keep them there. */
static inline bool plan_values_may_leave(const struct plan *p)
{
    const struct setup *s = p->setup;
    return has_backward(s) || (s->n_chunks > 1 && !in_parts(s) && !is_piped(s));
}
static inline bool plan_values_leave(const struct plan *p)
{
    return p->x_tier != ZINF_TIER_DEVICE && plan_values_may_leave(p);
}
/* Whether gradients of values leave the device as the values do. */
static inline bool plan_gradients_leave(const struct plan *p)
{
    return has_backward(p->setup) && p->setup->n_chunks > 1 && p->x_tier != ZINF_TIER_DEVICE;
}
/* Whether what the stage keeps for its backward leaves as well. */
static inline bool plan_kept_leaves(const struct plan *p, uint32_t stage)
{
    return plan_gradients_leave(p) && p->setup->walk.stages[stage].keeper != WALK_NONE;
}
/* What leaves the device between forward and backward: values, then places of gradients, then what
 * stages keep that do not recompute. How many there are; bytes of the largest value or gradient,
 * for one micro-batch. */
static inline uint32_t plan_n_leaving(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    return w->n_leaving + (plan_gradients_leave(p) ? w->n_places + w->n_keepers : 0);
}
static inline uint64_t plan_leaving_bytes(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    return plan_gradients_leave(p) && w->place_bytes > w->leaving_bytes ? w->place_bytes
                                                                        : w->leaving_bytes;
}
/* The same, including what is kept and carried data, which pass through the same host buffers. */
static inline uint64_t plan_value_staging_bytes(const struct plan *p)
{
    const uint64_t kept = plan_gradients_leave(p) ? p->setup->walk.kept_most : 0;
    const uint64_t most = plan_leaving_bytes(p) > kept ? plan_leaving_bytes(p) : kept;
    const uint64_t *carried = p->setup->walk.carried;
    const uint64_t chunk = carried[0] > carried[1] ? carried[0] : carried[1];
    return carried_groups(p) > 1 && chunk > most ? chunk : most;
}
static inline uint64_t plan_all_leaving_bytes(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    return w->all_leaving_bytes +
           (plan_gradients_leave(p) ? w->end_bytes + w->turn_bytes + w->kept_always : 0);
}
/* How many micro-batches' inputs and losses are in memory at once. Of chunks the device has one
 * chunk's (step/chunk_rows.c), and the host has those on their way; a training adds losses up as
 * they come, others keep them. */
static inline uint64_t plan_chunk_stagings(const struct plan *p)
{
    return device_is_far(p->setup) ? CHUNK_STAGINGS : 0;
}
static inline bool plan_keeps_losses(const struct plan *p)
{
    const struct setup *s = p->setup;
    return s->n_chunks == 1 || (!has_backward(s) && !s->options.pairs && !s->graph->embeddings);
}
static inline uint64_t plan_inputs(const struct plan *p, bool on_host)
{
    return p->setup->n_chunks == 1 ? (uint64_t)setup_n_inputs(p->setup)
           : on_host               ? plan_chunk_stagings(p)
                                   : 1;
}
static inline uint64_t plan_losses(const struct plan *p, bool on_host)
{
    return p->setup->n_chunks == 1 || (on_host && plan_keeps_losses(p))
               ? (uint64_t)p->setup->n_micro
           : on_host ? plan_chunk_stagings(p)
                     : 1;
}
/* Bytes of the quantised weights of the unit that has most, when they are dequantised. */
uint64_t plan_numbers_bytes(const struct plan *p);
/* goes_together: whether several micro-batches go through a layer before the next one; goes_once:
 * whether all of the step do, in both directions. */
static inline bool goes_together(const struct plan *p)
{
    return p->itinerary.together > 1;
}
static inline bool goes_once(const struct plan *p)
{
    return p->itinerary.back == p->setup->n_micro;
}
/* How many contributions to a unit's gradient a step makes. */
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
/* Memory to unpack the largest sub-group of parameters that is fetched packed. It is the same for a
 * run that resumes one which has packed less. */
static inline uint64_t plan_packed_fetch_bytes(const struct plan *p)
{
    return p->variant.packs_frozen ? setup_packed_param_bytes(p->setup)
                                   : setup_packed_bytes(p->setup, ZINF_PACKABLE_PARAM);
}
/* Bytes of one flag for each sub-group that says whether the device has found it damaged; 0: the
 * device unpacks none. */
static inline uint64_t plan_damage_bytes(const struct plan *p)
{
    return p->waypoints >> PACKED_SLOT & 1
               ? zinf_align_up(p->setup->layout.n_groups * sizeof(uint32_t), ZINF_MEMORY_ALIGN)
               : 0;
}
/* Bytes of the largest 8-bit image that goes to the device; 0: none does. on_host: only images that
 * have no place of their own in RAM. */
uint64_t plan_code_bytes(const struct plan *p, bool on_host);
/* Bytes of the largest image that an update makes; 0: none does. */
uint64_t plan_updated_bytes(const struct plan *p);
/* Whether a unit's image has a place of its own in RAM, where it stays from its first fetch in a
 * step until the unit's update. plan_image_offset: bytes of such images of lower units; for
 * n_units, of all. */
static inline bool plan_keeps_image(const struct plan *p, uint32_t unit)
{
    const struct zinf_home *home = &p->homes[unit];
    return home->coded && home->param == ZINF_TIER_HOST && !home->param_headed &&
           !p->travel.sliced && p->setup->walk.units[unit].chooser == WALK_NONE;
}
uint64_t plan_image_offset(const struct plan *p, uint32_t unit);
/* Bytes of one generation of a unit's parameters at their home. */
uint64_t plan_param_bytes(const struct plan *p, uint32_t unit);
/* The offset at which an update unpacks state, parameters or gradient; the three follow each other.
 * ZINF_PACKABLES: the size of all. */
static inline uint64_t plan_unpacked_at(const struct plan *p, enum zinf_packable what)
{
    uint64_t offset = 0;
    for (int before = 0; before < (int)what; before++)
        offset += plan_packed_bytes(p, (enum zinf_packable)before);
    return offset;
}
/* Decides whether steps survive the process if the configuration leaves it open: they do if no
 * state that would have to be on the drive is in RAM. Call before a plan is made. */
void plan_settle_durability(struct setup *setup);
/* If steps do not survive the process because state is in RAM: a sentence that says what would
 * change it. */
const char *plan_lost_text(const struct plan *p, char text[static 256]);
/* If RAM holds anything that the configuration allows to be on the drive: a sentence that says
 * what. */
const char *plan_filled_text(const struct plan *p, char text[static 256]);
/* Sets all pointers into the arenas from device_base and host_base. */
void plan_place(struct plan *p);
/* How many numbers of a gradient sum the products of an operation add by themselves, or are
 * expected to have added before it. */
uint64_t plan_added_numbers(const struct plan *p, const struct zinf_op *op);
/* The work of an operation, in the flops or bytes that its kind's rate counts. */
double plan_work(const struct plan *p, const struct zinf_op *op);
/* Takes what a rank needs into what all need; ranks in ascending order, from 0 on. */
void plan_add_rank(struct zinf_planned *all, uint32_t rank, const uint64_t bytes[3]);
/* If the schedule that was asked for by name is not the plan's: logs which one runs, and why. rank:
 * the one that cannot run it. */
void plan_say_schedule(const struct plan *p, uint32_t rank);
/* Prints the memory ledger by tier with budgets, and one line on each amount. */
int plan_print(const struct plan *p, FILE *out);

/* plan_slots.c: units with device slots of their own. plan_fetches_beyond: whether any unit other
 * than the first n of these is copied to the device before use. plan_own_bytes: bytes of the first
 * n slots. unit_has_own, unit_own_offset: whether a unit has one, and where. */
bool plan_fetches_beyond(const struct plan *p, int n);
uint64_t plan_own_bytes(const struct plan *p, int n);
bool unit_has_own(const struct plan *p, uint32_t unit);
/* Whether a unit has its own slot and is not trained, so that it is copied only once. */
bool unit_stays(const struct plan *p, uint32_t unit);
uint64_t unit_own_offset(const struct plan *p, uint32_t unit);
/* How many slots the pools on the device have: those of the amounts, but at least what one stage
 * needs. */
uint32_t param_slot_size(const struct plan *p, uint32_t unit); /* the index of a unit's slot size */
uint32_t param_slot_sizes(const struct plan *p, const struct amounts *c);
uint64_t param_slots(const struct plan *p, const struct amounts *c, uint32_t size);
/* Host buffers for parameters on their way to those slots. */
uint64_t param_stagings(const struct plan *p, const struct amounts *c, uint32_t size);
/* Bytes of the slots, or host buffers, of all sizes before `size`. */
uint64_t param_slots_bytes(const struct plan *p, const struct amounts *c, uint32_t size);
uint64_t param_stagings_bytes(const struct plan *p, const struct amounts *c, uint32_t size);
uint64_t grad_slots(const struct plan *p, const struct amounts *c);
uint64_t beside_slots(const struct plan *p); /* for units that are used beside others (walk.h) */
/* Whether a sweep that runs as one call has a gradient slot for each of its units, in which several
 * micro-batches are added up. */
bool plan_sums_whole(const struct plan *p);
uint32_t x_slots(const struct plan *p);

/* Whether the unit's gradient is kept in that tier. */
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

/* The gradient of a value on the device; NULL: it has none. */
void *gradient_at(const struct plan *p, uint32_t value, int64_t micro);

/* Bytes of lists on the device: of all micro-batches; of chunks the rows of one visit, unless the
 * device reads those of the host. */
static inline uint64_t plan_list_bytes(const struct plan *p)
{
    const struct setup *s = p->setup;
    const int64_t rows = s->chunk_seq > s->chunk_source ? s->chunk_seq : s->chunk_source;
    if (s->n_chunks == 1)
        return (uint64_t)p->itinerary.live * s->walk.all_list_bytes;
    return s->walk.n_choices && device_is_far(s) ? (uint64_t)rows * sizeof(int32_t) : 0;
}

/* The offset, from d_lists or h_lists, of the list of rows that chose each visit of a stage, for a
 * micro-batch. */
static inline uint64_t list_offset(const struct plan *p, uint32_t stage, int64_t micro)
{
    const struct walk_stage *info = &p->setup->walk.stages[stage];
    uint64_t n = (uint64_t)p->itinerary.live;
    return n * info->lists_before + (uint64_t)micro % n * info->list_bytes;
}

/* Whether the from_end-th layer, counted from 1 at the last of `of` layers, is among the n whose
 * updates are deferred to the next forward pass. */
bool plan_is_spread(uint32_t from_end, uint32_t n, uint32_t of);

/* The expected share of a stage's experts that no row of a fetch chooses, if all were equally
 * likely (a balanced router). */
double plan_unchosen(const struct plan *p, uint32_t stage);
/* Whether the unit's gradient is one contribution, written to the drive only if a row of the step
 * has chosen the unit. */
bool plan_keeps_chosen(const struct plan *p, uint32_t unit);

/* The most rows of logits that a program makes: one for each sample that is classified. */
static inline uint64_t logits_rows(const struct plan *p)
{
    const struct zinf_graph *g = p->setup->graph;
    const struct zinf_decoding *d = p->setup->compute.decoding;
    const bool of_samples = g->values[g->loss].rows_of == ZINF_ROWS_OF_SAMPLE;
    return d ? (uint64_t)d->n_sequences : of_samples ? (uint64_t)p->setup->batch : 1;
}

/* Bytes of the logits of all visits in host memory, and where they begin. With tensor parallelism
 * each rank makes a part, and all parts lie in the order of the ranks. */
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

/* How long the lists are that describe the rows of a decoding call: for each row its sequence,
 * position and source; the lengths of sources; for each new source token its source and its
 * position in it. */
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

/* The index of a unit's first sum of squares (OP_SQUARES) among those of all units. */
static inline uint64_t first_square(const struct plan *p, uint32_t unit)
{
    uint64_t elems = 0;
    for (uint32_t u = 0; u < unit; u++)
        elems += p->setup->layout.units[u].slice_elems;
    return elems / ZINF_SUM_BLOCK;
}

/* cost.c: sets op->seconds and op->cpu */
void plan_cost(const struct plan *p, struct zinf_op *op);
/* Bytes that an operation of a stage reduces with the other ranks of its tensors, and the bytes
 * that this rank sends for that, or in an update of matrices that ranks share.
 * plan_crossed_seconds: the time this takes, for estimates; measured rates include it. */
struct crossed {
    double bytes, sent;
};
struct crossed plan_crossed(const struct plan *p, const struct zinf_op *op);
double plan_crossed_seconds(const struct plan *p, const struct zinf_op *op);
/* Sets the costs of operations that are scheduled already. */
void plan_cost_again(const struct plan *p, struct zinf_program *program);
/* Completes known speeds with assumed ones. */
void plan_speeds_of(const struct plan *p, const struct zinf_speeds *known,
                    struct zinf_speeds *used);
void plan_rates_of(const struct plan *p, const struct zinf_speeds *speeds,
                   struct zinf_rates *rates);
struct zinf_machine plan_machine(const struct plan *p);
/* The seconds that the work of two programs takes at least, one after the other; second may be
 * NULL. INFINITY: there is no program. */
double plan_least_seconds(const struct plan *p, const struct zinf_program *first,
                          const struct zinf_program *second);

#endif
