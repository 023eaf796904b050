/*
 * llama: what the families that descend from LLaMA share (Touvron et al., arXiv 2302.13971): keys
 * of config.json, names of tensors, RMS norms, rotary positions, grouped queries (Ainslie et al.,
 * arXiv 2305.13245), a gated feed-forward part. A family says what it does differently.
 */
#ifndef ZINF_LLAMA_H
#define ZINF_LLAMA_H

#include "model/decoder.h"
#include "model/family.h"

/* A published size, and what `zinf init` writes for it. */
struct llama_size {
    const char *name;
    int64_t layers, hidden, heads, kv_heads, ffn, vocab, context;
    double theta, eps;
    int64_t head_dim; /* 0: not written, hidden / heads */
    bool tied;
    double scaling; /* factor of llama3 scaling from 8192 positions; 0: none */
    int64_t window; /* sliding_window; 0: null */
    int64_t bos, eos;
};

enum llama_window {
    LLAMA_WINDOW_NONE,
    LLAMA_WINDOW_ALL,    /* "sliding_window", unless it is null */
    LLAMA_WINDOW_LAYERS, /* where "use_sliding_window" is true: "layer_types", or from
                          * "max_window_layers" on */
};
/* What a family's class in transformers has, and its defaults of keys that are absent. */
struct llama_traits {
    int64_t kv_heads, ffn, vocab, context, head_dim,
        end_of_text;     /* kv_heads, head_dim 0: derived */
    bool qkv_bias;       /* always; not of the projection back */
    bool attention_bias; /* the key is read: biases of q, k, v and the projection back */
    bool mlp_bias;       /* the key is read */
    bool head_norms;     /* RMS norms of each query and key head */
    enum llama_window window;
    const struct llama_size *sizes;
    size_t n_sizes;
    size_t usual; /* the size that is made when nobody says */
};
int llama_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                const struct zinf_model_source *source, const struct llama_traits *traits);
int llama_make_config(cJSON *config, const struct zinf_model_shape *shape,
                      const struct llama_traits *traits);
/* Frequencies that old files carry, and the head of a model whose head is tied. */
int llama_ignores(const char *name);

#define LLAMA_PREFIX "model."
#define LLAMA_LAYERS_KEY "num_hidden_layers"

#endif
