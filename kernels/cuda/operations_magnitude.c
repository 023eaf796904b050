/* operations_magnitude: the table's entries of magnitude.cu: checks and the launch, as
 * operations.c. */
#include "kernels/cuda/device.h"

int cuda_magnitude(struct zinf_queue *q, const struct zinf_magnitude *args)
{
    int code = check_magnitude(args);
    if (code || !args->rows)
        return code;
    queue_enter(q, "magnitude");
    return queue_leave(q, launch_magnitude(q->stream, args));
}

int cuda_scale_columns(struct zinf_queue *q, const struct zinf_column_scale *args)
{
    int code = check_column_scale(args);
    if (code || !args->rows)
        return code;
    queue_enter(q, "scale_columns");
    return queue_leave(q, launch_scale_columns(q->stream, args));
}

/* No rows: the sums are zeros all the same. */
int cuda_dot_columns(struct zinf_queue *q, const struct zinf_column_dot *args)
{
    int code = check_column_dot(args);
    if (code)
        return code;
    queue_enter(q, "dot_columns");
    return queue_leave(q, launch_dot_columns(q->stream, args));
}
