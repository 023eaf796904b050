#!/bin/sh
# Configurations as the guides of DeepSpeed, Accelerate and Transformers have them, with "auto"
# wherever that may stand, run as they are for encoder-decoders and encoders, with nothing but
# data, a folder and --output. And fp16 whose activations overflow is named with the remedy.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
mkdir drive

new() { # folder, arch, size, options...
    n_folder=$1 n_arch=$2 n_size=$3
    shift 3
    "$zinf" init --arch "$n_arch" --size "$n_size" --layers 2 --hidden 32 --heads 2 \
        --output "$n_folder" "$@" >/dev/null 2>&1
}
new t5 t5 small --tokenizer bytes && new blenderbot blenderbot 400m-distill --tokenizer bytes \
    --context 64 && new bert bert base --tokenizer "$SRCDIR/examples/classify" --context 64 &&
    new deberta deberta-v2 v2-xlarge --tokenizer "$SRCDIR/examples/classify" --context 64
verdict $? "small new models"
awk 'BEGIN { for (i = 0; i < 16; i++) print "{\"source\": \"say " i "\", \"target\": \"" i "\"}" }' \
    >pairs.jsonl
head -17 "$SRCDIR/examples/classify/pairs-train.tsv" >classes.tsv

optimizer='"optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
    "weight_decay": "auto"}}'
warmup='"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto",
    "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}'
decay='"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto",
    "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}}'
batch='"gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": false'
three='"stage": 3, "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
    "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true'
two='"stage": 2, "allgather_partitions": true, "allgather_bucket_size": 2e8, "overlap_comm": true,
    "reduce_scatter": true, "reduce_bucket_size": "auto", "contiguous_gradients": true'
half='"fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000,
    "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1}'
half_on='"fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000,
    "initial_scale_power": 15, "hysteresis": 2, "min_loss_scale": 1}'
cpu='{"device": "cpu", "pin_memory": true}'
nvme="{\"device\": \"nvme\", \"nvme_path\": \"$work/drive\", \"pin_memory\": true}"

write() { # name, keys
    echo "{$2}" >"$1.json"
}
write z3 "\"bf16\": {\"enabled\": \"auto\"}, $optimizer, $warmup,
    \"zero_optimization\": {$three}, $batch"
write z3-bf16-offload "\"bf16\": {\"enabled\": true}, $optimizer, $warmup, \"zero_optimization\":
    {\"offload_optimizer\": $cpu, \"offload_param\": $cpu, $three}, $batch"
write z3-nvme "$half, \"bf16\": {\"enabled\": true}, $optimizer, $decay, \"zero_optimization\":
    {\"offload_optimizer\": $nvme, \"offload_param\": $nvme, $three}, $batch"
write z2-fp16 "$half_on, $optimizer, $decay, \"zero_optimization\": {$two}, $batch"
write z2-offload "$half, $optimizer, $decay, \"zero_optimization\":
    {\"offload_optimizer\": $cpu, $two}, $batch"
write z2-plain "\"bf16\": {\"enabled\": \"auto\"}, \"zero_optimization\": {$two}, $batch"

for model in t5 blenderbot bert deberta; do
    data=pairs.jsonl columns=
    [ $model = t5 ] || [ $model = blenderbot ] || { data=classes.tsv columns="--source-column sentence1,sentence2"; }
    for config in z3 z3-bf16-offload z3-nvme z2-fp16 z2-offload z2-plain; do
        # shellcheck disable=SC2086  # columns are words
        check "$model by $config" run 0 "$zinf" train --model $model --data $data $columns \
            --config $config.json --output out --overwrite
        says '"last_step": 2' && [ -f out/model/model.safetensors ]
        verdict $? "passes once over the rows in batches of 8"
    done
done

# ---- fp16 ----

cp -r t5 loud && sed -i 's/"initializer_factor":[^,]*/"initializer_factor": 60000.0/' \
    loud/config.json
grep -q 60000 loud/config.json
verdict $? "a model of large activations"
write fp16 '"fp16": {"enabled": true, "initial_scale_power": 4, "hysteresis": 1}, "train_batch_size": 8'
check "in fp16" run 1 "$zinf" train --model loud --init --data pairs.jsonl --config fp16.json \
    --steps 20 --output loud16 --progress none
complains "step 1: the loss is not finite before it is scaled" "65504" "bf16.enabled" \
    "step 5, at the smallest loss scale"
verdict $? "is named at once with its remedy, and ends at the smallest scale"
write bf16 '"bf16": {"enabled": true}, "train_batch_size": 8'
check "in bf16" run 0 "$zinf" train --model loud --init --data pairs.jsonl --config bf16.json \
    --steps 2 --output loudb --progress none
says '"skipped_steps": 0'
verdict $? "it trains"
finish
