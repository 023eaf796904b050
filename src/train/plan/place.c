/* place: every pointer of a trainer, once the arenas of its plan exist. */
#include "train/plan/plan.h"

static void place_activations(struct plan *p)
{
    const struct places *at = &p->at;
    bool backward = has_backward(p->setup);
    for (uint32_t l = 0; l < p->setup->n_layers; l++)
        for (int64_t m = 0; m < p->n_x_micros; m++) {
            uint64_t offset = at->d_working;
            uint64_t first = p->setup->n_layers - (uint64_t)p->choice.n_kept;
            if (block_is_kept(p, l))
                offset = at->d_kept +
                         ((l - first) * (uint64_t)p->n_x_micros + (uint64_t)m) * p->sizes.kept;
            zinf_block_kept_layout(&p->setup->compute, device_at(p, offset),
                                   &p->kept[(int64_t)l * p->n_x_micros + m]);
        }
    zinf_block_scratch_layout(&p->setup->compute, device_at(p, at->d_scratch), &p->scratch,
                              backward);
    for (int64_t m = 0; m < p->n_x_micros; m++) {
        zinf_head_layout(&p->setup->compute, device_at(p, at->d_head + (uint64_t)m * p->sizes.head),
                         &p->heads[m], 0, backward);
        p->heads[m].logits = (float *)device_at(p, at->d_logits);
    }
}

static void place_head_tiles(struct plan *p)
{
    uint64_t grads = p->at.d_table_grads;
    for (int u = 0; u < zinf_model_n_tiles(p->setup->model); u++) {
        uint64_t elems = p->setup->layout.units[u].padded_elems;
        struct zinf_location home = zinf_tiers_param(p->tiers, (uint32_t)u, 0);
        uint64_t own = p->at.d_own + plan_own_bytes(p, (uint32_t)u);
        p->tile_places[u] =
            unit_is_fetched(p, (uint32_t)u) ? zinf_at(device_at(p, own)) : zinf_of(&home);
        p->tile_grads[u] = (float *)device_at(p, grads);
        if (p->homes[u].grad == ZINF_TIER_DEVICE)
            p->tile_sums[u] = (float *)zinf_tiers_unit_grad(p->tiers, (uint32_t)u).memory;
        grads += elems * sizeof(float);
    }
}

void plan_place(struct plan *p)
{
    uint64_t n = p->setup->rows, micros = (uint64_t)p->setup->n_micro;
    zinf_tiers_place(p->tiers, p->device_base, p->host_base);
    p->d_ids = (int32_t *)device_at(p, p->at.d_tokens);
    p->d_targets = p->d_ids + micros * n;
    p->d_losses = (float *)(p->d_targets + micros * n);
    p->d_positions = (int32_t *)(p->d_losses + micros * n);
    p->h_ids = (int32_t *)host_at(p, p->at.h_tokens);
    p->h_targets = p->h_ids + micros * n;
    p->h_losses = (float *)(p->h_targets + micros * n);
    p->h_positions = (int32_t *)(p->h_losses + micros * n);
    p->norm_parts = (double *)host_at(p, p->at.h_scalars);
    p->h_logits = (float *)(p->norm_parts + p->setup->layout.n_groups);
    place_activations(p);
    if (p->choice.head_all)
        place_head_tiles(p);
}
