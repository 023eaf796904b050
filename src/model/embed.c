/* embed: token and position lookup, tile by tile, and their gradients. */
#include "model/compute.h"

static struct zinf_embedding tile_args(const struct zinf_gpt2_compute *c,
                                       const struct zinf_unit_spec *unit, enum zinf_role role,
                                       const int32_t *ids)
{
    return (struct zinf_embedding){
        .dtype = c->dtype,
        .rows = (int64_t)rows_of(c),
        .cols = c->spec->hidden,
        .ids = ids,
        .first = (int64_t)unit->tensors[0].first_row,
        .count = (int64_t)unit->tensors[0].n_rows,
        .accumulate = role == ZINF_ROLE_POSITION,
    };
}

static int lookup(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                  const void *weights, enum zinf_role role, const int32_t *ids, void *x)
{
    struct zinf_embedding args = tile_args(c, unit, role, ids);
    args.table = weight(c, unit, weights, role);
    args.x = x;
    return c->device->ops->embedding_forward(c->queue, &args);
}

/* In place: x or its gradient times the embedding's dropout mask. */
static int mask(const struct zinf_gpt2_compute *c, void *x)
{
    uint64_t per_sample = (uint64_t)c->seq * (uint64_t)c->spec->hidden;
    struct zinf_residual args = {
        .dtype = c->dtype,
        .n = (int64_t)rows_of(c) * c->spec->hidden,
        .r = x,
        .y = x,
        .dropout = dropout_at(c, c->spec->embedding_dropout, 0, per_sample),
    };
    return args.dropout.p > 0 ? c->device->ops->dropout(c->queue, &args) : 0;
}

int zinf_embed_tile(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                    const void *weights, const int32_t *ids, void *x)
{
    return lookup(c, unit, weights, ZINF_ROLE_TABLE, ids, x);
}

int zinf_embed_position(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                        const void *weights, const int32_t *positions, void *x)
{
    int code = lookup(c, unit, weights, ZINF_ROLE_POSITION, positions, x);
    return code ? code : mask(c, x);
}

int zinf_embed_dropout_backward(const struct zinf_gpt2_compute *c, void *d_x)
{
    return mask(c, d_x);
}

static int lookup_backward(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                           float *grads, enum zinf_role role, const int32_t *ids, const void *d_x,
                           bool add)
{
    struct zinf_embedding args = tile_args(c, unit, role, ids);
    args.dx = d_x;
    args.d_table = grad(unit, grads, role);
    int code = add ? 0 : c->device->ops->fill_zero(c->queue, grads, unit->elems * sizeof(float));
    return code ? code : c->device->ops->embedding_backward(c->queue, &args);
}

int zinf_embed_tile_backward(const struct zinf_gpt2_compute *c, const struct zinf_unit_spec *unit,
                             float *grads, const int32_t *ids, const void *d_x, bool add)
{
    return lookup_backward(c, unit, grads, ZINF_ROLE_TABLE, ids, d_x, add);
}

int zinf_embed_position_backward(const struct zinf_gpt2_compute *c,
                                 const struct zinf_unit_spec *unit, float *grads,
                                 const int32_t *positions, const void *d_x, bool add)
{
    return lookup_backward(c, unit, grads, ZINF_ROLE_POSITION, positions, d_x, add);
}
