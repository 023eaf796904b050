#!/bin/sh
# From nothing to a trained model on this machine: installs what is missing, builds, makes a small
# GPT-2 shaped model, and trains it with its parameters and optimizer state on the drive, on a device
# whose memory is smaller than the model's training state.
#
# usage: examples/quickstart.sh [TEXT_FILE]    default text: this repository's own text and sources
# WORK names the folder for everything that is made (default: build-quickstart here); STEPS the
# number of training steps (default 150).
set -eu

source=$(cd "$(dirname "$0")/.." && pwd)
work=${WORK:-$source/build-quickstart}
steps=${STEPS:-150}
if [ $# -gt 1 ] || { [ $# -eq 1 ] && [ ! -f "$1" ]; }; then
    echo "usage: $0 [TEXT_FILE]" >&2
    exit 2
fi
text=
[ $# -eq 0 ] || text=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")

say() { printf '\n== %s\n' "$*"; }

say "what is needed"
"$source/scripts/install-deps.sh"

say "build (in $work)"
mkdir -p "$work"
[ -x "$source/configure" ] || (cd "$source" && autoreconf -fi >/dev/null 2>&1)
cd "$work"
[ -f Makefile ] || "$source/configure" -q
make -s -j"$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" zinf

say "a model: 8 layers, 256 wide, byte-level tokens"
rm -rf model run swap
mkdir swap
./zinf init --arch gpt2 --layers 8 --hidden 256 --heads 4 --vocab 257 --context 128 --seed 1 \
    --output model
parameters=$(./zinf inspect --json model | sed -n 's/.*"parameters":[[:space:]]*\([0-9]*\).*/\1/p' | head -n 1)

if [ -z "$text" ]; then
    text=$work/text.txt
    find "$source/README.md" "$source/HACKING.md" "$source/man" "$source/src" "$source/offload" \
        "$source/aio" "$source/cpu_optim" "$source/kernels" -type f \
        \( -name '*.md' -o -name '*.[ch157]' \) | LC_ALL=C sort | xargs cat >"$text"
fi

cat >config.json <<EOF
{
  // DeepSpeed's keys; "zinf" holds what DeepSpeed has no key for
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 1,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.99], "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupCosineLR",
                "params": {"total_num_steps": "auto", "warmup_num_steps": 20, "warmup_type": "linear"}},
  "zero_optimization": {
    "stage": 3,
    "offload_param": {"device": "nvme", "nvme_path": "$work/swap"},
    "offload_optimizer": {"device": "nvme", "nvme_path": "$work/swap"},
  },
  "zinf": {"device_memory": "48MiB"},
}
EOF

say "train: $((parameters * 16 / 1048576)) MiB of parameters, gradients and optimizer state, 48 MiB of device memory"
./zinf train --model model --data "$text" --config config.json --output run --steps "$steps" \
    --seq-len 128 --seed 1 --dropout 0 >result.json
cat result.json

say "a sample"
./zinf generate --model run/model --prompt "static int " --max-new-tokens 120 --temperature 0.7 \
    --top-k 40 --seed 3

say "where the memory went"
cat run/ledger.txt

first=$(sed -n 's/.*"first_loss": \([0-9.]*\).*/\1/p' result.json)
final=$(sed -n 's/.*"final_loss": \([0-9.]*\).*/\1/p' result.json)
left=$(find swap -mindepth 1 | wc -l)
say "done: loss $first -> $final; the model is in $work/run/model (Hugging Face format)"
[ "$left" -eq 0 ] || { echo "quickstart: files were left in $work/swap" >&2; exit 1; }
awk -v a="$first" -v b="$final" 'BEGIN { exit !(b < 0.75 * a) }' || {
    echo "quickstart: the loss did not fall" >&2
    exit 1
}
