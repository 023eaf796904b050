#!/bin/sh
# What survives what, row by row as README's table and the list in zinf-guide(7) have it: each case is
# one row, and there is none that has no case. A power cut is another name of this boot and pages that never reached the drive.
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/drive" && cd "$work" || exit 99
shim=$BUILDDIR/tests/faults/.libs/shim.so
# The first column of README's table, then the guide's list.
promised=$work/promised
{
    sed -n '/^## What survives/,/^## Several/s/^| \([^|]*\) |.*/\1/p' "$SRCDIR/README.md" |
        sed '1d; s/`//g'
    sed -n '/^\.Sh DURABILITY/,/^Not covered/s/^\.It \([^S].*\)/\1/p' \
        "$SRCDIR/man/zinf-guide.7" | grep -v ' Ta '
} >"$promised"
# Under the address sanitizer the shim stands before its library, which wants to be asked.
ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS-}
export ASAN_OPTIONS

"$zinf" init --arch gpt2 --size small --layers 1 --hidden 16 --heads 2 --vocab 257 --context 32 \
    --output model >/dev/null || exit 99
make_text text.txt 60
write_config() { # param, optimizer, keys of zinf
    cat >config.json <<END
{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zinf": {"placement": "exact", "schedule": "serial"$3},
 "zero_optimization": {"stage": 3, "sub_group_size": 5000,
    "offload_param": {"device": "$1", "nvme_path": "$work/drive"},
    "offload_optimizer": {"device": "$2", "nvme_path": "$work/drive"}}}
END
}
train() { # output, options...: to 30 steps
    out=$1
    shift
    "$zinf" train --model model --data text.txt --config config.json --seq-len 16 --threads 1 \
        --progress none --output "$out" --steps 30 --resume "$@" >said.out 2>said.err
}
rebooted() { # the same after the machine was started anew
    echo another >boot
    ZINF_SHIM_BOOT=$work/boot LD_PRELOAD=$shim train "$@"
}
killed() { # output, options...: in its steps, the last but a few at most
    tries=0
    out=$1
    shift
    while [ $tries -lt 20 ]; do
        rm -rf "$out" drive/*
        "$zinf" train --model model --data text.txt --config config.json --seq-len 16 --threads 1 \
            --progress none --output "$out" --steps 1000000 "$@" >said.out 2>said.err &
        pid=$!
        wait_until $pid has_lines "$out" 8
        kill -KILL $pid 2>/dev/null
        wait $pid 2>/dev/null
        ! has_lines "$out" 28 && return
        tries=$((tries + 1))
    done
}
same() {
    cmp -s "$1/model/model.safetensors" whole/model/model.safetensors
}
from_step() { # it went on after the last step that was logged, or the one before
    step=$(sed -n 's/.*going on after step \([0-9]*\).*/\1/p' said.err | head -n 1)
    [ -n "$step" ] && [ "$step" -ge $(($(wc -l <"$1/before.jsonl") - 1)) ]
}
from_checkpoint() {
    grep -q "checkpoint-" said.err
}
refused() { # words
    [ $? -eq 1 ] && grep -q "$1" said.err
}
folder() {
    ls -d drive/*.steps-* | head -n 1
}
# Zeros, as where none of its writes came to be. They are on the drive before anything is written
# past the page cache: a page still being written makes the kernel fail the next flush (EIO).
forget_writes() {
    bytes=$(stat -c %s "$(folder)/extents")
    dd if=/dev/zero of="$(folder)/extents" bs=4096 count=$((bytes / 4096)) conv=notrunc,fsync 2>/dev/null
}
row() { # a row
    grep -qixF "$1" "$promised" || echo "# not promised: $1"
    grep -qixF "$1" "$promised"
    row_status=$?
    rows=$((rows + 1))
    name=$1
}
rows=0
held() {
    status=$?
    verdict $((status + row_status)) "$name: $1"
}

write_config nvme nvme ', "durability": "step"'
train whole || exit 99

# ---- what survives kill -9, and a power cut ----

row 'parameters and state on nvme, RAM has room for no state'
write_config nvme nvme ''
sed -i 's/"serial"/"auto"/' config.json
killed run
cp run/log.jsonl run/before.jsonl
train run && same run && from_step run
held "kill -9 loses no finished step"
write_config nvme nvme ', "durability": "step", "durability_flush": true'
killed run
cp run/log.jsonl run/before.jsonl
rebooted run && same run && from_step run
held "nor does a power cut with durability_flush"
write_config nvme nvme ', "durability": "step"'
killed run --save-every 3
forget_writes
rebooted run --save-every 3 && same run && from_checkpoint && grep -q "did not survive" said.err
held "without it checkpoints do, and it is said"

row 'state on nvme, with zinf.durability "step"'
for place in cpu nvme; do
    write_config $place nvme ', "durability": "step"'
    sed -i 's/"placement": "exact"/"placement": "auto"/' config.json
    killed run
    cp run/log.jsonl run/before.jsonl
    train run && same run && from_step run
    held "every step with durability \"step\" (parameters on $place)"
done
write_config cpu nvme ', "durability": "step", "durability_flush": true'
killed run
cp run/log.jsonl run/before.jsonl
rebooted run && same run && from_step run
held "and with durability_flush in a power cut"

row 'state in RAM or on the device'
for place in cpu none nvme; do
    write_config $place $place ''
    sed -i 's/"placement": "exact"/"placement": "auto"/' config.json
    killed run --save-every 3
    rebooted run --save-every 3 && same run && from_checkpoint
    held "checkpoints ($place)"
done

# ---- what happens, and what zinf does ----

row 'a bit, a page or a file of the state on the drive is damaged, older, cut off, swapped or missing'
write_config nvme nvme ', "durability": "step"'
killed run --save-every 3
forget_writes
train run
refused "$(folder)"
held "refuses by name"
checkpoint=$(sed -n 's/.*--resume=\([^ ;]*\).*/\1/p' said.err | head -n 1)
[ -n "$checkpoint" ] && train run "--resume=$checkpoint" && same run
held "--resume=CHECKPOINT goes on"
killed run
mv "$(folder)/commit" commit
train run
refused "commit"
held "a file that is missing"
"$zinf" verify run >said.out 2>said.err
[ $? -eq 1 ] && grep -q "commit" said.out
held "verify names it"

row 'the same happens to a checkpoint, its description or a token cache'
write_config cpu cpu ''
killed run --save-every 3 --save-total-limit 2
last=run/$(cat run/latest)
for victim in trainer_state.json optimizer/moment1.safetensors model.safetensors; do
    cp "$last/$victim" kept
    printf x | dd of="$last/$victim" bs=1 seek=200 conv=notrunc 2>/dev/null
    train run --save-every 3
    refused "$victim\|$last"
    held "$victim is refused by name"
    cp kept "$last/$victim"
done
tokens=$(ls run/cache/*.tokens)
printf xyz | dd of="$tokens" bs=1 seek=500 conv=notrunc 2>/dev/null
train run --save-every 3
status=$?
if [ $status -eq 0 ]; then same run; else grep -q "tokens" said.err; fi
held "a token cache is refused, or made again"

row 'the file latest, or the record of the last step, is lost or older'
killed run --save-every 3
newest=$(cat run/latest)
echo checkpoint-3 >run/latest
train run --save-every 3 --save-total-limit 1 && same run && grep -q "$newest is newer" said.err &&
    grep -q "is made again" said.err
held "says so"

row 'a write is lost, torn, misplaced, short or fails; a read or flush fails'
if [ -r "$shim" ] && [ -z "$ZINF_SANITIZER" ]; then
    write_config nvme nvme ', "durability": "step"'
    for kind in lost torn misplaced short eio enospc read-eio read-flip sync-eio; do
        rm -rf run drive/*
        ZINF_SHIM="$kind 30 $work/drive" LD_PRELOAD=$shim train run
        status=$?
        if [ $status -ne 0 ]; then
            grep -q "zinf train: .*/" said.err && { train run || grep -q "zinf train: .*/" said.err; }
        fi && { [ ! -d run/model ] || same run; }
        held "$kind"
    done
else
    skip "$name" "no shared library to preload"
fi

row 'the drive is not mounted, the file run-id is lost, or the output folder is a copy'
write_config nvme nvme ', "durability": "step"'
killed run
mv drive unmounted && mkdir drive
train run
refused "mount"
held "the drive"
rmdir drive && mv unmounted drive && mv run/run-id id
train run
refused "run-id"
held "run-id"
mv id run/run-id && cp -r run copied
train copied
refused "copy"
held "the output"
train run && same run
held "all put back"

row "another run's folder on the drive cannot be read"
killed run
mv run other
theirs=$(folder)
sum=$(cat "$theirs"/* | cksum)
if [ -r "$shim" ] && [ -z "$ZINF_SANITIZER" ]; then
    ZINF_SHIM="read-eio 1+ $theirs" LD_PRELOAD=$shim train run && same run &&
        [ "$sum" = "$(cat "$theirs"/* | cksum)" ]
    held "left alone"
else
    skip "$name" "no shared library to preload"
fi

listed=$(wc -l <"$promised")
[ "$listed" -eq $rows ]
verdict $? "every row has a case ($rows of $listed)"
grep -q '^Not covered:' "$SRCDIR/man/zinf-guide.7"
verdict $? "the guide says what is not covered"
finish
