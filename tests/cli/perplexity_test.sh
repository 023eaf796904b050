#!/bin/sh
# perplexity: the exponential of the mean cross-entropy, also where a loss that balances experts is
# part of the loss; the same in a training's log, its summary and zinf eval, in chunks, for batches of
# any size, over seats and stages of a pipeline.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
make_text text.txt 40
check "a mixture of experts" run 0 "$zinf" init --arch mixtral --size 8x7b --layers 2 --hidden 32 \
    --heads 2 --vocab 257 --context 64 --seed 5 --output plain
sed -i 's/"num_key_value_heads":[^,]*/"num_key_value_heads": 2/' plain/config.json
cp -r plain balanced
sed -i 's/^{/{"output_router_logits": true, "router_aux_loss_coef": 0.5,/' balanced/config.json
evaluate() { # model, options...
    model=$1
    shift
    "$zinf" eval --model "$model" --data text.txt --seq-len 32 --device host --threads 1 "$@"
}
field() { # name, file
    sed -n "s/.*\"$1\": *\([-0-9.e]*\).*/\1/p" "$2" | tail -n 1
}
same() { # a, b: to the rounding of sums
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-10 * a * a) }'
}

check "without balance" run 0 evaluate plain --micro-batch 4
cp said.out plain.out
wanted=$(field perplexity plain.out)
same "$wanted" "$(awk -v l="$(field loss plain.out)" 'BEGIN { printf "%.12g", exp(l) }')"
verdict $? "is the exponential of the loss"
for options in "--micro-batch 4" "--micro-batch 1" "--micro-batch 2 --seats 2" \
    "--micro-batch 4 --seats 2 --pipeline-parallel 2"; do
    check "balanced, $options" run 0 evaluate balanced $options
    loss=$(field loss said.out)
    awk -v a="$loss" -v b="$(field loss plain.out)" 'BEGIN { exit !(a > b + 0.1) }'
    verdict $? "has a greater loss"
    same "$(field perplexity said.out)" "$wanted"
    verdict $? "and the same perplexity"
done
echo '{"train_micro_batch_size_per_gpu": 1, "zinf": {"sequence_chunk": 8}}' >chunks.json
check "in chunks" run 0 evaluate balanced --config chunks.json
same "$(field perplexity said.out)" "$wanted"
verdict $? "has it, too"

check "a training" run 0 "$zinf" train --model balanced --data text.txt --eval-data text.txt \
    --seq-len 32 --steps 2 --micro-batch 4 --threads 1 --device host --no-final-checkpoint --output run
complains "perplexity $(printf %.2f "$(field eval_perplexity said.out)")"
verdict $? "tells one perplexity in its log and its result"
logged=$(field eval_perplexity run/log.jsonl)
same "$logged" "$(field eval_perplexity said.out)"
verdict $? "and in log.jsonl"
sed -i 's/"output_router_logits": *true/"output_router_logits": false/' run/model/config.json
check "evaluated without balance" run 0 evaluate run/model --micro-batch 4
same "$(field perplexity said.out)" "$logged"
verdict $? "it is that of the cross-entropy"
finish
