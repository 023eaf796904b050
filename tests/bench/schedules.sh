#!/bin/sh
# What a step's schedule is worth at set rates, as the table of BENCHMARKS.md: GPT-2 XL and LLaMA-2 7B
# where the drive, the link to the device or the device limits a step, and where drive and device are
# in balance. Nothing is computed and no drive is touched: the figures are those of `zinf bench
# schedule`, on any machine. With clipping, in steps that do not clip.
#
#   tests/bench/schedules.sh BUILD [SECONDS [SCHEDULE...]]
#
# SECONDS (default: 25): of a step by the clock. Rows run at the same time: they sleep for the most
# part. Beside much other work a low nice value, or more seconds, keeps the figures from it.
zinf=${1:?usage: schedules.sh BUILD [SECONDS [SCHEDULE...]]}/zinf
seconds=${2:-25}
[ $# -lt 2 ] && shift $# || shift 2
schedules=${*:-prefetch update-in-forward update-in-backward}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# A card of 24 GB in a machine whose RAM has no room for the model's state, or by a slow link.
card=4090,bf16=132,bandwidth=800,optim=60,threads=16
fast=$card,link=25,nvme=7/6,nvme-mixed=7,ram=64G # 16 lanes of the fourth generation
slow=$card,link=2.8,nvme=7/6,nvme-mixed=7        # an enclosure on Thunderbolt
cpu=cpu,threads=2,bf16=0.17,optim=30,bandwidth=20,link=10,nvme=2.5/2.5,nvme-mixed=2.5,ram=16G

config() { # file, offload
    cat >"$work/$1" <<END
{"bf16": {"enabled": true}, "gradient_clipping": 1.0,
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "$2", "nvme_path": "/nvme"},
  "offload_optimizer": {"device": "$2", "nvme_path": "/nvme"}}}
END
}
config drive.json nvme
config ram.json cpu
"$zinf" init --arch gpt2 --size xl --config-only --output "$work/xl" >/dev/null || exit 1
"$zinf" init --arch llama --size 7b --config-only --output "$work/7b" >/dev/null || exit 1

rows=0
row() { # model, regime, configuration, machine, options...
    rows=$((rows + 1))
    run_row $rows "$@" >"$work/row-$rows" &
}
run_row() { # number, and the same
    said=$work/said-$1 model=$2 regime=$3 config=$4 machine=$5
    shift 5
    for schedule in $schedules; do
        "$zinf" bench schedule --model "$work/$model" --config "$work/$config" --machine "$machine" \
            --seconds "$seconds" --schedule "$schedule" --repeat 2 --json "$@" >"$said" || {
            echo "| $model | $regime | $schedule | does not run | | | | |"
            continue
        }
        awk -v model="$model" -v regime="$regime" '
            /"(schedule|busiest)":/ { split($0, part, "\""); value[part[2]] = part[4] }
            /_seconds":/ { split($0, part, "\""); sub(/^:[ \t]*/, "", part[3])
                           value[part[2]] = part[3] + 0 }
            END { floor = value["floor_seconds"]; step = value["step_seconds"]
                  printf "| %s | %s | %s | %.2f | %.2f | %.2f | %.3f | %+.1f %% |\n", model,
                      regime " (" value["busiest"] ")", value["schedule"], floor,
                      value["predicted_seconds"], step, floor / step,
                      100 * (step / value["predicted_seconds"] - 1) }' "$said"
    done
}
echo "| model | limited by | schedule | floor, s | predicted, s | step, s | floor/step | off |"
echo "|---|---|---|---:|---:|---:|---:|---:|"
row xl drive drive.json $fast --device-memory 8GiB --host-memory 8GiB --seq-len 1024 --micro-batch 4
row xl link ram.json $slow,ram=64G --device-memory 8GiB --host-memory 64GiB --seq-len 1024 --micro-batch 4
row xl device drive.json $fast --device-memory 22GiB --host-memory 16GiB --seq-len 1024 --micro-batch 4 \
    --accumulate 16
row xl balance drive.json $fast --device-memory 8GiB --host-memory 8GiB --seq-len 1024 --micro-batch 4 \
    --accumulate 8
row 7b drive drive.json $fast --device-memory 20GiB --host-memory 24GiB --seq-len 2048 --micro-batch 2
row 7b link ram.json $slow,ram=192G --device-memory 22GiB --host-memory 192GiB --seq-len 2048 --micro-batch 2
row 7b device drive.json $fast --device-memory 20GiB --host-memory 24GiB --seq-len 2048 --micro-batch 2 \
    --accumulate 64
row 7b balance drive.json $fast --device-memory 20GiB --host-memory 24GiB --seq-len 2048 --micro-batch 2 \
    --accumulate 16
row xl "two CPUs" drive.json $cpu --device-memory 1GiB --host-memory 3GiB --seq-len 256 --micro-batch 1
wait
for n in $(seq $rows); do
    cat "$work/row-$n"
done
