/* data: rows of the tables of options that commands which run a model share. */
#ifndef ZINF_CLI_DATA_H
#define ZINF_CLI_DATA_H

#include "cli/cli.h"

/* Rows of a table of options, as USAGE_DEVICE says them. */
#define CLI_DEVICE_OPTIONS(c)                                                                      \
    {"--config", CLI_STRING, &(c)->config, 0, 0}, {"--device", CLI_STRING, &(c)->device, 0, 0},    \
        {"--device-memory", CLI_SIZE, &(c)->device_memory, 0, 0},                                  \
        {"--host-memory", CLI_SIZE, &(c)->host_memory, 0, 0},                                      \
        {"--threads", CLI_INT, &(c)->threads, 1, 4096},                                            \
        {"--quantize", CLI_STRING, &(c)->quantize, 0, 0},                                          \
    {                                                                                              \
        "--lenient", CLI_FLAG, &(c)->lenient, 0, 0                                                 \
    }

/* The same for data of samples, as USAGE_SAMPLES says them. */
#define CLI_SAMPLE_OPTIONS(c)                                                                      \
    {"--text-column", CLI_STRING, &(c)->text_column, 0, 0},                                        \
        {"--format", CLI_STRING, &(c)->format, 0, 0},                                              \
        {"--chat-template", CLI_STRING, &(c)->chat_template, 0, 0},                                \
        {"--train-on-prompt", CLI_FLAG, &(c)->train_on_prompt, 0, 0},                              \
        {"--pack", CLI_FLAG, &(c)->pack, 0, 0}, {"--truncate", CLI_STRING, &(c)->truncate, 0, 0},  \
        {"--min-tokens", CLI_INT, &(c)->min_tokens, 1, 1 << 24},                                   \
    {                                                                                              \
        "--skip-bad-rows", CLI_FLAG, &(c)->skip_bad_rows, 0, 0                                     \
    }

/* The same for a task, as USAGE_TASK says them. */
#define CLI_TASK_OPTIONS(c)                                                                        \
    {"--task", CLI_STRING, &(c)->task.name, 0, 0},                                                 \
        {"--source-column", CLI_STRING, &(c)->task.source_column, 0, 0},                           \
        {"--target-column", CLI_STRING, &(c)->task.target_column, 0, 0},                           \
        {"--label-column", CLI_STRING, &(c)->task.label_column, 0, 0},                             \
    {                                                                                              \
        "--prefix", CLI_STRING, &(c)->task.prefix, 0, 0                                            \
    }

/* What a training for a task may ask for beside that. */
#define CLI_HEAD_OPTIONS(c)                                                                        \
    {"--class-weights", CLI_STRING, &(c)->task.class_weights, 0, 0},                               \
    {                                                                                              \
        "--new-head", CLI_FLAG, &(c)->task.new_head, 0, 0                                          \
    }

/* The loss of pairs. */
#define CLI_PAIR_OPTIONS(c)                                                                        \
    {"--preference", CLI_STRING, &(c)->preference, 0, 0},                                          \
    {                                                                                              \
        "--beta", CLI_DOUBLE, &(c)->preference_beta, 1e-9, 1e6                                     \
    }

/* The same for what decides a step, as USAGE_STEP says them. */
#define CLI_STEP_OPTIONS(c)                                                                        \
    {"--steps", CLI_INT, &(c)->steps, 0, 1e12},                                                    \
        {"--micro-batch", CLI_INT, &(c)->micro_batch, 1, 1 << 20},                                 \
        {"--accumulate", CLI_INT, &(c)->accumulation, 1, 1 << 14},                                 \
        {"--optimizer", CLI_STRING, &(c)->optimizer, 0, 0},                                        \
        {"--lr", CLI_DOUBLE, &(c)->lr, 0, 1e6},                                                    \
        {"--lr-scheduler", CLI_STRING, &(c)->lr_scheduler, 0, 0},                                  \
        {"--warmup-steps", CLI_INT, &(c)->warmup_steps, 0, 1e12},                                  \
        {"--weight-decay", CLI_DOUBLE, &(c)->weight_decay, 0, 1e6},                                \
        {"--lora-rank", CLI_INT, &(c)->lora_rank, 1, 1 << 16},                                     \
        {"--lora-alpha", CLI_DOUBLE, &(c)->lora_alpha, 1e-9, 1e9},                                 \
        {"--lora-dropout", CLI_DOUBLE, &(c)->lora_dropout, 0, 0.999},                              \
        {"--lora-targets", CLI_STRING, &(c)->lora_targets, 0, 0},                                  \
        {"--label-smoothing", CLI_DOUBLE, &(c)->label_smoothing, 0, 0.999},                        \
        {"--z-loss", CLI_DOUBLE, &(c)->z_loss, 0, 1e6},                                            \
        {"--neftune-alpha", CLI_DOUBLE, &(c)->neftune_alpha, 0, 1e6}, CLI_PAIR_OPTIONS(c),         \
    {                                                                                              \
        "--dropout", CLI_DOUBLE, &(c)->dropout, 0, 0.999                                           \
    }

/* How long samples and windows are, and which come together, as USAGE_PAD and USAGE_GROUP say. */
#define CLI_PAD_OPTION(c)                                                                          \
    {                                                                                              \
        "--pad-to", CLI_STRING, &(c)->pad_to, 0, 0                                                 \
    }
#define CLI_LENGTH_OPTIONS(c)                                                                      \
    {"--seq-len", CLI_INT, &(c)->seq_len, 1, 1 << 24},                                             \
        {"--source-len", CLI_INT, &(c)->source_len, 1, 1 << 24}, CLI_PAD_OPTION(c)
#define CLI_GROUP_OPTION(c)                                                                        \
    {                                                                                              \
        "--group-by-length", CLI_FLAG, &(c)->group_by_length, 0, 0                                 \
    }

/* What evaluations of a training decide. */
#define CLI_BEST_OPTIONS(c)                                                                        \
    {"--early-stopping", CLI_INT, &(c)->early_stopping, 1, 1e9},                                   \
    {                                                                                              \
        "--load-best-at-end", CLI_FLAG, &(c)->load_best_at_end, 0, 0                               \
    }

#endif
