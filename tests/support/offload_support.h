/*
 * offload_support: random programs for the tests of offload, of operations that copy and mix a few
 * buffers and extents, the dice that they are drawn with, and a folder for stores.
 */
#ifndef ZINF_OFFLOAD_SUPPORT_H
#define ZINF_OFFLOAD_SUPPORT_H

#include "base/memory.h"
#include "base/random.h"
#include "offload/offload.h"
#include "tap.h"

#include <stdlib.h>
#include <unistd.h>

static char work[512]; /* a folder of the test's own, under BUILDDIR */

static inline void begin_offload(const char *name)
{
    const char *build = getenv("BUILDDIR");
    snprintf(work, sizeof work, "%s/tests/work-%s-%ld", build ? build : ".", name, (long)getpid());
    if (zinf_make_dirs(work))
        printf("Bail out! %s\n", zinf_error());
    zinf_log_set_level(ZINF_LOG_ERROR);
}

static inline int end_offload(void)
{
    if (rmdir(work))
        printf("# files are left in %s\n", work);
    return tap_done();
}

/* One axis of ranks, the others alone. */
static inline int lay_out(struct zinf_layout *layout, const uint64_t *elems, uint32_t n_units,
                          uint64_t group, uint32_t rank, uint32_t world)
{
    struct zinf_layout_options options = {
        .unit_elems = elems, .n_units = n_units, .group_elems = group};
    for (int a = 0; a < ZINF_AXES; a++)
        options.at[a].world = 1;
    options.at[ZINF_DATA] = (struct zinf_axis){.rank = rank, .world = world};
    return zinf_layout_init(layout, &options);
}

static uint32_t dice_step;

/* The next of one fixed stream: every run of the test is the same. */
static inline uint32_t dice(uint32_t sides)
{
    uint32_t counter[4] = {dice_step++, 0, 0, 1}, bits[4];
    zinf_philox(counter, 2024, bits);
    return bits[0] % sides;
}

enum { BUFFERS = 6, EXTENTS = 4, RESOURCES = BUFFERS + EXTENTS, OPS = 80, BYTES = 4096 };

/* An operation changes buffer `to` from `from` and its own number; READ and WRITE copy. */
struct touch {
    enum zinf_lane lane;
    uint32_t from, to; /* resources */
    bool keeps;        /* the old content of `to` goes into the new: it is read too */
};

static inline struct touch draw_touch(bool drive)
{
    static const enum zinf_lane lanes[] = {ZINF_LANE_READ, ZINF_LANE_WRITE,  ZINF_LANE_H2D,
                                           ZINF_LANE_D2H,  ZINF_LANE_DEVICE, ZINF_LANE_HOST};
    struct touch t = {lanes[drive ? dice(6) : 2 + dice(4)], dice(BUFFERS), dice(BUFFERS),
                      dice(2) == 0};
    if (t.lane == ZINF_LANE_READ)
        t.from = BUFFERS + dice(EXTENTS);
    if (t.lane == ZINF_LANE_WRITE)
        t.to = BUFFERS + dice(EXTENTS);
    if (t.lane <= ZINF_LANE_WRITE)
        t.keeps = false;
    return t;
}

static inline void add_touch(struct zinf_program *p, struct zinf_op *op, const struct touch *t)
{
    zinf_resource reads[2] = {t->from, t->to};
    struct zinf_uses uses = {reads, &t->to, t->keeps ? 2 : 1, 1};
    op->lane = t->lane;
    CHECK(!zinf_program_add(p, op, &uses));
}

static inline void make_resources(struct zinf_program *p)
{
    CHECK(!zinf_program_init(p, "random"));
    for (zinf_resource i = 0, r; i < RESOURCES; i++)
        CHECK(!zinf_program_resource(p, &r) && r == i);
}

#endif
