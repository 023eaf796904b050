/* host_noise: uniform noise by counter on a tensor, such as a model's embedded tokens. */
#include "kernels/host.h"

#include "base/random.h"

enum { BLOCK = 4 }; /* numbers that one counter gives */

/* u of n elements from element on. */
static void make_noise(float *u, const struct zinf_dropout *random, uint64_t element, size_t n)
{
    uint64_t have = UINT64_MAX;
    uint32_t words[BLOCK];
    for (size_t i = 0; i < n; i++) {
        const uint64_t block = (element + i) / BLOCK;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), random->step,
                                     random->site};
        if (block != have)
            zinf_philox(counter, random->seed, words);
        have = block;
        u[i] = 2.0f * zinf_uniform(words[(element + i) % BLOCK]) - 1.0f;
    }
}

static void noise_slice(const struct host_simd *simd, const struct zinf_noise *a,
                        struct host_range range)
{
    float buffer[HOST_CHUNK], u[HOST_CHUNK];
    for (uint64_t done = 0; done < range.count; done += HOST_CHUNK) {
        uint64_t i = range.first + done;
        size_t n = range.count - done < HOST_CHUNK ? range.count - done : HOST_CHUNK;
        const float *x = host_read(simd, buffer, a->x, a->dtype, i, n);
        float *y = host_target(buffer, a->x, a->dtype, i);
        make_noise(u, &a->random, a->random.element_first + i, n);
        for (size_t k = 0; k < n; k++)
            y[k] = x[k] + a->magnitude * u[k];
        host_write(simd, y, a->x, a->dtype, i, n);
    }
}

int host_noise(struct zinf_queue *q, const struct zinf_noise *args)
{
    int code = check_noise(args);
    if (code)
        return code;
    int n_slices = host_slices(q->device, (uint64_t)args->n);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++)
        noise_slice(q->device->simd, args,
                    host_slice((uint64_t)args->n, HOST_CHUNK, slice, n_slices));
    return 0;
}
