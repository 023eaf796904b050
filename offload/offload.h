/*
 * offload: where training state lives, and the program that moves it. Knows units (flat buffers of
 * parameters), tiers and lanes; nothing of transformers.
 *
 *   layout    units -> rank slices -> sub-groups (tiles of optimizer state)
 *   tiers     the place of every parameter, gradient and state on device, host or drive
 *   program   a step as a flat array of operations with lanes, resources and waits
 *   executor  one thread a lane runs a program; times every operation
 *   trace     what ran when, as Chrome trace JSON and as a table of busy time
 *
 * Threads: layouts, tiers and programs are built by one thread and are read-only while a program
 * runs. An executor is used by one thread; it owns its lanes' threads.
 */
#ifndef ZINF_OFFLOAD_H
#define ZINF_OFFLOAD_H

#include "aio/aio.h"
#include "base/base.h"
#include "base/memory.h"
#include "cpu_optim/optim.h"
#include "kernels/kernels.h"

/* ---- layout ---- */

#define ZINF_LAYOUT_ALIGN                                                                          \
    4096 /* elements: sub-groups start at blocks of the norm and of O_DIRECT */

struct zinf_layout_unit {
    uint64_t elems;        /* as the owner of the unit counts */
    uint64_t padded_elems; /* of the whole unit, a multiple of ZINF_LAYOUT_ALIGN * world */
    uint64_t slice_elems;  /* of one rank */
    uint64_t slice_first;  /* this rank's first element */
    uint32_t n_groups, first_group;
};
struct zinf_layout_group {
    uint32_t unit;
    uint64_t first, n; /* elements within the rank's slice */
};
struct zinf_layout {
    uint32_t rank, world;
    uint32_t n_units, n_groups;
    struct zinf_layout_unit *units;
    struct zinf_layout_group *groups;
    uint64_t max_unit_elems; /* padded */
    uint64_t max_group_elems;
    uint64_t total_elems; /* padded, of this rank's slices */
};
/* group_elems: wanted size of a sub-group, rounded to ZINF_LAYOUT_ALIGN. */
int zinf_layout_init(struct zinf_layout *layout, const uint64_t *unit_elems, uint32_t n_units,
                     uint64_t group_elems, uint32_t rank, uint32_t world);
void zinf_layout_fini(struct zinf_layout *layout);

/* ---- tiers ---- */

enum zinf_tier {
    ZINF_TIER_DEVICE,
    ZINF_TIER_HOST,
    ZINF_TIER_DRIVE,
};
const char *zinf_tier_name(enum zinf_tier tier);

struct zinf_tiers_options {
    const struct zinf_layout *layout;
    enum zinf_dtype dtype; /* of parameters */
    int n_moments;         /* fp32 moments of the optimizer; state is master + moments */
    bool has_state;        /* false: inference, parameters only */
    enum zinf_tier param, state, grad; /* grad: as state, or HOST with state on DRIVE */
    struct zinf_store *store;          /* where a tier is DRIVE; borrowed */
};
/* Where a thing is: memory on DEVICE and HOST, extent and offset on DRIVE. */
struct zinf_location {
    enum zinf_tier tier;
    char *memory;
    zinf_extent extent;
    uint64_t offset, bytes;
};
struct zinf_tiers;
/* Adds its lines to the ledger and its extents to the store; nothing is taken yet. */
int zinf_tiers_plan(struct zinf_tiers **out, const struct zinf_tiers_options *options,
                    struct zinf_ledger *ledger);
/* After the arenas exist. */
void zinf_tiers_place(struct zinf_tiers *tiers, char *device_base, char *host_base);
void zinf_tiers_destroy(struct zinf_tiers *tiers);
const struct zinf_tiers_options *zinf_tiers_options(const struct zinf_tiers *tiers);
/* The whole unit's parameters; the range of a group's parameters. */
struct zinf_location zinf_tiers_param(const struct zinf_tiers *tiers, uint32_t unit);
struct zinf_location zinf_tiers_group_param(const struct zinf_tiers *tiers, uint32_t group);
/* Group's state: [master n][moment1 n][moment2 n] fp32, and gradient [n] fp32. */
struct zinf_location zinf_tiers_group_state(const struct zinf_tiers *tiers, uint32_t group);
struct zinf_location zinf_tiers_unit_grad(const struct zinf_tiers *tiers, uint32_t unit);
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
};
const char *zinf_lane_name(enum zinf_lane lane);

/* Anything that one operation writes and another reads: a buffer, an extent, a scalar. */
typedef uint32_t zinf_resource;

/* One operation. The builder of a program gives kinds and fields their meaning through the
 * executor's run callback; only READ and WRITE operations are understood here. */
struct zinf_op {
    enum zinf_lane lane;
    uint16_t kind;
    int16_t micro; /* micro-batch */
    int32_t unit;  /* unit or group number */
    int32_t arg;
    void *memory, *memory2, *memory3;
    uint64_t bytes; /* moved, for prediction and trace */
    double flops;
    struct zinf_location where;   /* READ, WRITE: the extent */
    uint32_t first_wait, n_waits; /* into program->waits: earlier operations */
};
struct zinf_program {
    const char *name;
    struct zinf_op *ops;
    uint32_t n_ops;
    uint32_t *waits;
    uint32_t n_waits;
    struct zinf_builder *builder; /* until zinf_program_seal */
};
int zinf_program_init(struct zinf_program *program, const char *name);
void zinf_program_fini(struct zinf_program *program);
/* A new resource. */
int zinf_program_resource(struct zinf_program *program, zinf_resource *out);
/* Appends op. It waits for the last writer of everything it reads, and for the last writer and all
 * readers since of everything it writes. Waits that its lane's order implies are left out. */
struct zinf_uses {
    const zinf_resource *reads, *writes;
    uint32_t n_reads, n_writes;
};
int zinf_program_add(struct zinf_program *program, const struct zinf_op *op,
                     const struct zinf_uses *uses);
/* Ends building; frees the builder. */
void zinf_program_seal(struct zinf_program *program);

/* ---- executor ---- */

struct zinf_executor_options {
    /* Runs one operation that is not READ or WRITE; called in the lane's thread. */
    int (*run)(void *context, const struct zinf_op *op);
    void *context;
    const char *(*op_name)(void *context, const struct zinf_op *op, char buffer[64]);
    struct zinf_store *store; /* NULL: no drive lanes */
    struct zinf_aio_queue_options read_queue, write_queue;
    void *register_base; /* host memory of the transfers, to be registered */
    uint64_t register_bytes;
    const char *trace_path; /* NULL: no trace */
};
struct zinf_executor;
int zinf_executor_create(struct zinf_executor **out, const struct zinf_executor_options *options);
/* Waits for the lanes and writes the trace. NULL is allowed. */
void zinf_executor_destroy(struct zinf_executor *executor);
/* Runs a sealed program to its end. The first failing operation stops the rest; its sentence is
 * in zinf_error(). After a failure the executor stays failed. */
int zinf_executor_run(struct zinf_executor *executor, const struct zinf_program *program);

struct zinf_lane_times {
    double wall_seconds;
    double busy_seconds[ZINF_LANES];
    uint64_t bytes[ZINF_LANES];
    uint64_t n_ops[ZINF_LANES];
};
/* Sums since the last call; resets them. */
void zinf_executor_take_times(struct zinf_executor *executor, struct zinf_lane_times *out);

#endif
