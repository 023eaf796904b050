/*
 * decode: continues sequences whose keys and values a trainer caches. The trainer must be made with
 * a decode shape (zinf_trainer_options). generate.h uses this to make texts.
 *
 * Threads and errors as in train.h.
 */
#ifndef ZINF_DECODE_H
#define ZINF_DECODE_H

#include "train/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The new tokens of a call, which continue cached sequences. Each row is the token at the next
 * position of a sequence; position 0 begins the sequence anew. The call computes
 * logits [n_logits][vocab] of the last n_logits rows, at most one row a sequence. */
struct zinf_decode_rows {
    const int32_t *ids, *sequences, *positions; /* [n] */
    int64_t n, n_logits;
    /* For an encoder-decoder. sources: the number of the source that each row's sequence reads,
     * which must come with this call or an earlier one. source_ids, source_numbers: the tokens of
     * sources that come with this call, and the number of each token's source. A source comes
     * whole, in one call, its tokens in order. */
    const int32_t *sources;                     /* [n] */
    const int32_t *source_ids, *source_numbers; /* [n_source] */
    int64_t n_source;
};
/* The trainer's decode shape. NULL: it has none and takes whole sequences. */
const struct zinf_decode_shape *zinf_trainer_decode_shape(const struct zinf_trainer *trainer);
int zinf_trainer_decode(struct zinf_trainer *trainer, const struct zinf_decode_rows *rows,
                        float *logits);
/* Copies the cache of sequence `from` to sequence `to`, so that it can be continued twice. The
 * sources that they read are not copied. */
int zinf_trainer_copy_sequence(struct zinf_trainer *trainer, int64_t to, int64_t from);

#ifdef __cplusplus
}
#endif
#endif
