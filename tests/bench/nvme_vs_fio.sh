#!/bin/sh
# The engine against fio: same file, block size, depth, O_DIRECT, registered buffers on huge pages, a
# flush at the end of every run with writes; runs in turns, so that a drive that changes its mind
# does so for both. Ratios are of the medians; above 1 is faster (CPU: below 1 is cheaper).
#
# nvme_vs_fio.sh FOLDER [SIZE [ROUNDS [BLOCK [DEPTH]]]]     BENCH=path of drive_bench
# Writes SIZE once, then (SIZE * 6 cases * 2 programs * ROUNDS) in reads and writes.
set -eu
folder=${1:?usage: nvme_vs_fio.sh FOLDER [SIZE [ROUNDS [BLOCK [DEPTH]]]]}
size=${2:-4g} rounds=${3:-3} block=${4:-1m} depth=${5:-32}
bench=${BENCH:-${BUILDDIR:-.}/tests/bench/drive_bench}
command -v fio >/dev/null || { echo "nvme_vs_fio: fio is not installed" >&2; exit 1; }
[ -x "$bench" ] || { echo "nvme_vs_fio: no $bench: make it, or set BENCH" >&2; exit 1; }
file=$folder/nvme_vs_fio.$$ work=$(mktemp -d)
trap 'rm -rf "$file" "$work"' EXIT
trap 'exit 1' INT TERM

# Prints GB/s and CPU seconds per GB. fio's buffers stay as they are between blocks, for scrambling
# them would be charged to it, and the tunable of glibc gives them huge pages: without those it is
# slower and takes up to five times the CPU. Fields of the terse form: KiB and ms of reads, of
# writes, CPU %.
run_fio() { # fio's name of the pattern
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --minimal --terse-version=3 --name=case \
        --filename="$file" --size="$size" --bs="$block" --iodepth="$depth" --rw="$1" \
        --ioengine=io_uring --direct=1 --registerfiles=1 --fixedbufs=1 --scramble_buffers=0 \
        --overwrite=1 --end_fsync=1 --random_generator=lfsr |
        awk -F';' '{ms = $9 > $50 ? $9 : $50; gb = ($6 + $47) * 1024e-9; s = ms / 1000
            printf "%.4f %.5f\n", gb / s, ($88 + $89) / 100 * s / gb}'
}
run_ours() { # mix, order
    "$bench" "$file" "$1" "$2" "$block" "$depth" uring | cut -d' ' -f1,2
}
median() { # column, file
    cut -d' ' -f"$1" "$2" | sort -g | awk '{v[NR] = $1}
        END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'
}

# Random numbers, written whole and flushed: what follows are overwrites of data.
fio --name=fill --filename="$file" --size="$size" --bs=4m --rw=write --direct=1 --ioengine=io_uring \
    --iodepth=8 --refill_buffers=1 --end_fsync=1 --minimal >/dev/null

echo "$size file, blocks of $block, depth $depth, $rounds rounds, $(fio --version)"
printf '%-16s %9s %9s %7s %12s %12s %7s\n' case 'zinf GB/s' 'fio GB/s' ratio 'zinf CPU/GB' 'fio CPU/GB' \
    ratio
while read -r mix order pattern; do
    : >"$work/ours"
    : >"$work/fio"
    for round in $(seq "$rounds"); do
        run_fio "$pattern" >>"$work/fio" </dev/null
        run_ours "$mix" "$order" >>"$work/ours" </dev/null
    done
    echo "$mix-$order $(median 1 "$work/ours") $(median 1 "$work/fio")" \
        "$(median 2 "$work/ours") $(median 2 "$work/fio")" |
        awk '{printf "%-16s %9.3f %9.3f %7.3f %12.4f %12.4f %7.3f\n", $1, $2, $3, $2 / $3, $4, $5, $4 / $5}'
done <<END
read seq read
read random randread
write seq write
write random randwrite
mixed seq rw
mixed random randrw
END
