#!/bin/sh
# What a first day meets: words of other programs, a number type, names of the hub, a loss without
# its task, rows of conversations in pairs, a run that collapses.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
"$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 2 --tokenizer bytes --context 64 \
    --output model >/dev/null || exit 99
make_text text.txt 60
train() { # output, options...
    out=$1
    shift
    run "${want:-0}" "$zinf" train --model model --seq-len 16 --threads 1 --progress none \
        --no-final-checkpoint --overwrite --output "$out" "$@"
}
same() { cmp "$1/model/model.safetensors" "$2/model/model.safetensors"; }

words_of_others() {
    train ours --data text.txt --steps 3 --lr 1e-3 --micro-batch 2 --accumulate 2 --warmup-ratio 0.1 &&
        train theirs --data text.txt --max_steps 3 --learning_rate 1e-3 --per_device_train_batch_size 2 \
            --gradient_accumulation_steps 2 --warmup_ratio 0.1 && same ours theirs
}
check "words of Trainer's" words_of_others
number_type() {
    echo '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}' >bf16.json
    train typed --data text.txt --steps 2 --dtype bf16 && complains "precision     bf16" &&
        train flagged --data text.txt --steps 2 --bf16 && same typed flagged &&
        train given --data text.txt --steps 2 --deepspeed bf16.json && complains "precision     bf16"
}
check "a number type without a configuration" number_type
hub() { # a name as it is written everywhere
    want=1
    train none --data text.txt --model gpt2
    want=0
    complains "hf download gpt2"
}
check "a name of the hub" hub
check "zinf version" run 0 "$zinf" version
not_a_command() {
    run 2 "$zinf" --hlep && complains "did you mean '--help'"
}
check "a slip of the finger" not_a_command
i=0
while [ $i -lt 6 ]; do
    echo "{\"prompt\": \"a $i\", \"completion\": \" b\", \"label\": $([ $((i % 2)) = 0 ] && echo true || echo false)}"
    i=$((i + 1))
done >singles.jsonl
implied() { # a loss of answers is no plain training, on unwanted ones too
    train kto --data singles.jsonl --steps 1 --preference kto --dropout 0 &&
        awk -F'[:,]' '{ exit !($4 > 0.49 && $4 < 0.51) }' kto/log.jsonl
}
check "a loss names its task" implied
cat >turns.jsonl <<END
{"prompt": "say a", "chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]}
{"prompt": "say c", "chosen": [{"role": "assistant", "content": "c"}], "rejected": [{"role": "assistant", "content": "d"}]}
END
check "answers that are conversations, after a prompt that is a text" \
    train turns --data turns.jsonl --steps 1 --task preference --chat-template chatml --lora-rank 2 --seq-len 64
one_of_each() {
    train one --data text.txt --steps 1 --warmup-steps 1 &&
        complains "batch         1 window a step" "length        1 step: " "warm-up of 1 step)" &&
        train two --data text.txt --steps 2 --accumulate 2 &&
        complains "batch         2 windows a step" "length        2 steps: "
    run 0 "$zinf" estimate --model model && says "parameters on" &&
        grep -q "^model  *[0-9]*,[0-9]* parameters on" said.out
}
check "one is not several, and thousands are told apart" one_of_each
# A run makes several plans, and a warning of theirs is said once.
said_once() {
    mkdir -p drive
    cat >part.json <<END
{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3,
  "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive", "ratio": 0.5}},
 "zinf": {"durability": "step", "placement": "exact"}}
END
    train part --data text.txt --steps 2 --config part.json &&
        [ "$(grep -c 'zinf.durability is "step", but' said.err)" = 1 ]
}
check "a warning is said once" said_once
# How long a step takes is a range where a drive that limits it was faster at another time.
ranges() {
    mkdir -p cache/zinf faster
    sed 's/, "ratio": 0.5//' part.json >drive.json
    for rate in e6 e13; do
        echo "{\"nvme\": {\"$work/faster\": {\"read\": 9$rate, \"write\": 9$rate, \"mixed\": 9$rate},
            \"$work/drive\": {\"read\": 5$rate, \"write\": 5$rate, \"mixed\": 5$rate}}}" >cache/zinf/bench.json
        train range --data text.txt --steps 2 --config drive.json || return 1
        tr '\n' ' ' <said.err | tr -s ' ' >one-line
        case $rate in
        e6) holds one-line "as the drive was measured)" ;;
        *) ! grep -o "predicted .*as the drive was measured" one-line ;;
        esac || return 1
    done
    rm -r cache
}
check "a range of seconds has two ends" ranges
# Loss and norm of a run that is ruined by its rate.
collapse() {
    train ruined --data text.txt --steps 60 --lr 300 --clip 0 --lr-scheduler constant
    grep -q "collapsed" said.err
}
check "a run that collapses says so" collapse
# In bf16 a step that overflows is skipped; but weights do not change meanwhile, so that a training
# that has diverged would go on skipping to its end, and leave a model.
diverge() {
    train lost --data text.txt --steps 60 --lr 1e5 --clip 0 --optimizer SGD --dtype bf16 && return 1
    grep -q "16th step in a row: the training has diverged; lower lr" said.err &&
        grep -q '"skipped": true' lost/log.jsonl && [ ! -e lost/model ]
}
check "a run in bf16 that has diverged ends" diverge
"$zinf" generate --model model --prompt "line 1" --max-new-tokens 3 >both 2>&1
grep -q "^[0-9]* prompt tokens" both
verdict $? "text and speed in one file are lines of their own"
finish
