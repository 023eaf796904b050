/*
 * durable: steps that outlive the process. Every unit's state lies on the drive in two generations,
 * and no update is made in place; a step becomes what a restart finds by one record of aio/steps.h.
 * The record of a step is written when all its updates are, late ones in the next step's forward
 * included, and before anything of the next step overwrites the generation that the record before
 * it names.
 *
 * Parameters that are not on the drive lie there once more (copies.c), where an update writes them
 * and a restart reads them: where the drive is their configured tier and RAM has taken them, in the
 * extent that they would have had, so that what lies on the drive does not depend on the RAM that
 * was free; else behind the state, and of a rank that has them whole, its slice. What is frozen has
 * neither: it comes from the model's folder again.
 *
 * A unit's generation turns once with every applied step, all units' with the same, so that the
 * generation of every unit is that of the record. A skipped step turns none and has no record: a
 * restart makes it again.
 */
#include "aio/steps.h"
#include "train/rules/rules.h"
#include "train/save/transfer.h"

#include <stdlib.h>
#include <xxhash.h>

int durable_open_store(struct zinf_trainer *t, struct zinf_store_options *options)
{
    options->run = t->setup.durable ? t->setup.options.run : NULL;
    int code = zinf_store_create(&t->setup.store, options);
    if (code || !options->run || !t->setup.options.anew)
        return code;
    zinf_steps_forget(t->setup.store);
    zinf_store_destroy(t->setup.store);
    t->setup.store = NULL;
    return zinf_store_create(&t->setup.store, options);
}

/* Which tensors a unit is made of, and where they are in it. */
static uint64_t unit_number(const struct zinf_unit *unit, uint64_t sum)
{
    for (uint32_t i = 0; i < unit->n_tensors; i++) {
        const struct zinf_tensor *t = &unit->tensors[i];
        const uint64_t numbers[] = {sum, t->rows, t->cols, t->offset,
                                    t->decay | (uint64_t)t->form << 8};
        sum = XXH3_64bits(numbers, sizeof numbers);
        for (uint32_t k = 0; k < t->n_pieces; k++)
            sum = XXH3_64bits_withSeed(t->pieces[k].name, strlen(t->pieces[k].name), sum);
    }
    return sum;
}

/* What tells bytes of one meaning from the same bytes with another; packs: and from what an older
 * zinf does not know. */
static uint64_t layout_number(const struct zinf_trainer *t, enum packing packs)
{
    const struct zinf_layout *l = &t->setup.layout;
    const struct zinf_axis *data = data_axis(&t->setup);
    const char *family = zinf_model_facts(t->setup.model)->family;
    const uint64_t kinds[] = {t->setup.dtype,      t->setup.form,
                              t->setup.hyper.kind, t->setup.optimizers[0].rule->number,
                              data->rank,          data->world};
    uint64_t sum = XXH3_64bits_withSeed(family, strlen(family), XXH3_64bits(kinds, sizeof kinds));
    const char *optimizers = t->setup.optimizers_text;
    if (t->setup.n_optimizers > 1)
        sum = XXH3_64bits_withSeed(optimizers, strlen(optimizers), sum);
    for (uint32_t u = 0; u < l->n_units; u++)
        sum = unit_number(&t->setup.graph->units[u], sum);
    for (uint32_t g = 0; g < l->n_groups; g++) {
        const uint64_t group[] = {sum, l->groups[g].unit, l->groups[g].first, l->groups[g].n};
        sum = XXH3_64bits(group, sizeof group);
    }
    const struct zinf_axis *pipe = pipe_axis(&t->setup);
    if (pipe->world > 1)
        sum = XXH3_64bits_withSeed(&pipe->rank, 2 * sizeof pipe->rank, sum);
    if (t->setup.graph->n_ranges > 1)
        sum = XXH3_64bits_withSeed(&t->setup.graph->n_ranges, sizeof(uint32_t), sum);
    const struct zinf_shards *shards = &t->setup.graph->shards;
    if (shards->of) /* rows of a tensor are in their order */
        sum = XXH3_64bits_withSeed(shards, offsetof(struct zinf_shards, in_turn), sum);
    return packs == PACK_ALL     ? XXH3_64bits_withSeed("all packed", 10, sum)
           : packs == PACK_STATE ? XXH3_64bits_withSeed("packed", 6, sum)
                                 : sum;
}

/* What of a thing an earlier process has packed is said by its first page. Of the other generation
 * nothing is known, so all of it is written once: a record names the checksums of all pages. */
static int find_packed_thing(struct zinf_trainer *t, const struct rule_thing *thing,
                             unsigned generation)
{
    struct source s = trainer_source(t);
    char *page = source_region(&s).slot;
    const struct zinf_location where =
        thing->what == ZINF_PACKABLE_STATE
            ? zinf_tiers_group_state(t->plan.tiers, thing->group, 0)
            : zinf_tiers_group_stored(t->plan.tiers, thing->group, 0);
    uint64_t bytes = 0;
    int code = source_read(&s, &where, 0, page, ZINF_AIO_ALIGN);
    if (!code)
        code = rule_packed_bytes(thing, page, &bytes);
    zinf_tiers_packed(t->plan.tiers, thing->what, thing->group, generation)->read_pages =
        (uint32_t)(bytes / ZINF_AIO_ALIGN);
    zinf_tiers_packed(t->plan.tiers, thing->what, thing->group, !generation)->whole = true;
    return code;
}

static int find_packed(struct zinf_trainer *t, unsigned generation)
{
    int code = 0;
    for (uint32_t g = 0; !code && g < t->setup.layout.n_groups; g++) {
        const struct rule_thing state = {&t->setup, ZINF_PACKABLE_STATE, g, false};
        const struct rule_thing param = {&t->setup, ZINF_PACKABLE_PARAM, g, false};
        const uint32_t unit = t->setup.layout.groups[g].unit;
        if (unit_trains(&t->setup, unit) && rule_packs(&state))
            code = find_packed_thing(t, &state, generation);
        const struct zinf_home *home = &t->plan.homes[unit];
        if (!code && t->setup.packs == PACK_ALL && unit_trains(&t->setup, unit) &&
            (home->packed || home->packs_copy))
            code = find_packed_thing(t, &param, generation);
    }
    return code;
}

/* A run goes on in the form in which it began: its own choice may be another one by now. */
static int open_steps(struct zinf_trainer *t, struct zinf_steps_options *options)
{
    static const char *const names[] = {"off", "state", "all"};
    struct durable *d = &t->durable;
    enum packing own = t->setup.packs, found = own;
    options->layout = layout_number(t, own);
    int code = zinf_steps_open(&d->steps, t->plan.store, options);
    for (enum packing other = PACK_OFF; code == -EINVAL && other <= PACK_ALL; other++) {
        options->layout = layout_number(t, found = other);
        code = other == own ? code : zinf_steps_open(&d->steps, t->plan.store, options);
    }
    if (code || found == own)
        return code;
    d->wants_packed = found > own ? found : PACK_OFF;
    if (d->wants_packed)
        return zinf_fail(-EINVAL, "the steps of this run are packed: set zinf.pack to \"%s\"",
                         names[found]);
    t->setup.packs = t->plan.variant.packs = found;
    zinf_log(ZINF_LOG_INFO, "this run began with zinf.pack \"%s\" and goes on so", names[found]);
    return 0;
}

int durable_open(struct zinf_trainer *t)
{
    struct durable *d = &t->durable;
    struct zinf_steps_options options = {
        .payload_bytes = DURABLE_SCALARS_BYTES,
        .flush = t->setup.config->durability_flush,
    };
    const void *scalars;
    uint64_t bytes;
    int generation = 0;
    if (!t->setup.durable)
        return 0;
    d->scalars = malloc(DURABLE_SCALARS_BYTES);
    int code = d->scalars ? open_steps(t, &options)
                          : zinf_fail(-ENOMEM, "no memory for the scalars of a step");
    if (code)
        return code;
    d->recovered = zinf_steps_recovered(d->steps, &generation, &scalars, &bytes);
    code = durable_agree(t);
    if (code)
        return code;
    zinf_steps_recovered(d->steps, &generation, &scalars, &bytes); /* it may have gone back */
    for (uint32_t u = 0; u < t->setup.n_units; u++)
        *zinf_tiers_live(t->plan.tiers, u) = (uint8_t)generation;
    code = d->recovered && t->setup.packs ? find_packed(t, (unsigned)generation) : 0;
    if (!code && d->recovered)
        code = copies_read(t);
    return !code && d->recovered ? durable_gather(t) : code;
}

void durable_close(struct zinf_trainer *t)
{
    zinf_steps_close(t->durable.steps);
    free(t->durable.scalars);
    t->durable = (struct durable){0};
}

const void *durable_recovered(const struct zinf_trainer *t, uint64_t *bytes)
{
    const void *scalars = NULL;
    int generation;
    if (t->durable.recovered)
        zinf_steps_recovered(t->durable.steps, &generation, &scalars, bytes);
    return scalars;
}

int durable_record(struct zinf_trainer *t)
{
    struct durable *d = &t->durable;
    uint64_t begin = zinf_now_ns();
    int generation;
    int code = zinf_steps_begin(d->steps, &generation);
    for (uint32_t u = 0; !code && u < t->setup.n_units; u++)
        if (unit_trains(&t->setup, u) && *zinf_tiers_live(t->plan.tiers, u) != generation)
            code = zinf_fail(-EINVAL, "step %llu cannot be committed: unit %u is in generation %d",
                             (unsigned long long)t->step, u, !generation);
    if (!code)
        code = zinf_steps_end(d->steps, d->scalars, d->scalars_bytes);
    for (uint32_t g = 0; !code && g < t->setup.layout.n_groups; g++)
        for (int what = 0; what < ZINF_PACKABLES; what++)
            zinf_tiers_packed(t->plan.tiers, (enum zinf_packable)what, g, (unsigned)generation)
                ->whole = false;
    d->due = false;
    d->unmet = t->setup.mesh.all != NULL;
    d->n++;
    d->seconds += (double)(zinf_now_ns() - begin) * 1e-9;
    return code;
}

/* What a record costs, and what one costs that survives a power cut: said after the first step. */
static int report_cost(struct zinf_trainer *t)
{
    struct durable *d = &t->durable;
    double record = d->seconds / (double)d->n;
    uint64_t begin = zinf_now_ns();
    d->reported = true;
    if (t->setup.config->durability_flush) {
        zinf_log(ZINF_LOG_INFO,
                 "steps survive kill -9 and power cuts: a record with its flushes takes %.2f ms; "
                 "without zinf.durability_flush they survive kill -9",
                 record * 1e3);
        return 0;
    }
    int code = zinf_store_flush(t->plan.store);
    zinf_log(ZINF_LOG_INFO,
             "steps survive kill -9: a record takes %.2f ms; with zinf.durability_flush they "
             "survive power cuts too, for two flushes of about %.2f ms a step",
             record * 1e3, (double)(zinf_now_ns() - begin) * 1e-6);
    return code;
}

int durable_commit(struct zinf_trainer *t, const void *scalars, uint64_t bytes)
{
    struct durable *d = &t->durable;
    if (!d->steps)
        return 0;
    if (bytes > DURABLE_SCALARS_BYTES)
        return zinf_fail(-EINVAL, "the scalars of a step take %llu bytes",
                         (unsigned long long)bytes);
    int code = d->n || d->recovered ? 0 : copies_write(t);
    if (!code && !d->reported && d->n > !d->recovered)
        code = report_cost(t);
    if (code)
        return code;
    memcpy(d->scalars, scalars, bytes);
    d->scalars_bytes = bytes;
    d->due = true;
    for (uint32_t u = 0; u < t->setup.n_units; u++)
        if (t->pending[u])
            return 0;
    return durable_finish(t);
}

int durable_finish(struct zinf_trainer *t)
{
    int code = t->durable.due ? durable_record(t) : 0;
    return !code && t->durable.unmet ? durable_meet(t) : code;
}

void durable_forget(struct zinf_trainer *t)
{
    if (t->durable.steps)
        zinf_steps_forget(t->plan.store);
}
