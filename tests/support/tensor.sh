# shellcheck shell=sh
# tensor: for tests of zinf.tensor_parts; after tests/support/command.sh, in a folder with text.txt and
# drive/. A test sets the variables that these functions read: places, stage, micro, bf16, dropout, and
# the type and keys of the optimizer.
nowhere=none
places=$nowhere
stage=3
# Eight samples a step.
config() { # file, parts, keys of "zinf" behind a comma
    cat >"$1" <<EOF
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": ${micro:-2}, "gradient_clipping": 0.5,
 ${bf16:-}
 "optimizer": {"type": "${type:-AdamW}", "params": {"lr": 2e-3, "weight_decay": 0.1${keys:-}}},
 "zero_optimization": {"stage": ${stage:-3},
  "offload_param": {"device": "$places", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "$places", "nvme_path": "$work/drive"}},
 "zinf": {"tensor_parts": $2, "threads": 1, "gradient_sum": "tree", "placement": "exact",
  "durability": "none", "dropout": ${dropout:-0.1}${3:-}}}
EOF
}
train() { # model, output, options...
    model=$1 output=$2
    shift 2
    "$zinf" train --model "$model" --init --data text.txt --seq-len 16 --device host --seed 3 \
        --steps 4 --progress none --output "$output" "$@"
}
