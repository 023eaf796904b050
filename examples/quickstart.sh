#!/usr/bin/env bash
# From a fresh checkout to a trained model: builds zinf, makes a small GPT-2, and trains it with
# parameters, gradients and optimizer state on the local disk and less device memory than that
# state takes. May be run again: the build is kept, the run is made anew.
#
# usage: examples/quickstart.sh [FILE]      FILE: text to learn from; default: zinf's own sources
#
#   ZINF_BUILD   build folder (default: build in the checkout)
#   ZINF_RUN     folder of the run (default: the build folder's run)
#   ZINF_NVME    folder that plays the drive (default: the run's swap; not on tmpfs)
#   ZINF_STEPS   optimizer steps (default: 150)
set -euo pipefail

source=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=${ZINF_BUILD:-$source/build}
run=${ZINF_RUN:-$build/run}
nvme=${ZINF_NVME:-$run/swap}
steps=${ZINF_STEPS:-150}
device_memory_mib=60 # the state of the model below takes 92.9 MiB
threads=$(($(nproc) < 16 ? $(nproc) : 16)) # the kernels' workspace grows with them
bytes_per_param=20   # fp32: parameter 4, gradient 4, master and two moments 12

say() { printf '\n== %s\n' "$*"; }
fail() {
    printf 'quickstart: %s\n' "$*" >&2
    exit 1
}

# The checkout's text and sources, in a fixed order.
own_text() {
    find "$source/src" "$source/aio" "$source/cpu_optim" "$source/kernels" "$source/offload" \
        "$source/man" "$source/README.md" "$source/HACKING.md" -type f \
        \( -name '*.[ch]' -o -name '*.md' -o -name '*.[1-9]' \) -print0 |
        LC_ALL=C sort -z | xargs -0 cat
}

json_string() { printf '%s' "$1" | sed 's/[\\"]/\\&/g'; }

write_config() {
    local swap
    swap=$(json_string "$nvme")
    cat <<END
{
  "train_micro_batch_size_per_gpu": 4,
  "gradient_clipping": 1.0,
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
  },
  "scheduler": {
    "type": "WarmupCosineLR",
    "params": {"warmup_num_steps": 15, "warmup_type": "linear",
               "total_num_steps": "auto", "cos_min_ratio": 0.1}
  },
  "zero_optimization": {
    "stage": 3,
    "sub_group_size": 1e6,
    "offload_param":     {"device": "nvme", "nvme_path": "$swap"},
    "offload_optimizer": {"device": "nvme", "nvme_path": "$swap"}
  },
  "zinf": {"placement": "exact", "device_memory": "${device_memory_mib}MiB"}
}
END
}

# First loss against the mean of the last ten: fails unless a quarter of it is gone.
check_loss() {
    sed -n 's/.*"step": *\([0-9]*\), *"loss": *\([0-9.]*\),.*/\1 \2/p' "$run/out/log.jsonl" | awk '
        { loss[NR] = $2 }
        END {
            n = NR < 10 ? NR : 10
            for (i = NR - n + 1; i <= NR; i++) sum += loss[i]
            last = n ? sum / n : 0
            printf "loss: %.3f at the first step, %.3f over the last %d of %d steps\n",
                   loss[1], last, n, NR
            exit !(NR > 1 && last < 0.75 * loss[1])
        }'
}

begin=$SECONDS
data=${1-}
if [ -n "$data" ]; then
    [ -r "$data" ] || fail "cannot read $data"
    data=$(CDPATH='' cd -- "$(dirname -- "$data")" && pwd)/$(basename -- "$data")
fi

say "build"
# Kernels of the CUDA module take minutes to compile: they are made for the GPUs that are here, and
# left out where there is none.
gpus=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -un |
    tr '\n' ' ') || gpus=
if [ -n "$gpus" ]; then
    "$source/scripts/build.sh" "$build" "--with-cuda-arch=$gpus"
else
    ZINF_TARGET=zinf "$source/scripts/build.sh" "$build"
fi
zinf=$build/zinf
built=$((SECONDS - begin))

say "model"
rm -rf -- "$run/model" "$run/out"
mkdir -p -- "$run" "$nvme"
"$zinf" init --arch gpt2 --size small --layers 6 --hidden 256 --heads 4 --vocab 257 \
    --context 256 --seed 1 --output "$run/model" | tee "$run/init.txt"
params=$(sed -n 's/.* \([0-9][0-9]*\) parameters.*/\1/p' "$run/init.txt")
state=$((params * bytes_per_param))
cap=$((device_memory_mib * 1024 * 1024))
printf 'training state: %d parameters x %d bytes = %d bytes\n' "$params" "$bytes_per_param" "$state"
printf 'device memory:  %d MiB = %d bytes\n' "$device_memory_mib" "$cap"
[ "$cap" -lt "$state" ] || fail "the cap is not below the training state"

say "training, $steps steps"
if [ -z "$data" ]; then
    data=$run/own-text.txt
    own_text >"$data"
fi
write_config >"$run/config.json"
"$zinf" train --model "$run/model" --data "$data" --config "$run/config.json" --dropout 0 \
    --output "$run/out" --steps "$steps" --seq-len 256 --threads "$threads" >"$run/result.json"
trained=$((SECONDS - begin - built))

say "sample"
"$zinf" generate --model "$run/out/model" --prompt 'static int ' --max-new-tokens 160 \
    --temperature 0.7 --top-k 20 --seed 1

say "where the bytes were"
cat "$run/out/ledger.txt"

say "result"
check_loss || fail "the loss did not fall: see $run/out/log.jsonl"
printf 'seconds: %d build, %d training, %d in all\n' "$built" "$trained" "$((SECONDS - begin))"
printf 'Hugging Face folder: %s\n' "$run/out/model"
