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
    /* A stage makes it; fp32, one a row. The graph's loss is the sum over the step's rows, divided
     * by those that count; others are added to it: of each the sum over a micro-batch, in the mean
     * over micro-batches. */
    ZINF_VALUE_LOSS,
    ZINF_VALUE_REPORT, /* as LOSS, but of no loss a part: what is told of a step */
    /* What the value `of` is without adapters, dropout and noise. Whatever leads there is made so,
     * too, beside what it is otherwise: one stage and visit after the other, while their units are
     * at hand. Nothing flows back. */
    ZINF_VALUE_REFERENCE,
};
static inline bool zinf_value_is_told(enum zinf_value_kind kind)
{
    return kind == ZINF_VALUE_LOSS || kind == ZINF_VALUE_REPORT;
}
/* What an input is, for whoever fills it. */
enum zinf_input {
    ZINF_INPUT_NONE,
    ZINF_INPUT_IDS,       /* tokens */
    ZINF_INPUT_TARGETS,   /* the token after each; < 0: ignored */
    ZINF_INPUT_POSITIONS, /* of each token in its sequence */
    /* The document that each token of a sample belongs to, from 1; 0: padding. A token attends to
     * those of its own document alone, which says both that a row is padded and that several
     * documents are packed into it. Not given: a sample is one document. */
    ZINF_INPUT_SEGMENTS,
    ZINF_INPUT_SOURCE_IDS,      /* what an encoder reads for the decoder, of its own length */
    ZINF_INPUT_SOURCE_SEGMENTS, /* as SEGMENTS; a target's token attends to its own number here */
    ZINF_INPUT_TOKEN_TYPES,     /* of each token: which of the two texts of a pair it is from */
    /* Of each sample: its class, or the bits of its number; of pairs 0, then < 0. */
    ZINF_INPUT_LABELS,
    ZINF_INPUT_SOURCE_POSITIONS,
    /* Of each sample: the bits of how much it counts in the mean loss. */
    ZINF_INPUT_LABEL_WEIGHTS,
    /* Of each sample: the row, among those of the micro-batch, of its last token that is no
     * padding. Follows from ids and segments. */
    ZINF_INPUT_LAST_ROWS,
    /* Of each sample: the bits of the sum of -log p of its targets by a reference. */
    ZINF_INPUT_REFERENCES,
    /* Of each token: 1 where its row is of the sum that is its sample's embedding, else 0. Follows
     * from segments and the trainer's pooling. */
    ZINF_INPUT_POOLED,
    /* Of each sample: the gradient of the step's loss at that sum, and the sample's loss. They come
     * of the sums of all samples of a step, before its backward. */
    ZINF_INPUT_PULLS,
    ZINF_INPUT_SAMPLE_LOSSES,
    /* As SEGMENTS, but each document is cut into pieces of `piece` tokens, of numbers of their own.
     * Follows from segments. */
    ZINF_INPUT_PIECES,
    ZINF_INPUTS,
};
/* Rows of a value: one a sample, or one a token of it. */
enum zinf_rows_of {
    ZINF_ROWS_OF_SAMPLE, /* batch */
    ZINF_ROWS_OF_TARGET, /* batch * seq */
    ZINF_ROWS_OF_SOURCE, /* batch * source_seq */
};
/* Numbers of a value or of its gradient. */
enum zinf_element {
    ZINF_ELEMENT_NONE,  /* no gradient */
    ZINF_ELEMENT_ID,    /* int32 */
    ZINF_ELEMENT_PARAM, /* the number type of the parameters */
    ZINF_ELEMENT_F32,
};
struct zinf_value {
    char name[24];
    enum zinf_value_kind kind;
    enum zinf_input input; /* of an INPUT */
    uint32_t of;           /* of a REFERENCE: another value, that a stage makes */
    int64_t limit;         /* of an INPUT: ids are below it; 0: not checked */
    int64_t piece;         /* of the input PIECES */
    enum zinf_rows_of rows_of;
    int64_t cols;
    enum zinf_element element;
    enum zinf_element gradient; /* NONE: nothing flows back */
    /* May live in host memory or on the drive between forward and backward. Others stay on the
     * device while they are needed. */
    bool leaves;
    /* No backward looks at it: where it leaves the device, a later value of the same sort may have
     * its place as soon as it has been read for the last time. */
    bool passing;
    bool away; /* of a part of a model: another rank makes it, and no stage of this one reads it */
    bool referred; /* of a part of a model: what a rank makes for a reference is made of it, too */
};

/* ---- units ---- */

/* Which rows of a file's tensor, seen as [out][in], are which rows of ours: `count` runs of `rows`
 * rows; run i begins at file_first + i * file_stride there and at flat_first + i * flat_stride
 * here. One run is a plain range; fused rows that a file has by head are `n_heads` runs. */
struct zinf_row_map {
    uint64_t file_first, file_stride, flat_first, flat_stride, rows, count;
};
/* A part of a unit's tensor that is one tensor of the file, or rows of one. */
struct zinf_piece {
    char name[128]; /* in the file, without the family's prefix unless plain_name */
    bool plain_name;
    int rank;          /* 0: one number without a dimension, shape is {1, 1} */
    uint64_t shape[2]; /* of the whole tensor in the file */
    uint64_t inner;  /* the file's shape is [shape[0]][shape[1] / inner][inner]; 0: it has no third
                      * dimension */
    bool transposed; /* the file has [in][out] */
    bool turns;      /* transposed: the file's even rows are columns here before its odd ones */
    /* The file's tensor is n_slabs of all of this, one behind the other (the experts of a layer),
     * and this is of one of them. 0: it is that alone. */
    uint64_t n_slabs, slab;
    struct zinf_row_map rows;
    uint64_t image_at; /* of a quantised tensor: where the file's tensor is in the unit's images */
    /* Of an adapter, but a copy of the base's: the name is PEFT's, and what no adapter's file gives
     * comes from the base (zinf_adapter_base_name). */
    bool of_base;
    float init_std; /* 0: the tensor's */
};
enum zinf_init {
    ZINF_INIT_NORMAL,
    ZINF_INIT_ONE,
    ZINF_INIT_ZERO,
    ZINF_INIT_UNIFORM,     /* from -init_std to init_std */
    ZINF_INIT_LOG_UNIFORM, /* the logarithm of a number from init_std / 1000 to init_std */
    ZINF_INIT_LOG_COUNT,   /* of 1, 2, 3 and so on, by element */
    ZINF_INIT_VALUE,       /* init_std itself */
    ZINF_INIT_MAGNITUDE,   /* norms of the rows of the weight that it is an adapter's of */
};
struct zinf_tensor {
    struct zinf_piece *pieces;
    uint32_t n_pieces;
    int rank;            /* 2: [rows][cols]; 1: [rows], cols is 1 */
    uint64_t rows, cols; /* of this unit's tensor */
    bool decay;          /* weight decay applies */
    enum zinf_init init;
    float init_std;
    /* Of a head: where a folder has none, a training begins with fresh ones. Those of its classes
     * are of no use where others are asked for. */
    bool may_be_fresh, of_classes;
    /* Not PLAIN: it is not in the flat buffer. Each tensor of the file that it has rows of is an
     * image (kernels/quantized.h) of that, whole, as [out][in] with rows in the file's order;
     * frozen, and read by frame_linear alone. */
    enum zinf_form form;
    /* A vector of a frozen unit that keeps the fp32 numbers of its file in any type of parameters:
     * thirds of its rows, whose sum they are. Pieces are of the first third. */
    bool exact;
    /* It is a tensor of another unit, at hand wherever this one is, and has no place and no pieces
     * here, but its shape: what is trained of a frozen unit. */
    bool moved;
    uint32_t home_unit, home_tensor;
    /* Of a model that is cut: it is that shard's, or that shard is the first of a group that shares
     * it; else all ranks have it. Of what several have, one counts it in norms. */
    bool cut, counted_elsewhere;
    uint32_t shard;
    /* Not cut, but a shard uses some of its rows: no adapter can be beside it. */
    bool dealt;
    /* Of a cut tensor: rows are inputs, [in][out], of which this shard has some; else outputs. */
    bool turned;
    /* For a unit that is one of many that a stage visits, such as an expert: the name, without the
     * family's prefix, of the one parameter in which transformers has this tensor of all visits.
     * NULL: there is none. Owned by the graph; all visits have the same pointer. */
    const char *stack;
    uint64_t offset, elems; /* in the unit's flat buffer, in elements */
};
/* Tensors with decay come first, so the flat buffer is [0, decay_elems) with decay, the rest
 * without. Each tensor starts at a multiple of 64 elements, and decay_elems is one of 256 (both of
 * ZINF_SUM_BLOCK where the model is cut, so that sums of squares are those of shards); the gaps are
 * zero and stay zero. Images are in front of it, where the unit is stored, moved and used; the
 * flat buffer is then that of the other tensors. */
struct zinf_unit {
    char name[32]; /* "table.0", "block.3", ... */
    bool trained;  /* else no gradient, no state, one generation */
    struct zinf_tensor *tensors;
    uint32_t n_tensors;
    uint64_t elems, decay_elems;
    uint64_t image_bytes;              /* of all images, a multiple of ZINF_MEMORY_ALIGN */
    uint32_t first_adapted, n_adapted; /* of its tensors, among the graph's */
};
/* A low-rank adapter of rows of a tensor that a stage multiplies with: to y = x W^T it adds
 * scale (dropout(x) A^T) B^T (Hu et al., arXiv 2106.09685). A is [rank][cols], B [rows][rank]: two
 * tensors of another unit, at hand wherever the first one is. With magnitudes, a third tensor
 * [rows], the sum's rows are scaled to those (kernels/magnitude.h).
 * Stacked: the two tensors hold A and the transposed B of all visits of a sweep, [visits
 * rank][cols] and [visits rank][rows]; this adapter has `rank` rows of each, from first_rank on. */
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
/* What kind of call a frame is. */
enum zinf_pass {
    ZINF_PASS_FORWARD,  /* once, or once a visit */
    ZINF_PASS_BACKWARD, /* once, or once a visit, in the order of the forward's visits */
    ZINF_PASS_WHOLE,    /* forward and backward of a last stage whose sweep is all at hand */
    ZINF_PASS_ROW,      /* the stage's result for one row alone: logits */
    /* What later chunks of a sequence see of this one (frame.h), once more, and nothing else. */
    ZINF_PASS_CARRY,
    /* Backward of that, of chunks that are dealt in parts: from the gradient at what the chunk has
     * carried to those of weights, and added to that of the stage's input. */
    ZINF_PASS_CARRY_BACK,
    ZINF_PASSES,
    ZINF_PASS_RECOMPUTE, /* what forward keeps, once more, and nothing else */
};
struct zinf_stage_ops {
    const char *name; /* "block": of the kind, for traces and rates */
    /* What forward keeps can be made again from the inputs by ZINF_PASS_RECOMPUTE. Such a stage has
     * no sweep. What other stages keep always stays on the device. */
    bool recomputes;
    /* The gradient of in[passed] of the stage may be in the place of that of out[0]. */
    bool passes;
    /* Backward can add to gradients that are there. Where nothing flows back beyond the stage, it
     * then runs last, for all micro-batches of the step one after the other into one place. */
    bool adds;
    /* Backward looks at nothing that forward has made but what it keeps, nor takes its memory. */
    bool backward_without_outputs;
    /* Backward does not read the weights, which then need not be fetched for it: they are NULL. */
    bool backward_without_weights;
    /* Nor values that other stages have made. */
    bool backward_without_inputs;
    int (*forward)(struct zinf_frame *f);
    int (*backward)(struct zinf_frame *f);
    int (*whole)(struct zinf_frame *f); /* NULL: none */
    int (*row)(struct zinf_frame *f);   /* NULL: none */
    /* Of chunks: rows see others than those before them, so that all of these are made first. NULL:
     * they do not. */
    bool (*looks_ahead)(const void *spec);
    int (*carry)(struct zinf_frame *f); /* NULL: no row sees another one, or chunks are refused */
    int (*carry_backward)(struct zinf_frame *f);
};
/* A sweep of which every row of in[of] takes n visits: those in whose column that value, fp32
 * [rows][visits], is not negative. A visit computes with the rows that chose it; its unit is no
 * other stage's, and no more than its gradient's zeros come of one that nobody chose. Of units at
 * hand beside such a sweep a visit makes the gradient of its own adapters alone. */
struct zinf_choice {
    uint32_t of, n; /* n 0: every row takes every visit */
};
struct zinf_stage {
    char name[32];
    const struct zinf_stage_ops *ops;
    const void *spec;             /* of ops; the graph's memory */
    struct zinf_ids in, out;      /* values */
    struct zinf_ids units, sweep; /* units at hand; units visited one after the other */
    uint32_t passed;              /* of ops->passes */
    struct zinf_choice choice;
};
/* How tensor parallelism cuts a model: each matrix into `of` shards, of which a graph has n, from
 * number `first` on. Products over a cut depth are computed shard by shard and added in a tree, so
 * that results do not depend on which rank has which shards. of 0: the model is not cut. */
struct zinf_shards {
    uint32_t of, first, n;
    /* Of a graph: sums of the numbers of shards that have a key and value head in common, powers of
     * two, which layers may have of several sizes. */
    uint32_t groups;
    /* Each shard of a block, or group of shards, has a unit and a stage of its own, so that one of
     * them is at hand at a time (decoder_turns.c). This changes no bits. */
    bool in_turn;
    /* Rows of a tile of the vocabulary, whether the rest is cut or not; 0: as follows from the
     * sizes of the model. */
    int64_t tile_rows;
};
/* Each has tensors of its own, one after the other: number `place` and those behind it. */
#define ZINF_MOST_SHARDS 64
/* The row of a tile of the vocabulary that shard number `shard` begins with. */
static inline uint64_t zinf_shard_row(const struct zinf_shards *shards, uint64_t rows,
                                      uint32_t shard)
{
    return rows * shard / shards->of;
}
/* Neighbouring stages of a model that one rank of a pipeline has, and what crosses their ends:
 * values come from the range before and go to the next one, gradients go back to the range before
 * and come from the next one. What passes by is in both lists. A value that the rank has already,
 * as it was in an earlier range of this rank, does not come again; its gradient passes. */
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
    uint32_t loss;       /* the value */
    uint32_t embeddings; /* a value with the sums that are samples' embeddings; 0: none */
    /* The input whose rows with a value >= 0 count in the mean loss; of fp32 numbers those that are
     * not NaN. */
    uint32_t targets;
    int64_t vocab, row_cols; /* a sweep of ROW calls makes [n_visits][row_cols] logits */
    struct zinf_shards shards;
    /* Of a graph that has only some stages of a model, those of one rank of a pipeline, in one
     * range or several; n_ranges 0: it has all of them. Units of other stages are there, but have
     * no tensors. */
    struct zinf_range *ranges;
    uint32_t n_ranges;
    int64_t padding; /* for LAST_ROWS: a token that is padding wherever it is; -1: none */
};

/* Range number i, or all stages where there is none. */
static inline struct zinf_range zinf_graph_range(const struct zinf_graph *g, uint32_t i)
{
    return i < g->n_ranges ? g->ranges[i] : (struct zinf_range){.end = g->n_stages};
}

/* Which stages of a model ranks of a pipeline have: ranges of stages, dealt to the ranks in turn.
 */
struct zinf_ranges {
    const uint32_t *ends; /* [n]: stages, one behind the last of each range */
    uint32_t n, rank, n_ranks;
    /* [n_values]: a value's gradient is of use; it leads to what there is a reference of */
    const bool *flows, *referred;
};

/* Where in the adapter's unit its A is, or its B, in elements. */
static inline struct zinf_span zinf_adapted_span(const struct zinf_graph *g,
                                                 const struct zinf_adapted *of, bool b)
{
    const struct zinf_tensor *t = &g->units[of->adapter].tensors[b ? of->b : of->a];
    if (!of->stacked)
        return (struct zinf_span){t->offset, t->elems};
    return (struct zinf_span){t->offset + of->first_rank * t->cols, of->rank * t->cols};
}

/* The rows that chose each visit, as a list: [visits + 1] where the rows of each begin behind that,
 * then the rows, in order; and how long it is. */
static inline uint64_t zinf_choice_length(const struct zinf_stage *stage, uint64_t rows)
{
    return stage->choice.n ? stage->sweep.n + 1 + rows * stage->choice.n : 0;
}

/* How the file's tensor that a piece of a quantised tensor is of lies in its image: whole,
 * [out][in], however a shard has its part of it. */
static inline struct zinf_quantized zinf_piece_quantized(const struct zinf_tensor *tensor,
                                                         const struct zinf_piece *piece)
{
    const uint64_t whole = piece->shape[piece->transposed ? 1 : 0];
    return tensor->turned ? zinf_quantized_of(tensor->form, tensor->cols, whole)
                          : zinf_quantized_of(tensor->form, whole, tensor->cols);
}

/* Rows of a tensor that pieces give. */
static inline uint64_t zinf_tensor_file_rows(const struct zinf_tensor *tensor)
{
    return tensor->exact ? tensor->rows / 3 : tensor->rows;
}

static inline uint32_t zinf_stage_visits(const struct zinf_stage *stage)
{
    return stage->sweep.n ? stage->sweep.n : 1;
}

#endif
