#!/bin/sh
# Adapters of a quantised model over seats and ranks: at ZeRO stage 2 each has the model whole, in 4
# bits or 8, at stage 3 a slice of its bytes; and its slice of the adapters' gradient and state. The
# same bits however many there are.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"
make_rank_model
config() { # file, micro-batches, stage, parameters, form, keys of "zinf" behind a comma
    cat >"$1" <<END
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": $2,
 "gradient_clipping": 0.5, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
 "zero_optimization": {"stage": $3, "offload_optimizer": {"device": "cpu"},
  "offload_param": {"device": "$4", "nvme_path": "$work"}},
 "zinf": {"placement": "exact", "threads": 1, "gradient_sum": "tree", "quantize": "$5", "adapter": {"r": 4}$6}}
END
}
# shellcheck disable=SC2086 # options are words
train() { "$zinf" train $options "$@"; }
# shellcheck disable=SC2086
train_ranks() { ranks 4 "$zinf" train $options "$@"; }
same_adapter() { # two outputs
    losses "$1" >"$work/losses"
    losses "$2" | cmp - "$work/losses" &&
        cmp "$1/model/adapter_model.safetensors" "$2/model/adapter_model.safetensors"
}
like_one() { # name, output of one, options...
    name=$1
    one=$2
    shift 2
    check "$name" run 0 train --steps 5 --no-final-checkpoint --overwrite --output "$work/some" "$@"
    check "$name: the same losses, norms and adapters" same_adapter "$one" "$work/some"
}

config "$work/one.json" 4 2 none nf4
config "$work/two.json" 2 2 none nf4
check "one" run 0 train --config "$work/one.json" --steps 5 --output "$work/out1"
check "two seats" run 0 train --config "$work/two.json" --seats 2 --steps 5 --save-every 2 \
    --output "$work/out2"
check "have the same losses, norms and adapters" same_adapter "$work/out1" "$work/out2"
mkdir "$work/out3" && cp -r "$work/out2/checkpoint-4" "$work/out3/"
check "one goes on from two's checkpoint" run 0 train --config "$work/one.json" --steps 5 \
    --resume="$work/out3/checkpoint-4" --output "$work/out3"
check "to the same adapters" cmp "$work/out1/model/adapter_model.safetensors" \
    "$work/out3/model/adapter_model.safetensors"

# ---- slices ----

config "$work/cpu.json" 2 3 cpu nf4
config "$work/nvme.json" 2 3 nvme nf4
config "$work/copies.json" 1 3 nvme nf4 ', "direct": false'
like_one "slices in RAM" "$work/out1" --config "$work/cpu.json" --seats 2
like_one "slices on the drive" "$work/out1" --config "$work/nvme.json" --seats 2
like_one "slices of four, by copies" "$work/out1" --config "$work/copies.json" --seats 4

config "$work/one8.json" 4 2 none int8
config "$work/cpu8.json" 2 3 cpu int8
config "$work/three8.json" 1 3 nvme int8
check "one in 8 bits" run 0 train --config "$work/one8.json" --steps 5 --output "$work/out8"
like_one "slices in 8 bits" "$work/out8" --config "$work/cpu8.json" --seats 2
like_one "slices in 8 bits of four" "$work/out8" --config "$work/three8.json" --seats 4

evaluate() { "$zinf" eval --device host --model "$work/model" --data "$work/text.txt" --seq-len 16 "$@"; }
check "an evaluation in 4 bits" run 0 evaluate --config "$work/one.json"
cp "$work/said.out" "$work/one.out"
check "by slices" run 0 evaluate --config "$work/cpu.json" --seats 3
check "says the same" cmp "$work/said.out" "$work/one.out"

# ---- GPUs ----

module=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
gpus() { # options...
    ZINF_CUDA_MODULE=$module ZINF_NCCL_LIBRARY=$module ZINF_STANDIN_GPUS=2 ZINF_STANDIN_SEED=4 \
        "$zinf" train --model "$work/model" --data "$work/text.txt" --seq-len 16 --seed 3 --steps 1 \
        --no-final-checkpoint --device-memory 64MiB "$@"
}
if [ -f "$module" ]; then
    config "$work/link.json" 2 3 cpu nf4 ', "gather": "device"'
    config "$work/there.json" 2 3 none nf4 ', "gather": "device"'
    check "a GPU" run 0 gpus --config "$work/one.json" --seats 1 --output "$work/gpu1"
    for way in cpu nvme link there; do
        check "two with slices: $way" run 0 gpus --config "$work/$way.json" --output "$work/$way"
        check "have its bits: $way" same_adapter "$work/gpu1" "$work/$way"
    done
else
    skip "several GPUs" "no stand-in for CUDA was built"
fi

if [ -n "$no_mpi" ]; then
    skip "four processes" "$no_mpi"
    finish
fi
config "$work/four.json" 1 2 none nf4
config "$work/sliced.json" 1 3 cpu nf4
for four in four sliced; do
    check "four processes: $four" run 0 train_ranks --config "$work/$four.json" --steps 5 \
        --output "$work/out-$four"
    check "have them too: $four" same_adapter "$work/out1" "$work/out-$four"
done
finish
