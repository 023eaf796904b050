#!/bin/sh
# chat: samples and templates as a user meets them. Packed and apart give the same loss and the same
# gradient; a training goes on where it stopped; broken rows and unknown templates are named; a
# model that was taught answers by its template.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99

"$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --context 96 \
    --tokenizer bytes --output model >/dev/null 2>&1 || exit 99
say() { # question, answer: a row
    printf '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "%s"}]}\n' "$1" "$2"
}
{
    say red rot && say green gruen && say blue blau
    say "one two three" "eins zwei drei" && say no nein && say "" ja
} >rows.jsonl
zinf_on() { # command, options...
    command=$1
    shift
    "$zinf" "$command" --model model --threads 1 --device host --data rows.jsonl \
        --chat-template mistral "$@"
}
near() { # bound, file with a number, file with a number
    paste "$2" "$3" | awk -v bound="$1" '
        { n++; d = $1 - $2; bad += (d < 0 ? -d : d) > bound * ($1 < 0 ? -$1 : $1) }
        END { exit bad > 0 || n == 0 }'
}
number() { # key, file: its values
    sed -n "s/.*\"$1\": \\(-*[0-9.e+-]*\\).*/\\1/p" "$2"
}

# ---- what is fed ----

check "zinf data" run 0 "$zinf" data --model model --data rows.jsonl --chat-template mistral
says "6 samples of" "[INST] red [/INST][[rot<|endoftext|>]]" "lengths" && ! says "broken"
verdict $? "it shows what counts"
check "as JSON" run 0 "$zinf" data --model model --data rows.jsonl --chat-template mistral --json \
    --pack
says '"samples":6' '"counted":38' '"windows":2' '"counts":[0,'
verdict $? "it counts"
check "what is cut is said" run 0 "$zinf" data --model model --data rows.jsonl \
    --chat-template mistral --seq-len 22 --json
says '"cut_tokens":6' '"unlabelled":1'
verdict $? "and what is left out"

# ---- packed and apart ----

check "loss apart" run 0 zinf_on eval
number loss said.out >apart && number tokens said.out >apart.tokens
check "loss packed" run 0 zinf_on eval --pack
number loss said.out >packed && number tokens said.out >packed.tokens
near 1e-5 apart packed && cmp -s apart.tokens packed.tokens && [ "$(cat apart.tokens)" = 38 ]
verdict $? "the same loss over the same tokens"
check "gradient apart" run 0 zinf_on gradients --seq-len 96 --micro-batch 6 --output a.safetensors
number grad_norm said.out >apart
check "gradient packed" run 0 zinf_on gradients --seq-len 96 --micro-batch 2 --pack \
    --output b.safetensors
number grad_norm said.out >packed
near 1e-4 apart packed
verdict $? "the same gradient"

# ---- training ----

train() { # options...
    zinf_on train --micro-batch 2 --seq-len 96 --lr 1e-2 --lr-scheduler constant --progress none "$@"
}
check "six steps" run 0 train --steps 6 --output whole --pack
check "three steps" run 0 train --steps 3 --output halves --pack
check "and three more" run 0 train --steps 6 --output halves --pack --resume
for run in whole halves; do
    number loss $run/log.jsonl | tail -n 1 >$run.loss
done
[ -s whole.loss ] && cmp -s whole.loss halves.loss
verdict $? "the same last loss"
run 1 train --steps 8 --output halves --pack --train-on-prompt --resume
complains "data"
verdict $? "other labels are other data"
# The mean is over the step's tokens, not one over micro-batches of unequal ones.
check "at once" run 0 zinf_on train --micro-batch 6 --seq-len 96 --lr 1e-2 --steps 3 --no-shuffle \
    --progress none --output once
check "accumulated" run 0 zinf_on train --micro-batch 1 --accumulate 6 --seq-len 96 --lr 1e-2 \
    --steps 3 --no-shuffle --progress none --output accumulated
for run in once accumulated; do
    number loss $run/log.jsonl >$run.loss
done
near 1e-5 once.loss accumulated.loss && [ "$(wc -l <once.loss)" -eq 3 ]
verdict $? "the same losses"
check "a model that learns its rows" run 0 train --steps 150 --micro-batch 6 --output learnt
check "answers" run 0 "$zinf" generate --model learnt/model --threads 1 --device host --chat \
    --chat-template mistral --temperature 0 --max-new-tokens 20 --prompt red --prompt "one two three"
says "rot" "eins zwei drei" && ! says "INST"
verdict $? "by its template"
check "which the folder says now" run 0 "$zinf" generate --model learnt/model --threads 1 \
    --device host --chat --temperature 0 --max-new-tokens 20 --prompt red
says "rot"
verdict $? "and no option has to"

check "adapters" run 0 train --steps 2 --lora-rank 2 --pack --output adapters
check "whose folder says it, too" run 0 "$zinf" generate --model model --adapter adapters/model \
    --threads 1 --device host --chat --max-new-tokens 2 --prompt red
for from in adapters adapters/model; do
    rm -rf merged
    check "merged, from $from" run 0 "$zinf" export --merge --model model --checkpoint $from --output merged
    cmp -s adapters/model/chat_template.jinja merged/chat_template.jinja
    verdict $? "says it, too"
done
check "exported" run 0 "$zinf" export --checkpoint learnt --output exported
cmp -s learnt/model/chat_template.jinja exported/chat_template.jinja
verdict $? "says it, too"

# ---- refused ----

run 1 "$zinf" train --model model --data rows.jsonl --output x
complains "model has no chat template" "--chat-template NAME"
verdict $? "no template"
echo '{"chat_template": "{{ messages }}"}' >model/tokenizer_config.json
run 1 "$zinf" train --model model --data rows.jsonl --output x
complains "not a known one" "--chat-template NAME"
verdict $? "an unknown template"
rm model/tokenizer_config.json
run 1 zinf_on eval --chat-template nonsense
complains "nonsense is not one of" "chatml"
verdict $? "a name that is none"
yes 'a text without conversations' | head -n 100 >text.txt
run 2 "$zinf" train --model model --data text.txt --seq-len 16 --steps 1 --chat-template nonsense --output y
complains "nonsense is not one of" "chatml" && [ ! -e y ]
verdict $? "even where there are no conversations"
run 2 zinf_on eval --format nonsense
complains "--format nonsense: use stream" "sharegpt"
verdict $? "a format that is none"
run 1 zinf_on eval --truncate middle
complains "use end, beginning or drop"
verdict $? "a side that is none"
{
    cat rows.jsonl && echo
    echo '{"messages": [{"role": "user", "content": "a"}]}'
    say a b
} >bad.jsonl
run 1 "$zinf" eval --model model --data bad.jsonl --chat-template mistral
complains "bad.jsonl: row 7 (line 8): the conversation has no assistant turn" "--skip-bad-rows"
verdict $? "a broken row is named"
check "or skipped" run 0 "$zinf" data --model model --data bad.jsonl --chat-template mistral \
    --skip-bad-rows
says "7 samples" "1 broken" "row 7 (line 8)"
verdict $? "and counted"
echo '{"instruction": "a", "output": "b"}' >alpaca.jsonl
run 1 "$zinf" eval --model model --data rows.jsonl alpaca.jsonl --chat-template mistral
complains 'rows.jsonl is of the format "messages", and alpaca.jsonl of "alpaca"'
verdict $? "two formats at once"
echo "some text" >text.txt
run 1 "$zinf" eval --model model --data text.txt --pack
complains "--pack" "text.txt"
verdict $? "a stream is not packed"
run 2 "$zinf" generate --model model --prompt a --system b
complains "--chat"
verdict $? "a system without a chat"

# ---- the example, for one epoch ----

ZINF=$zinf
export ZINF
check "examples/chat.sh" run 0 bash "$SRCDIR/examples/chat.sh" "$work/example" 1
says "297 samples" "of 58 answers are right"
verdict $? "it asks what was held out"
finish
