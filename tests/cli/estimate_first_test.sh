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
number() { # key: its first number in the JSON that was said
    sed -n "s/.*\"$1\":[[:space:]]*\([-+.0-9e]*\).*/\1/p" said.out | head -n 1
}
# The time of a step is what its memory takes where there are few tokens: 8B read twice in bf16.
few_tokens() {
    run 0 "$zinf" estimate --model llama --config none.json --lora-rank 8 --seq-len 16 \
        --machine h100,ram=256G --json &&
        awk -v s="$(number step_seconds)" -v p="$(number parameters)" 'BEGIN {
            least = 4 * p / 3.35e12; print "# " s " s, reading takes " least
            exit !(s > least) }'
}
# Weights in 4 bits are unpacked, which takes time.
four_bits() {
    run 0 "$zinf" estimate --model llama --config none.json --lora-rank 8 --seq-len 256 \
        --machine a100-80,ram=256G --json && plain=$(number step_seconds) &&
        run 0 "$zinf" estimate --model llama --config none.json --lora-rank 8 --seq-len 256 \
            --machine a100-80,ram=256G --json --quantize nf4 &&
        awk -v a="$plain" -v b="$(number step_seconds)" 'BEGIN {
            print "# bf16 " a " s, nf4 " b " s"; exit !(b > 1.05 * a) }'
}
echo '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}' >none.json
# Without a configuration a model is placed, and the file that says so trains the same.
placed() {
    run 0 "$zinf" estimate --model llama --seq-len 512 --machine 4090,ram=256G \
        --suggest placed.json && says "placed.json: {" "offload_optimizer" &&
        run 0 "$zinf" config --config placed.json && says '"cpu"' &&
        run 0 "$zinf" estimate --model llama --config placed.json --seq-len 512 \
            --machine 4090,ram=256G &&
        run 0 "$zinf" estimate --model llama --seq-len 512 --machine 4090,ram=32G,nvme=7/6 &&
        says 'placed by: {' '"nvme"' &&
        run 1 "$zinf" estimate --model llama --config none.json --seq-len 512 --machine 4090,ram=64G
}
# More memory never makes a step slower, what limits is named for each tier, and a drive that wears
# out in days has ways out.
what_is_said() {
    cat >nvme.json <<END
{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 3,
  "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "exact"}}
END
    cat >ram.json <<END
{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3,
  "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}}
END
    run 0 "$zinf" estimate --model llama --config nvme.json --seq-len 1024 \
        --machine 4090,ram=48G,nvme=7/6 &&
        says "more host memory: " "AdamW8bit" "update-in-place" 'RAM filled first' &&
        ! grep -q "GiB more .*(+[1-9]" said.out &&
        run 1 "$zinf" estimate --model llama --config ram.json --seq-len 1024 --seats 2 \
            --machine 4090,memory=1G,ram=8G &&
        complains "device memory needs" "and host memory needs" &&
        run 0 "$zinf" estimate --model xl --config none.json --seq-len 64 --machine cpu,ram=128G &&
        says "the device is the CPU: its memory and the host's are the same RAM"
}
# Where all micro-batches at once have no room, seats take one after the other, as one GPU does.
seats_are_searched() {
    mkdir mixtral && cat >mixtral/config.json <<END
{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
 "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8,
 "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "num_experts_per_tok": 2,
 "tie_word_embeddings": false}
END
    run 0 "$zinf" estimate --model mixtral --config ram.json --quantize nf4 --lora-rank 16 \
        --seq-len 2048 --micro-batch 2 --accumulate 16 --seats 2 --machine 4090,ram=64G &&
        says "one after the other through all layers"
}
# Parameters take the room that gradients of layers have in RAM only if they are packed there and have
# one generation: none of these alone makes a step shorter. What stays is the vocabulary's gradient.
changes_together() {
    cat >packed.json <<END
{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "gradient_clipping": 1.0,
 "zero_optimization": {"stage": 3,
  "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"pack": "all"}}
END
    run 0 "$zinf" estimate --model xl --config packed.json --seq-len 256 --device-memory 1GiB \
        --host-memory 3060MiB \
        --machine cpu,threads=2,ram=24G,bf16=0.42,optim=57,nvme=1.5/3,nvme-mixed=2 &&
        says "313.02 MiB of gradients" "parameters in RAM are packed"
}
check "offload_param without offload_optimizer" offload_param_alone
check "ZeRO-3 on seats without offloading" gathers_by_itself
check "few tokens cost what reading the weights does" few_tokens
check "weights in 4 bits are unpacked" four_bits
check "a placement without a configuration" placed
check "what estimates say" what_is_said
check "two seats are searched as one" seats_are_searched
check "changes that pay only together are searched" changes_together
finish
