#!/bin/sh
# GPUs that share tensors or sequences, and GPUs in a pipeline, on the stand-in for CUDA: the bits of
# one GPU with as many parts, whatever the mesh, the stage of ZeRO and the place of things.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
ZINF_CUDA_MODULE=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
ZINF_STANDIN_GPUS=4
export ZINF_CUDA_MODULE ZINF_STANDIN_GPUS
[ -e "$ZINF_CUDA_MODULE" ] || {
    echo "1..0 # SKIP the stand-in for CUDA was not built"
    exit 0
}
cd "$work" || exit 99
mkdir drive
make_text text.txt 40
awk 'BEGIN { print "source,target"; for (i = 0; i < 9; i++) print "say " i "," i " and " i }' >rows.csv

new_model() { # folder, arch, size: a small one; of llama with two key and value heads
    "$zinf" init --arch "$2" --size "$3" --layers 2 --hidden 32 --heads 4 --tokenizer bytes \
        --context 32 --config-only --output "$1" || return
    [ "$2" != llama ] || sed -i 's/"num_key_value_heads":[^,]*/"num_key_value_heads": 2/' "$1/config.json"
}
check "a LLaMA" run 0 new_model llama llama 7b
check "a GPT-2" run 0 new_model gpt2 gpt2 small
config() { # stage, place
    cat >config.json <<END
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.5,
 "bf16": {"enabled": ${bf16:-false}},
 "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 0.1}},
 "zero_optimization": {"stage": $1,
  "offload_param": {"device": "$2", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "$2", "nvme_path": "$work/drive"}},
 "zinf": {"tensor_parts": 4, "threads": 1, "gradient_sum": "tree", "placement": "exact",
  "durability": "none", "dropout": 0.1}}
END
}
train() { # model, output, options...
    model=$1 output=$2
    shift 2
    # shellcheck disable=SC2086 # options are words
    "$zinf" train --model "$model" --init ${data:---data text.txt --seq-len 16} --device cuda --seed 3 \
        --steps 2 --progress none --config config.json --output "$output" "$@"
}
mesh() { # model, seats, tensor, pipe, stage, place, options...
    into=$1.$2.$3.$4.$5.$6
    what="$1: $2 GPUs, $3 share tensors, $4 in a pipeline, stage $5, $6"
    config "$5" "$6"
    of=$1 seats=$2 tensor=$3 pipe=$4
    shift 6
    check "$what" run 0 train "$of" "$into" --seats "$seats" --tensor-parallel "$tensor" \
        --pipeline-parallel "$pipe" "$@"
    check "have the bits of one" same_result "$of.one" "$into"
}
config 3 none
check "LLaMA on one GPU" run 0 train llama llama.one --label-smoothing 0.1
mesh llama 2 2 1 0 none --label-smoothing 0.1
mesh llama 2 1 2 3 none --label-smoothing 0.1
mesh llama 4 2 1 2 nvme --label-smoothing 0.1
mesh llama 4 4 1 1 cpu --label-smoothing 0.1
mesh llama 4 2 2 3 cpu --label-smoothing 0.1
mesh llama 4 1 4 1 nvme --label-smoothing 0.1
for model in mixtral gpt_oss olmo2 t5; do
    case $model in
    mixtral) size=8x7b ;;
    gpt_oss) size=20b ;;
    olmo2) size=1b ;;
    t5) size=small data="--data rows.csv --seq-len 12" ;;
    esac
    check "$model" run 0 new_model $model $model $size
    config 3 none
    check "$model on one GPU" run 0 train $model $model.one
    mesh $model 4 2 2 3 nvme
done
data=
bf16=true
config 3 none
check "GPT-2 in bf16 on one GPU" run 0 train gpt2 gpt2.one
mesh gpt2 2 2 1 3 cpu
mesh gpt2 4 2 2 2 nvme
config 3 cpu
check "its table in two pipeline stages" fails train gpt2 bad --seats 2 --pipeline-parallel 2
check "needs a drive" complains "table.0 is of stages of several GPUs"
adapt() { # output, options...
    output=$1
    shift
    "$zinf" train --model llama.one/model --lora-rank 4 --quantize nf4 --data text.txt --seq-len 16 \
        --device cuda --seed 3 --steps 2 --progress none --config config.json --output "$output" "$@"
}
check "adapters over 4 bits on one GPU" run 0 adapt low.one
check "over four" run 0 adapt low.4 --seats 4 --tensor-parallel 2 --pipeline-parallel 2
check "have the same bits" cmp low.one/model/adapter_model.safetensors \
    low.4/model/adapter_model.safetensors

# ---- GPUs that share sequences ----

share() { # output, stage, place, options...
    output=$1
    config "$2" "$3"
    sed -i 's/"tensor_parts"/"context_parts"/' config.json
    shift 3
    train llama "$output" "$@"
}
check "four parts of sequences on one GPU" run 0 share parts.one 3 cpu
check "over four" run 0 share parts.4 2 nvme --seats 4 --context-parallel 2 --pipeline-parallel 2
check "have the bits of one" same_result parts.one parts.4
finish
