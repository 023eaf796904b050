/*
 * saved: trainings from the fixtures of families, and checkpoints of single trainers, without a
 * run.
 */
#ifndef ZINF_SAVED_H
#define ZINF_SAVED_H

#include "train/save/checkpoint.h"
#include "train/save/output.h"
#include "trainings.h"

static const char *const places[] = {"none", "cpu", "nvme"};

static const char adamw_8bit[] = "{\"type\": \"AdamW8bit\", \"params\": {\"lr\": 1e-3, "
                                 "\"weight_decay\": 0.1}}";
static const char adafactor[] = "{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-2, "
                                "\"weight_decay\": 0.1}}";
static const char *const optimizers[] = {NULL, adamw_8bit, adafactor};

static inline void take_fixture(const char *name)
{
    snprintf(model, sizeof model, "%s/tests/fixtures/%s", getenv("SRCDIR"), name);
}

static inline struct setting setting_of(const char *optimizer, const char *precision)
{
    return (struct setting){.optimizer = optimizer,
                            .precision = precision,
                            .param = "none",
                            .state = "none",
                            .accumulation = 2,
                            .clip = 0.5};
}

/* The same with further keys of "zinf". */
static inline struct setting setting_with(const char *precision, const char *extra)
{
    struct setting s = setting_of(NULL, precision);
    s.extra = extra;
    return s;
}

/* The bits of a setting, parameters and optimizer state in every step-th of the nine pairs of
 * places; orders: with one order of micro-batches and the other in turn. */
static inline void check_all_places(struct setting s, const char *what, int step, bool orders)
{
    struct outcome reference, other;
    char where[256];
    run(&s, "reference", &reference);
    for (int i = 0; i < 9; i += step) {
        s.param = places[i / 3];
        s.state = places[i % 3];
        if (orders)
            s.order = i / step % 2 ? "micro-major" : "layer-major";
        snprintf(where, sizeof where, "%s, %s %s: parameters %s, state %s", what,
                 word(s.optimizer, "AdamW"), word(s.precision, ""), s.param, s.state);
        run(&s, "other", &other);
        check_same(&reference, &other, where);
    }
}

/* The bits of a setting on the drive, by all schedules but the last and both orders. */
static inline void check_all_schedules(struct setting s)
{
    static const char *const orders[] = {"micro-major", "layer-major"};
    struct outcome reference, other;
    char what[128];
    s.accumulation = 3;
    s.schedule = "serial";
    run(&s, "reference", &reference);
    s.param = s.state = "nvme";
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            s.schedule = schedules[i];
            s.order = orders[k];
            s.copies = k;
            snprintf(what, sizeof what, "%s, %s", s.schedule, s.order);
            run(&s, "other", &other);
            check_same(&reference, &other, what);
        }
}

static inline struct zinf_trainer *open_trainer(const struct setting *s,
                                                const struct zinf_config *config, const char *path)
{
    struct zinf_trainer_options options = trainer_options(s, config);
    struct zinf_trainer *t = NULL;
    options.model_path = path;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
}

static inline void save_checkpoint(struct zinf_trainer *t, const char *name, char folder[700])
{
    struct checkpoint c = {.seed = 5};
    char output[600];
    zinf_make_dirs(in_work(output, name));
    CHECKF(!checkpoint_save(t, &c, output, 0), "%s", zinf_error());
    snprintf(folder, 700, "%s/checkpoint-%llu", output, (unsigned long long)t->step);
    checkpoint_fini(&c);
}

static inline void load_checkpoint(struct zinf_trainer *t, const char *folder)
{
    struct checkpoint c;
    int code = checkpoint_open(&c, folder);
    if (!code)
        code = checkpoint_load(&c, folder, t);
    CHECKF(!code, "%s", zinf_error());
    checkpoint_fini(&c);
}

/* A test program's main. */
static inline void begin_fixtures(const char *name)
{
    begin_trainings(name, &(struct trainings){.shape = {.arch = "llama",
                                                        .layers = 1,
                                                        .hidden = 16,
                                                        .heads = 2,
                                                        .vocab = 61,
                                                        .context = 32},
                                              .steps = 3,
                                              .seq = 16,
                                              .batch = 2,
                                              .sub_group = 4096});
}

#endif
