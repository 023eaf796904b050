/*
 * cuda_twin: the host device and the CUDA device side by side. A pair is one tensor on both: an
 * operation is given the host's pointers, then the GPU's, and the results are compared. Compiled
 * with CUDA_STANDIN the GPU is tests/cuda_standin and every operation runs late and in random
 * order; without, it is the machine's own, and the cases are skipped where there is none.
 */
#ifndef ZINF_CUDA_TWIN_H
#define ZINF_CUDA_TWIN_H

#include "kernels_testing.h"

#ifndef CUDA_RACES
#define CUDA_RACES false /* whether the thread sanitizer looks on */
#endif

#ifdef CUDA_STANDIN
#include "standin.h"
/* of kernels/cuda/device.h, whose queues are not the host's */
int cuda_device_create(struct zinf_device **out, const struct zinf_device_options *options);
#endif

struct twin {
    struct zinf_device *host, *cuda;
    struct zinf_queue *host_q, *q;
    struct fixture label; /* for check_near's messages */
    void *host_workspace;
    uint64_t workspace_bytes, used; /* of the GPU's arena */
    char *staging;                  /* page-locked */
    uint64_t staging_bytes;
    int n_transfers;
};

enum { SIDE_HOST, SIDE_CUDA, SIDES };

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

UNUSED static bool twin_open_for(struct twin *t, int capability, uint64_t seed)
{
    /* what the sanitizer shadows is several times as large */
    const uint64_t arena = (uint64_t)(CUDA_RACES ? 2 : 80) << 20;
    const uint64_t workspace = arena / 5 * 3;
    memset(t, 0, sizeof *t);
    if (!(t->cuda = twin_open_cuda(capability, seed)))
        return false;
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = 2};
    CHECK(!zinf_device_create(&t->host, &options));
    CHECK(!t->host->ops->queue_create(t->host, ZINF_QUEUE_COMPUTE, &t->host_q));
    t->host_workspace = malloc(WORKSPACE_BYTES);
    t->host->ops->queue_set_workspace(t->host_q, t->host_workspace, WORKSPACE_BYTES);
    CHECKF(!zinf_device_take_memory(t->cuda, arena), "%s", zinf_error());
    CHECKF(!t->cuda->ops->queue_create(t->cuda, ZINF_QUEUE_COMPUTE, &t->q), "%s", zinf_error());
    t->cuda->ops->queue_set_workspace(t->q, t->cuda->memory, workspace);
    t->used = t->workspace_bytes = workspace;
    t->staging_bytes = (uint64_t)8 << 20;
    t->staging = aligned_alloc(4096, t->staging_bytes);
    CHECKF(!t->cuda->ops->host_register(t->cuda, t->staging, t->staging_bytes), "%s", zinf_error());
    snprintf(t->label.name, sizeof t->label.name, "%.40s", t->cuda->name);
    return true;
}

UNUSED static void twin_close(struct twin *t)
{
    t->cuda->ops->host_unregister(t->cuda, t->staging);
    t->cuda->ops->queue_destroy(t->q);
    zinf_device_destroy(t->cuda);
    t->host->ops->queue_destroy(t->host_q);
    zinf_device_destroy(t->host);
    free(t->host_workspace);
    free(t->staging);
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
        twin_close(&t);
#ifndef CUDA_STANDIN
        break;
#endif
    }
}

/* ---- transfers ---- */

/* Through page-locked memory or from where the data lies, in turn: both ways must work. */
UNUSED static void twin_transfer(struct twin *t, void *device, void *host, uint64_t bytes,
                                 bool to_device)
{
    const struct zinf_device_ops *ops = t->cuda->ops;
    bool staged = bytes <= t->staging_bytes && t->n_transfers++ % 2;
    void *from_or_to = staged ? t->staging : host;
    if (staged && to_device)
        memcpy(t->staging, host, bytes);
    CHECKF(!(to_device ? ops->copy_to_device(t->q, device, from_or_to, bytes)
                       : ops->copy_to_host(t->q, from_or_to, device, bytes)),
           "%s", zinf_error());
    CHECKF(!ops->queue_synchronize(t->q), "%s", zinf_error());
    if (staged && !to_device)
        memcpy(host, t->staging, bytes);
}

struct pair {
    struct tensor host;
    void *device;
};

/* The tensor's place on the GPU, with its values; shift elements off alignment. */
UNUSED static struct pair pair_shifted(struct twin *t, struct tensor host, size_t shift)
{
    size_t width = zinf_dtype_bytes(host.dtype), bytes = host.n * width;
    struct pair p = {host, (char *)t->cuda->memory + t->used + shift * width};
    t->used = zinf_align_up(t->used + bytes + shift * width, 256);
    CHECK(t->used <= t->cuda->memory_bytes);
    twin_transfer(t, p.device, host.data, bytes, true);
    return p;
}

UNUSED static struct pair pair_of(struct twin *t, struct tensor host)
{
    return pair_shifted(t, host, 0);
}

UNUSED static void *at(const struct pair *p, int side)
{
    return side == SIDE_HOST ? p->host.data : p->device;
}

/* What the GPU has now. */
UNUSED static struct tensor pair_download(struct twin *t, const struct pair *p)
{
    struct tensor got = tensor_new(p->host.dtype, p->host.n);
    twin_transfer(t, p->device, got.data, got.n * zinf_dtype_bytes(got.dtype), false);
    return got;
}

UNUSED static void pair_check(const char *where, struct twin *t, const struct pair *p,
                              double absolute, double relative)
{
    struct tensor got = pair_download(t, p);
    double *want = tensor_doubles(&p->host);
    /* The same value is right, infinities and NaN too; their difference would be NaN. */
    for (size_t i = 0; i < p->host.n; i++) {
        double is = get(&got, i);
        if (is == want[i] || (isnan(is) && isnan(want[i]))) {
            memset((char *)got.data + i * zinf_dtype_bytes(got.dtype), 0,
                   zinf_dtype_bytes(got.dtype));
            want[i] = 0.0;
        }
    }
    check_near(where, &t->label, &got, want, absolute, relative);
    free(want);
    tensor_free(&got);
}
#define PAIR_CHECK(t, p, absolute, relative) pair_check(TAP_WHERE, t, p, absolute, relative)

/* Frees the host's half; the GPU's is free again at twin_reset(). */
UNUSED static void pair_free(struct pair *p)
{
    tensor_free(&p->host);
}

UNUSED static void twin_reset(struct twin *t)
{
    t->used = t->workspace_bytes;
}

/* Both devices' entries with the same arguments but for their pointers: expression uses ops, q and
 * side. */
#define ON_BOTH(t, expression)                                                                     \
    for (int side = 0; side < SIDES; side++) {                                                     \
        UNUSED const struct zinf_device_ops *ops = side ? (t)->cuda->ops : (t)->host->ops;         \
        UNUSED struct zinf_queue *q = side ? (t)->q : (t)->host_q;                                 \
        CHECKF(!(expression), "%s: %s", side ? "cuda" : "host", zinf_error());                     \
    }

#endif
