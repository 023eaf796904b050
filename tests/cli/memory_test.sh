#!/bin/sh
# What a training run takes of memory is what its ledger printed before it began: the process's
# peak resident set within 5 % of the planned device and host memory, in three placements; also of
# two seats of one process, when it saves after every step, and when it goes on from such a
# checkpoint.
if [ -n "${ZINF_SANITIZER-}" ]; then
    echo "1..0 # SKIP a sanitizer's own memory hides ours"
    exit 0
fi
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/drive" && cd "$work" || exit 99

# 3 M parameters: 13 MB of each array in fp32, so that the program itself does not dominate.
"$zinf" init --arch gpt2 --size small --layers 3 --hidden 256 --heads 4 --tokenizer bytes --vocab 3000 --context 256 \
    --output model >/dev/null || exit 99
make_text text.txt 400

number() { # key, file
    sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" "$2"
}

measure() { # parameters, state, threads, what else, options...
    name="parameters $1, state $2, $3 threads${4:+, $4}"
    cat >config.json <<END
{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
 "zero_optimization": {"stage": 3, "sub_group_size": 1e6,
    "offload_param": {"device": "$1", "nvme_path": "$work/drive"},
    "offload_optimizer": {"device": "$2", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "exact"}}
END
    threads=$3
    rm -rf out
    shift $(($# > 4 ? 4 : $#))
    "$zinf" train --model model --data text.txt --output out --config config.json --steps 3 \
        --seq-len 128 --threads "$threads" --progress none "$@" >said.out 2>said.err
    status=$?
    peak=$(number peak_resident_bytes said.out)
    planned=$(number planned_bytes said.out)
    [ $status -eq 0 ] && [ -n "$peak" ] && [ -n "$planned" ] && [ "$planned" -gt 60000000 ] &&
        [ $((20 * peak)) -le $((21 * planned)) ] && [ $((20 * peak)) -ge $((19 * planned)) ]
    verdict $? "$name"
    echo "# peak $peak of planned $planned: $((peak - planned)) bytes," \
        "$((1000 * peak / planned - 1000)) per mille"
}

measure none none 1
measure none none 2
measure cpu cpu 2
measure nvme nvme 1
measure nvme nvme 2
measure cpu cpu 1 "two seats" --seats 2
measure cpu cpu 1 "two seats that share a sequence" --seats 2 --context-parallel 2
for place in none cpu nvme; do
    measure $place $place 1 "saving" --save-every 1 --output saves
    measure $place $place 1 "going on" --output saves --steps 5 --resume
    rm -rf saves
done
finish
