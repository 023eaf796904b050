/*
 * net_seats: every collective over the seats of one, two and three processes, which are groups of
 * threads here with a net of threads between them; bytes that cross between processes; and what a
 * seat sees of another that fails, near and far.
 */
#include "net/net_engine.h"
#include "split_cases.h"
#include "tap.h"

#include <pthread.h>
#include <unistd.h>

enum { MOST_PROCESSES = 3, MOST_SEATS = 4 };

struct seat {
    pthread_t thread;
    struct zinf_net *net;
    void (*body)(struct seat *seat);
    struct net_report report;
    int code;
    char said[400];
};
struct process {
    pthread_t thread;
    struct zinf_net *between;
    uint32_t n_seats;
    int code;
    char said[400];
    struct seat seats[MOST_SEATS];
};

static double timeout_seconds;

static void *run_seat(void *argument)
{
    struct seat *seat = argument;
    if (timeout_seconds > 0)
        zinf_net_set_timeout(seat->net, timeout_seconds);
    seat->body(seat);
    zinf_net_close(seat->net);
    return NULL;
}

static void *run_process(void *argument)
{
    struct process *p = argument;
    struct zinf_net *nets[MOST_SEATS];
    p->code = zinf_net_seats_create(nets, p->n_seats, p->between);
    snprintf(p->said, sizeof p->said, "%s", p->code ? zinf_error() : "");
    for (uint32_t s = 0; !p->code && s < p->n_seats; s++) {
        p->seats[s].net = nets[s];
        pthread_create(&p->seats[s].thread, NULL, run_seat, &p->seats[s]);
    }
    for (uint32_t s = 0; !p->code && s < p->n_seats; s++)
        pthread_join(p->seats[s].thread, NULL);
    if (p->code && p->between)
        zinf_net_tell(p->between, p->said);
    zinf_net_close(p->between);
    return NULL;
}

static struct process processes[MOST_PROCESSES];

static void begin(uint32_t n_processes, uint32_t n_seats, void (*body)(struct seat *seat))
{
    memset(processes, 0, sizeof processes);
    for (uint32_t p = 0; p < n_processes; p++) {
        processes[p].n_seats = n_seats;
        for (uint32_t s = 0; s < MOST_SEATS; s++)
            processes[p].seats[s].body = body;
    }
}

static void end(uint32_t n_processes)
{
    struct zinf_net *between[MOST_PROCESSES] = {0};
    if (n_processes > 1)
        CHECKF(!zinf_net_threads_create(between, n_processes), "%s", zinf_error());
    for (uint32_t p = 0; p < n_processes; p++) {
        processes[p].between = between[p];
        pthread_create(&processes[p].thread, NULL, run_process, &processes[p]);
    }
    for (uint32_t p = 0; p < n_processes; p++)
        pthread_join(processes[p].thread, NULL);
}

/* ---- what all engines do ---- */

static void all_cases(struct seat *seat)
{
    net_cases(seat->net, zinf_net_place(seat->net).world <= 4, &seat->report);
}

static void check_places(struct seat *seat)
{
    struct zinf_net_place at = zinf_net_place(seat->net);
    net_expect(&seat->report, at.rank / at.seats * at.seats + at.seat == at.rank, "rank %u",
               at.rank);
    net_expect(&seat->report, at.local_world == at.world && at.local_rank == at.rank,
               "all are on one host");
    all_cases(seat);
}

static void check_all(uint32_t n_processes, uint32_t n_seats)
{
    begin(n_processes, n_seats, n_processes > 1 ? all_cases : check_places);
    end(n_processes);
    for (uint32_t p = 0; p < n_processes; p++)
        for (uint32_t s = 0; s < n_seats; s++) {
            const struct net_report *r = &processes[p].seats[s].report;
            CHECKF(r->n_checks > 100 && !r->n_failed, "%u x %u: process %u seat %u: %d: %s %s",
                   n_processes, n_seats, p, s, r->n_failed, r->first, processes[p].said);
        }
}

static void test_seats_of_one_process(void)
{
    check_all(1, 1);
    check_all(1, 4);
}

static void test_seats_of_two_processes(void)
{
    check_all(2, 1);
    check_all(2, 2);
    check_all(2, 3);
}

static void test_seats_of_three_processes(void)
{
    check_all(3, 2);
}

/* ---- bytes between processes ---- */

static uint64_t crossed[MOST_PROCESSES];

static void gather_once(struct seat *seat)
{
    static char whole[MOST_PROCESSES * MOST_SEATS][4096];
    struct zinf_net_place at = zinf_net_place(seat->net);
    seat->code = zinf_net_gather(seat->net, whole[at.rank], whole[at.rank], 0);
    struct zinf_net *between = processes[at.rank / at.seats].between;
    uint64_t before = zinf_net_sent_bytes(between);
    char mine[64] = {0}, all[MOST_PROCESSES * MOST_SEATS * 64];
    if (!seat->code)
        seat->code = zinf_net_barrier(seat->net);
    before = zinf_net_sent_bytes(between);
    if (!seat->code)
        seat->code = zinf_net_gather(seat->net, mine, all, sizeof mine);
    if (at.seat == 0)
        crossed[at.rank / at.seats] = zinf_net_sent_bytes(between) - before;
}

/* A slice crosses once for each process, however many seats there take it. */
static void test_what_all_get_crosses_once(void)
{
    begin(2, 4, gather_once);
    end(2);
    for (int p = 0; p < 2; p++)
        CHECKF(!processes[p].seats[0].code && crossed[p] == 4 * 64, "process %d sent %llu bytes", p,
               (unsigned long long)crossed[p]);
}

/* At the beginning of each rank's place for pieces: puts a number there, and counts those that have
 * become others. */
enum { LOOKED_AT = 64 };
#define NOT_MADE (-1e30f)
static uint64_t look_at_pieces(const struct zinf_net *net, float number, bool put)
{
    uint64_t others = 0;
    for (uint32_t r = 0; r < zinf_net_place(net).world; r++)
        for (uint32_t i = 0; i < LOOKED_AT; i++) {
            float *at = &net->scratch[r * NET_PIECE_ELEMS + i];
            others += !put && *at != number;
            *at = put ? number : *at;
        }
    return others;
}

static void scatter_once(struct seat *seat)
{
    struct zinf_net_place at = zinf_net_place(seat->net);
    float whole[MOST_PROCESSES * MOST_SEATS * 16], slice[16];
    const struct zinf_net *between = processes[at.rank / at.seats].between;
    uint64_t before = between ? zinf_net_sent_bytes(between) : 0;
    for (uint32_t i = 0; i < at.world * 16; i++)
        whole[i] = net_value(at.rank, i);
    look_at_pieces(seat->net, NOT_MADE, true);
    seat->code = zinf_net_scatter_sum(seat->net, whole, slice, 16);
    const uint64_t written = look_at_pieces(seat->net, NOT_MADE, false) * sizeof(float);
    net_expect(&seat->report, written == zinf_net_sum_bytes(seat->net, 16),
               "rank %u wrote %llu bytes", at.rank, (unsigned long long)written);
    for (uint32_t i = 0; !seat->code && i < 16; i++)
        net_expect(&seat->report, slice[i] == net_tree(0, at.world, at.rank * 16 + i),
                   "rank %u element %u", at.rank, i);
    if (at.seat == 0 && between)
        crossed[at.rank / at.seats] = zinf_net_sent_bytes(between) - before;
}

/* What seats that are 2^k have for a rank elsewhere is added up before it crosses; others' parts
 * cross each by itself. So many pieces come, and are planned. */
static void test_sums_cross_once(void)
{
    begin(1, 4, scatter_once);
    end(1);
    for (uint32_t s = 0; s < 4; s++)
        CHECKF(!processes[0].seats[s].code && !processes[0].seats[s].report.n_failed, "%s",
               processes[0].seats[s].report.first);
    for (uint32_t n_seats = 2; n_seats <= 4; n_seats++) {
        uint64_t parts = n_seats == 3 ? 9 : n_seats;
        begin(2, n_seats, scatter_once);
        end(2);
        for (uint32_t p = 0; p < 2; p++) {
            CHECKF(crossed[p] == parts * 64, "%u seats: process %u sent %llu bytes", n_seats, p,
                   (unsigned long long)crossed[p]);
            for (uint32_t s = 0; s < n_seats; s++)
                CHECKF(!processes[p].seats[s].code && !processes[p].seats[s].report.n_failed, "%s",
                       processes[p].seats[s].report.first);
        }
    }
}

/* ---- failures ---- */

static void note(struct seat *seat, int code)
{
    seat->code = code;
    snprintf(seat->said, sizeof seat->said, "%s", code ? zinf_error() : "");
}

static void one_tells(struct seat *seat)
{
    if (zinf_net_place(seat->net).rank == 1)
        zinf_net_tell(seat->net, "the drive is full");
    else
        note(seat, zinf_net_barrier(seat->net));
    if (seat->code)
        zinf_net_tell(seat->net, seat->said);
}

static void test_a_failure_is_told(void)
{
    for (uint32_t n = 1; n <= 2; n++) {
        timeout_seconds = 20;
        begin(n, 2, one_tells);
        end(n);
        for (uint32_t p = 0; p < n; p++)
            for (uint32_t s = 0; s < 2; s++) {
                const struct seat *seat = &processes[p].seats[s];
                CHECKF(p * 2 + s == 1 ||
                           (seat->code == -ECONNABORTED && strstr(seat->said, "the drive is full")),
                       "%u processes: process %u seat %u: %d: %s", n, p, s, seat->code, seat->said);
            }
        CHECKF(n > 1 || strstr(processes[0].seats[0].said, "seat 1 has failed"), "%s",
               processes[0].seats[0].said);
    }
    CHECKF(strstr(processes[1].seats[0].said, "process 0 has failed: seat 1: the drive is full"),
           "%s", processes[1].seats[0].said);
    timeout_seconds = 0;
}

static _Atomic int n_done;

/* The last one comes when the others wait no more, however long that takes them. */
static void one_is_late(struct seat *seat)
{
    if (zinf_net_place(seat->net).rank != 3)
        note(seat, zinf_net_barrier(seat->net));
    else
        for (int i = 0; atomic_load(&n_done) < 3 && i < 60000; i++)
            usleep(1000);
    atomic_fetch_add(&n_done, 1);
    zinf_net_tell(seat->net, *seat->said ? seat->said : "over");
}

static void test_a_late_seat_ends_all(void)
{
    timeout_seconds = 2;
    begin(2, 2, one_is_late);
    end(2);
    for (uint32_t i = 0; i < 3; i++)
        CHECKF(processes[i / 2].seats[i % 2].code, "rank %u goes on", i);
    const char *sentence = processes[1].seats[0].said; /* beside the late one */
    CHECKF(strstr(sentence, "rank 3 has sent nothing"), "%s", sentence);
    timeout_seconds = 0;
}

static void nothing(struct seat *seat)
{
    seat->code = 1;
}

static void test_processes_that_differ(void)
{
    begin(2, 2, nothing);
    processes[1].n_seats = 3;
    end(2);
    for (int p = 0; p < 2; p++)
        CHECKF(processes[p].code == -EINVAL && strstr(processes[p].said, "number of seats"), "%s",
               processes[p].said);
    struct zinf_net *nets[1];
    CHECK(zinf_net_seats_create(nets, 0, NULL) == -EINVAL);
}

static void splits(struct seat *seat)
{
    split_cases(seat->net, &seat->report);
}

static void failure_across(struct seat *seat)
{
    split_case_failure(seat->net, true, &seat->report);
}

/* Rows of two among three seats of a process are in one process or in two; columns have more ranks
 * in one process than in the other. */
static void test_splits(void)
{
    static const uint32_t kinds[][2] = {{1, 4}, {2, 2}, {2, 3}, {3, 2}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        begin(kinds[i][0], kinds[i][1], splits);
        end(kinds[i][0]);
        for (uint32_t r = 0; r < kinds[i][0] * kinds[i][1]; r++) {
            const struct net_report *report =
                &processes[r / kinds[i][1]].seats[r % kinds[i][1]].report;
            CHECKF(report->n_checks > 1000 && !report->n_failed, "%u x %u: rank %u: %s",
                   kinds[i][0], kinds[i][1], r, report->first);
        }
    }
}

static void test_a_failure_goes_across(void)
{
    timeout_seconds = 60;
    for (uint32_t n_processes = 1; n_processes <= 2; n_processes++) {
        begin(n_processes, 4 / n_processes, failure_across);
        end(n_processes);
        for (uint32_t r = 0; r < 4; r++) {
            const struct net_report *report =
                &processes[r * n_processes / 4].seats[r % (4 / n_processes)].report;
            CHECKF(report->n_checks > 2 && !report->n_failed, "%u processes: rank %u: %s",
                   n_processes, r, report->first);
        }
    }
    timeout_seconds = 0;
}

int main(void)
{
    TAP_RUN(test_seats_of_one_process);
    TAP_RUN(test_seats_of_two_processes);
    TAP_RUN(test_seats_of_three_processes);
    TAP_RUN(test_what_all_get_crosses_once);
    TAP_RUN(test_sums_cross_once);
    TAP_RUN(test_a_failure_is_told);
    TAP_RUN(test_a_late_seat_ends_all);
    TAP_RUN(test_processes_that_differ);
    TAP_RUN(test_splits);
    TAP_RUN(test_a_failure_goes_across);
    return tap_done();
}
