# suite: the programs of the CUDA device's tests with the compiled module, whose PTX is interpreted.
# Read by kernels_test.sh and training_test.sh; each program's cases are cases here, with its name.
: "${ZINF_CUDA_MODULE:=$BUILDDIR/.libs/zinf-cuda.so}"
LD_LIBRARY_PATH=$BUILDDIR/tests/ptx/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
ZINF_STANDIN_STRICT=1
OMP_WAIT_POLICY=passive # the host device's threads would spin while the interpreter runs
export ZINF_CUDA_MODULE LD_LIBRARY_PATH ZINF_STANDIN_STRICT OMP_WAIT_POLICY
count=0
failed=0
said=$(mktemp "$BUILDDIR/tests/ptx/said.XXXXXX") || exit 99
ZINF_PTX_RECORD=$said.record # what was launched: see tests/ptx/ptx.h
export ZINF_PTX_RECORD
: >"$ZINF_PTX_RECORD"
trap 'rm -f "$said" "$ZINF_PTX_RECORD"' EXIT

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
        "$BUILDDIR/tests/cuda/$program" >"$said" 2>&1
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

# A line for each kernel: how many of its instances (types, head sizes, forms) were launched, in which
# types, how often, with how many geometries of grid and shared memory. One that was never launched
# is a failure.
every_kernel_ran() {
    awk '$1 ~ /_kernel/ { launches[$1] += $2; if ($3 > shapes[$1]) shapes[$1] = $3 }
        END { for (k in launches) {
            match(k, /[a-z_][a-z0-9_]*_kernel/)
            name = substr(k, RSTART, RLENGTH)
            all[name]++
            if (!launches[k]) { print "never launched: " k; continue }
            ran[name]++; times[name] += launches[k]; grids[name] += shapes[k]
            if (k ~ /4bf16/) types[name] = types[name] " bf16"
            if (k ~ /3f16/) types[name] = types[name] " f16"
            if (k ~ /If/ || k ~ /fE/) types[name] = types[name] " fp32"
        }
        for (name in all) {
            n = split(types[name], list, " "); seen = ""
            for (i = 1; i <= n; i++) if (!index(seen " ", " " list[i] " ")) seen = seen " " list[i]
            printf "%s:%s %d of %d instances, %d launches, %d geometries\n", name, seen, ran[name],
                all[name], times[name], grids[name] } }' "$ZINF_PTX_RECORD" |
        sort >"$said"
    sed 's/^/# /' "$said"
    if [ -s "$said" ] && ! grep -q "^never" "$said"; then
        case_line ok "every kernel ran"
    else
        case_line "not ok" "every kernel ran"
    fi
}

finish() {
    echo "1..$count"
    exit $failed
}
