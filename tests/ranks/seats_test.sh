#!/bin/sh
# Seats: the command drives several host devices in one process, trains to the bits of one seat,
# writes one folder and one log, goes on with another number of seats, and with an MPI drives seats
# in each of several processes.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"

config() { # file, accumulation, further keys of "zinf"
    rank_config "$1" 1 "$2" cpu "$work" ", \"durability\": \"none\", \"timeout\": 20$3"
}
config "$work/one.json" 8
config "$work/two.json" 4
config "$work/four.json" 2 ', "seats": 4'
make_rank_model

options="$options --steps 4"
# shellcheck disable=SC2086 # options are words
train() { "$zinf" train $options "$@"; }

check "one seat" run 0 train --config "$work/one.json" --eval-data "$work/text.txt" \
    --eval-every 2 --output "$work/out1"
check "two seats" run 0 train --config "$work/two.json" --seats 2 --save-every 2 \
    --eval-data "$work/text.txt" --eval-every 2 --output "$work/out2"
check "say that there are two" complains "x 2 seats"
check "and have the same losses, norms and weights" same_result "$work/out1" "$work/out2"
check "and the same evaluations" same_evaluations "$work/out1" "$work/out2"
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

# ---- saves while steps are made ----

rank_config "$work/saves1.json" 1 8 nvme "$work" ', "timeout": 20, "schedule": "update-in-backward"'
rank_config "$work/saves2.json" 1 4 nvme "$work" \
    ', "timeout": 20, "schedule": "update-in-backward", "async_save": true'
check "a seat that saves" run 0 train --config "$work/saves1.json" --save-every 2 --output \
    "$work/saves1"
check "two that do so while steps are made" run 0 train --config "$work/saves2.json" --seats 2 \
    --save-every 1 --output "$work/saves2"
complains "steps wait for checkpoints" >/dev/null
[ $? -ne 0 ] && same_result "$work/saves1" "$work/saves2" &&
    [ "$(find "$work/saves2" -maxdepth 1 -name 'checkpoint-*' | wc -l)" = 4 ]
verdict $? "train to the same bits"
same=0
for file in model.safetensors optimizer/master.safetensors optimizer/moment1.safetensors \
    optimizer/moment2.safetensors; do
    cmp "$work/saves1/checkpoint-2/$file" "$work/saves2/checkpoint-2/$file" || same=1
done
verdict $same "and have saved the files of one"
check "which are whole" run 0 "$zinf" verify "$work/saves2/checkpoint-3"

# ---- an optimizer whose tensors are not cut ----

factored() { # file, accumulation
    zero_stage=2 rank_config "$1" 1 "$2" none "$work" ', "durability": "none", "timeout": 20'
    sed 's/"AdamW", "params": {"lr": 1e-3}/"Adafactor", "params": {"lr": 1e-2}/' "$1" >"$1.tmp"
    mv "$1.tmp" "$1"
}
factored "$work/factored1.json" 8
factored "$work/factored2.json" 4
check "Adafactor on one seat" run 0 train --config "$work/factored1.json" --output "$work/factored1"
check "on two" run 0 train --config "$work/factored2.json" --seats 2 --save-every 2 \
    --output "$work/factored2"
check "has the same losses, norms and weights" same_result "$work/factored1" "$work/factored2"
check "and the same moments" cmp "$work/factored1/checkpoint-4/optimizer/moment1.safetensors" \
    "$work/factored2/checkpoint-4/optimizer/moment1.safetensors"
mkdir "$work/factored3" && cp -r "$work/factored2/checkpoint-2" "$work/factored3/"
check "one goes on from two's checkpoint" run 0 train --config "$work/factored1.json" \
    --resume="$work/factored3/checkpoint-2" --output "$work/factored3"
check "to the same weights" cmp "$work/factored1/model/model.safetensors" \
    "$work/factored3/model/model.safetensors"
sed 's/"stage": 2/"stage": 3/' "$work/factored2.json" >"$work/factored4.json"
check "in slices it is refused" run 1 train --config "$work/factored4.json" --seats 2 \
    --output "$work/factored4"
check "with what to do" complains "set stage to 2"

# ---- a process that is killed ----

killed() { # stage, parameters
    zero_stage=$1 rank_config "$work/durable.json" 1 4 "$2" "$work" \
        ', "durability": "step", "timeout": 20'
    killed=$work/killed-$1
    "$zinf" train --model "$work/model" --data "$work/text.txt" --seq-len 16 --device host \
        --seed 3 --steps 2000 --config "$work/durable.json" --seats 2 --no-final-checkpoint \
        --output "$killed" >"$work/said.out" 2>"$work/said.err" </dev/null &
    child=$!
    wait_until $child has_lines "$killed" 3
    kill -KILL $child
    wait $child 2>/dev/null
    done=$(grep -c '"step"' "$killed/log.jsonl")
    steps=$((done + 3))
    # shellcheck disable=SC2086
    check "stage $1: both seats go on from their drives" run 0 train --config \
        "$work/durable.json" --seats 2 --steps $steps --resume --output "$killed"
    [ "$1" = 3 ] || check "saying that DeepSpeed wants another" complains \
        'parameters stay whole on the device'
    check "from the last step, not anew" holds "$killed/log.jsonl" '"step": 1,' "\"step\": $steps,"
    check "one seat goes as far" run 0 train --config "$work/one.json" --steps $steps \
        --output "$work/unkilled-$1"
    check "and they end alike" same_result "$work/unkilled-$1" "$killed"
}
killed 1 none
killed 2 none
killed 3 nvme
check "another learning rate is refused" run 1 train --config "$work/durable.json" --seats 2 \
    --steps $((steps + 2)) --lr 5e-3 --resume --output "$killed"
[ "$(find "$work" -maxdepth 1 -name 'zinf-*' | wc -l)" -eq 0 ]
verdict $? "and leaves nothing on the drive"

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

# ---- several GPUs ----

module=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
# shellcheck disable=SC2086
gpus() { # how many are there, options...
    how_many=$1
    shift
    ZINF_CUDA_MODULE=$module ZINF_STANDIN_GPUS=$how_many ZINF_STANDIN_STRICT=1 \
        ZINF_STANDIN_SEED=$how_many "$zinf" train --model "$work/model" --data "$work/text.txt" \
        --seq-len 16 --seed 3 --steps 1 --no-final-checkpoint --device-memory 64MiB "$@"
}
if [ -f "$module" ]; then
    check "one GPU" run 0 gpus 4 --config "$work/one.json" --seats 1 --output "$work/gpu1"
    check "four GPUs, as many as are visible" run 0 gpus 4 --config "$work/four.json" \
        --output "$work/gpu4"
    check "have its bits" same_result "$work/gpu1" "$work/gpu4"
    check "two of four by their numbers" run 0 gpus 4 --config "$work/two.json" --devices 3,1 \
        --output "$work/gpu2"
    check "begin with the first" complains "(GPU 3, " "and 1 more"
    check "and have them too" same_result "$work/gpu1" "$work/gpu2"
    sed 's/"timeout": 20/"timeout": 20, "gather": "device"/' "$work/two.json" >"$work/link.json"
    ZINF_NCCL_LIBRARY=$module
    export ZINF_NCCL_LIBRARY
    check "two that gather by themselves" run 0 gpus 2 --config "$work/link.json" \
        --output "$work/gpu6"
    check "have them" same_result "$work/gpu1" "$work/gpu6"
    check "and say so" holds "$work/gpu6/ledger.txt" "gather units and add gradients among"
    ZINF_NCCL_LIBRARY=/nowhere/libnccl.so.2
    check "without NCCL they do not begin" run 1 gpus 2 --config "$work/link.json" \
        --output "$work/gpu8"
    check "which is said" complains "ZINF_NCCL_LIBRARY" "libnccl2"
    unset ZINF_NCCL_LIBRARY
    check "a batch for one GPU wants to be told" run 1 gpus 4 --config "$work/one.json" \
        --output "$work/gpu5"
    check "how to take one" complains "--seats 1 takes one"
    sed -e 's/"offload_param": {[^}]*},//' -e 's/"gradient_accumulation_steps": 8,//' \
        "$work/one.json" >"$work/alone.json"
    check "what cannot be shared takes one of them" run 0 gpus 4 --config "$work/alone.json" \
        --output "$work/gpu5"
    check "and says why" complains "one of 4 visible GPUs is used: at stage 3"
    check "a GPU that is not there ends" run 1 gpus 2 --config "$work/two.json" --devices 0,2 \
        --output "$work/gpu3"
    check "and is named" complains "--devices 0,2: 2 GPUs are visible"
else
    skip "several GPUs" "no stand-in for CUDA was built"
fi

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
