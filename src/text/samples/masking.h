/*
 * masking: chooses the tokens of a sample that an encoder is to predict, and replaces them: eight
 * in ten by the mask token, one in ten by another token of the vocabulary; one in ten stays (Devlin
 * et al., arXiv 1810.04805). The choice is a function of the seed, the epoch and the sample alone,
 * so it is the same on every rank and device. Every epoch has other masks. An evaluation has one
 * epoch, and so the same masks each time.
 *
 * Threads: read-only after opening.
 */
#ifndef ZINF_MASKING_H
#define ZINF_MASKING_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct zinf_tokenizer;
#define ZINF_MASKING_SPECIAL 8
struct zinf_masking {
    double probability; /* that a token is masked, special ones aside; 0: no masking */
    uint64_t seed;
    int32_t mask;                          /* the mask token */
    uint32_t vocab;                        /* random tokens are drawn from the ids below it */
    int32_t special[ZINF_MASKING_SPECIAL]; /* tokens that are never masked */
    int n_special;
};
/* folder: the tokenizer's folder, whose configuration names the special tokens. -EINVAL: the
 * tokenizer has no mask token. */
int zinf_masking_open(struct zinf_masking *out, const struct zinf_tokenizer *tokenizer,
                      const char *folder, double probability, uint64_t seed);

struct zinf_masked {
    uint64_t epoch, sample;
    uint32_t n;
    const uint8_t *marks; /* [n], the sample's (samples.h): only tokens that count are masked; NULL:
                           * all may be */
    int32_t *ids;         /* [n], changed in place */
    int32_t *targets;     /* [n], written: the id that was masked, else -1 */
};
void zinf_masking_apply(const struct zinf_masking *masking, const struct zinf_masked *masked);
/* A cache key that also depends on the settings of the masking; key itself without masking. */
uint64_t zinf_masking_key(const struct zinf_masking *masking, uint64_t key);

#ifdef __cplusplus
}
#endif
#endif
