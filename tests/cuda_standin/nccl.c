/*
 * nccl: communicators of the stand-in's NCCL. Ranks are threads of one process or of several, or
 * one thread, which then must group its calls.
 */
#include "nccl.h"
#include "order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_MAGIC 0xcafebeefu

static struct ncclComm *comms[NCCL_MOST_COMMS];
static const char *last_error = "";
static unsigned ending; /* a bit for each GPU where a communicator may still be destroyed */
static struct {
    int rank, launch;
    enum standin_nccl_trouble trouble;
} trouble;

/* In the calling thread's group. */
static _Thread_local struct ncclComm *begun[STANDIN_MOST_GPUS];
static _Thread_local int n_begun;

void standin_nccl_reset(void)
{
    nccl_run_reset();
    nccl_calls_reset();
    board_reset();
    for (int i = 0; i < NCCL_MOST_COMMS; i++) {
        order_give(comms[i]);
        comms[i] = NULL;
    }
    trouble.launch = 0;
    last_error = "";
    n_begun = 0;
    ending = 0;
}

void standin_nccl_waited(int gpu)
{
    ending &= ~(1u << gpu);
}

void standin_nccl_check_ended(int gpu, const char *what)
{
    if (ending >> gpu & 1)
        standin_fault(cudaErrorInvalidValue,
                      "%s of GPU %d goes, where NCCL may still destroy a communicator", what, gpu);
}

static bool has_trouble(int rank)
{
    return trouble.launch && (trouble.rank == rank || trouble.rank < 0);
}

static void give_trouble(struct ncclComm *comm)
{
    if (!has_trouble(comm->rank))
        return;
    comm->launches_left = trouble.launch;
    comm->trouble = trouble.trouble;
}

void standin_nccl_fail(int rank, int launch, enum standin_nccl_trouble what)
{
    STANDIN_CALL;
    trouble.rank = rank;
    trouble.launch = launch;
    trouble.trouble = what;
    for (int i = 0; i < NCCL_MOST_COMMS; i++)
        if (comms[i])
            give_trouble(comms[i]);
}

/* ---- beginning ---- */

ncclResult_t ncclGetVersion(int *version)
{
    STANDIN_CALL;
    *version = standin_options()->nccl_version ? standin_options()->nccl_version : 22800;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    STANDIN_CALL;
    memset(id, 0, sizeof *id);
    return board_make_id(id->internal, sizeof id->internal) ? ncclSuccess : ncclSystemError;
}

struct ncclComm *nccl_comm_at(int i)
{
    return comms[i] && !comms[i]->gone ? comms[i] : NULL;
}

static struct ncclComm **free_place(void)
{
    for (int i = 0; i < NCCL_MOST_COMMS; i++)
        if (!comms[i])
            return &comms[i];
    return NULL;
}

static bool all_joined(const struct ncclComm *comm)
{
    return board_joined(comm->board) == comm->n_ranks;
}

/* For all ranks that these wait for. */
static ncclResult_t await_all(struct ncclComm *const *waiting, int n)
{
    uint64_t since = 0;
    for (int i = 0; i < n;) {
        if (all_joined(waiting[i])) {
            i++;
        } else if (!standin_await_others(&since)) {
            standin_fault(cudaErrorInvalidValue,
                          "rank %d waits for %d others to begin: one thread begins several ranks "
                          "in a group",
                          waiting[i]->rank, waiting[i]->n_ranks - board_joined(waiting[i]->board));
            return ncclInvalidUsage;
        }
    }
    return ncclSuccess;
}

ncclResult_t nccl_await_begun(void)
{
    int n = n_begun;
    n_begun = 0;
    return await_all(begun, n);
}

/* Of those that CUDA_VISIBLE_DEVICES leaves this process. */
static int gpu_of_machine(void)
{
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; at && *at && i < standin_gpu(); i++)
        at = strchr(at, ',') ? strchr(at, ',') + 1 : "";
    return at && *at ? atoi(at) : standin_gpu();
}

/* Each rank once, of one number, and each with a GPU of its own. */
static ncclResult_t join(struct nccl_board *board, int n_ranks, int rank)
{
    int none = 0, nobody = 0;
    if (!atomic_compare_exchange_strong(&board->n_ranks, &none, n_ranks) && none != n_ranks) {
        standin_fault(cudaErrorInvalidValue, "rank %d is of %d ranks, others of %d", rank, n_ranks,
                      none);
        return ncclInvalidUsage;
    }
    atomic_store(&board->members[rank].gpu, gpu_of_machine());
    if (!atomic_compare_exchange_strong(&board->members[rank].pid, &nobody, getpid())) {
        standin_fault(cudaErrorInvalidValue, "rank %d of %d begins twice", rank, n_ranks);
        return ncclInvalidUsage;
    }
    board_move(board);
    for (int r = 0; r < n_ranks; r++)
        if (r != rank && atomic_load(&board->members[r].pid) &&
            atomic_load(&board->members[r].gpu) == gpu_of_machine()) {
            last_error = "Duplicate GPU detected";
            return ncclInvalidUsage;
        }
    return ncclSuccess;
}

static struct ncclComm *create(struct ncclComm **place, struct nccl_board *board, int n_ranks,
                               int rank)
{
    struct ncclComm *comm = *place = order_take(sizeof *comm);
    comm->board = board;
    comm->member = &board->members[rank];
    comm->rank = rank;
    comm->n_ranks = n_ranks;
    comm->gpu = standin_gpu();
    give_trouble(comm);
    standin_count_live(1);
    return comm;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    STANDIN_CALL;
    struct ncclComm **place = free_place();
    *out = NULL;
    if (config && (config->magic != CONFIG_MAGIC || config->size < sizeof *config)) {
        standin_fault(cudaErrorInvalidValue, "a configuration that NCCL did not begin");
        return ncclInvalidArgument;
    }
    if (!place || n_ranks > STANDIN_MOST_GPUS || rank < 0 || rank >= n_ranks)
        return ncclInvalidArgument;
    if (has_trouble(rank) && trouble.trouble == STANDIN_NCCL_REFUSES)
        return ncclSystemError;
    struct nccl_board *board = board_find(id.internal);
    if (!board)
        return ncclSystemError; /* nobody answers where the id says */
    bool never = has_trouble(rank) && trouble.trouble == STANDIN_NCCL_NEVER_COMES;
    ncclResult_t result = never ? ncclSuccess : join(board, n_ranks, rank);
    if (result != ncclSuccess)
        return result;
    struct ncclComm *comm = *out = create(place, board, n_ranks, rank);
    comm->blocking = !config || config->blocking;
    if (!comm->blocking)
        return ncclInProgress;
    if (!nccl_in_group())
        return await_all(&comm, 1);
    begun[n_begun++] = comm;
    return ncclSuccess;
}

/* ---- in between ---- */

bool nccl_is_known(const struct ncclComm *comm)
{
    bool known = comm && !comm->gone;
    if (!known)
        standin_fault(cudaErrorInvalidValue, "a communicator that is gone");
    return known;
}

/* All ranks' ends wait for each other. */
static bool is_finalizing(const struct ncclComm *comm)
{
    if (!atomic_load(&comm->member->finalized))
        return false;
    for (int r = 0; r < comm->n_ranks; r++)
        if (!atomic_load(&comm->board->members[r].finalized) &&
            !atomic_load(&comm->board->members[r].left))
            return true;
    return false;
}

/* That another process is gone is noticed under every other seed: between GPUs of one host it need
 * not be. */
static ncclResult_t error_of(struct ncclComm *comm)
{
    if (!comm->error && atomic_load(&comm->board->broken))
        comm->error = ncclInvalidUsage;
    if (!comm->error && standin_options()->seed % 2 && board_has_lost(comm->board))
        comm->error = ncclRemoteError;
    return comm->error;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    STANDIN_CALL;
    if (!nccl_is_known(comm))
        return ncclInvalidArgument;
    if (comm->held && --comm->looks <= 0) {
        struct nccl_launch *launch = comm->held;
        comm->held = NULL;
        nccl_launch_enqueue(launch);
    }
    bool idle = all_joined(comm) && !comm->held && !is_finalizing(comm);
    *error = error_of(comm);
    if (!*error && !idle)
        *error = ncclInProgress;
    return ncclSuccess;
}

/* ---- the end ---- */

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    STANDIN_CALL;
    if (!nccl_is_known(comm))
        return ncclInvalidArgument;
    atomic_store(&comm->member->finalized, true);
    return comm->blocking ? ncclSuccess : ncclInProgress;
}

static void end(struct ncclComm *comm)
{
    comm->gone = true;
    atomic_store(&comm->member->left, true);
    board_move(comm->board);
    standin_count_live(-1);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    STANDIN_CALL;
    if (!nccl_is_known(comm))
        return ncclInvalidArgument;
    if (atomic_load(&comm->member->n_under_way))
        standin_fault(cudaErrorInvalidValue, "rank %d ends with %d launches under way", comm->rank,
                      (int)atomic_load(&comm->member->n_under_way));
    int version;
    ncclGetVersion(&version);
    if (!comm->blocking && version >= 22800)
        ending |= 1u << comm->gpu;
    end(comm);
    return ncclSuccess;
}

/* With the lock open: others may go on. */
static void stick(void)
{
    order_unlock();
    for (;;)
        pause();
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    STANDIN_CALL;
    if (!nccl_is_known(comm))
        return ncclInvalidArgument;
    if (comm->held)
        nccl_launch_enqueue(comm->held);
    comm->held = NULL;
    comm->aborted = true;
    end(comm);
    if (comm->launches_left && comm->trouble == STANDIN_NCCL_STICKS)
        stick();
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
    return last_error;
}
