#!/usr/bin/env bash
# What several GPUs of one machine can say about zinf: copies from GPU to GPU and from all at once, a
# training by seats of one process and by one process a GPU, each with gathers among GPUs (NCCL) and
# through RAM, whose losses must be those of one GPU bit for bit; twenty starts and ends of a
# communicator; and the rates of GPT-2 XL on one, two and all GPUs. Results are kept as by gpu.sh.
#
# usage: gpus.sh [--dry-run] BUILD RESULTS [PHASE...]     BUILD, RESULTS, --dry-run: as of gpu.sh
#   PHASE      doctor peers bits ends scale (default: these)
#
#   GPUS         how many (default: all that nvidia-smi lists)
#   SECONDS_LEFT, WORK, XL, XL_SEQ, XL_MICRO, INTERPRETER   as of gpu.sh
#   LAUNCHER     the command that starts processes; "-np N" is added (default: mpirun --oversubscribe,
#                for root with --allow-run-as-root)
set -uo pipefail
dry=
[ "${1:-}" != --dry-run ] || { dry=1 && shift; }
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
build=$(CDPATH='' cd -- "$1" && pwd) || exit 2
mkdir -p -- "$2" && results=$(CDPATH='' cd -- "$2" && pwd) || exit 2
shift 2
phases="doctor peers bits ends scale"
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $phases
tiny="--layers 2 --hidden 32 --heads 2 --vocab 257 --context 32"
if [ "$dry" ]; then
    export ZINF_STANDIN_GPUS=${GPUS:-2} ZINF_STANDIN_PROCESSES=1
    small=$tiny xl=${XL:-$tiny} xl_seq=16 xl_micro=2 steps=3 starts=2 pcie="--size 1MiB"
else
    small="--layers 4 --hidden 256 --heads 4 --vocab 1000 --context 256"
    xl=${XL:---size xl --vocab 50257} xl_seq=${XL_SEQ:-1024} xl_micro=${XL_MICRO:-8}
    steps=20 starts=20 pcie=
fi
# shellcheck source=tests/bench/gpu_common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/gpu_common.sh"
[ -z "$dry" ] || export ZINF_NCCL_LIBRARY=$module
n_gpus=${GPUS:-${ZINF_STANDIN_GPUS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')}}
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
launcher=${LAUNCHER:-mpirun $root --oversubscribe}

# A training on so many GPUs, of one process or of one each; the tokens of a step are the same.
train_on() { # folder, name, GPUs, processes, zinf.gather, samples of a step, seconds, more...
    local folder=$1 name=$2 n=$3 processes=$4 gather=$5 samples=$6 seconds=$7 extra
    shift 7
    extra="\"gradient_sum\": \"tree\"$([ "$n" = 1 ] || printf ', "gather": "%s"' "$gather")"
    launch=()
    # shellcheck disable=SC2206
    [ "$processes" = 1 ] || launch=($launcher -np "$processes")
    train "$folder" "$name" "$(config_of cpu cpu 1 $((samples / n)) 4GiB "$extra")" "$seconds" \
        --seats $((n / processes)) "$@" || fail "$name (see ${folder##*/}/$name.txt)"
    launch=()
}

# ---- phases ----

peers() {
    # shellcheck disable=SC2086
    bench_one pcie --gpus "$n_gpus" $pcie
}

bits() {
    local folder=$logs/bits gather processes name
    # shellcheck disable=SC2086
    make_model bits --arch gpt2 $small || return
    set -- --steps $steps --seq-len 16
    train_on "$folder" one 1 1 none "$n_gpus" 60 "$@"
    [ ! -f "$folder/one.jsonl" ] || number loss "$folder/one.jsonl" >"$folder/one.losses"
    for gather in host device; do
        for processes in 1 "$n_gpus"; do
            name=$gather-$processes
            ! is_late "$name" || continue
            if [ "$processes" != 1 ] && ! command -v "${launcher%% *}" >/dev/null; then
                note "$name: there is no ${launcher%% *}"
                continue
            fi
            train_on "$folder" "$name" "$n_gpus" "$processes" $gather "$n_gpus" 60 "$@"
            [ -f "$folder/$name.jsonl" ] && number loss "$folder/$name.jsonl" | cmp -s - "$folder/one.losses" ||
                fail "$name: other losses than of one GPU"
            tell_rate "$folder" "$name"
        done
    done
}

# A communicator that is destroyed while its last work runs shows now and then.
ends() {
    local i folder=$logs/bits
    # shellcheck disable=SC2086
    make_model bits --arch gpt2 $small || return
    for i in $(seq $starts); do
        ! is_late "start $i" || break
        train_on "$folder" ends "$n_gpus" 1 device "$n_gpus" 60 --steps 1 --seq-len 16
    done
    note "$i starts and ends"
    fact "starts and ends" "$i"
}

scale() {
    local n gather
    # shellcheck disable=SC2086
    make_model xl --arch gpt2 $xl --dtype bf16 || return
    for n in $(printf '%s\n' 1 2 "$n_gpus" | sort -nu); do
        for gather in host device; do
            [ "$n" != 1 ] || [ $gather = host ] || continue
            [ "$n" -le "$n_gpus" ] && ! is_late "scale $n $gather" || continue
            train_on "$logs/xl" "scale-$n-$gather" "$n" 1 $gather $((n * xl_micro)) 90 \
                --steps 5 --seq-len "$xl_seq"
            tell_rate "$logs/xl" "scale-$n-$gather"
        done
    done
}

begin
note "$n_gpus GPUs"
[ "$n_gpus" -ge 2 ] || { fail "two GPUs are the least: of one, gpu.sh tells"; exit 1; }
run_phases "$@"
[ -z "$failed" ]
