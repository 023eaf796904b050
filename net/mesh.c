/* mesh: ranks along axes, in nets that are split of the one of all. */
#include "net/mesh.h"

const char *zinf_axis_name(enum zinf_axis_kind axis)
{
    static const char *const names[ZINF_AXES] = {
        [ZINF_DATA] = "data",
        [ZINF_TENSOR] = "tensor",
        [ZINF_PIPE] = "pipe",
        [ZINF_CONTEXT] = "context",
    };
    return names[axis];
}

/* The last one's ranks are next to each other. */
static const enum zinf_axis_kind order[ZINF_AXES] = {ZINF_PIPE, ZINF_DATA, ZINF_CONTEXT,
                                                     ZINF_TENSOR};

static int take_worlds(struct zinf_mesh *mesh, const uint32_t worlds[ZINF_AXES], uint32_t all)
{
    uint64_t others = 1;
    for (int a = 0; a < ZINF_AXES; a++) {
        mesh->at[a].world = worlds && worlds[a] ? worlds[a] : 1;
        others *= a == ZINF_DATA ? 1 : mesh->at[a].world;
    }
    if (!worlds || !worlds[ZINF_DATA])
        mesh->at[ZINF_DATA].world = all % others ? 0 : (uint32_t)(all / others);
    if (others * mesh->at[ZINF_DATA].world == all)
        return 0;
    if (worlds && worlds[ZINF_DATA])
        return zinf_fail(-EINVAL,
                         "%u ranks are not %u along axis data x %llu along the others: set "
                         "zinf.mesh.data to 0 or to what they are",
                         all, worlds[ZINF_DATA], (unsigned long long)others);
    return zinf_fail(
        -EINVAL,
        "%u ranks are not %u stages of a pipeline x %u parts of a sequence x %u parts "
        "of a tensor, or a multiple of that: start so many (zinf launch, zinf.seats), or "
        "set zinf.mesh.pipe, zinf.mesh.context and zinf.mesh.tensor to 1",
        all, mesh->at[ZINF_PIPE].world, mesh->at[ZINF_CONTEXT].world, mesh->at[ZINF_TENSOR].world);
}

/* Ranks of an axis that are only thought of; those that are stride apart are on one host or seats
 * of one process as long as that has so many. */
static int describe(const struct zinf_net_place *all, uint32_t stride, struct zinf_axis *axis)
{
    uint32_t local = all->local_world / stride, seats = all->seats / stride;
    local = local > axis->world ? axis->world : local ? local : 1;
    while (axis->world % local)
        local--;
    seats = seats > local ? local : seats ? seats : 1;
    while (local % seats)
        seats--;
    return zinf_net_describe(&axis->net, axis->world, local, seats);
}

int zinf_mesh_init(struct zinf_mesh *mesh, struct zinf_net *all, const uint32_t worlds[ZINF_AXES])
{
    struct zinf_net_place at = {.world = 1};
    uint32_t stride = 1;
    *mesh = (struct zinf_mesh){.all = NULL};
    if (all)
        at = zinf_net_place(all);
    mesh->all = at.world > 1 ? all : NULL;
    int code = take_worlds(mesh, worlds, at.world);
    for (int i = ZINF_AXES; !code && i-- > 0;) {
        struct zinf_axis *axis = &mesh->at[order[i]];
        axis->rank = at.rank / stride % axis->world;
        /* Sums over tensors are made by a thread of their own, beside what else all ranks do. */
        const bool beside = order[i] == ZINF_TENSOR && axis->world > 1;
        if (axis->world == at.world && (!beside || zinf_net_is_described(all)))
            axis->net = mesh->all;
        else if (axis->world > 1 && zinf_net_is_described(all))
            code = describe(&at, stride, axis);
        else if (axis->world > 1)
            code = zinf_net_split(all, at.rank - axis->rank * stride, axis->rank, &axis->net);
        stride *= axis->world;
    }
    if (code)
        zinf_mesh_fini(mesh);
    return code;
}

int zinf_mesh_share(struct zinf_mesh *mesh, uint32_t n)
{
    const struct zinf_axis *data = &mesh->at[ZINF_DATA];
    struct zinf_axis *context = &mesh->at[ZINF_CONTEXT];
    if (n < 2)
        return 0;
    if (data->world % n)
        return zinf_fail(-EINVAL, "%u ranks along axis data are no multiple of %u along context",
                         data->world, n);
    context->rank = data->rank % n;
    context->world = n;
    if (zinf_net_is_described(data->net)) {
        const struct zinf_net_place at = zinf_net_place(data->net);
        return describe(&at, 1, context);
    }
    const uint32_t stride = mesh->at[ZINF_TENSOR].world;
    const uint32_t first = zinf_net_place(mesh->all).rank - context->rank * stride;
    return zinf_net_split(mesh->all, first, context->rank, &context->net);
}

void zinf_mesh_fini(struct zinf_mesh *mesh)
{
    for (int a = 0; a < ZINF_AXES; a++) {
        if (mesh->at[a].net != mesh->all)
            zinf_net_close(mesh->at[a].net);
        mesh->at[a].net = NULL;
    }
}
