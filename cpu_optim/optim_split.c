/*
 * optim_split: masters between their whole form and their split form. Not a hot path (at start and
 * in checkpoints), so the compiler's vectors serve.
 */
#include "cpu_optim/optim_internal.h"

struct split_job {
    float *master;
    uint16_t *param, *remainder;
};

static void split_slice(void *arg, uint64_t begin, uint64_t end)
{
    const struct split_job *job = arg;
    for (uint64_t i = begin; i < end; i++) {
        float value = job->master[i];
        optim_split_one(job->param + i, job->remainder + i,
                        value != value ? zinf_bf16_to_f32(0x7fc0) : value);
    }
}

static void join_slice(void *arg, uint64_t begin, uint64_t end)
{
    const struct split_job *job = arg;
    for (uint64_t i = begin; i < end; i++)
        job->master[i] = optim_join_one(job->param[i], job->remainder[i]);
}

void zinf_optim_split(uint16_t *param, uint16_t *remainder, const float *master, uint64_t n,
                      int n_threads)
{
    struct split_job job = {(float *)master, param, remainder}; /* master is only read */
    optim_parallel(n, n_threads, split_slice, &job);
}

void zinf_optim_join(float *master, const uint16_t *param, const uint16_t *remainder, uint64_t n,
                     int n_threads)
{
    struct split_job job = {master, (uint16_t *)param, (uint16_t *)remainder}; /* only read */
    optim_parallel(n, n_threads, join_slice, &job);
}
