/* rows: every option of a job, a row each. The commands that take a group name it (src/cli). */
#include "api/rows.h"

#include "api/choices.h"
#include "metrics/metrics.h"

#define AT(field) .offset = offsetof(struct zinf_job, field)
/* A key of the configuration. */
#define SETS(key_) .key = key_, AT(settings)
#define END                                                                                        \
    {                                                                                              \
        .flag = NULL                                                                               \
    }

#define MOST_TOKENS (1 << 24)

/* ---- words ---- */

const char *const job_device_words[] = {"auto", "host", "cuda", NULL};
static const char *const losses[] = {"dpo", "ipo", "orpo", "simpo", "kto", NULL};
static const char *const automatic[] = {"auto", NULL};
static const char *const cuts[] = {"end", "beginning", "drop", NULL}; /* enum zinf_cut */

static const char *format_word(size_t i)
{
    return i < ZINF_FORMATS ? zinf_format_name((enum zinf_format)i) : NULL;
}

static const char *task_word(size_t i)
{
    return i < ZINF_TASKS ? zinf_task_name((enum zinf_task)i) : NULL;
}

static const char *metric_word(size_t i)
{
    return i < ZINF_METRICS ? zinf_metric_facts((enum zinf_metric)i)->name : NULL;
}

static const char *template_word(size_t i)
{
    return zinf_chat_known(i);
}

/* Those of scheduler.type, and none. */
static const char *schedule_word(size_t i)
{
    const char *const *words = zinf_config_key_words("scheduler.type") + 1; /* the first is empty */
    while (i && *words)
        i--, words++;
    return *words ? *words : i ? NULL : "constant";
}

/* ---- rows ---- */
/* clang-format off */

const struct option job_device[] = {
    OPTION("--config", TEXT, AT(config), "FILE",
     "DeepSpeed configuration: placements, number type", .aliases = "deepspeed deepspeed_config"),
    OPTION("--device", WORD, AT(device), "NAME", "auto, host or cuda", .words = job_device_words,
     .usual = "auto"),
    OPTION("--device-memory", SIZE, SETS("zinf.device_memory"), "SIZE",
     "largest amount of device memory to use, such as 20GiB"),
    OPTION("--host-memory", SIZE, SETS("zinf.host_memory"), "SIZE",
     "largest amount of RAM to use"),
    OPTION("--threads", INTEGER, SETS("zinf.threads"), "N", "CPU threads", .min = 1, .max = 4096,
     .otherwise = "all that this process may use"),
    OPTION("--quantize", TEXT, SETS("zinf.quantize"), "FORM",
     "freeze linear layers in 4 bits (nf4) or 8 (int8)",
     .aliases = "load_in_4bit=nf4 load_in_8bit=int8"),
    OPTION("--lenient", FLAG, AT(lenient), NULL,
     "unknown keys of the configuration are warnings"),
    END
};

const struct option job_seats[] = {
    OPTION("--seats", INTEGER, AT(seats), "N", "devices of this process", .min = 1, .max = 1024,
     .otherwise = "visible GPUs, or 1"),
    OPTION("--devices", TEXT, AT(devices), "LIST", "GPUs by number, such as 0,2"),
    END
};

const struct option job_tensor[] = {
    OPTION("--tensor-parallel", INTEGER, SETS("zinf.mesh.tensor"), "N",
     "ranks that share each matrix, heads and vocabulary", .min = 1, .max = 64, .otherwise = "1"),
    END
};

const struct option job_pipeline[] = {
    OPTION("--pipeline-parallel", INTEGER, SETS("zinf.mesh.pipe"), "N",
     "number of pipeline stages: ranks that the layers are distributed over", .min = 1, .max = 1024, .otherwise = "1"),
    END
};

const struct option job_context[] = {
    OPTION("--context-parallel", INTEGER, SETS("zinf.mesh.context"), "N",
     "ranks that share each sequence", .min = 1, .max = 64, .otherwise = "1",
     .aliases = "context_parallel_size cp_size"),
    END
};

#define PACK_ROW                                                                                   \
    OPTION("--pack", FLAG, AT(pack), NULL,                                                         \
           "put several samples into a sequence; each attends to itself only",                     \
           .aliases = "packing sample_packing")
const struct option job_rows[] = {
    OPTION("--data", TEXTS, AT(data), "FILE...",
     "text, .jsonl, .json, .csv, .tsv, also as .gz or .zst, tokens (.bin, .npy), a quoted pattern, "
     "or - for standard input; for a training, FILE:WEIGHT mixes files by weight", .aliases = "train_file train_files dataset_path"),
    OPTION("--text-column", TEXT, AT(text_column), "NAME", "field or column of the text",
     .otherwise = "text", .aliases = "dataset_text_field text_field"),
    OPTION("--format", TEXT, AT(format), "NAME",
     "format of the rows: alpaca, sharegpt, messages, prompt, preference, unpaired, gdgpt, ids, text or stream",
     .word = format_word, .otherwise = "decided by the first row"),
    OPTION("--chat-template", TEXT, AT(chat_template), "NAME", "chat template of conversations; see the manual",
     .word = template_word, .open = true, .otherwise = "the model folder's"),
    OPTION("--train-on-prompt", FLAG, AT(train_on_prompt), NULL,
     "compute the loss on all tokens, not only on answers", .aliases = "train_on_inputs train_on_prompts"),
    PACK_ROW,
    OPTION("--truncate", WORD, AT(truncate), "SIDE",
     "cut samples that are too long at the end or the beginning, or drop them", .words = cuts),
    OPTION("--min-tokens", INTEGER, AT(min_tokens), "N", "leave out samples with fewer tokens",
     .min = 1, .max = MOST_TOKENS),
    OPTION("--skip-bad-rows", FLAG, AT(skip_bad_rows), NULL,
     "leave out broken rows and report their number"),
    END
};

const struct option job_step[] = {
    OPTION("--steps", INTEGER, AT(steps), "N", "optimizer steps", .min = 0, .max = 1e12,
     .otherwise = "one pass over the data", .aliases = "max_steps"),
    OPTION("--micro-batch", INTEGER, SETS("train_micro_batch_size_per_gpu"), "N",
     "sequences computed at once; auto: the largest number that fits and divides --global-batch", .min = 1,
     .max = 1 << 20, .words = automatic, .open = true,
     .aliases = "per_device_train_batch_size train_micro_batch_size_per_gpu micro_batch_size"),
    OPTION("--global-batch", INTEGER, SETS("train_batch_size"), "N",
     "sequences in a step, of all ranks together", .min = 1, .max = 1 << 30,
     .otherwise = "as --micro-batch and --accumulate say",
     .aliases = "train_batch_size global_batch_size",
     .manual = "Number of sequences in a step, of all ranks and micro-batches together (train_batch_size).\nWithout this option the number follows from\n.Fl Fl micro-batch ,\n.Fl Fl accumulate\nand the number of ranks."),
    OPTION("--sequence-chunk", INTEGER, SETS("zinf.sequence_chunk"), "N",
     "tokens of a sequence computed at once; 0: the whole sequence; auto: 4096 of sequences of more "
     "than 16384", .max = 1 << 24, .words = automatic, .open = true, .otherwise = "0"),
    OPTION("--accumulate", INTEGER, SETS("gradient_accumulation_steps"), "N",
     "micro-batches in a step", .otherwise = "the configuration's, or 1", .min = 1, .max = 1 << 14, .aliases = "gradient_accumulation_steps"),
    OPTION("--matmul-type", TEXT, SETS("zinf.matmul_type"), "TYPE",
     "number type of matrix products: same as the parameters', fp8 or tf32", .aliases = "tf32=tf32",
     .manual = "Number type in which a GPU multiplies matrices (zinf.matmul_type).\n.Cm same\nis the number type of the parameters.\n.Cm fp8\nis used for linear layers in bf16.\n.Cm tf32\nis used for products of two fp32 matrices."),
    OPTION("--optimizer", TEXT, SETS("optimizer.type"), "NAME",
     "AdamW, Adam, AdamW8bit, Adafactor, Lion, Adagrad, SGD, Muon, NorMuon, GaLoreAdamW, APOLLO or APOLLO-Mini"),
    OPTION("--lr", NUMBER, SETS("optimizer.params.lr"), "X", "learning rate", .max = 1e6,
     .otherwise = "the configuration's, or 5e-5; of adapters 1e-4",
     .aliases = "learning_rate"),
    OPTION("--lr-scheduler", TEXT, SETS("scheduler.type"), "NAME",
     "linear, cosine, constant, constant_with_warmup, or one of DeepSpeed's, such as WarmupLR",
     .word = schedule_word, .open = true, .aliases = "lr_scheduler_type"),
    OPTION("--warmup-steps", INTEGER, SETS("scheduler.params.warmup_num_steps"), "N",
     "steps over which the learning rate rises from 0", .max = 1e12, .aliases = "num_warmup_steps"),
    OPTION("--warmup-ratio", NUMBER, SETS("warmup_ratio"), "X", "instead of --warmup-steps: a fraction of all steps",
     .max = 1),
    OPTION("--weight-decay", NUMBER, SETS("optimizer.params.weight_decay"), "X",
     "weight decay of matrices; norms and biases have none", .max = 1e6),
    OPTION("--clip", NUMBER, SETS("gradient_clipping"), "X",
     "largest norm of a step's gradient; 0: no limit", .max = 1e9, .otherwise = "1",
     .aliases = "max_grad_norm"),
    OPTION("--dropout", NUMBER, SETS("zinf.dropout"), "X",
     "dropout probability instead of the model's; 0: none", .max = 0.999),
    OPTION("--lora-rank", INTEGER, SETS("zinf.adapter.r"), "N",
     "freeze the model and train low-rank adapters of this rank", .min = 1, .max = 1 << 16,
     .aliases = "lora_r"),
    OPTION("--lora-alpha", NUMBER, SETS("zinf.adapter.lora_alpha"), "X",
     "adapters are scaled by X / rank", .min = 1e-9, .max = 1e9, .otherwise = "twice the rank"),
    OPTION("--lora-dropout", NUMBER, SETS("zinf.adapter.lora_dropout"), "X", "dropout on the inputs of adapters",
     .max = 0.999, .otherwise = "0"),
    OPTION("--lora-targets", TEXT, SETS("zinf.adapter.target_modules"), "LIST",
     "names of linear layers, separated by commas", .otherwise = "all-linear",
     .aliases = "lora_target_modules lora_target"),
    OPTION("--label-smoothing", NUMBER, SETS("zinf.label_smoothing"), "X",
     "share of the target probability that is spread over all tokens", .max = 0.999, .otherwise = "0",
     .aliases = "label_smoothing_factor"),
    OPTION("--z-loss", NUMBER, SETS("zinf.z_loss"), "X",
     "add X times the squared log-sum-exp of the logits to the loss", .max = 1e6),
    OPTION("--embedding-scale", NUMBER, SETS("zinf.embedding_scale"), "X",
     "factor of cosine similarities in the loss of embeddings", .min = 0.001, .max = 1e6,
     .otherwise = "20"),
    OPTION("--neftune-alpha", NUMBER, SETS("zinf.neftune_alpha"), "X",
     "noise on embedded tokens during training, such as 5", .max = 1e6,
     .aliases = "neftune_noise_alpha"),
    END
};

const struct option job_pairs[] = {
    OPTION("--preference", TEXT, SETS("zinf.preference"), "NAME",
     "loss for pairs of answers: dpo, ipo, orpo or simpo; for single answers: kto", .words = losses),
    OPTION("--beta", NUMBER, SETS("zinf.preference_beta"), "X", "scale of the rewards in the loss of --preference", .min = 1e-9,
     .max = 1e6, .otherwise = "0.1"),
    END
};

const struct option job_pad[] = {
    OPTION("--pad-to", TEXT, SETS("zinf.pad_to"), "LENGTH",
     "pad samples to the longest of the step, or to max", .otherwise = "longest"),
    END
};

const struct option job_group[] = {
    OPTION("--group-by-length", FLAG, SETS("zinf.group_by_length"), NULL,
     "shuffle so that the samples of a step have similar lengths"),
    END
};

const struct option job_best[] = {
    OPTION("--early-stopping", INTEGER, SETS("zinf.early_stopping"), "N",
     "end after N evaluations in a row without improvement", .min = 1, .max = 1e9,
     .aliases = "early_stopping_patience"),
    OPTION("--load-best-at-end", FLAG, SETS("zinf.load_best_at_end"), NULL,
     "save the model of the best evaluation, not of the last step",
     .aliases = "load_best_model_at_end"),
    END
};

const struct option job_template[] = {
    OPTION("--chat-template", TEXT, AT(chat_template), "NAME", "chat template of conversations",
     .word = template_word, .open = true),
    END
};

const struct option job_task[] = {
    OPTION("--task", TEXT, AT(task.name), "NAME",
     "causal-lm, masked-lm, embedding, preference, reward, seq2seq, classification, regression, and "
     "for zinf eval multiple-choice", .word = task_word, .otherwise = "the model's task"),
    OPTION("--source-column", TEXT, AT(task.source_column), "NAME",
     "field or column of sources, or of texts; a,b: a pair of texts",
     .otherwise = "source; text"),
    OPTION("--target-column", TEXT, AT(task.target_column), "NAME", "field or column of targets",
     .otherwise = "target"),
    OPTION("--label-column", TEXT, AT(task.label_column), "NAME", "field or column of classes or numbers",
     .otherwise = "label"),
    OPTION("--prefix", TEXT, AT(task.prefix), "TEXT",
     "text to put before every source, such as 'summarize: '", .aliases = "source_prefix"),
    OPTION("--template", TEXT, AT(task.around), "TEXT",
     "text around every source; the source replaces {source} in TEXT, and only the source is ever cut",
     .manual = "Text that is put around every source.\nThe source replaces\n.Ql {source}\nin\n.Ar TEXT .\nIf the source is too long, only the source is cut; the text before and behind it stays.\nThe whole text is turned into tokens at once."),
    OPTION("--mlm-probability", NUMBER, AT(task.mask_probability), "P",
     "for --task masked-lm: probability that a token is masked", .min = 0.001, .max = 1,
     .otherwise = "0.15",
     .manual = "With\n.Fl Fl task Cm masked-lm :\nprobability that a token is masked (default: 0.15)."),
    OPTION("--length-percentile", NUMBER, AT(task.length_percentile), "P",
     "make room for P percent of the samples, and cut longer ones", .min = 0.001, .max = 100,
     .otherwise = "100",
     .manual = "Without\n.Fl Fl seq-len\nor\n.Fl Fl source-len ,\nlengths of texts, sources and targets are those that at least\n.Ar P\npercent of the rows do not exceed, rounded up to a multiple of 8.\nLonger rows are cut as\n.Fl Fl truncate\nsays.\nThe default is 100: the length of the longest row."),
    END
};

const struct option job_shape_task[] = {
    OPTION("--task", TEXT, AT(task.name), "NAME",
     "causal-lm, masked-lm, embedding, preference, reward, seq2seq, classification or regression",
     .word = task_word, .otherwise = "the model's task"),
    PACK_ROW,
    END
};

static const char *const poolings[] = {"folder", "mean", "cls", "last", NULL};
const struct option job_embedding[] = {
    OPTION("--pooling", WORD, AT(embedding.pooling), "NAME",
     "how the vectors of a text's tokens become an embedding: their mean, the vector of the "
     "first token (cls) or of the last; folder: as the model's folder says, else the mean", .words = poolings, .usual = "folder"),
    OPTION("--normalize", FLAG, AT(embedding.normalize), NULL, "scale each embedding to length 1"),
    OPTION("--no-normalize", FLAG, AT(embedding.plain), NULL,
     "do not scale embeddings to length 1 (default: as the model's folder says)"),
    END
};

const struct option job_prompt_name[] = {
    OPTION("--prompt-name", TEXT, AT(embedding.prompt_name), "NAME",
     "name of a prompt in the model's folder that is put before each text"),
    END
};

/* Of what there is for all data, what a command needs that takes texts alone. */
const struct option job_plain_texts[] = {
    OPTION("--data", TEXTS, AT(data), "FILE...",
     "lines of text, .jsonl, .json, .csv or .tsv, also as .gz or .zst, or a quoted pattern"),
    OPTION("--text-column", TEXT, AT(text_column), "NAME", "field or column of the text",
     .otherwise = "text"),
    OPTION("--prefix", TEXT, AT(task.prefix), "TEXT", "text to put before each text, such as 'query: '"),
    OPTION("--truncate", WORD, AT(truncate), "SIDE",
     "cut texts that are too long at the end or the beginning, or drop them", .words = cuts),
    OPTION("--skip-bad-rows", FLAG, AT(skip_bad_rows), NULL,
     "leave out broken rows and report their number"),
    END
};

const struct option job_head[] = {
    OPTION("--class-weights", TEXT, AT(task.class_weights), "LIST",
     "weights of the classes in the loss: numbers separated by commas, or balanced"),
    OPTION("--new-head", FLAG, AT(task.new_head), NULL,
     "replace the folder's head by one for the data's classes"),
    END
};

#define SEQ_ALIASES "max_seq_length max_seq_len max_length cutoff_len block_size sequence_len"
const struct option job_seq[] = {
    OPTION("--seq-len", INTEGER, AT(seq_len), "N", "tokens in a sequence; 64K is 65,536", .min = 1,
     .max = MOST_TOKENS, .is_length = true, .otherwise = "the context, or 1024", .aliases = SEQ_ALIASES),
    END
};

const struct option job_source[] = {
    OPTION("--source-len", INTEGER, AT(source_len), "N", "tokens that an encoder reads", .min = 1,
     .max = MOST_TOKENS, .otherwise = "as the data need", .aliases = "max_source_length"),
    END
};

const struct option job_shape_length[] = {
    OPTION("--seq-len", INTEGER, AT(seq_len), "N", "tokens in a sequence; 64K is 65,536", .min = 1,
     .max = MOST_TOKENS, .is_length = true, .otherwise = "the context, or 1024", .aliases = SEQ_ALIASES),
    OPTION("--source-len", INTEGER, AT(source_len), "N", "tokens that an encoder reads", .min = 1,
     .max = MOST_TOKENS, .otherwise = "as a sequence", .aliases = "max_source_length"),
    END
};

const struct option job_micro[] = {
    OPTION("--micro-batch", INTEGER, SETS("train_micro_batch_size_per_gpu"), "N",
     "sequences computed at once", .min = 1, .max = 1 << 20,
     .aliases = "per_device_eval_batch_size"),
    END
};

const struct option job_dtype[] = {
    OPTION("--dtype", TEXT, SETS("dtype"), "NAME", "fp32, bf16 or fp16", .open = true,
     .otherwise = "the configuration's, or the folder's", .aliases = "bf16=bf16 fp16=fp16 torch_dtype",
     .manual = "Number type of parameters and computation.\nThe default is that of the configuration or, if it gives none, that of the model's folder."),
    END
};

#define MODEL_ALIASES "model_name_or_path model_name pretrained_model_name_or_path base_model"
const struct option job_model[] = {
    OPTION("--model", TEXT, AT(model), "DIR", "Hugging Face model folder or a GGUF file",
     .aliases = MODEL_ALIASES),
    END
};

const struct option job_shape[] = {
    OPTION("--model", TEXT, AT(model), "DIR", "Hugging Face model folder, or its config.json",
     .aliases = MODEL_ALIASES),
    END
};

const struct option job_begin[] = {
    OPTION("--init", FLAG, AT(task.fresh), NULL,
     "start from fresh weights, not from the folder's, which needs only config.json"),
    OPTION("--adapter", TEXT, AT(adapter), "DIR",
     "continue with these adapters in PEFT's format", .aliases = "adapter_name_or_path"),
    END
};

const struct option job_eval[] = {
    OPTION("--eval-data", TEXTS, AT(eval_data), "FILE...", "data of the same kinds for evaluations; NAME=FILE: a file of the evaluation set NAME",
     .aliases = "validation_file eval_file"),
    END
};

const struct option job_shuffle[] = {
    OPTION("--no-shuffle", FLAG, AT(no_shuffle), NULL, "take the data in the order of the files"),
    OPTION("--streaming", FLAG, AT(streaming), NULL,
     "take rows while the training needs them, in their order, without reading all of them first"),
    OPTION("--shuffle-buffer", INTEGER, AT(shuffle_buffer), "N",
     "with --streaming: shuffle in groups of N rows, or of N sequences of a stream of text", .min = 1, .max = 1e9,
     .aliases = "shuffle_buffer_size"),
    END
};

const struct option job_seed[] = {
    OPTION("--seed", INTEGER, AT(seed), "N", "seed of shuffling, dropout and --init", .max = 9e15),
    END
};

const struct option job_output[] = {
    OPTION("--output", TEXT, AT(output), "DIR",
     "receives model/, log.jsonl, checkpoint-N/ and more", .usual = "zinf-output",
     .aliases = "output_dir"),
    OPTION("--log", TEXT, AT(log), "FILE", "log with one JSON object per step, instead of DIR/log.jsonl"),
    OPTION("--eval-every", INTEGER, AT(eval_every), "N", "steps between evaluations", .min = 1,
     .max = 1e12, .aliases = "eval_steps"),
    OPTION("--sample-prompts", TEXTS, AT(sample_prompts), "TEXT...",
     "continue these prompts during the training, and log what they lead to",
     .manual = "Prompts that the model continues during the training.\nThe continuations are printed and written to\n.Pa log.jsonl\nas\n.Dq samples .\nEach token is the most likely one, up to\n.Fl Fl max-new-tokens\ntokens, so that the texts only change because the model does.\nIf the data are conversations, each prompt is a message of the user."),
    OPTION("--sample-every", INTEGER, AT(sample_every), "N",
     "steps between two continuations of --sample-prompts", .min = 1, .max = 1e12,
     .otherwise = "after the last step only",
     .manual = "Number of steps between continuations of\n.Fl Fl sample-prompts .\nThey are also continued after the last step; by default only then."),
    END
};

const struct option job_saves[] = {
    OPTION("--save-every", INTEGER, AT(save_every), "N",
     "steps between checkpoints, and one after the last", .min = 1, .max = 1e12,
     .aliases = "save_steps"),
    OPTION("--save-total-limit", INTEGER, AT(save_total_limit), "N", "number of checkpoints to keep",
     .min = 1, .max = 1e9, .otherwise = "all"),
    OPTION("--no-final-checkpoint", FLAG, AT(no_final_checkpoint), NULL,
     "no checkpoint after the last step without --save-every"),
    OPTION("--overwrite", FLAG, AT(overwrite), NULL,
     "remove what an earlier run left in DIR, and report it", .aliases = "overwrite_output_dir"),
    OPTION("--resume", MAYBE, AT(resume), "[=DIR]",
     "continue from DIR, or after the output's last step"),
    OPTION("--accept-changes", FLAG, AT(accept_changes), NULL,
     "continue although model, data or settings have changed"),
    END
};

const struct option job_chat[] = {
    OPTION("--chat", FLAG, AT(texts.chats), NULL,
     "prompts are user messages: apply the chat template, print only the answer"),
    OPTION("--system", TEXT, AT(texts.system), "TEXT", "system message before the prompt"),
    END
};

const struct option job_texts[] = {
    OPTION("--stop", TEXTS, AT(texts.stops), "TEXT...", "end a text before any of these"),
    OPTION("--ignore-eos", FLAG, AT(texts.ignores_ends), NULL, "continue after an end-of-text token"),
    OPTION("--batch", INTEGER, AT(texts.batch), "N", "number of texts generated at once", .min = 1, .max = 1 << 16,
     .usual = "16"),
    END
};

const struct option job_texts_seed[] = {
    OPTION("--seed", INTEGER, AT(seed), "N", "the same seed gives the same texts", .max = 9e15),
    END
};

const struct option job_metrics[] = {
    OPTION("--metric", TEXTS, AT(texts.metrics), "NAME...",
     "compare generated texts with the data's: exact_match, rouge1, rouge2, "
     "rougeL, rougeLsum, bleu; classes: accuracy, f1, f1_macro, f1_micro, matthews; "
     "numbers: mse, pearson, spearman", .word = metric_word, .open = true),
    OPTION("--max-new-tokens", INTEGER, AT(texts.settings.max_new_tokens), "N", "largest number of new tokens of a text",
     .min = 1, .max = 1 << 24, .otherwise = "the folder's setting, or 128"),
    OPTION("--num-beams", INTEGER, AT(texts.settings.num_beams), "N", "generate by beam search with N beams", .min = 1,
     .max = 1 << 12),
    OPTION("--metric-samples", INTEGER, AT(texts.metric_samples), "N", "compute metrics on the first N samples only",
     .min = 1, .max = 1e12),
    OPTION("--stem", FLAG, AT(texts.stem), NULL, "compare words by their stems (ROUGE)"),
    END
};

const struct option job_predictions[] = {
    OPTION("--predictions", TEXT, AT(texts.predictions), "FILE",
     "write predicted and true texts as JSON lines"),
    END
};

const struct option job_choices[] = {
    OPTION("--few-shot", TEXT, AT(choices.few_shot), "FILE",
     "for --task multiple-choice: examples that are put before each question",
     .manual = "Examples in the format of the data.\nThe first\n.Fl Fl shots\nexamples are put before each question, with their answers.\nIf rows have subjects, they are the first examples of the question's subject."),
    OPTION("--shots", INTEGER, AT(choices.shots), "N", "number of these examples", .min = 1,
     .max = 1000, .otherwise = "5", .aliases = "num_fewshot num_few_shot",
     .manual = "Number of examples from\n.Fl Fl few-shot\nthat are put before each question.\nThe default is 5."),
    OPTION("--choices", WORD, AT(choices.style), "STYLE",
     "what is compared as answers: the letters of the choices, which the question lists, or their texts",
     .words = job_choice_words, .usual = "usual",
     .manual = "What\n.Fl Fl task Cm multiple-choice\ncompares as answers: the\n.Cm letters\nof the choices, which are then listed in the question, or their\n.Cm texts .\nThe default,\n.Cm usual ,\nis that of the benchmark: letters for rows with\n.Dq question\nand a list of choices, such as MMLU's, and otherwise texts."),
    END
};

const struct option job_epochs[] = {
    OPTION("--epochs", NUMBER, AT(epochs), "X", "passes over the data, instead of --steps",
     .min = 1e-9, .max = 1e9, .aliases = "num_train_epochs num_epochs"),
    END
};

const struct option_group job_groups[] = {
    {.rows = job_model},   {.rows = job_begin},
    {.rows = job_rows},    {.rows = job_task}, {.rows = job_embedding}, {.rows = job_prompt_name},
    {.rows = job_head},    {.rows = job_eval},
    {.rows = job_seq},     {.rows = job_source},
    {.rows = job_shuffle}, {.rows = job_group},
    {.rows = job_pad},     {.rows = job_seed},
    {.rows = job_output},  {.rows = job_saves},
    {.rows = job_epochs},  {.rows = job_step},
    {.rows = job_pairs},   {.rows = job_dtype},
    {.rows = job_device},  {.rows = job_seats},
    {.rows = job_tensor},  {.rows = job_context},  {.rows = job_pipeline},
    {.rows = job_best},    {.rows = generate_rows, .at = offsetof(struct zinf_job, texts.settings)},
    {.rows = generate_least, .at = offsetof(struct zinf_job, texts.settings)},
    {.rows = generate_beams, .at = offsetof(struct zinf_job, texts.settings)},
    {.rows = job_chat},    {.rows = job_texts},
    {.rows = job_metrics}, {.rows = job_predictions},
    {.rows = job_choices},
    {.rows = NULL},
};
