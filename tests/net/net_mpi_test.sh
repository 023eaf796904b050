#!/bin/sh
# net over MPI: every case of tests/support/net_cases.h between processes, and ranks that fail.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"

if [ -n "$no_mpi" ]; then
    skip "ranks as processes" "$no_mpi"
    finish
fi
for n in 2 4; do
    check "every case over $n ranks ends" run 0 ranks $n "$BUILDDIR/tests/net/net_ranks"
    check "and holds" says "all $n ranks: passed"
done
for n in 4 6; do
    check "nets that are split of $n ranks end" run 0 ranks $n "$BUILDDIR/tests/net/net_ranks" split
    check "and hold" says "all $n ranks: passed"
done

fails() { # how, ranks
    ranks "${2:-2}" "$BUILDDIR/tests/net/net_ranks" "$1" >"$work/said.out" 2>"$work/said.err" </dev/null
    [ $? -ne 0 ]
}
check "a rank that hangs ends the other" fails sleep
check "which names it" says "rank 0 sees -110: rank 1 has sent nothing"
check "a rank that fails ends the other" fails tell
check "which says why" says "rank 0 sees -103: rank 1 has failed: the drive is full"
check "a rank that fails while others are busy" fails early 3
check "does not spoil what they are at" says "rank 0 trades, then sees -103: rank 1 has failed" \
    "rank 2 trades, then sees -103: rank 1 has failed"
ZINF_TEST_FOLDER=$work
export ZINF_TEST_FOLDER
for how in across idle; do
    rm -f "$work"/spoke-*
    check "a rank that fails on one axis ($how)" fails $how 4
    check "ends those on others" says "rank 0: hears of it" "rank 1: hears of it" \
        "rank 2: hears of it" "rank 3: hears of it"
done
check "ranks that do not run the same step end" fails length
check "and say so" says "bytes where"
finish
