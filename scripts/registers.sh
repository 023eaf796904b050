#!/bin/sh
# What the CUDA kernels take of each generation of GPUs, as a table in Markdown: the most registers
# a thread of any of a kernel's instances has, with the bytes that it spills, if any, behind a plus.
# Read from what ptxas said when the module was built, of files that are still there.
#
# usage: scripts/registers.sh BUILD
set -eu

[ $# -eq 1 ] || {
    echo "usage: $0 BUILD" >&2
    exit 2
}
source=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
for log in "$1"/kernels/cuda/*.lo.log; do
    name=${log##*/}
    [ ! -f "$source/kernels/cuda/${name%.lo.log}.cu" ] || cat "$log"
done | awk '
/Compiling entry function/ {
    arch = $0
    sub(/^.* for .sm_/, "", arch)
    sub(/[^0-9a-z].*$/, "", arch)
    match($0, /[a-z_][a-z0-9_]*_kernel/)
    kernel = substr($0, RSTART, RLENGTH - 7)
    archs[arch]; kernels[kernel]
    if (arch == first || first == "") { first = arch; instances[kernel]++ }
    spilled = 0
}
/bytes spill/ {
    for (i = 2; i < NF; i++)
        if ($(i + 1) == "bytes" && $(i + 2) == "spill") spilled += $i
}
/Used [0-9]+ registers/ {
    match($0, /Used [0-9]+/)
    used = substr($0, RSTART + 5, RLENGTH - 5) + 0
    if (used > most[kernel, arch]) most[kernel, arch] = used
    if (spilled > spills[kernel, arch]) spills[kernel, arch] = spilled
}
END {
    n = 0
    for (a in archs) sorted[n++] = a
    for (i = 1; i < n; i++)
        for (j = i; j && sorted[j] + 0 < sorted[j - 1] + 0; j--) {
            t = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = t
        }
    head = "| kernel | instances |"; line = "|---|---:|"
    for (i = 0; i < n; i++) { head = head " sm_" sorted[i] " |"; line = line "---:|" }
    print head; print line
    for (k in kernels) {
        row = "| " k " | " instances[k] " |"
        for (i = 0; i < n; i++) {
            row = row " " most[k, sorted[i]]
            if (spills[k, sorted[i]]) row = row "+" spills[k, sorted[i]]
            row = row " |"
        }
        print row | "sort"
    }
}'
