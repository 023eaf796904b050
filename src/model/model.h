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

/* What callers want to know of a model beside its graph. */
struct zinf_model_facts {
    char family[24]; /* model_type */
    int64_t layers, hidden, heads, vocab, context;
    int64_t end_of_text;        /* eos_token_id, -1: none */
    enum zinf_dtype file_dtype; /* "dtype" of config.json; fp32 when absent */
    enum zinf_form form;        /* of linear layers' weights */
    bool quantized_file;        /* the folder has them so: its quantization_config says it */
};
/* What a family builds from. */
struct zinf_family;
struct zinf_model_source {
    const struct zinf_family *family;
    const cJSON *config;
    const char *what;   /* names it in messages */
    const char *folder; /* with weights beside config.json; NULL: there is none */
    float dropout;      /* < 0: as the configuration says; else wherever the family has one */
    bool join_tiles;
    bool packed; /* samples come with segments */
    struct zinf_shards shards;
};
/* What a model ends in. */
enum zinf_model_head {
    ZINF_HEAD_USUAL,  /* of the tokens to come, or, of encoders, of classes of samples */
    ZINF_HEAD_MASKED, /* of the tokens that are masked */
    ZINF_HEAD_NONE,   /* a sample's rows themselves, which make its embedding */
    ZINF_HEAD_TOKENS, /* of a decoder: of the tokens to come */
};
/* What `zinf init` is asked for. */
struct zinf_model_shape {
    const char *arch, *size;
    int64_t layers, hidden, heads, vocab, context; /* 0: of the size */
    /* zinf_family_sizes asks what sizes there are: their names are written here, and nothing is
     * made. NULL: something is. */
    char *sizes;
    size_t sizes_bytes;
};
struct zinf_family {
    const char *model_type;
    const char *architecture;  /* in "architectures" */
    const char *prefix;        /* that transformers puts before names */
    const char *module_prefix; /* in names of adapters, which are the class's; NULL: prefix */
    const char *layers_key;    /* of the configuration: the number of blocks */
    const void *traits;        /* what build and make_config look up, where families share them */
    bool no_classes;           /* a decoder that has no published head for classes of samples */
    bool masks;                /* an encoder with a head for masked tokens */
    /* Appends all of the model to the graph; fills facts but family and file_dtype. */
    int (*build)(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source);
    /* Adds what config.json says of a new model beside model_type, architectures and dtype. */
    int (*make_config)(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape);
    /* Names, as fnmatch(3) has patterns, that files carry and that are neither read nor written. */
    const char *ignored[8];
};
const struct zinf_family *zinf_family_find(const char *model_type); /* NULL: unknown */
const struct zinf_family *zinf_family_default(void); /* of `zinf init` without --arch */
const char *zinf_family_names(void);                 /* with commas; this thread's, till the next */
const struct zinf_family *zinf_family_at(size_t i);  /* of all, in turn; NULL behind the last */
/* The names of the published sizes, with ", " between them, into buffer (returned). */
const char *zinf_family_sizes(const struct zinf_family *family, char *buffer, size_t bytes);
/* A tensor's name in a file without the family's prefix. */
const char *zinf_family_bare_name(const struct zinf_family *family, const char *name);

/* ---- a model ---- */

struct zinf_model;
/* config_path: a config.json or a folder with one. The document stays as it was read, so that it
 * can be written out again with unknown keys untouched. */
int zinf_model_open(struct zinf_model **out, const char *config_path);
int zinf_model_from_json(struct zinf_model **out, const cJSON *config, const char *what);
void zinf_model_close(struct zinf_model *model);
/* Each of these replaces the graph, before it is looked at: the vocabulary matrix as one tile, for
 * an optimizer that needs whole tensors; every dropout rate that the family has; samples of several
 * documents, or padded ones, by the input ZINF_INPUT_SEGMENTS (graph.h), which models that read
 * both ways always have. */
int zinf_model_join_tiles(struct zinf_model *model);
int zinf_model_set_dropout(struct zinf_model *model, float p);
int zinf_model_set_packed(struct zinf_model *model);
/* Cuts every matrix of the blocks, and the vocabulary, into shards (graph.h) and keeps those that
 * the graph is to have. -ENOTSUP where the family, or what else was chosen, cannot be cut; -EINVAL
 * where numbers do not divide. */
int zinf_model_set_shards(struct zinf_model *model, const struct zinf_shards *shards);
/* Of a pipeline: the graph becomes that of the stages of one rank, once all else is chosen.
 * zinf_model_stages goes on having all. -ENOMEM */
int zinf_model_set_ranges(struct zinf_model *model, const struct zinf_ranges *ranges);
/* Other places for a unit's tensors in its flat buffer: offsets [its tensors], of which graph.h
 * says what they must be. For all graphs, ranges included, that are made from then on. */
struct zinf_unit_places {
    const uint64_t *offsets;
    uint64_t decay_elems, elems;
};
void zinf_model_place_unit(struct zinf_model *model, uint32_t unit,
                           const struct zinf_unit_places *places);
/* Layers, as people count them: the embedding, each block, what comes behind them. first
 * [n_stages + 1]: the stage that each begins with, and n_stages behind the last. Returns how many.
 */
uint32_t zinf_model_layers(const struct zinf_model *model, uint32_t *first);
/* Freezes the model; weights of linear layers are stored in this form. */
int zinf_model_quantize(struct zinf_model *model, enum zinf_form form);
/* Freezes the model and adds low-rank adapters, as a document in the form of PEFT's
 * adapter_config.json chooses them (adapter.h); what names it in messages. All further calls of
 * this group keep them. */
int zinf_model_adapt(struct zinf_model *model, const cJSON *config, const char *what);
/* Freezes what patterns over names of tensors choose (freeze.h), and splits units that are trained
 * in parts; kept as adapters are, which are for frozen models and not beside this. */
int zinf_model_freeze(struct zinf_model *model, const cJSON *patterns, const char *what);
/* The loss of pairs of samples, a preferred one and another (kernels/loss.h), in place of that of
 * tokens, or of REWARD that of one number a sample. -ENOTSUP: the model has none of those, or no
 * reference where the kind has one. */
struct zinf_model_preference {
    enum zinf_preference_kind kind;
    float beta, margin, smoothing, center, desirable, undesirable;
    /* What the reference says of samples comes with the batch, instead of from the model without
     * its adapters. */
    bool given;
};
int zinf_model_set_preference(struct zinf_model *model,
                              const struct zinf_model_preference *preference);
/* NULL: samples come alone. */
const struct zinf_model_preference *zinf_model_preference(const struct zinf_model *model);
/* What samples are told apart by, instead of what config.json says; the document then says this,
 * and an architecture for it. Names are copied. -ENOTSUP: the family has no head for it. */
struct zinf_model_classes {
    const char *const *names; /* [n]; NULL: LABEL_0, LABEL_1, ... */
    int64_t n;                /* from 2 on; of a number 1 */
    bool number;              /* one number a sample */
};
int zinf_model_set_classes(struct zinf_model *model, const struct zinf_model_classes *classes);
/* Another head than config.json says; the document then says this. USUAL: as it is. -ENOTSUP: the
 * family has none such. */
int zinf_model_set_head(struct zinf_model *model, enum zinf_model_head head);
/* The same model with n blocks: *model is replaced. */
int zinf_model_set_layers(struct zinf_model **model, int64_t n);

const struct zinf_graph *zinf_model_graph(const struct zinf_model *model);
/* With all stages, whichever of them the graph has; values and units have the same numbers. */
const struct zinf_graph *zinf_model_stages(const struct zinf_model *model);
/* With all shards and stages, whichever of them the graph has; units have the same numbers. */
const struct zinf_graph *zinf_model_whole(const struct zinf_model *model);
const struct zinf_model_facts *zinf_model_facts(const struct zinf_model *model);
const struct zinf_family *zinf_model_family(const struct zinf_model *model);
const cJSON *zinf_model_config(const struct zinf_model *model);
/* Whether the configuration is that of a folder with a head for classes. */
bool zinf_model_classifies(const struct zinf_model *model);
enum zinf_model_head zinf_model_head(const struct zinf_model *model);
/* Whether a tensor without the family's prefix is of a head for classes, which a model with another
 * one does not read. */
bool zinf_model_drops(const struct zinf_model *model, const char *name);
/* The name of a class by its number; NULL: it has none. Borrowed from the configuration. */
const char *zinf_model_class_name(const struct zinf_model *model, int64_t number);
uint64_t zinf_model_n_params(const struct zinf_model *model);  /* without gaps; tied once */
uint64_t zinf_model_n_trained(const struct zinf_model *model); /* of these */

/* ---- adapters: folders with adapter_config.json and adapter_model.safetensors, as PEFT's ---- */

#define ZINF_ADAPTER_WEIGHTS "adapter_model.safetensors"
#define ZINF_ADAPTER_CONFIG "adapter_config.json"
#define ZINF_ADAPTER_PATH 128 /* of a module, with its end */
#define ZINF_ADAPTER_NAME 192 /* of a tensor in an adapter's file */

/* Which of a module's matrices a tensor of an adapter's file is, and the module's path. */
enum zinf_adapter_matrix {
    ZINF_ADAPTER_OTHER, /* a magnitude, or a copy: path is left alone */
    ZINF_ADAPTER_A,     /* [rank][in] */
    ZINF_ADAPTER_B,     /* [out][rank] */
};
enum zinf_adapter_matrix zinf_adapter_matrix_of(const char *name, char path[ZINF_ADAPTER_PATH]);
const char *zinf_adapter_matrix_name(enum zinf_adapter_matrix which, const char *path,
                                     char name[ZINF_ADAPTER_NAME]);
/* What a document in the form of adapter_config.json has for a module that it wants; errors as of
 * zinf_model_adapt. */
struct adapter_choice;
int zinf_adapter_choice_open(struct adapter_choice **out, const cJSON *config, const char *what);
int zinf_adapter_choice_module(struct adapter_choice *choice, const char *path, int64_t *rank,
                               double *scale);
void zinf_adapter_choice_close(struct adapter_choice *choice);

/* A folder's document: caller frees. -ENOENT: it is no adapter's. */
int zinf_adapter_read_config(const char *folder, cJSON **out);
/* Of a piece that is of_base (graph.h), by its name: that of the base's tensor, with the family's
 * prefix, into buffer (returned). */
const char *zinf_adapter_base_name(char buffer[160], const char *name);
/* What PEFT would write for an adapted model; base: the folder of its weights. Caller frees. */
int zinf_model_adapter_config(const struct zinf_model *model, const char *base, cJSON **out);
/* The model's adapters against another document: -EINVAL names the first key that differs and is
 * no dropout. */
int zinf_model_compare_adapter(const struct zinf_model *model, const cJSON *config,
                               const char *what);

/* ---- new models ---- */

/* fp32 values of elements of a piece of the tensor by the family's initialisation; the same
 * whatever the cut. Elements are counted in the order of the whole tensor in the file. */
void zinf_tensor_init_fill(const struct zinf_tensor *tensor, const struct zinf_piece *piece,
                           uint64_t seed, uint64_t first, uint64_t n, float *out);
/* A configuration for `zinf init`: caller frees with cJSON_Delete. */
int zinf_model_make_config(const struct zinf_model_shape *shape, enum zinf_dtype dtype,
                           cJSON **out);

#endif
