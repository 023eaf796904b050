#!/bin/sh
# Rows that are taken while a training needs them: the bits of the same rows in a file, over seats
# and on drives, and after a resume; rows that end, that come by a pipe, and what is refused.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
mkdir "$work/drive" && cd "$work" || exit 99
make_rank_model
i=0
while [ $i -lt 120 ]; do
    i=$((i + 1))
    echo "{\"text\": \"row $i $(printf "%*s" $((i * 7 % 31)) "" | tr ' ' "w")\"}"
done >rows.jsonl
rank_config ram.json 2 4 cpu "$work/drive"
rank_config drive.json 2 4 nvme "$work/drive"
rank_config half.json 2 2 cpu "$work/drive"
train() { # output, options...
    output=$1
    shift
    run 0 "$zinf" train --model model --seq-len 16 --seed 3 --device host --progress none \
        --output "$output" "$@"
}
refuses() { # words, options...
    words=$1
    shift
    "$zinf" train --model model --seq-len 16 --seed 3 --device host --output refused "$@" \
        >said.out 2>said.err </dev/null && return 1
    complains "$words"
}
streamed="--config ram.json --data rows.jsonl --streaming --steps 9"

check "rows as they are needed" train flow $streamed
complains "rows as they are needed, in windows of 16, in their order"
verdict $? "are told so"
check "the same file, read before" train file --config ram.json --data rows.jsonl --no-shuffle --steps 9
check "has the same bits" same_result flow file
check "on a drive" train drive --config drive.json --data rows.jsonl --streaming --steps 9
check "the same bits" same_result flow drive
check "on 2 seats" train seats --config half.json --data rows.jsonl --streaming --steps 9 --seats 2
check "the same bits" same_result flow seats

check "a sample of each row" train samples $streamed --format text
check "of a file" train samples_file --config ram.json --data rows.jsonl --no-shuffle --steps 9 \
    --format text
check "have the same bits" same_result samples samples_file
check "shuffled among as many as there are" train whole $streamed --format text --shuffle-buffer 120
check "and a file's, shuffled" train whole_file --config ram.json --data rows.jsonl --steps 9 \
    --format text
check "have the same bits" same_result whole whole_file

# ---- going on ----

for options in "" "--format text" "--format text --shuffle-buffer 7" "--shuffle-buffer 10" \
    "--format text --pack --shuffle-buffer 13"; do
    rm -rf unbroken broken
    check "unbroken: $options" train unbroken $streamed $options
    check "with checkpoints" train broken $streamed $options --save-every 2
    check "goes on at a row" train broken $streamed $options --resume=broken/checkpoint-4
    check "to the same bits" same_result unbroken broken
done
grep -q '"row":' broken/checkpoint-9/trainer_state.json
verdict $? "a checkpoint has the rows that were used"
rm -rf ended
train ended $streamed --shuffle-buffer 7 --save-every 2
check "another buffer" refuses "another" --config ram.json --data rows.jsonl --streaming \
    --shuffle-buffer 8 --steps 12 --resume=ended/checkpoint-4 --output ended

# ---- a pipe ----

"$zinf" train --model model --seq-len 16 --seed 3 --device host --progress none --output pipe \
    --config ram.json --data - --streaming --steps 9 <rows.jsonl >said.out 2>said.err
verdict $? "standard input"
check "has the same bits" same_result flow pipe
"$zinf" train --model model --seq-len 16 --seed 3 --device host --progress none --output short \
    --config ram.json --data - --streaming --steps 900 <rows.jsonl >said.out 2>said.err
verdict $? "a pipe that ends before the training"
complains "the rows ended after step" "of 900"
verdict $? "ends it, and that is said"
[ -f short/model/config.json ]
verdict $? "with a model"

# ---- what is refused ----

check "no steps" refuses "nothing says how long the training is: give --steps N" --data rows.jsonl \
    --streaming
check "epochs" refuses "counts passes over all rows" --data rows.jsonl --streaming --epochs 2
check "lengths" refuses "sorts all samples" --data rows.jsonl --streaming --steps 2 --format text \
    --group-by-length
check "weights" refuses "leave the weights or --streaming out" --data rows.jsonl:2 text.txt:1 \
    --streaming --steps 2
check "plain text" refuses "an object a line: give .jsonl" --data text.txt --streaming --steps 2
check "a buffer alone" refuses "is of --streaming" --data rows.jsonl --steps 2 --shuffle-buffer 9
finish
