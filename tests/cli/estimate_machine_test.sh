#!/bin/sh
# zinf estimate for machines that are not here: nothing of this one counts, every figure has its
# source, and files and words say the same.
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/xl" "$work/drive" && cd "$work" || exit 99
cat >xl/config.json <<END
{"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024,
 "vocab_size": 50257, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
END
cat >nvme.json <<END
{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 3,
  "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "exact"}}
END
estimate() { # status, arguments...
    estimate_status=$1
    shift
    run "$estimate_status" "$zinf" estimate --model xl --config nvme.json "$@"
}
number() { # key: its first number in the JSON that was said
    sed -n "s/.*\"$1\":[[:space:]]*\([-+.0-9e]*\).*/\1/p" said.out | head -n 1
}
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0.999 * b && a < 1.001 * b) }'; }

# What zinf bench left here, its memory and its CPUs change nothing; of this machine they do.
nothing_of_this_one() {
    estimate 0 --machine 4090,nvme=7/6 --json && cp said.out before &&
        estimate 0 --json && cp said.out here-before || return 1
    mkdir -p cache/zinf
    cat >cache/zinf/bench.json <<END
{"gemm": {"cuda/bf16": {"flops": 1e13}, "host/avx512/bf16": {"flops": 1e13}},
 "optim": {"AdamW/split": {"bytes": 1e9}}, "pcie": {"pinned": {"both": 1e9}},
 "nvme": {"$work/drive": {"read": 1e8, "write": 1e8, "mixed": 1e8}}}
END
    estimate 0 --machine 4090,nvme=7/6 --json && cmp said.out before || return 1
    if command -v taskset >/dev/null; then
        run 0 taskset -c "$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')" "$zinf" estimate \
            --model xl --config nvme.json --machine 4090,nvme=7/6 --json &&
            cmp said.out before || return 1
    fi
    estimate 0 --json && ! cmp -s said.out here-before
    nothing_status=$?
    rm -r cache
    return $nothing_status
}

# Rates that were measured in one folder hold for the others of that drive, and count once.
rates_of_the_drive() {
    estimate 0 --json && assumed=$(number step_seconds) || return 1
    mkdir -p cache/zinf
    cat >cache/zinf/bench.json <<END
{"nvme": {"$work/measured": {"read": 1e8, "write": 1e8, "mixed": 1e8}}}
END
    mkdir measured
    estimate 0 --json && drive=$(number step_seconds) && less "$assumed" "$drive"
    rates_status=$?
    for paths in '"fresh"' "[\"$work/drive\"\, \"$work/more\"]" \
        "[\"$work/drive\"\, \"$work/measured\"]"; do
        sed "s,\"$work/drive\",$paths,g" nvme.json >other.json &&
            run 0 "$zinf" estimate --model xl --config other.json --json &&
            near "$(number step_seconds)" "$drive" || rates_status=1
    done
    # both folders of it were measured: the drive counts once all the same
    cat >cache/zinf/bench.json <<END
{"nvme": {"$work/drive": {"read": 1e8, "write": 1e8, "mixed": 1e8},
 "$work/measured": {"read": 1e8, "write": 1e8, "mixed": 1e8}}}
END
    sed "s,\"$work/drive\",[\"$work/drive\"\, \"$work/measured\"],g" nvme.json >other.json &&
        run 0 "$zinf" estimate --model xl --config other.json --json &&
        near "$(number step_seconds)" "$drive" || rates_status=1
    rmdir measured
    rm -r cache
    return $rates_status
}
# A drive that is slow to answer, or takes the CPUs' time, makes a step longer, checksums with it.
costs_of_the_drive() {
    mkdir -p cache/zinf
    fixed="--device-memory 4GiB --host-memory 8GiB --threads 2 --seq-len 16 --micro-batch 1 --accumulate 1"
    rates='"read": 1e9, "write": 1e9, "mixed": 1e9'
    costs_status=0 before=0
    for costs in '' ', "answers": 1e3' ', "answers": 1e3, "cpu_bytes": 2e9' \
        ', "answers": 1e3, "cpu_bytes": 2e9}}, "memory": {"host": {"sum_bytes": 4e9' \
        ', "answers": 1e3, "cpu_bytes": 2e9, "busy_drive": 0.5}}, "memory": {"host": {"sum_bytes": 4e9'; do
        echo "{\"nvme\": {\"$work/drive\": {$rates$costs}}}" >cache/zinf/bench.json
        estimate 0 $fixed --json && less "$before" "$(number step_seconds)" || {
            echo "# with $costs $(number step_seconds), before $before"
            costs_status=1
        }
        before=$(number step_seconds)
    done
    sed 's/"exact"/"exact", "checksums": false/' nvme.json >unsummed.json
    run 0 "$zinf" estimate --model xl --config unsummed.json $fixed --json &&
        less "$(number step_seconds)" "$before" || costs_status=1
    rm -r cache
    return $costs_status
}
# Of a drive that was faster at another time the step is a range.
range_of_the_drive() {
    mkdir -p cache/zinf measured faster
    fixed="--device-memory 4GiB --host-memory 8GiB" # whatever others on this machine leave
    slow='{"read": 5e6, "write": 5e6, "mixed": 5e6}' fast='{"read": 1e7, "write": 1e7, "mixed": 1e7}'
    echo "{\"nvme\": {\"$work/measured\": $slow}}" >cache/zinf/bench.json
    estimate 0 $fixed --json && ! grep -q step_seconds_range said.out && step=$(number step_seconds) || return 1
    echo "{\"nvme\": {\"$work/faster\": $fast, \"$work/measured\": $slow}}" >cache/zinf/bench.json
    estimate 0 $fixed --json && near "$(number step_seconds)" "$step" &&
        sed -n 's/.*"step_seconds_range":[[:space:]]*\[\([^]]*\)].*/\1/p' said.out | awk -F, -v step="$step" '
            { print "# " $0 " of " step; ok = $1 > 0.45 * step && $1 < 0.8 * step && $2 > 0.99 * step && $2 < 1.01 * step }
            END { exit !ok }' &&
        estimate 0 && says "with the drive as fast and as slow as it was measured"
    range_status=$?
    # Of a drive that never limits the step there is none: both ends would read alike.
    echo "{\"nvme\": {\"$work/faster\": {\"read\": 1e14, \"write\": 1e14, \"mixed\": 1e14},
        \"$work/measured\": {\"read\": 1e13, \"write\": 1e13, \"mixed\": 1e13}}}" >cache/zinf/bench.json
    estimate 0 && ! grep "with the drive as fast" said.out || range_status=1
    echo '{"nvme": [{"read": 1e9}]}' >cache/zinf/bench.json # nothing that is known
    estimate 0 --json && ! grep -q step_seconds_range said.out || range_status=1
    rmdir measured faster
    rm -r cache
    return $range_status
}
# One card of 24 GB, 64 GB of RAM, a drive of 1 TB: a bench of the host's CPU has no part in it.
one_card() {
    card=4090,ram=64G,nvme=7/6,nvme-size=1TB
    estimate 0 --machine $card --json && cp said.out before &&
        estimate 0 --json && cp said.out here-before &&
        run 0 "$zinf" bench gemm --device host --type bf16 --threads 1 &&
        estimate 0 --machine $card --json && cmp said.out before &&
        estimate 0 --json --threads 1 && ! cmp -s said.out here-before
    card_status=$?
    rm -rf cache
    return $card_status
}
sources() {
    estimate 0 --machine 4090,ram=48G,nvme=7/6 &&
        says "machine      GeForce RTX 4090" "GPU memory 23.99 GiB: as nvidia-smi says" \
            "95 % (assumed) of 165.2 TFLOP/s" "RAM 48 GiB: given: ram=48G" "of 46.50 GiB" \
            "CPU threads 16: assumed" "drive reads 7 GB/s: given" "drive writes 6 GB/s: given"
}
cards() {
    for card in 3090 4060ti 4080 4090 5060ti 5070ti 5080 5090 a6000 6000-ada pro-6000 t4 v100-16 \
        v100-32 a10 l4 l40s a100-40 a100-80 a100-sxm-40 a100-sxm-80 h100 h200 gh200 b200 cpu; do
        estimate 0 --machine $card --json && says '"source":' || return 1
        [ $card = cpu ] || complains_not "no card" || return 1
    done
}
complains_not() { ! grep -qF -e "$1" said.err; }
# Each figure counts: what is slower takes longer, what is smaller is smaller.
figures() {
    estimate 0 --machine 4090,nvme=7/6 --json && fast=$(number step_seconds) || return 1
    for figure in nvme=3/6 nvme=7/2 nvme-mixed=2 optim=3 bf16=10 link=1 bandwidth=20; do
        estimate 0 --machine 4090,nvme=7/6,$figure --json && slow=$(number step_seconds) &&
            less "$fast" "$slow" || { echo "# $figure: $slow, not more than $fast"; return 1; }
    done
    estimate 0 --machine 4090,nvme=7/6,memory=12G --json &&
        less "$(sed -n 's/.*"device":[[:space:]]*\([0-9]\{5,\}\).*/\1/p' said.out | head -n 1)" 12884901888
}
whole_training() {
    estimate 0 --machine 4090,tbw=1200 --tokens 1e9 --json &&
        [ "$(number watts)" = 450 ] && near "$(number tbw)" 1.2e15 &&
        seconds=$(number training_seconds) &&
        near "$(number training_kwh)" "$(awk -v s="$seconds" 'BEGIN { print s * 450 / 3.6e6 }')" &&
        estimate 0 --machine 4090,power=600 --tokens 1e9 && says "TB written" "at 600 W" &&
        estimate 0 --machine 4090,power=600 --tokens 1e9 --power 700 && says "at 700 W" &&
        estimate 0 --machine cpu --tokens 1e9 && ! says "kWh" >/dev/null
}
# A configuration that names the drive, on a machine whose RAM takes it all, says where things are.
where_things_are() {
    run 0 "$zinf" estimate --model xl --config nvme.json --machine 4090,ram=128G &&
        ! says "RAM takes" >/dev/null && ! complains "RAM takes" >/dev/null || return 1
    sed 's/"exact"/"auto"/' nvme.json >fill.json
    run 0 "$zinf" estimate --model xl --config fill.json --machine 4090,ram=128G &&
        says "parameters on host, optimizer state on host, gradients on host" "drive 0 B" &&
        run 0 "$zinf" estimate --model xl --config fill.json --machine 4090,ram=12G &&
        says " and drive"
}
room() {
    estimate 0 --machine 4090,nvme-size=2TB && says "free in the drives of GeForce RTX 4090" &&
        estimate 0 --machine 4090,nvme-size=10G && complains "has too little room"
}
file() {
    cat >desk.json <<END
{"name": "desk", # with a comment
 "gpus": [{"name": "4090", "bf16_flops": 1e14, "link_rate": 2e10}],
 "ram": "64GiB", "cpu": {"threads": 8, "optimizer_rate": 2e10},
 "drives": [{"read": 3e9, "write": 2e9, "size": "1TB"}, {"read": 4e9, "write": 4e9, "size": "1TB"}],
 "power": 600}
END
    estimate 0 --machine desk.json --tokens 1e9 &&
        says "machine      desk" "given in desk.json" "drive reads 7 GB/s" "at 600 W" &&
        estimate 0 --machine desk.json --json && from_file=$(number step_seconds) &&
        estimate 0 --json --machine 4090,bf16=100,link=20,threads=8,optim=20,nvme=7/6 &&
        [ "$from_file" = "$(number step_seconds)" ] &&
        estimate 0 --machine desk.json,nvme=1/1 --json && less "$from_file" "$(number step_seconds)"
}
bad_file() { # text, words...
    echo "$1" >bad.json
    shift
    estimate 1 --machine bad.json && complains "bad.json" "$@"
}
bad_files() {
    bad_file '{"gpu": []}' 'unknown key "gpu"' 'did you mean "gpus"' &&
        bad_file '{"gpus": [{"memory": "24GiB"}]}' "needs bf16=" &&
        bad_file '{"gpus": [{"name": "4090"}, {"name": "4090"}]}' "one GPU" &&
        bad_file '{"gpus": [{"name": "4090", "link": 1}]}' 'unknown key "link"' &&
        bad_file '{"ram": "much"}' '"ram" must be bytes' &&
        bad_file '{"drives": {"read": 1}}' "must be a list" &&
        bad_file '{"cpu": {"threads": -1}}' '"threads" must be a number above 0' &&
        bad_file '{"cpu": 3}' "object" && bad_file '[]' "object" && bad_file '{' "JSON"
}
words() {
    estimate 1 --machine 4100 && complains "no card '4100'" "4080, 4090" &&
        estimate 1 --machine ram=64G && complains "does not begin with a card" &&
        estimate 1 --machine 4090,rm=64G && complains "'rm'" "did you mean ram" &&
        estimate 1 --machine 4090,ram && complains "'ram' is no figure" &&
        estimate 1 --machine 4090,ram=lots && complains "ram=lots is no size" &&
        estimate 1 --machine 4090,ram=64 && complains "ram=64 has no unit: write ram=64GiB" &&
        estimate 1 --machine 4090,link=-1 && complains "link=-1 is no number above 0" &&
        estimate 1 --machine 4090,link=nan && complains "link=nan" &&
        estimate 1 --machine 4090,nvme=7 && complains "READ/WRITE" &&
        estimate 1 --machine none.json && complains "none.json" &&
        estimate 1 --machine "" && complains "does not begin" &&
        estimate 2 --machine 4090 --compare h100 && complains "--compare" &&
        estimate 2 --machine 4090 --measure && complains "--measure"
}
compared() {
    estimate 0 --compare 3090,4090,ram=64G,nvme=7/6,h100,cpu,threads=64 &&
        [ "$(wc -l <said.out)" -eq 5 ] && says "4090,ram=64G,nvme=7/6 " "cpu,threads=64 " &&
        [ "$(awk 'length > 100' said.out)" = "" ] &&
        estimate 0 --compare 4090,h100 --tokens 1e9 && says "days" "kWh" &&
        estimate 0 --compare 4090,nvme=7/6,h100 --json && says '"spec":	"4090,nvme=7/6"' '"fits":	true' &&
        estimate 0 --compare 4090,memory=100M,h100 && says "does not fit: zinf estimate --machine" &&
        estimate 1 --compare 4090,h1000 && complains "h1000"
}
# A card has what nvidia-smi says, a machine less than its RAM, and nobody more than there is.
budgets() {
    estimate 0 --machine a10,memory=22G && says "of 20.90 GiB" &&
        estimate 0 --machine a10 && says "of 21.36 GiB" &&
        estimate 0 --machine h200,ram=512G && says "GPU memory 140.4 GiB" "of 504.00 GiB" &&
        estimate 0 --machine 4090,ram=64G --host-memory 63GiB && says "of 63.00 GiB" &&
        estimate 1 --machine 4090,ram=64G --device-memory 70GiB &&
        complains "--device-memory" "is 70.00 GiB" "has 23.99 GiB: lower it" &&
        estimate 1 --machine 4090,ram=64G --host-memory 200GiB &&
        complains "--host-memory" "is 200.00 GiB" "has 64.00 GiB of RAM: lower it"
}
caps_of_a_table() {
    estimate 0 --compare 3090,h100 --device-memory 22GiB &&
        says "on every machine: zinf.device_memory 22.00 GiB" "RAM, GiB" "drive, GiB" &&
        estimate 0 --compare 3090,h100 && ! grep -q "on every machine" said.out &&
        estimate 0 --compare 4090,h100 --tokens 1e13 && ! grep -q "e+" said.out
}
# What a CPU is fast enough to pack while the drive works.
packed_with() { # GB/s of its updates: what the plan says
    estimate 0 --accumulate 1 --machine "4090,optim=$1,threads=16,nvme=3/3,nvme-mixed=3,ram=64G" &&
        [ "$(grep 'packed$' said.out)" = "$2" ]
}
packs() {
    packed_with 60 "plan: parameters, gradients and optimizer state on the drive are packed" &&
        packed_with 6 "plan: optimizer state on the drive is packed" && packed_with 1 ""
}
# With RAM that takes a part, what is chosen is as short as the best of what can be asked for.
packs_the_best() {
    for pack in auto off state all; do
        sed "s/\"placement\": \"exact\"/\"pack\": \"$pack\"/" nvme.json >"pack-$pack.json"
    done
    for rate in 60 12 8 6 4.6 3; do
        least=1e9
        for pack in off state all auto; do
            run 0 "$zinf" estimate --model xl --config "pack-$pack.json" --accumulate 1 --json \
                --machine "4090,optim=$rate,threads=16,nvme=3/3,nvme-mixed=3,ram=8G" || return 1
            seconds=$(number step_seconds)
            [ $pack = auto ] || ! less "$seconds" "$least" || least=$seconds
        done
        awk -v a="$seconds" -v b="$least" 'BEGIN { exit !(a <= 1.02 * b) }' || {
            echo "# optim=$rate: auto $seconds s, the best of off, state and all $least s"
            return 1
        }
    done
}
# What is said of a step holds where none clips; with updates before the norm one that does takes
# longer, and so do all where many do. A plan that is made for waiting is no slower then.
clipping() {
    card=4090,ram=64G,nvme=7/6
    estimate 0 --machine $card --clip 0 --json && ! grep -q clipped said.out &&
        estimate 0 --machine $card --clip 1 --json && grep -q update-in-backward said.out &&
        step=$(number step_seconds) once=$(number clipped_step_seconds) &&
        all=$(number all_clipped_step_seconds) && less "$step" "$once" && less "$all" "$once" &&
        estimate 0 --machine $card --clip 1 && says "if no step clips" "(update-in-forward)" || return 1
    sed 's/"exact"/"exact", "schedule": "update-in-forward"/' nvme.json >forward.json
    run 0 "$zinf" estimate --model xl --config forward.json --machine $card --clip 1 --json &&
        ! less "$all" "$(number step_seconds)" && ! grep -q clipped said.out
}
# Several micro-batches: products of a layer's gradients are counted as adding to sums themselves,
# but where they may not be compared.
sums() {
    estimate 0 --accumulate 4 --machine 4090,ram=64G &&
        grep -q "^sums .*products add 9[0-9]*\.[0-9] % of a step's numbers" said.out &&
        sed 's/"placement"/"time_products": false, "placement"/' nvme.json >untimed.json &&
        run 0 "$zinf" estimate --model xl --config untimed.json --accumulate 4 --machine 4090,ram=64G &&
        ! grep -q ^sums said.out
}
check "budgets are what there is" budgets
check "who adds gradients to sums" sums
check "what a step takes that clips" clipping
check "what is packed" packs
check "what is packed is the best of all" packs_the_best
check "budgets of a table of machines" caps_of_a_table
check "nothing of this machine counts" nothing_of_this_one
check "rates of a drive count for its folders, once" rates_of_the_drive
check "a drive takes time to answer, and the CPUs'" costs_of_the_drive
check "a drive that varies gives a range" range_of_the_drive
check "one card before and after a bench of the host" one_card
check "every figure has its source" sources
check "all cards" cards
check "each figure counts" figures
check "a whole training and its energy" whole_training
check "the plan says where things are" where_things_are
check "room on the drives" room
check "a file says what words say" file
check "files that are wrong" bad_files
check "words that are wrong" words
check "a table of machines" compared
[ -z "$(ls drive)" ]
verdict $? "nothing was written to the drive"
finish
