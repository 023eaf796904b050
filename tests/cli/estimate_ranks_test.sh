#!/bin/sh
# zinf estimate of several ranks: what goes over the network is what the formulas say, a faster one
# is never slower, and what cannot be is named. Real traffic is beside it in train_net_test.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
"$zinf" init --arch gpt2 --size small --tokenizer bytes --vocab 50257 --output model >/dev/null ||
    exit 99
echo '{"bf16": {"enabled": true}, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 3,
  "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}}' >config.json
estimate() { # options...
    run 0 "$zinf" estimate --model model/config.json --config config.json --seq-len 512 \
        --micro-batch 4 --machine 4090,ram=64G --json "$@"
}
number() { # section, key
    sed -n "/\"$1\"/,/}/p" said.out | sed -n "s/.*\"$2\":[[:space:]]*\([^,]*\).*/\1/p"
}
top() { sed -n "s/.*\"$1\":[[:space:]]*\([^,]*\).*/\1/p" said.out | head -n 1; }
refuses() { # words, options...
    words=$1
    shift
    "$zinf" estimate --model model/config.json --config config.json --machine 4090 --micro-batch 4 "$@" \
        >said.out 2>said.err
    [ $? -ne 0 ] && complains "$words"
}

check "one rank" estimate
[ "$(number lane_bytes net)" = 0 ]
verdict $? "sends nothing"
# Parameters once or twice, in bf16, and gradients in fp32: 6 to 8 bytes of (n - 1) / n of them.
for n in 2 4 8; do
    check "$n ranks" estimate --ranks $n
    awk -v bytes="$(number lane_bytes net)" -v params="$(top parameters)" -v n=$n 'BEGIN {
        each = bytes / (params * (n - 1) / n); print "# " each " bytes a parameter"
        exit !(each > 6 && each < 8.2) }'
    verdict $? "send what the formula says"
done
before=
for rate in 1 10 25 100 400; do
    check "$rate Gbit/s" estimate --ranks 16 --gpus-per-host 4 --network ${rate}Gbit/s
    seconds=$(top step_seconds)
    [ -z "$before" ] || awk -v a="$before" -v b="$seconds" 'BEGIN { exit !(b <= 1.01 * a) }'
    verdict $? "is no slower than less"
    [ $rate -ne 1 ] || [ "$(top bottleneck)" = '"net"' ]
    verdict $? "and limits where it is slow"
    before=$seconds
done

# The other order of micro-batches rounds sums over ranks otherwise.
in_words() {
    ZINF_LOG=debug
    export ZINF_LOG
    estimate "$@"
    unset ZINF_LOG
}
in_words --seats 2 --accumulate 4
complains "would take" && ! grep -q "micro-batches one after the other" said.err
verdict $? "micro-batches of several GPUs have one order"
in_words --accumulate 4
complains "micro-batches one after the other"
verdict $? "those of one GPU have the faster one"

# ---- ranks in a pipeline ----

# Adapters of wide blocks: nearly all work is that of blocks, and next to nothing crosses.
"$zinf" init --arch llama --size 7b --layers 16 --hidden 8192 --heads 64 --tokenizer bytes --config-only \
    --output blocks >/dev/null || exit 99
pipe() { # ranges, micro-batches, layers of each range
    cat >pipe.json <<END
{"bf16": {"enabled": true}, "zero_optimization": {"stage": 1},
 "zinf": {"pipeline_ranges": $1, "pipeline_parts": [$3], "placement": "exact", "durability": "none",
          "schedule": "prefetch", "activation_checkpointing": "never"}}
END
    run 0 "$zinf" estimate --model blocks/config.json --config pipe.json --lora-rank 1 --seq-len 512 \
        --micro-batch 4 --accumulate "$2" --machine cpu,threads=4,ram=1000G --ranks 4 --pipeline-parallel 4 \
        --json
}
of_ranks() { # key: of each of them
    sed -n '/"pipeline":/,$s/.*"'"$1"'":[[:space:]]*\([^,]*\).*/\1/p' said.out | head -n 4
}
bubble_is() { # ranges, micro-batches: of the rank that has most to do, of what that has to do
    awk -v step="$(top step_seconds)" -v bubble="$(top bubble_seconds)" -v v="$1" -v m="$2" 'BEGIN {
        wanted = 3 / (v * m); is = bubble / (step - bubble); print "# " is " of " wanted
        exit !(is > 0.99 * wanted && is < 1.01 * wanted) }'
}
for m in 8 16; do
    check "four in a pipeline, $m micro-batches" pipe 1 $m 5,4,4,5
    [ "$(top tokens_per_step)" = $((512 * 4 * m)) ] && [ "$(top pipe_ranks)" = 4 ]
    verdict $? "have the same samples"
    bubble_is 1 $m
    verdict $? "wait as long as the formula says"
done
check "with two ranges each" pipe 2 16 3,2,2,2,2,2,2,3
bubble_is 2 16
verdict $? "wait as long as the formula says"
[ "$(of_ranks layers | tr '\n' ' ')" = "5 4 4 5 " ]
verdict $? "and each rank's layers are said"
# The last one begins when one micro-batch has gone through the others, and never waits again; behind it
# one goes back through them.
check "the last with twice as many layers" pipe 1 8 4,3,3,8
of_ranks alone_seconds | awk -v step="$(top step_seconds)" '{ all[NR] = $1 } END {
    wanted = all[4] + (all[1] + all[2] + all[3]) / 8; print "# " step " of " wanted
    exit !(NR == 4 && all[4] > 2 * all[2] && step > 0.99 * wanted && step < 1.01 * wanted) }'
verdict $? "the others wait for it"
check "two in a pipeline" estimate --ranks 2 --pipeline-parallel 2 --accumulate 4
check "are two plans" run 0 "$zinf" estimate --model model/config.json --config config.json \
    --seq-len 512 --micro-batch 4 --accumulate 4 --machine 4090,ram=64G --ranks 2 --pipeline-parallel 2
check "of which both are shown" says "the lines below are those of rank 1 of the pipeline" \
    "the slowest waits for the others for" "rank 1 " "limited by"

# A cut by time alone gives the first rank the table and all blocks, as the head takes as long as these.
"$zinf" init --arch llama --size 7b --layers 8 --hidden 256 --heads 4 --vocab 32000 --tokenizer bytes \
    --config-only --output wide >/dev/null || exit 99
echo '{"bf16": {"enabled": true}, "zinf": {"placement": "exact"}}' >exact.json
fits() { # options...
    run 0 "$zinf" estimate --model wide/config.json --config exact.json --seq-len 64 --micro-batch 1 \
        --accumulate 4 --machine 4090,ram=64G --ranks 2 --pipeline-parallel 2 --json "$@"
}
check "two with much memory" fits --device-memory 600MiB
most=$(number peak_bytes device)
check "two with less" fits --device-memory 238MiB
awk -v a="$(number peak_bytes device)" -v b="$most" 'BEGIN { print "# " a " " b; exit !(a > 0 && a < 0.95 * b) }'
verdict $? "have layers where there is room for them"
# Narrow blocks on fast GPUs: what crosses takes as long as what is computed of it.
narrow() { # options...
    run 0 "$zinf" estimate --model model/config.json --config pipe.json --seq-len 512 --micro-batch 4 \
        --accumulate 32 --machine 4090,ram=64G --ranks 4 --pipeline-parallel 4 --json "$@"
}
echo '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}, "zinf": {"durability": "none"}}' >pipe.json
check "four that wait for what crosses" narrow
before=$(top bubble_seconds)
said=$(sed -n '/pipeline_overlap/,/}/s/.*"step_seconds":[[:space:]]*\([^,]*\).*/\1/p' said.out)
sed -i 's/"durability"/"pipeline_overlap": true, &/' pipe.json
check "with more micro-batches at once" narrow
awk -v a="$(top bubble_seconds)" -v b="$before" 'BEGIN { print "# " a " " b; exit !(a < 0.8 * b) }'
verdict $? "wait less"
[ "$said" = "$(top step_seconds)" ]
verdict $? "as was said before"
# So it is with RAM, which has the state: by time alone nine of ten layers are the first rank's.
echo '{"bf16": {"enabled": true}, "zinf": {"placement": "exact"},
 "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}}' >exact.json
in_ram() { # status, RAM
    run "$1" "$zinf" estimate --model wide/config.json --config exact.json --seq-len 512 --micro-batch 8 \
        --accumulate 4 --machine 4090,ram=64G --ranks 2 --pipeline-parallel 2 --json --host-memory "$2"
}
check "two with much RAM" in_ram 0 900MiB
most=$(number peak_bytes host)
[ "$(of_ranks layers | tr '\n' ' ')" = "9 1 " ]
verdict $? "one has nearly all layers"
grep -q "weights sent instead of values" said.out
verdict $? "and the time without a pipeline is said"
check "two with less" in_ram 0 275MiB
awk -v a="$(number peak_bytes host)" -v b="$most" 'BEGIN { print "# " a " " b; exit !(a > 0 && a < 0.85 * b) }'
verdict $? "have layers where there is RAM for them"
check "two with too little" in_ram 1 200MiB
check "are told what lacks" complains "no cut of 10 layers into 2 ranges seems to fit" \
    "of RAM (zinf.host_memory)" "use more ranks"

# Steps of a pipeline outlive the process if those of all its ranks do. One that has room for state in
# RAM gives that up by itself, and so do the others then: with every amount of RAM the drives of all
# ranks have what they have without durability, or what they have with it.
"$zinf" init --arch llama --size 7b --layers 6 --hidden 64 --heads 4 --tokenizer bytes --vocab 4000 \
    --context 64 --config-only --output pair >/dev/null || exit 99
drives_of() { # durability, MiB: what each of two ranks has on its drive
    cat >pair.json <<END
{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3,
  "offload_param": {"device": "nvme", "nvme_path": "$work"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "$work"}},
 "zinf": {"pipeline_parts": [4, 4], "pack": "off", "durability": "$1"}}
END
    run 0 "$zinf" estimate --model pair/config.json --config pair.json --seq-len 32 --micro-batch 1 \
        --machine cpu,threads=2,ram=64G --device-memory 8MiB --host-memory "$2MiB" --ranks 2 \
        --pipeline-parallel 2 --json || return
    sed -n '/"pipeline":/,$s/.*"drive":[[:space:]]*\([0-9]*\)$/\1/p' said.out | tr '\n' ' '
}
agree_on_durability() {
    none=0 steps=0
    for ram in 10 11 12 13 14 15 16 18 20; do
        auto=$(drives_of auto $ram) without=$(drives_of none $ram) with=$(drives_of step $ram)
        echo "# $ram MiB: $auto; without $without; with $with"
        [ -n "$auto" ] || return 1
        if [ "$auto" = "$without" ]; then none=$((none + 1)); elif [ "$auto" = "$with" ]; then
            steps=$((steps + 1)); else return 1; fi
    done
    [ $none -gt 0 ] && [ $steps -gt 0 ]
}
check "two ranks agree on whether steps outlive the process" agree_on_durability

# ---- ranks that compute with the CPU of this machine ----

# Each has its part of the threads that the bench had, and of the memory's bandwidth: with as many
# tokens a rank, two take twice as long.
mkdir -p cache/zinf
for isa in scalar avx2 avx512 avx512_bf16 amx_bf16; do
    echo "\"host/$isa/bf16\": {\"flops\": 1e11}, \"host/$isa/fp32\": {\"flops\": 5e10},"
done >isas
cat >cache/zinf/bench.json <<END
{"gemm": {$(cat isas) "none": {}}, "memory": {"host": {"bytes": 1e10}},
 "attention": {$(sed 's/"flops": \([^}]*\)/"forward": \1, "backward": \1/g' isas) "none": {}},
 "optim": {"AdamW/split": {"bytes": 1e10}}}
END
on_cpu() { # options...
    run 0 "$zinf" estimate --model model/config.json --config config.json --seq-len 512 --micro-batch 4 \
        --device host --json "$@"
}
check "one rank by the CPU" on_cpu
alone=$(number lane_seconds device) updates=$(number lane_seconds host)
check "two of them" on_cpu --seats 2
awk -v a="$(number lane_seconds device)" -v b="$alone" -v host="$(number lane_seconds host)" \
    -v updates="$updates" 'BEGIN { print "# " a " " b ", updates " host " " updates
        exit !(b > 0 && a > 1.8 * b && host > 0.9 * updates) }'
verdict $? "take twice as long for the same tokens each, and as long for half of the updates each"
rm -r cache

# ---- ranks that share tensors ----

for n in 2 4; do
    check "$n share tensors" estimate --ranks $n --tensor-parallel $n
    [ "$(top tokens_per_step)" = $((512 * 4)) ] && [ "$(top tensor_ranks)" = $n ]
    verdict $? "have the same samples"
    # Four sums of tokens times width a block, and one each of the table and the head; the least that
    # is not in it are statistics of the vocabulary.
    awk -v bytes="$(top tensor_bytes)" 'BEGIN {
        wanted = (12 * 4 + 2) * 4 * 512 * 768 * 4; print "# " bytes / wanted
        exit !(bytes >= wanted && bytes < 1.02 * wanted) }'
    verdict $? "add up what the formula says"
done
check "on two hosts" estimate --ranks 4 --gpus-per-host 2 --tensor-parallel 4 --network 10Gbit/s
slow=$(top tensor_seconds)
check "with a faster network" estimate --ranks 4 --gpus-per-host 2 --tensor-parallel 4 --network 100Gbit/s
awk -v a="$(top tensor_seconds)" -v b="$slow" 'BEGIN { print "# " a " " b; exit !(a < b / 2 && a > 0) }'
verdict $? "sums take less"
check "tensor, pipe and data" estimate --ranks 8 --tensor-parallel 2 --pipeline-parallel 2 --accumulate 4
[ "$(top tokens_per_step)" = $((512 * 4 * 2 * 4)) ]
verdict $? "are two pipelines of two by two"

# ---- ranks that share sequences ----

for n in 2 4; do
    check "$n share sequences" estimate --ranks $n --context-parallel $n
    [ "$(top tokens_per_step)" = $((512 * 4)) ] && [ "$(top context_ranks)" = $n ]
    verdict $? "have the same samples"
    # Keys and values of twelve layers, forward and backward, and their gradients in fp32.
    awk -v bytes="$(top context_bytes)" -v n=$n 'BEGIN {
        wanted = 4 * 12 * 512 * 2 * 768 * (2 * 2 + 4) * (n - 1) / n; print "# " bytes / wanted
        exit bytes != wanted }'
    verdict $? "bring together what the formula says"
done
# Of a model with attention beside a mixer in each layer: what ranks bring together grows with the
# sequence, and a state that one of them hands over does not.
sed 's/\("max_position_embeddings"\): [0-9]*/\1: 8192/' "$SRCDIR/tests/fixtures/falcon_h1_a/config.json" >mixer.json
of_length() { # tokens
    run 0 "$zinf" estimate --model mixer.json --config config.json --seq-len "$1" --micro-batch 1 \
        --machine 4090,ram=64G --ranks 2 --context-parallel 2 --json && top context_bytes
}
short=$(of_length 2048) && long=$(of_length 4096)
awk -v short="$short" -v long="$long" 'BEGIN {
    # Three layers, two heads of six; the last layer has its keys and values still in backward.
    wanted = 2048 * 2 * 2 * 6 * (5 * 2 + 3 * 4) / 2; print "# " (long - short) / wanted
    exit long - short != wanted }'
verdict $? "without keys beside a mixer's state"
check "says so" run 0 "$zinf" estimate --model model/config.json --config config.json --seq-len 512 \
    --micro-batch 4 --machine 4090,ram=64G --ranks 2 --context-parallel 2
check "in words" says "2 ranks share each sequence"

# ---- seats: GPUs of one process ----

seconds() { # options...: of a step, on seats
    estimate "$@" >/dev/null && top step_seconds
}
no_slower() { awk -v a="$1" -v b="$2" 'BEGIN { print "# " a " " b; exit !(a <= 1.001 * b) }'; }
for n in 2 4; do
    check "$n seats" estimate --seats $n
    [ -n "$(top pull_seconds)" ] && [ "$(top seats)" = $n ] &&
        [ "$(top tokens_per_step)" = $((512 * 4 * n)) ]
    verdict $? "pull units from RAM, and are counted"
    # What is pulled and added up is what ranks that are processes would send.
    net=$(number lane_bytes net)
    estimate --ranks $n >/dev/null && [ "$(number lane_bytes net)" = "$net" ]
    verdict $? "with the bytes of $n ranks"
    alone=$(seconds --machine 4090,ram=64G,link=20,root=$((20 * n)) --seats $n)
    shared=$(seconds --machine 4090,ram=64G,link=20,root=20 --seats $n)
    no_slower "$alone" "$shared" && ! no_slower "$shared" "$alone" >/dev/null
    verdict $? "links of their own are faster than a root that they share"
    fast=$(seconds --machine 4090,ram=64G,root=10,peer=100 --seats $n) &&
        slow=$(seconds --machine 4090,ram=64G,root=10 --seats $n) && no_slower "$fast" "$slow"
    verdict $? "a way between them is taken where it is faster"
    estimate --machine 4090,ram=64G,root=10,peer=100 --seats $n && [ -n "$(top link_seconds)" ] &&
        says "units pulled from RAM"
    verdict $? "which is said, with what the other would take"
    estimate --machine 4090,ram=64G,root=10,peer=0.1 --seats $n && [ -n "$(top pull_seconds)" ] &&
        says "units gathered between the devices"
    verdict $? "and not where it is slower"
done
sed 's/{"bf16"/{"zinf": {"seats": 2}, "bf16"/' config.json >seats.json
check "seats of the configuration" run 0 "$zinf" estimate --model model/config.json --config seats.json \
    --machine 4090,ram=64G --seq-len 512 --micro-batch 4
check "are said, with what all take" says "2 in one process, with" "pulls whole units from RAM" \
    "between seats" "all at 30 GB/s"
check "processes with seats" estimate --ranks 8 --gpus-per-host 4 --seats 4 --network 25Gbit/s
with=$(top step_seconds)
check "the same without" estimate --ranks 8 --gpus-per-host 4 --network 25Gbit/s
no_slower "$with" "$(top step_seconds)"
verdict $? "what a process has for another crosses once"
check "seats that are no processes" refuses "are not processes with --seats 3" --ranks 4 --seats 3
# All of a host's share its RAM, of which 2 GiB are the system's.
share() { # options...: the host budget is a quarter of 62 GiB
    estimate "$@" && [ "$(number budget_bytes host)" = $((31 * 512 * 1024 * 1024)) ]
}
check "four seats have a quarter of the RAM each" share --seats 4
check "and so have four ranks" share --ranks 8 --gpus-per-host 4 --network 25Gbit/s
check "for people" run 0 "$zinf" estimate --model model/config.json --config config.json \
    --machine 4090,ram=64G --seq-len 512 --micro-batch 4 --ranks 8 --gpus-per-host 4 --network 3.125GB/s
check "it says how many" says "8 on 2 hosts, 25 Gbit/s a host" "network"
check "hosts without a network" refuses "--network" --ranks 8 --gpus-per-host 4
check "hosts that differ" refuses "as many on every host" --ranks 6 --gpus-per-host 4
check "a network without a unit" refuses "a rate is needed" --ranks 2 --network 25
check "--measure" refuses "leave out --measure" --ranks 2 --compare 4090
finish
