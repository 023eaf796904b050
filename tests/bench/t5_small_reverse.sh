#!/bin/sh
# A T5 of t5-small's size learns from fresh weights to write codes backwards, with parameters and
# optimizer state on the drive: d_model 512, 8 heads of 64, d_ff 2048, 6 + 6 blocks, 32,128 tokens,
# 60,506,624 parameters. Codes have five signs, each of six of its own ("b0uAm"); 500 of 6500 are
# held out, and the last lines say how many of these come out exactly, and what the training took.
#
# Usage: t5_small_reverse.sh WORK [zinf train option ...]
#   WORK  a folder on a drive, not on tmpfs; it receives the data, the swap files and the run
# ZINF names the command to run (default: zinf).
set -eu

if [ $# -lt 1 ]; then
    sed -n 's/^# \{0,1\}//;2,9p' "$0" >&2
    exit 2
fi
zinf=${ZINF:-zinf}
work=$1
shift
columns="--source-column code --target-column back"

mkdir -p "$work/swap"
awk 'BEGIN {
    srand(7)
    split("bcdfgh 012345 uvwxyz ABCDEF mnpqrs", signs, " ")
    while (n < 6500) {
        code = ""; back = ""
        for (k = 1; k <= 5; k++) {
            c = substr(signs[k], 1 + int(6 * rand()), 1)
            code = code c; back = c back
        }
        if (!(code in seen)) { seen[code] = 1; n++; print code "," back }
    }
}' >"$work/codes"
{ echo code,back; head -n 6000 "$work/codes"; } >"$work/train.csv"
{ echo code,back; tail -n 500 "$work/codes"; } >"$work/held-out.csv"
cat >"$work/config.json" <<END
{
  "gradient_clipping": 1.0,
  "bf16": {"enabled": true},
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.0}
  },
  "scheduler": {
    "type": "WarmupDecayLR",
    "params": {"total_num_steps": 80, "warmup_num_steps": 20, "warmup_type": "linear",
               "warmup_min_lr": 0, "warmup_max_lr": 1e-3}
  },
  "zero_optimization": {
    "stage": 3,
    "offload_param":     {"device": "nvme", "nvme_path": "$work/swap"},
    "offload_optimizer": {"device": "nvme", "nvme_path": "$work/swap"}
  },
  "zinf": {"placement": "exact"}
}
END
if [ ! -d "$work/fresh" ]; then
    "$zinf" init --arch t5 --size v1-small --tokenizer bytes --vocab 32128 --seed 1 \
        --output "$work/fresh"
fi
begin=$(date +%s)
"$zinf" train --model "$work/fresh" --data "$work/train.csv" $columns --config "$work/config.json" \
    --output "$work/output" --overwrite --no-final-checkpoint --device host --dropout 0 \
    --micro-batch 16 --steps 80 "$@"
end=$(date +%s)
"$zinf" eval --model "$work/output/model" --data "$work/held-out.csv" $columns --device host \
    --metric exact_match --max-new-tokens 8 | tee "$work/scores.json"
echo "$((end - begin)) seconds of training"
