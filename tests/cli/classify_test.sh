#!/bin/sh
# classification and regression: a small BERT learns what labels say, from columns to metrics; its
# classes come of the data or of the folder, and a head of the folder, or fresh; what is wrong with
# labels is named; and the example's rehearsal in a shorter form.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99

field() { # key, file
    sed -n "s/.*\"$1\": *\\(\"[^\"]*\"\\|-*[0-9.e-]*\\).*/\\1/p" "$2"
}
above() { # number, bound
    awk -v x="$1" -v y="$2" 'BEGIN { exit !(x > y) }'
}
train() { # status, output, options...
    t_status=$1 t_output=$2
    shift 2
    run "$t_status" "$zinf" train --device host --threads 1 --output "$t_output" --progress none \
        --no-final-checkpoint --lr 3e-3 --dropout 0 "$@"
}
evaluate() { # status, options...
    e_status=$1
    shift
    run "$e_status" "$zinf" eval --device host --threads 1 "$@"
}
config_of() { tr -d ' \t\n' <"$1/config.json"; }

check "a new BERT" run 0 "$zinf" init --arch bert --size base --layers 1 --hidden 32 --heads 2 \
    --context 32 --tokenizer "$SRCDIR/examples/classify" --output bert

# ---- classes ----

# What is bought says which class it is, as a name.
awk 'BEGIN {
    print "words\tkind"
    split("anna maria clara ruth julia helen", who); split("monday tuesday friday sunday", day)
    for (i = 0; i < 96; i++) {
        kind = i % 3
        what = kind == 0 ? "a car" : kind == 1 ? "a loaf of bread" : "a painting"
        print who[1 + i % 6] " bought " what " on " day[1 + int(i / 6) % 4] "\t" \
            (kind == 0 ? "vehicle" : kind == 1 ? "food" : "art")
    }
}' >kinds.tsv
columns="--text-column words --label-column kind"
check "three classes by name" train 0 kinds --model bert --init --data kinds.tsv --eval-data \
    kinds.tsv $columns --micro-batch 16 --steps 240 --eval-every 120 --lr 5e-3 --task classification
complains "eval accuracy" "eval f1_macro" && [ "$(grep -c '"eval_accuracy"' kinds/log.jsonl)" = 2 ]
verdict $? "are scored on the way, without being asked"
config_of kinds/model | grep -q '"id2label":{"0":"art","1":"food","2":"vehicle"}' &&
    config_of kinds/model | grep -q '"label2id":{"art":0,"food":1,"vehicle":2}' &&
    config_of kinds/model | grep -q '"architectures":\["BertForSequenceClassification"\]'
verdict $? "and stand in config.json"
check "the model" evaluate 0 --model kinds/model --data kinds.tsv $columns --predictions said.jsonl \
    --metric accuracy f1_macro matthews
[ "$(field accuracy said.out)" = 1 ] && [ "$(field matthews said.out)" = 1 ] &&
    [ "$(field samples said.out)" = 96 ] && ! grep -q perplexity said.out
verdict $? "tells them apart"
[ "$(wc -l <said.jsonl)" = 96 ] && head -1 said.jsonl | grep -q \
    '^{"sample":1,"predicted":"vehicle","reference":"vehicle","logits":\[[^,]*,[^,]*,[^,]*\]}$' 
verdict $? "and says by name what it takes for what"

# ---- heads ----

cp -r bert base && sed -i 's/ForSequenceClassification/ForMaskedLM/' base/config.json
sed -i 's/classifier\.weight/classifiex.weight/; s/classifier\.bias/classifiex.bias/' \
    base/model.safetensors
check "a folder without a head" train 0 base1 --model base --data kinds.tsv $columns \
    --micro-batch 8 --steps 2 --seed 3
complains "base has no classifier.weight, classifier.bias: fresh, from seed 3"
verdict $? "is given one, which is said"
train 0 base2 --model base --data kinds.tsv $columns --micro-batch 8 --steps 2 --seed 3
cmp base1/model/model.safetensors base2/model/model.safetensors
verdict $? "and is the same every time"
check "evaluated before it is trained" evaluate 1 --model base --data kinds.tsv $columns
complains "--model base has no head for classes: zinf train --task classification"
verdict $? "it has none"
check "other classes" train 1 none --model kinds/model --data "$SRCDIR/examples/classify/pairs-eval.tsv" \
    --source-column sentence1,sentence2 --steps 1
complains "the label different is not one of the 3 classes: art, food, vehicle" "--new-head"
verdict $? "are no reason to guess"
check "with --new-head" train 0 other --model kinds/model --new-head --micro-batch 8 --steps 1 \
    --data "$SRCDIR/examples/classify/pairs-eval.tsv" --source-column sentence1,sentence2
complains "is given a new head, classifier.weight, classifier.bias: fresh" &&
    config_of other/model | grep -q '"id2label":{"0":"different","1":"paraphrase"}'
verdict $? "they are those of the data"

# ---- adapters ----

# Above a model without a head, and above one that has numbers for as many classes.
cp -r kinds/model numbers && tr -d '\n\t' <kinds/model/config.json | sed 's/"id2label":{[^}]*}/"num_labels":3/
    s/"label2id":{[^}]*},*//; s/,}/}/' >numbers/config.json
for below in base numbers; do
    check "adapters above $below" train 0 lora-$below --model $below --data kinds.tsv --eval-data kinds.tsv \
        $columns --micro-batch 8 --steps 30 --lora-rank 2 --task classification
    check "are evaluated" evaluate 0 --model $below --adapter lora-$below/model --data kinds.tsv $columns \
        --task classification --micro-batch 8 --predictions said.jsonl
    awk -v a="$(field loss said.out)" -v b="$(field eval_loss lora-$below/log.jsonl)" \
        'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-12) }'
    verdict $? "to the loss of their training"
    grep -q '"reference":"vehicle"' said.jsonl
    verdict $? "with the names of its classes"
    # Names that the adapters do not know are no reason to call class 0 something else.
    sed 's/art$/brt/' kinds.tsv >other.tsv
    check "other names" train 1 lora-more --model $below --adapter lora-$below/model --data other.tsv \
        $columns --steps 1 --task classification
    complains "the label brt is not one of the 3 classes: art, food, vehicle"
    verdict $? "are refused when they are trained further"
done
check "merged" run 0 "$zinf" export --merge --model numbers --checkpoint lora-numbers/model --output merged
config_of merged | grep -q '"id2label":{"0":"art","1":"food","2":"vehicle"}'
verdict $? "they leave the names in config.json"
check "which" evaluate 0 --model merged --data kinds.tsv $columns --micro-batch 8
awk -v a="$(field loss said.out)" -v b="$(field eval_loss lora-numbers/log.jsonl)" \
    'BEGIN { exit !((a - b) ^ 2 < 1e-10) }'
verdict $? "has their loss"

# ---- weights of classes ----

weigh() { # output, options...
    w_output=$1
    shift
    train 0 "$w_output" --model bert --init --data kinds.tsv $columns --micro-batch 4 --accumulate 3 \
        --steps 4 "$@"
}
weigh plain && weigh ones --class-weights 1,1,1 && weigh more --class-weights 1,4,0.5
verdict $? "weights of classes"
weigh balanced --class-weights balanced
cmp plain/model/model.safetensors ones/model/model.safetensors &&
    cmp plain/model/model.safetensors balanced/model/model.safetensors &&
    ! cmp -s plain/model/model.safetensors more/model/model.safetensors
verdict $? "that are alike change no bit, and no more where classes are balanced"
weighed() { # status, weights, options...
    status=$1 weights=$2
    shift 2
    train "$status" weighed --model bert --init --data kinds.tsv $columns --micro-batch 4 \
        --accumulate 3 --save-every 2 --steps 4 --class-weights "$weights" "$@"
}
weighed 0 1,4,0.5 && weighed 1 1,4,1 --resume=weighed/checkpoint-2 &&
    complains "class_weights was [1,4,0.5] and is [1,4,1]"
verdict $? "a training does not go on with other weights of classes"
weighed 1 balanced --resume=weighed/checkpoint-2 && complains "class_weights was [1,4,0.5]"
verdict $? "nor with balanced ones"
weighed 0 1,4,0.5 --resume=weighed/checkpoint-2 &&
    cmp weighed/model/model.safetensors more/model/model.safetensors
verdict $? "with its own it comes to the same bits"
# 4 of art, 4 of food, 16 of vehicle: weights are rows / (classes * rows of the class).
awk -F '\t' 'NR == 1 || n[$2]++ < ($2 == "vehicle" ? 16 : 4)' kinds.tsv >uneven.tsv
weigh_uneven() { # output, weights
    train 0 "$1" --model bert --init --data uneven.tsv $columns --micro-batch 4 --steps 4 \
        --class-weights "$2"
}
weigh_uneven by-count balanced && weigh_uneven by-hand 2,2,0.5 &&
    cmp by-count/model/model.safetensors by-hand/model/model.safetensors
verdict $? "and are what counts of rows say where they are not"
echo '{"zero_optimization": {"stage": 3}, "zinf": {"gradient_sum": "tree"}}' >tree.json
for ranks in 1 2 4; do
    train 0 "ranks$ranks" --model bert --init --data kinds.tsv $columns --config tree.json \
        --seats $ranks --micro-batch 4 --accumulate $((4 / ranks)) --steps 4 --class-weights 1,4,0.5
done
cmp ranks1/model/model.safetensors ranks2/model/model.safetensors &&
    cmp ranks1/model/model.safetensors ranks4/model/model.safetensors
verdict $? "and weigh the same over 1, 2 and 4 ranks"
check "too few of them" train 1 none --model bert --init --data kinds.tsv $columns --class-weights 1,2
complains "--class-weights 1,2: there are 3 classes"
verdict $? "are counted"
check "none of them" train 1 none --model bert --init --data kinds.tsv $columns --class-weights 1,x,2
complains "use balanced, or numbers"
verdict $? "are named"

# ---- numbers ----

awk 'NR > 1 { print "{\"text\": \"" $1 " " $2 " " $3 " " $4 "\", \"label\": " \
    (/car/ ? 2.5 : /bread/ ? -1 : 0.5) "}" }' kinds.tsv >numbers.jsonl
check "one number a text" train 0 numbers --model bert --init --task regression \
    --data numbers.jsonl --eval-data numbers.jsonl --micro-batch 16 --steps 80 --eval-every 40
complains "eval pearson" "eval spearman" && config_of numbers/model | grep -q '"problem_type":"regression"'
verdict $? "is scored by correlations"
check "the model" evaluate 0 --model numbers/model --data numbers.jsonl --metric mse pearson
above "$(field pearson said.out)" 0.99 && above 0.05 "$(field mse said.out)"
verdict $? "knows them"
check "numbers for a model of classes" train 1 none --model kinds/model --task regression \
    --data numbers.jsonl
complains "has a head for classes: --new-head"
verdict $? "need another head"

# ---- decoders ----

check "a new LLaMA" run 0 "$zinf" init --arch llama --layers 1 --hidden 32 --heads 2 --context 32 \
    --tokenizer "$SRCDIR/examples/classify" --output llama
check "as a classifier" train 0 decoded --model llama --data kinds.tsv $columns --micro-batch 16 \
    --steps 160 --task classification
complains "llama has no score.weight: fresh"
verdict $? "is given a head"
config_of decoded/model | grep -q '"architectures":\["LlamaForSequenceClassification"\]' &&
    config_of decoded/model | grep -q '"pad_token_id":[0-9]' &&
    ! grep -q lm_head decoded/model/model.safetensors
verdict $? "in the place of the old one, and knows what padding is"
check "the model" evaluate 0 --model decoded/model --data kinds.tsv $columns --metric accuracy
[ "$(field accuracy said.out)" = 1 ]
verdict $? "tells classes apart by the last token"
check "numbers, too" train 0 counted --model llama --data numbers.jsonl --task regression --steps 1
check "a decoder that nobody has a head for" run 0 "$zinf" init --arch chatglm --layers 1 \
    --hidden 32 --heads 2 --context 32 --tokenizer "$SRCDIR/examples/classify" --output chatglm
train 1 none --model chatglm --data kinds.tsv $columns --task classification --steps 1 --overwrite
complains "models of the family chatglm have no head for classes"
verdict $? "is named"

# ---- what is wrong ----

refuse() { # words, name, options...
    r_words=$1 r_name=$2
    shift 2
    evaluate 1 --model kinds/model "$@" && complains "$r_words"
    verdict $? "$r_name"
}
one() { echo "$1" >one.jsonl; }
one '{"text": "a car", "label": "plant"}'
refuse "the label plant is not one of the 3 classes: art, food, vehicle" "a label that is none" \
    --data one.jsonl
one '{"text": "a car", "label": 3}'
refuse "the label 3 is not one of the 3 classes" "a label that is out of range" --data one.jsonl
one '{"text": "a car"}'
refuse 'there is no "label" among its columns (text): name one with --label-column' \
    "a row without a label" --data one.jsonl
one '{"sentence": "a car", "label": 1}'
refuse 'there is no "text" among its columns (sentence, label): name one with --source-column' \
    "a row without a text" --data one.jsonl
: >empty.tsv
refuse empty.tsv "an empty file" --data empty.tsv
one '{"text": "a car", "label": 1}'
refuse "rouge1 is not one of the task classification, which has: accuracy, f1" \
    "a metric of texts" --data one.jsonl --metric rouge1
refuse "which classifies samples: its task is classification" "another task" --data one.jsonl \
    --task causal-lm
run 0 "$zinf" init --arch roberta --size base --layers 1 --hidden 32 --heads 2 --context 32 \
    --tokenizer "$SRCDIR/examples/classify" --output roberta
config_of roberta | grep -q '"pad_token_id":1,'
verdict $? "a RoBERTa of any tokenizer says where its positions begin"
check "pairs for a model of one text" train 1 pairs --model roberta --steps 1 \
    --data "$SRCDIR/examples/classify/pairs-eval.tsv" --source-column sentence1,sentence2
complains "token type 1 is not one of the model's 1 (config.json): take the tokenizer"
verdict $? "are another tokenizer's"
check "too long a text" evaluate 0 --model kinds/model --data one.jsonl --seq-len 3
complains "1 of 1 texts have more than 3 tokens and are cut, by 1 tokens"
verdict $? "is cut, counted and said"
check "off its beginning" evaluate 0 --model kinds/model --data one.jsonl --seq-len 3 --truncate beginning
complains "1 of 1 texts have more than 3 tokens and are cut, by 1 tokens"
verdict $? "as well"
check "or not at all" evaluate 1 --model kinds/model --data one.jsonl --seq-len 3 --truncate drop
complains "no sample is left" "1 too long"
verdict $? "is left out"
one '{"text": "a car", "label": "x"}'
check "nothing to tell apart" train 1 none --model base --data one.jsonl --steps 1
complains "all rows have the same label x: there is nothing to learn"
verdict $? "is said"
head -c 300 kinds.tsv >short.tsv
check "rows from a pipe" train 1 none --model base --data - $columns --steps 1
complains "labels cannot be looked for in standard input"
verdict $? "cannot be read twice"

check "texts of it" run 1 "$zinf" generate --model kinds/model --prompt "a car" --device host
complains "classifies samples and makes no texts: zinf eval --predictions"
verdict $? "are refused"

# ---- the example ----

ZINF=$zinf check "classify-mrpc.sh rehearses" run 0 "$SRCDIR/examples/classify-mrpc.sh" --rehearse \
    "$work/mrpc" 120
grep -q '"matthews":' mrpc/scores.json && [ "$(wc -l <mrpc/predictions.jsonl)" = 80 ]
verdict $? "to its scores"
finish
