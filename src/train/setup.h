/*
 * setup: what was asked for and what there is. From the caller's options: where things shall live,
 * the optimizer and the form of its state, the model, the device, the layout of units, the
 * budgets. Words of the configuration become numbers here, once; nobody behind this header compares
 * strings. A setup knows no plan: every plan of it (plan/plan.h) starts from the same facts, those
 * of the machine included, which are looked at once.
 *
 * Owned by whoever initialised it, before all plans of it and longer than they; read-only from then
 * on, by any thread, but for `wanted` (a test changes it between steps), `store`, and the mesh's
 * links.
 */
#ifndef ZINF_TRAIN_SETUP_H
#define ZINF_TRAIN_SETUP_H

#include "base/memory.h"
#include "model/tensors.h"
#include "net/mesh.h"
#include "offload/offload.h"
#include "train/plan/walk.h"
#include "train/rules/rules.h"
#include "train/train.h"

#define MAX_LAYER_MAJOR 512 /* micro-batches that may run layer by layer */
#define MAX_OPTIMIZERS 4    /* of one training */

enum schedule {
    SCHEDULE_AUTO,
    SCHEDULE_SERIAL,             /* one operation at a time */
    SCHEDULE_PREFETCH,           /* lanes overlap; the update waits for the norm */
    SCHEDULE_UPDATE_IN_FORWARD,  /* ... and runs in the next forward */
    SCHEDULE_UPDATE_IN_BACKWARD, /* as soon as a gradient is complete, speculating */
    SCHEDULE_UPDATE_IN_PLACE,    /* so too, but for good: no second generation, no kept gradient */
    SCHEDULES,
};
const char *schedule_name(enum schedule schedule);

/* In which order micro-batches go through the layers. */
enum accumulation_order {
    ORDER_AUTO,
    ORDER_MICRO_MAJOR, /* one after the other through all layers */
    ORDER_LAYER_MAJOR, /* all through a layer before the next layer */
};
/* Which of the units that rows choose among are fetched. */
enum expert_fetch {
    EXPERT_FETCH_AUTO,
    EXPERT_FETCH_ALL,    /* ahead of the computation */
    EXPERT_FETCH_CHOSEN, /* once it is known which are chosen */
};
/* Which blocks compute their activations once more in the backward pass. */
enum recompute {
    RECOMPUTE_AUTO, /* those whose activations the device has no room for */
    RECOMPUTE_ALWAYS,
    RECOMPUTE_NEVER,
};

/* What is stored on a drive packed; each value includes the ones before it. */
enum packing {
    PACK_OFF,
    PACK_STATE,
    PACK_ALL, /* parameters and gradients too */
};
/* The lowest value with which that part is packed. */
static inline enum packing packing_of(enum zinf_packable what)
{
    return what == ZINF_PACKABLE_STATE ? PACK_STATE : PACK_ALL;
}

/* Who moves bytes and computes with them, and whose memory these are in. Other ranks' host memory
 * is reached by the CPU through collectives, and by a device where ranks share theirs. */
enum actor { BY_DRIVE, BY_CPU, BY_DEVICE, ACTORS };
enum memory { ON_DEVICE, ON_HOST, OTHERS_DEVICES, OTHERS_HOST, MEMORIES };

/* A frozen unit's weights as a model folder has them: whole pages of its files that hold its
 * tensors, and where in these the rows begin that each piece has rows of. */
struct file_part {
    const struct zinf_tensor *tensor;
    const struct zinf_piece *piece;
    uint64_t at, first_row; /* bytes; of the file's tensor */
};
struct file_unit {
    struct zinf_store_span *spans; /* file: of weight_files */
    struct file_part *parts;
    uint32_t n_spans, n_parts;
    uint64_t bytes;
};
struct weight_files {
    char **paths; /* [n_paths] */
    uint32_t n_paths, n_units;
    struct file_unit *units; /* [n_units]; n_parts 0: trained */
    uint64_t most_bytes;
};

/* A unit that stages of several ranks along PIPE have: those ranks, from the one whose
 * contributions to its gradient come first. */
struct shared_unit {
    uint32_t unit, n, *ranks;
};

struct setup {
    struct zinf_trainer_options options;
    const struct zinf_config *config; /* for numbers; its words are the fields below */

    struct zinf_model *model;
    const struct zinf_graph *graph;  /* the model's */
    const struct zinf_graph *stages; /* with the stages that other ranks have, */
    const struct zinf_graph *whole;  /* and with their shards */
    struct zinf_file_map *files;     /* and its tensors as files have them */
    /* Of 2, 4, ... neighbouring ranks that share a key and value head; NULL: none is shared so. */
    struct zinf_net *sharing[6]; /* up to ZINF_MOST_SHARDS */
    uint64_t max_whole_elems;    /* of whole's units */
    /* Of ranks that have stages one after the other: the rank along PIPE that a unit is saved by
     * [n_units], NULL: there is one; nets of two, with the rank before and the next one; and all
     * units as ranks cut them. */
    uint32_t *owners;
    uint32_t own_layers; /* of this rank, the embedding and the head being one each */
    struct zinf_net *borders[2];
    struct zinf_net *handing[2]; /* the same of ranks along CONTEXT */
    struct shared_unit *shared;  /* [n_shared]: trained units that several of them have */
    uint32_t n_shared;
    struct zinf_layout all_units;
    struct zinf_axis savers; /* ranks that bring units together for files: DATA, or that and PIPE */
    struct walk walk;        /* and what follows from it */
    struct zinf_products products; /* that its stages make, each by which algorithm */
    char products_by[400];         /* the GPU and the library that these are of */
    bool sums_by_products; /* products of gradients add to sums themselves: expected, then known */
    struct zinf_device *device;
    struct zinf_compute compute; /* of a training step, but for what changes with it */
    enum zinf_dtype dtype;
    struct zinf_decoding decoding; /* of compute, where sequences are continued */
    /* Samples of a micro-batch, tokens of a sequence, and micro-batches of a step. A sequence may
     * be visited in n_chunks of chunk_seq rows, the last of which may be rows of nobody: then each
     * chunk of each sample is a micro-batch, number sample * n_chunks + chunk. Chunks may be dealt
     * in n_parts parts (setup_context.c), as many to each rank along CONTEXT, which has own_chunks
     * of them: then a micro-batch is number sample * own_chunks + the chunk's place among these. */
    int64_t batch, seq, n_micro;
    int64_t n_chunks, chunk_seq;
    int64_t chunk_source; /* of the sequence that an encoder reads, which is cut into as many */
    int64_t n_parts, own_chunks;
    int64_t source_seq; /* of what an encoder reads for a decoder */
    uint64_t rows;      /* of a micro-batch */
    uint32_t n_units;
    struct zinf_layout layout;
    struct zinf_mesh mesh; /* of the options' net */
    bool sliced;           /* by stage 3: each rank has its slice of parameters, else all of them */
    bool must_link, may_link; /* ranks' GPUs gather by themselves: always; if that is faster */
    /* Sums do not depend on how samples and elements are dealt to ranks: gradients of micro-batches
     * are added in the tree of zinf_tree_sum, norm and loss without rounding. */
    bool exact;

    /* where things live as configured; a unit's own place may be faster where a budget has room */
    enum zinf_tier param_tier, state_tier, grad_tier, x_tier;
    bool x_is_open; /* the plan may send the blocks' inputs further away than x_tier */
    bool fills;     /* what the configuration sends to the drive may be in RAM */
    bool reach[ACTORS][MEMORIES]; /* who uses which memory itself; plan/way.h decides by it */
    bool offers_updates;          /* the device may update what it has room for */
    enum accumulation_order order;
    bool order_is_open; /* it is LAYER_MAJOR, but the other one where that has no room */
    enum expert_fetch expert_fetch;
    enum recompute recompute;
    enum schedule wanted;
    enum zinf_aio_engine io_engine;

    enum zinf_state_form form;
    /* The first is the run's; a tensor's is that of its rate. */
    struct optimizer optimizers[MAX_OPTIMIZERS];
    uint32_t n_optimizers;
    enum rule_grain grain;         /* the coarsest of them */
    struct zinf_device *cpu;       /* the host's products, for rules over matrices; else NULL */
    struct zinf_optim_hyper hyper; /* the first one's, without lr and step */
    struct tensor_rate **rates;    /* setup_rates.h; NULL: all are the run's */
    uint64_t *state_bytes;         /* [n_groups] */
    uint64_t *head_bytes;          /* [n_groups]: of it, room for what is packed in RAM; */
    uint64_t *param_head_bytes;    /* [n_groups]: the same of parameters */
    double *state_shares;          /* [n_groups]: estimated fraction of it after packing */
    double *group_flops;           /* [n_groups]: of the products of an update, the ranks' mean */
    double bytes_a_flop;           /* what these cost beside what an update moves */
    uint64_t packable_bytes[ZINF_PACKABLES]; /* of the largest slot of what may be packed, */
    uint64_t frozen_packable_bytes;          /* and of parameters that are not trained */
    uint64_t update_bytes;                   /* workspace of the optimizer */
    uint8_t generations;                     /* of what can be taken back */
    bool in_place;                           /* updates are made as soon as they can be, for good */
    enum packing may_pack;                   /* the most that may be stored in fewer bytes; */
    bool pack_is_open;                       /* the plan, or what a run left, says how much; */
    enum packing packs;                      /* what is, in this training */
    bool durable;        /* all state will be on the drive, in two generations */
    bool durable_copies; /* and, as not all parameters are, these once more behind it */
    uint64_t
        spared_bytes; /* of the drive in a step, about, where RAM has state and so they are not */
    bool durability_is_open; /* nobody asked: not where RAM could have some of the state */

    struct weight_files *weights; /* setup_files.c: read in place; NULL: they are not */

    /* setup_codes.c [n_units]: units with matrices that are multiplied with as 8-bit floats alone;
     * NULL: there are none. */
    struct zinf_float8_image *images;
    uint64_t *image_bytes; /* [n_units]: theirs */

    uint64_t budget[ZINF_MEMORY_TIERS];
    uint64_t fill_bytes;     /* of host memory that filling may reach, */
    uint64_t common_bytes;   /* and of host and device memory, where these are one RAM */
    uint64_t ram_bytes;      /* that this process may have in all */
    uint64_t resident_bytes; /* that it has already */

    /* The run's; borrowed. NULL: plans count their extents in stores of their own. */
    struct zinf_store *store;
};

/* plan_only: for an estimate. No GPU needs to be there if the configuration says how large it is,
 * and steps are counted as durable where a run's could be. After a failure too, setup_fini ends
 * it. */
int setup_init(struct setup *s, const struct zinf_trainer_options *options, bool plan_only);
void setup_fini(struct setup *s);
/* Whether the device has several algorithms for a product, of which a training keeps a list. */
bool setup_lists_products(const struct setup *s);

/* plan/cost.c: how the device's memory and its launches stand beside its products, by the speeds
 * that the options name, else by stated ones. */
struct zinf_pace setup_pace(const struct setup *s);
/* Bytes of state that an update moves in the time of an operation of its products. */
double setup_bytes_a_flop(const struct setup *s);

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

/* Samples of a step that are this rank's. */
static inline int64_t setup_samples(const struct setup *s)
{
    return s->n_micro / s->own_chunks * s->batch;
}
/* Rows that there are places for in a step. */
static inline uint64_t setup_step_rows(const struct setup *s)
{
    return (uint64_t)(setup_samples(s) * s->seq);
}

/* Ranks that units' slices and a step's samples are dealt to. */
static inline const struct zinf_axis *tensor_axis(const struct setup *s)
{
    return &s->mesh.at[ZINF_TENSOR];
}
static inline const struct zinf_axis *data_axis(const struct setup *s)
{
    return &s->mesh.at[ZINF_DATA];
}

/* Along which ranks share a sequence. They are neighbours along DATA, too. */
static inline const struct zinf_axis *context_axis(const struct setup *s)
{
    return &s->mesh.at[ZINF_CONTEXT];
}
/* Groups of ranks that have samples of their own. */
static inline uint32_t setup_sharers(const struct setup *s)
{
    return data_axis(s)->world / context_axis(s)->world;
}
/* Whether chunks of a sequence are dealt in parts; how many parts are this rank's. */
static inline bool in_parts(const struct setup *s)
{
    return s->n_parts > 1;
}
static inline int64_t setup_own_parts(const struct setup *s)
{
    return s->n_parts / context_axis(s)->world;
}
/* Whether there is a program of logits: of chunks it has many operations. */
static inline bool setup_makes_logits(const struct setup *s)
{
    return s->n_chunks == 1 || s->options.mode != ZINF_TRAINER_TRAIN || s->options.makes_texts;
}
/* The sample of a micro-batch that is a chunk, and which of its sequence's chunks it is. */
static inline int64_t setup_sample(const struct setup *s, int64_t micro)
{
    return micro / s->own_chunks;
}
/* Of this rank's chunks from the front of a sequence in parts, or of those from its rear, the i-th
 * in the order of the sequence: its number among them. */
static inline int64_t setup_ordered(const struct setup *s, bool rear, int64_t i)
{
    const int64_t each = s->own_chunks / setup_own_parts(s), half = each / 2;
    const int64_t part = rear ? setup_own_parts(s) - 1 - i / half : i / half;
    return part * each + (rear ? half : 0) + i % half;
}
static inline int64_t setup_chunk(const struct setup *s, int64_t micro)
{
    const int64_t own = micro % s->own_chunks, place = context_axis(s)->rank * s->own_chunks + own;
    return in_parts(s) ? zinf_chunk_at(place, s->n_chunks, s->n_parts) : own;
}
/* Inputs are there of all chunks of the rank's samples. Which are those of a micro-batch. */
static inline int64_t setup_n_inputs(const struct setup *s)
{
    return s->n_micro / s->own_chunks * s->n_chunks;
}
static inline int64_t setup_input(const struct setup *s, int64_t micro)
{
    return setup_sample(s, micro) * s->n_chunks + setup_chunk(s, micro);
}
static inline const struct zinf_axis *pipe_axis(const struct setup *s)
{
    return &s->mesh.at[ZINF_PIPE];
}
/* Whether ranks have stages of the model one after the other. */
static inline bool is_piped(const struct setup *s)
{
    return pipe_axis(s)->world > 1;
}
/* How many contributions to a gradient a stage makes one after the other: of parts, one for each
 * sample, which is summed over ranks before it is added to others. A pipeline has a visit for each.
 */
static inline int64_t setup_turns(const struct setup *s)
{
    return in_parts(s) && !is_piped(s) ? s->n_micro / s->own_chunks : 1;
}

/* The number of a rank's micro-batch, or of a sample that is visited in chunks, among those of all
 * ranks: ranks have as many neighbours each, or, where gradients are summed over ranks one
 * micro-batch at a time, take them in turn. So both sums are subtrees of one tree. */
static inline uint64_t setup_micro(const struct setup *s, int64_t micro)
{
    const uint64_t ranks = setup_sharers(s), rank = data_axis(s)->rank / context_axis(s)->world;
    return is_piped(s) || in_parts(s)
               ? (uint64_t)micro * ranks + rank
               : (uint64_t)(s->n_micro / s->own_chunks) * rank + (uint64_t)micro;
}
/* All units, those of other ranks' stages too, as ranks along DATA cut them. */
static inline const struct zinf_layout *all_units(const struct setup *s)
{
    return is_piped(s) ? &s->all_units : &s->layout;
}

/* Whether each of several ranks has all state and makes all updates, as units are not cut. */
static inline bool whole_state(const struct setup *s)
{
    return data_axis(s)->net && s->grain == GRAIN_TENSORS;
}

/* NULL: its stages are one rank's. */
static inline const struct shared_unit *unit_shared(const struct setup *s, uint32_t unit)
{
    for (uint32_t i = 0; i < s->n_shared; i++)
        if (s->shared[i].unit == unit)
            return &s->shared[i];
    return NULL;
}

/* Whether squares of gradients that this rank has count in the norm of all: once in all ranks. */
static inline bool counts_squares(const struct setup *s, uint32_t unit)
{
    const bool owns = !is_piped(s) || s->owners[unit] == pipe_axis(s)->rank;
    return s->exact && owns && (!whole_state(s) || !data_axis(s)->rank);
}

/* Whether the unit has a gradient and optimizer state. */
static inline bool unit_trains(const struct setup *s, uint32_t unit)
{
    return s->graph->units[unit].trained;
}

/* Whether it has on the rank that has its stage. */
static inline bool unit_trains_anywhere(const struct setup *s, uint32_t unit)
{
    return s->stages->units[unit].trained;
}

/* Whether the model has adapters, which alone are trained and saved. */
static inline bool is_adapted(const struct setup *s)
{
    return s->graph->n_adapted;
}

/* Of a sub-group's parameters, as they are. */
static inline uint64_t setup_group_param_bytes(const struct setup *s, uint32_t group)
{
    return s->layout.groups[group].n * zinf_dtype_bytes(s->dtype);
}
static inline uint64_t durable_copy_bytes(const struct setup *s, uint64_t n)
{
    return s->durable_copies ? n * zinf_dtype_bytes(s->dtype) : 0;
}

/* Of the device, where that is known before the host's; 0: it is a part of that. */
uint64_t setup_device_budget(const struct setup *s);
/* Of a machine's RAM what its system and its other programs keep: a part in 32, at least 1 GiB and
 * at most 8 GiB, but never more than a quarter. */
uint64_t setup_without_system(uint64_t ram_bytes);
/* That this rank may have of its host now, with what it has already. */
uint64_t setup_ram_bytes(const struct setup *s);
/* Whether anything may have to be on a drive. */
bool setup_uses_drive(const struct setup *s);
/* The section whose nvme_path the store is in. */
const struct zinf_config_offload *setup_drives(const struct zinf_config *config);

/* ---- setup_chunks.c: sequences that are visited in chunks ---- */

/* Once the shape of a step is known: its chunks. Once the graph is: what cannot be cut is refused.
 */
void setup_cut_sequences(struct setup *s);
int setup_check_chunks(const struct setup *s);
/* ---- setup_context.c: sequences that ranks share ---- */

/* Ranks along CONTEXT; then, once the shape of a step is known, what they cannot do is refused. */
int setup_take_context(struct setup *s);
int setup_check_context(const struct setup *s);
/* Nets of two, with the rank before along an axis and with the next one; NULL: there is none. */
int setup_find_neighbours(const struct zinf_axis *axis, struct zinf_net *nets[2]);
/* ---- setup_ranks.c: a training's other ranks ---- */

/* The mesh; first of all. */
int setup_take_net(struct setup *s);
/* Cuts units into the rank's slice, and that into sub-groups. */
int setup_lay_out(struct setup *s);
/* The axes along which it does. */
void setup_cuts(const struct setup *s, struct zinf_axis at[ZINF_AXES]);
/* setup_tensor.c: cuts the model into this rank's parts; what cannot be is refused by name. */
int setup_cut_model(struct setup *s);
int setup_check_tensor(struct setup *s);
/* [n_units]: of each the most that any rank has. */
int setup_agree_elems(const struct setup *s, uint64_t *elems);
/* setup_pipe.c: cuts the model into ranges of stages, and takes this rank's; nets to its
 * neighbours; and what cannot be is refused by name. Then, once units are cut, what files need. */
int setup_cut_stages(struct setup *s);
int setup_savers(struct setup *s);
void setup_free_pipe(struct setup *s);
/* What several ranks cannot do is refused by name. */
int setup_check_ranks(struct setup *s);
/* On this host, this one included: they share its memory and its threads; each has a GPU. */
uint32_t setup_local_ranks(const struct setup *s);
/* Whether all that a plan follows from is here alone: seats of one process have the budgets that
 * they have agreed on and the same speeds, and find the same. */
bool setup_is_one_process(const struct setup *s);
/* Of those the ones in this process, which share what it has already. */
uint32_t setup_seats(const struct setup *s);
int setup_own_threads(const struct setup *s);
void setup_choose_gpu(const struct setup *s, struct zinf_device_options *options);
/* What was found of the machine becomes what every rank's machine has: plans are then alike. */
int setup_agree(struct setup *s);
/* setup_matrices.c: moves tensors in units, so that no matrix of an optimizer of matrices is cut
 * between ranks; once it is known which these are, and whether sums are those of any number of
 * ranks. */
int setup_place_matrices(struct setup *s);
/* Of a unit's matrix, the rank along DATA whose slice it lies in, which makes its updates. */
uint32_t setup_matrix_owner(const struct setup *s, uint32_t unit, uint32_t tensor, uint32_t piece);
/* ---- setup_frozen.c: in this order, before the model is looked at ---- */

int setup_quantize(struct setup *s);
int setup_adapt(struct setup *s);
int setup_freeze(struct setup *s);
int setup_pairs(struct setup *s);
int setup_check_quantized(const struct setup *s);

/* ---- setup_files.c ---- */

/* Sets weights where a frozen model on the drive can be read from its folder: safetensors, in the
 * parameters' number type. */
int setup_find_files(struct setup *s);
void setup_free_files(struct setup *s);
/* A unit's flat buffer from what its spans have read. */
void file_unit_assemble(const struct setup *s, uint32_t unit, void *flat, const void *read);

/* ---- setup_codes.c ---- */

/* Once units are laid out: images of those whose matrices can go to the device as codes of 8 bits.
 */
int setup_find_codes(struct setup *s);
void setup_free_codes(struct setup *s);
static inline bool unit_has_codes(const struct setup *s, uint32_t unit)
{
    return s->images && s->images[unit].n_runs;
}

/* ---- setup_optimizer.c: what the configuration's optimizer is and what its state takes ---- */

/* The run's optimizer; one more, for tensors that name it, whose number is returned (or < 0: what
 * it cannot be is said of key); whether ranks can have them, once all are known; then, with a
 * layout, state_bytes and update_bytes. */
int setup_optimizer(struct setup *s);
int setup_add_optimizer(struct setup *s, const char *type, const char *key);
int setup_check_optimizers(const struct setup *s);
/* All their types, and which tensors are whose: what tells one training's moments from another's.
 */
void setup_optimizers_text(const struct setup *s, char text[64]);
/* The most moments that any of them has. */
int setup_n_moments(const struct setup *s);
/* The checkpoint part with what rules keep of matrices beside moments; 0: there is none. */
int setup_kept_part(const struct setup *s);
int setup_state_bytes(struct setup *s);
/* Whether a device that the CPU cannot read has this optimizer's update; whether it may make those
 * of some units. */
bool setup_device_steps(const struct setup *s);
bool setup_shares_updates(const struct setup *s);
/* Of the largest trained sub-group's state, parameters or gradient, where these may be packed on a
 * drive; else 0. And of the parameters of the largest one, trained or frozen. */
uint64_t setup_packed_bytes(const struct setup *s, enum zinf_packable what);
uint64_t setup_packed_param_bytes(const struct setup *s);
/* All of a unit's sub-groups: their state; the part of it that is kept in RAM where it is packed
 * there; whether that is less for each of them. */
uint64_t setup_unit_state_bytes(const struct setup *s, uint32_t unit);
uint64_t setup_unit_head_bytes(const struct setup *s, uint32_t unit);
bool setup_can_head(const struct setup *s, uint32_t unit);
/* The last two of its parameters. */
uint64_t setup_unit_param_head_bytes(const struct setup *s, uint32_t unit);
bool setup_can_head_params(const struct setup *s, uint32_t unit);
/* Whether they may be packed on a drive at all: no images of fewer bits lie in front of them. */
bool setup_can_pack_params(const struct setup *s, uint32_t unit);

#endif
