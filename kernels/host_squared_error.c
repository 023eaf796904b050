/* host_squared_error: the loss of one number a row. Rows are samples: there are few. */
#include "kernels/host.h"

#include <math.h>

int host_squared_error(struct zinf_queue *q, const struct zinf_squared_error *args)
{
    int code = check_squared_error(args);
    (void)q;
    for (int64_t i = 0; !code && i < args->rows; i++) {
        const float away = isnan(args->labels[i]) ? 0.0f : args->x[i] - args->labels[i];
        if (args->loss)
            args->loss[i] = away * away;
        if (args->dx)
            args->dx[i] = 2.0f * args->scale * away;
    }
    return code;
}
