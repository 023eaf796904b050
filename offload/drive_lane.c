/*
 * drive_lane: READ and WRITE. An operation is submitted as soon as the operations that it waits
 * for have ended, so several requests are in flight and the drive's queue stays full. Each
 * operation ends with its own request. The program's order is the priority: an operation that
 * waits longer than planned does not delay those behind it, and is then served before them.
 */
#include "offload/executor.h"

#include <limits.h>
#include <stdlib.h>

#define MAX_UNDER_WAY 16
/* How long to wait for the drive alone while the next operation still waits for another lane. */
#define LOOK_NS 200000u

struct slot {
    struct zinf_aio_request request;
    uint32_t op;
    bool used;
};

struct drive_lane {
    struct zinf_executor *executor;
    enum zinf_lane number;
    struct zinf_aio_queue *queue;
    struct slot slots[MAX_UNDER_WAY];
    int under_way;
    uint64_t busy_since; /* since when something is in flight; 0: nothing is */
};

int drive_lane_create(struct drive_lane **out, struct zinf_executor *e, enum zinf_lane number)
{
    struct drive_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return zinf_fail(-ENOMEM, "no memory for lane %s", zinf_lane_name(number));
    lane->executor = e;
    lane->number = number;
    const struct zinf_aio_queue_options *options =
        number == ZINF_LANE_READ ? &e->options.read_queue : &e->options.write_queue;
    int code = zinf_aio_queue_create(&lane->queue, options);
    if (!code && e->options.register_bytes)
        code = zinf_aio_queue_register(lane->queue, e->options.register_base,
                                       e->options.register_bytes);
    if (code)
        drive_lane_destroy(lane);
    else
        *out = lane;
    return code;
}

void drive_lane_destroy(struct drive_lane *lane)
{
    if (!lane)
        return;
    zinf_aio_queue_destroy(lane->queue);
    free(lane);
}

static struct slot *free_slot(struct drive_lane *lane)
{
    for (int i = 0; i < MAX_UNDER_WAY; i++)
        if (!lane->slots[i].used)
            return &lane->slots[i];
    return NULL;
}

/* Notes that the lane has something in flight from now on, or no longer. */
static void set_busy(struct drive_lane *lane, bool busy, uint64_t now)
{
    struct zinf_executor *e = lane->executor;
    int self = lane->number == ZINF_LANE_READ ? 0 : 1;
    pthread_mutex_lock(&e->lock);
    const uint64_t mine = e->drive_since[self], other = e->drive_since[!self];
    const uint64_t since = mine > other ? mine : other;
    if (!busy && other && now > since) /* the other lane may just have begun */
        e->times.both_drive_seconds += (double)(now - since) * 1e-9;
    e->drive_since[self] = busy ? now : 0;
    pthread_mutex_unlock(&e->lock);
}

static int submit(struct drive_lane *lane, struct slot *slot, uint32_t op)
{
    const struct zinf_program *program = lane->executor->program;
    const struct zinf_op *o = &program->ops[op];
    struct zinf_operand memory;
    if (o->n_at != 1)
        return zinf_fail(-EINVAL,
                         "program %s: operation %u moves between a drive and %u places in memory, "
                         "not one: this is an error in zinf, please report it",
                         program->name, op, o->n_at);
    zinf_program_operands(program, o, &memory);
    slot->op = op;
    slot->request = (struct zinf_aio_request){
        .op = lane->number == ZINF_LANE_READ ? ZINF_AIO_OP_READ : ZINF_AIO_OP_WRITE,
        .store = lane->executor->options.store,
        .extent = o->where->extent,
        .generation = zinf_location_bank(o->where),
        .offset = zinf_location_offset(o->where),
        .bytes = executor_bytes(lane->executor, o),
        .memory = zinf_address(&memory),
        .priority = INT_MAX - (int)op,
        .user = slot,
    };
    if (!lane->under_way) {
        lane->busy_since = zinf_now_ns();
        executor_stalled(lane->executor, op, lane->busy_since);
        set_busy(lane, true, lane->busy_since);
    }
    int code = zinf_aio_submit(lane->queue, &slot->request);
    if (!code) {
        slot->used = true;
        lane->under_way++;
    }
    return code;
}

/* Takes one finished request; false: none finished within timeout. */
static bool reap(struct drive_lane *lane, uint64_t timeout_ns)
{
    struct zinf_aio_request *request = zinf_aio_reap(lane->queue, timeout_ns);
    if (!request)
        return false;
    struct slot *slot = request->user;
    slot->used = false;
    if (--lane->under_way == 0) {
        uint64_t now = zinf_now_ns();
        executor_busy(lane->executor, lane->number, lane->busy_since, now);
        set_busy(lane, false, now);
    }
    if (request->result < 0) {
        const char *message = "the drive failed";
        zinf_aio_queue_error(lane->queue, &message);
        zinf_fail((int)request->result, "%s", message);
        executor_fail(lane->executor, (int)request->result);
        return true;
    }
    executor_done(lane->executor, slot->op, request->begin_ns, request->end_ns);
    return true;
}

static int start(struct drive_lane *lane, uint32_t op)
{
    struct slot *slot;
    if (executor_skip(lane->executor, op))
        return 0;
    while (!(slot = free_slot(lane)))
        reap(lane, UINT64_MAX);
    int code = submit(lane, slot, op);
    if (code)
        executor_fail(lane->executor, code);
    return code;
}

/* The next operations of the lane, in the program's order. */
struct window {
    uint32_t ops[ZINF_DRIVE_WINDOW],
        next; /* next: index in the program of the operation behind the window */
    int n;
};

static void look_ahead(const struct drive_lane *lane, struct window *w)
{
    const struct zinf_program *p = lane->executor->program;
    for (; w->n < ZINF_DRIVE_WINDOW && w->next < p->n_ops; w->next++)
        if (p->ops[w->next].lane == lane->number)
            w->ops[w->n++] = w->next;
}

static void take_out(struct window *w, int i)
{
    w->n--;
    memmove(&w->ops[i], &w->ops[i + 1], (size_t)(w->n - i) * sizeof *w->ops);
}

void drive_lane_run(struct drive_lane *lane)
{
    struct zinf_executor *e = lane->executor;
    struct window w = {.n = 0};
    for (look_ahead(lane, &w); w.n; look_ahead(lane, &w)) {
        int i = executor_pick(e, w.ops, w.n, lane->under_way == 0);
        if (i < 0 && executor_failed(e))
            break;
        if (i < 0) {
            reap(lane, LOOK_NS);
            continue;
        }
        uint32_t op = w.ops[i];
        take_out(&w, i);
        if (start(lane, op))
            break;
    }
    while (lane->under_way)
        reap(lane, UINT64_MAX);
}
