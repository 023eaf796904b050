#!/bin/sh
# zinf gradients of every task: the loss and the norm that the first step of a training has on the same
# batch, and a file with a tensor for everything that is trained.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
"$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 2 --vocab 257 --context 64 \
    --output gpt2 >/dev/null || exit 99
"$zinf" init --arch t5 --size small --layers 1 --hidden 32 --heads 2 --vocab 384 --tokenizer bytes \
    --output t5 >/dev/null || exit 99
make_text text.txt 20
awk 'BEGIN {
    for (i = 0; i < 12; i++) {
        printf "{\"source\": \"%d times\", \"target\": \"t%d\"}\n", i, i >"seq2seq.jsonl"
        printf "{\"text\": \"%d is it\", \"label\": \"%s\"}\n", i, i % 2 ? "odd" : "even" >"classes.jsonl"
        printf "{\"text\": \"%d is it\", \"label\": %g}\n", i, i / 4 >"numbers.jsonl"
        printf "{\"prompt\": \"%d is \", \"chosen\": \"red\", \"rejected\": \"blue\"}\n", i >"pairs.jsonl"
        printf "{\"prompt\": \"%d is \", \"completion\": \"red\", \"label\": %s}\n", i,
            i % 3 ? "true" : "false" >"unpaired.jsonl"
    }
}'
number() { # key: of the result
    sed -n "s/.*\"$1\": *\([-+.e0-9]*\).*/\1/p" said.out | head -n 1
}
logged() { # key: of the first step
    sed -n "1s/.*\"$1\": *\([-+.e0-9]*\).*/\1/p" run/log.jsonl
}
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && d * d <= 1e-10 * (1 + a * a)) }'
}
step() { # output, model, data, options...: one step of a training
    out=$1 model=$2 data=$3
    shift 3
    run 0 "$zinf" train --model "$model" --data "$data" --seq-len 24 --micro-batch 4 --accumulate 1 \
        --threads 1 --device host --no-shuffle --dropout 0 --steps 1 --progress none --clip 0 \
        --no-final-checkpoint --output "$out" "$@"
}
task() { # model, data, options...
    model=$1 data=$2
    shift 2
    run 0 "$zinf" gradients --model "$model" --data "$data" --seq-len 24 --micro-batch 4 \
        --threads 1 --device host --output g.safetensors "$@" || return 1
    loss=$(number loss) norm=$(number grad_norm)
    step run "$model" "$data" --overwrite "$@" || return 1
    echo "# loss $loss, trained $(logged loss); norm $norm, trained $(logged grad_norm)"
    near "$loss" "$(logged loss)" && near "$norm" "$(logged grad_norm)" && [ -s g.safetensors ]
}
headed() { # task, data: of a model that has its head
    step "$1" gpt2 "$2" --task "$1" && task "$1/model" "$2" --task "$1"
}
check "language" task gpt2 text.txt
check "sources and targets" task t5 seq2seq.jsonl --task seq2seq
check "classes" headed classification classes.jsonl
check "numbers" headed regression numbers.jsonl
check "a reward model" headed reward pairs.jsonl
check "adapters" step adapter gpt2 text.txt --lora-rank 2
check "which a second training goes on from" task gpt2 text.txt --adapter adapter/model
for loss in dpo ipo orpo simpo; do
    echo "{\"zinf\": {\"preference\": \"$loss\"}}" >$loss.json
    check "pairs by $loss" task gpt2 pairs.jsonl --task preference --adapter adapter/model \
        --config $loss.json
done
echo '{"zinf": {"preference": "kto"}}' >kto.json
check "answers with labels by kto" task gpt2 unpaired.jsonl --task preference \
    --adapter adapter/model --config kto.json
finish
