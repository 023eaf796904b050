#!/bin/sh
# zinf estimate: from a config.json alone; its bytes are those of the training's own plan; what is
# said of drives, of a GPU that is not here, and of what does not fit.
zinf=$BUILDDIR/zinf
work=$(mktemp -d "$BUILDDIR/estimate_test.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
mkdir "$work/drive" "$work/shape"
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
n=0
failed=0
check() { # name, command...
    n=$((n + 1))
    name=$1
    shift
    if "$@"; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        failed=1
        sed 's/^/# /' "$work/out" "$work/err"
    fi
}
estimate() { # status, arguments...
    status=$1
    shift
    "$zinf" estimate "$@" >"$work/out" 2>"$work/err"
    [ $? -eq "$status" ]
}
has() { # file, words...
    file=$1
    shift
    for words; do grep -qF -e "$words" "$file" || { echo "# no '$words' in $file"; return 1; }; done
}

"$zinf" init --arch gpt2 --size small --layers 3 --hidden 96 --heads 3 --vocab 300 --context 64 \
    --output "$work/model" >/dev/null 2>&1 || exit 99
cp "$work/model/config.json" "$work/shape/config.json"
cat >"$work/nvme.json" <<END
{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "bf16": {"enabled": true}, "gradient_clipping": 1.0, "zero_optimization": {"stage": 3,
  "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}}}
END
i=0
while [ $i -lt 400 ]; do echo "the same words again and again $i"; i=$((i + 1)); done >"$work/text"

text() {
    estimate 0 --model "$work/shape" --config "$work/nvme.json" --seq-len 32 &&
        has "$work/out" "sub-groups under way" "limited by" "TBW last" "1 GiB more host memory" \
            "a second drive" "stated defaults" && [ -z "$(ls "$work/drive")" ]
}
json() {
    estimate 0 --model "$work/shape/config.json" --config "$work/nvme.json" --seq-len 32 --json &&
        has "$work/out" '"peak_bytes"' '"drive_life_days"' '"bottleneck"' '"changes"'
}
# The training prints what it planned on device and host; it holds more of the process by then.
same_bytes() {
    estimate 0 --model "$work/shape" --config "$work/nvme.json" --seq-len 32 --threads 1 \
        --host-memory 100MiB --device-memory 20MiB --json || return 1
    device=$(sed -n 's/^.*"device":[[:space:]]*\([0-9]\{3,\}\).*/\1/p' \
        "$work/out" | head -n 1)
    host=$(sed -n 's/^.*"host":[[:space:]]*\([0-9]\{3,\}\).*/\1/p' "$work/out" | head -n 1)
    "$zinf" train --model "$work/model" --data "$work/text" --config "$work/nvme.json" \
        --seq-len 32 --steps 2 --host-memory 100MiB --device-memory 20MiB --threads 1 \
        --output "$work/run" --progress none >"$work/run.out" 2>"$work/err" || return 1
    planned=$(sed -n 's/.*"planned_bytes": \([0-9]*\).*/\1/p' "$work/run.out")
    echo "# estimated $((device + host)) bytes, planned $planned"
    [ $((20 * (device + host))) -gt $((19 * planned)) ] &&
        [ $((20 * (device + host))) -lt $((21 * planned)) ]
}
measured() {
    estimate 0 --model "$work/shape" --config "$work/nvme.json" --seq-len 32 --measure \
        --trace "$work/trace.json" && has "$work/out" "measured just now" "among themselves" &&
        has "$work/trace.json" '"ph":"X"' "forward block.1" && [ -z "$(ls "$work/drive")" ]
}
too_small() {
    estimate 1 --model "$work/shape" --config "$work/nvme.json" --device-memory 1MiB &&
        has "$work/err" "zinf.device_memory" "does not fit"
}
gpu() {
    ZINF_CUDA_MODULE=$work/none.so estimate 1 --model "$work/shape" --device cuda &&
        has "$work/err" "--device-memory" &&
        ZINF_CUDA_MODULE=$work/none.so estimate 0 --model "$work/shape" --device cuda \
            --config "$work/nvme.json" --device-memory 24GiB && has "$work/out" "not here"
}
refused() {
    estimate 2 --config "$work/nvme.json" && has "$work/err" "--model" &&
        estimate 1 --model "$work/shape" --config "$work/none.json" && has "$work/err" "none.json"
}
check "text from a config.json alone" text
check "JSON" json
check "bytes are those of the training" same_bytes
check "measured on a drive, which is left empty" measured
check "a plan that does not fit" too_small
check "a GPU that is not here" gpu
check "refusals" refused
echo "1..$n"
exit $failed
