/* layout: cuts units into rank slices, and slices into sub-groups. Only arithmetic, with 64-bit
 * sizes. */
#include "offload/offload.h"

#include <stdlib.h>

static uint64_t groups_of(uint64_t slice_elems, uint64_t group_elems)
{
    return (slice_elems + group_elems - 1) / group_elems;
}

/* Equal sub-groups: a slice of 1.1 sub-groups becomes two halves, so that none is very small. */
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

static int check_axes(const struct zinf_axis at[ZINF_AXES])
{
    for (int a = 0; a < ZINF_AXES; a++) {
        if (at[a].world < 1 || at[a].rank >= at[a].world)
            return zinf_fail(-EINVAL, "rank %u of %u along axis %s is not possible", at[a].rank,
                             at[a].world, zinf_axis_name((enum zinf_axis_kind)a));
        /* along TENSOR and PIPE each rank has units of its own, which are cut like any */
        if (a == ZINF_CONTEXT && at[a].world > 1)
            return zinf_fail(-ENOTSUP,
                             "%u ranks along axis %s: units are cut along axis data alone",
                             at[a].world, zinf_axis_name((enum zinf_axis_kind)a));
    }
    return 0;
}

/* Elements of a unit's sub-groups. */
static uint64_t group_size(const struct zinf_layout_options *o, uint32_t unit, uint64_t slice_elems)
{
    uint64_t wanted = zinf_align_up(o->group_elems ? o->group_elems : 1, ZINF_LAYOUT_ALIGN);
    return o->whole && o->whole[unit] ? slice_elems : even_group(slice_elems, wanted);
}

static void cut_unit(struct zinf_layout *layout, const struct zinf_layout_options *o, uint32_t u)
{
    struct zinf_layout_unit *unit = &layout->units[u];
    unit->first_group = layout->n_groups;
    if (!unit->slice_elems)
        return;
    uint64_t size = group_size(o, u, unit->slice_elems);
    for (uint64_t first = 0; first < unit->slice_elems; first += size) {
        uint64_t left = unit->slice_elems - first, n = left < size ? left : size;
        layout->groups[layout->n_groups++] = (struct zinf_layout_group){u, first, n};
        if (n > layout->max_group_elems)
            layout->max_group_elems = n;
    }
    unit->n_groups = layout->n_groups - unit->first_group;
}

int zinf_layout_init(struct zinf_layout *layout, const struct zinf_layout_options *o)
{
    uint64_t n_groups = 0;
    memset(layout, 0, sizeof *layout);
    int code = check_axes(o->at);
    if (code)
        return code;
    layout->rank = o->at[ZINF_DATA].rank;
    layout->world = o->at[ZINF_DATA].world;
    layout->n_units = o->n_units;
    layout->units = calloc(o->n_units ? o->n_units : 1, sizeof *layout->units);
    if (!layout->units)
        return zinf_fail(-ENOMEM, "no memory for a layout of %u units", o->n_units);
    for (uint32_t u = 0; u < o->n_units; u++) {
        place_unit(layout, u, o->unit_elems[u]);
        uint64_t slice = layout->units[u].slice_elems;
        n_groups += slice ? groups_of(slice, group_size(o, u, slice)) : 0;
    }
    layout->groups = calloc(n_groups ? n_groups : 1, sizeof *layout->groups);
    if (!layout->groups || n_groups > UINT32_MAX) {
        zinf_layout_fini(layout);
        return zinf_fail(-ENOMEM, "no memory for a layout of %llu sub-groups",
                         (unsigned long long)n_groups);
    }
    for (uint32_t u = 0; u < o->n_units; u++)
        cut_unit(layout, o, u);
    return 0;
}

void zinf_layout_fini(struct zinf_layout *layout)
{
    free(layout->units);
    free(layout->groups);
    memset(layout, 0, sizeof *layout);
}
