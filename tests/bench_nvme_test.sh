#!/bin/sh
# zinf bench nvme: figures of every mix and engine on a few MiB, what is kept, nothing left behind,
# and what is refused.
zinf=$BUILDDIR/zinf
work=$(mktemp -d "$BUILDDIR/bench_nvme_test.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
mkdir "$work/a" "$work/b"
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
kept=$XDG_CACHE_HOME/zinf/bench.json
n=0
failed=0
result() { # ok|"not ok", name
    n=$((n + 1))
    echo "$1 $n - $2"
    [ "$1" = ok ] || { failed=1; sed 's/^/# /' "$work/out" "$work/err"; }
}
run() { # status, arguments...: streams in $work/out and $work/err
    status=$1
    shift
    "$zinf" bench nvme "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ $got -eq "$status" ]
}
has() { # file, words...
    file=$1
    shift
    for words; do grep -qF -e "$words" "$file" || { echo "# no '$words' in $file"; return 1; }; done
}
check() { # name, command...
    name=$1
    shift
    if "$@"; then result ok "$name"; else result "not ok" "$name"; fi
}
nothing_left() { [ -z "$(find "$work/a" "$work/b" -name 'zinf-*')" ]; }
text_is_whole() {
    run 0 --path "$work/a" --size 16MiB --seconds 0.02 &&
        has "$work/out" "256.00 KiB" "GiB/s" "p99.9 ms" "SQPOLL" "threads" '"aio": {"block_size"' \
            "13B" "written to the drive"
}
striped_json() {
    run 0 --path "$work/a,$work/b" --size 16MiB --block-size 1MiB --queue-depth 4 --jobs 2 \
        --random --json &&
        has "$work/out" '"read"' '"write"' '"mixed"' '"p99.9"' '"step_seconds"' '"engines"' \
            '"bytes_read":	16777216' '"bytes_written":	8388608' '"queue_depth":	4'
}
rates_are_kept() { has "$kept" '"nvme"' "$work/a\":" "$work/a,$work/b\":" '"mixed"' '"engine"'; }
one_mix() {
    run 0 --path "$work/a" --size 4MiB --read --block-size 1MiB --queue-depth 2 --seconds 0.02 \
        --engine threads --json && has "$work/out" '"read":' && ! grep -q '"mixed":' "$work/out"
}
refuses() { # words of the message, arguments...
    words=$1
    shift
    run 2 "$@" && has "$work/err" "$words"
}
fails() { # words of the message, arguments...
    words=$1
    shift
    run 1 "$@" && has "$work/err" "$words"
}

check "text" text_is_whole
check "JSON of two paths, two jobs" striped_json
check "rates are kept" rates_are_kept
check "one mix" one_mix
check "nothing is left" nothing_left
check "no path" refuses "--path is missing"
check "a path that is not there" refuses "$work/none" --path "$work/none"
check "unknown engine" refuses "uring or threads" --path "$work/a" --engine mmap
check "odd block size" refuses "multiple of 4096" --path "$work/a" --block-size 5000
check "too large" fails "lower --size" --path "$work/a" --size 4000TiB
check "too small for its jobs" fails "too few" --path "$work/a" --size 2MiB --jobs 8
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
    check "memory is no drive" fails "lies in memory" --path /dev/shm --size 2MiB
fi
check "nothing is left by failures" nothing_left
echo "1..$n"
exit $failed
