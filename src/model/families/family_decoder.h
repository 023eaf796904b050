/*
 * family_decoder: what the files of families of decoders share beside family.h: the counts of
 * config.json, whose keys differ, lists of a block's tensors, the way from a decoder to a graph,
 * and new configurations from a table of published sizes.
 */
#ifndef ZINF_FAMILY_DECODER_H
#define ZINF_FAMILY_DECODER_H

#include "model/decoder.h"
#include "model/families/family.h"

struct family_counts {
    int64_t layers, hidden, heads;
    int64_t kv_heads; /* 0: as many as heads */
    int64_t head_dim; /* 0: hidden / heads */
    int64_t ffn;      /* 0: 4 hidden */
    int64_t vocab, context;
};
/* What a configuration calls them, in this order; NULL: it has no such key. */
struct family_keys {
    const char *layers, *hidden, *heads, *kv_heads, *head_dim, *ffn, *vocab, *context;
};
/* A published size. */
struct family_size {
    const char *name;
    struct family_counts counts;
    const char *more; /* what else its configuration has, as a JSON object; NULL: nothing */
};
#define FAMILY_SIZES(list) .sizes = list, .n_sizes = sizeof list / sizeof *list

/* A zinf_family's traits, for the calls below. */
struct family_traits {
    struct family_keys keys;
    struct family_keys other;        /* what some files call them; keys come first */
    struct family_counts absent;     /* of keys that are not there */
    const char *only;                /* keys that change the model and the one value of each that is
                                      * supported, as a JSON object */
    const char *always;              /* what every new configuration has, as a JSON object */
    const char *in_proportion[2];    /* further numbers of a size that follow its width; or NULL */
    const struct family_size *sizes; /* the first is made when nobody says */
    size_t n_sizes;
};

/* ---- reading ---- */

/* The counts; refuses what `only` refuses. d is zeroed before. Attention has the usual scale. */
int family_read_counts(const struct zinf_model_source *source, struct decoder *d);
/* Norms of this kind, their epsilon under this key; eps: where it is absent. */
int family_read_norms(const struct zinf_model_source *source, struct decoder *d,
                      enum zinf_norm_kind kind, const char *key, double eps);
/* The deviation of fresh weights. */
int family_read_init(const struct zinf_model_source *source, struct decoder *d, const char *key,
                     double std);
/* A dropout, unless the caller of the model gives one. */
int family_read_dropout(const struct zinf_model_source *source, const char *key, double usual,
                        float *out);
/* The token of padding, whose row of the table transformers gives no gradient from the lookup, from
 * "pad_token_id"; usual: of a configuration without the key, -1: none. A negative number counts
 * from the vocabulary's end; beyond it there is none. The vocabulary's size must be known. */
int family_read_padding(const struct zinf_model_source *source, struct decoder *d, int64_t usual);
/* attention.window from "sliding_window"; null: none. */
int family_read_window(const struct zinf_model_source *source, struct decoder *d, int64_t usual);
/* d->windowed by "layer_types"; without the key, all but every `pattern`th layer has a window.
 * whole_last: the last one has none in any case. */
int family_read_layer_types(struct zinf_graph *graph, const struct zinf_model_source *source,
                            struct decoder *d, int64_t pattern, bool whole_last);
/* attention.slopes of ALiBi, times scale. */
int family_make_slopes(struct zinf_graph *graph, struct decoder *d, double scale);

/* ---- tensors of a block ---- */

struct family_list {
    struct decoder_tensor items[32];
    size_t n;
    float std; /* of the matrices that are added */
};
void family_add_matrix(struct family_list *list, enum decoder_place place, const char *name,
                       int64_t rows, int64_t cols);
void family_add_vector(struct family_list *list, enum decoder_place place, const char *name,
                       int64_t rows, enum zinf_init init);
/* The file has what was added last by key and value head: its queries, its key, its value. */
void family_list_is_grouped(struct family_list *list);
/* Rows of queries, keys and values together. */
int64_t family_qkv_rows(const struct decoder *d);

/* Where the configuration is that of a folder with a head for classes, d is a decoder for them,
 * whose samples always come with segments. -ENOTSUP: the family has no such head. */
int family_read_classes(const struct zinf_model_source *source, struct decoder *d);
void family_tell(struct zinf_model_facts *facts, const struct zinf_model_source *source,
                 const struct decoder *d, int64_t end_of_text);
/* Facts, then the graph; list holds the block's tensors. end_of_text: where no key says it. */
int family_finish(struct zinf_graph *graph, struct zinf_model_facts *facts,
                  const struct zinf_model_source *source, struct decoder *d,
                  const struct family_list *list, int64_t end_of_text);

/* ---- new models ---- */

/* make_config of a family with family_traits. Numbers that the caller gives replace those of the
 * size; what depends on them follows in proportion. */
int family_make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape);

#endif
