#!/bin/sh
# Tasks other than continuing texts with tensors in parts: the bits of one rank by seats that share
# them, in training, evaluation and predictions.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99
awk 'BEGIN {
    print "words,kind" >"kinds.csv"
    for (i = 0; i < 24; i++) {
        print i " bought " (i % 2 ? "a car" : "bread") "," i % 2 >"kinds.csv"
        print "{\"anchor\": \"what is " i "\", \"positive\": \"it is " i "\"}" >"alike.jsonl"
        print i " is one line" >"lines.txt"
        printf "{\"prompt\": \"%d is \", \"chosen\": \"red\", \"rejected\": \"blue\"}\n", i >"pairs.jsonl"
    }
}'
cat >parts.json <<END
{"gradient_clipping": 0.5, "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 0.1}},
 "zinf": {"tensor_parts": 4, "threads": 1, "gradient_sum": "tree", "dropout": 0.1, "durability": "none"}}
END
new() { # folder, arch, size, tokenizer
    "$zinf" init --arch "$2" --size "$3" --layers 2 --hidden 32 --heads 4 --tokenizer "$4" \
        --context 32 --output "$1" >/dev/null
}
train() { # output, seats, options...
    output=$1 seats=$2
    shift 2
    "$zinf" train --config parts.json --device host --seed 3 --steps 3 --micro-batch 4 --progress none \
        --no-final-checkpoint --output "$output" --overwrite --seats "$seats" --tensor-parallel "$seats" "$@"
}
same_adapter() { # two outputs
    losses "$1" >adapted && losses "$2" | cmp - adapted &&
        cmp "$1/model/adapter_model.safetensors" "$2/model/adapter_model.safetensors"
}
new bert bert base "$SRCDIR/examples/classify" && new llama llama 7b bytes &&
    new deberta deberta-v2 v3-base "$SRCDIR/examples/classify"
verdict $? "three models"
columns="--text-column words --label-column kind"
for task in "classification --model bert --data kinds.csv $columns" \
    "classification --model llama --data kinds.csv $columns" \
    "classification --model deberta --data kinds.csv $columns" \
    "masked-lm --model bert --data lines.txt --seq-len 16" \
    "masked-lm --model deberta --data lines.txt --seq-len 16" \
    "embedding --model bert --data alike.jsonl" "embedding --model llama --data alike.jsonl"; do
    check "$task: one rank" run 0 train one 1 --task $task
    check "two seats" run 0 train two 2 --task $task
    check "have its bits" same_result one two
done
# Relative positions: a shard has its heads' products of the table's rows, which all ranks have.
relative() { # output, parts
    sed "s/\"tensor_parts\": 4/\"tensor_parts\": $2/; s/\"dropout\": 0.1/\"dropout\": 0/" parts.json >relative.json
    train "$1" 1 --config relative.json --task masked-lm --model deberta --data lines.txt --seq-len 16
}
check "DeBERTa in one part" run 0 relative cut.1 1
check "in four" run 0 relative cut.4 4
check "is close to it" close_to cut.4 cut.1
for loss in dpo orpo; do
    pairs="--task preference --preference $loss --model llama --data pairs.jsonl --seq-len 24 --lora-rank 2"
    check "$loss: one rank" run 0 train one 1 $pairs
    check "four seats" run 0 train four 4 $pairs
    check "have its bits" same_adapter one four
done

# Its checkpoint names the head among what is trained whole.
adapt() { # output, seats, options...
    output=$1 seats=$2
    shift 2
    # shellcheck disable=SC2086
    "$zinf" train --config parts.json --device host --seed 3 --micro-batch 4 --progress none \
        --output "$output" --seats "$seats" --tensor-parallel "$seats" --lora-rank 2 \
        --task classification --model bert --data kinds.csv $columns "$@"
}
check "adapters of a classifier" run 0 adapt whole 1 --steps 3
check "two steps of these" run 0 adapt halted 1 --steps 2
check "two seats go on" run 0 adapt halted 2 --steps 3 --resume
check "to the bits of one" same_adapter whole halted

# ---- evaluation ----

score() { # file of predictions, seats
    "$zinf" eval --config parts.json --device host --task classification --model told/model \
        --data kinds.csv $columns --micro-batch 4 --predictions "$1" --seats "$2" --tensor-parallel "$2"
}
check "a model of classes" run 0 train told 4 --task classification --model llama --data kinds.csv $columns
check "its predictions by one rank" run 0 score one.jsonl 1
check "by two seats" run 0 score two.jsonl 2
check "are the same" cmp one.jsonl two.jsonl
finish
