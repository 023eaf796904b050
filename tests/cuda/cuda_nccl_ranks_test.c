/*
 * cuda_nccl_ranks: the stand-in for NCCL between processes, a rank and a GPU each. What is right
 * has exact results; every misuse that it is there to find is made by one process on purpose and
 * found in one of them at least, since neither sees all; and one that dies leaves the others as
 * NCCL would.
 */
#include "cuda_nccl.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a process leaves for the test, which has started it. */
struct report {
    char fault[400]; /* the first; "": none */
    int n_wrong, ended;
};
static struct report *reports; /* [RANKS] */
static uint64_t seed;
/* Of the stand-in: what comes does so within a minute, on a busy machine too. */
static unsigned patience_ms = 60000;
static unsigned dawdle_us; /* of the stand-in, between a look and a step */

/* ---- processes ---- */

static int id_pipes[RANKS][2];

static ncclUniqueId share_id(int rank)
{
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    if (rank) {
        if (read(id_pipes[rank][0], &id, sizeof id) != sizeof id)
            _exit(2);
        return id;
    }
    if (ncclGetUniqueId(&id) != ncclSuccess)
        _exit(2);
    for (int r = 1; r < RANKS; r++)
        if (write(id_pipes[r][1], &id, sizeof id) != sizeof id)
            _exit(2);
    return id;
}

static void begin_rank(int r)
{
    struct standin_options options = {.seed = seed,
                                      .gpus = RANKS,
                                      .patience_ms = patience_ms,
                                      .processes = true,
                                      .dawdle_us = dawdle_us};
    standin_start(&options);
    tap_case_failures = 0; /* those of the case so far are no failures of this process */
    cudaSetDevice(r);
    CHECK(!cudaStreamCreateWithFlags(&gpus[r].stream, cudaStreamNonBlocking));
    CHECK(!cudaStreamCreateWithFlags(&gpus[r].other, cudaStreamNonBlocking));
    CHECK(!cudaMalloc((void **)&gpus[r].memory, ROOM * sizeof(float)));
}

/* The end is without order: others may be gone. */
static void run_rank(int r, void (*body)(int rank))
{
    begin_rank(r);
    ncclUniqueId id = share_id(r);
    if (ncclCommInitRankConfig(&gpus[r].comm, RANKS, id, r, NULL) == ncclSuccess) {
        put(r, 0, RANKS * N);
        body(r);
    }
    snprintf(reports[r].fault, sizeof reports[r].fault, "%s", standin_first_fault());
    reports[r].n_wrong += tap_case_failures;
    reports[r].ended = 1;
    fflush(stdout);
    _exit(0);
}

static void run_ranks(void (*body)(int rank))
{
    pid_t children[RANKS];
    memset(reports, 0, RANKS * sizeof *reports);
    fflush(stdout);
    for (int r = 1; r < RANKS; r++)
        CHECK(!pipe(id_pipes[r]));
    for (int r = 0; r < RANKS; r++) {
        children[r] = fork();
        if (!children[r])
            run_rank(r, body);
    }
    for (int r = 1; r < RANKS; r++) {
        close(id_pipes[r][0]);
        close(id_pipes[r][1]);
    }
    for (int r = 0; r < RANKS; r++)
        waitpid(children[r], NULL, 0);
}

static int n_found(const char *words)
{
    int n = 0;
    for (int r = 0; r < RANKS; r++)
        n += strstr(reports[r].fault, words) != NULL;
    return n;
}

static void synchronize_own(int r)
{
    cudaSetDevice(r);
    cudaStreamSynchronize(gpus[r].stream);
}

/* Whoever is done first keeps its memory until all are. */
static void end_together(int r)
{
    gather(r);
    synchronize_own(r);
}

/* ---- what is right ---- */

static void trade_own(int r)
{
    ncclGroupStart();
    for (int k = 0; k < RANKS; k++)
        if (k != r)
            CHECK(send(r, k, N) == ncclSuccess && receive(r, k, N, ncclFloat32) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
}

static void all_calls(int r)
{
    for (int round = 0; round < 3; round++) {
        put(r, 0, RANKS * N);
        trade_own(r);
        synchronize_own(r);
        for (int k = 0; k < RANKS; k++)
            CHECK(k == r || !wrong(r, (RANKS + k) * N, k, r * N, N));
        for (int root = 0; root < RANKS; root++) {
            put(r, 0, N);
            CHECK(broadcast(r, root) == ncclSuccess);
            synchronize_own(r);
            CHECK(!wrong(r, 0, root, 0, N));
        }
        put(r, r * N, N);
        CHECK(gather(r) == ncclSuccess);
        synchronize_own(r);
        for (int k = 0; k < RANKS; k++)
            CHECK(!wrong(r, k * N, k, 0, N));
    }
}

static void test_all_calls(void)
{
    for (seed = 1; seed <= 10; seed++) {
        run_ranks(all_calls);
        for (int r = 0; r < RANKS; r++)
            CHECKF(reports[r].ended && !reports[r].n_wrong && !*reports[r].fault,
                   "seed %d: rank %d: %d wrong: %s", (int)seed, r, reports[r].n_wrong,
                   reports[r].fault);
    }
}

/* ---- what is found ---- */

static void other_call(int r)
{
    if (r == 1)
        broadcast(r, 0);
    else
        gather(r);
    synchronize_own(r);
}

static void other_count(int r)
{
    if (r == 0)
        send(r, 1, N);
    if (r == 1)
        receive(r, 0, N - 1, ncclFloat32);
    synchronize_own(r);
}

static void other_type(int r)
{
    if (r == 0)
        send(r, 1, N);
    if (r == 1)
        receive(r, 0, 4 * N, ncclInt8);
    synchronize_own(r);
}

static void without_group(int r)
{
    if (r < 2) { /* both send first */
        send(r, 1 - r, N);
        receive(r, 1 - r, N, ncclFloat32);
    }
    synchronize_own(r);
}

static void not_all_come(int r)
{
    if (r != 2)
        gather(r);
    synchronize_own(r);
}

static void test_misuse_is_found(void)
{
    static const struct {
        void (*body)(int rank);
        const char *words;
    } cases[] = {{other_call, "collective 0 is nccl"},
                 {other_count, "rank 0 sends 256 bytes of type 7 to rank 1, which receives 252"},
                 {other_type, "which receives 256 of type 0"},
                 {without_group, "wait for each other, and are in no group"},
                 {not_all_come, "not all ranks come"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (seed = 1; seed <= 4; seed++) {
            patience_ms = 2000; /* for what never comes */
            run_ranks(cases[i].body);
            patience_ms = 60000;
            CHECKF(n_found(cases[i].words) > 0, "seed %d: nobody says '%s': '%s', '%s', '%s'",
                   (int)seed, cases[i].words, reports[0].fault, reports[1].fault, reports[2].fault);
        }
}

/* Another queue of rank 1 does not wait for the event, behind the stand-in's back too. */
static void change_what_is_sent(int r)
{
    trade_own(r);
    if (r == 1) {
        for (int i = 0; i < 20; i++)
            cudaStreamQuery(gpus[r].stream);
        cudaMemsetAsync(gpus[r].memory, 0, RANKS * N * sizeof(float), gpus[r].other);
        cudaStreamSynchronize(gpus[r].other);
        usleep(2000);
    } else {
        usleep(seed % 2 ? 20000 : 0);
    }
    synchronize_own(r);
    end_together(r);
}

static void test_early_touch_is_found(void)
{
    int here = 0, there = 0;
    for (seed = 1; seed <= 12; seed++) {
        run_ranks(change_what_is_sent);
        here += n_found("a copy touches what rank 1 sends") > 0;
        there += n_found("rank 1 changes what it is sending to rank") > 0;
    }
    CHECKF(here > 0 && there > 0, "by itself %d times, by another process %d times", here, there);
}

/* ---- processes that end ---- */

static void one_dies(int r)
{
    ncclResult_t error = ncclSuccess;
    if (r == 1) {
        standin_nccl_fail(1, 1, STANDIN_NCCL_DIES);
        gather(r);
        synchronize_own(r);
    }
    if (r != 1)
        gather(r);
    int most = seed % 2 ? 600000 : 2000; /* until it is noticed; or long enough that it could be */
    for (int i = 0; i < most && error == ncclSuccess; i++) {
        cudaStreamQuery(gpus[r].stream);
        CHECK(ncclCommGetAsyncError(gpus[r].comm, &error) == ncclSuccess);
        usleep(100);
    }
    CHECKF(seed % 2 ? error == ncclRemoteError : error == ncclSuccess, "error %d", (int)error);
    CHECK(cudaStreamQuery(gpus[r].stream) == cudaErrorNotReady);
    CHECK(ncclCommAbort(gpus[r].comm) == ncclSuccess);
    CHECK(cudaStreamSynchronize(gpus[r].stream) == cudaSuccess);
}

static void test_one_that_dies(void)
{
    for (seed = 1; seed <= 4; seed++) {
        run_ranks(one_dies);
        CHECK(!reports[1].ended);
        for (int r = 0; r < RANKS; r += 2)
            CHECKF(reports[r].ended && !reports[r].n_wrong && !*reports[r].fault,
                   "seed %d: rank %d: %s", (int)seed, r, reports[r].fault);
    }
}

/* Rank 1 aborts as soon as others can take what it sends. Rank 2 never comes, so that rank 0 is
 * never done, whether it has taken that or not. */
static void one_leaves(int r)
{
    if (r == 2)
        return;
    gather(r);
    for (int i = 0; i < (r ? 10 : 100); i++) {
        cudaStreamQuery(gpus[r].stream);
        usleep(r ? 0 : 100); /* rank 0 looks until the other has left */
    }
    CHECK(cudaStreamQuery(gpus[r].stream) == cudaErrorNotReady);
    CHECK(ncclCommAbort(gpus[r].comm) == ncclSuccess);
    CHECK(cudaStreamSynchronize(gpus[r].stream) == cudaSuccess);
}

static void test_one_that_leaves(void)
{
    dawdle_us = 3000;
    for (seed = 1; seed <= 24; seed++) {
        run_ranks(one_leaves);
        for (int r = 0; r < 2; r++)
            CHECKF(reports[r].ended && !reports[r].n_wrong && !*reports[r].fault,
                   "seed %d: rank %d: %s", (int)seed, r, reports[r].fault);
    }
    dawdle_us = 0;
}

/* The id of a process that is gone reaches nobody. */
static void test_an_id_of_nobody(void)
{
    int ends[2], status = 0;
    ncclUniqueId id;
    ncclComm_t comm;
    struct standin_options options = {.seed = 1, .gpus = RANKS, .processes = true};
    CHECK(!pipe(ends));
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        standin_start(&options);
        ncclGetUniqueId(&id);
        _exit(write(ends[1], &id, sizeof id) != sizeof id);
    }
    waitpid(child, &status, 0);
    CHECK(!status && read(ends[0], &id, sizeof id) == sizeof id);
    standin_start(&options);
    CHECK(ncclCommInitRankConfig(&comm, 2, id, 1, NULL) == ncclSystemError);
    CHECKF(!standin_faults() && !standin_live(), "%s", standin_first_fault());
}

int main(void)
{
    reports = mmap(NULL, RANKS * sizeof *reports, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TAP_RUN(test_all_calls);
    TAP_RUN(test_misuse_is_found);
    TAP_RUN(test_early_touch_is_found);
    TAP_RUN(test_one_that_dies);
    TAP_RUN(test_one_that_leaves);
    TAP_RUN(test_an_id_of_nobody);
    return tap_done();
}
