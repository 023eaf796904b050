#!/bin/sh
# zinf estimate: from a config.json alone; its bytes are those of the training's own plan; what is
# said of drives, of a GPU that is not here, and of what does not fit.
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/drive" "$work/shape"
estimate() { # status, arguments...
    status=$1
    shift
    run "$status" "$zinf" estimate "$@"
}

"$zinf" init --arch gpt2 --size small --layers 3 --hidden 96 --heads 3 --tokenizer bytes --vocab 300 --context 64 \
    --output "$work/model" >/dev/null 2>&1 || exit 99
cp "$work/model/config.json" "$work/shape/config.json"
cat >"$work/nvme.json" <<END
{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "bf16": {"enabled": true}, "gradient_clipping": 1.0, "zero_optimization": {"stage": 3,
  "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "exact"}}
END
make_text "$work/text" 400

text() {
    estimate 0 --model "$work/shape" --config "$work/nvme.json" --seq-len 32 &&
        says "sub-groups under way" "limited by" "TBW last" "1 GiB more host memory" \
            "a second drive" "assumed: zinf bench gemm measures it" && [ -z "$(ls "$work/drive")" ]
}
json() {
    estimate 0 --model "$work/shape/config.json" --config "$work/nvme.json" --seq-len 32 --json &&
        says '"peak_bytes"' '"drive_life_days"' '"bottleneck"' '"changes"'
}
# The training prints what it planned on device and host; it holds more of the process by then.
same_bytes() {
    estimate 0 --model "$work/shape" --config "$work/nvme.json" --seq-len 32 --threads 1 \
        --host-memory 100MiB --device-memory 20MiB --json || return 1
    device=$(sed -n 's/^.*"device":[[:space:]]*\([0-9]\{3,\}\).*/\1/p' \
        "$work/said.out" | head -n 1)
    host=$(sed -n 's/^.*"host":[[:space:]]*\([0-9]\{3,\}\).*/\1/p' "$work/said.out" | head -n 1)
    "$zinf" train --model "$work/model" --data "$work/text" --config "$work/nvme.json" \
        --seq-len 32 --steps 2 --host-memory 100MiB --device-memory 20MiB --threads 1 \
        --output "$work/run" --progress none >"$work/run.out" 2>"$work/said.err" || return 1
    planned=$(sed -n 's/.*"planned_bytes": \([0-9]*\).*/\1/p' "$work/run.out")
    echo "# estimated $((device + host)) bytes, planned $planned"
    [ $((20 * (device + host))) -gt $((19 * planned)) ] &&
        [ $((20 * (device + host))) -lt $((21 * planned)) ]
}
measured() {
    estimate 0 --model "$work/shape" --config "$work/nvme.json" --seq-len 32 --measure \
        --trace "$work/trace.json" && says "measured just now" "among themselves" &&
        holds "$work/trace.json" '"ph":"X"' "forward block.1" && [ -z "$(ls "$work/drive")" ]
}
too_small() {
    estimate 1 --model "$work/shape" --config "$work/nvme.json" --device-memory 1MiB &&
        complains "zinf.device_memory" "does not fit"
}
gpu() {
    ZINF_CUDA_MODULE=$work/none.so estimate 1 --model "$work/shape" --device cuda &&
        complains "--device-memory" &&
        ZINF_CUDA_MODULE=$work/none.so estimate 0 --model "$work/shape" --device cuda \
            --config "$work/nvme.json" --device-memory 24GiB && says "not here"
}
# What a configuration leaves open follows from what zinf bench measured.
searched() {
    mkdir -p "$work/xl" "$work/cache/zinf"
    cat >"$work/xl/config.json" <<END
{"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024,
 "vocab_size": 50257, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
END
    sed 's/nvme/cpu/; s/"train_micro_batch_size_per_gpu": 2/"train_micro_batch_size_per_gpu": 16,\
        "gradient_accumulation_steps": 16/' "$work/nvme.json" | sed 's/"nvme"/"cpu"/' >"$work/cpu.json"
    for link in 5e10 1e9; do
        echo "{\"optim\": {\"AdamW/split\": {\"bytes\": 1e11}}, \"gemm\": {\"cuda/bf16\": {\"flops\": 6e14}},
            \"pcie\": {\"pinned\": {\"both\": $link}}}" >"$work/cache/zinf/bench.json"
        XDG_CACHE_HOME=$work/cache ZINF_CUDA_MODULE=$work/none.so estimate 0 --model "$work/xl" \
            --device cuda --device-memory 24GiB --host-memory 100GiB --config "$work/cpu.json" &&
            case $link in
            5e10) says "16 micro-batches, one after the other" ;;
            1e9) says "16 micro-batches, all through a layer" ;;
            esac || return 1
    done
}
refused() {
    estimate 2 --config "$work/nvme.json" && complains "--model" &&
        estimate 1 --model "$work/shape" --config "$work/none.json" && complains "none.json"
}
# A host's figures say nothing of a GPU.
other_device() {
    mkdir -p "$work/cache/zinf"
    estimate 0 --model "$work/shape" --device cuda --device-memory 24GiB --config "$work/nvme.json" \
        --json && before=$(grep step_seconds "$work/said.out" | head -n 1)
    "$zinf" bench gemm --device host --type bf16 --threads 1 >/dev/null 2>&1 || return 1
    estimate 0 --model "$work/shape" --device cuda --device-memory 24GiB --config "$work/nvme.json" \
        --json && [ "$before" = "$(grep step_seconds "$work/said.out" | head -n 1)" ] || return 1
    estimate 0 --model "$work/shape" --device host --config "$work/nvme.json" \
        --threads 1 && says "GFLOP/s: zinf bench gemm, 20"
    status=$?
    rm -f "$work/cache/zinf/bench.json"
    return $status
}
whole_training() {
    estimate 0 --model "$work/shape" --config "$work/nvme.json" --tokens 1e9 --lr 1e-3 --steps 5 &&
        says "training     1e+09 tokens: " "TB written" "drive room" "needed, "
}
# What --task and --pack say counts as in a training of the same options: all lines of the device.
as_trained() { # data, options of both...
    data=$1
    shift
    set -- --seq-len 32 --micro-batch 2 --threads 1 --device-memory 64MiB --device host "$@"
    estimate 0 --model "$work/shape" "$@" && grep '^  device ' "$work/said.out" >"$work/lines" &&
        "$zinf" train --model "$work/model" --data "$data" --steps 1 --output "$work/tasks" \
            --overwrite --progress none --no-final-checkpoint "$@" >/dev/null 2>"$work/said.err" &&
        grep '^  device ' "$work/tasks/ledger.txt" | diff - "$work/lines"
}
printf 'text\tlabel\nsome words\tgood\nother words\tbad\n' >"$work/classes.tsv"
printf '{"prompt": "some", "completion": "words"}\n%.0s' 1 2 >"$work/rows.jsonl"
printf '{"prompt": "a", "chosen": "b", "rejected": "c"}\n%.0s' 1 2 >"$work/pairs.jsonl"
printf 'anchor\tpositive\nsome\twords\nother\twords\n' >"$work/texts.tsv"
# Wrong tasks are refused as a training refuses them.
of_a_task() {
    estimate 1 --model "$work/shape" --task seq2seq && complains "reads no source" &&
        estimate 1 --model "$work/shape" --task classification --pack && complains "not packed"
}
check "a host's rate is not a GPU's" other_device
check "--task classification" as_trained "$work/classes.tsv" --task classification
check "--task reward" as_trained "$work/pairs.jsonl" --task reward
check "--task preference" as_trained "$work/pairs.jsonl" --task preference --lora-rank 2
check "--task embedding" as_trained "$work/texts.tsv" --task embedding
check "--pack and --pad-to" as_trained "$work/rows.jsonl" --pack --pad-to max
check "a task that the model is not for" of_a_task
check "a whole training, and the drive's room" whole_training
check "text from a config.json alone" text
check "JSON" json
if [ -n "${ZINF_SANITIZER-}" ]; then
    skip "bytes are those of the training" "a sanitizer takes memory of its own"
else
    check "bytes are those of the training" same_bytes
fi
check "measured on a drive, which is left empty" measured
check "a plan that does not fit" too_small
check "a GPU that is not here" gpu
check "the order of micro-batches by measured speeds" searched
check "refusals" refused
finish
