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

/* A call whose rows are new tokens of sequences that are continued: of each row the sequence and
 * the position in it. batch is 1 then, seq the number of rows. What attention must remember of the
 * tokens before is in the stage's *caches*, which outlive the call.
 *
 * Where sequences read an encoder's output, a call may also bring sources: source_seq rows, the
 * tokens of all of them, each a document. What attention to them needs is remembered by source, for
 * all sequences that read it. */
struct zinf_decoding {
    int64_t n_sequences, capacity; /* sequences, and the tokens that each may have */
    int64_t most_rows;             /* of a call */
    int64_t n_sources, source_capacity,
        most_source_rows; /* the same of sources; 0: there are none */
    /* on the device */
    const int32_t *sequences, *positions;         /* [seq] */
    const int32_t *sources;                       /* [seq]: what each row's sequence reads */
    const int32_t *source_lengths;                /* [n_sources] */
    const int32_t *source_numbers, *source_slots; /* [source_seq]: whose each token is, and which */
};
/* What tokens' and samples' losses have beside cross-entropy (kernels/loss.h), and uniform noise on
 * what the first layer takes: alpha / sqrt(length of a sample * columns) times u in [-1, 1)
 * (NEFTune, Jain et al., arXiv 2310.05914). 0: none. */
struct zinf_objective {
    float smoothing, z_loss;
    float noise_alpha; /* only where compute trains */
    float max_z_loss;
};
/* What else a kernel's time follows from than products at the device's full rate, in flops of these
 * (frame_cost.c). All zero: nothing else. */
struct zinf_pace {
    double flops_a_byte;      /* of the device's memory */
    double shortest, between; /* the least that a kernel takes; from one to the next */
    double wave;              /* outputs that a GPU's cores make at once; 0: a CPU */
};
/* The ranks that have the other shards of a model: calls meet in the order of the device's
 * operations. */
struct zinf_shard_ranks {
    void *context;
    /* x becomes the sum by the tree over so many neighbouring ranks, which share a key and value
     * head; 0: over all. */
    int (*sum)(void *context, float *x, uint64_t elems, uint32_t sharing);
    /* whole [ranks][bytes]: this rank's part is there, the others' come. */
    int (*gather)(void *context, void *whole, uint64_t bytes);
};
/* A call whose rows are a chunk of a longer sequence, of one sample: `seq` rows from `first` on, of
 * which those from the sequence's end on are nobody's. What rows of later chunks see of it is in
 * memory that the stage *carries* from chunk to chunk: forward, or PASS_CARRY, goes through them in
 * order and adds to it; backward goes from the last one to the first, and adds to its gradient. An
 * input's chunks follow each other in memory. */
struct zinf_chunk {
    int64_t whole; /* rows of the sequence; 0: rows are of whole sequences */
    int64_t first;
    /* The chunks whose carried rows are at hand: [near, near_end) of the sequence. Where those of
     * all chunks up to this one are not, what looks at them is called in parts, one after the
     * other, with the same scratch: each part looks at its own, and what comes before is done in
     * the one that begins, what comes behind in the one that ends, at whose hand are the chunk's
     * own rows. */
    int64_t near, near_end;
    bool begins, ends;
    bool fresh; /* nothing is in the gradients of the rows at hand yet */
    /* Of a sequence whose n chunks are dealt in `parts` parts: forward finds the carried rows of
     * all chunks made. Backward adds to gradients of the part that the chunk is of, and leaves the
     * chunk's own keys to PASS_CARRY_BACK, when these gradients are sums over all parts. placed:
     * the rows of all chunks are at hand, in the order of zinf_chunk_place; else those of the
     * chunks from near on are, in order. */
    int64_t n, parts;
    bool placed;
    /* The same, also of chunks in order, where a stage's rows look ahead: at later rows of their
     * sequence, or at another one, of source_whole rows, which is cut into as many chunks. */
    bool keys_first;
    int64_t source_whole;
};
/* Whether what all chunks carry is made before any of them looks at it. */
static inline bool zinf_chunk_keys_first(const struct zinf_chunk *chunk)
{
    return chunk->parts > 1 || chunk->keys_first;
}
/* A part has as many chunks from the front of the sequence as from its end, so that all parts see
 * about as many keys: with n / (2 parts) = 1, part i has chunks i and n - 1 - i. Where a chunk's
 * rows lie: part by part, those from the front first; and which chunk lies in a place. */
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
/* Who computes: one micro-batch. */
struct zinf_compute {
    const struct zinf_device *device;
    enum zinf_dtype dtype; /* of parameters and activations */
    bool float8;           /* products of linear layers with their weights are of 8-bit floats */
    int64_t batch, seq, source_seq;
    bool train;     /* dropout on */
    bool reference; /* adapters off, and train is: for a ZINF_VALUE_REFERENCE */
    struct zinf_objective objective;
    uint64_t seed;
    uint32_t step;
    uint64_t first_sample; /* index of the micro-batch's first sample in the step's batch */
    struct zinf_chunk chunk;
    const struct zinf_decoding *decoding; /* NULL: whole sequences */
    struct zinf_pace pace;                /* for what is measured */
    const struct zinf_shard_ranks *ranks; /* NULL: the graph has all shards */
};
uint64_t zinf_rows_count(const struct zinf_compute *c, enum zinf_rows_of rows_of);
/* Of one micro-batch's value, or of its gradient. */
uint64_t zinf_value_bytes(const struct zinf_compute *c, const struct zinf_value *value);
uint64_t zinf_value_gradient_bytes(const struct zinf_compute *c, const struct zinf_value *value);

/* Of chunks: what a stage carries of one: of each of its rows so many numbers, behind them the same
 * of the rows that it has of another sequence, and then bytes of the chunk as a whole. Numbers of
 * width bytes; bytes from one chunk to the next. */
struct zinf_carried {
    uint64_t rows, row_elems;
    uint64_t source_rows, source_elems;
    uint64_t handed;
};
uint64_t zinf_carried_stride(const struct zinf_carried *c, uint64_t width);

/* Memory that a call takes from, in order; every take is aligned to 256 bytes. */
struct zinf_cursor {
    char *base;     /* NULL: only counted */
    uint64_t bytes; /* taken now */
    uint64_t peak;  /* most at once: scratch is given back within a call */
};

/* [sequences or sources][planes][slots][row_bytes]: what a stage remembers of each token, by
 * position modulo slots. All zero: nothing. */
struct zinf_cache {
    uint64_t planes, slots, row_bytes;
};
enum zinf_caches {
    ZINF_CACHE_SEQUENCES,
    ZINF_CACHE_STATES, /* of sequences, too: one slot, for a mixer beside attention */
    ZINF_CACHE_SOURCES,
    ZINF_CACHES,
};

/* Memory of the device in which what a unit has quantised stays as numbers from one call to the
 * next, until another unit takes it: calls of all micro-batches of a layer find it made. Weights
 * that are quantised never change. */
struct zinf_numbers {
    char *memory; /* NULL: every product makes them again, in scratch */
    uint64_t bytes;
    const struct zinf_unit *unit; /* whose they are */
    uint64_t made;                /* its tensors that are there, as bits; further ones never are */
};
/* Where those of a tensor begin; of n_tensors: what all take. */
uint64_t zinf_numbers_at(const struct zinf_unit *unit, uint32_t tensor, uint64_t width);

/* Elements of a unit's gradient that are in its sum already. */
#define ZINF_MOST_ADDED 16
struct zinf_added {
    const float *sum; /* where it begins */
    struct zinf_span of[ZINF_MOST_ADDED];
    uint32_t n;
};

struct zinf_frame {
    const struct zinf_compute *compute;
    struct zinf_queue *queue; /* NULL: measures, or leaves out what is of another part */
    struct zinf_queue *given; /* the caller's */
    const struct zinf_graph *graph;
    const struct zinf_stage *stage;
    enum zinf_pass pass;
    uint32_t visit, n_visits;
    const void *const *in;
    void *const *out;      /* PASS_ROW: out[0] is float [n_rows][row_cols], and so here */
    void *const *d_out;    /* [out.n]; of the loss: NULL */
    void *const *d_in;     /* [in.n]; NULL: nothing flows back there */
    const bool *d_in_adds; /* [in.n]: a later stage has been there: add to it */
    const void *const *weights;
    float *const *grads; /* fp32 flat buffers, written whole, gaps zero; NULL: frozen */
    bool grads_add;      /* only with ops->adds: add to them instead */
    /* Like grads, or NULL: sums that gradients will be added to, or NULL. What a product makes is
     * added by itself; added says what was (frame_sum). */
    float *const *sums;
    struct zinf_added *const *added;
    struct zinf_numbers *numbers;       /* or NULL */
    const struct zinf_unit *numbers_of; /* the one unit of the call's that may be in it */
    /* Of a stage with a choice: the rows that chose this visit, on the device; while measuring, all
     * rows, but flops and bytes are those of the mean. */
    const int32_t *chosen;
    int64_t n_chosen;
    float loss_scale;         /* of the gradient: loss scale / targets of the step */
    float mean_scale;         /* and of a loss that is a mean: loss scale / micro-batches */
    int64_t row, n_rows;      /* PASS_ROW: from which on, how many; 0: 1 */
    void *cache[ZINF_CACHES]; /* of the stage, while decoding */
    /* Of chunks: the stage's carried memory and its gradient, [rows at hand][carried_elems]: in the
     * parameters' number type, and fp32; and gradients at what two chunks hand over. */
    void *carried;
    float *d_carried, *d_handed;
    struct zinf_cursor kept; /* the same place in forward and backward of a micro-batch */
    struct zinf_cursor scratch;
    /* while measuring */
    uint64_t workspace;        /* most that one operation needs on the device */
    uint64_t outside;          /* most that a library takes outside of all arenas, of host memory */
    double flops, bytes, work; /* as of struct zinf_stage_size */
    uint64_t shared;           /* most bytes that ranks with other shards bring together at once */
    double crossed, sent;      /* and of all such calls; what this rank sends for them */
    double rows_share;         /* of a stage with a choice: of the rows, in the mean; 0: all */
    /* Of every frame_linear, and of those that multiply with 8-bit floats; or NULL. */
    void (*see_linear)(void *seer, uint32_t unit, int tensor);
    void (*see_float8)(void *seer, uint32_t unit, int tensor);
    void *seer;
    struct zinf_cache cached[ZINF_CACHES];
    uint64_t carried_elems, source_elems, handed_bytes, d_handed_bytes; /* running, too */
    int64_t carried_reach;
    bool follows;
};

/* What a call takes, by running its code without a queue. */
struct zinf_stage_size {
    uint64_t kept, scratch, workspace, outside;
    double flops;         /* of matrix products and attention */
    double bytes;         /* that the other operations read and write */
    double work;          /* flops of products that take as long as all of it, by compute's pace */
    uint64_t shared;      /* most bytes that ranks with other shards bring together at once */
    double crossed, sent; /* and of all such calls, sums and lists; what a rank sends for them */
    double crossed_again, sent_again; /* BACKWARD: the same of RECOMPUTE, which is not in them */
    struct zinf_cache cache[ZINF_CACHES];
    uint64_t carried_elems;  /* of a row, for later chunks */
    uint64_t source_elems;   /* of a row of another sequence */
    uint64_t handed_bytes;   /* that a chunk hands over to the next one, beside these */
    uint64_t d_handed_bytes; /* of the gradient at that */
    int64_t carried_reach;   /* a row sees itself and so many before it, less one; 0: all */
    bool follows;            /* a chunk is computed from what the one before it hands over */
};
/* BACKWARD includes RECOMPUTE's scratch and workspace, but not its flops. Of a pass with a call a
 * visit: sizes are the largest visit's, flops and bytes those of all visits together. */
int zinf_stage_measure(struct zinf_stage_size *out, const struct zinf_compute *compute,
                       const struct zinf_graph *graph, uint32_t stage, enum zinf_pass pass);
/* The list of a stage's choice (graph.h) from the value, [rows][visits], in the CPU's memory.
 * -EINVAL where a row takes more visits or fewer. */
int zinf_choice_list(int32_t *list, const struct zinf_stage *stage, const float *value,
                     uint64_t rows);
/* Runs the stage's code for f->pass, with kept and scratch taken from their bases on. */
int zinf_stage_run(struct zinf_frame *f);
/* Tells which tensors of which of its units (by their place at hand) the stage's forward multiplies
 * with by frame_linear; float8: which of them, where products are of 8-bit floats, with these.
 * Needs no device. */
int zinf_stage_linears(const struct zinf_graph *graph, uint32_t stage, bool float8,
                       void (*see)(void *seer, uint32_t unit, int tensor), void *seer);

/* ---- for the code of stages ---- */

void *frame_keep(struct zinf_frame *f, uint64_t bytes);
void *frame_scratch(struct zinf_frame *f, uint64_t bytes);
/* Gives back what was taken since frame_mark; operations that are enqueued may still use it, since
 * later ones of the same queue come after them. */
uint64_t frame_mark(const struct zinf_frame *f);
void frame_release(struct zinf_frame *f, uint64_t mark);
/* The call's decoding where the stage's rows are new tokens of sequences; NULL: they are whole
 * sequences, or sources. */
const struct zinf_decoding *frame_decoding(const struct zinf_frame *f);
/* While decoding: the stage's cache, of this shape; each once in a call. */
void *frame_cache(struct zinf_frame *f, enum zinf_caches which, const struct zinf_cache *shape);
/* Of chunks: the stage carries so many elements a row. Where those of the sequence's row begin, one
 * of those at hand, and their gradients. And the bytes of all such gradients that are at hand. */
void *frame_carried(struct zinf_frame *f, uint64_t row_elems, int64_t row);
float *frame_d_carried(struct zinf_frame *f, uint64_t row_elems, int64_t row);
uint64_t frame_d_carried_bytes(const struct zinf_frame *f, uint64_t row_elems);
/* The same of another sequence's chunk number `chunk`, where its rows begin. */
void *frame_carried_source(struct zinf_frame *f, uint64_t row_elems, int64_t chunk);
float *frame_d_carried_source(struct zinf_frame *f, uint64_t row_elems, int64_t chunk);
/* The number of the call's chunk in its sequence. */
int64_t frame_chunk(const struct zinf_frame *f);
/* A chunk's rows see so many rows: themselves and those before them; 0: all. */
void frame_reach(struct zinf_frame *f, int64_t rows);
/* What the chunk before hands over is read by this one. */
void frame_follow(struct zinf_frame *f);
/* Of chunks: the stage hands over so many bytes from a chunk to the next one. Where those are of
 * the chunk that begins at the sequence's row, one of those at hand; and the gradient at them,
 * which exists from the next chunk's backward to the chunk's own. */
void *frame_handed(struct zinf_frame *f, uint64_t bytes, int64_t row);
float *frame_d_handed(struct zinf_frame *f, uint64_t bytes, int64_t row);
/* -ENOTSUP: what the stage has cannot be computed in chunks; named are the keys that ask for it. */
int frame_refuse_chunks(const struct zinf_frame *f, const char *what);
/* What follows comes before the part; is of this part; of the part that ends. */
void frame_part_before(struct zinf_frame *f);
void frame_part_begin(struct zinf_frame *f);
void frame_part_end(struct zinf_frame *f);
/* Of chunks: what follows, up to frame_apart_end, has scratch to itself, also what it gives back:
 * calls of later parts find it there again, and what lies beside it is for others of the same kind.
 * Of whole sequences it is used again. */
struct frame_apart {
    uint64_t mark, peak;
};
struct frame_apart frame_apart_begin(struct zinf_frame *f);
void frame_apart_end(struct zinf_frame *f, struct frame_apart apart);
/* Rows of a sample that the call has: of chunks, those beyond the sequence's end are nobody's. */
int64_t frame_own_rows(const struct zinf_frame *f);
/* Rows of the whole sequence that the call's rows are of. */
int64_t frame_whole_length(const struct zinf_frame *f);
/* The unit's number in weights and grads; tensor: in the unit. NULL where tensor < 0, and for a
 * gradient where the unit is frozen. */
const void *frame_weight(const struct zinf_frame *f, uint32_t unit, int tensor);
float *frame_grad(const struct zinf_frame *f, uint32_t unit, int tensor);
/* The tensor's place in a sum to which the caller adds its gradient, instead of writing it to
 * frame_grad's place; NULL: it writes it there. */
float *frame_sum(const struct zinf_frame *f, uint32_t unit, int tensor);
/* The weights of a linear layer in the parameters' number type, whatever they are stored in: what
 * is packed is unpacked into scratch. */
int frame_matrix(struct zinf_frame *f, uint32_t unit, int tensor, const void **out);
const struct zinf_unit *frame_unit(const struct zinf_frame *f, uint32_t unit);
int64_t frame_rows(const struct zinf_frame *f);   /* of out[0] */
int64_t frame_length(const struct zinf_frame *f); /* rows that a sample of it has */
uint64_t frame_width(const struct zinf_frame *f); /* bytes of a parameter */
/* Off where the frame does not train; elements_per_sample of the tensor that it masks, of the rows
 * that the call has of a sample. */
struct zinf_dropout frame_dropout_at(const struct zinf_frame *f, float p, uint32_t site,
                                     uint64_t elements_per_sample);

/* y [rows][out] = x [rows][in] w[out][in]^T + b: tensors of a unit, and what adapters of w add;
 * rows are those of out[0], or with a choice those that chose the visit. 4-bit weights and sums
 * over a split tensor belong here too and nowhere else. */
struct frame_linear {
    uint32_t unit;
    int weight, bias; /* bias -1: none */
    int64_t rows;     /* 0: those of out[0] */
    bool exact;       /* never in floats of 8 bits: behind the blocks */
};
int frame_linear(struct zinf_frame *f, const struct frame_linear *l, const void *x, void *y);
int frame_linear_backward_input(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                void *dx);
/* Gradients of weight and bias, and of the adapters, overwritten; nothing of what is frozen. */
int frame_linear_backward_weight(struct zinf_frame *f, const struct frame_linear *l, const void *dy,
                                 const void *x);

/* Operations of kernels.h. Norms of a frozen unit have dw NULL and take scratch for it. */
int frame_column_sum(struct zinf_frame *f, float *sum, const void *x, enum zinf_dtype dtype,
                     int64_t rows, int64_t cols);
int frame_matmul(struct zinf_frame *f, const struct zinf_matmul *args);
int frame_norm(struct zinf_frame *f, const struct zinf_norm *args);
int frame_norm_backward(struct zinf_frame *f, struct zinf_norm *args);
int frame_attention(struct zinf_frame *f, const struct zinf_attention *args);
int frame_attention_cached(struct zinf_frame *f, const struct zinf_attention_cached *args);
int frame_attention_backward(struct zinf_frame *f, const struct zinf_attention *args);
int frame_heads(struct zinf_frame *f, const struct zinf_heads *args);
int frame_attention_merge(struct zinf_frame *f, const struct zinf_attention_merge *args);
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
int frame_dropout(struct zinf_frame *f, const struct zinf_residual *args);
/* In place: x [batch][per_sample], or its gradient, times a dropout's mask, where it has one. */
int frame_mask(struct zinf_frame *f, void *x, float p, uint32_t site, int64_t per_sample);
/* The same of something that a sample has once, whatever rows of it a chunk has. */
int frame_mask_samples(struct zinf_frame *f, void *x, float p, uint32_t site, int64_t per_sample);
int frame_embedding(struct zinf_frame *f, const struct zinf_embedding *args);
int frame_embedding_backward(struct zinf_frame *f, const struct zinf_embedding *args);
int frame_unfold(struct zinf_frame *f, const struct zinf_unfold *args);
int frame_unfold_backward(struct zinf_frame *f, const struct zinf_unfold *args);
int frame_convolution(struct zinf_frame *f, const struct zinf_convolution *args);
int frame_convolution_backward(struct zinf_frame *f, const struct zinf_convolution *args);
int frame_scan(struct zinf_frame *f, const struct zinf_scan *args); /* of args->backward too */
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
/* Of a unit's gradient: between its tensors, so that norms and updates over the flat buffer are
 * clean; or all of it. */
int frame_zero_gaps(struct zinf_frame *f, uint32_t unit);
/* What is done to a unit's gradient is done to that of its moved tensors too, each with the gap
 * behind it, by these. */
int frame_each_moved(struct zinf_frame *f, uint32_t unit,
                     int (*act)(struct zinf_frame *f, uint32_t unit, uint32_t tensor));
/* The gap behind one tensor alone. */
int frame_zero_gap(struct zinf_frame *f, uint32_t unit, uint32_t tensor);
int frame_zero_grads(struct zinf_frame *f, uint32_t unit);
/* Where the next tensor behind this one begins, or the unit ends. */
uint64_t frame_gap_end(const struct zinf_unit *u, uint32_t tensor);
/* And that of the unit's adapters. */
int frame_zero_adapters(struct zinf_frame *f, uint32_t unit);

#endif
