# suite: the programs of the CUDA device's tests with the compiled module, whose PTX is interpreted.
# Read by kernels_test.sh and training_test.sh; each program's cases are cases here, with its name.
: "${ZINF_CUDA_MODULE:=$BUILDDIR/.libs/zinf-cuda.so}"
LD_LIBRARY_PATH=$BUILDDIR/tests/ptx/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
ZINF_STANDIN_STRICT=1
export ZINF_CUDA_MODULE LD_LIBRARY_PATH ZINF_STANDIN_STRICT
count=0
failed=0
said=$(mktemp "$BUILDDIR/tests/ptx/said.XXXXXX") || exit 99
trap 'rm -f "$said"' EXIT

case_line() { # ok or not ok, name
    count=$((count + 1))
    [ "$1" = ok ] || failed=1
    echo "$1 $count - $2"
}

# Generations that the module was built for, which PTX is there for.
generations=$(cat "$BUILDDIR/tests/ptx/lib/generations")
first_with_bf16=$(echo "$generations" | sed 's/[a-z]//' | awk '$1 >= 80' | sort -n | head -n 1)
has_generation() {
    echo "$generations" | grep -qx "$1"
}

# A program on a GPU of a capability. Whatever it skips is a failure: nothing may be missing here.
suite() { # capability, program...
    ZINF_STANDIN_CAPABILITY=$1
    export ZINF_STANDIN_CAPABILITY
    shift
    for program; do
        "$BUILDDIR/tests/$program" >"$said" 2>&1
        status=$?
        while read -r line; do
            name="$program on sm_$ZINF_STANDIN_CAPABILITY: ${line#* - }"
            case $line in
            *'# SKIP'*) case_line "not ok" "${name%% # SKIP*} (skipped: ${name##*# SKIP })" ;;
            'ok '*) case_line ok "$name" ;;
            'not ok '*) case_line "not ok" "$name" ;;
            '#'*) echo "$line" ;;
            esac
        done <"$said"
        [ $status -eq 0 ] || { tail -n 5 "$said" | sed 's/^/# /'; case_line "not ok" "$program: status $status"; }
    done
}

finish() {
    echo "1..$count"
    exit $failed
}
