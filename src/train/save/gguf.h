/*
 * gguf: converts a model folder to a file of llama.cpp, with keys, names of tensors and the
 * tokenizer as llama.cpp's own converter writes them, and such a file to a model folder. Inside
 * gguf_*.c only.
 */
#ifndef ZINF_TRAIN_GGUF_H
#define ZINF_TRAIN_GGUF_H

#include "base/json.h"
#include "formats/formats.h"

/* gguf_vocab.c: adds the keys of the folder's tokenizer and chat template. n_vocab: the model's. */
int gguf_add_vocab(struct zinf_gguf_writer *writer, const char *folder, const cJSON *config,
                   uint64_t n_vocab);

/* ---- gguf_family.c ---- */

/* How a tensor changes when it is converted. */
enum gguf_change {
    GGUF_AS_IT_IS,
    GGUF_TURNED,    /* the matrix is transposed */
    GGUF_ROTATED_Q, /* rows of each head are reordered for rotary embeddings: halves become pairs */
    GGUF_ROTATED_K,
    GGUF_PLUS_ONE, /* a norm's weight: llama.cpp stores 1 + weight */
    GGUF_FLAT,     /* the shape [out][1][in] becomes [out][in] */
    GGUF_LEFT_OUT,
};
struct gguf_part {
    const char *ours, *theirs; /* without .weight or .bias */
    enum gguf_change change;   /* of the weight; GGUF_ROTATED also of the bias */
};
enum {
    KEY_VOCAB = 1,     /* vocab_size and rope.dimension_count */
    KEY_HEAD_DIM = 2,  /* key and value length, even if they are the usual ones */
    KEY_SOFTCAPS = 4,  /* soft caps of attention and of logits */
    KEY_WINDOW = 8,    /* sliding_window, 0: none */
    KEY_NO_ROPE = 16,  /* no keys of rotary embeddings */
    KEY_PHI = 32,      /* rope.dimension_count and the original context length */
    KEY_IS_GPT2 = 64,  /* the feed-forward length is four times the width */
    KEY_FACTORS = 128, /* LLaMA 3's rotary frequency factors as a tensor */
    KEY_CONVS = 256,   /* layers of short convolutions, which have 0 key and value heads */
};
struct gguf_family {
    const char *type, *architecture;
    const struct gguf_part *layer, *rest;
    const char *layers; /* prefix of the names of layers' tensors */
    unsigned keys;
};
/* Finds the family of config.json's model_type. -ENOTSUP: the message lists the families. */
int gguf_family_find(const struct gguf_family **out, const cJSON *config);
void gguf_add_parameters(struct zinf_gguf_writer *writer, const struct gguf_family *family,
                         const cJSON *config);
/* Adds tokenizer keys that depend on the family. settings: tokenizer_config.json, or NULL. */
void gguf_add_of_tokenizer(struct zinf_gguf_writer *writer, const cJSON *config,
                           const cJSON *settings);
/* Returns the number of factors of rotary frequencies that llama.cpp wants as a tensor, or 0. *out:
 * the factors; the caller frees them. */
uint64_t gguf_rope_factors(const struct gguf_family *family, const cJSON *config, float **out);
/* Finds llama.cpp's name of one of the folder's tensors. -ENOTSUP: it has none. */
int gguf_name(const struct gguf_family *family, const char *name, char out[96],
              enum gguf_change *change);
/* The inverse: finds the family of llama.cpp's architecture. path: the file, for messages. */
int gguf_family_of(const struct gguf_family **out, const char *path, const char *architecture);
/* Finds the folder's name of one of llama.cpp's tensors. false: it has none. */
bool gguf_model_name(const struct gguf_family *family, const char *name, char out[160],
                     enum gguf_change *change);
int64_t gguf_integer(const cJSON *config, const char *const *keys, int64_t otherwise);
/* For families with short convolutions: the tensor whose number of rows is the feed-forward width.
 */
#define GGUF_CONVS_UP "blk.0.ffn_up.weight"

/* ---- gguf_tokenizer.c ---- */

/* Writes the tokenizer and chat template from a file's keys into a model folder. */
int gguf_write_tokenizer(const char *folder, const char *path, const cJSON *keys);

#endif
