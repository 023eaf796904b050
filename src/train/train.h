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
/* Which rows of a sample its embedding is the mean of. */
enum zinf_pooling {
    ZINF_POOL_MEAN, /* all */
    ZINF_POOL_FIRST,
    ZINF_POOL_LAST,
};
struct zinf_speeds;
struct zinf_trace_file;
/* Sequences that are continued at once, the tokens that each may have, the new ones in a call; of
 * an encoder-decoder the sources that are remembered at once, in the same way. */
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
    int64_t seq_len;                  /* T; 0: min(context, 1024) */
    /* Tokens that an encoder reads for a decoder; 0: zinf.source_length, and T without that. */
    int64_t source_len;
    bool packed; /* batches have segments (zinf_model_set_packed) */
    /* TRAIN: zinf_trainer_logits is called, too, also where sequences are visited in chunks. */
    bool makes_texts;
    /* Two samples are a pair, the first of which is preferred: labels are 0 and -1, or -1 for both
     * where it does not count. The loss is that of zinf.preference, over pairs; of "reward" the
     * second label may be the bits of a float below 0, which is the pair's margin with a minus. */
    bool pairs;
    /* Of pairs whose loss has a reference: batches have what it says (ZINF_INPUT_REFERENCES), which
     * a training makes before its first step (run.h). False: the model without its adapters says
     * it, in the same step. */
    bool references;
    /* For zinf_model_set_classes; NULL: as config.json has it. TRAIN begins a head's tensors anew
     * that the folder has not, and with new_head those of the classes in any case. */
    const struct zinf_model_classes *classes;
    enum zinf_model_head head; /* for zinf_model_set_head, likewise */
    enum zinf_pooling pooling; /* of a model that makes embeddings */
    /* Samples that are a row of its data, which micro-batches are counted in: an anchor, what
     * belongs to it, and what does not; 0: 1. */
    int64_t together;
    bool new_head;
    /* [classes]: what a sample of each counts in a step's weighted mean loss; NULL: 1. Borrowed. */
    const float *class_weights;
    /* With FORWARD, for zinf_trainer_decode alone: -ENOTSUP where the device or the model cannot
     * remember keys and values. sequences 0: whole sequences, as all other calls need them. */
    struct zinf_decode_shape decode;
    enum zinf_device_kind device;
    /* The other ranks of a training; NULL: there are none. Borrowed. Each rank has its slice of
     * every unit's parameters, gradient and optimizer state, and trains on its share of a step's
     * samples. All make the same calls in the same order, each from a thread of its own. */
    struct zinf_net *net;
    struct zinf_net *save_net; /* another one, for saves beside steps; NULL: steps wait for them */
    /* Of the process's seats: what zinf.trace names, as one file. NULL: this one's alone. */
    struct zinf_trace_file *trace;
    /* The number of its GPU among those that are visible; NULL: the rank's on its host, or 0. */
    const int *gpu;
    /* 16 bytes that name a training, whose steps then outlive the process where zinf.durability
     * can have it so: a trainer of the same name goes on after the last of them. NULL: they end
     * with it. */
    const uint8_t *run;
    bool anew; /* steps of that name are removed instead */
    /* A checkpoint or a run's output folder, in which the training that this one goes on from has
     * said by which algorithms its GPU multiplied. NULL: none. */
    const char *products;
    /* What is known of the machine when the plan is made, for what it leaves open, or NULL. */
    const struct zinf_speeds *speeds;
    /* For an estimate: a machine to plan for instead of this one. NULL: this one. */
    const struct zinf_described_machine *described;
    uint32_t pipe_rank; /* of it: which of the ranks of a pipeline is planned for */
    int64_t n_layers;   /* instead of the model's; 0: the model's. With init only. */
    /* For tests: an engine around the drives', and operations that start late by up to delay_us. */
    struct zinf_aio_around around;
    uint32_t delay_us;
    bool changes_schedule; /* after every step, and how many layers' updates wait */
    double head_margin;    /* of what is expected to be packed in RAM, its room; 0: usual */
    bool packs_fronts;     /* parameters in RAM are packed, though a step gets longer by it */
    bool codes;            /* matrices go to the device in 8 bits, the same */
};
struct zinf_trainer;
int zinf_trainer_create(struct zinf_trainer **out, const struct zinf_trainer_options *options);
void zinf_trainer_destroy(struct zinf_trainer *trainer);

const struct zinf_model *zinf_trainer_model(const struct zinf_trainer *trainer);
int64_t zinf_trainer_seq_len(const struct zinf_trainer *trainer);
/* The ledger by tier with budgets, and one line on the choices of the plan. */
int zinf_trainer_print_plan(const struct zinf_trainer *trainer, FILE *out);
/* Whether RAM has anything that the configuration lets go to the drive: then a sentence that says
 * what, and which keys limit it. */
bool zinf_trainer_filled(const struct zinf_trainer *trainer, char text[static 256]);
/* The name of the GPU that computes, borrowed from the trainer. NULL: the CPU computes. */
const char *zinf_trainer_gpu(const struct zinf_trainer *trainer);
uint64_t zinf_trainer_planned_bytes(const struct zinf_trainer *trainer, int memory_tier);

/* Means of the n pairs that count (kernels/loss.h), or with has_kl of KTO's single sequences.
 * Accuracy: the share whose first's is the larger, or that are on the right side of beta kl. */
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
    double predicted_range[2]; /* with the drive as in the fastest and slowest of recent steps */
    uint64_t tokens;           /* of all ranks, as the batch says */
    int64_t seq_len;           /* rows of a sample in this step */
    const char *schedule;      /* of this step */
    uint64_t n_redone;         /* steps so far whose early updates were taken back */
    /* busy seconds by lane; seconds that lane a stood still for lane b; the busiest lane */
    double lane_seconds[8];
    uint64_t lane_bytes[8];
    double stall_seconds[8][8];
    const char *bottleneck;
    /* That waited since their host memory is not page-locked; -1: the device needs none that is. */
    int64_t pageable_copies;
};
/* What a model's list of inputs names (model/graph.h), by kind: [samples][seq_len], of the source
 * [samples][source_len], labels [samples]. A target < 0 is ignored; positions that are NULL count
 * from 0 in every sample; segments NULL: a sample is one document. Borrowed for the call. */
struct zinf_batch {
    const int32_t *inputs[ZINF_INPUTS];
    /* Rows of each sample, at most the trainer's, on all ranks alike: what is computed and moved
     * are so many. 0: the trainer's. */
    int64_t seq_len, source_len;
    /* For what a step reports: rows of all ranks' samples that are no padding. 0: all. */
    uint64_t tokens;
};
/* A batch of accumulation * micro_batch samples: this rank's, which follow those of the ranks
 * before it. What the result says is of all ranks. */
int zinf_trainer_step(struct zinf_trainer *trainer, const struct zinf_batch *batch,
                      struct zinf_step_result *result);
/* Loss sums of up to micro_batch windows, without dropout: *sum over *count targets. A loss that is
 * a mean over the windows (graph.h) is in the sum as if each target had it. */
int zinf_trainer_loss(struct zinf_trainer *trainer, const struct zinf_batch *batch,
                      int64_t n_windows, double *sum, uint64_t *count);
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
/* Logits [vocab] after the last of n ids (1 <= n <= seq_len); of one sample with all that the model
 * takes, whose target side has n tokens. */
int zinf_trainer_sample_logits(struct zinf_trainer *trainer, const struct zinf_batch *sample,
                               int64_t n, float *logits);
int zinf_trainer_logits(struct zinf_trainer *trainer, const int32_t *ids, int64_t n, float *logits);
/* Writes folder/config.json and safetensors in the parameters' number type, streaming; of an
 * adapted model the adapters alone, in fp32, as PEFT's folder. */
int zinf_trainer_save(struct zinf_trainer *trainer, const char *folder);
/* fp32 gradients of zinf_trainer_gradients under their Hugging Face names, one file. */
int zinf_trainer_save_gradients(struct zinf_trainer *trainer, const char *path);

/* A new model folder from a configuration (zinf init): streams, bounded memory. */
int zinf_model_write_new(const cJSON *config, enum zinf_dtype dtype, uint64_t seed,
                         const char *folder);
/* Its config.json alone: what an estimate, or a training with fresh weights, begins from. */
int zinf_model_write_config(const cJSON *config, enum zinf_dtype dtype, const char *folder);

/* ---- a training run ---- */

/* Of a run's evaluations, at its end. */
struct zinf_run_best {
    uint64_t step; /* of the lowest loss of those every eval_every steps; 0: there was none */
    double loss;
    bool is_model;      /* what was saved in model/ are the weights of that step */
    bool stopped_early; /* zinf.early_stopping ended the run */
    uint64_t last_step; /* that the model has, of this process or of one before */
};
struct zinf_evaluation {
    const char *set; /* of which part of the evaluation data (text.h), borrowed; NULL: of all */
    double loss;     /* the mean */
    uint64_t tokens; /* that count; labels or pairs where these do */
    struct zinf_rewards rewards;
};
/* What a run tells its caller; any may be NULL. Called in the caller's thread. */
struct zinf_run_events {
    void (*planned)(void *arg, const struct zinf_trainer *trainer);
    void (*stepped)(void *arg, const struct zinf_step_result *result, uint64_t steps);
    void (*evaluated)(void *arg, uint64_t step, const struct zinf_evaluation *found);
    /* Each of scores; set as in zinf_evaluation. */
    void (*scored)(void *arg, uint64_t step, const char *set, const char *metric, double value);
    void (*saved)(void *arg, uint64_t step, const char *folder);
    void (*ended)(void *arg, const struct zinf_run_best *best); /* model/ is there */
    void *arg;
};
struct zinf_origins;     /* base/apart.h */
struct zinf_run_scores;  /* score.h */
struct zinf_run_prompts; /* the same */
struct zinf_run_options {
    struct zinf_trainer_options trainer;
    /* Devices of this process, each of which is a rank with a thread of its own: the trainer
     * options' net, if there is one, is then between processes with as many each. 0: 1. Of GPUs the
     * numbers [seats], borrowed; NULL: those that are this process's share of its host's. */
    uint32_t seats;
    const int *gpus;
    const char *output;   /* folder: model/, checkpoint-N/, log.jsonl, ledger.txt, ... */
    const char *log_path; /* NULL: output/log.jsonl */
    const struct zinf_origins *origins; /* what nothing is written over (apart.h); NULL: nothing */
    struct zinf_dataset *data;          /* borrowed */
    /* NULL: none. Each part is evaluated by itself; what goes by an evaluation (early stopping, the
     * best step) goes by that of the first. */
    struct zinf_dataset *eval_data;
    /* Of its samples, at every evaluation; borrowed. NULL: the loss alone. */
    const struct zinf_run_scores *scores;
    const struct zinf_run_prompts *prompts; /* what it is asked on its way; borrowed; or NULL */
    uint64_t steps;
    uint64_t eval_every;       /* 0: at the end only */
    uint64_t save_every;       /* steps between checkpoints; 0: only when asked */
    uint64_t save_total_limit; /* checkpoints to keep; 0: all */
    /* A checkpoint after the last step without save_every too, from which a longer run can go on.
     * Where it cannot be saved, that is said and the run is none the less done. */
    bool save_last;
    /* What another run left in output or log_path is removed once this one can begin, and said.
     * Without it such a run is refused. */
    bool overwrite;
    const char *resume; /* checkpoint to go on from, or NULL: from the beginning */
    /* Go on after the last step that outlived its process, where there is one that is not before
     * the checkpoint. Without this such a step is in the way of a beginning, and goes where resume
     * names a checkpoint. */
    bool resume_steps;
    bool accept_changes; /* go on although what the run stands on has changed: a warning */
    /* Set by a signal to its number: finish the step, save, return. When the run returns it is the
     * number where that ended the training before its last step, on all ranks, else 0. */
    volatile sig_atomic_t *stop;
    volatile sig_atomic_t *save; /* set by a signal: save after this step; reset */
    struct zinf_run_events events;
    /* Where one of several seats hangs (seats.h); NULL: it is waited for. */
    void (*stuck)(void);
};
/* Trains, logs, evaluates and saves. Output that was begun and not finished is removed or keeps a
 * name that nobody takes for a result. A checkpoint that cannot be saved is reported and does not
 * end the run, but for the last one. The output folder is locked meanwhile. Other ranks are told of
 * a failure that is this one's alone. */
int zinf_run_train(const struct zinf_run_options *options);
/* Over every window of data, in order. */
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
