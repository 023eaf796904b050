#!/bin/sh
# Lengths: steps on samples are as long as their longest, to the losses of padded ones; and with
# --group-by-length samples of a step are about as long. Seats and ranks see the same, what stops in
# the middle of an epoch goes on to the same bits, and what makes no sense is refused by its name.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"
cd "$work" || exit 99

"$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --context 128 \
    --tokenizer bytes --output model >/dev/null 2>&1 || exit 99
# 140 rows of 5 to 115 tokens, in no order.
awk 'BEGIN {
    for (i = 0; i < 140; i++) {
        n = 2 + i * i * 7 % 109
        a = sprintf("%03d", i)
        while (length(a) < n) a = a substr("abcdefgh", length(a) % 8 + 1, 1)
        printf "{\"prompt\": \"%d:\", \"completion\": \"%s\"}\n", i, a
    }
}' >rows.jsonl
config() { # file, micro-batch, accumulation, keys of "zinf"
    rank_config "$1" "$2" "$3" cpu "$work" ", \"durability\": \"none\"$4"
}
config one.json 2 4
config two.json 2 2
config four.json 1 2
config grouped.json 2 4 ', "group_by_length": true'
sed 's/"dropout": 0.1/"dropout": 0/; s/"bf16": {"enabled": true},//' one.json >plain.json
train() { # configuration, output, options...
    settings=$1
    output=$2
    shift 2
    "$zinf" train --model model --data rows.jsonl --seq-len 128 --device host --seed 3 \
        --progress none --config "$settings" --output "$output" "$@"
}
number() { # key, file: its values
    sed -n "s/.*\"$1\": \\(-*[0-9.e+-]*\\).*/\\1/p" "$2"
}
near() { # bound, file with numbers, file with numbers
    paste "$2" "$3" | awk -v bound="$1" '
        { n++; d = $1 - $2; bad += (d < 0 ? -d : d) > bound * ($1 < 0 ? -$1 : $1) }
        END { exit bad > 0 || n == 0 }'
}
rows() { # output: what its steps have computed, of 8 samples each
    number seq_len "$1/log.jsonl" | awk '{ sum += 8 * $1 } END { print sum + 0 }'
}

# ---- shorter steps ----

check "a training" run 0 train plain.json short --steps 5
check "with padding to the end" run 0 train plain.json padded --steps 5 --pad-to max
number loss short/log.jsonl >a && number loss padded/log.jsonl >b
check "has the same losses" near 1e-5 a b
number grad_norm short/log.jsonl >a && number grad_norm padded/log.jsonl >b
check "and the same norms" near 1e-4 a b
[ "$(number tokens short/log.jsonl)" = "$(number tokens padded/log.jsonl)" ] &&
    [ "$(rows padded)" -eq $((5 * 8 * 128)) ] && [ "$(rows short)" -lt "$(rows padded)" ]
verdict $? "and computes more rows for the same tokens"
evaluate() { # output, options...
    out=$1
    shift
    run 0 "$zinf" eval --model model --data rows.jsonl --seq-len 128 --device host --micro-batch 4 "$@" &&
        number loss said.out >"$out"
}
check "an evaluation" evaluate a
check "with padding to the end" evaluate b --pad-to max
check "says the same" near 1e-5 a b

# ---- groups ----

check "grouped by length" run 0 train one.json grouped --steps 20 --group-by-length
check "as the configuration may have it" run 0 train grouped.json from-file --steps 20
check "is the same" same_result grouped from-file
check "not grouped" run 0 train one.json apart --steps 20
first=$(number seq_len grouped/log.jsonl | head -n 1)
[ $((10 * $(rows grouped))) -lt $((8 * $(rows apart))) ] && [ "$first" -eq 120 ]
verdict $? "costs more rows; the longest sample comes first"
check "zinf data counts them" run 0 "$zinf" data --model model --data rows.jsonl --seq-len 128 \
    --json --samples 0
says '"computed_rows":{"batch":8,"tokens":' '"max":17920,"longest":' '"grouped":'
verdict $? "and says so"
check "and shows padding" run 0 "$zinf" data --model model --data rows.jsonl --seq-len 128 --batch 4
says "steps of 4 are as long as their longest" "% with --group-by-length"
verdict $? "of each way"

# ---- how long most samples are ----

# Rows have 7 to 119 tokens of prompt, answer and its end: the nearest rank among them, by hand.
nearest() { # percent, file with a length in each line
    sort -n "$2" | awk -v p="$1" '{ n[NR] = $1 } END {
        rank = int(p * NR / 100)
        if (rank < p * NR / 100) rank++
        print n[rank]
    }'
}
awk -F '"' '{ print length($4) + length($8) + 1 }' rows.jsonl >long
check "zinf data" run 0 "$zinf" data --model model --data rows.jsonl --seq-len 128 --json --samples 0
said=$(sed -n 's/.*"percentiles":{\([^}]*\)}.*/\1/p' said.out)
wanted=
for percent in 50 85 90 95 99 100; do
    wanted="$wanted${wanted:+,}\"$percent\":$(nearest $percent long)"
done
[ "$said" = "$wanted" ] || echo "# $said instead of $wanted"
[ "$said" = "$wanted" ]
verdict $? "says lengths at percentiles"
check "and to the eye" run 0 "$zinf" data --model model --data rows.jsonl --seq-len 128 --samples 0
says "50 %: $(nearest 50 long), 85 %: $(nearest 85 long)"
verdict $? "too"

# ---- seats, and going on ----

check "two seats" run 0 train two.json seats2 --seats 2 --steps 20 --group-by-length \
    --eval-data rows.jsonl --eval-every 10
check "have the same losses, norms and weights" same_result grouped seats2
check "four seats" run 0 train four.json seats4 --seats 4 --steps 20 --group-by-length
number seq_len seats4/log.jsonl >a && number seq_len grouped/log.jsonl >b
check "have steps of the same lengths" cmp a b
check "one seat evaluates" run 0 train one.json evaluated --steps 20 --group-by-length \
    --eval-data rows.jsonl --eval-every 10
check "to the same" same_evaluations evaluated seats2
# An epoch has 17.5 steps: they end in the middle of the second one.
check "a training that ends in an epoch" run 0 train one.json parts --steps 19 --group-by-length
check "goes on there" run 0 train one.json parts --steps 20 --group-by-length --resume
check "to the same bits" same_result grouped parts
check "in another order it does not" run 1 train one.json parts --steps 22 --resume
check "and says why" complains "parts" "data"

# ---- other tasks ----

awk 'BEGIN {
    for (i = 0; i < 40; i++) {
        t = ""
        for (k = 0; k < 1 + i * 7 % 20; k++) t = t (i % 2 ? "yes " : "no ")
        printf "{\"text\": \"%s\", \"label\": \"%s\"}\n", t, i % 2 ? "yes" : "no"
    }
}' >labels.jsonl
classify() { # output, options...
    output=$1
    shift
    run 0 "$zinf" train --model model --task classification --data labels.jsonl --eval-data \
        labels.jsonl --metric accuracy --steps 6 --eval-every 3 --config plain.json --device host \
        --seed 3 --progress none --output "$output" "$@"
}
check "classes" classify class-short
check "with padding to the end" classify class-padded --pad-to max
number loss class-short/log.jsonl >a && number loss class-padded/log.jsonl >b
check "have the same losses" near 1e-5 a b
number eval_accuracy class-short/log.jsonl >a && number eval_accuracy class-padded/log.jsonl >b
check "and accuracy" near 1e-9 a b
check "by groups" classify class-grouped --group-by-length
# Texts have 3 to 80 characters.
check "as long as the longest" classify class-whole --pad-to max
check "as long as half of the texts" classify class-half --pad-to max --length-percentile 50
says_len() { # output, length
    [ "$(number seq_len "$1/log.jsonl" | sort -u)" = "$2" ]
}
awk -F '"' '{ print length($4) }' labels.jsonl >long
half=$((($(nearest 50 long) + 7) / 8 * 8))
check "has windows for all" says_len class-whole $((($(nearest 100 long) + 7) / 8 * 8))
check "has windows for these" says_len class-half $half
complains "have more than $half tokens and are cut"
verdict $? "and says how many are cut"

# ---- on the CUDA device: the stand-in, in whose memory nobody wrote is NaN ----

module=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
on_gpu() { # output, places of parameters and state, keys of "zinf", options...
    output=$1
    rank_config gpu.json 2 4 "$2" "$work" ", \"durability\": \"none\"$3"
    sed "s/\"offload_optimizer\": {\"device\": \"nvme\"/\"offload_optimizer\": {\"device\": \"$2\"/
        s/\"bf16\": {\"enabled\": true},//" gpu.json >"$output.json"
    shift 3
    run 0 env ZINF_CUDA_MODULE="$module" "$zinf" train --model model --data few.jsonl --seq-len 48 \
        --device cuda --seed 3 --steps 2 --dropout 0 --progress none --no-shuffle \
        --config "$output.json" --output "$output" "$@"
}
if [ -f "$module" ]; then
    { # a long step, then a short one
        awk 'length >= 55 && length < 70' rows.jsonl | head -n 8
        awk 'length < 55' rows.jsonl | head -n 8
    } >few.jsonl
    check "on the CUDA device" on_gpu cuda none ""
    check "from RAM, with activations there" on_gpu cuda-ram cpu \
        ', "activation_device": "cpu", "activation_checkpointing": "always"'
    check "gives the same bits" same_result cuda cuda-ram
    check "from the drive, with activations there" on_gpu cuda-drive nvme \
        ', "activation_device": "nvme", "activation_checkpointing": "always", "schedule": "prefetch"'
    check "gives the same bits" same_result cuda cuda-drive
    check "with padding to the end" on_gpu cuda-padded none "" --pad-to max
    number loss cuda/log.jsonl >a && number loss cuda-padded/log.jsonl >b
    check "gives the same losses" near 1e-5 a b
else
    skip "on the CUDA device" "no stand-in here"
fi

# ---- what is refused ----

check "a length that is none" run 2 train one.json none --pad-to most
check "is named" complains "--pad-to most: use longest or max"
check "groups of packed windows" run 1 train one.json none --group-by-length --pack
check "are refused" complains "--group-by-length" "--pack"
check "groups in the order of the files" run 1 train one.json none --group-by-length --no-shuffle
check "are refused, too" complains "--group-by-length" "--no-shuffle"
check "groups of a stream" run 1 train grouped.json none --format stream
check "need samples" complains "group_by_length" "--format text"
sed 's/"group_by_length": true/"group_by_length": "yes"/' grouped.json >broken.json
check "a key of another type" run 1 train broken.json none
check "is named, too" complains "zinf.group_by_length" "broken.json"
finish
