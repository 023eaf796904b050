/*
 * matrix: what rules over whole matrices have in common: the walk over a segment's matrices as the
 * model's files have them, their gradient row by row, what a rule keeps of a matrix beside moments,
 * and the last step, from an update to the parameters. Products are computed by the host in fp32;
 * their bits do not depend on the number of threads.
 */
#ifndef ZINF_TRAIN_RULES_MATRIX_H
#define ZINF_TRAIN_RULES_MATRIX_H

#include "train/rules/rules.h"
#include "train/setup_rates.h"

struct matrix {
    const struct rule_step *step;
    const struct zinf_tensor *tensor;
    const struct zinf_piece *piece;
    uint64_t rows, cols; /* [out][in], as it lies in the unit */
    float *kept;         /* what matrix_floats says, in the sub-group's state */
    struct zinf_queue *queue;
    double lr;
    float weight_decay;
};

/* Calls step for each of the segment's matrices. -ERANGE: a gradient is not finite; then nothing
 * has been changed. */
int rule_each_matrix(const struct rule_step *s, int (*step)(struct matrix *x));

/* Of the sub-group's elements, where row i of the matrix begins. */
uint64_t rule_matrix_at(const struct matrix *x, uint64_t i);
/* Memory for products, behind what the rule itself needs of its workspace. */
void rule_matrix_products(const struct matrix *x, uint64_t own_bytes, uint64_t bytes);

/* The matrix' shape in the file. */
static inline uint64_t matrix_file_rows(const struct matrix *x)
{
    return x->piece->transposed ? x->cols : x->rows;
}
static inline uint64_t matrix_file_cols(const struct matrix *x)
{
    return x->piece->transposed ? x->rows : x->cols;
}

/* C [m][n] of depth k in fp32; the caller sets operands, their strides and which are transposed. */
struct zinf_matmul rule_product(uint64_t m, uint64_t n, uint64_t k);
uint64_t rule_products_bytes(const struct setup *s, const struct zinf_matmul *all, int n);

/* p <- p (1 - decay) - rate u. update, zeros: [rows][cols], the second is overwritten. */
int rule_matrix_apply(const struct matrix *x, const float *update, float *zeros, double rate,
                      double decay);

#endif
