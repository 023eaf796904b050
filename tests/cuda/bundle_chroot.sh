#!/bin/sh
# Runs a bundle where nothing is installed: in the smallest system of a Debian release, as
# debootstrap makes it, with neither a toolkit nor a driver. The bundle starts, says what the machine
# lacks, and passes its own tests on the stand-in for CUDA and, interpreted, as compiled.
# By hand, as root, with a network: it is no part of `make check`. TAP, like the tests.
#
# usage: tests/cuda/bundle_chroot.sh BUNDLE FOLDER [SUITE [MIRROR]]
#   BUNDLE   what `make bundle` makes
#   FOLDER   where the system is made, in some 600 MB, and removed again; one that is there already,
#            made by debootstrap, is used and left
#   SUITE    the release; default: trixie
#   MIRROR   as debootstrap takes it
# PROGRAM_SECONDS is the limit of a program on the interpreter (default: 1200).
set -u

[ $# -ge 2 ] && [ "$(realpath -m -- "$2")" != / ] || {
    sed -n '/^# usage/,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
bundle=$1 folder=$2 suite=${3:-trixie}
count=0
failed=0
made=

leave() {
    umount "$folder/proc" 2>/dev/null
    if [ -n "$made" ]; then
        rm -rf --one-file-system -- "${folder:?}"
    else
        rm -rf -- "${folder:?}/bundle" "${folder:?}/results" "${folder:?}/said"
    fi
}
trap leave EXIT
trap 'exit 1' INT TERM

result() { # status, name
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $count - $2"
    else
        failed=1
        sed 's/^/# /' "$folder/said" | tail -n 15
        echo "not ok $count - $2"
    fi
}
# A command inside, in an empty environment; variables may come before it.
inside() {
    chroot "$folder" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@" \
        >"$folder/said" 2>&1 </dev/null
}
said() {
    for words; do
        grep -qF -e "$words" "$folder/said" || { echo "# no '$words'"; return 1; }
    done
}

if [ ! -e "$folder/etc/os-release" ]; then
    made=1
    debootstrap --variant=minbase "$suite" "$folder" ${4:+"$4"} >"$folder.log" 2>&1 || {
        tail -n 5 "$folder.log"
        exit 1
    }
    rm -f "$folder.log"
fi
mount -t proc proc "$folder/proc"
mkdir -p "$folder/bundle" && cp -a "$bundle/." "$folder/bundle/"
echo "# $(sed -n 's/^PRETTY_NAME=//p' "$folder/etc/os-release"), glibc $(chroot "$folder" ldd --version | sed -n 's/.* //;1p')"

inside /bundle/zinf --version
result $? "starts"
inside /bundle/zinf report && said "cuda" "libcublasLt"
result $? "says which of CUDA's libraries is not there"
inside /bundle/run-gpu-checks.sh /results
[ $? -eq 1 ] && said "there is no GPU to check" "libcublasLt" &&
    [ -s "$folder/results/summary.txt" ] && [ -s "$folder/results/logs.tar.gz" ]
result $? "the checks of a GPU end with what is missing, packed"
inside ZINF_CUDA_MODULE=/bundle/tests/zinf-cuda-standin.so /bundle/zinf doctor &&
    said "kernels    ok" "step       ok"
result $? "doctor, on the stand-in"

# Each program of the bundle: none may fail, or skip a case.
programs() { # how, variables...
    how=$1
    shift
    for program in "$folder"/bundle/tests/cuda/cuda_*_test; do
        name=${program##*/}
        inside "$@" SRCDIR=/bundle BUILDDIR=/tmp timeout -k 5 "${PROGRAM_SECONDS:-1200}" \
            "/bundle/tests/cuda/$name"
        status=$?
        ! grep -q '^not ok\|# SKIP' "$folder/said" && [ $status -eq 0 ]
        result $? "$name, $how: $(grep -c '^ok' "$folder/said") cases"
    done
}
mkdir -p "$folder/tmp"
programs "on the stand-in" ZINF_CUDA_MODULE=/bundle/tests/zinf-cuda-standin.so \
    LD_LIBRARY_PATH=/bundle/lib
programs "interpreted" ZINF_CUDA_MODULE=/bundle/zinf-cuda.so ZINF_STANDIN_STRICT=1 \
    LD_LIBRARY_PATH=/bundle/tests/ptx/lib:/bundle/lib
inside /bundle/run-gpu-checks.sh --without-gpu /results
[ $? -eq 0 ] && ! grep -q FAILED "$folder/said"
result $? "run-gpu-checks.sh --without-gpu"
echo "1..$count"
exit $failed
