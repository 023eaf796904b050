#!/bin/sh
# Checkpoints of DeepSpeed's: a training goes on from them to the losses that DeepSpeed itself had,
# they are evaluated and exported as model folders, and what cannot be read is refused by name.
. "$SRCDIR/tests/support/command.sh"
fixtures=$SRCDIR/tests/fixtures/deepspeed
cp -r "$fixtures" "$work/ds" && chmod -R u+w "$work" || exit 99
goes_on() { # case, bound
    run 0 "$zinf" train --model "$work/ds/$1" --resume="$work/ds/$1" --config "$work/ds/$1/ds.json" \
        --data "$work/ds/$1/tokens.npy" --seq-len 8 --no-shuffle --steps 6 --threads 1 \
        --progress none --output "$work/$1" && complains "is DeepSpeed's: the data go on behind 12" \
        "going on after step 3" || return 1
    # The last three losses of the list against those of the log.
    sed 's/[][]//g' "$work/ds/$1/losses.json" | tr ',' '\n' | tail -n 3 >"$work/wanted"
    sed -n 's/.*"loss": *\([0-9.e-]*\).*/\1/p' "$work/$1/log.jsonl" >"$work/got"
    [ "$(wc -l <"$work/got")" -eq 3 ] && paste "$work/got" "$work/wanted" | awk -v bound="$2" '
        { d = $1 - $2; if (d < 0) d = -d; if (!(d <= bound)) { print "# loss " $0; bad = 1 } }
        END { exit bad }'
}
evaluated() {
    run 0 "$zinf" eval --model "$work/ds/$1" --data "$work/ds/$1/tokens.npy" --seq-len 8 &&
        run 0 "$zinf" inspect "$work/ds/$1" && says "of DeepSpeed" "no problem found"
}
exported() { # as it is, and through the model folder to the same bits
    run 0 "$zinf" export --checkpoint "$work/ds/$1" --output "$work/$1-model" || return 1
    mkdir -p "$work/plain-$1" && cp "$work/ds/$1/config.json" "$work/plain-$1/" &&
        cp "$work/ds/$1/expected.safetensors" "$work/plain-$1/model.safetensors" || return 1
    for model in "plain-$1" "$1-model" "ds/$1"; do
        run 0 "$zinf" train --model "$work/$model" --data "$work/ds/$1/tokens.npy" --seq-len 8 \
            --steps 1 --threads 1 --dtype fp32 --progress none --output "$work/out" --overwrite ||
            return 1
        sum=$(cksum <"$work/out/model/model.safetensors")
        [ "$sum" = "${first:=$sum}" ] || { echo "# other weights from $model"; return 1; }
    done
    first=
}
refused() { # words: no training goes on from ds/zero1
    run 1 "$zinf" train --model "$work/plain-zero3" --resume="$work/ds/zero1" \
        --config "$work/ds/zero1/ds.json" --data "$work/ds/zero1/tokens.npy" --seq-len 8 --steps 6 \
        --progress none --output "$work/none" && complains "$@"
}
another_optimizer() {
    sed 's/AdamW/Lion/; /"eps"/d' "$work/ds/zero1/ds.json" >"$work/lion.json"
    run 1 "$zinf" train --resume="$work/ds/zero1" --config "$work/lion.json" --data \
        "$work/ds/zero1/tokens.npy" --seq-len 8 --steps 6 --progress none --output "$work/none" &&
        complains "moments of Adam"
}
without_config() {
    rm "$work/ds/zero1/config.json" && refused "copy config.json"
}
cut_short() {
    cp "$fixtures/zero1/config.json" "$work/ds/zero1/" && rank=$work/ds/zero1/global_step3/zero_pp_rank_1 &&
        head -c 4000 "${rank}_mp_rank_00_optim_states.pt" >"$work/cut" &&
        mv "$work/cut" "${rank}_mp_rank_00_optim_states.pt" &&
        refused "zero_pp_rank_1_mp_rank_00_optim_states.pt"
}
check "stage 1 goes on" goes_on zero1 1e-5
check "stage 2 in bf16, four ranks" goes_on zero2 5e-3
check "stage 3 goes on" goes_on zero3 1e-5
check "a universal checkpoint goes on" goes_on universal 1e-5
check "ranks that share tensors" goes_on tensor2 1e-5
check "stage 3 is evaluated" evaluated zero3
check "stage 1 is a model" exported zero1
check "stage 2 is a model" exported zero2
check "stage 3 is a model" exported zero3
check "shards of tensors are a model" exported tensor2
check "a universal checkpoint is a model" exported universal
check "another optimizer" another_optimizer
check "no config.json" without_config
check "a file cut short" cut_short
finish
