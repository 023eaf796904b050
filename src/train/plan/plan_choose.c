/*
 * plan_choose: what the budgets have room for. First what must be there; then, while the device
 * budget lasts: activations of blocks (each spares a recompute), all table tiles at once (spares
 * computing logits twice), units with slots of their own (each spares fetches), and, where the
 * configuration asks for it, state that the device then updates itself. Arithmetic does not depend
 * on any of these choices, so results do not either.
 */
#include "train/plan/plan.h"

/* The largest value of *field in [0, most] that fits; fitting is monotone. */
static void grow(struct zinf_trainer *t, struct choice *c, int *field, int most)
{
    int low = *field, high = most;
    while (low < high) {
        *field = low + (high - low + 1) / 2;
        if (plan_fits(t, c))
            low = *field;
        else
            high = *field - 1;
    }
    *field = low;
}

static void choose_kept(struct zinf_trainer *t, struct choice *c)
{
    const char *wanted = t->config->activation_checkpointing;
    int layers = (int)t->n_layers;
    if (!has_backward(t) || (wanted && !strcmp(wanted, "always")))
        return;
    if (wanted && !strcmp(wanted, "never"))
        c->n_kept = layers; /* the ledger's check says so where this does not fit */
    else
        grow(t, c, &c->n_kept, layers);
}

/* What must be there, as small as the budgets ask for. */
static void choose_least(struct zinf_trainer *t, struct choice *c)
{
    int64_t wanted = t->config->look_ahead;
    c->look_ahead = wanted < 0 ? 2 : wanted > MAX_LOOK_AHEAD ? MAX_LOOK_AHEAD : (int)wanted;
    c->grad_slots = t->grad_tier == ZINF_TIER_DEVICE && !t->layer_major ? 1 : 2;
    c->state_slots = 3;
    while (c->state_slots > 1 && !plan_fits(t, c))
        c->state_slots--;
    while (wanted < 0 && c->look_ahead > 0 && !plan_fits(t, c))
        c->look_ahead--;
    if (!plan_fits(t, c) && !t->layer_major)
        c->grad_slots = 1;
}

/* Activations leave the device where nothing else makes the plan fit. */
static void choose_activations(struct zinf_trainer *t, struct choice *c)
{
    bool decided = strcmp(t->config->activation_device, "auto") || t->config->cpu_checkpointing ||
                   !has_backward(t);
    if (decided || plan_fits(t, c))
        return;
    t->x_tier = ZINF_TIER_HOST;
    if (plan_fits(t, c) || !t->store)
        return;
    t->x_tier = ZINF_TIER_DRIVE;
    if (!plan_fits(t, c))
        t->x_tier = ZINF_TIER_DEVICE; /* the ledger's check names what is largest */
}

/* A given host budget is filled with what spares the drive most; what is left becomes depth. */
static void choose_host(struct zinf_trainer *t, struct choice *c)
{
    int layers = (int)t->n_layers, units = (int)t->n_units;
    if (t->grad_tier == ZINF_TIER_DRIVE && t->fills) {
        struct choice with_tables = *c;
        with_tables.host_tables = true;
        if (plan_fits(t, &with_tables))
            *c = with_tables;
    }
    if (plan_uses_tiles(t))
        grow(t, c, &c->state_slots, 6);
    if (!t->fills)
        return;
    if (t->grad_tier == ZINF_TIER_DRIVE && c->host_tables)
        grow(t, c, &c->n_host_grads, layers / t->wish.host_grads_part);
    /* The tables' gradients are complete last, and the next forward wants their update first: what
     * that needs of the drive nothing can hide. */
    if (t->state_tier == ZINF_TIER_DRIVE && trains(t) && c->host_tables)
        grow(t, c, &c->n_host_states, (int)first_block(t));
    if (t->param_tier == ZINF_TIER_DRIVE)
        grow(t, c, &c->n_host_params, units);
    if (t->state_tier == ZINF_TIER_DRIVE && trains(t))
        grow(t, c, &c->n_host_states, units);
    if (t->grad_tier == ZINF_TIER_DRIVE && c->host_tables)
        grow(t, c, &c->n_host_grads, layers);
    if (trains(t) && t->generations == 2 && !t->direct) /* else who computes is who updates */
        grow(t, c, &c->n_host_pairs, layers + 1);
    if (plan_uses_tiles(t)) {
        plan_set_places(t, c);
        int groups = plan_n_tile_groups(t);
        grow(t, c, &c->state_slots, groups < MAX_STATE_SLOTS ? groups : MAX_STATE_SLOTS);
    }
}

static void choose_device(struct zinf_trainer *t, struct choice *c)
{
    int tiles = zinf_model_n_tiles(t->model);
    bool fetches = plan_fetches(t, 0);
    if (t->wish.device_states)
        grow(t, c, &c->n_far_states, (int)t->n_units * t->wish.device_states / 4);
    if (t->wish.device_grads && !t->layer_major)
        grow(t, c, &c->n_device_grads, (int)t->n_layers * t->wish.device_grads / 4);
    if (t->grad_tier != ZINF_TIER_DEVICE && has_backward(t))
        grow(t, c, &c->grad_slots, 3);
    choose_kept(t, c);
    struct choice with_head = *c;
    with_head.head_all = true;
    if (fetches)
        with_head.n_own = tiles;
    if (has_backward(t) && plan_fits(t, &with_head))
        *c = with_head;
    if (fetches)
        grow(t, c, &c->n_own, (int)t->n_units);
    if (t->grad_tier == ZINF_TIER_DRIVE)
        grow(t, c, &c->grad_slots, 6);
    if (fetches && t->config->look_ahead < 0)
        grow(t, c, &c->look_ahead, 4);
    if (trainer_shares_updates(t))
        grow(t, c, &c->n_far_states, (int)t->n_units);
}

void plan_choose(struct zinf_trainer *t)
{
    struct choice *c = &t->choice;
    choose_least(t, c);
    choose_activations(t, c);
    choose_least(t, c);
    if (t->layer_major && !strcmp(t->config->accumulation_order, "auto") && !plan_fits(t, c)) {
        t->layer_major = false;
        t->n_x_micros = 1;
        plan_measure(t);
        choose_least(t, c);
        choose_activations(t, c);
        choose_least(t, c);
    }
    choose_host(t, c);
    choose_device(t, c);
    plan_set_places(t, c);
}
