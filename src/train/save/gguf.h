/*
 * gguf: a model folder as a file of llama.cpp's, with keys, names of tensors and the tokenizer as
 * its own converter writes them; and such a file as a model folder. Inside gguf_*.c only.
 */
#ifndef ZINF_TRAIN_GGUF_H
#define ZINF_TRAIN_GGUF_H

#include "base/json.h"
#include "formats/formats.h"

/* gguf_vocab.c: the keys of the folder's tokenizer and its chat template. n_vocab: of the model. */
int gguf_add_vocab(struct zinf_gguf_writer *writer, const char *folder, const cJSON *config,
                   uint64_t n_vocab);

/* ---- gguf_family.c ---- */

/* What of a tensor changes on its way. */
enum gguf_change {
    GGUF_AS_IT_IS,
    GGUF_TURNED,    /* a matrix is stored the other way around */
    GGUF_ROTATED_Q, /* rows of a head: halves become pairs */
    GGUF_ROTATED_K,
    GGUF_PLUS_ONE, /* a norm's gain is stored whole */
    GGUF_FLAT,     /* [out][1][in] is stored as a matrix */
    GGUF_LEFT_OUT,
};
struct gguf_part {
    const char *ours, *theirs; /* without .weight or .bias */
    enum gguf_change change;   /* of the weight; rotations also of the bias */
};
enum {
    KEY_VOCAB = 1,     /* vocab_size and rope.dimension_count */
    KEY_HEAD_DIM = 2,  /* key and value length, always */
    KEY_SOFTCAPS = 4,  /* of attention and of logits */
    KEY_WINDOW = 8,    /* sliding_window, 0: none */
    KEY_NO_ROPE = 16,  /* nothing of rotation */
    KEY_PHI = 32,      /* rope.dimension_count and the context before it was scaled */
    KEY_IS_GPT2 = 64,  /* four times the width */
    KEY_FACTORS = 128, /* LLaMA 3's frequencies as a tensor */
    KEY_CONVS = 256,   /* layers of short convolutions, with 0 heads for keys */
};
struct gguf_family {
    const char *type, *architecture;
    const struct gguf_part *layer, *rest;
    const char *layers; /* what their tensors begin with */
    unsigned keys;
};
/* By config.json's model_type; -ENOTSUP with the families that there are. */
int gguf_family_find(const struct gguf_family **out, const cJSON *config);
void gguf_add_parameters(struct zinf_gguf_writer *writer, const struct gguf_family *family,
                         const cJSON *config);
/* What the family alone says of its tokenizer; settings: tokenizer_config.json, or NULL. */
void gguf_add_of_tokenizer(struct zinf_gguf_writer *writer, const cJSON *config,
                           const cJSON *settings);
/* The factors of rotary frequencies that llama.cpp wants as a tensor (caller frees), or 0. */
uint64_t gguf_rope_factors(const struct gguf_family *family, const cJSON *config, float **out);
/* llama.cpp's name of a tensor of the folder. -ENOTSUP: it has none. */
int gguf_name(const struct gguf_family *family, const char *name, char out[96],
              enum gguf_change *change);
/* The other way: the family of llama.cpp's architecture; path names the file in messages. */
int gguf_family_of(const struct gguf_family **out, const char *path, const char *architecture);
/* The model's name of one of llama.cpp's tensors; false: it has none. */
bool gguf_model_name(const struct gguf_family *family, const char *name, char out[160],
                     enum gguf_change *change);
int64_t gguf_integer(const cJSON *config, const char *const *keys, int64_t otherwise);
/* Of families with short convolutions: the part whose rows are the feed-forward part's width. */
#define GGUF_CONVS_UP "blk.0.ffn_up.weight"

/* ---- gguf_tokenizer.c ---- */

/* Writes what a model folder has of its tokenizer and chat template, from a file's keys. */
int gguf_write_tokenizer(const char *folder, const char *path, const cJSON *keys);

#endif
