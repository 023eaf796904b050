#!/bin/sh
# Several data sets: files mixed by weight, and evaluation sets with names. A mixture is the same
# over ranks, seats and placements, and goes on at any step; each evaluation set has the figures that
# zinf eval has of it alone.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
. "$SRCDIR/tests/support/mpirun.sh"
mkdir "$work/drive" && cd "$work" || exit 99
make_rank_model
rows() { # count, word: conversations of a few lengths
    i=0
    while [ $i -lt "$1" ]; do
        i=$((i + 1))
        echo "{\"prompt\": \"Say $2\", \"completion\": \" $2 $(printf "%*s" $((i % 7)) "" | tr ' ' "$2")\"}"
    done
}
{ rows 12 a >a.jsonl && rows 30 b >b.jsonl && make_text other.txt 9; } || exit 99
rank_config ram.json 2 4 cpu "$work/drive"
rank_config drive.json 2 4 nvme "$work/drive"
rank_config half.json 2 2 cpu "$work/drive"
train() { # output, options...
    output=$1
    shift
    run 0 "$zinf" train --model model --seq-len 16 --seed 3 --device host --progress none \
        --output "$output" "$@"
}

# ---- mixtures ----

check "two texts, mixed by weight" train texts --config ram.json --data text.txt:3 other.txt:1 --steps 8
complains "75 % of the windows are of text.txt" "25 % of the windows are of other.txt"
verdict $? "are told with their shares"
check "once more, on a drive" train drive --config drive.json --data text.txt:3 other.txt:1 --steps 8
check "has the same bits" same_result texts drive
check "the same shares as other numbers" train shares --config ram.json --data text.txt:0.75 \
    other.txt:0.25 --steps 8
check "are the same mixture" same_result texts shares
check "other shares" train other --config ram.json --data text.txt:1 other.txt:3 --steps 8
same_result texts other >/dev/null 2>&1
[ $? -ne 0 ]
verdict $? "are another one"

mixed="--data a.jsonl:1.5 b.jsonl:0.5 text.txt:2"
check "conversations and a text" train whole --config ram.json $mixed --steps 7
check "on 2 seats" train seats --config half.json $mixed --steps 7 --seats 2
check "have the same bits" same_result whole seats
if [ -z "$no_mpi" ]; then
    check "on 2 ranks" run 0 ranks 2 "$zinf" train --model model --seq-len 16 --seed 3 --device host \
        --progress none --output ranks --config half.json $mixed --steps 7
    check "have them, too" same_result whole ranks
else
    skip "on 2 ranks" "$no_mpi"
fi
# ---- going on: --save-every 1 leaves a checkpoint at each step ----

check "with a checkpoint at each step" train saved --config ram.json $mixed --steps 7 --save-every 1
for step in 1 2 3 4 5 6; do
    check "from step $step on" train "on-$step" --config ram.json $mixed --steps 7 \
        --resume="saved/checkpoint-$step"
    tail -n $((7 - step)) saved/log.jsonl | sed 's/.*"loss": \([^,]*\),.*/\1/' >"wanted"
    sed 's/.*"loss": \([^,]*\),.*/\1/' "on-$step/log.jsonl" | cmp -s - wanted &&
        cmp -s "on-$step/model/model.safetensors" saved/model/model.safetensors
    verdict $? "the same losses and weights"
done
"$zinf" train --model model --seq-len 16 --seed 3 --device host --progress none --output changed \
    --config ram.json --data a.jsonl:1 b.jsonl:0.5 text.txt:2 --steps 9 --resume=saved/checkpoint-1 \
    >said.out 2>said.err
[ $? -eq 1 ] && complains "a set's weight or name is not as it was"
verdict $? "it is refused"

# ---- other tasks ----

line_of() { # words: as many times as fields are left
    i=0
    while [ $i -lt 8 ]; do
        i=$((i + 1))
        echo "$1" | sed "s/N/$i/g"
    done
}
line_of '{"prompt": "Say N", "chosen": " Yes, N.", "rejected": " No."}' >pairs-a.jsonl
line_of '{"prompt": "Tell N", "chosen": " Well, N and N.", "rejected": " So."}' >pairs-b.jsonl
line_of '{"source": "one N", "target": "two"}' >short.jsonl
line_of '{"source": "a much longer source of N", "target": "and a longer target N"}' >long.jsonl
line_of '{"text": "one N", "label": "odd"}' >odd.jsonl
line_of '{"text": "two N", "label": "even"}' >even.jsonl
small="--layers 1 --hidden 32 --heads 2 --vocab 257 --context 64 --tokenizer bytes"
"$zinf" init --arch t5 --size small $small --output t5 >said.out 2>said.err &&
    "$zinf" init --arch bert --size base $small --output bert >said.out 2>said.err
verdict $? "models of other tasks"
task() { # output, model, options...
    output=$1 model=$2
    shift 2
    run 0 "$zinf" train --model "$model" --steps 3 --device host --threads 1 --dropout 0 --progress none \
        --output "$output" "$@"
}
pairs="--task preference --data pairs-a.jsonl:1 pairs-b.jsonl:2 --seq-len 24"
check "pairs, whole model" task pairs model $pairs --micro-batch 6
check "their micro-batches" task pairs-2 model $pairs --micro-batch 3 --accumulate 2
awk -F'"loss": ' 'NR == FNR {split($2, a, ","); w[FNR] = a[1]; next}
    {split($2, b, ","); d = w[FNR] - b[1]; if (d * d > 1e-10) exit 1}' pairs/log.jsonl pairs-2/log.jsonl
verdict $? "have the same losses"
check "sources and targets" task seq2seq t5 --data short.jsonl:3 long.jsonl:1 --micro-batch 4 --pad-to max
[ "$(grep -c '"seq_len": 24' seq2seq/log.jsonl)" -eq 3 ]
verdict $? "have windows as long as the longest of all sets"
check "classes" task classes bert --task classification --data odd.jsonl:1 even.jsonl:1 --micro-batch 2
grep -q '"even"' classes/model/config.json && grep -q '"odd"' classes/model/config.json
verdict $? "are those of all sets"

# ---- epochs: as many windows as the files have together ----

windows() { sed -n 's/.*in \([0-9]*\) windows.*/\1/p' said.err | head -n 1; }
check "an epoch" train epoch --config ram.json --data text.txt:3 other.txt:1 --epochs 1
n=$(sed -n 's/.*tokens in \([0-9]*\) windows.*/\1/p' said.err | awk '{n += $1} END {print n}')
[ "$(wc -l <epoch/log.jsonl)" -eq $((n / 8)) ] && [ "$n" -gt 8 ]
verdict $? "has as many windows as all files"

# ---- evaluation sets ----

check "two evaluation sets" train sets --config ram.json --data text.txt --steps 4 --eval-every 2 \
    --eval-data near=text.txt far=other.txt near=other.txt --tensorboard events
grep -q '"step": 2,.*"eval_near_loss": .*"eval_near_perplexity": .*"eval_near_tokens": .*"eval_far_loss": ' \
    sets/log.jsonl && ! grep -q '"eval_loss"' sets/log.jsonl && [ "$(grep -c eval_far_loss sets/log.jsonl)" -eq 2 ]
verdict $? "have each its figures"
complains "step 2: eval near loss" "step 4: eval far loss"
verdict $? "are told by name"
says '"eval_near_loss"' '"eval_far_loss"'
verdict $? "stand in the result"
check "zinf eval" run 0 "$zinf" eval --model sets/model --data other.txt --seq-len 16 --device host \
    --config ram.json
alone=$(sed 's/{"loss": \([0-9.]*\),.*/\1/' said.out)
[ "$(sed -n 's/^{"step": 4,.*"eval_far_loss": \([0-9.]*\),.*/\1/p' sets/log.jsonl)" = "$alone" ] && [ -n "$alone" ]
verdict $? "says the same of one alone"
check "zinf eval of both" run 0 "$zinf" eval --model sets/model --data far=other.txt near=text.txt \
    --seq-len 16 --device host --config ram.json
says "{\"far_loss\": $alone, " '"near_loss": '
verdict $? "says it of each"
check "on two seats" train set-seats --config half.json --data text.txt --steps 4 --eval-every 2 \
    --eval-data near=text.txt far=other.txt near=other.txt --seats 2
figures() { sed -n 's/.*\("eval_near_loss".*\)}/\1/p' "$1/log.jsonl"; }
[ "$(figures sets)" = "$(figures set-seats)" ]
verdict $? "they are the same"
check "a plot" run 0 "$zinf" plot sets --csv sets.csv --no-charts
head -n 1 sets.csv | grep -q 'predicted_seconds,eval_near_loss,eval_far_loss,skipped' &&
    grep -q 'evaluation near' sets/plot.html && grep -q 'evaluation far' sets/plot.html
verdict $? "has both"
grep -q '"eval_far_loss"' sets/history/trainer_state.json &&
    grep -qa 'eval/near_loss' events/* && grep -qa 'eval/far_loss' events/*
verdict $? "and so have the files for others"
check "the best of the first set" train best --config ram.json --data text.txt --steps 4 --eval-every 2 \
    --eval-data far=other.txt near=text.txt --load-best-at-end
holds best/model/best_step.json "$(sed -n 's/^{"step": 4,.*"eval_far_loss": \([0-9]*\.[0-9]\{4\}\).*/\1/p' best/log.jsonl)"
verdict $? "is the model"

# ---- what is refused ----

refused() { # name, words, options...
    what=$1 words=$2
    shift 2
    "$zinf" train --model model --seq-len 16 --device host --output no --steps 1 "$@" \
        >said.out 2>said.err
    [ $? -eq 1 ] && complains "$words"
    verdict $? "$what is refused"
}
refused "a weight of 0" "a weight is a number above 0" --data text.txt:0
refused "one weight of two" "some files have a weight, and others have none" --data text.txt:2 other.txt
refused "one name of two" "some files have a name, and others have none" --data text.txt \
    --eval-data a=text.txt other.txt
refused "sorting by length" "several with weights" --data a.jsonl:1 b.jsonl:2 --group-by-length
cp text.txt text:2 && cp text.txt a=b
check "files with such names" train named --config ram.json --data text:2 --eval-data a=b --steps 1
holds named/log.jsonl '"eval_loss"'
verdict $? "are taken by their names"
finish
