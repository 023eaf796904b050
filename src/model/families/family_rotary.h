/*
 * family_rotary: what families of decoders with rotary positions share: keys of config.json, names
 * of tensors, RMS norms, grouped queries (Ainslie et al., arXiv 2305.13245) and a gated
 * feed-forward part. A family says what it does differently and which sizes were published.
 */
#ifndef ZINF_FAMILY_ROTARY_H
#define ZINF_FAMILY_ROTARY_H

#include "model/families/family_decoder.h"
#include "model/rope.h"

/* A published size, and what `zinf init` writes for it. */
struct rotary_size {
    const char *name;
    int64_t layers, hidden, heads, kv_heads, ffn, vocab, context;
    double theta, eps;
    int64_t head_dim; /* 0: not written, hidden / heads */
    bool tied;
    double scaling; /* factor of "llama3" scaling from 8192 positions; 0: none */
    int64_t window; /* sliding_window; 0: null */
    int64_t bos, eos;
};
struct rotary_expert_size {
    int64_t n, n_chosen, ffn;
    int64_t shared; /* size of the expert that all tokens have */
};
/* Experts in the place of the feed-forward part: keys of config.json, names of tensors, and what
 * the class has where a key is absent. */
struct rotary_experts {
    const char *n_keys[2]; /* either */
    const char *ffn_key;   /* NULL: intermediate_size */
    struct rotary_expert_size usual;
    const struct rotary_expert_size *sizes; /* of those in the traits */
    const char *normalised_key;             /* NULL: always, or never */
    bool normalised;                        /* where the key is absent */
    bool never_normalised;                  /* nor is there a key */
    const char *shared_key;                 /* NULL: no expert that all tokens have */
    bool in_some_layers; /* "decoder_sparse_step" and "mlp_only_layers" are read */
    bool jitters;        /* "router_jitter_noise" is */
    bool new_normalised; /* what new configurations say */
    double balance;      /* "router_aux_loss_coef" where it is absent; 0: 0.001 */
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

enum rotary_window {
    ROTARY_WINDOW_NONE,
    ROTARY_WINDOW_ALL,    /* "sliding_window", unless it is null */
    ROTARY_WINDOW_GIVEN,  /* the same, but only where it is given */
    ROTARY_WINDOW_LAYERS, /* where "use_sliding_window" is true: "layer_types", or from
                           * "max_window_layers" on */
    ROTARY_WINDOW_EVEN,   /* the same, or every other one, from the first on, before that */
};
/* The traits of a family: what its class in transformers has, and its defaults of keys that are
 * absent. */
struct rotary_traits {
    int64_t kv_heads, ffn, vocab, context, head_dim,
        end_of_text;          /* kv_heads, head_dim 0: derived */
    bool qkv_bias;            /* unless its key says otherwise; not of the projection back */
    const char *qkv_bias_key; /* NULL: none */
    bool attention_bias;      /* the key is read: biases of q, k, v and the projection back */
    bool mlp_bias;            /* the key is read */
    bool head_norms;          /* RMS norms of each query and key head */
    enum rotary_window window;
    const struct rotary_experts *experts; /* NULL: none */
    const struct rotary_size *sizes;
    size_t n_sizes;
    size_t usual; /* the size that is made when nobody says */
};
int rotary_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source);
/* family_rotary_experts.c: of config.json, into d (e NULL: there are none); of a size, into a new
 * one. */
int rotary_read_experts(struct zinf_graph *graph, const struct zinf_model_source *source,
                        const struct rotary_experts *e, struct decoder *d);
int rotary_add_experts(cJSON *config, const struct rotary_traits *traits, size_t size,
                       int64_t hidden);
int rotary_make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape);
/* A block's matrices under the names that these families have. */
void rotary_list_matrices(struct family_list *list, const struct decoder *d);
/* Of these the attention's alone, and the feed-forward part's. */
void rotary_list_attention(struct family_list *list, const struct decoder *d);
void rotary_list_mlp(struct family_list *list, const struct decoder *d);
/* Biases of queries, keys and values. */
void rotary_list_qkv_biases(struct family_list *list, const struct decoder *d);
/* The rotation of all of a head, and a context that its scaling stretches, into d, whose head_dim
 * and context are known. */
int rotary_read_rope(struct zinf_graph *graph, const struct zinf_model_source *source,
                     struct decoder *d);
/* The rotation of layers with a window where others have another: an object of its own in
 * rope_parameters; in the form of version 4 the base alone, under base_key, without rope_scaling.
 */
int rotary_read_windowed_rope(struct zinf_graph *graph, const struct zinf_model_source *source,
                              struct rope_source of, const char *base_key, struct rope_spec *out);
/* Frequencies that old files carry, and the head of a model whose head is tied. */
int rotary_ignores(const char *name);

#define ROTARY_PREFIX "model."
#define ROTARY_LAYERS_KEY "num_hidden_layers"
/* What follows its names in a family that says the rest in its rotary_traits. */
#define ROTARY_FAMILY                                                                              \
    .prefix = ROTARY_PREFIX, .layers_key = ROTARY_LAYERS_KEY, .traits = &traits,                   \
    .build = rotary_build, .make_config = rotary_make_config, .ignores = rotary_ignores
/* Of family_traits. */
#define ROTARY_KEYS                                                                                \
    {                                                                                              \
        ROTARY_LAYERS_KEY, "hidden_size", "num_attention_heads", "num_key_value_heads",            \
            "head_dim", "intermediate_size", "vocab_size", "max_position_embeddings"               \
    }

#endif
