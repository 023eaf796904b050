#!/bin/sh
# Sequences in chunks whose length, parts and placement are drawn: a model with attention, and one
# with a mixer beside it. Of each draw one rank with everything on the device trains first; two and
# four seats, and two processes, must come to the same losses, norms and weights, with parameters,
# state and values between layers anywhere. The draws are those of a seed that is said.
#
# DRAWS: how many (default: 2); SEED: the first.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99
mkdir drive
make_text text.txt 60

seed=${SEED:-36}
draw() { # one of the words
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    shift $((seed / 65536 % $#))
    drawn=$1
}
place() {
    draw none cpu nvme
}

config() { # file, keys of "zinf" behind a comma
    draw cpu nvme && param=$drawn && place && state=$drawn && place && values=$drawn
    draw 0 2 && ahead=$drawn
    [ "$1" != one.json ] || param=none state=none values=none
    cat >"$1" <<END
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.5,
 "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 0.1}},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "$param", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "$state", "nvme_path": "$work/drive"}},
 "zinf": {"threads": 1, "gradient_sum": "tree", "placement": "exact", "durability": "none",
  "direct": false, "dropout": 0.1, "look_ahead": $ahead, "activation_device": "$values"$2}}
END
}
train() { # output, configuration, options...
    output=$1 file=$2
    shift 2
    ${starts-} "$zinf" train --model "$model" --init --data text.txt --seq-len "$length" \
        --device host --seed 3 --steps 2 --progress none --output "$output" --config "$file" "$@"
}
same() { # how many, what, options...
    n=$1 what=$2
    shift 2
    share=1
    [ "$parts" = 1 ] || { draw 1 2 "$n" && share=$drawn; }
    [ "$share" -le "$parts" ] || share=$parts
    config other.json "$keys"
    check "$n $what, $share a sequence; parameters: $param, state: $state, values: $values" \
        run 0 train other other.json --context-parallel "$share" "$@"
    check "have the bits of one" same_result one other
    rm -rf other
}

check "a LLaMA" run 0 small_model llama llama 7b 32
check "a model with mixers" run 0 small_model falcon_h1 falcon_h1 0.5b 32
sed -i 's/"mamba_d_state":[^,]*/"mamba_d_state": 8/' falcon_h1/config.json
sed -i 's/"max_position_embeddings":[^,]*/"max_position_embeddings": 64/' ./*/config.json

for number in $(seq "${DRAWS:-2}"); do
    [ $((number % 2)) = 0 ] && model=falcon_h1 || model=llama
    said=$seed
    draw 17 23 32 41 50 && length=$drawn
    draw 1 2 4 && parts=$drawn
    draw 3 5 7 8 11 && chunk=$drawn
    keys=", \"context_parts\": $parts, \"sequence_chunk\": $chunk"
    config one.json "$keys"
    check "$model, seed $said: $length tokens in chunks of $chunk, $parts parts" run 0 train one one.json
    same 2 seats --seats 2
    same 4 seats --seats 4
    if [ -n "$no_mpi" ]; then
        skip "two processes" "$no_mpi"
    else
        starts="ranks 2"
        same 2 processes
        starts=
    fi
    rm -rf one
done
finish
