/* bench_waking: how long a thread that waits takes to go on after another one has woken it, as the
 * lanes of a step wake each other: by a condition, while the one that wakes keeps its CPU busy. */
#include "base/median.h"
#include "cli/bench/bench.h"

#include <pthread.h>

#define ROUNDS 101
/* A lane's work between two operations of another one, of short steps. */
#define BUSY_NS 200000

struct sleeper {
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int asked, answered; /* rounds */
    uint64_t woken_ns;
};

static void *sleep_and_answer(void *argument)
{
    struct sleeper *s = argument;
    pthread_mutex_lock(&s->lock);
    while (s->answered < ROUNDS) {
        while (s->asked == s->answered)
            pthread_cond_wait(&s->changed, &s->lock);
        s->woken_ns = zinf_now_ns();
        s->answered = s->asked;
        pthread_cond_signal(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static double wake(struct sleeper *s)
{
    const uint64_t begin = zinf_now_ns();
    while (zinf_now_ns() < begin + BUSY_NS)
        ;
    pthread_mutex_lock(&s->lock);
    const uint64_t asked_ns = zinf_now_ns();
    s->asked++;
    pthread_cond_signal(&s->changed);
    while (s->answered < s->asked)
        pthread_cond_wait(&s->changed, &s->lock);
    const double seconds = (double)(s->woken_ns - asked_ns) * 1e-9;
    pthread_mutex_unlock(&s->lock);
    return seconds;
}

double bench_waking_seconds(void)
{
    struct sleeper s = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    double rounds[ROUNDS];
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleep_and_answer, &s))
        return 0;
    for (int i = 0; i < ROUNDS; i++)
        rounds[i] = wake(&s);
    pthread_join(thread, NULL);
    return zinf_median(rounds, ROUNDS);
}
