/*
 * copies: what the drive has once more of parameters that are not there. Updates write it, beside
 * the generation that it has now. A restart reads it (durable.c), and so does a step that is taken
 * back where its updates have overwritten the parameters in RAM.
 */
#include "train/rules/rules.h"
#include "train/save/transfer.h"

/* A sub-group's copy, in its current generation. */
struct copy {
    struct zinf_location where;
    uint64_t at;                /* bytes from there */
    struct zinf_packed *packed; /* NULL: it is stored as it is */
};

/* In an extent of their own, or behind the state. */
static struct copy copy_of(const struct zinf_trainer *t, uint32_t group)
{
    const struct zinf_tiers *tiers = t->plan.tiers;
    const struct zinf_home *home = &t->plan.homes[t->setup.layout.groups[group].unit];
    struct copy c = {.where = zinf_tiers_group_state(tiers, group, 0)};
    if (home->backed)
        c.where = zinf_tiers_group_backing(tiers, group, 0);
    struct zinf_packed *packed =
        zinf_tiers_packed(tiers, home->backed ? ZINF_PACKABLE_PARAM : ZINF_PACKABLE_STATE, group,
                          zinf_location_generation(&c.where));
    c.packed = home->packs_copy ? packed : NULL;
    if (!home->backed)
        c.at = packed->read_pages ? (uint64_t)packed->read_pages * ZINF_AIO_ALIGN
                                  : c.where.bytes - zinf_tiers_group_param(tiers, group, 0).bytes;
    return c;
}

/* Parameters that RAM has as the copy is are moved as they are stored. */
static int move_image(struct zinf_trainer *t, uint32_t group, bool out)
{
    struct source s = trainer_source(t);
    struct region r = source_region(&s);
    const struct zinf_location param = zinf_tiers_group_param(t->plan.tiers, group, 0);
    const struct copy c = copy_of(t, group);
    const uint64_t packed = c.packed ? (uint64_t)c.packed->read_pages * ZINF_AIO_ALIGN : 0;
    const uint64_t bytes = packed ? packed : param.bytes;
    int code = source_read(&s, out ? &param : &c.where, 0, r.slot, bytes);
    return code ? code : source_write(&s, out ? &c.where : &param, 0, r.slot, bytes);
}

static int write_copy(struct zinf_trainer *t, uint32_t group)
{
    struct source s = trainer_source(t);
    void *memory = source_region(&s).unit;
    const struct zinf_location param = zinf_tiers_group_param(t->plan.tiers, group, 0);
    const struct copy c = copy_of(t, group);
    if (param.head)
        return move_image(t, group, true);
    if (c.packed)
        *c.packed = (struct zinf_packed){.whole = c.packed->whole};
    int code = source_read(&s, &param, 0, memory, param.bytes);
    return code ? code : source_write(&s, &c.where, c.at, memory, param.bytes);
}

static int read_copy(struct zinf_trainer *t, uint32_t group)
{
    const struct rule_thing thing = {&t->setup, ZINF_PACKABLE_PARAM, group, false};
    struct source s = trainer_source(t);
    struct region r = source_region(&s);
    const struct zinf_location param = zinf_tiers_group_param(t->plan.tiers, group, 0);
    const struct copy c = copy_of(t, group);
    const uint64_t bytes = c.packed ? (uint64_t)c.packed->read_pages * ZINF_AIO_ALIGN : 0;
    if (param.head)
        return move_image(t, group, false);
    int code = bytes ? source_read(&s, &c.where, 0, r.slot, bytes)
                     : source_read(&s, &c.where, c.at, r.unit, param.bytes);
    if (!code && bytes)
        code = rule_unpack(&thing, r.unit, r.slot, bytes);
    return code ? code : source_write(&s, &param, 0, r.unit, param.bytes);
}

static int move_unit(struct zinf_trainer *t, uint32_t unit, bool out)
{
    const struct zinf_layout_unit *u = &t->setup.layout.units[unit];
    int code = 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++)
        code = out ? write_copy(t, g) : read_copy(t, g);
    t->copied[unit] = code ? COPY_UNKNOWN : COPY_SAME;
    return code;
}

static int move_all(struct zinf_trainer *t, bool out)
{
    int code = 0;
    for (uint32_t u = 0; !code && u < t->setup.n_units; u++)
        if (unit_trains(&t->setup, u) && t->plan.homes[u].param != ZINF_TIER_DRIVE)
            code = move_unit(t, u, out);
    return code;
}

int copies_write(struct zinf_trainer *t)
{
    return move_all(t, true);
}

int copies_read(struct zinf_trainer *t)
{
    return move_all(t, false);
}

int copies_ready(struct zinf_trainer *t)
{
    int code = 0;
    for (uint32_t u = 0; !code && u < t->setup.n_units; u++)
        if (t->plan.homes[u].overwritten && t->copied[u] == COPY_UNKNOWN)
            code = move_unit(t, u, true);
    return code;
}

int copies_take_back(struct zinf_trainer *t)
{
    int code = 0;
    for (uint32_t u = 0; !code && u < t->setup.n_units; u++)
        if (t->plan.homes[u].overwritten && t->copied[u] == COPY_OLDER)
            code = move_unit(t, u, false);
    return code;
}
