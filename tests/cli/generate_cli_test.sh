#!/bin/sh
# generate: what a user sees of it: prompts from everywhere, stop strings, generation_config.json,
# JSON, streams, and what is refused. Texts are bytes; the model has a context of 32.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
mkdir model && cp "$SRCDIR/tests/fixtures/gpt2_c/config.json" \
    "$SRCDIR/tests/fixtures/gpt2_c/model.safetensors" model && chmod u+w model/*

generate() { # options...
    "$zinf" generate --model model --threads 1 --device host "$@"
}
same() { # name, file, file
    cmp -s "$2" "$3"
    verdict $? "$1"
}
field() { # key, file: of each line
    sed -n "s/.*\"$1\":\\(\"[^\"]*\"\\|[0-9][0-9]*\\|\\[[^]]*\\]\\).*/\\1/p" "$2"
}

# ---- prompts ----

check "one prompt" run 0 generate --prompt abc --max-new-tokens 9 --temperature 0
cp said.out one
says abc && complains "3 prompt tokens" && complains "9 new tokens" && complains "tokens/s"
verdict $? "speed is said on standard error"
check "as JSON" run 0 generate --prompt abc --max-new-tokens 9 --temperature 0 --json
[ "$(field finish said.out) $(field new_tokens said.out)" = '"length" 9' ]
verdict $? "it says how the text ended"
printf 'abc\n\nzyx w\r\n' >lines
check "a file of prompts" run 0 generate --prompts lines --prompt Q --max-new-tokens 9 \
    --temperature 0 --json
cp said.out three
[ "$(field prompt three | tr '\n' ' ')" = '"Q" "abc" "zyx w" ' ]
verdict $? "prompts in their order"
check "standard input, one at a time" run 0 sh -c 'zinf=$1; shift; "$zinf" "$@" <lines' - \
    "$zinf" generate --model model --threads 1 --device host --prompts - --prompt Q \
    --max-new-tokens 9 --temperature 0 --json --batch 1
same "company changes no text" three said.out
mkdir drive
cat >offload.json <<EOF
{"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "exact"}}
EOF
check "parameters on a drive" run 0 generate --prompts lines --prompt Q --max-new-tokens 9 \
    --temperature 0 --json --config offload.json
same "the same texts" three said.out

# ---- where texts end ----

check "the context is full" run 0 generate --prompt abcdef --temperature 0 --ignore-eos --json
[ "$(field finish said.out) $(field new_tokens said.out)" = '"context" 27' ]
verdict $? "after as many tokens as it has room for"
cp said.out full
third=$(field ids full | tr -d '[]' | cut -d, -f3)
printf '{"eos_token_id": [300, %s], "do_sample": false}' "$third" >model/generation_config.json
check "a list of end-of-text tokens" run 0 generate --prompt abcdef --json
[ "$(field finish said.out)" = '"end"' ] && [ "$(field new_tokens said.out)" -le 2 ]
verdict $? "ends the text before its end-of-text token"
check "it need not" run 0 generate --prompt abcdef --ignore-eos --json
same "--ignore-eos" full said.out
rm model/generation_config.json
# The first printable byte behind the prompt of some text: where a stop string is found.
check "texts that are drawn" run 0 generate --prompt abc --max-new-tokens 20 --seed 3 --ignore-eos
cp said.out drawn
letter=$(tail -c +4 drawn | LC_ALL=C tr -cd 'A-Za-z' | cut -c1)
check "a stop string" run 0 generate --prompt abc --max-new-tokens 20 --seed 3 --ignore-eos \
    --stop "$letter" 'not in it'
[ -n "$letter" ] && ! tail -c +4 said.out | grep -qaF -e "$letter" &&
    [ "$(wc -c <said.out)" -lt "$(wc -c <drawn)" ]
verdict $? "is not printed, nor what follows"
head -c "$(($(wc -c <said.out) - 1))" said.out >stopped
head -c "$(wc -c <stopped)" drawn >begun
same "what is before is the same" stopped begun
check "the same seed" run 0 generate --prompt abc --max-new-tokens 20 --seed 3 --ignore-eos
same "gives the same text" drawn said.out

# ---- generation_config.json ----

cat >model/generation_config.json <<EOF
{"do_sample": true, "temperature": 0.5, "top_k": 3, "max_new_tokens": 7, "num_beams": 4,
 "typical_p": 1.0, "min_p": 0.1, "eos_token_id": 256, "transformers_version": "5.0"}
EOF
check "settings of the folder" run 0 generate --prompt abc --json --seed 1 --ignore-eos
cp said.out by_file
[ "$(field new_tokens said.out)" = 7 ] && complains "num_beams, min_p" &&
    [ "$(grep -c num_beams said.err)" = 1 ] && ! grep -q typical_p said.err
verdict $? "what is not used is named once"
rm model/generation_config.json
check "the same by options" run 0 generate --prompt abc --json --seed 1 --ignore-eos \
    --temperature 0.5 --top-k 3 --max-new-tokens 7
same "the file is what options say" by_file said.out
echo '{"max_length": 12}' >model/generation_config.json
check "without do_sample" run 0 generate --prompt abc --ignore-eos
cp said.out greedy
check "the most likely token" run 0 generate --prompt abc --ignore-eos --temperature 0 \
    --max-new-tokens 9
same "is taken, up to max_length" greedy said.out
echo '{"temperature": "hot"}' >model/generation_config.json
check "a wrong value" run 1 generate --prompt abc
complains "generation_config.json" "temperature"
verdict $? "is named"
rm model/generation_config.json

# ---- beams ----

check "beams" run 0 generate --prompts lines --prompt Q --max-new-tokens 9 --num-beams 3 --json
cp said.out beams
[ "$(field prompt beams | tr '\n' ' ')" = '"Q" "abc" "zyx w" ' ] && complains "prompt tokens"
verdict $? "print every text once"
check "beams on a drive, one text at a time" run 0 generate --prompts lines --prompt Q \
    --max-new-tokens 9 --num-beams 3 --json --config offload.json --batch 1
same "the same texts by beams" beams said.out
check "settings of a search" run 0 generate --prompt abc --ignore-eos --num-beams 3 \
    --length-penalty=-2 --early-stopping never --no-repeat-ngram 2 --max-new-tokens 12
cp said.out searched
echo '{"num_beams": 3, "length_penalty": -2.0, "early_stopping": "never", "max_new_tokens": 12,
 "no_repeat_ngram_size": 2}' >model/generation_config.json
check "of the folder" run 0 generate --prompt abc --ignore-eos
same "are the same" searched said.out
echo '{"early_stopping": "soon"}' >model/generation_config.json
check "a wrong word there" run 1 generate --prompt abc
complains "early_stopping soon" "never"
verdict $? "is named with those that there are"
rm model/generation_config.json
check "no token twice" run 0 generate --prompt abc --ignore-eos --temperature 0 --json \
    --no-repeat-ngram 1 --max-new-tokens 20
[ -z "$(field ids said.out | tr -d '[]' | tr , '\n' | sort | uniq -d)" ]
verdict $? "by --no-repeat-ngram 1"
check "beams and draws" run 2 generate --prompt abc --num-beams 2 --temperature 1
complains "--num-beams" "--temperature"
verdict $? "are told apart"
check "a penalty without beams" run 2 generate --prompt abc --length-penalty 2
check "no such way to stop" run 2 generate --prompt abc --num-beams 2 --early-stopping maybe

# ---- what stands around a text ----

check "a tokenizer of bytes" run 0 "$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 \
    --heads 2 --vocab 257 --context 32 --tokenizer bytes --output framed
cat >template <<EOF
{"post_processor": {"type": "TemplateProcessing", "pair": [],
 "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
 "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [256], "tokens": ["<|endoftext|>"]}}},
EOF
{ cat template; sed '1s/{//' framed/tokenizer.json; } >tokenizer.json && mv tokenizer.json framed/
check "a token in front of the text" run 0 "$zinf" generate --model framed --threads 1 --device host \
    --prompt abc --max-new-tokens 3 --json --ignore-eos
[ "$(field prompt_tokens said.out) $(field prompt said.out)" = '4 "abc"' ]
verdict $? "is counted and not shown"

# ---- an encoder ----

run 0 "$zinf" init --arch t5 --size small --layers 1 --hidden 16 --heads 2 --vocab 257 --output t5
check "what an encoder reads" run 0 "$zinf" generate --model t5 --threads 1 --device host \
    --prompt abc --max-new-tokens 2 --temperature 0 --json
[ "$(field prompt_tokens said.out)" = 4 ]
verdict $? "is the prompt, with the token that ends it"

# ---- a GPU ----

if [ -f "$BUILDDIR/tests/.libs/zinf-cuda-standin.so" ]; then
    ZINF_CUDA_MODULE=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
    export ZINF_CUDA_MODULE
    check "on a GPU" run 0 "$zinf" generate --model model --threads 1 --device cuda --prompts lines \
        --prompt Q --max-new-tokens 9 --temperature 0 --json
    ! complains "computes its whole text again"
    verdict $? "keys and values are remembered there"
    same "the same texts on a GPU" three said.out
    unset ZINF_CUDA_MODULE
fi

# ---- refusals ----

check "no prompt" run 2 generate
complains "--prompt TEXT or --prompts FILE is missing"
verdict $? "is said"
check "an empty prompt" run 1 generate --prompt ''
check "an empty file of prompts" run 1 generate --prompts /dev/null
check "no such file" run 1 generate --prompts missing
complains "--prompts missing"
verdict $? "is named"
check "an empty stop string" run 2 generate --prompt a --stop ''
check "a prompt beyond the context" run 1 generate --prompt abc "$(printf '%033d' 7)"
complains "prompt 2 has 33 tokens" "context is 32"
verdict $? "says which, and how long it may be"
check "no room for keys and values" run 1 generate --prompt abc --device-memory 20KiB \
    --host-memory 20KiB
check "a small model" run 0 "$zinf" init --arch llama --size 7b --layers 1 --hidden 32 --heads 4 \
    --vocab 257 --context 16 --output dynamic
sed -i 's/"rope_theta":[[:space:]]*[0-9]*/&, "rope_scaling": {"type": "dynamic", "factor": 2.0}/' \
    dynamic/config.json
check "frequencies that change with the length" run 0 "$zinf" generate --model dynamic --threads 1 \
    --device host --prompt abc --max-new-tokens 20 --ignore-eos
complains "computes its whole text again" "dynamic"
verdict $? "is said"
# What generate refuses of a folder's file inspect says too.
cp -r dynamic spoilt
for values in '"temperature": -1' '"num_beams": "x"' '"top_p": 2'; do
    echo "{$values}" >spoilt/generation_config.json
    key=$(echo "$values" | cut -d '"' -f 2)
    check "generation_config.json: $values" run 1 "$zinf" generate --model spoilt --prompt a
    complains "spoilt/generation_config.json" "$key"
    verdict $? "is named"
    check "inspect sees it" run 1 "$zinf" inspect spoilt
    complains "spoilt/generation_config.json" "$key"
    verdict $? "and names it"
done
hub_name() { # a name that is no folder is found in the cache of Hugging Face's programs
    cache=$work/hub/hub/models--org--tiny
    mkdir -p "$cache/refs" "$cache/snapshots/abc123" && printf abc123 >"$cache/refs/main" &&
        run 0 "$zinf" init --arch llama --layers 1 --hidden 16 --heads 2 --vocab 257 --context 32 \
            --output "$cache/snapshots/abc123" || return 1
    HF_HOME=$work/hub run 0 "$zinf" generate --model org/tiny --prompt Hi --max-new-tokens 2 &&
        complains "--model org/tiny: $cache/snapshots/abc123" || return 1
    printf ../.. >"$cache/refs/main"
    HF_HOME=$work/hub run 1 "$zinf" generate --model org/tiny --prompt Hi && complains "no such folder"
}
check "a name of the hub" hub_name
# ---- a NUL is a character of a text ----

check "a model of bytes" run 0 "$zinf" init --arch gpt2 --size small --layers 2 --hidden 64 --heads 4 \
    --vocab 257 --context 256 --tokenizer bytes --seed 5 --output bytes
check "a text with a NUL" run 0 "$zinf" generate --model bytes --threads 1 --device host --json \
    --prompt abc --max-new-tokens 100 --temperature 1 --ignore-eos --seed 5
LC_ALL=C grep -q '"text":".*\\u0000[^"].*","finish":"length"' said.out
verdict $? "is not cut there in JSON"
check "as it is" run 0 "$zinf" generate --model bytes --threads 1 --device host \
    --prompt abc --max-new-tokens 100 --temperature 1 --ignore-eos --seed 5
[ "$(LC_ALL=C tr -cd '\000' <said.out | wc -c)" -ge 1 ] && [ "$(wc -c <said.out)" -ge 100 ]
verdict $? "nor as plain text"
finish
