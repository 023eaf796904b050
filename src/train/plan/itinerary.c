/* itinerary: the orders there are, and what follows from one. */
#include "train/plan/itinerary.h"

#include <stdlib.h>

/* From when to when a micro-batch's activations exist: numbers of visits. */
struct stay {
    uint32_t from, to;
};

/* Visits are noted from the last one. */
static void note_stays(struct stay *stays, struct range micros, uint32_t visit)
{
    for (int64_t m = micros.first; m < micros.end; m++) {
        stays[m].from = visit;
        stays[m].to = stays[m].to ? stays[m].to : visit;
    }
}

/* Computes `together`, `back` and `live` from the visits. The n_micro micro-batches must begin in
 * order. */
static int count_groups(struct itinerary *it, int64_t n_micro)
{
    struct stay *stays = calloc((size_t)n_micro, sizeof *stays);
    if (!stays)
        return zinf_fail(-ENOMEM, "no memory for the order of %lld micro-batches",
                         (long long)n_micro);
    it->together = it->back = it->live = 0;
    for (uint32_t i = it->n; i-- > 0;) {
        const struct visit *v = &it->visits[i];
        const int64_t n = v->micros.end - v->micros.first;
        if (v->direction == VISIT_LAST)
            continue;
        it->together = n > it->together ? n : it->together;
        it->back = v->direction == VISIT_BACKWARD && n > it->back ? n : it->back;
        note_stays(stays, v->micros, i);
        note_stays(stays, v->gives, i);
        note_stays(stays, v->takes, i);
    }
    /* What one exchange brings may be where it has found what it takes away. */
    for (int64_t m = 0; m < n_micro; m++) {
        int64_t next = m + 1;
        while (next < n_micro && stays[next].from < stays[m].to)
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
    return count_groups(it, n_micro);
}

/* ---- stages over ranks ---- */

struct pipe {
    struct itinerary *it;
    uint32_t n_stages;
    int64_t n_micro, together, back, n_groups;
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

/* A group's backward is several visits where fewer micro-batches go back at once. */
static void add_visit(struct pipe *p, const struct visit *v)
{
    const int64_t each = v->direction == VISIT_BACKWARD ? p->back : p->together;
    struct visit some = *v;
    if (v->direction == VISIT_BORDER)
        p->it->visits[p->it->n++] = *v;
    for (int64_t m = v->micros.first; m < v->micros.end; m += each) {
        some.micros = (struct range){m, m + each < v->micros.end ? m + each : v->micros.end};
        p->it->visits[p->it->n++] = some;
    }
}

static void add_group(struct pipe *p, enum direction direction, int64_t group)
{
    add_visit(p, &(struct visit){
                     .direction = direction, .end = p->n_stages, .micros = group_of(p, group)});
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

/* Values are taken from the rank before up to number `last`, the first `alone` of them each by
 * itself; *next: the one that comes next. */
static void take_until(struct pipe *p, int64_t *next, int64_t last, int64_t alone)
{
    for (; *next <= last && *next < alone && *next < p->n_groups; ++*next)
        add_border(p, false, -1, *next);
}

/* The two ranks of a border make the same exchanges in the same order, and a rank gives a value
 * before it takes what its neighbour makes of it, so they cannot wait for each other. This rank
 * makes `warm` forwards before its first backward, the rank before it warm_before, and that rank
 * gives each of these by itself. */
static void add_pipe(struct pipe *p, int64_t warm, int64_t warm_before)
{
    int64_t next = 0;
    for (int64_t g = 0; g < p->n_groups + warm; g++) {
        const int64_t back = g - warm, comes = back + warm_before;
        take_until(p, &next, g, warm_before);
        if (g < p->n_groups)
            add_group(p, VISIT_FORWARD, g);
        if (back >= 0)
            take_until(p, &next, warm_before, warm_before);
        add_border(p, true, g < p->n_groups ? g : -1, back);
        if (back < 0)
            continue;
        add_group(p, VISIT_BACKWARD, back);
        add_border(p, false, back, comes < p->n_groups ? comes : -1);
    }
}

/* ---- several ranges a rank ---- */

/* All ranges and ranks: range k is of rank k % n_ranks. A piece of work is a group's forward or
 * backward of a range; when each begins and ends, and since when the rank before that was at work,
 * is counted in forwards of a range. A backward takes two, or three where blocks are computed
 * again: the order for three has no more waiting than the other one with two, nor with one. */
#define BACKWARD 3
struct piece {
    int64_t begin, end, since;
    bool known;
};
struct worker {
    int64_t next[2]; /* by direction: number of the piece that comes next */
    int64_t free, since;
};
struct ring {
    const struct pipe *pipe;
    uint32_t n_ranks, n_each, n; /* ranks, ranges of a rank, of all */
    int64_t n_work;              /* pieces of a rank in each direction */
    struct piece *pieces;        /* [2][n][n_groups] */
    struct worker *workers;      /* [n_ranks] */
};
struct work {
    enum direction direction;
    uint32_t range; /* of all */
    int64_t group;
};

static struct piece *piece_at(const struct ring *r, enum direction d, uint32_t range, int64_t group)
{
    const uint64_t of_range = (uint64_t)d * r->n + range;
    return &r->pieces[of_range * (uint64_t)r->pipe->n_groups + (uint64_t)group];
}

/* As many groups as there are ranks go through one range after the other, then the next groups. */
static struct work turn_of(const struct ring *r, uint32_t rank, enum direction d, int64_t number)
{
    const int64_t block = number / (r->n_ranks * r->n_each), first = block * r->n_ranks;
    const int64_t left = r->pipe->n_groups - first, size = left < r->n_ranks ? left : r->n_ranks;
    const int64_t within = number - first * r->n_each;
    const uint32_t turn = (uint32_t)(within / size);
    const uint32_t own = d == VISIT_FORWARD ? turn : r->n_each - 1 - turn;
    return (struct work){d, own * r->n_ranks + rank, first + within % size};
}

/* Which piece a rank makes next: first as many forwards as it takes until the first backward comes
 * (Narayanan et al., as above), then a forward and a backward in turn, then backwards. */
static enum direction turn_for(const struct ring *r, uint32_t rank)
{
    const int64_t warm = 2 * (r->n_ranks - 1 - rank) + (int64_t)(r->n_each - 1) * r->n_ranks;
    const int64_t *next = r->workers[rank].next;
    return next[VISIT_FORWARD] < r->n_work && next[VISIT_FORWARD] <= warm + next[VISIT_BACKWARD]
               ? VISIT_FORWARD
               : VISIT_BACKWARD;
}

/* When what the piece reads is there; -1: not yet known. */
static int64_t ready_at(const struct ring *r, const struct work *w)
{
    const bool forward = w->direction == VISIT_FORWARD;
    if (forward && !w->range)
        return 0;
    if (!forward && w->range + 1 == r->n)
        return piece_at(r, VISIT_FORWARD, w->range, w->group)->known ? 0 : -1;
    const struct piece *before =
        piece_at(r, w->direction, forward ? w->range - 1 : w->range + 1, w->group);
    return before->known ? before->end : -1;
}

/* Makes the rank's next piece in a direction; false: there is none, or what it reads is not there.
 */
static bool make_piece(struct ring *r, uint32_t rank, enum direction d)
{
    struct worker *worker = &r->workers[rank];
    if (worker->next[d] == r->n_work)
        return false;
    const struct work w = turn_of(r, rank, d, worker->next[d]);
    const int64_t ready = ready_at(r, &w), begin = ready > worker->free ? ready : worker->free;
    if (ready < 0)
        return false;
    worker->next[d]++;
    worker->free = begin + (d == VISIT_FORWARD ? 1 : BACKWARD);
    *piece_at(r, d, w.range, w.group) = (struct piece){begin, worker->free, worker->since, true};
    worker->since = begin;
    return true;
}

/* Groups that are no multiple of the ranks may bring ranks in turn to wait for each other: then one
 * of them goes out of its turn. Forwards alone, and backwards behind them, never do. */
static bool break_turn(struct ring *r)
{
    for (uint32_t rank = r->n_ranks; rank-- > 0;)
        if (make_piece(r, rank, VISIT_BACKWARD))
            return true;
    for (uint32_t rank = r->n_ranks; rank-- > 0;)
        if (make_piece(r, rank, VISIT_FORWARD))
            return true;
    return false;
}

/* Every rank finds what all of them do when. */
static void time_all(struct ring *r)
{
    bool goes_on = true;
    while (goes_on) {
        goes_on = false;
        for (uint32_t rank = 0; rank < r->n_ranks; rank++)
            while (make_piece(r, rank, turn_for(r, rank)))
                goes_on = true;
        goes_on = goes_on || break_turn(r);
    }
}

/* A visit and its place in the order of all ranks. */
struct item {
    int64_t at;
    bool is_work;
    uint64_t number;
    struct visit visit;
};

static int compare_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if (x->is_work != y->is_work)
        return x->is_work ? 1 : -1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* What a piece of range k or, backward, of the range behind it makes, on its way over the border
 * between the two: as soon as it is made, but no sooner than the piece before the one that reads
 * it. */
static bool cross(const struct ring *r, uint32_t rank, const struct work *w, struct item *out)
{
    const bool forward = w->direction == VISIT_FORWARD;
    const uint32_t before = w->range, behind = before + 1;
    const bool next = before % r->n_ranks == rank;
    const struct piece *made = piece_at(r, w->direction, forward ? before : behind, w->group);
    const struct piece *read = piece_at(r, w->direction, forward ? behind : before, w->group);
    const struct range micros = group_of(r->pipe, w->group), none = {0, 0};
    *out = (struct item){.at = made->end > read->since ? made->end : read->since,
                         .number = (uint64_t)(made - r->pieces),
                         .visit = {.direction = VISIT_BORDER,
                                   .range = (next ? before : behind) / r->n_ranks,
                                   .next = next,
                                   .gives = next == forward ? micros : none,
                                   .takes = next == forward ? none : micros}};
    return next || behind % r->n_ranks == rank;
}

static uint64_t list_items(const struct ring *r, uint32_t rank, const struct zinf_graph *g,
                           struct item *items)
{
    uint64_t n = 0;
    for (int64_t i = 0; i < 2 * r->n_work; i++) {
        const struct work w = turn_of(r, rank, i % 2 ? VISIT_BACKWARD : VISIT_FORWARD, i / 2);
        const struct zinf_range range = zinf_graph_range(g, w.range / r->n_ranks);
        items[n++] = (struct item){.at = piece_at(r, w.direction, w.range, w.group)->begin,
                                   .is_work = true,
                                   .visit = {.direction = w.direction,
                                             .first = range.first,
                                             .end = range.end,
                                             .micros = group_of(r->pipe, w.group)}};
    }
    for (uint32_t k = 0; k + 1 < r->n; k++)
        for (int64_t i = 0; i < 2 * r->pipe->n_groups; i++) {
            const struct work w = {i % 2 ? VISIT_BACKWARD : VISIT_FORWARD, k, i / 2};
            n += cross(r, rank, &w, &items[n]);
        }
    qsort(items, n, sizeof *items, compare_items);
    return n;
}

/* Exchanges have one order in which all ranks come to theirs, and what each of them needs comes
 * before it there: so no rank waits for one that waits for it. */
static int add_ring(struct pipe *p, const struct zinf_axis *axis, const struct zinf_graph *g)
{
    struct ring r = {.pipe = p, .n_ranks = axis->world, .n_each = g->n_ranges};
    r.n = r.n_ranks * r.n_each;
    r.n_work = (int64_t)r.n_each * p->n_groups;
    r.pieces = calloc((size_t)r.n * 2 * (size_t)p->n_groups, sizeof *r.pieces);
    r.workers = calloc(r.n_ranks, sizeof *r.workers);
    struct item *items = calloc(6 * (size_t)r.n_work + 1, sizeof *items); /* one is tried */
    int code = r.pieces && r.workers && items
                   ? 0
                   : zinf_fail(-ENOMEM, "no memory for the order of %lld micro-batches",
                               (long long)p->n_micro);
    if (!code)
        time_all(&r);
    const uint64_t n = code ? 0 : list_items(&r, axis->rank, g, items);
    for (uint64_t i = 0; i < n; i++)
        add_visit(p, &items[i].visit);
    free(r.pieces);
    free(r.workers);
    free(items);
    return code;
}

/* Forwards of a rank before its first backward: as many as ranks are behind it. Where what crosses
 * is to overlap with what is computed, twice as many: the gradient of a micro-batch may then be on
 * its way for as long as another one takes. */
static int64_t warm_of(const struct pipe *p, int64_t behind, bool overlaps)
{
    const int64_t warm = overlaps ? 2 * behind : behind;
    return warm < p->n_groups ? warm : p->n_groups;
}

int itinerary_make_pipe(struct itinerary *it, const struct walk *w, const struct grouping *of,
                        const struct zinf_axis *axis, bool overlaps)
{
    const int64_t behind = axis->world - 1 - axis->rank;
    const bool several = axis->world > 1 && w->graph->n_ranges > 1;
    struct pipe p = {.it = it,
                     .n_stages = w->graph->n_stages,
                     .n_micro = of->n_micro,
                     .together = of->together,
                     .back = of->back,
                     .n_groups = (of->n_micro + of->together - 1) / of->together,
                     .has_before = axis->rank > 0,
                     .has_next = behind > 0};
    const int64_t backs = p.n_groups * ((of->together + of->back - 1) / of->back);
    const size_t of_range = 6 * (size_t)p.n_groups + (size_t)backs;
    const size_t most = of_range * (several ? w->graph->n_ranges : 1);
    *it = (struct itinerary){0};
    it->visits = calloc(most + 1 + p.n_stages, sizeof *it->visits);
    if (!it->visits)
        return zinf_fail(-ENOMEM, "no memory for the order of %lld micro-batches",
                         (long long)of->n_micro);
    int code = 0;
    if (several)
        code = add_ring(&p, axis, w->graph);
    else
        add_pipe(&p, warm_of(&p, behind, overlaps), warm_of(&p, behind + 1, overlaps));
    add_last(it, w, of->n_micro);
    return code ? code : count_groups(it, of->n_micro);
}

void itinerary_fini(struct itinerary *it)
{
    free(it->visits);
    *it = (struct itinerary){0};
}
