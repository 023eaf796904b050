/*
 * tiers: the place of every parameter, gradient and optimizer state. Planned first (ledger lines
 * and extents), placed when the arenas exist. Extents: one for a unit's parameters, one for a
 * unit's gradient, one for each sub-group's state, so that a fetch is one sequential read.
 */
#include "offload/offload.h"

#include <stdlib.h>

struct thing {
    uint64_t offset; /* in the tier's arena, or number of the extent */
    uint64_t stride; /* to the second generation in memory; 0: there is none */
};

struct zinf_tiers {
    struct zinf_tiers_options options;
    struct zinf_home *places;     /* [n_units] */
    struct thing *params, *grads; /* [n_units] */
    struct thing *backings;       /* [n_units] copies on the drive, of units that are backed */
    struct thing *images;         /* [n_units] images, of units that are imaged */
    struct thing *states, *tails; /* [n_groups] state; and the rest of state that has a head */
    struct thing *param_tails;    /* [n_groups] the rest of parameters that have a head */
    struct zinf_packed *packed;   /* [n_packed()] */
    uint8_t *live;                /* [n_units] */
    char *device_base, *host_base;
};

const char *zinf_tier_name(enum zinf_tier tier)
{
    static const char *const names[] = {"device", "host", "drive"};
    return names[tier];
}

uint64_t zinf_state_bytes(enum zinf_state_form form, int n_moments, uint64_t n)
{
    static const uint64_t master[] = {
        [ZINF_STATE_BARE] = 0, [ZINF_STATE_SPLIT] = 2, [ZINF_STATE_WHOLE] = 4};
    return n_moments < 0 ? 0 : n * (master[form] + 4 * (uint64_t)n_moments);
}

static uint64_t group_state_bytes(const struct zinf_tiers *t, uint32_t group)
{
    const struct zinf_tiers_options *o = &t->options;
    uint64_t n = o->layout->groups[group].n;
    bool changes = t->places[o->layout->groups[group].unit].keeps_grad;
    uint64_t copy = o->param_copies && changes ? n * zinf_dtype_bytes(o->dtype) : 0;
    uint64_t state =
        o->state_bytes ? o->state_bytes[group] : zinf_state_bytes(o->form, o->n_moments, n);
    return state + copy;
}

/* All parts of one kind: a ledger line for each tier, with offsets one behind the other. */
struct kind {
    const char *name, *hint;
    uint64_t total[3], base[3]; /* by tier */
};

static int kind_add(struct zinf_tiers *t, struct kind *kind, enum zinf_tier tier, uint64_t bytes,
                    int generations, struct thing *thing)
{
    uint64_t each = zinf_align_up(bytes, ZINF_MEMORY_ALIGN);
    thing->offset = kind->total[tier];
    thing->stride = generations > 1 ? each : 0;
    kind->total[tier] += each * (uint64_t)generations;
    if (tier != ZINF_TIER_DRIVE || !bytes)
        return 0;
    zinf_extent extent;
    int code = generations > 1 ? zinf_store_add_extent_pair(t->options.store, bytes, &extent)
                               : zinf_store_add_extent(t->options.store, bytes, &extent);
    thing->offset = extent;
    return code;
}

static int kind_end(struct kind *kind, struct zinf_ledger *ledger)
{
    static const enum zinf_memory_tier memory[] = {ZINF_MEMORY_DEVICE, ZINF_MEMORY_HOST,
                                                   ZINF_MEMORY_DRIVE};
    int code = 0;
    for (int tier = 0; !code && tier < 3; tier++)
        if (kind->total[tier])
            code = zinf_ledger_add(ledger, memory[tier], kind->name, kind->hint, kind->total[tier],
                                   &kind->base[tier]);
    return code;
}

static void kind_shift(const struct kind *kind, enum zinf_tier tier, struct thing *thing)
{
    if (tier != ZINF_TIER_DRIVE)
        thing->offset += kind->base[tier];
}

static uint64_t param_bytes(const struct zinf_tiers *t, uint32_t unit)
{
    if (t->places[unit].in_files)
        return zinf_store_extent_bytes(t->options.store, t->places[unit].files);
    return t->options.sliced ? zinf_layout_slice_bytes(t->options.layout, unit, t->options.dtype)
                             : zinf_layout_unit_bytes(t->options.layout, unit, t->options.dtype);
}

/* Bytes of the head of a sub-group's parameters; 0: they have none. */
static uint64_t param_head_of(const struct zinf_tiers *t, uint32_t group)
{
    const bool headed = t->places[t->options.layout->groups[group].unit].param_headed;
    return headed ? t->options.param_head_bytes[group] : 0;
}

static uint64_t group_param_bytes(const struct zinf_tiers *t, uint32_t group)
{
    return t->options.layout->groups[group].n * zinf_dtype_bytes(t->options.dtype);
}

/* Total heads of the unit's sub-groups before this one. */
static uint64_t heads_before(const struct zinf_tiers *t, uint32_t unit, uint32_t group)
{
    uint64_t bytes = 0;
    for (uint32_t g = t->options.layout->units[unit].first_group; g < group; g++)
        bytes += t->options.param_head_bytes[g];
    return bytes;
}

/* Plans the heads in RAM, and the rest on the drive. */
static int plan_param_heads(struct zinf_tiers *t, struct kind *kind, uint32_t unit)
{
    const struct zinf_layout_unit *u = &t->options.layout->units[unit];
    const uint32_t end = u->first_group + u->n_groups;
    int code = kind_add(t, kind, ZINF_TIER_HOST, heads_before(t, unit, end), 1, &t->params[unit]);
    for (uint32_t g = u->first_group; !code && g < end; g++)
        code = kind_add(t, kind, ZINF_TIER_DRIVE, group_param_bytes(t, g) - param_head_of(t, g), 1,
                        &t->param_tails[g]);
    return code;
}

static int plan_params(struct zinf_tiers *t, struct zinf_ledger *ledger)
{
    const struct zinf_layout *layout = t->options.layout;
    struct kind kind = {.name = "parameters", .hint = "zero_optimization.offload_param.device"};
    int code = 0;
    for (uint32_t u = 0; !code && u < layout->n_units; u++) {
        const struct zinf_home *place = &t->places[u];
        if (place->in_files) {
            t->params[u].offset = place->files;
            continue;
        }
        code = place->param_headed ? plan_param_heads(t, &kind, u)
                                   : kind_add(t, &kind, place->param, param_bytes(t, u),
                                              zinf_home_copies(place), &t->params[u]);
        if (!code && place->backed)
            code = kind_add(t, &kind, ZINF_TIER_DRIVE, param_bytes(t, u), place->generations,
                            &t->backings[u]);
    }
    if (!code)
        code = kind_end(&kind, ledger);
    for (uint32_t u = 0; !code && u < layout->n_units; u++)
        kind_shift(&kind, t->places[u].param, &t->params[u]);
    return code;
}

/* Distance of a unit's places for sums of its gradient. */
static uint64_t grad_stride(const struct zinf_tiers *t, uint32_t unit)
{
    return zinf_align_up(t->options.layout->units[unit].slice_elems * sizeof(float),
                         ZINF_MEMORY_ALIGN);
}

static uint64_t grad_bytes(const struct zinf_tiers *t, uint32_t unit)
{
    const uint64_t one = t->options.layout->units[unit].slice_elems * sizeof(float);
    const uint64_t n = t->places[unit].grad_sums;
    return n > 1 ? (n - 1) * grad_stride(t, unit) + one : one;
}

static int plan_grads(struct zinf_tiers *t, struct zinf_ledger *ledger)
{
    const struct zinf_layout *layout = t->options.layout;
    struct kind kind = {.name = "gradients (fp32)", .hint = "zinf.grad_device"};
    int code = 0;
    for (uint32_t u = 0; !code && u < layout->n_units; u++)
        if (t->places[u].keeps_grad)
            code = kind_add(t, &kind, t->places[u].grad, grad_bytes(t, u), 1, &t->grads[u]);
    if (!code)
        code = kind_end(&kind, ledger);
    for (uint32_t u = 0; !code && u < layout->n_units; u++)
        kind_shift(&kind, t->places[u].grad, &t->grads[u]);
    return code;
}

/* Bytes of the head of a sub-group's state; 0: it has none. */
static uint64_t head_of(const struct zinf_tiers *t, uint32_t group)
{
    const bool headed = t->places[t->options.layout->groups[group].unit].headed;
    return headed ? t->options.head_bytes[group] : 0;
}

static int plan_states(struct zinf_tiers *t, struct zinf_ledger *ledger)
{
    const struct zinf_layout *layout = t->options.layout;
    struct kind kind = {.name = "optimizer state (master, moments)",
                        .hint = "zero_optimization.offload_optimizer.device"};
    int code = 0;
    for (uint32_t g = 0; !code && g < layout->n_groups; g++) {
        const struct zinf_home *place = &t->places[layout->groups[g].unit];
        const int generations = place->state == ZINF_TIER_DEVICE ? 1 : place->generations;
        const uint64_t bytes = group_state_bytes(t, g), head = head_of(t, g);
        code = kind_add(t, &kind, place->state, head ? head : bytes, generations, &t->states[g]);
        if (!code && head)
            code = kind_add(t, &kind, ZINF_TIER_DRIVE, bytes - head, 1, &t->tails[g]);
    }
    if (!code)
        code = kind_end(&kind, ledger);
    for (uint32_t g = 0; !code && g < layout->n_groups; g++)
        kind_shift(&kind, t->places[layout->groups[g].unit].state, &t->states[g]);
    return code;
}

/* One extent for both generations of a unit's image, since the record of a step must not cover
 * images: a resumed training may plan without them. */
static int plan_images(struct zinf_tiers *t, struct zinf_ledger *ledger)
{
    const struct zinf_layout *layout = t->options.layout;
    struct kind kind = {.name = "parameters in 8 bits", .hint = "zinf.matmul_type"};
    int code = 0;
    for (uint32_t u = 0; !code && u < layout->n_units; u++) {
        if (!t->places[u].imaged)
            continue;
        const uint64_t bytes = t->options.image_bytes[u];
        const uint64_t copies = zinf_home_copies(&t->places[u]);
        code = kind_add(t, &kind, ZINF_TIER_DRIVE, copies * bytes, 1, &t->images[u]);
        t->images[u].stride = copies > 1 ? bytes : 0;
    }
    return code ? code : kind_end(&kind, ledger);
}

static int plan_all(struct zinf_tiers *t, struct zinf_ledger *ledger)
{
    int code = plan_params(t, ledger);
    if (!code)
        code = plan_images(t, ledger);
    if (!code)
        code = plan_grads(t, ledger);
    if (!code && t->options.n_moments >= 0)
        code = plan_states(t, ledger);
    return code;
}

/* Two generations of every part of every sub-group. */
static size_t n_packed(const struct zinf_layout *layout)
{
    return 2 * (size_t)ZINF_PACKABLES * layout->n_groups;
}

static bool has_all(const struct zinf_tiers *t)
{
    return t->params && t->grads && t->backings && t->images && t->states && t->tails &&
           t->param_tails && t->places && t->packed && t->live;
}

int zinf_tiers_plan(struct zinf_tiers **out, const struct zinf_tiers_options *options,
                    struct zinf_ledger *ledger)
{
    const struct zinf_layout *layout = options->layout;
    struct zinf_tiers *t = calloc(1, sizeof *t);
    if (!t)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    t->options = *options;
    t->params = calloc(layout->n_units + 1, sizeof *t->params);
    t->grads = calloc(layout->n_units + 1, sizeof *t->grads);
    t->backings = calloc(layout->n_units + 1, sizeof *t->backings);
    t->images = calloc(layout->n_units + 1, sizeof *t->images);
    t->states = calloc(layout->n_groups + 1, sizeof *t->states);
    t->tails = calloc(layout->n_groups + 1, sizeof *t->tails);
    t->param_tails = calloc(layout->n_groups + 1, sizeof *t->param_tails);
    t->places = calloc(layout->n_units + 1, sizeof *t->places);
    t->packed = calloc(n_packed(layout) + 1, sizeof *t->packed);
    t->live = calloc(layout->n_units + 1, sizeof *t->live);
    int code = 0;
    if (!has_all(t)) {
        code = zinf_fail(-ENOMEM, "no memory for a plan");
    } else {
        memcpy(t->places, options->places, layout->n_units * sizeof *t->places);
        t->options.places = t->places;
        code = plan_all(t, ledger);
    }
    if (code)
        zinf_tiers_destroy(t);
    else
        *out = t;
    return code;
}

void zinf_tiers_place(struct zinf_tiers *t, char *device_base, char *host_base)
{
    t->device_base = device_base;
    t->host_base = host_base;
}

void zinf_tiers_destroy(struct zinf_tiers *t)
{
    if (!t)
        return;
    free(t->params);
    free(t->grads);
    free(t->backings);
    free(t->images);
    free(t->states);
    free(t->tails);
    free(t->param_tails);
    free(t->places);
    free(t->packed);
    free(t->live);
    free(t);
}

static void *copy_of(const void *array, size_t n, size_t width)
{
    void *copy = calloc(n + 1, width);
    return copy ? memcpy(copy, array, n * width) : NULL;
}

static void read_copies(struct zinf_tiers *view)
{
    for (uint32_t u = 0; u < view->options.layout->n_units; u++) {
        struct zinf_home *place = &view->places[u];
        if (!place->overwritten || !place->backed)
            continue;
        view->params[u] = view->backings[u];
        place->param = ZINF_TIER_DRIVE;
        place->packed = place->packs_copy;
        place->backed = place->overwritten = place->packs_copy = place->param_headed = false;
    }
}

int zinf_tiers_view(struct zinf_tiers **out, const struct zinf_tiers *tiers)
{
    const struct zinf_layout *layout = tiers->options.layout;
    struct zinf_tiers *t = calloc(1, sizeof *t);
    if (!t)
        return zinf_fail(-ENOMEM, "no memory for a view of a plan");
    *t = *tiers;
    t->params = copy_of(tiers->params, layout->n_units, sizeof *t->params);
    t->grads = copy_of(tiers->grads, layout->n_units, sizeof *t->grads);
    t->backings = copy_of(tiers->backings, layout->n_units, sizeof *t->backings);
    t->images = copy_of(tiers->images, layout->n_units, sizeof *t->images);
    t->states = copy_of(tiers->states, layout->n_groups, sizeof *t->states);
    t->tails = copy_of(tiers->tails, layout->n_groups, sizeof *t->tails);
    t->param_tails = copy_of(tiers->param_tails, layout->n_groups, sizeof *t->param_tails);
    t->places = copy_of(tiers->places, layout->n_units, sizeof *t->places);
    t->packed = copy_of(tiers->packed, n_packed(layout), sizeof *t->packed);
    t->live = copy_of(tiers->live, layout->n_units, sizeof *t->live);
    t->options.places = t->places;
    if (has_all(t)) {
        read_copies(t);
        *out = t;
        return 0;
    }
    zinf_tiers_destroy(t);
    return zinf_fail(-ENOMEM, "no memory for a view of a plan");
}

const struct zinf_tiers_options *zinf_tiers_options(const struct zinf_tiers *t)
{
    return &t->options;
}

uint8_t *zinf_tiers_live(struct zinf_tiers *t, uint32_t unit)
{
    return &t->live[unit];
}

static struct zinf_location locate(const struct zinf_tiers *t, enum zinf_tier tier,
                                   const struct thing *thing, uint64_t bytes)
{
    struct zinf_location where = {.tier = tier, .bytes = bytes, .stride = thing->stride};
    if (tier == ZINF_TIER_DRIVE)
        where.extent = (zinf_extent)thing->offset;
    else
        where.memory = (tier == ZINF_TIER_DEVICE ? t->device_base : t->host_base) + thing->offset;
    return where;
}

static void set_generation(const struct zinf_tiers *t, struct zinf_location *where, uint32_t unit,
                           uint8_t relative)
{
    if (!where->stride)
        return;
    where->live = &t->live[unit];
    where->relative = relative;
}

static struct zinf_location part(struct zinf_location where, uint64_t offset, uint64_t bytes)
{
    where.offset += offset;
    where.bytes = bytes;
    if (where.tier != ZINF_TIER_DRIVE)
        where.memory += offset;
    return where;
}

struct zinf_location zinf_tiers_param(const struct zinf_tiers *t, uint32_t unit, uint8_t relative)
{
    struct zinf_location where =
        locate(t, t->places[unit].param, &t->params[unit], param_bytes(t, unit));
    set_generation(t, &where, unit, relative);
    return where;
}

struct zinf_location zinf_tiers_image(const struct zinf_tiers *t, uint32_t unit, uint8_t relative)
{
    struct zinf_location where =
        locate(t, ZINF_TIER_DRIVE, &t->images[unit], t->options.image_bytes[unit]);
    where.beside = where.stride != 0;
    set_generation(t, &where, unit, relative);
    return where;
}

/* The location of a sub-group within a unit's parameters. */
static struct zinf_location part_of_group(const struct zinf_tiers *t, struct zinf_location unit,
                                          uint32_t group)
{
    const struct zinf_layout_group *g = &t->options.layout->groups[group];
    uint64_t width = zinf_dtype_bytes(t->options.dtype);
    uint64_t slice = t->options.sliced ? 0 : t->options.layout->units[g->unit].slice_first;
    uint64_t first = slice + g->first;
    return part(unit, t->options.layout->units[g->unit].front_bytes + first * width, g->n * width);
}

struct zinf_location zinf_tiers_group_param(const struct zinf_tiers *t, uint32_t group,
                                            uint8_t relative)
{
    uint32_t unit = t->options.layout->groups[group].unit;
    struct zinf_location where = part_of_group(t, zinf_tiers_param(t, unit, relative), group);
    where.head = param_head_of(t, group);
    if (!where.head)
        return where;
    const struct zinf_location tail = zinf_tiers_group_param_tail(t, group, relative);
    where.memory = t->host_base + t->params[unit].offset + heads_before(t, unit, group);
    where.extent = tail.extent;
    where.live = tail.live; /* the head exists once, and has the generation that was written last */
    where.relative = tail.relative;
    return where;
}

struct zinf_location zinf_tiers_group_param_tail(const struct zinf_tiers *t, uint32_t group,
                                                 uint8_t relative)
{
    const uint64_t head = param_head_of(t, group);
    struct zinf_location where =
        locate(t, ZINF_TIER_DRIVE, &t->param_tails[group], group_param_bytes(t, group) - head);
    const uint32_t unit = t->options.layout->groups[group].unit;
    if (t->places[unit].generations > 1) {
        where.live = &t->live[unit];
        where.relative = relative;
    }
    where.head = head;
    return where;
}

struct zinf_location zinf_tiers_group_backing(const struct zinf_tiers *t, uint32_t group,
                                              uint8_t relative)
{
    uint32_t unit = t->options.layout->groups[group].unit;
    struct zinf_location where =
        locate(t, ZINF_TIER_DRIVE, &t->backings[unit], param_bytes(t, unit));
    set_generation(t, &where, unit, relative);
    return part_of_group(t, where, group);
}

struct zinf_location zinf_tiers_group_stored(const struct zinf_tiers *t, uint32_t group,
                                             uint8_t relative)
{
    return t->places[t->options.layout->groups[group].unit].backed
               ? zinf_tiers_group_backing(t, group, relative)
               : zinf_tiers_group_param(t, group, relative);
}

struct zinf_location zinf_tiers_group_state(const struct zinf_tiers *t, uint32_t group,
                                            uint8_t relative)
{
    const struct zinf_layout_group *g = &t->options.layout->groups[group];
    struct zinf_location where =
        locate(t, t->places[g->unit].state, &t->states[group], group_state_bytes(t, group));
    set_generation(t, &where, g->unit, relative);
    where.head = head_of(t, group);
    if (where.head)
        where.extent = (zinf_extent)t->tails[group].offset;
    return where;
}

struct zinf_location zinf_tiers_group_tail(const struct zinf_tiers *t, uint32_t group)
{
    const uint64_t head = head_of(t, group);
    struct zinf_location where =
        locate(t, ZINF_TIER_DRIVE, &t->tails[group], group_state_bytes(t, group) - head);
    where.head = head;
    return where;
}

struct zinf_packed *zinf_tiers_packed(const struct zinf_tiers *t, enum zinf_packable what,
                                      uint32_t group, unsigned generation)
{
    return &t->packed[2 * ((size_t)ZINF_PACKABLES * group + what) + generation];
}

struct zinf_location zinf_tiers_unit_grad_sum(const struct zinf_tiers *t, uint32_t unit,
                                              uint32_t number)
{
    const struct zinf_location all =
        locate(t, t->places[unit].grad, &t->grads[unit], grad_bytes(t, unit));
    return part(all, number * grad_stride(t, unit),
                t->options.layout->units[unit].slice_elems * sizeof(float));
}

struct zinf_location zinf_tiers_unit_grad(const struct zinf_tiers *t, uint32_t unit)
{
    return zinf_tiers_unit_grad_sum(t, unit, 0);
}

struct zinf_location zinf_tiers_group_grad(const struct zinf_tiers *t, uint32_t group)
{
    const struct zinf_layout_group *g = &t->options.layout->groups[group];
    return part(zinf_tiers_unit_grad(t, g->unit), g->first * sizeof(float), g->n * sizeof(float));
}

static int check_range(const struct zinf_location *where, uint64_t offset, uint64_t bytes)
{
    if (offset + bytes <= where->bytes && offset + bytes >= offset)
        return 0;
    return zinf_fail(-EINVAL, "range %llu + %llu is outside of %llu bytes",
                     (unsigned long long)offset, (unsigned long long)bytes,
                     (unsigned long long)where->bytes);
}

/* The parts of a range in the head and behind it. */
struct halves {
    uint64_t in_head, beyond, beyond_at; /* bytes */
};

static struct halves halves_of(const struct zinf_location *where, uint64_t offset, uint64_t bytes)
{
    const uint64_t head = where->head > offset ? where->head - offset : 0;
    struct halves h = {.in_head = bytes};
    if (where->tier != ZINF_TIER_HOST || !where->head || bytes <= head)
        return h;
    h = (struct halves){head, bytes - head, offset + head - where->head};
    return h;
}

int zinf_location_read(const struct zinf_access *by, const struct zinf_location *where,
                       uint64_t offset, void *memory, uint64_t bytes)
{
    const struct zinf_tiers *t = by->tiers;
    int code = check_range(where, offset, bytes);
    if (code)
        return code;
    if (where->tier == ZINF_TIER_DRIVE)
        return zinf_store_read_generation(t->options.store, where->extent,
                                          zinf_location_bank(where),
                                          zinf_location_offset(where) + offset, memory, bytes);
    struct zinf_operand at = zinf_of(where);
    const char *from = (const char *)zinf_address(&at) + offset;
    const struct halves h = halves_of(where, offset, bytes);
    if (where->tier == ZINF_TIER_HOST) {
        memcpy(memory, from, h.in_head);
        return !h.beyond ? 0
                         : zinf_store_read_generation(t->options.store, where->extent,
                                                      zinf_location_bank(where), h.beyond_at,
                                                      (char *)memory + h.in_head, h.beyond);
    }
    code = by->device->ops->copy_to_host(by->queue, memory, from, bytes);
    return code ? code : by->device->ops->queue_synchronize(by->queue);
}

int zinf_location_write(const struct zinf_access *by, const struct zinf_location *where,
                        uint64_t offset, const void *memory, uint64_t bytes)
{
    const struct zinf_tiers *t = by->tiers;
    int code = check_range(where, offset, bytes);
    if (code)
        return code;
    if (where->tier == ZINF_TIER_DRIVE)
        return zinf_store_write_generation(t->options.store, where->extent,
                                           zinf_location_bank(where),
                                           zinf_location_offset(where) + offset, memory, bytes);
    struct zinf_operand at = zinf_of(where);
    char *to = (char *)zinf_address(&at) + offset;
    const struct halves h = halves_of(where, offset, bytes);
    if (where->tier == ZINF_TIER_HOST) {
        memcpy(to, memory, h.in_head);
        return !h.beyond ? 0
                         : zinf_store_write_generation(t->options.store, where->extent,
                                                       zinf_location_bank(where), h.beyond_at,
                                                       (const char *)memory + h.in_head, h.beyond);
    }
    code = by->device->ops->copy_to_device(by->queue, to, memory, bytes);
    return code ? code : by->device->ops->queue_synchronize(by->queue);
}
