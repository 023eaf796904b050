#!/bin/sh
# check_ptxas: reads what `nvcc -Xptxas -v` said of kernels and fails where one spills registers,
# keeps anything on a stack (both are slow memory of the GPU), or takes more static shared memory
# than launch() in kernel.cuh reckons with (STATIC_SHARED).
# Usage: check_ptxas.sh LOG
awk '
/Compiling entry function/ { kernel = $0; sub(/^.*function ./, "", kernel); sub(/. for.*$/, "", kernel)
    arch = $0; sub(/^.* for ./, "", arch); sub(/.$/, "", arch) }
/bytes stack frame/ && $1 > 0 { print "check_ptxas: " kernel " on " arch " has a stack:" $0; bad = 1 }
/bytes spill/ {
    for (i = 2; i < NF; i++)
        if ($(i + 1) == "bytes" && $(i + 2) == "spill" && $i > 0) spilled = 1
    if (spilled) { print "check_ptxas: " kernel " on " arch " spills:" $0; bad = 1; spilled = 0 }
}
/bytes smem/ {
    for (i = 2; i < NF; i++)
        if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/ && $i > 8192) {
            print "check_ptxas: " kernel " on " arch " takes " $i " bytes of shared memory"; bad = 1 }
}
END { exit bad }' "$1" >&2
