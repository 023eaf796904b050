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
    struct plan_line *line; /* grows as lines are added; the caller frees it with free() */
    int n, capacity;
};
/* Appends a line. */
int plan_line(struct plan_lines *l, enum zinf_memory_tier tier, const char *name, const char *hint,
              uint64_t bytes, uint64_t *offset);

/* plan_places.c: what does not depend on lines. Computes the sizes that do not depend on amounts.
 */
void plan_measure(struct plan *p);
/* plan_slots.c: called by plan_measure for the sizes of parameter slots. */
void plan_measure_slots(struct plan *p);
/* plan_set_places chooses every unit's home from the amounts; plan_place_bytes adds up the bytes of
 * the homes on each tier. */
void plan_set_places(struct plan *p, const struct amounts *c);
void plan_place_bytes(const struct plan *p, uint64_t bytes[ZINF_MEMORY_TIERS]);
/* Bytes of the model's own files, if weights are read from these; else 0. */
uint64_t plan_files_bytes(const struct plan *p);
/* Bytes of RAM for the checksums of so many bytes on a drive; 0 without zinf.checksums. */
uint64_t plan_sums_bytes(const struct plan *p, uint64_t bytes);
/* Bytes of one host buffer for gradients on their way to or from their sum; 0: none is needed. */
uint64_t plan_grad_staging_bytes(const struct plan *p);
/* The number of sub-groups whose updates go through tiles of host memory. */
int plan_n_tile_groups(const struct plan *p);

/* plan_lines.c: plan_collect sets the homes and appends the lines of everything else. plan_fits:
 * whether both fit in the budgets. */
int plan_collect(struct plan *p, const struct amounts *c, struct plan_lines *lines);
bool plan_fits(struct plan *p, const struct amounts *c);

/* RAM for the operations of programs, if they have a line; bytes 0: they have none. */
struct plan_operations {
    uint64_t bytes;
    bool one_by_one; /* as in struct plan */
};
/* plan.c: plan_make, with a line for operations as given. */
int plan_lay_out(struct plan *out, const struct setup *setup, const struct variant *variant,
                 const struct plan_operations *operations);

/* plan_choose.c: chooses p->amounts and the homes so that they fit in the budgets. */
int plan_choose(struct plan *p);

#endif
