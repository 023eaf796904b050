/* state: where masters and moments of a sub-group are in its state. */
#include "train/rules/rules.h"
#include "train/setup_rates.h"

/* ---- which optimizer elements are of ---- */

struct stretch rule_stretch_at(const struct setup *s, uint32_t unit, uint64_t at)
{
    const struct zinf_unit *u = &s->graph->units[unit];
    bool decays = at < u->decay_elems;
    struct stretch run = {(decays ? u->decay_elems : s->layout.units[unit].padded_elems) - at, 1,
                          decays ? s->hyper.weight_decay : 0, 0};
    const struct tensor_rate *rate = NULL;
    uint64_t begin = 0;
    for (uint32_t i = 0; s->rates && i < u->n_tensors; i++) {
        uint64_t offset = u->tensors[i].offset;
        if (offset > at || offset < begin || u->tensors[i].decay != decays)
            continue;
        begin = offset;
        rate = &s->rates[unit][i];
    }
    for (uint32_t i = 0; s->rates && i < u->n_tensors; i++) {
        uint64_t offset = u->tensors[i].offset;
        if (offset > at && offset - at < run.n && !(rate && same_rate(rate, &s->rates[unit][i])))
            run.n = offset - at;
    }
    if (!rate)
        return run;
    return (struct stretch){run.n, rate->scale, rate->weight_decay, rate->optimizer};
}

/* Of element `at` of the unit; *n: how many from there on are of it too, at most most. */
static const struct optimizer *optimizer_at(const struct setup *s, uint32_t unit, uint64_t at,
                                            uint64_t most, uint64_t *n)
{
    const bool one = !s->rates || s->n_optimizers == 1;
    struct stretch run = {.n = most};
    if (!one)
        run = rule_stretch_at(s, unit, at);
    const uint32_t optimizer = run.optimizer;
    for (*n = run.n; *n < most; *n += run.n) {
        run = rule_stretch_at(s, unit, at + *n);
        if (run.optimizer != optimizer)
            break;
    }
    *n = *n < most ? *n : most;
    return &s->optimizers[optimizer];
}

/* ---- segments: each array begins at a page, where a drive can read it ---- */

static uint64_t pages(uint64_t bytes)
{
    return zinf_align_up(bytes, ZINF_MEMORY_ALIGN);
}

bool rule_has_piece(const struct rule_segment *segment, const struct zinf_tensor *t, uint32_t piece)
{
    const uint64_t at = rule_piece_at(t, piece);
    const uint64_t first = segment->base + segment->first;
    return at >= first && at < first + segment->n;
}

/* Whether the segment's rank makes the update of the matrix that this piece stands for. */
static bool updates(const struct rule_segment *segment, const struct zinf_unit *unit,
                    uint32_t tensor, uint32_t piece)
{
    const uint32_t updater =
        segment->updaters ? segment->updaters[rule_piece_number(unit, tensor, piece)] : EVERY_RANK;
    return updater == EVERY_RANK || updater == segment->rank;
}

uint64_t rule_kept_at(const struct rule_segment *segment, const struct zinf_unit *unit,
                      uint32_t tensor, uint32_t piece)
{
    const struct optimizer *of = segment->of;
    uint64_t at = pages(rule_scales_at(segment) + rule_scales_bytes(segment));
    for (uint32_t i = 0; of->rule->matrix_floats && i < unit->n_tensors; i++)
        for (uint32_t k = 0; k < unit->tensors[i].n_pieces; k++) {
            if (i == tensor && k == piece)
                return at;
            if (!rule_has_piece(segment, &unit->tensors[i], k) || !rule_leads(unit, i, k) ||
                !updates(segment, unit, i, k))
                continue;
            const struct matrix_shape shape =
                rule_matrix_shape(&unit->tensors[i], &unit->tensors[i].pieces[k]);
            at += sizeof(float) * zinf_align_up(of->rule->matrix_floats(of, &shape), 16);
        }
    return at;
}

uint64_t rule_segment_end(const struct rule_segment *segment, const struct zinf_unit *unit)
{
    const struct update_rule *rule = segment->of->rule;
    return pages(rule->unit_bytes ? segment->at + rule->unit_bytes(unit)
                                  : rule_kept_at(segment, unit, unit->n_tensors, 0));
}

bool rule_next_segment_of(const struct setup *s, uint32_t group, uint64_t begin, uint32_t rank,
                          struct rule_segment *segment)
{
    const struct zinf_layout_group *g = &s->layout.groups[group];
    uint64_t first = segment->first + segment->n, n;
    uint64_t at = segment->of ? rule_segment_end(segment, &s->graph->units[g->unit])
                              : zinf_state_bytes(s->form, 0, g->n);
    if (first >= g->n)
        return false;
    const struct optimizer *of = optimizer_at(s, g->unit, begin + first, g->n - first, &n);
    *segment = (struct rule_segment){
        of, first, n, at, begin, s->updaters ? s->updaters[g->unit] : NULL, rank};
    return true;
}

bool rule_next_segment(const struct setup *s, uint32_t group, struct rule_segment *segment)
{
    const struct zinf_layout_group *g = &s->layout.groups[group];
    return rule_next_segment_of(s, group, s->layout.units[g->unit].slice_first + g->first,
                                tensor_axis(s)->rank, segment);
}

uint64_t rule_moment_at(const struct rule_segment *segment, int which)
{
    return segment->at +
           (uint64_t)(which - 1) * pages(segment->n * segment->of->rule->moment_bytes);
}

uint64_t rule_scales_at(const struct rule_segment *segment)
{
    return rule_moment_at(segment, (int)segment->of->rule->n_moments + 1);
}

uint64_t rule_scales_bytes(const struct rule_segment *segment)
{
    const struct update_rule *r = segment->of->rule;
    return r->block ? r->n_moments * (segment->n / r->block) * sizeof(float) : 0;
}

/* Ranks' plans are alike: a sub-group has room for what any rank's has in its place. */
uint64_t rule_state_bytes(const struct setup *s, uint32_t group)
{
    const struct zinf_layout_group *g = &s->layout.groups[group];
    const struct zinf_layout_unit *u = &s->layout.units[g->unit];
    const uint32_t ranks = s->updaters ? tensor_axis(s)->world : 1;
    uint64_t most = 0;
    for (uint64_t slice = 0; slice < u->padded_elems; slice += u->slice_elems)
        for (uint32_t rank = 0; rank < ranks; rank++) {
            struct rule_segment last = {0};
            while (rule_next_segment_of(s, group, slice + g->first, rank, &last))
                ;
            uint64_t bytes = rule_segment_end(&last, &s->graph->units[g->unit]);
            most = bytes > most ? bytes : most;
        }
    return most;
}

/* ---- masters ---- */

struct rule_masters rule_masters(const struct rule_step *s, uint64_t first)
{
    void *own = s->param + first * zinf_dtype_bytes(s->setup->dtype);
    switch (s->setup->form) {
    case ZINF_STATE_BARE:
        return (struct rule_masters){.master = own};
    case ZINF_STATE_SPLIT:
        return (struct rule_masters){.remainder = (uint16_t *)(void *)s->state + first,
                                     .param = own};
    case ZINF_STATE_WHOLE:
        break;
    }
    return (struct rule_masters){.master = (float *)(void *)s->state + first, .param = own};
}

struct rule_masters rule_masters_beyond(const struct setup *s, const struct rule_masters *own,
                                        uint64_t n)
{
    struct rule_masters beyond = *own;
    if (own->master)
        beyond.master += n;
    if (own->remainder)
        beyond.remainder += n;
    if (own->param)
        beyond.param = (char *)own->param + n * zinf_dtype_bytes(s->dtype);
    return beyond;
}
