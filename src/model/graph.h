/*
 * graph: a model as data: what `train` walks, and what a family fills. It knows no transformer.
 *
 *   value   passes between stages or comes with the batch: ids, targets, hidden rows, the loss
 *   unit    tensors that move together: a block, a tile of the vocabulary, an adapter
 *   stage   turns values into values with units *at hand*; it may *sweep* over further units that
 *           are visited one at a time with carried state (tiles of the vocabulary)
 *
 * A model is the list of its stages in forward order; backward goes through it in reverse. Stages
 * name values and units by their numbers. Units are numbered in the order in which the forward
 * pass first needs them. A graph is built once and read-only afterwards; the model owns it.
 */
#ifndef ZINF_GRAPH_H
#define ZINF_GRAPH_H

#include "base/base.h"
#include "kernels/kernels.h"

/* ---- values ---- */

enum zinf_value_kind {
    ZINF_VALUE_INPUT,      /* comes with the batch */
    ZINF_VALUE_ACTIVATION, /* a stage makes it */
    /* A stage makes it: fp32, one number a row. The graph's own loss is the sum over all rows of a
       step, divided by the number of rows that count. Other loss values are auxiliary: each is
       summed over a micro-batch, averaged over micro-batches and added to the loss. */
    ZINF_VALUE_LOSS,
    ZINF_VALUE_REPORT, /* as LOSS, but only reported with the step's results */
    /* The value `of` as the reference model makes it: without adapters, dropout and noise. All
       stages that lead to it run a second time in this way, each right beside its usual run, while
       its units are at hand. It has no gradient. */
    ZINF_VALUE_REFERENCE,
};
static inline bool zinf_value_is_told(enum zinf_value_kind kind)
{
    return kind == ZINF_VALUE_LOSS || kind == ZINF_VALUE_REPORT;
}
/* What a batch fills an input with. */
enum zinf_input {
    ZINF_INPUT_NONE,
    ZINF_INPUT_IDS,       /* tokens */
    ZINF_INPUT_TARGETS,   /* the token that follows each; < 0: ignored */
    ZINF_INPUT_POSITIONS, /* each token's position in its sequence */
    /* The number, from 1, of the document that each token of a sample belongs to; 0: padding.
       Tokens attend only to tokens of their own document, so this describes padding as well as
       several documents packed into one sample. Not given: a sample is one document. */
    ZINF_INPUT_SEGMENTS,
    ZINF_INPUT_SOURCE_IDS, /* tokens that an encoder reads for the decoder; source_seq of them */
    /* as SEGMENTS; a target token attends to source tokens of its own number */
    ZINF_INPUT_SOURCE_SEGMENTS,
    ZINF_INPUT_TOKEN_TYPES, /* for each token: to which of the two texts of a pair it belongs */
    /* For each sample: its class, or the bits of its number as float; for preference pairs 0, then
       < 0. */
    ZINF_INPUT_LABELS,
    ZINF_INPUT_SOURCE_POSITIONS,
    /* For each sample: its weight in the mean loss, as the bits of a float. */
    ZINF_INPUT_LABEL_WEIGHTS,
    /* For each sample: the row, within the micro-batch, of its last token that is not padding.
       Computed from ids and segments. */
    ZINF_INPUT_LAST_ROWS,
    /* For each sample: the sum of -log p of its targets by a reference model, as the bits of a
       float. */
    ZINF_INPUT_REFERENCES,
    /* For each token: 1 if its row is part of the sum that is its sample's embedding, else 0.
       Computed from segments and the trainer's pooling. */
    ZINF_INPUT_POOLED,
    /* For each sample: the gradient of the step's loss with respect to that sum, and the sample's
       loss. They are computed from the sums of all samples of a step, before the backward pass. For
       pairs in chunks PULLS is the gradient at each token's loss, or at each sample's score. */
    ZINF_INPUT_PULLS,
    ZINF_INPUT_SAMPLE_LOSSES,
    /* As SEGMENTS, but each document is cut into pieces of `piece` tokens with numbers of their
       own. Computed from segments. */
    ZINF_INPUT_PIECES,
    ZINF_INPUTS,
};
/* How many rows a value has: one for each sample, or one for each token. */
enum zinf_rows_of {
    ZINF_ROWS_OF_SAMPLE, /* batch */
    ZINF_ROWS_OF_TARGET, /* batch * seq */
    ZINF_ROWS_OF_SOURCE, /* batch * source_seq */
};
/* The number type of a value or of its gradient. */
enum zinf_element {
    ZINF_ELEMENT_NONE,  /* no gradient */
    ZINF_ELEMENT_ID,    /* int32 */
    ZINF_ELEMENT_PARAM, /* the number type of the parameters */
    ZINF_ELEMENT_F32,
};
struct zinf_value {
    char name[24];
    enum zinf_value_kind kind;
    enum zinf_input input; /* for an INPUT */
    uint32_t of;           /* for a REFERENCE: the value that it repeats */
    int64_t limit;         /* for an INPUT of ids: all are below it; 0: not checked */
    int64_t piece;         /* for the input PIECES: tokens of a piece */
    enum zinf_rows_of rows_of;
    int64_t cols;
    enum zinf_element element;
    enum zinf_element gradient; /* NONE: nothing flows back */
    /* May be moved to host memory or to the drive between forward and backward. Other values stay
     * on the device while they are needed. */
    bool leaves;
    /* No backward reads it. If it leaves the device, its place may be reused by a later value of
     * the same kind as soon as it has been read for the last time. */
    bool passing;
    /* in one rank's part of a model: another rank makes it, and no stage of this rank reads it */
    bool away;
    bool referred; /* in one rank's part of a model: some rank computes a REFERENCE from it */
};

/* ---- units ---- */

/* Maps rows of a file's tensor, seen as [out][in], to rows of a unit's tensor: `count` runs of
 * `rows` rows each. Run i begins at row file_first + i * file_stride of the file's tensor and at
 * row flat_first + i * flat_stride of the unit's. A plain range is one run; fused rows that a file
 * stores head by head are one run for each head. */
struct zinf_row_map {
    uint64_t file_first, file_stride, flat_first, flat_stride, rows, count;
};
/* A part of a unit's tensor that comes from one tensor of the file, or from some of its rows. */
struct zinf_piece {
    char name[128]; /* in the file, without the family's prefix unless plain_name */
    bool plain_name;
    int rank;          /* 0: one number without a dimension, shape is {1, 1} */
    uint64_t shape[2]; /* of the whole tensor in the file */
    /* the file's tensor has the shape [shape[0]][shape[1] / inner][inner]; 0: it has no third
     * dimension */
    uint64_t inner;
    bool transposed; /* the file has [in][out] */
    /* transposed, and the file's even rows come first as columns here, then its odd ones */
    bool turns;
    /* of a decoder: a unit that is not cut has all rows of the file's tensor in the file's order */
    bool in_order;
    /* The file's tensor is n_slabs matrices one behind the other, such as the experts of a layer,
     * and this piece is of number `slab`. 0: the file's tensor is one matrix. */
    uint64_t n_slabs, slab;
    struct zinf_row_map rows;
    /* for a quantised tensor: where the image of the file's tensor begins in the unit's images */
    uint64_t image_at;
    /* A tensor of an adapter that copies one of the base model (PEFT's modules_to_save): it has
     * PEFT's name, and if no adapter file has it, it is read from the base
     * (zinf_adapter_base_name). */
    bool of_base;
    float init_std; /* 0: the tensor's */
};
enum zinf_init {
    ZINF_INIT_NORMAL,
    ZINF_INIT_ONE,
    ZINF_INIT_ZERO,
    ZINF_INIT_UNIFORM,     /* from -init_std to init_std */
    ZINF_INIT_LOG_UNIFORM, /* the logarithm of a number from init_std / 1000 to init_std */
    ZINF_INIT_LOG_COUNT,   /* the logarithm of 1, 2, 3 and so on, by element */
    ZINF_INIT_VALUE,       /* init_std itself */
    ZINF_INIT_MAGNITUDE,   /* the norms of the rows of the weight that the adapter belongs to */
};
struct zinf_tensor {
    struct zinf_piece *pieces;
    uint32_t n_pieces;
    int rank;            /* 2: [rows][cols]; 1: [rows], cols is 1 */
    uint64_t rows, cols; /* of this unit's tensor */
    bool decay;          /* weight decay applies */
    enum zinf_init init;
    float init_std;
    /* For tensors of a head. may_be_fresh: if the folder does not have it, a training initialises
     * it. of_classes: its rows are classes, so it is initialised as well if the classes change. */
    bool may_be_fresh, of_classes;
    /* If not PLAIN, the tensor is quantised and not in the flat buffer. For each tensor of the file
     * that it has rows of there is an image (kernels/quantized.h) of the whole file tensor, as
     * [out][in] with rows in the file's order. It is frozen, and only frame_linear reads it. */
    enum zinf_form form;
    /* A vector of a frozen unit that keeps the fp32 numbers of its file whatever the parameters'
     * type: its rows are three thirds, whose sum is the fp32 number. Pieces describe the first
     * third. */
    bool exact;
    /* A trained tensor of a frozen unit. It lives in another unit, home_unit, which is at hand
     * wherever this one is; here it has a shape, but no place and no pieces. */
    bool moved;
    uint32_t home_unit, home_tensor;
    /* With tensor parallelism: cut: the tensor belongs to `shard`, or to the group of shards that
     * begins with it; else all ranks have it. counted_elsewhere: several ranks have it, and another
     * one adds it to the gradient norm. */
    bool cut, counted_elsewhere;
    uint32_t shard;
    /* Not cut, but each shard uses only some of its rows; such a tensor cannot have an adapter. */
    bool dealt;
    /* For a cut tensor: its rows are inputs, [in][out], of which this shard has some; else outputs.
     */
    bool turned;
    /* For a cut tensor: the tensors of all shards make up matrices of the files, which a unit that
     * is not cut has whole, with rows in the files' order. */
    bool joins;
    /* For a unit that is one of several a stage visits, such as an expert: the name, without the
     * family's prefix, of the parameter in which transformers stacks this tensor of all visits.
     * NULL: there is none. Owned by the graph; all visits have the same pointer. */
    const char *stack;
    uint64_t offset, elems; /* in the unit's flat buffer, in elements */
};
/* Tensors with weight decay come first: elements [0, decay_elems) of the flat buffer. Each tensor
 * starts at a multiple of 64 elements, and decay_elems is a multiple of 256; with tensor
 * parallelism both are multiples of ZINF_SUM_BLOCK, so that sums of squares do not depend on how
 * shards are dealt to ranks. The gaps are zero and stay zero. Images of quantised tensors lie in
 * front of the flat buffer wherever the unit is stored, moved and used. */
struct zinf_unit {
    char name[32]; /* "table.0", "block.3", ... */
    bool trained;  /* else no gradient, no state, one generation */
    bool constant; /* no training trains it: backward passes make no gradient for it */
    struct zinf_tensor *tensors;
    uint32_t n_tensors;
    uint64_t elems, decay_elems;
    uint64_t image_bytes;              /* bytes of all images, a multiple of ZINF_MEMORY_ALIGN */
    uint32_t first_adapted, n_adapted; /* the adapters of its tensors, in the graph's list */
};
/* A low-rank adapter for some rows of a tensor that a stage multiplies with: to y = x W^T it adds
 * scale (dropout(x) A^T) B^T (Hu et al., arXiv 2106.09685). A is [rank][cols], B is [rows][rank];
 * both are tensors of another unit, which is at hand wherever the first one is. A third tensor,
 * magnitude [rows], rescales the rows of the sum (DoRA; kernels/magnitude.h). stacked: the two
 * tensors hold A and the transposed B of all visits of a sweep, [visits rank][cols] and [visits
 * rank][rows]; this adapter has `rank` rows of each, from first_rank on. */
struct zinf_adapted {
    uint32_t unit, tensor, first_row, rows;
    uint32_t adapter, a, b; /* the other unit, and the tensors in it */
    uint32_t rank, first_rank;
    bool stacked;
    bool has_magnitude;
    uint32_t magnitude;
    float scale, dropout;
    uint32_t site;
};

struct zinf_span {
    uint64_t first, n;
};

/* ---- stages ---- */

struct zinf_ids {
    uint32_t *at;
    uint32_t n;
};
static inline bool zinf_ids_have(const struct zinf_ids *ids, uint32_t number)
{
    for (uint32_t i = 0; i < ids->n; i++)
        if (ids->at[i] == number)
            return true;
    return false;
}
struct zinf_frame;
/* What a call of a stage computes. */
enum zinf_pass {
    ZINF_PASS_FORWARD,  /* once, or once for each visit */
    ZINF_PASS_BACKWARD, /* once, or once for each visit, in the order of the forward's visits */
    /* forward and backward of the last stage, if all units of its sweep are at hand */
    ZINF_PASS_WHOLE,
    ZINF_PASS_ROW, /* the stage's result for one row: logits */
    /* Recomputes what later chunks of a sequence need from this one (frame.h), and nothing else. */
    ZINF_PASS_CARRY,
    /* Backward of that, with context parallelism: from the gradient of what the chunk has carried
       to those of weights, and to that of the stage's input, to which it is added. */
    ZINF_PASS_CARRY_BACK,
    ZINF_PASSES,
    ZINF_PASS_RECOMPUTE, /* recomputes what forward keeps, and nothing else */
};
struct zinf_stage_ops {
    const char *name; /* of the kind of stage, for traces and rates: "block" */
    /* ZINF_PASS_RECOMPUTE can make what forward keeps again from the inputs. Such a stage has no
     * sweep. For other stages what they keep stays on the device. */
    bool recomputes;
    /* The gradient of in[passed] may overwrite that of out[0]. */
    bool passes;
    /* Backward can add to gradients that are there. If no gradient flows back beyond the stage, it
     * then runs last, for all micro-batches of the step one after the other, into one place. */
    bool adds;
    /* Backward needs of what forward has made only what it keeps, and does not use the memory of
     * the outputs. */
    bool backward_without_outputs;
    /* Backward does not read the weights. They are not fetched for it, and are NULL. */
    bool backward_without_weights;
    /* Backward does not read values that other stages have made. */
    bool backward_without_inputs;
    int (*forward)(struct zinf_frame *f);
    int (*backward)(struct zinf_frame *f);
    int (*whole)(struct zinf_frame *f); /* NULL: none */
    int (*row)(struct zinf_frame *f);   /* NULL: none */
    /* For sequences in chunks: whether rows see later rows, so that what all chunks carry must be
     * made first. NULL: they do not. */
    bool (*looks_ahead)(const void *spec);
    /* NULL: rows do not see each other, or chunks are refused */
    int (*carry)(struct zinf_frame *f);
    int (*carry_backward)(struct zinf_frame *f);
};
/* A sweep in which every row takes only n of the visits, such as experts: those whose column in the
 * value in[of], fp32 [rows][visits], is not negative. A visit computes with the rows that chose it.
 * No other stage has its unit, and the gradient of a visit that no row chose is zero. Of units that
 * are at hand during the whole sweep, a visit makes only the gradient of its own adapters. */
struct zinf_choice {
    uint32_t of, n; /* n 0: every row takes every visit */
};
struct zinf_stage {
    char name[32];
    const struct zinf_stage_ops *ops;
    const void *spec;        /* for ops; owned by the graph */
    struct zinf_ids in, out; /* values */
    /* units that are at hand; units that are visited one after the other */
    struct zinf_ids units, sweep;
    uint32_t passed; /* of ops->passes */
    /* With chunks: the stage carries numbers of the rows of in[carried], and CARRY_BACK adds to the
     * gradient that BACKWARD has left there. If it is not 0, these passes have nothing to do with
     * other activations that the stage takes. */
    uint32_t carried;
    struct zinf_choice choice;
};
/* How tensor parallelism cuts a model: each matrix into `of` shards, of which this rank's graph has
 * n, from number `first` on. Products over a cut depth are computed shard by shard and added in a
 * tree of fixed shape, so that results do not depend on which rank has which shards. of 0: the
 * model is not cut. */
struct zinf_shards {
    uint32_t of, first, n;
    /* How many shards share a key and value head, as a set of powers of two: the bits of all sizes
     * that layers have. */
    uint32_t groups;
    /* Each shard of a block, or group of shards, has a unit and a stage of its own, so that only
     * one is at hand at a time (decoder_turns.c). Results have the same bits. */
    bool in_turn;
    /* Rows of a tile of the vocabulary, also for a model that is not cut; 0: chosen by the sizes of
     * the model. */
    int64_t tile_rows;
};
/* The most shards that a model may be cut into. */
#define ZINF_MOST_SHARDS 64
/* The first row of a tile of the vocabulary that belongs to a shard. */
static inline uint64_t zinf_shard_row(const struct zinf_shards *shards, uint64_t rows,
                                      uint32_t shard)
{
    return rows * shard / shards->of;
}
/* Consecutive stages of a model that one rank of a pipeline has, and what crosses their ends:
 * values come from the range before and go to the next one; gradients come from the next one and go
 * to the range before. What only passes through is in both lists. A value that the rank has from an
 * earlier range of its own does not come again, but its gradient passes through. */
struct zinf_range {
    uint32_t first, end; /* of the graph's stages */
    struct zinf_ids values_come, values_go, gradients_go, gradients_come;
};
struct zinf_graph {
    struct zinf_value *values;
    struct zinf_unit *units;
    struct zinf_stage *stages;
    struct zinf_adapted *adapted; /* in the order of units */
    uint32_t n_values, n_units, n_stages, n_adapted;
    uint32_t loss;       /* the number of the loss value */
    uint32_t embeddings; /* the number of the value with the samples' embeddings; 0: none */
    /* The number of the input that says which rows count in the mean loss: those >= 0; of fp32
     * numbers those that are not NaN. */
    uint32_t targets;
    int64_t vocab, row_cols; /* a sweep of ROW calls makes [n_visits][row_cols] logits */
    struct zinf_shards shards;
    /* With pipeline parallelism: the ranges of stages that this rank has. n_ranges 0: it has all
     * stages. Units of other ranks' stages are listed, but have no tensors. */
    struct zinf_range *ranges;
    uint32_t n_ranges;
    int64_t padding; /* for LAST_ROWS: the token that is always padding; -1: none */
};

/* Range number i; all stages if the graph has no ranges. */
static inline struct zinf_range zinf_graph_range(const struct zinf_graph *g, uint32_t i)
{
    return i < g->n_ranges ? g->ranges[i] : (struct zinf_range){.end = g->n_stages};
}

/* How a pipeline cuts a model: ranges of stages, dealt to the ranks in turn. */
struct zinf_ranges {
    const uint32_t *ends; /* [n]: for each range the number of the stage behind its last one */
    uint32_t n, rank, n_ranks;
    /* [n_values]: flows: the value's gradient is needed; referred: a REFERENCE value depends on it
     */
    const bool *flows, *referred;
};

/* Where the adapter's A, or B, lies in its unit, in elements. */
static inline struct zinf_span zinf_adapted_span(const struct zinf_graph *g,
                                                 const struct zinf_adapted *of, bool b)
{
    const struct zinf_tensor *t = &g->units[of->adapter].tensors[b ? of->b : of->a];
    if (!of->stacked)
        return (struct zinf_span){t->offset, t->elems};
    return (struct zinf_span){t->offset + of->first_rank * t->cols, of->rank * t->cols};
}

/* The length of the list of rows that chose each visit: first [visits + 1] offsets of where each
 * visit's rows begin, then the rows themselves in order. 0: all rows take all visits. */
static inline uint64_t zinf_choice_length(const struct zinf_stage *stage, uint64_t rows)
{
    return stage->choice.n ? stage->sweep.n + 1 + rows * stage->choice.n : 0;
}

/* The layout of the image of the file tensor that a piece of a quantised tensor belongs to: the
 * whole tensor, [out][in], even if a shard uses only a part of it. */
static inline struct zinf_quantized zinf_piece_quantized(const struct zinf_tensor *tensor,
                                                         const struct zinf_piece *piece)
{
    const uint64_t whole = piece->shape[piece->transposed ? 1 : 0];
    return tensor->turned ? zinf_quantized_of(tensor->form, tensor->cols, whole)
                          : zinf_quantized_of(tensor->form, whole, tensor->cols);
}

/* The number of rows of a tensor that its pieces describe. */
static inline uint64_t zinf_tensor_file_rows(const struct zinf_tensor *tensor)
{
    return tensor->exact ? tensor->rows / 3 : tensor->rows;
}

static inline uint32_t zinf_stage_visits(const struct zinf_stage *stage)
{
    return stage->sweep.n ? stage->sweep.n : 1;
}

#endif
