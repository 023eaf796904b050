/* copy: the stand-in's copies and fills, which run late like everything else. */
#include "standin.h"

#include <stdlib.h>
#include <string.h>

struct copy {
    void *dst;
    const void *src;
    void *snapshot; /* freed after the copy */
    size_t bytes;
    const void *host; /* must still be registered when the copy runs; NULL: none */
    int value;
    bool to_device, within; /* from the host; from the device too */
};

static void run_copy(void *payload)
{
    struct copy *c = payload;
    standin_nccl_check(c->dst, c->src, c->bytes);
    if (c->host && !standin_registered(c->host, c->bytes))
        standin_fault(cudaErrorInvalidValue, "host memory unregistered before its copy ran");
    else
        memcpy(c->dst, c->src, c->bytes);
    if (standin_watch && c->within)
        standin_watch->copied(c->dst, c->src, c->bytes);
    else if (standin_watch && c->to_device)
        standin_watch->written(c->dst, c->bytes);
    free(c->snapshot);
}

static void run_fill(void *payload)
{
    struct copy *c = payload;
    standin_nccl_check(c->dst, NULL, c->bytes);
    memset(c->dst, c->value, c->bytes);
    if (standin_watch)
        standin_watch->written(c->dst, c->bytes);
}

static bool to_device(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
}

static bool from_device(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
}

static cudaError_t check_copy(struct copy *c, enum cudaMemcpyKind kind)
{
    c->to_device = kind == cudaMemcpyHostToDevice;
    c->within = kind == cudaMemcpyDeviceToDevice;
    if (to_device(kind) != standin_on_device(c->dst, c->bytes) ||
        from_device(kind) != standin_on_device(c->src, c->bytes))
        return standin_fault(cudaErrorInvalidValue,
                             "a copy of kind %d and %zu bytes that does not "
                             "lie where its kind says",
                             (int)kind, c->bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    STANDIN_CALL;
    struct copy c = {.dst = dst, .src = src, .bytes = bytes};
    cudaError_t error = check_copy(&c, kind);
    if (error)
        return error;
    if (kind != cudaMemcpyDeviceToDevice) {
        c.host = kind == cudaMemcpyHostToDevice ? src : dst;
        if (!standin_registered(c.host, bytes))
            return standin_fault(cudaErrorInvalidValue,
                                 "an asynchronous copy of %zu bytes of unregistered memory", bytes);
    }
    return standin_enqueue(stream, run_copy, &c, sizeof c);
}

/* On the legacy stream: a source on the host has been read when this returns, but need not be on
 * the device; a destination on the host has been written. */
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    STANDIN_CALL;
    struct copy c = {.dst = dst, .src = src, .bytes = bytes};
    cudaError_t error = check_copy(&c, kind);
    if (error)
        return error;
    if (kind == cudaMemcpyHostToDevice) {
        c.snapshot = malloc(bytes);
        memcpy(c.snapshot, src, bytes);
        c.src = c.snapshot;
    }
    error = standin_enqueue(NULL, run_copy, &c, sizeof c);
    return error || kind == cudaMemcpyHostToDevice ? error : cudaStreamSynchronize(NULL);
}

/* ---- peers ---- */

static bool opened[STANDIN_MOST_GPUS][STANDIN_MOST_GPUS]; /* [by][whose memory] */

void standin_peers_reset(void)
{
    memset(opened, 0, sizeof opened);
}

static bool are_gpus(int a, int b)
{
    int n = standin_options()->gpus;
    return a >= 0 && b >= 0 && a < n && b < n && a != b;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int gpu, int peer)
{
    STANDIN_CALL;
    *can = 0;
    if (!are_gpus(gpu, peer))
        return standin_fault(cudaErrorInvalidDevice, "GPU %d as a peer of GPU %d", peer, gpu);
    *can = !standin_options()->no_peers;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    STANDIN_CALL;
    int gpu = standin_gpu();
    if (flags || !are_gpus(gpu, peer) || standin_options()->no_peers)
        return standin_fault(cudaErrorInvalidDevice, "GPU %d opened as a peer of GPU %d", peer,
                             gpu);
    if (opened[gpu][peer])
        return standin_set_error(cudaErrorPeerAccessAlreadyEnabled);
    opened[gpu][peer] = true;
    return cudaSuccess;
}

/* CUDA would go through RAM where access was not opened; nobody here is to rely on that. */
cudaError_t cudaMemcpyPeerAsync(void *dst, int gpu, const void *src, int peer, size_t bytes,
                                cudaStream_t stream)
{
    STANDIN_CALL;
    struct copy c = {.dst = dst, .src = src, .bytes = bytes, .within = true};
    if (!are_gpus(gpu, peer) || gpu != standin_gpu() || !opened[gpu][peer] ||
        !standin_on_gpu(gpu, dst, bytes) || !standin_on_gpu(peer, src, bytes))
        return standin_fault(
            cudaErrorInvalidValue,
            "a copy of %zu bytes from GPU %d to GPU %d that does not lie there, or "
            "is not opened",
            bytes, peer, gpu);
    return standin_enqueue(stream, run_copy, &c, sizeof c);
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    STANDIN_CALL;
    struct copy c = {.dst = dst, .bytes = bytes, .value = value};
    if (!standin_on_device(dst, bytes))
        return standin_fault(cudaErrorInvalidValue, "a fill of %zu bytes outside device memory",
                             bytes);
    return standin_enqueue(stream, run_fill, &c, sizeof c);
}
