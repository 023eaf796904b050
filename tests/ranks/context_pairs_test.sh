#!/bin/sh
# Pairs of answers, and embeddings, whose sequences are in chunks or parts: close to whole sequences,
# and the bits of one rank whoever has which parts, with the reference that is measured before the
# first step; and what cannot be is refused with the way out.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99

check "a model" run 0 "$zinf" init --arch llama --size 7b --layers 2 --hidden 32 --heads 4 --vocab 257 \
    --context 128 --output model
awk 'BEGIN {
    for (i = 0; i < 24; i++) {
        good = i % 2 ? "red as it is" : "pink"; bad = i % 3 ? "blue" : "green and grey"
        printf "{\"prompt\": \"%d of them is \", \"chosen\": \"%s\", \"rejected\": \"%s\"}\n", i, good, bad
    }
}' >pairs.jsonl
awk 'BEGIN {
    for (i = 0; i < 24; i++)
        printf "{\"prompt\": \"%d of them is \", \"completion\": \"%s\", \"label\": %s}\n", int(i / 2),
            i % 2 ? "blue" : "red as it is", i % 2 ? "false" : "true"
}' >singles.jsonl

config() { # file, keys of "zinf"
    cat >"$1" <<END
{"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "gradient_clipping": 0.5,
 "zero_optimization": {"stage": 3$zero},
 "zinf": {"threads": 1, "gradient_sum": "tree", "pad_to": "max"$2}}
END
}
config whole.json ''
config parts.json ', "context_parts": 4'
config chunks.json ', "sequence_chunk": 20'
config noisy.json ', "context_parts": 4, "dropout": 0.1, "activation_device": "cpu"'
config halting.json ', "sequence_chunk": 20, "dropout": 0.1'
config ranges.json ', "sequence_chunk": 20, "dropout": 0.1, "pipeline_ranges": 2, "pipeline_overlap": true'
home='{"device": "nvme", "nvme_path": "'$work/drive'"}'
zero=', "offload_param": '$home', "offload_optimizer": '$home
config driven.json ', "sequence_chunk": 20, "dropout": 0.1, "activation_device": "nvme", "placement": "exact", "direct": false'
mkdir drive

train() { # output, configuration, options...
    output=$1 with=$2
    shift 2
    "$zinf" train --model model --task preference --config $with --seq-len 48 --micro-batch 2 --global-batch 4 \
        --device host --seed 3 --steps 3 --progress none --no-final-checkpoint --output "$output" "$@"
}
told() { # output: losses, norms and rewards of all steps, and what was evaluated
    losses "$1"
    grep -o '"rewards/[a-z]*": [^,}]*\|"eval_[a-z/]*": [^,}]*\|"kl": [^,}]*' "$1/log.jsonl" |
        grep -v 'runtime\|per_second'
}
same() { # two outputs, more than so many figures
    told "$1" >one.told && told "$2" | cmp - one.told && [ "$(wc -l <one.told)" -gt "$3" ] || return
    for file in model.safetensors adapter_model.safetensors; do
        [ ! -e "$1/model/$file" ] || cmp "$1/model/$file" "$2/model/$file" || return
    done
}

# Rewards are small differences of sums of some 50 logarithms.
close_numbers() { # two files of figures: losses within 1e-6 of each other, and rewards by as much
    paste "$1" "$2" | awk -F '[:\t]' 'function far(a, b, of) { d = a - b; return d * d > 1e-12 * of * of }
        far($2, $4, $1 ~ /loss/ ? $4 : 1) { bad = 1; print "# " $0 } END { exit bad || NR < 5 }'
}
gradients_of() { # configuration, file
    "$zinf" gradients --model model --task preference --config "$1" --data pairs.jsonl \
        --seq-len 48 --micro-batch 2 --device host --adapter lora.whole/model --output "$2"
}

for loss in dpo ipo orpo simpo kto lora; do
    kind=$loss adapter='' rows=pairs.jsonl
    [ $loss != lora ] || kind=dpo adapter='--lora-rank 2'
    [ $loss != kto ] || rows=singles.jsonl
    set -- --preference $kind --data $rows --eval-data $rows --eval-every 3 $adapter
    check "$loss in one piece" run 0 train $loss.whole whole.json "$@"
    check "in chunks" run 0 train $loss.chunks chunks.json "$@"
    check "is close to it" close_to $loss.chunks $loss.whole
    check "in parts" run 0 train $loss.parts parts.json "$@"
    check "is close to it" close_to $loss.parts $loss.whole
    check "with dropout" run 0 train $loss.1 noisy.json "$@"
    for seats in 2 4; do
        check "by $seats seats" run 0 train $loss.$seats noisy.json "$@" --seats $seats \
            --context-parallel $seats
        check "has the bits of one" same $loss.1 $loss.$seats 9
    done
    check "by two groups of two seats" run 0 train $loss.g noisy.json "$@" --seats 4 --context-parallel 2
    check "has the bits of one" same $loss.1 $loss.g 9
    check "in parts, by a pipeline of two, two by two" run 0 train $loss.pc noisy.json "$@" --seats 4 \
        --context-parallel 2 --pipeline-parallel 2
    check "has the bits of one" same $loss.1 $loss.pc 9
    check "in chunks, with dropout" run 0 train $loss.c1 halting.json "$@"
    check "by a pipeline of two" run 0 train $loss.p halting.json "$@" --seats 2 --pipeline-parallel 2
    check "has the bits of one" same $loss.c1 $loss.p 9
    check "by one with two ranges each" run 0 train $loss.r ranges.json "$@" --seats 2 \
        --pipeline-parallel 2
    check "has the bits of one" same $loss.c1 $loss.r 9
    check "by two pipelines, from a drive" run 0 train $loss.pd driven.json "$@" --seats 4 \
        --pipeline-parallel 2
    check "has the bits of one" same $loss.c1 $loss.pd 9
done

# ---- a checkpoint of one rank ----

check "two steps by one" run 0 train again halting.json --preference kto --data singles.jsonl --steps 2 \
    --save-every 2
check "a third by two pipelines" run 0 train again halting.json --preference kto --data singles.jsonl \
    --seats 4 --pipeline-parallel 2 --resume
check "has the weights of one" cmp kto.c1/model/model.safetensors again/model/model.safetensors

# ---- evaluations ----

eval_pairs() { # configuration, options...
    with=$1
    shift
    "$zinf" eval --model model --task preference --config $with --data pairs.jsonl --seq-len 48 \
        --micro-batch 2 --device host "$@"
}
evaluated() { grep -o '"loss": [^,}]*\|"rewards[^,}]*' "$work/said.out"; }
check "the adapters are evaluated in one piece" run 0 eval_pairs whole.json --preference dpo \
    --adapter lora.whole/model
evaluated >eval.whole
check "and in chunks" run 0 eval_pairs chunks.json --preference dpo --adapter lora.whole/model
evaluated >eval.chunks
check "which is close" close_numbers eval.chunks eval.whole
check "and in parts" run 0 eval_pairs parts.json --preference dpo --adapter lora.whole/model
evaluated >eval.parts
check "which is close, too" close_numbers eval.parts eval.whole
check "by two seats" run 0 eval_pairs parts.json --preference dpo --adapter lora.whole/model --seats 2 \
    --context-parallel 2
evaluated | cmp - eval.parts
verdict $? "which is the same"
check "by a pipeline" run 0 eval_pairs chunks.json --preference dpo --adapter lora.whole/model --seats 2 \
    --pipeline-parallel 2
evaluated | cmp - eval.chunks
verdict $? "which is the same"
check "a whole model has nothing to be compared with" fails eval_pairs chunks.json --preference dpo
check "and is told the way out" complains "--eval-data" "--adapter" "simpo"
check "gradients of the first step in one piece" run 0 gradients_of whole.json one.safetensors
check "and in chunks" run 0 gradients_of chunks.json cut.safetensors

check "two of them" run 0 train seats.2 chunks.json --preference orpo --data pairs.jsonl --seats 2 \
    --micro-batch 1 --global-batch 4
check "two at a time by one" run 0 train seats.1 chunks.json --preference orpo --data pairs.jsonl \
    --micro-batch 1 --global-batch 4
check "have the bits of one" same_result seats.1 seats.2

# ---- embeddings, which a step compares with each other ----

awk 'BEGIN {
    for (i = 0; i < 24; i++)
        printf "{\"anchor\": \"%d is what there is of it\", \"positive\": \"there are %d\"}\n", i, i
}' >rows.jsonl
embeds() { # output, configuration, options...
    output=$1 with=$2
    shift 2
    "$zinf" train --model model --task embedding --config $with --data rows.jsonl --seq-len 48 \
        --micro-batch 2 --global-batch 4 --device host --seed 3 --steps 3 --progress none \
        --no-final-checkpoint --eval-data rows.jsonl --eval-every 3 --output "$output" "$@"
}
# Adam makes much of the least differences of small gradients: the first step is before it.
starts_close() { # two outputs
    for output in "$1" "$2"; do
        mkdir -p "$output.first" && head -n 1 "$output/log.jsonl" >"$output.first/log.jsonl" || return
    done
    close_to "$1.first" "$2.first"
}
for pooling in mean last; do
    check "embeddings by the $pooling in one piece" run 0 embeds $pooling.whole whole.json --pooling $pooling
    check "in chunks" run 0 embeds $pooling.chunks chunks.json --pooling $pooling
    check "are close to it" starts_close $pooling.chunks $pooling.whole
    check "in parts" run 0 embeds $pooling.parts parts.json --pooling $pooling
    check "are close to it" starts_close $pooling.parts $pooling.whole
    check "with dropout" run 0 embeds $pooling.1 noisy.json --pooling $pooling
    for seats in 2 4; do
        check "by $seats seats" run 0 embeds $pooling.$seats noisy.json --pooling $pooling \
            --seats $seats --context-parallel $seats
        check "have the bits of one" same $pooling.1 $pooling.$seats 3
    done
    check "by two groups of two seats" run 0 embeds $pooling.g noisy.json --pooling $pooling --seats 4 \
        --context-parallel 2
    check "have the bits of one" same $pooling.1 $pooling.g 3
done

finish
