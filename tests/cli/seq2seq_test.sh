#!/bin/sh
# seq2seq: a small T5 with everything on a drive learns to reverse words, from columns to texts by
# beams; what is cut is said; wrong tasks, rows and columns are named; and the examples' rehearsals
# in a shorter form.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
mkdir drive

field() { # key, file
    sed -n "s/.*\"$1\": *\\(\"[^\"]*\"\\|-*[0-9.e-]*\\).*/\\1/p" "$2"
}
check "a new T5" run 0 "$zinf" init --arch t5 --size small --layers 2 --hidden 64 --heads 4 \
    --tokenizer bytes --output t5

# ---- learning ----

# Words of 3 to 5 different letters, all in an order that looks like none; the last are held out.
awk 'BEGIN {
    seed = 7
    for (i = 0; i < 3300; i++) {
        letters = "abcdefgh"; word = ""; back = ""
        seed = (seed * 1103 + 12347) % 1000003
        n = 3 + seed % 3
        for (k = 0; k < n; k++) {
            seed = (seed * 1103 + 12347) % 1000003
            at = 1 + int(seed / 7) % length(letters)
            c = substr(letters, at, 1)
            letters = substr(letters, 1, at - 1) substr(letters, at + 1)
            word = word c; back = c back
        }
        print word "," back
    }
}' >words
sort -u words | awk 'NR % 40 == 5' >held_out
grep -vxFf held_out words >learned
{ echo word,back; cat learned; } >learned.csv
{ echo word,back; cat held_out; } >held_out.csv
[ "$(wc -l <held_out)" -ge 30 ] && [ "$(wc -l <learned)" -ge 3000 ]
verdict $? "words that are learned, and others"
cat >drive.json <<END
{"zero_optimization": {"stage": 3,
  "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "exact"}}
END
columns="--source-column word --target-column back"
check "training with everything on a drive" run 0 "$zinf" train --model t5 --data learned.csv \
    --eval-data held_out.csv $columns --output out --device host --threads 1 --config drive.json \
    --micro-batch 32 --lr 3e-3 --warmup-steps 20 --steps 500 --dropout 0 --progress none \
    --eval-every 250 --metric exact_match --metric-samples 20 --max-new-tokens 8 \
    --sample-prompts "$(head -1 held_out | cut -d, -f1)"
[ "$(sed -n 's/.*"samples": .*"text":"\([^"]*\)".*/\1/p' out/log.jsonl)" = "$(head -1 held_out | cut -d, -f2)" ]
verdict $? "whose sample prompt is answered, without the token that starts the decoder"
[ "$(grep -c '"eval_exact_match"' out/log.jsonl)" = 2 ]
verdict $? "is scored on the way"
check "what it learned" run 0 "$zinf" eval --model out/model --data held_out.csv $columns \
    --device host --threads 1 --metric exact_match rougeL --max-new-tokens 8
awk -v x="$(field exact_match said.out)" 'BEGIN { exit !(x > 0.95) }'
verdict $? "more than 95 % of words that it never saw"
check "one of them" run 0 "$zinf" generate --model out/model --device host --threads 1 \
    --prompt "$(head -1 held_out | cut -d, -f1)" --num-beams 3 --max-new-tokens 8
[ "$(cat said.out)" = "$(head -1 held_out | cut -d, -f2)" ]
verdict $? "backwards, and nothing else"

# ---- lengths ----

echo '{"source": "abc", "target": "0123456789"}' >long.jsonl
echo '{"source": "abcdefghijkl", "target": "01"}' >>long.jsonl
check "longer than they may be" run 0 "$zinf" eval --model t5 --data long.jsonl --device host \
    --threads 1 --seq-len 8 --source-len 8
complains "1 of 2 targets have more than 8 tokens" "by 3 tokens" \
    "1 of 2 sources have more than 8 tokens" "by 5 tokens" && says '"tokens": 11'
verdict $? "is said, with how much is cut"
loss_of_ends=$(field loss said.out)
run 1 "$zinf" train --model t5 --data learned.csv $columns --pack --output none
complains "--pack" "samples of --task seq2seq are not packed" && [ ! -e none ]
verdict $? "sources and targets are not packed"
check "cut off the beginning" run 0 "$zinf" eval --model t5 --data long.jsonl --device host \
    --threads 1 --seq-len 8 --source-len 8 --truncate beginning
complains "1 of 2 targets have more than 8 tokens" "by 3 tokens" && says '"tokens": 11' &&
    [ "$(field loss said.out)" != "$loss_of_ends" ]
verdict $? "it is as much, and something else"
check "left out" run 0 "$zinf" eval --model t5 --data long.jsonl --device host --threads 1 \
    --seq-len 11 --source-len 8 --truncate drop
complains "1 of 2 rows are too long and left out" && says '"tokens": 11'
verdict $? "are rows that do not fit"

# ---- what is wrong ----

evaluate() { # status, words, name, options...
    status=$1 words=$2 name=$3
    shift 3
    run "$status" "$zinf" eval --device host --threads 1 "$@" && complains "$words"
    verdict $? "$name"
}
echo '{"dialogue": "a", "target": "b"}' >other.jsonl
evaluate 1 'no "source" among its columns (dialogue, target): name one with --source-column' \
    "a row without a column" --model t5 --data other.jsonl
: >empty.jsonl
evaluate 1 empty "an empty file" --model t5 --data empty.jsonl
evaluate 1 "reads no source" "a causal model for sources and targets" \
    --model "$SRCDIR/tests/fixtures/gpt2_c" --data other.jsonl --task seq2seq
evaluate 1 "its task is seq2seq" "an encoder-decoder for plain text" \
    --model t5 --data other.jsonl --task causal-lm
evaluate 1 "has no head for it" "a task that the model has no head for" \
    --model t5 --data other.jsonl --task classification
evaluate 2 "--task translation: use causal-lm" "no task at all" --model t5 --data other.jsonl --task translation
mkdir lame && cp t5/* lame && sed -i '/decoder_start_token_id/d' lame/config.json
evaluate 1 decoder_start_token_id "no token to begin with" --model lame --data long.jsonl

# ---- examples ----

for script in summarise-flan-t5 seq2seq-blenderbot; do
    ZINF=$zinf check "$script.sh rehearses" run 0 "$SRCDIR/examples/$script.sh" --rehearse \
        "$work/$script" 6
    grep -q '"rougeL":' "$script/scores.json" && [ -s "$script/predictions.jsonl" ]
    verdict $? "to its scores"
done
finish
