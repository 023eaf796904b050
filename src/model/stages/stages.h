/*
 * stages: the kinds of stages that decoders are made of, and the specs that tell them what to do.
 * A spec names weights by the numbers of tensors in the stage's unit; -1: there is none. `in` and
 * `out` list the values that a stage takes and makes.
 *
 *   lookup  x = dropout(scale table[ids] + position[positions] + type[types]); sweeps over tiles of
 *           the table, then the others. in: ids, positions and types as far as they are used;
 *           out: x
 *   block   x_mid = x + branch(attention(norm(x))); out = x_mid + branch(mlp(norm(x_mid))), where a
 *           branch ends with a product, a norm where the spec has one, and dropout; parallel: both
 *           parts take x; a mixer beside attention is a third branch. scaled: out is multiplied by
 *           one number of the layer. in: x, positions if it rotates, segments if it has them, keys
 *           and values if it takes those of another layer; out: x, and its keys and values if
 *           other layers take them
 *   side    out = x + norm(W_out (act(W_gate x) * p)), where p are rows that the layer has for
 *           itself; scaled as a block. in: x, p; out: x
 *   sides   makes the rows p of all layers: p = (norm(W x) + t) / sqrt(2), with rows t of a table
 *           that has a part for each layer. in: t, x; out: p of each layer
 *   mlp     out = x + branch(mlp(norm(x))), the second part of a block by itself. in: x; out: x
 *   norm    in: x; out: dropout(its norm), whose gradient is fp32 in front of a head
 *   head    logits = norm table^T and their loss; sweeps over tiles. in: norm, targets; out: loss
 *
 * A block whose feed-forward part is a mixture of experts is three stages:
 *   attention  x_mid = x + dropout(proj(attention(norm(x)))). in: as a block's
 *   router     n = norm(x_mid), and the experts that each row of it chooses. in: x_mid; out: n,
 *              whose gradient is fp32, and the weights of a choice (graph.h). balanced: out[2] has
 *              each expert's shares of every sample, added up over this layer and, with in[1], the
 *              layers before it
 *   experts    x_mid + sum of weight * mlp(n), without a norm; sweeps over the experts, each with
 *              the rows that chose it. in: x_mid, n, weights; out: x
 *              (alone: that sum without x_mid. in: n, weights; out: the sum)
 * Between the last two there may be
 *   shared     x_mid + weight * mlp(n), the expert of all rows. in: x_mid, n; out: x_mid for
 *              experts
 * Behind experts that are alone comes
 *   joined     x_mid + norm(norm(mlp(norm(x_mid))) + norm(s)), the usual feed-forward part and the
 *              experts' sum s; scaled as a block. in: x_mid, s; out: x
 * Behind all layers comes
 *   balance    a loss by the experts' shares in all layers, a part for every sample. in: the
 *              shares
 *
 * With tensor parallelism (zinf_shards) there is in place of a block
 *   shards  the same sums, shard by shard: each shard has heads and feed-forward columns of its
 *           own, and the products behind them are a sum over shards. in, out: as a block's
 * or, so that only some shards are at hand at a time (decoder_turns.c),
 *   enter   norm(x). in: x; out: rows, and the gradient at them
 *   attention_turn, mlp_turn  one group of shards' part of the sum behind the products. Backward
 *           hands gradients over in values that have a gradient, but no elements. in: rows, what
 *           attention names, the gradient at the rows, the gradient behind the sum unless this is
 *           the first turn, sums that wait for this one; out: the gradient behind the sum, the
 *           sum, gradients at the rows that wait for this one's
 *   leave   x + branch(sum). in: x, the sum, the gradient behind the sum; out: x
 * and in place of experts
 *   expert_shards  experts that are cut in the same way. in, out, sweep: as those of experts, also
 *           of experts that are alone
 * The stages attention, joined and layer (below) cut their parts in the same way; a router and the
 * expert of all rows are not cut.
 *
 * Encoders, and decoders that read one:
 *   layer   attention that may look both ways, perhaps attention to another sequence, feed-forward;
 *           a norm in front of each, or behind each sum. in: x, then what its attentions name;
 *           out: x. At hand: its unit and, if it has one, the unit with the table of its bias by
 *           distance or of relative positions
 *   convolution  norm(x + act(dropout(conv(rows)))) along the sequence. in: x, rows, segments;
 *           out: x. In chunks it carries rows, since a token sees those on both sides
 *   project a product, perhaps with a bias and an activation. in: x; out: x of another width
 *   classify  logits of a sample by its first or last token's row, and their loss. in: x, labels,
 *           the weights of samples if there are classes, last rows if it uses them; out: loss, or
 *           the single logit if out is an activation
 *   pool    embeddings of samples, each a sum of the sample's rows. in: x, which rows, pulls (the
 *           gradients of the embeddings), losses; out: the same losses, and the embeddings
 *   preference  the loss of pairs of samples, the first of which is preferred. in: the losses of
 *           tokens that a head makes, targets, labels and, if there is one, the reference's losses;
 *           or scores of samples, margins, labels; out: loss and reward of each sample
 *   told pairs  the same of sequences in chunks, where whoever runs the model makes the loss. in:
 *           the losses of a chunk's tokens or the score, and their gradients; out: loss and reward,
 *           which are left as they are, and what came in, as it is told
 *   rows    in: x; out: the same, whose gradient is fp32, in front of a head without a norm
 */
#ifndef ZINF_STAGES_H
#define ZINF_STAGES_H

#include "model/frame.h"

extern const struct zinf_stage_ops zinf_stage_side, zinf_stage_sides, zinf_stage_lookup,
    zinf_stage_block, zinf_stage_mlp, zinf_stage_norm, zinf_stage_head, zinf_stage_attention,
    zinf_stage_router, zinf_stage_shared, zinf_stage_experts, zinf_stage_balance, zinf_stage_layer,
    zinf_stage_rows, zinf_stage_classify, zinf_stage_convolution, zinf_stage_project,
    zinf_stage_pool, zinf_stage_preference, zinf_stage_told_pairs, zinf_stage_shards,
    zinf_stage_expert_shards, zinf_stage_experts_alone, zinf_stage_joined,
    zinf_stage_expert_shards_alone, zinf_stage_enter, zinf_stage_attention_turn,
    zinf_stage_mlp_turn, zinf_stage_leave;

struct lookup_spec {
    /* visits of the table; the next is the table of positions, then that of types */
    uint32_t n_tiles;
    int64_t first_position; /* the row that position 0 has in the table of positions */
    bool has_padding;
    int64_t padding; /* the token whose row gets no gradient from here */
    float scale;     /* factor of the table's rows; 0: 1 */
    float dropout;
    uint32_t site;
    bool quiet; /* never adds noise, which another table gets */
};

struct norm_spec {
    enum zinf_norm_kind kind;
    float eps;
    float w_add; /* the weight is w_add + w */
    int w, b;    /* w -1: there is no norm, unless it is plain */
    bool plain;  /* it has no weights */
    /* fp32: where the gradients of w and b go if a shard normalises its part of a row; NULL: to the
     * gradients of the tensors. */
    float *d_w, *d_b;
};
static inline bool norm_is_there(const struct norm_spec *s)
{
    return s->w >= 0 || s->plain;
}

struct norm_stage_spec {
    struct norm_spec norm;
    float dropout; /* behind the norm */
    uint32_t site;
};

/* Rotation of queries and keys by the positions in the stage's in[1]. */
struct rope_spec {
    int64_t rotary_dims; /* 0: none */
    bool interleaved;
    float scale;
    const float *inv_freq; /* [rotary_dims / 2], memory of the graph */
    /* For sequences longer than `positions`: long_inv_freq replaces inv_freq if it is there; else,
     * with a factor, inv_freq is made from a base that grows with the length; else inv_freq stays.
     */
    const float *long_inv_freq; /* as inv_freq, or NULL */
    double base, factor;
    int64_t positions;
    /* Queries are scaled by their position, as in zinf_rope; growth 0: they are not. still: queries
     * and keys are not rotated, queries are only scaled. */
    bool still;
    float growth;
    int64_t growth_every, growth_ahead;
};
static inline bool rope_grows(const struct rope_spec *s, int64_t seq)
{
    return s->growth != 0 && seq - 1 + s->growth_ahead >= s->growth_every;
}
static inline bool rope_changes(const struct rope_spec *s, int64_t seq)
{
    return seq > s->positions && (s->long_inv_freq || s->factor > 0);
}
/* The frequencies for sequences of seq tokens: those of the spec, or written to memory. */
const float *rope_frequencies(const struct rope_spec *s, int64_t seq,
                              float memory[ZINF_ROPE_MAX_PAIRS]);

/* A bias of attention scores by distance, from a table that layers may share (kernels/attention.h).
 */
struct distance_spec {
    int n_buckets; /* 0: none */
    bool both_ways;
    const int32_t *starts; /* [n_buckets], memory of the graph */
    uint32_t unit;         /* the table's unit, by its place at hand */
    int table;             /* [n_buckets or twice as many][n_heads] */
    /* For a shard: the column of its first head among the all_heads of the table, and where the
     * gradient of its columns goes, [rows of the table][n_heads] fp32; NULL: it is not wanted.
     * all_heads 0: the table has n_heads columns. */
    int64_t first_head, all_heads;
    float *d_table;
};

/* Relative positions that attention scores depend on (kernels/attention.h), from a table that
 * layers share: its rows get queries and keys by products, as tokens do. Such attention has no norm
 * in front. */
struct relative_spec {
    int64_t half;          /* 0: none; the table has twice as many rows */
    const int32_t *starts; /* as in zinf_relative; memory of the graph */
    bool queries, keys;    /* which terms the scores have */
    uint32_t unit;         /* the table's place at hand */
    int table;             /* [2 half][hidden] */
    struct norm_spec norm; /* of the table's rows; w and b are in the table's unit */
    float dropout;         /* behind the norm */
    uint32_t site;
    /* The weights that the table's rows are multiplied by: w -1: the layer's qkv_w; else these,
     * with rows for queries and for keys, [rows][hidden], as far as there are such terms. */
    int w, b;
};

/* Latent attention: queries, keys and values are made from low-rank rows (part_latent.c). qkv_w has
 * rows for the queries' low-rank rows (for the queries themselves if q_rank is 0), for the low-rank
 * rows of keys and values, and for the key's rotated columns, which all heads share. head_dim is at
 * least the width of a head's key and of its value; there are as many key heads as heads. */
struct latent_spec {
    int64_t q_rank, kv_rank; /* kv_rank 0: attention is not of this kind */
    int64_t rotated, plain;  /* columns of a query and of a key */
    int64_t value;
    int q_w, kv_w; /* [n_heads (plain + rotated)][q_rank], [n_heads (plain + value)][kv_rank] */
    struct norm_spec q_norm, kv_norm; /* of the low-rank rows */
};

/* A recurrent mixer in place of attention (part_mixer.c; kernels/recurrent.h): a convolution, a
 * scan, and a norm of the scan's result, with a gate. With DELTA qkv_w has rows for q, k and v of
 * kernels/recurrent.h, then for the gate [value_heads value_dim], then for b and a [value_heads].
 * With DECAY it has rows for the gate, v, k, q and a, in this order; for a shard the product's
 * columns are in the order of DELTA (keys_first), without b. gates: a convolution alone, between
 * two gates (part_gates.c): qkv_w has rows for B, C and x, and proj takes C conv(B x). value_dim is
 * the width of each then, and value_heads is 1. */
struct mixer_spec {
    enum zinf_recurrence rule;
    bool gates;                                         /* a convolution alone */
    int64_t key_heads, value_heads, key_dim, value_dim; /* value_heads 0: attention, no mixer */
    int64_t width;                                      /* rows that the convolution sees */
    float step_low, step_high, strength;                /* numbers of the scan; strength 0: 1 */
    int conv_w, conv_b;                                 /* [columns of q, k, v][width] */
    bool keys_first; /* the product's columns are in the order of DELTA */
    /* With tensor parallelism, if several shards share a key head: the convolution's rows for q and
     * k, by key head, which are not cut; conv_w and conv_b have the other rows. */
    int keys_conv_w, keys_conv_b;
    /* For such a shard: the convolution's weights, put together, and where their gradients go,
     * fp32. NULL: the tensors are used. */
    const void *taps, *tap_biases;
    float *d_taps, *d_tap_biases;
    int a_log, step_bias, skip;
    struct norm_spec norm;
    int64_t norm_groups;   /* groups of a row, each normalised by itself */
    bool weights_by_group; /* each group has its own norm weights; else all have the same */
    bool gate_first;       /* the gate is applied before the norm; else after it */
};

/* With tensor parallelism of so many shards: whether several shards share a key head; whether each
 * shard has its own part of the norm's weights. */
static inline bool mixer_shares_keys(const struct mixer_spec *m, uint32_t shards)
{
    return !m->gates && m->key_heads < (int64_t)shards;
}
static inline bool mixer_norm_is_cut(const struct mixer_spec *m, uint32_t shards)
{
    return m->weights_by_group && m->norm_groups % (int64_t)shards == 0;
}

/* Factors of the columns of a part's first product: range by range, from the first column on. */
struct scales_spec {
    int n; /* 0: none */
    struct {
        int64_t cols;
        float factor;
    } ranges[5];
};

struct attention_spec {
    int64_t hidden, n_heads, n_kv_heads, head_dim;
    bool both_ways; /* a query sees later keys, too */
    int64_t window; /* 0: all keys */
    float scale;
    float softcap;       /* of the scores (kernels/attention.h); 0: none */
    const float *slopes; /* ALiBi: [n_heads], memory of the graph; NULL: none */
    struct norm_spec norm;
    struct distance_spec distance;
    struct relative_spec relative;
    int qkv_w, qkv_b; /* [(n_heads + 2 n_kv_heads) head_dim][hidden]: rows q, k, v */
    int proj_w, proj_b;
    int sinks; /* [n_heads]: a logit that each head's softmax has besides (kernels/attention.h) */
    /* For a shard: the number of its first head's sink, and where the gradients of its sinks go,
     * fp32; NULL: to the gradient of the tensor. */
    int64_t first_sink;
    float *d_sinks;
    struct norm_spec after; /* norm of proj's result */
    struct norm_spec q_norm, k_norm;
    bool value_norms;          /* values are normalised as queries are, but without weights */
    bool whole_norms;          /* q_norm and k_norm are over all heads of a row, not over each */
    bool norms_after_rotation; /* else they come before it */
    struct latent_spec latent;
    struct mixer_spec mixer;
    /* The heads' results are multiplied by the sigmoid of a gate with as many columns. The gate's
     * rows of qkv_w follow those of the queries. */
    bool gated;
    /* Values are the keys before their norm and rotation: qkv_w has rows q, k. */
    bool keys_are_values;
    /* Layers may share keys and values [rows][2 n_kv_heads head_dim], ready for attention. gives:
     * out[1] becomes this layer's. taken: in[taken] has those of another layer, and qkv_w has rows
     * q alone; 0: the layer has its own. */
    bool gives;
    int taken;
    struct rope_spec rope;
    int segments;  /* in[segments]: each token's document; 0: a sample is one document */
    int64_t piece; /* > 0: segments are pieces of so many tokens (ZINF_INPUT_PIECES) */
    /* Cross-attention: in[source] has another sequence's rows [source_seq][source_hidden], and
     * in[source_segments] their segments; 0: none. qkv_w has rows q alone then, and kv_w rows k, v.
     * kv_w -1: the caller makes kv, and its gradient is left behind that of qkv. */
    int source, source_segments;
    int kv_w, kv_b;
    /* Carried rows, a mixer's cache and keys and values that layers share consist of carried_pieces
     * pieces of equal size, one for each shard; this part has number carried_piece. 0: there is
     * one. */
    uint32_t carried_pieces, carried_piece;
    float dropout, residual_dropout;
    float branch_scale;        /* factor of what is added to x; 0: 1 */
    struct scales_spec scales; /* of qkv, or of a mixer's first product */
    uint32_t site;             /* dropout of probabilities; the next site: of the branch */
};

struct mlp_spec {
    int64_t hidden, ffn;
    struct norm_spec norm;
    enum zinf_activation activation;
    /* Without a gate: the activation is xIELU (kernels.h) instead. Its trained numbers are the
     * tensor `alphas`, its constants those of the second unit. */
    bool xielu;
    int alphas;
    float *d_alphas; /* where a shard's part of their gradient goes; NULL: to the tensor's */
    bool gated;      /* up has twice ffn rows: gate, then up */
    int up_w, up_b;  /* [ffn or 2 ffn][hidden] */
    int down_w, down_b;
    struct norm_spec after; /* norm of down's result */
    float residual_dropout;
    float branch_scale;        /* as in attention_spec */
    struct scales_spec scales; /* of up's result */
    uint32_t site;
    float dropout; /* in front of down */
    uint32_t inner_site;
};

struct block_spec {
    struct attention_spec attention;
    struct mlp_spec mlp;
    bool parallel; /* out = x + branch(attention(norm(x))) + branch(mlp(norm(x))) */
    bool one_norm; /* parallel: mlp has no norm of its own and uses the attention's */
    bool scaled;   /* out is multiplied by the second unit's one number, which is frozen */
    /* A mixer beside attention: it reads the same rows, and its branch is added as well.
     * value_heads 0: there is none. */
    struct attention_spec beside;
};

/* A group of a block's shards that has a stage of its own. */
struct turn_spec {
    struct zinf_shards shards;
    uint32_t rows_gradient; /* the gradient at the rows is in[rows_gradient] */
    bool is_passed;         /* the gradient behind the sum goes on to the turn before this one */
    uint32_t n_sums, n_gradients; /* sums, and gradients, that wait for those of this turn */
};
/* The parts of turns have no norms, and nothing is done to the sum. */
struct attention_turn {
    struct turn_spec turn;
    struct attention_spec part;
};
struct mlp_turn {
    struct turn_spec turn;
    struct mlp_spec part;
};
struct enter_spec {
    struct norm_spec norm;
    int64_t hidden;
};
struct leave_spec {
    int64_t hidden;
    float scale, dropout; /* as in part_exit */
    uint32_t site;
};

struct side_spec {
    int64_t hidden, cols; /* columns of x; columns of p */
    enum zinf_activation activation;
    int gate_w, out_w; /* [cols][hidden], [hidden][cols] */
    struct norm_spec after;
    bool scaled; /* as in block_spec */
};

struct sides_spec {
    int64_t hidden, cols, n; /* columns of x; columns of a layer's rows; number of layers */
    int w;                   /* [n cols][hidden] */
    struct norm_spec norm;   /* over each layer's columns */
};

struct convolution_spec {
    int64_t hidden, width; /* width: tokens that it sees, odd */
    enum zinf_activation activation;
    int w, b; /* [hidden][hidden width] */
    struct norm_spec norm;
    float dropout; /* in front of the activation */
    uint32_t site;
};

struct project_spec {
    int w, b; /* b -1: none */
    bool activates;
    enum zinf_activation activation; /* of the product, if `activates` */
};

enum layer_part {
    LAYER_ATTENTION,
    LAYER_CROSS, /* attention to another sequence */
    LAYER_MLP,
    LAYER_PARTS,
};
struct layer_spec {
    struct attention_spec attention[2]; /* by part; the second is used if it crosses */
    bool crosses;
    struct mlp_spec mlp;
    struct norm_spec joined[LAYER_PARTS]; /* norms of x + branch; w -1: none */
};

struct router_spec {
    int64_t hidden, n_experts, n_chosen;
    bool normalised; /* the weights of a row's experts sum to 1 */
    bool balanced;   /* out[2] is made */
    /* this and the next ones as in zinf_route; the bias is the second unit's tensor */
    bool sigmoid;
    float scale;
    int64_t n_groups, n_groups_chosen;
    int group_top;
    bool biased;
    struct norm_spec norm;
    struct norm_spec gate_norm; /* of the gate's input; w -1: the gate reads what experts read */
    float gate_scale;           /* factor of the gate's logits; 0: 1 */
    int gate_w, gate_b;         /* [n_experts][hidden], [n_experts] */
};

struct balance_spec {
    int64_t n_experts, n_layers;
    float coefficient;
};

struct experts_spec {
    int64_t hidden, ffn;
    enum zinf_activation activation;
    bool plain;       /* there is no gate: up_w is [ffn][hidden] */
    int up_w, down_w; /* an expert's [2 ffn][hidden], gate, then up; [hidden][ffn] */
    int up_b, down_b; /* both or neither */
    bool weighs_rows; /* weights multiply an expert's rows, not its result; without biases */
    bool alone;       /* the stage makes the sum alone, without x_mid */
    int factor;       /* one number that multiplies the expert's result, without biases; -1: none */
};

/* The usual feed-forward part, with the norm of its own result; the norm of the experts' sum, and
 * the norm of both together. */
struct joined_spec {
    struct mlp_spec mlp;
    struct norm_spec experts, sum;
    bool scaled; /* as in block_spec */
};

struct shared_spec {
    int64_t hidden, ffn;
    enum zinf_activation activation;
    bool plain;       /* as in experts_spec */
    int gate_w;       /* [1][hidden]: the weight is the sigmoid of its product; -1: it is `scale` */
    float scale;      /* 0: 1 */
    int up_w, down_w; /* as in experts_spec */
};

/* A head for samples: logits = out(dropout(activation(dense(first row)))), or out(row) alone. The
 * loss is cross-entropy over classes, with in[2] as the weight of each sample, or the squared error
 * of one number. */
struct classify_spec {
    int64_t n_classes;
    bool number;
    int last; /* in[last] is ZINF_INPUT_LAST_ROWS, and these rows are used; 0: first rows */
    enum zinf_activation activation;
    int dense_w, dense_b; /* [hidden][hidden]; -1: neither dense nor an activation */
    int out_w, out_b;     /* [n_classes][hidden] */
    float first_dropout;  /* in front of dense */
    float dropout;
    uint32_t site; /* dropout in front of dense; the next site: behind it */
};

struct head_spec {
    int64_t tile_rows; /* rows of every tile but the last, which has at most as many */
    float scale;       /* factor of the logits; 0: 1 */
    float softcap;     /* of the logits; 0: none */
    bool unit_rows;    /* rows of the table are divided by their L2 norm before the product */
    bool biased;       /* the first unit at hand is [1][vocab], added to the logits */
    /* or: the tensor of a tile that has a bias for each of its ids, or the first of its shards'
     * tensors; 0: none */
    int tile_bias;
};

/* ---- what parts share: unit 0 of the frame ---- */

/* What a norm keeps for its backward; NULL: there is no norm, or it has no mean. */
struct norm_kept {
    float *mean, *rstd; /* [rows][heads] */
    /* In forward, of a norm in front of a part: its result, if the sum in front of it has made that
     * (part_ahead). */
    bool made;
    void *rows;
};
struct norm_kept part_norm_keep(struct zinf_frame *f, const struct norm_spec *s, int64_t heads);
/* The arguments of a norm over rows of hidden columns, for forward. */
struct zinf_norm part_norm(const struct zinf_frame *f, const struct norm_spec *s, int64_t hidden,
                           const void *x, struct norm_kept kept);

/* y = norm(sum); backward: d_y becomes the gradient at sum. */
int part_join(struct zinf_frame *f, const struct norm_spec *s, struct norm_kept kept,
              const void *sum, void *y);
int part_join_backward(struct zinf_frame *f, const struct norm_spec *s, struct norm_kept kept,
                       const void *sum, void *d_y);

/* How a part begins: with products of norm(x), or of x if there is no norm. */
struct part_entry {
    const struct norm_spec *norm;
    struct norm_kept kept;
    int64_t hidden;
    uint32_t n; /* products: several if parts share a norm */
    struct {
        struct frame_linear linear;
        void *y;                          /* the product; in backward its gradient */
        const struct scales_spec *scales; /* NULL: none */
        int64_t cols;                     /* columns of the product */
        bool bias_is_summed;              /* the bias's gradient is made together with y's */
    } products[3];
};
/* The arguments of a norm that is made together with the sum in front of it. A chunk's call may
 * make that in a later part than the one that is at hand (frame_part_end), so the weights'
 * addresses are those of an operation that is enqueued, whichever part it is. */
struct zinf_norm part_norm_behind(struct zinf_frame *f, const struct norm_spec *s, int64_t hidden,
                                  const void *x, struct norm_kept kept);
/* For a sum x that the part begins with: the sum may make norm(x) as well, so that nothing reads it
 * again. Takes scratch for that, fills in *norm, which the part in front gets as its `next`, and
 * notes in *kept, the entry's, that the rows are made. NULL: the part has no norm. */
const struct zinf_norm *part_ahead(struct zinf_frame *f, const struct norm_spec *s, int64_t hidden,
                                   const void *x, struct norm_kept *kept, struct zinf_norm *norm);
/* part_rows: *rows is what the products take: norm(x) in scratch, or x itself. part_rows_backward:
 * adds to d_x the gradient at x that follows from d_rows, the one at these rows. */
int part_rows(struct zinf_frame *f, const struct part_entry *entry, const void *x,
              const void **rows);
int part_rows_backward(struct zinf_frame *f, const struct part_entry *entry, const void *x,
                       const void *d_rows, void *d_x);
int part_enter(struct zinf_frame *f, const struct part_entry *entry, const void *x);
/* Multiplies the columns of y [rows][cols] by their factors, in place. */
int part_scale_columns(struct zinf_frame *f, const struct scales_spec *scales, int64_t cols,
                       void *y);
/* Makes the gradients of the weights and adds the gradient at x to d_x. */
int part_enter_backward(struct zinf_frame *f, const struct part_entry *entry, const void *x,
                        void *d_x);

/* How a part ends: y = x + dropout(norm(linear(in))). */
struct part_exit {
    struct frame_linear linear;
    const struct norm_spec *norm;
    struct norm_kept kept;
    void *product; /* [rows][hidden]: linear's result, kept for the norm */
    int64_t hidden;
    float scale; /* factor of what is added to x; 0: 1 */
    float dropout;
    uint32_t site;
    const struct zinf_norm *next; /* a norm of y, which is made with it; NULL: none */
};
/* in is [rows][inputs of linear]. again: only makes what is kept for backward once more, not y. */
int part_leave(struct zinf_frame *f, const struct part_exit *exit, const void *in, const void *x,
               void *y, bool again);
/* The end of part_leave: y = x + dropout(norm(branch)); if there is a norm, branch is exit's
 * product. */
int part_add_branch(struct zinf_frame *f, const struct part_exit *exit, const void *branch,
                    const void *x, void *y, bool again);
/* *out: the gradient at linear's result, which is d_y itself or in scratch. */
int part_leave_backward(struct zinf_frame *f, const struct part_exit *exit, const void *d_y,
                        const void **out);

/* Multiplies all columns of `of` by one gain: the single number of a unit's tensor. */
int part_scale_by(struct zinf_frame *f, uint32_t unit, int tensor,
                  const struct zinf_column_scale *of);
/* Multiplies rows of hidden columns, or their gradient, by the single number of the second unit, in
 * place. */
int part_scale(struct zinf_frame *f, int64_t hidden, void *x);

/* For a stage out = in[0] + branches. start: *d_x holds the gradient of out, and the caller adds to
 * it what flows back through the branches. It is d_out[0], or a copy in d_in[0] if that has memory
 * of its own in which no later stage has left a gradient. finish: adds d_x to d_in[0], unless it is
 * there. */
int part_start_gradient(struct zinf_frame *f, int64_t hidden, void **d_x);
int part_finish_gradient(struct zinf_frame *f, int64_t hidden, const void *d_x);
/* For a stage whose sweep adds branches to in[0]: passes the gradient of out on to in[0]. */
int part_pass_gradient(struct zinf_frame *f, int64_t hidden);

/* stage_experts.c. in[experts_rows_place] has the rows, and the next input the weights.
 * experts_rows: the arguments to gather the rows that chose the visit. experts_start_sum: begins
 * the sum to which experts add. */
static inline uint32_t experts_rows_place(const struct experts_spec *s)
{
    return s->alone ? 0 : 1;
}
static inline uint32_t experts_weights_place(const struct experts_spec *s)
{
    return experts_rows_place(s) + 1;
}
struct zinf_rows experts_rows(const struct zinf_frame *f, const void *x, void *y);
int experts_start_sum(struct zinf_frame *f);
/* For an expert's factor. scale: y = factor * x, both [n_chosen][cols]; y may be x. gradient: the
 * part of the factor's gradient that these columns have, from d_act, the gradient at the scaled
 * activation. */
int experts_scale(struct zinf_frame *f, int64_t cols, const void *x, void *y);
int experts_factor_gradient(struct zinf_frame *f, int64_t cols, const void *d_act, const void *act,
                            float *d_factor);

/* ---- parts of a block ---- */

/* part_handed.c: copies the bytes that the chunk before has handed over, if there is one.
 * Operations behind this call belong to the call that ends (frame_part_end). */
int part_take_handed(struct zinf_frame *f, void *to, uint64_t bytes);

/* What forward keeps for backward. */
struct attention_kept {
    void *qkv;  /* the product of attention_entry, for a mixer too; behind it the table's rows */
    void *kv;   /* [rows of the source][2 n_kv_heads head_dim] */
    float *lse; /* [batch][n_heads][seq] */
    void *out;  /* [rows][n_heads head_dim], before a gate; for a mixer the scan's result */
    struct norm_kept norm, q_norm, k_norm, v_norm, after;
    void *product;                /* [rows][hidden]: proj's result, if a norm follows */
    void *handed;                 /* for a mixer in chunks: what the chunk before has handed over */
    const struct zinf_norm *next; /* as in part_exit, for forward */
};
struct attention_kept attention_keep(struct zinf_frame *f, const struct attention_spec *s);
/* The entry, for part_enter: from x to qkv. Not for relative positions (relative_enter). */
struct part_entry attention_entry(const struct attention_spec *s,
                                  const struct attention_kept *kept);
struct part_exit attention_exit(const struct attention_spec *s, const struct attention_kept *kept);
/* Forward goes from qkv to kept->out, the operand of the last product unless attention_result
 * changes it first. Backward goes from the gradient of kept->out to d_qkv, the gradient of the
 * entry's product, and gives scratch back as far as `mark`. */
int attention_attend(struct zinf_frame *f, const struct attention_spec *s,
                     const struct attention_kept *kept);
int attention_attend_backward(struct zinf_frame *f, const struct attention_spec *s,
                              const struct attention_kept *kept, const void *d_out, void *d_qkv,
                              uint64_t mark);
/* The pass ZINF_PASS_CARRY: computes for later chunks keys and values, or what a mixer hands over,
 * from the entry's product. */
int attention_carry(struct zinf_frame *f, const struct attention_spec *s,
                    const struct attention_kept *kept);
/* The pass ZINF_PASS_CARRY_BACK: of a stage with one attention, where it also zeroes the gradients
 * of all else in the stage's units; of one attention among several, which leaves that to the
 * caller. */
int attention_carry_backward(struct zinf_frame *f, const struct attention_spec *s,
                             const struct attention_kept *kept);
int attention_carry_part_backward(struct zinf_frame *f, const struct attention_spec *s,
                                  const struct attention_kept *kept);
/* The middle of that: d_qkv becomes the gradient of the entry's product, from that of the chunk's
 * own keys and values. */
int attention_own_backward(struct zinf_frame *f, const struct attention_spec *s,
                           const struct attention_kept *kept, void *d_qkv);
/* *d_x: where to add the gradient of the stage's input; if none is wanted, zeros in scratch. */
int attention_carry_gradient(struct zinf_frame *f, int64_t hidden, void **d_x);
/* part_chunk.c. append: copies keys and values from qkv, which is ready for attention, to the rows
 * that the stage carries. The others: attention of the chunk's rows, and its gradients; args are
 * those of a whole sequence. */
int attention_chunk_append(struct zinf_frame *f, const struct attention_spec *s, const void *qkv);
/* Of the rows of another sequence: which documents they are of. */
int attention_chunk_append_source(struct zinf_frame *f, const struct attention_spec *s);
int attention_chunk(struct zinf_frame *f, const struct attention_spec *s,
                    const struct zinf_attention *args);
int attention_chunk_backward(struct zinf_frame *f, const struct attention_spec *s,
                             const struct zinf_attention *args);
/* For zinf_chunk_keys_first: d_qkv becomes the gradient of the chunk's keys and values, with zeros
 * for its queries, taken from the carried gradients; d_kv becomes that of another sequence's keys
 * and values. */
int attention_chunk_own(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv);
int attention_chunk_source(struct zinf_frame *f, const struct attention_spec *s, void *d_kv);
/* Zeroes the carried gradients at hand if they are fresh. A stage whose rows look ahead calls it
 * before its backward; for others attention_chunk_backward does. */
int attention_chunk_clear(struct zinf_frame *f);
/* Goes from qkv to y = x + branch; y may be x. again: only makes what is kept for backward once
 * more, not y. */
int attention_forward(struct zinf_frame *f, const struct attention_spec *s,
                      const struct attention_kept *kept, const void *x, void *y, bool again);
/* *result: the operand of the last product: kept->out, or made from it in scratch. backward: goes
 * from d_result to d_out, the gradient of kept->out, and to a gate's columns of d_entry. */
int attention_result(struct zinf_frame *f, const struct attention_spec *s,
                     const struct attention_kept *kept, void **result);
int attention_result_backward(struct zinf_frame *f, const struct attention_spec *s,
                              const struct attention_kept *kept, void *d_result, void *d_out,
                              void *d_entry);
/* Goes from d_y to d_qkv, the gradient of the entry's product. */
int attention_backward(struct zinf_frame *f, const struct attention_spec *s,
                       const struct attention_kept *kept, const void *d_y, void *d_qkv);
uint64_t attention_entry_bytes(const struct zinf_frame *f, const struct attention_spec *s);
/* Rotates queries and keys of qkv by their positions, in place; backward: rotates their gradients
 * back. */
int attention_rotate(struct zinf_frame *f, const struct attention_spec *s, void *qkv,
                     bool backward);
/* part_distance.c: the bias by distance. distance_args: its arguments for the stage's own rows.
 * distance_bias: makes it in scratch, if the spec has one, for the call `attention`; backward: with
 * scratch for its gradient if that is wanted. distance_bias_backward: makes the table's gradient.
 */
struct zinf_distance_bias distance_args(const struct zinf_frame *f, const struct attention_spec *s);
/* For a shard: replaces args' table by a copy of the columns of its heads, in scratch. */
int distance_table(struct zinf_frame *f, const struct attention_spec *s,
                   struct zinf_distance_bias *args);
int distance_bias(struct zinf_frame *f, const struct attention_spec *s,
                  struct zinf_attention *attention, bool backward);
int distance_bias_backward(struct zinf_frame *f, const struct attention_spec *s,
                           const struct zinf_attention *attention);
/* For chunks: the bias of all distances in a sequence and, in backward if it is wanted, its
 * gradient, both [n_heads][distances]; and room for the distances between two chunks. take: gives
 * attention the bias of its chunk of keys. add: adds the gradient of that to the gradient of all
 * distances. end: makes the table's gradient. */
struct distance_chunks {
    struct zinf_distance_bias of; /* of all distances; its bias is in scratch */
    float *d_bias;
    float *one, *d_one, *spare; /* [n_heads][distances of a chunk] */
};
int distance_chunks_make(struct zinf_frame *f, const struct attention_spec *s, bool backward,
                         struct distance_chunks *out);
int distance_chunks_take(struct zinf_frame *f, const struct attention_spec *s,
                         const struct distance_chunks *d, struct zinf_attention *attention);
int distance_chunks_add(struct zinf_frame *f, const struct attention_spec *s,
                        const struct distance_chunks *d, const struct zinf_attention *attention);
int distance_chunks_end(struct zinf_frame *f, const struct attention_spec *s,
                        const struct distance_chunks *d);
/* part_latent.c. entry_cols: columns of the entry's product. prepare: makes qkv, as attention takes
 * it, from the entry's product; backward: goes from d_qkv to d_entry. */
int64_t latent_entry_cols(const struct attention_spec *s);
struct norm_kept latent_keep_q(struct zinf_frame *f, const struct attention_spec *s);
int latent_prepare(struct zinf_frame *f, const struct attention_spec *s,
                   const struct attention_kept *kept, void **qkv);
int latent_prepare_backward(struct zinf_frame *f, const struct attention_spec *s,
                            const struct attention_kept *kept, void *d_qkv, void *d_entry);
/* The results of the products for s->n_heads heads, or their gradients, and the place of these
 * heads in qkv [rows][3 all_heads head_dim]. */
struct latent_rows {
    void *queries, *key; /* key: the rotated columns that all heads share */
    int64_t queries_ld, key_ld;
    void *kv; /* [rows][n_heads (plain + value)] */
    void *qkv;
    int64_t all_heads, first_head;
};
/* latent_put makes the heads of qkv from these rows. latent_take goes back from the gradient of
 * qkv; key gets the sum over heads. */
int latent_put(struct zinf_frame *f, const struct attention_spec *s, const struct latent_rows *r);
int latent_take(struct zinf_frame *f, const struct attention_spec *s, const struct latent_rows *r);
/* *values: the columns of heads [rows][n_heads head_dim] that are values; heads itself, or a copy
 * in scratch if they are fewer. backward: goes from their gradient to that of all columns. */
int latent_result(struct zinf_frame *f, const struct attention_spec *s, void *heads, void **values);
int latent_result_backward(struct zinf_frame *f, const struct attention_spec *s, void *values,
                           void *heads);
/* part_mixer.c. entry_cols: columns of the entry's product; result_cols: columns of the last
 * product's operand. mixer_attend goes from the entry's product to kept->out; its backward goes
 * from the gradient of kept->out to that of the entry's product, without the gate's columns. */
static inline bool mixer_is_there(const struct attention_spec *s)
{
    return s->mixer.value_heads > 0;
}
int64_t mixer_entry_cols(const struct attention_spec *s);
int64_t mixer_result_cols(const struct attention_spec *s);
int mixer_attend(struct zinf_frame *f, const struct attention_spec *s,
                 const struct attention_kept *kept);
int mixer_attend_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct attention_kept *kept, const void *d_out, void *d_entry);
/* What a mixer hands over from chunk to chunk (mixer_handed): a state of so many floats, so many of
 * a cut chunk of the scan's own (zinf_scan_open), and the last rows in front of its convolution, of
 * so many columns. handed_keep: takes memory for what the
 * chunk before has handed over; handed_take copies it there, in forward. handed_forward,
 * handed_backward: the ends of the chunk's rows for the convolution and the scan. Forward writes
 * there what the chunk hands over; backward reads and writes gradients. */
struct handed {
    uint64_t floats, open_floats;
    int64_t cols;
};
struct handed_ends {
    struct zinf_ends state, rows;
};
void *handed_keep(struct zinf_frame *f, const struct attention_spec *s);
int handed_take(struct zinf_frame *f, const struct attention_spec *s,
                const struct attention_kept *kept);
struct handed_ends handed_forward(struct zinf_frame *f, const struct attention_spec *s,
                                  const struct attention_kept *kept);
struct handed_ends handed_backward(struct zinf_frame *f, const struct attention_spec *s,
                                   const struct attention_kept *kept);
struct handed mixer_handed(const struct attention_spec *s);
/* result [rows][result_cols]: kept->out after norm and gate. Backward goes from the gradient of the
 * result to that of kept->out and of the gate's columns of the entry's product. */
int mixer_result(struct zinf_frame *f, const struct attention_spec *s,
                 const struct attention_kept *kept, void *result);
int mixer_result_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct attention_kept *kept, const void *d_result, void *d_out,
                          void *d_entry);
/* The mixer's norm alone, of x [rows][result_cols]; y may be x. backward: goes from dy to dx, which
 * may be dy, and to the gradient of the weights; it computes the norm's statistics again. */
int mixer_normalise(struct zinf_frame *f, const struct attention_spec *s, const void *x, void *y);
int mixer_normalise_backward(struct zinf_frame *f, const struct attention_spec *s, const void *x,
                             const void *dy, void *dx);
/* part_gates.c: attend and result, with their backward, for a convolution between two gates. */
int gates_attend(struct zinf_frame *f, const struct attention_spec *s,
                 const struct attention_kept *kept);
int gates_attend_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct attention_kept *kept, const void *d_out, void *d_entry);
int gates_result(struct zinf_frame *f, const struct attention_spec *s,
                 const struct attention_kept *kept, void *result);
int gates_result_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct attention_kept *kept, const void *d_result, void *d_out,
                          void *d_entry);
/* part_cached.c: attention while decoding, from qkv and the source's kept->kv to kept->out. */
int attention_cached(struct zinf_frame *f, const struct attention_spec *s,
                     const struct attention_kept *kept, const void *qkv);
/* Where a mixer's cache is while decoding. For each sequence it has a state of so many bytes, and
 * behind it the last rows in front of the convolution, of `cols` columns. rows: returns the place
 * of these rows; else that of the state. */
struct zinf_remembered mixer_memory(struct zinf_frame *f, const struct attention_spec *s,
                                    uint64_t state, int64_t cols, bool rows);

/* With relative positions, in place of part_enter: goes from x to qkv and the table's rows behind
 * it. */
int relative_enter(struct zinf_frame *f, const struct attention_spec *s, const void *x, void *qkv);
int relative_enter_backward(struct zinf_frame *f, const struct attention_spec *s, const void *x,
                            const void *d_qkv, void *d_x);
/* The bytes of the table's rows behind qkv, 0 if half is 0, and the kernel's arguments for them;
 * d_qkv is NULL in forward. */
uint64_t relative_bytes(const struct zinf_frame *f, const struct attention_spec *s);
struct zinf_relative relative_args(const struct zinf_frame *f, const struct attention_spec *s,
                                   const void *qkv, const void *d_qkv);
/* For shards: the rows that their products take, which are those of x and behind them the table's,
 * in scratch; how many, or 0 if half is 0; and from the gradient of all of them, whose rows of the
 * table are overwritten, the gradients of the table. */
int relative_rows(struct zinf_frame *f, const struct attention_spec *s, const void *x,
                  const void **rows);
int64_t relative_count(const struct zinf_frame *f, const struct attention_spec *s);
int relative_rows_backward(struct zinf_frame *f, const struct attention_spec *s, void *d_rows);
/* Zeroes the part of their gradient that the kernel does not write. */
int relative_clear(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv);

struct mlp_kept {
    void *up; /* [rows][ffn or 2 ffn], before the activation */
    struct norm_kept norm, after;
    void *product;                /* [rows][hidden]: down's result, if a norm follows */
    const struct zinf_norm *next; /* as in part_exit, for forward */
};
/* These do what those of attention do; the entry's product is up. */
struct mlp_kept mlp_keep(struct zinf_frame *f, const struct mlp_spec *s);
struct part_entry mlp_entry(const struct mlp_spec *s, const struct mlp_kept *kept);
int mlp_forward(struct zinf_frame *f, const struct mlp_spec *s, const struct mlp_kept *kept,
                const void *x, void *y, bool again);
int mlp_backward(struct zinf_frame *f, const struct mlp_spec *s, const struct mlp_kept *kept,
                 const void *d_y, void *d_up);
struct part_exit mlp_exit(const struct mlp_spec *s, const struct mlp_kept *kept);
/* act = the activation of up, which the last product takes. backward: makes d_up from the gradient
 * at act, which the caller has put into act, or into d_up if there is no gate; act then becomes the
 * activation again. sums: NULL or, if there is no gate, [ffn]: the sums of d_up over rows. */
int mlp_activate(struct zinf_frame *f, const struct mlp_spec *s, const void *up, void *act);
int mlp_activate_backward(struct zinf_frame *f, const struct mlp_spec *s, const void *up,
                          void *d_up, void *act, float *sums);
/* Multiplies the last product's operand, or its gradient, by the dropout's mask, in place. */
int mlp_mask(struct zinf_frame *f, const struct mlp_spec *s, void *act);
uint64_t mlp_entry_bytes(const struct zinf_frame *f, const struct mlp_spec *s);

#endif
