/*
 * regions: the parts of the packed images in a drive's file, so that damage can aim at each of them
 * and be counted by it. An image is one of a sub-group's parameters, state or gradient
 * (src/train/rules/packed.c), in which arrays are images of their own (cpu_optim/pack.h).
 */
#ifndef ZINF_TESTS_FAULTS_REGIONS_H
#define ZINF_TESTS_FAULTS_REGIONS_H

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum region_thing {
    REGION_PARAM,
    REGION_STATE,  /* of a sub-group, its arrays aside */
    REGION_MASTER, /* what is packed in a state before its moments */
    REGION_FIRST,  /* moments: the last but one, if there are two, and the last */
    REGION_SECOND,
    REGION_GRAD,
    REGION_THINGS,
};
enum region_part {
    REGION_LENGTHS, /* the head of a sub-group's image, and those of its arrays */
    REGION_WIDTHS,  /* an array's table of blocks */
    REGION_SUMS,
    REGION_PAYLOAD,
    REGION_PLAIN, /* arrays beside the packed ones */
    REGION_PARTS,
};
static const char *const region_things[] = {"parameters", "state",    "masters",
                                            "moment 1",   "moment 2", "gradient"};
static const char *const region_parts[] = {"lengths", "widths", "sums", "payload", "plain"};

struct image_part {
    enum region_thing thing;
    enum region_part part;
    uint64_t first, bytes;
};
static struct image_part *regions;
static int n_regions, region_moments = 2; /* packed arrays at the end of a state; set by the user */

static inline void region_add(int thing, int part, uint64_t first, uint64_t end)
{
    if (end <= first)
        return;
    regions = realloc(regions, ((size_t)n_regions + 1) * sizeof *regions);
    regions[n_regions++] =
        (struct image_part){(enum region_thing)thing, (enum region_part)part, first, end - first};
}

static inline uint64_t region_number(const char *at)
{
    uint64_t n;
    memcpy(&n, at, sizeof n);
    return n;
}

/* Bytes of the array's image at `at` of data; 0: there is none. */
static inline uint64_t region_image(const char *data, uint64_t at, uint64_t end)
{
    uint64_t bytes = 0;
    if (at + 64 <= end && !memcmp(data + at, "zinfpack", 8))
        bytes = region_number(data + at + 24);
    return bytes <= end - at ? bytes : 0;
}

static inline void region_add_image(int thing, const char *data, uint64_t at, uint64_t bytes)
{
    const uint64_t n_blocks = (region_number(data + at + 16) + 511) / 512;
    const uint64_t table = at + 64, sums = zinf_align_up(table + 4 * n_blocks, 8);
    const uint64_t sums_end = sums + (n_blocks + 63) / 64 * 8;
    region_add(thing, REGION_LENGTHS, at, table);
    region_add(thing, REGION_WIDTHS, table, sums);
    region_add(thing, REGION_SUMS, sums, sums_end);
    region_add(thing, REGION_PAYLOAD, zinf_align_up(sums_end, 64), at + bytes);
}

/* What is packed of a sub-group, from a page on. */
static inline void region_add_group(int thing, const char *data, uint64_t first, uint64_t end)
{
    uint64_t at = first + 64, bytes;
    int n = 0, i = 0;
    for (; (bytes = region_image(data, at, end)); at = zinf_align_up(at + bytes, 64))
        n++;
    const uint64_t plain = at;
    region_add(thing, REGION_LENGTHS, first, first + 64);
    for (at = first + 64; (bytes = region_image(data, at, end)); i++) {
        const int from_end = n - 1 - i;
        const int moment = from_end ? REGION_FIRST : REGION_SECOND;
        const bool is_moment = from_end < region_moments;
        const int which = is_moment && region_moments > 1 ? moment : REGION_FIRST;
        region_add_image(thing == REGION_STATE ? is_moment ? which : REGION_MASTER : thing, data,
                         at, bytes);
        at = zinf_align_up(at + bytes, 64);
    }
    region_add(thing, REGION_PLAIN, plain, end);
}

/* Of a file of extents; none of any other. */
static inline void regions_find(const char *path)
{
    static const char magics[][9] = {"zinfpara", "zinfslot", "zinfgrad"};
    static const int things[] = {REGION_PARAM, REGION_STATE, REGION_GRAD};
    char *data = NULL;
    size_t bytes = 0;
    n_regions = 0;
    if (!strstr(path, "/extents") || zinf_file_read(path, 1 << 26, &data, &bytes))
        return;
    for (uint64_t at = 0; at + 4096 <= bytes; at += 4096)
        for (int i = 0; i < 3; i++) {
            const uint64_t long_ =
                memcmp(data + at, magics[i], 8) ? 0 : region_number(data + at + 16);
            if (long_ && long_ <= bytes - at)
                region_add_group(things[i], data, at, at + long_);
        }
    free(data);
}

static inline bool region_meets(const struct image_part *r, uint64_t first, uint64_t n)
{
    return first < r->first + r->bytes && r->first < first + n;
}

#endif
