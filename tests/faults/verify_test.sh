#!/bin/sh
# verify: what a training left is compared to the last byte; the newest step that is whole is found,
# and --repair makes --resume go on there, with the bits of a run that nobody touched. And --resume
# by itself never begins anew where steps were finished.
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/drive" && cd "$work" || exit 99

"$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --vocab 257 --context 32 \
    --output model >/dev/null || exit 99
make_text text.txt 60
cat >config.json <<END
{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zinf": {"placement": "exact", "schedule": "serial", "durability": "step"},
 "zero_optimization": {"stage": 3, "sub_group_size": 5000,
    "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
    "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}}}
END
command="$zinf train --model model --data text.txt --config config.json --seq-len 16 --threads 1
    --progress none"
train() { # output, options...
    out=$1
    shift
    $command --output "$out" "$@" >said.out 2>said.err
}
kill_after() { # output, lines of its log, options...
    out=$1
    lines=$2
    shift 2
    $command --output "$out" --steps 1000000 --resume "$@" >said.out 2>said.err &
    pid=$!
    wait_until $pid has_lines "$out" "$lines"
    kill -KILL $pid
    wait $pid 2>/dev/null
}
flip() { # file, offset: another byte there
    byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    printf "$(printf '\\%03o' $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
refused() { # words
    [ $? -eq 1 ] && grep -q "$1" said.err && [ "$(ls drive)" = "$left" ]
}

kill_after run 5
left=$(ls drive)
last=$("$zinf" resume-info run | sed -n 's/.*the last is step \([0-9]*\).*/\1/p')
"$zinf" verify run >said.out 2>said.err && grep -q "$left: whole, step $last" said.out &&
    grep -q "text.txt.*tokens: whole" said.out && grep -q "continued from: step $last" said.out
verdict $? "what was killed is whole"
"$zinf" verify drive >said.out 2>said.err && grep -q "$left: whole, step $last" said.out
verdict $? "so it is when only the drive is named"

# The bank of the last step: one byte of it anywhere.
bytes=$(stat -c %s "drive/$left/extents")
cp "drive/$left/extents" extents.before
damaged=0
at=1000
while [ $at -lt "$bytes" ]; do
    flip "drive/$left/extents" $at
    if ! "$zinf" verify run >said.out 2>said.err; then
        damaged=$((damaged + 1))
        place=$at
    fi
    flip "drive/$left/extents" $at
    at=$((at + bytes / 16))
done
# Two banks and the gradients: those of parameters and state are 12 bytes of 28.
[ $damaged -ge 4 ] && [ $damaged -le 9 ] && cmp -s extents.before "drive/$left/extents"
verdict $? "a byte in its bank is found, one elsewhere is not asked for ($damaged of 16)"

flip "drive/$left/extents" "$place"
train run --steps $((last + 3)) --resume
refused "checksum.*verify run"
verdict $? "--resume refuses it, and names the way on"
"$zinf" verify run >said.out 2>said.err
[ $? -eq 1 ] && grep -q "checksum" said.out
verdict $? "verify names it"
if grep -q "before it is whole" said.out; then
    "$zinf" verify --repair run >said.out 2>said.err && grep -q "goes on after step" said.out &&
        "$zinf" verify run >said.out 2>said.err
    verdict $? "--repair keeps the step before it"
else
    # The step after it had begun: nothing is whole, and --repair changes nothing.
    sum=$(cat "drive/$left"/* | cksum)
    "$zinf" verify --repair run >said.out 2>said.err
    [ $? -eq 1 ] && [ "$sum" = "$(cat "drive/$left"/* | cksum)" ] &&
        flip "drive/$left/extents" "$place"
    verdict $? "--repair changes nothing where no step is whole"
fi
train run --steps $((last + 3)) --resume && train whole --steps $((last + 3)) &&
    cmp -s run/model/model.safetensors whole/model/model.safetensors
verdict $? "and the training ends with the same bits"

# Evidence of steps, and none to go on from.
kill_after lost 4
left=$(ls drive)
steps=$(($(wc -l <lost/log.jsonl) + 5))
mv "drive/$left" elsewhere
left=
train lost --steps $steps --resume
refused "not there.*run-id\|not there: mount"
verdict $? "steps that are not where they were left"
train lost --steps $steps
refused "not there"
verdict $? "nor does a beginning take their place"
mv elsewhere drive/zinf-train.steps-1-0
left='zinf-train.steps-1-0'
cp -r lost copied
train copied --steps $steps --resume
refused "is a copy of"
verdict $? "a copy of an output is another run's"
mv lost/run-id id
train lost --steps $steps --resume
refused "run-id beside it is missing"
verdict $? "a name that is missing"
tr '0-9' '1-90' <id >lost/run-id
train lost --steps $steps --resume
refused "run-id is damaged"
verdict $? "a name that is damaged"
mv id lost/run-id
mv "drive/$left/steps" steps
"$zinf" verify lost >said.out 2>said.err
[ $? -eq 1 ] && grep -q "drive: finished steps of this run were left here" said.out &&
    ! grep -q "can be continued from" said.out
verdict $? "verify says that a folder's description is gone"
mv steps "drive/$left/steps"
mv "drive/$left/commit" commit
train lost --steps $steps --resume
refused "commit"
verdict $? "a commit area that is gone"
mv commit "drive/$left/commit"
train lost --steps $steps --resume && train anew --steps $steps &&
    cmp -s lost/model/model.safetensors anew/model/model.safetensors && [ -z "$(ls drive)" ]
verdict $? "all put back, it goes on to the same bits"

# State in RAM leaves no steps; what goes on from its checkpoint on a drive is not told of any.
sed 's/"nvme"/"cpu"/g' config.json >ram.json
mv config.json drive.json && mv ram.json config.json
kill_after ram 6 --save-every 2
steps=$(($(wc -l <ram/log.jsonl) + 5))
mv drive.json config.json
train ram --steps $steps --resume && grep -q "checkpoint-" said.err
verdict $? "from a checkpoint of state in RAM onto a drive"

# The result: every file of it, also in another place; a folder without sums is no result.
"$zinf" verify ram >said.out 2>said.err && grep -q "^ram/model: whole, a model" said.out
verdict $? "the model at the end is whole"
cp -r ram/model moved
damaged=0
for file in moved/*; do
    flip "$file" 40
    "$zinf" verify moved >said.out 2>said.err
    [ $? -eq 1 ] && grep -q "^moved: $file" said.out || damaged=1
    cp "ram/model/${file#moved/}" "$file"
done
[ $damaged -eq 0 ] && "$zinf" verify moved >said.out 2>said.err
verdict $? "a byte of any of its files is found"
train ram --steps $((steps + 1)) --resume && "$zinf" verify ram/model >said.out 2>said.err
verdict $? "the sums go with the next model"

"$zinf" verify model >said.out 2>said.err
[ $? -eq 1 ] && grep -q "nothing that a training left" said.err
verdict $? "verify of a folder without anything"
"$zinf" verify >said.out 2>said.err
[ $? -eq 2 ]
verdict $? "verify of nothing"
finish
