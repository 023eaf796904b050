#!/bin/sh
# Ranks that die: each one of them, and all at once, by kill -9 at random moments; one that stands
# still, one whose drive is full, one whose drive holds something else. Each ends in time and by
# name, and goes on from one step of all ranks to the bits of a run that nobody ended.
# ZINF_TEST_KILLS: deaths of each kind; ZINF_TEST_STAGE: all of it at this ZeRO stage, not 3;
# ZINF_TEST_VICTIMS: of these kinds alone, of 0, 1 and all; ZINF_TEST_AXIS: of ranks that share the
# data, tensors or stages of a pipeline (data, tensor, pipe) alone.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"
kills=${ZINF_TEST_KILLS:-2}

if [ -n "$no_mpi" ]; then
    skip "ranks that die go on" "$no_mpi"
    finish
fi
mkdir "$work/drive"

# Below stage 3 parameters are whole and on the device, and steps outlive processes where asked.
axis=${ZINF_TEST_AXIS:-data}
configs() { # stage
    zero_stage=$1
    keys=', "timeout": 5, "durability": "step"'
    [ "$1" -lt 3 ] && param=none || param=nvme
    case $axis in
    data) mesh='' steps_of=2 ;;
    tensor) mesh="--tensor-parallel 2" steps_of=4 keys="$keys, \"tensor_parts\": 2" ;;
    pipe) mesh="--pipeline-parallel 2" steps_of=4 ;;
    esac
    rank_config "$work/one.json" 2 4 $param "$work/drive" "$keys"
    rank_config "$work/two.json" 2 $steps_of $param "$work/drive" "$keys"
    # Where nobody is to be late, a drive that writes for seconds is not taken for that.
    sed 's/"timeout": 5/"timeout": 60/' "$work/two.json" >"$work/calm.json"
}
configs "${ZINF_TEST_STAGE:-3}"
make_rank_model

options="$options --progress none"
# shellcheck disable=SC2086 # options are words
train() { "$zinf" train --config "$work/one.json" $options "$@"; }

# Rank VICTIM, or each, gets SIGNAL when the log has LINES lines more than it had, and DELAY later.
cat >"$work/victim.sh" <<'EOF'
#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
if [ "$VICTIM" != all ] && [ "$VICTIM" != "$rank" ]; then
    exec "$@"
fi
[ -z "$SHIM" ] || { ZINF_SHIM="enospc 400+ extents" LD_PRELOAD="$SHIM" exec "$@"; }
lines() { cat "$LOG" 2>/dev/null | wc -l; }
until=$(($(lines) + LINES))
"$@" &
child=$!
while [ "$(lines)" -lt $until ] && kill -0 $child 2>/dev/null; do sleep 0.01; done
sleep "$DELAY"
kill "-$SIGNAL" $child
[ "$SIGNAL" != STOP ] || { (sleep 60 && kill -KILL $child) >/dev/null 2>&1 & }
wait $child
EOF
VICTIM=none LINES=0 DELAY=0 SIGNAL=KILL SHIM=
export VICTIM LINES DELAY SIGNAL SHIM LOG
# shellcheck disable=SC2086
train_ranks() {
    ranks 2 sh "$work/victim.sh" "$zinf" train --config "$work/${calm:-two}.json" $options $mesh "$@"
}
last() { # output: the last step in its log
    tail -n 1 "$1/log.jsonl" 2>/dev/null | sed 's/{"step": \([0-9]*\),.*/\1/'
}
# To the end, and the weights and losses of one rank that nobody ended.
goes_on() { # name, output
    VICTIM=none calm=calm
    steps=$(($(last "$2") + 3))
    check "$1: --resume goes on" run 0 train_ranks --steps $steps --resume --output "$2"
    calm=
    complains "going on after step" >/dev/null
    verdict $? "$1: after a step"
    run 0 train --steps $steps --no-final-checkpoint --output "$work/whole" --overwrite &&
        cmp -s "$2/model/model.safetensors" "$work/whole/model/model.safetensors" &&
        [ "$(losses "$2")" = "$(losses "$work/whole")" ]
    verdict $? "$1: to the bits of one rank that nobody ended"
    [ -z "$(ls -A "$work/drive")" ]
    verdict $? "$1: and leaves nothing on the drive"
}

# ---- kill -9 ----

dice() { # below
    od -An -N4 -tu4 /dev/urandom | awk -v n="$1" '{print $1 % n}'
}
kill_ranks() { # who
    VICTIM=$1
    who=$1
    out=$work/killed-$axis-$who-$zero_stage
    LOG=$out/log.jsonl
    life=0
    bad=0
    while [ $life -lt "$kills" ]; do
        LINES=$(dice 4)
        [ $life -lt $((kills - 1)) ] || LINES=3 # that there is a step to go on after
        DELAY=0.0$(dice 10)$(dice 10)
        SIGNAL=KILL
        VICTIM=$who
        fails train_ranks --steps 100000 --no-final-checkpoint --output "$out" --resume || bad=1
        life=$((life + 1))
    done
    verdict $bad "$axis, stage $zero_stage: rank $who is killed $kills times, and the others end"
    goes_on "killed $who" "$out"
}
for victim in ${ZINF_TEST_VICTIMS:-0 1 all}; do
    kill_ranks $victim
done
if [ -z "$ZINF_TEST_STAGE" ]; then
    for stage in 1 2; do
        configs $stage
        kill_ranks all
    done
    configs 3
fi

# ---- others ----

stop_rank() {
    out=$work/stopped-$axis LOG=$work/stopped-$axis/log.jsonl VICTIM=1 LINES=3 DELAY=0 SIGNAL=STOP
    check "$axis: a rank that stands still ends the other" fails train_ranks --steps 100000 \
        --no-final-checkpoint --output "$out"
    check "which names it" complains "rank 1 has sent nothing for 5 s"
    goes_on "stopped" "$out"
}
# One rank's drive holds something else for a while.
other_files() { # output
    steps=$(last "$1")
    VICTIM=none
    for extents in "$work"/drive/*/extents; do :; done
    cp "$extents" "$work/kept"
    dd if=/dev/urandom of="$extents" bs=4096 count=$(($(wc -c <"$extents") / 4096)) conv=notrunc,fsync 2>/dev/null
    check "$axis: a rank whose drive holds something else ends both" fails train_ranks --steps \
        $((steps + 2)) --resume --output "$1"
    check "and it is named" complains "has failed" "$(basename "$(dirname "$extents")")"
    check "verify names it too" fails "$zinf" verify "$1"
    cp "$work/kept" "$extents"
}

foreign_drive() {
    out=$work/foreign-$axis LOG=$work/foreign-$axis/log.jsonl VICTIM=0 LINES=5 DELAY=0 SIGNAL=KILL
    check "$axis: killed" fails train_ranks --steps 100000 --no-final-checkpoint --output "$out"
    other_files "$out"
    goes_on "other files" "$out"
}

# One run that ends in each of these ways, and goes on from each.
every_end() {
    out=$work/ends-$axis LOG=$work/ends-$axis/log.jsonl
    VICTIM=1 LINES=3 DELAY=0.0$(dice 10)$(dice 10) SIGNAL=KILL
    check "$axis: rank 1 is killed, and the other ends" fails train_ranks --steps 100000 \
        --no-final-checkpoint --output "$out"
    VICTIM=1 LINES=2 DELAY=0 SIGNAL=STOP
    check "$axis: going on, rank 1 stands still" fails train_ranks --steps 100000 \
        --no-final-checkpoint --resume --output "$out"
    check "and is named" complains "rank 1 has sent nothing for 5 s"
    other_files "$out"
    goes_on "$axis, every end" "$out"
}

stop_rank
if [ -z "$ZINF_TEST_AXIS" ]; then
    for axis in tensor pipe; do
        configs 3
        every_end
    done
    axis=data
    configs 3
fi

shim=$BUILDDIR/tests/faults/.libs/shim.so
if [ -r "$shim" ] && [ -z "$ZINF_SANITIZER" ]; then
    out=$work/full VICTIM=1 SHIM=$shim
    check "a full drive of one rank ends both" fails train_ranks --steps 100000 \
        --no-final-checkpoint --output "$out"
    check "which name it" complains "rank 1 has failed" "No space left"
    SHIM=
    goes_on "full drive" "$out"
else
    skip "a full drive of one rank" "no shared library to preload"
fi

if [ $axis != data ]; then
    foreign_drive
    finish
fi

# ---- other files, other ranks ----

out=$work/other LOG=$work/other/log.jsonl VICTIM=0 LINES=5 DELAY=0 SIGNAL=KILL
check "killed after a checkpoint" fails train_ranks --steps 100000 --save-every 3 --output "$out"
VICTIM=none
check "resume-info knows both ranks' parts" run 0 "$zinf" resume-info "$out"
check "and their ranks" says "rank 0 of 2" "rank 1 of 2"
check "verify reads them" run 0 "$zinf" verify "$out"
check "and knows the step of both" says "of 2 ranks"
other_files "$out"

check "one rank goes on from the checkpoint" run 0 train --steps $((steps + 2)) --resume \
    --output "$out"
check "and says so" complains "is on the drives of 2 ranks" "continues from the checkpoint"
run 0 train --steps $((steps + 2)) --no-final-checkpoint --output "$work/whole" --overwrite &&
    cmp -s "$out/model/model.safetensors" "$work/whole/model/model.safetensors"
verdict $? "to the same bits"
[ -z "$(ls -A "$work/drive")" ]
verdict $? "and the ranks' parts are gone"

finish
