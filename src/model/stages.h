/*
 * stages: the kinds of stages that decoders are made of, and the specs that tell them what to do.
 * Weights are named by the numbers of tensors in the stage's unit; -1: there is none.
 *
 *   lookup  x = dropout(table[ids] + position[positions]); sweeps over tiles of the table, then the
 *           positions. in: ids, positions where it has them; out: x
 *   block   x_mid = x + dropout(proj(attention(norm(x)))); out = x_mid + dropout(mlp(norm(x_mid)))
 *           in: x, positions where it rotates; out: x
 *   norm    in: x; out: its norm, whose gradient is fp32
 *   head    logits = norm table^T and their loss; sweeps over tiles. in: norm, targets; out: loss
 *
 * A block whose feed-forward part is a mixture of experts is three stages:
 *   attention  x_mid = x + dropout(proj(attention(norm(x)))). in: x, positions where it rotates
 *   router     n = norm(x_mid), and which experts each row of it chooses. in: x_mid; out: n, whose
 *              gradient is fp32, and the weights of a choice (graph.h)
 *              (balanced: and what experts have had of each sample, in this layer and, with in[1],
 *              in those before it)
 *   experts    x_mid + sum of weight * mlp(n), without a norm; sweeps over the experts, each with
 *              the rows that chose it. in: x_mid, n, weights; out: x
 * and behind all of them may stand
 *   balance    a loss by what experts have had in all layers, a part for every sample. in: that
 */
#ifndef ZINF_STAGES_H
#define ZINF_STAGES_H

#include "model/frame.h"

extern const struct zinf_stage_ops zinf_stage_lookup, zinf_stage_block, zinf_stage_norm,
    zinf_stage_head, zinf_stage_attention, zinf_stage_router, zinf_stage_experts,
    zinf_stage_balance;

struct lookup_spec {
    uint32_t n_tiles; /* visits; one more is that of the positions */
    float dropout;
    uint32_t site;
};

struct norm_spec {
    enum zinf_norm_kind kind;
    float eps;
    int w, b;
};

/* Rotation of queries and keys by in[1] of the stage. */
struct rope_spec {
    int64_t rotary_dims; /* 0: none */
    bool interleaved;
    float scale;
    const float *inv_freq; /* [rotary_dims / 2], memory of the graph */
    /* Where sequences are longer than `positions`, the base grows with them by `factor` and
     * inv_freq does not hold; factor 0: it always holds. */
    double base, factor;
    int64_t positions;
};
/* The frequencies for sequences of seq tokens: inv_freq, or made in memory. */
const float *rope_frequencies(const struct rope_spec *s, int64_t seq,
                              float memory[ZINF_ROPE_MAX_PAIRS]);

struct attention_spec {
    int64_t hidden, n_heads, n_kv_heads, head_dim;
    int64_t window; /* 0: all keys */
    float scale;
    struct norm_spec norm;
    int qkv_w, qkv_b; /* [(n_heads + 2 n_kv_heads) head_dim][hidden]: rows q, k, v */
    int proj_w, proj_b;
    struct norm_spec q_norm, k_norm; /* of each head, before the rotation; w -1: none */
    struct rope_spec rope;
    float dropout, residual_dropout;
    uint32_t site; /* and the next one: probabilities, then the branch */
};

struct mlp_spec {
    int64_t hidden, ffn;
    struct norm_spec norm;
    enum zinf_activation activation;
    bool gated;     /* up has twice ffn rows: gate, then up */
    int up_w, up_b; /* [ffn or 2 ffn][hidden] */
    int down_w, down_b;
    float residual_dropout;
    uint32_t site;
};

struct block_spec {
    struct attention_spec attention;
    struct mlp_spec mlp;
};

struct router_spec {
    int64_t hidden, n_experts, n_chosen;
    bool normalised; /* the weights of a row's experts sum to 1 */
    bool balanced;   /* out[2] is made */
    struct norm_spec norm;
    int gate_w; /* [n_experts][hidden] */
};

struct balance_spec {
    int64_t n_experts, n_layers;
    float coefficient;
};

struct experts_spec {
    int64_t hidden, ffn;
    enum zinf_activation activation;
    int up_w, down_w; /* of an expert: [2 ffn][hidden], gate, then up; [hidden][ffn] */
};

struct head_spec {
    int64_t tile_rows; /* of every tile but the last, which has at most as many */
};

/* ---- parts of a block: unit 0 of the frame ---- */

/* What forward leaves for backward. */
struct attention_kept {
    void *qkv;              /* [rows][(n_heads + 2 n_kv_heads) head_dim] */
    float *lse;             /* [batch][n_heads][seq] */
    void *out;              /* [rows][n_heads head_dim] */
    float *mean, *rstd;     /* [rows] */
    float *q_mean, *q_rstd; /* [rows][n_heads] */
    float *k_mean, *k_rstd; /* [rows][n_kv_heads] */
};
struct attention_kept attention_keep(struct zinf_frame *f, const struct attention_spec *s);
/* x_mid = x + branch; x_mid NULL: only kept is made. */
int attention_forward(struct zinf_frame *f, const struct attention_spec *s,
                      const struct attention_kept *kept, const void *x, void *x_mid);
/* d_x holds the gradient of x_mid and receives that of x. */
int attention_backward(struct zinf_frame *f, const struct attention_spec *s,
                       const struct attention_kept *kept, const void *x, void *d_x);

struct mlp_kept {
    void *up; /* [rows][ffn or 2 ffn], before the activation */
    float *mean, *rstd;
};
struct mlp_kept mlp_keep(struct zinf_frame *f, const struct mlp_spec *s);
/* x_out NULL: only kept is made. */
int mlp_forward(struct zinf_frame *f, const struct mlp_spec *s, const struct mlp_kept *kept,
                const void *x, void *x_out);
int mlp_backward(struct zinf_frame *f, const struct mlp_spec *s, const struct mlp_kept *kept,
                 const void *x, void *d_x);

/* ---- what parts share ---- */

/* y = x + dropout(branch) */
int part_residual(struct zinf_frame *f, float p, uint32_t site, int64_t hidden, const void *x,
                  const void *branch, void *y);
/* *out: the gradient of a branch: d_x itself, or masked as the branch was, in scratch. */
int part_branch_gradient(struct zinf_frame *f, float p, uint32_t site, int64_t hidden,
                         const void *d_x, const void **out);
/* Of a stage out = in[0] + branches: where d_x is worked on, holding the gradient of out. That is
 * out's own, unless a later stage has left something in that of in[0] or it is apart; then finish
 * adds it there. */
int part_start_gradient(struct zinf_frame *f, int64_t hidden, void **d_x);
int part_finish_gradient(struct zinf_frame *f, int64_t hidden, const void *d_x);
/* A norm over rows of hidden columns, forward arguments. */
struct zinf_norm part_norm(const struct zinf_frame *f, const struct norm_spec *s, int64_t hidden,
                           const void *x, float *mean, float *rstd);
/* Adds the gradient at the norm's input to d_x. */
int part_norm_backward(struct zinf_frame *f, const struct norm_spec *s, struct zinf_norm args,
                       const void *dy, void *d_x);

#endif
