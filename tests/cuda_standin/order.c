/* order: a lock that the thread sanitizer does not see, and streams that it takes for threads. */
#include "order.h"
#include "fiber.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of the sanitizer's own library, where the program is linked to it. */
__attribute__((weak)) void *__tsan_get_current_fiber(void);
__attribute__((weak)) void *__tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void *fiber);
__attribute__((weak)) void __tsan_switch_to_fiber(void *fiber, unsigned flags);
__attribute__((weak)) void __tsan_acquire(void *token);
__attribute__((weak)) void __tsan_release(void *token);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char *file, int line);

enum { WITHOUT_ORDER = 1 }; /* of a switch: __tsan_switch_to_fiber_no_sync */

/* ---- the lock ---- */

enum { FREE, TAKEN, AWAITED };
static _Atomic unsigned state;
static _Atomic(pthread_t) owner;
static int depth;

void order_lock(void)
{
    unsigned seen = FREE;
    if (atomic_load_explicit(&owner, memory_order_relaxed) == pthread_self()) {
        depth++;
        return;
    }
    if (!atomic_compare_exchange_strong(&state, &seen, TAKEN))
        while (atomic_exchange(&state, AWAITED) != FREE)
            syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, AWAITED, NULL, NULL, 0);
    atomic_store_explicit(&owner, pthread_self(), memory_order_relaxed);
    depth = 1;
}

void order_unlock(void)
{
    if (--depth)
        return;
    atomic_store_explicit(&owner, (pthread_t)0, memory_order_relaxed);
    if (atomic_exchange(&state, FREE) == AWAITED)
        syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

bool order_pause(void)
{
    enum { PAUSE_US = 50 };
    if (depth > 1)
        return false;
    order_unlock();
    usleep(PAUSE_US);
    order_lock();
    return true;
}

/* ---- memory ---- */

static void ignore(void)
{
    if (AnnotateIgnoreWritesBegin)
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static void notice(void)
{
    if (AnnotateIgnoreWritesEnd)
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}

void *order_take(size_t bytes)
{
    ignore();
    void *memory = calloc(1, bytes);
    notice();
    return memory;
}

void order_give(void *memory)
{
    ignore();
    free(memory);
    notice();
}

/* ---- streams and tokens ---- */

bool order_is_watched(void)
{
    return __tsan_create_fiber != NULL;
}

/* It has a stack of its own: on the host's it would race with the host's next frames. */
struct order_stream {
    void *thread; /* the sanitizer's */
    struct fiber stack, host;
    void (*run)(void *);
    void *argument;
};

static void stream_main(void *argument)
{
    struct order_stream *stream = argument;
    for (;;) {
        stream->run(stream->argument);
        fiber_switch(&stream->stack, &stream->host);
    }
}

struct order_stream *order_open(void)
{
    struct order_stream *stream = order_is_watched() ? calloc(1, sizeof *stream) : NULL;
    if (!stream || fiber_prepare(&stream->stack, stream_main, stream)) {
        free(stream);
        return NULL;
    }
    stream->thread = __tsan_create_fiber(0);
    return stream;
}

void order_close(struct order_stream *stream)
{
    if (!stream)
        return;
    __tsan_destroy_fiber(stream->thread);
    munmap(stream->stack.stack, stream->stack.stack_bytes);
    free(stream);
}

/* A token is an address that the sanitizer keeps a time for. */
static void *new_token(void)
{
    return order_take(sizeof(long));
}

void order_run(struct order_stream *stream, void (*run)(void *), void *argument)
{
    if (!stream) {
        run(argument);
        return;
    }
    void *token = new_token(), *host = __tsan_get_current_fiber();
    stream->run = run;
    stream->argument = argument;
    __tsan_release(token);
    __tsan_switch_to_fiber(stream->thread, WITHOUT_ORDER);
    __tsan_acquire(token);
    fiber_switch(&stream->host, &stream->stack);
    __tsan_switch_to_fiber(host, WITHOUT_ORDER);
    order_give(token);
}

void order_record(struct order_stream *stream, void **token)
{
    if (!stream)
        return;
    void *host = __tsan_get_current_fiber();
    order_drop(*token);
    *token = new_token();
    __tsan_switch_to_fiber(stream->thread, WITHOUT_ORDER);
    __tsan_release(*token);
    __tsan_switch_to_fiber(host, WITHOUT_ORDER);
}

void order_record_host(void **token)
{
    if (!order_is_watched())
        return;
    *token = new_token();
    __tsan_release(*token);
}

void order_wait(struct order_stream *stream, void *token)
{
    if (!stream || !token)
        return;
    void *host = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(stream->thread, WITHOUT_ORDER);
    __tsan_acquire(token);
    __tsan_switch_to_fiber(host, WITHOUT_ORDER);
}

void order_wait_host(void *token)
{
    if (token)
        __tsan_acquire(token);
}

void order_drop(void *token)
{
    order_give(token);
}
