/*
 * state_access: a unit's master weights and moments as plain fp32 arrays, wherever they live.
 * Loading and checkpoints stand on these calls alone, so they know nothing of sub-groups, of how a
 * master is cut in two, of moments in bf16 or 8 bits, or of updates that are still to be done.
 */
#include "train/rules/rules.h"
#include "train/save/transfer.h"

/* One sub-group, and memory for a part of it. */
struct part {
    uint32_t group;
    uint64_t n;
    struct zinf_location param, state;
    char *unpacked, *unpacked_param;  /* what the drive has packed; NULL: it is not */
    uint16_t *param_bits, *remainder; /* [most] each */
    uint64_t most;
};

static struct part part_of(const struct source *s, uint32_t group)
{
    struct region r = source_region(s);
    struct part p = {.group = group,
                     .n = s->setup->layout.groups[group].n,
                     .param = zinf_tiers_group_param(s->tiers, group, 0),
                     .state = zinf_tiers_group_state(s->tiers, group, 0),
                     .param_bits = (uint16_t *)(void *)r.scratch,
                     .most = r.scratch_elems};
    p.remainder = p.param_bits + p.most;
    return p;
}

static bool has_packed_param(const struct source *s, const struct part *p)
{
    return (p->param.tier == ZINF_TIER_DRIVE || p->param.head) &&
           zinf_tiers_packed(s->tiers, ZINF_PACKABLE_PARAM, p->group,
                             zinf_location_generation(&p->param))
                   ->read_pages > 0;
}

/* Fetches what the drive has packed; for a writer state is stored as it is first, whole. */
static int open_part(const struct source *s, struct part *p, bool write)
{
    const struct rule_thing state = {s->setup, ZINF_PACKABLE_STATE, p->group, false};
    struct region r = source_region(s);
    struct zinf_packed *packed = zinf_tiers_packed(s->tiers, ZINF_PACKABLE_STATE, p->group,
                                                   zinf_location_generation(&p->state));
    uint64_t bytes = (uint64_t)packed->read_pages * ZINF_AIO_ALIGN;
    int code = 0;
    if (!write && has_packed_param(s, p)) {
        p->unpacked_param = r.param;
        code = source_read_group(s, p->group, ZINF_PACKABLE_PARAM, r.param);
    }
    if (code || !bytes)
        return code;
    code = source_read(s, &p->state, 0, r.slot, bytes);
    if (!code)
        code = rule_unpack(&state, r.unpacked, r.slot, bytes);
    if (!code && write)
        code = source_write(s, &p->state, 0, r.unpacked, s->setup->state_bytes[p->group]);
    if (!code && write)
        *packed = (struct zinf_packed){.whole = packed->whole};
    else
        p->unpacked = r.unpacked;
    return code;
}

static int read_state(const struct source *s, const struct part *p, uint64_t at, void *memory,
                      uint64_t bytes)
{
    if (!p->unpacked)
        return source_read(s, &p->state, at, memory, bytes);
    memcpy(memory, p->unpacked + at, bytes);
    return 0;
}

static int read_param(const struct source *s, const struct part *p, uint64_t at, void *memory,
                      uint64_t bytes)
{
    if (!p->unpacked_param)
        return source_read(s, &p->param, at, memory, bytes);
    memcpy(memory, p->unpacked_param + at, bytes);
    return 0;
}

static int read_split(const struct source *s, const struct part *p, float *flat)
{
    int code = 0;
    for (uint64_t at = 0; !code && at < p->n; at += p->most) {
        uint64_t left = p->n - at, n = left < p->most ? left : p->most;
        code = read_param(s, p, at * 2, p->param_bits, n * 2);
        if (!code)
            code = read_state(s, p, at * 2, p->remainder, n * 2);
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

/* ---- moments ---- */

/* A segment's moment on its way: numbers of the moment's own width in the scratch, behind them,
 * where elements share scales, those of all of the segment's moments, which are small. */
struct moment {
    const struct update_rule *rule;
    uint64_t n, width, begin;         /* begin: in the state */
    uint64_t scales_at, scales_bytes; /* the same; 0: there are none */
    int which;
    char *numbers, *scales_memory;
    float *scales; /* this moment's */
};

static struct moment moment_of(const struct part *p, const struct rule_segment *segment, int which)
{
    const struct update_rule *rule = segment->of->rule;
    struct moment m = {.rule = rule,
                       .n = segment->n,
                       .width = rule->moment_bytes,
                       .begin = rule_moment_at(segment, which),
                       .scales_at = rule_scales_at(segment),
                       .scales_bytes = zinf_align_up(rule_scales_bytes(segment), ZINF_MEMORY_ALIGN),
                       .which = which,
                       .numbers = (char *)p->param_bits};
    m.scales_memory = m.numbers + zinf_align_up(p->most, ZINF_MEMORY_ALIGN);
    m.scales = (float *)(void *)m.scales_memory;
    if (rule->block)
        m.scales += (uint64_t)(which - 1) * (segment->n / rule->block);
    return m;
}

/* n of its elements from `at` on. */
static void decode(const struct source *s, const struct moment *m, uint64_t at, uint64_t n,
                   float *flat)
{
    if (m->rule->block)
        zinf_optim_unpack_8bit(flat, m->which, m->numbers, m->scales + at / m->rule->block, n,
                               s->device->n_threads);
    else
        zinf_convert(flat, ZINF_DTYPE_F32, m->numbers,
                     m->rule->half ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32, n);
}

/* bf16 moments that come from files in fp32 are rounded to nearest. */
static void encode(const struct source *s, const struct moment *m, uint64_t at, uint64_t n,
                   const float *flat)
{
    if (m->rule->block)
        zinf_optim_pack_8bit(m->numbers, m->scales + at / m->rule->block, m->which, flat, n,
                             s->device->n_threads);
    else
        zinf_convert(m->numbers, m->rule->half ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32, flat,
                     ZINF_DTYPE_F32, n);
    uint64_t bytes = n * m->width;
    memset(m->numbers + bytes, 0, zinf_align_up(bytes, ZINF_MEMORY_ALIGN) - bytes);
}

/* flat: from the segment's first element on. */
static int move_moment(const struct source *s, const struct part *p, const struct moment *m,
                       float *flat, bool write)
{
    int code =
        m->scales_bytes ? read_state(s, p, m->scales_at, m->scales_memory, m->scales_bytes) : 0;
    for (uint64_t at = 0; !code && at < m->n; at += p->most) {
        uint64_t left = m->n - at, n = left < p->most ? left : p->most;
        uint64_t begin = m->begin + at * m->width;
        uint64_t bytes = zinf_align_up(n * m->width, ZINF_MEMORY_ALIGN);
        if (write)
            encode(s, m, at, n, flat + at);
        code = write ? source_write(s, &p->state, begin, m->numbers, bytes)
                     : read_state(s, p, begin, m->numbers, bytes);
        if (!write && !code)
            decode(s, m, at, n, flat + at);
    }
    return code || !write || !m->scales_bytes
               ? code
               : source_write(s, &p->state, m->scales_at, m->scales_memory, m->scales_bytes);
}

/* Elements whose rule has no such moment read as zeros, and are not written. */
static int move_moments(const struct source *s, const struct part *p, int which, float *flat,
                        bool write)
{
    struct rule_segment segment = {0};
    int code = 0;
    while (!code && rule_next_segment(s->setup, p->group, &segment)) {
        struct moment m = moment_of(p, &segment, which);
        float *own = flat + segment.first;
        if ((uint32_t)which <= m.rule->n_moments)
            code = move_moment(s, p, &m, own, write);
        else if (!write)
            memset(own, 0, segment.n * sizeof *own);
    }
    return code;
}

/* ---- what is kept of matrices ---- */

/* In the state of the unit, which is one sub-group. */
static uint64_t kept_at(const struct source *s, const struct state_kept *kept)
{
    const struct zinf_unit *unit = &s->setup->graph->units[kept->unit];
    struct rule_segment segment = {0};
    while (rule_next_segment(s->setup, s->setup->layout.units[kept->unit].first_group, &segment))
        if (rule_has_piece(&segment, &unit->tensors[kept->tensor], kept->piece))
            break;
    return rule_kept_at(&segment, unit, kept->tensor, kept->piece) + kept->first * sizeof(float);
}

/* The pages that it lies in, to the scratch; a drive reads and writes nothing less. */
struct pages {
    uint64_t at, bytes;
    char *memory, *kept;
};

static int read_pages(const struct source *s, const struct part *p, const struct state_kept *kept,
                      struct pages *out)
{
    const uint64_t first = kept_at(s, kept), end = first + kept->n * sizeof(float);
    out->at = first / ZINF_MEMORY_ALIGN * ZINF_MEMORY_ALIGN;
    out->bytes = zinf_align_up(end, ZINF_MEMORY_ALIGN) - out->at;
    out->memory = (char *)source_region(s).scratch;
    out->kept = out->memory + (first - out->at);
    return read_state(s, p, out->at, out->memory, out->bytes);
}

int state_read_kept(const struct source *s, const struct state_kept *kept, float *out)
{
    struct part p = part_of(s, s->setup->layout.units[kept->unit].first_group);
    struct pages pages;
    int code = open_part(s, &p, false);
    if (!code)
        code = read_pages(s, &p, kept, &pages);
    if (!code)
        memcpy(out, pages.kept, kept->n * sizeof *out);
    return code;
}

int state_write_kept(const struct source *s, const struct state_kept *kept, const float *in)
{
    struct part p = part_of(s, s->setup->layout.units[kept->unit].first_group);
    struct pages pages;
    int code = open_part(s, &p, true);
    if (!code)
        code = read_pages(s, &p, kept, &pages);
    if (code)
        return code;
    memcpy(pages.kept, in, kept->n * sizeof *in);
    return source_write(s, &p.state, pages.at, pages.memory, pages.bytes);
}

/* ---- all arrays ---- */

static int read_part(const struct source *s, const struct part *p, int which, float *flat)
{
    uint64_t bytes = p->n * sizeof *flat;
    if (which)
        return move_moments(s, p, which, flat, false);
    if (s->setup->form == ZINF_STATE_SPLIT)
        return read_split(s, p, flat);
    return s->setup->form == ZINF_STATE_BARE ? read_param(s, p, 0, flat, bytes)
                                             : read_state(s, p, 0, flat, bytes);
}

static int write_part(const struct source *s, const struct part *p, int which, float *flat)
{
    uint64_t bytes = p->n * sizeof *flat;
    if (which)
        return move_moments(s, p, which, flat, true);
    source_forget_packed(s, p->group);
    if (s->setup->form == ZINF_STATE_SPLIT)
        return write_split(s, p, flat, true);
    return s->setup->form == ZINF_STATE_BARE ? source_write(s, &p->param, 0, flat, bytes)
                                             : write_whole(s, p, flat);
}

/* Extents and host memory are zero, a device's may not be. */
static int begin_part(const struct source *s, const struct part *p, int which, float *flat)
{
    (void)which;
    int code = 0;
    if (p->state.tier == ZINF_TIER_DEVICE)
        code = s->device->ops->fill_zero(s->to_device, p->state.memory, p->state.bytes);
    if (code || s->setup->form == ZINF_STATE_BARE)
        return code;
    return s->setup->form == ZINF_STATE_SPLIT
               ? write_split(s, p, flat, false)
               : source_write(s, &p->state, 0, flat, p->n * sizeof *flat);
}

/* Each sub-group of the unit, with its elements of flat; writes: the state is changed. */
static int move_parts(const struct source *s, uint32_t unit, int which, float *flat, bool writes,
                      int (*move)(const struct source *s, const struct part *p, int which,
                                  float *flat))
{
    const struct zinf_layout_unit *u = &s->setup->layout.units[unit];
    int code = 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++) {
        struct part p = part_of(s, g);
        code = open_part(s, &p, writes);
        if (!code)
            code = move(s, &p, which, flat + s->setup->layout.groups[g].first);
    }
    return code;
}

int state_read(const struct source *s, uint32_t unit, int which, float *flat)
{
    return move_parts(s, unit, which, flat, false, read_part);
}

int state_write(const struct source *s, uint32_t unit, int which, const float *flat)
{
    return move_parts(s, unit, which, (float *)flat, true, write_part);
}

int state_begin(const struct source *s, uint32_t unit, const float *flat)
{
    return move_parts(s, unit, 0, (float *)flat, true, begin_part);
}

uint64_t state_factors_bytes(const struct setup *s, uint32_t unit)
{
    return zinf_align_up(rule_factored_bytes(&s->whole->units[unit]), ZINF_MEMORY_ALIGN);
}

/* Where they begin in the state of the unit's sub-group. */
static uint64_t factors_at(const struct setup *s, uint32_t group)
{
    struct rule_segment all = {0};
    rule_next_segment(s, group, &all);
    return all.at;
}

int state_read_factors(const struct source *s, uint32_t unit, float *out)
{
    const uint32_t g = s->setup->layout.units[unit].first_group;
    const struct zinf_location state = zinf_tiers_group_state(s->tiers, g, 0);
    return source_read(s, &state, factors_at(s->setup, g), out,
                       state_factors_bytes(s->setup, unit));
}

int state_write_factors(const struct source *s, uint32_t unit, const float *in)
{
    const uint32_t g = s->setup->layout.units[unit].first_group;
    const struct zinf_location state = zinf_tiers_group_state(s->tiers, g, 0);
    return source_write(s, &state, factors_at(s->setup, g), in,
                        state_factors_bytes(s->setup, unit));
}
