#!/bin/sh
# Examples of large models, run with small ones in their folders: they end, and print what they
# promise. And the room on a drive that they ask for, against plans of the large models.
. "$SRCDIR/tests/support/command.sh"
ZINF=$zinf
export ZINF
cd "$work" || exit 99
examples=$SRCDIR/examples
make_text text.txt 400

small() { # folder, family, size, vocabulary, options...
    folder=$1 family=$2 of=$3 vocab=$4
    shift 4
    "$zinf" init --arch "$family" --size "$of" --layers 2 --hidden 64 --heads 4 --tokenizer bytes \
        --vocab "$vocab" --dtype bf16 --output "$folder" "$@" >/dev/null 2>&1
}

# ---- they run ----

small low/model gpt2 xl 300 || exit 99
check "gpt2-xl-low-memory.sh" run 0 bash "$examples/gpt2-xl-low-memory.sh" text.txt low 64 4
says "tokens/s), predicted" "floor: lane" && [ -f low/output/model/model.safetensors ]
verdict $? "prints a rate and the lane that limits it"
check "two steps of it" run 0 bash "$examples/gpt2-xl-low-memory.sh" text.txt low 64 2
says "run at least 3 steps"
verdict $? "are too few for a rate"
small large/model-13b llama 7b 300 --config-only || exit 99
check "large-model.sh" run 0 bash "$examples/large-model.sh" text.txt large 13b 64 3
says "limited by" "step 3: loss " " s (predicted "
verdict $? "prints its plan and its steps"
for size in xl 13b; do
    small "card/$size" gpt2 xl 300
    check "gpt2-xl-24gb/run.sh $size" run 0 bash "$examples/gpt2-xl-24gb/run.sh" $size text.txt card \
        --seq-len 64 --micro-batch 2 --accumulate 1 --global-batch 2 --steps 2
    [ -f card/run-$size/checkpoint-2/trainer_state.json ]
    verdict $? "leaves a checkpoint"
done
for bad in "" "7b text.txt card"; do
    # shellcheck disable=SC2086  # words
    run 2 bash "$examples/gpt2-xl-24gb/run.sh" $bad && complains "xl"
    verdict $? "run.sh $bad: says what it takes"
done

# ---- the room that they ask for ----

# What a run has of each parameter beside the drive's part: two models of bf16, and a checkpoint.
run 0 "$zinf" estimate --model card/xl --device host --json
params=$(sed -n 's/.*"parameters":[[:space:]]*\([0-9]*\).*/\1/p' said.out)
bytes=$(cat card/xl/model.safetensors card/run-xl/model/model.safetensors \
    card/run-xl/checkpoint-2/*.safetensors card/run-xl/checkpoint-2/optimizer/*.safetensors | wc -c)
awk -v bytes="$bytes" -v params="$params" 'BEGIN { each = bytes / params
    print "# " each " bytes a parameter"; exit !(each > 17.9 && each < 18.5) }'
verdict $? "models and a checkpoint are 18 bytes a parameter"

plan() { # model, configuration, options...: sets params and drive, in bytes
    model=$1 config=$2
    shift 2
    run 0 "$zinf" estimate --model "$model" --config "$config" --json "$@" || return 1
    params=$(sed -n 's/.*"parameters":[[:space:]]*\([0-9]*\).*/\1/p' said.out)
    drive=$(sed -n '/"peak_bytes"/,/}/s/.*"drive":[[:space:]]*\([0-9.e+]*\).*/\1/p' said.out)
}
enough() { # what, GB that are asked for, bytes of a parameter beside the drive's
    awk -v asked="$2" -v drive="$drive" -v params="$params" -v each="$3" 'BEGIN {
        needed = (drive + params * each) / 1e9
        print "# " needed " GB of " asked; exit !(needed <= asked && asked < 1.2 * needed + 5) }'
    verdict $? "$1: $2 GB are enough, and not much more"
}
"$zinf" init --arch gpt2 --size xl --tokenizer bytes --vocab 50257 --dtype bf16 --config-only \
    --output xl >/dev/null 2>&1
"$zinf" init --arch gpt2 --size xl --layers 40 --hidden 5120 --heads 40 --tokenizer bytes \
    --vocab 50257 --dtype bf16 --config-only --output 13b >/dev/null 2>&1
asked=$(sed -n 's/.*goes to the drive: \([0-9]*\) GB,$/\1/p' "$examples/gpt2-xl-24gb/run.sh")
plan xl card/xl.json --seq-len 1024 --machine 4090,ram=64G && enough "run.sh xl" "$asked" 18
asked=$(sed -n 's/^# *or \([0-9]*\) GB;.*/\1/p' "$examples/gpt2-xl-24gb/run.sh")
plan 13b card/13b.json --seq-len 1024 --machine 4090,ram=64G,nvme-size=4TB --host-memory 24GiB &&
    enough "run.sh 13b" "$asked" 18
asked=$(sed -n 's/.*drive with \([0-9]*\) GB free.*/\1/p' "$examples/gpt2-xl-24gb/13b.json")
enough "13b.json" "$asked" 0
asked=$(sed -n 's/.*drive with \([0-9]*\) GB free.*/\1/p' "$examples/gpt2-xl-low-memory.sh")
plan xl low/config.json --seq-len 256 --machine cpu,ram=8G,nvme-size=1TB --device-memory 1GiB \
    --host-memory 3GiB && enough "gpt2-xl-low-memory.sh" "$asked" 4
finish
