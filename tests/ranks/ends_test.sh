#!/bin/sh
# Every life of a training with several ranks or seats ends in time: whatever one of them does, in
# whatever phase, the others end within zinf.timeout and a few seconds and name it, and what is left
# goes on to the bits of a run that nobody ended. What is slow and alive is not taken for dead;
# strangers at the ranks' port neither stop nor change anything.
# ZINF_TEST_ENDS: draws of a training, a phase, a moment in it, a rank, and a signal or a hang;
# ZINF_TEST_SEED: other ones; ZINF_TEST_DRAW: this one alone, and nothing else.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
. "$SRCDIR/tests/support/ports.sh"
draws=${ZINF_TEST_ENDS:-8}
seed=${ZINF_TEST_SEED:-1}
timeout=3
slack=30 # for looks, last words and a busy machine; other limits are minutes
steps=8
mkdir "$work/drive" || exit 99
shim=$BUILDDIR/tests/faults/.libs/shim.so

keys=", \"timeout\": $timeout, \"durability\": \"step\""
rank_config "$work/one.json" 2 4 nvme "$work/drive" "$keys"
rank_config "$work/two.json" 2 2 nvme "$work/drive" "$keys"
rank_config "$work/async.json" 2 2 nvme "$work/drive" "$keys, \"async_save\": true"
rank_config "$work/four.json" 2 1 cpu "$work/drive" ", \"timeout\": $timeout"
quantised=", \"timeout\": $timeout, \"quantize\": \"nf4\", \"adapter\": {\"r\": 4}"
rank_config "$work/nf4.json" 2 2 cpu "$work/drive" "$quantised"
# Where nobody is to be late, a drive that writes for seconds or a busy machine is not taken for that.
for kind in two async four nf4; do
    sed "s/\"timeout\": $timeout/\"timeout\": 60/" "$work/$kind.json" >"$work/calm-$kind.json"
done
make_rank_model
secret=0123456789abcdef0123456789abcdef
options="$options --progress none"
evaluated="--eval-data $work/text.txt --eval-every 3"

# As torchrun starts them; $1: rank. The one that is struck has the shim before it.
config=two seats='' victim='' strike='' calm=''
rank() {
    rank=$1
    shift
    preload=
    [ "$rank" != "$victim" ] || preload=$shim
    # shellcheck disable=SC2086
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$port ZINF_NET_SECRET=$secret exec env ZINF_SHIM="$strike" LD_PRELOAD="$preload" \
        "$zinf" train --config "$work/$calm$config.json" $seats $options "$@" \
        >"$work/rank$rank.out" 2>"$work/rank$rank.err" </dev/null
}
start() { # options...: pids in $first and $second
    next_port
    (rank 0 "$@") &
    first=$!
    (rank 1 "$@") &
    second=$!
}
both() { # options...: whether both end well
    victim='' calm=calm-
    start "$@"
    calm=
    wait $first
    one=$?
    wait $second
    two=$?
    [ $one$two = 00 ]
}
now() { date +%s%N | sed 's/......$//'; } # milliseconds
# Until the process is over, at most so many seconds; the status of waiting.
over_within() { # pid, seconds
    end=$(($(now) + $2 * 1000))
    while kill -0 "$1" 2>/dev/null && [ "$(now)" -lt $end ]; do sleep 0.05; done
    ! kill -0 "$1" 2>/dev/null
}

# ---- a signal or a hang in every phase ----

# A phase is known by its files: whether they are read or written there, a part of their path, and
# about how many transfers there are.
phases() {
    cat <<EOF
start read text.txt 4
start read model/config.json 2
start read model/tokenizer.json 3
start read .tokens 20
load read model.safetensors 30
quantise read model.safetensors 30
step write extents 300
step read extents 300
step write /commit 20
evaluation read .tokens 200
save write tmp-checkpoint 20
save write latest 2
background-save write tmp-checkpoint 20
end write model.partial 4
end write history 1
end write checkpoint-$steps/ 10
EOF
}
# number: sets phase, part, moment, victim, signal and config, the same ones for one seed. 0 of
# the signals is a seat that hangs. Phases take turns.
draw_of() {
    # shellcheck disable=SC2046
    set -- $(phases | awk -v n="$1" -v s="$seed" '
        { line[NR] = $0 }
        END { srand(n * 7919 + s); for (i = 0; i < 9; i++) rand()
              split(line[1 + (n * 5 + s) % NR], f, " ")
              split("9 19 9 19 15 10 12 24 0 0", signals, " ")
              print f[1], f[2], f[3], 1 + int(f[4] * rand()), int(2 * rand()),
                    signals[1 + int(10 * rand())], int(4 * rand()) }')
    phase=$1 moves=$2 part=$3 moment=$4 victim=$5 signal=$6
    config=two seats=''
    case $phase$7 in
    quantise*) config=nf4 ;;
    background*) config=async ;;
    *0) config=four seats="--seats 2" ;;
    esac
    # Before there are seats, and behind them, a drive that hangs holds up the command itself.
    case $signal$phase$part in
    0start* | 0endhistory) signal=9 ;;
    esac
}
trained() { # output: the file that must be the same
    ls "$1"/model/adapter_model.safetensors "$1"/model/model.safetensors 2>/dev/null | head -n 1
}
whole() { # what comes of this training where nobody ends it, made once
    # shellcheck disable=SC2086
    [ -d "$work/whole-$config/model" ] ||
        both --steps $steps $evaluated --output "$work/whole-$config"
}
stands() { # pid: stopped or over
    ! kill -0 "$1" 2>/dev/null || grep -qE '^State:[[:space:]]*[TZ]' "/proc/$1/status" 2>/dev/null
}
until_struck() { # pids of the struck and the other: at most a minute
    end=$(($(now) + 60000))
    until stands "$1" || ! kill -0 "$2" 2>/dev/null || [ "$(now)" -gt $end ]; do sleep 0.02; done
}
is_named() { # by the one that is left
    grep -qE "(rank|process) $victim (has|is|\(rank 0)|ranks? $victim |rank 0 at" \
        "$work/rank$((1 - victim)).err"
}
# What follows from the signal. Both may have ended before it.
ends_well() { # status of the struck, of the other
    [ "$1$2" = 00 ] && return
    case $signal in
    9 | 19) [ "$2" -eq 1 ] && is_named || { [ "$2" -eq 0 ] && [ -n "$(trained "$out")" ]; } ;;
    10) false ;; # SIGUSR1: a checkpoint, and on
    # The default before there is a run that could be saved: the one ends, the other names it.
    *) [ "$1" -eq $((128 + signal)) ] &&
        { [ "$2" -eq "$1" ] || { [ "$phase$2" = start1 ] && is_named; }; } ;;
    esac
}
strike_rank() {
    strike="signal$signal $moment $part"
    # shellcheck disable=SC2086
    start --steps $steps --save-every 2 $evaluated --output "$out"
    [ "$victim" -eq 0 ] && struck=$first left=$second || struck=$second left=$first
    until_struck $struck $left
    over_within $left $((timeout + slack))
    in_time=$?
    [ "$signal" -ne 19 ] || kill -KILL $struck 2>/dev/null
    over_within $struck $((timeout + slack)) || in_time=1
    kill -KILL $struck $left 2>/dev/null
    wait $left
    other=$?
    wait $struck
    own=$?
    said="status $own, of the other $other, late $in_time"
    [ $in_time -eq 0 ] && ends_well $own $other
}
# The transfer and all that follow never come back: no seat can end itself. The run begins, and
# trains for a while.
strike_seat() {
    hang=hang
    [ "$moves" = write ] || hang=read-hang
    config=two seats='' victim=none
    [ "$phase" != quantise ] || config=nf4
    [ "$phase" != background-save ] || config=async
    # shellcheck disable=SC2086
    ZINF_SHIM="$hang $moment+ $part" LD_PRELOAD=$shim "$zinf" train --config "$work/$config.json" \
        --seats 2 $options --steps $steps --save-every 2 $evaluated --output "$out" \
        >"$work/rank0.out" 2>"$work/rank0.err" </dev/null &
    pid=$!
    over_within $pid $((timeout + slack + 10))
    in_time=$?
    kill -KILL $pid 2>/dev/null
    wait $pid
    status=$?
    said="status $status, late $in_time"
    [ $in_time -eq 0 ] && { [ $status -eq 0 ] ||
        { [ $status -eq 1 ] && grep -qE "seat [01]" "$work/rank0.err"; }; }
}
said_both() {
    for rank in 0 1; do
        [ ! -f "$work/rank$rank.err" ] || sed "s/^/# $rank: /" "$work/rank$rank.err"
    done
}
one_life() { # name; what draw_of sets
    out=$work/draw
    rm -rf "$out" "$work"/rank?.err
    what=strike_rank
    [ "$signal" -ne 0 ] || what=strike_seat
    $what
    well=$?
    name="$1: signal $signal of rank $victim at $moves $moment of $part ($phase, $config)"
    echo "# $name: $said"
    [ $well -eq 0 ] || said_both
    verdict $well "$name: ends in time, and is named"
    # shellcheck disable=SC2086
    both --steps $steps $evaluated --output "$out" --resume && whole &&
        cmp -s "$(trained "$out")" "$(trained "$work/whole-$config")"
    well=$?
    [ $well -eq 0 ] || said_both
    verdict $well "$1: --resume goes on to the same bits"
}
one_draw() { # number
    draw_of "$1"
    one_life "draw $1"
}
if [ ! -r "$shim" ] || [ -n "$ZINF_SANITIZER" ]; then
    skip "signals and hangs in every phase" "no shim here"
    draws=0
fi
if [ -n "$ZINF_TEST_DRAW" ]; then
    one_draw "$ZINF_TEST_DRAW"
    finish
fi
if [ "$draws" -gt 0 ]; then
    # All seats wait for one drive, so none of them can tell that the others hang.
    phase=step moves=read part=extents moment=60 signal=0 config=two seats=''
    one_life "all seats hang"
    # The other rank has nothing left to do but to wait for the model.
    phase=end moves=write part=model.partial moment=4 victim=0 signal=19 config=two seats=''
    one_life "a stop in the model"
fi
draw=0
while [ $draw -lt "$draws" ]; do
    one_draw $draw
    draw=$((draw + 1))
done
config=two seats='' victim=''

# ---- a process that was stopped itself does not blame the others ----

start --steps 1000000 --output "$work/both"
wait_until $first has_lines "$work/both" 2
kill -STOP $first $second
sleep $((timeout + 3))
made=$(wc -l <"$work/both/log.jsonl")
kill -CONT $first $second
wait_until $first has_lines "$work/both" $((made + 3))
kill -TERM $first $second
wait $first
one=$?
wait $second
[ $? -eq 143 ] && [ $one -eq 143 ] && has_lines "$work/both" $((made + 3))
verdict $? "all that are stopped and go on are not late"

# ---- strangers ----

run 0 "$zinf" train --config "$work/one.json" $options --steps 6 --output "$work/quiet"
begin=$(now)
calm=calm-
start --steps 6 --output "$work/loud"
"$BUILDDIR/tests/net/strangers" $((port + 1)) 40 &
strangers=$!
wait $first
one=$?
wait $second
two=$?
took=$(($(now) - begin))
kill $strangers 2>/dev/null
wait $strangers 2>/dev/null
echo "# with strangers: $took ms"
[ $one -eq 0 ] && [ $two -eq 0 ] &&
    cmp -s "$work/loud/model/model.safetensors" "$work/quiet/model/model.safetensors"
verdict $? "forty strangers change nothing"

finish
