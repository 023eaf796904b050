/*
 * nccl: the part of NCCL's interface that net/net_nccl.c calls, under NCCL's own names, and what
 * the files of its stand-in share. nccl.c has communicators and groups of calls; nccl_run.c runs
 * them.
 *
 * What a rank calls in one group is a *launch*, a piece of work of its stream, and consists of
 * *halves*: one half sends to a peer, or receives from it. A launch arrives when its stream comes
 * to it; then what it receives into is NaN. A half is delivered when both launches have arrived,
 * one at a time in random order, among whatever else may run; the launch ends after all of its own.
 * Until then nobody else may touch its memory.
 */
#ifndef STANDIN_NCCL_H
#define STANDIN_NCCL_H

#include "standin.h"

typedef struct {
    char internal[128];
} ncclUniqueId;
typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
} ncclResult_t;
typedef enum { ncclInt8 = 0, ncclUint8 = 1, ncclFloat32 = 7, ncclBfloat16 = 9 } ncclDataType_t;
/* As NCCL 2.14 has it; newer ones take it so. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;
} ncclConfig_t;
typedef struct ncclComm *ncclComm_t;

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
const char *ncclGetErrorString(ncclResult_t error);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);

/* ---- between nccl.c and nccl_run.c ---- */

enum nccl_kind { NCCL_ALL_GATHER, NCCL_BROADCAST, NCCL_SEND, NCCL_RECV };

struct nccl_call {
    enum nccl_kind kind;
    const char *from;
    char *to;
    size_t count, bytes;
    ncclDataType_t type;
    int peer; /* or root */
    struct ncclComm *comm;
    cudaStream_t stream;
};

/* What ranks call must be the same: the first to call is held against all others, as long as they
 * are no more than so many behind. */
#define NCCL_COLLECTIVES 256
struct nccl_collective {
    struct nccl_call call;
    int rank;
};
struct nccl_clique {
    struct nccl_clique *next;
    ncclUniqueId id;
    int n_ranks, n_joined;
    struct ncclComm *ranks[STANDIN_MOST_GPUS];
    struct nccl_collective collectives[NCCL_COLLECTIVES];
    size_t n_collectives;
    /* from, to, by collectives or not: halves that have not met, all of one sort */
    struct nccl_half *alone[STANDIN_MOST_GPUS][STANDIN_MOST_GPUS][2];
    bool broken; /* misuse that would hang; reported, and everything ends */
};

struct ncclComm {
    struct nccl_clique *clique;
    int rank, gpu;
    bool blocking, aborted, finalized, gone;
    ncclResult_t error;
    size_t n_collectives;
    int n_under_way, launches_left; /* until one is in trouble; 0: none will be */
    enum standin_nccl_trouble trouble;
    struct nccl_launch *held; /* called, but enqueued only after so many looks */
    int looks;
};

struct nccl_half {
    struct nccl_half *next;  /* of those alone */
    struct nccl_half *other; /* NULL: it is alone */
    struct nccl_launch *launch;
    char *data;
    size_t bytes;
    ncclDataType_t type;
    int peer;
    bool sends, done;
    uint64_t sum;
    void *token; /* of what is sent: the receiver has it */
};
struct nccl_launch {
    struct nccl_launch *next; /* of all that are there */
    struct ncclComm *comm;
    cudaStream_t stream;
    struct nccl_half *halves;
    size_t n;
    bool arrived, hangs;
    void *token; /* of the arrival */
};
/* Makes a launch of a group's calls of one communicator; NULL: of nothing. It is not enqueued yet.
 */
struct nccl_launch *nccl_launch_create(const struct nccl_call *calls, size_t n,
                                       struct ncclComm *comm);
/* It is one of those that are there. */
void nccl_launch_add(struct nccl_launch *launch);
void nccl_launch_enqueue(struct nccl_launch *launch);
/* After misuse that would hang. */
void nccl_break(struct nccl_clique *clique);
bool nccl_overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes);
/* Of a communicator that is aborted. */
void nccl_leave_peers(struct ncclComm *comm);
void nccl_run_reset(void);

#endif
