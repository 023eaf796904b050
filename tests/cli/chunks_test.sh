#!/bin/sh
# Sequences in chunks through the command line: seats and budgets give the same bits, a run that is
# killed goes on to the same model, a run is not gone on from with other chunks, and an estimate
# finds the longest sequence.
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/drive" && cd "$work" || exit 99

"$zinf" init --arch llama --size 7b --layers 2 --hidden 32 --heads 2 --tokenizer bytes \
    --vocab 300 --context 4096 --output model >/dev/null || exit 99
make_text text.txt 400
cat >config.json <<END
{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"}, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 3,
    "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
    "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "exact", "gradient_sum": "tree", "activation_device": "nvme"}}
END
command="$zinf train --model model --data text.txt --config config.json --seq-len 600
    --threads 1 --progress none"
steps=4
train() { # output, options...
    output=$1
    shift
    run 0 $command --sequence-chunk 16 --steps $steps --output "$output" "$@"
}

check "a training in chunks" train whole --accumulate 2
check "the same on two seats" train seats --accumulate 1 --seats 2
check "the same bits" cmp whole/model/model.safetensors seats/model/model.safetensors
check "the same with little device memory" train little --accumulate 2 --device-memory 530KiB
run 0 "$zinf" estimate --model model --config config.json --seq-len 600 --sequence-chunk 16 \
    --device host --device-memory 530KiB --threads 1 --accumulate 2 &&
    says "keys and values of chunks in groups of"
verdict $? "it streams keys and values"
check "the same bits" cmp whole/model/model.safetensors little/model/model.safetensors

# Where the last step of four was made before the kill came, one rank makes as many once more.
$command --sequence-chunk 16 --steps 1000000 --output killed --accumulate 2 >said.out 2>said.err &
pid=$!
wait_until $pid has_lines killed 2
kill -9 $pid
wait $pid 2>/dev/null
! has_lines killed 3 || { steps=$(($(wc -l <killed/log.jsonl) + 2)) && train whole --accumulate 2 --overwrite; }
run 1 $command --sequence-chunk 64 --steps $steps --output killed --accumulate 2 --resume
complains sequence_chunk
verdict $? "other chunks are refused"
check "a run that was killed goes on" train killed --accumulate 2 --resume
check "the same bits" cmp whole/model/model.safetensors killed/model/model.safetensors

run 0 "$zinf" estimate --model model --config config.json --longest --sequence-chunk 64 \
    --machine 4090,ram=64G,nvme=7/6 && says "longest      4096 tokens"
verdict $? "the longest sequence is the context"
run 0 "$zinf" estimate --model model --config config.json --longest --sequence-chunk 32 \
    --device-memory 2MiB --device host && says "longest " "tokens in a sequence fit"
verdict $? "or what memory has room for"

# Rows of 40 tokens and fewer, where 100 are possible: a step has the bits of one for 40, and writes as
# much. Ranks share sequences of which the rear has no rows.
awk 'BEGIN { for (i = 0; i < 40; i++) {
    n = i % 3 ? 40 : 15
    printf "{\"prompt\": \"ab\", \"completion\": \"%s\"}\n",
        substr("the quick brown fox jumps over the lazy dog and runs", i % 7 + 1, n - 5) } }' >rows.jsonl
# The schedule is set: which one is best is measured, and each writes in another step.
sed 's/"zinf": {/&"schedule": "prefetch", /' config.json >rows.json
sed 's/"zinf": {/&"context_parts": 2, /' config.json >parts.json
rows() { # configuration, output, options...
    config=$1 output=$2
    shift 2
    run 0 "$zinf" train --model model --data rows.jsonl --config $config.json --threads 1 \
        --progress none --steps 3 --output "$output" "$@"
}
written() { # folder
    sed -n 's/.*"drive_bytes_written": \([0-9]*\).*/\1/p' "$1/log.jsonl"
}
check "rows shorter than a sequence" rows rows long --seq-len 100 --sequence-chunk 8 --accumulate 2
check "the same for sequences as long" rows rows short --seq-len 40 --sequence-chunk 8 --accumulate 2
check "the same bits" cmp long/model/model.safetensors short/model/model.safetensors
test -n "$(written long)" && test "$(written long)" = "$(written short)"
verdict $? "the same bytes are written: $(written long | tail -1), $(written short | tail -1)"
check "in two parts" rows parts parts --seq-len 100 --sequence-chunk 8 --accumulate 2
check "by two seats" rows parts sharing --seq-len 100 --sequence-chunk 8 --accumulate 2 \
    --seats 2 --context-parallel 2
check "the same bits" cmp parts/model/model.safetensors sharing/model/model.safetensors
check "by two ranges of layers" rows rows piped --seq-len 100 --sequence-chunk 8 --accumulate 2 \
    --seats 2 --pipeline-parallel 2
check "the same bits" cmp long/model/model.safetensors piped/model/model.safetensors

flops() { # chunk: of a step with one sequence, by an estimate
    "$zinf" estimate --model model --config config.json --seq-len 600 --sequence-chunk "$1" \
        --device host --json 2>/dev/null | grep model_flops
}
whole=$(flops 0)
test -n "$whole" && test "$whole" = "$(flops 100)" && test "$whole" = "$(flops 200)"
verdict $? "chunks take the flops of the whole sequence, also if their number is even"

# Where a drive limits, reads and writes of keys, values and their gradients go on at the same time:
# a step takes what the drive needs for its bytes. Rates of a mix, which nobody states: 0.55 of both.
cat >long.json <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 16000,
 "hidden_size": 768, "intermediate_size": 2304, "head_dim": 64, "num_hidden_layers": 4,
 "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 65536}
END
run 0 "$zinf" estimate --model long.json --config config.json --seq-len 65536 --sequence-chunk 2048 \
    --machine 4090,nvme=0.5/0.4 --device-memory 200MiB --json &&
    awk '/"lane_bytes"/ { inside = 1 }
        /"step_seconds"/ && !step { step = $2 + 0 }
        inside && /"read"/ { read = $2 / 0.5e9 }
        inside && /"write"/ { write = $2 / 0.4e9; inside = 0 }
        END {
            mixed = 0.55 * 0.9 / 2 # GB/s of each
            both = read * 0.5 < write * 0.4 ? read * 0.5 / mixed : write * 0.4 / mixed
            floor = read + write - (mixed / 0.5 + mixed / 0.4 - 1) * both
            print "# " floor " of " step " s"
            exit !(floor > 30 && floor > 0.98 * step && floor < 1.001 * step) }' said.out
verdict $? "a drive that limits a step does not wait"
finish
