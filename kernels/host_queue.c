/* host_queue: queues and events. An operation runs in the caller, so a queue is only its
 * workspace and every event has happened when it is recorded. Also what operations share. */
#include "kernels/host.h"

#include <stdlib.h>

#include "build-config.h"

struct zinf_event {
    char unused;
};

int host_queue_create(struct zinf_device *device, enum zinf_queue_kind kind,
                      struct zinf_queue **out)
{
    (void)kind;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return zinf_fail(-ENOMEM, "no memory for a queue");
    (*out)->device = (struct host_device *)device;
    return 0;
}

void host_queue_destroy(struct zinf_queue *queue)
{
    free(queue);
}

void host_queue_set_workspace(struct zinf_queue *queue, void *base, uint64_t bytes)
{
    queue->workspace = base;
    queue->workspace_bytes = bytes;
}

int host_queue_synchronize(struct zinf_queue *queue)
{
    (void)queue;
    return 0;
}

int host_event_create(struct zinf_device *device, struct zinf_event **out)
{
    (void)device;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : zinf_fail(-ENOMEM, "no memory for an event");
}

void host_event_destroy(struct zinf_event *event)
{
    free(event);
}

int host_event_record(struct zinf_queue *queue, struct zinf_event *event)
{
    (void)queue;
    (void)event;
    return 0;
}

int host_queue_wait(struct zinf_queue *queue, struct zinf_event *event)
{
    (void)queue;
    (void)event;
    return 0;
}

int host_event_synchronize(struct zinf_event *event)
{
    (void)event;
    return 0;
}

/* ---- shared by the operations ---- */

const struct host_simd *host_simd_of(enum zinf_isa isa)
{
#ifdef ZINF_HAVE_AVX512
    if (isa >= ZINF_ISA_AVX512)
        return &host_simd_avx512;
#endif
#ifdef ZINF_HAVE_AVX2
    if (isa >= ZINF_ISA_AVX2)
        return &host_simd_avx2;
#endif
    (void)isa;
    return &host_simd_scalar;
}

int host_slices(const struct host_device *device, uint64_t work)
{
    return work < HOST_PARALLEL_MIN ? 1 : device->device.n_threads;
}

int host_each_row(const struct zinf_queue *q, int64_t rows, int64_t work, host_row *do_row,
                  const void *args)
{
    const int n_slices = host_slices(q->device, (uint64_t)work);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice((uint64_t)rows, 1, slice, n_slices);
        for (uint64_t i = range.first; i < range.first + range.count; i++)
            do_row(q->device->simd, args, i);
    }
    return 0;
}

int host_each_columns(const struct zinf_queue *q, int64_t cols, int64_t work,
                      host_columns *do_columns, const void *args)
{
    const int n_slices = host_slices(q->device, (uint64_t)work);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice((uint64_t)cols, 16, slice, n_slices);
        for (uint64_t done = 0; done < range.count; done += HOST_COLUMNS) {
            uint64_t left = range.count - done;
            struct host_range part = {range.first + done,
                                      left < HOST_COLUMNS ? left : HOST_COLUMNS};
            do_columns(q->device->simd, args, part);
        }
    }
    return 0;
}
