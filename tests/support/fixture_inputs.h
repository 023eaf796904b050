/*
 * fixture_inputs: fixtures whose expected.json holds all inputs, as tests/fixtures/make_pairs.py,
 * make_classifiers.py and make_losses.py write them, and what is held against them.
 */
#ifndef ZINF_FIXTURE_INPUTS_H
#define ZINF_FIXTURE_INPUTS_H

#include "saved.h"
#include "fixture_numbers.h"

/* The samples of all steps, [sample][length]; a model takes some of these. */
static const struct {
    enum zinf_input input;
    const char *key;
    enum zinf_rows_of rows_of;
} kinds[] = {
    {ZINF_INPUT_SOURCE_IDS, "source_ids", ZINF_ROWS_OF_SOURCE},
    {ZINF_INPUT_SOURCE_SEGMENTS, "source_segments", ZINF_ROWS_OF_SOURCE},
    {ZINF_INPUT_IDS, "ids", ZINF_ROWS_OF_TARGET},
    {ZINF_INPUT_SEGMENTS, "segments", ZINF_ROWS_OF_TARGET},
    {ZINF_INPUT_TARGETS, "targets", ZINF_ROWS_OF_TARGET},
    {ZINF_INPUT_TOKEN_TYPES, "types", ZINF_ROWS_OF_TARGET},
    {ZINF_INPUT_LABELS, "labels", ZINF_ROWS_OF_SAMPLE},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

struct fixture {
    char folder[512], model[512]; /* another one where the folder is above a base */
    bool adapted, pairs;
    cJSON *expected;
    struct zinf_config *config;
    int64_t seq, source, batch, accumulation;
    int64_t together; /* samples of a row, of embeddings; 0: 1 */
    enum zinf_pooling pooling;
    int32_t *inputs[N_KINDS];
    float *class_weights; /* NULL: all count alike */
};

static inline int32_t *read_numbers(const cJSON *list)
{
    if (!list)
        return NULL;
    int32_t *numbers = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *numbers), n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) numbers[n++] = (int32_t)item->valuedouble;
    return numbers;
}

static inline float *read_weights(const cJSON *list)
{
    if (!list)
        return NULL;
    float *weights = calloc((size_t)cJSON_GetArraySize(list), sizeof *weights);
    const cJSON *item;
    int n = 0;
    cJSON_ArrayForEach(item, list) weights[n++] = (float)item->valuedouble;
    return weights;
}

static inline void open_fixture(struct fixture *f, const char *name)
{
    char path[600];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    memset(f, 0, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "%s/tests/fixtures/%s", getenv("SRCDIR"), name);
    snprintf(path, sizeof path, "%s/expected.json", f->folder);
    CHECKF(!zinf_json_read_file(path, 1 << 20, 0, &f->expected), "%s", zinf_error());
    const cJSON *base = cJSON_GetObjectItem(f->expected, "base");
    snprintf(f->model, sizeof f->model, "%s/tests/fixtures/%s", getenv("SRCDIR"),
             base ? base->valuestring : name);
    snprintf(path, sizeof path, "%s/zinf.json", f->folder);
    CHECKF(!zinf_config_load(&f->config, path, &context), "%s", zinf_error());
    f->config->dropout = 0;
    f->adapted = base && !cJSON_IsFalse(cJSON_GetObjectItem(f->expected, "adapted"));
    f->pairs = cJSON_IsTrue(cJSON_GetObjectItem(f->expected, "pairs"));
    const cJSON *together = cJSON_GetObjectItem(f->expected, "together");
    const char *pooling = cJSON_GetStringValue(cJSON_GetObjectItem(f->expected, "pooling"));
    f->together = together ? together->valueint : 0;
    f->pooling = !pooling || !strcmp(pooling, "mean") ? ZINF_POOL_MEAN
                 : !strcmp(pooling, "first")          ? ZINF_POOL_FIRST
                                                      : ZINF_POOL_LAST;
    f->config->micro_batch /= f->pairs ? 2 : f->together ? f->together : 1; /* it counts rows */
    f->seq = (int64_t)number(f->expected, "seq_len");
    f->source = (int64_t)number(f->expected, "source_len");
    f->batch = (int64_t)number(f->expected, "micro_batch");
    f->accumulation = (int64_t)number(f->expected, "accumulation");
    for (int k = 0; k < N_KINDS; k++)
        f->inputs[k] = read_numbers(
            cJSON_GetObjectItem(cJSON_GetObjectItem(f->expected, "inputs"), kinds[k].key));
    f->class_weights = read_weights(cJSON_GetObjectItem(f->expected, "class_weights"));
}

static inline void close_fixture(struct fixture *f)
{
    zinf_config_destroy(f->config);
    cJSON_Delete(f->expected);
    for (int k = 0; k < N_KINDS; k++)
        free(f->inputs[k]);
    free(f->class_weights);
}

/* From this sample on. */
static inline struct zinf_batch batch_at(const struct fixture *f, int64_t sample)
{
    struct zinf_batch batch = {.seq_len = 0};
    const int64_t lengths[] = {[ZINF_ROWS_OF_SAMPLE] = 1,
                               [ZINF_ROWS_OF_TARGET] = f->seq,
                               [ZINF_ROWS_OF_SOURCE] = f->source};
    for (int k = 0; k < N_KINDS; k++)
        if (f->inputs[k])
            batch.inputs[kinds[k].input] = f->inputs[k] + sample * lengths[kinds[k].rows_of];
    return batch;
}

static inline struct zinf_trainer *
open_pair(const struct fixture *f, const struct zinf_config *config, enum zinf_trainer_mode mode)
{
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = {
        .mode = mode,
        .model_path = f->model,
        .adapter = f->adapted ? f->folder : NULL,
        .pairs = f->pairs,
        .together = f->together,
        .pooling = f->pooling,
        .config = config,
        .seed = 5,
        .seq_len = f->seq,
        .source_len = f->source,
        .class_weights = f->class_weights,
        .device = ZINF_DEVICE_HOST,
    };
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
}

/* ---- against PyTorch ---- */

/* parts: of tensors. */
static inline void check_gradients_in(const char *name, int64_t parts)
{
    struct fixture f;
    double loss = 0, norm = 0;
    open_fixture(&f, name);
    f.config->tensor_parts = parts;
    struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_GRADIENTS);
    struct zinf_batch batch = batch_at(&f, 0);
    if (!t)
        return;
    CHECKF(!zinf_trainer_gradients(t, &batch, &loss, &norm), "%s", zinf_error());
    CHECKF(near(loss, number(f.expected, "loss"), 1e-5), "%s: loss %.9g", name, loss);
    CHECKF(near(norm, number(f.expected, "grad_norm"), 1e-4), "%s: norm %.9g", name, norm);
    check_gradient_file(t, name, f.folder, loss, number(f.expected, "loss"));
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static inline void check_gradients(const char *name)
{
    check_gradients_in(name, 0);
}

/* Of the first step. */
static inline void check_rewards(const struct fixture *f, const char *name,
                                 const struct zinf_rewards *r)
{
    const cJSON *wanted = cJSON_GetObjectItem(f->expected, "rewards");
    CHECKF(!r->n == !f->pairs, "%s: rewards of %llu pairs", name, (unsigned long long)r->n);
    if (wanted)
        CHECKF(fabs(r->chosen - number(wanted, "chosen")) < 1e-4 &&
                   fabs(r->rejected - number(wanted, "rejected")) < 1e-4 &&
                   near(r->accuracy, number(wanted, "accuracy"), 1e-6),
               "%s: rewards %.9g, %.9g, accuracy %g", name, r->chosen, r->rejected, r->accuracy);
    CHECK(!cJSON_HasObjectItem(wanted, "kl") == !r->has_kl);
    if (r->has_kl)
        CHECKF(fabs(r->kl - number(wanted, "kl")) < 1e-4, "%s: kl %.9g", name, r->kl);
}

/* A step has the loss and the norm of the fixture's. */
static inline void check_step(const struct fixture *f, const char *name, int step,
                              const struct zinf_step_result *r)
{
    const cJSON *steps = cJSON_GetObjectItem(f->expected, "steps");
    CHECKF(near(r->loss, nth(steps, "loss", step), 1e-4), "%s step %d: loss %.9g", name, step,
           r->loss);
    CHECKF(near(r->grad_norm, nth(steps, "grad_norm", step), 1e-3), "%s step %d: norm %.9g", name,
           step, r->grad_norm);
}

/* Samples in chunks, in the cut with this number, have the loss and the gradients of whole ones,
 * and the fixture's loss. worst: the largest difference of a gradient. */
static inline void check_cut(const struct fixture *f, const char *name, int cut, double loss,
                             double of_whole, double worst)
{
    CHECKF(near(loss, of_whole, 1e-6), "%s, cut %d: loss %.9g, not %.9g", name, cut, loss,
           of_whole);
    CHECKF(worst < 1e-5, "%s, cut %d: worst gradient %g", name, cut, worst);
    CHECKF(near(loss, number(f->expected, "loss"), 1e-5), "%s, cut %d: loss %.9g", name, cut, loss);
    printf("# %s, cut %d: loss off by %.2g, worst gradient %.2g\n", name, cut,
           fabs(loss / of_whole - 1), worst);
}

static inline void check_ten_steps(const char *name)
{
    struct fixture f;
    char ours[600], theirs[600];
    open_fixture(&f, name);
    struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_TRAIN);
    for (int step = 0; t && step < 10; step++) {
        struct zinf_batch batch = batch_at(&f, step * f.batch * f.accumulation);
        struct zinf_step_result r = {0};
        CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
        check_step(&f, name, step, &r);
        if (!step)
            check_rewards(&f, name, &r.rewards);
    }
    snprintf(ours, sizeof ours, "%s/%s-after", work, name);
    snprintf(theirs, sizeof theirs, "%s/after10.safetensors", f.folder);
    CHECKF(t && !zinf_trainer_save(t, ours), "%s", zinf_error());
    if (f.adapted)
        strcat(ours, "/" ZINF_ADAPTER_WEIGHTS);
    double worst = compare_files(ours, theirs);
    CHECKF(worst <= 1e-4, "%s: worst weight after ten steps %g", name, worst);
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

/* A fixture's samples under a configuration that this takes. */
static inline void run_fixture(const struct fixture *f, const struct setting *s,
                               struct zinf_config *config, const char *name, struct outcome *out)
{
    memset(out, 0, sizeof *out);
    struct zinf_trainer *t = open_pair(f, config, ZINF_TRAINER_TRAIN);
    for (int step = 0; t && step < trainings.steps; step++) {
        struct zinf_batch batch = batch_at(f, step * f->batch * s->accumulation);
        struct zinf_step_result r = {0};
        CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
        note_step(out, step, &r);
    }
    snprintf(out->folder, sizeof out->folder, "%s/out-%s", work, name);
    CHECKF(t && !zinf_trainer_save(t, out->folder), "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

#endif
