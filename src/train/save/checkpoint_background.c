/*
 * checkpoint_background: saving while training goes on. Where every unit has two generations, the
 * one that a step left is not written before the second step after it; until then a thread saves
 * it through a trainer that is a copy of the real one, with generations of its own that do not turn
 * and a transfer region of its own. So what is saved is exactly that step, and no byte is copied
 * for it. Who takes the second step waits for the thread first.
 */
#include "train/save/checkpoint.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct checkpoint_background {
    pthread_t thread;
    struct zinf_trainer view;
    struct zinf_device device; /* the view's: its thread computes alone */
    struct checkpoint checkpoint;
    const char *output;
    uint64_t limit;
    int code;
    char message[1024];
    _Atomic bool done;
};

bool checkpoint_background_possible(const struct zinf_trainer *t)
{
    bool possible = true;
    for (uint32_t u = 0; u < t->setup.n_units; u++)
        possible = possible && t->plan.routes[u].eager;
    return possible && t->plan.at.h_background;
}

static void *save(void *arg)
{
    struct checkpoint_background *b = arg;
    b->code = checkpoint_save(&b->view, &b->checkpoint, b->output, b->limit);
    if (b->code)
        snprintf(b->message, sizeof b->message, "%s", zinf_error());
    atomic_store(&b->done, true);
    return NULL;
}

static void destroy(struct checkpoint_background *b)
{
    zinf_tiers_destroy(b->view.plan.tiers);
    free(b->view.pending);
    checkpoint_fini(&b->checkpoint);
    free(b);
}

/* All that a save looks at, as it is after this step. */
static int make_view(struct checkpoint_background *b, struct zinf_trainer *t)
{
    b->view = *t;
    b->view.plan.setup = &b->view.setup;
    b->device = *t->setup.device;
    b->device.n_threads = 1;
    b->view.setup.device = &b->device;
    b->view.plan.at.h_transfer = t->plan.at.h_background;
    b->view.durable = (struct durable){0};
    b->view.plan.tiers = NULL;
    b->view.pending = calloc(t->setup.n_units, sizeof *b->view.pending);
    if (!b->view.pending)
        return zinf_fail(-ENOMEM, "no memory to save in the background");
    return zinf_tiers_view(&b->view.plan.tiers, t->plan.tiers);
}

int checkpoint_background_begin(struct checkpoint_background **out, struct zinf_trainer *t,
                                struct checkpoint *c, const char *output, uint64_t limit)
{
    int code = trainer_settle(t);
    if (code)
        return code;
    struct checkpoint_background *b = calloc(1, sizeof *b);
    if (!b)
        return zinf_fail(-ENOMEM, "no memory to save in the background");
    b->output = output;
    b->limit = limit;
    code = make_view(b, t);
    if (!code) {
        b->checkpoint = *c;
        *c = (struct checkpoint){0};
        int error = pthread_create(&b->thread, NULL, save, b);
        code = error ? zinf_fail(-error, "cannot start a thread to save: %s", strerror(error)) : 0;
    }
    if (code)
        destroy(b);
    else
        *out = b;
    return code;
}

bool checkpoint_background_is_done(const struct checkpoint_background *b)
{
    return atomic_load(&b->done);
}

uint64_t checkpoint_background_step(const struct checkpoint_background *b)
{
    return b->view.step;
}

int checkpoint_background_end(struct checkpoint_background *b)
{
    pthread_join(b->thread, NULL);
    int code = b->code ? zinf_fail(b->code, "%s", b->message) : 0;
    destroy(b);
    return code;
}
