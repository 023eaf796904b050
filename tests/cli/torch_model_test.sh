#!/bin/sh
# A model folder with pytorch_model.bin: trained from to the same bits as from safetensors, whole or
# in shards, and written as safetensors; one that would run something is refused and runs nothing.
. "$SRCDIR/tests/support/command.sh"
fixtures=$SRCDIR/tests/fixtures
cp -r "$fixtures/torch/gpt2_d" "$work/pickled" && cp -r "$fixtures/gpt2_d" "$work/plain" &&
    chmod -R u+w "$work" || exit 99
train() { # model, output
    run 0 "$zinf" train --model "$work/$1" --data "$fixtures/gpt2_d/tokens.bin" --seq-len 8 \
        --steps 3 --threads 1 --progress none --output "$work/$2"
}
same_bits() {
    train plain from-plain && train pickled from-pickled &&
        cmp "$work/from-plain/model/model.safetensors" "$work/from-pickled/model/model.safetensors" &&
        [ ! -e "$work/from-pickled/model/pytorch_model.bin" ]
}
inspected() {
    run 0 "$zinf" inspect "$work/pickled" && says "files: 1 of PyTorch" "no problem found" &&
        run 0 "$zinf" inspect --json "$work/pickled" && says '"file_kind":	"PyTorch"' &&
        run 0 "$zinf" inspect "$fixtures/torch/sharded/pytorch_model-00002-of-00002.bin" &&
        says "b.weight"
}
# What belongs to the model goes with it; what a link leads out to does not.
carried() {
    for name in LICENSE modeling_own.py tokenizer_config.json generation_config.json README.md; do
        echo "{}" >"$work/pickled/$name"
    done
    ln -s /etc/passwd "$work/pickled/special_tokens_map.json" && train pickled carried &&
        complains "special_tokens_map.json leads out of its folder" || return 1
    for name in LICENSE modeling_own.py tokenizer_config.json generation_config.json; do
        cmp "$work/pickled/$name" "$work/carried/model/$name" || return 1
    done
    for name in README.md special_tokens_map.json pytorch_model.bin; do
        [ ! -e "$work/carried/model/$name" ] || return 1
    done
    rm "$work/pickled/special_tokens_map.json"
}
# Both are there: the one that needs no pickle is read.
safetensors_win() {
    cp "$fixtures/torch/call.bin" "$work/plain/pytorch_model.bin" &&
        run 0 "$zinf" inspect "$work/plain" && says "files: 1 of safetensors"
}
refused() { # file, words: nothing runs, and what is not supported is said with the way on
    cp "$fixtures/torch/$1" "$work/pickled/pytorch_model.bin" && shift &&
        run 1 "$zinf" train --model "$work/pickled" --data "$fixtures/gpt2_d/tokens.bin" \
            --seq-len 8 --steps 1 --progress none --output "$work/none" && complains "$@" &&
        [ ! -e called ] && [ ! -e "$work/none/model" ]
}
cd "$work" || exit 99
check "the same bits as from safetensors" same_bits
check "inspect" inspected
check "what goes with the model" carried
check "safetensors win" safetensors_win
check "a call of os.system" refused call.bin "pickled/pytorch_model.bin: its pickle calls" ".system" \
    "which is not a tensor" "safetensors.torch.save_file"
check "the form from before PyTorch 1.6" refused old.bin "python3 -c" "weights_only=True"
check "a training's checkpoint" refused checkpoint.bin "'model' in it is a dictionary"
check "other tensors" refused module.bin "tensors are missing (" "config.json"
finish
