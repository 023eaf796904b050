/*
 * products: by which of its library's algorithms a device makes each product. Algorithms differ in
 * speed and in the last bits of their sums, so a choice belongs to a training: it is made once, by
 * one rank's device, kept, and given to the devices of all ranks.
 */
#ifndef ZINF_PRODUCTS_H
#define ZINF_PRODUCTS_H

#include <stdbool.h>
#include <stdint.h>

/* A product of one shape, of which the numbers are the device's own; equal ones are compared as
 * bytes. */
struct zinf_product {
    int64_t key[16];
    uint64_t way[8]; /* the algorithm, in the words of the library */
    int64_t chosen;  /* 1: way says it; 0: it is still to be timed */
};

/* On the heap; the caller frees items. */
struct zinf_products {
    struct zinf_product *items;
    uint32_t n, room;
    bool adds; /* gradients of weights are added to sums by their products (zinf_matmul.adds_after)
                */
};

#endif
