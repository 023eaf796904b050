/*
 * family_described: decoders with rotary positions that differ by data alone: where their norms
 * stand and of which kind they are, which biases there are, how heads are normalised, which layers
 * rotate and which have a window, whether the feed-forward part has a gate or is a choice of
 * experts, and by what numbers embeddings, branches and logits are scaled. A family is a struct of
 * these and its published sizes; the defaults are those of its class in transformers.
 */
#ifndef ZINF_FAMILY_DESCRIBED_H
#define ZINF_FAMILY_DESCRIBED_H

#include "model/families/family_rotary.h"

enum described_norms {
    DESCRIBED_NO_NORMS,
    DESCRIBED_HEAD_NORMS,         /* of each query and key head */
    DESCRIBED_ROTATED_HEAD_NORMS, /* the same, behind the rotation */
    DESCRIBED_WHOLE_NORMS,        /* of all queries of a row together, and of all keys */
};
enum described_windows {
    DESCRIBED_NO_WINDOWS,
    DESCRIBED_LAYER_WINDOWS,     /* "sliding_window" in the layers that "layer_types" names; without
                                  * it in all but every `pattern`th */
    DESCRIBED_REQUESTED_WINDOWS, /* the same, where "use_sliding_window" is true */
};
enum described_rotation {
    DESCRIBED_ROTATE_ALL,
    DESCRIBED_ROTATE_LISTED, /* layers whose number in "no_rope_layers" is 1; without that list all
                              * but every "no_rope_layer_interval"th */
    DESCRIBED_ROTATE_WINDOWED, /* layers with a window; all where the model has none */
};

/* A switch of the configuration: its key (NULL: none), and what holds where it is absent. */
struct described_switch {
    const char *key;
    bool usual;
};

/* Latent attention: what holds where its keys are absent; q_rank may be null. */
struct described_latent {
    int64_t q_rank, kv_rank, plain, rotated, value;
};

struct described {
    struct family_traits traits; /* first: the family's traits point here */
    enum zinf_norm_kind norm;
    bool norm_bias;      /* of every norm but those of heads */
    float norm_add;      /* the weight of these is norm_add + w */
    const char *eps_key; /* NULL: "rms_norm_eps" */
    double eps;
    /* Names of the norms in front of attention and behind its projection, in front of the
     * feed-forward part and behind it. NULL: there is none. */
    const char *before1, *after1, *before2, *after2;
    bool parallel; /* both parts read the first norm's rows, and their sum is added */
    enum described_norms head_norms;
    const char *head_norms_key;  /* a switch, off where it is absent; NULL: always */
    const char *q_norm, *k_norm; /* NULL: "q_norm", "k_norm" */
    bool fused_up;               /* gate and up are one tensor of the file */
    bool plain_up;               /* there is no gate; the activation where "hidden_act" is absent */
    enum zinf_activation plain_activation;
    const struct described_latent *latent; /* NULL: queries, keys and values as usual */
    const struct rotary_experts *experts;  /* in the place of the feed-forward part; NULL: none */
    bool sinks;                            /* of each head, which join its softmax */
    struct described_switch qkv_bias, proj_bias, mlp_bias, tied;
    double theta, partial; /* of the rotation; 0: 1e4, and the whole head */
    bool interleaved;
    const char *interleaved_key; /* a switch of that; NULL: none */
    bool rope_alpha;             /* as in rope_source */
    bool rope_by_type;           /* layers without a window have a rotation of their own */
    enum described_rotation rotation;
    enum described_windows windows;
    int64_t window, pattern;
    /* Keys of factors: of embedded rows, of scores (instead of 1 / sqrt(head_dim)), of what a
     * branch adds, of logits; of what logits are divided by. NULL: the family has none. */
    const char *embedding_key, *attention_key, *branch_key, *logits_key, *divisor_key;
    double logits; /* where logits_key is absent */
    double attention_dropout, residual_dropout;
    const char *residual_key;     /* of the dropout of branches; NULL: none */
    int64_t padding, end_of_text; /* where the keys are absent; -1: none */
};
int described_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                    const struct zinf_model_source *source);

/* family_latent.c: numbers, and the scale of scores, into d; tensors of attention, onto the list.
 */
int latent_read(const struct zinf_model_source *source, const struct described_latent *of,
                struct decoder *d);
int latent_list(struct family_list *list, const struct decoder *d, bool biased);

/* What follows the names in a family whose description is `of`. */
#define DESCRIBED_FAMILY(of)                                                                       \
    .prefix = ROTARY_PREFIX, .layers_key = ROTARY_LAYERS_KEY, .traits = &(of).traits,              \
    .build = described_build, .make_config = family_make_config, .ignores = rotary_ignores

#endif
