/*
 * setup_tensor: ranks that share each matrix (zinf.mesh.tensor). A training has zinf.tensor_parts
 * parts of each, its ranks equally many of them, so that results have the bits of the parts.
 */
#include "train/setup_rates.h"

#include <stdlib.h>

/* What needs more of a matrix than one of its parts. An optimizer over matrices has all parts
 * brought together, also those of several ranks, if they are updated at the same time. */
static int check_grain(const struct setup *s, int64_t parts)
{
    const char *type = s->config->optimizer.type;
    if (trains(s) && s->grain == GRAIN_TENSORS)
        return zinf_fail(-ENOTSUP,
                         "zinf.tensor_parts %lld: optimizer %s needs whole tensors, which are cut "
                         "into parts; use AdamW",
                         (long long)parts, type);
    if (trains(s) && s->grain == GRAIN_MATRICES && s->config->parts_in_turn)
        return zinf_fail(-ENOTSUP,
                         "zinf.parts_in_turn: optimizer %s needs whole matrices, and their parts "
                         "are updated one after the other; remove the key, or use AdamW",
                         type);
    return 0;
}

static int check_parts(const struct setup *s, int64_t parts, int64_t ranks)
{
    if (parts & (parts - 1))
        return zinf_fail(-EINVAL, "zinf.tensor_parts %lld: use a power of two, up to %d",
                         (long long)parts, ZINF_MOST_SHARDS);
    if (parts % ranks)
        return zinf_fail(-EINVAL,
                         "zinf.mesh.tensor is %lld, and zinf.tensor_parts %lld is no multiple of "
                         "it: let it be the largest number of ranks that is wanted",
                         (long long)ranks, (long long)parts);
    if (s->config->max_z_loss > 0)
        return zinf_fail(-ENOTSUP,
                         "zinf.tensor_parts %lld: no part of the vocabulary knows the largest "
                         "logit of all, which zinf.max_z_loss needs; set that to 0",
                         (long long)parts);
    if (s->config->parts_in_turn && (ranks > 1 || s->config->context_parts > 1))
        return zinf_fail(-ENOTSUP,
                         "zinf.parts_in_turn: the parts are to be one rank's: set %s to 1, or "
                         "remove the key",
                         ranks > 1 ? "zinf.mesh.tensor" : "zinf.context_parts");
    return check_grain(s, parts);
}

int setup_cut_model(struct setup *s)
{
    const uint32_t ranks = tensor_axis(s)->world;
    const int64_t asked = s->config->tensor_parts, parts = asked ? asked : ranks;
    struct zinf_shards cut = {.tile_rows = s->config->vocabulary_tile};
    if (parts == 1 && s->config->parts_in_turn)
        return zinf_fail(-EINVAL, "zinf.parts_in_turn: matrices are not cut; set zinf.tensor_parts "
                                  "to a number of parts, such as 8");
    if (parts == 1)
        return cut.tile_rows ? zinf_model_set_shards(s->model, &cut) : 0;
    cut.of = (uint32_t)parts;
    cut.n = (uint32_t)parts / ranks;
    cut.first = cut.n * tensor_axis(s)->rank;
    cut.in_turn = s->config->parts_in_turn;
    int code = check_parts(s, parts, ranks);
    return code ? code : zinf_model_set_shards(s->model, &cut);
}

/* Those that have the same key and value head, which are next to each other; layers may have
 * several numbers of these. */
static int split_sharing(struct setup *s)
{
    const struct zinf_axis *axis = tensor_axis(s);
    const uint32_t shared = s->whole->shards.groups;
    int code = 0;
    for (uint32_t i = 0, ranks = 2; !code && ranks <= axis->world; i++, ranks *= 2)
        if (shared & (ranks * s->graph->shards.n))
            code = zinf_net_split(axis->net, axis->rank / ranks, axis->rank, &s->sharing[i]);
    return code;
}

/* The largest of all ranks that share tensors, or, of those that are described, of this one and
 * another, whose numbers are `others`. Doubles that are not negative are in the order of their
 * bits. */
static int take_most(const struct setup *s, void *numbers, const void *others, uint64_t n)
{
    int64_t *list = numbers;
    const int64_t *other = others;
    int code = 0;
    for (uint64_t i = 0; other && i < n; i++)
        list[i] = other[i] > list[i] ? other[i] : list[i];
    if (other)
        return 0;
    for (uint64_t at = 0; !code && at < n; at += ZINF_NET_MOST_NUMBERS) {
        const uint64_t left = n - at;
        code = zinf_net_max(tensor_axis(s)->net, list + at,
                            left < ZINF_NET_MOST_NUMBERS ? (uint32_t)left : ZINF_NET_MOST_NUMBERS);
    }
    return code;
}

/* Ranks' parts of the vocabulary may differ by a row a tile. Plans and the order of operations are
 * those of the largest, so that they are the same on all. other: NULL, or a rank that is described.
 */
static int agree_sizes(struct setup *s, const struct walk *other)
{
    enum { NUMBERS = sizeof(struct zinf_stage_size) / sizeof(int64_t) };
    struct walk *w = &s->walk;
    const struct {
        void *own;
        const void *others;
    } all[] = {
        {&w->flops, other ? &other->flops : NULL},
        {&w->scratch, other ? &other->scratch : NULL},
        {&w->scratch_whole, other ? &other->scratch_whole : NULL},
        {&w->workspace, other ? &other->workspace : NULL},
        {&w->outside, other ? &other->outside : NULL},
        {&w->shared, other ? &other->shared : NULL},
    };
    int code = 0;
    for (size_t i = 0; !code && i < sizeof all / sizeof *all; i++)
        code = take_most(s, all[i].own, all[i].others, 1);
    for (uint32_t i = 0; !code && i < s->graph->n_stages; i++)
        code = take_most(s, w->stages[i].size, other ? other->stages[i].size : NULL,
                         ZINF_PASSES * NUMBERS);
    return code;
}

int setup_agree_elems(const struct setup *s, uint64_t *elems)
{
    if (tensor_axis(s)->net && !zinf_net_is_described(s->mesh.all))
        return take_most(s, elems, NULL, s->n_units);
    for (uint32_t u = 0; s->most_elems && u < s->n_units; u++)
        if (elems[u] && s->most_elems[u] > elems[u]) /* else another pipeline rank has it */
            elems[u] = s->most_elems[u];
    return 0;
}

static bool has_same_tensors(const struct zinf_unit *a, const struct zinf_unit *b)
{
    bool same = a->elems == b->elems && a->n_tensors == b->n_tensors;
    for (uint32_t i = 0; same && i < a->n_tensors; i++)
        same = a->tensors[i].offset == b->tensors[i].offset &&
               a->tensors[i].elems == b->tensors[i].elems;
    return same;
}

int setup_take_sizes(struct setup *s, const struct setup *other)
{
    if (!s->most_elems)
        s->most_elems = calloc(s->n_units + 1, sizeof *s->most_elems);
    if (!s->most_elems)
        return zinf_fail(-ENOMEM, "no memory for %u units", s->n_units);
    for (uint32_t u = 0; u < s->n_units; u++) {
        if (other->stages->units[u].elems > s->most_elems[u])
            s->most_elems[u] = other->stages->units[u].elems;
        s->uneven |= !has_same_tensors(&s->stages->units[u], &other->stages->units[u]);
    }
    return agree_sizes(s, &other->walk);
}

/* Where optimizers of tensors differ, a row more moves the borders between their parts of a unit's
 * state, each of which begins at a page. */
int setup_agree_state(struct setup *s, const struct setup *other)
{
    const struct {
        void *own;
        const void *others;
    } all[] = {
        {s->state_bytes, other ? other->state_bytes : NULL},
        {s->state_shares, other ? other->state_shares : NULL},
        {s->state_expected, other ? other->state_expected : NULL},
    };
    int code = 0;
    for (size_t i = 0; !code && i < sizeof all / sizeof *all; i++)
        code = take_most(s, all[i].own, all[i].others, s->layout.n_groups);
    return code;
}

int setup_check_tensor(struct setup *s)
{
    const struct zinf_axis *axis = tensor_axis(s);
    const int64_t hidden = zinf_model_facts(s->model)->hidden;
    for (uint32_t u = 0; u < s->n_units; u++)
        if (s->whole->units[u].elems > s->max_whole_elems)
            s->max_whole_elems = s->whole->units[u].elems;
    if (axis->world < 2)
        return 0;
    if (hidden % axis->world)
        return zinf_fail(-EINVAL,
                         "zinf.mesh.tensor is %u, which the hidden size %lld is no "
                         "multiple of",
                         axis->world, (long long)hidden);
    if (zinf_net_is_described(s->mesh.all)) /* setup_take_sizes */
        return 0;
    int code = agree_sizes(s, NULL);
    return code ? code : split_sharing(s);
}
