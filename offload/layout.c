/* layout: units to rank slices to sub-groups. Pure arithmetic, 64-bit throughout. */
#include "offload/offload.h"

#include <stdlib.h>

static uint64_t groups_of(uint64_t slice_elems, uint64_t group_elems)
{
    return (slice_elems + group_elems - 1) / group_elems;
}

/* Even groups: a slice of 1.1 groups becomes two halves, so that no group is a sliver. */
static uint64_t even_group(uint64_t slice_elems, uint64_t group_elems)
{
    uint64_t n = groups_of(slice_elems, group_elems);
    return zinf_align_up((slice_elems + n - 1) / n, ZINF_LAYOUT_ALIGN);
}

static void place_unit(struct zinf_layout *layout, uint32_t u, uint64_t elems)
{
    struct zinf_layout_unit *unit = &layout->units[u];
    unit->elems = elems;
    unit->padded_elems = zinf_align_up(elems, (uint64_t)ZINF_LAYOUT_ALIGN * layout->world);
    unit->slice_elems = unit->padded_elems / layout->world;
    unit->slice_first = unit->slice_elems * layout->rank;
    if (unit->padded_elems > layout->max_unit_elems)
        layout->max_unit_elems = unit->padded_elems;
    layout->total_elems += unit->slice_elems;
}

int zinf_layout_init(struct zinf_layout *layout, const uint64_t *unit_elems, uint32_t n_units,
                     uint64_t group_elems, uint32_t rank, uint32_t world)
{
    memset(layout, 0, sizeof *layout);
    if (world < 1 || rank >= world)
        return zinf_fail(-EINVAL, "rank %u of %u is not possible", rank, world);
    group_elems = zinf_align_up(group_elems ? group_elems : 1, ZINF_LAYOUT_ALIGN);
    layout->rank = rank;
    layout->world = world;
    layout->n_units = n_units;
    layout->units = calloc(n_units ? n_units : 1, sizeof *layout->units);
    if (!layout->units)
        return zinf_fail(-ENOMEM, "no memory for a layout of %u units", n_units);
    uint64_t n_groups = 0;
    for (uint32_t u = 0; u < n_units; u++) {
        place_unit(layout, u, unit_elems[u]);
        uint64_t slice = layout->units[u].slice_elems;
        if (!slice)
            continue;
        n_groups += groups_of(slice, even_group(slice, group_elems));
    }
    layout->groups = calloc(n_groups ? n_groups : 1, sizeof *layout->groups);
    if (!layout->groups || n_groups > UINT32_MAX) {
        zinf_layout_fini(layout);
        return zinf_fail(-ENOMEM, "no memory for a layout of %llu sub-groups",
                         (unsigned long long)n_groups);
    }
    for (uint32_t u = 0; u < n_units; u++) {
        struct zinf_layout_unit *unit = &layout->units[u];
        unit->first_group = layout->n_groups;
        if (!unit->slice_elems)
            continue;
        uint64_t size = even_group(unit->slice_elems, group_elems);
        for (uint64_t first = 0; first < unit->slice_elems; first += size) {
            uint64_t left = unit->slice_elems - first;
            uint64_t n = left < size ? left : size;
            layout->groups[layout->n_groups++] = (struct zinf_layout_group){u, first, n};
            if (n > layout->max_group_elems)
                layout->max_group_elems = n;
        }
        unit->n_groups = layout->n_groups - unit->first_group;
    }
    return 0;
}

void zinf_layout_fini(struct zinf_layout *layout)
{
    free(layout->units);
    free(layout->groups);
    memset(layout, 0, sizeof *layout);
}
