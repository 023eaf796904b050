/* matrix_ranks: see matrix_ranks.h. */
#include "train/rules/matrix_ranks.h"

#define LINE 64 /* bytes: at a multiple of it messages begin */

/* In front of a part's numbers. map: where its rows are in the matrix. rate, decay: what the update
 * is applied with (rule_matrix_apply). */
struct message {
    struct zinf_row_map map;
    double rate, decay;
};
_Static_assert(sizeof(struct message) % LINE == 0, "numbers begin at a line");

static uint64_t numbers_bytes(const struct zinf_tensor *t, uint32_t piece)
{
    return zinf_align_up(rule_matrix_rows(&t->pieces[piece]) * t->cols * sizeof(float), LINE);
}

static uint64_t part_bytes(const struct zinf_unit *unit, const struct matrix_part *part)
{
    return sizeof(struct message) + numbers_bytes(&unit->tensors[part->tensor], part->piece);
}

uint64_t meeting_message_bytes(const struct zinf_unit *unit, uint32_t tensor, uint32_t piece)
{
    struct matrix_part part = {0};
    uint64_t bytes = 0;
    while (rule_next_part(unit, tensor, piece, &part))
        bytes += part_bytes(unit, &part);
    return bytes;
}

/* ---- sections ---- */

static void find_sections(const struct zinf_unit *unit, const struct rule_segment *segment,
                          uint64_t sections[ZINF_MOST_SHARDS])
{
    uint32_t n = 0;
    memset(sections, 0, ZINF_MOST_SHARDS * sizeof *sections);
    for (uint32_t i = 0; segment->updaters && i < unit->n_tensors; i++)
        for (uint32_t k = 0; k < unit->tensors[i].n_pieces; k++, n++)
            if (segment->updaters[n] != EVERY_RANK && rule_has_piece(segment, &unit->tensors[i], k))
                sections[segment->updaters[n]] += meeting_message_bytes(unit, i, k);
}

static uint64_t all_sections(const uint64_t sections[ZINF_MOST_SHARDS], uint32_t ranks,
                             uint64_t *most)
{
    uint64_t sum = 0;
    *most = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        sum += sections[r];
        *most = sections[r] > *most ? sections[r] : *most;
    }
    return sum;
}

/* Plans of ranks are alike: there is room for what any rank's sub-group in this place needs, the
 * rank that updates most included. */
uint64_t rule_meeting_bytes(const struct setup *s, uint32_t group)
{
    const struct zinf_layout_group *g = &s->layout.groups[group];
    const struct zinf_layout_unit *u = &s->layout.units[g->unit];
    const struct zinf_axis *axis = tensor_axis(s);
    uint64_t sections[ZINF_MOST_SHARDS], most = 0;
    for (uint64_t slice = 0; slice < u->padded_elems; slice += u->slice_elems) {
        struct rule_segment segment = {0};
        while (rule_next_segment_of(s, group, slice + g->first, axis->rank, &segment)) {
            uint64_t largest;
            find_sections(&s->graph->units[g->unit], &segment, sections);
            uint64_t bytes = all_sections(sections, axis->world, &largest);
            bytes += (axis->world - 1) * largest;
            most = bytes > most ? bytes : most;
        }
    }
    return zinf_align_up(most, ZINF_MEMORY_ALIGN);
}

/* To the others their sections, and back what this rank updates; and whether it can
 * (step/update.c). */
uint64_t rule_meeting_sent(const struct setup *s, uint32_t group)
{
    const struct zinf_unit *unit = &s->graph->units[s->layout.groups[group].unit];
    const struct zinf_axis *axis = tensor_axis(s);
    struct rule_segment segment = {0};
    uint64_t sections[ZINF_MOST_SHARDS], sent = (axis->world - 1) * sizeof(int64_t), most;
    while (rule_next_segment(s, group, &segment)) {
        find_sections(unit, &segment, sections);
        sent += all_sections(sections, axis->world, &most) - sections[axis->rank];
        sent += (axis->world - 1) * sections[axis->rank];
    }
    return sent;
}

struct meeting meeting_of(const struct rule_step *s)
{
    const uint32_t u = s->setup->layout.groups[s->group].unit;
    struct meeting m = {.axis = tensor_axis(s->setup)};
    find_sections(&s->setup->graph->units[u], &s->segment, m.sections);
    m.memory = (char *)s->workspace + (s->setup->update_bytes - s->setup->meeting_bytes);
    return m;
}

bool meeting_is_held(const struct meeting *m)
{
    uint64_t most;
    return all_sections(m->sections, m->axis->world, &most) > 0;
}

/* What this rank gives to another one. */
static char *given_to(const struct meeting *m, uint32_t rank)
{
    char *at = m->memory;
    for (uint32_t r = 0; r < rank; r++)
        at += m->sections[r];
    return at;
}

/* What a rank gives to this one. */
static char *given_by(const struct meeting *m, uint32_t rank)
{
    const uint32_t own = m->axis->rank;
    char *others = given_to(m, m->axis->world);
    return rank == own ? given_to(m, own) : others + (rank - (rank > own)) * m->sections[own];
}

int meeting_trade(const struct meeting *m, bool back)
{
    void *give[ZINF_MOST_SHARDS], *get[ZINF_MOST_SHARDS];
    uint64_t give_bytes[ZINF_MOST_SHARDS], get_bytes[ZINF_MOST_SHARDS];
    for (uint32_t r = 0; r < m->axis->world; r++) {
        const bool other = r != m->axis->rank;
        give[r] = given_to(m, r);
        get[r] = given_by(m, r);
        give_bytes[r] = other ? m->sections[r] : 0;
        get_bytes[r] = other ? m->sections[m->axis->rank] : 0;
    }
    const struct zinf_net_trade there = {give, get, give_bytes, get_bytes};
    const struct zinf_net_trade home = {get, give, get_bytes, give_bytes};
    return zinf_net_trade(m->axis->net, back ? &home : &there);
}

/* ---- messages ---- */

/* Goes to the next part of the matrix, whose message follows that of the one before. from: what a
 * rank has given; *at: NULL before the first part. */
static bool next_message(const struct matrix *x, char *from, struct matrix_part *part,
                         struct message **at)
{
    const uint64_t before = *at ? part_bytes(x->unit, part) : 0;
    char *place = *at ? (char *)*at + before : from + x->message;
    *at = (struct message *)(void *)place;
    return rule_next_part(x->unit, x->tensor, x->piece_number, part);
}

static float *numbers_of(struct message *at)
{
    return (float *)(void *)(at + 1);
}

int meeting_give(struct matrix *x)
{
    struct matrix_part part = {0};
    struct message *at = NULL;
    if (x->updater == EVERY_RANK)
        return 0;
    while (next_message(x, given_to(x->meeting, x->updater), &part, &at)) {
        at->map = x->unit->tensors[part.tensor].pieces[part.piece].rows;
        x->rule->fill(x, &part, numbers_of(at), NULL);
    }
    return 0;
}

/* Between the message and the whole matrix. */
static struct part_copy copy_of(const struct matrix *x, const struct matrix_part *part,
                                struct message *at, float *whole)
{
    struct part_copy copy = rule_part_copy(x, part, whole, numbers_of(at));
    copy.map = &at->map;
    return copy;
}

/* As many rows as this rank's part, within the matrix. */
static bool fits(const struct matrix *x, const struct part_copy *c)
{
    const struct zinf_row_map *map = c->map;
    const uint64_t side = c->turned ? x->cols : x->rows;
    return map->rows && map->count && map->rows * map->count == c->n &&
           map->file_first + (map->count - 1) * map->file_stride + map->rows <= side;
}

int meeting_gather(const struct matrix *x, float *whole)
{
    for (uint32_t r = 0; r < x->meeting->axis->world; r++) {
        struct matrix_part part = {0};
        struct message *at = NULL;
        while (next_message(x, given_by(x->meeting, r), &part, &at)) {
            const struct part_copy copy = copy_of(x, &part, at, whole);
            if (!fits(x, &copy))
                return zinf_fail(-EBADMSG, "rank %u along axis tensor gave no part of %s", r,
                                 x->piece->name);
            rule_copy_part(&copy);
        }
    }
    return 0;
}

void meeting_return(const struct matrix *x, float *update, double rate, double decay)
{
    for (uint32_t r = 0; r < x->meeting->axis->world; r++) {
        struct matrix_part part = {0};
        struct message *at = NULL;
        while (next_message(x, given_by(x->meeting, r), &part, &at)) {
            struct part_copy copy = copy_of(x, &part, at, update);
            copy.out = true;
            rule_copy_part(&copy);
            at->rate = rate;
            at->decay = decay;
        }
    }
}

/* The front of the workspace has room for the whole matrix. */
int meeting_take(struct matrix *x)
{
    struct matrix_part part = {0};
    struct message *at = NULL;
    int code = 0;
    if (x->updater == EVERY_RANK)
        return 0;
    while (!code && next_message(x, given_to(x->meeting, x->updater), &part, &at))
        code = rule_part_apply(x, &part, numbers_of(at), x->step->workspace, at->rate, at->decay);
    return code;
}
