/*
 * Encoder-decoders and classifiers against PyTorch, on padded samples of several lengths: loss,
 * every gradient, logits, and the weights after ten steps with accumulation and clipping, as
 * tests/fixtures/make_pairs.py and make_classifiers.py computed them. And with dropout on the same
 * bits wherever things live, and wherever a sample's padding ends.
 */
#include "saved.h"

static const char *const pairs[] = {
    "t5_a",         "t5_b",         "bart_a",       "bart_b",       "blenderbot_a",
    "bert_a",       "bert_b",       "roberta_a",    "deberta_v2_a", "deberta_v2_b",
    "deberta_v2_c", "deberta_v2_d", "deberta_v2_e", "deberta_v2_f", "deberta_v2_g",
    "deberta_v2_h", "bert_c",       "roberta_b",    "gpt2_h",       "gpt2_i",
    "llama_f",      "mistral_b",    "qwen2_b",      "gemma_b",      "peft_s"};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

/* The samples of all steps, [sample][length]; a model takes some of these. */
static const struct {
    enum zinf_input input;
    const char *key;
    enum zinf_axis axis;
} kinds[] = {
    {ZINF_INPUT_SOURCE_IDS, "source_ids", ZINF_AXIS_SOURCE},
    {ZINF_INPUT_SOURCE_SEGMENTS, "source_segments", ZINF_AXIS_SOURCE},
    {ZINF_INPUT_IDS, "ids", ZINF_AXIS_TARGET},
    {ZINF_INPUT_SEGMENTS, "segments", ZINF_AXIS_TARGET},
    {ZINF_INPUT_TARGETS, "targets", ZINF_AXIS_TARGET},
    {ZINF_INPUT_TOKEN_TYPES, "types", ZINF_AXIS_TARGET},
    {ZINF_INPUT_LABELS, "labels", ZINF_AXIS_SAMPLE},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

struct fixture {
    char folder[512], model[512]; /* another one for an adapter */
    cJSON *expected;
    struct zinf_config *config;
    int64_t seq, source, batch, accumulation;
    int32_t *inputs[N_KINDS];
    float *class_weights; /* NULL: all count alike */
};

static double number(const cJSON *object, const char *key)
{
    return cJSON_GetNumberValue(cJSON_GetObjectItem(object, key));
}

static double nth(const cJSON *object, const char *key, int index)
{
    return cJSON_GetNumberValue(cJSON_GetArrayItem(cJSON_GetObjectItem(object, key), index));
}

static bool near(double value, double wanted, double relative)
{
    return fabs(value - wanted) <= relative * fabs(wanted);
}

static int32_t *read_numbers(const cJSON *list)
{
    if (!list)
        return NULL;
    int32_t *numbers = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *numbers), n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) numbers[n++] = (int32_t)item->valuedouble;
    return numbers;
}

static float *read_weights(const cJSON *list)
{
    if (!list)
        return NULL;
    float *weights = calloc((size_t)cJSON_GetArraySize(list), sizeof *weights);
    const cJSON *item;
    int n = 0;
    cJSON_ArrayForEach(item, list) weights[n++] = (float)item->valuedouble;
    return weights;
}

static void open_fixture(struct fixture *f, const char *name)
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
    f->seq = (int64_t)number(f->expected, "seq_len");
    f->source = (int64_t)number(f->expected, "source_len");
    f->batch = (int64_t)number(f->expected, "micro_batch");
    f->accumulation = (int64_t)number(f->expected, "accumulation");
    for (int k = 0; k < N_KINDS; k++)
        f->inputs[k] = read_numbers(
            cJSON_GetObjectItem(cJSON_GetObjectItem(f->expected, "inputs"), kinds[k].key));
    f->class_weights = read_weights(cJSON_GetObjectItem(f->expected, "class_weights"));
}

static void close_fixture(struct fixture *f)
{
    zinf_config_destroy(f->config);
    cJSON_Delete(f->expected);
    for (int k = 0; k < N_KINDS; k++)
        free(f->inputs[k]);
    free(f->class_weights);
}

/* From this sample on. */
static struct zinf_batch batch_at(const struct fixture *f, int64_t sample)
{
    struct zinf_batch batch = {{NULL}};
    const int64_t lengths[] = {
        [ZINF_AXIS_SAMPLE] = 1, [ZINF_AXIS_TARGET] = f->seq, [ZINF_AXIS_SOURCE] = f->source};
    for (int k = 0; k < N_KINDS; k++)
        if (f->inputs[k])
            batch.inputs[kinds[k].input] = f->inputs[k] + sample * lengths[kinds[k].axis];
    return batch;
}

static struct zinf_trainer *open_pair(const struct fixture *f, const struct zinf_config *config,
                                      enum zinf_trainer_mode mode)
{
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = {
        .mode = mode,
        .model_path = f->model,
        .adapter = strcmp(f->model, f->folder) ? f->folder : NULL,
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

static void check_gradients(const char *name)
{
    struct fixture f;
    char ours[600], theirs[600];
    double loss = 0, norm = 0;
    open_fixture(&f, name);
    struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_GRADIENTS);
    struct zinf_batch batch = batch_at(&f, 0);
    if (!t)
        return;
    CHECKF(!zinf_trainer_gradients(t, &batch, &loss, &norm), "%s", zinf_error());
    CHECKF(near(loss, number(f.expected, "loss"), 1e-5), "%s: loss %.9g", name, loss);
    CHECKF(near(norm, number(f.expected, "grad_norm"), 1e-4), "%s: norm %.9g", name, norm);
    snprintf(ours, sizeof ours, "%s/%s.safetensors", work, name);
    snprintf(theirs, sizeof theirs, "%s/gradients.safetensors", f.folder);
    CHECKF(!zinf_trainer_save_gradients(t, ours), "%s", zinf_error());
    double worst = compare_files(ours, theirs);
    CHECKF(worst <= 1e-4, "%s: worst gradient %g", name, worst);
    printf("# %s: loss off by %.2g, worst gradient %.2g\n", name,
           fabs(loss / number(f.expected, "loss") - 1), worst);
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static void test_loss_and_gradients(void)
{
    for (int i = 0; i < N_PAIRS; i++)
        check_gradients(pairs[i]);
}

static void check_logits(const char *name)
{
    struct fixture f;
    float logits[64];
    const cJSON *pick;
    open_fixture(&f, name);
    struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_FORWARD);
    cJSON_ArrayForEach(pick, cJSON_GetObjectItem(f.expected, "logits"))
    {
        struct zinf_batch batch = batch_at(&f, (int64_t)number(pick, "sample"));
        const cJSON *wanted = cJSON_GetObjectItem(pick, "values");
        int64_t n = (int64_t)number(pick, "position") + 1;
        CHECKF(t && !zinf_trainer_sample_logits(t, &batch, n, logits), "%s", zinf_error());
        for (int i = 0; i < cJSON_GetArraySize(wanted); i++)
            CHECKF(fabs((double)logits[i] - cJSON_GetArrayItem(wanted, i)->valuedouble) < 2e-5,
                   "%s: logit %d is %g", name, i, (double)logits[i]);
    }
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static void test_logits(void)
{
    for (int i = 0; i < N_PAIRS; i++)
        check_logits(pairs[i]);
}

static void check_ten_steps(const char *name)
{
    struct fixture f;
    char ours[600], theirs[600];
    open_fixture(&f, name);
    const cJSON *steps = cJSON_GetObjectItem(f.expected, "steps");
    struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_TRAIN);
    for (int step = 0; t && step < 10; step++) {
        struct zinf_batch batch = batch_at(&f, step * f.batch * f.accumulation);
        struct zinf_step_result r = {0};
        CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
        CHECKF(near(r.loss, nth(steps, "loss", step), 1e-4), "%s step %d: loss %.9g", name, step,
               r.loss);
        CHECKF(near(r.grad_norm, nth(steps, "grad_norm", step), 1e-3), "%s step %d: norm %.9g",
               name, step, r.grad_norm);
    }
    snprintf(ours, sizeof ours, "%s/%s-after", work, name);
    snprintf(theirs, sizeof theirs, "%s/after10.safetensors", f.folder);
    CHECKF(t && !zinf_trainer_save(t, ours), "%s", zinf_error());
    if (strcmp(f.model, f.folder))
        strcat(ours, "/" ZINF_ADAPTER_WEIGHTS);
    double worst = compare_files(ours, theirs);
    CHECKF(worst <= 1e-4, "%s: worst weight after ten steps %g", name, worst);
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static void test_ten_steps(void)
{
    for (int i = 0; i < N_PAIRS; i++)
        check_ten_steps(pairs[i]);
}

/* ---- bits ---- */

/* Two steps with dropout. */
static void run_pair(const struct fixture *f, const struct setting *s, const char *name,
                     struct outcome *out)
{
    struct zinf_config *config = configure(s);
    memset(out, 0, sizeof *out);
    config->dropout = 0.2;
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

static void check_places(const char *name, const char *precision)
{
    struct setting s = setting_of(NULL, precision);
    struct outcome reference, other;
    struct fixture f;
    char what[256];
    open_fixture(&f, name);
    run_pair(&f, &s, "reference", &reference);
    for (int i = 0; i < 9; i++) {
        s.param = places[i / 3];
        s.state = places[i % 3];
        snprintf(what, sizeof what, "%s %s: parameters %s, state %s", name, word(precision, ""),
                 s.param, s.state);
        run_pair(&f, &s, "other", &other);
        check_same(&reference, &other, what);
    }
    close_fixture(&f);
}

static void test_placements(void)
{
    for (int i = 0; i < N_PAIRS; i++) {
        check_places(pairs[i], NULL);
        check_places(pairs[i], bf16);
    }
}

static void test_padding_changes_no_bit(void)
{
    for (int i = 0; i < N_PAIRS; i++) {
        struct fixture f;
        double loss[2], norm[2];
        open_fixture(&f, pairs[i]);
        struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_GRADIENTS);
        struct zinf_batch batch = batch_at(&f, 0);
        for (int with = 0; t && with < 2; with++) {
            for (int64_t at = 0; f.inputs[0] && at < f.batch * f.source; at++)
                f.inputs[0][at] = f.inputs[1][at] ? f.inputs[0][at] : 3 + with;
            for (int64_t at = 0; at < f.batch * f.seq; at++)
                f.inputs[2][at] = f.inputs[3][at] ? f.inputs[2][at] : 5 - with;
            CHECKF(!zinf_trainer_gradients(t, &batch, &loss[with], &norm[with]), "%s",
                   zinf_error());
        }
        CHECKF(loss[0] == loss[1] && norm[0] == norm[1], "%s: padding changes the bits", pairs[i]);
        zinf_trainer_destroy(t);
        close_fixture(&f);
    }
}

int main(void)
{
    begin_fixtures("pairs");
    trainings.batch = 3;
    trainings.steps = 2;
    TAP_RUN(test_loss_and_gradients);
    TAP_RUN(test_logits);
    TAP_RUN(test_ten_steps);
    TAP_RUN(test_placements);
    TAP_RUN(test_padding_changes_no_bit);
    remove_work();
    return tap_done();
}
