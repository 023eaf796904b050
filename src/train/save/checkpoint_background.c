/*
 * checkpoint_background: saving while training goes on. Where every unit has two generations, the
 * one that a step left is not written before the second step after it; until then a thread saves
 * it from a source of its own: generations that do not turn, a transfer region of its own, and one
 * thread to compute by. So what is saved is exactly that step, and no byte is copied
 * for it. Who takes the second step waits for the thread first.
 *
 * Ranks' threads need a net of their own to bring together what they write, which those of one
 * process have (train.h): while one is used by steps, the other is by saves.
 */
#include "train/save/checkpoint.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct checkpoint_background {
    pthread_t thread;
    struct source source;
    struct zinf_tiers *tiers;  /* the source's */
    struct zinf_device device; /* and its device, with one thread */
    struct checkpoint checkpoint;
    struct zinf_pulse *pulse; /* of the net for saves, or of the process */
    sem_t may_begin;          /* once all ranks can */
    bool called_off;
    const char *output;
    uint64_t limit;
    int code;
    char message[1024];
    _Atomic bool done; /* written last */
};

bool checkpoint_background_possible(const struct zinf_trainer *t)
{
    bool possible = !t->setup.mesh.all || t->setup.options.save_net;
    possible = possible && !tensor_axis(&t->setup)->net;
    for (uint32_t u = 0; u < t->setup.n_units; u++)
        possible = possible && t->plan.ways[u].eager && t->plan.homes[u].generations == 2;
    return possible && t->plan.at.h_background;
}

static void *save(void *arg)
{
    struct checkpoint_background *b = arg;
    zinf_pulse_set(b->pulse);
    while (sem_wait(&b->may_begin) && errno == EINTR)
        ;
    if (b->called_off)
        return NULL;
    b->code = checkpoint_write(&b->source, &b->checkpoint, b->output, b->limit);
    if (b->code)
        snprintf(b->message, sizeof b->message, "%s", zinf_error());
    atomic_store_explicit(&b->done, true, memory_order_release);
    return NULL;
}

static void destroy(struct checkpoint_background *b)
{
    zinf_tiers_destroy(b->tiers);
    checkpoint_fini(&b->checkpoint);
    sem_destroy(&b->may_begin);
    free(b);
}

/* All that a save looks at, as it is after this step. */
static int make_source(struct checkpoint_background *b, const struct zinf_trainer *t)
{
    int code = zinf_tiers_view(&b->tiers, t->plan.tiers);
    b->device = *t->setup.device;
    b->device.n_threads = 1;
    b->source = trainer_source(t);
    b->source.tiers = b->tiers;
    b->source.net = t->setup.options.save_net;
    b->source.device = &b->device;
    b->source.memory = host_at(&t->plan, t->plan.at.h_background);
    return code;
}

static int start(struct checkpoint_background *b)
{
    int error = pthread_create(&b->thread, NULL, save, b);
    return error ? zinf_fail(-error, "cannot start a thread to save: %s", strerror(error)) : 0;
}

/* Either all ranks save or none: who cannot begin would be waited for. */
int checkpoint_background_begin(struct checkpoint_background **out, struct zinf_trainer *t,
                                struct checkpoint *c, const char *output, uint64_t limit)
{
    struct checkpoint_background *b = calloc(1, sizeof *b);
    const struct source here = trainer_source(t);
    bool started = false;
    int code = b ? trainer_settle(t) : zinf_fail(-ENOMEM, "no memory to save in the background");
    if (b) {
        b->output = output;
        b->limit = limit;
        b->pulse = t->setup.options.save_net ? zinf_net_pulse(t->setup.options.save_net) : NULL;
        sem_init(&b->may_begin, 0, 0);
    }
    if (!code)
        code = make_source(b, t);
    if (!code) {
        b->checkpoint = *c;
        *c = (struct checkpoint){0};
        code = start(b);
        started = !code;
    }
    code = collect_agree(&here, code);
    if (started) {
        b->called_off = code != 0;
        sem_post(&b->may_begin);
    }
    if (code && started)
        pthread_join(b->thread, NULL);
    if (code && b)
        destroy(b);
    else
        *out = b;
    return code;
}

bool checkpoint_background_is_done(const struct checkpoint_background *b)
{
    return atomic_load_explicit(&b->done, memory_order_acquire);
}

uint64_t checkpoint_background_step(const struct checkpoint_background *b)
{
    return b->source.step;
}

int checkpoint_background_end(struct checkpoint_background *b)
{
    pthread_join(b->thread, NULL);
    int code = b->code ? zinf_fail(b->code, "%s", b->message) : 0;
    destroy(b);
    return code;
}
