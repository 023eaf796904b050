#!/bin/sh
# zinf bench schedule: a line a schedule with floor, prediction and step, whose figures are those of
# one plan; on a described machine and on this one; what is refused. Times are for a bench.
. "$SRCDIR/tests/support/command.sh"
bench() { # status, arguments...
    status=$1
    shift
    run "$status" "$zinf" bench schedule --model "$work/small" --config "$work/config.json" \
        --seq-len 256 --seconds 0.2 --repeat 1 "$@"
}
machine=4090,ram=8G,nvme=7/6,threads=8
on_a_gpu() {
    bench 0 --machine $machine --device-memory 512MiB &&
        says "floor/step" "prefetch" "update-in-forward" "update-in-backward"
}
as_json() {
    bench 0 --machine cpu,threads=2,nvme=2/1 --schedule serial prefetch --json \
        --trace "$work/trace.json" &&
        says '"schedule":	"serial"' '"schedule":	"prefetch"' '"floor_seconds"' \
            '"predicted_seconds"' '"step_seconds"' '"work_seconds"' &&
        holds "$work/trace.json" 'update block' &&
        [ "$(grep -c '"schedule":' "$work/said.out")" = 2 ]
}
# Every step of a plan moves the same bytes: one operation after another takes at least all lanes'
# work, and no schedule less than its floor.
figures_agree() {
    bench 0 --machine $machine --device-memory 512MiB --schedule serial --json || return 1
    awk '/"floor_seconds"/ { floor = $2 + 0 } /"step_seconds"/ { step = $2 + 0 }
        /"work_seconds"/ { adds = 1 } /"busy_seconds"/ { adds = 0 }
        adds && /: *\t*[0-9]/ { work += $NF }
        END { exit !(floor > 0 && work >= floor && step > 0.999 * work) }' "$work/said.out"
}
in_a_pipeline() {
    bench 0 --machine cpu,threads=2 --device-memory 2GiB --schedule prefetch --ranks 2 \
        --pipeline-parallel 2 --micro-batch 1 --accumulate 4 &&
        says "2 ranks in a pipeline: the busiest works for"
}
# What is packed in RAM moves nothing.
packed_in_ram() {
    sed 's/"placement": "exact"/"pack": "all"/' "$work/config.json" >"$work/packed.json"
    for memory in 1200MiB 1500MiB; do
        set -- --model "$work/small" --config "$work/packed.json" --seq-len 256 \
            --machine 4090,ram=8G,nvme=1/1,threads=8 --device-memory 512MiB --host-memory $memory
        run 0 "$zinf" estimate "$@" && says "in RAM" "packed" || return 1
        run 0 "$zinf" bench schedule "$@" --seconds 0.2 --repeat 1 --schedule update-in-backward &&
            says "floor/step" || return 1
    done
}
of_this_machine() { bench 0 --threads 1 --schedule auto && says "floor/step"; }
unknown_schedule() {
    bench 2 --schedule prefech && complains "--schedule prefech: use serial" "did you mean prefetch?"
}
unknown_machine() { bench 2 --machine 4096 && complains "no card '4096'"; }
needs_a_model() { run 2 "$zinf" bench schedule && complains "--model"; }

"$zinf" init --arch gpt2 --size small --config-only --output "$work/small" >/dev/null
cat >"$work/config.json" <<END
{
    "train_batch_size": 1, "bf16": {"enabled": true}, "gradient_clipping": 1.0,
    "zero_optimization": {
        "stage": 3,
        "offload_param": {"device": "nvme", "nvme_path": "$work"},
        "offload_optimizer": {"device": "nvme", "nvme_path": "$work"}
    },
    "zinf": {"placement": "exact"}
}
END
check "a described GPU" on_a_gpu
check "JSON and a trace" as_json
check "a step is no shorter than its work" figures_agree
check "ranks in a pipeline" in_a_pipeline
check "packed in RAM" packed_in_ram
check "this machine" of_this_machine
check "an unknown schedule" unknown_schedule
check "an unknown machine" unknown_machine
check "no model" needs_a_model
finish
