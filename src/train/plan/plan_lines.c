/* plan_lines: the memory that amounts take beside the units' homes, a line for each purpose. */
#include "train/plan/lines.h"

#include <math.h>
#include <stdlib.h>

int plan_line(struct plan_lines *l, enum zinf_memory_tier tier, const char *name, const char *hint,
              uint64_t bytes, uint64_t *offset)
{
    if (l->n == l->capacity) {
        int capacity = l->capacity ? 2 * l->capacity : 32;
        struct plan_line *moved = realloc(l->line, (size_t)capacity * sizeof *moved);
        if (!moved)
            return zinf_fail(-ENOMEM, "no memory for the lines of a plan");
        l->line = moved;
        l->capacity = capacity;
    }
    l->line[l->n++] = (struct plan_line){tier, name, hint, bytes, offset};
    return 0;
}

/* Activations that the last n recomputing stages keep, of one micro-batch. */
static uint64_t kept_bytes(const struct walk *w, int n)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < w->graph->n_stages; s++)
        if (w->stages[s].ordinal != WALK_NONE &&
            w->stages[s].ordinal + (uint32_t)n >= w->n_recompute)
            bytes += w->stages[s].kept;
    return bytes;
}

/* Sums on the device take the first micro-batch's gradients themselves. */
static uint64_t whole_grad_bytes(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    const struct zinf_ids *sweep = &w->graph->stages[w->whole].sweep;
    uint64_t elems = 0;
    bool in_place = way_sums_in_place(&p->travel, &p->homes[sweep->at[0]]);
    if (in_place && p->setup->grad_tier == ZINF_TIER_DEVICE && p->setup->n_micro == 1)
        return 0;
    for (uint32_t i = 0; i < sweep->n; i++)
        if (unit_trains(p->setup, sweep->at[i]))
            elems += p->setup->layout.units[sweep->at[i]].padded_elems;
    return elems * sizeof(float);
}

static int param_lines(struct plan *p, const struct amounts *c, struct plan_lines *l)
{
    const uint64_t slots = param_slots_bytes(p, c, param_slot_sizes(p, c));
    if (!plan_fetches_beyond(p, 0))
        return 0;
    int code = plan_line(l, ZINF_MEMORY_DEVICE, "parameter slots", "zinf.look_ahead",
                         plan_fetches_beyond(p, c->n_own) ? slots : 0, &p->at.d_slots);
    return code ? code
                : plan_line(l, ZINF_MEMORY_DEVICE, "units with a slot of their own",
                            "zinf.device_memory", plan_own_bytes(p, c->n_own), &p->at.d_own);
}

static uint64_t activation_bytes(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    if (!has_backward(p->setup) && !plan_values_leave(p))
        return (uint64_t)setup_window_micros(p->setup) * w->n_slots * w->slot_bytes;
    return p->x_tier == ZINF_TIER_DEVICE ? (uint64_t)p->itinerary.live * w->all_leaving_bytes
                                         : x_slots(p) * plan_leaving_bytes(p);
}

static uint64_t squares_bytes(const struct plan *p)
{
    return first_square(p, p->setup->n_units) * sizeof(double);
}

/* A line that is left out where it takes no bytes. */
struct want {
    const char *name, *hint;
    uint64_t bytes;
    uint64_t *offset;
};

static int want_lines(struct plan_lines *l, enum zinf_memory_tier tier, const struct want *wants,
                      size_t n)
{
    int code = 0;
    for (size_t i = 0; !code && i < n; i++)
        if (wants[i].bytes)
            code =
                plan_line(l, tier, wants[i].name, wants[i].hint, wants[i].bytes, wants[i].offset);
    return code;
}

/* What one stage carries from chunk to chunk of a sample, or its gradient: on the device, and where
 * it lives if not all is there. */
static uint64_t carried_bytes(const struct plan *p, bool gradient)
{
    return p->setup->n_chunks > 1 ? carried_slots(p) * carried_slot_bytes(p, gradient) : 0;
}
/* What to lower for it: of parts all rows are at hand, and gradients once for each own part. */
static const char *carried_hint(const struct plan *p, bool gradient)
{
    const bool several = gradient && setup_own_parts(p->setup) > 1;
    return !in_parts(p->setup) ? "zinf.sequence_chunk"
           : several           ? "zinf.context_parts"
                               : "--seq-len";
}

static uint64_t carried_homes_bytes(const struct plan *p, enum zinf_tier tier, bool gradient)
{
    const bool made = has_backward(p->setup) || !gradient;
    const bool there = made && carried_groups(p) > 1 && carried_tier(p) == tier;
    return there ? carried_homes(p, gradient) * carried_home_bytes(p, gradient) : 0;
}

/* What a decoding call is told of its rows. */
static uint64_t row_bytes(const struct plan *p)
{
    return p->setup->compute.decoding ? rows_length(&p->setup->decoding) * sizeof(int32_t) : 0;
}

/* Of the largest unit that has quantised weights. */
uint64_t plan_numbers_bytes(const struct plan *p)
{
    const struct zinf_graph *g = p->setup->graph;
    const uint64_t width = zinf_dtype_bytes(p->setup->dtype);
    uint64_t most = 0;
    for (uint32_t u = 0; u < g->n_units; u++) {
        const uint64_t bytes = zinf_numbers_at(&g->units[u], g->units[u].n_tensors, width);
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t plan_image_offset(const struct plan *p, uint32_t unit)
{
    uint64_t bytes = 0;
    for (uint32_t u = 0; u < unit && has_waypoint(p->waypoints, CODE_SLOT); u++)
        bytes += plan_keeps_image(p, u) ? p->setup->images[u].bytes : 0;
    return bytes;
}

uint64_t plan_code_bytes(const struct plan *p, bool on_host)
{
    uint64_t most = 0;
    for (uint32_t u = 0; u < p->setup->n_units && has_waypoint(p->waypoints, CODE_SLOT); u++) {
        const bool passes =
            has_waypoint(p->ways[u].waypoints, CODE_SLOT) && !(on_host && plan_keeps_image(p, u));
        const uint64_t bytes = passes ? p->setup->images[u].bytes : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t plan_updated_bytes(const struct plan *p)
{
    uint64_t most = 0;
    for (uint32_t u = 0; u < p->setup->n_units; u++) {
        const bool made = has_waypoint(p->ways[u].waypoints, PARAM_UPDATED);
        const uint64_t bytes = zinf_layout_unit_bytes(&p->setup->layout, u, p->setup->dtype);
        most = made && bytes > most ? bytes : most;
    }
    return most;
}

/* Of chunks there are those at hand alone, of which a longer chunk has more. */
static const char *micros_hint(const struct plan *p)
{
    return p->setup->n_chunks > 1 ? "zinf.sequence_chunk" : "gradient_accumulation_steps";
}
static const char *inputs_name(const struct plan *p)
{
    return p->setup->n_chunks > 1 ? "inputs of a chunk" : "inputs of the step";
}
static const char *losses_name(const struct plan *p, bool on_host)
{
    return p->setup->n_chunks == 1 || (on_host && plan_keeps_losses(p)) ? "losses"
                                                                        : "losses of a chunk";
}

static const char cache_hint[] = "--max-new-tokens, --batch";

static int forward_lines(struct plan *p, const struct amounts *c, struct plan_lines *l)
{
    struct places *at = &p->at;
    const struct walk *w = &p->setup->walk;
    bool whole = c->whole && w->scratch_whole > w->scratch, backward = has_backward(p->setup);
    bool decodes = p->setup->compute.decoding;
    const struct want wants[] = {
        {"packed parameters on their way", "zinf.pack",
         has_waypoint(p->waypoints, PACKED_SLOT) ? PACKED_STAGINGS * plan_packed_fetch_bytes(p) : 0,
         &at->d_packed},
        {"marks of damage", "zinf.pack", plan_damage_bytes(p), &at->d_damage},
        {"parameters in 8 bits on their way", "zinf.matmul_type",
         CODE_STAGINGS * plan_code_bytes(p, false), &at->d_codes},
        {inputs_name(p), micros_hint(p), plan_inputs(p, false) * w->input_bytes, &at->d_inputs},
        {losses_name(p, false), micros_hint(p), plan_losses(p, false) * w->loss_bytes,
         &at->d_losses},
        {"activations between stages", "zinf.activation_device", activation_bytes(p), &at->d_x},
        {"activations that stay", "--seq-len",
         backward || plan_values_leave(p) ? (uint64_t)p->itinerary.live * w->staying_bytes : 0,
         &at->d_staying},
        {"activations of the working stage", "train_micro_batch_size_per_gpu",
         backward ? w->working : w->working_of_any, &at->d_working},
        {"scratch of a stage", "train_micro_batch_size_per_gpu",
         whole ? w->scratch_whole : w->scratch, &at->d_scratch},
        {"a layer's quantised weights as numbers", "zinf.device_memory",
         c->numbers ? plan_numbers_bytes(p) : 0, &at->d_numbers},
        {"rows by expert", "--seq-len", plan_list_bytes(p), &at->d_lists},
        {decodes ? "rows of logits" : "one row of logits", NULL,
         logits_rows(p) * (uint64_t)w->graph->row_cols * sizeof(float), &at->d_row},
        {"rows of a call", NULL, row_bytes(p), &at->d_rows},
        {"keys and values", cache_hint, c->host_cache ? 0 : w->cache_bytes, &at->d_cache},
        {"keys and values at hand", cache_hint, c->host_cache ? CACHE_SLOTS * w->largest_cache : 0,
         &at->d_cache},
        {plan_carried_name(p), carried_hint(p, false), carried_bytes(p, false), &at->d_carried},
        {"workspace of the kernels", "--threads", w->workspace, &at->d_workspace},
        {"activations of the reference", "train_micro_batch_size_per_gpu",
         w->has_reference ? (uint64_t)p->itinerary.live * w->n_slots * w->slot_bytes : 0,
         &at->d_reference},
        {"what the reference's stages keep", "train_micro_batch_size_per_gpu",
         !w->has_reference ? 0
         : backward        ? (uint64_t)p->itinerary.live * w->kept_always
                           : w->working_of_any,
         &at->d_reference_kept},
    };
    return want_lines(l, ZINF_MEMORY_DEVICE, wants, sizeof wants / sizeof *wants);
}

static int backward_lines(struct plan *p, const struct amounts *c, struct plan_lines *l)
{
    struct places *at = &p->at;
    const struct walk *w = &p->setup->walk;
    uint64_t micros = (uint64_t)p->setup->n_micro, at_once = (uint64_t)p->itinerary.live;
    const bool in_turn = p->setup->config->parts_in_turn;
    const struct want wants[] = {
        {"activations always kept for backward", "--seq-len",
         plan_gradients_leave(p) ? KEPT_SLOTS * w->kept_most : at_once * w->kept_always,
         &at->d_kept_always},
        {"activations kept for backward", "zinf.activation_checkpointing",
         at_once * kept_bytes(w, c->n_kept), &at->d_kept},
        {"gradients of the activations", "train_micro_batch_size_per_gpu",
         plan_gradients_leave(p) ? 0 : micros * w->end_bytes + at_once * w->turn_bytes,
         &at->d_gradients},
        {"gradients of keys and values", carried_hint(p, true), carried_bytes(p, true),
         &at->d_carried_gradient},
        {"gradients of states", "zinf.sequence_chunk", w->d_handed, &at->d_handed},
        {"gradient slots", in_turn ? "zinf.tensor_parts" : "zinf.parts_in_turn",
         grad_slots(p, c) * p->sizes.grad_slot, &at->d_grad_slots},
        {"gradient slots of shared tables", NULL, beside_slots(p) * p->sizes.beside_slot,
         &at->d_beside_slots},
        {"other GPUs' parts of a gradient", "zinf.gather", p->sizes.link, &at->d_link},
        {"parts of the gradient norm", NULL,
         has_waypoint(p->waypoints, SQUARES) ? squares_bytes(p) : 0, &at->d_squares},
        {"gradients of a whole sweep", "zinf.device_memory", c->whole ? whole_grad_bytes(p) : 0,
         &at->d_whole_grads},
    };
    return has_backward(p->setup)
               ? want_lines(l, ZINF_MEMORY_DEVICE, wants, sizeof wants / sizeof *wants)
               : 0;
}

/* Of a value or gradient that a rank of a pipeline gives to its neighbour. */
static uint64_t border_bytes(const struct plan *p)
{
    const struct zinf_graph *g = p->setup->graph;
    const struct zinf_compute *compute = &p->setup->compute;
    uint64_t most = 0;
    for (uint32_t k = 0; k < 4 * g->n_ranges; k++) {
        const struct zinf_range *r = &g->ranges[k / 4];
        const struct zinf_ids *ids[] = {&r->values_come, &r->values_go, &r->gradients_go,
                                        &r->gradients_come};
        for (uint32_t i = 0; i < ids[k % 4]->n; i++) {
            const struct zinf_value *v = &g->values[ids[k % 4]->at[i]];
            const uint64_t bytes =
                k % 4 < 2 ? zinf_value_bytes(compute, v) : zinf_value_gradient_bytes(compute, v);
            most = bytes > most ? bytes : most;
        }
    }
    return zinf_align_up(most, ZINF_MEMORY_ALIGN);
}

static uint64_t most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Of keys, values and their gradients that ranks along CONTEXT bring together by the host. */
static uint64_t shared_keys_bytes(const struct plan *p)
{
    return context_axis(p->setup)->world > 1 && carried_groups(p) == 1 && !plan_links_keys(p)
               ? most_of(carried_group_bytes(p, false), carried_group_bytes(p, true))
               : 0;
}

/* What ranks bring together in the middle of stages, or hand over between them. */
static uint64_t met_bytes(const struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    const bool shares = tensor_axis(p->setup)->world > 1;
    const bool hands = context_axis(p->setup)->world > 1 && w->in_order;
    const uint64_t handed = hands ? most_of(w->handed, w->d_handed) : 0;
    return device_is_far(p->setup) ? most_of(shares ? w->shared : 0, handed) : 0;
}

/* Staging is contiguous: loading and saving use it as one region. Behind it, and ready for copies
 * like it, is what must outlive them. */
static int staging_lines(struct plan *p, const struct amounts *c, struct plan_lines *l)
{
    struct places *at = &p->at;
    struct trainer_sizes *s = &p->sizes;
    struct legs value = way_value_out(&p->travel, p->x_tier);
    bool values = plan_values_may_leave(p) && has_waypoint(legs_waypoints(value), VALUE_STAGING);
    s->grad_staging = zinf_align_up(plan_grad_staging_bytes(p), ZINF_MEMORY_ALIGN);
    s->tile = has_waypoint(p->waypoints, GRAD_TILE) ? s->tile_most : s->tile_grad;
    s->border = device_is_far(p->setup) ? most_of(border_bytes(p), shared_keys_bytes(p)) : 0;
    const struct want wants[] = {
        {"sums over ranks on their way", "zinf.mesh.tensor", met_bytes(p), &at->h_shared},
        {"values between ranks on their way", shared_keys_bytes(p) ? "--seq-len" : "zinf.mesh.pipe",
         2 * s->border, &at->h_border},
        {"activations on their way", "zinf.activation_device",
         values ? (uint64_t)c->x_stagings * plan_value_staging_bytes(p) : 0, &at->h_x_staging},
        {"keys and values between ranks", "zinf.sequence_chunk",
         EXCHANGED * plan_exchanged_bytes(p), &at->h_exchanged},
        {"parameter staging", "zinf.look_ahead",
         has_waypoint(p->waypoints, PARAM_STAGING)
             ? param_stagings_bytes(p, c, param_slot_sizes(p, c))
             : 0,
         &at->h_param_staging},
        {"weights as the folder has them", "zinf.weights_in_place",
         has_waypoint(p->waypoints, FILE_STAGING)
             ? FILE_STAGINGS * zinf_align_up(p->setup->weights->most_bytes, ZINF_MEMORY_ALIGN)
             : 0,
         &at->h_files},
        {"packed parameters on their way", "zinf.pack",
         has_waypoint(p->waypoints, PACKED_STAGING) ? PACKED_STAGINGS * plan_packed_fetch_bytes(p)
                                                    : 0,
         &at->h_packed},
        {"parameters in 8 bits on their way", "zinf.matmul_type",
         CODE_STAGINGS * plan_code_bytes(p, true), &at->h_codes},
        {"updated parameters, for 8 bits", "zinf.matmul_type", plan_updated_bytes(p),
         &at->h_updated},
        {"packed gradients on their way", "zinf.pack",
         has_waypoint(p->waypoints, GRAD_PACKED)
             ? PACKED_STAGINGS * plan_packed_bytes(p, ZINF_PACKABLE_GRAD)
             : 0,
         &at->h_packed_grads},
        {"gradient staging", NULL, GRAD_STAGINGS * s->grad_staging, &at->h_grad_staging},
        {"sub-groups under way", "zero_optimization.sub_group_size",
         way_has_tile(p->waypoints) ? (uint64_t)c->state_slots * s->tile : 0, &at->h_tiles},
    };
    uint64_t staged = 0;
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++)
        staged += zinf_align_up(wants[i].bytes, ZINF_MEMORY_ALIGN);
    int code = want_lines(l, ZINF_MEMORY_HOST, wants, sizeof wants / sizeof *wants);
    if (!code && s->transfer > staged)
        code = plan_line(l, ZINF_MEMORY_HOST, "loading and saving (beyond staging)", NULL,
                         s->transfer - staged, NULL);
    return code ? code
                : plan_line(l, ZINF_MEMORY_HOST, "parameters in 8 bits", "zinf.matmul_type",
                            plan_image_offset(p, p->setup->n_units), &at->h_images);
}

static int host_lines(struct plan *p, const struct amounts *c, struct plan_lines *l)
{
    struct places *at = &p->at;
    const struct walk *w = &p->setup->walk;
    bool backward = has_backward(p->setup);
    const struct want wants[] = {
        {inputs_name(p), micros_hint(p), plan_inputs(p, true) * w->input_bytes, &at->h_inputs},
        {losses_name(p, true), micros_hint(p), plan_losses(p, true) * w->loss_bytes, &at->h_losses},
        {"marks of damage", "zinf.pack", plan_damage_bytes(p), &at->h_damage},
        {"norms", NULL, p->setup->layout.n_groups * sizeof(double), &at->h_scalars},
        {"logits", NULL, tensor_axis(p->setup)->world * logits_bytes(p), &at->h_row},
        {"rows of a call", NULL, row_bytes(p), &at->h_rows},
        {"keys and values", cache_hint, c->host_cache ? w->cache_bytes : 0, &at->h_cache},
        {"workspace of the optimizer", "optimizer.type", p->setup->update_bytes, &at->h_update},
        {"an unpacked sub-group", "zinf.pack",
         way_has_tile(p->waypoints) ? plan_unpacked_at(p, ZINF_PACKABLES) : 0, &at->h_unpacked},
        {"activations between stages", "zinf.activation_device",
         plan_values_leave(p) && p->x_tier == ZINF_TIER_HOST
             ? (uint64_t)p->itinerary.live * plan_all_leaving_bytes(p)
             : 0,
         &at->h_x},
        {plan_carried_name(p), "--seq-len", carried_homes_bytes(p, ZINF_TIER_HOST, false),
         &at->h_carried},
        {"gradients of keys and values", "--seq-len", carried_homes_bytes(p, ZINF_TIER_HOST, true),
         &at->h_carried_gradient},
        {"parts of the gradient norm", NULL,
         has_waypoint(p->waypoints, SQUARES) ? squares_bytes(p) : 0, &at->h_squares},
        {"rows by expert", "--seq-len", (uint64_t)p->itinerary.live * w->all_list_bytes,
         &at->h_lists},
        {"a choice of experts", "--seq-len", w->choice_bytes, &at->h_choice},
        {"saving in the background", "zinf.async_save",
         backward && p->setup->config->async_save ? p->sizes.transfer : 0, &at->h_background},
    };
    int code = want_lines(l, ZINF_MEMORY_HOST, wants, sizeof wants / sizeof *wants);
    if (!code) /* an empty line marks where staging begins */
        code = plan_line(l, ZINF_MEMORY_HOST, "staging", NULL, 0, &at->h_transfer);
    return code ? code : staging_lines(p, c, l);
}

static int drive_lines(struct plan *p, struct plan_lines *l)
{
    if (!plan_values_leave(p) || p->x_tier != ZINF_TIER_DRIVE)
        return 0;
    const uint64_t carried = carried_homes_bytes(p, ZINF_TIER_DRIVE, false) +
                             carried_homes_bytes(p, ZINF_TIER_DRIVE, true);
    int code =
        plan_line(l, ZINF_MEMORY_DRIVE, "activations between stages", "zinf.activation_device",
                  (uint64_t)p->itinerary.live * plan_all_leaving_bytes(p), NULL);
    return code || !carried
               ? code
               : plan_line(l, ZINF_MEMORY_DRIVE, plan_carried_name(p), "--seq-len", carried, NULL);
}

int plan_collect(struct plan *p, const struct amounts *c, struct plan_lines *l)
{
    l->n = 0;
    plan_set_places(p, c);
    int code = param_lines(p, c, l);
    if (!code)
        code = forward_lines(p, c, l);
    if (!code)
        code = backward_lines(p, c, l);
    if (!code)
        code = host_lines(p, c, l);
    return code ? code : drive_lines(p, l);
}

uint64_t plan_files_bytes(const struct plan *p)
{
    const struct weight_files *w = p->setup->weights;
    uint64_t bytes = 0;
    for (uint32_t u = 0; w && u < w->n_units; u++)
        bytes += w->units[u].bytes;
    return bytes;
}

/* The checksums of all pages that lie on a drive; bytes: of the pages. */
uint64_t plan_sums_bytes(const struct plan *p, uint64_t bytes)
{
    return bytes && p->setup->config->checksums ? zinf_store_sums_bytes(bytes) : 0;
}

/* A search may leave part of a host budget empty. Budgets are lowered to a grid, so that a larger
 * one tries what a smaller one has. */
static uint64_t budget_of(const struct plan *p, int tier)
{
    const struct setup *s = p->setup;
    double budget = (double)s->budget[tier];
    if (tier != ZINF_MEMORY_HOST)
        return s->budget[tier];
    if (p->filling && s->fill_bytes < s->budget[tier])
        budget = (double)s->fill_bytes;
    if (!p->variant.host_quarters)
        return (uint64_t)budget;
    return (uint64_t)exp2((ceil(4 * log2(budget)) - p->variant.host_quarters) / 4);
}

bool plan_fits(struct plan *p, const struct amounts *c)
{
    struct plan_lines l = {0};
    uint64_t placed[ZINF_MEMORY_TIERS] = {0};
    bool fits = !plan_collect(p, c, &l);
    plan_place_bytes(p, placed);
    uint64_t on_drive = placed[ZINF_MEMORY_DRIVE] + plan_files_bytes(p);
    for (int i = 0; i < l.n; i++)
        on_drive += l.line[i].tier == ZINF_MEMORY_DRIVE ? l.line[i].bytes : 0;
    placed[ZINF_MEMORY_HOST] += plan_sums_bytes(p, on_drive);
    uint64_t common = 0;
    for (int tier = 0; fits && tier < ZINF_MEMORY_TIERS; tier++) {
        uint64_t total =
            placed[tier] + zinf_ledger_total_bytes(p->ledger, (enum zinf_memory_tier)tier);
        for (int i = 0; i < l.n; i++)
            if ((int)l.line[i].tier == tier)
                total += zinf_align_up(l.line[i].bytes, ZINF_MEMORY_ALIGN);
        common += tier == ZINF_MEMORY_DRIVE ? 0 : total;
        fits = total <= budget_of(p, tier) && common <= p->setup->common_bytes;
    }
    free(l.line);
    return fits;
}
