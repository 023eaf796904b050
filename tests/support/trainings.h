/*
 * trainings: small trainings of one model under many settings, and the comparison of what comes out
 * of them. A setting names what differs from the usual one and leaves the rest zero; the tokens are
 * those of a step under every setting.
 */
#ifndef ZINF_TRAININGS_H
#define ZINF_TRAININGS_H

#include "aio_faults.h"
#include "base/random.h"
#include "train_support.h"
#include "set.h"

enum { MOST_STEPS = 14, MOST_ROWS = 1024 };

/* Plans count so much as the program's own, whatever earlier trainings have left in the heap: so a
 * budget of host memory gives the same plan on each run. */
#define RESIDENT ((uint64_t)24 << 20)

/* What all trainings of a test program have in common. */
struct trainings {
    struct zinf_model_shape shape;
    int steps, seq, batch, sub_group;
};
struct setting {
    const char *param, *state, *grad; /* places; NULL: the drive, and where the state is */
    const char *optimizer;            /* a JSON object; NULL: AdamW */
    const char *precision;            /* a section of the configuration, with its comma */
    const char *schedule, *order;     /* NULL: auto */
    const char *look_ahead;           /* a number; NULL: auto */
    const char *extra;                /* further keys of "zinf", each after a comma */
    int steps, accumulation, threads; /* 0: all steps, 1, 1 */
    int stage;                        /* of ZeRO; 0: 3 */
    int sharing;        /* ranks that have the same samples; 0: they have no parts of sequences */
    bool in_blocks;     /* they have parts of tensors, and several groups of them */
    bool copies;        /* not direct */
    double clip;        /* 0: off */
    double head_margin; /* 0: the usual */
    bool asks_fronts;   /* parameters in RAM are packed, whatever that costs */
    bool asks_codes;    /* matrices go to the device in 8 bits, the same */
    double on_device;   /* of the optimizer's state */
    bool saves;         /* after each step, too */
    int rows;           /* of each sample, that the batch has; 0: as many as a sample may have */
    bool padded;        /* the batch has padding behind them, */
    bool lengths;       /* and says how long all samples but the first are */
    bool sparse;        /* odd steps have one target a sequence: their gradient is large */
    bool may_fail, changes_schedule;
    uint32_t piece_ops;                  /* of a program in pieces; 0: as usual */
    uint64_t host_memory, device_memory; /* 0: not given */
    const struct zinf_aio_faults *faults;
    uint32_t delay_us;
    bool on_gpu;
    const struct zinf_speeds *speeds; /* that the plan goes by */
};
struct outcome {
    double loss[MOST_STEPS], norm[MOST_STEPS];
    bool skipped[MOST_STEPS];
    uint64_t read[MOST_STEPS]; /* bytes from the drive */
    uint64_t returned;         /* bytes from the device in the last step */
    int64_t pageable;          /* copies that waited, in all steps; below 0: not on a GPU */
    uint64_t sent, lent;       /* to other ranks in the last step; of that, without a copy */
    unsigned n_far;            /* units that a GPU updates */
    bool grads_there;          /* some gradients are kept on the device, some not */
    bool adds_there;           /* sums in RAM are added to there */
    bool packs_ram;            /* optimizer state in RAM is packed; */
    bool packs_fronts;         /* parameters there are */
    bool packs_frozen;         /* and frozen ones anywhere */
    bool unpacks_there;        /* the device unpacks parameters */
    bool codes;                /* matrices go there in 8 bits, */
    bool images;               /* and some are on the drive so; */
    bool updates_images;       /* those that updates write, too */
    uint64_t fetched;          /* bytes to the device in the last step */
    bool overwrites;           /* parameters in RAM are there once, their state on the drive */
    uint64_t n_redone, device_bytes, drive_bytes;
    int n_skipped;
    char folder[600], schedule[32];
    bool failed;
};

static struct trainings trainings;
static char model[600], drive[600];

static const char bf16[] = "\"bf16\": {\"enabled\": true},";
static const char *const schedules[] = {"serial", "prefetch", "update-in-forward",
                                        "update-in-backward", "update-in-place"};

/* The test's folder, with a drive in it and a new model. */
static inline void begin_trainings(const char *name, const struct trainings *of_all)
{
    trainings = *of_all;
    make_work(name);
    zinf_log_set_level(ZINF_LOG_ERROR);
    zinf_make_dirs(in_work(drive, "drive"));
    make_model(model, "model", &trainings.shape, 11);
}

static inline const char *word(const char *given, const char *usual)
{
    return given ? given : usual;
}

/* What a test sends to the drive is there, unless it says otherwise. */
static inline const char *exact_unless(const struct setting *s)
{
    bool says = s->host_memory ||
                (s->extra && (strstr(s->extra, "placement") || strstr(s->extra, "host_memory")));
    return says ? "" : ", \"placement\": \"exact\"";
}

static inline struct zinf_config *configure_of(const struct setting *s, int64_t world)
{
    char text[2048], grad[64] = "";
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    context.world_size = world;
    set_memory(&context, "zinf.host_memory", s->host_memory);
    set_memory(&context, "zinf.device_memory", s->device_memory);
    if (s->grad)
        snprintf(grad, sizeof grad, ", \"grad_device\": \"%s\"", s->grad);
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_accumulation_steps\": %d,"
             "\"gradient_clipping\": %g, %s \"optimizer\": %s,"
             "\"zero_optimization\": {\"stage\": %d, \"sub_group_size\": %d,"
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"},"
             "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\", \"ratio\": %g}},"
             "\"zinf\": {\"threads\": %d, \"schedule\": \"%s\", \"accumulation_order\": \"%s\","
             "\"look_ahead\": %s, \"direct\": %s%s%s%s}}",
             trainings.batch, s->accumulation ? s->accumulation : 1, s->clip,
             word(s->precision, ""),
             word(s->optimizer, "{\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, "
                                "\"weight_decay\": 0.1}}"),
             s->stage ? s->stage : 3, trainings.sub_group, word(s->param, "nvme"), drive,
             word(s->state, "nvme"), drive, 1 - s->on_device, s->threads ? s->threads : 1,
             word(s->schedule, "auto"), word(s->order, "auto"), word(s->look_ahead, "\"auto\""),
             s->copies ? "false" : "true", grad, word(s->extra, ""), exact_unless(s));
    CHECKF(!zinf_config_parse(&config, text, strlen(text), "test", &context), "%s", zinf_error());
    return config;
}

static inline struct zinf_config *configure(const struct setting *s)
{
    return configure_of(s, 1);
}

static inline struct zinf_trainer_options trainer_options(const struct setting *s,
                                                          const struct zinf_config *config)
{
    return (struct zinf_trainer_options){.mode = ZINF_TRAINER_TRAIN,
                                         .model_path = model,
                                         .seed = 5,
                                         .config = config,
                                         .seq_len = trainings.seq,
                                         .device = s->on_gpu ? ZINF_DEVICE_CUDA : ZINF_DEVICE_HOST,
                                         .around = AIO_FAULTS(s->faults),
                                         .delay_us = s->delay_us,
                                         .head_margin = s->head_margin,
                                         .packs_fronts = s->asks_fronts,
                                         .codes = s->asks_codes,
                                         .speeds = s->speeds,
                                         .changes_schedule = s->changes_schedule,
                                         .piece_ops = s->piece_ops,
                                         .resident_bytes = RESIDENT};
}

static inline void draw_tokens(const struct setting *s, uint64_t step, int32_t *ids,
                               int32_t *targets)
{
    int accumulation = s->accumulation ? s->accumulation : 1;
    for (int i = 0; i < accumulation * trainings.batch * trainings.seq; i++) {
        uint32_t counter[4] = {(uint32_t)i, (uint32_t)step, 0, 0}, bits[4];
        bool without = s->sparse && step % 2 && i % trainings.seq;
        zinf_philox(counter, 3, bits);
        ids[i] = (int32_t)(bits[0] % (uint32_t)trainings.shape.vocab);
        targets[i] = without ? -1 : (int32_t)(bits[1] % (uint32_t)trainings.shape.vocab);
    }
}

/* Of samples the first rows alone, or with padding behind them. */
static inline void shorten(const struct setting *s, int32_t *ids, int32_t *targets)
{
    const int n = (s->accumulation ? s->accumulation : 1) * trainings.batch * trainings.seq;
    for (int i = 0; i < n; i++) {
        const int row = i % trainings.seq, to = i / trainings.seq * s->rows + row;
        if (s->padded && row >= s->rows) {
            ids[i] = 0;
            targets[i] = -1;
        } else if (!s->padded && row < s->rows) {
            ids[to] = ids[i];
            targets[to] = targets[i];
        }
    }
}

static inline void say_lengths(const struct setting *s, struct zinf_batch *batch)
{
    static _Thread_local int32_t lengths[MOST_ROWS];
    batch->seq_len = s->padded ? 0 : s->rows;
    for (int i = 0; i < MOST_ROWS; i++)
        lengths[i] = i ? s->rows : trainings.seq;
    batch->lengths = s->lengths ? lengths : NULL;
}

static inline int next_step(struct zinf_trainer *t, const struct setting *s, uint64_t step,
                            struct zinf_step_result *r)
{
    static int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    struct zinf_batch batch = *TOKENS(ids, targets);
    draw_tokens(s, step, ids, targets);
    if (s->rows)
        shorten(s, ids, targets);
    say_lengths(s, &batch);
    return zinf_trainer_step(t, &batch, r);
}

static inline int rank_of(const char *schedule)
{
    for (int i = 0; i < 5; i++)
        if (schedule && !strcmp(schedules[i], schedule))
            return i + 1;
    return 0;
}

/* A schedule that rests runs as the one before it: what counts is the most that any step did. */
static inline void note_step(struct outcome *out, int step, const struct zinf_step_result *r)
{
    out->loss[step] = r->loss;
    out->norm[step] = r->grad_norm;
    out->skipped[step] = r->skipped;
    out->n_skipped += r->skipped;
    out->n_redone = r->n_redone;
    out->read[step] = r->lane_bytes[0];
    out->fetched = r->lane_bytes[2];
    out->returned = r->lane_bytes[3];
    out->pageable += r->pageable_copies;
    if (rank_of(r->schedule) > rank_of(out->schedule))
        snprintf(out->schedule, sizeof out->schedule, "%s", r->schedule);
}

/* By what the plan says. */
static inline unsigned count_far_units(const struct zinf_trainer *t)
{
    static const char phrase[] = "the device updates ";
    char *text = NULL;
    size_t bytes;
    unsigned n = 0;
    FILE *out = open_memstream(&text, &bytes);
    CHECK(out && !zinf_trainer_print_plan(t, out));
    if (out)
        fclose(out);
    const char *said = text ? strstr(text, phrase) : NULL;
    if (said)
        n = (unsigned)strtoul(said + sizeof phrase - 1, NULL, 10);
    free(text);
    return n;
}

/* A whole training; its model is saved in work/out-NAME. */
static inline void run(const struct setting *s, const char *name, struct outcome *out)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = trainer_options(s, config);
    memset(out, 0, sizeof *out);
    if (!config)
        return;
    CHECKF(!zinf_trainer_create(&t, &options) || s->may_fail, "%s", zinf_error());
    out->failed = !t;
    snprintf(out->folder, sizeof out->folder, "%s/out-%s", work, name);
    for (int step = 0; !out->failed && step < (s->steps ? s->steps : trainings.steps); step++) {
        struct zinf_step_result r = {0};
        out->failed = next_step(t, s, (uint64_t)step, &r) != 0;
        note_step(out, step, &r);
        CHECKF(!s->saves || !zinf_trainer_save(t, out->folder), "%s", zinf_error());
    }
    if (t) {
        CHECKF(!out->failed || s->may_fail, "%s", zinf_error());
        CHECKF(out->failed || !zinf_trainer_save(t, out->folder), "%s", zinf_error());
        out->n_far = count_far_units(t);
        out->grads_there = plan_says(t, "gradients on device and ");
        out->adds_there = plan_says(t, "the device adds to the sums");
        out->packs_ram = plan_says(t, "optimizer state in RAM is packed");
        out->packs_fronts = plan_says(t, "parameters in RAM are packed");
        out->packs_frozen = plan_says(t, "frozen parameters are packed");
        out->unpacks_there = plan_says(t, "device as they are, which unpacks them");
        out->codes = plan_says(t, "go to the device in 8 bits");
        out->images = plan_says(t, "of it are on the drive so");
        out->updates_images = plan_says(t, "updates write both");
        out->overwrites = plan_says(t, "of parameters in RAM have one generation there");
        out->device_bytes = zinf_trainer_planned_bytes(t, ZINF_MEMORY_DEVICE);
        out->drive_bytes = zinf_trainer_planned_bytes(t, ZINF_MEMORY_DRIVE);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static inline void check_same(const struct outcome *a, const struct outcome *b, const char *what)
{
    for (int i = 0; i < trainings.steps; i++) {
        CHECKF(a->loss[i] == b->loss[i] && a->loss[i] > 0, "%s: loss %d: %.17g, %.17g", what, i,
               a->loss[i], b->loss[i]);
        CHECKF(a->norm[i] == b->norm[i] || (!isfinite(a->norm[i]) && !isfinite(b->norm[i])),
               "%s: norm %d: %.17g, %.17g", what, i, a->norm[i], b->norm[i]);
    }
    CHECKF(same_weights(a->folder, b->folder), "%s: weights differ", what);
}

#endif
