/*
 * matrix_ranks: a *meeting* of the ranks along TENSOR in the update of a segment that has parts of
 * matrices they share. Each gives its parts of every matrix to the rank that makes that matrix'
 * update (setup_updaters.c), which is then computed there alone, and gets the update of its parts
 * back: two exchanges for all matrices of a segment. So each update is made once, with the bits
 * that one rank has which has all parts.
 *
 * A part is a message that says itself where its rows are in the file's matrix. What a rank gives
 * lies in sections, one for each rank that it gives to, and comes back to its place; behind the
 * sections are the others' parts of what this rank updates. Parts that several ranks have are given
 * by each: they are the same.
 */
#ifndef ZINF_TRAIN_MATRIX_RANKS_H
#define ZINF_TRAIN_MATRIX_RANKS_H

#include "train/rules/matrix.h"

struct meeting {
    const struct zinf_axis *axis;
    char *memory;
    uint64_t sections[ZINF_MOST_SHARDS]; /* [ranks]: bytes of a rank's parts of what each updates */
};
struct meeting meeting_of(const struct rule_step *s);
/* Whether the segment has a matrix that ranks share. */
bool meeting_is_held(const struct meeting *m);
/* Bytes of a rank's parts of a matrix, of which this is the unit's first piece. */
uint64_t meeting_message_bytes(const struct zinf_unit *unit, uint32_t tensor, uint32_t piece);
/* Fills this rank's messages of a matrix. */
int meeting_give(struct matrix *x);
/* Exchanges the messages; back: they return to whom they are from. */
int meeting_trade(const struct meeting *m, bool back);
/* For the rank that makes the update: fills whole [rows][cols] from all ranks' parts, and writes
 * the update of these into the messages. -EBADMSG: the parts are of another matrix. */
int meeting_gather(const struct matrix *x, float *whole);
void meeting_return(const struct matrix *x, float *update, double rate, double decay);
/* Updates this rank's parts by what has returned. */
int meeting_take(struct matrix *x);

#endif
