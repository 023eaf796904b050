# shellcheck shell=bash
# gpu_common: what gpu.sh and gpus.sh share: where things lie, what is kept of each command, how long
# one may take, and trainings. Read by them with $build and $results set.
#
# RESULTS has summary.txt, results.json and logs.tar.gz. The second is written anew, in one move,
# with each figure, and the first with each line: a kill at any second loses what runs, not what was
# found. Logs are packed after each phase.
SECONDS=0
seconds_left=${SECONDS_LEFT:-540}
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
# Where NVIDIA's tools are on machines whose PATH does not say so.
PATH=$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin:/opt/nvidia/nsight-compute/bin
# A bundle's libraries are for what it has itself: Python's have others of the same names.
ours=(env)
[ ! -d "$build/lib" ] ||
    ours=(env "LD_LIBRARY_PATH=${INTERPRETER:+$INTERPRETER:}$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
zinf=("${ours[@]}" "$build/zinf")
# A dry run is one in a build that has both modules, too.
for module in "${ZINF_CUDA_MODULE:-}" ${dry:+"$build/tests/.libs/zinf-cuda-standin.so"} \
    ${dry:+"$build/tests/zinf-cuda-standin.so"} "$build/.libs/zinf-cuda.so" "$build/zinf-cuda.so"; do
    [ -z "$module" ] || [ ! -f "$module" ] || break
done
for mpi in "$build/.libs/zinf-mpi.so" "$build/zinf-mpi.so"; do # else the installed one
    [ ! -f "$mpi" ] || export ZINF_MPI_MODULE=${ZINF_MPI_MODULE:-$mpi}
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
failures=    # a line for each
n_failures=0 # of the phase
current= # the command that runs
clocks=  # the process that writes them down

say() { printf '\n== %s (%s, %d s)\n' "$*" "$(date -u +%T)" $SECONDS | tee -a "$summary"; }
note() { printf '%s\n' "$*" | tee -a "$summary"; }
fail() {
    note "FAILED: $*"
    fact "failed: $*" '"yes"'
    failed=1 n_failures=$((n_failures + 1))
    failures+=$'\n'"  $*"
}
# A line of results.json: its key, and its value as JSON.
fact() {
    printf '%s\n' "$1" >>"$work/keys"
    printf '%s\n' "$2" >>"$work/values"
    {
        echo "{"
        sed 's/["\\]/\\&/g; s/^/  "/' "$work/keys" | paste - "$work/values" |
            sed 's/\t/": /; $!s/$/,/'
        echo "}"
    } >"$work/results.json" && cp "$work/results.json" "$results/.results.json" &&
        mv "$results/.results.json" "$results/results.json"
}
quoted() { # words as one JSON string
    printf '"%s"' "$(printf '%s' "$*" | tr '\n\t' '  ' | sed 's/[\\"]/\\&/g')"
}
# A command for at most so many seconds, and no longer than there is time for all; 124: it ran out.
# The stand-in takes as long as the machine is busy: a dry run is patient.
limited() { # seconds, command...
    local most=$1
    [ -z "$dry" ] || most=$((5 * most))
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
# Logs alone: no weights.
pack() {
    tar -C "$work" --exclude='*.safetensors' -czf "$work/logs.tar.gz" logs 2>/dev/null
    cp "$work/logs.tar.gz" "$results/.logs.tar.gz" && mv "$results/.logs.tar.gz" "$results/logs.tar.gz"
}
leave() {
    [ -z "$current" ] || kill "$current"
    [ -z "$clocks" ] || kill "$clocks" 2>/dev/null
    fact seconds $SECONDS
    pack
    rm -rf -- "${work:?}"
}

# What the machine is; status 1 where there is no GPU that zinf uses.
describe_machine() {
    : >"$summary"
    {
        date -u
        timeout -k 5 15 nvidia-smi 2>&1 | head -n 20
        timeout -k 5 15 nvidia-smi topo -m 2>&1
        timeout -k 5 15 nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw,power.limit \
            --format=csv 2>&1
        lscpu | sed -n '/Model name/p;/^CPU(s)/p;/^NUMA/p'
        df -h "$work" 2>&1
        ulimit -l
        limited 30 "${zinf[@]}" report 2>&1
        echo "== libraries of $module"
        "${ours[@]}" ldd "$module" 2>&1
    } >"$logs/machine.txt"
    fact machine "$(quoted "$(sed -n 's/^cpu  *//p' "$logs/machine.txt")")"
    fact gpu "$(quoted "$(timeout -k 5 15 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1)")"
    grep -h '^cuda' "$logs/machine.txt" | tee -a "$summary"
    ! grep -q '^cuda  *not used' "$logs/machine.txt"
}
# Python's packages have CUDA's libraries where the system has none.
find_libraries() {
    local packages folder
    packages=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null)
    for folder in "$packages"/nvidia/*/lib; do
        [ -e "$folder" ] || continue
        export ZINF_CUDA_LIBRARIES=$packages/nvidia/'*'/lib
        note "libraries are looked for in $ZINF_CUDA_LIBRARIES"
        return 0
    done
    return 1
}
begin() {
    trap leave EXIT
    trap 'note "ended from outside"; exit 1' TERM INT HUP
    fact begun "$(quoted "$(date -u)")"
    if ! describe_machine && ! { find_libraries && describe_machine; }; then
        note "there is no GPU to check; the module's libraries and the driver:"
        sed -n '/^== libraries/,$p' "$logs/machine.txt" | tee -a "$summary"
        fact failed '"there is no GPU to check"'
        exit 1
    fi
    # Rates mean little without the clocks and the power at which they were reached.
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi dmon -s pucm -d 1 >"$logs/clocks.txt" 2>&1 &
        clocks=$!
    fi
    pack
}
# Each phase is a function; one that begins late is left out. What became of each, and all that
# failed, is said again at the end, where a reader looks first.
run_phases() {
    local phase since states=()
    for phase; do
        case " $phases " in
        *" $phase "*)
            say "$phase"
            n_failures=0 since=$SECONDS
            if is_late "$phase"; then
                states+=("$(printf '%-10s left out' "$phase")")
            else
                "${phase//-/_}"
                states+=("$(printf '%-10s %s, %d s' "$phase" \
                    "$([ $n_failures = 0 ] && echo ok || echo "$n_failures FAILED")" \
                    $((SECONDS - since)))")
            fi
            pack
            ;;
        *) fail "unknown phase $phase: $phases" ;;
        esac
    done
    say "summary"
    [ ${#states[@]} = 0 ] || note "$(printf '%s\n' "${states[@]}")"
    [ -z "$failures" ] || note "what failed:$failures"
    note "$SECONDS s of $seconds_left; all of it is in $results"
}

# All kernels against the host, a tiny training, copies: the least that must be right.
doctor() {
    local since=$SECONDS status
    limited "${DOCTOR_LIMIT:-60}" "${zinf[@]}" doctor >"$logs/doctor.txt" 2>&1
    status=$?
    tee -a "$summary" <"$logs/doctor.txt"
    fact doctor "{\"status\": $status, \"seconds\": $((SECONDS - since))}"
    [ $status = 0 ] || fail "doctor: status $status (see doctor.txt)"
}

bench_one() { # arguments of zinf bench
    limited 40 "${zinf[@]}" bench "$@" >"$logs/bench.one" 2>&1 || fail "bench $*"
    cat "$logs/bench.one" >>"$logs/bench.txt"
    tee -a "$summary" <"$logs/bench.one"
    fact "bench $*" "$(quoted "$(cat "$logs/bench.one")")"
}

# ---- trainings ----

# A training of FOLDER's model; its log is in FOLDER/NAME. Usage: train FOLDER NAME CONFIG LIMIT ...
train() {
    local folder=$1 name=$2 config=$3 limit=$4
    shift 4
    rm -rf "${folder:?}/$name" "$folder/$name.jsonl"
    printf '%s\n' "$config" >"$folder/$name.json"
    limited "$limit" "${launch[@]}" "${zinf[@]}" train --no-final-checkpoint --model "$folder/model" \
        --data "$work/text.txt" --config "$folder/$name.json" --log "$folder/$name.jsonl" \
        --progress none --dropout 0 --output "$folder/$name" --device cuda "$@" \
        >"$folder/$name.txt" 2>&1
    local status=$?
    rm -rf "${folder:?}/$name"
    return $status
}
launch=() # what a training is started by: mpirun

# RAM may grow on demand where a machine is lent, so that what is available now says little.
config_of() { # places of parameters and optimizer, micro-batch, accumulation, host memory or none
    local budget=
    [ $# -lt 5 ] || budget=", \"zinf\": {\"host_memory\": \"$5\"${6:+, $6}}"
    printf '{"train_micro_batch_size_per_gpu": %s, "gradient_accumulation_steps": %s,
"gradient_clipping": 1.0, "bf16": {"enabled": true},
"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}},
"zero_optimization": {"stage": 3,
"offload_param": {"device": "%s", "nvme_path": "%s"},
"offload_optimizer": {"device": "%s", "nvme_path": "%s"}}%s}' "$3" "$4" "$1" "$work" "$2" "$work" \
        "$budget"
}

number() { sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" "$2"; }

make_text() {
    [ -s "$work/text.txt" ] ||
        awk 'BEGIN { srand(1); for (i = 0; i < 400000; i++) printf "%c%s", 97 + int(rand() * 26),
            i % 7 ? "" : i % 91 ? " " : "\n" }' >"$work/text.txt"
}

# A model in $logs/NAME/model, once.
make_model() { # name, arguments of zinf init
    local name=$1
    shift
    mkdir -p "$logs/$name"
    make_text
    [ -s "$logs/$name/model/config.json" ] ||
        limited 120 "${zinf[@]}" init --tokenizer bytes "$@" --output "$logs/$name/model" \
            >"$logs/$name/init.txt" 2>&1 || { fail "$name: init"; return 1; }
}

# Tokens a second of the steps but the first two: one is measured serially, one fills lanes.
rate() {
    [ -f "$1" ] || { printf 0; return; }
    sed 1,2d "$1" | sed -n 's/.*"tokens_per_second": \([0-9.e+]*\).*/\1/p' | sort -n |
        awk '{ x[NR] = $1 } END { if (NR) printf "%.0f", x[int((NR + 1) / 2)]; else printf "0" }'
}
# A training's rate, and the copies that waited for want of page-locked memory: none should.
tell_rate() { # folder, name
    local log=$1/$2.jsonl waited
    waited=$([ ! -f "$log" ] || number pageable_copies "$log" | awk '{ n += $1 } END { print n + 0 }')
    note "$2: $(rate "$log") tokens/s, predicted $(tail -n 1 "$log" 2>/dev/null |
        sed -n 's/.*"predicted_seconds": \([0-9.e+-]*\).*/\1/p') s a step, ${waited:-no} pageable copies"
    fact "$2 tokens_per_second" "$(rate "$log")"
    fact "$2 pageable_copies" "${waited:-0}"
    [ "${waited:-0}" = 0 ] || fail "$2: $waited copies waited since memory is not page-locked"
}
