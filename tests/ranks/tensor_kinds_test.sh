#!/bin/sh
# Experts and encoder-decoders in tensor parts: close to the model without parts; packed samples and
# adapters; and the bits of one rank by ranks that share tensors.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99
mkdir drive
make_text text.txt 30
awk 'BEGIN { for (i = 0; i < 30; i++) print "{\"text\": \"row " i (i % 3 ? "\"}" : " that is longer\"}") }' >short.jsonl
awk 'BEGIN { print "source,target"; for (i = 0; i < 30; i++) print "say " i " again," i " and " i }' >rows.csv

new_model() { # folder, arch, size
    "$zinf" init --arch "$2" --size "$3" --layers 2 --hidden 32 --heads 4 --tokenizer bytes \
        --config-only --output "$1" || return
    sed -i 's/"num_key_value_heads":[^,]*/"num_key_value_heads": 2/;
        s/"num_local_experts":[^,]*/"num_local_experts": 4/' "$1/config.json"
}
config() { # file, parts
    cat >"$1" <<END
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.5,
 "bf16": {"enabled": ${bf16:-false}},
 "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 0.1}},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "${place:-none}", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "${place:-none}", "nvme_path": "$work/drive"}},
 "zinf": {"tensor_parts": $2, "threads": 1, "gradient_sum": "tree", "placement": "exact",
  "durability": "none", "dropout": ${dropout:-0.1}}}
END
}
train() { # model, output, options...
    model=$1 output=$2
    shift 2
    "$zinf" train --model "$model" --init $data --device host --seed 3 --steps 3 --progress none \
        --output "$output" --overwrite "$@"
}
close_to() { # two outputs: losses and norms within 1e-6 of each other
    losses "$1" >close1
    losses "$2" | paste - close1 | awk 'function far(a, b) { d = a - b; return d * d > 1e-12 * b * b }
        NF != 4 || far($1, $3) || far($2, $4) { bad = 1; print "# " $0 } END { exit bad || !NR }'
}
check "a Mixtral" run 0 new_model mixtral mixtral 8x7b
check "a T5 with a head of its own" run 0 new_model t5 t5 small
check "a T5 whose head is its table" run 0 new_model tied t5 v1-small
for model in mixtral t5 tied; do
    [ $model = mixtral ] && data="--data text.txt --seq-len 16" || data="--data rows.csv --seq-len 12"
    dropout=0
    config one.json 1
    config four.json 4
    check "$model in one part" run 0 train $model one --config one.json
    check "in four" run 0 train $model four --config four.json
    check "is close to it" close_to four one
    cmp -s one/model/model.safetensors four/model/model.safetensors
    [ $? -ne 0 ]
    verdict $? "but not the same"
    dropout=0.1
    config four.json 4
    check "with dropout" run 0 train $model $model.four --config four.json
    check "by two seats that share tensors" run 0 train $model two --config four.json --seats 2 \
        --tensor-parallel 2
    check "has the bits of one" same_result $model.four two
    if [ -n "$no_mpi" ]; then
        skip "two processes" "$no_mpi"
    else
        check "by two processes" run 0 ranks 2 "$zinf" train --model $model --init $data --device host \
            --seed 3 --steps 3 --progress none --output mpi --overwrite --config four.json \
            --tensor-parallel 2
        check "has the bits of one" same_result $model.four mpi
    fi
done

# ---- several samples in a sequence ----

place=nvme
data="--data short.jsonl --format text --seq-len 48 --pack"
config four.json 4
check "packed samples" run 0 train mixtral packed --config four.json
check "of four seats" run 0 train mixtral packed4 --config four.json --seats 4 --tensor-parallel 4
check "have the bits of one" same_result packed packed4

# ---- adapters ----

bf16=true
config four.json 4
check "weights of a Mixtral" run 0 "$zinf" init --arch mixtral --size 8x7b --layers 1 --hidden 32 --heads 4 \
    --tokenizer bytes --output base
check "and of a T5" run 0 "$zinf" init --arch t5 --size small --layers 1 --hidden 32 --heads 4 \
    --tokenizer bytes --output base5
adapt() { # model, output, options...
    model=$1 output=$2
    shift 2
    "$zinf" train --model "$model" --lora-rank 4 --lora-dropout 0.1 $data --device host --seed 3 \
        --steps 3 --progress none --output "$output" --lr 2e-2 --config four.json "$@"
}
same_adapter() { # two outputs
    losses "$1" >adapted && losses "$2" | cmp - adapted &&
        cmp "$1/model/adapter_model.safetensors" "$2/model/adapter_model.safetensors"
}
data="--data text.txt --seq-len 16"
check "adapters of a Mixtral over 4 bits" run 0 adapt base low --quantize nf4
check "of two seats" run 0 adapt base low2 --quantize nf4 --seats 2 --tensor-parallel 2
check "have the bits of one" same_adapter low low2
check "of its experts" run 0 adapt base experts --lora-targets w1,w2
check "of two seats" run 0 adapt base experts2 --lora-targets w1,w2 --seats 2 --tensor-parallel 2
check "have the bits of one" same_adapter experts experts2
new_base() { # folder, arch, size, options...
    folder=$1 arch=$2 size=$3
    shift 3
    "$zinf" init --arch "$arch" --size "$size" --layers 1 --hidden 32 --heads 4 --tokenizer bytes \
        --output "$folder" "$@"
}
for new in qwen3 gemma3_text olmo2 deepseek_v3; do
    case $new in
    qwen3) size=0.6b targets=all-linear ;;
    gemma3_text) size=1b targets=q_proj,down_proj ;;
    olmo2) size=1b targets=k_proj,o_proj ;;
    deepseek_v3) size=671b targets=q_a_proj,q_b_proj,kv_b_proj,o_proj ;;
    esac
    check "weights of $new" run 0 new_base base.$new $new $size
    check "adapters of it over 4 bits" run 0 adapt base.$new $new.low --quantize nf4 --lora-targets $targets
    check "of four seats" run 0 adapt base.$new $new.low4 --quantize nf4 --lora-targets $targets --seats 4 \
        --tensor-parallel 4
    check "have the bits of one" same_adapter $new.low $new.low4
done
data="--data rows.csv --seq-len 12"
check "adapters of a T5" run 0 adapt base5 low5 --lora-targets q,v,wo
check "of two seats" run 0 adapt base5 low52 --lora-targets q,v,wo --seats 2 --tensor-parallel 2
check "have the bits of one" same_adapter low5 low52
finish
