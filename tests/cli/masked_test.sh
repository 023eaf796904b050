#!/bin/sh
# masked-lm: a small BERT learns tokens that are masked, from lines, rows and a stream of text; an
# evaluation masks the same each time; masks are those of the sample, wherever a run is cut; and
# what has no head or no mask is named.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99

field() { sed -n "s/.*\"$1\": *\\([0-9.e-]*\\).*/\\1/p" "$2"; }
near() { awk -v x="$1" -v y="$2" 'BEGIN { exit !(x != "" && x - y < 2e-6 && y - x < 2e-6) }'; }
below() { awk -v x="$1" -v y="$2" 'BEGIN { exit !(x < y) }'; }
train() { # status, output, options...
    t_status=$1 t_output=$2
    shift 2
    run "$t_status" "$zinf" train --device host --threads 1 --output "$t_output" --progress none \
        --task masked-lm --lr 3e-3 --lr-scheduler constant "$@"
}
evaluate() { # status, options...
    e_status=$1
    shift
    run "$e_status" "$zinf" eval --device host --threads 1 --task masked-lm "$@"
}

check "a new BERT" run 0 "$zinf" init --arch bert --size base --layers 1 --hidden 48 --heads 2 \
    --context 32 --tokenizer "$SRCDIR/examples/classify" --output bert
sed 1d "$SRCDIR/examples/classify/pairs-train.tsv" | cut -f1 | head -n 240 >lines.txt
awk '{ print "{\"text\": \"" $0 "\"}" }' lines.txt >rows.jsonl

# ---- data ----

check "lines of text" train 0 out --model bert --init --data lines.txt --eval-data lines.txt \
    --format text --micro-batch 16 --steps 120 --eval-every 60
complains "eval loss" "perplexity" "zinf eval --task masked-lm"
verdict $? "are learned, with perplexity"
grep -q BertForMaskedLM out/model/config.json
verdict $? "and the folder says what it is"
check "an evaluation" evaluate 0 --model out/model --data lines.txt --format text
first=$(field loss said.out)
below "$first" 3.0 && [ "$(field tokens said.out)" -gt 150 ]
verdict $? "is better than a guess: $first"
evaluate 0 --model out/model --data rows.jsonl --format text --micro-batch 5
near "$(field loss said.out)" "$first"
verdict $? "has the same masks for the same rows, from another file"
evaluate 0 --model out/model --data rows.jsonl --pack
near "$(field loss said.out)" "$first"
verdict $? "and packed"
evaluate 0 --model out/model --data lines.txt --format text --mlm-probability 0.5
[ "$(field tokens said.out)" -gt 700 ]
verdict $? "more of them with a larger --mlm-probability"
check "a stream" train 0 stream --model out/model --data lines.txt --steps 2 --seq-len 24
complains "2,179 tokens in 99 windows of 24"
verdict $? "has room for [CLS] and [SEP] in its windows"

# ---- one sequence of masks ----

same="--model bert --init --data rows.jsonl --format text --seed 5 --no-final-checkpoint"
train 0 whole $same --micro-batch 40 --steps 10 && train 0 half $same --micro-batch 40 --steps 4 \
    --save-every 4 && train 0 half $same --micro-batch 40 --steps 10 --resume
verdict $? "a run that goes on in its second epoch"
cmp whole/model/model.safetensors half/model/model.safetensors
verdict $? "ends where one does that was not cut"
printf '{"zinf": {"gradient_sum": "tree"}}' >tree.json
train 0 seats $same --config tree.json --micro-batch 20 --steps 8 --seats 2 && train 0 alone $same --config tree.json --micro-batch 20 \
    --accumulate 2 --steps 8 && cmp seats/model/model.safetensors \
    alone/model/model.safetensors
verdict $? "two devices as one"
train 0 still $same --micro-batch 240 --steps 2 --lr 1e-30 --no-shuffle --dropout 0 && [ "$(sed -n \
    's/.*"loss": *\([0-9.]*\).*/\1/p' still/log.jsonl | sort -u | wc -l)" = 2 ]
verdict $? "and another epoch has other masks"

# The head goes over so many rows in chunks, whose gradients of the table and its bias add up.
train 0 many $same --micro-batch 60 --steps 1 --dropout 0 && train 0 few $same --micro-batch 10 \
    --accumulate 6 --steps 1 --dropout 0 && near "$(field grad_norm many/log.jsonl)" \
    "$(field grad_norm few/log.jsonl)"
verdict $? "many rows at once as few: $(field grad_norm few/log.jsonl)"

# ---- what cannot be ----

check "a folder of classes" train 1 none --model bert --data rows.jsonl --format alpaca --steps 1
complains "--format alpaca: --task masked-lm takes text" 
verdict $? "of conversations is refused"
check "metrics" evaluate 1 --model out/model --data lines.txt --metric accuracy
complains "--task masked-lm has no metric but its loss"
verdict $? "are refused"
check "texts" run 1 "$zinf" generate --model out/model --prompt a
check "a decoder" run 0 "$zinf" init --arch gpt2 --layers 1 --hidden 16 --heads 2 --context 32 \
    --output gpt2
train 1 none --model gpt2 --data lines.txt --steps 1
complains "--model gpt2 is of the family gpt2, which has no head for it"
verdict $? "has no such head"
cp -r bert bare && sed 's/\[MASK\]/[KSAM]/g' bert/tokenizer.json >bare/tokenizer.json
train 1 none --model bare --data lines.txt --steps 1
complains "the tokenizer has no mask token"
verdict $? "and a tokenizer without a mask is named"
finish
