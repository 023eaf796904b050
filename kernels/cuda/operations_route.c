/* operations_route: the table's entries of route.cu: checks and the launch, as operations.c. */
#include "kernels/cuda/device.h"

int cuda_route_forward(struct zinf_queue *q, const struct zinf_route *args)
{
    int code = check_route(args, "route_forward");
    if (code || !args->rows)
        return code;
    queue_enter(q, "route_forward");
    return queue_leave(q, launch_route(q->stream, args, false));
}

int cuda_route_backward(struct zinf_queue *q, const struct zinf_route *args)
{
    int code = check_route(args, "route_backward");
    if (code || !args->rows)
        return code;
    queue_enter(q, "route_backward");
    return queue_leave(q, launch_route(q->stream, args, true));
}

int cuda_route_shares(struct zinf_queue *q, const struct zinf_shares *args)
{
    int code = check_shares(args);
    if (code || !args->samples)
        return code;
    queue_enter(q, "route_shares");
    return queue_leave(q, launch_shares(q->stream, args));
}

int cuda_route_balance(struct zinf_queue *q, const struct zinf_balance *args)
{
    int code = check_balance(args);
    if (code || !args->samples)
        return code;
    queue_enter(q, "route_balance");
    return queue_leave(q, launch_balance(q->stream, args));
}

int cuda_gather_rows(struct zinf_queue *q, const struct zinf_rows *args)
{
    int code = check_rows(args, "gather_rows");
    if (code || !args->n)
        return code;
    queue_enter(q, "gather_rows");
    return queue_leave(q, launch_gather(q->stream, args));
}

int cuda_scatter_rows(struct zinf_queue *q, const struct zinf_rows *args)
{
    int code = check_rows(args, "scatter_rows");
    if (code || !args->n)
        return code;
    queue_enter(q, "scatter_rows");
    return queue_leave(q, launch_scatter(q->stream, args));
}

int cuda_weigh_rows(struct zinf_queue *q, const struct zinf_weigh *args)
{
    int code = check_weigh(args);
    if (code || !args->n)
        return code;
    queue_enter(q, "weigh_rows");
    return queue_leave(q, launch_weigh(q->stream, args));
}
