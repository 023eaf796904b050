/*
 * kernels_testing: what the tests of the kernels share. A fixture is a host device with a chosen
 * instruction set and thread count, one queue and a workspace; a tensor is an array in a storage
 * type whose values a reference reads back in double, so that rounding of inputs never counts.
 */
#ifndef ZINF_KERNELS_TESTING_H
#define ZINF_KERNELS_TESTING_H

#include "base/random.h"
#include "cli/doctor/tensor.h"
#include "kernels/host.h"
#include "tap.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#define UNUSED __attribute__((unused))

/* ---- devices ---- */

struct fixture {
    struct zinf_device *device;
    const struct zinf_device_ops *ops;
    struct zinf_queue *q;
    void *workspace;
    char name[64];
};

enum { WORKSPACE_BYTES = 64 << 20 };

UNUSED static void fixture_open(struct fixture *f, enum zinf_isa isa, int n_threads)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = n_threads};
    if (zinf_device_create(&f->device, &options) || zinf_device_take_memory(f->device, 1 << 20) ||
        f->device->ops->queue_create(f->device, ZINF_QUEUE_COMPUTE, &f->q)) {
        printf("Bail out! %s\n", zinf_error());
        exit(1);
    }
    host_device_choose((struct host_device *)f->device, isa);
    f->ops = f->device->ops;
    f->workspace = malloc(WORKSPACE_BYTES);
    f->ops->queue_set_workspace(f->q, f->workspace, WORKSPACE_BYTES);
    snprintf(f->name, sizeof f->name, "%s x%d", zinf_isa_name(isa), n_threads);
}

UNUSED static void fixture_close(struct fixture *f)
{
    f->ops->queue_destroy(f->q);
    zinf_device_destroy(f->device);
    free(f->workspace);
}

/* Runs a check on every instruction set of this machine with 1, 2 and 3 threads. */
UNUSED static void for_each_device(void (*check)(struct fixture *f))
{
    for (int isa = ZINF_ISA_SCALAR; isa <= (int)zinf_isa(); isa++)
        for (int n_threads = 1; n_threads <= 3; n_threads++) {
            struct fixture f;
            fixture_open(&f, (enum zinf_isa)isa, n_threads);
            check(&f);
            fixture_close(&f);
        }
}

/* ---- tensors ---- */

UNUSED static struct tensor tensor_new(enum zinf_dtype dtype, size_t n)
{
    return (struct tensor){dtype, n, calloc(n ? n : 1, zinf_dtype_bytes(dtype))};
}

UNUSED static struct tensor tensor_random(enum zinf_dtype dtype, size_t n, uint64_t seed, float std)
{
    struct tensor t = tensor_new(dtype, n);
    float *values = malloc((n ? n : 1) * sizeof *values);
    zinf_normal_fill(values, 0, n, seed, 0, 0.0f, std);
    zinf_convert(t.data, dtype, values, ZINF_DTYPE_F32, n);
    free(values);
    return t;
}

UNUSED static struct tensor tensor_copy(const struct tensor *from)
{
    struct tensor t = tensor_new(from->dtype, from->n);
    memcpy(t.data, from->data, from->n * zinf_dtype_bytes(from->dtype));
    return t;
}

UNUSED static double *tensor_doubles(const struct tensor *t)
{
    double *values = malloc((t->n ? t->n : 1) * sizeof *values);
    for (size_t i = 0; i < t->n; i++)
        values[i] = get(t, i);
    return values;
}

UNUSED static void tensor_free(struct tensor *t)
{
    free(t->data);
    t->data = NULL;
}

/* True (and silent) if got is want within absolute + relative * |want|; NaN never is. */
UNUSED static bool near(double got, double want, double absolute, double relative)
{
    return fabs(got - want) <= absolute + relative * fabs(want);
}

/* One failure line for a whole tensor: the worst element. */
UNUSED static void check_near(const char *where, const struct fixture *f, const struct tensor *got,
                              const double *want, double absolute, double relative)
{
    size_t worst = 0, bad = 0;
    double excess = -1.0;
    for (size_t i = 0; i < got->n; i++) {
        double error = fabs(get(got, i) - want[i]) - absolute - relative * fabs(want[i]);
        bad += !(error <= 0.0);
        if (!(error <= excess)) {
            excess = error;
            worst = i;
        }
    }
    tap_check(!bad, where, "%s %s: %zu of %zu differ; [%zu] is %.9g, want %.9g", f->name,
              zinf_dtype_name(got->dtype), bad, got->n, worst, got->n ? get(got, worst) : 0.0,
              got->n ? want[worst] : 0.0);
}
#define CHECK_NEAR(f, got, want, absolute, relative)                                               \
    check_near(TAP_WHERE, f, got, want, absolute, relative)

/* The contract's dropout factor of element e, spelled out. */
UNUSED static double dropout_factor(const struct zinf_dropout *d, uint64_t e)
{
    uint32_t counter[4] = {(uint32_t)(e / 4), (uint32_t)(e / 4 >> 32), d->step, d->site}, out[4];
    if (d->p == 0.0f)
        return 1.0;
    zinf_philox(counter, d->seed, out);
    return zinf_uniform(out[e % 4]) >= d->p ? (double)(1.0f / (1.0f - d->p)) : 0.0;
}

/* ---- two queues at once ---- */

struct worker {
    struct fixture *f;
    struct zinf_queue *q;
    void (*run)(struct worker *w);
    void *problem, *workspace;
};

UNUSED static void *work(void *arg)
{
    struct worker *w = arg;
    w->run(w);
    return NULL;
}

/* Runs both problems, each on a queue and with a workspace of its own. */
UNUSED static void run_on_two_queues(struct fixture *f, uint64_t workspace_bytes,
                                     void (*run)(struct worker *w), void *const problems[2])
{
    struct worker workers[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        struct worker *w = &workers[i];
        *w = (struct worker){.f = f, .run = run, .problem = problems[i]};
        CHECK(!f->ops->queue_create(f->device, ZINF_QUEUE_COMPUTE, &w->q));
        w->workspace = malloc(workspace_bytes);
        f->ops->queue_set_workspace(w->q, w->workspace, workspace_bytes);
        CHECK(!pthread_create(&threads[i], NULL, work, w));
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        f->ops->queue_destroy(workers[i].q);
        free(workers[i].workspace);
    }
}

#endif
