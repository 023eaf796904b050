/*
 * plan: chooses what the budgets have room for, and gives every buffer its place. First what must
 * be there; then, while the device budget lasts: activations of blocks (each spares a recompute),
 * all table tiles at once (spares computing logits twice), units with slots of their own (each
 * spares fetches). Arithmetic does not depend on any of these choices, so results do not either.
 */
#include "formats/formats.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>

struct line {
    enum zinf_memory_tier tier;
    const char *name, *hint;
    uint64_t bytes;
    uint64_t *offset;
};
#define MAX_LINES 24
struct lines {
    struct line line[MAX_LINES];
    int n;
};

static void add(struct lines *l, enum zinf_memory_tier tier, const char *name, const char *hint,
                uint64_t bytes, uint64_t *offset)
{
    l->line[l->n++] = (struct line){tier, name, hint, bytes, offset};
}

/* Whether a unit's parameters are copied to the device before use. */
bool unit_is_fetched(const struct zinf_trainer *t, uint32_t unit)
{
    enum zinf_tier tier = t->homes[unit].param;
    return tier == ZINF_TIER_DRIVE || (tier == ZINF_TIER_HOST && !t->direct);
}

/* Bytes of things whose size does not depend on the choice. */
static void measure(struct zinf_trainer *t)
{
    struct trainer_sizes *s = &t->sizes;
    struct zinf_block_kept kept;
    struct zinf_block_scratch scratch;
    struct zinf_head head;
    const struct zinf_layout *layout = &t->layout;
    uint64_t width = zinf_dtype_bytes(t->dtype), a = ZINF_MEMORY_ALIGN;
    bool backward = has_backward(t);
    int moments = zinf_optim_n_moments(t->hyper.kind);
    s->slot = layout->max_unit_elems * width;
    s->grad_slot = layout->max_unit_elems * sizeof(float);
    s->x = zinf_align_up(t->rows * (uint64_t)t->spec->hidden * width, a);
    s->kept = zinf_align_up(zinf_block_kept_layout(&t->compute, NULL, &kept), a);
    s->scratch = zinf_block_scratch_layout(&t->compute, NULL, &scratch, backward);
    s->head = zinf_align_up(zinf_head_layout(&t->compute, NULL, &head, 0, backward), a);
    s->logits = (uint64_t)(t->head_rows * t->spec->tile_rows) * sizeof(float);
    s->workspace = zinf_model_workspace(&t->compute, t->model, t->head_rows, backward);
    s->tile_state = zinf_align_up(layout->max_group_elems * width, a);
    s->tile_grad = s->tile_state +
                   zinf_align_up(zinf_state_bytes(t->form, moments, layout->max_group_elems), a);
    s->transfer = trainer_transfer_bytes(t->model, t->dtype);
}

/* ---- places by a choice ---- */

static bool is_block(const struct zinf_trainer *t, uint32_t unit)
{
    return unit >= first_block(t) && unit < first_block(t) + t->n_layers;
}

/* Units have their turn in the order of the forward: what the next step needs first is nearest. */
static void set_places(struct zinf_trainer *t, const struct choice *c)
{
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
        if (trains(t) && p->state == ZINF_TIER_DRIVE && p->param != ZINF_TIER_DEVICE)
            p->generations = t->generations;
    }
}

static void place_bytes(const struct zinf_trainer *t, uint64_t bytes[ZINF_MEMORY_TIERS])
{
    int moments = trains(t) ? zinf_optim_n_moments(t->hyper.kind) : -1;
    for (uint32_t u = 0; u < t->n_units; u++) {
        const struct zinf_home *p = &t->homes[u];
        uint64_t n = t->layout.units[u].slice_elems;
        bytes[p->param] += t->layout.units[u].padded_elems * zinf_dtype_bytes(t->dtype) *
                           (p->param == ZINF_TIER_DEVICE ? 1 : p->generations);
        bytes[p->state] += zinf_state_bytes(t->form, moments, n) *
                           (p->state == ZINF_TIER_DEVICE ? 1 : p->generations);
        if (p->keeps_grad)
            bytes[p->grad] += n * sizeof(float);
    }
}

static bool any_param(const struct zinf_trainer *t, enum zinf_tier tier)
{
    for (uint32_t u = 0; u < t->n_units; u++)
        if (t->homes[u].param == tier)
            return true;
    return false;
}

static bool any_grad(const struct zinf_trainer *t, enum zinf_tier tier)
{
    for (uint32_t u = 0; u < t->n_units; u++)
        if (t->homes[u].keeps_grad && t->homes[u].grad == tier)
            return true;
    return false;
}

static bool any_fetched(const struct zinf_trainer *t, uint32_t from)
{
    for (uint32_t u = from; u < t->n_units; u++)
        if (unit_is_fetched(t, u))
            return true;
    return false;
}

/* Sums on the drive are made in host memory, and so is all of a gradient that the CPU and the
 * drive cannot reach where it was computed. */
static bool stages_grads(const struct zinf_trainer *t)
{
    if (!has_backward(t))
        return false;
    if (!t->direct)
        return any_grad(t, ZINF_TIER_HOST) || any_grad(t, ZINF_TIER_DRIVE);
    bool several = t->n_micro > 1 && !t->layer_major;
    for (uint32_t u = 0; u < t->n_units; u++)
        if (t->homes[u].grad == ZINF_TIER_DRIVE &&
            (several || (int)u < zinf_model_n_tiles(t->model)))
            return true;
    return false;
}

static bool uses_tiles(const struct zinf_trainer *t)
{
    if (!trains(t))
        return false;
    for (uint32_t u = 0; u < t->n_units; u++) {
        const struct zinf_home *p = &t->homes[u];
        if (p->param == ZINF_TIER_DRIVE || p->state == ZINF_TIER_DRIVE ||
            p->grad == ZINF_TIER_DRIVE || (p->param == ZINF_TIER_DEVICE && !t->direct))
            return true;
    }
    return false;
}

/* ---- lines ---- */

static uint64_t own_bytes(const struct zinf_trainer *t, const struct choice *c)
{
    uint64_t elems = 0;
    for (int u = 0; u < c->n_own; u++)
        elems += t->layout.units[u].padded_elems;
    return elems * zinf_dtype_bytes(t->dtype);
}

/* Sums on the device take the first micro-batch's gradients themselves. */
static uint64_t tile_grad_bytes(const struct zinf_trainer *t)
{
    uint64_t elems = 0;
    if (t->grad_tier == ZINF_TIER_DEVICE && t->n_micro == 1)
        return 0;
    for (int u = 0; u < zinf_model_n_tiles(t->model); u++)
        elems += t->layout.units[u].padded_elems;
    return elems * sizeof(float);
}

static void device_params(struct zinf_trainer *t, const struct choice *c, struct lines *l)
{
    struct places *p = &t->at;
    uint64_t n_slots = any_fetched(t, (uint32_t)c->n_own) ? (uint64_t)c->look_ahead + 1 : 0;
    if (!any_fetched(t, 0))
        return;
    add(l, ZINF_MEMORY_DEVICE, "parameter slots", "zinf.look_ahead", n_slots * t->sizes.slot,
        &p->d_slots);
    add(l, ZINF_MEMORY_DEVICE, "units with a slot of their own", "zinf.device_memory",
        own_bytes(t, c), &p->d_own);
}

static uint64_t n_block_inputs(const struct zinf_trainer *t)
{
    if (!has_backward(t))
        return 2;
    return t->x_tier == ZINF_TIER_DEVICE ? (t->n_layers + 1) * (uint64_t)t->n_x_micros
                                         : (uint64_t)x_slots(t);
}

static void device_lines(struct zinf_trainer *t, const struct choice *c, struct lines *l)
{
    struct places *p = &t->at;
    const struct trainer_sizes *s = &t->sizes;
    uint64_t n = t->rows, micros = (uint64_t)t->n_micro, at_once = (uint64_t)t->n_x_micros;
    int tiles = zinf_model_n_tiles(t->model);
    device_params(t, c, l);
    add(l, ZINF_MEMORY_DEVICE, "tokens, targets, losses", "gradient_accumulation_steps",
        (3 * micros + 1) * n * 4, &p->d_tokens);
    add(l, ZINF_MEMORY_DEVICE, "block inputs (checkpoints)", "zinf.activation_device",
        n_block_inputs(t) * s->x, &p->d_x);
    add(l, ZINF_MEMORY_DEVICE, "activations kept for backward", "zinf.activation_checkpointing",
        (uint64_t)c->n_kept * at_once * s->kept, &p->d_kept);
    add(l, ZINF_MEMORY_DEVICE, "activations of the working block", "train_micro_batch_size_per_gpu",
        s->kept, &p->d_working);
    add(l, ZINF_MEMORY_DEVICE, "scratch of a block", "train_micro_batch_size_per_gpu", s->scratch,
        &p->d_scratch);
    add(l, ZINF_MEMORY_DEVICE, "head: norms and statistics", "--seq-len", at_once * s->head,
        &p->d_head);
    add(l, ZINF_MEMORY_DEVICE, "head: chunk of logits", "--seq-len",
        (c->head_all ? (uint64_t)tiles : 1) * s->logits, &p->d_logits);
    add(l, ZINF_MEMORY_DEVICE, "workspace of the kernels", "--threads", s->workspace,
        &p->d_workspace);
    if (!has_backward(t))
        return;
    add(l, ZINF_MEMORY_DEVICE, "gradients of the activations", "train_micro_batch_size_per_gpu",
        micros * s->x, &p->d_dx);
    add(l, ZINF_MEMORY_DEVICE, "gradient slots", NULL, (uint64_t)c->grad_slots * s->grad_slot,
        &p->d_grad_slots);
    if (c->head_all)
        add(l, ZINF_MEMORY_DEVICE, "gradients of all table tiles", "zinf.device_memory",
            tile_grad_bytes(t), &p->d_table_grads);
}

/* Staging comes last and is contiguous: loading and saving use it as one region. */
static void host_lines(struct zinf_trainer *t, const struct choice *c, struct lines *l)
{
    struct places *p = &t->at;
    struct trainer_sizes *s = &t->sizes;
    uint64_t staged = 0, tiles = (uint64_t)zinf_model_n_tiles(t->model);
    uint64_t inputs = (t->n_layers + 1) * (uint64_t)t->n_x_micros;
    add(l, ZINF_MEMORY_HOST, "tokens, targets, losses", "gradient_accumulation_steps",
        (3 * (uint64_t)t->n_micro + 1) * t->rows * 4, &p->h_tokens);
    add(l, ZINF_MEMORY_HOST, "norms and logits", NULL,
        t->layout.n_groups * sizeof(double) + tiles * (uint64_t)t->spec->tile_rows * 4,
        &p->h_scalars);
    if (has_backward(t) && t->x_tier == ZINF_TIER_HOST)
        add(l, ZINF_MEMORY_HOST, "block inputs (checkpoints)", "zinf.activation_device",
            inputs * s->x, &p->h_x);
    /* An empty line marks where staging begins. */
    add(l, ZINF_MEMORY_HOST, "staging", NULL, 0, &p->h_transfer);
    int first = l->n;
    if (has_backward(t) && t->x_tier == ZINF_TIER_DRIVE && !t->direct)
        add(l, ZINF_MEMORY_HOST, "block inputs on their way", "zinf.activation_device",
            X_STAGES * s->x, &p->h_x_stages);
    if (any_param(t, ZINF_TIER_DRIVE) && !t->direct)
        add(l, ZINF_MEMORY_HOST, "parameter staging", "zinf.look_ahead",
            ((uint64_t)c->look_ahead + 1) * s->slot, &p->h_param_stages);
    if (stages_grads(t))
        add(l, ZINF_MEMORY_HOST, "gradient staging", NULL, GRAD_STAGES * s->grad_slot,
            &p->h_grad_stages);
    s->tile = s->tile_grad +
              (any_grad(t, ZINF_TIER_DRIVE) ? t->layout.max_group_elems * sizeof(float) : 0);
    if (uses_tiles(t))
        add(l, ZINF_MEMORY_HOST, "sub-groups under way", "zero_optimization.sub_group_size",
            (uint64_t)c->state_slots * s->tile, &p->h_tiles);
    for (int i = first; i < l->n; i++)
        staged += zinf_align_up(l->line[i].bytes, ZINF_MEMORY_ALIGN);
    if (s->transfer > staged)
        add(l, ZINF_MEMORY_HOST, "loading and saving (beyond staging)", NULL, s->transfer - staged,
            NULL);
}

static void drive_lines(struct zinf_trainer *t, struct lines *l)
{
    if (has_backward(t) && t->x_tier == ZINF_TIER_DRIVE)
        add(l, ZINF_MEMORY_DRIVE, "block inputs (checkpoints)", "zinf.activation_device",
            (t->n_layers + 1) * (uint64_t)t->n_x_micros * t->sizes.x, NULL);
}

static void collect(struct zinf_trainer *t, const struct choice *c, struct lines *l)
{
    l->n = 0;
    set_places(t, c);
    device_lines(t, c, l);
    host_lines(t, c, l);
    drive_lines(t, l);
}

static bool fits(struct zinf_trainer *t, const struct choice *c)
{
    struct lines l;
    uint64_t placed[ZINF_MEMORY_TIERS] = {0};
    collect(t, c, &l);
    place_bytes(t, placed);
    for (int tier = 0; tier < ZINF_MEMORY_TIERS; tier++) {
        uint64_t total =
            placed[tier] + zinf_ledger_total_bytes(t->ledger, (enum zinf_memory_tier)tier);
        for (int i = 0; i < l.n; i++)
            if ((int)l.line[i].tier == tier)
                total += zinf_align_up(l.line[i].bytes, ZINF_MEMORY_ALIGN);
        if (total > t->budget[tier])
            return false;
    }
    return true;
}

/* The largest value of *field in [0, most] that fits; fitting is monotone. */
static void grow(struct zinf_trainer *t, struct choice *c, int *field, int most)
{
    int low = *field, high = most;
    while (low < high) {
        *field = low + (high - low + 1) / 2;
        if (fits(t, c))
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
    while (c->state_slots > 1 && !fits(t, c))
        c->state_slots--;
    while (wanted < 0 && c->look_ahead > 0 && !fits(t, c))
        c->look_ahead--;
    if (!fits(t, c) && !t->layer_major)
        c->grad_slots = 1;
}

/* Activations leave the device where nothing else makes the plan fit. */
static void choose_activations(struct zinf_trainer *t, struct choice *c)
{
    bool decided = strcmp(t->config->activation_device, "auto") || t->config->cpu_checkpointing ||
                   !has_backward(t);
    if (decided || fits(t, c))
        return;
    t->x_tier = ZINF_TIER_HOST;
    if (fits(t, c) || !t->store)
        return;
    t->x_tier = ZINF_TIER_DRIVE;
    if (!fits(t, c))
        t->x_tier = ZINF_TIER_DEVICE; /* the ledger's check names what is largest */
}

/* A given host budget is filled with what spares the drive most; what is left becomes depth. */
static void choose_host(struct zinf_trainer *t, struct choice *c)
{
    int layers = (int)t->n_layers, units = (int)t->n_units;
    if (t->grad_tier == ZINF_TIER_DRIVE && t->fills) {
        struct choice with_tables = *c;
        with_tables.host_tables = true;
        if (fits(t, &with_tables))
            *c = with_tables;
    }
    if (uses_tiles(t))
        grow(t, c, &c->state_slots, 6);
    if (!t->fills)
        return;
    if (t->grad_tier == ZINF_TIER_DRIVE && c->host_tables)
        grow(t, c, &c->n_host_grads, layers / 4);
    if (t->param_tier == ZINF_TIER_DRIVE)
        grow(t, c, &c->n_host_params, units);
    if (t->state_tier == ZINF_TIER_DRIVE && trains(t))
        grow(t, c, &c->n_host_states, units);
    if (t->grad_tier == ZINF_TIER_DRIVE && c->host_tables)
        grow(t, c, &c->n_host_grads, layers);
    if (uses_tiles(t))
        grow(t, c, &c->state_slots, MAX_STATE_SLOTS);
}

static void choose_device(struct zinf_trainer *t, struct choice *c)
{
    int tiles = zinf_model_n_tiles(t->model);
    bool fetches = any_fetched(t, 0);
    if (t->grad_tier != ZINF_TIER_DEVICE && has_backward(t))
        grow(t, c, &c->grad_slots, 3);
    choose_kept(t, c);
    struct choice with_head = *c;
    with_head.head_all = true;
    if (fetches)
        with_head.n_own = tiles;
    if (has_backward(t) && fits(t, &with_head))
        *c = with_head;
    if (fetches)
        grow(t, c, &c->n_own, (int)t->n_units);
    if (t->grad_tier == ZINF_TIER_DRIVE)
        grow(t, c, &c->grad_slots, 6);
    if (fetches && t->config->look_ahead < 0)
        grow(t, c, &c->look_ahead, 4);
}

static void choose(struct zinf_trainer *t)
{
    struct choice *c = &t->choice;
    choose_least(t, c);
    choose_activations(t, c);
    choose_least(t, c);
    if (t->layer_major && !strcmp(t->config->accumulation_order, "auto") && !fits(t, c)) {
        t->layer_major = false;
        t->n_x_micros = 1;
        measure(t);
        choose_least(t, c);
        choose_activations(t, c);
        choose_least(t, c);
    }
    choose_host(t, c);
    choose_device(t, c);
    set_places(t, c);
}

static int add_lines(struct zinf_trainer *t)
{
    struct lines l;
    collect(t, &t->choice, &l);
    int code = 0;
    for (int i = 0; !code && i < l.n; i++)
        code = zinf_ledger_add(t->ledger, l.line[i].tier, l.line[i].name, l.line[i].hint,
                               l.line[i].bytes, l.line[i].offset);
    return code;
}

/* What the process holds already, and what is taken outside of the arenas later. */
static int add_process(struct zinf_trainer *t)
{
    int code =
        zinf_ledger_add_outside(t->ledger, ZINF_MEMORY_HOST, "this program and its libraries", NULL,
                                zinf_memory_resident());
    if (!code)
        code = zinf_ledger_add_outside(t->ledger, ZINF_MEMORY_HOST, "panels of the BLAS",
                                       "--threads", trainer_blas_bytes(t));
    if (!code && has_backward(t))
        code = zinf_ledger_add_outside(t->ledger, ZINF_MEMORY_HOST, "saving: a block of the file",
                                       NULL, ZINF_TENSORS_WRITER_BYTES);
    return code;
}

static void set_budgets(struct zinf_trainer *t)
{
    uint64_t free_bytes = zinf_memory_available() + zinf_memory_resident();
    bool host_device = t->device->kind == ZINF_DEVICE_HOST;
    t->budget[ZINF_MEMORY_HOST] = t->config->host_memory ? t->config->host_memory : free_bytes;
    t->budget[ZINF_MEMORY_DEVICE] = t->config->device_memory;
    if (!t->config->device_memory)
        t->budget[ZINF_MEMORY_DEVICE] =
            host_device ? free_bytes / 10 * 7 : t->device->free_bytes / 20 * 19;
    t->budget[ZINF_MEMORY_DRIVE] = UINT64_MAX; /* the store checks free space itself */
}

/* The host device's arena is the same RAM: both together must be there. */
static int check_shared_ram(struct zinf_trainer *t)
{
    char need[16], have[16];
    uint64_t total = zinf_ledger_total_bytes(t->ledger, ZINF_MEMORY_DEVICE) +
                     zinf_ledger_total_bytes(t->ledger, ZINF_MEMORY_HOST);
    uint64_t available = zinf_memory_available() + zinf_memory_resident();
    if (t->device->kind != ZINF_DEVICE_HOST || total <= available)
        return 0;
    char *table = NULL;
    size_t table_bytes = 0;
    FILE *out = open_memstream(&table, &table_bytes);
    if (out) {
        zinf_ledger_print(t->ledger, t->budget, out);
        fclose(out);
    }
    zinf_fail(-ENOMEM,
              "the plan does not fit: the host device's memory and host memory together need %s of "
              "%s available RAM; lower zinf.device_memory, or move more to nvme "
              "(offload_param.device, offload_optimizer.device)\n%s",
              zinf_size_format(need, sizeof need, total),
              zinf_size_format(have, sizeof have, available), table ? table : "");
    free(table);
    return -ENOMEM;
}

static int plan_tiers(struct zinf_trainer *t)
{
    struct zinf_tiers_options tiers = {
        .layout = &t->layout,
        .dtype = t->dtype,
        .form = t->form,
        .n_moments = trains(t) ? zinf_optim_n_moments(t->hyper.kind) : -1,
        .places = t->homes,
        .store = t->store,
    };
    int code = zinf_tiers_plan(&t->tiers, &tiers, t->ledger);
    uint64_t inputs = (t->n_layers + 1) * (uint64_t)t->n_x_micros;
    if (code || !has_backward(t) || t->x_tier != ZINF_TIER_DRIVE)
        return code;
    t->x_extents = calloc(inputs, sizeof *t->x_extents);
    if (!t->x_extents)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    for (uint64_t i = 0; !code && i < inputs; i++)
        code = zinf_store_add_extent(t->store, t->sizes.x, &t->x_extents[i]);
    return code;
}

int trainer_plan(struct zinf_trainer *t)
{
    int code = zinf_ledger_create(&t->ledger);
    if (code || (code = add_process(t)))
        return code;
    t->homes = calloc(t->n_units, sizeof *t->homes);
    if (!t->homes)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    set_budgets(t);
    measure(t);
    choose(t);
    code = plan_tiers(t);
    if (!code)
        code = add_lines(t);
    if (!code)
        code = zinf_ledger_check(t->ledger, t->budget);
    return code ? code : check_shared_ram(t);
}

static void place_activations(struct zinf_trainer *t)
{
    const struct places *p = &t->at;
    bool backward = has_backward(t);
    for (uint32_t l = 0; l < t->n_layers; l++)
        for (int64_t m = 0; m < t->n_x_micros; m++) {
            uint64_t offset = p->d_working;
            uint64_t first = t->n_layers - (uint64_t)t->choice.n_kept;
            if (block_is_kept(t, l))
                offset = p->d_kept +
                         ((l - first) * (uint64_t)t->n_x_micros + (uint64_t)m) * t->sizes.kept;
            zinf_block_kept_layout(&t->compute, device_at(t, offset),
                                   &t->kept[(int64_t)l * t->n_x_micros + m]);
        }
    zinf_block_scratch_layout(&t->compute, device_at(t, p->d_scratch), &t->scratch, backward);
    for (int64_t m = 0; m < t->n_x_micros; m++) {
        zinf_head_layout(&t->compute, device_at(t, p->d_head + (uint64_t)m * t->sizes.head),
                         &t->heads[m], 0, backward);
        t->heads[m].logits = (float *)device_at(t, p->d_logits);
    }
}

static void place_head_tiles(struct zinf_trainer *t)
{
    uint64_t width = zinf_dtype_bytes(t->dtype);
    uint64_t own = t->at.d_own, grads = t->at.d_table_grads;
    for (int u = 0; u < zinf_model_n_tiles(t->model); u++) {
        uint64_t elems = t->layout.units[u].padded_elems;
        struct zinf_location home = zinf_tiers_param(t->tiers, (uint32_t)u, 0);
        t->tile_places[u] =
            unit_is_fetched(t, (uint32_t)u) ? zinf_at(device_at(t, own)) : zinf_of(&home);
        t->tile_grads[u] = (float *)device_at(t, grads);
        if (t->homes[u].grad == ZINF_TIER_DEVICE)
            t->tile_sums[u] = (float *)zinf_tiers_unit_grad(t->tiers, (uint32_t)u).memory;
        own += elems * width;
        grads += elems * sizeof(float);
    }
}

void trainer_place(struct zinf_trainer *t)
{
    uint64_t n = t->rows, micros = (uint64_t)t->n_micro;
    zinf_tiers_place(t->tiers, t->device->memory, t->host.base);
    t->d_ids = (int32_t *)device_at(t, t->at.d_tokens);
    t->d_targets = t->d_ids + micros * n;
    t->d_losses = (float *)(t->d_targets + micros * n);
    t->d_positions = (int32_t *)(t->d_losses + micros * n);
    t->h_ids = (int32_t *)host_at(t, t->at.h_tokens);
    t->h_targets = t->h_ids + micros * n;
    t->h_losses = (float *)(t->h_targets + micros * n);
    t->h_positions = (int32_t *)(t->h_losses + micros * n);
    t->norm_parts = (double *)host_at(t, t->at.h_scalars);
    t->h_logits = (float *)(t->norm_parts + t->layout.n_groups);
    place_activations(t);
    if (t->choice.head_all)
        place_head_tiles(t);
}
