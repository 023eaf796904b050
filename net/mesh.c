/* mesh: ranks along axes. */
#include "net/mesh.h"

void zinf_mesh_init(struct zinf_mesh *mesh, struct zinf_net *all)
{
    *mesh = (struct zinf_mesh){.all = all && zinf_net_place(all).world > 1 ? all : NULL};
    for (int a = 0; a < ZINF_AXES; a++)
        mesh->at[a].world = 1;
    if (mesh->all)
        mesh->at[ZINF_DATA] = (struct zinf_axis){zinf_net_place(all).rank,
                                                 zinf_net_place(all).world, mesh->all, NULL};
}
