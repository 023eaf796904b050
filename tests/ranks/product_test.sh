#!/bin/sh
# A model in tensor parts over every mesh: the bits of one rank, whatever mesh, stage of ZeRO and place of
# things. Runs are drawn from the product of all of these.
# ZINF_TEST_PRODUCT: how many of each model and type of numbers, or "all"; ZINF_TEST_SEED: other ones;
# ZINF_TEST_MODELS: of these alone.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99
draws=${ZINF_TEST_PRODUCT:-1}
seed=${ZINF_TEST_SEED:-1}
mkdir drive
make_text text.txt 40
awk 'BEGIN { print "source,target"; for (i = 0; i < 30; i++) print "say " i " again," i " and " i }' >rows.csv

new_model() { # folder, arch, size, layers: a small one, with two key and value heads where it may have them
    "$zinf" init --arch "$2" --size "$3" --layers "$4" --hidden 32 --heads 4 --tokenizer bytes \
        $only --output "$1" || return
    [ -n "$only" ] || return 0
    sed -i 's/"num_key_value_heads":[^,]*/"num_key_value_heads": 2/;
        s/"num_local_experts":[^,]*/"num_local_experts": 4/' "$1/config.json"
}
config() { # stage, place: four samples a step, dropout and clipping on
    cat >config.json <<END
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.5,
 "bf16": {"enabled": $bf16},
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
    "$zinf" train --model "$model" $start $data --device host --seed 3 --steps 2 --progress none \
        --config config.json --output "$output" --overwrite "$@"
}
# Lines of tensor, pipe, data, stage, place: all, or as many as are drawn.
product() { # seed
    for tensor in 1 2 4; do for pipe in $pipes; do for data in 1 2; do for stage in 0 1 2 3; do
        for place in cpu nvme; do echo $tensor $pipe $data $stage $place; done
    done; done; done; done | if [ "$draws" = all ]; then cat; else
        awk -v n="$draws" -v seed="$1" 'BEGIN { srand(seed) } { line[NR] = $0 }
            END { for (i = 0; i < n; i++) { k = int(rand() * NR) + 1; print line[k]; line[k] = line[NR--] } }'
    fi
}
same_training() { # two outputs: of an adapter its weights
    file=model/model.safetensors
    [ -r "$1/$file" ] || file=model/adapter_model.safetensors
    losses "$1" >losses && losses "$2" | cmp - losses && cmp "$1/$file" "$2/$file"
}
for model in ${ZINF_TEST_MODELS:-mixtral t5 gpt2 llama lora}; do
    layers=4 pipes="1 2 4" only=--config-only data="--data text.txt --seq-len 16" start=--init arch=$model
    case $model in
    mixtral) size=8x7b layers=2 pipes="1 2" ;;
    t5) size=small layers=2 pipes="1 2" data="--data rows.csv --seq-len 12" ;;
    gpt2) size=small ;;
    llama) size=7b ;;
    lora) size=3-8b arch=llama only='' start="--lora-rank 4 --lora-dropout 0.1 --quantize nf4" ;;
    esac
    check "$model" run 0 new_model $model $arch $size $layers
    for bf16 in false true; do
        one=$model.$bf16
        config 3 none
        check "$model on one rank, bf16 $bf16" run 0 train $model "$one"
        seed=$((seed + 1))
        product $seed >runs
        while read -r tensor pipe ranks stage place <&3; do
            [ "$stage" -gt 0 ] || place=none # stage 0 has nothing elsewhere
            config "$stage" "$place"
            rm -rf other
            check "tensor $tensor, pipe $pipe, data $ranks, stage $stage, $place" run 0 train $model other \
                --seats $((tensor * pipe * ranks)) --tensor-parallel "$tensor" --pipeline-parallel "$pipe"
            check "have the bits of one" same_training "$one" other
        done 3<runs
    done
done
finish
