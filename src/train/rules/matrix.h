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

struct matrix;

/* What a rule makes of a matrix. fill: writes what the update is found from, of a part, to out, as
 * [rows][cols] of its part_shape; of a matrix that is not in parts also the sums of squares of its
 * rows to sums, if the rule has given these to rule_matrix_gather. It may change moments of the
 * part's elements. step: gathers the parts, finds the update, and applies it. */
struct matrix_rule {
    void (*fill)(const struct matrix *x, const struct matrix_part *part, float *out, double *sums);
    int (*step)(struct matrix *x);
};

struct matrix {
    const struct matrix_rule *rule;
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
    /* updater: the rank along TENSOR that makes the update, or EVERY_RANK. Else it is made in a
     * meeting (matrix_ranks.h), and the parts are `message` bytes into what each rank gives. */
    uint32_t updater;
    const struct meeting *meeting;
    uint64_t message;
};

/* Makes the step of each of the segment's matrices, together with the ranks that share some.
 * -ERANGE: a gradient is not finite; then nothing has been changed, nor has this rank met others.
 */
int rule_each_matrix(const struct rule_step *s, const struct matrix_rule *rule);

/* ---- parts ---- */

/* A part in the unit's buffer, whose order may be [in][out]. */
struct part_shape {
    uint64_t rows, cols;
};
struct part_shape rule_part_shape(const struct matrix *x, const struct matrix_part *part);
/* The index of the first element of row i of the part, among the sub-group's elements. */
uint64_t rule_part_at(const struct matrix *x, const struct matrix_part *part, uint64_t i);

/* Rows of a part, [n][width] from row `first` on, and their places in the whole matrix,
 * [...][cols]: they are copied there, or out of it. turned: a row of the part is a column of the
 * matrix. */
struct part_copy {
    const struct zinf_row_map *map;
    uint64_t first, n, width, cols;
    bool turned, out;
    float *whole, *rows;
    int threads;
};
void rule_copy_part(const struct part_copy *c);
/* Of all rows of a part of this rank, into the whole matrix. */
struct part_copy rule_part_copy(const struct matrix *x, const struct matrix_part *part,
                                float *whole, float *rows);

/* Fills `whole` from all parts of the matrix. whole, room: [rows][cols] of the matrix; room is
 * overwritten if there are several. sums: [rows], for matrix_rule.fill, or NULL. */
int rule_matrix_gather(const struct matrix *x, float *whole, float *room, double *sums);
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
 * overwritten. Ranks that share the matrix are given the update of their parts. */
int rule_matrix_apply(const struct matrix *x, float *update, float *room, double rate,
                      double decay);
/* Updates this rank's parts alone, which are all. */
int rule_parts_apply(const struct matrix *x, float *update, float *room, double rate, double decay);
/* Updates one of this rank's parts. update: [rows][cols] of its part_shape; zeros: as large, and
 * overwritten. */
int rule_part_apply(const struct matrix *x, const struct matrix_part *part, const float *update,
                    float *zeros, double rate, double decay);

#endif
