/*
 * frame: one call of a stage for one micro-batch. `train` fills in where everything is; the stage's
 * code enqueues operations by the frame_* calls below, never by the device's table. With queue NULL
 * the same code issues nothing and adds up what it would take: kept activations, scratch,
 * workspace, work. So sizes and flops are never written twice.
 *
 * Arrays are in the order of the stage's lists; weights, grads and units have those at hand first
 * and then the sweep's: the one of this visit, or, in ZINF_PASS_WHOLE, all of them.
 */
#ifndef ZINF_FRAME_H
#define ZINF_FRAME_H

#include "model/graph.h"

/* Describes a call that decodes: its rows are new tokens of sequences that are continued, and each
 * row has a sequence and a position in it. batch is 1 then, and seq is the number of rows. Keys and
 * values of earlier tokens are in the stage's *caches*, which outlive the call. If sequences read
 * an encoder's output, a call may also bring sources: source_seq rows, which are the tokens of all
 * sources, each source a document. Keys and values of a source are cached once for all sequences
 * that read it. */
struct zinf_decoding {
    int64_t n_sequences, capacity; /* sequences, and the tokens that each may have */
    int64_t most_rows;             /* the most rows that a call has */
    /* the same for sources; 0: there are none */
    int64_t n_sources, source_capacity, most_source_rows;
    /* on the device */
    const int32_t *sequences, *positions; /* [seq] */
    const int32_t *sources;               /* [seq]: the source that each row's sequence reads */
    const int32_t *source_lengths;        /* [n_sources] */
    /* [source_seq]: each token's source, and its place in it */
    const int32_t *source_numbers, *source_slots;
};
/* Terms that losses of tokens and samples have beside cross-entropy (kernels/loss.h), and uniform
 * noise that is added to the first layer's input: alpha / sqrt(length of a sample * columns) times
 * u in [-1, 1) (NEFTune, Jain et al., arXiv 2310.05914). 0: none. */
struct zinf_objective {
    float smoothing, z_loss;
    float noise_alpha; /* only where compute trains */
    float max_z_loss;
};
/* The time of a row of attention that meets so many keys, its tiles' keys beyond the edges of what
 * it sees included: of the two products of forward and of the five of backward, in the time that
 * the two products of one key take at the rate of matrix products. */
struct zinf_attention_pace {
    double keys, forward, backward;
};
#define ZINF_ATTENTION_PACES 4
/* Keys beyond an edge, in the mean: half of a tile. */
#define ZINF_ATTENTION_EDGE 32.0
/* The time of a product of a linear layer, in flops at the rate of products: of one flop, of a byte
 * of its operands and its result, and of the call. */
struct zinf_product_pace {
    double flop, byte, call;
};
/* Numbers from which the time of a kernel is estimated (frame_cost.c). Times are given as the flops
 * that matrix products would do meanwhile at the device's full rate. All zero: only flops count. */
struct zinf_pace {
    double flops_a_byte;      /* the time that the device's memory takes for a byte */
    double shortest, between; /* the least time of a kernel; the time between two */
    double wave;              /* elements of a product that a GPU's cores make at once; 0: a CPU */
    /* Attention, from few keys to many. One: its time for each key counts, without edges; none: a
     * key takes the time of its products. */
    struct zinf_attention_pace attention[ZINF_ATTENTION_PACES];
    uint32_t n_attention;
    /* Of a CPU, by which of the operands is transposed; a flop of 0: by flops alone */
    struct zinf_product_pace products[ZINF_PRODUCTS];
    /* A flop of a product with an operand in fp32, where parameters have 16 bits; 0: as others */
    double wide_flop;
};
/* How ranks of tensor parallelism reach each other. Collective calls run in the order in which
 * operations are enqueued on the device. */
struct zinf_shard_ranks {
    void *context;
    /* All-reduce: x becomes the sum over ranks, added as a tree of fixed shape. sharing: only over
     * so many neighbouring ranks, which share a key and value head; 0: over all. */
    int (*sum)(void *context, float *x, uint64_t elems, uint32_t sharing);
    /* All-gather: whole is [ranks][bytes]; this rank has filled in its own part, the call fills in
     * those of the others. */
    int (*gather)(void *context, void *whole, uint64_t bytes);
};
/* Describes a call whose rows are a chunk of a longer sequence, of one sample: `seq` rows from row
 * `first` on; rows beyond the sequence's end are padding. Rows of later chunks see keys, values and
 * states of earlier ones in memory that the stage *carries* from chunk to chunk. Forward, or
 * PASS_CARRY, goes through the chunks in order and writes to this memory; backward goes from the
 * last chunk to the first and adds to its gradient. Of an input the chunk's rows are at hand, and a
 * few beside them of the same sequence (ZINF_INPUT_MARGIN). */
#define ZINF_INPUT_MARGIN 32 /* rows of an input in front of those of a chunk, and behind them */
struct zinf_chunk {
    int64_t whole; /* rows of the sequence; 0: rows are of whole sequences */
    int64_t first;
    /* Carried rows [near, near_end) of the sequence are at hand, always those of whole chunks. If
     * not all up to this chunk are, the stage is called once for each part of them, one call after
     * the other with the same scratch. Each call attends to its own part. Operations in front of
     * attention run only in the call that `begins`, those behind it only in the call that `ends`,
     * which has the chunk's own rows at hand. */
    int64_t near, near_end;
    bool begins, ends;
    bool fresh; /* nothing is in the gradients of the rows at hand yet */
    /* With context parallelism the sequence's n chunks are dealt to `parts` parts. The carried rows
     * of all chunks are made before forward. Backward adds to the gradients that the chunk's part
     * has; the chunk's own keys and values are left to PASS_CARRY_BACK, which runs once these
     * gradients are summed over all parts. placed: carried rows of all chunks are at hand, in the
     * order of zinf_chunk_place; else those of the chunks from near on, in order. */
    int64_t n, parts;
    bool placed;
    /* keys_first: the carried rows of all chunks are made before forward although chunks run in
     * order, since the stage's rows see later rows of their sequence, or another sequence. That one
     * has source_whole rows and is cut into as many chunks. */
    bool keys_first;
    int64_t source_whole;
    /* Chunks from the first on that the model goes through: in those behind them the sample has no
     * tokens, and nothing is made of them. */
    int64_t visited;
};
/* Whether the carried rows of all chunks are made before any chunk attends to them. */
static inline bool zinf_chunk_keys_first(const struct zinf_chunk *chunk)
{
    return chunk->parts > 1 || chunk->keys_first;
}
/* How n chunks are dealt to parts of context parallelism. A part has as many chunks from the front
 * of the sequence as from its end, so that all parts see about as many keys: with n / (2 parts) =
 * 1, part i has chunks i and n - 1 - i. zinf_chunk_place: the place of a chunk's rows in memory,
 * which go part by part, chunks from the front first. zinf_chunk_at: the chunk in a place. */
static inline int64_t zinf_chunk_place(int64_t chunk, int64_t n, int64_t parts)
{
    const int64_t each = n / (2 * parts), piece = chunk / each;
    const int64_t first = piece < parts ? 2 * piece : 2 * (2 * parts - 1 - piece) + 1;
    return first * each + chunk % each;
}
static inline int64_t zinf_chunk_at(int64_t place, int64_t n, int64_t parts)
{
    const int64_t each = n / (2 * parts), part = place / (2 * each), within = place % (2 * each);
    return within < each ? part * each + within : (2 * parts - 1 - part) * each + within - each;
}
/* What computes, and how: all that calls for one micro-batch have in common. */
struct zinf_compute {
    const struct zinf_device *device;
    enum zinf_dtype dtype; /* number type of parameters and activations */
    bool float8;           /* products of linear layers with their weights are of 8-bit floats */
    int64_t batch, seq, source_seq;
    bool train;     /* dropout on */
    bool reference; /* adapters are off, and so is train: for a ZINF_VALUE_REFERENCE */
    struct zinf_objective objective;
    uint64_t seed;
    uint32_t step;
    uint64_t first_sample; /* index of the micro-batch's first sample in the step's batch */
    struct zinf_chunk chunk;
    const struct zinf_decoding *decoding; /* NULL: whole sequences */
    struct zinf_pace pace;                /* read only while measuring */
    const struct zinf_shard_ranks *ranks; /* NULL: the graph has all shards */
};
uint64_t zinf_rows_count(const struct zinf_compute *c, enum zinf_rows_of rows_of);
/* Bytes of a value, or of its gradient, for one micro-batch. */
uint64_t zinf_value_bytes(const struct zinf_compute *c, const struct zinf_value *value);
uint64_t zinf_value_gradient_bytes(const struct zinf_compute *c, const struct zinf_value *value);

/* The layout of what a stage carries of one chunk: row_elems numbers for each of its rows, behind
 * them source_elems numbers for each row of another sequence, then, if there are `documents`, the
 * segment of each row, those of the other sequence, and `handed` bytes for the chunk as a whole.
 * zinf_carried_rows: bytes in front of these, if a number has width bytes; zinf_carried_stride:
 * from one chunk to the next.
 */
struct zinf_carried {
    uint64_t rows, row_elems;
    uint64_t source_rows, source_elems;
    bool documents, source_documents;
    uint64_t handed;
};
uint64_t zinf_carried_rows(const struct zinf_carried *c, uint64_t width);
uint64_t zinf_carried_stride(const struct zinf_carried *c, uint64_t width);

/* Memory from which a call takes pieces in order; each piece is aligned to 256 bytes. */
struct zinf_cursor {
    char *base;     /* NULL: only counted */
    uint64_t bytes; /* taken now */
    uint64_t peak;  /* most at once: scratch is given back within a call */
};

/* The shape of a cache for decoding, [sequences or sources][planes][slots][row_bytes]: a token's
 * row is in the slot of its position modulo slots. All zero: the stage has none. */
struct zinf_cache {
    uint64_t planes, slots, row_bytes;
};
enum zinf_caches {
    ZINF_CACHE_SEQUENCES,
    ZINF_CACHE_STATES, /* for sequences, too: one slot, for a mixer beside attention */
    ZINF_CACHE_SOURCES,
    ZINF_CACHES,
};

/* Device memory in which the dequantised weights of one unit stay from call to call until another
 * unit needs it, so that they are dequantised once for all micro-batches of a layer. Quantised
 * weights never change. */
struct zinf_numbers {
    char *memory; /* NULL: every product dequantises its weight again, in scratch */
    uint64_t bytes;
    const struct zinf_unit *unit; /* the unit whose weights are there */
    uint64_t made;                /* bit i: its tensor i is there; tensors from 64 on never are */
};
/* The byte at which a tensor's dequantised weights begin there; for tensor = n_tensors the size of
 * all. width: bytes of a number. */
uint64_t zinf_numbers_at(const struct zinf_unit *unit, uint32_t tensor, uint64_t width);

/* Spans of a unit's gradient that a product has already added to the unit's sum. */
#define ZINF_MOST_ADDED 16
struct zinf_added {
    const float *sum; /* the first element of the sum */
    struct zinf_span of[ZINF_MOST_ADDED];
    uint32_t n;
};

struct zinf_frame {
    const struct zinf_compute *compute;
    /* NULL: the frame measures, or operations are left to the call for another part */
    struct zinf_queue *queue;
    struct zinf_queue *given; /* the caller's queue */
    const struct zinf_graph *graph;
    const struct zinf_stage *stage;
    enum zinf_pass pass;
    uint32_t visit, n_visits;
    const void *const *in;
    void *const *out;      /* of PASS_ROW out[0] is float [n_rows][row_cols] */
    void *const *d_out;    /* [out.n]; NULL for the loss */
    void *const *d_in;     /* [in.n]; NULL: nothing flows back there */
    const bool *d_in_adds; /* [in.n]: a later stage has written d_in: add to it */
    const void *const *weights;
    float *const *grads; /* fp32 flat buffers, written whole, gaps too, as zeros; NULL: frozen */
    bool grads_add;      /* only with ops->adds: add to them instead */
    /* The sums to which the caller adds gradients, indexed like grads; the list, or an entry, may
     * be NULL. A product may add its gradient by itself (frame_sum); `added` then lists those
     * elements. */
    float *const *sums;
    struct zinf_added *const *added;
    struct zinf_numbers *numbers;       /* or NULL */
    const struct zinf_unit *numbers_of; /* the one unit of the call that may use numbers */
    /* For a stage with a choice: the numbers of the rows that chose this visit, on the device.
     * While measuring, n_chosen is that of all rows, but flops and bytes are those of the mean
     * visit. */
    const int32_t *chosen;
    int64_t n_chosen;
    float loss_scale;         /* factor of the gradient: loss scale / targets of the step */
    float mean_scale;         /* the same for a loss that is a mean: loss scale / micro-batches */
    int64_t row, n_rows;      /* PASS_ROW: the first row and the number of rows; 0: 1 */
    void *cache[ZINF_CACHES]; /* the stage's caches, while decoding */
    /* For chunks: the stage's carried memory in the parameters' number type, and its gradient in
     * fp32, both [rows at hand][carried_elems]. d_handed: gradients of what two chunks hand over.
     */
    void *carried;
    float *d_carried, *d_handed;
    struct zinf_cursor kept; /* the same place in forward and backward of a micro-batch */
    struct zinf_cursor scratch;
    /* while measuring */
    uint64_t workspace; /* the most bytes that one operation needs on the device */
    uint64_t outside; /* the most bytes of host memory that a library takes outside of all arenas */
    double flops, bytes, work; /* as in struct zinf_stage_size */
    uint64_t shared;           /* most bytes that ranks with other shards bring together at once */
    /* bytes of all such calls together; bytes that this rank sends for them */
    double crossed, sent;
    double rows_share; /* the share of rows that a visit has in the mean; 0: all */
    /* Called for each weight of a linear layer, and for each that is multiplied in 8-bit floats;
     * NULL: not called. */
    void (*see_linear)(void *seer, uint32_t unit, int tensor);
    void (*see_float8)(void *seer, uint32_t unit, int tensor);
    void *seer;
    struct zinf_cache cached[ZINF_CACHES];
    uint64_t carried_elems, source_elems, handed_bytes, d_handed_bytes; /* set while running, too */
    int64_t carried_reach;
    bool documents, source_documents; /* set while running, too */
    bool follows;
};

/* What a call needs and does, found by running its code without a queue. Sizes are in bytes. */
struct zinf_stage_size {
    uint64_t kept, scratch, workspace, outside;
    double flops;         /* those of matrix products and attention */
    double bytes;         /* bytes that the other operations read and write */
    double work;          /* time of all operations, as flops of products, by compute's pace */
    uint64_t shared;      /* most bytes that ranks with other shards bring together at once */
    double crossed, sent; /* bytes of all such calls together; bytes that a rank sends for them */
    double crossed_again, sent_again; /* BACKWARD: those of RECOMPUTE, not included above */
    struct zinf_cache cache[ZINF_CACHES];
    uint64_t carried_elems;  /* numbers that a row carries for later chunks */
    uint64_t source_elems;   /* the same for a row of another sequence */
    uint64_t handed_bytes;   /* bytes that a chunk hands over to the next one, beside these */
    uint64_t d_handed_bytes; /* bytes of the gradient of that */
    int64_t carried_reach;   /* rows that a row sees, itself and those before it; 0: all */
    bool documents, source_documents; /* it carries the segments of such rows, too */
    bool follows;                     /* a chunk needs what the chunk before it hands over */
};
/* Measures one pass of a stage. BACKWARD includes RECOMPUTE's scratch and workspace, but not its
 * flops. If the pass has a call for each visit, sizes are those of the largest visit, flops and
 * bytes those of all visits together. */
int zinf_stage_measure(struct zinf_stage_size *out, const struct zinf_compute *compute,
                       const struct zinf_graph *graph, uint32_t stage, enum zinf_pass pass);
/* Makes the list of the rows that chose each visit (zinf_choice_length) from the value
 * [rows][visits] of a stage's choice, both in host memory. -EINVAL: a row takes more visits or
 * fewer than it should. */
int zinf_choice_list(int32_t *list, const struct zinf_stage *stage, const float *value,
                     uint64_t rows);
/* Runs the stage's code for f->pass; the cursors kept and scratch start at their bases. */
int zinf_stage_run(struct zinf_frame *f);
/* Calls `see` for each tensor that the stage's forward multiplies with as a linear layer; unit is
 * the unit's place at hand. float8: only for those that compute's float8 would multiply in 8-bit
 * floats. Needs no device. */
int zinf_stage_linears(const struct zinf_graph *graph, uint32_t stage, bool float8,
                       void (*see)(void *seer, uint32_t unit, int tensor), void *seer);

/* ---- for the code of stages ---- */

void *frame_keep(struct zinf_frame *f, uint64_t bytes);
void *frame_scratch(struct zinf_frame *f, uint64_t bytes);
/* frame_release gives back the scratch taken since frame_mark. Operations that are enqueued already
 * may still use it, since later operations of the same queue run after them. */
uint64_t frame_mark(const struct zinf_frame *f);
void frame_release(struct zinf_frame *f, uint64_t mark);
/* The call's decoding if the stage's rows are new tokens of sequences; NULL: they are whole
 * sequences, or tokens of sources. */
const struct zinf_decoding *frame_decoding(const struct zinf_frame *f);
/* While decoding: returns the stage's cache of this kind and notes its shape. Call once for each
 * kind. */
void *frame_cache(struct zinf_frame *f, enum zinf_caches which, const struct zinf_cache *shape);
/* For chunks, of which a stage carries row_elems numbers for each row: where the numbers of a row
 * of the sequence begin, which must be at hand; where their gradients begin; and the bytes of all
 * such gradients at hand. */
void *frame_carried(struct zinf_frame *f, uint64_t row_elems, int64_t row);
float *frame_d_carried(struct zinf_frame *f, uint64_t row_elems, int64_t row);
uint64_t frame_d_carried_bytes(const struct zinf_frame *f, uint64_t row_elems);
/* The same for another sequence: where the rows of its chunk number `chunk` begin. */
void *frame_carried_source(struct zinf_frame *f, uint64_t row_elems, int64_t chunk);
float *frame_d_carried_source(struct zinf_frame *f, uint64_t row_elems, int64_t chunk);
/* Beside these numbers: the segment of each row of a chunk, [rows of a chunk]. source: of the other
 * sequence. */
int32_t *frame_carried_documents(struct zinf_frame *f, bool source, int64_t chunk);
/* The number of the call's chunk in its sequence. */
int64_t frame_chunk(const struct zinf_frame *f);
/* Notes how many rows a row of a chunk sees, itself and those before it; 0: all. */
void frame_reach(struct zinf_frame *f, int64_t rows);
/* Notes that a chunk reads what the chunk before it hands over. */
void frame_follow(struct zinf_frame *f);
/* For chunks, of which a stage hands over so many bytes from each to the next one: where those of
 * the chunk are that begins at this row of the sequence, which must be at hand; and their gradient,
 * which exists from the next chunk's backward to the chunk's own. */
void *frame_handed(struct zinf_frame *f, uint64_t bytes, int64_t row);
float *frame_d_handed(struct zinf_frame *f, uint64_t bytes, int64_t row);
/* Fails with -ENOTSUP: `what`, which the stage has, cannot be computed in chunks. The message names
 * the keys that ask for chunks. */
int frame_refuse_chunks(const struct zinf_frame *f, const char *what);
/* For a stage called once for each part of the carried rows (zinf_chunk): the operations that
 * follow are enqueued only in the call that begins; in every call; only in the call that ends. */
void frame_part_before(struct zinf_frame *f);
void frame_part_begin(struct zinf_frame *f);
void frame_part_end(struct zinf_frame *f);
/* For chunks: scratch that is taken from here to frame_apart_end is used for nothing else, even
 * after it is given back, so that the calls for later parts find its contents. For whole sequences
 * it is used again as usual. */
struct frame_apart {
    uint64_t mark, peak;
};
struct frame_apart frame_apart_begin(struct zinf_frame *f);
void frame_apart_end(struct zinf_frame *f, struct frame_apart apart);
/* Of the sequence: rows of the chunks that are visited. */
int64_t frame_visited(const struct zinf_frame *f);
/* Rows of a sample that the call has, without a chunk's rows beyond the sequence's end. */
int64_t frame_own_rows(const struct zinf_frame *f);
/* Rows of the whole sequence to which the call's rows belong. */
int64_t frame_whole_length(const struct zinf_frame *f);
/* A tensor's weights, and its gradient. unit: its place at hand, as in weights and grads; tensor:
 * its number in the unit. NULL if tensor < 0; no gradient either if it is frozen. */
const void *frame_weight(const struct zinf_frame *f, uint32_t unit, int tensor);
float *frame_grad(const struct zinf_frame *f, uint32_t unit, int tensor);
/* Where the caller must add the tensor's gradient, instead of writing it to frame_grad's place.
 * NULL: it writes it there. */
float *frame_sum(const struct zinf_frame *f, uint32_t unit, int tensor);
/* *out: the weights of a linear layer in the parameters' number type. Quantised weights are
 * dequantised, into scratch or f->numbers. */
int frame_matrix(struct zinf_frame *f, uint32_t unit, int tensor, const void **out);
const struct zinf_unit *frame_unit(const struct zinf_frame *f, uint32_t unit);
int64_t frame_rows(const struct zinf_frame *f);   /* rows of out[0] */
int64_t frame_length(const struct zinf_frame *f); /* rows of it that a sample has */
uint64_t frame_width(const struct zinf_frame *f); /* bytes of a parameter */
/* Bytes of rows of out[0] with so many columns of the parameters' number type. */
uint64_t frame_rows_bytes(const struct zinf_frame *f, int64_t cols);
/* The dropout with rate p at a site; off if the frame does not train. elements_per_sample: elements
 * of the masked tensor that the call has of a sample. */
struct zinf_dropout frame_dropout_at(const struct zinf_frame *f, float p, uint32_t site,
                                     uint64_t elements_per_sample);

/* A linear layer: y [rows][out] = x [rows][in] w[out][in]^T + b, with what adapters of w add. Rows
 * are those of out[0], or with a choice those that chose the visit. Quantised weights are handled
 * here as well. */
struct frame_linear {
    uint32_t unit;
    int weight, bias; /* bias -1: none */
    int64_t rows;     /* 0: as many as out[0] has */
    bool exact;       /* never in 8-bit floats: for products behind the blocks */
};
int frame_linear(struct zinf_frame *f, const struct frame_linear *l, const void *x, void *y);
int frame_linear_backward_input(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                void *dx);
/* Writes the gradients of weight, bias and adapters, except of those that are frozen. */
int frame_linear_backward_weight(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                 const void *x);

/* Operations of kernels.h, enqueued or counted. dw of a norm whose b alone is trained is made in
 * scratch. */
int frame_column_sum(struct zinf_frame *f, float *sum, const void *x, enum zinf_dtype dtype,
                     int64_t rows, int64_t cols);
int frame_matmul(struct zinf_frame *f, const struct zinf_matmul *args);
int frame_norm(struct zinf_frame *f, const struct zinf_norm *args);
int frame_norm_backward(struct zinf_frame *f, struct zinf_norm *args);
int frame_attention(struct zinf_frame *f, const struct zinf_attention *args);
int frame_attention_cached(struct zinf_frame *f, const struct zinf_attention_cached *args);
int frame_attention_backward(struct zinf_frame *f, const struct zinf_attention *args);
int frame_heads(struct zinf_frame *f, const struct zinf_heads *args);
int frame_sinks(struct zinf_frame *f, const struct zinf_sinks *args);
int frame_sinks_backward(struct zinf_frame *f, const struct zinf_sinks *args);
int frame_distance_bias(struct zinf_frame *f, const struct zinf_distance_bias *args);
int frame_distance_bias_backward(struct zinf_frame *f, const struct zinf_distance_bias *args);
int frame_activation(struct zinf_frame *f, enum zinf_activation kind, const void *x, void *y,
                     uint64_t n);
int frame_activation_backward(struct zinf_frame *f, enum zinf_activation kind, const void *dy,
                              const void *x, void *dx, void *y_out, uint64_t n);
int frame_activation_sums(struct zinf_frame *f, const struct zinf_activation_sums *args);
int frame_gated(struct zinf_frame *f, const struct zinf_gated *args);
int frame_gated_backward(struct zinf_frame *f, const struct zinf_gated *args);
int frame_dequantize(struct zinf_frame *f, const struct zinf_dequantize *args);
int frame_row_norms(struct zinf_frame *f, const struct zinf_magnitude *args);
int frame_xielu(struct zinf_frame *f, const struct zinf_xielu *args);
int frame_xielu_backward(struct zinf_frame *f, const struct zinf_xielu *args);
int frame_scale_columns(struct zinf_frame *f, const struct zinf_column_scale *args);
int frame_dot_columns(struct zinf_frame *f, const struct zinf_column_dot *args);
int frame_rope(struct zinf_frame *f, const struct zinf_rope *args);
int frame_residual(struct zinf_frame *f, const struct zinf_residual *args);
int frame_residual_norm(struct zinf_frame *f, const struct zinf_residual *sum,
                        const struct zinf_norm *norm);
int frame_dropout(struct zinf_frame *f, const struct zinf_residual *args);
/* Multiplies x [batch][per_sample], or its gradient, by a dropout's mask in place; p 0: does
 * nothing. */
int frame_mask(struct zinf_frame *f, void *x, float p, uint32_t site, int64_t per_sample);
/* The same for something that a sample has once, whichever rows of it a chunk has. */
int frame_mask_samples(struct zinf_frame *f, void *x, float p, uint32_t site, int64_t per_sample);
int frame_embedding(struct zinf_frame *f, const struct zinf_embedding *args);
int frame_embedding_backward(struct zinf_frame *f, const struct zinf_embedding *args);
int frame_unfold(struct zinf_frame *f, const struct zinf_unfold *args);
int frame_unfold_backward(struct zinf_frame *f, const struct zinf_unfold *args);
int frame_convolution(struct zinf_frame *f, const struct zinf_convolution *args);
int frame_convolution_backward(struct zinf_frame *f, const struct zinf_convolution *args);
/* backward, too: args->backward */
int frame_scan(struct zinf_frame *f, const struct zinf_scan *args);
int frame_route(struct zinf_frame *f, const struct zinf_route *args);
int frame_route_backward(struct zinf_frame *f, const struct zinf_route *args);
int frame_shares(struct zinf_frame *f, const struct zinf_shares *args);
int frame_balance(struct zinf_frame *f, const struct zinf_balance *args);
int frame_gather(struct zinf_frame *f, const struct zinf_rows *args);
int frame_scatter(struct zinf_frame *f, const struct zinf_rows *args);
int frame_weigh(struct zinf_frame *f, const struct zinf_weigh *args);
enum frame_loss {
    FRAME_LOSS_START,
    FRAME_LOSS_UPDATE,
    FRAME_LOSS_FINISH,
    FRAME_LOSS_BACKWARD,
};
int frame_squared_error(struct zinf_frame *f, const struct zinf_squared_error *args);
int frame_preference(struct zinf_frame *f, const struct zinf_preference *args);
int frame_noise(struct zinf_frame *f, const struct zinf_noise *args);
int frame_softcap(struct zinf_frame *f, float *x, float cap, uint64_t n);
int frame_loss(struct zinf_frame *f, enum frame_loss call, const struct zinf_cross_entropy *args);
int frame_copy(struct zinf_frame *f, void *dst, const void *src, uint64_t bytes);
int frame_zero(struct zinf_frame *f, void *dst, uint64_t bytes);
int frame_convert(struct zinf_frame *f, void *dst, enum zinf_dtype dst_dtype, const void *src,
                  enum zinf_dtype src_dtype, uint64_t n);
/* Zeroes the gaps between the tensors of a unit's gradient, so that gradient norms and updates may
 * go over the whole flat buffer. */
int frame_zero_gaps(struct zinf_frame *f, uint32_t unit);
/* Calls act for each moved tensor of the unit, with the place at hand and the tensor number of its
 * home. */
int frame_each_moved(struct zinf_frame *f, uint32_t unit,
                     int (*act)(struct zinf_frame *f, uint32_t unit, uint32_t tensor));
/* frame_zero_gap zeroes the gap behind one tensor; frame_zero_grads the unit's whole gradient. */
int frame_zero_gap(struct zinf_frame *f, uint32_t unit, uint32_t tensor);
int frame_zero_grads(struct zinf_frame *f, uint32_t unit);
/* The element at which the next tensor behind this one begins, or the unit ends. */
uint64_t frame_gap_end(const struct zinf_unit *u, uint32_t tensor);
/* Zeroes the gradients of the unit's adapters. */
int frame_zero_adapters(struct zinf_frame *f, uint32_t unit);

#endif
