/*
 * setup_context: ranks that share each sequence (zinf.mesh.context). A training has
 * zinf.context_parts parts of each sequence, its ranks equally many of them, so that results have
 * the bits of the parts. These ranks have the same samples; in all else they are ranks along DATA,
 * and each has slices of its own.
 */
#include "train/setup_rates.h"

#define MOST_OWN_PARTS 32 /* have sums of gradients of their own (step/emit_parts.c) */

int setup_take_context(struct setup *s)
{
    const int64_t ranks = s->config->mesh[ZINF_CONTEXT], parts = s->config->context_parts;
    if (parts & (parts - 1))
        return zinf_fail(-EINVAL, "zinf.context_parts %lld: use a power of two, up to 64",
                         (long long)parts);
    if (parts % ranks)
        return zinf_fail(-EINVAL,
                         "zinf.mesh.context is %lld, and zinf.context_parts %lld is no multiple of "
                         "it: let it be the largest number of ranks that is wanted",
                         (long long)ranks, (long long)parts);
    if (parts > ranks * MOST_OWN_PARTS)
        return zinf_fail(-EINVAL,
                         "zinf.context_parts %lld by %lld ranks: a rank may have %d; lower it, or "
                         "raise zinf.mesh.context",
                         (long long)parts, (long long)ranks, MOST_OWN_PARTS);
    return zinf_mesh_share(&s->mesh, (uint32_t)ranks);
}

static int refuse(const struct setup *s, const char *what, const char *remedy)
{
    return zinf_fail(-ENOTSUP, "zinf.context_parts %lld: %s; %s", (long long)s->n_parts, what,
                     remedy);
}

int setup_check_context(const struct setup *s)
{
    const struct zinf_graph *g = s->graph;
    if (!in_parts(s))
        return 0;
    if (s->seq < 2 * s->n_parts)
        return zinf_fail(-EINVAL,
                         "zinf.context_parts %lld: a sequence of %lld tokens is too short for two "
                         "pieces a part; lower the key, or raise --seq-len",
                         (long long)s->n_parts, (long long)s->seq);
    if (tensor_axis(s)->world > 1 || g->shards.of)
        return refuse(s, "tensors that are split cannot be combined with parts of sequences yet",
                      "set zinf.mesh.tensor and zinf.tensor_parts to 1");
    for (uint32_t i = 0; i < g->n_stages; i++)
        if (g->stages[i].choice.n)
            return refuse(s, "experts cannot be combined with parts of sequences yet",
                          "set zinf.mesh.context and zinf.context_parts to 1");
    return 0;
}
