/*
 * simt: runs a grid block after block, a block's threads as fibers. A thread runs until it comes
 * to a barrier or a warp operation; when all live threads of the block or the warp have come, they
 * go on. Which ready thread is next is random, and at times one warp is let run far ahead.
 */
#include "simt.h"
#include "fiber.h"
#include "order.h"

#include <stdlib.h>

enum { MAX_THREADS = 1024, WARP = 32, WARPS = MAX_THREADS / WARP, MAX_COPIES = 64 };
enum state { READY, AT_BLOCK, AT_WARP, GONE };

/* An asynchronous copy that has not been made. */
struct late_copy {
    void *to;
    const void *from; /* NULL: zeros */
    size_t bytes;
};

struct lane {
    struct fiber fiber;
    enum state state;
    struct simt_index index;
    unsigned n_warp, n_block; /* operations so far; their parity chooses the buffer */
    struct late_copy copies[MAX_COPIES];
    int n_copies;
};

struct simt_index threadIdx, blockIdx, blockDim, gridDim;

static struct lane lanes[MAX_THREADS];
static struct fiber scheduler;
static simt_words exchanged[WARPS][2][WARP];
static bool any_true[2];
static int current, n_lanes;
static void *shared;
static simt_body *body;
static const void *body_args;

void *simt_shared_memory(void)
{
    return shared;
}

int simt_lane(void)
{
    return current % WARP;
}

static void leave(enum state state)
{
    struct lane *lane = &lanes[current];
    lane->state = state;
    fiber_switch(&lane->fiber, &scheduler);
}

bool simt_sync_block(bool predicate)
{
    unsigned parity = lanes[current].n_block++ % 2;
    any_true[parity] |= predicate;
    leave(AT_BLOCK);
    return any_true[parity];
}

const simt_words *simt_sync_warp(const uint32_t *words, int n)
{
    unsigned parity = lanes[current].n_warp++ % 2;
    simt_words *buffer = exchanged[current / WARP][parity];
    memcpy(buffer[current % WARP], words, (size_t)n * sizeof *words);
    leave(AT_WARP);
    return (const simt_words *)buffer;
}

static void make_copy(const struct late_copy *c)
{
    if (c->from)
        memcpy(c->to, c->from, c->bytes);
    else
        memset(c->to, 0, c->bytes);
}

void simt_copy_async(void *to, const void *from, size_t bytes, bool wanted)
{
    struct lane *lane = &lanes[current];
    struct late_copy copy = {to, wanted ? from : NULL, bytes};
    if ((uintptr_t)to % bytes || (wanted && (uintptr_t)from % bytes))
        standin_fault(cudaErrorIllegalAddress, "a copy of %zu bytes that is not aligned", bytes);
    if (lane->n_copies == MAX_COPIES || !standin_random(4))
        make_copy(&copy);
    else
        lane->copies[lane->n_copies++] = copy;
}

void simt_wait_copies(void)
{
    struct lane *lane = &lanes[current];
    while (lane->n_copies)
        make_copy(&lane->copies[--lane->n_copies]);
}

static void thread_main(void *argument)
{
    (void)argument;
    for (;;) {
        body(body_args);
        if (lanes[current].n_copies)
            standin_fault(cudaErrorIllegalAddress, "a copy that no thread waits for");
        lanes[current].n_copies = 0;
        leave(GONE);
    }
}

/* ---- scheduling ---- */

/* How many of n threads from first on are in a state. */
static int count(int first, int n, enum state state)
{
    int found = 0;
    for (int i = first; i < first + n; i++)
        found += lanes[i].state == state;
    return found;
}

static void set_ready(int first, int n, enum state from)
{
    for (int i = first; i < first + n; i++)
        if (lanes[i].state == from)
            lanes[i].state = READY;
}

/* Lets lanes go on whose warp operation all of them have reached. */
static void release_warps(void)
{
    for (int first = 0; first < n_lanes; first += WARP) {
        int n = n_lanes - first < WARP ? n_lanes - first : WARP;
        int waiting = count(first, n, AT_WARP);
        if (!waiting || waiting + count(first, n, GONE) < n)
            continue;
        if (waiting < WARP)
            standin_fault(cudaErrorIllegalAddress, "a warp operation that not all 32 lanes reach");
        set_ready(first, n, AT_WARP);
    }
}

/* The same for the block's barrier; false if it is not complete. */
static bool release_block(void)
{
    int waiting = count(0, n_lanes, AT_BLOCK);
    if (!waiting || waiting + count(0, n_lanes, GONE) < n_lanes)
        return false;
    /* The next barrier's answer begins as false; nobody reads it any more. */
    for (int i = 0; i < n_lanes; i++)
        if (lanes[i].state == AT_BLOCK) {
            any_true[lanes[i].n_block % 2] = false;
            break;
        }
    set_ready(0, n_lanes, AT_BLOCK);
    return true;
}

static void run_lane(int i)
{
    current = i;
    threadIdx = lanes[i].index;
    fiber_switch(&scheduler, &lanes[i].fiber);
}

/* A warp that alone is run as long as it can, so that it gets as far ahead as barriers allow; -1:
 * all warps keep pace. Drawn again at random. */
static int favoured;

static int draw_favoured(const int *ready, int n)
{
    return standin_random(2) ? -1 : ready[standin_random((uint32_t)n)] / WARP;
}

/* Runs ready threads once, in random order: those of the favoured warp, or all. */
static bool run_ready(void)
{
    int ready[MAX_THREADS], n = 0;
    bool waits = true;
    release_warps();
    for (int i = 0; i < n_lanes; i++)
        if (lanes[i].state == READY) {
            ready[n++] = i;
            waits = waits && i / WARP != favoured;
        }
    if (!n)
        return false;
    if (favoured < 0 ? !standin_random(64) : waits)
        favoured = draw_favoured(ready, n);
    for (int i = n; i > 0; i--) {
        int pick = (int)standin_random((uint32_t)i), thread = ready[pick];
        ready[pick] = ready[i - 1];
        if (favoured < 0 || thread / WARP == favoured)
            run_lane(thread);
    }
    return true;
}

static bool run_block(size_t shared_bytes)
{
    any_true[0] = any_true[1] = false;
    favoured = standin_random(2) ? -1 : (int)standin_random((uint32_t)(n_lanes + WARP - 1) / WARP);
    memset(shared, 0xff, shared_bytes);
    for (int i = 0; i < n_lanes; i++) {
        unsigned x = blockDim.x, y = blockDim.y, t = (unsigned)i;
        lanes[i].state = READY;
        lanes[i].n_warp = lanes[i].n_block = 0;
        lanes[i].index = (struct simt_index){t % x, t / x % y, t / x / y};
    }
    while (run_ready() || release_block())
        continue;
    if (count(0, n_lanes, GONE) == n_lanes)
        return true;
    standin_fault(cudaErrorIllegalAddress, "a barrier that not all threads reach");
    return false;
}

/* ---- grids ---- */

struct grid {
    struct simt_index grid, block;
    size_t shared_bytes;
    simt_body *body;
    max_align_t args[];
};

static bool prepare(void)
{
    scheduler.sanitizer = NULL; /* another thread's, it may be */
    for (int i = 0; i < n_lanes; i++)
        if (fiber_prepare(&lanes[i].fiber, thread_main, NULL)) {
            standin_fault(cudaErrorMemoryAllocation, "no memory for fibers");
            return false;
        }
    return true;
}

static void run_grid(void *payload)
{
    struct grid *g = payload;
    uint64_t n_blocks = (uint64_t)g->grid.x * g->grid.y * g->grid.z;
    blockDim = g->block;
    gridDim = g->grid;
    n_lanes = (int)(g->block.x * g->block.y * g->block.z);
    body = g->body;
    body_args = g->args;
    if (standin_options()->gpus > 1)
        order_follow_kernel();
    shared = aligned_alloc(16, (g->shared_bytes + 16) / 16 * 16);
    uint64_t start = n_blocks ? standin_random((uint32_t)n_blocks) : 0;
    bool ok = prepare();
    /* Blocks have no order: begin anywhere. */
    for (uint64_t i = 0; ok && i < n_blocks; i++) {
        uint64_t block = (start + i) % n_blocks;
        blockIdx = (struct simt_index){(unsigned)(block % g->grid.x),
                                       (unsigned)(block / g->grid.x % g->grid.y),
                                       (unsigned)(block / g->grid.x / g->grid.y)};
        ok = run_block(g->shared_bytes);
    }
    free(shared);
    if (standin_options()->gpus > 1)
        order_end_kernel();
    standin_blocks_ran(1);
}

static bool geometry_is_valid(struct simt_index grid, struct simt_index block, size_t shared_bytes)
{
    return grid.x && grid.x <= INT32_MAX && grid.y && grid.y <= 65535 && grid.z &&
           grid.z <= 65535 && block.x && block.y && block.z && block.z <= 64 &&
           (uint64_t)block.x * block.y * block.z <= MAX_THREADS &&
           shared_bytes <= standin_shared_limit();
}

cudaError_t simt_launch(cudaStream_t stream, struct simt_index grid, struct simt_index block,
                        size_t shared_bytes, simt_body *kernel, const void *args, size_t args_bytes)
{
    STANDIN_CALL;
    if (standin_launch_fails())
        return standin_set_error(cudaErrorIllegalAddress);
    if (!geometry_is_valid(grid, block, shared_bytes))
        return standin_fault(cudaErrorInvalidConfiguration,
                             "a grid of %u x %u x %u blocks of %u x %u x %u threads, %zu bytes",
                             grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes);
    if (args_bytes > 4096)
        return standin_fault(cudaErrorInvalidValue, "a kernel with %zu bytes of arguments",
                             args_bytes);
    struct grid *g = calloc(1, sizeof *g + args_bytes);
    *g = (struct grid){grid, block, shared_bytes, kernel};
    memcpy(g->args, args, args_bytes);
    cudaError_t error = standin_enqueue(stream, run_grid, g, sizeof *g + args_bytes);
    free(g);
    return error;
}
