/*
 * stages: the kinds of stages that decoders are made of, and the specs that tell them what to do.
 * Weights are named by the numbers of tensors in the stage's unit; -1: there is none.
 *
 *   lookup  x = dropout(scale table[ids] + position[positions] + type[types]); sweeps over tiles of
 *           the table, then the others. in: ids, and of the others what there is; out: x
 *   block   x_mid = x + branch(attention(norm(x))); out = x_mid + branch(mlp(norm(x_mid))), where a
 *           branch ends with a product, a norm where the spec has one, and dropout; parallel: both
 *           parts take x; a mixer beside attention is a third branch. Where the spec says so,
 *           out is that times a number of the layer. in: x, positions where it rotates, segments
 *           where it has them, keys and values where it takes those of another layer; out: x, and
 *           keys and values where others take its own
 *   side    out = x + norm(W_out (act(W_gate x) * p)): what a layer adds of rows p of its own.
 *           Where the spec says so, out is that times a number of the layer. in: x, p; out: x
 *   sides   these rows of all layers, (norm(W x) + t) / sqrt(2), of rows t of a table with a part
 *           for each layer. in: t, x; out: p of each layer
 *   mlp     out = x + branch(mlp(norm(x))), the second part of a block by itself. in: x; out: x
 *   norm    in: x; out: dropout(its norm), whose gradient is fp32 in front of a head
 *   head    logits = norm table^T and their loss; sweeps over tiles. in: norm, targets; out: loss
 *
 * A block whose feed-forward part is a mixture of experts is three stages:
 *   attention  x_mid = x + dropout(proj(attention(norm(x)))). in: as a block's
 *   router     n = norm(x_mid), and which experts each row of it chooses. in: x_mid; out: n, whose
 *              gradient is fp32, and the weights of a choice (graph.h)
 *              (balanced: and what experts have had of each sample, in this layer and, with in[1],
 *              in those before it)
 *   experts    x_mid + sum of weight * mlp(n), without a norm; sweeps over the experts, each with
 *              the rows that chose it. in: x_mid, n, weights; out: x
 *              (alone: that sum without x_mid. in: n, weights; out: the sum)
 * between the last two may stand
 *   shared     x_mid + weight * mlp(n), the expert of all rows. in: x_mid, n; out: x_mid for
 *              experts
 * behind experts that are alone comes
 *   joined     x_mid + norm(norm(mlp(norm(x_mid))) + norm(s)), the usual feed-forward part and the
 *              experts' sum s. Where the spec says so, out is that times a number of the layer.
 *              in: x_mid, s; out: x
 * and behind all of them
 *   balance    a loss by what experts have had in all layers, a part for every sample. in: that
 *
 * In a model that is cut for tensor parallel (zinf_shards) the place of a block has
 *   shards  the same sums, shard by shard: heads and feed-forward columns of a shard by themselves,
 *           and the products behind them as a sum over shards. in, out: as a block's
 * or, where shards are to be at hand one after the other (decoder_turns.c),
 *   enter   norm(x). in: x; out: rows, and the gradient there
 *   attention_turn, mlp_turn  a group of shards' part of the sum behind the products. Gradients
 *           below are those of values without numbers. in: rows, what attention names, the gradient
 *           at the rows, that behind the sum unless it is the first, sums that wait for this one;
 *           out: the gradient behind the sum, the sum, gradients at the rows that wait for this
 *           one's
 *   leave   x + branch(sum). in: x, the sum, the gradient there; out: x
 * the place of experts
 *   expert_shards  each expert so. in, out, sweep: as those of experts, or of experts that are
 * alone and attention, joined and layer (below) do the same; a router and the expert of all rows
 * are whole.
 *
 * Encoders, and decoders that read one:
 *   layer   attention that may look both ways, perhaps attention to another sequence, feed-forward;
 *           a norm in front of each, or behind each sum. in: x, then what its attentions name;
 *           out: x. At hand: its unit, and where it has one the table of its bias by distance or of
 *           relative positions
 *   convolution  norm(x + act(dropout(conv(rows)))) along the sequence. in: x, rows, segments;
 *           out: x
 *   project a product, perhaps with a bias and an activation. in: x; out: x of another width
 *   classify  logits of a sample by its first or last token's row, and their loss. in: x, labels,
 *           of classes the weights of samples, and the last rows where it goes by those; out: loss,
 *           or where that is an activation the one logit itself
 *   pool    embeddings of samples, each a sum of the sample's rows. in: x, which rows, pulls (the
 *           gradients of the embeddings), losses; out: the same losses, and the embeddings
 *   preference  the loss of pairs of samples, the first of which is preferred. in: the losses of
 *           tokens that a head makes, targets, labels, and where there is one the reference's
 *           losses; or scores of samples, margins, labels; out: loss, rewards, of each sample
 *   rows    in: x; out: the same, whose gradient is fp32, in front of a head without a norm
 */
#ifndef ZINF_STAGES_H
#define ZINF_STAGES_H

#include "model/frame.h"

extern const struct zinf_stage_ops zinf_stage_side, zinf_stage_sides, zinf_stage_lookup,
    zinf_stage_block, zinf_stage_mlp, zinf_stage_norm, zinf_stage_head, zinf_stage_attention,
    zinf_stage_router, zinf_stage_shared, zinf_stage_experts, zinf_stage_balance, zinf_stage_layer,
    zinf_stage_rows, zinf_stage_classify, zinf_stage_convolution, zinf_stage_project,
    zinf_stage_pool, zinf_stage_preference, zinf_stage_shards, zinf_stage_expert_shards,
    zinf_stage_experts_alone, zinf_stage_joined, zinf_stage_expert_shards_alone, zinf_stage_enter,
    zinf_stage_attention_turn, zinf_stage_mlp_turn, zinf_stage_leave;

struct lookup_spec {
    uint32_t n_tiles;       /* visits; the next is that of the positions, then that of the types */
    int64_t first_position; /* row of the table of positions that position 0 has */
    bool has_padding;
    int64_t padding; /* the token whose row gets no gradient from here */
    float scale;     /* of the table's rows; 0: 1 */
    float dropout;
    uint32_t site;
    bool quiet; /* noise is for another table */
};

struct norm_spec {
    enum zinf_norm_kind kind;
    float eps;
    float w_add; /* the weight is w_add + w */
    int w, b;    /* w -1: there is no norm, unless it is plain */
    bool plain;  /* it has no weights */
    /* fp32: where the gradients of w and b go, of a shard of what is normalised; NULL: to those of
     * the tensors. */
    float *d_w, *d_b;
};
static inline bool norm_is_there(const struct norm_spec *s)
{
    return s->w >= 0 || s->plain;
}

struct norm_stage_spec {
    struct norm_spec norm;
    float dropout; /* behind it */
    uint32_t site;
};

/* Rotation of queries and keys by in[1] of the stage. */
struct rope_spec {
    int64_t rotary_dims; /* 0: none */
    bool interleaved;
    float scale;
    const float *inv_freq; /* [rotary_dims / 2], memory of the graph */
    /* Where sequences are longer than `positions` inv_freq may not hold: there long_inv_freq does,
     * or, without it and with a factor, the base grows with them by that. */
    const float *long_inv_freq; /* as inv_freq, or NULL */
    double base, factor;
    int64_t positions;
    /* Queries grow with their position, as in zinf_rope; growth 0: they do not. still: nothing
     * turns, they only grow. */
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
/* The frequencies for sequences of seq tokens: of the spec, or made in memory. */
const float *rope_frequencies(const struct rope_spec *s, int64_t seq,
                              float memory[ZINF_ROPE_MAX_PAIRS]);

/* A bias of scores by distance, from a table that layers may share (kernels/attention.h). */
struct distance_spec {
    int n_buckets; /* 0: none */
    bool both_ways;
    const int32_t *starts; /* [n_buckets], memory of the graph */
    uint32_t unit;         /* its place at hand */
    int table;             /* [n_buckets or twice as many][n_heads] */
    /* Of a shard's heads, in one call: the column of the first one, of all_heads in the table, and
     * where the gradient of theirs goes, [rows of the table][n_heads] fp32; NULL: it is not wanted.
     * all_heads 0: there is no more than n_heads. */
    int64_t first_head, all_heads;
    float *d_table;
};

/* Relative positions that scores look at (kernels/attention.h), from a table that layers share:
 * queries and keys of its rows, as those of tokens. Attention has no norm in front of it then. */
struct relative_spec {
    int64_t half;          /* 0: none; the table has twice as many rows */
    const int32_t *starts; /* as in zinf_relative; memory of the graph */
    bool queries, keys;    /* which terms there are */
    uint32_t unit;         /* the table's place at hand */
    int table;             /* [2 half][hidden] */
    struct norm_spec norm; /* of its rows; w and b are of that unit */
    float dropout;         /* behind the norm */
    uint32_t site;
    /* The product of its rows: the layer's own, qkv_w (w -1), or this one, of [queries,
     * keys][hidden] as far as there are such terms. */
    int w, b;
};

/* Queries, keys and values by way of rows of low rank (part_latent.c). qkv_w has rows for the
 * queries' (or, q_rank 0, the queries themselves), for those of keys and values, and for the key's
 * rotated columns, which all heads share. head_dim has room for the columns of a head's key and of
 * its value; there are as many key heads as heads. */
struct latent_spec {
    int64_t q_rank, kv_rank; /* kv_rank 0: attention is not of this kind */
    int64_t rotated, plain;  /* columns of a query and a key */
    int64_t value;
    int q_w, kv_w; /* [n_heads (plain + rotated)][q_rank], [n_heads (plain + value)][kv_rank] */
    struct norm_spec q_norm, kv_norm; /* of the rows */
};

/* A recurrent mixer in place of attention (part_mixer.c; kernels/recurrent.h): a convolution, a
 * scan, and a norm of the scan's result, with a gate. With DELTA qkv_w has rows for q, k and v of
 * kernels/recurrent.h, then for the gate [value_heads value_dim], then for b and a [value_heads].
 * With DECAY it has rows for the gate, v, k, q and a, in this order.
 *
 * Of a shard with DECAY, too, the columns are in the order of DELTA (keys_first); there is no b.
 *
 * Or a convolution alone, between two gates (part_gates.c): qkv_w has rows for B, C and x, and what
 * proj takes is C conv(B x). value_dim is the width of each then, and value_heads 1. */
struct mixer_spec {
    enum zinf_recurrence rule;
    bool gates;                                         /* a convolution alone */
    int64_t key_heads, value_heads, key_dim, value_dim; /* value_heads 0: attention, no mixer */
    int64_t width;                                      /* of the convolution */
    float step_low, step_high, strength;                /* of the scan; strength 0: 1 */
    int conv_w, conv_b;                                 /* [columns of q, k, v][width] */
    bool keys_first;                                    /* of the entry's columns */
    /* Of a model that is cut, where several shards share a key head: of these columns the rows of
     * q and k by key head, which are whole; conv_w and conv_b have the others. */
    int keys_conv_w, keys_conv_b;
    /* Of a shard with them: the convolution's weights, and where their gradients go, fp32; NULL:
     * those of the tensors. */
    const void *taps, *tap_biases;
    float *d_taps, *d_tap_biases;
    int a_log, step_bias, skip;
    struct norm_spec norm;
    int64_t norm_groups;   /* groups of a row, each normalised by itself */
    bool weights_by_group; /* each group has its own norm weights; else all have the same */
    bool gate_first;       /* the gate is applied before the norm; else after it */
};

/* Of a model that is cut into so many shards: whether several share a key head, and whether each
 * has weights of its own of the norm. */
static inline bool mixer_shares_keys(const struct mixer_spec *m, uint32_t shards)
{
    return !m->gates && m->key_heads < (int64_t)shards;
}
static inline bool mixer_norm_is_cut(const struct mixer_spec *m, uint32_t shards)
{
    return m->weights_by_group && m->norm_groups % (int64_t)shards == 0;
}

/* Factors of the columns of a part's first product, in ranges from the first column on. */
struct scales_spec {
    int n; /* 0: none */
    struct {
        int64_t cols;
        float factor;
    } ranges[5];
};

struct attention_spec {
    int64_t hidden, n_heads, n_kv_heads, head_dim;
    bool both_ways; /* keys behind a query count, too */
    int64_t window; /* 0: all keys */
    float scale;
    float softcap;       /* of the scores; 0: none */
    const float *slopes; /* ALiBi: [n_heads], memory of the graph; NULL: none */
    struct norm_spec norm;
    struct distance_spec distance;
    struct relative_spec relative;
    int qkv_w, qkv_b; /* [(n_heads + 2 n_kv_heads) head_dim][hidden]: rows q, k, v */
    int proj_w, proj_b;
    int sinks; /* [n_heads]: of each head, what joins its softmax (kernels/attention.h) */
    /* Of a shard's heads: the place of the first one's, and where their gradients go, fp32; NULL:
     * to that of the tensor. */
    int64_t first_sink;
    float *d_sinks;
    struct norm_spec after; /* of what proj gives */
    struct norm_spec q_norm, k_norm;
    bool value_norms;          /* values are normalised as queries are, but without weights */
    bool whole_norms;          /* these are over all heads of a row, not over each */
    bool norms_after_rotation; /* else before it */
    struct latent_spec latent;
    struct mixer_spec mixer;
    /* The heads' results are multiplied by the sigmoid of a gate with as many columns. The gate's
     * rows of qkv_w follow those of the queries. */
    bool gated;
    /* Keys before their norm and rotation are the values, too: qkv_w has rows q, k. */
    bool keys_are_values;
    /* Keys and values [rows][2 n_kv_heads head_dim], as attention takes them, that layers share:
     * out[1] is this layer's; or those of another layer are at this place among what the stage
     * takes, and qkv_w has rows q alone. 0: its own. */
    bool gives;
    int taken;
    struct rope_spec rope;
    int segments;  /* their place among what the stage takes; 0: a sample is one document */
    int64_t piece; /* these are pieces of so many tokens (ZINF_INPUT_PIECES); 0: documents */
    /* Where what another sequence's rows [source_seq][source_hidden] hold is looked at, and their
     * segments: places among what the stage takes. qkv is q alone then; kv has rows k, v, and with
     * kv_w -1 it is made elsewhere, and its gradient is left behind that of qkv. 0: none. */
    int source, source_segments;
    int kv_w, kv_b;
    /* Of what the stage carries from chunk to chunk, of what it remembers of a mixer, and of what
     * layers share: this part's is one of so many pieces of equal size, and which. 0: the only one.
     */
    uint32_t carried_pieces, carried_piece;
    float dropout, residual_dropout;
    float branch_scale;        /* of what is added to x; 0: 1 */
    struct scales_spec scales; /* of qkv, or of a mixer's product */
    uint32_t site;             /* and the next one: probabilities, then the branch */
};

struct mlp_spec {
    int64_t hidden, ffn;
    struct norm_spec norm;
    enum zinf_activation activation;
    /* Without a gate: xIELU (kernels.h) instead, whose trained numbers are the tensor `alphas`, and
     * the others the second unit's. */
    bool xielu;
    int alphas;
    float *d_alphas; /* where their gradient goes, of a shard's columns; NULL: to the tensor's */
    bool gated;      /* up has twice ffn rows: gate, then up */
    int up_w, up_b;  /* [ffn or 2 ffn][hidden] */
    int down_w, down_b;
    struct norm_spec after; /* of what down gives */
    float residual_dropout;
    float branch_scale;        /* as in attention_spec */
    struct scales_spec scales; /* of up */
    uint32_t site;
    float dropout; /* of what down takes */
    uint32_t inner_site;
};

struct block_spec {
    struct attention_spec attention;
    struct mlp_spec mlp;
    bool parallel; /* out = x + branch(attention(norm(x))) + branch(mlp(norm(x))) */
    bool one_norm; /* parallel: the attention's norm is mlp's, too, which has none of its own */
    bool scaled;   /* out is multiplied by the second unit's one number, which is frozen */
    /* A mixer that reads what attention reads, and whose branch is added as well; value_heads 0:
     * there is none. */
    struct attention_spec beside;
};

/* A group of shards, of those of a block. */
struct turn_spec {
    struct zinf_shards shards;
    uint32_t rows_gradient;       /* its place among what the stage takes */
    bool is_passed;               /* the gradient behind the sum goes on to a turn before */
    uint32_t n_sums, n_gradients; /* that wait for this one's */
};
/* The parts have no norms, and nothing behind the sum. */
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
    int64_t hidden, cols; /* of x; of p */
    enum zinf_activation activation;
    int gate_w, out_w; /* [cols][hidden], [hidden][cols] */
    struct norm_spec after;
    bool scaled; /* as in block_spec */
};

struct sides_spec {
    int64_t hidden, cols, n; /* of x; of a layer's rows; layers */
    int w;                   /* [n cols][hidden] */
    struct norm_spec norm;   /* of each layer's columns */
};

struct convolution_spec {
    int64_t hidden, width; /* tokens that it sees, odd */
    enum zinf_activation activation;
    int w, b; /* [hidden][hidden width] */
    struct norm_spec norm;
    float dropout; /* in front of the activation */
    uint32_t site;
};

struct project_spec {
    int w, b; /* b -1: none */
    bool activates;
    enum zinf_activation activation; /* of the product, if it activates */
};

enum layer_part {
    LAYER_ATTENTION,
    LAYER_CROSS, /* attention to another sequence */
    LAYER_MLP,
    LAYER_PARTS,
};
struct layer_spec {
    struct attention_spec attention[2]; /* by part; the second where it crosses */
    bool crosses;
    struct mlp_spec mlp;
    struct norm_spec joined[LAYER_PARTS]; /* of x + branch; w -1: none */
};

struct router_spec {
    int64_t hidden, n_experts, n_chosen;
    bool normalised; /* the weights of a row's experts sum to 1 */
    bool balanced;   /* out[2] is made */
    bool sigmoid;    /* and these as in zinf_route; the bias is the second unit's tensor */
    float scale;
    int64_t n_groups, n_groups_chosen;
    int group_top;
    bool biased;
    struct norm_spec norm;
    struct norm_spec gate_norm; /* of what the gate reads; w -1: that is what experts are given */
    float gate_scale;           /* of the gate's products; 0: 1 */
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
    int up_w, down_w; /* of an expert: [2 ffn][hidden], gate, then up; [hidden][ffn] */
    int up_b, down_b; /* both or neither */
    bool weighs_rows; /* a weight is of the rows, not of the result; without biases */
    bool alone;       /* as above */
    int factor;       /* a number that the expert's result is multiplied by, without biases; -1 */
};

/* The usual feed-forward part, whose norm at its end is behind it alone, and the other two. */
struct joined_spec {
    struct mlp_spec mlp;
    struct norm_spec experts, sum;
    bool scaled; /* as in block_spec */
};

struct shared_spec {
    int64_t hidden, ffn;
    enum zinf_activation activation;
    bool plain;       /* as in experts_spec */
    int gate_w;       /* [1][hidden]: of the weight, its sigmoid; -1: it is `scale` */
    float scale;      /* 0: 1 */
    int up_w, down_w; /* as in experts_spec */
};

/* out(dropout(activation(dense(first row)))), or out(row) alone: classes, by cross-entropy with
 * in[2] as the weight of each sample; or one number, by squared error. */
struct classify_spec {
    int64_t n_classes;
    bool number;
    int last; /* where the stage takes ZINF_INPUT_LAST_ROWS, to have these; 0: first rows */
    enum zinf_activation activation;
    int dense_w, dense_b; /* [hidden][hidden]; -1: neither it nor an activation */
    int out_w, out_b;     /* [n_classes][hidden] */
    float first_dropout;  /* in front of dense */
    float dropout;
    uint32_t site; /* in front of dense, and the next one */
};

struct head_spec {
    int64_t tile_rows; /* of every tile but the last, which has at most as many */
    float scale;       /* of the logits; 0: 1 */
    float softcap;     /* of the logits; 0: none */
    bool unit_rows;    /* rows of the table are divided by their L2 norm before the product */
    bool biased;       /* the first unit at hand is [1][vocab], added to the logits */
    int tile_bias; /* or: number of a tile's tensor with a bias for each id of the tile, or of the
                    * first of its shards'; 0: none */
};

/* ---- what parts share: unit 0 of the frame ---- */

/* What a norm leaves for its backward; NULL where there is none, or no mean. */
struct norm_kept {
    float *mean, *rstd; /* [rows][heads] */
};
struct norm_kept part_norm_keep(struct zinf_frame *f, const struct norm_spec *s, int64_t heads);
/* A norm over rows of hidden columns, forward arguments. */
struct zinf_norm part_norm(const struct zinf_frame *f, const struct norm_spec *s, int64_t hidden,
                           const void *x, struct norm_kept kept);

/* A sum that is normalised: y = norm(sum); backward: d_y becomes the gradient at sum. */
int part_join(struct zinf_frame *f, const struct norm_spec *s, struct norm_kept kept,
              const void *sum, void *y);
int part_join_backward(struct zinf_frame *f, const struct norm_spec *s, struct norm_kept kept,
                       const void *sum, void *d_y);

/* How a part begins: products of norm(x), or of x where there is no norm. */
struct part_entry {
    const struct norm_spec *norm;
    struct norm_kept kept;
    int64_t hidden;
    uint32_t n; /* products: several where parts share a norm */
    struct {
        struct frame_linear linear;
        void *y;                          /* the product, or in backward its gradient */
        const struct scales_spec *scales; /* NULL: none */
        int64_t cols;                     /* of the product */
        bool bias_is_summed;              /* the bias's gradient is made where y's is */
    } products[3];
};
/* What the products take: in scratch where it is not x itself; and from its gradient d_rows the
 * gradient at x, which is added to d_x. */
int part_rows(struct zinf_frame *f, const struct part_entry *entry, const void *x,
              const void **rows);
int part_rows_backward(struct zinf_frame *f, const struct part_entry *entry, const void *x,
                       const void *d_rows, void *d_x);
int part_enter(struct zinf_frame *f, const struct part_entry *entry, const void *x);
/* In place: columns of rows y [rows][cols] by their factors. */
int part_scale_columns(struct zinf_frame *f, const struct scales_spec *scales, int64_t cols,
                       void *y);
/* Gradients of the weights; adds the gradient at x to d_x. */
int part_enter_backward(struct zinf_frame *f, const struct part_entry *entry, const void *x,
                        void *d_x);

/* How a part ends: y = x + dropout(norm(linear(in))). */
struct part_exit {
    struct frame_linear linear;
    const struct norm_spec *norm;
    struct norm_kept kept;
    void *product; /* [rows][hidden], kept for the norm */
    int64_t hidden;
    float scale; /* of what is added to x; 0: 1 */
    float dropout;
    uint32_t site;
};
/* in [rows][columns of linear]. again: only what is kept is made. */
int part_leave(struct zinf_frame *f, const struct part_exit *exit, const void *in, const void *x,
               void *y, bool again);
/* The end of that alone: y = x + dropout(norm(branch)); with a norm, branch is exit's product. */
int part_add_branch(struct zinf_frame *f, const struct part_exit *exit, const void *branch,
                    const void *x, void *y, bool again);
/* *out: the gradient at linear's result: d_y itself, or in scratch. */
int part_leave_backward(struct zinf_frame *f, const struct part_exit *exit, const void *d_y,
                        const void **out);

/* Columns of `of`, all by the same gain: the one number of a unit's tensor. */
int part_scale_by(struct zinf_frame *f, uint32_t unit, int tensor,
                  const struct zinf_column_scale *of);
/* Rows of hidden columns, or their gradient, times the one number of the second unit, in place. */
int part_scale(struct zinf_frame *f, int64_t hidden, void *x);

/* Of a stage out = in[0] + branches: where d_x is worked on, holding the gradient of out. That is
 * out's own, unless a later stage has left something in that of in[0] or it is apart; then finish
 * adds it there. */
int part_start_gradient(struct zinf_frame *f, int64_t hidden, void **d_x);
int part_finish_gradient(struct zinf_frame *f, int64_t hidden, const void *d_x);
/* Of one whose sweep adds branches to what in[0] is: the gradient of out goes to in[0]. */
int part_pass_gradient(struct zinf_frame *f, int64_t hidden);

/* stage_experts.c: the place of rows among what the stage takes, behind which their weights are;
 * of hidden columns, the rows that chose the visit among others; what experts add to. */
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
/* Of an expert's factor: y = the factor times x, both [n_chosen][cols], and y may be x; and the
 * part of its gradient that these columns have, from that at the scaled activation. */
int experts_scale(struct zinf_frame *f, int64_t cols, const void *x, void *y);
int experts_factor_gradient(struct zinf_frame *f, int64_t cols, const void *d_act, const void *act,
                            float *d_factor);

/* ---- parts of a block ---- */

/* part_handed.c: what the chunk before has handed over, so many bytes, if there is one; what comes
 * behind this call is of the part that ends, which has the chunk's own at hand. */
int part_take_handed(struct zinf_frame *f, void *to, uint64_t bytes);

/* What forward leaves for backward. */
struct attention_kept {
    void *qkv;  /* the entry's product, also a mixer's, and the table's rows behind it */
    void *kv;   /* [rows of the source][2 n_kv_heads head_dim] */
    float *lse; /* [batch][n_heads][seq] */
    void *out;  /* [rows][n_heads head_dim], before a gate; of a mixer its scan's result */
    struct norm_kept norm, q_norm, k_norm, v_norm, after;
    void *product; /* [rows][hidden]: proj's, where a norm is after it */
    void *handed;  /* of a mixer in chunks: what the chunk before has handed over */
};
struct attention_kept attention_keep(struct zinf_frame *f, const struct attention_spec *s);
/* Up to qkv, where there are no relative positions. */
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
/* ZINF_PASS_CARRY_BACK of a stage with one attention, or of one of several: the gradients of all
 * else in the stage's units are zero, or were made so before. */
int attention_carry_backward(struct zinf_frame *f, const struct attention_spec *s,
                             const struct attention_kept *kept);
int attention_carry_part_backward(struct zinf_frame *f, const struct attention_spec *s,
                                  const struct attention_kept *kept);
/* Its middle: d_qkv, the gradient of the entry's product, of the chunk's own keys and values. */
int attention_own_backward(struct zinf_frame *f, const struct attention_spec *s,
                           const struct attention_kept *kept, void *d_qkv);
/* Where the gradient of the stage's input is added to; where none is wanted zeros in scratch. */
int attention_carry_gradient(struct zinf_frame *f, int64_t hidden, void **d_x);
/* part_chunk.c. append: copies the keys and values of qkv, which is as attention takes it, to what
 * the stage carries. The others: attention of the chunk's rows, with the arguments that a whole
 * sequence would have, and its gradients. */
int attention_chunk_append(struct zinf_frame *f, const struct attention_spec *s, const void *qkv);
int attention_chunk(struct zinf_frame *f, const struct attention_spec *s,
                    const struct zinf_attention *args);
int attention_chunk_backward(struct zinf_frame *f, const struct attention_spec *s,
                             const struct zinf_attention *args);
/* Where keys come first (zinf_chunk_keys_first): d_qkv of the chunk's keys and values, with zeros
 * for its queries, from the gradients that the stage has at hand; and d_kv of another sequence's.
 */
int attention_chunk_own(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv);
int attention_chunk_source(struct zinf_frame *f, const struct attention_spec *s, void *d_kv);
/* In front of backward: gradients at all that the stage carries become 0, where nothing is in them
 * yet. A stage whose rows look ahead does it; else attention does. */
int attention_chunk_clear(struct zinf_frame *f);
/* From qkv on: y = x + branch; y may be x. again: only what is kept is made. */
int attention_forward(struct zinf_frame *f, const struct attention_spec *s,
                      const struct attention_kept *kept, const void *x, void *y, bool again);
/* What the last product takes: *result, in scratch where it is not what is kept; and from its
 * gradient to those at what is kept and at the entry's columns of a gate. */
int attention_result(struct zinf_frame *f, const struct attention_spec *s,
                     const struct attention_kept *kept, void **result);
int attention_result_backward(struct zinf_frame *f, const struct attention_spec *s,
                              const struct attention_kept *kept, void *d_result, void *d_out,
                              void *d_entry);
/* d_qkv, the gradient of the entry's product, from d_y. */
int attention_backward(struct zinf_frame *f, const struct attention_spec *s,
                       const struct attention_kept *kept, const void *d_y, void *d_qkv);
uint64_t attention_entry_bytes(const struct zinf_frame *f, const struct attention_spec *s);
/* Queries and keys of qkv, in place, by their positions; backward: their gradients back. */
int attention_rotate(struct zinf_frame *f, const struct attention_spec *s, void *qkv,
                     bool backward);
/* part_distance.c: the bias of the stage's own rows, where the spec has one. Made in scratch, for
 * attention to take; with a gradient wanted, room for it; the gradient of its table. */
struct zinf_distance_bias distance_args(const struct zinf_frame *f, const struct attention_spec *s);
/* Of a shard's heads the table's columns, in scratch, take the table's place. */
int distance_table(struct zinf_frame *f, const struct attention_spec *s,
                   struct zinf_distance_bias *args);
int distance_bias(struct zinf_frame *f, const struct attention_spec *s,
                  struct zinf_attention *attention, bool backward);
int distance_bias_backward(struct zinf_frame *f, const struct attention_spec *s,
                           const struct zinf_attention *attention);
/* Of chunks: the bias of all distances in a sequence and, backward with a gradient wanted, its
 * gradient [n_heads][distances], and of what attention to one chunk of keys takes and gives. take:
 * points attention at its chunk's; add: its gradient goes to that of all; end: to the table's. */
struct distance_chunks {
    struct zinf_distance_bias of; /* all; bias and d_bias in scratch */
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
/* part_latent.c: columns of the entry's product; what attention takes, from that, and back. */
int64_t latent_entry_cols(const struct attention_spec *s);
struct norm_kept latent_keep_q(struct zinf_frame *f, const struct attention_spec *s);
int latent_prepare(struct zinf_frame *f, const struct attention_spec *s,
                   const struct attention_kept *kept, void **qkv);
int latent_prepare_backward(struct zinf_frame *f, const struct attention_spec *s,
                            const struct attention_kept *kept, void *d_qkv, void *d_entry);
/* Rows behind the products, or their gradients, of s->n_heads heads, and where these are among all
 * heads of qkv [rows][3 all_heads head_dim]. */
struct latent_rows {
    void *queries, *key; /* key: the columns that all heads share */
    int64_t queries_ld, key_ld;
    void *kv; /* [rows][n_heads (plain + value)] */
    void *qkv;
    int64_t all_heads, first_head;
};
/* Puts heads together of them; backward takes them apart again, where key gets a sum over heads. */
int latent_put(struct zinf_frame *f, const struct attention_spec *s, const struct latent_rows *r);
int latent_take(struct zinf_frame *f, const struct attention_spec *s, const struct latent_rows *r);
/* The columns of heads [rows][n_heads head_dim] that are values, in scratch where these are fewer;
 * and from their gradient to that of all. */
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
/* And of a mixer: what it hands over from chunk to chunk of a sequence: a state of so many
 * floats, and the last rows of so many columns in front of its convolution. keep: memory for what
 * the chunk before has handed over, which take copies there, in forward. The ends of the chunk's
 * rows as the convolution and the scan take them: forward leaves what the chunk hands over,
 * backward has gradients. */
struct handed {
    uint64_t floats;
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
/* The norm of rows [rows][result_cols] by themselves, y may be x; and from dy to dx, which may be
 * dy, and to the gradient of its weights, with statistics of its own. */
int mixer_normalise(struct zinf_frame *f, const struct attention_spec *s, const void *x, void *y);
int mixer_normalise_backward(struct zinf_frame *f, const struct attention_spec *s, const void *x,
                             const void *dy, void *dx);
/* part_gates.c: the same four of a convolution between gates. */
int gates_attend(struct zinf_frame *f, const struct attention_spec *s,
                 const struct attention_kept *kept);
int gates_attend_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct attention_kept *kept, const void *d_out, void *d_entry);
int gates_result(struct zinf_frame *f, const struct attention_spec *s,
                 const struct attention_kept *kept, void *result);
int gates_result_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct attention_kept *kept, const void *d_result, void *d_out,
                          void *d_entry);
/* part_cached.c: while decoding, from qkv and the source's kv to kept's out. */
int attention_cached(struct zinf_frame *f, const struct attention_spec *s,
                     const struct attention_kept *kept, const void *qkv);
/* What a mixer remembers of a sequence: a state of so many bytes, and behind it the last rows in
 * front of its convolution, of `cols` columns. Of these, or, rows true, of the rows. */
struct zinf_remembered mixer_memory(struct zinf_frame *f, const struct attention_spec *s,
                                    uint64_t state, int64_t cols, bool rows);

/* With relative positions: up to qkv and the table's rows, in the places of part_enter. */
int relative_enter(struct zinf_frame *f, const struct attention_spec *s, const void *x, void *qkv);
int relative_enter_backward(struct zinf_frame *f, const struct attention_spec *s, const void *x,
                            const void *d_qkv, void *d_x);
/* Of the table's rows behind qkv: their bytes, and where they are (half 0: there are none); d_qkv
 * NULL in forward. */
uint64_t relative_bytes(const struct zinf_frame *f, const struct attention_spec *s);
struct zinf_relative relative_args(const struct zinf_frame *f, const struct attention_spec *s,
                                   const void *qkv, const void *d_qkv);
/* Zeroes what the kernel does not write of their gradient. */
int relative_clear(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv);

struct mlp_kept {
    void *up; /* [rows][ffn or 2 ffn], before the activation */
    struct norm_kept norm, after;
    void *product; /* [rows][hidden]: down's, where a norm is after it */
};
/* All of these as those of attention; the entry's product is up. */
struct mlp_kept mlp_keep(struct zinf_frame *f, const struct mlp_spec *s);
struct part_entry mlp_entry(const struct mlp_spec *s, const struct mlp_kept *kept);
int mlp_forward(struct zinf_frame *f, const struct mlp_spec *s, const struct mlp_kept *kept,
                const void *x, void *y, bool again);
int mlp_backward(struct zinf_frame *f, const struct mlp_spec *s, const struct mlp_kept *kept,
                 const void *d_y, void *d_up);
struct part_exit mlp_exit(const struct mlp_spec *s, const struct mlp_kept *kept);
/* What the last product takes, from up. Backward: d_up from the gradient of that, which is in act,
 * or in d_up where there is no gate; act receives the activation again. sums, where there is no
 * gate, or NULL: [ffn], the sums of d_up over rows. */
int mlp_activate(struct zinf_frame *f, const struct mlp_spec *s, const void *up, void *act);
int mlp_activate_backward(struct zinf_frame *f, const struct mlp_spec *s, const void *up,
                          void *d_up, void *act, float *sums);
/* In place: what the last product takes, or its gradient, times the dropout's mask. */
int mlp_mask(struct zinf_frame *f, const struct mlp_spec *s, void *act);
uint64_t mlp_entry_bytes(const struct zinf_frame *f, const struct mlp_spec *s);

#endif
