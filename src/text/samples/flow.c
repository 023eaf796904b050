/*
 * flow: groups of windows on a list, which a thread makes ahead and steps use up. A step of one of
 * several seats may still be at its windows while another seat asks for those of the next step, so
 * that a group stays for two steps behind the last window that was asked for.
 */
#include "text/samples/flow_private.h"

#include "base/pulse.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define KEPT_STEPS 2      /* behind the last window that was asked for */
#define AHEAD_STEPS 1     /* before it */
#define LOOK_NS 100000000 /* between two signs of life of who waits */

struct group {
    struct group *next;
    struct zinf_dataset *data;
    uint64_t n;
    struct zinf_flow_mark begin;
    uint64_t sum; /* of the rows up to its end */
};

struct flow {
    uint64_t step, limit;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what is below, and the windows while they are read */
    pthread_cond_t changed;
    struct flow_maker *maker; /* the thread's, once that has started */
    bool started, quits, ended;
    int failure;
    char why[1024];
    struct group *first, *last;
    struct zinf_flow_mark end; /* of all groups; end.first: windows before it */
    uint64_t asked;            /* windows up to the last that was asked for */
};

static uint64_t above(uint64_t a, uint64_t b, uint64_t times)
{
    return b < (UINT64_MAX - a) / times ? a + b * times : UINT64_MAX;
}

/* ---- the thread ---- */

static bool is_used_up(const struct flow *flow, const struct group *group)
{
    return above(group->begin.first + group->n, flow->step, KEPT_STEPS) < flow->asked;
}

static void drop_first(struct flow *flow)
{
    struct group *group = flow->first;
    flow->first = group->next;
    if (!flow->first)
        flow->last = NULL;
    zinf_dataset_close(group->data);
    free(group);
}

static int append(struct flow *flow, struct zinf_dataset *data, const struct zinf_flow_mark *end)
{
    struct group *group = calloc(1, sizeof *group);
    if (!group) {
        zinf_dataset_close(data);
        return zinf_fail(-ENOMEM, "no memory for a group of rows");
    }
    *group = (struct group){.data = data,
                            .n = zinf_dataset_n_windows(data),
                            .begin = flow->end,
                            .sum = flow_maker_sum(flow->maker)};
    *(flow->last ? &flow->last->next : &flow->first) = group;
    flow->last = group;
    flow->end = *end;
    flow->end.first = group->begin.first + group->n;
    while (flow->first && is_used_up(flow, flow->first))
        drop_first(flow);
    return 0;
}

/* -EAGAIN of a source, such as a pipe that does not block, is none of reaches: that would be asked
 * again for ever. */
static void note(struct flow *flow, int code)
{
    flow->failure = code == -EAGAIN ? -EIO : code;
    if (code)
        snprintf(flow->why, sizeof flow->why, "%s", zinf_error());
}

static bool is_far_enough(const struct flow *flow)
{
    const uint64_t made = flow->end.first;
    return made >= flow->asked &&
           (made >= flow->limit || made >= above(flow->asked, flow->step, AHEAD_STEPS));
}

static void *make_groups(void *arg)
{
    struct flow *flow = arg;
    int code = flow_maker_go_to(flow->maker, &flow->end);
    pthread_mutex_lock(&flow->lock);
    note(flow, code);
    while (!flow->quits && !flow->failure && !flow->ended) {
        struct zinf_dataset *data = NULL;
        struct zinf_flow_mark end;
        if (is_far_enough(flow)) {
            pthread_cond_wait(&flow->changed, &flow->lock);
            continue;
        }
        pthread_mutex_unlock(&flow->lock);
        code = flow_maker_next(flow->maker, &data, &end);
        pthread_mutex_lock(&flow->lock);
        flow->ended = !code && !data;
        if (data)
            code = append(flow, data, &end);
        note(flow, flow->quits ? 0 : code);
        pthread_cond_broadcast(&flow->changed);
    }
    pthread_cond_broadcast(&flow->changed);
    pthread_mutex_unlock(&flow->lock);
    return NULL;
}

/* Signals are for the threads of the caller. Under the lock. */
static int start(struct flow *flow)
{
    sigset_t all, before;
    if (flow->started)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&flow->thread, NULL, make_groups, flow);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return zinf_fail(-error, "cannot start a thread that takes rows: %s", strerror(error));
    flow->started = true;
    return 0;
}

/* ---- windows ---- */

static int wait_a_while(struct flow *flow)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&flow->changed, &flow->lock, &until);
    return zinf_pulse_beat();
}

/* Until there are windows up to end, or never will be, or it is later than that; what is missing is
 * up to the caller. */
static int wait_for(struct flow *flow, uint64_t end, uint64_t until_ns)
{
    int code = flow->quits ? 0 : start(flow);
    if (flow->asked < end) {
        flow->asked = end;
        pthread_cond_broadcast(&flow->changed);
    }
    while (!code && flow->end.first < end && !flow->failure && !flow->ended && !flow->quits &&
           zinf_now_ns() < until_ns)
        code = wait_a_while(flow);
    if (!code && flow->failure && flow->end.first < end)
        code = zinf_fail(flow->failure, "%s", flow->why);
    return code;
}

/* Under the lock. */
static int find(struct flow *flow, uint64_t position, const struct group **out)
{
    int code = wait_for(flow, position + 1, UINT64_MAX);
    const struct group *group = flow->first;
    if (code)
        return code;
    while (group && group->begin.first + group->n <= position)
        group = group->next;
    if (group && group->begin.first <= position) {
        *out = group;
        return 0;
    }
    return group ? zinf_fail(-EINVAL, "window %llu is gone: rows are read once",
                             (unsigned long long)position)
                 : zinf_fail(-ENODATA, "the rows ended after %llu windows",
                             (unsigned long long)flow->end.first);
}

static int fill(void *arg, uint64_t position, const struct zinf_window *window)
{
    struct flow *flow = arg;
    const struct group *group = NULL;
    pthread_mutex_lock(&flow->lock);
    int code = find(flow, position, &group);
    if (!code)
        code = zinf_dataset_fill(group->data, position - group->begin.first, window);
    pthread_mutex_unlock(&flow->lock);
    return code;
}

static struct zinf_window_rows rows_of(void *arg, uint64_t position)
{
    struct flow *flow = arg;
    const struct group *group = NULL;
    struct zinf_window_rows rows = {0, 0};
    pthread_mutex_lock(&flow->lock);
    if (!find(flow, position, &group))
        rows = zinf_dataset_window_rows(group->data, position - group->begin.first);
    pthread_mutex_unlock(&flow->lock);
    return rows;
}

static void go_on(void *arg, const struct zinf_flow_mark *mark)
{
    struct flow *flow = arg;
    pthread_mutex_lock(&flow->lock);
    if (!flow->started)
        flow->end = *mark;
    pthread_mutex_unlock(&flow->lock);
}

static struct zinf_flow_mark mark_at(void *arg, uint64_t position)
{
    struct flow *flow = arg;
    pthread_mutex_lock(&flow->lock);
    const struct group *group = flow->first;
    while (group && group->begin.first + group->n <= position)
        group = group->next;
    const struct zinf_flow_mark mark = group ? group->begin : flow->end;
    pthread_mutex_unlock(&flow->lock);
    return mark;
}

static uint64_t sum_at(const struct flow *flow, uint64_t end)
{
    const struct group *group = flow->first;
    while (group && group->begin.first + group->n < end)
        group = group->next;
    return group ? group->sum : 0;
}

static int reaches(void *arg, uint64_t end, uint64_t wait_ns, uint64_t *sum)
{
    struct flow *flow = arg;
    const uint64_t now = zinf_now_ns();
    pthread_mutex_lock(&flow->lock);
    int code = wait_for(flow, end, wait_ns < UINT64_MAX - now ? now + wait_ns : UINT64_MAX);
    const bool there = flow->end.first >= end;
    *sum = there ? sum_at(flow, end) : 0;
    if (!code && !there && !flow->ended && !flow->quits)
        code = zinf_fail(-EAGAIN, "the rows have not come yet");
    if (!code)
        code = there;
    pthread_mutex_unlock(&flow->lock);
    return code;
}

/* ---- open and close ---- */

static void stop(void *arg)
{
    struct flow *flow = arg;
    pthread_mutex_lock(&flow->lock);
    const bool runs = flow->started && !flow->quits;
    flow->quits = true;
    pthread_cond_broadcast(&flow->changed);
    pthread_mutex_unlock(&flow->lock);
    flow_maker_quit(flow->maker);
    if (runs)
        pthread_join(flow->thread, NULL);
}

static void destroy(void *arg)
{
    struct flow *flow = arg;
    while (flow->first)
        drop_first(flow);
    flow_maker_destroy(flow->maker);
    pthread_cond_destroy(&flow->changed);
    pthread_mutex_destroy(&flow->lock);
    free(flow);
}

int zinf_flow_open(struct zinf_dataset **out, const struct zinf_flow_options *options)
{
    struct flow *flow = calloc(1, sizeof *flow);
    if (!flow)
        return zinf_fail(-ENOMEM, "no memory for a data set");
    flow->step = options->step ? options->step : 1;
    flow->limit = options->limit;
    pthread_mutex_init(&flow->lock, NULL);
    pthread_cond_init(&flow->changed, NULL);
    int code = flow_maker_create(&flow->maker, options);
    if (code) {
        destroy(flow);
        return code;
    }
    return text_dataset_of_flow(out, &(struct text_flow){.stop = stop,
                                                         .close = destroy,
                                                         .fill = fill,
                                                         .rows = rows_of,
                                                         .go_on = go_on,
                                                         .mark = mark_at,
                                                         .reaches = reaches,
                                                         .order = options->key,
                                                         .has_samples = options->open != NULL,
                                                         .arg = flow});
}
