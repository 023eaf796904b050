/*
 * Itineraries: every stage is visited forward once and backward once by every micro-batch, in an
 * order that computes, and what is counted from the list is what a walk of it finds. So do two
 * orders that no program has yet, of which the list is to be able: one forward, one backward of
 * ranks that have a range of stages each, and chunks of a sequence.
 */
#include "tap.h"

#include "train/plan/itinerary.h"

#include <stdlib.h>

enum { STAGES = 6, MOST_MICRO = 24, CHUNKS = 3, MOST_VISITS = 4 * MOST_MICRO * CHUNKS };

static struct walk_stage stages[STAGES];
static struct zinf_graph graph = {.n_stages = STAGES};
static const struct walk walk = {.graph = &graph, .stages = stages};

/* When a stage was visited by a chunk of a micro-batch, from 1; 0: never. */
struct times {
    uint32_t forward[STAGES][MOST_MICRO][CHUNKS], backward[STAGES][MOST_MICRO][CHUNKS];
};

static bool go(struct times *t, const struct visit *v, uint32_t now)
{
    bool good = true;
    for (uint32_t s = v->first; s < v->end; s++)
        for (int64_t m = v->micros.first; m < v->micros.end; m++) {
            bool mine = (v->direction == VISIT_LAST) == stages[s].runs_last;
            uint32_t *when = v->direction == VISIT_FORWARD ? &t->forward[s][m][v->chunk]
                                                           : &t->backward[s][m][v->chunk];
            if (v->direction != VISIT_FORWARD && !mine)
                continue;
            good = good && !*when;
            *when = now;
        }
    return good;
}

/* A backward reads what its forward and the stage behind it have made; chunks go backward in
 * reverse, since a later one reads keys and values of the earlier. */
static bool is_in_order(const struct times *t, uint32_t first, uint32_t end, int64_t m,
                        uint32_t n_chunks)
{
    bool good = true;
    for (uint32_t s = first; s < end; s++)
        for (uint32_t c = 0; c < n_chunks; c++) {
            uint32_t forward = t->forward[s][m][c], backward = t->backward[s][m][c];
            good = good && forward && backward > forward;
            if (s > first) /* in one visit, or one after the other */
                good = good && t->forward[s - 1][m][c] <= forward &&
                       (t->backward[s - 1][m][c] >= backward || stages[s].runs_last);
            if (c > 0)
                good = good && t->forward[s][m][c - 1] < forward &&
                       t->backward[s][m][c - 1] > backward;
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
                bool mine = v->direction != VISIT_LAST && m >= v->micros.first && m < v->micros.end;
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
                  uint32_t n_chunks, int64_t live)
{
    struct times *t = calloc(1, sizeof *t);
    bool good = t != NULL;
    for (uint32_t i = 0; good && i < it->n; i++)
        good = go(t, &it->visits[i], i + 1);
    for (int64_t m = 0; good && m < n_micro; m++)
        good = is_in_order(t, first, end, m, n_chunks);
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
            check(&it, 0, STAGES, n_micro, 1, together);
            itinerary_fini(&it);
        }
    stages[0].runs_last = false;
}

static void add(struct itinerary *it, enum direction direction, uint32_t first, uint32_t end,
                int64_t micro, uint32_t chunk)
{
    it->visits[it->n++] = (struct visit){direction, first, end, {micro, micro + 1}, chunk};
}

/* Of rank `rank` of so many, which have equal ranges of the stages: so many forward as ranks come
 * behind it, then one forward, one backward. */
static void test_one_forward_one_backward(void)
{
    static struct visit visits[MOST_VISITS];
    for (uint32_t ranks = 1; ranks <= 3; ranks++)
        for (int64_t n_micro = 1; n_micro <= MOST_MICRO; n_micro++)
            for (uint32_t rank = 0; rank < ranks; rank++) {
                struct itinerary it = {.visits = visits};
                uint32_t n = STAGES / ranks, first = rank * n, end = first + n;
                int64_t ahead = ranks - 1 - rank, back = 0;
                for (int64_t m = 0; m < n_micro; m++) {
                    add(&it, VISIT_FORWARD, first, end, m, 0);
                    if (m >= ahead)
                        add(&it, VISIT_BACKWARD, first, end, back++, 0);
                }
                while (back < n_micro)
                    add(&it, VISIT_BACKWARD, first, end, back++, 0);
                CHECK(!itinerary_count(&it, n_micro) && it.together == 1);
                check(&it, first, end, n_micro, 1, ahead < n_micro ? ahead + 1 : n_micro);
            }
}

static void test_chunks_of_a_sequence(void)
{
    static struct visit visits[MOST_VISITS];
    struct itinerary it = {.visits = visits};
    for (int64_t m = 0; m < 4; m++) {
        for (uint32_t c = 0; c < CHUNKS; c++)
            add(&it, VISIT_FORWARD, 0, STAGES, m, c);
        for (uint32_t c = CHUNKS; c-- > 0;)
            add(&it, VISIT_BACKWARD, 0, STAGES, m, c);
    }
    CHECK(!itinerary_count(&it, 4));
    check(&it, 0, STAGES, 4, CHUNKS, 1);
}

int main(void)
{
    TAP_RUN(test_orders_of_today);
    TAP_RUN(test_one_forward_one_backward);
    TAP_RUN(test_chunks_of_a_sequence);
    return tap_done();
}
