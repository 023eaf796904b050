#!/bin/sh
# Two tables in Markdown of what `zinf estimate` plans for long sequences; nothing is trained and no
# weights are needed. First: one sequence of 1,048,576 tokens a step of models with 8B, 14B and 70B
# parameters, trained in full, as adapters over bf16 and as adapters over NF4, on one or eight cards.
# A cell has the time of a step, and GiB of device memory, RAM and the drive, of one rank. Then the
# same beside trainings that others have published. It takes some three minutes.
#
# Sources (as of November 2026):
#   ALST       arXiv 2506.13996: a LLaMA of 8B in full, 500 K tokens on one H100, 3.7 M on eight
#   TRL        huggingface.co/docs/trl, "Training Beyond 1M Tokens": Qwen3-8B in full on eight H100,
#              380 s a step, 56.2 GB a GPU
#   RoundPipe  ITcarrot/RoundPipe: README.md: 8B in full, 49 K tokens on a 4090
#   Unsloth    unsloth.ai, "long context": QLoRA of 8B, 78 K tokens in 24 GB
#
# usage: long_plans.sh [ZINF]
set -eu
zinf=${1:-./zinf}
case $zinf in /*) ;; *) zinf=$PWD/$zinf ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

model() { # name type hidden inner layers heads vocab
    mkdir "$1"
    cat >"$1/config.json" <<JSON
{"model_type": "$2", "hidden_size": $3, "intermediate_size": $4, "num_hidden_layers": $5,
 "num_attention_heads": $6, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": $7,
 "tie_word_embeddings": false, "max_position_embeddings": 4194304, "rms_norm_eps": 1e-5,
 "rope_theta": 5000000.0, "hidden_act": "silu"}
JSON
}
model 8B llama 4096 14336 32 32 128256
model 14B qwen3 5120 17408 40 40 151936
model 70B llama 8192 28672 80 64 128256
model Qwen3-8B qwen3 4096 12288 36 32 151936

nvme='"device": "nvme", "nvme_path": "/nvme"'
cat >config.json <<JSON
{"bf16": {"enabled": true}, "gradient_clipping": 1.0, "optimizer": {"type": "AdamW"},
 "zero_optimization": {"stage": 3, "offload_param": {$nvme}, "offload_optimizer": {$nvme}},
 "zinf": {"activation_device": "nvme"}}
JSON

# The hosts: a card with 64 GB of RAM and a drive; an H100 with an eighth of a server; eight of each.
options_of() {
    case $1 in
        4090) echo "--machine 4090,ram=64G,nvme=7/6,nvme-size=4TB" ;;
        H100) echo "--machine h100,ram=200G,nvme=7/6,nvme-size=8TB" ;;
        "8 x 4090") echo "--machine 4090,ram=512G,nvme=28/24,nvme-size=16TB $eight" ;;
        "8 x H100") echo "--machine h100,ram=1900G,nvme=28/24,nvme-size=30TB,peer=360 $eight" ;;
    esac
}
eight='--ranks 8 --context-parallel 8'
training_of() {
    case $1 in
        LoRA) echo "--lora-rank 16" ;;
        QLoRA) echo "--lora-rank 16 --quantize nf4" ;;
    esac
}

# The plan of a model, a training, a machine and a number of tokens, with a separator between.
plan() {
    # shellcheck disable=SC2046 # options are words
    if ! "$zinf" estimate --json --model "$1" --config config.json --seq-len "$4" \
        --micro-batch 1 --accumulate 1 --sequence-chunk 8192 $(options_of "$3") \
        $(training_of "$2") >out 2>err; then
        printf ' %s |' "$(head -n 1 err | cut -c 1-100)"
        return
    fi
    awk -v between="$5" '
        /"(device|host|drive|step_seconds|bottleneck)":/ {
            key = $1; gsub(/[":]/, "", key); gsub(/[",]/, "", $2)
            if (!(key in value) && (key == "bottleneck" || $2 + 0)) value[key] = $2 }
        END { gib = 2 ^ 30; s = value["step_seconds"] + 0
              time = s < 5400 ? sprintf("%.1f min", s / 60) : sprintf("%.2f h", s / 3600)
              if (value["bottleneck"] != "device") time = time " (" value["bottleneck"] ")"
              printf " %s%s%.1f, %.0f, %.0f |", time, between, value["device"] / gib,
                     value["host"] / gib, value["drive"] / gib }' out
}

echo '| model | training | 4090 | H100 | 8 x 4090 | 8 x H100 |'
echo '|---|---|---|---|---|---|'
for name in 8B 14B 70B; do
    for training in full LoRA QLoRA; do
        printf '| %s | %s |' "$name" "$training"
        for machine in 4090 H100 '8 x 4090' '8 x H100'; do
            plan "$name" "$training" "$machine" 1048576 ': '
        done
        echo
    done
done

row() { # model, training, machine, tokens, and what others have published
    printf '| %s | %s | %s | %s |' "$1" "$2" "$3" "$4"
    plan "$1" "$2" "$3" "$4" ' | '
    printf ' %s |\n' "$5"
}
echo
echo '| model | training | machine | tokens | a step | device, RAM, drive, GiB | published |'
echo '|---|---|---|---:|---:|---:|---|'
row 8B full H100 524288 'ALST: 500 K tokens, its longest'
row 8B full H100 4194304 ''
row 8B full '8 x H100' 3700000 'ALST: 3.7 M tokens, its longest'
row Qwen3-8B full '8 x H100' 1048576 'TRL: 380 s a step, 56.2 GB of device'
row 8B full 4090 49152 'RoundPipe: 49 K tokens, its longest'
row 8B QLoRA 4090 79872 'Unsloth: 78 K tokens, its longest'
row 8B QLoRA 4090 1048576 ''
