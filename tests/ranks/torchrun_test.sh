#!/bin/sh
# Ranks that a launcher without an MPI has started, by torchrun's variables: they find each other, train
# to the bits of one rank, and one that is killed ends the other.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
. "$SRCDIR/tests/support/ports.sh"

cat >"$work/config.json" <<EOF
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.5,
 "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"},
  "offload_optimizer": {"device": "cpu"}},
 "zinf": {"threads": 1, "gradient_sum": "tree", "accumulation_order": "layer-major",
  "dropout": 0.1, "timeout": 20}}
EOF
make_rank_model

# What torchrun sets; it listens at MASTER_PORT itself.
rank() { # rank, world, steps, output, option
    RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$port TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_RUN_ID=run-$$ \
        OMP_NUM_THREADS=1 exec "$zinf" train --model "$work/model" --data "$work/text.txt" \
        --seq-len 16 --device host --seed 3 --steps "$3" --config "$work/config.json" \
        --progress none --no-final-checkpoint --output "$4" ${5-}
}

check "one rank" run 0 "$zinf" train --model "$work/model" --data "$work/text.txt" --seq-len 16 \
    --device host --seed 3 --steps 4 --config "$work/config.json" --no-final-checkpoint \
    --output "$work/one"
(rank 1 2 4 "$work/two") >"$work/other.out" 2>"$work/other.err" </dev/null &
other=$!
(rank 0 2 4 "$work/two") >"$work/said.out" 2>"$work/said.err" </dev/null
verdict $? "rank 0 of two"
wait $other
verdict $? "rank 1 of two"
check "that meet without an MPI" complains "2 ranks over TCP"
check "have the bits of one" same_result "$work/one" "$work/two"

# ---- one that is killed ----

next_port
(rank 1 2 100000 "$work/killed") >"$work/other.out" 2>"$work/other.err" </dev/null &
other=$!
(rank 0 2 100000 "$work/killed") >"$work/said.out" 2>"$work/said.err" </dev/null &
first=$!
wait_until $first has_lines "$work/killed" 2
kill -KILL $other
wait $first
[ $? -eq 1 ]
verdict $? "a rank that is killed ends the other"
check "which names it" complains "rank 1 has ended without a word"
wait $other 2>/dev/null

# ---- one that is told to stop ----

next_port
(rank 1 2 100000 "$work/stopped") >"$work/other.out" 2>"$work/other.err" </dev/null &
other=$!
(rank 0 2 100000 "$work/stopped") >"$work/said.out" 2>"$work/said.err" </dev/null &
first=$!
wait_until $first has_lines "$work/stopped" 2
kill -TERM $other
wait $first
one=$?
wait $other
two=$?
[ $one -eq 143 ] && [ $two -eq 143 ] && [ -f "$work/stopped/latest" ]
verdict $? "SIGTERM to one of them saves, and ends all with 143"

# ---- a run that is not gone on from: the first rank has the reason ----

sed -i 's/line 7 of/lime 7 of/' "$work/text.txt"
sed -i 's/1e-3/2e-3/' "$work/config.json"
go_on() { # rank
    (rank "$1" 2 9 "$work/stopped" --resume)
}
next_port
go_on 1 >"$work/other.out" 2>"$work/other.err" </dev/null &
other=$!
go_on 0 >"$work/said.out" 2>"$work/said.err" </dev/null
[ $? -eq 1 ] && complains "another configuration"
verdict $? "changes are refused by the first rank"
wait $other
[ $? -eq 1 ] && ! grep -q "may be the reason" "$work/other.err"
verdict $? "the other one looks for no reason of its own"

# ---- what is missing ----

lacks() { # variable, others...
    variable=$1
    shift
    run 1 env "$@" "$zinf" train --model "$work/model" --data "$work/text.txt" --device host \
        --output "$work/none" && complains "$variable is not set" "torchrun --no-python"
}
check "a missing address" lacks MASTER_ADDR RANK=1 WORLD_SIZE=2 LOCAL_RANK=1
check "a rank that is none" lacks RANK RANK=2 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=127.0.0.1
check "a missing port" lacks MASTER_PORT RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 \
    MASTER_ADDR=127.0.0.1
finish
