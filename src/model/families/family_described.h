/*
 * family_described: decoders with rotary positions and grouped queries (Ainslie et al., arXiv
 * 2305.13245) that differ by data alone: where their norms stand and of which kind they are, which
 * biases there are, how heads are normalised, which layers rotate and which have a window, whether
 * the feed-forward part has a gate or is a choice of experts, and by what numbers embeddings,
 * branches and logits are scaled. A family is a struct of these and its published sizes; the
 * defaults are those of its class in transformers.
 */
#ifndef ZINF_FAMILY_DESCRIBED_H
#define ZINF_FAMILY_DESCRIBED_H

#include "model/families/family_decoder.h"
#include "model/rope.h"

enum described_norms {
    DESCRIBED_NO_NORMS,
    DESCRIBED_HEAD_NORMS,         /* of each query and key head */
    DESCRIBED_ROTATED_HEAD_NORMS, /* the same, behind the rotation */
    DESCRIBED_WHOLE_NORMS,        /* of all queries of a row together, and of all keys */
};
enum described_windows {
    DESCRIBED_NO_WINDOWS,
    DESCRIBED_LAYER_WINDOWS, /* "sliding_window" in the layers that "layer_types" names; without
                              * it in all but every `pattern`th */
    DESCRIBED_ALL_WINDOWS,   /* in every layer */
    /* Those that follow are only where "use_sliding_window" is true. */
    DESCRIBED_REQUESTED_WINDOWS, /* as DESCRIBED_LAYER_WINDOWS */
    DESCRIBED_UPPER_WINDOWS,     /* by "layer_types"; without it from "max_window_layers" on */
    DESCRIBED_EVEN_WINDOWS,      /* without it every other one, from the first on, before that */
};
enum described_rotation {
    DESCRIBED_ROTATE_ALL,
    DESCRIBED_ROTATE_LISTED, /* layers whose number in "no_rope_layers" is 1; without that list all
                              * but every "no_rope_layer_interval"th */
    DESCRIBED_ROTATE_WINDOWED, /* layers with a window; all where the model has none */
    DESCRIBED_ROTATE_NONE,
    DESCRIBED_ROTATE_GIVEN, /* all, but none where the base is null */
    DESCRIBED_ROTATE_NAMED, /* none but where "position_embedding_type" is "rope" */
};
/* In what order a unit has the vectors of a block. Checkpoints depend on it. */
enum described_order {
    DESCRIBED_ORDER_USUAL,       /* the first norm, biases, norms of heads, the other norms */
    DESCRIBED_ORDER_MLP_LAST,    /* the same, biases of the feed-forward part at the end */
    DESCRIBED_ORDER_BIASES_LAST, /* all biases at the end */
    DESCRIBED_ORDER_NORMS_LAST,  /* biases, norms of heads, then the others */
    DESCRIBED_ORDERS
};

/* A switch of the configuration: its key (NULL: none), and what holds where it is absent. */
struct described_switch {
    const char *key;
    bool usual;
};

/* Experts in the place of the feed-forward part: keys of config.json, names of tensors, and what
 * the class has where a key is absent. */
struct described_experts {
    const char *n_keys[2];  /* either */
    bool may_be_none;       /* they may be 0 */
    const char *switch_key; /* there are none where this is false or absent; NULL: always */
    const char *chosen_key; /* NULL: num_experts_per_tok */
    const char *ffn_key;    /* NULL: intermediate_size */
    struct {
        int64_t n, n_chosen, ffn;
        int64_t shared; /* size of the expert that all tokens have */
    } usual;
    const char *normalised_key; /* NULL: always, or never */
    bool normalised;            /* where the key is absent */
    bool never_normalised;      /* nor is there a key */
    const char *shared_key;     /* NULL: no expert that all tokens have */
    bool in_some_layers;        /* "decoder_sparse_step" and "mlp_only_layers" are read */
    const char *step_key;   /* each so manyth layer has experts, or those of a list; NULL: all */
    const char *layers_key; /* of the list, which comes first */
    bool jitters;           /* "router_jitter_noise" is */
    double balance;         /* "router_aux_loss_coef" where it is absent; 0: 0.001 */
    /* Keys, NULL: there are none: of the factor of weights; of groups and of those that are chosen;
     * of layers in front that have no experts. */
    const char *scale_key, *groups_key, *groups_chosen_key, *dense_key;
    double usual_scale; /* where these are absent; 0: 1 */
    int64_t usual_groups, usual_groups_chosen, dense;
    const char *types_key; /* of a list of "dense" and "sparse"; NULL: there is none */
    const char *groups_switch, *groups_word; /* a key that must be this word for groups; or NULL */
    bool shared_counts;           /* shared_key has how many experts' size that expert has */
    bool clamped;                 /* gate and up are: ZINF_ACTIVATION_CLAMPED_SWISH */
    struct decoder_experts names; /* of tensors, and how the file has them */
};

/* Latent attention: what holds where its keys are absent; q_rank may be null. */
struct described_latent {
    int64_t q_rank, kv_rank, plain, rotated, value;
};

/* Layers with a recurrent mixer in the place of attention: those that "layer_types" calls so.
 * Without that list all but every `interval`th, or all; and not those of another list. Keys of
 * config.json, and what holds without them. */
enum mixer_name {
    MIXER_IN,   /* the first product; with DELTA of all, or of q, k and v, then the next three */
    MIXER_IN_K, /* where these two are there, MIXER_IN is of q alone */
    MIXER_IN_V,
    MIXER_IN_GATE,
    MIXER_IN_B,
    MIXER_IN_A,
    MIXER_OUT,
    MIXER_IN_BIAS,
    MIXER_OUT_BIAS,
    MIXER_CONV, /* of all, or, where the next two are there, of q */
    MIXER_CONV_K,
    MIXER_CONV_V,
    MIXER_CONV_BIAS,
    MIXER_STEP_BIAS,
    MIXER_A_LOG,
    MIXER_SKIP,
    MIXER_NORM,
    MIXER_NAMES
};
struct described_mixer {
    enum zinf_recurrence rule;
    const char *types[2];     /* in "layer_types", either; not looked at where layers have kinds */
    const char *interval_key; /* NULL: there is none */
    int64_t interval;
    const char *attention_key; /* of the other list, of layers that have attention; NULL: none */
    const char *names[MIXER_NAMES]; /* of tensors, behind the layer's prefix */
    bool by_head; /* rows of the first product are by key head, in two tensors: the second is B */
    struct {
        const char *key_heads, *value_heads, *key_dim, *value_dim, *width;
    } keys;
    struct mixer_spec absent; /* of these keys */
    /* DECAY: of how many times as wide as the hidden rows its values are together, which value_dim
     * follows from where it is absent or a word; switches of biases. NULL: there are none. */
    const char *expand_key, *conv_bias_key, *bias_key;
    const char *out_bias_key;   /* of the last product; NULL: bias_key is of both */
    const char *width_key;      /* of the values' width itself, which goes before expand_key */
    int64_t usual_width;        /* where it is absent; null: expand_key */
    const char *norm_key;       /* a switch, off where it is absent; NULL: there always is a norm */
    const char *norm_first_key; /* the norm is before the gate, as it is where this is absent */
    /* DECAY: the key of the lowest step, which has no upper limit then, and where it is absent;
     * NULL: "time_step_limit" has both. */
    const char *lowest_key;
    double lowest;
    /* A convolution between gates, as wide as the hidden rows (mixer_spec). Without either list no
     * layer has one; nor a bias where its key is absent. */
    bool gates;
    /* DELTA: key heads and value heads, where their keys are absent or null, are as many as those
     * of attention; a key has 3/4 of the hidden rows' columns for a head, a value twice as many. */
    bool follows_heads;
    const char *doubled_key;       /* DELTA: a switch, on where it is absent: strength is 2 */
    double norm_eps;               /* of its norm; 0: that of the others */
    const char *before1, *before2; /* the block's norms; NULL: as in blocks with attention */
};
/* DECAY as most families' configurations have it. */
#define MIXER_DECAY_KEYS                                                                           \
    .rule = ZINF_RECURRENCE_DECAY, .types = {"mamba", "linear_attention"},                         \
    .keys = {"mamba_n_groups", "mamba_n_heads", "mamba_d_state", "mamba_d_head", "mamba_d_conv"},  \
    .absent = {.key_heads = 1, .value_heads = 128, .key_dim = 256, .width = 4},                    \
    .expand_key = "mamba_expand", .conv_bias_key = "mamba_conv_bias",                              \
    .bias_key = "mamba_proj_bias"
/* Names of DECAY, in a module of this name. */
#define MIXER_DECAY_NAMES(module)                                                                  \
    .names = {[MIXER_IN] = module ".in_proj.weight",                                               \
              [MIXER_OUT] = module ".out_proj.weight",                                             \
              [MIXER_IN_BIAS] = module ".in_proj.bias",                                            \
              [MIXER_OUT_BIAS] = module ".out_proj.bias",                                          \
              [MIXER_CONV] = module ".conv1d.weight",                                              \
              [MIXER_CONV_BIAS] = module ".conv1d.bias",                                           \
              [MIXER_STEP_BIAS] = module ".dt_bias",                                               \
              [MIXER_A_LOG] = module ".A_log",                                                     \
              [MIXER_SKIP] = module ".D",                                                          \
              [MIXER_NORM] = module ".norm.weight"}

/* Attention of layers without a window, where it differs from that of the others: keys of
 * config.json, and what holds where they are absent. */
struct described_unwindowed {
    const char *head_dim_key;
    int64_t head_dim;
    const char *same_key;     /* a switch: keys are the values, too */
    const char *kv_heads_key; /* counts where that switch is on; without it as in other layers */
    /* Of an object that has, by number, for each of these layers an object with "head_dim" and
     * "num_key_value_heads" in the place of those keys. */
    const char *layers_key;
    const char *rope_kind; /* of the rotation, where no key says it */
    double partial;
    bool last; /* the last layer is one of these in any case */
    /* How many layers, the last ones, take the keys and values of the last layer in front of them
     * that has a window as they have, and a switch of a feed-forward part of twice the size in
     * these. */
    const char *takers_key, *wide_key;
};

/* Layers of one part each: by a list of words, one for each layer, or a text of letters. Without
 * "num_hidden_layers" there are as many layers as words. Where there are more layers than words,
 * as in a model that is looked at with more of them, the list begins again. */
enum described_kind { KIND_MIXER, KIND_ATTENTION, KIND_MLP, KIND_EXPERTS, KINDS };
struct described_kinds {
    const char *list_key, *letters_key; /* the list comes first */
    const char *words[KINDS][2];        /* either */
    char letters[KINDS];
    const char *usual; /* letters where there is neither key */
};

/* xIELU as the activation, where the word of activation_key is this one: names of its tensors,
 * behind the layer's prefix. */
struct described_xielu {
    const char *word, *alpha_p, *alpha_n, *beta, *eps;
};

struct described {
    struct family_traits traits; /* first: the family's traits point here */
    enum zinf_norm_kind norm;
    bool norm_bias;      /* of every norm but those of heads */
    float norm_add;      /* the weight of these is norm_add + w */
    const char *eps_key; /* NULL: "rms_norm_eps" */
    double eps;
    /* Names of the norms in front of attention and behind its projection, in front of the
     * feed-forward part and behind it. NULL: there is none; all NULL: the two in front, under the
     * names that most families have. */
    const char *before1, *after1, *before2, *after2;
    bool parallel; /* both parts read the first norm's rows, and their sum is added */
    enum described_norms head_norms;
    const char *head_norms_key;   /* a switch, off where it is absent; NULL: always */
    const char *q_norm, *k_norm;  /* NULL: "q_norm", "k_norm" */
    const char *attention, *proj; /* its module and last product; NULL: what most have */
    const char *fused_qkv;        /* the one tensor of q, k and v in the file; NULL: three */
    bool fused_up;                /* gate and up are one */
    bool plain_up;                /* there is no gate */
    /* Tensors in the file, up where it is fused; NULL: what most have. */
    const char *gate, *up, *down;
    enum described_order order;
    const char *activation_key, *activation; /* NULL: "hidden_act"; "silu" where it is absent */
    const struct described_xielu *xielu;     /* NULL: never */
    const struct described_latent *latent;   /* NULL: queries, keys and values as usual */
    const struct described_mixer *mixer;     /* of some layers; NULL: of none */
    bool mixer_beside;                   /* in all layers, beside attention and not in its place */
    const struct described_kinds *kinds; /* NULL: layers have both parts */
    const struct described_unwindowed *unwindowed; /* NULL: attention of all layers is the same */
    bool value_norms;                              /* of each value head, without weights */
    const char *block_scale; /* the tensor of one number that a block's result is multiplied by */
    bool gated; /* heads have a gate, whose rows are in the tensor of queries, behind each head's */
    const struct described_experts *experts; /* in the place of the feed-forward part; NULL: none */
    bool sinks;                              /* of each head, which join its softmax */
    struct described_switch qkv_bias, proj_bias, mlp_bias;
    bool tied;             /* where "tie_word_embeddings" is absent */
    double theta, partial; /* of the rotation; 0: 1e4, and the whole head */
    bool interleaved;
    const char *interleaved_key; /* a switch of that; NULL: none */
    bool rope_alpha;             /* as in rope_source */
    int64_t original;            /* the same */
    /* Layers with a window have a rotation of their own: its base's key, and where that is absent.
     * NULL: they have not. */
    const char *local_theta_key;
    double local_theta;
    enum described_rotation rotation;
    enum described_windows windows;
    int64_t window, pattern; /* where their keys are absent; pattern 0: 1 */
    /* Keys of factors: of embedded rows, of scores (instead of 1 / sqrt(head_dim)), of what a
     * branch adds, of logits; of what logits are divided by. NULL: the family has none. */
    const char *embedding_key, *attention_key, *branch_key, *logits_key, *divisor_key;
    double logits; /* where logits_key is absent */
    double attention_dropout, residual_dropout;
    const char *residual_key;          /* of the dropout of branches; NULL: none */
    const char *embedding_dropout_key; /* the same of embedded rows */
    double init_std;                   /* 0: 0.02 */
    int64_t padding, end_of_text;      /* where the keys are absent; -1: none */
    /* What the family alone has, into a decoder that has all else; NULL: nothing. */
    int (*read_more)(const struct zinf_model_source *source, struct decoder *d);
};
int described_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                    const struct zinf_model_source *source);

/* family_experts.c: experts of config.json, into d (e NULL: there are none). */
int described_read_experts(struct zinf_graph *graph, const struct zinf_model_source *source,
                           const struct described_experts *e, struct decoder *d);
/* family_latent.c: numbers, and the scale of scores, into d; tensors of attention, onto the list.
 */
int latent_read(const struct zinf_model_source *source, const struct described_latent *of,
                struct decoder *d);
int latent_list(struct family_list *list, const struct decoder *d, bool biased);

/* family_kinds.c: which parts layers have, and in how many, into d; in_layer: those of experts, or
 * NULL, in memory of the graph. */
int kinds_read(struct zinf_graph *graph, const struct zinf_model_source *source,
               const struct described_kinds *of, struct decoder *d, const bool **in_layer);

/* family_mixer.c: numbers and layers, into d; tensors between a block's norms, onto the list: those
 * that are matrices, then the others. */
int mixer_read(struct zinf_graph *graph, const struct zinf_model_source *source,
               const struct described_mixer *of, struct decoder *d);
void mixer_list(struct family_list *list, const struct described_mixer *of, const struct decoder *d,
                bool matrices);

/* For a new configuration whose values are so many times as wide as the hidden rows: under the key,
 * heads of 64 columns where these fit, else as many heads as attention has. */
int mixer_make_heads(cJSON *config, const char *key, double times, int64_t *values, int64_t *heads);

/* Frequencies that old files carry, and the head of a model whose head is tied. */
#define DESCRIBED_IGNORED "*.rotary_emb.inv_freq", "lm_head.weight"
#define DESCRIBED_PREFIX "model."
#define DESCRIBED_LAYERS_KEY "num_hidden_layers"
/* A description's keys and its published sizes. */
#define DESCRIBED_TRAITS(list)                                                                     \
    .traits.keys = {DESCRIBED_LAYERS_KEY,                                                          \
                    "hidden_size",                                                                 \
                    "num_attention_heads",                                                         \
                    "num_key_value_heads",                                                         \
                    "head_dim",                                                                    \
                    "intermediate_size",                                                           \
                    "vocab_size",                                                                  \
                    "max_position_embeddings"},                                                    \
    .traits.sizes = list, .traits.n_sizes = sizeof list / sizeof *list
/* The family NAME whose description is `of`. */
#define DESCRIBED_FAMILY(NAME, of, type, class)                                                    \
    const struct zinf_family zinf_family_##NAME = {.model_type = type,                             \
                                                   .architecture = class,                          \
                                                   .prefix = DESCRIBED_PREFIX,                     \
                                                   .layers_key = DESCRIBED_LAYERS_KEY,             \
                                                   .traits = &(of).traits,                         \
                                                   .build = described_build,                       \
                                                   .make_config = family_make_config,              \
                                                   .ignored = {DESCRIBED_IGNORED}}

#endif
