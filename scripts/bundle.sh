#!/bin/sh
# Makes a folder that runs zinf with its CUDA device, its GPU tests and benches on any x86-64 Linux
# with an NVIDIA driver and CUDA's libraries, without installing anything: the command, the module,
# the tests, and the shared libraries that are neither the system's nor NVIDIA's. Beside it the same
# in one file, FOLDER.tar.gz, which is a third of it on the way to another machine.
#
# usage: scripts/bundle.sh BUILD FOLDER     BUILD: a build with the CUDA module, after `make check`
#                                           programs were made (`make bundle` does both)
set -eu

[ $# -eq 2 ] || {
    echo "usage: $0 BUILD FOLDER" >&2
    exit 2
}
source=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$1 folder=$2
module=$build/.libs/zinf-cuda.so
[ -f "$module" ] || {
    echo "bundle: $module is missing: configure with --with-cuda and run make" >&2
    exit 1
}
rm -rf "${folder:?}"
mkdir -p "$folder/bin" "$folder/lib" "$folder/tests/bench" "$folder/tests/cuda"
cp "$build/zinf" "$folder/bin/"
cp "$module" "$folder/"
for test in "$build"/tests/cuda/cuda_*_test; do
    case $test in *cuda_standin_*) ;; *) cp "$test" "$folder/tests/cuda/" ;; esac
done
cp "$source"/tests/bench/gpu.sh "$source"/tests/bench/gpus.sh "$source"/tests/bench/gpu_common.sh \
    "$source/tests/bench/torch_gpt2_gpu.py" "$folder/tests/bench/"
mkdir "$folder/tests/fixtures"
grep -oh '"[a-z0-9_]\{1,\}"' "$source"/tests/cuda/cuda_*_test.c | tr -d '"' | sort -u |
    while read -r fixture; do # what the tests name
        [ ! -d "$source/tests/fixtures/$fixture" ] ||
            cp -R "$source/tests/fixtures/$fixture" "$folder/tests/fixtures/"
    done

# What runs the same checks on a machine without a GPU: a stand-in for CUDA, and the interpreter of
# the module's PTX.
if [ -f "$build/tests/.libs/zinf-cuda-standin.so" ]; then
    cp "$build/tests/.libs/zinf-cuda-standin.so" "$folder/tests/"
fi
interpreter=
for library in "$build"/tests/ptx/lib/libcu*.so.*; do
    [ -f "$library" ] || continue
    interpreter=$library
    mkdir -p "$folder/tests/ptx/lib"
    case $library in
    */libcudart*) cp -L "$library" "$folder/tests/ptx/lib/" ;;
    *) ln -s "$(readlink "$library")" "$folder/tests/ptx/lib/${library##*/}" ;;
    esac
done

# OpenBLAS is loaded by its name, so it is in no list of what a program needs.
blas=$(sed -n 's/^#define ZINF_BLAS_LIBRARY "\(.*\)"/\1/p' "$build/build-config.h")
blas=$(ldconfig -p | awk -v name="$blas" '$1 == name { print $NF; exit }')
[ -z "$blas" ] || cp -L "$blas" "$folder/lib/"

# glibc, the driver and cuBLAS (half a gigabyte) are the machine's; CUDA's small runtime library and
# the compiler's come along, where the module looks for them itself.
ldd "$folder/bin/zinf" ${blas:+"$blas"} "$folder"/tests/cuda/cuda_*_test "$module" ${interpreter:+"$interpreter"} | awk '$2 == "=>" { print $3 }' | sort -u |
    while read -r library; do
        case ${library##*/} in
        libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so* | ld-linux* | libcublas* | \
            libcuda.so* | libnv*) ;;
        *) cp -L "$library" "$folder/lib/" ;;
        esac
    done
find "$folder" -type f \( -name '*.so*' -o -name 'cuda_*_test' -o -name zinf \) \
    -exec strip --strip-unneeded {} + 2>/dev/null || true

# The newest of glibc's interfaces that something here was linked to.
find "$folder" -type f \( -name '*.so*' -o -name 'cuda_*_test' -o -name zinf \) \
    -exec objdump -T {} + 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -u -V | tail -n 1 |
    sed 's/GLIBC_//' >"$folder/lib/glibc"

cat >"$folder/zinf" <<'END'
#!/bin/sh
# The command with the libraries and the CUDA module of this folder.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
LD_LIBRARY_PATH=${INTERPRETER:+$INTERPRETER:}$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
ZINF_CUDA_MODULE=${ZINF_CUDA_MODULE:-$here/zinf-cuda.so}
export LD_LIBRARY_PATH ZINF_CUDA_MODULE
if ! "$here/bin/zinf" --version >/dev/null 2>&1; then
    echo "zinf does not start here: it needs an x86-64 machine with glibc $(cat "$here/lib/glibc")" \
        "or newer; this is $(uname -m) with $(ldd --version 2>&1 | head -n 1)" >&2
fi
exec "$here/bin/zinf" "$@"
END
chmod +x "$folder/zinf"

cat >"$folder/run-gpu-checks.sh" <<'END'
#!/bin/sh
# All checks and benches of the GPU; results in the folder RESULTS.
# usage: run-gpu-checks.sh [--without-gpu] RESULTS    --without-gpu: the tests alone, interpreted
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if [ "$1" = --without-gpu ]; then
    shift
    [ -d "$here/tests/ptx/lib" ] || { echo "this bundle has no interpreter" >&2; exit 2; }
    export INTERPRETER="$here/tests/ptx/lib" ZINF_STANDIN_STRICT=1 SUITE_LIMIT=300 SUITE_SECONDS=540
    set -- "$1" suite
fi
exec bash "$here/tests/bench/gpu.sh" "$here" "$@"
END
chmod +x "$folder/run-gpu-checks.sh"
tar -C "$(dirname -- "$folder")" -czf "$folder.tar.gz" "$(basename -- "$folder")"
du -sh "$folder" "$folder.tar.gz"
