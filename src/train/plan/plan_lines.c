/* plan_lines: the memory that a choice takes beside the units' homes, a line for each purpose. */
#include "train/plan/plan.h"

static void add(struct plan_lines *l, enum zinf_memory_tier tier, const char *name,
                const char *hint, uint64_t bytes, uint64_t *offset)
{
    l->line[l->n++] = (struct plan_line){tier, name, hint, bytes, offset};
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

static void device_params(struct zinf_trainer *t, const struct choice *c, struct plan_lines *l)
{
    struct places *p = &t->at;
    uint64_t n_slots = plan_fetches(t, (uint32_t)c->n_own) ? (uint64_t)c->look_ahead + 1 : 0;
    if (!plan_fetches(t, 0))
        return;
    add(l, ZINF_MEMORY_DEVICE, "parameter slots", "zinf.look_ahead", n_slots * t->sizes.slot,
        &p->d_slots);
    add(l, ZINF_MEMORY_DEVICE, "units with a slot of their own", "zinf.device_memory",
        trainer_own_bytes(t, (uint32_t)c->n_own), &p->d_own);
}

static uint64_t n_block_inputs(const struct zinf_trainer *t)
{
    if (!has_backward(t))
        return 2;
    return t->x_tier == ZINF_TIER_DEVICE ? (t->n_layers + 1) * (uint64_t)t->n_x_micros
                                         : (uint64_t)x_slots(t);
}

static uint64_t squares_bytes(const struct zinf_trainer *t)
{
    return first_square(t, t->n_units) * sizeof(double);
}

static void device_lines(struct zinf_trainer *t, const struct choice *c, struct plan_lines *l)
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
    if (plan_norms_there(t))
        add(l, ZINF_MEMORY_DEVICE, "parts of the gradient norm", NULL, squares_bytes(t),
            &p->d_squares);
    add(l, ZINF_MEMORY_DEVICE, "gradients of the activations", "train_micro_batch_size_per_gpu",
        micros * s->x, &p->d_dx);
    add(l, ZINF_MEMORY_DEVICE, "gradient slots", NULL, (uint64_t)c->grad_slots * s->grad_slot,
        &p->d_grad_slots);
    if (c->head_all)
        add(l, ZINF_MEMORY_DEVICE, "gradients of all table tiles", "zinf.device_memory",
            tile_grad_bytes(t), &p->d_table_grads);
}

/* Staging comes last and is contiguous: loading and saving use it as one region. */
static void host_lines(struct zinf_trainer *t, const struct choice *c, struct plan_lines *l)
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
    if (s->update)
        add(l, ZINF_MEMORY_HOST, "workspace of the optimizer", "optimizer.type", s->update,
            &p->h_update);
    if (has_backward(t) && t->x_tier == ZINF_TIER_HOST)
        add(l, ZINF_MEMORY_HOST, "block inputs (checkpoints)", "zinf.activation_device",
            inputs * s->x, &p->h_x);
    if (plan_norms_there(t))
        add(l, ZINF_MEMORY_HOST, "parts of the gradient norm", NULL, squares_bytes(t),
            &p->h_squares);
    if (has_backward(t) && t->config->async_save)
        add(l, ZINF_MEMORY_HOST, "saving in the background", "zinf.async_save", s->transfer,
            &p->h_background);
    /* An empty line marks where staging begins. */
    add(l, ZINF_MEMORY_HOST, "staging", NULL, 0, &p->h_transfer);
    int first = l->n;
    if (has_backward(t) && t->x_tier == ZINF_TIER_DRIVE && !t->direct)
        add(l, ZINF_MEMORY_HOST, "block inputs on their way", "zinf.activation_device",
            X_STAGES * s->x, &p->h_x_stages);
    if (plan_has_param(t, ZINF_TIER_DRIVE) && !t->direct)
        add(l, ZINF_MEMORY_HOST, "parameter staging", "zinf.look_ahead",
            ((uint64_t)c->look_ahead + 1) * s->slot, &p->h_param_stages);
    if (plan_stages_grads(t))
        add(l, ZINF_MEMORY_HOST, "gradient staging", NULL, GRAD_STAGES * s->grad_slot,
            &p->h_grad_stages);
    s->tile =
        s->tile_grad + (plan_tiles_have_grads(t) ? t->layout.max_group_elems * sizeof(float) : 0);
    if (plan_uses_tiles(t))
        add(l, ZINF_MEMORY_HOST, "sub-groups under way", "zero_optimization.sub_group_size",
            (uint64_t)c->state_slots * s->tile, &p->h_tiles);
    for (int i = first; i < l->n; i++)
        staged += zinf_align_up(l->line[i].bytes, ZINF_MEMORY_ALIGN);
    if (s->transfer > staged)
        add(l, ZINF_MEMORY_HOST, "loading and saving (beyond staging)", NULL, s->transfer - staged,
            NULL);
}

static void drive_lines(struct zinf_trainer *t, struct plan_lines *l)
{
    if (has_backward(t) && t->x_tier == ZINF_TIER_DRIVE)
        add(l, ZINF_MEMORY_DRIVE, "block inputs (checkpoints)", "zinf.activation_device",
            (t->n_layers + 1) * (uint64_t)t->n_x_micros * t->sizes.x, NULL);
}

void plan_collect(struct zinf_trainer *t, const struct choice *c, struct plan_lines *l)
{
    l->n = 0;
    plan_set_places(t, c);
    device_lines(t, c, l);
    host_lines(t, c, l);
    drive_lines(t, l);
}

bool plan_fits(struct zinf_trainer *t, const struct choice *c)
{
    struct plan_lines l;
    uint64_t placed[ZINF_MEMORY_TIERS] = {0};
    plan_collect(t, c, &l);
    plan_place_bytes(t, placed);
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
