#!/bin/sh
# Classes of samples whose sequences are visited in chunks or dealt to ranks: losses are close to
# those of whole sequences, metrics on the way and predictions are theirs, and any number of seats
# gives the same bits. BERT and DeBERTa tell a class by the first row, LLaMA by the last one that is
# no padding, which any chunk may have.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99

awk 'BEGIN {
    print "words,kind"
    split("anna maria clara ruth", who)
    for (i = 0; i < 12; i++) {
        long = i % 4 == 1 ? " on a long and rainy monday" : ""
        print who[1 + i % 4] " bought " (i % 3 ? "a car" : "a loaf of bread") long "," i % 3
    }
}' >kinds.csv
columns="--text-column words --label-column kind"

config() { # file, chunk, parts, dropout
    cat >"$1" <<END
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": ${micro:-2}, "gradient_clipping": 0.5,
 "optimizer": {"type": "AdamW", "params": {"lr": 2e-3}},
 "zinf": {"sequence_chunk": $2, "context_parts": $3, "threads": 1, "gradient_sum": "tree",
  "dropout": $4}}
END
}
train() { # output, configuration, options...
    output=$1 config=$2
    shift 2
    "$zinf" train --config "$config" --device host --seed 3 --steps 4 --progress none --init \
        --task ${task:-classification} --model $model --data kinds.csv $columns --eval-data kinds.csv \
        --eval-every 2 --no-final-checkpoint --overwrite --output "$output" "$@"
}
tell() { # output, configuration, options...
    output=$1 config=$2
    shift 2
    "$zinf" eval --config "$config" --device host --task classification --model "$output/model" \
        --data kinds.csv $columns --predictions said.jsonl "$@"
}
metrics() { grep -o '"eval_accuracy": [^,}]*\|"eval_f1_macro": [^,}]*' "$1/log.jsonl"; }
same_metrics() { # two outputs
    metrics "$1" >first && [ -s first ] && metrics "$2" | cmp - first
}
classes() { sed 's/"logits.*//' said.jsonl; }

config whole.json 0 1 0
config chunks.json 5 1 0
config parts.json 0 2 0
config drops.json 5 2 0.1
config masks.json 0 1 0.1
for arch in "bert base" "deberta-v2 v2-xlarge" "llama 7b"; do
    # shellcheck disable=SC2086
    set -- $arch
    model=$1 tokenizer=bytes
    [ "$model" = llama ] || tokenizer=$SRCDIR/examples/classify
    check "$model" run 0 "$zinf" init --arch $model --size $2 --layers 2 --hidden 32 --heads 4 \
        --tokenizer "$tokenizer" --context 64 --output $model
    check "whole sequences" run 0 train whole whole.json
    check "their classes" run 0 tell whole whole.json
    classes >whole.said
    for cut in chunks parts; do
        check "$cut" run 0 train $cut $cut.json
        check "are close to whole sequences" close_to $cut whole
        check "and have their metrics" same_metrics $cut whole
        check "classes by $cut" run 0 tell whole $cut.json
        classes | cmp - whole.said
        verdict $? "are theirs"
    done
    check "with dropout" run 0 train one drops.json
    check "and that of whole sequences" run 0 train whole masks.json
    check "is close" close_to one whole
    check "by two seats" run 0 train two drops.json --seats 2 --context-parallel 2
    check "has the bits of one" same_result one two
    check "and its metrics" same_metrics one two
    check "classes by one" run 0 tell one drops.json
    mv said.jsonl one.said
    check "by two seats" run 0 tell one drops.json --seats 2 --context-parallel 2
    check "are the same" cmp said.jsonl one.said
done

task=regression
check "numbers of whole sequences" run 0 train whole whole.json
check "in chunks" run 0 train chunks chunks.json
check "are close" close_to chunks whole
finish
