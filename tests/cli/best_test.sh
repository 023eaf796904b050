#!/bin/sh
# --early-stopping and --load-best-at-end: a training that soon knows its few lines by heart gets
# worse on others; it ends, leaves the model of its best evaluation, and does the same when it is
# interrupted.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
"$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --vocab 257 --context 32 \
    --output model >/dev/null || exit 99
make_text text.txt 6
awk 'BEGIN { for (i = 0; i < 9; i++) print "other words than those which were learnt: " i * i * 37 }' \
    >other.txt
train() { # status, output, options...
    train_status=$1
    out=$2
    shift 2
    run "$train_status" "$zinf" train --model model --data text.txt --eval-data other.txt \
        --eval-every 4 --seq-len 16 --micro-batch 4 --lr 2e-2 --lr-scheduler constant --threads 1 \
        --progress none --output "$out" "$@"
}
member() { # key: of the result
    sed -n "s/.*\"$1\": \([-+.a-z0-9]*\).*/\1/p" said.out
}
evaluations() { # output: "step loss" of each
    sed -n 's/{"step": \([0-9]*\),.*"eval_loss": \([-+.e0-9]*\).*/\1 \2/p' "$1/log.jsonl"
}
best_of() { evaluations "$1" | sort -g -k 2,2 | head -n 1 | cut -d " " -f 1; }
# zinf eval prints fewer digits.
evaluates_to() { # model, loss
    run 0 "$zinf" eval --model "$1" --data other.txt --seq-len 16 --threads 1 &&
        awk -v a="$(member loss)" -v b="$2" 'BEGIN { exit !(a > b - 1e-4 && a < b + 1e-4) }'
}

train 0 whole --steps 60 --early-stopping 3 --load-best-at-end
cp said.out whole.json
best=$(best_of whole)
last=$(evaluations whole | tail -n 1 | cut -d " " -f 1)
[ "$last" -eq $((best + 12)) ] && [ "$last" -lt 60 ] && [ "$(member last_step)" -eq "$last" ]
verdict $? "it ends after three evaluations that are no better"
[ "$(member best_step)" -eq "$best" ] && [ "$(member stopped_early)" = true ] &&
    [ "$(member best_is_model)" = true ] &&
    complains "stopped" "early: 3 evaluations in a row" "whose weights are the model" \
        "ends early after 3 in a row"
verdict $? "and says so"
check "the model is that of the best evaluation" \
    evaluates_to whole/model "$(evaluations whole | sed -n "s/^$best //p")"
[ ! -e whole/best ] && [ ! -e whole/tmp-best ] && holds whole/model/best_step.json "\"step\": $best"
verdict $? "which lies nowhere else"

train 0 last --steps "$last"
[ "$(member best_step)" -eq "$best" ] && [ "$(member best_is_model)" = false ] &&
    [ "$(member stopped_early)" = false ] &&
    ! cmp -s last/model/model.safetensors whole/model/model.safetensors
verdict $? "without the options the model is that of the last step"

# In processes of five steps each, of which none sees the whole.
parts() {
    steps=5
    while [ $steps -lt 65 ]; do
        train 0 parts --steps $steps --early-stopping 3 --load-best-at-end --resume || return 1
        steps=$((steps + 5))
    done
}
check "interrupted again and again" parts
[ "$(wc -l <parts/log.jsonl)" -eq "$last" ] && [ "$(member stopped_early)" = true ]
verdict $? "it ends where it would have, and stays ended"
check "and says why" complains "ended early, after step $last" "--early-stopping 3"
cmp parts/model/model.safetensors whole/model/model.safetensors &&
    cmp parts/model/best_step.json whole/model/best_step.json
verdict $? "with the same best model"

train 0 whole --steps $((last + 4)) --early-stopping 30 --load-best-at-end --resume
[ "$(member last_step)" -eq $((last + 4)) ] && [ "$(member best_step)" -eq "$best" ] &&
    holds whole/model/best_step.json "\"step\": $best"
verdict $? "with more patience it goes on, and the best stays the best"

run 2 "$zinf" train --model model --data text.txt --early-stopping 0
verdict $? "a count is at least 1"
run 1 "$zinf" train --model model --data text.txt --eval-data other.txt --seq-len 16 \
    --early-stopping 3 --output none
complains "--early-stopping" "--eval-every" && [ ! -e none ]
verdict $? "without evaluations it is refused"
run 1 "$zinf" train --model model --data text.txt --seq-len 16 --eval-every 2 --output none
complains "--eval-every needs evaluations" "--eval-data" && [ ! -e none ]
verdict $? "nor are evaluations without data taken"
echo '{"train_batch_size": 4, "zinf": {"load_best_at_end": true}}' >best.json
run 1 "$zinf" train --model model --data text.txt --config best.json --seq-len 16 --output none
complains "zinf.load_best_at_end" "--eval-data"
verdict $? "as a key too"
# The last step is evaluated too, although none is due there; and it is the best of so few.
last_counts() {
    train 0 seven --steps 3 --eval-every 2 --lr 1e-3 --load-best-at-end &&
        [ "$(best_of seven)" -eq 3 ] && [ "$(member best_step)" -eq 3 ] &&
        [ "$(member best_is_model)" = true ] && holds seven/model/best_step.json '"step": 3' &&
        train 0 plain --steps 3 --eval-every 2 --lr 1e-3 &&
        cmp seven/model/model.safetensors plain/model/model.safetensors
}
check "the last step may be the best" last_counts
still_last() {
    train 0 seven --steps 3 --eval-every 2 --lr 1e-3 --load-best-at-end --resume &&
        [ "$(member best_step)" -eq 3 ] && [ "$(member last_step)" -eq 3 ] &&
        ! holds said.out first_loss && complains "nothing: step 3, the last, was made before" &&
        cmp seven/model/model.safetensors plain/model/model.safetensors
}
check "and stays it" still_last
goes_further() {
    train 0 seven --steps 8 --eval-every 2 --lr 1e-3 --load-best-at-end --resume &&
        complains "with earlier ones" && [ "$(member last_step)" -eq 8 ] && [ "$(member best_step)" -eq "$(best_of seven)" ]
}
check "a longer run goes on from there" goes_further
finish
