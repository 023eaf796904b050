#!/bin/sh
# Seats above a quantised base are killed, and go on after the last finished step: what a slice has
# behind a unit's bytes was never written, in a store whose pages the next process does not know.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
make_rank_model
config() { # form, seats
    mkdir -p "$work/drive"
    cat >"$work/config.json" <<END
{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
 "zero_optimization": {"stage": 3,
  "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"},
  "offload_param": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "exact", "threads": 1, "quantize": "$1", "adapter": {"r": 4}, "seats": $2}}
END
}
# shellcheck disable=SC2154,SC2086 # options are words
train() { "$zinf" train $options --progress none --config "$work/config.json" "$@"; }
killed_after() { # output, steps
    # shellcheck disable=SC2086
    "$zinf" train $options --progress none --config "$work/config.json" --output "$1" \
        --steps 1000000 >/dev/null 2>&1 &
    pid=$!
    wait_until $pid has_lines "$1" "$2"
    kill -9 $pid
    wait $pid 2>/dev/null
    has_lines "$1" "$2"
}
for form in nf4 int8; do
    for seats in 2 3 4; do
        config $form $seats
        out=$work/$form-$seats
        check "$form, $seats seats: killed" killed_after "$out" 3
        steps=$(($(wc -l <"$out/log.jsonl") + 3))
        check "$form, $seats seats: goes on" run 0 train --resume --output "$out" --steps $steps
        check "$form, $seats seats: from the drive" complains "going on after step" ".steps-"
        check "$form, $seats seats: whole" run 0 train --output "$out-whole" --steps $steps
        check "$form, $seats seats: to the same adapters" cmp \
            "$out/model/adapter_model.safetensors" "$out-whole/model/adapter_model.safetensors"
    done
done
finish
