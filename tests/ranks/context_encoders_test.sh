#!/bin/sh
# Parts of sequences with encoders, encoder-decoders and layers that share keys: close to whole
# sequences, and the bits of one rank whoever has which parts.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99
mkdir drive

small_encoder() { # architecture, size
    "$zinf" init --arch "$1" --size "$2" --layers 2 --hidden 32 --heads 4 --context 40 --output "$1" \
        --tokenizer "$tokenizer"
}
tokenizer=bytes
check "a T5" run 0 small_encoder t5 small
shares_keys() { # the last two of four layers take the keys of the first two
    "$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 4 --tokenizer bytes \
        --config-only --output gemma4 &&
        sed 's/"bos_token_id": 60/"bos_token_id": 256/; s/"eos_token_id": 60/"eos_token_id": 256/
            s/\("vocab_size[a-z_]*"\): 61/\1: 257/' \
            "$SRCDIR/tests/fixtures/gemma4_text_c/config.json" >gemma4/config.json
}
check "a Gemma 4" run 0 shares_keys
tokenizer=$SRCDIR/examples/classify
check "a BERT" run 0 small_encoder bert base
check "a DeBERTa with a convolution" run 0 small_encoder deberta-v2 v2-xlarge
sed 1d "$SRCDIR/examples/classify/pairs-train.tsv" | cut -f1 | head -n 40 >lines.txt
awk '{ print "{\"text\": \"" $0 "\", \"summary\": \"" substr($0, 1, 9) "\"}" }' lines.txt >rows.jsonl

config() { # file, parts of sequences, place, dropout, keys of "zinf" behind a comma
    cat >"$1" <<END
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.5,
 "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 0.1}},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "$3", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "$3", "nvme_path": "$work/drive"}},
 "zinf": {"context_parts": $2, "threads": 1, "gradient_sum": "tree", "placement": "exact",
  "durability": "none", "dropout": $4${5:-}}}
END
}
train() { # model, output, options...
    model=$1 output=$2
    shift 2
    case $model in
    bert | deberta-v2) task="--task masked-lm --seq-len 19 --data lines.txt" ;;
    gemma4) task="--seq-len 19 --data lines.txt" ;;
    *) task="--source-column text --target-column summary --source-len 37 --seq-len 17 --data rows.jsonl" ;;
    esac
    # shellcheck disable=SC2086
    "$zinf" train --model "$model" --init $task --device host --seed 3 --steps 3 --progress none \
        --output "$output" "$@"
}

config whole.json 1 none 0
config parts.json 4 none 0
config ram.json 4 none 0.1 ', "sequence_chunk": 3'
config drive.json 4 nvme 0.1 ', "sequence_chunk": 3, "direct": false, "activation_device": "nvme"'
for model in t5 bert deberta-v2 gemma4; do
    if [ $model != gemma4 ]; then # whose third step rounds more
        check "$model in one piece" run 0 train $model $model.whole --config whole.json
        check "and in four" run 0 train $model $model.parts --config parts.json
        check "is close to it" close_to $model.parts $model.whole
    fi
    check "$model in parts of several chunks" run 0 train $model $model.1 --config ram.json
    check "four seats from drives" run 0 train $model $model.4 --config drive.json --seats 4 \
        --context-parallel 4
    check "have the bits of one" same_result $model.1 $model.4
done
check "a pipeline of two" run 0 train t5 t5.pipe --config ram.json --seats 4 --context-parallel 2 \
    --pipeline-parallel 2
check "has the bits of one" same_result t5.1 t5.pipe
finish
