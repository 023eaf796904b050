/*
 * cuda_nccl: the stand-in for NCCL. What is right has exact results under any seed; every misuse
 * that it is there to find is made here on purpose, and found: the sentence says which. One thread
 * has all ranks, a GPU each, so that a case is the same whenever it runs; of several threads
 * net_nccl_test has cases enough.
 */
#include "cuda_nccl.h"

/* ---- what is right ---- */

static void test_all_gather(void)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        gather_all();
        synchronize();
        for (int r = 0; r < RANKS; r++)
            for (int k = 0; k < RANKS; k++)
                CHECKF(!wrong(r, k * N, k, 0, N), "seed %d: slice %d of rank %d", (int)seed, k, r);
        end_right("all-gather");
    }
}

static void test_broadcast(void)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        for (int root = 0; root < RANKS; root++) {
            for (int r = 0; r < RANKS; r++)
                put(r, 0, N);
            ncclGroupStart();
            for (int r = 0; r < RANKS; r++)
                CHECK(broadcast(r, root) == ncclSuccess);
            CHECK(ncclGroupEnd() == ncclSuccess);
            synchronize();
            for (int r = 0; r < RANKS; r++)
                CHECKF(!wrong(r, 0, root, 0, N), "seed %d: rank %d of %d", (int)seed, r, root);
        }
        end_right("broadcast");
    }
}

static void trade_all(void)
{
    for (int r = 0; r < RANKS; r++)
        put(r, 0, RANKS * N);
    ncclGroupStart();
    for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < RANKS; k++)
            if (k != r)
                CHECK(send(r, k, N) == ncclSuccess && receive(r, k, N, ncclFloat32) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
}

static void test_all_to_all(void)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        trade_all();
        synchronize();
        for (int r = 0; r < RANKS; r++)
            for (int k = 0; k < RANKS; k++)
                CHECKF(k == r || !wrong(r, (RANKS + k) * N, k, r * N, N), "seed %d: %d from %d",
                       (int)seed, r, k);
        end_right("all-to-all");
    }
}

/* A queue that waits for the event may read; what is sent may then be written. */
static void test_events_order_others(void)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        trade_all();
        for (int r = 0; r < RANKS; r++) {
            cudaSetDevice(r);
            cudaEventRecord(gpus[r].event, gpus[r].stream);
            cudaStreamWaitEvent(gpus[r].other, gpus[r].event, 0);
            cudaMemcpyAsync(gpus[r].memory + 2 * RANKS * N, gpus[r].memory + RANKS * N,
                            RANKS * N * sizeof(float), cudaMemcpyDeviceToDevice, gpus[r].other);
            cudaMemsetAsync(gpus[r].memory, 0, RANKS * N * sizeof(float), gpus[r].other);
        }
        synchronize();
        for (int r = 0; r < RANKS; r++) {
            cudaSetDevice(r);
            cudaStreamSynchronize(gpus[r].other);
            CHECK(!wrong(r, (2 * RANKS + (r + 1) % RANKS) * N, (r + 1) % RANKS, r * N, N));
        }
        end_right("with events");
    }
}

/* ---- what is found ---- */

static void test_another_order_is_found(void)
{
    begin(1);
    ncclGroupStart();
    gather(0);
    broadcast(1, 0); /* where 0 gathers */
    gather(2);
    ncclGroupEnd();
    end_found("collective 0 is ncclAllGather");
    begin(2);
    ncclGroupStart();
    for (int r = 0; r < RANKS; r++)
        broadcast(r, r == 2); /* of another root */
    ncclGroupEnd();
    end_found("root 1, on rank 2");
}

static void test_other_counts_and_types_are_found(void)
{
    begin(1);
    ncclGroupStart();
    for (int r = 0; r < RANKS; r++) {
        cudaSetDevice(r);
        ncclAllGather(gpus[r].memory + r * N, gpus[r].memory, r == 1 ? N / 2 : N, ncclFloat32,
                      gpus[r].comm, gpus[r].stream);
    }
    ncclGroupEnd();
    end_found("of 64 of type 7, root 0, on rank 0, and ncclAllGather of 32");
    begin(2);
    ncclGroupStart();
    send(0, 1, N);
    receive(1, 0, N - 1, ncclFloat32);
    ncclGroupEnd();
    end_found("rank 0 sends 256 bytes of type 7 to rank 1, which receives 252");
    begin(3);
    ncclGroupStart();
    send(0, 1, N);
    receive(1, 0, 4 * N, ncclInt8);
    ncclGroupEnd();
    end_found("which receives 256 of type 0");
}

enum touch { READS, WRITES_RECEIVED, WRITES_SENT, KINDS_OF_TOUCH };

/* Another queue of rank 1 does not wait for the event. */
static void touch(enum touch how)
{
    cudaSetDevice(1);
    float *received = gpus[1].memory + RANKS * N, *sent = gpus[1].memory;
    if (how == READS)
        cudaMemcpyAsync(gpus[1].memory + 2 * RANKS * N, received, N * sizeof(float),
                        cudaMemcpyDeviceToDevice, gpus[1].other);
    else
        cudaMemsetAsync(how == WRITES_SENT ? sent : received, 0, N * sizeof(float), gpus[1].other);
}

static void test_a_buffer_touched_too_early_is_found(void)
{
    for (enum touch how = READS; how < KINDS_OF_TOUCH; how++) {
        int n_found = 0;
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            begin(seed);
            trade_all();
            touch(how);
            synchronize();
            n_found += found("a copy touches what rank 1") || found("too early");
            end();
        }
        CHECKF(n_found >= 3, "touch %d: found under %d of %d seeds", (int)how, n_found, SEEDS);
    }
}

/* Who reads too early reads NaN, whatever reads. */
static void test_what_is_not_there_yet_is_nan(void)
{
    int n_seen = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        float got = 0;
        begin(seed);
        for (int r = 0; r < RANKS; r++)
            put(r, RANKS * N, RANKS * N); /* something else was there */
        trade_all();
        touch(READS);
        cudaSetDevice(1);
        cudaStreamSynchronize(gpus[1].other);
        cudaMemcpy(&got, gpus[1].memory + 2 * RANKS * N, sizeof got, cudaMemcpyDeviceToHost);
        n_seen += isnan(got);
        synchronize();
        end();
    }
    CHECKF(n_seen > 0, "NaN under none of %d seeds", SEEDS);
}

static void test_a_missing_group_is_found(void)
{
    begin(1);
    gather(0);
    gather(1);
    gather(2);
    end_found("calls for rank 0 and then for rank 1, and not in a group");
    begin(2);
    for (int r = 0; r < 2; r++) { /* both send first */
        send(r, 1 - r, N);
        receive(r, 1 - r, N, ncclFloat32);
    }
    cudaStreamSynchronize(gpus[0].stream);
    end_found("wait for each other, and are in no group");
}

static void test_ranks_begun_without_a_group_are_found(void)
{
    ncclUniqueId id;
    ncclComm_t comm;
    begin(1);
    ncclGetUniqueId(&id);
    cudaSetDevice(0);
    CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, NULL) == ncclInvalidUsage);
    CHECK(found("begins several ranks in a group"));
    CHECK(ncclCommAbort(comm) == ncclSuccess);
    end();
}

static void test_a_rank_that_does_not_come_is_found(void)
{
    begin(1);
    ncclGroupStart();
    gather(0);
    gather(1);
    ncclGroupEnd();
    cudaSetDevice(0);
    cudaStreamSynchronize(gpus[0].stream);
    CHECK(found("not all ranks come"));
    for (int r = 0; r < RANKS; r++)
        CHECK(ncclCommAbort(gpus[r].comm) == ncclSuccess);
    begin_ranks(NULL); /* for end() to end */
    end();
}

static void test_memory_of_others_is_found(void)
{
    begin(1);
    ncclGroupStart();
    for (int r = 0; r < RANKS; r++) {
        cudaSetDevice(r);
        ncclBroadcast(gpus[0].memory, gpus[0].memory, N, ncclFloat32, 0, gpus[r].comm,
                      gpus[r].stream);
    }
    ncclGroupEnd();
    CHECKF(found("that are not on its GPU"), "%s", standin_first_fault());
    synchronize();
    end();
    begin(2);
    ncclGroupStart();
    for (int r = 0; r < RANKS; r++) {
        cudaSetDevice(0);
        ncclBroadcast(gpus[r].memory, gpus[r].memory, N, ncclFloat32, 0, gpus[r].comm,
                      gpus[r].stream);
    }
    ncclGroupEnd();
    CHECKF(found("and began on GPU 1"), "%s", standin_first_fault());
    synchronize();
    end();
}

/* What does not block is looked at before something is enqueued behind it. */
static void test_calls_in_progress_are_found(void)
{
    ncclConfig_t config = {sizeof config, 0xcafebeef, 21400, 0};
    int n_found = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        begin(seed);
        for (int r = 0; r < RANKS; r++)
            ncclCommDestroy(gpus[r].comm);
        begin_ranks(&config);
        for (int r = 0; r < RANKS; r++)
            put(r, r * N, N);
        for (int k = 0; k < 2; k++) { /* two groups, and no look between them */
            ncclGroupStart();
            for (int r = 0; r < RANKS; r++)
                gather(r);
            ncclGroupEnd();
        }
        n_found += found("still in progress");
        for (int r = 0; r < RANKS; r++)
            ncclCommAbort(gpus[r].comm);
        begin_ranks(NULL);
        end();
    }
    CHECKF(n_found > 0, "found under no seed");
}

enum goes { STREAM, MEMORY, KINDS_OF_GOING };

/* Rank 0's communicator is destroyed, and then something of its GPU; what the stand-in says. */
static bool goes_too_early(bool blocking, int version, bool waits, enum goes what)
{
    struct standin_options options = {.seed = 1, .gpus = RANKS, .nccl_version = version};
    ncclConfig_t config = {sizeof config, 0xcafebeef, 21400, 0};
    cudaStream_t stream;
    void *memory;
    standin_start(&options);
    begin_ranks(blocking ? NULL : &config);
    cudaSetDevice(0);
    CHECK(!cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(!cudaMalloc(&memory, 4096));
    for (int r = 0; r < RANKS; r++)
        CHECK(ncclCommDestroy(gpus[r].comm) == ncclSuccess);
    cudaSetDevice(1);
    cudaDeviceSynchronize(); /* of another GPU: it does not help */
    cudaSetDevice(0);
    if (waits)
        cudaDeviceSynchronize();
    if (what == STREAM)
        cudaStreamDestroy(stream);
    else
        cudaFree(memory);
    bool faulted = standin_faults();
    CHECKF(!faulted || found("where NCCL may still destroy a communicator"), "%s",
           standin_first_fault());
    cudaDeviceSynchronize();
    if (what == STREAM)
        cudaFree(memory);
    else
        cudaStreamDestroy(stream);
    return faulted;
}

/* From 2.28 on NCCL destroys what does not block after the call has returned. */
static void test_what_goes_before_its_communicator_is_found(void)
{
    for (enum goes what = STREAM; what < KINDS_OF_GOING; what++) {
        CHECK(goes_too_early(false, 22800, false, what));
        CHECK(!goes_too_early(false, 22800, true, what));
        CHECK(!goes_too_early(true, 22800, false, what));
        CHECK(!goes_too_early(false, 22703, false, what));
    }
}

static void test_troubles(void)
{
    ncclResult_t state = ncclSuccess;
    begin(1);
    standin_nccl_fail(1, 1, STANDIN_NCCL_FAILS);
    gather_all();
    CHECK(ncclCommGetAsyncError(gpus[1].comm, &state) == ncclSuccess &&
          state == ncclUnhandledCudaError);
    end_right("a failure");
    begin(2);
    standin_nccl_fail(1, 1, STANDIN_NCCL_HANGS);
    gather_all();
    cudaSetDevice(0);
    for (int i = 0; i < 50; i++)
        CHECK(cudaStreamQuery(gpus[0].stream) == cudaErrorNotReady);
    cudaGetLastError();
    for (int r = 0; r < RANKS; r++)
        CHECK(ncclCommAbort(gpus[r].comm) == ncclSuccess);
    synchronize();
    begin_ranks(NULL);
    end_right("a launch that hangs, aborted");
}

int main(void)
{
    TAP_RUN(test_all_gather);
    TAP_RUN(test_broadcast);
    TAP_RUN(test_all_to_all);
    TAP_RUN(test_events_order_others);
    TAP_RUN(test_another_order_is_found);
    TAP_RUN(test_other_counts_and_types_are_found);
    TAP_RUN(test_a_buffer_touched_too_early_is_found);
    TAP_RUN(test_what_is_not_there_yet_is_nan);
    TAP_RUN(test_a_missing_group_is_found);
    TAP_RUN(test_ranks_begun_without_a_group_are_found);
    TAP_RUN(test_a_rank_that_does_not_come_is_found);
    TAP_RUN(test_memory_of_others_is_found);
    TAP_RUN(test_calls_in_progress_are_found);
    TAP_RUN(test_what_goes_before_its_communicator_is_found);
    TAP_RUN(test_troubles);
    return tap_done();
}
