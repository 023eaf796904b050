/*
 * trainer: what planning, emission, running and file transfer share. Inside this folder only.
 *
 * A plan is a *choice* (how far to look ahead, which blocks keep their activations, ...) and the
 * *lines* that follow from it: what is where, in fixed places of the device and host arenas.
 */
#ifndef ZINF_TRAINER_H
#define ZINF_TRAINER_H

#include "base/memory.h"
#include "offload/offload.h"
#include "train/train.h"

#include <stdatomic.h>

#define MAX_LOOK_AHEAD 16
#define MAX_STATE_SLOTS 16
#define MAX_GRAD_SLOTS 16
#define GRAD_STAGES 3         /* gradients on their way to or from their sum, on the host */
#define X_SLOTS 4             /* block inputs on the device, where they live elsewhere, at least */
#define MAX_LAYER_MAJOR 512   /* micro-batches that may run layer by layer */
#define X_STAGES 3            /* and on their way between it and the drive */
#define SPECULATION_MEMORY 16 /* steps that decide whether to speculate */

enum schedule {
    SCHEDULE_AUTO,
    SCHEDULE_SERIAL,             /* one operation at a time */
    SCHEDULE_PREFETCH,           /* lanes overlap; the update waits for the norm */
    SCHEDULE_UPDATE_IN_FORWARD,  /* ... and runs in the next forward */
    SCHEDULE_UPDATE_IN_BACKWARD, /* as soon as a gradient is complete, speculating */
    SCHEDULES,
};
const char *schedule_name(enum schedule schedule);

struct choice {
    int look_ahead;     /* parameter slots on the device less one */
    int grad_slots;     /* gradients on the device */
    int state_slots;    /* sub-groups under way */
    int n_kept;         /* blocks [n_layers - n_kept, n_layers) keep their activations */
    int n_own;          /* units that have a device slot of their own, from unit 0 */
    bool head_all;      /* all table tiles on the device at once: logits computed once */
    int n_host_params;  /* units whose parameters the host budget takes, from unit 0 */
    int n_host_states;  /* the same for optimizer state */
    int n_host_grads;   /* blocks whose kept gradients it takes */
    int n_host_pairs;   /* blocks whose state in RAM has two generations; n_layers + 1: all units */
    int n_far_states;   /* units whose state the device takes, from unit 0 */
    int n_device_grads; /* blocks whose sums of gradients are on the device, from the first */
    bool host_tables;   /* the same for gradients of table, position and final norm */
};

/* What a search varies; what a plan starts from. */
struct variant {
    bool micro_major;    /* where the order of micro-batches is free */
    int host_grads_part; /* at first, the host budget takes one in so many blocks' gradients */
    int device_grads;    /* and the device budget so many quarters of their sums, */
    int device_states;   /* and so many quarters of the units' optimizer state */
};

/* Offsets in the device ("d_") and host ("h_") arenas, filled from the lines. */
struct places {
    uint64_t d_slots, d_own, d_grad_slots, d_tokens, d_x, d_dx, d_kept, d_working, d_scratch,
        d_head, d_logits, d_workspace, d_table_grads, d_squares;
    uint64_t h_update, h_tokens, h_scalars, h_x, h_x_stages, h_param_stages, h_grad_stages, h_tiles,
        h_transfer, h_background, h_squares;
};

struct trainer_sizes {
    uint64_t slot, grad_slot, kept, scratch, head, logits, workspace, x;
    uint64_t tile;                  /* a sub-group under way: parameters, state, gradient */
    uint64_t tile_state, tile_grad; /* offsets in it */
    uint64_t transfer;              /* what loading and saving need on the host */
};

/* How the optimizer keeps its moments. A sub-group's state is its masters, by zinf_state_form, then
 * these, to a multiple of ZINF_MEMORY_ALIGN. */
enum moment_form {
    MOMENTS_F32,      /* [n] of each moment */
    MOMENTS_8BIT,     /* [n] codes of each, then [n / ZINF_OPTIM_8BIT_BLOCK] scales of each */
    MOMENTS_FACTORED, /* of each tensor its rows' and columns', struct factors; a sub-group is a
                       * whole unit */
};

/* What an operation does; operands by number. */
enum op_kind {
    OP_COPY_IN,    /* H2D: at[0] <- at[1], bytes */
    OP_COPY_OUT,   /* D2H: at[0] <- at[1], bytes */
    OP_EMBED_TILE, /* at[0] weights, at[1] x */
    OP_EMBED_POSITION,
    OP_BLOCK,          /* at[0] weights, at[1] x in, at[2] x out; arg layer */
    OP_BLOCK_BACKWARD, /* at[0] weights, at[1] x in, at[2] grads; arg 2 layer + recompute */
    OP_HEAD_NORM,      /* at[0] weights, at[1] x */
    OP_HEAD_TILE,      /* at[0] weights */
    OP_HEAD_FINISH,
    OP_HEAD_ALL,           /* arg: 1: gradients go to the sums */
    OP_HEAD_TILE_BACKWARD, /* at[0] weights, at[2] grads */
    OP_HEAD_NORM_BACKWARD, /* at[0] weights, at[1] x, at[2] grads */
    OP_EMBED_DROPOUT_BACKWARD,
    OP_EMBED_TILE_BACKWARD, /* at[2] grads; arg: 1: adds to them */
    OP_EMBED_POSITION_BACKWARD,
    OP_GRAD_ADD,   /* DEVICE or HOST: at[0] += at[1], bytes */
    OP_SQUARES,    /* DEVICE: at[0] parts of the sum of squares <- at[1] the unit's gradient */
    OP_NORM_PART,  /* DEVICE or HOST: at[0] the unit's gradient; arg 1: its parts of OP_SQUARES */
    OP_UPDATE,     /* at[0] state in, at[1] state out, at[2] param in, at[3] param out, at[4] grad;
                    * arg group */
    OP_FAR_UPDATE, /* the same by a device that the CPU cannot read */
    OP_FLIP,       /* HOST: the unit's other generation is its truth; it is pending no more */
    OP_COMMIT,     /* HOST: the step before this one outlives the process */
    OP_ROW_LOGITS, /* at[0] weights */
    OP_READ,
    OP_WRITE,
    OP_KINDS,
};
/* Rates are numbered by kind; of kinds that HOST and DEVICE both run, a GPU's have their own. */
enum {
    RATE_GPU_ADD = OP_KINDS,
    RATE_GPU_NORM,
    RATES,
};

/* Steps that outlive the process: durable.c. */
struct durable {
    struct zinf_steps *steps; /* NULL: steps end with the process */
    bool recovered;           /* the state is that of an earlier process */
    bool due;                 /* a step awaits its record, with these scalars */
    char *scalars;
    uint64_t scalars_bytes;
    bool reported; /* what they cost */
    uint64_t n;    /* commits by this process */
    double seconds;
};

_Static_assert(RATES <= ZINF_RATE_KINDS, "rates have room for every kind");

/* What was asked for, and what there is: decided before any plan, by the options alone. */
struct setup {
    struct zinf_trainer_options options;
    const struct zinf_config *config;
    struct zinf_model *model;
    struct zinf_model_spec spec_values; /* the model's, with the configuration's dropout */
    const struct zinf_model_spec *spec;
    struct zinf_device *device;
    struct zinf_gpt2_compute compute; /* of a training step, but for what changes with it */
    enum zinf_dtype dtype;
    int64_t batch, seq, n_micro; /* B, T, G */
    uint64_t rows;               /* N = B * T */
    uint32_t n_units, n_layers;
    int64_t head_rows;
    struct zinf_layout layout;
    uint64_t budget[ZINF_MEMORY_TIERS];
    /* as configured; a unit's own place may be faster where a budget has room */
    enum zinf_tier param_tier, state_tier, grad_tier;
    enum zinf_state_form form;
    enum moment_form moments;
    struct zinf_optim_hyper hyper; /* without lr and step */
    uint64_t *state_bytes;         /* [n_groups] */
    uint64_t update_bytes;         /* workspace of the optimizer */
    uint8_t generations;           /* of what can be taken back */
    bool direct;                   /* drive and CPU use device memory themselves */
    bool fills;                    /* budgets are filled beyond what the configuration names */
    bool durable;                  /* all state will be on the drive, in two generations */
    bool durable_copies;           /* and, as not all parameters are, these once more behind it */
    enum schedule wanted;          /* as configured */
};

/* What is where, and the programs that follow from it. A function of a setup and a variant. */
struct plan {
    struct setup *setup;
    struct variant variant;
    enum zinf_tier x_tier;
    bool layer_major;
    int64_t n_x_micros;      /* micro-batches whose activations exist at once: G, or 1 */
    zinf_extent *x_extents;  /* [(n_layers + 1) n_x_micros], x_tier DRIVE */
    struct zinf_home *homes; /* [n_units] */
    struct zinf_tiers *tiers;
    struct zinf_store *store;
    struct zinf_ledger *ledger;
    struct choice choice;
    struct places at;
    struct trainer_sizes sizes;
    char *device_base, *host_base;
    uint64_t host_bytes;

    /* pointers into the arenas */
    int32_t *d_ids, *d_targets, *d_positions; /* [G][N], [G][N], [N] */
    int32_t *h_ids, *h_targets, *h_positions;
    float *d_losses, *h_losses;   /* [G][N] */
    float *h_logits;              /* [tiles][tile_rows] */
    double *norm_parts;           /* [n_groups] sums of squares */
    struct zinf_block_kept *kept; /* [n_layers][n_x_micros]: kept ones; others point to working */
    struct zinf_block_scratch scratch;
    struct zinf_head *heads;          /* [n_x_micros]; logits are shared */
    struct zinf_operand *tile_places; /* [n_tiles], head_all, as the next three */
    const void **tile_weights;
    float **tile_grads; /* an area of their own */
    float **tile_sums;  /* the sums, where they are on the device */

    /* gradients: all kept. drain: updates of all units that are pending. wait: drain, then
     * gradients. speculate: drain of the deferred units, then gradients with the others' updates.
     */
    struct zinf_program gradients, drain, wait, speculate, forward, logits;
    enum schedule schedule; /* in use, from the second step on */
    uint8_t *deferred;      /* [n_units]: updated in the next step when speculating */
    struct zinf_rates rates;
    double planned_seconds;   /* when the schedule was chosen, what it was to take */
    double predicted_seconds; /* of a step; 0: not known */
    double predicted_rest;    /* of one in which speculation rests */
};

struct zinf_trainer {
    struct setup setup;
    struct plan plan;
    const struct zinf_trainer *shadow_of;  /* plans in its stead, with its device; or NULL */
    struct zinf_queue *queues[ZINF_LANES]; /* H2D, D2H, DEVICE */
    const char *prefix;                    /* of tensor names: as the folder has them */
    struct zinf_arena host;
    struct zinf_executor *executor;
    bool planned; /* the schedule has been chosen */
    /* since trainer_measure_begin; drive lanes' operations overlap once lanes do */
    double measured_seconds[RATES], measured_work[RATES];
    const struct zinf_program *ran[2]; /* by this step, as in a steady state */
    int n_ran;
    uint32_t n_calibrated; /* steps that corrected the rates */
    uint64_t planned_step; /* when the schedule was chosen */

    /* scalars of the running program */
    struct zinf_gpt2_compute compute;
    int64_t logits_row;
    struct update_scalars {
        struct zinf_optim_hyper hyper;
        float grad_scale;
    } eager, late;                    /* of updates within the step, and of pending ones */
    uint8_t *pending;                 /* [n_units]: the kept gradient awaits its update */
    _Atomic bool give_up;             /* speculation has failed in this step */
    double partial_limit;             /* sum of squares from which it has */
    _Atomic double partial;           /* sum of squares so far */
    bool clipped[SPECULATION_MEMORY]; /* of the last steps */
    _Atomic uint32_t n_disturbed;
    uint64_t n_redone; /* steps whose speculation failed */

    struct durable durable;
    uint64_t step, n_applied;
    struct zinf_loss_scale loss_scale;
};

/* ---- setup ---- */

static inline bool trains(const struct setup *s)
{
    return s->options.mode == ZINF_TRAINER_TRAIN;
}

static inline bool has_backward(const struct setup *s)
{
    return s->options.mode != ZINF_TRAINER_FORWARD;
}

/* What is on the device's tier the CPU cannot read: the device makes its updates and norms. */
static inline bool device_is_far(const struct setup *s)
{
    return !s->device->host_addressable;
}

static inline uint32_t first_block(const struct setup *s)
{
    return (uint32_t)zinf_model_first_block(s->model);
}

static inline uint64_t durable_copy_bytes(const struct setup *s, uint64_t n)
{
    return s->durable_copies ? n * zinf_dtype_bytes(s->dtype) : 0;
}

/* trainer.c: the section whose nvme_path the store is in. */
const struct zinf_config_offload *trainer_drives(const struct zinf_config *config);
/* optimizer.c: what the configuration's optimizer is and what its state takes. The first fills
 * hyper and moments; the second, with a layout, state_bytes. */
int setup_optimizer(struct setup *s);
int setup_state_bytes(struct setup *s);
/* Whether a device that the CPU cannot read has this optimizer's update; whether it may make those
 * of some units. */
bool setup_device_steps(const struct setup *s);
bool setup_shares_updates(const struct setup *s);
int setup_n_moments(const struct setup *s);
/* All of a unit's sub-groups. */
uint64_t setup_unit_state_bytes(const struct setup *s, uint32_t unit);
/* Where a sub-group's moments begin in its state, and of 8-bit ones the scales. */
uint64_t setup_moments_offset(const struct setup *s, uint64_t n);
uint64_t setup_scales_offset(const struct setup *s, uint64_t n);
/* A tensor as Adafactor sees it: the unit's own [rows][cols], one row for a vector; and its
 * moments, in floats from the unit's first. */
struct factors {
    uint64_t rows, cols;
    uint64_t row_offset, col_offset; /* a vector has columns alone */
};
struct factors unit_factors(const struct zinf_unit_spec *unit, int tensor);

/* ---- plan ---- */

/* plan.c: homes, ledger, tiers: all memory. */
int plan_memory(struct plan *p);
/* Whether a unit's parameters are copied to the device before use. */
bool unit_is_fetched(const struct plan *p, uint32_t unit);
/* Device slots of their own, of the units before end; those that are not fetched need none. */
uint64_t plan_own_bytes(const struct plan *p, uint32_t end);
/* plan_blas.c: what OpenBLAS takes outside of the arenas */
uint64_t plan_blas_bytes(const struct plan *p);
/* place.c: every pointer, once the arenas' bases are known. */
void plan_place(struct plan *p);
/* optimizer.c: after the arenas exist and before they are touched: where there are several NUMA
 * nodes, state in RAM is near the threads that step it. */
void plan_place_state(const struct plan *p);

static inline char *device_at(const struct plan *p, uint64_t offset)
{
    return p->device_base + offset;
}

static inline char *host_at(const struct plan *p, uint64_t offset)
{
    return p->host_base + offset;
}

static inline int x_slots(const struct plan *p)
{
    return X_SLOTS + (p->layer_major ? (int)p->setup->n_micro : 0);
}

static inline char *dx_at(const struct plan *p, int64_t micro)
{
    return device_at(p, p->at.d_dx + (uint64_t)micro * p->sizes.x);
}

static inline bool block_is_kept(const struct plan *p, uint32_t layer)
{
    return (int)(p->setup->n_layers - layer) <= p->choice.n_kept;
}

/* Of a unit's OP_SQUARES, among those of all units. */
static inline uint64_t first_square(const struct plan *p, uint32_t unit)
{
    uint64_t elems = 0;
    for (uint32_t u = 0; u < unit; u++)
        elems += p->setup->layout.units[u].slice_elems;
    return elems / ZINF_SUM_BLOCK;
}

/* Whether an update of the unit can be taken back. */
static inline bool unit_speculates(const struct plan *p, uint32_t unit)
{
    return p->homes[unit].generations == 2 && p->homes[unit].param != ZINF_TIER_DEVICE;
}

/* emit.c, emit_grad.c, emit_update.c: the programs */
enum op_flags {
    OP_DEFERRED = 1, /* left out unless the unit is pending */
    OP_EAGER = 2,    /* left out once speculation has failed */
};
int program_gradients(struct plan *p);
int program_drain(struct plan *p);
int program_wait(struct plan *p);
int program_speculate(struct plan *p);
int program_forward(struct plan *p);
int program_logits(struct plan *p);

/* schedules.c: which programs there are, how they are ordered, what they are expected to take. */
int plan_first_programs(struct plan *p);
/* Chooses the schedule by the rates and builds its programs; the first step measures. */
int plan_schedules(struct plan *p);
/* The programs of a step of p->schedule in a steady state; returns how many. */
int plan_step_programs(const struct plan *p, const struct zinf_program *programs[2]);
/* One after the other; op_seconds (may be NULL) is that of the first, then of the second. */
int plan_predict(const struct plan *p, const struct zinf_program *const *programs, int n,
                 double *op_seconds, struct zinf_prediction *sum);
/* cost.c: op->seconds and op->cpu */
int plan_rate(const struct plan *p, const struct zinf_op *op); /* its number */
void plan_cost(const struct plan *p, struct zinf_op *op);
/* The same for operations that are scheduled already. */
void plan_cost_again(const struct plan *p, struct zinf_program *program);
void plan_rates_of(const struct plan *p, const struct zinf_speeds *speeds,
                   struct zinf_rates *rates);
struct zinf_machine plan_machine(const struct plan *p);

/* ---- trainer ---- */

/* trainer.c: one that only plans, by another variant; zinf_trainer_destroy ends it, before of. */
int trainer_create_shadow(struct zinf_trainer **out, const struct zinf_trainer *of,
                          const struct variant *variant);
/* search.c: sets the variant. After all that does not depend on it. */
void trainer_search(struct zinf_trainer *t);
/* calibrate.c: what was measured. Begins anew; takes an operation; makes the rates of a step that
 * was run one operation at a time; corrects them by a step whose lanes overlapped. */
void trainer_measure_begin(struct zinf_trainer *t);
void trainer_measured(void *context, const struct zinf_op *op, double seconds);
void trainer_measure_end(struct zinf_trainer *t);
int trainer_calibrate(struct zinf_trainer *t, const struct zinf_lane_times *times);
/* estimate.c: address space instead of memory, and a GPU that is not here. */
int trainer_reserve(struct zinf_trainer *t);
void trainer_unreserve(struct zinf_trainer *t);
int trainer_describe_cuda(struct zinf_trainer *t);

/* update.c: OP_UPDATE, OP_FAR_UPDATE */
int trainer_update(struct zinf_trainer *t, const struct zinf_op *op);

/* ops.c: one operation of any program */
int trainer_run_op(void *context, const struct zinf_op *op);
bool trainer_skip_op(void *context, const struct zinf_op *op);
const char *trainer_op_name(void *context, const struct zinf_op *op, char buffer[64]);
const char *trainer_kind_name(enum op_kind kind);

/* state_access.c: what checkpoints see of the state. flat: the rank's slice of the unit in fp32, in
 * flat order, aligned to ZINF_MEMORY_ALIGN. which 0: master, 1, 2: moments, not of
 * MOMENTS_FACTORED. */
/* step.c: makes the updates that a step left to be made later; before anything else looks at
 * parameters or state. */
int trainer_settle(struct zinf_trainer *t);
int trainer_state_read(struct zinf_trainer *t, uint32_t unit, int which, float *flat);
/* which 0 also sets the parameter in its number type; uses the transfer region's packed part. */
int trainer_state_write(struct zinf_trainer *t, uint32_t unit, int which, const float *flat);

/* durable.c */
/* Before the plan: whether steps shall outlive the process; says why not where it was asked for. */
void durable_choose(struct zinf_trainer *t);
/* Takes the store; what an earlier process left of it too. */
int durable_open_store(struct zinf_trainer *t, struct zinf_store_options *options);
/* With the store and all memory there: recovers the last step, or stands ready for the first. */
int durable_open(struct zinf_trainer *t);
void durable_close(struct zinf_trainer *t);
/* Scalars of the step that an earlier process committed last; NULL: there is none. */
const void *durable_recovered(const struct zinf_trainer *t, uint64_t *bytes);
/* The step that was just done, or the state before the first, outlives the process from now on, or
 * from when its late updates are made. Not after a skipped step, which changed nothing. */
int durable_commit(struct zinf_trainer *t, const void *scalars, uint64_t bytes);
/* Writes the record that is due. Nothing of the next step may have been written. */
int durable_record(struct zinf_trainer *t);
/* The results are saved: nothing stays. */
void durable_forget(struct zinf_trainer *t);
#define DURABLE_SCALARS_BYTES (32u << 10) /* at most */

/* transfer.c */
int trainer_load(struct zinf_trainer *t);
uint64_t trainer_transfer_bytes(const struct zinf_model *model, enum zinf_dtype dtype);

#endif
