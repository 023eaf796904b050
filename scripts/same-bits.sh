#!/bin/bash
# Do two revisions give the same bits? Builds REVISION beside this tree (or REVISION2), makes the
# same small runs of GPT-2 with both and compares what comes out: loss and gradient norm of each
# step as log.jsonl has them (nine digits), sha256 of the weights in the run's number type, and
# sha256 of a checkpoint (fp32 weights and moments). Nine digits are less than all bits of a norm,
# but most runs clip, which multiplies every gradient by one over the norm: the hashes hold the
# rest of it. It uses the command line alone, so it works between any two revisions that have it.
#
# usage: scripts/same-bits.sh [OPTION...] REVISION [REVISION2]
#   --quick         a handful of combinations
#   --with-cuda     more of them, on the CUDA stand-in (no GPU and no CUDA is needed)
#   --programs      more of them: the predicted steps of large models on other machines, operation by
#                   operation. Whoever moves code alone wants these; a better schedule differs.
#   --build FOLDER  a build folder of this tree, brought up to date by make; else one in the cache
#   --only REGEX    combinations whose name matches
#   --cpu NAME      both run with ZINF_CPU=NAME: revisions before instructions that change bits
#   --list          prints the combinations and ends
#
# What is compared is not the full product. Covered are: every pair of the nine placements, the
# number types fp32 and bf16, and accumulation 1 and 4; every pair of the four schedules, the number
# types and three placements, again with accumulation 4, and where about every second step clips
# (steps are then taken back); both orders of micro-batches by number type and placement; each
# optimizer, each key that moves activations, gradients and updates, small budgets, two threads, a
# second model of odd sizes and one of many tiles; then resuming, gradients, eval, generate, export,
# init. One, two and four seats at each stage of ZeRO, two ranks by MPI (where there is an mpirun) and
# over TCP, adapters over 4 bits, an encoder-decoder, a classifier, and experts by each way of fetching.
# Dropout is on except where a name says "dropout-off", and clipping except where it says
# "clip-off".
#
# The results of a commit are kept in ~/.cache/zinf-same-bits or $ZINF_SAME_BITS, with its binaries,
# by hash, processor and combination: a second comparison with it builds and runs nothing. The
# folder must lie on a disk, since placements on "nvme" use it. Prints a line for each combination
# that differs and a summary. Status: 0 all the same, 1 a difference, 2 no comparison was possible.
# shellcheck disable=SC2015,SC2059,SC2086 # settings are words without spaces; formats are made here
set -u
LC_ALL=C
export LC_ALL

usage() {
    sed -n 's/^# \{0,1\}//; /^usage:/,/^$/p' "$0" >&2
    exit 2
}
fatal() {
    echo "same-bits: $*" >&2
    exit 2
}

quick=0 cuda=0 programs=0 list=0 build='' only='' cpu=''
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --with-cuda) cuda=1 ;;
    --programs) programs=1 ;;
    --list) list=1 ;;
    --build) build=${2-} && shift ;;
    --only) only=${2-} && shift ;;
    --cpu) cpu=${2-} && shift ;;
    -*) usage ;;
    *) break ;;
    esac
    shift || usage
done
[ $list = 1 ] || [ $# = 1 ] || [ $# = 2 ] || usage
mpi=0
command -v "${MPIRUN:-mpirun}" >/dev/null && mpi=1
tree=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cache=${ZINF_SAME_BITS:-$HOME/.cache/zinf-same-bits}

# ---- the combinations ----

# shellcheck source=scripts/same-bits-runs.sh
. "$tree/scripts/same-bits-runs.sh"
chosen() {
    combinations | if [ $quick = 1 ]; then sed -n 's/^!//p'; else sed 's/^!//'; fi |
        awk -v only="$only" 'only == "" || $1 ~ only'
}
[ $list = 0 ] || { chosen && exit 0; }

# ---- one run ----

write_config() { # file
    local precision_json='' params="\"lr\":$lr" placement_json='"placement":"exact",'
    [[ $extra != *'"placement"'* ]] || placement_json=''
    [ "$precision" = fp32 ] || precision_json="\"$precision\":{\"enabled\":true},"
    # Steps that overflow, and steps that do not.
    [ "$precision" != fp16 ] || precision_json='"fp16":{"enabled":true,"initial_scale_power":20,
        "hysteresis":1,"loss_scale_window":2},'
    [ "$optimizer" != AdamW ] || params="$params,\"weight_decay\":0.1"
    cat >"$1" <<END
{"train_micro_batch_size_per_gpu":$micro,"gradient_accumulation_steps":$accumulation,
 "gradient_clipping":$clip, $precision_json
 "optimizer":{"type":"$optimizer","params":{$params}},
 "zero_optimization":{"stage":$stage,"sub_group_size":$group,
  "offload_param":{"device":"$param","nvme_path":"$PWD/drive"},
  "offload_optimizer":{"device":"$state","nvme_path":"$PWD/drive","ratio":$ratio}},
 "zinf":{$placement_json"threads":$threads,"schedule":"$schedule","accumulation_order":"$order",
  "direct":$([ $copies = 1 ] && echo false || echo true),"dropout":$dropout$extra}}
END
}
zinf() {
    timeout 120 "$bin/zinf" "$@" </dev/null >>said.out 2>>said.err
}
by_torchrun() { # rank, command...: with the variables that torchrun sets
    local rank=$1
    shift
    RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$port TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_RUN_ID=$port OMP_NUM_THREADS=1 \
        zinf "$@"
}
train() { # options...: by as many ranks as the combination has
    local rank pids='' pid code=0 port=$((20000 + BASHPID % 20000))
    case $by in
    '') zinf train "$@" ;;
    seats) zinf train "$@" --seats "$ranks" ;;
    mpi) timeout -k 10 120 "${MPIRUN:-mpirun}" -np "$ranks" "$bin/zinf" train "$@" </dev/null \
        >>said.out 2>>said.err ;;
    tcp)
        for ((rank = 0; rank < ranks; rank++)); do
            by_torchrun "$rank" train "$@" &
            pids="$pids $!"
        done
        for pid in $pids; do
            wait "$pid" || code=1
        done
        return $code ;;
    esac
}
hash_of() { # files...
    local file found=''
    for file; do
        [ ! -f "$file" ] || found="$found $file"
    done
    [ -z "$found" ] && echo none || cat $found | sha256sum | cut -c1-64
}
run_kind() {
    local from="--model ../$model --config config.json --device $device" text=../tokens.bin
    local step="--data $text --seq-len $seq --seed 5 --progress none --output run"
    case $kind in
    train) train $from $step --steps "$steps" --save-every "$steps" ;;
    program) zinf init --config-only --output big $init && zinf estimate --model big \
        --config config.json --seq-len "$seq" --trace out.json $machine ;;
    pairs) train $from --data ../pairs.jsonl --source-column a --target-column b --task seq2seq \
        --seq-len "$seq" --source-len "$seq" --seed 5 --progress none --output run \
        --steps "$steps" --save-every "$steps" ;;
    classes) train $from --data ../pairs.jsonl --source-column a --label-column b \
        --task classification --seq-len "$seq" --seed 5 --progress none --output run \
        --steps "$steps" --save-every "$steps" ;;
    fresh) zinf train $from $step --steps 2 --save-every 2 --init ;;
    export) zinf train $from $step --steps 2 --save-every 2 &&
        zinf export --checkpoint run --output out --dtype bf16 ;;
    resume) zinf train $from $step --steps 3 --save-every 3 && cp run/log.jsonl first.jsonl &&
        zinf train $from $step --steps 6 --save-every 6 --resume ;;
    gradients) zinf gradients $from --data $text --seq-len "$seq" --micro-batch 2 \
        --output out.safetensors ;;
    eval) zinf eval $from --data $text --seq-len "$seq" ;;
    generate) zinf generate $from --prompt 'line 1' --max-new-tokens 12 --seed 3 ;;
    init) zinf init --arch gpt2 --layers 2 --hidden 48 --heads 3 --vocab 500 --context 20 --seed 9 \
        --dtype "$precision" --output out ;;
    esac
}
steps_of() { # log: loss, norm and whether the step was skipped, of all steps in one line
    local number='\([^,]*\)'
    local keys="\"loss\": $number, \"grad_norm\": $number, .*\"skipped\": $number,"
    [ ! -f "$1" ] || sed "s/.*$keys.*/\1 \2 \3;/" "$1" | tr -d '\n'
}
# Prints the combination's line: name, then what is compared, each behind a tab.
measure_one() { # name, settings...
    local name=$1 kind=train model=usual device=host param=nvme state=nvme precision=fp32
    local accumulation=1 micro=2 seq=16 steps=5 clip=0.5 dropout=0.1 ratio=1 threads=1 copies=0
    local schedule=auto order=auto optimizer=AdamW lr=1e-3 extra='' stage=3 group=9000 setting
    local by='' ranks=1 init='' machine=''
    shift
    for setting; do
        local "${setting%%=*}=${setting#*=}"
    done
    init=${init//,/ } machine=${machine//+/ }
    rm -rf -- * && mkdir drive && write_config config.json
    if ! run_kind; then
        printf '%s\tfailed: %s\n' "$name" "$(grep -v '^plan:\|^  ' said.err | tail -n 1)"
        return
    fi
    printf '%s\tweights %s\tstate %s\tother %s\tsteps %s\n' "$name" \
        "$(hash_of run/model/*.safetensors)" \
        "$(hash_of run/checkpoint-*/*.safetensors run/checkpoint-*/optimizer/*.safetensors)" \
        "$(case $kind in
        eval | generate) hash_of said.out ;;
        program) hash_of out.json ;;
        *) hash_of out/*.safetensors out.safetensors ;;
        esac)" "$(steps_of run/log.jsonl)"
}

# ---- one revision ----

short_hash() {
    sha256sum | cut -c1-8
}
make_build() { # source, build folder: zinf and, if wanted, the stand-in, quietly
    local log=$2/same-bits.log compiler=gcc wanted=zinf
    mkdir -p "$2" || fatal "cannot make the folder $2"
    command -v ccache >/dev/null && compiler='ccache gcc'
    [ $cuda = 0 ] || wanted="$wanted tests/zinf-cuda-standin.la"
    [ $mpi = 0 ] || wanted="$wanted zinf-mpi.la"
    (
        # Compilations of another folder are found in ccache by paths within the source.
        export CCACHE_BASEDIR="$1" CCACHE_NOHASHDIR=1
        [ -x "$1/configure" ] || { cd "$1" && autoreconf -fi; } || exit 1
        cd "$2" || exit 1
        [ -f Makefile ] ||
            "$1/configure" -q CC="$compiler" CXX="${compiler/gcc/g++}" --without-cuda || exit 1
        nice make -s -j"$(nproc)" $wanted
    ) >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        fatal "cannot build $1: all of it is in $log"
    }
}
keep_binaries() { # build folder, folder
    mkdir -p "$2/bin" && cp "$1/zinf" "$2/bin/zinf.$$" && mv "$2/bin/zinf.$$" "$2/bin/zinf" ||
        exit 2
    [ $cuda = 0 ] || cp "$1/tests/.libs/zinf-cuda-standin.so" "$2/bin/" || exit 2
    [ $mpi = 0 ] || cp "$1/.libs/zinf-mpi.so" "$2/bin/" || exit 2
}
# Into kept/bin, unless it is there.
build_commit() { # hash, kept
    [ -x "$2/bin/zinf" ] && { [ $cuda = 0 ] || [ -f "$2/bin/zinf-cuda-standin.so" ]; } &&
        { [ $mpi = 0 ] || [ -f "$2/bin/zinf-mpi.so" ]; } && return
    echo "same-bits: building ${1:0:12}" >&2
    git -C "$tree" worktree add -q --detach "$temporary/source" "$1" || fatal "no worktree of $1"
    # With the build in its own folder, paths are the same for all revisions but the first part.
    make_build "$temporary/source" "$temporary/source/build-same-bits"
    keep_binaries "$temporary/source/build-same-bits" "$2"
    git -C "$tree" worktree remove --force "$temporary/source"
}
make_inputs() { # folder
    local new="$bin/zinf init --seed 11 --arch gpt2" other="$bin/zinf init --seed 11 --layers 2"
    # Columns a and b: words that a classifier can tell apart, and a class.
    awk 'BEGIN { x = 1; for (i = 0; i < 200; i++) { x = (x * 16807) % 2147483647
        printf "{\"a\": \"row %d is %d\", \"b\": \"%s\"}\n", i, x % 97, x % 3 ? "more" : "less" } }' \
        >"$1/pairs.jsonl"
    # Token ids as uint16, below 500, the least of the vocabularies.
    printf "$(awk 'BEGIN { x = 1; for (i = 0; i < 6000; i++) { x = (x * 16807) % 2147483647
        id = int(x / 1000) % 500; printf "\\%03o\\%03o", id % 256, int(id / 256) } }')" \
        >"$1/tokens.bin"
    $new --layers 3 --hidden 64 --heads 4 --vocab 1000 --context 32 --tokenizer bytes --output "$1/usual" &&
        $new --layers 2 --hidden 40 --heads 5 --vocab 777 --context 19 --output "$1/odd" &&
        $new --layers 2 --hidden 32 --heads 2 --vocab 20011 --context 32 --tokenizer bytes --output "$1/tiles" &&
        $other --arch mixtral --hidden 32 --heads 4 --vocab 777 --context 32 --output "$1/experts" &&
        $other --arch t5 --size small --hidden 32 --heads 2 --tokenizer bytes --output "$1/pairs" &&
        $other --arch bert --size base --hidden 32 --heads 2 --context 32 --output "$1/classes" \
            --tokenizer "$tree/examples/classify"
}
# Of those chosen; a result is known by name and settings.
missing_in() { # results
    chosen | awk -F '\t' -v results="$1" '
        BEGIN { while ((getline line < results) > 0) { split(line, part, "\t"); have[part[1]] } }
        !($0 in have)'
}
# Adds what is wanted and not yet there to the file of results. One worker a processor.
measure() { # bin, results
    local bin=$1 results=$2 wanted=$temporary/wanted n jobs i
    ZINF_CUDA_MODULE=$bin/zinf-cuda-standin.so
    XDG_CACHE_HOME=$temporary/no-cache # what benches found on this machine steers plans
    ZINF_MPI_MODULE=$bin/zinf-mpi.so
    ZINF_NCCL_LIBRARY=$bin/zinf-cuda-standin.so
    # Open MPI as root, and with more ranks than processors.
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    OMPI_MCA_btl_vader_single_copy_mechanism=none
    export ZINF_CUDA_MODULE XDG_CACHE_HOME ZINF_MPI_MODULE ZINF_NCCL_LIBRARY OMPI_ALLOW_RUN_AS_ROOT \
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe \
        PRTE_MCA_rmaps_default_mapping_policy OMPI_MCA_btl_vader_single_copy_mechanism
    unset ZINF_LOG ZINF_CPU
    [ -z "$cpu" ] || export ZINF_CPU=$cpu
    touch "$results"
    missing_in "$results" >"$wanted"
    n=$(wc -l <"$wanted")
    [ "$n" -gt 0 ] || return 0
    jobs=$(nproc)
    echo "same-bits: $n runs with ${bin%/bin}" >&2
    rm -rf "$temporary/runs" && mkdir "$temporary/runs"
    make_inputs "$temporary/runs" >"$temporary/said" 2>&1 || fatal "$(cat "$temporary/said")"
    for ((i = 0; i < jobs; i++)); do
        (
            mkdir "$temporary/runs/$i" && cd "$temporary/runs/$i" || exit 1
            awk -v jobs="$jobs" -v i="$i" 'NR % jobs == i' "$wanted" | while read -r line; do
                measure_one $line | sed "s|^[^\t]*|${line//|/\\|}|"
            done >"$temporary/runs/$i.results"
        ) &
    done
    wait
    cat "$temporary"/runs/*.results >>"$results"
    rm -rf "$temporary/runs"
}
# Results depend on the instructions that the processor has (BLAS chooses its kernels by them) and
# on what the runs are.
key=$(sed -n 's/^\(model name\|flags\)[^:]*: //p' /proc/cpuinfo | sort -u | short_hash)
key=$key-$(declare -f write_config zinf by_torchrun train hash_of run_kind measure_one make_inputs |
    short_hash)$cpu
# Sets `results` to the file with this revision's results.
take_commit() { # revision
    local hash kept
    hash=$(git -C "$tree" rev-parse --verify -q "$1^{commit}") || fatal "no such revision: $1"
    kept=$cache/$hash
    results=$kept/results-$key
    mkdir -p "$kept" && touch "$results"
    [ -n "$(missing_in "$results")" ] || return 0
    build_commit "$hash" "$kept"
    measure "$kept/bin" "$results"
}
take_tree() {
    local folder=${build:-$cache/tree-$(echo "$tree" | short_hash)}
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    make_build "$tree" "$folder"
    keep_binaries "$folder" "$temporary/tree"
    results=$temporary/tree/results
    measure "$temporary/tree/bin" "$results"
}

# ---- comparison ----

compare() { # results, results, names
    chosen | awk -F '\t' -v a="$3" -v b="$4" '
    FILENAME == ARGV[1] { first[$1] = substr($0, length($1) + 2); next }
    FILENAME == ARGV[2] { second[$1] = substr($0, length($1) + 2); next }
    function word_of(x) { return substr(x, 1, index(x, " ") - 1) }
    function first_step(x, y,    p, q, n, i) {
        n = split(substr(x, 7), p, ";"); split(substr(y, 7), q, ";")
        for (i = 1; i <= n; i++)
            if (p[i] != q[i])
                return "step " i ": loss norm skipped " p[i] ", then " q[i]
        return "number of steps"
    }
    {
        split($0, words, " "); total++
        x = first[$1]; y = second[$1]
        if (x ~ /^failed/ || y ~ /^failed/ || x == "" || y == "") {
            printf "%s: %s: %s; %s: %s\n", words[1], a, x ~ /^failed/ ? x : "runs", b,
                y ~ /^failed/ ? y : "runs"
            bad++
        } else if (x != y) {
            said = words[1] ":"
            n = split(x, p, "\t"); split(y, q, "\t")
            for (i = 1; i <= n; i++)
                if (p[i] != q[i])
                    said = said " " (i == n ? first_step(p[i], q[i]) : word_of(p[i]) " differs;")
            print said
            bad++
        }
    }
    END {
        printf "%s and %s: %d of %d combinations differ\n", a, b, bad, total
        exit bad > 0 || total == 0
    }' "$1" "$2" -
}

mkdir -p "$cache" || exit 2
temporary=$(mktemp -d "$cache/work.XXXXXX") || exit 2
clean() {
    git -C "$tree" worktree remove --force "$temporary/source" 2>/dev/null
    rm -rf "$temporary"
}
trap clean EXIT
take_commit "$1"
base=$results
if [ $# = 2 ]; then
    take_commit "$2"
else
    take_tree
fi
compare "$base" "$results" "$1" "${2:-this tree}"
