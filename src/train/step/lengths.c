/*
 * lengths: what is left of an operation's work where a step's samples are shorter than the longest
 * that the program was made for. Places and order stay; frames go by the rows that there are
 * (trainer_set_lengths), and so does what is moved of values between stages.
 */
#include "train/trainer.h"

/* Rows of a value, of those that the program was made for. */
static double rows_share(const struct zinf_trainer *t, enum zinf_rows_of rows_of)
{
    const struct zinf_compute *now = &t->compute, *most = &t->setup.compute;
    return rows_of == ZINF_ROWS_OF_SAMPLE   ? 1
           : rows_of == ZINF_ROWS_OF_SOURCE ? (double)now->source_seq / (double)most->source_seq
                                            : (double)now->seq / (double)most->seq;
}

bool trainer_is_shorter(const struct zinf_trainer *t)
{
    return t->compute.seq < t->setup.seq || t->compute.source_seq < t->setup.source_seq;
}

uint64_t trainer_moved(void *context, const struct zinf_op *op)
{
    const struct zinf_trainer *t = context;
    if (!(op->flags & OP_VALUE))
        return op->bytes;
    const struct zinf_value *value = &t->setup.graph->values[op->arg];
    const uint64_t bytes = zinf_align_up(zinf_value_bytes(&t->compute, value), ZINF_MEMORY_ALIGN);
    return bytes < op->bytes ? bytes : op->bytes;
}

/* Attention falls faster than its rows, which is let be: it is the smaller part of a block. */
double trainer_share(void *context, const struct zinf_op *op)
{
    const struct zinf_trainer *t = context;
    if (!trainer_is_shorter(t))
        return 1;
    if (op->kind < OP_STAGES)
        return op->bytes ? (double)trainer_moved(context, op) / (double)op->bytes : 1;
    const struct zinf_stage *stage = &t->setup.graph->stages[op->stage];
    return rows_share(t, t->setup.graph->values[stage->out.at[0]].rows_of);
}
