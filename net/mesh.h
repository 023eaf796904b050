/*
 * mesh: the ranks of a training along four axes. A rank has a number on each axis; the ranks that
 * differ on that one alone meet in a net of their own. They stand in the order PIPE, DATA, CONTEXT,
 * TENSOR: the numbers on the last one are next to each other, so its ranks have the fastest way.
 */
#ifndef ZINF_NET_MESH_H
#define ZINF_NET_MESH_H

#include "net/net.h"

enum zinf_axis_kind {
    ZINF_DATA,    /* samples, and slices of every unit's state */
    ZINF_TENSOR,  /* rows and columns of a unit's tensors */
    ZINF_PIPE,    /* stages of the model */
    ZINF_CONTEXT, /* parts of a sequence */
    ZINF_AXES,
};
const char *zinf_axis_name(enum zinf_axis_kind axis); /* "data", "tensor", "pipe", "context" */
struct zinf_axis {
    uint32_t rank, world;
    struct zinf_net *net;   /* NULL: this rank is alone on it */
    struct zinf_link *link; /* of the GPUs, where there is one; whoever opens it closes it */
};
struct zinf_mesh {
    struct zinf_axis at[ZINF_AXES];
    struct zinf_net *all; /* of all ranks; NULL: there are no others */
};

/* all: borrowed; NULL, or of one rank: this one is alone. worlds: ranks along each axis, 0: 1, and
 * of DATA as many as are left; NULL: all 0. By all ranks together, as fini is; -EINVAL where there
 * are not so many. */
int zinf_mesh_init(struct zinf_mesh *mesh, struct zinf_net *all, const uint32_t worlds[ZINF_AXES]);
/* Cuts the ranks along DATA into groups of n neighbours, which become those along CONTEXT: they
 * share samples, and go on having slices of their own along DATA. By all ranks together, once;
 * -EINVAL where they cannot be cut so. */
int zinf_mesh_share(struct zinf_mesh *mesh, uint32_t n);
void zinf_mesh_fini(struct zinf_mesh *mesh);

#endif
