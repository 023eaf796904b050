/*
 * net_nccl: links of GPUs, each collective over 2 to 4 seats on the stand-ins for CUDA and NCCL:
 * bytes and bits as the net of the same ranks has them, whatever the order in which the GPUs run.
 * Then what ranks see of one that fails, is late, hangs in a transfer or hears of an error; and
 * what is said of a library that is missing or too old.
 */
#include "cuda_module.h"
#include "split_cases.h"
#include "tap.h"

#include "kernels/kernels.h"
#include "net/net_nccl.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_SEATS = 4, ARENA = 16 << 20 };

struct seat {
    pthread_t thread;
    struct zinf_net *net;
    struct zinf_device *device;
    struct zinf_queue *queue, *sums;
    struct zinf_event *events[4];
    struct zinf_link *link;
    char *at; /* what is free of the arena */
    void (*body)(struct seat *seat);
    struct net_report report;
    int idle; /* whether its queue has nothing left when the link is closed */
    int code;
    char said[600];
};

static struct seat seats[MOST_SEATS];
static double timeout_seconds;
static bool one_queue;         /* sums are made where parts come */
static double opening_seconds; /* for NCCL to begin; 0: the same */

/* ---- seats ---- */

static void note(struct seat *seat, int code)
{
    seat->code = code;
    snprintf(seat->said, sizeof seat->said, "%s", code ? zinf_error() : "");
}

/* What the first seat's link asks of its queues, in letters: c a piece's parts have come, W the
 * second queue waits for that, a an addition there, A it is made, w the first queue waits for that;
 * behind each event the half that it is of. x: an addition in the first queue. */
static char asked[200];
static bool writes_down;

static void write_down(const struct zinf_queue *queue, char of_first, char of_sums,
                       const struct zinf_event *event)
{
    const struct seat *seat = seats;
    const size_t at = strlen(asked);
    const bool first = queue == seat->queue;
    if ((!first && queue != seat->sums) || at + 3 > sizeof asked)
        return;
    asked[at] = first ? of_first : of_sums;
    if (event)
        asked[at + 1] = event == seat->events[1] || event == seat->events[3] ? '1' : '0';
}

static int noted_record(struct zinf_queue *queue, struct zinf_event *event)
{
    write_down(queue, 'c', 'A', event);
    return seats->device->ops->event_record(queue, event);
}

static int noted_wait(struct zinf_queue *queue, struct zinf_event *event)
{
    write_down(queue, 'w', 'W', event);
    return seats->device->ops->queue_wait(queue, event);
}

static int noted_add(struct zinf_queue *queue, float *to, const float *from, uint64_t n)
{
    write_down(queue, 'x', 'a', NULL);
    return seats->device->ops->add(queue, to, from, n);
}

static int open_link(struct seat *seat)
{
    const struct zinf_device_ops *ops = seat->device->ops;
    struct zinf_link_device device = {.queue = seat->queue,
                                      .sums = seat->sums,
                                      .came = {seat->events[0], seat->events[1]},
                                      .added = {seat->events[2], seat->events[3]},
                                      .record = ops->event_record,
                                      .wait = ops->queue_wait,
                                      .stream = ops->queue_stream,
                                      .poll = ops->queue_poll,
                                      .finish = ops->queue_finish,
                                      .add = ops->add,
                                      .copy = ops->copy,
                                      .seconds = opening_seconds};
    if (writes_down) {
        device.record = noted_record;
        device.wait = noted_wait;
        device.add = noted_add;
    }
    return zinf_link_create(&seat->link, seat->net, &device);
}

static int open_seat(struct seat *seat)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA,
                                          .index = (int)zinf_net_place(seat->net).seat};
    int code = zinf_device_create(&seat->device, &options);
    if (!code)
        code = zinf_device_take_memory(seat->device, ARENA);
    if (!code)
        code = seat->device->ops->queue_create(seat->device, ZINF_QUEUE_COMPUTE, &seat->queue);
    if (!code && !one_queue)
        code = seat->device->ops->queue_create(seat->device, ZINF_QUEUE_COMPUTE, &seat->sums);
    for (int i = 0; !code && i < 4; i++)
        code = seat->device->ops->event_create(seat->device, &seat->events[i]);
    if (code)
        return code;
    return open_link(seat);
}

static void *run_seat(void *argument)
{
    struct seat *seat = argument;
    if (timeout_seconds > 0)
        zinf_net_set_timeout(seat->net, timeout_seconds);
    note(seat, open_seat(seat));
    if (!seat->code)
        seat->body(seat);
    if (seat->code)
        zinf_net_tell(seat->net, seat->said);
    zinf_link_close(seat->link);
    seat->idle = seat->queue && seat->device->ops->queue_poll(seat->queue) == 1;
    if (seat->queue)
        seat->device->ops->queue_destroy(seat->queue);
    if (seat->sums)
        seat->device->ops->queue_destroy(seat->sums);
    for (int i = 0; i < 4; i++)
        if (seat->events[i])
            seat->device->ops->event_destroy(seat->events[i]);
    zinf_device_destroy(seat->device);
    zinf_net_close(seat->net);
    return NULL;
}

static void begin(uint64_t seed, uint32_t gpus)
{
    struct standin_options options = {.seed = seed,
                                      .gpus = (int)gpus,
                                      .dawdle_us = STANDIN_RACES ? 0 : 100,
                                      .at_once = STANDIN_RACES};
    standin.start(&options);
}

static void run_seats(uint32_t n, void (*body)(struct seat *seat))
{
    struct zinf_net *nets[MOST_SEATS];
    memset(seats, 0, sizeof seats);
    CHECKF(!zinf_net_seats_create(nets, n, NULL), "%s", zinf_error());
    for (uint32_t s = 0; s < n; s++) {
        seats[s].net = nets[s];
        seats[s].body = body;
        pthread_create(&seats[s].thread, NULL, run_seat, &seats[s]);
    }
    for (uint32_t s = 0; s < n; s++)
        pthread_join(seats[s].thread, NULL);
    CHECKF(!standin.faults(), "%s", standin.first_fault());
    CHECKF(!standin.live(), "%d objects left", standin.live());
}

/* ---- memory of the GPU ---- */

static void *take(struct seat *seat, uint64_t bytes)
{
    char *memory = seat->at;
    seat->at += zinf_align_up(bytes + 1, 256);
    net_expect(&seat->report, seat->at <= (char *)seat->device->memory + ARENA, "too small a GPU");
    return memory;
}

static void put(struct seat *seat, void *to, const void *from, uint64_t bytes)
{
    seat->device->ops->copy_to_device(seat->queue, to, from, bytes);
}

static void get(struct seat *seat, void *to, const void *from, uint64_t bytes)
{
    seat->device->ops->copy_to_host(seat->queue, to, from, bytes);
}

/* ---- collectives ---- */

static uint64_t slice_bytes(uint32_t rank, uint64_t bytes, bool equal)
{
    return equal ? bytes : bytes / 2 * rank + rank % 2;
}

static void case_gather(struct seat *seat, uint64_t bytes, bool equal, bool in_place)
{
    struct zinf_net_place at = zinf_net_place(seat->net);
    uint64_t sizes[MOST_SEATS], total = 0, before = 0, wrong = 0;
    uint64_t sent = zinf_link_sent_bytes(seat->link);
    seat->at = seat->device->memory;
    for (uint32_t r = 0; r < at.world; r++) {
        sizes[r] = slice_bytes(r, bytes, equal);
        before = r == at.rank ? total : before;
        total += sizes[r];
    }
    unsigned char *own = malloc(sizes[at.rank] + 1), *got = calloc(total + 1, 1);
    char *whole = take(seat, total), *slice = in_place ? whole + before : take(seat, bytes * 4);
    for (uint64_t i = 0; i < sizes[at.rank]; i++)
        own[i] = net_byte(at.rank, i);
    put(seat, slice, own, sizes[at.rank]);
    int code = zinf_link_gather(seat->link, slice, whole, sizes);
    get(seat, got, whole, total);
    const unsigned char *next = got;
    for (uint32_t r = 0; r < at.world; next += sizes[r++])
        for (uint64_t i = 0; i < sizes[r]; i++)
            wrong += next[i] != net_byte(r, i);
    net_expect(&seat->report, !code && !wrong, "gather of %llu bytes: %llu wrong, code %d: %s",
               (unsigned long long)bytes, (unsigned long long)wrong, code,
               code ? zinf_error() : "");
    net_expect(&seat->report,
               zinf_link_sent_bytes(seat->link) - sent == (at.world - 1) * sizes[at.rank],
               "gather of %llu bytes sends others", (unsigned long long)bytes);
    free(own);
    free(got);
}

/* The bits of the tree, and so of a net of the same ranks. */
static void case_scatter(struct seat *seat, uint64_t elems, bool in_place, uint64_t scratch_bytes)
{
    struct zinf_net_place at = zinf_net_place(seat->net);
    uint64_t n = at.world * elems, wrong = 0, sent = zinf_link_sent_bytes(seat->link);
    float *values = malloc((n + 1) * sizeof *values);
    seat->at = seat->device->memory;
    float *whole = take(seat, n * sizeof *values);
    float *slice = in_place ? whole + at.rank * elems : take(seat, elems * sizeof *values);
    struct zinf_link_scratch scratch = {take(seat, scratch_bytes), scratch_bytes};
    for (uint64_t i = 0; i < n; i++)
        values[i] = net_value(at.rank, i);
    put(seat, whole, values, n * sizeof *values);
    int code = zinf_link_scatter_sum(seat->link, whole, slice, elems, &scratch);
    get(seat, values, slice, elems * sizeof *values);
    for (uint64_t i = 0; i < elems; i++)
        wrong += values[i] != net_tree(0, at.world, at.rank * elems + i);
    net_expect(&seat->report, !code && !wrong, "sum of %llu elements: %llu wrong, code %d: %s",
               (unsigned long long)elems, (unsigned long long)wrong, code,
               code ? zinf_error() : "");
    net_expect(&seat->report,
               zinf_link_sent_bytes(seat->link) - sent == (n - elems) * sizeof *values,
               "a sum of %llu elements sends others", (unsigned long long)elems);
    free(values);
}

static void all_cases(struct seat *seat)
{
    static const uint64_t sizes[] = {0, 1, 3, 17, 4096, 100003};
    uint32_t others = zinf_net_place(seat->net).world - 1;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t elems = sizes[i] / 3;
        case_gather(seat, sizes[i], true, false);
        case_gather(seat, sizes[i], true, true);
        case_gather(seat, sizes[i], false, i % 2);
        case_scatter(seat, elems, false, zinf_link_scratch_bytes(others + 1, elems) + 4);
        case_scatter(seat, elems, true, 1000 * others * sizeof(float)); /* in pieces */
    }
}

static void check_world(uint32_t n)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        one_queue = seed == 3;
        begin(seed, n);
        run_seats(n, all_cases);
        for (uint32_t s = 0; s < n; s++)
            CHECKF(seats[s].report.n_checks > 40 && !seats[s].report.n_failed,
                   "seed %d: seat %u of %u: %d failed: %s %s", (int)seed, s, n,
                   seats[s].report.n_failed, seats[s].report.first, seats[s].said);
    }
    one_queue = false;
}

static void test_two(void)
{
    check_world(2);
}

static void test_three(void)
{
    check_world(3);
}

static void test_four(void)
{
    check_world(4);
}

enum { PIECES = 4, PIECE = 1000 };

static void sum_in_pieces(struct seat *seat)
{
    const uint64_t halves = seat->sums ? 2 : 1;
    seat->at = seat->device->memory;
    case_scatter(seat, (uint64_t)PIECES * PIECE, false, halves * PIECE * sizeof(float));
}

/* While the parts of a piece come, those of the one before are added in another queue: what comes
 * into a half of the scratch waits for the additions of two pieces before alone. A piece is long
 * beside what a group of calls takes to begin. */
static void test_sums_are_made_beside_transfers(void)
{
    const uint64_t most = zinf_link_scratch_bytes(2, (uint64_t)1 << 30);
    CHECKF(most >= (uint64_t)32 << 20 && most <= (uint64_t)64 << 20, "%llu bytes",
           (unsigned long long)most);
    CHECK(zinf_link_scratch_bytes(4, (uint64_t)1 << 30) == 3 * most);
    writes_down = true;
    for (int alone = 0; alone < 2; alone++) {
        one_queue = alone;
        memset(asked, 0, sizeof asked);
        begin(1, 2);
        run_seats(2, sum_in_pieces);
        CHECKF(!strcmp(asked, alone ? "xxxx" : "c0W0aA0c1W1aA1w0c0W0aA0w1c1W1aA1w0w1"), "%s",
               asked);
        CHECKF(!seats[0].report.n_failed && !seats[1].report.n_failed, "%s %s",
               seats[0].report.first, seats[1].report.first);
    }
    one_queue = writes_down = false;
}

/* A GPU with a link along each of two axes, and the one of all. */
static void on_axes(struct seat *seat)
{
    struct seat all = *seat;
    struct grid g;
    net_expect(&seat->report, !grid_open(&g, seat->net, 2), "a grid: %s", zinf_error());
    struct zinf_net *nets[] = {g.row, g.column, all.net};
    struct zinf_link *links[] = {NULL, NULL, all.link};
    for (int i = 0; i < 2; i++) {
        seat->net = nets[i];
        net_expect(&seat->report, !open_link(seat), "a link: %s", zinf_error());
        links[i] = seat->link;
    }
    for (int i = 0; i < 6; i++) {
        seat->net = nets[i % 3];
        seat->link = links[i % 3];
        all_cases(seat);
    }
    for (int i = 0; i < 2; i++) {
        zinf_link_close(links[i]);
        zinf_net_close(nets[i]);
    }
    seat->net = all.net;
    seat->link = all.link;
}

static void test_axes(void)
{
    for (uint64_t seed = 1; seed <= 2; seed++) {
        begin(seed, 4);
        run_seats(4, on_axes);
        for (uint32_t s = 0; s < 4; s++)
            CHECKF(seats[s].report.n_checks > 200 && !seats[s].report.n_failed,
                   "seed %d: seat %u: %s %s", (int)seed, s, seats[s].report.first, seats[s].said);
    }
}

/* ---- failures ---- */

static void gather_once(struct seat *seat)
{
    uint64_t sizes[MOST_SEATS] = {64, 64, 64, 64};
    char *whole = seat->device->memory;
    seat->device->ops->fill_zero(seat->queue, whole, sizeof sizes * 8);
    note(seat,
         zinf_link_gather(seat->link, whole + 64 * zinf_net_place(seat->net).rank, whole, sizes));
}

static void one_fails(struct seat *seat)
{
    gather_once(seat);
    if (!seat->code && zinf_net_place(seat->net).rank == 1) {
        seat->code = -ENOSPC;
        snprintf(seat->said, sizeof seat->said, "the drive is full");
    } else if (!seat->code) {
        gather_once(seat);
    }
}

static void test_a_failure_is_told(void)
{
    begin(1, 3);
    timeout_seconds = 20;
    run_seats(3, one_fails);
    for (int s = 0; s < 3; s++)
        CHECKF(s == 1 || (seats[s].code == -ECONNABORTED &&
                          strstr(seats[s].said, "seat 1 has failed: the drive is full")),
               "seat %d: %d: %s", s, seats[s].code, seats[s].said);
}

static _Atomic int n_done;

/* The last one does not come before the others have given it up. */
static void one_is_late(struct seat *seat)
{
    zinf_net_set_timeout(seat->net, 2);
    if (zinf_net_place(seat->net).rank != 2)
        gather_once(seat);
    else
        for (int i = 0; atomic_load(&n_done) < 2 && i < 60000; i++)
            usleep(1000);
    atomic_fetch_add(&n_done, 1);
}

static void test_a_late_rank_is_named(void)
{
    begin(1, 3);
    timeout_seconds = 20;
    run_seats(3, one_is_late);
    for (int s = 0; s < 2; s++) /* by itself, or by the other */
        CHECKF(seats[s].code && strstr(seats[s].said, "seat 2 has sent nothing"), "seat %d: %d: %s",
               s, seats[s].code, seats[s].said);
}

static void two_steps(struct seat *seat)
{
    uint64_t sizes[MOST_SEATS] = {64, 64, 64, 64};
    char *whole = seat->device->memory;
    bool odd = zinf_net_place(seat->net).rank == 1;
    struct zinf_link_scratch scratch = {whole + 4096, zinf_link_scratch_bytes(2, 16)};
    note(seat, odd ? zinf_link_scatter_sum(seat->link, (float *)whole, (float *)whole, 16, &scratch)
                   : zinf_link_gather(seat->link, whole, whole, sizes));
}

static void test_another_step_is_found(void)
{
    begin(1, 2);
    timeout_seconds = 20;
    run_seats(2, two_steps);
    for (int s = 0; s < 2; s++)
        CHECKF(seats[s].code == -EPROTO && strstr(seats[s].said, "do not run the same step"),
               "%d: %s", seats[s].code, seats[s].said);
}

static void test_a_transfer_that_hangs(void)
{
    begin(1, 3);
    standin.nccl_fail(1, 1, STANDIN_NCCL_HANGS);
    timeout_seconds = 5; /* for all to come to it, too */
    run_seats(3, gather_once);
    for (int s = 0; s < 3; s++)
        CHECKF(seats[s].code == -ETIMEDOUT && strstr(seats[s].said, "zinf.gather \"host\""),
               "seat %d: %d: %s", s, seats[s].code, seats[s].said);
}

/* The transfer of the others may have ended, or not. */
static void test_an_asynchronous_error(void)
{
    begin(1, 3);
    standin.nccl_fail(1, 1, STANDIN_NCCL_FAILS);
    timeout_seconds = 20;
    run_seats(3, gather_once);
    CHECKF(seats[1].code == -EIO && strstr(seats[1].said, "NCCL 2.28.0: unhandled cuda error"),
           "%d: %s", seats[1].code, seats[1].said);
    for (int s = 0; s < 3; s += 2)
        CHECKF(!seats[s].code ||
                   strstr(seats[s].said, "seat 1 has failed: NCCL 2.28.0: unhandled cuda error"),
               "seat %d: %d: %s", s, seats[s].code, seats[s].said);
}

static void one_is_gone(struct seat *seat)
{
    if (zinf_net_place(seat->net).rank != 1) {
        gather_once(seat);
        return;
    }
    struct roll own = {2, 3 * 64 << 3 | GATHER, 0}, all[3]; /* after that of the opening */
    note(seat, zinf_net_gather(seat->net, &own, all, sizeof own));
    seat->net->told = true;
}

/* It came to the transfer and died: the others are told by NCCL, which does not say who it was. */
static void test_a_rank_that_dies_is_named(void)
{
    begin(1, 3);
    standin.nccl_fail(0, 1, STANDIN_NCCL_LOSES);
    standin.nccl_fail(2, 1, STANDIN_NCCL_LOSES);
    timeout_seconds = 3;
    run_seats(3, one_is_gone);
    for (int s = 0; s < 3; s += 2)
        CHECKF(seats[s].code && strstr(seats[s].said, "seat 1"), "seat %d: %d: %s", s,
               seats[s].code, seats[s].said);
}

/* The others do not wait for the time limit, which is long. */
static void test_a_rank_that_cannot_begin(void)
{
    begin(1, 3);
    standin.nccl_fail(1, 1, STANDIN_NCCL_REFUSES);
    timeout_seconds = 3600;
    run_seats(3, gather_once);
    CHECKF(strstr(seats[1].said, "NCCL 2.28.0: unhandled system error"), "%s", seats[1].said);
    for (int s = 0; s < 3; s += 2)
        CHECKF(seats[s].code == -ECONNABORTED &&
                   strstr(seats[s].said, "seat 1 has failed: NCCL 2.28.0: unhandled system error"),
               "seat %d: %d: %s", s, seats[s].code, seats[s].said);
}

/* Nobody knows whom they wait for; the limit is that of the link, not of the net. */
static void test_a_rank_that_never_comes(void)
{
    begin(1, 3);
    standin.nccl_fail(1, 1, STANDIN_NCCL_NEVER_COMES);
    timeout_seconds = 3600;
    opening_seconds = 1;
    run_seats(3, gather_once);
    opening_seconds = 0;
    for (int s = 0; s < 3; s++)
        CHECKF(strstr(seats[s].said, "have not met after 1 s"), "seat %d: %d: %s", s, seats[s].code,
               seats[s].said);
}

static void one_fails_beside(struct seat *seat)
{
    if (zinf_net_place(seat->net).rank != 1) {
        gather_once(seat);
        return;
    }
    struct roll own = {2, 3 * 64 << 3 | GATHER, 0}, all[3]; /* after that of the opening */
    note(seat, zinf_net_gather(seat->net, &own, all, sizeof own));
    usleep(50000); /* the others are in it */
    seat->code = -ENOSPC;
    snprintf(seat->said, sizeof seat->said, "the drive is full");
}

/* In the middle of a transfer the others hear of it. */
static void test_a_failure_beside_a_transfer(void)
{
    begin(1, 3);
    timeout_seconds = 3600;
    run_seats(3, one_fails_beside);
    for (int s = 0; s < 3; s += 2)
        CHECKF(seats[s].code == -ECONNABORTED &&
                   strstr(seats[s].said, "seat 1 has failed: the drive is full"),
               "seat %d: %d: %s", s, seats[s].code, seats[s].said);
}

/* An abort that does not return is left behind. */
static void test_an_abort_that_hangs(void)
{
    begin(1, 3);
    standin.nccl_fail(0, 1, STANDIN_NCCL_STICKS);
    timeout_seconds = 3600;
    run_seats(3, one_fails_beside);
    for (int s = 0; s < 3; s += 2)
        CHECKF(strstr(seats[s].said, "seat 1 has failed: the drive is full"), "seat %d: %s", s,
               seats[s].said);
}

/* ---- ends ---- */

/* Much is left behind the transfer: a look does not end it. */
static void leave_much(struct seat *seat)
{
    gather_once(seat);
    for (int i = 0; !seat->code && i < 200; i++)
        seat->code = seat->device->ops->fill_zero(seat->queue, seat->device->memory, 64);
}

static void leave_much_and_fail(struct seat *seat)
{
    leave_much(seat);
    if (!seat->code && zinf_net_place(seat->net).rank == 1) {
        seat->code = -ENOSPC;
        snprintf(seat->said, sizeof seat->said, "the drive is full");
    }
}

/* A queue and a GPU's memory go behind the link's end: whether that is one in order or an abort,
 * nothing is left on the GPU then, and NCCL, which destroys late, is done. */
static void test_nothing_is_left_at_the_end(void)
{
    timeout_seconds = 20;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin(seed, 2);
        run_seats(2, seed % 4 ? leave_much : leave_much_and_fail);
        for (int s = 0; s < 2; s++)
            CHECKF(seats[s].idle, "seed %d: the queue of seat %d: %d: %s", (int)seed, s,
                   seats[s].code, seats[s].said);
    }
}

/* ---- libraries ---- */

/* In a process of its own, which looks once. */
static void check_library(const char *path, const char *version, const char *words)
{
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        setenv("ZINF_NCCL_LIBRARY", path, 1);
        begin(1, 1);
        if (version) {
            struct standin_options old = {.nccl_version = atoi(version)};
            standin.start(&old);
        }
        const char *why = zinf_link_why_not();
        if (!why || !strstr(why, words))
            printf("# %s: %s\n", path, why ? why : "taken");
        fflush(stdout);
        _exit(!why || !strstr(why, words) || !strstr(why, "ZINF_NCCL_LIBRARY"));
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECKF(!status, "no word of %s", words);
}

static void test_libraries(void)
{
    const char *own = getenv("ZINF_NCCL_LIBRARY");
    check_library("/nowhere/libnccl.so.2", NULL, "/nowhere/libnccl.so.2");
    check_library("libm.so.6", NULL, "it has no nccl");
    check_library(own, "21212", "its version is 21212: 2.14 or newer is needed");
}

static void test_one_rank_alone(void)
{
    struct zinf_net *net = NULL;
    struct zinf_link *link = NULL;
    CHECK(!zinf_net_threads_create(&net, 1));
    CHECK(zinf_link_create(&link, net, &(struct zinf_link_device){0}) == -EINVAL && !link);
    zinf_net_close(net);
}

int main(void)
{
    alarm(300); /* who waits for a limit of an hour has not heard of a failure */
    standin_open();
    TAP_RUN(test_libraries); /* before this process looks */
    TAP_RUN(test_two);
    TAP_RUN(test_three);
    TAP_RUN(test_four);
    TAP_RUN(test_sums_are_made_beside_transfers);
    TAP_RUN(test_axes);
    TAP_RUN(test_a_failure_is_told);
    TAP_RUN(test_a_late_rank_is_named);
    TAP_RUN(test_another_step_is_found);
    TAP_RUN(test_a_transfer_that_hangs);
    TAP_RUN(test_an_asynchronous_error);
    TAP_RUN(test_a_rank_that_dies_is_named);
    TAP_RUN(test_a_rank_that_cannot_begin);
    TAP_RUN(test_a_rank_that_never_comes);
    TAP_RUN(test_a_failure_beside_a_transfer);
    TAP_RUN(test_an_abort_that_hangs);
    TAP_RUN(test_nothing_is_left_at_the_end);
    TAP_RUN(test_one_rank_alone);
    return tap_done();
}
