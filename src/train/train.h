/*
 * train: model layers + offload = a step program. The only place that knows both: it plans what
 * lives where, builds the programs of a step, runs them, and moves weights between Hugging Face
 * folders and tiers. Also evaluation; generate.h has texts, checkpoints.h what trainings leave.
 *
 * A *trainer* holds one model on its tiers. Everything large is taken in zinf_trainer_create,
 * after the plan was checked against the budgets; nothing large is allocated afterwards.
 *
 * Threads: a trainer is used by one thread; it owns its lanes' threads. Errors: -errno and a
 * sentence; after a failed step the trainer can only be destroyed, which also removes its files
 * under nvme_path, unless its steps outlive it.
 */
#ifndef ZINF_TRAIN_H
#define ZINF_TRAIN_H

#include "aio/aio.h"
#include "base/base.h"
#include "config/config.h"
#include "formats/formats.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "net/net.h"
#include "text/text.h"

#include <signal.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- trainer ---- */

enum zinf_trainer_mode {
    ZINF_TRAINER_TRAIN,     /* parameters, gradients, optimizer state */
    ZINF_TRAINER_GRADIENTS, /* parameters and gradients: no update */
    ZINF_TRAINER_FORWARD,   /* parameters: evaluation and sampling */
};
/* From which rows of a sample its embedding is made: the mean of all rows, or one of them. */
enum zinf_pooling {
    ZINF_POOL_MEAN, /* all */
    ZINF_POOL_FIRST,
    ZINF_POOL_LAST,
};
struct zinf_speeds;
struct zinf_trace_file;
/* How much decoding has room for: sequences continued at once, tokens that each may have, and new
 * tokens in one call. For an encoder-decoder the sources in the same way. */
struct zinf_decode_shape {
    int64_t sequences, capacity, rows;
    int64_t sources, source_capacity, source_rows;
};
struct zinf_described_machine;
struct zinf_trainer_options {
    enum zinf_trainer_mode mode;
    const char *model_path; /* folder with config.json and weights */
    bool init;              /* weights from the family's initialisation, not from files */
    /* A folder with adapter_config.json and adapter_model.safetensors, as PEFT writes them. NULL:
     * fresh adapters where zinf.adapter asks for any. The rest of the model is frozen then. */
    const char *adapter;
    uint64_t seed;                    /* of initialisation and dropout */
    const struct zinf_config *config; /* borrowed */
    int64_t seq_len;                  /* tokens of a sample; 0: min(context, 1024) */
    /* For an encoder-decoder: tokens that the encoder reads; 0: zinf.source_length or, without
     * that, seq_len. */
    int64_t source_len;
    bool packed; /* batches have segments (zinf_model_set_packed) */
    /* With TRAIN: zinf_trainer_logits or zinf_trainer_classify will be called as well, even if
     * sequences are visited in chunks. */
    bool makes_texts;
    /* Every two samples are a pair, of which the first is preferred. Their labels are 0 and -1, or
     * -1 for both if the pair does not count. The loss is that of zinf.preference over the pairs.
     * With "reward" the second label may be the bits of a negative float: minus the pair's margin.
     */
    bool pairs;
    /* For pairs whose loss compares with a reference model: true: batches have the reference's log
     * probabilities (ZINF_INPUT_REFERENCES), which a run computes before its first step. False: the
     * model without its adapters is the reference, and computes them in the same step. */
    bool references;
    /* Passed to zinf_model_set_classes; NULL: as in config.json. TRAIN initialises tensors of the
     * head that the folder does not have, and with new_head always those of the classes. */
    const struct zinf_model_classes *classes;
    enum zinf_model_head head; /* passed to zinf_model_set_head */
    enum zinf_pooling pooling; /* of a model that makes embeddings */
    /* How many samples one row of the data has, for instance an anchor, a positive and a negative
     * text. Micro-batches are counted in rows. 0: 1. */
    int64_t together;
    bool new_head;
    /* [classes]: the weight of a sample of each class in the mean loss of a step; NULL: 1.
     * Borrowed. */
    const float *class_weights;
    /* With FORWARD: the trainer is for zinf_trainer_decode only. -ENOTSUP: the device or the model
     * cannot cache keys and values. sequences 0: the trainer is for all other calls, which take
     * whole sequences. */
    struct zinf_decode_shape decode;
    enum zinf_device_kind device;
    /* Connects the ranks of a training; NULL: there is only one. Borrowed. Each rank has its slice
     * of every unit's parameters, gradient and optimizer state, and trains on its share of a step's
     * samples. All ranks make the same calls in the same order, each from its own thread. */
    struct zinf_net *net;
    /* a second one, for saves in the background; NULL: steps wait for saves */
    struct zinf_net *save_net;
    /* The trace file (zinf.trace) that all seats of the process write to; NULL: the trainer writes
     * its own. */
    struct zinf_trace_file *trace;
    /* The number of the GPU to use, among those that are visible; NULL: the rank's number on its
     * host. */
    const int *gpu;
    /* 16 bytes that name a training. Its steps then survive the process, as zinf.durability asks: a
     * trainer of the same name goes on after the last one. NULL: steps do not survive. */
    const uint8_t *run;
    bool anew; /* remove what steps of that name there are, and begin anew */
    /* The checkpoint or output folder that the training goes on from: its products.json says by
     * which algorithms the GPU multiplied. NULL: none. */
    const char *products;
    /* Known speeds of the machine, which the plan uses for what it may choose; or NULL. */
    const struct zinf_speeds *speeds;
    /* For estimates: the machine to plan for. NULL: this one. */
    const struct zinf_described_machine *described;
    uint32_t pipe_rank, tensor_rank; /* of ranks that are described: the one to plan for */
    int64_t n_layers; /* overrides the model's number of layers, with init only; 0: the model's */
    /* For tests: wraps the I/O engine of the drives; operations start late by up to delay_us. */
    struct zinf_aio_around around;
    uint32_t delay_us;
    /* choose another schedule after every step, with other deferred updates */
    bool changes_schedule;
    /* For tests: of a sequence in chunks, how many operations a piece of a program has at least;
     * 0: as many as are short beside what they do. */
    uint32_t piece_ops;
    /* For tests: RAM that plans count as this process's own before they take any; 0: what it has,
     * which depends on all that it did before. */
    uint64_t resident_bytes;
    /* room for packed data in RAM, as a factor of its expected size; 0: the usual */
    double head_margin;
    bool packs_fronts; /* pack parameters in RAM even if steps become slower */
    bool codes;        /* send matrices to the device as 8 bits even if steps become slower */
};
struct zinf_trainer;
int zinf_trainer_create(struct zinf_trainer **out, const struct zinf_trainer_options *options);
/* Whether sequences of so many tokens are computed in chunks. */
bool zinf_cuts_sequences(const struct zinf_config *config, int64_t seq_len);
void zinf_trainer_destroy(struct zinf_trainer *trainer);

const struct zinf_model *zinf_trainer_model(const struct zinf_trainer *trainer);
int64_t zinf_trainer_seq_len(const struct zinf_trainer *trainer);
/* The ledger by tier with budgets, and one line on the choices of the plan. */
int zinf_trainer_print_plan(const struct zinf_trainer *trainer, FILE *out);
/* Whether RAM holds anything that the configuration allows to be on the drive. text: then a
 * sentence that says what, and which keys set the limit. */
bool zinf_trainer_filled(const struct zinf_trainer *trainer, char text[static 256]);
/* The name of the GPU that computes, borrowed from the trainer. NULL: the CPU computes. */
const char *zinf_trainer_gpu(const struct zinf_trainer *trainer);
uint64_t zinf_trainer_planned_bytes(const struct zinf_trainer *trainer, int memory_tier);
/* Planned memory of all ranks, by tier: device, host, drive. */
struct zinf_planned {
    uint64_t process[3];        /* of all ranks of this process together */
    uint64_t most[3], least[3]; /* of the rank that needs most, and of the one that needs least */
    uint32_t rank[3];           /* the first of those that need most */
};
/* As the ranks have told each other when the trainer was made. */
struct zinf_planned zinf_trainer_planned(const struct zinf_trainer *trainer);

/* Mean rewards of the n preference pairs that count (kernels/loss.h) or, with has_kl, of KTO's
 * single sequences. accuracy: the share of pairs whose preferred sample has the larger reward, or
 * of sequences whose reward is on the right side of beta kl. */
struct zinf_rewards {
    uint64_t n, n_chosen, n_rejected, has_kl; /* the first three are the same but with KTO */
    double chosen, rejected, accuracy, kl;    /* NaN: there are none */
};
struct zinf_step_result {
    uint64_t step;      /* from 1: attempts, skipped ones included */
    uint64_t n_applied; /* updates so far */
    double loss;        /* mean over the step's tokens */
    double grad_norm;   /* of the unscaled, unclipped gradient; NaN or Inf when skipped */
    double lr, loss_scale;
    bool skipped; /* overflow: no update was made */
    struct zinf_rewards rewards;
    double seconds, predicted_seconds; /* 0: not predicted */
    /* with the drive's speed of the fastest and of the slowest recent step */
    double predicted_range[2];
    uint64_t tokens;      /* of all ranks, from the batch */
    int64_t seq_len;      /* rows of a sample in this step */
    const char *schedule; /* of this step */
    uint64_t n_redone;    /* steps so far whose early updates were taken back */
    /* lane_seconds: busy seconds of each lane; stall_seconds[a][b]: how long lane a waited for lane
     * b; bottleneck: the busiest lane */
    double lane_seconds[8];
    uint64_t lane_bytes[8];
    double stall_seconds[8][8];
    const char *bottleneck;
    /* Copies that waited because their host memory is not page-locked; -1: the device needs none
     * that is. */
    int64_t pageable_copies;
};
/* Where rows of ids and targets come from that no array has: n of a sample, from `first` on. Either
 * may be NULL. Other threads call read while a step or an evaluation runs, one at a time. */
struct zinf_batch_rows {
    int (*read)(void *arg, int64_t sample, int64_t first, int64_t n, int32_t *ids,
                int32_t *targets);
    void *arg;
};
/* The inputs of a model, by kind (model/graph.h lists them): [samples][seq_len]; those of the
 * source [samples][source_len]; labels [samples]. A target < 0 is ignored. positions NULL: they
 * count from 0 in every sample. segments NULL: every sample is one document. Borrowed for the call.
 */
struct zinf_batch {
    const int32_t *inputs[ZINF_INPUTS];
    /* Tokens of each sample, at most the trainer's, and the same on all ranks: only so many are
     * computed and moved. 0: the trainer's. */
    int64_t seq_len, source_len;
    /* [samples]: rows of each sample, and of its source, that are no padding; they come first. In
     * chunks only those with such rows are visited. NULL: all rows may have tokens. */
    const int32_t *lengths, *source_lengths;
    /* For reports: tokens of all ranks' samples that are not padding. 0: all. */
    uint64_t tokens;
    /* For sequences in chunks, instead of the arrays of ids and targets, so that no memory grows
     * with a sequence; read NULL: there are arrays. */
    struct zinf_batch_rows rows;
};
/* One training step. batch: this rank's accumulation * micro_batch samples, which follow those of
 * lower ranks in the global batch. The result is that of all ranks together. */
int zinf_trainer_step(struct zinf_trainer *trainer, const struct zinf_batch *batch,
                      struct zinf_step_result *result);
/* The summed loss of up to micro_batch windows, without dropout: *sum over *count targets. If the
 * loss is a mean over windows (graph.h), every target counts with that mean. */
int zinf_trainer_loss(struct zinf_trainer *trainer, const struct zinf_batch *batch,
                      int64_t n_windows, double *sum, uint64_t *count);
/* What the cross-entropy has of the sum that zinf_trainer_loss gave last: all but the losses that
 * balance experts. */
double zinf_trainer_cross_entropy(const struct zinf_trainer *trainer);
/* Forward and backward of one micro-batch, without dropout; loss and gradient norm. */
int zinf_trainer_gradients(struct zinf_trainer *trainer, const struct zinf_batch *batch,
                           double *loss, double *grad_norm);
/* Logits [n_windows][classes] of up to micro_batch windows; -EINVAL: the model has no classes. */
int zinf_trainer_classify(struct zinf_trainer *trainer, const struct zinf_batch *batch,
                          int64_t n_windows, float *logits);
/* Embeddings [n_windows][hidden] of up to a micro-batch's windows, not normalised. -EINVAL: the
 * model makes none. */
int zinf_trainer_embed(struct zinf_trainer *trainer, const struct zinf_batch *batch,
                       int64_t n_windows, float *embeddings);
/* Logits [vocab] after the last of n tokens, 1 <= n <= seq_len. zinf_trainer_sample_logits takes
 * one sample with all inputs of the model, whose target side has n tokens. */
int zinf_trainer_sample_logits(struct zinf_trainer *trainer, const struct zinf_batch *sample,
                               int64_t n, float *logits);
int zinf_trainer_logits(struct zinf_trainer *trainer, const int32_t *ids, int64_t n, float *logits);
/* Writes a Hugging Face folder: config.json and safetensors in the parameters' number type,
 * streaming. Of a model with adapters only the adapters, in fp32, as PEFT writes them. */
int zinf_trainer_save(struct zinf_trainer *trainer, const char *folder);
/* Writes the gradients of zinf_trainer_gradients in fp32 under their Hugging Face names, as one
 * file. */
int zinf_trainer_save_gradients(struct zinf_trainer *trainer, const char *path);

/* Writes a new model folder from a configuration (zinf init), with bounded memory. */
int zinf_model_write_new(const cJSON *config, enum zinf_dtype dtype, uint64_t seed,
                         const char *folder);
/* Writes config.json alone: enough for an estimate, or for a training with fresh weights. */
int zinf_model_write_config(const cJSON *config, enum zinf_dtype dtype, const char *folder);

/* ---- data of a run ---- */

/* Opens a file of tokens for a data set: what its options take as open_token_file. */
int zinf_token_source_open(const char *path, struct zinf_token_source *out);

/* ---- a training run ---- */

/* The best evaluation, at the end of a run. */
struct zinf_run_best {
    uint64_t step; /* the step with the lowest evaluation loss; 0: there was no evaluation */
    double loss;
    bool is_model;      /* model/ has the weights of that step */
    bool stopped_early; /* zinf.early_stopping ended the run */
    /* the last step that the training has made, in this process or an earlier one */
    uint64_t last_step;
};
struct zinf_evaluation {
    const char *set; /* the part of the evaluation data (text.h), borrowed; NULL: all */
    double loss;     /* the mean */
    /* the mean without the loss that balances experts: the perplexity is its exponential */
    double cross_entropy;
    uint64_t tokens; /* tokens that count; or labels, or pairs */
    struct zinf_rewards rewards;
};
/* Callbacks of a run, called in the caller's thread. Any may be NULL. */
struct zinf_run_events {
    void (*planned)(void *arg, const struct zinf_trainer *trainer);
    void (*stepped)(void *arg, const struct zinf_step_result *result, uint64_t steps);
    void (*evaluated)(void *arg, uint64_t step, const struct zinf_evaluation *found);
    /* Called for each metric of scores; set as in zinf_evaluation. */
    void (*scored)(void *arg, uint64_t step, const char *set, const char *metric, double value);
    void (*saved)(void *arg, uint64_t step, const char *folder);
    void (*ended)(void *arg, const struct zinf_run_best *best); /* called when model/ is complete */
    void *arg;
};
struct zinf_origins;     /* base/apart.h */
struct zinf_run_scores;  /* score.h */
struct zinf_run_prompts; /* the same */
struct zinf_run_options {
    struct zinf_trainer_options trainer;
    /* seats: devices of this process; each is a rank with its own thread. The trainer options' net,
     * if there is one, then connects processes, which must have as many seats each. 0: 1. gpus:
     * [seats] numbers of the GPUs, borrowed; NULL: this process's share of its host's GPUs. */
    uint32_t seats;
    const int *gpus;
    const char *output;   /* folder: model/, checkpoint-N/, log.jsonl, ledger.txt, ... */
    const char *log_path; /* NULL: output/log.jsonl */
    /* files that must not be overwritten (apart.h); NULL: none */
    const struct zinf_origins *origins;
    struct zinf_dataset *data; /* borrowed */
    /* NULL: no evaluation. Each part is evaluated by itself; the first decides about early stopping
     * and the best step. */
    struct zinf_dataset *eval_data;
    /* Metrics that are computed at every evaluation; borrowed. NULL: the loss alone. */
    const struct zinf_run_scores *scores;
    /* prompts that are continued during the training; borrowed; or NULL */
    const struct zinf_run_prompts *prompts;
    uint64_t steps;
    uint64_t eval_every;       /* 0: at the end only */
    uint64_t save_every;       /* steps between checkpoints; 0: only when asked */
    uint64_t save_total_limit; /* checkpoints to keep; 0: all */
    /* Save a checkpoint after the last step even without save_every, so that a longer run can go on
     * from it. If it cannot be saved, the run warns and still succeeds. */
    bool save_last;
    /* Remove what another run left in output or log_path once this one can begin, with a message.
     * Without this such a run is refused. */
    bool overwrite;
    const char *resume; /* checkpoint to go on from, or NULL: from the beginning */
    /* Go on after the last step that survived its process, unless the checkpoint is newer. Without
     * this the run refuses to begin anew over such a step, and removes it if resume names a
     * checkpoint. */
    bool resume_steps;
    /* warn, rather than fail, if the model, data or settings have changed since the checkpoint */
    bool accept_changes;
    /* A signal handler sets it to the signal's number; the run then finishes the step, saves and
     * returns. On return it is that number on all ranks if the signal ended the training early,
     * else 0. */
    volatile sig_atomic_t *stop;
    /* a signal handler sets it: the run saves after this step and resets it */
    volatile sig_atomic_t *save;
    struct zinf_run_events events;
    /* Called if one of several seats hangs (seats.h); NULL: the run waits for it. */
    void (*stuck)(void);
};
/* Trains, logs, evaluates and saves. Output that was begun and not finished is removed, or keeps a
 * temporary name. A checkpoint that cannot be saved is reported and does not end the run, unless it
 * is the last one. The output folder is locked meanwhile. If this rank alone fails, it tells the
 * others. */
int zinf_run_train(const struct zinf_run_options *options);
/* If options.references asks for it, sets the references of the samples of data to the
 * log-probabilities by the model in options.model_path without adapters, for an evaluation: a run
 * does so by itself. All ranks must call it. */
int zinf_run_refer(const struct zinf_trainer_options *options, struct zinf_dataset *data);
/* Evaluates every window of data, in order. */
int zinf_run_evaluate(struct zinf_trainer *trainer, const struct zinf_config *config,
                      struct zinf_dataset *data, struct zinf_evaluation *out);
/* zinf_trainer_embed of n windows from `first` on, at most a micro-batch. */
int zinf_run_embed(struct zinf_trainer *trainer, struct zinf_dataset *data, uint64_t first,
                   uint64_t n, float *embeddings);
/* zinf_trainer_gradients of the first micro-batch of data, whatever the model takes of it. */
int zinf_run_gradients(struct zinf_trainer *trainer, struct zinf_dataset *data, double *loss,
                       double *norm);

#ifdef __cplusplus
}
#endif
#endif
