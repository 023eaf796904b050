#!/bin/sh
# An adapter and its base: other weights in the same shapes are refused, by training, evaluation and
# merging; the same in another number type are warned of; PEFT's own folders know of no base.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
make_text text.txt 20
new() { # folder, seed, options...
    folder=$1 seed=$2
    shift 2
    "$zinf" init --arch gpt2 --size small --layers 1 --hidden 16 --heads 2 --vocab 257 \
        --context 16 --seed "$seed" --output "$folder" "$@" >/dev/null || exit 99
}
new base 1
new other 2
new narrow 1 --dtype bf16
train() { # status, model, options...
    train_status=$1 train_model=$2
    shift 2
    run "$train_status" "$zinf" train --model "$train_model" --data text.txt --seq-len 16 \
        --steps 2 --threads 1 --progress none --no-final-checkpoint "$@"
}
merge() { # status, model
    rm -rf "merged-$2"
    run "$1" "$zinf" export --merge --checkpoint first/model --model "$2" --output "merged-$2"
}

check "adapters" train 0 base --lora-rank 2 --output first
check "know their base" holds first/model/adapter_base.json '"layout":"' '"weights":"'
check "go on above it" train 0 base --adapter first/model --output second
sums_of_base() { sed 's/.*"base":\([^}]*}[^}]*}\).*/\1/' "$1/model/adapter_base.json"; }
[ "$(sums_of_base first)" = "$(sums_of_base second)" ]
verdict $? "which stays what it is"
check "are merged with it" merge 0 base
check "not with another one" merge 1 other
complains "first/model/adapter_base.json" "other/model.safetensors are not those" "--model" && [ ! -e merged-other/config.json ]
verdict $? "and say so"
check "nor trained above it" train 1 other --adapter first/model --output third
check "with the way out" complains "remove that adapter_base.json"
run 1 "$zinf" eval --model other --adapter first/model --data text.txt --seq-len 16
complains "adapter_base.json"
verdict $? "nor measured"
check "the same in another number type" merge 0 narrow
check "is warned of" complains "in another form than those in narrow"
rm first/model/adapter_base.json
check "without the file any will do" merge 0 other
echo '{"layout": "x", "weights": "y"}' >first/model/adapter_base.json
check "a broken one" merge 1 base
check "is named" complains "adapter_base.json" "earlier zinf" "remove that file"
finish
