/*
 * order: what the thread sanitizer is told of order on the stand-in. Each stream is a thread of
 * its own to it, so that what a stream does races with whatever
 * no event orders, on the host or on another stream. Order is made by tokens alone: enqueueing,
 * an event's record and wait, and the host's waits. Without the sanitizer all of it does nothing.
 *
 * These files are compiled without instrumentation, and the lock is a futex of their own: a mutex
 * that the sanitizer knows would order every caller after every other and hide what is missing.
 */
#ifndef STANDIN_ORDER_H
#define STANDIN_ORDER_H

#include <stdbool.h>
#include <stddef.h>

/* For any thread; the same thread may take it again. */
void order_lock(void);
void order_unlock(void);
/* Lets others have it for a moment, if this thread has taken it once. */
bool order_pause(void);

/* Memory of zeros for what these files keep themselves, by whichever thread: the sanitizer takes no
 * notice of it. */
void *order_take(size_t bytes);
void order_give(void *memory);

/* Whether there is a sanitizer to tell. */
bool order_is_watched(void);

/* A stream as the sanitizer knows it. */
struct order_stream;
struct order_stream *order_open(void);
void order_close(struct order_stream *stream);
/* Does something as the stream, after what the host has done so far. */
void order_run(struct order_stream *stream, void (*run)(void *), void *argument);
/* What the stream has done so far, as a token; the one in *token is given up. */
void order_record(struct order_stream *stream, void **token);
/* What the host's thread has done so far, as a new token. */
void order_record_host(void **token);
/* The stream, or the host's thread, goes on after what a token stands for. */
void order_wait(struct order_stream *stream, void *token);
void order_wait_host(void *token);
void order_drop(void *token);

#endif
