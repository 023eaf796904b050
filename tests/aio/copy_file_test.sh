#!/bin/sh
# The example program copies files of awkward sizes exactly, and refuses an existing target.
. "$SRCDIR/tests/support/command.sh"
program=$BUILDDIR/examples/copy_file
for bytes in 0 1 4095 4096 4097 70000001; do
    head -c $bytes /dev/urandom >"$work/source"
    "$program" "$work/source" "$work/target" && cmp "$work/source" "$work/target"
    verdict $? "copies $bytes bytes"
    [ $bytes = 4097 ] || rm -f "$work/target"
    if [ $bytes = 4097 ]; then
        "$program" "$work/source" "$work/target" 2>"$work/said.err"
        [ $? -eq 1 ] && grep -q "$work/target" "$work/said.err"
        verdict $? "keeps an existing target"
        rm -f "$work/target"
    fi
done
"$program" "$work/missing" "$work/target" 2>"$work/said.err"
[ $? -eq 1 ] && grep -q "$work/missing: No such file" "$work/said.err"
verdict $? "names a missing source"
finish
