/*
 * nccl: the part of NCCL's interface that net/net_nccl.c calls, under NCCL's own names, and what
 * the files of its stand-in share. nccl.c has communicators, nccl_calls.c groups of calls,
 * nccl_launch.c makes halves of them and nccl_run.c runs these; what ranks know of each other is in
 * nccl_board.h, and the same whether they are of one process or of several.
 *
 * What a rank calls in one group is a *launch*, a piece of work of its stream, and consists of
 * *halves*: one half sends to a peer, or receives from it. A launch arrives when its stream comes
 * to it; then what it receives into is NaN. A half is delivered when both launches have arrived,
 * one at a time in random order, among whatever else may run; the launch ends after all of its own.
 * Until then nobody else may touch its memory.
 */
#ifndef STANDIN_NCCL_H
#define STANDIN_NCCL_H

#include "nccl_board.h"

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

/* ---- between the files ---- */

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

struct ncclComm {
    struct nccl_board *board;
    struct board_member *member; /* its own */
    int rank, n_ranks, gpu;
    bool blocking, aborted, gone;
    ncclResult_t error;
    uint64_t seen;     /* the board's progress at the last look without any */
    int launches_left; /* until one is in trouble; 0: none will be */
    enum standin_nccl_trouble trouble;
    struct nccl_launch *held; /* called, but enqueued only after so many looks */
    int looks;
};

struct nccl_half {
    struct nccl_launch *launch;
    struct board_half *own, *other; /* as both ranks see them */
    uint64_t number;
    char *data;
    const char *from; /* of what is received, while it is */
    size_t bytes;
    int peer;
    bool sends, done;
    uint64_t sum;
};
struct nccl_launch {
    struct nccl_launch *next; /* of all that are there */
    struct ncclComm *comm;
    cudaStream_t stream;
    struct nccl_half *halves;
    size_t n;
    bool arrived, hangs;
    int signal;  /* the process gets it in the middle of its arrival; 0: none */
    void *token; /* of the arrival */
};
/* All that are not gone [i]; NULL: no such. Inside a group of the calling thread. */
enum { NCCL_MOST_COMMS = 256 };
struct ncclComm *nccl_comm_at(int i);
bool nccl_is_known(const struct ncclComm *comm);
bool nccl_in_group(void);
/* At a group's end: the communicators that were begun in it have all their ranks. */
ncclResult_t nccl_await_begun(void);
void nccl_calls_reset(void);
/* Makes a launch of a group's calls of one communicator; NULL: of nothing. It is not enqueued yet.
 */
struct nccl_launch *nccl_launch_create(const struct nccl_call *calls, size_t n,
                                       struct ncclComm *comm);
/* It is one of those that are there. */
void nccl_launch_add(struct nccl_launch *launch);
void nccl_launch_enqueue(struct nccl_launch *launch);
/* After misuse that would hang. */
void nccl_break(struct ncclComm *comm);
bool nccl_overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes);
void nccl_run_reset(void);

#endif
