#!/usr/bin/env bash
# Installs what is missing, builds, runs the tests of `make check`, and shows what failed and what
# was skipped and why. The last line is `N passed, N failed, N skipped`, summed over the cases of
# all test programs; status 1 when something failed.
#
# usage: tests/run.sh [--all] [ARGUMENT-OF-CONFIGURE...]
#
#   --all        also the tests that tests/long.txt lists, which take most of the time
#   ZINF_BUILD   build folder (default: build)
set -euo pipefail

source=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=${ZINF_BUILD:-$source/build}
all=no
if [ "${1-}" = --all ]; then
    all=yes
    shift
fi

# What cannot be installed here is skipped by its tests, with the reason.
"$source/scripts/install-deps.sh" --tests || true
"$source/scripts/build.sh" "$build" "$@"
cd "$build"
# Results of an earlier run must not be counted: a test may have gone since.
find tests -name '*.trs' -exec rm -f {} +
long=$(sed -n 's/^\(tests\/[^ ]*\).*/\1/p' "$source/tests/long.txt")
chosen=$(make -s --no-print-directory list-tests)
if [ "$all" = no ]; then
    chosen=$(grep -vxFf <(printf '%s\n' "$long") <<<"$chosen")
    echo "tests: make check without $(wc -w <<<"$long") long tests; tests/run.sh --all runs them too"
else # the long ones first: none of them runs alone at the end
    chosen=$(grep -xFf <(printf '%s\n' "$long") <<<"$chosen" || true
        grep -vxFf <(printf '%s\n' "$long") <<<"$chosen")
    echo "tests: make check"
fi
status=0
# Two more than there are CPUs: tests of several processes wait for most of their time, and those
# with parameters on a drive for that.
make -s -k -j"$(($(nproc) + 2))" check TESTS="${chosen//$'\n'/ }" >check.log 2>&1 </dev/null || status=$?

# A .trs file holds one line a case: ":test-result: PASS".
results=$(find tests -name '*.trs' | LC_ALL=C sort | while IFS= read -r trs; do
    program=${trs#tests/}
    sed -n "s|^:test-result: *|${program%.trs}: |p" "$trs"
done)
# The driver adds an ERROR for the exit status of a program whose failing cases it has listed.
results=$(awk '$2 == "FAIL" { failing[$1] = 1 } $2 != "ERROR" || !failing[$1]' <<<"$results")
count() { grep -cE "^[^ ]+: ($1)( |\$)" <<<"$results" || true; }
passed=$(count 'PASS|XFAIL')
failed=$(count 'FAIL|XPASS|ERROR')
skipped=$(count SKIP)

# Names of cases and reasons of skips are only in what the drivers print.
grep -E '^SKIP: ' check.log | LC_ALL=C sort -u || true
if [ "$failed" -gt 0 ]; then
    grep -E '^(FAIL|XPASS|ERROR): ' check.log | LC_ALL=C sort -u || true
    find tests -name '*.trs' -exec grep -lE '^:test-result: (FAIL|XPASS|ERROR)' {} + |
        while IFS= read -r trs; do
            echo "---- $build/${trs%.trs}.log"
            # What a case says stands before its "not ok".
            { grep -hE -B15 '^(not ok|ERROR)' "${trs%.trs}.log" | grep -vE '^(ok|PASS:) ' |
                head -n 40; } || true
        done
elif [ "$status" -ne 0 ] || [ "$passed" -eq 0 ]; then
    # A test program that was not built, or make itself: that is a failure too.
    tail -n 30 check.log
    failed=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
