/*
 * model: families as data. A config.json becomes a *graph* (graph.h): units of tensors that move
 * together, and the stages that compute with them (frame.h). Which tensors of a file are which rows
 * of a unit is tensors.h. Knows nothing of drives or tiers.
 *
 * A family is one file family_<name>.c with a struct zinf_family and a row in family.c. Its tensors
 * are cut by the configuration alone, so that results do not depend on any budget: the vocabulary
 * matrix into tiles no larger than about a block, which zinf_model_join_tiles makes one.
 *
 * Threads: a model is read-only once nobody calls the functions that take it without const.
 */
#ifndef ZINF_MODEL_H
#define ZINF_MODEL_H

#include "base/base.h"
#include "base/json.h"
#include "model/graph.h"
#include "model/tensors.h"

/* ---- families ---- */

/* What callers may ask of a model besides its graph. */
struct zinf_model_facts {
    char family[24]; /* model_type */
    int64_t layers, hidden, heads, vocab, context;
    int64_t end_of_text;        /* eos_token_id, -1: none */
    enum zinf_dtype file_dtype; /* "dtype" of config.json; fp32 when absent */
    enum zinf_form form;        /* that weights of linear layers are stored in */
    bool quantized_file; /* the folder's weights have this form, as its quantization_config says */
};
/* What a family builds a graph from. */
struct zinf_family;
struct zinf_model_source {
    const struct zinf_family *family;
    const cJSON *config;
    const char *what;   /* names the configuration in messages */
    const char *folder; /* the folder with weights beside config.json; NULL: there is none */
    float dropout;      /* < 0: as the configuration says; else every rate that the family has */
    bool join_tiles;
    bool packed; /* samples come with segments */
    struct zinf_shards shards;
};
/* The head of a model. */
enum zinf_model_head {
    ZINF_HEAD_USUAL,  /* for the next token or, of encoders, for classes of samples */
    ZINF_HEAD_MASKED, /* for masked tokens */
    ZINF_HEAD_NONE,   /* none: the rows of a sample make its embedding */
    ZINF_HEAD_TOKENS, /* of a decoder: for the next token */
};
/* The sizes of a new model, as `zinf init` is asked for them. */
struct zinf_model_shape {
    const char *arch, *size;
    int64_t layers, hidden, heads, vocab, context; /* 0: that of the named size */
    /* Used by zinf_family_sizes: if not NULL, make_config only writes here the names of the sizes
     * that there are, and makes nothing. */
    char *sizes;
    size_t sizes_bytes;
};
struct zinf_family {
    const char *model_type;
    const char *architecture;  /* in "architectures" */
    const char *prefix;        /* what transformers puts in front of names */
    const char *module_prefix; /* the prefix in names of adapters, if it is another; NULL: prefix */
    const char *layers_key;    /* the configuration's key of the number of blocks */
    const void *traits;        /* data for build and make_config that several families share */
    bool no_classes;           /* a decoder that has no published head for classes of samples */
    bool masks;                /* an encoder with a head for masked tokens */
    /* Appends the whole model to the graph, and fills in facts except family and file_dtype. */
    int (*build)(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source);
    /* Adds to config.json of a new model all but model_type, architectures and dtype. */
    int (*make_config)(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape);
    /* Patterns as of fnmatch(3) of tensors that files may have and that are neither read nor
     * written. */
    const char *ignored[8];
};
const struct zinf_family *zinf_family_find(const char *model_type); /* NULL: unknown */
const struct zinf_family *zinf_family_default(void); /* that of `zinf init` without --arch */
const char *zinf_family_names(void); /* with commas; valid until this thread's next call */
/* number i of all families; NULL: there are no more */
const struct zinf_family *zinf_family_at(size_t i);
/* Writes the names of the published sizes, with ", " between them, to buffer and returns it. */
const char *zinf_family_sizes(const struct zinf_family *family, char *buffer, size_t bytes);
/* The part of a tensor's name in a file that follows the family's prefix. */
const char *zinf_family_bare_name(const struct zinf_family *family, const char *name);

/* ---- a model ---- */

struct zinf_model;
/* Makes a model from a configuration; config_path is a config.json or a folder with one. `what`
 * names it in messages. The document is kept as it was read, with keys that are not known here, so
 * that it can be written out again. The caller closes the model. */
int zinf_model_open(struct zinf_model **out, const char *config_path);
int zinf_model_from_json(struct zinf_model **out, const cJSON *config, const char *what);
void zinf_model_close(struct zinf_model *model);
/* Each of these replaces the graph, so call them before you use it. join_tiles: the vocabulary
 * matrix becomes one tile, for an optimizer that needs whole tensors. set_dropout: p becomes every
 * dropout rate that the family has. set_packed: samples may have several documents, or padding, by
 * the input ZINF_INPUT_SEGMENTS (graph.h); models that read both ways always have this input. */
int zinf_model_join_tiles(struct zinf_model *model);
int zinf_model_set_dropout(struct zinf_model *model, float p);
int zinf_model_set_packed(struct zinf_model *model);
/* Tensor parallelism: cuts every matrix of the blocks, and the vocabulary, into shards (graph.h);
 * the graph then has those that `shards` asks for. -ENOTSUP: the family, or something else that was
 * chosen, cannot be cut. -EINVAL: a size is no multiple of the number of shards. */
int zinf_model_set_shards(struct zinf_model *model, const struct zinf_shards *shards);
/* Pipeline parallelism: the graph becomes that of one rank's stages; call it after everything else
 * is chosen. zinf_model_stages still returns all stages. -ENOMEM */
int zinf_model_set_ranges(struct zinf_model *model, const struct zinf_ranges *ranges);
/* Other places for a unit's tensors in its flat buffer: offsets [tensors of the unit], in elements;
 * graph.h says what they must be. They apply to the graph and to ranges that are taken from it
 * afterwards. */
struct zinf_unit_places {
    const uint64_t *offsets;
    uint64_t decay_elems, elems;
};
void zinf_model_place_unit(struct zinf_model *model, uint32_t unit,
                           const struct zinf_unit_places *places);
/* Divides the stages into layers: the embedding, each block, and what follows the blocks. first
 * [n_stages + 1]: the first stage of each layer, then n_stages. Returns the number of layers. */
uint32_t zinf_model_layers(const struct zinf_model *model, uint32_t *first);
/* Freezes the model and stores the weights of linear layers in this form. */
int zinf_model_quantize(struct zinf_model *model, enum zinf_form form);
/* Freezes the model and adds the low-rank adapters that config asks for, a document in the form of
 * PEFT's adapter_config.json (adapter.h); `what` names it in messages. Later calls of this group
 * keep the adapters. */
int zinf_model_adapt(struct zinf_model *model, const cJSON *config, const char *what);
/* Freezes the tensors that patterns over names choose (freeze.h), and splits units of which only a
 * part is trained. Later calls keep this, too. Not to be combined with adapters. */
int zinf_model_freeze(struct zinf_model *model, const cJSON *patterns, const char *what);
/* The loss becomes one of pairs of samples, a preferred one and another (kernels/loss.h). It is
 * made from the losses of tokens or, for REWARD, from one number a sample. -ENOTSUP: the model has
 * no such losses or numbers, or no reference model where the kind needs one. */
struct zinf_model_preference {
    enum zinf_preference_kind kind;
    float beta, margin, smoothing, center, desirable, undesirable;
    /* The reference model's losses come with the batch; else the model without its adapters is the
     * reference. */
    bool given;
    /* Sequences come in chunks: a stage tells the losses of each one's tokens, or its score, and
     * gets back their gradients (ZINF_INPUT_PULLS). Whoever runs it makes the pairs' loss of them,
     * which needs all chunks of two sequences and more. */
    bool in_chunks;
};
int zinf_model_set_preference(struct zinf_model *model,
                              const struct zinf_model_preference *preference);
/* NULL: the model is not trained on pairs. */
const struct zinf_model_preference *zinf_model_preference(const struct zinf_model *model);
/* Gives the model a head for these classes, or for one number, in place of what config.json says;
 * the document is changed to say so, and to name an architecture with that head. Names are copied.
 * -ENOTSUP: the family has no such head. */
struct zinf_model_classes {
    const char *const *names; /* [n]; NULL: LABEL_0, LABEL_1, ... */
    int64_t n;                /* at least 2; 1 for a number */
    bool number;              /* one number a sample */
};
int zinf_model_set_classes(struct zinf_model *model, const struct zinf_model_classes *classes);
/* Gives the model another head than config.json says; the document is changed to say so. USUAL:
 * changes nothing. -ENOTSUP: the family has no such head. */
int zinf_model_set_head(struct zinf_model *model, enum zinf_model_head head);
/* Replaces *model by the same one with n blocks; the first one is closed. */
int zinf_model_set_layers(struct zinf_model **model, int64_t n);

const struct zinf_graph *zinf_model_graph(const struct zinf_model *model);
/* The graph with the stages of all pipeline ranks; values and units have the same numbers. */
const struct zinf_graph *zinf_model_stages(const struct zinf_model *model);
/* The graph with all shards and all stages; units have the same numbers. */
const struct zinf_graph *zinf_model_whole(const struct zinf_model *model);
const struct zinf_model_facts *zinf_model_facts(const struct zinf_model *model);
const struct zinf_family *zinf_model_family(const struct zinf_model *model);
const cJSON *zinf_model_config(const struct zinf_model *model);
/* Whether the configuration says that the folder has a head for classes. */
bool zinf_model_classifies(const struct zinf_model *model);
enum zinf_model_head zinf_model_head(const struct zinf_model *model);
/* Whether a tensor, by its name without the family's prefix, belongs to a head for classes that
 * this model does not read, since it has another head. */
bool zinf_model_drops(const struct zinf_model *model, const char *name);
/* The name of a class by its number; NULL: it has none. Borrowed from the configuration. */
const char *zinf_model_class_name(const struct zinf_model *model, int64_t number);
const char *zinf_config_class_name(const cJSON *config, int64_t number);
uint64_t zinf_model_n_params(const struct zinf_model *model);  /* without gaps; tied once */
uint64_t zinf_model_n_trained(const struct zinf_model *model); /* the trained ones of these */

/* ---- adapters: folders with adapter_config.json and adapter_model.safetensors, as PEFT's ---- */

#define ZINF_ADAPTER_WEIGHTS "adapter_model.safetensors"
#define ZINF_ADAPTER_CONFIG "adapter_config.json"
#define ZINF_ADAPTER_PATH 128 /* bytes of a module's path, with the final zero */
#define ZINF_ADAPTER_NAME 192 /* bytes of a tensor's name in an adapter's file */

/* Which matrix of a module a tensor of an adapter's file is, by its name; `path` becomes the
 * module's. zinf_adapter_matrix_name goes back: it writes the tensor's name to name and returns it.
 */
enum zinf_adapter_matrix {
    ZINF_ADAPTER_OTHER, /* a magnitude, or a copy of a base tensor: path is not changed */
    ZINF_ADAPTER_A,     /* [rank][in] */
    ZINF_ADAPTER_B,     /* [out][rank] */
};
enum zinf_adapter_matrix zinf_adapter_matrix_of(const char *name, char path[ZINF_ADAPTER_PATH]);
const char *zinf_adapter_matrix_name(enum zinf_adapter_matrix which, const char *path,
                                     char name[ZINF_ADAPTER_NAME]);
/* The rank and scale that a document in the form of adapter_config.json gives to a module, without
 * a model. Errors are those of zinf_model_adapt. */
struct adapter_choice;
int zinf_adapter_choice_open(struct adapter_choice **out, const cJSON *config, const char *what);
int zinf_adapter_choice_module(struct adapter_choice *choice, const char *path, int64_t *rank,
                               double *scale);
void zinf_adapter_choice_close(struct adapter_choice *choice);

/* *out: the adapter_config.json of a folder; the caller frees it. -ENOENT: the folder has none. */
int zinf_adapter_read_config(const char *folder, cJSON **out);
/* For the name of a piece that is of_base (graph.h): writes the name of the base model's tensor,
 * with the family's prefix, to buffer and returns it. */
const char *zinf_adapter_base_name(char buffer[160], const char *name);
/* *out: the adapter_config.json that PEFT would write for an adapted model; base: the folder of its
 * weights. The caller frees it. */
int zinf_model_adapter_config(const struct zinf_model *model, const char *base, cJSON **out);
/* Compares the model's adapters with those that another document asks for, except for dropout.
 * -EINVAL: they differ; the message names the first difference. */
int zinf_model_compare_adapter(const struct zinf_model *model, const cJSON *config,
                               const char *what);

/* ---- new models ---- */

/* Fills out with the initial values of n elements of a piece's tensor from `first` on, which are
 * counted in the order of the whole tensor in the file. They do not depend on how tensors are cut.
 */
void zinf_tensor_init_fill(const struct zinf_tensor *tensor, const struct zinf_piece *piece,
                           uint64_t seed, uint64_t first, uint64_t n, float *out);
/* *out: a configuration for `zinf init`; the caller frees it with cJSON_Delete. */
int zinf_model_make_config(const struct zinf_model_shape *shape, enum zinf_dtype dtype,
                           cJSON **out);

#endif
