#!/bin/sh
# Every life of a training with several ranks or seats ends in time: whatever one of them does, in
# whatever phase, the others end within zinf.timeout and a few seconds and name it; what is slow and
# alive is not taken for dead; strangers at the ranks' port neither stop nor change anything.
# ZINF_TEST_ENDS: draws of a signal, a rank and a moment.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
draws=${ZINF_TEST_ENDS:-3}
timeout=4
slack=8 # for looks, last words and a busy machine
mkdir "$work/drive" || exit 99

rank_config "$work/one.json" 2 4 nvme "$work/drive" ", \"timeout\": $timeout, \"durability\": \"step\""
rank_config "$work/two.json" 2 2 nvme "$work/drive" ", \"timeout\": $timeout, \"durability\": \"step\""
make_rank_model
port=$((20000 + $$ % 3100 * 4)) # below those that the system gives away
secret=0123456789abcdef0123456789abcdef
options="$options --progress none"

# As torchrun starts them; $1: rank.
rank() {
    rank=$1
    shift
    # shellcheck disable=SC2086
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$port ZINF_NET_SECRET=$secret exec "$zinf" train --config "$work/two.json" \
        $options "$@" >"$work/rank$rank.out" 2>"$work/rank$rank.err" </dev/null
}
start() { # options...: pids in $first and $second
    port=$((port + 2))
    (rank 0 "$@") &
    first=$!
    (rank 1 "$@") &
    second=$!
}
now() { date +%s%N | sed 's/......$//'; } # milliseconds
# Until the process is over, at most so many seconds; the status of waiting.
over_within() { # pid, seconds
    end=$(($(now) + $2 * 1000))
    while kill -0 "$1" 2>/dev/null && [ "$(now)" -lt $end ]; do sleep 0.05; done
    ! kill -0 "$1" 2>/dev/null
}
one_draw() { # number: signal, victim and moment come of it
    [ $(($1 % 2)) -eq 0 ] && signal=STOP || signal=KILL
    victim=$(($1 / 2 % 2))
    delay=$(awk -v n="$1" -v s="$$" 'BEGIN { srand(n * 7919 + s); for (i = 0; i < 9; i++) rand(); printf "%.2f", 5 * rand() }')
    out=$work/draw
    rm -rf "$out"
    start --steps 100000 --save-every 2 --eval-data "$work/text.txt" --eval-every 3 --output "$out"
    sleep "$delay"
    [ $victim -eq 0 ] && struck=$first left=$second || struck=$second left=$first
    kill -$signal $struck 2>/dev/null
    over_within $left $((timeout + slack))
    in_time=$?
    kill -KILL $struck $left 2>/dev/null
    wait $left
    status=$?
    wait $struck 2>/dev/null
    echo "# $signal of rank $victim after $delay s: status $status"
    [ $in_time -eq 0 ] && [ $status -eq 1 ] &&
        grep -qE "rank $victim (has|is|\(rank 0)|ranks? $victim |rank 0 at" "$work/rank$((1 - victim)).err"
}
draw=0
while [ $draw -lt "$draws" ]; do
    one_draw $draw
    verdict $? "draw $draw: the other ends in time and names it"
    draw=$((draw + 1))
done

# The last draw's run goes on to the bits of one rank that nobody ended.
last=$(tail -n 1 "$work/draw/log.jsonl" 2>/dev/null | sed 's/{"step": \([0-9]*\),.*/\1/')
steps=$((${last:-0} + 3))
start --steps $steps --output "$work/draw" --eval-data "$work/text.txt" --eval-every 3 --resume
wait $first
one=$?
wait $second
two=$?
[ $one -eq 0 ] && [ $two -eq 0 ]
verdict $? "--resume goes on"
# shellcheck disable=SC2086
run 0 "$zinf" train --config "$work/one.json" $options --steps $steps --eval-data "$work/text.txt" \
    --eval-every 3 --output "$work/whole" &&
    cmp -s "$work/draw/model/model.safetensors" "$work/whole/model/model.safetensors"
verdict $? "to the bits of one rank that nobody ended"

# ---- a process that was stopped itself does not blame the others ----

start --steps 40 --output "$work/both"
sleep 3
kill -STOP $first $second 2>/dev/null
sleep $((timeout + 3))
kill -CONT $first $second 2>/dev/null
wait $first
one=$?
wait $second
[ $one -eq 0 ] && [ $? -eq 0 ]
verdict $? "all that are stopped and go on are not late"

# ---- strangers ----

run 0 "$zinf" train --config "$work/one.json" $options --steps 6 --output "$work/quiet"
begin=$(now)
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

# ---- seats ----

shim=$BUILDDIR/tests/faults/.libs/shim.so
if [ ! -r "$shim" ] || [ -n "$ZINF_SANITIZER" ]; then
    skip "a seat that hangs" "no shim here"
    finish
fi
cat >"$work/seats.json" <<EOF
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.5,
 "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "exact", "threads": 1, "gradient_sum": "tree", "timeout": $timeout, "durability": "step",
  "async_save": true, "aio_engine": "threads"}}
EOF
sed -i 's/, "aio_engine": "threads"//' "$work/seats.json"
# The N-th write to a drive, or to a checkpoint's files, never comes back: no seat can end itself.
hangs() { # number, part of the path
    rm -rf "$work/hung" "$work/drive"/zinf-*
    # shellcheck disable=SC2086
    ZINF_SHIM="hang $1 $2" LD_PRELOAD=$shim timeout -s KILL 60 "$zinf" train \
        --config "$work/seats.json" --seats 2 $options --steps 200 --save-every 2 \
        --output "$work/hung" >"$work/said.out" 2>"$work/said.err" </dev/null &
    pid=$!
    # it begins, and trains for a while
    over_within $pid $((timeout + slack + 15))
    in_time=$?
    kill -KILL $pid 2>/dev/null
    wait $pid
    status=$?
    [ $in_time -eq 0 ] && [ $status -eq 1 ] && grep -qE "seat [01]" "$work/said.err"
}
check "a seat whose checkpoint hangs ends the run, and is named" hangs 5+ checkpoint-
check "a seat whose drive hangs ends the run, and is named" hangs 200 extents
finish
