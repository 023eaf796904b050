#!/bin/sh
# Texts of ranks that share tensors and layers: those of one rank with as many parts, by 'zinf generate',
# by metrics and on the way of a training. On that way also those of sequences in chunks and in parts.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
cd "$work" || exit 99
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
make_text text.txt 30
awk 'BEGIN { print "source,target"; for (i = 0; i < 9; i++) print "say " i "," i " and " i }' >rows.csv
echo '{"zinf": {"tensor_parts": 4, "threads": 1, "placement": "exact"}}' >parts.json

new_model() { # arch, size: with weights
    "$zinf" init --arch "$1" --size "$2" --layers 2 --hidden 32 --heads 4 --tokenizer bytes \
        --config-only --output "$1" || return
    sed -i 's/"num_key_value_heads":[^,]*/"num_key_value_heads": 2/;
        s/"num_local_experts":[^,]*/"num_local_experts": 4/
        s/"num_experts":[^,]*/"num_experts": 4/; s/"num_experts_per_tok":[^,]*/"num_experts_per_tok": 2/
        s/"full_attention_interval":[^,]*/"full_attention_interval": 2/
        s/"linear_num_key_heads":[^,]*/"linear_num_key_heads": 2/
        s/"linear_num_value_heads":[^,]*/"linear_num_value_heads": 4/
        s/"linear_\([a-z]*\)_head_dim":[^,]*/"linear_\1_head_dim": 8/g
        s/"mamba_d_state":[^,]*/"mamba_d_state": 8/; s/"mamba_rms_norm":[^,]*/"mamba_rms_norm": true/' \
        "$1/config.json"
    [ "$1" = t5 ] && data="--data rows.csv --seq-len 12" || data="--data text.txt --seq-len 16"
    "$zinf" train --model "$1" --init $data --device host --threads 1 --lr 3e-2 --steps 4 \
        --progress none --output "$1.out" && mv "$1.out/model" "$1.model"
}
generate() { # model, options...
    model=$1
    shift
    "$zinf" generate --model "$model.model" --config parts.json --device host --json \
        --max-new-tokens 6 --prompt "line 3 of" "say" "a" "$@"
}
texts() { # model, options of one rank and of all
    model=$1
    shift
    check "$model: texts without parts" run 0 "$zinf" generate --model "$model.model" --device host \
        --threads 1 --json --max-new-tokens 6 --prompt "line 3 of" "say" "a" "$@"
    cp said.out "$model.whole"
    check "of one rank" run 0 generate "$model" "$@"
    cp said.out "$model.one"
    cmp "$model.one" "$model.whole"
    verdict $? "are the same"
    for mesh in "--seats 2 --tensor-parallel 2" "--seats 4 --tensor-parallel 4" \
        "--seats 2 --pipeline-parallel 2" "--seats 4 --tensor-parallel 2 --pipeline-parallel 2"; do
        # shellcheck disable=SC2086 # options are words
        check "$mesh" run 0 generate "$model" "$@" $mesh
        cmp said.out "$model.one"
        verdict $? "make the same"
    done
}
check "a LLaMA" run 0 new_model llama 7b
check "a GPT-2" run 0 new_model gpt2 small
check "a Mixtral" run 0 new_model mixtral 8x7b
check "a T5" run 0 new_model t5 small
check "a Qwen3-Next" run 0 new_model qwen3_next 80b-a3b
check "a Falcon-H1" run 0 new_model falcon_h1 0.5b
texts llama
texts gpt2 --num-beams 2
texts mixtral
texts t5
texts qwen3_next
texts falcon_h1

# ---- axes that the configuration alone asks for ----

for mesh in '"tensor": 2' '"pipe": 2' '"context": 2'; do
    sed "s/}}/, \"mesh\": {$mesh}}}/" parts.json >mesh.json
    sed 's/"zinf": {/&"seats": 2, /' mesh.json >mesh_seats.json
    check "$mesh and one rank" run 0 "$zinf" generate --model llama.model --config mesh.json \
        --device host --json --max-new-tokens 6 --prompt "line 3 of" "say" "a"
    cmp said.out llama.one && complains "is 2, but this command has one rank" "--seats 2 shares it"
    verdict $? "is said, and makes the same texts"
    check "with seats of the configuration" run 0 "$zinf" generate --model llama.model \
        --config mesh_seats.json --device host --json --max-new-tokens 6 --prompt "line 3 of" "say" "a"
    cmp said.out llama.one && ! complains "one rank"
    verdict $? "makes them on both"
    if [ -z "$no_mpi" ]; then
        check "two processes" run 0 ranks 2 "$zinf" generate --model llama.model \
            --config mesh.json --device host --json --max-new-tokens 6 --prompt "line 3 of" "say" "a"
        cmp said.out llama.one && complains "2 ranks over" && ! complains "one rank"
        verdict $? "share the model"
    fi
done
check "texts that are drawn" run 0 generate llama --temperature 0.8 --seed 5 --seats 2 \
    --tensor-parallel 2
cp said.out drawn
check "drawn by one rank" run 0 generate llama --temperature 0.8 --seed 5
check "the same" cmp said.out drawn
if [ -n "$no_mpi" ]; then
    skip "processes of an MPI" "$no_mpi"
else
    check "two processes" run 0 ranks 2 "$zinf" generate --model mixtral.model --config parts.json \
        --device host --json --max-new-tokens 6 --prompt "line 3 of" "say" "a" --tensor-parallel 2
    check "make the same" cmp said.out mixtral.one
fi

# ---- metrics, and texts on the way ----

score() { # output, options...
    output=$1
    shift
    "$zinf" eval --model t5.model --data rows.csv --config parts.json --device host --metric rouge1 \
        --micro-batch 1 --max-new-tokens 6 --predictions "$output" "$@"
}
check "a metric of one rank" run 0 score one
check "of four" run 0 score four --seats 4 --tensor-parallel 2 --pipeline-parallel 2
check "with the same texts" cmp one four
sed 's/^{/{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, /; s/"zinf": {/&"gradient_sum": "tree", /' \
    parts.json >way.json
tells() { # output, options...
    output=$1
    shift
    "$zinf" train --model llama.model --data text.txt --seq-len 16 --config way.json --device host \
        --steps 2 --lr 1e-2 --progress none --output "$output" \
        --sample-prompts "line 3" --sample-every 1 "$@" && grep -o '"text":.*' "$output/log.jsonl" >"$output.texts"
}
check "texts on the way of one rank" run 0 tells way1
check "of four" run 0 tells way4 --seats 4 --tensor-parallel 2 --pipeline-parallel 2
check "are the same" cmp way1.texts way4.texts

# ---- sequences in chunks, and shared by ranks ----

# What fresh weights say depends on every token where they are large.
wild() { # model
    sed 's/"initializer_range":[^,]*/"initializer_range": 0.5/' "$1/config.json" >wild.json &&
        mv wild.json "$1/config.json"
}
cut() { # model, output, keys of "zinf" behind a comma, options...
    model=$1 output=$2
    sed "s/\"tensor_parts\": 4/\"dropout\": 0$3/" way.json >cut.json
    shift 3
    "$zinf" train --model "$model" --init --config cut.json --device host --steps 2 --lr 1e-3 \
        --progress none --output "$output" --sample-prompts "line 3" "or a" --sample-every 1 \
        --data text.txt --seq-len 23 --max-new-tokens 9 "$@" &&
        grep -o '"text":.*' "$output/log.jsonl" >"$output.texts"
}
for model in mixtral gpt2; do
    check "$model with large weights" wild $model
    check "whole sequences" run 0 cut $model $model.uncut ''
    check "in chunks" run 0 cut $model $model.chunks ', "sequence_chunk": 5'
    check "say the same" cmp $model.uncut.texts $model.chunks.texts
    check "in parts by one rank" run 0 cut $model $model.parts ', "context_parts": 4'
    check "say the same" cmp $model.uncut.texts $model.parts.texts
    check "by four" run 0 cut $model $model.four ', "context_parts": 4' --seats 4 \
        --context-parallel 2 --pipeline-parallel 2
    check "say the same" cmp $model.parts.texts $model.four.texts
done
finish
