/*
 * Itineraries: every stage is visited forward once and backward once by every micro-batch, in an
 * order that computes, and what is counted from the list is what a walk of it finds. So it is of
 * ranks that have a range of stages each, whose exchanges with their neighbours match and never
 * wait for each other in a circle.
 */
#include "tap.h"

#include "train/plan/itinerary.h"

#include <stdlib.h>

enum { STAGES = 6, MOST_MICRO = 24 };

static struct walk_stage stages[STAGES];
static struct zinf_graph graph = {.n_stages = STAGES};
static const struct walk walk = {.graph = &graph, .stages = stages};

/* When a stage was visited by a micro-batch, from 1; 0: never. */
struct times {
    uint32_t forward[STAGES][MOST_MICRO], backward[STAGES][MOST_MICRO];
};

static bool go(struct times *t, const struct visit *v, uint32_t now)
{
    bool good = true;
    if (v->direction == VISIT_BORDER)
        return true;
    for (uint32_t s = v->first; s < v->end; s++)
        for (int64_t m = v->micros.first; m < v->micros.end; m++) {
            bool mine = (v->direction == VISIT_LAST) == stages[s].runs_last;
            uint32_t *when = v->direction == VISIT_FORWARD ? &t->forward[s][m] : &t->backward[s][m];
            if (v->direction != VISIT_FORWARD && !mine)
                continue;
            good = good && !*when;
            *when = now;
        }
    return good;
}

/* A backward reads what its forward and the stage behind it have made. */
static bool is_in_order(const struct times *t, uint32_t first, uint32_t end, int64_t m)
{
    bool good = true;
    for (uint32_t s = first; s < end; s++) {
        uint32_t forward = t->forward[s][m], backward = t->backward[s][m];
        good = good && forward && backward > forward;
        if (s > first) /* in one visit, or one after the other */
            good = good && t->forward[s - 1][m] <= forward &&
                   (t->backward[s - 1][m] >= backward || stages[s].runs_last);
    }
    return good;
}

/* Micro-batches whose activations exist at once, visit by visit. */
static int64_t most_live(const struct itinerary *it, int64_t n_micro)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < it->n; i++) {
        int64_t live = 0;
        for (int64_t m = 0; m < n_micro; m++) {
            bool before = false, after = false;
            for (uint32_t k = 0; k < it->n; k++) {
                const struct visit *v = &it->visits[k];
                bool mine = v->direction < VISIT_LAST && m >= v->micros.first && m < v->micros.end;
                before |= mine && k <= i;
                after |= mine && k >= i;
            }
            live += before && after;
        }
        most = live > most ? live : most;
    }
    return most;
}

static void check(const struct itinerary *it, uint32_t first, uint32_t end, int64_t n_micro,
                  int64_t live)
{
    struct times *t = calloc(1, sizeof *t);
    bool good = t != NULL;
    for (uint32_t i = 0; good && i < it->n; i++)
        good = go(t, &it->visits[i], i + 1);
    for (int64_t m = 0; good && m < n_micro; m++)
        good = is_in_order(t, first, end, m);
    CHECKF(good, "%lld micro-batches", (long long)n_micro);
    CHECKF(it->live == live && live == most_live(it, n_micro), "%lld live of %lld, want %lld",
           (long long)it->live, (long long)n_micro, (long long)live);
    free(t);
}

static void test_orders_of_today(void)
{
    for (int64_t n_micro = 1; n_micro <= MOST_MICRO; n_micro++)
        for (int64_t together = 1; together <= n_micro; together++) {
            struct itinerary it;
            stages[0].runs_last = n_micro & 1;
            CHECK(!itinerary_make(&it, &walk, n_micro, together));
            CHECK(it.together == together);
            check(&it, 0, STAGES, n_micro, together);
            itinerary_fini(&it);
        }
    stages[0].runs_last = false;
}

/* ---- stages over ranks ---- */

enum { MOST_RANKS = 5 };

static int64_t count(struct range r)
{
    return r.end - r.first;
}

/* What one gives the other takes, in one exchange. */
static bool meet(const struct visit *next, const struct visit *before)
{
    const bool gives = !count(next->gives) || next->gives.first == before->takes.first;
    const bool takes = !count(next->takes) || next->takes.first == before->gives.first;
    return gives && takes && count(next->gives) == count(before->takes) &&
           count(next->takes) == count(before->gives);
}

/* Ranks that wait for each other in exchanges come to their ends. */
static bool all_end(const struct itinerary *its, uint32_t ranks)
{
    uint32_t at[MOST_RANKS] = {0};
    bool moves = true, good = true;
    while (good && moves) {
        moves = false;
        for (uint32_t r = 0; r < ranks; r++) {
            const struct visit *v = &its[r].visits[at[r]], *other = v;
            if (at[r] == its[r].n)
                continue;
            const bool border = v->direction == VISIT_BORDER;
            const uint32_t peer = border ? (r + (v->next ? 1 : ranks - 1)) % ranks : r;
            if (border)
                other = &its[peer].visits[at[peer]];
            if (border && (at[peer] == its[peer].n || other->direction != VISIT_BORDER ||
                           other->next == v->next))
                continue;
            good = good && (!border || (v->next ? meet(v, other) : meet(other, v)));
            good = good && (!border || v->next || v->range == other->range + !r);
            at[r]++;
            at[peer] += border;
            moves = true;
        }
    }
    for (uint32_t r = 0; r < ranks; r++)
        good = good && at[r] == its[r].n;
    return good;
}

/* A value is there before its forward, a gradient before its backward; they leave behind these. */
static bool crosses_in_time(const struct itinerary *it)
{
    bool came[2][MOST_MICRO] = {{0}}, done[2][MOST_MICRO] = {{0}}, takes[2] = {0};
    for (uint32_t i = 0; i < it->n; i++)
        takes[it->visits[i].next] |= count(it->visits[i].takes) > 0;
    bool good = true;
    for (uint32_t i = 0; i < it->n; i++) {
        const struct visit *v = &it->visits[i];
        for (int64_t m = v->gives.first; m < v->gives.end; m++)
            good = good && done[v->next ? VISIT_FORWARD : VISIT_BACKWARD][m];
        for (int64_t m = v->takes.first; m < v->takes.end; m++)
            came[v->next][m] = true;
        for (int64_t m = v->micros.first; v->direction < VISIT_LAST && m < v->micros.end; m++) {
            const bool backward = v->direction == VISIT_BACKWARD;
            good = good && came[backward][m] == takes[backward];
            done[v->direction][m] = true;
        }
    }
    return good;
}

/* Micro-batches that go forward and backward in one visit. */
static const int64_t groupings[][2] = {{1, 1}, {2, 2}, {2, 1}, {3, 3}, {3, 1}};

static void test_one_forward_one_backward(void)
{
    for (uint32_t ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (int64_t n_micro = 1; n_micro <= MOST_MICRO; n_micro += n_micro > 6 ? 5 : 1)
            for (int64_t i = 0; i < 5 && groupings[i][0] <= n_micro; i++) {
                struct itinerary its[MOST_RANKS];
                const int64_t together = groupings[i][0], back = groupings[i][1];
                const struct grouping of = {n_micro, together, back};
                const int64_t groups = (n_micro + together - 1) / together;
                for (uint32_t r = 0; r < ranks; r++) {
                    const struct zinf_axis pipe = {.rank = r, .world = ranks};
                    const int64_t most = ranks - r;
                    int64_t live = (most < groups ? most : groups) * together;
                    CHECK(!itinerary_make_pipe(&its[r], &walk, &of, &pipe, false));
                    CHECK(its[r].together == together && its[r].back == back &&
                          crosses_in_time(&its[r]));
                    check(&its[r], 0, STAGES, n_micro, live < n_micro ? live : n_micro);
                }
                CHECKF(all_end(its, ranks), "%u ranks, %lld micro-batches, %lld together", ranks,
                       (long long)n_micro, (long long)together);
                for (uint32_t r = 0; r < ranks; r++)
                    itinerary_fini(&its[r]);
            }
}

/* ---- several ranges a rank ---- */

enum { MOST_RANGES = 3 };

/* What a rank's visits were when it came to them: of each range and micro-batch. */
struct ranges_seen {
    bool came[2][MOST_RANGES][MOST_MICRO], done[2][MOST_RANGES][MOST_MICRO];
};

static bool see_border(const struct ranges_seen *s, const struct visit *v)
{
    bool good = true;
    for (int64_t m = v->gives.first; m < v->gives.end; m++)
        good = good && s->done[v->next ? VISIT_FORWARD : VISIT_BACKWARD][v->range][m];
    return good;
}

static bool see_work(struct ranges_seen *s, const struct visit *v, uint32_t range, bool from[2])
{
    bool good = true;
    const bool back = v->direction == VISIT_BACKWARD;
    for (int64_t m = v->micros.first; m < v->micros.end; m++) {
        good = good && (s->came[back][range][m] || !from[back]) && !s->done[back][range][m] &&
               (!back || s->done[VISIT_FORWARD][range][m]);
        s->done[back][range][m] = true;
    }
    return good;
}

/* Of each range every micro-batch goes forward once and backward once, when what it reads is there;
 * what a rank gives it has made. */
static bool works_in_time(const struct itinerary *it, const struct zinf_axis *pipe, uint32_t n,
                          int64_t n_micro)
{
    struct ranges_seen *s = calloc(1, sizeof *s);
    bool good = s;
    for (uint32_t i = 0; good && i < it->n; i++) {
        const struct visit *v = &it->visits[i];
        for (int64_t m = v->takes.first; m < v->takes.end; m++)
            s->came[v->next][v->range][m] = true;
        const uint32_t range = v->first / (STAGES / n);
        bool from[2] = {pipe->rank + range > 0, pipe->rank + 1 < pipe->world || range + 1 < n};
        good = v->direction == VISIT_BORDER ? see_border(s, v) : see_work(s, v, range, from);
    }
    for (uint32_t k = 0; good && k < 2 * n; k++)
        for (int64_t m = 0; m < n_micro; m++)
            good = good && s->done[k % 2][k / 2][m];
    free(s);
    return good;
}

/* From the first exchange or visit of a micro-batch to the last one. */
static int64_t most_at_once(const struct itinerary *it, int64_t n_micro)
{
    int64_t most = 0;
    uint32_t from[MOST_MICRO], to[MOST_MICRO];
    for (int64_t m = 0; m < n_micro; m++) {
        from[m] = UINT32_MAX;
        for (uint32_t i = 0; i < it->n; i++) {
            const struct visit *v = &it->visits[i];
            const struct range of[] = {v->micros, v->gives, v->takes};
            for (int k = 0; k < 3; k++)
                if (m >= of[k].first && m < of[k].end) {
                    from[m] = from[m] == UINT32_MAX ? i : from[m];
                    to[m] = i;
                }
        }
    }
    for (uint32_t i = 0; i < it->n; i++) {
        int64_t live = 0;
        for (int64_t m = 0; m < n_micro; m++)
            live += from[m] <= i && i <= to[m];
        most = live > most ? live : most;
    }
    return most;
}

/* Of a rank with one range, which overlaps: values come one further than the rank before has to
 * make before it waits. */
static int64_t live_ahead(uint32_t rank, uint32_t ranks, int64_t n_micro, int64_t together)
{
    const int64_t live = (2 * (int64_t)(ranks - rank) - !rank) * together;
    return live < n_micro ? live : n_micro;
}

static void check_ranges(uint32_t ranks, uint32_t n, const struct grouping *of, bool overlaps)
{
    const int64_t n_micro = of->n_micro, together = of->together;
    struct itinerary its[MOST_RANKS] = {0};
    struct zinf_range ranges[MOST_RANGES];
    for (uint32_t i = 0; i < n; i++)
        ranges[i] = (struct zinf_range){.first = i * (STAGES / n), .end = (i + 1) * (STAGES / n)};
    graph.ranges = ranges;
    graph.n_ranges = n;
    for (uint32_t r = 0; r < ranks; r++) {
        const struct zinf_axis pipe = {.rank = r, .world = ranks};
        CHECK(!itinerary_make_pipe(&its[r], &walk, of, &pipe, overlaps));
        CHECKF(works_in_time(&its[r], &pipe, n, n_micro) && its[r].together == together &&
                   its[r].back == of->back &&
                   its[r].live == (overlaps ? live_ahead(r, ranks, n_micro, together)
                                            : most_at_once(&its[r], n_micro)),
               "rank %u of %u, %u ranges, %lld micro-batches: %lld live", r, ranks, n,
               (long long)n_micro, (long long)its[r].live);
    }
    CHECKF(all_end(its, ranks), "%u ranks, %u ranges, %lld micro-batches, %lld together", ranks, n,
           (long long)n_micro, (long long)together);
    for (uint32_t r = 0; r < ranks; r++)
        itinerary_fini(&its[r]);
    graph.ranges = NULL;
    graph.n_ranges = 0;
}

static void test_interleaved(void)
{
    for (uint32_t ranks = 2; ranks <= MOST_RANKS; ranks++)
        for (uint32_t n = 2; n <= MOST_RANGES; n++)
            for (int64_t n_micro = 1; n_micro <= MOST_MICRO; n_micro += n_micro > 11 ? 4 : 1)
                for (int64_t i = 0; i < 3 && groupings[i][0] <= n_micro; i++)
                    check_ranges(ranks, n,
                                 &(struct grouping){n_micro, groupings[i][0], groupings[i][1]},
                                 false);
}

/* With one range each and more micro-batches under way. */
static void test_overlapping(void)
{
    for (uint32_t ranks = 2; ranks <= MOST_RANKS; ranks++)
        for (int64_t n_micro = 1; n_micro <= MOST_MICRO; n_micro += n_micro > 11 ? 4 : 1)
            for (int64_t i = 0; i < 3 && groupings[i][0] <= n_micro; i++)
                check_ranges(ranks, 1,
                             &(struct grouping){n_micro, groupings[i][0], groupings[i][1]}, true);
    struct itinerary it;
    const struct zinf_axis second = {.rank = 1, .world = 4};
    const struct grouping one = {MOST_MICRO, 1, 1};
    CHECK(!itinerary_make_pipe(&it, &walk, &one, &second, true));
    CHECKF(it.live == 6, "%lld live", (long long)it.live);
    itinerary_fini(&it);
}

int main(void)
{
    TAP_RUN(test_orders_of_today);
    TAP_RUN(test_one_forward_one_backward);
    TAP_RUN(test_interleaved);
    TAP_RUN(test_overlapping);
    return tap_done();
}
