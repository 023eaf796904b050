#!/bin/sh
# Rows that are taken while a training needs them: the bits of the same rows in a file, over seats
# and on drives, and after a resume; rows that end, that come by a pipe, and what is refused.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
. "$SRCDIR/tests/support/ports.sh"
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
mkfifo named.jsonl
cat rows.jsonl >named.jsonl &
timeout 100 "$zinf" train --model model --seq-len 16 --seed 3 --device host --progress none --output named \
    --config ram.json --data named.jsonl --streaming --steps 900 >said.out 2>said.err </dev/null
verdict $? "a pipe with a name"
complains "the rows ended after step" "of 900"
verdict $? "ends it, too"

# ---- a pipe that goes silent ----

mkfifo silent.jsonl
(exec 3>silent.jsonl && cat rows.jsonl >&3 && exec sleep 1000) &
writer=$!
"$zinf" train --model model --seq-len 16 --seed 3 --device host --progress none --output silent \
    --config ram.json --data silent.jsonl --streaming --steps 900 >said.out 2>said.err </dev/null &
silent=$!
wait_until $silent has_lines silent 7
sleep 0.5
began=$(date +%s)
kill -TERM $silent
wait $silent
[ $? -eq 143 ] && [ $(($(date +%s) - began)) -lt 60 ]
verdict $? "a training that waits for a pipe ends when it is told to"
kill $writer
wait $writer 2>/dev/null
last=$(sed -n 's/.*"step": \([0-9]*\),.*/\1/p' silent/log.jsonl | tail -n 1)
[ -n "$last" ] && [ -d "silent/checkpoint-$last" ]
verdict $? "saved"

# ---- two processes ----

rank() { # rank, data, options...
    rank=$1 data=$2
    shift 2
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$port TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_RUN_ID=flow-$$ \
        OMP_NUM_THREADS=1 exec "$zinf" train --model model --seq-len 16 --seed 3 --device host \
        --progress none --config half.json --streaming --data "$data" "$@"
}
two() { # data of rank 1, options...
    of_other=$1
    next_port
    shift
    (rank 1 "$of_other" "$@") >other.out 2>other.err </dev/null &
    other=$!
    (rank 0 rows.jsonl "$@") >said.out 2>said.err </dev/null
    status=$?
    wait $other && [ $status -eq 0 ]
}
check "two processes" two rows.jsonl --output two --steps 9 --save-every 2
check "have the bits of one" same_result flow two
check "and go on at their row" two rows.jsonl --output two --steps 9 --resume=two/checkpoint-4
check "to the same bits" same_result flow two
head -n 100 rows.jsonl >fewer.jsonl
sed '7s/w/v/' rows.jsonl >others.jsonl
for data in fewer.jsonl others.jsonl; do
    if two $data --output differ --overwrite --steps 90; then false; else complains "the ranks have different rows"; fi
    verdict $? "ranks with different rows, as $data, are told so"
done

# ---- what is refused ----

check "no steps" refuses "nothing says how long the training is: give --steps N" --data rows.jsonl \
    --streaming
check "epochs" refuses "counts passes over all rows" --data rows.jsonl --streaming --epochs 2
check "lengths" refuses "sorts all samples" --data rows.jsonl --streaming --steps 2 --format text \
    --group-by-length
check "weights" refuses "leave the weights or --streaming out" --data rows.jsonl:2 text.txt:1 \
    --streaming --steps 2
check "plain text" refuses "an object a line: give .jsonl" --data text.txt --streaming --steps 2
echo '{"text": ""}' >empty.jsonl
check "rows without a text" refuses "no row has anything to train on" --data empty.jsonl \
    --streaming --steps 2
echo '{"words": "of another column"}' >bad.jsonl
check "bad rows that are left out" refuses "no row has anything to train on" --data bad.jsonl \
    --streaming --steps 2 --text-column text --skip-bad-rows
for i in 1 2 3 4 5 6; do echo '{"prompt": "p", "completion": "c"}'; done >third.jsonl
sed -i '3s/"c"/7/' third.jsonl
check "a bad row has the name of its file" refuses "zinf train: third.jsonl: row 3: " \
    --data third.jsonl --streaming --steps 4
[ "$(grep -c "cache/" said.err)" = 0 ]
verdict $? "and not that of a file that is gone"
refuses "zinf train: --data: row 3: " \
    --data third.jsonl rows.jsonl --streaming --steps 4 --format prompt --overwrite
verdict $? "of several files rows are counted through"
"$zinf" train --model model --seq-len 16 --device host --output refused --overwrite --data - --streaming \
    --steps 4 <third.jsonl >said.out 2>said.err
complains "zinf train: standard input: row 3: "
verdict $? "or it came by standard input"
check "a buffer alone" refuses "is of --streaming" --data rows.jsonl --steps 2 --shuffle-buffer 9
finish
