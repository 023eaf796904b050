#!/bin/sh
# Context parallel: zinf.context_parts deals each sequence in parts. Losses and norms stay within a
# millionth of those of whole sequences, and the bits of a number of parts are the same wherever
# data live and whoever computes.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99
mkdir drive
make_text text.txt 60

check "a GPT-2" run 0 small_model gpt2 gpt2 small 32
check "a LLaMA" run 0 small_model llama llama 7b 32

places=none
stage=3
# Eight samples a step.
config() { # file, parts, keys of "zinf" behind a comma
    cat >"$1" <<END
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.5,
 ${bf16:-}
 "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 0.1}},
 "zero_optimization": {"stage": $stage,
  "offload_param": {"device": "$places", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "$places", "nvme_path": "$work/drive"}},
 "zinf": {"context_parts": $2, "threads": 1, "gradient_sum": "tree", "placement": "exact",
  "durability": "none", "dropout": ${dropout:-0.1}${3:-}}}
END
}
train() { # model, output, options...
    model=$1 output=$2
    shift 2
    "$zinf" train --model "$model" --init --data text.txt --seq-len 17 --device host --seed 3 \
        --steps 3 --progress none --output "$output" "$@"
}

for model in gpt2 llama; do
    dropout=0
    for parts in 1 2 4; do
        config parts.json $parts
        check "$model in $parts parts" run 0 train $model "$model$parts" --config parts.json
    done
    check "two parts are close to one" close_to "${model}2" "${model}1"
    check "and four" close_to "${model}4" "${model}1"
    cmp -s "${model}4/model/model.safetensors" "${model}1/model/model.safetensors"
    [ $? -ne 0 ]
    verdict $? "but not the same"

    dropout=0.1
    config ram.json 4
    check "$model with dropout" run 0 train $model "$model.ram" --config ram.json
    places=nvme
    config drive.json 4 ', "direct": false, "activation_checkpointing": "always", "activation_device": "nvme"'
    places=none
    check "from a drive, made again in backward" run 0 train $model "$model.drive" --config drive.json
    check "has the same bits" same_result "$model.ram" "$model.drive"
done

# ---- ranks: the bits of one that has all parts ----

# Seats of which some share sequences, at a stage of ZeRO, with all on a drive or nothing.
shares() { # model, seats, context, stage, place
    stage=$4 places=$5
    config shares.json 4
    stage=3 places=none
    check "$1: $2 seats, $3 share sequences, stage $4, $5" run 0 train "$1" "$1.$2.$3.$4.$5" \
        --config shares.json --seats "$2" --context-parallel "$3"
    check "have the bits of one" same_result "$1.ram" "$1.$2.$3.$4.$5"
}
for model in gpt2 llama; do
    shares $model 2 1 1 none
    shares $model 2 2 0 none
    shares $model 4 4 1 cpu
    shares $model 4 2 2 nvme
    shares $model 4 4 3 nvme
done

config shares.json 4
check "a pipeline of two" run 0 train gpt2 cube --config shares.json --seats 8 --context-parallel 2 \
    --pipeline-parallel 2
check "has the bits of one" same_result gpt2.ram cube
check "matrices of Muon" run 0 train gpt2 muon1 --config shares.json --optimizer Muon
check "over four seats" run 0 train gpt2 muon4 --config shares.json --optimizer Muon --seats 4 \
    --context-parallel 2
check "have the bits of one" same_result muon1 muon4

bf16='"bf16": {"enabled": true},'
config bf16.json 2 ', "sequence_chunk": 3'
check "parts of several chunks, in bf16" run 0 train llama llama.bf16 --config bf16.json
check "by two seats" run 0 train llama llama.bf16.2 --config bf16.json --seats 2 --context-parallel 2
check "have the bits of one" same_result llama.bf16 llama.bf16.2
bf16=

config shares.json 4
says_loss() { sed 's/.*"loss": \([^,]*\),.*/\1/' said.out; }
check "one rank evaluates" run 0 "$zinf" eval --model llama.ram/model --data text.txt --seq-len 16 \
    --device host --config shares.json
says_loss >loss1
check "four evaluate" run 0 "$zinf" eval --model llama.ram/model --data text.txt --seq-len 16 \
    --device host --config shares.json --seats 4 --context-parallel 2
says_loss | cmp - loss1
verdict $? "with the same loss"

sed 's/"train_batch_size": 8/"train_batch_size": 1/; s/_gpu": 2/_gpu": 1/' shares.json >single.json
check "a sample alone" run 0 train gpt2 single --config single.json
check "by four seats" run 0 train gpt2 single4 --config single.json --seats 4 --context-parallel 4
check "has the bits of one" same_result single single4

# ---- adapters, and a checkpoint that goes from mesh to mesh ----

adapt() { # output, options...
    output=$1
    shift
    "$zinf" train --model llama.ram/model --lora-rank 4 --quantize nf4 --data text.txt --seq-len 16 \
        --device host --seed 3 --steps 4 --progress none --config shares.json --output "$output" \
        --lora-dropout 0.2 "$@"
}
same_adapter() { # two outputs
    losses "$1" >adapted && losses "$2" | cmp - adapted &&
        cmp "$1/model/adapter_model.safetensors" "$2/model/adapter_model.safetensors"
}
check "adapters" run 0 adapt adapt1
check "by four seats" run 0 adapt adapt4 --seats 4 --context-parallel 4 --save-every 2
check "have the bits of one" same_adapter adapt1 adapt4
goes_on() {
    mkdir on2 && cp -r adapt4/checkpoint-2 on2/ &&
        adapt on2 --seats 2 --context-parallel 2 --resume=on2/checkpoint-2
}
check "two go on" run 0 goes_on
check "to the same adapter" cmp adapt1/model/adapter_model.safetensors \
    on2/model/adapter_model.safetensors

# ---- processes ----

if [ -n "$no_mpi" ]; then
    skip "processes of an MPI" "$no_mpi"
else
    mpi_train() { # processes, output, options...
        processes=$1 output=$2
        shift 2
        ranks "$processes" "$zinf" train --model llama --init --data text.txt --seq-len 17 \
            --device host --seed 3 --steps 3 --progress none --config shares.json \
            --output "$output" "$@"
    }
    check "two processes with two seats each" run 0 mpi_train 2 mpi4 --seats 2 --context-parallel 4
    check "have the bits of one" same_result llama.ram mpi4
fi

# ---- words ----

sed 's/"zinf"/"sequence_parallel_size": 2, "zinf"/; s/"context_parts": 4, //' shares.json >deep.json
check "DeepSpeed's key" run 0 train llama deep --config deep.json --seats 2
check "has as many parts as ranks" grep -q "\"context_parts\":.*2," deep/config.resolved.json
refuses() { # sentence, options...
    sentence=$1
    shift
    check "refused: $sentence" fails train llama bad --config shares.json "$@"
    check "by name" complains "$sentence"
}
refuses "zinf.mesh.context is 8" --seats 8 --context-parallel 8
refuses "zinf.mesh.context (--context-parallel) is 3" --seats 3 --context-parallel 3
refuses "this run has 3 ranks" --seats 3 --context-parallel 2
finish
