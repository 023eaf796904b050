#!/bin/sh
# More of anything never makes a step slower: RAM, GPU memory, drives, links, a faster GPU or CPU, over
# machines that are described. What the search takes for no difference is 2 %.
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/drive" && cd "$work" || exit 99
"$zinf" init --arch gpt2 --size xl --config-only --output xl >/dev/null || exit 99
"$zinf" init --arch llama --size 7b --config-only --output llama >/dev/null || exit 99
configure() { # file, gradient clipping
    cat >"$1" <<END
{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "bf16": {"enabled": true},
 "gradient_clipping": $2,
 "zero_optimization": {"stage": 3,
  "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "fill"}}
END
}
configure clips.json 1.0
configure free.json 0

# model, configuration, machines in the order of what they have: none is slower than one before it
never_slower() {
    model=$1 config=$2
    shift 2
    list=
    for machine; do list=$list${list:+,}$machine; done
    run 0 "$zinf" estimate --model "$model" --config "$config" --seq-len 1024 --compare "$list" --json ||
        return 1
    sed -n 's/.*"step_seconds":[[:space:]]*\([0-9.e+-]*\),*$/\1/p' said.out >steps
    [ "$(wc -l <steps)" -eq $# ] || { echo "# $(wc -l <steps) of $# fit"; return 1; }
    awk 'NR > 1 && $1 > 1.02 * least { print "# machine " NR ": " $1 " s, after " least; bad = 1 }
        NR == 1 || $1 < least { least = $1 } END { exit bad }' steps
}
with() { # "before" "after" values...: machines BEFORE VALUE AFTER
    before=$1 after=$2
    shift 2
    machines=
    for value; do machines="$machines $before$value$after"; done
    echo $machines
}
for clipping in clips free; do
    check "RAM, XL, one drive, $clipping" never_slower xl $clipping.json \
        $(with 4090,nvme=7/6,ram= G 4 6 8 12 16 20 24 32 48 64)
    check "RAM, XL, two drives, $clipping" never_slower xl $clipping.json \
        $(with 4090,nvme=14/12,ram= G 4 8 12 16 24 28 32 48 64)
done
check "RAM, 7B, two drives" never_slower llama clips.json \
    $(with 4090,nvme=14/12,ram= G 24 32 48 64 96 128)
check "RAM beside a slow GPU" never_slower xl clips.json \
    $(with l4,nvme=7/6,ram= G 8 12 16 24 32 48)
check "GPU memory" never_slower xl clips.json $(with 4090,ram=24G,nvme=7/6,memory= G 6 8 12 16 24 32 48)
check "drives" never_slower xl clips.json $(with 4090,ram=16G,nvme= "" 1/1 2/2 3.5/3 7/6 14/12 28/24)
check "the link" never_slower xl clips.json $(with 4090,ram=24G,nvme=7/6,link= "" 6 12 25 50)
check "the GPU's products" never_slower xl clips.json \
    $(with 4090,ram=24G,nvme=7/6,bf16= "" 20 40 80 160 320)
check "the optimizer" never_slower xl clips.json $(with 4090,ram=24G,nvme=7/6,optim= "" 5 10 20 40)
finish
