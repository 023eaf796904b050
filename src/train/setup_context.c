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
    if (ranks & (ranks - 1))
        return zinf_fail(-EINVAL,
                         "zinf.mesh.context (--context-parallel) is %lld: use a power of two, up "
                         "to 64",
                         (long long)ranks);
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

int setup_check_context(const struct setup *s)
{
    if (!in_parts(s))
        return 0;
    if (s->seq < 2 * s->n_parts)
        return zinf_fail(-EINVAL,
                         "zinf.context_parts %lld: a sequence of %lld tokens is too short for two "
                         "pieces a part; lower the key, or raise --seq-len",
                         (long long)s->n_parts, (long long)s->seq);
    return 0;
}

int setup_find_tellers(struct setup *s)
{
    const struct zinf_axis *data = data_axis(s);
    return setup_tells(s) && !zinf_net_is_described(data->net)
               ? zinf_net_split(data->net, 0, data->rank, &s->telling)
               : 0;
}
