/*
 * products: the library algorithm by which a device makes each product. Algorithms differ in speed
 * and in the last bits of their sums. So a choice belongs to a training: one rank's device makes
 * it once, it is saved, and the devices of all ranks get it.
 */
#ifndef ZINF_PRODUCTS_H
#define ZINF_PRODUCTS_H

#include <stdbool.h>
#include <stdint.h>

/* A product of one shape. The numbers have a meaning for the device alone; equal products are equal
 * as bytes. */
struct zinf_product {
    int64_t key[16];
    uint64_t way[8]; /* the algorithm, as the library describes it */
    int64_t chosen;  /* 1: way is valid; 0: not timed yet */
};

/* On the heap; the caller frees items. */
struct zinf_products {
    struct zinf_product *items;
    uint32_t n, room;
    /* products of weights' gradients are added to sums by the product itself
     * (zinf_matmul.adds_after) */
    bool adds;
};

#endif
