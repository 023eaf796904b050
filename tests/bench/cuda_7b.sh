#!/bin/sh
# What a block of LLaMA 7B asks of a GPU, and how long it is expected to take, from the counts of
# cuda_counts.sh for a small block of the same shape: forward and backward of one sequence of 2,048
# tokens, activations kept. Instructions and bytes of what is done for each number grow with tokens
# x hidden size (64 times), attention's with its tiles of 64 by 64 and its heads, the same head size.
#
# A kernel takes what takes longer, its instructions or its bytes: warp instructions at four a cycle
# and multiprocessor, all bytes that threads ask for from memory, which is too many where caches
# have them. Of attention also its matrix products at the stated rate, times 1.25 for ends of loops
# and of the grid. Products by their flops at the share of the stated rate that libraries reach.
#
#   tests/bench/cuda_7b.sh BUILD        # as cuda_counts.sh
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
counts=$(ARCH=llama HEADS=2 VOCAB=4096 HIDDEN=256 TOKENS=512 LOGITS='' QUANTIZE='' \
    "$here/cuda_counts.sh" "${1:?usage: cuda_7b.sh BUILD}") || exit 1
printf '%s\n' "$counts" | awk -F ' *[|] *' '
    function larger(a, b) { return a > b ? a : b }
    function line(name, launches, instructions, bytes, flops, share,    c, s) {
        printf "| %s | %d | %.1f | %.0f |", name, launches, instructions / 1e6, bytes / 1e6
        for (c = 1; c <= 3; c++) {
            s = larger(instructions / issue[c], bytes / memory[c])
            if (flops) s = larger(s, flops / (share ? share : reach[c]) / rate[c])
            if (share) s *= 1.25
            total[c] += s
            printf " %.0f |", s * 1e6
        }
        print ""
        n += launches; all += bytes }
    BEGIN {
        T = 2048; C = 4096; F = 11008; grown = T * C / (512 * 256)
        issue[1] = 128 * 4 * 2.52e9; memory[1] = 0.93e12; rate[1] = 165e12; reach[1] = 0.91
        issue[2] = 108 * 4 * 1.41e9; memory[2] = 1.8e12; rate[2] = 312e12; reach[2] = 0.77
        issue[3] = 132 * 4 * 1.7e9; memory[3] = 4.3e12; rate[3] = 989e12; reach[3] = 0.69
        print "| kernel | launches | instructions, 1e6 | bytes, 1e6 | RTX 4090, us | A100, us | H200, us |"
        print "|---|---:|---:|---:|---:|---:|---:|" }
    $2 ~ /_kernel$/ && $4 > 0 && $2 !~ /^(adam|sum_squares|embedding|loss)/ {
        tiles = $2 ~ /_mma_/
        # 32 heads in place of 2, 528 tiles at and below the diagonal in place of 36
        by = tiles ? 16 * 528 / 36 : grown
        line($2, $4, $4 * $5 * by, $4 * ($10 + $11) * 262144 * (tiles ? grown : by),
             tiles ? $4 * $7 * by * 4096 : 0, tiles ? 1 : 0) }
    END {
        flops = 2 * T * (4 * C * C + 3 * C * F)
        line("products, forward", 7, 0, 0, flops, 0)
        line("products, gradients of inputs", 7, 0, 0, flops, 0)
        line("products, gradients of weights", 7, 0, 0, flops, 0)
        block = n
        printf "| a block | %d | | %.0f |", n, all / 1e6
        for (c = 1; c <= 3; c++) { printf " %.0f |", total[c] * 1e6; total[c] *= 32 }
        print ""
        line("products of the head", 3, 0, 0, 3 * 2 * T * 32000 * C, 0)
        printf "| 32 blocks, these products, 1.2 us a launch: ms | %d | | |", n = 32 * block + 3
        for (c = 1; c <= 3; c++) printf " %.0f |", 1e3 * (total[c] + n * 1.2e-6)
        print "" }'
