#!/bin/sh
# Scores of answers from files to a model: every family's classifier head learns to tell what was
# chosen, whole or by adapters; margins of rows are learned; evaluation tells how many pairs are
# right, in the log and by itself; and what cannot be is refused with the way out.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
for arch in gpt2 llama; do
    size=small
    [ $arch = gpt2 ] || size=7b
    "$zinf" init --arch $arch --size $size --layers 2 --hidden 32 --heads 2 --vocab 257 \
        --context 128 --output $arch >/dev/null || exit 99
done
awk 'BEGIN {
    for (i = 0; i < 40; i++) {
        good = i % 2 ? "red" : "pink"; bad = i % 3 ? "blue" : "green"
        printf "{\"prompt\": \"%d is \", \"chosen\": \"%s\", \"rejected\": \"%s\"}\n", i, good, bad
    }
}' >pairs.jsonl
sed 's/}$/, "margin": 2}/' pairs.jsonl >wide.jsonl

train() { # status, model, output, options...
    train_status=$1
    model=$2
    out=$3
    shift 3
    run "$train_status" "$zinf" train --model "$model" --task reward --seq-len 32 --micro-batch 4 \
        --dropout 0 --lr 1e-2 --lr-scheduler constant --threads 1 --progress none \
        --no-final-checkpoint --output "$out" "$@"
}
evaluate() { # status, model, options...
    eval_status=$1
    model=$2
    shift 2
    run "$eval_status" "$zinf" eval --task reward --model "$model" --data pairs.jsonl --seq-len 32 \
        --threads 1 "$@"
}
last() { # key, output: of the last step
    sed -n "s|.*\"$1\": \\([-+.a-z0-9]*\\).*|\\1|p" "$2/log.jsonl" | tail -n 1
}
first() { # key, output
    sed -n "s|.*\"$1\": \\([-+.a-z0-9]*\\).*|\\1|p" "$2/log.jsonl" | head -n 1
}
value() { # key: of what was said
    sed -n "s|.*\"$1\": \\([-+.a-z0-9]*\\).*|\\1|p" said.out
}
is() { awk "BEGIN { exit !($1) }"; }

# ---- adapters above 4 and 8 bits: the head is neither, and is trained whole ----

for form in nf4 int8; do
    check "adapters above $form" train 0 llama $form.out --data pairs.jsonl --steps 3 --lora-rank 2 \
        --quantize $form
    holds $form.out/model/adapter_model.safetensors 'score'
    verdict $? "have the head beside them"
done
check "a model for them" train 0 llama headed --data pairs.jsonl --steps 0
check "takes them" run 0 "$zinf" export --merge --model headed/model --checkpoint int8.out/model --output merged
check "one without a head" run 1 "$zinf" export --merge --model llama --checkpoint int8.out/model --output bad
check "is refused with the way out" complains "has no such head" "--steps 0"

# ---- learning ----

for arch in gpt2 llama; do
    check "$arch" train 0 $arch $arch.out --data pairs.jsonl --steps 30 --eval-data pairs.jsonl \
        --eval-every 15
    is "$(first loss $arch.out) > 0.4 && $(last loss $arch.out) < 0.1 &&
        $(last rewards/accuracies $arch.out) == 1 && $(last rewards/margins $arch.out) > 3"
    verdict $? "learns to tell what was chosen"
    holds $arch.out/model/config.json 'ForSequenceClassification"' '"LABEL_0"'
    verdict $? "with a head of one number"
    check "is measured by itself" evaluate 0 $arch.out/model --predictions $arch.jsonl
    is "$(value rewards/accuracies) == 1 && $(value samples) == 40 &&
        $(value loss) == $(last eval_loss $arch.out) &&
        $(value rewards/margins) == $(last eval_rewards/margins $arch.out)"
    verdict $? "as on the way"
    sed 's/.*"chosen": \(.*\), "rejected": \(.*\)}/\1 \2/' $arch.jsonl >scores
    awk -v chosen="$(value rewards/chosen)" '{ sum += $1; right += $1 > $2 }
        END { d = sum / NR - chosen; exit !(NR == 40 && right == 40 && d * d < 1e-8) }' scores
    verdict $? "and tells the score of every answer"
done
check "by adapters" train 0 llama lora --data pairs.jsonl --steps 30 --lora-rank 4
is "$(last loss lora) < 0.1 && $(last rewards/accuracies lora) == 1"
verdict $? "learns so, too"
holds lora/model/adapter_config.json '"SEQ_CLS"' '"score"'
verdict $? "with its head beside them"
check "and is measured above its base" evaluate 0 llama --adapter lora/model
is "$(value rewards/accuracies) == 1"
verdict $? "with the head that it has"

# ---- the loss ----

check "margins" train 0 gpt2 wide --data wide.jsonl --steps 1
is "$(first loss wide) - $(first loss gpt2.out) > 0.8 &&
    $(first rewards/margins wide) == $(first rewards/margins gpt2.out)"
verdict $? "are what the scores have to be apart"
cat >center.json <<EOF
{"zinf": {"center_rewards_coefficient": 0.5}}
EOF
check "scores" train 0 gpt2 center --data pairs.jsonl --steps 30 --config center.json
is "($(last rewards/chosen center) + $(last rewards/rejected center)) ^ 2 < 0.05"
verdict $? "are kept around 0"

# ---- going on ----

check "interrupted" train 0 gpt2 parts --data wide.jsonl --steps 5 --save-every 5
check "and gone on with" train 0 gpt2 parts --data wide.jsonl --steps 9 --save-every 5 --resume
check "a run" train 0 gpt2 whole --data wide.jsonl --steps 9
cmp parts/model/model.safetensors whole/model/model.safetensors
verdict $? "ends with the same bits"
check "adapters, interrupted" train 0 gpt2 half --data wide.jsonl --steps 5 --save-every 5 --lora-rank 2
check "and gone on with" train 0 gpt2 half --data wide.jsonl --steps 9 --save-every 5 --resume \
    --lora-rank 2
check "a run with adapters" train 0 gpt2 full --data wide.jsonl --steps 9 --lora-rank 2
cmp half/model/adapter_model.safetensors full/model/adapter_model.safetensors
verdict $? "ends with the same bits, too"
check "a head that is there" train 0 gpt2.out/model again --data pairs.jsonl --steps 1
is "$(first loss again) < 0.1"
verdict $? "stays"

# ---- refusals ----

sed 's/}$/, "margin": -1}/' pairs.jsonl >below.jsonl
train 1 gpt2 none --data below.jsonl
complains "below.jsonl: row 1" '"margin" is no number from 0 on' "--skip-bad-rows"
verdict $? "a margin below 0 is named"
train 1 gpt2 none --data pairs.jsonl --preference dpo
complains "--preference dpo" "--task reward has one loss"
verdict $? "other losses are another task's"
train 1 gpt2 none --data pairs.jsonl --label-smoothing 0.1
complains "zinf.label_smoothing"
verdict $? "labels are not smoothed"
evaluate 1 gpt2
complains "--model gpt2 has no head" "zinf train --task reward"
verdict $? "a model without a head has no scores"
run 1 "$zinf" train --model gpt2 --task preference --preference reward --data pairs.jsonl \
    --micro-batch 2 --output none
complains "--preference reward: use dpo, ipo, orpo, simpo or kto"
verdict $? "nor learns them as another task"
[ ! -e none/model ]
verdict $? "nothing is left of those"
finish
