#!/bin/sh
# Optimizers of whole matrices with zinf.tensor_parts: the update of a matrix that is cut into parts
# is that of the whole one. Losses and norms stay close to those of a model that is not cut, and have
# the same bits wherever data live, over seats with other samples or with other parts, and after a
# training went on.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"
. "$SRCDIR/tests/support/tensor.sh"
. "$SRCDIR/tests/support/ports.sh"
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
    goes_on "$label" "$label.ram" "$label.on" --seats 2
    check_shares "$label"
}

# From the checkpoint of step 2, in the middle of a projection's period.
goes_on() { # whose weights, whose checkpoint, output, options...
    weights=$1 from=$2 on=$3
    shift 3
    mkdir "$on" && cp -r "$from/checkpoint-2" "$on/"
    check "goes on: $*" run 0 "$zinf" train --model "$model" --data text.txt --seq-len 16 \
        --device host --seed 3 --steps 4 --progress none --config ram.json \
        --resume="$on/checkpoint-2" --output "$on" "$@"
    check "to the same weights" cmp "$weights.ram/model/model.safetensors" \
        "$on/model/model.safetensors"
}

# Seats that share matrices, of which each has some of the parts.
check_shares() { # label
    for seats in "2 2" "4 4" "4 2"; do
        tensor=${seats#* } seats=${seats% *}
        [ "$seats" = "$tensor" ] && stage=1 || stage=3
        [ "$tensor" = 4 ] && places=nvme || places=$nowhere
        config shares.json 4
        stage=3 places=$nowhere
        of=$1.share$seats.$tensor
        check "$seats seats, $tensor share" run 0 train "$model" "$of" --config shares.json \
            --seats "$seats" --tensor-parallel "$tensor" --save-every 2
        check "have the same bits" same_result "$1.ram" "$of"
        check "and the same state" same_files "$1.ram" "$of"
    done
    goes_on "$1" "$1.ram" "$1.on4" --seats 4 --tensor-parallel 4
    goes_on "$1" "$1.share4.4" "$1.on1"
    goes_on "$1" "$1.share2.2" "$1.on42" --seats 4 --tensor-parallel 2
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
check "two that share" run 0 train llama bf16.two --config drive.json --seats 2 --tensor-parallel 2
check "have the same bits" same_result bf16 bf16.two
check "two by two by two" run 0 train llama bf16.cube --config drive.json --seats 8 \
    --pipeline-parallel 2 --tensor-parallel 2
check "have the same bits" same_result bf16 bf16.cube
places=$nowhere bf16=

# ---- steps that outlive the process ----

places=nvme
config lasting.json 4
places=$nowhere
sed -i 's/"durability": "none"/"durability": "step"/' lasting.json
check "weights" run 0 train llama begun --config ram.json
lasting="--model begun/model --data text.txt --seq-len 16 --device host --seed 3 --progress none \
    --config lasting.json"
for share in "--seats 2" "--seats 4 --tensor-parallel 2"; do
    rm -rf last.one last.some
    # shellcheck disable=SC2086 # options are words
    check "$share are killed" killed_in_steps last.some 5 "$zinf" train $lasting --output last.some \
        $share --steps 1000000
    # shellcheck disable=SC2086
    check "they go on" run 0 "$zinf" train $lasting --output last.some $share --steps $steps --resume
    # shellcheck disable=SC2086
    check "one rank to the end" run 0 "$zinf" train $lasting --output last.one --steps $steps
    check "to the same weights" cmp last.one/model/model.safetensors last.some/model/model.safetensors
done

# ---- processes ----

bf16='"bf16": {"enabled": true},'
config shares.json 4 ', "timeout": 20'
bf16=
sharing="--model llama --init --data text.txt --seq-len 16 --device host --seed 3 --steps 4 \
    --progress none --config shares.json --tensor-parallel 2"
if [ -n "$no_mpi" ]; then
    skip "processes of an MPI share matrices" "$no_mpi"
else
    # shellcheck disable=SC2086
    check "processes of an MPI share matrices" run 0 ranks 2 "$zinf" train $sharing --output mpi
    check "with the bits of one" same_result begun mpi
fi
by_tcp() { # rank
    RANK=$1 WORLD_SIZE=2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
    TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_RUN_ID=run-$$ OMP_NUM_THREADS=1
    export RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT \
        TORCHELASTIC_RESTART_COUNT TORCHELASTIC_RUN_ID OMP_NUM_THREADS
    # shellcheck disable=SC2086
    exec "$zinf" train $sharing --output tcp
}
(by_tcp 1) >other.out 2>other.err </dev/null &
other=$!
(by_tcp 0) >said.out 2>said.err </dev/null
verdict $? "two processes over TCP"
wait $other
verdict $? "both of them"
check "have the bits of one" same_result begun tcp

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
for seats in "2 2" "4 4" "4 2"; do
    check "experts: seats, that share: $seats" run 0 train mixtral "experts.${seats% *}.${seats#* }" \
        --config parts4.json --seats "${seats% *}" --tensor-parallel "${seats#* }"
    check "have the same bits" same_result experts4 "experts.${seats% *}.${seats#* }"
done
config seats.json 4 ', "seats": 2'
check "adapters over two seats" run 0 "$zinf" train --model begun/model --lora-rank 4 \
    --data text.txt --seq-len 16 --device host --seed 3 --steps 3 --progress none \
    --config seats.json --output adapters.seats
losses adapters4 >"$work/adapted"
losses adapters.seats | cmp - "$work/adapted" &&
    cmp adapters4/model/adapter_model.safetensors adapters.seats/model/adapter_model.safetensors
verdict $? "have the same bits"
check "adapters over two that share" run 0 "$zinf" train --model begun/model --lora-rank 4 \
    --data text.txt --seq-len 16 --device host --seed 3 --steps 3 --progress none \
    --config parts4.json --output adapters.share --seats 2 --tensor-parallel 2
losses adapters.share | cmp - "$work/adapted" &&
    cmp adapters4/model/adapter_model.safetensors adapters.share/model/adapter_model.safetensors
verdict $? "have the same bits"

# ---- several matrices in one tensor of the file, and queries that it has by head ----

for model in "phi3 mini" "falcon_h1 0.5b" "qwen3_5_text 9b"; do
    # shellcheck disable=SC2086
    set -- $model
    check "a $1" run 0 small_model "$1" "$1" "$2" 64
    sed -i 's/"linear_num_key_heads":[^,]*/"linear_num_key_heads": 2/
        s/"linear_num_value_heads":[^,]*/"linear_num_value_heads": 4/
        s/"linear_\([a-z]*\)_head_dim":[^,]*/"linear_\1_head_dim": 8/g
        s/"full_attention_interval":[^,]*/"full_attention_interval": 2/
        s/"mamba_d_state":[^,]*/"mamba_d_state": 8/' "$1/config.json"
    for parts in 1 4; do
        config "parts$parts.json" $parts
        check "in $parts" run 0 train "$1" "$1.$parts" --config "parts$parts.json"
    done
    check "is updated by the same optimizers" close_to "$1.4" "$1.1"
done
cp -r qwen3_5_text keys
sed -i 's/"num_key_value_heads":[^,]*/"num_key_value_heads": 2/' keys/config.json
check "one with two key heads" run 0 train keys keys.1 --config parts1.json
for parts in 1 4; do
    check "adapters of it in $parts" run 0 "$zinf" train --model keys.1/model --lora-rank 2 \
        --lora-targets q_proj,k_proj,v_proj,o_proj --data text.txt --seq-len 16 --device host \
        --seed 3 --steps 3 --progress none --config parts$parts.json --output keys.lora$parts
done
check "are updated by the same optimizers" close_to keys.lora4 keys.lora1

# ---- what is refused ----

config rates.json 4 ', "learning_rates": [{"pattern": "*k_proj.lora_B*", "scale": 2}]'
check "a rate of its own for some parts of a run" fails "$zinf" train --model begun/model \
    --lora-rank 4 --data text.txt --seq-len 16 --device host --steps 1 --config rates.json \
    --output bad
check "is refused" complains "beside tensors that have another optimizer or rate"
config turns.json 4 ', "parts_in_turn": true'
check "parts in turn" fails train llama bad --config turns.json
check "are refused" complains "zinf.parts_in_turn: optimizer Muon needs whole matrices"
type=Adafactor
config ram.json 4
check "Adafactor" fails train llama bad --config ram.json
check "is refused" complains "zinf.tensor_parts 4: optimizer Adafactor needs whole tensors"
finish
