#!/bin/sh
# Sample prompts: what a training says on its way is what zinf generate says of the same weights; on
# several seats it is the same, and the training itself is the same with and without them.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99

"$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 2 --context 256 --vocab 257 \
    --tokenizer bytes --seed 5 --output model >/dev/null 2>&1 || exit 99
i=0
while [ $i -lt 200 ]; do
    echo "abcdefgh"
    i=$((i + 1))
done >text
train() { # output, options...
    output=$1
    shift
    run 0 "$zinf" train --model model --data text --seq-len 32 --micro-batch 4 --lr 0.02 --steps 40 \
        --dropout 0 --threads 1 --device host --seed 3 --progress none --output "$output" "$@"
}
samples() { # output: steps and texts
    sed -n 's/^{"step": \([0-9]*\),.*"samples": \(\[.*\]\)}.*/\1 \2/p' "$1/log.jsonl"
}
check "a training" train with --sample-prompts abc 'gh
a' --sample-every 15 --max-new-tokens 6
samples with >said
[ "$(cut -d ' ' -f 1 said | tr '\n' ' ')" = "15 30 40 " ]
verdict $? "has samples every so many steps and after the last"
complains 'step 40: "abc" goes on: "'
verdict $? "and tells them"
"$zinf" generate --model with/model --prompt abc 'gh
a' --max-new-tokens 6 --temperature 0 --threads 1 --device host --json 2>/dev/null |
    sed 's/.*"text":\("\([^"\\]\|\\.\)*"\).*/\1/' >made
sed -n 's/^40 //p' said | grep -o '"text":"\([^"\\]\|\\.\)*"' | sed 's/^"text"://' >told
[ "$(wc -l <told)" -eq 2 ] && cmp told made && [ "$(sed -n 's/^15 //p' said)" != "$(sed -n 's/^40 //p' said)" ]
verdict $? "the last are those of zinf generate, and the first are others"
check "without them" train without
check "the same losses and weights" same_result without with
check "two seats" train seats --seats 2 --micro-batch 2 --sample-prompts abc 'gh
a' --sample-every 15 --max-new-tokens 6
samples seats >said.seats
check "say the same" cmp said said.seats
check "one look, at the end" train once --sample-prompts abc
[ "$(samples once | cut -d ' ' -f 1)" = 40 ]
verdict $? "is the default"

# ---- conversations ----

i=0
while [ $i -lt 20 ]; do
    i=$((i + 1))
    echo '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}'
done >talks.jsonl
check "conversations" run 0 "$zinf" train --model model --data talks.jsonl --chat-template alpaca \
    --seq-len 224 --steps 2 --threads 1 --device host --progress none --output talked \
    --sample-prompts hi --max-new-tokens 4
"$zinf" generate --model talked/model --chat --chat-template alpaca --prompt hi --max-new-tokens 4 \
    --temperature 0 --threads 1 --device host --json 2>/dev/null |
    sed 's/.*"text":\("\([^"\\]\|\\.\)*"\).*/\1/' >made
[ "$(samples talked | sed 's/.*"text":\("\([^"\\]\|\\.\)*"\).*/\1/')" = "$(cat made)" ]
verdict $? "are asked as a user asks"

# ---- what makes no sense ----

check "no prompts" run 1 "$zinf" train --model model --data text --steps 1 --sample-every 2 --output no
complains "--sample-every needs --sample-prompts"
verdict $? "is told"
check "too long a prompt" run 1 "$zinf" train --model model --data text --steps 1 --seq-len 8 \
    --sample-prompts 'a long prompt' --output no
complains "no room for an answer"
verdict $? "is told, too"
finish
