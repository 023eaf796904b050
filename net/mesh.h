/*
 * mesh: the ranks of a training along four axes. A rank has a number on each axis. Ranks that
 * differ on one axis alone have a net of their own. Ranks are numbered in the order PIPE, DATA,
 * CONTEXT, TENSOR: ranks along TENSOR have consecutive numbers, and so usually the fastest
 * connection.
 */
#ifndef ZINF_NET_MESH_H
#define ZINF_NET_MESH_H

#include "net/net.h"

enum zinf_axis_kind {
    ZINF_DATA,    /* ranks have different samples, and a slice of every unit's state each */
    ZINF_TENSOR,  /* ranks have different rows or columns of a unit's tensors */
    ZINF_PIPE,    /* ranks have different layers */
    ZINF_CONTEXT, /* ranks have different parts of each sequence */
    ZINF_AXES,
};
const char *zinf_axis_name(enum zinf_axis_kind axis); /* "data", "tensor", "pipe", "context" */
struct zinf_axis {
    uint32_t rank, world;
    struct zinf_net *net;   /* NULL: the axis has one rank */
    struct zinf_link *link; /* between the GPUs, or NULL; whoever opens it closes it */
};
struct zinf_mesh {
    struct zinf_axis at[ZINF_AXES];
    struct zinf_net *all; /* of all ranks; NULL: there is one rank */
};

/* Makes a rank's mesh. all: a net of all ranks, borrowed; NULL or a net of one rank: there is one
 * rank. worlds: ranks along each axis, where 0 means 1, and for DATA as many as are left; NULL: all
 * 0. All ranks must call it, and zinf_mesh_fini. -EINVAL: the number of ranks does not fit. */
int zinf_mesh_init(struct zinf_mesh *mesh, struct zinf_net *all, const uint32_t worlds[ZINF_AXES]);
/* Cuts the ranks along DATA into groups of n neighbours, which become the ranks along CONTEXT: they
 * share samples, but each keeps slices of its own along DATA. All ranks must call it once. -EINVAL:
 * they cannot be cut so. */
int zinf_mesh_share(struct zinf_mesh *mesh, uint32_t n);
void zinf_mesh_fini(struct zinf_mesh *mesh);

#endif
