#!/bin/sh
# zinf estimate --longest: the length that it names is trained with, and one that is a little longer
# is refused; without a configuration it goes by the placement that has most room; where no length
# fits that is the answer.
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/drive" && cd "$work" || exit 99
"$zinf" init --arch llama --size 7b --layers 2 --hidden 64 --heads 2 --tokenizer bytes \
    --vocab 300 --context 6000 --output model >/dev/null || exit 99
make_text text.txt 600
config() { # file, device of activations
    cat >"$1" <<END
{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3,
    "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}},
 "zinf": {"placement": "exact", "activation_device": "$2", "threads": 1}}
END
}
config whole.json none
config chunks.json cpu
longest() { # options of the estimate...: sets found
    run 0 "$zinf" estimate --model model --device host --longest "$@" || return 1
    found=$(sed -n 's/^longest *\([0-9]*\) tokens.*/\1/p' said.out)
    [ "${found:-0}" -gt 1 ]
}
train() { # status, tokens, options...
    status=$1 tokens=$2
    shift 2
    run "$status" "$zinf" train --model model --data text.txt --seq-len "$tokens" --steps 2 \
        --device host --progress none --no-final-checkpoint --overwrite --output out "$@"
}

for budget in 1400KiB 2MiB 5MiB; do
    options="--config whole.json --device-memory $budget"
    check "the longest in $budget" longest $options
    echo "# $found tokens"
    check "is trained with" train 0 "$found" $options
    check "and a part in 64 more is not" train 1 $((found + found / 32 + 1)) $options
done
options="--config whole.json --sequence-chunk 64 --device-memory 2MiB"
check "the longest in chunks" longest $options
echo "# $found tokens"
[ "$found" -gt 64 ] && [ $((found % 64)) -eq 0 ]
verdict $? "is a number of chunks"
check "and is trained with" train 0 "$found" $options
check "a chunk more is not" train 1 $((found + 64)) $options
check "with much memory" longest --config chunks.json --sequence-chunk 128
[ "$found" -eq 6000 ]
verdict $? "it is the context, though no multiple of anything"

run 1 "$zinf" estimate --model model --device host --longest --config whole.json \
    --device-memory 300KiB
complains "no sequence fits" && ! says "tokens in a sequence fit"
verdict $? "a device without room for any says so"

# Weights and state of 6.7 G parameters are not on this card, but beside it.
"$zinf" init --arch llama --size 7b --config-only --output big >/dev/null 2>&1
run 0 "$zinf" estimate --model big --longest --sequence-chunk 1024 --machine 4090,ram=64G,nvme=7/6 &&
    says "longest      4096 tokens" "placed by"
verdict $? "without a configuration things may be where there is room"
finish
