#!/bin/sh
# cuda_classify: a DeBERTa with its convolution, whose attention is to relative positions, is trained
# on the CUDA device as on the host, from wherever it lives. On the stand-in for CUDA.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
module=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
[ -f "$module" ] || { skip "DeBERTa on the CUDA device" "no stand-in here"; finish; }
ZINF_CUDA_MODULE=$module
export ZINF_CUDA_MODULE

train() { # output, options...
    t_output=$1
    shift
    run 0 "$zinf" train --model deberta --init --output "$t_output" --task classification \
        --data "$SRCDIR/examples/classify/pairs-eval.tsv" --source-column sentence1,sentence2 \
        --micro-batch 4 --steps 4 --lr 1e-3 --threads 1 --progress none --no-final-checkpoint "$@"
    sed -n 's/.*"loss": \([0-9.e+-]*\).*/\1/p' "$t_output/log.jsonl" >"$t_output.losses"
}
near() { # folder, folder: four losses each, as near as sums in another order are
    paste "$1.losses" "$2.losses" | awk '
        { d = $1 - $2; bad += (d < 0 ? -d : d) > 1e-5 * $2 }
        END { exit bad > 0 || NR != 4 }'
}

check "a new DeBERTa" run 0 "$zinf" init --arch deberta-v2 --size v2-xlarge --layers 2 --hidden 32 \
    --heads 2 --context 64 --tokenizer "$SRCDIR/examples/classify" --output deberta
check "on the host" train host --device host
check "on the CUDA device" train cuda --device cuda
check "has the same losses" near cuda host
echo '{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"},
    "offload_optimizer": {"device": "cpu"}}}' >offload.json
check "on the CUDA device, from RAM" train offloaded --device cuda --config offload.json
cmp cuda/model/model.safetensors offloaded/model/model.safetensors
verdict $? "has the same bits"
check "on the host, in chunks" train parts --device host --sequence-chunk 16
check "on the CUDA device, in chunks" train cuda-parts --device cuda --sequence-chunk 16
check "has the losses of the host" near cuda-parts parts
check "and those of whole sequences" near cuda-parts cuda
check "on the CUDA device, in chunks, from RAM" train offloaded-parts --device cuda \
    --sequence-chunk 16 --config offload.json
cmp cuda-parts/model/model.safetensors offloaded-parts/model/model.safetensors
verdict $? "has the same bits in chunks"
finish
