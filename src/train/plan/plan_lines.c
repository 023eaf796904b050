/* plan_lines: the memory that a choice takes beside the units' homes, a line for each purpose. */
#include "train/plan/lines.h"

static void add(struct plan_lines *l, enum zinf_memory_tier tier, const char *name,
                const char *hint, uint64_t bytes, uint64_t *offset)
{
    l->line[l->n++] = (struct plan_line){tier, name, hint, bytes, offset};
}

/* Sums on the device take the first micro-batch's gradients themselves. */
static uint64_t tile_grad_bytes(const struct plan *p)
{
    uint64_t elems = 0;
    if (p->setup->grad_tier == ZINF_TIER_DEVICE && p->setup->n_micro == 1)
        return 0;
    for (int u = 0; u < zinf_model_n_tiles(p->setup->model); u++)
        elems += p->setup->layout.units[u].padded_elems;
    return elems * sizeof(float);
}

static void device_params(struct plan *p, const struct choice *c, struct plan_lines *l)
{
    struct places *at = &p->at;
    uint64_t n_slots = plan_fetches(p, (uint32_t)c->n_own) ? (uint64_t)c->look_ahead + 1 : 0;
    if (!plan_fetches(p, 0))
        return;
    add(l, ZINF_MEMORY_DEVICE, "parameter slots", "zinf.look_ahead", n_slots * p->sizes.slot,
        &at->d_slots);
    add(l, ZINF_MEMORY_DEVICE, "units with a slot of their own", "zinf.device_memory",
        plan_own_bytes(p, (uint32_t)c->n_own), &at->d_own);
}

static uint64_t n_block_inputs(const struct plan *p)
{
    if (!has_backward(p->setup))
        return 2;
    return p->x_tier == ZINF_TIER_DEVICE ? (p->setup->n_layers + 1) * (uint64_t)p->n_x_micros
                                         : (uint64_t)x_slots(p);
}

static uint64_t squares_bytes(const struct plan *p)
{
    return first_square(p, p->setup->n_units) * sizeof(double);
}

static void device_lines(struct plan *p, const struct choice *c, struct plan_lines *l)
{
    struct places *at = &p->at;
    const struct trainer_sizes *s = &p->sizes;
    uint64_t n = p->setup->rows, micros = (uint64_t)p->setup->n_micro,
             at_once = (uint64_t)p->n_x_micros;
    int tiles = zinf_model_n_tiles(p->setup->model);
    device_params(p, c, l);
    add(l, ZINF_MEMORY_DEVICE, "tokens, targets, losses", "gradient_accumulation_steps",
        (3 * micros + 1) * n * 4, &at->d_tokens);
    add(l, ZINF_MEMORY_DEVICE, "block inputs (checkpoints)", "zinf.activation_device",
        n_block_inputs(p) * s->x, &at->d_x);
    add(l, ZINF_MEMORY_DEVICE, "activations kept for backward", "zinf.activation_checkpointing",
        (uint64_t)c->n_kept * at_once * s->kept, &at->d_kept);
    add(l, ZINF_MEMORY_DEVICE, "activations of the working block", "train_micro_batch_size_per_gpu",
        s->kept, &at->d_working);
    add(l, ZINF_MEMORY_DEVICE, "scratch of a block", "train_micro_batch_size_per_gpu", s->scratch,
        &at->d_scratch);
    add(l, ZINF_MEMORY_DEVICE, "head: norms and statistics", "--seq-len", at_once * s->head,
        &at->d_head);
    add(l, ZINF_MEMORY_DEVICE, "head: chunk of logits", "--seq-len",
        (c->head_all ? (uint64_t)tiles : 1) * s->logits, &at->d_logits);
    add(l, ZINF_MEMORY_DEVICE, "workspace of the kernels", "--threads", s->workspace,
        &at->d_workspace);
    if (!has_backward(p->setup))
        return;
    if (plan_norms_there(p))
        add(l, ZINF_MEMORY_DEVICE, "parts of the gradient norm", NULL, squares_bytes(p),
            &at->d_squares);
    add(l, ZINF_MEMORY_DEVICE, "gradients of the activations", "train_micro_batch_size_per_gpu",
        micros * s->x, &at->d_dx);
    add(l, ZINF_MEMORY_DEVICE, "gradient slots", NULL, (uint64_t)c->grad_slots * s->grad_slot,
        &at->d_grad_slots);
    if (c->head_all)
        add(l, ZINF_MEMORY_DEVICE, "gradients of all table tiles", "zinf.device_memory",
            tile_grad_bytes(p), &at->d_table_grads);
}

/* Staging comes last and is contiguous: loading and saving use it as one region. */
static void host_lines(struct plan *p, const struct choice *c, struct plan_lines *l)
{
    struct places *at = &p->at;
    struct trainer_sizes *s = &p->sizes;
    uint64_t staged = 0, tiles = (uint64_t)zinf_model_n_tiles(p->setup->model);
    uint64_t inputs = (p->setup->n_layers + 1) * (uint64_t)p->n_x_micros;
    add(l, ZINF_MEMORY_HOST, "tokens, targets, losses", "gradient_accumulation_steps",
        (3 * (uint64_t)p->setup->n_micro + 1) * p->setup->rows * 4, &at->h_tokens);
    add(l, ZINF_MEMORY_HOST, "norms and logits", NULL,
        p->setup->layout.n_groups * sizeof(double) +
            tiles * (uint64_t)p->setup->spec->tile_rows * 4,
        &at->h_scalars);
    if (p->setup->update_bytes)
        add(l, ZINF_MEMORY_HOST, "workspace of the optimizer", "optimizer.type",
            p->setup->update_bytes, &at->h_update);
    if (has_backward(p->setup) && p->x_tier == ZINF_TIER_HOST)
        add(l, ZINF_MEMORY_HOST, "block inputs (checkpoints)", "zinf.activation_device",
            inputs * s->x, &at->h_x);
    if (plan_norms_there(p))
        add(l, ZINF_MEMORY_HOST, "parts of the gradient norm", NULL, squares_bytes(p),
            &at->h_squares);
    if (has_backward(p->setup) && p->setup->config->async_save)
        add(l, ZINF_MEMORY_HOST, "saving in the background", "zinf.async_save", s->transfer,
            &at->h_background);
    /* An empty line marks where staging begins. */
    add(l, ZINF_MEMORY_HOST, "staging", NULL, 0, &at->h_transfer);
    int first = l->n;
    if (has_backward(p->setup) && p->x_tier == ZINF_TIER_DRIVE && !p->setup->direct)
        add(l, ZINF_MEMORY_HOST, "block inputs on their way", "zinf.activation_device",
            X_STAGES * s->x, &at->h_x_stages);
    if (plan_has_param(p, ZINF_TIER_DRIVE) && !p->setup->direct)
        add(l, ZINF_MEMORY_HOST, "parameter staging", "zinf.look_ahead",
            ((uint64_t)c->look_ahead + 1) * s->slot, &at->h_param_stages);
    if (plan_stages_grads(p))
        add(l, ZINF_MEMORY_HOST, "gradient staging", NULL, GRAD_STAGES * s->grad_slot,
            &at->h_grad_stages);
    s->tile = s->tile_grad +
              (plan_tiles_have_grads(p) ? p->setup->layout.max_group_elems * sizeof(float) : 0);
    if (plan_uses_tiles(p))
        add(l, ZINF_MEMORY_HOST, "sub-groups under way", "zero_optimization.sub_group_size",
            (uint64_t)c->state_slots * s->tile, &at->h_tiles);
    for (int i = first; i < l->n; i++)
        staged += zinf_align_up(l->line[i].bytes, ZINF_MEMORY_ALIGN);
    if (s->transfer > staged)
        add(l, ZINF_MEMORY_HOST, "loading and saving (beyond staging)", NULL, s->transfer - staged,
            NULL);
}

static void drive_lines(struct plan *p, struct plan_lines *l)
{
    if (has_backward(p->setup) && p->x_tier == ZINF_TIER_DRIVE)
        add(l, ZINF_MEMORY_DRIVE, "block inputs (checkpoints)", "zinf.activation_device",
            (p->setup->n_layers + 1) * (uint64_t)p->n_x_micros * p->sizes.x, NULL);
}

void plan_collect(struct plan *p, const struct choice *c, struct plan_lines *l)
{
    l->n = 0;
    plan_set_places(p, c);
    device_lines(p, c, l);
    host_lines(p, c, l);
    drive_lines(p, l);
}

bool plan_fits(struct plan *p, const struct choice *c)
{
    struct plan_lines l;
    uint64_t placed[ZINF_MEMORY_TIERS] = {0};
    plan_collect(p, c, &l);
    plan_place_bytes(p, placed);
    for (int tier = 0; tier < ZINF_MEMORY_TIERS; tier++) {
        uint64_t total =
            placed[tier] + zinf_ledger_total_bytes(p->ledger, (enum zinf_memory_tier)tier);
        for (int i = 0; i < l.n; i++)
            if ((int)l.line[i].tier == tier)
                total += zinf_align_up(l.line[i].bytes, ZINF_MEMORY_ALIGN);
        if (total > p->setup->budget[tier])
            return false;
    }
    return true;
}
