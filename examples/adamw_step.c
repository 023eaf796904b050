/*
 * adamw_step: minimise the distance of a million bf16 parameters to known targets, with AdamW on
 * split masters (10 bytes of state a parameter). Shows the whole cycle of one step: look for
 * non-finite gradients, clip by the norm, update.
 *
 *   cc adamw_step.c -o adamw_step $(pkg-config --cflags --libs zinf)
 */
#include <zinf/optim.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 20, STEPS = 200 };

static float target(uint64_t i)
{
    return (float)(i % 1000) * 1e-3f - 0.5f;
}

/* Gradient of sum((param - target)^2) / 2. */
static void compute_gradient(float *grad, const uint16_t *param)
{
    for (uint64_t i = 0; i < N; i++)
        grad[i] = zinf_bf16_to_f32(param[i]) - target(i);
}

int main(void)
{
    int rc = EXIT_FAILURE, threads = zinf_optim_thread_count(0);
    float *moment1 = calloc(N, sizeof *moment1), *moment2 = calloc(N, sizeof *moment2);
    float *grad = malloc(N * sizeof *grad);
    uint16_t *param = calloc(N, sizeof *param), *remainder = calloc(N, sizeof *remainder);
    if (!moment1 || !moment2 || !grad || !param || !remainder) {
        fprintf(stderr, "adamw_step: out of memory\n");
        goto out;
    }
    /* Zero bits are the split form of 0.0; other start values go through zinf_optim_split. */
    for (uint64_t step = 1; step <= STEPS; step++) {
        const float clip = 100;
        compute_gradient(grad, param);
        double norm = sqrt(zinf_optim_sum_squares(grad, ZINF_DTYPE_F32, N, threads));
        struct zinf_optim_hyper hyper = {.kind = ZINF_OPTIM_ADAMW,
                                         .lr = 1e-2f,
                                         .beta1 = 0.9f,
                                         .beta2 = 0.999f,
                                         .eps = 1e-8f,
                                         .bias_correction = true,
                                         .step = step};
        uint64_t bad; /* looked for before anything is changed: the call fails if there is one */
        struct zinf_optim_array array = {.n = N,
                                         .moment1 = moment1,
                                         .moment2 = moment2,
                                         .grad = grad,
                                         .grad_scale = norm > clip ? (float)(clip / norm) : 1,
                                         .param = param,
                                         .param_dtype = ZINF_DTYPE_BF16,
                                         .remainder = remainder,
                                         .nonfinite = &bad};
        if (zinf_optim_step(&hyper, &array, threads)) {
            fprintf(stderr, "adamw_step: %s\n", zinf_error());
            goto out;
        }
        if (step % 50 == 0 || step == 1)
            printf("step %3d  gradient norm %.4f\n", (int)step, norm);
    }
    rc = EXIT_SUCCESS;
out:
    free(remainder);
    free(param);
    free(grad);
    free(moment2);
    free(moment1);
    return rc;
}
