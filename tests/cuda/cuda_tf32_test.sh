#!/bin/sh
# cuda_tf32: the configuration's word reaches the device, whose products then round their operands;
# a GPU without the units is refused. On the stand-in for CUDA.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
module=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
[ -f "$module" ] || { skip "TF32 on the CUDA device" "no stand-in here"; finish; }
ZINF_CUDA_MODULE=$module
export ZINF_CUDA_MODULE
"$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 2 --context 64 --vocab 257 \
    --tokenizer bytes --output model >/dev/null 2>&1 || exit 99
make_text text.txt 20
train() { # output, options...
    output=$1
    shift
    run 0 "$zinf" train --model model --data text.txt --seq-len 32 --micro-batch 2 --steps 3 --lr 1e-3 \
        --threads 1 --dropout 0 --progress none --no-final-checkpoint --output "$output" "$@"
}
differ() { # output, output, least and most of the largest difference of a loss
    sed 's/.*"loss": \([^,]*\),.*"grad_norm": \([^,]*\),.*/\1/' "$1/log.jsonl" >a
    sed 's/.*"loss": \([^,]*\),.*"grad_norm": \([^,]*\),.*/\1/' "$2/log.jsonl" | paste a - |
        awk -v least="$3" -v most="$4" '{ d = $1 - $2; d = d < 0 ? -d : d; worst = d > worst ? d : worst }
            END { exit worst < least || worst > most || NR != 3 }'
}

echo '{"zinf": {"matmul_type": "tf32"}}' >tf32.json
check "fp32" train plain --device cuda
check "the key" train key --device cuda --config tf32.json
check "rounds operands" differ plain key 1e-7 1e-3
check "Trainer's word" train word --device cuda --tf32 True
check "is the key" differ key word 0 0
check "in bf16" train bf16 --device cuda --dtype bf16
check "with the key" train bf16-key --device cuda --dtype bf16 --tf32
check "16-bit products are as they were" differ bf16 bf16-key 0 0
ZINF_STANDIN_CAPABILITY=75
export ZINF_STANDIN_CAPABILITY
"$zinf" train --model model --data text.txt --micro-batch 2 --steps 1 --device cuda --config tf32.json --output old \
    >said.out 2>said.err
[ $? -eq 1 ] && complains 'zinf.matmul_type "tf32"' "sm_80 (Ampere)"
verdict $? "an older GPU is refused"
check "on a CPU" train cpu --device host --config tf32.json
complains 'zinf.matmul_type "tf32" changes nothing on a CPU'
verdict $? "it is said to change nothing"
check "on a CPU without it" train cpu-plain --device host
check "the losses are the same" differ cpu cpu-plain 0 0
finish
