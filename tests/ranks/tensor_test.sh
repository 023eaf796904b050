#!/bin/sh
# Tensor parallel: zinf.tensor_parts cuts matrices and vocabulary into parts. Losses and norms stay
# within a part in a million of those without parts, and the bits of a number of parts are the same
# wherever data live and whoever computes.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/tensor.sh"
. "$SRCDIR/tests/support/ranks.sh"
. "$SRCDIR/tests/support/ports.sh"
cd "$work" || exit 99
mkdir drive
make_text text.txt 60

check "a GPT-2" run 0 small_model gpt2 gpt2 small 64
check "a LLaMA" run 0 small_model llama llama 7b 64

for model in gpt2 llama; do
    dropout=0
    for parts in 1 2 4; do
        config "parts$parts.json" $parts
        check "$model in $parts parts" run 0 train $model "$model$parts" --config "parts$parts.json"
    done
    check "two parts are close to one" close_to "${model}2" "${model}1"
    check "and four" close_to "${model}4" "${model}1"
    cmp -s "${model}4/model/model.safetensors" "${model}1/model/model.safetensors"
    [ $? -ne 0 ]
    verdict $? "but not the same"

    # ---- the same bits, dropout and clipping on ----

    dropout=0.1
    config ram.json 4
    check "$model with dropout" run 0 train $model "$model.ram" --config ram.json
    places=nvme
    config drive.json 4 ', "direct": false, "activation_checkpointing": "always"'
    places=$nowhere
    check "from a drive, made again in backward" run 0 train $model "$model.drive" --config drive.json
    check "has the same bits" same_result "$model.ram" "$model.drive"
    for stage in 1 3; do
        config seats.json 4 ', "seats": 2'
        check "two seats, stage $stage" run 0 train $model "$model.seats$stage" \
            --config seats.json
        check "have the same bits" same_result "$model.ram" "$model.seats$stage"
    done
    stage=3
    bf16='"bf16": {"enabled": true},'
    config bf16.json 4
    check "$model in bf16" run 0 train $model "$model.bf16" --config bf16.json --label-smoothing 0.1
    config bf16.json 4 ', "seats": 2'
    check "by two seats" run 0 train $model "$model.bf16.seats" --config bf16.json \
        --label-smoothing 0.1
    check "has the same bits" same_result "$model.bf16" "$model.bf16.seats"
    bf16=
done

# ---- ranks that share tensors: the bits of one rank with as many parts ----

dropout=0.1
# Seats of which some share tensors, at a stage of ZeRO, with all on a drive or nothing.
shares() { # model, seats, tensor, stage, place
    stage=$4 places=$5
    config shares.json 4
    stage=3 places=$nowhere
    check "$1: $2 seats, $3 share tensors, stage $4, $5" run 0 train "$1" "$1.$2.$3.$4.$5" \
        --config shares.json --seats "$2" --tensor-parallel "$3"
    check "have the bits of one" same_result "$1.ram" "$1.$2.$3.$4.$5"
}
for model in gpt2 llama; do
    shares $model 2 2 0 none
    shares $model 4 4 1 cpu
    shares $model 4 2 2 nvme
    shares $model 4 2 3 nvme
    shares $model 4 4 3 nvme
done
# The vocabulary of 257 is cut unevenly: slices of files are those of the largest part.
stage=2
config shares.json 4
stage=3
check "two by two by two" run 0 train llama llama.cube --config shares.json --seats 8 \
    --tensor-parallel 2 --pipeline-parallel 2
check "have the bits of one" same_result llama.ram llama.cube
bf16='"bf16": {"enabled": true},'
config bf16.json 4
check "four seats share tensors in bf16" run 0 train llama llama.bf16.4 --config bf16.json \
    --label-smoothing 0.1 --seats 4 --tensor-parallel 4
check "with the bits of one" same_result llama.bf16 llama.bf16.4
bf16=
config shares.json 4
says_loss() { sed 's/.*"loss": \([^,]*\),.*/\1/' said.out; }
check "one rank evaluates" run 0 "$zinf" eval --model llama.ram/model --data text.txt --seq-len 16 \
    --device host --config shares.json
says_loss >loss1
check "two evaluate" run 0 "$zinf" eval --model llama.ram/model --data text.txt --seq-len 16 \
    --device host --config shares.json --seats 2 --tensor-parallel 2
says_loss | cmp - loss1
verdict $? "with the same loss"

# ---- adapters: parts of a module have parts of its factors ----

check "weights" run 0 "$zinf" train --model llama --init --data text.txt --seq-len 16 --device host \
    --lr 0 --steps 1 --progress none --output begun
adapt() { # output, options...
    output=$1
    shift
    "$zinf" train --model begun/model --lora-rank 4 --data text.txt --seq-len 16 --device host \
        --seed 3 --steps 3 --progress none --output "$output" --lr 2e-2 "$@"
}
same_adapter() { # two outputs
    losses "$1" >adapted && losses "$2" | cmp - adapted &&
        cmp "$1/model/adapter_model.safetensors" "$2/model/adapter_model.safetensors" &&
        cmp "$1/model/adapter_config.json" "$2/model/adapter_config.json"
}
for form in "" "--quantize nf4"; do
    label=adapt${form##* }
    dropout=0
    config low.json 1
    check "adapters, one part $form" run 0 adapt "$label.1" --config low.json $form
    config low.json 4
    check "in four" run 0 adapt "$label.4" --config low.json $form
    check "are close" close_to "$label.4" "$label.1"
    stage=2 places=nvme
    config low.json 4
    stage=3 places=$nowhere
    check "over four seats" run 0 adapt "$label.4.4" --config low.json --seats 4 \
        --tensor-parallel 4 $form
    check "have the bits of one" same_adapter "$label.4" "$label.4.4"
    dropout=0.1
    bf16='"bf16": {"enabled": true},'
    config low.json 4
    check "in bf16, with dropout" run 0 adapt "$label.b" --config low.json --lora-dropout 0.2 $form
    check "two by two in a pipeline" run 0 adapt "$label.b.4" --config low.json --lora-dropout 0.2 \
        --seats 4 --tensor-parallel 2 --pipeline-parallel 2 $form
    check "have the bits of one" same_adapter "$label.b" "$label.b.4"
    bf16=
done
config low.json 4
check "keys and values alone" run 0 adapt keys --config low.json --lora-targets k_proj,v_proj
check "over two seats" run 0 adapt keys.2 --config low.json --lora-targets k_proj,v_proj --seats 2 \
    --tensor-parallel 2
check "have the bits of one" same_adapter keys keys.2
check "one goes on from a checkpoint of two" run 0 adapt keys.2 --config low.json --steps 5 \
    --lora-targets k_proj,v_proj --resume
check "and one from its own" run 0 adapt keys --config low.json --lora-targets k_proj,v_proj \
    --steps 5 --resume
check "to the same adapter" same_adapter keys keys.2
check "all of GPT-2" fails "$zinf" train --model gpt2 --init --lora-rank 4 --data text.txt \
    --seq-len 16 --config low.json --output bad
check "has queries, keys and values in one" complains "c_attn has queries, keys and values in one"

# ---- checkpoints go from mesh to mesh ----

check "four seats save" run 0 train llama saves --config shares.json --seats 4 --tensor-parallel 4 \
    --save-every 2
goes_on() { # output, options...
    output=$1
    shift
    mkdir "$output" && cp -r saves/checkpoint-2 "$output/" || return
    "$zinf" train --model llama --data text.txt --seq-len 16 --device host --seed 3 --steps 4 \
        --progress none --config shares.json --resume="$output/checkpoint-2" --output "$output" "$@"
}
check "one goes on" run 0 goes_on on1
check "to the same weights" cmp llama.ram/model/model.safetensors on1/model/model.safetensors
check "two by two go on" run 0 goes_on on4 --seats 4 --tensor-parallel 2
check "to the same weights" cmp llama.ram/model/model.safetensors on4/model/model.safetensors

# ---- two optimizers, of which one has a moment more ----

config mixed.json 4 ', "learning_rates": [{"pattern": "*down_proj*", "optimizer": "AdamW"}]'
sed -i 's/"AdamW", "params"/"Lion", "params"/' mixed.json
check "one rank with two optimizers" run 0 train llama mixed --config mixed.json --save-every 2
check "four seats" run 0 train llama mixed4 --config mixed.json --seats 4 --tensor-parallel 2 \
    --save-every 2
check "have the bits of one" same_result mixed mixed4
check "and its second moments" cmp mixed/checkpoint-2/optimizer/moment2.safetensors \
    mixed4/checkpoint-2/optimizer/moment2.safetensors
for ranks in 1 2 4; do # what the optimizers are of does not depend on who has which parts
    mkdir mixed.on$ranks && cp -r mixed4/checkpoint-2 mixed.on$ranks/
    check "$ranks that share tensors go on" run 0 "$zinf" train --model llama --data text.txt \
        --seq-len 16 --device host --seed 3 --steps 4 --progress none --config mixed.json \
        --resume=mixed.on$ranks/checkpoint-2 --output mixed.on$ranks --seats $ranks \
        --tensor-parallel $ranks
    check "to the same weights" cmp mixed/model/model.safetensors mixed.on$ranks/model/model.safetensors
done

# ---- processes ----

if [ -n "$no_mpi" ]; then
    skip "processes of an MPI" "$no_mpi"
else
    mpi_train() { # processes, output, options...
        processes=$1 output=$2
        shift 2
        ranks "$processes" "$zinf" train --model llama --init --data text.txt --seq-len 16 \
            --device host --seed 3 --steps 4 --progress none --config shares.json \
            --output "$output" "$@"
    }
    check "two processes share tensors" run 0 mpi_train 2 mpi2 --tensor-parallel 2
    check "with the bits of one" same_result llama.ram mpi2
    check "and two with two seats each" run 0 mpi_train 2 mpi4 --seats 2 --tensor-parallel 4
    check "with the bits of one" same_result llama.ram mpi4
fi

# ---- steps that outlive the process, and a rank that is killed ----

stage=3 places=nvme
config lasting.json 4
sed -i 's/"durability": "none"/"durability": "step"/' lasting.json
lasting="--model begun/model --data text.txt --seq-len 16 --device host --seed 3 --progress none \
    --config lasting.json"
for pipe in 1 2; do
    share="--seats 4 --tensor-parallel 2 --pipeline-parallel $pipe"
    # shellcheck disable=SC2086
    check "four seats are killed, $pipe in a pipeline" killed_in_steps last.$pipe 5 "$zinf" train \
        $lasting --output last.$pipe $share --steps 1000000
    # shellcheck disable=SC2086
    check "they go on" run 0 "$zinf" train $lasting --output last.$pipe $share --steps $steps --resume
    # shellcheck disable=SC2086
    check "one rank to the end" run 0 "$zinf" train $lasting --output last.one$pipe --steps $steps
    check "to the same weights" cmp last.one$pipe/model/model.safetensors \
        last.$pipe/model/model.safetensors
done
stage=3 places=$nowhere
config shares.json 4 ', "timeout": 20'
rank() { # rank
    RANK=$1 WORLD_SIZE=2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
    TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_RUN_ID=run-$$ OMP_NUM_THREADS=1
    export RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT \
        TORCHELASTIC_RESTART_COUNT TORCHELASTIC_RUN_ID OMP_NUM_THREADS
    exec "$zinf" train --model llama --init --data text.txt --seq-len 16 --device host --seed 3 \
        --progress none --config shares.json --output killed --steps 100000 --tensor-parallel 2
}
(rank 1) >other.out 2>other.err </dev/null &
other=$!
(rank 0) >said.out 2>said.err </dev/null &
first=$!
wait_until $first has_lines killed 2
kill -KILL $other
wait $first
[ $? -eq 1 ]
verdict $? "a rank that is killed ends the other, which shares its tensors"
check "which names it" complains "rank 1"
dropout=0.1
config shares.json 4

# ---- DeepSpeed's configuration ----

autotp() { # stage, size
    cat >autotp.json <<EOF
{"bf16": {"enabled": "auto"},
 "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                           "weight_decay": "auto"}},
 "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto",
               "warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
 "zero_optimization": {"stage": $1, "gather_16bit_weights_on_model_save": true},
 "tensor_parallel": {"autotp_size": $2},
 "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 1,
 "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
 "wall_clock_breakdown": false}
EOF
}
for stage in 1 2; do
    for size in 2 4; do
        autotp $stage $size
        check "AutoTP's configuration, stage $stage, size $size" run 0 train llama \
            "autotp.$stage.$size" --config autotp.json --seats 4 --micro-batch 2 --bf16
        holds "autotp.$stage.$size/log.jsonl" "\"tokens\": $((128 / size)),"
        verdict $? "has two samples a step of each $size ranks"
    done
done
if [ -n "$no_mpi" ]; then
    skip "AutoTP's configuration with processes" "$no_mpi"
else
    for stage in 1 2; do
        for size in 2 4; do
            autotp $stage $size
            check "by processes, stage $stage, size $size" run 0 ranks $size "$zinf" train --model llama \
                --init --data text.txt --seq-len 16 --device host --seed 3 --steps 4 --progress none \
                --output "autotp.mpi" --overwrite --config autotp.json --threads 1 --micro-batch 2 --bf16
            check "does as seats do" run 0 train llama autotp.seats --overwrite --config autotp.json \
                --threads 1 --seats $size --micro-batch 2 --bf16
            check "has the same bits" same_result autotp.seats autotp.mpi
        done
    done
fi
stage=3
check "with one rank" fails train llama bad --config autotp.json --micro-batch 2
check "names what is missing" complains "tensor_parallel.autotp_size is 4, and this run has 1 rank"
check "three seats" fails train llama bad --config shares.json --seats 3 --tensor-parallel 3
check "do not divide four parts" complains "zinf.tensor_parts 4 is no multiple"

# ---- what belongs to tensors, and not to the units that a rank has of them ----

same_losses() { # two outputs, whose files have their tensors in different orders
    losses "$1" >"$work/losses" && losses "$2" | cmp - "$work/losses"
}
dropout=0.1
in_turn=', "parts_in_turn": true'
places=cpu
bf16='"bf16": {"enabled": true, "bf16_optimizer_states": true, "bf16_master_weights_and_grads": true},'
config half.json 4
config turn.json 4 "$in_turn"
check "moments rounded to bf16" run 0 train llama half --config half.json
check "of parts in turn" run 0 train llama half.turn --config turn.json
check "have the bits of all together" same_losses half half.turn
for seats in 2 4; do
    check "by $seats seats" run 0 train llama half.$seats --config half.json --seats $seats \
        --tensor-parallel $seats
    check "have the bits of one" same_result half half.$seats
done
bf16=
lion=', "learning_rates": [{"pattern": "*.layers.0.*", "optimizer": "Lion", "lr": 1e-4}]'
config pair.json 4 "$lion"
config turn.json 4 "$lion$in_turn"
check "two optimizers" run 0 train llama pair --config pair.json
check "two steps of these" run 0 train llama pair.on --config pair.json --steps 2
cp -r pair.on pair.turn
check "two seats go on" run 0 train llama pair.on --config pair.json --seats 2 --tensor-parallel 2 \
    --resume
check "to the bits of one" same_result pair pair.on
check "parts in turn go on" run 0 train llama pair.turn --config turn.json --resume
check "to the bits of one, too" same_losses pair pair.turn
places=$nowhere

# ---- going on, and what is not cut ----

config ram.json 2
cp -r llama.ram on
check "other parts are another training" fails train llama on --config ram.json --resume \
    --steps 6
complains tensor_parts
verdict $? "and the key is named"
config three.json 3
check "three parts" fails train llama bad --config three.json
check "are refused" complains "zinf.tensor_parts 3: use a power of two"
config eight.json 8
check "eight parts of four heads" fails train llama bad --config eight.json
check "are refused" complains "the number of heads, 4, is not a multiple"
"$zinf" init --arch deberta-v2 --size v3-base --layers 1 --hidden 64 --heads 4 --tokenizer bytes \
    --config-only --output deberta >/dev/null
sed -i 's/\("share_att_key":\)[^,}]*/\1 false/' deberta/config.json
printf 'text,label\na,b\nb,c\n' >rows.csv
check "products of relative positions" fails "$zinf" train --model deberta --init --data rows.csv \
    --config ram.json --output bad
check "are refused" complains "has products of relative positions, which is not cut"
finish
