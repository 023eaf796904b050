/*
 * tiers: the place of every parameter, gradient and optimizer state. Planned first (ledger lines
 * and extents), placed when the arenas exist. Extents: one for a unit's parameters, one for a
 * unit's gradient, one for each sub-group's state, so that a fetch is one sequential read.
 */
#include "offload/offload.h"

#include <stdlib.h>

struct zinf_tiers {
    struct zinf_tiers_options options;
    uint64_t *param_offset, *grad_offset; /* [n_units]: arena offset, or extent number */
    uint64_t *state_offset;               /* [n_groups] */
    char *device_base, *host_base;
};

const char *zinf_tier_name(enum zinf_tier tier)
{
    static const char *const names[] = {"device", "host", "drive"};
    return names[tier];
}

/* A run of equal things in one tier: one ledger line, offsets packed behind each other. */
static int plan_run(struct zinf_tiers *t, struct zinf_ledger *ledger, enum zinf_tier tier,
                    const char *name, const char *hint, const uint64_t *bytes, uint64_t *offsets,
                    uint32_t n)
{
    uint64_t total = 0, base = 0;
    for (uint32_t i = 0; i < n; i++) {
        offsets[i] = total;
        total += zinf_align_up(bytes[i], ZINF_MEMORY_ALIGN);
        if (tier != ZINF_TIER_DRIVE)
            continue;
        zinf_extent extent;
        int code = zinf_store_add_extent(t->options.store, bytes[i], &extent);
        if (code)
            return code;
        offsets[i] = extent;
    }
    static const enum zinf_memory_tier memory[] = {ZINF_MEMORY_DEVICE, ZINF_MEMORY_HOST,
                                                   ZINF_MEMORY_DRIVE};
    int code = zinf_ledger_add(ledger, memory[tier], name, hint, total, &base);
    for (uint32_t i = 0; !code && i < n && tier != ZINF_TIER_DRIVE; i++)
        offsets[i] += base;
    return code;
}

static uint64_t state_bytes(const struct zinf_tiers *t, uint32_t group)
{
    uint64_t arrays = 1 + (uint64_t)t->options.n_moments;
    return t->options.layout->groups[group].n * arrays * sizeof(float);
}

static int plan_all(struct zinf_tiers *t, struct zinf_ledger *ledger)
{
    const struct zinf_tiers_options *o = &t->options;
    const struct zinf_layout *layout = o->layout;
    uint32_t most = layout->n_groups > layout->n_units ? layout->n_groups : layout->n_units;
    uint64_t *bytes = calloc(most ? most : 1, sizeof *bytes);
    if (!bytes)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    for (uint32_t u = 0; u < layout->n_units; u++)
        bytes[u] = layout->units[u].padded_elems * zinf_dtype_bytes(o->dtype);
    int code = plan_run(t, ledger, o->param, "parameters", "zero_optimization.offload_param.device",
                        bytes, t->param_offset, layout->n_units);
    if (code || !o->has_state)
        goto out;
    for (uint32_t u = 0; u < layout->n_units; u++)
        bytes[u] = layout->units[u].slice_elems * sizeof(float);
    code = plan_run(t, ledger, o->grad, "gradients (fp32)", "zinf.grad_device", bytes,
                    t->grad_offset, layout->n_units);
    if (code)
        goto out;
    for (uint32_t g = 0; g < layout->n_groups; g++)
        bytes[g] = state_bytes(t, g);
    code = plan_run(t, ledger, o->state, "optimizer state (master, moments)",
                    "zero_optimization.offload_optimizer.device", bytes, t->state_offset,
                    layout->n_groups);
out:
    free(bytes);
    return code;
}

int zinf_tiers_plan(struct zinf_tiers **out, const struct zinf_tiers_options *options,
                    struct zinf_ledger *ledger)
{
    const struct zinf_layout *layout = options->layout;
    if (options->has_state && options->grad != options->state &&
        !(options->grad == ZINF_TIER_HOST && options->state == ZINF_TIER_DRIVE))
        return zinf_fail(-EINVAL,
                         "gradients on the %s tier with optimizer state on the %s tier: set "
                         "zinf.grad_device to that of offload_optimizer, or to cpu beside nvme",
                         zinf_tier_name(options->grad), zinf_tier_name(options->state));
    struct zinf_tiers *t = calloc(1, sizeof *t);
    if (!t)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    t->options = *options;
    t->param_offset = calloc(layout->n_units + 1, sizeof *t->param_offset);
    t->grad_offset = calloc(layout->n_units + 1, sizeof *t->grad_offset);
    t->state_offset = calloc(layout->n_groups + 1, sizeof *t->state_offset);
    int code = t->param_offset && t->grad_offset && t->state_offset
                   ? plan_all(t, ledger)
                   : zinf_fail(-ENOMEM, "no memory for a plan");
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
    free(t->param_offset);
    free(t->grad_offset);
    free(t->state_offset);
    free(t);
}

const struct zinf_tiers_options *zinf_tiers_options(const struct zinf_tiers *t)
{
    return &t->options;
}

static struct zinf_location locate(const struct zinf_tiers *t, enum zinf_tier tier, uint64_t offset,
                                   uint64_t bytes)
{
    struct zinf_location where = {.tier = tier, .bytes = bytes};
    if (tier == ZINF_TIER_DRIVE)
        where.extent = (zinf_extent)offset;
    else
        where.memory = (tier == ZINF_TIER_DEVICE ? t->device_base : t->host_base) + offset;
    return where;
}

static struct zinf_location part(struct zinf_location where, uint64_t offset, uint64_t bytes)
{
    where.offset += offset;
    where.bytes = bytes;
    if (where.memory)
        where.memory += offset;
    return where;
}

struct zinf_location zinf_tiers_param(const struct zinf_tiers *t, uint32_t unit)
{
    uint64_t elems = t->options.layout->units[unit].padded_elems;
    return locate(t, t->options.param, t->param_offset[unit],
                  elems * zinf_dtype_bytes(t->options.dtype));
}

struct zinf_location zinf_tiers_group_param(const struct zinf_tiers *t, uint32_t group)
{
    const struct zinf_layout_group *g = &t->options.layout->groups[group];
    uint64_t width = zinf_dtype_bytes(t->options.dtype);
    uint64_t first = t->options.layout->units[g->unit].slice_first + g->first;
    return part(zinf_tiers_param(t, g->unit), first * width, g->n * width);
}

struct zinf_location zinf_tiers_group_state(const struct zinf_tiers *t, uint32_t group)
{
    return locate(t, t->options.state, t->state_offset[group], state_bytes(t, group));
}

struct zinf_location zinf_tiers_unit_grad(const struct zinf_tiers *t, uint32_t unit)
{
    return locate(t, t->options.grad, t->grad_offset[unit],
                  t->options.layout->units[unit].slice_elems * sizeof(float));
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

int zinf_location_read(const struct zinf_tiers *t, const struct zinf_device *device,
                       struct zinf_queue *queue, const struct zinf_location *where, uint64_t offset,
                       void *memory, uint64_t bytes)
{
    int code = check_range(where, offset, bytes);
    if (code)
        return code;
    if (where->tier == ZINF_TIER_DRIVE)
        return zinf_store_read(t->options.store, where->extent, where->offset + offset, memory,
                               bytes);
    if (where->tier == ZINF_TIER_HOST) {
        memcpy(memory, where->memory + offset, bytes);
        return 0;
    }
    code = device->ops->copy_to_host(queue, memory, where->memory + offset, bytes);
    return code ? code : device->ops->queue_synchronize(queue);
}

int zinf_location_write(const struct zinf_tiers *t, const struct zinf_device *device,
                        struct zinf_queue *queue, const struct zinf_location *where,
                        uint64_t offset, const void *memory, uint64_t bytes)
{
    int code = check_range(where, offset, bytes);
    if (code)
        return code;
    if (where->tier == ZINF_TIER_DRIVE)
        return zinf_store_write(t->options.store, where->extent, where->offset + offset, memory,
                                bytes);
    if (where->tier == ZINF_TIER_HOST) {
        memcpy(where->memory + offset, memory, bytes);
        return 0;
    }
    code = device->ops->copy_to_device(queue, where->memory + offset, memory, bytes);
    return code ? code : device->ops->queue_synchronize(queue);
}
