/*
 * matrix: what optimizers over whole matrices (Muon, GaLore, ...) have in common: the loop over a
 * segment's matrices as the model's files have them, the gradient row by row, what an optimizer
 * keeps of a matrix beside moments, and the last step, from an update to the parameters. The host
 * computes products in fp32; their bits do not depend on the number of threads.
 */
#ifndef ZINF_TRAIN_RULES_MATRIX_H
#define ZINF_TRAIN_RULES_MATRIX_H

#include "train/rules/rules.h"
#include "train/setup_rates.h"

struct matrix {
    const struct rule_step *step;
    const struct zinf_unit *unit;
    uint32_t tensor, piece_number;
    const struct zinf_piece *piece; /* the first, if it is in parts */
    uint64_t rows, cols;            /* as in struct matrix_shape */
    bool transposed, in_parts;
    float *kept; /* numbers kept beside moments (matrix_floats), in the sub-group's state */
    struct zinf_queue *queue;
    double lr;
    float weight_decay;
};

/* Calls step for each of the segment's matrices. -ERANGE: a gradient is not finite; then nothing
 * has been changed. */
int rule_each_matrix(const struct rule_step *s, int (*step)(struct matrix *x));

/* ---- parts ---- */

/* A part in the unit's buffer, whose order may be [in][out]. */
struct part_shape {
    uint64_t rows, cols;
};
struct part_shape rule_part_shape(const struct matrix *x, const struct matrix_part *part);
/* The index of the first element of row i of the part, among the sub-group's elements. */
uint64_t rule_part_at(const struct matrix *x, const struct matrix_part *part, uint64_t i);

/* fill writes a part's numbers to out, as [rows][cols] of its part_shape. whole, room: [rows][cols]
 * of the matrix. */
struct gathering {
    void (*fill)(const void *context, const struct matrix_part *part, float *out);
    const void *context;
    float *whole, *room;
};
/* Fills `whole` from all parts of the matrix. room is overwritten if there are several. */
void rule_matrix_gather(const struct matrix *x, const struct gathering *g);
/* What the ways of an element of a matrix in parts take beside the rest, there and back: it is
 * written, read, and written. MATRIX_PARTS_LOOP: in the loops of struct rule_work, as a block has
 * its matrices: 7 of 12 elements are in rows that are copied (0.74 ns), 5 in columns (4.3 ns). */
#define MATRIX_PARTS_BYTES 20
#define MATRIX_PARTS_LOOP 200

/* ---- products ---- */

/* Gives the queue `bytes` of the workspace for products, behind the rule's own own_bytes. */
void rule_matrix_products(const struct matrix *x, uint64_t own_bytes, uint64_t bytes);

/* The matrix's shape in the file. */
static inline uint64_t matrix_file_rows(const struct matrix *x)
{
    return x->transposed ? x->cols : x->rows;
}
static inline uint64_t matrix_file_cols(const struct matrix *x)
{
    return x->transposed ? x->rows : x->cols;
}

/* rule_product describes the fp32 product C [m][n] of depth k; the caller sets operands, strides
 * and transpositions. rule_products_bytes: the memory that the largest of n products needs. */
struct zinf_matmul rule_product(uint64_t m, uint64_t n, uint64_t k);
uint64_t rule_products_bytes(const struct setup *s, const struct zinf_matmul *all, int n);

/* Of an element: rule_matrix_apply writes a zero, reads the update, and reads and writes the zero
 * as a moment. */
#define MATRIX_APPLY_BYTES 16

/* Updates the parameters: p <- p (1 - decay) - rate update. update, room: [rows][cols]; room is
 * overwritten. */
int rule_matrix_apply(const struct matrix *x, float *update, float *room, double rate,
                      double decay);

#endif
