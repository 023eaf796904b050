/*
 * family_described: decoders with rotary positions and grouped queries (Ainslie et al., arXiv
 * 2305.13245) that differ by data alone: where their norms are and of which kind, which biases they
 * have, how heads are normalised, which layers rotate and which have a window, whether the
 * feed-forward part has a gate or is a mixture of experts, and the factors of embeddings, branches
 * and logits. A family is a struct of these and its published sizes. Most fields say how to read
 * config.json: a key, and the value if the key is absent, which is that of the family's class in
 * transformers.
 */
#ifndef ZINF_FAMILY_DESCRIBED_H
#define ZINF_FAMILY_DESCRIBED_H

#include "model/families/family_decoder.h"
#include "model/rope.h"

enum described_norms {
    DESCRIBED_NO_NORMS,
    DESCRIBED_HEAD_NORMS,         /* over each query and key head */
    DESCRIBED_ROTATED_HEAD_NORMS, /* the same, after the rotation */
    DESCRIBED_WHOLE_NORMS,        /* over all queries of a row together, and over all keys */
};
enum described_windows {
    DESCRIBED_NO_WINDOWS,
    /* "sliding_window" in the layers that "layer_types" names; without that list in all but every
       `pattern`th */
    DESCRIBED_LAYER_WINDOWS,
    DESCRIBED_ALL_WINDOWS, /* in every layer */
    /* The following have windows only if "use_sliding_window" is true. */
    DESCRIBED_REQUESTED_WINDOWS, /* as DESCRIBED_LAYER_WINDOWS */
    DESCRIBED_UPPER_WINDOWS, /* by "layer_types"; without that list from "max_window_layers" on */
    /* the same, but without the list every other layer from the first on, below "max_window_layers"
     */
    DESCRIBED_EVEN_WINDOWS,
};
enum described_rotation {
    DESCRIBED_ROTATE_ALL,
    /* layers with 1 in "no_rope_layers"; without that list all but every "no_rope_layer_interval"th
     */
    DESCRIBED_ROTATE_LISTED,
    DESCRIBED_ROTATE_WINDOWED, /* layers with a window; all if the model has no windows */
    DESCRIBED_ROTATE_NONE,
    DESCRIBED_ROTATE_GIVEN, /* all; none if the base in the configuration is null */
    DESCRIBED_ROTATE_NAMED, /* all if "position_embedding_type" is "rope", else none */
};
/* The order in which a unit has the vectors of a block. Checkpoints depend on it. */
enum described_order {
    DESCRIBED_ORDER_USUAL,       /* the first norm, biases, norms of heads, the other norms */
    DESCRIBED_ORDER_MLP_LAST,    /* the same, biases of the feed-forward part at the end */
    DESCRIBED_ORDER_BIASES_LAST, /* all biases at the end */
    DESCRIBED_ORDER_NORMS_LAST,  /* biases, norms of heads, then the others */
    DESCRIBED_ORDERS
};

/* A switch of the configuration: its key (NULL: none), and its value if the key is absent. */
struct described_switch {
    const char *key;
    bool usual;
};

/* Experts in place of the feed-forward part: keys of config.json, the class's values for absent
 * keys, and names of tensors. */
struct described_experts {
    const char *n_keys[2];  /* either of them */
    bool may_be_none;       /* the number of experts may be 0 */
    const char *switch_key; /* there are no experts if this is false or absent; NULL: no such key */
    const char *chosen_key; /* NULL: num_experts_per_tok */
    const char *ffn_key;    /* NULL: intermediate_size */
    struct {
        int64_t n, n_chosen, ffn;
        int64_t shared; /* size of the shared expert */
    } usual;
    const char *normalised_key; /* whether weights of a row sum to 1; NULL: always, or never */
    bool normalised;            /* the value if the key is absent */
    bool never_normalised;      /* never, and there is no key */
    const char *shared_key;     /* size of the shared expert; NULL: no key */
    bool in_some_layers;        /* "decoder_sparse_step" and "mlp_only_layers" are read */
    /* every so manyth layer has experts, if layers_key is absent; NULL: no key */
    const char *step_key;
    const char *layers_key; /* the list of layers with experts; goes before step_key */
    bool jitters;           /* "router_jitter_noise" is read, too */
    double balance;         /* "router_aux_loss_coef" if that is absent; 0: 0.001 */
    /* Keys; NULL: there is no such key. The factor of weights; the number of groups, and of groups
     * that a row chooses; the number of first layers without experts. */
    const char *scale_key, *groups_key, *groups_chosen_key, *dense_key;
    double usual_scale; /* values if these are absent; usual_scale 0: 1 */
    int64_t usual_groups, usual_groups_chosen, dense;
    const char *types_key; /* a list of "dense" and "sparse", a word for each layer; NULL: no key */
    /* groups are read only if this key has this word or is absent; NULL: always */
    const char *groups_switch, *groups_word;
    bool shared_counts; /* shared_key counts experts: the shared one is as large as these */
    bool clamped;       /* gate and up are clamped: ZINF_ACTIVATION_CLAMPED_SWISH */
    struct decoder_experts names; /* names of tensors, and their layout in the file */
};

/* Latent attention: values for absent keys. The configuration's q_rank may be null. */
struct described_latent {
    int64_t q_rank, kv_rank, plain, rotated, value;
};

/* Tensors of layers with a recurrent mixer in place of attention. */
enum mixer_name {
    /* the first product; with DELTA its rows for q, k and v, the next tensors have the other rows
     */
    MIXER_IN,
    MIXER_IN_K, /* if these two are there, MIXER_IN has q alone */
    MIXER_IN_V,
    MIXER_IN_GATE,
    MIXER_IN_B,
    MIXER_IN_A,
    MIXER_OUT,
    MIXER_IN_BIAS,
    MIXER_OUT_BIAS,
    MIXER_CONV, /* of q, k and v; if the next two are there, of q alone */
    MIXER_CONV_K,
    MIXER_CONV_V,
    MIXER_CONV_BIAS,
    MIXER_STEP_BIAS,
    MIXER_A_LOG,
    MIXER_SKIP,
    MIXER_NORM,
    MIXER_NAMES
};
/* Layers with a recurrent mixer in place of attention: those that "layer_types" names; without that
 * list all but every `interval`th (0: all), and without those that the list of attention_key names.
 * Fields are keys of config.json, and values if these are absent. */
struct described_mixer {
    enum zinf_recurrence rule;
    const char *types[2];     /* words in "layer_types"; unused if layers have kinds */
    const char *interval_key; /* NULL: there is none */
    int64_t interval;
    const char *attention_key; /* a list of numbers of layers that have attention; NULL: no key */
    const char *names[MIXER_NAMES]; /* names of tensors, behind the layer's prefix */
    /* DELTA: rows are by key head: q, k, v and gate in MIXER_IN, b and a in MIXER_IN_B */
    bool by_head;
    struct {
        const char *key_heads, *value_heads, *key_dim, *value_dim, *width;
    } keys;
    struct mixer_spec absent; /* values if these keys are absent */
    /* DECAY: expand_key: how many times as wide as the hidden rows a row's values are; value_dim
     * follows from it if its key is absent, null or "auto". The others: switches of biases. NULL:
     * there is no such key. */
    const char *expand_key, *conv_bias_key, *bias_key;
    /* the bias of the last product; NULL: bias_key is for both products */
    const char *out_bias_key;
    const char *width_key;      /* the width of a row's values itself; goes before expand_key */
    int64_t usual_width;        /* its value if absent; if it is null, expand_key is used */
    const char *norm_key;       /* a switch, off if absent; NULL: there always is a norm */
    const char *norm_first_key; /* the norm is before the gate; so it is if this is absent */
    /* DECAY: the key of the lowest step, and its value if absent; steps have no upper limit then.
     * NULL: "time_step_limit" has both limits. */
    const char *lowest_key;
    double lowest;
    /* The mixer is a convolution between gates, as wide as the hidden rows (mixer_spec). If both
     * lists of layers are absent, no layer has one. Biases whose keys are absent are off. */
    bool gates;
    /* DELTA: if the keys are absent or null, there are as many key heads and value heads as heads
     * of attention; keys of all heads have 3/4 of the hidden columns together, and a value is twice
     * as wide as a key. */
    bool follows_heads;
    const char *doubled_key; /* DELTA: a switch, on if absent: strength is 2 */
    double norm_eps;         /* epsilon of the mixer's norm; 0: that of the other norms */
    /* names of the block's norms; NULL: as in blocks with attention */
    const char *before1, *before2;
};
/* The keys of DECAY in most families' configurations. */
#define MIXER_DECAY_KEYS                                                                           \
    .rule = ZINF_RECURRENCE_DECAY, .types = {"mamba", "linear_attention"},                         \
    .keys = {"mamba_n_groups", "mamba_n_heads", "mamba_d_state", "mamba_d_head", "mamba_d_conv"},  \
    .absent = {.key_heads = 1, .value_heads = 128, .key_dim = 256, .width = 4},                    \
    .expand_key = "mamba_expand", .conv_bias_key = "mamba_conv_bias",                              \
    .bias_key = "mamba_proj_bias"
/* The names of DECAY's tensors in a module of this name. */
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

/* Attention of layers without a window, for families in which it differs from that of the others:
 * keys of config.json, and values if they are absent. */
struct described_unwindowed {
    const char *head_dim_key;
    int64_t head_dim;
    const char *same_key; /* a switch: keys are the values, too */
    /* key and value heads, read if that switch is on; absent: as in other layers */
    const char *kv_heads_key;
    /* The key of an object that has, under the number of each of these layers, an object with
     * "head_dim" and "num_key_value_heads"; it replaces the keys above. */
    const char *layers_key;
    const char *rope_kind; /* the kind of rotation, if no key says it */
    double partial;
    bool last; /* the last layer never has a window */
    /* takers_key: how many of the last layers take the keys and values of the last layer before
     * them that has a window, or has none, as they do. wide_key: a switch: the feed-forward part of
     * these layers is twice as large. */
    const char *takers_key, *wide_key;
};

/* Models whose layers have one part each. A list of words, or a text of letters, has one for each
 * layer. Without "num_hidden_layers" there are as many layers as words. If there are more layers
 * than words, because a caller asks for more, the list begins again. */
enum described_kind { KIND_MIXER, KIND_ATTENTION, KIND_MLP, KIND_EXPERTS, KINDS };
struct described_kinds {
    const char *list_key, *letters_key; /* the list goes before the letters */
    const char *words[KINDS][2];        /* either of them */
    char letters[KINDS];
    const char *usual; /* the letters if both keys are absent */
};

/* The activation is xIELU if activation_key has this word. Names of its tensors, behind the layer's
 * prefix. */
struct described_xielu {
    const char *word, *alpha_p, *alpha_n, *beta, *eps;
};

struct described {
    struct family_traits traits; /* must be first: the family's traits point here */
    enum zinf_norm_kind norm;
    bool norm_bias;      /* every norm but those of heads has a bias */
    float norm_add;      /* the weight of the same norms is norm_add + w */
    const char *eps_key; /* NULL: "rms_norm_eps" */
    double eps;
    /* Names of norms: in front of attention, behind its projection, in front of the feed-forward
     * part, and behind it. NULL: there is none. All NULL: the two in front, under the names that
     * most families have. */
    const char *before1, *after1, *before2, *after2;
    bool parallel; /* both parts read the first norm's rows, and their sum is added */
    enum described_norms head_norms;
    const char *head_norms_key;  /* a switch, off if absent; NULL: always on */
    const char *q_norm, *k_norm; /* NULL: "q_norm", "k_norm" */
    /* names of its module and its last product; NULL: the usual ones */
    const char *attention, *proj;
    const char *fused_qkv; /* the file's one tensor of q, k and v; NULL: it has three */
    bool fused_up;         /* gate and up are one tensor */
    bool plain_up;         /* there is no gate */
    /* Names of tensors in the file; up: also of the fused one. NULL: the usual ones. */
    const char *gate, *up, *down;
    enum described_order order;
    /* the key; NULL: "hidden_act". Its value if absent; NULL: "silu" */
    const char *activation_key, *activation;
    const struct described_xielu *xielu;   /* NULL: never */
    const struct described_latent *latent; /* NULL: queries, keys and values as usual */
    const struct described_mixer *mixer;   /* a mixer in some layers; NULL: in none */
    bool mixer_beside; /* the mixer is in all layers, beside attention instead of in its place */
    const struct described_kinds *kinds;           /* NULL: layers have both parts */
    const struct described_unwindowed *unwindowed; /* NULL: attention of all layers is the same */
    bool value_norms;        /* each value head is normalised, without weights */
    const char *block_scale; /* the tensor of one number that a block's result is multiplied by */
    bool gated; /* heads have a gate; its rows follow each head's in the tensor of queries */
    const struct described_experts *experts; /* in place of the feed-forward part; NULL: none */
    bool sinks;                              /* each head has a sink (kernels/attention.h) */
    struct described_switch qkv_bias, proj_bias, mlp_bias;
    bool tied;             /* the value if "tie_word_embeddings" is absent */
    double theta, partial; /* base, and share of a head that rotates; 0: 1e4, and all */
    bool interleaved;
    const char *interleaved_key; /* the key of interleaved; NULL: none */
    bool rope_alpha;             /* as in rope_source */
    int64_t original;            /* as in rope_source */
    /* For layers with a window that have a rotation of their own: the key of its base, and the
     * value if it is absent. NULL: they have none. */
    const char *local_theta_key;
    double local_theta;
    enum described_rotation rotation;
    enum described_windows windows;
    int64_t window, pattern; /* values if their keys are absent; pattern 0: 1 */
    /* Keys of factors: of embedded rows, of scores (instead of 1 / sqrt(head_dim)), of what a
     * branch adds, of logits, and of a number that logits are divided by. NULL: no such key. */
    const char *embedding_key, *attention_key, *branch_key, *logits_key, *divisor_key;
    double logits; /* the value if logits_key is absent */
    double attention_dropout, residual_dropout;
    const char *residual_key;          /* the key of the dropout of branches; NULL: none */
    const char *embedding_dropout_key; /* the same for embedded rows */
    double init_std;                   /* 0: 0.02 */
    int64_t padding, end_of_text;      /* values if the keys are absent; -1: none */
    /* Fills in what no other family has, after all else is read from config.json; NULL: nothing. */
    int (*read_more)(const struct zinf_model_source *source, struct decoder *d);
};
int described_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                    const struct zinf_model_source *source);

/* family_experts.c: reads the experts from config.json into d; e NULL: does nothing. */
int described_read_experts(struct zinf_graph *graph, const struct zinf_model_source *source,
                           const struct described_experts *e, struct decoder *d);
/* family_latent.c. read: reads sizes, and the scale of scores, into d. list: adds the tensors of
 * attention to the list; biased: with biases. */
int latent_read(const struct zinf_model_source *source, const struct described_latent *of,
                struct decoder *d);
int latent_list(struct family_list *list, const struct decoder *d, bool biased);

/* family_kinds.c: reads into d which part each layer has, and the number of layers if that has no
 * key. *in_layer becomes [n_layers], in the graph's memory: the layer has experts; it is not
 * changed if none has. */
int kinds_read(struct zinf_graph *graph, const struct zinf_model_source *source,
               const struct described_kinds *of, struct decoder *d, const bool **in_layer);

/* family_mixer.c. read: reads sizes, and which layers have mixers, into d. list: adds the mixer's
 * tensors to the list: its matrices, or else its other tensors. */
int mixer_read(struct zinf_graph *graph, const struct zinf_model_source *source,
               const struct described_mixer *of, struct decoder *d);
void mixer_list(struct family_list *list, const struct described_mixer *of, const struct decoder *d,
                bool matrices);

/* For a new configuration in which a row's values are `times` as wide as the hidden rows: *values
 * is their width, *heads their number, which is added under the key: heads have 64 columns if that
 * divides the width, else there are as many as in attention. */
int mixer_make_heads(cJSON *config, const char *key, double times, int64_t *values, int64_t *heads);

/* Tensors that are not read: frequencies that old files have, and the head if it is tied to the
 * table. */
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
/* Defines the family NAME, whose description is `of`. */
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
