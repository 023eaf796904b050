#!/bin/sh
# check_san: every test again under sanitizers, each in a build tree of its own beside the present
# one. Usage: check_san.sh [LIST...], a LIST being what -fsanitize= takes; without, address and
# undefined behaviour, then threads. `make check-san` runs it. The trees stay: a second run builds
# only what changed.
srcdir=${SRCDIR:-$(dirname "$0")/..}
srcdir=$(cd "$srcdir" && pwd) || exit 1
[ $# -gt 0 ] || set -- address,undefined thread

if [ -f "$srcdir/config.status" ]; then
    echo "check-san: $srcdir is configured in place; run 'make distclean' there and build in a" \
        "folder of its own" >&2
    exit 1
fi
if [ ! -x "$srcdir/configure" ]; then
    echo "check-san: no configure in $srcdir; run 'autoreconf -fi' there" >&2
    exit 1
fi
# The options of the present build tree, quoted as config.status quotes them.
options=
[ ! -x ./config.status ] || options=$(./config.status --config)
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
jobs=$(getconf _NPROCESSORS_ONLN)

# Tests that measure memory or time read ZINF_SANITIZER and skip. OpenBLAS is not instrumented, and
# its threads would only hide ours. Frames that outlive their function are not looked for: GCC 12
# places vectors of 64 bytes in such frames at multiples of 32, and what it then stores by aligned
# moves ends the test (GCC bug 110027).
export OPENBLAS_NUM_THREADS=1
export ASAN_OPTIONS="strict_string_checks=1:${ASAN_OPTIONS-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS-}"
export LSAN_OPTIONS="suppressions=$srcdir/tests/lsan.supp:print_suppressions=0:${LSAN_OPTIONS-}"
export TSAN_OPTIONS="suppressions=$srcdir/tests/tsan.supp:halt_on_error=0:${TSAN_OPTIONS-}"
# Sanitizers slow a test down by up to twenty times.
export ZINF_TEST_LIMIT="${ZINF_TEST_LIMIT:-7200}"

# Configure's own probes leak, which is no concern of ours.
configure() { # sanitizer list
    eval "ASAN_OPTIONS=detect_leaks=0 '$srcdir/configure' -q $options --enable-sanitizer='$1'"
}

failed=
for list; do
    tree=build-san-$(echo "$list" | tr , -)
    echo "check-san: $list in $tree"
    mkdir -p "$tree" || exit 1
    (
        cd "$tree" || exit 1
        export ZINF_SANITIZER="$list"
        # gcc's OpenMP runtime is not instrumented, and its barriers would go unseen: teams of one
        # leave the lanes' own threads, which are what is looked at.
        [ "$list" != thread ] || export OMP_THREAD_LIMIT=1
        [ -f Makefile ] || configure "$list" || exit 1
        make -j"$jobs" check
    ) || failed="$failed $list"
done
if [ -n "$failed" ]; then
    echo "check-san: failed under:$failed" >&2
    exit 1
fi
echo "check-san: clean"
