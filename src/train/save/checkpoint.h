/*
 * checkpoint: a folder from which a training goes on with the same bits, under any placement. It
 * is a Hugging Face model folder, with the fp32 master weights and moments of every parameter
 * beside it in optimizer/ (in fp32 the model itself is the master), and trainer_state.json, which
 * holds the rest and the checksum of every file. Inside this folder only.
 */
#ifndef ZINF_TRAIN_CHECKPOINT_H
#define ZINF_TRAIN_CHECKPOINT_H

#include "base/json.h"
#include "train/save/transfer.h"

#define CHECKPOINT_FORMAT 2 /* of trainer_state.json; another one is refused */
#define CHECKPOINT_STATE "trainer_state.json"
#define CHECKPOINT_OPTIMIZER "optimizer"

struct checkpoint_file {
    char *name; /* within the checkpoint, "optimizer/master.safetensors" */
    uint64_t bytes, xxh3;
};

/* Which data, in which order: a position means something only together with it. */
struct checkpoint_data {
    uint64_t position; /* windows given out */
    uint64_t windows, tokens, fingerprint;
    int64_t seq_len;
    struct zinf_flow_mark mark; /* of rows that are taken as they are needed; else zeros */
};

/* The best evaluation so far, and how many have come since. */
struct checkpoint_best {
    uint64_t step; /* 0: none */
    double loss;
    double rank; /* the best has the least: the loss, or what a metric makes of it */
    uint64_t since;
};

/* What trainer_state.json says. */
struct checkpoint {
    uint64_t step, n_applied, seed;
    uint64_t threads; /* of the host device: sums are cut by it; 0: not known */
    double lr;        /* of the last update; for the reader */
    enum zinf_dtype dtype;
    char optimizer[64]; /* setup_optimizers_text */
    int n_moments;
    bool adapted;      /* of adapters alone: the folder is PEFT's */
    uint64_t base_sum; /* of the weights under them */
    uint64_t origin;   /* of several ranks' steps: drawn when the first was made; 0: of no such */
    bool went_back;    /* the run was told to: what was saved later is of another past */
    bool foreign;      /* DeepSpeed's: nothing is known of its data but how much they were */
    struct zinf_loss_scale loss_scale;
    struct checkpoint_data data;
    struct checkpoint_best best;
    cJSON *config;    /* the resolved configuration */
    cJSON *stands_on; /* identity.h */
    struct checkpoint_file *files;
    uint32_t n_files;
    uint32_t n_compared; /* of the first of these: after they were written, by whoever wrote them */
};
void checkpoint_fini(struct checkpoint *c);

/* checkpoint_state.c: as text with its checksum, on the heap; the scalars of a committed step are
 * the same without files. text ends with NUL, which bytes does not count. */
char *checkpoint_text(const struct checkpoint *c);
int checkpoint_parse(struct checkpoint *out, const char *what, const char *text, size_t bytes);
int checkpoint_write_state(const struct checkpoint *c, const char *folder);
int checkpoint_read_state(struct checkpoint *out, const char *folder);
/* The list of files alone, beside a model that was saved. */
int checkpoint_write_list(const struct checkpoint *c, const char *folder);
/* -ENOENT without a message: the folder has none. */
int checkpoint_read_list(struct checkpoint *out, const char *folder);

/* checkpoint_files.c */
int checkpoint_add_file(struct checkpoint *c, const char *part, const char *name, uint64_t bytes,
                        uint64_t xxh3);
/* What was written, as it was handed to the drive. */
int checkpoint_add_written(struct checkpoint *c, const char *part,
                           const struct zinf_tensors_writer *writer);
/* The sum of an adapter's weights among them; 0: there is none. */
uint64_t checkpoint_adapter_sum(const struct checkpoint *c);
/* Adds the plain files of c's folder/part ("" or "optimizer") that are not listed yet, as they are
 * on the drive. */
int checkpoint_add_others(struct checkpoint *c, const char *folder, const char *part);
/* Reads every listed file from the drive, past the page cache, and compares. -EBADMSG: the message
 * names the file. */
int checkpoint_verify(const struct checkpoint *c, const char *folder);
/* The same from the file of that number on. */
int checkpoint_verify_from(const struct checkpoint *c, const char *folder, uint32_t first);
/* Rank 0's list becomes that of all ranks' files, which they have compared. */
int collect_files(const struct source *s, struct checkpoint *c);
/* Length and XXH3 of a file as it is on the drive. */
int checkpoint_sum_file(const char *path, uint64_t *bytes, uint64_t *xxh3);
bool checkpoint_lists(const struct checkpoint *c, const char *name);
/* The first array in optimizer/: masters, unless the weights beside it are these already. */
int checkpoint_first_part(const struct checkpoint *c);
/* Name of the array's file in a checkpoint: part as in transfer.h, PART_MASTER or a moment. */
void checkpoint_part_name(const struct checkpoint *c, int part, char name[64]);

/* checkpoint_save.c: c has what the trainer does not know: seed, data, config. Makes
 * OUTPUT/checkpoint-STEP and "latest", and removes what limit (0: none) does not leave. On failure
 * nothing of it is left, and what was there stays. */
int checkpoint_save(struct zinf_trainer *t, struct checkpoint *c, const char *output,
                    uint64_t limit);
/* The same where no update is still to be done. Of several ranks all call it. */
int checkpoint_write(struct source *s, struct checkpoint *c, const char *output, uint64_t limit);
/* What the trainer does know. */
void checkpoint_take_counters(const struct source *s, struct checkpoint *c);

/* checkpoint_background.c: the same by another thread; c is taken over, output is borrowed. The
 * second step after that one may begin only when it has ended. */
struct checkpoint_background;
bool checkpoint_background_possible(const struct zinf_trainer *t);
int checkpoint_background_begin(struct checkpoint_background **out, struct zinf_trainer *t,
                                struct checkpoint *c, const char *output, uint64_t limit);
bool checkpoint_background_is_done(const struct checkpoint_background *b);
uint64_t checkpoint_background_step(const struct checkpoint_background *b);
/* Waits for it; what checkpoint_save would have returned. */
int checkpoint_background_end(struct checkpoint_background *b);

/* checkpoint_foreign.c */
/* Of a checkpoint of DeepSpeed's what trainer_state.json would say. -ENODATA without a message:
 * it is none. */
int checkpoint_open_foreign(struct checkpoint *out, const char *folder);
/* One of its arrays. */
int checkpoint_open_foreign_part(const char *folder, int part, struct zinf_tensors **out);
/* Whether the training that goes on from it, with these optimizers, has the moments that it has. */
int checkpoint_check_foreign(const struct checkpoint *c, const char *folder,
                             const char *optimizers);

/* checkpoint_load.c */
/* Reads and verifies a checkpoint; when it is damaged the message offers the one before. */
int checkpoint_open(struct checkpoint *out, const char *folder);
/* The same without looking for another. */
int checkpoint_open_one(struct checkpoint *out, const char *folder);
/* The same of the checkpoint that was just written: reads what is not compared yet. */
int checkpoint_open_rest(struct checkpoint *out, const char *folder,
                         const struct checkpoint *written);
/* -EINVAL where the trainer cannot go on from it; what goes on with other bits is a warning. */
int checkpoint_check_config(const struct checkpoint *c, const char *folder,
                            const struct zinf_config *config, const cJSON *resolved);
int checkpoint_check_model(const struct checkpoint *c, const char *folder,
                           const struct zinf_trainer_options *options);
/* The same of what is frozen: an adapter goes on above the weights that it was trained above. */
int checkpoint_check_base(const struct checkpoint *c, const char *folder,
                          const struct zinf_trainer *t);
int checkpoint_check_data(const struct checkpoint *c, const char *folder,
                          const struct checkpoint_data *data);
/* Master weights, moments and counters into a trainer whose model_path is the checkpoint. */
int checkpoint_load(const struct checkpoint *c, const char *folder, struct zinf_trainer *t);
/* Only the counters. */
void checkpoint_count_on(const struct checkpoint *c, struct zinf_trainer *t);

#endif
