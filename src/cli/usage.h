/*
 * usage: what `zinf help NAME` prints for the commands that work on a model. Kept in one place, so
 * that an option that several commands share reads the same in each. The man pages say the same at
 * greater length; tests/house/man_test.sh holds the option lists together.
 */
#ifndef ZINF_CLI_USAGE_H
#define ZINF_CLI_USAGE_H

#define USAGE_DEVICE                                                                               \
    "  --config FILE         DeepSpeed configuration: placements, number type\n"                   \
    "  --device NAME         auto, host or cuda (default: auto)\n"                                 \
    "  --device-memory SIZE  most memory to take on the device, such as 20GiB\n"                   \
    "  --host-memory SIZE    most memory to take in the host's RAM\n"                              \
    "  --threads N           CPU threads (default: all that this process may use)\n"               \
    "  --quantize FORM       linear layers in 4 bits (nf4) or 8 (int8), frozen\n"

#define USAGE_DATA                                                                                 \
    "  --data FILE...        text, .jsonl, .json, .csv, .tsv, also as .gz or .zst,\n"              \
    "                        tokens (.bin, .npy), a quoted pattern, or - for standard\n"           \
    "                        input\n"                                                              \
    "  --text-column NAME    field or column that is the text (default: text)\n"                   \
    "  --format NAME         of rows: alpaca, sharegpt, messages, prompt, preference,\n"           \
    "                        unpaired, gdgpt, text or stream (default: told by the\n"              \
    "                        first row)\n"                                                         \
    "  --chat-template NAME  of conversations (default: the model folder's)\n"                     \
    "  --train-on-prompt     all tokens count, not those of answers alone\n"                       \
    "  --pack                several samples in a sequence, apart from each other\n"               \
    "  --truncate SIDE       of what is too long: end, beginning, or drop all of it\n"             \
    "  --min-tokens N        leave out samples that are shorter\n"                                 \
    "  --skip-bad-rows       leave out rows that are broken, and count them\n"

#define USAGE_STEP                                                                                 \
    "  --steps N             optimizer steps (default: one pass over the data)\n"                  \
    "  --micro-batch N       sequences computed at once\n"                                         \
    "  --accumulate N        micro-batches in a step\n"                                            \
    "  --optimizer NAME      AdamW, Adam, AdamW8bit, Adafactor, Lion, Adagrad or SGD\n"            \
    "  --lr X                learning rate\n"                                                      \
    "  --lr-scheduler NAME   linear, cosine, constant, constant_with_warmup, or one\n"             \
    "                        of DeepSpeed's, such as WarmupLR\n"                                   \
    "  --warmup-steps N      steps over which the learning rate rises\n"                           \
    "  --weight-decay X      of matrices; norms and biases are spared\n"                           \
    "  --dropout X           instead of the model's; 0 switches it off\n"                          \
    "  --lora-rank N         train low-rank adapters and freeze the model: their rank\n"           \
    "  --lora-alpha X        their scale times the rank (default: 8)\n"                            \
    "  --lora-dropout X      of their inputs (default: 0)\n"                                       \
    "  --lora-targets LIST   names of linear layers with commas (default: all-linear)\n"           \
    "  --label-smoothing X   a share of every label is spread over all (default: 0)\n"             \
    "  --z-loss X            keeps logits small: X times their log-sum-exp squared\n"              \
    "  --neftune-alpha X     noise on embedded tokens while training, such as 5\n" USAGE_PAIRS

#define USAGE_PAIRS                                                                                \
    "  --preference NAME     loss of pairs of answers: dpo, ipo, orpo or simpo; kto:\n"            \
    "                        of single ones\n"                                                     \
    "  --beta X              how far it goes (default: 0.1)\n"

#define USAGE_PAD                                                                                  \
    "  --pad-to LENGTH       of samples: longest (of the step's), or max (default:\n"              \
    "                        longest)\n"

#define USAGE_GROUP                                                                                \
    "  --group-by-length     shuffle so that the samples of a step are about as long\n"

#define USAGE_BEST                                                                                 \
    "  --early-stopping N    end after N evaluations in a row that are no better\n"                \
    "  --load-best-at-end    leave the model of the best evaluation, not of the last\n"

#define USAGE_TASK                                                                                 \
    "  --task NAME           causal-lm, preference, reward, seq2seq, classification\n"             \
    "                        or regression (default: what the model is); of the\n"                 \
    "                        last three:\n"                                                        \
    "  --source-column NAME  field or column of sources, or of texts; a,b: a pair of\n"            \
    "                        texts (default: source; text)\n"                                      \
    "  --target-column NAME  and of targets (default: target)\n"                                   \
    "  --label-column NAME   and of classes or numbers (default: label)\n"                         \
    "  --prefix TEXT         put before every source, such as 'summarize: '\n"

#define USAGE_HEAD                                                                                 \
    "  --class-weights LIST  what a sample of each class counts: numbers with commas,\n"           \
    "                        or balanced\n"                                                        \
    "  --new-head            for the data's classes, instead of the folder's\n"

#define USAGE_SCORES                                                                               \
    "  --metric NAME...      compare texts that the model makes of prompts with the\n"             \
    "                        data's: exact_match, rouge1, rouge2, rougeL, rougeLsum,\n"            \
    "                        bleu; classes with labels: accuracy, f1, f1_macro,\n"                 \
    "                        f1_micro, matthews; numbers: mse, pearson, spearman\n"                \
    "  --max-new-tokens N    of such a text (default: the folder's setting, or 128)\n"             \
    "  --num-beams N         search it by beams\n"                                                 \
    "  --metric-samples N    of the first N samples alone\n"                                       \
    "  --stem                ROUGE counts words by their stems\n"

static const char USAGE_INIT[] =
    "usage: zinf init --arch NAME --size NAME --output DIR [options]\n"
    "\n"
    "Writes a Hugging Face model folder with fresh weights, of any size in little\n"
    "memory.\n"
    "\n"
    "  --arch NAME           family, of those below\n"
    "  --size NAME           one of its published sizes\n"
    "  --output DIR          folder to write\n"
    "  --layers N            number of blocks, instead of the size's\n"
    "  --hidden N            width, instead of the size's; a multiple of the heads\n"
    "  --heads N             attention heads, instead of the size's\n"
    "  --tokenizer DIR       take the tokenizer of a model folder and its vocabulary;\n"
    "                        the word bytes: bytes as tokens\n"
    "  --vocab N             vocabulary size (default: the tokenizer's or the size's)\n"
    "  --context N           longest sequence, instead of the size's\n"
    "  --seed N              of the random weights (default: 0)\n"
    "  --dtype NAME          of the file: fp32, bf16 or fp16 (default: fp32)\n"
    "  --config-only         no weights: for zinf estimate, fresh trainings\n";

static const char USAGE_TRAIN[] =
    "usage: zinf train --model DIR --data FILE... [options]\n"
    "\n"
    "Trains a model. Options win over the configuration file; a conflict is said.\n"
    "All GPUs that are visible train together; mpirun -np 4 zinf train ... has four\n"
    "processes that do.\n"
    "\n"
    "Model and data\n"
    "  --model DIR           Hugging Face model folder; --init needs only config.json\n"
    "  --init                start from fresh weights, not from the folder's\n"
    "  --adapter DIR         go on with these adapters of the model, as PEFT has them\n" USAGE_DATA
        USAGE_TASK USAGE_HEAD "  --eval-data FILE...   the same, to measure the loss on\n"
    "  --seq-len N           tokens in a sequence (default: the context, or 1024)\n"
    "  --source-len N        tokens that an encoder reads (default: as the data need)\n"
    "  --no-shuffle          take the data in the order of the files\n" USAGE_GROUP USAGE_PAD
    "  --seed N              of shuffling, dropout and --init\n"
    "Output\n"
    "  --output DIR          receives model/, log.jsonl, checkpoint-N/ and more\n"
    "                        (default: zinf-output)\n"
    "  --log FILE            one JSON object a step, instead of DIR/log.jsonl\n"
    "  --tensorboard DIR     event files for TensorBoard\n"
    "  --eval-every N        steps between evaluations\n" USAGE_SCORES
    "  --save-every N        steps between checkpoints, and one after the last\n"
    "  --save-total-limit N  keep so many checkpoints (default: all)\n"
    "  --no-final-checkpoint no checkpoint after the last step without --save-every\n"
    "  --overwrite           remove what an earlier run left in DIR, and say what\n"
    "  --resume[=DIR]        go on from DIR, or after the output's last step\n"
    "  --accept-changes      although model, data or settings are others now\n"
    "  --progress MODE       bar, plain or none (default: bar on a terminal)\n"
    "The step\n"
    "  --epochs X            passes over the data, instead of --steps\n" USAGE_STEP USAGE_BEST
    "Where and how\n" USAGE_DEVICE
    "  --seats N             devices of this process (default: visible GPUs, or 1)\n"
    "  --devices LIST        GPUs by number, such as 0,2\n"
    "  --lenient             unknown keys of the configuration are warnings\n";

static const char USAGE_ESTIMATE[] =
    "usage: zinf estimate --model DIR|config.json [--config FILE] [options]\n"
    "\n"
    "Says what a training will take before it starts: memory on every tier, bytes\n"
    "over every link, wear of the drive, time of a step and what limits it. Needs no\n"
    "weights.\n"
    "\n"
    "  --model DIR           Hugging Face model folder, or its config.json\n"
    "  --config FILE         of the training\n"
    "  --seq-len N           tokens in a sequence (default: the context, or 1024)\n"
    "  --source-len N        tokens that an encoder reads (default: as a sequence)\n"
    "  --measure             run a few steps with two blocks for the speeds\n"
    "                        (default: of zinf bench, else stated ones)\n"
    "  --machine NAME|FILE   of a machine that is not here: a card (3090, 4090, 5090,\n"
    "                        a10, l4, a100-80, h100, ...), cpu, or a JSON file;\n"
    "                        then figures: 4090,ram=64G,nvme=7/6\n"
    "  --compare LIST        a table of such machines, with commas between them\n"
    "  --power X             watts, for the energy of --tokens (default: the card's)\n"
    "  --tbw X               terabytes that the drive may be written (default: 600)\n"
    "  --tokens X            days and terabytes written for a training of X tokens\n"
    "  --trace FILE          the step that is predicted, as a Chrome trace\n"
    "  --suggest FILE        without --config: write the placement that fits there\n"
    "  --seats N             of N GPUs that one process drives (default: zinf.seats)\n"
    "  --ranks N             of so many ranks, a GPU each; with --seats, so many of\n"
    "                        them in each process\n"
    "  --gpus-per-host N     so many on each host (default: all on one)\n"
    "  --network RATE        of each host, such as 25Gbit/s\n"
    "  --json                print one JSON object\n" USAGE_STEP USAGE_DEVICE
    "  --lenient             unknown keys of the configuration are warnings\n";

static const char USAGE_CONFIG[] =
    "usage: zinf config --config FILE [--model DIR] [options]\n"
    "\n"
    "Prints the resolved configuration, each value with where it came from. The\n"
    "options of zinf train that change it may be given too.\n"
    "\n"
    "  --model DIR           whose config.json \"auto\" values are taken from\n"
    "  --json                one JSON object, which is itself a configuration\n" USAGE_STEP
        USAGE_GROUP USAGE_PAD USAGE_BEST USAGE_DEVICE
    "  --lenient             unknown keys of the configuration are warnings\n";

static const char USAGE_PLOT[] =
    "usage: zinf plot RUN... [options]\n"
    "\n"
    "Draws loss, evaluation, learning rate, gradient norm, step times beside the\n"
    "predicted ones, lanes, stalls, memory and the drive: as one HTML page that needs\n"
    "nothing else, and in the terminal. RUN is the --output of a training, or a log.\n"
    "\n"
    "  --output FILE         the page (default: RUN/plot.html)\n"
    "  --csv FILE            the log of one run as CSV; - for standard output\n"
    "  --tensorboard DIR     event files for TensorBoard\n"
    "  --no-charts           nothing in the terminal\n";

static const char USAGE_EXPORT[] =
    "usage: zinf export --checkpoint DIR --output DIR [options]\n"
    "       zinf export --adapter DIR[=WEIGHT]... --output DIR\n"
    "\n"
    "Writes a Hugging Face model folder from a checkpoint's fp32 weights, or one\n"
    "adapter from several, in little memory.\n"
    "\n"
    "  --checkpoint DIR      checkpoint-N, or a training's --output: its latest\n"
    "  --output DIR          folder to write\n"
    "  --merge               DIR holds adapters (PEFT's folder will do): add them to\n"
    "                        the weights of their base\n"
    "  --model DIR           that base (default: as adapter_config.json names it)\n"
    "  --adapter DIR...      adapters of one base, as folders or checkpoints: their\n"
    "                        sum, each by its WEIGHT (default: 1), as one adapter\n"
    "  --dtype NAME          fp32, bf16 or fp16 (default: as the training has them)\n"
    "  --max-shard-size SIZE largest file (default: 5GB)\n";

static const char USAGE_RESUME_INFO[] =
    "usage: zinf resume-info DIR\n"
    "\n"
    "Says what a training can go on from: the checkpoints of its output folder, each\n"
    "compared with its checksums, and steps that outlived their process on its\n"
    "drives. DIR may also be an nvme_path.\n";

static const char USAGE_VERIFY[] =
    "usage: zinf verify [options] DIR...\n"
    "\n"
    "Reads all that a training left and compares every checksum. DIR is its output\n"
    "folder, a checkpoint, an adapter, or an nvme_path (all of them, in order, where\n"
    "there are several). Says what can be gone on from.\n"
    "\n"
    "  --repair              where the last step on the drives is damaged and the one\n"
    "                        before it is whole, go on from that one next\n";

static const char USAGE_DATA_COMMAND[] =
    "usage: zinf data --model DIR --data FILE... [options]\n"
    "\n"
    "Shows what a training would be fed: the format of the rows, what is cut or left\n"
    "out, how long samples are, and the first of them as tokens, green where they\n"
    "count for the loss.\n"
    "\n"
    "  --model DIR           whose tokenizer and chat template are used\n" USAGE_DATA USAGE_TASK
    "  --seq-len N           tokens in a sequence (default: the context, or 1024)\n"
    "  --batch N             of a step, whose padding is counted (default: 8)\n"
    "  --samples N           how many are shown (default: 3)\n"
    "  --color WHEN          auto, always or never; without it [[ ]] count\n"
    "  --json                print one JSON object\n";

static const char USAGE_EVAL[] =
    "usage: zinf eval --model DIR --data FILE... [options]\n"
    "\n"
    "Measures a model on data and prints {\"loss\", \"perplexity\", \"tokens\"} and the\n"
    "metrics that it is asked for.\n"
    "\n"
    "  --model DIR           Hugging Face model folder\n"
    "  --adapter DIR...      and adapters of it, as PEFT writes them; several add up,\n"
    "                        DIR=0.5 by half\n" USAGE_DATA USAGE_TASK
    "  --seq-len N           tokens in a sequence (default: the context, or 1024)\n"
    "  --source-len N        tokens that an encoder reads (default: as a sequence)\n" USAGE_PAD
    "  --dtype NAME          fp32, bf16 or fp16 (default: the configuration's)\n" USAGE_SCORES
    "  --predictions FILE    write predicted and true texts as JSON lines\n" USAGE_PAIRS
        USAGE_DEVICE
    "  --seats N             devices of this process (default: visible GPUs, or 1)\n"
    "  --devices LIST        GPUs by number, such as 0,2\n";

static const char USAGE_LAUNCH[] =
    "usage: zinf launch [options] -- COMMAND...\n"
    "\n"
    "Starts a command of zinf's, such as train, as several ranks: one for each slot,\n"
    "by the mpirun that is there. Within Slurm srun does the same by itself.\n"
    "\n"
    "  --num-gpus N          ranks on this machine, or on each host\n"
    "  --hostfile FILE       hosts, as DeepSpeed has them: NAME slots=N in each line\n"
    "  --num-nodes N         only the first so many hosts\n"
    "  --include LIST        only these: HOST, or HOST:0,2 for some of its GPUs, with\n"
    "                        an @ between them\n"
    "  --exclude LIST        all but these\n"
    "  --mpirun PATH         of Open MPI, MPICH or Intel MPI (default: mpirun)\n"
    "  --mpirun-args WORD... go to mpirun as they are\n"
    "  --dry-run             print the command and start nothing\n";

static const char USAGE_GENERATE[] =
    "usage: zinf generate --model DIR --prompt TEXT... [options]\n"
    "\n"
    "Continues texts and prints them. What is not given comes from the folder's\n"
    "generation_config.json.\n"
    "\n"
    "  --model DIR           Hugging Face model folder\n"
    "  --adapter DIR...      and adapters of it, as PEFT writes them; several add up,\n"
    "                        DIR=0.5 by half\n"
    "  --prompt TEXT...      the beginnings; one is printed as it grows\n"
    "  --prompts FILE        a beginning in each line; - for standard input\n"
    "  --chat                prompts are what a user says: write them by the folder's\n"
    "                        chat template, print the answer\n"
    "  --system TEXT         what the system says before\n"
    "  --chat-template NAME  by this template\n"
    "  --max-new-tokens N    stop after so many, or at the end-of-text token\n"
    "  --temperature X       0 takes the most likely token each time (default: 1)\n"
    "  --top-k N             draw among the N most likely tokens (default: 0, all)\n"
    "  --top-p X             draw among the likeliest that make up X (default: 1)\n"
    "  --repetition-penalty X what was said is less likely (default: 1, off)\n"
    "  --no-repeat-ngram N   no row of N tokens comes twice (default: 0, off)\n"
    "  --num-beams N         beam search: follow the N likeliest continuations, draw\n"
    "                        nothing (default: 1)\n"
    "  --length-penalty X    a beam's score is divided by its length to the power X\n"
    "                        (default: 1)\n"
    "  --early-stopping WORD true: at N finished beams; false: where better ones are\n"
    "                        unlikely; never: where there are none (default: false)\n"
    "  --stop TEXT...        end a text before any of these\n"
    "  --ignore-eos          go on after an end-of-text token\n"
    "  --batch N             texts at once (default: 16)\n"
    "  --json                one JSON object a text\n"
    "  --seed N              the same seed gives the same texts\n"
    "  --dtype NAME          fp32, bf16 or fp16 (default: the configuration's)\n" USAGE_DEVICE;

static const char USAGE_GRADIENTS[] =
    "usage: zinf gradients --model DIR --data FILE... --seq-len N --micro-batch N\n"
    "                      --output FILE.safetensors [options]\n"
    "\n"
    "Runs forward and backward on the first batch, without dropout; writes fp32\n"
    "gradients under their Hugging Face names and prints {\"loss\", \"grad_norm\"}. For\n"
    "checks against PyTorch.\n"
    "\n"
    "  --model DIR           Hugging Face model folder\n"
    "  --adapter DIR...      and adapters of it: their gradients alone\n" USAGE_DATA USAGE_TASK
    "  --seq-len N           tokens in a sequence\n"
    "  --micro-batch N       sequences in the batch\n"
    "  --output FILE         .safetensors file to write\n" USAGE_DEVICE;

#endif
