/*
 * net_nccl: what the files of a link share. Inside this folder only.
 */
#ifndef ZINF_NET_NCCL_H
#define ZINF_NET_NCCL_H

#include "net/nccl_calls.h"
#include "net/net_engine.h"

/* What ranks say when they meet. */
struct roll {
    uint64_t number; /* of the transfer */
    uint64_t what;   /* kind and size, alike on all ranks */
    int64_t failed;  /* it was begun, and has failed */
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
    struct nccl_comm *comm;  /* NULL: not yet, or aborted */
    struct roll own, *rolls; /* [world] of all */
    float **parts;           /* [world] */
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

/* net_nccl_end.c. The communicator is gone, and what it was at is over. */
void link_abort(struct zinf_link *link);
/* net_nccl.c. A failure of the device, whose sentence is zinf_error(); of NCCL's. */
int link_fail_by_device(struct zinf_link *link, int code);
int link_fail_call(struct zinf_link *link, int result);
/* Before a transfer: all ranks are at the same one. Its time begins. */
int link_meet(struct zinf_link *link, enum transfer kind, uint64_t size);
/* NCCL has enqueued what it was told; all that was enqueued has run. */
int link_settle(struct zinf_link *link);
int link_wait(struct zinf_link *link);

#endif
