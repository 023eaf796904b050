#!/usr/bin/env bash
# GPT-2 XL, one sequence of 256 tokens a step, bf16 parameters, exact fp32 AdamW, clipping that does
# not bite, no dropout: zinf, DeepSpeed ZeRO-3 on its CPU accelerator, PyTorch with mapped files, in
# turn. Each prints its steps, tokens/s (the first step not counted), peak memory and bytes of the
# drive; the drive's own rate, half reads and half writes, is taken right before and after it.
#
# usage: xl_vs_deepspeed.sh TEXT FOLDER [CASE ...]
#   TEXT    a text to train on; its bytes are the tokens
#   FOLDER  on a local drive with 55 GB free; what a case writes is removed after it
#   CASE    zinf, torch-bf16, torch-fp32, or deepspeed-PLACE: nvme (parameters and state on the
#           drive), mixed (parameters in RAM, state on the drive), cpu (both in RAM: 28 GB)
#           (default: zinf deepspeed-nvme torch-bf16 torch-fp32)
# ZINF and PYTHON name the programs, STEPS the steps (3), LAYERS the blocks of the Python cases
# (48), MODEL a folder with GPT-2 XL in bf16 (default: random weights are made), DEEPSPEED_OPTIONS
# more options of deepspeed_gpt2.py. LEAVE=N locks RAM until N GiB are available to the case, so
# that mapped files have to leave it.
set -euo pipefail
usage() { sed -n 's/^# \{0,1\}//;7,16p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
here=$(cd "$(dirname "$0")" && pwd)
text=$1 folder=$2
shift 2
[ $# -gt 0 ] || set -- zinf deepspeed-nvme torch-bf16 torch-fp32
python=${PYTHON:-python3} steps=${STEPS:-3} layers=${LAYERS:-48}
zinf=${ZINF:-zinf}
common=(--text "$text" --folder "$folder/swap" --layers "$layers" --steps "$steps" --clip 1000)
mkdir -p "$folder"
holder=
trap '[ -z "$holder" ] || kill "$holder"; rm -rf "$folder/swap" "$folder/output"' EXIT
trap 'exit 1' INT TERM

# Locks all but $1 GiB of the available memory and holds it until it is killed.
hold_memory() {
    coproc HOLD { exec "$python" -c '
import ctypes, mmap, sys, time
info = dict(line.split(":") for line in open("/proc/meminfo"))
size = (int(info["MemAvailable"].split()[0]) << 10) - int(float(sys.argv[1]) * 2**30)
if size > 0:
    held = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(held))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)):
        sys.exit("mlock: errno %d: raise the limit of locked memory (ulimit -l)"
                 % ctypes.get_errno())
print("locked %.1f GiB" % (max(size, 0) / 2**30), flush=True)
time.sleep(1e6)' "$1"; }
    holder=$HOLD_PID
    local line
    read -r line <&"${HOLD[0]}" || { echo "xl_vs_deepspeed: memory was not locked" >&2; exit 1; }
    echo "$line, $1 GiB left"
}

# GB/s of the drive: five turns of 2 s, blocks of 1 MiB, 32 in flight.
drive_rate() {
    "$zinf" bench nvme --path "$folder" --mixed --size 4GiB --block-size 1MiB --queue-depth 32 \
        --seconds 2 --json | awk -v when="$1" '/"rate":/ {
            gsub(/,/, ""); r = $2 / 1e9; sum += r; n++
            if (n == 1 || r < low) low = r
            if (r > high) high = r }
        END { printf "drive %s: %.2f GB/s (%.2f to %.2f)\n", when, sum / n, low, high }'
}

# The model without dropout: a folder of its own with links to the weights.
prepare_model() {
    [ ! -e "$folder/model/config.json" ] || return 0
    local source=${MODEL:-$folder/weights}
    [ -e "$source/config.json" ] ||
        "$zinf" init --arch gpt2 --tokenizer bytes --vocab 50257 --size xl --dtype bf16 --output "$source"
    mkdir -p "$folder/model"
    ln -s "$(realpath "$source")"/{*.safetensors,tokenizer.json} "$folder/model/"
    sed 's/\("[a-z]*_pdrop":[[:space:]]*\)[0-9.]*/\10.0/' "$source/config.json" \
        >"$folder/model/config.json"
}

run_zinf() {
    prepare_model
    CLIP=1000 ZINF=$zinf bash "$here/../../examples/gpt2-xl-low-memory.sh" "$text" "$folder" 256 \
        "$steps"
    cat "$folder/output/log.jsonl"
}

[ -z "${LEAVE:-}" ] || hold_memory "$LEAVE"
for case in "$@"; do
    echo "== $case"
    drive_rate before
    start=$(date +%s)
    case $case in
        zinf) run_zinf ;;
        deepspeed-*)
            # shellcheck disable=SC2086 # several words
            "$python" "$here/deepspeed_gpt2.py" "${common[@]}" --offload "${case#*-}" \
                ${DEEPSPEED_OPTIONS:-} ;;
        torch-*) "$python" "$here/torch_mmap_gpt2.py" "${common[@]}" --compute "${case#*-}" ;;
        *) usage ;;
    esac || { echo "$case: failed with status $?" >&2; failed=1; }
    echo "$case: $(($(date +%s) - start)) s in all"
    rm -rf "$folder/swap" "$folder/output"
    drive_rate after
done
exit "${failed:-0}"
