/*
 * masking: which tokens of a sample an encoder is to foretell, and what stands there instead: the
 * mask for eight in ten, another token of the vocabulary for one, itself for one (Devlin et al.,
 * arXiv 1810.04805). What is masked is a function of the seed, the epoch and the sample, whoever
 * computes with it: every epoch has other masks, and an evaluation, which has one epoch, the same
 * each time.
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
    double probability; /* of each token that may be masked; 0: nothing is */
    uint64_t seed;
    int32_t mask;                          /* the token that stands for those that are masked */
    uint32_t vocab;                        /* other tokens are drawn below it */
    int32_t special[ZINF_MASKING_SPECIAL]; /* never masked */
    int n_special;
};
/* folder: of the tokenizer, whose configuration names its special tokens. -EINVAL: none of them is
 * the mask. */
int zinf_masking_open(struct zinf_masking *out, const struct zinf_tokenizer *tokenizer,
                      const char *folder, double probability, uint64_t seed);

struct zinf_masked {
    uint64_t epoch, sample;
    uint32_t n;
    const uint8_t
        *marks;       /* [n], of a sample (samples.h): only what counts may be masked; or NULL */
    int32_t *ids;     /* [n], in place */
    int32_t *targets; /* [n], written: the id that was masked, else -1 */
};
void zinf_masking_apply(const struct zinf_masking *masking, const struct zinf_masked *masked);
/* key, changed by what decides about masks; key itself where nothing is masked. */
uint64_t zinf_masking_key(const struct zinf_masking *masking, uint64_t key);

#ifdef __cplusplus
}
#endif
#endif
