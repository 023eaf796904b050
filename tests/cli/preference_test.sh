#!/bin/sh
# Pairs of answers from files to adapters: the forms of rows are told, a small model comes to prefer
# what was chosen by every loss, the log has the rewards under TRL's names, a run that was
# interrupted ends with the same bits, and what cannot be is refused with the way out.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ports.sh"
cd "$work" || exit 99
"$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --vocab 257 --context 128 \
    --output model >/dev/null || exit 99

awk 'BEGIN {
    for (i = 0; i < 40; i++) {
        good = i % 2 ? "red" : "pink"; bad = i % 3 ? "blue" : "green"
        printf "{\"prompt\": \"%d is \", \"chosen\": \"%s\", \"rejected\": \"%s\"}\n", i, good, bad
    }
}' >pairs.jsonl
sed 's/"prompt": "\([^"]*\)", "chosen": "\([^"]*\)", "rejected": "\([^"]*\)"/"chosen": "\1\2", "rejected": "\1\3"/' \
    pairs.jsonl >implicit.jsonl
sed 's/"prompt": "\([^"]*\)", "chosen": "\([^"]*\)", "rejected": "\([^"]*\)"/"prompt": [{"role": "user", "content": "\1"}], "chosen": [{"role": "assistant", "content": "\2"}], "rejected": [{"role": "assistant", "content": "\3"}]/' \
    pairs.jsonl >turns.jsonl

train() { # status, output, options...
    train_status=$1
    out=$2
    shift 2
    run "$train_status" "$zinf" train --model model --task preference --seq-len 24 \
        --micro-batch 4 --dropout 0 --lr 1e-2 --lr-scheduler constant --threads 1 \
        --progress none --no-final-checkpoint --output "$out" "$@"
}
last() { # key, output: of the last step
    sed -n "s|.*\"$1\": \\([-+.a-z0-9]*\\).*|\\1|p" "$2/log.jsonl" | tail -n 1
}
first() { # key, output
    sed -n "s|.*\"$1\": \\([-+.a-z0-9]*\\).*|\\1|p" "$2/log.jsonl" | head -n 1
}
is() { awk "BEGIN { exit !($1) }"; }

# ---- losses ----

check "dpo" train 0 dpo --data pairs.jsonl --steps 60 --lora-rank 4
is "$(first loss dpo) > 0.6931 && $(first loss dpo) < 0.6932 && $(first rewards/margins dpo) == 0"
verdict $? "begins where the model is its own reference"
is "$(last loss dpo) < 0.4 && $(last rewards/accuracies dpo) == 1 &&
    $(last rewards/margins dpo) > 1 && $(last rewards/chosen dpo) > $(last rewards/rejected dpo)"
verdict $? "and comes to prefer what was chosen"
for loss in ipo orpo simpo; do
    adapter="--lora-rank 4"
    [ $loss = ipo ] || adapter=
    # shellcheck disable=SC2086
    check "$loss" train 0 $loss --data pairs.jsonl --steps 60 --preference $loss $adapter
    is "$(last loss $loss) < 0.9 * $(first loss $loss) && $(last rewards/accuracies $loss) > 0.9"
    verdict $? "and comes to prefer what was chosen"
done
check "evaluated on the way" train 0 seen --data pairs.jsonl --steps 4 --lora-rank 4 \
    --eval-data implicit.jsonl --eval-every 2
[ "$(grep -c '"eval_loss"' seen/log.jsonl)" = 2 ] && [ "$(last eval_samples seen)" = 40 ] &&
    ! grep -q perplexity seen/log.jsonl
verdict $? "by pairs"
check "and afterwards" run 0 "$zinf" eval --task preference --model model --adapter seen/model \
    --data implicit.jsonl --seq-len 24 --threads 1
key() { sed -n "s|.*\"$1\": \([-+.a-z0-9]*\).*|\1|p" said.out; }
is "$(key samples) == 40 && $(key loss) == $(last eval_loss seen)"
same=$?
for figure in chosen rejected margins accuracies; do
    is "$(key rewards/$figure) == $(last eval_rewards/$figure seen) && $(key rewards/accuracies) > 0"
    same=$((same + $?))
done
verdict $same "to the same loss and rewards"

# ---- single answers ----

awk 'BEGIN {
    for (i = 0; i < 40; i++)
        printf "{\"prompt\": \"%d is \", \"completion\": \"%s\", \"label\": %s}\n", int(i / 2),
            i % 2 ? "blue" : "red", i % 2 ? "false" : "true"
}' >singles.jsonl
check "kto" train 0 kto --data singles.jsonl --steps 60 --preference kto --lora-rank 4 \
    --eval-data singles.jsonl --eval-every 60
is "$(first loss kto) == 0.5 && $(first kl kto) == 0"
verdict $? "begins where the model is its own reference"
is "$(last loss kto) < 0.45 && $(last eval_rewards/accuracies kto) == 1 &&
    $(last eval_rewards/chosen kto) > 0.5 && $(last eval_rewards/rejected kto) < -0.5"
verdict $? "and comes to prefer what is wanted"
check "is measured" run 0 "$zinf" eval --task preference --preference kto --model model \
    --adapter kto/model --data singles.jsonl --seq-len 24 --threads 1 --micro-batch 4
is "$(key loss) == $(last eval_loss kto) && $(key kl) == $(last eval_kl kto)"
verdict $? "as on the way"
cat >weights.json <<EOF
{"zinf": {"desirable_weight": 3, "undesirable_weight": 0.5}}
EOF
again() { # status, samples of a micro-batch, steps, options...
    again_status=$1 again_micro=$2 again_steps=$3
    shift 3
    run "$again_status" "$zinf" train --model model --task preference --preference kto \
        --seq-len 24 --data singles.jsonl --lora-rank 2 --threads 1 --progress none --output again \
        --global-batch 4 --micro-batch "$again_micro" --steps "$again_steps" "$@"
}
again 0 4 1 && again 1 2 2 --resume && complains "train_micro_batch_size_per_gpu was 4 and is 2"
verdict $? "a run of kto goes on with its micro-batches, in which answers are paired"
check "with weights" train 0 weighed --data singles.jsonl --steps 1 --preference kto --lora-rank 2 \
    --config weights.json --no-shuffle
is "$(first loss weighed) == (3 + 0.5) / 4"
verdict $? "answers count as these say"
check "shown" run 0 "$zinf" data --model model --data singles.jsonl --format unpaired --json
says '"samples":40' && says '"windows":80'
verdict $? "each with the completion of another row"

# ---- rows ----

check "rows without a prompt" run 0 "$zinf" data --model model --data implicit.jsonl --json
grep -o '"first":.*' said.out >implicit.ids
check "and with one" run 0 "$zinf" data --model model --data pairs.jsonl --json
grep -o '"first":.*' said.out >pairs.ids
[ "$(grep -c . pairs.ids)" = 1 ] && says '"samples":80'
verdict $? "are two samples each"
# As UltraFeedback has them: the prompt a string, the answers whole conversations, and scores beside.
sed 's/"prompt": "\([^"]*\)", "chosen": "\([^"]*\)", "rejected": "\([^"]*\)"/"prompt": "\1", "prompt_id": "x", "chosen": [{"role": "user", "content": "\1"}, {"role": "assistant", "content": "\2"}], "rejected": [{"role": "user", "content": "\1"}, {"role": "assistant", "content": "\3"}], "messages": [{"role": "user", "content": "\1"}], "score_chosen": 8.5, "score_rejected": 3.0/' \
    pairs.jsonl >ultra.jsonl
rows_of() { # file: what a training would be fed
    run 0 "$zinf" data --model model --data "$1" --task preference --chat-template chatml --json &&
        grep -o '"first":.*' said.out >"$1.ids"
}
rows_of ultra.jsonl && rows_of turns.jsonl && [ -s ultra.jsonl.ids ] &&
    cmp ultra.jsonl.ids turns.jsonl.ids
verdict $? "rows of UltraFeedback's form are the same conversations"
check "conversations" train 0 turns --data turns.jsonl --steps 2 --lora-rank 2 --seq-len 128 \
    --chat-template chatml
echo '{"prompt": "a", "chosen": "same", "rejected": "same"}' >same.jsonl
check "answers that are the same" train 1 none --data same.jsonl --lora-rank 2
check "are named" complains "same.jsonl: row 1" "are the same" "--skip-bad-rows"
check "rows of texts" train 1 none --data model/config.json --lora-rank 2
check "have no pairs" complains "--task preference"
run 1 "$zinf" train --model model --data pairs.jsonl --output none
complains "--task preference"
verdict $? "and pairs are no texts"

# ---- going on ----

check "interrupted" train 0 parts --data pairs.jsonl --steps 7 --lora-rank 4 --save-every 7
check "and gone on with" train 0 parts --data pairs.jsonl --steps 12 --lora-rank 4 --save-every 7 \
    --resume
check "a run" train 0 whole --data pairs.jsonl --steps 12 --lora-rank 4
cmp parts/model/adapter_model.safetensors whole/model/adapter_model.safetensors
verdict $? "ends with the same bits"

# ---- a whole model, whose reference is what it says before the first step ----

check "dpo of a whole model" train 0 all --data pairs.jsonl --steps 20 --eval-data pairs.jsonl \
    --eval-every 20 --save-every 10
is "$(first loss all) > 0.6931 && $(first loss all) < 0.6932 && $(first rewards/margins all) < 1e-6 &&
    $(last loss all) < 0.4 && $(last eval_rewards/accuracies all) == 1"
verdict $? "begins where it is its own reference, and comes to prefer what was chosen"
check "interrupted" train 0 half --data pairs.jsonl --steps 10 --eval-data pairs.jsonl \
    --eval-every 20 --save-every 10
check "and gone on with" train 0 half --data pairs.jsonl --steps 20 --eval-data pairs.jsonl \
    --eval-every 20 --save-every 10 --resume
cmp all/model/model.safetensors half/model/model.safetensors
verdict $? "ends with the same bits"
check "kto of a whole model" train 0 allkto --data singles.jsonl --steps 30 --preference kto \
    --lr 1e-3
is "$(first loss allkto) > 0.49999 && $(first loss allkto) < 0.50001 && $(last loss allkto) < 0.45"
verdict $? "comes to prefer what is wanted"

# ---- seats ----

mkdir drive
cat >tree.json <<EOF
{"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "drive"}},
 "zinf": {"placement": "exact", "gradient_sum": "tree", "dropout": 0.1, "neftune_alpha": 5}}
EOF
seats() { # number, accumulation, options...
    number=$1 accumulation=$2
    shift 2
    run 0 "$zinf" train --model model --task preference --data "${rows:=pairs.jsonl}" \
        --config tree.json --lora-rank 4 --steps 4 --seq-len 24 --micro-batch "${micro:-1}" \
        --seats "$number" --accumulate "$accumulation" --threads 1 --lr 1e-2 --progress none \
        --no-final-checkpoint --eval-data "$rows" --eval-every 4 --output "seats$number" "$@" &&
        { sed -n 's/.*"loss": \([^,]*\),.*"rewards.chosen": \([^,]*\),.*/\1 \2/p' \
            "seats$number/log.jsonl"; grep -o '"eval_[lr][^,}]*' "seats$number/log.jsonl"; } >"seats$number.log"
}
check "four micro-batches" seats 1 4
check "two of two seats" seats 2 2
cmp seats1/model/adapter_model.safetensors seats2/model/adapter_model.safetensors &&
    cmp seats1.log seats2.log && [ "$(grep -c '^[0-9]' seats1.log)" = 4 ]
verdict $? "with noise and dropout, on a drive: the same bits, losses and rewards"
# What the model says without its adapters goes from stage to stage beside what it says with them.
sed 's/"placement"/"pipeline_ranges": 2, &/' tree.json >ranges.json
for pipe in "2 4 --pipeline-parallel 2" "4 2 --pipeline-parallel 2 --config ranges.json" \
    "4 4 --pipeline-parallel 4"; do
    rm -rf seats[24]
    # shellcheck disable=SC2086 # options are words
    check "seats, micro-batches: $pipe" seats $pipe
    out=seats${pipe%% *}
    cmp seats1/model/adapter_model.safetensors "$out/model/adapter_model.safetensors" &&
        cmp seats1.log "$out.log"
    verdict $? "the same bits, losses and rewards"
done
rows=singles.jsonl micro=2
rm -rf seats[12]
check "kto: four micro-batches" seats 1 4 --preference kto
check "of two stages with two ranges each" seats 2 4 --preference kto --pipeline-parallel 2 \
    --config ranges.json
cmp seats1/model/adapter_model.safetensors seats2/model/adapter_model.safetensors &&
    cmp seats1.log seats2.log && [ "$(grep -c '^[0-9]' seats2.log)" = 4 ]
verdict $? "the same bits, losses and rewards"
# A whole model: its reference is dealt to seats, and to ranks with seats.
cat >whole.json <<END
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "drive"}},
 "zinf": {"placement": "exact", "gradient_sum": "tree"}}
END
whole() { # output, options...
    out=$1
    shift
    exec "$zinf" train --model model --task preference --config whole.json --steps 3 --seq-len 24 \
        --eval-every 2 --threads 1 --progress none --no-final-checkpoint --output "$out" "$@" \
        >"$out.out$RANK" 2>"$out.err$RANK" </dev/null
}
rank() { # number, then as whole
    RANK=$1 WORLD_SIZE=2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1
    MASTER_PORT=$port ZINF_NET_SECRET=0123456789abcdef0123456789abcdef
    export RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT ZINF_NET_SECRET
    shift
    whole "$@"
}
for loss in dpo kto; do
    data=pairs.jsonl
    [ $loss = dpo ] || data=singles.jsonl
    given="--preference $loss --data $data --eval-data $data"
    # shellcheck disable=SC2086
    (whole $loss.one $given) && (whole $loss.seats $given --seats 2)
    verdict $? "$loss of a whole model on two seats"
    # shellcheck disable=SC2086
    (whole $loss.pipe $given --seats 2 --pipeline-parallel 2)
    verdict $? "and on two stages of a pipeline"
    # shellcheck disable=SC2086
    (rank 0 $loss.ranks $given --seats 2) &
    # shellcheck disable=SC2086
    (rank 1 $loss.ranks $given --seats 2) && wait $!
    verdict $? "and on two ranks of two seats"
    alike=0
    for out in seats pipe ranks; do
        for of in one $out; do
            { sed 's/"loss_scale".*//' $loss.$of/log.jsonl; grep -o '"eval_[^,}]*' $loss.$of/log.jsonl; } >$of.log
        done
        cmp $loss.one/model/model.safetensors $loss.$out/model/model.safetensors &&
            cmp one.log $out.log || alike=1
    done
    verdict $alike "the same weights, losses and rewards"
done

# ---- refusals ----

run 1 "$zinf" eval --task preference --model model --data pairs.jsonl
complains "--adapter" "simpo"
verdict $? "a model that is measured without adapters has no reference"
check "a micro-batch that nobody gives" run 0 "$zinf" train --model model --task preference \
    --seq-len 24 --lora-rank 4 --steps 1 --threads 1 --progress none --no-final-checkpoint \
    --data pairs.jsonl --output one
grep -q '"train_micro_batch_size_per_gpu":.*1,' one/config.resolved.json
verdict $? "is one pair"
check "a loss without its task" run 0 "$zinf" train --model model --seq-len 24 --lora-rank 4 \
    --steps 1 --threads 1 --progress none --no-final-checkpoint --preference kto \
    --data singles.jsonl --output implied
is "$(first loss implied) > 0.49 && $(first loss implied) < 0.51"
verdict $? "implies it"
echo '{"zinf": {"preference": "kto"}}' >kto.json
run 1 "$zinf" train --model model --data singles.jsonl --config kto.json --micro-batch 2 --output none
complains "kto" "--task preference"
verdict $? "a loss in a configuration needs its task"
run 1 "$zinf" train --model model --data singles.jsonl --format unpaired --output none
complains "label" "--preference kto"
verdict $? "and rows with labels their loss"
train 1 none --data pairs.jsonl --lora-rank 4 --pack
complains "samples of --task preference are not packed"
verdict $? "and not packed"
train 2 none --data pairs.jsonl --lora-rank 4 --preference ppo
complains "--preference ppo: use dpo" "kto"
verdict $? "other losses are named"
train 1 none --data pairs.jsonl --lora-rank 4 --preference kto
complains "pairs.jsonl" "prompt, completion and label"
verdict $? "kto takes single answers"
train 1 none --data singles.jsonl --lora-rank 4
complains "singles.jsonl" "--preference dpo" "kto takes"
verdict $? "and dpo takes pairs"
sed 's/"label": true/"label": "maybe"/' singles.jsonl >maybe.jsonl
train 1 none --data maybe.jsonl --lora-rank 4 --preference kto
complains "maybe.jsonl: row 1" '"label" is neither' "--skip-bad-rows"
verdict $? "a label is true or false"
[ ! -e none/model ]
verdict $? "nothing is left of those"
finish
