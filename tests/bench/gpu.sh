#!/usr/bin/env bash
# All that a machine with a GPU can say about zinf's CUDA device, in about 10 minutes: the GPU's part
# of the test suite, the same under compute-sanitizer, the benches, losses against the host device
# and a second run, GPT-2 XL with and without offload at several batch sizes, and PyTorch beside it.
# Every phase has a time limit, goes on after a failure and leaves its files in RESULTS; the last
# lines are a summary. Status 1 if a phase failed.
#
# usage: gpu.sh BUILD RESULTS [PHASE...]
#   BUILD    a build folder with the CUDA module and `make check` programs, or a bundle of it
#            (scripts/bundle.sh)
#   RESULTS  a folder to write to; needs 10 GB for the models
#   PHASE    suite sanitizer bench losses xl torch (default: these); curve: xl at more batch sizes
#
#   PYTHON       with PyTorch, for the phase torch (default: python3)
#   SMALL        arguments of `zinf init` for the phase losses
#   XL           arguments of `zinf init` for the phases xl and torch (default: --size xl)
#   XL_SEQ, XL_MICRO, XL_TOKENS   1024, 16 and the tokens of a step, "16384 65536"
#   XL_DEVICE_MEMORY              24GiB
set -uo pipefail

[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
build=$(CDPATH='' cd -- "$1" && pwd) || exit 2
mkdir -p -- "$2" && results=$(CDPATH='' cd -- "$2" && pwd) || exit 2
shift 2
[ $# -gt 0 ] || set -- suite sanitizer bench losses xl torch
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
xl_seq=${XL_SEQ:-1024} xl_micro=${XL_MICRO:-16}
xl_tokens=${XL_TOKENS:-16384 65536}
xl_memory=${XL_DEVICE_MEMORY:-24GiB}
zinf=$build/zinf
[ ! -d "$build/lib" ] || export LD_LIBRARY_PATH="$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
for module in "${ZINF_CUDA_MODULE:-}" "$build/.libs/zinf-cuda.so" "$build/zinf-cuda.so"; do
    [ -z "$module" ] || [ ! -f "$module" ] || break
done
export ZINF_CUDA_MODULE=$module BUILDDIR=$results/work SRCDIR=${SRCDIR:-$here/../..}
export XDG_CACHE_HOME=$results/cache
mkdir -p "$BUILDDIR/tests"
failed=

say() { printf '\n== %s (%s)\n' "$*" "$(date -u +%T)" | tee -a "$results/summary.txt"; }
note() { printf '%s\n' "$*" | tee -a "$results/summary.txt"; }
fail() { note "FAILED: $*"; failed=1; }

: >"$results/summary.txt"
{
    date -u
    nvidia-smi 2>&1 | head -n 20
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw,power.limit \
        --format=csv 2>&1
    lscpu | sed -n '/Model name/p;/^CPU(s)/p'
    "$zinf" report 2>&1
} >"$results/machine.txt"
grep -h '^cuda' "$results/machine.txt" | tee -a "$results/summary.txt"
if grep -q '^cuda  *not used' "$results/machine.txt"; then
    note "there is no GPU to check"
    exit 1
fi

# ---- the suite ----

suite() {
    local test log n
    for test in "$build"/tests/cuda_*_test; do
        case $test in *cuda_standin_*) continue ;; esac
        log=$results/suite-$(basename "$test").txt
        timeout 60 "$test" >"$log" 2>&1 || fail "$(basename "$test") (see $log)"
        n=$(grep -c '^ok' "$log")
        note "$(basename "$test"): $n ok, $(grep -c '^not ok' "$log") not, $(grep -c '# SKIP' "$log") skipped"
    done
}

sanitizer() {
    local tool test log
    if ! command -v compute-sanitizer >/dev/null; then
        note "compute-sanitizer is not here"
        return
    fi
    for tool in memcheck racecheck initcheck; do
        for test in update rows elementwise attention; do
            [ $tool != initcheck ] || [ $test != attention ] || continue
            log=$results/sanitizer-$tool-$test.txt
            timeout 25 compute-sanitizer --tool "$tool" --error-exitcode 9 \
                "$build/tests/cuda_${test}_test" >"$log" 2>&1
            case $? in
            0) note "$tool, $test: clean" ;;
            124) note "$tool, $test: not done after 25 s" ;;
            *) fail "$tool, $test (see $log)" ;;
            esac
        done
    done
}

bench() {
    local log=$results/bench.txt
    {
        timeout 60 "$zinf" bench pcie
        timeout 60 "$zinf" bench gemm --device cuda --type bf16
        timeout 60 "$zinf" bench gemm --device cuda --type fp16
        ZINF_CUDA_TF32=1 timeout 60 "$zinf" bench gemm --device cuda --type fp32
        timeout 60 "$zinf" bench attention --device cuda
        timeout 60 "$zinf" bench attention --device cuda --batch 4 --seq 4096 --head-dim 128 --heads 16
    } >"$log" 2>&1 || fail "bench (see $log)"
    cat "$log" >>"$results/summary.txt"
}

# ---- trainings ----

# A training of FOLDER's model; its log is in FOLDER/NAME. Usage: train FOLDER NAME CONFIG LIMIT ...
train() {
    local folder=$1 name=$2 config=$3 limit=$4
    shift 4
    rm -rf "${folder:?}/$name"
    printf '%s\n' "$config" >"$folder/$name.json"
    timeout "$limit" "$zinf" train --model "$folder/model" --data "$results/text.txt" \
        --config "$folder/$name.json" --log "$folder/$name.jsonl" --progress none --dropout 0 \
        --output "$folder/$name" "$@" >"$folder/$name.txt" 2>&1
    local status=$?
    rm -rf "${folder:?}/$name"
    return $status
}

config_of() { # places of parameters and optimizer, micro-batch, accumulation
    printf '{"train_micro_batch_size_per_gpu": %s, "gradient_accumulation_steps": %s,
"gradient_clipping": 1.0, "bf16": {"enabled": true},
"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}},
"zero_optimization": {"stage": 3, "offload_param": {"device": "%s"},
"offload_optimizer": {"device": "%s"}}}' "$3" "$4" "$1" "$2"
}

number() { sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" "$2"; }

make_text() {
    [ -s "$results/text.txt" ] ||
        awk 'BEGIN { srand(1); for (i = 0; i < 400000; i++) printf "%c%s", 97 + int(rand() * 26),
            i % 7 ? "" : i % 91 ? " " : "\n" }' >"$results/text.txt"
}

# 50 steps of a small model in bf16: the GPU twice, offloaded, and the host.
losses() {
    local folder=$results/losses name
    mkdir -p "$folder"
    make_text
    # shellcheck disable=SC2086
    "$zinf" init --arch gpt2 ${SMALL:---layers 4 --hidden 256 --heads 4 --vocab 1000 --context 256} \
        --output "$folder/model" >"$folder/init.txt" 2>&1 || { fail "losses: init"; return; }
    set -- --steps "${LOSS_STEPS:-50}" --seq-len 64
    train "$folder" cuda "$(config_of none none 4 1)" 60 --device cuda "$@" || fail "losses: cuda"
    train "$folder" again "$(config_of none none 4 1)" 60 --device cuda "$@" || fail "losses: again"
    train "$folder" offload "$(config_of cpu cpu 4 1)" 60 --device cuda "$@" || fail "losses: offload"
    train "$folder" host "$(config_of none none 4 1)" 100 --device host "$@" || fail "losses: host"
    for name in cuda again offload host; do
        number loss "$folder/$name.jsonl" >"$folder/$name.losses"
    done
    cmp -s "$folder/cuda.losses" "$folder/again.losses" || fail "two runs on the GPU differ"
    cmp -s "$folder/cuda.losses" "$folder/offload.losses" || fail "offload changes the losses"
    paste "$folder/cuda.losses" "$folder/host.losses" | awk '
        { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > most) most = d }
        END { printf "%d steps, largest distance from the host device: %.2g (bf16: 2^-8 = %.2g)\n",
                  NR, most, 2 ^ -8; exit !(NR && most <= 2 ^ -8) }' |
        tee -a "$results/summary.txt" || fail "losses leave the host device's"
}

# Tokens a second of the steps but the first two: one is measured serially, one fills lanes.
rate() {
    sed 1,2d "$1" | sed -n 's/.*"tokens_per_second": \([0-9.e+]*\).*/\1/p' | sort -n |
        awk '{ x[NR] = $1 } END { if (NR) printf "%.0f", x[int((NR + 1) / 2)]; else printf "0" }'
}

make_xl() {
    mkdir -p "$results/xl"
    # shellcheck disable=SC2086
    [ -s "$results/xl/model/config.json" ] ||
        "$zinf" init --arch gpt2 ${XL:---size xl} --dtype bf16 --output "$results/xl/model" \
            >"$results/xl/init.txt" 2>&1 || { fail "xl: init"; return 1; }
}

xl() {
    local folder=$results/xl tokens micro accumulate way places memory
    make_text
    make_xl || return
    for tokens in ${1:-$xl_tokens}; do
        micro=$((tokens / xl_seq < xl_micro ? tokens / xl_seq : xl_micro))
        accumulate=$((tokens / (micro * xl_seq)))
        for way in "offload cpu cpu $xl_memory" "resident none none 0"; do
            # shellcheck disable=SC2086
            set -- $way
            places="$2 $3" memory=$4
            name=$1-$tokens
            set -- --steps 5 --seq-len "$xl_seq" --device cuda
            [ "$memory" = 0 ] || set -- "$@" --device-memory "$memory"
            # shellcheck disable=SC2086
            train "$folder" "$name" "$(config_of $places $micro $accumulate)" \
                "${XL_LIMIT:-75}" "$@" || fail "xl: $name (see $folder/$name.txt)"
            note "$name: $(rate "$folder/$name.jsonl") tokens/s"
        done
    done
}

curve() {
    xl "4096 262144"
}

torch() {
    make_xl || return
    # shellcheck disable=SC2086
    timeout 120 "$python" "$here/torch_gpt2_gpu.py" --model "$results/xl/model/config.json" \
        --seq-len "$xl_seq" --micro-batch "$xl_micro" --compile \
        >"$results/torch.json" 2>"$results/torch.txt" || fail "torch (see $results/torch.txt)"
    cat "$results/torch.json" >>"$results/summary.txt"
}

for phase; do
    case $phase in
    suite | sanitizer | bench | losses | xl | curve | torch)
        say "$phase"
        "$phase"
        ;;
    *) fail "unknown phase $phase" ;;
    esac
done
say "done"
rm -rf "$results/xl/model" "$BUILDDIR"
[ -z "$failed" ]
