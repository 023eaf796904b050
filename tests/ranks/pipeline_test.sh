#!/bin/sh
# Pipeline parallel: ranks that have layers one after the other make the bits of one rank, whatever the
# cut, the mesh, the stage of ZeRO and the place of things, over seats, TCP and an MPI.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"
. "$SRCDIR/tests/support/ports.sh"
cd "$work" || exit 99
mkdir drive
make_text text.txt 60

new_model() { # folder, arch, size, layers: a small one; of llama with two key and value heads
    "$zinf" init --arch "$2" --size "$3" --layers "$4" --hidden 32 --heads 4 --tokenizer bytes \
        --context 32 --config-only --output "$1" || return
    [ "$2" != llama ] || sed -i 's/"num_key_value_heads":[^,]*/"num_key_value_heads": 2/' "$1/config.json"
}

check "a LLaMA" run 0 new_model llama llama 7b 3
check "a GPT-2, whose head is its table" run 0 new_model gpt2 gpt2 small 2
check "a Mixtral" run 0 new_model mixtral mixtral 8x7b 2
check "a T5" run 0 new_model t5 t5 small 2

# Eight samples a step, one a micro-batch: sums of gradients are trees of up to eight.
config() { # file, stage, place, keys of "zinf" behind a comma
    cat >"$1" <<END
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": ${micro:-1}, "gradient_clipping": 0.5,
 ${more:-}
 "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 0.1}},
 "zero_optimization": {"stage": $2,
  "offload_param": {"device": "$3", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "$3", "nvme_path": "$work/drive"}},
 "zinf": {"threads": 1, "gradient_sum": "tree", "placement": "exact", "durability": "none",
  "timeout": 20, "dropout": 0.1${4:-}}}
END
}
train() { # model, output, options...
    model=$1 output=$2
    shift 2
    "$zinf" train --model "$model" --init --data "${data:-text.txt}" --seq-len 16 --device host --seed 3 \
        --steps 3 --progress none --output "$output" "$@"
}
pipes() { # model, seats, ranks of the pipeline, stage, place, options...
    into=$1.$2.$3.$4.$5
    what="$1: $2 seats, $3 in a pipeline, stage $4, $5"
    config pipes.json "$4" "$5" "${keys:-}"
    seats=$2 ranks=$3 of=$1
    shift 5
    rm -rf "$into"
    check "$what" run 0 train "$of" "$into" --config pipes.json --seats "$seats" \
        --pipeline-parallel "$ranks" "$@"
    check "has the bits of one" same_result "$of.one" "$into"
}

# ---- every number of micro-batches, each cut, each stage and place ----

config one.json 3 none
check "LLaMA on one rank" run 0 train llama llama.one --config one.json
pipes llama 2 2 3 none
pipes llama 4 4 1 nvme
pipes llama 4 2 0 none
pipes llama 4 2 1 cpu
pipes llama 4 2 2 nvme
pipes llama 4 2 3 nvme
pipes llama 8 4 3 cpu
pipes llama 5 5 3 none
keys=', "direct": false, "activation_checkpointing": "always", "activation_device": "cpu"'
pipes llama 2 2 3 nvme
keys=', "schedule": "update-in-backward"'
pipes llama 4 2 3 nvme
keys=', "pipeline_parts": [1, 1, 1, 2]'
pipes llama 4 4 3 none
keys=
more='"bf16": {"enabled": true},'
config one.json 3 none
check "in bf16" run 0 train llama bf16.one --config one.json
mkdir bf16 && cp llama/* bf16
pipes bf16 2 2 2 nvme
pipes bf16 4 4 3 cpu
more='"pipeline": {"stages": 2, "partition_method": "type:block"},'
config pipes.json 3 none
check "DeepSpeed's words" run 0 train llama words --config pipes.json --seats 2
check "do the same" same_result llama.one words
more=
cat >topo.yml <<END
train_batch_size: 8
train_micro_batch_size_per_gpu: 1
gradient_clipping: 0.5
model_topo:
  process_topology:
    axes: [pipe, data]
    dims: [2, 2]
  parts: [2, 3]
optimizer:
  type: AdamW
  params: {lr: 2.0e-3, weight_decay: 0.1}
zero_optimization: {stage: 1}
use_grad_ckpt: true
zinf: {threads: 1, gradient_sum: tree, dropout: 0.1, placement: exact, durability: none}
END
check "gdGPT's words" run 0 train llama topo --config topo.yml --seats 4
check "do the same" same_result llama.one topo
micro=8
config one.json 3 none
rm -r llama.one
check "one micro-batch" run 0 train llama llama.one --config one.json
pipes llama 3 3 2 nvme
micro=
config one.json 3 none
rm -r llama.one
check "eight again" run 0 train llama llama.one --config one.json

# ---- what goes between neighbours: 16 tokens x 32 numbers of a micro-batch, there and back ----

config pipes.json 3 none ', "trace": "trace.json"'
check "a trace of two" run 0 train llama traced --config pipes.json --seats 2 --pipeline-parallel 2
awk '/"(give|take|trade) / && match($0, /"bytes": *[0-9]+/) {
         split(substr($0, RSTART, RLENGTH), part, ":"); bytes += part[2]; n++ }
     END { print "# " bytes " in " n; exit !(n && bytes == 2 * 3 * 8 * 16 * 32 * (4 + 4)) }' trace.json
verdict $? "has the bytes of three steps of eight micro-batches, at both ends"

# ---- tables that ranks share, experts, encoders, adapters ----

for model in gpt2 mixtral; do
    config one.json 3 none
    check "$model on one rank" run 0 train $model $model.one --config one.json
    pipes $model 2 2 3 none
    pipes $model 4 4 1 cpu
    pipes $model 4 2 2 nvme
    pipes $model 4 2 3 nvme
done
keys=', "schedule": "update-in-backward"'
pipes gpt2 4 2 3 nvme
keys=
micro=8
rm -r gpt2.one
check "GPT-2, one micro-batch" run 0 train gpt2 gpt2.one --config one.json --micro-batch 8
pipes gpt2 2 2 3 nvme
keys=', "pack": "all"'
pipes gpt2 2 2 2 nvme
keys=
micro=
rm -r llama.one
check "LLaMA in chunks" run 0 train llama llama.one --config one.json --sequence-chunk 4
pipes llama 4 2 3 cpu --sequence-chunk 4
keys=', "activation_device": "cpu"'
pipes llama 2 2 3 nvme --sequence-chunk 4
keys=
rm -r llama.one
check "LLaMA, two share tensors" run 0 train llama llama.one --config one.json --seats 2 --tensor-parallel 2
pipes llama 8 2 3 nvme --tensor-parallel 2
rm -r llama.one
config one.json 3 none
check "LLaMA as it was" run 0 train llama llama.one --config one.json
{
    echo source,target
    sed 's/.*/&,& again/' text.txt
} >rows.csv
data=rows.csv
check "T5 on one rank" run 0 train t5 t5.one --config one.json --source-len 24
pipes t5 3 3 3 none --source-len 24
pipes t5 4 2 2 nvme --source-len 24
data=
more='"bf16": {"enabled": true},'
check "weights" run 0 "$zinf" init --arch llama --size 7b --layers 2 --hidden 64 --heads 4 \
    --tokenizer bytes --context 32 --output base
adapt() { # output, options...
    output=$1
    shift
    "$zinf" train --model base --lora-rank 4 --quantize nf4 --data text.txt --seq-len 16 \
        --device host --seed 3 --steps 3 --progress none --output "$output" "$@"
}
same_adapter() { # two outputs
    losses "$1" >adapted && losses "$2" | cmp - adapted &&
        cmp "$1/model/adapter_model.safetensors" "$2/model/adapter_model.safetensors" &&
        cmp "$1/model/adapter_base.json" "$2/model/adapter_base.json"
}
config one.json 3 none
check "adapters of 4 bits on one rank" run 0 adapt adapted.one --config one.json
config pipes.json 2 nvme
check "over four seats, two in a pipeline" run 0 adapt adapted.4 --config pipes.json --seats 4 \
    --pipeline-parallel 2
check "have the same bits" same_adapter adapted.one adapted.4
check "a checkpoint of theirs" run 0 adapt adapted.4 --config one.json --resume --steps 4
check "stands on the same base" complains "step 4: saved"
more=

# A rank of the pipeline begins magnitudes by its own layers' weights alone.
config dora.one.json 3 none ', "adapter": {"r": 4, "use_dora": true}'
config dora.json 2 cpu ', "adapter": {"r": 4, "use_dora": true}'
check "adapters with magnitudes on one rank" run 0 adapt dora.one --config dora.one.json
check "over two seats in a pipeline" run 0 adapt dora.2 --config dora.json --seats 2 --pipeline-parallel 2
check "have the same bits" same_adapter dora.one dora.2

# One rank trains nothing, and so has no updates to wait for in the first steps.
mkdir frozen && cp llama/* frozen
config one.json 3 none ', "freeze": ["*", "!*.layers.2.*"]'
check "one layer of a LLaMA" run 0 train frozen frozen.one --config one.json
for schedule in update-in-forward update-in-backward; do
    keys=", \"freeze\": [\"*\", \"!*.layers.2.*\"], \"schedule\": \"$schedule\""
    pipes frozen 2 2 3 nvme
done
keys=

# ---- several ranges of layers for each rank, in turn ----

config one.json 3 none
rm -r gpt2.one
check "GPT-2 on one rank" run 0 train gpt2 gpt2.one --config one.json
check "a higher LLaMA" run 0 new_model tall llama 7b 8
check "on one rank" run 0 train tall tall.one --config one.json
keys=', "pipeline_ranges": 2'
pipes tall 2 2 3 nvme
keys=', "pipeline_overlap": true'
pipes tall 4 4 1 nvme
pipes gpt2 4 2 2 none
keys=', "pipeline_ranges": 2'
pipes tall 4 4 1 cpu
pipes tall 8 4 2 nvme
pipes gpt2 2 2 3 none
pipes gpt2 4 2 3 nvme
pipes mixtral 2 2 2 nvme
pipes mixtral 4 2 3 cpu
keys=', "pipeline_ranges": 3, "schedule": "update-in-backward"'
pipes tall 2 2 3 nvme
pipes tall 3 3 2 cpu
keys=', "activation_device": "cpu", "pipeline_ranges": 2, "pipeline_parts": [1, 2, 4, 3]'
pipes tall 2 2 3 nvme
keys=', "pipeline_ranges": 2'
rm -r tall.one
check "in chunks" run 0 train tall tall.one --config one.json --sequence-chunk 4
pipes tall 4 2 3 cpu --sequence-chunk 4
more='"bf16": {"enabled": true},'
keys=
rm -r tall.one gpt2.one
config one.json 3 none
check "in bf16" run 0 train tall tall.one --config one.json
check "GPT-2 in bf16" run 0 train gpt2 gpt2.one --config one.json
more='"bf16": {"enabled": true}, "num_layers_per_virtual_pipeline_stage": 1,'
pipes tall 4 4 3 cpu
more='"bf16": {"enabled": true}, "virtual_pipeline_model_parallel_size": 2,'
pipes gpt2 2 2 3 nvme
config pipes.json 2 nvme
check "adapters of 4 bits over four seats" run 0 adapt adapted.ranges --config pipes.json --seats 4 \
    --pipeline-parallel 2
check "have the same bits" same_adapter adapted.one adapted.ranges
more='"virtual_pipeline_model_parallel_size": 2,'
data=rows.csv
pipes t5 2 2 2 nvme --source-len 24
pipes t5 3 3 2 cpu --source-len 24
check "a higher T5" run 0 new_model t5tall t5 small 4
more=
config one.json 3 none
check "on one rank" run 0 train t5tall t5tall.one --config one.json --source-len 24
keys=', "pipeline_ranges": 2'
pipes t5tall 3 3 2 nvme --source-len 24
keys=
config pipes.json 3 none ', "pipeline_ranges": 3'
check "over two in three ranges" fails train t5tall bad --config pipes.json --source-len 24 --seats 2 \
    --pipeline-parallel 2
check "has a unit that ranks would share by turns" complains "layers in several ranges of each rank use"
data=
more=
config pipes.json 3 cpu ', "pipeline_ranges": 2'
check "one saves" run 0 train tall tall.saves --config pipes.json --seats 2 --pipeline-parallel 2 --save-every 2
check "another goes on" run 0 train tall tall.saves --config pipes.json --seats 4 --pipeline-parallel 4 \
    --resume --steps 4
config pipes.json 3 cpu
check "one to the end" run 0 train tall tall.end --config pipes.json --steps 4
check "has the same weights" cmp tall.saves/model/model.safetensors tall.end/model/model.safetensors

# ---- checkpoints and figures go from mesh to mesh ----

config pipes.json 2 cpu
factors="--config pipes.json --optimizer Adafactor"
check "factored moments of one" run 0 train gpt2 factors.1 $factors
check "of four seats" run 0 train gpt2 factors.4 $factors --seats 4 --pipeline-parallel 2 --save-every 2
check "are the same" cmp factors.1/checkpoint-3/optimizer/moment2.safetensors \
    factors.4/checkpoint-3/optimizer/moment2.safetensors
rm -r factors.4/checkpoint-3
check "two go on" run 0 train gpt2 factors.4 $factors --seats 2 --pipeline-parallel 2 --resume=factors.4/checkpoint-2
check "to the same weights" cmp factors.1/model/model.safetensors factors.4/model/model.safetensors

check "four seats save" run 0 train llama saves --config pipes.json --seats 4 \
    --pipeline-parallel 2 --save-every 1
goes_on() { # output, options...
    output=$1
    shift
    mkdir "$output" && cp -r saves/checkpoint-1 "$output/" || return
    "$zinf" train --model llama --data text.txt --seq-len 16 --device host --seed 3 --steps 3 \
        --progress none --config pipes.json --resume="$output/checkpoint-1" --output "$output" "$@"
}
check "one goes on" run 0 goes_on on1
check "to the same weights" cmp llama.one/model/model.safetensors on1/model/model.safetensors
check "three others go on" run 0 goes_on on3 --seats 3 --pipeline-parallel 3
check "to the same weights" cmp llama.one/model/model.safetensors on3/model/model.safetensors
says_loss() { sed 's/.*"loss": \([^,]*\),.*/\1/' said.out; }
evaluate() {
    run 0 "$zinf" eval --model llama.one/model --data text.txt --seq-len 16 --device host \
        --config pipes.json "$@"
}
check "one rank evaluates" evaluate
says_loss >loss1
check "four evaluate" evaluate --seats 4 --pipeline-parallel 2
says_loss | cmp - loss1
verdict $? "with the same loss"
config pipes.json 3 nvme
check "two from a drive" evaluate --seats 2 --pipeline-parallel 2
says_loss | cmp - loss1
verdict $? "with the same loss"
config pipes.json 3 nvme ', "pipeline_ranges": 2'
check "two with two ranges each" evaluate --seats 2 --pipeline-parallel 2
says_loss | cmp - loss1
verdict $? "with the same loss"
generate() {
    run 0 "$zinf" generate --model llama.one/model --config pipes.json --device host --json \
        --max-new-tokens 4 --prompt "line 3 of" "$@"
}
check "a text of one" generate
cp said.out text1
check "of two with two ranges each" generate --seats 2 --pipeline-parallel 2
check "is the same" cmp said.out text1

number=0
while [ $number -lt 6 ]; do
    echo "{\"question\": \"$number?\", \"choices\": [\"a\", \"no\", \"four words\"], \"answer\": $((number % 3))}"
    number=$((number + 1))
done >choices.jsonl
choose() {
    "$zinf" eval --model llama.one/model --task multiple-choice --data choices.jsonl --device host \
        --threads 1 "$@"
}
check "choices on one rank" run 0 choose --predictions lines1
check "on two" run 0 choose --predictions lines2 --seats 2 --pipeline-parallel 2
check "have the same probabilities" cmp lines1 lines2

# ---- processes ----

rank() { # rank, world, output, options...
    RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1
    MASTER_PORT=$port TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_RUN_ID=run-$$ OMP_NUM_THREADS=1
    export RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT \
        TORCHELASTIC_RESTART_COUNT TORCHELASTIC_RUN_ID OMP_NUM_THREADS
    output=$3
    shift 3
    exec "$zinf" train --model llama --init --data text.txt --seq-len 16 --device host --seed 3 \
        --progress none --config pipes.json --output "$output" "$@"
}
two_ranks() { # what OUTPUT; by pipes.json
    (rank 1 2 "$2" --steps 3 --pipeline-parallel 2) >other.out 2>other.err </dev/null &
    other=$!
    (rank 0 2 "$2" --steps 3 --pipeline-parallel 2) >said.out 2>said.err </dev/null
    verdict $? "rank 0 of two $1"
    wait $other
    verdict $? "rank 1 of two"
    check "have the bits of one" same_result llama.one "$2"
    next_port
}
config pipes.json 3 cpu
two_ranks "over TCP" tcp
config pipes.json 3 cpu ', "pipeline_ranges": 2'
two_ranks "with two ranges each" tcp2
config pipes.json 3 cpu
next_port
(rank 1 2 killed --steps 100000 --pipeline-parallel 2) >other.out 2>other.err </dev/null &
other=$!
(rank 0 2 killed --steps 100000 --pipeline-parallel 2) >said.out 2>said.err </dev/null &
first=$!
wait_until $first has_lines killed 2
kill -KILL $other
wait $first
[ $? -eq 1 ]
verdict $? "a rank that is killed ends the other"
check "which names it" complains "rank 1"

# ---- steps that outlive the process ----

lasting="--model weights --data text.txt --seq-len 16 --device host --seed 3 --progress none"
lasting="$lasting --config lasting.json"
check "weights" run 0 "$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 4 \
    --tokenizer bytes --context 32 --output weights
config lasting.json 2 nvme
sed -i 's/"durability": "none"/"durability": "step"/' lasting.json
check "four seats are killed" killed_in_steps last.4 5 "$zinf" train $lasting --output last.4 --seats 4 \
    --pipeline-parallel 2 --steps 1000000
lasting="$lasting --steps $steps"
sed 's/"durability"/"pipeline_ranges": 2, &/' lasting.json >dealt.json
check "they do not go on with other ranges" run 1 "$zinf" train $lasting --output last.4 --seats 4 \
    --pipeline-parallel 2 --resume --config dealt.json
check "and say why" complains "another plan" "how layers are dealt"
check "they go on" run 0 "$zinf" train $lasting --output last.4 --seats 4 \
    --pipeline-parallel 2 --resume
check "one rank to the end" run 0 "$zinf" train $lasting --output last.one
check "to the same weights" cmp last.one/model/model.safetensors last.4/model/model.safetensors

if [ -n "$no_mpi" ]; then
    skip "processes of an MPI" "$no_mpi"
else
    mpi_train() { # processes, output, options...
        processes=$1 output=$2
        shift 2
        ranks "$processes" "$zinf" train --model llama --init --data text.txt --seq-len 16 \
            --device host --seed 3 --steps 3 --progress none --config pipes.json \
            --output "$output" "$@"
    }
    check "two processes of an MPI, with two seats each" run 0 mpi_train 2 mpi4 --seats 2 \
        --pipeline-parallel 4
    check "have the bits of one" same_result llama.one mpi4
    config pipes.json 3 cpu ', "pipeline_ranges": 2'
    check "with two ranges each" run 0 mpi_train 2 mpi.ranges --seats 2 --pipeline-parallel 2
    check "have the bits of one" same_result llama.one mpi.ranges
fi

# ---- what cannot be ----

config pipes.json 3 none
check "one rank" fails train llama bad --config pipes.json --pipeline-parallel 2
check "is too few" complains "zinf.mesh.pipe is 2, and this run has 1 rank"
check "six of five layers" fails train llama bad --config pipes.json --seats 6 --pipeline-parallel 6
check "are too many" complains "the model has 5 layers"
config pipes.json 3 none ', "pipeline_parts": [3, 3]'
check "parts of six" fails train llama bad --config pipes.json --seats 2 --pipeline-parallel 2
check "are refused" complains "zinf.pipeline_parts is [3" "5 in all"
config pipes.json 3 none ', "pipeline_ranges": 3'
check "six ranges of five layers" fails train llama bad --config pipes.json --seats 2 --pipeline-parallel 2
check "are too many" complains "with several ranges" "the model has 5 layers"
check "ranges of one rank" fails train llama bad --config pipes.json
check "are refused" complains "zinf.pipeline_ranges is 3" "there is no pipeline" "set zinf.mesh.pipe"
more='"num_layers_per_virtual_pipeline_stage": 2,'
config pipes.json 3 none
check "ranges of two of three blocks" fails train llama bad --config pipes.json --seats 2 --pipeline-parallel 2
check "are refused" complains "zinf.pipeline_range_layers is 2" "3 blocks" "divisor"
config pipes.json 3 none ', "pipeline_ranges": 2'
check "two words for ranges" fails train llama bad --config pipes.json --seats 2 --pipeline-parallel 2
check "are one too many" complains "leave out one"
check "blocks of a range on one rank" fails train llama bad --config pipes.json
check "are refused" complains "zinf.pipeline_range_layers is 2" "there is no pipeline"
finish
