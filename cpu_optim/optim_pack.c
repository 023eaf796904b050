/*
 * optim_pack: 8-bit moments as fp32 and back, bit for bit. Not a hot path (in checkpoints), so the
 * cells are found as the header states them, in double.
 */
#include "cpu_optim/optim_internal.h"

#include <math.h>

struct pack_job {
    bool second; /* moment2: codes 1 .. 255 */
    void *codes; /* int8_t, or uint8_t of moment2 */
    float *scales, *moment;
    double power[8]; /* [e] 10^(e - L) */
};

static struct pack_job job_of(int which, const void *codes, const float *scales,
                              const float *moment)
{
    struct pack_job job = {.second = which == 2,
                           .codes = (void *)codes, /* the caller's const says what is written */
                           .scales = (float *)scales,
                           .moment = (float *)moment};
    for (int e = 0; e < 8; e++)
        job.power[e] = pow(10, e - (job.second ? 7 : 6));
    return job;
}

static int top_of(const struct pack_job *job)
{
    return job->second ? 7 : 6;
}

static int last_code(const struct pack_job *job)
{
    return job->second ? 255 : 127;
}

/* What code c > 0 stands for, in units of the scale; the last one here as 1. */
static double value_of(const struct pack_job *job, int c)
{
    int e = 31 - __builtin_clz((unsigned)c);
    double size = ldexp(1, e);
    return c == last_code(job) ? 1 : job->power[e] * (0.1 + 0.9 * ((double)c + 0.5 - size) / size);
}

/* The cell of x >= 0. */
static int code_of(const struct pack_job *job, double x)
{
    int e = top_of(job);
    if (x >= 1)
        return last_code(job);
    while (e >= 0 && x < 0.1 * job->power[e])
        e--;
    if (e < 0)
        return job->second ? 1 : 0;
    double size = ldexp(1, e), within = (x / job->power[e] - 0.1) / 0.9 * size;
    return (int)fmin(size + floor(within), 2 * size - 1);
}

static uint64_t block_end(uint64_t begin, uint64_t end)
{
    return end - begin < ZINF_OPTIM_8BIT_BLOCK ? end : begin + ZINF_OPTIM_8BIT_BLOCK;
}

static void unpack_slice(void *arg, uint64_t begin, uint64_t end)
{
    const struct pack_job *job = arg;
    for (uint64_t i = begin; i < end; i++) {
        int c = job->second ? ((const uint8_t *)job->codes)[i] : ((const int8_t *)job->codes)[i];
        double scale = (double)job->scales[i / ZINF_OPTIM_8BIT_BLOCK];
        double value = c ? value_of(job, c < 0 ? -c : c) * scale : 0;
        job->moment[i] = (float)(c < 0 ? -value : value);
    }
}

static void pack_block(const struct pack_job *job, uint64_t begin, uint64_t end)
{
    float *scale = &job->scales[begin / ZINF_OPTIM_8BIT_BLOCK], largest = 0;
    for (uint64_t i = begin; i < end; i++) {
        float x = fabsf(job->moment[i]);
        if (x > largest || x != x)
            largest = x;
        if (x != x)
            break;
    }
    bool small = largest < 0x1p-100f, odd = small || !(largest <= 3.4028235e38f);
    *scale = !odd ? largest : small ? 0 : zinf_bf16_to_f32(0x7fc0);
    for (uint64_t i = begin; i < end; i++) {
        float x = job->moment[i];
        int c = odd ? !small : code_of(job, (double)fabsf(x) / (double)largest);
        if (job->second)
            ((uint8_t *)job->codes)[i] = (uint8_t)c;
        else
            ((int8_t *)job->codes)[i] = (int8_t)(!odd && x < 0 ? -c : c);
    }
}

static void pack_slice(void *arg, uint64_t begin, uint64_t end)
{
    for (uint64_t i = begin; i < end; i = block_end(i, end))
        pack_block(arg, i, block_end(i, end));
}

void zinf_optim_unpack_8bit(float *moment, int which, const void *codes, const float *scales,
                            uint64_t n, int n_threads)
{
    struct pack_job job = job_of(which, codes, scales, moment);
    optim_parallel(n, n_threads, unpack_slice, &job);
}

void zinf_optim_pack_8bit(void *codes, float *scales, int which, const float *moment, uint64_t n,
                          int n_threads)
{
    struct pack_job job = job_of(which, codes, scales, moment);
    optim_parallel(n, n_threads, pack_slice, &job);
}
