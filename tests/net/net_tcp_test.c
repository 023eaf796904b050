/*
 * net_tcp: every collective over ranks with sockets between them, which are threads here; what a
 * rank sees of one that fails, is late, or is gone; and how ranks find each other, past strangers.
 */
#include "net/net_tcp.h"
#include "ports.h"
#include "split_cases.h"
#include "tap.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_RANKS = 6 };

struct rank {
    pthread_t thread;
    struct net_tcp_start start;
    struct zinf_net *net;
    void (*body)(struct rank *rank);
    struct net_report report;
    struct zinf_pulse pulse; /* as of a process of its own */
    int code;
    uint64_t met_ns; /* when all had met */
    char said[900];
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
    zinf_pulse_init(&rank->pulse, NULL);
    zinf_pulse_set(&rank->pulse);
    note(rank, net_tcp_open(&rank->net, &rank->start));
    if (rank->code)
        return NULL;
    rank->met_ns = zinf_now_ns();
    if (timeout_seconds > 0)
        zinf_net_set_timeout(rank->net, timeout_seconds);
    rank->body(rank);
    zinf_net_close(rank->net);
    return NULL;
}

/* Those that wait for another one's word give it a minute, and no less on a busy machine. */
static _Atomic uint32_t n_done;

static void until_done(uint32_t n)
{
    for (int i = 0; atomic_load(&n_done) < n && i < 60000; i++)
        usleep(1000);
}

static void begin(uint32_t world, void (*body)(struct rank *rank))
{
    uint32_t port = take_port();
    atomic_store(&n_done, 0);
    memset(ranks, 0, sizeof ranks);
    for (uint32_t r = 0; r < world; r++) {
        ranks[r].body = body;
        ranks[r].start = (struct net_tcp_start){.rank = r,
                                                .world = world,
                                                .local_rank = r,
                                                .local_world = world,
                                                .address = "localhost",
                                                .secret = "",
                                                .port = port,
                                                .job = 7,
                                                .seconds = 60};
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
        until_done(2); /* longer than they wait */
    atomic_fetch_add(&n_done, 1);
    zinf_net_tell(rank->net, *rank->said ? rank->said : "over");
}

static void test_a_late_rank_is_named(void)
{
    timeout_seconds = 2; /* in which each comes to its barrier */
    begin(3, one_is_late);
    end(3);
    timeout_seconds = 0;
    for (int r = 0; r < 2; r++)
        CHECKF(ranks[r].code && strstr(ranks[r].said, "rank 2 has sent nothing"), "rank %d: %d: %s",
               r, ranks[r].code, ranks[r].said);
}

/* Work of rank 2 that takes more than twice the limit, and beats. The others give signs of life,
 * and then wait: their signs are behind what they have sent for the barrier. */
static void one_is_slow(struct rank *rank)
{
    bool slow = zinf_net_place(rank->net).rank == 2;
    const uint64_t end_ns = net_now_ns() + (uint64_t)((slow ? 2.5e9 : 0.5e9) * timeout_seconds);
    while (net_now_ns() < end_ns) {
        usleep(10000);
        net_expect(&rank->report, !zinf_pulse_beat(), "%s", zinf_error());
    }
    note(rank, zinf_net_barrier(rank->net));
}

static void test_slow_work_that_beats(void)
{
    timeout_seconds = 3;
    begin(3, one_is_slow);
    end(3);
    timeout_seconds = 0;
    for (int r = 0; r < 3; r++)
        CHECKF(!ranks[r].code && !ranks[r].report.n_failed, "rank %d: %s %s", r, ranks[r].said,
               ranks[r].report.first);
}

/* Rank 0 waits for 1 alone, which waits for 2. */
static void a_chain(struct rank *rank)
{
    char given[8] = "bytes", got[8] = "";
    uint32_t own = zinf_net_place(rank->net).rank;
    void *out[3] = {given, given, given}, *in[3] = {got, got, got};
    uint64_t out_bytes[3] = {0}, in_bytes[3] = {0};
    if (own == 0)
        usleep(200000);
    if (own < 2)
        in_bytes[own + 1] = sizeof got;
    if (own == 2)
        until_done(2);
    else
        note(rank,
             zinf_net_trade(rank->net, &(struct zinf_net_trade){out, in, out_bytes, in_bytes}));
    atomic_fetch_add(&n_done, 1);
    zinf_net_tell(rank->net, *rank->said ? rank->said : "over");
}

static void test_the_end_of_a_chain_is_named(void)
{
    timeout_seconds = 2;
    begin(3, a_chain);
    end(3);
    timeout_seconds = 0;
    for (int r = 0; r < 2; r++)
        CHECKF(ranks[r].code && strstr(ranks[r].said, "rank 2 has sent nothing"), "rank %d: %d: %s",
               r, ranks[r].code, ranks[r].said);
}

/* Nobody waits for another when rank 1 fails. */
static void one_fails_while_others_work(struct rank *rank)
{
    int code = 0;
    if (zinf_net_place(rank->net).rank == 1)
        zinf_net_tell(rank->net, "the drive is full");
    else
        for (int i = 0; !code && i < 12000; i++, usleep(5000))
            code = zinf_pulse_beat();
    note(rank, code);
    zinf_net_tell(rank->net, rank->said);
}

static void test_work_hears_of_a_failure(void)
{
    timeout_seconds = 2;
    begin(3, one_fails_while_others_work);
    end(3);
    timeout_seconds = 0;
    for (int r = 0; r < 3; r += 2)
        CHECKF(ranks[r].code == -ECONNABORTED &&
                   strstr(ranks[r].said, "rank 1 has failed: the drive is full"),
               "rank %d: %d: %s", r, ranks[r].code, ranks[r].said);
}

/* As a process that is killed. */
static void one_goes(struct rank *rank)
{
    pthread_mutex_lock(&rank->net->lock);
    rank->net->told = zinf_net_place(rank->net).rank == 1;
    pthread_mutex_unlock(&rank->net->lock);
    if (zinf_net_place(rank->net).rank != 1)
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

#define SECRET "a secret of this training alone"
enum { N_STRANGERS = 40 };

struct stranger {
    pthread_t thread;
    const struct net_tcp_start *start;
    int kind;
    _Atomic bool over;
};

static int call_port(uint32_t host, uint32_t port, int tries)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(host);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < tries; i++, usleep(1000))
        if (!connect(fd, (struct sockaddr *)&at, sizeof at))
            return fd;
    close(fd);
    return -1;
}

/* As rank 1, with another secret; then once more with the same proof. */
static void prove_wrongly(int fd, const struct net_tcp_start *start)
{
    struct net_tcp_hello hello = {NET_TCP_MAGIC, start->job, 1, start->world, 9, 0, {7}};
    uint8_t number[NET_TCP_NUMBER] = {0}, proof[NET_TCP_PROOF];
    net_tcp_prove("another secret, long enough", "caller", &hello, number, proof);
    if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello &&
        recv(fd, number, sizeof number, MSG_WAITALL) == sizeof number)
        net_tcp_prove("another secret, long enough", "caller", &hello, number, proof);
    if (send(fd, proof, sizeof proof, MSG_NOSIGNAL) < 0)
        proof[0] = 0;
}

/* Says nothing, or something else, slowly or at once, and stays. */
static void *call_as_stranger(void *argument)
{
    struct stranger *s = argument;
    struct net_tcp_hello hello = {NET_TCP_MAGIC, s->start->job, 1, s->start->world, 9, 0, {7}};
    const char *words = s->kind == 1 ? "GET / HTTP/1.0\r\n\r\n, and so on, for as long as it takes"
                                     : (const char *)&hello;
    int fd = call_port(INADDR_LOOPBACK, s->start->port, 2000);
    if (s->kind == 1 && send(fd, words, strlen(words), MSG_NOSIGNAL) < 0)
        s->kind = 0;
    if (s->kind == 3)
        prove_wrongly(fd, s->start);
    for (size_t i = 0; !atomic_load(&s->over); usleep(20000))
        if (s->kind == 2 && i < sizeof hello && send(fd, words + i, 1, MSG_NOSIGNAL) == 1)
            i++;
    close(fd);
    return NULL;
}

static void test_strangers_are_sent_away(void)
{
    struct stranger strangers[N_STRANGERS] = {0};
    uint64_t begin_ns = zinf_now_ns();
    begin(3, all_cases);
    for (int r = 0; r < 3; r++)
        ranks[r].start.secret = SECRET;
    for (int i = 0; i < N_STRANGERS; i++) {
        strangers[i].start = &ranks[0].start;
        strangers[i].kind = i % 4;
        pthread_create(&strangers[i].thread, NULL, call_as_stranger, &strangers[i]);
    }
    pthread_create(&ranks[0].thread, NULL, run_rank, &ranks[0]);
    usleep(300000); /* all of them come first */
    for (int r = 1; r < 3; r++)
        pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]);
    for (int r = 0; r < 3; r++)
        pthread_join(ranks[r].thread, NULL);
    for (int i = 0; i < N_STRANGERS; i++)
        atomic_store(&strangers[i].over, true);
    for (int i = 0; i < N_STRANGERS; i++)
        pthread_join(strangers[i].thread, NULL);
    for (int r = 0; r < 3; r++)
        CHECKF(!ranks[r].report.n_failed && ranks[r].report.n_checks > 100, "rank %d: %s %s", r,
               ranks[r].report.first, ranks[r].said);
    /* Each silent one may be silent for 5 s, all of them at the same time. */
    double seconds = (double)(ranks[0].met_ns - begin_ns) * 1e-9;
    CHECKF(seconds < 20, "strangers took %.1f s", seconds);
}

/* A proof that was heard is of no use again: the number that it is made with is another. */
static void test_a_proof_is_of_use_once(void)
{
    struct net_tcp_hello hello = {NET_TCP_MAGIC, 7, 1, 2, 9, 0, {1}}, other = hello;
    uint8_t number[NET_TCP_NUMBER] = {2}, proof[NET_TCP_PROOF];
    CHECK(net_tcp_prove(SECRET, "caller", &hello, number, proof));
    CHECK(net_tcp_is_proven(SECRET, "caller", &hello, number, proof));
    CHECK(!net_tcp_is_proven(SECRET, "called", &hello, number, proof));
    CHECK(!net_tcp_is_proven("another secret of it", "caller", &hello, number, proof));
    other.to = 1;
    CHECK(!net_tcp_is_proven(SECRET, "caller", &other, number, proof));
    number[0]++;
    CHECK(!net_tcp_is_proven(SECRET, "caller", &hello, number, proof));
}

static void test_a_wrong_secret(void)
{
    begin(2, all_cases);
    ranks[0].start.secret = SECRET;
    ranks[1].start.secret = "another secret of it";
    ranks[0].start.seconds = ranks[1].start.seconds = 2;
    end(2);
    CHECKF(ranks[0].code == -ETIMEDOUT && strstr(ranks[0].said, "rank 1 of 2 has not come") &&
               strstr(ranks[0].said, "does not know this training's ZINF_NET_SECRET"),
           "%s", ranks[0].said);
    CHECKF(ranks[1].code && strstr(ranks[1].said, "ZINF_NET_SECRET"), "%s", ranks[1].said);
    begin(1, all_cases);
    ranks[0].start.world = 2;
    ranks[0].start.secret = "short";
    end(1);
    CHECKF(ranks[0].code == -EINVAL && strstr(ranks[0].said, "16 or more"), "%s", ranks[0].said);
}

/* On the loopback alone: Linux answers for all of 127.0.0.0/8 where one listens everywhere. */
static void test_where_it_listens(void)
{
    begin(2, all_cases);
    ranks[0].start.address = ranks[1].start.address = "127.0.0.1";
    pthread_create(&ranks[0].thread, NULL, run_rank, &ranks[0]);
    int there = call_port(INADDR_LOOPBACK, ranks[0].start.port, 2000);
    int elsewhere = call_port(INADDR_LOOPBACK + 1, ranks[0].start.port, 1);
    CHECK(there >= 0 && elsewhere < 0);
    close(there);
    pthread_create(&ranks[1].thread, NULL, run_rank, &ranks[1]);
    for (int r = 0; r < 2; r++)
        pthread_join(ranks[r].thread, NULL);
    CHECKF(!ranks[1].report.n_failed && ranks[1].report.n_checks > 100, "%s", ranks[1].said);
}

static void test_private_addresses(void)
{
    static const struct {
        const char *text;
        bool is_private;
    } cases[] = {{"127.0.0.1", true},        {"10.1.2.3", true},
                 {"172.16.0.1", true},       {"172.32.0.1", false},
                 {"192.168.7.7", true},      {"169.254.1.1", true},
                 {"100.64.0.1", true},       {"100.128.0.1", false},
                 {"8.8.8.8", false},         {"::1", true},
                 {"fe80::1", true},          {"fd00::1", true},
                 {"2001:4860::8888", false}, {"::ffff:10.0.0.1", true},
                 {"::ffff:8.8.8.8", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sockaddr_storage at = {0};
        struct sockaddr_in *four = (struct sockaddr_in *)&at;
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)&at;
        at.ss_family = strchr(cases[i].text, ':') ? AF_INET6 : AF_INET;
        CHECK(inet_pton(at.ss_family, cases[i].text,
                        at.ss_family == AF_INET ? (void *)&four->sin_addr : &six->sin6_addr) == 1);
        CHECKF(net_tcp_is_private(&at) == cases[i].is_private, "%s", cases[i].text);
    }
}

static void test_another_training(void)
{
    begin(2, all_cases);
    ranks[1].start.job = 8;
    ranks[0].start.seconds = ranks[1].start.seconds = 2;
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
    CHECKF(ranks[0].code == -ETIMEDOUT && strstr(ranks[0].said, "ranks 1, 2 of 3 have not come"),
           "%s", ranks[0].said);
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
    TAP_RUN(test_slow_work_that_beats);
    TAP_RUN(test_the_end_of_a_chain_is_named);
    TAP_RUN(test_work_hears_of_a_failure);
    TAP_RUN(test_a_proof_is_of_use_once);
    TAP_RUN(test_a_wrong_secret);
    TAP_RUN(test_where_it_listens);
    TAP_RUN(test_private_addresses);
    TAP_RUN(test_strangers_are_sent_away);
    TAP_RUN(test_another_training);
    TAP_RUN(test_a_rank_that_does_not_come);
    TAP_RUN(test_splits);
    TAP_RUN(test_a_failure_goes_across);
    return tap_done();
}
