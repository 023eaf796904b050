#!/bin/sh
# What a user can get wrong, through the command line. Every case ends with the documented exit
# status, exactly one error that names the file or key and the remedy, nothing on standard output,
# no model folder that could be taken for a result, and no swap files under nvme_path.
# Patches to weights are made with printf and dd at offsets that the safetensors header gives.
. "$SRCDIR/tests/support/command.sh"
drive=$work/drive
shm=/dev/shm/zinf-bad-input.$$ # not a name that a run folder could have
trap 'rm -rf "$work" "$shm"' EXIT
mkdir "$drive" && cd "$work" || exit 99

# refuse STATUS NAME 'PATTERN;PATTERN...' COMMAND ARGUMENT...
# Patterns are fixed strings that standard error must hold.
refuse() {
    want=$1 name=$2 patterns=$3
    shift 3
    rm -rf out
    timeout 60 "$zinf" "$@" >said.out 2>said.err
    status=$?
    bad=
    [ $status -eq "$want" ] || bad="$bad, exit status $status instead of $want"
    [ -s said.out ] && bad="$bad, text on standard output"
    errors=$(grep -c "^zinf $1: \|^zinf: error: \|^zinf: unknown" said.err)
    [ "$errors" -eq 1 ] || bad="$bad, $errors errors"
    [ -e out/model ] && bad="$bad, out/model exists"
    [ -e out/model.partial ] && bad="$bad, out/model.partial is left"
    ls -d "$drive"/zinf-* "$shm"/zinf-* >/dev/null 2>&1 && bad="$bad, swap files are left"
    saved_ifs=$IFS
    IFS=';'
    for pattern in $patterns; do
        grep -qF -- "$pattern" said.err || bad="$bad, '$pattern' is not said"
    done
    IFS=$saved_ifs
    [ -z "$bad" ] || echo "# zinf $*$bad"
    [ -z "$bad" ]
    verdict $? "$name"
}

# A run that would be good but for the options, which win as they come last.
data=text.txt
refuse_train() { # status, name, patterns, option...
    t_status=$1 t_name=$2 t_patterns=$3
    shift 3
    refuse "$t_status" "$t_name" "$t_patterns" train --model model --data "$data" --output out \
        --steps 1 --seq-len 16 --threads 1 --progress none "$@"
}

refuse_data() { # name, patterns, file, option...
    d_name=$1 d_patterns=$2
    data=$3
    shift 3
    refuse_train 1 "$d_name" "$d_patterns" "$@"
    data=text.txt
}

exact=', "zinf": {"placement": "exact"}'
offload() { # file, nvme_path line, further keys
    more=${3:-$exact}
    cat >"$1" <<END
{"train_micro_batch_size_per_gpu": 1,
 "zero_optimization": {"stage": 3,
    "offload_param": {"device": "nvme"$2},
    "offload_optimizer": {"device": "nvme"$2}}$more}
END
}

copy_model() { # to
    rm -rf "$1"
    cp -r model "$1"
}

# ---- what is good ----
"$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --vocab 257 --context 32 \
    --output model >/dev/null || exit 99
make_text text.txt 40
offload nvme.json ", \"nvme_path\": \"$drive\""
"$zinf" train --model model --data text.txt --output good --config nvme.json --steps 2 \
    --seq-len 16 --threads 1 --progress none >said.out 2>said.err && [ -s said.out ] &&
    [ -f good/model/config.json ] && [ -z "$(ls -A "$drive")" ]
verdict $? "the run that the cases below spoil is good"

# ---- model folder and config.json ----
refuse_train 1 "the model folder is missing" "nowhere" --model nowhere
refuse_train 1 "a file for the model folder" "--model text.txt;no folder;config.json" \
    --model text.txt
refuse_train 1 "a file of weights for the folder" "file of weights;--model model" \
    --model model/model.safetensors
refuse_train 1 "the output of a training for its model" "--model good/model" --model good
refuse_train 2 "an option of other programs" "--batch-size;--micro-batch;--global-batch" --batch-size 4
refuse_train 1 "a name of the hub" "hf download openai-community/gpt2;--local-dir gpt2" \
    --model openai-community/gpt2
mkdir adapter && echo '{}' >adapter/adapter_config.json
refuse_train 1 "an adapter for a model" "adapter;--adapter" --model adapter
mkdir no-config && cp model/model.safetensors no-config/
refuse_train 1 "config.json is missing" "no-config/config.json" --model no-config
copy_model not-json && echo '{"model_type": "gpt2", ' >not-json/config.json
refuse_train 1 "config.json is not JSON" "not-json/config.json;JSON" --model not-json
copy_model array && echo '[1, 2]' >array/config.json
refuse_train 1 "config.json is no object" "array/config.json;object" --model array
copy_model type && sed 's/"gpt2"/"gpt9"/' model/config.json >type/config.json
refuse_train 1 "model_type is unknown" "type/config.json;model_type;gpt9;gpt2" --model type
copy_model wide && sed 's/"n_embd":[^,]*/"n_embd": 64/' model/config.json >wide/config.json
refuse_train 1 "shapes differ from config.json" "wide;tensor;shape;take the config.json" \
    --model wide
copy_model deep && sed 's/"n_layer":[^,]*/"n_layer": 3/' model/config.json >deep/config.json
refuse_train 1 "a layer is missing from the weights" "deep;tensor;h.2.;missing" --model deep
copy_model heads && sed 's/"n_head":[^,]*/"n_head": 3/' model/config.json >heads/config.json
refuse_train 1 "the heads do not divide the width" "heads/config.json;n_head" --model heads
# All that is wrong, in one error: the first few of a kind, and how many there are.
refuse_train 1 "the missing tensors are counted" \
    "12 tensors are missing (;transformer.h.2.attn.c_attn.weight;and 8 more)" --model deep
refuse_train 1 "so are those of another shape" \
    "tensors have another shape (;[257, 32]; asks for [257, 64]; more)" --model wide
# Names of one length, so that the header stays as long as it says.
copy_model renamed && sed 's/h\.1\.ln_1\.bias/h.1.ln_x.bias/; s/h\.1\.ln_2\.bias/h.1.ln_y.bias/' \
    model/model.safetensors >renamed/model.safetensors
refuse_train 1 "missing beside unexpected" \
    "2 tensors are missing (transformer.h.1.ln_1.bias, transformer.h.1.ln_2.bias)" --model renamed
grep -qF "2 tensors are no part of the model and are not used (" said.err
verdict $? "and what is unexpected is named in a warning"
refuse 1 "eval says the same" "2 tensors are missing;config.json" eval --model renamed \
    --data text.txt --seq-len 16 --threads 1
copy_model huge && sed 's/"n_embd":[^,]*/"n_embd": 1e300/' model/config.json >huge/config.json
refuse_train 1 "an absurd width" "huge/config.json;n_embd" --model huge

# Families with rotary positions: groups of heads, and windows.
rotary() { # folder, keys of config.json
    mkdir -p "$1"
    cat >"$1/config.json" <<END
{"model_type": "mistral", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 257,
 "max_position_embeddings": 32, "sliding_window": 8, $2}
END
}
# The last of two keys would win in Python; here one of a name is an error, so sed changes it.
rotary grouped '"x": 1' && rotary kv '"x": 1' && rotary divide '"x": 1' && rotary window '"x": 1'
sed -i 's/"num_key_value_heads": 2/"num_key_value_heads": 3/' kv/config.json
sed -i 's/"num_attention_heads": 4/"num_attention_heads": 5/' divide/config.json
sed -i 's/"sliding_window": 8/"sliding_window": 0/' window/config.json
"$zinf" train --model grouped --init --data text.txt --output good2 --steps 1 --seq-len 16 \
    --threads 1 --progress none >said.out 2>said.err
verdict $? "a model with groups of heads and a window is good"
refuse_train 1 "the groups do not divide the heads" "kv/config.json;4 heads cannot share 3 key and value heads" \
    --model kv --init
refuse_train 1 "rotary heads do not divide the width" "num_attention_heads;divide/config.json" \
    --model divide --init
refuse_train 1 "a window of 0" "window/config.json;sliding_window;at least 1, or null" \
    --model window --init
refuse_train 2 "sequences of 0 tokens" "--seq-len;from 1" --seq-len 0

# ---- weights ----
copy_model no-weights && rm no-weights/model.safetensors
refuse_train 1 "the weights are missing" "no-weights;model.safetensors;--init" --model no-weights
bytes=$(wc -c <model/model.safetensors)
copy_model short && head -c $((bytes - 100)) model/model.safetensors >short/model.safetensors
refuse_train 1 "the weights are truncated" "short/model.safetensors" --model short
copy_model stump && head -c 5 model/model.safetensors >stump/model.safetensors
refuse_train 1 "the weights end in the header's length" "stump/model.safetensors" --model stump
copy_model void && : >void/model.safetensors
refuse_train 1 "the weights are an empty file" "void/model.safetensors" --model void
patch() { # file, offset: overwrites with standard input
    dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
copy_model long && printf '\377\377\377\377\377\377\377\177' | patch long/model.safetensors 0
refuse_train 1 "the header lies about its length" "long/model.safetensors;header" --model long
copy_model lies && sed 's/"data_offsets":\[0,/"data_offsets":[4,/' model/model.safetensors \
    >lies/model.safetensors
refuse_train 1 "the header lies about an offset" "lies/model.safetensors;tensor" --model lies
copy_model dtype && sed 's/"F32"/"Q32"/' model/model.safetensors >dtype/model.safetensors
refuse_train 1 "the header has an unknown type" "dtype/model.safetensors;Q32" --model dtype
# Eight bytes of length and the header; then the data, of which element 2 becomes NaN.
header=$(od -An -t u8 -N 8 model/model.safetensors)
copy_model nan && printf '\000\000\300\177' | patch nan/model.safetensors $((8 + header + 8))
refuse_train 1 "NaN in the weights" "nan;tensor;NaN;element 2" --model nan
refuse 1 "NaN in the weights, eval" "nan;tensor;NaN" eval --model nan --data text.txt \
    --seq-len 16 --threads 1
refuse 1 "NaN in the weights, generate" "nan;tensor;NaN" generate --model nan --prompt a \
    --threads 1

# ---- data ----
refuse_data "a data file is missing" "missing.txt" missing.txt
: >empty.txt
refuse_data "the data is empty" "empty.txt;empty" empty.txt
printf 'abc' >tiny.txt
refuse_data "the data is shorter than a window" "tiny.txt;window;--seq-len" tiny.txt
mkdir folder.txt
refuse_data "the data is a folder" "folder.txt;regular file" folder.txt
printf '\001\000\002\000\377\377\003\000\001\000\002\000\001\000\002\000\001\000\002\000' >ids.bin
printf 'PAR1....PAR1' >a.parquet
refuse_data "Parquet" "a.parquet;Parquet;read_parquet" a.parquet
refuse_data "a pattern without a file" "no file matches;none-*.jsonl" 'none-*.jsonl'
printf 'a,b\n1,2\n' >t.csv
refuse_data "a table without the column" "t.csv;--text-column;a, b" t.csv
refuse_data "a token id is larger than the vocabulary" "ids.bin;65535;vocabulary;257" ids.bin \
    --no-shuffle --seq-len 4
copy_model low && sed 's/"vocab_size":[^,}]*/"vocab_size": 90/' model/config.json >low/config.json
refuse_train 1 "the tokenizer knows more than the model" "tokenizer;vocabulary" --model low --init
printf '{"text": "good"}\n{"txt": "bad"}\n' >field.jsonl
refuse "1" "a token id beyond the vocabulary, eval" "ids.bin;65535;vocabulary;257" eval --model model \
    --data ids.bin --seq-len 4 --threads 1
refuse_data "a JSON line without text" "field.jsonl;line 2;text" field.jsonl
refuse_train 1 "the evaluation data is missing" "missing.txt" --eval-data missing.txt

# ---- output ----
: >file
refuse_train 1 "the output is a plain file" "file;--output" --output file
refuse_train 1 "the output cannot be made" "--output;/proc/none" --output /proc/none
refuse_train 1 "the log cannot be written" "nowhere/log;--log" --log nowhere/log
refuse 1 "init into a plain file" "file;--output" init --arch gpt2 --size small --layers 1 \
    --hidden 8 --heads 1 --vocab 10 --context 8 --output file
if [ "$(id -u)" -eq 0 ]; then
    skip "the output is read-only" "root may write everywhere"
    skip "nvme_path is read-only" "root may write everywhere"
else
    mkdir locked && chmod a-w locked
    refuse_train 1 "the output is read-only" "locked;--output" --output locked
    offload locked.json ", \"nvme_path\": \"$work/locked\""
    refuse_train 1 "nvme_path is read-only" "locked;nvme_path" --config locked.json
    chmod u+w locked
fi

# An option of another task changes nothing, and a message says so.
"$zinf" train --model model --data text.txt --output idle --steps 1 --seq-len 16 --threads 1 --progress none \
    --prefix 'say: ' --class-weights balanced >said.out 2>said.err
holds said.err "--prefix, --class-weights changes nothing: the task is causal-lm, see --task"
verdict $? "options of other tasks are named"
"$zinf" eval --model model --data text.txt --seq-len 16 --threads 1 --few-shot text.txt --beta 0.5 \
    --choices letters --truncate beginning --min-tokens 3 --length-percentile 50 >said.out 2>said.err &&
    holds said.err "--beta, --few-shot, --choices changes nothing: the task is causal-lm" \
        "--truncate, --min-tokens, --length-percentile changes nothing for text.txt, a stream of text"
verdict $? "and of an evaluation, and of samples where there are none"

# ---- drives ----
offload no-path.json ""
refuse_train 1 "nvme_path is not given" "no-path.json;nvme_path;missing" --config no-path.json
echo '{"train_micro_batch_size_per_gpu": 1, "zinf": {"activation_device": "nvme"}}' >values.json
refuse_train 1 "nor is it for activations" \
    'zinf.activation_device is "nvme";set zero_optimization.offload_param.nvme_path' --config values.json
offload no-folder.json ", \"nvme_path\": \"$work/nowhere\""
refuse_train 1 "nvme_path does not exist" "nvme_path;$work/nowhere;make it" --config no-folder.json
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] && mkdir "$shm" 2>/dev/null; then
    offload shm.json ", \"nvme_path\": \"$shm\""
    refuse_train 1 "nvme_path is tmpfs" "nvme_path;$shm;memory" --config shm.json
else
    skip "nvme_path is tmpfs" "no writable tmpfs at /dev/shm"
fi
# A layer of width h has 12 h^2 parameters of 16 bytes with gradient and state: twice the free
# space, by as many layers as that takes. The working set stays that of one layer.
free_kib=$(df -Pk "$drive" | awk 'NR == 2 { print $4 }')
width=1024
layers=99999
while [ $layers -gt 4096 ]; do
    width=$((2 * width))
    layers=$((free_kib / (96 * (width * width / 1024)) + 1))
done
mkdir galaxy && sed -e "s/\"n_embd\":[^,]*/\"n_embd\": $width/" \
    -e "s/\"n_layer\":[^,]*/\"n_layer\": $layers/" model/config.json >galaxy/config.json
offload galaxy.json ", \"nvme_path\": \"$drive\"" ", \"zinf\": {\"look_ahead\": 0}"
refuse_train 1 "the drive is too small for the plan" "$drive;free;nvme_path" --model galaxy \
    --init --config galaxy.json

# ---- memory ----
refuse_train 1 "device memory is too small" \
    "plan does not fit;--device-memory;offload_param.device;activations;64.00 KiB" \
    --device-memory 64KiB
refuse_train 1 "host memory is too small" "plan does not fit;--host-memory;host;1.00 MiB" \
    --host-memory 1MiB

# ---- configuration ----
say() { # file, text
    printf '%s\n' "$2" >"$1"
}
refuse_train 1 "the configuration is missing" "nowhere.json" --config nowhere.json
say broken.json '{"train_batch_size": 1,, }'
refuse_train 1 "the configuration is not JSON" "broken.json: line 1;JSON" --config broken.json
say key.json '{"train_micro_batch_size_per_gpu": 1, "gradient_cliping": 1}'
refuse_train 1 "an unknown key" "key.json;gradient_cliping;gradient_clipping" --config key.json
[ ! -e out ]
verdict $? "it is found before anything is made"
say both.json '{"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true},
 "bf16": {"enabled": true}}'
refuse_train 1 "fp16 and bf16" "fp16.enabled;bf16.enabled;false" --config both.json
say value.json '{"train_micro_batch_size_per_gpu": "many"}'
refuse_train 1 "a word for a number" "value.json;train_micro_batch_size_per_gpu;many" \
    --config value.json
say optimizer.json '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamX"}}'
refuse_train 1 "an unknown optimizer" "optimizer.json;optimizer.type;AdamX" --config optimizer.json
say place.json '{"train_micro_batch_size_per_gpu": 1,
 "zero_optimization": {"stage": 3, "offload_param": {"device": "disk"}}}'
refuse_train 1 "an unknown place" "place.json;offload_param.device;disk;nvme" --config place.json

# ---- the command line ----
refuse_train 2 "--steps is no number" "--steps;ten" --steps ten
refuse_train 2 "--steps with a tail" "--steps;1x" --steps 1x
refuse_train 2 "--micro-batch is 0" "--micro-batch;from 1" --micro-batch 0
refuse_train 2 "--accumulate is negative" "--accumulate;-3" --accumulate=-3
refuse_train 1 "more micro-batches than a step can have" \
    "gradient_accumulation_steps 40000;32767;--micro-batch;--global-batch" \
    --micro-batch 1 --global-batch 40000
refuse_train 1 "more tokens at once than can be counted" \
    "train_micro_batch_size_per_gpu 1073741824;16 tokens;--micro-batch" --global-batch 1073741824
refuse_train 2 "--lr is no number" "--lr;fast" --lr fast
refuse_train 2 "--lr is NaN" "--lr;nan" --lr nan
refuse_train 2 "--dropout is 1" "--dropout" --dropout 1
refuse_train 2 "--device-memory has no unit that is known" "--device-memory;4Gb2" \
    --device-memory 4Gb2
refuse_train 2 "--device-memory has no unit" "--device-memory 30 has no unit;30GiB" \
    --device-memory 30
refuse_train 2 "--epochs and --steps" "--epochs;--steps" --epochs 1
refuse_train 2 "--overwrite and --resume" "--overwrite;--resume" --overwrite --resume
refuse_train 1 "an unknown schedule" "--lr-scheduler;sideways;cosine" --lr-scheduler sideways
refuse_train 2 "an unknown optimizer on the command line" "--optimizer;Adamm;AdamW" --optimizer Adamm
refuse_train 2 "--seq-len is larger than a number" "--seq-len" --seq-len 99999999999999999999
refuse_train 1 "--seq-len is larger than the context" "--seq-len 33;config.json" --seq-len 33
refuse_train 2 "--device is unknown" "--device;tpu;host" --device tpu
refuse_train 2 "--progress is unknown" "--progress;loud;plain" --progress loud
refuse_train 2 "an unknown option" "--step;did you mean --steps" --step 1
refuse 2 "--model is missing" "--model" train --data text.txt
refuse 2 "--data is missing" "--data" train --model model
refuse 2 "an unknown --arch" "--arch;gpt9;gpt2" init --arch gpt9 --size small --output out
refuse 2 "an unknown --size" "--size;tiny;small" init --arch gpt2 --size tiny --output out
refuse 2 "an unknown --dtype" "int3;bf16" init --arch gpt2 --size small --dtype int3 --output out
refuse 2 "an unknown command" "trian;train" trian

# ---- runs that end early ----
"$zinf" init --arch gpt2 --size small --layers 4 --hidden 64 --heads 2 --vocab 257 --context 32 \
    --output model2 >/dev/null || exit 99
offload forgetful.json ", \"nvme_path\": \"$drive\"" ', "zinf": {"placement": "exact", "durability": "none"}'
config=forgetful.json
start() { # output; a run that goes on until it is stopped
    # A shell ignores SIGINT in what it starts in the background; env gives it back.
    env --default-signal=INT "$zinf" train --model model2 --data text.txt --output "$1" \
        --config $config --steps 1000000 --seq-len 16 --threads 1 --progress none \
        >"$1.out" 2>"$1.err" &
    pid=$!
    wait_until $pid has_lines "$1" 2
}

start killed
ls -d "$drive"/zinf-* >/dev/null 2>&1
verdict $? "a run has a folder under nvme_path"
dead=$(ls "$drive")
kill -9 $pid
wait $pid 2>/dev/null
[ -d "$drive/$dead" ] && [ ! -e killed/model ]
verdict $? "kill -9 leaves the folder, and no model"

start other
[ ! -e "$drive/$dead" ] && grep -qF "$dead" other.err && [ -n "$(ls -A "$drive")" ]
verdict $? "the next run on the path removes it and says so"
kill -INT $pid
wait $pid
status=$?
[ $status -eq 130 ] && [ -f other/model/model.safetensors ] && grep -q '"final_loss"' other.out
verdict $? "SIGINT: the step is finished and the model saved"
[ -z "$(ls -A "$drive")" ] && [ ! -e other/model.partial ]
verdict $? "SIGINT: nothing is left under nvme_path"
[ "$("$zinf" eval --model other/model --data text.txt --seq-len 16 --threads 1 2>/dev/null |
    grep -c perplexity)" -eq 1 ]
verdict $? "SIGINT: what was saved can be evaluated"
finish
