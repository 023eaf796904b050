/*
 * plan_places: the home of every unit by a choice, what the homes take, and what they ask for
 * beside them.
 */
#include "train/plan.h"

/* Whether a unit's parameters are copied to the device before use. */
bool unit_is_fetched(const struct zinf_trainer *t, uint32_t unit)
{
    enum zinf_tier tier = t->homes[unit].param;
    return tier == ZINF_TIER_DRIVE || (tier == ZINF_TIER_HOST && !t->direct);
}

uint64_t trainer_own_bytes(const struct zinf_trainer *t, uint32_t end)
{
    uint64_t elems = 0;
    for (uint32_t u = 0; u < end; u++)
        if (unit_is_fetched(t, u))
            elems += t->layout.units[u].padded_elems;
    return elems * zinf_dtype_bytes(t->dtype);
}

/* Bytes of things whose size does not depend on the choice. */
void plan_measure(struct zinf_trainer *t)
{
    struct trainer_sizes *s = &t->sizes;
    struct zinf_block_kept kept;
    struct zinf_block_scratch scratch;
    struct zinf_head head;
    const struct zinf_layout *layout = &t->layout;
    uint64_t width = zinf_dtype_bytes(t->dtype), a = ZINF_MEMORY_ALIGN;
    bool backward = has_backward(t);
    uint64_t state = 0;
    for (uint32_t g = 0; g < layout->n_groups; g++) {
        uint64_t bytes = t->state_bytes[g] + durable_copy_bytes(t, layout->groups[g].n);
        state = bytes > state ? bytes : state;
    }
    s->slot = layout->max_unit_elems * width;
    s->grad_slot = layout->max_unit_elems * sizeof(float);
    s->x = zinf_align_up(t->rows * (uint64_t)t->spec->hidden * width, a);
    s->kept = zinf_align_up(zinf_block_kept_layout(&t->compute, NULL, &kept), a);
    s->scratch = zinf_block_scratch_layout(&t->compute, NULL, &scratch, backward);
    s->head = zinf_align_up(zinf_head_layout(&t->compute, NULL, &head, 0, backward), a);
    s->logits = (uint64_t)(t->head_rows * t->spec->tile_rows) * sizeof(float);
    s->workspace = zinf_model_workspace(&t->compute, t->model, t->head_rows, backward);
    s->tile_state = zinf_align_up(layout->max_group_elems * width, a);
    s->tile_grad = s->tile_state + state;
    s->transfer = trainer_transfer_bytes(t->model, t->dtype);
}

static bool is_block(const struct zinf_trainer *t, uint32_t unit)
{
    return unit >= first_block(t) && unit < first_block(t) + t->n_layers;
}

/* By offload_optimizer.ratio and the choice: from this unit on the optimizer's state is on the
 * device, and so is the gradient. The table's tiles stay together. */
static uint32_t first_on_device(const struct zinf_trainer *t, const struct choice *c)
{
    uint32_t tiles = (uint32_t)zinf_model_n_tiles(t->model), unit = 0;
    uint32_t chosen = t->n_units - (uint32_t)c->n_far_states;
    if (chosen && chosen < tiles)
        chosen = tiles;
    double on_cpu = t->config->offload_optimizer.ratio * (double)t->layout.total_elems, before = 0;
    if (!trains(t) || t->config->offload_optimizer.ratio >= 1)
        return chosen;
    while (unit < chosen) {
        double elems = 0;
        uint32_t end = unit ? unit + 1 : tiles;
        for (uint32_t u = unit; u < end; u++)
            elems += (double)t->layout.units[u].slice_elems;
        if (before + elems / 2 > on_cpu)
            break;
        before += elems;
        unit = end;
    }
    return unit;
}

/* Units have their turn in the order of the forward: what the next step needs first is nearest. An
 * update by the device itself has the parameters there too, which take little beside the state. */
void plan_set_places(struct zinf_trainer *t, const struct choice *c)
{
    uint32_t device_from = first_on_device(t, c);
    for (uint32_t u = 0; u < t->n_units; u++) {
        struct zinf_home *p = &t->homes[u];
        bool late_block =
            is_block(t, u) && (int)(first_block(t) + t->n_layers - u) <= c->n_host_grads;
        *p = (struct zinf_home){.param = t->param_tier,
                                .state = t->state_tier,
                                .grad = t->grad_tier,
                                .keeps_grad = has_backward(t),
                                .generations = 1};
        if (p->param == ZINF_TIER_DRIVE && (int)u < c->n_host_params)
            p->param = ZINF_TIER_HOST;
        if (p->state == ZINF_TIER_DRIVE && (int)u < c->n_host_states)
            p->state = ZINF_TIER_HOST;
        if (p->grad == ZINF_TIER_DRIVE && (is_block(t, u) ? late_block : c->host_tables))
            p->grad = ZINF_TIER_HOST;
        if (u >= device_from)
            p->state = p->grad = ZINF_TIER_DEVICE;
        if (p->state == ZINF_TIER_DEVICE && device_is_far(t))
            p->param = ZINF_TIER_DEVICE;
        if (trains(t) && p->state == ZINF_TIER_DRIVE &&
            (p->param != ZINF_TIER_DEVICE || t->durable.wanted))
            p->generations = t->generations;
    }
}

void plan_place_bytes(const struct zinf_trainer *t, uint64_t bytes[ZINF_MEMORY_TIERS])
{
    for (uint32_t u = 0; u < t->n_units; u++) {
        const struct zinf_home *p = &t->homes[u];
        uint64_t n = t->layout.units[u].slice_elems;
        bytes[p->param] += t->layout.units[u].padded_elems * zinf_dtype_bytes(t->dtype) *
                           (p->param == ZINF_TIER_DEVICE ? 1 : p->generations);
        bytes[p->state] += (trainer_unit_state_bytes(t, u) + durable_copy_bytes(t, n)) *
                           (p->state == ZINF_TIER_DEVICE ? 1 : p->generations);
        if (p->keeps_grad)
            bytes[p->grad] += n * sizeof(float);
    }
}

bool plan_has_param(const struct zinf_trainer *t, enum zinf_tier tier)
{
    for (uint32_t u = 0; u < t->n_units; u++)
        if (t->homes[u].param == tier)
            return true;
    return false;
}

bool plan_updates_there(const struct zinf_trainer *t)
{
    for (uint32_t u = 0; u < t->n_units; u++)
        if (device_is_far(t) && t->homes[u].state == ZINF_TIER_DEVICE)
            return true;
    return false;
}

bool plan_has_grad(const struct zinf_trainer *t, enum zinf_tier tier)
{
    for (uint32_t u = 0; u < t->n_units; u++)
        if (t->homes[u].keeps_grad && t->homes[u].grad == tier)
            return true;
    return false;
}

bool plan_fetches(const struct zinf_trainer *t, uint32_t from)
{
    for (uint32_t u = from; u < t->n_units; u++)
        if (unit_is_fetched(t, u))
            return true;
    return false;
}

/* Sums on the drive are made in host memory, and so is all of a gradient that the CPU and the
 * drive cannot reach where it was computed. */
bool plan_stages_grads(const struct zinf_trainer *t)
{
    if (!has_backward(t))
        return false;
    if (!t->direct)
        return plan_has_grad(t, ZINF_TIER_HOST) || plan_has_grad(t, ZINF_TIER_DRIVE);
    bool several = t->n_micro > 1 && !t->layer_major;
    for (uint32_t u = 0; u < t->n_units; u++)
        if (t->homes[u].grad == ZINF_TIER_DRIVE &&
            (several || (int)u < zinf_model_n_tiles(t->model)))
            return true;
    return false;
}

static bool unit_uses_tiles(const struct zinf_trainer *t, uint32_t unit)
{
    const struct zinf_home *p = &t->homes[unit];
    return p->param == ZINF_TIER_DRIVE || p->state == ZINF_TIER_DRIVE ||
           p->grad == ZINF_TIER_DRIVE ||
           (p->param == ZINF_TIER_DEVICE && p->state != ZINF_TIER_DEVICE && !t->direct);
}

int plan_n_tile_groups(const struct zinf_trainer *t)
{
    uint32_t n = 0;
    for (uint32_t u = 0; trains(t) && u < t->n_units; u++)
        if (unit_uses_tiles(t, u))
            n += t->layout.units[u].n_groups;
    return (int)n;
}

bool plan_uses_tiles(const struct zinf_trainer *t)
{
    return plan_n_tile_groups(t) > 0;
}
