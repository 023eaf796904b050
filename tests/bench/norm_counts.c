/*
 * norm_counts: makes norms in bf16 of four million numbers in rows of so many, their gradients with
 * and without those of the weights, and a sum with its norm on the CUDA device, whose interpreter
 * counts what that takes: see cuda_counts.sh. One operation a run, as ZINF_PTX_RECORD counts all.
 *
 *   norm_counts COLUMNS forward|gradient|dx|sum layer|rms
 */
#include "cuda_twin.h"

enum { ELEMS = 1 << 22 };

static int run(struct twin *t, const char *what, struct zinf_norm *a, void *x)
{
    const struct zinf_device_ops *ops = t->cuda->ops;
    struct zinf_residual sum = {.dtype = a->dtype, .n = a->rows * a->cols};
    if (!strcmp(what, "forward"))
        return ops->norm_forward(t->q, a);
    if (!strcmp(what, "dx"))
        a->dw = a->db = NULL;
    if (strcmp(what, "sum") != 0)
        return ops->norm_backward(t->q, a);
    sum.x = sum.y = x, sum.r = a->dy;
    return ops->residual_norm(t->q, &sum, a);
}

static int count(struct twin *t, int64_t cols, const char *what, bool centred)
{
    const int64_t rows = ELEMS / cols;
    const size_t n = (size_t)(rows * cols);
    struct pair x = pair_of(t, tensor_random(ZINF_DTYPE_BF16, n, 1, 1.0f));
    struct pair dy = pair_of(t, tensor_random(ZINF_DTYPE_BF16, n, 2, 1.0f));
    struct pair y = pair_of(t, tensor_random(ZINF_DTYPE_BF16, n, 4, 1.0f));
    struct pair w = pair_of(t, tensor_random(ZINF_DTYPE_BF16, (size_t)cols, 5, 1.0f));
    struct pair of_rows = pair_of(t, tensor_random(ZINF_DTYPE_F32, (size_t)(2 * rows), 6, 1.0f));
    struct pair sums = pair_of(t, tensor_random(ZINF_DTYPE_F32, (size_t)(2 * cols), 7, 1.0f));
    struct zinf_norm a = {.kind = centred ? ZINF_NORM_LAYER : ZINF_NORM_RMS,
                          .dtype = ZINF_DTYPE_BF16,
                          .rows = rows,
                          .cols = cols,
                          .eps = 1e-5f,
                          .x = x.device,
                          .w = w.device,
                          .b = centred ? w.device : NULL,
                          .y = y.device,
                          .dy = dy.device,
                          .dx = y.device,
                          .mean = of_rows.device,
                          .rstd = (float *)of_rows.device + rows,
                          .dw = sums.device,
                          .db = centred ? (float *)sums.device + cols : NULL};
    int code = run(t, what, &a, x.device);
    code = code ? code : t->cuda->ops->queue_synchronize(t->q);
    return code;
}

int main(int argc, char **argv)
{
    const int64_t cols = argc == 4 ? atoll(argv[1]) : 0;
    struct twin t;
    if (cols < 1 || cols > ELEMS || !twin_open_for(&t, 80, 1)) {
        fprintf(stderr, "usage: norm_counts COLUMNS forward|gradient|dx|sum layer|rms, with a CUDA "
                        "device\n");
        return 1;
    }
    const int code = count(&t, cols, argv[2], !strcmp(argv[3], "layer"));
    if (code)
        fprintf(stderr, "%s\n", zinf_error());
    twin_end(&t);
    return code != 0;
}
