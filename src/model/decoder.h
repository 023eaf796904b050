/*
 * decoder: what families of causal decoders share: a token table in tiles, positions, a norm behind
 * them, blocks, a final norm, a head. A family says the numbers and what its tensors are called;
 * here that becomes values, units and stages.
 */
#ifndef ZINF_DECODER_H
#define ZINF_DECODER_H

#include "model/build.h"
#include "model/classes.h"
#include "model/stages/stages.h"

/* Places of a block's unit, in the order of its tensors in stages.h. */
enum decoder_place {
    DECODER_QKV_W,
    DECODER_PROJ_W,
    DECODER_UP_W,
    DECODER_DOWN_W,
    DECODER_NORM1_W,
    DECODER_NORM1_B,
    DECODER_QKV_B,
    DECODER_PROJ_B,
    DECODER_NORM2_W,
    DECODER_NORM2_B,
    DECODER_UP_B,
    DECODER_DOWN_B,
    DECODER_Q_NORM,
    DECODER_K_NORM,
    DECODER_SINKS,
    DECODER_LATENT_Q_W, /* of latent attention, whose norms are DECODER_Q_NORM and _K_NORM */
    DECODER_LATENT_KV_W,
    DECODER_AFTER1_W, /* norms behind the attention's and the feed-forward part's last product */
    DECODER_AFTER2_W,
    DECODER_CROSS_NORM_W, /* attention to another sequence */
    DECODER_CROSS_NORM_B,
    DECODER_CROSS_Q_W,
    DECODER_CROSS_Q_B,
    DECODER_CROSS_KV_W,
    DECODER_CROSS_KV_B,
    DECODER_CROSS_PROJ_W,
    DECODER_CROSS_PROJ_B,
    DECODER_KV_W, /* of a block that is cut: keys and values, apart from queries */
    DECODER_KV_B,
    DECODER_RELATIVE_W, /* queries and keys of relative positions */
    DECODER_RELATIVE_B,
    DECODER_MIXER_IN_W, /* of a recurrent mixer */
    DECODER_MIXER_IN_B,
    DECODER_MIXER_OUT_W,
    DECODER_MIXER_OUT_B,
    DECODER_MIXER_CONV_W,
    DECODER_MIXER_CONV_B,
    DECODER_MIXER_A_LOG,
    DECODER_MIXER_STEP_BIAS,
    DECODER_MIXER_SKIP,
    DECODER_MIXER_NORM,
    DECODER_MIXER_KEYS_W, /* of one that is cut, of keys that shards share: apart from the rest */
    DECODER_MIXER_KEYS_B,
    DECODER_MIXER_KEYS_CONV_W,
    DECODER_MIXER_KEYS_CONV_B,
    DECODER_GATE_NORM, /* of a choice of experts */
    DECODER_ALPHAS,    /* two numbers of the activation (kernels.h: xIELU) */
    DECODER_PLACES,
};
/* How the file has a tensor. */
enum decoder_order {
    DECODER_ROWS,    /* as ours, [out][in] */
    DECODER_COLUMNS, /* [in][out] */
    /* As the first two, but its even rows, as ours, come before its odd ones. */
    DECODER_ROWS_BY_TURNS,
    DECODER_COLUMNS_BY_TURNS,
    DECODER_GROUPS, /* qkv: rows by key and value head: its queries, its key, its value */
    DECODER_GATED,  /* rows by head: its queries, its gate */
    /* Of a recurrent mixer, rows by key head: its query, its key, what is of its value heads:
     * values and gates; or their b and a. */
    DECODER_MIXED_GROUPS,
    DECODER_MIXED_NUMBERS,
    DECODER_DEEP,   /* as the first, but [out][1][in] */
    DECODER_SCALAR, /* one number, without a dimension */
};
/* The parts of a layer. */
enum decoder_parts {
    DECODER_BOTH_PARTS,
    DECODER_ATTENTION_ALONE, /* or a recurrent mixer in its place */
    DECODER_MLP_ALONE,       /* or experts in its place */
};
/* A tensor of the file. Neighbours in a list with the same place are one tensor of the unit, the
 * rows of the first before those of the second. */
struct decoder_tensor {
    enum decoder_place place;
    const char *name;    /* behind the block's prefix */
    uint64_t rows, cols; /* as ours, [out][in]; cols 0: a vector */
    enum decoder_order order;
    enum zinf_init init;
    float std;
};

/* Layers whose feed-forward part is a choice of experts instead; n 0: none. */
struct decoder_experts {
    int64_t n, n_chosen, ffn;
    float balance;             /* coefficient of the loss that balances them; 0: none */
    bool normalised;           /* the weights of a row's experts sum to 1 */
    const bool *in_layer;      /* [n_layers]: has them; NULL: all */
    const char *gate, *gate_b; /* tensors of the choice, behind the layer's prefix; or NULL */
    /* The choice is by rows that a norm with this weight makes of what is in front of the experts'
     * own norm, divided by the root of the hidden size (NULL: by the rows that experts are given).
     */
    const char *gate_norm;
    const char *factor; /* [n]: a trained factor of each expert's result; NULL: none */
    /* As in zinf_route; a frozen row of the file is added to what is compared (NULL: none). */
    const char *choice_bias;
    bool sigmoid;
    float scale;
    int64_t n_groups, n_groups_chosen;
    int group_top;
    bool weighs_rows; /* a weight is of the rows that an expert is given, not of its result */
    const char *list; /* tensors of expert 3 begin with list, then "3." */
    /* Behind the layer's prefix, what transformers has of all experts at once; NULL: fused_up and
     * fused_down. */
    const char *stacked_up, *stacked_down;
    const char *w_gate, *w_up, *w_down; /* w_gate NULL: experts have no gate */
    /* Or, behind the layer's prefix, tensors of all experts: [n][2 ffn][hidden], gate, then up, and
     * [n][hidden][ffn]; their biases (NULL: none). NULL: `list` has them one by one. */
    const char *fused_up, *fused_down, *fused_up_b, *fused_down_b;
    enum decoder_order
        fused_order; /* of the first and of its bias; of the second, by columns too */
    /* An expert that all tokens have, weighed by a sigmoid where that has a row. Its tensors begin
     * with `shared` (NULL: there is none), then are called as those of the others. */
    const char *shared, *shared_gate;    /* the latter: the sigmoid's row */
    const char *shared_up, *shared_down; /* NULL, or its two tensors, the first with gate and up */
    int64_t shared_ffn;
    /* The usual feed-forward part is there, too, beside the experts, and the sum of both is what
     * the layer's last norm (DECODER_AFTER2_W) takes. Norms in front of the experts, behind the
     * usual part and behind the experts; all or none. */
    const char *beside_before, *beside_usual, *beside_after;
};

/* As those of a decoder, of some of its layers. */
struct decoder_kind {
    struct attention_spec attention;
    int64_t ffn;
    const struct decoder_tensor *tensors;
    size_t n_tensors;
};

/* A table of tokens beside that of the model, with a part for each layer; cols 0: none. */
struct decoder_side {
    int64_t cols;                         /* of a part */
    const char *table, *w, *norm_w;       /* behind the family's prefix */
    const char *gate_w, *out_w, *after_w; /* behind a layer's */
};

struct decoder {
    const char *what; /* names the configuration in messages */
    int64_t n_layers, hidden, ffn, vocab, context;
    int64_t embedding;         /* columns of the tables of tokens, positions and types; 0: hidden */
    bool join_tiles;           /* of the vocabulary, into one */
    bool packed;               /* samples come with segments */
    struct zinf_shards shards; /* that it is cut into */
    bool source;               /* its rows are those of ZINF_ROWS_OF_SOURCE */
    uint32_t first_site;       /* of its dropout */
    float embedding_dropout, init_std;
    float embedding_scale, head_softcap, head_scale; /* as in lookup_spec and head_spec */
    float final_dropout;                             /* behind the final norm */
    bool unit_rows;
    /* Of every block; numbers of tensors, sizes that are above, and sites are filled in. */
    struct attention_spec attention;
    struct mlp_spec mlp;
    /* Layers with a recurrent mixer in the place of attention, and their tensors, filled in as
     * attention's. [n_layers]; NULL: none. */
    const bool *mixed;
    struct mixer_spec mixer;
    /* Kinds of blocks with other attention, sizes and tensors, and which of them a layer is
     * [n_layers]; NULL: all are as said here. */
    const struct decoder_kind *kinds;
    const uint8_t *kind;
    /* [n_layers]: the layer whose keys and values a layer takes, or itself; NULL: all have their
     * own. */
    const int64_t *keys_of;
    struct decoder_side side; /* what layers add of a table of their own */
    bool plain_head_norms;    /* queries and keys that rotate are normalised, without weights */
    const char *block_scale;  /* as in block_spec: the file's tensor of one number; NULL: none */
    /* Of activations with trained numbers: the file's tensors of beta and eps, which are not. */
    const char *xielu_beta, *xielu_eps;
    bool mixer_in_bias, mixer_out_bias; /* of its two products */
    bool mixer_norm;                    /* it has one */
    /* It stands beside attention, with factors of its own; its tensors are among the block's. */
    bool mixer_beside;
    float mixer_branch_scale;
    struct scales_spec mixer_scales;
    const struct decoder_tensor *mixed_tensors;
    size_t n_mixed_tensors;
    /* Layers of one part, and the tensors of those without attention, filled in as the others.
     * [n_layers]; NULL: all have both parts. */
    const enum decoder_parts *parts;
    const struct decoder_tensor *mlp_tensors;
    size_t n_mlp_tensors;
    bool parallel, one_norm;       /* as in block_spec */
    bool scale_by_inverse_layer;   /* attention.scale / (layer + 1) */
    const bool *windowed;          /* [n_layers]: has attention.window; NULL: all */
    const bool *rotated;           /* [n_layers]: has attention.rope; NULL: all */
    const char *table, *positions; /* names in the file; positions NULL: no table of them */
    const char *types;             /* of tokens, with n_types rows; NULL: none */
    int64_t n_types;
    int64_t first_position; /* row of the table of positions that position 0 has */
    bool has_padding;       /* as in lookup_spec, and the next one */
    int64_t padding;
    const struct rope_spec *windowed_rope; /* of blocks with a window; NULL: attention.rope */
    struct rope_spec still_rope; /* of layers that do not rotate; rotary_dims 0: nothing */
    int64_t piece;               /* as in attention_spec, of layers that rotate; 0: none */
    const char *embedding_w, *embedding_b; /* norm behind the lookup; NULL: none */
    float embedding_norm_dropout;          /* behind that */
    const char *blocks;                    /* "h": tensors of block 3 begin with "h.3." */
    const char *final_w, *final_b, *head;  /* head NULL: the token table is the head; final_w NULL:
                                            * no norm ends the last block's rows */
    const char *logits_bias; /* [1][vocab] in the file, not trained, without a prefix; or NULL */
    const char *tile_bias;   /* [vocab] in the file, without a prefix: with each tile of the table
                              * its part, which is trained and added to the logits; or NULL */
    bool head_prefixed;      /* its name has the family's prefix */
    const struct decoder_tensor *tensors; /* of a block */
    size_t n_tensors;
    struct decoder_experts experts; /* in the place of the tensors up and down */
    bool embeds;                    /* the last rows make embeddings, and there is no head */
    struct class_count classes;     /* samples are told apart, in the head's place; n 0: no */
    int64_t class_padding;          /* zinf_graph's, for that */
};

/* Appends all of it; -EINVAL with what and the number that is out of range. */
int decoder_build(struct zinf_graph *graph, const struct decoder *d);

#endif
