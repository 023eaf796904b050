/*
 * plan_slots: where units are on the device that come from elsewhere: in slots of their own, or in
 * slots that units of similar size use in turn. Slots of one size are as large as the largest unit.
 * A plan that is to look ahead has several sizes: an expert of 24 MB would else take as much room
 * on its way as a dense layer of 300 MB.
 */
#include "train/plan/lines.h"

/* Bytes of the first n of the units in the order in which they get slots of their own. */
uint64_t plan_own_bytes(const struct plan *p, int n)
{
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        uint32_t unit = p->setup->walk.by_own_order[i];
        if (p->ways[unit].fetched)
            bytes += zinf_layout_unit_bytes(&p->setup->layout, unit, p->setup->dtype);
    }
    return bytes;
}

bool unit_has_own(const struct plan *p, uint32_t unit)
{
    return p->setup->walk.units[unit].own_order < (uint32_t)p->amounts.n_own;
}

bool unit_stays(const struct plan *p, uint32_t unit)
{
    const bool changes = has_backward(p->setup) && unit_trains(p->setup, unit);
    return unit_has_own(p, unit) && !changes;
}

uint64_t unit_own_offset(const struct plan *p, uint32_t unit)
{
    return plan_own_bytes(p, (int)p->setup->walk.units[unit].own_order);
}

bool plan_fetches_beyond(const struct plan *p, int n)
{
    for (uint32_t i = (uint32_t)n; i < p->setup->n_units; i++)
        if (p->ways[p->setup->walk.by_own_order[i]].fetched)
            return true;
    return false;
}

/* ---- sizes ---- */

/* Of the largest unit that takes no more than that. */
static uint64_t largest_within(const struct plan *p, uint64_t limit)
{
    uint64_t most = 0;
    for (uint32_t u = 0; u < p->setup->n_units; u++) {
        const uint64_t bytes = zinf_layout_unit_bytes(&p->setup->layout, u, p->setup->dtype);
        most = bytes <= limit && bytes > most ? bytes : most;
    }
    return most;
}

/* Units that one stage has at hand at once, of those of a size. */
static uint32_t most_at_once(const struct plan *p, uint32_t size)
{
    const struct zinf_graph *g = p->setup->graph;
    uint32_t most = 0;
    for (uint32_t s = 0; s < g->n_stages; s++) {
        uint32_t n = 0;
        bool swept = false;
        for (uint32_t i = 0; i < g->stages[s].units.n; i++)
            n += p->slot_size[g->stages[s].units.at[i]] == size;
        for (uint32_t i = 0; i < g->stages[s].sweep.n; i++)
            swept |= p->slot_size[g->stages[s].sweep.at[i]] == size;
        most = n + swept > most ? n + swept : most;
    }
    return most;
}

void plan_measure_slots(struct plan *p)
{
    const struct zinf_layout *layout = &p->setup->layout;
    const bool slices = way_stages_slices(&p->travel);
    uint64_t next = largest_within(p, UINT64_MAX);
    memset(p->slots, 0, sizeof p->slots);
    p->n_slot_sizes = 0;
    do { /* each size is for units of more than half of it */
        p->slots[p->n_slot_sizes++].bytes = next;
        next = largest_within(p, next / 2);
    } while (next && p->n_slot_sizes < SLOT_SIZES);
    for (uint32_t u = 0; u < p->setup->n_units; u++) {
        const uint64_t bytes = zinf_layout_unit_bytes(layout, u, p->setup->dtype);
        const uint64_t staged =
            slices ? zinf_layout_slice_bytes(layout, u, p->setup->dtype) : bytes;
        uint32_t size = p->n_slot_sizes - 1;
        while (bytes > p->slots[size].bytes)
            size--;
        struct slot_size *of = &p->slots[size];
        p->slot_size[u] = (uint8_t)size;
        of->staging = staged > of->staging ? staged : of->staging;
        of->all_bytes += bytes;
        of->n_units += bytes > 0;
    }
    for (uint32_t size = 0; size < p->n_slot_sizes; size++)
        p->slots[size].least = most_at_once(p, size);
}

uint32_t param_slot_size(const struct plan *p, uint32_t unit)
{
    return p->amounts.ahead ? p->slot_size[unit] : 0;
}

uint32_t param_slot_sizes(const struct plan *p, const struct amounts *c)
{
    return c->ahead ? p->n_slot_sizes : 1;
}

/* What is read ahead is as many bytes as that number of the largest units, and of each size its
 * part of the model. */
uint64_t param_slots(const struct plan *p, const struct amounts *c, uint32_t size)
{
    const struct slot_size *of = &p->slots[size];
    const uint64_t least = c->ahead ? of->least : p->setup->walk.most_units;
    uint64_t slots = (uint64_t)c->look_ahead + 1, all = 0;
    for (uint32_t i = 0; i < p->n_slot_sizes; i++)
        all += p->slots[i].all_bytes;
    if (c->ahead && of->bytes) {
        const double bytes = (double)c->ahead * (double)p->slots[0].bytes;
        const double part = bytes * (double)of->all_bytes / (double)all / (double)of->bytes;
        slots = part > (double)slots ? (uint64_t)part : slots;
        slots = slots < of->n_units ? slots : of->n_units;
    }
    return slots > least ? slots : least;
}

/* What is read ahead waits on the device: host memory is left again as soon as a slot there is
 * free, by a link that is faster than a drive. */
uint64_t param_stagings(const struct plan *p, const struct amounts *c, uint32_t size)
{
    const uint64_t slots = param_slots(p, c, size), few = (uint64_t)c->look_ahead + 1;
    const uint64_t wanted = size ? 2 * few : few;
    return c->ahead && wanted < slots ? wanted : slots;
}

uint64_t param_slots_bytes(const struct plan *p, const struct amounts *c, uint32_t size)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < size; i++)
        bytes += param_slots(p, c, i) * p->slots[i].bytes;
    return bytes;
}

uint64_t param_stagings_bytes(const struct plan *p, const struct amounts *c, uint32_t size)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < size; i++)
        bytes += param_stagings(p, c, i) * p->slots[i].staging;
    return bytes;
}
