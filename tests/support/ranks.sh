# ranks: for tests that deal the samples of a step to ranks or seats; after tests/support/command.sh. All of
# them train one small model on one text, and compare what comes out.
make_rank_model() { # at $work/model and $work/text.txt
    make_text "$work/text.txt" 60
    check "a model" run 0 "$zinf" init --arch gpt2 --size small --layers 2 --hidden 64 --heads 4 \
        --tokenizer bytes --context 32 --output "$work/model"
}
options="--model $work/model --data $work/text.txt --seq-len 16 --device host --seed 3"

# Eight samples a step; the optimizer's state is in FOLDER, the parameters are there ("nvme") or in
# RAM ("cpu"), at stages 1 and 2 ($zero_stage) on the device ("none").
rank_config() { # file, micro-batch, accumulation, parameters, folder, keys of "zinf" behind a comma
    cat >"$1" <<EOF
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": $2, "gradient_accumulation_steps": $3,
 "gradient_clipping": 0.5, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "zero_optimization": {"stage": ${zero_stage:-3}, "offload_param": {"device": "$4", "nvme_path": "$5"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "$5"}},
 "zinf": {"placement": "exact", "threads": 1, "gradient_sum": "tree", "dropout": 0.1$6}}
EOF
}

losses() { # output: loss and norm of each step
    sed 's/.*"loss": \([^,]*\),.*"grad_norm": \([^,]*\),.*/\1 \2/' "$1/log.jsonl"
}
evaluations() { sed -n 's/.*"eval_loss": \([^,}]*\).*/\1/p' "$1/log.jsonl"; }
same_evaluations() { # two outputs
    [ -n "$(evaluations "$1")" ] && [ "$(evaluations "$1")" = "$(evaluations "$2")" ]
}
same_result() { # two outputs
    losses "$1" >"$work/losses"
    losses "$2" | cmp - "$work/losses" && cmp "$1/model/model.safetensors" "$2/model/model.safetensors"
}
fails() { # command...: with any status
    "$@" >"$work/said.out" 2>"$work/said.err" </dev/null
    [ $? -ne 0 ]
}
close_to() { # two outputs: losses and norms within 1e-6 of each other
    losses "$1" >"$work/close1"
    losses "$2" | paste - "$work/close1" | awk 'function far(a, b) { d = a - b; return d * d > 1e-12 * b * b }
        NF != 4 || far($1, $3) || far($2, $4) { bad = 1; print "# " $0 } END { exit bad || !NR }'
}
# A run that would go on for long is killed once its log has LINES lines, however late that is seen.
# $steps is then a little more than it has made.
killed_in_steps() { # output, lines, command...
    killed_output=$1 killed_lines=$2
    shift 2
    "$@" >"$work/other.out" 2>"$work/other.err" </dev/null &
    killed=$!
    wait_until $killed has_lines "$killed_output" "$killed_lines"
    kill -KILL $killed
    wait $killed
    [ $? -eq 137 ] && steps=$(($(wc -l <"$killed_output/log.jsonl") + 3))
}
small_model() { # folder, arch, size, width: of llama with two key and value heads
    "$zinf" init --arch "$2" --size "$3" --layers 2 --hidden "$4" --heads 4 --tokenizer bytes \
        --context 32 --config-only --output "$1" || return
    [ "$2" != llama ] || sed -i 's/"num_key_value_heads":[^,]*/"num_key_value_heads": 2/' "$1/config.json"
}
