#!/bin/sh
# zinf bench nvme: figures of every mix and engine on a few MiB, what is kept, nothing left behind,
# and what is refused.
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/a" "$work/b"
kept=$XDG_CACHE_HOME/zinf/bench.json
bench() { # status, arguments...
    status=$1
    shift
    run "$status" "$zinf" bench nvme "$@"
}
nothing_left() { [ -z "$(find "$work/a" "$work/b" -name 'zinf-*')" ]; }
text_is_whole() {
    bench 0 --path "$work/a" --size 16MiB --seconds 0.02 &&
        says "256.00 KiB" "GiB/s" "p99.9 ms" "SQPOLL" "threads" '"aio": {"block_size"' \
            "13B" "written to the drive" "small reads, one after the other" \
            "beside busy CPUs: "
}
striped_json() {
    bench 0 --path "$work/a,$work/b" --size 16MiB --block-size 1MiB --queue-depth 4 --jobs 2 \
        --random --json &&
        says '"read"' '"write"' '"mixed"' '"p99.9"' '"step_seconds"' '"engines"' \
            '"bytes_read":	16777216' '"bytes_written":	8388608' '"queue_depth":	4'
}
little_is_not_kept() { complains "256.00 MiB or more: give more --size" && [ ! -e "$kept" ]; }
one_mix_is_not_kept() { complains "leave out --read" && [ ! -e "$kept" ]; }
enough_is_kept() {
    bench 0 --path "$work/a,$work/b" --size 256MiB --block-size 1MiB --queue-depth 4 \
        --seconds 0.02 --json && ! complains "not kept" >/dev/null
}
rates_are_kept() {
    holds "$kept" '"nvme"' "$work/a\":" "$work/a,$work/b\":" '"mixed"' '"engine"' '"answers"' \
        '"cpu_bytes"' '"busy_drive"' '"busy_threads"'
}
one_mix() {
    bench 0 --path "$work/a" --size 4MiB --read --block-size 1MiB --queue-depth 2 --seconds 0.02 \
        --engine threads --json && says '"read":' && ! grep -q '"mixed":' "$work/said.out"
}
refuses() { # words of the message, arguments...
    words=$1
    shift
    bench 2 "$@" && complains "$words"
}
fails() { # words of the message, arguments...
    words=$1
    shift
    bench 1 "$@" && complains "$words"
}

check "text" text_is_whole
check "figures of little data are not kept" little_is_not_kept
check "JSON of two paths, two jobs" striped_json
check "one mix" one_mix
check "nor are those of one mix" one_mix_is_not_kept
check "data enough" enough_is_kept
check "rates are kept" rates_are_kept
check "nothing is left" nothing_left
check "no path" refuses "--path is missing"
check "a path that is not there" refuses "$work/none" --path "$work/none"
check "unknown engine" refuses "uring or threads" --path "$work/a" --engine mmap
check "odd block size" refuses "multiple of 4096" --path "$work/a" --block-size 5000B
check "too large" fails "lower --size" --path "$work/a" --size 4000TiB
check "too small for its jobs" fails "too few" --path "$work/a" --size 2MiB --jobs 8
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
    check "memory is no drive" fails "lies in memory" --path /dev/shm --size 2MiB
fi
check "nothing is left by failures" nothing_left

# A pipe gets lines, and a signal leaves nothing.
is_ended() { # signal, its number
    "$zinf" bench nvme --path "$work/a" --size 64MiB --seconds 600 >"$work/said.out" \
        2>"$work/said.err" &
    pid=$!
    wait_until $pid grep -q "in flight" "$work/said.err"
    kill "-$1" $pid
    wait $pid
    [ $? -eq $((128 + $2)) ] && complains "removed at the end" "all data for the first time" \
        "SIG$1: ending, and removing the files" && nothing_left
}
check "ended by SIGTERM" is_ended TERM 15
if ignores_hangups; then
    skip "ended by SIGHUP" "hangups are ignored here"
else
    check "ended by SIGHUP" is_ended HUP 1
fi
finish
