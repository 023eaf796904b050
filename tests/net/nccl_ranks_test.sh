#!/bin/sh
# GPUs of several processes that send to each other by NCCL, on the stand-ins: over an MPI and as
# torchrun starts processes, a GPU each and two each, they train to the bits of one GPU and send as
# much as the formulas say.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ports.sh"

if [ ! -x "$BUILDDIR/tests/net/linked_ranks" ]; then
    skip "GPUs of several processes" "no stand-in for CUDA was built"
    finish
fi
ZINF_STANDIN_PROCESSES=1 ZINF_STANDIN_STRICT=1 ZINF_STANDIN_GPUS=4 ZINF_STANDIN_DAWDLE_US=100
export ZINF_STANDIN_PROCESSES ZINF_STANDIN_STRICT ZINF_STANDIN_GPUS ZINF_STANDIN_DAWDLE_US
program=$BUILDDIR/tests/net/linked_ranks

# What torchrun sets; it listens at MASTER_PORT itself.
own= # each process sees one GPU alone
as_torchrun() { # how many, arguments...
    n=$1
    shift
    rank=$((n - 1))
    failures=0
    children=
    next_port
    while [ $rank -ge 0 ]; do
        [ -z "$own" ] || CUDA_VISIBLE_DEVICES=$rank
        RANK=$rank WORLD_SIZE=$n LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 \
            MASTER_PORT=$port TORCHELASTIC_RUN_ID=run-$$ OMP_NUM_THREADS=1 \
            timeout 500 "$program" "$@" &
        children="$children $!"
        rank=$((rank - 1))
    done
    for child in $children; do
        wait "$child" || failures=1
    done
    return $failures
}

check "one GPU" run 0 "$program" "$work" 0
seed=1
many() { # processes, seats, words, command...
    says_so="all $1 processes of $2 seats: passed"
    name=$3
    shift 3
    ZINF_STANDIN_SEED=$seed
    export ZINF_STANDIN_SEED
    seed=$((seed + 1))
    check "$name have its bits" run 0 "$@"
    check "and send what the formulas say" says "$says_so"
}
many 2 1 "2 GPUs that torchrun has started" as_torchrun 2 "$work" 1
many 2 2 "2 GPUs of each of 2 processes" as_torchrun 2 "$work" 2 gpt2-3 llama-2
many 2 1 "2 GPUs that share sequences" as_torchrun 2 "$work" 1 keys
many 2 2 "2 GPUs of each of 2 processes that do" as_torchrun 2 "$work" 2 keys-llama
many 4 1 "4 GPUs" as_torchrun 4 "$work" 1 gpt2-3-ram
own=yes ZINF_STANDIN_GPUS=1
export CUDA_VISIBLE_DEVICES
many 2 1 "2 GPUs that do not see each other" as_torchrun 2 "$work" 1 gpt2-2
own='' CUDA_VISIBLE_DEVICES=3
check "2 processes of one GPU end" run 1 as_torchrun 2 "$work" 1 gpt2-2
check "and say that it is one" says "Duplicate GPU detected"
unset CUDA_VISIBLE_DEVICES
ZINF_STANDIN_GPUS=4
if [ -n "$no_mpi" ]; then
    skip "GPUs of an MPI's processes" "$no_mpi"
    finish
fi
many 2 1 "2 GPUs over an MPI" ranks 2 "$program" "$work" 1 gpt2 net
many 4 1 "4 GPUs over an MPI" ranks 4 "$program" "$work" 1 gpt2-1 gpt2-3-drive llama net-2 net-3
many 2 2 "2 GPUs of each of 2 of its processes" ranks 2 "$program" "$work" 2 llama
finish
