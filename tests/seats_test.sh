#!/bin/sh
# Seats: the command drives several host devices in one process, trains to the bits of one seat,
# writes one folder and one log, goes on with another number of seats, and with an MPI drives seats
# in each of several processes.
. "$SRCDIR/tests/command.sh"
. "$SRCDIR/tests/mpirun.sh"

config() { # file, accumulation, further keys of "zinf"
    cat >"$1" <<EOF
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": $2,
 "gradient_clipping": 0.5, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "$work"}},
 "zinf": {"threads": 1, "gradient_sum": "tree", "dropout": 0.1, "durability": "none",
  "timeout": 20$3}}
EOF
}
config "$work/one.json" 8
config "$work/two.json" 4
config "$work/four.json" 2 ', "seats": 4'
make_text "$work/text.txt" 60
check "a model" run 0 "$zinf" init --arch gpt2 --size small --layers 2 --hidden 64 --heads 4 \
    --tokenizer bytes --context 32 --output "$work/model"

options="--model $work/model --data $work/text.txt --seq-len 16 --device host --seed 3 --steps 4"
# shellcheck disable=SC2086 # options are words
train() { "$zinf" train $options "$@"; }
losses() { sed 's/.*"loss": \([^,]*\),.*"grad_norm": \([^,]*\),.*/\1 \2/' "$1/log.jsonl"; }
same_result() { # two outputs
    losses "$1" >"$work/losses"
    losses "$2" | cmp - "$work/losses" && cmp "$1/model/model.safetensors" "$2/model/model.safetensors"
}
evaluations() { sed -n 's/.*"eval_loss": \([^,}]*\).*/\1/p' "$1/log.jsonl"; }

check "one seat" run 0 train --config "$work/one.json" --eval-data "$work/text.txt" \
    --eval-every 2 --output "$work/out1"
check "two seats" run 0 train --config "$work/two.json" --seats 2 --save-every 2 \
    --eval-data "$work/text.txt" --eval-every 2 --output "$work/out2"
check "say that there are two" complains "x 2 seats"
check "and have the same losses, norms and weights" same_result "$work/out1" "$work/out2"
[ -n "$(evaluations "$work/out1")" ] &&
    [ "$(evaluations "$work/out1")" = "$(evaluations "$work/out2")" ]
verdict $? "and the same evaluations"
check "the log has what each seat's lanes did" holds "$work/out2/log.jsonl" \
    '"seats": [{"lane_seconds": {"read"' '"net"'
check "four seats, as the configuration has it" run 0 train --config "$work/four.json" \
    --output "$work/out4"
check "have the same too" same_result "$work/out1" "$work/out4"
[ "$(find "$work" -maxdepth 1 -name 'zinf-*' | wc -l)" -eq 0 ]
verdict $? "no seat leaves files on the drive"

# ---- going on with another number ----

mkdir "$work/on4" "$work/on1" && cp -r "$work/out2/checkpoint-2" "$work/on4/" &&
    cp -r "$work/out2/checkpoint-2" "$work/on1/"
check "four seats go on from two's checkpoint" run 0 train --config "$work/four.json" \
    --resume="$work/on4/checkpoint-2" --output "$work/on4"
check "to the same weights" cmp "$work/out1/model/model.safetensors" \
    "$work/on4/model/model.safetensors"
check "one seat goes on" run 0 train --config "$work/one.json" \
    --resume="$work/on1/checkpoint-2" --output "$work/on1"
check "to the same weights too" cmp "$work/out1/model/model.safetensors" \
    "$work/on1/model/model.safetensors"

# ---- what is refused, and what ends all ----

check "a batch that is for other seats ends" run 1 train --config "$work/one.json" --seats 2 \
    --output "$work/out5"
check "and says so" complains "train_batch_size is 8" "world size 2"
check "host devices have no numbers" run 1 train --config "$work/two.json" --devices 0,1 \
    --output "$work/out5"
check "and are counted" complains "--seats N"
sed "s|\"nvme_path\": \"$work\"|\"nvme_path\": \"$work/nowhere/at/all\"|" "$work/two.json" \
    >"$work/bad.json"
check "seats that cannot begin end together" run 1 train --config "$work/bad.json" --seats 2 \
    --output "$work/out6"
check "and say why" complains "nowhere"

# ---- seats of several processes ----

if [ -n "$no_mpi" ]; then
    skip "seats of several processes" "$no_mpi"
    finish
fi
# shellcheck disable=SC2086
train_ranks() { ranks 2 "$zinf" train $options "$@"; }
config "$work/both.json" 2
check "two processes of two seats" run 0 train_ranks --config "$work/both.json" --seats 2 \
    --eval-data "$work/text.txt" --eval-every 2 --output "$work/out7"
check "say so" complains "x 2 processes x 2 seats"
check "and have the bits of one seat" same_result "$work/out1" "$work/out7"
finish
