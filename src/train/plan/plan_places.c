/*
 * plan_places: the home of every unit by the amounts, what the homes take, and what they ask for
 * beside them.
 */
#include "train/plan/lines.h"
#include "train/save/save.h"

/* Layer by layer a stage has two gradients of each of its units at once: the sum and the part that
 * is added next; in a tree, one more for each level. So it is where the sum comes from RAM. */
static uint64_t grads_at_once(const struct plan *p)
{
    uint64_t n = goes_together(p) || p->variant.device_adds ? 2 : 1;
    const int64_t leaves = p->setup->n_micro / p->setup->own_chunks;
    if (in_parts(p->setup)) /* parts are gone through twice before they are added up */
        return (uint64_t)setup_own_parts(p->setup) + 1;
    for (int64_t left = leaves; p->setup->exact && goes_together(p) && left > 3; left /= 2)
        n++;
    return n + (p->setup->n_chunks > 1 && leaves > 1); /* a leaf is a sum itself */
}

uint64_t grad_slots(const struct plan *p, const struct amounts *c)
{
    uint64_t least = grads_at_once(p) * p->setup->walk.most_alone;
    return (uint64_t)c->grad_slots > least ? (uint64_t)c->grad_slots : least;
}

uint64_t beside_slots(const struct plan *p)
{
    return grads_at_once(p) * p->setup->walk.most_beside;
}

bool plan_sums_whole(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    const struct zinf_ids *sweep = w->whole == WALK_NONE ? NULL : &w->graph->stages[w->whole].sweep;
    uint32_t n = 0;
    for (uint32_t i = 0; sweep && goes_together(p) && i < sweep->n; i++) {
        uint32_t unit = sweep->at[i];
        if (!unit_trains(p->setup, unit))
            continue;
        if (way_sums_in_place(&p->travel, &p->homes[unit]) || w->units[unit].beside)
            return false;
        n++;
    }
    return n > 0 && n <= grad_slots(p, &p->amounts);
}

/* Slots of values that live elsewhere: what one stage reads and writes and two more on their way;
 * layer by layer, those of every micro-batch. */
uint32_t x_slots(const struct plan *p)
{
    uint32_t leaving = p->setup->walk.most_leaving;
    uint32_t slots = leaving + 2 > X_SLOTS ? leaving + 2 : X_SLOTS;
    uint32_t others = leaving > 1 ? leaving - 1 : 1;
    const bool spares = goes_together(p) && p->setup->n_chunks == 1; /* chunks are to be many */
    if (plan_gradients_leave(p))
        slots += p->setup->walk.most_places;
    return slots + (spares ? others * (uint32_t)p->itinerary.together : 0);
}

/* For what comes of other GPUs' gradients, of parameters or of keys and values. */
static uint64_t link_scratch_bytes(const struct plan *p, uint64_t grad_elems)
{
    const struct setup *s = p->setup;
    const uint32_t ranks = data_axis(s)->world, parts = context_axis(s)->world;
    const uint64_t keys = (uint64_t)s->own_chunks * s->walk.carried[1] / sizeof(float);
    const uint64_t of_keys = plan_links_keys(p) ? zinf_link_scratch_bytes(parts, keys) : 0;
    const uint64_t of_grads = zinf_link_scratch_bytes(ranks, grad_elems / ranks);
    return of_keys > of_grads ? of_keys : of_grads;
}

/* Bytes of things whose size does not depend on the amounts. */
void plan_measure(struct plan *p)
{
    struct trainer_sizes *s = &p->sizes;
    const struct zinf_layout *layout = &p->setup->layout;
    uint64_t width = zinf_dtype_bytes(p->setup->dtype), state = 0, trained = 0, group = 0;
    uint64_t beside = 0;
    plan_measure_slots(p);
    for (uint32_t u = 0; u < layout->n_units; u++) {
        uint64_t *most = p->setup->walk.units[u].beside ? &beside : &trained;
        if (unit_trains(p->setup, u) && layout->units[u].padded_elems > *most)
            *most = layout->units[u].padded_elems;
    }
    for (uint32_t g = 0; g < layout->n_groups; g++) {
        if (!unit_trains(p->setup, layout->groups[g].unit))
            continue;
        group = layout->groups[g].n > group ? layout->groups[g].n : group;
        uint64_t bytes =
            p->setup->state_bytes[g] + durable_copy_bytes(p->setup, layout->groups[g].n);
        state = bytes > state ? bytes : state;
    }
    s->grad_slot = trained * sizeof(float);
    s->beside_slot = beside * sizeof(float);
    uint64_t packed = plan_packed_bytes(p, ZINF_PACKABLE_PARAM);
    s->tile_state = zinf_align_up(packed ? packed : group * width, ZINF_MEMORY_ALIGN);
    s->tile_grad = s->tile_state + state;
    s->tile_most = s->tile_grad + group * sizeof(float);
    s->link = p->variant.by_link && has_backward(p->setup)
                  ? link_scratch_bytes(p, trained > beside ? trained : beside)
                  : 0;
    s->transfer =
        source_memory_bytes(p->setup) + (p->variant.packs ? source_packed_bytes(p->setup) : 0);
}

static bool is_layer(const struct plan *p, uint32_t unit)
{
    return p->setup->walk.units[unit].layer != WALK_NONE;
}

/* That leaves late layers more time; but were they simply the last ones, backward would have
 * nothing to update while it goes through them. So they are spread over the last (of + n) / 2. */
bool plan_is_spread(uint32_t from_end, uint32_t n, uint32_t of)
{
    uint32_t span = (of + n) / 2;
    return n && from_end <= span && from_end * n / span != (from_end - 1) * n / span;
}

static bool is_to_wait(const struct plan *p, uint32_t unit, uint32_t n)
{
    const struct walk *w = &p->setup->walk;
    return plan_is_spread(w->n_layers - w->units[unit].layer, n, w->n_layers);
}

static bool has_host_pair(const struct plan *p, uint32_t unit, const struct amounts *c)
{
    uint32_t n = (uint32_t)c->n_host_pairs;
    if (p->homes[unit].state != ZINF_TIER_HOST)
        return false;
    return is_layer(p, unit) ? !is_to_wait(p, unit, p->setup->walk.n_layers - n) : c->all_pairs;
}

/* By offload_optimizer.ratio and the amounts. The gradients of the first units are complete last,
 * and the next forward needs these first: there the device, which has them at hand, spares most
 * waiting. The tiles of a sweep stay together; where they are more than the ratio leaves, layers go
 * without. A device that the CPU cannot read has the parameters too, which take little beside the
 * state. */
static void place_device_states(struct plan *p, const struct amounts *c)
{
    uint32_t next;
    double ratio = p->setup->config->offload_optimizer.ratio;
    double room = (1 - ratio) * (double)p->setup->layout.total_elems;
    for (uint32_t first = 0; first < p->setup->n_units; first = next) {
        double elems = 0;
        next = p->setup->walk.units[first].sweep_end;
        for (uint32_t u = first; u < next; u++)
            elems += (double)p->setup->layout.units[u].slice_elems;
        bool shared = ratio < 1 && elems / 2 <= room;
        room -= shared ? elems : 0;
        for (uint32_t u = first; u < next && (shared || (int)first < c->n_device_states); u++) {
            struct zinf_home *home = &p->homes[u];
            home->state = home->grad = ZINF_TIER_DEVICE;
        }
    }
}

/* What can be taken back: updates of state on the drive, and of that in RAM which has a pair. */
static uint8_t generations_of(const struct plan *p, uint32_t unit, const struct amounts *c)
{
    const struct zinf_home *home = &p->homes[unit];
    bool pair = home->state == ZINF_TIER_DRIVE || has_host_pair(p, unit, c);
    bool possible = home->param != ZINF_TIER_DEVICE || p->setup->durable;
    return unit_trains(p->setup, unit) && trains(p->setup) && pair && possible
               ? p->setup->generations
               : 1;
}

/* Whether updates overwrite the unit's parameters in RAM: steps that outlive the process write a
 * copy of them to the drive anyway; others do if the variant says so. Who saves in the background
 * does not read copies that lie behind the state. */
static bool is_overwritten(const struct plan *p, const struct zinf_home *home)
{
    const struct setup *s = p->setup;
    bool reads = !s->durable_copies || !s->config->async_save;
    bool copied = s->durable ? reads : p->variant.overwrites;
    return copied && home->param == ZINF_TIER_HOST && home->state == ZINF_TIER_DRIVE &&
           home->generations == 2;
}

/* State that would be on the drive, and is in RAM in one generation. */
static bool is_headed(const struct plan *p, uint32_t unit)
{
    const struct zinf_home *home = &p->homes[unit];
    return p->variant.packs_ram && p->variant.packs && trains(p->setup) &&
           p->setup->state_tier == ZINF_TIER_DRIVE && home->state == ZINF_TIER_HOST &&
           home->generations == 1 && setup_can_head(p->setup, unit);
}

/* Whether a unit's parameters may be packed, wherever they are. */
static bool packs_params(const struct plan *p, uint32_t unit)
{
    const bool changes = unit_trains(p->setup, unit);
    return p->variant.packs == PACK_ALL && trains(p->setup) &&
           (changes ? p->homes[unit].state != ZINF_TIER_DEVICE : p->variant.packs_frozen) &&
           setup_can_pack_params(p->setup, unit) && (p->travel.sliced || !p->travel.several);
}

/* Parameters in RAM in one generation; a copy of them on the drive is packed too, where it does not
 * lie behind the state. Ranks that have whole units would have to tell each other what they packed.
 */
static bool is_param_headed(const struct plan *p, uint32_t unit)
{
    const struct setup *s = p->setup;
    const struct zinf_home *home = &p->homes[unit];
    const bool drive = s->state_tier == ZINF_TIER_DRIVE || s->param_tier == ZINF_TIER_DRIVE;
    const bool changes = unit_trains(s, unit);
    return drive && (changes ? p->variant.packs_fronts : p->variant.packs_frozen) &&
           (!s->durable || home->backed || !changes) && home->param == ZINF_TIER_HOST &&
           zinf_home_copies(home) == 1 && setup_can_head_params(s, unit) && packs_params(p, unit);
}

/* Whether a step makes several contributions to the unit's gradient. A sweep that may run whole
 * does so micro-batch by micro-batch in either order. */
static bool has_several(const struct plan *p, uint32_t unit)
{
    const struct walk *w = &p->setup->walk;
    if (w->units[unit].uses > 1 || !goes_once(p) || unit_shared(p->setup, unit) ||
        setup_turns(p->setup) > 1)
        return true;
    if (p->setup->n_micro == 1 || w->whole == WALK_NONE)
        return false;
    return w->units[unit].own_order < w->graph->stages[w->whole].sweep.n; /* these come first */
}

/* A GPU's own update reads the gradient where it was kept. */
static bool is_eager(const struct setup *s, const struct zinf_home *home)
{
    if (s->in_place)
        return home->param != ZINF_TIER_DEVICE || !device_is_far(s);
    return home->generations == 2 && home->param != ZINF_TIER_DEVICE;
}

/* What is updated at once and for good has nowhere to wait, unless it is a sum. */
static bool keeps_grad(const struct plan *p, uint32_t unit)
{
    const struct setup *s = p->setup;
    bool passes = s->in_place && is_eager(s, &p->homes[unit]);
    return has_backward(s) && unit_trains(s, unit) && (!passes || has_several(p, unit));
}

/* Of a tree of contributions that come one by one: the most sums that wait, for each stage that
 * makes some. */
static uint16_t sums_of(const struct plan *p, uint32_t unit)
{
    const int64_t back = p->itinerary.back, n = p->setup->n_micro;
    const int64_t turns = is_piped(p->setup) ? (n + back - 1) / back : setup_turns(p->setup);
    int most = 1;
    for (int64_t there = 1; there < turns; there++) {
        const int bits = __builtin_popcountll((unsigned long long)there);
        most = bits > most ? bits : most;
    }
    return (uint16_t)(most * (int)plan_grad_turns(p, unit));
}

/* Whether a layer is one of n whose gradients stay on the device. Sums of several contributions are
 * those of the first layers. One contribution alone needs no place; but where it waits for the next
 * forward it comes to the host when nothing else does. */
static bool sums_on_device(const struct plan *p, uint32_t unit, uint32_t n)
{
    uint32_t layer = p->setup->walk.units[unit].layer;
    return p->setup->n_micro > 1 ? layer < n : is_to_wait(p, unit, n);
}

/* Where a sort's waypoints are kept, a new one's as 0; NULL: there are too many sorts. A plan asks
 * for the ways of many units many times, and few of them differ. */
static uint32_t *find_sort(struct plan *p, uint32_t sort)
{
    for (uint32_t i = 0; i < p->n_sorts; i++)
        if (p->sorts[i].sort == sort)
            return &p->sorts[i].waypoints;
    if (p->n_sorts == WAY_SORTS)
        return NULL;
    p->sorts[p->n_sorts] = (struct way_sort){.sort = sort};
    return &p->sorts[p->n_sorts++].waypoints;
}

static void set_way(struct plan *p, uint32_t unit)
{
    const struct zinf_home *home = &p->homes[unit];
    bool trained = unit_trains(p->setup, unit), eager = is_eager(p->setup, home);
    bool several = has_several(p, unit);
    uint32_t sort = (uint32_t)home->param | (uint32_t)home->state << 2 | (uint32_t)home->grad << 4;
    sort |= (uint32_t)(home->keeps_grad | home->in_files << 1 | trained << 2 | several << 3 |
                       eager << 4 | home->backed << 5 | home->packed << 6 | home->packs_grad << 7 |
                       home->packs_copy << 8 | home->headed << 9 | (home->grad_sums > 1) << 10 |
                       home->param_headed << 11 | home->coded << 12 | home->imaged << 13)
            << 6;
    uint32_t *kept = find_sort(p, sort);
    uint32_t waypoints = kept ? *kept : 0;
    if (!waypoints)
        waypoints = way_waypoints(&p->travel, home, trained, several, eager) | 1u << NOWHERE;
    if (kept)
        *kept = waypoints;
    p->ways[unit] = (struct way){
        .fetched = has_waypoint(waypoints, PARAM_SLOT), .eager = eager, .waypoints = waypoints};
}

/* Whether the drive has the image in which a unit's parameters go to the device, so that a fetch
 * reads half: where all of the unit is this rank's, of whatever is frozen, and of what updates
 * make, if they make it too. A unit that rows choose may have no update. */
static bool is_imaged(const struct plan *p, uint32_t unit)
{
    const struct zinf_home *home = &p->homes[unit];
    if (!home->coded || home->param != ZINF_TIER_DRIVE || p->travel.sliced ||
        p->travel.reach[BY_DRIVE][ON_DEVICE])
        return false;
    if (!trains(p->setup) || !unit_trains(p->setup, unit))
        return true;
    return p->variant.updates_codes && p->variant.packs != PACK_ALL && !p->travel.cut &&
           home->state != ZINF_TIER_DEVICE && p->setup->walk.units[unit].chooser == WALK_NONE;
}

/* Units have their turn in the order of the forward: what the next step needs first is nearest. */
void plan_set_places(struct plan *p, const struct amounts *c)
{
    for (uint32_t u = 0; u < p->setup->n_units; u++) {
        struct zinf_home *home = &p->homes[u];
        bool grad_in_host =
            is_layer(p, u) ? is_to_wait(p, u, (uint32_t)c->n_host_grads) : c->host_tables;
        *home = (struct zinf_home){.param = p->setup->param_tier,
                                   .state = p->setup->state_tier,
                                   .grad = p->setup->grad_tier};
        if (home->param == ZINF_TIER_DRIVE && (int)u < c->n_host_params)
            home->param = ZINF_TIER_HOST;
        if (home->state == ZINF_TIER_DRIVE && (int)u < c->n_host_states)
            home->state = ZINF_TIER_HOST;
        if (home->grad == ZINF_TIER_DRIVE && grad_in_host)
            home->grad = ZINF_TIER_HOST;
        if (is_layer(p, u) && sums_on_device(p, u, (uint32_t)c->n_device_grads))
            home->grad = ZINF_TIER_DEVICE;
    }
    if (trains(p->setup))
        place_device_states(p, c);
    p->waypoints = 0;
    for (uint32_t u = 0; u < p->setup->n_units; u++) {
        struct zinf_home *home = &p->homes[u];
        if (trains(p->setup) && unit_trains(p->setup, u) && home->state == ZINF_TIER_DEVICE &&
            device_is_far(p->setup))
            home->param = ZINF_TIER_DEVICE;
        home->in_files = home->param == ZINF_TIER_DRIVE && p->setup->weights &&
                         p->setup->weights->units[u].n_parts;
        home->files = home->in_files && p->files ? p->files[u] : 0;
        home->generations = generations_of(p, u, c);
        home->headed = is_headed(p, u);
        home->overwritten = is_overwritten(p, home);
        home->backed = home->overwritten && !p->setup->durable_copies;
        home->packs_copy = home->backed && p->variant.packs == PACK_ALL;
        home->param_headed = is_param_headed(p, u);
        home->coded = p->variant.codes && unit_has_codes(p->setup, u);
        home->imaged = is_imaged(p, u);
        home->packed = home->param == ZINF_TIER_DRIVE && !home->in_files && !home->imaged &&
                       packs_params(p, u);
        home->keeps_grad = keeps_grad(p, u);
        home->grad_sums = home->keeps_grad ? sums_of(p, u) : 0;
        home->packs_grad = p->variant.packs == PACK_ALL && home->keeps_grad && trains(p->setup) &&
                           home->grad_sums < 2 && home->grad == ZINF_TIER_DRIVE &&
                           home->state != ZINF_TIER_DEVICE;
        set_way(p, u);
        p->waypoints |= p->ways[u].waypoints;
    }
}

static uint64_t plain_param_bytes(const struct plan *p, uint32_t unit)
{
    const struct zinf_layout *layout = &p->setup->layout;
    return p->travel.sliced ? layout->units[unit].slice_elems * zinf_dtype_bytes(p->setup->dtype)
                            : zinf_layout_unit_bytes(layout, unit, p->setup->dtype);
}

uint64_t plan_param_bytes(const struct plan *p, uint32_t unit)
{
    return p->homes[unit].param_headed ? setup_unit_param_head_bytes(p->setup, unit)
                                       : plain_param_bytes(p, unit);
}

void plan_place_bytes(const struct plan *p, uint64_t bytes[ZINF_MEMORY_TIERS])
{
    for (uint32_t u = 0; u < p->setup->n_units; u++) {
        const struct zinf_home *home = &p->homes[u];
        uint64_t n = p->setup->layout.units[u].slice_elems;
        uint64_t copy = unit_trains(p->setup, u) ? durable_copy_bytes(p->setup, n) : 0;
        const uint64_t params = plain_param_bytes(p, u), here = plan_param_bytes(p, u);
        bytes[home->param] += home->in_files ? 0 : here * zinf_home_copies(home);
        bytes[ZINF_MEMORY_DRIVE] += params - here;
        bytes[ZINF_MEMORY_DRIVE] +=
            home->imaged ? p->setup->images[u].bytes * home->generations : 0;
        bytes[ZINF_MEMORY_DRIVE] += home->backed ? params * home->generations : 0;
        uint64_t state = setup_unit_state_bytes(p->setup, u) + copy;
        uint64_t head = home->headed ? setup_unit_head_bytes(p->setup, u) : state;
        bytes[home->state] += head * (home->state == ZINF_TIER_DEVICE ? 1 : home->generations);
        bytes[ZINF_MEMORY_DRIVE] += state - head;
        if (home->keeps_grad)
            bytes[home->grad] += n * sizeof(float) * (home->grad_sums > 1 ? home->grad_sums : 1);
    }
}

/* Of a gradient that passes by host memory: all ranks' of the unit, or what GPUs have left of it.
 */
uint64_t plan_grad_staging_bytes(const struct plan *p)
{
    const bool linked = p->travel.reach[BY_DEVICE][OTHERS_DEVICES];
    uint64_t most = 0;
    for (uint32_t u = 0; u < p->setup->n_units; u++) {
        uint64_t elems = p->setup->layout.units[u].padded_elems;
        bool passes = has_waypoint(p->ways[u].waypoints, GRAD_STAGING) ||
                      has_waypoint(p->ways[u].waypoints, SUM_STAGING) || unit_shared(p->setup, u);
        most = passes && elems > most ? elems : most;
    }
    return most * sizeof(float) / (linked ? data_axis(p->setup)->world : 1);
}

int plan_n_tile_groups(const struct plan *p)
{
    uint32_t n = 0;
    for (uint32_t u = 0; u < p->setup->n_units; u++)
        if (way_has_tile(p->ways[u].waypoints))
            n += p->setup->layout.units[u].n_groups;
    return (int)n;
}
