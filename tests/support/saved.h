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
