#!/bin/sh
# What surrounds a process: closed standard descriptors, a terminal that goes away, a pipe whose
# reader is gone, files of others where its own should be. None of it changes what is learned.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99

"$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --vocab 257 --context 32 \
    --output model >/dev/null || exit 99
make_text text.txt 60
echo '{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}' >config.json
train="$zinf train --model model --data text.txt --config config.json --seq-len 16 --threads 1
    --progress none"
same() {
    [ $? -eq 0 ] && cmp -s "$1/model/model.safetensors" whole/model/model.safetensors
}

$train --output whole --steps 4 >said.out 2>said.err
verdict $? "a run of its own"
$train --output closed --steps 4 <&- 2>&- >said.out
same closed
verdict $? "without standard input and error"
$train --output none --steps 4 <&- >&- 2>&-
same none
verdict $? "without any"
$train --output piped --steps 4 2>&1 >/dev/null | true
same piped
verdict $? "a reader that goes away"

if ignores_hangups; then
    skip "SIGHUP saves, and ends with 129" "hangups are ignored here"
else
    $train --output hung --steps 1000000 >said.out 2>said.err &
    pid=$!
    wait_until $pid has_lines hung 2
    kill -HUP $pid
    wait $pid
    [ $? -eq 129 ] && [ -f "hung/$(cat hung/latest)/trainer_state.json" ] && [ -f hung/model/config.json ]
    verdict $? "SIGHUP saves, and ends with 129"
fi

# What the machine believes of the language and the time.
if mkdir locales && localedef -i de_DE -f UTF-8 locales/de_DE.UTF-8 2>/dev/null; then
    LOCPATH=$work/locales LC_ALL=de_DE.UTF-8 $train --output comma --steps 4 --lr 1.0e-3 \
        >said.out 2>said.err
    same comma
    verdict $? "numbers are written as ever where others write commas"
else
    skip "numbers are written as ever where others write commas" "no German locale can be made"
fi
shim=$BUILDDIR/tests/faults/.libs/shim.so
if [ -r "$shim" ] && [ -z "$ZINF_SANITIZER" ]; then
    $train --output clock --steps 2 --save-every 1 >said.out 2>said.err
    ZINF_SHIM_CLOCK=1 LD_PRELOAD=$shim $train --output clock --steps 4 --resume >said.out 2>said.err
    same clock
    verdict $? "a clock that goes backwards"
else
    skip "a clock that goes backwards" "no shared library to preload"
fi

# Limits that shells and schedulers set, in KiB.
if [ -z "$ZINF_SANITIZER" ]; then
    # The environment is on the stack too, and make's lists every test.
    (ulimit -s 80 && exec env -i PATH="$PATH" $train --output shallow --steps 4 >said.out 2>said.err)
    same shallow
    verdict $? "a stack of 80 KiB"
    (ulimit -v 200000 && exec timeout 60 "$zinf" help >said.out 2>said.err)
    verdict $? "help in 200 MB of address space"
    (ulimit -v 200000 && exec timeout 60 $train --output narrow --steps 4 >said.out 2>said.err)
    [ $? -eq 1 ] && grep -q 'OpenBLAS needs .* of address space: raise the limit (ulimit -v)' said.err
    verdict $? "and a training there says what it needs"
else
    skip "a small stack, little address space" "a sanitizer takes more of both"
fi

mkdir -p cache/zinf && mkfifo cache/zinf/bench.json
timeout 60 "$zinf" estimate --model model/config.json --config config.json --seq-len 16 \
    >said.out 2>said.err
verdict $? "a FIFO where measurements are kept is not waited for"
rm cache/zinf/bench.json
echo '{"gemm": {"bf16": {"flops": 1e-300}}, "nvme": {}, "optim": {}}' >cache/zinf/bench.json
"$zinf" estimate --model model/config.json --config config.json --seq-len 16 >said.out 2>said.err &&
    ! grep -q "inf s\|nan" said.out
verdict $? "a speed that no machine has is not believed"

if [ "$(id -u)" -eq 0 ]; then
    mkdir linked && echo kept >victim && ln -s ../victim linked/log.jsonl &&
        chown -h 12345 linked/log.jsonl
    $train --output linked --overwrite --steps 2 >said.out 2>said.err
    [ "$(cat victim)" = kept ] # refused, or replaced
    verdict $? "a link of another user is not followed"
else
    skip "a link of another user is not followed" "needs another user's link: run as root"
fi
finish
