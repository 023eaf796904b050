/*
 * nccl_calls: the declarations of NCCL that are used, after its stable C interface (nccl.h of NCCL
 * 2.14 and newer). NCCL's own header would bring CUDA's, so neither building nor starting zinf
 * needs either. Names are zinf's own, so that a test can compare both
 * (tests/net/nccl_header_test.sh). Inside this folder only.
 */
#ifndef ZINF_NET_NCCL_CALLS_H
#define ZINF_NET_NCCL_CALLS_H

#include <stddef.h>
#include <stdint.h>

enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_UNHANDLED_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
};
enum nccl_type {
    NCCL_INT8 = 0,
};

#define NCCL_ID_BYTES 128
struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};

/* The struct as NCCL 2.14 has it. Newer versions see by size and version that later fields are
 * missing. */
#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_OLDEST 21400 /* 10000 * major + 100 * minor + patch */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

struct nccl_comm;

/* Result, name without "nccl", parameters. stream is a cudaStream_t. */
#define NCCL_CALLS(CALL)                                                                           \
    CALL(int, GetVersion, (int *version))                                                          \
    CALL(int, GetUniqueId, (struct nccl_id * id))                                                  \
    CALL(int, CommInitRankConfig,                                                                  \
         (struct nccl_comm * *comm, int n_ranks, struct nccl_id id, int rank,                      \
          struct nccl_config *config))                                                             \
    CALL(int, CommGetAsyncError, (struct nccl_comm * comm, int *error))                            \
    CALL(int, CommFinalize, (struct nccl_comm * comm))                                             \
    CALL(int, CommDestroy, (struct nccl_comm * comm))                                              \
    CALL(int, CommAbort, (struct nccl_comm * comm))                                                \
    CALL(const char *, GetErrorString, (int error))                                                \
    CALL(const char *, GetLastError, (struct nccl_comm * comm))                                    \
    CALL(int, GroupStart, (void))                                                                  \
    CALL(int, GroupEnd, (void))                                                                    \
    CALL(int, AllGather,                                                                           \
         (const void *from, void *to, size_t count, int type, struct nccl_comm *comm,              \
          void *stream))                                                                           \
    CALL(int, Broadcast,                                                                           \
         (const void *from, void *to, size_t count, int type, int root, struct nccl_comm *comm,    \
          void *stream))                                                                           \
    CALL(int, Send,                                                                                \
         (const void *from, size_t count, int type, int peer, struct nccl_comm *comm,              \
          void *stream))                                                                           \
    CALL(int, Recv,                                                                                \
         (void *to, size_t count, int type, int peer, struct nccl_comm *comm, void *stream))

struct nccl_calls {
#define NCCL_FIELD(result, name, parameters) result(*name) parameters;
    NCCL_CALLS(NCCL_FIELD)
#undef NCCL_FIELD
    int version;
    char name[32]; /* such as "NCCL 2.28.3" */
};

/* net_nccl_load.c: loads NCCL at the first call, for good. NULL: it cannot be used;
 * zinf_link_why_not() says why. */
const struct nccl_calls *nccl_load(void);

#endif
