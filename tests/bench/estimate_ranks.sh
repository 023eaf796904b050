#!/bin/sh
# What zinf estimate says of several ranks, as the tables of BENCHMARKS.md: GPUs of one host that one
# process drives, with a root that they share and with links of their own; hosts on two networks; and
# the curve to 1,024 ranks. Nothing is trained.
#
#   tests/bench/estimate_ranks.sh BUILD
zinf=${1:?usage: estimate_ranks.sh BUILD}/zinf
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
machine=4090,ram=256G,nvme=14/12
server=$machine,optim=120 # eight channels of memory

model() { # name, hidden, ffn, key heads, heads, layers, vocabulary
    mkdir "$work/$1"
    cat >"$work/$1/config.json" <<EOF
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": $2,
 "intermediate_size": $3, "num_key_value_heads": $4, "num_attention_heads": $5,
 "num_hidden_layers": $6, "vocab_size": $7, "max_position_embeddings": 8192,
 "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false}
EOF
}
model 13B 5120 13824 40 40 40 32000
model 70B 8192 28672 8 64 80 128256
cat >"$work/ds.json" <<'EOF'
{"bf16": {"enabled": true}, "gradient_clipping": 1.0,
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/nvme"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}},
 "zinf": {"placement": "exact"}}
EOF
number() { # key, file
    sed -n "s/.*\"$1\":[[:space:]]*\"\{0,1\}\([^,\"]*\).*/\1/p" "$2" | head -n 1
}
lane() { # section, lane
    sed -n "/\"$1\"/,/}/p" "$work/said" | sed -n "s/.*\"$2\":[[:space:]]*\([^,]*\).*/\1/p"
}
row() { # model, what, accumulation, options...
    name=$1 what=$2 micros=$3
    shift 3
    "$zinf" estimate --model "$work/$name/config.json" --config "$work/ds.json" \
        --machine "${described:-$machine}" --seq-len 4096 --micro-batch 1 --accumulate "$micros" \
        --json "$@" >"$work/said" || exit 1
    limit=$(number bottleneck "$work/said")
    awk -v name="$name" -v what="$what" -v step="$(number step_seconds "$work/said")" \
        -v rate="$(number tokens_per_second "$work/said")" -v limit="$limit" \
        -v busy="$(lane lane_seconds "$limit")" -v net="$(lane lane_bytes net)" \
        -v ram="$(lane peak_bytes host)" 'BEGIN {
        printf "| %s | %s | %.1f s | %.0f | %s, %.0f %% | %.1f | %.1f |\n", name, what, step, rate,
            limit, 100 * busy / step, net / 1e9, ram / 2 ^ 30 }'
}
heading() {
    echo "| model | $1 | step | tokens/s | limited by | network, GB a rank | RAM, GiB a rank |"
    echo "|---|---|---:|---:|---|---:|---:|"
}

for way in "one link of 25.2 GB/s for all:root=25.2" "a link of 25.2 GB/s each:root=202"; do
    heading "GPUs of one host, ${way%:*}"
    described=$server,${way#*:}
    for name in 13B 70B; do
        for n in 1 2 4 8; do
            row $name $n 8 --seats $n
        done
    done
    echo
done
described=
heading "hosts x GPUs, network"
for name in 13B 70B; do
    for hosts in 2 16; do
        for gbit in 25 100; do
            row $name "${hosts}x4, $gbit Gbit/s" 8 --ranks $((hosts * 4)) --gpus-per-host 4 \
                --seats 4 --network ${gbit}Gbit/s
        done
    done
done
echo
heading "ranks, 4 a host, 100 Gbit/s"
for n in 4 8 16 32 64 128 256 512 1024; do
    row 13B $n 8 --ranks $n --gpus-per-host 4 --seats 4 --network 100Gbit/s
done
