#!/bin/sh
# The example program copies files of awkward sizes exactly, and refuses an existing target.
program=$BUILDDIR/examples/copy_file
folder=$BUILDDIR/copy_file_test.$$
mkdir "$folder" || exit 99
trap 'rm -rf "$folder"' EXIT
count=0
failed=0
check() { # name, status
    count=$((count + 1))
    if [ "$2" -eq 0 ]; then echo "ok $count - $1"; else echo "not ok $count - $1"; failed=1; fi
}
for bytes in 0 1 4095 4096 4097 70000001; do
    head -c $bytes /dev/urandom >"$folder/source"
    "$program" "$folder/source" "$folder/target" && cmp "$folder/source" "$folder/target"
    check "copies $bytes bytes" $?
    [ $bytes = 4097 ] || rm -f "$folder/target"
    if [ $bytes = 4097 ]; then
        "$program" "$folder/source" "$folder/target" 2>"$folder/said"
        [ $? -eq 1 ] && grep -q "$folder/target" "$folder/said"
        check "keeps an existing target" $?
        rm -f "$folder/target"
    fi
done
"$program" "$folder/missing" "$folder/target" 2>"$folder/said"
[ $? -eq 1 ] && grep -q "$folder/missing: No such file" "$folder/said"
check "names a missing source" $?
echo "1..$count"
exit $failed
