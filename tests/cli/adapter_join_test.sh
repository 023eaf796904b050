#!/bin/sh
# Several adapters of one base: eval, generate and gradients add them up, and export joins them to one
# that does the same; compared with merging one and having the other above the result.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
make_text text.txt 20
new() { # folder, seed
    "$zinf" init --arch gpt2 --size small --layers 2 --hidden 16 --heads 2 --vocab 257 \
        --context 16 --seed "$2" --output "$1" >/dev/null || exit 99
}
mkdir temporary
export TMPDIR="$work/temporary"
new base 1
new other 2
train() { # model, output, options...
    train_model=$1 train_output=$2
    shift 2
    run 0 "$zinf" train --model "$train_model" --data text.txt --seq-len 16 --steps 8 --lr 0.02 \
        --threads 1 --progress none --output "$train_output" "$@" || exit 99
}
loss() { # model, adapters...
    loss_model=$1
    shift
    "$zinf" eval --model "$loss_model" --data text.txt --seq-len 16 --micro-batch 4 ${1+--adapter "$@"} |
        sed 's/.*"loss": \([0-9.e+-]*\).*/\1/'
}
near() { # one, other
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && d < 2e-6 && d > -2e-6) }'
}
differ() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d > 1e-3 || d < -1e-3) }'
}

train base one --lora-rank 2 --lora-alpha 8 --lora-targets c_attn
train base two --lora-rank 3 --lora-targets c_attn,c_fc --seed 4 --lr 0.01
alone=$(loss base one/model)
both=$(loss base one/model two/model)
differ "$alone" "$both" && differ "$(loss base two/model)" "$both"
verdict $? "two adapters are another model than each alone"

run 0 "$zinf" export --merge --checkpoint one/model --model base --output merged
cp -r two/model above
rm above/adapter_base.json # which knows of another base
near "$both" "$(loss merged above)"
verdict $? "the one that merging the first and adding the second gives"
check "joined" run 0 "$zinf" export --adapter one/model two/model --output joined
[ "$both" = "$(loss base joined)" ]
verdict $? "to an adapter that measures as they do"
tr -d ' \t' <joined/adapter_config.json >ranks
check "whose ranks are the sums" holds ranks '"transformer.h.0.attn.c_attn":5' \
    '"transformer.h.0.mlp.c_fc":3'
check "merged like any other" run 0 "$zinf" export --merge --checkpoint joined --model base --output whole
near "$both" "$(loss whole)"
verdict $? "to the same model"
near "$alone" "$(loss base one/model two/model=0)"
verdict $? "a weight of 0 leaves one out"
near "$both" "$(loss base one/model=0.5 one/model=0.5 two/model)"
verdict $? "two halves are a whole"
check "an output folder is its latest" run 0 "$zinf" export --adapter one two --output again
cmp again/adapter_model.safetensors joined/adapter_model.safetensors
verdict $? "with the same weights"
check "texts come from both" run 0 "$zinf" generate --model base --adapter one/model two/model \
    --prompt the --max-new-tokens 4 --temperature 0
check "and gradients" run 0 "$zinf" gradients --model base --adapter one/model two/model \
    --data text.txt --seq-len 16 --micro-batch 1 --output gradients.safetensors
[ -z "$(ls -A temporary)" ]
verdict $? "nothing stays behind"

cp -r two/model flipped
printf '\001' | dd of=flipped/adapter_model.safetensors bs=1 seek=1500 conv=notrunc 2>/dev/null
run 1 "$zinf" export --adapter one/model flipped --output damaged
complains "flipped/adapter_model.safetensors is damaged"
verdict $? "one that is damaged is not joined"

train other three --lora-rank 2
run 1 "$zinf" eval --model base --adapter one/model three/model --data text.txt --seq-len 16
complains "one/model and three/model" "different weights"
verdict $? "adapters of different bases do not add up"
cat >dora.json <<'E2'
{"train_micro_batch_size_per_gpu": 1, "zinf": {"adapter": {"r": 2, "use_dora": true}},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
E2
train base four --config dora.json
run 1 "$zinf" eval --model base --adapter one/model four/model --data text.txt --seq-len 16
complains "four/model" "lora_magnitude" "do not add up"
verdict $? "nor do magnitudes"
run 1 "$zinf" eval --model base --adapter one/model two/model=x --data text.txt --seq-len 16
complains "two/model=x" "two/model=0.5"
verdict $? "a weight is a number"
run 1 "$zinf" eval --model base --adapter one/model nowhere --data text.txt --seq-len 16
complains "nowhere"
verdict $? "a folder that is not there is named"
check "joining takes --output alone" run 2 "$zinf" export --adapter one two --merge --output x
complains "only --output"
verdict $? "and says so"
finish
