#!/usr/bin/env bash
# All that a machine with a GPU can say about zinf's CUDA device: `zinf doctor`, losses against the
# host device and a second run, rates of products, attention and copies, GPT-2 XL with and without
# offload, the GPU's part of the test suite, its small tests under compute-sanitizer, PyTorch beside
# it, training from a drive, layers of a 7B model in bf16 and in 4 bits, and times by kernel. A phase goes on after a failure; a
# command ends at its own limit or at that of all, and what is left then is left out and said: the
# phases come in the order of what is most worth knowing, and a second call can be given the rest.
# RESULTS has summary.txt, which also goes to standard output, results.json with every figure, and all
# logs in logs.tar.gz, whatever second this is ended at. Status 1 if a phase failed.
#
# usage: gpu.sh [--dry-run] BUILD RESULTS [PHASE...]
#   --dry-run  every phase with the smallest models, on the stand-in for CUDA of tests/cuda_standin:
#              that all commands are ones that zinf has
#   BUILD      a build folder with the CUDA module and `make check` programs, or a bundle of it
#              (scripts/bundle.sh)
#   RESULTS    a folder to write to
#   PHASE      doctor losses bench suite xl sanitizer torch drive wide times xl-long compile (default:
#              these); curve: xl at more batch sizes
#
#   SECONDS_LEFT for all phases together (default: 540)
#   WORK         where a folder of 20 GB for models, logs and a drive's files is made and removed
#                (default: the first of TMPDIR, /tmp, /var/tmp, RESULTS and HOME that is on a drive)
#   PYTHON       with PyTorch, for the phases torch and compile (default: python3)
#   SMALL, XL, DRIVE, WIDE, WIDEST   arguments of `zinf init` for the models of losses, xl, drive, wide
#   XL_SEQ, XL_MICRO, XL_TOKENS      1024, 16 and the tokens of a step of xl and xl-long: 16384 65536
#   XL_DEVICE_MEMORY, XL_HOST_MEMORY   20GiB, 30GiB
#   SUITE_LIMIT, SUITE_SECONDS   seconds for a program of the suite, and for all of them: 60, 150
#   SANITIZER_SECONDS            for all that is run under compute-sanitizer: 120
#   DOCTOR_LIMIT                 seconds for `zinf doctor`, which is to take 10: 60
#   INTERPRETER  a folder with what takes the place of CUDA's libraries (tests/ptx)
set -uo pipefail
dry=
[ "${1:-}" != --dry-run ] || { dry=1 && shift; }
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
build=$(CDPATH='' cd -- "$1" && pwd) || exit 2
mkdir -p -- "$2" && results=$(CDPATH='' cd -- "$2" && pwd) || exit 2
shift 2
phases="doctor losses bench suite xl sanitizer torch drive wide times xl-long compile curve"
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- ${phases% curve}
if [ "$dry" ]; then
    tiny="--layers 2 --hidden 32 --heads 2 --vocab 257 --context 32"
    small=${SMALL:-$tiny} xl=${XL:-$tiny} drive=${DRIVE:-$tiny} wide=${WIDE:-$tiny} widest=${WIDEST:-$tiny}
    xl_seq=16 xl_micro=2 xl_tokens="32 64" loss_seq=16 loss_steps=4 steps=4
    xl_memory=64MiB xl_host=1GiB
    drive_bench="--size 4MiB --seconds 0.02 --block-size 256KiB --queue-depth 4 --read"
    gemms="16x16x16" heads="--batch 1 --seq 16 --heads 2 --head-dim 16" pcie="--size 1MiB"
else
    small=${SMALL:---layers 4 --hidden 256 --heads 4 --vocab 1000 --context 256}
    xl=${XL:---size xl --vocab 50257} drive=${DRIVE:---size xl --vocab 50257 --layers 16}
    wide=${WIDE:---size 7b --layers 4} widest=${WIDEST:---size 70b --layers 1}
    xl_seq=${XL_SEQ:-1024} xl_micro=${XL_MICRO:-16} xl_tokens=${XL_TOKENS:-16384 65536}
    loss_seq=64 loss_steps=${LOSS_STEPS:-50} steps=5
    xl_memory=${XL_DEVICE_MEMORY:-20GiB} xl_host=${XL_HOST_MEMORY:-30GiB}
    drive_bench="--size 4GiB --seconds 1"
    # XL's block and its head, whose last tile has an odd number of rows; 7B's block; 70B's.
    gemms="16384x1600x6400 16384x6400x1600 1024x16768x1600 1024x16721x1600 1024x16720x1600
           2048x4096x11008 2048x8192x28672"
    heads="--batch 4 --seq 4096 --head-dim 128 --heads 16" pcie=
fi
# shellcheck source=tests/bench/gpu_common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/gpu_common.sh"

# ---- rates ----

bench() {
    local shape
    # shellcheck disable=SC2086
    bench_one pcie $pcie
    [ "$dry" ] || bench_one gemm --device cuda --type bf16
    for shape in $gemms; do
        # shellcheck disable=SC2086
        set -- ${shape//x/ }
        bench_one gemm --device cuda --type bf16 --m "$1" --n "$2" --k "$3"
    done
    [ "$dry" ] || ZINF_CUDA_TF32=1 bench_one gemm --device cuda --type fp32
    [ "$dry" ] || bench_one attention --device cuda
    # shellcheck disable=SC2086
    bench_one attention --device cuda $heads
}

# ---- tests ----

suite() {
    local test log n bad skipped until=$((SECONDS + ${SUITE_SECONDS:-150}))
    for test in "$build"/tests/cuda/cuda_*_test; do
        case $test in *cuda_standin_*) continue ;; esac
        [ -x "$test" ] || continue
        ! is_late "$(basename "$test")" || continue
        if [ $SECONDS -ge $until ]; then # the other phases are to have their time
            fail "$(basename "$test"): left out, the suite has had its time"
            continue
        fi
        log=$logs/suite-$(basename "$test").txt
        limited "${SUITE_LIMIT:-60}" "${ours[@]}" "$test" >"$log" 2>&1 || fail "$(basename "$test") (see ${log##*/})"
        n=$(grep -c '^ok' "$log")
        bad=$(grep -c '^not ok' "$log") skipped=$(grep -c '# SKIP' "$log")
        # In this order: who reads the line and ends the script finds the figure kept.
        fact "suite $(basename "$test")" "{\"ok\": $n, \"not_ok\": $bad, \"skipped\": $skipped}"
        note "$(basename "$test"): $n ok, $bad not, $skipped skipped"
    done
}

# Under one of compute-sanitizer's tools: `zinf doctor`, which runs every kernel in one process, or a
# program of the suite.
sanitize() { # tool, doctor or a program's name
    local tool=$1 name=$2 log=$logs/sanitizer-$1-$2.txt most=25 status
    if [ "$name" = doctor ]; then
        most=60
        set -- "${zinf[@]}" doctor
    else
        set -- "${ours[@]}" "$build/tests/cuda/cuda_${name}_test"
    fi
    limited $most compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" >"$log" 2>&1
    status=$?
    case $status in
    0)
        note "$tool, $name: clean"
        fact "$tool $name" '"clean"'
        ;;
    124) note "$tool, $name: not done after its time" ;;
    *) fail "$tool, $name: status $status (see ${log##*/})" ;;
    esac
}
sanitizer() {
    local tool name until=$((SECONDS + ${SANITIZER_SECONDS:-120}))
    if ! command -v compute-sanitizer >/dev/null; then
        note "compute-sanitizer is not here: it comes with the CUDA toolkit (cuda-sanitizer-*)"
        return
    fi
    for name in doctor rows recurrent attention update elementwise quantized route; do
        for tool in memcheck racecheck initcheck synccheck; do
            [ $tool != initcheck ] || [ $name != attention ] || continue
            [ $name = doctor ] || [ -x "$build/tests/cuda/cuda_${name}_test" ] || continue
            ! is_late "$tool, $name" || continue
            if [ $SECONDS -ge $until ]; then
                note "$tool, $name: left out, the sanitizer has had its time"
            else
                sanitize $tool $name
            fi
        done
    done
}

# ---- trainings ----

# 50 steps of a small model in bf16: the GPU twice, offloaded, and the host.
losses() {
    local folder=$logs/losses name
    # shellcheck disable=SC2086
    make_model losses --arch gpt2 $small || return
    set -- --steps "$loss_steps" --seq-len "$loss_seq"
    train "$folder" cuda "$(config_of none none 4 1)" 60 "$@" || fail "losses: cuda"
    train "$folder" again "$(config_of none none 4 1)" 60 "$@" || fail "losses: again"
    train "$folder" offload "$(config_of cpu cpu 4 1)" 60 "$@" || fail "losses: offload"
    train "$folder" host "$(config_of none none 4 1)" 100 "$@" --device host || fail "losses: host"
    for name in cuda again offload host; do
        [ ! -f "$folder/$name.jsonl" ] || number loss "$folder/$name.jsonl" >"$folder/$name.losses"
    done
    cmp -s "$folder/cuda.losses" "$folder/again.losses" || fail "two runs on the GPU differ"
    cmp -s "$folder/cuda.losses" "$folder/offload.losses" || fail "offload changes the losses"
    paste "$folder/cuda.losses" "$folder/host.losses" | awk '
        { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > most) most = d }
        END { printf "%d steps, largest distance from the host device: %.2g (bf16: 2^-8 = %.2g)\n",
                  NR, most, 2 ^ -8; exit !(NR && most <= 2 ^ -8) }' >"$folder/distance.txt" ||
        fail "losses leave the host device's"
    tee -a "$summary" <"$folder/distance.txt"
    fact losses "$(quoted "$(cat "$folder/distance.txt")")"
}

xl_of() { # tokens of a step
    local folder=$logs/xl tokens=$1 micro accumulate way name
    # shellcheck disable=SC2086
    make_model xl --arch gpt2 $xl --dtype bf16 || return
    micro=$((tokens / xl_seq < xl_micro ? tokens / xl_seq : xl_micro))
    accumulate=$((tokens / (micro * xl_seq)))
    for way in "resident none none 0" "offload cpu cpu $xl_memory"; do
        # shellcheck disable=SC2086
        set -- $way
        name=$1-$tokens
        ! is_late "$name" || continue
        if [ "$4" = 0 ]; then
            train "$folder" "$name" "$(config_of "$2" "$3" $micro $accumulate "$xl_host")" \
                "${XL_LIMIT:-75}" --steps 8 --seq-len "$xl_seq" || fail "xl: $name (see xl/$name.txt)"
        else
            train "$folder" "$name" "$(config_of "$2" "$3" $micro $accumulate "$xl_host")" \
                "${XL_LIMIT:-75}" --steps $steps --seq-len "$xl_seq" --device-memory "$4" ||
                fail "xl: $name (see xl/$name.txt)"
        fi
        tell_rate "$folder" "$name"
    done
}
xl() { xl_of "${xl_tokens%% *}"; }
xl_long() { xl_of "${xl_tokens##* }"; }
curve() {
    local tokens
    for tokens in 4096 262144; do xl_of $tokens; done
}

# All of the model and its state on a drive, beside what the drive does alone.
drive() {
    local folder=$logs/drive
    # shellcheck disable=SC2086
    make_model drive --arch gpt2 $drive --dtype bf16 || return
    # shellcheck disable=SC2086
    bench_one nvme --path "$work" $drive_bench
    train "$folder" drive "$(config_of nvme nvme "$xl_micro" 1 "$xl_host")" 120 \
        --steps $steps --seq-len "$xl_seq" --device-memory "$xl_memory" || fail "drive (see drive/drive.txt)"
    tell_rate "$folder" drive
}

# Heads of 128 and layers of the width of a 7B model, all trained and as adapters of 4-bit weights; a
# layer of a 70B model in 4 bits.
wide() {
    local name
    # shellcheck disable=SC2086
    make_model wide --arch llama $wide --dtype bf16 || return
    train "$logs/wide" wide "$(config_of none none 1 1 "$xl_host")" 75 --steps $steps \
        --seq-len $((2 * xl_seq)) || fail "wide (see wide/wide.txt)"
    tell_rate "$logs/wide" wide
    train "$logs/wide" wide-nf4 "$(config_of none none 1 4 "$xl_host")" 75 --steps $steps \
        --seq-len $((2 * xl_seq)) --quantize nf4 --lora-rank 8 || fail "wide-nf4 (see wide/wide-nf4.txt)"
    tell_rate "$logs/wide" wide-nf4
    ! is_late widest || return
    # shellcheck disable=SC2086
    make_model widest --arch llama $widest --dtype bf16 || return
    train "$logs/widest" widest-nf4 "$(config_of none none 1 4 "$xl_host")" 75 --steps $steps \
        --seq-len $((2 * xl_seq)) --quantize nf4 --lora-rank 8 || fail "widest-nf4 (see widest/widest-nf4.txt)"
    tell_rate "$logs/widest" widest-nf4
}

# Where a step's time goes on the GPU: XL's width and two layers, each kernel's sum and how often.
times() {
    local folder=$logs/times
    # shellcheck disable=SC2086
    make_model times --arch gpt2 $xl --layers 2 --dtype bf16 || return
    if [ -z "$dry" ] && ! command -v ncu >/dev/null; then
        note "ncu is not here: no times by kernel"
        return
    fi
    [ "$dry" ] || launch=(ncu --clock-control none --target-processes all --csv --log-file
        "$folder/ncu.csv" --metrics gpu__time_duration.sum)
    train "$folder" times "$(config_of none none "$xl_micro" 1 "$xl_host")" 75 --steps 2 \
        --seq-len "$xl_seq" || fail "times (see times/times.txt)"
    launch=()
    [ "$dry" ] || sed 's/^"//; s/"$//' "$folder/ncu.csv" | awk -F '","' '
        /Kernel Name/ { for (i = 1; i <= NF; i++) { if ($i == "Kernel Name") name = i
            if ($i == "Metric Value") value = i; if ($i == "Metric Unit") unit = i } next }
        name && NF >= value { ns = $value; gsub(",", "", ns)
            if ($unit ~ /^us/) ns *= 1e3; if ($unit ~ /^ms/) ns *= 1e6
            sub(/\(.*/, "", $name); sum[$name] += ns; n[$name]++; all += ns }
        END { for (k in sum) printf "%10.3f ms %5.1f %% %6d  %s\n", sum[k] * 1e-6, 100 * sum[k] / all,
            n[k], k }' | sort -rn >"$folder/kernels.txt"
    [ "$dry" ] || { head -n 40 "$folder/kernels.txt" | tee -a "$summary"
        fact times "$(quoted "$(head -n 40 "$folder/kernels.txt")")"; }
}

# ---- PyTorch ----

# It says after each step what it has found so far: the last line counts.
torch_with() { # name, options of torch_gpt2_gpu.py
    local name=$1
    shift
    # shellcheck disable=SC2086
    make_model xl --arch gpt2 $xl --dtype bf16 || return
    if [ "$dry" ]; then
        "$python" -c 'import torch' 2>/dev/null || { note "no PyTorch here"; return; }
        set -- "$@" --device cpu --steps 1 --warmup 1
    fi
    limited 150 "$python" "$here/torch_gpt2_gpu.py" --model "$logs/xl/model/config.json" \
        --seq-len "$xl_seq" --micro-batch "$xl_micro" "$@" \
        >"$logs/$name.json" 2>"$logs/$name.txt" || fail "$name (see $name.txt)"
    tail -n 1 "$logs/$name.json" | tee -a "$summary"
    fact "$name" "$(tail -n 1 "$logs/$name.json" | grep . || echo null)"
}
torch() { torch_with torch; }
compile() {
    [ "$dry" ] || torch_with torch-compiled --compile
}

begin
run_phases "$@"
[ -z "$failed" ]
