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
        it->together = v->direction != VISIT_LAST && n > it->together ? n : it->together;
        for (int64_t m = v->micros.first; m < v->micros.end && v->direction != VISIT_LAST; m++) {
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
        it->visits[it->n++] = (struct visit){VISIT_FORWARD, 0, n, micros, 0};
        it->visits[it->n++] = (struct visit){VISIT_BACKWARD, 0, n, micros, 0};
    }
    for (uint32_t s = n; s-- > 0;)
        if (w->stages[s].runs_last)
            it->visits[it->n++] = (struct visit){VISIT_LAST, s, s + 1, {0, n_micro}, 0};
    return itinerary_count(it, n_micro);
}

void itinerary_fini(struct itinerary *it)
{
    free(it->visits);
    *it = (struct itinerary){0};
}
