/*
 * offload: where training state lives, and the program that moves it. Knows units (flat buffers of
 * parameters), tiers and lanes; nothing of transformers.
 *
 *   layout    units -> rank slices -> sub-groups (tiles of optimizer state)
 *   tiers     the place of every parameter, gradient and state on device, host or drive
 *   program   a step as a flat array of operations with lanes, resources and waits
 *   cut       a program too long for memory, made and run piece by piece
 *   executor  one thread a lane runs a program; times every operation
 *   trace     what ran when, as Chrome trace JSON and as a table of busy time
 *
 * Threads: layouts, tiers and programs are built by one thread and are read-only while a program
 * runs. An executor is used by one thread; it owns its lanes' threads.
 *
 * On a device whose queues run late, H2D, D2H and DEVICE only enqueue. Between these lanes order is
 * made on the device: an operation is enqueued as soon as those it waits for are, behind their
 * events. The other lanes start when what they wait for has happened.
 */
#ifndef ZINF_OFFLOAD_H
#define ZINF_OFFLOAD_H

#include "aio/aio.h"
#include "base/base.h"
#include "base/memory.h"
#include "cpu_optim/optim.h"
#include "kernels/kernels.h"
#include "net/mesh.h"

/* ---- layout ---- */

#define ZINF_LAYOUT_ALIGN                                                                          \
    4096 /* elements: sub-groups start at blocks of the norm and of O_DIRECT */

struct zinf_layout_unit {
    uint64_t elems;        /* as the owner of the unit counts */
    uint64_t padded_elems; /* of the whole unit, a multiple of ZINF_LAYOUT_ALIGN * world */
    uint64_t slice_elems;  /* of one rank */
    uint64_t slice_first;  /* this rank's first element */
    uint64_t front_bytes;  /* stored in front of its parameters, and moved with them: a multiple of
                            * ZINF_MEMORY_ALIGN; of a unit without sub-groups' state. Set by the
                            * caller; 0 */
    uint32_t n_groups, first_group;
};
struct zinf_layout_group {
    uint32_t unit;
    uint64_t first, n; /* elements within the rank's slice */
};
struct zinf_layout {
    uint32_t rank, world; /* along the axis that deals out samples and slices */
    uint32_t n_units, n_groups;
    struct zinf_layout_unit *units;
    struct zinf_layout_group *groups;
    uint64_t max_unit_elems; /* padded */
    uint64_t max_group_elems;
    uint64_t total_elems; /* padded, of this rank's slices */
};
struct zinf_layout_options {
    const uint64_t *unit_elems; /* [n_units] */
    const bool *whole;          /* [n_units]: the rank's slice is one sub-group; NULL: none is */
    uint32_t n_units;
    uint64_t group_elems; /* wanted size of a sub-group, rounded to ZINF_LAYOUT_ALIGN */
    /* Where this rank is along the axes, whose nets are not looked at. Slices are dealt out along
     * ZINF_DATA; all others' world must be 1. */
    struct zinf_axis at[ZINF_AXES];
};
/* -EINVAL, -ENOTSUP: the axis that cannot be is named. */
int zinf_layout_init(struct zinf_layout *layout, const struct zinf_layout_options *options);
void zinf_layout_fini(struct zinf_layout *layout);
/* All of a unit that is fetched for a computation: what is in front of its parameters, these, and
 * what it takes to cut it into slices of as many bytes for each rank. */
static inline uint64_t zinf_layout_unit_bytes(const struct zinf_layout *layout, uint32_t unit,
                                              enum zinf_dtype dtype)
{
    const struct zinf_layout_unit *u = &layout->units[unit];
    return zinf_align_up(u->front_bytes + u->padded_elems * zinf_dtype_bytes(dtype),
                         (uint64_t)ZINF_MEMORY_ALIGN * layout->world);
}
/* A rank's slice of that, and where this rank's begins: without anything in front, those of
 * slice_elems and slice_first. */
static inline uint64_t zinf_layout_slice_bytes(const struct zinf_layout *layout, uint32_t unit,
                                               enum zinf_dtype dtype)
{
    return zinf_layout_unit_bytes(layout, unit, dtype) / layout->world;
}
static inline uint64_t zinf_layout_slice_at(const struct zinf_layout *layout, uint32_t unit,
                                            enum zinf_dtype dtype)
{
    return zinf_layout_slice_bytes(layout, unit, dtype) * layout->rank;
}

/* ---- tiers ---- */

enum zinf_tier {
    ZINF_TIER_DEVICE,
    ZINF_TIER_HOST,
    ZINF_TIER_DRIVE,
};
const char *zinf_tier_name(enum zinf_tier tier);

/* How a sub-group's state is stored; n elements each. All give the same fp32 masters. */
enum zinf_state_form {
    ZINF_STATE_BARE,  /* [moments]: the parameter is fp32 and is the master itself */
    ZINF_STATE_SPLIT, /* [remainder, 16 bits][moments]: the bf16 parameter is the upper half */
    ZINF_STATE_WHOLE, /* [fp32 master][moments] */
};

/* Where a unit's things are. */
struct zinf_home {
    enum zinf_tier param, state;
    enum zinf_tier grad; /* of a gradient that outlives the operations that make it */
    bool keeps_grad;     /* there is such a place */
    /* Places for sums that wait until more micro-batches have theirs; 0 and 1: there is one. */
    uint16_t grad_sums;
    /* param is on DRIVE, and already there: in an extent of others' files, whose bytes are not the
     * unit's but what it is made of. */
    bool in_files;
    zinf_extent files;
    /* 2: parameters and state exist twice, so that an update can be taken back. Not on DEVICE, and
     * not of parameters that are overwritten. */
    uint8_t generations;
    /* State is on HOST, where each sub-group has room for its head, as many bytes as it is expected
     * to have when it is packed; what is beyond lies on the drive. One generation. */
    bool headed;
    /* The same of parameters, whatever generations their state has. */
    bool param_headed;
    /* packed: parameters are on DRIVE, where a sub-group's may be packed; a fetch unpacks them.
     * packs_grad: the same for kept gradients; packs_copy: for the copy of parameters there. */
    bool packed, packs_grad, packs_copy;
    /* Parameters go to the device in an image in which matrices are codes of 8 bits. imaged: they
     * are on DRIVE, and so is the image, beside them, with as many generations. */
    bool coded, imaged;
    /* Parameters are on HOST, and a copy with as many generations as the state has is on the drive,
     * where it lies as if that were their home. Every update writes it; a restart reads it. */
    bool backed;
    /* Parameters on HOST have one generation: an update is made in place, and one that is taken
     * back reads the older ones from that copy, or from the one behind the state. */
    bool overwritten;
};
/* How often parameters exist at their home. */
static inline uint8_t zinf_home_copies(const struct zinf_home *home)
{
    return home->overwritten || home->param == ZINF_TIER_DEVICE ? 1 : home->generations;
}
struct zinf_tiers_options {
    const struct zinf_layout *layout;
    enum zinf_dtype dtype; /* of parameters */
    enum zinf_state_form form;
    int n_moments;                    /* fp32 moments of the optimizer; < 0: no state */
    const uint64_t *state_bytes;      /* [n_groups], multiples of ZINF_MEMORY_ALIGN, borrowed, where
                                       * state is other than that; NULL: zinf_state_bytes */
    const uint64_t *head_bytes;       /* [n_groups], multiples of ZINF_AIO_ALIGN, borrowed: of those
                                       * whose unit is headed; NULL: none is */
    const uint64_t *param_head_bytes; /* the same where parameters are */
    const uint64_t *image_bytes;    /* [n_units], multiples of ZINF_MEMORY_ALIGN, borrowed: of those
                                     * that are imaged; NULL: none is */
    bool param_copies;              /* behind a group's state lie its parameters once more */
    bool sliced;                    /* of parameters there is the rank's slice alone */
    const struct zinf_home *places; /* [n_units], copied */
    struct zinf_store *store;       /* where a tier is DRIVE; borrowed */
};
/* Where a thing is: memory on DEVICE and HOST, extent and offset on DRIVE. Of two generations it
 * is *live, or the other one if relative is 1. A thing on HOST with a head has so many bytes in
 * memory, the rest of them in the extent; a location of that rest alone says how long the head is,
 * too. A head exists once, and so does the rest: the generation then only says which bytes they
 * are. Of a thing whose generations lie beside each other in one extent the second begins stride
 * bytes behind the first: it is no part of what the record of a step names. program.c copies it
 * field by field (keep_location). */
struct zinf_location {
    enum zinf_tier tier;
    char *memory;
    uint64_t stride; /* from generation 0 to 1 in memory, or in one extent */
    bool beside;     /* the latter */
    zinf_extent extent;
    uint64_t offset, bytes;
    uint64_t head;       /* 0: there is none */
    const uint8_t *live; /* NULL: one generation */
    uint8_t relative;
};
static inline unsigned zinf_location_generation(const struct zinf_location *where)
{
    return where->live ? (unsigned)(*where->live ^ where->relative) : 0;
}
/* That of its extent. */
static inline uint8_t zinf_location_bank(const struct zinf_location *where)
{
    return where->head || where->beside ? 0 : (uint8_t)zinf_location_generation(where);
}
/* In its extent, of that generation. */
static inline uint64_t zinf_location_offset(const struct zinf_location *where)
{
    return where->offset + (where->beside ? zinf_location_generation(where) * where->stride : 0);
}
/* The parts of a group that may be stored on the drive packed, that is, in fewer bytes. */
enum zinf_packable {
    ZINF_PACKABLE_STATE,
    ZINF_PACKABLE_PARAM,
    ZINF_PACKABLE_GRAD, /* the kept gradient */
    ZINF_PACKABLES,
};
/* How much of a part is moved, in pages of ZINF_AIO_ALIGN bytes. Its writer sets this. */
struct zinf_packed {
    uint32_t read_pages;  /* 0: it is stored as it is */
    uint32_t write_pages; /* with what only a restart reads; 0: all */
    bool whole;           /* the rest of its space is unknown: all of it must be written */
};
struct zinf_tiers;
/* Adds its lines to the ledger and its extents to the store; nothing is taken yet. */
int zinf_tiers_plan(struct zinf_tiers **out, const struct zinf_tiers_options *options,
                    struct zinf_ledger *ledger);
/* After the arenas exist. */
void zinf_tiers_place(struct zinf_tiers *tiers, char *device_base, char *host_base);
void zinf_tiers_destroy(struct zinf_tiers *tiers);
/* The same places, placed already, for another thread to read: its generations stay what they are
 * now, whatever becomes of those of tiers, which it does not outlive. Parameters that updates
 * overwrite are read from their backing on the drive, which must be of the current generation. */
int zinf_tiers_view(struct zinf_tiers **out, const struct zinf_tiers *tiers);
const struct zinf_tiers_options *zinf_tiers_options(const struct zinf_tiers *tiers);
/* The generation that holds a unit's truth; starts at 0. Changed between operations only. */
uint8_t *zinf_tiers_live(struct zinf_tiers *tiers, uint32_t unit);
/* Bytes of n elements' state in a form. */
uint64_t zinf_state_bytes(enum zinf_state_form form, int n_moments, uint64_t n);
/* The unit's parameters, whole or the slice, or the files that it is made of; the range of a
 * group's parameters; a group's state. relative as in zinf_location; with one generation it changes
 * nothing. Parameters with heads lie group by group: of their unit's location the bytes alone are
 * true. */
struct zinf_location zinf_tiers_param(const struct zinf_tiers *tiers, uint32_t unit,
                                      uint8_t relative);
struct zinf_location zinf_tiers_group_param(const struct zinf_tiers *tiers, uint32_t group,
                                            uint8_t relative);
struct zinf_location zinf_tiers_group_state(const struct zinf_tiers *tiers, uint32_t group,
                                            uint8_t relative);
/* The image beside a unit's parameters, which must be imaged. */
struct zinf_location zinf_tiers_image(const struct zinf_tiers *tiers, uint32_t unit,
                                      uint8_t relative);
/* What of a group's state, or parameters, is beyond its head, on the drive. */
struct zinf_location zinf_tiers_group_tail(const struct zinf_tiers *tiers, uint32_t group);
struct zinf_location zinf_tiers_group_param_tail(const struct zinf_tiers *tiers, uint32_t group,
                                                 uint8_t relative);
/* The copy on the drive of a group's parameters, whose unit is backed. */
struct zinf_location zinf_tiers_group_backing(const struct zinf_tiers *tiers, uint32_t group,
                                              uint8_t relative);
/* That, or else the group's parameters: what is on the drive if anything of them is. */
struct zinf_location zinf_tiers_group_stored(const struct zinf_tiers *tiers, uint32_t group,
                                             uint8_t relative);
/* The entry of a part of a group in that generation; all zeros at first. */
struct zinf_packed *zinf_tiers_packed(const struct zinf_tiers *tiers, enum zinf_packable what,
                                      uint32_t group, unsigned generation);
/* Kept gradients, fp32. A unit's has grad_sums places, by number; it comes to be in the first. */
struct zinf_location zinf_tiers_unit_grad(const struct zinf_tiers *tiers, uint32_t unit);
struct zinf_location zinf_tiers_unit_grad_sum(const struct zinf_tiers *tiers, uint32_t unit,
                                              uint32_t number);
struct zinf_location zinf_tiers_group_grad(const struct zinf_tiers *tiers, uint32_t group);
/* Blocking copies between a location and ordinary memory, for loading, saving and tests; memory
 * aligned to ZINF_MEMORY_ALIGN, offset and bytes too. Device through queue. */
int zinf_location_read(const struct zinf_tiers *tiers, const struct zinf_device *device,
                       struct zinf_queue *queue, const struct zinf_location *where, uint64_t offset,
                       void *memory, uint64_t bytes);
int zinf_location_write(const struct zinf_tiers *tiers, const struct zinf_device *device,
                        struct zinf_queue *queue, const struct zinf_location *where,
                        uint64_t offset, const void *memory, uint64_t bytes);

/* ---- program ---- */

enum zinf_lane {
    ZINF_LANE_READ,  /* drive to host */
    ZINF_LANE_WRITE, /* host to drive */
    ZINF_LANE_H2D,
    ZINF_LANE_D2H,
    ZINF_LANE_DEVICE, /* compute */
    ZINF_LANE_HOST,   /* CPU optimizer, accumulation, norms */
    ZINF_LANE_NET,    /* collectives */
    ZINF_LANES,
} __attribute__((packed)); /* operations are many */
const char *zinf_lane_name(enum zinf_lane lane);

/* Anything that one operation writes and another reads: an extent, a scalar, a fixed place. */
typedef uint32_t zinf_resource;
/* A set of equal slots of memory that *buffers* live in, each from its first use to its last. The
 * builder makes as many buffers as it likes; scheduling gives each a slot. */
typedef uint32_t zinf_pool;
/* A tenant of a pool; also a resource. */
typedef uint32_t zinf_buffer;
#define ZINF_NO_BUFFER UINT32_MAX

/* Memory that an operation works on: an address, or, until the program is scheduled, an offset in
 * a buffer. Of two generations as in zinf_location. */
struct zinf_operand {
    char *memory;
    uint32_t tenant; /* buffer + 1; 0: memory is an address */
    uint64_t stride;
    const uint8_t *live;
    uint8_t relative;
};
static inline struct zinf_operand zinf_at(void *memory)
{
    return (struct zinf_operand){.memory = (char *)memory};
}
static inline struct zinf_operand zinf_in(zinf_buffer buffer, uint64_t offset)
{
    return (struct zinf_operand){.memory = (char *)(uintptr_t)offset, .tenant = buffer + 1};
}
/* The buffer that it is in. */
static inline zinf_buffer zinf_operand_buffer(const struct zinf_operand *o)
{
    return o->tenant - 1;
}
static inline struct zinf_operand zinf_beyond(struct zinf_operand o, uint64_t bytes)
{
    o.memory = (char *)((uintptr_t)o.memory + bytes);
    return o;
}
/* Where a location on DEVICE or HOST is. */
static inline struct zinf_operand zinf_of(const struct zinf_location *where)
{
    return (struct zinf_operand){where->memory, 0, where->stride, where->live, where->relative};
}
/* The address now; after scheduling. */
static inline void *zinf_address(const struct zinf_operand *o)
{
    return o->memory + (o->live ? o->stride * (uint64_t)(*o->live ^ o->relative) : 0);
}

/* One operation. The builder of a program gives kinds and fields their meaning through the
 * executor's run callback; only READ and WRITE operations are understood here: at[0] is their
 * memory. */
struct zinf_op {
    enum zinf_lane lane;
    uint8_t axis; /* of NET: along which ranks meet; ZINF_AXES: all of them */
    uint16_t kind;
    uint16_t flags; /* the builder's */
    int16_t micro;  /* micro-batch */
    int32_t unit;   /* unit number */
    int32_t arg;
    int32_t stage, visit; /* the builder's */
    /* [n_at] addresses, the caller's: when it is added, and when it is run. In a program: what it
     * has alike with other operations; zinf_program_operands makes addresses of it. */
    const struct zinf_operand *at;
    /* READ, WRITE: the extent. NULL when it is added: nowhere. In a program one for all operations
     * that have it alike, never NULL. */
    const struct zinf_location *where;
    uint64_t bytes;               /* moved, for prediction and trace */
    double flops;                 /* for prediction: of products that take as long; 0: bytes do */
    double seconds;               /* expected, alone on the machine */
    double left_out;              /* share of the runs that skip it: expected; seconds know it */
    float cpu;                    /* share of the machine's CPUs while it runs; 0: none */
    uint32_t deadline;            /* smaller is more urgent; see zinf_program_schedule */
    uint32_t first_wait, n_waits; /* into program->waits: earlier operations */
    uint32_t first_tenant;        /* into program->tenants: of its operands in buffers */
    uint32_t n_at;
};
struct zinf_pieces;
struct zinf_program {
    const char *name;
    struct zinf_op *ops;
    uint32_t n_ops;
    uint32_t *waits;
    uint32_t n_waits;
    uint32_t *tenants; /* the buffer of each operand in one; its slot's number, once scheduled */
    uint32_t n_tenants;
    char **slots; /* once scheduled: addresses of the slots of all pools */
    uint32_t n_slots;
    uint32_t most_operands;       /* of an operation */
    struct zinf_shared *shared;   /* what operations have alike */
    struct zinf_builder *builder; /* until zinf_program_schedule */
    struct zinf_pieces *pieces;   /* of a program in pieces, which has no operations; NULL: whole */
};
int zinf_program_init(struct zinf_program *program, const char *name);
void zinf_program_fini(struct zinf_program *program);
/* Of a scheduled program: the operands of op, one of its operations. */
void zinf_program_operands(const struct zinf_program *program, const struct zinf_op *op,
                           struct zinf_operand *out);
/* Memory that it takes once it is scheduled, about, and that scheduling needs beside it, known
 * until then. Of a program in pieces: while it runs, when two pieces are there. */
uint64_t zinf_program_bytes(const struct zinf_program *program);
uint64_t zinf_program_scheduling_bytes(const struct zinf_program *program);
/* A new resource. */
int zinf_program_resource(struct zinf_program *program, zinf_resource *out);
/* n_slots slots of stride bytes from base. in_order: buffers get their slots in the order in which
 * they were made, which a user of several buffers at once needs so as not to block itself. */
struct zinf_pool_options {
    const char *name;
    char *base;
    uint64_t stride;
    uint32_t n_slots;
    bool in_order;
};
int zinf_program_pool(struct zinf_program *program, const struct zinf_pool_options *options,
                      zinf_pool *out);
int zinf_program_buffer(struct zinf_program *program, zinf_pool pool, zinf_buffer *out);
/* Appends op. It waits for the last writer of everything it reads, and for the last writer and all
 * readers since of everything it writes. Operands in buffers must be among its uses. -EINVAL: what
 * READ, WRITE, H2D or D2H moves (bytes) reaches beyond a buffer. What at and where point to is
 * copied. */
struct zinf_uses {
    const zinf_resource *reads, *writes;
    uint32_t n_reads, n_writes;
};
int zinf_program_add(struct zinf_program *program, const struct zinf_op *op,
                     const struct zinf_uses *uses);

/* What lanes share, for the simulation. */
struct zinf_machine {
    double read_beside_write; /* speed of READ while WRITE runs too, of its speed alone; 0: 1 */
    double write_beside_read;
};
enum zinf_order {
    ZINF_ORDER_SERIAL,   /* one operation at a time, as they were added */
    ZINF_ORDER_ADDED,    /* lanes run at once, each in the order of adding */
    ZINF_ORDER_DEADLINE, /* each lane takes the ready operation that is needed earliest */
};
/* Ends building: fixes the order of every lane and the slot of every buffer, and drops the
 * builder. DEADLINE simulates the lanes with op->seconds (list scheduling): an operation's urgency
 * is the smallest deadline of itself and all that wait for it, and what comes out is frozen.
 * -EINVAL: a pool has too few slots for the program to end; the message names it. A program that
 * could not be scheduled is of no use but to zinf_program_fini. Of a program in pieces the order is
 * noted, for when they are made. */
int zinf_program_schedule(struct zinf_program *program, enum zinf_order order,
                          const struct zinf_machine *machine);

/* What a program will take, by simulation: lanes in their fixed order, CPUs shared by all that
 * run at once in proportion to op->cpu, drive lanes slowed beside each other. */
struct zinf_prediction {
    double seconds;
    double busy_seconds[ZINF_LANES]; /* as lanes see it: slowed by others */
    double work_seconds[ZINF_LANES]; /* op->seconds: alone */
    double cpu_seconds;              /* of the whole machine's CPUs */
    double drive_seconds;            /* while READ or WRITE runs */
    uint64_t bytes[ZINF_LANES];
};
/* Where operations of programs that run at the same time wait for each other: each of them begins
 * when `programs` of the programs have come to an operation of that number. 1 or 0: it waits for
 * nobody. */
struct zinf_meeting {
    uint64_t number;
    uint32_t programs;
};
/* op_begin, op_seconds (may be NULL): [n_ops] when each begins and how long it takes beside the
 * others; on drive lanes, whose operations overlap in truth, one after the other. skip (may be
 * NULL): operations left out. share (may be NULL): of its work that an operation has to do.
 * meeting (may be NULL): of operations of the lane NET. */
struct zinf_predict_options {
    const struct zinf_machine *machine;
    bool (*skip)(void *context, const struct zinf_op *op);
    double (*share)(void *context, const struct zinf_op *op);
    struct zinf_meeting (*meeting)(void *context, const struct zinf_op *op);
    void *context;
    double *op_begin, *op_seconds;
};
int zinf_program_predict(const struct zinf_program *program,
                         const struct zinf_predict_options *options, struct zinf_prediction *out);
/* n > 0 programs that begin at the same time, each on a machine of its own (options [n]), and meet.
 * out [n]: of each; seconds are those until its last operation ends. -EINVAL: one waits for ever */
int zinf_programs_predict(const struct zinf_program *const programs[],
                          const struct zinf_predict_options *options, uint32_t n,
                          struct zinf_prediction *out);

/* The work of programs, scheduled or not, and the seconds that no order of it is predicted to fall
 * short of: by the lane that is busiest, the mix of READ and WRITE, and the CPUs. Tells at a
 * hundredth of the price whether scheduling can be worth it. */
struct zinf_work {
    double lane_seconds[ZINF_LANES], most_cpu[ZINF_LANES], cpu_seconds;
    uint64_t n_ops;
};
void zinf_work_add(struct zinf_work *sum, const struct zinf_program *program);
double zinf_work_least_seconds(const struct zinf_work *work, const struct zinf_machine *machine);

/* ---- programs in pieces ---- */

/* A program may have too many operations to keep them all. Its builder then makes it piece by
 * piece, anew for each look at it. A piece is a scheduled program of its own. It begins when the
 * one before it has ended, so what earlier pieces have done needs no waits. Buffers that the
 * builder keeps stay in their slots; it must not touch others of earlier pieces (-EINVAL).
 *
 * The first time the pieces are only counted: the builder sets no taker, and operations are dropped
 * at each cut. What is left is a program with `pieces`. Later it is made for a taker.
 *
 * Threads: a taker is called by the thread that builds. */
struct zinf_taker {
    /* Gets the pieces in order. It may move one away and leave zeros; else the piece is freed when
     * take returns. Not 0: no more pieces are made, and the builder fails with that code. */
    int (*take)(void *context, struct zinf_program *piece);
    void *context;
    bool looks;            /* at operations alone: pieces are not scheduled */
    enum zinf_order order; /* of each piece */
    struct zinf_machine machine;
};
/* What is known of a program in pieces. */
struct zinf_pieces {
    uint32_t recipe;       /* the builder's: which program it is */
    enum zinf_order order; /* as it was scheduled */
    uint64_t n_ops, n_pieces;
    uint32_t most_ops;  /* of a piece */
    uint64_t all_bytes; /* of all pieces, as if they were one program */
    uint64_t bytes;     /* of the largest piece, and what scheduling it needs */
    uint64_t scheduling_bytes;
    struct zinf_work work; /* of all pieces */
    bool predicted;        /* the builder's: by the operations' seconds as they are */
    struct zinf_prediction prediction;
};
/* Ends a piece of a program that is being built, and begins the next one. Of the resources the
 * first n_fixed that were made, which are no buffers, and `kept` live on; kept may name what is
 * gone already. taker: as for the other pieces of this program; NULL: pieces are counted. */
int zinf_program_cut(struct zinf_program *program, uint32_t n_fixed, const zinf_resource *kept,
                     uint32_t n_kept, const struct zinf_taker *taker);
/* Ends the last piece, and the building. */
int zinf_program_end_cut(struct zinf_program *program, const struct zinf_taker *taker);
/* Operations of a program, whole or in pieces; those that are in memory while it runs. */
uint64_t zinf_program_n_ops(const struct zinf_program *program);
uint32_t zinf_program_most_ops(const struct zinf_program *program);

/* ---- executor ---- */

struct zinf_executor_options {
    /* Runs one operation that is not READ or WRITE; called in the lane's thread. */
    int (*run)(void *context, const struct zinf_op *op);
    void *context;
    const char *(*op_name)(void *context, const struct zinf_op *op, char buffer[64]);
    /* Asked when an operation could start: true leaves it out. NULL: none is. Any lane's thread. */
    bool (*skip)(void *context, const struct zinf_op *op);
    /* Asked how much of its bytes an operation moves now; of READ and WRITE a multiple of
     * ZINF_AIO_ALIGN. NULL: all. Any lane's thread, several times. */
    uint64_t (*moved)(void *context, const struct zinf_op *op);
    /* Told what an operation took. NULL: nobody is. Under the executor's lock. */
    void (*measured)(void *context, const struct zinf_op *op, double seconds);
    /* A device whose operations have only been enqueued when run returns, and the queue that run
     * uses for each lane. device NULL: operations have run when run returns. What `skip` and the
     * operands' generations depend on must come from the lanes READ, WRITE and HOST. Memory of
     * READ and WRITE is host memory. */
    struct zinf_device *device;
    struct zinf_queue *queues[ZINF_LANES]; /* NULL: the lane's operations run at once */
    const char *sysfs; /* that says which CPUs are near the device: lanes with a queue run there.
                        * NULL: /sys */
    bool net;          /* there is a lane of collectives */
    struct zinf_store *store; /* NULL: no drive lanes */
    struct zinf_aio_queue_options read_queue, write_queue;
    void *register_base; /* host memory of the transfers, to be registered */
    uint64_t register_bytes;
    const char *trace_path; /* NULL: no trace */
    /* What this seat's trace goes into, instead of a file of that name; borrowed. NULL: none. */
    struct zinf_trace_file *trace_file;
    uint32_t seat;
};
struct zinf_executor;
/* Memory that it takes, about, while it runs a program of so many operations, and from then on;
 * queued: lanes have queues. */
uint64_t zinf_executor_bytes(uint32_t n_ops, bool queued);
int zinf_executor_create(struct zinf_executor **out, const struct zinf_executor_options *options);
/* Waits for the lanes and writes the trace. NULL is allowed. */
void zinf_executor_destroy(struct zinf_executor *executor);
/* Runs a scheduled program to its end. The first failing operation stops the rest; its sentence is
 * in zinf_error(). After a failure the executor stays failed. */
int zinf_executor_run(struct zinf_executor *executor, const struct zinf_program *program);
/* Makes a program in pieces with this taker; called in a thread of its own. */
struct zinf_source {
    int (*make)(void *context, const struct zinf_taker *taker);
    void *context;
    enum zinf_order order;
    struct zinf_machine machine;
};
/* Runs a program in pieces. The next piece is made while one runs. If it cannot be made, the
 * executor is one that has failed. */
int zinf_executor_run_pieces(struct zinf_executor *executor, const struct zinf_source *source);
/* Makes it one that has failed, by code and this thread's zinf_error(): where its programs may be
 * half made, it runs no more of them. Returns code. */
int zinf_executor_end(struct zinf_executor *executor, int code);
/* Between programs: 0, or the failure that it has had, with its sentence in zinf_error(). */
int zinf_executor_check(const struct zinf_executor *executor);
/* Between programs: names in the trace what they were for, from begin_ns until now: "step 12". */
void zinf_executor_mark(struct zinf_executor *executor, const char *name, uint64_t begin_ns);

struct zinf_lane_times {
    double wall_seconds;
    double busy_seconds[ZINF_LANES]; /* at least one operation under way */
    double both_drive_seconds;       /* READ and WRITE at once */
    /* Time that lane a stood still, by the lane that it waited for; its own: nothing to do. */
    double stall_seconds[ZINF_LANES][ZINF_LANES];
    uint64_t bytes[ZINF_LANES];
    uint64_t n_ops[ZINF_LANES];
};
/* Sums since the last call; resets them. */
void zinf_executor_take_times(struct zinf_executor *executor, struct zinf_lane_times *out);

#endif
