#!/bin/sh
# Optimizers of whole matrices with zinf.tensor_parts: the update of a matrix that is cut into parts
# is that of the whole one. Losses and norms stay close to those of a model that is not cut, and have
# the same bits wherever data live, over seats with other samples, and after a training went on.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
. "$SRCDIR/tests/support/tensor.sh"
cd "$work" || exit 99
mkdir drive
make_text text.txt 60
check "a GPT-2" run 0 small_model gpt2 gpt2 small 64
check "a LLaMA" run 0 small_model llama llama 7b 64
# One key and value head, which all parts share.
check "a Mistral" run 0 small_model mistral mistral 7b 64
sed -i 's/"num_key_value_heads":[^,]*/"num_key_value_heads": 1/' mistral/config.json

same_files() { # two outputs: the optimizer's state in their checkpoints of step 2
    for file in "$1"/checkpoint-2/optimizer/*; do
        cmp "$file" "$2/checkpoint-2/optimizer/${file##*/}" || return
    done
}

check_type() { # type, model, its parameters
    type=$1 model=$2 keys=$3
    label=$type.$model
    dropout=0
    for parts in 1 2 4; do
        config "parts$parts.json" $parts
        check "$type, $model in $parts parts" run 0 train "$model" "$label$parts" \
            --config "parts$parts.json"
    done
    check "two parts are close to one" close_to "${label}2" "${label}1"
    check "and four" close_to "${label}4" "${label}1"
    cmp -s "${label}4/model/model.safetensors" "${label}1/model/model.safetensors"
    [ $? -ne 0 ]
    verdict $? "but not the same"
    dropout=0.1
    config ram.json 4
    check "$type, $model with dropout" run 0 train "$model" "$label.ram" --config ram.json \
        --save-every 2
    places=nvme
    config drive.json 4 ', "direct": false, "activation_checkpointing": "always"'
    check "from a drive, made again in backward" run 0 train "$model" "$label.drive" \
        --config drive.json --threads 2
    places=$nowhere
    check "has the same bits" same_result "$label.ram" "$label.drive"
    for stage in 1 3; do
        config seats.json 4 ', "seats": 2'
        check "two seats, stage $stage" run 0 train "$model" "$label.seats$stage" \
            --config seats.json --save-every 2
        check "have the same bits" same_result "$label.ram" "$label.seats$stage"
        check "and the same state" same_files "$label.ram" "$label.seats$stage"
    done
    mkdir "$label.on" && cp -r "$label.ram/checkpoint-2" "$label.on/"
    check "two seats go on" run 0 "$zinf" train --model "$model" --data text.txt --seq-len 16 \
        --device host --seed 3 --steps 4 --progress none --config seats.json \
        --resume="$label.on/checkpoint-2" --output "$label.on"
    check "to the same weights" cmp "$label.ram/model/model.safetensors" \
        "$label.on/model/model.safetensors"
}
check_type Muon gpt2 ''
check_type NorMuon llama ''
check_type Muon mistral ', "adjust_lr_fn": "match_rms_adamw"'
check_type GaLoreAdamW llama ', "rank": 5, "update_proj_gap": 3'
check_type APOLLO gpt2 ', "rank": 5, "update_proj_gap": 3'

# ---- 16 bits, packed state, a pipeline ----

type=NorMuon keys="" dropout=0.1
bf16='"bf16": {"enabled": true},'
config ram.json 4
check "bf16" run 0 train llama bf16 --config ram.json
places=nvme
config drive.json 4 ', "pack": "state", "schedule": "update-in-backward"'
check "packed on a drive, updated in backward" run 0 train llama bf16.drive --config drive.json
check "has the same bits" same_result bf16 bf16.drive
check "two seats in a pipeline" run 0 train llama bf16.pipe --config drive.json --seats 2 \
    --pipeline-parallel 2
check "have the same bits" same_result bf16 bf16.pipe
check "two by two" run 0 train llama bf16.four --config drive.json --seats 4 --pipeline-parallel 2
check "have the same bits" same_result bf16 bf16.four
places=$nowhere bf16=

# ---- steps that outlive the process ----

places=nvme
config lasting.json 4
places=$nowhere
sed -i 's/"durability": "none"/"durability": "step"/' lasting.json
check "weights" run 0 train llama begun --config ram.json
lasting="--model begun/model --data text.txt --seq-len 16 --device host --seed 3 --steps 20 \
    --progress none --config lasting.json"
# shellcheck disable=SC2086 # options are words
check "one rank to the end" run 0 "$zinf" train $lasting --output last.one
# shellcheck disable=SC2086
"$zinf" train $lasting --output last.two --seats 2 >other.out 2>other.err </dev/null &
first=$!
wait_for '"step": 5,' last.two/log.jsonl
kill -KILL $first
wait $first
[ $? -eq 137 ]
verdict $? "two seats are killed"
# shellcheck disable=SC2086
check "they go on" run 0 "$zinf" train $lasting --output last.two --seats 2 --resume
check "to the same weights" cmp last.one/model/model.safetensors last.two/model/model.safetensors

# ---- experts and adapters ----

type=Muon dropout=0
check "a Mixtral" run 0 small_model mixtral mixtral 8x7b 32
sed -i 's/"num_key_value_heads":[^,]*/"num_key_value_heads": 2/
    s/"num_local_experts":[^,]*/"num_local_experts": 4/' mixtral/config.json
for parts in 1 4; do
    config "parts$parts.json" $parts
    check "experts in $parts" run 0 train mixtral experts$parts --config "parts$parts.json"
    check "adapters in $parts" run 0 "$zinf" train --model begun/model --lora-rank 4 \
        --data text.txt --seq-len 16 --device host --seed 3 --steps 3 --progress none \
        --config "parts$parts.json" --output adapters$parts
done
check "experts are close" close_to experts4 experts1
check "adapters are close" close_to adapters4 adapters1
config seats.json 4 ', "seats": 2'
check "adapters over two seats" run 0 "$zinf" train --model begun/model --lora-rank 4 \
    --data text.txt --seq-len 16 --device host --seed 3 --steps 3 --progress none \
    --config seats.json --output adapters.seats
losses adapters4 >"$work/adapted"
losses adapters.seats | cmp - "$work/adapted" &&
    cmp adapters4/model/adapter_model.safetensors adapters.seats/model/adapter_model.safetensors
verdict $? "have the same bits"

# ---- what is refused ----

config ram.json 4
check "ranks that share tensors" fails train llama bad --config ram.json --seats 2 \
    --tensor-parallel 2
check "are refused with the key to set" complains "zinf.mesh.tensor 2: optimizer Muon needs whole"
config rates.json 4 ', "learning_rates": [{"pattern": "*k_proj.lora_B*", "scale": 2}]'
check "a rate of its own for some parts of a run" fails "$zinf" train --model begun/model \
    --lora-rank 4 --data text.txt --seq-len 16 --device host --steps 1 --config rates.json \
    --output bad
check "is refused" complains "beside tensors that have another optimizer or rate"
config turns.json 4 ', "parts_in_turn": true'
check "parts in turn" fails train llama bad --config turns.json
check "are refused" complains "zinf.parts_in_turn: optimizer Muon needs whole matrices"
check "a Phi-3" run 0 "$zinf" init --arch phi3 --size mini --layers 1 --hidden 32 --heads 4 --context 32 \
    --tokenizer bytes --config-only --output phi3
config gates.json 2
check "gates above the other rows of one matrix" fails train phi3 bad --config gates.json
check "are refused" complains "optimizer.type: each of zinf.tensor_parts has rows of" "mlp.gate_up_proj.weight"
config gates.json 2 ', "learning_rates": [{"pattern": "*gate_up*", "optimizer": "AdamW"}]'
check "and trained as the message says" run 0 train phi3 gates --config gates.json
type=Adafactor
config ram.json 4
check "Adafactor" fails train llama bad --config ram.json
check "is refused" complains "zinf.tensor_parts 4: optimizer Adafactor needs whole tensors"
finish
