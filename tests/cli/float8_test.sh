#!/bin/sh
# Products of floats of 8 bits: small models learn as they do in bf16, a run goes on only with the
# products that it began with, and what cannot be multiplied so is refused by name.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
awk 'BEGIN {
    for (i = 0; i < 400; i++) printf "{\"text\": \"%d and %d make %d.\"}\n", i % 7, i % 5, i % 7 + i % 5
}' >sums.jsonl
for arch in gpt2 llama; do
    size="--layers 2 --hidden 64 --heads 4 --vocab 257 --context 64"
    # shellcheck disable=SC2086
    "$zinf" init --arch $arch --size "$([ $arch = gpt2 ] && echo small || echo 7b)" $size \
        --output $arch >/dev/null || exit 99
done
echo '{"bf16": {"enabled": true}}' >same.json
echo '{"bf16": {"enabled": true}, "zinf": {"matmul_type": "fp8"}}' >fp8.json
echo '{"zinf": {"matmul_type": "fp8"}}' >fp32.json

train() { # status, model, configuration, output, options...
    wanted=$1 folder=$2 config=$3 out=$4
    shift 4
    run "$wanted" "$zinf" train --model "$folder" --config $config.json --data sums.jsonl --seq-len 24 \
        --micro-batch 4 --lr 2e-3 --warmup-steps 10 --dropout 0 --seed 3 --threads 1 \
        --progress none --output "$out" "$@"
}
mean() { # output: of the last 20 steps' losses
    sed -n 's|.*"loss": \([-+.e0-9]*\).*|\1|p' "$1/log.jsonl" | tail -n 20 |
        awk '{ sum += $1 } END { print sum / NR }'
}
first() { sed -n 's|.*"loss": \([-+.e0-9]*\).*|\1|p' "$1/log.jsonl" | head -n 1; }
is() { awk "BEGIN { exit !($1) }"; }

for arch in gpt2 llama; do
    check "$arch: 200 steps in bf16" train 0 $arch same $arch-same --steps 200 --no-final-checkpoint
    check "$arch: and in floats of 8 bits" train 0 $arch fp8 $arch-fp8 --steps 200 --no-final-checkpoint
    same=$(mean $arch-same) fp8=$(mean $arch-fp8)
    echo "# $arch: $(first $arch-same) to $same, $(first $arch-fp8) to $fp8"
    is "$same < 0.3 * $(first $arch-same) && ($fp8 - $same) ^ 2 < (0.01 * $same) ^ 2 && $fp8 != $same"
    verdict $? "$arch: as low, within 1 %"
done

check "a run with a checkpoint" train 0 gpt2 fp8 part --steps 2
check "does not go on in bf16" train 1 gpt2 same part --steps 4 --resume
grep -q matmul_type said.err
verdict $? "which is named"
check "fp32 is refused" train 1 gpt2 fp32 none --steps 1
grep -q '"bf16": {"enabled": true}' said.err
verdict $? "with the way out"
"$zinf" init --arch gpt2 --size small --layers 1 --hidden 40 --heads 2 --vocab 257 --context 64 \
    --output odd >/dev/null || exit 99
check "40 inputs are refused" train 1 odd fp8 none --steps 1
grep -q 'h.0.attn.c_attn.weight has 40 inputs and 120 outputs.*multiples of 16' said.err
verdict $? "by the layer's name"
echo '{"bf16": {"enabled": true}, "zinf": {"matmul_type": "fp8", "tensor_parts": 2}}' >parts.json
check "matrices in parts are refused" train 1 gpt2 parts none --steps 1
grep -q 'zinf.tensor_parts' said.err
verdict $? "by the key"
check "an A100 is refused" run 1 "$zinf" estimate --model gpt2 --config fp8.json --micro-batch 4 --machine a100-80
grep -q 'sm_89' said.err
verdict $? "with what it lacks"
# Frozen matrices in RAM go to a GPU in 8 bits each, where the link limits.
"$zinf" init --arch llama --size 7b --layers 8 --hidden 2048 --heads 16 --vocab 1000 --context 512 \
    --config-only --dtype bf16 --output wide >/dev/null || exit 99
for type in same fp8; do
    cat >$type-lora.json <<END
{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"},
  "offload_optimizer": {"device": "cpu"}},
 "zinf": {"matmul_type": "$type", "adapter": {"r": 8, "lora_alpha": 16}}}
END
    check "adapters, $type" run 0 "$zinf" estimate --model wide --config $type-lora.json --machine 4090,ram=64G \
        --device-memory 400MiB --seq-len 256 --micro-batch 1 --json
    cp said.out $type-lora.out
done
fetched() { sed -n 's/.*"h2d":[^0-9]*\([0-9][0-9][0-9][0-9]*\),*$/\1/p' $1-lora.out | head -n 1; }
echo "# to the device: $(fetched same) and $(fetched fp8) bytes"
is "$(fetched fp8) < 0.6 * $(fetched same)"
verdict $? "half the bytes"
check "an H100 is not" run 0 "$zinf" estimate --model gpt2 --config fp8.json --micro-batch 4 --machine h100
finish
