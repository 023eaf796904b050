/*
 * plan_places: the home of every unit by a choice, what the homes take, and what they ask for
 * beside them.
 */
#include "train/plan/plan.h"

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

/* Whether a block is one of n that wait for the next forward. That leaves late blocks more time;
 * but were they simply the last ones, backward would have nothing to update while it goes through
 * them. So they are spread over the last (n_layers + n) / 2. */
static bool is_to_wait(const struct zinf_trainer *t, uint32_t unit, uint32_t n)
{
    uint32_t span = (t->n_layers + n) / 2, from_end = first_block(t) + t->n_layers - unit;
    return n && from_end <= span && from_end * n / span != (from_end - 1) * n / span;
}

static bool has_host_pair(const struct zinf_trainer *t, uint32_t unit, const struct choice *c)
{
    uint32_t n = (uint32_t)c->n_host_pairs;
    if (t->homes[unit].state != ZINF_TIER_HOST)
        return false;
    return is_block(t, unit) ? n > t->n_layers || !is_to_wait(t, unit, t->n_layers - n)
                             : n > t->n_layers;
}

/* By offload_optimizer.ratio and the choice. The gradients of the first units are complete last,
 * and the next forward needs these first: there the device, which has them at hand, spares most
 * waiting. The table's tiles stay together; where they are more than the ratio leaves, blocks go
 * without. A device that the CPU cannot read has the parameters too, which take little beside the
 * state. */
static void place_device_states(struct zinf_trainer *t, const struct choice *c)
{
    uint32_t tiles = (uint32_t)zinf_model_n_tiles(t->model), next;
    double ratio = t->config->offload_optimizer.ratio;
    double room = (1 - ratio) * (double)t->layout.total_elems;
    for (uint32_t first = 0; first < t->n_units; first = next) {
        double elems = 0;
        next = first ? first + 1 : tiles;
        for (uint32_t u = first; u < next; u++)
            elems += (double)t->layout.units[u].slice_elems;
        bool shared = ratio < 1 && elems / 2 <= room;
        room -= shared ? elems : 0;
        for (uint32_t u = first; u < next && (shared || (int)first < c->n_far_states); u++) {
            struct zinf_home *p = &t->homes[u];
            p->state = p->grad = ZINF_TIER_DEVICE;
        }
    }
}

/* What can be taken back: updates of state on the drive, and of that in RAM which has a pair. */
static uint8_t generations_of(const struct zinf_trainer *t, uint32_t unit, const struct choice *c)
{
    const struct zinf_home *p = &t->homes[unit];
    bool pair = p->state == ZINF_TIER_DRIVE || has_host_pair(t, unit, c);
    bool possible = p->param != ZINF_TIER_DEVICE || t->durable.wanted;
    return trains(t) && pair && possible ? t->generations : 1;
}

/* Units have their turn in the order of the forward: what the next step needs first is nearest. */
void plan_set_places(struct zinf_trainer *t, const struct choice *c)
{
    for (uint32_t u = 0; u < t->n_units; u++) {
        struct zinf_home *p = &t->homes[u];
        bool grad_in_host =
            is_block(t, u) ? is_to_wait(t, u, (uint32_t)c->n_host_grads) : c->host_tables;
        *p = (struct zinf_home){.param = t->param_tier,
                                .state = t->state_tier,
                                .grad = t->grad_tier,
                                .keeps_grad = has_backward(t)};
        if (p->param == ZINF_TIER_DRIVE && (int)u < c->n_host_params)
            p->param = ZINF_TIER_HOST;
        if (p->state == ZINF_TIER_DRIVE && (int)u < c->n_host_states)
            p->state = ZINF_TIER_HOST;
        if (p->grad == ZINF_TIER_DRIVE && grad_in_host)
            p->grad = ZINF_TIER_HOST;
        if (is_block(t, u) && u - first_block(t) < (uint32_t)c->n_device_grads)
            p->grad = ZINF_TIER_DEVICE;
    }
    if (trains(t))
        place_device_states(t, c);
    for (uint32_t u = 0; u < t->n_units; u++) {
        struct zinf_home *p = &t->homes[u];
        if (trains(t) && p->state == ZINF_TIER_DEVICE && device_is_far(t))
            p->param = ZINF_TIER_DEVICE;
        p->generations = generations_of(t, u, c);
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

bool plan_has_grad(const struct zinf_trainer *t, enum zinf_tier tier)
{
    for (uint32_t u = 0; u < t->n_units; u++)
        if (t->homes[u].keeps_grad && t->homes[u].grad == tier)
            return true;
    return false;
}

bool plan_norms_there(const struct zinf_trainer *t)
{
    return device_is_far(t) && plan_has_grad(t, ZINF_TIER_DEVICE);
}

/* A sum of gradients on a device that the CPU cannot reach, for an update by the CPU. */
static bool grad_is_far(const struct zinf_trainer *t, uint32_t unit)
{
    const struct zinf_home *p = &t->homes[unit];
    return p->keeps_grad && p->grad == ZINF_TIER_DEVICE && p->state != ZINF_TIER_DEVICE &&
           !t->direct;
}

static bool any_grad_is_far(const struct zinf_trainer *t)
{
    for (uint32_t u = 0; trains(t) && u < t->n_units; u++)
        if (grad_is_far(t, u))
            return true;
    return false;
}

bool plan_tiles_have_grads(const struct zinf_trainer *t)
{
    return plan_has_grad(t, ZINF_TIER_DRIVE) || any_grad_is_far(t);
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
        return plan_has_grad(t, ZINF_TIER_HOST) || plan_tiles_have_grads(t);
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
           p->grad == ZINF_TIER_DRIVE || grad_is_far(t, unit) ||
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
