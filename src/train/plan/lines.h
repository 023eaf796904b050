/*
 * lines: what the files that make a plan share. A *line* is an amount of memory of a tier with a
 * name and a place; a plan's lines follow from its setup and amounts. Inside this folder only.
 */
#ifndef ZINF_TRAIN_LINES_H
#define ZINF_TRAIN_LINES_H

#include "train/plan/plan.h"

struct plan_line {
    enum zinf_memory_tier tier;
    const char *name, *hint;
    uint64_t bytes;
    uint64_t *offset;
};
struct plan_lines {
    struct plan_line *line; /* grown as lines come; free() ends it */
    int n, capacity;
};
/* Appends a line. */
int plan_line(struct plan_lines *l, enum zinf_memory_tier tier, const char *name, const char *hint,
              uint64_t bytes, uint64_t *offset);

/* plan_places.c: what does not depend on lines. Sizes of things that no amount changes. */
void plan_measure(struct plan *p);
/* plan_slots.c: of those, the sizes of slots of parameters. */
void plan_measure_slots(struct plan *p);
/* Every unit's home by the amounts, and what the homes take on each tier. */
void plan_set_places(struct plan *p, const struct amounts *c);
void plan_place_bytes(const struct plan *p, uint64_t bytes[ZINF_MEMORY_TIERS]);
/* Of the model's own files, where they are read in place. */
uint64_t plan_files_bytes(const struct plan *p);
/* RAM for the checksums of so many bytes on a drive. */
uint64_t plan_sums_bytes(const struct plan *p, uint64_t bytes);
/* Of one gradient on its way to or from its sum, on the host; 0: none takes that way. */
uint64_t plan_grad_staging_bytes(const struct plan *p);
/* Sub-groups whose updates go through tiles of host memory. */
int plan_n_tile_groups(const struct plan *p);

/* plan_lines.c: sets the homes, and the lines of everything else. */
int plan_collect(struct plan *p, const struct amounts *c, struct plan_lines *lines);
bool plan_fits(struct plan *p, const struct amounts *c);

/* What operations take of RAM, where they have a line; bytes 0: they have none. */
struct plan_operations {
    uint64_t bytes;
    bool one_by_one; /* as in struct plan */
};
/* plan.c: plan_make, with a line for these. */
int plan_lay_out(struct plan *out, const struct setup *setup, const struct variant *variant,
                 const struct plan_operations *operations);

/* plan_choose.c: fills p->amounts and the homes by the budgets. */
int plan_choose(struct plan *p);

#endif
