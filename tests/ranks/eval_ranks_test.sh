#!/bin/sh
# Evaluations that seats and ranks share: the loss, the metrics and the predictions of one, to the
# last byte, of text, classes and texts that are made, with the model whole everywhere and in slices;
# printed once. And what one process does alone is done once.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/mpirun.sh"
. "$SRCDIR/tests/support/ranks.sh"
make_rank_model

sliced() { # parameters: at stage 3
    cat <<END
{"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "$1", "nvme_path": "$work"}},
 "zinf": {"placement": "exact", "timeout": 20}}
END
}
sliced cpu >"$work/cpu.json"
sliced nvme >"$work/nvme.json"
evaluate() { # options...
    "$zinf" eval --device host --threads 1 --micro-batch 2 "$@"
}
evaluate_ranks() { # how many, options...
    n=$1
    shift
    ranks "$n" "$zinf" eval --device host --threads 1 --micro-batch 2 "$@"
}
same() { # name, number of seats or ranks, command and options...: prints what one has
    name=$1
    shift
    run 0 "$@" --predictions "$work/some.jsonl" && cmp -s "$work/said.out" "$work/one.out" &&
        cmp -s "$work/some.jsonl" "$work/one.jsonl"
    verdict $? "$name"
    rm -f "$work/some.jsonl"
}
check_all() { # what, options...
    what=$1
    shift
    check "$what" run 0 evaluate --predictions "$work/one.jsonl" "$@"
    cp "$work/said.out" "$work/one.out"
    [ "$(grep -c loss "$work/one.out")" = 1 ]
    verdict $? "$what: are measured"
    same "$what: two seats" evaluate --seats 2 "$@"
    same "$what: five seats" evaluate --seats 5 "$@"
    [ -n "$no_mpi" ] || same "$what: two ranks" evaluate_ranks 2 "$@"
    [ -n "$no_mpi" ] || same "$what: three ranks of two seats" evaluate_ranks 3 --seats 2 "$@"
}

# ---- a text ----

losses_alike() { # name, options...
    name=$1
    shift
    text="--model $work/model --data $work/text.txt --seq-len 16"
    # shellcheck disable=SC2086
    run 0 evaluate $text "$@" && cp "$work/said.out" "$work/one.out"
    verdict $? "$name"
    for seats in 2 3; do
        # shellcheck disable=SC2086
        run 0 evaluate $text --seats $seats "$@" && cmp "$work/said.out" "$work/one.out"
        verdict $? "$name: $seats seats"
    done
    [ -n "$no_mpi" ] && return
    # shellcheck disable=SC2086
    run 0 evaluate_ranks 4 $text "$@" && cmp "$work/said.out" "$work/one.out"
    verdict $? "$name: four ranks"
    check "$name: which say so" complains "4 ranks over"
}
losses_alike "a text"
losses_alike "a text, slices in RAM" --config "$work/cpu.json"
losses_alike "a text, slices on the drive" --config "$work/nvme.json"

# ---- texts that are made ----

i=0
while [ $i -lt 11 ]; do
    letter=$(printf '%b' "\\0$(printf '%o' $((97 + i)))")
    echo "{\"prompt\": \"$letter$i=\", \"completion\": \"$letter$letter.\"}"
    i=$((i + 1))
done >"$work/rows.jsonl"
texts="--model $work/model --data $work/rows.jsonl --max-new-tokens 5 --metric bleu rouge1"
# shellcheck disable=SC2086
check_all "texts" $texts
# shellcheck disable=SC2086
check_all "texts by beams" $texts --num-beams 3
# shellcheck disable=SC2086
check_all "texts, slices" $texts --config "$work/cpu.json"

# ---- classes ----

check "a new BERT" run 0 "$zinf" init --arch bert --size base --layers 1 --hidden 32 --heads 2 \
    --context 32 --tokenizer "$SRCDIR/examples/classify" --output "$work/bert"
awk 'BEGIN {
    print "words\tkind"
    for (i = 0; i < 13; i++)
        print "clara bought a " (i % 2 ? "car" : "painting") " on day " i "\t" i % 2
}' >"$work/kinds.tsv"
columns="--data $work/kinds.tsv --text-column words --label-column kind"
# shellcheck disable=SC2086
check "two classes" run 0 "$zinf" train --device host --threads 1 --model "$work/bert" --init \
    $columns --task classification --steps 3 --micro-batch 4 --no-final-checkpoint \
    --output "$work/kinds"
# shellcheck disable=SC2086
check_all "classes" --model "$work/kinds/model" $columns --metric accuracy f1
for pipe in 2 3; do
    # shellcheck disable=SC2086
    check "classes of one" run 0 evaluate --predictions "$work/one.jsonl" \
        --model "$work/kinds/model" $columns --metric accuracy f1
    cp "$work/said.out" "$work/one.out"
    # shellcheck disable=SC2086
    same "$pipe stages of a pipeline" evaluate --seats $pipe --pipeline-parallel $pipe \
        --model "$work/kinds/model" $columns --metric accuracy f1
done
# shellcheck disable=SC2086
check_all "classes, slices" --model "$work/kinds/model" $columns --metric accuracy \
    --config "$work/cpu.json"

# ---- by one alone ----

if [ -n "$no_mpi" ]; then
    skip "what one process does alone" "$no_mpi"
    finish
fi
cat >"$work/by_rank.sh" <<'END'
#!/bin/sh
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] && exec "$@"
exec "$@" --micro-batch 3
END
check "ranks that would measure something else end" fails ranks 2 sh "$work/by_rank.sh" "$zinf" \
    eval --model "$work/model" --data "$work/text.txt" --device host --threads 1 --seq-len 16
check "and say what differs" complains "rank 1 has another configuration"
check "a text of several processes" run 0 ranks 3 "$zinf" generate --model "$work/model" \
    --device host --threads 1 --prompt ab --max-new-tokens 4 --temperature 0 --json
[ "$(grep -c prompt "$work/said.out")" = 1 ] && complains "by one process: the other 2"
verdict $? "is made once"
finish
