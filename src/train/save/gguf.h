/*
 * gguf: a model folder as a file of llama.cpp's, with keys, names of tensors and the tokenizer as
 * its own converter writes them. Inside gguf_*.c only.
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
    GGUF_LEFT_OUT,
};
struct gguf_family;
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
int64_t gguf_integer(const cJSON *config, const char *const *keys, int64_t otherwise);

#endif
