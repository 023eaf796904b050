/* itinerary: the orders there are, and what follows from one. */
#include "train/plan/itinerary.h"

#include <stdlib.h>

/* From when to when a micro-batch's activations exist: numbers of visits. */
struct stay {
    uint32_t from, to;
};

int itinerary_count(struct itinerary *it, int64_t n_micro)
{
    struct stay *stays = calloc((size_t)n_micro, sizeof *stays);
    if (!stays)
        return zinf_fail(-ENOMEM, "no memory for the order of %lld micro-batches",
                         (long long)n_micro);
    it->together = it->live = 0;
    for (uint32_t i = it->n; i-- > 0;) {
        const struct visit *v = &it->visits[i];
        int64_t n = v->micros.end - v->micros.first;
        if (v->direction == VISIT_LAST || v->direction == VISIT_BORDER)
            continue;
        it->together = n > it->together ? n : it->together;
        for (int64_t m = v->micros.first; m < v->micros.end; m++) {
            stays[m].from = i;
            stays[m].to = stays[m].to ? stays[m].to : i;
        }
    }
    for (int64_t m = 0; m < n_micro; m++) {
        int64_t next = m;
        while (next < n_micro && stays[next].from <= stays[m].to)
            next++;
        it->live = next - m > it->live ? next - m : it->live;
    }
    free(stays);
    return 0;
}

static void add_last(struct itinerary *it, const struct walk *w, int64_t n_micro)
{
    for (uint32_t s = w->graph->n_stages; s-- > 0;)
        if (w->stages[s].runs_last)
            it->visits[it->n++] = (struct visit){
                .direction = VISIT_LAST, .first = s, .end = s + 1, .micros = {0, n_micro}};
}

int itinerary_make(struct itinerary *it, const struct walk *w, int64_t n_micro, int64_t together)
{
    uint32_t n = w->graph->n_stages;
    *it = (struct itinerary){0};
    it->visits = calloc(2 * (size_t)n_micro + n, sizeof *it->visits);
    if (!it->visits)
        return zinf_fail(-ENOMEM, "no memory for the order of %lld micro-batches",
                         (long long)n_micro);
    for (int64_t m = 0; m < n_micro; m += together) {
        struct range micros = {m, m + together < n_micro ? m + together : n_micro};
        it->visits[it->n++] =
            (struct visit){.direction = VISIT_FORWARD, .end = n, .micros = micros};
        it->visits[it->n++] =
            (struct visit){.direction = VISIT_BACKWARD, .end = n, .micros = micros};
    }
    add_last(it, w, n_micro);
    return itinerary_count(it, n_micro);
}

/* ---- stages over ranks ---- */

struct pipe {
    struct itinerary *it;
    uint32_t n_stages;
    int64_t n_micro, together, n_groups;
    bool has_before, has_next;
};

/* Group number `group` of micro-batches; none there is of: < 0. */
static struct range group_of(const struct pipe *p, int64_t group)
{
    const int64_t first = group * p->together, end = first + p->together;
    if (group < 0 || first >= p->n_micro)
        return (struct range){0, 0};
    return (struct range){first, end < p->n_micro ? end : p->n_micro};
}

static void add_visit(struct pipe *p, enum direction direction, int64_t group)
{
    p->it->visits[p->it->n++] =
        (struct visit){.direction = direction, .end = p->n_stages, .micros = group_of(p, group)};
}

/* Of those groups; -1: none. */
static void add_border(struct pipe *p, bool next, int64_t gives, int64_t takes)
{
    const struct visit border = {.direction = VISIT_BORDER,
                                 .next = next,
                                 .gives = group_of(p, gives),
                                 .takes = group_of(p, takes)};
    if (next ? p->has_next : p->has_before)
        p->it->visits[p->it->n++] = border;
}

/* Both ranks of a border come to the same exchanges in the same order, and each gives before it
 * takes what follows from that: nobody waits for who waits for him. */
static void add_pipe(struct pipe *p, int64_t warm)
{
    for (int64_t g = 0; g < warm; g++) {
        add_border(p, false, -1, g);
        add_visit(p, VISIT_FORWARD, g);
        add_border(p, true, g, -1);
    }
    if (warm < p->n_groups)
        add_border(p, false, -1, warm);
    for (int64_t g = warm; g < p->n_groups; g++) {
        const bool last = g + 1 == p->n_groups;
        add_visit(p, VISIT_FORWARD, g);
        add_border(p, true, g, g - warm);
        add_visit(p, VISIT_BACKWARD, g - warm);
        add_border(p, false, g - warm, last ? -1 : g + 1);
    }
    for (int64_t g = p->n_groups - warm; g < p->n_groups; g++) {
        add_border(p, true, -1, g);
        add_visit(p, VISIT_BACKWARD, g);
        add_border(p, false, g, -1);
    }
}

int itinerary_make_pipe(struct itinerary *it, const struct walk *w, int64_t n_micro,
                        int64_t together, const struct zinf_axis *axis)
{
    const int64_t behind = axis->world - 1 - axis->rank;
    struct pipe p = {.it = it,
                     .n_stages = w->graph->n_stages,
                     .n_micro = n_micro,
                     .together = together,
                     .n_groups = (n_micro + together - 1) / together,
                     .has_before = axis->rank > 0,
                     .has_next = behind > 0};
    *it = (struct itinerary){0};
    it->visits = calloc(6 * (size_t)p.n_groups + 1 + p.n_stages, sizeof *it->visits);
    if (!it->visits)
        return zinf_fail(-ENOMEM, "no memory for the order of %lld micro-batches",
                         (long long)n_micro);
    add_pipe(&p, behind < p.n_groups ? behind : p.n_groups);
    add_last(it, w, n_micro);
    return itinerary_count(it, n_micro);
}

void itinerary_fini(struct itinerary *it)
{
    free(it->visits);
    *it = (struct itinerary){0};
}
