/* family_gemma: what the generations of Gemma share. */
#ifndef ZINF_FAMILY_GEMMA_H
#define ZINF_FAMILY_GEMMA_H

#include "model/families/family_rotary.h"

/* What differs between them in a block. */
struct gemma_block {
    bool bias;       /* of q, k, v and the projection back: the key attention_bias */
    bool sandwich;   /* norms in front of the parts and behind them */
    bool head_norms; /* of each query and key head */
};
/* All but positions, windows and what a generation has alone. Norm weights are 1 + w; the lookup is
 * scaled by the root of the hidden size. */
int gemma_read(const struct zinf_model_source *source, struct decoder *d,
               struct gemma_block *block);
/* The scale of the scores, from "query_pre_attn_scalar". */
int gemma_read_scale(const struct zinf_model_source *source, struct decoder *d);
/* A soft cap: *out 0 where it is null. */
int gemma_read_cap(const struct zinf_model_source *source, const char *key, double usual,
                   float *out);
void gemma_list(struct family_list *list, const struct decoder *d, const struct gemma_block *block);

#endif
