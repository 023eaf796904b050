/*
 * row_thread: rows of a source that may not answer, such as a pipe or a function of the program's
 * own. A thread of its own calls the source, so that who waits for a row can go on without it. A
 * thread whose call does not return is left: it uses this struct and the source alone, and gives
 * both back when the call returns after all.
 */
#include "text/samples/flow.h"

#include "base/pulse.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_NS 100000000u   /* between two signs of life of who waits */
#define LEAVE_NS 1000000000u /* within which a call has to return at the end */

enum call { NO_CALL, NEXT, SKIP };

struct zinf_row_thread {
    struct zinf_row_feed rows;
    void (*release)(void *arg);
    pthread_t thread;
    pthread_mutex_t lock; /* guards what is below */
    pthread_cond_t asked, answered;
    enum call call; /* that has no answer yet */
    uint64_t n;     /* of SKIP */
    const char *row;
    int code;
    char why[1024];
    bool quits; /* nobody waits for answers any more */
    bool over;  /* there are no more calls */
    bool left;  /* the thread is nobody's */
};

static void give_back(struct zinf_row_thread *t)
{
    if (t->release)
        t->release(t->rows.arg);
    pthread_cond_destroy(&t->asked);
    pthread_cond_destroy(&t->answered);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- the thread ---- */

/* The lock is not held while the source is at work. */
static void answer(struct zinf_row_thread *t)
{
    const enum call call = t->call;
    const uint64_t n = t->n;
    const char *row = NULL;
    pthread_mutex_unlock(&t->lock);
    const int code = call == SKIP ? t->rows.skip(t->rows.arg, n) : t->rows.next(t->rows.arg, &row);
    pthread_mutex_lock(&t->lock);
    t->call = NO_CALL;
    t->row = row;
    t->code = code;
    if (code < 0)
        snprintf(t->why, sizeof t->why, "%s", zinf_error());
    pthread_cond_signal(&t->answered);
}

static void *call_source(void *arg)
{
    struct zinf_row_thread *t = arg;
    pthread_mutex_lock(&t->lock);
    while (!t->over)
        if (t->call)
            answer(t);
        else
            pthread_cond_wait(&t->asked, &t->lock);
    t->call = NO_CALL; /* one that came too late */
    pthread_cond_signal(&t->answered);
    const bool left = t->left;
    pthread_mutex_unlock(&t->lock);
    if (left)
        give_back(t);
    return NULL;
}

/* ---- who asks ---- */

/* Until there is an answer, or that time; whether it has come. Under the lock. */
static bool wait_until(struct zinf_row_thread *t, uint64_t ns)
{
    const struct timespec until = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    return pthread_cond_timedwait(&t->answered, &t->lock, &until) == ETIMEDOUT;
}

/* A call whose answer nobody has waited for is the last one. */
static int ask(struct zinf_row_thread *t, enum call call, uint64_t n, const char **row)
{
    int code = 0;
    pthread_mutex_lock(&t->lock);
    if (!t->quits) {
        t->call = call;
        t->n = n;
        pthread_cond_signal(&t->asked);
    }
    while (!code && t->call && !t->quits) {
        wait_until(t, zinf_now_ns() + LOOK_NS);
        code = zinf_pulse_beat();
    }
    t->quits |= code != 0;
    if (!code && t->quits)
        code = zinf_fail(-ECANCELED, "no more rows are asked for");
    else if (!code && t->code < 0)
        code = zinf_fail(t->code, "%s", t->why);
    else if (!code)
        code = t->code;
    if (row)
        *row = t->row;
    pthread_mutex_unlock(&t->lock);
    return code;
}

static int next(void *arg, const char **row)
{
    return ask(arg, NEXT, 0, row);
}

static int skip(void *arg, uint64_t n)
{
    return ask(arg, SKIP, n, NULL);
}

static void quit(void *arg)
{
    struct zinf_row_thread *t = arg;
    pthread_mutex_lock(&t->lock);
    t->quits = true;
    pthread_cond_signal(&t->answered);
    pthread_mutex_unlock(&t->lock);
}

struct zinf_row_feed zinf_row_thread_rows(struct zinf_row_thread *t)
{
    return (struct zinf_row_feed){
        .next = next, .skip = t->rows.skip ? skip : NULL, .quit = quit, .arg = t};
}

/* ---- open and close ---- */

int zinf_row_thread_create(struct zinf_row_thread **out, const struct zinf_row_feed *rows,
                           void (*release)(void *arg))
{
    struct zinf_row_thread *t = calloc(1, sizeof *t);
    pthread_condattr_t monotonic; /* as deadlines are */
    *out = NULL;
    if (!t) {
        if (release)
            release(rows->arg);
        return zinf_fail(-ENOMEM, "no memory for a thread that takes rows");
    }
    t->rows = *rows;
    t->release = release;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->asked, NULL);
    pthread_cond_init(&t->answered, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int error = pthread_create(&t->thread, NULL, call_source, t);
    if (error) {
        give_back(t);
        return zinf_fail(-error, "cannot start a thread that takes rows: %s", strerror(error));
    }
    *out = t;
    return 0;
}

bool zinf_row_thread_destroy(struct zinf_row_thread *t)
{
    if (!t)
        return true;
    const pthread_t thread = t->thread;
    const uint64_t end = zinf_now_ns() + LEAVE_NS;
    pthread_mutex_lock(&t->lock);
    t->quits = t->over = true;
    pthread_cond_signal(&t->asked);
    while (t->call && !wait_until(t, end))
        continue;
    const bool left = t->left = t->call != NO_CALL;
    pthread_mutex_unlock(&t->lock);
    if (left) {
        pthread_detach(thread);
        zinf_log(ZINF_LOG_WARN, "the source of rows has not answered: the thread that asked it is "
                                "left waiting");
        return false;
    }
    pthread_join(thread, NULL);
    give_back(t);
    return true;
}
