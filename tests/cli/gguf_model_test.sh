#!/bin/sh
# A GGUF file as a model: the same loss, the same text and the same adapters as of the folder that
# it was made from; what is not known in one is refused by name; damaged files are refused.
. "$SRCDIR/tests/support/command.sh"
fixtures=$SRCDIR/tests/fixtures/gguf
cd "$work" || exit 99
i=0
while [ $i -lt 200 ]; do
    echo "line $i of a text that is long enough, isn't it?"
    i=$((i + 1))
done >text.txt
loss() { run 0 "$zinf" eval --model "$1" --data text.txt --seq-len 32 --threads 1 && cp said.out "$2"; }
exported() { # family, form
    run 0 "$zinf" export --checkpoint "$fixtures/$1" --gguf "$2" --output "$1-$2.gguf"
}
same_loss() { # family: fp32 through the file is the folder bit for bit
    exported "$1" f32 && loss "$fixtures/$1" folder && loss "$1-f32.gguf" file && cmp folder file
}
same_text() {
    for model in "$fixtures/$1" "$1-f32.gguf"; do
        run 0 "$zinf" generate --model "$model" --prompt "line 3 of" --max-new-tokens 12 \
            --temperature 0 --threads 1 && cp said.out "text-$(basename "$model")" || return 1
    done
    cmp "text-$1" "text-$1-f32.gguf"
}
same_file() { # family, form: of what was read, the same file is made again
    exported "$1" "$2" && loss "$1-$2.gguf" file &&
        for folder in "$XDG_CACHE_HOME/zinf/gguf/$1-$2.gguf-"*; do
            run 0 "$zinf" export --checkpoint "$folder" --gguf "$2" --output again.gguf || return 1
        done
    run 0 "$zinf" inspect again.gguf && grep -v again said.out >one
    run 0 "$zinf" inspect "$1-$2.gguf" && grep -v again said.out >two && rm again.gguf && cmp one two
}
same_pieces() { # a tokenizer of SentencePiece's
    mkdir pieces && cp "$fixtures/llama/model.safetensors" "$fixtures/gemma2"/tokenizer* pieces &&
        sed 's/"bos_token_id": 0/"bos_token_id": 1/; s/"eos_token_id": 1/"eos_token_id": 2/' \
            "$fixtures/llama/config.json" >pieces/config.json || return 1
    run 0 "$zinf" export --checkpoint pieces --gguf f16 --output pieces.gguf || return 1
    for model in pieces pieces.gguf; do
        run 0 "$zinf" data --model "$model" --data text.txt --seq-len 32 --samples 9 &&
            cp said.out "of-$model" || return 1
    done
    [ -s of-pieces ] && cmp of-pieces of-pieces.gguf
}
same_bytes() { # tokens that are never merged
    run 0 "$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 2 --tokenizer bytes \
        --context 32 --output bytes && run 0 "$zinf" export --checkpoint bytes --gguf f32 \
        --output bytes.gguf && loss bytes folder && loss bytes.gguf file && cmp folder file
}
adapted() { # model, output
    run 0 "$zinf" train --model "$1" --data text.txt --seq-len 32 --steps 3 --lora-rank 2 \
        --threads 1 --progress none --output "$2"
}
same_adapter() {
    adapted "$fixtures/llama" by-folder && adapted llama-f32.gguf by-file &&
        cmp by-folder/model/adapter_model.safetensors by-file/model/adapter_model.safetensors &&
        run 0 "$zinf" eval --model llama-f32.gguf --adapter by-file/model --data text.txt --seq-len 32
}
merged() { # the base by its file
    run 0 "$zinf" export --merge --checkpoint by-folder/model --output of-folder --dtype fp32 &&
        run 0 "$zinf" export --merge --checkpoint by-file/model --model llama-f32.gguf \
            --output of-file --dtype fp32 && run 0 "$zinf" inspect of-file && says "no problem" &&
        loss of-folder folder && loss of-file file && cmp folder file
}
planned() {
    run 0 "$zinf" estimate --model llama-f32.gguf --seq-len 32 && says "parameters"
}
inspected() {
    exported gpt2 q8_0 && run 0 "$zinf" inspect gpt2-q8_0.gguf &&
        says "files: 1 of GGUF" "Q8_0" "model: gpt2" "tokenizer: bpe" "no problem found"
}
near() { # bound on how far the two losses are from each other
    awk -F '[:,]' -v most="$1" '
        { loss[NR] = $2 } END { d = loss[1] - loss[2]; exit !(d < most && d > -most) }' folder file
}
quantised() { # the loss of 8 bits is near that of the folder
    loss "$fixtures/gpt2" folder && loss gpt2-q8_0.gguf file && near 0.02
}
# Layers of short convolutions beside those with attention.
convolved() {
    run 0 "$zinf" init --arch lfm2 --size 350m --layers 4 --hidden 64 --heads 4 --context 64 \
        --tokenizer "$fixtures/llama" --output lfm2 &&
        run 0 "$zinf" export --checkpoint lfm2 --gguf f32 --output lfm2-f32.gguf &&
        loss lfm2 folder && loss lfm2-f32.gguf file && cmp folder file || return 1
    for folder in "$XDG_CACHE_HOME/zinf/gguf/lfm2-f32.gguf-"*; do
        grep -A5 layer_types "$folder/config.json" | tr -d '\n\t ' |
            grep -q '"conv","conv","full_attention","conv"' &&
            run 0 "$zinf" export --checkpoint "$folder" --gguf f32 --output again.gguf || return 1
    done
    run 0 "$zinf" inspect again.gguf && grep -v again said.out >one
    run 0 "$zinf" inspect lfm2-f32.gguf && grep -v again said.out >two && rm again.gguf && cmp one two
}
# Rows of whole blocks of 256: the last matrix and some of the layers' keep 6 bits.
in_4_bits() {
    run 0 "$zinf" init --arch llama --size 1-7b --layers 4 --hidden 256 --heads 4 --context 64 \
        --tokenizer "$fixtures/llama" --output wide &&
        run 0 "$zinf" export --checkpoint wide --gguf q4_k_m --output wide.gguf &&
        run 0 "$zinf" inspect wide.gguf && says "Q6_K" "Q4_K" "no problem found" &&
        grep -q "lm_head.weight *Q6_K" said.out && grep -q "1.mlp.up_proj.weight *Q4_K" said.out &&
        grep -q "3.self_attn.v_proj.weight *Q6_K" said.out &&
        loss wide folder && loss wide.gguf file && near 0.05
}
refused() { # words: bad.gguf is no model
    run 1 "$zinf" eval --model bad.gguf --data text.txt --seq-len 32 && complains "$@"
}
edited() { # from, to: of the same length
    LC_ALL=C sed "s/$1/$2/g" gpt2-f32.gguf >bad.gguf
}
foreign() { edited "architecture\(.\{12\}\)gpt2" "architecture\1gptq" && refused "architecture gptq"; }
cutting() { edited gpt-2 gpt-9 && refused 'cuts text as "gpt-9"'; }
stranger() { edited blk.0.ffn_up blk.0.ffn_xx && refused "has no tensor blk.0.ffn_xx"; }
short() { head -c 60000 gpt2-f32.gguf >bad.gguf && refused "lies outside of the file"; }
shorter() { head -c 300 gpt2-f32.gguf >bad.gguf && refused "bad.gguf is damaged"; }
for family in llama gpt2; do
    check "$family: the loss of the folder" same_loss $family
    check "$family: the text of the folder" same_text $family
    check "$family: f16 is written again as it was read" same_file $family f16
done
if "$zinf" data --model "$fixtures/gemma2" --data text.txt 2>&1 | grep -q "without SentencePiece"; then
    skip "pieces" "built without SentencePiece"
else
    check "the pieces of the folder" same_pieces
fi
check "the tokens of a folder that has bytes alone" same_bytes
check "the adapters of the folder" same_adapter
check "merged into the file" merged
check "estimate" planned
check "inspect" inspected
check "q8_0" quantised
check "q4_k_m" in_4_bits
check "lfm2" convolved
check "another architecture" foreign
check "another tokenizer" cutting
check "another tensor" stranger
check "a file cut off in its tensors" short
check "a file cut off in its keys" shorter
finish
