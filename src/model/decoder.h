/*
 * decoder: what families of causal decoders share: a token table in tiles, positions, a norm behind
 * them, blocks, a final norm, a head. A family gives sizes and names of tensors in a struct
 * decoder; decoder_build makes values, units and stages from it.
 */
#ifndef ZINF_DECODER_H
#define ZINF_DECODER_H

#include "model/build.h"
#include "model/classes.h"
#include "model/stages/stages.h"

/* The roles that tensors have in a block's unit: the specs of stages.h have a tensor for each. */
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
    DECODER_LATENT_Q_W, /* latent attention; its norms are DECODER_Q_NORM and _K_NORM */
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
    DECODER_KV_W, /* with tensor parallelism: keys and values, apart from queries */
    DECODER_KV_B,
    DECODER_RELATIVE_W, /* queries and keys of relative positions */
    DECODER_RELATIVE_B,
    DECODER_MIXER_IN_W, /* recurrent mixer */
    DECODER_MIXER_IN_B,
    DECODER_MIXER_OUT_W,
    DECODER_MIXER_OUT_B,
    DECODER_MIXER_CONV_W,
    DECODER_MIXER_CONV_B,
    DECODER_MIXER_A_LOG,
    DECODER_MIXER_STEP_BIAS,
    DECODER_MIXER_SKIP,
    DECODER_MIXER_NORM,
    DECODER_MIXER_KEYS_W, /* with tensor parallelism: keys that shards share, apart from the rest */
    DECODER_MIXER_KEYS_B,
    DECODER_MIXER_KEYS_CONV_W,
    DECODER_MIXER_KEYS_CONV_B,
    DECODER_GATE_NORM, /* in front of the gate that chooses experts */
    DECODER_ALPHAS,    /* two numbers of the activation (kernels.h: xIELU) */
    DECODER_PLACES,
};
/* How a tensor is laid out in the file. */
enum decoder_order {
    DECODER_ROWS,    /* as in a unit, [out][in] */
    DECODER_COLUMNS, /* [in][out] */
    /* As the first two, but in the unit the file's even outputs come first, then its odd ones. */
    DECODER_ROWS_BY_TURNS,
    DECODER_COLUMNS_BY_TURNS,
    DECODER_GROUPS, /* qkv: rows by key and value head: its queries, its key, its value */
    DECODER_GATED,  /* rows by head: its queries, its gate */
    /* Recurrent mixer, rows by key head: its query, its key, then the values and gates of its value
       heads; or their b and a. */
    DECODER_MIXED_GROUPS,
    DECODER_MIXED_NUMBERS,
    DECODER_DEEP,   /* as DECODER_ROWS, but [out][1][in] */
    DECODER_SCALAR, /* one number, without a dimension */
};
/* Which parts a layer has. */
enum decoder_parts {
    DECODER_BOTH_PARTS,
    DECODER_ATTENTION_ALONE, /* or a recurrent mixer in its place */
    DECODER_MLP_ALONE,       /* or experts in its place */
};
/* A tensor of the file. Neighbours in a list that have the same place become one tensor of the
 * unit: rows of the first, then rows of the second. */
struct decoder_tensor {
    enum decoder_place place;
    const char *name;    /* what follows the block's prefix in its name */
    uint64_t rows, cols; /* as in the unit, [out][in]; cols 0: a vector */
    enum decoder_order order;
    enum zinf_init init;
    float std;
};

/* Layers with a mixture of experts in place of the feed-forward part; n 0: there are none. */
struct decoder_experts {
    int64_t n, n_chosen, ffn;
    float balance;        /* coefficient of the loss that balances them; 0: none */
    bool normalised;      /* the weights of a row's experts sum to 1 */
    const bool *in_layer; /* [n_layers]: the layer has experts; NULL: all have */
    /* weight and bias of the router, behind the layer's prefix; or NULL */
    const char *gate, *gate_b;
    /* The weight of the router's own norm, which reads what the experts' norm reads; its rows are
     * divided by the root of the hidden size. NULL: the router reads the experts' rows. */
    const char *gate_norm;
    const char *factor; /* [n]: a trained factor of each expert's result; NULL: none */
    /* The next ones are as in zinf_route. choice_bias: the file's frozen vector that is added to
     * the scores by which experts are chosen; NULL: none. */
    const char *choice_bias;
    bool sigmoid;
    float scale;
    int64_t n_groups, n_groups_chosen;
    int group_top;
    bool weighs_rows; /* weights multiply an expert's rows, not its result */
    const char *list; /* tensors of expert 3 begin with list, then "3." */
    /* The parameters, behind the layer's prefix, in which transformers stacks all experts; NULL:
     * they are called fused_up and fused_down. */
    const char *stacked_up, *stacked_down;
    const char *w_gate, *w_up, *w_down; /* w_gate NULL: experts have no gate */
    /* Files with all experts in one tensor: its name behind the layer's prefix, [n][2 ffn][hidden],
     * gate, then up, and [n][hidden][ffn]; their biases (NULL: none). NULL: `list` has experts one
     * by one. */
    const char *fused_up, *fused_down, *fused_up_b, *fused_down_b;
    enum decoder_order
        fused_order; /* order of fused_up and its bias; fused_down, too, if by columns */
    /* The shared expert, which all tokens use. Names of its tensors are `shared` (NULL: there is
     * none) and those of the other experts. With shared_gate its result is weighed by a sigmoid. */
    const char *shared, *shared_gate;    /* shared_gate: the row whose product the sigmoid takes */
    const char *shared_up, *shared_down; /* its two tensors, the first with gate and up; or NULL */
    int64_t shared_ffn;
    /* For layers with the usual feed-forward part beside the experts, whose sum goes through the
     * layer's last norm (DECODER_AFTER2_W): the weights of norms in front of the experts, behind
     * the usual part and behind the experts. All or none. */
    const char *beside_before, *beside_usual, *beside_after;
};

/* Attention, sizes and tensors of some layers of a decoder, in place of the decoder's own. */
struct decoder_kind {
    struct attention_spec attention;
    int64_t ffn;
    const struct decoder_tensor *tensors;
    size_t n_tensors;
};

/* A second table of tokens that has a part for each layer; cols 0: none. */
struct decoder_side {
    int64_t cols;                         /* columns of a part */
    const char *table, *w, *norm_w;       /* names behind the family's prefix */
    const char *gate_w, *out_w, *after_w; /* names behind a layer's prefix */
};

struct decoder {
    const char *what; /* names the configuration in messages */
    int64_t n_layers, hidden, ffn, vocab, context;
    int64_t embedding;         /* columns of tables of tokens, positions and types; 0: hidden */
    bool join_tiles;           /* the vocabulary is one tile */
    bool packed;               /* samples come with segments */
    struct zinf_shards shards; /* shards of tensor parallelism */
    bool source;               /* it reads a source: its rows are ZINF_ROWS_OF_SOURCE */
    uint32_t first_site;       /* its first dropout site */
    float embedding_dropout, init_std;
    float embedding_scale, head_softcap, head_scale; /* as in lookup_spec and head_spec */
    float final_dropout;                             /* behind the final norm */
    bool unit_rows;
    /* The specs of every block. decoder_build fills in numbers of tensors, sizes named above, and
     * sites. */
    struct attention_spec attention;
    struct mlp_spec mlp;
    /* [n_layers]: the layer has a recurrent mixer in place of attention; NULL: none has. The spec
     * is filled in as attention's. mixed_tensors: the tensors of such layers. */
    const bool *mixed;
    struct mixer_spec mixer;
    /* Kinds of blocks that differ, and the kind of each layer, [n_layers]. NULL: all blocks are as
     * said here. */
    const struct decoder_kind *kinds;
    const uint8_t *kind;
    /* [n_layers]: the layer whose keys and values a layer takes, or itself; NULL: all have their
     * own. */
    const int64_t *keys_of;
    struct decoder_side side; /* a table with rows for each layer */
    bool plain_head_norms;    /* layers that rotate normalise queries and keys, without weights */
    /* the file's tensor of one number that a block's result is multiplied by; NULL: none */
    const char *block_scale;
    /* For xIELU: the file's tensors of beta and eps, which are not trained. */
    const char *xielu_beta, *xielu_eps;
    bool mixer_in_bias, mixer_out_bias; /* the mixer's two products have biases */
    bool mixer_norm;                    /* the mixer has a norm */
    /* The mixer is beside attention, with factors of its own; its tensors are among the block's. */
    bool mixer_beside;
    float mixer_branch_scale;
    struct scales_spec mixer_scales;
    const struct decoder_tensor *mixed_tensors;
    size_t n_mixed_tensors;
    /* [n_layers]: the parts of each layer; NULL: all have both. mlp_tensors: those of layers
     * without attention. */
    const enum decoder_parts *parts;
    const struct decoder_tensor *mlp_tensors;
    size_t n_mlp_tensors;
    bool parallel, one_norm;       /* as in block_spec */
    bool scale_by_inverse_layer;   /* attention.scale / (layer + 1) */
    const bool *windowed;          /* [n_layers]: the layer has attention.window; NULL: all have */
    const bool *rotated;           /* [n_layers]: the layer has attention.rope; NULL: all have */
    const char *table, *positions; /* names of tables in the file; positions NULL: there is none */
    const char *types; /* name of the table of token types, with n_types rows; NULL: none */
    int64_t n_types;
    int64_t first_position; /* the row that position 0 has in the table of positions */
    bool has_padding;       /* this and padding as in lookup_spec */
    int64_t padding;
    /* rotation of blocks with a window; NULL: attention.rope */
    const struct rope_spec *windowed_rope;
    /* how layers that do not rotate scale queries; rotary_dims 0: not at all */
    struct rope_spec still_rope;
    int64_t piece; /* as in attention_spec, for layers that rotate; 0: none */
    const char *embedding_w, *embedding_b; /* the norm behind the lookup; NULL: none */
    float embedding_norm_dropout;          /* dropout behind that norm */
    const char *blocks;                    /* "h": tensors of block 3 begin with "h.3." */
    /* head NULL: the token table is the head; final_w NULL: there is no final norm */
    const char *final_w, *final_b, *head;
    /* [1][vocab] in the file, frozen, its name without a prefix; or NULL */
    const char *logits_bias;
    /* [vocab] in the file, its name without a prefix: a trained bias of the logits, of which each
     * tile has its part; or NULL */
    const char *tile_bias;
    bool head_prefixed;                   /* the name of head has the family's prefix */
    const struct decoder_tensor *tensors; /* tensors of a block */
    size_t n_tensors;
    struct decoder_experts experts; /* in place of the tensors up and down */
    bool embeds;                    /* there is no head: the final rows make embeddings */
    struct class_count classes;     /* a head for classes of samples; n 0: none */
    int64_t class_padding;          /* zinf_graph's padding, for classes */
};

/* Appends the whole decoder to the graph. -EINVAL: a number is out of range, or no multiple of the
 * number of shards; -ENOTSUP: something cannot be cut into shards; the message says which. */
int decoder_build(struct zinf_graph *graph, const struct decoder *d);

#endif
