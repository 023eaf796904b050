#!/bin/sh
# Checkpoints through the command line: signals save and stop or go on, --resume continues to the
# same bits, what is damaged is refused with the checkpoint to take instead, export writes a model.
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/drive" && cd "$work" || exit 99

"$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --vocab 257 --context 32 \
    --output model >/dev/null || exit 99
make_text text.txt 60
cat >config.json <<END
{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW"}, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 3,
    "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
    "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "exact"}}
END

# A shell ignores SIGINT in what it starts in the background; env gives it back.
command="env --default-signal=INT $zinf train --data text.txt --config config.json --seq-len 16
    --threads 1 --progress none"
start() { # output, options...; a run that goes on until it is stopped
    out=$1
    shift
    $command --output "$out" --steps 1000000 "$@" >said.out 2>said.err &
    pid=$!
}
step_of() { # output
    sed 's/checkpoint-//' "$1/latest"
}
losses() { # output: step and loss
    sed 's/, "grad_norm".*//' "$1/log.jsonl"
}

$command --model model --output first --steps 1 --resume >said.out 2>said.err
[ $? -eq 0 ] && grep -q "no checkpoint yet" said.err && [ "$(cat first/latest)" = checkpoint-1 ]
verdict $? "--resume without a checkpoint begins"
$command --model model --output first --resume=nowhere >said.out 2>said.err
[ $? -eq 1 ] && grep -q "nowhere" said.err
verdict $? "--resume=DIR without a checkpoint is refused"

start asked --model model
wait_until $pid has_lines "$out" 2
kill -USR1 $pid
wait_until $pid [ -e asked/latest ]
saved=$(step_of asked)
wait_until $pid has_lines "$out" $((saved + 2))
kill -0 $pid 2>/dev/null && [ -f "asked/checkpoint-$saved/trainer_state.json" ] &&
    has_lines "$out" $((saved + 2))
verdict $? "SIGUSR1 saves and goes on"
kill -TERM $pid
wait $pid
status=$?
stopped=$(step_of asked)
[ $status -eq 143 ] && [ "$stopped" -gt "$saved" ] &&
    grep -q "zinf: SIGTERM: stopping after this step; once more to stop now" said.err &&
    grep -q "stopped after step $stopped of 1000000.*--resume" said.err &&
    [ -f asked/model/config.json ] && [ -z "$(ls -A drive)" ]
verdict $? "SIGTERM saves, ends with 143 and says how to go on"

$command --model model --output asked --steps 1000000 >said.out 2>said.err
[ $? -eq 1 ] && grep -q "checkpoint-$stopped.*--resume" said.err
verdict $? "a folder with checkpoints is not overwritten"

total=$((stopped + 3))
$command --output asked --steps $total --resume --save-every 2 >said.out 2>said.err
status=$?
$command --model model --output whole --steps $total >said.out 2>whole.err &&
    [ $status -eq 0 ] && cmp -s asked/model/model.safetensors whole/model/model.safetensors
verdict $? "--resume, without --model, ends with the same weights"
[ "$(losses asked)" = "$(losses whole)" ] && has_lines "$out" $total
verdict $? "the log has every step once, with the same losses"

start int --model model --save-every 1000000
wait_until $pid has_lines "$out" 2
kill -INT $pid
wait $pid
[ $? -eq 130 ] && [ -f "int/$(cat int/latest)/optimizer/moment2.safetensors" ]
verdict $? "SIGINT saves and ends with 130"

# What schedulers send before they kill; the kernel repeats SIGXCPU.
for name in USR2 XCPU HUP; do
    if [ $name = HUP ] && ignores_hangups; then
        skip "SIGHUP saves and ends" "hangups are ignored here"
        continue
    fi
    start "of$name" --model model
    wait_until $pid has_lines "$out" 2
    kill -$name $pid
    [ $name = HUP ] || { sleep 0.7 && kill -$name $pid 2>/dev/null; }
    wait $pid
    status=$?
    [ $status -gt 128 ] && [ "$(kill -l $status)" = $name ] && [ -f "of$name/$(cat "of$name/latest")/optimizer/moment2.safetensors" ] &&
        grep -q "SIG$name: stopping after this step" said.err
    verdict $? "SIG$name saves and ends"
done

# A last evaluation of minutes is not waited for; one that is due is.
start evaluated --model model --eval-data text.txt --progress none
wait_until $pid has_lines "$out" 2
kill -INT $pid
wait $pid
[ $? -eq 130 ] && ! grep -q eval_loss evaluated/log.jsonl
verdict $? "who stops a run does not wait for an evaluation"
$command --model model --output short --steps 2 --eval-data text.txt >said.out 2>said.err &&
    grep -q eval_loss short/log.jsonl
verdict $? "a training that is done ends with one, and with 0"

start group --model model
wait_until $pid has_lines "$out" 2
kill -INT $pid $pid # as timeout(1) and launchers do
wait $pid
[ $? -eq 130 ] && [ -f "group/$(cat group/latest)/optimizer/moment2.safetensors" ]
verdict $? "a signal that comes twice at once is one"

start twice --model model
wait_until $pid has_lines "$out" 2
kill -STOP $pid # before the step ends; two seconds pass before it can be done with saving
kill -INT $pid
kill -CONT $pid
sleep 0.01
kill -STOP $pid
sleep 2.1
kill -INT $pid 2>/dev/null
kill -CONT $pid 2>/dev/null
wait $pid
status=$?
[ $status -eq 130 ]
verdict $? "a second signal stops at once, or finds it done"

latest=asked/$(cat asked/latest)
before=$(ls -d asked/checkpoint-* | sed 's/.*-//' | sort -n | tail -n 2 | head -n 1)
printf 'x' | dd of="$latest/optimizer/moment1.safetensors" bs=1 seek=5000 conv=notrunc 2>/dev/null
$command --output asked --steps $((total + 1)) --resume >said.out 2>said.err
[ $? -eq 1 ] && grep -q "moment1.safetensors is damaged.*--resume=asked/checkpoint-$before" said.err
verdict $? "damage is named, and the checkpoint before it"
"$zinf" resume-info asked >said.out 2>said.err &&
    grep -q "checkpoint-$before: whole, step $before" said.out &&
    grep -q "$latest: not usable: .*moment1.safetensors is damaged" said.out
verdict $? "resume-info tells whole from damaged"
"$zinf" resume-info model >said.out 2>said.err
[ $? -eq 1 ] && grep -q "nothing to continue from" said.err
verdict $? "resume-info of a folder without either"
$command --output asked --steps $((total + 1)) --resume=asked/checkpoint-$before \
    >said.out 2>said.err && tail -n 1 asked/log.jsonl | grep -q "^{\"step\": $((total + 1)),"
verdict $? "it can be continued from"

# Without any checkpoint: steps that outlive their process. Those of the run that a second signal
# stopped are there too.
rm -rf drive/zinf-*
start lost --model model
wait_until $pid has_lines "$out" 3
kill -KILL $pid
wait $pid 2>/dev/null
left=$(ls drive)
last=$(wc -l <lost/log.jsonl)
"$zinf" resume-info lost >said.out 2>said.err && grep -q "$left: .*the last is step" said.out
verdict $? "after kill -9 resume-info knows the last step"
$command --model model --output lost --steps 5 >said.out 2>said.err
[ $? -eq 1 ] && grep -q "$left holds step.*--resume" said.err && [ -d "drive/$left" ]
verdict $? "a beginning does not take it away"
$command --model model --output beside --steps 2 >said.out 2>said.err &&
    grep -q "$left .*steps of another run" said.err && [ "$(ls drive)" = "$left" ]
verdict $? "another run leaves it alone"
$command --model model --output lost --steps $((last + 3)) --resume >said.out 2>said.err &&
    grep -q "going on after step .*$left" said.err &&
    $command --model model --output whole2 --steps $((last + 3)) >said.out 2>whole.err &&
    cmp -s lost/model/model.safetensors whole2/model/model.safetensors &&
    [ "$(losses lost)" = "$(losses whole2)" ] && [ -z "$(ls -A drive)" ]
verdict $? "--resume goes on after it, with the same bits"

# A run that is done goes on, and nothing of it is destroyed by one that does not.
$command --model model --output done --steps 3 >said.out 2>said.err &&
    grep -q '"checkpoint": "done/checkpoint-3"' said.out && lines_of=$(wc -l <done/log.jsonl)
cp done/log.jsonl first.jsonl
$command --model model --output done --steps 2 >said.out 2>said.err
[ $? -eq 1 ] && grep -q "done holds checkpoints.*--resume.*--overwrite" said.err &&
    cmp -s done/log.jsonl first.jsonl
verdict $? "a finished run is not written over"
$command --model model --output done --steps 5 --resume >said.out 2>said.err &&
    [ "$(wc -l <done/log.jsonl)" -eq 5 ] && [ "$lines_of" -eq 3 ]
verdict $? "it goes on without --save-every"
rm -rf done/checkpoint-* done/latest
$command --model model --output done --steps 6 --resume >said.out 2>said.err
[ $? -eq 1 ] && grep -q "holds the model of an earlier run and no checkpoint" said.err &&
    [ "$(wc -l <done/log.jsonl)" -eq 5 ] && [ -f done/model/config.json ]
verdict $? "--resume without a checkpoint leaves a finished model"
rm -rf done/model
$command --model model --output done --steps 6 >said.out 2>said.err
[ $? -eq 1 ] && grep -q "done/log.jsonl is the log of an earlier run" said.err
verdict $? "nor is a log written over"
$command --model model --output done --steps 2 --resume >said.out 2>said.err &&
    [ "$(wc -l <done/log.jsonl)" -eq 2 ] && [ "$(wc -l <done/log.jsonl.1)" -eq 5 ]
verdict $? "--resume that begins anew keeps the log of lost steps"
$command --model done/model --output done --steps 2 --overwrite >said.out 2>said.err
[ $? -eq 1 ] && grep -q "would be written over --model" said.err && [ -f done/model/config.json ]
verdict $? "--overwrite does not remove what it starts from"
$command --model model --output done --steps 1 --overwrite --device-memory 100KiB \
    >said.out 2>said.err
[ $? -eq 1 ] && [ "$(wc -l <done/log.jsonl)" -eq 2 ] && [ -f done/model/config.json ]
verdict $? "--overwrite removes nothing for a run that cannot begin"
$command --model model --output done --steps 1 --overwrite --no-final-checkpoint \
    >said.out 2>said.err && grep -q "removes what an earlier run left in .*: model/, its log, 1 checkpoint up to step 2" said.err &&
    [ "$(wc -l <done/log.jsonl)" -eq 1 ] && [ ! -e done/checkpoint-2 ] && [ ! -e done/latest ]
verdict $? "--overwrite says what goes"
$command --model model --output other --log done/log.jsonl --steps 1 >said.out 2>said.err
[ $? -eq 1 ] && grep -q "done/log.jsonl is the log.*--log" said.err
verdict $? "--log of another run is not written over"

"$zinf" export --checkpoint asked/checkpoint-$before --output model32 --dtype fp32 \
    --max-shard-size 60KB >said.out 2>said.err && [ -f model32/model.safetensors.index.json ] &&
    "$zinf" inspect model32 | grep -q "no problem found"
verdict $? "export writes a sharded model"
"$zinf" export --checkpoint model --output model32 >said.out 2>said.err
[ $? -eq 1 ] && grep -q "no checkpoint" said.err
verdict $? "export refuses what is no checkpoint"
"$zinf" export --checkpoint asked >said.out 2>said.err
[ $? -eq 2 ] && grep -q -e "--output" said.err
verdict $? "export without --output"
finish
