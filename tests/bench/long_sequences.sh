#!/bin/sh
# How near steps of long sequences come to what a drive allows, as the table of BENCHMARKS.md: LLaMA's
# form with 49 M parameters and everything on a drive of 0.5/0.4 GB/s, by the clock (zinf bench
# schedule). Nothing is computed and no drive is touched.
#
#   tests/bench/long_sequences.sh BUILD [SECONDS]
#
# SECONDS (default: 60): of a step by the clock; of the longest row more than twice as much, since it
# has thousands of transfers, and threads that wake late leave the drive idle between two of them.
# Beside much other work a low nice value keeps the figures from it.
zinf=${1:?usage: long_sequences.sh BUILD [SECONDS]}/zinf
seconds=${2:-60}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

model() { # folder, keys in front
    mkdir "$work/$1"
    cat >"$work/$1/config.json" <<END
{$2, "vocab_size": 16000, "hidden_size": 768, "intermediate_size": 2304, "head_dim": 64,
 "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
 "max_position_embeddings": 2097152, "initializer_range": 0.02, "rope_theta": 500000,
 "hidden_act": "silu", "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
 "torch_dtype": "bfloat16"}
END
}
model full '"architectures": ["LlamaForCausalLM"], "model_type": "llama"'
model windows '"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 1024'
cat >"$work/config.json" <<END
{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "gradient_clipping": 1000,
 "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/nvme"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}},
 "zinf": {"activation_device": "nvme", "activation_checkpointing": "always"}}
END

row() { # model, tokens, chunk, seconds
    "$zinf" bench schedule --model "$work/$1" --config "$work/config.json" --seq-len "$2" \
        --sequence-chunk "$3" --machine 4090,nvme=0.5/0.4 --device-memory 256MiB \
        --host-memory 1GiB --schedule prefetch --repeat 1 --seconds "$4" --json >"$work/said" || return
    awk -v row="$1 | $2 | $3" '
        /_seconds":/ { split($0, part, "\""); sub(/^:[ \t]*/, "", part[3])
                       value[part[2]] = part[3] + 0 }
        END { printf "| %s | %.2f | %.2f | %.2f | %.3f |\n", row, value["floor_seconds"],
              value["predicted_seconds"], value["step_seconds"],
              value["floor_seconds"] / value["step_seconds"] }' "$work/said"
}
echo "| attention | tokens | chunk | floor, s | predicted, s | step, s | floor / step |"
echo "|---|---:|---:|---:|---:|---:|---:|"
row full 32768 2048 "$seconds"
row full 32768 1024 "$seconds"
row windows 131072 2048 "$seconds"
row full 131072 2048 $((seconds * 13 / 6))
