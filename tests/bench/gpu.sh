#!/usr/bin/env bash
# All that a machine with a GPU can say about zinf's CUDA device, in less than 10 minutes: the GPU's
# part of the test suite, losses against the host device and a second run, GPT-2 XL with and without
# offload at several batch sizes, PyTorch beside it, the benches, and the tests under
# compute-sanitizer. A phase goes on after a failure; a command ends at its own limit or at that of
# all, and what is left then is left out and said. RESULTS has summary.txt, which also goes to
# standard output, results.json with every test and figure, and all logs in logs.tar.gz; the last two
# are made anew after every phase, and also where this is ended from outside. Status 1 if a phase
# failed.
#
# usage: gpu.sh BUILD RESULTS [PHASE...]
#   BUILD    a build folder with the CUDA module and `make check` programs, or a bundle of it
#            (scripts/bundle.sh)
#   RESULTS  a folder to write to
#   PHASE    suite losses bench xl torch sanitizer (default: these, what is most worth knowing
#            first); curve: xl at more batch sizes
#
#   SECONDS_LEFT for all phases together (default: 540)
#   WORK         where a folder of 4 GB for models and logs is made and removed (default: the first of
#                TMPDIR, /tmp, /var/tmp, RESULTS and HOME that is on a drive)
#   PYTHON       with PyTorch, for the phase torch (default: python3)
#   TORCH        options of torch_gpt2_gpu.py (default: --compile)
#   SMALL        arguments of `zinf init` for the phase losses
#   XL           arguments of `zinf init` for the phases xl and torch (default: --size xl)
#   XL_SEQ, XL_MICRO, XL_TOKENS   1024, 16 and the tokens of a step, "16384 65536"
#   XL_DEVICE_MEMORY, XL_HOST_MEMORY   20GiB, 40GiB
#   SUITE_LIMIT, SUITE_SECONDS   seconds for a program of the suite, and for all of them: 60, 200
#   INTERPRETER  a folder with what takes the place of CUDA's libraries (tests/ptx)
set -uo pipefail
SECONDS=0

[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
build=$(CDPATH='' cd -- "$1" && pwd) || exit 2
mkdir -p -- "$2" && results=$(CDPATH='' cd -- "$2" && pwd) || exit 2
shift 2
[ $# -gt 0 ] || set -- suite losses bench xl torch sanitizer
seconds_left=${SECONDS_LEFT:-540}
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
xl_seq=${XL_SEQ:-1024} xl_micro=${XL_MICRO:-16}
xl_tokens=${XL_TOKENS:-16384 65536}
xl_memory=${XL_DEVICE_MEMORY:-20GiB} xl_host=${XL_HOST_MEMORY:-40GiB}
# A bundle's libraries are for what it has itself: Python's have others of the same names.
ours=(env)
[ ! -d "$build/lib" ] ||
    ours=(env "LD_LIBRARY_PATH=${INTERPRETER:+$INTERPRETER:}$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
zinf=("${ours[@]}" "$build/zinf")
for module in "${ZINF_CUDA_MODULE:-}" "$build/.libs/zinf-cuda.so" "$build/zinf-cuda.so"; do
    [ -z "$module" ] || [ ! -f "$module" ] || break
done
# A store refuses what is no drive.
work_folder() {
    local folder
    for folder in "${TMPDIR:-/tmp}" /tmp /var/tmp "$results" "${HOME:-/root}"; do
        case $(stat -f -c %T -- "$folder" 2>&1) in
        tmpfs | ramfs | squashfs) ;;
        *) [ ! -w "$folder" ] || { echo "$folder" && return; } ;;
        esac
    done
    echo "$results"
}
work=$(mktemp -d "${WORK:-$(work_folder)}/zinf-gpu.XXXXXX") || exit 2
summary=$results/summary.txt logs=$work/logs
mkdir -p "$logs" "$work/tests" || exit 2
: >"$work/keys"
: >"$work/values"
export ZINF_CUDA_MODULE=$module BUILDDIR=$work SRCDIR=${SRCDIR:-$here/../..}
export XDG_CACHE_HOME=$work/cache
failed=
current= # the command that runs

say() { printf '\n== %s (%s, %d s)\n' "$*" "$(date -u +%T)" $SECONDS | tee -a "$summary"; }
note() { printf '%s\n' "$*" | tee -a "$summary"; }
fail() { note "FAILED: $*"; fact "failed: $*" '"yes"'; failed=1; }
# A line of results.json: its key, and its value as JSON.
fact() {
    printf '%s\n' "$1" >>"$work/keys"
    printf '%s\n' "$2" >>"$work/values"
}
quoted() { # words as one JSON string
    printf '"%s"' "$(printf '%s' "$*" | tr '\n\t' '  ' | sed 's/[\\"]/\\&/g')"
}
# A command for at most so many seconds, and no longer than there is time for all; 124: it ran out.
limited() { # seconds, command...
    local most=$1
    shift
    [ $((seconds_left - SECONDS)) -ge "$most" ] || most=$((seconds_left - SECONDS))
    [ "$most" -gt 0 ] || return 124
    timeout -k 5 "$most" "$@" & # a trap waits for what is in front
    current=$!
    wait $current
    local status=$?
    current=
    return $status
}
is_late() {
    [ $SECONDS -ge "$seconds_left" ] && note "left out for want of time: $*"
}

: >"$summary"
{
    date -u
    timeout -k 5 15 nvidia-smi 2>&1 | head -n 20
    timeout -k 5 15 nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw,power.limit \
        --format=csv 2>&1
    lscpu | sed -n '/Model name/p;/^CPU(s)/p'
    df -h "$work" 2>&1
    ulimit -l
    limited 30 "${zinf[@]}" report 2>&1
    echo "== libraries of $module"
    "${ours[@]}" ldd "$module" 2>&1
} >"$logs/machine.txt"
limited 60 "${zinf[@]}" doctor >"$logs/doctor.txt" 2>&1
fact machine "$(quoted "$(sed -n 's/^cpu  *//p' "$logs/machine.txt")")"
fact gpu "$(quoted "$(timeout -k 5 15 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1)")"
grep -h '^cuda' "$logs/machine.txt" | tee -a "$summary"
cat "$logs/doctor.txt" >>"$summary"

# Logs alone: no weights. What is there now, whatever happens later.
pack() {
    {
        echo "{"
        sed 's/["\\]/\\&/g; s/^/  "/' "$work/keys" | paste - "$work/values" |
            sed 's/\t/": /; $!s/$/,/'
        echo "}"
    } >"$results/results.json"
    tar -C "$work" --exclude='*.safetensors' -czf "$results/logs.tar.gz" logs
}
leave() {
    [ -z "$current" ] || kill "$current"
    fact seconds $SECONDS
    pack
    rm -rf -- "${work:?}"
}
trap leave EXIT
trap 'note "ended from outside"; exit 1' TERM INT HUP
pack
if grep -q '^cuda  *not used' "$logs/machine.txt"; then
    note "there is no GPU to check; the module's libraries and the driver:"
    sed -n '/^== libraries/,$p' "$logs/machine.txt" | tee -a "$summary"
    fact failed '"there is no GPU to check"'
    exit 1
fi

# ---- the suite ----

suite() {
    local test log n bad skipped until=$((SECONDS + ${SUITE_SECONDS:-200}))
    for test in "$build"/tests/cuda/cuda_*_test; do
        case $test in *cuda_standin_*) continue ;; esac
        ! is_late "$(basename "$test")" || continue
        if [ $SECONDS -ge $until ]; then # the other phases are to have their time
            fail "$(basename "$test"): left out, the suite has had its time"
            continue
        fi
        log=$logs/suite-$(basename "$test").txt
        limited "${SUITE_LIMIT:-60}" "${ours[@]}" "$test" >"$log" 2>&1 || fail "$(basename "$test") (see ${log##*/})"
        n=$(grep -c '^ok' "$log")
        bad=$(grep -c '^not ok' "$log") skipped=$(grep -c '# SKIP' "$log")
        note "$(basename "$test"): $n ok, $bad not, $skipped skipped"
        fact "suite $(basename "$test")" "{\"ok\": $n, \"not_ok\": $bad, \"skipped\": $skipped}"
    done
}

sanitizer() {
    local tool test log
    if ! command -v compute-sanitizer >/dev/null; then
        note "compute-sanitizer is not here"
        return
    fi
    for tool in memcheck racecheck initcheck; do
        for test in update rows elementwise quantized route attention; do
            [ $tool != initcheck ] || [ $test != attention ] || continue
            ! is_late "$tool, $test" || continue
            log=$logs/sanitizer-$tool-$test.txt
            limited 25 "${ours[@]}" compute-sanitizer --tool "$tool" --error-exitcode 9 \
                "$build/tests/cuda_${test}_test" >"$log" 2>&1
            case $? in
            0)
                note "$tool, $test: clean"
                fact "$tool $test" '"clean"'
                ;;
            124) note "$tool, $test: not done after 25 s" ;;
            *) fail "$tool, $test (see ${log##*/})" ;;
            esac
        done
    done
}

bench_one() { # arguments of zinf bench
    limited 30 "${zinf[@]}" bench "$@" >"$logs/bench.one" 2>&1 || fail "bench $*"
    cat "$logs/bench.one" >>"$logs/bench.txt"
    fact "bench $*" "$(quoted "$(cat "$logs/bench.one")")"
}

bench() {
    bench_one pcie
    bench_one gemm --device cuda --type bf16
    bench_one gemm --device cuda --type fp16
    ZINF_CUDA_TF32=1 bench_one gemm --device cuda --type fp32
    bench_one attention --device cuda
    bench_one attention --device cuda --batch 4 --seq 4096 --head-dim 128 --heads 16
    tee -a "$summary" <"$logs/bench.txt"
}

# ---- trainings ----

# A training of FOLDER's model; its log is in FOLDER/NAME. Usage: train FOLDER NAME CONFIG LIMIT ...
train() {
    local folder=$1 name=$2 config=$3 limit=$4
    shift 4
    rm -rf "${folder:?}/$name" "$folder/$name.jsonl"
    printf '%s\n' "$config" >"$folder/$name.json"
    limited "$limit" "${zinf[@]}" train --no-final-checkpoint --model "$folder/model" --data "$work/text.txt" \
        --config "$folder/$name.json" --log "$folder/$name.jsonl" --progress none --dropout 0 \
        --output "$folder/$name" "$@" >"$folder/$name.txt" 2>&1
    local status=$?
    rm -rf "${folder:?}/$name"
    return $status
}

# RAM may grow on demand where a machine is lent, so that what is available now says little.
config_of() { # places of parameters and optimizer, micro-batch, accumulation, host memory or none
    local budget=
    [ $# -lt 5 ] || budget=", \"zinf\": {\"host_memory\": \"$5\"}"
    printf '{"train_micro_batch_size_per_gpu": %s, "gradient_accumulation_steps": %s,
"gradient_clipping": 1.0, "bf16": {"enabled": true},
"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}},
"zero_optimization": {"stage": 3, "offload_param": {"device": "%s"},
"offload_optimizer": {"device": "%s"}}%s}' "$3" "$4" "$1" "$2" "$budget"
}

number() { sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" "$2"; }

make_text() {
    [ -s "$work/text.txt" ] ||
        awk 'BEGIN { srand(1); for (i = 0; i < 400000; i++) printf "%c%s", 97 + int(rand() * 26),
            i % 7 ? "" : i % 91 ? " " : "\n" }' >"$work/text.txt"
}

# 50 steps of a small model in bf16: the GPU twice, offloaded, and the host.
losses() {
    local folder=$logs/losses name
    mkdir -p "$folder"
    make_text
    # shellcheck disable=SC2086
    limited 30 "${zinf[@]}" init --arch gpt2 --tokenizer bytes --vocab 50257 ${SMALL:---layers 4 --hidden 256 --heads 4 --vocab 1000 --context 256} \
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
                  NR, most, 2 ^ -8; exit !(NR && most <= 2 ^ -8) }' >"$folder/distance.txt" ||
        fail "losses leave the host device's"
    tee -a "$summary" <"$folder/distance.txt"
    fact losses "$(quoted "$(cat "$folder/distance.txt")")"
}

# Tokens a second of the steps but the first two: one is measured serially, one fills lanes.
rate() {
    sed 1,2d "$1" | sed -n 's/.*"tokens_per_second": \([0-9.e+]*\).*/\1/p' | sort -n |
        awk '{ x[NR] = $1 } END { if (NR) printf "%.0f", x[int((NR + 1) / 2)]; else printf "0" }'
}

make_xl() {
    mkdir -p "$logs/xl"
    # shellcheck disable=SC2086
    [ -s "$logs/xl/model/config.json" ] ||
        limited 90 "${zinf[@]}" init --arch gpt2 --tokenizer bytes --vocab 50257 ${XL:---size xl} --dtype bf16 \
            --output "$logs/xl/model" >"$logs/xl/init.txt" 2>&1 || { fail "xl: init"; return 1; }
}

xl() {
    local folder=$logs/xl tokens micro accumulate way places memory
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
            ! is_late "$name" || continue
            set -- --steps 5 --seq-len "$xl_seq" --device cuda
            [ "$memory" = 0 ] || set -- "$@" --device-memory "$memory"
            # shellcheck disable=SC2086
            train "$folder" "$name" "$(config_of $places $micro $accumulate $xl_host)" \
                "${XL_LIMIT:-75}" "$@" || fail "xl: $name (see xl/$name.txt)"
            note "$name: $(rate "$folder/$name.jsonl") tokens/s"
            fact "xl $name tokens_per_second" "$(rate "$folder/$name.jsonl")"
        done
    done
}

curve() {
    xl "4096 262144"
}

torch() {
    make_xl || return
    # shellcheck disable=SC2086
    limited 150 "$python" "$here/torch_gpt2_gpu.py" --model "$logs/xl/model/config.json" \
        --seq-len "$xl_seq" --micro-batch "$xl_micro" ${TORCH:---compile} \
        >"$logs/torch.json" 2>"$logs/torch.txt" || fail "torch (see torch.txt)"
    tee -a "$summary" <"$logs/torch.json"
    fact torch "$(quoted "$(cat "$logs/torch.json")")"
}

for phase; do
    case $phase in
    suite | sanitizer | bench | losses | xl | curve | torch)
        say "$phase"
        is_late "$phase" || "$phase"
        pack
        ;;
    *) fail "unknown phase $phase" ;;
    esac
done
say "done"
[ -z "$failed" ]
