/*
 * copies: what the drive has once more of parameters that are not there. Updates write it, beside
 * the generation that it has now. A restart reads it (durable.c), and so does a step that is taken
 * back where its updates have overwritten the parameters in RAM.
 */
#include "train/save/transfer.h"

/* In an extent of their own, or behind the state. */
static int move_copy(struct zinf_trainer *t, uint32_t group, bool out)
{
    struct source s = trainer_source(t);
    void *memory = source_region(&s).unit;
    bool backed = t->plan.homes[t->setup.layout.groups[group].unit].backed;
    struct zinf_location param = zinf_tiers_group_param(t->plan.tiers, group, 0);
    struct zinf_location copy = backed ? zinf_tiers_group_backing(t->plan.tiers, group, 0)
                                       : zinf_tiers_group_state(t->plan.tiers, group, 0);
    const struct zinf_packed *packed = zinf_tiers_packed(t->plan.tiers, ZINF_PACKABLE_STATE, group,
                                                         zinf_location_generation(&copy));
    uint64_t at = !backed && packed->read_pages ? (uint64_t)packed->read_pages * ZINF_AIO_ALIGN
                                                : copy.bytes - param.bytes;
    int code = out ? source_read(&s, &param, 0, memory, param.bytes)
                   : source_read(&s, &copy, at, memory, param.bytes);
    if (code)
        return code;
    return out ? source_write(&s, &copy, at, memory, param.bytes)
               : source_write(&s, &param, 0, memory, param.bytes);
}

static int move_unit(struct zinf_trainer *t, uint32_t unit, bool out)
{
    const struct zinf_layout_unit *u = &t->setup.layout.units[unit];
    int code = 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++)
        code = move_copy(t, g, out);
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
