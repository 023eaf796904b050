# command: what the tests of the command share; a test begins with
#   . "$SRCDIR/tests/support/command.sh"
# and ends with finish. It has $zinf, a folder $work of its own that goes with it, in which the
# benches keep what they measure, and what the last command said in $work/said.out and said.err.
zinf=$BUILDDIR/zinf
work=$(mktemp -d "$BUILDDIR/tests/work-sh.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
unset ZINF_LOG ZINF_CUDA_MODULE
count=0
failed=0

verdict() { # status, name: one case
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $count - $2"
        return
    fi
    for stream in out err; do
        [ ! -f "$work/said.$stream" ] || sed "s/^/# $stream: /" "$work/said.$stream" | tail -n 30
    done
    echo "not ok $count - $2"
    failed=1
}

skip() { # name, reason
    count=$((count + 1))
    echo "ok $count - $1 # SKIP $2"
}

check() { # name, command...: the case is that it succeeds
    name=$1
    shift
    "$@"
    verdict $? "$name"
}

run() { # status, command...: that it ends with this status
    status=$1
    shift
    "$@" >"$work/said.out" 2>"$work/said.err" </dev/null
    got=$?
    [ $got -eq "$status" ] || echo "# status $got instead of $status"
    [ $got -eq "$status" ]
}

holds() { # file, words...
    file=$1
    shift
    for words; do
        grep -qF -e "$words" "$file" || { echo "# no '$words' in $file"; return 1; }
    done
}
says() { holds "$work/said.out" "$@"; }
complains() { holds "$work/said.err" "$@"; }

make_text() { # file, lines
    line=0
    while [ $line -lt "$2" ]; do
        echo "line $line of a text that is long enough for some windows"
        line=$((line + 1))
    done >"$1"
}

# Until a command succeeds, the process has ended or a minute is over.
wait_until() { # process, command...
    waits=0 waits_of=$1
    shift
    until "$@" 2>/dev/null || [ $waits -ge 6000 ] || ! kill -0 "$waits_of" 2>/dev/null; do
        sleep 0.01
        waits=$((waits + 1))
    done
}
has_lines() { # output of a training, lines of its log at least; without another process
    lines_there=0
    [ -r "$1/log.jsonl" ] || return
    while read -r _; do lines_there=$((lines_there + 1)); done <"$1/log.jsonl"
    [ $lines_there -ge "$2" ]
}

# What nohup starts ignores hangups, and so does every program below it.
ignores_hangups() {
    ignored=0x$(sed -n 's/^SigIgn:[[:space:]]*//p' /proc/self/status)
    [ $((ignored & 1)) -eq 1 ]
}

finish() {
    echo "1..$count"
    exit $failed
}
