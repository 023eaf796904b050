/*
 * net_nccl: what the files of a link share. Inside this folder only.
 */
#ifndef ZINF_NET_NCCL_H
#define ZINF_NET_NCCL_H

#include "net/nccl_calls.h"
#include "net/net_engine.h"

/* What ranks compare before a transfer. */
struct roll {
    uint64_t number; /* of the transfer */
    uint64_t what;   /* kind and size of the transfer */
    int64_t failed;  /* error of a transfer that was begun */
};
enum transfer {
    GATHER,
    SCATTER,
    OPENING,
};

struct zinf_link {
    const struct nccl_calls *nccl;
    struct zinf_net *net;
    struct zinf_link_device device;
    struct nccl_comm *comm;  /* NULL: not opened yet, or aborted */
    struct roll own, *rolls; /* this rank's, and those of all [world] */
    float **parts;           /* [world] scratch of zinf_link_scatter_sum */
    uint64_t sent_bytes, begun_ns, listened_ns;
};

static inline uint32_t world_of(const struct zinf_link *link)
{
    return link->net->place.world;
}

static inline bool is_fine(int result)
{
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS;
}

/* net_nccl_end.c: ends the communicator and whatever it was doing. */
void link_abort(struct zinf_link *link);
/* net_nccl.c: make the link failed, by zinf_error() of the device, and by a result of NCCL. */
int link_fail_by_device(struct zinf_link *link, int code);
int link_fail_call(struct zinf_link *link, int result);
/* Waits until all ranks have come to the same transfer, and starts its clock. */
int link_meet(struct zinf_link *link, enum transfer kind, uint64_t size);
/* link_settle waits until NCCL has enqueued its calls; link_wait until everything that was enqueued
 * has ended. */
int link_settle(struct zinf_link *link);
int link_wait(struct zinf_link *link);

#endif
