/* place: every pointer of a trainer, once the arenas of its plan exist. */
#include "train/trainer.h"

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
    uint64_t grads = t->at.d_table_grads;
    for (int u = 0; u < zinf_model_n_tiles(t->model); u++) {
        uint64_t elems = t->layout.units[u].padded_elems;
        struct zinf_location home = zinf_tiers_param(t->tiers, (uint32_t)u, 0);
        uint64_t own = t->at.d_own + trainer_own_bytes(t, (uint32_t)u);
        t->tile_places[u] =
            unit_is_fetched(t, (uint32_t)u) ? zinf_at(device_at(t, own)) : zinf_of(&home);
        t->tile_grads[u] = (float *)device_at(t, grads);
        if (t->homes[u].grad == ZINF_TIER_DEVICE)
            t->tile_sums[u] = (float *)zinf_tiers_unit_grad(t->tiers, (uint32_t)u).memory;
        grads += elems * sizeof(float);
    }
}

void trainer_place(struct zinf_trainer *t)
{
    uint64_t n = t->rows, micros = (uint64_t)t->n_micro;
    zinf_tiers_place(t->tiers, t->device_base, t->host.base);
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
