/*
 * config: reads DeepSpeed's JSON configuration into one checked struct. Every value is resolved:
 * defaults are filled in, "auto" is replaced, and the batch triple is complete. Each value's
 * source is known. Unknown keys are errors with path, line and the nearest known key, except
 * foreign top-level keys, which DeepSpeed ignores too. Known keys without effect here are listed
 * in one note. A key that asks for what zinf cannot do is an error. What a file leaves to Hugging
 * Face's Trainer gets Trainer's defaults, and a note says which. The folder knows nothing of
 * models except the few numbers in the context.
 *
 * Ownership: a config is one heap object, freed with zinf_config_destroy. After zinf_config_load
 * it is read-only, for any thread.
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
    /* as in Hugging Face's Trainer: warm-up from 0 over warmup_num_steps, then */
    ZINF_SCHEDULER_LINEAR, /* linearly to 0 at total_num_steps */
    ZINF_SCHEDULER_COSINE, /* to 0 along half a cosine */
    ZINF_SCHEDULER_CONSTANT_WITH_WARMUP,
};

/* The side of a matrix [m][n] that GaLore and APOLLO replace by its projection. STD: the shorter
 * side, columns if m >= n; REVERSE_STD: the longer one. */
enum zinf_projection {
    ZINF_PROJ_STD,
    ZINF_PROJ_REVERSE_STD,
    ZINF_PROJ_RIGHT, /* columns */
    ZINF_PROJ_LEFT,
};

struct zinf_config_optimizer {
    /* as resolved: "AdamW", "Adam", "Lion", "Adagrad", "SGD", "Adafactor", "AdamW8bit", "Muon",
     * "NorMuon", "GaLoreAdamW", "APOLLO" or "APOLLO-Mini" */
    char type[16];
    double lr, beta1, beta2, eps, weight_decay, momentum;
    double muon_lr, adam_lr; /* Muon: rates of matrices (lr is this one) and of all other tensors */
    bool nesterov, match_rms; /* Muon, NorMuon */
    double row_beta2;         /* NorMuon */
    /* GaLore and APOLLO */
    int64_t rank, update_proj_gap; /* steps */
    double scale;
    enum zinf_projection proj_type;
    bool scale_by_tensor, scale_front, disable_nl; /* APOLLO */
    bool bias_correction;
    /* decoupled weight decay: AdamW, AdamW8bit, Lion, Adafactor, and Adam with adam_w_mode */
    bool decoupled;
    double beta2_decay, eps1, eps2, clip_threshold; /* Adafactor */
    bool relative_step, scale_parameter;            /* Adafactor */
};

struct zinf_config_scheduler {
    enum zinf_scheduler_kind kind;
    double warmup_min_lr, warmup_max_lr;
    int64_t warmup_num_steps, total_num_steps;
    bool warmup_log; /* warmup_type is log (default), not linear */
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
    char *nvme_path[ZINF_CONFIG_MAX_PATHS]; /* one path, or several, over which zinf stripes data */
    int n_nvme_paths;
    bool pin_memory;
    int64_t buffer_count;               /* hints without effect on results */
    int64_t buffer_size, max_in_cpu;    /* of offload_param */
    bool pipeline_read, pipeline_write; /* of offload_optimizer */
    double ratio;
};

struct zinf_config_aio {
    int64_t block_size, queue_depth, n_threads;
    bool single_submit, overlap_events;
};

struct zinf_config {
    /* the batch triple: train_batch_size = micro batch * accumulation * world_size */
    int64_t train_batch_size, micro_batch, accumulation, world_size;
    /* The plan is to choose the micro batch (zinf_config_set_micro_batch); until then it is 1. */
    bool finds_micro_batch;
    struct zinf_config_optimizer optimizer;
    struct zinf_config_scheduler scheduler;
    double gradient_clipping; /* largest norm; 0: no clipping */
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
    uint64_t device_memory, host_memory; /* bytes; 0: all that is available */
    int64_t look_ahead;                  /* units that are fetched ahead; -1: the plan decides */
    int64_t threads;                     /* CPU threads; 0: all available CPUs */
    int64_t seats;                       /* devices that one process drives; 0: all there are */
    int64_t tensor_parts;                /* parts that matrices are cut into; 1: not cut */
    bool parts_in_turn;                  /* the device computes tensor_parts one after the other */
    int64_t vocabulary_tile;     /* rows of a tile of the vocabulary; 0: by the size of a block */
    int64_t context_parts;       /* parts that sequences are cut into; 1: not cut */
    int64_t source_length;       /* tokens of an encoder's input; 0: the sequence length */
    char *io_engine;             /* "auto", "uring", "threads" */
    bool checksums;              /* checksums of the drive's data; default true */
    enum zinf_place grad_device; /* place of gradients; default: as offload_optimizer.device */
    double dropout;   /* < 0: of the model's configuration; else replaces the three rates there */
    char *trace;      /* Chrome trace file, or NULL */
    char *durability; /* "auto", "none" or "step": whether committed steps survive the process */
    bool durability_flush; /* steps survive a power cut, too */
    char *pack;            /* "auto", "off", "state" or "all": data on drives that are compressed */
    bool time_products;    /* time a GPU's matrix-product algorithms before the first step */
    bool async_save;       /* write checkpoints while training goes on */
    char *activation_checkpointing; /* "auto" (default), "always", "never" */
    char *schedule;     /* "auto", "serial", "prefetch", "update-in-forward", "update-in-backward",
                         * "update-in-place" */
    char *expert_fetch; /* "auto", "all", "chosen" */
    char *accumulation_order; /* "auto", "micro-major", "layer-major" */
    char *gradient_sum;       /* "auto", "tree" */
    double timeout;           /* seconds without a sign of life after which a rank has failed */
    char *gather; /* "auto", "host", "device": where units are gathered from ranks' slices */
    /* DeepSpeed's keys for mesh[1] */
    int64_t autotp_size, tp_size;
    int64_t sequence_parallel_size; /* DeepSpeed's key for mesh[3] */
    int64_t mesh[4]; /* ranks along data, tensor, pipe and context; data 0: as many as are left */
    /* "auto": given memory budgets are filled; "exact": things are where the file says; "fill": all
     * budgets are filled */
    char *placement;
    /* tokens that are computed at once; 0: whole sequences; -1: chosen by the length */
    int64_t sequence_chunk;
    char *activation_device; /* "auto", "none", "cpu", "nvme": place of kept block inputs */
    /* "cpu": optimizer on the CPU except for ratio; "auto": also on the GPU as far as memory allows
     */
    char *optimizer_device;
    bool direct; /* drives and CPU access device memory directly where they can */
    /* read a frozen model from its own folder instead of a copy on the drive */
    bool weights_in_place;
    char *quantize; /* "none", "nf4", "int8": form of a frozen model's linear layers */
    /* "same" (as parameters), "fp8", "tf32": number type of linear layers' products */
    char *matmul_type;
    char *pad_to;         /* "longest": to a step's longest sample; "max": to the sequence length */
    bool group_by_length; /* put samples of similar length into the same step */
    /* evaluations without improvement after which training ends; 0: never */
    int64_t early_stopping;
    bool load_best_at_end;  /* leave the model of the best evaluation, not of the last step */
    double label_smoothing; /* of the cross-entropy loss; 0: none */
    double z_loss;          /* weight of the squared log-sum-exp of logits in the loss; 0: none */
    double max_z_loss;      /* weight of the squared largest log-probability in the loss; 0: none */
    double embedding_scale; /* factor of similarities in the loss of embeddings */
    double neftune_alpha;   /* strength of noise on embedded tokens; 0: none */
    /* "dpo", "ipo", "orpo", "simpo", "reward" or "kto": loss of preference pairs; below its
     * parameters */
    char *preference;
    double preference_beta, preference_margin, center_rewards_coefficient;
    double desirable_weight, undesirable_weight;
    /* Of pipelines: a JSON list of the number of layers of each rank, or NULL; DeepSpeed's word for
     * how layers are dealt out; DeepSpeed's key for mesh[2]. */
    char *pipeline_parts, *pipeline_method;
    int64_t pipeline_stages;
    bool pipeline_overlap;   /* more micro-batches at once, so that no stage waits for transfers */
    int64_t pipeline_ranges; /* ranges of layers of each rank along mesh[2]; or, if not 0: */
    int64_t pipeline_range_layers; /* blocks of a range, which determine the number of ranges */
    char *freeze;                  /* JSON list of patterns of tensor names, or NULL */
    char *learning_rates;          /* JSON list of rules for tensor names, or NULL */
    double layer_decay; /* a layer's learning rate divided by that of the next layer; 1: no decay */
    char *adapter;      /* JSON object like PEFT's adapter_config.json, or NULL */

    struct zinf_config_entries *entries; /* value and source of every known key (private) */
};

/* A value that an option, or a program, gives to a key. It wins over the file's value; a conflict
 * is logged as a warning with both values. There are keys of this struct alone, which set several:
 * "dtype" ("fp32", "bf16" or "fp16") sets bf16.enabled and fp16.enabled; "warmup_ratio" sets
 * scheduler.params.warmup_num_steps as a part of all steps; "zinf.adapter.MEMBER" sets a member of
 * zinf.adapter. */
struct zinf_config_setting {
    const char *key;
    const char *text; /* the value; NULL: number is the value */
    double number;
    const char *name; /* the option's name in messages, such as "--lr"; NULL: the key */
};
#define ZINF_CONFIG_MOST_SETTINGS 64
struct zinf_config_settings {
    struct zinf_config_setting
        item[ZINF_CONFIG_MOST_SETTINGS]; /* of two settings of a key the later one counts */
    int n;
};
/* Adds a setting, whose strings are borrowed. -EINVAL: too many. */
int zinf_config_settings_add(struct zinf_config_settings *settings,
                             const struct zinf_config_setting *setting);
/* The setting of key, or NULL. */
const struct zinf_config_setting *
zinf_config_settings_find(const struct zinf_config_settings *settings, const char *key);
/* The words that the key's value may be, ended by NULL. NULL: the key has other values. */
const char *const *zinf_config_key_words(const char *key);
/* Sets *place to the index of word in that list, which is the value of the key's enum; word NULL:
 * 0. -EINVAL: word is not in the list. */
int zinf_config_key_word(const char *key, const char *word, int *place);

/* What a load needs to know beside the file. */
struct zinf_config_context {
    struct zinf_config_settings settings;
    int64_t world_size; /* number of ranks, or of processes if each has several seats; 0 means 1 */
    /* Seats that are asked for; and seats that exist, used if neither `seats` nor zinf.seats is set
     * (0: one). */
    int64_t seats, seats_there;
    int64_t hidden_size; /* of the model; < 0: unknown */
    int64_t steps;       /* of the training, for total_num_steps "auto"; < 0: unknown */
    const char *dtype;   /* number type of the model folder, for "auto" */
    bool lenient;        /* unknown keys are warnings, not errors */
    /* Nothing is trained: no notes on learning rates. */
    bool no_training;
    bool no_steps; /* There are no steps: of the batch triple only the micro batch matters. */
    bool quiet;    /* no notes and warnings, since an earlier load gave them */
    /* The caller can choose a micro batch that is "auto" (see finds_micro_batch). */
    bool finds_micro_batch;
    /* The configuration is only shown: an "auto" that cannot be resolved stays "auto". */
    bool show;
};
#define ZINF_CONFIG_CONTEXT_DEFAULT                                                                \
    {                                                                                              \
        .world_size = 1, .hidden_size = -1, .steps = -1                                            \
    }

/* Sets the micro batch, which must divide a rank's samples of a step, and the accumulation. */
int zinf_config_set_micro_batch(struct zinf_config *config, int64_t micro_batch);

#define ZINF_CONFIG_MOST_BYTES ((size_t)1 << 20) /* of a configuration file */
/* Loads a file. path NULL: defaults and context alone (micro batch 1, Trainer's optimizer). The
 * caller destroys *out. */
int zinf_config_load(struct zinf_config **out, const char *path,
                     const struct zinf_config_context *context);
/* Parses text as a file that messages call `what`. */
int zinf_config_parse(struct zinf_config **out, const char *text, size_t bytes, const char *what,
                      const struct zinf_config_context *context);
/* Whether path is itself a configuration, which begins with {. Calls with a path accept that, too.
 */
bool zinf_config_is_text(const char *path);
/* Reads zinf.timeout alone; leaves *seconds as it is if the file does not have it. */
void zinf_config_timeout(const char *path, double *seconds);
/* Reads options of the command, such as model_path (--model), from a file of gdGPT. take is called
 * with each option's name and value; a result other than 0 ends this and is returned. Other files
 * have none. */
int zinf_config_job(const char *path, int (*take)(void *arg, const char *option, const char *text),
                    void *arg);
void zinf_config_destroy(struct zinf_config *config);
/* Prints a table: key, value, source (file:line, command line, default, or rule of "auto"). */
int zinf_config_print(const struct zinf_config *config, FILE *out);
/* Writes config.resolved.json atomically: a configuration that resolves to the same values, with
 * their sources in "_sources". */
int zinf_config_write(const struct zinf_config *config, const char *path);

#ifdef __cplusplus
}
#endif
#endif
