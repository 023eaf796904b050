#!/usr/bin/env bash
# A mixture of experts of four times the RAM that it may use: 12.1 GB of bf16 on a drive, adapters
# on attention, 3 GiB of memory. Trains with experts fetched as they are chosen, then with all
# parameters in RAM, which takes 15 GiB, and compares losses, bytes read, memory, and time with
# what was said before each step.
#
# usage: tests/bench/experts.sh BUILD FOLDER [STEPS [WIDTH]]
#   FOLDER: on a local drive with 13 GB free
#   WIDTH: of an expert; 1920 by default, 96 tries the script in less memory.
#   RAM=no leaves out the run in RAM.
set -euo pipefail
usage='usage: experts.sh BUILD FOLDER [STEPS [WIDTH]]'
zinf=$(realpath "${1:?$usage}")/zinf
folder=${2:?$usage}
steps=${3:-24}
width=${4:-1920}
mkdir -p "$folder/swap" && cd "$folder" && rm -rf model

"$zinf" init --arch qwen3_moe --size 30b-a3b --layers 8 --hidden 1024 --heads 8 --vocab 257 \
    --tokenizer bytes --context 512 --dtype bf16 --config-only --output model >/dev/null 2>&1
sed -i -e 's/"num_key_value_heads":.*/"num_key_value_heads": 2,/' \
    -e 's/"num_experts_per_tok":.*/"num_experts_per_tok": 2,/' \
    -e "s/\"moe_intermediate_size\":.*/\"moe_intermediate_size\": $width,/" model/config.json
awk 'BEGIN {
    srand(1)
    words = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    n = split(words " fifteen sixteen", w, " ")
    for (i = 0; i < 20000; i++) printf "%s ", w[1 + int(rand() * n)]
}' >words.txt

run() { # name, device of the parameters, memory options...
    local name=$1 where=$2
    shift 2
    cat >"$name.json" <<END
{"bf16": {"enabled": true}, "gradient_clipping": 1.0,
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "$where", "nvme_path": "swap"},
  "offload_optimizer": {"device": "cpu"}}}
END
    "$zinf" train --model model --init --seed 1 --data words.txt --config "$name.json" \
        --seq-len 64 --micro-batch 1 --steps "$steps" --lora-rank 16 \
        --lora-targets q_proj,k_proj,v_proj,o_proj --progress none --no-final-checkpoint \
        --overwrite --output "out-$name" "$@" >"$name.out" 2>"$name.err" ||
        { cat "$name.err" >&2; exit 1; }
}
device=$((48 + 720 * width / 1920))MiB
run drive nvme --device-memory $device --host-memory $((144 + 2160 * width / 1920))MiB
[ "${RAM:-yes}" = no ] || run ram cpu --device-memory $device --host-memory 14GiB

python3 - "$width" <<'END'
import json, os, sys
width = int(sys.argv[1])
lines = lambda name: [json.loads(line) for line in open(f"out-{name}/log.jsonl")]
steps, expert = lines("drive"), 3 * 1024 * width * 2
print("| step | loss | read, GB | step, s | predicted before it, s |")
print("|---:|---:|---:|---:|---:|")
for s in steps:
    print(f"| {s['step']} | {s['loss']:.3f} | {s['drive_bytes_read'] / 1e9:.3f} | "
          f"{s['step_seconds']:.2f} | {s.get('predicted_seconds', 0):.2f} |")
late = [s for s in steps[4:] if "predicted_seconds" in s]
took, said = sum(s["step_seconds"] for s in late), sum(s["predicted_seconds"] for s in late)
print(f"steps 5 to {len(steps)}: {took:.2f} s, predicted {said:.2f} s, ratio {took / said:.3f}")
last = steps[-1]["drive_bytes_read"]
rest = sorted({(s["drive_bytes_read"] - last) % expert for s in steps[1:]})
print(f"an expert has {expert} bytes; differences of bytes read beyond whole experts: {rest}")
end = json.loads(open("drive.out").read().strip().splitlines()[-1])
print(f"planned {end['planned_bytes']}, peak {end['peak_resident_bytes']} bytes: "
      f"{end['peak_resident_bytes'] / end['planned_bytes']:.3f}")
if os.environ.get("RAM") != "no":
    same = [a["loss"] == b["loss"] and a["grad_norm"] == b["grad_norm"]
            for a, b in zip(steps, lines("ram"))]
    print(f"losses and norms equal those of the run in RAM in {sum(same)} of {len(same)} steps")
END
