#!/bin/sh
# arrows: includes point down only, as DESIGN.md section 3 draws the house, and what belongs to one
# place (io_uring, BLAS, intrinsics, CUDA) is included only there. Contract headers are named after
# their folder and the installed ones compile alone.
n=0
failed=0
cd "$SRCDIR" || exit 99
: "${CC:=cc}"

# Prints what was found wrong, one a line, as a TAP case.
check() { # name, findings
    n=$((n + 1))
    if [ -z "$2" ]; then
        echo "ok $n - $1"
    else
        echo "$2" | sed 's/^/# /'
        echo "not ok $n - $1"
        failed=1
    fi
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
base='base/[a-z]+\.h'
below_offload='aio/(aio|commit|drive_bench|steps)\.h|cpu_optim/(optim|optim_bench)\.h|kernels/kernels\.h'
files='config/config\.h|formats/formats\.h|text/text\.h'
check "base stands on nothing" "$(strangers src/base)"
check "aio stands on base" "$(strangers aio "$base")"
check "cpu_optim stands on base" "$(strangers cpu_optim "$base")"
check "kernels stands on base" "$(strangers kernels "$base")"
check "offload stands on aio, cpu_optim, kernels" "$(strangers offload "$base" "$below_offload")"
check "config stands on base" "$(strangers src/config "$base")"
check "formats stands on base" "$(strangers src/formats "$base")"
check "text stands on base" "$(strangers src/text "$base")"
check "model stands on kernels" "$(strangers src/model "$base" 'kernels/kernels\.h')"
check "train stands on all below it" \
    "$(strangers src/train "$base" "$below_offload" 'offload/(offload|trace)\.h' "$files" 'model/model\.h')"
check "cli stands on the contracts" "$(strangers src/cli "$base" "$below_offload" \
    'offload/(offload|trace)\.h' "$files" 'model/model\.h' 'train/train\.h' 'cpu_optim/optim_bench\.h')"
check "every folder is known here" "$(ls -d src/*/ | grep -vE \
    '^src/(base|config|formats|text|model|train|cli)/$')"

# ---- what belongs to one place ----

all() {
    for folder in aio cpu_optim kernels offload src; do
        sources $folder
    done
}
# Files that include a header matching the pattern, but for those whose name matches the second.
only_in() { # header pattern, allowed files pattern
    all | xargs grep -lE "^ *# *include +[<\"]($1)[>\"]" /dev/null | grep -vE "^($2)\$"
}
check "io_uring only in its engine" \
    "$(only_in 'liburing\.h|linux/io_uring\.h' 'aio/aio_uring[a-z_]*\.c')"
check "BLAS only in kernels" "$(only_in '(openblas/)?cblas\.h|openblas_config\.h' 'kernels/.*')"
check "intrinsics only in the files of an instruction set" \
    "$(only_in '[a-z]*intrin\.h|arm_neon\.h' '(.*/)?[a-z_]*_(avx2|avx512|simd|neon)[a-z0-9_]*\.[ch]')"
check "CUDA only in kernels/cuda" "$(only_in '(cuda|cublas|nccl|nvtx)[A-Za-z0-9_/]*\.h(pp)?' \
    'kernels/cuda/.*')"
check "cJSON only through base/json.h" "$(only_in '(cjson/)?cJSON\.h' 'src/base/json\.h')"

# ---- contract headers ----

missing=
for header in aio/aio.h cpu_optim/optim.h kernels/kernels.h offload/offload.h src/base/base.h \
    src/config/config.h src/formats/formats.h src/text/text.h src/model/model.h src/train/train.h \
    src/cli/cli.h; do
    if [ ! -f $header ]; then
        missing="$missing$header is missing
"
    elif [ "$(head -c 2 $header)" != '/*' ]; then
        missing="$missing$header does not open with what stands behind it
"
    fi
done
check "each folder has its contract header" "$missing"

installed=$(cat */local.mk src/*/local.mk | sed -e :a -e '/\\$/N; s/\\\n//; ta' |
    sed -n 's/^INSTALLED_H *+= *//p')
check "headers are installed" "$([ -n "$installed" ] || echo none)"
for header in $installed; do
    # Included, not compiled as the main file: clang calls an inline function of that unused.
    said=$(echo "#include \"$header\"" |
        $CC -std=gnu11 -Wall -Wextra -Werror -fsyntax-only -x c -I src -I . - 2>&1)
    check "$header compiles alone" "$said"
done
echo "1..$n"
exit $failed
