#!/bin/sh
# Ranks whose GPUs send to each other by NCCL, on the stand-ins, and one of which is killed or stopped
# in the middle of a transfer, whose NCCL does not begin, or reports an error: the others end, at once
# where anything is to be heard and else within zinf.timeout, in a sentence that names it.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"
. "$SRCDIR/tests/support/ports.sh"

module=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
if [ ! -f "$module" ]; then
    skip "faults of links between processes" "no stand-in for CUDA was built"
    finish
fi
ZINF_CUDA_MODULE=$module ZINF_NCCL_LIBRARY=$module ZINF_STANDIN_PROCESSES=1 ZINF_STANDIN_GPUS=4
export ZINF_CUDA_MODULE ZINF_NCCL_LIBRARY ZINF_STANDIN_PROCESSES ZINF_STANDIN_GPUS ZINF_STANDIN_SEED
make_rank_model

# What is not heard of at once is not heard of before the test's own limit.
config() { # file, accumulation, seconds
    rank_config "$1" 1 "$2" cpu "$work" \
        ", \"durability\": \"none\", \"gather\": \"device\", \"timeout\": $3"
}
config "$work/long.json" 4 3600
config "$work/short.json" 4 3
config "$work/seats.json" 2 3600

cat >"$work/rank.sh" <<'EOF'
#!/bin/sh
rank=${RANK:-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}}
if [ "$rank" = 1 ]; then
    ZINF_STANDIN_NCCL_TROUBLE=$TROUBLE
    export ZINF_STANDIN_NCCL_TROUBLE
fi
exec "$@"
EOF
# Rank 1 of two is in trouble; rank 0 ends in time, and with an error.
torchrun() { # trouble, options...
    TROUBLE=$1
    export TROUBLE
    shift
    next_port
    within= # rank 1 is ended below, by itself
    for rank in 1 0; do
        RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
            MASTER_PORT=$port TORCHELASTIC_RUN_ID=run-$$ OMP_NUM_THREADS=1 \
            $within sh "$work/rank.sh" "$zinf" train --model "$work/model" \
            --data "$work/text.txt" --seq-len 16 --seed 3 --seats 1 --steps 1000 --device cuda \
            --device-memory 64MiB --no-final-checkpoint --progress none --overwrite \
            --output "$work/out" "$@" >"$work/rank$rank.out" 2>"$work/rank$rank.err" </dev/null &
        [ $rank -eq 0 ] || other=$!
        within="timeout -s KILL 120"
    done
    wait $!
    status=$?
    cp "$work/rank0.out" "$work/said.out"
    cp "$work/rank0.err" "$work/said.err"
    kill -KILL "$other" 2>/dev/null
    wait "$other" 2>/dev/null
    [ $status -eq 1 ] || echo "# status $status instead of 1"
    [ $status -eq 1 ]
}

# ---- as torchrun starts them ----

for ZINF_STANDIN_SEED in 1 2; do # NCCL notices that a process is gone, or does not
    check "seed $ZINF_STANDIN_SEED: a rank that is killed in a transfer ends the other" \
        torchrun "dies 30" --config "$work/long.json"
    check "which names it" complains "rank 1 has ended without a word"
done
check "one that is stopped in a transfer" torchrun "stops 30" --config "$work/short.json"
check "is named within the limit" complains "rank 1 has sent nothing for"
check "one that is killed in the first transfer" torchrun "dies 1" --config "$work/long.json"
check "is named" complains "rank 1 has ended without a word"
check "one whose NCCL does not begin" torchrun "refuses" --config "$work/long.json"
check "is named, and why" complains "rank 1 has failed: NCCL 2.28.0: unhandled system error"
check "one whose NCCL never comes" torchrun "never-comes" --config "$work/short.json"
check "ends all" complains "NCCL 2.28.0: GPUs of all ranks have begun to look for each other"
check "one whose NCCL reports an error" torchrun "fails 30" --config "$work/long.json"
check "is named too" complains "rank 1 has failed: NCCL 2.28.0: unhandled cuda error"
check "a process of two GPUs that is killed" torchrun "dies 30" --config "$work/seats.json" --seats 2
check "is named by the other's" complains "process 1 has ended without a word"

# ---- over an MPI ----

if [ -n "$no_mpi" ]; then
    skip "the same over an MPI" "$no_mpi"
    finish
fi
mpi() { # trouble, options...: the launcher ends what is left
    TROUBLE=$1
    export TROUBLE
    shift
    fails ranks 2 sh "$work/rank.sh" "$zinf" train --model "$work/model" --data "$work/text.txt" \
        --seq-len 16 --seed 3 --seats 1 --steps 1000 --device cuda --device-memory 64MiB --progress none \
        --no-final-checkpoint --overwrite --output "$work/out" "$@"
}
check "over an MPI, one whose NCCL does not begin" mpi "refuses" --config "$work/long.json"
check "is named" complains "rank 1 has failed: NCCL 2.28.0: unhandled system error"
check "and one whose NCCL reports an error" mpi "fails 30" --config "$work/long.json"
check "is named" complains "rank 1 has failed: NCCL 2.28.0: unhandled cuda error"
finish
