/*
 * checkpoint_support: short runs that save and go on, for the tests of checkpoints: what a step
 * gave, in which placement, and whether two runs gave the same.
 */
#ifndef ZINF_CHECKPOINT_SUPPORT_H
#define ZINF_CHECKPOINT_SUPPORT_H

#include "train_support.h"

#define STEPS 5
#define CUT 2 /* of 5 windows a step and 12 an epoch: mid-epoch, and an epoch ends behind it */
#define SEQ 16

static char model[600], drive[600], text[600];
static struct zinf_tokenizer *tokenizer;

struct place {
    const char *param, *optimizer;
};
static const struct place places[] = {
    {"none", "none"}, {"none", "cpu"},  {"none", "nvme"}, {"cpu", "none"},  {"cpu", "cpu"},
    {"cpu", "nvme"},  {"nvme", "none"}, {"nvme", "cpu"},  {"nvme", "nvme"},
};
#define N_PLACES (sizeof places / sizeof *places)

static const char *const precisions[] = {
    "",
    "\"bf16\": {\"enabled\": true},",
    /* Overflows at first, then grows again: scale and skipped steps are part of the state. */
    ("\"fp16\": {\"enabled\": true, \"initial_scale_power\": 23, \"hysteresis\": 1,"
     "\"loss_scale_window\": 2},"),
};

struct setting {
    const struct place *place;
    const char *precision, *output, *resume, *optimizer;
    const char *params;       /* further ones of the optimizer, each after a comma */
    const char *extra;        /* further keys of "zinf", each after a comma */
    const char *data, *model; /* NULL: the usual ones */
    uint64_t steps, save_every, limit, seed;
    bool no_shuffle, background, accept_changes;
    bool asks_codes; /* matrices go to the device in 8 bits */
    bool eager;      /* every update in its backward: nothing clips */
    bool waits;      /* none before its step's backward is done */
};
struct outcome {
    double loss[STEPS + 1], norm[STEPS + 1]; /* [step] */
    bool skipped[STEPS + 1];
    uint64_t n_saved;
    uint64_t fetched; /* bytes to the device in the last step */
};

static inline void on_stepped(void *arg, const struct zinf_step_result *r, uint64_t steps)
{
    struct outcome *out = arg;
    (void)steps;
    out->loss[r->step] = r->loss;
    out->norm[r->step] = r->grad_norm;
    out->skipped[r->step] = r->skipped;
    out->fetched = r->lane_bytes[2];
}

static inline void on_saved(void *arg, uint64_t step, const char *folder)
{
    struct outcome *out = arg;
    (void)step;
    out->n_saved += strstr(folder, "/checkpoint-") != NULL;
}

static inline struct zinf_config *configure(const struct setting *s)
{
    char json[2048];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    snprintf(json, sizeof json,
             "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 5, %s"
             "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 1e-3%s}},"
             "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_num_steps\": 3, "
             "\"warmup_min_lr\": 1e-4,"
             "\"total_num_steps\": 9}},"
             "\"csv_monitor\": {\"enabled\": true, \"output_path\": \"%s/csv\"},"
             "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 20000,"
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"},"
             "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}},"
             "\"gradient_clipping\": %d,"
             "\"zinf\": {\"threads\": 1, \"placement\": \"exact\", \"async_save\": %s, "
             "\"schedule\": \"%s\"%s}}",
             s->precision, s->optimizer ? s->optimizer : "AdamW", s->params ? s->params : "",
             s->output, s->place->param, drive, s->place->optimizer, drive, !s->eager,
             s->background ? "true" : "false",
             s->eager   ? "update-in-backward"
             : s->waits ? "prefetch"
                        : "auto",
             s->extra ? s->extra : "");
    CHECKF(!zinf_config_parse(&config, json, strlen(json), "test", &context), "%s", zinf_error());
    return config;
}

static inline int run(const struct setting *s, struct outcome *out)
{
    struct outcome none;
    struct zinf_config *config = configure(s);
    struct zinf_dataset *data =
        open_bytes(s->data ? s->data : text, tokenizer, SEQ, !s->no_shuffle, s->seed);
    memset(out ? out : &none, 0, sizeof none);
    struct zinf_run_options options = {
        .accept_changes = s->accept_changes,
        .trainer = {.mode = ZINF_TRAINER_TRAIN,
                    .model_path = s->model ? s->model : model,
                    .seed = s->seed,
                    .config = config,
                    .seq_len = SEQ,
                    .codes = s->asks_codes,
                    .device = ZINF_DEVICE_HOST},
        .output = s->output,
        .data = data,
        .steps = s->steps,
        .save_every = s->save_every,
        .save_total_limit = s->limit,
        .resume = s->resume,
        .events = {.stepped = on_stepped, .saved = on_saved, .arg = out ? out : &none},
    };
    int code = config && data ? zinf_run_train(&options) : -EINVAL;
    zinf_dataset_close(data);
    zinf_config_destroy(config);
    return code;
}

static inline bool same_bits(double a, double b)
{
    return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b));
}

static inline void check_same(const struct outcome *whole, const struct outcome *rest,
                              const char *what)
{
    for (int i = CUT + 1; i <= STEPS; i++) {
        CHECKF(same_bits(whole->loss[i], rest->loss[i]), "%s: loss %d: %.17g, %.17g", what, i,
               whole->loss[i], rest->loss[i]);
        CHECKF(same_bits(whole->norm[i], rest->norm[i]), "%s: norm %d: %.17g, %.17g", what, i,
               whole->norm[i], rest->norm[i]);
    }
}

/* The test's folder, with a drive, a model, a text of twelve windows, and tokens that are bytes. */
static inline void begin_checkpoints(const char *name)
{
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 2, .hidden = 32, .heads = 2, .vocab = 257, .context = 32};
    make_work(name);
    zinf_log_set_level(ZINF_LOG_ERROR);
    zinf_make_dirs(in_work(drive, "drive"));
    make_model(model, "model", &shape, 11);
    FILE *file = fopen(in_work(text, "text.txt"), "w");
    for (int i = 0; file && i < 12 * SEQ + 1; i++)
        fputc('a' + i * i % 23 + i % 3, file);
    if (file)
        fclose(file);
    CHECKF(!zinf_tokenizer_bytes(&tokenizer), "%s", zinf_error());
}

static inline void end_checkpoints(void)
{
    zinf_tokenizer_close(tokenizer);
    remove_work();
}

#endif
