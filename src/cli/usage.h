/*
 * usage: what `zinf help NAME` prints for the commands that work on a model. Kept in one place, so
 * that an option that several commands share reads the same in each. The man pages say the same at
 * greater length; tests/man_test.sh holds the option lists together.
 */
#ifndef ZINF_CLI_USAGE_H
#define ZINF_CLI_USAGE_H

#define USAGE_DEVICE                                                                               \
    "  --config FILE         DeepSpeed configuration: placements, number type\n"                   \
    "  --device NAME         auto, host or cuda (default: auto)\n"                                 \
    "  --device-memory SIZE  most memory to take on the device, such as 20GiB\n"                   \
    "  --host-memory SIZE    most memory to take in the host's RAM\n"                              \
    "  --threads N           CPU threads (default: all that this process may use)\n"

static const char USAGE_INIT[] =
    "usage: zinf init --arch NAME --size NAME --output DIR [options]\n"
    "\n"
    "Writes a Hugging Face model folder with fresh weights, of any size in little\n"
    "memory.\n"
    "\n"
    "  --arch NAME           model family: gpt2\n"
    "  --size NAME           small, medium, large or xl\n"
    "  --output DIR          folder to write\n"
    "  --layers N            number of blocks, instead of the size's\n"
    "  --hidden N            width, instead of the size's; a multiple of the heads\n"
    "  --heads N             attention heads, instead of the size's\n"
    "  --vocab N             vocabulary size (default: 50257)\n"
    "  --context N           longest sequence (default: 1024)\n"
    "  --seed N              of the random weights (default: 0)\n"
    "  --dtype NAME          of the file: fp32, bf16 or fp16 (default: fp32)\n";

static const char USAGE_TRAIN[] =
    "usage: zinf train --model DIR --data FILE... [options]\n"
    "\n"
    "Trains a model. Options win over the configuration file; a conflict is said.\n"
    "\n"
    "Model and data\n"
    "  --model DIR           Hugging Face model folder; --init needs only config.json\n"
    "  --init                start from fresh weights, not from the folder's\n"
    "  --data FILE...        text, .jsonl, .json, or token files (.bin, .npy)\n"
    "  --eval-data FILE      the same, to measure the loss on\n"
    "  --seq-len N           tokens in a sequence (default: the context, or 1024)\n"
    "  --no-shuffle          take the data in the order of the files\n"
    "  --seed N              of shuffling, dropout and --init\n"
    "Output\n"
    "  --output DIR          receives model/, log.jsonl, checkpoint-N/ and more\n"
    "  --log FILE            one JSON object a step, instead of DIR/log.jsonl\n"
    "  --eval-every N        steps between evaluations\n"
    "  --save-every N        steps between checkpoints, and one after the last\n"
    "  --save-total-limit N  keep so many checkpoints (default: all)\n"
    "  --resume[=DIR]        go on from DIR, or after the output's last step\n"
    "  --progress MODE       bar, plain or none (default: bar on a terminal)\n"
    "The step\n"
    "  --steps N             optimizer steps\n"
    "  --micro-batch N       sequences computed at once\n"
    "  --accumulate N        micro-batches in a step\n"
    "  --lr X                learning rate of the optimizer\n"
    "  --dropout X           instead of the model's; 0 switches it off\n"
    "Where and how\n" USAGE_DEVICE
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
    "  --micro-batch N       sequences computed at once\n"
    "  --accumulate N        micro-batches in a step\n"
    "  --measure             run a few steps with two blocks for the speeds\n"
    "                        (default: of zinf bench, else stated ones)\n"
    "  --tbw X               terabytes that the drive may be written (default: 600)\n"
    "  --trace FILE          the step that is predicted, as a Chrome trace\n"
    "  --json                print one JSON object\n" USAGE_DEVICE
    "  --lenient             unknown keys of the configuration are warnings\n";

static const char USAGE_EXPORT[] =
    "usage: zinf export --checkpoint DIR --output DIR [options]\n"
    "\n"
    "Writes a Hugging Face model folder from a checkpoint's fp32 weights, in little\n"
    "memory.\n"
    "\n"
    "  --checkpoint DIR      checkpoint-N, or a training's --output: its latest\n"
    "  --output DIR          folder to write\n"
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
    "folder, a checkpoint, or an nvme_path (all of them, in order, where there are\n"
    "several). Says what can be gone on from.\n"
    "\n"
    "  --repair              where the last step on the drives is damaged and the one\n"
    "                        before it is whole, make that one the last\n";

static const char USAGE_EVAL[] =
    "usage: zinf eval --model DIR --data FILE... [options]\n"
    "\n"
    "Measures a model on data and prints {\"loss\", \"perplexity\", \"tokens\"}.\n"
    "\n"
    "  --model DIR           Hugging Face model folder\n"
    "  --data FILE...        text, .jsonl, .json, or token files (.bin, .npy)\n"
    "  --seq-len N           tokens in a sequence (default: the context, or 1024)\n"
    "  --dtype NAME          fp32, bf16 or fp16 (default: the configuration's)\n" USAGE_DEVICE;

static const char USAGE_GENERATE[] =
    "usage: zinf generate --model DIR --prompt TEXT [options]\n"
    "\n"
    "Continues a text and prints it.\n"
    "\n"
    "  --model DIR           Hugging Face model folder\n"
    "  --prompt TEXT         the beginning\n"
    "  --max-new-tokens N    stop after so many, or at the end-of-text token\n"
    "  --temperature X       0 takes the most likely token each time (default: 1)\n"
    "  --top-k N             draw among the N most likely tokens (default: 0, all)\n"
    "  --top-p X             draw among the likeliest that make up X (default: 1)\n"
    "  --seed N              the same seed gives the same text\n"
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
    "  --data FILE...        text, .jsonl, .json, or token files (.bin, .npy)\n"
    "  --seq-len N           tokens in a sequence\n"
    "  --micro-batch N       sequences in the batch\n"
    "  --output FILE         .safetensors file to write\n" USAGE_DEVICE;

#endif
