/*
 * config: DeepSpeed's JSON, as users have it, into one checked struct. Every value of the struct
 * is resolved: defaults filled in, "auto" replaced, the batch triple completed; and each knows
 * where it came from. Unknown keys are errors with path, line and the nearest known key, but for
 * foreign ones at the top, which DeepSpeed ignores too; keys that are known and change nothing here
 * are listed once; a key that asks for what zinf does not do is an error that says so. What a file
 * leaves to Hugging Face's Trainer has Trainer's defaults, and one line says which. Knows nothing
 * of models but the few numbers given to it.
 *
 * Ownership: a config is one heap object, freed with zinf_config_destroy. Read-only after
 * zinf_config_load, any thread.
 */
#ifndef ZINF_CONFIG_H
#define ZINF_CONFIG_H

#include "base/base.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum zinf_place {
    ZINF_PLACE_NONE, /* "none": on the device */
    ZINF_PLACE_CPU,
    ZINF_PLACE_NVME,
};
const char *zinf_place_name(enum zinf_place place);

enum zinf_scheduler_kind {
    ZINF_SCHEDULER_NONE, /* constant lr */
    ZINF_SCHEDULER_WARMUP_LR,
    ZINF_SCHEDULER_WARMUP_DECAY_LR,
    ZINF_SCHEDULER_WARMUP_COSINE_LR,
    ZINF_SCHEDULER_LR_RANGE_TEST,
    ZINF_SCHEDULER_ONE_CYCLE,
    /* As Hugging Face's Trainer has them: warm-up from 0 over warmup_num_steps, then */
    ZINF_SCHEDULER_LINEAR, /* down to 0 at total_num_steps */
    ZINF_SCHEDULER_COSINE, /* the same along half a cosine */
    ZINF_SCHEDULER_CONSTANT_WITH_WARMUP,
};

/* Which side of a matrix [m][n] of a file GaLore and APOLLO replace by their projection. STD: the
 * shorter one, the columns where m >= n; REVERSE_STD: the longer one. */
enum zinf_projection {
    ZINF_PROJ_STD,
    ZINF_PROJ_REVERSE_STD,
    ZINF_PROJ_RIGHT, /* columns */
    ZINF_PROJ_LEFT,
};

struct zinf_config_optimizer {
    /* "AdamW", "Adam", "Lion", "Adagrad", "SGD", "Adafactor", "AdamW8bit", "Muon", "NorMuon",
     * "GaLoreAdamW", "APOLLO", "APOLLO-Mini" as resolved */
    char type[16];
    double lr, beta1, beta2, eps, weight_decay, momentum;
    double muon_lr, adam_lr;  /* Muon: lr is the first; the second is of what is no matrix */
    bool nesterov, match_rms; /* Muon, NorMuon */
    double row_beta2;         /* NorMuon */
    /* GaLore and APOLLO */
    int64_t rank, update_proj_gap; /* steps */
    double scale;
    enum zinf_projection proj_type;
    bool scale_by_tensor, scale_front, disable_nl; /* APOLLO */
    bool bias_correction;
    bool decoupled; /* AdamW, AdamW8bit, Lion, Adafactor, or Adam with adam_w_mode */
    double beta2_decay, eps1, eps2, clip_threshold; /* Adafactor */
    bool relative_step, scale_parameter;            /* Adafactor */
};

struct zinf_config_scheduler {
    enum zinf_scheduler_kind kind;
    double warmup_min_lr, warmup_max_lr;
    int64_t warmup_num_steps, total_num_steps;
    bool warmup_log; /* warmup_type log (default), else linear */
    double warmup_min_ratio, cos_min_ratio;
    double range_min_lr, range_step_rate;
    int64_t range_step_size;
    bool range_staircase;
    double cycle_min_lr, cycle_max_lr, decay_lr_rate;
    int64_t cycle_first_step_size, cycle_second_step_size;
    int64_t cycle_first_stair_count, cycle_second_stair_count, decay_step_size;
    bool cycle_momentum;
    double cycle_min_mom, cycle_max_mom, decay_mom_rate;
};

struct zinf_config_fp16 {
    bool enabled;
    double loss_scale; /* 0: dynamic */
    int64_t initial_scale_power, loss_scale_window, hysteresis;
    double min_loss_scale;
    bool consecutive_hysteresis;
};

#define ZINF_CONFIG_MAX_PATHS 16
struct zinf_config_offload {
    enum zinf_place device;
    char *nvme_path[ZINF_CONFIG_MAX_PATHS]; /* one, or a list (zinf's extension: striped) */
    int n_nvme_paths;
    bool pin_memory;
    int64_t buffer_count;               /* hints, never fatal */
    int64_t buffer_size, max_in_cpu;    /* offload_param */
    bool pipeline_read, pipeline_write; /* offload_optimizer */
    double ratio;
};

struct zinf_config_aio {
    int64_t block_size, queue_depth, n_threads;
    bool single_submit, overlap_events;
};

struct zinf_config {
    /* batch triple, complete: train_batch_size = micro_batch * accumulation * world_size */
    int64_t train_batch_size, micro_batch, accumulation, world_size;
    /* The micro batch is to be found by the plan (zinf_config_set_micro_batch), and is 1 so far. */
    bool finds_micro_batch;
    struct zinf_config_optimizer optimizer;
    struct zinf_config_scheduler scheduler;
    double gradient_clipping; /* 0: off */
    struct zinf_config_fp16 fp16;
    bool bf16;
    bool bf16_check_overflow;
    bool bf16_masters, bf16_moments; /* bf16_master_weights_and_grads, bf16_optimizer_states */
    enum zinf_dtype dtype;           /* fp16.enabled, bf16.enabled, else fp32 */

    int64_t zero_stage;
    int64_t sub_group_size;              /* elements */
    int64_t prefetch_bucket_size;        /* elements; hint for look_ahead */
    int64_t param_persistence_threshold; /* elements */
    struct zinf_config_offload offload_param, offload_optimizer;
    struct zinf_config_aio aio;

    bool cpu_checkpointing;  /* activation_checkpointing.cpu_checkpointing */
    int64_t steps_per_print; /* 0: never */
    bool wall_clock_breakdown;
    bool csv_enabled;
    char *csv_output_path, *csv_job_name;
    bool tensorboard_enabled;
    char *tensorboard_output_path, *tensorboard_job_name;

    /* "zinf": {...}: what DeepSpeed has no key for */
    uint64_t device_memory, host_memory; /* bytes; 0: what is there */
    int64_t look_ahead;                  /* units fetched ahead; -1: the plan decides */
    int64_t threads;                     /* 0: what is there */
    int64_t seats;                       /* devices that one process drives; 0: those there are */
    int64_t tensor_parts;                /* that matrices are cut into; 1: they are not cut */
    bool parts_in_turn;                  /* the device has one of them at a time */
    int64_t vocabulary_tile;             /* rows of a tile of it; 0: by the size of a block */
    int64_t context_parts;               /* that sequences are cut into; 1: they are not cut */
    int64_t source_length;               /* tokens of what an encoder reads; 0: as a sequence's */
    char *io_engine;                     /* "auto", "uring", "threads" */
    bool checksums;                      /* of extents; default true */
    enum zinf_place grad_device;         /* default: as offload_optimizer.device */
    double dropout;        /* < 0: as the model's configuration says; else replaces all three */
    char *trace;           /* Chrome trace file, or NULL */
    char *durability;      /* "auto", "none" or "step": steps survive the process */
    bool durability_flush; /* and a power cut */
    char *pack;            /* "auto", "off", "state" or "all": what a drive has compressed */
    bool time_products;    /* a GPU's algorithms for products are timed before the first step */
    bool async_save;       /* checkpoints are written while training goes on */
    char *activation_checkpointing; /* "auto" (default), "always", "never" */
    char *schedule;     /* "auto", "serial", "prefetch", "update-in-forward", "update-in-backward",
                         * "update-in-place" */
    char *expert_fetch; /* "auto", "all", "chosen" */
    char *accumulation_order; /* "auto", "micro-major", "layer-major" */
    char *gradient_sum;       /* "auto", "tree" */
    double timeout;           /* seconds that a rank may send nothing */
    char *gather;             /* "auto", "host", "device": where ranks' slices become units */
    /* DeepSpeed's names of mesh[1] */
    int64_t autotp_size, tp_size;
    int64_t sequence_parallel_size; /* and of mesh[3] */
    int64_t mesh[4];         /* ranks along data (0: as many as are left), tensor, pipe, context */
    char *placement;         /* "auto": given budgets are filled; "exact": none; "fill": all */
    int64_t sequence_chunk;  /* tokens that are computed at once; 0: all; -1: by their number */
    char *activation_device; /* "auto", "none", "cpu", "nvme": block inputs */
    char *optimizer_device;  /* "cpu": but for ratio; "auto": and what the device has room for */
    bool direct;             /* drive and CPU use device memory where they can */
    bool weights_in_place;   /* a frozen model on the drive is read from its own folder */
    char *quantize;          /* "none", "nf4", "int8": of a frozen model's linear layers */
    char *matmul_type;       /* "same" as parameters; "fp8": linear layers'; "tf32" */
    char *pad_to;            /* "longest" sample of a step, "max": the sequence length */
    bool group_by_length;    /* a training's samples of a step are about as long */
    int64_t early_stopping;  /* evaluations that are no better, after which a run ends; 0: none */
    bool load_best_at_end;   /* the model that a run leaves is that of its best evaluation */
    double label_smoothing;  /* of cross-entropy; 0: none */
    double z_loss;           /* times the square of the logits' log-sum-exp; 0: none */
    double max_z_loss;       /* times the square of the largest log-probability; 0: none */
    double embedding_scale;  /* of likeness in the loss of embeddings */
    double neftune_alpha;    /* of noise on embedded tokens; 0: none */
    char *preference;        /* "dpo", "ipo", "orpo", "simpo", "reward", "kto": the loss of
                              * pairs, and its numbers */
    double preference_beta, preference_margin, center_rewards_coefficient;
    double desirable_weight, undesirable_weight;
    /* Of zinf.mesh.pipe: a JSON list of numbers of layers, one for each rank, or NULL; else a word
     * of DeepSpeed's for how they are dealt; and DeepSpeed's name of mesh[2]. */
    char *pipeline_parts, *pipeline_method;
    int64_t pipeline_stages;
    bool pipeline_overlap;   /* more micro-batches at once, so that nothing waits for transfers */
    int64_t pipeline_ranges; /* of layers, that each rank of mesh[2] has; or, not 0: */
    int64_t pipeline_range_layers; /* blocks that each range has, from which their number follows */
    char *freeze;                  /* a JSON list of patterns of tensors' names, or NULL */
    char *learning_rates;          /* a JSON list of rules for tensors' names, or NULL */
    double layer_decay;            /* a layer's rate by that of the next; 1: none */
    char *adapter;                 /* a JSON object as PEFT's adapter_config.json, or NULL: none */

    struct zinf_config_entries *entries; /* every known key: value, source (private) */
};

/* A value that an option of the command, or a program, gives to a key of the configuration. It wins
 * over the file's; a conflict is said (logged at WARN, both values). Beside the keys of the file
 * there are some of which several are made:
 *     dtype                  "fp32", "bf16" or "fp16": bf16.enabled and fp16.enabled
 *     warmup_ratio           of all steps: scheduler.params.warmup_num_steps
 *     zinf.adapter.MEMBER    a member of zinf.adapter
 */
struct zinf_config_setting {
    const char *key;
    const char *text; /* the value; NULL: number is */
    double number;
    const char *name; /* of what gives it, as messages have it ("--lr"); NULL: the key */
};
#define ZINF_CONFIG_MOST_SETTINGS 64
struct zinf_config_settings {
    struct zinf_config_setting
        item[ZINF_CONFIG_MOST_SETTINGS]; /* of two for a key the last counts */
    int n;
};
/* Adds a setting; strings are borrowed. -EINVAL: there is no room for more. */
int zinf_config_settings_add(struct zinf_config_settings *settings,
                             const struct zinf_config_setting *setting);
/* What is set for key, or NULL. */
const struct zinf_config_setting *
zinf_config_settings_find(const struct zinf_config_settings *settings, const char *key);
/* The words that a key's value is one of, with a NULL behind; NULL: other values. */
const char *const *zinf_config_key_words(const char *key);
/* The place of word among them, which is the number of an enum in their order. NULL: 0. -EINVAL: it
 * is none of them. */
int zinf_config_key_word(const char *key, const char *word, int *place);

/* What a load knows beside the file. */
struct zinf_config_context {
    struct zinf_config_settings settings;
    int64_t world_size; /* of ranks, or of processes with as many seats each; >= 1; 0: 1 */
    /* Seats that are asked for, and how many there are where neither that nor zinf.seats says; 0:
     * one. */
    int64_t seats, seats_there;
    int64_t hidden_size; /* of the model; < 0: not known */
    int64_t steps;       /* of the training: total_num_steps "auto"; < 0: not known */
    const char *dtype;   /* of the model folder, used where the file asks for "auto" */
    bool lenient;        /* unknown keys are warnings */
    /* Nothing is trained: not a word on learning rates. */
    bool no_training;
    bool no_steps; /* nor are there steps: of a batch its micro batch alone counts */
    bool quiet;    /* notes and warnings were given by an earlier load */
    /* The caller can find a micro batch that is "auto" (struct zinf_config, finds_micro_batch). */
    bool finds_micro_batch;
    /* To be looked at only: an "auto" that nobody provides stays one, and is printed as such. */
    bool show;
};
#define ZINF_CONFIG_CONTEXT_DEFAULT                                                                \
    {                                                                                              \
        .world_size = 1, .hidden_size = -1, .steps = -1                                            \
    }

/* Divides a step's samples of a rank into micro batches of so many, which must divide them. */
int zinf_config_set_micro_batch(struct zinf_config *config, int64_t micro_batch);

#define ZINF_CONFIG_MOST_BYTES ((size_t)1 << 20) /* of a file */
/* path NULL: no file, defaults and context alone (micro batch 1, Trainer's optimizer). */
int zinf_config_load(struct zinf_config **out, const char *path,
                     const struct zinf_config_context *context);
/* The same from text; what names it in messages. */
int zinf_config_parse(struct zinf_config **out, const char *text, size_t bytes, const char *what,
                      const struct zinf_config_context *context);
/* Whether path is no file but a configuration itself, which begins with its brace; the calls with a
 * path take it as well. NULL is none. */
bool zinf_config_is_text(const char *path);
/* What a file says of zinf.timeout, before the rest of it can be read; else *seconds stays as it
 * is. */
void zinf_config_timeout(const char *path, double *seconds);
/* What a file of gdGPT says that are options of the command and no keys of the configuration, such
 * as its model_path, which is --model: take is given the option's name ("model") and its value, one
 * after the other; what it returns, if not 0, ends that. Other files have none. */
int zinf_config_job(const char *path, int (*take)(void *arg, const char *option, const char *text),
                    void *arg);
void zinf_config_destroy(struct zinf_config *config);
/* Table: key, value, where it came from (file:line, command line, default, auto: rule). */
int zinf_config_print(const struct zinf_config *config, FILE *out);
/* config.resolved.json: a configuration that gives this config again, and "_sources". Atomic. */
int zinf_config_write(const struct zinf_config *config, const char *path);

#ifdef __cplusplus
}
#endif
#endif
