/*
 * nccl: communicators and groups of calls of the stand-in's NCCL. Ranks are threads of one process,
 * or one thread, which then must group its calls. What a communicator that does not block is told
 * may be enqueued only later, after it has been looked at: whoever enqueues behind it without a
 * look is before it.
 */
#include "nccl.h"
#include "order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_MAGIC 0xcafebeefu
enum { MOST_LOOKS = 4, MOST_COMMS = 256 };

static struct nccl_clique *cliques;
static struct ncclComm *comms[MOST_COMMS];
static uint32_t n_ids;
static struct {
    int rank, launch;
    enum standin_nccl_trouble trouble;
} trouble;

/* Of the calling thread. */
static _Thread_local int depth; /* of groups */
static _Thread_local struct nccl_call *calls;
static _Thread_local size_t n_calls, room;
static _Thread_local struct ncclComm *begun[STANDIN_MOST_GPUS];
static _Thread_local int n_begun;
static _Thread_local struct {
    const struct nccl_clique *clique;
    const struct ncclComm *comm;
    size_t number;
} outside; /* the last collective that was in no group */

void standin_nccl_reset(void)
{
    nccl_run_reset();
    while (cliques) {
        struct nccl_clique *next = cliques->next;
        order_give(cliques);
        cliques = next;
    }
    for (int i = 0; i < MOST_COMMS; i++) {
        order_give(comms[i]);
        comms[i] = NULL;
    }
    trouble.launch = 0;
    outside.clique = NULL;
    n_calls = 0;
    n_begun = depth = 0;
}

void standin_nccl_fail(int rank, int launch, enum standin_nccl_trouble what)
{
    STANDIN_CALL;
    trouble.rank = rank;
    trouble.launch = launch;
    trouble.trouble = what;
    for (int i = 0; i < MOST_COMMS; i++)
        if (comms[i] && comms[i]->rank == rank) {
            comms[i]->launches_left = launch;
            comms[i]->trouble = what;
        }
}

/* ---- communicators ---- */

ncclResult_t ncclGetVersion(int *version)
{
    STANDIN_CALL;
    *version = standin_options()->nccl_version ? standin_options()->nccl_version : 22800;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    STANDIN_CALL;
    memset(id, 0x5a, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "stand-in %u", ++n_ids);
    return ncclSuccess;
}

/* Not by memcmp, which the sanitizer would take for a look of the user's. */
static bool is_id(const ncclUniqueId *a, const ncclUniqueId *b)
{
    size_t i = 0;
    while (i < sizeof a->internal && a->internal[i] == b->internal[i])
        i++;
    return i == sizeof a->internal;
}

static struct nccl_clique *find_clique(const ncclUniqueId *id, int n_ranks)
{
    struct nccl_clique *c = cliques;
    while (c && !is_id(&c->id, id))
        c = c->next;
    if (c)
        return c;
    c = order_take(sizeof *c);
    c->id = *id;
    c->n_ranks = n_ranks;
    c->next = cliques;
    return cliques = c;
}

static struct ncclComm **free_place(void)
{
    for (int i = 0; i < MOST_COMMS; i++)
        if (!comms[i])
            return &comms[i];
    return NULL;
}

/* For all ranks that these wait for. */
static ncclResult_t await_all(struct ncclComm *const *waiting, int n)
{
    uint64_t since = 0;
    for (int i = 0; i < n;) {
        if (waiting[i]->clique->n_joined == waiting[i]->clique->n_ranks) {
            i++;
        } else if (!standin_await_others(&since)) {
            standin_fault(cudaErrorInvalidValue,
                          "rank %d waits for %d others to begin: one thread begins several ranks "
                          "in a group",
                          waiting[i]->rank,
                          waiting[i]->clique->n_ranks - waiting[i]->clique->n_joined);
            return ncclInvalidUsage;
        }
    }
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    STANDIN_CALL;
    struct ncclComm **place = free_place();
    if (config && (config->magic != CONFIG_MAGIC || config->size < sizeof *config)) {
        standin_fault(cudaErrorInvalidValue, "a configuration that NCCL did not begin");
        return ncclInvalidArgument;
    }
    if (!place || n_ranks > STANDIN_MOST_GPUS || rank < 0 || rank >= n_ranks)
        return ncclInvalidArgument;
    struct nccl_clique *clique = find_clique(&id, n_ranks);
    if (clique->n_ranks != n_ranks || clique->ranks[rank]) {
        standin_fault(cudaErrorInvalidValue, "rank %d of %d begins twice, or of another number",
                      rank, n_ranks);
        return ncclInvalidUsage;
    }
    for (int r = 0; r < n_ranks; r++)
        if (clique->ranks[r] && clique->ranks[r]->gpu == standin_gpu())
            return ncclInvalidUsage; /* "Duplicate GPU detected" */
    struct ncclComm *comm = *place = order_take(sizeof *comm);
    comm->clique = clique;
    comm->rank = rank;
    comm->gpu = standin_gpu();
    comm->blocking = !config || config->blocking;
    if (trouble.launch && trouble.rank == rank) {
        comm->launches_left = trouble.launch;
        comm->trouble = trouble.trouble;
    }
    clique->ranks[rank] = comm;
    clique->n_joined++;
    standin_count_live(1);
    *out = comm;
    if (!comm->blocking)
        return ncclInProgress;
    if (!depth)
        return await_all(&comm, 1);
    begun[n_begun++] = comm;
    return ncclSuccess;
}

static bool is_known(const struct ncclComm *comm)
{
    bool known = comm && !comm->gone;
    if (!known)
        standin_fault(cudaErrorInvalidValue, "a communicator that is gone");
    return known;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    STANDIN_CALL;
    if (!is_known(comm))
        return ncclInvalidArgument;
    if (comm->held && --comm->looks <= 0) {
        struct nccl_launch *launch = comm->held;
        comm->held = NULL;
        nccl_launch_enqueue(launch);
    }
    bool joined = comm->clique->n_joined == comm->clique->n_ranks;
    *error = comm->error ? comm->error : joined && !comm->held ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    STANDIN_CALL;
    if (!is_known(comm))
        return ncclInvalidArgument;
    comm->finalized = true;
    return comm->blocking ? ncclSuccess : ncclInProgress;
}

static void end(struct ncclComm *comm)
{
    comm->gone = true;
    standin_count_live(-1);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    STANDIN_CALL;
    if (!is_known(comm))
        return ncclInvalidArgument;
    if (comm->n_under_way)
        standin_fault(cudaErrorInvalidValue, "rank %d ends with %d launches under way", comm->rank,
                      comm->n_under_way);
    end(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    STANDIN_CALL;
    if (!is_known(comm))
        return ncclInvalidArgument;
    if (comm->held)
        nccl_launch_enqueue(comm->held);
    comm->held = NULL;
    comm->aborted = true;
    nccl_leave_peers(comm);
    end(comm);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t error)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process exited or there was a network error",
        "NCCL operation in progress"};
    return (unsigned)error < sizeof texts / sizeof *texts ? texts[error] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

/* ---- groups of calls ---- */

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
    for (int i = 0; i < MOST_COMMS; i++)
        if (comms[i] && !comms[i]->gone)
            launch(comms[i]);
    for (size_t i = 0; i < n_calls; i++)
        result = calls[i].comm->held ? ncclInProgress : result;
    free(calls); /* a thread may end after any group */
    calls = NULL;
    n_calls = room = 0;
    if (n_begun) {
        int n = n_begun;
        n_begun = 0;
        result = await_all(begun, n);
    }
    return result;
}

/* One thread that calls for several ranks waits in the first call for those of the others. */
static void check_outside(const struct nccl_call *call)
{
    const struct ncclComm *comm = call->comm;
    if (outside.clique == comm->clique && outside.comm != comm &&
        outside.number == comm->n_collectives)
        standin_fault(cudaErrorInvalidValue,
                      "one thread calls for rank %d and then for rank %d, and not in a group",
                      outside.comm->rank, comm->rank);
    outside.clique = comm->clique;
    outside.comm = comm;
    outside.number = comm->n_collectives;
}

static size_t width_of(ncclDataType_t type)
{
    return type == ncclFloat32 ? 4 : type == ncclBfloat16 ? 2 : 1;
}

static ncclResult_t take(struct nccl_call call)
{
    if (!is_known(call.comm))
        return ncclInvalidArgument;
    if (call.comm->clique->n_joined < call.comm->clique->n_ranks || call.comm->held)
        standin_fault(cudaErrorInvalidValue,
                      "rank %d calls while its communicator is still in progress", call.comm->rank);
    if (call.comm->gpu != standin_gpu())
        standin_fault(cudaErrorInvalidValue, "rank %d calls on GPU %d, and began on GPU %d",
                      call.comm->rank, standin_gpu(), call.comm->gpu);
    if (call.peer < 0 || call.peer >= call.comm->clique->n_ranks)
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
