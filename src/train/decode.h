/*
 * decode: a trainer that continues sequences, whose keys and values it remembers: one that was made
 * with a decode shape (zinf_trainer_options). generate.h makes texts of it.
 *
 * Threads and errors as in train.h.
 */
#ifndef ZINF_DECODE_H
#define ZINF_DECODE_H

#include "train/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* New tokens of sequences whose keys and values are remembered: each of one sequence, in its order,
 * at the next position; position 0 begins the sequence anew. Logits [n_logits][vocab] of the last
 * rows, at most one a sequence. */
struct zinf_decode_rows {
    const int32_t *ids, *sequences, *positions; /* [n] */
    int64_t n, n_logits;
    /* Of an encoder-decoder: the number of the source that each row's sequence reads, one that has
     * come with this call or an earlier one; and the tokens of those that come with this one, in
     * their order, each source's together: it is whole then. */
    const int32_t *sources;                     /* [n] */
    const int32_t *source_ids, *source_numbers; /* [n_source] */
    int64_t n_source;
};
/* NULL: the trainer takes whole sequences. */
const struct zinf_decode_shape *zinf_trainer_decode_shape(const struct zinf_trainer *trainer);
int zinf_trainer_decode(struct zinf_trainer *trainer, const struct zinf_decode_rows *rows,
                        float *logits);
/* What is remembered of a sequence, to be continued twice: another one becomes the same. */
int zinf_trainer_copy_sequence(struct zinf_trainer *trainer, int64_t to, int64_t from);

#ifdef __cplusplus
}
#endif
#endif
