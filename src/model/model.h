/*
 * model: families as data. A config.json becomes a *spec* (numbers and choices), and a spec
 * becomes *units*: sets of tensors that move together, each one contiguous flat buffer. The
 * forward and backward of a unit are written once, over the spec, with the operations of kernels.
 * Knows nothing of drives or tiers; whoever calls has put the unit's buffer on the device.
 *
 * A new decoder family is one file family_<name>.c with a struct zinf_family, listed in family.c.
 *
 * Units, in the order in which the forward pass needs them:
 *   table tiles   rows [first, first + count) of the vocabulary matrix; used by lookup and head
 *   position      the learned position table
 *   blocks        one per layer
 *   final         the final norm
 * The vocabulary matrix is cut into tiles no larger than about a block, by the spec alone, so that
 * results do not depend on any budget. zinf_model_join_tiles makes it one.
 *
 * Threads: a model is read-only after zinf_model_open. The compute functions enqueue on the queue
 * that they are given, in the caller's thread.
 */
#ifndef ZINF_MODEL_H
#define ZINF_MODEL_H

#include "base/base.h"
#include "base/json.h"
#include "kernels/kernels.h"
#include "model/graph.h"
#include "model/tensors.h"

struct zinf_model_spec {
    char family[24]; /* model_type */
    int64_t n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab, context;
    enum zinf_norm_kind norm;
    float norm_eps;
    enum zinf_activation activation;
    float attention_scale;       /* before the per-layer factor */
    bool scale_by_inverse_layer; /* further / (layer + 1) */
    bool tied_head;
    float embedding_dropout, residual_dropout, attention_dropout;
    float init_std;
    int64_t tile_rows;          /* vocabulary rows per tile */
    int64_t end_of_text;        /* eos_token_id, -1: none */
    enum zinf_dtype file_dtype; /* "dtype" of config.json; fp32 when absent */
};

/* Places of a block; a family says which it has. Weights are [out][in]. */
enum zinf_role {
    ZINF_ROLE_QKV_W,  /* [(n_heads + 2 n_kv_heads) head_dim][hidden]: rows q, k, v */
    ZINF_ROLE_PROJ_W, /* [hidden][n_heads head_dim] */
    ZINF_ROLE_UP_W,   /* [ffn][hidden] */
    ZINF_ROLE_DOWN_W, /* [hidden][ffn] */
    ZINF_ROLE_NORM1_W,
    ZINF_ROLE_NORM1_B,
    ZINF_ROLE_QKV_B,
    ZINF_ROLE_PROJ_B,
    ZINF_ROLE_NORM2_W,
    ZINF_ROLE_NORM2_B,
    ZINF_ROLE_UP_B,
    ZINF_ROLE_DOWN_B,
    ZINF_ROLE_TABLE, /* [tile rows][hidden]; outside blocks, as the next three */
    ZINF_ROLE_POSITION,
    ZINF_ROLE_FINAL_W,
    ZINF_ROLE_FINAL_B,
    ZINF_ROLES,
};
struct zinf_tensor_spec {
    char name[80]; /* in the file, without the family's prefix */
    enum zinf_role role;
    int rank;
    uint64_t shape[2];  /* of the whole tensor in the file */
    bool transposed;    /* the file has [in][out] */
    uint64_t first_row; /* table tiles: rows [first_row, first_row + n_rows) of the file's tensor */
    uint64_t n_rows;
    bool decay; /* weight decay applies */
    enum zinf_init init;
    float init_std;
    uint64_t offset; /* elements from the start of the unit's flat buffer */
    uint64_t elems;  /* of this unit's part */
};
enum zinf_unit_kind {
    ZINF_UNIT_TABLE,
    ZINF_UNIT_POSITION,
    ZINF_UNIT_BLOCK,
    ZINF_UNIT_FINAL,
};
#define ZINF_UNIT_MAX_TENSORS 16
/* Tensors with decay come first, so the flat buffer is [0, decay_elems) with decay, the rest
 * without. Each tensor starts at a multiple of 64 elements, and decay_elems is one of 256; the gaps
 * are zero and stay zero. */
struct zinf_unit_spec {
    char name[32]; /* "table.0", "block.3", ... */
    enum zinf_unit_kind kind;
    int64_t index; /* tile or layer number */
    int n_tensors;
    struct zinf_tensor_spec tensors[ZINF_UNIT_MAX_TENSORS];
    uint64_t elems;
    uint64_t decay_elems;
    int64_t offset_of[ZINF_ROLES]; /* elements, or -1 */
};

/* What callers want to know of a model beside its graph. */
struct zinf_model_facts {
    char family[24]; /* model_type */
    int64_t layers, hidden, heads, vocab, context;
    int64_t end_of_text;        /* eos_token_id, -1: none */
    enum zinf_dtype file_dtype; /* "dtype" of config.json; fp32 when absent */
};
/* What a family builds from. */
struct zinf_model_source {
    const cJSON *config;
    const char *what; /* names it in messages */
    float dropout;    /* < 0: as the configuration says; else of every place */
    bool join_tiles;
};
struct zinf_model_shape {
    const char *arch, *size;
    int64_t layers, hidden, heads, vocab, context; /* 0: of the size */
};

struct zinf_model;
struct zinf_family {
    const char *model_type;
    const char *architecture; /* in "architectures" */
    const char *prefix;       /* that transformers puts before names */
    const char *layers_key;   /* of the configuration: the number of blocks */
    /* Appends all of the model to the graph; fills facts but family and file_dtype. */
    int (*build)(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source);
    /* Adds what config.json says of a new model beside model_type, architectures and dtype. */
    int (*make_config)(cJSON *config, const struct zinf_model_shape *shape);
    /* Until src/train reads graphs: */
    int (*read_config)(const cJSON *config, const char *what, struct zinf_model_spec *spec);
    /* Fills unit->tensors for kind and index: all but offsets. */
    void (*describe_unit)(const struct zinf_model_spec *spec, struct zinf_unit_spec *unit);
    /* Names that old files carry and that are neither read nor written: 1 if name is one. */
    int (*ignores)(const char *name);
};
const struct zinf_family *zinf_family_find(const char *model_type); /* NULL: unknown */
const char *zinf_family_names(void);                                /* "gpt2, ..." */
/* A tensor's name in a file without the family's prefix. */
const char *zinf_family_bare_name(const struct zinf_family *family, const char *name);
const struct zinf_family *zinf_family_default(void); /* of `zinf init` without --arch */

/* ---- a model ---- */

/* config_path: a config.json or a folder with one. The document stays as it was read, so that it
 * can be written out again with unknown keys untouched. */
int zinf_model_open(struct zinf_model **out, const char *config_path);
int zinf_model_from_json(struct zinf_model **out, const cJSON *config, const char *what);
/* Makes the vocabulary matrix one tile, for an optimizer that needs whole tensors; before the units
 * are looked at. A tile's slot is larger then. */
int zinf_model_join_tiles(struct zinf_model *model);
/* The same model with n blocks: *model is replaced. */
int zinf_model_set_layers(struct zinf_model **model, int64_t n);
/* Replaces every dropout rate; before the graph is looked at. */
int zinf_model_set_dropout(struct zinf_model *model, float p);
void zinf_model_close(struct zinf_model *model);
const struct zinf_graph *zinf_model_graph(const struct zinf_model *model);
const struct zinf_model_facts *zinf_model_facts(const struct zinf_model *model);
const struct zinf_model_spec *zinf_model_spec(const struct zinf_model *model);
const struct zinf_family *zinf_model_family(const struct zinf_model *model);
const cJSON *zinf_model_config(const struct zinf_model *model);
int zinf_model_n_units(const struct zinf_model *model);
const struct zinf_unit_spec *zinf_model_unit(const struct zinf_model *model, int unit);
int zinf_model_n_tiles(const struct zinf_model *model); /* units [0, n_tiles) are the tiles */
int zinf_model_first_block(const struct zinf_model *model);
uint64_t zinf_model_n_params(const struct zinf_model *model); /* without gaps; tied once */
/* fp32 values of elements of a piece of the tensor by the family's initialisation; the same
 * whatever the cut. Elements are counted in the order of the whole tensor in the file. */
void zinf_tensor_init_fill(const struct zinf_tensor *tensor, const struct zinf_piece *piece,
                           uint64_t seed, uint64_t first, uint64_t n, float *out);
/* As above, of the old description. */
void zinf_model_init_fill(const struct zinf_model *model, const struct zinf_tensor_spec *tensor,
                          uint64_t seed, uint64_t first, uint64_t n, float *out);
/* A configuration for `zinf init`: caller frees with cJSON_Delete. */
int zinf_model_make_config(const struct zinf_model_shape *shape, enum zinf_dtype dtype,
                           cJSON **out);

/* ---- compute: N = batch * seq rows ---- */

/* Who computes: one micro-batch on one queue. */
struct zinf_gpt2_compute {
    const struct zinf_device *device;
    struct zinf_queue *queue;
    const struct zinf_model_spec *spec;
    enum zinf_dtype dtype; /* of parameters and activations */
    int64_t batch, seq;
    bool train; /* dropout on */
    uint64_t seed;
    uint32_t step;
    uint64_t first_sample; /* index of the micro-batch's first sample in the step's batch */
};

/* Activations of one block, all on the device. x_in is the checkpoint; the group "kept" is what
 * backward reads; it is either kept from forward or recomputed. */
struct zinf_block_kept {
    void *qkv;                            /* [N][(n_heads + 2 n_kv_heads) head_dim] */
    float *lse;                           /* [batch][n_heads][seq] */
    void *attention;                      /* [N][n_heads head_dim] */
    void *x_mid;                          /* [N][hidden] */
    void *up;                             /* [N][ffn], before the activation */
    float *mean1, *rstd1, *mean2, *rstd2; /* [N] */
};
/* Scratch shared by all blocks. */
struct zinf_block_scratch {
    void *norm;     /* [N][hidden] */
    void *act;      /* [N][ffn] */
    void *branch;   /* [N][hidden] */
    void *d_wide;   /* [N][max(ffn, qkv columns)]; backward only, as d_branch */
    void *d_branch; /* [N][hidden] */
};
/* Bytes, laid out from base (may be NULL to measure): sets the pointers, returns the size. */
uint64_t zinf_block_kept_layout(const struct zinf_gpt2_compute *c, void *base,
                                struct zinf_block_kept *kept);
uint64_t zinf_block_scratch_layout(const struct zinf_gpt2_compute *c, void *base,
                                   struct zinf_block_scratch *scratch, bool backward);
/* Largest workspace that any operation of the model needs on this device. */
uint64_t zinf_model_workspace(const struct zinf_gpt2_compute *c, const struct zinf_model *model,
                              int64_t head_rows, bool backward);
double zinf_block_flops(const struct zinf_gpt2_compute *c); /* forward; backward is twice this */

/* x_out = block(x_in); weights: the unit's flat buffer. x_out NULL: only recompute kept. */
int zinf_block_forward(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                       const void *weights, const void *x_in, void *x_out,
                       const struct zinf_block_kept *kept, const struct zinf_block_scratch *s);
/* d_x [N][hidden] holds the gradient of x_out and receives that of x_in. grads: fp32 flat buffer,
 * overwritten, gaps zero. */
int zinf_block_backward(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                        const void *weights, float *grads, const void *x_in, void *d_x,
                        const struct zinf_block_kept *kept, const struct zinf_block_scratch *s);

/* Embedding: x [N][hidden] from token tiles, in order of tiles, then positions, then dropout. */
int zinf_embed_tile(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                    const void *weights, const int32_t *ids, void *x);
int zinf_embed_position(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                        const void *weights, const int32_t *positions, void *x);
/* d_x is masked in place by the embedding's dropout; call once before the two below, which
 * overwrite grads, or with add, add the rows to them in order. */
int zinf_embed_dropout_backward(const struct zinf_gpt2_compute *c, void *d_x);
int zinf_embed_tile_backward(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                             float *grads, const int32_t *ids, const void *d_x, bool add);
int zinf_embed_position_backward(const struct zinf_gpt2_compute *c,
                                 const struct zinf_unit_spec *unit, float *grads,
                                 const int32_t *positions, const void *d_x, bool add);

/* Final norm and head. Rows are worked in chunks of head_rows; tiles in order. */
struct zinf_head {
    int64_t head_rows;  /* rows of one chunk: fixed by the model and the micro-batch */
    void *norm;         /* [N][hidden] */
    float *mean, *rstd; /* [N] */
    float *max, *sum, *target_logit, *loss; /* [N] */
    float *logits;                          /* [n_resident tiles or 1][head_rows][tile_rows] */
    float *d_norm;                          /* [N][hidden] fp32 */
    const int32_t *targets;                 /* [N] on the device */
    float scale;                            /* of the gradient: loss scale / tokens of the step */
};
int64_t zinf_head_rows(const struct zinf_model_spec *spec, int64_t rows);
uint64_t zinf_head_layout(const struct zinf_gpt2_compute *c, void *base, struct zinf_head *head,
                          int64_t logits_tiles, bool backward);
int zinf_head_norm(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *final,
                   const void *weights, const void *x, const struct zinf_head *head);
int zinf_head_start(const struct zinf_gpt2_compute *c, const struct zinf_head *head);
int zinf_head_tile(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *tile,
                   const void *weights, const struct zinf_head *head);
int zinf_head_finish(const struct zinf_gpt2_compute *c, const struct zinf_head *head);
int zinf_head_tile_backward(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *tile,
                            const void *weights, float *grads, const struct zinf_head *head,
                            bool first_tile);
/* All tiles at once, chunk by chunk, each logit computed once: the same bits as the calls above.
 * weights[t], grads[t] for every tile; grads NULL: loss only. */
int zinf_head_all(const struct zinf_gpt2_compute *c, const struct zinf_model *model,
                  const void *const *weights, float *const *grads, const struct zinf_head *head);
/* d_x [N][hidden] receives the gradient at the final norm's input; grads of the final unit. */
int zinf_head_norm_backward(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *final,
                            const void *weights, float *grads, const void *x, void *d_x,
                            const struct zinf_head *head);
/* Logits of one row for every id of a tile, into head->logits. */
int zinf_head_row_logits(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *tile,
                         const void *weights, int64_t row, const struct zinf_head *head);

#endif
