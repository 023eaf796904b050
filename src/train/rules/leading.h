/*
 * leading: the singular vectors of a matrix with the largest singular values. Bits depend on the
 * matrix alone: no library's number of threads, no placement.
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
    bool right;    /* vectors of cols numbers, else of rows */
    uint64_t rank; /* at most that number */
    float *out;    /* [rank][cols or rows], by falling singular values; the largest number of each,
                    * in magnitude, is positive */
    void *workspace; /* of leading_bytes, and behind it what products need */
};

uint64_t leading_bytes(const struct leading *l);
uint64_t leading_products_bytes(const struct leading *l);
/* Products' memory is the queue's. 0 or -errno. */
int leading_find(const struct leading *l);

#endif
