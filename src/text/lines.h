/*
 * lines: checksums of the lines of a text file, made while it is read. Comparing them with those
 * of a later reading tells which lines have changed. A file of up to ZINF_LINE_SUMS lines has a
 * checksum for each line; in longer files one covers several consecutive lines. Of a compressed
 * file the lines of its content count.
 *
 * Threads: an object belongs to one thread while it is made, and is read-only afterwards.
 */
#ifndef ZINF_LINES_H
#define ZINF_LINES_H

#include "base/base.h"

#define ZINF_LINE_SUMS 1024 /* a power of two */

struct zinf_lines {
    uint64_t count;                /* lines; the last may have no end */
    uint64_t per_sum;              /* lines in each sum but the last, a power of two */
    uint32_t sums[ZINF_LINE_SUMS]; /* the first (count + per_sum - 1) / per_sum of them */
};

/* ---- making ---- */

struct zinf_line_summer;
int zinf_line_summer_create(struct zinf_line_summer **out);
void zinf_line_summer_destroy(struct zinf_line_summer *summer);
void zinf_line_summer_add(struct zinf_line_summer *summer, const void *text, size_t bytes);
/* Ends the text. */
void zinf_line_summer_end(struct zinf_line_summer *summer, struct zinf_lines *out);

/* Reads a whole file, decompressed as data sets do. */
int zinf_lines_of_file(const char *path, struct zinf_lines *out);

/* ---- using ---- */

static inline uint64_t zinf_lines_n_sums(const struct zinf_lines *lines)
{
    return (lines->count + lines->per_sum - 1) / lines->per_sum;
}
/* Whether the texts differ. Then the first change is in lines *first to *last, counted from 1. */
bool zinf_lines_differ(const struct zinf_lines *then, const struct zinf_lines *now, uint64_t *first,
                       uint64_t *last);

#endif
