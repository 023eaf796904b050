#!/bin/sh
# What a training step asks of a GPU, counted without one: the compiled CUDA module runs on the
# interpreter of its PTX (tests/ptx), and for each kernel the launches of a step and of one more
# block are printed, with what one launch does: instructions of warps, branches taken, matrix
# instructions (mma), bytes of global memory read and written by threads. A model in bf16 with a
# hidden size of 256 and four heads of 64; a step of 512 tokens.
#
# Of kernels without mma the last column is the time in which an H200 issues their instructions
# over the time in which its memory moves their bytes: 132 multiprocessors that start four
# instructions of warps in each of 1.7e9 cycles, and 4.3e12 bytes a second, as a copy there reaches.
#
#   tests/bench/cuda_counts.sh BUILD        # configured with CUDA, after make check's programs
#   ARCH=llama HEADS=2 VOCAB=4096 tests/bench/cuda_counts.sh BUILD     # instead of gpt2, 4 and 257
#   LOGITS="32000 151936" tests/bench/cuda_counts.sh BUILD     # the loss alone, of so many logits a
#                                         row, in place of a step; by the bytes that it cannot do
#                                         without: each logit read, and each gradient written in bf16
#   NORMS="64 320" tests/bench/cuda_counts.sh BUILD     # norms alone, of rows of so many numbers, by
#                                         the bytes that they cannot do without: each number of x,
#                                         y, dy, dx and of a sum and its terms once, in bf16
#   ARCH=llama QUANTIZE=nf4 tests/bench/cuda_counts.sh BUILD   # with adapters above weights in 4 bits
build=$(cd "${1:?usage: cuda_counts.sh BUILD}" && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
: "${ZINF_CUDA_MODULE:=$build/.libs/zinf-cuda.so}"
LD_LIBRARY_PATH=$build/tests/ptx/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
ZINF_STANDIN_CAPABILITY=$(sed 's/[a-z]//' "$build/tests/ptx/lib/generations" | awk '$1 >= 80' |
    sort -n | head -n 1)
export ZINF_CUDA_MODULE LD_LIBRARY_PATH ZINF_STANDIN_CAPABILITY
if [ "${LOGITS:-}" ]; then
    echo "| columns | forward | backward |"
    echo "|---:|---:|---:|"
    for columns in $LOGITS; do
        rm -f "$work/loss"
        ZINF_PTX_RECORD=$work/loss "$build/tests/bench/loss_counts" "$columns" "${CAP:-0}" || exit 1
        awk -v rows=8 -v columns=$columns '
            function over(made, bytes) { return made / (132 * 4 * 1.7e9) / (bytes / 4.3e12) }
            /loss_update/ { forward += $4 }
            /loss_backward/ { backward += $4 }
            END { n = rows * columns
                printf "| %d | %.2f | %.2f |\n", columns, over(forward, 4 * n),
                    over(backward, 6 * n) }' \
            "$work/loss"
    done
    exit
fi
if [ "${NORMS:-}" ]; then
    echo "| columns | norm | forward | sum and norm | gradients | dx alone |"
    echo "|---:|---|---:|---:|---:|---:|"
    for columns in $NORMS; do
        for norm in layer rms; do
            printf '| %d | %s |' "$columns" $norm
            for what in forward:4 sum:8 gradient:6 dx:6; do
                rm -f "$work/norm"
                ZINF_PTX_RECORD=$work/norm "$build/tests/bench/norm_counts" "$columns" \
                    "${what%:*}" $norm || exit 1
                awk -v bytes="${what#*:}" -v n=$((4194304 / columns * columns)) '
                    /_kernel/ { made += $4 }
                    END { printf " %.2f |", made / (132 * 4 * 1.7e9) / (n * bytes / 4.3e12) }' \
                    "$work/norm"
            done
            echo
        done
    done
    exit
fi
hidden=${HIDDEN:-256} tokens=${TOKENS:-512} vocab=${VOCAB:-257} arch=${ARCH:-gpt2} heads=${HEADS:-4}
size=$([ "$arch" = gpt2 ] && echo small || echo 7b)
seq -f 'line %g of a text that is long enough for some windows' 200 >"$work/text"
more=${QUANTIZE:+", \"quantize\": \"$QUANTIZE\", \"adapter\": {\"r\": 8, \"lora_alpha\": 8}"}
cat >"$work/config.json" <<END
{"train_batch_size": 1, "bf16": {"enabled": true}, "gradient_clipping": 1.0,
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
 "zinf": {"optimizer_device": "auto"$more}}
END

# Counts of a run of so many blocks and steps.
count() { # blocks, steps, file
    model=$work/model-$1
    [ -e "$model" ] || "$build/zinf" init --arch "$arch" --size "$size" --layers "$1" --hidden $hidden --heads "$heads" \
        --vocab "$vocab" --context $tokens --tokenizer bytes --dtype bf16 --config-only \
        --output "$model" >/dev/null || exit 1
    ZINF_PTX_RECORD=$3 "$build/zinf" train --model "$model" --init --data "$work/text" \
        --config "$work/config.json" --device cuda --device-memory 512MiB --seq-len $tokens \
        --steps "$2" --dropout 0 --no-final-checkpoint --overwrite --output "$work/run" \
        >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
}
count 1 2 "$work/one-2"
count 1 3 "$work/one-3"
count 2 2 "$work/two-2"
count 2 3 "$work/two-3"
awk -v unit=$((hidden * tokens * 2)) '
    # a run after another: launches and sums of each kernel
    FNR == 1 { file++ }
    { key = $1
      if (match(key, /[a-z0-9_]+_kernel/)) {
          key = substr(key, RSTART, RLENGTH); sub(/^[0-9]+/, "", key) }
      names[key]
      launches[file, key] += $2
      for (i = 4; i <= 9; i++) sums[file, key, i] += $i }
    function step(first, key, i) { # of what one more step adds
        return i ? sums[first + 1, key, i] - sums[first, key, i] \
                 : launches[first + 1, key] - launches[first, key] }
    END {
        print "| kernel | launches a step | a block | instructions | branches | mma | instructions/mma | branches/mma | read | written | issue/memory |"
        print "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
        for (key in names) {
            n = step(1, key, 0); block = step(3, key, 0) - n
            all += n; blocks += block
            read += step(3, key, 8) - step(1, key, 8); written += step(3, key, 9) - step(1, key, 9)
            if (!n && !block) continue
            if (!n) n = block
            made = step(1, key, 4) / n; mma = step(1, key, 6) / n
            bytes = (step(1, key, 8) + step(1, key, 9)) / n
            printf "| %s | %d | %d | %.0f | %.0f | %.0f | %s | %s | %.2f | %.2f | %s |\n", key,
                step(1, key, 0), block, made, step(1, key, 5) / n, mma,
                mma ? sprintf("%.2f", made / mma) : "-",
                mma ? sprintf("%.2f", step(1, key, 5) / n / mma) : "-",
                step(1, key, 8) / n / unit, step(1, key, 9) / n / unit,
                mma || !made ? "-" : sprintf("%.2f", made / (132 * 4 * 1.7e9) / (bytes / 4.3e12)) | "sort" }
        close("sort")
        printf "| all | %d | %d | | | | | | %.1f a block | %.1f a block | |\n", all, blocks,
            read / unit, written / unit }' "$work/one-2" "$work/one-3" "$work/two-2" "$work/two-3"
echo
echo "Bytes are in units of a block's activations, tokens x hidden x 2 = $((hidden * tokens * 2))."
