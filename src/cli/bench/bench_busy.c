/*
 * bench_busy: what a drive and the CPUs cost each other. A thread a CPU makes sums of numbers in
 * its own cache, alone and beside transfers, which are made alone as well; all three take turns, so
 * that a drive or a machine that changes its rate changes all of them.
 */
#include "cli/bench/bench_nvme.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define TURNS 2
#define NUMBERS (1 << 16) /* of 4 bytes: a second cache has more */
#define LEAST_SHARE 0.1

struct busy {
    pthread_t thread;
    bool started;
    _Atomic bool *stops;
    uint64_t rounds;
    float *numbers;
};

static void *add_up(void *argument)
{
    struct busy *b = argument;
    while (!atomic_load_explicit(b->stops, memory_order_relaxed)) {
        for (int i = 0; i < NUMBERS; i++)
            b->numbers[i] = b->numbers[i] * 0.999f + 0.001f;
        b->rounds++;
    }
    return NULL;
}

/* One a CPU, which is all or none. */
struct crowd {
    struct busy *threads;
    int n;
    _Atomic bool stops;
    uint64_t begin_ns;
};

/* Returns rounds a second. */
static double crowd_end(struct crowd *c)
{
    const double seconds = (double)(zinf_now_ns() - c->begin_ns) * 1e-9;
    uint64_t rounds = 0;
    atomic_store(&c->stops, true);
    for (int i = 0; i < c->n; i++) {
        if (c->threads[i].started)
            pthread_join(c->threads[i].thread, NULL);
        rounds += c->threads[i].rounds;
        free(c->threads[i].numbers);
    }
    free(c->threads);
    return (double)rounds / seconds;
}

static int crowd_begin(struct crowd *c)
{
    int code = 0;
    *c = (struct crowd){.n = zinf_cpu_count(), .begin_ns = zinf_now_ns()};
    c->threads = calloc((size_t)c->n, sizeof *c->threads);
    if (!c->threads)
        return zinf_fail(-ENOMEM, "no memory for %d threads", c->n);
    for (int i = 0; !code && i < c->n; i++) {
        struct busy *b = &c->threads[i];
        b->stops = &c->stops;
        b->numbers = calloc(NUMBERS, sizeof *b->numbers);
        code = b->numbers ? -pthread_create(&b->thread, NULL, add_up, b) : -ENOMEM;
        b->started = !code;
    }
    if (code) {
        crowd_end(c);
        return zinf_fail(code, "no %d threads that keep the CPUs busy", c->n);
    }
    return 0;
}

static int be_busy_for(double seconds, double *rounds)
{
    const struct timespec time = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    struct crowd crowd;
    const int code = crowd_begin(&crowd);
    if (code)
        return code;
    nanosleep(&time, NULL);
    *rounds = crowd_end(&crowd);
    return 0;
}

/* What is added up over turns: alone and beside each other. */
struct beside {
    double drive[2], rounds[2], bytes, cpu_seconds;
};

static int turn(nvme_run *run, struct nvme_bench *bench,
                const struct zinf_aio_bench_options *options, struct beside *sum)
{
    struct zinf_aio_bench_result alone, both;
    struct crowd crowd;
    double rounds;
    int code = run(bench, options, "beside nothing", &alone);
    if (!code)
        code = be_busy_for(alone.seconds, &rounds);
    if (!code)
        code = crowd_begin(&crowd);
    if (code)
        return code;
    sum->rounds[0] += rounds;
    code = run(bench, options, "beside busy CPUs", &both);
    rounds = crowd_end(&crowd);
    sum->rounds[1] += rounds;
    sum->drive[0] += zinf_aio_bench_rate(&alone);
    sum->drive[1] += zinf_aio_bench_rate(&both);
    sum->bytes += (double)(both.bytes_read + both.bytes_written);
    sum->cpu_seconds += both.seconds * zinf_cpu_count();
    return code;
}

static double share_of(const double rates[2])
{
    return rates[0] > 0 ? fmin(fmax(rates[1] / rates[0], LEAST_SHARE), 1) : 0;
}

int nvme_measure_busy(struct nvme_bench *bench, const struct zinf_aio_bench_options *options,
                      nvme_run *run)
{
    struct beside sum = {{0}, {0}, 0, 0};
    int code = 0;
    for (int i = 0; !code && i < TURNS; i++)
        code = turn(run, bench, options, &sum);
    if (code)
        return code;
    bench->busy_drive = share_of(sum.drive);
    bench->busy_threads = share_of(sum.rounds);
    bench->lost_cpu_per_byte =
        sum.bytes > 0 ? (1 - bench->busy_threads) * sum.cpu_seconds / sum.bytes : 0;
    return 0;
}
