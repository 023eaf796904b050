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
    const struct zinf_tensor *tensor;
    const struct zinf_piece *piece;
    uint64_t rows, cols; /* [out][in], as in the unit's buffer */
    float *kept;         /* numbers kept beside moments (matrix_floats), in the sub-group's state */
    struct zinf_queue *queue;
    double lr;
    float weight_decay;
};

/* Calls step for each of the segment's matrices. -ERANGE: a gradient is not finite; then nothing
 * has been changed. */
int rule_each_matrix(const struct rule_step *s, int (*step)(struct matrix *x));

/* The index of the first element of row i of the matrix, among the sub-group's elements. */
uint64_t rule_matrix_at(const struct matrix *x, uint64_t i);
/* Gives the queue `bytes` of the workspace for products, behind the rule's own own_bytes. */
void rule_matrix_products(const struct matrix *x, uint64_t own_bytes, uint64_t bytes);

/* The matrix's shape in the file. */
static inline uint64_t matrix_file_rows(const struct matrix *x)
{
    return x->piece->transposed ? x->cols : x->rows;
}
static inline uint64_t matrix_file_cols(const struct matrix *x)
{
    return x->piece->transposed ? x->rows : x->cols;
}

/* rule_product describes the fp32 product C [m][n] of depth k; the caller sets operands, strides
 * and transpositions. rule_products_bytes: the memory that the largest of n products needs. */
struct zinf_matmul rule_product(uint64_t m, uint64_t n, uint64_t k);
uint64_t rule_products_bytes(const struct setup *s, const struct zinf_matmul *all, int n);

/* Of an element: rule_matrix_apply writes a zero, reads the update, and reads and writes the zero
 * as a moment. */
#define MATRIX_APPLY_BYTES 16

/* Updates the parameters: p <- p (1 - decay) - rate update. update, zeros: [rows][cols]; zeros is
 * overwritten. */
int rule_matrix_apply(const struct matrix *x, const float *update, float *zeros, double rate,
                      double decay);

#endif
