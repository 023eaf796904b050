/*
 * adapter: low-rank adapters of a model's linear layers (LoRA), chosen as PEFT chooses them. A
 * *choice* is what an adapter_config.json asks for: which modules, of which rank, scaled by what. A
 * *module* is a linear layer as the file has it: its path is the tensor's name with the family's
 * prefix and without ".weight", so that every family has its own names and no word of them stands
 * here.
 *
 * Owned by whoever read it; read-only afterwards, but for notes of which names were met.
 */
#ifndef ZINF_ADAPTER_H
#define ZINF_ADAPTER_H

#include "base/json.h"
#include "model/build.h"

#define ADAPTER_KEY_PREFIX "base_model.model." /* in front of names in an adapter's file */
#define ADAPTER_BASE_LAYER ".base_layer"       /* behind the path of an adapted module */

/* Names, as a list or as an expression. */
struct adapter_names {
    const cJSON *list; /* of strings, or NULL */
    bool *met;         /* [the list's length]: the name has matched */
    void *expression;  /* matches a whole path, or NULL */
    bool all;          /* every linear layer */
};
/* A rank or alpha for some modules: the first pattern that matches the end of a path applies. */
struct adapter_pattern {
    void *expression;
    double value;
};
/* Which biases are trained: none, those of adapted modules ("lora_only"), all. */
enum adapter_bias {
    ADAPTER_BIAS_NONE,
    ADAPTER_BIAS_OF_ADAPTED,
    ADAPTER_BIAS_ALL,
};
struct adapter_choice {
    char *what;    /* names it in messages */
    cJSON *config; /* as it was given */
    int64_t rank;
    double alpha, dropout;
    bool root_of_rank;  /* the scale is alpha / sqrt(rank) (Kalajdzievski, arXiv 2312.03732) */
    bool gaussian;      /* A is initialised with normal numbers, else with uniform ones */
    bool has_magnitude; /* "use_dora" */
    enum adapter_bias bias;
    bool for_classes; /* task_type says so */
    bool classifies;  /* the head of a classifier is trained whole, as PEFT does by itself */
    struct adapter_names targets, excluded;
    struct adapter_names parameters; /* parameters of all experts of a layer at once */
    struct adapter_names saved;      /* modules that are trained whole, and not adapted */
    struct adapter_pattern *ranks, *alphas;
    size_t n_ranks, n_alphas;
};

/* ---- adapter_config.c ---- */

/* Reads config, which is copied; `what` names it in messages. -EINVAL, -ENOTSUP: the message names
 * the key. After a failure adapter_choice_fini must not be called. */
int adapter_choice_init(struct adapter_choice *out, const cJSON *config, const char *what);
void adapter_choice_fini(struct adapter_choice *choice);
/* adapter_choose: whether the module at path gets an adapter, and with which rank and scale. */
struct adapter_module {
    bool wanted;
    int64_t rank;
    double scale;
};
int adapter_choose(struct adapter_choice *choice, const char *path, struct adapter_module *out);
/* The same for a parameter that is no module's weight, by its whole name ("target_parameters"). */
int adapter_choose_parameter(struct adapter_choice *choice, const char *name,
                             struct adapter_module *out);
/* Whether a name in a list means the module at path. */
bool adapter_name_is(const char *name, const char *path);
/* Whether the module at path is what transformers calls the head of a classifier. */
bool adapter_is_head(const char *path);
/* Whether the module at path, or one that it is part of, is in modules_to_save. */
bool adapter_is_saved(const struct adapter_choice *choice, const char *path);

/* ---- adapter.c ---- */

/* Freezes all units of a finished graph and gives each unit with wanted modules a second one for
 * their adapters, at hand beside it. The graph must be finished again. prefix: the family's, in
 * front of names. -EINVAL, -ENOTSUP: a module is no linear layer, or its rank is above a side of
 * its matrix; the message names it. */
int adapter_attach(struct zinf_graph *graph, struct adapter_choice *choice, const char *prefix);

/* ---- adapter_shards.c ---- */

/* Names what the choice asks for that does not work with tensor parallelism; NULL: nothing. */
const char *adapter_not_cut(const struct adapter_choice *choice);

/* ---- adapter_describe.c ---- */

/* *out: the adapter_config.json that PEFT would write for the graph's adapters; the caller frees
 * it. base: the model's folder. */
int adapter_describe(const struct zinf_graph *graph, const struct adapter_choice *choice,
                     const char *base, cJSON **out);

#endif
