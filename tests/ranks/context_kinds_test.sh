#!/bin/sh
# Parts of sequences together with parts of tensors, and with experts: close to whole sequences, and
# the bits of one rank whoever has which parts.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99
mkdir drive
make_text text.txt 60

check "a LLaMA" run 0 small_model llama llama 7b 32
check "a Mixtral" run 0 small_model mixtral mixtral 8x7b 32
sed -i 's/"num_key_value_heads":[^,]*/"num_key_value_heads": 2/; s/"num_local_experts":[^,]*/"num_local_experts": 4/
    s/^{/{"output_router_logits": true, "router_aux_loss_coef": 0.05,/' mixtral/config.json

config() { # file, parts of sequences, parts of tensors, place, keys of "zinf" behind a comma
    cat >"$1" <<END
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.5,
 "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 0.1}},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "$4", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "$4", "nvme_path": "$work/drive"}},
 "zinf": {"context_parts": $2, "tensor_parts": $3, "threads": 1, "gradient_sum": "tree",
  "placement": "exact", "durability": "none", "dropout": ${dropout:-0.1}${5:-}}}
END
}
train() { # model, output, options...
    model=$1 output=$2
    shift 2
    "$zinf" train --model "$model" ${init---init} --data text.txt --seq-len 17 --device host --seed 3 \
        --steps 3 --progress none --output "$output" "$@"
}

for model in llama mixtral; do
    dropout=0
    config whole.json 1 2 none
    config parts.json 4 2 none
    dropout=0.1
    check "$model in two parts of tensors" run 0 train $model $model.whole --config whole.json
    check "and four of sequences" run 0 train $model $model.parts --config parts.json
    check "is close to it" close_to $model.parts $model.whole
    config parts.json 4 2 none
    check "with dropout" run 0 train $model $model.1 --config parts.json
    check "four seats, two by two" run 0 train $model $model.4 --config parts.json --seats 4 \
        --tensor-parallel 2 --context-parallel 2
    check "have the bits of one" same_result $model.1 $model.4
    config drive.json 4 2 nvme ', "direct": false, "activation_device": "nvme"'
    check "from drives, with samples of their own" run 0 train $model $model.8 --config drive.json \
        --seats 8 --tensor-parallel 2 --context-parallel 2
    check "have the bits of one, too" same_result $model.1 $model.8
done

# ---- experts without parts of tensors, and adapters of them ----

dropout=0
config whole.json 1 1 none
config parts.json 4 1 none
check "a Mixtral in one piece" run 0 train mixtral moe.whole --config whole.json
check "and in four" run 0 train mixtral moe.parts --config parts.json
check "is close to it" close_to moe.parts moe.whole
check "four seats" run 0 train mixtral moe.4 --config parts.json --seats 4 --context-parallel 4
check "have the bits of one" same_result moe.parts moe.4

# ---- recurrent mixers: states from rank to rank ----

evaluate() { # output of a training, options...
    output=$1
    shift
    "$zinf" eval --model "$output/model" --data text.txt --seq-len 16 --device host \
        --config frozen.json "$@"
}

dropout=0.1
for model in "qwen3_next 80b-a3b" "falcon_h1 0.5b"; do
    # shellcheck disable=SC2086
    set -- $model
    check "a model with recurrent mixers" run 0 small_model $1 $1 $2 32
    sed -i 's/"num_experts":[^,]*/"num_experts": 0/; s/"full_attention_interval":[^,]*/"full_attention_interval": 2/
        s/"linear_num_key_heads":[^,]*/"linear_num_key_heads": 2/
        s/"linear_num_value_heads":[^,]*/"linear_num_value_heads": 4/
        s/"linear_\([a-z]*\)_head_dim":[^,]*/"linear_\1_head_dim": 8/g
        s/"mamba_d_state":[^,]*/"mamba_d_state": 8/' "$1/config.json"
    config states.json 4 1 none
    check "$1: one rank" run 0 train $1 $1.1 --config states.json
    check "four seats" run 0 train $1 $1.4 --config states.json --seats 4 --context-parallel 4
    check "have the bits of one" same_result $1.1 $1.4
    config both.json 4 2 nvme ', "direct": false, "activation_device": "nvme"'
    check "with parts of tensors" run 0 train $1 $1.t1 --config both.json
    check "four seats, two by two, from drives" run 0 train $1 $1.t4 --config both.json --seats 4 \
        --tensor-parallel 2 --context-parallel 2
    check "have the bits of one, too" same_result $1.t1 $1.t4
    config frozen.json 4 1 none ', "freeze": ["*embed*", "*layers.0.*"]'
    check "with a frozen layer" run 0 train $1 $1.f1 --config frozen.json
    check "four seats" run 0 train $1 $1.f4 --config frozen.json --seats 4 --context-parallel 4
    check "have the bits of one" same_result $1.f1 $1.f4
    check "one rank evaluates" run 0 evaluate $1.1
    sed 's/.*"loss": \([^,]*\),.*/\1/' "$work/said.out" >one.loss
    check "four seats" run 0 evaluate $1.1 --seats 4 --context-parallel 4
    check "find the same loss" holds "$work/said.out" "\"loss\": $(cat one.loss),"
done

# Layers with experts in front of layers with mixers: only the experts are chosen. In each step some
# experts are not, and a drive still has their gradients of steps before.
dropout=0
check "a model with mixers and experts" run 0 small_model mixers qwen3_next 80b-a3b 32
sed -i 's/"num_experts":[^,]*/"num_experts": 32/; s/"num_experts_per_tok":[^,]*/"num_experts_per_tok": 1/
    s/"full_attention_interval":[^,]*/"full_attention_interval": 3/
    s/"linear_num_key_heads":[^,]*/"linear_num_key_heads": 2/
    s/"linear_num_value_heads":[^,]*/"linear_num_value_heads": 4/
    s/"linear_\([a-z]*\)_head_dim":[^,]*/"linear_\1_head_dim": 8/g' mixers/config.json
for place in none cpu nvme; do
    config chosen.json 4 1 $place ', "expert_fetch": "chosen"'
    check "experts that were chosen, $place" run 0 train mixers mixers.$place --config chosen.json
    [ $place = none ] || check "by two seats" run 0 train mixers mixers.2.$place --config chosen.json \
        --seats 2 --context-parallel 2
done
for other in cpu nvme 2.cpu 2.nvme; do
    check "$other: have the bits of all on the device" same_result mixers.none mixers.$other
done

# ---- keys and values in groups: gathered in RAM, or on the drive ----

dropout=0.1
config groups.json 4 1 cpu ', "sequence_chunk": 8, "look_ahead": 0, "activation_device": "cpu"'
config far.json 4 1 nvme ', "direct": false, "sequence_chunk": 8, "look_ahead": 0, "activation_device": "nvme"'
long() { train "$@" --seq-len 256 --config ${long:-groups.json} --plan; }
for model in llama mixtral; do
    sed -i 's/"max_position_embeddings":[^,]*/"max_position_embeddings": 256/
        s/"output_router_logits": true/"output_router_logits": false/' $model/config.json
    check "$model: keys of 32 chunks on the device" run 0 long $model $model.keys
    check "by four seats with little memory" run 0 long $model $model.groups --seats 4 \
        --context-parallel 2 --device-memory ${memory:-500KiB}
    check "in groups" grep -q "chunks in groups of" "$work/said.out" "$work/said.err"
    check "have the same bits" same_result $model.keys $model.groups
    for seats in 2 4; do
        long=far.json
        [ $seats$model != 2mixtral ] || memory=700KiB
        check "by $seats seats, on drives" run 0 long $model $model.far$seats --seats $seats \
            --context-parallel $seats --device-memory ${memory:-480KiB}
        long=
        check "in groups" grep -q "drive .*keys and values of chunks" "$work/said.out" "$work/said.err"
        check "have the same bits" same_result $model.keys $model.far$seats
        memory=420KiB
        [ $model != mixtral ] || memory=500KiB
    done
    memory=650KiB
done

# ---- ranks that are killed ----

config lasting.json 4 2 nvme
sed -i 's/"durability": "none"/"durability": "step"/' lasting.json
lasts() { train llama "$@" --steps $steps --config lasting.json; }
share="--seats 4 --tensor-parallel 2 --context-parallel 2"
# shellcheck disable=SC2086
check "four seats are killed" killed_in_steps last.4 5 "$zinf" train --model llama --init \
    --data text.txt --seq-len 17 --device host --seed 3 --steps 1000000 --progress none \
    --config lasting.json --output last.4 $share
# shellcheck disable=SC2086
check "they go on" run 0 lasts last.4 $share --resume
check "one rank to the end" run 0 lasts last.1
check "to the same weights" cmp last.1/model/model.safetensors last.4/model/model.safetensors

same_adapter() { # two outputs
    losses "$1" >adapted && losses "$2" | cmp - adapted &&
        cmp "$1/model/adapter_model.safetensors" "$2/model/adapter_model.safetensors"
}
adapt() {
    init='' train moe.whole/model "$@" --lora-rank 2
}
check "adapters" run 0 adapt lora.1 --config parts.json --lora-dropout 0.2
check "by four seats" run 0 adapt lora.4 --config parts.json --lora-dropout 0.2 --seats 4 --context-parallel 2
check "have the bits of one" same_adapter lora.1 lora.4
check "adapters in one piece" run 0 adapt lora.whole --config whole.json
check "and in four" run 0 adapt lora.parts --config parts.json
check "are close" close_to lora.parts lora.whole
finish
