/*
 * net_tcp: every collective over ranks with sockets between them, which are threads here; what a
 * rank sees of one that fails, is late, or is gone; and how ranks find each other, past strangers.
 */
#include "net/net_tcp.h"
#include "split_cases.h"
#include "tap.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_RANKS = 6 };

struct rank {
    pthread_t thread;
    struct net_tcp_start start;
    struct zinf_net *net;
    void (*body)(struct rank *rank);
    struct net_report report;
    int code;
    char said[600];
};

static struct rank ranks[MOST_RANKS];
static double timeout_seconds;

static void note(struct rank *rank, int code)
{
    rank->code = code;
    snprintf(rank->said, sizeof rank->said, "%s", code ? zinf_error() : "");
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    note(rank, net_tcp_open(&rank->net, &rank->start));
    if (rank->code)
        return NULL;
    if (timeout_seconds > 0)
        zinf_net_set_timeout(rank->net, timeout_seconds);
    rank->body(rank);
    zinf_net_close(rank->net);
    return NULL;
}

/* One that nobody has just now. */
static uint32_t free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!bind(fd, (struct sockaddr *)&at, sizeof at) &&
          !getsockname(fd, (struct sockaddr *)&at, &bytes));
    close(fd);
    return ntohs(at.sin_port);
}

static void begin(uint32_t world, void (*body)(struct rank *rank))
{
    uint32_t port = free_port();
    memset(ranks, 0, sizeof ranks);
    for (uint32_t r = 0; r < world; r++) {
        ranks[r].body = body;
        ranks[r].start = (struct net_tcp_start){.rank = r,
                                                .world = world,
                                                .local_rank = r,
                                                .local_world = world,
                                                .address = "localhost",
                                                .port = port,
                                                .job = 7,
                                                .seconds = 20};
    }
}

/* The last first: who comes before rank 0 calls again. */
static void end(uint32_t world)
{
    for (uint32_t r = world; r-- > 0; usleep(r ? 0 : 1000))
        CHECK(!pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]));
    for (uint32_t r = 0; r < world; r++)
        pthread_join(ranks[r].thread, NULL);
}

/* ---- what all engines do ---- */

static void all_cases(struct rank *rank)
{
    net_cases(rank->net, zinf_net_place(rank->net).world <= 3, &rank->report);
}

static void check_world(uint32_t world)
{
    begin(world, all_cases);
    end(world);
    for (uint32_t r = 0; r < world; r++)
        CHECKF(ranks[r].report.n_checks > 100 && !ranks[r].report.n_failed,
               "rank %u of %u: %d failed: %s %s", r, world, ranks[r].report.n_failed,
               ranks[r].report.first, ranks[r].said);
}

static void test_two(void)
{
    check_world(2);
}

static void test_three(void)
{
    check_world(3);
}

static void test_five(void)
{
    check_world(5);
}

/* ---- failures ---- */

static void one_tells(struct rank *rank)
{
    if (zinf_net_place(rank->net).rank == 1)
        zinf_net_tell(rank->net, "the drive is full");
    else
        note(rank, zinf_net_barrier(rank->net));
    zinf_net_tell(rank->net, rank->said);
}

static void test_a_failure_is_told(void)
{
    begin(4, one_tells);
    end(4);
    for (int r = 0; r < 4; r++)
        CHECKF(r == 1 || (ranks[r].code == -ECONNABORTED &&
                          strstr(ranks[r].said, "rank 1 has failed: the drive is full")),
               "rank %d: %d: %s", r, ranks[r].code, ranks[r].said);
}

/* Rank 1 has nothing to do with what the others exchange late, and tells meanwhile. */
static void one_tells_early(struct rank *rank)
{
    char given[8] = "bytes", got[8] = "";
    uint32_t own = zinf_net_place(rank->net).rank, peer = 2 - own;
    void *out[3] = {given, given, given}, *in[3] = {got, got, got};
    uint64_t bytes[3] = {0};
    if (own == 2)
        usleep(300000);
    if (own != 1)
        bytes[peer] = sizeof given;
    int code = zinf_net_trade(rank->net, &(struct zinf_net_trade){out, in, bytes, bytes});
    net_expect(&rank->report, !code && (own == 1 || !strcmp(got, given)), "%s", zinf_error());
    if (own == 1)
        zinf_net_tell(rank->net, "the drive is full");
    else
        note(rank, zinf_net_barrier(rank->net));
    zinf_net_tell(rank->net, rank->said);
}

static void test_what_was_begun_ends_well(void)
{
    begin(3, one_tells_early);
    end(3);
    for (int r = 0; r < 3; r++)
        CHECKF(!ranks[r].report.n_failed && (r == 1 || strstr(ranks[r].said, "the drive is full")),
               "rank %d: %s %s", r, ranks[r].report.first, ranks[r].said);
}

static void one_is_late(struct rank *rank)
{
    if (zinf_net_place(rank->net).rank != 2)
        note(rank, zinf_net_barrier(rank->net));
    else
        usleep(600000);
    zinf_net_tell(rank->net, *rank->said ? rank->said : "over");
}

static void test_a_late_rank_is_named(void)
{
    timeout_seconds = 0.3;
    begin(3, one_is_late);
    end(3);
    timeout_seconds = 0;
    for (int r = 0; r < 2; r++)
        CHECKF(ranks[r].code && strstr(ranks[r].said, "rank 2 has sent nothing"), "rank %d: %d: %s",
               r, ranks[r].code, ranks[r].said);
}

/* As a process that is killed. */
static void one_goes(struct rank *rank)
{
    if (zinf_net_place(rank->net).rank == 1)
        rank->net->told = true;
    else
        note(rank, zinf_net_barrier(rank->net));
    if (rank->code)
        zinf_net_tell(rank->net, rank->said);
}

static void test_one_that_is_gone(void)
{
    begin(3, one_goes);
    end(3);
    for (int r = 0; r < 3; r += 2)
        CHECKF(ranks[r].code == -ECONNABORTED &&
                   strstr(ranks[r].said, "rank 1 has ended without a word"),
               "rank %d: %d: %s", r, ranks[r].code, ranks[r].said);
}

static void lengths_differ(struct rank *rank)
{
    char whole[64] = {0}, slice[32] = {0};
    bool odd = zinf_net_place(rank->net).rank == 1;
    note(rank, zinf_net_gather(rank->net, slice, whole, odd ? 9 : 8));
    zinf_net_tell(rank->net, rank->said);
}

static void test_lengths_that_differ(void)
{
    begin(2, lengths_differ);
    end(2);
    CHECKF(ranks[0].code && ranks[1].code && (ranks[0].code == -EPROTO || ranks[1].code == -EPROTO),
           "%s; %s", ranks[0].said, ranks[1].said);
}

/* ---- finding each other ---- */

/* Says something else, or nothing, and stays. */
static void *call_as_stranger(void *argument)
{
    const struct net_tcp_start *start = argument;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)start->port)};
    char words[32] = "GET / HTTP/1.0\r\n\r\n";
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < 1000 && connect(fd, (struct sockaddr *)&at, sizeof at); i++)
        usleep(1000);
    if (send(fd, words, sizeof words, MSG_NOSIGNAL) < 0)
        words[0] = 0;
    close(fd);
    return NULL;
}

static void test_strangers_are_sent_away(void)
{
    pthread_t strangers[3];
    begin(3, all_cases);
    ranks[1].start.job = ranks[2].start.job; /* all of one training */
    for (int i = 0; i < 3; i++)
        pthread_create(&strangers[i], NULL, call_as_stranger, &ranks[0].start);
    end(3);
    for (int i = 0; i < 3; i++)
        pthread_join(strangers[i], NULL);
    for (int r = 0; r < 3; r++)
        CHECKF(!ranks[r].report.n_failed && ranks[r].report.n_checks > 100, "rank %d: %s %s", r,
               ranks[r].report.first, ranks[r].said);
}

static void test_another_training(void)
{
    begin(2, all_cases);
    ranks[1].start.job = 8;
    ranks[0].start.seconds = ranks[1].start.seconds = 0.5;
    end(2);
    CHECKF(ranks[0].code == -ETIMEDOUT && strstr(ranks[0].said, "rank 1 of 2 has not come"), "%s",
           ranks[0].said);
    CHECKF(ranks[1].code && strstr(ranks[1].said, "does not answer"), "%s", ranks[1].said);
}

static void test_a_rank_that_does_not_come(void)
{
    begin(1, all_cases);
    ranks[0].start.world = 3;
    ranks[0].start.seconds = 0.2;
    end(1);
    CHECKF(ranks[0].code == -ETIMEDOUT && strstr(ranks[0].said, "rank 1 of 3 has not come"), "%s",
           ranks[0].said);
    begin(2, all_cases);
    ranks[0] = ranks[1]; /* rank 0 is missing */
    ranks[0].start.seconds = 0.2;
    end(1);
    CHECKF(ranks[0].code == -ETIMEDOUT && strstr(ranks[0].said, "rank 0 is not there"), "%s",
           ranks[0].said);
}

static void splits(struct rank *rank)
{
    split_cases(rank->net, &rank->report);
}

static bool busy;

static void failure_across(struct rank *rank)
{
    split_case_failure(rank->net, busy, &rank->report);
}

static void test_splits(void)
{
    for (uint32_t world = 4; world <= 6; world += 2) {
        begin(world, splits);
        end(world);
        for (uint32_t r = 0; r < world; r++)
            CHECKF(ranks[r].report.n_checks > 1000 && !ranks[r].report.n_failed,
                   "rank %u of %u: %s %s", r, world, ranks[r].report.first, ranks[r].said);
    }
}

static void test_a_failure_goes_across(void)
{
    timeout_seconds = 10;
    for (int i = 0; i < 2; i++) {
        busy = i;
        begin(4, failure_across);
        end(4);
        for (uint32_t r = 0; r < 4; r++)
            CHECKF(ranks[r].report.n_checks > 2 && !ranks[r].report.n_failed, "rank %u: %s %s", r,
                   ranks[r].report.first, ranks[r].said);
    }
}

int main(void)
{
    TAP_RUN(test_two);
    TAP_RUN(test_three);
    TAP_RUN(test_five);
    TAP_RUN(test_a_failure_is_told);
    TAP_RUN(test_what_was_begun_ends_well);
    TAP_RUN(test_a_late_rank_is_named);
    TAP_RUN(test_one_that_is_gone);
    TAP_RUN(test_lengths_that_differ);
    TAP_RUN(test_strangers_are_sent_away);
    TAP_RUN(test_another_training);
    TAP_RUN(test_a_rank_that_does_not_come);
    TAP_RUN(test_splits);
    TAP_RUN(test_a_failure_goes_across);
    return tap_done();
}
