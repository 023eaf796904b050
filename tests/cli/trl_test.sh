#!/bin/sh
# Losses of three steps as TRL's trainers have them: fine-tuning, pairs and single answers, scores;
# four kinds of tokenizers, answers that merge with their prompt, rows that are cut.
# tests/compare/against_trl.py made tests/fixtures/trl by TRL itself.
. "$SRCDIR/tests/support/command.sh"
made=$SRCDIR/tests/fixtures/trl
cd "$work" || exit 99

common="--steps 3 --seq-len 40 --no-shuffle --dropout 0 --lr-scheduler constant --threads 1
    --progress none --no-final-checkpoint"
train() { # output, options...
    out=$1
    shift
    # shellcheck disable=SC2086
    run 0 "$zinf" train $common "$@" --output "$out"
}
# The model of a tokenizer, and the same with the head that scores get.
make_model() { # name, file of tokenizer_kinds
    mkdir "$1.tokenizer" && cp "$SRCDIR/tests/fixtures/tokenizer_kinds/$2.json" "$1.tokenizer/tokenizer.json" &&
        cp "$made/$1.json" "$1.tokenizer/tokenizer_config.json" &&
        "$zinf" init --arch llama --size 7b --layers 2 --hidden 32 --heads 4 --context 128 --seed 3 \
            --tokenizer "$1.tokenizer" --output "$1" >said.out 2>said.err
}
echo '{"gradient_clipping": 0, "optimizer": {"type": "SGD", "params": {"lr": 0.0}}}' >still.json
echo '{"prompt": "a", "chosen": "b", "rejected": "the"}' >one.jsonl
make_head() { # name
    train "$1.headed" --model "$1" --data one.jsonl --config still.json --task reward \
        --micro-batch 1 --steps 1
}
near() { # output, losses...
    sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1/log.jsonl" >ours
    shift
    echo "$@" | tr ' ' '\n' | paste -d ' ' ours - | awk '
        { d = ($1 - $2) / $2; d = d < 0 ? -d : d; if (!(d < 1e-5)) bad = 1; if (d > worst) worst = d; n++ }
        END { printf "# off by %.1e\n", worst; exit bad || n != 3 }'
}
while read -r kind file loss task data micro times cut one two three; do
    [ -d "$kind" ] || make_model "$kind" "$file" || exit 99
    model=$kind
    [ "$task" != reward ] || model=$kind.headed/model
    [ -d "$model" ] || make_head "$kind"
    train "$kind.$loss" --model "$model" --data "$made/$data.jsonl" --config "$made/$loss.config.json" \
        --task "$task" --micro-batch "$micro" --accumulate "$times" --truncate "$cut" &&
        near "$kind.$loss" "$one" "$two" "$three"
    verdict $? "$kind: $loss"
done <"$made/losses.txt"
finish
