/*
 * cuda_nccl: three ranks on the stand-in for NCCL, a GPU each, all of one thread, so that a case is
 * the same whenever it runs; and a call of each kind.
 */
#ifndef ZINF_CUDA_NCCL_H
#define ZINF_CUDA_NCCL_H

#include "nccl.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

enum { RANKS = 3, N = 64, ROOM = 4 * RANKS * N, SEEDS = 30 };

static struct gpu {
    cudaStream_t stream, other;
    cudaEvent_t event;
    float *memory; /* [ROOM] */
    ncclComm_t comm;
} gpus[RANKS];

static inline void begin_ranks(ncclConfig_t *config)
{
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    ncclGroupStart();
    for (int r = 0; r < RANKS; r++) {
        cudaSetDevice(r);
        ncclResult_t begun = ncclCommInitRankConfig(&gpus[r].comm, RANKS, id, r, config);
        CHECK(begun == (config ? ncclInProgress : ncclSuccess));
    }
    CHECK(ncclGroupEnd() == ncclSuccess);
}

static inline void begin(uint64_t seed)
{
    struct standin_options options = {.seed = seed, .gpus = RANKS, .patience_ms = 50};
    standin_start(&options);
    for (int r = 0; r < RANKS; r++) {
        cudaSetDevice(r);
        CHECK(!cudaStreamCreateWithFlags(&gpus[r].stream, cudaStreamNonBlocking));
        CHECK(!cudaStreamCreateWithFlags(&gpus[r].other, cudaStreamNonBlocking));
        CHECK(!cudaEventCreateWithFlags(&gpus[r].event, cudaEventDisableTiming));
        CHECK(!cudaMalloc((void **)&gpus[r].memory, ROOM * sizeof(float)));
    }
    begin_ranks(NULL);
}

static inline void end(void)
{
    for (int r = 0; r < RANKS; r++) {
        cudaSetDevice(r);
        cudaStreamSynchronize(gpus[r].stream);
        cudaStreamSynchronize(gpus[r].other);
        CHECK(ncclCommDestroy(gpus[r].comm) == ncclSuccess);
        cudaStreamDestroy(gpus[r].stream);
        cudaStreamDestroy(gpus[r].other);
        cudaEventDestroy(gpus[r].event);
        cudaFree(gpus[r].memory);
    }
    CHECKF(standin_live() == 0, "%d objects left", standin_live());
}

static inline void end_right(const char *what)
{
    end();
    CHECKF(!standin_faults(), "%s: %s", what, standin_first_fault());
}

static inline bool found(const char *words)
{
    return strstr(standin_first_fault(), words) != NULL;
}

static inline void end_found(const char *words)
{
    CHECKF(found(words), "\"%s\" is not in \"%s\"", words, standin_first_fault());
    end();
}

/* ---- memory ---- */

static inline float value(int rank, int i)
{
    return (float)(1000 * rank + i);
}

/* Rank r's values, at element `at` of its memory. */
static inline void put(int r, int at, int n)
{
    float values[ROOM];
    for (int i = 0; i < n; i++)
        values[i] = value(r, i);
    cudaSetDevice(r);
    CHECK(!cudaMemcpy(gpus[r].memory + at, values, (size_t)n * sizeof(float),
                      cudaMemcpyHostToDevice));
    cudaStreamSynchronize(NULL);
}

/* Elements of rank r's memory that are not those of rank `of`, from its i-th on. */
static inline int wrong(int r, int at, int of, int i, int n)
{
    float values[ROOM];
    int n_wrong = 0;
    cudaSetDevice(r);
    CHECK(!cudaMemcpy(values, gpus[r].memory + at, (size_t)n * sizeof(float),
                      cudaMemcpyDeviceToHost));
    for (int k = 0; k < n; k++)
        n_wrong += !(values[k] == value(of, i + k));
    return n_wrong;
}

static inline void synchronize(void)
{
    for (int r = RANKS; r-- > 0;) {
        cudaSetDevice(r);
        CHECK(!cudaStreamSynchronize(gpus[r].stream));
    }
}

/* ---- calls, each for one rank ---- */

/* In place: slice r of [RANKS][N] at element 0. */
static inline ncclResult_t gather(int r)
{
    cudaSetDevice(r);
    return ncclAllGather(gpus[r].memory + r * N, gpus[r].memory, N, ncclFloat32, gpus[r].comm,
                         gpus[r].stream);
}

static inline ncclResult_t broadcast(int r, int root)
{
    cudaSetDevice(r);
    return ncclBroadcast(gpus[r].memory, gpus[r].memory, N, ncclFloat32, root, gpus[r].comm,
                         gpus[r].stream);
}

/* Slice `to` of [RANKS][N] at element 0; into slice `from` at RANKS * N. */
static inline ncclResult_t send(int r, int to, size_t count)
{
    cudaSetDevice(r);
    return ncclSend(gpus[r].memory + to * N, count, ncclFloat32, to, gpus[r].comm, gpus[r].stream);
}

static inline ncclResult_t receive(int r, int from, size_t count, ncclDataType_t type)
{
    cudaSetDevice(r);
    return ncclRecv(gpus[r].memory + (RANKS + from) * N, count, type, from, gpus[r].comm,
                    gpus[r].stream);
}

static inline void gather_all(void)
{
    for (int r = 0; r < RANKS; r++)
        put(r, r * N, N);
    ncclGroupStart();
    for (int r = 0; r < RANKS; r++)
        CHECK(gather(r) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
}

#endif
