#!/bin/sh
# gdGPT's configurations: model, data, lengths and outputs that a file names, the layers of its
# pipeline as a model, seats and processes; and layers of a pipeline to 'zinf export'.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
fixtures=$SRCDIR/tests/fixtures

awk 'BEGIN { print "["
    for (i = 0; i < 9; i++)
        printf "%s{\"type\": \"instruct\", \"instruct\": \"say %d\", \"output\": \"%d\"}", i ? ",\n" : "", i, i
    print ",\n{\"type\": \"pretrain\", \"text\": \"a text of its own\"}"
    print ",\n{\"type\": \"conversation\", \"rounds\": [[\"ask\", \"hello\"], [\"ans\", \"hello\"]]}"
    print ",\n{\"type\": \"ref_qa\", \"reference\": \"a river\", \"rounds\": [[\"ask\", \"what\"], [\"ans\", \"a river\"]]}]"
}' >rows.json

# ---- the file alone says what is trained ----

check "a BLOOM" run 0 "$zinf" init --arch bloom --size 560m --layers 4 --hidden 32 --heads 4 \
    --tokenizer bytes --output bloom
topology="
model_topo:
  process_topology:
    axes: [pipe, data]
    dims: [2, 1]
  parts: [3, 3]"
file() { # output, a pipeline or nothing
    cat <<END
train_batch_size: 6
train_micro_batch_size_per_gpu: 1
dataloader_drop_last: true
optimizer:
  type: AdamW
  params: {lr: 1.0e-3, weight_decay: 4.0e-5}
  no_wd_kws: ['bias', '[a-zA-Z]*norm']
scheduler:
  type: WarmupCosineLR
  params: {warmup_num_steps: 2, warmup_min_ratio: 0.02, cos_min_ratio: 0.2}
fp16: {enabled: true, auto_cast: false, fused_optimizer: false, loss_scale: 0, initial_scale_power: 8}
zero_allow_untested_optimizer: true
zinf: {gradient_sum: tree}
aux_max_z_loss: # of the largest logits
  weight: 2.0e-2
$2
model_path: ./${model:-bloom}/
save_path: ./$1
data_path: ./rows.json
n_epoches: 2
max_seq_len: 320
from_scratch: false
use_grad_ckpt: false
use_flash_attn: false
END
}
trains() { # file, options...
    config=$1
    shift
    run 0 "$zinf" train --config "$config" --device host --threads 1 --progress none "$@"
}
file one >one.yml
check "the file on one rank" trains one.yml
steps() { [ "$(losses "$1" | wc -l)" -eq "$2" ]; }
check "two passes over 12 rows" steps one 4
check "with the length that it says" trains one.yml --plan --steps 1 --output once
complains "windows of 320"
verdict $? "is 320 tokens"
check "and options above it" steps once 1
check "keys that are options are said" complains "\"model_path\"" "options of 'zinf train' (--model"
sed 's/2.0e-2/0/' one.yml | sed 's/save_path.*/save_path: plain/' >plain.yml
check "without the loss of the largest logits" trains plain.yml
same_result one plain
[ $? -ne 0 ]
verdict $? "is another training"
file pipes "$topology" >pipes.yml
check "two seats in a pipeline" trains pipes.yml --seats 2
check "have the bits of one" same_result one pipes
if [ -n "$no_mpi" ]; then
    skip "processes of an MPI" "$no_mpi"
else
    file mpi "$topology" >mpi.yml
    check "two processes" run 0 ranks 2 "$zinf" train --config mpi.yml --device host --threads 1 \
        --progress none
    check "have the bits of one" same_result one mpi
fi

# ---- without a pipeline: stage 3 of ZeRO, parameters on the devices ----

zero_file() { # output
    cat <<END
train_batch_size: 4
train_micro_batch_size_per_gpu: 1
dataloader_drop_last: true
steps_per_print: 20
optimizer:
  type: AdamW
  params: {lr: 1.0e-3, betas: [0.9, 0.999], eps: 1.0e-8, weight_decay: 4.0e-5}
scheduler:
  type: WarmupCosineLR
  params: {warmup_num_steps: 2, warmup_min_ratio: 0.02, cos_min_ratio: 0.2}
bf16: {enabled: false}
fp16:
  enabled: true
  auto_cast: false
  loss_scale: 0
  initial_scale_power: 16
  loss_scale_window: 1000
  hysteresis: 2
  min_loss_scale: 1
zero_allow_untested_optimizer: true
zero_force_ds_cpu_optimizer: false
zero_optimization:
  stage: 3
  memory_efficient_linear: false
  contiguous_gradients: true
  overlap_comm: true
  reduce_scatter: true
  reduce_bucket_size: 10000000
zinf: {gradient_sum: tree}
from_scratch: false
model_path: ./${model:-bloom}/
save_path: ./$1
n_epoches: 1
max_seq_len: 320
data_path: ./rows.json
use_grad_ckpt: false
END
}
zero_file zero1 >zero.yml
check "the file of ZeRO on one rank" trains zero.yml
zero_file zero2 >zero.yml
check "on two seats" trains zero.yml --seats 2
check "has the bits of one" same_result zero1 zero2
if [ -n "$no_mpi" ]; then
    skip "processes with the file of ZeRO" "$no_mpi"
else
    zero_file zero4 >zero.yml
    check "on two processes of two seats" run 0 ranks 2 "$zinf" train --config zero.yml --device host \
        --threads 1 --progress none --seats 2
    check "has the bits of one" same_result zero1 zero4
fi

check "other commands take the file, too" run 0 "$zinf" config --config one.yml
grep -q "^zinf.max_z_loss  *0.02 " said.out
verdict $? "with the loss of the largest logits"
sed 's/^n_epoches/n_epoch/' one.yml >wrong.yml
check "an unknown key" fails "$zinf" train --config wrong.yml
check "is one clear error" complains 'unknown key "n_epoch"' '"n_epoches"'
sed 's/^data_path.*/data_path: [a.json, b.json]/' one.yml >several.yml
check "an option that is a list" fails "$zinf" train --config several.yml
check "is not left out" complains '"data_path" must be one word: --data takes several'
mkdir none
check "tensor parts" fails "$zinf" train --config one.yml --device host --seats 2 \
    --tensor-parallel 2 --output none
check "have no largest logit" complains "zinf.max_z_loss"

# ---- layers of a pipeline ----

for model in bloom_a llama_a; do
    train() { # model, output
        run 0 "$zinf" train --model "$1" --data "$fixtures/$model/tokens.npy" --seq-len 8 --steps 2 \
            --threads 1 --progress none --output "$2"
    }
    check "$model as transformers has it" train "$fixtures/$model" "$model.whole"
    check "and as layers" train "$fixtures/layers/$model" "$model.layers"
    check "give the same bits" same_result "$model.whole" "$model.layers"
    check "layers are exported" run 0 "$zinf" export --checkpoint "$fixtures/layers/$model" \
        --output "$model.out"
    check "which are trained" train "$model.out" "$model.again"
    check "to the same bits" same_result "$model.whole" "$model.again"
done
cp -r "$fixtures/layers/llama_a" cut && chmod -R u+w cut && rm cut/layer_02-model_states.pt
check "a layer that is missing" fails "$zinf" inspect cut
check "is named" complains "none of layer 2"
cp -r "$fixtures/layers/llama_a" shared && chmod -R u+w shared &&
    mv shared/layer_01-model_states.pt shared/layer_01-model_01-model_states.pt
check "layers that ranks share" fails "$zinf" train --model shared --data "$fixtures/llama_a/tokens.npy"
check "are refused" complains "2 ranks share the matrices"
rm -r cut && cp -r "$fixtures/layers/llama_a" cut && chmod -R u+w cut && rm cut/config.json
check "layers without config.json" fails "$zinf" export --checkpoint cut --output no
check "ask for it" complains "config.json"
cp -r "$fixtures/layers/llama_a" foreign && chmod -R u+w foreign &&
    cp "$fixtures/torch/call.bin" foreign/layer_02-model_states.pt
check "a pickle that would run something" fails "$zinf" export --checkpoint foreign --output no
check "runs nothing" complains "layer_02-model_states.pt: its pickle calls"
finish
