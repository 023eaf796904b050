/*
 * plan_choose: what the budgets have room for. First what must be there; then, while the device
 * budget lasts: activations of blocks (each spares a recompute), all table tiles at once (spares
 * computing logits twice), units with slots of their own (each spares fetches), and, where the
 * configuration asks for it, state that the device then updates itself. Arithmetic does not depend
 * on any of these choices, so results do not either.
 */
#include "train/plan/lines.h"

/* The largest value of *field in [0, most] that fits; fitting is monotone. */
static void grow(struct plan *p, struct amounts *c, int *field, int most)
{
    int low = *field, high = most;
    while (low < high) {
        *field = low + (high - low + 1) / 2;
        if (plan_fits(p, c))
            low = *field;
        else
            high = *field - 1;
    }
    *field = low;
}

static void choose_kept(struct plan *p, struct amounts *c)
{
    int layers = (int)p->setup->walk.n_recompute;
    if (!has_backward(p->setup) || p->setup->recompute == RECOMPUTE_ALWAYS)
        return;
    if (p->setup->recompute == RECOMPUTE_NEVER)
        c->n_kept = layers; /* the ledger's check says so where this does not fit */
    else
        grow(p, c, &c->n_kept, layers);
}

/* What backward makes a second time, of a micro-batch. */
static double flops_again(const struct plan *p, const struct amounts *c)
{
    const struct walk *w = &p->setup->walk;
    double flops = 0;
    for (uint32_t s = 0; s < w->graph->n_stages; s++) {
        const struct walk_stage *info = &w->stages[s];
        uint32_t visits = zinf_stage_visits(&w->graph->stages[s]);
        bool kept =
            info->ordinal == WALK_NONE || info->ordinal + (uint32_t)c->n_kept >= w->n_recompute;
        if (s == w->whole ? !c->whole : !kept)
            flops += visits * info->size[ZINF_PASS_FORWARD].flops;
    }
    return flops;
}

/* Activations, and all table tiles at once: what spares more. */
static void choose_once(struct plan *p, struct amounts *c, bool fetches)
{
    const struct walk *w = &p->setup->walk;
    struct amounts whole = *c;
    whole.whole = w->whole != WALK_NONE && !(p->setup->exact && p->setup->n_micro > 1);
    if (fetches && whole.whole) {
        int swept = (int)w->graph->stages[w->whole].sweep.n;
        whole.n_own = c->n_own > swept ? c->n_own : swept;
    }
    choose_kept(p, c);
    if (!has_backward(p->setup) || !whole.whole || !plan_fits(p, &whole))
        return;
    choose_kept(p, &whole);
    if (flops_again(p, &whole) <= flops_again(p, c))
        *c = whole;
}

/* Units that the forward needs before its first layer: tables. */
static uint32_t first_layer(const struct walk *w)
{
    return w->n_layers ? w->layers[0] : w->graph->n_units;
}

/* What must be there, as small as the budgets ask for. */
static void choose_least(struct plan *p, struct amounts *c)
{
    int64_t wanted = p->setup->config->look_ahead;
    const int open = p->variant.ahead ? 1 : 2; /* what is far ahead is counted by bytes */
    c->look_ahead = wanted < 0 ? open : wanted > MAX_LOOK_AHEAD ? MAX_LOOK_AHEAD : (int)wanted;
    c->ahead = p->variant.ahead;
    c->grad_slots = p->setup->grad_tier == ZINF_TIER_DEVICE && !goes_together(p) ? 1 : 2;
    c->state_slots = 3;
    c->x_stagings = p->variant.more_staging ? MORE_X_STAGINGS : X_STAGINGS;
    while (c->state_slots > 1 && !plan_fits(p, c))
        c->state_slots--;
    while (c->ahead && !plan_fits(p, c))
        c->ahead /= 2;
    while (wanted < 0 && c->look_ahead > 0 && !plan_fits(p, c))
        c->look_ahead--;
    if (!plan_fits(p, c) && !goes_together(p))
        c->grad_slots = 1;
}

/* All that a stage carries from chunk to chunk is on the device, if that has room, or groups of as
 * many chunks as it has room for. Whether the plan fits then. */
static bool choose_carried(struct plan *p, struct amounts *c)
{
    const int64_t n = p->setup->n_chunks;
    p->carried_span = n;
    const struct walk *w = &p->setup->walk;
    const bool of_all = w->keys_first || (in_parts(p->setup) && w->hands_over); /* looks at all */
    if (plan_fits(p, c) || n <= CARRIED_SLOTS || !plan_values_leave(p) || of_all)
        return plan_fits(p, c);
    p->carried_span = 1;
    bool fits = plan_fits(p, c), more = fits;
    while (more && p->carried_span * CARRIED_SLOTS * 2 < n) {
        p->carried_span *= 2;
        more = plan_fits(p, c);
        p->carried_span /= more ? 1 : 2;
    }
    return fits;
}

/* Activations leave the device where nothing else makes the plan fit, or to be tried. */
static void choose_activations(struct plan *p, struct amounts *c)
{
    const bool open = p->setup->x_is_open && plan_values_may_leave(p);
    if (choose_carried(p, c) ? !(open && p->variant.x_on_host) : !open)
        return;
    p->x_tier = ZINF_TIER_HOST;
    if (choose_carried(p, c) || !p->store)
        return;
    p->x_tier = ZINF_TIER_DRIVE;
    p->carried_near = true; /* it is read more often than values */
    if (choose_carried(p, c))
        return;
    p->carried_near = false;
    if (!choose_carried(p, c)) {
        p->x_tier = ZINF_TIER_DEVICE; /* the ledger's check names what is largest */
        p->carried_span = p->setup->n_chunks;
    }
}

/* Every new token reads all of it: before any unit gets a slot of its own. */
static void choose_cache(struct plan *p, struct amounts *c)
{
    c->host_cache = p->setup->walk.cache_bytes && !plan_fits(p, c);
}

/* State in RAM of layers, then of all other units too. */
static void choose_pairs(struct plan *p, struct amounts *c, int layers)
{
    grow(p, c, &c->n_host_pairs, layers);
    struct amounts all = *c;
    all.all_pairs = true;
    if (c->n_host_pairs == layers && plan_fits(p, &all))
        *c = all;
}

static void choose_tables(struct plan *p, struct amounts *c)
{
    struct amounts with_tables = *c;
    with_tables.host_tables = true;
    if (p->setup->grad_tier == ZINF_TIER_DRIVE && p->setup->fills && plan_fits(p, &with_tables))
        *c = with_tables;
}

/* Groups of chunks between device and drive: in backward they go both ways at once. */
static void choose_stagings(struct plan *p, struct amounts *c)
{
    if (plan_streams_carried(p))
        grow(p, c, &c->x_stagings, MORE_X_STAGINGS);
}

/* RAM is filled with what spares the drive most; what is left becomes depth. State that outlives
 * the process stays on the drive. */
static void fill_host(struct plan *p, struct amounts *c)
{
    int layers = (int)p->setup->walk.n_layers, units = (int)p->setup->n_units;
    bool states = p->setup->state_tier == ZINF_TIER_DRIVE && trains(p->setup) && !p->setup->durable;
    if (p->setup->grad_tier == ZINF_TIER_DRIVE && c->host_tables)
        grow(p, c, &c->n_host_grads, layers / p->variant.host_grads_part);
    /* The tables' gradients are complete last, and the next forward wants their update first: what
     * that needs of the drive nothing can hide. */
    if (states && c->host_tables)
        grow(p, c, &c->n_host_states, (int)first_layer(&p->setup->walk));
    if (p->setup->param_tier == ZINF_TIER_DRIVE)
        grow(p, c, &c->n_host_params, units);
    if (states) {
        int least = c->n_host_states;
        grow(p, c, &c->n_host_states, units);
        c->n_host_states = least + (c->n_host_states - least) * p->variant.host_states / 4;
    }
    if (p->setup->grad_tier == ZINF_TIER_DRIVE && c->host_tables)
        grow(p, c, &c->n_host_grads, layers);
    if (trains(p->setup) && p->setup->generations == 2 &&
        !p->travel.reach[BY_CPU][ON_DEVICE]) /* else who computes is who updates */
        choose_pairs(p, c, layers);
    choose_stagings(p, c);
    if (way_has_tile(p->waypoints)) {
        plan_set_places(p, c);
        int groups = plan_n_tile_groups(p);
        grow(p, c, &c->state_slots, groups < MAX_STATE_SLOTS ? groups : MAX_STATE_SLOTS);
    }
}

static void choose_host(struct plan *p, struct amounts *c)
{
    p->filling = true;
    choose_tables(p, c);
    p->filling = false;
    if (way_has_tile(p->waypoints))
        grow(p, c, &c->state_slots, 6);
    p->filling = true;
    if (p->setup->fills)
        fill_host(p, c);
    p->filling = false;
    choose_stagings(p, c);
}

/* Quantised weights become numbers once for all micro-batches of a layer, or for the two passes
 * that a backward with recomputing is. */
static void choose_numbers(struct plan *p, struct amounts *c)
{
    struct amounts with = *c;
    with.numbers = has_backward(p->setup) && plan_numbers_bytes(p) > 0 &&
                   (goes_together(p) || c->n_kept < (int)p->setup->walk.n_recompute);
    if (with.numbers && plan_fits(p, &with))
        *c = with;
}

static void choose_device(struct plan *p, struct amounts *c)
{
    bool fetches = plan_fetches_beyond(p, 0);
    if (p->variant.device_states)
        grow(p, c, &c->n_device_states, (int)p->setup->n_units * p->variant.device_states / 4);
    if (p->variant.device_grads && !goes_together(p))
        grow(p, c, &c->n_device_grads, (int)p->setup->walk.n_layers * p->variant.device_grads / 4);
    if (p->setup->grad_tier != ZINF_TIER_DEVICE && has_backward(p->setup))
        grow(p, c, &c->grad_slots,
             p->variant.device_adds ? 5 : 3); /* two of each layer under way */
    /* Gradients wait on the device where links are what limits: they spare transfers first. */
    if (fetches && c->n_device_grads && p->setup->n_micro == 1)
        grow(p, c, &c->n_own, (int)p->setup->n_units);
    choose_once(p, c, fetches);
    if (goes_together(p)) /* each fetch then serves many products */
        choose_numbers(p, c);
    if (fetches)
        grow(p, c, &c->n_own, (int)p->setup->n_units);
    if (p->setup->grad_tier == ZINF_TIER_DRIVE)
        grow(p, c, &c->grad_slots, 6);
    if (fetches && p->setup->config->look_ahead < 0)
        grow(p, c, &c->look_ahead, 4);
    if (!c->numbers)
        choose_numbers(p, c);
    if (setup_shares_updates(p->setup))
        grow(p, c, &c->n_device_states, (int)p->setup->n_units);
}

int plan_choose(struct plan *p)
{
    struct amounts *c = &p->amounts;
    choose_least(p, c);
    choose_cache(p, c);
    choose_activations(p, c);
    choose_least(p, c);
    bool open =
        p->setup->n_chunks == 1 && (p->setup->order == ORDER_AUTO || p->setup->order_is_open);
    if (goes_together(p) && open && !is_piped(p->setup) && !plan_fits(p, c)) {
        itinerary_fini(&p->itinerary);
        int code = itinerary_make(&p->itinerary, &p->setup->walk, p->setup->n_micro, 1);
        if (code)
            return code;
        plan_measure(p);
        choose_least(p, c);
        choose_activations(p, c);
        choose_least(p, c);
    }
    choose_host(p, c);
    choose_device(p, c);
    plan_set_places(p, c);
    return 0;
}
