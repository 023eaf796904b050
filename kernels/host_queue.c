/* host_queue: queues and events. An operation runs in the caller, so a queue is only its
 * workspace and every event has happened when it is recorded. Also what operations share. */
#include "kernels/host.h"

#include <stdlib.h>

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

int host_slices(const struct host_device *device, uint64_t work)
{
    return work < HOST_PARALLEL_MIN ? 1 : device->device.n_threads;
}

struct host_range host_slice(uint64_t n, uint64_t align, int slice, int n_slices)
{
    uint64_t blocks = (n + align - 1) / align, count = (uint64_t)n_slices;
    uint64_t each = blocks / count, more = blocks % count, k = (uint64_t)slice;
    uint64_t first = (k * each + (k < more ? k : more)) * align;
    uint64_t end = first + (each + (k < more)) * align;
    first = first < n ? first : n;
    end = end < n ? end : n;
    return (struct host_range){first, end - first};
}
