/*
 * graph_trainer: a trainer of a random model. The model comes to it as any does, from a config.json
 * and the family that this names: the linker gives the family of this test to whoever asks for one
 * (--wrap), so nothing of the program knows that there are such models. Its weights are put where
 * the plan has them, and are read from there.
 */
#ifndef ZINF_GRAPH_TRAINER_H
#define ZINF_GRAPH_TRAINER_H

#include "graph_plain.h"
#include "graph_random.h"
#include "train/save/transfer.h"
#include "train_support.h"

/* ---- the family ---- */

/* Of the model that is opened next; its weights by unit, flat, gaps zero. */
static struct {
    uint64_t seed;
    int64_t seq;
    uint32_t most_stages;
    float *const *weights; /* [n_units] */
} random_model;

static int build_random(struct zinf_graph *graph, struct zinf_model_facts *facts,
                        const struct zinf_model_source *source)
{
    (void)source;
    struct random_graph g =
        grow_graph(graph, random_model.seed, random_model.seq, random_model.most_stages);
    facts->vocab = g.vocab;
    facts->hidden = g.cols;
    facts->context = random_model.seq;
    facts->layers = facts->heads = 1;
    facts->end_of_text = -1;
    return 0;
}

static const struct zinf_family random_family = {
    .model_type = "random",
    .architecture = "Random",
    .prefix = "",
    .layers_key = "layers",
    .build = build_random,
};

const struct zinf_family *__wrap_zinf_family_find(const char *model_type);
const struct zinf_family *__wrap_zinf_family_find(const char *model_type)
{
    return strcmp(model_type, random_family.model_type) ? NULL : &random_family;
}

/* ---- weights ---- */

static uint64_t most_padded(const struct zinf_trainer *t)
{
    uint64_t most = 0;
    for (uint32_t u = 0; u < t->setup.n_units; u++)
        if (t->setup.layout.units[u].padded_elems > most)
            most = t->setup.layout.units[u].padded_elems;
    return most;
}

static int put_unit(struct zinf_trainer *t, uint32_t unit, float *flat)
{
    struct zinf_location where = zinf_tiers_param(t->plan.tiers, unit, 0);
    uint64_t n = t->setup.layout.units[unit].padded_elems;
    uint16_t *packed = plain_take(2 * n * sizeof *packed);
    const struct zinf_unit *u = &t->setup.graph->units[unit];
    const struct source source = trainer_source(t);
    int code = 0;
    memset(flat, 0, n * sizeof *flat);
    for (int which = u->trained ? 2 : 0; !code && which > 0; which--)
        code = state_write(&source, unit, which, flat);
    memcpy(flat, random_model.weights[unit], u->elems * sizeof *flat);
    if (t->setup.dtype == ZINF_DTYPE_BF16)
        zinf_optim_split(packed, packed + n, flat, n, 1);
    if (!code)
        code = source_write(&source, &where, 0,
                            t->setup.dtype == ZINF_DTYPE_BF16 ? (const void *)packed : flat,
                            where.bytes);
    if (!code && u->trained)
        code = state_write(&source, unit, 0, flat);
    free(packed);
    return code;
}

int __wrap_trainer_load(struct zinf_trainer *t);
int __wrap_trainer_load(struct zinf_trainer *t)
{
    float *flat = plain_take(most_padded(t) * sizeof *flat);
    int code = 0;
    t->prefix = "";
    for (uint32_t u = 0; !code && u < t->setup.n_units; u++)
        code = put_unit(t, u, flat);
    free(flat);
    return code;
}

/* The masters of what is trained, and the parameters of what is not, as floats. */
static void get_unit(struct zinf_trainer *t, uint32_t unit, float *out)
{
    uint64_t n = t->setup.layout.units[unit].padded_elems;
    const struct zinf_unit *u = &t->setup.graph->units[unit];
    const struct source source = trainer_source(t);
    struct zinf_location where = zinf_tiers_param(t->plan.tiers, unit, 0);
    float *flat = plain_take(n * sizeof *flat);
    void *packed = plain_take(n * sizeof *flat);
    CHECKF(!source_read(&source, &where, 0, packed, where.bytes), "%s", zinf_error());
    if (u->trained)
        CHECKF(!state_read(&source, unit, 0, flat), "%s", zinf_error());
    else
        zinf_convert(flat, ZINF_DTYPE_F32, packed, t->setup.dtype, n);
    memcpy(out, flat, u->elems * sizeof *out);
    free(flat);
    free(packed);
}

#endif
