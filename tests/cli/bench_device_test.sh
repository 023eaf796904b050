#!/bin/sh
# zinf bench gemm, attention and pcie: figures of the host device and, where it was built, of the
# stand-in for a GPU; what is kept for zinf estimate; what is refused.
. "$SRCDIR/tests/support/command.sh"
kept=$XDG_CACHE_HOME/zinf/bench.json
standin=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
bench() { # status, arguments...
    status=$1
    shift
    run "$status" "$zinf" bench "$@"
}
gemm_on_host() {
    bench 0 gemm --device host --type fp32 --threads 1 &&
        says "host (" "forward" "dX" "dW" "Tflop/s" "of operands and results" "us a product" &&
        holds "$kept" '"gemm"' '"host/' '/fp32"' '"products"' '"calls"'
}
gemm_json() {
    bench 0 gemm --device host --m 16 --n 16 --k 16 --threads 1 --json &&
        says '"way":' '"flops":' && complains "not kept" && ! holds "$kept" 'bf16"' >/dev/null
}
attention_on_host() {
    bench 0 attention --device host --threads 1 &&
        says "4 x 256 tokens" "1 x 1024 tokens" "1 x 4096 tokens" "forward" "backward" &&
        holds "$kept" '"attention"' '"lengths"' '"tokens":	4096'
}
small_attention() {
    rm "$kept"
    bench 0 attention --device host --seq 32 --heads 2 --kv-heads 1 --head-dim 32 --threads 1 &&
        says "forward" "backward" && complains "not kept" && [ ! -e "$kept" ] &&
        bench 0 attention --device host --seq 64 --heads 2 --window 16 --threads 1 &&
        complains "not kept" && bench 2 attention --window 16 --all && complains "give one"
}
# Checksums are made by the CPU, of RAM.
memory_on_host() {
    bench 0 memory --device host --size 1MiB --threads 1 &&
        says "copy of 1.00 MiB" "GB/s" "checksums, one thread: " "CPU seconds a GB of 1.00 MiB" \
            "a kernel without work: " "a thread that is woken: " &&
        bench 0 memory --device host --size 1MiB --threads 1 --json &&
        says '"checksums":' '"seconds_per_gb":' '"cached_seconds_per_gb":'
}
# All that is kept is of one day, whenever midnight comes.
today=2026-11-22
dated() { sed -i "s/\"date\":[^,}]*/\"date\":	\"${today}T12:00:00Z\"/" "$kept"; }
# The rates of an idle machine: how much one of them adds to a step hangs on the others, and those of a
# busy machine are slow.
idle() {
    for rate in flops:4e11 wide_flops:2e11 update_flops:2e11 forward:1e11 backward:1e11 bytes:3e10 sum_bytes:3e10 \
        half_bytes:5e9 unpack_bytes:1e10 elements:2e9 roof:5e10 calls:4e5 kernels:1e6 wakings:1e5; do
        sed -i "s/\"${rate%:*}\":[^,}]*/\"${rate%:*}\":	${rate#*:}/" "$kept" || return
    done
}
# What plans go by, in the forms of one training; an estimate says so, and does not take figures of
# other threads.
everything() {
    rm -f "$kept"
    echo '{"train_batch_size": 1, "bf16": {"enabled": true}}' >"$work/bf16.json"
    bench 0 all --config "$work/bf16.json" --device host --threads 1 &&
        says "zinf bench memory --device host --threads 1" "zinf bench gemm --type bf16" \
            "zinf bench optim --optimizer AdamW --form split" "drives are left out" &&
        holds "$kept" '"memory"' '/bf16"' '"wide_flops"' '"AdamW/split"' '"packing"' || return 1
    dated && idle || return 1
    "$zinf" init --arch gpt2 --size small --config-only --output "$work/small" >/dev/null &&
        run 0 "$zinf" estimate --model "$work/small" --config "$work/bf16.json" --threads 1 &&
        says "zinf bench gemm, $today" "zinf bench attention, $today" "zinf bench optim, $today" \
            "zinf bench memory, $today" &&
        run 0 "$zinf" estimate --model "$work/small" --config "$work/bf16.json" --threads 3 &&
        says "assumed: zinf bench gemm had 1 threads, not 3" \
            "assumed: zinf bench optim had 1 threads, not 3"
}
# A step that packs state is longer by what packing is slower.
slow_packing() {
    mkdir -p "$work/drive" && cp "$kept" "$work/kept" || return 1
    cat >"$work/packed.json" <<END
{"train_batch_size": 1, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"pack": "state", "placement": "exact"}}
END
    for rate in 1e12 1e7; do
        sed "/\"packing\"/,/}/s/\"bytes\":[^,]*/\"bytes\": $rate/" "$work/kept" >"$kept"
        run 0 "$zinf" estimate --model "$work/small" --config "$work/packed.json" --threads 1 --json &&
            sed -n 's/.*"step_seconds":[[:space:]]*\([-+.0-9e]*\).*/\1/p' "$work/said.out" |
            head -n 1 >"$work/seconds.$rate" || return 1
    done
    run 0 "$zinf" estimate --model "$work/small" --config "$work/packed.json" --threads 1 &&
        says "packing 0.01 GB/s: zinf bench optim, $today" || return 1
    cp "$work/kept" "$kept"
    awk 'NR == 1 { fast = $1 } NR == 2 { exit !($1 > 2 * fast) }' "$work/seconds.1e12" "$work/seconds.1e7"
}
# A step is longer by what attention is slower.
slow_attention() {
    cp "$kept" "$work/kept"
    for rate in 1e12 1e8; do
        sed "s/\"\(forward\|backward\)\":[^,]*/\"\1\": $rate/" "$work/kept" >"$kept"
        run 0 "$zinf" estimate --model "$work/small" --config "$work/bf16.json" --threads 1 --json &&
            sed -n 's/.*"step_seconds":[[:space:]]*\([-+.0-9e]*\).*/\1/p' "$work/said.out" |
            head -n 1 >"$work/seconds.$rate" || return 1
    done
    cp "$work/kept" "$kept"
    awk 'NR == 1 { fast = $1 } NR == 2 { exit !($1 > 2 * fast) }' "$work/seconds.1e12" "$work/seconds.1e8"
}
# The seconds of a step by the rates that are kept.
step_seconds() { # configuration, arguments...
    config=$1
    shift
    run 0 "$zinf" estimate --model "$work/small" --config "$config" --threads 1 --json "$@" &&
        sed -n 's/.*"step_seconds":[[:space:]]*\([-+.0-9e]*\).*/\1/p' "$work/said.out" | head -n 1
}
# What was slow with rows of 256 tokens makes steps of such rows longer, and of 1024 tokens not.
attention_by_length() {
    cp "$kept" "$work/kept"
    for length in 256 1024; do
        step_seconds "$work/bf16.json" --seq-len "$length" >"$work/before.$length" || return 1
    done
    awk '/"tokens"/ { short = /256/ } short && /"(forward|backward)"/ { sub(/:[^,]*/, ": 1e8") } 1' \
        "$work/kept" >"$kept"
    for length in 256 1024; do
        step_seconds "$work/bf16.json" --seq-len "$length" >"$work/after.$length" || return 1
    done
    cp "$work/kept" "$kept"
    paste "$work/before.256" "$work/after.256" | awk '{ exit !($2 > 2 * $1) }' &&
        cmp -s "$work/before.1024" "$work/after.1024"
}
# Parameters have a rate of their own: where only state is packed it does not count.
packing_by_width() {
    cp "$kept" "$work/kept"
    for pack in state all; do
        sed "s/\"state\"/\"$pack\"/; s/\"offload_optimizer\"/\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%\"}, &/; s#%#$work/drive#" \
            "$work/packed.json" >"$work/$pack.json"
        step_seconds "$work/$pack.json" >"$work/before.$pack" || return 1
        sed 's/"half_bytes":[^,]*/"half_bytes": 1e7/' "$work/kept" >"$kept"
        step_seconds "$work/$pack.json" >"$work/after.$pack" || return 1
        cp "$work/kept" "$kept"
    done
    cmp -s "$work/before.state" "$work/after.state" &&
        paste "$work/before.all" "$work/after.all" | awk '{ exit !($2 > 1.5 * $1) }'
}
# What a product, a kernel or a thread that is woken takes by itself makes a step longer, and so do few
# rows where their operands are slow to pack; what is not known takes no time.
without_work() {
    cp "$kept" "$work/kept"
    for rate in calls kernels wakings; do
        for a_second in 1e15 2e3; do
            sed "s/\"$rate\":[^,}]*/\"$rate\": $a_second/" "$work/kept" >"$kept"
            step_seconds "$work/bf16.json" --seq-len 16 >"$work/$rate.$a_second" || return 1
        done
        sed "s/\"$rate\":/\"not-known\":/" "$work/kept" >"$kept"
        step_seconds "$work/bf16.json" --seq-len 16 >"$work/$rate.none" || return 1
        paste "$work/$rate.1e15" "$work/$rate.2e3" "$work/$rate.none" |
            awk -v what=$rate '{ print "# " what ": " $0; exit !($2 > 1.02 * $1 && $3 < $2) }' || return 1
    done
    step_seconds "$work/bf16.json" >"$work/narrow" &&
        sed 's/"wide_flops":[^,]*/"wide_flops": 1e9/' "$work/kept" >"$kept" &&
        step_seconds "$work/bf16.json" >"$work/wide" && cat "$work/narrow" "$work/wide" |
        awk 'NR == 1 { narrow = $1 } NR == 2 { exit !($1 > 2 * narrow) }' || return 1
    awk '/"products"/ { product = 1 } product && /"bytes"/ { sub(/:[^,]*/, ": 1e9") } 1' "$work/kept" >"$kept"
    for rows in 16 512; do
        step_seconds "$work/bf16.json" --seq-len $rows >"$work/slow.$rows" || return 1
    done
    cp "$work/kept" "$kept"
    for rows in 16 512; do
        step_seconds "$work/bf16.json" --seq-len $rows >"$work/before.$rows" || return 1
    done
    paste "$work/before.16" "$work/slow.16" "$work/before.512" "$work/slow.512" |
        awk '{ print "# " $0; exit !($2 / $1 > 1.5 * $4 / $3) }'
}
# What others used of the CPUs while a rate was measured: with little of it nothing is said.
under_load() {
    cp "$kept" "$work/kept"
    for others in 0.05 0.37; do
        sed "s/\"others\"/\"before\"/; s/\"date\":/\"others\": $others, &/" "$work/kept" >"$kept"
        run 0 "$zinf" estimate --model "$work/small" --config "$work/bf16.json" --threads 1 --json ||
            return 1
        case $others in
        0.05) ! grep -q "while others used" "$work/said.out" ;;
        0.37) says "zinf bench gemm, $today, while others used 37 % of the CPUs" \
            "zinf bench optim, $today, while others used 37 %" ;;
        esac || return 1
    done
    make_text "$work/text" 30
    "$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 2 --tokenizer bytes \
        --vocab 257 --output "$work/tiny" >/dev/null 2>&1 &&
        run 0 "$zinf" train --model "$work/tiny" --data "$work/text" --seq-len 16 --steps 1 \
            --config "$work/bf16.json" --lr 1e-3 --threads 1 --device host --output "$work/out" &&
        tr -s '\n ' '  ' <"$work/said.err" | tr -s ' ' |
        grep -q "some were measured while other processes used the CPUs"
}
sizes_go_together() { bench 2 gemm --m 16 && complains "--m, --n and --k go together"; }
unknown_device() { bench 2 gemm --device tpu && complains "--device tpu"; }
needs_a_gpu() {
    bench 1 pcie --size 64KiB && complains "no CUDA device: "
}
on_a_gpu() {
    rm -f "$kept"
    bench 0 gemm --device cuda --m 24 --n 16 --k 32 && bench 0 attention --device cuda --batch 1 \
        --seq 16 --heads 1 --head-dim 32 && bench 0 pcie --size 256KiB --json &&
        says '"pinned"' '"pageable"' '"to_device"' '"both"' && complains "not kept" &&
        [ ! -e "$kept" ] && bench 0 pcie --size 16MiB && holds "$kept" '"pcie"'
}

# Two and four GPUs at once, and from one to the other; an estimate goes by what they have together.
several_gpus() {
    rm -f "$kept"
    ZINF_STANDIN_GPUS=$1
    export ZINF_STANDIN_GPUS
    bench 0 pcie --size 16MiB && says "GPUs               2" "          $1  " "from GPU to GPU" "GB/s each" &&
        holds "$kept" '"together"' "\"gpus\":	$1" '"gpu_to_gpu"' && dated &&
        run 0 "$zinf" estimate --model "$work/small" --config "$work/seats.json" --seats "$1" --micro-batch 1 &&
        says "to all devices" "zinf bench pcie, $today" "device to device"
    several_status=$?
    unset ZINF_STANDIN_GPUS
    return $several_status
}
one_of_several() {
    ZINF_STANDIN_GPUS=2 bench 0 pcie --size 256KiB --gpus 1 --json && ! says '"together"' >/dev/null &&
        ZINF_STANDIN_GPUS=2 bench 1 pcie --gpus 3 && complains "--gpus 3: 2 GPUs are visible"
}
no_way_past() {
    ZINF_STANDIN_GPUS=2 ZINF_STANDIN_NO_PEERS=1 bench 0 pcie --size 256KiB &&
        says "from GPU to GPU: not past the RAM" && complains "copies between them go through RAM"
}

check "gemm on the host" gemm_on_host
check "gemm as JSON" gemm_json
check "attention on the host" attention_on_host
check "attention of other sizes" small_attention
check "copies and checksums of RAM" memory_on_host
check "all that plans go by" everything
check "attention counts by its own rate" slow_attention
check "packing counts by its own rate" slow_packing
check "attention counts by its length" attention_by_length
check "packed parameters count by a rate of their own" packing_by_width
check "what takes time without work" without_work
check "rates of a busy machine" under_load
check "some of the sizes alone" sizes_go_together
check "an unknown device" unknown_device
if "$zinf" report 2>/dev/null | grep -q '^cuda.*free'; then
    skip "pcie without a GPU" "there is one"
else
    check "pcie without a GPU" needs_a_gpu
fi
if [ -f "$standin" ]; then
    ZINF_CUDA_MODULE=$standin
    export ZINF_CUDA_MODULE
    check "on the stand-in for a GPU" on_a_gpu
    echo '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3,
        "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}},
        "zinf": {"gather": "device"}}' >"$work/seats.json"
    check "two GPUs at once" several_gpus 2
    check "four GPUs at once" several_gpus 4
    check "one of several" one_of_several
    check "GPUs that do not reach each other" no_way_past
else
    skip "on the stand-in for a GPU" "not built here"
fi
finish
