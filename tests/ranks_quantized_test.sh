#!/bin/sh
# Adapters of a quantised model over seats and ranks at ZeRO stage 2: each has the model whole, in 4
# bits, and its slice of the adapters' gradient and state. The same bits however many there are.
. "$SRCDIR/tests/command.sh"
. "$SRCDIR/tests/mpirun.sh"
. "$SRCDIR/tests/ranks.sh"
make_rank_model
config() { # file, accumulation, stage
    cat >"$1" <<END
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": $2,
 "gradient_clipping": 0.5, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
 "zero_optimization": {"stage": $3, "offload_optimizer": {"device": "cpu"},
  "offload_param": {"device": "$([ "$3" = 3 ] && echo cpu || echo none)"}},
 "zinf": {"threads": 1, "gradient_sum": "tree", "quantize": "nf4", "adapter": {"r": 4}}}
END
}
config "$work/one.json" 4 2
config "$work/two.json" 2 2
config "$work/four.json" 1 2
config "$work/sliced.json" 2 3
# shellcheck disable=SC2086 # options are words
train() { "$zinf" train $options "$@"; }
# shellcheck disable=SC2086
train_ranks() { ranks 4 "$zinf" train $options "$@"; }
same_adapter() { # two outputs
    losses "$1" >"$work/losses"
    losses "$2" | cmp - "$work/losses" &&
        cmp "$1/model/adapter_model.safetensors" "$2/model/adapter_model.safetensors"
}

check "one" run 0 train --config "$work/one.json" --steps 5 --output "$work/out1"
check "two seats" run 0 train --config "$work/two.json" --seats 2 --steps 5 --save-every 2 \
    --output "$work/out2"
check "have the same losses, norms and adapters" same_adapter "$work/out1" "$work/out2"
mkdir "$work/out3" && cp -r "$work/out2/checkpoint-4" "$work/out3/"
check "one goes on from two's checkpoint" run 0 train --config "$work/one.json" --steps 5 \
    --resume="$work/out3/checkpoint-4" --output "$work/out3"
check "to the same adapters" cmp "$work/out1/model/adapter_model.safetensors" \
    "$work/out3/model/adapter_model.safetensors"
check "slices of it are refused" run 1 train --config "$work/sliced.json" --seats 2 --steps 5 \
    --output "$work/out5"
check "with what to do" complains "set stage to 2"
if [ -n "$no_mpi" ]; then
    skip "four processes" "$no_mpi"
    finish
fi
check "four processes" run 0 train_ranks --config "$work/four.json" --steps 5 --output "$work/out4"
check "have them too" same_adapter "$work/out1" "$work/out4"
finish
