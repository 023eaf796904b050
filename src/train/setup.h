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

#define MAX_LAYER_MAJOR 512   /* micro-batches that may run layer by layer */
#define MOST_MICROS INT16_MAX /* micro-batches of a step, whose numbers emit.h keeps in 16 bits */
#define MAX_OPTIMIZERS 4      /* of one training */
#define EVERY_RANK UINT32_MAX

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

/* Bytes that an update moves in the time that packing adds to the update of a byte of numbers of 32
 * and of 16 bits, and in that in which a byte of 16-bit numbers is unpacked. */
struct pack_work {
    double wide, half, unpack;
};

struct setup {
    struct zinf_trainer_options options;
    /* read for numbers; what its words mean is in the fields below */
    const struct zinf_config *config;

    struct zinf_model *model;
    const struct zinf_graph *graph;  /* the model's */
    const struct zinf_graph *stages; /* the model with the stages of other pipeline ranks */
    const struct zinf_graph *whole;  /* that with the shards of other tensor ranks */
    struct zinf_file_map *files;     /* the tensors of `whole` as files have them */
    /* Nets of 2, 4, ... neighbouring tensor ranks that share a key and value head; NULL: no head is
     * shared by so many. */
    struct zinf_net *sharing[6]; /* up to ZINF_MOST_SHARDS */
    uint64_t max_whole_elems;    /* elements of the largest unit of `whole` */
    /* [n_units], of ranks that are described: the most elements that a rank along TENSOR has */
    uint64_t *most_elems;
    /* of these: ranks along TENSOR have tensors of other sizes, since their parts of the vocabulary
     * differ by a row */
    bool uneven;
    /* Pipeline ranks. owners: [n_units] the rank along PIPE that saves a unit; NULL: there is one
     * rank. borders: nets of two, with the rank before and with the next one. all_units: the layout
     * of all units, of other ranks' stages too. */
    uint32_t *owners;
    uint32_t own_layers; /* layers of this rank; the embedding and the head count as one each */
    struct zinf_net *borders[2];
    struct zinf_net *handing[2]; /* nets of two for ranks along CONTEXT */
    /* of all ranks along DATA, for what the lane DEVICE tells of pairs whose samples or sequences
     * these ranks share; or NULL */
    struct zinf_net *telling;
    struct shared_unit *shared; /* [n_shared]: trained units that several pipeline ranks have */
    uint32_t n_shared;
    struct zinf_layout all_units;
    struct zinf_axis savers; /* ranks that collect units for files: DATA, or DATA and PIPE */
    struct walk walk;        /* what follows from the graph (walk.h) */
    /* the matrix products of the stages, and the algorithm of each */
    struct zinf_products products;
    char products_by[400]; /* the GPU and library for which they were chosen */
    /* products of weight gradients add to sums by themselves; expected at first, then known */
    bool sums_by_products;
    struct zinf_device *device;
    struct zinf_compute compute; /* of a step, without what changes from step to step */
    enum zinf_dtype dtype;
    struct zinf_decoding decoding; /* part of compute, for decoding */
    /* batch: samples of a micro-batch; seq: tokens of a sequence; n_micro: micro-batches of a step.
     * A sequence may be visited in n_chunks chunks of chunk_seq rows; the last rows of the last
     * chunk may be unused. Then each chunk of each sample is a micro-batch, with the number sample
     * * n_chunks + chunk. With context parallelism, chunks form n_parts parts (setup_context.c),
     * and each rank along CONTEXT has as many parts, with own_chunks chunks: then the number is
     * sample * own_chunks + the chunk's place among the rank's. */
    int64_t batch, seq, n_micro;
    int64_t n_chunks, chunk_seq;
    /* rows of a chunk of the encoder's sequence, which is cut into as many chunks */
    int64_t chunk_source;
    int64_t n_parts, own_chunks;
    /* Samples that a pass without backward takes at once: a micro-batch's. In chunks it is one,
     * unless the loss compares samples with each other, or they make embeddings. */
    int64_t windows;
    int64_t source_seq; /* tokens that an encoder reads for a decoder */
    uint64_t rows;      /* rows of a micro-batch */
    uint32_t n_units;
    struct zinf_layout layout;
    struct zinf_mesh mesh; /* the axes of the options' net */
    bool sliced;           /* ZeRO 3: each rank has its slice of the parameters, else all of them */
    /* GPUs of different ranks gather directly: always; if that is faster */
    bool must_link, may_link;
    /* Results do not depend on how samples and elements are divided among ranks: gradients of
     * micro-batches are added in the tree of zinf_tree_sum, and norm and loss are summed exactly.
     */
    bool exact;

    /* configured tiers; a unit may live in a faster one if a budget has room */
    enum zinf_tier param_tier, state_tier, grad_tier, x_tier;
    bool x_is_open; /* the plan may send the blocks' inputs further away than x_tier */
    bool fills;     /* RAM may hold what the configuration sends to the drive */
    bool reach[ACTORS][MEMORIES]; /* who can access which memory; plan/way.h decides by it */
    bool offers_updates;          /* the device may update what it has room for */
    enum accumulation_order order;
    bool order_is_open; /* order is LAYER_MAJOR, unless that does not fit */
    enum expert_fetch expert_fetch;
    enum recompute recompute;
    enum schedule wanted;
    enum zinf_aio_engine io_engine;

    enum zinf_state_form form;
    /* The first is the run's optimizer; a tensor may have another one (setup_rates.h). */
    struct optimizer optimizers[MAX_OPTIMIZERS];
    uint32_t n_optimizers;
    /* The types of all optimizers, and which tensors have which: it tells moments of different
     * trainings apart. The set is the same for any zinf.tensor_parts, whose tensors are cut and lie
     * in another order; the text is what checkpoints without parts had before there was a set. */
    char optimizers_text[64], optimizers_set[64];
    enum rule_grain grain;         /* the coarsest grain of all optimizers */
    struct zinf_device *cpu;       /* makes the products of optimizers over matrices; else NULL */
    struct zinf_optim_hyper hyper; /* of the first optimizer, without lr and step */
    struct tensor_rate **rates;    /* setup_rates.h; NULL: all tensors have the run's */
    /* setup_updaters.c: [n_units][pieces of the unit]: the rank along TENSOR that makes the update
     * of the matrix that a piece stands for, or EVERY_RANK; NULL: ranks share no matrices. */
    uint32_t **updaters;
    uint64_t *state_bytes;      /* [n_groups] */
    uint64_t *head_bytes;       /* [n_groups]: room that packed state takes in RAM */
    uint64_t *param_head_bytes; /* [n_groups]: room that packed parameters take in RAM */
    double *state_shares;       /* [n_groups]: estimated size of packed state as a fraction */
    uint64_t *state_expected;   /* [n_groups]: bytes that packed state is expected to take */
    struct rule_numbers *state_numbers; /* [n_groups]: what of it is packed */
    /* [n_groups]: of an update's matrices, the mean of the ranks along DATA, the most of TENSOR */
    struct rule_work *group_work;
    double bytes_a_flop; /* bytes that an update moves in the time of one of these flops */
    struct pack_work pack_work;
    uint64_t packable_bytes[ZINF_PACKABLES]; /* bytes of the largest packed slot of each kind */
    uint64_t frozen_packable_bytes;          /* the same for frozen parameters */
    uint64_t update_bytes;                   /* workspace of the optimizer */
    uint64_t meeting_bytes;                  /* what of it ranks that share matrices meet in */
    uint8_t generations;                     /* generations of data that can be taken back */
    bool in_place;                           /* updates are made early and cannot be taken back */
    enum packing may_pack;                   /* the most that may be packed */
    bool pack_is_open;                       /* the plan, or an earlier run, decides how much */
    enum packing packs;                      /* what is packed in this training */
    bool durable; /* steps survive the process: all state is on the drive in two generations */
    /* parameters that are elsewhere have a copy behind the state on the drive */
    bool durable_copies;
    /* About how many bytes of drive traffic a step saves since state in RAM makes steps not
     * durable. */
    uint64_t spared_bytes;
    /* the configuration leaves durability open: steps are durable unless RAM holds state */
    bool durability_is_open;

    /* setup_files.c: weights that are read in place from the model's files; or NULL */
    struct weight_files *weights;

    /* setup_codes.c: [n_units] images of units whose matrices are used only as 8-bit floats; NULL:
     * there are none. */
    struct zinf_float8_image *images;
    uint64_t *image_bytes; /* [n_units]: bytes of these images */

    uint64_t budget[ZINF_MEMORY_TIERS];
    /* limit of host memory for what the configuration would send to the drive */
    uint64_t fill_bytes;
    uint64_t common_bytes; /* limit of host and device memory together, if they are the same RAM */
    uint64_t ram_bytes;    /* RAM that this process may have in all */
    uint64_t resident_bytes; /* RAM that it has already */

    /* The run's store, borrowed. NULL: plans count extents in stores of their own. */
    struct zinf_store *store;
};

/* Makes a setup from options. plan_only: for an estimate, which needs no GPU if the configuration
 * gives its size, and counts steps as durable if a run's could be. Call setup_fini even after a
 * failure. */
int setup_init(struct setup *s, const struct zinf_trainer_options *options, bool plan_only);
void setup_fini(struct setup *s);
/* Whether the device has several algorithms for a product, so that a training keeps a list of its
 * choices. */
bool setup_lists_products(const struct setup *s);

/* plan/cost.c: the cost of device memory and of launches relative to products, by the speeds in the
 * options, else by assumed ones. */
struct zinf_pace setup_pace(const struct setup *s);
/* Bytes of state that an update moves in the time of one flop of its products. */
double setup_bytes_a_flop(const struct setup *s);
struct pack_work setup_pack_work(const struct setup *s);
/* Bytes that an update moves in the time of a sub-group's work on matrices (group_work). */
double setup_matrix_bytes(const struct setup *s, uint32_t group);

static inline bool trains(const struct setup *s)
{
    return s->options.mode == ZINF_TRAINER_TRAIN;
}

static inline bool has_backward(const struct setup *s)
{
    return s->options.mode != ZINF_TRAINER_FORWARD;
}

/* Whether the CPU cannot read device memory: then the device makes the updates and norms of what
 * lives there. */
static inline bool device_is_far(const struct setup *s)
{
    return !s->device->host_addressable;
}

/* How many samples of a step this rank has. */
static inline int64_t setup_samples(const struct setup *s)
{
    return s->n_micro / s->own_chunks * s->batch;
}
/* How many micro-batches these samples are of a pass without backward. */
static inline int64_t setup_window_micros(const struct setup *s)
{
    return s->n_chunks > 1 ? s->own_chunks * s->windows : 1;
}
/* Whether the loss of a sample depends on others: pairs, and embeddings that are compared. */
static inline bool compares_samples(const struct setup *s)
{
    return s->options.pairs || s->options.together > 1;
}
/* How many rows a step has room for on this rank. */
static inline uint64_t setup_step_rows(const struct setup *s)
{
    return (uint64_t)(setup_samples(s) * s->seq);
}

/* The axes of the mesh. Along DATA ranks have slices of units and different samples. */
static inline const struct zinf_axis *tensor_axis(const struct setup *s)
{
    return &s->mesh.at[ZINF_TENSOR];
}
static inline const struct zinf_axis *data_axis(const struct setup *s)
{
    return &s->mesh.at[ZINF_DATA];
}

/* Along CONTEXT ranks share a sequence. They are neighbours along DATA as well. */
static inline const struct zinf_axis *context_axis(const struct setup *s)
{
    return &s->mesh.at[ZINF_CONTEXT];
}
/* How many groups of ranks have samples of their own; setup_sharer: which of them a rank along DATA
 * is in. */
static inline uint32_t setup_sharers(const struct setup *s)
{
    return data_axis(s)->world / context_axis(s)->world;
}
static inline uint32_t setup_sharer(const struct setup *s, uint32_t rank)
{
    return rank / context_axis(s)->world;
}
/* Whether chunks of a sequence are divided into parts (context parallelism); how many this rank
 * has. */
static inline bool in_parts(const struct setup *s)
{
    return s->n_parts > 1;
}
static inline int64_t setup_own_parts(const struct setup *s)
{
    return s->n_parts / context_axis(s)->world;
}
/* Whether there is a program of logits. With chunks it has many operations, so it is made only if
 * needed. */
static inline bool setup_makes_logits(const struct setup *s)
{
    return s->n_chunks == 1 || s->options.mode != ZINF_TRAINER_TRAIN || s->options.makes_texts;
}
/* The sample to which a micro-batch belongs; setup_chunk: which chunk of its sequence it is. */
static inline int64_t setup_sample(const struct setup *s, int64_t micro)
{
    return micro / s->own_chunks;
}
/* This rank has chunks from the front and from the rear of a sequence. Returns the place, among the
 * rank's chunks, of the i-th of either half in the order of the sequence. */
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
/* Chunks, from the first on, that have some of so many rows of a sample or of its source. */
static inline int64_t setup_chunks_with(const struct setup *s, int64_t rows, int64_t source)
{
    const int64_t own = (rows + s->chunk_seq - 1) / s->chunk_seq;
    const int64_t others = s->chunk_source ? (source + s->chunk_source - 1) / s->chunk_source : 0;
    return own > others ? own : others;
}
/* The number of inputs: there are some for every chunk of the rank's samples. setup_input: the
 * index of a micro-batch's. */
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
/* Whether the mesh has several pipeline ranks. */
static inline bool is_piped(const struct setup *s)
{
    return pipe_axis(s)->world > 1;
}
/* How many of this rank's samples go forward through a pipeline before the first of them goes back:
 * in chunks, the least number at which no loss compares them with others. Groups of ranks take the
 * samples of a micro-batch in turn. */
int64_t setup_samples_together(const struct setup *s);
/* How many contributions to a gradient a stage makes one after the other. With context parallelism
 * one for each sample, which is summed over ranks before it is added to the others; a pipeline has
 * a visit for each instead. */
static inline int64_t setup_turns(const struct setup *s)
{
    return in_parts(s) && !is_piped(s) ? s->n_micro / s->own_chunks : 1;
}

/* Whether ranks along DATA take micro-batches in turn, since gradients are summed over ranks one
 * micro-batch at a time. */
static inline bool goes_in_turn(const struct setup *s)
{
    return is_piped(s) || in_parts(s);
}
/* Whether ranks tell each other of the samples, or the chunks of samples, that losses compare. */
static inline bool setup_tells(const struct setup *s)
{
    return s->n_chunks > 1 && goes_in_turn(s) && data_axis(s)->world > 1;
}
/* The place, among those of all ranks, of the i-th of the n micro-batches of a step that a rank
 * along DATA has; if sequences are in chunks, of its samples. Each group of ranks has consecutive
 * ones, unless the groups take them in turn. In both cases the sums are subtrees of one tree. */
static inline int64_t setup_place(const struct setup *s, uint32_t rank, int64_t n, int64_t i)
{
    const int64_t group = setup_sharer(s, rank);
    return goes_in_turn(s) ? i * setup_sharers(s) + group : group * n + i;
}
/* That of this rank's. */
static inline uint64_t setup_micro(const struct setup *s, int64_t micro)
{
    return (uint64_t)setup_place(s, data_axis(s)->rank, s->n_micro / s->own_chunks, micro);
}
/* The layout of all units, including those of other pipeline ranks, as ranks along DATA cut them.
 */
static inline const struct zinf_layout *all_units(const struct setup *s)
{
    return is_piped(s) ? &s->all_units : &s->layout;
}

/* Whether each of several ranks has all state and makes all updates, since the optimizer needs
 * whole units. */
static inline bool whole_state(const struct setup *s)
{
    return data_axis(s)->net && s->grain == GRAIN_TENSORS;
}

/* The pipeline ranks that have the unit; NULL: only one has it. */
static inline const struct shared_unit *unit_shared(const struct setup *s, uint32_t unit)
{
    for (uint32_t i = 0; i < s->n_shared; i++)
        if (s->shared[i].unit == unit)
            return &s->shared[i];
    return NULL;
}

/* Whether this rank adds the unit to the gradient norm: each element counts once over all ranks. */
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

/* Whether the model has adapters; then only these are trained and saved. */
static inline bool is_adapted(const struct setup *s)
{
    return s->graph->n_adapted;
}

/* Bytes of a sub-group's parameters, unpacked. */
static inline uint64_t setup_group_param_bytes(const struct setup *s, uint32_t group)
{
    return s->layout.groups[group].n * zinf_dtype_bytes(s->dtype);
}
static inline uint64_t durable_copy_bytes(const struct setup *s, uint64_t n)
{
    return s->durable_copies ? n * zinf_dtype_bytes(s->dtype) : 0;
}

/* The device's memory budget, if it is known before the host's; 0: it is a part of the host's. */
uint64_t setup_device_budget(const struct setup *s);
/* RAM without what is left to the operating system and other programs: 1/32 of it, at least 1 GiB
 * and at most 8 GiB, but never more than a quarter. */
uint64_t setup_without_system(uint64_t ram_bytes);
/* RAM that this rank has already, of its process's; 0 on a described machine. */
uint64_t setup_resident_bytes(const struct setup *s);
/* RAM of its host that this rank may use now, including what it has already. */
uint64_t setup_ram_bytes(const struct setup *s);
/* Whether anything may live on a drive. */
bool setup_uses_drive(const struct setup *s);
/* The configuration section whose nvme_path the store uses: that of the state if it is on a drive,
 * else that of the parameters, else the one that has a path. */
const struct zinf_config_offload *setup_drives(const struct zinf_config *config);

/* ---- setup_chunks.c: sequences that are visited in chunks ---- */

/* setup_sequence: tokens of a sequence, once the model is open; setup_is_cut: whether it is cut.
 * setup_cut_sequences: sets the chunks; call once the shape of a step is known. setup_check_chunks:
 * -ENOTSUP if the model's graph cannot be cut into chunks. */
int64_t setup_sequence(const struct setup *s);
bool setup_is_cut(const struct setup *s);
void setup_cut_sequences(struct setup *s);
int setup_check_chunks(const struct setup *s);
/* ---- setup_context.c: sequences that ranks share ---- */

/* setup_take_context: sets the ranks along CONTEXT. setup_check_context: refuses what they cannot
 * do; call once the shape of a step is known. */
int setup_take_context(struct setup *s);
int setup_check_context(const struct setup *s);
/* The net for what is told of pairs. */
int setup_find_tellers(struct setup *s);
/* Nets of two, with the rank before along an axis and with the next one; NULL: there is none. */
int setup_find_neighbours(const struct zinf_axis *axis, struct zinf_net *nets[2]);
/* ---- setup_ranks.c: a training's other ranks ---- */

/* Makes the mesh. Call before all else. */
int setup_take_net(struct setup *s);
/* Cuts every unit into slices for the ranks, and this rank's slice into sub-groups, and finds what
 * their state takes. */
int setup_lay_out(struct setup *s);
/* The axes along which units are cut. */
void setup_cuts(const struct setup *s, struct zinf_axis at[ZINF_AXES]);
/* setup_tensor.c: cuts the model into this rank's shards, or refuses what cannot be cut. */
int setup_cut_model(struct setup *s);
int setup_check_tensor(struct setup *s);
/* Of ranks that are described: takes the sizes of another one along TENSOR, as ranks that there are
 * tell each other. */
int setup_take_sizes(struct setup *s, const struct setup *other);
/* What the state of sub-groups takes becomes the most that any rank along TENSOR has of it. other:
 * a rank that is described, else NULL. */
int setup_agree_state(struct setup *s, const struct setup *other);
/* elems: [n_units], becomes the largest value that any rank has for each unit. */
int setup_agree_elems(const struct setup *s, uint64_t *elems);
/* setup_pipe.c: setup_cut_stages cuts the model into ranges of stages, takes this rank's and makes
 * nets to its neighbours; it refuses what cannot be cut. setup_savers: prepares what saving needs;
 * call once units are cut. */
int setup_cut_stages(struct setup *s);
int setup_savers(struct setup *s);
void setup_free_pipe(struct setup *s);
/* Refuses what several ranks cannot do. */
int setup_check_ranks(struct setup *s);
/* How many ranks are on this host, this one included. They share its memory and threads; each has
 * its own GPU. */
uint32_t setup_local_ranks(const struct setup *s);
/* Whether all ranks are seats of this process: they have agreed on budgets and speeds, so all of
 * them find the same plan. */
bool setup_is_one_process(const struct setup *s);
/* How many of the ranks on this host are seats of this process; they share the RAM that it has
 * already. */
uint32_t setup_seats(const struct setup *s);
int setup_own_threads(const struct setup *s);
void setup_choose_gpu(const struct setup *s, struct zinf_device_options *options);
/* Ranks agree on what was found of their machines, so that their plans are alike. */
int setup_agree(struct setup *s);
/* setup_matrices.c: moves tensors within units so that no matrix of an optimizer over matrices is
 * cut between ranks. Call once the optimizers and `exact` are known. */
int setup_place_matrices(struct setup *s);
/* The rank along DATA whose slice has a unit's matrix, and which updates it. */
uint32_t setup_matrix_owner(const struct setup *s, uint32_t unit, uint32_t tensor, uint32_t piece);
/* setup_updaters.c: deals the matrices that ranks along TENSOR share to these. Call once tensors
 * have their places. */
int setup_deal_updates(struct setup *s);
void setup_free_updaters(struct setup *s);
/* The rank along TENSOR that updates the matrix, or EVERY_RANK that has it. The piece is the unit's
 * first of the matrix. */
uint32_t setup_matrix_updater(const struct setup *s, uint32_t unit, uint32_t tensor,
                              uint32_t piece);
/* Whether ranks meet in the updates of a unit. */
bool setup_unit_meets(const struct setup *s, uint32_t unit);
/* ---- setup_frozen.c: in this order, before the model is looked at ---- */

int setup_quantize(struct setup *s);
int setup_adapt(struct setup *s);
int setup_freeze(struct setup *s);
int setup_pairs(struct setup *s);
int setup_check_quantized(const struct setup *s);

/* ---- setup_files.c ---- */

/* Sets weights if a frozen model whose home is the drive can be read from its own folder:
 * safetensors, in the parameters' number type. */
int setup_find_files(struct setup *s);
void setup_free_files(struct setup *s);
/* Fills a unit's flat buffer from what its spans have read. */
void file_unit_assemble(const struct setup *s, uint32_t unit, void *flat, const void *read);

/* ---- setup_codes.c ---- */

/* Finds the units whose matrices can go to the device as 8-bit codes. Call once units are laid out.
 */
int setup_find_codes(struct setup *s);
void setup_free_codes(struct setup *s);
static inline bool unit_has_codes(const struct setup *s, uint32_t unit)
{
    return s->images && s->images[unit].n_runs;
}

/* ---- setup_optimizer.c: what the configuration's optimizer is and what its state takes ---- */

/* setup_optimizer: takes the run's optimizer. setup_add_optimizer: adds one that tensors name, and
 * returns its number or < 0; key: the configuration key for messages. setup_check_optimizers:
 * whether several ranks can have them; call once all are known. setup_state_bytes: sets what the
 * state of sub-groups takes, and needs a layout. setup_state_work: sets what follows from that, and
 * what updates take. */
int setup_optimizer(struct setup *s);
int setup_add_optimizer(struct setup *s, const char *type, const char *key);
int setup_check_optimizers(const struct setup *s);
/* Sets optimizers_text and optimizers_set; needs rates. */
int setup_name_optimizers(struct setup *s);
/* The largest number of moments of any optimizer. */
int setup_n_moments(const struct setup *s);
/* The checkpoint part that holds what optimizers keep of matrices beside moments; 0: there is none.
 */
int setup_kept_part(const struct setup *s);
int setup_state_bytes(struct setup *s);
int setup_state_work(struct setup *s);
/* Whether a device whose memory the CPU cannot read can make this optimizer's update; whether it
 * may make those of some units. */
bool setup_device_steps(const struct setup *s);
bool setup_shares_updates(const struct setup *s);
/* Whether updates of the unit need the workspace of the optimizer. */
bool setup_unit_works(const struct setup *s, uint32_t unit);
/* Packed bytes of the largest trained sub-group's state, parameters or gradient, if a drive may
 * hold these packed; else 0. setup_packed_param_bytes: of the largest sub-group's parameters,
 * trained or frozen. */
uint64_t setup_packed_bytes(const struct setup *s, enum zinf_packable what);
uint64_t setup_packed_param_bytes(const struct setup *s);
/* For all sub-groups of a unit: bytes of their state; bytes that it takes in RAM if it is packed
 * there; whether that is less for each sub-group. */
uint64_t setup_unit_state_bytes(const struct setup *s, uint32_t unit);
uint64_t setup_unit_head_bytes(const struct setup *s, uint32_t unit);
bool setup_can_head(const struct setup *s, uint32_t unit);
/* The last two for the unit's parameters. */
uint64_t setup_unit_param_head_bytes(const struct setup *s, uint32_t unit);
bool setup_can_head_params(const struct setup *s, uint32_t unit);
/* Whether they may be packed on a drive at all: no images of fewer bits lie in front of them. */
bool setup_can_pack_params(const struct setup *s, uint32_t unit);

#endif
