#!/bin/sh
# arrows: includes point down only, as DESIGN.md section 3 draws the house, and what belongs to one
# place (io_uring, BLAS, intrinsics, CUDA) is included only there. Contract headers are named after
# their folder and the installed ones compile alone.
. "$SRCDIR/tests/support/command.sh"
cd "$SRCDIR" || exit 99
: "${CC:=cc}"

nothing() { # name, findings: one a line
    [ -z "$2" ] || echo "$2" | sed 's/^/# /'
    [ -z "$2" ]
    verdict $? "$1"
}

sources() { # folder
    find "$1" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort
}

# Lines "file:include" of quoted includes that are not of an allowed folder. build-config.h and
# headers of the same folder are always allowed; "base" and the others are folders.
strangers() { # folder, allowed names...
    folder=$1
    shift
    own=$(basename "$folder")
    allowed="build-config\\.h|$own/[a-z0-9_/]+\\.(h|cuh)"
    for name; do
        allowed="$allowed|$name"
    done
    sources "$folder" | xargs grep -HoE '^ *# *include +"[^"]*"' /dev/null |
        grep -vE ":[^:]*\"($allowed)\"\$"
}

# What each folder may see of the others: their contract headers.
base='base/[a-z_]+\.h'
below_offload='net/(net|mesh)\.h|aio/(aio|commit|drive_bench|steps)\.h|cpu_optim/(optim|optim_bench|pack)\.h|kernels/kernels\.h'
files='config/config\.h|formats/formats\.h|text/(text|lines|samples/samples|samples/flow|samples/task|samples/choices|chat/chat)\.h|metrics/metrics\.h'
nothing "base stands on nothing" "$(strangers src/base)"
nothing "aio stands on base" "$(strangers aio "$base")"
nothing "net stands on base" "$(strangers net "$base")"
nothing "cpu_optim stands on base" "$(strangers cpu_optim "$base")"
nothing "kernels stands on base" "$(strangers kernels "$base")"
nothing "offload stands on aio, cpu_optim, kernels" "$(strangers offload "$base" "$below_offload")"
nothing "config stands on base" "$(strangers src/config "$base")"
nothing "formats stands on base" "$(strangers src/formats "$base")"
nothing "text stands on base" "$(strangers src/text "$base")"
nothing "metrics stands on base" "$(strangers src/metrics "$base")"
nothing "model stands on kernels" "$(strangers src/model "$base" 'kernels/kernels\.h')"
nothing "train stands on all below it" \
    "$(strangers src/train "$base" "$below_offload" 'offload/(offload|trace)\.h' "$files" 'model/(model|graph|frame|tensors|composite)\.h')"
nothing "bench stands on the plans of train and the engines of aio" \
    "$(strangers src/bench "$base" 'aio/(aio|aio_engine)\.h' 'offload/offload\.h' 'train/estimate\.h' 'train/plan/estimated\.h')"
nothing "api stands on train" "$(strangers src/api "$base" '(kernels/kernels|net/net)\.h' "$files" \
    'model/(model|graph)\.h' 'train/(train|generate|checkpoints|estimate|score|seats)\.h')"
nothing "cli stands on the contracts" "$(strangers src/cli "$base" "$below_offload" 'api/(api|session|rows|generate|texts|speeds)\.h' \
    'offload/(offload|trace)\.h' "$files" 'model/(model|graph|frame|tensors)\.h' 'train/(train|estimate|checkpoints)\.h' 'bench/emulation\.h' 'cpu_optim/optim_bench\.h')"
# shellcheck disable=SC2010 # names of folders
nothing "every folder is known here" "$(ls -d src/*/ | grep -vE \
    '^src/(base|config|formats|text|metrics|model|train|bench|api|cli)/$')"

# ---- what belongs to one place ----

all() {
    for folder in aio net cpu_optim kernels offload src; do
        sources $folder
    done
}
# Files that include a header matching the pattern, but for those whose name matches the second.
only_in() { # header pattern, allowed files pattern
    all | xargs grep -lE "^ *# *include +[<\"]($1)[>\"]" /dev/null | grep -vE "^($2)\$"
}
nothing "io_uring only in its engine" \
    "$(only_in 'liburing\.h|linux/io_uring\.h' 'aio/aio_uring[a-z_]*\.c')"
nothing "BLAS only in kernels" "$(only_in '(openblas/)?cblas\.h|openblas_config\.h' 'kernels/.*')"
nothing "intrinsics only in the files of an instruction set" \
    "$(only_in '[a-z]*intrin\.h|arm_neon\.h' '(.*/)?[a-z_]*_(avx2|avx512|simd|neon)[a-z0-9_]*\.[ch]')"
nothing "CUDA only in kernels/cuda" "$(only_in '(cuda|cublas|nccl|nvtx)[A-Za-z0-9_/]*\.h(pp)?' \
    'kernels/cuda/.*')"
nothing "MPI only in its engine" "$(only_in 'mpi\.h' 'net/net_mpi\.c')"
nothing "cJSON only through base/json.h" "$(only_in '(cjson/)?cJSON\.h' 'src/base/json\.h')"

# ---- contract headers ----

missing=
for header in aio/aio.h net/net.h cpu_optim/optim.h kernels/kernels.h offload/offload.h src/base/base.h \
    src/config/config.h src/formats/formats.h src/text/text.h src/metrics/metrics.h src/model/model.h \
    src/train/train.h src/cli/cli.h; do
    if [ ! -f $header ]; then
        missing="$missing$header is missing
"
    elif [ "$(head -c 2 $header)" != '/*' ]; then
        missing="$missing$header does not open with what stands behind it
"
    fi
done
nothing "each folder has its contract header" "$missing"

installed=$(cat */local.mk src/*/local.mk | sed -e :a -e '/\\$/N; s/\\\n//; ta' |
    sed -n 's/^INSTALLED_H *+= *//p')
nothing "headers are installed" "$([ -n "$installed" ] || echo none)"
for header in $installed; do
    # Included, not compiled as the main file: clang calls an inline function of that unused.
    said=$(echo "#include \"$header\"" |
        $CC -std=gnu11 -Wall -Wextra -Werror -fsyntax-only -x c -I src -I . - 2>&1)
    nothing "$header compiles alone" "$said"
done
finish
