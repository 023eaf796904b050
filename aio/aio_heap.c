/*
 * aio_heap: requests with blocks still to issue, the most urgent first, then the oldest. A heap in
 * the queue's own array, so that nothing is allocated where requests come and go.
 */
#include "aio/aio_queue.h"

static bool goes_before(const struct waiting *a, const struct waiting *b)
{
    if (a->request->priority != b->request->priority)
        return a->request->priority > b->request->priority;
    return a->age < b->age;
}

void aio_heap_push(struct zinf_aio_queue *queue, struct zinf_aio_request *request)
{
    struct waiting item = {request, queue->next_age++};
    uint32_t at = queue->n_waiting++;
    for (; at; at = (at - 1) / 2) {
        struct waiting *parent = &queue->waiting[(at - 1) / 2];
        if (!goes_before(&item, parent))
            break;
        queue->waiting[at] = *parent;
    }
    queue->waiting[at] = item;
}

void aio_heap_pop(struct zinf_aio_queue *queue)
{
    struct waiting item = queue->waiting[--queue->n_waiting];
    uint32_t at = 0, n = queue->n_waiting;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && goes_before(&queue->waiting[child + 1], &queue->waiting[child]))
            child++;
        if (!goes_before(&queue->waiting[child], &item))
            break;
        queue->waiting[at] = queue->waiting[child];
        at = child;
    }
    queue->waiting[at] = item;
}
