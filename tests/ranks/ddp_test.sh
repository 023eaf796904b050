#!/bin/sh
# Two ranks against PyTorch's DistributedDataParallel over gloo: the same windows, the same losses
# to 1e-5 and norms to 1e-4 of their size, step by step.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"

if [ -n "$no_mpi" ]; then
    skip "two ranks and DistributedDataParallel" "$no_mpi"
    finish
fi
fixtures=$SRCDIR/tests/fixtures
# The file is as its script writes it: a number in each line.
sed -n '/^ "config"/,/^ },/p' "$fixtures/ddp.json" | sed '1s/.*/{/; $s/.*/}/' >"$work/config.json"
numbers() { # folder, key
    sed -n "/^  \"$1\"/,/^  }/p" "$fixtures/ddp.json" | sed -n "/\"$2\"/,/\]/p" | grep -o '[0-9.e-]*[0-9]'
}
close() { # folder, key, bound
    numbers "$1" "$2" >"$work/wanted"
    sed "s/.*\"$2\": \([^,}]*\).*/\1/" "$work/$1/log.jsonl" >"$work/got"
    paste "$work/wanted" "$work/got" | awk -v bound="$3" '
        { off = $1 / $2 - 1; off = off < 0 ? -off : off; most = off > most ? off : most }
        NF != 2 || !(off < bound) { bad++; print "# " $1, $2 }
        END { print "# off by " most " at most"; exit bad > 0 || NR != 10 }'
}
for folder in gpt2_a llama_b; do
    data=$fixtures/$folder/tokens.bin
    [ -f "$data" ] || data=$fixtures/$folder/tokens.npy
    check "two ranks train $folder" run 0 ranks 2 "$zinf" train --model "$fixtures/$folder" \
        --data "$data" --seq-len 16 --no-shuffle --config "$work/config.json" --steps 10 \
        --device host --progress none --no-final-checkpoint --output "$work/$folder"
    check "to the losses of DistributedDataParallel" close $folder loss 1e-5
    check "and its norms" close $folder grad_norm 1e-4
done
finish
