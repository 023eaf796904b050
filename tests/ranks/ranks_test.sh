#!/bin/sh
# Several ranks by mpirun: the command finds them, trains to the bits of one rank, writes one folder,
# goes on from a checkpoint with another number of them, and ends as one when one cannot go on.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"

if [ -n "$no_mpi" ]; then
    skip "zinf train over ranks" "$no_mpi"
    finish
fi

config() { # file, accumulation, seconds
    rank_config "$1" 2 "$2" cpu "$work" ", \"durability\": \"none\", \"timeout\": $3"
}
config "$work/one.json" 4 60
config "$work/two.json" 2 60
config "$work/four.json" 1 60
config "$work/short.json" 2 5
make_rank_model

# shellcheck disable=SC2086 # options are words
train() { "$zinf" train $options "$@"; }
# shellcheck disable=SC2086
train_ranks() { ranks 2 "$zinf" train $options "$@"; }

check "one rank" run 0 train --config "$work/one.json" --steps 6 --eval-data "$work/text.txt" \
    --eval-every 3 --output "$work/out1"
check "two ranks" run 0 train_ranks --config "$work/two.json" --steps 6 --save-every 3 \
    --eval-data "$work/text.txt" --eval-every 3 --output "$work/out2"
check "say that there are two" complains "2 ranks over" "x 2 ranks"
check "and have the same losses, norms and weights" same_result "$work/out1" "$work/out2"
check "and the same evaluations" same_evaluations "$work/out1" "$work/out2"

train_four() { # options are words
    # shellcheck disable=SC2086
    ranks 4 "$zinf" train $options "$@"
}
check "four ranks" run 0 train_four --config "$work/four.json" --steps 6 --no-final-checkpoint \
    --output "$work/out44"
check "too" same_result "$work/out1" "$work/out44"

# Ranks write files at once, each its own: they are those of one rank.
same_checkpoint() { # two
    for file in model.safetensors optimizer/master.safetensors optimizer/moment1.safetensors \
        optimizer/moment2.safetensors config.json; do
        cmp "$1/$file" "$2/$file" || return 1
    done
}
check "a checkpoint of two ranks has the files of one" same_checkpoint "$work/out1/checkpoint-6" \
    "$work/out2/checkpoint-6"
check "which are whole" run 0 "$zinf" verify "$work/out2/checkpoint-6"
check "and a model" run 0 "$zinf" export --checkpoint "$work/out2/checkpoint-6" --output \
    "$work/exported"

# From the two ranks' checkpoint one goes on, and two.
mkdir "$work/out3" && cp -r "$work/out2/checkpoint-3" "$work/out3/"
check "one rank goes on from two's checkpoint" run 0 train --config "$work/one.json" --steps 6 \
    --resume="$work/out3/checkpoint-3" --output "$work/out3"
check "to the same weights" cmp "$work/out1/model/model.safetensors" \
    "$work/out3/model/model.safetensors"
mkdir "$work/out4" && cp -r "$work/out2/checkpoint-3" "$work/out4/"
check "two ranks go on" run 0 train_ranks --config "$work/two.json" --steps 6 \
    --resume="$work/out4/checkpoint-3" --output "$work/out4"
check "to the same weights too" cmp "$work/out1/model/model.safetensors" \
    "$work/out4/model/model.safetensors"

# ---- what ends all ----

# Each rank runs what its number chooses.
cat >"$work/by_rank.sh" <<'EOF'
#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
how=$1
shift
case $how:$rank in
config:1) exec "$@" --lr 0.5 ;;
full:1) ZINF_SHIM="enospc 1+ tmp-checkpoint" LD_PRELOAD=$SHIM exec "$@" ;;
stop:1)
    "$@" &
    child=$!
    while ! grep -q '"step": 2,' "$LOG" 2>/dev/null; do sleep 0.1; done
    kill -STOP $child
    (sleep 15 && kill -KILL $child) >/dev/null 2>&1 &
    wait $child ;;
kill:1)
    (while ! grep -q '"step": 5,' "$LOG" 2>/dev/null; do sleep 0.1; done && kill -KILL $$) &
    exec "$@" ;;
*) exec "$@" ;;
esac
EOF
# shellcheck disable=SC2086
by_rank() { # how, options...
    how=$1
    shift
    ranks 2 sh "$work/by_rank.sh" "$how" "$zinf" train $options "$@"
}
check "a batch that is for other ranks ends" fails train_ranks --config "$work/one.json" --steps 2 \
    --output "$work/out5"
check "and says so" complains "train_batch_size is 8" "world size 2"
check "ranks with different options end" fails by_rank config --config "$work/two.json" --steps 2 \
    --output "$work/out6"
check "and say what differs" complains "rank 1 has another configuration"
SHIM=$BUILDDIR/tests/faults/.libs/shim.so
export SHIM
if [ -r "$SHIM" ] && [ -z "$ZINF_SANITIZER" ]; then
    check "a rank that cannot write its part of a checkpoint" fails by_rank full \
        --config "$work/two.json" --steps 5 --save-every 2 --output "$work/full"
    check "is named" complains "step 2: no checkpoint was saved: rank 1:" \
        "file system is full" "zinf train: rank 1: cannot write"
    [ -z "$(find "$work/full" -name '*checkpoint-*')" ] &&
        [ "$(wc -l <"$work/full/log.jsonl")" -eq 5 ] && [ -f "$work/full/model/config.json" ]
    left=$?
    [ $left -eq 0 ] || { find "$work/full"; wc -l "$work/full/log.jsonl"; } | sed 's/^/# /'
    verdict $left "the training goes on, and of the checkpoint nothing is left"
else
    skip "a rank that cannot write its part of a checkpoint" "no shared library to preload"
fi
LOG=$work/out7/log.jsonl
export LOG
check "a rank that stands still ends the other" fails by_rank stop --config "$work/short.json" \
    --steps 100000 --no-final-checkpoint --output "$work/out7"
check "which names it" complains "rank 1 has sent nothing for 5 s"

LOG=$work/out8/log.jsonl
check "a rank that is killed ends the other" fails by_rank kill --config "$work/two.json" \
    --steps 100000 --save-every 2 --save-total-limit 2 --output "$work/out8"
last=$(find "$work/out8" -maxdepth 1 -name 'checkpoint-*' | sed 's/.*-//' | sort -n | tail -n 1)
steps=$((${last:-0} + 2))
check "and two go on from the last checkpoint" run 0 train_ranks --config "$work/two.json" \
    --steps $steps --resume --output "$work/out8"
check "with what one would have done" run 0 train --config "$work/one.json" --steps $steps \
    --output "$work/out9"
check "to the last bit" cmp "$work/out8/model/model.safetensors" "$work/out9/model/model.safetensors"
finish
