#!/bin/sh
# The tests that move data to a drive again, as in a container: without io_uring, and
# with 64 KiB of locked memory.
. "$SRCDIR/tests/support/command.sh"
for limit in uring memlock; do
    for test in aio/aio_test aio/aio_faults_test aio/aio_store_test aio/aio_stripe_test offload/offload_executor_test \
        offload/offload_tiers_test; do
        "$BUILDDIR/tests/aio/restricted" $limit "$BUILDDIR/tests/$test" >"$work/said.out" \
            2>"$work/said.err"
        status=$?
        if [ $status -eq 77 ]; then
            skip "$test, $limit" "cannot be restricted here"
        else
            [ $status -eq 0 ] && grep -q '^ok' "$work/said.out" &&
                ! grep -q '^not ok' "$work/said.out"
            verdict $? "$test, $limit"
        fi
    done
done
"$BUILDDIR/tests/aio/restricted" uring "$zinf" report >"$work/said.out" 2>"$work/said.err"
if [ $? -eq 77 ]; then
    skip "the report names what refuses io_uring" "cannot be restricted here"
else
    grep -q 'io.uring.*refused.*seccomp=unconfined' "$work/said.out"
    verdict $? "the report names what refuses io_uring"
fi
finish
