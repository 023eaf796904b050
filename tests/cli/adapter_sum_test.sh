#!/bin/sh
# An adapter's folder against itself: a flipped bit anywhere in its weights, or in what it knows of
# them, is refused by every reader and named; an adapter that was changed on purpose has a way out.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
make_text text.txt 20
"$zinf" init --arch gpt2 --size small --layers 1 --hidden 16 --heads 2 --vocab 257 --context 16 \
    --output base >/dev/null || exit 99
train() { # status, options...
    train_status=$1
    shift
    run "$train_status" "$zinf" train --model base --data text.txt --seq-len 16 --steps 2 \
        --threads 1 --progress none "$@"
}
flip() { # file, byte, bit
    old=$(od -An -tu1 -j "$2" -N 1 "$1")
    # shellcheck disable=SC2059
    printf "\\$(printf %03o $((old ^ (1 << $3))))" |
        dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
somewhere() { # seed, first, end: byte and bit
    awk "BEGIN { srand($1); print $2 + int(rand() * ($3 - $2)), int(rand() * 8) }"
}
length() { wc -c <"$1" | tr -d ' '; }

check "an adapter" train 0 --lora-rank 2 --save-every 2 --output run
weights=model/adapter_model.safetensors
check "knows its own sum" holds run/model/adapter_base.json '"adapter": "' '"checksum": "'
holds run/checkpoint-2/adapter_base.json '"adapter": "'
verdict $? "in a checkpoint, too"
cp -r run/model whole
eval_with() { # status, folder
    run "$1" "$zinf" eval --model base --adapter "$2" --data text.txt --seq-len 16
}
check "is read" eval_with 0 whole

# ---- bits of the weights ----

cp -r whole model
header=$(od -An -tu8 -N 8 $weights | tr -d ' ')
refused() { # byte, bit: by every reader
    flip $weights "$1" "$2"
    missed=
    for reader in "eval --data text.txt --seq-len 16" "generate --prompt a --max-new-tokens 1" \
        "train --data text.txt --seq-len 16 --steps 1 --output none" \
        "gradients --data text.txt --seq-len 16 --output none.safetensors"; do
        # shellcheck disable=SC2086
        run 1 "$zinf" $reader --model base --adapter model --threads 1 &&
            complains "$weights is damaged" "adapter_base.json" "restore the file" || missed=1
    done
    run 1 "$zinf" export --merge --checkpoint model --model base --output none &&
        complains "$weights is damaged" || missed=1
    run 1 "$zinf" export --adapter whole model --output none &&
        complains "$weights is damaged" || missed=1
    run 1 "$zinf" verify model && says "$weights is damaged" || missed=1
    flip $weights "$1" "$2"
    [ -z "$missed" ]
}
for seed in 1 2 3; do
    # shellcheck disable=SC2046
    refused $(somewhere $seed 8 $((8 + header)))
    verdict $? "a flipped bit of the header is refused by all, $seed"
    # shellcheck disable=SC2046
    refused $(somewhere $seed $((8 + header)) "$(length $weights)")
    verdict $? "a flipped bit of the numbers is refused by all, $seed"
done
check "a file that is cut off" eval 'head -c 900 whole/adapter_model.safetensors >$weights &&
    eval_with 1 model'
check "too" complains "$weights is damaged"
cp whole/adapter_model.safetensors $weights
check "whole again it is read" eval_with 0 model
check "and looked at" run 0 "$zinf" verify model
says "whole, an adapter"
verdict $? "with its sum"

check "joined with itself" run 0 "$zinf" export --adapter whole model --output joined
check "and looked at" run 0 "$zinf" verify joined
says "whole, an adapter"
verdict $? "it has a sum of its own"

# ---- what it knows ----

broken() { # text of adapter_base.json
    printf '%s\n' "$1" >model/adapter_base.json
    eval_with 1 model && complains "model/adapter_base.json is damaged" "remove it" &&
        run 1 "$zinf" verify model && says "model/adapter_base.json is damaged"
}
said=$(cat whole/adapter_base.json)
digits=$(printf '%s' "$said" | sed 's/.*"adapter": "\(.\{16\}\)".*/\1/')
check "a sum that is too short" broken "$(printf '%s' "$said" | sed "s/$digits/${digits%?}/")"
check "one that is too long" broken "$(printf '%s' "$said" | sed "s/$digits/0$digits/")"
check "one that is no number" broken "$(printf '%s' "$said" | sed "s/$digits/0x00000000000001/")"
check "a number in the place of a sum" broken "$(printf '%s' "$said" | sed "s/\"$digits\"/1/")"
check "a name that is not known" broken "$(printf '%s' "$said" | sed 's/"adapter"/"adaptes"/')"
check "a sum without its checksum" broken "$(printf '%s' "$said" | sed 's/, "checksum.*/}/')"
check "half of what is known of the base" broken "$(printf '%s' "$said" | sed 's/"layout[^,]*,//')"
check "an empty object" broken '{}'
check "a list" broken '[]'
check "no JSON" broken '{"layout": '
every_bit() { # flips a bit of every fifth byte
    byte=0
    while [ $byte -lt $((${#said})) ]; do
        cp whole/adapter_base.json model/adapter_base.json
        flip model/adapter_base.json $byte $((byte % 8))
        run 1 "$zinf" verify model || { echo "# byte $byte"; return 1; }
        says "adapter_base.json is damaged" || return 1
        byte=$((byte + 5))
    done
}
check "a flipped bit of any byte" every_bit

# ---- ways out ----

cp whole/adapter_base.json model/
flip $weights $((8 + header)) 0
check "changed on purpose" eval_with 1 model
check "the way out is named" complains "remove adapter_base.json" "on purpose"
rm model/adapter_base.json
check "and is one" eval_with 0 model
check "without a sum nothing is promised" run 0 "$zinf" verify model
says "has no checksum"
verdict $? "which is said"
echo '{"layout": "0123456789abcdef", "weights": "0123456789abcdef"}' >model/adapter_base.json
check "a folder of an earlier version is refused" eval_with 1 model
complains "earlier zinf" "remove that file"
verdict $? "by a clear sentence"
flip run/$weights $((8 + header)) 0
check "a training over a damaged one" train 0 --lora-rank 2 --overwrite --output run
check "leaves one that is whole" run 0 "$zinf" verify run
says "run/model: whole, an adapter"
verdict $? "as verify says of the whole output"
check "from fresh weights" run 0 "$zinf" train --model base --init --lora-rank 2 --data text.txt \
    --seq-len 16 --steps 1 --output fresh --progress none
grep -q '^{"adapter": "' fresh/model/adapter_base.json && eval_with 0 fresh/model
verdict $? "there is a sum, too"
finish
