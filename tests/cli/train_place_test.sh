#!/bin/sh
# A training without a configuration is placed where there is room, says where, goes on there, and has
# the bits of the training that the configuration it wrote asks for.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ports.sh"
cd "$work" || exit 99
"$zinf" init --arch gpt2 --size small --layers 2 --hidden 192 --heads 2 --vocab 257 --context 64 \
    --output model >/dev/null || exit 99
make_text text.txt 40
train() { # output, options...
    out=$1
    shift
    run "${status:-0}" "$zinf" train --model model --data text.txt --output "$out" --seq-len 16 \
        --threads 1 --progress none --lr-scheduler constant --steps 4 "$@"
}
same() {
    cmp "$1/model/model.safetensors" whole/model/model.safetensors
}
complained() {
    grep -q "$1" said.err
}
small="--device-memory 9MiB"
train whole || exit 99
# The program itself is larger on some machines. Above it, state in RAM needs 21 MiB and state on
# the drive 15.5 MiB: between them the drive is what fits.
status=1 train none $small --host-memory 1MiB
program=$(awk '/this program and its libraries/ { print int($(NF - 1) + 0.5) }' said.err)
between="--host-memory $((program + 18))MiB"
fits_at_once() {
    touch whole/placement.json
    train whole --overwrite && [ ! -f whole/placement.json ] && [ ! -d whole/nvme ]
}
to_ram() {
    train ram $small && same ram && complained ram/placement.json &&
        grep -q '"cpu"' ram/placement.json && ! grep -q nvme ram/placement.json
}
by_its_file() {
    train again $small --config ram/placement.json && same again && [ ! -f again/placement.json ]
}
to_the_drive() {
    train drive $small $between && same drive &&
        grep -q "drive/nvme" drive/placement.json && [ ! -d drive/nvme ]
}
goes_on() {
    train on $small $between --steps 2 && train on $small --resume && same on &&
        grep -q "on/nvme" on/placement.json && ! complained "no configuration says"
}
nothing_fits() {
    status=1 train none --device-memory 512KiB
    head -n 1 said.err | grep -q "does not fit: device memory needs" || head -n 3 said.err |
        grep -q "does not fit: device memory needs"
}
says_what() { # the table of memory only where it is asked for
    ! grep -q "sub-groups\|inputs of the step" said.err && train plan --plan &&
        complained "inputs of the step" && [ -f plan/ledger.txt ]
}
# Of two processes, each with a half of everything, the first one chooses.
rank() { # number, options...
    RANK=$1 WORLD_SIZE=2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1
    MASTER_PORT=$port ZINF_NET_SECRET=0123456789abcdef0123456789abcdef
    export RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT ZINF_NET_SECRET
    shift
    exec "$zinf" train --model model --data text.txt --output ranks --seq-len 16 --threads 1 \
        --progress none --lr-scheduler constant --steps 4 $small --micro-batch 1 --accumulate 1 "$@" >"rank$RANK.out" 2>"rank$RANK.err" </dev/null
}
two_ranks() {
    (rank 0 "$@") &
    (rank 1 "$@") && wait $!
}
by_the_first() {
    two_ranks && grep -q ranks/placement.json rank0.err && grep -q '"cpu"' ranks/placement.json &&
        cp ranks/model/model.safetensors first.safetensors &&
        cp ranks/placement.json chosen.json && two_ranks --overwrite --config chosen.json &&
        cmp first.safetensors ranks/model/model.safetensors
}
check "what fits on the device is there" fits_at_once
check "what does not is in RAM" to_ram
check "the file says the same" by_its_file
check "or on the drive" to_the_drive
check "a run goes on where it was" goes_on
check "several processes are placed alike" by_the_first
check "the reason stands first where nothing fits" nothing_fits
train whole --overwrite
check "the plan is printed by --plan" says_what
finish
