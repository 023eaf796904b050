/*
 * Embeddings of a step: the sweep that goes backward makes those of the first one to the bit, with
 * dropout, whatever updates wait; and gradients of one micro-batch are those of several.
 */
#include "fixture_inputs.h"

#include "train/trainer.h"

static const char *const names[] = {"bert_e", "deberta_v2_x", "qwen3_e"};
enum { N_NAMES = sizeof names / sizeof *names };

/* Lengths of the sums of the first sweep, which are kept, and those of the second. */
static void compare_sweeps(const struct zinf_trainer *t, const char *name, int step)
{
    const struct zinf_graph *g = t->setup.graph;
    const int64_t cols = g->values[g->embeddings].cols, n = setup_samples(&t->setup);
    const double *lengths = (const double *)t->likeness + n / t->setup.options.together;
    for (int64_t i = 0; i < n; i++) {
        uint64_t count;
        const float *sum =
            trainer_losses_of(t, g->embeddings, i / t->setup.batch, t->setup.batch, &count) +
            i % t->setup.batch * cols;
        double squares = 0;
        for (int64_t k = 0; k < cols; k++)
            squares += (double)sum[k] * (double)sum[k];
        CHECKF(fabs(sqrt(squares) - lengths[i]) <= 1e-12 * lengths[i],
               "%s step %d: sample %lld is %.17g, was %.17g", name, step, (long long)i,
               sqrt(squares), lengths[i]);
    }
}

static void test_two_sweeps_alike(void)
{
    static const char *const orders[] = {"auto", "serial", "update-in-forward",
                                         "update-in-backward"};
    for (int i = 0; i < N_NAMES * 4; i++) {
        struct fixture f;
        open_fixture(&f, names[i / 4]);
        f.config->dropout = 0.2;
        free(f.config->schedule);
        f.config->schedule = strdup(orders[i % 4]);
        struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_TRAIN);
        for (int step = 0; t && step < 4; step++) {
            struct zinf_batch batch = batch_at(&f, step * f.batch * f.accumulation);
            struct zinf_step_result r = {0};
            CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
            compare_sweeps(t, names[i / 4], step);
        }
        zinf_trainer_destroy(t);
        close_fixture(&f);
    }
}

/* Norm and loss of a first step with dropout, the same rows in so many micro-batches. */
static void step_of(const char *name, int64_t micros, struct zinf_step_result *out)
{
    struct fixture f;
    open_fixture(&f, name);
    const int64_t rows = f.config->micro_batch * f.accumulation;
    f.config->dropout = 0.2;
    f.config->micro_batch = rows / micros;
    f.config->accumulation = micros;
    struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_TRAIN);
    struct zinf_batch batch = batch_at(&f, 0);
    CHECKF(t && !zinf_trainer_step(t, &batch, out), "%s", zinf_error());
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static void test_any_accumulation(void)
{
    for (int i = 0; i < N_NAMES; i++) {
        struct zinf_step_result one, other;
        step_of(names[i], 1, &one);
        for (int64_t micros = 2; micros <= 8; micros *= 2) {
            step_of(names[i], micros, &other);
            CHECKF(near(other.loss, one.loss, 1e-6) && near(other.grad_norm, one.grad_norm, 1e-6),
                   "%s in %lld: loss %.9g and %.9g, norm %.9g and %.9g", names[i],
                   (long long)micros, other.loss, one.loss, other.grad_norm, one.grad_norm);
        }
    }
}

int main(void)
{
    begin_fixtures("embeddings");
    TAP_RUN(test_two_sweeps_alike);
    TAP_RUN(test_any_accumulation);
    remove_work();
    return tap_done();
}
