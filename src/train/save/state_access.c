/*
 * state_access: a unit's master weights and moments as plain fp32 arrays, wherever they live.
 * Loading and checkpoints stand on these three calls alone (and transfer_factors, where moments are
 * factored), so they know nothing of sub-groups, of how a master is cut in two, of moments in bf16
 * or 8 bits, or of updates that are still to be done.
 */
#include "train/save/transfer.h"

/* One sub-group, and memory for a part of it. */
struct part {
    uint64_t n, state_bytes; /* state_bytes: without what lies behind */
    struct zinf_location param, state;
    uint16_t *param_bits, *remainder; /* [most] each */
    uint64_t most;
};

static struct part part_of(const struct source *s, uint32_t group)
{
    struct region r = source_region(s);
    struct part p = {.n = s->setup->layout.groups[group].n,
                     .state_bytes = s->setup->state_bytes[group],
                     .param = zinf_tiers_group_param(s->tiers, group, 0),
                     .state = zinf_tiers_group_state(s->tiers, group, 0),
                     .param_bits = (uint16_t *)(void *)r.scratch,
                     .most = r.scratch_elems};
    p.remainder = p.param_bits + p.most;
    return p;
}

static int read_split(const struct source *s, const struct part *p, float *flat)
{
    int code = 0;
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        code = source_read(s, &p->param, at * 2, p->param_bits, n * 2);
        if (!code)
            code = source_read(s, &p->state, at * 2, p->remainder, n * 2);
        if (!code)
            zinf_optim_join(flat + at, p->param_bits, p->remainder, n, s->device->n_threads);
    }
    return code;
}

/* param: the upper halves, too. */
static int write_split(const struct source *s, const struct part *p, const float *flat, bool param)
{
    int code = 0;
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        zinf_optim_split(p->param_bits, p->remainder, flat + at, n, s->device->n_threads);
        if (param)
            code = source_write(s, &p->param, at * 2, p->param_bits, n * 2);
        if (!code)
            code = source_write(s, &p->state, at * 2, p->remainder, n * 2);
    }
    return code;
}

static int write_whole(const struct source *s, const struct part *p, const float *flat)
{
    int code = source_write(s, &p->state, 0, flat, p->n * sizeof *flat);
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        zinf_convert(p->param_bits, s->setup->dtype, flat + at, ZINF_DTYPE_F32, n);
        code = source_write(s, &p->param, at * 2, p->param_bits, n * 2);
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

static struct packed packed_of(const struct source *s, const struct part *p, int which)
{
    uint64_t blocks = p->n / ZINF_OPTIM_8BIT_BLOCK, at = rule_scales_offset(s->setup, p->n);
    struct packed k = {.codes_at = rule_moment_offset(s->setup, p->n, which),
                       .scales_at = at,
                       .scales_bytes = p->state_bytes - at,
                       .codes = (char *)p->param_bits};
    k.scales_memory = k.codes + zinf_align_up(p->most, ZINF_MEMORY_ALIGN);
    k.scales = (float *)(void *)k.scales_memory + (uint64_t)(which - 1) * blocks;
    return k;
}

static int read_packed(const struct source *s, const struct part *p, int which, float *flat)
{
    struct packed k = packed_of(s, p, which);
    int code = source_read(s, &p->state, k.scales_at, k.scales_memory, k.scales_bytes);
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        code = source_read(s, &p->state, k.codes_at + at, k.codes, n);
        if (!code)
            zinf_optim_unpack_8bit(flat + at, which, k.codes, k.scales + at / ZINF_OPTIM_8BIT_BLOCK,
                                   n, s->device->n_threads);
    }
    return code;
}

static int write_packed(const struct source *s, const struct part *p, int which, const float *flat)
{
    struct packed k = packed_of(s, p, which);
    int code = source_read(s, &p->state, k.scales_at, k.scales_memory, k.scales_bytes);
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        zinf_optim_pack_8bit(k.codes, k.scales + at / ZINF_OPTIM_8BIT_BLOCK, which, flat + at, n,
                             s->device->n_threads);
        code = source_write(s, &p->state, k.codes_at + at, k.codes, n);
    }
    return code ? code : source_write(s, &p->state, k.scales_at, k.scales_memory, k.scales_bytes);
}

/* bf16 moments; what comes from files in fp32 is rounded to nearest. */
static int read_half(const struct source *s, const struct part *p, int which, float *flat)
{
    uint64_t begin = rule_moment_offset(s->setup, p->n, which);
    int code = 0;
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        code = source_read(s, &p->state, begin + at * 2, p->param_bits, n * 2);
        if (!code)
            zinf_convert(flat + at, ZINF_DTYPE_F32, p->param_bits, ZINF_DTYPE_BF16, n);
    }
    return code;
}

static int write_half(const struct source *s, const struct part *p, int which, const float *flat)
{
    uint64_t begin = rule_moment_offset(s->setup, p->n, which);
    int code = 0;
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        zinf_convert(p->param_bits, ZINF_DTYPE_BF16, flat + at, ZINF_DTYPE_F32, n);
        code = source_write(s, &p->state, begin + at * 2, p->param_bits, n * 2);
    }
    return code;
}

static int read_part(const struct source *s, const struct part *p, int which, float *flat)
{
    uint64_t bytes = p->n * sizeof *flat;
    if (which && s->setup->rule->block)
        return read_packed(s, p, which, flat);
    if (which && s->setup->rule->half)
        return read_half(s, p, which, flat);
    if (which)
        return source_read(s, &p->state, rule_moment_offset(s->setup, p->n, which), flat, bytes);
    if (s->setup->form == ZINF_STATE_SPLIT)
        return read_split(s, p, flat);
    return source_read(s, s->setup->form == ZINF_STATE_BARE ? &p->param : &p->state, 0, flat,
                       bytes);
}

static int write_part(const struct source *s, const struct part *p, int which, const float *flat)
{
    uint64_t bytes = p->n * sizeof *flat;
    if (which && s->setup->rule->block)
        return write_packed(s, p, which, flat);
    if (which && s->setup->rule->half)
        return write_half(s, p, which, flat);
    if (which)
        return source_write(s, &p->state, rule_moment_offset(s->setup, p->n, which), flat, bytes);
    if (s->setup->form == ZINF_STATE_SPLIT)
        return write_split(s, p, flat, true);
    return s->setup->form == ZINF_STATE_BARE ? source_write(s, &p->param, 0, flat, bytes)
                                             : write_whole(s, p, flat);
}

/* Extents and host memory are zero, a device's may not be. */
static int begin_part(const struct source *s, const struct part *p, const float *flat)
{
    int code = 0;
    if (p->state.tier == ZINF_TIER_DEVICE)
        code = s->device->ops->fill_zero(s->to_device, p->state.memory, p->state.bytes);
    if (code || s->setup->form == ZINF_STATE_BARE)
        return code;
    return s->setup->form == ZINF_STATE_SPLIT
               ? write_split(s, p, flat, false)
               : source_write(s, &p->state, 0, flat, p->n * sizeof *flat);
}

int state_read(const struct source *s, uint32_t unit, int which, float *flat)
{
    const struct zinf_layout_unit *u = &s->setup->layout.units[unit];
    int code = 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++) {
        struct part p = part_of(s, g);
        code = read_part(s, &p, which, flat + s->setup->layout.groups[g].first);
    }
    return code;
}

int state_write(const struct source *s, uint32_t unit, int which, const float *flat)
{
    const struct zinf_layout_unit *u = &s->setup->layout.units[unit];
    int code = 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++) {
        struct part p = part_of(s, g);
        code = write_part(s, &p, which, flat + s->setup->layout.groups[g].first);
    }
    return code;
}

int state_begin(const struct source *s, uint32_t unit, const float *flat)
{
    const struct zinf_layout_unit *u = &s->setup->layout.units[unit];
    int code = 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++) {
        struct part p = part_of(s, g);
        code = begin_part(s, &p, flat + s->setup->layout.groups[g].first);
    }
    return code;
}
