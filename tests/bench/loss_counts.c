/*
 * loss_counts: makes the loss of eight rows of so many logits and its gradients in bf16 on the CUDA
 * device, whose interpreter counts what that takes: see cuda_counts.sh.
 *
 *   loss_counts COLUMNS [CAP]
 */
#include "cuda_twin.h"

enum { ROWS = 8, ROW_ALIGN = 64 }; /* no warp without rows */

static int count(struct twin *t, int64_t cols, float cap)
{
    const int64_t ld = (int64_t)zinf_align_up((uint64_t)cols, ROW_ALIGN);
    struct pair logits = pair_of(t, tensor_random(ZINF_DTYPE_F32, (size_t)(ROWS * ld), 1, 4.0f));
    struct pair targets = pair_of(t, tensor_new(ZINF_DTYPE_F32, ROWS)); /* zeros */
    struct pair rows = pair_of(t, tensor_new(ZINF_DTYPE_F32, (size_t)4 * ROWS));
    float *of_rows = rows.device;
    const struct zinf_cross_entropy a = {.rows = ROWS,
                                         .cols = cols,
                                         .ld = ld,
                                         .softcap = cap,
                                         .scale = 1.0f,
                                         .d_dtype = ZINF_DTYPE_BF16,
                                         .logits = logits.device,
                                         .targets = targets.device,
                                         .max = of_rows,
                                         .sum = of_rows + ROWS,
                                         .target_logit = of_rows + 2 * ROWS,
                                         .loss = of_rows + 3 * ROWS};
    const struct zinf_device_ops *ops = t->cuda->ops;
    int code = ops->cross_entropy_start(t->q, &a);
    code = code ? code : ops->cross_entropy_update(t->q, &a);
    code = code ? code : ops->cross_entropy_finish(t->q, &a);
    code = code ? code : ops->cross_entropy_backward(t->q, &a);
    code = code ? code : ops->queue_synchronize(t->q);
    return code;
}

int main(int argc, char **argv)
{
    const int64_t cols = argc > 1 ? atoll(argv[1]) : 0;
    struct twin t;
    if (cols < 1 || !twin_open_for(&t, 80, 1)) {
        fprintf(stderr, "usage: loss_counts COLUMNS [CAP], with a CUDA device\n");
        return 1;
    }
    const int code = count(&t, cols, argc > 2 ? (float)atof(argv[2]) : 0.0f);
    if (code)
        fprintf(stderr, "%s\n", zinf_error());
    twin_end(&t);
    return code != 0;
}
