#!/bin/sh
# choices: zinf eval --task multiple-choice: figures that follow from the log-probabilities that are
# written, the same by several ranks of one process and by batches of any size, an encoder-decoder,
# and refusals.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
i=0
while [ $i -lt 30 ]; do
    subject=anatomy
    [ $((i % 3)) -ne 0 ] || subject=virology
    echo "{\"question\": \"What is $i?\", \"choices\": [\"a$i\", \"no\", \"é\", \"four words are here\"], \"answer\": $((i % 4)), \"subject\": \"$subject\"}"
    i=$((i + 1))
done >rows.jsonl
head -n 6 rows.jsonl >examples.jsonl
for arch in llama t5; do
    check "a $arch" run 0 "$zinf" init --arch $arch --layers 2 --hidden 32 --heads 2 --vocab 257 \
        --context 512 --seed 3 --output $arch
done
choose() { # model, options...
    model=$1
    shift
    "$zinf" eval --model "$model" --task multiple-choice --data rows.jsonl --threads 1 \
        --device host "$@"
}
# acc, acc_norm and acc_bytes of the written lines, by the definition.
count_right() { # figure
    sed "s/.*\"answer\":\([0-9]*\).*\"$1\":\([0-9]*\).*/\1 \2/" lines.jsonl |
        awk '{n += $1 == $2} END {printf "%.9g", n / NR}'
}
check "letters" run 0 choose llama --predictions lines.jsonl --output all.json
says '"questions": 30' '"acc_stderr":' "\"acc\": $(count_right acc)" \
    "\"acc_norm\": $(count_right acc_norm)"
verdict $? "are counted"
cp said.out one.out
[ "$(wc -l <lines.jsonl)" = 30 ] && holds all.json '"anatomy"' '"virology"' '"stem"' '"other"' \
    '"acc,none"' '"acc_stderr,none"' '"sample_len":	30'
verdict $? "and written by subject and group"
likeliest=$(sed 's/.*"logprobs":\[\([^]]*\)\].*/\1/' lines.jsonl |
    awk -F, '{b = 1; for (k = 2; k <= NF; k++) if ($k > $b) b = k; printf "%d ", b - 1}')
[ "$likeliest" = "$(sed 's/.*"acc":\([0-9]*\).*/\1/' lines.jsonl | tr '\n' ' ')" ]
verdict $? "the likeliest is chosen"
cp lines.jsonl lines.one
check "by two seats" run 0 choose llama --seats 2 --predictions lines.jsonl
cmp -s said.out one.out && cmp -s lines.jsonl lines.one
verdict $? "the same to the last bit"
echo '{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "train_micro_batch_size_per_gpu": 4}' >offload.json
check "of a model in RAM, by three seats" run 0 choose llama --seats 3 --config offload.json \
    --predictions lines.jsonl
cmp -s lines.jsonl lines.one
verdict $? "the same, too"
echo '{"train_micro_batch_size_per_gpu": 4, "zinf": {"sequence_chunk": 100}}' >chunks.json
check "in chunks" run 0 choose llama --config chunks.json --predictions lines.chunks
check "and in a pipeline" run 0 choose llama --config chunks.json --seats 2 --pipeline-parallel 2 \
    --predictions lines.jsonl
cmp -s lines.jsonl lines.chunks
verdict $? "the same by both"
sed 's/"sequence_chunk": 100/"context_parts": 4/' chunks.json >parts.json
check "in parts" run 0 choose llama --config parts.json --predictions lines.parts
close_lines() { # log-probabilities of two files
    for lines in "$1" "$2"; do
        sed 's/.*"logprobs":\[\([^]]*\)\].*/\1/; s/,/ /g' "$lines" >"$lines.numbers"
    done
    paste -d ' ' "$1.numbers" "$2.numbers" | awk '{ for (i = 1; i <= 4; i++) { d = $i - $(i + 4)
        if (NF != 8 || d * d > 1e-12 * $i * $i) bad = 1 } } END { exit bad || !NR }'
}
check "close to whole sequences" close_lines lines.parts lines.one
check "by four that share them, two in a pipeline" run 0 choose llama --config parts.json --seats 4 \
    --context-parallel 2 --pipeline-parallel 2 --predictions lines.jsonl
cmp -s lines.jsonl lines.parts
verdict $? "the same to the last bit"
check "by four, two by two" run 0 choose llama --config parts.json --seats 4 --context-parallel 2 \
    --predictions lines.jsonl
cmp -s lines.jsonl lines.parts
verdict $? "the same, too"
check "texts" run 0 choose llama --choices texts --predictions lines.jsonl
! cmp -s lines.jsonl lines.one && says "\"acc_bytes\": $(count_right acc_bytes)"
verdict $? "are something else"
check "examples" run 0 choose llama --few-shot examples.jsonl --shots 2 --predictions lines.jsonl
! cmp -s lines.jsonl lines.one
verdict $? "change it"
check "an encoder-decoder" run 0 choose t5
says '"questions": 30'
verdict $? "reads the question"
check "too many examples" run 1 choose llama --few-shot examples.jsonl --shots 5
complains "--few-shot examples.jsonl has 2 examples of the subject virology" "--shots asks for 5"
verdict $? "are refused by name"
check "examples without a file" run 1 choose llama --shots 5
complains "--few-shot FILE"
verdict $? "ask for one"
check "training" run 1 "$zinf" train --model llama --task multiple-choice --data rows.jsonl \
    --steps 1 --output o --device host
complains "--task multiple-choice is for zinf eval only"
verdict $? "is refused"
finish
