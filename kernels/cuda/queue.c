/*
 * queue: streams, events and copies. A copy from or to memory that is not page-locked would be
 * ordered by the driver in ways of its own; it is made blocking here, which is slow and counted.
 */
#include "kernels/cuda/device.h"

#include <stdlib.h>

/* ---- queues and events ---- */

int cuda_queue_create(struct zinf_device *device, enum zinf_queue_kind kind,
                      struct zinf_queue **out)
{
    struct zinf_queue *q = calloc(1, sizeof *q);
    (void)kind; /* the copy engines are chosen by the direction of a copy */
    *out = NULL;
    if (!q)
        return zinf_fail(-ENOMEM, "no memory for a queue");
    q->device = (struct cuda_device *)device;
    cudaSetDevice(q->device->index);
    cudaError_t error = cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        free(q);
        return cuda_fail(error, "making a stream", 0);
    }
    *out = q;
    return 0;
}

void cuda_queue_destroy(struct zinf_queue *queue)
{
    if (!queue)
        return;
    cudaSetDevice(queue->device->index);
    cudaStreamSynchronize(queue->stream);
    cudaStreamDestroy(queue->stream);
    matmul_plans_destroy(queue->plans);
    free(queue);
}

void cuda_queue_set_workspace(struct zinf_queue *queue, void *base, uint64_t bytes)
{
    queue->workspace = base;
    queue->workspace_bytes = bytes;
}

int cuda_queue_synchronize(struct zinf_queue *queue)
{
    cudaSetDevice(queue->device->index);
    CUDA_RETURN(cudaStreamSynchronize(queue->stream),
                queue->operation ? queue->operation : "waiting for a queue", 0);
    return 0;
}

int cuda_queue_poll(struct zinf_queue *queue)
{
    cudaSetDevice(queue->device->index);
    cudaError_t error = cudaStreamQuery(queue->stream);
    if (error == cudaErrorNotReady) {
        cudaGetLastError(); /* no error, but kept as one */
        return 0;
    }
    CUDA_RETURN(error, queue->operation ? queue->operation : "looking at a queue", 0);
    return 1;
}

int cuda_queue_finish(struct zinf_queue *queue)
{
    cudaSetDevice(queue->device->index);
    CUDA_RETURN(cudaDeviceSynchronize(), "waiting for the GPU", 0);
    return 0;
}

void *cuda_queue_stream(struct zinf_queue *queue)
{
    cudaSetDevice(queue->device->index);
    return queue->stream;
}

int cuda_event_create(struct zinf_device *device, struct zinf_event **out)
{
    struct zinf_event *event = calloc(1, sizeof *event);
    *out = NULL;
    if (!event)
        return zinf_fail(-ENOMEM, "no memory for an event");
    event->device = (struct cuda_device *)device;
    cudaSetDevice(event->device->index);
    /* A waiting thread sleeps: the CPU has updates to make. */
    cudaError_t error =
        cudaEventCreateWithFlags(&event->event, cudaEventDisableTiming | cudaEventBlockingSync);
    if (error != cudaSuccess) {
        free(event);
        return cuda_fail(error, "making an event", 0);
    }
    *out = event;
    return 0;
}

void cuda_event_destroy(struct zinf_event *event)
{
    if (!event)
        return;
    cudaEventDestroy(event->event);
    free(event);
}

int cuda_event_record(struct zinf_queue *queue, struct zinf_event *event)
{
    cudaSetDevice(queue->device->index);
    CUDA_RETURN(cudaEventRecord(event->event, queue->stream), "recording an event", 0);
    return 0;
}

int cuda_queue_wait(struct zinf_queue *queue, struct zinf_event *event)
{
    cudaSetDevice(queue->device->index);
    CUDA_RETURN(cudaStreamWaitEvent(queue->stream, event->event, 0), "making a queue wait", 0);
    return 0;
}

int cuda_event_synchronize(struct zinf_event *event)
{
    cudaSetDevice(event->device->index);
    CUDA_RETURN(cudaEventSynchronize(event->event), "waiting for an event", 0);
    return 0;
}

/* ---- copies ---- */

/* All earlier work of the queue, the copy, and its arrival: cudaMemcpy returns when a host source
 * has been read, which can be before it is on the device. */
static cudaError_t copy_blocking(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes,
                                 enum cudaMemcpyKind kind)
{
    atomic_fetch_add_explicit(&q->device->pageable_copies, 1, memory_order_relaxed);
    zinf_log_once(ZINF_LOG_DEBUG, "cuda pageable copy",
                  "%s: host memory that is not page-locked; such copies do not overlap",
                  q->operation);
    cudaError_t error = cudaStreamSynchronize(q->stream);
    if (error == cudaSuccess)
        error = cudaMemcpy(dst, src, bytes, kind);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(NULL);
    return error;
}

static int copy(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes,
                enum cudaMemcpyKind kind, const char *operation)
{
    const char *from = src;
    char *to = dst;
    cudaError_t error = cudaSuccess;
    if (!bytes)
        return 0;
    queue_enter(q, operation);
    while (bytes && error == cudaSuccess) {
        bool pinned = true;
        uint64_t n = kind == cudaMemcpyDeviceToDevice
                         ? bytes
                         : pinned_part(kind == cudaMemcpyHostToDevice ? from : to, bytes, &pinned);
        error = pinned ? cudaMemcpyAsync(to, from, n, kind, q->stream)
                       : copy_blocking(q, to, from, n, kind);
        from += n;
        to += n;
        bytes -= n;
    }
    return queue_leave(q, error);
}

/* The difference of two counts is what is asked for: no order is needed. */
uint64_t cuda_pageable_copies(const struct zinf_device *device)
{
    const struct cuda_device *cuda = (const struct cuda_device *)device;
    return atomic_load_explicit(&cuda->pageable_copies, memory_order_relaxed);
}

int cuda_copy_to_device(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes)
{
    return copy(q, dst, src, bytes, cudaMemcpyHostToDevice, "copy_to_device");
}

int cuda_copy_to_host(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes)
{
    return copy(q, dst, src, bytes, cudaMemcpyDeviceToHost, "copy_to_host");
}

int cuda_copy(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes)
{
    return dst == src ? 0 : copy(q, dst, src, bytes, cudaMemcpyDeviceToDevice, "copy");
}

int cuda_peer_open(struct zinf_device *device, struct zinf_device *peer)
{
    const struct cuda_device *own = (struct cuda_device *)device;
    const struct cuda_device *other = (struct cuda_device *)peer;
    int can = 0;
    cudaSetDevice(own->index);
    CUDA_RETURN(cudaDeviceCanAccessPeer(&can, own->index, other->index), "asking for a peer", 0);
    if (!can)
        return zinf_fail(-ENOTSUP,
                         "GPU %d does not reach the memory of GPU %d: copies between them go "
                         "through RAM",
                         own->index, other->index);
    cudaError_t error = cudaDeviceEnablePeerAccess(other->index, 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled)
        CUDA_RETURN(error, "opening a peer's memory", 0);
    cudaGetLastError();
    return 0;
}

int cuda_copy_from_peer(struct zinf_queue *q, void *dst, struct zinf_device *peer, const void *src,
                        uint64_t bytes)
{
    const struct cuda_device *other = (struct cuda_device *)peer;
    if (!bytes)
        return 0;
    queue_enter(q, "copy_from_peer");
    return queue_leave(
        q, cudaMemcpyPeerAsync(dst, q->device->index, src, other->index, bytes, q->stream));
}

int cuda_fill_zero(struct zinf_queue *q, void *dst, uint64_t bytes)
{
    if (!bytes)
        return 0;
    queue_enter(q, "fill_zero");
    return queue_leave(q, cudaMemsetAsync(dst, 0, bytes, q->stream));
}
