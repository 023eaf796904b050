/*
 * leading: the singular vectors of a matrix with the largest singular values. The bits of the
 * result depend on the matrix only, not on the number of threads or on placement.
 */
#ifndef ZINF_TRAIN_RULES_LEADING_H
#define ZINF_TRAIN_RULES_LEADING_H

#include "train/rules/matrix.h"

#define LEADING_MOST_ITERATIONS 30

struct leading {
    const struct setup *setup;
    struct zinf_queue *queue;
    const float *x; /* [rows][cols] */
    uint64_t rows, cols;
    bool right; /* right singular vectors, of cols numbers each; else left ones, of rows numbers */
    uint64_t rank; /* how many vectors; at most cols or rows */
    /* [rank][cols or rows], by falling singular values; the sign of each is such that its number of
     * largest magnitude is positive */
    float *out;
    void *workspace; /* of leading_bytes, followed by leading_products_bytes */
};

uint64_t leading_bytes(const struct leading *l);
uint64_t leading_products_bytes(const struct leading *l);
/* What a search takes if no iteration is spared. */
struct rule_work leading_work(const struct leading *l);
/* Computes the vectors. The queue's workspace must be set to the memory for products. */
int leading_find(const struct leading *l);

#endif
