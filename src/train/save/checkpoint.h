/*
 * checkpoint: a folder from which a training continues with the same bits, whatever the placement.
 * It is a Hugging Face model folder, with the fp32 master weights and moments of every parameter in
 * optimizer/ (in fp32 the model's weights are the master weights), and trainer_state.json, which
 * has everything else and the checksum of every file. Inside this folder only.
 */
#ifndef ZINF_TRAIN_CHECKPOINT_H
#define ZINF_TRAIN_CHECKPOINT_H

#include "base/json.h"
#include "train/save/transfer.h"

#define CHECKPOINT_FORMAT 2 /* version of trainer_state.json; others are refused */
#define CHECKPOINT_STATE "trainer_state.json"
#define CHECKPOINT_OPTIMIZER "optimizer"

struct checkpoint_file {
    char *name; /* relative to the checkpoint, such as "optimizer/master.safetensors" */
    uint64_t bytes, xxh3;
};

/* The position in the data, and facts that identify the data and their order. */
struct checkpoint_data {
    uint64_t position; /* windows taken so far */
    uint64_t windows, tokens, fingerprint;
    int64_t seq_len;
    /* for streamed data, whose rows are read as they are needed; else zeros */
    struct zinf_flow_mark mark;
};

/* The best evaluation so far, and how many evaluations came after it. */
struct checkpoint_best {
    uint64_t step; /* 0: none */
    double loss;
    double rank; /* the best has the least: the loss, or a number that a metric gives */
    uint64_t since;
};

/* The content of trainer_state.json. */
struct checkpoint {
    uint64_t step, n_applied, seed;
    /* threads of the host device, on which the order of sums depends; 0: not known */
    uint64_t threads;
    double lr; /* of the last update; only for human readers */
    enum zinf_dtype dtype;
    char optimizer[64]; /* setup.optimizers_set */
    int n_moments;
    bool adapted;      /* only adapters were trained: the folder is in PEFT's form */
    uint64_t base_sum; /* checksum of the frozen weights */
    /* a random number that identifies the steps of several ranks; 0: there are none */
    uint64_t origin;
    /* the run was told to go back: checkpoints of later steps belong to another history */
    bool went_back;
    bool foreign; /* written by DeepSpeed: only the amount of its data is known */
    struct zinf_loss_scale loss_scale;
    struct checkpoint_data data;
    struct checkpoint_best best;
    cJSON *config;    /* the resolved configuration */
    cJSON *stands_on; /* identity.h */
    struct checkpoint_file *files;
    uint32_t n_files;
    /* how many of the first files were read back and compared by the ranks that wrote them */
    uint32_t n_compared;
};
void checkpoint_fini(struct checkpoint *c);

/* checkpoint_state.c: checkpoint_text returns c as text with its checksum, on the heap; NULL: no
 * memory. The scalars of a committed step have the same form, without files. checkpoint_parse reads
 * such a text of `bytes` bytes and a NUL; `what` names it in messages. */
char *checkpoint_text(const struct checkpoint *c);
int checkpoint_parse(struct checkpoint *out, const char *what, const char *text, size_t bytes);
int checkpoint_write_state(const struct checkpoint *c, const char *folder);
int checkpoint_read_state(struct checkpoint *out, const char *folder);
/* Writes only the list of files, beside a saved model. */
int checkpoint_write_list(const struct checkpoint *c, const char *folder);
/* -ENOENT without a message: the folder has no list. */
int checkpoint_read_list(struct checkpoint *out, const char *folder);

/* checkpoint_files.c */
int checkpoint_add_file(struct checkpoint *c, const char *part, const char *name, uint64_t bytes,
                        uint64_t xxh3);
/* Adds the files of a writer with the checksums of the data that it wrote. */
int checkpoint_add_written(struct checkpoint *c, const char *part,
                           const struct zinf_tensors_writer *writer);
/* The checksum of the adapter's weights in the list; 0: it has none. */
uint64_t checkpoint_adapter_sum(const struct checkpoint *c);
/* Adds the plain files in folder/part (part: "" or "optimizer") that are not listed yet, with
 * checksums of their content on the drive. */
int checkpoint_add_others(struct checkpoint *c, const char *folder, const char *part);
/* Reads every listed file from the drive, without the page cache, and compares its checksum.
 * -EBADMSG: the message names the file. */
int checkpoint_verify(const struct checkpoint *c, const char *folder);
/* The same for files `first` and later. */
int checkpoint_verify_from(const struct checkpoint *c, const char *folder, uint32_t first);
/* Adds the files of all ranks, which they have read back and compared, to rank 0's list. */
int collect_files(const struct source *s, struct checkpoint *c);
/* Reads a file from the drive for its length and XXH3. */
int checkpoint_sum_file(const char *path, uint64_t *bytes, uint64_t *xxh3);
/* Adds that checksum to an object of JSON by the name; as zinf_folder_companions calls it. */
int checkpoint_add_sum(void *object, const char *path, const char *name);
/* Adds the checksums of a folder's files of weights by their names; all: their sum. */
int checkpoint_add_weights(cJSON *object, struct zinf_tensors *weights, uint64_t *all);
bool checkpoint_lists(const struct checkpoint *c, const char *name);
/* The first part in optimizer/ (as in transfer.h): the master weights, unless the folder's weights
 * are these already; then the first moment. */
int checkpoint_first_part(const struct checkpoint *c);
/* The name of a part's file in a checkpoint. part: as in transfer.h, PART_MASTER or a moment. */
void checkpoint_part_name(const struct checkpoint *c, int part, char name[64]);

/* checkpoint_save.c: writes OUTPUT/checkpoint-STEP and "latest", and removes checkpoints until at
 * most limit are left (0: no limit). c must have what the trainer does not know: seed, data,
 * config. On failure nothing of the new checkpoint is left, and what was there stays. */
int checkpoint_save(struct zinf_trainer *t, struct checkpoint *c, const char *output,
                    uint64_t limit);
/* The same when no update is pending. All ranks must call it. */
int checkpoint_write(struct source *s, struct checkpoint *c, const char *output, uint64_t limit);
/* Sets the members of c that the trainer knows. */
void checkpoint_take_counters(const struct source *s, struct checkpoint *c);

/* checkpoint_background.c: saves in another thread. begin takes over c and borrows output. The save
 * must have ended before the second step after the saved one begins. */
struct checkpoint_background;
bool checkpoint_background_possible(const struct zinf_trainer *t);
int checkpoint_background_begin(struct checkpoint_background **out, struct zinf_trainer *t,
                                struct checkpoint *c, const char *output, uint64_t limit);
bool checkpoint_background_is_done(const struct checkpoint_background *b);
uint64_t checkpoint_background_step(const struct checkpoint_background *b);
/* Waits for the save, frees b, and returns what checkpoint_save would have returned. */
int checkpoint_background_end(struct checkpoint_background *b);

/* checkpoint_foreign.c */
/* Reads a checkpoint of DeepSpeed as if it had a trainer_state.json. -ENODATA without a message:
 * the folder is no such checkpoint. */
int checkpoint_open_foreign(struct checkpoint *out, const char *folder);
/* Opens one of its parts: the master weights or a moment. */
int checkpoint_open_foreign_part(const char *folder, int part, struct zinf_tensors **out);
/* -ENOTSUP: a training with these optimizers cannot use the moments of the checkpoint, or it has
 * none. */
int checkpoint_check_foreign(const struct checkpoint *c, const char *folder,
                             const char *optimizers);

/* checkpoint_load.c */
/* Reads and verifies a checkpoint. If it is damaged, the message suggests the one before. */
int checkpoint_open(struct checkpoint *out, const char *folder);
/* The same without a suggestion. */
int checkpoint_open_one(struct checkpoint *out, const char *folder);
/* The same for a checkpoint that was just written: reads only the files that are not compared yet.
 */
int checkpoint_open_rest(struct checkpoint *out, const char *folder,
                         const struct checkpoint *written);
/* These compare a training's settings with the checkpoint's. -EINVAL: it cannot continue from the
 * checkpoint. Differences that only change the bits of results are warnings. */
int checkpoint_check_config(const struct checkpoint *c, const char *folder,
                            const struct zinf_config *config, const cJSON *resolved);
int checkpoint_check_model(const struct checkpoint *c, const char *folder,
                           const struct zinf_trainer_options *options);
/* The same for the frozen weights: an adapter must continue on the weights on which it was trained.
 */
int checkpoint_check_base(const struct checkpoint *c, const char *folder,
                          const struct zinf_trainer *t);
int checkpoint_check_data(const struct checkpoint *c, const char *folder,
                          const struct checkpoint_data *data);
/* Loads master weights, moments and counters into a trainer whose model_path is the checkpoint. */
int checkpoint_load(const struct checkpoint *c, const char *folder, struct zinf_trainer *t);
/* Copies chat_template.jinja from the folder of a model, an adapter or a checkpoint, if it has one.
 * The template that a training was told of lies in its model's folder: a checkpoint beside that has
 * the same. */
int checkpoint_copy_template(const char *folder, const char *output);
/* Loads only the counters. */
void checkpoint_count_on(const struct checkpoint *c, struct zinf_trainer *t);

#endif
