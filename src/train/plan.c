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

static bool trains(const struct zinf_trainer *t)
{
    return t->options.mode == ZINF_TRAINER_TRAIN;
}

static bool has_backward(const struct zinf_trainer *t)
{
    return t->options.mode != ZINF_TRAINER_FORWARD;
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
    s->slot = layout->max_unit_elems * width;
    s->grad_slot = layout->max_unit_elems * sizeof(float);
    s->x = zinf_align_up(t->rows * (uint64_t)t->spec->hidden * width, a);
    s->kept = zinf_align_up(zinf_block_kept_layout(&t->compute, NULL, &kept), a);
    s->scratch = zinf_block_scratch_layout(&t->compute, NULL, &scratch, backward);
    s->head = zinf_head_layout(&t->compute, NULL, &head, 1, backward);
    s->workspace = zinf_model_workspace(&t->compute, t->model,
                                        zinf_head_rows(t->spec, (int64_t)t->rows), backward);
    s->out = zinf_align_up(layout->max_group_elems * width, a);
    uint64_t arrays = 1 + (uint64_t)zinf_optim_n_moments(t->hyper.kind);
    if (t->grad_tier == ZINF_TIER_DRIVE)
        arrays++;
    s->state_slot = layout->max_group_elems * arrays * sizeof(float);
    s->transfer = trainer_transfer_bytes(t->model, t->dtype);
}

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
    if (t->param_tier == ZINF_TIER_DEVICE)
        return;
    uint64_t n_slots = c->n_own == (int)t->n_units ? 0 : (uint64_t)c->look_ahead + 1;
    add(l, ZINF_MEMORY_DEVICE, "parameter slots", "zinf.look_ahead", n_slots * t->sizes.slot,
        &p->d_slots);
    add(l, ZINF_MEMORY_DEVICE, "units with a slot of their own", "zinf.device_memory",
        own_bytes(t, c), &p->d_own);
}

static void device_lines(struct zinf_trainer *t, const struct choice *c, struct lines *l)
{
    struct places *p = &t->at;
    const struct trainer_sizes *s = &t->sizes;
    uint64_t n = t->rows, micros = (uint64_t)t->n_micro;
    uint64_t n_x = has_backward(t) ? (uint64_t)t->n_layers + 1 : 2;
    int tiles = zinf_model_n_tiles(t->model);
    device_params(t, c, l);
    add(l, ZINF_MEMORY_DEVICE, "tokens, targets, losses", "gradient_accumulation_steps",
        (3 * micros + 1) * n * 4, &p->d_tokens);
    add(l, ZINF_MEMORY_DEVICE, "block inputs (checkpoints)", "train_micro_batch_size_per_gpu",
        n_x * s->x, &p->d_x);
    add(l, ZINF_MEMORY_DEVICE, "activations kept for backward", "zinf.activation_checkpointing",
        (uint64_t)c->n_kept * s->kept, &p->d_kept);
    add(l, ZINF_MEMORY_DEVICE, "activations of the working block", "train_micro_batch_size_per_gpu",
        s->kept, &p->d_working);
    add(l, ZINF_MEMORY_DEVICE, "scratch of a block", "train_micro_batch_size_per_gpu", s->scratch,
        &p->d_scratch);
    add(l, ZINF_MEMORY_DEVICE, "head: chunk of logits", "--seq-len",
        s->head + (c->head_all ? (uint64_t)(tiles - 1) : 0) *
                      (uint64_t)(t->head.head_rows * t->spec->tile_rows) * sizeof(float),
        &p->d_head);
    add(l, ZINF_MEMORY_DEVICE, "workspace of the kernels", "--threads", s->workspace,
        &p->d_workspace);
    if (!has_backward(t))
        return;
    add(l, ZINF_MEMORY_DEVICE, "gradient of the activations", "train_micro_batch_size_per_gpu",
        s->x, &p->d_dx);
    add(l, ZINF_MEMORY_DEVICE, "gradient slots", NULL, (uint64_t)c->grad_slots * s->grad_slot,
        &p->d_grad_slots);
    if (c->head_all)
        add(l, ZINF_MEMORY_DEVICE, "gradients of all table tiles", "zinf.device_memory",
            tile_grad_bytes(t), &p->d_table_grads);
    if (trains(t) && t->state_tier == ZINF_TIER_DEVICE && t->param_tier != ZINF_TIER_DEVICE)
        add(l, ZINF_MEMORY_DEVICE, "updated parameters on their way",
            "zero_optimization.sub_group_size", OUT_SLOTS * s->out, &p->d_out);
}

/* Staging comes last and is contiguous: loading and saving use it as one region. */
static void host_lines(struct zinf_trainer *t, const struct choice *c, struct lines *l)
{
    struct places *p = &t->at;
    const struct trainer_sizes *s = &t->sizes;
    uint64_t staged = 0, tiles = (uint64_t)zinf_model_n_tiles(t->model);
    add(l, ZINF_MEMORY_HOST, "tokens, targets, losses", "gradient_accumulation_steps",
        (3 * (uint64_t)t->n_micro + 1) * t->rows * 4, &p->h_tokens);
    add(l, ZINF_MEMORY_HOST, "norms and logits", NULL,
        t->layout.n_groups * sizeof(double) + tiles * (uint64_t)t->spec->tile_rows * 4,
        &p->h_scalars);
    /* An empty line marks where staging begins. */
    add(l, ZINF_MEMORY_HOST, "staging", NULL, 0, &p->h_transfer);
    int first = l->n;
    if (t->param_tier == ZINF_TIER_DRIVE)
        add(l, ZINF_MEMORY_HOST, "parameter staging", "zinf.look_ahead",
            ((uint64_t)c->look_ahead + 1) * s->slot, &p->h_param_stages);
    if (has_backward(t) && t->grad_tier != ZINF_TIER_DEVICE)
        add(l, ZINF_MEMORY_HOST, "gradient staging", NULL,
            (t->grad_tier == ZINF_TIER_DRIVE ? 2 : 1) * GRAD_STAGES * s->grad_slot,
            &p->h_grad_stages);
    if (trains(t) && t->state_tier == ZINF_TIER_DRIVE)
        add(l, ZINF_MEMORY_HOST, "optimizer state staging", "zero_optimization.sub_group_size",
            STATE_SLOTS * s->state_slot, &p->h_state_slots);
    if (trains(t) && (t->param_tier == ZINF_TIER_DRIVE ||
                      (t->param_tier == ZINF_TIER_DEVICE && t->state_tier != ZINF_TIER_DEVICE)))
        add(l, ZINF_MEMORY_HOST, "updated parameters on their way",
            "zero_optimization.sub_group_size", OUT_SLOTS * s->out, &p->h_out);
    for (int i = first; i < l->n; i++)
        staged += zinf_align_up(l->line[i].bytes, ZINF_MEMORY_ALIGN);
    if (s->transfer > staged)
        add(l, ZINF_MEMORY_HOST, "loading and saving (beyond staging)", NULL, s->transfer - staged,
            NULL);
}

static void collect(struct zinf_trainer *t, const struct choice *c, struct lines *l)
{
    l->n = 0;
    device_lines(t, c, l);
    host_lines(t, c, l);
}

static bool fits(struct zinf_trainer *t, const struct choice *c)
{
    struct lines l;
    collect(t, c, &l);
    for (int tier = 0; tier < ZINF_MEMORY_TIERS; tier++) {
        uint64_t total = zinf_ledger_total_bytes(t->ledger, (enum zinf_memory_tier)tier);
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

static void choose(struct zinf_trainer *t)
{
    struct choice *c = &t->choice;
    int64_t wanted = t->config->look_ahead;
    c->look_ahead = wanted < 0 ? 2 : wanted > MAX_LOOK_AHEAD ? MAX_LOOK_AHEAD : (int)wanted;
    c->grad_slots = t->grad_tier == ZINF_TIER_DEVICE ? 1 : 2;
    while (wanted < 0 && c->look_ahead > 0 && !fits(t, c))
        c->look_ahead--;
    if (!fits(t, c))
        c->grad_slots = 1;
    choose_kept(t, c);
    int tiles = zinf_model_n_tiles(t->model);
    bool resident = t->param_tier == ZINF_TIER_DEVICE;
    struct choice with_head = *c;
    with_head.head_all = true;
    if (!resident)
        with_head.n_own = tiles;
    if (has_backward(t) && fits(t, &with_head))
        *c = with_head;
    if (!resident)
        grow(t, c, &c->n_own, (int)t->n_units);
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

int trainer_plan(struct zinf_trainer *t)
{
    int code = zinf_ledger_create(&t->ledger);
    if (code || (code = add_process(t)))
        return code;
    struct zinf_tiers_options tiers = {
        .layout = &t->layout,
        .dtype = t->dtype,
        .n_moments = trains(t) ? zinf_optim_n_moments(t->hyper.kind) : -1,
        .has_state = has_backward(t),
        .param = t->param_tier,
        .state = t->state_tier,
        .grad = t->grad_tier,
        .store = t->store,
    };
    code = zinf_tiers_plan(&t->tiers, &tiers, t->ledger);
    if (code)
        return code;
    set_budgets(t);
    measure(t);
    choose(t);
    code = add_lines(t);
    if (!code)
        code = zinf_ledger_check(t->ledger, t->budget);
    return code ? code : check_shared_ram(t);
}

static void place_activations(struct zinf_trainer *t)
{
    const struct places *p = &t->at;
    bool backward = has_backward(t);
    for (uint32_t l = 0; l < t->n_layers; l++) {
        uint64_t offset = p->d_working;
        if (block_is_kept(t, l))
            offset = p->d_kept +
                     (uint64_t)((int)l - ((int)t->n_layers - t->choice.n_kept)) * t->sizes.kept;
        zinf_block_kept_layout(&t->compute, device_at(t, offset), &t->kept[l]);
    }
    zinf_block_scratch_layout(&t->compute, device_at(t, p->d_scratch), &t->scratch, backward);
    int tiles = zinf_model_n_tiles(t->model);
    zinf_head_layout(&t->compute, device_at(t, p->d_head), &t->head, t->choice.head_all ? tiles : 1,
                     backward);
    t->d_dx = device_at(t, p->d_dx);
}

static void place_head_tiles(struct zinf_trainer *t)
{
    uint64_t width = zinf_dtype_bytes(t->dtype);
    uint64_t own = t->at.d_own, grads = t->at.d_table_grads;
    for (int u = 0; u < zinf_model_n_tiles(t->model); u++) {
        uint64_t elems = t->layout.units[u].padded_elems;
        t->tile_weights[u] = t->param_tier == ZINF_TIER_DEVICE
                                 ? zinf_tiers_param(t->tiers, (uint32_t)u).memory
                                 : device_at(t, own);
        t->tile_grads[u] = (float *)device_at(t, grads);
        if (t->grad_tier == ZINF_TIER_DEVICE)
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
