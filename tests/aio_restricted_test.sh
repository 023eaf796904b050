#!/bin/sh
# The tests that move data to a drive again, as in a container: without io_uring, and
# with 64 KiB of locked memory.
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
n=0
failed=0
for limit in uring memlock; do
    for test in aio_test aio_faults_test aio_store_test aio_stripe_test offload_executor_test \
        offload_tiers_test; do
        n=$((n + 1))
        "$BUILDDIR/tests/restricted" $limit "$BUILDDIR/tests/$test" >"$work/out" 2>"$work/err"
        status=$?
        if [ $status -eq 77 ]; then
            echo "ok $n - $test, $limit # SKIP cannot be restricted here"
        elif [ $status -eq 0 ] && grep -q '^ok' "$work/out" && ! grep -q '^not ok' "$work/out"; then
            echo "ok $n - $test, $limit"
        else
            grep -B 5 '^not ok' "$work/out" | sed 's/^/# /'
            tail -n 5 "$work/err" | sed 's/^/# /'
            echo "not ok $n - $test, $limit"
            failed=1
        fi
    done
done
n=$((n + 1))
"$BUILDDIR/tests/restricted" uring "$BUILDDIR/zinf" report >"$work/out" 2>&1
status=$?
if [ $status -eq 77 ]; then
    echo "ok $n - the report names what refuses io_uring # SKIP cannot be restricted here"
elif grep -q 'io.uring.*refused.*seccomp=unconfined' "$work/out"; then
    echo "ok $n - the report names what refuses io_uring"
else
    grep io_uring "$work/out" | sed 's/^/# /'
    echo "not ok $n - the report names what refuses io_uring"
    failed=1
fi
echo "1..$n"
exit $failed
