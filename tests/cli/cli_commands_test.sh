#!/bin/sh
# cli: what a user sees of inspect, config, report and the table of commands: streams, exit status,
# and that a damaged model is found for what it is.
. "$SRCDIR/tests/support/command.sh"
model=$SRCDIR/tests/fixtures/gpt2_a

expect() { # status, words that must be in out, words that must be in err, name, command...
    out=$2 err=$3 name=$4
    run_status=$1
    shift 4
    run "$run_status" "$@" && says "$out" && has_error "$err"
    verdict $? "$name"
}
has_error() { # words; "": nothing may be there
    # A bench beside other tests warns of them.
    if [ -z "$1" ]; then ! grep -qv "other processes used" "$work/said.err"; else complains "$1"; fi
}
# For commands that print nothing: `grep -F ""` finds the empty words only in a line.
silent() {
    echo
    "$@"
}
damage() { # name: a writable copy of the model
    mkdir "$work/$1" && cp "$model/config.json" "$model/model.safetensors" "$work/$1/" &&
        chmod u+w "$work/$1"/*
}

expect 2 "" "usage: zinf COMMAND" "no command" silent "$zinf"
expect 2 "" "did you mean 'train'" "unknown command" silent "$zinf" trian
expect 0 "zinf 0" "" "--version" "$zinf" --version
expect 0 "gradients" "" "help" "$zinf" help
expect 0 "usage: zinf inspect" "" "help of a command" "$zinf" help inspect
expect 0 "usage: zinf config" "" "--help of a command" "$zinf" config --help
expect 2 "" "did you mean --json?" "unknown option" silent "$zinf" inspect --jsn "$model"
expect 2 "" "one PATH" "inspect without a path" silent "$zinf" inspect
expect 0 "usage: zinf bench optim" "" "help of a bench" "$zinf" bench optim --help
expect 0 "ratio" "not kept" "bench optim" \
    "$zinf" bench optim --elements 10000 --repeats 2 --threads 1
expect 0 '"optimizer":	"Adafactor"' "not kept" "bench optim as JSON" \
    "$zinf" bench optim --elements 10000 --repeats 1 --optimizer all --form all --json
expect 0 "ratio" "AdamW/fp32 is not kept" "what the caches hold is not kept" \
    "$zinf" bench optim --elements 10000 --repeats 1 --form fp32
[ ! -e "$work/cache/zinf/bench.json" ]
verdict $? "nothing of it is there"
least=$(sed -n 's/.*give --elements \([0-9]*\) or more.*/\1/p' "$work/said.err")
expect 0 "AdamW" "" "bench optim beyond the caches" \
    "$zinf" bench optim --form fp32 --elements "${least:-1}" --repeats 1
expect 0 "AdamW/fp32" "" "that is kept" cat "$work/cache/zinf/bench.json"
expect 2 "" "did you mean 'Lion'" "bench of an unknown optimizer" \
    silent "$zinf" bench optim --optimizer Lino
expect 2 "" "no such form" "bench of a form that is not there" \
    silent "$zinf" bench optim --optimizer Lion --form 8bit --elements 100
expect 2 "" "out of range" "bench of no elements" silent "$zinf" bench optim --elements 0
cat >"$work/drive.json" <<END
{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "$work"}}}
END
expect 0 "threads " "not kept" "bench all measures the drives of a configuration" \
    "$zinf" bench all --config "$work/drive.json" --size 8MiB --threads 1
if [ -w /dev/full ]; then
    expect 1 "" "cannot write" "a full disk" silent sh -c '"$0" help >/dev/full' "$zinf"
fi

expect 0 "no problem found" "" "inspect a good folder" "$zinf" inspect "$model"
expect 0 '"ok":	true' "" "inspect as JSON" "$zinf" inspect --json "$model"
expect 0 "transformer.wte.weight" "" "inspect a file" "$zinf" inspect "$model/model.safetensors"
expect 1 "" "No such file" "inspect what is not there" silent "$zinf" inspect "$work/none"

# What is there and what is supported, also of what is not.
summary() {
    run 0 "$zinf" inspect "$model" && says "files: 1 of safetensors; tensors by dtype: F32 28" \
        "model: gpt2, $(sed -n 's/.*"parameters":[[:space:]]*\([0-9]*\).*/\1/p' "$work/json") parameters" \
        "supported: family gpt2 yes; weights yes; tokenizer yes"
}
run 0 "$zinf" inspect --json "$model" && cp "$work/said.out" "$work/json"
says '"file_kind":	"safetensors"' '"F32":	28' '"family":	"gpt2"' '"supported":'
verdict $? "inspect as JSON says files, dtypes and family"
adapter() {
    make_text "$work/text.txt" 20
    "$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 2 --tokenizer bytes \
        --context 32 --output "$work/bytes" >/dev/null &&
        run 0 "$zinf" train --model "$work/bytes" --data "$work/text.txt" --steps 1 --seq-len 8 --progress none \
        --threads 1 --lora-rank 8 --lora-alpha 6 --output "$work/adapted" &&
        complains "adapters      LoRA of rank 8, alpha 6: " &&
        run 0 "$zinf" inspect "$work/adapted/model" &&
        says "adapter: LORA of rank 8, alpha 6, for " "no problem found" "lora_A.weight" || return 1
    printf x | dd of="$work/adapted/model/adapter_model.safetensors" bs=1 seek=9000 conv=notrunc 2>/dev/null
    run 1 "$zinf" inspect "$work/adapted/model" && says "problems found: 1" &&
        complains "adapter_model.safetensors"
}
check "inspect of an adapter" adapter
check "inspect says files, family and what is supported" summary
mkdir "$work/foreign" && cp "$model/model.safetensors" "$work/foreign/" &&
    echo '{"model_type": "nobody"}' >"$work/foreign/config.json"
expect 1 "supported: family nobody no; weights no; tokenizer yes" "model_type \"nobody\"" \
    "inspect of a family that is not supported" "$zinf" inspect "$work/foreign"

# Families and sizes stand in one table: what help lists, init takes and else lists.
families() {
    run 0 "$zinf" help init && says "Families and their sizes" "small, medium, large, xl" || return 1
    sed '1,/^Families/d' "$work/said.out" | tr -d ',' >"$work/families"
    for family in $(sed -n 's/^  \([^ ]*\) .*/\1/p' "$work/families"); do
        run 2 "$zinf" init --arch "$family" --size none --output "$work/none" &&
            for size in $(sed -n "s/.*use one of //p" "$work/said.err" | tr -d ','); do
                grep -qw -e "$size" "$work/families" ||
                    { echo "# no $size of $family"; return 1; }
            done || return 1
    done
}
check "help init lists the families and sizes that there are" families

damage nan # the last four bytes of the file are one fp32 number
bytes=$(wc -c <"$work/nan/model.safetensors")
printf '\000\000\300\177' |
    dd of="$work/nan/model.safetensors" bs=1 seek=$((bytes - 4)) conv=notrunc 2>/dev/null
expect 1 "problems found: 1" "holds NaN at element" "inspect finds NaN" "$zinf" inspect "$work/nan"
damage short
head -c $((bytes - 1)) "$model/model.safetensors" >"$work/short/model.safetensors"
expect 1 '"ok":	false' "model.safetensors" "inspect finds a truncated file" \
    "$zinf" inspect --json "$work/short"
damage missing
sed 's/"n_layer": *[0-9]*/"n_layer": 3/' "$model/config.json" >"$work/missing/config.json"
expect 1 "problems found: 12" "transformer.h.2.ln_1.weight is missing" \
    "inspect finds missing tensors" "$zinf" inspect "$work/missing"
damage more
sed 's/"n_layer": *[0-9]*/"n_layer": 1/' "$model/config.json" >"$work/more/config.json"
expect 1 "problems found: 12" "h.1.ln_1.weight is unexpected" "inspect finds unexpected tensors" \
    "$zinf" inspect "$work/more"
damage shape
sed 's/"vocab_size": *[0-9]*/"vocab_size": 100/' "$model/config.json" >"$work/shape/config.json"
expect 1 "problems found: 1" "config.json asks for [100, 32]" "inspect finds a wrong shape" \
    "$zinf" inspect "$work/shape"
damage bare
rm "$work/bare/config.json"
expect 1 "problems found: 1" "config.json is missing" "inspect without config.json" \
    "$zinf" inspect "$work/bare"

cat >"$work/good.json" <<'END'
{"train_micro_batch_size_per_gpu": 3, // a comment
 "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": "auto"}}
END
sed 's/stage3_prefetch_bucket_size/stage3_prefetch_bucket_syze/' "$work/good.json" >"$work/bad.json"
expect 2 "" "--config FILE is needed" "config without a file" silent "$zinf" config
expect 0 "train_micro_batch_size_per_gpu" "" "config" \
    "$zinf" config --config "$work/good.json" --model "$model"
expect 0 '"_sources"' "" "config as JSON" \
    "$zinf" config --json --config "$work/good.json" --model "$model"
expect 1 "" "stage3_prefetch_bucket_size" "config names the nearest key" \
    silent "$zinf" config --config "$work/bad.json" --model "$model"

expect 0 "memlock" "" "report" "$zinf" report
expect 0 '"io_uring":' "" "report as JSON" "$zinf" report --json --path "$work"
expect 0 "cannot look at" "" "report of a folder that is not there" \
    "$zinf" report --path "$work/none"
run 0 env HOME=/nonexistent "$zinf" report && ! says "$(uname -n)" >/dev/null
verdict $? "report does not name the host"
finish
