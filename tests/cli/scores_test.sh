#!/bin/sh
# scores: --metric of eval and train: texts that a model makes of prompts beside those of the data,
# by tokens and by beams, what is written of them, the best evaluation by a metric, and refusals.
# Texts are bytes; the model has a context of 32.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
mkdir model && cp "$SRCDIR/tests/fixtures/gpt2_c/config.json" \
    "$SRCDIR/tests/fixtures/gpt2_c/model.safetensors" model && chmod u+w model/*

field() { # key, file: of each line
    sed -n "s/.*\"$1\": *\\(\"[^\"]*\"\\|-*[0-9.e-]*\\).*/\\1/p" "$2"
}
evaluate() { # options...
    "$zinf" eval --model model --threads 1 --device host --data rows.jsonl --micro-batch 2 "$@"
}
text_of() { # prompt, options...: what the model goes on with, as it stands in JSON
    prompt=$1
    shift
    "$zinf" generate --model model --threads 1 --device host --prompt "$prompt" \
        --max-new-tokens 6 --json "$@" 2>/dev/null | sed 's/.*"text":\("\([^"\\]\|\\.\)*"\),"finish.*/\1/'
}

check "a new model" run 0 "$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 4 \
    --tokenizer bytes --context 16 --output new
cp new/tokenizer.json model

# ---- eval ----

for prompt in abc Qx 'zy w'; do
    echo "{\"prompt\": \"$prompt\", \"completion\": $(text_of "$prompt" --temperature 0)}"
done >rows.jsonl
check "texts that the model makes" run 0 evaluate --metric exact_match rouge1 rougeLsum bleu \
    --max-new-tokens 6 --predictions pairs.jsonl
[ "$(field exact_match said.out)" = 1 ] && says '"loss":' '"rouge1":' '"rougeLsum":' '"bleu":'
verdict $? "are those of zinf generate"
[ "$(wc -l <pairs.jsonl)" = 3 ] && [ "$(field predicted pairs.jsonl)" = "$(field reference pairs.jsonl)" ]
verdict $? "and are written"
echo '{"prompt": "abcd", "completion": "!"}' >>rows.jsonl
check "one that it does not make" run 0 evaluate --metric exact_match --max-new-tokens 6
[ "$(field exact_match said.out)" = 0.75 ]
verdict $? "counts"
check "of some samples" run 0 evaluate --metric exact_match --max-new-tokens 6 --metric-samples 3
[ "$(field exact_match said.out)" = 1 ]
verdict $? "the first"
for prompt in abc Qx; do
    echo "{\"prompt\": \"$prompt\", \"completion\": $(text_of "$prompt" --num-beams 3)}"
done >rows.jsonl
check "by beams" run 0 evaluate --metric exact_match --max-new-tokens 6 --num-beams 3
[ "$(field exact_match said.out)" = 1 ]
verdict $? "are those of zinf generate by beams"

# ---- train ----

i=0
while [ $i -lt 24 ]; do
    letter=$(printf '%b' "\\0$(printf '%o' $((97 + i)))")
    echo "{\"prompt\": \"$letter=\", \"completion\": \"$letter$letter.\"}"
    i=$((i + 1))
done >rows.jsonl
train() { # output, options...
    output=$1
    shift
    "$zinf" train --model new --data rows.jsonl --eval-data rows.jsonl --threads 1 --device host \
        --seq-len 8 --micro-batch 8 --lr 1e-2 --dropout 0 --output "$output" --progress none "$@"
}
check "training with a metric" run 0 train run --steps 60 --eval-every 20 \
    --metric exact_match bleu --max-new-tokens 4 --load-best-at-end
[ "$(grep -c '"eval_exact_match"' run/log.jsonl)" = 3 ] && complains "eval exact_match"
verdict $? "scores every evaluation"
best=$(field eval_exact_match run/log.jsonl | sort -g | tail -1)
cp said.err train.err
check "the model that is left" run 0 "$zinf" eval --model run/model --threads 1 --device host \
    --data rows.jsonl --seq-len 8 --metric exact_match --max-new-tokens 4
[ "$(field exact_match said.out)" = "$best" ] && [ "$best" != 0 ]
verdict $? "is that of the best by the metric"

# ---- refusals ----

check "no such metric" run 2 evaluate --metric rouge
complains "rouge is no metric" "rougeLsum"
verdict $? "is said with those that there are"
check "a metric of classes" run 1 evaluate --metric accuracy
complains "accuracy is not one of the task causal-lm, which has: exact_match, rouge1"
verdict $? "is said with those of the task"
check "ways to make texts without a metric" run 2 evaluate --num-beams 2
check "a metric without data to evaluate on" run 2 "$zinf" train --model new --data rows.jsonl \
    --metric bleu --output none
complains "--eval-data"
verdict $? "is said"
head -c 200 rows.jsonl >plain.txt
check "plain text" run 1 "$zinf" eval --model model --threads 1 --device host --data plain.txt \
    --metric bleu
complains "--metric bleu" "prompt and completion"
verdict $? "has no prompts"
check "where it cannot be written" run 1 evaluate --metric bleu --predictions missing/pairs
complains "--predictions missing/pairs"
verdict $? "is said"
finish
