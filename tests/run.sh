#!/bin/sh
# Installs what is missing, builds, runs every test, and ends with "N passed, N failed, N skipped".
#
# usage: tests/run.sh [BUILD_FOLDER]     default: build-tests beside this folder
# CONFIGURE_FLAGS is given to configure. Failing cases, and skipped ones with their reasons, are
# printed before the last line; the status is 0 only if every case ran or said why not.
set -eu

source=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$source/build-tests}
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

"$source/scripts/install-deps.sh"
[ -x "$source/configure" ] || (cd "$source" && autoreconf -fi >/dev/null 2>&1) || {
    echo "tests/run.sh: autoreconf failed; run 'autoreconf -fi' in $source to see why" >&2
    exit 1
}
mkdir -p "$build"
cd "$build"
# shellcheck disable=SC2086  # flags are a list of words
"$source/configure" -q ${CONFIGURE_FLAGS-}
echo "tests/run.sh: building in $build"
make -s -j"$jobs"
status=0
make -s -j"$jobs" check >check.log 2>&1 || status=$?

failed=$(grep -cE '^(FAIL|XPASS|ERROR):' check.log || true)
passed=$(grep -cE '^PASS:' check.log || true)
skipped=$(grep -cE '^SKIP:' check.log || true)
grep -E '^SKIP:' check.log || true
if [ "$status" != 0 ] || [ "$failed" != 0 ]; then
    grep -E '^(FAIL|XPASS|ERROR):|\*\*\*|error:' check.log || true
    echo "tests/run.sh: all output is in $build/check.log and $build/tests/*.log"
    # A build that broke, or a program that died, counts: never green without a failure shown.
    [ "$failed" != 0 ] || failed=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
