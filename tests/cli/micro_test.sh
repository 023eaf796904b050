#!/bin/sh
# --micro-batch auto: the most sequences at once that fit by the plan. One more divisor of the batch
# is refused, the losses are those of the number itself, and a run that goes on keeps it.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99

"$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --context 64 --vocab 257 \
    --tokenizer bytes --output model >/dev/null 2>&1 || exit 99
make_text text.txt 60
cat >stay.json <<END
{"zero_optimization": {"stage": 0}, "zinf": {"gradient_sum": "tree"}}
END
train() { # output, memory, options...
    output=$1 memory=$2
    shift 2
    run 0 "$zinf" train --model model --data text.txt --config stay.json --device-memory "$memory" \
        --seq-len 64 --device host --threads 1 --seed 3 --progress none --output "$output" "$@"
}
does_not_fit() { # micro-batch, accumulation
    "$zinf" train --model model --data text.txt --config stay.json --device-memory 3MiB --seq-len 64 \
        --device host --threads 1 --output no --micro-batch "$1" --accumulate "$2" --steps 1 \
        >said.out 2>said.err
    [ $? -eq 1 ] && complains train_micro_batch_size_per_gpu
}

check "a batch of 24 in 3 MiB" train found 3MiB --micro-batch auto --global-batch 24 --steps 3 \
    --save-every 2
n=$(sed -n 's/.*_gpu is "auto": \([0-9]*\) sequences at once.*/\1/p' said.err)
next=$(sed -n 's/.* in a step: the largest that fits; \([0-9]*\) do not fit$/\1/p' said.err)
divided="$n sequences at once, $((24 / n)) micro-batches in a step"
complains "$divided" && [ "$n" -gt 1 ] && [ "$next" -gt "$n" ] && [ $((24 % next)) -eq 0 ]
verdict $? "is told how it is divided"
check "the next larger number" does_not_fit "$next" $((24 / next))
check "the number itself" train given 3MiB --micro-batch "$n" --accumulate $((24 / n)) --steps 3
check "have the same losses and weights" same_result found given
recorded() { # output, key, number
    tr -d ' \n\t' <"$1/config.resolved.json" | grep -q "\"$2\":$3,"
}
recorded found train_micro_batch_size_per_gpu "$n" && recorded found train_batch_size 24
verdict $? "the number is recorded"
check "with more memory" train more 100MiB --micro-batch auto --global-batch 24 --steps 1
complains '24 sequences at once, 1 micro-batch in a step: the whole batch of a step fits'
verdict $? "there are more"
check "a run that goes on there" train found 100MiB --micro-batch auto --global-batch 24 --steps 5 --resume
complains "$divided: as in the run that is resumed"
verdict $? "keeps its number"
check "from a checkpoint" train other 100MiB --micro-batch auto --global-batch 24 --steps 5 \
    --resume=found/checkpoint-2
complains "$divided: as in the run that is resumed"
verdict $? "so does one with another output"
check "two seats" train seats 3MiB --micro-batch auto --global-batch 24 --steps 3 --seats 2
m=$(sed -n 's/.*_gpu is "auto": \([0-9]*\) sequences at once.*/\1/p' said.err)
recorded seats gradient_accumulation_steps $((12 / m)) && recorded seats train_batch_size 24
verdict $? "divide what is theirs"
check "zinf estimate" run 0 "$zinf" estimate --model model --config stay.json --device-memory 3MiB \
    --seq-len 64 --device host --threads 1 --micro-batch auto --global-batch 24
complains "$divided"
verdict $? "finds it, too"

# ---- DeepSpeed's configuration ----

cat >auto.json <<END
{"train_batch_size": 24, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": 0}}
END
check 'with "auto"' run 0 "$zinf" train --model model --data text.txt --config auto.json --seq-len 64 \
    --device-memory 3MiB --device host --threads 1 --steps 1 --progress none --output deepspeed
complains 'is "auto": ' 'the largest that fits'
verdict $? "the number is found"
check "all but the micro-batch" run 0 "$zinf" train --model model --data text.txt --config auto.json \
    --accumulate 12 --seq-len 64 --device-memory 3MiB --device host --threads 1 --steps 1 --progress none \
    --output divided
recorded divided train_micro_batch_size_per_gpu 2
verdict $? "says it"
check "a batch by the command line" run 0 "$zinf" train --model model --data text.txt --config auto.json \
    --global-batch 8 --micro-batch 2 --seq-len 64 --device host --steps 1 --progress none --output less
recorded less gradient_accumulation_steps 4 && recorded less train_batch_size 8
verdict $? "comes before the file's"

"$zinf" train --model model --data text.txt --steps 1 --seats 2 --pipeline-parallel 2 --device host \
    --micro-batch auto --global-batch 8 --seq-len 16 --progress none --output piped >said.out 2>said.err
[ $? -eq 0 ] && complains "4 sequences at once, 2 micro-batches in a step: larger ones would leave"
verdict $? "each rank of a pipeline has a micro-batch"

# ---- what is refused ----

refused() { # name, words, command...
    name=$1 words=$2
    shift 2
    "$@" >said.out 2>said.err
    [ $? -ne 0 ] && complains "$words"
    verdict $? "$name is refused"
}
refused "no batch" "--micro-batch auto divides the batch of a step, which is not given: pass --global-batch" \
    "$zinf" train --model model --data text.txt --micro-batch auto --steps 1 --output no
echo '{"prompt": "a", "completion": "b", "label": true}' >rows.jsonl
refused "kto" "kto pairs the answers of a micro-batch" "$zinf" train --model model --data rows.jsonl \
    --preference kto --task preference --micro-batch auto --global-batch 4 --steps 1 --seq-len 16 \
    --lora-rank 2 --output no
echo '{"anchor": "a", "positive": "b"}' >pairs.jsonl
refused "an evaluation of embeddings" "evaluations of embeddings compare the rows of a micro-batch" \
    "$zinf" train --model model --task embedding --data pairs.jsonl --eval-data pairs.jsonl \
    --micro-batch auto --global-batch 4 --steps 1 --output no
refused "a comparison of machines" "another number on each machine" "$zinf" estimate --model model \
    --micro-batch auto --global-batch 4 --compare rtx4090,a100
refused "another word" "--micro-batch 'most' is not a whole number" "$zinf" train --model model \
    --data text.txt --micro-batch most --steps 1 --output no
finish
