/*
 * state_access: a unit's master weights and moments as plain fp32 arrays, wherever they live.
 * Checkpoints stand on these three calls alone (and transfer_factors, where moments are factored),
 * so they know nothing of sub-groups, of how a master is cut in two, of 8-bit moments, or of
 * updates that are still to be done.
 */
#include "train/save/transfer.h"

static int read_at(struct zinf_trainer *t, const struct zinf_location *where, uint64_t offset,
                   void *memory, uint64_t bytes)
{
    return zinf_location_read(t->plan.tiers, t->setup.device, t->queues[ZINF_LANE_D2H], where,
                              offset, memory, bytes);
}

static int write_at(struct zinf_trainer *t, const struct zinf_location *where, uint64_t offset,
                    const void *memory, uint64_t bytes)
{
    return zinf_location_write(t->plan.tiers, t->setup.device, t->queues[ZINF_LANE_H2D], where,
                               offset, memory, bytes);
}

/* One sub-group, and memory for a part of it. */
struct part {
    uint64_t n, state_bytes; /* state_bytes: without what lies behind */
    struct zinf_location param, state;
    uint16_t *param_bits, *remainder; /* [most] each */
    uint64_t most;
};

static struct part part_of(const struct zinf_trainer *t, uint32_t group)
{
    struct region r = trainer_region(t);
    struct part p = {.n = t->setup.layout.groups[group].n,
                     .state_bytes = t->setup.state_bytes[group],
                     .param = zinf_tiers_group_param(t->plan.tiers, group, 0),
                     .state = zinf_tiers_group_state(t->plan.tiers, group, 0),
                     .param_bits = (uint16_t *)(void *)r.tensor,
                     .most = r.tensor_elems};
    p.remainder = p.param_bits + p.most;
    return p;
}

static int read_split(struct zinf_trainer *t, const struct part *p, float *flat)
{
    int code = 0;
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        code = read_at(t, &p->param, at * 2, p->param_bits, n * 2);
        if (!code)
            code = read_at(t, &p->state, at * 2, p->remainder, n * 2);
        if (!code)
            zinf_optim_join(flat + at, p->param_bits, p->remainder, n, t->setup.device->n_threads);
    }
    return code;
}

static int write_split(struct zinf_trainer *t, const struct part *p, const float *flat)
{
    int code = 0;
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        zinf_optim_split(p->param_bits, p->remainder, flat + at, n, t->setup.device->n_threads);
        code = write_at(t, &p->param, at * 2, p->param_bits, n * 2);
        if (!code)
            code = write_at(t, &p->state, at * 2, p->remainder, n * 2);
    }
    return code;
}

static int write_whole(struct zinf_trainer *t, const struct part *p, const float *flat)
{
    int code = write_at(t, &p->state, 0, flat, p->n * sizeof *flat);
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        zinf_convert(p->param_bits, t->setup.dtype, flat + at, ZINF_DTYPE_F32, n);
        code = write_at(t, &p->param, at * 2, p->param_bits, n * 2);
    }
    return code;
}

/* Of 8-bit moments: codes of the part from `at` on, and the group's scales, which are small. */
struct packed {
    uint64_t codes_at, scales_at, scales_bytes; /* in the state; scales of both moments */
    char *codes;                                /* [most] */
    float *scales;                              /* this moment's */
    char *scales_memory;
};

static struct packed packed_of(const struct zinf_trainer *t, const struct part *p, int which)
{
    uint64_t blocks = p->n / ZINF_OPTIM_8BIT_BLOCK, at = setup_scales_offset(&t->setup, p->n);
    struct packed k = {.codes_at =
                           setup_moments_offset(&t->setup, p->n) + (uint64_t)(which - 1) * p->n,
                       .scales_at = at,
                       .scales_bytes = p->state_bytes - at,
                       .codes = (char *)p->param_bits};
    k.scales_memory = k.codes + zinf_align_up(p->most, ZINF_MEMORY_ALIGN);
    k.scales = (float *)(void *)k.scales_memory + (uint64_t)(which - 1) * blocks;
    return k;
}

static int read_packed(struct zinf_trainer *t, const struct part *p, int which, float *flat)
{
    struct packed k = packed_of(t, p, which);
    int code = read_at(t, &p->state, k.scales_at, k.scales_memory, k.scales_bytes);
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        code = read_at(t, &p->state, k.codes_at + at, k.codes, n);
        if (!code)
            zinf_optim_unpack_8bit(flat + at, which, k.codes, k.scales + at / ZINF_OPTIM_8BIT_BLOCK,
                                   n, t->setup.device->n_threads);
    }
    return code;
}

static int write_packed(struct zinf_trainer *t, const struct part *p, int which, const float *flat)
{
    struct packed k = packed_of(t, p, which);
    int code = read_at(t, &p->state, k.scales_at, k.scales_memory, k.scales_bytes);
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        zinf_optim_pack_8bit(k.codes, k.scales + at / ZINF_OPTIM_8BIT_BLOCK, which, flat + at, n,
                             t->setup.device->n_threads);
        code = write_at(t, &p->state, k.codes_at + at, k.codes, n);
    }
    return code ? code : write_at(t, &p->state, k.scales_at, k.scales_memory, k.scales_bytes);
}

static uint64_t moment_offset(const struct zinf_trainer *t, const struct part *p, int which)
{
    return zinf_state_bytes(t->setup.form, which - 1, p->n);
}

static int read_part(struct zinf_trainer *t, const struct part *p, int which, float *flat)
{
    uint64_t bytes = p->n * sizeof *flat;
    if (which && t->setup.moments == MOMENTS_8BIT)
        return read_packed(t, p, which, flat);
    if (which)
        return read_at(t, &p->state, moment_offset(t, p, which), flat, bytes);
    if (t->setup.form == ZINF_STATE_SPLIT)
        return read_split(t, p, flat);
    return read_at(t, t->setup.form == ZINF_STATE_BARE ? &p->param : &p->state, 0, flat, bytes);
}

static int write_part(struct zinf_trainer *t, const struct part *p, int which, const float *flat)
{
    uint64_t bytes = p->n * sizeof *flat;
    if (which && t->setup.moments == MOMENTS_8BIT)
        return write_packed(t, p, which, flat);
    if (which)
        return write_at(t, &p->state, moment_offset(t, p, which), flat, bytes);
    if (t->setup.form == ZINF_STATE_SPLIT)
        return write_split(t, p, flat);
    return t->setup.form == ZINF_STATE_BARE ? write_at(t, &p->param, 0, flat, bytes)
                                            : write_whole(t, p, flat);
}

int trainer_state_read(struct zinf_trainer *t, uint32_t unit, int which, float *flat)
{
    const struct zinf_layout_unit *u = &t->setup.layout.units[unit];
    int code = 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++) {
        struct part p = part_of(t, g);
        code = read_part(t, &p, which, flat + t->setup.layout.groups[g].first);
    }
    return code;
}

int trainer_state_write(struct zinf_trainer *t, uint32_t unit, int which, const float *flat)
{
    const struct zinf_layout_unit *u = &t->setup.layout.units[unit];
    int code = 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++) {
        struct part p = part_of(t, g);
        code = write_part(t, &p, which, flat + t->setup.layout.groups[g].first);
    }
    return code;
}
