/*
 * foreign: options that users of Hugging Face's Trainer, TRL, Axolotl and DeepSpeed bring
 * along, and that are no other name for one of ours: what they ask for is done otherwise.
 */
#include "api/foreign.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *names, *remedy; /* with blanks between names */
} rows[] = {
    {"optim", "--optimizer takes AdamW, Adam, AdamW8bit, Adafactor, Lion, Adagrad, SGD, "
              "Muon, NorMuon, GaLoreAdamW, APOLLO or APOLLO-Mini"},
    {"per_device_eval_batch_size", "evaluations have the --micro-batch of the training"},
    {"batch_size train_batch", "--micro-batch is the number of sequences computed at once, "
                               "--global-batch that of a whole step"},
    {"val_set_size val_size validation_split eval_ratio",
     "--eval-data FILE is what evaluations take: split the data first"},
    {"ctx_size context_size context_length", "--seq-len N is the length of a sequence"},
    {"evaluation_strategy eval_strategy", "evaluations come every --eval-every steps"},
    {"save_strategy", "checkpoints come every --save-every steps"},
    {"logging_steps logging_strategy",
     "every step is in log.jsonl; steps_per_print of --config says which are printed"},
    {"report_to logging_dir", "--tensorboard DIR writes event files; log.jsonl is always there"},
    {"gradient_checkpointing", "what is kept for the backward pass is planned by the memory there "
                               "is; zinf.activation_checkpointing of --config decides it"},
    {"resume_from_checkpoint",
     "--resume continues from the output's last step, --resume=DIR from DIR"},
    {"adam_beta1 adam_beta2", "set optimizer.params.betas of --config"},
    {"adam_epsilon", "set optimizer.params.eps of --config"},
    {"use_lora use_peft finetuning_type", "--lora-rank N trains adapters"},
    {"dataset_name dataset", "--data FILE takes files: download the data set first"},
    {"tokenizer_name", "the tokenizer is that of the --model folder"},
    {"fsdp fsdp_config", "shards are made as zero_optimization of --config says"},
    {"do_train", "'zinf train' trains; leave it out"},
    {"do_eval do_predict",
     "--eval-data with --eval-every evaluates on the way, 'zinf eval' a model"},
    {"num_processes nproc_per_node num_machines", "'zinf launch' starts several processes; one "
                                                  "process drives all GPUs that are visible"},
    {"local_rank", "ranks are those of the launcher; leave it out"},
    {"zero_stage", "set zero_optimization.stage of --config"},
    {"offload_optimizer offload_params offload_param",
     "set zero_optimization.offload_optimizer and offload_param of --config"},
    {"flash_attn attn_implementation",
     "attention here never has its scores in memory; leave it out"},
    {"dataloader_num_workers preprocessing_num_workers",
     "data is read by threads of its own; leave "
     "it out"},
    {"remove_unused_columns", "columns that are not asked for are never read; leave it out"},
    {"push_to_hub hub_model_id", "'hf upload' takes the folder that a training leaves"},
    {"trust_remote_code", "a model folder's code is never run; leave it out"},
};

static bool has_name(const char *names, const char *name, size_t length)
{
    for (size_t bytes; *names; names += bytes + (names[bytes] == ' ')) {
        bytes = strcspn(names, " ");
        bool same = bytes == length;
        for (size_t i = 0; same && i < length; i++)
            same = names[i] == (name[i] == '-' ? '_' : name[i]);
        if (same)
            return true;
    }
    return false;
}

const char *foreign_remedy(const char *name)
{
    name += strspn(name, "-");
    size_t length = strcspn(name, "=");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (has_name(rows[i].names, name, length))
            return rows[i].remedy;
    return NULL;
}
