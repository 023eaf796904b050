/*
 * whole_unit: ranks that share each matrix bring a unit together, for files that have whole
 * tensors: tensor by tensor, each from the first rank that has it.
 */
#include "train/save/transfer.h"

static bool is_same(const struct zinf_tensor *a, const struct zinf_tensor *b)
{
    const struct zinf_piece *x = &a->pieces[0], *y = &b->pieces[0];
    return a->cut == b->cut && a->shard == b->shard && !strcmp(x->name, y->name) &&
           x->rows.file_first == y->rows.file_first;
}

/* This rank's tensor that one of the whole unit is; NULL: it is another rank's. */
static const struct zinf_tensor *find_own(const struct zinf_unit *unit,
                                          const struct zinf_tensor *wanted)
{
    for (uint32_t i = 0; i < unit->n_tensors; i++)
        if (is_same(&unit->tensors[i], wanted))
            return &unit->tensors[i];
    return NULL;
}

int whole_unit(const struct source *s, uint32_t unit, const float *own, float *whole)
{
    const struct setup *setup = s->setup;
    const struct zinf_unit *all = &setup->whole->units[unit];
    int code = 0;
    memset(whole, 0, all->elems * sizeof *whole);
    for (uint32_t i = 0; !code && i < all->n_tensors; i++) {
        const struct zinf_tensor *t = &all->tensors[i];
        if (t->form != ZINF_FORM_PLAIN || t->moved) /* it is not in the flat buffer */
            continue;
        const struct zinf_tensor *mine = find_own(&setup->stages->units[unit], t);
        const uint64_t bytes = t->elems * sizeof *whole;
        if (mine)
            memcpy(whole + t->offset, own + mine->offset, bytes);
        if (t->cut)
            code = zinf_net_broadcast(tensor_axis(setup)->net, t->shard / setup->graph->shards.n,
                                      whole + t->offset, bytes);
    }
    return code;
}
