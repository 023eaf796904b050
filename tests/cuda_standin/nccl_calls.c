/*
 * nccl_calls: groups of calls of the stand-in's NCCL. What a communicator that does not block is
 * told may be enqueued only later, after it has been looked at: whoever enqueues behind it without
 * a look is before it.
 */
#include "nccl.h"

#include <stdlib.h>

enum { MOST_LOOKS = 4 };

/* Of the calling thread. */
static _Thread_local int depth; /* of groups */
static _Thread_local struct nccl_call *calls;
static _Thread_local size_t n_calls, room;
static _Thread_local struct {
    const struct nccl_board *board;
    const struct ncclComm *comm;
    uint64_t number;
} outside; /* the last collective that was in no group */

void nccl_calls_reset(void)
{
    outside.board = NULL;
    n_calls = 0;
    depth = 0;
}

bool nccl_in_group(void)
{
    return depth > 0;
}

ncclResult_t ncclGroupStart(void)
{
    STANDIN_CALL;
    depth++;
    return ncclSuccess;
}

/* A communicator that does not block says at times that it is not done with the calls yet. */
static void launch(struct ncclComm *comm)
{
    struct nccl_launch *made = nccl_launch_create(calls, n_calls, comm);
    if (!made)
        return;
    comm->looks = comm->blocking ? 0 : (int)standin_random(MOST_LOOKS);
    if (comm->looks)
        comm->held = made;
    else
        nccl_launch_enqueue(made);
}

ncclResult_t ncclGroupEnd(void)
{
    STANDIN_CALL;
    ncclResult_t result = ncclSuccess;
    if (!depth) {
        standin_fault(cudaErrorInvalidValue, "the end of a group that was not begun");
        return ncclInvalidUsage;
    }
    if (--depth)
        return ncclSuccess;
    for (int i = 0; i < NCCL_MOST_COMMS; i++)
        if (nccl_comm_at(i))
            launch(nccl_comm_at(i));
    for (size_t i = 0; i < n_calls; i++)
        result = calls[i].comm->held ? ncclInProgress : result;
    free(calls); /* a thread may end after any group */
    calls = NULL;
    n_calls = room = 0;
    ncclResult_t awaited = nccl_await_begun();
    return awaited ? awaited : result;
}

/* One thread that calls for several ranks waits in the first call for those of the others. */
static void check_outside(const struct nccl_call *call)
{
    const struct ncclComm *comm = call->comm;
    uint64_t number = atomic_load(&comm->member->n_calls);
    if (outside.board == comm->board && outside.comm != comm && outside.number == number)
        standin_fault(cudaErrorInvalidValue,
                      "one thread calls for rank %d and then for rank %d, and not in a group",
                      outside.comm->rank, comm->rank);
    outside.board = comm->board;
    outside.comm = comm;
    outside.number = number;
}

static size_t width_of(ncclDataType_t type)
{
    return type == ncclFloat32 ? 4 : type == ncclBfloat16 ? 2 : 1;
}

static ncclResult_t take(struct nccl_call call)
{
    if (!nccl_is_known(call.comm))
        return ncclInvalidArgument;
    if (board_joined(call.comm->board) < call.comm->n_ranks || call.comm->held)
        standin_fault(cudaErrorInvalidValue,
                      "rank %d calls while its communicator is still in progress", call.comm->rank);
    if (call.comm->gpu != standin_gpu())
        standin_fault(cudaErrorInvalidValue, "rank %d calls on GPU %d, and began on GPU %d",
                      call.comm->rank, standin_gpu(), call.comm->gpu);
    if (call.peer < 0 || call.peer >= call.comm->n_ranks)
        return ncclInvalidArgument;
    call.bytes = call.count * width_of(call.type);
    if (n_calls == room) {
        room = 2 * room + 16;
        calls = realloc(calls, room * sizeof *calls);
    }
    if (!depth && (call.kind == NCCL_ALL_GATHER || call.kind == NCCL_BROADCAST))
        check_outside(&call);
    depth++;
    calls[n_calls++] = call;
    return ncclGroupEnd();
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    STANDIN_CALL;
    return take((struct nccl_call){.kind = NCCL_ALL_GATHER,
                                   .from = from,
                                   .to = to,
                                   .count = count,
                                   .type = type,
                                   .comm = comm,
                                   .stream = stream});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    STANDIN_CALL;
    return take((struct nccl_call){.kind = NCCL_BROADCAST,
                                   .from = from,
                                   .to = to,
                                   .count = count,
                                   .type = type,
                                   .peer = root,
                                   .comm = comm,
                                   .stream = stream});
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    STANDIN_CALL;
    return take((struct nccl_call){.kind = NCCL_SEND,
                                   .from = from,
                                   .count = count,
                                   .type = type,
                                   .peer = peer,
                                   .comm = comm,
                                   .stream = stream});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    STANDIN_CALL;
    return take((struct nccl_call){.kind = NCCL_RECV,
                                   .to = to,
                                   .count = count,
                                   .type = type,
                                   .peer = peer,
                                   .comm = comm,
                                   .stream = stream});
}
