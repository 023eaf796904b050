/*
 * Against PyTorch: loss, every gradient, and the weights after ten steps with accumulation,
 * clipping, warm-up and weight decay, as tests/fixtures/make_*.py computed them.
 */
#include "fixture_folders.h"
#include "fixture_numbers.h"
#include "train/save/checkpoint.h"
#include "train_support.h"

/* By PEFT, above models of the others. */
static const char *const adapters[] = {
    "peft_a", "peft_b", "peft_c",  "peft_d",  "peft_e",  "peft_f",  "peft_g",  "peft_h",
    "peft_i", "peft_j", "peft_k",  "peft_l",  "peft_m",  "peft_n",  "peft_o",  "peft_p",
    "peft_q", "peft_r", "peft_t",  "peft_u",  "peft_v",  "peft_w",  "peft_x",  "peft_xq",
    "peft_y", "peft_z", "peft_ma", "peft_mb", "peft_mc", "peft_md", "peft_me", "peft_mq"};
enum { N_ALL = N_FOLDERS + sizeof adapters / sizeof *adapters };

static const char *fixture_at(size_t i)
{
    return i < N_FOLDERS ? folders[i] : adapters[i - N_FOLDERS];
}

/* Its rotation grows with the sequence, so that logits after the first ids of a longer sequence are
 * not those after these ids alone. */
static const char by_length[] = "llama_d";

struct fixture {
    char folder[512], model[512]; /* another one for an adapter */
    cJSON *expected;
    struct zinf_config *config;
    struct zinf_dataset *data;
    int64_t seq, batch;
};

static int open_fixture(struct fixture *f, const char *name, const char *dtype)
{
    char path[600];
    const char *base = name;
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    memset(f, 0, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "%s/tests/fixtures/%s", getenv("SRCDIR"), name);
    snprintf(path, sizeof path, "%s/expected.json", f->folder);
    int code = zinf_json_read_file(path, 1 << 20, 0, &f->expected);
    snprintf(path, sizeof path, "%s/zinf.json", f->folder);
    if (!code)
        code = zinf_config_load(&f->config, path, &context);
    if (code)
        return code;
    if (dtype)
        code = zinf_dtype_parse(dtype, &f->config->dtype);
    f->seq = (int64_t)number(f->expected, "seq_len");
    f->batch = (int64_t)number(f->expected, "micro_batch");
    if (cJSON_HasObjectItem(f->expected, "base"))
        base = cJSON_GetStringValue(cJSON_GetObjectItem(f->expected, "base"));
    snprintf(f->model, sizeof f->model, "%s/tests/fixtures/%s", getenv("SRCDIR"), base);
    snprintf(path, sizeof path, "%s/%s", f->model,
             cJSON_GetStringValue(cJSON_GetObjectItem(f->expected, "data")));
    const char *file = path;
    struct zinf_dataset_options options = {
        .files = &file,
        .n_files = 1,
        .open_token_file = zinf_token_source_open,
        .seq_len = (uint32_t)f->seq,
        .vocab = 1 << 20,
    };
    return code ? code : zinf_dataset_open(&f->data, &options);
}

static void close_fixture(struct fixture *f)
{
    zinf_dataset_close(f->data);
    zinf_config_destroy(f->config);
    cJSON_Delete(f->expected);
}

static struct zinf_trainer *trainer(const struct fixture *f, enum zinf_trainer_mode mode)
{
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = {
        .mode = mode,
        .model_path = f->model,
        .adapter = strcmp(f->model, f->folder) ? f->folder : NULL,
        .config = f->config,
        .seq_len = f->seq,
        .device = ZINF_DEVICE_HOST,
    };
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
}

static void windows(const struct fixture *f, uint64_t first, int64_t n, int32_t *in, int32_t *out)
{
    for (int64_t i = 0; i < n; i++)
        CHECKF(
            !zinf_dataset_window(f->data, first + (uint64_t)i, in + i * f->seq, out + i * f->seq),
            "%s", zinf_error());
}

static void check_gradients(const char *name, const char *dtype)
{
    struct fixture f;
    int32_t in[2048], out[2048];
    double loss = 0, norm = 0;
    CHECKF(!open_fixture(&f, name, dtype), "%s", zinf_error());
    struct zinf_trainer *t = trainer(&f, ZINF_TRAINER_GRADIENTS);
    if (!t)
        return;
    windows(&f, 0, f.batch, in, out);
    CHECKF(!zinf_trainer_gradients(t, TOKENS(in, out), &loss, &norm), "%s", zinf_error());
    if (dtype) {
        CHECKF(near(loss, number(f.expected, "loss"), 0.01), "%s %s: loss %.9g", name, dtype, loss);
    } else {
        CHECKF(near(loss, number(f.expected, "loss"), 1e-5), "%s: loss %.9g", name, loss);
        CHECKF(near(norm, number(f.expected, "grad_norm"), 1e-4), "%s: norm %.9g", name, norm);
        check_gradient_file(t, name, f.folder, loss, number(f.expected, "loss"));
    }
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static void test_loss_and_gradients(void)
{
    for (size_t i = 0; i < N_ALL; i++)
        check_gradients(fixture_at(i), NULL);
}

static void test_bf16_and_fp16_loss(void)
{
    for (size_t i = 0; i < N_ALL; i++) {
        check_gradients(fixture_at(i), "bf16");
        check_gradients(fixture_at(i), "fp16");
    }
}

/* Puts the other optimizer's configuration and expected values in place of AdamW's. */
static int take_optimizer(struct fixture *f, const char *optimizer)
{
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    char path[600];
    cJSON *other = NULL;
    snprintf(path, sizeof path, "%s/%s.json", f->folder, optimizer);
    int code = zinf_json_read_file(path, 1 << 20, 0, &other);
    char *text = cJSON_Print(cJSON_GetObjectItem(other, "config"));
    static const char *const keys[] = {"steps", "eval_loss_after"};
    zinf_config_destroy(f->config);
    f->config = NULL;
    if (!code && text)
        code = zinf_config_parse(&f->config, text, strlen(text), path, &context);
    for (int i = 0; !code && i < 2; i++)
        cJSON_ReplaceItemInObject(f->expected, keys[i], cJSON_DetachItemFromObject(other, keys[i]));
    cJSON_free(text);
    cJSON_Delete(other);
    return code;
}

/* How close is close: losses, relative (of norms ten times as much), and weights. */
struct bounds {
    double loss, weights;
};

/* As many as the fixture has. optimizer: NULL: the fixture's own AdamW. */
static void check_steps(const char *name, const char *optimizer, const char *after,
                        struct bounds bounds)
{
    struct fixture f;
    int32_t in[4096], out[4096];
    char ours[600], theirs[600];
    CHECKF(!open_fixture(&f, name, NULL), "%s", zinf_error());
    if (optimizer)
        CHECKF(!take_optimizer(&f, optimizer), "%s", zinf_error());
    f.config->dropout = 0;
    struct zinf_trainer *t = trainer(&f, ZINF_TRAINER_TRAIN);
    if (!t)
        return;
    const cJSON *steps = cJSON_GetObjectItem(f.expected, "steps");
    uint64_t position = 0;
    int64_t n = f.batch * f.config->accumulation;
    const int n_steps = cJSON_GetArraySize(cJSON_GetObjectItem(steps, "loss"));
    for (int step = 0; step < n_steps; step++) {
        struct zinf_step_result r = {0};
        windows(&f, position, n, in, out);
        position += (uint64_t)n;
        CHECKF(!zinf_trainer_step(t, TOKENS(in, out), &r), "%s", zinf_error());
        CHECKF(near(r.loss, nth(steps, "loss", step), bounds.loss), "%s step %llu: loss %.9g", name,
               (unsigned long long)r.step, r.loss);
        CHECKF(near(r.grad_norm, nth(steps, "grad_norm", step), 10 * bounds.loss), "%s: norm %.9g",
               name, r.grad_norm);
        CHECKF(near(r.lr, nth(steps, "lr", step), 1e-6), "%s: lr %.9g", name, r.lr);
    }
    snprintf(ours, sizeof ours, "%s/%s-after", work, name);
    snprintf(theirs, sizeof theirs, "%s/%s.safetensors", f.folder, after);
    CHECKF(!zinf_trainer_save(t, ours), "%s", zinf_error());
    if (strcmp(f.model, f.folder))
        strcat(ours, "/" ZINF_ADAPTER_WEIGHTS);
    double worst = compare_files(ours, theirs);
    CHECKF(worst <= bounds.weights, "%s: worst weight %g", name, worst);
    struct zinf_evaluation found = {0};
    CHECK(!zinf_run_evaluate(t, f.config, f.data, &found));
    CHECKF(near(found.loss, number(f.expected, "eval_loss_after"), 1e-4), "%s: eval %.9g", name,
           found.loss);
    CHECK((double)found.tokens == number(f.expected, "eval_tokens") && !found.rewards.n);
    printf("# %s: worst weight after %d steps of %s %.2g\n", name, n_steps,
           f.config->optimizer.type, worst);
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static const struct bounds ten_steps = {1e-4, 1e-4};

static void test_ten_steps(void)
{
    for (size_t i = 0; i < N_ALL; i++)
        check_steps(fixture_at(i), NULL, "after10", ten_steps);
}

/* Gradients in training, behind the same dropout masks: the checkpoint after one step has 1 - beta
 * of each. */
static void check_first_moments(const char *name)
{
    struct fixture f;
    int32_t in[2048], out[2048];
    char folder[600], ours[700], theirs[600];
    CHECKF(!open_fixture(&f, name, NULL), "%s", zinf_error());
    struct zinf_trainer *t = trainer(&f, ZINF_TRAINER_TRAIN);
    struct zinf_step_result r = {0};
    struct checkpoint c = {0};
    if (!t)
        return;
    windows(&f, 0, f.batch * f.config->accumulation, in, out);
    CHECKF(!zinf_trainer_step(t, TOKENS(in, out), &r), "%s", zinf_error());
    double wanted = nth(cJSON_GetObjectItem(f.expected, "steps"), "loss", 0);
    CHECKF(near(r.loss, wanted, 1e-5), "%s: loss %.9g, not %.9g", name, r.loss, wanted);
    zinf_make_dirs(in_work(folder, name));
    CHECKF(!checkpoint_save(t, &c, folder, 0), "%s", zinf_error());
    checkpoint_fini(&c);
    snprintf(ours, sizeof ours, "%s/checkpoint-1/optimizer/moment1.safetensors", folder);
    snprintf(theirs, sizeof theirs, "%s/moment1.safetensors", f.folder);
    double worst = compare_files(ours, theirs);
    CHECKF(worst <= 1e-4, "%s: worst first moment %g", name, worst);
    printf("# %s: loss off by %.2g, worst gradient with dropout %.2g\n", name,
           fabs(r.loss / wanted - 1), worst);
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static void test_gradients_with_dropout(void)
{
    check_first_moments("peft_t");
    check_first_moments("peft_u");
    check_first_moments("peft_v");
}

static void test_ten_steps_of_adafactor(void)
{
    check_steps("gpt2_a", "adafactor", "adafactor10", ten_steps);
    check_steps("gpt2_d", "adafactor", "adafactor10", ten_steps);
}

/* torch.optim.Muon, and others by their authors' formulas, for the matrices of blocks, AdamW for
 * the rest; the vectors that gradients are projected along change every seven to twenty steps. */
static void test_fifty_steps_of_matrices(void)
{
    static const struct bounds close = {1e-5, 1e-5};
    static const char *const kinds[] = {"muon", "normuon", "galore", "apollo", "apollo_mini"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char after[40];
        snprintf(after, sizeof after, "%s_after", kinds[i]);
        check_steps("gpt2_a", kinds[i], after, close);
        check_steps("llama_a", kinds[i], after, close);
        if (strcmp(kinds[i], "normuon") && strcmp(kinds[i], "apollo_mini"))
            check_steps("gpt2_d", kinds[i], after, close);
    }
}

static void check_logits(const char *name)
{
    struct fixture f;
    int32_t in[2048], out[2048];
    CHECKF(!open_fixture(&f, name, NULL), "%s", zinf_error());
    struct zinf_trainer *t = trainer(&f, ZINF_TRAINER_FORWARD);
    if (!t)
        return;
    int64_t vocab = zinf_model_facts(zinf_trainer_model(t))->vocab;
    float *logits = malloc((size_t)vocab * sizeof *logits);
    float *wanted = malloc((size_t)vocab * sizeof *wanted);
    const cJSON *entry;
    windows(&f, 0, f.batch, in, out);
    cJSON_ArrayForEach(entry, cJSON_GetObjectItem(f.expected, "logits"))
    {
        int64_t row = (int64_t)number(entry, "row"), at = (int64_t)number(entry, "position");
        const cJSON *values = cJSON_GetObjectItem(entry, "values");
        if (!strcmp(name, by_length) && at + 1 < f.seq)
            continue;
        for (int64_t i = 0; i < vocab; i++)
            wanted[i] = (float)cJSON_GetNumberValue(cJSON_GetArrayItem(values, (int)i));
        CHECKF(!zinf_trainer_logits(t, in + row * f.seq, at + 1, logits), "%s", zinf_error());
        double d = distance(logits, wanted, (uint64_t)vocab);
        CHECKF(d < 1e-5, "%s: logits of %lld, %lld off by %g", name, (long long)row, (long long)at,
               d);
    }
    free(logits);
    free(wanted);
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static void test_logits(void)
{
    for (size_t i = 0; i < N_ALL; i++)
        check_logits(fixture_at(i));
}

int main(void)
{
    make_work("fixtures");
    zinf_log_set_level(ZINF_LOG_WARN);
    TAP_RUN(test_loss_and_gradients);
    TAP_RUN(test_bf16_and_fp16_loss);
    TAP_RUN(test_logits);
    TAP_RUN(test_ten_steps);
    TAP_RUN(test_gradients_with_dropout);
    TAP_RUN(test_ten_steps_of_adafactor);
    TAP_RUN(test_fifty_steps_of_matrices);
    remove_work();
    return tap_done();
}
