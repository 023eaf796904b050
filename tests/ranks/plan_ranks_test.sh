#!/bin/sh
# Plans of several ranks: what zinf estimate says of their memory is what a training plans, of the rank
# that needs most, which both name; and a schedule that was asked for by name runs, or both say why not.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
mkdir drive
make_text text.txt 60
# Of 257 rows of 32 numbers the second of two ranks has 129, which are more than a sub-group's grain.
"$zinf" init --arch llama --size 7b --layers 3 --hidden 32 --heads 4 --tokenizer bytes --context 32 \
    --config-only --output llama >/dev/null || exit 99
model=llama

config() { # file, place, keys of "zinf" behind a comma
    cat >"$1" <<END
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": ${clip:-1000},
 "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 2e-3}},
 "zero_optimization": {"stage": 3,
  "offload_param": {"device": "$2", "nvme_path": "$work/drive"},
  "offload_optimizer": {"device": "$2", "nvme_path": "$work/drive"}},
 "zinf": {"threads": 1, "gradient_sum": "tree", "placement": "exact", "durability": "none",
  "timeout": 20, "pack": "off"${3:-}}}
END
}
estimate() { # options...
    run 0 "$zinf" estimate --model $model/config.json --config config.json --seq-len 16 \
        --device host --device-memory 8MiB --host-memory 300MiB "$@"
}
train() { # options...
    rm -rf out
    run 0 "$zinf" train --model $model --init --data text.txt --seq-len 16 --device host --seed 3 \
        --steps 3 --progress none --output out --config config.json --device-memory 8MiB \
        --host-memory 300MiB "$@"
}
of() { # bytes or ranks, tier
    tr -d ' \t\n' <said.out | sed -n "s/.*\"planned_most_$1\":{\([^}]*\)}.*/\1/p" |
        sed -n "s/.*\"$2\":\([0-9]*\).*/\1/p"
}
all() { echo "$(of bytes device) $(of ranks device) $(of bytes drive) $(of ranks drive)"; }
# In RAM the process is counted, too, which is another one.
agree() { # what, options...
    what=$1
    shift
    check "$what: estimate" estimate "$@" --json
    estimated=$(all) host=$(of bytes host)
    check "$what: train" train "$@"
    echo "# estimated $estimated, planned $(all); RAM $host, $(of bytes host)"
    [ -n "$(of bytes device)" ] && [ "$estimated" = "$(all)" ]
    verdict $? "$what: device and drive are the same"
    awk -v a="$host" -v b="$(of bytes host)" 'BEGIN { exit !(a > 0.8 * b && a < 1.25 * b) }'
    verdict $? "$what: and so is RAM"
}

config config.json nvme
agree "two share tensors" --seats 2 --tensor-parallel 2
agree "four, two by two" --seats 4 --tensor-parallel 2
agree "two in a pipeline" --seats 2 --pipeline-parallel 2
check "the training names the rank that needs most" complains "needs most"
check "so does the estimate" estimate --seats 2 --pipeline-parallel 2
check "in words" says "needs most"
agree "pipeline and tensors" --seats 4 --pipeline-parallel 2 --tensor-parallel 2

# The first rank's table has 128 rows and a gap behind them, which counts as the first optimizer's:
# there AdamW's state ends at another page than that of the second rank's 129 rows.
"$zinf" init --arch llama --layers 3 --hidden 64 --heads 4 --tokenizer bytes --context 32 \
    --config-only --output wide >/dev/null || exit 99
sed -i 's/"AdamW"/"Muon"/' config.json
model=wide
agree "two share tensors, with Muon" --seats 2 --tensor-parallel 2
agree "four, two by two, with Muon" --seats 4 --tensor-parallel 2
model=llama

# Both deal the same layers to a rank, also where updates take most of the time: ranks of one host
# share its memory and its CPUs in a training as they do in an estimate.
"$zinf" init --arch t5 --size small --layers 3 --hidden 64 --heads 4 --tokenizer bytes --context 128 \
    --config-only --output t5 >/dev/null || exit 99
awk '{ printf "{\"source\": \"%s\", \"target\": \"%s\"}\n", substr($0, 1, 20), substr($0, 1, 9) }' text.txt \
    >pairs.jsonl
config muon.json none
sed -i 's/"AdamW"/"Muon"/; s/"offload_optimizer": {"device": "none"/"offload_optimizer": {"device": "nvme"/' muon.json
seq2seq() { # command, options...
    command=$1
    shift
    run 0 "$zinf" "$command" --model t5 --config muon.json --seq-len 64 --source-len 64 --device host \
        --device-memory 12MiB --host-memory 120MiB --seats 2 --pipeline-parallel 2 --micro-batch 1 \
        --accumulate 2 "$@"
}
check "an encoder-decoder with Muon: estimate" seq2seq estimate --json
estimated=$(all)
check "train" seq2seq train --init --data pairs.jsonl --pad-to max --seed 3 --steps 1 --progress none \
    --output t5.out
echo "# estimated $estimated, planned $(all)"
[ -n "$(of bytes device)" ] && [ "$estimated" = "$(all)" ]
verdict $? "device and drive are the same"

# ---- a schedule by name ----

config config.json nvme ', "schedule": "update-in-backward"'
check "updates that can be taken back" train --seats 2 --pipeline-parallel 2
grep -q '"step": 3,.*"schedule": "update-in-backward"' out/log.jsonl && ! grep -q "but steps run" said.err
verdict $? "run in backward, without a word"
clip=0.1
config config.json nvme ', "schedule": "update-in-backward"'
check "steps that clip" train --seats 2 --pipeline-parallel 2
check "have no early updates, which is said" complains 'but step 2 runs "update-in-forward"' \
    "gradient_clipping 0.1"
clip=
config config.json cpu ', "schedule": "update-in-backward"'
check "in RAM, of which there is one copy" train --seats 2 --pipeline-parallel 2
grep -q '"step": 3,.*"schedule": "update-in-forward"' out/log.jsonl
verdict $? "they run in forward"
check "which is said" complains 'is "update-in-backward", but steps run "update-in-forward"' "on rank 0" \
    'offload_optimizer.device'
check "estimate" estimate --seats 2 --pipeline-parallel 2
check "says it, too" complains 'is "update-in-backward", but steps run "update-in-forward"'
finish
