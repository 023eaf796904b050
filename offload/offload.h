/*
 * offload: where training state lives, and the program that moves it. This folder knows units
 * (flat buffers of parameters), tiers (device memory, RAM, drives) and lanes. It knows nothing of
 * transformers.
 *
 * layout: cuts units into a slice for each rank, and slices into sub-groups, the pieces that one
 * optimizer update works on.
 *
 * tiers: the place of every parameter, gradient and optimizer state on device, host or drive.
 *
 * program: a step as a flat array of operations, each with a lane, the resources it uses and the
 * operations it waits for.
 *
 * cut: a program that is too long for memory is made and run piece by piece.
 *
 * executor: runs a program with a thread for each lane, and times every operation.
 *
 * trace: what ran when, as Chrome trace JSON.
 *
 * Threads: layouts, tiers and programs are built by one thread and are read-only while a program
 * runs. An executor is used by one thread and owns its lanes' threads.
 *
 * Errors: calls that return int return 0 or -errno, with a sentence in zinf_error().
 *
 * On a GPU the lanes H2D, D2H and DEVICE only enqueue operations. An operation is enqueued as soon
 * as those that it waits for on these three lanes are enqueued; events on the GPU keep the order.
 * The other lanes start an operation when everything that it waits for has ended.
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

/* Elements. Sub-groups start at multiples of it, which suits the blocks of the norm and O_DIRECT.
 */
#define ZINF_LAYOUT_ALIGN 4096

struct zinf_layout_unit {
    uint64_t elems;        /* number of elements that the model has */
    uint64_t padded_elems; /* elems rounded up to a multiple of ZINF_LAYOUT_ALIGN * world */
    uint64_t slice_elems;  /* padded_elems of one rank */
    uint64_t slice_first;  /* index of this rank's first element */
    /* Bytes stored in front of the unit's parameters and moved with them, a multiple of
     * ZINF_MEMORY_ALIGN. The caller sets this; it is 0 at first, and only units without optimizer
     * state may have it. */
    uint64_t front_bytes;
    uint32_t n_groups, first_group;
};
struct zinf_layout_group {
    uint32_t unit;
    uint64_t first, n; /* elements within the rank's slice */
};
struct zinf_layout {
    uint32_t rank, world; /* of this rank, along ZINF_DATA */
    uint32_t n_units, n_groups;
    struct zinf_layout_unit *units;
    struct zinf_layout_group *groups;
    uint64_t max_unit_elems; /* the largest padded_elems */
    uint64_t max_group_elems;
    uint64_t total_elems; /* the sum of slice_elems */
};
struct zinf_layout_options {
    const uint64_t *unit_elems; /* [n_units] */
    const bool *whole; /* [n_units]: true makes a rank's slice one sub-group; NULL: all false */
    uint32_t n_units;
    uint64_t group_elems; /* wanted elements of a sub-group, rounded to ZINF_LAYOUT_ALIGN */
    /* This rank's place on each axis; nets are not used. Slices are dealt out along ZINF_DATA. The
     * world of every other axis must be 1. */
    struct zinf_axis at[ZINF_AXES];
};
/* Fills a layout, which owns arrays until zinf_layout_fini. -EINVAL or -ENOTSUP: the message names
 * the axis that cannot be dealt with. */
int zinf_layout_init(struct zinf_layout *layout, const struct zinf_layout_options *options);
void zinf_layout_fini(struct zinf_layout *layout);
/* Bytes of a unit as a computation fetches it: front_bytes, the parameters, and padding so that all
 * ranks' slices have the same size. */
static inline uint64_t zinf_layout_unit_bytes(const struct zinf_layout *layout, uint32_t unit,
                                              enum zinf_dtype dtype)
{
    const struct zinf_layout_unit *u = &layout->units[unit];
    return zinf_align_up(u->front_bytes + u->padded_elems * zinf_dtype_bytes(dtype),
                         (uint64_t)ZINF_MEMORY_ALIGN * layout->world);
}
/* Bytes of one rank's slice of zinf_layout_unit_bytes, and the offset of this rank's slice. Where
 * front_bytes is 0 they are slice_elems and slice_first in bytes. */
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

/* How the optimizer state of a sub-group of n elements is stored. All forms hold the same fp32
 * master weights. */
enum zinf_state_form {
    ZINF_STATE_BARE, /* [n_moments][n]: parameters are fp32 and are themselves the master weights */
    /* [n] 16-bit remainders, then [n_moments][n]: the bf16 parameter is the upper half of the
     * master */
    ZINF_STATE_SPLIT,
    ZINF_STATE_WHOLE, /* [n] fp32 master weights, then [n_moments][n] */
};

/* Where the parameters, gradient and optimizer state of a unit are stored. */
struct zinf_home {
    enum zinf_tier param, state;
    enum zinf_tier grad; /* of the kept gradient */
    bool keeps_grad; /* The gradient is kept, that is, it outlives the operations that make it. */
    /* Number of places for partial sums of the gradient, each of which waits for sums of further
     * micro-batches. 0 means 1. */
    uint16_t grad_sums;
    /* Parameters are on DRIVE in files that do not belong to the store: extent `files` holds
     * tensors of a model folder, from which the unit is made. */
    bool in_files;
    zinf_extent files;
    /* 2: parameters and state exist twice, so that an update can be taken back; parameters on
     * DEVICE and overwritten ones exist once all the same (zinf_home_copies). */
    uint8_t generations;
    /* State is on HOST and packed: each sub-group has room in RAM for the first bytes of its packed
     * state, the head. The rest lies on the drive. Such state has one generation. */
    bool headed;
    /* Parameters are on HOST and packed in the same way. State may have two generations. */
    bool param_headed;
    /* packed: parameters are on DRIVE, where those of a sub-group may be packed; a fetch unpacks
     * them. packs_grad: the same of kept gradients. packs_copy: the same of the copy (backed). */
    bool packed, packs_grad, packs_copy;
    /* coded: parameters go to the device as an image, in which matrices are 8-bit codes. imaged:
     * parameters are on DRIVE and the image lies beside them, with as many generations. */
    bool coded, imaged;
    /* Parameters are on HOST, with a copy on the drive. Every update writes the copy; a restart
     * reads it. It has as many generations as the state. */
    bool backed;
    /* Parameters on HOST have one generation: updates overwrite them. To take an update back, the
     * older parameters are read from the copy (backed), or from the copy behind the state
     * (param_copies). */
    bool overwritten;
};
/* Number of generations of parameters at their home, 1 or 2. */
static inline uint8_t zinf_home_copies(const struct zinf_home *home)
{
    return home->overwritten || home->param == ZINF_TIER_DEVICE ? 1 : home->generations;
}
struct zinf_tiers_options {
    const struct zinf_layout *layout;
    enum zinf_dtype dtype; /* of parameters */
    enum zinf_state_form form;
    int n_moments; /* fp32 moments per element; < 0: there is no optimizer state */
    /* [n_groups] bytes of each sub-group's state, multiples of ZINF_MEMORY_ALIGN, borrowed; NULL:
     * zinf_state_bytes of each */
    const uint64_t *state_bytes;
    /* [n_groups] bytes of heads of state, multiples of ZINF_AIO_ALIGN, borrowed; used where the
     * unit is `headed`; NULL: none is */
    const uint64_t *head_bytes;
    /* [n_groups] the same for heads of parameters, where the unit is `param_headed` */
    const uint64_t *param_head_bytes;
    /* [n_units] bytes of images, multiples of ZINF_MEMORY_ALIGN, borrowed; used where the unit is
     * `imaged`; NULL: none is */
    const uint64_t *image_bytes;
    bool param_copies; /* a copy of a sub-group's parameters lies behind its state */
    bool sliced;       /* only the rank's slice of parameters is stored, not the whole unit */
    const struct zinf_home *places; /* [n_units], copied */
    struct zinf_store *store;       /* needed where a tier is DRIVE; borrowed */
};
/*
 * Where some bytes are stored. On DEVICE and HOST, memory points to them; on DRIVE they are at
 * offset of extent.
 *
 * Generations: where live is set the bytes exist twice. The generation meant is *live, or the
 * other one if relative is 1. In memory generation 1 is stride bytes behind generation 0. On the
 * drive the extent has two generations, or, if beside is set, one in which generation 1 begins
 * stride bytes behind generation 0; the record of a step does not cover the latter.
 *
 * Heads: if head is not 0, the first `head` bytes are in memory and the rest in the extent. Both
 * exist once, and the generation only says which content they have. The location of the rest alone
 * has a head, too, which says how long the missing head is.
 *
 * A new field must also be copied by keep_location in program.c.
 */
struct zinf_location {
    enum zinf_tier tier;
    char *memory;
    uint64_t stride; /* bytes from generation 0 to 1 */
    bool beside;     /* both generations lie in one extent */
    zinf_extent extent;
    uint64_t offset, bytes;
    uint64_t head;       /* bytes in memory; 0: the location has no head */
    const uint8_t *live; /* NULL: one generation */
    uint8_t relative;
};
static inline unsigned zinf_location_generation(const struct zinf_location *where)
{
    return where->live ? (unsigned)(*where->live ^ where->relative) : 0;
}
/* The generation of the extent that a transfer names. */
static inline uint8_t zinf_location_bank(const struct zinf_location *where)
{
    return where->head || where->beside ? 0 : (uint8_t)zinf_location_generation(where);
}
/* The offset in the extent of the location's generation. */
static inline uint64_t zinf_location_offset(const struct zinf_location *where)
{
    return where->offset + (where->beside ? zinf_location_generation(where) * where->stride : 0);
}
/* Parts of a sub-group that may be stored on the drive packed, that is, losslessly compressed. */
enum zinf_packable {
    ZINF_PACKABLE_STATE,
    ZINF_PACKABLE_PARAM,
    ZINF_PACKABLE_GRAD, /* the kept gradient */
    ZINF_PACKABLES,
};
/* How many pages of ZINF_AIO_ALIGN bytes of a part are transferred. Whoever writes the part sets
 * this. */
struct zinf_packed {
    uint32_t read_pages; /* pages that hold the packed part; 0: it is stored unpacked */
    /* pages to write, which include data that only a restart reads; 0: all of its space */
    uint32_t write_pages;
    /* The space behind the packed pages has unknown content, so all of it must be written. */
    bool whole;
};
struct zinf_tiers;
/* Adds the memory that the places need to the ledger and their extents to the store. Allocates
 * neither. */
int zinf_tiers_plan(struct zinf_tiers **out, const struct zinf_tiers_options *options,
                    struct zinf_ledger *ledger);
/* Sets the addresses of all places. Call it once the memory at both bases is allocated. */
void zinf_tiers_place(struct zinf_tiers *tiers, char *device_base, char *host_base);
void zinf_tiers_destroy(struct zinf_tiers *tiers);
/* Creates a placed copy for another thread to read. It keeps the present generations even if
 * updates go on in tiers, which must outlive it. Parameters that updates overwrite are read from
 * their copy on the drive, which must hold the present generation. */
int zinf_tiers_view(struct zinf_tiers **out, const struct zinf_tiers *tiers);
const struct zinf_tiers_options *zinf_tiers_options(const struct zinf_tiers *tiers);
/* Pointer to the number of the generation that is valid for a unit, 0 at first. It may be changed
 * only while no operation runs. */
uint8_t *zinf_tiers_live(struct zinf_tiers *tiers, uint32_t unit);
/* Bytes of the optimizer state of n elements. */
uint64_t zinf_state_bytes(enum zinf_state_form form, int n_moments, uint64_t n);
/* Locations of a unit's parameters (whole or this rank's slice, or in files of others), of a
 * sub-group's parameters, and of a sub-group's state. relative: 0 for the valid generation, 1 for
 * the other one; it has no effect where there is one. Parameters with heads are stored sub-group by
 * sub-group, so the location of such a unit is only good for its number of bytes. */
struct zinf_location zinf_tiers_param(const struct zinf_tiers *tiers, uint32_t unit,
                                      uint8_t relative);
struct zinf_location zinf_tiers_group_param(const struct zinf_tiers *tiers, uint32_t group,
                                            uint8_t relative);
struct zinf_location zinf_tiers_group_state(const struct zinf_tiers *tiers, uint32_t group,
                                            uint8_t relative);
/* Location of the 8-bit image beside the parameters of an `imaged` unit. */
struct zinf_location zinf_tiers_image(const struct zinf_tiers *tiers, uint32_t unit,
                                      uint8_t relative);
/* Location of the part of a sub-group's packed state, or parameters, that lies on the drive behind
 * its head. */
struct zinf_location zinf_tiers_group_tail(const struct zinf_tiers *tiers, uint32_t group);
struct zinf_location zinf_tiers_group_param_tail(const struct zinf_tiers *tiers, uint32_t group,
                                                 uint8_t relative);
/* Location of the copy of a sub-group's parameters on the drive; its unit must be `backed`. */
struct zinf_location zinf_tiers_group_backing(const struct zinf_tiers *tiers, uint32_t group,
                                              uint8_t relative);
/* The copy if the unit is backed, else the parameters themselves: where a restart reads them. */
struct zinf_location zinf_tiers_group_stored(const struct zinf_tiers *tiers, uint32_t group,
                                             uint8_t relative);
/* The packing record of a part in a generation. It is all zeros at first. The pointer is valid as
 * long as tiers. */
struct zinf_packed *zinf_tiers_packed(const struct zinf_tiers *tiers, enum zinf_packable what,
                                      uint32_t group, unsigned generation);
/* Locations of kept gradients, fp32. A unit has grad_sums places with numbers from 0; the finished
 * gradient is in place 0. */
struct zinf_location zinf_tiers_unit_grad(const struct zinf_tiers *tiers, uint32_t unit);
struct zinf_location zinf_tiers_unit_grad_sum(const struct zinf_tiers *tiers, uint32_t unit,
                                              uint32_t number);
struct zinf_location zinf_tiers_group_grad(const struct zinf_tiers *tiers, uint32_t group);
/* Blocking copies between a location and ordinary memory, for loading, saving and tests. memory,
 * offset and bytes must be multiples of ZINF_MEMORY_ALIGN. */
struct zinf_access {
    const struct zinf_tiers *tiers;
    const struct zinf_device *device;
    struct zinf_queue *queue; /* through which memory of the device is copied */
};
int zinf_location_read(const struct zinf_access *by, const struct zinf_location *where,
                       uint64_t offset, void *memory, uint64_t bytes);
int zinf_location_write(const struct zinf_access *by, const struct zinf_location *where,
                        uint64_t offset, const void *memory, uint64_t bytes);

/* ---- program ---- */

enum zinf_lane {
    ZINF_LANE_READ,  /* from drive to host memory */
    ZINF_LANE_WRITE, /* from host memory to drive */
    ZINF_LANE_H2D,
    ZINF_LANE_D2H,
    ZINF_LANE_DEVICE, /* computations of the device */
    ZINF_LANE_HOST,   /* CPU work: optimizer, additions, norms */
    ZINF_LANE_NET,    /* exchanges between ranks */
    ZINF_LANES,
} __attribute__((packed)); /* programs have many operations */
const char *zinf_lane_name(enum zinf_lane lane);

/* Number of something that one operation writes and another reads: an extent, a scalar, a fixed
 * place in memory. The program orders operations by the resources that they use. */
typedef uint32_t zinf_resource;
/* Number of a pool: equal slots of memory for *buffers*. A buffer occupies a slot from its first
 * use to its last. A program may have any number of buffers; scheduling gives each a slot. */
typedef uint32_t zinf_pool;
/* Number of a buffer in a pool. It also serves as a resource. */
typedef uint32_t zinf_buffer;
#define ZINF_NO_BUFFER UINT32_MAX

/* Memory that an operation works on: an address, or an offset in a buffer until the program is
 * scheduled. live and relative choose between two generations as in struct zinf_location. */
struct zinf_operand {
    char *memory;
    uint32_t tenant; /* number of the buffer + 1; 0: memory is an address */
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
/* The buffer of an operand whose memory is an offset. */
static inline zinf_buffer zinf_operand_buffer(const struct zinf_operand *o)
{
    return o->tenant - 1;
}
static inline struct zinf_operand zinf_beyond(struct zinf_operand o, uint64_t bytes)
{
    o.memory = (char *)((uintptr_t)o.memory + bytes);
    return o;
}
/* The operand of a location on DEVICE or HOST. */
static inline struct zinf_operand zinf_of(const struct zinf_location *where)
{
    return (struct zinf_operand){where->memory, 0, where->stride, where->live, where->relative};
}
/* The operand's address at this moment. The program must have been scheduled. */
static inline void *zinf_address(const struct zinf_operand *o)
{
    return o->memory + (o->live ? o->stride * (uint64_t)(*o->live ^ o->relative) : 0);
}

/* One operation. This folder understands only READ and WRITE, whose memory is at[0]. Other kinds
 * and the fields that are marked "caller's" have the meaning that the caller's run function gives
 * them. */
struct zinf_op {
    enum zinf_lane lane;
    uint8_t axis; /* on lane NET: the axis whose ranks meet; ZINF_AXES: all ranks */
    uint16_t kind;
    uint16_t flags; /* caller's */
    int16_t micro;  /* number of the micro-batch */
    int32_t unit;   /* number of the unit */
    int32_t arg;
    int32_t stage, visit;    /* caller's */
    int16_t chunk, of_chunk; /* caller's */
    /* [n_at] operands. The caller's array when the operation is added and when it is run; a program
     * stores them in a shorter form, which zinf_program_operands expands. */
    const struct zinf_operand *at;
    /* READ, WRITE: the place on the drive; NULL when added if there is none. Never NULL in a
     * program, where operations with equal places share one copy. */
    const struct zinf_location *where;
    uint64_t bytes; /* bytes moved, for predictions and the trace */
    /* floating-point operations of products, for predictions; 0: the time follows from bytes */
    double flops;
    /* predicted duration if nothing else runs, averaged over runs that leave it out */
    double seconds;
    double left_out;   /* predicted share of the runs in which it is left out, from 0 to 1 */
    float cpu;         /* share of the machine's CPUs that it uses, from 0 to 1 */
    uint32_t deadline; /* smaller is more urgent; see zinf_program_schedule */
    /* range of program->waits: the earlier operations that it waits for */
    uint32_t first_wait, n_waits;
    uint32_t first_tenant; /* index in program->tenants of its operands' buffers */
    uint32_t n_at;
};
struct zinf_pieces;
struct zinf_program {
    const char *name;
    struct zinf_op *ops;
    uint32_t n_ops;
    uint32_t *waits;
    uint32_t n_waits;
    /* [n_tenants] buffer of each operand that has one; after scheduling, the buffer's slot */
    uint32_t *tenants;
    uint32_t n_tenants;
    char **slots; /* [n_slots] addresses of the slots of all pools; after scheduling */
    uint32_t n_slots;
    uint32_t most_operands;       /* the largest n_at */
    struct zinf_shared *shared;   /* stored once for all operations that have the same */
    struct zinf_builder *builder; /* NULL after zinf_program_schedule */
    struct zinf_pieces *pieces;   /* of a program in pieces, which has no ops; NULL: it is whole */
};
int zinf_program_init(struct zinf_program *program, const char *name);
void zinf_program_fini(struct zinf_program *program);
/* Writes the op->n_at operands of an operation of a scheduled program to out. */
void zinf_program_operands(const struct zinf_program *program, const struct zinf_op *op,
                           struct zinf_operand *out);
/* Approximate memory of the program once it is scheduled, and of scheduling itself. Both are known
 * only until zinf_program_schedule, but of a program in pieces always: they are then the memory
 * while it runs, when two pieces exist. */
uint64_t zinf_program_bytes(const struct zinf_program *program);
uint64_t zinf_program_scheduling_bytes(const struct zinf_program *program);
/* Adds a resource. */
int zinf_program_resource(struct zinf_program *program, zinf_resource *out);
/* Adds a pool of n_slots slots at base, base + stride, and so on. in_order: buffers get slots in
 * the order in which they were added, so that an operation that needs several buffers at once
 * cannot wait for itself. */
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
/* Appends an operation, and copies op, op->at and op->where. It will wait for the last writer of
 * everything that it reads, and for the last writer and all later readers of everything that it
 * writes. Buffers of its operands must be among its uses. -EINVAL: a transfer reaches beyond the
 * end of a buffer. */
struct zinf_uses {
    const zinf_resource *reads, *writes;
    uint32_t n_reads, n_writes;
};
int zinf_program_add(struct zinf_program *program, const struct zinf_op *op,
                     const struct zinf_uses *uses);

/* A drive lane begins the first operation that can begin of its next so many; other lanes begin
 * the next one. */
#define ZINF_DRIVE_WINDOW 32
/* How lanes slow each other down, for the simulation. */
struct zinf_machine {
    /* speed of READ while WRITE runs, as a part of its speed alone; 0 means 1 */
    double read_beside_write;
    double write_beside_read;
    /* speed of both while the other lanes keep all CPUs busy, as a part of that while they rest; 0
     * means 1. Where these use a part of the CPUs, as much of the loss counts. */
    double drive_beside_cpus;
    /* What passes until an operation begins for which its lane has waited: its thread has to wake,
     * and a drive that had nothing to do answers its first request. For predictions only. */
    double waking_seconds[ZINF_LANES];
};
enum zinf_order {
    ZINF_ORDER_SERIAL, /* one operation at a time, in the order of adding */
    ZINF_ORDER_ADDED,  /* all lanes at once, each in the order of adding */
    /* all lanes at once; each takes the ready operation with the earliest deadline */
    ZINF_ORDER_DEADLINE,
};
/* Ends building: fixes the order of operations on each lane, gives every buffer a slot, and frees
 * the builder. With DEADLINE, list scheduling simulates the lanes by op->seconds; an operation is
 * as urgent as the most urgent operation that waits for it. -EINVAL: a pool, which the message
 * names, has too few slots for the program to end. After an error the program may only be passed to
 * zinf_program_fini. Of a program in pieces only the order is noted; pieces are scheduled when they
 * are made. */
int zinf_program_schedule(struct zinf_program *program, enum zinf_order order,
                          const struct zinf_machine *machine);

/* The predicted course of a program: a simulation in which operations that run at once share the
 * CPUs in proportion to op->cpu, and READ and WRITE slow each other down. */
struct zinf_prediction {
    double seconds;
    double busy_seconds[ZINF_LANES]; /* with the slowdown by other lanes */
    double work_seconds[ZINF_LANES]; /* sum of op->seconds */
    double cpu_seconds;              /* seconds of all CPUs of the machine together */
    double drive_seconds;            /* time in which READ or WRITE runs */
    uint64_t bytes[ZINF_LANES];
};
/* An operation at which several programs wait for each other. It begins when so many programs have
 * come to an operation with this number. programs 0 or 1: it waits for no other program. */
struct zinf_meeting {
    uint64_t number;
    uint32_t programs;
};
/*
 * How a prediction is made; every pointer but machine may be NULL.
 *
 * skip: operations to leave out. share: the part of its work that an operation has to do. meeting:
 * of operations on lane NET, see above. op_begin, op_seconds [n_ops]: filled with each operation's
 * begin and duration. Operations on drive lanes are taken one after the other, though in truth
 * they overlap.
 */
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
/* Predicts n >= 1 programs that begin at the same time, each on a machine of its own, and that wait
 * for each other where meeting says so. options [n], out [n]. A program's seconds end with its own
 * last operation. -EINVAL: a program would wait for ever. */
int zinf_programs_predict(const struct zinf_program *const programs[],
                          const struct zinf_predict_options *options, uint32_t n,
                          struct zinf_prediction *out);

/* The work of programs, and a lower bound for the time that any order of their operations takes: by
 * the busiest lane, by READ and WRITE together, and by the CPUs. It costs a hundredth of scheduling
 * and tells whether that can be worth it. */
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
    bool looks; /* at operations alone: pieces are not scheduled */
    /* By what each piece is scheduled. The builder's: who takes pieces leaves it zero. */
    enum zinf_order order;
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
    /* Runs one operation that is neither READ nor WRITE, in its lane's thread. 0 or -errno, with a
     * sentence in zinf_error(), which ends the run. */
    int (*run)(void *context, const struct zinf_op *op);
    void *context;
    const char *(*op_name)(void *context, const struct zinf_op *op, char buffer[64]);
    /* Asked when an operation could start, by the thread of any lane. True leaves it out. NULL:
     * none is left out. */
    bool (*skip)(void *context, const struct zinf_op *op);
    /* Asked how many of its bytes an operation moves now, by the thread of any lane, several times.
     * For READ and WRITE it must be a multiple of ZINF_AIO_ALIGN. NULL: op->bytes. */
    uint64_t (*moved)(void *context, const struct zinf_op *op);
    /* Told how long an operation took, under the executor's lock. NULL: not told. */
    void (*measured)(void *context, const struct zinf_op *op, double seconds);
    /* A device on which operations have only been enqueued when run returns, and the queue of each
     * lane. NULL: operations have ended when run returns. The results of `skip` and the generations
     * of operands may depend only on operations of the lanes READ, WRITE and HOST. READ and WRITE
     * use host memory. */
    struct zinf_device *device;
    struct zinf_queue *queues[ZINF_LANES]; /* NULL: the lane has no queue */
    /* Folder that tells which CPUs are near the device; lanes with a queue run on those. NULL: /sys
     */
    const char *sysfs;
    bool net;                 /* create the lane NET */
    struct zinf_store *store; /* NULL: no lanes READ and WRITE */
    struct zinf_aio_queue_options read_queue, write_queue;
    void *register_base; /* host memory that READ and WRITE use, to be registered with the queues */
    uint64_t register_bytes;
    const char *trace_path; /* file that the trace is written to; NULL: no trace */
    /* Several executors' traces in one file, and this one's number in it; trace_path is then not
     * written. Borrowed. NULL: none. */
    struct zinf_trace_file *trace_file;
    uint32_t seat;
};
struct zinf_executor;
/* Approximate memory of an executor that runs programs of up to n_ops operations. queued: some
 * lanes have queues. */
uint64_t zinf_executor_bytes(uint32_t n_ops, bool queued);
int zinf_executor_create(struct zinf_executor **out, const struct zinf_executor_options *options);
/* Ends the lanes' threads, which have nothing to run, and writes the trace. NULL is allowed. */
void zinf_executor_destroy(struct zinf_executor *executor);
/* Runs a scheduled program and blocks until it has ended. The first operation that fails ends the
 * run; zinf_error() has its sentence. The executor then returns that error for every later program.
 */
int zinf_executor_run(struct zinf_executor *executor, const struct zinf_program *program);
/* Who makes a program in pieces. make is called once, in a thread of its own, and gives the pieces
 * to the taker. */
struct zinf_source {
    int (*make)(void *context, const struct zinf_taker *taker);
    void *context;
};
/* Runs a program in pieces and blocks until it has ended. The next piece is made while one runs. If
 * it cannot be made, the executor fails as after a failed operation. */
int zinf_executor_run_pieces(struct zinf_executor *executor, const struct zinf_source *source);
/* Makes the executor fail, with code and this thread's zinf_error(), where a program has been made
 * only in part. Returns code. */
int zinf_executor_end(struct zinf_executor *executor, int code);
/* 0, or the executor's failure, with its sentence in zinf_error(). Not while a program runs. */
int zinf_executor_check(const struct zinf_executor *executor);
/* Adds a named period to the trace, from begin_ns until now, such as "step 12". Not while a program
 * runs. */
void zinf_executor_mark(struct zinf_executor *executor, const char *name, uint64_t begin_ns);

struct zinf_lane_times {
    double wall_seconds;
    double busy_seconds[ZINF_LANES]; /* time in which at least one of its operations runs */
    double both_drive_seconds;       /* READ and WRITE at once */
    /* [a][b]: time in which lane a stood still because it waited for lane b; [a][a]: had nothing to
     * do */
    double stall_seconds[ZINF_LANES][ZINF_LANES];
    uint64_t bytes[ZINF_LANES];
    uint64_t n_ops[ZINF_LANES];
};
/* Gives the sums since the last call and sets them to 0. Not while a program runs. */
void zinf_executor_take_times(struct zinf_executor *executor, struct zinf_lane_times *out);

#endif
