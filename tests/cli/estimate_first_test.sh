#!/bin/sh
# Configurations as users have them, on machines that are described: what a key asks for is what is
# planned, and where it cannot be the message says why.
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/drive" && cd "$work" || exit 99
"$zinf" init --arch llama --size 7b --config-only --output llama >/dev/null || exit 99
"$zinf" init --arch gpt2 --size xl --config-only --output xl >/dev/null || exit 99

# offload_param alone: frozen parameters go where it says, and it is said of those that are trained.
offload_param_alone() {
    cat >param.json <<END
{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}
END
    run 0 "$zinf" estimate --model llama --config param.json --lora-rank 8 --seq-len 512 \
        --machine 4090,ram=64G,memory=10G && says "host   parameters" &&
        run 1 "$zinf" estimate --model llama --config param.json --seq-len 512 --machine 4090 &&
        complains "trained ones stay on the device"
}
# Stage 3 with seats and nothing offloaded: the GPUs gather among themselves, whoever wrote the file.
gathers_by_itself() {
    cat >stage3.json <<END
{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}
END
    run 0 "$zinf" estimate --model xl --config stage3.json --seq-len 512 --seats 8 \
        --machine a100-80,ram=512G && says "GPUs gather units" || return 1
    sed 's/"bf16"/"zinf": {"gather": "host"}, "bf16"/' stage3.json >host.json
    run 1 "$zinf" estimate --model xl --config host.json --seq-len 512 --seats 8 \
        --machine a100-80,ram=512G && complains "zinf.gather to device"
}
check "offload_param without offload_optimizer" offload_param_alone
check "ZeRO-3 on seats without offloading" gathers_by_itself
finish
