#!/bin/sh
# What a run stands on: where one byte of it that decides arithmetic has changed, a run does not go
# on, an adapter is not used, and the message names the file and key. Unchanged, all goes on.
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/drive" && cd "$work" || exit 99
make_text text.txt 60
make_text eval.txt 20
"$zinf" init --arch llama --size 7b --layers 2 --hidden 64 --heads 2 --vocab 257 --context 32 \
    --output model >/dev/null || exit 99
echo '{"chat_template": "none"}' >model/tokenizer_config.json
config() { # file, lr
    cat >"$1" <<END
{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": $2}},
 "bf16": {"enabled": true}, "zero_optimization": {"stage": 3,
    "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
    "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "exact"}}
END
}
config config.json 1e-3
prefix=
train() {
    $prefix "$zinf" train --model model --data text.txt --eval-data eval.txt --config config.json \
        --seq-len 16 --threads 1 --device host --progress none "$@"
}
stopped() { # output, options...: killed after its third step, kept beside itself
    out=$1
    shift
    prefix="exec"
    train --steps 1000000 --output "$out" "$@" >/dev/null 2>&1 &
    pid=$!
    prefix=
    wait_until $pid has_lines "$out" 3
    kill -9 $pid
    wait $pid 2>/dev/null
    steps=$(($(wc -l <"$out/log.jsonl") + 2))
    has_lines "$out" 3
}
refused() { # what, words of the message, options...
    what=$1
    words=$2
    shift 2
    check "$what" run 1 train --resume --steps $steps --output "$out" "$@"
    check "$what: named" complains "$words"
}
verified() { # what, file and words: zinf verify says them and nothing else of what was read
    check "$1: verify" run 1 "$zinf" verify "$out"
    check "$1: verify names it" says "$2"
    [ "$(grep -c "when the run began" "$work/said.out")" -eq "$inputs" ] &&
        [ "$(grep -c "as it was when the run began" "$work/said.out")" -eq $((inputs - 1)) ]
    verdict $? "$1: and that alone"
}
flip() { # file, byte: one bit
    old=$(od -An -tu1 -j "$2" -N 1 "$1")
    # shellcheck disable=SC2059
    printf "\\$(printf %03o $((old ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
inputs() { # what all of $out's kind stand on, changed and put back one by one
    cp model/config.json kept && sed 's/"rope_theta":[^,]*,/"rope_theta": 20000.0,/' kept >model/config.json
    inputs=4
    refused "$1: rope_theta" "config.json"
    verified "$1: rope_theta" "model/config.json: rope_theta was"
    sed 's/"rms_norm_eps":[^,]*,/"rms_norm_eps": 0.001,/' kept >model/config.json
    refused "$1: rms_norm_eps" "rms_norm_eps was"
    cp kept model/config.json
    cp text.txt kept && sed '31s/long/lone/' kept >text.txt
    refused "$1: a letter of the data" "--data text.txt now has: line 31 is not"
    verified "$1: a letter of the data" "/text.txt: line 31 is not"
    cp kept text.txt
    cp eval.txt kept && sed '3s/long/lone/' kept >eval.txt
    refused "$1: a letter of evaluation's data" "--eval-data eval.txt now has: line 3 is not"
    verified "$1: a letter of evaluation's data" "/eval.txt: line 3 is not"
    cp kept eval.txt
    cp model/tokenizer_config.json kept && echo '{"chat_template": "nono"}' >model/tokenizer_config.json
    refused "$1: the tokenizer's configuration" "model/tokenizer_config.json"
    verified "$1: the tokenizer's configuration" "model/tokenizer_config.json: its content"
    rm model/tokenizer_config.json
    refused "$1: without it" "model/tokenizer_config.json, which is missing"
    cp kept model/tokenizer_config.json
    config config.json 2e-3
    refused "$1: another lr" "optimizer.params.lr was 0.001 and is 0.002"
    verified "$1: another lr" "/config.json: optimizer.params.lr was 0.001"
    config config.json 1e-3
    refused "$1: another seed" "seed was 0 and is 5" --seed 5
    refused "$1: another batch of a step" "train_batch_size was 1 and is 2" --accumulate 2
    check "$1: put back, verify says so" run 0 "$zinf" verify "$out"
    mv eval.txt kept
    check "$1: what has gone damages nothing" run 0 "$zinf" verify "$out"
    check "$1: and is said" says "/eval.txt: it is not there any more"
    mv kept eval.txt
}

check "a whole model is killed" stopped whole
inputs "steps"
check "unchanged it goes on" run 0 train --resume --steps $steps --output whole
check "from the drive" complains "going on after step" ".steps-"
check "to what one that was not killed comes to" run 0 train --steps $steps --output never
check "bit for bit" cmp whole/model/model.safetensors never/model/model.safetensors

# What is frozen of a whole model comes from its folder again.
sed 's/"zinf": {/"zinf": {"freeze": ["model.layers.0.*"], /' config.json >frozen.json
mv config.json all.json && mv frozen.json config.json
check "a model with frozen parts is killed" stopped frozen
cp model/model.safetensors kept
frozen_is_named() {
    # one bit of each KiB: some are of frozen tensors
    for at in $(seq 8000 1024 "$(($(wc -c <kept) - 3))"); do
        flip model/model.safetensors "$at"
    done
    run 1 train --resume --steps $steps --output frozen &&
        complains "frozen weights (zinf.freeze)" "--model model"
}
check "bits of what is frozen" frozen_is_named
cp kept model/model.safetensors
check "put back it goes on" run 0 train --resume --steps $steps --output frozen
mv all.json config.json

check "a checkpoint" run 0 train --steps 3 --save-every 3 --output saved
out=saved steps=4
config config.json 2e-3
refused "checkpoint: another lr" "optimizer.params.lr was 0.001 and is 0.002"
check "which can be accepted" run 0 train --resume --accept-changes --steps 4 --output saved
check "with a warning" complains "lr was 0.001" "the results will be other ones"
config config.json 1e-3
cp config.json kept && sed 's/"nvme"/"cpu"/' kept >config.json
check "a rank more has another batch" run 1 train --resume --steps 5 --output saved --seats 2
cp kept config.json
check "and how to keep it is said" complains "train_batch_size was 1 and is 2 (--global-batch 1 "
check "another micro-batch is no other batch" run 0 train --steps 2 --save-every 2 --output pair \
    --global-batch 2 --micro-batch 1
check "and goes on" run 0 train --resume --steps 3 --output pair --global-batch 2 --micro-batch 2
check "with a warning" complains "other values of train_micro_batch_size_per_gpu"
# What is left to do where another optimizer cannot go on: a checkpoint is a model, steps are not.
check "a run of AdamW is killed" stopped adamw
sed -i 's/AdamW/Adam/' config.json
other_optimizer() { # output, remedy
    run 1 train --resume --accept-changes --steps $steps --output "$1" &&
        complains "has the state of AdamW, but optimizer.type" " for Adam: set that back, or $2"
}
check "Adam does not take over its steps" other_optimizer adamw "begin anew with another --output"
check "nor a checkpoint" other_optimizer saved \
    "start anew from its weights with --model saved/checkpoint-4"
config config.json 1e-3
check "AdamW goes on" run 0 train --resume --steps $steps --output adamw
sed -i 's/"format":	2/"format":	1/' saved/checkpoint-4/trainer_state.json
check "a checkpoint of an earlier zinf" run 1 train --resume --steps 5 --output saved
check "is refused by a clear sentence" complains "in format 1" "what the training stands on"

check "an adapter is killed" stopped adapted --lora-rank 2
lora="--lora-rank 2"
# shellcheck disable=SC2086
train() {
    $prefix "$zinf" train --model model --data text.txt --eval-data eval.txt --config config.json $lora \
        --seq-len 16 --threads 1 --device host --progress none "$@"
}
inputs "adapter"
size=$(wc -c <model/model.safetensors)
flip model/model.safetensors $((size - 5001))
refused "adapter: a bit of the base" "model/model.safetensors"
verified "adapter: a bit of the base" "model/model.safetensors: its content"
flip model/model.safetensors $((size - 5001))
cp model/model.safetensors kept
truncate -s -4096 model/model.safetensors
refused "adapter: a base that is cut" "model/model.safetensors"
cp kept model/model.safetensors
truncate -s +4096 model/model.safetensors
refused "adapter: a base that is longer" "model/model.safetensors"
rm model/model.safetensors
refused "adapter: a base that is missing" "model has neither model.safetensors"
! complains "remove" >/dev/null && ! complains "--init" >/dev/null && cp kept model/model.safetensors
verdict $? "nobody advises to give steps up"
lora="--lora-rank 2 --lora-alpha 5"
refused "adapter: another alpha" "lora_alpha"
lora="--lora-rank 2"
check "unchanged it goes on" run 0 train --resume --steps $steps --output adapted

# ---- what is made of an adapter ----

used() { # what, words: by every command
    for command in "export --merge --checkpoint adapted/model --output merged" \
        "generate --adapter adapted/model --prompt a --max-new-tokens 2" \
        "eval --adapter adapted/model --data text.txt --seq-len 16" \
        "train --adapter adapted/model --data text.txt --seq-len 16 --steps 1 --output more"; do
        # shellcheck disable=SC2086
        check "$1: ${command%% *}" run 1 "$zinf" $command --model model
        check "$1: ${command%% *}: named" complains "$2"
    done
    [ ! -e merged/model.safetensors ] && [ ! -e merged/config.json ]
    verdict $? "$1: nothing is written"
}
for byte in $((size - 3)) $((size - 5001)) $((size / 2)); do
    flip model/model.safetensors "$byte"
    used "byte $byte of the base" "model/model.safetensors"
    flip model/model.safetensors "$byte"
done
cp model/config.json kept && sed 's/"rope_theta":[^,]*,/"rope_theta": 20000.0,/' kept >model/config.json
used "rope_theta" "config.json"
cp kept model/config.json
sed 's/"lora_alpha":	4/"lora_alpha":	5/' adapted/model/adapter_config.json >kept
check "unchanged it is merged" run 0 "$zinf" export --merge --checkpoint adapted/model \
    --model model --output merged
cmp -s kept adapted/model/adapter_config.json || {
    cp kept adapted/model/adapter_config.json
    check "another alpha" run 1 "$zinf" export --merge --checkpoint adapted/model --model model \
        --output again
    check "is named" complains "lora_alpha"
    check "another alpha, added up" run 1 "$zinf" export --adapter adapted/model --output sum
    check "is named, too" complains "adapted/model/adapter_config.json: lora_alpha was 4"
    check "another alpha, verified" run 1 "$zinf" verify adapted/model
    check "is named by it" says "lora_alpha was 4"
    sed -i 's/"lora_alpha":	5/"lora_alpha":	4/' adapted/model/adapter_config.json
}
echo '{"chat_template": "nono"}' >adapted/model/tokenizer_config.json
check "another tokenizer beside an adapter" run 1 "$zinf" export --adapter adapted/model --output sum
check "which is named" complains "adapted/model/tokenizer_config.json is not what"
echo '{"chat_template": "none"}' >adapted/model/tokenizer_config.json
check "all put back it is added up" run 0 "$zinf" export --adapter adapted/model --output sum
finish
