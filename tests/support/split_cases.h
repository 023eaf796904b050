/*
 * split_cases: what every engine of net/ must do with nets that are split of one, for one rank's
 * end: all ranks run the same cases. Ranks stand in rows of `cols`.
 */
#ifndef ZINF_SPLIT_CASES_H
#define ZINF_SPLIT_CASES_H

#include "net_cases.h"

#include <pthread.h>

/* The nets of a rank's row and of its column. */
struct grid {
    struct zinf_net *row, *column;
    uint32_t cols;
};

static inline int grid_open(struct grid *g, struct zinf_net *net, uint32_t cols)
{
    uint32_t rank = zinf_net_place(net).rank;
    *g = (struct grid){.cols = cols};
    int code = zinf_net_split(net, rank / cols, rank % cols, &g->row);
    return code ? code : zinf_net_split(net, rank % cols, rank / cols, &g->column);
}

/* One net's cases in a thread of their own. */
struct split_thread {
    pthread_t thread;
    struct zinf_net *net;
    struct net_report report;
};

static void *split_run(void *argument)
{
    struct split_thread *t = argument;
    for (int i = 0; i < 3; i++)
        net_cases(t->net, false, &t->report);
    return NULL;
}

static inline void split_take(struct net_report *r, const struct net_report *of, const char *what)
{
    r->n_checks += of->n_checks;
    net_expect(r, !of->n_failed, "%s: %s", what, of->first);
}

static inline void split_case_grid(struct zinf_net *net, uint32_t cols, bool row_first,
                                   struct net_report *r)
{
    struct zinf_net_place at = zinf_net_place(net);
    struct grid g;
    struct split_thread row, column;
    net_expect(r, !grid_open(&g, net, cols), "a grid: %s", zinf_error());
    if (!g.row || !g.column)
        return;
    struct zinf_net_place in_row = zinf_net_place(g.row), in_column = zinf_net_place(g.column);
    net_expect(r, in_row.rank == at.rank % cols && in_row.world == cols, "place in a row");
    net_expect(r, in_column.rank == at.rank / cols && in_column.world == at.world / cols,
               "place in a column");
    row = (struct split_thread){.net = g.row};
    column = (struct split_thread){.net = g.column};
    pthread_create(&row.thread, NULL, split_run, &row);
    pthread_create(&column.thread, NULL, split_run, &column);
    pthread_join(row.thread, NULL);
    pthread_join(column.thread, NULL);
    split_take(r, &row.report, "rows");
    split_take(r, &column.report, "columns");
    net_cases(net, false, r);
    zinf_net_close(row_first ? g.row : g.column);
    zinf_net_close(row_first ? g.column : g.row);
}

/* Ranks of a net, by what their own net calls them. */
static inline void split_expect_ranks(struct zinf_net *part, uint32_t own, const uint32_t *ranks,
                                      uint32_t n, struct net_report *r)
{
    uint32_t all[64] = {0}, wrong = 0;
    net_expect(r, zinf_net_place(part).world == n, "%u ranks, not %u", zinf_net_place(part).world,
               n);
    if (zinf_net_place(part).world > 64 || zinf_net_gather(part, &own, all, sizeof own))
        wrong = 1;
    for (uint32_t i = 0; i < n; i++)
        wrong += all[i] != ranks[i];
    net_expect(r, !wrong, "%u ranks are not where their keys say", wrong);
}

/* Backwards; colours that differ in size; no colour; and a part of a part, which outlives it. */
static inline void split_case_colours(struct zinf_net *net, struct net_report *r)
{
    struct zinf_net_place at = zinf_net_place(net);
    struct zinf_net *back = NULL, *uneven = NULL, *part = NULL, *none = NULL;
    uint32_t ranks[64], n = 0;
    net_expect(r, !zinf_net_split(net, 7, at.world - at.rank, &back) && back, "backwards: %s",
               zinf_error());
    for (uint32_t i = 0; i < at.world; i++)
        ranks[i] = at.world - 1 - i;
    split_expect_ranks(back, at.rank, ranks, at.world, r);
    net_cases(back, false, r);
    net_expect(r, !zinf_net_split(back, at.rank ? 1 : 5, 0, &uneven) && uneven, "uneven: %s",
               zinf_error());
    for (uint32_t i = at.world - 1; i > 0; i--)
        ranks[n++] = i;
    if (at.rank)
        split_expect_ranks(uneven, at.rank, ranks, n, r);
    net_expect(r, zinf_net_place(uneven).world == (at.rank ? at.world - 1 : 1), "uneven places");
    zinf_net_close(back); /* before what was split of it */
    net_cases(uneven, false, r);
    net_expect(r,
               !zinf_net_split(uneven, at.rank % 2 ? 3 : ZINF_NET_NO_COLOUR, at.rank, &part) &&
                   !part == !(at.rank % 2),
               "a part of a part: %s", zinf_error());
    for (uint32_t i = n = 0; i < at.world; i++)
        if (i % 2)
            ranks[n++] = i;
    if (part)
        split_expect_ranks(part, at.rank, ranks, n, r);
    if (part)
        net_cases(part, false, r);
    zinf_net_close(uneven);
    zinf_net_close(part);
    net_expect(r, !zinf_net_split(net, ZINF_NET_NO_COLOUR, 0, &none) && !none, "no colours");
    net_cases(net, false, r);
}

/* Two nets of the same ranks are split at the same time: what goes over one part must not come out
 * of the other. */
struct split_twin {
    pthread_t thread;
    struct zinf_net *net;
    uint32_t number;
    struct net_report report;
};

static void *split_twin_run(void *argument)
{
    struct split_twin *t = argument;
    const struct zinf_net_place at = zinf_net_place(t->net);
    uint32_t *all = calloc(at.world, sizeof *all);
    for (uint32_t turn = 0; all && turn < 8; turn++) {
        struct zinf_net *part = NULL;
        net_expect(&t->report, !zinf_net_split(t->net, 0, at.rank, &part), "%s", zinf_error());
        for (uint32_t i = 0; part && i < 8; i++) {
            const uint32_t first = ((t->number * 8 + turn) * 8 + i) * 1000, own = first + at.rank;
            net_expect(&t->report, !zinf_net_gather(part, &own, all, sizeof own), "%s",
                       zinf_error());
            for (uint32_t k = 0; k < at.world; k++)
                net_expect(&t->report, all[k] == first + k, "%u of another net, not %u", all[k],
                           first + k);
        }
        zinf_net_close(part);
    }
    free(all);
    return NULL;
}

static inline void split_case_twins(struct zinf_net *net, struct net_report *r)
{
    const uint32_t rank = zinf_net_place(net).rank;
    struct split_twin twins[2] = {{.number = 0}, {.number = 1}};
    for (int i = 0; i < 2; i++)
        net_expect(r, !zinf_net_split(net, 0, rank, &twins[i].net), "%s", zinf_error());
    for (int i = 0; twins[1].net && i < 2; i++)
        pthread_create(&twins[i].thread, NULL, split_twin_run, &twins[i]);
    for (int i = 0; twins[1].net && i < 2; i++) {
        pthread_join(twins[i].thread, NULL);
        split_take(r, &twins[i].report, "nets that were split at once");
    }
    for (int i = 0; i < 2; i++)
        zinf_net_close(twins[i].net);
}

static inline void split_cases(struct zinf_net *net, struct net_report *r)
{
    uint32_t world = zinf_net_place(net).world;
    split_case_twins(net, r);
    for (uint32_t cols = 2; cols < world; cols++)
        if (world % cols == 0)
            split_case_grid(net, cols, cols % 2, r);
    split_case_colours(net, r);
}

/* Of rows of two: rank 0 fails, and tells its row; busy: while its other thread waits in its
 * column. Rank 1 waits for it in the row, rank 2 in the column, rank 3 for rank 2. code and
 * sentence of what waits. */
struct split_wait {
    struct zinf_net *net;
    int code;
    char said[1200];
};

static void *split_wait(void *argument)
{
    struct split_wait *w = argument;
    char all[64];
    for (int i = 0; !w->code && i < 2; i++) /* the first may have been sent before */
        w->code = zinf_net_gather(w->net, "1234", all, 4);
    snprintf(w->said, sizeof w->said, "%s", w->code ? zinf_error() : "");
    return NULL;
}

static inline void split_case_failure(struct zinf_net *net, bool busy, struct net_report *r)
{
    static const struct timespec moment = {0, 200000000};
    uint32_t rank = zinf_net_place(net).rank;
    struct split_wait w = {.code = 0};
    struct grid g;
    pthread_t thread;
    net_expect(r, !grid_open(&g, net, 2), "a grid: %s", zinf_error());
    if (!g.row || !g.column)
        return;
    w.net = rank == 1 || rank == 3 ? g.row : g.column;
    if (rank == 2) { /* rank 0 waits for it too */
        nanosleep(&moment, NULL);
        nanosleep(&moment, NULL);
    }
    bool waits = rank || busy;
    if (waits)
        pthread_create(&thread, NULL, split_wait, &w);
    if (rank == 0) {
        nanosleep(&moment, NULL);
        zinf_net_tell(g.row, "the drive is full");
    }
    if (waits)
        pthread_join(thread, NULL);
    net_expect(r, !waits || w.code == -ECONNABORTED, "rank %u: code %d: %s", rank, w.code, w.said);
    net_expect(r, !rank || strstr(w.said, "the drive is full"), "rank %u: %s", rank, w.said);
    net_expect(r, !rank || strstr(w.said, "0 has failed: "), "rank %u: %s", rank, w.said);
    zinf_net_tell(net, w.said);
    zinf_net_close(g.row);
    zinf_net_close(g.column);
}

#endif
