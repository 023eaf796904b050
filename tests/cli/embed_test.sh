#!/bin/sh
# embed: embeddings of lines and rows as a NumPy file and as JSON; what a folder of sentence-
# transformers says is followed; and a model is trained by rows that belong together, whose loss is
# that of the whole step however it is cut into micro-batches, devices and runs.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99

field() { sed -n "s/.*\"$1\": *\\([0-9.e-]*\\).*/\\1/p" "$2"; }
near() { awk -v x="$1" -v y="$2" -v d="$3" 'BEGIN { exit !(x != "" && x - y < d && y - x < d) }'; }
embed() { # status, options...
    e_status=$1
    shift
    run "$e_status" "$zinf" embed --device host --threads 1 "$@"
}
train() { # status, output, options...
    t_status=$1 t_output=$2
    shift 2
    run "$t_status" "$zinf" train --device host --threads 1 --output "$t_output" --progress none \
        --task embedding --lr 2e-3 --lr-scheduler constant --no-final-checkpoint "$@"
}
length() { # of the first embedding
    head -n 1 "$1" | sed 's/.*\[//; s/\].*//' |
        awk -F ', ' '{ for (i = 1; i <= NF; i++) n += $i * $i; print sqrt(n) }'
}

check "a new BERT" run 0 "$zinf" init --arch bert --size base --layers 1 --hidden 32 --heads 2 \
    --context 32 --tokenizer "$SRCDIR/examples/classify" --output bert
sed 1d "$SRCDIR/examples/classify/pairs-train.tsv" | cut -f1 | head -n 20 >lines.txt
awk '{ print "{\"text\": \"" $0 "\"}" }' lines.txt >rows.jsonl

mkdir plain && cp "$SRCDIR/tests/fixtures/tokenizer_kinds/qwen2.json" plain/tokenizer.json

# ---- embeddings ----

check "lines of text" embed 0 --model bert --data lines.txt --output lines.npy --micro-batch 3
says '{"rows": 20, "columns": 32}' && [ "$(wc -c <lines.npy)" = $((128 + 20 * 32 * 4)) ] &&
    head -c 128 lines.npy | grep -aq "'descr': '<f4', 'fortran_order': False, 'shape': (20, 32)"
verdict $? "are an array of NumPy"
embed 0 --model bert --data rows.jsonl --output rows.npy --micro-batch 20 && cmp lines.npy rows.npy
verdict $? "rows are the same, at any number at once"
embed 0 --model bert --data lines.txt --normalize && cp said.out one.jsonl &&
    near "$(length one.jsonl)" 1 1e-5 && [ "$(wc -l <one.jsonl)" = 20 ] &&
    head -n 1 one.jsonl | grep -q '^{"row": 1, "embedding": \['
verdict $? "lines of JSON, of length 1"
embed 0 --model bert --data lines.txt --pooling cls && ! near "$(length said.out)" 1 0.1
verdict $? "or as they are"

cp -r bert said
mkdir said/1_Pooling
echo '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}' >said/1_Pooling/config.json
echo '{"max_seq_length": 6}' >said/sentence_bert_config.json
echo '{"prompts": {"query": "Anna: "}, "default_prompt_name": null}' \
    >said/config_sentence_transformers.json
printf '[{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]' \
    >said/modules.json
embed 0 --model said --data lines.txt --output a.npy && complains "more than 6 tokens" &&
    embed 0 --model bert --data lines.txt --pooling cls --normalize --seq-len 6 --output b.npy &&
    cmp a.npy b.npy
verdict $? "a folder says how"
embed 0 --model said --data lines.txt --no-normalize --output a.npy &&
    embed 0 --model bert --data lines.txt --pooling cls --seq-len 6 --output b.npy && cmp a.npy b.npy
verdict $? "--no-normalize has the last word"
embed 0 --model said --data lines.txt --prompt-name query --output a.npy &&
    embed 0 --model said --data lines.txt --prefix "Anna: " --output b.npy && cmp a.npy b.npy
verdict $? "and what is put before texts"
check "another prompt" embed 1 --model said --data lines.txt --prompt-name document
complains "--prompt-name document: said/config_sentence_transformers.json has query"
verdict $? "is not guessed"
sed -i 's/models.Normalize/models.Dense/' said/modules.json
check "another module" embed 1 --model said --data lines.txt --output no.npy
complains "sentence_transformers.models.Dense" "is not supported" && [ ! -e no.npy ]
verdict $? "is refused by name"

sed -i 's/models.Dense/models.Normalize/; s,1_Pooling,../said/1_Pooling,' said/modules.json
check "a module beside the folder" embed 1 --model said --data lines.txt
complains "the module path ../said/1_Pooling leaves the folder"
verdict $? "is not looked for"
sed -i 's,"[^"]*1_Pooling","1_Pooling",; s,path": "\.\./said/,path": ",' said/modules.json
both='"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true'
echo "{$both}" >said/1_Pooling/config.json
check "two ways at once" embed 1 --model said --data lines.txt
complains "said/1_Pooling/config.json: the pooling of this file is not supported, only one of mean"
verdict $? "are not one of them"
echo '{"pooling_mode": "cls", "pooling_mode_cls_token": true, "include_prompt": false}' \
    >said/1_Pooling/config.json
echo '{"max_seq_length": 1e30}' >said/sentence_bert_config.json
check "a limit that is none" embed 0 --model said --data lines.txt
check "a prompt that the pooling leaves out" embed 1 --model said --data lines.txt \
    --prompt-name query
complains "include_prompt false"
verdict $? "is refused"

check "a new decoder" run 0 "$zinf" init --arch qwen3 --size 0.6b --layers 1 --hidden 32 --heads 2 \
    --context 32 --tokenizer plain --output decoder
printf '{"text": "one"}\n{"text": ""}\n{"text": "two"}\n' >empty.jsonl
check "a text without a token" embed 1 --model decoder --data empty.jsonl
complains "1 of 3 texts have no token" "--skip-bad-rows"
verdict $? "has no embedding"
embed 0 --model decoder --data empty.jsonl --skip-bad-rows && complains "are left out" &&
    [ "$(wc -l <said.out)" = 2 ]
verdict $? "and can be left out"

# ---- training ----

awk 'BEGIN {
    split("anna maria clara ruth julia helen john peter", who)
    split("a car,a loaf of bread,a painting", what, ",")
    for (i = 0; i < 48; i++) {
        w = who[1 + i % 8]; x = what[1 + int(i / 8) % 3]
        print "{\"anchor\": \"" w " bought " x " on monday\", \"positive\": \"it was " x " that " w \
            " bought\", \"negative\": \"" w " bought nothing\"}"
    }
}' >triples.jsonl
base="--model bert --init --data triples.jsonl --seed 4"
check "a training" train 0 out $base --eval-data triples.jsonl --micro-batch 12 --steps 40 \
    --eval-every 20 --normalize
complains "12 rows a step" "zinf eval --task embedding" && grep -q BertModel out/model/config.json
verdict $? "counts rows"
check "its evaluation" run 0 "$zinf" eval --device host --threads 1 --task embedding --model \
    out/model --data triples.jsonl --micro-batch 12
first=$(sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p;' out/log.jsonl | head -n 1)
awk -v x="$(field loss said.out)" -v y="$first" 'BEGIN { exit !(x + 0.5 < y) }' &&
    [ "$(field samples said.out)" = 48 ]
verdict $? "is better than the beginning"
embed 0 --model out/model --data lines.txt && near "$(length said.out)" 1 1e-5
verdict $? "and the folder says that embeddings are normalised"

same="$base --dropout 0.1 --steps 1"
train 0 whole $same --micro-batch 8 && train 0 cut $same --micro-batch 1 --accumulate 8 &&
    train 0 half $same --micro-batch 4 --accumulate 2
for key in loss grad_norm; do
    near "$(field $key cut/log.jsonl)" "$(field $key whole/log.jsonl)" 2e-6 &&
        near "$(field $key half/log.jsonl)" "$(field $key whole/log.jsonl)" 2e-6
    verdict $? "the same $key of one micro-batch and of eight: $(field $key cut/log.jsonl)"
done

mkdir swap
printf '{"zinf": {"gradient_sum": "tree"}}' >tree.json
printf '{"zinf": {"gradient_sum": "tree", "placement": "exact"}, "zero_optimization": {"stage": 3,
 "offload_param": {"device": "nvme", "nvme_path": "%s"},
 "offload_optimizer": {"device": "nvme", "nvme_path": "%s"}}}' "$work/swap" "$work/swap" >drive.json
same="$base --dropout 0.1 --steps 4"
train 0 one $same --config tree.json --micro-batch 4 --accumulate 2 &&
    train 0 two $same --config tree.json --micro-batch 4 --seats 2 &&
    cmp one/model/model.safetensors two/model/model.safetensors
verdict $? "two devices as one"
train 0 drive $same --config drive.json --micro-batch 4 --accumulate 2 &&
    cmp one/model/model.safetensors drive/model/model.safetensors
verdict $? "on the drive as in memory"
train 0 parts $same --steps 2 --save-every 2 --config tree.json --micro-batch 4 --accumulate 2 &&
    train 0 parts $same --resume --config tree.json --micro-batch 4 --accumulate 2 &&
    cmp one/model/model.safetensors parts/model/model.safetensors
verdict $? "and a run that goes on"

# ---- what cannot be ----

check "rows that are to be packed" train 1 none --model bert --data triples.jsonl --steps 1 --pack
complains "samples of --task embedding are not packed"
verdict $? "are not packed"
check "rows without columns" train 1 none --model bert --data rows.jsonl --steps 1
complains 'rows have no "anchor" and "positive": name the columns with --source-column'
verdict $? "are told what is missing"
check "one column" train 1 none --model bert --data rows.jsonl --source-column text --steps 1
complains "name at least two columns"
verdict $? "is not enough"
finish
