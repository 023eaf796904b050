/* frame_choice: operations of stages whose rows choose among visits, and the lists of rows that
 * follow from a choice. As in frame_ops.c they are enqueued or counted. */
#include "model/frame_cost.h"

static const struct zinf_device_ops *ops_of(const struct zinf_frame *f)
{
    return f->compute->device->ops;
}

static double route_bytes(const struct zinf_route *args)
{
    return (double)args->rows * (double)args->cols * (double)sizeof(float);
}

int frame_route(struct zinf_frame *f, const struct zinf_route *args)
{
    return frame_counts(f, 2 * route_bytes(args)) ? 0 : ops_of(f)->route_forward(f->queue, args);
}

int frame_route_backward(struct zinf_frame *f, const struct zinf_route *args)
{
    return frame_counts(f, 4 * route_bytes(args)) ? 0 : ops_of(f)->route_backward(f->queue, args);
}

int frame_shares(struct zinf_frame *f, const struct zinf_shares *args)
{
    double n = (double)(args->samples * args->seq) * (double)args->cols;
    return frame_counts(f, 2 * n * (double)sizeof(float)) ? 0
                                                          : ops_of(f)->route_shares(f->queue, args);
}

int frame_balance(struct zinf_frame *f, const struct zinf_balance *args)
{
    double n = (double)args->samples * (double)args->cols;
    return frame_counts(f, 2 * n * (double)sizeof(float))
               ? 0
               : ops_of(f)->route_balance(f->queue, args);
}

static double rows_bytes(const struct zinf_rows *args, int reads_y)
{
    uint64_t x = zinf_dtype_bytes(args->x_dtype), y = zinf_dtype_bytes(args->y_dtype);
    return (double)args->n * (double)args->cols * (double)(x + y + (reads_y ? y : 0));
}

int frame_gather(struct zinf_frame *f, const struct zinf_rows *args)
{
    return frame_counts(f, rows_bytes(args, 0)) ? 0 : ops_of(f)->gather_rows(f->queue, args);
}

int frame_scatter(struct zinf_frame *f, const struct zinf_rows *args)
{
    return frame_counts(f, rows_bytes(args, 1)) ? 0 : ops_of(f)->scatter_rows(f->queue, args);
}

int frame_weigh(struct zinf_frame *f, const struct zinf_weigh *args)
{
    double bytes = (double)args->n * (double)args->cols * (double)zinf_dtype_bytes(args->dtype);
    return frame_counts(f, 4 * bytes) ? 0 : ops_of(f)->weigh_rows(f->queue, args);
}

/* ---- lists ---- */

/* NaN counts as chosen, so that a step that overflows goes on to its end. */
static bool chose(const float *value, uint64_t row, uint32_t n_visits, uint32_t visit)
{
    return !(value[row * n_visits + visit] < 0);
}

int zinf_choice_list(int32_t *list, const struct zinf_stage *stage, const float *value,
                     uint64_t rows)
{
    uint32_t n_visits = stage->sweep.n;
    int32_t *next = list + n_visits + 1;
    for (uint64_t row = 0; row < rows; row++) {
        uint32_t n = 0;
        for (uint32_t v = 0; v < n_visits; v++)
            n += chose(value, row, n_visits, v);
        if (n != stage->choice.n)
            return zinf_fail(-EINVAL, "stage %s: row %llu takes %u visits of %u, not %u",
                             stage->name, (unsigned long long)row, n, n_visits, stage->choice.n);
    }
    for (uint32_t v = 0; v < n_visits; v++) {
        list[v] = (int32_t)(next - list) - (int32_t)(n_visits + 1);
        for (uint64_t row = 0; row < rows; row++)
            if (chose(value, row, n_visits, v))
                *next++ = (int32_t)row;
    }
    list[n_visits] = (int32_t)(next - list) - (int32_t)(n_visits + 1);
    return 0;
}
