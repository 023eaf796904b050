#!/bin/sh
# What net/nccl_calls.h says of NCCL is what nccl.h has, where there is one: types, numbers, the shape
# of every function.
. "$SRCDIR/tests/support/command.sh"
cc=${CC:-cc}

header=
for folder in ${NCCL_HOME:+"$NCCL_HOME/include"} /usr/include /usr/local/include \
    /usr/local/cuda/include; do
    [ -n "$header" ] || [ ! -f "$folder/nccl.h" ] || header=$folder
done
if [ -z "$header" ]; then
    skip "the header of NCCL" "there is no nccl.h here"
    finish
fi

# Of CUDA it wants little more than the name of a stream.
mkdir "$work/cuda"
cat >"$work/cuda/cuda_runtime.h" <<'EOF'
#include <stddef.h>
#define CUDART_VERSION 12000
typedef struct CUstream_st *cudaStream_t;
EOF
touch "$work/cuda/cuda_fp16.h" "$work/cuda/cuda_bf16.h" "$work/cuda/cuda_fp8.h"
cat >"$work/both.c" <<'EOF'
#include <nccl.h>
#include "net/nccl_calls.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError);
SAME(NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(NCCL_INTERNAL_ERROR, ncclInternalError);
SAME(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_INT8, ncclInt8);
SAME(NCCL_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
SAME(sizeof(struct nccl_id), sizeof(ncclUniqueId));
SAME(offsetof(struct nccl_config, size), offsetof(ncclConfig_t, size));
SAME(offsetof(struct nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(struct nccl_config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(struct nccl_config, blocking), offsetof(ncclConfig_t, blocking));
static const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;

int main(void)
{
    return theirs.magic != NCCL_CONFIG_MAGIC || NCCL_VERSION_CODE < NCCL_OLDEST;
}

/* Each function of theirs, called by the types of ours. */
static void *stream;
void calls(struct nccl_calls *c, struct nccl_id id, ncclUniqueId unique);
void calls(struct nccl_calls *c, struct nccl_id id, ncclUniqueId unique)
{
    ncclComm_t comm = 0;
    struct nccl_comm *own = 0;
    ncclConfig_t *config = 0;
    ncclResult_t state;
    cudaStream_t s = stream;
    int n = 0;
    n += ncclGetVersion(&n) + c->GetVersion(&n);
    n += ncclGetUniqueId(&unique) + c->GetUniqueId(&id);
    n += ncclCommInitRankConfig(&comm, 2, unique, 1, config) +
         c->CommInitRankConfig(&own, 2, id, 1, (struct nccl_config *)config);
    n += ncclCommGetAsyncError(comm, &state) + c->CommGetAsyncError(own, &n);
    n += ncclCommFinalize(comm) + c->CommFinalize(own);
    n += ncclCommDestroy(comm) + c->CommDestroy(own);
    n += ncclCommAbort(comm) + c->CommAbort(own);
    n += *ncclGetErrorString(state) + *c->GetErrorString(n);
    n += *ncclGetLastError(comm) + *c->GetLastError(own);
    n += ncclGroupStart() + c->GroupStart();
    n += ncclGroupEnd() + c->GroupEnd();
    const void *from = stream;
    n += ncclAllGather(from, stream, 1, ncclInt8, comm, s) +
         c->AllGather(from, stream, 1, NCCL_INT8, own, s);
    n += ncclBroadcast(from, stream, 1, ncclInt8, 0, comm, s) +
         c->Broadcast(from, stream, 1, NCCL_INT8, 0, own, s);
    n += ncclSend(from, 1, ncclInt8, 0, comm, s) + c->Send(from, 1, NCCL_INT8, 0, own, s);
    n += ncclRecv(stream, 1, ncclInt8, 0, comm, s) + c->Recv(stream, 1, NCCL_INT8, 0, own, s);
}
EOF
compiles() {
    $cc -std=gnu11 -Wall -Werror=incompatible-pointer-types -Werror=int-conversion -c \
        -I "$work/cuda" -I "$header" -I "$SRCDIR" -o "$work/both.o" "$work/both.c" \
        >"$work/said.err" 2>&1
}
check "$header/nccl.h has what is called" compiles
sed -e 's/^SAME(NCCL_REMOTE_ERROR.*/SAME(NCCL_REMOTE_ERROR, ncclInProgress);/' "$work/both.c" \
    >"$work/other.c" && mv "$work/other.c" "$work/both.c"
! compiles
verdict $? "and a number that differs would show"
finish
