/*
 * cuda_twin: the host device and the CUDA device side by side (cli/doctor/twin.h), for tests.
 * Compiled with CUDA_STANDIN the GPU is tests/cuda_standin and every operation runs late and in
 * random order; without, it is the machine's own, and the cases are skipped where there is none.
 */
#ifndef ZINF_CUDA_TWIN_H
#define ZINF_CUDA_TWIN_H

#include "cli/doctor/cases.h"
#include "kernels_testing.h"

#ifndef CUDA_RACES
#define CUDA_RACES false /* whether the thread sanitizer looks on */
#endif

#ifdef CUDA_STANDIN
#include "standin.h"
/* of kernels/cuda/device.h, whose queues are not the host's */
int cuda_device_create(struct zinf_device **out, const struct zinf_device_options *options);
#endif

static const char *twin_missing; /* why there is no CUDA device */
#ifdef CUDA_STANDIN
static const struct standin_options *twin_machine; /* another than the usual one */
#endif

UNUSED static struct zinf_device *twin_open_cuda(int capability, uint64_t seed)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA};
    struct zinf_device *device = NULL;
#ifdef CUDA_STANDIN
    struct standin_options standin = {0};
    if (twin_machine)
        standin = *twin_machine;
    standin.seed = seed;
    standin.capability = capability;
    standin.at_once = CUDA_RACES;
    standin_start(&standin);
    CHECKF(!cuda_device_create(&device, &options), "%s", zinf_error());
#else
    (void)capability;
    (void)seed;
    twin_missing = zinf_device_cuda_why_not();
    if (!twin_missing)
        CHECKF(!zinf_device_create(&device, &options), "%s", zinf_error());
#endif
    return device;
}

UNUSED static void twin_failed(struct twin *t, const char *text)
{
    tap_check(false, t->cuda->name, "%s", text);
}

UNUSED static bool twin_open_for(struct twin *t, int capability, uint64_t seed)
{
    /* what the sanitizer shadows is several times as large */
    const uint64_t arena = (uint64_t)(CUDA_RACES ? 2 : 80) << 20;
    struct zinf_device *cuda = twin_open_cuda(capability, seed);
    memset(t, 0, sizeof *t);
    t->fail = twin_failed;
    if (!cuda)
        return false;
    CHECKF(!twin_open(t, cuda, arena), "%s", zinf_error());
    CHECK(t->staging_bytes > 0);
    twin_case(t, "the test", "%s", cuda->name);
    return true;
}

UNUSED static void twin_end(struct twin *t)
{
    twin_close(t);
#ifdef CUDA_STANDIN
    CHECKF(!standin_faults(), "%d faults of the stand-in", standin_faults());
    CHECKF(!standin_live(), "%d objects left", standin_live());
#endif
}

/* Runs a check with the GPU; on the stand-in once for each generation of kernels. */
UNUSED static void for_each_cuda(void (*check)(struct twin *t))
{
    static const int capabilities[] = {80, 75};
    for (size_t i = 0; i < sizeof capabilities / sizeof *capabilities; i++) {
        struct twin t;
        if (!twin_open_for(&t, capabilities[i], 1 + i))
            SKIP("%s", twin_missing ? twin_missing : "no CUDA device");
        check(&t);
        twin_end(&t);
#ifndef CUDA_STANDIN
        break;
#endif
    }
}

/* A pair with the tensor's values, which it takes. */
UNUSED static struct pair pair_of(struct twin *t, struct tensor values)
{
    struct pair p = pair_new(t, values.dtype, values.n, 0);
    memcpy(p.host.data, values.data, tensor_bytes(&values));
    pair_upload(t, &p);
    tensor_free(&values);
    return p;
}

#endif
